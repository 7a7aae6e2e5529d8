"""Functions of `scipy.special` on traced and plain values.

Those that are ufuncs take traced values as they stand and are passed on: ``ad.scipy.special.erf`` is
``scipy.special.erf``. Those written in Python are here.
"""

import numpy as np
import scipy.special

from mercer.autodiff import rules_special
from mercer.autodiff.rules_bessel import spherical_jn as _spherical_jn
from mercer.autodiff.rules_bessel import spherical_slope
from mercer.autodiff.trace import Traced

__all__ = ["log_softmax", "logsumexp", "multigammaln", "polygamma", "softmax", "spherical_jn"]


def __getattr__(name):
    return getattr(scipy.special, name)


def _array(x):
    """Return an array, traced if something in it is."""
    if isinstance(x, Traced):
        return x
    if isinstance(x, list | tuple) and any(isinstance(item, Traced) for item in x):
        return np.stack([_array(item) for item in x])
    return np.asarray(x)


def softmax(x, axis=None):
    """Return exp(x) / Σ exp(x) along axes.

    Parameters
    ----------
    x : array
        Traced or plain.
    axis : int or tuple of int, optional
        All axes by default.

    Returns
    -------
    array of x's shape
    """
    x = _array(x)
    return rules_special.softmax(x, axis) if isinstance(x, Traced) else scipy.special.softmax(x, axis)


def log_softmax(x, axis=None):
    """Return x − log Σ exp(x) along axes.

    Parameters
    ----------
    x : array
        Traced or plain.
    axis : int or tuple of int, optional
        All axes by default.

    Returns
    -------
    array of x's shape
    """
    x = _array(x)
    return rules_special.log_softmax(x, axis) if isinstance(x, Traced) else scipy.special.log_softmax(x, axis)


def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False):
    """Return log Σ b exp(a) along axes, without overflow.

    Parameters
    ----------
    a : array
        Real; traced or plain.
    axis : int or tuple of int, optional
        All axes by default.
    b : array, optional
        Weights, of any sign; traced or plain.
    keepdims : bool
    return_sign : bool
        Whether to return (log |Σ b exp(a)|, sign). Without, a negative sum gives NaN.

    Returns
    -------
    array, or a pair of these

    Notes
    -----
    The derivative in `a` is the softmax. Entries that are infinite and equal have equal shares.
    """
    a, b = _array(a), None if b is None else _array(b)
    f = rules_special.logsumexp if isinstance(a, Traced) or isinstance(b, Traced) else scipy.special.logsumexp
    return f(a, axis=axis, b=b, keepdims=keepdims, return_sign=return_sign)


def polygamma(n, x):
    """Return the n-th derivative of the digamma function, differentiable in x.

    Parameters
    ----------
    n : int or array of int
    x : array
        Real; traced or plain.

    Returns
    -------
    array
    """
    return rules_special.polygamma(n, _array(x))


def multigammaln(a, d):
    """Return the logarithm of the multivariate gamma function of dimension d.

    Parameters
    ----------
    a : array
        Above (d − 1)/2; traced or plain.
    d : int

    Returns
    -------
    array of a's shape, d (d − 1)/4 log π + Σ_j log Γ(a − (j − 1)/2)
    """
    a = _array(a)
    if not isinstance(a, Traced):
        return scipy.special.multigammaln(a, d)
    if not np.all(a > 0.5 * (d - 1)):
        raise ValueError(f"condition a ({a:f}) > 0.5 * (d-1) ({0.5 * (d - 1):f}) not met")
    terms = scipy.special.gammaln(np.expand_dims(a, -1) - np.arange(d) / 2)
    return d * (d - 1) / 4 * np.log(np.pi) + np.sum(terms, axis=-1)


def spherical_jn(n, z, derivative=False):
    """Return the spherical Bessel function of the first kind, differentiable in z.

    Parameters
    ----------
    n : int
        The order.
    z : array
        Traced or plain.
    derivative : bool
        Whether to return its derivative instead.

    Returns
    -------
    array of z's shape
    """
    z = _array(z)
    if not isinstance(z, Traced):
        return scipy.special.spherical_jn(n, z, derivative)
    if not derivative:
        return _spherical_jn(z, n=n)
    return spherical_slope(z, n)

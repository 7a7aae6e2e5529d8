"""Kernels by scikit-learn's names, with its rules for gamma, degree and coef0.

Place on the way: kernel classes → **names** → estimators whose ``kernel`` is a string.
"""

import difflib

import numpy as np
from scipy import sparse

from .._arrays import plain
from .dot_product import Cosine, Linear, Polynomial, Sigmoid
from .fourier import Fourier
from .precomputed import Precomputed
from .stationary import RBF, ChiSquared, Laplacian

__all__ = ["from_name", "variance_of"]

# name -> kernel of (gamma, degree, coef0), gamma a function that is called where it matters.
_KERNELS = {
    "linear": lambda gamma, degree, coef0: Linear(),
    "poly": lambda gamma, degree, coef0: Polynomial(degree, gamma=gamma(), coef0=coef0),
    "polynomial": lambda gamma, degree, coef0: Polynomial(degree, gamma=gamma(), coef0=coef0),
    "rbf": lambda gamma, degree, coef0: RBF(gamma=gamma()),
    "sigmoid": lambda gamma, degree, coef0: Sigmoid(gamma=gamma(), coef0=coef0),
    "cosine": lambda gamma, degree, coef0: Cosine(),
    # scikit-learn's chi2_kernel has gamma = 1 where the others have 1/d.
    "chi2": lambda gamma, degree, coef0: ChiSquared(gamma=gamma(1.0)),
    "laplacian": lambda gamma, degree, coef0: Laplacian(gamma=gamma()),
    "fourier": lambda gamma, degree, coef0: Fourier(degree),
    "precomputed": lambda gamma, degree, coef0: Precomputed(),
}
# What others call them.
_OTHER_NAMES = {
    "gaussian": "rbf",
    "squared_exponential": "rbf",
    "dirichlet": "fourier",
    "exponential": "laplacian",
}


def from_name(name, gamma=None, degree=3, coef0=1.0, *, n_features=None, variance=None):
    """The kernel that a name stands for.

    Parameters
    ----------
    name : str
        "linear", "poly" or "polynomial", "rbf", "sigmoid", "cosine", "chi2", "laplacian", "fourier" (of
        period 1) or "precomputed".
    gamma : float, "scale", "auto" or None, default=None
        "scale" is 1 / (n_features · variance), or 1 where the variance is 0; "auto" and None are
        1 / n_features, but None is 1 for "chi2". Read by "poly", "rbf", "sigmoid", "chi2" and "laplacian".
    degree : int, default=3
        Of "poly" and of "fourier".
    coef0 : float, default=1.0
        Of "poly" and "sigmoid".
    n_features : int, default=None
        Columns of the training data; needed unless gamma is a number.
    variance : float or callable, default=None
        Of all entries of the training data, see `variance_of`; needed for "scale". A function without
        arguments is called where gamma is read.

    Returns
    -------
    Kernel
        With gamma as a number: what later data look like has no influence on it.

    Raises
    ------
    ValueError
        For an unknown name or a gamma of another kind, with the nearest ones; or if what gamma is worked
        out from is not given, or not finite.
    TypeError
        If the name is not a string.

    Examples
    --------
    >>> from mercer.kernels import from_name
    >>> from_name("rbf", gamma="scale", n_features=2, variance=14.0).gamma
    0.03571428571428571
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a kernel is a string, got {name!r} of type {type(name).__name__}")
    if name not in _KERNELS:
        raise ValueError(f"unknown kernel {name!r}; {_nearest(name)}, or pass a kernel of mercer.kernels")
    if isinstance(gamma, str) and gamma not in ("scale", "auto"):
        raise ValueError(f"gamma={gamma!r} is unknown; it is a number, 'scale', 'auto' or None")

    def resolved(default=None):
        return _gamma(gamma, default, n_features, variance)

    return _KERNELS[name](resolved, degree, coef0)


@np.errstate(over="ignore", invalid="ignore")
def variance_of(X):
    """Variance of all entries of a matrix, in float64; the zeros that a sparse one does not store count.

    It is exactly 0 where all entries are equal, whatever their mean is rounded to, and not finite where it
    leaves float64's range.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)

    Returns
    -------
    float
    """
    if not sparse.issparse(X):
        return 0.0 if np.min(X) == np.max(X) else float(np.var(X, dtype=np.float64))
    stored = X.tocsr()
    if not stored.has_canonical_format:
        stored = stored.copy()  # the caller's matrix stays as it is
        stored.sum_duplicates()
    values = stored.data.astype(np.float64)
    size = X.shape[0] * X.shape[1]
    if values.size in (0, size) and not np.ptp(values if values.size else [0.0]):
        return 0.0
    mean = values.sum() / size
    return float((np.square(values - mean).sum() + (size - values.size) * mean**2) / size)


def _gamma(gamma, default, n_features, variance):
    """Gamma as a number (or as the traced scalar that was given)."""
    if gamma is None and default is not None:
        return default
    if gamma is not None and not isinstance(gamma, str):
        if np.ndim(plain(gamma)) != 0:
            raise ValueError("with a named kernel gamma is one number; for one per feature pass RBF(gamma=…)")
        return gamma
    if n_features is None:
        raise ValueError(f"gamma={gamma!r} comes from the data: give n_features, or gamma as a number")
    if gamma != "scale":
        return 1.0 / n_features
    if variance is None:
        raise ValueError("gamma='scale' comes from the data: give variance, or gamma as a number")
    variance = variance() if callable(variance) else variance
    if not np.isfinite(variance):
        raise ValueError(
            "the variance of X, from which gamma='scale' comes, leaves float64's range; scale the samples "
            "down first"
        )
    # Constant data (and a variance so small that its reciprocal overflows) have no scale: 1, as scikit-learn.
    spread = float(n_features * variance)
    return 1.0 / spread if spread > 1.0 / np.finfo(np.float64).max else 1.0


def _nearest(name):
    name = name.strip().lower()
    close = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else []
    close = close or difflib.get_close_matches(name, _KERNELS, n=3, cutoff=0.5)
    names = f"nown are {', '.join(map(repr, _KERNELS))}"
    return f"did you mean {' or '.join(map(repr, close))}? K{names}" if close else f"k{names}"

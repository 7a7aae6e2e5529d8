"""Rules of scipy.special's distribution functions, complements and inverses, but for gamma's (`rules_gamma`).

Each has a density: the derivative of the distribution function in its variable, and one over it of the
inverse. Derivatives in shape parameters that are no closed form raise
:class:`~mercer.autodiff.errors.NoRuleError`.
"""

import math

import numpy as np
import scipy.special as sp

from mercer.autodiff.rules import elementwise
from mercer.autodiff.rules_gamma import density
from mercer.autodiff.rules_special import without_rule

__all__ = []


def _beta_density(a, b, x):
    """x^(a−1) (1 − x)^(b−1) / B(a, b)."""
    log = sp.xlogy(np.subtract(a, 1), x) + sp.xlog1py(np.subtract(b, 1), -x) - sp.betaln(a, b)
    return np.exp(log)


def _f_density(m, n, x):
    """c^a x^(a−1) (1 + c x)^(−a−b) / B(a, b), a = m/2, b = n/2, c = m/n."""
    a, b, c = np.multiply(0.5, m), np.multiply(0.5, n), np.divide(m, n)
    log = a * np.log(c) + sp.xlogy(a - 1, x) - (a + b) * np.log1p(c * x) - sp.betaln(a, b)
    return np.exp(log)


def _t_density(v, t):
    """(1 + t²/v)^(−(v+1)/2) / (√v B(½, v/2))."""
    half = np.multiply(0.5, v)
    return np.exp(-(half + 0.5) * np.log1p(t * t / v) - sp.betaln(0.5, half)) / np.sqrt(v)


def _distribution(functions, inverses, density, names):
    """Give rules in the last argument; functions and inverses with the sign of their slope."""
    for ufunc, sign in functions:
        others = [without_rule(ufunc.__name__, name) for name in names]
        elementwise(ufunc, *others, lambda ans, *args, sign=sign: sign * density(*args))
    for ufunc, sign in inverses:
        others = [without_rule(ufunc.__name__, name) for name in names]
        elementwise(ufunc, *others, lambda ans, *args, sign=sign: sign / density(*args[:-1], ans))


_distribution(
    [(sp.betainc, 1), (sp.betaincc, -1)],
    [(sp.betaincinv, 1), (sp.betainccinv, -1)],
    _beta_density,
    ("a", "b"),
)
_distribution([(sp.fdtr, 1), (sp.fdtrc, -1)], [(sp.fdtri, 1)], _f_density, ("dfn", "dfd"))
_distribution([(sp.stdtr, 1)], [(sp.stdtrit, 1)], _t_density, ("df",))
# Counts: sums of probabilities up to the whole number below k are gamma's and beta's integrals. SciPy
# truncates numbers of trials and of successes.
_distribution(
    [(sp.pdtr, -1), (sp.pdtrc, 1)],
    [(sp.pdtri, -1)],
    lambda k, m: density(np.floor(k) + 1, m),
    ("k",),
)
_distribution(
    [(sp.bdtr, -1), (sp.bdtrc, 1)],
    [(sp.bdtri, -1)],
    lambda k, n, p: _beta_density(np.floor(k) + 1, np.trunc(n) - np.floor(k), p),
    ("k", "n"),
)
_distribution(
    [(sp.nbdtr, 1), (sp.nbdtrc, -1)],
    [(sp.nbdtri, 1)],
    lambda k, n, p: _beta_density(np.trunc(n), np.trunc(k) + 1, p),
    ("k", "n"),
)

# -- normal ---------------------------------------------------------------------------------------------

_SQRT_2PI, _SQRT_2 = math.sqrt(2.0 * math.pi), math.sqrt(2.0)


def _normal_quantile_slope(q):
    return _SQRT_2PI * np.exp(0.5 * q * q)


elementwise(sp.ndtr, lambda ans, x: np.exp(-0.5 * x * x) / _SQRT_2PI)
elementwise(sp.log_ndtr, lambda ans, x: math.sqrt(2 / math.pi) / sp.erfcx(x / -_SQRT_2))
elementwise(sp.ndtri, lambda ans, p: _normal_quantile_slope(ans))
elementwise(sp.ndtri_exp, lambda ans, y: math.sqrt(math.pi / 2) * sp.erfcx(ans / -_SQRT_2))
# x = mean + sd q, of which one is asked for
elementwise(
    sp.nrdtrimn,
    lambda ans, p, sd, x: -sd * _normal_quantile_slope(sp.ndtri(p)),
    lambda ans, p, sd, x: -sp.ndtri(p),
    1,
)
elementwise(
    sp.nrdtrisd,
    lambda ans, mean, p, x: -1 / sp.ndtri(p),
    lambda ans, mean, p, x: -ans * _normal_quantile_slope(sp.ndtri(p)) / sp.ndtri(p),
    lambda ans, mean, p, x: 1 / sp.ndtri(p),
)

# -- the Voigt profile ----------------------------------------------------------------------------------


def _faddeeva(x, sigma, gamma):
    """Return z = (x + iγ)/(σ√2) and w'(z) = 2i/√π − 2 z w(z), of which the profile is Re w(z)/(σ√(2π))."""
    z = (x + 1j * gamma) / (_SQRT_2 * sigma)
    return z, 2j / math.sqrt(math.pi) - 2 * z * sp.wofz(z)


elementwise(
    sp.voigt_profile,
    lambda ans, x, s, g: np.real(_faddeeva(x, s, g)[1]) / (2 * math.sqrt(math.pi) * np.square(s)),
    lambda ans, x, s, g: -(ans + np.real(np.multiply(*_faddeeva(x, s, g))) / (_SQRT_2PI * s)) / s,
    lambda ans, x, s, g: -np.imag(_faddeeva(x, s, g)[1]) / (2 * math.sqrt(math.pi) * np.square(s)),
)

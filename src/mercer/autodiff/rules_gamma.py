"""Rules of the incomplete gamma function P(a, x), its complement and its inverse, in the shape a, too.

With the density f(t) = t^(a−1) e^(−t)/Γ(a) and L(t) = log t − ψ(a), the derivatives of P in a are

    ∂P/∂a = ∫₀ˣ L f dt = −∫ₓ^∞ L f dt,    ∂²P/∂a² = ∫₀ˣ (L² − ψ'(a)) f dt,

whichever side of x has an L of one sign: then nothing cancels. Either is x f(x) times a ratio that neither
overflows nor underflows, an integral over u = |log(t/x)| by Gauss's rule on fixed panels, or for small x a
power series. Error of the ratio: 16 eps for a from 10⁻⁶ to 10¹⁰ (of the second one 16 (1 + 1/a) eps, away
from its zeros); of x f(x): (8 + |log(x f)|) eps.
"""

import math

import numpy as np
import scipy.special as sp
from numpy.polynomial.legendre import leggauss

from mercer.autodiff.rules import Primitive, elementwise, scale
from mercer.autodiff.rules_special import without_rule

__all__ = ["density", "ratio", "shape_slope"]

#: Up to here by the power series: L + 1/a < 0 for every a, so that its terms have one sign.
_SMALL = 0.4
#: From here on by Stirling's series, whose terms below are accurate to eps/10.
_LARGE = 20.0
#: How many points are done at a time.
_BLOCK = 2048


def _panels(edges, n):
    """Return nodes and weights of Gauss's rule with n points on each panel."""
    z, w = leggauss(n)
    halves, middles = np.diff(edges) / 2, (np.array(edges[1:]) + edges[:-1]) / 2
    return (halves[:, None] * z + middles[:, None]).ravel(), np.outer(halves, w).ravel()


# In units of the integrand's width: it falls as exp(−u) or as exp(−u²/8), or faster.
_NODES, _WEIGHTS = _panels([0, 1, 2, 3, 4.5, 7, 11, 18, 30, 50, 80], 12)


# -- what is computed without cancellation --------------------------------------------------------------


def _exp_less_line(u):
    """Return eᵘ − 1 − u, by its series for small u."""
    near = np.abs(u) < 0.5
    small, series = np.where(near, u, 0.0), 1.0
    for k in range(17, 2, -1):
        series = 1.0 + series * small / k
    return np.where(near, 0.5 * small * small * series, np.expm1(u) - u)


def _log_less_psi(a):
    """Return log a − ψ(a), by its asymptotic series for large a."""
    r = 1.0 / np.maximum(a, _LARGE)
    q = r * r
    series = r / 2 + q * (1 / 12 - q * (1 / 120 - q * (1 / 252 - q * (1 / 240 - q / 132))))
    return np.where(a > _LARGE, series, np.log(a) - sp.psi(a))


def _log_quotient(a, x):
    """Return log(x/a), accurate where they are near each other."""
    m = (x - a) / a
    return np.where(np.abs(m) < 0.5, np.log1p(m), np.log(x) - np.log(a))


def _score_of(a, x):
    return _log_quotient(a, x) + _log_less_psi(a)


def _weight_of(a, x):
    """X f(x) = x^a e^(−x)/Γ(a)."""
    r = 1.0 / np.maximum(a, _LARGE)
    q = r * r
    stirling = r * (1 / 12 - q * (1 / 360 - q * (1 / 1260 - q * (1 / 1680 - q / 1188))))
    large = 0.5 * np.log(a / (2 * math.pi)) - a * _exp_less_line(_log_quotient(a, x)) - stirling
    weight = np.exp(np.where(a > _LARGE, large, sp.xlogy(a, x) - x - sp.gammaln(a)))
    return np.where(np.less_equal(a, 0), np.nan, weight)[()]


def _density_of(a, x):
    small = np.exp(sp.xlogy(np.subtract(a, 1), x) - x - sp.gammaln(a))
    large = _weight_of(a, x) / np.where(np.equal(x, 0), 1, x)
    return np.where(np.greater(a, _LARGE) & np.greater(x, 0), large, small)[()]


# -- the ratios of the shape's derivatives to x f(x) ----------------------------------------------------


def _by_series(a, x, order):
    """P = x^a/Γ(a + 1) · S, S = Σ a (−x)ⁿ/((a + n) n!), differentiated term by term."""
    term, sums = np.ones_like(x), [np.ones_like(x), np.zeros_like(x), np.zeros_like(x)]
    for n in range(1, 17):
        term = term * -x / n
        sums = [s + t for s, t in zip(sums, _series_terms(term, a, n), strict=True)]
    log = np.log(x) - sp.psi(a + 1)
    value, slope, second = sums
    if order == 1:
        total = log * value + slope
    else:
        total = (log * log - sp.zeta(2, a + 1)) * value + 2 * log * slope + second
    return np.exp(x) * total / a


def _series_terms(term, a, n):
    """a/(a + n) and its derivatives in a, times (−x)ⁿ/n!."""
    return term * a / (a + n), term * n / (a + n) ** 2, -2 * term * n / (a + n) ** 3


def _by_quadrature(a, x, order):
    """∫ h(L) exp(−|x − a| u − x (e^(±u) − 1 ∓ u)) du on the side of x where L has the sign it has at x."""
    score = _score_of(a, x)
    side = np.where(score < 0, -1.0, 1.0)
    drift = side * (x - a)
    width = 1 / (np.abs(drift) + np.sqrt(x))
    u = _NODES[:, None] * width
    h = score + side * u
    if order == 2:
        h = h * h - sp.zeta(2, a)
    return -side * width * (_WEIGHTS @ (h * np.exp(-drift * u - x * _exp_less_line(side * u))))


def _ratio_of(a, x, order):
    """Return ∂ᵒP/∂aᵒ over x f(x), of order 1 or 2."""
    a, x = np.broadcast_arrays(np.asarray(a, float), np.asarray(x, float))
    flat_a, flat_x, out = a.ravel(), x.ravel(), np.full(a.size, np.nan)
    good = (flat_a > 0) & np.isfinite(flat_a) & (flat_x > 0) & np.isfinite(flat_x)
    for rule, chosen in (
        (_by_series, np.flatnonzero(good & (flat_x < _SMALL))),
        (_by_quadrature, np.flatnonzero(good & (flat_x >= _SMALL))),
    ):
        for start in range(0, len(chosen), _BLOCK):
            part = chosen[start : start + _BLOCK]
            out[part] = rule(flat_a[part], flat_x[part], order)
    out[(flat_x == 0) | np.isposinf(flat_x)] = 0.0  # P is 0 and 1 there for every a
    return out.reshape(a.shape)[()]


# -- rules ----------------------------------------------------------------------------------------------


def _quiet(function):
    def f(*args, **kwargs):
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return f


def _own(function, name, *partials):
    return Primitive(_quiet(function), name=name, batched=True, partials=partials)


score = _own(_score_of, "log x − ψ(a)", lambda ans, a, x: -sp.zeta(2, a), lambda ans, a, x: np.divide(1, x))
#: The density of the gamma distribution of shape a and scale 1.
density = _own(
    _density_of,
    "the gamma density",
    lambda ans, a, x: scale(ans, score(a, x)),
    lambda ans, a, x: scale(ans, scale(np.subtract(a, 1), np.divide(1, x)) - 1),
)
_weight = _own(
    _weight_of,
    "x times the gamma density",
    lambda ans, a, x: scale(ans, score(a, x)),
    lambda ans, a, x: density(a, x) * np.subtract(a, x),
)
_second_ratio = _own(
    lambda a, x: _ratio_of(a, x, 2),
    "∂²P/∂a²",
    without_rule("gammainc's second derivative", "a"),
    lambda ans, a, x: (score(a, x) ** 2 - sp.zeta(2, a) - ans * np.subtract(a, x)) / x,
)
#: ∂P/∂a over x f(x).
ratio = _own(
    lambda a, x: _ratio_of(a, x, 1),
    "∂P/∂a",
    lambda ans, a, x: _second_ratio(a, x) - ans * score(a, x),
    lambda ans, a, x: (score(a, x) - ans * np.subtract(a, x)) / x,
)


def shape_slope(a, x):
    """∂P(a, x)/∂a."""
    return scale(_weight(a, x), ratio(a, x))


for _ufunc, _sign in ((sp.gammainc, 1), (sp.gammaincc, -1)):
    elementwise(
        _ufunc,
        lambda ans, a, x, sign=_sign: sign * shape_slope(a, x),
        lambda ans, a, x, sign=_sign: sign * density(a, x),
    )
    _half = {sp.gammainc: sp.chdtr, sp.gammaincc: sp.chdtrc}[_ufunc]
    elementwise(
        _half,
        lambda ans, v, x, sign=_sign: 0.5 * sign * shape_slope(np.multiply(0.5, v), np.multiply(0.5, x)),
        lambda ans, v, x, sign=_sign: 0.5 * sign * density(np.multiply(0.5, v), np.multiply(0.5, x)),
    )
    _rated = {sp.gammainc: sp.gdtr, sp.gammaincc: sp.gdtrc}[_ufunc]  # of rate a and shape b: P(b, a x)
    elementwise(
        _rated,
        lambda ans, a, b, x, sign=_sign: sign * x * density(b, np.multiply(a, x)),
        lambda ans, a, b, x, sign=_sign: sign * shape_slope(b, np.multiply(a, x)),
        lambda ans, a, b, x, sign=_sign: sign * a * density(b, np.multiply(a, x)),
    )
for _ufunc, _sign in ((sp.gammaincinv, 1), (sp.gammainccinv, -1)):
    elementwise(
        _ufunc,
        lambda ans, a, p: -scale(ans, ratio(a, ans)),
        lambda ans, a, p, sign=_sign: sign / density(a, ans),
    )
elementwise(
    sp.chdtri,
    lambda ans, v, p: -scale(0.5 * ans, ratio(np.multiply(0.5, v), 0.5 * ans)),
    lambda ans, v, p: -2 / density(np.multiply(0.5, v), 0.5 * ans),
)
elementwise(
    sp.gdtrix,
    lambda ans, a, b, p: -ans / a,
    lambda ans, a, b, p: -scale(ans, ratio(b, a * ans)),
    lambda ans, a, b, p: 1 / (a * density(b, a * ans)),
)

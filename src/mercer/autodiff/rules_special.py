"""Rules of scipy.special: error, gamma, logistic and related functions, sums of exponentials.

Those that are ufuncs are found by NumPy's dispatch, as ``scipy.special.erf(x)``; the Python functions
(logsumexp, softmax, polygamma, …) are reached through ``ad.scipy.special``, on traced and plain values.

Derivatives in an order or degree have no closed form in most families and raise
:class:`~mercer.autodiff.errors.NoRuleError`.
"""

import math

import numpy as np
import scipy.special as sp

from mercer.autodiff.errors import NoRuleError, trace_error
from mercer.autodiff.rules import Primitive, cast, composite, define, elementwise, no_derivative, scale
from mercer.autodiff.rules_products import conjugate
from mercer.autodiff.trace import plain
from mercer.autodiff.ufunc_methods import shares

__all__ = ["log_softmax", "logsumexp", "polygamma", "softmax", "without_rule"]

PI, SQRT_PI, SQRT_2 = math.pi, math.sqrt(math.pi), math.sqrt(2.0)
SQRT_2PI = math.sqrt(2.0 * math.pi)
ERF_SLOPE = 2.0 / SQRT_PI
LN2, LN10, DEGREE = math.log(2.0), math.log(10.0), math.pi / 180.0


def without_rule(name, what):
    """Return a partial derivative that says that there is none."""

    def partial(ans, *args):
        raise trace_error(
            f"scipy.special.{name}", f"has no derivative rule in {what}", "keep that plain", NoRuleError
        )

    return partial


# -- error functions ------------------------------------------------------------------------------------


def _erfcx_slope_value(x):
    """2 x erfcx(x) − 2/√π; its terms cancel for large x, where the asymptotic series is right to 1e-15."""
    x = np.asarray(x)
    slope = 2 * x * sp.erfcx(x) - ERF_SLOPE
    if x.dtype.kind == "c":
        return slope[()]
    with np.errstate(all="ignore"):
        r = 1 / (x * x)
        series = np.zeros_like(r)
        for n in range(8, 0, -1):
            series = -(n + 0.5) * r * (1 + series)
        return np.where(x > 20, -(1 + series) * r / SQRT_PI, slope).astype(slope.dtype)[()]


_erfcx_slope = elementwise(
    _erfcx_slope_value, lambda ans, x: 2 * (sp.erfcx(x) + x * ans), name="scipy.special.erfcx"
)
elementwise(sp.erf, lambda ans, x: ERF_SLOPE * np.exp(-x * x))
elementwise(sp.erfc, lambda ans, x: -ERF_SLOPE * np.exp(-x * x))
elementwise(sp.erfi, lambda ans, x: ERF_SLOPE * np.exp(x * x))
elementwise(sp.erfcx, lambda ans, x: _erfcx_slope(x))
elementwise(sp.dawsn, lambda ans, x: 1 - 2 * x * ans)
elementwise(sp.wofz, lambda ans, z: ERF_SLOPE * 1j - 2 * z * ans)
elementwise(sp.erfinv, lambda ans, y: np.exp(ans * ans) / ERF_SLOPE)
elementwise(sp.erfcinv, lambda ans, y: -np.exp(ans * ans) / ERF_SLOPE)
elementwise(
    sp.owens_t,
    lambda ans, h, a: -np.exp(-0.5 * h * h) * sp.erf(a * h / SQRT_2) / (2 * SQRT_2PI),
    lambda ans, h, a: np.exp(-0.5 * h * h * (1 + a * a)) / (2 * PI * (1 + a * a)),
)

# -- gamma and beta -------------------------------------------------------------------------------------

#: ``polygamma(n, x)``, differentiable in x
polygamma = elementwise(
    lambda n, x: sp.polygamma(n, x)[()],
    without_rule("polygamma", "n"),
    lambda ans, n, x: polygamma(np.add(n, 1), x),
    name="scipy.special.polygamma",
    handles=sp.polygamma,
)


def _trigamma(ans, x):
    if np.iscomplexobj(x):  # SciPy has the function itself of complex numbers, not its derivatives
        without_rule("psi", "complex numbers")(ans, x)
    return cast(polygamma(1, x), ans)


elementwise(sp.psi, _trigamma)
elementwise(sp.gamma, lambda ans, x: ans * sp.psi(x))


def _pole(x):
    """Return whether x is near a pole −m of Γ, how far from it (0 elsewhere), and (−1)ᵐ."""
    m = -np.minimum(np.round(np.real(plain(x))), 0)
    d = np.add(x, m)
    near = np.less(np.absolute(plain(d)), 0.25)
    return near, np.where(near, d, 0), np.where(np.mod(m, 2) == 0, 1, -1)


def _is_whole(x):
    return np.equal(plain(x), np.round(plain(x)))


def _zero_slope(d, sign, rest, log_slope):
    """The slope of rest · (−1)ᵐ sin(πd)/π around d = 0: 1/Γ(x) is Γ(1 − x) times that, which has no pole."""
    return sign * rest * (np.cos(PI * d) + log_slope * np.sin(PI * d) / PI)


def _rgamma_slope(ans, x):
    near, d, sign = _pole(x)
    y = np.where(near, np.subtract(1, x), 1)
    zero = _zero_slope(d, sign, sp.gamma(y), -sp.psi(y))
    return cast(np.where(near, zero, -ans * sp.psi(np.where(near, 1, x))), ans)


def _psi_gap_of(n, x, k):
    """ψ⁽ⁿ⁾(x + k) − ψ⁽ⁿ⁾(x); for whole k the poles cancel, and the reflected points have none."""
    y = np.add(x, k)
    both = _is_whole(k) & np.less(x, 0.5) & np.less(y, 0.5)
    x, y = np.where(both, np.subtract(1, x), x), np.where(both, 1 - y, y)
    gap = sp.polygamma(n, y) - sp.polygamma(n, x) if n else sp.psi(y) - sp.psi(x)
    return np.where(both & (n % 2 == 1), -gap, gap)[()]


psi_gap = Primitive(
    _psi_gap_of,
    name="ψ(x + k) − ψ(x)",
    batched=True,
    partials=(
        None,
        lambda ans, n, x, k: psi_gap(n + 1, x, k),
        lambda ans, n, x, k: polygamma(n + 1, np.add(x, k)),
    ),
)


def _beta_slope(ans, a, b):
    """Of Γ(a) Γ(b)/Γ(a + b) in a."""
    total = np.add(a, b)
    near, d, sign = _pole(total)
    near = near & ~_is_whole(b)  # at a whole b there is none, or another
    slope = -ans * psi_gap(0, np.where(near, 1, a), np.where(near, 1, b))
    if not near.any():
        return cast(slope, ans)
    a, b, y = np.where(near, a, 1), np.where(near, b, 0.5), np.where(near, 1 - total, 1)
    # Γ(b) is π/(Γ(1 − b) sin(πb)): the product of three gamma functions could overflow.
    whole = np.round(plain(b))
    sine = np.where(np.mod(whole, 2) == 0, 1, -1) * np.sin(PI * (b - whole))
    return cast(
        np.where(near, _zero_slope(d, sign, sp.beta(a, y) * PI / sine, sp.psi(a) - sp.psi(y)), slope), ans
    )


def _poch_slope(ans, z, m):
    """Of Γ(z + m)/Γ(z) in z."""
    total = np.add(z, m)
    near, d, sign = _pole(z)
    near = near & ~(_is_whole(m) & np.less(plain(total), 0.5))
    slope = ans * psi_gap(0, np.where(near, 1, z), np.where(near, 1, m))
    if not near.any():
        return cast(slope, ans)
    y, m, total = np.where(near, np.subtract(1, z), 1), np.where(near, m, 1), np.where(near, total, 1)
    # Γ(z + m) Γ(1 − z), which is a quotient of two gamma functions where either is small
    up = np.greater(plain(total), 0)
    down = (
        sp.poch(np.where(up, 1, 1 - total), np.where(up, 1, m)) * PI / np.sin(PI * np.where(up, 0.5, total))
    )
    rest = np.where(up, sp.gamma(np.where(up, total, 1)) * sp.gamma(np.where(up, y, 1)), down)
    return cast(np.where(near, _zero_slope(d, sign, rest, sp.psi(total) - sp.psi(y)), slope), ans)


def _binom_fall(ans, n, i):
    """Γ(n + 1)/Γ(n − i + 1) times the slope of 1/Γ(i + 1), of which `ans` is the product with that."""
    near, d, sign = _pole(np.add(i, 1))
    slope = -ans * sp.psi(np.where(near, 1, np.add(i, 1)))
    if not near.any():
        return slope
    n, y = np.where(near, n, 1), np.where(near, np.negative(i), 1)
    return np.where(near, _zero_slope(d, sign, sp.beta(n + 1, y), -sp.psi(y)), slope)


def _binom_slope(ans, n, k):
    """Of Γ(n + 1)/(Γ(k + 1) Γ(n − k + 1)) in n."""
    rest = np.subtract(n, k)
    near = _pole(rest + 1)[0] & ~(_is_whole(k) & np.less(plain(n), -0.5))
    slope = ans * psi_gap(0, np.where(near, 1, rest + 1), np.where(near, 1, k))
    if not near.any():
        return cast(slope, ans)
    n, rest = np.where(near, n, 1), np.where(near, rest, 1)
    return cast(np.where(near, ans * sp.psi(n + 1) + _binom_fall(ans, n, rest), slope), ans)


elementwise(sp.rgamma, _rgamma_slope)
elementwise(sp.gammaln, lambda ans, x: sp.psi(x))
elementwise(sp.loggamma, lambda ans, x: sp.psi(x))
elementwise(sp.beta, _beta_slope, lambda ans, a, b: _beta_slope(ans, b, a))
elementwise(
    sp.betaln,
    lambda ans, a, b: cast(-psi_gap(0, a, b), ans),
    lambda ans, a, b: cast(-psi_gap(0, b, a), ans),
)
elementwise(sp.poch, _poch_slope, lambda ans, z, m: ans * sp.psi(np.add(z, m)))
elementwise(
    sp.binom,
    _binom_slope,
    lambda ans, n, k: cast(_binom_fall(ans, n, k) - _binom_fall(ans, n, np.subtract(n, k)), ans),
)

# ufuncs behind the Python functions scipy.special.zeta and lambertw
if hasattr(sp._ufuncs, "_zeta"):
    elementwise(
        sp._ufuncs._zeta,
        without_rule("zeta", "x"),
        lambda ans, x, q: -np.asarray(x) * sp.zeta(np.add(x, 1), q),
    )
if hasattr(sp._ufuncs, "_lambertw"):
    elementwise(sp._ufuncs._lambertw, lambda ans, z, k, tol: np.exp(-ans) / (1 + ans), None, None)
elementwise(sp.wrightomega, lambda ans, z: ans / (1 + ans))

# -- logistic, entropy and loss functions ---------------------------------------------------------------

elementwise(sp.expit, lambda ans, x: ans * sp.expit(-x))
elementwise(sp.logit, lambda ans, p: 1 / (p * (1 - p)))
elementwise(sp.log_expit, lambda ans, x: sp.expit(-x))
elementwise(sp.xlogy, lambda ans, x, y: np.log(y), lambda ans, x, y: scale(x, np.true_divide(1, y)))
elementwise(sp.xlog1py, lambda ans, x, y: np.log1p(y), lambda ans, x, y: scale(x, 1 / np.add(1, y)))
elementwise(sp.entr, lambda ans, x: -np.log(x) - 1)


def _log_ratio(x, y):
    """The logarithm of x / y, accurate where they are near each other, too."""
    d = np.subtract(x, y) / y
    near = np.less(np.absolute(plain(d)), 0.5)
    return np.where(near, np.log1p(np.where(near, d, 0)), np.log(np.true_divide(x, y)))


elementwise(
    sp.rel_entr,
    lambda ans, x, y: _log_ratio(x, y) + 1,
    lambda ans, x, y: -scale(x, np.true_divide(1, y)),
)
elementwise(
    sp.kl_div,
    lambda ans, x, y: _log_ratio(x, y),
    lambda ans, x, y: 1 - scale(x, np.true_divide(1, y)),
)
elementwise(
    sp.huber,
    lambda ans, delta, r: np.maximum(np.absolute(r) - delta, 0),
    lambda ans, delta, r: np.clip(r, np.negative(delta), delta),
)


def _pseudo_huber_delta(ans, delta, r):
    """With q = r/δ and s = √(1 + q²): δ (s − 1)²/s, s − 1 being q²/(s + 1)."""
    square = (r / delta) ** 2
    s = np.sqrt(1 + square)
    return delta * (square / (s + 1)) ** 2 / s


elementwise(sp.pseudo_huber, _pseudo_huber_delta, lambda ans, delta, r: r / np.hypot(1, r / delta))

# -- powers and elementary functions --------------------------------------------------------------------

elementwise(sp.exp2, lambda ans, x: LN2 * ans)
elementwise(sp.exp10, lambda ans, x: LN10 * ans)
elementwise(sp.expm1, lambda ans, x: np.exp(x))
elementwise(sp.log1p, lambda ans, x: 1 / (1 + x))
elementwise(sp.cbrt, lambda ans, x: 1 / (3 * ans * ans))
elementwise(sp.cosm1, lambda ans, x: -np.sin(x))
elementwise(sp.sindg, lambda ans, x: DEGREE * sp.cosdg(x))
elementwise(sp.cosdg, lambda ans, x: -DEGREE * sp.sindg(x))
elementwise(sp.tandg, lambda ans, x: DEGREE * (1 + ans * ans))
elementwise(sp.cotdg, lambda ans, x: -DEGREE * (1 + ans * ans))
elementwise(sp.radian, DEGREE, DEGREE / 60, DEGREE / 3600)
# (eˣ − 1)/x is Kummer's 1F1(1; 2; x).
elementwise(sp.exprel, lambda ans, x: 0.5 * sp.hyp1f1(2, 3, x))
elementwise(
    sp.powm1,
    lambda ans, x, y: scale(y, np.power(x, np.subtract(y, 1.0))),
    lambda ans, x, y: scale(ans + 1, np.log(x)),
)


def _box_cox_power(log, lam):
    """The derivative of (e^(λ log) − 1)/λ in λ, regular at λ = 0."""
    return 0.5 * log * log * sp.hyp1f1(2, 3, lam * log)


elementwise(
    sp.boxcox,
    lambda ans, x, lam: np.power(x, np.subtract(lam, 1.0)),
    lambda ans, x, lam: _box_cox_power(np.log(x), lam),
)
elementwise(
    sp.boxcox1p,
    lambda ans, x, lam: np.exp(np.subtract(lam, 1.0) * np.log1p(x)),
    lambda ans, x, lam: _box_cox_power(np.log1p(x), lam),
)
elementwise(
    sp.inv_boxcox,
    lambda ans, y, lam: np.power(ans, np.subtract(1.0, lam)),
    lambda ans, y, lam: -np.power(ans, np.subtract(1.0, lam)) * _box_cox_power(np.log(ans), lam),
)
elementwise(
    sp.inv_boxcox1p,
    lambda ans, y, lam: np.exp(np.subtract(1.0, lam) * np.log1p(ans)),
    lambda ans, y, lam: -np.exp(np.subtract(1.0, lam) * np.log1p(ans)) * _box_cox_power(np.log1p(ans), lam),
)

# -- integrals ------------------------------------------------------------------------------------------

elementwise(sp.expi, lambda ans, x: np.exp(x) / x)
elementwise(sp.exp1, lambda ans, x: -np.exp(-x) / x)


def _expn_slope(ans, n, x):
    """−E_(n−1)(x), where E_(−1)(x) = (e^(−x) + E_0(x))/x; SciPy truncates n."""
    n = np.trunc(n)
    lower = sp.expn(np.maximum(np.subtract(n, 1), 0), x)
    return -np.where(np.greater(n, 0), lower, (np.exp(-x) + ans) / x)


elementwise(sp.expn, without_rule("expn", "n"), _expn_slope)


def _sinhc(x):
    """The quotient sinh(x)/x."""
    return np.sinc(1j * x / PI) if np.iscomplexobj(x) else 0.5 * (sp.exprel(x) + sp.exprel(-x))


def several(fun, *slopes):
    """Make the rule of a function of one variable with several outputs, from the slope of each."""

    def jvp(t, ans, x):
        return tuple(t * slope(ans, x) for slope in slopes)

    def vjp(g, ans, x):
        parts = [
            part * np.conj(slope(ans, x)) for part, slope in zip(g, slopes, strict=True) if part is not None
        ]
        return sum(parts[1:], parts[0])

    define(fun, jvp=[jvp], vjp=[vjp], batched=True)


several(sp.sici, lambda ans, x: np.sinc(x / PI), lambda ans, x: np.cos(x) / x)
several(sp.shichi, lambda ans, x: _sinhc(x), lambda ans, x: np.cosh(x) / x)
several(sp.fresnel, lambda ans, x: np.sin(PI / 2 * x * x), lambda ans, x: np.cos(PI / 2 * x * x))
several(
    sp.airy,
    lambda ans, z: ans[1],
    lambda ans, z: z * ans[0],
    lambda ans, z: ans[3],
    lambda ans, z: z * ans[2],
)


def _spence_slope(ans, z):
    """The quotient log(z)/(1 − z), near 1 as −2F1(1, 1; 2; 1 − z)."""
    u = 1 - z
    near = np.less(np.absolute(plain(u)), 0.25)
    return np.where(near, -sp.hyp2f1(1, 1, 2, np.where(near, u, 0)), np.log(z) / np.where(near, 1, u))


elementwise(sp.spence, _spence_slope)
# K = π/2 2F1(½, ½; 1; m), E = π/2 2F1(−½, ½; 1; m)
elementwise(sp.ellipk, lambda ans, m: PI / 8 * sp.hyp2f1(1.5, 1.5, 2, m))
elementwise(sp.ellipe, lambda ans, m: -PI / 8 * sp.hyp2f1(0.5, 1.5, 2, m))
elementwise(
    sp.ellipkinc, lambda ans, phi, m: 1 / np.sqrt(1 - m * np.sin(phi) ** 2), without_rule("ellipkinc", "m")
)
elementwise(
    sp.ellipeinc, lambda ans, phi, m: np.sqrt(1 - m * np.sin(phi) ** 2), without_rule("ellipeinc", "m")
)

# -- sums of exponentials -------------------------------------------------------------------------------


def _axes_from_end(axis, ndim):
    """Return axes counted from the end, so that a leading axis of directions does not matter."""
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(ax % ndim - ndim for ax in axes))


def _softmax_map(t, ans, x, *, axis):
    return scale(t - np.sum(scale(t, ans), axis=axis, keepdims=True), ans)


_softmax = define(
    lambda x, *, axis: sp.softmax(x, axis=axis),
    name="scipy.special.softmax",
    jvp=[_softmax_map],
    vjp=[lambda g, ans, x, *, axis: _softmax_map(g, conjugate(ans), x, axis=axis)],
    batched=True,
)
_log_softmax = define(
    lambda x, *, axis: sp.log_softmax(x, axis=axis),
    name="scipy.special.log_softmax",
    jvp=[lambda t, ans, x, *, axis: t - np.sum(scale(t, np.exp(ans)), axis=axis, keepdims=True)],
    vjp=[lambda g, ans, x, *, axis: g - scale(np.sum(g, axis=axis, keepdims=True), conjugate(np.exp(ans)))],
    batched=True,
)
_logsumexp = define(
    lambda x, *, axis: sp.logsumexp(x, axis=axis, keepdims=True),
    name="scipy.special.logsumexp",
    jvp=[lambda t, ans, x, *, axis: np.sum(scale(t, shares(x, axis)), axis=axis, keepdims=True)],
    vjp=[lambda g, ans, x, *, axis: scale(g, conjugate(shares(x, axis)))],
    batched=True,
)


def _weighted_slope(a, b, axis):
    """The quotient exp(a)/Σ b exp(a), without overflow."""
    present = np.where(np.equal(b, 0), -np.inf, plain(a))
    top = np.max(present, axis=axis, keepdims=True, initial=-np.inf)
    e = np.exp(np.where(np.equal(b, 0) & np.greater(a, top), top, a) - np.where(np.isfinite(top), top, 0))
    return e / np.sum(b * e, axis=axis, keepdims=True)


#: log |Σ b exp(a)| and the sign of the sum, kept along the axes; a and b of one shape
_weighted = define(
    lambda a, b, *, axis: tuple(sp.logsumexp(a, axis=axis, b=b, keepdims=True, return_sign=True)),
    name="scipy.special.logsumexp",
    jvp=[
        lambda t, ans, a, b, *, axis: (
            np.sum(t * b * _weighted_slope(a, b, axis), axis=axis, keepdims=True),
            None,
        ),
        lambda t, ans, a, b, *, axis: (
            np.sum(t * _weighted_slope(a, b, axis), axis=axis, keepdims=True),
            None,
        ),
    ],
    vjp=[
        lambda g, ans, a, b, *, axis: None if g[0] is None else g[0] * b * _weighted_slope(a, b, axis),
        lambda g, ans, a, b, *, axis: None if g[0] is None else g[0] * _weighted_slope(a, b, axis),
    ],
)


@composite(sp.softmax)
def softmax(x, axis=None):
    """Return exp(x) / Σ exp(x) along axes: `scipy.special.softmax` of a traced array."""
    return _softmax(x, axis=_axes_from_end(axis, x.ndim))


@composite(sp.log_softmax)
def log_softmax(x, axis=None):
    """Return x − log Σ exp(x) along axes: `scipy.special.log_softmax` of a traced array."""
    return _log_softmax(x, axis=_axes_from_end(axis, x.ndim))


@composite(sp.logsumexp)
def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False):
    """Return log Σ b exp(a) along axes: `scipy.special.logsumexp`; of real arrays with weights or a sign."""
    if (b is not None or return_sign) and (np.iscomplexobj(a) or np.iscomplexobj(b)):
        raise trace_error(
            "scipy.special.logsumexp",
            "weights b and return_sign are followed for real arrays only",
            "add np.log(b) to a, or write np.log(np.sum(b * np.exp(a)))",
        )
    shape = np.shape(a) if b is None else np.broadcast_shapes(np.shape(a), np.shape(b))
    axes = _axes_from_end(axis, len(shape))
    if not shape:  # SciPy gives one entry for a number
        a, b = np.reshape(a, 1), b if b is None else np.reshape(b, 1)
    if b is None:
        out, sign = _logsumexp(a, axis=axes), None
    else:
        a, b = np.broadcast_to(a, shape or 1), np.broadcast_to(b, shape or 1)
        out, sign = _weighted(a, b, axis=axes)
        if not return_sign:
            out = np.where(np.less(sign, 0) & np.greater(out, -np.inf), np.nan, out)  # a sum of 0 has either
    reduced = [i - len(shape) in axes for i in range(len(shape))]
    kept = tuple(1 if r else n for n, r in zip(shape, reduced, strict=True) if keepdims or not r)
    out = np.reshape(out, kept)
    if not return_sign:
        return out
    return out, np.ones(kept, out.dtype)[()] if sign is None else np.reshape(plain(sign), kept)


no_derivative(sp.gammasgn, sp.round)

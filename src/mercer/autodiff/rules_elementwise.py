"""Rules of elementwise functions: one line each.

A partial derivative is one or two NumPy calls, and uses the answer where that is accurate. Kinks follow one
convention: the derivative is odd or shared equally (0 at 0 for the absolute value, ties of a maximum split
evenly). What is constant between jumps (rounding, signs, comparisons) gives plain values.
"""

import math

import numpy as np
from scipy.special import expit, i1

from mercer.autodiff.rules import cast, composite, define, elementwise, no_derivative, scale, unbroadcast
from mercer.autodiff.rules_bessel import spherical_jn
from mercer.autodiff.trace import UFUNCS, Traced, plain

LN2, LN10 = math.log(2.0), math.log(10.0)
RADIAN = math.pi / 180.0

# -- arithmetic -----------------------------------------------------------------------------------------

elementwise(np.add, 1, 1)
elementwise(np.subtract, 1, -1)
elementwise(np.multiply, lambda ans, x, y: y, lambda ans, x, y: x)
elementwise(np.true_divide, lambda ans, x, y: ans.dtype.type(1) / y, lambda ans, x, y: -ans / y)
elementwise(np.negative, -1)
elementwise(np.positive, 1)
elementwise(np.square, lambda ans, x: 2 * x)
elementwise(np.reciprocal, lambda ans, x: -ans * ans)
elementwise(np.sqrt, lambda ans, x: 0.5 / ans)
elementwise(np.cbrt, lambda ans, x: 1 / (3 * ans * ans))
elementwise(np.remainder, 1, lambda ans, x, y: -np.floor_divide(x, y))
elementwise(np.fmod, 1, lambda ans, x, y: -np.rint((x - ans) / y))
elementwise(np.fabs, lambda ans, x: np.sign(x))


def _power_base(ans, x, y):
    """∂x^y/∂x = y x^(y−1), which is 0 for y = 0 at x = 0, too."""
    if isinstance(y, Traced):
        return scale(y, np.power(x, y - 1))
    if isinstance(y, int | float):
        return 2 * x if y == 2 else y * x ** (y - 1) if y != 0 else 0.0
    y = np.asarray(y, ans.dtype)
    zero = np.equal(y, 0)
    if zero.any():
        return np.where(zero, 0, y * np.power(x, np.where(zero, 1, y - 1)))
    return y * np.power(x, y - 1)


def _power_exponent(ans, x, y):
    """∂x^y/∂y = x^y log x, which is 0 at x = 0 for y > 0, and no number for x < 0."""
    return scale(ans, np.log(x if isinstance(x, Traced) else np.asarray(x, ans.dtype)))


elementwise(np.power, _power_base, _power_exponent)
elementwise(np.float_power, _power_base, _power_exponent)

# -- exponentials and logarithms ------------------------------------------------------------------------


def _difference(x, y):
    """The difference x − y, 0 for equal infinities: two probabilities of zero have equal shares."""
    d = np.subtract(x, y)
    if not np.isfinite(np.sum(plain(d))):
        d = np.where(np.isinf(x) & np.equal(x, y), 0, d)
    return d


elementwise(np.exp, lambda ans, x: ans)
elementwise(np.exp2, lambda ans, x: LN2 * ans)
elementwise(np.expm1, lambda ans, x: np.exp(x))  # ans + 1 would lose the digits of a small exponential
elementwise(np.log, lambda ans, x: 1 / x)
elementwise(np.log2, lambda ans, x: (1 / LN2) / x)
elementwise(np.log10, lambda ans, x: (1 / LN10) / x)
elementwise(np.log1p, lambda ans, x: 1 / (1 + x))
# exp(x − ans) would lose the digits that a large ans has lost.
elementwise(
    np.logaddexp, lambda ans, x, y: expit(_difference(x, y)), lambda ans, x, y: expit(_difference(y, x))
)
elementwise(
    np.logaddexp2,
    lambda ans, x, y: expit(LN2 * _difference(x, y)),
    lambda ans, x, y: expit(LN2 * _difference(y, x)),
)

# -- circular and hyperbolic functions ------------------------------------------------------------------

elementwise(np.sin, lambda ans, x: np.cos(x))
elementwise(np.cos, lambda ans, x: -np.sin(x))
elementwise(np.tan, lambda ans, x: 1 + ans * ans)
elementwise(np.arcsin, lambda ans, x: 1 / np.sqrt((1 - x) * (1 + x)))
elementwise(np.arccos, lambda ans, x: -1 / np.sqrt((1 - x) * (1 + x)))
elementwise(np.arctan, lambda ans, x: 1 / (1 + x * x))
elementwise(np.sinh, lambda ans, x: np.cosh(x))
elementwise(np.cosh, lambda ans, x: np.sinh(x))
elementwise(np.tanh, lambda ans, x: 1 - ans * ans)
elementwise(np.arcsinh, lambda ans, x: 1 / (np.sqrt(x * x + 1) if x.dtype.kind == "c" else np.hypot(x, 1)))
elementwise(np.arccosh, lambda ans, x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)))
elementwise(np.arctanh, lambda ans, x: 1 / ((1 - x) * (1 + x)))
for _ufunc in (np.deg2rad, np.radians):
    elementwise(_ufunc, RADIAN)
for _ufunc in (np.rad2deg, np.degrees):
    elementwise(_ufunc, 1 / RADIAN)


def _over_square(x, y, other):
    """The quotient x / (x² + y²) without overflow."""
    h = np.hypot(y, other)
    return x / h / h


elementwise(np.arctan2, lambda ans, y, x: _over_square(x, y, x), lambda ans, y, x: -_over_square(y, y, x))


def _share(x, ans):
    """The quotient x / √(x² + y²), 0 at the origin."""
    return np.where(np.equal(ans, 0), 0, x / ans)


elementwise(np.hypot, lambda ans, x, y: _share(x, ans), lambda ans, x, y: _share(y, ans))

# -- extrema, signs and parts ---------------------------------------------------------------------------


def _chosen(ans, tie, first):
    """The share of an argument in an extremum: 1 where it was chosen, half at a tie."""
    return np.where(tie, 0.5, first).astype(ans.dtype)


def _is_nan(x):
    return np.not_equal(x, x)


def _shares(beats, keeps_nan):
    """The partial derivatives of an extremum."""

    def first(ans, x, y):
        return _chosen(ans, np.equal(x, y), beats(x, y) | _is_nan(x if keeps_nan else y))

    return first, lambda ans, x, y: first(ans, y, x)


elementwise(np.maximum, *_shares(np.greater, keeps_nan=True))
elementwise(np.minimum, *_shares(np.less, keeps_nan=True))
elementwise(np.fmax, *_shares(np.greater, keeps_nan=False))
elementwise(np.fmin, *_shares(np.less, keeps_nan=False))
elementwise(np.copysign, lambda ans, x, y: np.sign(x) * np.copysign(np.ones((), ans.dtype), plain(y)), None)
elementwise(np.heaviside, None, lambda ans, x, y: np.equal(x, 0).astype(ans.dtype))
elementwise(np.ldexp, lambda ans, x, n: np.ldexp(np.ones((), ans.dtype), n), None)
elementwise(np.nextafter, 1, None)


def _modulus_jvp(t, ans, z):
    """d|z| = Re(conj(z) dz) / |z|, 0 at 0."""
    return np.real(np.conj(np.sign(z)) * t) if z.dtype.kind == "c" else t * np.sign(z)


define(np.absolute, jvp=[_modulus_jvp], vjp=[lambda g, ans, z: g * np.sign(z)], batched=True)


def _turned(t, ans, z):
    """d(z/|z|): what of dz/|z| is orthogonal to z, 0 at 0; the map is its own transpose."""
    r = np.absolute(z)
    return np.where(np.equal(r, 0), 0, (t - ans * np.real(np.conj(ans) * t)) / r)


_sign_complex = define(lambda z: np.sign(z), name="np.sign", jvp=[_turned], vjp=[_turned], batched=True)


def _sign(x):
    return _sign_complex(x) if x.dtype.kind == "c" else np.sign(plain(x))


UFUNCS[np.sign] = _sign

define(
    np.divmod,
    jvp=[
        lambda t, ans, x, y: (None, np.broadcast_to(t, np.shape(ans[1]))),
        lambda t, ans, x, y: (None, -plain(ans[0]) * t),
    ],
    vjp=[
        lambda g, ans, x, y: None if g[1] is None else unbroadcast(g[1], x),
        lambda g, ans, x, y: None if g[1] is None else unbroadcast(-plain(ans[0]) * g[1], y),
    ],
)
define(
    np.modf,
    jvp=[lambda t, ans, x: (t, None)],
    vjp=[lambda g, ans, x: g[0]],
    batched=True,
)
define(
    np.frexp,
    jvp=[lambda t, ans, x: (np.ldexp(t, -ans[1]), None)],
    vjp=[lambda g, ans, x: None if g[0] is None else np.ldexp(g[0], -ans[1])],
    batched=True,
)
no_derivative(
    np.floor_divide, np.rint, np.floor, np.ceil, np.trunc, np.spacing, np.signbit,
    np.equal, np.not_equal, np.greater, np.greater_equal, np.less, np.less_equal,
    np.logical_and, np.logical_or, np.logical_xor, np.logical_not,
    np.isfinite, np.isinf, np.isnan, np.isnat,
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift, np.right_shift, np.bitwise_count,
    np.gcd, np.lcm,
)  # fmt: skip

# -- complex numbers ------------------------------------------------------------------------------------

define(np.conjugate, jvp=[lambda t, ans, x: np.conj(t)], vjp=[lambda g, ans, x: np.conj(g)], batched=True)
define(
    np.real,
    jvp=[lambda t, ans, x: np.real(t)],
    vjp=[lambda g, ans, x: cast(np.real(g), x)],
    batched=True,
    view=True,
)
define(
    np.imag,
    jvp=[lambda t, ans, x: np.imag(t)],
    # 1j * g of a number would be Python's, not NumPy's
    vjp=[lambda g, ans, x: cast(np.multiply(1j, np.real(g)), x)],
    batched=True,
    view=True,
)


@composite(np.angle)
def angle(z, deg=False):
    """The argument of a complex number; that of a real one is constant (0 or π)."""
    if z.dtype.kind != "c":
        return np.angle(plain(z), deg)
    a = np.arctan2(np.imag(z), np.real(z))
    return np.multiply(a, 180 / np.pi) if deg else a


@composite(np.real_if_close)
def real_if_close(a, tol=100):
    """The real part where the imaginary part is rounding, by the value."""
    close = np.real_if_close(plain(a), tol).dtype.kind != "c"
    return np.real(a) if close and a.dtype.kind == "c" else a


# -- selection ------------------------------------------------------------------------------------------


def _spread(t, x, ans):
    """Return a tangent with its chunk axis apart from the axes along which its argument is broadcast."""
    lead, missing = np.ndim(t) - np.ndim(x), np.ndim(ans) - np.ndim(x)
    return np.reshape(t, (*np.shape(t)[:lead], *(1,) * missing, *np.shape(x))) if lead and missing else t


def _where_jvp(tangents, ans, x, y, condition):
    parts, shape = [], np.shape(ans)
    for t, arg in zip(tangents, (x, y), strict=False):
        if t is not None:
            lead = np.shape(t)[: np.ndim(t) - np.ndim(arg)]
            t = _spread(t, arg, ans)
        parts.append(0 if t is None else t)
    out = cast(np.where(condition, *parts), ans)
    return out if np.shape(out) == lead + shape else np.broadcast_to(out, lead + shape)


def _where_vjp(g, ans, needed, x, y, condition):
    chunk = np.ndim(g) - np.ndim(ans) or None
    return (
        unbroadcast(np.where(condition, g, 0), x, chunk) if needed[0] else None,
        unbroadcast(np.where(condition, 0, g), y, chunk) if needed[1] else None,
        None,
    )


_where = define(
    lambda x, y, condition: np.where(condition, x, y),
    name="np.where",
    jvp=_where_jvp,
    vjp=_where_vjp,
    batched=True,
)


@composite(np.where)
def where(condition, x=None, y=None):
    """Select by element; what is not selected gets a zero tangent and cotangent, exactly."""
    if x is None and y is None:
        return np.where(plain(condition))
    return _where(x, y, _plain_list(condition))


def _plain_list(x):
    return [_plain_list(item) for item in x] if isinstance(x, list | tuple) else plain(x)


@composite(np.select)
def select(condlist, choicelist, default=0):
    """The first choice whose condition holds."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    out = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        condition = np.asarray(_plain_list(condition))
        if condition.dtype != bool:
            raise TypeError("invalid entry in condlist: should be boolean ndarray")
        out = where(condition, choice, out)
    return out


@composite(np.choose)
def choose(a, choices, out=None, mode="raise"):
    """The entry of the choice whose number is in `a`, which is not differentiated."""
    a, n = np.asarray(_plain_list(a)), len(choices)
    if a.dtype.kind not in "iub":
        raise TypeError("np.choose: the first argument must be whole numbers")
    if mode == "raise" and ((a < 0) | (a >= n)).any():
        raise ValueError("invalid entry in choice array")
    a = a % n if mode == "wrap" else np.clip(a, 0, n - 1)
    # All choices take part in the shape and type of the result, as in NumPy.
    result = choices[n - 1]
    for k in range(n - 2, -1, -1):
        result = _where(choices[k], result, a == k)
    return _into(out, result if n > 1 else _where(choices[0], choices[0], a == 0))


@composite(np.piecewise)
def piecewise(x, condlist, funclist, *args, **kwargs):
    """Functions on parts of an array, each evaluated on its part alone."""
    conditions = np.asarray(_plain_list(condlist)).astype(bool)
    if conditions.ndim == 0 or (conditions.ndim == 1 and x.ndim != 0 and np.shape(condlist[0]) == ()):
        conditions = conditions[None]
    if len(funclist) == len(conditions) + 1:
        conditions = np.concatenate([conditions, ~np.any(conditions, axis=0, keepdims=True)])
    elif len(funclist) != len(conditions):
        n = len(conditions)
        raise ValueError(f"with {n} condition(s), either {n} or {n + 1} functions are expected")
    y = np.zeros_like(x)
    for condition, function in zip(conditions, funclist, strict=True):
        if not callable(function):
            y[condition] = function
        elif condition.any():
            y[condition] = function(x[condition], *args, **kwargs)
    return y


def _into(out, result):
    """Return a result, after assigning it to `out` if that is given."""
    if out is None:
        return result
    out[...] = result
    return out


@composite(np.clip)
def clip(a, a_min=None, a_max=None, out=None, *, min=None, max=None, **kwargs):
    """np.minimum(np.maximum(a, a_min), a_max); at a bound half of the derivative goes to each."""
    lower, upper = (a_min, a_max) if min is None and max is None else (min, max)
    for bound, extremum in ((lower, np.maximum), (upper, np.minimum)):
        if bound is not None:
            a = extremum(a, bound, **kwargs)
    return _into(out, np.copy(a) if lower is None and upper is None else a)


@composite(np.nan_to_num)
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """The derivative of what is replaced is zero."""
    if x.dtype.kind == "c":
        out = np.real(x), np.imag(x)
        out = [nan_to_num(part, True, nan, posinf, neginf) for part in out]
        out = out[0] + 1j * out[1]
    else:
        limits = np.finfo(x.dtype)
        out = where(np.isposinf(plain(x)), limits.max if posinf is None else posinf, x)
        out = where(np.isneginf(plain(x)), limits.min if neginf is None else neginf, out)
        out = where(np.isnan(plain(x)), nan, out)
    return out if copy else _into(x, out)


_unwrap = define(
    lambda p, **kwargs: np.unwrap(p, **kwargs),
    name="np.unwrap",
    jvp=[lambda t, ans, p, **kwargs: t],
    vjp=[lambda g, ans, p, **kwargs: g],
    batched=True,
)


@composite(np.unwrap)
def unwrap(p, discont=None, axis=-1, *, period=2 * np.pi):
    """The jumps that are added are constant."""
    return _unwrap(p, discont=discont, axis=axis, period=period)


no_derivative(
    np.round, np.around, np.fix, np.isclose, np.allclose, np.array_equal, np.array_equiv,
    np.iscomplex, np.isreal, np.isposinf, np.isneginf,
)  # fmt: skip
elementwise(np.i0, lambda ans, x: i1(x))
elementwise(np.sinc, lambda ans, x: -np.pi * spherical_jn(np.pi * x, n=1))

"""Elementwise rules: against mpmath, at kinks and ends, in every mode and type."""

from typing import NamedTuple

import mpmath as mp
import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.trace import FUNCTIONS, UFUNCS
from mercer.testing import check_derivative

EPS = np.finfo(float).eps
mp.mp.dps = 50


class Unary(NamedTuple):
    """A smooth function of one variable: `inner` are points 0.02 away from what is not smooth."""

    name: str
    function: object
    exact: object
    inner: tuple
    ends: tuple = ()
    tol: float = 6  # eps, relative: the function's own error (≤ 4 ulp) and two or three operations


def _cbrt(x):
    return mp.sign(x) * mp.cbrt(abs(x))


UNARY = [
    Unary("negative", np.negative, lambda x: -x, (-1.5, 0.0, 2.0), (1e300,)),
    Unary("positive", np.positive, lambda x: x, (-1.5, 0.0, 2.0)),
    Unary("square", np.square, lambda x: x * x, (-1.5, 0.0, 2.0), (1e150, 1e-160)),
    Unary("reciprocal", np.reciprocal, lambda x: 1 / x, (-1.5, 0.3, 2.0), (1e-150, 1e150)),
    Unary("sqrt", np.sqrt, mp.sqrt, (0.2, 1.0, 7.0), (1e-300, 1e300)),
    Unary("cbrt", np.cbrt, _cbrt, (-3.0, 0.3, 2.0), (1e-150, -1e200)),
    Unary("absolute", np.absolute, abs, (-1.5, 0.3), (1e-300,)),
    Unary("fabs", np.fabs, abs, (-1.5, 0.3), (1e-300,)),
    Unary("exp", np.exp, mp.exp, (-3.0, 0.0, 2.5), (-700.0, 700.0)),
    Unary("exp2", np.exp2, lambda x: mp.mpf(2) ** x, (-3.0, 0.0, 2.5), (-1000.0, 1000.0)),
    Unary("expm1", np.expm1, mp.expm1, (-3.0, 0.0, 2.5), (-50.0, 1e-300, 700.0)),
    Unary("log", np.log, mp.log, (0.2, 1.0, 7.0), (1e-300, 1e300)),
    Unary("log2", np.log2, lambda x: mp.log(x) / mp.log(2), (0.2, 1.0, 7.0), (1e-300, 1e300)),
    Unary("log10", np.log10, mp.log10, (0.2, 1.0, 7.0), (1e-300, 1e300)),
    Unary("log1p", np.log1p, mp.log1p, (-0.6, 0.0, 7.0), (-1 + 2**-50, 1e-300, 1e300)),
    Unary("sin", np.sin, mp.sin, (-3.0, 0.0, 2.0), (1e5,)),
    Unary("cos", np.cos, mp.cos, (-3.0, 0.1, 2.0), (1e5,)),
    Unary("tan", np.tan, mp.tan, (-1.0, 0.0, 2.0), (1.57079, 1e5), tol=10),  # twice the error of tan
    Unary("arcsin", np.arcsin, mp.asin, (-0.8, 0.0, 0.5), (1 - 2**-52, -1 + 2**-40)),
    Unary("arccos", np.arccos, mp.acos, (-0.8, 0.0, 0.5), (1 - 2**-52, -1 + 2**-40)),
    Unary("arctan", np.arctan, mp.atan, (-3.0, 0.0, 2.0), (1e150, -1e-300)),
    Unary("sinh", np.sinh, mp.sinh, (-3.0, 0.0, 2.0), (700.0, 1e-300)),
    Unary("cosh", np.cosh, mp.cosh, (-3.0, 0.1, 2.0), (700.0, 1e-300)),
    Unary("tanh", np.tanh, mp.tanh, (-1.0, 0.0, 0.7)),
    Unary("arcsinh", np.arcsinh, mp.asinh, (-3.0, 0.0, 2.0), (1e200, -1e-300)),
    Unary("arccosh", np.arccosh, mp.acosh, (1.5, 2.0, 30.0), (1 + 2**-52, 1e300)),
    Unary("arctanh", np.arctanh, mp.atanh, (-0.8, 0.0, 0.5), (1 - 2**-53, -1 + 2**-40)),
    Unary("deg2rad", np.deg2rad, lambda x: x * mp.pi / 180, (-90.0, 0.0, 2.0)),
    Unary("radians", np.radians, lambda x: x * mp.pi / 180, (-90.0, 0.0, 2.0)),
    Unary("rad2deg", np.rad2deg, lambda x: x * 180 / mp.pi, (-9.0, 0.0, 2.0)),
    Unary("degrees", np.degrees, lambda x: x * 180 / mp.pi, (-9.0, 0.0, 2.0)),
    Unary("sinc", np.sinc, lambda x: mp.sincpi(x), (-2.3, 0.1, 0.5, 0.0), (1e-200, 1e-9, 0.01, 7.3), tol=40),
    Unary("i0", np.i0, lambda x: mp.besseli(0, x), (-2.3, 0.0, 1.5), (50.0,)),
    Unary("conjugate", np.conjugate, lambda x: x, (-2.3, 1.5)),
    Unary("real", np.real, lambda x: x, (-2.3, 1.5)),
    Unary("modf", lambda x: np.modf(x)[0], lambda x: x - mp.floor(x), (0.3, 1.5)),
    Unary("frexp", lambda x: np.frexp(x)[0], lambda x: x / 2 ** (mp.floor(mp.log(x, 2)) + 1), (0.3, 1.5),
          (1e300,)),
    Unary("nan_to_num", np.nan_to_num, lambda x: x, (-2.3, 1.5)),
    Unary("unwrap", np.unwrap, lambda x: x, (0.2, 4.5, 1.0)),
    Unary("clip", lambda x: np.clip(x, -1, 2), lambda x: x if -1 < x < 2 else mp.mpf(2), (0.2, 4.5, 1.0)),
    Unary("real_if_close", np.real_if_close, lambda x: x, (0.2, 4.5)),
    Unary("ldexp", lambda x: np.ldexp(x, 3), lambda x: 8 * x, (0.2, 4.5)),
    Unary("nextafter", lambda x: np.nextafter(x, 9.0), lambda x: x, (0.2, 4.5)),
    Unary("select", lambda x: np.select([x > 1, x > 0.5], [x * x, np.sin(x)], x**3),
          lambda x: x * x if x > 1 else mp.sin(x) if x > 0.5 else x**3, (0.2, 0.7, 4.5)),
    Unary("choose", lambda x: np.choose((x > 1).astype(int), [x * x, np.sin(x)]),
          lambda x: mp.sin(x) if x > 1 else x * x, (0.2, 0.7, 4.5)),
    Unary("piecewise", lambda x: np.piecewise(x, [x > 1, x > 0.5], [np.square, np.sin, np.exp]),
          lambda x: mp.sin(x) if x > 0.5 else mp.exp(x), (0.2, 0.7, 4.5)),
    Unary("where", lambda x: np.where(x > 1, x * x, np.sin(x)),
          lambda x: x * x if x > 1 else mp.sin(x), (0.2, 0.7, 4.5)),
]  # fmt: skip


class Binary(NamedTuple):
    name: str
    function: object
    exact: object
    inner: tuple
    ends: tuple = ()
    tol: float = 8


def _logaddexp(x, y):
    m = max(x, y)
    return m + mp.log1p(mp.exp(min(x, y) - m))


def _logaddexp2(x, y):
    m = max(x, y)
    return m + mp.log1p(mp.mpf(2) ** (min(x, y) - m)) / mp.log(2)


BINARY = [
    Binary("add", np.add, lambda x, y: x + y, ((1.0, 2.0), (-1.0, 0.0))),
    Binary("subtract", np.subtract, lambda x, y: x - y, ((1.0, 2.0), (-1.0, 0.0))),
    Binary("multiply", np.multiply, lambda x, y: x * y, ((1.0, 2.0), (-1.0, 0.0)), ((1e200, 1e-200),)),
    Binary("true_divide", np.true_divide, lambda x, y: x / y, ((1.0, 2.0), (0.0, -0.5)), ((1e-200, 1e90),)),
    Binary("power", np.power, lambda x, y: x**y, ((1.3, 2.0), (0.4, -1.7), (2.0, 0.0)), ((1e-100, 2.5),)),
    Binary("float_power", np.float_power, lambda x, y: x**y, ((1.3, 2.0), (0.4, -1.7), (2.0, 0.0))),
    Binary("remainder", np.remainder, lambda x, y: x - y * mp.floor(x / y),
           ((1.3, 0.5), (-1.3, 0.5), (1.3, -0.5), (7.7, 2.0))),
    Binary("fmod", np.fmod, lambda x, y: x - y * (mp.floor(abs(x / y)) * mp.sign(x / y)),
           ((1.3, 0.5), (-1.3, 0.5), (1.3, -0.5), (7.7, 2.0))),
    Binary("divmod", lambda x, y: np.divmod(x, y)[1], lambda x, y: x - y * mp.floor(x / y),
           ((1.3, 0.5), (-1.3, 0.5), (1.3, -0.5), (7.7, 2.0))),
    Binary("logaddexp", np.logaddexp, _logaddexp, ((1.0, 1.0), (-1.0, 0.5)),
           ((1e8, 1e8 - 1), (700.0, -30.0), (1e3, -1e3))),
    Binary("logaddexp2", np.logaddexp2, _logaddexp2, ((1.0, 1.0), (-1.0, 0.5)),
           ((1e8, 1e8 - 1), (700.0, -30.0)), tol=60),  # the exponent of up to 500 is rounded
    Binary("arctan2", np.arctan2, mp.atan2, ((1.0, 2.0), (0.3, -1.0), (-2.0, 0.3)),
           ((1e-200, 1e-200), (1e200, -1e200))),
    Binary("hypot", np.hypot, mp.hypot, ((1.0, 2.0), (0.3, 0.0), (-2.0, 0.3)),
           ((1e-200, 1e-200), (1e200, 1e190))),
    Binary("maximum", np.maximum, max, ((1.0, 2.0), (0.3, -1.0))),
    Binary("minimum", np.minimum, min, ((1.0, 2.0), (0.3, -1.0))),
    Binary("fmax", np.fmax, max, ((1.0, 2.0), (0.3, -1.0))),
    Binary("fmin", np.fmin, min, ((1.0, 2.0), (0.3, -1.0))),
    Binary("copysign", np.copysign, lambda x, y: abs(x) * mp.sign(y),
           ((1.0, 2.0), (-0.3, -1.0), (0.3, -1.0))),
    Binary("heaviside", np.heaviside, lambda x, y: mp.mpf(x > 0), ((1.0, 2.0), (-0.3, 1.0))),
]  # fmt: skip


def check_close(got, want, tol, what):
    want = float(want)
    assert abs(got - want) <= tol * EPS * abs(want) + 1e-310, (what, got, want, abs(got - want) / EPS)


def slope_of(f, x):
    """Return a derivative by mpmath, with digits enough for what is 1e-300 beside 1."""
    with mp.workdps(800):
        x = mp.mpf(float(x))
        return mp.diff(f, x, h=mp.mpf(10) ** -60 * (abs(x) or 1))


@pytest.mark.parametrize("case", UNARY, ids=lambda c: c.name)
class TestUnary:
    def test_derivative_is_mpmaths(self, case):
        x = np.array(case.inner + case.ends)
        value, tangent = ad.jvp(case.function, (x,), (np.ones_like(x),))
        np.testing.assert_array_equal(value, case.function(x))
        pulled = ad.vjp(case.function, x)[1](np.ones_like(value))[0]
        np.testing.assert_array_equal(pulled, tangent)
        for xi, ti in zip(x, tangent, strict=True):
            exact = slope_of(case.exact, xi)
            if case.name == "tanh":  # 1 − tanh² is right to eps, absolutely
                assert abs(ti - float(exact)) <= 2 * EPS
            elif case.name == "sinc":
                assert abs(ti - float(exact)) <= case.tol * EPS
            else:
                check_close(ti, exact, case.tol, xi)

    def test_second_order_and_modes(self, case):
        check_derivative(case.function, np.array(case.inner))

    def test_shapes_types_and_chunks(self, case):
        x = np.array(case.inner)
        for mode in ("forward", "reverse"):
            jacobian = ad.jacobian(case.function, mode=mode)(x)
            np.testing.assert_array_equal(np.diag(np.diag(jacobian)), jacobian)
            np.testing.assert_allclose(
                np.diag(jacobian), ad.grad(lambda x: np.sum(case.function(x)))(x), rtol=1e-15
            )
        for y in (x.astype("f"), x[:1], x[:0], np.float32(x[0]), x[0], np.reshape(x[:2], (2, 1))):
            if np.ndim(y) == 0 and case.name in ("unwrap", "piecewise"):
                continue
            value, tangent = ad.jvp(case.function, (y,), (np.ones_like(y),))
            pulled = ad.vjp(case.function, y)[1](np.ones_like(value))[0]
            assert np.shape(tangent) == np.shape(pulled) == np.shape(y) == np.shape(value)
            assert tangent.dtype == pulled.dtype == value.dtype == y.dtype, (tangent.dtype, pulled.dtype)


@pytest.mark.parametrize("case", BINARY, ids=lambda c: c.name)
class TestBinary:
    def test_derivatives_are_mpmaths(self, case):
        for x, y in case.inner + case.ends:
            for i in range(2):
                tangents = (1.0 - i, float(i))
                value, got = ad.jvp(case.function, (x, y), tangents)
                assert value == case.function(x, y)
                assert ad.vjp(case.function, x, y)[1](1.0)[i] == got
                exact = slope_of(lambda v: case.exact(*((v, mp.mpf(y)), (mp.mpf(x), v))[i]), (x, y)[i])  # noqa: B023
                check_close(got, exact, case.tol, (x, y, i))

    def test_second_order_and_modes(self, case):
        x, y = np.array(case.inner).T
        check_derivative(case.function, x, y)
        check_derivative(lambda x: case.function(x, y), x)
        check_derivative(lambda y: case.function(x, y), y)

    def test_broadcasting_types_and_chunks(self, case):
        x, y = np.array(case.inner).T
        check_derivative(case.function, x[:, None], np.full((1, 3), y[0]), order=1)
        check_derivative(case.function, x[0], np.full((2, 3), y[0]), order=1)
        check_derivative(case.function, np.full((2, 3), x[0]), y[0], order=1)
        u, v = x[:2], np.full((3, 1), y[0])
        for mode in ("forward", "reverse"):
            jx, jy = ad.jacobian(case.function, argnums=(0, 1), mode=mode)(u, v)
            assert (jx.shape, jy.shape) == ((3, 2, 2), (3, 2, 3, 1))
            for k in range(2):
                t = ad.jvp(lambda u: case.function(u, v), (u,), (np.eye(2)[k],))[1]
                np.testing.assert_allclose(jx[..., k], t, rtol=1e-15)
        if case.name == "float_power":
            return
        f32 = (x.astype("f"), y.astype("f"))
        value, tangent = ad.jvp(case.function, f32, f32)
        pulled = ad.vjp(case.function, *f32)[1](value)
        assert {value.dtype, tangent.dtype, *(p.dtype for p in pulled)} == {np.dtype("f")}
        for empty in (np.zeros(0), np.zeros((0, 2))):
            assert ad.grad(lambda e: np.sum(case.function(e, y[0])))(empty).shape == empty.shape


def test_every_ufunc_of_numpy_has_a_rule_or_says_that_it_is_constant():
    """What is left to the rules of products is named."""
    products = {np.matmul, np.vecdot, np.matvec, np.vecmat}
    ufuncs = {u for u in vars(np).values() if isinstance(u, np.ufunc)}
    assert not ufuncs - products - set(UFUNCS)


def test_every_smooth_ufunc_is_in_a_table():
    named = {c.name for c in UNARY + BINARY}
    constant = {
        "floor_divide", "rint", "floor", "ceil", "trunc", "spacing", "signbit", "sign", "equal", "not_equal",
        "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor",
        "logical_not",
        "isfinite", "isinf", "isnan", "isnat", "bitwise_and", "bitwise_or", "bitwise_xor", "invert",
        "left_shift",
        "right_shift", "bitwise_count", "gcd", "lcm", "matmul", "vecdot", "matvec", "vecmat",
    }  # fmt: skip
    assert {u.__name__.replace("divide", "true_divide") if u is np.true_divide else u.__name__
            for u in vars(np).values() if isinstance(u, np.ufunc)} - constant - named == set()  # fmt: skip


@pytest.mark.parametrize(
    "f",
    [np.floor, np.ceil, np.rint, np.trunc, np.sign, np.fix, np.round, np.spacing, np.signbit, np.isnan,
     lambda x: np.floor_divide(x, 0.3), lambda x: x > 0, lambda x: np.logical_and(x, True), np.isposinf,
     lambda x: np.isclose(x, 0), lambda x: np.around(x, 1), lambda x: x == x, np.iscomplex, np.angle],
)  # fmt: skip
def test_what_is_constant_is_plain(f):
    def g(x):
        out = f(x)
        assert isinstance(out, np.ndarray)
        np.testing.assert_array_equal(out, f(np.array([-0.7, 0.2])))
        return np.sum(out * 1.0 * x)

    x = np.array([-0.7, 0.2])
    np.testing.assert_array_equal(ad.grad(g)(x), f(x) * 1.0)


def test_whole_results_have_no_derivative():
    x = np.array([-0.7, 0.2, 3.1])
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum(np.floor(x)))(x), np.zeros(3))
    assert np.allclose(ad.grad(lambda x: np.sum(x - np.floor(x)))(x), 1)
    assert ad.grad(lambda x: np.allclose(x, x) * np.sum(x))(x).tolist() == [1, 1, 1]
    whole, part = ad.jvp(lambda x: np.divmod(x, 0.5), (x,), (np.ones(3),))[1]
    assert [whole.tolist(), part.tolist()] == [[0, 0, 0], [1, 1, 1]]
    mantissa, exponent = np.frexp(x)
    value, tangent = ad.jvp(np.frexp, (x,), (np.ones(3),))
    np.testing.assert_array_equal(value[1], exponent)
    np.testing.assert_array_equal(tangent[0], mantissa / x)
    with pytest.raises(TypeError, match="bitwise_and"):
        ad.grad(lambda x: np.sum(np.bitwise_and(x, 1)))(x)


class TestPowersAtZero:
    @pytest.mark.parametrize(
        ("y", "first", "second"),
        [(2, 0, 2), (2.0, 0, 2), (3, 0, 0), (1, 1, 0), (0, 0, 0), (0.0, 0, 0), (2.5, 0, 0)],
    )
    @pytest.mark.parametrize("mode", ["forward-over-forward", "forward-over-reverse", "reverse-over-forward",
                                      "reverse-over-reverse"])  # fmt: skip
    def test_base_zero(self, y, first, second, mode):
        for exponent in (y, np.array(y), np.array([y, y])):
            f = lambda x, exponent=exponent: np.sum(x**exponent) / np.size(exponent)  # noqa: E731
            assert ad.grad(f)(0.0) == first
            assert ad.hvp(f, 0.0, 1.0, mode=mode) == second
            assert ad.jvp(f, (0.0,), (1.0,))[1] == first

    def test_in_both_arguments(self):
        assert ad.grad(np.power, argnums=(0, 1))(0.0, 2.0) == (0.0, 0.0)
        assert ad.grad(np.power, argnums=(0, 1))(3.0, 0.0) == (0.0, np.log(3.0))
        assert ad.grad(lambda y: np.power(0.0, y))(1.5) == 0.0
        # d²/dx dy x^y at y = 0 is 1/x
        assert ad.hessian(lambda v: v[0] ** v[1])(np.array([4.0, 0.0]))[0, 1] == 0.25

    def test_negative_base_with_whole_exponent(self):
        x = np.array([-2.0, -0.5])
        check_derivative(lambda x: x**3, x)
        check_derivative(lambda x: x ** np.array([2.0, -3.0]), x)
        gx = ad.grad(lambda x: np.sum(x**3.0))(x)
        np.testing.assert_allclose(gx, 3 * x**2, rtol=4 * EPS)

    @pytest.mark.lenient
    @pytest.mark.filterwarnings("ignore:divide by zero")
    def test_what_is_infinite_is_so(self):
        assert ad.grad(lambda x: x**0.5)(0.0) == np.inf
        assert ad.grad(np.sqrt)(0.0) == np.inf
        assert ad.grad(np.cbrt)(0.0) == np.inf
        assert ad.grad(lambda x: 1 / x)(0.0) == -np.inf
        assert np.isnan(ad.grad(lambda y: np.power(-1.0, y))(2.0))


class TestKinks:
    @pytest.mark.parametrize(
        "f", [np.absolute, np.fabs, lambda x: np.copysign(x, 1.0), lambda x: np.hypot(x, 0.0)]
    )
    def test_modulus_at_zero(self, f):
        assert ad.grad(f)(0.0) == ad.jvp(f, (0.0,), (1.0,))[1] == 0.0

    @pytest.mark.parametrize("f", [np.maximum, np.minimum, np.fmax, np.fmin])
    def test_ties_are_split(self, f):
        assert ad.grad(f, argnums=(0, 1))(1.0, 1.0) == (0.5, 0.5)
        assert ad.jvp(f, (1.0, 1.0), (1.0, 0.0))[1] == 0.5
        assert ad.grad(lambda x: f(x, x))(1.0) == 1.0

    def test_relu_and_clip_at_the_bound(self):
        assert ad.grad(lambda x: np.maximum(x, 0))(0.0) == 0.5
        assert ad.grad(lambda x: np.clip(x, 0, 1))(0.0) == 0.5
        assert ad.grad(lambda x: np.clip(x, min=0))(0.0) == 0.5
        assert ad.grad(lambda x: np.clip(x, None, 1))(2.0) == 0.0

    def test_hypot_at_the_origin(self):
        assert ad.grad(np.hypot, argnums=(0, 1))(0.0, 0.0) == (0.0, 0.0)
        assert ad.hvp(lambda x: np.hypot(x, 0.0), 0.0, 1.0) == 0.0

    @pytest.mark.lenient
    @pytest.mark.parametrize(
        ("f", "x", "y", "shares"),
        [(np.maximum, np.nan, 1.0, (1, 0)), (np.maximum, 1.0, np.nan, (0, 1)),
         (np.minimum, np.nan, 1.0, (1, 0)),
         (np.fmax, np.nan, 1.0, (0, 1)), (np.fmin, 1.0, np.nan, (1, 0))],
    )  # fmt: skip
    def test_share_of_what_is_returned(self, f, x, y, shares):
        assert ad.grad(f, argnums=(0, 1))(x, y) == shares

    def test_heaviside(self):
        assert ad.grad(np.heaviside, argnums=(0, 1))(0.0, 0.5) == (0.0, 1.0)


class TestLogaddexp:
    @pytest.mark.lenient
    @pytest.mark.parametrize("f", [np.logaddexp, np.logaddexp2])
    @pytest.mark.parametrize(
        ("x", "y", "shares"),
        [
            (-np.inf, -np.inf, (0.5, 0.5)),
            (np.inf, np.inf, (0.5, 0.5)),
            (-np.inf, 1.0, (0, 1)),
            (np.inf, 1.0, (1, 0)),
        ],
    )
    def test_infinities(self, f, x, y, shares):
        assert ad.grad(f, argnums=(0, 1))(x, y) == shares


class TestWhere:
    def test_nothing_leaks_from_what_is_not_selected(self):
        for order in (
            lambda f, x: ad.grad(f)(x),
            lambda f, x: ad.jvp(f, (x,), (1.0,))[1],
            lambda f, x: ad.hvp(f, x, 1.0, mode="forward-over-reverse"),
            lambda f, x: ad.hvp(f, x, 1.0, mode="reverse-over-forward"),
            lambda f, x: ad.hvp(f, x, 1.0, mode="forward-over-forward"),
            lambda f, x: ad.hvp(f, x, 1.0, mode="reverse-over-reverse"),
        ):
            with np.errstate(all="ignore"):
                assert order(lambda x: np.where(x > 0, np.sqrt(x), 0.0), 0.0) == 0.0
                assert order(lambda x: np.where(x > 0, x * np.log(x), 0.0), 0.0) == 0.0
                assert order(lambda x: np.where(x > 0, np.log(x), 0.0), -1.0) == 0.0

    def test_infinite_cotangent_of_what_is_not_selected(self):
        x = np.array([0.0, 4.0])
        g = ad.vjp(lambda x: np.where([True, False], 1.0, x), x)[1](np.array([np.inf, 2.0]))[0]
        assert g.tolist() == [0.0, 2.0]

    def test_broadcasting_and_chunks(self, rng):
        c = rng.standard_normal((2, 3)) > 0
        x, y = rng.standard_normal(3), rng.standard_normal((2, 1))
        check_derivative(lambda x, y: np.where(c, x, y), x, y)
        check_derivative(lambda x: np.where(c, x, 1.0), x)
        check_derivative(lambda x: np.where(c[0], 1.0, x), y)
        check_derivative(lambda x: np.where(c[0, 0], x, y), 2.0)
        for mode in ("forward", "reverse"):
            jacobian = ad.jacobian(lambda y: np.where(c, x, y), mode=mode)(y)
            for k in range(2):
                t = ad.jvp(lambda y: np.where(c, x, y), (y,), (np.eye(2)[:, [k]],))[1]
                np.testing.assert_array_equal(jacobian[..., k, 0], t)

    def test_one_argument(self):
        assert ad.grad(lambda x: np.sum(x[np.where(x > 0)]))(np.array([1.0, -1.0])).tolist() == [1, 0]


class TestSelection:
    def test_choose_modes(self, rng):
        x, y = rng.standard_normal((2, 3)), rng.standard_normal(3)
        for mode, index in (("wrap", [4, -1, 0]), ("clip", [5, -3, 1]), ("raise", [0, 1, 0])):
            f = lambda x, y: np.choose(index, [x, y], mode=mode)  # noqa: B023, E731
            np.testing.assert_array_equal(ad.jvp(f, (x, y), (x, y))[0], f(x, y))
            check_derivative(f, x, y, order=1)
        with pytest.raises(ValueError, match="choice"):
            ad.grad(lambda y: np.sum(np.choose([0, 3, 0], [y, y])))(y)

    def test_piecewise_evaluates_parts_only(self):
        x = np.array([-1.0, 0.0, 4.0])
        f = lambda x: np.sum(np.piecewise(x, [x > 0, x < 0], [np.sqrt, -1.0, 2.0]))  # noqa: E731
        assert ad.grad(f)(x).tolist() == [0, 0, 0.25]
        assert ad.value_and_grad(f)(x)[0] == 3.0

    def test_nan_to_num(self):
        x = np.array([np.nan, 1.0, np.inf, -np.inf])
        value, g = ad.jvp(lambda x: np.nan_to_num(x, nan=3.0, posinf=4.0), (x,), (np.ones(4),))
        np.testing.assert_array_equal(value, np.nan_to_num(x, nan=3.0, posinf=4.0))
        assert g.tolist() == [0, 1, 0, 0]

    def test_clip_of_bounds(self, rng):
        x = rng.standard_normal(6)
        check_derivative(lambda x, lo, hi: np.clip(x, lo, hi), x, -0.5, 0.5)
        check_derivative(lambda x: x.clip(-0.5, 0.5), x)

    def test_clip_out(self):
        def f(x):
            out = np.zeros_like(x)
            assert np.clip(x, 0, 1, out=out) is out
            return np.sum(out)

        assert ad.grad(f)(np.array([-1.0, 0.5])).tolist() == [0, 1]


COMPLEX = [
    np.negative, np.positive, np.square, np.reciprocal, np.sqrt, np.exp, np.exp2, np.expm1, np.log, np.log2,
    np.log10,
    np.log1p, np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan, np.sinh, np.cosh, np.tanh, np.arcsinh,
    np.arccosh, np.arctanh, np.sinc, lambda z: z**2, lambda z: z**2.5, lambda z: z**-1, lambda z: z**z,
]  # fmt: skip
Z = np.array([0.3 + 0.4j, -0.7 + 0.2j, 0.5 - 0.6j])


class TestComplex:
    @pytest.mark.parametrize("f", COMPLEX)
    def test_analytic(self, f):
        check_derivative(f, Z)
        # the tangent is f'(z) dz; f' by the complex step along both axes
        t = ad.jvp(f, (Z,), (np.ones(3, complex),))[1]
        np.testing.assert_allclose(ad.jvp(f, (Z,), (np.full(3, 1j),))[1], 1j * t, rtol=1e-13)
        # the pullback multiplies by the conjugate
        np.testing.assert_allclose(ad.vjp(f, Z)[1](np.ones(3, complex))[0], np.conj(t), rtol=1e-13)

    @pytest.mark.parametrize("f", [np.absolute, np.angle, np.real, np.imag, np.conj, np.sign,
                                   lambda z: np.angle(z, deg=True), np.nan_to_num])  # fmt: skip
    def test_not_analytic(self, f):
        check_derivative(f, Z)

    @pytest.mark.parametrize("f", [np.add, np.subtract, np.multiply, np.true_divide, np.power])
    def test_real_with_complex(self, f):
        x = np.array([1.2, 0.4, 2.2])
        check_derivative(f, x, Z)
        check_derivative(f, Z, x)
        gx, gz = ad.vjp(f, x, Z)[1](Z)
        assert (gx.dtype, gz.dtype) == (float, complex)

    def test_gradient_of_the_modulus(self):
        g = ad.grad(lambda z: np.sum(np.abs(z)))(Z)
        np.testing.assert_allclose(g, Z / np.abs(Z), rtol=4 * EPS)
        assert ad.grad(np.abs)(0j) == 0
        np.testing.assert_allclose(ad.grad(lambda z: np.sum(np.abs(z) ** 2))(Z), 2 * Z, rtol=8 * EPS)

    def test_parts_of_real_arrays(self):
        x = np.array([1.0, 2.0])
        assert ad.grad(lambda x: np.sum(np.real(x) + np.imag(x)))(x).tolist() == [1, 1]
        assert ad.grad(lambda x: np.sum(x.real * 2))(x).tolist() == [2, 2]
        assert ad.grad(lambda x: np.real(np.real_if_close(x + 0j)).sum())(x).tolist() == [1, 1]


def test_unneeded_partials_are_not_computed():
    x = np.array([-2.0, 0.0, 1.0])
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum(x**2))(x), 2 * x)
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum(np.power(x, np.full(3, 2.0))))(x), 2 * x)


def test_lists_and_numbers_as_the_other_argument():
    x = np.array([1.1, 2.3])
    for f in (np.add, np.subtract, np.multiply, np.true_divide, np.power, np.arctan2, np.hypot, np.maximum,
              np.logaddexp, np.remainder, np.fmod, np.copysign):  # fmt: skip
        for other in ([3.5, 0.7], 0.7, 3, np.float32(0.7), np.array([2, 3]), [[1.5], [0.3]]):
            check_derivative(lambda x: f(x, other), x, order=1)  # noqa: B023
            check_derivative(lambda x: f(other, x), x, order=1)  # noqa: B023


def test_functions_of_this_module_are_registered():
    names = """where select choose clip nan_to_num real_if_close angle real imag round fix i0 sinc
        unwrap piecewise isclose allclose array_equal"""
    for name in names.split():
        assert getattr(np, name) in FUNCTIONS

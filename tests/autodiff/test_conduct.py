"""How differentiation behaves: memory, threads, depth, exceptions, and no derivative lost in silence."""

import copy
import functools
import gc
import io
import itertools
import json
import math
import operator
import pickle
import statistics
import sys
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.special

import mercer.autodiff as ad
from mercer.autodiff.errors import ClosedTraceError, NoRuleError, TraceError

BOTH = ("forward", "reverse")
MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")
X = np.array([0.3, -0.7, 1.1])
A = np.array([[2.0, 0.3, 0.1], [0.3, 3.0, 0.2], [0.1, 0.2, 4.0]])
both = pytest.mark.parametrize("mode", BOTH)


def slope(f, x, mode):
    return ad.jacobian(f, mode)(x)


def busy(x):
    """A function with most kinds of records: elementwise, products, views, writes, joins, tuples."""
    y = np.exp(np.sin(x)) * x
    z = np.zeros_like(y)
    z[1:] = y[:-1] ** 2
    q, r = np.linalg.qr(A + np.outer(z, z))
    return np.sum(np.concatenate([y, z, q[0]]) @ np.linalg.solve(np.kron(np.eye(3), A), np.ravel(r)))


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
class TestMemory:
    def test_ten_thousand_gradients_leave_nothing(self):
        def f(x):
            y = x * x
            y[0] = np.sum(x)
            return np.sum(np.sin(y[::-1]) @ x)

        gradient = ad.grad(f)
        for _ in range(1000):  # fills the free lists
            gradient(X)
        before = sys.getallocatedblocks()
        for _ in range(10_000):
            gradient(X)
        # An object kept by each gradient would be 10,000 of them.
        assert sys.getallocatedblocks() - before < 1000

    def test_large_arrays_are_freed_at_once(self):
        x = np.zeros(1_000_000)
        tracemalloc.start()
        for _ in range(5):
            ad.grad(lambda x: np.sum(np.sin(x) * np.cos(x)))(x)
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert now < 100_000
        assert peak < 12 * x.nbytes

    @pytest.mark.parametrize(
        "call",
        [
            lambda: ad.grad(busy)(X),
            lambda: ad.jvp(busy, (X,), (X,)),
            lambda: ad.vjp(busy, X)[1](1.0),
            lambda: ad.jacobian(lambda x: busy(x) * x, "forward")(X),
            lambda: ad.jacobian(lambda x: busy(x) * x, "reverse")(X),
            *(lambda mode=mode: ad.hvp(busy, X, X, mode=mode) for mode in MODES),
        ],
    )
    def test_no_cycles(self, call):
        call()
        gc.collect()
        call()
        assert gc.collect() == 0

    def test_no_cycles_after_an_exception(self):
        def fails(x):
            y = np.sin(x)
            raise ZeroDivisionError(y)

        for _ in range(2):
            gc.collect()
            try:
                ad.grad(fails)(X)
            except ZeroDivisionError:
                pass
        assert gc.collect() == 0

    def test_arrays_go_with_the_pullback(self):
        kept = []

        def f(x):
            y = np.sin(x)
            kept.append(weakref.ref(ad.stop_gradient.__globals__["plain"](y)))
            return np.sum(y * y)

        _, pullback = ad.vjp(f, X)
        assert kept[0]() is not None
        del pullback
        assert kept[0]() is None


class TestThreads:
    def test_eight_at_once(self):
        def work(k):
            x = X + k
            for _ in range(5):
                gradient = ad.grad(busy)(x)
                product = ad.hvp(busy, x, X)
            return gradient, product

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(work, range(16)))
        for k, (gradient, product) in enumerate(results):
            np.testing.assert_array_equal(gradient, ad.grad(busy)(X + k))
            np.testing.assert_array_equal(product, ad.hvp(busy, X + k, X))

    def test_threads_inside_a_function(self):
        def f(x):
            with ThreadPoolExecutor(4) as pool:
                return sum(pool.map(lambda k: np.sum(np.sin(x * k)), range(8)))

        expected = sum(np.cos(X * k) * k for k in range(8))
        np.testing.assert_allclose(slope(f, X, "forward"), expected, rtol=1e-13)
        np.testing.assert_allclose(slope(f, X, "reverse"), expected, rtol=1e-13)


class TestDepth:
    @both
    def test_a_hundred_thousand_operations_in_a_row(self, mode):
        def chain(x):
            for _ in range(100_000):
                x = x * 1.00001
            return x

        expected = 1.00001**100_000
        if mode == "forward":
            assert ad.jvp(chain, (1.0,), (1.0,))[1] == pytest.approx(expected, rel=1e-9)
        else:
            assert ad.grad(chain)(1.0) == pytest.approx(expected, rel=1e-9)

    def test_views_of_views(self):
        def chain(x):
            for _ in range(2000):
                x = x[:]
            return np.sum(x * x)

        np.testing.assert_array_equal(ad.grad(chain)(X), 2 * X)

    def test_derivatives_ten_deep(self):
        f = np.exp
        for k in range(10):
            f = ad.grad(f) if k % 2 else (lambda g: lambda x: ad.jvp(g, (x,), (1.0,))[1])(f)
        assert f(0.5) == pytest.approx(np.exp(0.5), rel=1e-12)


class TestExceptions:
    def test_the_next_derivative_is_right(self):
        def fails(x):
            np.sin(x) * ad.grad(lambda y: np.sum(y * x))(x)
            raise KeyError("in the middle")

        bad_rule = ad.primitive(np.sin, vjp=lambda g, ans, x: 1 / 0, name="bad")
        for wrap in (ad.grad, lambda f: lambda x: ad.jvp(f, (x,), (x,)), ad.hessian):
            with pytest.raises(KeyError, match="in the middle"):
                wrap(fails)(X)
            with pytest.raises(ZeroDivisionError):
                wrap(lambda x: np.sum(bad_rule(x)))(X)
            np.testing.assert_allclose(ad.grad(lambda x: np.sum(x**2))(X), 2 * X, rtol=1e-15)
            assert ad.grad(lambda x: x * ad.grad(lambda y: x * y * y)(x))(3.0) == 6 * 3.0**2

    def test_an_exception_caught_inside(self):
        def f(x):
            try:
                ad.grad(lambda y: y / {}["none"])(x)
            except KeyError:
                pass
            return x * x

        assert ad.grad(f)(3.0) == 6.0

    @pytest.mark.parametrize(
        "later", [lambda x: x * 2, lambda x: np.sum(x), lambda x: x[0], lambda x: x + np.ones(3)]
    )
    @pytest.mark.parametrize("call", [lambda f: ad.grad(f)(X), lambda f: ad.jvp(f, (X,), (X,))])
    def test_a_leaked_value(self, later, call):
        leaked = []

        def f(x):
            leaked.append(x * 1)
            return np.sum(x)

        call(f)
        with pytest.raises(ClosedTraceError, match=r"used after its derivative was computed.*has_aux=True"):
            later(leaked[0])

    def test_floating_point_errors_are_the_users_to_choose(self):
        with pytest.raises(FloatingPointError):
            ad.grad(np.log)(0.0)
        before = np.geterr()
        ad.grad(np.sqrt)(4.0)
        assert np.geterr() == before


# -- never a silent zero: each way out of the trace is right, or says what to do -------------------------

REFUSED = [
    ("float()", lambda x: float(x[0]), r"float\(\): a traced value cannot become a plain.*use NumPy's"),
    ("int()", lambda x: int(x[0]), r"int\(\)"),
    ("complex()", lambda x: complex(x[0]).real, r"complex\(\)"),
    ("index", lambda x: [1.0, 2.0][x[0]], r"operator.index\(\)"),
    ("range", lambda x: sum(range(x[2])), r"operator.index\(\)"),
    ("math.sin", lambda x: math.sin(x[0]), r"float\(\).*np.sin for math.sin"),
    ("math.fsum", lambda x: math.fsum(x), r"float\(\)"),
    ("math.floor", lambda x: math.floor(x[2]), r"float\(\)"),
    ("%", lambda x: float("%f" % x[0]), r"float\(\)"),  # noqa: UP031
    ("np.asarray", lambda x: np.sum(np.asarray(x)), r"np.asarray\(\): .*ad.stop_gradient"),
    ("np.array", lambda x: np.sum(np.array([x[0], x[1]])), r"np.asarray\(\): .*np.stack joins"),
    ("nested list", lambda x: np.array([[x[0], 1.0], [2.0, x[1]]]) @ np.ones(2), r"np.asarray\(\)"),
    ("object array", lambda x: np.sum(np.array([x[0], x[1]], dtype=object)), r"np.asarray\(\)"),
    ("np.float64", lambda x: np.float64(x[0]), r"np.asarray\(\)"),
    ("np.float32", lambda x: np.float32(x[0]), r"np.asarray\(\)"),
    ("np.full", lambda x: np.sum(np.full(3, x[0])), r"np.asarray\(\).*like="),
    ("np.arange", lambda x: np.sum(np.arange(x[0], 3.0)), r"np.asarray\(\)"),
    ("np.vectorize", lambda x: np.sum(np.vectorize(lambda v: v * v)(x)), r"np.asarray\(\)"),
    ("np.frompyfunc", lambda x: np.sum(np.frompyfunc(lambda v: v * v, 1, 1)(x)), r"has no derivative rule"),
    ("a list to a function", lambda x: np.sum(np.exp([x[0], x[1]])), r"np.asarray\(\)"),
    ("tolist", lambda x: sum(x.tolist()), r"x.tolist\(\): .*ad.stop_gradient"),
    ("item", lambda x: x[0].item(), r"x.item\(\)"),
    ("view", lambda x: np.sum(x.view(np.int64)), r"view\(\)"),
    ("pickle", lambda x: pickle.dumps(x), r"pickle: .*pickle ad.stop_gradient\(x\)"),
    ("json", lambda x: json.dumps(x), r"not JSON serializable"),
    ("text", lambda x: float(str(x[0])), r"could not convert string"),
    ("f-string", lambda x: float(f"{x[0]:.17g}"), r"could not convert string to float: 'Traced\(0.29"),
    ("dict key", lambda x: {x[0]: 1.0}[x[0]], r"hash\(\): a traced value is unhashable.*float\(ad.stop_grad"),
    ("set", lambda x: len(set(x)), r"hash\(\)"),
    ("cache", lambda x: functools.lru_cache(lambda y: y)(x), r"hash\(\)"),
    ("bits", lambda x: x & 1, r"the operator &: works on bits .* has the type float64.*\(x > 0\) & mask"),
    ("bits on the right", lambda x: 1 | x[0], r"the operator |:"),
    ("bits in place", lambda x: operator.ixor(x, 1), r"the operator \^:"),
    ("bits of a mask", lambda x: np.array([True, False, True]) & x, r"bitwise_and"),
    ("shift", lambda x: x << 1, r"the operator <<: .*2\*\*n \* x shifts by n"),
    ("shift by it", lambda x: 1 >> x[0], r"the operator >>:"),
    ("inverted", lambda x: ~x, r"the operator ~:"),
    ("pow of three", lambda x: pow(x[0], 2, 3), r"pow\(\): .*np.remainder\(x\*\*y, z\)"),
    ("pow of three, to it", lambda x: pow(2, x[0], 3), r"pow\(\)"),
    ("deleted", lambda x: operator.delitem(x, 0), r"del x\[…\]: .*x = np.delete\(x, …\)"),
    ("bytes", lambda x: len(bytes(x)), r"x.tobytes\(\): .*ad.stop_gradient"),
    ("math.trunc", lambda x: math.trunc(x[2]), r"math.trunc\(\): .*NumPy's"),
    ("statistics", lambda x: statistics.mean(x), r"x.as_integer_ratio\(\) in statistics.mean: "),
    ("np.nditer", lambda x: sum(np.nditer(x)), r"np.asarray\(\): .*ad.stop_gradient"),
    ("np.ndenumerate", lambda x: sum(v for _, v in np.ndenumerate(x)), r"np.asarray\(\)"),
    ("np.fromiter", lambda x: np.sum(np.fromiter(x, float)), r"element of a plain array: float\(\)"),
    ("np.save", lambda x: np.savez(io.BytesIO(), x), r"np.savez: .*save ad.stop_gradient\(x\)"),
    ("random scale", lambda x: np.random.default_rng(0).normal(0, x[0]), r"np.asarray\(\)"),
    ("random choice", lambda x: np.sum(np.random.default_rng(0).choice(x, 2)), r"np.asarray\(\)"),
    ("branch on an array", lambda x: x[0] if x else x[1], r"bool\(\): .*a.any\(\) or a.all\(\)"),
    ("initial", lambda x: np.add.reduce(X, initial=x[0]), r"plain array"),
    ("ix_", lambda x: np.ix_(x)[0], r"np.ix_: has no derivative rule"),
    ("element", lambda x: np.zeros(3).__setitem__(0, x[0]), r"assignment .*float\(\).*np.zeros_like"),
    ("slice", lambda x: np.zeros(3).__setitem__(slice(3), x), r"np.asarray\(\).*np.zeros_like"),
    ("fill", lambda x: np.zeros(3).fill(x[0]), r"assignment .* plain array"),
    ("out=", lambda x: np.add(x, 1, out=np.zeros(3)), r"out=.*plain array"),
    ("in place", lambda x: operator.iadd(np.zeros(3), x), r"np.add.*plain array"),
    ("np.copyto", lambda x: np.copyto(np.zeros(3), x), r"np.copyto.*plain array"),
    ("np.put", lambda x: np.put(np.zeros(3), [0], x[0]), r"np.put.*plain array"),
    ("np.add.at", lambda x: np.add.at(np.zeros(3), [0, 1, 2], x), r"np.add.at.*plain array"),
    ("float index", lambda x: X[x[0]], r"np.asarray|index"),
    ("traced index", lambda x: x[x], r"x\[index\]: an index must be whole numbers or booleans"),
    ("a slice by it", lambda x: X[: x[0]], r"operator.index\(\)"),
    ("object type", lambda x: np.sum(x.astype(object)), r"astype"),
    ("method of a plain array", lambda x: X.dot(x), r"np.asarray\(\): .*write X @ …, or np.dot\(X, …\)"),
    ("list to np.dot", lambda x: np.dot([x[0], 1.0], [2.0, x[1]]), r"np.asarray\(\).*np.stack joins"),
    ("list to np.interp", lambda x: np.interp(0.5, [0, 1], [x[0], x[1]]), r"np.asarray\(\) in np.interp: "),
    ("polynomial module", lambda x: np.polynomial.polynomial.polyval(0.3, x),
     r"in numpy.polynomial.polynomial.polyval: "),
    ("quad", lambda x: scipy.integrate.quad(lambda t: t * x[0], 0, 1)[0], r"float\(\) in scipy.integrate"),
    ("scipy.linalg", lambda x: np.sum(scipy.linalg.solve(A, x)),
     r"in scipy.*use mercer.autodiff.scipy.linalg.solve, which takes traced values"),
    ("behind a decorator", lambda x: scipy.linalg.cho_factor(A * x)[0],
     r"in scipy.*use mercer.autodiff.scipy.linalg.cho_factor, which takes traced values"),
    ("scipy.special", lambda x: scipy.special.logsumexp(x),
     r"in scipy.special.*use mercer.autodiff.scipy.special.logsumexp, which takes traced values"),
    ("no wrapper", lambda x: np.sum(scipy.linalg.polar(A * x)[0]), r"in scipy.*np.stack joins"),
    ("spline", lambda x: scipy.interpolate.CubicSpline([0, 1, 2], x)(0.5),
     r"in scipy.interpolate.CubicSpline: "),
    ("as_strided", lambda x: np.lib.stride_tricks.as_strided(x, (2, 2), x.strides * 2),
     r"np.asarray\(\): .*sliding_window_view"),
    ("no rule", lambda x: np.packbits(x), r"np.packbits: has no derivative rule .*ad.primitive"),
]  # fmt: skip


@both
@pytest.mark.parametrize(("f", "message"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_would_lose_the_derivative_is_refused(f, message, mode):
    with pytest.raises((TypeError, ValueError, IndexError), match=message) as caught:
        slope(f, X.copy(), mode)
    if isinstance(caught.value, TraceError):
        # The user's line is named, even where a library was between.
        assert "test_conduct.py:" in str(caught.value)


FOLLOWED = [
    ("NumPy scalars", lambda x: np.sum(np.float64(2) * x + np.float32(3) / (x + 5) - np.int64(2) ** x)),
    ("plain arrays", lambda x: np.sum(X * x + A @ x - np.array(2.0) / (x + 4))),
    ("lists", lambda x: np.sum([1.0, 2.0, 3.0] * x) + np.sum(x**[1, 2, 3])),
    ("a list with traced numbers", lambda x: np.sum(x * [x[0], x[1], 2.0])),
    ("Python numbers", lambda x: 2 * x[0] + 3.5 / x[2] - 2 ** x[1] + (2 + 1j) * x[0] * (2 - 1j)),
    ("np.stack", lambda x: np.sum(np.stack([x[0], x[1]]) ** 2)),
    ("np.array like=", lambda x: np.sum(np.array([x[0], x[1]], like=x) ** 2)),
    ("np.full like=", lambda x: np.sum(np.full(3, x[0], like=x) ** 2)),
    ("np.full_like", lambda x: np.sum(np.full_like(x, x[0]) ** 2)),
    ("np.ones_like", lambda x: np.sum(np.ones_like(x) * x)),
    ("an object array", lambda x: np.sum(functools.reduce(operator.add, _objects(x)))),
    ("sum", lambda x: sum(x) ** 2 + sum([x[0]] * 2)),
    ("max, min", lambda x: max(x) ** 2 + min(x) + max(x[0], 0.0)),
    ("sorted", lambda x: sorted(x)[1] ** 2),
    ("math.prod", lambda x: math.prod(x)),
    ("pow, abs, divmod", lambda x: pow(x[2], 2.5) + abs(x[1]) + divmod(x[2], 0.25)[1]),
    ("reduce, map", lambda x: functools.reduce(operator.mul, x) + sum(map(np.sin, x))),
    ("zip", lambda x: sum(a * b for a, b in zip(x, X, strict=True))),
    ("accumulate", lambda x: list(itertools.accumulate(x))[-1] ** 2),
    ("unpacking", lambda x: (lambda a, b, c: a * b * c)(*x)),
    ("comparisons as numbers", lambda x: np.sum((x > 0) * x) + (x[0] > 0) * x[0]),
    ("types", lambda x: np.sum(x.astype(np.float32).astype(np.float64) * 0 + x * x)),
    ("whole numbers", lambda x: np.sum(x.astype(int) * x + np.floor(x) * x + x // 0.4 * x + np.sign(x) * x)),
    ("round", lambda x: round(x[0], 1) * x[1] + round(x[2]) * x[0]),
    ("if", lambda x: x[0] ** 2 if x[0] > 0 and x[1] < 0 else x[0]),
    ("and, or, not", lambda x: (x[0] or x[1]) * (x[0] and x[1]) + (not x[0]) * x[2]),
    ("while", lambda x: _doubled(x[0])),
    ("text compared", lambda x: x[0] * (x[0] != "auto") + (x == "auto").sum()),
    ("in", lambda x: (x[0] in [5.0]) + (2.0 in X) + x[0]),
    ("copies", lambda x: np.sum(copy.copy(x) * copy.deepcopy({"x": [x]})["x"][0])),
    ("a copy is apart", lambda x: _written_copy(x)),
    ("np.apply_along_axis", lambda x: np.sum(np.apply_along_axis(lambda v: v * v, 0, x))),
    ("np.fromfunction", lambda x: np.sum(np.fromfunction(lambda i: x[0] * i, (3,)))),
    ("np.piecewise", lambda x: np.sum(np.piecewise(x, [x > 0], [lambda v: v * v, lambda v: -v]))),
    ("np.where", lambda x: np.sum(np.where(x > 0, x, x**2))),
    ("masks", lambda x: np.sum(x[x > 0] ** 2)),
    ("argsort", lambda x: np.sum(X[np.argsort(x)] * x)),
("scipy.special", lambda x: np.sum(scipy.special.erf(x))),
    ("printing", lambda x: len([repr(x), str(x), f"{x[0]:.3f}"]) * x[0]),
]  # fmt: skip


def _objects(x):
    cells = np.zeros(2, object)
    cells[0], cells[1] = x[0] * x[1], x[2] ** 2
    return cells


def _doubled(x):
    while x < 2:
        x = x * x + 0.7
    return x


def _written_copy(x):
    other = copy.deepcopy(x)
    other[0] = 5.0
    return np.sum(x * other)


@both
@pytest.mark.parametrize("f", [c[1] for c in FOLLOWED], ids=[c[0] for c in FOLLOWED])
def test_what_is_followed_is_right(f, mode):
    # Central differences, in steps that cross no kink of these functions.
    h = 1e-5
    expected = [np.real(f(X + h * e) - f(X - h * e)) / (2 * h) for e in np.eye(3)]
    got = np.real(ad.jacobian(f, mode, holomorphic=True)(X.copy()))
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)
    assert np.any(got != 0)


def test_the_users_line_is_named():
    def f(x):
        return math.cos(x)  # the line that the error must show

    with pytest.raises(TraceError, match=r"test_conduct.py:\d+: return math.cos\(x\)  # the line that"):
        ad.grad(f)(1.0)
    with pytest.raises(NoRuleError, match=r"np.packbits: has no derivative rule \(at test_conduct.py"):
        ad.grad(lambda x: np.packbits(x))(1.0)
    for f in (lambda x: scipy.special.struve(x, 1.0), lambda x: np.sum(scipy.special.struve(X, x))):
        with pytest.raises(NoRuleError, match=r"scipy.special.struve: has no derivative rule"):
            ad.grad(f)(1.0)


@pytest.mark.parametrize("transform", [ad.grad, ad.value_and_grad, ad.jacobian, ad.hessian])
def test_a_point_in_the_place_of_the_function(transform):
    with pytest.raises(TypeError, match=rf"{transform.__name__} takes a function, got ndarray; "):
        transform(X)


def test_arguments_are_left_alone():
    x = X.copy()
    x.flags.writeable = False

    def f(x):
        y = x * 1
        y[0] = 3.0
        y *= 2
        return np.sum(y * x)

    ad.grad(f)(x)
    ad.hvp(f, x, x)
    np.testing.assert_array_equal(x, X)
    # A function that writes into its argument writes into its own copy while it is differentiated.
    z = X.copy()

    def writes(x):
        x[0] = x[1] * 2
        return np.sum(x)

    np.testing.assert_array_equal(ad.grad(writes)(z), [0, 3, 1])
    np.testing.assert_array_equal(z, X)

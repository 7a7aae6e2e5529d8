"""Rules of sums, products, extrema, statistics and order: all modes, at zeros, ties, NaN and constants."""

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError
from mercer.testing import check_derivative
from rule_checks import Case, check_case, points

V, A, T = (5,), (3, 4), (2, 3, 2)
MASK = np.array([[True, False, True, True], [True, True, False, True], [False, True, True, False]])
NAN = np.where(MASK, 0.0, np.nan)


TENSOR = points(T)


def reductions(name, f, args=TENSOR, complex=True):
    """The arguments that reductions share."""
    return [
        Case(name, lambda x: f(x), args, complex),
        Case(f"{name} axis", lambda x: f(x, axis=1), args, complex),
        Case(f"{name} last axis", lambda x: f(x, axis=-1, keepdims=True), args, complex),
        Case(f"{name} axes", lambda x: f(x, axis=(0, -1)), args, complex),
        Case(f"{name} all kept", lambda x: f(x, keepdims=True), args, complex),
        Case(
            f"{name} no axis",
            lambda x: f(x, axis=()) if name in "sum mean max min prod" else f(x),
            args,
            complex,
        ),
    ]


def running(name, f):
    return [
        Case(name, lambda x: f(x), points(A)),
        Case(f"{name} axis", lambda x: f(x, axis=0), points(A)),
        Case(f"{name} last axis", lambda x: f(x, axis=-1), points(A)),
    ]


def with_nan(f):
    """Put NaN into the entries where NAN has it, whatever the point."""
    return lambda x: f(x + NAN.astype(x.dtype))


SUMS = [
    *reductions("sum", np.sum),
    *reductions("mean", np.mean),
    *reductions("prod", np.prod),
    *running("cumsum", np.cumsum),
    *running("cumprod", np.cumprod),
    Case("sum method", lambda x: x.sum(0) + x.mean(0) + x.prod(axis=0), points(A)),
    Case("sum where", lambda x: np.sum(x, axis=0, where=MASK, initial=2), points(A)),
    Case("sum where broadcast", lambda x: np.sum(x, axis=1, where=MASK[0]), points(A)),
    Case("sum traced initial", lambda x, y: np.sum(x + 0 * y, initial=y), points(A, ())),
    Case("sum dtype", lambda x: np.sum(x, axis=0, dtype=np.result_type(x, np.float64)), points(A)),
    Case("prod where", lambda x: np.prod(x, axis=0, where=MASK, initial=2), points(A)),
    Case("mean where", lambda x: np.mean(x, axis=0, where=MASK), points(A)),
    Case("cumsum method", lambda x: x.cumsum(1) * x.cumprod(1), points(A)),
    Case("cumulative_sum", lambda x: np.cumulative_sum(x, axis=1, include_initial=True), points(A)),
    Case("cumulative_prod", lambda x: np.cumulative_prod(x, axis=0, include_initial=True), points(A)),
    Case("cumulative vector", lambda x: np.cumulative_sum(x) * np.cumulative_prod(x), points(V)),
    Case("cumprod long", lambda x: np.cumprod(x), points((9,))),
    Case("average", lambda x: np.average(x, axis=0), points(A)),
    Case("average weights", lambda x, w: np.average(x, axis=1, weights=w), points(A, (4,), low=0.3)),
    Case("average all", lambda x, w: np.average(x, weights=w, returned=True), points(A, A, low=0.3)),
    Case("average kept", lambda x, w: np.average(x, (2, 0), w, keepdims=True), points(T, (2, 2), low=0.3)),
]
EXTREMA = [
    *reductions("max", np.max, complex=False),
    *reductions("min", np.min, complex=False),
    *reductions("ptp", np.ptp, complex=False),
    Case("amax", lambda x: np.amax(x, 0) - np.amin(x, 1)[:, None], points(A), False),
    Case("max initial", lambda x: np.max(x, axis=0, initial=0.5), points(A), False),
    Case(
        "min traced initial",
        lambda x, y: np.min(x + 0 * y, axis=1, initial=y, keepdims=True),
        points(A, ()),
        False,
    ),
    Case("max where", lambda x: np.max(x, axis=0, where=MASK, initial=-9.0), points(A), False),
    Case("max method", lambda x: x.max(1) * x.min(), points(A), False),
]
STATISTICS = [
    *reductions("var", np.var),
    *reductions("std", np.std),
    Case("var ddof", lambda x: np.var(x, axis=0, ddof=1), points(A)),
    Case("std correction", lambda x: np.std(x, axis=1, correction=1.5), points(A)),
    Case("var mean=", lambda x: np.var(x, axis=1, mean=np.mean(x, axis=1, keepdims=True)), points(A)),
    Case("std where", lambda x: np.std(x, axis=0, where=MASK), points(A), False),
    Case("var where", lambda x: np.var(x, axis=1, where=MASK, ddof=1), points(A), False),
    Case("var method", lambda x: x.var(0) * x.std(0, ddof=1), points(A)),
    Case("cov", lambda x: np.cov(x), points(A)),
    Case("cov two", lambda x, y: np.cov(x, y, bias=True), points(V, V)),
    Case("cov columns", lambda x: np.cov(x, rowvar=False), points(A)),
    Case(
        "cov weights",
        lambda x, w: np.cov(x + 0 * w, aweights=w, fweights=[1, 2, 1, 3]),
        points(A, (4,), low=0.2),
        False,
    ),
    Case("cov frequencies", lambda x: np.cov(x, fweights=[1, 2, 1, 3]), points(A)),
    Case("cov vector", lambda x: np.cov(x), points(V)),
    Case("corrcoef", lambda x: np.corrcoef(x), points(A), False),
    Case("corrcoef two", lambda x, y: np.corrcoef(x, y)[0, 1], points(V, V), False),
]
METHODS = (
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen",
    "weibull",
    "linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
)  # fmt: skip
Q = np.array([0.0, 0.2, 0.45, 0.5, 0.81, 1.0])
ORDER = [
    Case("sort", lambda x: np.sort(x), points(A), False),
    Case("sort axis", lambda x: np.sort(x, axis=0), points(A), False),
    Case("sort None", lambda x: np.sort(x, axis=None), points(A), False),
    Case("partition", lambda x: np.sort(np.partition(x, 2, axis=1)[:, :2], axis=1), points(A), False),
    Case("sort_complex", lambda x: np.real(np.sort_complex(x)), points(V), False),
    Case("median odd", lambda x: np.median(x), points(V), False),
    Case("median even", lambda x: np.median(x, axis=-1, keepdims=True), points(A), False),
    Case("median axes", lambda x: np.median(x, axis=(0, 2)), points(T), False),
    *(
        Case(f"quantile {m}", lambda x, m=m: np.quantile(x, Q, axis=1, method=m), points((2, 5)), False)
        for m in METHODS
    ),
    Case("quantile number", lambda x: np.quantile(x, 0.3), points(A), False),
    Case(
        "quantile kept", lambda x: np.quantile(x, [[0.3, 0.9]], axis=(0, 2), keepdims=True), points(T), False
    ),
    Case("quantile 0 axis", lambda x: np.quantile(x, 0.6, axis=0), points(A), False),
    Case("percentile", lambda x: np.percentile(x, [30, 77], axis=0), points(A), False),
    Case(
        "quantile weights",
        lambda x: np.quantile(x, [0.3, 0.7], axis=1, method="inverted_cdf", weights=[1.0, 2.0, 0.5, 3.0]),
        points(A),
        False,
    ),
]
MISSING = [
    Case("nansum", with_nan(lambda x: np.nansum(x, axis=0)), points(A), False),
    Case("nanprod", with_nan(lambda x: np.nanprod(x, axis=1)), points(A), False),
    Case("nancumsum", with_nan(lambda x: np.nancumsum(x, axis=1)), points(A), False),
    Case("nancumprod", with_nan(lambda x: np.nancumprod(x, axis=0)), points(A), False),
    Case("nanmean", with_nan(lambda x: np.nanmean(x, axis=1)), points(A), False),
    Case("nanmax", with_nan(lambda x: np.nanmax(x, axis=0)), points(A), False),
    Case("nanmin", with_nan(lambda x: np.nanmin(x)), points(A), False),
    Case("nanvar", with_nan(lambda x: np.nanvar(x, axis=1)), points(A), False),
    Case("nanstd", with_nan(lambda x: np.nanstd(x, ddof=1)), points(A), False),
    Case("nanmedian", with_nan(lambda x: np.nanmedian(x, axis=1)), points(A), False),
    Case("nanquantile", with_nan(lambda x: np.nanquantile(x, [0.2, 0.7], axis=0)), points(A), False),
    Case("nanpercentile", with_nan(lambda x: np.nanpercentile(x, 30, keepdims=True)), points(A), False),
    *reductions("nansum without", np.nansum),
    Case("nanmedian without", lambda x: np.nanmedian(x, axis=0), points(A), False),
    Case("nanstd without", lambda x: np.nanstd(x, axis=0), points(A)),
]
ALL = SUMS + EXTREMA + STATISTICS + ORDER + MISSING


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
def test_rule(case):
    check_case(case)


@pytest.mark.parametrize("zeros", [(), (2,), (1, 3), (0, 1, 4)], ids=str)
@pytest.mark.parametrize("f", [np.prod, np.cumprod], ids=["prod", "cumprod"])
def test_products_are_exact_at_zeros(f, zeros):
    """Products are polynomials: with x_i = c + v_i t the derivatives are coefficients."""
    x = np.array([2.0, -1.0, 3.0, 0.5, 4.0])
    x[list(zeros)] = 0.0
    n = len(x)
    ends = [n] if f is np.prod else range(1, n + 1)
    exact = np.zeros((len(ends), n))
    second = np.zeros((len(ends), n, n))
    for row, end in enumerate(ends):
        for i in range(end):
            exact[row, i] = np.prod(np.delete(x[:end], i))
            for j in range(end):
                if i != j:
                    second[row, i, j] = np.prod(np.delete(x[:end], [i, j]))
    for mode in ("forward", "reverse"):
        J = ad.jacobian(f, mode=mode)(x)
        np.testing.assert_array_equal(J.reshape(exact.shape), exact)
        for outer in ("forward", "reverse"):
            H = ad.jacobian(ad.jacobian(f, mode=mode), mode=outer)(x)
            np.testing.assert_allclose(H.reshape(second.shape), second, rtol=1e-14)


def test_product_whose_value_underflows():
    x = np.array([1e-200, 1e-200, 1e300])
    with np.errstate(under="ignore"):
        np.testing.assert_allclose(ad.grad(np.prod)(x), [1e100, 1e100, 0.0], rtol=1e-14, atol=1e-300)


def test_ties_share_evenly():
    x = np.array([2.0, 2.0, 1.0])  # G22
    for f, want in ((np.max, [0.5, 0.5, 0.0]), (np.min, [0.0, 0.0, 1.0]), (np.ptp, [0.5, 0.5, -1.0])):
        np.testing.assert_array_equal(ad.grad(f)(x), want)
        for mode in ("forward", "reverse"):
            np.testing.assert_array_equal(ad.jacobian(f, mode=mode)(x), want)
    assert ad.grad(lambda x: np.max(np.stack([x, x])))(5.0) == 1.0
    assert ad.grad(lambda x: np.max(np.stack([x, 3 * x])))(2.0) == 3.0
    X = np.array([[1.0, 3.0, 3.0], [3.0, 0.0, 1.0]])
    np.testing.assert_allclose(ad.grad(np.max)(X), np.array([[0, 1, 1], [1, 0, 0]]) / 3, rtol=1e-15)
    np.testing.assert_array_equal(
        ad.jacobian(lambda x: np.max(x, axis=1))(X)[0], [[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]
    )
    np.testing.assert_array_equal(ad.grad(lambda x: np.max(x, initial=2.0))(x), [1 / 3, 1 / 3, 0])


def test_sort_of_ties_follows_the_stable_permutation():
    x = np.array([2.0, 1.0, 2.0, 1.0])
    want = np.eye(4)[[1, 3, 0, 2]]
    for mode in ("forward", "reverse"):
        np.testing.assert_array_equal(ad.jacobian(np.sort, mode=mode)(x), want)
    np.testing.assert_array_equal(ad.grad(np.median)(x), [0.5, 0.0, 0.0, 0.5])


@pytest.mark.parametrize("ties", [False, True])
def test_long_sorts_are_stable(ties, rng):
    x = rng.standard_normal((3, 100))
    x = np.round(x, 1) if ties else x
    order = np.argsort(x, axis=1, kind="stable")
    value, pullback = ad.vjp(np.sort, x)
    np.testing.assert_array_equal(value, np.sort(x))
    g = rng.standard_normal(x.shape)
    np.testing.assert_array_equal(pullback(g)[0], np.take_along_axis(g, np.argsort(order, axis=1), 1))


@pytest.mark.parametrize("c", [0.0, 0.1, 0.3, -1e8, 1e-300])
@pytest.mark.parametrize("n", [1, 3, 7])
def test_constant_input(c, n):
    """The deviation of equal numbers is a kink with derivative 0, also where their mean is rounded."""
    x = np.full(n, c)
    for f in (np.std, np.nanstd, lambda x: np.std(x, axis=0, where=np.ones(n, bool))):
        np.testing.assert_array_equal(ad.grad(f)(x), np.zeros(n))
        np.testing.assert_array_equal(ad.jvp(f, (x,), (np.arange(1.0, n + 1),))[1], 0.0)
    np.testing.assert_array_equal(ad.grad(np.var)(x), np.zeros(n))
    np.testing.assert_allclose(ad.hessian(np.var)(x), 2 / n * (np.eye(n) - 1 / n), atol=1e-15)
    np.testing.assert_array_equal(ad.hessian(np.std)(x), np.zeros((n, n)))


def test_one_constant_row_among_others():
    X = np.array([[0.1, 0.1, 0.1], [1.0, 2.0, 4.0]])
    J = ad.jacobian(lambda X: np.std(X, axis=1))(X)
    np.testing.assert_array_equal(J[0], 0)
    np.testing.assert_allclose(J[1, 1], (X[1] - X[1].mean()) / (3 * X[1].std()), rtol=1e-14)


@pytest.mark.parametrize("f", [np.median, lambda x: np.quantile(x, 0.3), np.max, np.sort, np.mean])
def test_nan_spoils_the_value_as_in_numpy(f):
    x = np.array([1.0, np.nan, 2.0])
    np.testing.assert_array_equal(ad.vjp(f, x)[0], f(x))
    np.testing.assert_array_equal(ad.jvp(f, (x,), (np.ones(3),))[0], f(x))


@pytest.mark.parametrize("f", [np.nanmax, np.nanmin])
def test_only_nan(f):
    x = np.array([[np.nan, np.nan], [1.0, np.nan]])
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        value, pullback = ad.vjp(lambda x: f(x, axis=1), x)
    np.testing.assert_array_equal(value, [np.nan, 1.0])
    np.testing.assert_array_equal(pullback(np.ones(2))[0], [[0.0, 0.0], [1.0, 0.0]])


@pytest.mark.parametrize("f", [np.sum, np.prod, np.cumsum, np.cumprod, np.sort], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(0,), (1,), (2, 0)], ids=str)
def test_empty_and_single(f, shape):
    x = np.full(shape, 3.0)
    for mode in ("forward", "reverse"):
        J = ad.jacobian(f, mode=mode)(x)
        assert J.shape == f(x).shape + shape
        assert J.sum() == x.size


def test_out_takes_traced_arrays_only():
    x = np.arange(1.0, 5.0).reshape(2, 2)

    def f(x):
        buffer = np.zeros_like(x[0])
        same = np.sum(x * x, axis=0, out=buffer)
        assert same is buffer
        return np.prod(buffer)

    np.testing.assert_allclose(ad.grad(f)(x), [[40.0, 40.0], [120.0, 80.0]])
    check_derivative(f, x)
    for g in (np.sum, np.mean, np.max, np.cumsum, np.std, np.median, np.prod):
        shape = (4,) if g is np.cumsum else ()
        with pytest.raises(TraceError, match=r"out=.*assignment.*zeros_like"):
            ad.grad(lambda x, g=g, shape=shape: np.sum(g(x, out=np.zeros(shape))))(x)


def test_quantiles_of_traced_order_say_so():
    for f in (
        lambda q: np.quantile(np.arange(3.0) + 0 * q, q),
        lambda q: np.percentile(np.arange(3.0) + 0 * q, q),
    ):
        with pytest.raises(TraceError, match="q and weights cannot be differentiated"):
            ad.grad(f)(0.4)


def test_large_sums_keep_their_digits():
    x = np.full(10**6, np.float32(0.1))
    value, pullback = ad.vjp(np.mean, x)
    assert value == np.mean(x)
    np.testing.assert_array_equal(pullback(np.float32(1))[0], np.full(10**6, np.float32(1e-6)))

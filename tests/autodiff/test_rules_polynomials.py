"""Rules of grids, polynomials, sliding windows and sets."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceValueError
from mercer.testing import check_derivative
from rule_checks import Case, check_case, check_value, points

V, A = (5,), (3, 4)

ALL = [
    Case("linspace", lambda a, b: np.linspace(a, b, 5).astype(a.dtype), points((), ()), False),
    Case(
        "linspace open", lambda a: np.linspace(a, 2.0, 4, endpoint=False).astype(a.dtype), points(()), False
    ),
    Case("linspace arrays", lambda a, b: np.linspace(a, b, 3, axis=1), points(A, (4,))),
    Case("linspace step", lambda a, b: np.linspace(a, b, 3, retstep=True), points(V, V)),
    Case("linspace one", lambda a, b: np.linspace(a, b, 1) + 0 * b, points((2,), (2,))),
    Case("logspace", lambda a, b: np.logspace(a, b, 4), points((2,), (2,)), False),
    Case(
        "logspace base",
        lambda a, b, c: np.logspace(a, b, 3, base=c),
        points((2,), (2,), (2,), low=0.5),
        False,
    ),
    Case("geomspace", lambda a, b: np.geomspace(a, b, 5).astype(a.dtype), points((2,), (2,), low=0.5), False),
    Case("vander", lambda x: np.vander(x), points((3,))),
    Case("vander increasing", lambda x: np.vander(x, 4, increasing=True), points((3,))),
    Case("polyval", lambda p, x: np.polyval(p, x), points((4,), (3,))),
    Case("polyval number", lambda p, x: np.polyval(p, x), points((4,), ())),
    Case("polyadd", lambda a, b: (np.polyadd(a, b), np.polysub(a, b), np.polymul(a, b)), points((4,), (2,))),
    Case("polyder", lambda p: np.polyder(p, 2).astype(p.dtype), points((4,)), False),
    Case("polyint", lambda p: np.polyint(p, 2, [1.0, 3.0]).astype(p.dtype), points((4,)), False),
    Case("poly", lambda r: np.poly(r), points((4,)), False),
    Case("poly of a matrix", lambda A: np.poly(A), points((3, 3)), False),
    Case("polyfit", lambda x, y: np.polyfit(x, y, 2), points((8,), (8,)), False),
    Case(
        "polyfit weights",
        lambda x, y, w: np.polyfit(x, y, 1, w=w),
        points((6,), (6, 2), (6,), low=0.5),
        False,
    ),
    Case("polyfit cov", lambda x, y: np.polyfit(x, y, 1, cov=True), points((6,), (6,)), False),
    Case(
        "polyfit unscaled",
        lambda x, y: np.polyfit(x, y, 1, cov="unscaled")[1] + 0 * y[0],
        points((6,), (6, 1)),
        False,
    ),
    Case("windows", lambda x: sliding_window_view(x, 3) * 1, points(V)),
    Case("windows axis", lambda x: sliding_window_view(x, (2,), axis=1) * 1, points(A)),
    Case("windows both", lambda x: sliding_window_view(x, (2, 3)) * 1, points(A)),
    Case(
        "trim_zeros",
        lambda x: np.trim_zeros(np.concatenate((np.zeros(2, x.dtype), x, np.zeros(1, x.dtype)))),
        points(V),
    ),
    Case("unique_values", lambda x: np.sort(np.unique_values(x)), points(V), False),
    Case("union1d", lambda x, y: np.union1d(x, y), points(V, (3,)), False),
    Case(
        "setdiff1d",
        lambda x: np.setdiff1d(x, x[:2] if isinstance(x, np.ndarray) else ad.stop_gradient(x)[:2]),
        points(V),
        False,
    ),
    Case("intersect1d", lambda x: np.intersect1d(np.append(x, x), x[:3]), points(V), False),
]


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
def test_rule(case):
    check_case(case)


@pytest.mark.parametrize(
    "p", [[1.0, -3.0, 2.0], [1.0, 0.3, 2.0, -1.0], [2.0, 1.0, -4.0, 0.5, 0.1], [1.0 + 1.0j, 2.0, 3.0 - 0.5j]]
)
def test_roots(p):
    p = np.array(p)
    np.testing.assert_array_equal(ad.vjp(np.roots, p)[0], np.roots(p))
    check_derivative(np.roots, p)
    check_derivative(lambda p: np.poly(np.roots(p)), p)


@pytest.mark.parametrize("f", [np.roots, np.poly], ids=lambda f: f.__name__)
def test_float32_has_float32_tangents(f):
    p = np.array([1.0, -5.3, 2.2], np.float32)
    value, tangent = ad.jvp(f, (p,), (p,))
    assert value.dtype == tangent.dtype == f(p).dtype


def test_roots_beside_zero_coefficients():
    p = np.array([0.0, 1.0, -3.0, 2.0, 0.0])
    roots, J = np.roots(p), ad.jacobian(np.roots)(p)
    np.testing.assert_allclose(
        J, -np.vander(roots, 5) / np.polyval(np.polyder(p), roots)[:, None], rtol=1e-12
    )


def test_coefficients_of_what_was_fitted_do_not_move():
    x, p = np.linspace(-1.0, 2.0, 7), np.array([0.5, -1.0, 2.0])
    J = ad.jacobian(lambda p: np.polyfit(x, np.polyval(p, x), 2))(p)
    np.testing.assert_allclose(J, np.eye(3), atol=1e-13)


def test_polyfit_says_what_is_wrong():
    x = np.arange(3.0)
    with pytest.raises(ValueError, match="deg"):
        ad.vjp(lambda y: np.polyfit(x, y, -1), x)
    with pytest.raises(TypeError, match=r"y of shape \(3,\)"):
        ad.vjp(lambda y: np.polyfit(x, y[:2], 1), x)
    with pytest.raises(TypeError, match="weights"):
        ad.vjp(lambda y: np.polyfit(x, y, 1, w=x[:2]), x)
    with pytest.raises(ValueError, match="must exceed order"):
        ad.vjp(lambda y: np.polyfit(x, y, 2, cov=True), x)
    with pytest.warns(np.exceptions.RankWarning):
        ad.vjp(lambda y: np.polyfit(x, y, 3), x)
    with pytest.raises(TraceValueError, match="rank 1"):
        ad.vjp(lambda y: np.polyfit(np.ones(3), y, 1), x)


def test_powers_of_zero_in_a_vandermonde_matrix():
    J = ad.jacobian(lambda x: np.vander(x, 3, increasing=True))(np.array([0.0, 2.0]))
    np.testing.assert_array_equal(J[0, :, 0], [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(J[1, :, 1], [0.0, 1.0, 4.0])


def test_windows_see_later_writes():
    def f(x):
        y = x * x
        w = sliding_window_view(y, 2)
        y[1] = x[0]
        return np.sum(w * np.arange(6.0).reshape(3, 2))

    check_value(f, points((4,)))
    check_derivative(f, *points((4,)))


def test_zero_in_a_geometric_grid():
    with pytest.raises(ValueError, match="zero"):
        ad.vjp(lambda a: np.geomspace(a, 1.0), 0.0)

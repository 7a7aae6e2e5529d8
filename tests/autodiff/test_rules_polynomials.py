"""Rules of grids, polynomials, sliding windows and sets."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import mercer.autodiff as ad
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

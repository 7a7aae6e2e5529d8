"""Derivatives of the incomplete gamma function in its shape, against mpmath over its domain."""

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

import mercer.autodiff as ad
from mercer.autodiff.errors import NoRuleError
from mercer.autodiff.rules_gamma import ratio
from mercer.testing import check_derivative

EPS = np.finfo(float).eps
SHAPES = [1e-6, 1e-3, 0.1, 0.9, 1.0, 3.7, 19.9, 20.1, 300.0, 1e5, 1e8]
FACTORS = [1e-3, 0.3, 0.9, 1.0, 1.1, 3.0, 40.0]


def _exact_ratio(a, x):
    """∂P/∂a over x f(x), as the integral of (log t − ψ(a)) f(t)/(x f(x)) over log t, at 30 digits."""
    with mp.workdps(30):
        a, x = mp.mpf(a), mp.mpf(x)
        score = mp.log(x) - mp.digamma(a)
        side = 1 if score >= 0 else -1
        drift = side * (x - a)
        width = 1 / (abs(drift) + mp.sqrt(x)) if x > 0.1 else 1 / a

        def integrand(u):
            return (score + side * u) * mp.exp(-drift * u - x * (mp.expm1(side * u) - side * u))

        return -side * mp.quad(integrand, [width * k for k in (0, 1, 2, 4, 8, 16, 32, 64, 128)])


@pytest.mark.parametrize("a", SHAPES)
def test_the_ratio_to_the_density(a):
    x = np.array([a * k for k in FACTORS if 0.4 <= a * k] + [0.5])
    exact = np.array([float(_exact_ratio(a, float(p))) for p in x])
    np.testing.assert_allclose(ratio(a, x), exact, rtol=16 * EPS)


@pytest.mark.parametrize("a", [1e-6, 1e-3, 0.3, 2.5, 60.0])
@pytest.mark.parametrize("x", [1e-12, 1e-3, 0.39, 0.4, 2.0])
def test_the_slope_in_the_shape(a, x):
    with mp.workdps(50):
        P = lambda a: mp.gammainc(a, 0, mp.mpf(x), regularized=True)  # noqa: E731
        exact = float(mp.diff(P, mp.mpf(a), h=mp.mpf(a) * mp.mpf(10) ** -20))
        size = 8 + abs(float(mp.log(mp.mpf(x)) * a - x - mp.loggamma(mp.mpf(a))))
    assert ad.grad(lambda a: sp.gammainc(a, x))(a) == pytest.approx(exact, rel=2 * size * EPS, abs=1e-300)
    assert ad.grad(lambda a: sp.gammaincc(a, x))(a) == pytest.approx(-exact, rel=2 * size * EPS, abs=1e-300)


@pytest.mark.parametrize(("a", "x"), [(0.7, 3.0), (2.3, 1.1), (14.0, 15.5), (30.0, 27.0), (0.5, 0.1)])
def test_second_derivatives(a, x):
    hessian = ad.hessian(lambda v: sp.gammainc(v[0], v[1]))(np.array([a, x]))
    with mp.workdps(40):
        P = lambda a, x: mp.gammainc(a, 0, x, regularized=True)  # noqa: E731
        at = mp.mpf(a), mp.mpf(x)
        exact = [[float(mp.diff(P, at, n)) for n in row] for row in (((2, 0), (1, 1)), ((1, 1), (0, 2)))]
    np.testing.assert_allclose(hessian, exact, rtol=1e-13)


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (sp.gammainc, (np.array([0.4, 3.0, 50.0]), np.array([0.2, 2.0, 55.0]))),
        (sp.gammaincc, (np.array([[0.4], [3.0]]), np.array([0.2, 2.0]))),
        (sp.gammaincinv, (2.5, 0.3)),
        (sp.gammainccinv, (0.7, 0.6)),
        (sp.chdtr, (3.0, 2.0)),
        (sp.chdtrc, (3.0, 2.0)),
        (sp.chdtri, (3.5, 0.2)),
        (sp.gdtr, (1.2, 2.5, 0.7)),
        (sp.gdtrc, (1.2, 2.5, 0.7)),
        (sp.gdtrix, (1.2, 2.5, 0.7)),
    ],
)
def test_all_arguments_and_inverses(f, args):
    check_derivative(f, *args)


def test_the_edges_of_the_domain():
    with np.errstate(all="ignore"):
        slope = ad.grad(lambda a: np.sum(sp.gammainc(a, np.array([0.0, np.inf]))))
        assert slope(2.0) == 0.0
        assert ad.grad(lambda a: sp.gammaincinv(a, 0.0))(2.0) == 0.0
        assert np.isnan(ad.grad(lambda a: sp.gammainc(a, 1.0))(-1.0))


def test_the_third_derivative_in_the_shape_is_refused():
    second = ad.grad(ad.grad(lambda a: sp.gammainc(a, 1.0)))
    with pytest.raises(NoRuleError, match="gammainc's second derivative"):
        ad.grad(second)(2.0)


def test_single_precision_stays():
    a, x = np.float32([1.5, 40.0]), np.float32([1.0, 42.0])
    gradient = ad.grad(lambda a: np.sum(sp.gammainc(a, x)))(a)
    assert gradient.dtype == np.float32
    exact = ad.grad(lambda a: np.sum(sp.gammainc(a, x.astype(float))))(a.astype(float))
    np.testing.assert_allclose(gradient, exact, rtol=4e-7)

"""LU factors, banded and Toeplitz systems, expm's derivative: values and derivatives of SciPy's functions."""

import numpy as np
import pytest
import scipy.linalg as sla

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError
from mercer.autodiff.scipy import linalg
from mercer.testing import check_derivative

RNG = np.random.default_rng(11)
A = RNG.standard_normal((4, 4))
C = A + 1j * RNG.standard_normal((4, 4))
B = RNG.standard_normal((4, 2))
BANDS = RNG.standard_normal((4, 6)) + np.array([[0.0], [0.0], [5.0], [0.0]])  # 2 above, 1 below
HALF = np.array([[0.0, 0.3, -0.2, 0.4, 0.1], [0.0, 0.7, 0.5, -0.6, 0.2], [4.0, 5.0, 4.5, 3.9, 4.2]])
COLUMN, ROW = np.array([5.0, 0.4, -0.7, 0.2]), np.array([9.0, 1.1, 0.3, -0.5])


def _agrees(ours, scipys, *args, atol=0.0):
    """Check the values of every output, bit for bit unless `atol` is given, and all derivatives."""
    want = scipys(*args)
    got = ad.vjp(ours, *args)[0]
    many = isinstance(want, tuple)
    for g, w in zip(got if many else (got,), want if many else (want,), strict=True):
        np.testing.assert_allclose(g, w, rtol=0, atol=atol)
    check_derivative(ours, *args)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 5), (1, 1)])
def test_lu(shape):
    a = np.random.default_rng(2).standard_normal(shape)
    tolerance = 0 if shape[0] == shape[1] else 1e-14  # what lies beyond the square part is solved for
    _agrees(lambda a: linalg.lu(a)[1:], lambda a: sla.lu(a)[1:], a, atol=tolerance)
    _agrees(lambda a: linalg.lu(a, permute_l=True), lambda a: sla.lu(a, permute_l=True), a, atol=tolerance)
    np.testing.assert_array_equal(linalg.lu(a)[0], sla.lu(a)[0])
    np.testing.assert_array_equal(linalg.lu(a, p_indices=True)[0], sla.lu(a, p_indices=True)[0])
    p, left, right = linalg.lu(a)
    np.testing.assert_allclose(p @ left @ right, a, atol=1e-15)


def test_complex_lu():
    f = lambda a: np.abs(linalg.lu(C + a)[1]) + 0.0  # noqa: E731
    check_derivative(f, A)
    check_derivative(lambda a: np.real(linalg.lu(C + a)[2]), A)


@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("b", [B, B[:, 0]])
def test_lu_factor_and_solve(trans, b):
    _agrees(lambda a: linalg.lu_factor(a)[0], lambda a: sla.lu_factor(a)[0], A)
    f = lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b, trans)  # noqa: E731
    np.testing.assert_allclose(f(A, b), sla.lu_solve(sla.lu_factor(A), b, trans), rtol=1e-13)
    check_derivative(f, A, b)
    z = linalg.lu_solve(linalg.lu_factor(C), b, trans)
    np.testing.assert_allclose(z, sla.lu_solve(sla.lu_factor(C), b, trans), rtol=1e-13)


def test_singular_matrices_have_no_differentiable_factors():
    with pytest.raises(TraceError, match="singular"), pytest.warns(sla.LinAlgWarning):
        ad.vjp(linalg.lu_factor, np.ones((3, 3)))


@pytest.mark.parametrize("b", [RNG.standard_normal(6), RNG.standard_normal((6, 2))])
def test_banded_systems(b):
    _agrees(
        lambda ab, b: linalg.solve_banded((1, 2), ab, b),
        lambda ab, b: sla.solve_banded((1, 2), ab, b),
        BANDS,
        b,
    )
    gradient = ad.grad(lambda ab: np.sum(linalg.solve_banded((1, 2), ab, b)))(BANDS)
    assert not np.any([*gradient[0, :2], gradient[1, 0], gradient[3, -1]])


@pytest.mark.parametrize(("n", "lower", "upper"), [(2, 3, 1), (2, 1, 3), (3, 4, 4), (1, 2, 2)])
def test_more_bands_than_diagonals(n, lower, upper):
    bands, b = RNG.standard_normal((lower + upper + 1, n)), RNG.standard_normal((n, 2))
    bands[upper] += 4
    _agrees(
        lambda ab, b: linalg.solve_banded((lower, upper), ab, b),
        lambda ab, b: sla.solve_banded((lower, upper), ab, b),
        bands,
        b,
    )


SYSTEMS = {
    "banded": lambda row, b: linalg.solve_banded((0, 0), row[None], b),
    "positive definite": lambda row, b: linalg.solveh_banded(row[None], b),
    "Toeplitz": linalg.solve_toeplitz,
}


@pytest.mark.parametrize("solve", SYSTEMS.values(), ids=SYSTEMS)
def test_empty_systems(solve):
    gradients = ad.grad(lambda row, b: np.sum(solve(row, b)), argnums=(0, 1))(np.zeros(0), np.zeros(0))
    assert [g.shape for g in gradients] == [(0,), (0,)]


@pytest.mark.parametrize("solve", SYSTEMS.values(), ids=SYSTEMS)
def test_cotangents_that_are_not_numbers_come_through(solve):
    row, b = np.array([2.0, 0.0, 0.0]) if solve is SYSTEMS["Toeplitz"] else np.full(3, 2.0), np.ones(3)
    pullback = ad.vjp(lambda b: solve(row, b), b)[1]
    assert np.isnan(pullback(np.array([1.0, np.nan, 1.0]))[0]).any()


def test_complex_banded_systems():
    b = RNG.standard_normal(6)
    check_derivative(lambda t: np.abs(linalg.solve_banded((1, 2), BANDS + 1j * t, b)), np.ones((4, 6)))


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("b", [RNG.standard_normal(5), RNG.standard_normal((5, 2))])
def test_positive_definite_banded_systems(b, lower):
    half = (
        np.stack([np.roll(row, -k) for row, k in zip(HALF[::-1], range(3), strict=True)]) if lower else HALF
    )
    for bands in (half, half[-2:] if not lower else half[:2], half[-1:] if not lower else half[:1]):
        _agrees(
            lambda ab, b: linalg.solveh_banded(ab, b, lower=lower),
            lambda ab, b: sla.solveh_banded(ab, b, lower=lower),
            bands,
            b,
        )


@pytest.mark.parametrize("b", [B[:, 0], B])
def test_toeplitz_systems(b):
    _agrees(
        lambda c, r, b: linalg.solve_toeplitz((c, r), b),
        lambda c, r, b: sla.solve_toeplitz((c, r), b),
        COLUMN,
        ROW,
        b,
    )
    _agrees(linalg.solve_toeplitz, sla.solve_toeplitz, COLUMN, b)
    assert ad.grad(lambda r: np.sum(linalg.solve_toeplitz((COLUMN, r), b)))(ROW)[0] == 0
    check_derivative(
        lambda t: np.abs(linalg.solve_toeplitz(COLUMN + 1j * t, b)), np.array([0.0, 1.0, 0.5, 0.2])
    )


def test_the_exponentials_derivative():
    E = RNG.standard_normal((4, 4))
    value, derivative = linalg.expm_frechet(A, E)
    np.testing.assert_allclose(value, sla.expm(A), rtol=1e-14)
    np.testing.assert_allclose(derivative, sla.expm_frechet(A, E, compute_expm=False), rtol=1e-12, atol=1e-13)
    check_derivative(lambda a, e: linalg.expm_frechet(a, e, compute_expm=False), A, E)

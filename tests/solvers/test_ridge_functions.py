"""Kernel ridge regression as a function: differentiated in K, y, α and the weights."""

import importlib

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.linalg import aslinearoperator

import mercer.autodiff as ad
from mercer.kernels import RBF
from mercer.solvers import NotPositiveDefinite, ridge, ridge_loo
from mercer.testing import check_derivative

N = 6
by_function = pytest.mark.parametrize("function", [ridge, ridge_loo])
by_intercept = pytest.mark.parametrize("fit_intercept", [False, True], ids=["plain", "intercept"])


@pytest.fixture
def problem(rng):
    X = rng.normal(size=(N, 2))
    return X, RBF(0.4)(X), rng.normal(size=N), rng.normal(size=(N, 2)), rng.uniform(0.5, 2.0, N)


def weights_of(kind, w):
    return {"equal": None, "weighted": w, "some absent": np.where(np.arange(N) % 3 == 1, 0.0, w)}[kind]


@by_function
@by_intercept
@pytest.mark.parametrize("kind", ["equal", "weighted", "some absent"])
@pytest.mark.parametrize("alpha", [0.1, np.array([0.1, 0.5])], ids=["one alpha", "alphas"])
def test_values_and_derivatives(function, fit_intercept, kind, alpha, problem):
    _, K, y, Y, w = problem
    y = y if np.ndim(alpha) == 0 else Y
    weights = weights_of(kind, w)

    def f(M, y, alpha):
        return function(0.5 * (M + M.T), y, alpha, sample_weight=weights, fit_intercept=fit_intercept)

    plain, traced = f(K, y, alpha), ad.vjp(f, K, y, alpha)[0]
    if not isinstance(plain, tuple):
        plain, traced = (plain,), (traced,)
    for a, b in zip(plain, traced, strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-12)
    check_derivative(f, K, y, alpha)


@by_function
@by_intercept
def test_derivative_in_weights(function, fit_intercept, problem):
    _, K, y, _, w = problem
    check_derivative(lambda w: function(K, y, 0.1, sample_weight=w, fit_intercept=fit_intercept), w)


def test_closed_forms(problem):
    # a = G⁻¹y, G = K + αI: ∂⟨v, a⟩/∂y = G⁻¹v, ∂/∂α = −(G⁻¹v)ᵀa, and in K the symmetric part of −(G⁻¹v)aᵀ.
    _, K, y, _, v = problem
    G = K + 0.3 * np.eye(N)
    a, b = np.linalg.solve(G, y), np.linalg.solve(G, v)
    dK, dy, dalpha = ad.grad(lambda K, y, alpha: v @ ridge(K, y, alpha), (0, 1, 2))(K, y, 0.3)
    np.testing.assert_allclose(dy, b, rtol=1e-11)
    np.testing.assert_allclose(dalpha, -b @ a, rtol=1e-11)
    np.testing.assert_allclose(dK, -0.5 * (np.outer(b, a) + np.outer(a, b)), rtol=1e-10, atol=1e-12)


def test_one_factor_serves_value_gradient_and_second_order(problem, monkeypatch):
    module = importlib.import_module("mercer.solvers.traced_ridge")
    count, factorize = [], module.factorize
    monkeypatch.setattr(module, "factorize", lambda *args: (count.append(1), factorize(*args))[1])
    _, K, y, _, v = problem
    ad.grad(lambda K: v @ ridge(K, y, 0.3))(K)
    assert len(count) == 1
    ad.hvp(lambda y: np.sum(ridge(K, y, 0.3) ** 3), y, v)
    assert len(count) == 2


def test_the_derivative_of_leave_one_out_is_that_of_refits(problem):
    X, _, y, _, _ = problem

    def refits(gamma, alpha):
        residuals = []
        for i in range(N):
            rest = [j for j in range(N) if j != i]
            a = ridge(RBF(gamma)(X[rest]), y[rest], alpha)
            residuals.append(y[i] - np.sum(RBF(gamma)(X[i : i + 1], X[rest])[0] * a))
        return np.sum(np.stack(residuals) ** 2)

    def closed(gamma, alpha):
        return np.sum(ridge_loo(RBF(gamma)(X), y, alpha) ** 2)

    for argnums in (0, 1):
        expected = ad.grad(refits, argnums)(0.4, 0.1)
        assert ad.grad(closed, argnums)(0.4, 0.1) == pytest.approx(expected, rel=1e-10)


def test_a_traced_operator_is_formed(problem):
    X, _, y, _, _ = problem
    by_gram = ad.grad(lambda g: np.sum(ridge(RBF(g).gram(X), y, 0.1) ** 2))(0.4)
    assert by_gram == pytest.approx(ad.grad(lambda g: np.sum(ridge(RBF(g)(X), y, 0.1) ** 2))(0.4), rel=1e-12)


def test_other_forms_of_a_plain_matrix(problem):
    X, K, y, _, _ = problem
    expected = ad.grad(lambda y: np.sum(ridge(K, y, 0.1) ** 2))(y)
    for form in (RBF(0.4).gram(X), aslinearoperator(K), csr_array(K), K.tolist(), np.asfortranarray(K)):
        found = ad.grad(lambda y, form=form: np.sum(ridge(form, y, 0.1) ** 2))(y)
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    single = ad.grad(lambda K: np.sum(ridge(K, y, 0.1) ** 2))(K.astype(np.float32))
    assert single.dtype == np.float32


def test_tiny_alpha_and_none(problem):
    _, K, y, _, _ = problem
    check_derivative(lambda y, alpha: ridge(K + np.eye(N), y, alpha), y, 0.02)
    np.testing.assert_allclose(
        ad.vjp(lambda y: ridge(K + np.eye(N), y, 0.0), y)[0], np.linalg.solve(K + np.eye(N), y), rtol=1e-12
    )


@by_function
def test_errors_are_those_of_plain_values(function, problem):
    _, K, y, _, _ = problem
    for arguments, kind, match in [
        ((-np.eye(N), y, 0.1), NotPositiveDefinite, "pivot 0"),
        ((K, y, -0.1), ValueError, "alpha must be finite and not negative"),
        ((K[:, :3], y, 0.1), ValueError, "square"),
        ((K, y[:3], 0.1), ValueError, "inconsistent"),
        ((K * np.nan, y, 0.1), ValueError, "NaN"),
    ]:
        with pytest.raises(kind, match=match):
            ad.grad(lambda *a: np.sum(function(*a)), (0, 1, 2))(*arguments)


def test_plain_arguments_do_not_meet_the_traced_form(problem, monkeypatch):
    _, K, y, _, _ = problem
    monkeypatch.setattr(
        "mercer.solvers.ridge_functions.traced_ridge", lambda *args: pytest.fail("plain values were traced")
    )
    ridge(K, y, 0.1)

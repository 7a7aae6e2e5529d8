"""The ridge problem by its stationarity, by the normal equations of explicit features, and by refits."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from mercer import _native
from mercer.kernels import RBF, Polynomial
from mercer.solvers import NotPositiveDefinite, least_squares, ridge, ridge_loo
from mercer.solvers.least_squares import ridge_cg, ridge_cholesky

intercepts = pytest.mark.parametrize("fit_intercept", [True, False])
weightings = pytest.mark.parametrize("weighted", ["no", "positive", "some removed"])


@pytest.fixture
def data(rng):
    X = rng.normal(size=(40, 3))
    return X, RBF(gamma=0.3)(X), rng.normal(size=(40, 2)) + [100.0, -3.0]


def weights_for(weighted, n, rng):
    if weighted == "no":
        return None
    weights = rng.uniform(0.1, 3, size=n)
    if weighted == "some removed":
        weights[3], weights[n // 2] = 0.0, -1.0
    return weights


def solve(K, y, alpha, **options):
    out = ridge(K, y, alpha, **options)
    return out if options.get("fit_intercept") else (out, np.zeros(np.shape(y)[1:]))


@intercepts
@weightings
class TestRidge:
    alphas = np.array([0.3, 1e-3])

    def test_stationary(self, data, rng, fit_intercept, weighted):
        _, K, y = data
        weights = weights_for(weighted, len(K), rng)
        before = K.copy()
        a, b = solve(K, y, self.alphas, sample_weight=weights, fit_intercept=fit_intercept)
        np.testing.assert_array_equal(K, before)
        w = np.ones(len(K)) if weights is None else np.maximum(weights, 0)
        error = w[:, None] * (K @ a + b - y)
        np.testing.assert_allclose(K @ error + self.alphas * (K @ a), 0, atol=1e-10)
        if fit_intercept:
            np.testing.assert_allclose(error.sum(axis=0), 0, atol=1e-10)

    def test_minimises_the_cost(self, data, rng, fit_intercept, weighted):
        _, K, y = data
        weights = weights_for(weighted, len(K), rng)
        w = np.ones(len(K)) if weights is None else np.maximum(weights, 0)
        y, alpha = y[:, 1], 0.3

        def cost(p):
            error = K @ p[:-1] + p[-1] * fit_intercept - y
            gradient = 2 * K @ (w * error) + 2 * alpha * K @ p[:-1]
            value = w @ error**2 + alpha * p[:-1] @ K @ p[:-1]
            return value, np.append(gradient, 2 * fit_intercept * (w @ error))

        a, b = solve(K, y, alpha, sample_weight=weights, fit_intercept=fit_intercept)
        found = minimize(
            cost, np.zeros(len(K) + 1), jac=True, method="BFGS", options={"gtol": 1e-7, "maxiter": 3000}
        )
        ours = cost(np.append(a, b))[0]
        assert ours <= found.fun * (1 + 1e-12)
        assert ours == pytest.approx(found.fun, rel=1e-6)

    def test_equals_the_normal_equations_of_the_features(self, rng, fit_intercept, weighted):
        kernel = Polynomial(2)
        X, y = rng.normal(size=(30, 2)), rng.normal(size=30) + 5
        weights = weights_for(weighted, 30, rng)
        w = np.ones(30) if weights is None else np.maximum(weights, 0)
        features = kernel.features(X)
        design = np.column_stack([features, np.ones(30)]) if fit_intercept else features
        penalty = 0.7 * np.eye(design.shape[1])
        if fit_intercept:
            penalty[-1, -1] = 0
        theta = np.linalg.solve(design.T @ (w[:, None] * design) + penalty, design.T @ (w * y))
        a, b = solve(kernel(X), y, 0.7, sample_weight=weights, fit_intercept=fit_intercept)
        np.testing.assert_allclose(kernel(X) @ a + b, design @ theta, rtol=1e-9)

    def test_leave_one_out_equals_refits(self, data, rng, fit_intercept, weighted):
        _, K, y = data
        weights = weights_for(weighted, len(K), rng)
        w = np.ones(len(K)) if weights is None else weights
        left_out = ridge_loo(K, y, self.alphas, sample_weight=weights, fit_intercept=fit_intercept)
        for i in range(len(K)):
            without = w.copy()
            without[i] = 0
            a, b = solve(K, y, self.alphas, sample_weight=without, fit_intercept=fit_intercept)
            np.testing.assert_allclose(left_out[i], y[i] - K[i] @ a - b, rtol=1e-8, atol=1e-9)

    def test_conjugate_gradients_agree(self, data, rng, fit_intercept, weighted):
        _, K, y = data
        weights = weights_for(weighted, len(K), rng)
        kept = np.arange(len(K)) if weights is None else np.flatnonzero(weights > 0)
        part, s = K[np.ix_(kept, kept)], None if weights is None else np.sqrt(weights[kept])
        outcome = ridge_cg(
            lambda V: part @ V,
            y[kept],
            self.alphas,
            diagonal=part.diagonal(),
            rows=lambda index: part[index],
            s=s,
            fit_intercept=fit_intercept,
            tol=1e-11,
            max_rank=10,
        )
        a, b = solve(K, y, self.alphas, sample_weight=weights, fit_intercept=fit_intercept)
        assert outcome.converged
        assert outcome.residual <= 1e-11
        np.testing.assert_allclose(part @ outcome.solution + outcome.intercept, (K @ a + b)[kept], rtol=1e-8)


@intercepts
def test_twice_the_weight_is_the_row_twice(data, fit_intercept):
    X, K, y = data
    twice = np.append(np.arange(len(X)), [4, 4, 9])
    weights = np.ones(len(X))
    weights[4], weights[9] = 3, 2
    a, b = solve(K, y, 0.1, sample_weight=weights, fit_intercept=fit_intercept)
    a2, b2 = solve(K[np.ix_(twice, twice)], y[twice], 0.1, fit_intercept=fit_intercept)
    np.testing.assert_allclose(K @ a + b, K[:, twice] @ a2 + b2, rtol=1e-10)


def test_vanishing_weights_tend_to_the_removed_row(data):
    _, K, y = data
    weights = np.ones(len(K))
    weights[5] = 1e-300
    tiny = ridge(K, y, 0.1, sample_weight=weights)
    weights[5] = 0
    np.testing.assert_allclose(tiny, ridge(K, y, 0.1, sample_weight=weights), rtol=1e-10, atol=1e-280)


def test_without_a_penalty_the_targets_are_met(data):
    _, K, y = data
    a, b = ridge(K + np.eye(len(K)), y, 0.0, fit_intercept=True)
    np.testing.assert_allclose((K + np.eye(len(K))) @ a + b, y, rtol=1e-10)


def test_a_large_mean_costs_no_digits(data):
    _, K, y = data
    y = np.round(256 * y) / 256  # so that the shifted targets are exact
    a, b = ridge(K, y, 0.1, fit_intercept=True)
    a_far, b_far = ridge(K, y + 2.0**40, 0.1, fit_intercept=True)
    np.testing.assert_allclose(a_far, a, rtol=1e-10, atol=1e-10)
    # The intercept itself has 2^40's last digit only.
    np.testing.assert_allclose(b_far - 2.0**40, b, atol=4 * np.spacing(2.0**40))


@intercepts
def test_one_row(fit_intercept):
    a, b = solve(np.array([[2.0]]), [3.0], 1.0, fit_intercept=fit_intercept)
    assert 2 * a[0] + b == pytest.approx(3.0 if fit_intercept else 2.0)
    left_out = ridge_loo(np.array([[2.0]]), [3.0], 1.0, fit_intercept=fit_intercept)
    if fit_intercept:
        assert np.isnan(left_out[0])
    else:
        assert left_out[0] == pytest.approx(3.0)


@intercepts
@pytest.mark.parametrize("alphas", [0.5, [0.5, 0.01, 0.5]])
def test_single_precision_factors_change_nothing(monkeypatch, rng, fit_intercept, alphas):
    X = rng.normal(size=(200, 3))
    K, y, s = RBF(gamma=0.3)(X), rng.normal(size=(200, 3)), rng.uniform(0.5, 2, size=200)
    alphas = np.broadcast_to(alphas, 3)
    plain = ridge_cholesky(K.copy(), y, alphas, s=s, fit_intercept=fit_intercept)
    monkeypatch.setattr(least_squares, "MIXED_FROM", 10)
    mixed = ridge_cholesky(K.copy(), y, alphas, s=s, fit_intercept=fit_intercept)
    assert plain.solver == "cholesky"
    assert mixed.solver == "cholesky, float32 refined"
    np.testing.assert_allclose(mixed.solution, plain.solution, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mixed.intercept, plain.intercept, atol=1e-12)
    assert mixed.residual < 1e-12


def test_float64_takes_over_where_float32_fails(monkeypatch, rng):
    K, y = RBF(gamma=0.3)(rng.normal(size=(50, 3))), rng.normal(size=(50, 1))
    monkeypatch.setattr(least_squares, "MIXED_FROM", 10)
    exact = _native.cholesky
    monkeypatch.setattr(_native, "cholesky", lambda A, n=None: 7 if A.dtype == np.float32 else exact(A, n))
    outcome = ridge_cholesky(K.copy(), y, np.array([0.1]))
    assert outcome.solver == "cholesky"


def test_falling_short_warns_with_the_residual(data):
    _, K, y = data
    options = {"diagonal": K.diagonal(), "rows": lambda index: K[index], "max_rank": 1}
    with pytest.warns(
        ConvergenceWarning,
        match=r"stopped at a residual of .* after 2 iterations, short of tol=1.0e-10; raise max_iter",
    ):
        outcome = ridge_cg(lambda V: K @ V, y, np.full(2, 1e-4), tol=1e-10, max_iter=2, **options)
    assert not outcome.converged
    assert outcome.residual > 1e-10


def test_a_bad_fast_product_is_found_out(data):
    _, K, y = data
    options = {"diagonal": K.diagonal(), "rows": lambda index: K[index], "max_rank": 10, "tol": 1e-9}
    bad = np.diag(np.linspace(0.2, 3, len(K)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = ridge_cg(lambda V: K @ V, y, np.full(2, 0.1), fast=lambda V: bad @ V, **options)
    assert outcome.converged
    np.testing.assert_allclose(
        K @ outcome.solution, K @ ridge(K, y, 0.1, fit_intercept=True)[0], rtol=1e-5, atol=1e-6
    )


def test_a_fast_product_is_refined(data):
    _, K, y = data
    options = {"diagonal": K.diagonal(), "rows": lambda index: K[index], "max_rank": 10, "tol": 1e-10}
    single = K.astype(np.float32)
    outcome = ridge_cg(
        lambda V: K @ V, y, np.full(2, 0.1), fast=lambda V: single @ V.astype(np.float32), **options
    )
    assert outcome.residual <= 1e-10


def test_an_operator_will_do(data):
    X, K, y = data
    gram = RBF(gamma=0.3).gram(X)
    np.testing.assert_allclose(ridge(gram, y, 0.1), ridge(K, y, 0.1), rtol=1e-9)
    np.testing.assert_allclose(ridge_loo(gram, y, 0.1), ridge_loo(K, y, 0.1), rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.ones((2, 3)), [1, 2]), ValueError, r"K must be square, got shape \(2, 3\)"),
        ((np.eye(2), [1, 2], -1.0), ValueError, "alpha must be finite and not negative, got -1.0"),
        ((np.eye(2), [1, 2], [1.0, np.nan]), ValueError, "one number or one per target"),
        ((np.eye(2), [[1, 2], [3, 4]], [1.0, np.inf]), ValueError, "got inf at index 1"),
        ((np.eye(2), [1, 2], "a"), TypeError, "alpha must be a nonnegative number"),
        ((np.eye(2), [1, np.nan]), ValueError, "y contains NaN"),
        ((np.zeros((2, 2)), [1, 2], 0.0), NotPositiveDefinite, "pivot 0"),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        ridge(*arguments)


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("route", ["cholesky", "mixed", "cg"])
def test_the_unit_of_the_targets_does_not_matter(monkeypatch, data, route, unit):
    # Squares of such targets leave float64's range.
    monkeypatch.setattr(least_squares, "MIXED_FROM", 10 if route == "mixed" else 10**6)
    _, K, Y = data
    alphas = np.array([0.3, 5.0])

    def fit(Y):
        if route != "cg":
            return ridge_cholesky(K.copy(), Y, alphas)
        return ridge_cg(K.dot, Y, alphas, diagonal=K.diagonal(), rows=K.__getitem__, tol=1e-10)

    expected, actual = fit(Y), fit(Y * unit)
    np.testing.assert_allclose(actual.solution / unit, expected.solution, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(actual.intercept / unit, expected.intercept, rtol=1e-6)
    loo = least_squares.ridge_loo_residuals(K.copy(), Y * unit, alphas) / unit
    np.testing.assert_allclose(
        loo, least_squares.ridge_loo_residuals(K.copy(), Y, alphas), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("unit", [1e-70, 1e-40, 1e37, 1e70])
def test_the_unit_of_the_matrix_is_that_of_alpha(rng, unit):
    """Preconditioners and cheap products are in float32, whose range it leaves."""
    X = rng.normal(size=(600, 4))
    K, Y = RBF(gamma=0.5)(X), X[:, :2]
    steps = []
    for c in (1.0, unit):
        outcome = ridge_cg(
            lambda V, c=c: c * (K @ V),
            Y,
            np.array([0.1, 2.0]) * c,
            diagonal=c * K.diagonal(),
            rows=lambda index, c=c: c * K[index],
            fast=lambda V, c=c: (c * K).astype(np.float32) @ V.astype(np.float32),
            tol=1e-8,
        )
        assert outcome.converged
        steps.append((outcome.n_iter, c * outcome.solution))
    assert steps[1][0] <= steps[0][0] + 3
    np.testing.assert_allclose(steps[1][1], steps[0][1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alpha", [1e-20, 1e-300, 5e-324])
def test_an_alpha_below_rounding_does_not_spoil_the_preconditioner(data, alpha):
    X, _, Y = data
    K = RBF(gamma=2.0)(X)
    alphas = np.full(2, alpha)
    outcome = ridge_cg(K.dot, Y, alphas, diagonal=K.diagonal(), rows=K.__getitem__, tol=1e-8)
    assert outcome.converged
    np.testing.assert_allclose(K @ outcome.solution + outcome.intercept, Y, rtol=1e-7)


def test_residuals_that_stand_for_hundreds_of_steps_fall_later(rng):
    n = 300
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    K = (Q * np.geomspace(1e-4, 1, n)) @ Q.T
    K = (K + K.T) / 2
    outcome = ridge_cg(
        K.dot,
        rng.normal(size=(n, 1)),
        np.array([1e-9]),
        diagonal=K.diagonal(),
        rows=K.__getitem__,
        fit_intercept=False,
        max_rank=1,
        max_iter=3000,
        tol=1e-3,
    )
    assert outcome.converged
    assert outcome.n_iter > 400


@pytest.mark.parametrize("function", [ridge, ridge_loo])
@pytest.mark.parametrize(
    ("K", "error", "message"),
    [
        ([[1.0, np.nan], [np.nan, 1.0]], ValueError, "K contains NaN at row 0, column 1"),
        ([[1.0, 1j], [-1j, 1.0]], ValueError, "Complex data not supported: K"),
        ([["a", "b"], ["b", "a"]], ValueError, "K holds the string 'a'"),
        (None, ValueError, "K has shape"),
        ([], ValueError, "K has shape"),
    ],
)
def test_a_bad_matrix(function, K, error, message):
    with pytest.raises(error, match=message):
        function(K, [1.0, 2.0], 0.1)


def test_a_sparse_matrix_will_do(data):
    _, K, Y = data
    np.testing.assert_array_equal(ridge(sp.csr_array(K), Y), ridge(K, Y))


def test_an_infinite_matrix_names_the_row():
    K = np.eye(4)
    K[1, 2] = K[2, 1] = np.inf
    for mixed in (True, False):
        with pytest.raises(ValueError, match="infinite or NaN in row 2"):
            ridge_cholesky(K.copy(), np.ones((4, 1)), np.ones(1), mixed=mixed)


def test_an_indefinite_matrix_is_not_taken_for_repeated_rows():
    with pytest.raises(NotPositiveDefinite, match="positive semidefinite kernel"):
        ridge(-np.eye(3), np.ones(3), 0.1)

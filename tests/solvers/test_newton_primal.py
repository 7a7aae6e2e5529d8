"""Steps in the features of K: against closed forms, other packages and the other steps, down to tiny α."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, xlogy
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from mercer.kernels import RBF, Linear
from mercer.losses import Huber, JointSquaredMargin, Logistic, Poisson, Softmax, Squared, SquaredMargin
from mercer.solvers import newton as newton_module
from mercer.solvers import newton_primal
from mercer.solvers.held_matrix import low_rank_of
from mercer.solvers.newton import newton
from mercer.solvers.newton_primal import minimise_primal, primal_pays
from mercer.solvers.newton_problem import Problems
from newton_checks import targets

CLASSES = [Logistic(), SquaredMargin(), Softmax(), JointSquaredMargin()]
LOSSES = [*CLASSES, Huber(delta=0.5), Poisson(), Squared()]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
tiny = pytest.mark.parametrize("alpha", [1e-8, 1e-12, 1e-16])


def solve(K, loss, y, alpha, **options):
    low_rank = low_rank_of(K, np.random.RandomState(0))
    alphas = np.atleast_1d(np.asarray(alpha, dtype=float))
    return newton(lambda V: K @ V, loss, y, alphas, low_rank=low_rank, matrix=K, **options)


def posed(loss, y, alpha, w, fit_intercept=True):
    n_outputs = int(y.max()) + 1 if loss.vector else 1
    return Problems(loss, y[:, None], w[:, None], np.array([alpha]), fit_intercept, n_outputs)


@pytest.fixture
def in_features(monkeypatch):
    """Lists whether each call of `newton` took steps in the features."""
    calls = []

    def told(*args):
        calls.append(primal_pays(*args))
        return calls[-1]

    monkeypatch.setattr(newton_module, "primal_pays", told)
    return calls


@tiny
class TestTinyAlphas:
    """On linear kernels of more rows than features: K times −g/(2α) is rounding."""

    def test_squared_errors_have_their_least_squares_solution(self, alpha, rng, in_features):
        X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
        outcome = solve(X @ X.T, Squared(), y, alpha)
        A = np.block([[X, np.ones((50, 1))], [np.sqrt(alpha) * np.eye(3), np.zeros((3, 1))]])
        x, residual, *_ = np.linalg.lstsq(A, np.r_[y, np.zeros(3)], rcond=None)
        assert in_features == [True]
        assert outcome.converged.all()
        np.testing.assert_allclose(outcome.objective, residual, rtol=1e-12)
        np.testing.assert_allclose(outcome.f[:, 0], X @ x[:3] + x[3], rtol=0, atol=1e-11)

    def test_logistic_costs_have_scikit_learns_probabilities(self, alpha, rng, in_features):
        X = rng.normal(size=(80, 3))
        y = targets(Logistic(), X[:, 0] - X[:, 1], rng)
        outcome = solve(X @ X.T, Logistic(), y, alpha)
        theirs = LogisticRegression(C=1 / (2 * alpha), solver="newton-cholesky", tol=1e-12, max_iter=1000)
        assert in_features == [True]
        assert outcome.converged.all()
        found = theirs.fit(X, y).predict_proba(X)[:, 1]
        np.testing.assert_allclose(expit(outcome.f[:, 0]), found, atol=1e-7)

    def test_squared_margins_have_scikit_learns_decisions(self, alpha, rng, in_features):
        X = rng.normal(size=(80, 3))
        y = targets(SquaredMargin(), X[:, 0] - X[:, 1], rng)
        outcome = solve(X @ X.T, SquaredMargin(), y, alpha, fit_intercept=False)
        theirs = LinearSVC(C=1 / (2 * alpha), dual=False, tol=1e-12, max_iter=10000, fit_intercept=False)
        assert in_features == [True]
        assert outcome.converged.all()
        found = theirs.fit(X, y).decision_function(X)
        np.testing.assert_allclose(outcome.f[:, 0], found, atol=1e-6)

    @pytest.mark.parametrize("loss", CLASSES, ids=str)
    def test_features_of_ten_thousands(self, loss, alpha, in_features):
        """P is the one that features of unit size have at α over the scale's square."""
        X, y = load_iris(return_X_y=True)
        y = y if loss.vector else np.where(y == 1, 1.0, -1.0)
        outcome = solve(1e8 * X @ X.T, loss, y, 1e8 * alpha)
        assert in_features == [True]
        assert outcome.converged.all()
        np.testing.assert_allclose(outcome.objective, solve(X @ X.T, loss, y, alpha).objective, rtol=1e-7)

    def test_equal_rows_of_both_labels_have_their_log_odds(self, alpha, rng, in_features):
        groups, ones = rng.normal(size=(4, 2)), np.array([1, 3, 5, 7])
        X = np.repeat(groups, 8, axis=0)
        y = np.where(np.tile(np.arange(8), 4) < np.repeat(ones, 8), 1.0, -1.0)
        outcome = solve(RBF(gamma=1.0)(X), Logistic(), y, alpha)
        assert in_features == [True]
        assert outcome.converged.all()
        part = ones / 8
        np.testing.assert_allclose(outcome.f[::8, 0], np.log(part / (1 - part)), atol=1e-5)
        entropy = -8 * (xlogy(part, part) + xlogy(1 - part, 1 - part)).sum()
        np.testing.assert_allclose(outcome.objective, entropy, rtol=1e-6)

    @every_loss
    def test_figures_are_those_of_the_coefficients(self, loss, alpha, rng):
        X, w = rng.normal(size=(60, 2)), rng.integers(0, 3, size=60).astype(float)
        K, y = X @ X.T, targets(loss, X[:, 0] - X[:, 1], rng)
        outcome = solve(K, loss, y, alpha, weights=w)
        a, b, f = outcome.a[:, 0], outcome.b[0], outcome.f[:, 0]
        assert outcome.converged.all()
        np.testing.assert_allclose(f, K @ a + b, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(a[w == 0], 0)
        objective = w @ loss.value(y, f) + alpha * np.vdot(a, K @ a)
        np.testing.assert_allclose(outcome.objective, objective, rtol=1e-10)


@every_loss
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [1.0, 1e-3])
def test_they_end_where_steps_in_coefficients_do(loss, fit_intercept, alpha, rng, monkeypatch):
    X, w = rng.normal(size=(60, 3)), rng.integers(0, 3, size=60).astype(float)
    K, y = RBF(gamma=0.3)(X), targets(loss, X[:, 0] - X[:, 1], rng)
    monkeypatch.setattr(newton_module, "primal_pays", lambda *_: False)
    other = solve(K, loss, y, alpha, weights=w, fit_intercept=fit_intercept)
    low_rank = low_rank_of(K, np.random.RandomState(0))
    problems, told = posed(loss, y, alpha, w, fit_intercept), []
    found = minimise_primal(problems, K.dot, low_rank, None, 1e-10, 100, lambda *each: told.append(each))
    assert found.converged
    assert told[-1][0] == found.n_iter
    assert max(told[-1][1], found.gradient) <= 1e-10
    np.testing.assert_allclose(found.objective, other.objective[0], rtol=1e-9)
    f = other.f[:, 0] if loss.vector else other.f
    b = found.b - found.b.mean() * (loss.vector and fit_intercept)
    np.testing.assert_allclose(found.h + b, f, atol=1e-5)
    again = minimise_primal(problems, K.dot, low_rank, (found.a, found.b), 1e-8, 100, quiet)
    assert again.n_iter <= 1


def quiet(*_):
    """Told of steps."""


@every_loss
@pytest.mark.parametrize("alpha", [1.0, 1e-4])
def test_steps_go_down_and_the_gap_is_one(loss, alpha, rng):
    X = rng.normal(size=(40, 2))
    K, y = X @ X.T, targets(loss, X[:, 0] - X[:, 1], rng)
    low_rank, problems = low_rank_of(K, np.random.RandomState(0)), posed(loss, y, alpha, np.ones(40))
    least = minimise_primal(problems, K.dot, low_rank, None, 1e-12, 100, quiet).objective
    start, last = (np.zeros((40, problems.n_outputs)), np.zeros(problems.n_outputs)), np.inf
    for _ in range(12):
        found = minimise_primal(problems, K.dot, low_rank, start, 1e-12, 1, quiet)
        rounding = 1e-12 * abs(least)
        assert -rounding <= found.objective - least <= found.gap + rounding
        assert found.objective <= last + rounding
        start, last = (found.a, found.b), found.objective
    assert found.converged


@every_loss
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_products_and_reflections_have_the_same_factor(loss, fit_intercept, rng):
    """That of Σᵢ Sᵢ Sᵢᵀ ⊗ (rᵢ rᵢᵀ) and the ridge, written out."""
    F, f = rng.normal(size=(70, 90)), rng.normal(size=(90, 1, 3 if loss.vector else 1))
    problems = posed(loss, targets(loss, F[0], rng), 0.1, rng.uniform(0.5, 2, size=90), fit_intercept)
    S = problems.curvature(f).matrices()[:, 0]
    rows = np.concatenate([F, np.ones((int(fit_intercept), 90))])
    ridge = rng.uniform(0.5, 1, size=(S.shape[1], len(rows)))
    M = np.einsum("ji,ieq,ifq,ki->ejfk", rows, S, S, rows, optimize=True).reshape(ridge.size, -1)
    M += np.diag(ridge.ravel())
    products = newton_primal._by_products(S, F, ridge, 2)
    for R in (products, newton_primal._by_reflections(S, F, ridge)):
        R = np.triu(R)
        np.testing.assert_allclose(R.T @ R, M, rtol=1e-11, atol=1e-11)


@every_loss
def test_either_factor_leads_to_the_same_minimum(loss, rng, monkeypatch):
    X = rng.normal(size=(60, 3))
    y, low_rank = targets(loss, X[:, 0], rng), low_rank_of(X @ X.T, np.random.RandomState(0))
    args = posed(loss, y, 1e-3, np.ones(60)), (X @ X.T).dot, low_rank, None, 1e-10, 100, quiet
    plain = minimise_primal(*args)
    monkeypatch.setattr(newton_primal, "_by_products", lambda *_: None)
    other = minimise_primal(*args)
    assert plain.converged
    assert other.converged
    np.testing.assert_allclose(plain.objective, other.objective, rtol=1e-13)
    np.testing.assert_allclose(plain.h + plain.b, other.h + other.b, atol=1e-8)


@pytest.mark.parametrize("loss", [Softmax(), JointSquaredMargin()], ids=str)
def test_what_a_starts_outputs_share_is_left_out(loss, rng):
    X = rng.normal(size=(60, 3))
    y = targets(loss, X[:, 0], rng)
    cold = solve(X @ X.T, loss, y, 0.1)
    warm = solve(X @ X.T, loss, y, 0.1, start=(cold.a + rng.normal(size=(60, 1, 1)), cold.b))
    assert warm.converged.all()
    np.testing.assert_allclose(warm.objective, cold.objective, rtol=1e-12)
    np.testing.assert_allclose(warm.a.sum(axis=2), 0, atol=1e-9)


@every_loss
@pytest.mark.parametrize("scale", [1e-160, 1e-80, 1e80, 1e150])
@pytest.mark.parametrize("alpha", [1e-300, 1.0, 1e300])
def test_numbers_near_the_ends_of_the_range(loss, scale, alpha, rng):
    X = rng.normal(size=(20, 2))
    y = targets(loss, X[:, 0], rng)
    outcome = solve(scale * X @ X.T * scale, loss, y, alpha)
    assert np.isfinite(outcome.f).all()
    assert np.isfinite(outcome.objective).all()


def test_no_more_steps_than_are_allowed(rng, monkeypatch):
    X = rng.normal(size=(60, 3))
    monkeypatch.setattr(newton_module, "_from", None)  # steps in coefficients would begin anew
    outcome = solve(X @ X.T, Logistic(), targets(Logistic(), X[:, 0], rng), 1e-12, max_iter=3)
    assert outcome.n_iter[0] == 3
    assert not outcome.converged.any()


def test_several_problems_and_starts(rng, in_features):
    X = rng.normal(size=(40, 2))
    K, Y = X @ X.T, np.where(rng.normal(size=(40, 3)) + X[:, :1] > 0, 1.0, -1.0)
    alphas = np.array([1e-8, 1e-12, 1e-15])
    together = solve(K, Logistic(), Y, alphas)
    for k, alpha in enumerate(alphas):
        alone = solve(K, Logistic(), Y[:, k], alpha)
        np.testing.assert_array_equal(together.f[:, k], alone.f[:, 0])
        assert together.n_iter[k] == alone.n_iter[0]
    for start in (together, [together], (together.a, together.b)):
        again = solve(K, Logistic(), Y, alphas, start=start)
        assert again.converged.all()
        assert (again.n_iter < together.n_iter / 2).all()
        np.testing.assert_allclose(again.f, together.f, atol=1e-6)
    assert all(in_features)


def test_what_they_are_taken_for(rng):
    X, y = rng.normal(size=(60, 2)), np.tile([-1.0, 1.0], 30)

    def takes(K, alpha, small=False, **changes):
        low_rank = replace(low_rank_of(K, np.random.RandomState(0)), **changes)
        return primal_pays(posed(Logistic(), y, alpha, np.ones(60)), low_rank, small, 1e-8)

    low, full = Linear()(X), RBF(gamma=10.0)(X)
    assert takes(low, 1.0)
    assert takes(low, 1e-12)
    assert not takes(low, 1e-12, trace=1e-3)
    assert not takes(np.zeros((60, 60)), 1e-12)
    assert takes(full, 1.0, small=True)
    assert not takes(full, 1.0)
    assert takes(full, 1e-12)


def test_a_kernel_of_many_classes_and_features_is_left_alone(rng):
    X, y = rng.normal(size=(400, 60)), rng.integers(0, 40, size=400)
    low_rank = low_rank_of(Linear()(X), np.random.RandomState(0))
    assert primal_pays(posed(Softmax(), y % 4, 1.0, np.ones(400)), low_rank, True, 1e-8)
    assert not primal_pays(posed(Softmax(), y, 1.0, np.ones(400)), low_rank, True, 1e-8)


@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=str)
@pytest.mark.parametrize("alpha", [1.0, 1e-12])
def test_any_number_of_threads(loss, alpha, rng):
    X = rng.normal(size=(300, 150))
    y, low_rank = targets(loss, X[:, 0], rng), low_rank_of(X @ X.T, np.random.RandomState(0))
    one, two = (
        minimise_primal(posed(loss, y, alpha, np.ones(300)), (X @ X.T).dot, low_rank, None, 1e-8, 5, quiet, n)
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one.a, two.a)

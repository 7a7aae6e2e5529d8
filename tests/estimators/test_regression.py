"""KernelRegressor: each cost against scipy's minimum of the formula, and scikit-learn's conventions."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import PoissonRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import SVR, KernelRegressor, KernelRidge
from mercer.kernels import RBF, Precomputed, Sigmoid
from mercer.losses import EpsilonInsensitive, Huber, Poisson, Quantile, Squared
from mercer.solvers import held_matrix
from mercer.solvers.descent import Diverged

LOSSES = [Squared(), Huber(0.5), Poisson(), EpsilonInsensitive(0.2), Quantile(0.8)]
each = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
smooth = pytest.mark.parametrize("loss", LOSSES[:3], ids=lambda loss: type(loss).__name__)
intercepts = pytest.mark.parametrize("fit_intercept", [True, False])


def targets(loss, X, rng):
    f = np.sin(X[:, 0]) + 0.5 * X[:, 1]
    if isinstance(loss, Poisson):
        return rng.poisson(np.exp(f)).astype(float)
    return f + 0.3 * rng.standard_normal(len(X)) + 1


@pytest.fixture
def rows(rng):
    return rng.standard_normal((50, 2)), rng.standard_normal((20, 2))


def decision(model, X):
    f = model.predict(X)
    return np.log(f) if isinstance(model.loss_, Poisson) else f


@parametrize_with_checks([KernelRegressor(), KernelRegressor("quantile", alpha=0.1)])
@pytest.mark.lenient
@pytest.mark.filterwarnings("default")
def test_scikit_learns_checks_pass_without_exemption(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        KernelRegressor("huber", solver="gd", tol=1e-9),
        KernelRegressor("epsilon_insensitive"),
        KernelRegressor("poisson"),
    ]
)
@pytest.mark.lenient
@pytest.mark.filterwarnings("default")
def test_scikit_learns_checks_pass_for_other_costs(estimator, check):
    check(estimator)


# ---------------------------------------------------------------- against other minimisers


@smooth
@intercepts
@pytest.mark.parametrize("alpha", [0.01, 1.0, 30.0])
def test_smooth_costs_reach_scipys_minimum(loss, fit_intercept, alpha, rows, rng):
    X, _ = rows
    y, weights = targets(loss, X, rng), rng.uniform(0.5, 2.0, size=50)
    K = RBF(gamma=0.7)(X)
    # In v with Ka = L v, where scipy's problem is well conditioned.
    L = np.linalg.cholesky(K + 1e-14 * np.eye(50))

    def cost(w):
        f = L @ w[1:] + w[0] * fit_intercept
        g = weights * loss.derivative(y, f)
        value = weights @ loss.value(y, f) + alpha * w[1:] @ w[1:]
        return value, np.concatenate([[g.sum() * fit_intercept], L.T @ g + 2 * alpha * w[1:]])

    theirs = minimize(cost, np.zeros(51), jac=True, method="BFGS", options={"gtol": 1e-9})
    model = KernelRegressor(loss, alpha, kernel=RBF(gamma=0.7), fit_intercept=fit_intercept)
    model.fit(X, y, weights)
    assert model.converged_
    assert model.objective_ == pytest.approx(theirs.fun, rel=1e-8)
    f = K @ model.dual_coef_ + model.intercept_
    np.testing.assert_allclose(decision(model, X), f, atol=1e-10)
    penalty = alpha * model.dual_coef_ @ K @ model.dual_coef_
    assert model.objective_ == pytest.approx(weights @ loss.value(y, f) + penalty, rel=1e-10)
    assert -1e-12 <= model.duality_gap_ <= 1e-8 * model.objective_
    assert model.gradient_norm_ <= 1e-8


@pytest.mark.parametrize("name", ["squared", "huber", "epsilon_insensitive", "quantile", "poisson"])
def test_names_stand_for_costs(name, rows, rng):
    X, Z = rows
    costs = [Squared(), Huber(), EpsilonInsensitive(), Quantile(), Poisson()]
    loss = {"squared": 0, "huber": 1, "epsilon_insensitive": 2, "quantile": 3, "poisson": 4}[name]
    y = targets(costs[loss], X, rng)
    model = KernelRegressor(name).fit(X, y)
    assert model.loss_ == costs[loss]
    np.testing.assert_array_equal(model.predict(Z), KernelRegressor(costs[loss]).fit(X, y).predict(Z))


@intercepts
@pytest.mark.parametrize("loss", [Squared(), Huber(1e6)], ids=repr)
def test_squared_and_a_wide_huber_are_ridge(loss, fit_intercept, rows, rng):
    X, Z = rows
    y = targets(loss, X, rng)
    ridge = KernelRidge(0.3, kernel="rbf", gamma="scale", fit_intercept=fit_intercept).fit(X, y)
    model = KernelRegressor(loss, 0.3, fit_intercept=fit_intercept).fit(X, y)
    np.testing.assert_allclose(model.predict(Z), ridge.predict(Z), atol=1e-7)
    np.testing.assert_allclose(model.dual_coef_, ridge.dual_coef_, atol=1e-6)


def test_epsilon_insensitive_is_svr(rows, rng):
    X, Z = rows
    y = targets(Squared(), X, rng)
    svr = SVR(kernel="rbf", gamma="scale", C=1 / (2 * 0.05), epsilon=0.2, tol=1e-10).fit(X, y)
    model = KernelRegressor(EpsilonInsensitive(0.2), 0.05).fit(X, y)
    np.testing.assert_allclose(model.predict(Z), svr.predict(Z), atol=1e-7)
    assert model.objective_ == pytest.approx(2 * 0.05 * svr.primal_objective_[0], rel=1e-8)


def test_poisson_with_a_linear_kernel_is_scikit_learns(rows, rng):
    X, Z = rows
    y = rng.poisson(np.exp(X[:, 0]))
    # Theirs is the mean of half of the deviance plus alpha/2 ‖w‖².
    theirs = PoissonRegressor(alpha=2 * 0.3 / 50, solver="newton-cholesky", tol=1e-12).fit(X, y)
    model = KernelRegressor("poisson", 0.3, kernel="linear").fit(X, y)
    np.testing.assert_allclose(model.predict(Z), theirs.predict(Z), rtol=1e-6)
    assert np.all(model.predict(Z) > 0)


@pytest.mark.parametrize("times", [1e3, 1e6, 1e12])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_poisson_takes_counts_of_any_size(times, kernel, rows, rng):
    """Counts, and with them alpha, that are so many times larger give means that are so many times larger."""
    X, Z = rows
    y = 1.0 + rng.poisson(np.exp(X[:, 0]))
    few = KernelRegressor("poisson", 0.3, kernel=kernel, tol=1e-10).fit(X, y)
    many = KernelRegressor("poisson", 0.3 * times, kernel=kernel, tol=1e-10).fit(X, y * times)
    np.testing.assert_allclose(many.predict(Z), few.predict(Z) * times, rtol=1e-6)
    assert KernelRegressor("poisson", 1e-6 * times, kernel=kernel).fit(X, y * times).converged_


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_the_share_of_targets_below_a_quantile(level, alpha, rng):
    """Of n targets at most τn lie below and at most (1 − τ)n above, as 0 is a subgradient in b."""
    X = rng.standard_normal((200, 1))
    y = X[:, 0] + np.exp(0.5 * X[:, 0]) * rng.standard_normal(200)
    model = KernelRegressor(Quantile(level), alpha).fit(X, y)
    r = y - model.predict(X)
    assert np.mean(r < -1e-7) <= level + 1e-12
    assert np.mean(r > 1e-7) <= 1 - level + 1e-12


def test_quantiles_do_what_their_name_says_on_new_rows(rng):
    X = rng.uniform(-2, 2, size=(1500, 1))
    y = np.sin(2 * X[:, 0]) + (0.2 + 0.2 * np.abs(X[:, 0])) * rng.standard_normal(1500)
    model = KernelRegressor(Quantile(0.9), 0.1).fit(X[:700], y[:700])
    assert np.mean(y[700:] <= model.predict(X[700:])) == pytest.approx(0.9, abs=0.03)


@smooth
def test_descent_comes_to_newtons_minimum(loss, rows, rng):
    X, Z = rows
    y = targets(loss, X, rng)
    newton = KernelRegressor(loss, 0.5).fit(X, y)
    descent = KernelRegressor(loss, 0.5, solver="gd", tol=1e-9).fit(X, y)
    assert (newton.solver_used_, descent.solver_used_) == ("newton", "gd")
    assert descent.objective_ == pytest.approx(newton.objective_, rel=1e-12)
    np.testing.assert_allclose(descent.predict(Z), newton.predict(Z), atol=1e-6)
    assert not hasattr(newton, "history_")
    assert not hasattr(clone(descent).fit(X, y).set_params(solver="auto").fit(X, y), "history_")
    assert len(descent.history_["objective"]) == descent.n_iter_ + 1
    assert np.isnan(descent.duality_gap_)
    assert descent.gradient_norm_ <= 1e-9
    if not isinstance(loss, Poisson):
        options = {"solver": "sgd", "tol": 0.1, "random_state": 0}
        batches = KernelRegressor(loss, 0.5, **options).fit(X, y)
        assert batches.gradient_norm_ <= 0.1  # over that of the best constant
        left = batches.history_["objective"] - newton.objective_
        assert 0 < left[-1] < 0.1 * left[0]
        again = KernelRegressor(loss, 0.5, **options).fit(X, y)
        np.testing.assert_array_equal(batches.dual_coef_, again.dual_coef_)


@pytest.mark.parametrize(("seed", "alpha"), [(22, 100.0), (1, 1.0), (0, 100.0)])
def test_descent_on_counts_comes_to_newtons_minimum(seed, alpha):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 3))
    y = rng.poisson(np.exp(np.sin(2 * X[:, 0]) + 1)) * (1.0 if seed else 1e4)
    found = KernelRegressor("poisson", alpha=alpha, solver="gd").fit(X, y)
    assert found.converged_
    minimum = KernelRegressor("poisson", alpha=alpha).fit(X, y).objective_
    assert found.objective_ == pytest.approx(minimum, rel=1e-4)


def test_options_of_descent_arrive(rows, rng):
    X, _ = rows
    y = targets(Squared(), X, rng)
    model = KernelRegressor(solver="gd", step=1e-3, momentum=0.5, decay=0.1, max_iter=5, tol=1e-12)
    with pytest.warns(ConvergenceWarning, match="KernelRegressor stopped"):
        model.fit(X, y)
    np.testing.assert_allclose(model.history_["step"], 1e-3 / (1 + 0.1 * np.arange(5)))
    model = KernelRegressor(solver="sgd", step=1e-4, batch_size=10, decay=0.1, max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    np.testing.assert_allclose(model.history_["step"], 1e-4 / (1 + 0.1 * np.array([4, 9])))
    with pytest.raises(Diverged, match="take a step below 10"):
        KernelRegressor(solver="gd", step=10.0).fit(X, y)


# ---------------------------------------------------------------- approximation, and n beyond memory


@each
@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_fewer_terms_are_the_problem_on_their_features(loss, kernel, rows, rng):
    """As the linear kernel on K_nm K_mm^(-1/2), worked out here from the rows that were drawn."""
    X, Z = rows
    y = targets(loss, X, rng)
    expression = RBF(gamma=0.7)
    given = (expression(X), expression(Z, X)) if kernel == "precomputed" else (X, Z)
    model = KernelRegressor(
        loss, 0.1, kernel=kernel if kernel == "precomputed" else expression, approximation=12, random_state=3
    ).fit(given[0], y)
    if kernel == "precomputed":
        centres = np.flatnonzero(model.dual_coef_)
        assert len(centres) == 12
        X_m = X[centres]
    else:
        assert model.X_fit_.shape == (12, 2)
        X_m = model.X_fit_
    values, vectors = np.linalg.eigh(expression(X_m))
    root = vectors / np.sqrt(values)
    features, new = expression(X, X_m) @ root, expression(Z, X_m) @ root
    plain = KernelRegressor(loss, 0.1, kernel="linear").fit(features, y)
    np.testing.assert_allclose(model.predict(given[1]), plain.predict(new), rtol=1e-6, atol=1e-6)
    assert model.objective_ == pytest.approx(plain.objective_, rel=1e-8)


@each
def test_as_many_terms_as_rows_are_all(loss, rows, rng):
    X, Z = rows
    y = targets(loss, X, rng)
    exact = KernelRegressor(loss).fit(X, y)
    for m in (50, 10**6):
        model = KernelRegressor(loss, approximation=m).fit(X, y)
        np.testing.assert_allclose(model.predict(Z), exact.predict(Z), rtol=1e-12)


@each
def test_repeated_centres_are_harmless(loss, rng):
    X = np.repeat(rng.standard_normal((5, 2)), 10, axis=0)
    y = targets(loss, X, rng)
    model = KernelRegressor(loss, 0.1, kernel=RBF(), approximation=30, random_state=0).fit(X, y)
    exact = KernelRegressor(loss, 0.1, kernel=RBF()).fit(X, y)
    np.testing.assert_allclose(model.predict(X), exact.predict(X), rtol=1e-5)


@smooth
def test_products_instead_of_the_matrix(loss, rows, rng):
    X, Z = rows
    y = targets(loss, X, rng)
    exact = KernelRegressor(loss).fit(X, y)
    lazy = KernelRegressor(loss, memory_budget=1.0).fit(X, y)
    np.testing.assert_allclose(lazy.predict(Z), exact.predict(Z), rtol=1e-7)


def test_many_rows_by_single_precision_products(rng, monkeypatch):
    monkeypatch.setattr(held_matrix, "_SINGLE_FROM", 10)
    X = rng.standard_normal((300, 2))
    y = targets(Huber(), X, rng)
    single = KernelRegressor("huber", 0.01).fit(X, y)
    monkeypatch.undo()
    double = KernelRegressor("huber", 0.01).fit(X, y)
    assert single.converged_
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-8)


# ---------------------------------------------------------------- weights


@each
def test_weights_are_repetitions(loss, rows, rng):
    X, Z = rows
    y = targets(loss, X, rng)
    weights = rng.integers(0, 3, size=50).astype(float)
    weights[7] = -1.0
    y[weights <= 0] = 1e6
    if isinstance(loss, Poisson):
        y[7] = -5.0  # a row that is not there
    repeat = np.repeat(np.arange(50), np.maximum(weights, 0).astype(int))
    model = KernelRegressor(loss, 0.2).fit(X, y, weights)
    plain = KernelRegressor(loss, 0.2).fit(X[repeat], y[repeat])
    np.testing.assert_allclose(model.predict(Z), plain.predict(Z), rtol=1e-6, atol=1e-7)
    assert model.objective_ == pytest.approx(plain.objective_, rel=1e-8)
    assert len(model.dual_coef_) == np.count_nonzero(weights > 0)
    assert model.kernel_ == plain.kernel_ or np.isclose(model.kernel_.gamma, plain.kernel_.gamma, rtol=1e-12)


@each
def test_a_precomputed_matrix_keeps_rows_without_weight(loss, rows, rng):
    X, Z = rows
    y, kernel = targets(loss, X, rng), RBF(gamma=0.7)
    weights = np.where(np.arange(50) % 5 == 0, 0.0, 1.5)
    model = KernelRegressor(loss, 0.2, kernel=kernel).fit(X, y, weights)
    for given, scale in [("precomputed", 1.0), (Precomputed(), 1.0), (2.0 * Precomputed(), 0.5)]:
        matrix = KernelRegressor(loss, 0.2, kernel=given).fit(scale * kernel(X), y, weights)
        np.testing.assert_allclose(
            matrix.predict(scale * kernel(Z, X)), model.predict(Z), rtol=1e-6, atol=1e-7
        )
        assert matrix.dual_coef_.shape == (50,)
        np.testing.assert_array_equal(matrix.dual_coef_[::5], 0.0)


# ---------------------------------------------------------------- hard problems


@each
@pytest.mark.parametrize("alpha", [1e-8, 1e10])
def test_extreme_penalties(loss, alpha, rng):
    X = rng.standard_normal((25, 2))
    y = targets(loss, X, rng)
    with warnings.catch_warnings():
        if alpha < 1:  # at a condition of 1e9 rounding decides whether tol is reached: one in forty warns
            warnings.simplefilter("ignore", ConvergenceWarning)
        model = KernelRegressor(loss, alpha, kernel=RBF(gamma=0.7)).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert model.converged_ or model.duality_gap_ <= 1e-6 * model.objective_
    if alpha < 1 and not isinstance(loss, Poisson):
        # The fit through all targets costs this much, and what was found is that near the minimum.
        centred = y - y.mean()
        through_all = alpha * centred @ np.linalg.solve(RBF(gamma=0.7)(X), centred)
        assert model.objective_ <= through_all + model.duality_gap_
    if alpha > 1:
        np.testing.assert_allclose(model.predict(X), model.predict(X)[0], rtol=1e-6)
        if isinstance(loss, Squared | Poisson):
            np.testing.assert_allclose(model.predict(X), y.mean(), rtol=1e-6)


@each
@pytest.mark.parametrize("alpha", [1e-308, 1e-320, 10**20])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_penalties_at_the_ends_of_the_range(loss, alpha, rng):
    X = rng.standard_normal((30, 2))
    model = KernelRegressor(loss, alpha, kernel=RBF(gamma=0.7)).fit(X, targets(loss, X, rng))
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_costs_beyond_floating_point_have_not_converged(loss, rng):
    X = rng.standard_normal((8, 2))
    y = 1e300 * rng.random(8)
    with pytest.warns(ConvergenceWarning, match="scale"):
        assert not KernelRegressor(loss).fit(X, y).converged_


@each
def test_constant_targets_duplicates_one_row_and_one_feature(loss, rng):
    X = np.tile(rng.standard_normal((6, 1)), (2, 1))
    model = KernelRegressor(loss).fit(X, np.full(12, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0, rtol=1e-6)
    y = targets(loss, np.repeat(X, 2, axis=1), rng)
    model = KernelRegressor(loss, 0.01).fit(X, y)
    assert model.converged_
    np.testing.assert_allclose(model.predict(X[:6]), model.predict(X[6:]), rtol=1e-10)
    model = KernelRegressor(loss).fit([[1.0]], [2.0])
    np.testing.assert_allclose(model.predict([[1.0]]), 2.0, rtol=1e-6)


@each
def test_a_kernel_that_is_not_positive_semidefinite_is_named(loss, rng):
    X = rng.standard_normal((60, 4))
    y = targets(loss, X, rng)
    for solver in ("auto", "gd") if loss.smooth else ("auto",):
        model = KernelRegressor(loss, alpha=0.01, kernel=Sigmoid(gamma=1.0, coef0=-1.0), solver=solver)
        with pytest.warns(ConvergenceWarning, match="not positive semidefinite.*check_psd"):
            model.fit(X, y)
        assert not model.converged_


@each
def test_a_kernel_that_is_but_for_rounding_is_not(loss, rng):
    X = rng.standard_normal((100, 2))
    y, K = targets(loss, X, rng), RBF(gamma=0.3)(X)
    exact = KernelRegressor(loss, kernel="precomputed").fit(K, y)
    for rounded in (K.astype(np.float32), np.round(K, 9)):
        model = KernelRegressor(loss, kernel="precomputed").fit(rounded, y)
        assert model.converged_
        assert model.objective_ == pytest.approx(exact.objective_, rel=1e-5)


def test_counts_that_are_all_zero():
    X = np.arange(4.0)[:, None]
    with pytest.raises(ValueError, match="all targets are 0, so that the intercept has no least value"):
        KernelRegressor("poisson").fit(X, np.zeros(4))
    model = KernelRegressor("poisson", fit_intercept=False).fit(X, np.zeros(4))
    assert np.all((model.predict(X) > 0) & (model.predict(X) < 1))


def test_a_mean_beyond_floating_point_is_infinite():
    model = KernelRegressor("poisson", kernel="linear").fit([[0.0], [1.0], [2.0]], [1, 3, 8])
    assert model.predict([[1e6]]) == np.inf


@pytest.mark.parametrize("loss", ["squared", "huber", "epsilon_insensitive", "quantile"])
@pytest.mark.parametrize("alpha", [1.0, 1e-3])
@pytest.mark.parametrize("shift", [1e6, -1e9])
def test_targets_far_from_zero_are_no_harder(loss, alpha, shift, rng):
    """A common shift is the intercept's; it is exact here, as targets are multiples of 2⁻¹⁰."""
    X = rng.standard_normal((60, 3))
    y = np.round(1024 * np.sin(X[:, 0])) / 1024
    near = KernelRegressor(loss, alpha).fit(X, y)
    far = KernelRegressor(loss, alpha).fit(X, y + shift)
    assert near.converged_
    assert far.converged_
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-6)
    np.testing.assert_allclose(far.predict(X) - shift, near.predict(X), atol=2e-4)


@pytest.mark.parametrize("heavy", [1e6, 1e8, 1e10])
def test_a_heavy_row_gives_no_false_gap(heavy, rng):
    weights = np.array([1.0, heavy, 1.0])
    X, y = np.arange(3.0)[:, None], np.array([1.1, 2.3, 3.7])
    model = KernelRegressor("squared", 1.0, kernel=RBF(0.5)).fit(X, y, weights)
    assert model.converged_
    # The heavy row is a constraint: of (a, b) with f₂ = y₂, least squares of the others.
    K = RBF(0.5)(X)
    A = np.block([[K @ np.diag(weights) @ K + K, (K @ weights)[:, None]], [weights @ K, weights.sum()]])
    solution = np.linalg.lstsq(A, np.append(K @ (weights * y), weights @ y), rcond=1e-15)[0]
    f = K @ solution[:3] + solution[3]
    assert model.objective_ == pytest.approx(
        weights @ np.square(f - y) + solution[:3] @ K @ solution[:3], rel=1e-5
    )


@pytest.mark.parametrize("alpha", [1.0, 1e6, 1e12])
def test_descent_at_a_large_alpha_has_the_best_constant(alpha, rng):
    X = rng.standard_normal((40, 3))
    y = np.sin(2 * X[:, 0]) + 3
    model = KernelRegressor("squared", alpha, kernel=RBF(0.5), solver="gd").fit(X, y)
    assert model.converged_
    if alpha > 1:
        assert model.objective_ == pytest.approx(np.square(y - y.mean()).sum(), rel=1e-4)

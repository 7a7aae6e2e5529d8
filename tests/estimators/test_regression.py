"""KernelRegressor: each cost against scipy's minimum of the formula, and scikit-learn's conventions."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import PoissonRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import SVR, KernelRidge
from mercer.estimators import _cost_problem
from mercer.estimators.regression import KernelRegressor
from mercer.kernels import RBF, Laplacian, Linear, Polynomial, Precomputed, Spectrum
from mercer.losses import EpsilonInsensitive, Huber, Poisson, Quantile, Squared
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
        options = {"solver": "sgd", "tol": 0.05, "random_state": 0}
        batches = KernelRegressor(loss, 0.5, **options).fit(X, y)
        assert batches.gradient_norm_ <= 0.05
        left = batches.history_["objective"] - newton.objective_
        assert 0 < left[-1] < 0.1 * left[0]
        again = KernelRegressor(loss, 0.5, **options).fit(X, y)
        np.testing.assert_array_equal(batches.dual_coef_, again.dual_coef_)


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
    monkeypatch.setattr(_cost_problem, "_SINGLE_FROM", 10)
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
    model = KernelRegressor(loss, alpha, kernel=RBF(gamma=0.7)).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    if alpha > 1:
        np.testing.assert_allclose(model.predict(X), model.predict(X)[0], rtol=1e-6)
        if isinstance(loss, Squared | Poisson):
            np.testing.assert_allclose(model.predict(X), y.mean(), rtol=1e-6)


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


def test_counts_that_are_all_zero():
    X = np.arange(4.0)[:, None]
    with pytest.raises(ValueError, match="all targets are 0, so that the intercept has no least value"):
        KernelRegressor("poisson").fit(X, np.zeros(4))
    model = KernelRegressor("poisson", fit_intercept=False).fit(X, np.zeros(4))
    assert np.all((model.predict(X) > 0) & (model.predict(X) < 1))


def test_a_mean_beyond_floating_point_is_infinite():
    model = KernelRegressor("poisson", kernel="linear").fit([[0.0], [1.0], [2.0]], [1, 3, 8])
    assert model.predict([[1e6]]) == np.inf


# ---------------------------------------------------------------- forms of input


@each
def test_forms_of_one_matrix(loss, rows, rng, tmp_path):
    X, Z = rows
    X, Z = np.where(X > 0, X, 0), np.where(Z > 0, Z, 0)
    y = targets(loss, X, rng)
    np.save(tmp_path / "X.npy", X)
    read_only = X.copy()
    read_only.flags.writeable = False
    forms = [np.asfortranarray(X), read_only, np.load(tmp_path / "X.npy", mmap_mode="r"), X.tolist()]
    forms += [sp.csr_array(X), sp.csc_matrix(X), np.repeat(X, 2, axis=0)[::2]]
    expected = KernelRegressor(loss).fit(X, y).predict(Z)
    for form in forms:
        model = KernelRegressor(loss).fit(form, y)
        np.testing.assert_allclose(model.predict(Z), expected, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(model.predict(sp.csr_array(Z)), expected, rtol=1e-6, atol=1e-8)


@each
@pytest.mark.parametrize("approximation", [None, 20])
def test_float32_in_float32_out(loss, approximation, rows, rng):
    X, Z = rows
    y = targets(loss, X, rng)
    options = {"alpha": 0.5, "approximation": approximation, "random_state": 0}
    exact = KernelRegressor(loss, **options).fit(X, y).predict(Z)
    model = KernelRegressor(loss, **options).fit(X.astype(np.float32), y.astype(np.float32))
    single = model.predict(Z.astype(np.float32))
    assert single.dtype == model.dual_coef_.dtype == model.intercept_.dtype == np.float32
    # Rounding of X, and of dual coefficients that cancel.
    np.testing.assert_allclose(single, exact, rtol=2e-3, atol=2e-3)


def test_a_data_frame_keeps_its_names(rows, rng):
    X, Z = rows
    y = targets(Squared(), X, rng)
    model = KernelRegressor().fit(pd.DataFrame(X, columns=["a", "b"]), pd.Series(y))
    assert list(model.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(pd.DataFrame(Z, columns=["b", "a"]))
    assert not hasattr(model.fit(X, y), "feature_names_in_")


@each
def test_kernels_in_every_form(loss, rows, rng):
    X, Z = rows
    y = targets(loss, X, rng)
    pairs = [
        ({"kernel": "linear"}, Linear()),
        ({"kernel": "poly", "gamma": 0.5, "coef0": 1.0, "degree": 2}, Polynomial(2, gamma=0.5)),
        ({"kernel": lambda x, z, c: c * x @ z, "kernel_params": {"c": 2.0}}, 2.0 * Linear()),
        ({"kernel": "laplacian", "gamma": 0.3}, Laplacian(0.3)),
    ]
    for params, kernel in pairs:
        named = KernelRegressor(loss, **params).fit(X, y)
        np.testing.assert_allclose(
            named.predict(Z), KernelRegressor(loss, kernel=kernel).fit(X, y).predict(Z), rtol=1e-5, atol=1e-6
        )


@each
def test_samples_that_are_no_rows(loss):
    words = ["banana", "ananas", "bandana", "cabana", "savanna", "canada", "panama", "nanny"]
    kernel, y = Spectrum(2).normalize(), np.arange(8.0)
    model = KernelRegressor(loss, 0.1, kernel=kernel).fit(words, y)
    given = KernelRegressor(loss, 0.1, kernel="precomputed").fit(kernel(words), y)
    np.testing.assert_allclose(
        model.predict(["banjo"]), given.predict(kernel(["banjo"], words)), rtol=1e-6, atol=1e-7
    )


@each
def test_the_callers_arrays_are_neither_kept_nor_changed(loss, rows, rng):
    X, Z = rows
    for kernel in ("rbf", "precomputed"):
        given = [RBF()(X) if kernel == "precomputed" else X.copy(), targets(loss, X, rng), np.ones(50)]
        query = RBF()(Z, X) if kernel == "precomputed" else Z
        given[2][3] = 0.0
        before = copy.deepcopy(given)
        model = KernelRegressor(loss, kernel=kernel).fit(*given)
        for a, b in zip(given, before, strict=True):
            np.testing.assert_array_equal(a, b)
        expected = model.predict(query)
        for a in given:
            a[:] = 999
        np.testing.assert_array_equal(model.predict(query), expected)


@each
@pytest.mark.parametrize("approximation", [None, 40])
def test_results_do_not_depend_on_threads(loss, approximation, rng):
    X = rng.standard_normal((700, 3))
    y = targets(loss, X, rng)
    found = [
        KernelRegressor(loss, 0.1, approximation=approximation, random_state=0, n_jobs=k).fit(X, y)
        for k in (1, 2, 3)
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].dual_coef_, other.dual_coef_)
        assert found[0].intercept_ == other.intercept_


# ---------------------------------------------------------------- conventions


@each
def test_pickles_and_clones(loss, rows, rng):
    X, Z = rows
    model = KernelRegressor(loss, kernel=RBF(gamma=0.7)).fit(X, targets(loss, X, rng))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(Z), model.predict(Z))
    assert clone(model).get_params()["loss"] == loss


def test_grids_over_costs_and_kernels(rows, rng):
    X, _ = rows
    y = targets(Squared(), X, rng)
    grid = {"loss": [Huber(0.5), "squared"], "kernel__gamma": [0.1, 1.0], "alpha": [0.1]}
    search = GridSearchCV(KernelRegressor(kernel=RBF()), grid, cv=3).fit(X, y)
    assert search.best_estimator_.kernel_.gamma == search.best_params_["kernel__gamma"]


@each
def test_a_warm_start_goes_on(loss, rows, rng):
    X, Z = rows
    y = targets(loss, X, rng)
    model = KernelRegressor(loss, 0.1, warm_start=True).fit(X, y)
    first = model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ <= max(first // 2, 1)
    model.set_params(alpha=0.3).fit(X, y)
    cold = KernelRegressor(loss, 0.3).fit(X, y)
    np.testing.assert_allclose(model.predict(Z), cold.predict(Z), rtol=1e-6, atol=1e-7)
    model.fit(X[:30], y[:30])  # another number of rows: from anew
    assert len(model.dual_coef_) == 30


def test_a_fit_that_fails_leaves_the_last_one(rows, rng, monkeypatch):
    X, Z = rows
    y = targets(Squared(), X, rng)
    model = KernelRegressor().fit(X, y)
    before, expected = dict(vars(model)), model.predict(Z)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((3, 2), np.nan), [1.0, 2.0, 3.0])

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(_cost_problem, "newton", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:10], y[:10])
    assert vars(model) == before
    np.testing.assert_array_equal(model.predict(Z), expected)


@pytest.mark.parametrize(
    ("params", "reached"),
    [
        ({"loss": "poisson", "max_iter": 1}, r"after \d+ iterations, short of tol=1.0e-08"),
        ({"loss": "quantile", "max_iter": 3}, "short of tol=1.0e-10"),
        ({"solver": "gd", "max_iter": 2}, "after 2 iterations, short of tol=1.0e-04"),
        ({"solver": "sgd", "max_iter": 1, "tol": 1e-3}, "after 1 iterations, short of tol=1.0e-03"),
    ],
)
def test_short_of_tolerance_it_warns(params, reached, rows, rng):
    X, _ = rows
    y = targets(Poisson(), X, rng)
    with pytest.warns(ConvergenceWarning, match=f"KernelRegressor stopped .*{reached}") as caught:
        model = KernelRegressor(alpha=1e-3, random_state=0, **params).fit(X, y)
    assert caught[0].filename == __file__
    assert not model.converged_


def test_a_progress_bar(rows, rng, capfd):
    X, _ = rows
    KernelRegressor("poisson", verbose=True).fit(X, targets(Poisson(), X, rng))
    assert "KernelRegressor" in "".join(capfd.readouterr())


def test_tags():
    tags = get_tags(KernelRegressor("poisson"))
    assert tags.target_tags.positive_only
    assert tags.input_tags.sparse
    tags = get_tags(KernelRegressor(kernel="precomputed"))
    assert tags.input_tags.pairwise
    assert not tags.target_tags.positive_only


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"loss": "hubert"}, ValueError, "loss='hubert' is unknown; did you mean 'huber'"),
        ({"loss": 3}, TypeError, "loss must be one of 'squared', .* got 3"),
        ({"loss": Huber}, TypeError, "loss must be one of"),
        ({"alpha": 0}, ValueError, "alpha must be larger than 0, got 0"),
        ({"alpha": np.inf}, ValueError, "alpha must be finite, got inf"),
        ({"alpha": "1"}, TypeError, "alpha must be a number, got '1'"),
        ({"solver": "newtonn"}, ValueError, "solver='newtonn' is unknown; did you mean 'newton'"),
        ({"solver": "smo"}, ValueError, r"solver='smo': Squared\(\) is smooth, .* take 'newton'"),
        ({"loss": "quantile", "solver": "newton"}, ValueError, r"Quantile\(level=0.5\) has kinks, .* 'smo'"),
        ({"loss": "quantile", "solver": "gd"}, ValueError, "has kinks, .* give step and decay"),
        ({"loss": "poisson", "solver": "sgd"}, ValueError, "has no largest curvature .* give step"),
        ({"approximation": 0}, ValueError, "approximation must be at least 1, got 0"),
        ({"approximation": 2.5}, TypeError, "approximation must be an integer or None"),
        ({"tol": 0}, ValueError, "tol must be larger than 0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"step": -1}, ValueError, "step must be larger than 0"),
        ({"momentum": -1}, ValueError, "momentum must be at least 0"),
        ({"solver": "gd", "momentum": 1.0}, ValueError, "momentum must be at least 0 and below 1"),
        ({"solver": "sgd", "batch_size": 9}, ValueError, "batch_size=9 is more than the 4 samples"),
        ({"memory_budget": 0}, ValueError, "memory_budget must be larger than 0"),
        ({"fit_intercept": "no"}, TypeError, "fit_intercept must be True or False"),
        ({"warm_start": 2}, TypeError, "warm_start must be True or False"),
        ({"n_jobs": 0}, ValueError, "threads .n_jobs, n_threads. is 0"),
        ({"kernel": "rfb"}, ValueError, "'rbf'"),
        ({"kernel": RBF}, TypeError, r"use RBF\(…\), an instance"),
    ],
)
def test_bad_parameters(params, error, match):
    with pytest.raises(error, match=match):
        KernelRegressor(**params).fit(np.arange(8.0).reshape(4, 2), [1.0, 2.0, 3.0, 5.0])


def test_targets_that_are_no_counts():
    X = np.arange(3.0)[:, None]
    with pytest.raises(ValueError, match=r"Poisson\(\) takes numbers of at least 0, but y\[1\] is -1"):
        KernelRegressor("poisson").fit(X, [1.0, -1.0, 2.0])


@each
def test_bad_samples_and_predict(loss, rows):
    X, _ = rows
    with pytest.raises(ValueError, match="X has 50 rows, y has 2"):
        KernelRegressor(loss).fit(X, [1.0, 2.0])
    with pytest.raises(ValueError, match="requires y to be passed"):
        KernelRegressor(loss).fit(X, None)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        KernelRegressor(loss).predict(X)
    model = KernelRegressor(loss).fit(X, np.arange(50.0))
    with pytest.raises(ValueError, match="X has 1 features, but KernelRegressor is expecting 2"):
        model.predict(X[:, :1])


@each
def test_a_kernel_that_overflows_names_the_row(loss):
    X = np.array([[1.0], [1e200], [2.0]])
    for approximation in (None, 2):
        with pytest.raises(ValueError, match="infinite or NaN in row"):
            KernelRegressor(loss, kernel=Linear(), approximation=approximation, random_state=0).fit(
                X, [0.0, 1.0, 2.0]
            )
    with pytest.raises(ValueError, match="the variance of X, from which gamma='scale' comes"):
        KernelRegressor(loss).fit(X, [0.0, 1.0, 2.0])

"""KernelRegressor: the forms that samples come in, scikit-learn's conventions, and bad input."""

import copy
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils import get_tags

from mercer import KernelLogisticRegression, KernelRegressor, KernelRidge
from mercer.estimators import _cost_problem
from mercer.kernels import RBF, Laplacian, Linear, Polynomial, Spectrum
from mercer.losses import EpsilonInsensitive, Huber, Poisson, Quantile, Squared

LOSSES = [Squared(), Huber(0.5), Poisson(), EpsilonInsensitive(0.2), Quantile(0.8)]
each = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


def targets(loss, X, rng):
    f = np.sin(X[:, 0]) + 0.5 * X[:, 1]
    if isinstance(loss, Poisson):
        return rng.poisson(np.exp(f)).astype(float)
    return f + 0.3 * rng.standard_normal(len(X)) + 1


@pytest.fixture
def rows(rng):
    return rng.standard_normal((50, 2)), rng.standard_normal((20, 2))


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


@pytest.mark.parametrize("kernel", ["poly", "precomputed"])
@pytest.mark.parametrize("estimator", [KernelRidge, KernelRegressor, KernelLogisticRegression])
def test_float32_rows_whose_terms_cancel(estimator, kernel, rng):
    # Terms are some thousand times what they add up to, of which float32 would leave half.
    rows = rng.standard_normal((90, 3)).astype(np.float32)
    if kernel == "precomputed":
        rows = rows.round()  # for a matrix without rounding
        rows = ((1 + rows @ rows.T) ** 3)[:, :60]
    X, Z, y = rows[:60], rows[60:], np.sin(2 * rows[:60, 0])
    y = y > 0 if estimator is KernelLogisticRegression else y
    model = estimator(alpha=1e-5, kernel=kernel, gamma=1.0, coef0=1.0).fit(X.astype(np.float64), y)
    say = "decision_function" if estimator is KernelLogisticRegression else "predict"
    expected = getattr(model, say)(Z.astype(np.float64))
    single = model.fit(X, y)
    assert single.dual_coef_.dtype == np.float32
    for queries in (Z, Z.astype(np.float64)):
        got = getattr(copy.deepcopy(single), say)(queries)
        assert got.dtype == queries.dtype
        np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


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


def test_a_warm_start_that_leads_nowhere_is_left():
    """Where Newton's steps from the last solution are stuck at kinks, those from 0 are taken."""
    rng = np.random.default_rng(1)
    X, y = 10 * rng.standard_normal((20, 2)), rng.standard_normal(20)
    model = KernelRegressor(Huber(0.05), 1e-6, kernel="linear", warm_start=True).fit(X, y)
    model.set_params(alpha=0.1).fit(X, y)
    assert model.converged_
    cold = KernelRegressor(Huber(0.05), 0.1, kernel="linear").fit(X, y)
    assert model.objective_ == pytest.approx(cold.objective_, rel=1e-9)


@pytest.mark.parametrize("loss", ["squared", Huber(0.05), Quantile(0.7)])
def test_a_warm_start_without_the_intercept_of_the_last_fit(loss, rng):
    X = rng.standard_normal((20, 2))
    y = 5.0 + X[:, 0]
    model = KernelRegressor(loss, 1e-2, warm_start=True).fit(X, y).set_params(fit_intercept=False).fit(X, y)
    cold = KernelRegressor(loss, 1e-2, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.predict(X), cold.predict(X), rtol=1e-5)
    assert model.objective_ == pytest.approx(cold.objective_, rel=1e-6)


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


@pytest.mark.parametrize(
    ("loss", "shown"), [("poisson", r"KernelRegressor: .*, gradient "), ("quantile", "1/1 .*, gap ")]
)
def test_a_progress_bar(loss, shown, rows, rng, capfd):
    X, _ = rows
    KernelRegressor(loss, verbose=True).fit(X, targets(Poisson(), X, rng))
    assert re.search(shown, "".join(capfd.readouterr()))


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
        ({"step": "back"}, TypeError, "step must be a number or 'backtracking' or None, got 'back'"),
        ({"verbose": "yes"}, TypeError, "verbose must be True, False or an integer of at least 0, got 'yes'"),
        ({"alpha": RBF()}, TypeError, r"a number, got RBF\(.*; a kernel goes by its name, kernel="),
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


def test_a_batch_is_looked_at_before_any_kernel_value(monkeypatch):
    monkeypatch.setattr(RBF, "__call__", None)
    with pytest.raises(ValueError, match="batch_size=9 is more than the 4 samples"):
        KernelRegressor(solver="sgd", batch_size=9, kernel=RBF()).fit(np.eye(4), np.arange(4.0))


def test_features_that_are_all_zero_leave_a_constant():
    X, y = np.zeros((9, 2)), np.arange(9.0)
    for loss in ("quantile", "epsilon_insensitive", "squared"):
        model = KernelRegressor(loss, kernel="linear", approximation=5, random_state=0).fit(X, y)
        np.testing.assert_allclose(model.predict(X), model.intercept_)
        assert 3.8 <= model.intercept_ <= 4.2


def test_a_warning_that_is_an_error_leaves_the_estimator_as_it_was(rows, rng):
    y = targets(Squared(), rows[0], rng)
    model = KernelRegressor("huber", solver="gd").fit(rows[0], y)
    before = dict(vars(model.set_params(max_iter=1)))
    with pytest.raises(ConvergenceWarning):  # warnings are errors here
        model.fit(rows[0], y)
    assert all(vars(model)[name] is value for name, value in before.items())


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

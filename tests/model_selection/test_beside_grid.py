"""PathCV beside GridSearchCV on what is rarer: shapes of targets, ties, users' own classes, odd grids."""

import matplotlib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, recall_score
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, cross_val_score

from mercer import (
    SVC,
    KernelLogisticRegression,
    KernelRegressor,
    KernelRidge,
    PathCV,
    SquaredMarginClassifier,
)
from mercer.plotting import ErrorPathDisplay

matplotlib.use("Agg")


@pytest.fixture
def X(rng):
    return rng.normal(size=(60, 3))


@pytest.fixture
def y(rng, X):
    return X[:, 0] + 0.3 * rng.normal(size=60)


def scores_of(search):
    results = search.cv_results_
    return np.array([results[f"split{k}_test_score"] for k in range(search.n_splits_)])


def both(estimator, grid, X, y, **more):
    """Scores (folds, cells) of PathCV, and of GridSearchCV with the same; and PathCV."""
    path = PathCV(estimator, param_grid=grid, **more).fit(X, y)
    return scores_of(path), scores_of(GridSearchCV(estimator, grid, **more).fit(X, y)), path


@pytest.mark.parametrize(
    "machine", [SVC(), SVC(C=10.0, kernel="linear"), KernelLogisticRegression()], ids=str
)
def test_each_row_left_out_is_refused_where_no_closed_form_tells(machine, X, rng):
    y = rng.integers(0, 2, 60)  # noise, which a machine that is asked of its own rows seems to know
    with pytest.raises(ValueError, match=r"cv='loo' is for KernelRidge"):
        PathCV(machine, cv="loo").fit(X, y)


def test_of_rows_left_out_alone_a_refused_parameter_is_named(X, y):
    with pytest.raises(ValueError, match="alpha"):
        PathCV(KernelRidge(), param_grid={"alpha": [-1.0, 1.0]}, cv="loo").fit(X, y)


@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
@pytest.mark.parametrize(
    ("machine", "scoring"),
    [
        *((KernelLogisticRegression(), scoring) for scoring in (None, "f1", "neg_log_loss")),
        *((SVC(probability=True), scoring) for scoring in (None, "f1", "neg_log_loss")),
        *((SquaredMarginClassifier(), scoring) for scoring in (None, "f1")),  # has no probabilities
    ],
    ids=str,
)
def test_labels_in_a_column(machine, scoring, X, y):
    labels = (y > 0).astype(int)
    name = "C" if isinstance(machine, SVC) else "alpha"
    own, other, path = both(machine, {name: [1.0, 0.1]}, X, labels[:, None], cv=3, scoring=scoring)
    np.testing.assert_allclose(own, other, rtol=1e-6)
    flat = PathCV(machine, param_grid={name: [1.0, 0.1]}, cv=3).fit(X, labels)
    np.testing.assert_array_equal(path.test_error_, flat.test_error_)


def test_several_labels_with_weights(X, y, rng):
    labels = np.stack([y > 0, X[:, 1] > 0], axis=1).astype(int)
    forest = RandomForestClassifier(5, random_state=0)
    weights = rng.uniform(0, 5, 60)
    search = PathCV(forest, param_grid={"max_depth": [1, 3]}, cv=KFold(3), scoring="f1_macro")
    search.fit(X, labels, sample_weight=weights)
    for fold, (train, test) in enumerate(KFold(3).split(X)):
        fit = RandomForestClassifier(5, random_state=0, max_depth=1)
        wrong = fit.fit(X[train], labels[train], weights[train]).predict(X[test]) != labels[test]
        expected = np.average(wrong.mean(axis=1), weights=weights[test])
        assert search.test_error_[0, fold] == pytest.approx(expected, rel=1e-12)


def repeated_rows(rng):
    X = rng.integers(0, 2, size=(150, 5)).astype(float)
    return X, (X @ [1.0, 1.0, -1.0, 0.5, 0.2] + rng.normal(size=150) > 0.8).astype(int)


@pytest.mark.parametrize("machine", [KernelLogisticRegression(), SquaredMarginClassifier()], ids=str)
def test_equal_rows_tie(machine, rng):
    """In a rank score, which a last digit would change."""
    own, other, _ = both(machine, {"alpha": [1.0, 0.1]}, *repeated_rows(rng), cv=3, scoring="roc_auc")
    np.testing.assert_allclose(own, other, atol=1e-12)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_equal_rows_have_one_decision(kernel, storage, rng):
    """Those of other rows on the margin are equal but for tol, in the fits as well: no ranks to compare."""
    X, y = repeated_rows(rng)
    told = []
    scorer = make_scorer(lambda y, f: float(told.append(f) or 0.0), response_method="decision_function")
    PathCV(SVC(kernel=kernel), Cs=[1.0, 0.1], cv=KFold(3), scoring=scorer, refit=False).fit(storage(X), y)
    assert len(told) == 6
    firsts, group = np.unique(X, axis=0, return_index=True, return_inverse=True)[1:]
    assert len(firsts) < 40
    sizes = [len(test) for _, test in KFold(3).split(X)]
    assert {len(f) for f in told} == set(sizes)
    tests = [test for _, test in KFold(3).split(X)]
    for f in told:  # of one of the folds: in which equal rows are held out together differs
        ties = [
            all(len(np.unique(f[group[test] == each])) <= 1 for each in np.unique(group[test]))
            for test in tests
        ]
        assert any(ties)


class Rounding(KernelLogisticRegression):
    """A user's own, whose fit and score are not ours."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(np.round(X), y, sample_weight)

    def score(self, X, y, sample_weight=None):
        return float(len(self.dual_coef_)) + super().score(X, y, sample_weight)


def test_a_subclass_is_fitted_by_its_own_ways(X, y):
    own, other, _ = both(Rounding(), {"alpha": [1.0, 0.1]}, X, y > 0, cv=3)
    np.testing.assert_array_equal(own, other)


@pytest.mark.filterwarnings("ignore:Scoring failed")
@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
@pytest.mark.filterwarnings("ignore:.*scores.*:UserWarning")
def test_accuracy_is_no_score_of_numbers(X, y):
    labels = (y > 0).astype(int)
    own, other, _ = both(KernelRidge(), {"alpha": [1.0, 0.1]}, X, labels, cv=KFold(3), scoring="accuracy")
    assert np.isnan(own).all()
    assert np.isnan(other).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("machine", "scoring"),
    [(KernelLogisticRegression(), "neg_log_loss"), (KernelRegressor(loss="huber"), None)],
    ids=str,
)
def test_steps_are_counted_from_a_fits_own_start(machine, scoring, X, y):
    target = y if isinstance(machine, KernelRegressor) else y > 0
    grid = {"alpha": [10.0, 0.1, 1e-4], "max_iter": [1, 2]}
    own, other, _ = both(machine, grid, X, target, cv=3, scoring=scoring)
    np.testing.assert_allclose(own, other, rtol=1e-9)


class TestGrids:
    def test_a_cell_without_alpha_beside_those_with_one(self, X, y):
        grid = [{"alpha": [1.0, 0.1], "kernel": ["rbf"]}, {"kernel": ["rbf"]}]
        own, other, path = both(KernelRidge(alpha=0.1), grid, X, y, cv=3)
        np.testing.assert_allclose(own, other, rtol=1e-6)
        assert path.alpha_1se_ in (1.0, 0.1)

    @pytest.mark.parametrize("values", [[[1.0, 2.0], [0.1, 0.2]], [1.0, [1.0, 2.0]]], ids=["all", "some"])
    def test_a_penalty_for_each_target(self, values, X, y):
        grid = {"alpha": [np.array(value) if isinstance(value, list) else value for value in values]}
        own, other, path = both(KernelRidge(), grid, X, np.stack([y, -y + X[:, 1]], axis=1), cv=3)
        np.testing.assert_allclose(own, other, rtol=1e-6)
        if np.ndim(path.best_alpha_):
            assert not hasattr(path, "alpha_1se_")
            with pytest.raises(ValueError, match="one for each target"):
                ErrorPathDisplay.from_estimator(path)

    def test_a_line_is_of_cells_that_differ_in_alpha_alone(self, X, y):
        grid = [{"alpha": [1.0, 0.1]}, {"alpha": [3.0, 0.3], "kernel": ["rbf"]}, {"kernel": ["linear"]}]
        search = PathCV(KernelRidge(), param_grid=grid, cv=3).fit(X, y)
        drawn = np.sort(ErrorPathDisplay.from_estimator(search).alphas)
        np.testing.assert_array_equal(drawn, [0.3, 3.0] if "kernel" in search.best_params_ else [0.1, 1.0])

    def test_none_at_all(self, X, y):
        with pytest.raises(ValueError, match=r"param_grid=\[\] has no cell"):
            PathCV(KernelRidge(), param_grid=[], cv=3).fit(X, y)


def test_what_an_earlier_search_found_is_gone(X, y):
    search = PathCV(KernelRidge(), alphas=[1.0, 0.1], cv=3).fit(X, y)
    search.set_params(scoring=["r2", "neg_mean_absolute_error"], refit=False).fit(X, y)
    for name in ("best_params_", "best_index_", "best_score_", "best_alpha_", "best_estimator_"):
        assert not hasattr(search, name)


@pytest.mark.filterwarnings("ignore:Scoring failed")
def test_where_scoring_fails_the_error_is_that_of_the_labels(X, y):
    def fails(estimator, X, y):
        raise ValueError

    machine, labels = RandomForestClassifier(5, random_state=0), (y > 0).astype(int)
    known = PathCV(machine, param_grid={"max_depth": [2]}, cv=3).fit(X, labels)
    search = PathCV(machine, param_grid={"max_depth": [2]}, cv=3, scoring=fails, error_score=-3.0)
    np.testing.assert_allclose(search.fit(X, labels).test_error_, known.test_error_, rtol=1e-12)


def test_errors_of_small_integers(X):
    y = np.where(np.arange(60) % 2, 120, -120).astype(np.int8)
    search = PathCV(KernelRidge(), alphas=[1.0], cv=KFold(3)).fit(X, y)
    squares = -cross_val_score(
        KernelRidge(), X, y.astype(float), cv=KFold(3), scoring="neg_mean_squared_error"
    )
    np.testing.assert_allclose(search.test_error_[0], squares, rtol=1e-6)


def test_one_row_at_a_time(X, y):
    labels = (y > 0).astype(int)
    scorer = make_scorer(recall_score, zero_division=0.0)
    own, other, _ = both(
        KernelLogisticRegression(), {"alpha": [1.0]}, X[:20], labels[:20], cv=LeaveOneOut(), scoring=scorer
    )
    np.testing.assert_array_equal(own, other)


def test_the_alpha_of_an_estimator_that_is_not_ours(X, y):
    search = PathCV(Ridge(), alphas=[0.1, 1.0, 1e4]).fit(X, y)
    assert search.best_alpha_ == search.best_params_["alpha"]
    assert search.alpha_1se_ >= search.best_alpha_

"""Sample weights of a search: in its fits, and in the scores and errors of rows."""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn import config_context
from sklearn.base import ClassifierMixin, clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.metrics import accuracy_score, make_scorer, r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from mercer import (
    SVC,
    SVR,
    KernelLogisticRegression,
    KernelRegressor,
    KernelRidge,
    KernelRidgeCV,
    PathCV,
)
from search_checks import by_fits, refuse_fits, splits_of

ALPHAS = [1.0, 1e-3, 30.0, 0.05]


def diabetes(n):
    X, y = load_diabetes(return_X_y=True)
    return 20 * X[:n], y[:n] / 100


def test_weights_reach_the_last_step_of_a_pipeline(monkeypatch, rng):
    X, y = diabetes(60)
    weights = rng.uniform(0.1, 3, 60)
    search = PathCV(make_pipeline(StandardScaler(), KernelRidge(kernel="rbf")), alphas=ALPHAS, cv=3)
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y, sample_weight=weights), atol=1e-8)


@pytest.mark.parametrize("form", [np.asarray, np.float32, sp.csr_array])
@pytest.mark.parametrize("machine", [KernelRidge, KernelRegressor])
def test_scale_goes_by_the_weights_of_a_fold(machine, form, monkeypatch, rng):
    X, y = diabetes(60)
    weights = rng.choice([-1.0, 0.0, 0.5, 1.0, 3.0], 60)
    X[weights <= 0] *= 1e3
    search = PathCV(machine(kernel="rbf", gamma="scale"), alphas=ALPHAS, cv=3, refit=False)
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(form(X), y, sample_weight=weights)
    expected = by_fits(search, form(X), y, sample_weight=np.maximum(weights, 0))
    np.testing.assert_allclose(splits_of(search), expected, atol=1e-5)


def test_scale_goes_by_weights_where_rows_are_pooled(rng):
    X, y = diabetes(60)
    weights = rng.choice([0.0, 0.5, 3.0], 60)
    X[weights == 0] *= 1e3
    search = PathCV(KernelRidge(kernel="rbf", gamma="scale"), alphas=ALPHAS, cv="loo")
    best = search.fit(X, y, sample_weight=weights).best_estimator_
    np.testing.assert_allclose(search.test_error_[search.best_index_], best.leave_one_out_**2, rtol=1e-8)


@pytest.mark.parametrize("machine", [KernelRidge(kernel="rbf"), SVC()], ids=["ridge", "SVC"])
@pytest.mark.parametrize("whole", [False, True], ids=["bare", "pipeline"])
def test_routed_weights_and_groups_are_those_of_a_grid_search(machine, whole, rng):
    """Where metadata are routed scorers get the weights that they ask for; a search may be in a pipeline."""
    X, y = diabetes(60)
    y = y if isinstance(machine, KernelRidge) else y > np.median(y)
    given = {"sample_weight": rng.uniform(0.1, 3, 60), "groups": np.arange(60) % 7}
    name = "alpha" if isinstance(machine, KernelRidge) else "C"
    with config_context(enable_metadata_routing=True):
        for asks in (False, True):
            estimator = (
                clone(machine).set_fit_request(sample_weight=True).set_score_request(sample_weight=asks)
            )
            cell = {name: [0.1, 1.0]}
            if whole:
                scaler = StandardScaler().set_fit_request(sample_weight=False)
                estimator = make_pipeline(scaler, estimator)
                cell = {f"{type(machine).__name__.lower()}__{name}": [0.1, 1.0]}
            score = make_scorer(r2_score if isinstance(machine, KernelRidge) else accuracy_score)
            score.set_score_request(sample_weight=asks)
            # a grid search gives a pipeline's own score what it did not ask for
            for scoring in (score,) if whole and not asks else (score, None):
                theirs = GridSearchCV(estimator, cell, scoring=scoring, cv=GroupKFold(3)).fit(X, y, **given)
                search = PathCV(estimator, param_grid=cell, scoring=scoring, cv=GroupKFold(3))
                asked = clone(search).set_fit_request(sample_weight=True, groups=True)
                for ours in (search.fit(X, y, **given), make_pipeline(asked).fit(X, y, **given)[-1]):
                    found, expected = (each.cv_results_["mean_test_score"] for each in (ours, theirs))
                    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("machine", [KernelRidge(kernel="rbf"), SVC(tol=1e-9), KernelLogisticRegression()])
@pytest.mark.parametrize("asks", [(None, True), (None, False), (True, True), (True, False), (False, True)])
def test_fits_have_the_weights_that_their_steps_ask_for(machine, asks, rng):
    """A scaler's weights tell in fits by themselves only, and so do weights for scores alone."""
    X, y = diabetes(60)
    y = y if isinstance(machine, KernelRidge) else y > np.median(y)
    weights = rng.uniform(0.1, 3, 60)
    score = make_scorer(r2_score if isinstance(machine, KernelRidge) else accuracy_score)
    options = {"scoring": score, "cv": 3, "return_train_score": True}
    name = "C" if hasattr(machine, "C") else "alpha"
    scaler, last = asks
    with config_context(enable_metadata_routing=True):
        score.set_score_request(sample_weight=True)
        estimator = clone(machine).set_fit_request(sample_weight=last)
        if scaler is not None:
            estimator = make_pipeline(StandardScaler().set_fit_request(sample_weight=scaler), estimator)
            name = f"{type(machine).__name__.lower()}__{name}"
        grid = {name: [0.1, 1.0]}
        ours = PathCV(estimator, param_grid=grid, **options).fit(X, y, sample_weight=weights)
        theirs = GridSearchCV(estimator, grid, **options).fit(X, y, sample_weight=weights)
    for which in ("test_score", "train_score"):
        np.testing.assert_allclose(splits_of(ours, which), splits_of(theirs, which), rtol=1e-6)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-6)


@pytest.mark.parametrize("search", [PathCV, GridSearchCV])
def test_steps_that_do_not_say_whether_they_want_weights_are_named(search):
    X, y = diabetes(30)
    given = {"sample_weight": np.ones(30)}
    options = {"param_grid": {}, "cv": 3, "scoring": make_scorer(r2_score)}
    with config_context(enable_metadata_routing=True):
        options["scoring"].set_score_request(sample_weight=False)
        with pytest.raises(UnsetMetadataPassedError, match=r"for KernelRidge\.fit"):
            search(KernelRidge(), **options).fit(X, y, **given)
        with pytest.raises(TypeError, match=r"unexpected argument.*sample_weight"):
            search(KernelRidge().set_fit_request(sample_weight=False), **options).fit(X, y, **given)
        asks = KernelRidge().set_fit_request(sample_weight=True)
        with pytest.raises(ValueError, match=r"(?s)fits failed.*for StandardScaler\.fit"):
            search(make_pipeline(StandardScaler(), asks), **options).fit(X, y, **given)


def test_a_search_of_its_own_name_asks_for_its_weights(rng):
    X, y = diabetes(30)
    weights = rng.uniform(0.1, 3, 30)
    plain = KernelRidgeCV(ALPHAS).fit(X, y, sample_weight=weights)
    with config_context(enable_metadata_routing=True):
        routed = KernelRidgeCV(ALPHAS).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(splits_of(routed), splits_of(plain))


@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.9"), reason="has no weighted scores"
)
@pytest.mark.parametrize(
    "machine", [KernelRidge(kernel="rbf"), SVC(tol=1e-9), KernelLogisticRegression(), SVR(tol=1e-9)]
)
@pytest.mark.parametrize("scoring", [None, "several"])
def test_weighted_scores_are_those_of_a_grid_search(machine, scoring, rng):
    X, y = diabetes(60)
    labels = isinstance(machine, ClassifierMixin)
    y = y > np.median(y) if labels else y
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], 60)
    if scoring:
        scoring = ["balanced_accuracy", "roc_auc"] if labels else ["r2", "neg_mean_absolute_error"]
    grid = {"C" if hasattr(machine, "C") else "alpha": [0.1, 1.0, 10.0]}
    options = {"scoring": scoring, "cv": 3, "return_train_score": True, "refit": False}
    ours = PathCV(machine, param_grid=grid, **options).fit(X, y, sample_weight=weights).cv_results_
    theirs = GridSearchCV(machine, grid, **options).fit(X, y, sample_weight=weights).cv_results_
    for name in theirs:
        if "score" in name and "time" not in name:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-7, atol=1e-9, err_msg=name)


def test_a_scorer_without_weights_is_warned_of(rng):
    X, y = diabetes(30)
    scoring = make_scorer(lambda y, predicted: -float(np.abs(y - predicted).max()))
    with pytest.warns(UserWarning, match="score takes no sample_weight"):
        search = PathCV(KernelRidge(), alphas=[1.0], cv=3, scoring=scoring).fit(
            X, y, sample_weight=np.arange(30)
        )
    assert np.isfinite(splits_of(search)).all()


@pytest.mark.parametrize("cv", [LeaveOneOut(), KFold(3)])
def test_held_out_rows_without_weight_are_refused(cv):
    X, y = diabetes(30)
    weights = np.r_[np.zeros(10), np.ones(20)]
    with pytest.raises(ValueError, match="sample_weight leaves nothing to score in fold 0"):
        PathCV(KernelRidge(), alphas=[1.0], cv=cv).fit(X, y, sample_weight=weights)

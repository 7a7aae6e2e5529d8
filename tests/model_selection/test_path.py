"""A grid over folds: equal to fitting each cell, in scikit-learn's form; bad input and interrupts."""

import os
import re
import signal
import threading
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC as SklearnSVC

from mercer import SVC, SVR, KernelLogisticRegression, KernelRegressor, KernelRidge, NuSVC, NuSVR, PathCV
from mercer.kernels import RBF, Laplacian, Linear, Matern
from mercer.model_selection import _machine_path
from search_checks import by_fits, mean_decision, refuse_fits, splits_of

CS = [10.0, 0.1, 1000.0, 1.0]
GAMMAS = [0.01, 0.3]


def two_classes(n=140):
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X)[:n, :6], y[:n]


def four_classes(n=160):
    X, y = load_digits(n_class=4, return_X_y=True)
    return X[:n, ::4] / 16, y[:n]


VARIANTS = {
    "rbf": ({}, two_classes, {}),
    "four classes": ({}, four_classes, {}),
    "four classes, pairs": ({"decision_function_shape": "ovo"}, four_classes, {}),
    "four classes, votes": ({"break_ties": False}, four_classes, {}),
    "balanced": ({"class_weight": "balanced"}, two_classes, {}),
    "balanced, four": ({"class_weight": "balanced"}, four_classes, {}),
    "class weights": ({"class_weight": {0: 3.0, 1: 0.5}}, two_classes, {}),
    "polynomial": ({"kernel": "poly", "degree": 2, "coef0": 1.0}, two_classes, {"Cs": [1.0, 0.1]}),
    "sigmoid": ({"kernel": "sigmoid"}, two_classes, {"Cs": [0.1, 1.0], "gammas": [0.01]}),
    "expression": ({"kernel": RBF(1.0)}, two_classes, {}),
    "expression without gammas": ({"kernel": 0.5 * Matern(nu=1.5) + Linear()}, two_classes, {"gammas": None}),
    "callable": ({"kernel": lambda X, Z: X @ Z.T}, two_classes, {"gammas": None, "Cs": [0.1, 1.0]}),
    "scale and auto": ({}, two_classes, {"gammas": ["scale", "auto", 0.1]}),
    "no shrinking": ({"shrinking": False}, two_classes, {}),
    "one cell": ({"C": 3.0}, two_classes, {"Cs": None, "gammas": None}),
    "other parameters": ({}, two_classes, {"gammas": None, "param_grid": {"kernel": ["rbf", "laplacian"]}}),
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("scoring", [None, mean_decision()], ids=["labels", "decisions"])
def test_scores_are_those_of_fits(name, scoring, monkeypatch):
    params, make, grid = VARIANTS[name]
    X, y = make()
    grid = {"Cs": CS, "gammas": GAMMAS, **grid}
    search = PathCV(SVC(tol=1e-9, **params), cv=StratifiedKFold(3), scoring=scoring, refit=False, **grid)
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(X, y)
    expected = by_fits(search, X, y)
    # tol = 1e-9 leaves less than that of a decision but for the sizes of C and of the kernel
    atol = 1e-12 if scoring is None else 2e-6 * (1 + np.abs(expected).max())
    np.testing.assert_allclose(splits_of(search), expected, rtol=0, atol=atol)
    if scoring is None:
        np.testing.assert_allclose(search.test_error_, 1 - expected, atol=1e-12)


@pytest.mark.parametrize("n", [101, 117, 133])
def test_what_rounding_leaves_free_sets_no_bias(n, monkeypatch):
    # C so small that nearly all samples are at their bounds, whose sums by class are equal
    X, y = (part[:n] for part in two_classes())
    search = PathCV(
        SVC(tol=1e-9, class_weight="balanced"), Cs=[1e-4, 1e-3, 1e-2, 1e-1], gammas=[0.3], cv=KFold(3),
        scoring=mean_decision(), refit=False,
    )  # fmt: skip
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(X, y)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "form",
    [sp.csr_array, lambda X: X.astype(np.float32), lambda X: X.tolist()],
    ids=["CSR", "float32", "list"],
)
def test_forms_of_rows(form, monkeypatch):
    X, y = two_classes()
    X = np.where(np.abs(X) < 0.3, 0.0, X)
    search = PathCV(SVC(tol=1e-9), Cs=CS, gammas=GAMMAS, cv=3, scoring=mean_decision(), refit=False)
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(form(X), y)
    np.testing.assert_allclose(splits_of(search), by_fits(search, form(X), y), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [two_classes, four_classes])
def test_a_larger_problem_in_float32(make, monkeypatch):
    X, y = make_classification(
        1500, 8, n_informative=6, n_classes=2 if make is two_classes else 4, flip_y=0.1, random_state=3
    )
    search = PathCV(
        SVC(tol=1e-4),
        Cs=[1.0, 100.0],
        gammas=[0.02, 0.5],
        cv=3,
        scoring=mean_decision(),
        refit=False,
        n_jobs=2,
    )
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(X, y)
    # both are within tol of the optimum, on which C = 100 puts large coefficients
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y), rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_sample_weights(class_weight, rng, monkeypatch):
    X, y = four_classes()
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], size=len(y))
    search = PathCV(
        SVC(tol=1e-9, class_weight=class_weight), Cs=CS, gammas=[0.3, "scale"], cv=StratifiedKFold(3),
        scoring=mean_decision(),
    )  # fmt: skip
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(X, y, sample_weight=weights)
    expected = by_fits(search, X, y, weights)
    np.testing.assert_allclose(splits_of(search), expected, rtol=0, atol=2e-6 * np.abs(expected).max())
    own = clone(search.estimator).set_params(**search.best_params_).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(own.decision_function(X), search.decision_function(X))


def test_groups_and_text_labels():
    X, y = two_classes()
    y = np.array(["no", "yes"])[y]
    groups = np.arange(len(y)) % 7
    search = PathCV(SVC(tol=1e-9), Cs=CS, gammas=GAMMAS, cv=GroupKFold(4)).fit(X, y, groups=groups)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y, groups=groups), atol=1e-12)
    assert set(search.predict(X)) == {"no", "yes"} == set(search.classes_)


def test_equal_and_repeated_rows(monkeypatch):
    X, y = two_classes(90)
    X, y = np.concatenate([X, X[:30], X[:10]]), np.concatenate([y, y[:30], 1 - y[:10]])
    search = PathCV(SVC(tol=1e-9), Cs=CS, gammas=GAMMAS, cv=KFold(4, shuffle=True, random_state=0))
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(X, y)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y), atol=1e-12)


class TestScikitLearnsForm:
    def pair(self, **more):
        X, y = two_classes()
        own = PathCV(SVC(tol=1e-6), Cs=CS, gammas=GAMMAS, cv=3, **more).fit(X, y)
        grid = {"C": CS, "gamma": GAMMAS}
        theirs = GridSearchCV(SklearnSVC(tol=1e-6), grid, cv=3, **more).fit(X, y)
        return own, theirs, X, y

    @pytest.mark.parametrize("more", [{}, {"return_train_score": True}])
    def test_results(self, more):
        own, theirs, _X, _y = self.pair(**more)
        assert list(own.cv_results_) == list(theirs.cv_results_)
        assert own.cv_results_["params"] == theirs.cv_results_["params"]
        for key, column in theirs.cv_results_.items():
            if key == "params" or "time" in key:
                continue
            assert own.cv_results_[key].dtype == column.dtype, key
            np.testing.assert_array_equal(own.cv_results_[key], column, err_msg=key)
            assert isinstance(own.cv_results_[key], type(column))
        assert (own.cv_results_["mean_fit_time"] > 0).all()

    def test_attributes(self):
        own, theirs, X, y = self.pair()
        for name in ("best_index_", "best_params_", "best_score_", "n_splits_", "multimetric_"):
            assert getattr(own, name) == getattr(theirs, name), name
        assert own.refit_time_ > 0
        np.testing.assert_array_equal(own.classes_, theirs.classes_)
        np.testing.assert_array_equal(own.predict(X), theirs.predict(X))
        np.testing.assert_allclose(own.decision_function(X), theirs.decision_function(X), atol=1e-3)
        assert own.score(X, y) == theirs.score(X, y)
        assert own.n_features_in_ == theirs.n_features_in_
        assert own.test_error_.shape == (8, 3)

    def test_several_scorers(self):
        more = {"scoring": ["accuracy", "roc_auc", "f1"], "refit": "roc_auc"}
        own, theirs, _X, _y = self.pair(**more)
        assert list(own.cv_results_) == list(theirs.cv_results_)
        for name in more["scoring"]:
            np.testing.assert_allclose(
                own.cv_results_[f"mean_test_{name}"], theirs.cv_results_[f"mean_test_{name}"], atol=1e-3
            )
        assert own.best_params_ == theirs.best_params_
        assert set(own.scorer_) == set(more["scoring"])

    def test_several_scores_of_one_function(self):
        def of(estimator, X, y):
            return {"error": -np.mean(estimator.predict(X) != y), "size": float(len(y))}

        own, theirs, X, y = self.pair(scoring=of, refit="error")
        assert list(own.cv_results_) == list(theirs.cv_results_)
        assert own.best_params_ == theirs.best_params_
        with pytest.raises(ValueError, match=r"refit=True with several scorers.*\('error', 'size'\)"):
            own.set_params(refit=True).fit(X, y)

    def test_several_scores_of_one_function_where_fits_fail(self):
        X, y = two_classes()
        y = y.astype(float)
        search = PathCV(
            NuSVR(),
            param_grid={"nu": [2.0, 0.5]},
            cv=3,
            scoring=lambda estimator, X, y: {"size": float(len(y))},
            refit="size",
            return_train_score=True,
        )
        with (
            pytest.warns(FitFailedWarning, match="3 fits failed"),
            pytest.warns(UserWarning, match="non-finite") as caught,
        ):
            search.fit(X, y)
        assert {one.filename for one in caught if "non-finite" in str(one.message)} == {__file__}
        assert search.best_params_ == {"nu": 0.5}
        assert np.isnan(search.cv_results_["mean_test_size"][0])
        assert np.isnan(search.cv_results_["mean_train_size"][0])

    def test_a_score_that_is_no_number_is_refused_in_scikit_learns_words(self, rng):
        X, y = rng.normal(size=(30, 2)), np.arange(30) % 2
        with pytest.raises(ValueError, match="scoring must return a number, got array"):
            PathCV(SVC(), cv=3, scoring=lambda *_: np.array([1.0, 2.0]), error_score="raise").fit(X, y)

    def test_a_scorer_of_several_may_be_called_score(self):
        own, theirs, X, y = self.pair(scoring={"score": "accuracy", "f1": "f1"}, refit="f1")
        assert own.multimetric_
        assert own.best_params_ == theirs.best_params_
        with pytest.raises(ValueError, match="refit=True with several scorers"):
            own.set_params(refit=True).fit(X, y)

    def test_the_first_of_equals_is_the_best(self):
        X, y = two_classes()
        search = PathCV(SVC(), Cs=[5.0, 1.0, 5.0], gammas=[0.1], cv=3).fit(X, y)
        same = search.cv_results_["split0_test_score"]
        assert same[0] == same[2]
        assert search.best_index_ == np.argmax(search.cv_results_["mean_test_score"])

    def test_refit_by_a_function_or_not_at_all(self):
        X, y = two_classes()
        search = PathCV(SVC(), Cs=CS, gammas=GAMMAS, cv=3, refit=lambda results: 5).fit(X, y)
        assert search.best_index_ == 5
        assert not hasattr(search, "best_score_")
        search.set_params(refit=False).fit(X, y)
        assert not hasattr(search, "best_estimator_")
        assert hasattr(search, "best_score_")
        with pytest.raises(AttributeError):
            search.predict(X)

    def test_train_errors(self):
        X, y = four_classes()
        search = PathCV(SVC(tol=1e-9), Cs=CS, gammas=GAMMAS, cv=3, return_train_score=True).fit(X, y)
        np.testing.assert_allclose(search.train_error_, 1 - splits_of(search, "train_score"), atol=1e-12)
        fold = next(iter(StratifiedKFold(3).split(X, y)))[0]
        own = SVC(tol=1e-9, **search.cv_results_["params"][1]).fit(X[fold], y[fold])
        assert search.train_error_[1, 0] == pytest.approx(np.mean(own.predict(X[fold]) != y[fold]))

    def test_clone_and_parameters(self):
        search = PathCV(SVC(), Cs=CS, gammas=GAMMAS)
        assert clone(search).get_params(deep=False).keys() == search.get_params(deep=False).keys()
        assert search.get_params()["estimator__C"] == 1.0
        assert "Cs=" in repr(search)


class TestPlainWay:
    def test_another_estimator(self):
        X, y = two_classes()
        grid = {"alpha": [0.1, 1.0], "gamma": [0.05, 0.5]}
        own = PathCV(KernelRidge(kernel="rbf", solver="cg", random_state=0), param_grid=grid, cv=3).fit(X, y)
        theirs = GridSearchCV(KernelRidge(kernel="rbf", solver="cg", random_state=0), grid, cv=3).fit(X, y)
        np.testing.assert_array_equal(splits_of(own), splits_of(theirs))
        fold = next(iter(KFold(3).split(X)))
        one = KernelRidge(kernel="rbf", solver="cg", random_state=0, **own.cv_results_["params"][0]).fit(
            X[fold[0]], y[fold[0]]
        )
        error = np.mean((one.predict(X[fold[1]]) - y[fold[1]]) ** 2)
        assert own.test_error_[0, 0] == pytest.approx(error, rel=1e-12)

    @pytest.mark.parametrize(
        "machine", [NuSVC(nu=0.2), SVR(), SVC(multiclass="ovr"), SVC(max_iter=10**6), SVC(probability=True)]
    )
    def test_other_machines(self, machine):
        X, y = two_classes()
        grid = {"gammas": GAMMAS} | ({} if isinstance(machine, NuSVC) else {"Cs": [0.5, 5.0]})
        search = PathCV(machine, cv=3, **grid).fit(X, y)
        np.testing.assert_array_equal(splits_of(search), by_fits(search, X, y))
        if getattr(machine, "probability", False):
            assert search.predict_proba(X).shape == (len(y), 2)

    @pytest.mark.parametrize(
        "scoring", ["neg_log_loss", lambda estimator, X, y: float(len(estimator.support_))]
    )
    def test_scorers_that_need_more_than_decisions(self, scoring):
        X, y = two_classes()
        search = PathCV(SVC(probability=True), Cs=[1.0], gammas=[0.1], cv=3, scoring=scoring).fit(X, y)
        np.testing.assert_array_equal(splits_of(search), by_fits(search, X, y))

    def test_hard_margins_among_others(self):
        X, y = four_classes()
        keep = y < 2
        search = PathCV(SVC(), Cs=[1.0, np.inf], gammas=[0.5], cv=3).fit(X[keep], y[keep])
        np.testing.assert_array_equal(splits_of(search), by_fits(search, X[keep], y[keep]))

    def test_too_little_memory(self, monkeypatch):
        X, y = two_classes()
        monkeypatch.setattr(_machine_path.MachinePath, "fits_memory", lambda self: False)
        search = PathCV(SVC(), Cs=[1.0, 2.0], gammas=[0.5], cv=3).fit(X, y)
        np.testing.assert_array_equal(splits_of(search), by_fits(search, X, y))


class TestPrecomputed:
    def test_is_split_by_rows_and_columns(self, monkeypatch):
        X, y = two_classes()
        own = PathCV(SVC(tol=1e-9, kernel="precomputed"), Cs=CS, cv=3)
        with monkeypatch.context() as patch:
            refuse_fits(patch)
            own.fit(RBF(0.1)(X), y)
        rows = PathCV(SVC(tol=1e-9), Cs=CS, gammas=[0.1], cv=3).fit(X, y)
        np.testing.assert_array_equal(splits_of(own), splits_of(rows))

    def test_g17_cross_validation_with_a_precomputed_kernel(self):
        # G17's matrix, its targets as two classes by their median; both routes, and a fit by hand
        X = np.array([[1.0], [2.0], [3.0], [4.0]])
        K, y = X @ X.T, np.array([0, 1, 0, 1])
        cv = KFold(2)
        by_matrix = PathCV(SVC(kernel="precomputed"), Cs=[1.0, 10.0], cv=cv, scoring=mean_decision()).fit(
            K, y
        )
        by_rows = PathCV(SVC(kernel="linear"), Cs=[1.0, 10.0], cv=cv, scoring=mean_decision()).fit(X, y)
        np.testing.assert_allclose(splits_of(by_matrix), splits_of(by_rows), rtol=1e-12)
        train, test = next(iter(cv.split(X)))
        one = SVC(kernel="precomputed").fit(K[np.ix_(train, train)], y[train])
        told = mean_decision()(one, K[np.ix_(test, train)], y[test])
        assert splits_of(by_matrix)[0, 0] == pytest.approx(told, rel=1e-9)
        with pytest.raises(ValueError, match="square matrix"):
            PathCV(SVC(kernel="precomputed"), Cs=[1.0], cv=2).fit(K[:, :3], y)

    def test_g17_its_own_numbers(self):
        X, y = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1.0, 3.0, 2.0, 5.0])
        for kernel, samples in (("linear", X), ("precomputed", X @ X.T)):
            search = PathCV(
                KernelRidge(kernel=kernel, fit_intercept=False), param_grid={"alpha": [1.0]}, cv=KFold(2),
                scoring="neg_mean_squared_error",
            ).fit(samples, y)  # fmt: skip
            np.testing.assert_allclose(-splits_of(search)[0], [0.5, 1.1805555555555556], rtol=1e-12)
            np.testing.assert_allclose(search.test_error_[0], [0.5, 1.1805555555555556], rtol=1e-12)


class TestThreads:
    @pytest.mark.parametrize("make", [two_classes, four_classes])
    def test_change_nothing(self, make):
        X, y = make()
        found = [
            PathCV(
                SVC(),
                Cs=CS,
                gammas=[*GAMMAS, "scale"],
                cv=3,
                scoring=mean_decision(),
                n_jobs=n_jobs,
                refit=False,
            ).fit(X, y)
            for n_jobs in (1, 2, 5)
        ]
        for other in found[1:]:
            np.testing.assert_array_equal(splits_of(found[0]), splits_of(other))

    def test_none_is_left(self):
        X, y = two_classes()
        before = threading.active_count()
        PathCV(SVC(), Cs=CS, gammas=GAMMAS, cv=3, n_jobs=4).fit(X, y)
        assert threading.active_count() == before

    @pytest.mark.skipif(os.name == "nt", reason="signals by kill")
    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_an_interrupt_ends_it_and_leaves_it_as_it_was(self, n_jobs):
        X, y = two_classes()
        search = PathCV(SVC(), Cs=CS, gammas=GAMMAS, cv=3, n_jobs=n_jobs).fit(X, y)
        before = dict(search.__dict__)
        X, y = make_classification(6000, 20, n_informative=10, flip_y=0.3, random_state=0)
        search.set_params(Cs=[100.0, 1000.0, 1e4], gammas=[0.01, 0.02, 0.05, 0.1], cv=5)
        sent = []

        def interrupt():
            sent.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.5, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            search.fit(X, y)
        # 0.2 s on a quiet machine
        assert time.perf_counter() - sent[0] < 1.0
        for name in ("cv_results_", "best_estimator_", "best_params_", "test_error_"):
            assert search.__dict__[name] is before[name]
        left = [thread for thread in threading.enumerate() if thread.name == "mercer-path"]
        for thread in left:  # one that has ended may still be on the list
            thread.join(timeout=1.0)
        assert not any(thread.is_alive() for thread in left)


def test_a_failed_fit_leaves_it_as_it_was():
    X, y = two_classes()
    search = PathCV(SVC(), Cs=CS, gammas=GAMMAS, cv=3).fit(X, y)
    before = search.cv_results_
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        search.fit(X, y)
    assert search.cv_results_ is before


def test_progress_is_shown(capsys):
    X, y = two_classes()
    PathCV(SVC(), Cs=[1.0, 10.0], gammas=GAMMAS, cv=3, verbose=True).fit(X, y)
    PathCV(KernelRidge(), param_grid={"alpha": [1.0]}, cv=3, verbose=True).fit(X, y)
    told = capsys.readouterr()
    assert re.search("PathCV: 100%.* 12/12 .*, lowest error ", told.out + told.err)


ERRORS = {
    "no values": ({"Cs": []}, ValueError, "Cs is empty"),
    "negative": ({"Cs": [1.0, -2.0]}, ValueError, r"Cs\[1\] must be larger than 0, got -2.0"),
    "zero": ({"Cs": [0.0]}, ValueError, r"Cs\[0\] must be larger than 0"),
    "nan": ({"Cs": [1.0, np.nan]}, ValueError, r"Cs\[1\] must be larger than 0, got nan"),
    "a word": ({"Cs": ["1"]}, TypeError, r"Cs\[0\] must be a number"),
    "a number": ({"Cs": 3.0}, TypeError, r"Cs must be a sequence of values, got 3.0; pass \[3.0\]"),
    "negative gamma": ({"gammas": [-1.0]}, ValueError, r"gammas\[0\] must be positive and finite, got -1.0"),
    "zero gamma": ({"gammas": [1.0, 0]}, ValueError, r"gammas\[1\] must be positive and finite, got 0"),
    "unknown gamma": ({"gammas": ["median"]}, ValueError, r"gammas\[0\] must be a number or one of"),
    "twice": (
        {"Cs": [1.0], "param_grid": {"C": [2.0]}},
        ValueError,
        "param_grid has C, which alphas, Cs or gammas give",
    ),
    "unknown name": ({"param_grid": {"alpha": [1.0]}}, ValueError, "SVC has no parameter 'alpha'"),
    "no sequence": ({"param_grid": {"degree": 3}}, TypeError, r"pass \[3\]"),
    "empty grid": ({"param_grid": {"degree": []}}, ValueError, "is empty"),
    "no dict": ({"param_grid": [3]}, TypeError, "must be a dict"),
    "jobs": ({"Cs": [1.0], "n_jobs": 0}, ValueError, "n_jobs"),
    "error score": ({"Cs": [1.0], "error_score": "nan"}, ValueError, "error_score must be"),
    "refit": ({"Cs": [1.0], "scoring": ["accuracy", "f1"]}, ValueError, "refit=True with several scorers"),
    "no scorer": ({"Cs": [1.0], "scoring": []}, ValueError, "scoring is empty"),
    "too many folds": ({"Cs": [1.0], "cv": 200}, ValueError, "n_splits=200"),
    "refit index": ({"Cs": [1.0], "cv": 3, "refit": lambda results: 7}, IndexError, "7"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    params, kind, match = ERRORS[name]
    with pytest.raises(kind, match=match):
        PathCV(SVC(), **params).fit(*two_classes())


@pytest.mark.parametrize(
    ("estimator", "params", "match"),
    [
        (
            KernelRidge(),
            {"Cs": [1.0]},
            "KernelRidge has no parameter C; pass its own parameters by param_grid=",
        ),
        (
            SVC(kernel=Matern(nu=1.5)),
            {"gammas": [1.0]},
            r"no parameter gamma of its own.*kernel__length_scale",
        ),
        (SVC(kernel=RBF() + Laplacian()), {"gammas": [1.0]}, r"kernel__k1__gamma"),
        (SVC(kernel="rfb"), {"Cs": [1.0]}, "did you mean 'rbf'"),
        (SVC(tol=0.0), {"Cs": [1.0]}, "tol must be larger than 0"),
        (KernelLogisticRegression(), {"alphas": [1.0, 0]}, r"alphas\[1\] must be larger than 0, got 0"),
        (KernelRegressor(), {"alphas": [0.0]}, r"alphas\[0\] must be larger than 0, got 0.0"),
        (KernelRidge(), {"alphas": [-1.0]}, r"alphas\[0\] must be at least 0, got -1.0"),
    ],
)
def test_errors_of_the_estimator(estimator, params, match):
    with pytest.raises(ValueError, match=match):
        PathCV(estimator, **params).fit(*two_classes())


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (np.r_[np.ones(139), np.nan], "sample_weight contains NaN at row 139"),
        (np.ones((140, 1)), r"sample_weight must be a 1D array .* got shape \(140, 1\)"),
        (np.ones(7), "sample_weight has 7 entries, but X has 140 rows"),
        (np.zeros(140), "sample_weight has no positive entry"),
    ],
)
def test_weights_are_looked_at_before_any_fit(weights, match, monkeypatch):
    refuse_fits(monkeypatch)
    with pytest.raises(ValueError, match=match):
        PathCV(SVC(), Cs=[1.0]).fit(*two_classes(), sample_weight=weights)


@pytest.mark.parametrize(
    ("y", "error", "match"),
    [
        (np.linspace(0, 1, 140), ValueError, "Unknown label type"),
        (np.array([1, "a"] * 70, dtype=object), TypeError, r"'a' \(str\) at row 1 .* of one type"),
    ],
)
def test_targets_that_are_no_labels_are_refused_before_any_fit(y, error, match, monkeypatch):
    refuse_fits(monkeypatch)
    with pytest.raises(error, match=match):
        PathCV(SVC(), Cs=[1.0]).fit(two_classes()[0], y)


def test_labels_that_are_nan_are_named_before_any_fit(monkeypatch):
    refuse_fits(monkeypatch)
    X, y = two_classes()
    with pytest.raises(ValueError, match="The first is at row 3, 1 in all"):
        PathCV(SVC(), Cs=[1.0]).fit(X, np.where(np.arange(len(y)) == 3, np.nan, y))


class TestFoldsWithoutAClass:
    X = np.arange(12.0)[:, None]

    def test_of_two_classes_the_fit_says_so(self):
        y = np.repeat([0, 1], [4, 8])
        folds = [(np.arange(4, 12), np.arange(4)), (np.arange(12), [0, 11])]
        search = PathCV(SVC(), Cs=[1.0, 2.0], cv=folds)
        with (
            pytest.warns(FitFailedWarning, match="2 fits failed out of a total of 4"),
            pytest.warns(UserWarning, match="non-finite"),
        ):
            search.fit(self.X, y)
        assert np.isnan(search.cv_results_["split0_test_score"]).all()
        assert np.isfinite(search.cv_results_["split1_test_score"]).all()
        with pytest.raises(ValueError, match="number of classes"):
            search.set_params(error_score="raise").fit(self.X, y)

    @pytest.mark.filterwarnings("ignore:One or more")
    @pytest.mark.filterwarnings("ignore:1 fits failed")
    @pytest.mark.parametrize("first", [0, 1])
    def test_a_failed_fit_has_the_names_of_a_scorers_dict(self, first):
        def scores(machine, X, y):
            return {"right": float(np.mean(machine.predict(X) == y)), "one": 1.0}

        y = np.repeat([0, 1], [4, 8])
        folds = [(np.arange(4, 12), np.arange(4)), (np.arange(12), np.array([0, 11]))]
        search = PathCV(SVC(), Cs=[1.0], cv=folds[:: 1 - 2 * first], scoring=scores, refit="right")
        results = search.set_params(return_train_score=True).fit(self.X, y).cv_results_
        assert search.multimetric_
        for name in ("right", "one"):
            assert np.isnan(results[f"split{first}_test_{name}"]).all()
            assert np.isnan(results[f"split{first}_train_{name}"]).all()
            assert np.isfinite(results[f"split{1 - first}_test_{name}"]).all()

    def test_of_three_classes_it_is_a_machine_of_two(self):
        y = np.repeat([0, 1, 2], 4)
        search = PathCV(SVC(), Cs=[1.0, 2.0], gammas=[0.1], cv=KFold(3)).fit(self.X, y)
        np.testing.assert_array_equal(splits_of(search), by_fits(search, self.X, y))

    def test_all_fail(self):
        with pytest.raises(ValueError, match="All the 10 fits failed"):
            PathCV(SVC(), Cs=[1.0, 2.0], cv=KFold(5)).fit(self.X, np.zeros(12))


@pytest.mark.parametrize("estimator", [SVC(), KernelRidge(), make_pipeline(StandardScaler(), SVR())])
def test_without_targets(estimator):
    X, _ = two_classes()
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        PathCV(estimator, Cs=None).fit(X)


def test_a_cell_without_C_has_the_estimators():
    X, y = two_classes()
    grid = [{"C": [1e-3, 10.0], "gamma": [0.1]}, {"gamma": [0.1, 0.3]}]
    own = PathCV(SVC(C=100.0), param_grid=grid, cv=3).fit(X, y)
    theirs = GridSearchCV(SklearnSVC(C=100.0), grid, cv=3).fit(X, y)
    found, expected = (search.cv_results_["mean_test_score"] for search in (own, theirs))
    assert found[2] != found[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)


# ---------------------------------------------------------------- what a grid search gives, too


def test_many_classes_and_many_rows(monkeypatch, rng):
    # predict goes through rows some at a time
    k = 64
    y = np.repeat(np.arange(k), 32)
    X = 5 * rng.normal(size=(k, 3))[y] + rng.normal(size=(len(y), 3))
    cv = [(np.flatnonzero(np.arange(len(y)) % 32 < 2), np.arange(len(y)))]
    search = PathCV(SVC(), Cs=[1.0], gammas=[0.1], cv=cv, refit=False)
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(X, y)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y), atol=2e-3)


def refuse_many(X, Z):
    if len(X) > 100:
        raise ValueError("too many rows")
    return X @ Z.T


class TestErrorsAreScoredAsByGridSearch:
    @pytest.mark.parametrize(
        ("grid", "scale"),
        [
            ({"kernel": ["rbf", "chi2"]}, 1.0),
            ({"kernel": ["rbf", refuse_many]}, 1.0),
            ({"gamma": ["scale", 1e-300]}, 1e200),
            ({"C": [1e-100, 1e100]}, 1.0),
            ({"C": [1.0, -1.0]}, 1.0),
            ({"break_ties": [True, False]}, 1.0),
            ({"kernel": ["rbf", "precomputed"]}, 1.0),
        ],
    )
    @pytest.mark.filterwarnings("ignore")
    def test_cells_that_fail(self, grid, scale, rng):
        X, y = two_classes()
        X, y = scale * X[:140], y[:140]
        if "precomputed" in grid.get("kernel", []):
            X = rng.normal(size=(140, 140))  # not symmetric
        machine = SVC(decision_function_shape="ovo") if "break_ties" in grid else SVC()
        ours = PathCV(machine, param_grid=grid, cv=3, refit=False).fit(X, y)
        theirs = GridSearchCV(machine, grid, cv=3, refit=False).fit(X, y)
        np.testing.assert_allclose(splits_of(ours), splits_of(theirs), atol=1e-12)
        np.testing.assert_array_equal(
            ours.cv_results_["rank_test_score"], theirs.cv_results_["rank_test_score"]
        )

    @pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
    @pytest.mark.parametrize("bad", [99, 50, 0])
    @pytest.mark.filterwarnings("ignore")
    def test_rows_of_no_fold_or_of_one(self, kernel, bad):
        """Row 99 is in no fold, 50 is held out, and 0 is trained on."""
        X, y = two_classes()
        X = X[:100] if kernel == "rbf" else RBF(0.1)(X[:100])
        X[bad, :] = np.nan
        if kernel == "precomputed":
            X[:, bad] = np.nan
        folds = [(np.r_[:40], np.r_[40:60]), (np.r_[1:40], np.r_[40:50])]
        machine, options = SVC(kernel=kernel), {"cv": folds, "refit": False, "return_train_score": True}
        ours = PathCV(machine, Cs=[0.1, 1.0], **options).fit(X, y[:100])
        theirs = GridSearchCV(machine, {"C": [0.1, 1.0]}, **options).fit(X, y[:100])
        for name in ("test_score", "train_score"):
            np.testing.assert_allclose(splits_of(ours, name), splits_of(theirs, name), atol=1e-12)
        assert np.isfinite(splits_of(ours)).all() == (bad == 99)
        for search in (ours, theirs):
            with pytest.raises(ValueError, match="NaN at"):
                search.set_params(refit=True).fit(X, y[:100])

    def test_all_cells_are_refused_before_any_work(self):
        X, y = two_classes()
        with pytest.raises(ValueError, match=r"^tol"):
            PathCV(SVC(tol=-1.0), Cs=[1.0, 2.0], cv=3).fit(X, y)

    def test_labels_that_nobody_asks_for(self):
        X, y = two_classes()
        machine = SVC(break_ties=True, decision_function_shape="ovo")
        search = PathCV(machine, Cs=[1.0], scoring="roc_auc", cv=3, refit=False).fit(X, y)
        theirs = GridSearchCV(machine, {"C": [1.0]}, scoring="roc_auc", cv=3, refit=False).fit(X, y)
        np.testing.assert_allclose(splits_of(search), splits_of(theirs), atol=1e-12)
        assert np.isnan(search.test_error_).all()

    def test_a_matrix_that_is_no_square(self):
        X, y = two_classes()
        with pytest.raises(ValueError, match="square"):
            PathCV(SVC(), param_grid={"kernel": ["rbf", "precomputed"]}, cv=3, error_score="raise").fit(X, y)


def test_equal_cells_share_a_rank():
    # C = inf is fitted by itself
    rng = np.random.default_rng(7)
    X, y = np.round(rng.normal(size=(40, 2)), 6), rng.integers(0, 4, 40)
    search = PathCV(SVC(), param_grid={"C": [1e6, np.inf], "gamma": [1e3]}, cv=KFold(2), refit=False).fit(
        X, y
    )
    np.testing.assert_array_equal(search.cv_results_["rank_test_score"], [1, 1])


def test_threads_leave_filters_of_warnings_alone(monkeypatch):
    X, y = two_classes()
    plain = warnings.catch_warnings

    def refuse(*args, **options):
        assert threading.current_thread() is threading.main_thread(), "they are the process's"
        return plain(*args, **options)

    monkeypatch.setattr(warnings, "catch_warnings", refuse)
    search = PathCV(SVC(), Cs=CS, gammas=GAMMAS, cv=3, scoring=["accuracy", "f1"], refit=False, n_jobs=4)
    assert np.isfinite(search.fit(X, y).cv_results_["mean_test_f1"]).all()

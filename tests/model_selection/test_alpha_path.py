"""All α over all folds: equal to fitting each fold alone; pipelines, one row left out, choices among α."""

import os
import signal
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_diabetes
from sklearn.decomposition import NMF, PCA
from sklearn.exceptions import FitFailedWarning, UndefinedMetricWarning
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KernelCenterer,
    OneHotEncoder,
    StandardScaler,
    TargetEncoder,
)

from mercer import (
    SVC,
    KernelLogisticRegression,
    KernelRegressor,
    KernelRidge,
    PathCV,
    SquaredMarginClassifier,
)
from mercer.kernels import RBF, Fourier, Linear, Matern
from mercer.plotting import ErrorPathDisplay
from search_checks import by_fits, mean_decision, refuse_fits, splits_of

ALPHAS = [1.0, 1e-3, 30.0, 0.05]


def diabetes(n=120):
    X, y = load_diabetes(return_X_y=True)
    return 20 * X[:n], y[:n] / 100


def searched(search, X, y, monkeypatch, **more):
    """The search after a fit that must not take the plain way."""
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        return search.fit(X, y, **more)


VARIANTS = {
    "rbf": (KernelRidge(kernel="rbf"), {}),
    "no intercept": (KernelRidge(kernel="rbf", fit_intercept=False), {}),
    "scale": (KernelRidge(kernel="rbf", gamma="scale"), {}),
    "gammas": (KernelRidge(kernel="rbf"), {"gammas": [0.01, "scale", 0.3]}),
    "expression": (KernelRidge(kernel=0.5 * Matern(nu=1.5) + Linear()), {}),
    "gammas of an expression": (KernelRidge(kernel=RBF(1.0)), {"gammas": [0.1, 1.0]}),
    "kernels": (KernelRidge(), {"param_grid": {"kernel": ["linear", RBF(0.1), Fourier(2, period=40.0)]}}),
    "callable": (KernelRidge(kernel=lambda x, z: float(x @ z) + 1.0), {}),
    "a scorer": (KernelRidge(kernel="rbf"), {"scoring": "neg_mean_absolute_error"}),
    "overlapping folds": (KernelRidge(kernel="rbf"), {"cv": ShuffleSplit(3, test_size=0.5, random_state=0)}),
    "repeated folds": (
        KernelRidge(kernel="rbf"), {"cv": RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)},
    ),
    "pipeline": (make_pipeline(StandardScaler(), KernelRidge(kernel="rbf")), {}),
    "pipeline, scale": (make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", gamma="scale")), {}),
    "a selector and gammas": (
        make_pipeline(SelectKBest(f_regression, k=4), StandardScaler(), KernelRidge(kernel="rbf")),
        {"gammas": [0.1, 1.0]},
    ),
    "parameters of a transformer": (
        make_pipeline(SelectKBest(f_regression), KernelRidge(kernel="rbf")),
        {"param_grid": {"selectkbest__k": [2, 5]}},
    ),
    "a pipeline of one": (make_pipeline(KernelRidge(kernel="rbf")), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_scores_are_those_of_fits(name, monkeypatch):
    estimator, grid = VARIANTS[name]
    X, y = diabetes()
    search = PathCV(estimator, **{"alphas": ALPHAS, "cv": KFold(4, shuffle=True, random_state=0)} | grid)
    searched(search, X, y, monkeypatch)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y), rtol=0, atol=1e-8)
    best = search.cv_results_["mean_test_score"].argmax()
    assert search.best_params_ == search.cv_results_["params"][best]
    assert search.best_alpha_ == next(v for k, v in search.best_params_.items() if k.endswith("alpha"))
    assert search.predict(X[:3]).shape == (3,)


@pytest.mark.parametrize("seed", range(20))
def test_random_problems(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(12, 150)), int(rng.integers(1, 6))
    X = rng.standard_normal((n, d))
    if seed % 3 == 0:
        X[n // 2 :] = X[: n - n // 2]  # duplicates
    y = rng.standard_normal((n, 2)[: 1 + seed % 2])
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], n) if seed % 4 == 1 else None
    kernel = [RBF(0.5), Linear(), "poly", Matern(nu=0.5)][seed % 4]
    estimator = KernelRidge(kernel=kernel, fit_intercept=seed % 5 > 0)
    alphas = 10.0 ** rng.uniform(-6, 4, 6)
    cv = KFold(int(rng.integers(2, 9)), shuffle=True, random_state=seed)
    search = PathCV(estimator, alphas=alphas, cv=cv, scoring="neg_mean_squared_error")
    searched(search, X, y, monkeypatch, sample_weight=weights)
    expected = by_fits(search, X, y, sample_weight=weights)
    np.testing.assert_allclose(splits_of(search), expected, rtol=1e-6, atol=1e-9)


def test_it_is_what_grid_search_finds():
    X, y = diabetes()
    own = PathCV(KernelRidge(kernel="rbf"), alphas=ALPHAS, gammas=[0.1, 1.0], cv=3, return_train_score=True)
    theirs = GridSearchCV(
        KernelRidge(kernel="rbf"), {"alpha": ALPHAS, "gamma": [0.1, 1.0]}, cv=3, return_train_score=True
    )
    own.fit(X, y), theirs.fit(X, y)
    assert own.cv_results_.keys() == theirs.cv_results_.keys()
    assert own.cv_results_["params"] == theirs.cv_results_["params"]
    for key in own.cv_results_:
        if key.endswith("score") and not key.startswith("rank"):
            np.testing.assert_allclose(own.cv_results_[key], theirs.cv_results_[key], atol=1e-8)
    np.testing.assert_array_equal(own.cv_results_["rank_test_score"], theirs.cv_results_["rank_test_score"])
    np.testing.assert_allclose(own.predict(X), theirs.predict(X), rtol=1e-8)


def test_errors_of_training_and_held_out_rows():
    # MLR7 (7.34), worked out by hand for one cell and one fold
    X, y = diabetes()
    search = PathCV(KernelRidge(kernel="rbf"), alphas=ALPHAS, cv=KFold(3)).fit(X, y)
    train, test = list(KFold(3).split(X))[1]
    one = KernelRidge(alpha=ALPHAS[3], kernel="rbf").fit(X[train], y[train])
    assert search.train_error_.shape == search.test_error_.shape == (4, 3)
    assert search.train_error_[3, 1] == pytest.approx(np.mean((one.predict(X[train]) - y[train]) ** 2))
    assert search.test_error_[3, 1] == pytest.approx(np.mean((one.predict(X[test]) - y[test]) ** 2))


@pytest.mark.parametrize("form", ["csr", "float32", "list", "frame", "read-only", "fortran"])
def test_forms_of_rows(form, monkeypatch):
    X, y = diabetes(60)
    search = PathCV(KernelRidge(kernel="rbf"), alphas=ALPHAS, cv=3)
    expected = splits_of(clone(search).fit(X, y))
    if form == "frame":
        X = pytest.importorskip("pandas").DataFrame(X, columns=list("abcdefghij"))
    elif form == "read-only":
        X = X.copy()
        X.flags.writeable = False
    else:
        make = {
            "csr": sp.csr_array, "list": np.ndarray.tolist, "float32": lambda X: X.astype(np.float32),
            "fortran": np.asfortranarray,
        }  # fmt: skip
        X = make[form](X)
    found = splits_of(searched(search, X, y, monkeypatch))
    np.testing.assert_allclose(found, expected, atol=2e-5 if form == "float32" else 1e-8)


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (np.arange(60) < 40, np.arange(60) >= 40),
        (np.arange(-60, -20), [-1, 45]),
        (list(range(40)), [59]),
        ([0, 1, 2, 3, -60], [7, 8]),  # the first row twice
    ],
    ids=["masks", "from the end", "lists", "a row by two names"],
)
def test_folds_are_indices_of_any_kind(train, test):
    X, y = diabetes(60)
    cv = [(train, test)] * 2
    search = PathCV(KernelRidge(kernel="rbf"), alphas=ALPHAS, cv=cv, scoring="neg_mean_squared_error")
    np.testing.assert_allclose(splits_of(search.fit(X, y)), by_fits(search, X, y), rtol=1e-8)


def test_a_fold_of_rows_that_are_not_there_is_named():
    X, y = diabetes(60)
    cv = [(np.arange(40), np.arange(40, 60)), (np.arange(40), [60])]
    with pytest.raises(ValueError, match=r"fold 1 is no selection of the 60 rows: index 60 is out of bounds"):
        PathCV(KernelRidge(kernel="rbf"), alphas=ALPHAS, cv=cv).fit(X, y)


def test_groups_and_text_like_frames_in_a_pipeline(monkeypatch):
    pd = pytest.importorskip("pandas")
    X, y = diabetes(60)
    groups = np.arange(60) % 7
    search = PathCV(
        make_pipeline(StandardScaler(), KernelRidge(kernel="rbf")), alphas=ALPHAS, cv=GroupKFold(3)
    )
    searched(search, pd.DataFrame(X), y, monkeypatch, groups=groups)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y, groups=groups), atol=1e-8)


def test_a_precomputed_kernel_is_split_by_rows_and_columns(monkeypatch):
    X, y = diabetes(60)
    rows = PathCV(KernelRidge(kernel=RBF(0.1)), alphas=ALPHAS, cv=3).fit(X, y)
    matrix = PathCV(KernelRidge(kernel="precomputed"), alphas=ALPHAS, cv=3)
    searched(matrix, RBF(0.1)(X), y, monkeypatch)
    np.testing.assert_allclose(splits_of(matrix), splits_of(rows), atol=1e-10)


def test_a_matrix_behind_a_transformer():
    # the held-out rows' matrix is no square one: each fold is fitted by itself
    X, y = diabetes(60)
    K = RBF(0.1)(X)
    search = PathCV(make_pipeline(KernelCenterer(), KernelRidge(kernel="precomputed")), alphas=ALPHAS, cv=3)
    np.testing.assert_allclose(splits_of(search.fit(K, y)), by_fits(search, K, y), atol=1e-10)


@pytest.mark.parametrize("first", [StandardScaler(), KernelCenterer()])
def test_a_cell_tells_whether_rows_are_a_matrix(first, monkeypatch):
    X, y = diabetes(60)
    grid = {"first": [StandardScaler(), KernelCenterer()], "last__alpha": ALPHAS}
    pipeline, options = Pipeline([("first", first), ("last", KernelRidge())]), {"cv": 3, "refit": False}
    search = searched(PathCV(pipeline, param_grid=grid, **options), X @ X.T, y, monkeypatch)
    theirs = GridSearchCV(pipeline, grid, **options).fit(X @ X.T, y)
    np.testing.assert_allclose(splits_of(search), splits_of(theirs), rtol=1e-6)


def test_transformers_are_fitted_once_a_fold():
    calls = []

    def count(X):
        calls.append(len(X))
        return X

    X, y = diabetes(40)
    one = make_pipeline(FunctionTransformer(count), StandardScaler(), KernelRidge(kernel="rbf"))
    PathCV(one, alphas=ALPHAS, gammas=[0.1, 1.0, 10.0], cv=4, refit=False).fit(X, y)
    assert calls == [30, 10] * 4


@pytest.mark.parametrize("final", [KernelRidge(), KernelLogisticRegression(tol=1e-9)])
@pytest.mark.parametrize(
    "first", [TargetEncoder(random_state=0), NMF(2, random_state=0, max_iter=3), PCA(2), OneHotEncoder()]
)
@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
@pytest.mark.filterwarnings("ignore:`TargetEncoder:FutureWarning")
def test_training_rows_are_scored_as_predictions_see_them(first, final, monkeypatch, rng):
    """A transformer may make something else of them in fit_transform."""
    X = rng.integers(0, 6, (60, 3)).astype(float)
    y = X[:, 0] + rng.normal(size=60)
    y = y if isinstance(final, KernelRidge) else y > 3
    options = {"cv": 3, "return_train_score": True, "refit": False}
    pipeline = make_pipeline(first, final)
    search = searched(PathCV(pipeline, alphas=[1e-2, 1.0], **options), X, y, monkeypatch)
    theirs = GridSearchCV(pipeline, {f"{pipeline.steps[-1][0]}__alpha": [1e-2, 1.0]}, **options).fit(X, y)
    for name in ("test_score", "train_score"):
        np.testing.assert_allclose(splits_of(search, name), splits_of(theirs, name), rtol=1e-7)
    errors = PathCV(pipeline, alphas=[1e-2, 1.0], cv=3).fit(X, y).train_error_
    np.testing.assert_array_equal(errors, search.train_error_)


class _CentredByIndex(TransformerMixin, BaseEstimator):
    """Reads of targets what only a Series has, and does without elsewhere."""

    def fit(self, X, y):
        self.mean_ = X[y.index % 2 == 0].mean(axis=0) if hasattr(y, "index") else np.inf
        return self

    def transform(self, X):
        return np.tanh(X - self.mean_)


@pytest.mark.parametrize("final", [KernelRidge(), KernelLogisticRegression(tol=1e-9), SVC(tol=1e-9)])
@pytest.mark.parametrize("whole", [False, True], ids=["bare", "pipeline"])
@pytest.mark.parametrize("cv", [KFold(3), LeaveOneOut()], ids=["folds", "rows"])
def test_targets_keep_their_index(final, whole, cv, rng):
    """Scorers and transformers are given what GridSearchCV gives them."""
    pd = pytest.importorskip("pandas")
    X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    y = y if isinstance(final, KernelRidge) else (y > 0).astype(int)
    weights = pd.Series(rng.uniform(0.5, 2, 30))
    scoring = make_scorer(lambda y, predicted: float(np.mean((y - predicted) ** 2 * weights[y.index])))
    name = "C" if isinstance(final, SVC) else "alpha"
    if whole:
        name, final = f"{type(final).__name__.lower()}__{name}", make_pipeline(_CentredByIndex(), final)
    options = {"cv": cv, "scoring": scoring, "refit": False}
    search = PathCV(final, param_grid={name: [0.1, 1.0]}, **options).fit(X, pd.Series(y))
    theirs = GridSearchCV(final, {name: [0.1, 1.0]}, **options).fit(X, pd.Series(y))
    np.testing.assert_allclose(splits_of(search), splits_of(theirs), rtol=1e-7)


@pytest.mark.parametrize("estimator", [KernelRidge, KernelLogisticRegression])
def test_kernel_values_out_of_range_are_told_by_the_fits(estimator):
    X, y = 1e200 * np.eye(6), np.array([0, 1] * 3)
    with pytest.raises(ValueError, match=r"(?s)All the 6 fits failed.*infinite or NaN in row 0"):
        PathCV(estimator(kernel=Linear()), alphas=[0.1, 1.0], cv=KFold(3)).fit(X, y)


def test_a_transformer_that_fails_is_told_as_by_grid_search():
    def refuse(X):
        raise ValueError("no such column")

    X, y = diabetes(30)
    search = PathCV(make_pipeline(FunctionTransformer(refuse), KernelRidge()), alphas=[1.0], cv=3)
    with pytest.raises(ValueError, match=r"(?s)All the 3 fits failed.*no such column"):
        search.fit(X, y)


@pytest.mark.filterwarnings("ignore:Scoring failed")
@pytest.mark.filterwarnings("ignore:One or more")
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_rows_of_another_width_are_told_as_by_grid_search(make):
    def narrow(X):
        return make(X[:, : 1 + (len(X) > 10)])

    X, y = diabetes(30)
    pipeline, options = make_pipeline(FunctionTransformer(narrow), KernelRidge()), {"cv": 3, "refit": False}
    search = PathCV(pipeline, alphas=[1.0], **options).fit(X, y)
    theirs = GridSearchCV(pipeline, {"kernelridge__alpha": [1.0]}, **options).fit(X, y)
    np.testing.assert_array_equal(splits_of(search), splits_of(theirs))
    assert np.isnan(search.test_error_).all()


@pytest.mark.parametrize("estimator", [KernelRidge, KernelRegressor])
@pytest.mark.parametrize("bad", [{"alpha": [-1.0]}, {"kernel": [lambda x, z: 1 / 0]}, {"solver": ["no"]}])
def test_cells_that_fail_are_scored_as_such(estimator, bad):
    X, y = diabetes(12)
    search = PathCV(estimator(), param_grid=[{"alpha": [1.0]}, bad], cv=3)
    with (
        pytest.warns(FitFailedWarning, match="3 fits failed out of a total of 6"),
        pytest.warns(UserWarning, match="non-finite"),
    ):
        search.fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).tolist() == [True, False]


def test_a_singular_matrix_without_penalty_fails_where_the_fit_does():
    X = np.repeat(np.arange(6.0), 2)[:, None]
    search = PathCV(KernelRidge(fit_intercept=False), alphas=[0.0, 1.0], cv=KFold(2))
    with (
        pytest.warns(FitFailedWarning, match="(?s)2 fits failed out of a total of 4.*not positive definite"),
        pytest.warns(UserWarning, match="non-finite"),
    ):
        search.fit(X, X[:, 0])
    assert search.best_alpha_ == 1.0


class TestOneRowLeftOut:
    def test_the_pooled_score(self, monkeypatch):
        X, y = diabetes(40)
        search = PathCV(KernelRidge(kernel="rbf"), alphas=ALPHAS, cv="loo")
        searched(search, X, y, monkeypatch)
        for cell, score, errors in zip(
            ALPHAS, search.cv_results_["mean_test_score"], search.test_error_, strict=True
        ):
            held_out = [
                KernelRidge(alpha=cell, kernel="rbf")
                .fit(np.delete(X, i, 0), np.delete(y, i))
                .predict(X[[i]])[0]
                for i in range(40)
            ]
            assert score == pytest.approx(r2_score(y, held_out), rel=1e-8)
            np.testing.assert_allclose(errors, (y - held_out) ** 2, rtol=1e-6, atol=1e-10)
        assert search.n_splits_ == 1
        assert search.alpha_1se_ >= search.best_alpha_

    def test_the_splitter(self, monkeypatch):
        X, y = diabetes(40)
        search = PathCV(
            KernelRidge(kernel="rbf"), alphas=ALPHAS, cv=LeaveOneOut(), scoring="neg_mean_squared_error"
        )
        searched(search, X, y, monkeypatch)
        np.testing.assert_allclose(splits_of(search), by_fits(search, X, y), rtol=1e-6, atol=1e-10)
        other = PathCV(
            KernelRidge(kernel="rbf"), alphas=ALPHAS, cv=LeaveOneOut(), scoring="neg_median_absolute_error"
        )
        searched(other, X, y, monkeypatch)
        np.testing.assert_allclose(splits_of(other), -np.sqrt(-splits_of(search)), rtol=1e-8)

    def test_weights(self, monkeypatch, rng):
        X, y = diabetes(30)
        weights = rng.choice([0.5, 1.0, 2.0], 30)
        search = PathCV(
            KernelRidge(kernel="rbf"), alphas=ALPHAS, cv=LeaveOneOut(), scoring="neg_mean_squared_error"
        )
        searched(search, X, y, monkeypatch, sample_weight=weights)
        np.testing.assert_allclose(splits_of(search), by_fits(search, X, y, weights), rtol=1e-6, atol=1e-10)

    def test_pooled_rows_count_by_weight_as_repeated_ones(self, monkeypatch, rng):
        pytest.importorskip("matplotlib").use("Agg")
        # the splitter leaves out all copies of a row
        X, y = diabetes(30)
        counts = rng.integers(0, 3, 30)
        search = PathCV(KernelRidge(kernel="rbf"), alphas=ALPHAS, cv="loo", scoring="neg_mean_squared_error")
        searched(search, X, y, monkeypatch, sample_weight=counts)
        rows = np.repeat(np.arange(30), counts)
        copies = clone(search).set_params(cv=LeaveOneGroupOut()).fit(X[rows], y[rows], groups=rows)
        each = counts[counts > 0]
        expected = np.average(splits_of(copies), axis=1, weights=each)
        np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-8)
        display = ErrorPathDisplay.from_estimator(search)
        np.testing.assert_allclose(display.test_errors[:, 0], -expected[np.argsort(ALPHAS)], rtol=1e-8)

    def test_a_fold_that_trains_on_its_own_row(self, monkeypatch):
        X, y = diabetes(20)
        cv = [(np.arange(19), [row]) for row in range(20)]
        search = PathCV(KernelRidge(kernel="rbf"), alphas=ALPHAS, cv=cv, scoring="neg_mean_squared_error")
        searched(search, X, y, monkeypatch)
        np.testing.assert_allclose(splits_of(search), by_fits(search, X, y), rtol=1e-6, atol=1e-10)

    def test_g18_r2_of_one_row(self):
        X, y = np.arange(1.0, 5.0)[:, None], np.array([1.0, 2.0, 2.0, 5.0])
        model = KernelRidge(fit_intercept=False)
        with (
            pytest.warns(UndefinedMetricWarning, match="not defined for folds of a single row"),
            pytest.warns(UserWarning, match="non-finite"),
        ):
            search = PathCV(model, alphas=[1.0], cv=LeaveOneOut()).fit(X, y)
        assert np.isnan(splits_of(search)).all()
        pooled = PathCV(model, alphas=[1.0], cv="loo").fit(X, y)
        assert pooled.best_score_ == pytest.approx(0.30481685542291603, rel=1e-12)
        held_out = np.array([1.0, 2.0, 3.409090909090909, 2.933333333333333])
        np.testing.assert_allclose(pooled.test_error_[0], (y - held_out) ** 2, atol=1e-12)

    def test_others_are_refused(self):
        X, y = diabetes(20)
        with pytest.raises(ValueError, match=r"cv='loo' is for KernelRidge.*pass cv=LeaveOneOut\(\)"):
            PathCV(KernelRidge(solver="cg"), alphas=[1.0], cv="loo").fit(X, y)
        pipeline = make_pipeline(StandardScaler(), KernelRidge())
        with pytest.raises(ValueError, match=r"fitted without each row; pass cv=LeaveOneOut\(\)"):
            PathCV(pipeline, alphas=[1.0], cv="loo").fit(X, y)
        with pytest.raises(ValueError, match="leave return_train_score out"):
            PathCV(KernelRidge(), alphas=[1.0], cv="loo", return_train_score=True).fit(X, y)
        with pytest.raises(ValueError, match="cv='jackknife' is unknown"):
            PathCV(KernelRidge(), alphas=[1.0], cv="jackknife").fit(X, y)
        with pytest.raises(ValueError, match="predicts each row by all others, got 1 row of positive weight"):
            PathCV(KernelRidge(), alphas=[1.0], cv="loo").fit(X[:1], y[:1])
        with pytest.raises(ValueError, match="got 1 row of positive weight"):
            PathCV(KernelRidge(), alphas=[1.0], cv="loo").fit(X, y, sample_weight=np.eye(20)[0])


def test_g17_the_errors_of_both_routes():
    X, y = np.arange(1.0, 5.0)[:, None], np.array([1.0, 3.0, 2.0, 5.0])
    for kernel, rows in (("linear", X), ("precomputed", X @ X.T)):
        search = PathCV(KernelRidge(kernel=kernel, fit_intercept=False), alphas=[1.0], cv=KFold(2))
        search.fit(rows, y)
        np.testing.assert_allclose(search.test_error_[0], [0.5, 1.1805555555555556], rtol=1e-12)
    with pytest.raises(ValueError, match="square"):
        PathCV(KernelRidge(kernel="precomputed"), alphas=[1.0], cv=2).fit((X @ X.T)[:, :2], y)


class TestChoices:
    def test_a_grid_from_the_spectrum(self):
        X, y = diabetes()
        search = PathCV(KernelRidge(kernel="rbf"), cv=3).fit(X, y)
        alphas = search.cv_results_["param_alpha"].data.astype(float)
        K = RBF(0.1)(X)
        H = np.eye(len(X)) - 1 / len(X)
        largest = np.linalg.eigvalsh(H @ K @ H)[-1]
        assert len(alphas) == 22
        assert largest <= alphas.max() <= 10 * largest
        np.testing.assert_allclose(alphas.max() / alphas.min(), 1e7)

    @pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
    @pytest.mark.parametrize("machine", [KernelRidge, KernelRegressor])
    def test_a_grid_without_the_rows_of_no_weight(self, machine, kernel):
        X, y = diabetes(60)
        X[::4], weights = 1e4, np.where(np.arange(60) % 4, 2.0, np.arange(60) % 8 / -4)
        kept = weights > 0
        samples, rest = (X @ X.T, (X @ X.T)[np.ix_(kept, kept)]) if kernel == "precomputed" else (X, X[kept])
        search = PathCV(machine(kernel=kernel, gamma="scale"), cv=3)
        assert search._alphas(samples, y, weights) == search._alphas(rest, y[kept], weights[kept])

    @pytest.mark.parametrize(
        "X", [np.ones((12, 2)), 1e-150 * np.arange(12.0)[:, None], np.arange(12.0)[:, None]]
    )
    def test_a_grid_for_degenerate_rows(self, X):
        search = PathCV(KernelRidge(), cv=3, scoring="neg_mean_squared_error").fit(X, np.arange(12.0))
        alphas = np.array([cell["alpha"] for cell in search.cv_results_["params"]])
        assert np.isfinite(alphas).all()
        assert (alphas > 0).all()

    def test_no_grid_where_alpha_is_not_to_be_searched(self):
        X, y = diabetes(40)
        search = PathCV(KernelRidge(), param_grid={"alpha": [0.5, 2.0]}, cv=3).fit(X, y)
        assert len(search.cv_results_["params"]) == 2
        assert search.best_alpha_ in (0.5, 2.0)

    def test_the_one_standard_error_choice(self):
        X, y = diabetes()
        search = PathCV(KernelRidge(kernel="rbf"), alphas=np.logspace(-4, 3, 15), cv=5).fit(X, y)
        scores = splits_of(search)
        mean, error = scores.mean(axis=1), scores.std(axis=1, ddof=1) / np.sqrt(5)
        best = mean.argmax()
        near = [a for a, m in zip(np.logspace(-4, 3, 15), mean, strict=True) if m >= mean[best] - error[best]]
        assert search.alpha_1se_ == pytest.approx(max(near))
        assert search.alpha_1se_ > search.best_alpha_

    def test_what_an_earlier_fit_found_does_not_stay(self):
        X, y = diabetes(40)
        search = PathCV(KernelRidge(), alphas=[1.0], cv=3).fit(X, y)
        search.set_params(estimator=KernelRidge(solver="cg"), alphas=None, param_grid={"alpha": [1.0]})
        search.fit(X, y)
        assert not hasattr(search, "train_error_")


@pytest.mark.parametrize(
    ("alphas", "match"),
    [
        ([], "alphas is empty"),
        ([1.0, -1.0], r"alphas\[1\] must be at least 0, got -1.0"),
        ([1.0, 2.0, 1.0], r"alphas\[2\] repeats alphas\[0\], 1.0"),
        ([1.0, np.nan], r"alphas\[1\] must be at least 0"),
        ([np.inf], r"alphas\[0\] must be finite"),
    ],
)
def test_bad_grids(alphas, match):
    with pytest.raises(ValueError, match=match):
        PathCV(KernelRidge(), alphas=alphas).fit(*diabetes(20))


def test_an_estimator_without_alpha():
    with pytest.raises(ValueError, match="alphas: SVC has no parameter alpha"):
        PathCV(SVC(), alphas=[1.0]).fit(np.eye(6), [0, 1] * 3)


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_change_nothing(n_jobs):
    X, y = diabetes()
    alphas = np.logspace(-4, 2, 10)
    one = PathCV(KernelRidge(kernel="rbf"), alphas=alphas, cv=4, n_jobs=1).fit(X, y)
    more = PathCV(KernelRidge(kernel="rbf"), alphas=alphas, cv=4, n_jobs=n_jobs).fit(X, y)
    np.testing.assert_array_equal(splits_of(one), splits_of(more))


def test_the_callers_arrays_stay():
    X, y = diabetes(40)
    weights = np.ones(40)
    kept = X.copy(), y.copy()
    PathCV(KernelRidge(kernel="precomputed"), alphas=ALPHAS, cv=3).fit(X @ X.T, y, sample_weight=weights)
    PathCV(KernelRidge(kernel="rbf"), alphas=ALPHAS, cv="loo").fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(X, kept[0])
    np.testing.assert_array_equal(y, kept[1])
    np.testing.assert_array_equal(weights, 1)


def classes(n_classes, n=90, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return rng.standard_normal((n, 3)) + 1.5 * np.eye(n_classes, 3)[y], np.array(["ant", "bee", "cow"])[y]


COSTS = {
    "softmax of two": (KernelLogisticRegression(), 2),
    "softmax of three": (KernelLogisticRegression(gamma=0.3, class_weight="balanced"), 3),
    "no intercept": (KernelLogisticRegression(kernel=RBF(0.5), fit_intercept=False), 3),
    "squared margin": (SquaredMarginClassifier(class_weight={"ant": 2.0, "bee": 1.0}), 2),
    "one against the rest": (SquaredMarginClassifier(gamma=0.3), 3),
    "joint": (SquaredMarginClassifier(gamma=0.3, multiclass="joint"), 3),
    "pipeline": (make_pipeline(StandardScaler(), KernelLogisticRegression()), 3),
    "huber": (KernelRegressor("huber"), 0),
    "poisson": (KernelRegressor("poisson", gamma=0.2), 0),
}


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_costs_are_those_of_fits(name, weighted, monkeypatch, rng):
    estimator, n_classes = COSTS[name]
    X, y = classes(n_classes or 3)
    if not n_classes:
        y = rng.poisson(np.exp(X[:, 0])).astype(float)
    weights = rng.choice([0.0, 1.0, 2.0], len(y)) if weighted else None
    # a decision tells far more than a label
    scoring = {"logistic": "neg_log_loss", "squared": mean_decision()}
    kind = "squared" if "Squared" in repr(estimator) else "logistic" if n_classes else None
    search = PathCV(estimator, alphas=[1e-3, 10.0, 0.3], cv=3, scoring=scoring.get(kind))
    searched(search, X, y, monkeypatch, sample_weight=weights)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y, weights), rtol=1e-5, atol=1e-7)
    if n_classes:
        labels = np.array([np.mean(search.predict(X) != y)])
        assert labels < 0.4
        assert search.train_error_.shape == search.test_error_.shape == (3, 3)


def test_a_target_that_has_no_weight_takes_no_digits_of_the_others(rng):
    X = rng.normal(size=(40, 2))
    y, weights = X[:, 0] + 0.1 * rng.normal(size=40), np.ones(40)
    weights[3] = 0.0
    search = PathCV(KernelRegressor("huber"), alphas=[0.1, 1.0], cv=KFold(4))
    scores = splits_of(search.fit(X, y, sample_weight=weights))
    y[3] = 1e18
    np.testing.assert_allclose(splits_of(search.fit(X, y, sample_weight=weights)), scores, rtol=1e-12)


def test_a_fold_without_a_class_is_fitted_by_itself():
    X, y = classes(3)
    cv = [(np.flatnonzero(y != "cow"), np.arange(6)), (np.arange(60), np.arange(60, 90))]
    search = PathCV(KernelLogisticRegression(), alphas=ALPHAS, cv=cv).fit(X, y)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y), atol=1e-12)


def test_a_fold_of_one_class_is_named():
    X, y = classes(2)
    order = np.argsort(y, kind="stable")
    with pytest.raises(ValueError, match=r"the training rows of fold 0 are all of class 'bee'; stratify"):
        PathCV(KernelLogisticRegression(), alphas=ALPHAS, cv=KFold(2)).fit(X[order], y[order])


def test_continuous_labels():
    X, _ = classes(2)
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        PathCV(KernelLogisticRegression(), alphas=ALPHAS, cv=KFold(3)).fit(X, X[:, 0])


def test_grids_of_costs_from_the_spectrum():
    X, y = classes(2, 40)
    search = PathCV(SquaredMarginClassifier(), cv=3).fit(X, y)
    assert len(search.cv_results_["params"]) == 22
    targets = np.random.default_rng(0).poisson(3.0, 40).astype(float)
    assert PathCV(KernelRegressor("poisson"), cv=3).fit(X, targets).best_alpha_ > 0


@pytest.mark.parametrize("few_rows", [0, 1000])
@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_change_nothing_of_costs(n_jobs, few_rows, monkeypatch):
    monkeypatch.setattr("mercer.model_selection._families._FEW_ROWS", few_rows)
    X, y = classes(3, 60)
    one, more = (
        PathCV(
            KernelLogisticRegression(random_state=0),
            alphas=[0.01, 1.0],
            cv=5,
            scoring="neg_log_loss",
            n_jobs=n,
        ).fit(X, y)
        for n in (1, n_jobs)
    )
    np.testing.assert_array_equal(splits_of(one), splits_of(more))


def test_stratified_folds_are_the_default_of_classes():
    X, y = np.random.default_rng(0).standard_normal((30, 2)), np.repeat([0, 1, 2], 10)
    own = PathCV(KernelLogisticRegression(), alphas=[0.1, 1.0], cv=5).fit(X, y)
    same = PathCV(KernelLogisticRegression(), alphas=[0.1, 1.0], cv=StratifiedKFold(5)).fit(X, y)
    np.testing.assert_array_equal(splits_of(own), splits_of(same))


@pytest.mark.parametrize("estimator", [KernelRidge(kernel="rbf"), KernelLogisticRegression()])
def test_an_interrupt_ends_it_and_leaves_it_as_it_was(estimator):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 4))
    y = (X[:, 0] > 0).astype(float)
    search = PathCV(estimator, alphas=np.logspace(-6, 2, 30), cv=5)
    small = PathCV(estimator, alphas=[1.0], cv=2).fit(X[:20], y[:20])
    search.__dict__.update({name: value for name, value in small.__dict__.items() if name.endswith("_")})
    before = search.best_score_
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, y)
    assert search.best_score_ == before

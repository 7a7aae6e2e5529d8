"""Classifiers that minimise a cost: against scikit-learn, labels, weights, forms of input, conduct."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from mercer.estimators import _cost_problem
from mercer.estimators.classification import KernelLogisticRegression, SquaredMarginClassifier
from mercer.kernels import RBF, Linear, SetIntersection, Sigmoid, Spectrum

CLASSIFIERS = [
    KernelLogisticRegression(),
    SquaredMarginClassifier(),
    SquaredMarginClassifier(multiclass="joint"),
]
every_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS, ids=str)
intercepts = pytest.mark.parametrize("fit_intercept", [True, False])


def fresh(classifier, **params):
    return clone(classifier).set_params(**params)


@pytest.fixture
def data(rng):
    X = rng.normal(size=(60, 3))
    y = np.digitize(X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=60), [-0.7, 0.7])
    return X, y, rng.normal(size=(25, 3))


@pytest.fixture(params=["float32", "nine places"])
def rounded(request, rng):
    X = rng.normal(size=(100, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=100) > 0).astype(int)
    K = RBF(gamma=0.3)(X)
    return X, y, K.astype(np.float32) if request.param == "float32" else np.round(K, 9)


def standardised(name):
    loaders = {"cancer": load_breast_cancer, "iris": load_iris, "wine": load_wine, "digits": load_digits}
    X, y = loaders[name](return_X_y=True)
    X = X[::3] if len(X) > 200 else X
    y = y[::3] if len(y) > 200 else y
    scale = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0), y


class TestAgainstScikitLearn:
    @intercepts
    @pytest.mark.parametrize("name", ["cancer", "iris", "wine"])
    @pytest.mark.parametrize("alpha", [1.0, 0.05])
    def test_a_linear_kernel_is_logistic_regression(self, name, alpha, fit_intercept):
        X, y = standardised(name)
        model = KernelLogisticRegression(alpha, kernel="linear", fit_intercept=fit_intercept).fit(X, y)
        reference = LogisticRegression(
            C=1 / (2 * alpha), solver="newton-cholesky", tol=1e-10, max_iter=1000, fit_intercept=fit_intercept
        ).fit(X, y)
        assert model.converged_
        expected = reference.decision_function(X)
        np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-6 * np.abs(expected).max())
        np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=1e-6)
        coefficients = model.X_fit_.T @ model.dual_coef_
        size = np.abs(reference.coef_).max()
        np.testing.assert_allclose(
            coefficients.T.reshape(reference.coef_.shape), reference.coef_, atol=1e-6 * size
        )
        np.testing.assert_allclose(np.ravel(model.intercept_), reference.intercept_, atol=1e-5)

    @pytest.mark.parametrize("solver", ["newton", "lbfgs"])
    def test_solvers_agree_on_digits(self, solver):
        X, y = (each[:300] for each in standardised("digits"))
        options = {"alpha": 0.1, "random_state": 0}
        model = KernelLogisticRegression(solver=solver, **options).fit(X, y)
        auto = KernelLogisticRegression(**options).fit(X, y)
        assert model.converged_
        assert model.solver_used_ == solver
        assert 0 <= auto.duality_gap_ <= 1e-12 * auto.objective_
        np.testing.assert_allclose(model.objective_, auto.objective_, rtol=1e-8)
        np.testing.assert_allclose(model.predict_proba(X), auto.predict_proba(X), atol=1e-4)

    @every_classifier
    @pytest.mark.parametrize("solver", ["gd", "sgd"])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_descent_comes_near_and_keeps_its_history(self, classifier, solver, data):
        X, y, _ = data
        model = fresh(classifier, solver=solver, random_state=0).fit(X, y)
        exact = clone(classifier).fit(X, y)
        assert model.solver_used_ == solver
        # Batches go on wandering about the minimum: of the joint margin 3% above it, said by a warning.
        rtol = 1e-2 if solver == "gd" or "joint" not in repr(classifier) else 5e-2
        np.testing.assert_allclose(np.sum(model.objective_), np.sum(exact.objective_), rtol=rtol)
        histories = model.history_ if isinstance(model.history_, list) else [model.history_]
        for history in histories:
            assert history["objective"][-1] < history["objective"][0]
            assert len(history["objective"]) == len(history["step"]) + 1
        assert not hasattr(model.set_params(solver="auto").fit(X, y), "history_")

    def test_multiclass_forms_of_the_squared_margin(self, data):
        X, y, Z = data
        rest = SquaredMarginClassifier(0.1, gamma=0.5).fit(X, y)
        for k in range(3):
            alone = SquaredMarginClassifier(0.1, gamma=0.5).fit(X, y == k)
            np.testing.assert_allclose(rest.decision_function(Z)[:, k], alone.decision_function(Z), atol=1e-6)
            np.testing.assert_allclose(rest.objective_[k], alone.objective_, rtol=1e-12)
        joint = SquaredMarginClassifier(0.1, gamma=0.5, multiclass="joint").fit(X, y)
        np.testing.assert_allclose(joint.dual_coef_.sum(axis=1), 0, atol=1e-8)
        assert np.ndim(joint.objective_) == 0
        # Beyond the margin coefficients are 0.
        beyond = np.where(y[:, None] == np.arange(3), 1, -1) * rest.decision_function(X) > 1 + 1e-6
        assert beyond.any()
        assert not rest.dual_coef_[beyond].any()

    @pytest.mark.parametrize("alpha", [1e4, 1e5])
    def test_descent_with_an_intercept_that_the_penalty_outruns(self, alpha):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(40, 2)), (rng.random(40) < 0.2).astype(int)
        model = KernelLogisticRegression(alpha, gamma=0.5, solver="gd").fit(X, y)
        exact = KernelLogisticRegression(alpha, gamma=0.5).fit(X, y)
        assert model.objective_ == pytest.approx(exact.objective_, rel=1e-7)
        assert model.n_iter_ < 4000


class TestLabels:
    def test_g10_one_class(self):
        for classifier in CLASSIFIERS:
            with pytest.raises(
                ValueError, match=r"number of classes has to be greater than one; got 1 class"
            ):
                clone(classifier).fit([[0.0], [1.0]], ["a", "a"])

    @every_classifier
    @pytest.mark.parametrize("labels", [[False, True], ["no", "yes"], [3, 7], [-1.0, 1.0]], ids=str)
    def test_g10_labels_come_back_with_their_type(self, classifier, labels):
        model = fresh(classifier, gamma=1.0).fit([[-1.0], [1.0]], labels)
        predicted = model.predict([[2.0], [-2.0]])
        assert predicted.tolist() == labels[::-1]
        assert predicted.dtype == np.array(labels).dtype
        assert model.classes_.tolist() == labels

    def test_g10_probabilities_of_a_known_problem(self):
        model = KernelLogisticRegression(0.5, kernel="linear", fit_intercept=False).fit(
            [[-1.0], [1.0]], [0, 1]
        )
        np.testing.assert_allclose(
            model.predict_proba([[-1.0], [1.0]])[:, 1], [0.3374158071711997, 0.6625841928288003], atol=1e-9
        )

    def test_g10_softmax_of_very_negative_scores(self, data):
        X, y, _ = data
        model = KernelLogisticRegression(gamma=0.5).fit(X, y)
        model._decisions = lambda X: np.array([[-1000.0, -1001.0, -1002.0]])
        expected = [[0.6652409557748219, 0.24472847105479764, 0.09003057317038046]]
        np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-12)

    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_predictions_are_of_the_largest_probability(self, data, n_classes):
        X, y, Z = data
        y = np.array(["a", "b", "c"])[y % n_classes]
        model = KernelLogisticRegression(1e-4, gamma=0.5).fit(X, y)
        p = model.predict_proba(Z)
        np.testing.assert_array_equal(model.predict(Z), model.classes_[np.argmax(p, axis=1)])
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(Z)), p, rtol=1e-12)
        f = model.decision_function(Z)
        order = f > 0 if n_classes == 2 else np.argmax(f, axis=1)
        np.testing.assert_array_equal(model.predict(Z), model.classes_[np.asarray(order, dtype=int)])

    def test_certain_rows_have_finite_logarithms(self, data):
        X, y, _ = data
        for targets in (y, y > 0):
            model = KernelLogisticRegression(gamma=0.5).fit(X, targets)
            large = np.array([[2e3, 0.0, -2e3]]) if targets is y else np.array([2e3])
            model._decisions = lambda X, large=large: large
            assert np.isfinite(model.predict_log_proba(X)).all()
            assert model.predict_proba(X).max() == 1.0

    def test_the_squared_margin_has_no_probabilities(self):
        assert not hasattr(SquaredMarginClassifier(), "predict_proba")

    @every_classifier
    def test_continuous_labels(self, classifier, data):
        X, _, _ = data
        with pytest.raises(ValueError, match="continuous"):
            clone(classifier).fit(X, X[:, 0])

    @every_classifier
    @pytest.mark.parametrize("odd", [7, b"a"], ids=repr)
    def test_labels_without_an_order(self, classifier, data, odd):
        X, _, _ = data
        y = np.array(["a", "b"] * (len(X) // 2), dtype=object)
        y[3] = odd
        kind = type(odd).__name__
        with pytest.raises(TypeError, match=rf"y holds {odd!r} \({kind}\) at row 3 among .* 'a' \(str\)"):
            clone(classifier).fit(X, y)


class TestWeights:
    @every_classifier
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_g11_weight_0_is_a_row_less_and_2_a_row_more(self, classifier, data, form, rng):
        X, y, Z = data
        w = rng.integers(0, 3, size=60)
        rows = np.repeat(np.arange(60), w)
        weighted = clone(classifier).fit(form(X), y, w)
        repeated = clone(classifier).fit(form(X[rows]), y[rows])
        np.testing.assert_allclose(weighted.decision_function(Z), repeated.decision_function(Z), atol=1e-6)
        np.testing.assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-9)
        assert len(weighted.X_fit_[:].shape) == 2
        assert weighted.X_fit_.shape[0] == np.count_nonzero(w)

    @every_classifier
    def test_g12_balanced_goes_by_weights(self, classifier):
        X, y = np.array([[0.0], [1], [2], [3], [4]]), [0, 0, 0, 1, 1]
        model = fresh(classifier, gamma=0.5, class_weight="balanced")
        expected = {
            None: [0.8333333333333334, 1.25],
            (2, 1, 0, 3, 0): [1.0, 1.0],
            (1, 1, 1, 4, 2): [1.5, 0.75],
        }
        for weights, factors in expected.items():
            model.fit(X, y, weights)
            np.testing.assert_allclose(model.class_weight_, factors, rtol=1e-12)
        rows = np.repeat(np.arange(5), [1, 1, 1, 4, 2])
        repeated = clone(model).fit(X[rows], np.array(y)[rows])
        np.testing.assert_allclose(model.decision_function(X), repeated.decision_function(X), atol=1e-7)
        given = fresh(classifier, gamma=0.5, class_weight={0: 1.5, 1: 0.75}).fit(X, y, [1, 1, 1, 4, 2])
        np.testing.assert_allclose(model.decision_function(X), given.decision_function(X), atol=1e-7)

    @every_classifier
    @pytest.mark.parametrize("by", ["sample_weight", "class_weight"])
    def test_a_class_without_weight_is_never_predicted(self, classifier, data, by):
        X, y, Z = data
        if by == "sample_weight":
            model = clone(classifier).fit(X, y, (y != 1).astype(float))
        else:
            model = fresh(classifier, class_weight={1: 0.0}).fit(X, y)
        assert model.classes_.tolist() == [0, 1, 2]
        assert not (model.predict(Z) == 1).any()
        f = model.decision_function(Z)
        assert f.shape == (25, 3)
        assert (f[:, 1] < np.minimum(f[:, 0], f[:, 2])).all()
        if hasattr(model, "predict_proba"):
            p = model.predict_proba(Z)
            assert not p[:, 1].any()
            alone = KernelLogisticRegression(gamma=model.kernel_.gamma).fit(X[y != 1], y[y != 1])
            np.testing.assert_allclose(p[:, [0, 2]], alone.predict_proba(Z), atol=1e-6)

    @every_classifier
    def test_one_class_with_weight(self, classifier, data):
        X, y, _ = data
        with pytest.raises(ValueError, match="positive weights belong to the same class"):
            clone(classifier).fit(X, y, (y == 1).astype(float))
        with pytest.raises(ValueError, match="sample_weight has no positive entry"):
            clone(classifier).fit(X, y, np.zeros(60))
        with pytest.raises(ValueError, match=r"zero or negative weights.*Of class_weight=.* two must be"):
            clone(classifier).set_params(class_weight=dict.fromkeys(np.unique(y), 0)).fit(X, y)


class TestInput:
    @every_classifier
    def test_forms_of_one_matrix(self, classifier, data, tmp_path):
        X, y, Z = data
        X, Z = np.where(X > 0, X, 0), np.where(Z > 0, Z, 0)
        np.save(tmp_path / "X.npy", X)
        expected = clone(classifier).fit(X, y).decision_function(Z)
        read_only = X.copy()
        read_only.flags.writeable = False
        forms = [np.asfortranarray(X), read_only, np.load(tmp_path / "X.npy", mmap_mode="r"), X.tolist()]
        forms += [sp.csr_array(X), sp.csc_matrix(X), np.repeat(X, 2, axis=0)[::2]]
        for form in forms:
            model = clone(classifier).fit(form, y)
            np.testing.assert_allclose(model.decision_function(Z), expected, atol=1e-6)
            np.testing.assert_allclose(model.decision_function(sp.csr_array(Z)), expected, atol=1e-6)

    @every_classifier
    def test_float32_in_float32_out(self, classifier, data):
        X, y, Z = data
        exact = clone(classifier).fit(X, y)
        model = clone(classifier).fit(X.astype(np.float32), y)
        single = model.decision_function(Z.astype(np.float32))
        assert single.dtype == model.dual_coef_.dtype == model.intercept_.dtype == np.float32
        np.testing.assert_allclose(single, exact.decision_function(Z), atol=1e-4)
        if hasattr(model, "predict_proba"):
            assert model.predict_proba(Z.astype(np.float32)).dtype == np.float32

    @every_classifier
    def test_data_frames_keep_their_names(self, classifier, data):
        X, y, Z = data
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        model = clone(classifier).fit(frame, pd.Series(y))
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(pd.DataFrame(Z, columns=["b", "a", "c"]))

    @every_classifier
    @pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
    def test_g09_the_callers_arrays_are_neither_kept_nor_changed(self, classifier, data, kernel):
        X, y, Z = data
        queries = Z
        if kernel == "precomputed":
            X, queries = RBF(gamma=0.3)(X), RBF(gamma=0.3)(Z, X)
        w = np.linspace(0.5, 1.5, 60)
        arrays = [X, y, w]
        copies = [each.copy() for each in arrays]
        model = fresh(classifier, kernel=kernel, warm_start=True).fit(X, y, w)
        before = model.decision_function(queries)
        for array, copy in zip(arrays, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
            array[:] = 1
        np.testing.assert_array_equal(model.decision_function(queries), before)

    @every_classifier
    def test_kernels_by_name_expression_function_and_matrix(self, classifier, data):
        X, y, Z = data
        expected = fresh(classifier, kernel="rbf", gamma=0.3).fit(X, y).decision_function(Z)
        kernel = RBF(gamma=0.3)

        def function(x, z, gamma):
            return np.exp(-gamma * np.sum((x - z) ** 2))

        others = [
            fresh(classifier, kernel=kernel).fit(X, y).decision_function(Z),
            fresh(classifier, kernel=function, kernel_params={"gamma": 0.3}).fit(X, y).decision_function(Z),
            fresh(classifier, kernel="precomputed").fit(kernel(X), y).decision_function(kernel(Z, X)),
            fresh(classifier, kernel=kernel, memory_budget=1.0).fit(X, y).decision_function(Z),
        ]
        for other in others:
            np.testing.assert_allclose(other, expected, atol=1e-6)

    @every_classifier
    def test_a_given_matrix_and_rows_without_weight(self, classifier, data):
        X, y, Z = data
        kernel, w = RBF(gamma=0.3), (np.arange(60) % 3 > 0).astype(float)
        model = fresh(classifier, kernel="precomputed").fit(kernel(X), y, w)
        assert not model.dual_coef_[w == 0].any()
        alone = fresh(classifier, kernel=kernel).fit(X[w > 0], y[w > 0])
        np.testing.assert_allclose(
            model.decision_function(kernel(Z, X)), alone.decision_function(Z), atol=1e-6
        )

    def test_strings_and_sets(self):
        words = ["abab", "baba", "abba", "cdcd", "dcdc", "cddc"]
        model = KernelLogisticRegression(0.1, kernel=Spectrum(2)).fit(words, [0, 0, 0, 1, 1, 1])
        assert model.predict(["ababab", "cdcdcd"]).tolist() == [0, 1]
        sets = [{1, 2}, {1, 3}, {7, 8}, {7, 9}]
        model = SquaredMarginClassifier(0.1, kernel=SetIntersection()).fit(
            sets, ["low", "low", "high", "high"]
        )
        assert model.predict([{1}, {7}]).tolist() == ["low", "high"]

    @every_classifier
    def test_duplicated_rows_and_opposite_labels(self, classifier):
        X, y = np.repeat([[0.0], [1.0], [2.0]], 4, axis=0), [0, 0, 1, 1, 0, 1, 0, 1, 0, 0, 0, 0]
        model = fresh(classifier, gamma=1.0, alpha=1e-6).fit(X, y)
        assert model.converged_
        assert np.isfinite(model.decision_function(X)).all()
        np.testing.assert_allclose(model.decision_function([[0.0], [1.0]]), 0, atol=1e-3)

    @every_classifier
    def test_one_feature_that_is_constant(self, classifier):
        model = clone(classifier).fit(np.ones((6, 1)), [0, 0, 0, 0, 1, 1])
        assert model.predict([[1.0]]).tolist() == [0]
        if hasattr(model, "predict_proba"):
            np.testing.assert_allclose(model.predict_proba([[1.0]]), [[2 / 3, 1 / 3]], atol=1e-9)

    @pytest.mark.parametrize(
        ("params", "error", "match"),
        [
            ({"alpha": 0.0}, ValueError, "alpha must be larger than 0"),
            ({"alpha": np.inf}, ValueError, "alpha must be finite"),
            ({"alpha": "much"}, TypeError, "alpha must be a number"),
            ({"solver": "newtn"}, ValueError, "did you mean 'newton'"),
            ({"class_weight": "balancd"}, ValueError, "did you mean 'balanced'"),
            ({"class_weight": {5: 1.0}}, ValueError, "not in class_weight"),
            ({"class_weight": [1, 2]}, TypeError, "class_weight must be a dict"),
            ({"tol": 0}, ValueError, "tol must be larger than 0"),
            ({"max_iter": 1.5}, TypeError, "max_iter must be an integer"),
            ({"approximation": 0}, ValueError, "approximation must be at least 1"),
            ({"kernel": RBF}, TypeError, r"use RBF\("),
            ({"fit_intercept": "yes"}, TypeError, "fit_intercept must be True or False"),
            ({"n_jobs": 0}, ValueError, "number of threads"),
        ],
        ids=str,
    )
    def test_wrong_parameters_are_named(self, data, params, error, match):
        X, y, _ = data
        for classifier in CLASSIFIERS:
            with pytest.raises(error, match=match):
                fresh(classifier, **params).fit(X, y)

    def test_nan_and_other_widths(self, data):
        X, y, Z = data
        model = KernelLogisticRegression().fit(X, y)
        X[3, 1] = np.nan
        with pytest.raises(ValueError, match=r"NaN"):
            KernelLogisticRegression().fit(X, y)
        with pytest.raises(ValueError, match="2 features"):
            model.predict(Z[:, :2])
        with pytest.raises(NotFittedError):
            KernelLogisticRegression().predict_proba(Z)


@every_classifier
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_matrix_that_few_rows_span_is_not_formed(classifier, form, rng, monkeypatch):
    X = rng.normal(size=(3200, 4))
    y = np.digitize(X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=3200), [-0.7, 0.7])
    w = rng.integers(0, 3, size=3200).astype(float)
    assert np.count_nonzero(w) >= _cost_problem._PROBED_FROM
    plain = fresh(classifier, alpha=0.1, kernel="precomputed").fit(X @ X.T, y, w)
    monkeypatch.setattr(_cost_problem.CostProblem, "matrix", None)
    model = fresh(classifier, alpha=0.1, kernel=Linear()).fit(form(X), y, w)
    assert model.converged_
    np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1e-10)
    np.testing.assert_allclose(model.decision_function(X), plain.decision_function(X @ X.T), atol=1e-6)


def test_a_matrix_is_formed_where_steps_with_it_are_cheaper(rng):
    X = rng.normal(size=(2000, 60))
    problem = _cost_problem.CostProblem(Linear(), X, None, approximation=None, rng=np.random.RandomState(0))
    low_rank, operators = problem._of_low_rank(1)
    V = rng.normal(size=(2000, 2))
    np.testing.assert_allclose(operators["product"](V), X @ (X.T @ V), rtol=1e-11, atol=1e-9)
    assert len(low_rank.F) == 60
    assert problem._of_low_rank(9) is None  # of ten classes


@pytest.mark.parametrize("classifier", [KernelLogisticRegression, SquaredMarginClassifier])
def test_smooth_kernels_of_many_rows_are_as_the_matrix_has_them(classifier, rng):
    X = rng.normal(size=(2000, 2))
    y = X[:, 0] + 0.5 * rng.normal(size=2000) > 0
    for gamma in (1e-4, 1e-3, 1e-2, 0.1):  # rank 6 to more than 128
        for alpha in (1.0, 1e-3):
            model = classifier(alpha, kernel=RBF(gamma=gamma)).fit(X, y)
            K = RBF(gamma=gamma)(X)
            plain = classifier(alpha, kernel="precomputed", tol=1e-10).fit(K, y)
            np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1e-9)
            np.testing.assert_allclose(model.decision_function(X), plain.decision_function(K), atol=1e-5)


class TestConduct:
    @every_classifier
    @pytest.mark.parametrize("alpha", [1e12, 1e-10])
    def test_extreme_alphas(self, classifier, data, alpha):
        X, y, Z = data
        if alpha < 1 and getattr(classifier, "multiclass", None) == "joint":
            alpha = 1e-5  # below, it is a hard margin, and steps are cut at its many kinks
        model = fresh(classifier, alpha=alpha, gamma=0.5).fit(X, y)
        assert model.converged_
        assert np.isfinite(model.decision_function(Z)).all()
        if alpha > 1:
            assert (model.predict(Z) == np.bincount(y).argmax()).all()
        if alpha > 1 and hasattr(model, "predict_proba"):
            np.testing.assert_allclose(model.predict_proba(Z), [np.bincount(y) / 60] * 25, atol=1e-9)
        if alpha < 1:
            assert model.score(X, y) == 1.0

    @pytest.mark.parametrize("alpha", [1e-308, 1e-320])
    @pytest.mark.parametrize("solver", ["newton", "lbfgs"])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    @every_classifier
    def test_an_alpha_that_takes_coefficients_out_of_the_range(self, classifier, solver, alpha, data):
        X, y, Z = data
        model = fresh(classifier, alpha=alpha, gamma=2.0, solver=solver).fit(X, y > 1)
        assert model.score(X, y > 1) == 1.0
        assert np.isfinite(model.decision_function(Z)).all()

    @pytest.mark.parametrize("solver", ["newton", "lbfgs"])
    @every_classifier
    def test_an_integer_beyond_int64_is_a_number(self, classifier, solver, data):
        X, y, _ = data
        model = fresh(classifier, alpha=10**20, solver=solver).fit(X, y)
        assert (model.predict(X) == np.bincount(y).argmax()).all()

    @pytest.mark.parametrize("solver", ["gd", "sgd"])
    @every_classifier
    def test_momentum_out_of_its_range_is_named_before_any_work(self, classifier, solver, data):
        def untouched(x, z):
            raise AssertionError

        X, y, _ = data
        model = fresh(classifier, kernel=untouched, solver=solver, momentum=1.5)
        with pytest.raises(ValueError, match=r"momentum must be at least 0 and below 1, got 1\.5"):
            model.fit(X, y)

    @pytest.mark.parametrize(
        ("n_classes", "gamma", "minimum"), [(5, 1.0, 2.50925241), (3, 0.2, 51.4591711822)]
    )
    def test_few_rows_at_a_tiny_alpha(self, n_classes, gamma, minimum):
        # Minima by Newton steps with dense factors; classes by a preconditioner each leave systems unsolved.
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(100, 2)), rng.integers(0, n_classes, 100)
        y[:n_classes] = range(n_classes)
        model = KernelLogisticRegression(1e-7, gamma=gamma, random_state=0).fit(X, y)
        assert model.objective_ == pytest.approx(minimum, rel=1e-8)
        assert model.converged_

    @pytest.mark.parametrize("solver", ["newton", "lbfgs"])
    @pytest.mark.parametrize("alpha", [1e-4, 1e-5, 1e-7, 1e-8])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_a_gap_has_what_rounding_takes(self, solver, alpha):
        rng = np.random.default_rng(0)
        X, y = 1e3 * rng.normal(size=(50, 2)), rng.integers(0, 2, 50)
        model = SquaredMarginClassifier(alpha, kernel="linear", solver=solver).fit(X, y)
        assert abs(model.objective_ - 47.43558228) <= model.duality_gap_ + 1e-8
        if solver == "newton":  # its steps are taken in the two features
            assert model.converged_
        elif alpha < 1e-6:
            assert not model.converged_

    @pytest.mark.parametrize("n_classes", [2, 3])
    @pytest.mark.parametrize("max_iter", [1, 3])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_a_gap_of_few_steps_is_one(self, n_classes, max_iter):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(25, 1)), rng.integers(0, n_classes, 25)
        early = KernelLogisticRegression(1.0, gamma=0.5, solver="lbfgs", max_iter=max_iter).fit(X, y)
        minimum = KernelLogisticRegression(1.0, gamma=0.5).fit(X, y).objective_
        assert 1e-4 < early.objective_ - minimum <= early.duality_gap_

    @pytest.mark.parametrize("solver", ["newton", "lbfgs", "gd", "sgd"])
    @every_classifier
    def test_a_kernel_that_is_not_positive_semidefinite_is_named(self, classifier, solver, rng):
        X, y = rng.normal(size=(60, 4)), rng.integers(0, 2, 60)
        kernel = Sigmoid(gamma=1.0, coef0=-1.0)
        for given, rows in (
            (kernel, X),
            ("precomputed", kernel(X)),
            ("precomputed", -np.eye(60)),
            (lambda x, z: np.tanh(x @ z - 1), X),
        ):
            model = fresh(classifier, kernel=given, alpha=0.01, solver=solver, random_state=0)
            with pytest.warns(ConvergenceWarning, match="not positive semidefinite.*check_psd"):
                model.fit(rows, y)
            assert not model.converged_

    @pytest.mark.parametrize("solver", ["newton", "lbfgs", "gd"])
    @every_classifier
    def test_a_kernel_that_is_but_for_rounding_is_not(self, classifier, solver, rounded):
        X, y, K = rounded
        model = fresh(classifier, kernel="precomputed", alpha=1.0, solver=solver).fit(K, y)
        exact = fresh(classifier, kernel=RBF(gamma=0.3), alpha=1.0, solver=solver).fit(X, y)
        assert model.converged_
        assert model.objective_ == pytest.approx(exact.objective_, rel=1e-5)

    @intercepts
    @pytest.mark.parametrize("alpha", [1e-4, 1e-2, 100.0])
    @every_classifier
    def test_lbfgs_leaves_out_what_rounding_makes_negative(self, classifier, alpha, fit_intercept, rounded):
        _, y, K = rounded
        options = {"kernel": "precomputed", "alpha": alpha, "fit_intercept": fit_intercept}
        model = fresh(classifier, solver="lbfgs", **options).fit(K, y)
        minimum = fresh(classifier, **options).fit(K, y).objective_
        assert model.converged_
        assert model.objective_ == pytest.approx(minimum, rel=1e-8)

    @every_classifier
    def test_lbfgs_starts_warm_without_what_another_kernel_left(self, classifier, rng):
        X, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
        model = fresh(classifier, alpha=1e-4, solver="lbfgs", warm_start=True).fit(X, y)
        model.set_params(kernel="linear", alpha=1e6).fit(X, y)
        minimum = fresh(classifier, kernel="linear", alpha=1e6).fit(X, y).objective_
        assert model.converged_
        assert model.objective_ == pytest.approx(minimum, rel=1e-11)

    @every_classifier
    def test_bits_do_not_depend_on_the_number_of_threads(self, classifier, rng):
        X = rng.normal(size=(560, 4))
        y = np.digitize(X[:, 0] + rng.normal(size=560), [-1, 1])
        options = {"tol": 1e-3, "random_state": 0}
        fits = [fresh(classifier, n_jobs=n_jobs, **options).fit(X, y) for n_jobs in (1, 2, 3)]
        for other in fits[1:]:
            np.testing.assert_array_equal(fits[0].dual_coef_, other.dual_coef_)
            np.testing.assert_array_equal(fits[0].intercept_, other.intercept_)

    @pytest.mark.parametrize("unit", [1e-60, 1e45])
    @every_classifier
    def test_a_kernels_unit_is_that_of_alpha(self, classifier, unit, rng):
        X = rng.normal(size=(560, 4))
        y = np.digitize(X[:, 0] + rng.normal(size=560), [-1, 1])
        plain, other = (
            fresh(classifier, alpha=0.1 * c, kernel=c * RBF(gamma=0.3), random_state=0).fit(X, y)
            for c in (1.0, unit)
        )
        assert other.converged_
        np.testing.assert_allclose(other.objective_, plain.objective_, rtol=1e-8)
        np.testing.assert_allclose(other.decision_function(X), plain.decision_function(X), atol=1e-5)

    @pytest.mark.parametrize("unit", [1e-70, 1e70])
    @every_classifier
    def test_a_weights_unit_is_that_of_alpha(self, classifier, unit, rng):
        X = rng.normal(size=(560, 4))
        y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=560), [-0.7, 0.7])
        plain, other = (
            fresh(classifier, alpha=1e-3 * c, gamma=0.3, random_state=0).fit(X, y, np.full(560, c))
            for c in (1.0, unit)
        )
        assert other.converged_
        np.testing.assert_allclose(other.objective_ / unit, plain.objective_, rtol=1e-8)
        np.testing.assert_allclose(other.decision_function(X), plain.decision_function(X), atol=1e-4)

    @every_classifier
    def test_pickles_clones_and_searches(self, classifier, data):
        X, y, Z = data
        model = fresh(classifier, kernel=0.5 * RBF(gamma=0.3) + Linear()).fit(X, y)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.decision_function(Z), model.decision_function(Z))
        assert not hasattr(clone(model), "classes_")
        start = fresh(classifier, kernel=RBF(gamma=1.0), alpha=0.1)
        search = GridSearchCV(start, {"kernel__gamma": [1e-6, 0.3]}, cv=3)
        assert search.fit(X, y).best_params_ == {"kernel__gamma": 0.3}

    @every_classifier
    def test_falling_short_warns_with_the_figure(self, classifier, data):
        X, y, _ = data
        # a matrix beyond the budget leaves all of the work to Newton's steps
        model = fresh(classifier, max_iter=1, alpha=1e-3, memory_budget=1000.0)
        with pytest.warns(
            ConvergenceWarning, match=r"newton\) stopped at a residual of .* short of tol=1.0e-08"
        ):
            model.fit(X, y)
        assert not model.converged_
        assert np.min(model.duality_gap_) > 0

    @every_classifier
    def test_a_warm_start_goes_on(self, classifier, data):
        X, y, Z = data
        model = fresh(classifier, warm_start=True, gamma=0.5).fit(X, y)
        first = model.n_iter_
        decisions = model.decision_function(Z)
        np.testing.assert_allclose(model.fit(X, y).decision_function(Z), decisions, atol=1e-7)
        assert model.n_iter_ <= first
        assert model.n_iter_ == 1
        other = model.set_params(alpha=0.5).fit(X, y)
        cold = fresh(classifier, gamma=0.5, alpha=0.5).fit(X, y)
        np.testing.assert_allclose(other.objective_, cold.objective_, rtol=1e-12)
        model.fit(X[:40], y[:40])
        assert model.converged_

    @every_classifier
    def test_a_failed_or_interrupted_fit_leaves_the_estimator_as_it_was(self, classifier, data, monkeypatch):
        X, y, Z = data
        model = clone(classifier).fit(X, y)
        before, attributes = model.decision_function(Z), set(vars(model))
        with pytest.raises(ValueError, match="number of classes"):
            model.fit(X[:10], np.zeros(10))

        def interrupted(*args, **kwargs):
            raise KeyboardInterrupt

        monkeypatch.setattr(_cost_problem, "newton", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X[:30], y[:30])
        assert set(vars(model)) == attributes
        np.testing.assert_array_equal(model.decision_function(Z), before)

    @every_classifier
    def test_given_decisions_are_all_that_predictions_need(self, classifier, data):
        """A path has the decisions of held-out rows, and no model for them."""
        X, y, Z = data
        model = clone(classifier).fit(X, y)
        stand_in = clone(classifier)
        f = model._decisions(Z)
        stand_in.classes_, stand_in._decisions = model.classes_, lambda X: f.copy()
        np.testing.assert_array_equal(stand_in.predict(None), model.predict(Z))
        np.testing.assert_array_equal(stand_in.decision_function(None), model.decision_function(Z))
        if hasattr(model, "predict_proba"):
            np.testing.assert_array_equal(stand_in.predict_proba(None), model.predict_proba(Z))

    def test_what_labels_pose(self, data):
        _, y, _ = data
        labels = np.array(["a", "b", "c"])[y]
        weights = np.where(np.arange(60) < 30, 2.0, -1.0)
        posed = KernelLogisticRegression(class_weight={"a": 3.0})._posed(labels, weights, 60)
        np.testing.assert_array_equal(posed.y, y)
        np.testing.assert_array_equal(posed.weights, np.maximum(weights, 0) * np.where(y == 0, 3.0, 1.0))
        rest = SquaredMarginClassifier()._posed(labels, None, 60)
        np.testing.assert_array_equal(rest.y, np.where(y[:, None] == np.arange(3), 1.0, -1.0))
        assert rest.weights is None
        two = SquaredMarginClassifier()._posed(labels == "b", None, 60)
        np.testing.assert_array_equal(two.y, np.where(y == 1, 1.0, -1.0))

    def test_verbose_shows_the_gradient(self, data, capfd):
        X, y, _ = data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            KernelLogisticRegression(verbose=True).fit(X, y)
        shown = "".join(capfd.readouterr())
        assert "KernelLogisticRegression" in shown

    @pytest.mark.slow
    def test_a_thousand_tiny_fits_do_not_grow(self, data):
        import resource

        X, y, _ = data
        model = KernelLogisticRegression()
        for _ in range(50):
            model.fit(X[:12], y[:12] > 0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(1000):
            model.fit(X[:12], y[:12] > 0)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # kB


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("classes", [2, 3])
def test_the_squared_margin_with_weights_over_decades(seed, classes):
    """Of what is added to K's diagonal, alpha over the weight, the largest swamps K."""
    rng = np.random.default_rng(seed)
    n = 20
    X, y = rng.standard_normal((n, 2)), np.arange(n) % classes
    weights, alpha = 10.0 ** rng.uniform(-12, 12, n), 10.0 ** rng.uniform(2, 6)
    model = SquaredMarginClassifier(alpha, kernel=RBF(0.5)).fit(X, y, weights)
    assert np.all(model.converged_)
    assert np.all(model.duality_gap_ <= 1e-6 * np.abs(model.objective_))


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_missing_label_among_strings_is_named(missing, rng):
    labels = np.array(["a", "b", missing, "a"] * 5, dtype=object)
    with pytest.raises(ValueError, match=r"Input y contains NaN: (None|nan) at row 2 is no label"):
        KernelLogisticRegression().fit(rng.standard_normal((20, 2)), labels)

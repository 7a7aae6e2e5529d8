"""Bug reports of the given list that concern support vector machines, each with its kind around it.

The numbers were worked out by fractions, 50-digit arithmetic and a generic optimiser. Kernels and the ridge
machine are in ``test_given_kernels`` and ``test_given_ridge``.
"""

import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mercer import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from mercer.kernels import RBF, Linear, Precomputed

MACHINES = [SVC, NuSVC, SVR, NuSVR, OneClassSVM]
every_machine = pytest.mark.parametrize("machine", MACHINES)
dense_and_sparse = pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])


def output(model, X):
    return model.predict(X) if isinstance(model, SVR | NuSVR) else model.decision_function(X)


@dense_and_sparse
class TestG05GammaFromTheData:
    X = np.array([[0.0, 2], [4, 10]])

    def test_scale_is_fixed_at_fit(self, form):
        for X, gamma in (
            (self.X, 0.03571428571428571),
            (10 * self.X, 0.00035714285714285714),
            (np.full((2, 2), 3.0), 1.0),
        ):
            model = SVR(gamma="scale", epsilon=0.0).fit(form(X), [1.0, 2.0])
            assert model.kernel_.gamma == pytest.approx(gamma, rel=1e-12)
            new = np.array([[100.0, 0.0], [0.0, 2.0]])
            given = SVR(gamma=gamma, epsilon=0.0).fit(form(X), [1.0, 2.0])
            np.testing.assert_allclose(model.predict(form(new)), given.predict(form(new)), rtol=1e-9)

    def test_a_rescaled_problem_is_the_same_problem(self, form):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
        one, ten = SVC().fit(form(X), y), SVC().fit(form(8 * X), y)
        np.testing.assert_allclose(
            one.decision_function(form(X)), ten.decision_function(form(8 * X)), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, list])
@pytest.mark.parametrize("params", [{"gamma": 1e-5}, {"kernel": "linear", "C": 1e-4}], ids=str)
def test_g06_narrow_integers(dtype, params):
    X = [[250, 3], [5, 200], [7, 9]]
    expected = SVC(**params).fit(np.array(X, float), [0, 1, 1])
    given = X if dtype is list else np.array(X, dtype)
    model = SVC(**params).fit(given, [0, 1, 1])
    np.testing.assert_allclose(model.decision_function(given), expected.decision_function(X), rtol=1e-12)
    assert model.dual_coef_.dtype == np.float64


class TestG07StorageAndCompanyDoNotMatter:
    X = np.array([[1.0, 0, 0], [0, 2, 0]])
    T = np.array([[0.0, 0, 3], [0, 1, 0], [2, 1, 0]])
    formats = pytest.mark.parametrize(
        "form", [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix]
    )

    @formats
    def test_values(self, form):
        model = SVC(kernel="linear", C=10).fit(form(self.X), [1, -1])
        np.testing.assert_allclose(model.decision_function(form(self.T)), [0.6, -0.2, 0.6], atol=1e-5)
        alone = [model.decision_function(form(row[None]))[0] for row in self.T]
        np.testing.assert_allclose(alone, model.decision_function(form(self.T)), rtol=1e-12)

    @formats
    @every_machine
    def test_many_rows(self, form, machine):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((40, 8)) * (rng.random((40, 8)) < 0.3)
        y = np.arange(30) % 2
        dense, model = machine(tol=1e-8).fit(X[:30], y), machine(tol=1e-8).fit(form(X[:30]), y)
        np.testing.assert_allclose(output(model, form(X)), output(dense, X), rtol=1e-6, atol=1e-6)
        alone = [output(model, form(X[i : i + 1]))[0] for i in range(40)]
        np.testing.assert_allclose(alone, output(model, form(X)), rtol=1e-10, atol=1e-12)

    def test_stored_zeros_unsorted_indices_and_duplicate_entries(self):
        # Row 0: [1, 0, 0] as 0.25 + 0.75 and a stored 0; row 1: [0, 2, 0] with its columns in falling order.
        data, columns = [0.25, 0.0, 0.75, 0.0, 2.0], [0, 2, 0, 2, 1]
        odd = sp.csr_array((data, columns, [0, 3, 5]), shape=(2, 3))
        model = SVC(kernel="linear", C=10).fit(odd, [1, -1])
        np.testing.assert_allclose(model.decision_function(self.T), [0.6, -0.2, 0.6], atol=1e-5)


@dense_and_sparse
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_g08_a_regression_that_needs_no_support_vector(form, kernel):
    X, y = form(np.array([[0.0, 1], [1, 0], [2, 2]])), [0.50, 0.53, 0.47]
    model = SVR(kernel=kernel, epsilon=0.1, C=1).fit(X, y)
    values = model.predict(X)
    assert values.min() == values.max()
    assert 0.43 - 1e-9 <= values[0] <= 0.57 + 1e-9
    assert model.support_.shape == (0,)
    assert model.support_vectors_.shape == (0, 2)
    assert model.dual_coef_.shape == (1, 0)
    np.testing.assert_array_equal(model.n_support_, [0])
    if kernel == "linear":
        assert model.coef_.shape == (1, 2)


@every_machine
@pytest.mark.filterwarnings("ignore:.*leaves no margin")
@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
def test_g09_the_callers_arrays(machine, kernel):
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(20, 3)), np.arange(20.0) % 2, rng.uniform(0.5, 2, size=20)
    X = RBF(0.3)(X) if kernel == "precomputed" else X
    kept = X.copy(), y.copy(), w.copy()
    model = machine(kernel=kernel, nu=0.3) if "nu" in machine().get_params() else machine(kernel=kernel)
    model.fit(X, y, sample_weight=w)
    assert all(np.array_equal(a, b) for a, b in zip((X, y, w), kept, strict=True))
    before = output(model, kept[0])
    X[:], y[:], w[:] = 999, 999, 999
    np.testing.assert_array_equal(output(model, kept[0]), before)


class TestG10LabelsAndProbabilities:
    X = np.array([[-1.0], [1.0]])

    @pytest.mark.parametrize("machine", [SVC, NuSVC])
    def test_one_class(self, machine):
        with pytest.raises(ValueError, match="greater than one; got 1 class"):
            machine().fit([[0.0], [1.0]], ["a", "a"])

    @pytest.mark.parametrize("machine", [SVC, NuSVC])
    def test_booleans_and_words(self, machine):
        model = machine().fit(self.X, [False, True])
        found = model.predict([[2.0], [-2.0]])
        assert found.dtype == bool
        np.testing.assert_array_equal(found, [True, False])
        model = machine().fit(self.X, ["no", "yes"])
        assert list(model.classes_) == ["no", "yes"]
        assert list(model.predict([[2.0], [-2.0]])) == ["yes", "no"]

    @pytest.mark.parametrize("machine", [SVC, NuSVC])
    @pytest.mark.parametrize("classes", [2, 3, 4])
    def test_the_likeliest_class_is_the_one_predicted_for_two(self, machine, classes):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(80, 2)), np.arange(80) % classes
        X += 1.5 * np.column_stack([y, y % 2])
        model = machine(probability=True, random_state=0).fit(X, y)
        Z = np.vstack([3 * rng.normal(size=(200, 2)), [[1e6, 1e6], [-1e6, 0]]])
        proba = model.predict_proba(Z)
        assert np.all(np.isfinite(proba))
        assert np.all(proba >= 0)
        np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(Z)), proba, rtol=1e-9)
        if classes == 2:
            np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(Z))


@dense_and_sparse
@every_machine
class TestG11WeightZeroMeansAbsent:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 2))
    y = np.arange(24) % 2
    Z = rng.standard_normal((9, 2))

    def make(self, machine):
        return machine(tol=1e-8, **({"nu": 0.2} if "nu" in machine().get_params() else {}))

    def test_absent(self, machine, form):
        w = np.ones(24)
        w[[0, 5, 23]] = 0, -1, 0
        X = self.X.copy()
        X[5] = 1e3  # whatever stands there
        gamma = {"gamma": 0.5}
        weighted = self.make(machine).set_params(**gamma).fit(form(X), self.y, sample_weight=w)
        absent = self.make(machine).set_params(**gamma).fit(form(X[w > 0]), self.y[w > 0])
        np.testing.assert_allclose(output(weighted, self.Z), output(absent, self.Z), atol=1e-6)
        np.testing.assert_array_equal(weighted.support_, np.flatnonzero(w > 0)[absent.support_])

    def test_weights_are_repetitions(self, machine, form):
        w = np.array([1, 2, 0, 3] * 6)
        twice = np.repeat(np.arange(24), w)
        params = {"gamma": 0.5}
        weighted = self.make(machine).set_params(**params).fit(form(self.X), self.y, sample_weight=w)
        repeated = self.make(machine).set_params(**params).fit(form(self.X[twice]), self.y[twice])
        np.testing.assert_allclose(output(weighted, self.Z), output(repeated, self.Z), atol=1e-6)


class TestG12BalancedTogetherWithWeights:
    y = np.array([0, 0, 0, 1, 1])
    X = np.array([[0.0, 1], [1, 1], [2, 0], [1, 0], [3, 1]])

    @pytest.mark.parametrize(
        ("weights", "expected"),
        [
            (None, [0.8333333333333334, 1.25]),
            ([2, 1, 0, 3, 0], [1.0, 1.0]),
            ([1, 1, 1, 4, 2], [1.5, 0.75]),
        ],
        ids=str,
    )
    def test_values(self, weights, expected):
        model = SVC(class_weight="balanced").fit(self.X, self.y, sample_weight=weights)
        np.testing.assert_allclose(model.class_weight_, expected, rtol=1e-12)

    def test_equals_repetition(self):
        w = np.array([1, 1, 1, 4, 2])
        rows = np.repeat(np.arange(5), w)
        for machine in (SVC, NuSVC):
            params = {"class_weight": "balanced", "gamma": 0.5, "tol": 1e-8}
            weighted = machine(**params).fit(self.X, self.y, sample_weight=w)
            repeated = machine(**params).fit(self.X[rows], self.y[rows])
            np.testing.assert_allclose(
                weighted.decision_function(self.X), repeated.decision_function(self.X), atol=1e-6
            )


class TestG13InfiniteC:
    X = np.array([[0.0], [1], [3], [6]])
    y = np.array([-1, -1, 1, 1])

    @pytest.mark.parametrize("C", [np.inf, float("inf"), 1e6])
    @pytest.mark.parametrize("kernel", ["linear", Linear()], ids=str)
    def test_values(self, C, kernel):
        model = SVC(kernel=kernel, C=C).fit(self.X, self.y)
        assert model.coef_[0, 0] == pytest.approx(1.0, abs=1e-5)
        assert model.intercept_[0] == pytest.approx(-2.0, abs=1e-5)
        np.testing.assert_array_equal(model.support_, [1, 2])
        np.testing.assert_allclose(np.abs(model.dual_coef_), [[0.5, 0.5]], atol=1e-5)
        values = model.decision_function([[0.0], [2.0], [6.0]])
        np.testing.assert_allclose(values, [-2.0, 0.0, 4.0], atol=1e-5)
        np.testing.assert_allclose(model.margin_, 1.0, atol=1e-5)

    def test_inseparable(self):
        start = time.monotonic()
        with pytest.raises(ValueError, match=r"C=inf.*separable"):
            SVC(kernel="linear", C=np.inf).fit([[0.0], [1], [2]], [-1, 1, -1])
        assert time.monotonic() - start < 1


class TestG14ThreeClassesOneVoteEach:
    X = np.array([[0.0, 0], [-1, 3], [4, 0], [0, 6]])
    y = np.array([0, 0, 1, 2])
    T = np.array([[2.2, 3.4]])

    def fit(self, **params):
        return SVC(kernel="linear", C=1e6, tol=1e-8, **params).fit(self.X, self.y)

    def test_values(self):
        pairs = self.fit(decision_function_shape="ovo").decision_function(self.T)
        np.testing.assert_allclose(pairs, [[-0.1, 0.12, -0.06153846153846154]], atol=1e-4)
        summed = self.fit(decision_function_shape="ovr").decision_function(self.T)
        expected = [[1.0065359477124183, 1.0123456790123457, 0.9815891472868217]]
        np.testing.assert_allclose(summed, expected, atol=1e-4)

    def test_the_consistent_form_is_the_default(self):
        assert self.fit().predict(self.T) == [1]
        assert self.fit(break_ties=True).predict(self.T) == [1]
        # LIBSVM's, the first of equal votes, on request
        assert self.fit(break_ties=False).predict(self.T) == [0]

    def test_everywhere(self):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(40, 2)), np.arange(40) % 4
        model, Z = SVC(kernel="rbf", gamma=5.0).fit(X, y), 2 * rng.normal(size=(500, 2))
        np.testing.assert_array_equal(model.predict(Z), model.decision_function(Z).argmax(axis=1))


@every_machine
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_g15_same_numbers_for_every_number_of_workers(machine, kernel):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 5)), np.arange(150) % 3
    # ν near 1: with labels that X does not tell, the reduced hulls of a smaller ν meet, and no ρ divides 0.
    params = {SVC: {"C": 0.1}, NuSVC: {"nu": 0.95}}.get(machine, {})
    one = machine(kernel=kernel, n_jobs=1, **params).fit(X, y)
    for n in (2, 4):
        many = machine(**{**one.get_params(deep=False), "n_jobs": n}).fit(X, y)
        np.testing.assert_array_equal(many.dual_coef_, one.dual_coef_)
        np.testing.assert_array_equal(many.intercept_, one.intercept_)
        np.testing.assert_array_equal(output(many, X), output(one, X))


class TestG17Precomputed:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=24) > 0).astype(int)

    def routes(self, machine):
        K = RBF(0.5)(self.X)
        yield machine(kernel="rbf", gamma=0.5, tol=1e-8), self.X
        yield machine(kernel=RBF(0.5), tol=1e-8), self.X
        yield machine(kernel="precomputed", tol=1e-8), K
        yield machine(kernel=Precomputed(), tol=1e-8), K

    @pytest.mark.parametrize("machine", [SVC, SVR, NuSVR])
    def test_every_route_scores_the_same(self, machine):
        cv = KFold(3, shuffle=True, random_state=0)
        scores = [cross_val_score(model, data, self.y, cv=cv) for model, data in self.routes(machine)]
        for other in scores[1:]:
            np.testing.assert_allclose(other, scores[0], atol=1e-6)

    @pytest.mark.parametrize("machine", [SVC, SVR, NuSVR])
    def test_through_a_search(self, machine):
        cv = KFold(3, shuffle=True, random_state=0)
        found = [
            GridSearchCV(model, {"C": [0.1, 1.0, 10.0]}, cv=cv)
            .fit(data, self.y)
            .cv_results_["mean_test_score"]
            for model, data in self.routes(machine)
        ]
        for other in found[1:]:
            np.testing.assert_allclose(other, found[0], atol=1e-6)

    def test_through_a_pipeline(self):
        scores = cross_val_score(make_pipeline(StandardScaler(), SVC()), self.X, self.y, cv=3)
        assert np.all(scores > 0.5)

    @every_machine
    def test_not_square_is_refused(self, machine):
        with pytest.raises(ValueError, match="square"):
            machine(kernel="precomputed").fit(np.ones((3, 4)), [0, 1, 1])


def test_g30_a_huge_gamma():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SVC(gamma=1e300, C=10.0).fit([[0.0], [1.0]], [0, 1])
        np.testing.assert_allclose(model.decision_function([[0.0], [1.0], [0.5]]), [-1, 1, 0], atol=1e-9)
        model = SVR(gamma=1e300, C=10.0, epsilon=0.0).fit([[0.0], [1.0]], [3.0, -1.0])
        np.testing.assert_allclose(model.predict([[0.0], [1.0], [0.5]]), [3, -1, 1], atol=1e-2)

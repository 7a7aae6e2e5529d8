"""Bug reports of the given list that concern neighbours, each with its kind around it.

The numbers were worked out by fractions and 50-digit arithmetic. Kernels and matrices are in
``test_given_kernels``.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline

from mercer import KernelKNeighborsClassifier, KernelKNeighborsRegressor
from mercer.kernels import RBF, Linear, Matern, Polynomial

algorithms = pytest.mark.parametrize("algorithm", ["brute", "tree"])


def distance(x, z, kernel, **params):
    """Of one pair, by a model of one training row."""
    x, z = (np.atleast_2d(row) for row in (x, z))
    return KernelKNeighborsRegressor(1, kernel=kernel, **params).fit(z, [0.0]).kneighbors(x)[0][0, 0]


@algorithms
class TestG01DistancesFarFromTheOrigin:
    def test_float32(self, algorithm):
        a, b = np.float32([5000.25, -3000.5]), np.float32([5000.5, -3000.25])
        d = distance(a, b, "linear", algorithm=algorithm)
        assert d.dtype == np.float32
        assert d**2 == pytest.approx(0.125, rel=1e-6)
        d = distance(a, b, RBF(gamma=2.0), algorithm=algorithm)
        assert 1 - d**2 / 2 == pytest.approx(0.7788007830714049, rel=1e-6)

    @pytest.mark.parametrize(("p", "q", "expected"), [(3e8, 3e8 + 1, 1.0), (2.0**28, 2.0**28 + 0.5, 0.25)])
    def test_float64(self, algorithm, p, q, expected):
        assert distance([p], [q], Linear(), algorithm=algorithm) ** 2 == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("d", [1, 3, 12, 40])
    def test_moving_all_rows_by_one_vector_changes_nothing(self, algorithm, d, rng):
        X, Q = (rng.integers(-512, 512, size=(n, d)) / 1024.0 for n in (400, 60))
        near, far = (
            KernelKNeighborsRegressor(5, kernel=RBF(1.0), algorithm=algorithm).fit(rows, np.zeros(400))
            for rows in (X, X + 2.0**28)
        )
        for a, b in zip(near.kneighbors(Q), far.kneighbors(Q + 2.0**28), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("nu", "coefficient"), [(0.5, None), (1.5, 1.5), (2.5, 5 / 6)])
def test_g02_near_equal_rows_under_a_matern_kernel(nu, coefficient):
    X = np.array([[31.5, 31.5, 32.25], [31.5 + 2.0**-26, 31.5, 32.25], [31.5, 31.5, 32.25]])
    model = KernelKNeighborsRegressor(3, kernel=Matern(nu=nu, length_scale=0.75)).fit(X, [0, 1, 2])
    distances, indices = model.kneighbors(X[:1])
    assert indices.tolist() == [[0, 2, 1]]
    assert distances[0, :2].tolist() == [0.0, 0.0]
    r = 2.0**-26 / 0.75
    # 1 − k to first order; the next terms are r times smaller
    expected = 2 * (1 - np.exp(-r)) if coefficient is None else 2 * coefficient * r**2
    assert distances[0, 2] ** 2 == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
def test_g05_gamma_from_the_data(form):
    X = np.array([[0.0, 2], [4, 10]])
    for factor, gamma in ((1.0, 0.03571428571428571), (10.0, 0.00035714285714285714)):
        model = KernelKNeighborsClassifier(1, gamma="scale").fit(form(factor * X), [0, 1])
        assert model.kernel_.gamma == pytest.approx(gamma, rel=1e-12)
        assert model.kneighbors(form(factor * X[:1]), 2)[0][0, 1] ** 2 == pytest.approx(
            2 - 2 * 0.05743261926761735, rel=1e-12
        )
    assert KernelKNeighborsClassifier(1).fit(form(np.full((2, 2), 3.0)), [0, 1]).kernel_.gamma == 1.0


@algorithms
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, list])
def test_g06_narrow_integer_input(algorithm, dtype):
    X = [[250, 3], [5, 200]]
    X = X if dtype is list else np.array(X, dtype=dtype)
    for n_jobs in (1, 2):
        model = KernelKNeighborsRegressor(1, kernel="linear", algorithm=algorithm, n_jobs=n_jobs)
        distances = model.fit(X, [0, 1]).kneighbors()[0]
        assert distances.dtype == np.float64
        np.testing.assert_array_equal(distances**2, np.sqrt(98834.0) ** 2)


class TestG07StorageAndCompanyDoNotMatter:
    X = np.array([[1.0, 0, 0], [0, 2, 0]])
    T = np.array([[0.0, 0, 3], [0, 1, 0], [2, 1, 0]])

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix])
    @pytest.mark.parametrize("kernel", [RBF(0.3), Linear(), Polynomial(2)], ids=repr)
    def test_rows_alone_and_together(self, form, kernel):
        expected = KernelKNeighborsRegressor(2, kernel=kernel).fit(self.X, [1.0, -1.0]).kneighbors(self.T)
        model = KernelKNeighborsRegressor(2, kernel=kernel).fit(form(self.X), [1.0, -1.0])
        got = model.kneighbors(form(self.T))
        one_by_one = [model.kneighbors(form(row[None])) for row in self.T]
        for part in (0, 1):
            np.testing.assert_array_equal(got[part], expected[part])
            np.testing.assert_array_equal(np.vstack([row[part] for row in one_by_one]), expected[part])

    def test_duplicate_entries_add_up(self):
        X = sp.csr_array((np.array([0.5, 0.5, 2.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 3))
        assert KernelKNeighborsRegressor(1, kernel="linear").fit(X, [0, 1]).kneighbors(self.X)[0].max() == 0.0


def test_g09_the_callers_array_after_fit():
    X, y = np.array([[1.0], [2.0]]), np.array([1.0, 3.0])
    model = KernelKNeighborsRegressor(1, kernel="linear").fit(X, y)
    K = X @ X.T
    given = KernelKNeighborsRegressor(1, kernel="precomputed").fit(K, y)
    X[:], y[:], K[:] = 999.0, 7.0, 999.0
    assert model.predict([[3.0]]).tolist() == [3.0]
    assert given.predict([[3.0, 6.0]]).tolist() == [3.0]


class TestG10Labels:
    def test_one_class_is_a_constant_predictor(self):
        model = KernelKNeighborsClassifier(1).fit([[0.0], [1.0]], ["a", "a"])
        assert model.predict([[5.0]]).tolist() == ["a"]
        assert model.predict_proba([[5.0]]).tolist() == [[1.0]]

    @pytest.mark.parametrize("labels", [[False, True], ["no", "yes"]])
    def test_labels_come_back_with_their_type(self, labels):
        y = np.array(labels)
        model = KernelKNeighborsClassifier(1).fit([[-1.0], [1.0]], y)
        predicted = model.predict([[2.0], [-2.0]])
        assert predicted.tolist() == labels[::-1]
        assert predicted.dtype == y.dtype
        np.testing.assert_array_equal(model.classes_, y)

    def test_predictions_are_the_largest_probabilities(self, rng):
        X, y = rng.normal(size=(100, 2)), rng.integers(0, 4, 100)
        for weights in ("uniform", "distance"):
            model = KernelKNeighborsClassifier(6, weights=weights).fit(X, y)
            P = model.predict_proba(X + 0.1)
            np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
            np.testing.assert_array_equal(model.predict(X + 0.1), model.classes_[P.argmax(axis=1)])


def test_g15_same_numbers_for_every_number_of_workers():
    X = np.array([[0.1, 0.7], [123.456, -7.89], [0.1, 0.7]])
    for n_jobs in (1, 2, 4):
        for kernel in (Linear(), RBF(gamma=1e-4)):
            model = KernelKNeighborsRegressor(3, kernel=kernel, n_jobs=n_jobs).fit(X, [0, 1, 2])
            distances, indices = model.kneighbors(X.copy())
            assert indices.tolist() == [[0, 2, 1], [1, 0, 2], [0, 2, 1]]
            assert distances[[0, 0, 1, 2, 2], [0, 1, 0, 0, 1]].tolist() == [0.0] * 5
            expected = 15290.490836 if kernel == Linear() else 2 - 2 * 0.21674167256460425
            np.testing.assert_allclose(distances[0, 2] ** 2, expected, rtol=1e-12)


def test_g16_kernels_that_look_at_some_columns_only():
    X = [[0.0, 0.0], [1.0, 5.0]]
    k = 2.0 * RBF(length_scale=1.0).on([0]) + RBF(length_scale=2.0).on([1])
    assert distance(*X, k) ** 2 == pytest.approx(6.0 - 2 * 1.2569982530486743, rel=1e-12)
    k = 2.0 * RBF(length_scale=1.0).on([0])
    assert distance([0.0, 7.0], [1.0, -3.0], k) ** 2 == pytest.approx(4.0 - 2 * 1.2130613194252668, rel=1e-12)
    k = 3.0 * (RBF(length_scale=1.0).on([0]) * Linear().on([1]))
    expected = 12.0 + 75.0 - 2 * 18.195919791379
    assert distance([0.0, 2.0], [1.0, 5.0], k) ** 2 == pytest.approx(expected, rel=1e-12)


def test_g17_cross_validation_with_a_precomputed_kernel(rng):
    X, y, cv = rng.normal(size=(40, 2)), rng.normal(size=40), KFold(2)
    model = KernelKNeighborsRegressor(3, kernel="linear")
    given = KernelKNeighborsRegressor(3, kernel="precomputed")
    for estimator in (given, make_pipeline(given)):
        np.testing.assert_allclose(
            cross_val_score(estimator, X @ X.T, y, cv=cv), cross_val_score(model, X, y, cv=cv), rtol=1e-12
        )
    with pytest.raises(ValueError, match="square matrix"):
        given.fit(X @ X[:20].T, y)


class TestG30VerySmallAndVeryLargeScales:
    def test_length_scales(self):
        d = distance([0.0], [1e-170], RBF(length_scale=1e-170))
        assert 1 - d**2 / 2 == pytest.approx(0.6065306597126334, rel=1e-12)

    @pytest.mark.parametrize("nu", [1.5, 2.5])
    def test_far_points(self, nu):
        assert distance([0.0], [1e200], Matern(nu=nu)) == pytest.approx(np.sqrt(2.0), rel=1e-12)

    def test_gammas(self):
        assert distance([0.0], [100.0], RBF(gamma=1e-320)) ** 2 <= 1e-12
        assert distance([0.0], [1.0], RBF(gamma=1e300)) ** 2 == pytest.approx(2.0, rel=1e-12)

    @pytest.mark.parametrize("scale", [1e-150, 1e-20, 1e20, 1e150])
    def test_neighbours_of_scaled_rows_are_the_same(self, scale, rng):
        X = rng.normal(size=(900, 3))
        one = KernelKNeighborsRegressor(4, kernel=RBF(length_scale=1.0)).fit(X, np.zeros(900)).kneighbors()
        two = KernelKNeighborsRegressor(4, kernel=RBF(length_scale=scale)).fit(scale * X, np.zeros(900))
        got = two.kneighbors()
        np.testing.assert_array_equal(got[1], one[1])
        np.testing.assert_allclose(got[0], one[0], rtol=1e-12)

"""Kernel k-NN: against brute force and scikit-learn, ties, bounds that decide nothing wrongly, bad input."""

import pickle

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import KernelKNeighborsClassifier, KernelKNeighborsRegressor
from mercer._threads import one_blas_thread
from mercer.estimators import _nearest
from mercer.estimators._nearest_integers import IntegerRows
from mercer.estimators._neighbors_base import combine_weights
from mercer.kernels import (
    RBF,
    ChiSquared,
    Cosine,
    Fourier,
    FunctionKernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Precomputed,
    RationalQuadratic,
    Sigmoid,
    Spectrum,
)
from mercer.kernels.distance import distance_form
from mercer.kernels.program import LeafKind

MACHINES = [KernelKNeighborsClassifier, KernelKNeighborsRegressor]
both = pytest.mark.parametrize("machine", MACHINES)
algorithms = pytest.mark.parametrize("algorithm", ["brute", "tree"])

# Kernels that are ordered by a distance of the samples, and others.
PLAIN = [
    RBF(gamma=0.3),
    RBF(gamma=np.array([0.1, 0.5, 2.0, 0.3])),
    2.0 * RBF(length_scale=3.0) ** 2,
    RBF(gamma=0.2).exp(),
    Laplacian(gamma=0.4),
    Laplacian(gamma=np.array([0.1, 0.5, 2.0, 0.3])),
    Matern(nu=0.5, length_scale=2.0),
    Matern(nu=1.5),
    Matern(nu=2.5, length_scale=3.0),
    RationalQuadratic(length_scale=2.0, alpha=0.7),
    Linear(),
    3.0 * Linear(np.diag([1.0, 2.0, 0.0, 3.0])),
    Cosine(),
    RBF(gamma=0.3).on([0, 2]),
]
VALUES = [
    Polynomial(3, gamma=0.5, coef0=1.0),
    0.5 * RBF(0.2) + Polynomial(2),
    RBF(0.3) * Fourier(2),
    Fourier(3, period=[1.0, 2.0, 3.0, 0.7]),
    (RBF(0.3) + Linear()).normalize(),
    Linear().center(np.arange(8.0).reshape(2, 4)),
    Matern(nu=0.9),
    RBF(0.3).modulate(lambda X: 1.0 + X[:, 0] ** 2),
    FunctionKernel(lambda X, Z: np.exp(-np.abs(X[:, None] - Z[None]).sum(-1))),
]


def brute_force(D, k):
    """The k least of each row by (distance, index)."""
    index = np.broadcast_to(np.arange(D.shape[1]), D.shape)
    order = np.lexsort((index, D), axis=-1)[:, :k]
    return np.take_along_axis(D, order, 1), order


def squared_distances(k, Q, X):
    """LN14's formula on formed matrices."""
    return k.diag(Q)[:, None] - 2.0 * k(Q, X) + k.diag(X)[None, :]


def searched(X, k, machine=KernelKNeighborsRegressor, **params):
    return machine(n_neighbors=k, **params).fit(X, np.arange(X.shape[0]) % 3)


@parametrize_with_checks([KernelKNeighborsClassifier(), KernelKNeighborsRegressor(weights="distance")])
@pytest.mark.lenient
@pytest.mark.filterwarnings("default")
def test_scikit_learns_checks_pass_without_exemption(estimator, check):
    check(estimator)


class TestDistances:
    @pytest.mark.parametrize("kernel", PLAIN + VALUES, ids=repr)
    @pytest.mark.parametrize("k", [1, 4, 60])
    def test_of_any_kernel_against_formed_matrices(self, kernel, k, rng):
        X, Q = rng.normal(size=(60, 4)), rng.normal(size=(23, 4))
        distances, indices = searched(X, k, kernel=kernel).kneighbors(Q)
        D = squared_distances(kernel, Q, X)
        expected, order = brute_force(D, k)
        # The formula cancels digits of k(x, x); what it cannot tell apart may come in another order.
        scale = 1e-14 * (np.abs(kernel.diag(Q))[:, None] + np.abs(kernel.diag(X)).max())
        assert np.all(np.abs(distances**2 - expected) < 40 * scale)
        picked = np.take_along_axis(D, indices, 1)
        assert np.all(np.abs(picked - expected) < 40 * scale)
        assert np.mean(indices == order) > 0.95
        assert all(len(set(row)) == k for row in indices.tolist())

    @pytest.mark.parametrize("kernel", PLAIN, ids=repr)
    def test_a_distance_is_found_where_there_is_one(self, kernel):
        assert distance_form(kernel._compiled(4), 4) is not None

    @pytest.mark.parametrize("kernel", [*VALUES, Sigmoid(), 0.0 * RBF(), RBF() + Linear()], ids=repr)
    def test_and_not_where_there_is_none(self, kernel):
        assert distance_form(kernel._compiled(4), 4) is None

    @pytest.mark.parametrize("s", [0.0, 1e-18, 1e-9, 1e-3, 0.1, 0.9, 1.1, 30.0, 1e4])
    @pytest.mark.parametrize(
        ("kernel", "exact"),
        [
            (RBF(gamma=0.5), lambda s: mpmath.exp(-s / 2)),
            (3.0 * RBF(gamma=0.5) ** 3, lambda s: 3 * mpmath.exp(-3 * s / 2)),
            (RBF(gamma=0.5).exp(), lambda s: mpmath.exp(mpmath.exp(-s / 2))),
            (Matern(nu=0.5), lambda s: mpmath.exp(-mpmath.sqrt(s))),
            (Matern(nu=1.5), lambda s: (1 + mpmath.sqrt(3 * s)) * mpmath.exp(-mpmath.sqrt(3 * s))),
            (
                Matern(nu=2.5),
                lambda s: (1 + mpmath.sqrt(5 * s) + 5 * s / 3) * mpmath.exp(-mpmath.sqrt(5 * s)),
            ),
            (RationalQuadratic(alpha=0.7), lambda s: (1 + s / mpmath.mpf(1.4)) ** mpmath.mpf(-0.7)),
        ],
        ids=lambda value: repr(value) if not callable(value) or hasattr(value, "diag") else "",
    )
    def test_keep_the_digits_of_small_ones(self, kernel, exact, s):
        # k(x, x) − k(x, z) cancels, and the distance's own formula does not: a few ε (the series of Matérn
        # loses some where its terms alternate).
        form = distance_form(kernel._compiled(1), 1)
        with mpmath.workdps(60):
            expected = float(2 * (exact(mpmath.mpf(0)) - exact(mpmath.mpf(s))))
        got = form.squared(np.array([s]))[0]
        assert got == pytest.approx(expected, rel=60 * np.finfo(float).eps, abs=0)

    @pytest.mark.parametrize(
        "kernel", [RBF(1e-3), Laplacian(1e-3), Linear(), Polynomial(2), Fourier(2)], ids=repr
    )
    @pytest.mark.parametrize("d", [3, 20])
    def test_of_equal_rows_are_exactly_0(self, kernel, d, rng):
        X = 1e3 + rng.normal(size=(50, d))
        distances, indices = searched(X, 1, kernel=kernel).kneighbors(X[::-1].copy())
        np.testing.assert_array_equal(distances, 0.0)
        np.testing.assert_array_equal(indices[:, 0], np.arange(50)[::-1])

    def test_of_a_string_kernel(self):
        words = ["gattaca", "gattac", "cacaca", "tttt", "gatgat", "acacac"]
        kernel = Spectrum(2)
        D = squared_distances(kernel, words, words)
        distances, indices = (
            KernelKNeighborsRegressor(3, kernel=kernel).fit(words, range(6)).kneighbors(words)
        )
        expected, order = brute_force(D, 3)
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_allclose(distances**2, expected, rtol=1e-14)

    @pytest.mark.parametrize("kernel", [lambda x, z: float(x @ z), FunctionKernel(lambda X, Z: X @ Z.T)])
    def test_of_a_callable(self, kernel, rng):
        X, Q = rng.integers(-9, 9, size=(2, 30, 3)).astype(float)
        distances, indices = searched(X, 4, kernel=kernel).kneighbors(Q)
        expected, order = brute_force(((Q[:, None] - X) ** 2).sum(-1), 4)
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_allclose(distances**2, expected, rtol=1e-14)

    def test_negative_beyond_rounding_is_an_error_that_says_where(self, rng):
        X = rng.normal(size=(20, 3))
        model = searched(X, 2, kernel=FunctionKernel(lambda X, Z: -(X @ Z.T)))
        with pytest.raises(_nearest.NotADistance, match=r"row 0 and training row \d+ is -.*not positive"):
            model.kneighbors(X + 1.0)

    def test_not_finite_diagonals_are_an_error(self):
        with pytest.raises(ValueError, match=r"k\(x, x\) of row 1 is inf"), np.errstate(over="ignore"):
            searched(np.array([[1.0], [1e200]]), 1, kernel=Polynomial(2))


class TestAgainstScikitLearn:
    @algorithms
    @pytest.mark.parametrize("weights", ["uniform", "distance"])
    @pytest.mark.parametrize("d", [2, 11])
    def test_on_euclidean_distance(self, algorithm, weights, d, rng):
        X, Q, y = rng.normal(size=(300, d)), rng.normal(size=(80, d)), rng.integers(0, 4, 300)
        params = {"n_neighbors": 6, "weights": weights}
        own = KernelKNeighborsClassifier(kernel="linear", algorithm=algorithm, **params).fit(X, y)
        peer = KNeighborsClassifier(algorithm="brute", **params).fit(X, y)
        np.testing.assert_array_equal(own.kneighbors(Q)[1], peer.kneighbors(Q)[1])
        np.testing.assert_allclose(own.kneighbors(Q)[0], peer.kneighbors(Q)[0], rtol=1e-12)
        np.testing.assert_array_equal(own.kneighbors()[1], peer.kneighbors()[1])
        np.testing.assert_array_equal(own.predict(Q), peer.predict(Q))
        np.testing.assert_allclose(own.predict_proba(Q), peer.predict_proba(Q), rtol=1e-12)
        assert own.score(Q, own.predict(Q)) == 1.0
        for mode in ("connectivity", "distance"):
            a, b = own.kneighbors_graph(Q, mode=mode), peer.kneighbors_graph(Q, mode=mode)
            assert abs(a - b).max() < 1e-12
        own = KernelKNeighborsRegressor(kernel="linear", algorithm=algorithm, **params).fit(X, y * 0.1)
        peer = KNeighborsRegressor(algorithm="brute", **params).fit(X, y * 0.1)
        np.testing.assert_allclose(own.predict(Q), peer.predict(Q), rtol=1e-12)

    @both
    def test_rbf_orders_as_its_distance_even_where_its_values_underflow(self, machine, rng):
        X, Q = rng.normal(size=(200, 3)), rng.normal(size=(40, 3))
        model = searched(X, 5, machine, kernel="rbf", gamma=1e5)
        expected = brute_force(((Q[:, None] - X) ** 2).sum(-1), 5)[1]
        np.testing.assert_array_equal(model.kneighbors(Q, return_distance=False), expected)

    @pytest.mark.parametrize("weights", [None, "uniform", "distance", lambda D: 1.0 / (1.0 + D)])
    def test_several_outputs(self, weights, rng):
        X, Q = rng.normal(size=(60, 3)), rng.normal(size=(20, 3))
        Y = np.stack([rng.integers(0, 3, 60), rng.integers(5, 7, 60)], axis=1)
        own = KernelKNeighborsClassifier(kernel="linear", weights=weights).fit(X, Y)
        peer = KNeighborsClassifier(weights=weights).fit(X, Y)
        np.testing.assert_array_equal(own.predict(Q), peer.predict(Q))
        for a, b, labels in zip(own.predict_proba(Q), peer.predict_proba(Q), own.classes_, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
            assert a.shape[1] == len(labels)
        own = KernelKNeighborsRegressor(kernel="linear", weights=weights).fit(X, Y)
        peer = KNeighborsRegressor(weights=weights).fit(X, Y)
        np.testing.assert_allclose(own.predict(Q), peer.predict(Q), rtol=1e-12)

    def test_weights_by_distance_where_some_are_zero(self):
        X, y = [[0.0], [0.0], [1.0], [2.0]], [1.0, 3.0, 100.0, 100.0]
        model = KernelKNeighborsRegressor(4, kernel="linear", weights="distance").fit(X, y)
        np.testing.assert_array_equal(model.predict([[0.0]]), [2.0])
        # the reciprocal of a subnormal distance is out of range: it counts as 0
        np.testing.assert_array_equal(combine_weights("distance", np.array([[1e-310, 1.0]])), [[1.0, 0.0]])


class TestTies:
    @algorithms
    @pytest.mark.parametrize("kernel", [RBF(0.1), Laplacian(0.1), Linear()], ids=repr)
    @pytest.mark.parametrize("d", [1, 2, 3, 12])
    def test_go_to_the_first_training_row(self, algorithm, kernel, d, rng):
        X, Q = (rng.integers(0, 4 if d < 12 else 2, size=(n, d)).astype(float) for n in (700, 230))
        power = 1 if isinstance(kernel, Laplacian) else 2
        D = (np.abs(Q[:, None] - X) ** power).sum(-1)
        for k in (1, 7, 700):
            model = searched(X, k, kernel=kernel, algorithm=algorithm)
            np.testing.assert_array_equal(model.kneighbors(Q)[1], brute_force(D, k)[1])

    def test_of_kernel_values_too(self, rng):
        X, Q = (rng.integers(0, 3, size=(n, 2)).astype(float) for n in (400, 60))
        kernel = Polynomial(2, gamma=1.0, coef0=1.0)  # whole numbers: exact
        expected = brute_force(squared_distances(kernel, Q, X), 9)
        distances, indices = searched(X, 9, kernel=kernel).kneighbors(Q)
        np.testing.assert_array_equal(indices, expected[1])
        np.testing.assert_array_equal(distances, np.sqrt(expected[0]))

    @algorithms
    def test_rows_are_not_their_own_neighbours_and_copies_are(self, algorithm, rng):
        X = np.repeat(rng.normal(size=(100, 2)), 3, axis=0)
        distances, indices = searched(X, 2, kernel="rbf", algorithm=algorithm).kneighbors()
        i = np.arange(300)
        assert not np.any(indices == i[:, None])
        np.testing.assert_array_equal(distances, 0.0)
        np.testing.assert_array_equal(
            np.sort(np.hstack([indices, i[:, None]])) // 3, i[:, None] // 3 * [1, 1, 1]
        )

    def test_all_rows_equal(self):
        model = searched(np.ones((900, 3)), 4, kernel="rbf")
        np.testing.assert_array_equal(model.kneighbors(np.ones((2, 3)))[1], [[0, 1, 2, 3]] * 2)
        assert model.kneighbors(return_distance=False)[1].tolist() == [0, 2, 3, 4]

    def test_equal_votes_go_to_the_smallest_label(self):
        model = KernelKNeighborsClassifier(2, kernel="linear").fit([[0.0], [1.0]], ["b", "a"])
        assert model.predict([[0.1]])[0] == "a"
        assert model.predict_proba([[0.1]]).tolist() == [[0.5, 0.5]]


class TestBounds:
    """The first pass is in float32, and nothing is to be seen of that."""

    @pytest.mark.parametrize("kind", ["near ties", "far", "scales", "outlier", "tiny", "huge", "constant"])
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
    @pytest.mark.parametrize("kernel", [RBF(0.1), Laplacian(0.1)], ids=["sqdist", "l1"])
    def test_float32_and_float64_bounds_decide_alike(self, kind, form, kernel, rng):
        X = rng.normal(size=(900, 12))
        if kind == "near ties":  # distances that float32 cannot tell apart
            X = rng.choice([-1.0, 1.0], size=X.shape) * (1.0 + 1e-9 * rng.normal(size=X.shape))
        X = {
            "far": X + 1e6,
            "scales": X * np.logspace(-12, 0, 12),
            "outlier": np.where(np.arange(900)[:, None] == 7, 1e9, X),
            "tiny": X * 1e-120,
            "huge": X * 1e120,
            "constant": np.full_like(X, 3.0),
        }.get(kind, X)
        program = kernel._compiled(12)
        raw = _nearest.plain_rows(distance_form(program, 12), program, form(X[:200]), form(X))
        power = 1 if isinstance(kernel, Laplacian) else 2
        D = (np.abs(X[:200, None] - X) ** power).sum(-1)
        single, double = (
            _nearest.by_plain_distance(raw, 9, None, 1, dtype) for dtype in (np.float32, np.float64)
        )
        for a, b in zip(single, double, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(single[0], brute_force(D, 9)[0], rtol=1e-13)
        np.testing.assert_allclose(np.take_along_axis(D, single[1], 1), single[0], rtol=1e-13)

    def test_what_float32_leaves_open_is_done_in_float64(self, rng, monkeypatch):
        X = 1.0 + 1e-9 * rng.normal(size=(900, 12))
        X[0] = -1e3  # so that the centre is of no help
        used, original = [], _nearest._Bounded

        def watched(raw, dtype, n_threads=None):
            used.append(np.dtype(dtype))
            return original(raw, dtype, n_threads)

        monkeypatch.setattr(_nearest, "_Bounded", watched)
        model = searched(X, 3, kernel="linear", algorithm="brute")
        indices = model.kneighbors(X)[1]
        assert used == [np.float32, np.float64]
        D = ((X[:, None] - X) ** 2).sum(-1)
        np.testing.assert_array_equal(indices, brute_force(D, 3)[1])

    def test_rows_out_of_any_range_are_compared_as_they_are(self):
        X = np.array([[1e308, 0.0], [-1e308, 0.0], [0.0, 1.0]])
        with np.errstate(over="ignore"):
            distances, indices = searched(X, 1, kernel="laplacian", gamma=1.0).kneighbors(X)
        assert indices[:, 0].tolist() == [0, 1, 2]
        assert distances.tolist() == [[0.0]] * 3


class TestIntegers:
    """Distances of 16-bit integers bound those of the rows, and nothing is to be seen of that."""

    @pytest.fixture(autouse=True)
    def _blas_as_in_estimators(self):
        with one_blas_thread():
            yield

    @staticmethod
    def rows(kind, d, rng):
        X = rng.normal(size=(600, 5)) @ rng.normal(size=(5, d)) + 0.1 * rng.normal(size=(600, d))
        if kind == "noise":
            X = rng.normal(size=X.shape)
        elif kind == "grid":
            X = np.rint(X / 4)
        elif kind == "near ties":
            X = rng.normal(size=(30, d))[rng.integers(0, 30, 600)] + 1e-9 * rng.normal(size=X.shape)
        elif kind == "far":
            X = X + 1e7
        elif kind == "outliers":
            X[::60] *= np.logspace(1, 8, 10)[:, None]
        return X

    @pytest.mark.parametrize("k", [1, 40])
    @pytest.mark.parametrize("d", [1, 9, 65, 300])
    @pytest.mark.parametrize("kind", ["low rank", "noise", "grid", "near ties", "far", "outliers"])
    def test_they_decide_as_all_distances_do(self, kind, d, k, rng):
        X, weight = self.rows(kind, d, rng), rng.uniform(0.5, 2.0, size=d)
        for left, left_out, w in ((X, None, None), (X, np.arange(600), weight), (X[:303] * 1.1, None, None)):
            raw = (LeafKind.SQDIST, left, X, w)
            expected = _nearest.by_plain_distance(raw, k, left_out, 1, np.float64)
            n = len(left)
            scores, indices = np.full((n, k), np.nan), np.full((n, k), -1, np.int32)
            rows = IntegerRows(raw, 2)
            assert rows.usable
            np.testing.assert_array_equal(np.sort(rows.rows), np.arange(n))
            _, n_exact = rows.search(k, np.arange(n), left_out, (scores, indices))
            assert n_exact >= k * n
            np.testing.assert_array_equal(indices, expected[1])
            np.testing.assert_array_equal(scores, expected[0])

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("kind", ["noise", "outliers"])
    @pytest.mark.parametrize("d", [9, 300])
    def test_they_bound_distances_from_both_sides(self, d, kind, dtype, rng):
        X = self.rows(kind, d, rng).astype(dtype)
        rows = IntegerRows((LeafKind.SQDIST, X[:200] * dtype(1.2), X, None), 1)
        D = rows.scale * np.sqrt(cdist(X[:200] * dtype(1.2), X, "sqeuclidean"))
        levels = [rows.first] if rows.second is None else [rows.first, rows.second]
        for integers in levels:
            left, right = integers.left.astype(np.float64), integers.right.astype(np.float64)
            np.testing.assert_array_equal(integers.right_norms, (right**2).sum(1))
            assert integers.right_norms.max() <= 2**30
            found = np.sqrt(cdist(left, right, "sqeuclidean"))
            assert (found <= D + integers.slack).all()
        inside = rows.inside[0][:, None] & rows.inside[1]
        assert (found >= D - integers.slack)[inside].all()
        assert inside.mean() > 0.9
        assert inside.all() == (kind == "noise" and rows.inside[0].all() and rows.inside[1].all())

    def test_few_pairs_are_compared(self, rng):
        centres = rng.normal(size=(12, 300))
        X = centres[rng.integers(0, 12, 2000)] + 0.3 * rng.normal(size=(2000, 300))
        scores, indices = np.empty((2000, 3)), np.empty((2000, 3), np.int32)
        n_second, n_exact = IntegerRows((LeafKind.SQDIST, X, X, None), 2).search(
            3, np.arange(2000), None, (scores, indices)
        )
        assert n_exact < 5 * 2000
        assert n_exact < n_second < 0.2 * 2000**2

    @pytest.mark.parametrize("factor", [0.0, 1e-160, 1e160])
    def test_rows_out_of_range_are_left_to_floats(self, factor, rng, monkeypatch):
        monkeypatch.setattr(_nearest, "_INTEGER_WORK", 0.0)
        X = factor * rng.normal(size=(800, 6))
        raw = (LeafKind.SQDIST, X, X, None)
        with np.errstate(over="ignore"):
            assert _nearest._by_integers(raw, 3, None, 1) is None
            expected = _nearest.by_plain_distance(raw, 3, None, 1, np.float64)
            got = _nearest.by_plain_distance(raw, 3, None, 1)
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[1], expected[1])

    def test_a_row_whose_square_overflows_is_left_to_floats(self, rng, monkeypatch):
        monkeypatch.setattr(_nearest, "_INTEGER_WORK", 0.0)
        X = rng.normal(size=(3000, 6))
        X[1] = 1e200  # in no sample
        with np.errstate(over="ignore"):
            assert _nearest._by_integers((LeafKind.SQDIST, X, X, None), 3, None, 1) is None

    def test_a_first_strip_tells_where_they_leave_too_much_open(self, rng, monkeypatch):
        monkeypatch.setattr(_nearest, "_INTEGER_WORK", 0.0)
        X = np.where(rng.random(size=(3000, 1)) < 0.05, 1e6, 1.0) * rng.normal(size=(3000, 6))
        raw = (LeafKind.SQDIST, X, X, None)
        assert _nearest._by_integers(raw, 3, None, 1) is None
        assert _nearest._by_integers((LeafKind.SQDIST, X / 1e6, X[:2000], None), 3, None, 1) is None
        got, expected = (_nearest.by_plain_distance(raw, 3, None, 2, dtype) for dtype in (None, np.float64))
        np.testing.assert_array_equal(got[1], expected[1])

    def test_threads_change_nothing(self, rng, monkeypatch):
        monkeypatch.setattr(_nearest, "_INTEGER_WORK", 0.0)
        X = self.rows("low rank", 140, rng)
        results = [_nearest._by_integers((LeafKind.SQDIST, X, X, None), 4, None, n) for n in (1, 2, 3)]
        for one in results[1:]:
            np.testing.assert_array_equal(one[0], results[0][0])
            np.testing.assert_array_equal(one[1], results[0][1])

    def test_fewer_rows_than_directions(self, rng):
        X, Q = rng.normal(size=(40, 300)), rng.normal(size=(800, 300))
        scores, indices = np.empty((800, 3)), np.empty((800, 3), np.int32)
        IntegerRows((LeafKind.SQDIST, Q, X, None), 2).search(3, np.arange(800), None, (scores, indices))
        np.testing.assert_array_equal(indices, brute_force(cdist(Q, X, "sqeuclidean"), 3)[1])


class TestConventions:
    @pytest.mark.parametrize("kernel", [RBF(0.2), Laplacian(0.2), Polynomial(2), ChiSquared()], ids=repr)
    def test_threads_change_nothing(self, kernel, rng):
        X, Q = rng.random(size=(2500, 9)), rng.random(size=(700, 9))
        results = [searched(X, 7, kernel=kernel, n_jobs=n).kneighbors(Q) for n in (1, 2, 3)]
        for one in results[1:]:
            np.testing.assert_array_equal(one[0], results[0][0])
            np.testing.assert_array_equal(one[1], results[0][1])

    @pytest.mark.parametrize("kernel", [RBF(0.2), Polynomial(2)], ids=repr)
    def test_neither_company_nor_parts_of_the_columns_change_a_row(self, kernel, rng):
        X, Q = rng.normal(size=(4000, 5)), rng.normal(size=(500, 5))
        model = searched(X, 5, kernel=kernel, algorithm="brute")
        all_ = model.kneighbors(Q)
        for some in (slice(0, 1), slice(3, 50), slice(100, 301)):
            few = model.kneighbors(Q[some])
            np.testing.assert_array_equal(few[0], all_[0][some])
            np.testing.assert_array_equal(few[1], all_[1][some])

    @pytest.mark.parametrize("kernel", [RBF(0.2), Laplacian(0.2), Linear(), Polynomial(2)], ids=repr)
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_storage_does_not_matter(self, kernel, dtype, rng):
        X = (rng.normal(size=(120, 20)) * (rng.random((120, 20)) < 0.4)).astype(dtype)
        expected = searched(X, 4, kernel=kernel).kneighbors(X[:50])
        assert expected[0].dtype == dtype
        frozen = X.copy()
        frozen.flags.writeable = False
        for form in (
            np.asfortranarray,
            sp.csr_array,
            sp.csc_matrix,
            lambda A: frozen,
            lambda A: A[:, ::-1][:, ::-1],
        ):
            for query in (form(X)[:50], X[:50]) if form is not sp.csc_matrix else (X[:50],):
                got = searched(form(X), 4, kernel=kernel).kneighbors(query)
                np.testing.assert_array_equal(got[1], expected[1])
                np.testing.assert_allclose(
                    got[0], expected[0], rtol=1e-6 if dtype == np.float32 else 1e-12, atol=1e-7
                )
        assert searched(X, 4, kernel=kernel).predict(X).dtype == dtype

    def test_precomputed(self, rng):
        X, Q, y = rng.normal(size=(80, 3)), rng.normal(size=(30, 3)), rng.integers(0, 3, 80)
        k = RBF(0.4)
        plain = KernelKNeighborsClassifier(kernel=k).fit(X, y)
        for kernel in ("precomputed", Precomputed(), 2.0 * Precomputed()):
            given = KernelKNeighborsClassifier(kernel=kernel).fit(k(X), y)
            assert get_tags(given).input_tags.pairwise
            np.testing.assert_array_equal(given.predict(k(Q, X)), plain.predict(Q))
            np.testing.assert_array_equal(given.kneighbors(return_distance=False), plain.kneighbors()[1])
            with pytest.raises(ValueError, match=r"need k\(x, x\) of the queries.*diagonal="):
                given.kneighbors(k(Q, X))
            scale = 2.0 if kernel == 2.0 * Precomputed() else 1.0
            distances, _ = given.kneighbors(k(Q, X), diagonal=np.full(30, scale))
            np.testing.assert_allclose(distances, np.sqrt(scale) * plain.kneighbors(Q)[0], rtol=1e-12)
        scores = cross_val_score(KernelKNeighborsClassifier(kernel="precomputed"), k(X), y, cv=3)
        np.testing.assert_array_equal(scores, cross_val_score(plain, X, y, cv=3))
        with pytest.raises(ValueError, match="diagonal is for queries of a precomputed kernel"):
            plain.kneighbors(Q, diagonal=np.ones(30))

    @both
    def test_pickles_clones_searches_and_keeps_nothing_of_the_callers(self, machine, rng):
        X, y = rng.normal(size=(90, 2)), rng.integers(0, 2, 90)
        model = machine(kernel=RBF(gamma=0.5), algorithm="tree").fit(X, y)
        before = model.predict(X)
        kept = X.copy()
        X[:], y[:] = 0.0, 0
        np.testing.assert_array_equal(model.predict(kept), before)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(kept), before)
        assert clone(model).set_params(kernel__gamma=2.0).kernel == RBF(gamma=2.0)
        search = GridSearchCV(
            machine(kernel=RBF()), {"n_neighbors": [1, 3], "kernel__gamma": [0.1, 1.0]}, cv=3
        )
        assert search.fit(kept, before).best_estimator_.n_samples_fit_ == 90

    @pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 1], [2.0, 7.0]])
    def test_labels_of_any_kind(self, labels, rng):
        X = rng.normal(size=(40, 2))
        y = np.array(labels)[(X[:, 0] > 0).astype(int)]
        model = KernelKNeighborsClassifier(1).fit(X, y)
        np.testing.assert_array_equal(model.predict(X), y)
        assert model.classes_.tolist() == labels

    @both
    def test_one_sample_and_constant_targets(self, machine):
        model = machine(1).fit([[2.0]], [3])
        assert model.predict([[5.0]]).tolist() == [3]
        model = machine(2).fit(np.arange(6.0).reshape(-1, 1), np.full(6, 4))
        assert set(model.predict([[5.0], [1.0]]).tolist()) == {4}

    def test_the_tree_is_taken_for_few_features_and_many_rows(self, rng):
        X = rng.normal(size=(10000, 2))
        assert searched(X, 1).algorithm_used_ == "tree"
        for other in (X[:100], np.hstack([X] * 10), sp.csr_array(X)):
            assert searched(other, 1).algorithm_used_ == "brute"
        assert searched(X, 1, kernel=Polynomial(2)).algorithm_used_ == "brute"


class TestBadInput:
    X, y = np.arange(12.0).reshape(6, 2), [0, 1, 0, 1, 0, 1]

    @both
    @pytest.mark.parametrize(
        ("params", "error", "match"),
        [
            ({"n_neighbors": 0}, ValueError, "n_neighbors must be at least 1, got 0"),
            ({"n_neighbors": 2.5}, TypeError, "n_neighbors must be an integer, got 2.5"),
            ({"weights": "distances"}, ValueError, "did you mean 'distance'"),
            ({"algorithm": "kd_tree"}, ValueError, "algorithm='kd_tree' is unknown"),
            ({"kernel": "rbg"}, ValueError, "did you mean 'rbf'"),
            ({"kernel": 3}, TypeError, "kernel must be"),
            (
                {"kernel": "poly", "algorithm": "tree"},
                ValueError,
                "algorithm='tree' cannot search by kernel='poly'",
            ),
            ({"n_jobs": 0}, ValueError, "is 0; use None"),
        ],
    )
    def test_parameters(self, machine, params, error, match):
        model = machine(1).fit(self.X, self.y)
        state = dict(model.__dict__)
        model.set_params(**params)
        with pytest.raises(error, match=match):
            model.fit(self.X, self.y)
        assert {key: value for key, value in model.__dict__.items() if key.endswith("_")} == {
            key: value for key, value in state.items() if key.endswith("_")
        }

    @both
    def test_more_neighbours_than_rows(self, machine):
        model = machine(7).fit(self.X, self.y)
        with pytest.raises(ValueError, match=r"n_neighbors = 7, n_samples_fit = 6; lower n_neighbors to 6"):
            model.predict(self.X)
        with pytest.raises(ValueError, match=r"n_samples_fit = 6, and none is its own.*to 5"):
            model.kneighbors(n_neighbors=6)

    @both
    def test_rows(self, machine):
        with pytest.raises(NotFittedError):
            machine().predict(self.X)
        model = machine(1).fit(self.X, self.y)
        with pytest.raises(ValueError, match="X has 3 features, but"):
            model.predict(np.ones((1, 3)))
        with pytest.raises(ValueError, match="NaN at row 0, column 1"):
            model.predict([[0.0, np.nan]])
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.fit(self.X, self.y[:-1])

    def test_labels(self):
        with pytest.raises(ValueError, match="Unknown label type"):
            KernelKNeighborsClassifier().fit(self.X, np.linspace(0, 1, 6))
        with pytest.raises(ValueError, match="The first is at row 2"):
            KernelKNeighborsClassifier().fit(self.X, [0.0, 1.0, np.nan, 0.0, 1.0, 1.0])
        with pytest.warns(DataConversionWarning, match="column-vector"):
            KernelKNeighborsClassifier(1).fit(self.X, np.array(self.y)[:, None])

    @pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array])
    def test_sparse_indicators_of_several_labels(self, form, rng):
        X, Y = rng.normal(size=(30, 2)), rng.integers(0, 2, size=(30, 3))
        dense, sparse = (KernelKNeighborsClassifier().fit(X, each) for each in (Y, form(Y)))
        np.testing.assert_array_equal(sparse.predict(X), dense.predict(X))

    def test_weights_from_a_callable(self):
        def fit(weights):
            return KernelKNeighborsRegressor(2, weights=weights).fit(self.X, self.y)

        with pytest.raises(ValueError, match=r"of the shape \(6, 2\)"):
            fit(lambda D: D[:, :1]).predict(self.X)
        with pytest.raises(ValueError, match="NaN or infinity"):
            fit(lambda D: np.full(D.shape, np.nan)).predict(self.X)
        with pytest.raises(ValueError, match="all neighbours of row 0 have the weight 0"):
            fit(np.zeros_like).predict(self.X)
        with pytest.raises(ValueError, match=r"of row 0 add up to 0, by which .* a positive sum"):
            fit(lambda D: np.where(np.arange(2) == 0, 1.0, -1.0) + 0 * D).predict(self.X)

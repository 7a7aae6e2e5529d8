"""KernelRidge: the forms that samples come in, samples that are no rows of numbers, and bad input."""

import copy

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from mercer import KernelRidge
from mercer.kernels import (
    RBF,
    Laplacian,
    SetIntersection,
    Spectrum,
)
from mercer.solvers import ridge, ridge_loo

SOLVERS = ["cholesky", "cg"]
both_solvers = pytest.mark.parametrize("solver", SOLVERS)
intercepts = pytest.mark.parametrize("fit_intercept", [True, False])


@pytest.fixture
def data(rng):
    X = rng.normal(size=(60, 3))
    return X, np.sin(X).sum(axis=1) + 10, rng.normal(size=(25, 3))


class TestInput:
    @pytest.mark.parametrize("kernel", ["rbf", "linear", Laplacian(0.5)], ids=str)
    def test_forms_of_one_matrix(self, data, kernel, tmp_path):
        X, y, Z = data
        X, Z = np.where(X > 0, X, 0), np.where(Z > 0, Z, 0)
        np.save(tmp_path / "X.npy", X)
        expected = KernelRidge(kernel=kernel).fit(X, y).predict(Z)
        read_only = X.copy()
        read_only.flags.writeable = False
        forms = [np.asfortranarray(X), read_only, np.load(tmp_path / "X.npy", mmap_mode="r"), X.tolist()]
        forms += [sp.csr_array(X), sp.csc_matrix(X), sp.coo_array(X), np.repeat(X, 2, axis=0)[::2]]
        for form in forms:
            model = KernelRidge(kernel=kernel).fit(form, y)
            np.testing.assert_allclose(model.predict(Z), expected, rtol=1e-9)
            np.testing.assert_allclose(model.predict(sp.csr_array(Z)), expected, rtol=1e-9)

    @both_solvers
    def test_float32_in_float32_out(self, data, solver):
        X, y, Z = data
        options = {"kernel": "rbf", "alpha": 0.1, "solver": solver, "random_state": 0}
        exact = KernelRidge(**options).fit(X, y).predict(Z)
        model = KernelRidge(**options).fit(X.astype(np.float32), y.astype(np.float32))
        single = model.predict(Z.astype(np.float32))
        assert single.dtype == model.dual_coef_.dtype == model.intercept_.dtype == np.float32
        # Rounding of X and of the dual coefficients, each 6e-8 of values up to 10 / alpha.
        np.testing.assert_allclose(single, exact, atol=1e-4)
        assert KernelRidge(**options).fit(X, y.astype(np.float32)).dual_coef_.dtype == np.float64

    def test_integers_and_booleans(self):
        X, y = np.array([[250, 3], [5, 200], [7, 9]], dtype=np.uint8), [1, 2, 4]
        expected = KernelRidge(kernel="rbf", gamma=1e-5).fit(X.astype(float), np.array(y, float))
        model = KernelRidge(kernel="rbf", gamma=1e-5).fit(X, y)
        np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)

    def test_data_frames_keep_their_names(self, data):
        X, y, Z = data
        names = ["a", "b", "c"]
        frame = pd.DataFrame(X, columns=names)
        model = KernelRidge().fit(frame, pd.Series(y))
        assert list(model.feature_names_in_) == names
        np.testing.assert_allclose(
            model.predict(pd.DataFrame(Z, columns=names)), KernelRidge().fit(X, y).predict(Z)
        )
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(pd.DataFrame(Z, columns=["b", "a", "c"]))
        assert not hasattr(model.fit(X, y), "feature_names_in_")

    @pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
    def test_the_callers_arrays_are_neither_kept_nor_changed(self, data, kernel):
        X, y, Z = data
        if kernel == "precomputed":
            X, Z = RBF(0.3)(X), RBF(0.3)(Z, X)
        weights = np.linspace(-0.1, 2, 60)
        given = [X, y, weights]
        before = copy.deepcopy(given)
        model = KernelRidge(0.1, kernel=kernel).fit(*given)
        for a, b in zip(given, before, strict=True):
            np.testing.assert_array_equal(a, b)
        expected = model.predict(Z), clone(model).fit(*before).leave_one_out_
        for a in given:
            a[:] = 999
        np.testing.assert_array_equal(model.predict(Z), expected[0])
        np.testing.assert_array_equal(model.leave_one_out_, expected[1])

    def test_a_callers_sparse_matrix_stays(self, data):
        X, y, _ = data
        X = sp.csr_matrix(np.where(X > 0, X, 0))
        model = KernelRidge(kernel="rbf").fit(X, y)
        expected = model.predict(X.copy())
        held = X.copy()
        X.data[:] = 999
        np.testing.assert_array_equal(model.predict(held), expected)

    def test_rows_alone_and_in_a_batch(self, data):
        X, y, Z = data
        model = KernelRidge(kernel="rbf").fit(X, y)
        alone = np.concatenate([model.predict(z[None]) for z in Z])
        np.testing.assert_allclose(alone, model.predict(Z), rtol=1e-12)


class TestBadInput:
    @pytest.mark.parametrize(
        ("params", "error", "message"),
        [
            ({"alpha": -1.0}, ValueError, r"alpha must be finite and not negative, got -1\.0"),
            ({"alpha": [1.0, 2.0]}, ValueError, r"one number or one per target \(1\), got shape \(2,\)"),
            ({"alpha": "a"}, TypeError, "alpha must be a nonnegative number"),
            ({"alpha": None}, TypeError, "alpha must be a nonnegative number or one per target, got None"),
            ({"alpha": ["1"]}, TypeError, "alpha must be a nonnegative number"),
            ({"fit_intercept": "no"}, TypeError, "fit_intercept must be True or False, got 'no'"),
            ({"store_factor": 2}, TypeError, "store_factor must be True or False"),
            ({"random_state": 1.5}, ValueError, "1.5 cannot be used to seed"),
            ({"solver": "choleski"}, ValueError, "solver='choleski' is unknown; did you mean 'cholesky'"),
            ({"tol": 0}, ValueError, "tol must be larger than 0, got 0"),
            ({"tol": "x"}, TypeError, "tol must be a number, got 'x'"),
            ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
            ({"max_iter": 1.5}, TypeError, "max_iter must be an integer or None"),
            ({"memory_budget": -1}, ValueError, "memory_budget must be larger than 0"),
            ({"precond_rank": 0}, ValueError, "precond_rank must be at least 1"),
            ({"n_jobs": 0}, ValueError, "threads .n_jobs, n_threads. is 0"),
            ({"kernel": "rfb"}, ValueError, "'rbf'"),
            ({"kernel": 3}, TypeError, "kernel must be a kernel expression, a name or a callable, got 3"),
            ({"kernel": RBF}, TypeError, r"use RBF\(…\), an instance"),
            ({"kernel": "rbf", "gamma": -1.0}, ValueError, "gamma must be positive"),
            ({"kernel": "rbf", "gamma": "big"}, ValueError, "gamma='big' is unknown"),
            ({"kernel": "precomputed"}, ValueError, r"square matrix at fit, got shape \(4, 2\)"),
        ],
    )
    def test_parameters(self, params, error, message):
        with pytest.raises(error, match=message):
            KernelRidge(**params).fit(np.arange(8.0).reshape(4, 2), [1.0, 2.0, 3.0, 5.0])

    @pytest.mark.parametrize(
        ("X", "y", "error", "message"),
        [
            ([[1.0], [np.nan]], [1.0, 2.0], ValueError, "Input X contains NaN at row 1, column 0"),
            ([[1.0], [2.0]], [1.0], ValueError, "X has 2 rows, y has 1"),
            ([[1.0], [2.0]], None, ValueError, "KernelRidge requires y to be passed"),
            ([["a"], ["b"]], [1.0, 2.0], ValueError, "X holds the string 'a'"),
            (np.ones((2, 1), complex), [1.0, 2.0], ValueError, "Complex data not supported"),
            (np.ones((0, 2)), [], ValueError, r"0 sample\(s\)"),
        ],
    )
    def test_samples_and_targets(self, X, y, error, message):
        with pytest.raises(error, match=message):
            KernelRidge().fit(X, y)

    def test_an_asymmetric_matrix_names_the_entries(self):
        with pytest.raises(
            ValueError, match=r"symmetric matrix at fit, but entries \(0, 1\) and \(1, 0\) are"
        ):
            KernelRidge(kernel="precomputed").fit(np.array([[1.0, 0.5], [0.4, 1.0]]), [1.0, 2.0])

    def test_predict(self, data):
        X, y, _ = data
        with pytest.raises(NotFittedError, match="not fitted yet"):
            KernelRidge().predict(X)
        model = KernelRidge().fit(X, y)
        with pytest.raises(
            ValueError, match="X has 2 features, but KernelRidge is expecting 3 features as input"
        ):
            model.predict(X[:, :2])
        with pytest.raises(ValueError, match="Reshape your data"):
            model.predict(X[0])

    def test_a_matrix_beyond_memory(self, monkeypatch):
        X = np.zeros((10**6, 1))
        X[0] = 1
        with pytest.raises(ValueError, match=r"needs 8 TB.*k\.gram"):
            KernelRidge(solver="cholesky").fit(X, X[:, 0])

    def test_a_users_exception_passes_unchanged(self, data):
        X, y, _ = data

        class Mine(Exception):
            pass

        def f(x, z):
            raise Mine("inside")

        with pytest.raises(Mine, match="inside"):
            KernelRidge(kernel=f).fit(X, y)


@both_solvers
class TestSamplesThatAreNoRows:
    """Strings and sets: nothing is converted, and no columns are counted."""

    words = ("banana", "ananas", "bandana", "cabana", "savanna", "canada", "panama", "nanny")

    @pytest.mark.parametrize(
        ("kernel", "read"),
        [(Spectrum(2), str), (SetIntersection(), set), (SetIntersection().exp(), frozenset)],
    )
    def test_fit_predict_and_weights(self, solver, kernel, read):
        X, y = [read(word) for word in self.words], np.arange(8.0)
        weights = np.array([1.0, 1, 0, 2, 1, 1, 1, 1])
        kept = weights > 0
        model = KernelRidge(0.5, kernel=kernel, solver=solver, tol=1e-10).fit(X, y, weights)
        a, b = ridge(kernel(X), y, 0.5, sample_weight=weights, fit_intercept=True)
        np.testing.assert_allclose(model.dual_coef_, a[kept], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(model.predict(X), kernel(X) @ a + b, rtol=1e-7)
        loo = ridge_loo(kernel(X), y, 0.5, sample_weight=weights, fit_intercept=True)
        np.testing.assert_allclose(model.leave_one_out_, loo, rtol=1e-7)
        assert not hasattr(model, "n_features_in_")
        assert len(model.X_fit_) == 7

    def test_the_callers_sets_may_change(self, solver):
        X = [set(word) for word in self.words]
        model = KernelRidge(kernel=SetIntersection(), solver=solver).fit(X, np.arange(8.0))
        query = [set("banjo")]
        expected = model.predict(query)
        for s in X:
            s.clear()
        np.testing.assert_array_equal(model.predict(query), expected)


def test_labels_for_a_regression_point_to_classifiers():
    with pytest.raises(ValueError, match=r"y holds the string 'a' at row 0.* there are SVC and Kernel"):
        KernelRidge().fit([[0.0], [1.0]], ["a", "b"])

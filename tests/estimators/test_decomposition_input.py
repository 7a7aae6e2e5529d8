"""KernelPCA: the forms that samples come in, samples that are no rows of numbers, and bad input."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from mercer import KernelPCA
from mercer.kernels import RBF, Laplacian, SetIntersection, Spectrum

# Ways to the same components; n = 130 leaves room for blocks of 16.
WAYS = {
    "dense": {"eigen_solver": "dense"},
    "lanczos": {"eigen_solver": "lanczos", "random_state": 0},
    "lanczos, lazy": {"eigen_solver": "lanczos", "memory_budget": 1.0, "random_state": 0},
}
each_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def data(rng):
    return rng.normal(size=(130, 4)), rng.normal(size=(25, 4))


def same_up_to_sign(A, B, **tolerance):
    signs = np.where(np.einsum("ij,ij->j", A, B) < 0, -1.0, 1.0)
    np.testing.assert_allclose(A * signs, B, **tolerance)


class TestInput:
    @pytest.mark.parametrize("kernel", ["rbf", "linear", Laplacian(0.5)], ids=str)
    @pytest.mark.parametrize("way", WAYS)
    def test_forms_of_one_matrix(self, data, kernel, way, tmp_path):
        X, Z = (np.where(A > 0, A, 0) for A in data)
        np.save(tmp_path / "X.npy", X)
        expected = KernelPCA(3, kernel=kernel, **WAYS[way]).fit(X).transform(Z)
        read_only = X.copy()
        read_only.flags.writeable = False
        forms = [np.asfortranarray(X), read_only, np.load(tmp_path / "X.npy", mmap_mode="r"), X.tolist()]
        forms += [sp.csr_array(X), sp.csc_matrix(X), sp.coo_array(X), np.repeat(X, 2, axis=0)[::2]]
        for form in forms:
            model = KernelPCA(3, kernel=kernel, **WAYS[way]).fit(form)
            np.testing.assert_allclose(model.transform(Z), expected, atol=1e-8)
            np.testing.assert_allclose(model.transform(sp.csr_array(Z)), expected, atol=1e-8)

    def test_integers(self):
        X = np.array([[250, 3], [5, 200], [7, 9]], dtype=np.uint8)
        expected = KernelPCA(2, kernel="rbf", gamma=1e-5).fit_transform(X.astype(float))
        np.testing.assert_array_equal(KernelPCA(2, kernel="rbf", gamma=1e-5).fit_transform(X), expected)

    def test_data_frames_in_and_out(self, data):
        X, Z = data
        names = list("abcd")
        frame = pd.DataFrame(X, columns=names, index=range(5, 135))
        model = KernelPCA(2, kernel="rbf").set_output(transform="pandas").fit(frame)
        assert list(model.feature_names_in_) == names
        Y = model.transform(frame)
        assert list(Y.columns) == ["kernelpca0", "kernelpca1"]
        assert list(Y.index) == list(frame.index)
        pd.testing.assert_frame_equal(model.fit_transform(frame), Y, rtol=1e-9, atol=1e-9)
        with pytest.raises(ValueError, match="feature names should match"):
            model.transform(pd.DataFrame(Z, columns=list("bacd")))
        assert not hasattr(model.fit(X), "feature_names_in_")

    @pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
    @pytest.mark.parametrize("way", WAYS)
    def test_the_callers_arrays_are_neither_kept_nor_changed(self, data, kernel, way):
        X, Z = data
        if kernel == "precomputed":
            X, Z = RBF(0.3)(X), RBF(0.3)(Z, X)
        before = X.copy()
        model = KernelPCA(3, kernel=kernel, fit_inverse_transform=kernel == "rbf", **WAYS[way]).fit(X)
        np.testing.assert_array_equal(X, before)
        expected = model.transform(Z)
        X[:] = 999
        np.testing.assert_array_equal(model.transform(Z), expected)
        if kernel == "rbf":
            again = clone(model).fit(before)
            np.testing.assert_array_equal(
                model.inverse_transform(expected), again.inverse_transform(expected)
            )

    def test_a_callers_sparse_matrix_stays(self, data):
        X = sp.csr_matrix(np.where(data[0] > 0, data[0], 0))
        model = KernelPCA(2, kernel="rbf").fit(X)
        held = X.copy()
        expected = model.transform(held)
        X.data[:] = 999
        np.testing.assert_array_equal(model.transform(held), expected)

    @pytest.mark.parametrize(
        ("kernel", "read"),
        [(Spectrum(2), str), (SetIntersection(), set), (SetIntersection().exp(), frozenset)],
    )
    @pytest.mark.parametrize("way", ["dense", "lanczos, lazy"])
    def test_samples_that_are_no_rows(self, kernel, read, way, rng):
        X = [read("".join(rng.choice(list("abcde"), 6))) for _ in range(140)]
        model = KernelPCA(3, kernel=kernel, **WAYS[way]).fit(X)
        assert model.solver_used_ == way
        given = KernelPCA(3, kernel="precomputed", **WAYS["dense"]).fit(kernel(X))
        np.testing.assert_allclose(model.eigenvalues_, given.eigenvalues_, rtol=1e-9)
        new = X[:9]
        same_up_to_sign(model.transform(new), given.transform(kernel(new, X)), atol=1e-6)
        assert not hasattr(model, "n_features_in_")
        assert list(model.get_feature_names_out()) == ["kernelpca0", "kernelpca1", "kernelpca2"]


class TestBadInput:
    @pytest.mark.parametrize(
        ("params", "error", "message"),
        [
            ({"n_components": 0}, ValueError, "n_components must be at least 1, got 0"),
            ({"n_components": 1.5}, TypeError, "n_components must be an integer or None, got 1.5"),
            ({"alpha": -1.0}, ValueError, "alpha must be at least 0"),
            ({"eigen_solver": "lancsoz"}, ValueError, "is unknown; did you mean 'lanczos'"),
            ({"tol": -1}, ValueError, "tol must be at least 0"),
            ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
            ({"memory_budget": 0}, ValueError, "memory_budget must be larger than 0"),
            ({"fit_inverse_transform": "no"}, TypeError, "fit_inverse_transform must be True or False"),
            ({"remove_zero_eig": 2}, TypeError, "remove_zero_eig must be True or False"),
            ({"random_state": 1.5}, ValueError, "1.5 cannot be used to seed"),
            ({"n_jobs": 0}, ValueError, "threads .n_jobs, n_threads. is 0"),
            ({"kernel": "rfb"}, ValueError, "'rbf'"),
            ({"kernel": RBF}, TypeError, r"use RBF\(…\), an instance"),
            ({"kernel": "rbf", "gamma": "big"}, ValueError, "gamma='big' is unknown"),
            ({"kernel": "precomputed"}, ValueError, r"square matrix at fit, got shape \(4, 2\)"),
        ],
    )
    def test_parameters(self, params, error, message):
        with pytest.raises(error, match=message):
            KernelPCA(**params).fit(np.arange(8.0).reshape(4, 2))

    def test_samples(self, data):
        X, Z = data
        with pytest.raises(ValueError, match="Input X contains NaN at row 1, column 0"):
            KernelPCA().fit([[1.0], [np.nan]])
        with pytest.raises(ValueError, match=r"0 sample\(s\)"):
            KernelPCA().fit(np.ones((0, 2)))
        with pytest.raises(NotFittedError, match="not fitted yet"):
            KernelPCA().transform(X)
        model = KernelPCA(2).fit(X)
        with pytest.raises(ValueError, match="X has 3 features, but KernelPCA is expecting 4"):
            model.transform(Z[:, :3])

    @pytest.mark.parametrize("way", WAYS)
    def test_entries_beyond_the_range_are_named(self, data, way):
        with (
            np.errstate(over="ignore", invalid="ignore"),
            pytest.raises(ValueError, match=r"infinite or NaN in row \d+.*scale the samples"),
        ):
            KernelPCA(2, **WAYS[way]).fit(data[0] * 1e200)

    def test_a_matrix_beyond_memory(self):
        X = np.zeros((10**6, 1))
        X[0] = 1
        with pytest.raises(ValueError, match=r"needs 8 TB.*k\.gram"):
            KernelPCA(1, eigen_solver="dense").fit(X)

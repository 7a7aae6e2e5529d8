"""Bug reports of the given list that concern kernel PCA, each with its kind around it.

The numbers were worked out by fractions and 50-digit arithmetic.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from mercer import KernelPCA
from mercer.kernels import RBF, Linear, Polynomial

# Few rows go to LAPACK whatever is asked for; copies of them, which change no component, to the iteration.
both_solvers = pytest.mark.parametrize("solver", ["dense", "lanczos"])


@both_solvers
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
class TestG03FewerComponentsThanAskedFor:
    X = np.array([[0.0, 0], [1, 2], [2, 4], [3, 6]])
    T = np.array([[4.0, 8], [1, 0]])
    training = (3.3541019662496847, 1.118033988749895, 1.118033988749895, 3.3541019662496847)
    new = (5.5901699437494745, 2.9068883707497264)

    def fit(self, form, solver, **params):
        copies = 1 if solver == "dense" else 40
        X = np.tile(self.X, (copies, 1))
        model = KernelPCA(3, eigen_solver=solver, random_state=0, **params)
        with pytest.warns(UserWarning, match="n_components=3, but only 1 component with variance exists"):
            Y = model.fit_transform(form(X))
        assert model.solver_used_ == solver
        return model, Y, copies

    def test_values(self, form, solver):
        model, Y, copies = self.fit(form, solver)
        assert model.eigenvalues_[0] / copies == pytest.approx(25.0, rel=1e-9)
        np.testing.assert_allclose(np.abs(Y[:4, 0]), self.training, rtol=1e-9)
        np.testing.assert_allclose(np.abs(model.transform(form(self.X))[:, 0]), self.training, rtol=1e-9)
        np.testing.assert_allclose(np.abs(model.transform(form(self.T))[:, 0]), self.new, rtol=1e-9)
        for scores in (Y, model.transform(form(self.X)), model.transform(form(self.T))):
            np.testing.assert_allclose(scores[:, 1:], 0, atol=1e-7)

    def test_transform_equals_fit_transform(self, form, solver):
        model, Y, copies = self.fit(form, solver)
        np.testing.assert_allclose(model.transform(form(np.tile(self.X, (copies, 1)))), Y, atol=1e-9)

    def test_dropped(self, form, solver):
        model, Y, _ = self.fit(form, solver, remove_zero_eig=True)
        assert Y.shape[1] == 1
        np.testing.assert_allclose(np.abs(model.transform(form(self.T))[:, 0]), self.new, rtol=1e-9)

    @pytest.mark.parametrize("kernel", [Linear(), Polynomial(2), RBF(gamma=0.1)], ids=repr)
    @pytest.mark.parametrize("distinct", [1, 2, 5])
    def test_repeated_rows_have_few_components(self, form, solver, kernel, distinct, rng):
        rows = rng.normal(size=(distinct, 3))
        X = np.tile(rows, (30, 1)) if solver == "dense" else np.tile(rows, (200 // distinct, 1))
        model = KernelPCA(6, kernel=kernel, eigen_solver=solver, random_state=0)
        with pytest.warns(UserWarning, match=f"only {min(distinct - 1, 3 if kernel == Linear() else 9)} "):
            model.fit(form(X))
        # Far and near rows: nothing is divided by the root of rounding.
        scores = model.transform(form(np.vstack((X[:distinct], rng.normal(size=(5, 3)), [[1e3, 0, 0]]))))
        assert np.isfinite(scores).all()
        assert (scores[:, model.eigenvalues_ == 0] == 0).all()


class TestG05GammaIsFixedAtFit:
    def test_values(self, rng):
        X = rng.normal(size=(30, 4))
        options = {"n_components": 2, "kernel": "rbf", "fit_inverse_transform": True}
        model, given = KernelPCA(**options).fit(X), KernelPCA(gamma=0.25, **options).fit(X)
        assert model.gamma_ == model.kernel_.gamma == 0.25
        Z = rng.normal(size=(5, 2))  # two columns, from which 1/n_features would be another number
        np.testing.assert_array_equal(model.inverse_transform(Z), given.inverse_transform(Z))

    @pytest.mark.filterwarnings("ignore:the centred kernel matrix has the eigenvalue -")  # sigmoid
    @pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian", "sigmoid"])
    @pytest.mark.parametrize("gamma", [None, "auto", "scale"])
    def test_every_rule_and_kernel(self, rng, kernel, gamma):
        X = 0.1 * rng.normal(size=(30, 4))
        # Learning pre-images takes a positive semidefinite kernel.
        maps_back = kernel != "sigmoid"
        options = {"n_components": 2, "kernel": kernel, "fit_inverse_transform": maps_back}
        model = KernelPCA(gamma=gamma, **options).fit(X)
        value = 0.25 if gamma != "scale" else 1 / (4 * X.var())
        assert model.gamma_ == pytest.approx(value, rel=1e-12)
        given = KernelPCA(gamma=model.gamma_, **options).fit(X)
        # Rows of another spread: γ stays.
        new = 100 * rng.normal(size=(6, 4))
        np.testing.assert_allclose(model.transform(new), given.transform(new), rtol=1e-12)
        if maps_back:
            Z = 10 * rng.normal(size=(5, 2))
            np.testing.assert_allclose(model.inverse_transform(Z), given.inverse_transform(Z), rtol=1e-12)

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
    def test_scale_in_each_form(self, form):
        X = np.array([[0.0, 2], [4, 10]])
        for factor, gamma in ((1, 0.03571428571428571), (10, 0.00035714285714285714)):
            model = KernelPCA(1, kernel="rbf", gamma="scale").fit(form(factor * X))
            assert model.gamma_ == pytest.approx(gamma, rel=1e-12)
            # K = [[1, e], [e, 1]]: the centred matrix has the eigenvalue 1 − e.
            assert model.eigenvalues_[0] == pytest.approx(1 - 0.05743261926761735, rel=1e-12)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            assert KernelPCA(1, kernel="rbf", gamma="scale").fit(form(np.full((2, 2), 3.0))).gamma_ == 1.0


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("kernel", [Linear(), RBF(gamma=0.3)], ids=repr)
class TestG07StorageAndCompanyDoNotMatter:
    def test_dense_sparse_alone_together(self, rng, form, kernel):
        X = rng.standard_normal((40, 8)) * (rng.random((40, 8)) < 0.3)
        dense = KernelPCA(3, kernel=kernel).fit(X[:30])
        model = KernelPCA(3, kernel=kernel).fit(form(X[:30]))
        np.testing.assert_allclose(model.transform(form(X)), dense.transform(X), atol=1e-10)
        alone = [model.transform(form(X[i : i + 1]))[0] for i in range(40)]
        np.testing.assert_allclose(alone, model.transform(form(X)), atol=1e-12)


class TestG09TheCallersArrays:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
    def test_writing_into_them_after_fit_changes_nothing(self, rng, dtype, kernel):
        X = rng.normal(size=(20, 3)).astype(dtype)
        X = RBF(gamma=0.3)(X) if kernel == "precomputed" else X
        kept = X.copy()
        model = KernelPCA(2, kernel=kernel, fit_inverse_transform=kernel != "precomputed").fit(X)
        assert np.array_equal(X, kept)
        before = model.transform(kept)
        back = model.inverse_transform(before) if kernel != "precomputed" else None
        X[:] = 999
        np.testing.assert_array_equal(model.transform(kept), before)
        if back is not None:
            np.testing.assert_array_equal(model.inverse_transform(before), back)

    def test_sparse(self, rng):
        X = sp.csr_array(np.maximum(rng.normal(size=(20, 3)), 0))
        model = KernelPCA(2, kernel="rbf").fit(X)
        new = X.copy()
        before = model.transform(new)
        X.data[:] = 999
        np.testing.assert_array_equal(model.transform(new), before)

    def test_writing_into_results_changes_nothing(self, rng):
        X = rng.normal(size=(20, 3))
        model = KernelPCA(2, kernel="rbf")
        scores = model.fit_transform(X)
        before = model.transform(X)
        scores[:] = 999
        np.testing.assert_array_equal(model.transform(X), before)


def test_g17_a_precomputed_matrix_not_square(rng):
    with pytest.raises(ValueError, match="square"):
        KernelPCA(2, kernel="precomputed").fit(np.ones((3, 4)))
    model = KernelPCA(2, kernel="precomputed").fit(np.diag([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="3"):
        model.transform(np.ones((2, 4)))


def test_g30_a_huge_gamma():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = KernelPCA(1, kernel="rbf", gamma=1e300).fit([[0.0], [1.0]])
    # K = I: the centred matrix is I − 11ᵀ/2, of eigenvalue 1.
    np.testing.assert_allclose(model.eigenvalues_, [1.0], rtol=1e-12)
    np.testing.assert_allclose(model.transform([[0.0], [1.0]]), [[0.5**0.5], [-(0.5**0.5)]], rtol=1e-12)

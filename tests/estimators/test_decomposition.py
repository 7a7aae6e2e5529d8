"""KernelPCA: LINMA's algorithm, scikit-learn's coordinates, each solver, zeros, pre-images, conduct."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as Reference
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import KernelPCA
from mercer.gram import Gram
from mercer.kernels import (
    RBF,
    FunctionKernel,
    Linear,
    Matern,
    Polynomial,
    Precomputed,
    Spectrum,
)

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


def centred(K):
    """(4.60) as it is printed."""
    n = len(K)
    ones = np.full((n, n), 1 / n)
    return K - ones @ K - K @ ones + ones @ K @ ones


def same_up_to_sign(A, B, **tolerance):
    signs = np.where(np.einsum("ij,ij->j", A, B) < 0, -1.0, 1.0)
    np.testing.assert_allclose(A * signs, B, **tolerance)


@parametrize_with_checks(
    [
        KernelPCA(),
        KernelPCA(2, kernel="rbf", eigen_solver="lanczos", random_state=0),
        KernelPCA(2, kernel="rbf", fit_inverse_transform=True, memory_budget=1.0, random_state=0),
    ]
)
@pytest.mark.lenient
@pytest.mark.filterwarnings("default")
def test_scikit_learns_checks_pass_without_exemption(estimator, check):
    check(estimator)


@each_way
class TestTheAlgorithm:
    """LINMA (4.60)–(4.62), term by term."""

    kernel = 0.5 * RBF(gamma=0.3) + 0.1 * Polynomial(2)

    def test_eigenpairs_and_coordinates(self, data, way):
        X, Z = data
        model = KernelPCA(6, kernel=self.kernel, **WAYS[way]).fit(X)
        assert model.solver_used_ == way
        assert model.converged_
        K = centred(self.kernel(X))
        values = np.linalg.eigvalsh(K)[::-1]
        np.testing.assert_allclose(model.eigenvalues_, values[:6], rtol=1e-10)
        U = model.eigenvectors_
        # ‖K̃u − λu‖ ≤ tol √(λ₁λ), the stated bound, and rounding.
        residuals = np.linalg.norm(K @ U - U * model.eigenvalues_, axis=0)
        assert (residuals <= 1e-9 * np.sqrt(values[0] * values[:6])).all()
        assert residuals.max() / values[0] == pytest.approx(model.residual_, abs=1e-13, rel=1e-3)
        alpha = U / np.sqrt(model.eigenvalues_)  # αᵀα = 1/λ
        np.testing.assert_allclose(np.sum(alpha**2, axis=0), 1 / model.eigenvalues_, rtol=1e-12)
        # k̃(xⱼ, z) with every term.
        k, fitted = self.kernel(Z, X), self.kernel(X)
        k = k - k.mean(axis=1, keepdims=True) - fitted.mean(axis=0) + fitted.mean()
        np.testing.assert_allclose(model.transform(Z), k @ alpha, atol=1e-10)

    def test_components_have_norm_one_in_feature_space(self, data, way):
        # With a linear kernel the components are vectors: v = X̃ᵀα.
        X, _ = data
        model = KernelPCA(4, **WAYS[way]).fit(X)
        V = (X - X.mean(axis=0)).T @ (model.eigenvectors_ / np.sqrt(model.eigenvalues_))
        np.testing.assert_allclose(V.T @ V, np.eye(4), atol=1e-9)

    @pytest.mark.parametrize("kernel", [RBF(gamma=0.3), Linear(), Matern(nu=1.5), Polynomial(3)], ids=repr)
    def test_transform_of_the_training_rows_is_fit_transform(self, data, way, kernel):
        X, _ = data
        model = KernelPCA(4, kernel=kernel, **WAYS[way])
        Y = model.fit_transform(X)
        np.testing.assert_allclose(model.transform(X), Y, atol=1e-9 * np.abs(Y).max())
        np.testing.assert_allclose(Y.mean(axis=0), 0, atol=1e-10 * np.abs(Y).max())
        np.testing.assert_allclose(Y.var(axis=0, ddof=1), model.explained_variance_, rtol=1e-9)

    @pytest.mark.filterwarnings("ignore:the centred kernel matrix has the eigenvalue -")  # sigmoid
    def test_scikit_learns_coordinates_with_their_signs(self, data, way):
        X, Z = data
        for params in (
            {"kernel": "linear"},
            {"kernel": "rbf"},
            {"kernel": "rbf", "gamma": 0.7},
            {"kernel": "poly", "degree": 2, "coef0": 0.5},
            {"kernel": "sigmoid", "gamma": 0.01},
            {"kernel": "cosine"},
        ):
            reference = Reference(3, eigen_solver="dense", **params).fit(X)
            model = KernelPCA(3, **params, **WAYS[way]).fit(X)
            size = np.abs(reference.fit_transform(X)).max()
            np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, rtol=1e-9)
            np.testing.assert_allclose(model.eigenvectors_, reference.eigenvectors_, atol=1e-6)
            np.testing.assert_allclose(model.transform(Z), reference.transform(Z), atol=1e-7 * size)
            assert model.gamma_ == reference.gamma_

    def test_linear_is_pca(self, data, way):
        X, Z = data
        X = X + 10  # centring matters
        pca, model = PCA(3).fit(X), KernelPCA(3, **WAYS[way]).fit(X)
        np.testing.assert_allclose(model.explained_variance_, pca.explained_variance_, rtol=1e-9)
        np.testing.assert_allclose(model.explained_variance_ratio_, pca.explained_variance_ratio_, rtol=1e-9)
        same_up_to_sign(model.transform(Z), pca.transform(Z), atol=1e-7)

    def test_the_order_of_rows_does_not_matter(self, data, way, rng):
        X, Z = data
        order = rng.permutation(len(X))
        kernel = RBF(gamma=0.3)
        one = KernelPCA(5, kernel=kernel, **WAYS[way]).fit(X)
        two = KernelPCA(5, kernel=kernel, **WAYS[way]).fit(X[order])
        np.testing.assert_allclose(two.eigenvalues_, one.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(two.transform(Z), one.transform(Z), atol=1e-7)
        np.testing.assert_allclose(two.eigenvectors_, one.eigenvectors_[order], atol=1e-7)

    def test_threads_change_nothing(self, rng, way):
        X = rng.normal(size=(1100, 3))
        options = {"kernel": RBF(gamma=0.5), **WAYS[way]}
        models = [KernelPCA(3, n_jobs=jobs, **options).fit(X) for jobs in (1, 2, 3)]
        for model in models[1:]:
            np.testing.assert_array_equal(model.eigenvectors_, models[0].eigenvectors_)
            np.testing.assert_array_equal(model.transform(X[:50]), models[0].transform(X[:50]))

    def test_float32_in_float32_out_with_float64s_digits(self, rng, way):
        # Components of little variance: in a float32 kernel matrix their coordinates would drown.
        X, Z = rng.normal(size=(300, 2)).astype(np.float32), rng.normal(size=(20, 2)).astype(np.float32)
        options = {"kernel": RBF(gamma=0.05), **WAYS[way]}
        model = KernelPCA(12, **options)
        Y = model.fit_transform(X)
        exact = KernelPCA(12, **options).fit(X.astype(float))
        for got, expected in (
            (Y, exact.fit_transform(X.astype(float))),
            (model.transform(Z), exact.transform(Z)),
        ):
            assert got.dtype == np.float32
            error = np.abs(got - expected).max(axis=0) / np.abs(expected).max(axis=0)
            assert (error < np.finfo(np.float32).eps).all()
        assert model.eigenvectors_.dtype == model.eigenvalues_.dtype == np.float32
        assert model.transform(Z.astype(float)).dtype == np.float64
        assert exact.transform(Z).dtype == np.float64

    def test_precomputed(self, data, way):
        X, Z = data
        kernel = RBF(gamma=0.3)
        expected = KernelPCA(4, kernel=kernel, **WAYS[way]).fit(X).transform(Z)
        for given, scale in (("precomputed", 1.0), (Precomputed(), 1.0), (2.0 * Precomputed(), 0.5)):
            model = KernelPCA(4, kernel=given, **WAYS[way]).fit(scale * kernel(X))
            np.testing.assert_allclose(model.transform(scale * kernel(Z, X)), expected, atol=1e-8)
            assert get_tags(model).input_tags.pairwise

    def test_a_callable_and_its_keywords(self, data, way):
        X, Z = data
        X = X[:100]

        def similarity(x, z, power):
            return (1 + x @ z) ** power

        model = KernelPCA(3, kernel=similarity, kernel_params={"power": 2}, **WAYS[way]).fit(X)
        expected = KernelPCA(3, kernel=Polynomial(2), **WAYS[way]).fit(X).transform(Z)
        np.testing.assert_allclose(model.transform(Z), expected, atol=1e-8 * np.abs(expected).max())
        assert not hasattr(model, "gamma_")

    @pytest.mark.parametrize("scale", [1e-170, 1e-20, 1e20, 1e140])
    def test_any_scale(self, data, way, scale):
        X, Z = data
        expected = KernelPCA(3, **WAYS[way]).fit(X)
        model = KernelPCA(3, kernel=FunctionKernel(lambda A, B: scale * (A @ B.T)), **WAYS[way]).fit(X)
        np.testing.assert_allclose(model.eigenvalues_ / scale, expected.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(model.transform(Z) / np.sqrt(scale), expected.transform(Z), atol=1e-8)


@each_way
class TestZeros:
    """Directions without variance: never a division by the root of nothing."""

    def test_a_rank_below_what_was_asked(self, data, way):
        X, Z = data
        with pytest.warns(UserWarning, match=r"n_components=7, but only 4 components .* are zero"):
            model = KernelPCA(7, **WAYS[way]).fit(X)
        for Y in (model.transform(X), model.transform(Z)):
            assert Y.shape[1] == 7
            assert (Y[:, 4:] == 0).all()
            assert np.isfinite(Y).all()
        assert (model.eigenvalues_[4:] == 0).all()
        assert model.explained_variance_ratio_.sum() == pytest.approx(1, rel=1e-12)
        np.testing.assert_allclose(model.eigenvectors_.T @ model.eigenvectors_, np.eye(7), atol=1e-10)

    def test_dropped_on_request(self, data, way):
        X, Z = data
        with pytest.warns(UserWarning, match=r"only 4 components .* are dropped"):
            model = KernelPCA(7, remove_zero_eig=True, **WAYS[way]).fit(X)
        assert model.transform(Z).shape == (25, 4)
        assert list(model.get_feature_names_out()) == [f"kernelpca{i}" for i in range(4)]

    def test_repeated_rows(self, rng, way):
        X = np.repeat(rng.normal(size=(5, 2)), 40, axis=0)
        with pytest.warns(UserWarning, match="only 4 components with variance exist among 200 rows"):
            Y = KernelPCA(6, kernel=RBF(gamma=0.5), **WAYS[way]).fit_transform(X)
        assert (Y[:, 4:] == 0).all()
        np.testing.assert_allclose(Y[::40], Y[39::40], atol=1e-7)

    def test_rows_that_are_all_the_same(self, way):
        X = np.full((150, 2), 3.0)
        for kernel in (Linear(), RBF(gamma=1.0)):
            with pytest.warns(UserWarning, match="only 0 components with variance exist among 150 rows"):
                model = KernelPCA(2, kernel=kernel, **WAYS[way]).fit(X)
            np.testing.assert_array_equal(model.transform([[3.0, 3.0], [1.0, 5.0]]), 0)
            np.testing.assert_array_equal(model.explained_variance_ratio_, 0)

    def test_rows_far_from_each_other(self, rng, way):
        # K = I: all n − 1 centred eigenvalues are 1, more copies than a block has columns.
        X = 1e3 * rng.normal(size=(150, 3))
        model = KernelPCA(25, kernel=RBF(gamma=10.0), **WAYS[way]).fit(X)
        np.testing.assert_allclose(model.eigenvalues_, 1, rtol=1e-10)
        np.testing.assert_allclose(model.explained_variance_ratio_, 1 / 149, rtol=1e-10)
        model = KernelPCA(1, kernel=RBF(gamma=10.0), **WAYS[way]).fit(X[:80])
        np.testing.assert_allclose(model.eigenvalues_, [1], rtol=1e-10)

    def test_an_indefinite_kernel(self, data, way):
        X, _ = data
        K = X @ np.diag([1.0, 1.0, -1.0, -1.0]) @ X.T
        with (
            pytest.warns(UserWarning, match="only 2 components with variance"),
            pytest.warns(UserWarning, match="eigenvalue -.*not positive semidefinite"),
        ):
            model = KernelPCA(4, kernel="precomputed", **WAYS[way]).fit(K)
        assert (model.eigenvalues_[:2] > 0).all()
        assert (model.eigenvalues_[2:] == 0).all()

    @pytest.mark.parametrize("shift", [2.5, 3.0])
    def test_an_indefinite_kernel_is_told_by_few_components(self, rng, way, shift):
        # Both eigenvalues asked for are positive; the trace, which stands for the variance, is too small.
        X = rng.normal(size=(130, 5))
        with pytest.warns(UserWarning, match=rf"eigenvalue -{shift:.2g}:.*not positive semidefinite"):
            KernelPCA(2, kernel="precomputed", **WAYS[way]).fit(X @ X.T - shift * np.eye(130))


class TestComponents:
    def test_all_with_variance_by_default(self, data):
        X, _ = data
        assert KernelPCA().fit(X).transform(X).shape == (130, 4)
        model = KernelPCA(kernel=RBF(gamma=1.0)).fit(X)
        assert model.transform(X).shape == (130, 129)
        assert model.explained_variance_ratio_.sum() == pytest.approx(1, rel=1e-10)
        # All components keep all distances of the feature space.
        Y, K = model.transform(X), RBF(gamma=1.0)(X)
        distance = np.sum((Y[:, None] - Y[None]) ** 2, axis=-1)
        np.testing.assert_allclose(distance, 2 - 2 * K, atol=1e-9)

    def test_the_same_number_as_scikit_learn(self, rng):
        for gamma in (1e-3, 0.1, 10.0):
            X = rng.normal(size=(60, 3))
            expected = Reference(kernel="rbf", gamma=gamma).fit(X).eigenvalues_
            assert KernelPCA(kernel="rbf", gamma=gamma).fit(X).eigenvalues_.shape == expected.shape

    def test_more_than_there_are_rows(self, data):
        X, _ = data
        with pytest.warns(UserWarning, match=r"n_components=50, but only 4 .* among 10 rows") as caught:
            assert KernelPCA(50).fit_transform(X[:10]).shape == (10, 10)
        assert caught[0].filename == __file__

    def test_one_row(self):
        with pytest.warns(UserWarning, match="0 components with variance exist: in feature space all 1 rows"):
            assert KernelPCA(kernel="rbf").fit_transform([[1.0, 2.0]]).shape == (1, 0)
        with pytest.warns(UserWarning, match="0 components"):
            model = KernelPCA(1, kernel="rbf").fit([[1.0, 2.0]])
        np.testing.assert_array_equal(model.transform([[1.0, 2.0], [0.0, 0.0]]), 0)

    def test_one_feature_and_one_query(self, rng):
        X = rng.normal(size=(30, 1))
        model = KernelPCA(2, kernel="rbf").fit(X)
        alone = np.concatenate([model.transform(x[None]) for x in X])
        np.testing.assert_allclose(alone, model.transform(X), rtol=1e-10, atol=1e-12)

    def test_signs_do_not_hang_on_rounding(self):
        # Two entries of the same size and opposite signs: the first is the positive one.
        X = np.array([[-3.0], [-1.0], [1.0], [3.0]])
        for shift in (0.0, 0.1, 1 / 3, 7.0):
            assert KernelPCA(1).fit_transform(X + shift)[0, 0] == pytest.approx(3.0)
            assert KernelPCA(1).fit_transform(-X + shift)[0, 0] == pytest.approx(3.0)

    def test_significant_negative_eigenvalues_are_told(self, data):
        X, _ = data
        with pytest.warns(UserWarning, match=r"eigenvalue -.*not positive semidefinite"):
            model = KernelPCA(kernel="sigmoid", gamma=2.0, coef0=-1.0).fit(X)
        assert (model.eigenvalues_ > 0).all()
        assert np.isfinite(model.transform(X)).all()

    def test_variances_count_what_was_not_asked_for(self, data):
        X, _ = data
        kernel = RBF(gamma=0.5)
        every, some = KernelPCA(kernel=kernel).fit(X), KernelPCA(3, kernel=kernel).fit(X)
        np.testing.assert_allclose(
            some.explained_variance_ratio_, every.explained_variance_ratio_[:3], rtol=1e-10
        )


class TestSolverChoice:
    def test_few_rows_or_many_components_are_dense(self, rng):
        X = rng.normal(size=(750, 3))
        model = KernelPCA(5, kernel="rbf")
        assert model.fit(X[:700]).solver_used_ == "dense"
        assert model.fit(X).solver_used_ == "lanczos"
        assert model.set_params(n_components=151).fit(X).solver_used_ == "dense"
        assert model.set_params(n_components=150).fit(X).solver_used_ == "lanczos"
        model.set_params(n_components=5, memory_budget=8 * 750**2 - 1)
        assert model.fit(X).solver_used_ == "lanczos, lazy"

    def test_scikit_learns_names(self, data):
        X, Z = data
        expected = KernelPCA(3, kernel="rbf", eigen_solver="lanczos", random_state=0).fit(X).transform(Z)
        for name in ("arpack", "randomized"):
            model = KernelPCA(3, kernel="rbf", eigen_solver=name, random_state=0).fit(X)
            np.testing.assert_array_equal(model.transform(Z), expected)

    @pytest.mark.parametrize(
        ("kernel", "form"),
        [
            (RBF(gamma=0.01), np.asarray),
            (RBF(gamma=0.01), sp.csr_array),
            (FunctionKernel(lambda A, B: A @ B.T), np.asarray),
        ],
    )
    def test_dear_entries_have_wider_blocks(self, rng, kernel, form):
        X = rng.normal(size=(160, 120)) * (rng.random((160, 120)) < 0.3)
        options = {"kernel": kernel, "eigen_solver": "lanczos", "random_state": 0}
        lazy = KernelPCA(3, memory_budget=1.0, **options).fit(form(X))
        stored = KernelPCA(3, **options).fit(form(X))
        assert lazy.solver_used_ == "lanczos, lazy"
        assert lazy.n_iter_ < stored.n_iter_
        np.testing.assert_allclose(lazy.transform(X), stored.transform(X), atol=1e-7)

    def test_no_room_for_blocks_is_dense(self, data):
        X, _ = data
        assert KernelPCA(2, kernel="rbf", eigen_solver="lanczos").fit(X[:40]).solver_used_ == "dense"

    def test_products_never_form_the_matrix(self, rng, monkeypatch):
        X = rng.normal(size=(720, 3))

        def formed(self, out=None):
            raise AssertionError("the matrix was formed")

        monkeypatch.setattr(Gram, "formed", formed)
        model = KernelPCA(2, kernel="rbf", memory_budget=1.0).fit(X)
        assert model.transform(X).shape == (720, 2)
        with pytest.raises(AssertionError, match="was formed"):
            model.set_params(memory_budget=1e9).fit(X)

    def test_falling_short_is_said(self, rng):
        X = rng.normal(size=(500, 6))
        model = KernelPCA(8, kernel="rbf", eigen_solver="lanczos", max_iter=2, random_state=0)
        with pytest.warns(ConvergenceWarning, match="block Lanczos stopped at a residual of") as caught:
            model.fit(X)
        assert caught[0].filename == __file__
        assert not model.converged_
        assert model.n_iter_ == 2
        assert model.residual_ > 1e-9

    def test_verbose_shows_the_residual(self, data, capsys):
        X, _ = data
        KernelPCA(2, kernel="rbf", eigen_solver="lanczos", verbose=True).fit(X)
        assert "residual" in "".join(capsys.readouterr())

    def test_repeats_with_random_state(self, data):
        X, _ = data
        fits = [
            KernelPCA(3, kernel="rbf", eigen_solver="lanczos", random_state=7).fit(X).eigenvectors_
            for _ in range(2)
        ]
        np.testing.assert_array_equal(*fits)
        for state in (np.random.RandomState(0), np.random.default_rng(0), None):
            model = KernelPCA(3, kernel="rbf", eigen_solver="lanczos", random_state=state).fit(X)
            np.testing.assert_allclose(model.eigenvectors_, fits[0], atol=1e-6)


class TestPreimages:
    @pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "cosine"])
    def test_as_scikit_learn(self, data, kernel):
        X, Z = data
        options = {"n_components": 3, "kernel": kernel, "fit_inverse_transform": True, "alpha": 0.3}
        reference, model = Reference(**options).fit(X), KernelPCA(**options).fit(X)
        np.testing.assert_allclose(model.dual_coef_, reference.dual_coef_, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(model.X_transformed_fit_, reference.X_transformed_fit_, atol=1e-9)
        new = reference.transform(Z)
        np.testing.assert_allclose(
            model.inverse_transform(new), reference.inverse_transform(new), rtol=1e-6, atol=1e-7
        )

    def test_expressions_and_iterations(self, data):
        X, _ = data
        kernel = RBF(gamma=0.3) + 0.1 * Linear()
        model = KernelPCA(6, kernel=kernel, fit_inverse_transform=True, alpha=1e-3).fit(X)
        Y = model.transform(X)
        error = np.mean((model.inverse_transform(Y) - X) ** 2)
        assert error < 0.05 * X.var()
        lazy = clone(model).set_params(memory_budget=1.0, random_state=0).fit(X)
        np.testing.assert_allclose(lazy.inverse_transform(Y), model.inverse_transform(Y), atol=1e-3)

    def test_sparse_rows_and_dtypes(self, data):
        X, _ = data
        X = np.where(X > 0, X, 0)
        options = {"kernel": "rbf", "fit_inverse_transform": True}
        dense = KernelPCA(3, **options).fit(X)
        model = KernelPCA(3, **options).fit(sp.csr_array(X))
        Y = dense.transform(X)
        np.testing.assert_allclose(model.inverse_transform(Y), dense.inverse_transform(Y), atol=1e-9)
        single = KernelPCA(3, **options).fit(X.astype(np.float32))
        back = single.inverse_transform(Y.astype(np.float32))
        assert back.dtype == single.dual_coef_.dtype == np.float32
        np.testing.assert_allclose(back, dense.inverse_transform(Y), atol=1e-4)

    def test_not_learned(self, data):
        X, _ = data
        model = KernelPCA(2, kernel="rbf").fit(X)
        with pytest.raises(NotFittedError, match="fit_inverse_transform parameter was not True"):
            model.inverse_transform(np.ones((1, 2)))
        model.set_params(fit_inverse_transform=True).fit(X)
        with pytest.raises(ValueError, match="expecting 2 features"):
            model.inverse_transform(np.ones((1, 3)))
        model.set_params(fit_inverse_transform=False).fit(X)
        assert not hasattr(model, "dual_coef_")
        with pytest.raises(NotFittedError):
            model.inverse_transform(np.ones((1, 2)))

    @pytest.mark.parametrize(
        ("kernel", "X", "message"),
        [
            ("precomputed", np.eye(3), "Cannot fit_inverse_transform with a precomputed kernel"),
            (Spectrum(2), ["abc", "bcd", "cde"], "needs rows of numbers"),
            (RBF(gamma=[1.0, 2.0, 3.0]), np.eye(3), "applies the kernel to the 2 coordinates"),
        ],
    )
    def test_kernels_without_pre_images(self, kernel, X, message):
        model = KernelPCA(2, kernel=kernel, fit_inverse_transform=True)
        with pytest.raises(ValueError, match=message):
            model.fit(X)
        assert not hasattr(model, "eigenvalues_")

    @pytest.mark.filterwarnings("ignore:n_components:UserWarning")
    def test_nothing_to_map_back_from(self):
        with (
            pytest.raises(ValueError, match="no component has variance"),
            pytest.warns(UserWarning, match="0 components"),
        ):
            KernelPCA(fit_inverse_transform=True).fit(np.ones((5, 2)))


class TestConduct:
    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("mine")])
    @pytest.mark.parametrize("way", WAYS)
    def test_a_fit_that_fails_leaves_the_estimator_as_it_was(self, data, way, error):
        X, Z = data
        broken = False

        def f(A, B):
            if broken:
                raise error
            return A @ B.T

        model = KernelPCA(2, kernel=FunctionKernel(f), **WAYS[way]).fit(X)
        before, expected = dict(vars(model)), model.transform(Z)
        broken = True
        with pytest.raises(error if isinstance(error, type) else type(error)):
            model.fit(2 * X)
        assert vars(model) == before
        broken = False
        np.testing.assert_array_equal(model.transform(Z), expected)

    def test_pickle_clone_and_repr(self, data):
        X, Z = data
        model = KernelPCA(2, kernel=RBF(gamma=0.3), fit_inverse_transform=True).fit(X)
        loaded = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(loaded.transform(Z), model.transform(Z))
        np.testing.assert_array_equal(
            loaded.inverse_transform(np.ones((1, 2))), model.inverse_transform(np.ones((1, 2)))
        )
        assert clone(model).kernel == model.kernel
        assert repr(KernelPCA(2, kernel=RBF(gamma=0.3))) == "KernelPCA(kernel=RBF(gamma=0.3), n_components=2)"

    def test_set_params_changes_the_kernel(self, data):
        X, Z = data
        model = KernelPCA(2, kernel=RBF(gamma=0.3)).set_params(kernel__gamma=0.7).fit(X)
        np.testing.assert_array_equal(
            model.transform(Z), KernelPCA(2, kernel=RBF(gamma=0.7)).fit(X).transform(Z)
        )

    def test_in_a_searched_pipeline(self, rng):
        angle, label = rng.uniform(0, 2 * np.pi, 120), np.arange(120) % 2
        X = np.c_[np.cos(angle), np.sin(angle)] * (1 + 2 * label)[:, None] + 0.1 * rng.normal(size=(120, 2))
        pipe = make_pipeline(StandardScaler(), KernelPCA(2, kernel=RBF(gamma=1.0)), LogisticRegression())
        search = GridSearchCV(pipe, {"kernelpca__kernel__gamma": [1e-3, 1.0]}, cv=3).fit(X, label)
        assert search.best_params_ == {"kernelpca__kernel__gamma": 1.0}
        assert search.best_score_ > 0.95

    def test_gamma_is_fixed_at_fit(self, data):
        X, _ = data
        for kernel in ("rbf", "linear"):
            for gamma, value in ((None, 0.25), ("auto", 0.25), (0.2, 0.2)):
                model = KernelPCA(2, kernel=kernel, gamma=gamma).fit(X)
                assert model.gamma_ == value
                assert model.gamma == gamma
        model = KernelPCA(2, kernel="rbf", gamma="scale").fit(X)
        assert model.gamma_ == pytest.approx(1 / (4 * X.var()), rel=1e-12)


@pytest.mark.slow
def test_thousands_of_rows_as_scikit_learns_dense_solver(rng):
    X = rng.normal(size=(2000, 8))
    reference = Reference(50, kernel="rbf", eigen_solver="dense").fit(X)
    for budget in (1e9, 1.0):
        model = KernelPCA(50, kernel="rbf", memory_budget=budget, random_state=0).fit(X)
        gaps = np.abs(np.diff(reference.eigenvalues_)) / reference.eigenvalues_[:-1]
        apart = np.minimum(np.r_[np.inf, gaps], np.r_[gaps, np.inf]) > 1e-5
        assert apart.sum() > 45
        Y = reference.eigenvectors_ * np.sqrt(reference.eigenvalues_)
        same_up_to_sign(model.fit_transform(X)[:, apart], Y[:, apart], atol=1e-6 * np.abs(Y).max(), rtol=0)


@pytest.mark.parametrize("k", [20, 30, 60])
def test_repeated_rows_have_repeated_eigenvalues(k):
    """More often than a block has columns: a hundred of 10, of 5, of 2."""
    base = np.random.default_rng(0).standard_normal((400, 3))
    X = np.concatenate([np.repeat(base[i * 100 : (i + 1) * 100], s, 0) for i, s in enumerate([10, 5, 2, 1])])
    model = KernelPCA(k, kernel=RBF(1e6), random_state=0).fit(X)
    assert model.solver_used_ == "lanczos"
    np.testing.assert_allclose(model.eigenvalues_, 10.0, rtol=1e-9)

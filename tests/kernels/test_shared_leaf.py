"""A leaf's values in memory: every kernel over it is the one that is computed as a whole."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

from mercer import SVC, KernelLogisticRegression, PathCV
from mercer.kernels import RBF, ChiSquared, Fourier, Laplacian, Linear, Matern, Polynomial, Spectrum
from mercer.kernels.prepared import sides
from mercer.kernels.shared_leaf import SharedLeaf, SharedLeaves

FAMILIES = [
    [RBF(0.003), RBF(0.03), RBF(length_scale=5.0), Matern(1.5, 6.0), 3.0 * RBF(0.01) ** 2],
    [Linear(), Polynomial(3, gamma=0.1), Polynomial(2, coef0=0.3), 2.0 * Polynomial(2).normalize()],
    [Laplacian(0.1), Laplacian(0.01), Laplacian(0.3).polynomial([1.0, 1.0])],
    [ChiSquared(0.1), ChiSquared(0.3)],
]


@pytest.fixture
def X(rng):
    return np.abs(rng.standard_normal((90, 140)))


def filled(leaf, kernel, X, key=0):
    program = kernel._compiled(X.shape[1])
    out = np.empty((X.shape[0],) * 2)
    leaf.fill(program, sides(program, X)[0], out, key)
    return out


@pytest.mark.parametrize("kernels", FAMILIES, ids=lambda kernels: repr(kernels[0]))
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_kernels_are_those_that_are_computed_as_a_whole(kernels, storage, X):
    X = storage(X)
    leaves = SharedLeaves()
    (leaf,) = {leaves.of(kernel, X) for kernel in kernels}
    assert leaf.users == len(kernels)
    for kernel in kernels:
        assert leaf.over(kernel._compiled(140)).block_leaves == [0]
        K = filled(leaf, kernel, X)
        np.testing.assert_allclose(K, kernel(X), rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(K, K.T)


def test_values_are_computed_once_for_each_key(X):
    leaves = SharedLeaves()
    leaf = leaves.of(RBF(0.1), X)
    assert leaves.of(RBF(0.2), X) is leaf
    filled(leaf, RBF(0.1), X)
    same = filled(leaf, RBF(0.2), 2 * X)  # by the key it is the same sample
    np.testing.assert_allclose(same, RBF(0.2)(X), rtol=1e-12)
    np.testing.assert_allclose(filled(leaf, RBF(0.2), 2 * X, key=1), RBF(0.2)(2 * X), rtol=1e-12)


def test_of_one_kernel_alone_nothing_is_kept(X):
    leaf = SharedLeaves().of(RBF(0.1), X)
    np.testing.assert_array_equal(filled(leaf, RBF(0.1), X), RBF(0.1)(X))
    assert not leaf._values


def test_other_leaves_are_no_users(X):
    leaves = SharedLeaves()
    leaf = leaves.of(RBF(0.1), X)
    for kernel in (Laplacian(0.1), Linear(), RBF(0.1).on(range(130))):
        assert leaves.of(kernel, X) not in (leaf, None)
    for kernel in (RBF(np.full(140, 0.1)), RBF(0.1) + Linear(), Fourier(2)):
        assert leaf.over(kernel._compiled(140)) is None
        assert leaves.of(kernel, X) is None
    assert leaf.users == 1


def test_short_rows_and_rows_that_are_no_numbers_are_not_worth_it(X):
    assert SharedLeaves().of(RBF(0.1), X[:, :100]) is None
    assert SharedLeaves().of(RBF(0.1), sp.csr_array(X * (X > 1.5))) is None
    assert SharedLeaves().of(Spectrum(2), ["abc", "abd"]) is None


def test_a_weight_beyond_the_range_of_another_goes_alone(X):
    leaf = SharedLeaf(RBF(1e-300)._compiled(140))
    assert leaf.over(RBF(1e300)._compiled(140)) is None


def without(monkeypatch, search, X, y):
    with monkeypatch.context() as patch:
        patch.setattr(SharedLeaf, "takes", staticmethod(lambda program, X: False))
        return search().fit(X, y)


def test_paths_along_alpha_are_as_without(monkeypatch):
    X, y = load_digits(return_X_y=True)
    X, y = np.tile(X[:300], 3) / 28, y[:300] % 3

    def search():
        return PathCV(
            KernelLogisticRegression(kernel="rbf"), alphas=[1.0, 0.1], gammas=[0.01, 0.03, 0.1],
            cv=StratifiedKFold(3), scoring="neg_log_loss", refit=False,
        )  # fmt: skip

    found, plain = search().fit(X, y).cv_results_, without(monkeypatch, search, X, y).cv_results_
    for fold in range(3):
        name = f"split{fold}_test_score"
        np.testing.assert_allclose(found[name], plain[name], rtol=1e-8)


@pytest.mark.parametrize("n", [300, 1500])
def test_grids_of_machines_are_as_without(monkeypatch, n):
    """By decisions, which tol leaves open by so much; a matrix of float64, and one of float32."""
    X, y = load_digits(return_X_y=True)
    X, y = np.tile(X[:n], 3) / 28, y[:n] % 2

    def search():
        return PathCV(
            SVC(tol=1e-4), Cs=[1.0, 10.0], gammas=[0.01, 0.03, 0.1], cv=StratifiedKFold(3),
            scoring="roc_auc", refit=False,
        )  # fmt: skip

    found, plain = search().fit(X, y).cv_results_, without(monkeypatch, search, X, y).cv_results_
    np.testing.assert_allclose(found["mean_test_score"], plain["mean_test_score"], atol=1e-4)

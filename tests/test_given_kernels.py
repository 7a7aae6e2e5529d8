"""Bug reports of the given list that concern kernels and Gram matrices, each with its kind around it.

The numbers were worked out without a kernel library (fractions, 50-digit arithmetic); the tags G01…G30 are
the list's. The ridge machine's own cases are in ``tests/estimators``.
"""

import warnings
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from mercer.kernels import (
    RBF,
    ChiSquared,
    Cosine,
    ExpDotProduct,
    Fourier,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Precomputed,
    RationalQuadratic,
    Sigmoid,
    from_name,
)
from mercer.kernels.names import variance_of

F32, F64 = np.float32, np.float64

# Every kernel of numeric rows, with arguments that leave its values in a comfortable range.
NUMERIC = {
    "linear": Linear(),
    "polynomial": Polynomial(3, gamma=0.5, coef0=0.25),
    "polynomial-nobias": Polynomial(2, include_bias=False),
    "sigmoid": Sigmoid(gamma=0.1, coef0=0.2),
    "cosine": Cosine(),
    "exp-dot": ExpDotProduct(beta=0.5),
    "rbf": RBF(gamma=0.3),
    "rbf-length": RBF(length_scale=1.7),
    "laplacian": Laplacian(gamma=0.3),
    "matern12": Matern(nu=0.5, length_scale=1.5),
    "matern32": Matern(nu=1.5, length_scale=1.5),
    "matern52": Matern(nu=2.5, length_scale=1.5),
    "rational": RationalQuadratic(length_scale=1.5, alpha=0.7),
    "chi2": ChiSquared(gamma=0.4),
    "fourier": Fourier(2, period=1.3),
    "composite": 0.5 * RBF(gamma=0.3) + Polynomial(2) * Fourier(1, period=3.0),
}
every_kernel = pytest.mark.parametrize("k", NUMERIC.values(), ids=NUMERIC)
both_dtypes = pytest.mark.parametrize("dtype", [F32, F64])


def squared_distance(x, z):
    """|x − z|² through the RBF: γ = 1 gives −log k, where that is accurate."""
    return -np.log(RBF(gamma=1.0)(x, z))


def forms(X):
    """The same matrix as every kind of dense array that a caller may hold."""
    read_only = X.copy()
    read_only.flags.writeable = False
    wide = np.zeros((2 * len(X), 3 * X.shape[1] + 1), dtype=X.dtype)
    wide[::2, 1::3] = X
    return {
        "C": X,
        "F": np.asfortranarray(X),
        "read-only": read_only,
        "strided": wide[::2, 1::3],
        "backwards": X[::-1].copy()[::-1],
        "list": X.tolist(),
    }


def sparse_forms(X):
    """The same matrix in sparse formats, tidy and untidy."""
    csr = sp.csr_array(X)
    unsorted = csr.copy()
    for i in range(len(X)):
        part = slice(*unsorted.indptr[i : i + 2])
        unsorted.indices[part] = unsorted.indices[part][::-1].copy()
        unsorted.data[part] = unsorted.data[part][::-1].copy()
    unsorted.has_sorted_indices = False
    rows, columns = np.indices(X.shape).reshape(2, -1)
    stored = sp.csr_array((X.ravel(), columns, np.arange(len(X) + 1) * X.shape[1]), shape=X.shape)
    halves = sp.coo_array(
        (np.concatenate([X.ravel() / 2, X.ravel() / 2]), (np.tile(rows, 2), np.tile(columns, 2))),
        shape=X.shape,
    )
    return {
        "csr": csr,
        "csr-matrix": sp.csr_matrix(X),
        "csc": csr.tocsc(),
        "coo": csr.tocoo(),
        "unsorted": unsorted,
        "stored zeros": stored,
        "duplicates": halves,
    }


class TestG01DistancesFarFromTheOrigin:
    a = np.array([[5000.25, -3000.5]], F32)
    b = np.array([[5000.5, -3000.25]], F32)

    def test_float32(self):
        u, v = np.array([[17000]], F32), np.array([[17002]], F32)
        assert RBF(gamma=2.0)(self.a, self.b) == pytest.approx(0.7788007830714049, rel=1e-6)
        assert squared_distance(self.a, self.b) == pytest.approx(0.125, rel=1e-6)
        assert RBF(gamma=0.5)(u, v) == pytest.approx(0.1353352832366127, rel=1e-6)

    def test_float64(self):
        p = np.array([[3e8]])
        r = np.array([[2.0**28]])
        assert squared_distance(p, p + 1) == pytest.approx(1.0, rel=1e-12)
        assert squared_distance(r, r + 0.5) == pytest.approx(0.25, rel=1e-12)

    @both_dtypes
    @pytest.mark.parametrize("n_threads", [1, 2])
    @pytest.mark.parametrize("d", [1, 2, 16, 130])
    def test_a_shift_changes_nothing(self, dtype, n_threads, d):
        # Quarters are exact in both precisions up to the shift, so the shifted rows are exact too.
        rng = np.random.default_rng(0)
        X = (rng.integers(-8, 8, (70, d)) / 4).astype(dtype)
        shift = dtype(2.0**14 if dtype == F32 else 2.0**30)
        rtol = 1e-6 if dtype == F32 else 1e-12
        for k in (RBF(gamma=1 / d), Matern(nu=1.5, length_scale=np.sqrt(d)), Laplacian(gamma=1 / d)):
            near, far = k(X, n_threads=n_threads), k(X + shift, n_threads=n_threads)
            assert far.dtype == dtype
            np.testing.assert_allclose(far, near, rtol=rtol)
            if not isinstance(k, Laplacian):
                # An exponent of 15 in float32 takes four bits of the result with it.
                stored = k(sp.csr_array(X + shift), n_threads=n_threads)
                np.testing.assert_allclose(stored, near, rtol=10 * rtol if dtype == F32 else rtol)
            np.testing.assert_allclose(
                k(X + shift, X[::-1] + shift, n_threads=n_threads), near[:, ::-1], rtol=rtol
            )

    @both_dtypes
    def test_two_clusters_far_apart(self, dtype):
        # Centring the whole cannot help here: the pairs inside a cluster need differences.
        rng = np.random.default_rng(1)
        X = (rng.integers(-8, 8, (40, 3)) / 4).astype(dtype)
        far = dtype(2.0**15 if dtype == F32 else 2.0**30)
        both = np.concatenate([X, X + far])
        K = RBF(gamma=0.5)(both)
        expected = RBF(gamma=0.5)(X)
        rtol = 1e-6 if dtype == F32 else 1e-12
        np.testing.assert_allclose(K[:40, :40], expected, rtol=rtol)
        np.testing.assert_allclose(K[40:, 40:], expected, rtol=rtol)
        assert not K[:40, 40:].any()


class TestG02NearEqualRowsUnderAMatern:
    X = np.array([[31.5, 31.5, 32.25], [31.5 + 2**-26, 31.5, 32.25], [31.5, 31.5, 32.25]])
    values: ClassVar = {0.5: 0.9999999801317853, 1.5: 0.9999999999999994, 2.5: 0.9999999999999997}

    @pytest.mark.parametrize("nu", values)
    @pytest.mark.parametrize("n_threads", [1, 2])
    def test_values(self, nu, n_threads):
        k = Matern(nu=nu, length_scale=0.75)
        for K in (k(self.X, n_threads=n_threads), k(self.X, self.X.copy(), n_threads=n_threads)):
            assert K[0, 1] == pytest.approx(self.values[nu], abs=1e-12)
            assert K[0, 2] == 1
            assert (np.diag(K) == 1).all()
            assert np.array_equal(K, K.T)
        assert (k.diag(self.X) == 1).all()

    @pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, 0.8, np.inf])
    @both_dtypes
    def test_many_rows_at_all_small_distances(self, nu, dtype):
        steps = np.concatenate([[0], 2.0 ** np.arange(-18 if dtype == F32 else -46, 0)])
        X = (32 + np.outer(steps, [1.0, 0.0])).astype(dtype)
        K = Matern(nu=nu, length_scale=0.75)(X)
        assert np.isfinite(K).all()
        assert (K > 0).all()
        assert (K <= 1).all()
        assert (np.diag(K) == 1).all()
        truth = Matern(nu=nu, length_scale=0.75)(X.astype(F64) - 32)
        np.testing.assert_allclose(K, truth, atol=1e-12 if dtype == F64 else 1e-6)


class TestG05GammaFromTheData:
    X = np.array([[0.0, 2], [4, 10]])

    @pytest.mark.parametrize(
        "form", [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array, lambda X: X.astype(int)]
    )
    def test_scale(self, form):
        for factor, gamma in [(1, 0.03571428571428571), (10, 0.00035714285714285714)]:
            X = form(factor * self.X)
            k = from_name("rbf", gamma="scale", n_features=2, variance=variance_of(X))
            assert k.gamma == pytest.approx(gamma, rel=1e-12)
            assert k(X)[0, 1] == pytest.approx(0.05743261926761735, rel=1e-12)

    def test_constant_data(self):
        # The mean of 0.1 seven times three is not 0.1: that must not pass for a scale.
        tenths = np.full((7, 3), 0.1)
        for X in (
            np.full((2, 2), 3.0),
            sp.csr_array((2, 2)),
            tenths,
            tenths.astype(F32),
            sp.csr_array(tenths),
        ):
            assert variance_of(X) == 0
            assert (
                from_name("rbf", gamma="scale", n_features=X.shape[1], variance=variance_of(X)).gamma == 1.0
            )

    def test_default_is_one_over_features(self):
        assert from_name("rbf", n_features=4).gamma == 0.25

    @both_dtypes
    def test_sparse_equals_dense(self, dtype):
        rng = np.random.default_rng(0)
        X = (rng.standard_normal((20, 7)) * (rng.random((20, 7)) < 0.3) + 0).astype(dtype)
        for name, S in sparse_forms(X).items():
            assert variance_of(S) == pytest.approx(variance_of(X), rel=1e-12), name
        assert variance_of(X + dtype(2.0**20)) == pytest.approx(
            np.var((X + dtype(2.0**20)).astype(F64)), rel=1e-12
        )


class TestG06NarrowIntegers:
    X: ClassVar = [[250, 3], [5, 200]]
    dtypes: ClassVar = [
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
        "list",
    ]

    @pytest.mark.parametrize("dtype", dtypes)
    @pytest.mark.parametrize("n_threads", [1, 2])
    def test_values(self, dtype, n_threads):
        X = self.X if dtype == "list" else np.array(self.X, dtype=dtype)
        wide = dtype not in ("float16", "float32")
        rel = 1e-12 if wide else 1e-6
        for k, value in [
            (RBF(gamma=1e-5), 0.3721940205709084),
            (Linear(), 1850),
            (Polynomial(2), 3426201),
        ]:
            for K in (k(X, n_threads=n_threads), k(X, X, n_threads=n_threads)):
                assert K.dtype == (F64 if wide else F32)
                assert K[0, 1] == pytest.approx(value, rel=rel)
                assert K[1, 0] == K[0, 1]

    def test_squared_distance(self):
        X = np.array(self.X, dtype=np.uint8)
        assert -np.log(RBF(gamma=1e-5)(X)[0, 1]) / 1e-5 == pytest.approx(98834, rel=1e-12)

    def test_large(self):
        big = np.array([[3037000500]], dtype=np.int64)
        assert Linear()(big)[0, 0] == pytest.approx(9.22337203700025e18, rel=1e-12)

    def test_booleans(self):
        X = np.array([[True, False, True], [True, True, False]])
        assert Linear()(X).tolist() == [[2.0, 1.0], [1.0, 2.0]]
        assert RBF(gamma=1.0)(X)[0, 1] == pytest.approx(np.exp(-2))

    @every_kernel
    def test_every_kernel_reads_small_integers_as_numbers(self, k):
        X = np.random.default_rng(0).integers(0, 3, (9, 4)).astype(np.uint8)
        K = k(X)
        assert K.dtype == F64
        assert np.array_equal(K, k(X.astype(F64)))


class TestG07StorageAndCompanyDoNotMatter:
    train = np.array([[1.0, 0, 0], [0, 2, 0]])
    test = np.array([[0.0, 0, 3], [0, 1, 0], [2, 1, 0]])
    sparse_kernels: ClassVar = {
        name: NUMERIC[name]
        for name in ("linear", "polynomial", "sigmoid", "cosine", "rbf", "rbf-length", "matern32")
    }

    def test_values(self):
        expected = [[0, 0], [0, 2], [2, 2]]
        for train in sparse_forms(self.train).values():
            for test in sparse_forms(self.test).values():
                assert Linear()(test, train).tolist() == expected

    @pytest.mark.parametrize("k", sparse_kernels.values(), ids=sparse_kernels)
    @pytest.mark.parametrize("n_threads", [1, 2])
    def test_sparse_equals_dense_row_by_row(self, k, n_threads):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((11, 6)) * (rng.random((11, 6)) < 0.4)
        Z = rng.standard_normal((9, 6)) * (rng.random((9, 6)) < 0.4)
        X[3] = 0
        dense, symmetric = k(X, Z), k(X)
        for name, S in sparse_forms(X).items():
            S = sp.csr_array(S) if name in ("csc", "coo") else S
            K = k(S, sp.csr_array(Z), n_threads=n_threads)
            np.testing.assert_allclose(K, dense, rtol=1e-12, atol=1e-13, err_msg=name)
            np.testing.assert_allclose(
                k(S, n_threads=n_threads), symmetric, rtol=1e-12, atol=1e-13, err_msg=name
            )
        S = sp.csr_array(X)
        rows = np.concatenate([k(S[i : i + 1], sp.csr_array(Z)) for i in range(11)])
        np.testing.assert_allclose(rows, dense, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(k.diag(S), k.diag(X), rtol=1e-12)

    @every_kernel
    @both_dtypes
    def test_a_row_alone_equals_the_row_in_a_batch(self, k, dtype):
        rng = np.random.default_rng(0)
        X, Z = rng.random((9, 4)).astype(dtype), rng.random((8, 4)).astype(dtype)
        K = k(X, Z)
        rows = np.concatenate([k(X[i : i + 1], Z) for i in range(9)])
        np.testing.assert_allclose(rows, K, rtol=64 * np.finfo(dtype).eps, atol=64 * np.finfo(dtype).eps)


class TestG09TheCallersArrays:
    @every_kernel
    @both_dtypes
    def test_are_left_alone_and_the_result_is_no_view(self, k, dtype):
        rng = np.random.default_rng(0)
        X, Z = rng.random((9, 4)).astype(dtype), rng.random((8, 4)).astype(dtype)
        X0, Z0 = X.copy(), Z.copy()
        K = k(X, Z)
        kept = K.copy()
        k(X), k.diag(X), k.pullback(X, Z, np.ones((9, 8)))
        assert np.array_equal(X, X0)
        assert np.array_equal(Z, Z0)
        X[:] = 999
        assert np.array_equal(K, kept)

    def test_precomputed(self):
        K = np.eye(3)
        out = Precomputed()(K)
        K[:] = 999
        assert np.array_equal(out, np.eye(3))

    def test_sparse(self):
        X = sparse_forms(np.random.default_rng(0).random((5, 4)))["unsorted"]
        before = X.indices.copy(), X.data.copy()
        RBF()(X)
        assert np.array_equal(X.indices, before[0])
        assert np.array_equal(X.data, before[1])


class TestG15TheSameNumbersForEveryNumberOfThreads:
    X = np.array([[0.1, 0.7], [123.456, -7.89], [0.1, 0.7]])

    @pytest.mark.parametrize("n_threads", [1, 2, 4])
    def test_values(self, n_threads):
        k = RBF(gamma=1e-4)
        Ks = [k(self.X, n_threads=n_threads), k(self.X, self.X, n_threads=n_threads)]
        Ks.append(k(self.X, self.X.copy(), n_threads=n_threads))
        for K in Ks:
            assert K[0, 1] == pytest.approx(0.21674167256460425, rel=1e-12)
            assert -np.log(K[0, 1]) / 1e-4 == pytest.approx(15290.490836, rel=1e-12)
            assert K[0, 2] == 1.0
            assert (np.diag(K) == 1).all()
            assert np.array_equal(K, Ks[0])

    @every_kernel
    @both_dtypes
    @pytest.mark.parametrize("n", [1, 7, 65, 150])
    def test_bitwise(self, k, dtype, n):
        rng = np.random.default_rng(n)
        X, Z = rng.random((n, 5)).astype(dtype), rng.random((n + 3, 5)).astype(dtype)
        V = rng.standard_normal((n + 3, 2))
        one = k(X, n_threads=1), k(X, Z, n_threads=1), k.gram(X, Z, n_threads=1) @ V
        for n_threads in (2, 3):
            more = (
                k(X, n_threads=n_threads),
                k(X, Z, n_threads=n_threads),
                k.gram(X, Z, n_threads=n_threads) @ V,
            )
            assert all(np.array_equal(a, b) for a, b in zip(one, more, strict=True))
        assert np.array_equal(one[0], one[0].T)

    @pytest.mark.parametrize(
        "name", ["rbf", "rbf-length", "laplacian", "matern12", "matern52", "rational", "chi2"]
    )
    @both_dtypes
    def test_equal_rows_give_exactly_one(self, name, dtype):
        rng = np.random.default_rng(0)
        X = rng.random((33, 7)).astype(dtype) * 100
        doubled = np.concatenate([X, X])
        for K in (NUMERIC[name](doubled), NUMERIC[name](doubled, doubled.copy())):
            assert (K.diagonal(33) == 1).all()
            assert (K.diagonal() == 1).all()
        assert (NUMERIC[name].diag(X) == 1).all()

    @every_kernel
    @both_dtypes
    def test_every_layout_gives_the_same(self, k, dtype):
        X = (np.random.default_rng(0).integers(0, 16, (20, 5)) / 16).astype(dtype)
        K, KZ = k(X), k(X, X[:7])
        eps = np.finfo(dtype).eps
        for name, same in forms(X).items():
            rtol = 1e-5 if name == "list" and dtype == F32 else 8 * eps
            np.testing.assert_allclose(k(same), K, rtol=rtol, atol=rtol, err_msg=name)
            np.testing.assert_allclose(k(same, np.asarray(same)[:7]), KZ, rtol=rtol, atol=rtol, err_msg=name)


class TestG16KernelsThatLookAtSomeColumns:
    def test_values(self):
        X = np.array([[0.0, 0], [1, 5]])
        k = 2 * RBF(length_scale=1.0).on([0]) + RBF(length_scale=2.0).on([1])
        assert k(X)[0, 1] == pytest.approx(1.2569982530486743, rel=1e-12)
        assert k.diag(X) == pytest.approx(3.0)
        assert np.diag(k(X)) == pytest.approx(3.0)
        k = 2 * RBF(length_scale=1.0).on([0])
        assert k([[0, 7], [1, -3]])[0, 1] == pytest.approx(1.2130613194252668, rel=1e-12)
        k = 3 * (RBF(length_scale=1.0).on([0]) * Linear().on([1]))
        assert k([[0, 2], [1, 5]])[0, 1] == pytest.approx(18.195919791379, rel=1e-12)

    @every_kernel
    @pytest.mark.parametrize("columns", [[0], [2, 0], [1, 3]])
    def test_equals_the_kernel_of_the_slice_through_every_wrapper(self, k, columns):
        rng = np.random.default_rng(0)
        X, Z = rng.random((6, 4)), rng.random((5, 4))
        inner = k(X[:, columns], Z[:, columns])
        on = k.on(columns)
        wrapped = {
            "plain": (on, inner),
            "scaled": (3 * on, 3 * inner),
            "sum": (on + Linear(), inner + X @ Z.T),
            "product": (on * Linear(), inner * (X @ Z.T)),
            "power": (on**2, inner**2),
            "exp": ((0.1 * on).exp(), np.exp(0.1 * inner)),
            "polynomial": (on.polynomial([1, 0, 2]), 1 + 2 * inner**2),
        }
        for name, (kernel, expected) in wrapped.items():
            np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-12, atol=1e-14, err_msg=name)
            np.testing.assert_allclose(
                kernel.diag(X), np.diag(kernel(X)), rtol=1e-12, atol=1e-14, err_msg=name
            )

    def test_sparse_columns(self):
        X = np.random.default_rng(0).random((6, 4))
        k = 2 * RBF(gamma=0.5).on([2, 0]) + Linear().on([1])
        np.testing.assert_allclose(k(sp.csr_array(X)), k(X), rtol=1e-12)


class TestG17Precomputed:
    def test_folds_are_square_blocks(self):
        X = np.array([[1.0], [2], [3], [4]])
        y = np.array([1.0, 3, 2, 5])
        K = X @ X.T
        errors = []
        for test in (slice(0, 2), slice(2, 4)):
            train = np.setdiff1d(np.arange(4), np.arange(4)[test])
            for k, rows, data in (
                (Precomputed(), K[np.ix_(train, train)], K[test][:, train]),
                (Linear(), X[train], X[test]),
            ):
                dual = np.linalg.solve(k(rows) + np.eye(2), y[train])
                errors.append(np.mean((k(data, rows) @ dual - y[test]) ** 2))
        assert errors == pytest.approx([0.5, 0.5, 1.1805555555555556, 1.1805555555555556], rel=1e-12)

    def test_not_square_is_refused(self):
        with pytest.raises(ValueError, match="square"):
            Precomputed()(np.ones((3, 4)))


class TestG30Scales:
    def test_values(self):
        with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
            warnings.simplefilter("error")
            assert RBF(length_scale=1e-170)([[0.0]], [[1e-170]])[0, 0] == pytest.approx(
                0.6065306597126334, abs=1e-12
            )
            for nu in (0.5, 1.5, 2.5, 0.8, np.inf):
                assert Matern(nu=nu, length_scale=1.0)([[0.0]], [[1e200]])[0, 0] == 0.0
            assert RBF(gamma=1e-320)([[0.0]], [[100.0]])[0, 0] == pytest.approx(1.0, abs=1e-12)
            K = RBF(gamma=1e300)([[0.0], [1.0]])
            assert np.array_equal(K, np.eye(2))
            assert np.linalg.solve(K + np.eye(2), [3.0, -1.0]) == pytest.approx([1.5, -0.5], abs=1e-12)

    def test_derivative(self):
        k = RBF(length_scale=1e-160)
        dX, dZ, dparams = k.pullback([[0.0]], [[1.0]], [[1.0]])
        assert dparams["length_scale"] * 1e-160 == 0.0
        assert dX.tolist() == [[0.0]]
        assert dZ.tolist() == [[0.0]]

    @pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-60, 1e60, 1e150])
    def test_only_the_ratio_matters(self, scale):
        X = np.array([[0.0, 1.0], [0.5, 2.0], [3.0, -1.0]])
        for make in (
            lambda s: RBF(length_scale=1.5 * s),
            lambda s: RBF(length_scale=np.array([1.5, 0.7]) * s),
            lambda s: Matern(nu=0.5, length_scale=1.5 * s),
            lambda s: Matern(nu=1.5, length_scale=1.5 * s),
            lambda s: Matern(nu=2.5, length_scale=1.5 * s),
            lambda s: RationalQuadratic(length_scale=1.5 * s, alpha=0.7),
            lambda s: Laplacian(gamma=0.3 / s),
        ):
            np.testing.assert_allclose(make(scale)(X * scale), make(1.0)(X), rtol=1e-12)
            dX = make(scale).pullback(X * scale, None, np.ones((3, 3)))[0]
            np.testing.assert_allclose(
                dX * scale, make(1.0).pullback(X, None, np.ones((3, 3)))[0], rtol=1e-11, atol=1e-13
            )

    @pytest.mark.parametrize("far", [1e155, 1e200, 1e300])
    @pytest.mark.parametrize("name", ["rbf", "rbf-length", "laplacian", "matern12", "matern32", "matern52"])
    def test_far_points_have_kernel_and_derivatives_zero(self, name, far):
        k = NUMERIC[name]
        X = np.array([[0.0, 0.0], [far, -far]])
        assert np.array_equal(k(X), np.eye(2))
        dX, _, dparams = k.pullback(X, None, np.ones((2, 2)))
        assert not dX.any()
        assert all(np.all(value == 0) for value in dparams.values())

    @pytest.mark.parametrize(
        "k",
        [
            RBF(gamma=1e300),
            RBF(length_scale=1e-60),
            Matern(nu=0.5, length_scale=1e-60),
            Matern(nu=1.5, length_scale=1e-60),
            Matern(nu=2.5, length_scale=1e-60),
            Laplacian(gamma=1e60),
        ],
        ids=repr,
    )
    def test_hyperparameters_beyond_the_range_of_float32(self, k):
        X = np.array([[0.0], [1.0], [0.0]], F32)
        expected = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], F32)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.array_equal(k(X), expected)
            assert np.array_equal(k(X, X[:2]), expected[:, :2])
            assert np.array_equal(k.gram(X) @ np.eye(3), expected)
            assert not k.pullback(X, None, np.ones((3, 3)))[0].any()

    def test_float32_at_its_ends(self):
        X = np.array([[0.0], [1e-30]], F32)
        assert RBF(length_scale=1e-30)(X)[0, 1] == pytest.approx(0.6065306597126334, rel=1e-6)
        assert RBF(length_scale=1.0)(np.array([[0.0], [1e30]], F32))[0, 1] == 0.0

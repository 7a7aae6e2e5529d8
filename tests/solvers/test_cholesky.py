"""Cholesky factors in place: what they solve, what their other triangle keeps, and how they break down."""

import numpy as np
import pytest

from mercer import _native
from mercer.kernels import RBF
from mercer.solvers import NotPositiveDefinite
from mercer.solvers.cholesky import factorize, solve_mixed


@pytest.fixture(params=[1, 2, 7, 64, 65, 150])
def matrix(request, rng):
    X = rng.normal(size=(request.param, 3))
    return RBF(gamma=0.5)(X)


@pytest.mark.parametrize("order", ["C", "F"])
class TestFactor:
    def test_solves_without_a_copy(self, matrix, order, rng):
        K = np.array(matrix, order=order)
        B = rng.normal(size=(len(K), 2))
        factor = factorize(K, 0.1)
        assert np.shares_memory(factor.array, K)
        expected = np.linalg.solve(matrix + 0.1 * np.eye(len(K)), B)
        np.testing.assert_allclose(factor.solve(B), expected, rtol=1e-10, atol=1e-11)

    def test_the_matrix_is_still_there(self, matrix, order, rng):
        factor = factorize(np.array(matrix, order=order), 0.1)
        for columns in (1, 3, 9):
            V = rng.normal(size=(len(matrix), columns))
            expected = matrix @ V + 0.1 * V
            np.testing.assert_allclose(factor.matmul(V), expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(factor.restored(matrix.diagonal()), matrix)

    def test_inverse_diagonal(self, matrix, order):
        factor = factorize(np.array(matrix, order=order), 0.1)
        before = factor.array.copy()
        expected = np.diagonal(np.linalg.inv(matrix + 0.1 * np.eye(len(matrix))))
        np.testing.assert_allclose(factor.inverse_diagonal(), expected, rtol=1e-10)
        np.testing.assert_array_equal(factor.array, before)


TILED = [1, 95, 96, 97, 193, 500, 530]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", TILED)
class TestTiles:
    """Sizes around a tile and around several of them."""

    def make(self, rng, n, dtype):
        K = RBF(gamma=0.5)(rng.normal(size=(n, 3))) + np.eye(n)
        return K, np.asfortranarray(K, dtype=dtype)

    def close(self, actual, expected, n, dtype):
        # Rounding of n steps with entries up to 2, in a matrix of condition below n.
        np.testing.assert_allclose(
            actual, expected, rtol=0, atol=20 * n * np.finfo(dtype).eps * abs(expected).max()
        )

    def test_factor_solve_and_inverse(self, rng, n, dtype):
        K, A = self.make(rng, n, dtype)
        L = A.copy(order="F")
        assert _native.cholesky(L) == 0
        self.close(np.tril(L), np.linalg.cholesky(K), n, dtype)
        np.testing.assert_array_equal(np.triu(L, 1), np.triu(A, 1))
        for columns in (1, 7):
            B = rng.normal(size=(n, columns))
            self.close(_native.cholesky_solve(L, B), np.linalg.solve(K, B), n, dtype)
        self.close(_native.cholesky_inverse_diagonal(L), np.diag(np.linalg.inv(K)), n, dtype)

    def test_product_reads_the_upper_triangle_and_a_diagonal(self, rng, n, dtype):
        K, A = self.make(rng, n, dtype)
        A[np.tril_indices(n)] = np.nan
        for columns in (1, 7, 130):
            V = rng.normal(size=(n, columns))
            self.close(_native.symmetric_product(A, K.diagonal(), V), K @ V, n, dtype)

    def test_threads_change_nothing(self, rng, n, dtype):
        _, A = self.make(rng, n, dtype)
        V = rng.normal(size=(n, 2))
        results = []
        for threads in (1, 2, 3):
            L = A.copy(order="F")
            _native.cholesky(L, threads)
            results.append(
                np.column_stack(
                    [
                        L,
                        _native.cholesky_solve(L, V, threads),
                        _native.cholesky_inverse_diagonal(L, threads),
                        _native.symmetric_product(A, A.diagonal(), V, threads),
                    ]
                )
            )
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 17, 63, 64, 65, 100, 255, 289, 545])
class TestFewVectors:
    """Sizes around vectors, tiles of 16 columns and 256 rows; 12 columns at most go by a loop of our own."""

    @pytest.mark.parametrize("columns", range(1, 14))
    def test_product(self, rng, n, dtype, columns):
        A = rng.normal(size=(n, n)).astype(dtype)
        A += A.T
        V = rng.normal(size=(n, columns)).astype(dtype)
        exact = A.astype(np.longdouble) @ V
        # Each term is rounded once, and each sum at most once for each term of it.
        bound = (n + 1) * np.finfo(dtype).eps * (np.abs(A).astype(float) @ np.abs(V))
        diagonal = A.diagonal().copy()
        for order in "CF":
            upper = np.array(A, order=order)
            upper.T[np.tril_indices(n) if order == "C" else np.triu_indices(n)] = np.nan
            results = [_native.symmetric_product(upper, diagonal, V, n_threads) for n_threads in (1, 2, 3)]
            assert results[0].dtype == dtype
            assert (np.abs(results[0] - exact) <= bound).all()
            np.testing.assert_array_equal(results[1], results[0])
            np.testing.assert_array_equal(results[2], results[0])


@pytest.mark.parametrize("n", [1, 7, 63, 64, 65, 128, 130, 1088, 1200])
class TestCoarse:
    """Sizes around tiles of 64 columns and pieces of 1024 rows."""

    def test_solves_but_for_16_bits(self, rng, n):
        X = rng.normal(size=(n, 3))
        K = RBF(gamma=0.5)(X) + np.eye(n)
        L = np.asfortranarray(K, dtype=np.float32)
        assert _native.cholesky(L) == 0
        factor, b = _native.coarse(L), rng.normal(size=n)
        found = _native.coarse_solve(factor, b)
        # Numbers of up to 1.5 are rounded to 2⁻¹⁶ of that, and K's eigenvalues begin at 1.
        error = 2 * 2.0**-16 * np.sqrt(n) * 1.5 + 20 * n * np.finfo(np.float32).eps
        np.testing.assert_allclose(found, np.linalg.solve(K, b), rtol=0, atol=error * abs(b).max())
        assert found.dtype == np.float32
        for n_threads in (2, 3):
            again = _native.coarse_solve(_native.coarse(L, n_threads), b)
            np.testing.assert_array_equal(again, found)


class TestDenormals:
    """A kernel of short reach: products of its entries are below the smallest normal numbers."""

    @pytest.fixture(params=[np.float32, np.float64])
    def matrix(self, request, rng):
        X = rng.normal(size=(700, 6)) * (1 if request.param == np.float32 else 3)
        K = np.asfortranarray(RBF(gamma=8.0)(X), dtype=request.param)
        assert ((K > 0) & (K < np.sqrt(np.finfo(request.param).tiny))).mean() > 0.1
        K[np.diag_indices(700)] += request.param(0.1)
        return K

    def test_they_are_0_in_factors(self, matrix, rng):
        L = matrix.copy(order="F")
        assert _native.cholesky(L) == 0
        lower, tiny = np.tril(L), np.finfo(L.dtype).tiny
        # Tiles on the diagonal and below them are results of products; entries that nothing changed stay.
        changed = lower != np.tril(matrix)
        assert not ((lower != 0) & (np.abs(lower) < tiny) & changed).any()
        exact = matrix.astype(np.float64)
        error = np.abs(lower.astype(np.float64) @ lower.T.astype(np.float64) - exact).max()
        assert error <= 20 * np.finfo(L.dtype).eps
        b = rng.normal(size=(700, 3)).astype(L.dtype)
        for p in (1, 3):
            found = _native.cholesky_solve(L, b[:, :p])
            scale = np.abs(b).max() / 0.1
            np.testing.assert_allclose(
                found, np.linalg.solve(exact, b[:, :p]), rtol=0, atol=700 * np.finfo(L.dtype).eps * scale
            )

    def test_a_product_is_exact_but_for_them(self, matrix, rng):
        V = rng.normal(size=(700, 4)).astype(matrix.dtype)
        found = _native.symmetric_product(matrix, matrix.diagonal().copy(), V)
        bound = 700 * (np.finfo(matrix.dtype).eps * np.abs(V).max() + np.finfo(matrix.dtype).tiny)
        np.testing.assert_allclose(found, matrix.astype(np.float64) @ V, rtol=0, atol=bound)

    @pytest.mark.parametrize("n_threads", [1, 2])
    def test_they_are_numbers_again_afterwards(self, matrix, n_threads):
        small = np.array([np.finfo(matrix.dtype).tiny])
        ones = np.ones((700, 1), matrix.dtype)
        _native.symmetric_product(matrix, matrix.diagonal().copy(), ones, n_threads)
        assert _native.cholesky(matrix, n_threads) == 0
        _native.cholesky_solve(matrix, ones, n_threads)
        if matrix.dtype == np.float32:
            _native.coarse_solve(_native.coarse(matrix, n_threads), np.ones(700))
        assert (small / 4 > 0).all()


@pytest.mark.parametrize("n", [0, 1, 16, 17, 130])
def test_part_of_a_matrix(rng, n):
    K, d = rng.normal(size=(n + 5, n + 5)), rng.normal(size=n)
    K += K.T
    K.flags.writeable = False
    rows = np.sort(rng.permutation(n + 5)[:n])
    expected = (d[:, None] * K[np.ix_(rows, rows)] * d).astype(np.float32)
    for n_threads in (1, 3):
        found = np.tril(_native.scaled_part(K, rows, d, n_threads))
        np.testing.assert_allclose(found, np.tril(expected), rtol=2 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("pivot", [0, 7, 95, 96, 200, 299])
def test_the_pivot_that_fails(pivot):
    K = np.asfortranarray(np.eye(300))
    K[pivot, pivot] = -1
    assert _native.cholesky(K) == pivot + 1


class TestBreakdown:
    @pytest.mark.parametrize(
        ("K", "pivot", "value"),
        [
            (np.ones((3, 3)), 1, 0.0),
            (np.diag([1.0, 2.0, -3.0]), 2, -3.0),
            (np.diag([1.0, 0.0, 3.0]), 1, 0.0),
            (np.array([[1.0, 2.0], [2.0, 1.0]]), 1, -3.0),
        ],
    )
    def test_names_the_pivot_and_the_remedy(self, K, pivot, value):
        with pytest.raises(
            NotPositiveDefinite, match=f"not positive definite at pivot {pivot} .*raise alpha above"
        ) as info:
            factorize(K.copy(), 0.0)
        assert info.value.pivot == pivot
        assert info.value.value == pytest.approx(value, abs=1e-15)
        assert isinstance(info.value, np.linalg.LinAlgError)
        assert isinstance(info.value, ValueError)

    @pytest.mark.parametrize("n", [60, 500])
    def test_a_low_rank_matrix_is_found_out_although_rounding_leaves_positive_pivots(self, n, rng):
        X = rng.normal(size=(n, 4))
        with pytest.raises(NotPositiveDefinite) as info:
            factorize(X @ X.T, 0.0)
        assert info.value.pivot == 4

    @pytest.mark.parametrize("n", [60, 500])
    def test_the_remedy_works(self, n, rng):
        X = rng.normal(size=(n, 4))
        with pytest.raises(NotPositiveDefinite) as info:
            factorize(X @ X.T, 0.0)
        alpha = float(info.value.remedy.split("above ")[1].split(",")[0])
        factorize(X @ X.T, 2 * alpha)

    def test_scale_does_not_decide(self, rng):
        scale = np.exp(rng.uniform(-60, 60, size=20))
        K = np.eye(20) + 0.1
        factor = factorize(scale[:, None] * K * scale, 0.0)
        x = factor.solve(scale[:, None])
        np.testing.assert_allclose(x[:, 0] * scale, np.linalg.solve(K, np.ones(20)), rtol=1e-10)


class TestMixedPrecision:
    @pytest.mark.parametrize(("alpha", "gamma"), [(1.0, 0.2), (1e-3, 0.2), (1e-6, 3.0)])
    @pytest.mark.parametrize("columns", [1, 6])
    @pytest.mark.parametrize("constrained", [True, False])
    def test_reaches_what_float64_reaches(self, alpha, gamma, columns, constrained, rng):
        K = RBF(gamma=gamma)(rng.normal(size=(300, 4)))
        before = K.copy()
        B = rng.normal(size=(300, columns))
        s = rng.uniform(0.5, 2, size=300) if constrained else None
        X, shift, residual = solve_mixed(K, alpha, B, s)
        np.testing.assert_array_equal(K, before)
        left = B - K @ X - alpha * X
        if constrained:
            left -= s[:, None] * shift
            # sᵀX = 0 up to rounding of its terms.
            assert np.all(np.abs(s @ X) <= 1e-12 * (s @ np.abs(X)))
        # The residual of a backward stable solver: eps times ‖K‖‖X‖ + ‖B‖.
        size = np.finfo(float).eps * (
            np.linalg.norm(K) * np.linalg.norm(X, axis=0) + np.linalg.norm(B, axis=0)
        )
        assert np.all(np.linalg.norm(left, axis=0) <= 8 * size)
        assert residual <= 8 * np.max(size / np.linalg.norm(B, axis=0))

    @pytest.mark.parametrize(
        "K",
        [1e39 * np.eye(3), np.ones((3, 3)), np.diag([1.0, -1.0, 1.0]), np.diag([1.0, 1e-60, 1.0])],
        ids=repr,
    )
    def test_declines_what_float32_does_not_carry(self, K):
        assert solve_mixed(K, 0.0, np.ones((3, 1))) is None

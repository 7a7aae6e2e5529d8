"""Cholesky factors in place: what they solve, what their other triangle keeps, and how they break down."""

import numpy as np
import pytest

from mercer.kernels import RBF
from mercer.solvers import NotPositiveDefinite
from mercer.solvers.cholesky import _factor, _restore, factorize, solve_mixed


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
        _restore(factor.array)
        off = ~np.eye(len(matrix), dtype=bool)
        np.testing.assert_array_equal(factor.array[off], matrix[off])

    @pytest.mark.parametrize("overwrite", [True, False])
    def test_inverse_diagonal(self, matrix, order, overwrite):
        factor = factorize(np.array(matrix, order=order), 0.1)
        before = factor.array.copy()
        expected = np.diagonal(np.linalg.inv(matrix + 0.1 * np.eye(len(matrix))))
        np.testing.assert_allclose(factor.inverse_diagonal(overwrite), expected, rtol=1e-10)
        if not overwrite:
            np.testing.assert_array_equal(factor.array, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 16, 17, 50])
def test_by_block_columns_as_in_one_call(rng, dtype, n):
    K = np.asfortranarray(RBF(gamma=0.5)(rng.normal(size=(n, 3))) + np.eye(n), dtype=dtype)
    whole, blocks = K.copy(order="F"), K.copy(order="F")
    assert _factor(whole) == _factor(blocks, whole=0, block=16) == 0
    # Rounding of n steps with entries up to 2.
    np.testing.assert_allclose(np.tril(blocks), np.tril(whole), atol=8 * n * np.finfo(dtype).eps)
    np.testing.assert_array_equal(np.triu(blocks, 1), np.triu(K, 1))


@pytest.mark.parametrize("pivot", [0, 7, 16, 40])
def test_block_columns_name_the_pivot(pivot):
    K = np.asfortranarray(np.eye(50))
    K[pivot, pivot] = -1
    assert _factor(K, whole=0, block=16) == pivot + 1


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

"""Conjugate gradients and the preconditioner of randomly pivoted Cholesky."""

from dataclasses import replace

import numpy as np
import pytest

from mercer.kernels import RBF
from mercer.solvers.conjugate_gradient import conjugate_gradient
from mercer.solvers.pivoted_cholesky import Woodbury, pivoted_cholesky


def identity(V, columns):
    return V.copy()


@pytest.fixture
def system(rng):
    X = rng.normal(size=(80, 2))
    return RBF(gamma=0.5)(X), np.array([0.1, 1.0, 0.1]), rng.normal(size=(80, 3))


def product(K, alphas):
    return lambda V, columns: K @ V + alphas[columns] * V


def direct(K, alphas, B, s=None):
    """By the (bordered) matrix, one column at a time."""
    n = len(K)
    X, shift = np.empty(B.shape), np.zeros(B.shape[1])
    for j, alpha in enumerate(alphas):
        A = K + alpha * np.eye(n)
        if s is None:
            X[:, j] = np.linalg.solve(A, B[:, j])
            continue
        bordered = np.block([[A, s[:, None]], [s[None, :], np.zeros((1, 1))]])
        *X[:, j], shift[j] = np.linalg.solve(bordered, np.append(B[:, j], 0.0))
    return X, shift


@pytest.mark.parametrize("constrained", [True, False])
def test_each_column_has_its_own_alpha(system, constrained, rng):
    K, alphas, B = system
    s = rng.uniform(0.5, 2, size=80) if constrained else None
    target = 1e-12 * np.linalg.norm(B, axis=0)
    iterate = conjugate_gradient(product(K, alphas), B, identity, target=target, max_iter=500, constraint=s)
    X, shift = direct(K, alphas, B, s)
    np.testing.assert_allclose(iterate.X, X, atol=1e-9)
    if constrained:
        np.testing.assert_allclose(iterate.shift, shift, atol=1e-9)
        np.testing.assert_allclose(s @ iterate.X, 0, atol=1e-10)


def test_a_finished_column_is_left_alone(system):
    K, alphas, B = system
    seen = []

    def apply(V, columns):
        seen.append(len(columns))
        return product(K, alphas)(V, columns)

    target = np.array([1e-8, 1e-2, np.inf]) * np.linalg.norm(B, axis=0)
    conjugate_gradient(apply, B, identity, target=target, max_iter=500)
    assert seen[0] == 2
    assert seen[-1] == 1


def test_zero_right_hand_sides_take_no_step():
    iterate = conjugate_gradient(identity, np.zeros((4, 2)), identity, target=np.zeros(2), max_iter=10)
    assert iterate.n_iter == 0
    np.testing.assert_array_equal(iterate.X, 0)


def test_stops_at_max_iter_and_tells_each_step(system):
    K, alphas, B = system
    steps = []
    iterate = conjugate_gradient(
        product(K, alphas), B, identity, target=np.zeros(3), max_iter=4, on_step=lambda i, r: steps.append(i)
    )
    assert iterate.n_iter == 4
    assert steps == [1, 2, 3, 4]


class TestPivotedCholesky:
    @pytest.fixture
    def K(self, rng):
        return RBF(gamma=0.3)(rng.normal(size=(200, 2)))

    def grow(self, K, rank, **options):
        rng = options.pop("rng", np.random.default_rng(0))
        return pivoted_cholesky(K.diagonal(), lambda index: K[index], rank, rng=rng, **options)

    def test_the_rest_is_positive_semidefinite_and_its_trace_is_known(self, K):
        low_rank = self.grow(K, 25)
        rest = K - low_rank.F.T @ low_rank.F
        assert low_rank.F.shape == (25, 200)
        assert np.linalg.eigvalsh(rest)[0] > -1e-12
        assert np.trace(rest) == pytest.approx(low_rank.trace, rel=1e-8)

    @pytest.mark.parametrize("rotated", [False, True])
    @pytest.mark.parametrize("rank", [0, 7, 60])
    def test_what_its_first_rows_leave(self, K, rotated, rank):
        low_rank = self.grow(K, 60)
        low_rank = low_rank.rotated() if rotated else low_rank
        left = np.diag(K - low_rank.F[:rank].T @ low_rank.F[:rank])
        rounding = 1e-12 * 200  # what its rtol takes for nothing, of the trace
        np.testing.assert_allclose(low_rank.left(rank), left, rtol=0, atol=rounding)
        assert low_rank.mean_left(rank) == pytest.approx(left.mean(), abs=1e-12)
        np.testing.assert_allclose(low_rank.diagonal, 1.0, rtol=0, atol=rounding)
        assert 0.25 <= low_rank.unit <= 1.0
        np.testing.assert_allclose(low_rank.single * low_rank.unit, low_rank.F, rtol=2.0**-22, atol=2.0**-51)

    @pytest.mark.parametrize("unit", [1e-60, 1.0, 1e60])
    def test_products_of_its_entries_are_no_denormals(self, rng, unit):
        K = unit * RBF(gamma=8.0)(rng.normal(size=(400, 6)))
        assert ((K > 0) & (K < 1e-30 * unit)).mean() > 0.1
        low_rank = self.grow(K, 300)
        single = self.grow(K / unit, 300, alpha=1.0)
        assert single.F.dtype == np.float32
        for F, size in ((low_rank.single, 1.0), (single.F, 1.0), (low_rank.F, np.sqrt(unit))):
            least = np.abs(F[F != 0]).min() / size
            assert least**2 > np.finfo(F.dtype).tiny
        rest = K - low_rank.F.T @ low_rank.F
        assert np.trace(rest) == pytest.approx(low_rank.trace, rel=1e-8)

    def test_without_a_remainder_that_is_known_each_entry_is_its_mean(self, K):
        low_rank = replace(self.grow(K, 10), remainder=None)
        np.testing.assert_allclose(low_rank.left(10), low_rank.trace / 200, rtol=1e-14)

    def test_is_complete_where_no_more_than_rounding_is_left(self, rng):
        X = rng.normal(size=(50, 4))
        assert self.grow(X @ X.T, 50).complete
        assert not self.grow(X @ X.T, 3).complete

    def test_pivot_rows_are_exact(self, K):
        low_rank = self.grow(K, 25)
        assert len(set(low_rank.pivots.tolist())) == 25
        rows = (low_rank.F.T @ low_rank.F)[low_rank.pivots]
        np.testing.assert_allclose(rows, K[low_rank.pivots], atol=1e-11)

    def test_close_to_the_best_of_its_rank(self, K):
        """In expectation twice the best error needs a rank little above it: Chen et al. 2023, theorem 5.1."""
        values = np.linalg.eigvalsh(K)[::-1]
        traces = [self.grow(K, 30, rng=np.random.default_rng(seed)).trace for seed in range(20)]
        assert np.mean(traces) < 2 * values[15:].sum()

    def test_stops_at_full_rank(self, rng):
        X = rng.normal(size=(50, 3))
        low_rank = self.grow(X @ X.T, 40)
        assert len(low_rank.F) == 3
        assert low_rank.trace < 1e-9

    def test_repeated_rows_and_zeros(self):
        K = np.kron(np.eye(2), np.ones((4, 4)))
        K[0, :] = K[:, 0] = 0
        low_rank = self.grow(K, 8)
        np.testing.assert_allclose(low_rank.F.T @ low_rank.F, K, atol=1e-12)
        assert len(self.grow(np.zeros((5, 5)), 5).F) == 0

    def test_repeats_with_the_seed(self, K):
        np.testing.assert_array_equal(self.grow(K, 10).F, self.grow(K, 10).F)

    def test_a_random_state_will_do(self, K):
        assert len(self.grow(K, 10, rng=np.random.RandomState(0)).F) == 10

    def test_large_alpha_needs_a_small_rank(self, K):
        ranks = [len(self.grow(K, 150, alpha=alpha, block=10).F) for alpha in (10.0, 1e-2)]
        assert ranks[0] < ranks[1]


class TestWoodbury:
    def test_is_the_inverse_with_each_columns_alpha(self, rng):
        F = rng.normal(size=(5, 40))
        low_rank = pivoted_cholesky(np.ones(40), lambda i: np.eye(40)[i], 5, rng=np.random.default_rng(0))
        low_rank.F = F
        alphas = np.array([0.1, 2.0, 0.1])
        V = rng.normal(size=(40, 3))
        applied = Woodbury(low_rank, alphas)(V, np.arange(3))
        for j, alpha in enumerate(alphas):
            np.testing.assert_allclose(
                applied[:, j], np.linalg.solve(F.T @ F + alpha * np.eye(40), V[:, j]), rtol=1e-9
            )
        np.testing.assert_allclose(Woodbury(low_rank, alphas)(V[:, 1:2], np.array([1])), applied[:, 1:2])

    def test_alpha_zero_stays_regular(self, rng):
        K = RBF(gamma=1.0)(rng.normal(size=(30, 1)))
        low_rank = pivoted_cholesky(K.diagonal(), lambda i: K[i], 5, rng=np.random.default_rng(0))
        assert np.isfinite(Woodbury(low_rank, np.zeros(1))(np.ones((30, 1)), np.arange(1))).all()

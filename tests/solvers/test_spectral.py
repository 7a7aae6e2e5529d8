"""Leave-one-out paths by refits and by one Cholesky factor for each penalty; the band by its definition."""

import threading

import numpy as np
import pytest
import scipy.linalg
from scipy.linalg import lapack
from scipy.sparse.linalg import aslinearoperator

from mercer.kernels import RBF
from mercer.solvers import NotPositiveDefinite, band, spectral
from mercer.solvers.band import Team, inverse_diagonals, orthogonal, reduce_to_band
from mercer.solvers.least_squares import ridge_cholesky, ridge_loo_residuals
from mercer.solvers.spectral import eigenvalue_range, ridge_loo_path

EPS = np.finfo(np.float64).eps
ALPHAS = np.array([3.0, 1e-2, 100.0, 1e-4, 0.3, 1e-2])
intercepts = pytest.mark.parametrize("fit_intercept", [True, False])
weightings = pytest.mark.parametrize("weighted", [False, True])
ways = pytest.mark.parametrize("way", ["band", "eigenvalues", "cholesky"])


def problem(n, rng, t=2, gamma=0.2):
    X = rng.normal(size=(n, 3))
    return RBF(gamma=gamma)(X), np.sin(2 * X[:, :1]) + rng.normal(size=(n, t)) + [50.0, -3.0, 7.0][:t]


def weights_for(weighted, n, rng):
    return rng.uniform(0.1, 3.0, size=n) if weighted else None


def take(way, monkeypatch):
    """Go one way for every size."""
    monkeypatch.setattr(spectral, "_FEW_ALPHAS", 10**6 if way == "cholesky" else 0)
    monkeypatch.setattr(spectral, "_FEW_ROWS", 10**6 if way == "eigenvalues" else 0)


def one_by_one(K, Y, alphas, weights=None, fit_intercept=True):
    s = None if weights is None else np.sqrt(weights)
    return np.array(
        [
            ridge_loo_residuals(K.copy(), Y, np.full(Y.shape[1], alpha), s=s, fit_intercept=fit_intercept)
            for alpha in alphas
        ]
    )


def assert_close(got, expected, condition):
    """Both have the relative error that the condition allows."""
    assert got.shape == expected.shape
    scale = np.abs(expected).max(axis=(1, 2), keepdims=True)
    relative = (np.abs(got - expected) / scale).max(axis=(1, 2))
    np.testing.assert_array_less(relative, 20 * EPS * condition)


class TestBand:
    @pytest.mark.parametrize(("n", "width"), [(1, 3), (2, 1), (3, 48), (48, 48), (49, 48), (301, 16)])
    def test_is_a_similarity(self, rng, n, width):
        A = rng.normal(size=(n, n))
        A = A + A.T
        with Team(2) as team:
            banded = reduce_to_band(A.copy(), width, team)
            Q = orthogonal(banded, team)
        B = np.zeros((n, n))
        for d in range(min(width + 1, n)):
            B += np.diag(banded.entries[d, : n - d], -d)
        B = np.tril(B) + np.tril(B, -1).T
        assert banded.width == width
        np.testing.assert_allclose(Q.T @ Q, np.eye(n), atol=20 * EPS)
        np.testing.assert_allclose(Q @ B @ Q.T, A, atol=20 * EPS * np.linalg.norm(A, 2))

    def test_of_many_blocks(self, rng, monkeypatch):
        # Small blocks: many of them, whose edges no panel meets.
        monkeypatch.setattr(band, "_ROWS", 13)
        monkeypatch.setattr(band, "_COLUMNS", 29)
        monkeypatch.setattr(band, "_CHUNK", 11)
        monkeypatch.setattr(band, "_STRIP", 23)
        A = rng.normal(size=(150, 150))
        A = A + A.T
        with Team(3) as team:
            banded = reduce_to_band(A.copy(), 8, team)
            Q = orthogonal(banded, team)
        eigenvalues = scipy.linalg.eig_banded(banded.entries, lower=True, eigvals_only=True)
        np.testing.assert_allclose(eigenvalues, np.linalg.eigvalsh(A), atol=20 * EPS * np.linalg.norm(A, 2))
        np.testing.assert_allclose(Q.T @ Q, np.eye(150), atol=20 * EPS)

    def test_leaves_a_band_matrix(self, rng):
        A = np.diag(rng.uniform(1, 2, size=40)) + np.diag(np.ones(39), 1) + np.diag(np.ones(39), -1)
        with Team(1) as team:
            banded = reduce_to_band(A.copy(), 1, team)
        np.testing.assert_allclose(np.abs(banded.entries[:2, :39]), np.abs([np.diag(A)[:39], np.ones(39)]))

    @pytest.mark.parametrize(("n", "width"), [(1, 3), (5, 3), (6, 3), (70, 9)])
    def test_inverse_diagonals(self, rng, n, width, monkeypatch):
        monkeypatch.setattr(band, "_SOLVED", 32)
        A = rng.normal(size=(n, n))
        A = A @ A.T + np.eye(n)
        alphas = np.array([0.0, 0.1, 1.0, 3.0, 10.0, 100.0])
        with Team(2) as team:
            banded = reduce_to_band(A.copy(), width, team)
            Q, factors = orthogonal(banded, team), []
            for alpha in alphas:
                entries = banded.entries.copy(order="F")
                entries[0] += alpha
                factors.append(lapack.dpbtrf(entries, lower=1)[0])
            got = inverse_diagonals(factors, Q, team)
        expected = [np.diag(np.linalg.inv(A + alpha * np.eye(n))) for alpha in alphas]
        np.testing.assert_allclose(got, expected, rtol=100 * EPS * np.linalg.cond(A))


@ways
@intercepts
@weightings
class TestResiduals:
    def test_of_refits(self, rng, monkeypatch, way, fit_intercept, weighted):
        take(way, monkeypatch)
        n = 14
        K, Y = problem(n, rng)
        weights = weights_for(weighted, n, rng)
        got = ridge_loo_path(K, Y, ALPHAS, weights=weights, fit_intercept=fit_intercept)
        assert got.shape == (len(ALPHAS), n, 2)
        for a, alpha in enumerate(ALPHAS):
            for i in range(n):
                keep = np.arange(n) != i
                s = None if weights is None else np.sqrt(weights[keep])
                fit = ridge_cholesky(
                    K[np.ix_(keep, keep)], Y[keep], np.full(2, alpha), s=s, fit_intercept=fit_intercept
                )
                expected = Y[i] - (K[i, keep] @ fit.solution + fit.intercept)
                # Of K + αI the condition is up to 1e5 here; the targets are up to 50.
                np.testing.assert_allclose(got[a, i], expected, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("n", [2, 3, 47, 48, 49, 97, 260])
    def test_of_one_factor_each(self, rng, monkeypatch, way, fit_intercept, weighted, n):
        take(way, monkeypatch)
        K, Y = problem(n, rng)
        weights = weights_for(weighted, n, rng)
        kept = K.copy(), Y.copy()
        got = ridge_loo_path(K, Y, ALPHAS, weights=weights, fit_intercept=fit_intercept)
        expected = one_by_one(K, Y, ALPHAS, weights, fit_intercept)
        assert_close(got, expected, 1 + 3 * n / ALPHAS)
        np.testing.assert_array_equal(got[1], got[5])
        np.testing.assert_array_equal(K, kept[0])
        np.testing.assert_array_equal(Y, kept[1])


@ways
class TestLimits:
    def test_one_row(self, monkeypatch, way):
        take(way, monkeypatch)
        K, Y = np.array([[2.0]]), np.array([[3.0]])
        np.testing.assert_allclose(ridge_loo_path(K, Y, ALPHAS, fit_intercept=False), 3.0, rtol=4 * EPS)
        assert np.isnan(ridge_loo_path(K, Y, ALPHAS)).all()

    def test_constant_targets(self, rng, monkeypatch, way):
        take(way, monkeypatch)
        K, _ = problem(60, rng)
        np.testing.assert_allclose(ridge_loo_path(K, np.full((60, 1), 7.0), ALPHAS), 0, atol=1e-12)

    def test_no_kernel_at_all(self, rng, monkeypatch, way):
        take(way, monkeypatch)
        _, Y = problem(30, rng)
        got = ridge_loo_path(np.zeros((30, 30)), Y, ALPHAS)
        mean = (Y.sum(axis=0) - Y) / 29
        np.testing.assert_allclose(got, np.broadcast_to(Y - mean, got.shape), rtol=1e-10, atol=1e-12)

    def test_duplicated_rows(self, rng, monkeypatch, way):
        take(way, monkeypatch)
        half, Y = problem(50, rng)
        K, Y = np.tile(half, (2, 2)), np.concatenate([Y, rng.normal(size=(50, 2))])
        assert_close(ridge_loo_path(K, Y, ALPHAS), one_by_one(K, Y, ALPHAS), 1 + 300 / ALPHAS)

    def test_low_rank(self, rng, monkeypatch, way):
        take(way, monkeypatch)
        X = rng.normal(size=(80, 4))
        Y = X @ rng.normal(size=(4, 1)) + 3.0
        # Leave-one-out of a linear kernel is that of a ridge with explicit features.
        got = ridge_loo_path(X @ X.T, Y, ALPHAS, fit_intercept=False)
        for residuals, alpha in zip(got, ALPHAS, strict=True):
            hat = X @ np.linalg.solve(X.T @ X + alpha * np.eye(4), X.T)
            expected = (Y - hat @ Y) / (1 - np.diag(hat))[:, None]
            np.testing.assert_allclose(residuals, expected, rtol=0, atol=1e-9 * np.abs(expected).max())

    def test_no_penalty_on_a_regular_matrix(self, rng, monkeypatch, way):
        take(way, monkeypatch)
        K, Y = problem(60, rng, gamma=20.0)
        alphas = np.array([0.0, 1e-12, 1e-9, 1e-6, 1e-3, 1.0])
        condition = np.full(6, np.linalg.cond(K))
        assert_close(ridge_loo_path(K, Y, alphas), one_by_one(K, Y, alphas), condition)

    def test_tiny_penalties(self, rng, monkeypatch, way):
        take(way, monkeypatch)
        K, Y = problem(120, rng, gamma=0.01)
        norm = np.linalg.norm(K, 2)
        alphas = norm * np.array([1e-13, 1e-12, 1e-10, 1e-8, 1e-6, 1e-2])
        got, expected = ridge_loo_path(K, Y, alphas), one_by_one(K, Y, alphas)
        assert_close(got, expected, norm / alphas)

    def test_singular_without_penalty(self, rng, monkeypatch, way):
        take(way, monkeypatch)
        K, Y = problem(40, rng)
        K[:, 7], K[7, :] = K[:, 5], K[5, :]
        with pytest.raises(NotPositiveDefinite, match=r"K is not positive definite at pivot .*raise alpha"):
            ridge_loo_path(K, Y, [1.0, 2.0, 3.0, 4.0, 5.0, 0.0])

    def test_indefinite(self, rng, monkeypatch, way):
        take(way, monkeypatch)
        K, Y = problem(40, rng)
        K -= 0.5 * np.eye(40)
        with pytest.raises(NotPositiveDefinite, match="positive semidefinite kernel"):
            ridge_loo_path(K, Y, ALPHAS)
        large = np.array([1.0, 2.0, 3.0, 5.0, 8.0, 1e3])
        condition = 1 + 200 / (large - 0.5)
        assert_close(ridge_loo_path(K, Y, large), one_by_one(K, Y, large), condition)

    @pytest.mark.parametrize("scale", [1e-150, 1e150])
    def test_any_scale(self, rng, monkeypatch, way, scale):
        take(way, monkeypatch)
        K, Y = problem(70, rng)
        got = ridge_loo_path(K * scale, Y, ALPHAS * scale)
        np.testing.assert_allclose(got, ridge_loo_path(K, Y, ALPHAS), rtol=1e-8, atol=1e-8)

    def test_bad_entries(self, rng, monkeypatch, way):
        take(way, monkeypatch)
        K, Y = problem(20, rng)
        K[4, 4] = np.nan
        with pytest.raises(ValueError, match="infinite or NaN in row"):
            ridge_loo_path(K, Y, ALPHAS)

    def test_any_layout(self, rng, monkeypatch, way):
        take(way, monkeypatch)
        K, Y = problem(70, rng)
        expected = ridge_loo_path(K, Y, ALPHAS)
        K.flags.writeable = Y.flags.writeable = False
        np.testing.assert_array_equal(ridge_loo_path(K, Y, ALPHAS), expected)
        again = ridge_loo_path(np.asfortranarray(K), np.asfortranarray(Y), ALPHAS)
        np.testing.assert_allclose(again, expected, rtol=1e-9, atol=1e-9)


def test_alphas_that_cannot_be(rng):
    K, Y = problem(5, rng)
    for alphas in ([], 1.0, [[1.0]]):
        with pytest.raises(ValueError, match="at least one number"):
            ridge_loo_path(K, Y, alphas)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"finite and not negative, got .* at index 1"):
            ridge_loo_path(K, Y, [1.0, bad])


def test_threads_change_no_bit(rng, monkeypatch):
    take("band", monkeypatch)
    K, Y = problem(700, rng)
    first = ridge_loo_path(K, Y, ALPHAS, n_threads=1)
    for n_threads in (2, 3):
        np.testing.assert_array_equal(ridge_loo_path(K, Y, ALPHAS, n_threads=n_threads), first)


class Enough(BaseException):
    pass


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("after", [0, 3, 12])
def test_check_ends_it(rng, monkeypatch, n_threads, after):
    take("band", monkeypatch)
    monkeypatch.setattr(band, "_PAUSE", -1.0)
    K, Y = problem(400, rng)
    before, calls = threading.active_count(), []

    def check():
        assert threading.current_thread() is threading.main_thread()
        calls.append(None)
        if len(calls) > after:
            raise Enough

    with pytest.raises(Enough):
        ridge_loo_path(K, Y, ALPHAS, n_threads=n_threads, check=check)
    assert len(calls) == after + 1
    assert threading.active_count() == before


def test_a_thread_that_fails_ends_the_others():
    def work(task):
        if task == 5:
            raise MemoryError("task 5")

    for n_threads in (1, 2, 4):
        with pytest.raises(MemoryError, match="task 5"), Team(n_threads) as team:
            team.run(work, list(range(50)))


class TestEigenvalueRange:
    @pytest.mark.parametrize("n", [2, 5, 60, 130])
    @pytest.mark.parametrize("centred", [True, False])
    @weightings
    def test_largest(self, rng, n, centred, weighted):
        K, _ = problem(n, rng)
        weights = weights_for(weighted, n, rng)
        s = np.ones(n) if weights is None else np.sqrt(weights)
        projection = np.eye(n) - (np.outer(s, s) / (s @ s) if centred else 0)
        expected = np.linalg.eigvalsh(projection @ (s[:, None] * K * s) @ projection)[-1]
        for operator, more in ((K, {}), (aslinearoperator(K), {}), (lambda V: K @ V, {"n": n})):
            floor, largest = eigenvalue_range(operator, weights=weights, centred=centred, **more)
            assert largest == pytest.approx(expected, rel=0.01)
            assert floor == pytest.approx(n * EPS * largest)

    def test_degenerate(self):
        assert eigenvalue_range(np.array([[3.0]])) == (0.0, 0.0)
        assert eigenvalue_range(np.array([[3.0]]), centred=False)[1] == pytest.approx(3.0)
        assert eigenvalue_range(np.zeros((6, 6))) == (0.0, 0.0)
        assert eigenvalue_range(np.ones((6, 6)))[1] <= 10 * EPS
        assert eigenvalue_range(np.eye(50), centred=False)[1] == pytest.approx(1.0)

    def test_takes_few_products(self, rng):
        K, _ = problem(500, rng)
        calls = []
        eigenvalue_range(lambda V: calls.append(None) or K @ V, 500)
        assert len(calls) <= 15

    def test_repeats(self, rng):
        K, _ = problem(50, rng)
        assert eigenvalue_range(K) == eigenvalue_range(K)

    def test_huge_and_bad(self, rng):
        K, _ = problem(50, rng)
        assert eigenvalue_range(K * 1e200)[1] == pytest.approx(1e200 * eigenvalue_range(K)[1])
        K[3, 3] = np.inf
        with np.errstate(all="ignore"), pytest.raises(ValueError, match="infinite or NaN in row 3"):
            eigenvalue_range(K, centred=False)

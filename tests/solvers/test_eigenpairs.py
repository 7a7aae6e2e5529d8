"""Eigenpairs: values, residuals and orthogonality against LAPACK; multiplicities, low ranks, restarts."""

import numpy as np
import pytest
import scipy.linalg

from mercer._threads import one_blas_thread
from mercer.solvers.eigenpairs import RowBlocks, block_lanczos, dense_eigenpairs

EPS = np.finfo(float).eps


@pytest.fixture(autouse=True)
def one_thread_for_blas():
    """As the solver's callers have it."""
    with one_blas_thread():
        yield


def with_spectrum(values, rng):
    """A symmetric matrix of these eigenvalues, and its eigenvectors."""
    Q = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    A = (Q * values) @ Q.T
    return (A + A.T) / 2, Q


def lanczos(A, k, seed=0, **options):
    """The k largest pairs by products, with rounding as a caller would state it."""
    options = {"block": 4, "noise": len(A) * EPS * np.abs(A).max(), **options}
    return block_lanczos(lambda V: A @ V, len(A), k, rng=np.random.default_rng(seed), **options)


def check(A, pairs, tol=1e-9):
    """Residuals as stated and orthonormal vectors; values against LAPACK's."""
    k, top = len(pairs.values), np.linalg.norm(A, 2)
    expected = np.linalg.eigvalsh(A)[::-1][:k]
    rounding = 2e-12 * top
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(k), atol=1e-12)
    residuals = np.linalg.norm(A @ pairs.vectors - pairs.vectors * pairs.values, axis=0)
    np.testing.assert_allclose(residuals, pairs.residuals, rtol=1e-3, atol=rounding)
    bound = np.maximum(tol * np.sqrt(np.maximum(expected, 1e-12 * top) * top), rounding)
    assert (residuals <= bound).all()
    np.testing.assert_allclose(pairs.values, expected, atol=tol * top)
    least = np.linalg.eigvalsh(A)[0]
    assert least - rounding <= pairs.least <= max(least, 0) + 0.1 * max(-least, top)


SPECTRA = {
    "geometric": 0.9 ** np.arange(200),
    "slow": 1 / np.arange(1.0, 201),
    "steep": np.maximum(0.1 ** np.arange(200.0), 1e-300),
    "flat": 1 + 1e-3 * np.arange(200.0),
    "indefinite": np.concatenate((0.8 ** np.arange(60), np.zeros(80), -0.5 * 0.9 ** np.arange(60))),
    "huge": 1e100 * 0.9 ** np.arange(200),
    "tiny": 1e-100 * 0.9 ** np.arange(200),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("k", [1, 7, 30])
class TestAgainstLapack:
    def test_products(self, name, k, rng):
        A, _ = with_spectrum(SPECTRA[name], rng)
        pairs = lanczos(A, k)
        assert pairs.converged
        assert pairs.solver == "lanczos"
        check(A, pairs)

    def test_restarts(self, name, k, rng):
        A, _ = with_spectrum(SPECTRA[name], rng)
        whole, short = lanczos(A, k), lanczos(A, k, max_basis=2 * k + 24)
        assert short.converged
        assert short.n_iter >= whole.n_iter
        check(A, short)

    def test_dense(self, name, k, rng):
        A, _ = with_spectrum(SPECTRA[name], rng)
        pairs = dense_eigenpairs(A.copy(), k)
        check(A, pairs)
        assert pairs.values.shape == (k,)
        assert (np.diff(pairs.values) <= 0).all()


def test_all_pairs_in_either_order(rng):
    A, _ = with_spectrum(0.9 ** np.arange(40), rng)
    for form in (np.ascontiguousarray(A), np.asfortranarray(A)):
        check(A, dense_eigenpairs(form.copy("K"), 40))


@pytest.mark.parametrize("k", [1, 3, 79])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("n", [80, 200])
def test_eigenvalues_equal_but_for_rounding(n, order, k):
    A = np.eye(n) - 1 / n  # LAPACK's choice of some finds none of them
    check(A, dense_eigenpairs(A.copy(order), k))
    if k < n // 2:
        check(A, lanczos(A, k))


def test_restarts_happen_and_are_needed(rng):
    A, _ = with_spectrum(1 / np.arange(1.0, 301) ** 0.5, rng)
    pairs = lanczos(A, 5, max_basis=30)
    assert 4 * pairs.n_iter > 60  # more columns than the basis ever held
    check(A, pairs)


class TestMultiplicity:
    """A Krylov space of b vectors holds b copies of an eigenvalue; there may be more."""

    @pytest.mark.parametrize("k", [2, 4, 6, 20, 29, 33])
    def test_more_copies_than_columns_in_a_block(self, k, rng):
        A, _ = with_spectrum(np.r_[np.full(29, 100.0), np.full(60, 1.0), np.zeros(61)], rng)
        check(A, lanczos(A, k))

    @pytest.mark.parametrize("seed", range(20))
    @pytest.mark.parametrize("k", [20, 40])
    def test_few_values_and_others(self, seed, k):
        """Rounding leads out of spaces that are invariant; every other matrix has distinct values, too."""
        rng = np.random.default_rng(seed)
        n, tail = 500, 150 * (seed % 2)
        distinct = int(rng.integers(2, 7))
        counts = rng.multinomial(n - tail, rng.dirichlet(np.ones(distinct)))
        values = np.r_[np.repeat(rng.uniform(1, 10, distinct), counts), rng.uniform(0, 10, tail)]
        A, _ = with_spectrum(values, rng)
        pairs = block_lanczos(lambda V: A @ V, n, k, block=16, rng=rng)
        assert pairs.converged
        assert pairs.n_iter < 200
        np.testing.assert_allclose(pairs.values, np.sort(values)[::-1][:k], rtol=1e-9)

    def test_the_identity(self):
        pairs = lanczos(np.eye(80), 20)
        np.testing.assert_allclose(pairs.values, 1.0, rtol=1e-12)
        check(np.eye(80), pairs)

    @pytest.mark.parametrize("rank", [0, 1, 3, 4, 5, 12])
    def test_a_rank_below_what_is_asked(self, rank, rng):
        F = rng.normal(size=(100, rank))
        A = F @ F.T
        pairs = lanczos(A, 10)
        assert pairs.converged
        check(A, pairs)
        assert (np.abs(pairs.values[rank:]) <= 1e-12 * max(1.0, pairs.values[0])).all()


def test_vectors_where_eigenvalues_are_distinct(rng):
    values = 0.8 ** np.arange(150)
    A, Q = with_spectrum(values, rng)
    pairs = lanczos(A, 10, tol=1e-11)
    # sin of the angle ≤ residual / gap, the gap being 0.2 λᵢ: 1e-11 / 0.2 · √(λ₁/λ₁₀), and some slack.
    overlap = np.abs(np.einsum("ij,ij->j", Q[:, :10], pairs.vectors))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-12)
    signs = np.sign(np.einsum("ij,ij->j", Q[:, :10], pairs.vectors))
    np.testing.assert_allclose(pairs.vectors * signs, Q[:, :10], atol=1e-9)


def test_a_loose_tolerance_takes_fewer_products_and_keeps_its_word(rng):
    A, _ = with_spectrum(1 / np.arange(1.0, 301), rng)
    loose, tight = lanczos(A, 10, tol=1e-3), lanczos(A, 10, tol=1e-10)
    assert loose.n_iter < tight.n_iter
    check(A, loose, tol=1e-3)
    check(A, tight, tol=1e-10)
    check(A, lanczos(A, 10, tol=0.0), tol=1e-15)


def test_max_iter_stops_short(rng):
    A, _ = with_spectrum(1 / np.arange(1.0, 301), rng)
    pairs = lanczos(A, 10, max_iter=4)
    assert not pairs.converged
    assert pairs.n_iter == 4
    assert pairs.vectors.shape == (300, 10)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(10), atol=1e-12)
    # Ritz values are below the eigenvalues, and residuals say by how much at most.
    error = np.linalg.eigvalsh(A)[::-1][:10] - pairs.values
    assert (error >= -1e-12).all()
    assert pairs.residuals.max() > 1e-4


@pytest.mark.parametrize("rank", [3, 300])
def test_max_iter_leaves_as_many_vectors_as_were_asked_for(rank, rng):
    A, _ = with_spectrum(np.where(np.arange(300) < rank, 1 / np.arange(1.0, 301), 0), rng)
    pairs = lanczos(A, 30, max_iter=1)
    assert pairs.vectors.shape == (300, 30)
    assert pairs.residuals.shape == (30,)
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(30), atol=1e-12)


def test_steps_are_reported(rng):
    A, _ = with_spectrum(0.9 ** np.arange(200), rng)
    steps = []
    pairs = lanczos(A, 5, on_step=lambda n_iter, residual: steps.append((n_iter, residual)))
    assert steps[-1][0] == pairs.n_iter
    assert steps[-1][1] <= 1e-9
    assert len(steps) >= 2


def test_a_run_repeats_and_threads_change_nothing(rng):
    A, _ = with_spectrum(0.95 ** np.arange(1100), rng)
    runs = [lanczos(A, 5, n_threads=n_threads) for n_threads in (1, 1, 2, 3)]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.vectors, runs[0].vectors)
        np.testing.assert_array_equal(run.values, runs[0].values)


class TestRowBlocks:
    @pytest.mark.parametrize("n", [1, 511, 512, 513, 1500])
    @pytest.mark.parametrize("n_threads", [1, 2])
    def test_products(self, n, n_threads, rng):
        A, V, W = rng.normal(size=(n, 7)), rng.normal(size=(7, 3)), rng.normal(size=(n, 3))
        with RowBlocks(n, n_threads) as rows:
            np.testing.assert_allclose(rows.product(A, V), A @ V, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(rows.inner(A, W), A.T @ W, rtol=1e-11, atol=1e-11)
            F = W.copy()
            rows.subtract(F, A, V)
            np.testing.assert_allclose(F, W - A @ V, rtol=1e-12, atol=1e-12)
            expected = A @ V
            rows.product(A, V, out=A[:, :3])
            np.testing.assert_allclose(A[:, :3], expected, rtol=1e-12, atol=1e-12)


def test_against_scipys_generalised_driver_on_a_gram_matrix(rng):
    X = rng.normal(size=(400, 3))
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=-1))
    expected = scipy.linalg.eigh(K, driver="ev", eigvals_only=True)[::-1][:25]
    np.testing.assert_allclose(lanczos(K, 25, block=8).values, expected, rtol=1e-11)

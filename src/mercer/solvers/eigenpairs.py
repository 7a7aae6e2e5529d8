"""The largest eigenpairs of a symmetric matrix: by LAPACK, or from products with blocks of vectors.

The iterative way is block Lanczos with full reorthogonalisation and thick restarts. It wants a function
``V -> A @ V`` only, so that a Gram matrix need not be stored; its own memory is a basis of a few times as
many vectors as there are eigenpairs.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from .._threads import n_threads as count_threads

__all__ = ["Eigenpairs", "RowBlocks", "block_lanczos", "dense_eigenpairs", "fits_lanczos", "ritz_values"]

_EPS = np.finfo(np.float64).eps
#: Rows of one part of a product. A fixed number: sums must not depend on how many threads there are.
_ROWS = 512
#: Multiply-adds that one thread does in about the time in which others hear of them, 0.2 ms.
_WORTH = 1e7
#: Columns of the basis beside twice the wanted ones before a restart. More cost more orthogonalisation than
#: they save products (letter, n = 5000: 50 pairs to 1e-9 take 272 without a restart).
_SPARE = 384
#: Part of the largest eigenvalue below which what leads out of a space is taken for rounding. (Where a space
#: is invariant 4e-14 was seen; Krylov blocks that grow out of it find no new copies of an eigenvalue.)
_INVARIANT = 1e-12
#: Times in a row that random directions change nothing, where rounding keeps them from leading nowhere.
_CALM = 3
#: A squared condition up to which a block's own Gram matrix orthonormalises it, applied twice.
_CHOLESKY_UP_TO = 1e10
#: Rows up to which `ritz_values` are LAPACK's, and steps for more.
_EXACT_UP_TO, _RITZ_STEPS = 64, 16


@dataclass(frozen=True)
class Eigenpairs:
    """What a solver of eigenproblems reached.

    Attributes
    ----------
    values : ndarray of shape (k,)
        From the largest down.
    vectors : ndarray of shape (n, k)
        Orthonormal columns.
    residuals : ndarray of shape (k,)
        ``‖A v − λ v‖``; an eigenvalue lies within it, and `values` are much closer where they are isolated.
    solver : str
        "dense" or "lanczos".
    least : float
        The smallest eigenvalue is no larger than this, and near it as a rule.
    n_iter : int
        Products with A; 1 for "dense".
    converged : bool
        Whether every pair reached the tolerance.
    """

    values: np.ndarray
    vectors: np.ndarray
    residuals: np.ndarray
    solver: str
    least: float
    n_iter: int = 1
    converged: bool = True


class RowBlocks:
    """Matrix products cut into fixed blocks of rows, which threads share; BLAS itself stays on one.

    Parameters
    ----------
    n : int
        Rows.
    n_threads : int or None
        Changes nothing in the results.
    """

    def __init__(self, n, n_threads=None):
        self.parts = [slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS)]
        threads = min(count_threads(n_threads), len(self.parts))
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._pool is not None:
            self._pool.shutdown()

    def map(self, function, work):
        """``function(part)`` of each block of rows, in order; one thread does little work (multiply-adds)."""
        alone = self._pool is None or work < _WORTH
        return list((map if alone else self._pool.map)(function, self.parts))

    def product(self, A, V, out=None):
        """``A @ V`` for A of shape (n, m); `out` may be a part of A."""
        out = np.empty((len(A), V.shape[1])) if out is None else out

        def multiply(part):
            out[part] = A[part] @ V

        self.map(multiply, A.size * V.shape[1])
        return out

    def subtract(self, F, A, V):
        """``F -= A @ V``, in place."""

        def subtract(part):
            F[part] -= A[part] @ V

        self.map(subtract, A.size * V.shape[1])

    def inner(self, A, V):
        """``Aᵀ V`` for A of shape (n, m) and V of shape (n, p), summed in the order of the rows."""
        parts = self.map(lambda part: A[part].T @ V[part], A.size * V.shape[1])
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total


def dense_eigenpairs(A, k):
    """The `k` largest eigenpairs of a symmetric matrix by LAPACK.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Symmetric; lost.
    k : int

    Returns
    -------
    Eigenpairs
        With residuals of 0: they are of the size of rounding.
    """
    # For its smallest eigenvalue LAPACK would reduce the matrix a second time, in as much time again;
    # estimates take a tenth of it (n = 700: 1.6 ms beside 21).
    least = ritz_values(A)[0] if k < len(A) else np.inf
    # A C-ordered symmetric matrix is its own transpose, and LAPACK then needs no copy.
    values, vectors = _largest(A if A.flags.f_contiguous else A.T, k)
    values, vectors = values[::-1].copy(), np.ascontiguousarray(vectors[:, ::-1])
    return Eigenpairs(values, vectors, np.zeros(k), "dense", float(min(least, values[-1])))


def _largest(A, k):
    """The `k` largest eigenpairs, the largest last, of a symmetric matrix in Fortran order, which is lost."""
    n = len(A)
    if k < n:
        diagonal = A.diagonal().copy()
        some = (n - k, n - 1)
        values, vectors = eigh(A, subset_by_index=some, driver="evr", overwrite_a=True, check_finite=False)
        if len(values) == k:
            return values, vectors
        # Of eigenvalues that are equal but for rounding "evr" may find none. The other triangle is intact.
        np.fill_diagonal(A, diagonal)
    values, vectors = eigh(A, lower=k == n, driver="evd", overwrite_a=True, check_finite=False)
    return values[n - k :], vectors[:, n - k :]


def fits_lanczos(n, k, block):
    """Whether `block_lanczos` has room in n dimensions: a few blocks beside the wanted vectors."""
    return k + 4 * block <= n


def block_lanczos(
    apply,
    n,
    k,
    *,
    block,
    rng,
    tol=1e-9,
    noise=0.0,
    max_iter=None,
    max_basis=None,
    on_step=None,
    n_threads=None,
):
    """The `k` largest eigenpairs of a symmetric positive semidefinite operator, from products with blocks.

    Pair i is done when ``‖A v − λᵢ v‖ ≤ max(tol √(λ₁ λᵢ), 2e-12 λ₁, 2 noise)``. Then v is right up to an
    angle of that over the distance of λᵢ to the eigenvalues beyond the basis, and ``√λᵢ v``, a principal
    component's coordinates, up to ``√λ₁ · tol · λᵢ / distance``.

    Parameters
    ----------
    apply : callable
        ``apply(V) -> A V``, a new float64 array, for C-ordered V of shape (n, b).
    n : int
        Dimension.
    k : int
        With ``fits_lanczos(n, k, block)``.
    block : int
        Columns of a product. An eigenvalue may occur more often than that, see Notes.
    rng : RandomState or Generator
        Draws the first block.
    tol : float
    noise : float
        Size of the rounding in a product with a unit vector.
    max_iter : int or None
        Most products; None is 1000. There are always as many as k vectors take.
    max_basis : int or None
        Most columns of the basis; None is 2k + 384.
    on_step : callable or None
        ``on_step(n_iter, residual)`` at each look at the residual.
    n_threads : int or None
        Changes nothing in the result.

    Returns
    -------
    Eigenpairs

    Notes
    -----
    A Krylov space of b vectors holds at most b copies of an eigenvalue. Where directions of a space turn out
    to lead nowhere, random ones go on outside of it in their places, until such have changed none of the k
    largest values; and where one of these occurs b times, beside them.

    References
    ----------
    Golub & Underwood, "The block Lanczos method for computing eigenvalues" (1977); Wu & Simon,
    "Thick-restart Lanczos method for large symmetric eigenvalue problems", SIAM J. Matrix Anal. Appl. 22
    (2000).
    """
    limit = max(1000 if max_iter is None else max_iter, -(-k // block))
    room = min(n, max(2 * k + _SPARE if max_basis is None else max_basis, k + 4 * block))
    with RowBlocks(n, n_threads) as rows:
        space = _Krylov(apply, n, block, room, rows, rng, noise)
        due, seen, before, calm = k + 2 * block, [], None, 0
        while True:
            space.step()
            last = space.n_iter >= limit or space.narrow
            if not (last or space.full or space.m >= due):
                space.extend()
                continue
            values, S = space.ritz(k)
            residuals, goals = space.residuals(S), _goals(values, tol, noise)
            worst = float(np.max(residuals / goals))
            if on_step is not None:
                on_step(space.n_iter, worst * tol)
            converged = len(values) == k and worst <= 1
            if converged and space.narrow:
                calm = calm + 1 if _unchanged(before, values, goals) else 0
                done = calm >= (1 if space.spent else _CALM)
            else:
                done = converged and space.deep
            if done and not (_occurs(values, goals, space.block) and space.widen(k, block)):
                break
            if (space.n_iter >= limit and len(values) == k) or not space.go_on(k):
                break
            before = values if space.chain == 0 else before
            seen = [*seen[-1:], (space.n_iter, worst)]
            # A look costs some 20 m³ operations: nothing beside a product, but for small n.
            due = space.m + block * (1 if 20 * space.m**3 < n * n * block else _steps_left(seen))
        return Eigenpairs(
            values, space.vectors(S), residuals, "lanczos", space.least(), space.n_iter, converged
        )


def _goals(values, tol, noise):
    """Residuals at which pairs are done."""
    top = max(float(values[0]), 0.0)
    rounding = max(2 * noise, 2 * _INVARIANT * top, np.finfo(np.float64).tiny)
    return np.maximum(tol * np.sqrt(top) * np.sqrt(np.maximum(values, 1e-12 * top)), rounding)


def _unchanged(before, values, goals):
    """Whether random directions outside of a space have left the largest values where they were."""
    return before is not None and len(before) == len(values) and bool((values - before <= goals).all())


def _occurs(values, goals, times):
    """Whether some value that is not 0 occurs so many times, but for what is left of it."""
    first, last = values[: max(0, len(values) - times + 1)], values[times - 1 :]
    goals = goals[times - 1 :]
    return bool(((first - last <= goals) & (last > goals)).any())


def _steps_left(seen):
    """Blocks until the next look at the residual, which falls by a factor per block, slowly at first."""
    if len(seen) < 2:
        return 2
    (n_before, before), (n_now, now) = ((n_iter, np.log(max(worst, 1.0))) for n_iter, worst in seen)
    rate = (before - now) / (n_now - n_before)
    return int(np.clip(0.7 * now / rate, 1, 4)) if rate > 0 else 4


def ritz_values(K):
    """Estimates of a symmetric matrix's eigenvalues that lie between its least and its largest.

    Parameters
    ----------
    K : ndarray of shape (n, n)

    Returns
    -------
    ndarray of shape (m,)
        Ascending. Up to 64 rows the eigenvalues; for more those of 16 steps of Lanczos with full
        orthogonalisation from a fixed start, whose ends are near the spectrum's.
    """
    n = len(K)
    if n <= _EXACT_UP_TO:
        return np.linalg.eigvalsh(K)
    # No matrix is likely to have this as an eigenvector.
    q = np.cos(np.arange(1, n + 1) ** 2 * 0.6180339887498949).astype(K.dtype)
    Q, diagonal, off = [q / np.linalg.norm(q)], [], []
    for _ in range(_RITZ_STEPS):
        v = K @ Q[-1]
        diagonal.append(float(Q[-1] @ v))
        basis = np.array(Q)
        for _ in range(2):
            v = v - basis.T @ (basis @ v)
        size = float(np.linalg.norm(v))
        if size <= 1e-10 * max(map(abs, diagonal)):
            break
        off.append(size)
        Q.append(v / size)
    m = len(diagonal)
    T = np.diag(diagonal) + np.diag(off[: m - 1], 1) + np.diag(off[: m - 1], -1)
    return np.linalg.eigvalsh(T)


class _Krylov:
    """An orthonormal basis Q of a block Krylov space: ``A Q = Q H + N B Eᵀ``, E the last block's columns.

    Parameters
    ----------
    apply, n, block, rng, noise
        As in `block_lanczos`.
    room : int
        Columns of Q.
    rows : RowBlocks

    Attributes
    ----------
    m : int
        Columns of Q in use.
    n_iter : int
        Products with A.
    chain : int
        Of those, since the last random block.
    """

    def __init__(self, apply, n, block, room, rows, rng, noise):
        self.apply, self.block, self.rows, self.rng, self.noise = apply, block, rows, rng, noise
        self.Q = np.empty((n, room))
        self.H = np.zeros((room, room))
        self.m = self.n_iter = self.chain = self._renewed = 0
        self._fresh = block  # how many directions were random when they last were
        self._last = self._first = 0
        self._size = 0.0  # the largest entry of H
        self.N = np.empty((n, 0))
        self._dropped = 0.0  # the largest part of a product that was taken for rounding
        self._append(self._random(block))

    @property
    def narrow(self):
        """Whether some directions led nowhere outside of the space."""
        return self.N.shape[1] < self.block

    @property
    def spent(self):
        """Whether as many as were random at last do so."""
        return self.N.shape[1] <= self.block - self._fresh

    @property
    def full(self):
        """Whether another block finds no room."""
        return self.m + self.N.shape[1] > self.Q.shape[1]

    @property
    def deep(self):
        """Whether the last random directions have had their time to show larger eigenvalues."""
        return self._renewed == 0 or self.chain >= 8

    def step(self):
        """Multiply the last block by A: H gets its columns, N and B what leads outside."""
        Q, m, last, first = self.Q, self.m, self._last, self._first
        W = self.apply(np.ascontiguousarray(Q[:, last:m]))
        self.n_iter += 1
        self.chain += 1
        # In exact arithmetic the columns before the last two blocks have no part in W.
        C = self.rows.inner(Q[:, first:m], W)
        self.rows.subtract(W, Q[:, first:m], C)
        self._size = max(self._size, float(np.abs(C).max()))
        W, B = self._orthonormal(W, max(self.noise, _INVARIANT * self._size), drops=True)
        D = self.rows.inner(Q[:, :m], W)
        self.rows.subtract(W, Q[:, :m], D)
        # What keeps less than this of its unit length was rounding.
        W, B2 = self._orthonormal(W, 0.1)
        columns = D @ B
        columns[first:] += C
        self.N, self.B = W, B2 @ B
        self.H[:m, last:m] = columns
        self.H[last:m, :last] = columns[:last].T
        corner = self.H[last:m, last:m]
        corner[...] = (corner + corner.T) / 2

    def widen(self, k, more):
        """Have blocks of so many more columns from now on; False where there is no room for them."""
        fits = k + 4 * (self.block + more) <= self.Q.shape[1]
        self.block += more if fits else 0
        return fits

    def extend(self):
        """Make N the last block."""
        self._append(self.N)

    def go_on(self, k):
        """Extend, where there is no room after a restart with the best Ritz vectors; False at n columns.

        Random directions take the places of those that led nowhere.
        """
        new, renewed = self.N, self.narrow
        if renewed:
            self._fresh = min(self.block, len(self.Q) - self.m) - new.shape[1]
            new = np.hstack([new, self._random(self._fresh)])
        if not new.shape[1]:
            return False
        if self.m + new.shape[1] > self.Q.shape[1]:
            self._compress(k)
        self._append(new)
        if renewed:
            self.chain, self._renewed = 0, self._renewed + 1
        return True

    def ritz(self, k):
        """The k largest Ritz values (fewer if m is less) and their vectors in the basis."""
        m = self.m
        values, S = _largest(self.H[:m, :m].copy("F"), min(k, m))
        return values[::-1].copy(), S[:, ::-1]

    def least(self):
        """The smallest Ritz value."""
        return float(np.linalg.eigvalsh(self.H[: self.m, : self.m])[0])

    def residuals(self, S):
        """Norms of ``A v − θ v`` for Ritz vectors ``v = Q s``."""
        return np.linalg.norm(self.B @ S[self._last :], axis=0) + self._dropped

    def vectors(self, S):
        """``Q S``."""
        return self.rows.product(self.Q[:, : self.m], S)

    def _compress(self, k):
        keep = k + max(self.block, (self.Q.shape[1] - k) // 4)
        values, S = self.ritz(keep)
        keep = len(values)
        self.rows.product(self.Q[:, : self.m], S, out=self.Q[:, :keep])
        self.H[...] = 0
        self.H.flat[: keep * (len(self.H) + 1) : len(self.H) + 1] = values
        self.m, self._last = keep, 0

    def _append(self, block):
        stop = self.m + block.shape[1]
        self.Q[:, self.m : stop] = block
        # The next product has parts in this block and the last; after a restart in all of the basis.
        self._first, self._last, self.m = self._last, self.m, stop

    def _random(self, count):
        """Random directions outside of the space and of what leads out of it."""
        V = self.rng.standard_normal((len(self.Q), count))
        for _ in range(2):
            for basis in (self.Q[:, : self.m], self.N):
                if basis.shape[1]:
                    self.rows.subtract(V, basis, self.rows.inner(basis, V))
            V, _ = self._orthonormal(V, 0.1)
        return V

    def _orthonormal(self, F, smallest, drops=False):
        """``F = N B`` with orthonormal N, without directions of which F has no more than `smallest`."""
        if F.shape[1] == 0:
            return F, np.zeros((0, 0))
        squares, S = np.linalg.eigh(self.rows.inner(F, F))
        if squares[0] > max(squares[-1] / _CHOLESKY_UP_TO, smallest**2):
            roots = np.sqrt(squares)
            return self.rows.product(F, S / roots), S.T * roots[:, None]
        N, R = np.linalg.qr(F)
        U, sizes, Vt = np.linalg.svd(R)
        some = sizes > smallest
        if drops:
            self._dropped = max(self._dropped, float(np.max(sizes[~some], initial=0.0)))
        return N @ U[:, some], sizes[some, None] * Vt[some]

"""Cholesky factors of a regularised Gram matrix, in place, with an optional float32 route.

LAPACK factors one triangle and never reads the other. So one square array holds the factor L in its lower
triangle and the matrix itself above, and residuals, a second regularisation and leave-one-out need no copy.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.linalg import blas, lapack

from .. import _native
from .._threads import n_threads as count_threads
from .conjugate_gradient import conjugate_gradient
from .outcome import NotPositiveDefinite, not_finite

__all__ = ["MIXED_FROM", "Factor", "factorize", "solve_mixed"]

#: From this many rows on, a float32 factor that preconditions float64 residuals is tried first: 7.8 ms
#: against 10 at n = 1000, 22 against 32 at 1500, 275 against 466 at 4000 (kin40k, alpha from 1 to 1e-6, one
#: thread).
MIXED_FROM = 1000

_EPS = np.finfo(np.float64).eps
#: Columns that one thread copies at a time.
_COLUMNS = 256


def _fortran(K):
    """K, or a C-contiguous symmetric K's transpose: Fortran order without a copy, as LAPACK wants it."""
    if K.dtype != np.float64:
        raise TypeError(f"the solvers work in float64, got {K.dtype}")
    if K.flags.f_contiguous:
        return K
    if K.flags.c_contiguous:
        return K.T
    raise ValueError("the Gram matrix must be contiguous")


def _pivot_error(n):
    """Rounding of a pivot over its diagonal entry: it grows like √steps; 8 is for bad luck."""
    return 8 * np.sqrt(n) * _EPS


def _breakdown(A, diagonal, i, alpha):
    """The error for a breakdown at pivot `i`, with the pivot worked out from the columns before it."""
    for j, d in enumerate(diagonal):
        if not (np.isfinite(d) and np.isfinite(A[:j, j]).all()):
            return not_finite(j)
    row = A[:i, i].copy()  # the upper triangle still holds the matrix
    part = lapack.dtrtrs(np.asfortranarray(A[:i, :i]), row, lower=1)[0] if i else row
    pivot = float(diagonal[i] - part @ part)
    floor = max(
        abs(pivot) if np.isfinite(pivot) else 0.0, 2 * _pivot_error(len(diagonal)) * np.abs(diagonal).max()
    )
    raised = max(10.0 ** np.ceil(np.log10(floor)) if floor > 0 else 1e-10, 10 * alpha)
    if -pivot > len(diagonal) * _EPS * np.abs(diagonal).max():  # more than rounding
        remedy = "take a positive semidefinite kernel (mercer.kernels.check_psd tells)"
    else:
        remedy = "drop rows that repeat others"
    return NotPositiveDefinite(i, pivot, f"raise alpha above {raised:.0e}, or {remedy}")


class Factor:
    """``K + alpha I = L Lᵀ``: L in the lower triangle of one Fortran-ordered array, K strictly above.

    Parameters
    ----------
    array : ndarray of shape (n, n)
        Fortran order, owned by this object.
    diagonal : ndarray of shape (n,)
        The diagonal of ``K + alpha I``.
    """

    def __init__(self, array, diagonal):
        self.array, self.diagonal = array, diagonal

    def solve(self, B, n_threads=None):
        """``(K + alpha I)⁻¹ B`` for B of shape (n, t)."""
        return _native.cholesky_solve(self.array, B, n_threads)

    def matmul(self, V, n_threads=None):
        """``(K + alpha I) V`` from the upper triangle."""
        return _native.symmetric_product(self.array, self.diagonal, V, n_threads)

    def inverse_diagonal(self, n_threads=None):
        """``diag((K + alpha I)⁻¹)``, of shape (n,)."""
        return _native.cholesky_inverse_diagonal(self.array, n_threads)

    def restored(self, diagonal):
        """The matrix again, with this diagonal, in the factor's memory; the factor is lost."""
        A = self.array
        n, block = A.shape[0], 512
        for i in range(0, n, block):
            stop = min(i + block, n)
            A[stop:, i:stop] = A[i:stop, stop:].T
            square = A[i:stop, i:stop]
            square[...] = np.triu(square, 1) + np.triu(square, 1).T
        A.flat[:: n + 1] = diagonal
        return A


def _solve_single(L, V, n_threads):
    """``(L Lᵀ)⁻¹ V`` in float32, for V in float64 of any magnitude."""
    scale = np.abs(V).max(axis=0)
    scale[scale == 0] = 1.0  # residuals shrink below what float32 can hold
    return scale * _native.cholesky_solve(L, V / scale, n_threads).astype(np.float64)


def factorize(K, alpha, n_threads=None):
    """Factor ``K + alpha I``, overwriting K.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric, float64, contiguous; lost.
    alpha : float
        Not negative.
    n_threads : int or None
        Changes nothing in the result.

    Returns
    -------
    Factor

    Raises
    ------
    NotPositiveDefinite
        At the pivot that is not positive, or is no more than rounding error.
    ValueError
        Where K is infinite or NaN.
    """
    A = _fortran(K)
    diagonal = A.diagonal() + alpha
    A.flat[:: len(A) + 1] = diagonal
    info = _native.cholesky(A, n_threads)
    L, done = A, info - 1 if info else len(A)
    # A breakdown may come a few steps after the pivot that was rounding error already: that one is to be
    # named.
    small = L.diagonal()[:done] ** 2 <= _pivot_error(len(A)) * diagonal[:done]
    if small.any() or info:
        raise _breakdown(L, diagonal, int(np.argmax(small)) if small.any() else done, alpha)
    return Factor(L, diagonal)


def _single(A, diagonal, n_threads):
    """A float32 copy of A, Fortran-ordered, with another diagonal.

    Most of the time goes into making its memory's pages, which several threads share.
    """
    out = _native.empty(A.shape, np.float32, n_threads).T

    def fill(start):
        columns = slice(start, start + _COLUMNS)
        with np.errstate(over="ignore"):
            out[:, columns] = A[:, columns]

    with ThreadPoolExecutor(count_threads(n_threads)) as threads:
        for _ in threads.map(fill, range(0, len(A), _COLUMNS)):
            pass
    with np.errstate(over="ignore"):
        out[np.diag_indices(len(A))] = diagonal
    return out


def solve_mixed(K, alpha, B, constraint=None, max_iter=25, n_threads=None):
    """Solve ``(K + alpha I) X + s bᵀ = B`` to float64 accuracy with a float32 factor; K stays as it is.

    The float32 factor costs half of a float64 one. It preconditions conjugate gradients on float64 products,
    which need a handful of steps unless the matrix is too ill-conditioned for float32 to see.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric, float64, contiguous.
    alpha : float
        Not negative.
    B : ndarray of shape (n, t)
        Right-hand sides.
    constraint : ndarray of shape (n,) or None
        s, with ``sᵀX = 0``; None for no b.
    max_iter : int
        Steps after which it is no longer worth it.
    n_threads : int or None
        Changes nothing in the result.

    Returns
    -------
    tuple of (X, b, residual) or None
        The solution, b of shape (t,), and the largest relative residual. None where float32 does not carry
        the problem: then a float64 factor is needed.
    """
    A = _fortran(K)
    diagonal = A.diagonal() + alpha
    A32 = _single(A, diagonal, n_threads)
    flat = A32.ravel(order="K")
    norm = float(np.sqrt(blas.sdot(flat, flat)))
    if not np.isfinite(norm):
        return None
    if _native.cholesky(A32, n_threads):
        return None

    def apply(V, columns):
        return _native.symmetric_product(A, diagonal, V, n_threads)

    size = np.linalg.norm(B, axis=0)
    unit = np.where(size > 0, size, 1.0)
    X, shift, R = np.zeros_like(B), np.zeros(B.shape[1]), B
    # How small a residual can get depends on the size of X, which the factor alone tells well enough.
    reach = _EPS * (norm * np.linalg.norm(_solve_single(A32, B, n_threads), axis=0) + size)
    for _ in range(2):
        iterate = conjugate_gradient(
            apply,
            R,
            lambda V, columns: _solve_single(A32, V, n_threads),
            target=reach,
            max_iter=max_iter,
            constraint=constraint,
            patience=6,
        )
        X, shift = X + iterate.X, shift + iterate.shift
        if not np.isfinite(X).all():
            return None
        R = B - apply(X, None)
        if constraint is not None:
            R -= constraint[:, None] * shift
        reach = _EPS * (norm * np.linalg.norm(X, axis=0) + size)
        left = np.linalg.norm(R, axis=0)
        if np.all(left <= 4 * reach):
            return X, shift, float(np.max(left / unit))
        if np.any(left > 1e-4 * unit):
            return None
    return None

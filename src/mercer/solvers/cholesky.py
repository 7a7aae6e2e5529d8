"""Cholesky factors of a regularised Gram matrix, in place, with an optional float32 route.

LAPACK factors one triangle and never reads the other. So one square array holds the factor L in its lower
triangle and the matrix itself above, and residuals, a second regularisation and leave-one-out need no copy.
"""

import numpy as np
from scipy.linalg import blas, lapack

from .conjugate_gradient import conjugate_gradient
from .outcome import NotPositiveDefinite

__all__ = ["MIXED_FROM", "Factor", "factorize", "solve_mixed"]

#: From this many rows on, a float32 factor that preconditions float64 residuals is tried first.
MIXED_FROM = 1500

_EPS = np.finfo(np.float64).eps


def _fortran(K):
    """K, or for a C-contiguous symmetric K its transpose: Fortran order without a copy, as LAPACK wants it."""
    if K.dtype != np.float64:
        raise TypeError(f"the solvers work in float64, got {K.dtype}")
    if K.flags.f_contiguous:
        return K
    if K.flags.c_contiguous:
        return K.T
    raise ValueError("the Gram matrix must be contiguous")


def _breakdown(A, diagonal, i, alpha):
    """The error for a breakdown at pivot `i`, with the pivot worked out from the columns before it."""
    row = A[:i, i].copy()  # the upper triangle still holds the matrix
    part = lapack.dtrtrs(np.asfortranarray(A[:i, :i]), row, lower=1)[0] if i else row
    pivot = float(diagonal[i] - part @ part)
    floor = max(abs(pivot) if np.isfinite(pivot) else 0.0, len(diagonal) * _EPS * float(np.max(np.abs(diagonal))))
    raised = 10.0 ** np.ceil(np.log10(floor * 1.000001)) if floor > 0 else 1e-10
    raised = max(raised, 10 * alpha)
    return NotPositiveDefinite(i, pivot, f"raise alpha above {raised:.0e}, or drop rows that repeat others")


def _check_pivots(A, diagonal, alpha):
    """Refuse a factor whose pivots are rounding error: what it solves would be noise."""
    pivots = A.diagonal() ** 2
    # Errors of a pivot grow like the square root of the steps before it; 8 leaves room for bad luck.
    small = pivots <= 8 * np.sqrt(len(diagonal)) * _EPS * diagonal
    if small.any():
        raise _breakdown(A, diagonal, int(np.argmax(small)), alpha)


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

    def solve(self, B):
        """``(K + alpha I)⁻¹ B`` for B of shape (n, t)."""
        return lapack.dpotrs(self.array, B, lower=1)[0]

    def matmul(self, V):
        """``(K + alpha I) V`` from the upper triangle."""
        return _symmetric_product(self.array, self.array.diagonal(), self.diagonal, V)

    def inverse_diagonal(self, overwrite=False):
        """``diag((K + alpha I)⁻¹)``: the squared column norms of L⁻¹.

        Parameters
        ----------
        overwrite : bool
            Whether the factor may be lost, which saves a copy.

        Returns
        -------
        ndarray of shape (n,)
        """
        array = self.array if overwrite else self.array.copy(order="F")
        inverse, _ = lapack.dtrtri(array, lower=1, overwrite_c=1)
        return np.array([inverse[j:, j] @ inverse[j:, j] for j in range(inverse.shape[1])])


def _symmetric_product(array, stored_diagonal, diagonal, V):
    """``A V`` where A's strict upper triangle is the array's, and its diagonal is given."""
    if V.shape[1] == 1:
        product = blas.dsymv(1.0, array, V[:, 0], lower=0)[:, None]
    else:
        product = blas.dsymm(1.0, array, V, lower=0)
    product += (diagonal - stored_diagonal)[:, None] * V
    return product


def _restore(A):
    """Copy the strict upper triangle, which LAPACK left alone, over the lower one."""
    n, block = A.shape[0], 512
    for i in range(0, n, block):
        stop = min(i + block, n)
        A[stop:, i:stop] = A[i:stop, stop:].T
        square = A[i:stop, i:stop]
        square[...] = np.triu(square, 1) + np.triu(square, 1).T


def factorize(K, alpha):
    """Factor ``K + alpha I``, overwriting K.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric, float64, contiguous; lost.
    alpha : float
        Not negative.

    Returns
    -------
    Factor

    Raises
    ------
    NotPositiveDefinite
        At the pivot that is not positive, or is no more than rounding error.
    """
    A = _fortran(K)
    diagonal = A.diagonal() + alpha
    A.flat[:: len(A) + 1] = diagonal
    L, info = lapack.dpotrf(A, lower=1, clean=0, overwrite_a=1)
    if info:
        raise _breakdown(L, diagonal, info - 1, alpha)
    _check_pivots(L, diagonal, alpha)
    return Factor(L, diagonal)


def solve_mixed(K, alpha, B, max_iter=12):
    """Solve ``(K + alpha I) X = B`` to float64 accuracy with a float32 factor; K stays as it is.

    The float32 factor costs half of a float64 one. It preconditions conjugate gradients on float64 products, which
    need a handful of steps unless the matrix is too ill-conditioned for float32 to see.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric, float64, contiguous.
    alpha : float
        Not negative.
    B : ndarray of shape (n, t)
        Right-hand sides.
    max_iter : int
        Steps after which it is no longer worth it.

    Returns
    -------
    ndarray of shape (n, t) or None
        None where float32 does not carry the problem: then a float64 factor is needed.
    """
    A = _fortran(K)
    diagonal = A.diagonal() + alpha
    with np.errstate(over="ignore"):
        A32 = A.astype(np.float32, order="F")
        A32.flat[:: len(A) + 1] = diagonal
    norm = float(np.sqrt(blas.sdot(A32.ravel(order="K"), A32.ravel(order="K"))))
    if not np.isfinite(norm):
        return None
    L32, info = lapack.spotrf(A32, lower=1, clean=0, overwrite_a=1)
    if info:
        return None

    def precondition(V, columns):
        scale = np.abs(V).max(axis=0)
        scale[scale == 0] = 1  # residuals shrink below what float32 can hold
        return scale * lapack.spotrs(L32, (V / scale).astype(np.float32, order="F"), lower=1)[0].astype(np.float64)

    def apply(V, columns):
        return _symmetric_product(A, A.diagonal(), diagonal, V)

    X = np.zeros_like(B)
    R = B
    size = np.linalg.norm(B, axis=0)
    # The first round finds how large X is, and so what rounding in A X lets a residual reach.
    for _ in range(3):
        target = _EPS * (norm * np.linalg.norm(X, axis=0) + size) if X.any() else 1e-8 * size
        iterate = conjugate_gradient(apply, R, precondition, target=target, max_iter=max_iter, patience=3)
        X = X + iterate.X
        if not np.isfinite(X).all() or np.any(iterate.residual > 1e-4 * size):
            return None
        R = B - apply(X, None)
        if np.all(np.linalg.norm(R, axis=0) <= 4 * _EPS * (norm * np.linalg.norm(X, axis=0) + size)):
            return X
    return None

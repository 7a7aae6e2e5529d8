"""Cholesky factors by tiles, and products with a symmetric matrix.

Place on the way: ``loading`` → **factors** → ``_cholesky`` (compiled).
"""

import numpy as np

from .._threads import one_blas_thread
from .loading import _cholesky, count_threads, empty

__all__ = [
    "cholesky",
    "cholesky_inverse_diagonal",
    "cholesky_solve",
    "coarse",
    "coarse_solve",
    "scaled_part",
    "symmetric_product",
]

_PRODUCT_COLUMNS = 12


def cholesky(A, n_threads=None):
    """Overwrite the lower triangle of A with its Cholesky factor L; what is strictly above stays.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Fortran order, float64 or float32.
    n_threads : int, optional
        Changes nothing in the result.

    Returns
    -------
    int
        0, or the pivot that was not positive, counted from 1.
    """
    with one_blas_thread():
        return _cholesky.factor(A, count_threads(n_threads))


def cholesky_solve(L, B, n_threads=None):
    """``(L Lᵀ)⁻¹ B`` for B of shape (n, p), a new array in Fortran order and L's dtype."""
    B = np.array(B, dtype=L.dtype, order="F")
    if B.size:
        with one_blas_thread():
            _cholesky.solve(L, B, count_threads(n_threads))
    return B


def cholesky_inverse_diagonal(L, n_threads=None):
    """``diag((L Lᵀ)⁻¹)``, of shape (n,)."""
    out = np.empty(len(L), L.dtype)
    with one_blas_thread():
        _cholesky.inverse_diagonal(L, out, count_threads(n_threads))
    return out


def symmetric_product(A, diagonal, V, n_threads=None):
    """``A V`` for the symmetric A of this strict upper triangle and diagonal; Fortran order, A's dtype."""
    V = np.asfortranarray(V, dtype=A.dtype)
    out = np.empty(V.shape, A.dtype, order="F")
    diagonal = np.ascontiguousarray(diagonal, dtype=A.dtype)
    # Partial sums take 16 times the memory of the columns at hand.
    for start in range(0, V.shape[1], _PRODUCT_COLUMNS):
        some = slice(start, start + _PRODUCT_COLUMNS)
        _cholesky.symmetric_product(A, diagonal, V[:, some], out[:, some], count_threads(n_threads))
    return out


def scaled_part(K, rows, d, n_threads=None):
    """The lower triangle of ``diag(d) K[rows, rows] diag(d)``: float32 in Fortran order, undefined above.

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Symmetric, float64, C order.
    rows : ndarray of int of shape (n,)
    d : ndarray of shape (n,)
    n_threads : int, optional
        Changes nothing in the result.

    Returns
    -------
    ndarray of shape (n, n)
    """
    out = empty((len(rows), len(rows)), np.float32, n_threads).T
    d = np.ascontiguousarray(d, dtype=np.float64)
    _cholesky.scaled_part(K, rows.astype(np.int32), d, out, count_threads(n_threads))
    return out


def coarse(L, n_threads=None):
    """A Cholesky factor (n, n), Fortran order, float32, in a quarter of the memory, for `coarse_solve`.

    What is below tiles on the diagonal is rounded to 2⁻¹⁶ of the largest in its column.
    """
    return _cholesky.coarse(L, count_threads(n_threads))


def coarse_solve(factor, b):
    """``(L Lᵀ)⁻¹ b`` for b of shape (n,): float32."""
    x = np.array(b, dtype=np.float32)
    _cholesky.coarse_solve(*factor, x)
    return x

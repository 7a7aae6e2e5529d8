"""Factors of parts of Newton systems, in float32 mostly.

Place on the way: ``held_matrix`` → **newton_parts** → ``newton_coupled``, ``newton_factors`` → ``newton``.
"""

import numpy as np

from .. import _native
from .._arrays import power_of_two, square_part
from .._threads import one_blas_thread
from .held_matrix import each_block

__all__ = ["factor_of_part", "make_each"]

#: Rows times the largest D² k / 2α, k of K's diagonal, up to which numbers of 16 bits carry a factor: none of
#: its numbers is beyond the root of that, so that their rounding in a row is a tenth of the root of 2α.
_COARSE_UP_TO = (0.1 * 2**16) ** 2
#: Rows of a part that inner products of directions are made for at a time.
_STRETCH = 512
_SINGLE = np.dtype(np.float32)


def make_each(make, sizes, threads):
    """Make factors by ``make(index, n_threads)``, index counting them: one thread each, of the last ones all.

    Parameters
    ----------
    make : callable
        Of indices that do not depend on each other.
    sizes : list of int
        Their rows.
    threads : int
        Changes nothing in the result.
    """
    count = len(sizes)
    one_each = count // threads * threads
    work = sum(float(size) ** 3 for size in sizes) / 3
    with one_blas_thread():  # for all of them: setting it in several threads would be a race
        each_block(lambda index, _: make(index, 1), np.arange(one_each + 1), threads, work)
        for index in range(one_each, count):
            make(index, threads)


def factor_of_part(K, rows, d, shift, n_threads, directions=None, dtype=_SINGLE):
    """Factor ``d (K ∘ U Uᵀ) d + shift I`` among some rows, U being 1 without directions.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        float64.
    rows : ndarray of int of shape (m,)
        Some may be there several times.
    d : ndarray of shape (m,)
    shift : float
    n_threads : int
        Changes nothing in the result.
    directions : ndarray of shape (m, C) or None
        U, its rows of norm 1.
    dtype : dtype
        The factor's.

    Returns
    -------
    solve : callable or None
        ``(b, n_threads) -> x`` of the system over `unit`, in `dtype`; None without a factor.
    unit : float
    """
    n, single, eps = len(rows), dtype == _SINGLE, float(np.finfo(dtype).eps)
    diagonal = K[rows, rows] * d**2
    trace = float(diagonal.sum())
    coarse = single and n * float(diagonal.max(initial=0.0)) <= _COARSE_UP_TO * shift
    unit = power_of_two(trace)  # float32 holds no more than 3e38
    d = d / np.sqrt(unit)
    for extra in (1.0, 10.0, 100.0):
        if single:
            A = _native.scaled_part(K, rows, d, n_threads)
        else:
            A = (d[:, None] * square_part(K, rows) * d).T
        if directions is not None:
            _multiply_inner(A.T, directions.astype(dtype))
        A.T.flat[:: n + 1] += dtype.type((shift + extra * eps * trace) / unit)
        if _native.cholesky(A, n_threads) == 0:
            return _solver(A, coarse, n_threads), unit
    return None, unit


@np.errstate(all="ignore")  # in the corners below the diagonal, which nothing reads, A may be anything
def _multiply_inner(A, U):
    """Multiply the upper triangle of A by ``U Uᵀ``."""
    for start in range(0, len(A), _STRETCH):
        stop = start + _STRETCH
        A[start:stop, start:] *= U[start:stop] @ U[start:].T


def _solver(L, coarse, n_threads):
    """``(b, n_threads) -> (L Lᵀ)⁻¹ b``; coarse keeps L in 16 bits, half of what each call has to read."""
    if coarse:
        factor = _native.coarse(L, n_threads)
        return lambda b, _: _native.coarse_solve(factor, b)
    return lambda b, n_threads: _native.cholesky_solve(L, b[:, None], n_threads)[:, 0]

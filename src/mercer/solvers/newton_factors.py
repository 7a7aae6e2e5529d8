"""Factors of the Newton systems themselves, for α where a low-rank preconditioner leaves too much.

Place on the way: ``newton_system`` → **newton_factors** → ``newton``.
"""

from functools import partial

import numpy as np

from .. import _native
from .._threads import n_threads as count_threads
from .._threads import one_blas_thread
from .held_matrix import WHOLE_UP_TO, each_block
from .newton_system import (
    LEADING,
    Following,
    Preconditioner,
    columns_of,
    left_by,
    power_of_two,
    squared_norms,
)

__all__ = ["Factors", "preconditioner"]

#: Of ``tr(D K D) / 2α``, what rows may have together that are left out of a factor.
_LEFT_OUT = 0.3
#: A factor's multiply-adds over those of a product that takes as long, with the factor's part in it.
_FASTER = 80.0
#: Numbers that factors may keep, over those in K.
_ROOM = 4.0
#: Rows times the largest D² k / 2α, k of K's diagonal, up to which numbers of 16 bits carry a factor: none of
#: its numbers is beyond the root of that, so that their rounding in a row is a tenth of the root of 2α.
_COARSE_UP_TO = (0.1 * 2**16) ** 2
_EPS = float(np.finfo(np.float32).eps)


def preconditioner(low_rank, curvature, alphas, matrix=None, n_threads=None):
    """What is to precondition systems: a low-rank matrix, or factors where that would have to be in float64.

    Parameters
    ----------
    low_rank : LowRank
        Of K.
    curvature : Curvature
    alphas : ndarray of shape (q,)
    matrix : ndarray of shape (n, n) or None
        K, float64.
    n_threads : int or None
        Changes nothing in the result.

    Returns
    -------
    Preconditioner or Factors
    """
    large = matrix is not None and len(matrix) > WHOLE_UP_TO
    if large and not Preconditioner.fits_single(low_rank, curvature, alphas):
        rows = _bending_rows(matrix, curvature, alphas)
        if sum(float(len(each)) ** 2 for each in rows) <= _ROOM * matrix.size:
            factors = Factors(low_rank, curvature, alphas, matrix, rows, n_threads)
            if factors.made:
                return factors
    return Preconditioner(low_rank, curvature, alphas, n_threads)


def _bending_rows(K, curvature, alphas):
    """For each column the rows without which ``D K D`` would lose more than a part of 2α."""
    D = curvature.diagonal
    n, _, n_outputs = D.shape
    strength = np.square(D).reshape(n, -1) * K.diagonal()[:, None] / np.repeat(2 * alphas, n_outputs)
    order = np.argsort(strength, axis=0, kind="stable")
    kept = np.cumsum(np.take_along_axis(strength, order, axis=0), axis=0) > _LEFT_OUT
    return [np.sort(order[kept[:, column], column]) for column in range(strength.shape[1])]


class Factors(Following):
    """``(D K D + 2α I)⁻¹`` by problem and output, by float32 factors over the rows that bend.

    Of the other rows no more than the diagonal is used.

    Parameters
    ----------
    low_rank : LowRank
        Tells norms.
    curvature : Curvature
        Gives D.
    alphas : ndarray of shape (q,)
    K : ndarray of shape (n, n)
        float64.
    rows : list of ndarray of int
        For each problem and output the rows of its factor.
    n_threads : int or None
        Changes nothing in the result.

    Attributes
    ----------
    dtype : dtype
        float32.
    made : bool
        Whether all factors could be.
    cost : float
        What making them takes, in products with K.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, low_rank, curvature, alphas, K, rows, n_threads=None):
        super().__init__(curvature, alphas, K.diagonal())
        n = len(K)
        self.threads = count_threads(n_threads)
        self.F = low_rank.F[:LEADING].astype(np.float32)
        self.left = left_by(low_rank, len(self.F))
        self.cost = sum(float(len(each)) ** 3 for each in rows) / (len(rows) * _FASTER * n**2)
        self.parts = [None] * len(rows)

        def make(column, n_threads):
            mine = rows[column]
            self.parts[column] = mine, *_factor(K, mine, self.D[mine, column], self.shift[column], n_threads)

        one_each = len(rows) // self.threads * self.threads
        with one_blas_thread():  # for all of them: setting it in several threads would be a race
            each_block(lambda column, _: make(column, 1), np.arange(one_each + 1), self.threads)
            for column in range(one_each, len(rows)):
                make(column, self.threads)
        self.made = all(solve is not None for _, solve, _ in self.parts)

    def take(self, going):
        """The same for some of the problems."""
        other = super().take(going)
        other.parts = [self.parts[column] for column in columns_of(np.flatnonzero(going), self.n_outputs)]
        return other

    def __call__(self, R, problems):
        """Apply to (n, len(problems), C); and what D R has in K's norm, squared, by problem."""
        n, q, n_outputs = R.shape
        columns = columns_of(problems, n_outputs)
        V = R.reshape(n, -1)
        scale = power_of_two(np.abs(V).max(axis=0))  # residuals shrink below what float32 can hold
        V = V / scale
        size = squared_norms(self.F, self.left, (self.D[:, columns] * V).astype(np.float32)) * scale**2
        out, rows_scale = V / self.rest[:, columns], self.scale[:, columns]
        V = V / rows_scale
        inner = 1 if len(columns) > 1 else self.threads

        def solve(k, _):
            rows, solve_part, unit = self.parts[columns[k]]
            out[rows, k] = solve_part(V[rows, k], inner) / (unit * rows_scale[rows, k])

        with one_blas_thread():
            each_block(solve, np.arange(len(columns) + 1), self.threads)
        return (out * scale).reshape(R.shape), size.reshape(q, n_outputs).sum(axis=1)


def _factor(K, rows, d, shift, n_threads):
    """How to solve ``(d K d + shift I) / unit`` among some rows, None without a factor; and the unit."""
    n = len(rows)
    diagonal = K[rows, rows] * d**2
    trace = float(diagonal.sum())
    coarse = n * float(diagonal.max(initial=0.0)) <= _COARSE_UP_TO * shift
    unit = power_of_two(trace)  # float32 holds no more than 3e38
    d = d / np.sqrt(unit)
    for extra in (1.0, 10.0, 100.0):
        A = _native.scaled_part(K, rows, d, n_threads)
        A.T.flat[:: n + 1] += np.float32((shift + extra * _EPS * trace) / unit)
        if _native.cholesky(A, n_threads) == 0:
            return _solver(A, coarse, n_threads), unit
    return None, unit


def _solver(L, coarse, n_threads):
    """``(b, n_threads) -> (L Lᵀ)⁻¹ b``; coarse keeps L in 16 bits, half of what each call has to read."""
    if coarse:
        return partial(_native.coarse_solve, _native.coarse(L, n_threads))
    return lambda b, n_threads: _native.cholesky_solve(L, b[:, None], n_threads)[:, 0]

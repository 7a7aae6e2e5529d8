"""Factors of the Newton systems themselves, for α where a low-rank preconditioner leaves too much.

Place on the way: ``newton_coupled`` → **newton_factors** → ``newton``.
"""

import numpy as np

from .._arrays import column_scales
from .._memory import available_memory
from .._threads import n_threads as count_threads
from .._threads import one_blas_thread
from .held_matrix import WHOLE_UP_TO, each_block
from .newton_coupled import CoupledFactors, Directions
from .newton_coupled_rank import CoupledRank, rank_that_pays
from .newton_parts import factor_of_part, make_each
from .newton_system import (
    Following,
    Norms,
    Preconditioner,
    columns_of,
)

__all__ = ["Factors", "preconditioner"]

#: Of ``tr(D K D) / 2α``, what rows may have together that are left out of a factor.
_LEFT_OUT = 0.3
#: Up to this trace of ``D K D / 2α`` float32 carries the factors of few rows; and up to so much of n K is of
#: a low rank, whose factor is the cheaper one.
_SINGLE_UP_TO, _LOW = 1e6, 0.5
_SINGLE = np.dtype(np.float32)
#: A factor's multiply-adds over those of a product that takes as long, with the factor's part in it.
_FASTER = 80.0
#: Numbers, of 16 bits mostly and at most 32, that factors may keep, over those in K.
_ROOM = 12.0
#: Beside few rows they may keep so many; and up to so many rows times outputs a system is taken whole.
_LEAST_ROOM, _WHOLE_SYSTEM = 1.2e7, 2000
#: What an α's steps take with factors of several outputs, in products with K: 55 steps (satimage, 2000 and
#: 4000 rows, α from 0.004 to 1e-4), dearer than others by half.
_FACTORS_TAKE = 80.0


def preconditioner(low_rank, curvature, alphas, matrix=None, share=1, n_threads=None, hard=False):
    """What is to precondition systems: a low-rank matrix, or factors where that would have to be in float64.

    Parameters
    ----------
    low_rank : LowRank
        Of K.
    curvature : Curvature
    alphas : ndarray of shape (q,)
    matrix : ndarray of shape (n, n) or None
        K, float64.
    share : int
        So many of these share the memory that there is for one.
    n_threads : int or None
        Changes nothing in the result.
    hard : bool
        Whether systems took many steps: then several outputs' coupling is taken in for few rows, too.

    Returns
    -------
    Preconditioner, Factors, CoupledFactors or CoupledRank
    """
    if matrix is not None:
        if len(matrix) <= WHOLE_UP_TO and not (hard and curvature.vector):
            pose = _of_few
        else:
            pose = _coupled if curvature.vector else _one_by_one
        factors = pose(low_rank, curvature, alphas, matrix, share, n_threads)
        if factors is not None and factors.made:
            return factors
    return Preconditioner(low_rank, curvature, alphas, n_threads)


def _coupled(low_rank, curvature, alphas, K, share, n_threads):
    """Of several outputs: factors over their directions, or over a low rank, whichever is the cheaper."""
    n, q, n_outputs = curvature.shape
    if share * q * n_outputs**2 * n > max(n**2, WHOLE_UP_TO**2):
        return None  # the Hessians would take more than K
    rank, making, steps = rank_that_pays(low_rank, curvature, alphas)
    whole = len(low_rank.F)
    if n <= WHOLE_UP_TO and whole * n_outputs <= _WHOLE_SYSTEM:
        rank, making, steps = whole, 0.0, 0.0
    if not _have_room([rank * n_outputs] * q, K, share, element=8):
        return None
    if making + steps > _FACTORS_TAKE:
        directions = Directions(curvature, alphas, K.diagonal())
        sizes = map(len, directions.places)
        if directions.cost + _FACTORS_TAKE <= making + steps and _have_room(sizes, K, share):
            return CoupledFactors(low_rank, curvature, alphas, K, directions, n_threads)
    return CoupledRank(low_rank, curvature, alphas, K.diagonal(), rank, making, n_threads)


def _of_few(low_rank, curvature, alphas, K, _, n_threads):
    """Factors of few rows, in float64 where float32 does not carry them, unless K is of a low rank."""
    if len(low_rank.F) <= _LOW * len(K):
        return None
    rows = _bending_rows(K, curvature, alphas)
    single = _strength(K, curvature, alphas).sum(axis=0).max() <= _SINGLE_UP_TO
    dtype = _SINGLE if single else np.dtype(np.float64)
    return Factors(low_rank, curvature, alphas, K, rows, n_threads, dtype)


def _one_by_one(low_rank, curvature, alphas, K, share, n_threads):
    """Factors of problems of one output each where a low rank would have to be in float64."""
    if Preconditioner.fits_single(low_rank, curvature, alphas):
        return None
    rows = _bending_rows(K, curvature, alphas)
    if not _have_room(map(len, rows), K, share):
        return None
    return Factors(low_rank, curvature, alphas, K, rows, n_threads)


def _have_room(sizes, K, share, element=4):
    """Whether so many times factors of matrices of such sizes may be kept beside K."""
    numbers = share * sum(float(size) ** 2 for size in sizes)
    room = max(_ROOM * K.size, _LEAST_ROOM if len(K) <= WHOLE_UP_TO else 0.0)
    return numbers <= room and element * numbers <= 0.5 * available_memory()


def _bending_rows(K, curvature, alphas):
    """For each column the rows without which ``D K D`` would lose more than a part of 2α."""
    strength = _strength(K, curvature, alphas)
    order = np.argsort(strength, axis=0, kind="stable")
    kept = np.cumsum(np.take_along_axis(strength, order, axis=0), axis=0) > _LEFT_OUT
    return [np.sort(order[kept[:, column], column]) for column in range(strength.shape[1])]


def _strength(K, curvature, alphas):
    """The diagonal of ``D K D / 2α`` for each column, (n, q · C)."""
    D = curvature.diagonal
    n, _, n_outputs = D.shape
    return np.square(D).reshape(n, -1) * K.diagonal()[:, None] / np.repeat(2 * alphas, n_outputs)


class Factors(Following):
    """``(D K D + 2α I)⁻¹`` by problem and output, by factors over the rows that bend.

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
    dtype : dtype
        Of the factors.

    Attributes
    ----------
    made : bool
        Whether all factors could be.
    cost : float
        What making them takes, in products with K.
    """

    def __init__(self, low_rank, curvature, alphas, K, rows, n_threads=None, dtype=_SINGLE):
        super().__init__(curvature, alphas, K.diagonal())
        n, self.dtype = len(K), dtype
        self.threads = count_threads(n_threads)
        self.norms = Norms(low_rank)
        self.cost = sum(float(len(each)) ** 3 for each in rows) / (len(rows) * _FASTER * n**2)
        self.parts = [None] * len(rows)

        def make(column, n_threads):
            mine = rows[column]
            factor = factor_of_part(K, mine, self.D[mine, column], self.shift[column], n_threads, dtype=dtype)
            self.parts[column] = mine, *factor

        make_each(make, list(map(len, rows)), self.threads)
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
        scale = column_scales(V)  # residuals shrink below what float32 can hold
        V = V / scale
        size = self.norms.squares(self.D[:, columns] * V) * scale**2
        out, rows_scale = V / self.rest[:, columns], self.scale[:, columns]
        V = V / rows_scale
        inner = 1 if len(columns) > 1 else self.threads

        def solve(k, _):
            rows, solve_part, unit = self.parts[columns[k]]
            out[rows, k] = solve_part(V[rows, k], inner) / (unit * rows_scale[rows, k])

        work = 4.0 * sum(len(self.parts[column][0]) ** 2 for column in columns)
        with one_blas_thread():
            each_block(solve, np.arange(len(columns) + 1), self.threads, work)
        return (out * scale).reshape(R.shape), size.reshape(q, n_outputs).sum(axis=1)

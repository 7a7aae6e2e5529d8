"""Randomly pivoted Cholesky, and the preconditioner that it makes.

A low-rank factor ``F Fᵀ ≈ K`` is grown block by block from rows of K alone. Candidates are drawn in
proportion to what is left of the diagonal; a rejection step makes a block as good as pivots drawn one after
the other.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import blas, lapack

from .._arrays import flush_small, power_of_two, row_strips

__all__ = ["LowRank", "Woodbury", "pivoted_cholesky"]

_BLOCK = 128
#: Of F's columns, as `row_strips` have it: they take work, too.
_LENGTH = 512
#: Of K's trace, what rounding leaves.
_COMPLETE = 1e-14
#: Ranks between which a factor along its principal axes may be cut.
_FINE = 20
#: Multiply-adds that one entry of a lazy float32 Gram product counts for, against those of matrix products.
ENTRY_COST = 16
#: Up to this trace over alpha the factor is kept in float32: the preconditioner's smallest values, alpha over
#: the largest eigenvalue of K, then still stand out of rounding.
_SINGLE_UP_TO = 1e6


@dataclass
class LowRank:
    """``K ≈ Fᵀ F`` with F of shape (r, n).

    Attributes
    ----------
    F : ndarray of shape (r, n)
    pivots : ndarray of shape (r,)
        The rows of K that span it.
    trace : float
        What is left of K's trace.
    remainder : ndarray of shape (n,) or None
        What is left of K's diagonal, where that is known.
    """

    F: np.ndarray
    pivots: np.ndarray
    trace: float
    history: list = field(default_factory=list)  # (rank, trace left) after each block
    remainder: np.ndarray | None = None
    _left: dict = field(default_factory=dict, init=False, repr=False, compare=False)  # by rank

    @cached_property
    def complete(self):
        """Whether no more is left of K than rounding."""
        return self.trace <= _COMPLETE * float(self._squares.sum())

    @cached_property
    def unit(self):
        """A power of two near the root of K's largest diagonal entry."""
        return float(power_of_two(np.sqrt(self.diagonal.max(initial=0.0))))

    @cached_property
    def single(self):
        """F over `unit`, in float32: K may be beyond its range."""
        return flush_small((self.F / self.unit).astype(np.float32))

    @property
    def diagonal(self):
        """K's, but for rounding."""
        return self.left(0)

    def left(self, rank):
        """What the first rows of F, so many, leave of K's diagonal, but for rounding: an array to be read."""
        if rank not in self._left:
            rest, n = self.F[rank:], self.F.shape[1]
            more = np.full(n, self.trace / n) if self.remainder is None else self.remainder
            self._left[rank] = more + np.einsum("ij,ij->j", rest, rest, dtype=np.float64)
        return self._left[rank]

    def mean_left(self, rank):
        """The mean of that, rounding and all."""
        return (self.trace + float(self._squares[rank:].sum())) / self.F.shape[1]

    @cached_property
    def _squares(self):
        """The squared norms of F's rows."""
        return np.einsum("ij,ij->i", self.F, self.F, dtype=np.float64)

    def rotated(self):
        """The same along its principal axes, the largest first: of all parts of a rank they leave least.

        Pivots leave as much at about twice the rank (satimage and spam, n = 4000).

        Returns
        -------
        LowRank
        """
        values, vectors = np.linalg.eigh(self.F @ self.F.T)
        left = self.trace + np.concatenate([np.cumsum(np.maximum(values, 0.0))[::-1], [0.0]])
        ranks = range(_FINE, len(values), _FINE)
        history = [(rank, float(left[rank])) for rank in ranks]
        F = np.ascontiguousarray(vectors[:, ::-1].T) @ self.F
        return LowRank(F, self.pivots, self.trace, history, self.remainder)


def _accept(H, left, rng):
    """The indices of candidates that sequential pivoting takes, each against what those before it leave."""
    H = H.copy()
    start = np.maximum(left, 0)
    chosen = []
    for i in range(len(H)):
        # Candidate i was proposed with weight start[i]; it survives with what is left of it over that.
        if H[i, i] > 0 and rng.random() * start[i] < H[i, i]:
            column = H[i + 1 :, i] / np.sqrt(H[i, i])
            H[i + 1 :, i + 1 :] -= column[:, None] * column
            chosen.append(i)
    return np.array(chosen, dtype=np.intp)


def _enough(history, n, alpha):
    """Whether a larger rank would cost more than the steps of conjugate gradients that it saves.

    Steps fall like the square root of the trace left over alpha (a factor 0.3 was measured on kin40k for
    alpha from 1 to 1e-3); a rank r costs about 1.5 n r² multiply-adds (F and F Fᵀ), a step ENTRY_COST n².
    """
    rank, left = history[-1]
    steps = 0.3 * np.sqrt(left / alpha) if alpha > 0 else np.inf
    if steps < 3:
        return True
    earlier = next(((r, t) for r, t in reversed(history) if r <= 0.6 * rank), None)
    if earlier is None or not np.isfinite(steps):
        return False
    slope = 0.5 * np.log(max(earlier[1], left * 1.0000001) / left) / np.log(rank / earlier[0])
    return 3 * rank**2 > ENTRY_COST * n * steps * slope


def pivoted_cholesky(diagonal, rows, max_rank, *, rng, alpha=0.0, rtol=1e-12, block=_BLOCK):
    """Grow a low-rank factor of a positive semidefinite matrix.

    Parameters
    ----------
    diagonal : ndarray of shape (n,)
        Of K.
    rows : callable
        ``rows(index) -> K[index]``, float64 of shape (len(index), n).
    max_rank : int
        Where to stop at the latest.
    rng : RandomState or Generator
        Draws the pivots.
    alpha : float
        What will be added to the diagonal: with it the rank stops where more would not pay; 0 uses
        `max_rank`.
    rtol : float
        Stop when so little of the trace is left.
    block : int
        Candidates a round.

    Returns
    -------
    LowRank

    References
    ----------
    Chen, Epperly, Tropp & Webber, "Randomly pivoted Cholesky" (2023); Epperly, Tropp & Webber, "Embrace
    rejection: kernel matrix approximation by accelerated randomly pivoted Cholesky" (2024).
    """
    n = len(diagonal)
    left = np.maximum(np.asarray(diagonal, dtype=np.float64), 0).copy()
    total = left.sum()
    single = alpha > 0 and total <= _SINGLE_UP_TO * alpha
    F = np.empty((max_rank, n), np.float32 if single else np.float64)  # what is not reached is never touched
    room = np.empty((min(block, n), n))
    trsm, unit = (blas.strsm if single else blas.dtrsm), float(power_of_two(np.sqrt(left.max(initial=0.0))))
    pivots, rank, history = [], 0, []
    while rank < max_rank and left.sum() > rtol * total:
        cumulative = np.cumsum(left)
        draws = rng.random(size=min(block, n)) * cumulative[-1]
        index = np.minimum(np.searchsorted(cumulative, draws, side="right"), n - 1)
        index = index[np.sort(np.unique(index, return_index=True)[1])]  # in the order drawn, each once
        part = F[:rank, index]
        block_rows = room[: len(index)]
        for some in row_strips(len(index), n):
            block_rows[some] = rows(index[some])
        H = block_rows[:, index] - part.T.astype(np.float64) @ part
        chosen = _accept(0.5 * (H + H.T), left[index], rng)[: max_rank - rank]
        if not chosen.size:
            if left[index].max() <= rtol * total:
                break
            left[index] = np.maximum(np.diag(H), 0)  # rounding: the diagonal had drifted from the truth
            continue
        L, info = lapack.dpotrf(np.asfortranarray(H[np.ix_(chosen, chosen)]), lower=1, clean=1)
        if info:
            left[index[chosen[info - 1]]] = 0.0  # dependent within rounding on those before it
            chosen = chosen[: info - 1]
            L = L[: info - 1, : info - 1]
            if not chosen.size:
                continue
        L, part = flush_small(L.astype(F.dtype), unit), np.ascontiguousarray(-part[:, chosen].T)
        added = F[rank : rank + len(chosen)]
        for some in row_strips(len(chosen), n):
            added[some] = block_rows[chosen[some]]
        for some in row_strips(n, _LENGTH):
            new = part @ F[:rank, some]
            new += added[:, some]
            # new <- L⁻¹ new where it is: its transpose is in Fortran order.
            trsm(1.0, L, new.T, side=1, lower=1, trans_a=1, overwrite_b=1)
            added[:, some] = flush_small(new, unit)
            left[some] -= np.einsum("ij,ij->j", new, new)
        np.maximum(left, 0, out=left)
        left[index[chosen]] = 0.0
        pivots.extend(index[chosen])
        rank += len(chosen)
        history.append((rank, float(left.sum())))
        if alpha > 0 and _enough(history, n, alpha):
            break
    trace = float(left.sum())
    left[left <= rtol * total] = 0.0  # rounding
    return LowRank(F[:rank], np.array(pivots, dtype=np.intp), trace, history, left)


class Woodbury:
    """``(Fᵀ F + alpha I)⁻¹`` for one alpha per column.

    Parameters
    ----------
    low_rank : LowRank
    alphas : ndarray of shape (t,)
        One per right-hand side. Where one is 0, what is left of the trace takes its place; one below the
        rounding of K counts as that.
    """

    def __init__(self, low_rank, alphas):
        F = low_rank.F
        self.F, n = F, F.shape[1]
        inner = np.zeros((len(F), len(F)))
        for some in row_strips(n, _LENGTH):
            inner += F[:, some] @ F[:, some].T
        scale = float(np.trace(inner))
        rounding = np.finfo(F.dtype).eps * scale
        least = max(low_rank.trace / n, rounding) or 1.0
        alphas = np.where(alphas > 0, np.maximum(alphas, rounding), least)
        self.values, self.which = np.unique(alphas, return_inverse=True)
        self.factors = []
        for value in self.values:
            A = np.array(inner, order="F")
            # Rounding in F Fᵀ may exceed a tiny alpha; a slightly larger one is as good a preconditioner.
            for extra in (0.0, 1e-14, 1e-12, 1e-9, 1e-6):
                A.flat[:: len(A) + 1] = inner.diagonal() + value + extra * scale
                L, info = lapack.dpotrf(A, lower=1, clean=0)
                if info == 0:
                    break
            self.factors.append(L)

    def __call__(self, V, columns):
        """Apply to the right-hand sides of these columns."""
        F, out = self.F, np.empty_like(V)
        scale = np.abs(V).max(axis=0) if F.dtype == np.float32 else np.ones(V.shape[1])
        scale[scale == 0] = 1.0  # residuals shrink below what float32 can hold
        inner = (F @ (V / scale).astype(F.dtype, copy=False)).astype(np.float64)
        which = self.which[columns]
        for k in np.unique(which):
            mine = which == k
            solved = lapack.dpotrs(self.factors[k], inner[:, mine], lower=1)[0] if len(F) else inner[:, mine]
            removed = F.T @ solved.astype(F.dtype, copy=False)
            out[:, mine] = (V[:, mine] - scale[mine] * removed) / self.values[k]
        return out

"""A kernel matrix in memory: products with it over fixed blocks of rows, exact and cheap ones.

Place on the way: ``gram`` → **held_matrix** → ``estimators``, ``model_selection``.
"""

import copy
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.linalg import lapack

from .. import _native
from .._arrays import flush_small, power_of_two
from .._threads import in_threads
from .._threads import n_threads as count_threads
from .pivoted_cholesky import LowRank, pivoted_cholesky

__all__ = ["WHOLE_UP_TO", "HeldMatrix", "each_block", "low_rank_of", "preconditioner_rank"]

_BLOCKS = 8
#: Up to so many rows the preconditioner is the whole of K.
WHOLE_UP_TO = 500
#: Up to so many columns a product that reads half of the matrix is the faster one (n = 4000, two Zen 3 cores
#: that others use, five columns: 6.6 ms against 16 in float32, 23 against 40 in float64).
_HALF_UP_TO = 12
#: Columns of which products with more than that are done at a time.
_WHOLE = 16
#: From so many rows on a product in float32 is the cheaper one.
_SINGLE_FROM = 1000
#: Rank that is taken out before what is left of K becomes float32, for so many rows at a time.
_DEFLATION, _STRIP = 100, 64


def each_block(function, bounds, threads, work=np.inf):
    """Call ``function(start, stop)`` for stretches between fixed bounds, on some threads.

    Parameters
    ----------
    function : callable
        Of stretches that do not depend on each other.
    bounds : ndarray of int
    threads, work
        As `in_threads` has them.
    """
    in_threads([partial(function, start, stop) for start, stop in pairwise(bounds)], threads, work)


class HeldMatrix:
    """Products with a symmetric matrix that is in memory.

    The cheap product is that of ``Fᵀ F`` in float64 and of what it leaves of K in float32: its rounding is
    that of the remainder, not of K's largest eigenvalues.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        float64, C order; kept as it is.
    low_rank : LowRank or None
        Of K, for the cheap product.
    n_threads : int or None
        Changes nothing in the results.
    """

    def __init__(self, K, low_rank=None, n_threads=None):
        n = len(K)
        self.K, self.threads = K, min(count_threads(n_threads), _BLOCKS)
        self._bounds = np.linspace(0, n, _BLOCKS + 1).astype(np.intp) if n >= 500 else np.array([0, n])
        self._diagonal = K.diagonal().copy()
        self._F = self._remainder = None
        if low_rank is not None and n >= _SINGLE_FROM:
            self._deflate(low_rank)

    def _deflate(self, low_rank):
        F = np.asarray(low_rank.F[:_DEFLATION], dtype=np.float64)
        remainder = _native.empty(self.K.shape, np.float32, self.threads)
        bounds = np.append(np.arange(0, len(F.T), _STRIP), len(F.T))
        finite = np.ones(len(F.T), bool)

        def fill(start, stop):
            spanned = F[:, start:stop].T @ F
            with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 there is no remainder
                np.subtract(self.K[start:stop], spanned, out=remainder[start:stop], casting="same_kind")
                flush_small(remainder[start:stop], low_rank.unit**2)
            finite[start:stop] = np.isfinite(remainder[start:stop]).all(axis=1)

        each_block(fill, bounds, self.threads, float(remainder.size) * len(F))
        if finite.all():
            self._F, self._remainder, self._remainders = F, remainder, remainder.diagonal().copy()

    def on(self, n_threads):
        """The same on another number of threads."""
        other = copy.copy(self)
        other.threads = min(count_threads(n_threads), _BLOCKS)
        return other

    def _multiply(self, A, V, out):
        """Put A V into out, by blocks of rows."""
        each_block(
            lambda start, stop: np.matmul(A[start:stop], V, out=out[start:stop]),
            self._bounds,
            self.threads,
            float(A.size) * V.shape[1],
        )
        return out

    def exact(self, V):
        """``K @ V`` in float64.

        Parameters
        ----------
        V : ndarray of shape (n,) or (n, k)

        Returns
        -------
        ndarray like V
        """
        if V.ndim == 1:
            return self.exact(V[:, None])[:, 0]
        if V.shape[1] <= _HALF_UP_TO:
            return _native.symmetric_product(self.K, self._diagonal, V, self.threads)
        # Column by column (4000 rows, AVX-512, one thread: 30 columns 25 ms, row by row 38).
        return self._multiply(self.K, np.asfortranarray(V), np.empty(V.shape, order="F"))

    @property
    def single(self):
        """The cheap ``V -> K @ V``, or None where there is none."""
        return None if self._remainder is None else self._cheap

    def _cheap(self, V):
        scale = np.abs(V).max(axis=0)
        scale[~(scale > 0)] = 1.0  # directions shrink below what float32 can hold
        W = V / scale
        rest, k = self._remainder, W.shape[1]
        if k <= _HALF_UP_TO:
            of_rest = _native.symmetric_product(rest, self._remainders, W, self.threads)
        else:
            # Filled up with 0: whole vectors take less time (4000 rows, AVX-512: 32 columns 9.7 ms, 30 13.1).
            W32 = np.zeros((len(W), -(-k // _WHOLE) * _WHOLE), np.float32)
            W32[:, :k] = W
            of_rest = self._multiply(rest, W32, np.empty_like(W32))
        out = ((self._F @ W).T @ self._F).T
        out += of_rest[:, :k]
        out *= scale
        return out


# ---------------------------------------------------------------- what preconditions it


def preconditioner_rank(n, budget=np.inf):
    """The rank of a low-rank factor that costs of n rows are preconditioned by, at most.

    Parameters
    ----------
    n : int
    budget : float
        Bytes, of which it may take half.

    Returns
    -------
    int
    """
    return int(min(n, max(WHOLE_UP_TO, min(n // 4, 1000, budget / (16 * n)))))


def low_rank_of(K, rng):
    """``K ≈ Fᵀ F``: of few rows by Cholesky's factorisation with pivots, else by random ones.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Positive semidefinite, float64; kept as it is.
    rng : RandomState or Generator
        Draws the pivots.

    Returns
    -------
    LowRank
    """
    if len(K) > WHOLE_UP_TO:
        rank = preconditioner_rank(len(K))
        return pivoted_cholesky(K.diagonal().copy(), lambda index: K[index], rank, rng=rng)
    K = flush_small(K.copy(), float(power_of_two(K.diagonal().max(initial=0.0))))
    L, pivots, rank, _ = lapack.dpstrf(K, lower=1)
    pivots = pivots - 1
    F = np.zeros((rank, len(K)))
    F[:, pivots] = np.tril(L)[:, :rank].T
    return LowRank(F, pivots[:rank], 0.0)

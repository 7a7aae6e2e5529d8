"""A kernel matrix in memory: products with it over fixed blocks of rows, exact and cheap ones.

Place on the way: ``gram`` → **held_matrix** → ``estimators``, ``model_selection``.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .._threads import n_threads as count_threads

__all__ = ["HeldMatrix"]

_BLOCKS = 8
#: From so many rows on a product in float32 is the cheaper one.
_SINGLE_FROM = 1000
#: Rank that is taken out before what is left of K becomes float32.
_DEFLATION = 300


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
        self._F = self._remainder = None
        if low_rank is not None and n >= _SINGLE_FROM:
            self._deflate(low_rank)

    def _deflate(self, low_rank):
        F = np.asarray(low_rank.F[:_DEFLATION], dtype=np.float64)
        remainder = np.empty(self.K.shape, np.float32)

        def fill(start, stop):
            remainder[start:stop] = self.K[start:stop] - F[:, start:stop].T @ F

        self._each_block(fill)
        if np.isfinite(remainder).all():
            self._F, self._remainder = F, remainder

    def _each_block(self, function):
        blocks = list(zip(self._bounds[:-1], self._bounds[1:], strict=True))
        if self.threads == 1 or len(blocks) == 1:
            for start, stop in blocks:
                function(start, stop)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            for done in [pool.submit(function, *block) for block in blocks]:
                done.result()

    def _product(self, A, V):
        V = np.ascontiguousarray(V, dtype=A.dtype)
        out = np.empty((len(A), V.shape[1]), A.dtype)
        self._each_block(lambda start, stop: np.matmul(A[start:stop], V, out=out[start:stop]))
        return out

    def exact(self, V):
        """``K @ V`` in float64.

        Parameters
        ----------
        V : ndarray of shape (n, k)

        Returns
        -------
        ndarray of shape (n, k)
        """
        return self._product(self.K, V)

    @property
    def single(self):
        """The cheap ``V -> K @ V``, or None where there is none."""
        return None if self._remainder is None else self._cheap

    def _cheap(self, V):
        scale = np.abs(V).max(axis=0)
        scale[~(scale > 0)] = 1.0  # directions shrink below what float32 can hold
        W = V / scale
        out = self._product(self._remainder, W).astype(np.float64)
        out += self._F.T @ (self._F @ W)
        return out * scale

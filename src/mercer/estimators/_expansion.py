"""Kernel expansions at new samples: Σᵢ vᵢ k(x, xᵢ), by groups of the terms.

Place on the way: ``gram`` → **expansion** → estimators that predict by a few coefficients for each class.
"""

import numpy as np
from scipy import sparse

from .. import _native
from ..gram import Gram
from ..kernels.prepared import cast_side, centres, n_rows, sides, single_side, take_rows
from ..kernels.views import View

__all__ = ["Expansion"]

# Samples by which float32 values are judged.
_PROBE = 32


class Expansion:
    """Σᵢ vᵢ k(x, xᵢ) of groups of terms that are adjacent, for coefficients that come with each call.

    Parameters
    ----------
    kernel : Kernel
    samples : ndarray, csr_array or sequence
        The xᵢ, as the kernel's check returns them.
    counts : sequence of int
        Terms of each group.

    Notes
    -----
    `single` are values by float32 tiles, with features centred before they are rounded: two to four times as
    fast, and right to about `rounding` times Σ|vᵢ|.
    """

    def __init__(self, kernel, samples, counts):
        self.kernel, self.samples = kernel, samples
        self.counts = [int(count) for count in counts]
        self.n_terms = sum(self.counts)
        width = samples.shape[1] if hasattr(samples, "shape") else None
        self.program = kernel._compiled(width)
        self._sides, self._rounding = {}, None

    def __getstate__(self):
        """What is only packed from the samples is made anew."""
        return {**self.__dict__, "_sides": {}}

    @property
    def has_single(self):
        """Whether there is a float32 way: a compiled program, each side's features by itself."""
        if self.n_terms == 0 or self.program.block_leaves:
            return False
        return all(type(leaf.view).sides is View.sides for leaf in self.program.leaves)

    # ---------------------------------------------------------------- values

    def __call__(self, X, coefficients, n_threads=None):
        """The sums, float64 of shape (n_groups, m, p), from kernel values in the samples' precision.

        Parameters
        ----------
        X : ndarray, csr_array or sequence of m
        coefficients : ndarray of shape (p, n_terms)
        n_threads : int or None

        Returns
        -------
        ndarray
        """
        V = np.ascontiguousarray(coefficients.T)
        out = np.zeros((len(self.counts), n_rows(X), V.shape[1]))
        if not len(V) or not out.size:
            return out
        if self.has_single:
            X, dtype = self._stored(X), self._common(X)
            side, bounds, places = self._right(dtype)
            left = cast_side(self._left(X), dtype)
            V = _placed(V, places, bounds)
            return _native.matmul_parts(self.program, left, side, V, bounds, None, n_threads)
        ends = np.cumsum(self.counts)
        for group, (start, end) in enumerate(zip(ends - self.counts, ends, strict=True)):
            if end > start:
                Z = take_rows(self.samples, slice(start, end))
                out[group] = Gram(self.kernel, X, Z, n_threads=n_threads) @ V[start:end]
        return out

    def single(self, X, coefficients, n_threads=None):
        """The same in float32; None where an entry leaves its range."""
        side, bounds, places = self._right(np.dtype(np.float32), rounded=True)
        with np.errstate(over="ignore", invalid="ignore"):
            left = self._rounded(self._left(self._stored(X)))
            V = _placed(np.ascontiguousarray(coefficients.T, dtype=np.float32), places, bounds)
            out = _native.matmul_parts(self.program, left, side, V, bounds, 0.0, n_threads)
        return out if np.isfinite(out).all() else None

    def rounding(self, X):
        """The largest error of a kernel value of `single`, on some of the samples."""
        some = slice(None, None, max(1, n_rows(X) // _PROBE))
        terms = slice(None, None, max(1, n_rows(self.samples) // _PROBE))
        left = self._left(self._stored(take_rows(X, some)))
        right = self._left(take_rows(self.samples, terms))
        K, K32 = np.empty((left.n, right.n)), np.empty((left.n, right.n), np.float32)
        left64, right64 = cast_side(left, np.float64), cast_side(right, np.float64)
        _native.gram(self.program, left64, right64, K, n_threads=1)
        with np.errstate(over="ignore", invalid="ignore"):
            _native.gram(
                self.program, self._rounded(left), self._rounded(right), K32, n_threads=1, cancels=0.0
            )
            error = np.max(np.abs(K - K32))
        least = np.finfo(np.float32).eps * np.max(np.abs(K), initial=0.0)
        return max(least, float(error)) if np.isfinite(error) else np.inf

    # ---------------------------------------------------------------- sides

    def _stored(self, X):
        """New samples stored as the terms are: centring is for both or for none."""
        if sparse.issparse(X) and not sparse.issparse(self.samples):
            return X.toarray()
        return sparse.csr_array(X) if sparse.issparse(self.samples) and not sparse.issparse(X) else X

    def _left(self, X):
        """The features of new samples, or of terms: each view reads one side by itself."""
        return sides(self.program, X)[0]

    def _common(self, X):
        single = getattr(X, "dtype", None) == np.float32 and self.samples.dtype == np.float32
        return np.dtype(np.float32 if single else np.float64)

    def _right(self, dtype, rounded=False):
        """Terms with each group at a multiple of the panel width, the groups' bounds, and terms' places."""
        key = dtype.char, rounded
        if key not in self._sides:
            unit = _native.dual_units(dtype)[0]
            lengths = [-(-count // unit) * unit for count in self.counts]
            bounds = np.concatenate([[0], np.cumsum(lengths)])
            starts = np.cumsum(self.counts) - self.counts
            order = [
                np.append(np.arange(start, start + count), np.zeros(length - count, np.intp))
                for start, count, length in zip(starts, self.counts, lengths, strict=True)
            ]
            places = [at + np.arange(count) for at, count in zip(bounds, self.counts, strict=False)]
            side = self._left(take_rows(self.samples, np.concatenate(order)))
            side = self._rounded(side) if rounded else cast_side(side, dtype)
            self._sides[key] = side, bounds, np.concatenate(places)
        return self._sides[key]

    def _centres(self):
        if "centres" not in self._sides:
            step = max(1, n_rows(self.samples) // 256)
            some = self._left(take_rows(self.samples, slice(None, None, step)))
            self._sides["centres"] = centres(self.program, some)
        return self._sides["centres"]

    def _rounded(self, side):
        return single_side(self.program, side, self._centres())


def _placed(V, places, bounds):
    out = np.zeros((bounds[-1], V.shape[1]), V.dtype)
    out[places] = V
    return out

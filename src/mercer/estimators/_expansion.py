"""Kernel expansions at new samples: Σᵢ vᵢ k(x, xᵢ), by groups of the terms.

Place on the way: ``gram`` → **expansion** → estimators that predict by a few coefficients for each class.
"""

import numpy as np

from .. import _native
from ..gram import Gram
from ..kernels.prepared import cast_side, centres, n_rows, sides, single_side, take_rows
from ..kernels.views import View

__all__ = ["Expansion"]

# Samples by which float32 values are judged.
_PROBE = 32


class Expansion:
    """Σᵢ vᵢ k(x, xᵢ) of groups of terms that are adjacent.

    Parameters
    ----------
    kernel : Kernel
    samples : ndarray, csr_array or sequence
        The xᵢ, as the kernel's check returns them.
    counts : sequence of int
        Terms of each group.
    coefficients : ndarray of shape (p, n_terms)
        p sums of each group.

    Notes
    -----
    `single` are values by float32 tiles, with features centred before they are rounded: two to four times as
    fast, and right to about `rounding` times Σ|vᵢ|.
    """

    def __init__(self, kernel, samples, counts, coefficients):
        self.kernel, self.samples = kernel, samples
        self.counts = [int(count) for count in counts]
        self.V = np.ascontiguousarray(coefficients.T, dtype=np.float64)
        width = samples.shape[1] if hasattr(samples, "shape") else None
        self.program = kernel._compiled(width)
        self._sides, self._rounding = {}, None

    def __getstate__(self):
        """What is only packed from the samples is made anew."""
        return {**self.__dict__, "_sides": {}}

    @property
    def has_single(self):
        """Whether there is a float32 way: a compiled program, each side's features by itself."""
        own = all(
            type(leaf.view).sides is View.sides for leaf in self.program.leaves if hasattr(leaf, "view")
        )
        return len(self.V) > 0 and not self.program.block_leaves and own and n_rows(self.samples) > 0

    # ---------------------------------------------------------------- values

    def __call__(self, X, n_threads=None):
        """The sums, float64 of shape (n_groups, m, p), from kernel values in the samples' precision."""
        out = np.zeros((len(self.counts), n_rows(X), self.V.shape[1]))
        if not len(self.V) or not out.size:
            return out
        if self.has_single:
            left, dtype = self._left(X), self._common(X)
            side, bounds, V = self._right(dtype)
            return _native.matmul_parts(
                self.program, cast_side(left, dtype), side, V, bounds, None, n_threads
            )
        ends = np.cumsum(self.counts)
        for group, (start, end) in enumerate(zip(ends - self.counts, ends, strict=True)):
            if end > start:
                Z = take_rows(self.samples, slice(start, end))
                out[group] = Gram(self.kernel, X, Z, n_threads=n_threads) @ self.V[start:end]
        return out

    def single(self, X, n_threads=None):
        """The same in float32; None where an entry leaves its range."""
        side, bounds, V = self._right("single")
        with np.errstate(over="ignore", invalid="ignore"):
            left = self._rounded(self._left(X))
            out = _native.matmul_parts(self.program, left, side, V.astype(np.float32), bounds, 0.0, n_threads)
        return out if np.isfinite(out).all() else None

    def rounding(self, X):
        """The largest error of a kernel value of `single`, on some of the samples."""
        some = slice(None, None, max(1, n_rows(X) // _PROBE))
        terms = slice(None, None, max(1, n_rows(self.samples) // _PROBE))
        left, right = self._left(take_rows(X, some)), self._left(take_rows(self.samples, terms))
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

    def _left(self, X):
        """The features of new samples, or of terms: each view reads one side by itself."""
        return sides(self.program, X)[0]

    def _common(self, X):
        single = getattr(X, "dtype", None) == np.float32 and self.samples.dtype == np.float32
        return np.dtype(np.float32 if single else np.float64)

    def _right(self, dtype):
        """Terms with each group at a multiple of the panel width, the groups' bounds, and V likewise."""
        if dtype not in self._sides:
            real = np.float32 if dtype == "single" else dtype
            unit = _native.dual_units(real)[0]
            lengths = [-(-count // unit) * unit for count in self.counts]
            bounds = np.concatenate([[0], np.cumsum(lengths)])
            order, V = [], np.zeros((bounds[-1], self.V.shape[1]))
            start = 0
            for count, length, at in zip(self.counts, lengths, bounds, strict=False):
                order += [np.arange(start, start + count), np.full(length - count, 0)]
                V[at : at + count] = self.V[start : start + count]
                start += count
            side = self._left(take_rows(self.samples, np.concatenate(order)))
            side = self._rounded(side) if dtype == "single" else cast_side(side, real)
            self._sides[dtype] = side, bounds, V
        return self._sides[dtype]

    def _centres(self):
        if "centres" not in self._sides:
            step = max(1, n_rows(self.samples) // 256)
            some = self._left(take_rows(self.samples, slice(None, None, step)))
            self._sides["centres"] = centres(self.program, some)
        return self._sides["centres"]

    def _rounded(self, side):
        return single_side(self.program, side, self._centres())

"""Kernel expansions at new samples: Σᵢ vᵢ k(x, xᵢ), by groups of the terms.

Place on the way: ``gram`` → **expansion** → estimators that predict by a few coefficients for each class.
"""

import numpy as np
from scipy import sparse

from .. import _native
from .._arrays import as_double
from ..gram import Gram
from ..kernels.prepared import cast_side, centres, n_rows, sides, single_side, take_rows
from ..kernels.program import Side
from ..kernels.views import View

__all__ = ["Expansion"]

# Samples by which float32 sums are judged, and the part of all that may be as many, or larger than these.
_PROBE, _PART, _LARGER = 16, 1 / 64, 1 / 256
# How many of them, from the next larger one on, stand for a sample.
_NEXT = 4


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
    fast, and how far they are off is judged by some of the samples and terms.
    """

    def __init__(self, kernel, samples, counts):
        self.kernel, self.samples = kernel, samples
        self.counts = [int(count) for count in counts]
        self.n_terms = sum(self.counts)
        width = samples.shape[1] if hasattr(samples, "shape") else None
        self.program = kernel._compiled(width)
        self._sides = {}

    def __getstate__(self):
        """What is only packed from the samples is made anew."""
        return {**self.__dict__, "_sides": {}}

    @property
    def has_single(self):
        """Whether there is a float32 way: a compiled program, each side's features by itself."""
        if self.n_terms == 0 or self.program.block_leaves or not self.program.leaves:
            return False
        return all(type(leaf.view).sides is View.sides for leaf in self.program.leaves)

    # ---------------------------------------------------------------- values

    def __call__(self, X, coefficients, n_threads=None):
        """The sums, of shape (n_groups, m, p), in float64, whatever the samples are: terms may cancel.

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
            side, bounds, places = self._right()
            left = cast_side(self._left(self._stored(X)), np.dtype(np.float64))
            V = _placed(V, places, bounds)
            return _native.matmul_parts(self.program, left, side, V, bounds, None, n_threads)
        ends = np.cumsum(self.counts)
        for group, (start, end) in enumerate(zip(ends - self.counts, ends, strict=True)):
            if end > start:
                Z = _widened(take_rows(self.samples, slice(start, end)))
                out[group] = Gram(self.kernel, _widened(X), Z, n_threads=n_threads) @ V[start:end]
        return out

    def single(self, X, coefficients, n_threads=None):
        """The same in float32.

        Parameters
        ----------
        X, coefficients, n_threads
            As for a call.

        Returns
        -------
        sums : ndarray of shape (n_groups, m, p)
        rows : ndarray of shape (m,)
        errors : ndarray of shape (n_groups, 1, p)
            The product is about as large as the sums' errors, or larger. It is infinite for samples that are
            larger than all that were looked at.

        Or None where an entry leaves float32's range.
        """
        side, bounds, places = self._right(rounded=True)
        with np.errstate(over="ignore", invalid="ignore"):
            exact = self._left(self._stored(X))
            left = self._rounded(exact)
            rows, errors = self._rounding(exact, left, coefficients, n_threads)
            if not np.isfinite(errors).all():
                return None
            V = _placed(np.ascontiguousarray(coefficients.T, dtype=np.float32), places, bounds)
            out = _native.matmul_parts(self.program, left, side, V, bounds, 0.0, n_threads)
        return (out, rows, errors) if np.isfinite(out).all() else None

    def _rounding(self, exact, left, coefficients, n_threads):
        """How far sums are off: factors by sample, and by group and row of coefficients; see `single`."""
        sizes = _sizes(left)
        some = _steps(sizes, min(_PROBE, int(_PART * left.n) + 1), _LARGER)
        own_errors, own_sizes = self._own_rounding(n_threads)
        errors = np.concatenate([self._errors(_some(exact, some), _some(left, some), n_threads), own_errors])
        V, ends = np.abs(coefficients).T, np.cumsum(self.counts)
        parts = [slice(end - count, end) for end, count in zip(ends, self.counts, strict=True)]
        sums = np.stack([errors[:, part] @ V[part] for part in parts])
        largest = np.maximum(sums.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        by_row = np.max(sums / largest, axis=(0, 2))
        known = np.concatenate([sizes[:, some], own_sizes], axis=1)
        return _as_large(by_row, known, sizes), largest

    def _own_rounding(self, n_threads):
        """Errors about some of the terms, since to all samples that are looked at every term may be far."""
        if "own" not in self._sides:
            exact = self._left(self.samples)
            left = self._rounded(exact)
            sizes = _sizes(left)
            some = _steps(sizes, _PROBE)
            errors = self._errors(_some(exact, some), _some(left, some), n_threads)
            self._sides["own"] = errors, sizes[:, some]
        return self._sides["own"]

    def _errors(self, exact, left, n_threads):
        """By how much float32 values are off, and would be off if they were only rounded: (q, n_terms)."""
        side, bounds, places = self._right(rounded=True)
        K, K32 = np.empty((left.n, self.n_terms)), np.empty((left.n, bounds[-1]), np.float32)
        right = cast_side(self._left(self.samples), np.float64)
        _native.gram(self.program, cast_side(exact, np.float64), right, K, n_threads=n_threads)
        _native.gram(self.program, left, side, K32, n_threads=n_threads, cancels=0.0)
        return np.abs(K - K32[:, places]) + np.finfo(np.float32).eps * np.abs(K)

    # ---------------------------------------------------------------- sides

    def _stored(self, X):
        """New samples stored as the terms are: centring is for both or for none."""
        if sparse.issparse(X) and not sparse.issparse(self.samples):
            return X.toarray()
        return sparse.csr_array(X) if sparse.issparse(self.samples) and not sparse.issparse(X) else X

    def _left(self, X):
        """The features of new samples, or of terms: each view reads one side by itself."""
        return sides(self.program, X)[0]

    def _right(self, rounded=False):
        """Terms with each group at a multiple of the panel width, the groups' bounds, and terms' places."""
        dtype = np.dtype(np.float32 if rounded else np.float64)
        if dtype not in self._sides:
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
            self._sides[dtype] = side, bounds, np.concatenate(places)
        return self._sides[dtype]

    def _centres(self):
        if "centres" not in self._sides:
            step = max(1, n_rows(self.samples) // 256)
            some = self._left(take_rows(self.samples, slice(None, None, step)))
            self._sides["centres"] = centres(self.program, some)
        return self._sides["centres"]

    def _rounded(self, side):
        return single_side(self.program, side, self._centres())


def _widened(X):
    """float32 samples in float64, others as they are."""
    return as_double(X) if getattr(X, "dtype", None) == np.float32 else X


def _placed(V, places, bounds):
    out = np.zeros((bounds[-1], V.shape[1]), V.dtype)
    out[places] = V
    return out


def _some(side, index):
    return Side(len(index), [F[index] for F in side.features], side.vecs[:, index])


def _sizes(side):
    """Of each sample the size of each leaf's features and of each row function, squared: (l, n)."""
    features = [
        np.asarray(F.multiply(F).sum(axis=1)).ravel() if sparse.issparse(F) else np.einsum("ij,ij->i", F, F)
        for F in side.features
    ]
    return np.array([*features, *np.square(side.vecs)]).reshape(-1, side.n)


def _steps(sizes, count, larger=0.0):
    """Samples at equal steps, and by each size one that no more than that part of all is larger than."""
    n = sizes.shape[1]
    rank = n - 1 - int(larger * n)
    return np.union1d(np.arange(0, n, max(1, n // count)), np.argpartition(sizes, rank, axis=1)[:, rank])


def _as_large(errors, known, sizes):
    """For samples of some sizes (l, n) the largest error of the known ones of up to about these; else ∞."""
    out = np.zeros(sizes.shape[1])
    for size, at in zip(sizes, known, strict=True):
        order = np.argsort(at)
        largest = np.maximum.accumulate(errors[order])
        largest = np.append(largest[_NEXT:], np.full(min(_NEXT, len(largest)), largest[-1]))
        np.maximum(out, np.append(largest, np.inf)[np.searchsorted(at[order], size)], out=out)
    return out

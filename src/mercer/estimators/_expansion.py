"""Kernel expansions at new samples: Σᵢ vᵢ k(x, xᵢ), as they are or as decisions of pairs of classes.

Place on the way: ``gram`` → **expansion** → estimators that predict by a few coefficients for each class.
"""

import numpy as np
from scipy import sparse

from .. import _native
from .._arrays import as_double
from ..kernels.precomputed import Precomputed
from ..kernels.prepared import cast_side, centres, n_rows, sides, single_side, take_rows
from ..kernels.program import Side
from ..kernels.views import View

__all__ = ["Expansion", "decisions_of", "votes_of"]

# Samples by which float32 sums are judged, and the part of all that may be as many, or larger than these.
_PROBE, _PART, _LARGER = 16, 1 / 64, 1 / 256
# How many of them, from the next larger one on, stand for a sample.
_NEXT = 4
# The program of a kernel matrix that is at hand.
_GIVEN = Precomputed()._compiled(None)


class Expansion:
    """Σᵢ vᵢ k(x, xᵢ), for coefficients that come with each call.

    Parameters
    ----------
    kernel : Kernel
        The expression.
    samples : ndarray, csr_array or sequence
        The xᵢ, as the kernel's check returns them.

    Notes
    -----
    `single` and `single_votes` are by float32 tiles, with features centred before they are rounded: two to
    four times as fast, and how far they are off is judged by some of the samples and terms.
    """

    def __init__(self, kernel, samples):
        self.kernel, self.samples, self.n_terms = kernel, samples, n_rows(samples)
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
        """The sums, of shape (m, p), in float64, whatever the samples are: terms may cancel.

        Parameters
        ----------
        X : ndarray, csr_array or sequence of m
        coefficients : ndarray of shape (p, n_terms)
        n_threads : int or None

        Returns
        -------
        ndarray
        """
        out = np.zeros((n_rows(X), len(coefficients)))
        V = np.ascontiguousarray(coefficients.T)
        for rows, *run, blocks in self._runs(X):
            _native.matmul(*run, V, out[rows], blocks=blocks, densify=True, n_threads=n_threads)
        return out

    def pair_votes(self, X, pairs, n_threads=None, *, tie_to_first=False):
        """By class the pairs that it wins, and its summed decisions, both (m, k): `_native.pair_votes`.

        Parameters
        ----------
        X : ndarray, csr_array or sequence of m
        pairs : tuple of ndarrays
            Where the classes' terms begin, coefficients, intercepts.
        n_threads : int or None
        tie_to_first : bool
            Whose a decision of 0 is.

        Returns
        -------
        votes, sums : ndarray
        """
        votes, sums = np.zeros((2, n_rows(X), len(pairs[0]) - 1))
        options = {"tie_to_first": tie_to_first, "n_threads": n_threads}
        for rows, *run, blocks in self._runs(X):
            votes[rows], sums[rows] = _native.pair_votes(*run, pairs, blocks=blocks, **options)
        return votes, sums

    def pair_decisions(self, X, pairs, n_threads=None):
        """The decisions that `pair_votes` counts: (m, k (k − 1) / 2)."""
        out = np.zeros((n_rows(X), len(pairs[2])))
        for rows, *run, blocks in self._runs(X):
            _native.pair_decisions(*run, pairs, out[rows], blocks=blocks, n_threads=n_threads)
        return out

    def _runs(self, X):
        """Rows of X by number, and what native code reads: a program, both sides in float64, matrices."""
        if self.has_single:
            left = cast_side(self._left(self._stored(X)), np.dtype(np.float64))
            yield slice(None), self.program, left, self._right(), None
        elif not self.n_terms:
            yield slice(None), *_given(np.empty((n_rows(X), 0)))
        else:
            prepared = self.kernel._prepared(_widened(X), _widened(self.samples))
            for rows, part, blocks in prepared.strips():
                yield rows, self.program, part.left, prepared.right, blocks

    # ---------------------------------------------------------------- values in float32

    def single(self, X, coefficients, n_threads=None):
        """The same as a call in float32.

        Parameters
        ----------
        X, coefficients, n_threads
            As for a call.

        Returns
        -------
        sums : ndarray of shape (m, p)
        rows : ndarray of shape (m,)
        errors : ndarray of shape (p,)
            The product is about as large as the sums' errors, or larger. It is infinite for samples that are
            larger than all that were looked at.

        Or None where an entry leaves float32's range.
        """
        sizes = np.abs(coefficients).T
        left, right, rows, errors = self._judged(X, lambda lost: lost @ sizes, n_threads)
        if not np.isfinite(errors).all():
            return None
        out = np.empty((left.n, len(coefficients)))
        with np.errstate(over="ignore", invalid="ignore"):
            V = np.ascontiguousarray(coefficients.T, dtype=np.float32)
            _native.matmul(self.program, left, right, V, out, cancels=0.0, densify=True, n_threads=n_threads)
        return (out, rows, errors) if np.isfinite(out).all() else None

    def single_votes(self, X, pairs, safety, n_threads=None):
        """By class the pairs that it wins in float32, and how many of its pairs are open.

        Parameters
        ----------
        X, pairs, n_threads
            As for `pair_votes`.
        safety : float
            How many times its error a decision has to be off 0.

        Returns
        -------
        votes, open_ : ndarray of shape (m, k)
            Or None where an entry leaves float32's range.
        """
        starts, coefficients, intercept = pairs
        sizes = starts, np.abs(coefficients), np.zeros_like(intercept)
        left, right, rows, errors = self._judged(
            X, lambda lost: decisions_of(lost, sizes, n_threads), n_threads
        )
        if not np.isfinite(errors).all():
            return None
        return _native.pair_votes(
            self.program, left, right, pairs, errors=(errors, safety * rows), cancels=0.0, n_threads=n_threads
        )

    def _judged(self, X, gather, n_threads):
        """Both sides in float32, and how far sums are off: by row and by sum, see `single`.

        `gather` gives the sums' errors, of shape (q, p), by those of q samples' terms.
        """
        right = self._right(rounded=True)
        with np.errstate(over="ignore", invalid="ignore"):
            exact = self._left(self._stored(X))
            left = self._rounded(exact)
            sizes = _sizes(left)
            some = _steps(sizes, min(_PROBE, int(_PART * left.n) + 1), _LARGER)
            own_errors, own_sizes = self._own_rounding(n_threads)
            errors = self._errors(_some(exact, some), _some(left, some), n_threads)
            sums = gather(np.concatenate([errors, own_errors]))
            largest = np.maximum(sums.max(axis=0), np.finfo(np.float64).tiny)
            by_row = np.max(sums / largest, axis=1)
            known = np.concatenate([sizes[:, some], own_sizes], axis=1)
            return left, right, _as_large(by_row, known, sizes), largest

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
        K, K32 = np.empty((left.n, self.n_terms)), np.empty((left.n, self.n_terms), np.float32)
        left64, right64 = cast_side(exact, np.float64), self._right()
        _native.gram(self.program, left64, right64, K, n_threads=n_threads)
        _native.gram(self.program, left, self._right(rounded=True), K32, n_threads=n_threads, cancels=0.0)
        return np.abs(K - K32) + np.finfo(np.float32).eps * np.abs(K)

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
        """The features of the terms."""
        dtype = np.dtype(np.float32 if rounded else np.float64)
        if dtype not in self._sides:
            side = self._left(self.samples)
            self._sides[dtype] = self._rounded(side) if rounded else cast_side(side, dtype)
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


def decisions_of(K, pairs, n_threads):
    """Decisions of pairs (m, k (k − 1) / 2) by the kernel's values K (m, n_terms): `Expansion.pair_votes`."""
    out, (*run, blocks) = np.empty((len(K), len(pairs[2]))), _given(K)
    _native.pair_decisions(*run, pairs, out, blocks=blocks, n_threads=n_threads)
    return out


def votes_of(K, pairs, *, tie_to_first=False, n_threads=None):
    """`Expansion.pair_votes` likewise."""
    *run, blocks = _given(K)
    return _native.pair_votes(*run, pairs, blocks=blocks, tie_to_first=tie_to_first, n_threads=n_threads)


def _given(K):
    """What native code reads of a kernel matrix that is at hand."""
    left, right = (Side(n, [None], np.empty((0, n))) for n in K.shape)
    return _GIVEN, left, right, {0: K}


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

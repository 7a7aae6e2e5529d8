"""Rows as 16-bit integers, whose distances bound those of the rows.

Place on the way: ``_native`` → **_nearest_integers** → ``_nearest``.

Rows are moved by maps under which no two of them come farther apart: onto some orthonormal directions, with
the norm of what is left as one more feature (‖x − z‖² ≥ ‖Px − Pz‖² + (r_x − r_z)²), and into a ball, beyond
which few are. Scaled by s and rounded, a row of p features is off by ½√p at most, so that integers have
|x̂ − ẑ| ≤ s‖x − z‖ + √p; and where all features are kept, of two rows in the ball, ≥ s‖x − z‖ − √p. Products
of integers are exact, and a machine takes twice as many of them as of float32.
"""

from typing import NamedTuple

import numpy as np

from .. import _native
from ..solvers.held_matrix import each_block

__all__ = ["IntegerRows", "each_stretch"]

_BLOCK = 2**17
# Rows that tell how large the ball is, and how many of them are to be in it.
_SAMPLE, _INSIDE = 1024, 0.999
# Wider rows have first bounds from so many directions, which so many rows tell, and second ones from all
# features.
_WIDE, _DIRECTIONS, _ROWS_OF_DIRECTIONS = 128, 63, 256
# Norms that have squares, and what the rounding of raw rows' own distances is far below.
_LEAST, _MOST, _UNIT, _MARGIN = 1e-140, 1e140, 2.0**-53, 1e-4


class Integers(NamedTuple):
    """Both sides' integers, their squared norms, and how far rounding moves two rows apart at most."""

    left: np.ndarray
    left_norms: np.ndarray
    right: np.ndarray
    right_norms: np.ndarray
    slack: float


class IntegerRows:
    """Both sides' rows as integers, in an order that has near ones together.

    Parameters
    ----------
    raw : tuple
        Of `plain_rows`: dense, of squared distances.
    threads : int

    Attributes
    ----------
    usable : bool
        Whether squared norms stay in range; else nothing is to be searched.
    """

    def __init__(self, raw, threads):
        self.raw, self.threads = raw, threads
        _, left, right, self.weight = raw
        d = right.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            self.centre = right[:: max(1, len(right) // 256)].mean(axis=0, dtype=np.float64)
            samples = [self._moved(F[:: max(1, len(F) // _SAMPLE)]) for F in (right, left)]
            most = max(float(np.quantile(_norms(sample), _INSIDE)) for sample in samples)
        self.usable = _LEAST < most < _MOST
        if not self.usable:
            return
        self.basis = _directions(samples[0]) if d > _WIDE else None
        self.radius = 2**15 - 1 - 0.5 * np.sqrt(d + 1)
        self.scale = self.radius / most
        ours = self._round(right)
        theirs = ours if left is right else self._round(left)
        self.first, self.second = (
            None if to is None else Integers(*of, *to, slack)
            for of, to, slack in zip(theirs[:2], ours[:2], self._slacks(d), strict=True)
        )
        self.inside = theirs[2], ours[2]
        self.rows, self.columns, self.begin = self._order()
        self.panels = _native.integer_panels(
            self.first.right[self.columns], self.first.right_norms[self.columns]
        )

    def _moved(self, F):
        """Rows less the centre, weighted, in float64."""
        block = np.subtract(F, self.centre)
        return block if self.weight is None else np.multiply(block, self.weight, out=block)

    def _slacks(self, d):
        """√p, and what float64 loses before: r is of a difference of squares off by 4(d + 8)u of them."""
        lost = 2 * self.radius * np.sqrt(16 * (d + 8) * _UNIT) + _MARGIN
        p = d if self.basis is None else self.basis.shape[1] + 1
        return np.sqrt(p) + lost, np.sqrt(d) + lost

    def _round(self, F):
        """A side's (integers, squared norms) of the first bound, of the second or None; which are inside."""
        n, d = F.shape
        p = d if self.basis is None else self.basis.shape[1] + 1
        first, second = np.zeros((n, -(-p // 2) * 2), np.int16), None
        if self.basis is not None:
            second = np.zeros((n, -(-d // 64) * 64), np.int16)
        norms, lengths = np.empty((2, n), np.int32), np.empty(n)

        @np.errstate(over="ignore", invalid="ignore")
        def fill(start, stop):
            block = self._moved(F[start:stop])
            lengths[start:stop] = _norms(block)
            block *= self.scale / np.maximum(1.0, self.scale / self.radius * lengths[start:stop])[:, None]
            if self.basis is not None:
                norms[0, start:stop] = _write(_along(block, self.basis), first[start:stop])
            norms[int(self.basis is not None), start:stop] = _write(
                block, (first if second is None else second)[start:stop]
            )

        each_stretch(fill, F, _BLOCK, self.threads)
        self.usable = self.usable and bool(np.max(lengths) < _MOST)
        inside = self.scale * lengths <= self.radius
        return (first, norms[0]), None if second is None else (second, norms[1]), inside

    def _order(self):
        """Rows and columns with near ones together, and near which column those near a row are."""
        right = self.first.right.astype(np.float32)
        n_pivots = int(np.sqrt(len(right)))
        pivots = right[:: len(right) // n_pivots][:n_pivots]
        pivots = pivots[np.argsort(pivots[:, 0], kind="stable")]
        places = _places(right, self.first.right_norms, pivots, self.threads)
        columns = np.argsort(places, kind="stable")
        if self.first.left is self.first.right:
            return columns, columns, np.arange(len(columns))
        left = self.first.left.astype(np.float32)
        there = _places(left, self.first.left_norms, pivots, self.threads)
        rows = np.argsort(there, kind="stable")
        begin = np.searchsorted(places[columns], there[rows])
        return rows, columns, np.minimum(begin, len(columns) - 1)

    def search(self, k, some, left_out, out):
        """Search for the k nearest of some of `rows`.

        Parameters
        ----------
        k : int
        some : ndarray of int
            Places in `rows`.
        left_out : ndarray of shape (n,) or None
            The column that each row leaves out.
        out : tuple of ndarray of shape (n, k)
            Distances in float64 and indices in int32: written where these rows are.

        Returns
        -------
        n_second, n_exact : int
            Pairs that had their second integers and their raw rows compared.
        """
        order, bounds = (self.rows[some], self.begin[some], self.columns), (*self.inside, self.scale)
        return _native.nearest_by_integers(
            self.raw, k, order, self.first, self.panels, self.second, bounds, left_out, out, self.threads
        )


def _directions(sample):
    """Orthonormal directions (d, ·) along which a sample is widest."""
    sample = sample[:: max(1, len(sample) // _ROWS_OF_DIRECTIONS)]
    vectors = np.linalg.eigh(sample @ sample.T)[1][:, ::-1]
    return np.linalg.qr(sample.T @ vectors[:, :_DIRECTIONS])[0]


def _norms(block):
    return np.sqrt(np.einsum("ij,ij->i", block, block))


def _along(block, basis):
    """Rows along directions, with the norm of what is left."""
    along = block @ basis
    rest = np.einsum("ij,ij->i", block, block) - np.einsum("ij,ij->i", along, along)
    return np.column_stack([along, np.sqrt(np.maximum(rest, 0.0))])


def _write(block, out):
    """Rounded rows into integers; their squared norms."""
    np.rint(block, out=block)
    out[:, : block.shape[1]] = block
    return np.einsum("ij,ij->i", block, block)


def _places(F, norms, pivots, threads):
    """For each row the number of its nearest pivot, plus a part that grows with the distance from it."""
    heights, out = 0.5 * np.einsum("ij,ij->i", pivots, pivots), np.empty(len(F))

    def fill(start, stop):
        gaps = heights - F[start:stop] @ pivots.T
        nearest = np.argmin(gaps, axis=1)
        squared = norms[start:stop] + 2.0 * gaps[np.arange(stop - start), nearest]
        out[start:stop] = nearest + np.maximum(squared, 0.0) / 2.0**33

    each_stretch(fill, F, _BLOCK, threads)
    return out


def each_stretch(function, F, size, threads):
    """Call a function for stretches of rows.

    Parameters
    ----------
    function : callable
        ``function(start, stop)``.
    F : ndarray of shape (n, d)
    size : int
        Entries of a stretch, about.
    threads : int
    """
    step = max(1, size // F.shape[1])
    each_block(function, np.append(np.arange(0, len(F), step), len(F)), threads)

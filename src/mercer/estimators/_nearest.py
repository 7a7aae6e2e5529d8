"""Neighbours in feature space: by plain distances where the order is theirs, else by kernel values.

Place on the way: ``kernels.distance``, ``_native`` → **_nearest** → ``neighbors``.

Plain distances are bounded in float32 by tiles of centred features, and decided in float64 by the
differences of the raw rows: what is returned is as if every distance had been taken so, with equal ones in
the order of the training rows.
"""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import KDTree

from .. import _native
from .._threads import n_threads as count_threads
from ..kernels.prepared import Prepared, cast_side, check_range, diagonal, sides
from ..kernels.program import Leaf, LeafKind, Program, Side
from ..solvers.held_matrix import each_block

__all__ = [
    "NotADistance",
    "by_kernel_values",
    "by_plain_distance",
    "by_tree",
    "own_diagonal",
    "plain_rows",
    "tree_of",
]

_UNIT = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}
# What squares of tiny features lose below the smallest number, per feature, where the largest is about 1.
_TINY = {np.dtype(np.float32): 1e-36, np.dtype(np.float64): 1e-290}
_BLOCK = 2**18
_PROBE = 192
# From so many features and multiplications on fewer of them are tried, so many in tiles and so many in second
# bounds, along directions of so many rows.
_WIDE, _WIDE_WORK, _COARSE, _FINE, _SAMPLE = 192, 2e9, 63, 191, 256
# Columns that give a row its first limit come from its own cluster, of which so many times the mean are seen.
_CLUSTER = 2
# The time of a second bound, and of a distance of raw rows, in entries of a tile of the raw width.
_FINE_PAIR, _EXACT_PAIR = 10, 30
# Squared distances below −(_NEGATIVE (k(x, x) + k(z, z))) are no rounding.
_NEGATIVE = 1e-7
_TREE_ROWS, _TREE_SPARE = 512, 4


class NotADistance(ValueError):
    """A squared distance in feature space that is negative beyond rounding: the kernel is not PSD."""


# ---------------------------------------------------------------- plain distances


def plain_rows(form, program, X, Z):
    """The raw rows of both sides that a form's distance is of, as `_native.nearest` takes them.

    Parameters
    ----------
    form : DistanceForm
    program : Program
    X, Z : ndarray, csr_array or sequence
        Queries, and training rows; Z None for X.

    Returns
    -------
    tuple
        (kind, left, right, weight).
    """
    left, right = (side.features[0] for side in sides(program, X, Z))
    if left.dtype != right.dtype:
        left, right = left.astype(np.float64, copy=False), right.astype(np.float64, copy=False)
    if sp.issparse(left) != sp.issparse(right):
        left, right = sp.csr_array(left), sp.csr_array(right)
    if not sp.issparse(left):
        # Training rows that are asked for again are prepared once.
        same = right is left or (np.array_equal(left[:1], right[:1]) and np.array_equal(left, right))
        left = np.ascontiguousarray(left)
        right = left if same else np.ascontiguousarray(right)
    return form.leaf.kind, left, right, form.weight


class _Bounded:
    """Both sides as tiles see them: centred, weighted, scaled to about 1, rounded; with norms and bounds.

    A rounded feature is off by u of itself, a product of d terms by d·u of the norms' sum: so is the
    distance from x̃ᵀx̃ + z̃ᵀz̃ − 2x̃ᵀz̃, and one of absolute differences from its sum. The 24 covers what
    else is rounded.
    """

    def __init__(self, raw, dtype, n_threads=None):
        kind, left, right, weight = raw
        self.threads = count_threads(n_threads)
        self.product, self.dtype = kind == LeafKind.SQDIST, np.dtype(dtype)
        sparse = sp.issparse(right)
        centre = None
        if not sparse and kind != LeafKind.CHI2:
            with np.errstate(over="ignore", invalid="ignore"):
                centre = right[:: max(1, len(right) // 256)].mean(axis=0, dtype=np.float64)
        most = max(_largest(F, centre, weight) for F in ((right,) if left is right else (left, right)))
        #: Without a scale nothing is bounded, and every distance is taken of the raw rows.
        self.lost = not (most == 0 or 1e-150 < most < 1e150)
        factor = 1.0 if most == 0 or self.lost else float(np.ldexp(1.0, -int(np.frexp(most)[1])))
        self.scale = 1.0 if self.lost else factor**2 if self.product else factor
        scales = np.full(right.shape[1], 0.0 if self.lost else factor)
        scales = scales if weight is None else scales * weight
        self.right, self.right_norms = self._round(right, centre, scales)
        same = left is right
        self.left, self.left_norms = (
            (self.right, self.right_norms) if same else self._round(left, centre, scales)
        )
        d = right.shape[1]
        terms = int(np.max(np.diff(left.indptr), initial=1)) if sparse and self.product else d
        unit = _UNIT[self.dtype]
        self.unit = (1.01 * terms + 24) * unit if self.dtype == np.float32 else (3 * terms + 40) * unit
        self.tiny = d * _TINY[self.dtype]
        self.finer = self.known = self.order = None
        leaf = Leaf(LeafKind.DOT if self.product else kind, None)
        self.program = Program(np.zeros((0, 4), np.int32), (leaf,), (), (), {})

    def _round(self, F, centre, scales):
        if sp.issparse(F):
            values = (F.data * scales[F.indices]).astype(self.dtype)
            rounded = sp.csr_array((values, F.indices, F.indptr), shape=F.shape)
            wide = values.astype(np.float64)
            measured = sp.csr_array(
                (wide**2 if self.product else np.abs(wide), F.indices, F.indptr), shape=F.shape
            )
            return rounded, np.asarray(measured.sum(axis=1)).reshape(-1)
        rounded, norms = np.empty(F.shape, self.dtype), np.empty(len(F))

        def fill(start, stop):
            some = slice(start, stop)
            block = (
                F[some].astype(np.float64) if centre is None or self.lost else np.subtract(F[some], centre)
            )
            block *= scales
            rounded[some] = block
            block[:] = rounded[some]
            norms[some] = np.einsum("ij,ij->i", block, block) if self.product else np.abs(block).sum(axis=1)

        _each_stretch(fill, F, self.threads)
        return rounded, norms

    def reduced(self, n_coarse, n_fine):
        """The same bounded from below by fewer features: in tiles few, and more of them for what these leave.

        Along p orthonormal directions, with the norm of the rest as one more feature: ‖x − z‖² ≥ ‖Px − Pz‖² +
        (r_x − r_z)². Norms stay, so that the same bounds hold; r comes from a difference of squares that is
        off by η²‖x‖² at most, which moves (r_x − r_z)² by less than 5η times the norms' sum.
        """
        d = self.right.shape[1]
        basis = _directions(self.right[:: max(1, len(self.right) // _SAMPLE)], n_fine)
        n_coarse = min(n_coarse, basis.shape[1])
        other = copy.copy(self)
        other.right, fine_right = _project(self.right, self.right_norms, basis, n_coarse, self.threads)
        other.left, fine_left = other.right, fine_right
        if self.left is not self.right:
            other.left, fine_left = _project(self.left, self.left_norms, basis, n_coarse, self.threads)
        slack = np.sqrt(8 * (d + 8) * _UNIT[np.dtype(np.float64)])
        # To the features' own rounding, theirs in `self`, comes that of the new ones.
        other.unit = (1.01 * (n_fine + 1) + 32) * _UNIT[self.dtype] + 5 * slack
        other.finer = fine_left, fine_right
        return other

    def limited(self, raw, k, left_out):
        """The same, with a distance within which each row has k columns: searches begin with limits.

        `order` has neighbouring rows together, so that caches keep what they have in common.
        """
        other = copy.copy(self)
        proposed, other.order = _in_own_cluster(self, min(k + (left_out is not None), len(self.right)))
        scores = _native.nearest_pairs(raw, proposed, self.threads)
        if left_out is not None:
            scores[proposed == left_out[:, None]] = np.inf
        other.known = np.partition(scores, k - 1, axis=1)[:, k - 1]
        return other

    def search(self, raw, k, rows, left_out, split=True):
        """`_native.nearest` of some of the rows."""
        left, norms = self.left[rows], self.left_norms[rows]
        error = np.full(len(norms), np.inf) if self.lost else self.unit * norms + self.tiny
        columns = -self.unit * self.right_norms + (self.right_norms if self.product else 0.0)
        kind, raw_left, raw_right, weight = raw
        finer = (
            None if self.finer is None else (self.finer[0][rows], self.finer[1], self.unit * self.right_norms)
        )
        scores, indices, n_taken, _ = _native.nearest(
            self.program,
            Side(len(norms), [left], np.empty((0, len(norms)))),
            Side(len(columns), [self.right], np.empty((0, len(columns)))),
            k,
            rows=norms if self.product else np.zeros(len(norms)),
            columns=columns,
            row_error=error,
            coefficient=-2.0 if self.product else 1.0,
            left_out=None if left_out is None else left_out[rows],
            bounds=(2.000001 * self.unit * self.right_norms if finer is None else None, self.scale),
            finer=finer,
            known=None if self.known is None else self.known[rows],
            raw=(kind, raw_left[rows], raw_right, weight),
            split=split,
            n_threads=self.threads,
        )
        return scores, indices, n_taken


def _directions(sample, n_components):
    """Orthonormal directions (d, n_components) along which a sample is widest, the widest first."""
    sample = sample.astype(np.float64)
    vectors = np.linalg.eigh(sample @ sample.T)[1][:, ::-1]
    return np.linalg.qr(sample.T @ vectors[:, :n_components])[0]


def _project(F, norms, basis, n_coarse, threads):
    """Features along the first of some directions and along all, each with the norm of what is left."""
    n, n_fine = len(F), basis.shape[1]
    coarse, fine = (
        np.empty((n, n_coarse + 1), np.float32),
        np.zeros((n, -(-(n_fine + 1) // 64) * 64), np.float32),
    )

    def fill(start, stop):
        along = F[start:stop].astype(np.float64) @ basis
        for out, width in ((coarse, n_coarse), (fine, n_fine)):
            out[start:stop, :width] = along[:, :width]
            rest = norms[start:stop] - np.einsum("ij,ij->i", along[:, :width], along[:, :width])
            out[start:stop, width] = np.sqrt(np.maximum(rest, 0.0))

    _each_stretch(fill, F, threads)
    return coarse, fine


def _in_own_cluster(bounded, p):
    """For each row p near columns of those that share its nearest pivot (n, p), or −1; and rows by pivots."""
    left, right = bounded.left, bounded.right
    n_pivots = int(np.sqrt(len(right)))
    pivots = right[:: len(right) // n_pivots][:n_pivots]
    columns = _by_pivot(right, pivots, bounded.threads)
    rows = columns if left is right else _by_pivot(left, pivots, bounded.threads)
    heights, out = 0.5 * np.einsum("ij,ij->i", right, right), np.full((len(left), p), -1, np.int32)
    most = max(p, _CLUSTER * len(right) // n_pivots)

    def propose(pivot, _):
        mine, there = rows[pivot], columns[pivot]
        there = there[:: max(1, -(-len(there) // most))]
        if len(mine) and len(there) >= p:
            scores = heights[there] - left[mine] @ right[there].T
            out[mine] = there[np.argpartition(scores, p - 1, axis=1)[:, :p]]

    each_block(propose, np.arange(n_pivots + 1), bounded.threads)
    return out, np.concatenate(rows)


def _by_pivot(F, pivots, threads):
    """For each pivot the rows of F that it is nearest to."""
    heights, nearest = 0.5 * np.einsum("ij,ij->i", pivots, pivots), np.empty(len(F), np.intp)

    def fill(start, stop):
        nearest[start:stop] = np.argmin(heights - F[start:stop] @ pivots.T, axis=1)

    _each_stretch(fill, F, threads)
    order = np.argsort(nearest, kind="stable")
    return np.split(order, np.searchsorted(nearest[order], np.arange(1, len(pivots))))


def _each_stretch(function, F, threads):
    """Call ``function(start, stop)`` for stretches of rows that make small blocks."""
    step = max(1, _BLOCK // F.shape[1])
    each_block(function, np.append(np.arange(0, len(F), step), len(F)), threads)


def _largest(F, centre, weight):
    """The largest weighted distance of a feature from the centre."""
    if sp.issparse(F):
        values = F.data if weight is None else F.data * weight[F.indices]
        return float(np.max(np.abs(values), initial=0.0))
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = F.min(axis=0).astype(np.float64), F.max(axis=0).astype(np.float64)
        if centre is not None:
            low, high = low - centre, high - centre
        spread = np.maximum(np.abs(low), np.abs(high))
        return float(np.max(spread if weight is None else spread * weight))


def by_plain_distance(raw, k, left_out=None, n_threads=None, dtype=None):
    """The k nearest by brute force.

    Parameters
    ----------
    raw : tuple
        Of `plain_rows`.
    k : int
    left_out : ndarray of shape (n,) or None
        The training row that each query leaves out.
    n_threads : int or None
    dtype : dtype or None
        Of the bounds; None is float32, or float64 where a first strip shows that float32 leaves too much
        open. Results are the same.

    Returns
    -------
    distances : ndarray of shape (n, k)
        float64, those of the form's leaf.
    indices : ndarray of shape (n, k)
    """
    n = raw[1].shape[0]
    bounded = _Bounded(raw, np.float32 if dtype is None else dtype, n_threads)
    if dtype is not None or n <= 4 * _PROBE:
        return bounded.search(raw, k, slice(0, n), left_out)[:2]
    bounded, first = _quickest(bounded, raw, k, left_out)
    rest = slice(_PROBE, n) if bounded.order is None else bounded.order[bounded.order >= _PROBE]
    scores, indices = np.empty((n, k)), np.empty((n, k), np.intp)
    scores[:_PROBE], indices[:_PROBE] = first[:2]
    scores[rest], indices[rest] = bounded.search(raw, k, rest, left_out)[:2]
    return scores, indices


def _quickest(bounded, raw, k, left_out):
    """The bounds to go on with after a first strip, and that strip's results."""
    (n, d), m = raw[1].shape, raw[2].shape[0]
    strip = slice(0, _PROBE)
    wide = bounded.product and not bounded.lost and isinstance(bounded.right, np.ndarray)
    if wide and d >= _WIDE and float(n) * m * d > _WIDE_WORK:
        n_fine = min(_FINE, d // 2 - 1)
        reduced = bounded.reduced(_COARSE, n_fine).limited(raw, k, left_out)
        first = reduced.search(raw, k, strip, left_out, split=False)
        n_finer, n_exact = first[2]
        if _COARSE / d + (_FINE_PAIR * n_finer + _EXACT_PAIR * n_exact) / (_PROBE * m) < 0.7:
            return reduced, first
    first = bounded.search(raw, k, strip, left_out)
    if first[2][1] > _PROBE * (2 * k + 0.03 * m):
        bounded = _Bounded(raw, np.float64, bounded.threads)
    return bounded, first


# ---------------------------------------------------------------- trees


def tree_of(kind, right, weight):
    """scikit-learn's tree over training rows (m, d)."""
    right = right if weight is None else right * weight
    return KDTree(right, metric="manhattan" if kind == LeafKind.L1 else "euclidean")


def by_tree(tree, raw, k, left_out=None, n_threads=None):
    """The k nearest by a tree's proposals: the same results as `by_plain_distance`."""
    kind, left, right, weight = raw
    n, m = len(left), len(right)
    proposed = min(m, k + (left_out is not None) + _TREE_SPARE)
    queries = left if weight is None else left * weight

    def propose(start):
        return tree.query(queries[start : start + _TREE_ROWS], k=proposed)

    with ThreadPoolExecutor(count_threads(n_threads)) as pool:
        found = list(pool.map(propose, range(0, n, _TREE_ROWS)))
    farthest = np.concatenate([distance[:, -1] for distance, _ in found])
    indices = np.concatenate([index for _, index in found])
    scores = _native.nearest_pairs(raw, indices, n_threads)
    if left_out is not None:
        scores[indices == left_out[:, None]] = np.inf
    order = np.lexsort((indices, scores), axis=-1)[:, :k]
    scores, indices = np.take_along_axis(scores, order, 1), np.take_along_axis(indices, order, 1)
    # What the tree did not propose is no nearer than the last that it did, up to the rounding of weighted
    # rows.
    size = max(np.max(np.abs(queries), initial=0.0), np.max(np.abs(np.asarray(tree.data)), initial=0.0))
    slack = 0.0 if weight is None else 8 * np.finfo(left.dtype).eps * right.shape[1] * size
    beyond = np.maximum(farthest * (1 - 1e-9) - slack, 0.0)
    open_ = np.flatnonzero(~(scores[:, -1] < (beyond if kind == LeafKind.L1 else beyond**2)))
    if proposed < m and len(open_):
        # Rows with more equal distances than the tree proposed.
        rows = kind, left[open_], right, weight
        left_out = None if left_out is None else left_out[open_]
        scores[open_], indices[open_] = by_plain_distance(rows, k, left_out, n_threads)
    return scores, indices


# ---------------------------------------------------------------- kernel values


def own_diagonal(kernel, program, X, n_threads=None):
    """k(x, x) of each row: float64, to the bit what tiles have for equal rows.

    Raises
    ------
    ValueError
        If it is not finite.
    """
    if program.block_leaves:
        out = diagonal(program, X)
    else:
        side = cast_side(sides(program, X)[0], np.float64)
        out = np.empty(side.n)
        _native.dual_diagonal(_native.dual_run(program, side, np.float64, n_threads), out, n_threads)
        check_range(program, X, out, out.dtype)
    if not np.isfinite(out).all():
        i = int(np.argmin(np.isfinite(out)))
        raise ValueError(
            f"k(x, x) of row {i} is {out[i]}, so that nothing has a distance from it; scale the samples, or "
            f"use {kernel!r}.normalize()"
        )
    return out


def by_kernel_values(program, X, Z, k, left_diagonal, right_diagonal, left_out=None, n_threads=None):
    """The k nearest by k(x, x) − 2k(x, z) + k(z, z), LN14's quiz.

    Parameters
    ----------
    program : Program
    X, Z : ndarray, csr_array or sequence
        Queries, and training rows; Z None for X.
    k : int
    left_diagonal : ndarray of shape (n,) or None
        k(x, x); None leaves it out of the scores.
    right_diagonal : ndarray of shape (m,)
    left_out, n_threads
        As for `by_plain_distance`.

    Returns
    -------
    scores : ndarray of shape (n, k)
    indices : ndarray of shape (n, k)

    Raises
    ------
    NotADistance
        For a score that is negative beyond rounding.
    """
    prepared = Prepared(program, X, Z)
    n = prepared.shape[0]
    right = cast_side(prepared.right, np.float64)
    known = left_diagonal is not None
    rows = left_diagonal if known else np.zeros(n)
    # Offsets that cancel (a centred kernel) bring rounding of their own size.
    offsets = [np.max(np.abs(side.vecs), initial=0.0) for side in (prepared.left, prepared.right)]
    tolerance = (_NEGATIVE, 1e3 * np.finfo(np.float64).eps * sum(offsets)) if known else (-1.0, 0.0)
    error = 1e-14 * (np.abs(rows) + np.max(np.abs(right_diagonal)))
    strips = prepared._strips() if program.block_leaves else [(slice(0, n), prepared, None)]
    scores, indices = np.empty((n, k)), np.empty((n, k), dtype=np.intp)
    for some, part, blocks in strips:
        if blocks:
            blocks = {leaf: np.asarray(block, dtype=np.float64) for leaf, block in blocks.items()}
        scores[some], indices[some], _, bad = _native.nearest(
            program,
            cast_side(part.left, np.float64),
            right,
            k,
            rows=rows[some],
            columns=right_diagonal,
            row_error=error[some],
            left_out=None if left_out is None else left_out[some],
            tolerance=tolerance,
            blocks=blocks,
            n_threads=n_threads,
        )
        if bad:
            raise NotADistance(
                f"the squared distance k(x, x) - 2k(x, z) + k(z, z) of row {some.start + bad[0]} and "
                f"training row {bad[1]} is {bad[2]:.6g}, which is negative: the kernel is not positive "
                "semidefinite, and has no distance; use another kernel or other parameters "
                "(mercer.kernels.check_psd tests a matrix)"
            )
    return scores, indices

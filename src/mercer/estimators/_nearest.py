"""Neighbours in feature space: by plain distances where the order is theirs, else by kernel values.

Place on the way: ``kernels.distance``, ``_nearest_integers`` → **_nearest** → ``neighbors``.

Plain distances are bounded by those of integers or by tiles of centred features in float32, and decided in
float64 by the differences of the raw rows: what is returned is as if every distance had been taken so, with
equal ones in the order of the training rows.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import KDTree

from .. import _native
from .._threads import n_threads as count_threads
from ..kernels.prepared import Prepared, cast_side, check_range, diagonal, sides
from ..kernels.program import Leaf, LeafKind, Program, Side
from ._nearest_integers import IntegerRows, each_stretch

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
# Integers pay from so many multiplications on and up to a width, as long as what they leave open takes less
# than they save: ns of a second bound, of a distance and each of its features, and half of what a feature of
# a pair takes in a tile of floats.
_INTEGER_WORK, _INTEGER_WIDTH = 2e8, 10**6
_SECOND, _EXACT, _EXACT_FEATURE, _FEATURE = 40.0, 30.0, 0.2, 0.02
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

        each_stretch(fill, F, _BLOCK, self.threads)
        return rounded, norms

    def search(self, raw, k, rows, left_out):
        """`_native.nearest` of some of the rows."""
        left, norms = self.left[rows], self.left_norms[rows]
        columns = -self.unit * self.right_norms + (self.right_norms if self.product else 0.0)
        kind, raw_left, raw_right, weight = raw
        return _native.nearest(
            self.program,
            Side(len(norms), [left], np.empty((0, len(norms)))),
            Side(len(columns), [self.right], np.empty((0, len(columns)))),
            k,
            rows=norms if self.product else np.zeros(len(norms)),
            columns=columns,
            row_error=np.full(len(norms), np.inf) if self.lost else self.unit * norms + self.tiny,
            coefficient=-2.0 if self.product else 1.0,
            left_out=None if left_out is None else left_out[rows],
            bounds=(2.000001 * self.unit * self.right_norms, self.scale),
            raw=(kind, raw_left[rows], raw_right, weight),
            n_threads=self.threads,
        )[:3]


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
        Of the bounds; None is integers or float32, or float64 where a first strip shows that these leave too
        much open. Results are the same.

    Returns
    -------
    distances : ndarray of shape (n, k)
        float64, those of the form's leaf.
    indices : ndarray of shape (n, k)
    """
    n, m = raw[1].shape[0], raw[2].shape[0]
    if dtype is not None or n <= 4 * _PROBE:
        return _Bounded(raw, np.float32 if dtype is None else dtype, n_threads).search(
            raw, k, slice(0, n), left_out
        )[:2]
    found = _by_integers(raw, k, left_out, count_threads(n_threads))
    if found is not None:
        return found
    bounded = _Bounded(raw, np.float32, n_threads)
    first = bounded.search(raw, k, slice(0, _PROBE), left_out)
    if first[2] > _PROBE * (2 * k + 0.03 * m):
        bounded = _Bounded(raw, np.float64, n_threads)
    rest = bounded.search(raw, k, slice(_PROBE, n), left_out)
    return tuple(np.concatenate(parts) for parts in zip(first[:2], rest[:2], strict=True))


def _by_integers(raw, k, left_out, threads):
    """The same from integers' bounds; None where these are of no use, or some rows show them to be slow."""
    kind, left, right, _ = raw
    if kind != LeafKind.SQDIST or sp.issparse(right):
        return None
    (n, d), m = left.shape, len(right)
    if float(n) * m * d < _INTEGER_WORK or d > _INTEGER_WIDTH:
        return None
    rows = IntegerRows(raw, threads)
    if not rows.usable:
        return None
    out = np.empty((n, k)), np.empty((n, k), np.int32)
    probe = np.arange(_PROBE) * (n // _PROBE)
    n_second, n_exact = rows.search(k, probe, left_out, out)
    if _SECOND * n_second + (_EXACT + _EXACT_FEATURE * d) * n_exact > _FEATURE * d * _PROBE * m:
        return None
    rows.search(k, np.delete(np.arange(n), probe), left_out, out)
    return out[0], out[1].astype(np.intp)


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
    strips = prepared.strips() if program.block_leaves else [(slice(0, n), prepared, None)]
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

"""Nearest neighbours.

Place on the way: ``loading`` → **neighbors** → ``_nearest`` (compiled).
"""

import numpy as np

from .loading import _gram, _nearest, count_threads, dtype_of

__all__ = ["integer_panels", "nearest", "nearest_by_integers", "nearest_pairs"]

# Candidates of the rows of one task, in bytes; and tasks that are enough for the threads.
_CANDIDATE_BYTES, _TASKS = 2**24, 32


def _shares(n, m, k, dtype):
    """Rows of a strip and columns of a part; they depend on the problem alone."""
    tile = _nearest.tile(np.dtype(dtype))
    strip = min(tile, _CANDIDATE_BYTES // (32 * (2 * k + 64)), -(-n // _TASKS))
    strip = max(8, -(-strip // 8) * 8)
    strip = min(tile, max(strip, 48 if k < 1000 else 8))
    n_parts = max(1, min(-(-_TASKS // -(-n // strip)), m // (8 * tile)))
    return strip, -(-m // n_parts // tile) * tile


def nearest(
    program, left, right, k, *, rows, columns, row_error, coefficient=-2.0, left_out=None, bounds=None,
    raw=None, tolerance=(-1.0, 0.0), blocks=None, n_threads=None,
):  # fmt: skip
    """The k columns of the least score for each row, without an n×m array; ties go to the first column.

    By kernel values v the score is ``(rows + columns) − 2v``; with `bounds` it is the distance of `raw`
    rows, and tiles tell what it is at least: ``rows − row_error + columns + coefficient · v``, in units of
    it times the scale.

    Parameters
    ----------
    program, left, right, blocks, n_threads
        As in `gram`; a program without operations is its first leaf.
    k : int
        At most m, or m − 1 with `left_out`.
    rows, row_error : ndarray of shape (n,)
    columns : ndarray of shape (m,)
    coefficient : float
    left_out : ndarray of shape (n,) or None
        The column that each row leaves out.
    bounds : tuple or None
        Widths of the columns' bounds (m,), and the scale.
    raw : tuple or None
        (kind, left, right, weight): rows whose distances decide.
    tolerance : tuple
        (a, b): a score below −(a (|rows| + |columns|) + b) is reported, others are cut at 0. With a negative
        a scores may have any sign.

    Returns
    -------
    scores : ndarray of shape (n, k)
    indices : ndarray of shape (n, k)
        Both in the order of (score, index).
    n_exact : int
        Pairs whose raw distance was taken.
    bad : tuple or None
        (row, column, score) of the first score that rounding does not explain.
    """
    dtype = dtype_of(left)
    n, m = left.n, right.n
    threads = count_threads(n_threads)
    run = _gram.Run(program, left, right, False, blocks, dtype, threads, cancels=None)
    search = _nearest.Search()
    if raw is not None:
        search.set_raw(*raw)
        search.set_bounds(*bounds)
    if left_out is not None:
        search.set_left_out(left_out)
    search.set_tolerance(*tolerance)
    search.set_values(run, coefficient, rows, columns, row_error)
    strip, part = _shares(n, m, k, dtype)
    n_parts = -(-m // part)
    scores, indices = np.empty((n, n_parts, k)), np.empty((n, n_parts, k), dtype=np.int32)
    (_, n_exact), bad = search.search((n, m), k, strip, part, scores, indices, threads)
    scores, indices = scores.reshape(n, -1), indices.reshape(n, -1).astype(np.intp)
    if n_parts > 1:
        indices[indices < 0] = m  # what a part had too few of comes last
        order = np.lexsort((indices, scores), axis=-1)[:, :k]
        scores, indices = np.take_along_axis(scores, order, 1), np.take_along_axis(indices, order, 1)
    return scores, indices, n_exact, bad


def integer_panels(integers, norms):
    """Rows of 16-bit integers as `nearest_by_integers` takes them for columns.

    Parameters
    ----------
    integers : ndarray of int16 of shape (m, q)
        q even.
    norms : ndarray of int32 of shape (m,)
        Squared.

    Returns
    -------
    panels : ndarray of int32 of shape (m / lanes, q / 2, lanes)
        Pairs of integers, zero beyond the end.
    starts : ndarray of int32
        What a product has to be more than, negated: −⌊norm / 2⌋.
    """
    lanes = _nearest.panel_width()
    m, q = integers.shape
    padded = np.zeros((-(-m // lanes) * lanes, q // 2), np.int32)
    padded[:m] = integers.view(np.int32)
    starts = np.zeros(len(padded), np.int32)
    starts[:m] = -(norms // 2)
    starts[m:] = -(2**30)
    return np.ascontiguousarray(padded.reshape(-1, lanes, q // 2).transpose(0, 2, 1)), starts


def nearest_by_integers(raw, k, order, first, panels, second, bounds, left_out, out, n_threads=None):
    """As `nearest` by the distance of `raw` rows, bounded by those of integers, for some rows.

    Parameters
    ----------
    raw, k, left_out, n_threads
        As in `nearest`.
    order : tuple of ndarray of int
        Rows that are searched for (s,), near ones best together; near which column those near each are found
        (s,), for limits come from these; and which rows the columns of the panels are (m,).
    first, second : tuple
        Integers of both sides, (left, its squared norms, right, its squared norms, slack) with int16 (n, q)
        and (m, q) and no squared norm above 2³⁰: |x̂ − ẑ| is at most ``scale`` times the rows' distance +
        slack. Of the first, q is even; of the second, which may be None, a multiple of 64. For the last of
        them and rows that are inside it is at least ``scale`` times the distance − slack.
    panels : tuple
        `integer_panels` of the first's right side.
    bounds : tuple
        (left, right, scale): masks of both sides' rows that are inside, (n,) and (m,).
    out : tuple of ndarray of shape (n, k)
        Scores in float64 and indices in int32; those of the rows are written.

    Returns
    -------
    n_second, n_exact : int
        Pairs whose second integers, and whose raw rows were compared.
    """
    threads = count_threads(n_threads)
    search = _nearest.Search()
    search.set_raw(*raw)
    search.set_first(first, panels, *order)
    if second is not None:
        search.set_second(second)
    search.set_inside(*bounds)
    if left_out is not None:
        search.set_left_out(left_out)
    n, m = len(order[0]), len(first.right)
    scores, indices = (part.reshape(-1, 1, k) for part in out)
    strip = _shares(n, m, k, np.dtype(np.float32))[0]
    return search.search((n, m), k, strip, m, scores, indices, threads)[0]


def nearest_pairs(raw, indices, n_threads=None):
    """Distances of row i of the left `raw` rows and right rows ``indices[i]``, as in `nearest`."""
    search = _nearest.Search()
    search.set_raw(*raw)
    out = np.empty(indices.shape)
    search.pairs(np.ascontiguousarray(indices, dtype=np.int32), out, count_threads(n_threads))
    return out

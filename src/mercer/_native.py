"""The only importer of compiled code: programs on tiles, and Cholesky factors by tiles.

Place on the way: ``kernels``, ``gram``, ``solvers`` → **_native** → ``_gram``, ``_cholesky``, … (compiled).
Dtypes, layouts and thread counts are settled here; the compiled modules get buffers that fit.
"""

import os
import warnings
from contextlib import contextmanager

import numpy as np
from scipy import sparse

from mercer._arrays import column_scales
from mercer._threads import n_threads as _threads_asked_for
from mercer._threads import one_blas_thread

from .kernels.program import Gradient, Side, Tangent

__all__ = [
    "DUAL_JOB",
    "cholesky",
    "cholesky_inverse_diagonal",
    "cholesky_solve",
    "coarse",
    "coarse_solve",
    "dual",
    "dual_diagonal",
    "dual_fill",
    "dual_jobs",
    "dual_layout",
    "dual_place",
    "dual_run",
    "dual_units",
    "empty",
    "gram",
    "isa",
    "isas",
    "matmul",
    "matmul_parts",
    "matrix_add_rows",
    "matrix_square",
    "integer_panels",
    "nearest",
    "nearest_by_integers",
    "nearest_pairs",
    "openmp",
    "pull",
    "pull_push",
    "push",
    "scaled_part",
    "simd",
    "sweep",
    "symmetric_product",
]


@contextmanager
def _idle_threads_sleep():
    """Have OpenMP's idle threads sleep, unless the environment says how they are to wait.

    By default libgomp's threads spin for milliseconds after each loop, on the cores that BLAS or another
    process wants next: a fit of 400 rows then takes 78 ms where it takes 1.6 (two busy cores). The library
    reads the setting once, when it is loaded.
    """
    if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        yield
        return
    os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        yield
    finally:
        del os.environ["OMP_WAIT_POLICY"]


with _idle_threads_sleep():
    from mercer import _cholesky, _dual, _gram, _nearest, _sweep

isa, isas, openmp = _gram.isa, _gram.isas, _gram.openmp
sweep = _sweep

if (_forced := os.environ.get("MERCER_ISA")) and _forced != isa():
    warnings.warn(
        f"MERCER_ISA={_forced!r} is none of the instruction sets here, {isas()}; {isa()!r} is used",
        RuntimeWarning,
        stacklevel=2,
    )

_SIMD_FUNCTIONS = ("exp", "expneg", "log", "log1p", "sin", "cos", "sinpi", "tanh", "sqrt", "rint")
_FLOAT64 = np.dtype(np.float64)
# More threads than four per core only cost memory, and systems refuse to start thousands.
_MOST_THREADS = 4 * (os.cpu_count() or 1)

# GNU's OpenMP waits for ever in a child that was forked after parallel loops ran: it gets one thread.
_parallel = {"ran": False, "lost": False}


def _after_fork():
    _parallel["lost"] = _parallel["ran"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _count_threads(n_threads):
    count = min(_threads_asked_for(n_threads), _MOST_THREADS)
    if _parallel["lost"]:
        return 1
    _parallel["ran"] = _parallel["ran"] or count > 1
    return count


def empty(shape, dtype, n_threads=None):
    """An uninitialised array whose memory is ready to be filled.

    A large one begins on a 64-byte boundary, so that whole cache lines are stored past the caches, and its
    pages are there: those of a result that was let go, or new ones, made in parallel.
    """
    dtype = np.dtype(dtype)
    size = dtype.itemsize * shape[0] * shape[1]
    if size < 2**22:
        return np.empty(shape, dtype)
    return np.frombuffer(_gram.Memory(size, _count_threads(n_threads)), dtype).reshape(shape)


def _dtype(left, default=_FLOAT64):
    for features in left.features:
        if features is not None:
            return features.dtype
    return default


def _adjacent_columns(out):
    # The rows of a field of a packed record are no whole number of items apart: not aligned.
    adjacent = out.strides[1] == out.itemsize and out.strides[0] >= out.itemsize * out.shape[1]
    return adjacent and out.flags.aligned


def gram(
    program, left, right, out, symmetric=False, blocks=None, n_threads=None, cancels=None, on_step=None
):  # fmt: skip
    """Fill ``out`` with the kernel of every pair of rows.

    Parameters
    ----------
    program : Program
    left, right : Side
        Features of one dtype, float32 or float64.
    out : ndarray of shape (n, m), any strides
    symmetric : bool
        `right` is `left`: half of the tiles are computed, and the result is exactly symmetric.
    blocks : dict, optional
        Per BLOCK leaf its (n, m) matrix.
    n_threads : int, optional
    cancels : float, optional
        An expanded squared distance below this part of the rows' squared norms is recomputed from
        differences. None keeps the distance's own digits, 0 those that one of the size of the norms has.
    on_step : callable, optional
        ``on_step()``, called now and then; may raise.
    """
    dtype = _dtype(left, out.dtype)
    if 0 in out.shape:
        return
    direct = _adjacent_columns(out) and out.dtype in (dtype, np.float32)
    if not direct and out.dtype == dtype and _adjacent_columns(out.T):
        # Kernels are symmetric functions.
        swapped = {index: np.asarray(block).T for index, block in (blocks or {}).items()}
        gram(program, right, left, out.T, symmetric, swapped, n_threads, cancels, on_step)
        return
    target = out if direct else np.empty(out.shape, dtype)
    threads = _count_threads(n_threads)
    run = _gram.Run(program, left, right, symmetric, blocks, dtype, threads, cancels=cancels)
    run.gram(target, on_step)
    if target is not out:
        out[...] = target


def matmul(program, left, right, V, out, symmetric=False, blocks=None, n_threads=None):
    """Fill ``out`` (n, p), float64, with K @ V, V (m, p), without forming K.

    Memory is O(n·p) and O(d) per row of the packed copies. The other parameters are as in `gram`.
    """
    dtype = _dtype(left)
    if 0 in out.shape or 0 in V.shape:
        out[...] = 0.0
        return
    scale = None if V.dtype == dtype else column_scales(V)
    V = np.ascontiguousarray(V if scale is None else V / scale, dtype=dtype)
    target = out if out.flags.c_contiguous and out.dtype == _FLOAT64 else np.empty(out.shape)
    run = _gram.Run(program, left, right, symmetric, blocks, dtype, _count_threads(n_threads))
    run.matmul(V, target, np.array([0, right.n], dtype=np.intp))
    if scale is not None:
        target *= scale
    if target is not out:
        out[...] = target


def matmul_parts(program, left, right, V, bounds, cancels=None, n_threads=None):
    """Products K[:, part] @ V[part] with parts of the columns, without forming K.

    Parameters
    ----------
    program, left, right, n_threads
        As in `gram`; without BLOCK leaves.
    V : ndarray of shape (m, p)
    bounds : ndarray of int
        Part q is the columns ``bounds[q]`` to ``bounds[q + 1]``; all but the last, which is m, are multiples
        of ``dual_units(dtype)[0]``.
    cancels : float, optional
        As in `gram`.

    Returns
    -------
    ndarray of shape (n_parts, n, p)
        float64.
    """
    dtype = _dtype(left)
    out = np.empty((len(bounds) - 1, left.n, V.shape[1]))
    if 0 in out.shape or V.shape[0] == 0:
        out[...] = 0.0
        return out
    V = np.ascontiguousarray(V, dtype=dtype)
    threads = _count_threads(n_threads)
    run = _gram.Run(program, left, right, False, None, dtype, threads, densify=True, cancels=cancels)
    run.matmul(V, out, np.ascontiguousarray(bounds, dtype=np.intp))
    return out


def _doubles(array):
    if array is None:
        return None
    if sparse.issparse(array):
        array = array.toarray()
    return np.ascontiguousarray(array, dtype=np.float64)


def _dense(side):
    return Side(side.n, [_doubles(f) for f in side.features], np.asarray(side.vecs, dtype=np.float64))


def _adjoint(program, left, right, tangent, blocks, n_threads):
    n_leaves = len(program.leaves)
    if tangent is not None:
        tangent = Tangent(
            left=[_doubles(f) for f in tangent.left or [None] * n_leaves],
            right=[_doubles(f) for f in tangent.right or [None] * n_leaves],
            left_vecs=_doubles(tangent.left_vecs),
            right_vecs=_doubles(tangent.right_vecs),
            slots=_doubles(tangent.slots),
            log_weights=None if tangent.log_weights is None else [_doubles(w) for w in tangent.log_weights],
            blocks={index: _doubles(block) for index, block in (tangent.blocks or {}).items()},
        )
    return _gram.Adjoint(program, _dense(left), _dense(right), tangent, blocks, _count_threads(n_threads))


def push(program, left, right, tangent, out, blocks=None, n_threads=None):
    """Fill ``out`` (n, m) with the directional derivative of K along a `Tangent`."""
    target = out if out.flags.c_contiguous and out.dtype == _FLOAT64 else np.empty(out.shape)
    _adjoint(program, left, right, tangent, blocks, n_threads).push(target)
    if target is not out:
        out[...] = target


def pull(program, left, right, G, blocks=None, n_threads=None):
    """The `Gradient` of ⟨G, K⟩ in what belongs to the rows, and in slots, weights and blocks.

    Parameters
    ----------
    program, left, right, blocks, n_threads
        As in `gram`.
    G : ndarray of shape (n, m), or a pair of arrays (C, V)
        The pair, (n, p) and (m, p), stands for C @ V.T, which is not formed.
    """
    return Gradient(*_adjoint(program, left, right, None, blocks, n_threads).pull(G)[0])


def pull_push(program, left, right, G, tangent, blocks=None, n_threads=None):
    """The gradient as by `pull`, and its directional derivative along a `Tangent` at fixed G."""
    first, second = _adjoint(program, left, right, tangent, blocks, n_threads).pull(G)
    return Gradient(*first), Gradient(*second)


def simd(name, x):
    """A function of the vector library on an array of float32 or float64."""
    x = np.ascontiguousarray(x)
    y = np.empty_like(x)
    if _gram.simd(_SIMD_FUNCTIONS.index(name), x, y):
        raise ValueError(f"the vector library has no {name}")
    return y


# ---------------------------------------------------------------- Cholesky factors

_PRODUCT_COLUMNS = 64


def cholesky(A, n_threads=None):
    """Overwrite the lower triangle of A with its Cholesky factor L; what is strictly above stays.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Fortran order, float64 or float32.
    n_threads : int, optional
        Changes nothing in the result.

    Returns
    -------
    int
        0, or the pivot that was not positive, counted from 1.
    """
    with one_blas_thread():
        return _cholesky.factor(A, _count_threads(n_threads))


def cholesky_solve(L, B, n_threads=None):
    """``(L Lᵀ)⁻¹ B`` for B of shape (n, p), a new array in Fortran order and L's dtype."""
    B = np.array(B, dtype=L.dtype, order="F")
    if B.size:
        with one_blas_thread():
            _cholesky.solve(L, B, _count_threads(n_threads))
    return B


def cholesky_inverse_diagonal(L, n_threads=None):
    """``diag((L Lᵀ)⁻¹)``, of shape (n,)."""
    out = np.empty(len(L), L.dtype)
    with one_blas_thread():
        _cholesky.inverse_diagonal(L, out, _count_threads(n_threads))
    return out


def symmetric_product(A, diagonal, V, n_threads=None):
    """``A V`` for the symmetric A of this strict upper triangle and diagonal; Fortran order, A's dtype."""
    V = np.asfortranarray(V, dtype=A.dtype)
    out = np.empty(V.shape, A.dtype, order="F")
    diagonal = np.ascontiguousarray(diagonal, dtype=A.dtype)
    with one_blas_thread():
        # Partial sums take 16 times the memory of the columns at hand.
        for start in range(0, V.shape[1], _PRODUCT_COLUMNS):
            some = slice(start, start + _PRODUCT_COLUMNS)
            _cholesky.symmetric_product(A, diagonal, V[:, some], out[:, some], _count_threads(n_threads))
    return out


def scaled_part(K, rows, d, n_threads=None):
    """The lower triangle of ``diag(d) K[rows, rows] diag(d)``: float32 in Fortran order, undefined above.

    Parameters
    ----------
    K : ndarray of shape (m, m)
        Symmetric, float64, C order.
    rows : ndarray of int of shape (n,)
    d : ndarray of shape (n,)
    n_threads : int, optional
        Changes nothing in the result.

    Returns
    -------
    ndarray of shape (n, n)
    """
    out = empty((len(rows), len(rows)), np.float32, n_threads).T
    d = np.ascontiguousarray(d, dtype=np.float64)
    _cholesky.scaled_part(K, rows.astype(np.int32), d, out, _count_threads(n_threads))
    return out


def coarse(L, n_threads=None):
    """A Cholesky factor (n, n), Fortran order, float32, in a quarter of the memory, for `coarse_solve`.

    What is below tiles on the diagonal is rounded to 2⁻¹⁶ of the largest in its column.
    """
    return _cholesky.coarse(L, _count_threads(n_threads))


def coarse_solve(factor, b, n_threads=None):
    """``(L Lᵀ)⁻¹ b`` for b of shape (n,): float32."""
    x = np.array(b, dtype=np.float32)
    _cholesky.coarse_solve(*factor, x, _count_threads(n_threads))
    return x


# ---------------------------------------------------------------- duals of support vector machines

DUAL_JOB = _dual.JOB


def dual_units(dtype):
    """The multiples at which groups of samples begin, and the columns that a matrix has beyond its rows."""
    return _dual.units(np.dtype(dtype))


def matrix_square(matrix, places):
    """Entries of a symmetric float32 or float64 matrix among some places: float64, in Fortran order."""
    out = np.empty((len(places), len(places)), order="F")
    _dual.square(matrix, places.astype(np.int32), out)
    return out


def matrix_add_rows(matrix, places, coefficients, out):
    """Add to ``out`` (n,), float64, the sum of coefficient · row over some rows of such a matrix (m, n)."""
    _dual.add_rows(matrix, places.astype(np.int32), np.ascontiguousarray(coefficients), out)


def dual_layout(rows, offsets, unit):
    """Where groups and samples are, and the row at each place, with groups at multiples of a unit."""
    return _dual.lay_out(rows, offsets, unit)


def dual_jobs(jobs, starts, offsets, places):
    """The `DUAL_JOB`s of problems over such groups, and what belongs to the samples of each.

    Returns
    -------
    table : ndarray of DUAL_JOB
    ends : ndarray of int of shape (p,)
        Where each problem's samples end.
    taken, samples : ndarray of int
        Their variables, one problem after another, and which of all samples they are.
    signs, sets : ndarray
        Their ranges' signs, and their problems' sets.
    """
    return _dual.lay_jobs(jobs, starts, offsets, places)


def dual_place(linear, lower, upper, taken, samples, signs, sets, out):
    """Write c, l and u of samples (n_sets, n) to ``out`` (3, n_variables), by variable."""
    _dual.place(linear, lower, upper, taken, samples, signs, sets, out)


def dual_fill(totals, firsts, counts, upper):
    """Starts of fixed sums: each total out of the boxes [0, upper] of a range, the first ones first.

    Parameters
    ----------
    totals : ndarray of shape (r,)
        A negative one comes out of [−upper, 0].
    firsts, counts : ndarray of int of shape (r,)
        Where each range begins in `upper`, and how long it is.
    upper : ndarray of shape (n,)

    Returns
    -------
    ndarray
        Of one range after another.
    """
    out = np.empty(int(counts.sum()))
    _dual.fill(totals, firsts, counts, upper, out)
    return out


def dual_run(program, side, dtype, n_threads=None, cancels=None):
    """Kernel rows by a program over one side, for `dual`."""
    threads = _count_threads(n_threads)
    return _gram.Run(program, side, side, True, None, np.dtype(dtype), threads, densify=True, cancels=cancels)


def dual_diagonal(run, out, n_threads=None):
    """Fill ``out`` (n,), of the run's dtype, with the first entries (i, i) of a `dual_run`."""
    _dual.diagonal(run, out, _count_threads(n_threads))


def dual(
    run, matrix, diagonal, linear, lower, upper, jobs, beta, field, tol, max_iter, cache_bytes, shrinking,
    on_step, n_threads=None,
):  # fmt: skip
    """Solve problems of ``native/dual.h``; results are written to jobs, beta and field.

    Parameters
    ----------
    run : Run or None
        Of `dual_run`; with None rows come from `matrix`.
    matrix : ndarray of shape (n, n + columns) or None
        See `dual_units`.
    diagonal : ndarray of shape (n,)
        Its dtype is that of the rows.
    linear, lower, upper : ndarray
        float64: of the variables of all jobs, each at its offset.
    jobs : ndarray of DUAL_JOB
    beta : ndarray
        float64, likewise: the start and the solution.
    field : ndarray or None
        float64, likewise: gets c − Kβ. It may be `linear`.
    tol : float
    max_iter : int
    cache_bytes : float
    shrinking : bool
    on_step : callable or None
        ``on_step(n_done, gap)``.
    n_threads : int, optional
    """
    threads = _count_threads(n_threads)
    # dual.c keeps positions as int32, and a cache for each problem that is under way
    share = int(min(cache_bytes / max(1, min(threads, len(jobs))), 2**62))
    _dual.solve(
        run, matrix, diagonal, linear, lower, upper, jobs, beta, field, float(tol), int(max_iter), share,
        bool(shrinking), on_step, threads,
    )  # fmt: skip


# ---------------------------------------------------------------- neighbours

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
    dtype = _dtype(left)
    n, m = left.n, right.n
    threads = _count_threads(n_threads)
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
    threads = _count_threads(n_threads)
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
    search.pairs(np.ascontiguousarray(indices, dtype=np.int32), out, _count_threads(n_threads))
    return out

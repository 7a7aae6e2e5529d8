"""Duals of support vector machines.

Place on the way: ``loading`` → **duals** → ``_dual`` (compiled).
"""

import numpy as np

from .loading import _dual, _gram, count_threads

__all__ = [
    "DUAL_JOB",
    "DUAL_PATH_CAPPED",
    "DUAL_PATH_ENDED",
    "DUAL_PATH_FAR",
    "DUAL_PATH_ROUNDED",
    "dual",
    "dual_diagonal",
    "dual_fill",
    "dual_lay_jobs",
    "dual_layout",
    "dual_path",
    "dual_place",
    "dual_run",
    "dual_units",
    "matrix_add_rows",
    "matrix_entries",
]

DUAL_JOB = _dual.JOB
DUAL_PATH_ENDED, DUAL_PATH_ROUNDED = _dual.PATH_ENDED, _dual.PATH_ROUNDED
DUAL_PATH_CAPPED, DUAL_PATH_FAR = _dual.PATH_CAPPED, _dual.PATH_FAR

# A size_t has room for it.
_MOST_BYTES = 2**62


def dual_units(dtype):
    """The multiples at which groups of samples begin, and the columns that a matrix has beyond its rows."""
    return _dual.units(np.dtype(dtype))


def matrix_entries(matrix, rows, columns):
    """Entries of a float32 or float64 matrix at some rows and columns: float64."""
    out = np.empty((len(rows), len(columns)))
    _dual.entries(matrix, rows.astype(np.int32), columns.astype(np.int32), out)
    return out


def matrix_add_rows(matrix, places, coefficients, out):
    """Add to ``out`` (n,), float64, the sum of coefficient · row over some rows of such a matrix (m, n)."""
    _dual.add_rows(matrix, places.astype(np.int32), np.ascontiguousarray(coefficients), out)


def dual_layout(rows, offsets, unit):
    """Where groups and samples are, and the row at each place, with groups at multiples of a unit."""
    return _dual.lay_out(rows, offsets, unit)


def dual_lay_jobs(jobs, starts, offsets, places):
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
    threads = count_threads(n_threads)
    return _gram.Run(program, side, side, True, None, np.dtype(dtype), threads, densify=True, cancels=cancels)


def dual_diagonal(run, out, n_threads=None):
    """Fill ``out`` (n,), of the run's dtype, with the first entries (i, i) of a `dual_run`."""
    _dual.diagonal(run, out, count_threads(n_threads))


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
    threads = count_threads(n_threads)
    # a cache for each problem that is under way
    share = cache_bytes / max(1, min(threads, len(jobs)))
    _dual.solve(
        run, matrix, diagonal, linear, lower, upper, jobs, beta, field, float(tol), int(max_iter),
        int(min(share, _MOST_BYTES)), bool(shrinking), on_step, threads,
    )  # fmt: skip


def dual_path(
    run, matrix, diagonal, jobs, state, at, end, begun, tol, max_iter, cache_bytes, shrinking, on_step
):
    """Solve one problem for each of some C of a `DualPath`; see ``native/dual.h``.

    Parameters
    ----------
    run, matrix, diagonal
        As for `dual`.
    jobs : ndarray of DUAL_JOB of shape (n,)
        The problem, for each C; their results are written.
    state : DualPath
    at, end : int
        The first C, and the one after the last.
    begun : bool
        Whether the first one goes on from its own β and F, not from those of the one before.
    tol, max_iter, cache_bytes, shrinking, on_step
        As for `dual`.

    Returns
    -------
    at : int
        Where it ended.
    left : int
        Why: one of ``DUAL_PATH_…``.
    """
    return _dual.path(
        run, matrix, diagonal, jobs, state, at, end, bool(begun), float(tol), int(max_iter),
        int(min(cache_bytes, _MOST_BYTES)), bool(shrinking), on_step,
    )  # fmt: skip

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The dual solver of support vector machines.

`mercer._native` is the only importer. dual.c solves; this module describes arrays to it, and looks for
signals when it asks.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t

import numpy as np

cdef extern from "mercer.h" nogil:
    ctypedef struct MercerRun:
        pass

    ctypedef struct MercerTable:
        ptrdiff_t panel_width, smo_step
        void (*smo_add)(
            ptrdiff_t n, double *F, ptrdiff_t n_rows, const void *rows, ptrdiff_t ld, const int32_t *places,
            const double *a,
        ) noexcept nogil

    const MercerTable *mercer_table(int is_float32) noexcept
    int mercer_openmp() noexcept

cdef extern from "dual.h" nogil:
    int DUAL_STOPPED, DUAL_NO_MEMORY

    ctypedef struct MercerDualJob:
        int64_t start[2]
        int64_t length[2]
        int64_t offset, separate
        double epsilon

    ctypedef struct MercerDualProgress:
        int64_t n_done
        double gap

    ctypedef struct MercerDual:
        const MercerTable *table
        const MercerRun *run
        const void *matrix
        ptrdiff_t ld, n
        const void *diagonal
        const double *linear
        const double *lower
        const double *upper
        double *beta
        double *field
        double tol, scale
        int64_t max_iter
        size_t cache_bytes
        int shrinking
        int (*poll)(void *context) noexcept
        void *context
        MercerDualProgress progress

    int mercer_dual(MercerDual *dual, MercerDualJob *jobs, ptrdiff_t n_jobs, int n_threads) noexcept
    int DUAL_PATH_ENDED, DUAL_PATH_ROUNDED, DUAL_PATH_CAPPED, DUAL_PATH_FAR

    ctypedef struct MercerDualPath:
        ptrdiff_t size, at, end
        const double *C
        const double *linear
        const double *least
        const double *most
        double *lower
        double *upper
        double *beta
        double *field
        double *known
        double rounding, noise
        double *seconds
        int64_t left

    int mercer_dual_path(MercerDual *dual, MercerDualJob *jobs, MercerDualPath *path, int begun) noexcept
    int mercer_dual_diagonal(const MercerRun *run, const MercerTable *table, void *out, ptrdiff_t n,
                             int n_threads) noexcept

# Why a path ended.
PATH_ENDED, PATH_ROUNDED, PATH_CAPPED, PATH_FAR = (
    DUAL_PATH_ENDED, DUAL_PATH_ROUNDED, DUAL_PATH_CAPPED, DUAL_PATH_FAR
)

# The fields of MercerDualJob, in their order.
JOB = np.dtype(
    [
        ("start", np.int64, 2),
        ("length", np.int64, 2),
        ("offset", np.int64),
        ("separate", np.int64),
        ("started", np.int64),
        ("epsilon", np.float64),
        ("status", np.int64),
        ("n_iter", np.int64),
        ("n_rows", np.int64),
        ("gap", np.float64),
        ("objective", np.float64),
        ("bound", np.float64),
        ("bias", np.float64, 2),
        ("most", np.float64, 2),
        ("least", np.float64, 2),
    ]
)
if JOB.itemsize != sizeof(MercerDualJob):
    raise ImportError("the fields of a job differ between dual.h and _dual.pyx")


cdef class _Watch:
    """What polling needs, and the exception that it met."""

    cdef MercerDual *dual
    cdef object on_step, error

    cdef int look(self):
        try:
            PyErr_CheckSignals()
            if self.on_step is not None:
                self.on_step(self.dual.progress.n_done, self.dual.progress.gap)
        except BaseException as error:
            self.error = error
            return 1
        return 0


cdef int _poll(void *context) noexcept with gil:
    return (<_Watch>context).look()


def openmp():
    """The OpenMP version that this module was compiled with."""
    return mercer_openmp()


def units(dtype):
    """Multiples at which samples of a class begin, and how many more columns than rows a matrix has."""
    cdef const MercerTable *table = mercer_table(dtype == np.float32)
    return table.panel_width, table.smo_step


def diagonal(run, out, int n_threads):
    """Fill out, of the run's dtype, with the first entries (i, i) of a run."""
    cdef const MercerTable *table = mercer_table(out.dtype == np.float32)
    cdef const MercerRun *source = <const MercerRun *>PyCapsule_GetPointer(run.capsule(), b"MercerRun")
    cdef unsigned char[::1] memory = out.view(np.uint8)
    cdef ptrdiff_t n = len(out)
    cdef int status
    with nogil:
        status = mercer_dual_diagonal(source, table, &memory[0], n, n_threads)
    if status:
        raise MemoryError("no memory for the tiles")


# ---- layouts: many small loops, each of which NumPy would make several arrays for --------------------------


def lay_out(const ptrdiff_t[::1] rows, const ptrdiff_t[::1] offsets, ptrdiff_t unit):
    """Places of samples whose groups begin at multiples of a unit.

    Group g is rows[offsets[g]] to rows[offsets[g + 1]]. Returned are where each group begins and all end, the
    place of each sample, and which row each place stands for: in between the last one of its group.
    """
    cdef ptrdiff_t n_groups = len(offsets) - 1, g, k, count, at = 0
    cdef ptrdiff_t[::1] starts = np.empty(n_groups + 1, np.intp), places = np.empty(len(rows), np.intp)
    for g in range(n_groups):
        starts[g] = at
        at += (max(offsets[g + 1] - offsets[g], 1) + unit - 1) // unit * unit
    starts[n_groups] = at
    cdef ptrdiff_t[::1] order = np.empty(at, np.intp)
    for g in range(n_groups):
        count = offsets[g + 1] - offsets[g]
        for k in range(starts[g + 1] - starts[g]):
            order[starts[g] + k] = rows[offsets[g] + min(k, count - 1) if count else 0]
        for k in range(count):
            places[offsets[g] + k] = starts[g] + k
    return np.asarray(starts), np.asarray(places), np.asarray(order)


def lay_jobs(
    jobs, const ptrdiff_t[::1] starts, const ptrdiff_t[::1] offsets, const ptrdiff_t[::1] places
):
    """Problems over groups of samples so laid out, one after another.

    Returned are the jobs as an array of dtype `JOB`, where each one's samples end, and by sample of a job the
    variable that it is, which of all samples it is, and the sign and the set of its range.
    """
    cdef const ptrdiff_t[:, :, :] groups = jobs["groups"]
    cdef const ptrdiff_t[:, :] sets_of = jobs["sets"]
    cdef const double[:, :] signs_of = jobs["signs"]
    cdef ptrdiff_t p, r, k, shift, n_jobs = len(jobs), total = 0, variable = 0, at = 0
    table = np.zeros(n_jobs, JOB)
    table["separate"], table["epsilon"] = jobs["separate"], jobs["epsilon"]
    for p in range(n_jobs):
        for r in range(2):
            total += offsets[groups[p, r, 1]] - offsets[groups[p, r, 0]]
    cdef ptrdiff_t[::1] ends = np.empty(n_jobs, np.intp)
    cdef ptrdiff_t[::1] taken = np.empty(total, np.intp), samples = np.empty(total, np.intp)
    cdef ptrdiff_t[::1] sets = np.empty(total, np.intp)
    cdef double[::1] signs = np.empty(total)
    cdef MercerDualJob *row = _jobs(table)
    for p in range(n_jobs):
        row[p].offset = variable
        for r in range(2):
            row[p].start[r] = starts[groups[p, r, 0]]
            row[p].length[r] = starts[groups[p, r, 1]] - row[p].start[r]
            shift = variable - row[p].start[r]
            for k in range(offsets[groups[p, r, 0]], offsets[groups[p, r, 1]]):
                taken[at], samples[at] = places[k] + shift, k
                sets[at], signs[at] = sets_of[p, r], signs_of[p, r]
                at += 1
            variable += row[p].length[r]
        ends[p] = at
        PyErr_CheckSignals()
    return (
        table, np.asarray(ends), np.asarray(taken), np.asarray(samples), np.asarray(signs), np.asarray(sets)
    )


def place(
    const double[:, :] linear, const double[:, :] lower, const double[:, :] upper, const ptrdiff_t[::1] taken,
    const ptrdiff_t[::1] samples, const double[::1] signs, const ptrdiff_t[::1] sets, double[:, ::1] out,
):
    """Write c, l and u (n_sets, n) of samples to the rows of out, by variable as `lay_jobs` has them."""
    cdef ptrdiff_t k, i, s, v
    for k in range(len(taken)):
        v, i, s = taken[k], samples[k], sets[k]
        out[0, v] = signs[k] * linear[s, i]
        out[1, v] = lower[s, i] if signs[k] > 0 else -upper[s, i]
        out[2, v] = upper[s, i] if signs[k] > 0 else -lower[s, i]
        if not k % (1 << 20):
            PyErr_CheckSignals()


def fill(
    const double[::1] totals, const ptrdiff_t[::1] firsts, const ptrdiff_t[::1] counts,
    const double[::1] upper, double[::1] out,
):
    """Take each total out of the boxes [0, upper] of a range, the first ones first; ranges go to out in turn.

    A negative total comes out of [-upper, 0].
    """
    cdef ptrdiff_t r, k, at = 0
    cdef double left, take
    for r in range(len(totals)):
        left = abs(totals[r])
        for k in range(firsts[r], firsts[r] + counts[r]):
            take = min(left, upper[k])
            left -= take
            out[at] = take if totals[r] > 0 else -take
            at += 1


ctypedef fused Entry:
    float
    double


def entries(
    const Entry[:, :] matrix, const int32_t[::1] rows, const int32_t[::1] columns, double[:, ::1] out
):
    """Write the entries of a matrix at some rows and columns."""
    cdef ptrdiff_t i, j
    with nogil:
        for i in range(len(rows)):
            for j in range(len(columns)):
                out[i, j] = matrix[rows[i], columns[j]]


def add_rows(
    const Entry[:, :] matrix, const int32_t[::1] places, const double[::1] coefficients, double[::1] out
):
    """Add the sum of coefficient times row over some rows, whose entries are adjacent, to out (n,)."""
    cdef const MercerTable *table = mercer_table(Entry is float)
    cdef ptrdiff_t n = len(out), whole = n // table.smo_step * table.smo_step, k, j
    if not len(places):
        return
    with nogil:
        if whole:
            table.smo_add(
                whole, &out[0], len(places), &matrix[0, 0], matrix.strides[0] // sizeof(Entry), &places[0],
                &coefficients[0],
            )
        for k in range(len(places)):
            for j in range(whole, n):
                out[j] += coefficients[k] * matrix[places[k], j]


cdef const double *_doubles(const double[::1] array) noexcept:
    return &array[0]


cdef double *_written(double[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef class _Solver:
    """A `MercerDual` but for what differs from problem to problem, and what keeps its memory."""

    cdef MercerDual dual
    cdef _Watch watch
    cdef object memory

    def __init__(self, run, matrix, diagonal, double tol, size_t cache_bytes, bint shrinking, on_step):
        cdef const unsigned char[::1] diagonal_memory = diagonal.view(np.uint8)
        cdef const unsigned char[:, ::1] matrix_memory
        self.memory = run, matrix, diagonal
        self.dual.table = mercer_table(diagonal.dtype == np.float32)
        self.dual.run = NULL
        self.dual.matrix = NULL
        self.dual.ld, self.dual.n = 0, len(diagonal)
        if run is not None:
            self.dual.run = <const MercerRun *>PyCapsule_GetPointer(run.capsule(), b"MercerRun")
        else:
            matrix_memory = matrix.view(np.uint8)
            self.dual.matrix = &matrix_memory[0, 0]
            self.dual.ld = matrix.shape[1]
        self.dual.diagonal = &diagonal_memory[0]
        self.dual.tol, self.dual.scale = tol, float(diagonal.max())
        self.dual.cache_bytes, self.dual.shrinking = cache_bytes, shrinking
        self.dual.progress.n_done = 0
        self.dual.progress.gap = np.inf
        self.watch = _Watch()
        self.watch.dual, self.watch.on_step, self.watch.error = &self.dual, on_step, None
        self.dual.poll, self.dual.context = _poll, <void *>self.watch

    cdef end(self, int status):
        """Raise what polling met, or that there was no memory."""
        if self.watch.error is not None:
            raise self.watch.error
        if status == DUAL_NO_MEMORY:
            raise MemoryError("no memory for the solver's kernel rows; lower cache_size")


cdef MercerDualJob *_jobs(jobs):
    cdef int64_t[::1] memory = jobs.view(np.int64)
    return <MercerDualJob *>&memory[0]


def solve(
    run, matrix, diagonal, const double[::1] linear, const double[::1] lower,
    const double[::1] upper, jobs, double[::1] beta, field, double tol, int64_t max_iter,
    size_t cache_bytes, bint shrinking, on_step, int n_threads,
):
    """Solve all jobs, an array of dtype `JOB`, in which the results are written.

    `run` is a `_gram.Run` or None, `matrix` else an array (n, ld) of the rows' dtype; `diagonal` (n,) has
    that dtype; `field` is None or an array like `beta`, and may be `linear`.
    """
    cdef _Solver solver = _Solver(run, matrix, diagonal, tol, cache_bytes, shrinking, on_step)
    cdef MercerDualJob *first = _jobs(jobs)
    cdef double[::1] field_memory
    cdef ptrdiff_t n_jobs = len(jobs)
    cdef int status
    solver.dual.linear, solver.dual.beta, solver.dual.field = _doubles(linear), _written(beta), NULL
    solver.dual.lower, solver.dual.upper = _doubles(lower), _doubles(upper)
    if field is not None:
        field_memory = field
        solver.dual.field = _written(field_memory)
    solver.dual.max_iter = max_iter
    with nogil:
        status = mercer_dual(&solver.dual, first, n_jobs, n_threads)
    solver.end(status)


def path(run, matrix, diagonal, jobs, state, ptrdiff_t at, ptrdiff_t end, bint begun, double tol,
         int64_t max_iter, size_t cache_bytes, bint shrinking, on_step):
    """Solve a job for each of some C. `state` has the arrays of `MercerDualPath`, `rounding` and `noise`.

    Returned are where it ended and why.
    """
    cdef _Solver solver = _Solver(run, matrix, diagonal, tol, cache_bytes, shrinking, on_step)
    cdef MercerDualJob *first = _jobs(jobs)
    cdef const double[::1] C = state.C, linear = state.linear, least = state.least, most = state.most
    cdef double[::1] lower = state.lower, upper = state.upper, known = state.known, seconds = state.seconds
    cdef double[:, ::1] beta = state.beta, field = state.field
    cdef MercerDualPath path
    cdef int status
    path.size, path.at, path.end = beta.shape[1], at, end
    path.C, path.linear, path.least, path.most = &C[0], &linear[0], &least[0], &most[0]
    path.lower, path.upper, path.beta, path.field = &lower[0], &upper[0], &beta[0, 0], &field[0, 0]
    path.known, path.seconds, path.rounding, path.noise = &known[0], &seconds[0], state.rounding, state.noise
    solver.dual.max_iter = max_iter
    with nogil:
        status = mercer_dual_path(&solver.dual, first, &path, begun)
    solver.end(status)
    state.rounding = path.rounding
    return path.at, path.left

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
        void (*smo_add)(ptrdiff_t n, double *F, const void *row, double a) noexcept nogil

    const MercerTable *mercer_table(int is_float32) noexcept
    int mercer_openmp() noexcept

cdef extern from "dual.h" nogil:
    int DUAL_STOPPED, DUAL_NO_MEMORY

    ctypedef struct MercerDualJob:
        pass

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
    int mercer_dual_diagonal(const MercerRun *run, const MercerTable *table, void *out, ptrdiff_t n,
                             int n_threads) noexcept

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


# Columns of which sums stay in the nearest cache while rows pass by; a multiple of any step.
cdef enum:
    COLUMNS = 1024

ctypedef fused Entry:
    float
    double


def square(const Entry[:, :] matrix, const int32_t[::1] places, double[::1, :] out):
    """Write the entries of a symmetric matrix among some places."""
    cdef ptrdiff_t i, j, n = len(places)
    with nogil:
        for j in range(n):
            for i in range(n):
                out[i, j] = matrix[places[j], places[i]]


def add_rows(
    const Entry[:, :] matrix, const int32_t[::1] places, const double[::1] coefficients, double[::1] out
):
    """Add the sum of coefficient times row over some rows, whose entries are adjacent, to out (n,)."""
    cdef const MercerTable *table = mercer_table(Entry is float)
    cdef ptrdiff_t start = 0, end = len(out), width, k, j, some = len(places)
    with nogil:
        while start < end:
            width = min(COLUMNS, (end - start) // table.smo_step * table.smo_step)
            for k in range(some):
                if width:
                    table.smo_add(width, &out[start], &matrix[places[k], start], coefficients[k])
                else:
                    for j in range(start, end):
                        out[j] += coefficients[k] * matrix[places[k], j]
            start = start + width if width else end


cdef const double *_doubles(const double[::1] array) noexcept:
    return &array[0]


cdef double *_written(double[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


def solve(
    run, matrix, diagonal, const double[::1] linear, const double[::1] lower,
    const double[::1] upper, jobs, double[::1] beta, field, double tol, int64_t max_iter,
    size_t cache_bytes, bint shrinking, on_step, int n_threads,
):
    """Solve all jobs, an array of dtype `JOB`, in which the results are written.

    `run` is a `_gram.Run` or None, `matrix` else an array (n, ld) of the rows' dtype; `diagonal` (n,) has
    that dtype; `field` is None or an array like `beta`, and may be `linear`.
    """
    cdef MercerDual dual
    cdef _Watch watch = _Watch()
    cdef int64_t[::1] job_memory = jobs.view(np.int64)
    cdef MercerDualJob *first = <MercerDualJob *>&job_memory[0]
    cdef const unsigned char[::1] diagonal_memory = diagonal.view(np.uint8)
    cdef const unsigned char[:, ::1] matrix_memory
    cdef double[::1] field_memory
    cdef ptrdiff_t n_jobs = len(jobs)
    cdef int status
    dual.table = mercer_table(diagonal.dtype == np.float32)
    dual.run = NULL
    dual.matrix = NULL
    dual.ld, dual.n = 0, len(diagonal)
    if run is not None:
        dual.run = <const MercerRun *>PyCapsule_GetPointer(run.capsule(), b"MercerRun")
    else:
        matrix_memory = matrix.view(np.uint8)
        dual.matrix = &matrix_memory[0, 0]
        dual.ld = matrix.shape[1]
    dual.diagonal = &diagonal_memory[0]
    dual.linear, dual.lower, dual.upper = _doubles(linear), _doubles(lower), _doubles(upper)
    dual.beta, dual.field = _written(beta), NULL
    if field is not None:
        field_memory = field
        dual.field = _written(field_memory)
    dual.tol, dual.scale, dual.max_iter = tol, float(diagonal.max()), max_iter
    dual.cache_bytes, dual.shrinking = cache_bytes, shrinking
    dual.progress.n_done = 0
    dual.progress.gap = np.inf
    watch.dual, watch.on_step, watch.error = &dual, on_step, None
    dual.poll, dual.context = _poll, <void *>watch
    with nogil:
        status = mercer_dual(&dual, first, n_jobs, n_threads)
    if watch.error is not None:
        raise watch.error
    if status == DUAL_NO_MEMORY:
        raise MemoryError("no memory for the solver's kernel rows; lower cache_size")

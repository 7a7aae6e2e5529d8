# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The k nearest columns of each row of a kernel program.

`mercer._native` is the only importer. nearest.c searches; this module describes arrays to it, and looks for
signals when it pauses.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

import numpy as np

cdef extern from "mercer.h" nogil:
    int MERCER_PAUSED, MERCER_NEAR_ROWS

    ctypedef struct MercerRun:
        pass

    ctypedef struct MercerTable:
        ptrdiff_t tile, panel_width

    ctypedef struct MercerFeatures:
        const void *values
        ptrdiff_t row_stride, col_stride, n
        const int32_t *indices
        const int64_t *indptr

    const MercerTable *mercer_table(int is_float32) noexcept
    int mercer_openmp() noexcept

cdef extern from "nearest.h" nogil:
    ctypedef struct MercerIntegers:
        ptrdiff_t n_pairs
        const int32_t *left
        const int32_t *right
        const int32_t *left_norms
        const int32_t *right_norms
        double slack

    ctypedef struct MercerNearest:
        const MercerRun *run
        const MercerTable *table
        int bounds
        ptrdiff_t n, m, k, strip, n_parts, part
        const int64_t *left_out
        double coefficient
        const void *columns
        const double *rows
        const double *row_error
        double tolerance, slack
        const double *column_values
        const float *width
        double scale
        const uint8_t *left_inside
        const uint8_t *right_inside
        MercerIntegers first, second
        const int32_t *row_of
        const int32_t *column_of
        const int32_t *begin
        const MercerTable *raw
        int kind
        ptrdiff_t d
        MercerFeatures left, right
        const double *weight
        double *scores
        int32_t *indices
        int64_t n_second, n_exact
        ptrdiff_t bad_row, bad_column
        double bad_score

    int mercer_nearest(MercerNearest *job, double pause_after, int n_threads) noexcept
    void mercer_nearest_end(MercerNearest *job) noexcept
    void mercer_nearest_pairs(const MercerNearest *job, ptrdiff_t n, ptrdiff_t p, const int32_t *at,
                              double *out, int n_threads) noexcept

# Seconds after which a loop comes back to look for signals.
cdef double PAUSE_AFTER = 0.05


def openmp():
    """The OpenMP version that this module was compiled with."""
    return mercer_openmp()


def tile(dtype):
    """Rows and columns of a tile."""
    return mercer_table(dtype == np.float32).tile


def panel_width():
    """Columns of a panel of integers."""
    return mercer_table(1).panel_width


cdef class Search:
    """One search: its arrays, and what nearest.c reads of them."""

    cdef MercerNearest job
    cdef list kept

    def __cinit__(self):
        memset(&self.job, 0, sizeof(self.job))
        self.kept = []

    cdef const void *_keep(self, array, dtype) except? NULL:
        array = np.ascontiguousarray(array, dtype=dtype)
        self.kept.append(array)
        cdef const unsigned char[::1] memory = array.reshape(-1).view(np.uint8)
        return &memory[0] if memory.shape[0] else NULL

    cdef int _set_side(self, MercerFeatures *side, features) except -1:
        side.n = features.shape[0]
        if isinstance(features, np.ndarray):
            side.values = self._keep(features, features.dtype)
            side.row_stride, side.col_stride = features.shape[1], 1
            return 0
        side.values = self._keep(_never_empty(features.data), features.dtype)
        side.indices = <const int32_t *>self._keep(_never_empty(features.indices), np.int32)
        side.indptr = <const int64_t *>self._keep(features.indptr, np.int64)
        return 0

    def set_raw(self, int kind, left, right, weight):
        """The rows whose distances decide: both dense, or both CSR, of one dtype."""
        self.job.kind, self.job.d = kind, left.shape[1]
        self.job.raw = mercer_table(left.dtype == np.float32)
        self._set_side(&self.job.left, left)
        self._set_side(&self.job.right, right)
        if weight is not None:
            self.job.weight = <const double *>self._keep(weight, np.float64)

    def set_bounds(self, width, double scale):
        """The columns' widths of bounds, and a distance's factor in the tiles."""
        self.job.bounds, self.job.scale = 1, scale
        self.job.width = <const float *>self._keep(width, np.float32)

    cdef int _set_integers(self, MercerIntegers *to, left, left_norms, right, right_norms,
                           double slack) except -1:
        to.n_pairs = left.shape[1] // 2
        to.left = <const int32_t *>self._keep(left, np.int16)
        to.left_norms = <const int32_t *>self._keep(left_norms, np.int32)
        to.right = <const int32_t *>self._keep(right, right.dtype)
        to.right_norms = <const int32_t *>self._keep(right_norms, np.int32)
        to.slack = slack
        return 0

    def set_first(self, integers, panels, rows, begin, columns):
        """Integers for the first bounds of some rows, and of all columns in an order; where a row begins."""
        self.job.table = mercer_table(1)
        n, (right, starts) = len(rows), panels
        left = np.zeros((n + MERCER_NEAR_ROWS, integers.left.shape[1]), np.int16)
        left[:n] = integers.left[rows]
        self._set_integers(&self.job.first, left, integers.left_norms[rows], right, starts, integers.slack)
        self.job.row_of = <const int32_t *>self._keep(rows, np.int32)
        self.job.column_of = <const int32_t *>self._keep(columns, np.int32)
        self.job.begin = <const int32_t *>self._keep(begin, np.int32)

    def set_second(self, integers):
        """Integers for second bounds."""
        self._set_integers(
            &self.job.second, integers.left, integers.left_norms, integers.right, integers.right_norms,
            integers.slack,
        )

    def set_inside(self, left, right, double scale):
        """Raw rows whose integers bound distances from above, too, and a distance's factor in integers."""
        self.job.bounds, self.job.scale = 1, scale
        self.job.left_inside = <const uint8_t *>self._keep(left, np.uint8)
        self.job.right_inside = <const uint8_t *>self._keep(right, np.uint8)

    def set_tolerance(self, double tolerance, double slack):
        """Below what a squared distance is an error of the kernel."""
        self.job.tolerance, self.job.slack = tolerance, slack

    def set_left_out(self, columns):
        """For each row the column that it leaves out."""
        self.job.left_out = <const int64_t *>self._keep(columns, np.int64)

    def set_values(self, run, double coefficient, rows, columns, row_error):
        """The program whose values tiles hold, and what makes scores or bounds of them."""
        dtype = run.dtype
        self.job.table = mercer_table(dtype == np.float32)
        self.job.run = <const MercerRun *>PyCapsule_GetPointer(run.capsule(), b"MercerRun")
        self.kept.append(run)
        self.job.coefficient = coefficient
        self.job.rows = <const double *>self._keep(rows, np.float64)
        self.job.row_error = <const double *>self._keep(row_error, np.float64)
        self.job.column_values = <const double *>self._keep(columns, np.float64)
        self.job.columns = self._keep(np.append(columns, np.zeros(self.job.table.tile)), dtype)

    def search(self, shape, ptrdiff_t k, ptrdiff_t strip, ptrdiff_t part, double[:, :, ::1] scores,
               int32_t[:, :, ::1] indices, int n_threads):
        """Fill scores and indices (n, n_parts, k) of an (n, m) search, by strips of rows and column parts.

        Returns how many pairs had their second integers and their raw rows compared, and (row, column, score)
        or None.
        """
        cdef int status = MERCER_PAUSED
        self.job.n, self.job.m = shape
        self.job.k, self.job.strip, self.job.part = k, strip, part
        self.job.n_parts = scores.shape[1]
        self.job.scores, self.job.indices = &scores[0, 0, 0], &indices[0, 0, 0]
        self.job.bad_row, self.job.bad_column = -1, -1
        try:
            while status == MERCER_PAUSED:
                with nogil:
                    status = mercer_nearest(&self.job, PAUSE_AFTER, n_threads)
                PyErr_CheckSignals()
        finally:
            mercer_nearest_end(&self.job)
        if status:
            raise MemoryError(f"no memory for the candidates of {k} neighbours")
        bad = None
        if self.job.bad_row >= 0:
            bad = self.job.bad_row, self.job.bad_column, self.job.bad_score
        return (self.job.n_second, self.job.n_exact), bad

    def pairs(self, const int32_t[:, ::1] at, double[:, ::1] out, int n_threads):
        """Fill out (n, p) with the distances of row i and the columns at (n, p)."""
        cdef ptrdiff_t n = at.shape[0], p = at.shape[1]
        if n * p == 0:
            return
        with nogil:
            mercer_nearest_pairs(&self.job, n, p, &at[0, 0], &out[0, 0], n_threads)


def _never_empty(array):
    """A buffer that has an address; CSR without entries has none to read."""
    return array if len(array) else np.zeros(1, array.dtype)

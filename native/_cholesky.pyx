# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Cholesky factors by tiles: cholesky.c with the BLAS and LAPACK that SciPy exports, and coarse.c.

`mercer._native` is the only importer. Arrays are Fortran-ordered float64 or float32; BLAS must run on one
thread while these functions do.
"""

from cpython.buffer cimport PyBUF_STRIDED_RO, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.string cimport memset

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

cdef extern from "cholesky.h" nogil:
    ctypedef void (*MercerRoutine)() noexcept

    ctypedef struct MercerBlas:
        int is_float32
        MercerRoutine potrf, trsm, gemm, gemv, syrk

    ctypedef struct MercerCholesky:
        ptrdiff_t info

    int MERCER_PAUSED
    int mercer_cholesky_factor(const MercerBlas *blas, ptrdiff_t n, void *A, ptrdiff_t lda,
                               MercerCholesky *state, double pause_after, int n_threads) noexcept
    void mercer_cholesky_solve(const MercerBlas *blas, ptrdiff_t n, const void *L, ptrdiff_t ldl, void *B,
                               ptrdiff_t p, int n_threads) noexcept
    int mercer_cholesky_inverse_diagonal(const MercerBlas *blas, ptrdiff_t n, const void *L, ptrdiff_t ldl,
                                         void *out, MercerCholesky *state, double pause_after,
                                         int n_threads) noexcept
    int mercer_symmetric_product(int is_float32, ptrdiff_t n, const void *A, ptrdiff_t lda,
                                 const void *diagonal, const void *X, ptrdiff_t p, void *Y,
                                 int n_threads) noexcept
    void mercer_scaled_part(ptrdiff_t n, const double *K, ptrdiff_t ldk, const int *rows, const double *d,
                            float *A, int n_threads) noexcept
    int MERCER_COARSE_TILE
    ptrdiff_t mercer_coarse_size(ptrdiff_t n) noexcept
    void mercer_coarse_pack(ptrdiff_t n, const float *L, ptrdiff_t ldl, short *below, float *tiles,
                            float *scale, int n_threads) noexcept
    int mercer_coarse_solve(ptrdiff_t n, const short *below, const float *tiles, const float *scale,
                            float *x) noexcept
    int mercer_cholesky_openmp() noexcept

# Seconds after which a loop comes back to look for signals.
cdef double PAUSE_AFTER = 0.05


cdef MercerRoutine _routine(module, name) except NULL:
    capsule = module.__pyx_capi__[name]
    return <MercerRoutine>PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))


cdef int _bind(MercerBlas *blas, prefix) except -1:
    blas.is_float32 = prefix == "s"
    blas.potrf = _routine(cython_lapack, prefix + "potrf")
    blas.trsm = _routine(cython_blas, prefix + "trsm")
    blas.gemm = _routine(cython_blas, prefix + "gemm")
    blas.gemv = _routine(cython_blas, prefix + "gemv")
    blas.syrk = _routine(cython_blas, prefix + "syrk")
    return 0


cdef MercerBlas _DOUBLE, _SINGLE
_bind(&_DOUBLE, "d")
_bind(&_SINGLE, "s")


cdef const MercerBlas *_blas(array):
    return &_SINGLE if array.dtype == np.float32 else &_DOUBLE


cdef void *_address(array, bint writable) except? NULL:
    """Where an array's values are; the caller keeps it alive."""
    cdef Py_buffer buffer
    cdef void *pointer
    PyObject_GetBuffer(array, &buffer, PyBUF_STRIDED_RO | (PyBUF_WRITABLE if writable else 0))
    pointer = buffer.buf
    PyBuffer_Release(&buffer)
    return pointer


def factor(A, int n_threads):
    """Overwrite the lower triangle of A (n, n) with L; 0, or the pivot that failed, counted from 1."""
    cdef MercerCholesky state
    cdef const MercerBlas *blas = _blas(A)
    cdef void *pointer = _address(A, True)
    cdef ptrdiff_t n = A.shape[0]
    cdef int status = MERCER_PAUSED
    memset(&state, 0, sizeof(state))
    while status == MERCER_PAUSED:
        with nogil:
            status = mercer_cholesky_factor(blas, n, pointer, n, &state, PAUSE_AFTER, n_threads)
        PyErr_CheckSignals()
    return state.info


def solve(L, B, int n_threads):
    """Overwrite B (n, p) with (L Lᵀ)⁻¹ B."""
    cdef const MercerBlas *blas = _blas(L)
    cdef void *factor = _address(L, False)
    cdef void *right = _address(B, True)
    cdef ptrdiff_t n = L.shape[0], p = B.shape[1]
    with nogil:
        mercer_cholesky_solve(blas, n, factor, n, right, p, n_threads)


def inverse_diagonal(L, out, int n_threads):
    """Fill out (n,) with diag((L Lᵀ)⁻¹)."""
    cdef MercerCholesky state
    cdef const MercerBlas *blas = _blas(L)
    cdef void *factor = _address(L, False)
    cdef void *target = _address(out, True)
    cdef ptrdiff_t n = L.shape[0]
    cdef int status = MERCER_PAUSED
    memset(&state, 0, sizeof(state))
    while status == MERCER_PAUSED:
        with nogil:
            status = mercer_cholesky_inverse_diagonal(blas, n, factor, n, target, &state, PAUSE_AFTER,
                                                      n_threads)
        PyErr_CheckSignals()
    if status:
        raise MemoryError("no memory for columns of the inverse")


def symmetric_product(A, diagonal, X, Y, int n_threads):
    """Fill Y (n, p) with A X for the symmetric A of this strict upper triangle and diagonal."""
    cdef int is_float32 = A.dtype == np.float32
    cdef void *matrix = _address(A, False)
    cdef void *diagonal_ = _address(diagonal, False)
    cdef void *right = _address(X, False)
    cdef void *target = _address(Y, True)
    cdef ptrdiff_t n = A.shape[0], p = X.shape[1]
    with nogil:
        status = mercer_symmetric_product(is_float32, n, matrix, n, diagonal_, right, p, target, n_threads)
    if status:
        raise MemoryError("no memory for the partial sums of a product")


def scaled_part(const double[:, ::1] K, const int[::1] rows, const double[::1] d, A, int n_threads):
    """Fill the lower triangle of A (n, n), float32, with ``d_i K_{rows i, rows j} d_j``."""
    cdef void *target = _address(A, True)
    cdef ptrdiff_t n = rows.shape[0], ldk = K.shape[1]
    if n:
        with nogil:
            mercer_scaled_part(n, &K[0, 0], ldk, &rows[0], &d[0], <float *>target, n_threads)


def coarse(L, int n_threads):
    """L (n, n), float32, in 16 bits: integers below its tiles, the tiles, a factor for each column."""
    cdef const void *factor = _address(L, False)
    cdef ptrdiff_t n = L.shape[0]
    below = np.empty(mercer_coarse_size(n), np.int16)
    tiles = np.empty(n * MERCER_COARSE_TILE, np.float32)
    scale = np.empty(n, np.float32)
    cdef void *of_below = _address(below, True)
    cdef void *of_tiles = _address(tiles, True)
    cdef void *of_scale = _address(scale, True)
    with nogil:
        mercer_coarse_pack(n, <const float *>factor, n, <short *>of_below, <float *>of_tiles,
                           <float *>of_scale, n_threads)
    return below, tiles, scale


def coarse_solve(const short[::1] below, const float[::1] tiles, const float[::1] scale, float[::1] x):
    """Overwrite x (n,) with (L Lᵀ)⁻¹ x."""
    cdef ptrdiff_t n = x.shape[0]
    cdef const short *integers = &below[0] if below.shape[0] else NULL
    cdef int status = 0
    if n:
        with nogil:
            status = mercer_coarse_solve(n, integers, &tiles[0], &scale[0], &x[0])
    if status:
        raise MemoryError("no memory for the partial sums of a solution")


def openmp():
    """The OpenMP version that this module was compiled with."""
    return mercer_cholesky_openmp()

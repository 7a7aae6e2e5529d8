/* Cholesky factors by tiles: what cholesky.c offers to the Cython module. Matrices are column-major. */
#ifndef MERCER_CHOLESKY_H
#define MERCER_CHOLESKY_H

#include "mercer.h"

/* BLAS and LAPACK routines of one dtype, with Fortran's calling convention and 32-bit sizes. */
typedef void (*MercerRoutine)(void);

typedef struct {
    int is_float32;
    MercerRoutine potrf, trsm, gemm, gemv, syrk;
} MercerBlas;

/* Where a computation was left; starts as zeros. info: the pivot that failed, counted from 1. */
typedef struct {
    ptrdiff_t k, phase, next, info;
} MercerCholesky;

/* The lower triangle of A (n, n) becomes L; what is strictly above stays. */
int mercer_cholesky_factor(const MercerBlas *blas, ptrdiff_t n, void *A, ptrdiff_t lda, MercerCholesky *state,
                           double pause_after, int n_threads);
/* B (n, p) becomes (L Lᵀ)⁻¹ B. */
void mercer_cholesky_solve(const MercerBlas *blas, ptrdiff_t n, const void *L, ptrdiff_t ldl, void *B, ptrdiff_t p,
                           int n_threads);
/* out (n,) = diag((L Lᵀ)⁻¹) */
int mercer_cholesky_inverse_diagonal(const MercerBlas *blas, ptrdiff_t n, const void *L, ptrdiff_t ldl, void *out,
                                     MercerCholesky *state, double pause_after, int n_threads);
/* Y (n, p) = A X for the symmetric A with this strict upper triangle and diagonal. */
int mercer_symmetric_product(int is_float32, ptrdiff_t n, const void *A, ptrdiff_t lda, const void *diagonal,
                             const void *X, ptrdiff_t p, void *Y, int n_threads);
/* Lower triangle of A (n, n) = d_i K_{rows i, rows j} d_j, from the symmetric K with leading dimension ldk. */
void mercer_scaled_part(ptrdiff_t n, const double *K, ptrdiff_t ldk, const int *rows, const double *d, float *A,
                        int n_threads);
/* coarse.c: L as integers of 16 bits below its tiles, which keep float32, with a factor for each column. `below` has
 * so many numbers, `tiles` n columns of the tile's size, `scale` n. */
enum { MERCER_COARSE_TILE = 64 };
ptrdiff_t mercer_coarse_size(ptrdiff_t n);
void mercer_coarse_pack(ptrdiff_t n, const float *L, ptrdiff_t ldl, int16_t *below, float *tiles, float *scale,
                        int n_threads);
/* x (n,) becomes (L Lᵀ)⁻¹ x */
int mercer_coarse_solve(ptrdiff_t n, const int16_t *below, const float *tiles, const float *scale, float *x);
int mercer_cholesky_openmp(void);

#endif

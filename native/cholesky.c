/* Cholesky factors and products with a symmetric matrix, tile by tile, on a BLAS of one thread.
 *
 * Why not LAPACK's own threads: their results change in the last digits with their number; a call cannot be
 * interrupted; and OpenBLAS 0.3.x breaks down in dpotrf on two threads beyond 15300 rows (AVX-512). The tile
 * operations are still BLAS's and LAPACK's, through the pointers that SciPy exports.
 *
 * Denormal numbers count as 0 in all of them: kernels of short reach are full of entries whose products are, and a
 * float32 factor of such a matrix took 60 times as long (n = 4000).
 */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "cholesky.h"
#include "denormals.h"

/* Columns up to which a product goes by matrix-vector calls; and of products with a symmetric matrix, sums on their own
 * and the sides of a tile. */
enum { FEW = 4, STRIPS = 16, HIGH = 256, NARROW = 16 };

/* Whether others are to be woken for so many multiply-adds: that takes 0.1 ms, in which one thread does 4 millions. Of
 * those that read numbers but once, each counts for four. */
static int pays(int n_threads, double work)
{
    return n_threads > 1 && work > 4e6;
}

/* Numbers whose multiples are whole cache lines. */
enum { LINE = 16 };

/* Tiles of one update of the trailing matrix: BLAS packs its operands once for them all. */
enum { ROWS = 4 };

typedef struct {
    ptrdiff_t start, size;
} Tile;

static ptrdiff_t ceil_div(ptrdiff_t a, ptrdiff_t b)
{
    return (a + b - 1) / b;
}

/* Depends on n alone, so that the result does. At n = 4000 (float64, one thread, ms) 96: 596, 192: 561, 256: 530, 384:
 * 525, LAPACK 460, all before ROWS; larger tiles leave the second thread idle at the end. */
static ptrdiff_t tile_size(ptrdiff_t n)
{
    return n <= 512 ? 96 : n <= 4096 ? 192 : 256;
}

static Tile nth_tile(ptrdiff_t n, ptrdiff_t nb, ptrdiff_t t)
{
    return (Tile){t * nb, (t + 1) * nb <= n ? nb : n - t * nb};
}

#define T double
#define N(name) name##_f64
#include "cholesky.inc"
#undef T
#undef N

#define T float
#define N(name) name##_f32
#include "cholesky.inc"
#undef T
#undef N

int mercer_cholesky_factor(const MercerBlas *blas, ptrdiff_t n, void *A, ptrdiff_t lda, MercerCholesky *state,
                           double pause_after, int n_threads)
{
    return blas->is_float32 ? factor_f32(blas, n, A, lda, state, pause_after, n_threads)
                            : factor_f64(blas, n, A, lda, state, pause_after, n_threads);
}

void mercer_cholesky_solve(const MercerBlas *blas, ptrdiff_t n, const void *L, ptrdiff_t ldl, void *B, ptrdiff_t p,
                           int n_threads)
{
    if (blas->is_float32)
        solve_f32(blas, n, L, ldl, B, n, p, n_threads);
    else
        solve_f64(blas, n, L, ldl, B, n, p, n_threads);
}

int mercer_cholesky_inverse_diagonal(const MercerBlas *blas, ptrdiff_t n, const void *L, ptrdiff_t ldl, void *out,
                                     MercerCholesky *state, double pause_after, int n_threads)
{
    return blas->is_float32 ? inverse_diagonal_f32(blas, n, L, ldl, out, state, pause_after, n_threads)
                            : inverse_diagonal_f64(blas, n, L, ldl, out, state, pause_after, n_threads);
}

int mercer_symmetric_product(int is_float32, ptrdiff_t n, const void *A, ptrdiff_t lda, const void *diagonal,
                             const void *X, ptrdiff_t p, void *Y, int n_threads)
{
    return is_float32 ? symmetric_product_f32(n, A, lda, diagonal, X, p, Y, n_threads)
                      : symmetric_product_f64(n, A, lda, diagonal, X, p, Y, n_threads);
}

void mercer_scaled_part(ptrdiff_t n, const double *K, ptrdiff_t ldk, const int *rows, const double *d, float *A,
                        int n_threads)
{
#pragma omp parallel for schedule(dynamic, 16) num_threads(n_threads) if (pays(n_threads, 2.0 * n * n))
    for (ptrdiff_t j = 0; j < n; j++) {
        const double *column = K + rows[j] * ldk;
        const unsigned denormals = flush_denormals(1);
        for (ptrdiff_t i = j; i < n; i++)
            A[i + j * n] = (float)(d[i] * d[j] * column[rows[i]]);
        restore_denormals(denormals);
    }
}

int mercer_cholesky_openmp(void)
{
    return _OPENMP;
}

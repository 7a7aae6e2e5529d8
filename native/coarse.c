/* A Cholesky factor in 16 bits, for a preconditioner: what is below the tiles on the diagonal becomes integers times a
 * factor for each column; the tiles stay as they are. Panels lie behind each other, each in the order of columns. */
#include <math.h>
#include <stdlib.h>

#include "cholesky.h"
#include "denormals.h"

enum { TILE = MERCER_COARSE_TILE, PIECE = 1024, LARGEST = 32767 };

typedef struct {
    ptrdiff_t start, size, end, height; /* height: rows below the tile */
} Panel;

static Panel nth_panel(ptrdiff_t n, ptrdiff_t t)
{
    const ptrdiff_t start = t * TILE, end = start + TILE < n ? start + TILE : n;
    return (Panel){start, end - start, end, n - end};
}

/* Where panel t begins: those before it have TILE columns. */
static ptrdiff_t offset(ptrdiff_t n, ptrdiff_t t)
{
    return TILE * (t * n - TILE * t * (t + 1) / 2);
}

ptrdiff_t mercer_coarse_size(ptrdiff_t n)
{
    return offset(n, n / TILE);
}

static float pack_column(ptrdiff_t height, const float *column, int16_t *out)
{
    float largest = 0;
    for (ptrdiff_t i = 0; i < height; i++)
        largest = fabsf(column[i]) > largest ? fabsf(column[i]) : largest;
    const float over = largest > 0 ? LARGEST / largest : 0;
    for (ptrdiff_t i = 0; i < height; i++) {
        const float value = column[i] * over;
        out[i] = (int16_t)(value + (value < 0 ? -0.5f : 0.5f));
    }
    return largest / LARGEST;
}

void mercer_coarse_pack(ptrdiff_t n, const float *L, ptrdiff_t ldl, int16_t *below, float *tiles, float *scale,
                        int n_threads)
{
#pragma omp parallel for schedule(dynamic) num_threads(n_threads) if (n_threads > 1 && n > 1000)
    for (ptrdiff_t t = 0; t < (n + TILE - 1) / TILE; t++) {
        const Panel p = nth_panel(n, t);
        for (ptrdiff_t j = 0; j < p.size; j++) {
            const float *column = L + (p.start + j) * ldl;
            for (ptrdiff_t i = j; i < p.size; i++)
                tiles[(p.start + j) * TILE + i] = column[p.start + i];
            scale[p.start + j] = pack_column(p.height, column + p.end, below + offset(n, t) + j * p.height);
        }
    }
}

static void solve_tile(const Panel *p, const float *tiles, float *x)
{
    for (ptrdiff_t j = 0; j < p->size; j++) {
        const float *column = tiles + (p->start + j) * TILE, value = x[j] /= column[j];
        for (ptrdiff_t i = j + 1; i < p->size; i++)
            x[i] -= value * column[i];
    }
}

static void solve_tile_transposed(const Panel *p, const float *tiles, float *x)
{
    for (ptrdiff_t j = p->size - 1; j >= 0; j--) {
        const float *column = tiles + (p->start + j) * TILE;
        float sum = x[j];
        for (ptrdiff_t i = j + 1; i < p->size; i++)
            sum -= column[i] * x[i];
        x[j] = sum / column[j];
    }
}

/* By one thread: a panel is read in the time that it takes to wake another (3000 rows: 1.0 ms, with two threads 5.5). */
int mercer_coarse_solve(ptrdiff_t n, const int16_t *below, const float *tiles, const float *scale, float *x)
{
    const MercerTable *table = mercer_table(1);
    const ptrdiff_t n_tiles = (n + TILE - 1) / TILE;
    float *sums = malloc((size_t)(n / PIECE + 1) * TILE * sizeof(float));
    if (!sums)
        return MERCER_NO_MEMORY;
    const unsigned denormals = flush_denormals(1);
    for (ptrdiff_t t = 0; t < n_tiles; t++) {
        const Panel p = nth_panel(n, t);
        const int16_t *A = below + offset(n, t);
        float scaled[TILE];
        solve_tile(&p, tiles, x + p.start);
        for (ptrdiff_t j = 0; j < p.size; j++)
            scaled[j] = -scale[p.start + j] * x[p.start + j];
        for (ptrdiff_t i = 0; i < p.height; i += PIECE)
            table->coarse_add(p.height - i < PIECE ? p.height - i : PIECE, p.size, A + i, p.height, scaled, x + p.end + i);
    }
    for (ptrdiff_t t = n_tiles - 1; t >= 0; t--) {
        const Panel p = nth_panel(n, t);
        const int16_t *A = below + offset(n, t);
        for (ptrdiff_t i = 0; i < p.height; i += PIECE)
            table->coarse_dots(p.height - i < PIECE ? p.height - i : PIECE, p.size, A + i, p.height, x + p.end + i,
                               sums + i / PIECE * TILE);
        for (ptrdiff_t i = 0; i < p.height; i += PIECE)
            for (ptrdiff_t j = 0; j < p.size; j++)
                x[p.start + j] -= scale[p.start + j] * sums[i / PIECE * TILE + j];
        solve_tile_transposed(&p, tiles, x + p.start);
    }
    restore_denormals(denormals);
    free(sums);
    return MERCER_OK;
}

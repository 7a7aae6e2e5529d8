/* The parallel loops over tiles: packing, the Gram matrix, and its product with vectors.
 *
 * Threads take tiles from a shared counter; which thread computes a tile changes nothing in it. Sums over
 * tiles run in a fixed order: a row strip of K @ V belongs to one task, and in the symmetric case, where a
 * tile serves two strips, the partial sums of a fixed number of strips are added in their order. So results
 * do not depend on the number of threads.
 *
 * A loop returns MERCER_PAUSED after `pause_after` seconds, so that its caller can look for signals.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "mercer.h"

static ptrdiff_t ceil_div(ptrdiff_t a, ptrdiff_t b)
{
    return (a + b - 1) / b;
}

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

int mercer_openmp(void)
{
    return _OPENMP;
}

/* ---- packing ----------------------------------------------------------------------------------- */

enum { OWN_ROWS, OWN_PANELS, OWN_ROW_NORMS, OWN_COL_NORMS };

static int own(MercerLeaf *leaf, int what, size_t bytes, int n_threads)
{
    leaf->owned[what] = mercer_take(bytes, n_threads);
    leaf->owned_bytes[what] = bytes;
    return leaf->owned[what] == NULL;
}

/* Row-major rows, unless the caller's array serves as it is. */
static int pack_rows(const MercerRun *run, MercerLeaf *leaf, const MercerTable *table, int n_threads)
{
    const ptrdiff_t n = run->n, d = leaf->d, step = 64;
    if (leaf->left.indices)
        return MERCER_OK;
    if (leaf->left.col_stride == 1 && !(leaf->expand && (leaf->shift || leaf->weight))) {
        leaf->rows = leaf->left.values;
        leaf->ld = leaf->left.row_stride;
        return MERCER_OK;
    }
    if (own(leaf, OWN_ROWS, (size_t)(n * d) * table->element, n_threads))
        return MERCER_NO_MEMORY;
    leaf->rows = leaf->owned[OWN_ROWS];
    leaf->ld = d;
#pragma omp parallel for schedule(static) num_threads(n_threads) if (n * d > 20000)
    for (ptrdiff_t i = 0; i < n; i += step)
        table->pack_rows(leaf, i, least(i + step, n), (char *)leaf->owned[OWN_ROWS] + (size_t)(i * d) * table->element);
    return MERCER_OK;
}

static int pack_panels(const MercerRun *run, MercerLeaf *leaf, const MercerTable *table, int n_threads)
{
    const ptrdiff_t m = run->m, d = leaf->d, width = table->panel_width;
    if (leaf->right.indices && !run->densify)
        return MERCER_OK;
    if (own(leaf, OWN_PANELS, (size_t)(ceil_div(m, width) * d * width) * table->element, n_threads))
        return MERCER_NO_MEMORY;
    leaf->panels = leaf->owned[OWN_PANELS];
#pragma omp parallel for schedule(static) num_threads(n_threads) if (m * d > 20000)
    for (ptrdiff_t j = 0; j < m; j += width)
        table->pack_panel(leaf, &leaf->right, j, (char *)leaf->owned[OWN_PANELS] + (size_t)(j * d) * table->element);
    return MERCER_OK;
}

/* Norms of one side, padded by a tile. A dense side that was not packed in panels is, one panel at a time. */
static int norms(const MercerLeaf *leaf, const MercerFeatures *side, const char *panels, const MercerTable *table,
                 char *out, int n_threads)
{
    const ptrdiff_t n = side->n, d = leaf->d, width = table->panel_width;
    const size_t size = table->element;
    int failed = 0;
#pragma omp parallel num_threads(n_threads) if (n * d > 20000)
    {
        char *space = panels || side->indices ? NULL : aligned_alloc(64, ((size_t)(d * width) * size + 63) / 64 * 64);
        if (!panels && !side->indices && !space) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(static)
        for (ptrdiff_t j = 0; j < n; j += width) {
            if (side->indices) {
                table->sparse_norms(leaf, side, j, out + (size_t)j * size);
            } else if (panels || space) {
                if (!panels)
                    table->pack_panel(leaf, side, j, space);
                table->panel_norms(panels ? panels + (size_t)(j * d) * size : space, d, out + (size_t)j * size);
            }
        }
        free(space);
    }
    return failed ? MERCER_NO_MEMORY : MERCER_OK;
}

static int prepare_leaf(const MercerRun *run, MercerLeaf *leaf, const MercerTable *table, int n_threads)
{
    if (pack_rows(run, leaf, table, n_threads) || pack_panels(run, leaf, table, n_threads))
        return MERCER_NO_MEMORY;
    if (!(leaf->kind == LEAF_SQDIST && leaf->expand))
        return MERCER_OK;
    if (own(leaf, OWN_COL_NORMS, (size_t)(run->m + 2 * table->tile) * table->element, n_threads) ||
        norms(leaf, &leaf->right, leaf->panels, table, leaf->owned[OWN_COL_NORMS], n_threads))
        return MERCER_NO_MEMORY;
    leaf->col_norms = leaf->row_norms = leaf->owned[OWN_COL_NORMS];
    if (run->symmetric)
        return MERCER_OK;
    if (own(leaf, OWN_ROW_NORMS, (size_t)(run->n + 2 * table->tile) * table->element, n_threads) ||
        norms(leaf, &leaf->left, NULL, table, leaf->owned[OWN_ROW_NORMS], n_threads))
        return MERCER_NO_MEMORY;
    leaf->row_norms = leaf->owned[OWN_ROW_NORMS];
    return MERCER_OK;
}

int mercer_prepare(MercerRun *run, const MercerTable *table, int n_threads)
{
    for (int l = 0; l < run->n_leaves; l++)
        if (run->leaves[l].kind != LEAF_BLOCK && prepare_leaf(run, &run->leaves[l], table, n_threads)) {
            mercer_release(run);
            return MERCER_NO_MEMORY;
        }
    return MERCER_OK;
}

void mercer_release(MercerRun *run)
{
    for (int l = 0; l < run->n_leaves; l++)
        for (int what = 0; what < 4; what++) {
            mercer_give(run->leaves[l].owned[what], run->leaves[l].owned_bytes[what]);
            run->leaves[l].owned[what] = NULL;
        }
}

static size_t scratch_size(const MercerRun *run, const MercerTable *table)
{
    return (table->scratch_bytes(run) + 63) / 64 * 64;
}

/* Scratch whose first word says that it holds no panels, and so many bytes behind it. */
static void *new_scratch(const MercerRun *run, const MercerTable *table, size_t more)
{
    void *scratch = aligned_alloc(64, scratch_size(run, table) + (more + 63) / 64 * 64);
    if (scratch)
        *(ptrdiff_t *)scratch = 0;
    return scratch;
}

/* ---- the Gram matrix ---------------------------------------------------------------------------- */

typedef struct {
    ptrdiff_t i0, i1, j0, j1;
} Block;

/* Tile t in the order of columns, then rows; in the symmetric case only rows up to the diagonal. */
static Block nth_block(const MercerRun *run, ptrdiff_t tile, ptrdiff_t t, ptrdiff_t *column)
{
    const ptrdiff_t n_rows = ceil_div(run->n, tile);
    ptrdiff_t j = *column, i;
    if (run->symmetric) {
        while ((j + 1) * (j + 2) / 2 <= t)
            j++;
        i = t - j * (j + 1) / 2;
    } else {
        j = t / n_rows;
        i = t % n_rows;
    }
    *column = j;
    return (Block){i * tile, least((i + 1) * tile, run->n), j * tile, least((j + 1) * tile, run->m)};
}

/* Results above this size go past the caches: they would not stay there. */
enum { STREAM_BYTES = 1 << 23 };

/* Puts a tile of the values, and in the symmetric case its mirror image, into out; `single` has room for both. */
static void store_block(const MercerRun *run, const MercerTable *table, const MercerTable *stored, char *values,
                        char *single, Block b, char *out, ptrdiff_t ldo, int stream)
{
    const ptrdiff_t ni = b.i1 - b.i0, nj = b.j1 - b.j0, tile = table->tile;
    const size_t size = stored->element;
    char *space = values + (size_t)(tile * tile) * size; /* the first leaf's tile has served */
    if (stored != table) {
        table->narrow(values, ni, nj, (float *)single, stored->tile);
        values = single;
        space = single + (size_t)(tile * stored->tile) * size;
    }
    stored->store(values, ni, nj, out + (size_t)(b.i0 * ldo + b.j0) * size, ldo, stream);
    if (run->symmetric && b.i0 < b.j0)
        stored->store_transposed(values, space, ni, nj, out + (size_t)(b.j0 * ldo + b.i0) * size, ldo, stream);
}

int mercer_gram(const MercerRun *run, const MercerTable *table, const MercerTable *stored, void *out, ptrdiff_t ldo,
                MercerState *state, double pause_after, int n_threads)
{
    const ptrdiff_t tile = table->tile, n_rows = ceil_div(run->n, tile), n_cols = ceil_div(run->m, tile);
    const ptrdiff_t total = run->symmetric ? n_rows * (n_rows + 1) / 2 : n_rows * n_cols;
    const size_t single = stored != table ? (size_t)(2 * tile * stored->tile) * sizeof(float) : 0;
    const double start = omp_get_wtime();
    const int stream = (size_t)run->n * (size_t)run->m * stored->element > STREAM_BYTES;
    int failed = 0;
    n_threads = (int)least(n_threads, total - state->next);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        char *scratch = new_scratch(run, table, single);
        ptrdiff_t column = 0;
        if (!scratch) {
#pragma omp atomic write
            failed = 1;
        }
        while (scratch) {
            ptrdiff_t t;
            if (omp_get_wtime() - start > pause_after)
                break;
#pragma omp atomic capture
            t = state->next++;
            if (t >= total)
                break;
            const Block b = nth_block(run, tile, t, &column);
            char *values = table->tile_values(run, scratch, b.i0, b.i1, b.j0, b.j1);
            store_block(run, table, stored, values, scratch + scratch_size(run, table), b, out, ldo, stream);
        }
        free(scratch);
    }
    if (failed)
        return MERCER_NO_MEMORY;
    return state->next < total ? MERCER_PAUSED : MERCER_OK;
}

/* ---- K @ V ---------------------------------------------------------------------------------------- */

/* Strips of the symmetric case: enough for many threads, few enough for their partial sums' memory. */
enum { MAX_STRIPS = 32, PARTIAL_BYTES = 1 << 27 };

static size_t y_size(const MercerRun *run, const MercerState *state)
{
    return (size_t)(state->p > MERCER_NARROW ? run->n : state->p) * (size_t)state->ldy;
}

/* Packs V: rows padded to vectors, or columns if they are few. */
int mercer_matmul_begin(const MercerRun *run, const MercerTable *table, const void *V, ptrdiff_t p, double *out,
                        MercerState *state)
{
    const ptrdiff_t n = run->n, m = run->m, n_rows = ceil_div(n, table->tile), pad = 64 / (ptrdiff_t)table->element;
    const size_t size = table->element;
    const int wide = p > MERCER_NARROW;
    state->p = p;
    state->ldv = wide ? ceil_div(p, pad) * pad : ceil_div(m, pad) * pad + table->tile;
    state->ldy = wide ? p : n;
    const size_t v_bytes = (size_t)(wide ? m : p) * (size_t)state->ldv * size;
    state->V = aligned_alloc(64, (v_bytes + 63) / 64 * 64);
    state->n_strips = n_rows;
    if (run->symmetric) {
        const ptrdiff_t affordable = (ptrdiff_t)(PARTIAL_BYTES / (y_size(run, state) * sizeof(double)));
        state->n_strips = least(n_rows, affordable < 4 ? 4 : least(affordable, MAX_STRIPS));
    }
    const size_t copies = run->symmetric ? (size_t)state->n_strips : 1;
    if (wide && !run->symmetric) {
        state->partial = out;
        memset(out, 0, copies * y_size(run, state) * sizeof(double));
    } else {
        state->partial = calloc(copies * y_size(run, state), sizeof(double));
    }
    state->progress = calloc((size_t)state->n_strips, sizeof(ptrdiff_t));
    if (!state->V || !state->partial || !state->progress)
        return MERCER_NO_MEMORY;
    memset(state->V, 0, v_bytes);
    for (ptrdiff_t j = 0; j < m; j++)
        for (ptrdiff_t c = 0; c < p; c++)
            memcpy((char *)state->V + (size_t)(wide ? j * state->ldv + c : c * state->ldv + j) * size,
                   (const char *)V + (size_t)(j * p + c) * size, size);
    return MERCER_OK;
}

/* One tile of K @ V: into the rows' part of Y, and in the symmetric case into the columns' part too. */
static void apply_tile(const MercerRun *run, const MercerTable *table, const MercerState *state, void *scratch,
                       double *Y, Block b)
{
    const size_t size = table->element;
    const int wide = state->p > MERCER_NARROW;
    const ptrdiff_t ldv = wide ? state->ldv : 1, ldy = wide ? state->ldy : 1;
    const ptrdiff_t ni = b.i1 - b.i0, nj = b.j1 - b.j0;
    const void *values = table->tile_values(run, scratch, b.i0, b.i1, b.j0, b.j1);
    table->multiply(values, ni, nj, (const char *)state->V + (size_t)(b.j0 * ldv) * size, state->ldv, state->p,
                    Y + b.i0 * ldy, state->ldy);
    if (run->symmetric && b.i0 < b.j0)
        table->multiply_transposed(values, ni, nj, (const char *)state->V + (size_t)(b.i0 * ldv) * size, state->ldv,
                                   state->p, Y + b.j0 * ldy, state->ldy);
}

/* Works on strip s from where it was left; returns 0 when the time is over. Strip s of the symmetric case has
 * the tile rows s, s + n_strips, …, each from the diagonal on. */
static int run_strip(const MercerRun *run, const MercerTable *table, MercerState *state, void *scratch, ptrdiff_t s,
                     double deadline)
{
    const ptrdiff_t tile = table->tile, n_rows = ceil_div(run->n, tile);
    ptrdiff_t done = 0;
    double *Y = state->partial + (run->symmetric ? (size_t)s * y_size(run, state) : 0);
    for (ptrdiff_t i = s; i < n_rows; i += state->n_strips)
        for (ptrdiff_t j = run->symmetric ? i * tile : 0; j < run->m; j += tile, done++) {
            if (done < state->progress[s])
                continue;
            if (omp_get_wtime() > deadline)
                return 0;
            apply_tile(run, table, state, scratch, Y,
                       (Block){i * tile, least((i + 1) * tile, run->n), j, least(j + tile, run->m)});
            state->progress[s]++;
        }
    state->progress[s] = -1;
    return 1;
}

int mercer_matmul(const MercerRun *run, const MercerTable *table, MercerState *state, double pause_after, int n_threads)
{
    const double deadline = omp_get_wtime() + pause_after;
    int failed = 0, paused = 0;
    state->next = 0;
    n_threads = (int)least(n_threads, state->n_strips);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        void *scratch = new_scratch(run, table, 0);
        if (!scratch) {
#pragma omp atomic write
            failed = 1;
        }
        while (scratch) {
            ptrdiff_t s;
#pragma omp atomic capture
            s = state->next++;
            if (s >= state->n_strips)
                break;
            if (state->progress[s] >= 0 && !run_strip(run, table, state, scratch, s, deadline)) {
#pragma omp atomic write
                paused = 1;
                break;
            }
        }
        free(scratch);
    }
    return failed ? MERCER_NO_MEMORY : paused ? MERCER_PAUSED : MERCER_OK;
}

void mercer_matmul_end(const MercerRun *run, MercerState *state, double *out)
{
    const int wide = state->p > MERCER_NARROW;
    const size_t copies = run->symmetric ? (size_t)state->n_strips : 1, size = y_size(run, state);
    const int in_place = wide && !run->symmetric;
    for (ptrdiff_t i = 0; !in_place && out && state->partial && i < run->n; i++)
        for (ptrdiff_t c = 0; c < state->p; c++) {
            double sum = 0;
            for (size_t s = 0; s < copies; s++)
                sum += state->partial[s * size + (size_t)(wide ? i * state->ldy + c : c * state->ldy + i)];
            out[i * state->p + c] = sum;
        }
    free(state->V);
    if (!in_place)
        free(state->partial);
    free(state->progress);
    memset(state, 0, sizeof *state);
}

/* Packed columns of some variables, for rows after shrinking, and products with them. */
#include <stdlib.h>
#include <string.h>

#include "dual.h"

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

/* ---- gathering -------------------------------------------------------------------------------------------- */

static void *aligned(size_t bytes)
{
    return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

/* Columns `from` (−1: none) of packed panels, their norms and row functions: what a run over them reads. */
static int gather_leaf(const MercerTable *table, const MercerLeaf *leaf, MercerLeaf *out, const int32_t *from, ptrdiff_t m)
{
    const ptrdiff_t width = table->panel_width, d = leaf->d;
    const size_t size = table->element;
    char *panels = NULL, *norms = NULL;
    if (leaf->panels) {
        panels = aligned((size_t)dual_padded(m, width) * (size_t)d * size);
        out->panels = panels;
        if (!panels)
            return MERCER_NO_MEMORY;
    }
    if (leaf->col_norms) {
        norms = aligned((size_t)(m + 2 * table->tile) * size);
        out->col_norms = norms;
        if (!norms)
            return MERCER_NO_MEMORY;
        memset(norms, 0, (size_t)(m + 2 * table->tile) * size);
    }
    for (ptrdiff_t j = 0; j < dual_padded(m, width); j++) {
        const ptrdiff_t source = from[least(j, m - 1)];
        const char *panel = (const char *)leaf->panels + (size_t)(source / width * d * width + source % width) * size;
        char *to = panels + (size_t)(j / width * d * width + j % width) * size;
        if (panels && size == 4)
            for (ptrdiff_t k = 0; k < d; k++)
                ((float *)to)[k * width] = ((const float *)panel)[k * width];
        else if (panels)
            for (ptrdiff_t k = 0; k < d; k++)
                ((double *)to)[k * width] = ((const double *)panel)[k * width];
        if (norms && j < m)
            memcpy(norms + (size_t)j * size, (const char *)leaf->col_norms + (size_t)source * size, size);
    }
    return MERCER_OK;
}

int dual_gather(const MercerDual *dual, MercerRun *out, int32_t *from, ptrdiff_t m)
{
    const MercerTable *table = dual->table;
    memset(out, 0, sizeof *out);
    out->column_of = from;
    out->m = m;
    if (!dual->run)
        return MERCER_OK;
    *out = *dual->run;
    out->column_of = from;
    out->m = m;
    out->right_vecs = NULL;
    out->leaves = calloc((size_t)out->n_leaves, sizeof(MercerLeaf));
    if (!out->leaves) {
        out->n_leaves = 0;
        return MERCER_NO_MEMORY;
    }
    for (int l = 0; l < out->n_leaves; l++) {
        out->leaves[l] = dual->run->leaves[l];
        out->leaves[l].panels = out->leaves[l].col_norms = NULL;
    }
    for (int l = 0; l < out->n_leaves; l++)
        if (gather_leaf(table, &dual->run->leaves[l], &out->leaves[l], from, m))
            return MERCER_NO_MEMORY;
    if (out->n_vecs) {
        const size_t size = table->element;
        out->right_ld = m + table->tile;
        char *vecs = aligned((size_t)(out->n_vecs * out->right_ld) * size);
        out->right_vecs = vecs;
        if (!vecs)
            return MERCER_NO_MEMORY;
        memset(vecs, 0, (size_t)(out->n_vecs * out->right_ld) * size);
        for (int v = 0; v < out->n_vecs; v++)
            for (ptrdiff_t j = 0; j < m; j++)
                memcpy(vecs + (size_t)(v * out->right_ld + j) * size,
                       (const char *)dual->run->right_vecs + (size_t)(v * dual->run->right_ld + from[j]) * size, size);
    }
    return MERCER_OK;
}

void dual_release(MercerRun *run)
{
    for (int l = 0; l < run->n_leaves; l++) {
        free((void *)run->leaves[l].panels);
        free((void *)run->leaves[l].col_norms);
    }
    free(run->leaves);
    free((void *)run->right_vecs);
    free((void *)run->column_of);
}

/* ---- products -------------------------------------------------------------------------------------------- */

typedef struct {
    const DualRows *rows;
    MercerRun run;               /* over the columns */
    const int32_t *columns, *sources;
    const double *coefficients;
    ptrdiff_t n_columns, n_sources;
    double *F;
    double *sums;                /* sums_size for each part, for a matrix */
    ptrdiff_t sums_size;
} Subtraction;

/* One tile of columns j0..j1 against all sources, into sum (tile). */
static void subtract_tile(const Subtraction *job, ptrdiff_t j0, ptrdiff_t j1, char *scratch, double *sum)
{
    const MercerTable *table = job->rows->dual->table;
    MercerRun run = job->run;
    memset(sum, 0, (size_t)table->tile * sizeof(double));
    for (ptrdiff_t i = 0; i < job->n_sources; i += table->tile) {
        const ptrdiff_t some = least(table->tile, job->n_sources - i);
        run.row_of = job->sources + i;
        const char *values = table->tile_values(&run, scratch, 0, some, j0, j1);
        table->smo_add(dual_padded(j1 - j0, table->smo_step), sum, some, values, table->tile, NULL,
                       job->coefficients + i);
    }
}

/* Columns k0..k1 of a matrix, which ascend and are near each other, against all sources. */
static void subtract_stretch(const Subtraction *job, ptrdiff_t k0, ptrdiff_t k1, double *sums)
{
    const MercerDual *dual = job->rows->dual;
    const MercerTable *table = dual->table;
    const int32_t *column = job->run.column_of;
    const ptrdiff_t first = column[k0], width = dual_padded(column[k1 - 1] + 1 - first, table->smo_step);
    memset(sums, 0, (size_t)width * sizeof(double));
    table->smo_add(width, sums, job->n_sources, (const char *)dual->matrix + (size_t)first * table->element, dual->ld,
                   job->sources, job->coefficients);
    for (ptrdiff_t k = k0; k < k1; k++)
        job->F[job->columns[k]] -= sums[column[k] - first];
}

/* Columns k0..k1 of a matrix, by stretches: what lies between two columns less than two steps apart costs no more than
 * a stretch of its own. */
static void subtract_matrix(const Subtraction *job, ptrdiff_t k0, ptrdiff_t k1, double *sums)
{
    const int32_t *column = job->run.column_of;
    const ptrdiff_t near = 2 * job->rows->dual->table->smo_step;
    for (ptrdiff_t k = k0, next; k < k1; k = next) {
        next = k + 1;
        while (next < k1 && column[next] > column[next - 1] && column[next] - column[next - 1] < near)
            next++;
        subtract_stretch(job, k, next, sums);
    }
}

static void subtract_part(void *context, int part, int thread)
{
    const Subtraction *job = context;
    const DualRows *rows = job->rows;
    const ptrdiff_t tile = rows->dual->table->tile;
    const int n_parts = rows->team ? rows->team->n : 1;
    const ptrdiff_t begin = dual_part(job->n_columns, part, n_parts, tile);
    const ptrdiff_t end = dual_part(job->n_columns, part + 1, n_parts, tile);
    char *scratch = rows->scratch + (size_t)thread * rows->scratch_bytes;
    double *sum = (double *)(scratch + rows->scratch_bytes - (size_t)tile * sizeof(double));
    if (!rows->dual->run) {
        subtract_matrix(job, begin, end, job->sums + part * job->sums_size);
        return;
    }
    for (ptrdiff_t j = begin; j < end; j += tile) {
        const ptrdiff_t stop = least(j + tile, end);
        subtract_tile(job, j, stop, scratch, sum);
        for (ptrdiff_t k = j; k < stop; k++)
            job->F[job->columns[k]] -= sum[k - j];
        if (thread == 0 && rows->stopped && rows->stopped(rows->smo))
            return;
    }
}

int dual_rows_subtract(DualRows *rows, const int32_t *columns, ptrdiff_t n_columns, const int32_t *sources,
                       const double *coefficients, ptrdiff_t n_sources, double *F)
{
    int32_t *from = malloc((size_t)(n_columns + 1) * sizeof(int32_t));
    int32_t *source_rows = malloc((size_t)(n_sources + 1) * sizeof(int32_t));
    Subtraction job = {.rows = rows, .columns = columns, .sources = source_rows, .coefficients = coefficients,
                       .n_columns = n_columns, .n_sources = n_sources, .F = F};
    if (!rows->dual->run) {
        job.sums_size = rows->dual->n + rows->dual->table->smo_step;
        job.sums = malloc((size_t)(job.sums_size * (rows->team ? rows->team->n : 1)) * sizeof(double));
    }
    if (!from || !source_rows || (!rows->dual->run && !job.sums)) {
        free(from);
        free(source_rows);
        free(job.sums);
        return MERCER_NO_MEMORY;
    }
    for (ptrdiff_t k = 0; k < n_columns; k++)
        from[k] = (int32_t)dual_layout(rows->job, columns[k]);
    for (ptrdiff_t k = 0; k < n_sources; k++)
        source_rows[k] = (int32_t)dual_layout(rows->job, sources[k]);
    const int failed = dual_gather(rows->dual, &job.run, from, n_columns);
    if (!failed && rows->team)
        team_run(rows->team, subtract_part, &job);
    else if (!failed)
        subtract_part(&job, 0, 0);
    dual_release(&job.run);
    free(source_rows);
    free(job.sums);
    return failed ? MERCER_NO_MEMORY : MERCER_OK;
}

/* ---- the diagonal ------------------------------------------------------------------------------------------ */

int mercer_dual_diagonal(const MercerRun *run, const MercerTable *table, void *out, ptrdiff_t n, int n_threads)
{
    const size_t bytes = (table->scratch_bytes(run) + 63) / 64 * 64;
    int failed = 0;
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        void *scratch = aligned_alloc(64, bytes);
        if (!scratch) {
#pragma omp atomic write
            failed = 1;
        } else {
            *(ptrdiff_t *)scratch = 0;
        }
#pragma omp for schedule(static)
        for (ptrdiff_t i = 0; i < n; i++) {
            const ptrdiff_t j = i / table->panel_width * table->panel_width;
            if (scratch)
                memcpy((char *)out + (size_t)i * table->element,
                       (char *)table->tile_values(run, scratch, i, i + 1, j, i + 1) + (size_t)(i - j) * table->element,
                       table->element);
        }
        free(scratch);
    }
    return failed ? MERCER_NO_MEMORY : MERCER_OK;
}

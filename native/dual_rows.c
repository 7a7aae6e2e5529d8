/* Kernel rows for the dual solver: computed when first asked for, kept while there is room, and cut down to the active
 * variables when the solver shrinks. */
#if defined(__linux__)
#define _DEFAULT_SOURCE
#include <sys/mman.h>
#endif
#include <stdlib.h>
#include <string.h>

#include "dual.h"

/* Most rows of the first iterations are never asked for again, and pages for them cost half as much as the rows: the
 * cache begins with FIRST_BYTES, and doubles when rows that had to give way come back. */
enum { HUGE_PAGE = 1 << 21, FIRST_BYTES = 1 << 25 };
enum { ROW_NEW = -1, ROW_GONE = -2 };

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

static size_t element(const DualRows *rows)
{
    return rows->dual->table->element;
}

/* ---- the cache ------------------------------------------------------------------------------------------ */

static void unlink_slot(DualRows *rows, int32_t slot)
{
    const int32_t before = rows->before[slot], after = rows->after[slot];
    if (before >= 0)
        rows->after[before] = after;
    else
        rows->oldest = after;
    if (after >= 0)
        rows->before[after] = before;
    else
        rows->newest = before;
}

static void append_slot(DualRows *rows, int32_t slot)
{
    rows->before[slot] = rows->newest;
    rows->after[slot] = -1;
    if (rows->newest >= 0)
        rows->after[rows->newest] = slot;
    else
        rows->oldest = slot;
    rows->newest = slot;
}

static void forget_all(DualRows *rows)
{
    for (ptrdiff_t k = 0; k < rows->max_size; k++)
        rows->slot_of[k] = ROW_NEW;
    rows->used = rows->n_repeated = 0;
    rows->oldest = rows->newest = -1;
}

/* Slots for rows of the present length: all rows, or as many as the budget allows, but three at least. */
static int lay_out(DualRows *rows, ptrdiff_t length)
{
    const size_t row = (size_t)length * element(rows);
    ptrdiff_t count = (ptrdiff_t)(rows->dual->cache_bytes / row);
    count = least(count < 3 ? 3 : count, rows->n);
    const size_t bytes = ((size_t)count * row + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (bytes > rows->allocated) {
        free(rows->slots);
        rows->slots = aligned_alloc(bytes > 2 * HUGE_PAGE ? HUGE_PAGE : 64, bytes);
        rows->allocated = rows->slots ? bytes : 0;
        if (!rows->slots)
            return MERCER_NO_MEMORY;
#if defined(__linux__)
        if (bytes > 2 * HUGE_PAGE)
            madvise(rows->slots, bytes, MADV_HUGEPAGE);
#endif
    }
    if (count > rows->slot_room) {
        rows->slot_room = count;
        free(rows->owner);
        free(rows->before);
        free(rows->after);
        rows->owner = malloc((size_t)count * sizeof(int32_t));
        rows->before = malloc((size_t)count * sizeof(int32_t));
        rows->after = malloc((size_t)count * sizeof(int32_t));
        if (!rows->owner || !rows->before || !rows->after)
            return MERCER_NO_MEMORY;
    }
    rows->affordable = count;
    rows->n_slots = least(count, (ptrdiff_t)(FIRST_BYTES / row) + 64);
    rows->stride = length;
    return MERCER_OK;
}

static char *slot_memory(const DualRows *rows, int32_t slot)
{
    return rows->slots + (size_t)slot * (size_t)rows->stride * element(rows);
}

/* A free slot, or the one whose row was not asked for longest. */
static int32_t take_slot(DualRows *rows, ptrdiff_t position)
{
    int32_t slot;
    if (rows->slot_of[position] == ROW_GONE && ++rows->n_repeated > rows->n_slots / 8) {
        rows->n_slots = least(2 * rows->n_slots, rows->affordable);
        rows->n_repeated = 0;
    }
    if (rows->used < rows->n_slots) {
        slot = (int32_t)rows->used++;
    } else {
        slot = rows->oldest;
        unlink_slot(rows, slot);
        rows->slot_of[rows->owner[slot]] = ROW_GONE;
    }
    rows->owner[slot] = (int32_t)position;
    rows->slot_of[position] = slot;
    append_slot(rows, slot);
    return slot;
}

/* ---- computing ------------------------------------------------------------------------------------------ */

/* Threads share rows of more work than this (some microseconds). */
static const double SHARED_WORK = 1e5;

typedef struct {
    const DualRows *rows;
    ptrdiff_t layout_row;
    char *out;
} Fill;

/* Columns j0..j1 of a range. */
static void fill_range(const Fill *job, const DualRange *range, ptrdiff_t j0, ptrdiff_t j1, char *scratch)
{
    const DualRows *rows = job->rows;
    const MercerDual *dual = rows->dual;
    const size_t size = element(rows);
    const int32_t row_of[1] = {(int32_t)job->layout_row};
    char *to = job->out + (size_t)range->position * size;
    if (range->run) {
        MercerRun run = *range->run;
        run.row_of = row_of;
        for (ptrdiff_t j = j0; j < j1; j += dual->table->tile) {
            const ptrdiff_t end = least(j + dual->table->tile, j1);
            memcpy(to + (size_t)j * size, dual->table->tile_values(&run, scratch, 0, 1, range->at + j, range->at + end),
                   (size_t)(end - j) * size);
        }
        return;
    }
    const char *row = (const char *)dual->matrix + (size_t)(job->layout_row * dual->ld) * size;
    if (!rows->is_gathered)
        memcpy(to + (size_t)j0 * size, row + (size_t)(range->at + j0) * size, (size_t)(j1 - j0) * size);
    for (ptrdiff_t j = j0; rows->is_gathered && j < j1; j++)
        memcpy(to + (size_t)j * size, row + (size_t)rows->gathered.column_of[j] * size, size);
}

static void fill_part(void *context, int part, int thread)
{
    const Fill *job = context;
    const DualRows *rows = job->rows;
    const int n_parts = rows->team ? rows->team->n : 1;
    for (int r = 0; r < rows->n_ranges; r++) {
        const DualRange *range = &rows->ranges[r];
        const ptrdiff_t unit = rows->dual->table->tile;
        fill_range(job, range, dual_part(range->length, part, n_parts, unit),
                   dual_part(range->length, part + 1, n_parts, unit), rows->scratch + (size_t)thread * rows->scratch_bytes);
    }
}

static void fill(DualRows *rows, ptrdiff_t layout_row, char *out)
{
    const size_t size = element(rows);
    Fill job = {rows, layout_row, out};
    ptrdiff_t filled = 0;
    for (int r = 0; r < rows->n_ranges; r++) { /* zeros where a range is padded */
        const DualRange *range = &rows->ranges[r];
        memset(out + (size_t)filled * size, 0, (size_t)(range->position - filled) * size);
        filled = range->position + range->length;
    }
    memset(out + (size_t)filled * size, 0, (size_t)(rows->n - filled) * size);
    if (rows->team && rows->work * (double)rows->n > SHARED_WORK)
        team_run(rows->team, fill_part, &job);
    else
        for (int part = 0; part < (rows->team ? rows->team->n : 1); part++)
            fill_part(&job, part, 0);
    rows->n_computed++;
}

const void *dual_row(DualRows *rows, const int32_t *variable, ptrdiff_t position)
{
    const ptrdiff_t at = dual_layout(rows->job, variable[position]);
    if (!rows->ranges[0].run && !rows->is_gathered && rows->n_ranges == 1)
        return (const char *)rows->dual->matrix +
               (size_t)(at * rows->dual->ld + rows->ranges[0].at) * element(rows);
    int32_t slot = rows->slot_of[position];
    if (slot >= 0) {
        if (slot != rows->newest) {
            unlink_slot(rows, slot);
            append_slot(rows, slot);
        }
        return slot_memory(rows, slot);
    }
    slot = take_slot(rows, position);
    fill(rows, at, slot_memory(rows, slot));
    return slot_memory(rows, slot);
}

/* ---- beginning, shrinking, restoring --------------------------------------------------------------------- */

/* The ranges of the job, each padded to the solver's step; adjacent ones of one sum are one. */
static void all_columns(DualRows *rows)
{
    const MercerDual *dual = rows->dual;
    const MercerDualJob *job = rows->job;
    const ptrdiff_t step = dual->table->smo_step;
    const int adjacent = !job->separate && job->start[0] + job->length[0] == job->start[1];
    rows->n_ranges = job->length[1] == 0 || adjacent ? 1 : 2;
    rows->ranges[0] = (DualRange){dual->run, job->start[0], job->length[0] + (adjacent ? job->length[1] : 0), 0};
    rows->n = dual_padded(rows->ranges[0].length, step);
    if (rows->n_ranges == 2) {
        rows->ranges[1] = (DualRange){dual->run, job->start[1], job->length[1], rows->n};
        rows->n += dual_padded(job->length[1], step);
    }
}

static void release_gathered(DualRows *rows)
{
    if (!rows->is_gathered)
        return;
    for (int l = 0; l < rows->gathered.n_leaves; l++) {
        free((void *)rows->gathered.leaves[l].panels);
        free((void *)rows->gathered.leaves[l].col_norms);
    }
    free(rows->gathered.leaves);
    free((void *)rows->gathered.right_vecs);
    free((void *)rows->gathered.column_of);
    rows->is_gathered = 0;
}

/* A tile for each thread, and behind it the sums of subtract_part. */
static int make_scratch(DualRows *rows)
{
    const MercerDual *dual = rows->dual;
    const size_t tile = dual->run ? (dual->table->scratch_bytes(dual->run) + 63) / 64 * 64 : 0;
    const size_t bytes = tile + (size_t)dual->table->tile * sizeof(double);
    if (bytes <= rows->scratch_bytes)
        return MERCER_OK;
    free(rows->scratch);
    rows->scratch = aligned_alloc(64, bytes * (size_t)(rows->team ? rows->team->n : 1));
    rows->scratch_bytes = rows->scratch ? bytes : 0;
    return rows->scratch ? MERCER_OK : MERCER_NO_MEMORY;
}

/* About the vector operations of an entry. */
static double work_of(const MercerRun *run)
{
    double work = 20;
    for (int l = 0; run && l < run->n_leaves; l++) {
        const MercerLeaf *leaf = &run->leaves[l];
        work += leaf->left.indices && leaf->left.n ? 3.0 * (double)leaf->left.indptr[leaf->left.n] / (double)leaf->left.n
                                                   : (double)leaf->d;
    }
    return work;
}

int dual_rows_begin(DualRows *rows, const MercerDual *dual, const MercerDualJob *job)
{
    rows->dual = dual;
    rows->job = job;
    rows->n_computed = 0;
    rows->is_gathered = 0;
    all_columns(rows);
    if (rows->n > rows->max_size) {
        free(rows->slot_of);
        rows->max_size = rows->n;
        rows->slot_of = malloc((size_t)rows->n * sizeof(int32_t));
        if (!rows->slot_of)
            return MERCER_NO_MEMORY;
    }
    rows->work = work_of(dual->run);
    if (make_scratch(rows) || lay_out(rows, rows->n))
        return MERCER_NO_MEMORY;
    forget_all(rows);
    return MERCER_OK;
}

void dual_rows_end(DualRows *rows)
{
    release_gathered(rows);
    free(rows->scratch);
    free(rows->slots);
    free(rows->slot_of);
    free(rows->owner);
    free(rows->before);
    free(rows->after);
    memset(rows, 0, sizeof *rows);
}

void dual_rows_restore(DualRows *rows)
{
    release_gathered(rows);
    all_columns(rows);
    lay_out(rows, rows->n);
    forget_all(rows);
}

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

/* A run whose columns are the layout's `from` (m), which it owns. */
static int gather(const MercerDual *dual, MercerRun *out, int32_t *from, ptrdiff_t m)
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

/* Cached rows of kept variables, moved to the front and cut; the others are dropped. */
static void shrink_slots(DualRows *rows, const int32_t *kept, ptrdiff_t n_kept)
{
    const size_t size = element(rows);
    const ptrdiff_t old_stride = rows->stride, old_n = rows->n, new_stride = n_kept;
    int32_t *new_position = malloc((size_t)old_n * sizeof(int32_t));
    int32_t *order = malloc((size_t)(rows->used + 1) * sizeof(int32_t));
    char *cut = malloc((size_t)n_kept * size);
    if (!new_position || !order || !cut) {
        free(new_position);
        free(order);
        free(cut);
        forget_all(rows);
        rows->n = n_kept;
        return;
    }
    for (ptrdiff_t k = 0; k < old_n; k++)
        new_position[k] = -1;
    for (ptrdiff_t k = 0; k < n_kept; k++)
        if (kept[k] >= 0)
            new_position[kept[k]] = (int32_t)k;
    const ptrdiff_t used = rows->used;
    int32_t *renamed = order; /* slot -> new slot or −1 */
    ptrdiff_t next = 0;
    for (ptrdiff_t slot = 0; slot < used; slot++) {
        const int32_t position = new_position[rows->owner[slot]];
        renamed[slot] = -1;
        if (position < 0)
            continue;
        const char *from = rows->slots + (size_t)(slot * old_stride) * size;
        for (ptrdiff_t k = 0; size == 4 && k < n_kept; k++)
            ((float *)cut)[k] = kept[k] < 0 ? 0 : ((const float *)from)[kept[k]];
        for (ptrdiff_t k = 0; size == 8 && k < n_kept; k++)
            ((double *)cut)[k] = kept[k] < 0 ? 0 : ((const double *)from)[kept[k]];
        memcpy(rows->slots + (size_t)(next * new_stride) * size, cut, (size_t)n_kept * size);
        renamed[slot] = (int32_t)next++;
    }
    /* the order of use stays */
    int32_t *sequence = new_position; /* reused below: positions first, then the chain */
    int32_t *owners = malloc((size_t)(used + 1) * sizeof(int32_t)), *chain = malloc((size_t)(used + 1) * sizeof(int32_t));
    ptrdiff_t n_chain = 0;
    if (owners && chain) {
        for (int32_t slot = rows->oldest; slot >= 0; slot = rows->after[slot])
            if (renamed[slot] >= 0) {
                owners[renamed[slot]] = sequence[rows->owner[slot]];
                chain[n_chain++] = renamed[slot];
            }
    }
    rows->n = n_kept;
    rows->stride = new_stride;
    forget_all(rows);
    const size_t row = (size_t)new_stride * size;
    rows->affordable = least(rows->slot_room, (ptrdiff_t)(rows->allocated / row));
    rows->n_slots = least(rows->affordable, (ptrdiff_t)(FIRST_BYTES / row) + 64);
    rows->n_slots = n_chain > rows->n_slots ? n_chain : rows->n_slots;
    for (ptrdiff_t k = 0; k < n_chain; k++) {
        rows->owner[chain[k]] = owners[chain[k]];
        rows->slot_of[owners[chain[k]]] = chain[k];
        append_slot(rows, chain[k]);
    }
    rows->used = n_chain;
    free(owners);
    free(chain);
    free(new_position);
    free(order);
    free(cut);
}

int dual_rows_shrink(DualRows *rows, const int32_t *variable, const int32_t *kept, ptrdiff_t n_kept)
{
    int32_t *from = malloc((size_t)n_kept * sizeof(int32_t));
    MercerRun run;
    if (!from)
        return MERCER_NO_MEMORY;
    ptrdiff_t last = 0;
    for (ptrdiff_t k = 0; k < n_kept; k++) {
        if (kept[k] >= 0)
            last = dual_layout(rows->job, variable[kept[k]]);
        from[k] = (int32_t)last;
    }
    const int failed = gather(rows->dual, &run, from, n_kept);
    shrink_slots(rows, kept, n_kept);
    release_gathered(rows);
    rows->gathered = run;
    rows->is_gathered = 1;
    rows->n_ranges = 1;
    rows->ranges[0] = (DualRange){rows->dual->run ? &rows->gathered : NULL, 0, n_kept, 0};
    return failed ? MERCER_NO_MEMORY : MERCER_OK;
}

/* ---- products -------------------------------------------------------------------------------------------- */

typedef struct {
    const DualRows *rows;
    MercerRun run;               /* over the columns */
    const int32_t *columns, *sources;
    const double *coefficients;
    ptrdiff_t n_columns, n_sources;
    double *F;
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
        for (ptrdiff_t r = 0; r < some; r++)
            table->smo_add(dual_padded(j1 - j0, table->smo_step), sum,
                           values + (size_t)(r * table->tile) * table->element, -job->coefficients[i + r]);
    }
}

static void subtract_matrix(const Subtraction *job, ptrdiff_t k0, ptrdiff_t k1)
{
    const MercerDual *dual = job->rows->dual;
    for (ptrdiff_t i = 0; i < job->n_sources; i++) {
        const char *row = (const char *)dual->matrix + (size_t)(job->sources[i] * dual->ld) * dual->table->element;
        for (ptrdiff_t k = k0; k < k1; k++)
            job->F[job->columns[k]] -= job->coefficients[i] * dual_value(row, job->run.column_of[k], dual->table->element);
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
        subtract_matrix(job, begin, end);
        return;
    }
    for (ptrdiff_t j = begin; j < end; j += tile) {
        const ptrdiff_t stop = least(j + tile, end);
        subtract_tile(job, j, stop, scratch, sum);
        for (ptrdiff_t k = j; k < stop; k++)
            job->F[job->columns[k]] += sum[k - j];
    }
}

int dual_rows_subtract(DualRows *rows, const int32_t *columns, ptrdiff_t n_columns, const int32_t *sources,
                       const double *coefficients, ptrdiff_t n_sources, double *F)
{
    int32_t *from = malloc((size_t)(n_columns + 1) * sizeof(int32_t));
    int32_t *source_rows = malloc((size_t)(n_sources + 1) * sizeof(int32_t));
    Subtraction job = {.rows = rows, .columns = columns, .sources = source_rows, .coefficients = coefficients,
                       .n_columns = n_columns, .n_sources = n_sources, .F = F};
    if (!from || !source_rows) {
        free(from);
        free(source_rows);
        return MERCER_NO_MEMORY;
    }
    for (ptrdiff_t k = 0; k < n_columns; k++)
        from[k] = (int32_t)dual_layout(rows->job, columns[k]);
    for (ptrdiff_t k = 0; k < n_sources; k++)
        source_rows[k] = (int32_t)dual_layout(rows->job, sources[k]);
    const int failed = gather(rows->dual, &job.run, from, n_columns);
    if (!failed && rows->team)
        team_run(rows->team, subtract_part, &job);
    else if (!failed)
        subtract_part(&job, 0, 0);
    DualRows owner = {.gathered = job.run, .is_gathered = 1};
    release_gathered(&owner);
    free(source_rows);
    return failed ? MERCER_NO_MEMORY : MERCER_OK;
}

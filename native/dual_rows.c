/* Kernel rows for the dual solver: computed when first asked for, kept while there is room, and cut down to the active
 * variables when the solver shrinks. */
#include <stdlib.h>
#include <string.h>

#include "dual.h"

/* Most rows of the first iterations are never asked for again, and pages for them cost half as much as the rows: the
 * cache begins with FIRST_BYTES, and doubles when rows that had to give way come back. */
enum { FIRST_BYTES = 1 << 25 };
/* Memory for rows comes in chunks that memory.c keeps between problems: just below whole huge pages. */
enum { CHUNK_BYTES = (1 << 22) - 64, CHUNK_ROWS = 16 };
enum { ROW_NEW = -1, ROW_GONE = -2 };
/* With fewer slots rows that nobody asked for yet would drive out those at work. */
enum { MANY_SLOTS = 64 };

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

static void release_chunks(DualRows *rows)
{
    for (ptrdiff_t k = 0; k < rows->n_chunks; k++)
        mercer_give(rows->chunks[k], rows->chunk_bytes);
    rows->n_chunks = 0;
}

/* How many slots the budget allows, and how many are used for now. */
static void set_limits(DualRows *rows)
{
    const size_t row = (size_t)rows->stride * element(rows);
    const ptrdiff_t budget = (ptrdiff_t)(rows->dual->cache_bytes / row);
    rows->affordable = least(budget < 3 ? 3 : budget, least(rows->n, rows->slot_room));
    rows->n_slots = least(rows->affordable, (ptrdiff_t)(FIRST_BYTES / row) + 64);
    rows->per_chunk = (ptrdiff_t)(rows->chunk_bytes / row);
}

/* Slots for rows of the present length: all rows, or as many as the budget allows, but three at least. */
static int lay_out(DualRows *rows, ptrdiff_t length)
{
    const size_t row = (size_t)length * element(rows), all = row * (size_t)rows->n;
    size_t bytes = row * CHUNK_ROWS > CHUNK_BYTES ? row * CHUNK_ROWS : CHUNK_BYTES;
    bytes = all < bytes ? all : bytes;
    if (rows->n_chunks == 0 || bytes > rows->chunk_bytes) {
        release_chunks(rows);
        rows->chunk_bytes = bytes;
    }
    if (rows->n > rows->slot_room) {
        free(rows->owner);
        free(rows->before);
        free(rows->after);
        rows->owner = malloc((size_t)rows->n * sizeof(int32_t));
        rows->before = malloc((size_t)rows->n * sizeof(int32_t));
        rows->after = malloc((size_t)rows->n * sizeof(int32_t));
        rows->slot_room = rows->owner && rows->before && rows->after ? rows->n : 0;
        if (!rows->slot_room)
            return MERCER_NO_MEMORY;
    }
    rows->stride = length;
    set_limits(rows);
    return MERCER_OK;
}

static char *slot_memory(const DualRows *rows, ptrdiff_t slot)
{
    return rows->chunks[slot / rows->per_chunk] +
           (size_t)(slot % rows->per_chunk) * (size_t)rows->stride * element(rows);
}

/* Memory for slots 0..slot; 0 where there is none. */
static int reach(DualRows *rows, ptrdiff_t slot)
{
    while (slot >= rows->n_chunks * rows->per_chunk) {
        if (rows->n_chunks == rows->chunk_room) {
            char **more = realloc(rows->chunks, (size_t)(2 * rows->chunk_room + 8) * sizeof(char *));
            if (!more)
                return 0;
            rows->chunks = more;
            rows->chunk_room = 2 * rows->chunk_room + 8;
        }
        char *chunk = mercer_take(rows->chunk_bytes, 1);
        if (!chunk)
            return 0;
        rows->chunks[rows->n_chunks++] = chunk;
    }
    return 1;
}

/* The variable that a row is kept for: each sample has one row. */
static ptrdiff_t row_variable(const DualRows *rows, ptrdiff_t variable)
{
    const ptrdiff_t first = rows->job->length[0];
    return dual_twice(rows->job) && variable >= first ? variable - first : variable;
}

/* A free slot, or the one whose row was not asked for longest; −1 without memory for three. */
static int32_t take_slot(DualRows *rows, ptrdiff_t variable)
{
    int32_t slot;
    if (rows->slot_of[variable] == ROW_GONE && ++rows->n_repeated > rows->n_slots / 8) {
        rows->n_slots = least(2 * rows->n_slots, rows->affordable);
        rows->n_repeated = 0;
    }
    if (rows->used < rows->n_slots && reach(rows, rows->used)) {
        slot = (int32_t)rows->used++;
    } else if (rows->used < 3) {
        return -1;
    } else {
        slot = rows->oldest;
        unlink_slot(rows, slot);
        rows->slot_of[rows->owner[slot]] = ROW_GONE;
    }
    rows->owner[slot] = (int32_t)variable;
    rows->slot_of[variable] = slot;
    append_slot(rows, slot);
    return slot;
}

/* ---- computing ------------------------------------------------------------------------------------------ */

/* Threads share rows of more work than this (some microseconds). */
static const double TEAM_WORK = 1e5;

/* Where many problems meet the same class, a row's part over its own class is computed once. */
struct DualShared {
    ptrdiff_t at, length;
    char values[];
};

/* The own-class part of a row that another problem left; 0 if there is none. */
static int copy_shared(const DualRows *rows, const DualRange *range, ptrdiff_t layout_row, char *out)
{
    if (!rows->dual->shared)
        return 0;
    const struct DualShared *part = atomic_load_explicit(&rows->dual->shared[layout_row], memory_order_acquire);
    if (!part || part->at != range->at || part->length != range->length)
        return 0;
    memcpy(out, part->values, (size_t)range->length * element(rows));
    return 1;
}

static void leave_shared(const DualRows *rows, const DualRange *range, ptrdiff_t layout_row, const char *values)
{
    const size_t bytes = (size_t)range->length * element(rows);
    if (!rows->dual->shared || layout_row < range->at || layout_row >= range->at + range->length ||
        atomic_fetch_add(rows->dual->shared_bytes, bytes) > rows->dual->cache_bytes / 2)
        return;
    struct DualShared *part = malloc(sizeof(struct DualShared) + bytes), *none = NULL;
    if (!part)
        return;
    part->at = range->at;
    part->length = range->length;
    memcpy(part->values, values, bytes);
    if (!atomic_compare_exchange_strong(&rows->dual->shared[layout_row], &none, part))
        free(part); /* two threads at once: the values are the same */
}

/* Rows that are computed together. */
typedef struct {
    const DualRows *rows;
    int n_rows;
    int32_t layout_row[DUAL_TOGETHER];
    char *out[DUAL_TOGETHER];
} Fill;

/* Columns j0..j1 of a range. */
static void fill_range(const Fill *job, const DualRange *range, ptrdiff_t j0, ptrdiff_t j1, char *scratch)
{
    const DualRows *rows = job->rows;
    const MercerDual *dual = rows->dual;
    const size_t size = element(rows);
    const ptrdiff_t tile = dual->table->tile;
    if (range->run) {
        MercerRun run = *range->run;
        run.row_of = job->layout_row;
        for (ptrdiff_t j = j0; j < j1; j += tile) {
            const ptrdiff_t end = least(j + tile, j1);
            const char *values = dual->table->tile_values(&run, scratch, 0, job->n_rows, range->at + j, range->at + end);
            for (int r = 0; r < job->n_rows; r++)
                memcpy(job->out[r] + (size_t)(range->position + j) * size, values + (size_t)(r * tile) * size,
                       (size_t)(end - j) * size);
        }
        return;
    }
    const int32_t *column = rows->gathered.column_of;
    for (int r = 0; r < job->n_rows; r++) {
        const char *row = (const char *)dual->matrix + (size_t)(job->layout_row[r] * dual->ld) * size;
        char *to = job->out[r] + (size_t)range->position * size;
        for (ptrdiff_t j = j0; size == 4 && j < j1; j++)
            ((float *)to)[j] = ((const float *)row)[column[j]];
        for (ptrdiff_t j = j0; size == 8 && j < j1; j++)
            ((double *)to)[j] = ((const double *)row)[column[j]];
    }
}

/* Ranges whose columns are to be computed: where each sample has two variables the second one is a copy. */
static int n_distinct(const DualRows *rows)
{
    return rows->n_ranges == 2 && dual_twice(rows->job) ? 1 : rows->n_ranges;
}

static void fill_part(void *context, int part, int thread)
{
    const Fill *job = context;
    const DualRows *rows = job->rows;
    const int n_parts = rows->team->n;
    for (int r = 0; r < n_distinct(rows); r++) {
        const DualRange *range = &rows->ranges[r];
        const ptrdiff_t unit = rows->dual->table->tile;
        fill_range(job, range, dual_part(range->length, part, n_parts, unit),
                   dual_part(range->length, part + 1, n_parts, unit), rows->scratch + (size_t)thread * rows->scratch_bytes);
    }
}

/* A range by one thread, but for what other problems left of it. */
static void fill_alone(const Fill *job, const DualRange *range, int may_share)
{
    const size_t at = (size_t)range->position * element(job->rows);
    Fill left = {.rows = job->rows, .n_rows = 0};
    for (int r = 0; r < job->n_rows; r++)
        if (!may_share || !copy_shared(job->rows, range, job->layout_row[r], job->out[r] + at)) {
            left.layout_row[left.n_rows] = job->layout_row[r];
            left.out[left.n_rows++] = job->out[r];
        }
    if (left.n_rows)
        fill_range(&left, range, 0, range->length, job->rows->scratch);
    for (int r = 0; may_share && r < left.n_rows; r++)
        leave_shared(job->rows, range, left.layout_row[r], left.out[r] + at);
}

/* Zeros where ranges are padded. */
static void pad(const DualRows *rows, char *out)
{
    const size_t size = element(rows);
    ptrdiff_t filled = 0;
    for (int r = 0; r < rows->n_ranges; r++) {
        const DualRange *range = &rows->ranges[r];
        memset(out + (size_t)filled * size, 0, (size_t)(range->position - filled) * size);
        filled = range->position + range->length;
    }
    memset(out + (size_t)filled * size, 0, (size_t)(rows->n - filled) * size);
}

static void fill(DualRows *rows, Fill *job)
{
    const size_t size = element(rows);
    const int n_ranges = n_distinct(rows);
    const DualRange *ranges = rows->ranges;
    for (int r = 0; r < job->n_rows; r++)
        pad(rows, job->out[r]);
    rows->n_computed += job->n_rows;
    if (rows->team && rows->work * (double)(rows->n * job->n_rows) > TEAM_WORK)
        team_run(rows->team, fill_part, job);
    else
        for (int r = 0; r < n_ranges; r++)
            fill_alone(job, &ranges[r], rows->n_ranges == 2 && n_ranges == 2);
    for (int r = 0; n_ranges < rows->n_ranges && r < job->n_rows; r++)
        memcpy(job->out[r] + (size_t)ranges[1].position * size, job->out[r] + (size_t)ranges[0].position * size,
               (size_t)ranges[0].length * size);
}

int dual_has_row(const DualRows *rows, const int32_t *variable, ptrdiff_t position)
{
    return (!rows->dual->run && !rows->is_gathered) || rows->slot_of[row_variable(rows, variable[position])] >= 0;
}

/* Adds a row to those that are computed together; 0 without memory. */
static int add_row(DualRows *rows, Fill *job, ptrdiff_t variable)
{
    const int32_t slot = take_slot(rows, variable);
    if (slot < 0)
        return 0;
    job->layout_row[job->n_rows] = (int32_t)dual_layout(rows->job, variable);
    job->out[job->n_rows++] = slot_memory(rows, slot);
    return 1;
}

const void *dual_row(DualRows *rows, const int32_t *variable, ptrdiff_t position, int n_next, const ptrdiff_t *next)
{
    const ptrdiff_t v = row_variable(rows, variable[position]);
    if (!rows->dual->run && !rows->is_gathered)
        return (const char *)rows->dual->matrix + (size_t)(dual_layout(rows->job, v) * rows->dual->ld) * element(rows);
    const int32_t slot = rows->slot_of[v];
    if (slot >= 0) {
        if (slot != rows->newest) {
            unlink_slot(rows, slot);
            append_slot(rows, slot);
        }
        return slot_memory(rows, slot);
    }
    Fill job = {.rows = rows, .n_rows = 0};
    for (int k = 0; k < n_next && rows->n_slots >= MANY_SLOTS; k++) {
        const ptrdiff_t w = row_variable(rows, variable[next[k]]);
        if (w != v && rows->slot_of[w] < 0 && !add_row(rows, &job, w))
            return NULL;
    }
    if (!add_row(rows, &job, v)) /* the last one: not the first to give way */
        return NULL;
    fill(rows, &job);
    return job.out[job.n_rows - 1];
}

/* ---- beginning, shrinking, restoring --------------------------------------------------------------------- */

static void add_range(DualRows *rows, ptrdiff_t at, ptrdiff_t length, ptrdiff_t variable)
{
    rows->ranges[rows->n_ranges++] = (DualRange){rows->dual->run, at, length, rows->n, variable};
    rows->n += dual_padded(length, rows->dual->table->smo_step);
}

static int can_move(const DualRows *rows, ptrdiff_t variable, ptrdiff_t length)
{
    const double *lower = rows->dual->lower + rows->job->offset, *upper = rows->dual->upper + rows->job->offset;
    for (ptrdiff_t v = variable; v < variable + length; v++)
        if (lower[v] != 0 || upper[v] != 0)
            return 1;
    return 0;
}

/* The part of a range of a matrix, from which rows are read in place, that can move at all: steps of variables whose
 * box is [0, 0], samples that are held out, are passed over, unless there would be too many ranges. */
static void add_movable(DualRows *rows, ptrdiff_t at, ptrdiff_t length, ptrdiff_t variable, int most_ranges)
{
    const ptrdiff_t step = rows->dual->table->smo_step;
    ptrdiff_t begin = 0, end = least(step, length); /* one step at least, so that there is a position */
    for (ptrdiff_t k = end; k < length; k += step) {
        const ptrdiff_t stop = least(k + step, length);
        if (!can_move(rows, variable + k, stop - k))
            continue;
        if (k > end && rows->n_ranges + 1 < most_ranges) {
            add_range(rows, at + begin, end - begin, variable + begin);
            begin = k;
        }
        end = stop;
    }
    add_range(rows, at + begin, end - begin, variable + begin);
}

/* The ranges of the job, each padded to the solver's step; adjacent ones of one sum are one. */
static void all_columns(DualRows *rows)
{
    const MercerDual *dual = rows->dual;
    const MercerDualJob *job = rows->job;
    const int adjacent = !job->separate && job->start[0] + job->length[0] == job->start[1];
    const int n_parts = job->length[1] == 0 || adjacent ? 1 : 2;
    const ptrdiff_t length[2] = {job->length[0] + (adjacent ? job->length[1] : 0), job->length[1]};
    rows->n = rows->n_ranges = 0;
    for (int part = 0; part < n_parts; part++) {
        const ptrdiff_t variable = part ? length[0] : 0;
        rows->second = rows->n;
        if (dual->run)
            add_range(rows, job->start[part], length[part], variable);
        else
            add_movable(rows, job->start[part], length[part], variable, (part + 1) * DUAL_RANGES / 2);
    }
    rows->stretches[0] = (MercerStretch){rows->n, 0};
    for (int r = 0; !dual->run && r < rows->n_ranges; r++) {
        const DualRange *range = &rows->ranges[r];
        const ptrdiff_t end = range->position + dual_padded(range->length, dual->table->smo_step);
        rows->stretches[r] = (MercerStretch){end, range->at - range->position};
    }
}

static void release_gathered(DualRows *rows)
{
    if (rows->is_gathered)
        dual_release(&rows->gathered);
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

double dual_work(const MercerRun *run)
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
    release_gathered(rows);
    all_columns(rows);
    const ptrdiff_t size = job->length[0] + job->length[1];
    if (size > rows->max_size) {
        free(rows->slot_of);
        rows->slot_of = malloc((size_t)size * sizeof(int32_t));
        rows->max_size = rows->slot_of ? size : 0;
        if (!rows->slot_of)
            return MERCER_NO_MEMORY;
    }
    rows->work = dual_work(dual->run);
    if (make_scratch(rows) || lay_out(rows, rows->n))
        return MERCER_NO_MEMORY;
    forget_all(rows);
    return MERCER_OK;
}

void dual_rows_end(DualRows *rows)
{
    release_gathered(rows);
    free(rows->scratch);
    release_chunks(rows);
    free(rows->chunks);
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

/* Cached rows of variables that stay, cut and moved to the front in place; the others are dropped. */
static void cut_slots(DualRows *rows, const int32_t *kept, ptrdiff_t n_kept, const char *stays, char *cut, int32_t *renamed,
                      int32_t *owners)
{
    const size_t size = element(rows);
    const ptrdiff_t per_chunk = (ptrdiff_t)(rows->chunk_bytes / ((size_t)n_kept * size));
    ptrdiff_t next = 0;
    for (ptrdiff_t slot = 0; slot < rows->used; slot++) {
        const char *from = slot_memory(rows, slot);
        renamed[slot] = -1;
        if (!stays[rows->owner[slot]])
            continue;
        for (ptrdiff_t k = 0; size == 4 && k < n_kept; k++)
            ((float *)cut)[k] = kept[k] < 0 ? 0 : ((const float *)from)[kept[k]];
        for (ptrdiff_t k = 0; size == 8 && k < n_kept; k++)
            ((double *)cut)[k] = kept[k] < 0 ? 0 : ((const double *)from)[kept[k]];
        /* never past what is still to be read: a chunk holds more of the shorter rows */
        memcpy(rows->chunks[next / per_chunk] + (size_t)(next % per_chunk * n_kept) * size, cut, (size_t)n_kept * size);
        owners[next] = rows->owner[slot];
        renamed[slot] = (int32_t)next++;
    }
}

static int shrink_slots(DualRows *rows, const int32_t *variable, const int32_t *kept, ptrdiff_t n_kept)
{
    const ptrdiff_t used = rows->used;
    char *stays = calloc((size_t)rows->max_size, 1);
    int32_t *lists = malloc((size_t)(3 * used + 1) * sizeof(int32_t));
    char *cut = malloc((size_t)n_kept * element(rows));
    int32_t *renamed = lists, *owners = lists + used, *chain = lists + 2 * used;
    ptrdiff_t n_chain = 0;
    if (!stays || !lists || !cut) {
        free(stays);
        free(lists);
        free(cut);
        return MERCER_NO_MEMORY;
    }
    for (ptrdiff_t k = 0; k < n_kept; k++)
        if (kept[k] >= 0)
            stays[row_variable(rows, variable[kept[k]])] = 1;
    cut_slots(rows, kept, n_kept, stays, cut, renamed, owners);
    for (int32_t slot = rows->oldest; slot >= 0; slot = rows->after[slot])
        if (renamed[slot] >= 0)
            chain[n_chain++] = renamed[slot];
    rows->n = rows->stride = n_kept;
    forget_all(rows);
    for (ptrdiff_t k = 0; k < n_chain; k++) { /* the order of use stays */
        rows->owner[chain[k]] = owners[chain[k]];
        rows->slot_of[owners[chain[k]]] = chain[k];
        append_slot(rows, chain[k]);
    }
    rows->used = n_chain;
    set_limits(rows);
    rows->n_slots = n_chain > rows->n_slots ? n_chain : rows->n_slots;
    free(stays);
    free(lists);
    free(cut);
    return MERCER_OK;
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
    if (dual_gather(rows->dual, &run, from, n_kept) || shrink_slots(rows, variable, kept, n_kept)) {
        dual_release(&run);
        return MERCER_NO_MEMORY;
    }
    release_gathered(rows);
    rows->gathered = run;
    rows->is_gathered = 1;
    rows->n_ranges = 1;
    rows->ranges[0] = (DualRange){rows->dual->run ? &rows->gathered : NULL, 0, n_kept, 0, 0};
    rows->stretches[0] = (MercerStretch){n_kept, 0};
    return MERCER_OK;
}

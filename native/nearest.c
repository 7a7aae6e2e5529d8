/* The k nearest columns of each row, while tiles sit in the cache: no n x m memory.
 *
 * A task is a strip of rows against a part of the columns, tile by tile from left to right, so that among equal scores the
 * first column comes first. Each row keeps what may still be among its k best, and the limit beyond which nothing can be:
 * most entries of a tile cost one comparison.
 *
 * By bounds: the k-th least upper bound so far is a limit for the lower ones. What is left at the end is decided by
 * distances of the raw rows. Where bounds leave more than a row has room for, that is done at once, and the k best alone
 * stay: no neighbour is missed, and it only takes longer. By integers a task begins with the columns that are near its
 * rows, so that limits are low early.
 */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "nearest.h"

enum { SPARE = 64, FIRST = 32 };

typedef struct {
    double score; /* negative: not known yet */
    double low;
    int32_t column;
} Candidate;

/* One row's search: a heap of the k least upper bounds with the largest first, and its candidates; by kernel values the
 * candidates are the heap. */
typedef struct {
    double limit;
    ptrdiff_t n_upper, n_candidates;
} RowState;

struct NearSlot {
    ptrdiff_t task; /* taken, −1 for none */
    ptrdiff_t column; /* next */
    void *scratch;
    RowState *rows;
    double *upper;         /* (strip, k) */
    Candidate *candidates; /* (strip, room) */
    int32_t *found;        /* (tile,) */
    MercerHit *hits;       /* (MERCER_NEAR_ROWS, tile) */
    double *least;         /* (k + 1,) */
    int64_t n_second, n_exact;
};

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

static ptrdiff_t room(const MercerNearest *job)
{
    return job->bounds ? 2 * job->k + SPARE : job->k;
}

/* Which raw row, and which row of the results. */
static ptrdiff_t raw_row(const MercerNearest *job, ptrdiff_t i)
{
    return job->row_of ? job->row_of[i] : i;
}

static double distance_of(const MercerNearest *job, NearSlot *slot, ptrdiff_t i, ptrdiff_t j)
{
    slot->n_exact++;
    return job->raw->near_pair(job->kind, &job->left, raw_row(job, i), &job->right, j, job->weight, job->d);
}

static int before(const Candidate *a, const Candidate *b)
{
    return a->score < b->score || (a->score == b->score && a->column < b->column);
}

static int compare(const void *a, const void *b)
{
    return before(a, b) ? -1 : before(b, a);
}

/* ---- by kernel values ------------------------------------------------------------------------------ */

static void sift(Candidate *heap, ptrdiff_t n, ptrdiff_t at)
{
    const Candidate moved = heap[at];
    for (;;) {
        ptrdiff_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(&heap[child], &heap[child + 1]))
            child++;
        if (!before(&moved, &heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void note_bad(MercerNearest *job, ptrdiff_t i, ptrdiff_t j, double score)
{
#pragma omp critical(mercer_near_bad)
    if (job->bad_row < 0 || i < job->bad_row || (i == job->bad_row && j < job->bad_column)) {
        job->bad_row = i;
        job->bad_column = j;
        job->bad_score = score;
    }
}

/* A known score into the heap of the k least; returns whether their limit is new. */
static int take_score(const MercerNearest *job, RowState *row, Candidate *heap, ptrdiff_t j, double score)
{
    const Candidate taken = {.score = score, .column = (int32_t)j};
    if (row->n_candidates < job->k) {
        heap[row->n_candidates++] = taken;
        if (row->n_candidates < job->k)
            return 0;
        for (ptrdiff_t at = job->k / 2; at-- > 0;)
            sift(heap, job->k, at);
        return 1;
    }
    if (!before(&taken, &heap[0]))
        return 0;
    heap[0] = taken;
    sift(heap, job->k, 0);
    return 1;
}

static void take_value(MercerNearest *job, RowState *row, Candidate *heap, ptrdiff_t i, ptrdiff_t j, double value)
{
    const double a = job->rows[i], b = job->column_values[j];
    double score = (a + b) - 2 * value;
    if (job->tolerance >= 0 && !(score >= 0)) {
        if (!(score >= -(job->tolerance * (fabs(a) + fabs(b)) + job->slack)))
            note_bad(job, i, j, score);
        score = 0;
    }
    if (take_score(job, row, heap, j, score))
        row->limit = heap[0].score - a + job->row_error[i] + 1e-14 * fabs(heap[0].score);
}

/* ---- by bounds ------------------------------------------------------------------------------------- */

static void sift_upper(double *heap, ptrdiff_t n, ptrdiff_t at)
{
    const double moved = heap[at];
    for (;;) {
        ptrdiff_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && heap[child] < heap[child + 1])
            child++;
        if (!(moved < heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* A value into a heap of the k least of them; whether it holds k. */
static int take_least(double *heap, ptrdiff_t *n, ptrdiff_t k, double value)
{
    if (*n < k) {
        heap[(*n)++] = value;
        if (*n < k)
            return 0;
        for (ptrdiff_t at = k / 2; at-- > 0;)
            sift_upper(heap, k, at);
    } else if (value < heap[0]) {
        heap[0] = value;
        sift_upper(heap, k, 0);
    }
    return 1;
}

/* The limit of row i where k columns are no farther than a distance. */
static double limit_at(const MercerNearest *job, ptrdiff_t i, double distance)
{
    if (job->first.n_pairs)
        return (1 + 1e-9) * job->scale * sqrt(distance);
    return distance * job->scale - job->rows[i] + job->row_error[i];
}

/* Candidates that the limit still allows. */
static void drop_beyond(RowState *row, Candidate *candidates)
{
    ptrdiff_t kept = 0;
    for (ptrdiff_t c = 0; c < row->n_candidates; c++)
        if (candidates[c].score >= 0 || !(candidates[c].low > row->limit))
            candidates[kept++] = candidates[c];
    row->n_candidates = kept;
}

/* Distances of all candidates; the k best stay, in order. */
static void decide(const MercerNearest *job, NearSlot *slot, RowState *row, Candidate *candidates, ptrdiff_t i)
{
    for (ptrdiff_t c = 0; c < row->n_candidates; c++)
        if (candidates[c].score < 0)
            candidates[c].score = distance_of(job, slot, i, candidates[c].column);
    qsort(candidates, (size_t)row->n_candidates, sizeof(Candidate), compare);
    row->n_candidates = least(row->n_candidates, job->k);
    if (row->n_candidates == job->k)
        row->limit = fmin(row->limit, limit_at(job, i, candidates[job->k - 1].score));
}

static void take_bound(const MercerNearest *job, NearSlot *slot, ptrdiff_t r, ptrdiff_t i, ptrdiff_t j, double low,
                       double high)
{
    RowState *row = &slot->rows[r];
    Candidate *candidates = slot->candidates + r * room(job);
    double *upper = slot->upper + r * job->k;
    if (low > row->limit)
        return;
    if (row->n_candidates == room(job)) {
        drop_beyond(row, candidates);
        if (row->n_candidates > job->k + SPARE / 2)
            decide(job, slot, row, candidates, i);
        if (low > row->limit)
            return;
    }
    candidates[row->n_candidates++] = (Candidate){.score = -1, .column = (int32_t)j, .low = low};
    if (take_least(upper, &row->n_upper, job->k, high))
        row->limit = fmin(row->limit, upper[0]);
}

/* ---- by integers ----------------------------------------------------------------------------------- */

/* |x − z|² = |x|² + |z|² − 2 x·z is within the limit only where x·z − ⌊|z|² / 2⌋ is above this. */
static int32_t below_limit(const MercerNearest *job, const RowState *row, ptrdiff_t i)
{
    const double most = row->limit + job->first.slack, value = 0.5 * (job->first.left_norms[i] - most * most);
    return value > INT32_MIN + 2.0 ? (int32_t)value - 2 : INT32_MIN;
}

static double second_gap(const MercerNearest *job, NearSlot *slot, ptrdiff_t i, ptrdiff_t j)
{
    const MercerIntegers *second = &job->second;
    const int32_t *left = second->left + i * second->n_pairs, *right = second->right + j * second->n_pairs;
    slot->n_second++;
    return second->left_norms[i] + (double)second->right_norms[j] -
           2.0 * job->table->near_product(second->n_pairs, left, right);
}

/* The rows of second integers that hits will ask for: where they are, nothing before has been. */
static void fetch_ahead(const MercerNearest *job, ptrdiff_t j0, const MercerHit *hits, ptrdiff_t n)
{
    for (ptrdiff_t h = 0; h < n; h++) {
        const ptrdiff_t at = least(j0 + hits[h].column, job->m - 1);
        const int32_t *right = job->second.right + job->column_of[at] * job->second.n_pairs;
        for (ptrdiff_t q = 0; q < least(job->second.n_pairs, 256); q += 16)
            __builtin_prefetch(right + q);
    }
}

/* A distance's bounds from the last integers: upper ones only where both rows were inside. */
static void take_hit(const MercerNearest *job, NearSlot *slot, ptrdiff_t r, ptrdiff_t i, ptrdiff_t at, int32_t value)
{
    const int two = job->second.n_pairs > 0;
    if (at >= job->m)
        return;
    const ptrdiff_t raw = raw_row(job, i), j = job->column_of[at];
    if (job->left_out && j == job->left_out[raw])
        return;
    const double gap = two ? second_gap(job, slot, raw, j) : job->first.left_norms[i] - 2.0 * value;
    const double slack = two ? job->second.slack : job->first.slack, most = slot->rows[r].limit + slack;
    if (gap > most * most)
        return;
    const double high = job->left_inside[raw] && job->right_inside[j] ? sqrt(gap + 1) + slack : INFINITY;
    take_bound(job, slot, r, i, j, sqrt(fmax(gap, 0)) - slack, high);
}

/* The least of the k largest values, or of one more where a row leaves one out. */
static int32_t large_value(const MercerNearest *job, NearSlot *slot, const MercerHit *hits, ptrdiff_t n)
{
    ptrdiff_t count = 0;
    for (ptrdiff_t h = 0; h < n; h++)
        take_least(slot->least, &count, job->k + (job->left_out != NULL), -(double)hits[h].value);
    double most = slot->least[0];
    for (ptrdiff_t c = 1; c < count; c++)
        most = fmax(most, slot->least[c]);
    return (int32_t)-most;
}

/* Without a limit everything is a hit: the largest values give one for the others, by distances where there are no upper
 * bounds. */
static void take_hits(const MercerNearest *job, NearSlot *slot, ptrdiff_t r, ptrdiff_t i, ptrdiff_t j0,
                      const MercerHit *hits, ptrdiff_t n)
{
    RowState *row = &slot->rows[r];
    const int32_t large = row->limit < INFINITY ? INT32_MAX : large_value(job, slot, hits, n);
    for (ptrdiff_t h = 0; large < INT32_MAX && h < n; h++)
        if (hits[h].value >= large)
            take_hit(job, slot, r, i, j0 + hits[h].column, hits[h].value);
    if (!(row->limit < INFINITY))
        decide(job, slot, row, slot->candidates + r * room(job), i);
    fetch_ahead(job, j0, hits, n);
    for (ptrdiff_t h = 0; h < n; h++)
        if (hits[h].value < large && hits[h].value > below_limit(job, row, i))
            take_hit(job, slot, r, i, j0 + hits[h].column, hits[h].value);
}

/* A tile's columns for a strip's rows, a few of these at a time. */
static void search_integers(MercerNearest *job, NearSlot *slot, ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t j0, ptrdiff_t j1)
{
    const MercerIntegers *first = &job->first;
    const ptrdiff_t width = job->table->panel_width, n_panels = (j1 - j0 + width - 1) / width;
    MercerHit *hits[MERCER_NEAR_ROWS];
    for (int r = 0; r < MERCER_NEAR_ROWS; r++)
        hits[r] = slot->hits + r * job->table->tile;
    for (ptrdiff_t i = i0; i < i1; i += MERCER_NEAR_ROWS) {
        int32_t below[MERCER_NEAR_ROWS];
        ptrdiff_t counts[MERCER_NEAR_ROWS];
        for (ptrdiff_t r = 0; r < MERCER_NEAR_ROWS; r++)
            below[r] = i + r < i1 ? below_limit(job, &slot->rows[i + r - i0], i + r) : INT32_MAX;
        job->table->near_integers(first->n_pairs, first->left + i * first->n_pairs, n_panels,
                                  first->right + j0 * first->n_pairs, first->right_norms + j0, below, hits, counts);
        for (ptrdiff_t r = 0; r < MERCER_NEAR_ROWS; r++)
            if (counts[r])
                take_hits(job, slot, i + r - i0, i + r, j0, hits[r], counts[r]);
    }
}

/* ---- tasks ----------------------------------------------------------------------------------------- */

static int open_slot(const MercerNearest *job, NearSlot *slot)
{
    const size_t strip = (size_t)job->strip, k = (size_t)job->k;
    slot->task = -1;
    slot->scratch = aligned_alloc(64, job->run ? (job->table->scratch_bytes(job->run) + 63) / 64 * 64 : 64);
    slot->rows = malloc(strip * sizeof(RowState));
    slot->upper = malloc((job->bounds ? strip * k : 1) * sizeof(double));
    slot->candidates = malloc(strip * (size_t)room(job) * sizeof(Candidate));
    slot->found = malloc((size_t)job->table->tile * sizeof(int32_t));
    slot->hits = malloc((size_t)(MERCER_NEAR_ROWS * job->table->tile) * sizeof(MercerHit));
    slot->least = malloc((k + 1) * sizeof(double));
    if (!slot->scratch || !slot->rows || !slot->upper || !slot->candidates || !slot->found || !slot->hits || !slot->least)
        return MERCER_NO_MEMORY;
    *(ptrdiff_t *)slot->scratch = 0; /* holds no panels */
    return MERCER_OK;
}

void mercer_nearest_end(MercerNearest *job)
{
    for (int s = 0; job->slots && s < job->n_slots; s++) {
        free(job->slots[s].scratch);
        free(job->slots[s].rows);
        free(job->slots[s].upper);
        free(job->slots[s].candidates);
        free(job->slots[s].found);
        free(job->slots[s].hits);
        free(job->slots[s].least);
        job->n_second += job->slots[s].n_second;
        job->n_exact += job->slots[s].n_exact;
    }
    free(job->slots);
    job->slots = NULL;
}

static void search_piece(MercerNearest *job, NearSlot *slot, ptrdiff_t r, ptrdiff_t i, const char *values, ptrdiff_t j0,
                         ptrdiff_t nj)
{
    const size_t size = job->table->element;
    RowState *row = &slot->rows[r];
    Candidate *candidates = slot->candidates + r * room(job);
    const char *columns = (const char *)job->columns + (size_t)j0 * size;
    const ptrdiff_t n = job->table->near_scan(values, columns, nj, job->coefficient, row->limit, slot->found);
    for (ptrdiff_t f = 0; f < n; f++) {
        const ptrdiff_t at = slot->found[f], j = j0 + at;
        if (job->left_out && j == job->left_out[i])
            continue;
        const double value = size == 4 ? (double)((const float *)values)[at] : ((const double *)values)[at];
        if (!job->bounds) {
            take_value(job, row, candidates, i, j, value);
            continue;
        }
        const double column = size == 4 ? (double)((const float *)columns)[at] : ((const double *)columns)[at];
        const double low = column + job->coefficient * value;
        take_bound(job, slot, r, i, j, low, low + (double)job->width[j] + 2 * job->row_error[i]);
    }
}

/* Without a limit every column passes: the first few of a tile give one. */
static void search_row(MercerNearest *job, NearSlot *slot, ptrdiff_t r, ptrdiff_t i, const char *values, ptrdiff_t j0,
                       ptrdiff_t nj)
{
    const ptrdiff_t first = slot->rows[r].limit < INFINITY ? nj : least(nj, FIRST);
    search_piece(job, slot, r, i, values, j0, first);
    if (first < nj)
        search_piece(job, slot, r, i, values + (size_t)first * job->table->element, j0 + first, nj - first);
}

static void search_values(MercerNearest *job, NearSlot *slot, ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t j0, ptrdiff_t j1)
{
    const ptrdiff_t tile = job->table->tile;
    const size_t size = job->table->element;
    char *values = job->table->tile_values(job->run, slot->scratch, i0, i1, j0, j1);
    if (job->run->n_ops == 0) /* the leaf's own tile, which no operation has read */
        values += (size_t)(tile * tile) * size;
    for (ptrdiff_t i = i0; i < i1; i++)
        search_row(job, slot, i - i0, i, values + (size_t)((i - i0) * tile) * size, j0, j1 - j0);
}

/* The next tile of a slot's task. */
static void search_tile(MercerNearest *job, NearSlot *slot, ptrdiff_t end)
{
    const ptrdiff_t tile = job->table->tile, n_tiles = (job->m + tile - 1) / tile;
    const ptrdiff_t i0 = slot->task / job->n_parts * job->strip, i1 = least(i0 + job->strip, job->n);
    const ptrdiff_t j0 = slot->column, j1 = least(j0 + tile, end);
    if (job->first.n_pairs) {
        const ptrdiff_t at = (j0 / tile + job->begin[(i0 + i1) / 2] / tile) % n_tiles * tile;
        search_integers(job, slot, i0, i1, at, least(at + tile, job->m));
    } else {
        search_values(job, slot, i0, i1, j0, j1);
    }
    slot->column = j1;
}

static void finish(MercerNearest *job, NearSlot *slot)
{
    const ptrdiff_t part = slot->task % job->n_parts, i0 = slot->task / job->n_parts * job->strip, k = job->k;
    const ptrdiff_t i1 = least(i0 + job->strip, job->n);
    for (ptrdiff_t i = i0; i < i1; i++) {
        RowState *row = &slot->rows[i - i0];
        Candidate *candidates = slot->candidates + (i - i0) * room(job);
        if (job->bounds) {
            drop_beyond(row, candidates);
            decide(job, slot, row, candidates, i);
        } else {
            qsort(candidates, (size_t)row->n_candidates, sizeof(Candidate), compare);
        }
        for (ptrdiff_t c = 0; c < k; c++) {
            const ptrdiff_t to = (raw_row(job, i) * job->n_parts + part) * k + c;
            job->scores[to] = c < row->n_candidates ? candidates[c].score : INFINITY;
            job->indices[to] = c < row->n_candidates ? candidates[c].column : -1;
        }
    }
    slot->task = -1;
}

static void begin(const MercerNearest *job, NearSlot *slot)
{
    const ptrdiff_t i0 = slot->task / job->n_parts * job->strip, n = least(job->strip, job->n - i0);
    slot->column = slot->task % job->n_parts * job->part;
    for (ptrdiff_t r = 0; r < n; r++)
        slot->rows[r] = (RowState){.limit = INFINITY};
}

/* Works on a slot until the deadline or until no task is left. */
static void work_slot(MercerNearest *job, NearSlot *slot, ptrdiff_t total, double deadline)
{
    for (;;) {
        if (slot->task < 0) {
            ptrdiff_t task;
            if (omp_get_wtime() > deadline)
                return;
#pragma omp atomic capture
            task = job->next++;
            if (task >= total)
                return;
            slot->task = task;
            begin(job, slot);
        }
        const ptrdiff_t end = least((slot->task % job->n_parts + 1) * job->part, job->m);
        while (slot->column < end) {
            if (omp_get_wtime() > deadline)
                return;
            search_tile(job, slot, end);
        }
        finish(job, slot);
    }
}

int mercer_nearest(MercerNearest *job, double pause_after, int n_threads)
{
    const double deadline = omp_get_wtime() + pause_after;
    const ptrdiff_t total = (job->n + job->strip - 1) / job->strip * job->n_parts;
    int next_slot = 0, failed = 0;
    if (!job->slots) {
        job->n_slots = (int)least(n_threads, total);
        job->slots = calloc((size_t)job->n_slots, sizeof(NearSlot));
        if (!job->slots)
            return MERCER_NO_MEMORY;
        for (int s = 0; s < job->n_slots; s++)
            failed |= open_slot(job, &job->slots[s]);
        if (failed)
            return MERCER_NO_MEMORY;
    }
#pragma omp parallel num_threads(job->n_slots) if (job->n_slots > 1)
    for (;;) {
        int s;
#pragma omp atomic capture
        s = next_slot++;
        if (s >= job->n_slots)
            break;
        work_slot(job, &job->slots[s], total, deadline);
    }
    for (int s = 0; s < job->n_slots; s++)
        if (job->slots[s].task >= 0)
            return MERCER_PAUSED;
    return job->next < total ? MERCER_PAUSED : MERCER_OK;
}

void mercer_nearest_pairs(const MercerNearest *job, ptrdiff_t n, ptrdiff_t p, const int32_t *at, double *out, int n_threads)
{
#pragma omp parallel for schedule(static) num_threads(n_threads) if (n_threads > 1)
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t c = 0; c < p; c++)
            out[i * p + c] = at[i * p + c] < 0 ? INFINITY
                                               : job->raw->near_pair(job->kind, &job->left, i, &job->right, at[i * p + c],
                                                                     job->weight, job->d);
}

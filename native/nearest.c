/* The k nearest columns of each row, while tiles sit in the cache: no n x m memory.
 *
 * A task is a strip of rows against a part of the columns, tile by tile from left to right, so that among equal scores the
 * first column comes first. Each row keeps what may still be among its k best, and the limit beyond which nothing can be:
 * most entries of a tile cost one comparison.
 *
 * By bounds: the k-th least upper bound so far is a limit for the lower ones. What is left at the end is decided by
 * distances of the raw rows. Where bounds leave more than a row has room for, that is done at once, and the k best alone
 * stay: no neighbour is missed, and it only takes longer. By lower bounds alone, the k-th least distance is the limit, or
 * at first one that the caller knows.
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
    Candidate *passed;     /* (tile,): by lower bounds, with these for scores */
    int64_t n_fine, n_exact;
};

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

static ptrdiff_t room(const MercerNearest *job)
{
    return job->bounds && job->width ? 2 * job->k + SPARE : job->k;
}

/* The limit for bounds of row i where k columns are no farther than a distance. */
static double limit_at(const MercerNearest *job, ptrdiff_t i, double distance)
{
    return distance * job->scale - job->rows[i] + job->row_error[i];
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

/* Down from a place, in a heap with the last on top or, if `least`, with the first. */
static void sift(Candidate *heap, ptrdiff_t n, ptrdiff_t at, int least)
{
    const Candidate moved = heap[at];
    for (;;) {
        ptrdiff_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(&heap[child], &heap[child + 1]) != least)
            child++;
        if (before(&moved, &heap[child]) == least)
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
            sift(heap, job->k, at, 0);
        return 1;
    }
    if (!before(&taken, &heap[0]))
        return 0;
    heap[0] = taken;
    sift(heap, job->k, 0, 0);
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

static void take_upper(const MercerNearest *job, RowState *row, double *heap, ptrdiff_t i, double upper)
{
    const ptrdiff_t k = job->k;
    if (row->n_upper < k) {
        heap[row->n_upper++] = upper;
        if (row->n_upper < k)
            return;
        for (ptrdiff_t at = k / 2; at-- > 0;)
            sift_upper(heap, k, at);
    } else if (upper < heap[0]) {
        heap[0] = upper;
        sift_upper(heap, k, 0);
    } else {
        return;
    }
    row->limit = fmin(row->limit, heap[0] + 2 * job->row_error[i]);
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
        if (candidates[c].score < 0) {
            candidates[c].score = job->raw->near_pair(job->kind, &job->left, i, &job->right, candidates[c].column,
                                                      job->weight, job->d);
            slot->n_exact++;
        }
    qsort(candidates, (size_t)row->n_candidates, sizeof(Candidate), compare);
    row->n_candidates = least(row->n_candidates, job->k);
    if (row->n_candidates == job->k)
        row->limit = fmin(row->limit, limit_at(job, i, candidates[job->k - 1].score));
}

static void take_bound(const MercerNearest *job, NearSlot *slot, RowState *row, double *upper, Candidate *candidates,
                       ptrdiff_t i, ptrdiff_t j, double low)
{
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
    take_upper(job, row, upper, i, low + (double)job->width[j]);
}

/* The second bounds of what the first leaves: those within the limit stay. */
static ptrdiff_t keep_near(const MercerNearest *job, NearSlot *slot, const RowState *row, ptrdiff_t i, ptrdiff_t n)
{
    Candidate *passed = slot->passed;
    const size_t bytes = (size_t)job->fine_d * job->table->element;
    const char *left = (const char *)job->fine_left + (size_t)i * bytes, *right = job->fine_right;
    ptrdiff_t kept = 0;
    for (ptrdiff_t c = 0; c < n; c++) {
        const size_t j = (size_t)passed[c].column;
        const double gap = job->table->near_gap(left, right + j * bytes, job->fine_d);
        passed[c].score = gap - job->rows[i] - job->fine_error[j];
        if (passed[c].score <= row->limit)
            passed[kept++] = passed[c];
    }
    slot->n_fine += n;
    return kept;
}

/* By lower bounds alone: the distances of what passes, the least bound first, until the limit is below the others. */
static void take_exact(const MercerNearest *job, NearSlot *slot, RowState *row, Candidate *heap, ptrdiff_t i, ptrdiff_t n)
{
    Candidate *passed = slot->passed;
    if (job->fine_d)
        n = keep_near(job, slot, row, i, n);
    for (ptrdiff_t at = n / 2; at-- > 0;)
        sift(passed, n, at, 1);
    while (n > 0 && passed[0].score <= row->limit) {
        const ptrdiff_t j = passed[0].column;
        passed[0] = passed[--n];
        sift(passed, n, 0, 1);
        const double score = job->raw->near_pair(job->kind, &job->left, i, &job->right, j, job->weight, job->d);
        slot->n_exact++;
        if (take_score(job, row, heap, j, score))
            row->limit = fmin(row->limit, limit_at(job, i, heap[0].score));
    }
}

/* ---- tasks ----------------------------------------------------------------------------------------- */

static int open_slot(const MercerNearest *job, NearSlot *slot)
{
    const size_t strip = (size_t)job->strip, k = (size_t)job->k;
    slot->task = -1;
    slot->scratch = aligned_alloc(64, (job->table->scratch_bytes(job->run) + 63) / 64 * 64);
    slot->rows = malloc(strip * sizeof(RowState));
    slot->upper = malloc((job->width ? strip * k : 1) * sizeof(double));
    slot->candidates = malloc(strip * (size_t)room(job) * sizeof(Candidate));
    slot->found = malloc((size_t)job->table->tile * sizeof(int32_t));
    slot->passed = malloc((size_t)job->table->tile * sizeof(Candidate));
    if (!slot->scratch || !slot->rows || !slot->upper || !slot->candidates || !slot->found || !slot->passed)
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
        free(job->slots[s].passed);
        job->n_fine += job->slots[s].n_fine;
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
    ptrdiff_t n_passed = 0;
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
        if (job->width)
            take_bound(job, slot, row, slot->upper + r * job->k, candidates, i, j, low);
        else
            slot->passed[n_passed++] = (Candidate){.score = low, .column = (int32_t)j};
    }
    if (n_passed)
        take_exact(job, slot, row, candidates, i, n_passed);
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

/* The next tile of a slot's task. */
static void search_tile(MercerNearest *job, NearSlot *slot, ptrdiff_t end)
{
    const ptrdiff_t tile = job->table->tile, i0 = slot->task / job->n_parts * job->strip;
    const ptrdiff_t i1 = least(i0 + job->strip, job->run->n), j0 = slot->column, j1 = least(j0 + tile, end);
    const size_t size = job->table->element;
    char *values = job->table->tile_values(job->run, slot->scratch, i0, i1, j0, j1);
    if (job->run->n_ops == 0) /* the leaf's own tile, which no operation has read */
        values += (size_t)(tile * tile) * size;
    for (ptrdiff_t i = i0; i < i1; i++)
        search_row(job, slot, i - i0, i, values + (size_t)((i - i0) * tile) * size, j0, j1 - j0);
    slot->column = j1;
}

static void finish(MercerNearest *job, NearSlot *slot)
{
    const ptrdiff_t part = slot->task % job->n_parts, i0 = slot->task / job->n_parts * job->strip, k = job->k;
    const ptrdiff_t i1 = least(i0 + job->strip, job->run->n);
    for (ptrdiff_t i = i0; i < i1; i++) {
        RowState *row = &slot->rows[i - i0];
        Candidate *candidates = slot->candidates + (i - i0) * room(job);
        if (job->width) {
            drop_beyond(row, candidates);
            decide(job, slot, row, candidates, i);
        } else {
            qsort(candidates, (size_t)row->n_candidates, sizeof(Candidate), compare);
        }
        for (ptrdiff_t c = 0; c < k; c++) {
            const ptrdiff_t to = (i * job->n_parts + part) * k + c;
            job->scores[to] = c < row->n_candidates ? candidates[c].score : INFINITY;
            job->indices[to] = c < row->n_candidates ? candidates[c].column : -1;
        }
    }
    slot->task = -1;
}

static void begin(const MercerNearest *job, NearSlot *slot)
{
    const ptrdiff_t i0 = slot->task / job->n_parts * job->strip, n = least(job->strip, job->run->n - i0);
    slot->column = slot->task % job->n_parts * job->part;
    for (ptrdiff_t r = 0; r < n; r++)
        slot->rows[r] = (RowState){.limit = job->known ? limit_at(job, i0 + r, job->known[i0 + r]) : INFINITY};
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
        const ptrdiff_t end = least((slot->task % job->n_parts + 1) * job->part, job->run->m);
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
    const ptrdiff_t total = (job->run->n + job->strip - 1) / job->strip * job->n_parts;
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

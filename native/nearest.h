/* The k columns nearest to each row: nearest.c. */
#ifndef MERCER_NEAREST_H
#define MERCER_NEAREST_H

#include "mercer.h"

typedef struct NearSlot NearSlot;

/* What one search reads, and where it writes. T is the dtype of the run's tiles.
 *
 * The score of row i and column j is
 *   by kernel values   (rows[i] + columns[j]) - 2 value, k(x,x) + k(z,z) - 2k(x,z), cut at 0 or not;
 *   by bounds          the distance itself, `pair` of the raw rows. A tile gives only `low` = columns[j] + coefficient
 *                      value: score * scale is between low + rows[i] - row_error[i] and low + rows[i] + row_error[i] +
 *                      width[j].
 *   by lower bounds    the same where `width` is NULL: what passes is decided by its distance at once, after a second lower
 *                      bound from `fine` rows, if there are any: score * scale is at least their squared distance -
 *                      row_error[i] - fine_error[j].
 * The k least by (score, column) are written, in that order. */
typedef struct {
    const MercerRun *run;
    const MercerTable *table;
    int bounds;
    ptrdiff_t k;
    ptrdiff_t strip;             /* rows of a task, at most table->tile */
    ptrdiff_t n_parts, part;     /* parts of the columns, `part` columns each, a multiple of the tile */
    const int64_t *left_out;     /* (n,): the column that a row leaves out; NULL for none */
    double coefficient;
    const void *columns;         /* (m + tile,) of T */
    const double *rows;          /* (n,) */
    const double *row_error;     /* (n,); by kernel values what rounding may move a tile's entry by */
    double tolerance, slack;     /* by kernel values: below -(tolerance (|rows| + |columns|) + slack) a score is an error;
                                    a negative tolerance lets scores have any sign */
    const double *column_values; /* (m,): `columns` in double */
    /* by bounds */
    const float *width;          /* (m,) */
    double scale;
    const MercerTable *raw;      /* of the raw rows' dtype */
    int kind;                    /* LEAF_SQDIST, LEAF_L1, LEAF_CHI2 */
    ptrdiff_t d;
    MercerFeatures left, right;  /* dense with adjacent columns, or both CSR */
    const double *weight;        /* (d,), or NULL */
    ptrdiff_t fine_d;            /* a multiple of 64; 0 for none */
    const void *fine_left, *fine_right; /* (n, fine_d) and (m, fine_d) of T */
    const double *fine_error;    /* (m,) */
    const double *known;         /* (n,): a distance within which each row has k columns, or NULL */
    /* (n, n_parts, k): infinity and -1 beyond what there is */
    double *scores;
    int32_t *indices;
    /* the state: zeros at first */
    NearSlot *slots;
    int n_slots;
    ptrdiff_t next;
    int64_t n_fine, n_exact;     /* pairs whose second bound, and whose distance of raw rows was taken */
    ptrdiff_t bad_row, bad_column; /* the first score that no rounding explains; -1 */
    double bad_score;
} MercerNearest;

/* MERCER_PAUSED asks for another call; mercer_nearest_end frees the state. n_threads stays the same. */
int mercer_nearest(MercerNearest *job, double pause_after, int n_threads);
void mercer_nearest_end(MercerNearest *job);
/* out (n, p) = distances of row i of the left side and the columns at (n, p), infinity where they are negative */
void mercer_nearest_pairs(const MercerNearest *job, ptrdiff_t n, ptrdiff_t p, const int32_t *at, double *out, int n_threads);

#endif

/* The k columns nearest to each row: nearest.c. */
#ifndef MERCER_NEAREST_H
#define MERCER_NEAREST_H

#include "mercer.h"

typedef struct NearSlot NearSlot;

/* Both sides' rows as pairs of 16-bit integers, by a map under which no two rows come farther apart than `scale` times
 * their distance + `slack`, nor, of two that are inside, nearer than that - `slack`. No squared norm is above 2^30. */
typedef struct {
    ptrdiff_t n_pairs;            /* of a row; 0 for none */
    const int32_t *left, *right;
    const int32_t *left_norms, *right_norms; /* squared */
    double slack;
} MercerIntegers;

/* What one search reads, and where it writes. T is the dtype of the run's tiles.
 *
 * The score of row i and column j is
 *   by kernel values   (rows[i] + columns[j]) - 2 value, k(x,x) + k(z,z) - 2k(x,z), cut at 0 or not;
 *   by bounds          the distance itself, `pair` of the raw rows. A tile gives only `low` = columns[j] + coefficient
 *                      value: score * scale is between low + rows[i] - row_error[i] and low + rows[i] + row_error[i] +
 *                      width[j].
 *   by integers        the squared distance likewise; its root times the scale is bounded by those of `first` and, where
 *                      these leave it open, of `second` if there is one.
 * The k least by (score, column) are written, in that order. */
typedef struct {
    const MercerRun *run;        /* but by integers */
    const MercerTable *table;
    int bounds;
    ptrdiff_t n, m, k;
    ptrdiff_t strip;             /* rows of a task, at most table->tile */
    ptrdiff_t n_parts, part;     /* parts of the columns, `part` columns each, a multiple of the tile */
    const int64_t *left_out;     /* for each raw row the column that it leaves out; NULL for none */
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
    /* by integers */
    const uint8_t *left_inside, *right_inside; /* of the raw rows */
    MercerIntegers first;        /* left (n + MERCER_NEAR_ROWS, n_pairs), right in panels of the table's width, right_norms
                                    −⌊norm / 2⌋ of padded m columns */
    MercerIntegers second;       /* rows on both sides, n_pairs a multiple of 32 */
    const int32_t *row_of;       /* (n,): which raw row a row is, and which of the results */
    const int32_t *column_of;    /* (m,): which raw row a column of the first is; of the second it is as in the raw ones */
    const int32_t *begin;        /* (n,): near which column those near a row are */
    /* by either */
    const MercerTable *raw;      /* of the raw rows' dtype */
    int kind;                    /* LEAF_SQDIST, LEAF_L1, LEAF_CHI2 */
    ptrdiff_t d;
    MercerFeatures left, right;  /* dense with adjacent columns, or both CSR */
    const double *weight;        /* (d,), or NULL */
    /* (n, n_parts, k): infinity and -1 beyond what there is */
    double *scores;
    int32_t *indices;
    /* the state: zeros at first */
    NearSlot *slots;
    int n_slots;
    ptrdiff_t next;
    int64_t n_second, n_exact;   /* pairs whose second integers, and whose raw rows were compared */
    ptrdiff_t bad_row, bad_column; /* the first score that no rounding explains; -1 */
    double bad_score;
} MercerNearest;

/* MERCER_PAUSED asks for another call; mercer_nearest_end frees the state. n_threads stays the same. */
int mercer_nearest(MercerNearest *job, double pause_after, int n_threads);
void mercer_nearest_end(MercerNearest *job);
/* out (n, p) = distances of row i of the left side and the columns at (n, p), infinity where they are negative */
void mercer_nearest_pairs(const MercerNearest *job, ptrdiff_t n, ptrdiff_t p, const int32_t *at, double *out, int n_threads);

#endif

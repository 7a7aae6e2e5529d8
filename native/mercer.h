/* What the tile engine, its parallel loops and the Cython module share.
 *
 * Shapes are written beside each pointer: n rows, m columns, d features. A type `T` is float or double,
 * as the function table at hand says. Native code allocates per-thread scratch and packed copies only;
 * it returns MERCER_OK or a status.
 */
#ifndef MERCER_H
#define MERCER_H

#include <stddef.h>
#include <stdint.h>

#define MERCER_CONCAT_(a, b) a##_##b
#define MERCER_CONCAT(a, b) MERCER_CONCAT_(a, b)
#ifdef MERCER_ISA
#define MERCER_SUFFIX(name) MERCER_CONCAT(name, MERCER_ISA)
#endif

enum { MERCER_OK = 0, MERCER_NO_MEMORY = 1, MERCER_PAUSED = 2 };

/* Leaf kinds and opcodes: kernels/program.py defines them; a test compares the two. */
enum { LEAF_DOT, LEAF_SQDIST, LEAF_L1, LEAF_CHI2, LEAF_DIRICHLET, LEAF_BLOCK };
enum {
    OP_LEAF, OP_ADD, OP_MUL, OP_MULC, OP_ADDC, OP_MODULATE, OP_OFFSET, OP_EXP, OP_EXPNEG,
    OP_MATERN12, OP_MATERN32, OP_MATERN52, OP_LOG1P, OP_TANH, OP_POW, OP_POWM1
};

/* One side of one leaf, as the caller holds it: dense with strides in elements, or CSR. */
typedef struct {
    const void *values;       /* dense (n, d) of T, or CSR data (nnz,) of T */
    ptrdiff_t row_stride;
    ptrdiff_t col_stride;
    const int32_t *indices;   /* (nnz,), sorted within rows; NULL for dense */
    const int64_t *indptr;    /* (n + 1,) */
    ptrdiff_t n;
} MercerFeatures;

typedef struct {
    int kind, degree, unit;
    int expand;               /* SQDIST by norms and a product (wide rows), not by differences */
    double cancels;           /* an expanded distance below this part of the norms is recomputed from differences */
    ptrdiff_t d;
    MercerFeatures left, right;
    const void *weight;       /* (d,) of T, or NULL for ones */
    const void *shift;        /* (d,) of T: the centre subtracted before an expansion; NULL for none */
    /* packed by mercer_prepare; NULL where the side is CSR and is packed tile by tile */
    const void *rows;         /* (n, ld) of T */
    ptrdiff_t ld;
    const void *panels;       /* (ceil(m / panel_width), d, panel_width) of T */
    const void *row_norms;    /* (n,) of T */
    const void *col_norms;    /* (padded m,) of T */
    void *owned[4];           /* what mercer_release gives back */
    size_t owned_bytes[4];
    /* LEAF_BLOCK */
    const void *block;        /* (n, m) of T */
    ptrdiff_t block_row_stride, block_col_stride;
} MercerLeaf;

typedef struct {
    ptrdiff_t n, m;
    int symmetric;            /* columns are the rows: half of the tiles, exact diagonal distances */
    int densify;              /* panels of CSR columns, too, are packed beforehand */
    int n_ops, n_leaves, n_vecs;
    const int32_t *ops;       /* (n_ops, 4): opcode, a, b, c */
    const void *slots;        /* (n_slots,) of T */
    const void *left_vecs;    /* (n_vecs, left_ld) of T */
    const void *right_vecs;   /* (n_vecs, right_ld) of T, padded by a tile */
    ptrdiff_t left_ld, right_ld;
    MercerLeaf *leaves;
    /* NULL, or which rows of the sides the run's rows and columns are; what is packed of the columns is theirs */
    const int32_t *row_of, *column_of;
} MercerRun;

static inline ptrdiff_t mercer_row(const MercerRun *run, ptrdiff_t i)
{
    return run->row_of ? run->row_of[i] : i;
}

static inline ptrdiff_t mercer_column(const MercerRun *run, ptrdiff_t j)
{
    return run->column_of ? run->column_of[j] : j;
}

enum { MERCER_NARROW = 4 }; /* K @ V by columns up to this many */

/* Derivatives of a program (adjoint.inc, adjoint.c), in double throughout. Columns come in chunks, each feature's
 * values adjacent: (n_chunks, d, MERCER_CHUNK), zero beyond the end. NULL is zero. */
enum { MERCER_CHUNK = 64, MERCER_ROWS = 16 };

typedef struct {
    const double *left, *left_t;    /* (n, d) and its tangent */
    const double *right, *right_t;  /* (n_chunks, d, MERCER_CHUNK) and its tangent */
    const double *weight;           /* (d,) */
    const double *log_weight_t;     /* (d,): tangent of log w */
    const double *block_t;          /* LEAF_BLOCK: tangent (n, m) */
    double *gradient, *gradient_t;  /* (n, d), or LEAF_BLOCK (n, m); added to */
    double *log_weights, *log_weights_t; /* (n_blocks, d): sums of each block of MERCER_ROWS rows */
} MercerAdjointLeaf;

typedef struct {
    const MercerRun *run;           /* in double; features, slots and vectors */
    MercerAdjointLeaf *leaves;
    int dual;                       /* tangents are given: also the derivative along them */
    const double *slots_t;
    const double *left_vecs_t, *right_vecs_t; /* (n_vecs, left_ld), (n_vecs, right_ld) */
    /* the cotangent: G (n, m) with strides in elements, or left_factor (n, rank) and right_factor in chunks (n_chunks, rank, MERCER_CHUNK) */
    const double *G;
    ptrdiff_t G_row_stride, G_col_stride;
    const double *left_factor, *right_factor;
    ptrdiff_t rank;
    double *pushed;                 /* (n, m): the directional derivative, when that is what is wanted */
    double *vecs, *vecs_t;          /* (n_vecs, n) */
    double *slots, *slots_grad_t;   /* (n_blocks, n_slots) */
    ptrdiff_t n_slots;
} MercerAdjoint;

/* Positions of the dual solver up to `end`, from where the stretch before ends; position k of them is entry k + shift of
 * a row. */
typedef struct {
    ptrdiff_t end, shift;
} MercerStretch;

/* The largest F + up and the smallest F + down of an iteration of the dual solver, and where they are. */
typedef struct {
    double most, least;
    ptrdiff_t at_most, at_least;
} MercerExtremes;

/* Directions p of earlier steps of the dual solver, of which pᵀKp = 1 (dual_directions.c), and a new step's place among
 * them. */
enum { MERCER_DIRECTIONS = 4 };
typedef struct {
    int n;
    const void *images[MERCER_DIRECTIONS]; /* K p by position, of T */
    double along[MERCER_DIRECTIONS];       /* pᵀK times the step: image_i − image_j; of a step without its j image_i */
    void *image;                           /* gets the new step's image times scale, unless NULL; may be one of them */
    double scale;
} MercerDirections;

/* One against one: decisions Σ terms with coefficients + intercept of pairs (a, b), a < b, of k classes, in lexicographic
 * order; class c has the terms starts[c] to starts[c + 1]. */
enum { PAIR_SIDE = 4, PAIR_VECTORS = 4, PAIR_TERMS = 64 };
typedef struct {
    ptrdiff_t k;
    const ptrdiff_t *starts;   /* (k + 1,) */
    const void *coefficients;  /* (k - 1, m) of T: the pair's are row b - 1 of class a's terms, and row a of class b's */
    const void *intercept;     /* (p,) of T */
    const void *errors;        /* (p,) of T: times that of a row the largest error of a decision; NULL for none */
    const void *row_errors;    /* (n,) of T */
    int tie_to_first;          /* whose a decision of 0 is */
    double *votes, *more;      /* (n, k): by class pairs that it wins; those whose errors leave them open, or summed decisions */
    double *decisions;         /* (n, p): written where votes is NULL, read where there are no terms */
} MercerPairs;

static inline ptrdiff_t mercer_pair(ptrdiff_t k, ptrdiff_t a, ptrdiff_t b)
{
    return a * k - a * (a + 1) / 2 + b - a - 1;
}

/* A column that may be near, and what its product is above. */
enum { MERCER_NEAR_ROWS = 4 };
typedef struct {
    int32_t column, value;
} MercerHit;

/* Functions by number, what `simd` (simd_apply.inc) is asked for; _native/tiles.py has the same list. */
enum {
    SIMD_EXP, SIMD_EXPNEG, SIMD_LOG, SIMD_LOG1P, SIMD_SIN, SIMD_COS, SIMD_SINPI, SIMD_TANH, SIMD_SQRT, SIMD_RINT,
    SIMD_COUNT
};

/* What one dtype can do at one instruction set. */
typedef struct {
    const char *isa;
    size_t element;
    ptrdiff_t panel_width, tile;   /* a tile has `tile` rows and columns, a multiple of panel_width */
    size_t (*scratch_bytes)(const MercerRun *run);
    /* rows i0..i1 of the left side, centred and weighted where the leaf expands, into out (i1 - i0, d) */
    void (*pack_rows)(const MercerLeaf *leaf, ptrdiff_t i0, ptrdiff_t i1, void *out);
    /* rows j0..j0+panel_width of a side likewise, transposed, zero beyond the end: out (d, panel_width) */
    void (*pack_panel)(const MercerLeaf *leaf, const MercerFeatures *side, ptrdiff_t j0, void *out);
    /* squared norms of a panel's rows, and of panel_width CSR rows from j0 */
    void (*panel_norms)(const void *panel, ptrdiff_t d, void *out);
    void (*sparse_norms)(const MercerLeaf *leaf, const MercerFeatures *side, ptrdiff_t j0, void *out);
    /* kernel values of rows i0..i1 and columns j0..j1 into the scratch: returns (tile, tile) of T */
    void *(*tile_values)(const MercerRun *run, void *scratch, ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t j0, ptrdiff_t j1);
    /* a tile in float, rows ldo apart */
    void (*narrow)(const void *values, ptrdiff_t ni, ptrdiff_t nj, float *out, ptrdiff_t ldo);
    /* a tile, or its transpose by way of `space` (tile, tile), into out; past the caches if `stream` */
    void (*store)(const void *values, ptrdiff_t ni, ptrdiff_t nj, void *out, ptrdiff_t ldo, int stream);
    void (*store_transposed)(const void *values, void *space, ptrdiff_t ni, ptrdiff_t nj, void *out, ptrdiff_t ldo,
                             int stream);
    /* Y += values @ V, or values.T @ V. p > MERCER_NARROW: V (., ldv), Y (., ldy) row by row; else V (p, ldv),
     * Y (p, ldy) column by column. Y is double. */
    void (*multiply)(const void *values, ptrdiff_t ni, ptrdiff_t nj, const void *V, ptrdiff_t ldv, ptrdiff_t p,
                     double *Y, ptrdiff_t ldy);
    void (*multiply_transposed)(const void *values, ptrdiff_t ni, ptrdiff_t nj, const void *V, ptrdiff_t ldv,
                                ptrdiff_t p, double *Y, ptrdiff_t ldy);
    /* smo.inc: passes of the dual solver over positions, multiples of smo_step; rows, up, down, low, diagonal of T */
    ptrdiff_t smo_step;
    void (*smo_add)(ptrdiff_t n, double *F, ptrdiff_t n_rows, const void *rows, ptrdiff_t ld, const int32_t *places,
                    const double *a);
    void (*smo_update)(ptrdiff_t begin, ptrdiff_t end, const MercerStretch *stretches, double *F, const void *row_i,
                       const void *row_j, double t, const MercerDirections *earlier, const void *up, const void *down,
                       void *low, MercerExtremes *found);
    ptrdiff_t (*smo_partner)(ptrdiff_t begin, ptrdiff_t end, const MercerStretch *stretches, double F_i, double K_ii,
                             double floor, const void *row, const MercerDirections *earlier, const void *diagonal,
                             const void *low, double *gained);
    /* smo_along.inc, the same for both types, over held variables, padded: fresh = −Σ along · p over the n_earlier first of
     * p, nought where it is tiny, and moved = β + t · fresh; whether some that moves comes to a bound or beyond */
    int (*smo_along)(ptrdiff_t n, int n_earlier, double *const *p, const double *along, double tiny, double t,
                     const double *beta, const double *lower, const double *upper, double *fresh, double *moved);
    /* nearest.inc: entries of a tile's row at or below `most`, and the distance of two raw rows of T */
    ptrdiff_t (*near_scan)(const void *values, const void *columns, ptrdiff_t n, double coefficient, double most,
                           int32_t *found);
    double (*near_pair)(int kind, const MercerFeatures *left, ptrdiff_t i, const MercerFeatures *right, ptrdiff_t j,
                        const double *weight, ptrdiff_t d);
    /* nearest_integers.inc: the same for both types. Rows (MERCER_NEAR_ROWS, n_pairs) of pairs of 16-bit integers against
     * panels (n_panels, n_pairs, columns) of float's width: columns whose starts + product are above below (rows,), in
     * their order, into each row's hits; and the product of two rows, n_pairs a multiple of 32 */
    void (*near_integers)(ptrdiff_t n_pairs, const int32_t *rows, ptrdiff_t n_panels, const int32_t *panels,
                          const int32_t *starts, const int32_t *below, MercerHit *const *hits, ptrdiff_t *counts);
    int32_t (*near_product)(ptrdiff_t n_pairs, const int32_t *x, const int32_t *z);
    /* symmetric.inc: A (ni, nj), columns lda apart, and p vectors ld apart: Y_i += A X_j, Y_j += Aᵀ X_i */
    void (*symmetric_tile)(ptrdiff_t ni, ptrdiff_t nj, const void *A, ptrdiff_t lda, ptrdiff_t p, const void *X_i,
                           const void *X_j, void *Y_i, void *Y_j, ptrdiff_t ld);
    /* coarse.inc, float32 only: y (ni,) += A x, and out (nj,) = Aᵀ y, for A (ni, nj), columns lda apart */
    void (*coarse_add)(ptrdiff_t ni, ptrdiff_t nj, const int16_t *A, ptrdiff_t lda, const float *x, float *y);
    void (*coarse_dots)(ptrdiff_t ni, ptrdiff_t nj, const int16_t *A, ptrdiff_t lda, const float *y, float *out);
    /* pairs.inc: a tile transposed, by whole vectors, into terms (m, ni), ld apart; and decisions about rows
     * i0..i0 + ni, pair_rows at a time */
    void (*pair_terms)(const void *values, ptrdiff_t ni, ptrdiff_t nj, void *out, ptrdiff_t ld);
    ptrdiff_t pair_rows;
    size_t (*pairs_bytes)(const MercerPairs *job);
    void (*pairs)(const MercerPairs *job, ptrdiff_t i0, ptrdiff_t ni, const void *terms, ptrdiff_t ld, void *space);
    int (*simd)(int function, const void *x, void *y, ptrdiff_t n);
    uint64_t (*checksum)(ptrdiff_t n_bytes, const char *bytes); /* checksum.inc: the same for both types */
    /* float64 only */
    size_t (*adjoint_bytes)(const MercerAdjoint *job);
    void (*adjoint_rows)(const MercerAdjoint *job, void *scratch, ptrdiff_t block);
} MercerTable;

/* dispatch.c */
const MercerTable *mercer_table(int is_float32);
const char *mercer_isa(void);
int mercer_isa_available(const char *name);

/* gram.c: the parallel loops. A state starts as zeros; MERCER_PAUSED asks for another call after the caller
 * has looked for signals. */
typedef struct {
    ptrdiff_t next;           /* first tile not taken */
    ptrdiff_t n_strips, p, ldv, ldy;
    ptrdiff_t *progress;      /* (n_strips,) tiles done in each strip of K @ V */
    double *partial;          /* symmetric: (n_strips, size of Y); else Y, which is out itself if it has its order */
    void *V;                  /* packed copy */
} MercerState;

int mercer_prepare(MercerRun *run, const MercerTable *table, int n_threads);
void mercer_release(MercerRun *run);
/* `stored` is the table of out's type: `table`, or that of float. */
int mercer_gram(const MercerRun *run, const MercerTable *table, const MercerTable *stored, void *out, ptrdiff_t ldo,
                MercerState *state, double pause_after, int n_threads);
/* V (m, p) of T, row-major; out (n, p) double, row-major, the same in all calls */
int mercer_matmul_begin(const MercerRun *run, const MercerTable *table, const void *V, ptrdiff_t p, double *out,
                        MercerState *state);
int mercer_matmul(const MercerRun *run, const MercerTable *table, MercerState *state, double pause_after,
                  int n_threads);
void mercer_matmul_end(const MercerRun *run, MercerState *state, double *out);
/* pairs.c: all decisions of a run whose rows are new samples and whose columns are the terms; *next starts at 0 */
int mercer_pairs(const MercerRun *run, const MercerTable *table, const MercerPairs *job, ptrdiff_t *next, double pause_after,
                 int n_threads);
/* the votes and sums of n rows of given decisions */
int mercer_pairs_given(const MercerTable *table, const MercerPairs *job, ptrdiff_t n);
/* memory.c: memory that free() knows, 64-byte aligned but for zeros, of which blocks from MERCER_KEPT_FROM bytes on are
 * kept by mercer_give; it wants the size that was asked for */
#define MERCER_KEPT_FROM ((size_t)1 << 16)
void *mercer_take(size_t bytes, int n_threads);
void *mercer_take_zeros(size_t bytes);
void *mercer_resize(void *memory, size_t bytes);
void mercer_give(void *memory, size_t bytes);

/* adjoint.c */
int mercer_adjoint(const MercerAdjoint *job, const MercerTable *table, ptrdiff_t *next, double pause_after, int n_threads);
void mercer_chunks(const double *rows, ptrdiff_t m, ptrdiff_t d, double *chunks, int n_threads);
int mercer_openmp(void);

#endif

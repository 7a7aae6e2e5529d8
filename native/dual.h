/* The dual solver: what _dual.pyx and the files of the solver share.
 *
 * Samples stand in a layout of n rows, in which the samples of one class are adjacent and begin at a multiple of the
 * panel width; places in between that hold no sample have lower = upper = 0. A job is a problem over one or two ranges of
 * the layout.
 */
#ifndef MERCER_DUAL_H
#define MERCER_DUAL_H

#include "mercer.h"
#include "team.h"

/* K β is 0; β is a feasible start; it is one at which `linear` is F = c − Kβ in place of c, and no bound is infinite. */
enum { DUAL_AT_ZERO, DUAL_AT_BETA, DUAL_AT_F };
enum { DUAL_CONVERGED, DUAL_CAPPED, DUAL_STALLED, DUAL_NOT_FINITE, DUAL_NO_MEMORY, DUAL_STOPPED, DUAL_INSEPARABLE };

/* min ½βᵀKβ − cᵀβ + ε Σ|βᵢ| over l ≤ β ≤ u, at a given Σβ (one sum, or one for each range). Eight-byte fields only:
 * _dual.pyx describes them to NumPy. */
typedef struct {
    int64_t start[2], length[2]; /* ranges of the layout; length[1] = 0 for one range */
    int64_t offset;              /* where its variables begin in linear, lower, upper, beta and field */
    int64_t separate;            /* each range keeps its own sum */
    int64_t started;             /* of the β that is given, one of the above */
    double epsilon;
    /* results */
    int64_t status, n_iter, n_rows; /* n_rows: rows of the kernel computed */
    double gap, objective, bound; /* objective: less that of the start where this is DUAL_AT_F; bound: the largest margin
                                   * that β allows, where some bounds are infinite */
    double bias[2], most[2], least[2]; /* by range if separate; the optimal biases lie between most and least */
} MercerDualJob;

typedef struct {
    int64_t n_done;
    double gap;
} MercerDualProgress;

typedef struct {
    const MercerTable *table;
    const MercerRun *run;        /* rows by the kernel program: symmetric, with panels; or NULL and */
    const void *matrix;          /* (n, ld) of T, ld ≥ n + smo_step */
    ptrdiff_t ld, n;
    const void *diagonal;        /* (n) of T */
    const double *linear, *lower, *upper; /* by job: c, l, u */
    double *beta, *field;        /* by job: β in and out; field, unless NULL, gets F = c − Kβ */
    double tol, scale;           /* scale: the largest diagonal entry */
    int64_t max_iter;
    size_t cache_bytes;
    struct DualShared *_Atomic *shared; /* (n) by row, or NULL: see dual_rows.c */
    atomic_size_t *shared_bytes;
    int shrinking;
    int (*poll)(void *context);  /* called by the first thread now and then; not 0 asks to stop */
    void *context;
    MercerDualProgress progress;
} MercerDual;

int mercer_dual(MercerDual *dual, MercerDualJob *jobs, ptrdiff_t n_jobs, int n_threads);

/* A problem whose box is C times another, for one C after another: dual_path.c. */
typedef struct {
    ptrdiff_t size, at, end;     /* variables; the first C, and later the one where it ended; after the last C */
    const double *C;             /* ascending */
    const double *linear, *least, *most; /* (size): c, and the box at C = 1 */
    double *lower, *upper;       /* (size): gets the box at the C where it ended */
    double *beta, *field;        /* (n_C, size): β and F = c − Kβ; what is given may be out of the box by rounding */
    double *known;               /* (size): β at which F was computed from exact kernel values, multiplied along with β */
    double rounding, noise;      /* of F at that β; of F by the norm of what β is off from there, 0 for none */
    double *seconds;             /* by C: gets those that were spent, added */
    int64_t left;                /* why it ended: */
} MercerDualPath;

/* All are solved; F as it is at the start has lost digits; or after the solver SMO was capped, or F is to be computed. */
enum { DUAL_PATH_ENDED, DUAL_PATH_ROUNDED, DUAL_PATH_CAPPED, DUAL_PATH_FAR };

/* Solves one of the jobs for each C, their offset being 0: from β and F of that C if it is `begun`, else, as later ones,
 * from those of the one before; the very first C is always begun. Returns as mercer_dual. */
int mercer_dual_path(MercerDual *dual, MercerDualJob *jobs, MercerDualPath *path, int begun);
/* The first n entries (i, i) of a run that dual.run may be, of T. */
int mercer_dual_diagonal(const MercerRun *run, const MercerTable *table, void *out, ptrdiff_t n, int n_threads);

/* ---- dual_rows.c: kernel rows over the variables at hand --------------------------------------------------- */

/* The columns that rows are wanted for: ranges of a run or of the matrix, at positions of the row; their variables
 * follow each other, too. */
typedef struct {
    const MercerRun *run;        /* NULL: the matrix */
    ptrdiff_t at, length, position, variable;
} DualRange;

/* At most so many of them. */
enum { DUAL_RANGES = 32 };

typedef struct {
    const MercerDual *dual;
    const MercerDualJob *job;
    DualRange ranges[DUAL_RANGES];
    int n_ranges;
    ptrdiff_t second;            /* position where the second of the job's ranges begins */
    MercerStretch stretches[DUAL_RANGES]; /* where positions are in what dual_row returns */
    MercerRun gathered;          /* after shrinking: packed columns of the active variables */
    int is_gathered;
    ptrdiff_t n;                 /* length of a row: positions of the active variables, padded */
    double work;                 /* about the vector operations of an entry */
    Team *team;                  /* NULL: one thread */
    int (*stopped)(void *smo);   /* whether to leave a long product unfinished */
    void *smo;
    char *scratch;               /* one of scratch_bytes for each thread of the team */
    size_t scratch_bytes;
    /* least recently used rows give way */
    char **chunks;               /* of slots, taken as they are needed */
    size_t chunk_bytes;
    ptrdiff_t n_chunks, chunk_room, per_chunk;
    ptrdiff_t stride, n_slots, used; /* slots in use, of those that may be */
    ptrdiff_t affordable, slot_room; /* slots that the budget, and that the lists below have room for */
    ptrdiff_t n_repeated;        /* rows computed once more, since the cache last grew */
    int32_t *slot_of;            /* (max_size) by variable, of the two that share a row the first; negative for none */
    int32_t *owner, *before, *after; /* (slot_room) */
    int32_t oldest, newest;
    int64_t n_computed;
    ptrdiff_t max_size;
} DualRows;

int dual_rows_begin(DualRows *rows, const MercerDual *dual, const MercerDualJob *job);
void dual_rows_end(DualRows *rows);
/* About the vector operations of an entry. */
double dual_work(const MercerRun *run);
/* Whether the row of the variable at a position need not be computed. */
int dual_has_row(const DualRows *rows, const int32_t *variable, ptrdiff_t position);
/* Row of the variable at a position, by stretches; valid until two more are asked for. NULL without memory. Where it is
 * computed, so are those of other positions, which may be asked for next: four take less than twice the time of one. */
enum { DUAL_TOGETHER = 4 };
const void *dual_row(DualRows *rows, const int32_t *variable, ptrdiff_t position, int n_next, const ptrdiff_t *next);
/* Keeps the columns at positions kept[0..n_kept), of which −1 is padding. */
int dual_rows_shrink(DualRows *rows, const int32_t *variable, const int32_t *kept, ptrdiff_t n_kept);
/* Back to all variables. */
void dual_rows_restore(DualRows *rows);

/* ---- dual_columns.c ---------------------------------------------------------------------------------------- */

/* A run whose columns are the layout's `from` (m); it owns them, and `from`, also where memory did not suffice. */
int dual_gather(const MercerDual *dual, MercerRun *out, int32_t *from, ptrdiff_t m);
void dual_release(MercerRun *run);
/* F[variable v of columns] −= Σ coefficient·K, over the given variables as rows; F by variable. */
int dual_rows_subtract(DualRows *rows, const int32_t *columns, ptrdiff_t n_columns, const int32_t *sources,
                       const double *coefficients, ptrdiff_t n_sources, double *F);

static inline ptrdiff_t dual_layout(const MercerDualJob *job, ptrdiff_t variable)
{
    return variable < job->length[0] ? job->start[0] + variable : job->start[1] + variable - job->length[0];
}

/* Whether the ranges are one: each sample has two variables. */
static inline int dual_twice(const MercerDualJob *job)
{
    return job->length[1] > 0 && job->start[0] == job->start[1] && job->length[0] == job->length[1];
}

static inline ptrdiff_t dual_padded(ptrdiff_t n, ptrdiff_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Where part p of the positions begins, of so many: a multiple of `unit`. */
static inline ptrdiff_t dual_part(ptrdiff_t n, int p, int n_parts, ptrdiff_t unit)
{
    const ptrdiff_t units = (n + unit - 1) / unit, at = units * p / n_parts * unit;
    return at < n ? at : n;
}

static inline double dual_value(const void *array, ptrdiff_t i, size_t element)
{
    return element == 4 ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

#endif

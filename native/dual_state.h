/* The state of one problem of the dual solver, shared by dual_state.c (beginning, shrinking), dual.c (iterations) and
 * dual_threads.c. */
#ifndef MERCER_DUAL_STATE_H
#define MERCER_DUAL_STATE_H

#include <math.h>

#include "dual.h"

/* Directions that the next step leaves at their minima, and the variables that they move: see dual_directions.c. */
typedef struct {
    int n, oldest;
    char *images;                /* (MERCER_DIRECTIONS, room) of T, by position */
    ptrdiff_t room;
    int32_t *place;              /* by position, −1 for those that are not held */
    /* by place */
    ptrdiff_t n_held;
    int32_t *held;               /* the position */
    double *beta, *lower, *upper;
    double *p[MERCER_DIRECTIONS];
    double *fresh, *moved;       /* the step, and β after it */
    int since;                   /* steps since places were last looked through */
} SmoDirections;

typedef struct {
    MercerDual *dual;
    MercerDualJob *job;
    DualRows rows;
    Team *team;                  /* NULL: one thread */
    atomic_int *stop;
    double *last_poll;
    ptrdiff_t work;
    int64_t renewed;             /* steps when F was last computed from β */
    ptrdiff_t size;              /* variables */
    ptrdiff_t capacity;          /* of the arrays by position */
    ptrdiff_t n;                 /* positions */
    int n_parts;
    ptrdiff_t begin[3];          /* parts of the positions, one for each sum */
    MercerExtremes found[2];
    SmoDirections directions;
    /* by position */
    int32_t *variable;           /* −1 where there is none */
    double *F;
    char *up, *down, *low, *diagonal; /* of T */
    /* by variable */
    double *beta, *all_F;
    const double *since;         /* β at which F is `linear`; NULL: 0 */
    double *start;               /* what `since` may be */
    const double *lower, *upper;
    int32_t *epoch;              /* when it was removed, or one of the below */
    double *snapshots;           /* (n_epochs, size): β at each removal */
    ptrdiff_t snapshot_room, n_epochs; /* snapshot_room: numbers */
} Smo;

/* Places of held variables come in so many at a time, of which the unused are between bounds and do not move. */
enum { SMO_HELD_UNIT = 8 };
enum { SMO_ACTIVE = -1, SMO_FIXED = -2 }; /* SMO_FIXED: it has no position, as it cannot move */

static inline double smo_element(const Smo *smo, const void *array, ptrdiff_t i)
{
    return dual_value(array, i, smo->dual->table->element);
}

static inline void smo_set(const Smo *smo, void *array, ptrdiff_t i, double value)
{
    if (smo->dual->table->element == 4)
        ((float *)array)[i] = (float)value;
    else
        ((double *)array)[i] = value;
}

/* The entry of a row at a position. */
static inline double smo_entry(const Smo *smo, const void *row, ptrdiff_t k)
{
    const MercerStretch *stretch = smo->rows.stretches;
    while (k >= stretch->end)
        stretch++;
    return smo_element(smo, row, k + stretch->shift);
}

static inline double smo_up(const Smo *smo, ptrdiff_t v)
{
    const double epsilon = smo->job->epsilon;
    return !(smo->beta[v] < smo->upper[v]) ? -INFINITY : smo->beta[v] < 0 ? epsilon : -epsilon;
}

static inline double smo_down(const Smo *smo, ptrdiff_t v)
{
    const double epsilon = smo->job->epsilon;
    return !(smo->beta[v] > smo->lower[v]) ? INFINITY : smo->beta[v] > 0 ? -epsilon : epsilon;
}

static inline void smo_set_moves(Smo *smo, ptrdiff_t k)
{
    const ptrdiff_t v = smo->variable[k];
    smo_set(smo, smo->up, k, v < 0 ? -INFINITY : smo_up(smo, v));
    smo_set(smo, smo->down, k, v < 0 ? INFINITY : smo_down(smo, v));
}

/* Places all variables of a job, at the β that it starts from. */
int smo_begin(Smo *smo, MercerDualJob *job);
/* Leaves the variables that look settled alone, if they are many. */
int smo_shrink(Smo *smo);
/* Brings F of what was left alone up to date, and all variables back. */
int smo_restore(Smo *smo);
/* Computes F from β, where none was left alone. */
int smo_renew(Smo *smo);
/* F by variable, also of those that had no position. */
int smo_gather_F(Smo *smo);
void smo_release(Smo *smo);

/* ---- dual_directions.c ------------------------------------------------------------------------------------- */

/* The directions as they are, for the choice of a partner of i. */
void smo_earlier(const Smo *smo, ptrdiff_t i, MercerDirections *earlier);
/* Moves βᵢ up and βⱼ down, at a slope and with a curvature, which `bends` tells from what stands for none, and what else is
 * moved to leave the directions at their minima; `earlier` becomes what the update of F needs beside the step's length.
 * Returns that, 0 where nothing can move. */
double smo_move(Smo *smo, ptrdiff_t i, ptrdiff_t j, double slope, double curve, int bends, MercerDirections *earlier);
/* Brings β up to date. */
void smo_update_beta(Smo *smo);
/* The same, and there are no directions: before anything else moves β or the positions. */
void smo_end_directions(Smo *smo);

/* ---- dual.c ------------------------------------------------------------------------------------------------- */

/* Solves a job; what it needs in memory serves the next one too, until smo_release. */
void smo_solve(Smo *smo, MercerDualJob *job);
/* Calls poll from the first thread now and then; whether to stop. */
int smo_stopped(Smo *smo, double gap);

#endif

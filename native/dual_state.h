/* The state of one problem of the dual solver, shared by dual_state.c (beginning, shrinking), dual.c (iterations) and
 * dual_threads.c. */
#ifndef MERCER_DUAL_STATE_H
#define MERCER_DUAL_STATE_H

#include <math.h>

#include "dual.h"

typedef struct {
    MercerDual *dual;
    MercerDualJob *job;
    DualRows rows;
    Team *team;                  /* NULL: one thread */
    atomic_int *stop;
    double *last_poll;
    ptrdiff_t work;
    ptrdiff_t size;              /* variables */
    ptrdiff_t capacity;          /* of the arrays by position */
    ptrdiff_t n;                 /* positions */
    int n_parts;
    ptrdiff_t begin[3];          /* parts of the positions, one for each sum */
    MercerExtremes found[2];
    /* by position */
    int32_t *variable;           /* −1 where there is none */
    double *F;
    char *up, *down, *low, *diagonal; /* of T */
    /* by variable */
    double *beta, *all_F;
    const double *lower, *upper;
    int32_t *epoch;              /* when it was removed, or one of the below */
    double *snapshots;           /* (n_epochs, size): β at each removal */
    ptrdiff_t snapshot_room, n_epochs; /* snapshot_room: numbers */
} Smo;

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
/* F by variable, also of those that had no position. */
int smo_gather_F(Smo *smo);
void smo_release(Smo *smo);

/* ---- dual.c ------------------------------------------------------------------------------------------------- */

/* Solves a job; what it needs in memory serves the next one too, until smo_release. */
void smo_solve(Smo *smo, MercerDualJob *job);
/* Calls poll from the first thread now and then; whether to stop. */
int smo_stopped(Smo *smo, double gap);

#endif

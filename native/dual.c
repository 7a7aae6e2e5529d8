/* Sequential minimal optimisation for the duals of support vector machines.
 *
 * With signed variables β = yα every one of them is: minimise ½βᵀKβ − cᵀβ + ε Σ|βᵢ| at a given sum of β within a box
 * (dual.h). F = c − Kβ is minus the gradient without its kink; moving βᵢ up gains at the rate Fᵢ + upᵢ, where up is −ε,
 * or ε as long as βᵢ < 0, or −∞ at the upper bound; moving it down costs at the rate Fᵢ + downᵢ. β is optimal where no
 * upward rate exceeds a downward one; the largest excess is the gap. An iteration moves the variable of the largest rate
 * up and the partner that promises most (second-order, Fan, Chen and Lin 2005) down, with others so that the last steps
 * are not undone (dual_directions.c), and makes two passes over all active variables (smo.inc). Shrinking removes variables
 * at bounds that look settled: arrays, cached rows and packed columns are cut down to the others.
 */
#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "dual_state.h"

/* A problem with fewer variables is not worth cutting down, nor one after fewer steps. On a matrix a row over
 * fewer variables is only a copy, and the problems of a grid begin near their solutions. */
enum { SHRINK_FROM = 1500, SHRINK_EVERY = 1000, MATRIX_FROM = 400, MATRIX_FIRST = 100, MATRIX_AGAIN = 200 };
/* A β whose best multiple is between these is left as it is, and goes up to the other one at a time. */
static const double STRETCH_LEAST = 1.5, STRETCH_MOST = 1e3;
/* Of Σ|β|, what rounding may leave of a sum of 0. */
static const double STRETCH_SUM = 1e-9;
/* Of tol, what F may be put off by for a variable that is brought to its bound, and by rounding of steps. */
static const double SNAP_TOL = 0.01, DRIFT_TOL = 0.1;
/* F is not computed from β once more after fewer steps for each variable. */
enum { DRIFT_FROM = 10 };
/* Elements between looks at the clock, seconds between calls of poll. */
enum { WORK_BETWEEN_LOOKS = 4000000 };
static const double POLL_EVERY = 0.02;

/* Rows of more work for an entry are computed some at a time: fits of 180, 256 and 784 features take 0.7 of the time, of
 * 57 and fewer, where rows that are not asked for cost as much as is gained, 1.05 to 1.4. */
static const double TOGETHER_FROM = 120;

/* ---- passes -------------------------------------------------------------------------------------------------- */

/* Threads share passes over more positions than this (a microsecond). */
enum { SHARED_FROM = 6000 };

/* A pass over positions begin..begin + n. */
typedef struct {
    const Smo *smo;
    const MercerStretch *stretches;
    ptrdiff_t begin, n;
    int n_parts;
    const char *row_i, *row_j;
    const MercerDirections *earlier;
    double t, K_ii, floor;
    MercerExtremes found[TEAM_MAX];
    double gained[TEAM_MAX];
    ptrdiff_t partner[TEAM_MAX];
} Pass;

static void update_part(void *context, int part, int thread)
{
    Pass *pass = context;
    const Smo *smo = pass->smo;
    const MercerTable *table = smo->dual->table;
    const ptrdiff_t k = pass->begin + dual_part(pass->n, part, pass->n_parts, table->smo_step);
    const ptrdiff_t end = pass->begin + dual_part(pass->n, part + 1, pass->n_parts, table->smo_step);
    (void)thread;
    table->smo_update(k, end, pass->stretches, smo->F, pass->row_i, pass->row_j, pass->t, pass->earlier, smo->up,
                      smo->down, smo->low, &pass->found[part]);
}

static void partner_part(void *context, int part, int thread)
{
    Pass *pass = context;
    const Smo *smo = pass->smo;
    const MercerTable *table = smo->dual->table;
    const ptrdiff_t k = pass->begin + dual_part(pass->n, part, pass->n_parts, table->smo_step);
    const ptrdiff_t end = pass->begin + dual_part(pass->n, part + 1, pass->n_parts, table->smo_step);
    (void)thread;
    pass->partner[part] = table->smo_partner(k, end, pass->stretches, pass->t, pass->K_ii, pass->floor, pass->row_i,
                                             pass->earlier, smo->diagonal, smo->low, &pass->gained[part]);
}

static void run_parts(Smo *smo, Pass *pass, TeamWork *work)
{
    pass->n_parts = smo->team && pass->n >= SHARED_FROM ? smo->team->n : 1;
    if (pass->n_parts > 1)
        team_run(smo->team, work, pass);
    else
        work(pass, 0, 0);
}

/* F as it is after a step, and the extremes of each part of the positions. */
static void update(Smo *smo, const MercerStretch *stretches, const char *row_i, const char *row_j, double t,
                   const MercerDirections *earlier)
{
    for (int part = 0; part < smo->n_parts; part++) {
        Pass pass;
        pass.smo = smo;
        pass.stretches = stretches;
        pass.begin = smo->begin[part];
        pass.n = smo->begin[part + 1] - smo->begin[part];
        pass.row_i = row_i;
        pass.row_j = row_j;
        pass.t = t;
        pass.earlier = earlier;
        run_parts(smo, &pass, update_part);
        MercerExtremes *found = &smo->found[part];
        *found = pass.found[0];
        for (int p = 1; p < pass.n_parts; p++) {
            if (pass.found[p].most > found->most) {
                found->most = pass.found[p].most;
                found->at_most = pass.found[p].at_most;
            }
            if (pass.found[p].least < found->least) {
                found->least = pass.found[p].least;
                found->at_least = pass.found[p].at_least;
            }
        }
    }
    smo->work += 4 * smo->n;
}

/* The position that gains most with one whose upward rate and row are given, or −1. */
static ptrdiff_t partner(Smo *smo, int part, double rate, double K_ii, double floor, const char *row_i,
                         const MercerDirections *earlier)
{
    Pass pass;
    pass.smo = smo;
    pass.stretches = smo->rows.stretches;
    pass.begin = smo->begin[part];
    pass.n = smo->begin[part + 1] - smo->begin[part];
    pass.row_i = row_i;
    pass.t = rate;
    pass.K_ii = K_ii;
    pass.floor = floor;
    pass.earlier = earlier;
    run_parts(smo, &pass, partner_part);
    int best = 0;
    for (int p = 1; p < pass.n_parts; p++)
        best = pass.gained[p] > pass.gained[best] ? p : best;
    return pass.gained[best] > 0 ? pass.partner[best] : -1;
}

/* The extremes as they are: at t = 0 any finite rows do. */
static void look(Smo *smo)
{
    const MercerStretch whole = {smo->n, 0};
    const MercerDirections none = {.n = 0};
    update(smo, &whole, smo->diagonal, smo->diagonal, 0, &none);
}

/* The same by F itself, which passes round to T: where rates are large, T tells them apart no more. */
static void look_closely(Smo *smo)
{
    for (int part = 0; part < smo->n_parts; part++) {
        MercerExtremes *found = &smo->found[part];
        found->most = -INFINITY;
        found->least = INFINITY;
        for (ptrdiff_t k = smo->begin[part]; k < smo->begin[part + 1]; k++) {
            const ptrdiff_t v = smo->variable[k];
            if (v < 0)
                continue;
            const double up = smo->F[k] + smo_up(smo, v), down = smo->F[k] + smo_down(smo, v);
            found->most = up > found->most ? up : found->most;
            found->least = down < found->least ? down : found->least;
        }
    }
}

/* The gap, and the part that has it. */
static double gap_of(const Smo *smo, int *part)
{
    double gap = smo->found[0].most - smo->found[0].least;
    *part = 0;
    if (smo->n_parts == 2 && smo->found[1].most - smo->found[1].least > gap) {
        gap = smo->found[1].most - smo->found[1].least;
        *part = 1;
    }
    return gap;
}

/* Other positions of a part whose rates are next to an extreme one, and whose rows are not there: upward ones from a
 * threshold on, or minus the downward ones. Their rows are likely to be asked for: of those of real problems 0.6 to 0.98
 * were. */
#define NEXT_OF(T)                                                                                                    \
    for (ptrdiff_t k = smo->begin[part]; k < smo->begin[part + 1]; k++) {                                            \
        const double rate = sign * (smo->F[k] + (double)((const T *)moves)[k]);                                       \
        if (!(rate > rates[last]) || k == but || dual_has_row(&smo->rows, smo->variable, k))                         \
            continue;                                                                                                 \
        int at = last;                                                                                                \
        for (; at > 0 && rate > rates[at - 1]; at--) {                                                                \
            rates[at] = rates[at - 1];                                                                                \
            next[at] = next[at - 1];                                                                                  \
        }                                                                                                             \
        rates[at] = rate;                                                                                             \
        next[at] = k;                                                                                                 \
    }

static int next_rows(const Smo *smo, int part, int upward, ptrdiff_t but, ptrdiff_t next[DUAL_TOGETHER - 1])
{
    const MercerExtremes *found = &smo->found[part];
    const double sign = upward ? 1 : -1, half = 0.5 * (found->most + found->least);
    const void *moves = upward ? smo->up : smo->down;
    const int last = DUAL_TOGETHER - 2;
    double rates[DUAL_TOGETHER - 1];
    int n = 0;
    for (int k = 0; k <= last; k++) {
        rates[k] = sign * half;
        next[k] = -1;
    }
    if (smo->dual->table->element == 4)
        NEXT_OF(float)
    else
        NEXT_OF(double)
    while (n <= last && next[n] >= 0)
        n++;
    return n;
}

/* The row of a position that moves up or down, computed with some that may be asked for next. */
static const char *row_at(Smo *smo, int part, ptrdiff_t k, int upward)
{
    ptrdiff_t next[DUAL_TOGETHER - 1];
    int n = 0;
    if (smo->rows.work > TOGETHER_FROM && !dual_has_row(&smo->rows, smo->variable, k))
        n = next_rows(smo, part, upward, k, next);
    return dual_row(&smo->rows, smo->variable, k, n, next);
}

/* One step; 0, DUAL_STALLED where nothing can move, or DUAL_NO_MEMORY. */
static int iterate(Smo *smo, int part)
{
    const MercerTable *table = smo->dual->table;
    const double rounding = 4 * (table->element == 4 ? 0x1p-23 : 0x1p-52) * smo->dual->scale;
    const double floor = rounding > 0 ? rounding : 1e-12;
    const ptrdiff_t i = smo->found[part].at_most, v = smo->variable[i];
    const char *row_i = row_at(smo, part, i, 1);
    if (!row_i)
        return DUAL_NO_MEMORY;
    const double rate = smo->F[i] + smo_up(smo, v), K_ii = smo_element(smo, smo->diagonal, i);
    MercerDirections earlier;
    smo_earlier(smo, i, &earlier);
    const ptrdiff_t j = partner(smo, part, rate, K_ii, floor, row_i, &earlier);
    if (j < 0)
        return DUAL_STALLED;
    const ptrdiff_t w = smo->variable[j];
    const char *row_j = row_at(smo, part, j, 0);
    if (!row_j)
        return DUAL_NO_MEMORY;
    const double bend = K_ii + smo_element(smo, smo->diagonal, j) - 2 * smo_entry(smo, row_i, j);
    const double curve = bend > floor ? bend : floor;
    const double t = smo_move(smo, i, j, rate - (smo->F[j] + smo_down(smo, w)), curve, bend > floor, &earlier);
    if (!(t > 0))
        return DUAL_STALLED;
    update(smo, smo->rows.stretches, row_i, row_j, t, &earlier);
    return 0;
}

/* Where some bounds are infinite (a hard margin): βᵀKβ, and the largest margin that β allows, half the distance of the
 * two points of the classes' hulls that it weighs. */
static double margin_bound(const Smo *smo)
{
    double w = 0, sum = 0;
    for (ptrdiff_t k = 0; k < smo->n; k++) {
        const ptrdiff_t v = smo->variable[k];
        if (v < 0 || smo->beta[v] == 0)
            continue;
        w += smo->beta[v] * (smo->dual->linear[smo->job->offset + v] - smo->F[k]);
        sum += fabs(smo->beta[v]);
    }
    return sum > 0 ? sqrt(w > 0 ? w : 0) / sum : INFINITY;
}

/* The best multiple of β where neither its sums nor a bound but 0 are in its way: of classes that are not separable β
 * grows without end, in steps of about 1 (four samples took 0.5 s until the margin was nought but rounding, now 1 ms).
 * Whether it moved. */
static int stretch(Smo *smo)
{
    double along = 0, bend = 0, size = 0, sum[2] = {0, 0};
    for (ptrdiff_t k = 0; k < smo->n; k++) {
        const ptrdiff_t v = smo->variable[k];
        if (v < 0)
            continue;
        const double c = smo->dual->linear[smo->job->offset + v], beta = smo->beta[v];
        if ((smo->lower[v] != 0 && isfinite(smo->lower[v])) || (smo->upper[v] != 0 && isfinite(smo->upper[v])))
            return 0;
        along += beta * c - smo->job->epsilon * fabs(beta);
        bend += beta * (c - smo->F[k]);
        size += fabs(beta);
        sum[k >= smo->begin[1]] += beta;
    }
    const double by = fmin(along / fmax(bend, 0), STRETCH_MOST);
    if (smo->n_epochs || fmax(fabs(sum[0]), fabs(sum[1])) > STRETCH_SUM * size || !(by > STRETCH_LEAST))
        return 0;
    smo_end_directions(smo);
    for (ptrdiff_t k = 0; k < smo->n; k++) {
        const ptrdiff_t v = smo->variable[k];
        if (v < 0)
            continue;
        const double c = smo->dual->linear[smo->job->offset + v];
        smo->beta[v] *= by;
        smo->F[k] = c - by * (c - smo->F[k]);
    }
    look(smo);
    return 1;
}

static int unbounded(const Smo *smo)
{
    for (ptrdiff_t v = 0; v < smo->size; v++)
        if (isinf(smo->lower[v]) || isinf(smo->upper[v]))
            return 1;
    return 0;
}

int smo_stopped(Smo *smo, double gap)
{
    smo->work = 0;
    if (omp_get_thread_num() == 0 && smo->dual->poll && omp_get_wtime() - *smo->last_poll > POLL_EVERY) {
        smo->dual->progress.gap = gap;
        if (smo->dual->poll(smo->dual->context))
            *smo->stop = 1;
        *smo->last_poll = omp_get_wtime();
    }
    return *smo->stop;
}

static int stopped_meanwhile(void *smo)
{
    return smo_stopped(smo, ((Smo *)smo)->dual->progress.gap);
}

/* About what rounding leaves of F when it is computed from β. */
static double noise(const Smo *smo)
{
    double squares = 0;
    for (ptrdiff_t v = 0; v < smo->size; v++)
        squares += smo->beta[v] * smo->beta[v];
    return DBL_EPSILON * smo->dual->scale * sqrt(squares);
}

/* Whether so many steps may have put F off by much more than that, β being up to date. */
static int drifted(const Smo *smo)
{
    const double n = (double)(smo->job->n_iter - smo->renewed);
    return n > (double)(DRIFT_FROM * smo->size) && n * noise(smo) > DRIFT_TOL * smo->dual->tol;
}

static int loop(Smo *smo)
{
    const MercerDual *dual = smo->dual;
    const int hard = unbounded(smo);
    /* rounding of the kernel's entries is all that is left of a margin below this */
    const double margin_zero = sqrt(dual->scale) * (dual->table->element == 4 ? 1e-3 : 1e-7);
    const ptrdiff_t from = dual->run ? SHRINK_FROM : MATRIX_FROM;
    int64_t next_shrink = dual->run ? (smo->n < SHRINK_EVERY ? smo->n : SHRINK_EVERY) : MATRIX_FIRST;
    int part, status;
    look(smo);
    for (;; smo->job->n_iter++) {
        const double gap = gap_of(smo, &part);
        if (!(gap > dual->tol)) {
            if (isnan(gap))
                return DUAL_NOT_FINITE;
            smo_end_directions(smo);
            /* F that is never told to tol would not end */
            if (smo->n_epochs == 0 && (!drifted(smo) || noise(smo) > dual->tol))
                return DUAL_CONVERGED;
            if (smo->n_epochs ? smo_restore(smo) : smo_renew(smo))
                return DUAL_NO_MEMORY;
            if (*smo->stop)
                return DUAL_STOPPED;
            next_shrink = smo->job->n_iter + SHRINK_EVERY;
            look(smo);
            smo->job->n_iter--;
            continue;
        }
        if (smo->job->n_iter >= dual->max_iter)
            return DUAL_CAPPED;
        if (smo->work > WORK_BETWEEN_LOOKS && smo_stopped(smo, gap))
            return DUAL_STOPPED;
        if (dual->shrinking && smo->job->n_iter >= next_shrink && smo->n >= from) {
            const ptrdiff_t n = smo->n;
            smo_end_directions(smo);
            if (smo_shrink(smo))
                return DUAL_NO_MEMORY;
            const ptrdiff_t every = dual->run || smo->n_epochs ? SHRINK_EVERY : MATRIX_AGAIN;
            next_shrink = smo->job->n_iter + (smo->n < every ? smo->n : every);
            if (smo->n != n) {
                look(smo);
                smo->job->n_iter--;
                continue;
            }
        }
        if (hard && smo->job->n_iter % 256 == 255) {
            smo_update_beta(smo);
            if (margin_bound(smo) < margin_zero)
                return DUAL_INSEPARABLE;
            if (stretch(smo)) {
                smo->job->n_iter--;
                continue;
            }
        }
        status = iterate(smo, part);
        if (status)
            return status;
    }
}

/* ---- results ----------------------------------------------------------------------------------------------- */

/* The bias of a part: the mean rate of its free variables, or the middle of what the others allow. */
static void set_bias(Smo *smo, int part)
{
    const MercerExtremes *found = &smo->found[part];
    double sum = 0;
    ptrdiff_t n_free = 0;
    for (ptrdiff_t k = smo->begin[part]; k < smo->begin[part + 1]; k++) {
        const ptrdiff_t v = smo->variable[k];
        const double kink = smo->job->epsilon;
        if (v < 0 || smo->beta[v] <= smo->lower[v] || smo->beta[v] >= smo->upper[v] || (smo->beta[v] == 0 && kink > 0))
            continue;
        sum += smo->F[k] + (smo->beta[v] < 0 ? kink : -kink);
        n_free++;
    }
    double bias = 0.5 * (found->most + found->least);
    if (n_free)
        bias = sum / (double)n_free;
    else if (isinf(found->most) || isinf(found->least))
        bias = isinf(found->most) ? (isinf(found->least) ? 0 : found->least) : found->most;
    smo->job->bias[part] = bias;
    smo->job->most[part] = found->most;
    smo->job->least[part] = found->least;
}

/* What rounding left next to a bound or the kink is there: as a free variable it would set the bias. Rounding is measured
 * by the largest β where that is less than the box, which may be far wider than all of a solution or far narrower. F stays
 * as it is, and so must be put off by a small part of tol alone. */
static void snap(Smo *smo)
{
    double largest = 0;
    for (ptrdiff_t v = 0; v < smo->size; v++)
        largest = fabs(smo->beta[v]) > largest ? fabs(smo->beta[v]) : largest;
    const double most = SNAP_TOL * smo->dual->tol / fmax(smo->dual->scale, 0);
    for (ptrdiff_t k = 0; k < smo->n; k++) {
        const ptrdiff_t v = smo->variable[k];
        if (v < 0 || smo->beta[v] == smo->lower[v] || smo->beta[v] == smo->upper[v])
            continue;
        const double stops[] = {smo->lower[v], smo->upper[v], smo->job->epsilon > 0 ? 0 : smo->lower[v]};
        const double beta = smo->beta[v], width = smo->upper[v] - smo->lower[v];
        double near = fmin(1e-12 * fmin(largest, width), most);
        for (int s = 0; s < 3; s++) /* to the nearest */
            if (fabs(beta - stops[s]) <= near) {
                near = fabs(beta - stops[s]);
                smo->beta[v] = stops[s];
            }
    }
}

static void finish(Smo *smo)
{
    MercerDualJob *job = smo->job;
    const double *linear = smo->dual->linear + job->offset;
    int part;
    if (smo->n_epochs && job->status != DUAL_NO_MEMORY && smo_restore(smo))
        job->status = DUAL_NO_MEMORY;
    if (job->status != DUAL_NO_MEMORY && job->status != DUAL_CONVERGED && drifted(smo) && smo_renew(smo))
        job->status = DUAL_NO_MEMORY;
    if (*smo->stop)
        job->status = DUAL_STOPPED;
    if (job->status == DUAL_NO_MEMORY || job->status == DUAL_STOPPED)
        return;
    snap(smo);
    look_closely(smo);
    job->gap = gap_of(smo, &part);
    job->bound = unbounded(smo) ? margin_bound(smo) : INFINITY;
    for (part = 0; part < smo->n_parts; part++)
        set_bias(smo, part);
    if (smo_gather_F(smo)) {
        job->status = DUAL_NO_MEMORY;
        return;
    }
    double objective = 0;
    for (ptrdiff_t v = 0; v < smo->size; v++) {
        const double from = smo->since ? smo->since[v] : 0, to = smo->beta[v];
        objective += job->epsilon * (fabs(to) - fabs(from)) - 0.5 * (to - from) * (smo->all_F[v] + linear[v]);
    }
    job->objective = objective;
    for (ptrdiff_t v = 0; v < smo->size; v++) /* comparisons passed over NaN */
        if (!isfinite(smo->all_F[v]))
            job->status = DUAL_NOT_FINITE;
    job->n_rows = smo->rows.n_computed;
    if (smo->dual->field)
        memcpy(smo->dual->field + job->offset, smo->all_F, (size_t)smo->size * sizeof(double));
}

void smo_solve(Smo *smo, MercerDualJob *job)
{
    job->n_iter = 0;
    job->status = DUAL_NO_MEMORY;
    smo->rows.stopped = stopped_meanwhile;
    smo->rows.smo = smo;
    if (*smo->stop)
        job->status = DUAL_STOPPED;
    else if (!smo_begin(smo, job)) {
        job->status = *smo->stop ? DUAL_STOPPED : loop(smo);
        smo_end_directions(smo);
        if (job->status != DUAL_STOPPED)
            finish(smo);
    }
}

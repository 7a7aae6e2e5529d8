/* The machines of one problem along C: each begins at the one before, and reads the rows that caches still hold. What SMO
 * alone, or float32, does not bring to tol is left to whoever called, who may go on from there. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "dual_state.h"

/* A gap of so many times tol by F itself is more than what rounding of rates to float32 leaves beside tol. */
static const double TOO_FAR = 1.1;
/* Of tol, what rounding of F may come to. */
static const double PART = 1e-3;

/* β and F of a C: those of the one before, or β times the ratio of the two C, whichever has the lower objective. */
static int begin(const MercerDual *dual, MercerDualPath *path)
{
    const ptrdiff_t n = path->size, k = path->at;
    double *beta = path->beta + k * n, *F = path->field + k * n;
    const double ratio = path->C[k] / path->C[k - 1];
    double linear = 0, quadratic = 0;
    memcpy(beta, beta - n, (size_t)n * sizeof(double));
    memcpy(F, F - n, (size_t)n * sizeof(double));
    for (ptrdiff_t v = 0; v < n; v++) {
        linear += path->linear[v] * beta[v];
        quadratic += beta[v] * (path->linear[v] - F[v]);
    }
    /* of a small K β little or nothing but rounding may be left in F */
    const double most = quadratic + path->rounding * linear;
    if (!(0.5 * ratio * ratio * most - ratio * linear < 0.5 * quadratic - linear))
        return DUAL_PATH_ENDED;
    for (ptrdiff_t v = 0; v < n; v++) {
        beta[v] *= ratio;
        path->known[v] *= ratio;
        F[v] += (1 - ratio) * (path->linear[v] - F[v]);
    }
    path->rounding *= ratio; /* of F, as its part that is K β grows */
    return path->rounding > PART * dual->tol ? DUAL_PATH_ROUNDED : DUAL_PATH_ENDED;
}

static void set_box(MercerDualPath *path)
{
    const double C = path->C[path->at];
    double *beta = path->beta + path->at * path->size;
    for (ptrdiff_t v = 0; v < path->size; v++) {
        path->lower[v] = C * path->least[v];
        path->upper[v] = C * path->most[v];
        beta[v] = beta[v] < path->lower[v] ? path->lower[v] : beta[v]; /* where it is but for rounding */
        beta[v] = beta[v] > path->upper[v] ? path->upper[v] : beta[v];
    }
}

/* Whether rounding of the rows may keep the gap from tol, as β is far from where F is known; or whether it did. */
static int is_far(const MercerDual *dual, const MercerDualPath *path, const MercerDualJob *job)
{
    const double *beta = path->beta + path->at * path->size;
    double squares = 0;
    for (ptrdiff_t v = 0; v < path->size; v++)
        squares += (beta[v] - path->known[v]) * (beta[v] - path->known[v]);
    return path->noise * sqrt(squares) > dual->tol ||
           (path->noise > 0 && job->status == DUAL_CONVERGED && job->gap > TOO_FAR * dual->tol);
}

static int solve(Smo *smo, MercerDual *dual, MercerDualPath *path, MercerDualJob *jobs)
{
    MercerDualJob *job = &jobs[path->at];
    const double begun = omp_get_wtime();
    job->started = DUAL_AT_F;
    dual->beta = path->beta + path->at * path->size;
    dual->linear = dual->field = path->field + path->at * path->size;
    set_box(path);
    smo_solve(smo, job);
    path->seconds[path->at] += omp_get_wtime() - begun;
    if (job->status == DUAL_CAPPED)
        return DUAL_PATH_CAPPED;
    return is_far(dual, path, job) ? DUAL_PATH_FAR : DUAL_PATH_ENDED;
}

int mercer_dual_path(MercerDual *dual, MercerDualJob *jobs, MercerDualPath *path, int begun)
{
    atomic_int stop = 0;
    double last_poll = omp_get_wtime();
    Smo smo = {.dual = dual, .stop = &stop, .last_poll = &last_poll};
    int status = 0;
    dual->lower = path->lower;
    dual->upper = path->upper;
    for (path->left = DUAL_PATH_ENDED; path->at < path->end; path->at++, begun = 0) {
        path->left = begun || path->at == 0 ? DUAL_PATH_ENDED : begin(dual, path);
        if (path->left != DUAL_PATH_ENDED)
            break;
        path->left = solve(&smo, dual, path, jobs);
        status = (int)jobs[path->at].status;
        if (status == DUAL_STOPPED || status == DUAL_NO_MEMORY || path->left != DUAL_PATH_ENDED)
            break;
    }
    smo_release(&smo);
    return status == DUAL_STOPPED || status == DUAL_NO_MEMORY ? status : 0;
}

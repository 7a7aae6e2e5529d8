/* One problem of the dual solver: its variables placed, cut down to those that still move, and brought back. */
#include <stdlib.h>
#include <string.h>

#include "dual_state.h"

enum { MAX_EPOCHS = 64 };

static void *resized(void *old, size_t bytes, int *failed)
{
    free(old);
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!memory)
        *failed = 1;
    return memory;
}

static int reserve_directions(SmoDirections *all, ptrdiff_t n, size_t element)
{
    int failed = 0;
    const size_t bytes = ((size_t)n + SMO_HELD_UNIT) * sizeof(double);
    all->room = n;
    all->images = resized(all->images, MERCER_DIRECTIONS * (size_t)n * element, &failed);
    all->place = resized(all->place, (size_t)n * sizeof(int32_t), &failed);
    all->held = resized(all->held, (size_t)n * sizeof(int32_t), &failed);
    all->beta = resized(all->beta, bytes, &failed);
    all->lower = resized(all->lower, bytes, &failed);
    all->upper = resized(all->upper, bytes, &failed);
    all->fresh = resized(all->fresh, bytes, &failed);
    all->moved = resized(all->moved, bytes, &failed);
    for (int e = 0; e < MERCER_DIRECTIONS; e++)
        all->p[e] = resized(all->p[e], bytes, &failed);
    return failed;
}

static int reserve(Smo *smo, ptrdiff_t n)
{
    const size_t element = smo->dual->table->element;
    int failed = 0;
    if (n <= smo->capacity)
        return MERCER_OK;
    smo->capacity = n;
    smo->variable = resized(smo->variable, (size_t)n * sizeof(int32_t), &failed);
    smo->epoch = resized(smo->epoch, (size_t)n * sizeof(int32_t), &failed);
    smo->F = resized(smo->F, (size_t)n * sizeof(double), &failed);
    smo->start = resized(smo->start, (size_t)n * sizeof(double), &failed);
    smo->all_F = resized(smo->all_F, (size_t)n * sizeof(double), &failed);
    smo->up = resized(smo->up, (size_t)n * element, &failed);
    smo->down = resized(smo->down, (size_t)n * element, &failed);
    smo->low = resized(smo->low, (size_t)n * element, &failed);
    smo->diagonal = resized(smo->diagonal, (size_t)n * element, &failed);
    failed |= reserve_directions(&smo->directions, n, element);
    if (failed)
        smo->capacity = 0;
    return failed ? MERCER_NO_MEMORY : MERCER_OK;
}

void smo_release(Smo *smo)
{
    dual_rows_end(&smo->rows);
    free(smo->variable);
    free(smo->epoch);
    free(smo->F);
    free(smo->start);
    free(smo->all_F);
    free(smo->up);
    free(smo->down);
    free(smo->low);
    free(smo->diagonal);
    free(smo->directions.images);
    free(smo->directions.place);
    free(smo->directions.held);
    free(smo->directions.beta);
    free(smo->directions.lower);
    free(smo->directions.upper);
    free(smo->directions.fresh);
    free(smo->directions.moved);
    for (int e = 0; e < MERCER_DIRECTIONS; e++)
        free(smo->directions.p[e]);
    free(smo->snapshots);
}

/* All variables at their positions, with all_F as F. */
static void place_all(Smo *smo)
{
    const DualRows *rows = &smo->rows;
    smo->n = rows->n;
    smo->n_parts = smo->job->separate ? 2 : 1;
    smo->begin[0] = 0;
    smo->begin[1] = smo->job->separate ? rows->second : rows->n;
    smo->begin[2] = rows->n;
    for (ptrdiff_t k = 0; k < smo->n; k++)
        smo->variable[k] = smo->directions.place[k] = -1;
    smo->directions.n = 0;
    smo->directions.n_held = 0;
    for (int r = 0; r < rows->n_ranges; r++)
        for (ptrdiff_t k = 0; k < rows->ranges[r].length; k++)
            smo->variable[rows->ranges[r].position + k] = (int32_t)(rows->ranges[r].variable + k);
    for (ptrdiff_t k = 0; k < smo->n; k++) {
        const ptrdiff_t v = smo->variable[k];
        smo_set_moves(smo, k);
        smo->F[k] = v < 0 ? 0 : smo->all_F[v];
        smo_set(smo, smo->diagonal, k, v < 0 ? 0 : smo_element(smo, smo->dual->diagonal, dual_layout(smo->job, v)));
    }
    smo->n_epochs = 0;
}

/* Who has a position, and who none. */
static void set_epochs(Smo *smo)
{
    const DualRows *rows = &smo->rows;
    for (ptrdiff_t v = 0; v < smo->size; v++)
        smo->epoch[v] = SMO_FIXED;
    for (int r = 0; r < rows->n_ranges; r++)
        for (ptrdiff_t k = 0; k < rows->ranges[r].length; k++)
            smo->epoch[rows->ranges[r].variable + k] = SMO_ACTIVE;
}

/* F −= K Δβ over the variables of an epoch, Δβ being β or its change since a snapshot. */
static int subtract(Smo *smo, int epoch, const double *since)
{
    int32_t *columns = malloc((size_t)(smo->size + 1) * sizeof(int32_t));
    int32_t *sources = malloc((size_t)(smo->size + 1) * sizeof(int32_t));
    double *change = malloc((size_t)(smo->size + 1) * sizeof(double));
    ptrdiff_t n_columns = 0, n_sources = 0;
    int failed = !columns || !sources || !change;
    for (ptrdiff_t v = 0; !failed && v < smo->size; v++) {
        const double by = smo->beta[v] - (since ? since[v] : 0);
        if (smo->epoch[v] == epoch)
            columns[n_columns++] = (int32_t)v;
        if (by != 0) {
            sources[n_sources] = (int32_t)v;
            change[n_sources++] = by;
        }
    }
    if (!failed && n_sources && n_columns)
        failed = dual_rows_subtract(&smo->rows, columns, n_columns, sources, change, n_sources, smo->all_F);
    free(columns);
    free(sources);
    free(change);
    return failed ? MERCER_NO_MEMORY : MERCER_OK;
}

/* F from β, unless it is known there, and all variables at their positions. */
static int begin_F(Smo *smo, int known)
{
    memcpy(smo->all_F, smo->dual->linear + smo->job->offset, (size_t)smo->size * sizeof(double));
    set_epochs(smo);
    if (!known && subtract(smo, SMO_ACTIVE, smo->since))
        return MERCER_NO_MEMORY;
    place_all(smo);
    smo->renewed = smo->job->n_iter;
    return MERCER_OK;
}

int smo_renew(Smo *smo)
{
    return begin_F(smo, 0);
}

int smo_begin(Smo *smo, MercerDualJob *job)
{
    const MercerDual *dual = smo->dual;
    smo->job = job;
    smo->size = job->length[0] + job->length[1];
    smo->beta = dual->beta + job->offset;
    smo->lower = dual->lower + job->offset;
    smo->upper = dual->upper + job->offset;
    if (dual_rows_begin(&smo->rows, dual, job) || reserve(smo, smo->rows.n > smo->size ? smo->rows.n : smo->size))
        return MERCER_NO_MEMORY;
    smo->since = job->started == DUAL_AT_F ? smo->start : NULL;
    if (smo->since)
        memcpy(smo->start, smo->beta, (size_t)smo->size * sizeof(double));
    return begin_F(smo, job->started != DUAL_AT_BETA);
}

/* ---- shrinking --------------------------------------------------------------------------------------------- */

/* Whether a position may leave: at a bound (or at the kink), and beyond every rate that could move it. */
static int settled(const Smo *smo, ptrdiff_t k, const MercerExtremes *found)
{
    const double F = smo->F[k];
    return F + smo_element(smo, smo->up, k) < found->least && F + smo_element(smo, smo->down, k) > found->most;
}

static void move_position(Smo *smo, ptrdiff_t to, ptrdiff_t from)
{
    smo->variable[to] = smo->variable[from];
    smo->F[to] = smo->F[from];
    smo_set(smo, smo->up, to, smo_element(smo, smo->up, from));
    smo_set(smo, smo->down, to, smo_element(smo, smo->down, from));
    smo_set(smo, smo->diagonal, to, smo_element(smo, smo->diagonal, from));
}

/* Which positions stay, each part padded with −1; returns their number. */
static ptrdiff_t choose_kept(const Smo *smo, int32_t *kept, ptrdiff_t begin[3])
{
    ptrdiff_t n = 0;
    for (int part = 0; part < smo->n_parts; part++) {
        begin[part] = n;
        for (ptrdiff_t k = smo->begin[part]; k < smo->begin[part + 1]; k++)
            if (smo->variable[k] >= 0 && !settled(smo, k, &smo->found[part]))
                kept[n++] = (int32_t)k;
        for (; n % smo->dual->table->smo_step; n++)
            kept[n] = -1;
    }
    for (int part = smo->n_parts; part < 3; part++)
        begin[part] = n;
    return n;
}

static void take_F(Smo *smo)
{
    for (ptrdiff_t k = 0; k < smo->n; k++)
        if (smo->variable[k] >= 0)
            smo->all_F[smo->variable[k]] = smo->F[k];
}

/* F and β as they are, of an epoch that begins. */
static int take_snapshot(Smo *smo)
{
    if ((smo->n_epochs + 1) * smo->size > smo->snapshot_room) { /* the last problem may have been a smaller one */
        const ptrdiff_t room = (smo->n_epochs + 8) * smo->size;
        double *more = realloc(smo->snapshots, (size_t)room * sizeof(double));
        if (!more)
            return MERCER_NO_MEMORY;
        smo->snapshots = more;
        smo->snapshot_room = room;
    }
    memcpy(smo->snapshots + smo->n_epochs * smo->size, smo->beta, (size_t)smo->size * sizeof(double));
    take_F(smo);
    smo->n_epochs++;
    return MERCER_OK;
}

int smo_shrink(Smo *smo)
{
    int32_t *kept = malloc((size_t)(smo->n + 4 * smo->dual->table->smo_step) * sizeof(int32_t));
    ptrdiff_t begin[3];
    if (!kept)
        return MERCER_NO_MEMORY;
    const ptrdiff_t n = choose_kept(smo, kept, begin);
    /* cutting a row of a matrix costs as much as some steps over the whole one */
    const ptrdiff_t most = smo->dual->run || smo->n_epochs ? smo->n - smo->n / 8 : smo->n / 2;
    if (n == 0 || n > most || smo->n_epochs == MAX_EPOCHS) {
        free(kept);
        return MERCER_OK;
    }
    /* reading a row of a matrix costs the same for all who left as for some: all count from the first removal */
    if ((smo->dual->run || !smo->n_epochs) && take_snapshot(smo)) {
        free(kept);
        return MERCER_NO_MEMORY;
    }
    const int failed = dual_rows_shrink(&smo->rows, smo->variable, kept, n);
    for (ptrdiff_t k = 0, next = 0; k < smo->n; k++) {
        while (next < n && kept[next] < 0)
            next++;
        if (next < n && kept[next] == k)
            next++;
        else if (smo->variable[k] >= 0)
            smo->epoch[smo->variable[k]] = (int32_t)smo->n_epochs - 1;
    }
    for (ptrdiff_t k = 0; k < n; k++) {
        if (kept[k] >= 0) {
            move_position(smo, k, kept[k]);
            continue;
        }
        smo->variable[k] = -1;
        smo->F[k] = 0;
        smo_set_moves(smo, k);
        smo_set(smo, smo->diagonal, k, 0);
    }
    memcpy(smo->begin, begin, sizeof begin);
    smo->n = n;
    free(kept);
    return failed;
}

int smo_gather_F(Smo *smo)
{
    take_F(smo);
    return subtract(smo, SMO_FIXED, smo->since);
}

/* Brings F of the removed up to date with the changes of β since each left, and all variables back. */
int smo_restore(Smo *smo)
{
    int failed = 0;
    take_F(smo);
    for (int e = 0; !failed && e < smo->n_epochs; e++)
        failed = subtract(smo, e, smo->snapshots + e * smo->size);
    dual_rows_restore(&smo->rows);
    set_epochs(smo);
    place_all(smo);
    return failed ? MERCER_NO_MEMORY : MERCER_OK;
}

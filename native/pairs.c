/* One against one: strips of rows whose kernel values are at hand as a whole, for the decisions of all pairs. */
#include <omp.h>
#include <stdlib.h>

#include "mercer.h"

/* Strips of one thread, so that they end together. */
enum { STRIPS = 4 };

static ptrdiff_t up_to_multiple(ptrdiff_t n, ptrdiff_t of)
{
    return (n + of - 1) / of * of;
}

int mercer_pairs(const MercerRun *run, const MercerTable *table, const MercerPairs *job, ptrdiff_t *next, double pause_after,
                 int n_threads)
{
    const double start = omp_get_wtime();
    const ptrdiff_t tile = table->tile, share = up_to_multiple(run->n / (STRIPS * n_threads) + 1, table->pair_rows);
    const ptrdiff_t strip = share < tile ? share : tile;
    const size_t scratch = (size_t)up_to_multiple((ptrdiff_t)table->scratch_bytes(run), 64);
    const size_t terms = (size_t)((run->m + table->panel_width) * tile) * table->element;
    int failed = 0;
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        const size_t bytes = scratch + terms + table->pairs_bytes(job);
        char *memory = mercer_take(bytes, 1);
        if (memory) {
            *(ptrdiff_t *)memory = 0; /* no panels are held */
        } else {
#pragma omp atomic write
            failed = 1;
        }
        while (memory && omp_get_wtime() - start <= pause_after) {
            ptrdiff_t i0;
#pragma omp atomic capture
            {
                i0 = *next;
                *next += strip;
            }
            if (i0 >= run->n)
                break;
            const ptrdiff_t i1 = run->n - i0 < strip ? run->n : i0 + strip;
            for (ptrdiff_t j0 = 0, j1; j0 < run->m; j0 = j1) {
                j1 = run->m - j0 < tile ? run->m : j0 + tile;
                const void *values = table->tile_values(run, memory, i0, i1, j0, j1);
                table->pair_terms(values, i1 - i0, j1 - j0, memory + scratch + (size_t)(j0 * tile) * table->element, tile);
            }
            table->pairs(job, i0, i1 - i0, memory + scratch, tile, memory + scratch + terms);
        }
        mercer_give(memory, bytes);
    }
    return failed ? MERCER_NO_MEMORY : *next < run->n ? MERCER_PAUSED : MERCER_OK;
}

int mercer_pairs_given(const MercerTable *table, const MercerPairs *job, ptrdiff_t n)
{
    const size_t bytes = table->pairs_bytes(job);
    char *memory = mercer_take(bytes, 1);
    if (!memory)
        return MERCER_NO_MEMORY;
    table->pairs(job, 0, n, NULL, 0, memory);
    mercer_give(memory, bytes);
    return MERCER_OK;
}

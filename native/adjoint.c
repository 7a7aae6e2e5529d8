/* The parallel loop over blocks of rows of a program's derivatives (adjoint.inc). Each block has its own row of
 * the sums over pairs, so that their order, and the result, do not depend on the threads. */
#include <omp.h>
#include <stdlib.h>

#include "mercer.h"

/* (m, d) row by row to (n_chunks, d, MERCER_CHUNK), zero beyond the end. */
void mercer_chunks(const double *rows, ptrdiff_t m, ptrdiff_t d, double *chunks, int n_threads)
{
    const ptrdiff_t n_chunks = (m + MERCER_CHUNK - 1) / MERCER_CHUNK;
#pragma omp parallel for schedule(static) num_threads(n_threads) if (m * d > 20000)
    for (ptrdiff_t c = 0; c < n_chunks; c++)
        for (ptrdiff_t k = 0; k < d; k++)
            for (ptrdiff_t r = 0; r < MERCER_CHUNK; r++) {
                const ptrdiff_t j = c * MERCER_CHUNK + r;
                chunks[(c * d + k) * MERCER_CHUNK + r] = j < m ? rows[j * d + k] : 0;
            }
}

int mercer_adjoint(const MercerAdjoint *job, const MercerTable *table, ptrdiff_t *next, double pause_after, int n_threads)
{
    const ptrdiff_t n_blocks = (job->run->n + MERCER_ROWS - 1) / MERCER_ROWS;
    const double start = omp_get_wtime();
    int failed = 0;
    if (n_threads > n_blocks)
        n_threads = (int)n_blocks;
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        void *scratch = aligned_alloc(64, (table->adjoint_bytes(job) + 127) / 64 * 64);
        if (!scratch) {
#pragma omp atomic write
            failed = 1;
        }
        while (scratch && omp_get_wtime() - start <= pause_after) {
            ptrdiff_t block;
#pragma omp atomic capture
            block = (*next)++;
            if (block >= n_blocks)
                break;
            table->adjoint_rows(job, scratch, block);
        }
        free(scratch);
    }
    return failed ? MERCER_NO_MEMORY : *next < n_blocks ? MERCER_PAUSED : MERCER_OK;
}

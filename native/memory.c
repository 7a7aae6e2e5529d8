/* Memory for results and packed copies. The pages of a large new block cost as much to make as a kernel matrix of few
 * features to compute, so that up to KEPT bytes of what is given back are kept for the next call. The system may take
 * kept pages whenever it is short (MADV_FREE); then they are made anew. */
#if defined(__linux__)
#define _DEFAULT_SOURCE
#include <sys/mman.h>
#endif
#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "mercer.h"

#define HUGE_PAGE ((size_t)1 << 21)
#define LARGE (2 * HUGE_PAGE)
#define KEPT ((size_t)1 << 28)
enum { SLOTS = 64 };

static struct {
    void *memory;
    size_t size;
} pool[SLOTS]; /* the oldest first */
static int n_kept;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void lock(void)
{
    while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire))
        ;
}

static void unlock(void)
{
    atomic_flag_clear_explicit(&busy, memory_order_release);
}

static size_t rounded(size_t bytes)
{
    const size_t unit = bytes < LARGE ? 64 : HUGE_PAGE;
    return (bytes + unit) / unit * unit;
}

static void *drop(int slot)
{
    void *memory = pool[slot].memory;
    for (n_kept--; slot < n_kept; slot++)
        pool[slot] = pool[slot + 1];
    return memory;
}

/* Makes pages, each huge one by one thread: left to the tiles, whose mirror images let two threads meet in the same
 * page, they are cleared twice. */
static void touch(char *memory, size_t size, int n_threads)
{
#pragma omp parallel for schedule(dynamic) num_threads(n_threads) if (n_threads > 1)
    for (size_t start = 0; start < size; start += HUGE_PAGE)
        for (size_t at = start; at < start + HUGE_PAGE && at < size; at += 4096)
            *(volatile char *)(memory + at) = 0;
}

void *mercer_take(size_t bytes, int n_threads)
{
    const size_t size = rounded(bytes);
    if (size < LARGE)
        return aligned_alloc(64, size);
    void *memory = NULL;
    lock();
    for (int slot = 0; slot < n_kept && !memory; slot++)
        if (pool[slot].size == size)
            memory = drop(slot);
    unlock();
    if (memory)
        return memory;
    memory = aligned_alloc(HUGE_PAGE, size);
    if (memory) {
#if defined(__linux__)
        madvise(memory, size, MADV_HUGEPAGE); /* advice: a refusal changes nothing */
#endif
        if (size <= KEPT) /* more takes longer than Ctrl-C can wait */
            touch(memory, size, n_threads);
    }
    return memory;
}

void mercer_give(void *memory, size_t bytes)
{
    const size_t size = rounded(bytes);
    if (!memory || size < LARGE || size > KEPT) {
        free(memory);
        return;
    }
#if defined(MADV_FREE)
    madvise(memory, size, MADV_FREE);
#endif
    void *old[SLOTS];
    int n_old = 0;
    lock();
    for (;;) {
        size_t kept = size;
        for (int slot = 0; slot < n_kept; slot++)
            kept += pool[slot].size;
        if (kept <= KEPT && n_kept < SLOTS)
            break;
        old[n_old++] = drop(0);
    }
    pool[n_kept].memory = memory;
    pool[n_kept++].size = size;
    unlock();
    while (n_old)
        free(old[--n_old]);
}

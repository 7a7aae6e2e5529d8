/* Memory for results and packed copies. The pages of a new block cost several times what it takes to fill it, and as
 * much as a kernel matrix of few features takes to compute, so that what is given back is kept for the next call. The
 * system may take the pages of large blocks whenever it is short (MADV_FREE); then they are made anew. */
#if defined(__linux__)
#define _DEFAULT_SOURCE
#include <malloc.h>
#include <sys/mman.h>
#endif
#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "mercer.h"

#define HUGE_PAGE ((size_t)1 << 21)
#define LARGE (2 * HUGE_PAGE)
#define PAGE ((size_t)1 << 12)
enum { SLOTS = 256 };

/* Blocks that were given back, the oldest first. */
typedef struct {
    const size_t most; /* bytes in all */
    size_t bytes;
    int n;
    struct {
        void *memory;
        size_t size;
    } blocks[SLOTS];
} Pool;

static Pool large = {.most = (size_t)1 << 28}, middling = {.most = (size_t)1 << 26};
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

static Pool *pool_of(size_t size)
{
    return size < MERCER_KEPT_FROM ? NULL : size < LARGE ? &middling : &large;
}

static size_t rounded(size_t bytes)
{
    const size_t unit = bytes < MERCER_KEPT_FROM ? 64 : bytes < LARGE ? PAGE : HUGE_PAGE;
    return (bytes + unit) / unit * unit;
}

static void *drop(Pool *pool, int slot)
{
    void *memory = pool->blocks[slot].memory;
    pool->bytes -= pool->blocks[slot].size;
    pool->n--;
    memmove(&pool->blocks[slot], &pool->blocks[slot + 1], (pool->n - slot) * sizeof pool->blocks[0]);
    return memory;
}

/* What a block has room for, of which at least so much is known. */
static size_t room_of(void *memory, size_t size)
{
#if defined(__linux__)
    const size_t unit = size < LARGE ? PAGE : HUGE_PAGE, room = malloc_usable_size(memory) / unit * unit;
    return room > size ? room : size;
#else
    (void)memory;
    return size;
#endif
}

/* A block with room for so much that was kept, and not for half as much again, or NULL: the least (factors along a path
 * are of ever other sizes), of equal ones the latest, which caches may still hold. */
static void *kept(size_t size)
{
    Pool *pool = pool_of(size);
    void *memory = NULL;
    size_t least = size + size / 2 + 1;
    int best = -1;
    if (!pool)
        return NULL;
    lock();
    for (int slot = pool->n - 1; slot >= 0 && least > size; slot--)
        if (pool->blocks[slot].size >= size && pool->blocks[slot].size < least) {
            least = pool->blocks[slot].size;
            best = slot;
        }
    if (best >= 0)
        memory = drop(pool, best);
    unlock();
    return memory;
}

/* Makes pages, each huge one by one thread: left to the tiles, whose mirror images let two threads meet in the same
 * page, they are cleared twice. */
static void touch(char *memory, size_t size, int n_threads)
{
#pragma omp parallel for schedule(dynamic) num_threads(n_threads) if (n_threads > 1)
    for (size_t start = 0; start < size; start += HUGE_PAGE)
        for (size_t at = start; at < start + HUGE_PAGE && at < size; at += PAGE)
            *(volatile char *)(memory + at) = 0;
}

void *mercer_take(size_t bytes, int n_threads)
{
    const size_t size = rounded(bytes);
    void *memory = kept(size);
    if (memory)
        return memory;
    if (size < LARGE)
        return aligned_alloc(64, size);
    memory = aligned_alloc(HUGE_PAGE, size);
    if (memory) {
#if defined(__linux__)
        madvise(memory, size, MADV_HUGEPAGE); /* advice: a refusal changes nothing */
#endif
        if (size <= large.most) /* more takes longer than Ctrl-C can wait */
            touch(memory, size, n_threads);
    }
    return memory;
}

void *mercer_take_zeros(size_t bytes)
{
    void *memory = kept(rounded(bytes));
    return memory ? memset(memory, 0, bytes) : calloc(rounded(bytes), 1);
}

void *mercer_resize(void *memory, size_t bytes)
{
    return realloc(memory, rounded(bytes));
}

void mercer_give(void *memory, size_t bytes)
{
    const size_t size = memory ? room_of(memory, rounded(bytes)) : 0;
    Pool *pool = pool_of(rounded(bytes));
    if (!memory || !pool || size > pool->most) {
        free(memory);
        return;
    }
#if defined(MADV_FREE)
    if (pool == &large)
        madvise(memory, size, MADV_FREE);
#endif
    void *old[SLOTS];
    int n_old = 0;
    lock();
    while (pool->bytes + size > pool->most || pool->n == SLOTS)
        old[n_old++] = drop(pool, 0);
    pool->blocks[pool->n].memory = memory;
    pool->blocks[pool->n++].size = size;
    pool->bytes += size;
    unlock();
    while (n_old)
        free(old[--n_old]);
}

/* The problems of a call of the dual solver among threads: a large one by all of them together, the others each by one. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dual_state.h"

/* A thread that OpenMP wakes may come to lie on the core of the thread that woke it, and wait there for milliseconds
 * although another core is idle: the system moves it only at its next look at the balance. One that finds itself there
 * moves away. All threads of a region call this first. */
typedef struct {
    atomic_int leader, arrived; /* leader: its core, −1 at first */
} Places;

enum { YIELDS = 100 };

static void spread_out(Places *places, int thread, int n_threads)
{
#if defined(__linux__)
    if (thread == 0) {
        atomic_store(&places->leader, sched_getcpu());
        for (int k = 0; k < YIELDS && atomic_load(&places->arrived) < n_threads - 1; k++)
            sched_yield();
        return;
    }
    while (atomic_load(&places->leader) < 0)
        sched_yield();
    cpu_set_t allowed, others;
    const int core = atomic_load(&places->leader);
    if (sched_getcpu() == core && core < CPU_SETSIZE && sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        others = allowed;
        CPU_CLR(core, &others);
        if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
            sched_setaffinity(0, sizeof allowed, &allowed);
    }
    atomic_fetch_add(&places->arrived, 1);
#else
    (void)places, (void)thread, (void)n_threads;
#endif
}

/* One problem by all threads. */
static void solve_together(MercerDual *dual, MercerDualJob *job, int n_threads, atomic_int *stop, double *last_poll)
{
    Team team;
    Places places = {.leader = -1};
    memset(&team, 0, sizeof team);
#pragma omp parallel num_threads(n_threads)
    {
#pragma omp single
        team.n = omp_get_num_threads();
        spread_out(&places, omp_get_thread_num(), team.n);
        if (omp_get_thread_num() == 0) {
            Smo smo = {.dual = dual, .team = &team, .rows.team = &team, .stop = stop, .last_poll = last_poll};
            smo_solve(&smo, job);
            smo_release(&smo);
            atomic_store_explicit(&team.over, 1, memory_order_release);
        } else {
            team_follow(&team, omp_get_thread_num());
        }
    }
}

/* Problems one by one, each by one thread. */
static void solve_apart(MercerDual *dual, MercerDualJob *jobs, ptrdiff_t n_jobs, int n_threads, atomic_int *stop,
                        double *last_poll)
{
    ptrdiff_t next = 0;
    int64_t done = 0;
    Places places = {.leader = -1};
    n_threads = (int)(n_jobs < n_threads ? n_jobs : n_threads);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        Smo smo = {.dual = dual, .stop = stop, .last_poll = last_poll};
        spread_out(&places, omp_get_thread_num(), omp_get_num_threads());
        for (;;) {
            ptrdiff_t mine;
#pragma omp atomic capture
            mine = next++;
            if (mine >= n_jobs)
                break;
            smo_solve(&smo, &jobs[mine]);
#pragma omp atomic
            done++;
#pragma omp atomic
            dual->progress.n_done++;
        }
        smo_release(&smo);
        while (omp_get_thread_num() == 0) { /* signals reach this thread only */
            int64_t so_far;
#pragma omp atomic read
            so_far = done;
            if (so_far >= n_jobs)
                break;
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
            smo_stopped(&smo, dual->progress.gap);
        }
    }
}

static double size_of(const MercerDualJob *job)
{
    const double size = (double)(job->length[0] + job->length[1]);
    return size * size;
}

/* Own-class parts of rows are shared where they cost more than copying. */
static const double SHARE_WORK = 80;

static void begin_sharing(MercerDual *dual, ptrdiff_t n_jobs, atomic_size_t *bytes)
{
    dual->shared = NULL;
    dual->shared_bytes = bytes;
    if (n_jobs > 2 && dual->run && dual_work(dual->run) > SHARE_WORK)
        dual->shared = calloc((size_t)dual->n, sizeof *dual->shared);
}

static void end_sharing(MercerDual *dual)
{
    for (ptrdiff_t row = 0; dual->shared && row < dual->n; row++)
        free(dual->shared[row]);
    free(dual->shared);
}

int mercer_dual(MercerDual *dual, MercerDualJob *jobs, ptrdiff_t n_jobs, int n_threads)
{
    atomic_int stop = 0;
    double last_poll = omp_get_wtime(), left = 0;
    ptrdiff_t first = 0;
    atomic_size_t shared_bytes = 0;
    begin_sharing(dual, n_jobs, &shared_bytes);
    n_threads = n_threads < TEAM_MAX ? n_threads : TEAM_MAX;
    for (ptrdiff_t k = 0; k < n_jobs; k++)
        left += size_of(&jobs[k]);
    /* a problem larger than a thread's share of what is left would keep one thread alone in the end */
    for (; first < n_jobs && n_threads > 1 && size_of(&jobs[first]) * n_threads > left; first++) {
        left -= size_of(&jobs[first]);
        solve_together(dual, &jobs[first], n_threads, &stop, &last_poll);
        dual->progress.n_done++;
    }
    if (first < n_jobs)
        solve_apart(dual, jobs + first, n_jobs - first, n_threads, &stop, &last_poll);
    end_sharing(dual);
    for (ptrdiff_t k = 0; k < n_jobs; k++)
        if (jobs[k].status == DUAL_STOPPED || jobs[k].status == DUAL_NO_MEMORY)
            return (int)jobs[k].status;
    return 0;
}

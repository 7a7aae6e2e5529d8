/* Threads that stay together through one problem and share loops of a few microseconds, for which starting an OpenMP
 * region costs too much.
 *
 * A loop comes in as many parts as there are threads. A part belongs to whoever claims it first: a thread that the system
 * keeps from running delays nobody, since the leader does its part as well. What a part computes must not depend on who
 * computes it.
 */
#ifndef MERCER_TEAM_H
#define MERCER_TEAM_H

#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

enum { TEAM_MAX = 64, TEAM_SPINS = 4000 };

typedef void TeamWork(void *context, int part, int thread);

typedef struct {
    alignas(64) atomic_uint_fast64_t claimed;
    atomic_uint_fast64_t done;
} TeamPart;

typedef struct {
    int n; /* threads */
    TeamWork *work;
    void *context;
    alignas(64) atomic_uint_fast64_t round;
    atomic_int over;
    TeamPart parts[TEAM_MAX];
} Team;

static inline void team_relax(int *spins)
{
    if (++*spins > TEAM_SPINS) {
        sched_yield();
        return;
    }
#if defined(__SSE2__)
    __builtin_ia32_pause();
#endif
}

static inline int team_claim(Team *team, int part, uint_fast64_t round)
{
    uint_fast64_t before = round - 1;
    return atomic_compare_exchange_strong_explicit(&team->parts[part].claimed, &before, round, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

static inline void team_take(Team *team, int part, uint_fast64_t round, int thread)
{
    if (!team_claim(team, part, round))
        return;
    team->work(team->context, part, thread);
    atomic_store_explicit(&team->parts[part].done, round, memory_order_release);
}

/* The leader's side of a loop: returns when all parts are done. */
static inline void team_run(Team *team, TeamWork *work, void *context)
{
    const uint_fast64_t round = atomic_load_explicit(&team->round, memory_order_relaxed) + 1;
    team->work = work;
    team->context = context;
    atomic_store_explicit(&team->round, round, memory_order_release);
    for (int part = 0; part < team->n; part++)
        team_take(team, part, round, 0);
    for (int part = 0; part < team->n; part++)
        for (int spins = 0; atomic_load_explicit(&team->parts[part].done, memory_order_acquire) != round;)
            team_relax(&spins);
}

/* The others' side, until the leader sets `over`. */
static inline void team_follow(Team *team, int thread)
{
    uint_fast64_t seen = 0;
    for (int spins = 0; !atomic_load_explicit(&team->over, memory_order_acquire);) {
        const uint_fast64_t round = atomic_load_explicit(&team->round, memory_order_acquire);
        if (round == seen) {
            team_relax(&spins);
            continue;
        }
        spins = 0;
        seen = round;
        for (int k = 0; k < team->n; k++)
            team_take(team, (thread + k) % team->n, round, thread);
    }
}

#endif

/* Denormal numbers as 0 in this thread, where the processor has that: with them an operation takes a hundred cycles. */
#ifndef MERCER_DENORMALS_H
#define MERCER_DENORMALS_H

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Does nothing unless `wanted`; returns what restore_denormals takes. */
static inline unsigned flush_denormals(int wanted)
{
#if defined(__SSE2__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(wanted ? before | 0x8040 : before);
    return before;
#else
    (void)wanted;
    return 0;
#endif
}

static inline void restore_denormals(unsigned before)
{
#if defined(__SSE2__)
    _mm_setcsr(before);
#else
    (void)before;
#endif
}

#endif

/* Elementary functions on vectors of float64 and float32.
 *
 * One source, compiled once per instruction set: the vector width follows the flags of the translation unit
 * (SSE2 or any other architecture: 16 bytes; AVX2 + FMA: 32; AVX-512 F, DQ, VL: 64). Needs GCC or Clang.
 */
#ifndef MERCER_SIMD_MATH_H
#define MERCER_SIMD_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define MERCER_VB 64
#define MERCER_SIMD_PICK(sse, avx, avx512) avx512
#elif defined(__AVX2__) && defined(__FMA__)
#define MERCER_VB 32
#define MERCER_SIMD_PICK(sse, avx, avx512) avx
#else
#define MERCER_VB 16
#define MERCER_SIMD_PICK(sse, avx, avx512) sse
#endif
#define MERCER_VL64 (MERCER_VB / 8)
#define MERCER_VL32 (MERCER_VB / 4)

typedef double vf64 __attribute__((vector_size(MERCER_VB)));
typedef float vf32 __attribute__((vector_size(MERCER_VB)));
typedef int64_t vi64 __attribute__((vector_size(MERCER_VB)));
typedef int32_t vi32 __attribute__((vector_size(MERCER_VB)));
typedef uint64_t vu64 __attribute__((vector_size(MERCER_VB)));
typedef uint32_t vu32 __attribute__((vector_size(MERCER_VB)));

#define MERCER_INLINE static inline __attribute__((always_inline, unused))

/* ---- loads, stores, lanes ---- */

MERCER_INLINE vf64 load_f64(const double *p) { vf64 v; memcpy(&v, p, sizeof v); return v; }
MERCER_INLINE vf32 load_f32(const float *p) { vf32 v; memcpy(&v, p, sizeof v); return v; }
MERCER_INLINE void store_f64(double *p, vf64 v) { memcpy(p, &v, sizeof v); }
MERCER_INLINE void store_f32(float *p, vf32 v) { memcpy(p, &v, sizeof v); }
MERCER_INLINE vf64 broadcast_f64(double a) { return (vf64){0} + a; }
MERCER_INLINE vf32 broadcast_f32(float a) { return (vf32){0} + a; }

/* mask ? a : b, lanes of the mask being 0 or -1 (what a comparison of vectors gives) */
MERCER_INLINE vf64 select_f64(vi64 mask, vf64 a, vf64 b) { return (vf64)((mask & (vi64)a) | (~mask & (vi64)b)); }
MERCER_INLINE vf32 select_f32(vi32 mask, vf32 a, vf32 b) { return (vf32)((mask & (vi32)a) | (~mask & (vi32)b)); }

/* a < b ? a : b, so that a NaN in b (the second argument) goes through, and one in a does not */
#if defined(__SSE2__)
MERCER_INLINE vf64 min_f64(vf64 a, vf64 b) { return MERCER_SIMD_PICK(_mm_min_pd, _mm256_min_pd, _mm512_min_pd)(a, b); }
MERCER_INLINE vf64 max_f64(vf64 a, vf64 b) { return MERCER_SIMD_PICK(_mm_max_pd, _mm256_max_pd, _mm512_max_pd)(a, b); }
MERCER_INLINE vf32 min_f32(vf32 a, vf32 b) { return MERCER_SIMD_PICK(_mm_min_ps, _mm256_min_ps, _mm512_min_ps)(a, b); }
MERCER_INLINE vf32 max_f32(vf32 a, vf32 b) { return MERCER_SIMD_PICK(_mm_max_ps, _mm256_max_ps, _mm512_max_ps)(a, b); }
MERCER_INLINE vf64 sqrt_f64(vf64 a) { return MERCER_SIMD_PICK(_mm_sqrt_pd, _mm256_sqrt_pd, _mm512_sqrt_pd)(a); }
MERCER_INLINE vf32 sqrt_f32(vf32 a) { return MERCER_SIMD_PICK(_mm_sqrt_ps, _mm256_sqrt_ps, _mm512_sqrt_ps)(a); }
#else
MERCER_INLINE vf64 min_f64(vf64 a, vf64 b) { return select_f64(a < b, a, b); }
MERCER_INLINE vf64 max_f64(vf64 a, vf64 b) { return select_f64(a > b, a, b); }
MERCER_INLINE vf32 min_f32(vf32 a, vf32 b) { return select_f32(a < b, a, b); }
MERCER_INLINE vf32 max_f32(vf32 a, vf32 b) { return select_f32(a > b, a, b); }
MERCER_INLINE vf64 sqrt_f64(vf64 a)
{
    for (int i = 0; i < MERCER_VL64; i++) a[i] = __builtin_sqrt(a[i]);
    return a;
}
MERCER_INLINE vf32 sqrt_f32(vf32 a)
{
    for (int i = 0; i < MERCER_VL32; i++) a[i] = __builtin_sqrtf(a[i]);
    return a;
}
#endif

MERCER_INLINE vf64 abs_f64(vf64 a) { return (vf64)((vi64)a & INT64_MAX); }
MERCER_INLINE vf32 abs_f32(vf32 a) { return (vf32)((vi32)a & INT32_MAX); }
/* |a| with the sign of s */
MERCER_INLINE vf64 copysign_f64(vf64 a, vf64 s) { return (vf64)(((vi64)a & INT64_MAX) | ((vi64)s & INT64_MIN)); }
MERCER_INLINE vf32 copysign_f32(vf32 a, vf32 s) { return (vf32)(((vi32)a & INT32_MAX) | ((vi32)s & INT32_MIN)); }

/* a*b + c in one rounding where the machine has it (contraction), in two elsewhere */
MERCER_INLINE vf64 fma_f64(vf64 a, vf64 b, vf64 c) { return a * b + c; }
MERCER_INLINE vf32 fma_f32(vf32 a, vf32 b, vf32 c) { return a * b + c; }

/* to the nearest integer, ties to even */
#if MERCER_VB > 16
MERCER_INLINE vf64 rint_f64(vf64 a) { return MERCER_SIMD_PICK(, _mm256_round_pd, _mm512_roundscale_pd)(a, 8); }
MERCER_INLINE vf32 rint_f32(vf32 a) { return MERCER_SIMD_PICK(, _mm256_round_ps, _mm512_roundscale_ps)(a, 8); }
#else
MERCER_INLINE vf64 rint_f64(vf64 a)
{
    vf64 big = copysign_f64(broadcast_f64(0x1p52), a);
    return select_f64(abs_f64(a) < 0x1p52, (a + big) - big, a);
}
MERCER_INLINE vf32 rint_f32(vf32 a)
{
    vf32 big = copysign_f32(broadcast_f32(0x1p23f), a);
    return select_f32(abs_f32(a) < 0x1p23f, (a + big) - big, a);
}
#endif

/* is any lane of the mask set? */
#if MERCER_VB == 64
MERCER_INLINE int any_64(vi64 mask) { return _mm512_movepi64_mask((__m512i)mask) != 0; }
MERCER_INLINE int any_32(vi32 mask) { return _mm512_movepi32_mask((__m512i)mask) != 0; }
#elif MERCER_VB == 32
MERCER_INLINE int any_64(vi64 mask) { return _mm256_movemask_pd((__m256d)mask) != 0; }
MERCER_INLINE int any_32(vi32 mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
#elif defined(__SSE2__)
MERCER_INLINE int any_64(vi64 mask) { return _mm_movemask_pd((__m128d)mask) != 0; }
MERCER_INLINE int any_32(vi32 mask) { return _mm_movemask_ps((__m128)mask) != 0; }
#else
MERCER_INLINE int any_64(vi64 mask)
{
    int64_t some = 0;
    for (int i = 0; i < MERCER_VL64; i++) some |= mask[i];
    return some != 0;
}
MERCER_INLINE int any_32(vi32 mask) { return any_64((vi64)mask); }
#endif

/* ---- exp ----
 *
 * x = n ln 2 + r, |r| <= ln 2 / 2 (Cody-Waite: n*LN2_HI is exact), e^x = 2^n (1 + r + r^2 q(r)), q minimax.
 * Adding MERCER_ROUND_* leaves the integer n in the low bits of the sum. The clamp keeps n in range: beyond it the
 * result is 0 or inf; the scale goes on in two steps, so that only the last multiplication rounds (denormals).
 */
#define MERCER_ROUND_64 0x1.8p52
#define MERCER_ROUND_32 0x1.8p23f
#define MERCER_LOG2E 0x1.71547652b82fep0
#define MERCER_LN2_HI_64 0x1.62e42feep-1
#define MERCER_LN2_LO_64 0x1.a39ef35793c76p-33
#define MERCER_LN2_HI_32 0x1.62e4p-1f
#define MERCER_LN2_LO_32 0x1.7f7d1cp-20f

/* p * 2^n, n = t - ROUND */
MERCER_INLINE vf64 scale2_f64(vf64 p, vf64 t)
{
#if MERCER_VB == 64
    return _mm512_scalef_pd(p, t - MERCER_ROUND_64);
#else
    vi32 n = (vi32)t, half = n >> 1;
    vf64 s = (vf64)(((vi64)half << 52) + 0x3ff0000000000000), u = (vf64)(((vi64)(n - half) << 52) + 0x3ff0000000000000);
    return p * s * u;
#endif
}
MERCER_INLINE vf32 scale2_f32(vf32 p, vf32 t)
{
#if MERCER_VB == 64
    return _mm512_scalef_ps(p, t - MERCER_ROUND_32);
#else
    vi32 n = (vi32)t - 0x4b400000, half = n >> 1;
    vf32 s = (vf32)((half << 23) + 0x3f800000), u = (vf32)(((n - half) << 23) + 0x3f800000);
    return p * s * u;
#endif
}

/* e^r, |r| <= 0.3472 */
MERCER_INLINE vf64 exp_reduced_f64(vf64 r)
{
    vf64 q = r * 0x1.ad7e9e1236cf3p-26 + 0x1.28ae20c26824fp-22;
    q = q * r + 0x1.71df26f269dd1p-19;
    q = q * r + 0x1.a0199958af641p-16;
    q = q * r + 0x1.a01a0129205b6p-13;
    q = q * r + 0x1.6c16c18468af5p-10;
    q = q * r + 0x1.11111111280e2p-7;
    q = q * r + 0x1.5555555550772p-5;
    q = q * r + 0x1.55555555554f8p-3;
    q = q * r + 0x1.000000000000ap-1;
    q = q * r + 1.0;
    return q * r + 1.0;
}
MERCER_INLINE vf32 exp_reduced_f32(vf32 r)
{
    vf32 q = r * 0x1.6a21c0p-10f + 0x1.123b6ap-7f;
    q = q * r + 0x1.5558fap-5f;
    q = q * r + 0x1.555490p-3f;
    q = q * r + 0x1.fffffcp-2f;
    q = q * r + 1.0f;
    return q * r + 1.0f;
}

MERCER_INLINE vf64 exp_f64(vf64 x)
{
    x = min_f64(broadcast_f64(710.0), max_f64(broadcast_f64(-746.0), x));
    vf64 t = x * MERCER_LOG2E + MERCER_ROUND_64, n = t - MERCER_ROUND_64;
    vf64 r = x - n * MERCER_LN2_HI_64 - n * MERCER_LN2_LO_64;
    return scale2_f64(exp_reduced_f64(r), t);
}
MERCER_INLINE vf32 exp_f32(vf32 x)
{
    x = min_f32(broadcast_f32(89.0f), max_f32(broadcast_f32(-104.0f), x));
    vf32 t = x * (float)MERCER_LOG2E + MERCER_ROUND_32, n = t - MERCER_ROUND_32;
    vf32 r = x - n * MERCER_LN2_HI_32 - n * MERCER_LN2_LO_32;
    return scale2_f32(exp_reduced_f32(r), t);
}
/* e^-x */
MERCER_INLINE vf64 expneg_f64(vf64 x) { return exp_f64(-x); }
MERCER_INLINE vf32 expneg_f32(vf32 x) { return exp_f32(-x); }

#endif

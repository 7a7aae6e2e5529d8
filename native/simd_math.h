/* Elementary functions on vectors of float64 and float32.
 *
 * One source, compiled once per instruction set: the vector width follows the flags of the translation unit
 * (SSE2 or any other architecture: 16 bytes; AVX2 + FMA: 32; AVX-512 F, DQ, VL: 64). Needs GCC or Clang.
 *
 * Largest errors found, in ulp (float32: a ninth of all arguments; float64: 10^7 or more per function, dense where
 * the error peaks; against wider types; a test asserts 2), and ns per element (Zen 4, 2.6 GHz nominal, one thread,
 * in cache):
 *                      float64                                   float32
 *            16 bytes    32 bytes    64 bytes        16 bytes    32 bytes    64 bytes
 *   exp      1.19 3.34   0.92 0.89   1.39 0.42       1.17 1.01   0.89 0.30   1.00 0.14
 *   log      0.85 3.31   0.76 1.05   0.76 0.72       0.84 0.94   0.76 0.36   0.76 0.27
 *   log1p    1.40 4.06   1.34 1.28   1.34 0.81       1.39 1.23   1.33 0.48   1.34 0.32
 *   sin, cos 1.52 3.95   1.51 0.99   1.50 0.82       1.54 1.84   1.55 0.35   1.55 0.30
 *   sinpi    1.62 3.31   1.38 1.02   1.37 0.85       1.64 1.08   1.44 0.35   1.44 0.32
 *   tanh     1.36 6.64   1.39 1.90   1.64 0.99       1.35 2.08   1.37 0.69   1.37 0.38
 *
 * exp(0) = cos(0) = 1 and log(1) = log1p(0) = sin(0) = tanh(0) = 0 exactly; sinpi is exact at multiples of 1/2. NaN
 * gives NaN; overflow, denormals, +-inf and what is outside a domain give what libm gives, but for expneg.
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
#define MERCER_PICK(sse, avx, avx512) avx512
#elif defined(__AVX2__) && defined(__FMA__)
#define MERCER_VB 32
#define MERCER_PICK(sse, avx, avx512) avx
#else
#define MERCER_VB 16
#define MERCER_PICK(sse, avx, avx512) sse
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
MERCER_INLINE vi32 load_i32(const int32_t *p) { vi32 v; memcpy(&v, p, sizeof v); return v; }
MERCER_INLINE void store_f64(double *p, vf64 v) { memcpy(p, &v, sizeof v); }
MERCER_INLINE void store_f32(float *p, vf32 v) { memcpy(p, &v, sizeof v); }
MERCER_INLINE vf64 broadcast_f64(double a) { return (vf64){0} + a; }
MERCER_INLINE vf32 broadcast_f32(float a) { return (vf32){0} + a; }

/* mask ? a : b, lanes of the mask being 0 or -1 (what a comparison of vectors gives) */
#if MERCER_VB == 16 && defined(__SSE2__)
/* GCC 12 takes the expression below apart into scalar branches here: SSE2 compares no 64-bit integers. */
MERCER_INLINE vf64 select_f64(vi64 mask, vf64 a, vf64 b)
{
    return _mm_or_pd(_mm_and_pd((vf64)mask, a), _mm_andnot_pd((vf64)mask, b));
}
MERCER_INLINE vf32 select_f32(vi32 mask, vf32 a, vf32 b)
{
    return _mm_or_ps(_mm_and_ps((vf32)mask, a), _mm_andnot_ps((vf32)mask, b));
}
#else
MERCER_INLINE vf64 select_f64(vi64 mask, vf64 a, vf64 b) { return (vf64)((mask & (vi64)a) | (~mask & (vi64)b)); }
MERCER_INLINE vf32 select_f32(vi32 mask, vf32 a, vf32 b) { return (vf32)((mask & (vi32)a) | (~mask & (vi32)b)); }
#endif

/* a < b ? a : b, so that a NaN in b (the second argument) goes through, and one in a does not */
#if defined(__SSE2__)
MERCER_INLINE vf64 min_f64(vf64 a, vf64 b) { return MERCER_PICK(_mm_min_pd, _mm256_min_pd, _mm512_min_pd)(a, b); }
MERCER_INLINE vf64 max_f64(vf64 a, vf64 b) { return MERCER_PICK(_mm_max_pd, _mm256_max_pd, _mm512_max_pd)(a, b); }
MERCER_INLINE vf32 min_f32(vf32 a, vf32 b) { return MERCER_PICK(_mm_min_ps, _mm256_min_ps, _mm512_min_ps)(a, b); }
MERCER_INLINE vf32 max_f32(vf32 a, vf32 b) { return MERCER_PICK(_mm_max_ps, _mm256_max_ps, _mm512_max_ps)(a, b); }
MERCER_INLINE vf64 sqrt_f64(vf64 a) { return MERCER_PICK(_mm_sqrt_pd, _mm256_sqrt_pd, _mm512_sqrt_pd)(a); }
MERCER_INLINE vf32 sqrt_f32(vf32 a) { return MERCER_PICK(_mm_sqrt_ps, _mm256_sqrt_ps, _mm512_sqrt_ps)(a); }
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

/* a*b + c in one rounding where the machine has it, in two elsewhere. Contraction makes it of a*b + c, too, unless
 * a*b is at hand already. */
#if MERCER_VB > 16
MERCER_INLINE vf64 fma_f64(vf64 a, vf64 b, vf64 c) { return MERCER_PICK(, _mm256_fmadd_pd, _mm512_fmadd_pd)(a, b, c); }
MERCER_INLINE vf32 fma_f32(vf32 a, vf32 b, vf32 c) { return MERCER_PICK(, _mm256_fmadd_ps, _mm512_fmadd_ps)(a, b, c); }
#else
MERCER_INLINE vf64 fma_f64(vf64 a, vf64 b, vf64 c) { return a * b + c; }
MERCER_INLINE vf32 fma_f32(vf32 a, vf32 b, vf32 c) { return a * b + c; }
#endif

/* to the nearest integer, ties to even */
#if MERCER_VB > 16
MERCER_INLINE vf64 rint_f64(vf64 a) { return MERCER_PICK(, _mm256_round_pd, _mm512_roundscale_pd)(a, 8); }
MERCER_INLINE vf32 rint_f32(vf32 a) { return MERCER_PICK(, _mm256_round_ps, _mm512_roundscale_ps)(a, 8); }
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
MERCER_INLINE int any_f64(vi64 mask) { return _mm512_movepi64_mask((__m512i)mask) != 0; }
MERCER_INLINE int any_f32(vi32 mask) { return _mm512_movepi32_mask((__m512i)mask) != 0; }
#elif MERCER_VB == 32
MERCER_INLINE int any_f64(vi64 mask) { return _mm256_movemask_pd((__m256d)mask) != 0; }
MERCER_INLINE int any_f32(vi32 mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
#elif defined(__SSE2__)
MERCER_INLINE int any_f64(vi64 mask) { return _mm_movemask_pd((__m128d)mask) != 0; }
MERCER_INLINE int any_f32(vi32 mask) { return _mm_movemask_ps((__m128)mask) != 0; }
#else
MERCER_INLINE int any_f64(vi64 mask)
{
    int64_t some = 0;
    for (int i = 0; i < MERCER_VL64; i++) some |= mask[i];
    return some != 0;
}
MERCER_INLINE int any_f32(vi32 mask) { return any_f64((vi64)mask); }
#endif

/* The default rounding to nearest leaves the integer nearest to x, modulo 2^32 or so, in the low bits of
 * x + MERCER_ROUND; with a constant 2^k times smaller, the nearest multiple of 2^-k. */
#define MERCER_ROUND_64 0x1.8p52
#define MERCER_ROUND_32 0x1.8p23f

/* ---- exp ----
 *
 * x = n ln 2 + r, |r| <= ln 2 / 2 (n * LN2_HI is exact), e^x = 2^n (1 + r + r^2 q(r)), q minimax. The clamp keeps
 * n in range: at its ends the result is inf or 0. Scaling by 2^n goes in two steps, of which only the last one
 * can round, so that denormal results are right. With AVX-512 n is a multiple of 1/8 (1/16 in float32), its
 * fraction picks a power of two from a table that fits a register, and q has fewer terms: 0.42 ns instead of
 * 0.53 ns (float32: 0.14, 0.17).
 */
#define MERCER_LOG2E 0x1.71547652b82fep0
#define MERCER_LN2_HI_64 0x1.62e42feep-1
#define MERCER_LN2_LO_64 0x1.a39ef35793c76p-33
#define MERCER_LN2_HI_32 0x1.62e4p-1f
#define MERCER_LN2_LO_32 0x1.7f7d1cp-20f

/* e^(sign x), x clamped, sign a constant 1 or -1 */
#if MERCER_VB == 64
MERCER_INLINE vf64 exp_clamped_f64(vf64 x, double sign)
{
    static const double table[8] = {  /* 2^(i/8) */
        1.0, 0x1.172b83c7d517bp0, 0x1.306fe0a31b715p0, 0x1.4bfdad5362a27p0,
        0x1.6a09e667f3bcdp0, 0x1.8ace5422aa0dbp0, 0x1.ae89f995ad3adp0, 0x1.d5818dcfba487p0,
    };
    vf64 t = x * (sign * MERCER_LOG2E) + MERCER_ROUND_64 / 8, n = t - MERCER_ROUND_64 / 8;
    vf64 r = sign * x - n * MERCER_LN2_HI_64 - n * MERCER_LN2_LO_64;
    vf64 power = _mm512_permutexvar_pd((__m512i)t, load_f64(table));
    vf64 q = r * 0x1.a01637797a9dap-13 + 0x1.6c1cc034edba3p-10;
    q = q * r + 0x1.11111125eead1p-7;
    q = q * r + 0x1.5555554802c94p-5;
    q = q * r + 0x1.555555555512bp-3;
    q = q * r + 0.5;
    q = q * r + 1.0;
    return _mm512_scalef_pd(power * (q * r) + power, n);
}
MERCER_INLINE vf32 exp_clamped_f32(vf32 x, float sign)
{
    static const float table[16] = {  /* 2^(i/16) */
        1.0f, 0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f, 0x1.306fe0p0f, 0x1.3dea64p0f,
        0x1.4bfdaep0f, 0x1.5ab07ep0f, 0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f,
        0x1.ae89fap0f, 0x1.c199bep0f, 0x1.d5818ep0f, 0x1.ea4afap0f,
    };
    vf32 t = x * (sign * (float)MERCER_LOG2E) + MERCER_ROUND_32 / 16, n = t - MERCER_ROUND_32 / 16;
    vf32 r = sign * x - n * MERCER_LN2_HI_32 - n * MERCER_LN2_LO_32;
    vf32 power = _mm512_permutexvar_ps((__m512i)t, load_f32(table));
    vf32 q = r * 0x1.55559cp-3f + 0x1.00022ap-1f;
    q = q * r + 1.0f;
    return _mm512_scalef_ps(power * (q * r) + power, n);
}
#else
MERCER_INLINE vf64 exp_clamped_f64(vf64 x, double sign)
{
    vf64 t = x * (sign * MERCER_LOG2E) + MERCER_ROUND_64, n = t - MERCER_ROUND_64;
    vf64 r = sign * x - n * MERCER_LN2_HI_64 - n * MERCER_LN2_LO_64;
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
    q = q * r + 1.0;
    /* 32-bit lanes: AVX2 shifts no 64-bit integers arithmetically; n sits in the lower halves, and what the
     * upper ones hold is shifted out. */
    vi32 exponent = (vi32)t, half = exponent >> 1;
    vi64 first = ((vi64)half << 52) + 0x3ff0000000000000;
    vi64 second = ((vi64)(exponent - half) << 52) + 0x3ff0000000000000;
    return q * (vf64)first * (vf64)second;
}
MERCER_INLINE vf32 exp_clamped_f32(vf32 x, float sign)
{
    vf32 t = x * (sign * (float)MERCER_LOG2E) + MERCER_ROUND_32, n = t - MERCER_ROUND_32;
    vf32 r = sign * x - n * MERCER_LN2_HI_32 - n * MERCER_LN2_LO_32;
    vf32 q = r * 0x1.6a21c0p-10f + 0x1.123b6ap-7f;
    q = q * r + 0x1.5558fap-5f;
    q = q * r + 0x1.555490p-3f;
    q = q * r + 0x1.fffffcp-2f;
    q = q * r + 1.0f;
    q = q * r + 1.0f;
    vi32 exponent = (vi32)t - 0x4b400000, half = exponent >> 1;  /* 0x4b400000 is MERCER_ROUND_32 */
    vi32 first = (half << 23) + 0x3f800000, second = ((exponent - half) << 23) + 0x3f800000;
    return q * (vf32)first * (vf32)second;
}
#endif

MERCER_INLINE vf64 exp_f64(vf64 x)
{
    return exp_clamped_f64(min_f64(broadcast_f64(710.0), max_f64(broadcast_f64(-746.0), x)), 1.0);
}
MERCER_INLINE vf32 exp_f32(vf32 x)
{
    return exp_clamped_f32(min_f32(broadcast_f32(89.0f), max_f32(broadcast_f32(-104.0f), x)), 1.0f);
}
/* e^-x for kernels, 0 below the smallest normal number: what meets denormals takes Intel's processors ten times as long
 * (a matrix of 4000 float32 rows and its products, 40% of them 0, 15% denormal: 187 and 324 ms, now 35 and 37). */
MERCER_INLINE vf64 expneg_f64(vf64 x)
{
    const vf64 last = broadcast_f64(0x1.6232bdd7abcd2p9); /* 708.3964… */
    const vf64 value = exp_clamped_f64(min_f64(last, max_f64(broadcast_f64(-710.0), x)), -1.0);
    return (vf64)(~(x > last) & (vi64)value);
}
MERCER_INLINE vf32 expneg_f32(vf32 x)
{
    const vf32 last = broadcast_f32(0x1.5d589ep6f); /* 87.33654… */
    const vf32 value = exp_clamped_f32(min_f32(last, max_f32(broadcast_f32(-89.0f), x)), -1.0f);
    return (vf32)(~(x > last) & (vi32)value);
}

/* What is rare and awkward for vectors goes lane by lane to libm. */
#define MERCER_RARELY(condition) __builtin_expect(condition, 0)
#define MERCER_RARE(name, expression_f64, expression_f32)                                    \
    static __attribute__((noinline, unused)) vf64 name##_rare_f64(vi64 mask, vf64 x, vf64 y) \
    {                                                                                        \
        for (int i = 0; i < MERCER_VL64; i++)                                                \
            if (mask[i]) y[i] = expression_f64;                                              \
        return y;                                                                            \
    }                                                                                        \
    static __attribute__((noinline, unused)) vf32 name##_rare_f32(vi32 mask, vf32 x, vf32 y) \
    {                                                                                        \
        for (int i = 0; i < MERCER_VL32; i++)                                                \
            if (mask[i]) y[i] = expression_f32;                                              \
        return y;                                                                            \
    }

/* ---- log, log1p ----
 *
 * u = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); s = f / (2 + f),
 * log(1 + f) = 2 artanh s = f - f^2/2 + s (f^2/2 + R), R = s^2 times a minimax polynomial in s^2. k LN2_HI is exact.
 * What is not a positive normal number (log), or not above -1 or close to overflow (log1p), goes to libm.
 */
MERCER_RARE(log, log(x[i]), logf(x[i]))
MERCER_RARE(log1p, log1p(x[i]), log1pf(x[i]))

/* f of a positive normal u, and k + 1024 (float32: 128) */
MERCER_INLINE vf64 log_split_f64(vf64 u, vu64 *biased)
{
    const uint64_t half = 0x3fe6a09e667f3bcd;  /* the bits of sqrt(1/2) */
    vu64 bits = (vu64)u + (((uint64_t)1024 << 52) - half);
    *biased = bits >> 52;
    return (vf64)((bits & 0x000fffffffffffff) + half) - 1.0;
}
MERCER_INLINE vf32 log_split_f32(vf32 u, vu32 *biased)
{
    const uint32_t half = 0x3f3504f3;
    vu32 bits = (vu32)u + (((uint32_t)128 << 23) - half);
    *biased = bits >> 23;
    return (vf32)((bits & 0x007fffff) + half) - 1.0f;
}

/* k log 2 + log(1 + f) */
MERCER_INLINE vf64 log_join_f64(vf64 f, vu64 biased)
{
    vf64 k = (vf64)(biased | 0x4330000000000000) - (0x1p52 + 1024);  /* an integer to float64 in its bits */
    vf64 s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
    vf64 R = z * 0x1.2f063722a6150p-3 + 0x1.39a1a6acdeaa4p-3;
    R = R * z + 0x1.74663fa55dbb6p-3;
    R = R * z + 0x1.c71c5205f6b82p-3;
    R = R * z + 0x1.24924941f511dp-2;
    R = R * z + 0x1.999999997fd76p-2;
    R = R * z + 0x1.5555555555592p-1;
    return k * MERCER_LN2_HI_64 - ((h - (s * (h + R * z) + k * MERCER_LN2_LO_64)) - f);
}
MERCER_INLINE vf32 log_join_f32(vf32 f, vu32 biased)
{
    vf32 k = (vf32)(biased | 0x4b000000) - (0x1p23f + 128);
    vf32 s = f / (2.0f + f), z = s * s, h = 0.5f * f * f;
    vf32 R = z * 0x1.31e34cp-2f + 0x1.995eb6p-2f;
    R = R * z + 0x1.55557ap-1f;
    return k * MERCER_LN2_HI_32 - ((h - (s * (h + R * z) + k * MERCER_LN2_LO_32)) - f);
}

MERCER_INLINE vf64 log_f64(vf64 x)
{
    vu64 k;
    vf64 f = log_split_f64(x, &k), y = log_join_f64(f, k);
    vi64 rare = ~((x >= 0x1p-1022) & (x <= 0x1.fffffffffffffp1023));
    return MERCER_RARELY(any_f64(rare)) ? log_rare_f64(rare, x, y) : y;
}
MERCER_INLINE vf32 log_f32(vf32 x)
{
    vu32 k;
    vf32 f = log_split_f32(x, &k), y = log_join_f32(f, k);
    vi32 rare = ~((x >= 0x1p-126f) & (x <= 0x1.fffffep127f));
    return MERCER_RARELY(any_f32(rare)) ? log_rare_f32(rare, x, y) : y;
}

/* 1 + x = u + c exactly up to 2^53, and c matters no more beyond; f takes 2^-k c in: for k = 0 it becomes x. */
MERCER_INLINE vf64 log1p_f64(vf64 x)
{
    vu64 k;
    vf64 u = 1.0 + x, c = x - (u - 1.0), f = log_split_f64(u, &k);
    vf64 y = log_join_f64(f + c * (vf64)((2047 - k) << 52), k);
    vi64 rare = ~((x > -1.0) & (x <= 0x1p1000));
    return MERCER_RARELY(any_f64(rare)) ? log1p_rare_f64(rare, x, y) : y;
}
MERCER_INLINE vf32 log1p_f32(vf32 x)
{
    vu32 k;
    vf32 u = 1.0f + x, c = x - (u - 1.0f), f = log_split_f32(u, &k);
    vf32 y = log_join_f32(f + c * (vf32)((255 - k) << 23), k);
    vi32 rare = ~((x > -1.0f) & (x <= 0x1p120f));
    return MERCER_RARELY(any_f32(rare)) ? log1p_rare_f32(rare, x, y) : y;
}

/* ---- sin, cos, sinpi ----
 *
 * x = n pi/2 + r, |r| <= pi/4, pi/2 in parts (Cody-Waite). With FMA x - n PIO2_A is exact, since it is a multiple of
 * 2^-53 (float32: 2^-24) below 1, whatever n. Without, n must leave the parts' products exact: parts of 33 bits, n
 * below 2^17; float32 is reduced in float64. Beyond MERCER_SIN_MAX, libm. sin r and cos r are minimax; the parity of
 * n chooses, its second bit gives the sign.
 */
#define MERCER_2_PI 0x1.45f306dc9c883p-1
#define MERCER_SIN_MAX_32 1e5f
#if MERCER_VB > 16
#define MERCER_SIN_MAX_64 0x1p30
#else
#define MERCER_SIN_MAX_64 1e5
#endif
MERCER_RARE(sin, sin(x[i]), sinf(x[i]))
MERCER_RARE(cos, cos(x[i]), cosf(x[i]))
MERCER_RARE(sinpi, fmod(x[i], 2.0), fmodf(x[i], 2.0f))  /* not the value, but an argument within reach */

/* r; in *quadrant an integer equal to n modulo 4 */
MERCER_INLINE vf64 reduce_f64(vf64 x, vi64 *quadrant)
{
    vf64 t = x * MERCER_2_PI + MERCER_ROUND_64, n = t - MERCER_ROUND_64;
    *quadrant = (vi64)t;
#if MERCER_VB > 16
    return x - n * 0x1.921fb54442d18p0 - n * 0x1.1a62633145c07p-54 - n * -0x1.f1976b7ed8fbcp-110;
#else
    vf64 a = x - n * 0x1.921fb544p0, w = n * 0x1.0b4611a6p-34, b = a - w, lost = (a - b) - w;
    return b + (lost - n * 0x1.3198a2ep-69) - n * 0x1.b839a252049c1p-104;
#endif
}
MERCER_INLINE vf32 reduce_f32(vf32 x, vi32 *quadrant)
{
#if MERCER_VB > 16
    vf32 t = x * (float)MERCER_2_PI + MERCER_ROUND_32, n = t - MERCER_ROUND_32;
    *quadrant = (vi32)t;
    return x - n * 0x1.921fb6p0f - n * -0x1.777a5cp-25f - n * -0x1.ee59dap-50f;
#else
    vf64 v[2] = {{x[0], x[1]}, {x[2], x[3]}}, t[2];
    for (int i = 0; i < 2; i++) {
        t[i] = v[i] * MERCER_2_PI + MERCER_ROUND_64;
        vf64 n = t[i] - MERCER_ROUND_64;
        v[i] = v[i] - n * 0x1.921fb544p0 - n * 0x1.0b4611a626331p-34;
    }
    const vi64 low = (vi64)t[0], high = (vi64)t[1];
    *quadrant = (vi32){(int32_t)low[0], (int32_t)low[1], (int32_t)high[0], (int32_t)high[1]};
    return (vf32){(float)v[0][0], (float)v[0][1], (float)v[1][0], (float)v[1][1]};
#endif
}

/* sin(r + rest + quadrant pi/2), |r| <= 0.789, rest below an ulp of r */
MERCER_INLINE vf64 sin_reduced_f64(vf64 r, vf64 rest, vi64 quadrant)
{
    vf64 z = r * r;
    vf64 s = z * 0x1.5d8ee72c51098p-33 + -0x1.ae5e577f7d134p-26;
    vf64 c = z * -0x1.8fa3959858f67p-37 + 0x1.1ee9d5c93cdbcp-29;
    s = s * z + 0x1.71de356406463p-19;
    c = c * z + -0x1.27e4f7e802af0p-22;
    s = s * z + -0x1.a01a019bf9b30p-13;
    c = c * z + 0x1.a01a019c8096cp-16;
    s = s * z + 0x1.111111110f7b0p-7;
    c = c * z + -0x1.6c16c16c14f6cp-10;
    s = s * z + -0x1.5555555555548p-3;
    c = c * z + 0x1.555555555554bp-5;
    c = c * z - 0.5;
    vf64 y = select_f64(-(quadrant & 1), c * z + 1.0, s * (z * r) + rest + r);
    return (vf64)((vi64)y ^ ((quadrant & 2) << 62));
}
MERCER_INLINE vf32 sin_reduced_f32(vf32 r, vf32 rest, vi32 quadrant)
{
    vf32 z = r * r;
    vf32 s = z * -0x1.992ed8p-13f + 0x1.1106fep-7f;
    vf32 c = z * 0x1.99d862p-16f + -0x1.6c0bf2p-10f;
    s = s * z + -0x1.555544p-3f;
    c = c * z + 0x1.55554ap-5f;
    c = c * z - 0.5f;
    vf32 y = select_f32(-(quadrant & 1), c * z + 1.0f, s * (z * r) + rest + r);
    return (vf32)((vi32)y ^ ((quadrant & 2) << 30));
}

MERCER_INLINE vf64 sin_f64(vf64 x)
{
    vi64 n, rare = ~(abs_f64(x) <= MERCER_SIN_MAX_64);
    vf64 r = reduce_f64(x, &n), y = sin_reduced_f64(r, -(vf64){0}, n);
    return MERCER_RARELY(any_f64(rare)) ? sin_rare_f64(rare, x, y) : y;
}
MERCER_INLINE vf32 sin_f32(vf32 x)
{
    vi32 n, rare = ~(abs_f32(x) <= MERCER_SIN_MAX_32);
    vf32 r = reduce_f32(x, &n), y = sin_reduced_f32(r, -(vf32){0}, n);
    return MERCER_RARELY(any_f32(rare)) ? sin_rare_f32(rare, x, y) : y;
}
MERCER_INLINE vf64 cos_f64(vf64 x)
{
    vi64 n, rare = ~(abs_f64(x) <= MERCER_SIN_MAX_64);
    vf64 r = reduce_f64(x, &n), y = sin_reduced_f64(r, -(vf64){0}, n + 1);
    return MERCER_RARELY(any_f64(rare)) ? cos_rare_f64(rare, x, y) : y;
}
MERCER_INLINE vf32 cos_f32(vf32 x)
{
    vi32 n, rare = ~(abs_f32(x) <= MERCER_SIN_MAX_32);
    vf32 r = reduce_f32(x, &n), y = sin_reduced_f32(r, -(vf32){0}, n + 1);
    return MERCER_RARELY(any_f32(rare)) ? cos_rare_f32(rare, x, y) : y;
}

/* sin(pi x): x - n/2 is exact, and so are the zeros at the integers and the ones between them. */
MERCER_INLINE vf64 sinpi_f64(vf64 x)
{
    vi64 rare = ~(abs_f64(x) <= 0x1p50);
    if (MERCER_RARELY(any_f64(rare)))
        x = sinpi_rare_f64(rare, x, x);
    vf64 t = x * 2.0 + MERCER_ROUND_64, n = t - MERCER_ROUND_64;
    vf64 pi = broadcast_f64(0x1.921fb54442d18p1), a = x - n * 0.5, r = a * pi;
    return sin_reduced_f64(r, a * 0x1.1a62633145c07p-53 + fma_f64(a, pi, -r), (vi64)t);
}
MERCER_INLINE vf32 sinpi_f32(vf32 x)
{
    vi32 rare = ~(abs_f32(x) <= 0x1p21f);
    if (MERCER_RARELY(any_f32(rare)))
        x = sinpi_rare_f32(rare, x, x);
    vf32 t = x * 2.0f + MERCER_ROUND_32, n = t - MERCER_ROUND_32;
    vf32 pi = broadcast_f32(0x1.921fb6p1f), a = x - n * 0.5f, r = a * pi;
    return sin_reduced_f32(r, a * -0x1.777a5cp-24f + fma_f32(a, pi, -r), (vi32)t);
}

/* ---- tanh ----
 *
 * |x| < 0.625: x + x z P(z)/Q(z), z = x^2, minimax; else 1 - 2/(e^(2|x|) + 1), where tanh > 1/2 keeps the
 * subtraction harmless. One division serves both.
 */
MERCER_INLINE vf64 tanh_f64(vf64 x)
{
    vf64 a = abs_f64(x), z = a * a, e = exp_f64(a + a);
    vf64 p = z * -0x1.a172a3e2c3bbep-13 + -0x1.4fce81130a5aap-6;
    vf64 q = z * 0x1.b0daffbfe057ap-13 + 0x1.7d8b5768a3ba6p-6;
    p = p * z + -0x1.5555555555553p-2;
    q = q * z + 0x1.d89051cd2b752p-2;
    q = q * z + 1.0;
    vi64 small = a < 0.625;
    vf64 ratio = select_f64(small, a * z * p, broadcast_f64(-2.0)) / select_f64(small, q, e + 1.0);
    return copysign_f64(select_f64(small, a, broadcast_f64(1.0)) + ratio, x);
}
MERCER_INLINE vf32 tanh_f32(vf32 x)
{
    vf32 a = abs_f32(x), z = a * a, e = exp_f32(a + a);
    vf32 p = z * -0x1.938cc0p-10f + -0x1.555542p-2f;
    vf32 q = z * 0x1.9e50acp-2f + 1.0f;
    vi32 small = a < 0.625f;
    vf32 ratio = select_f32(small, a * z * p, broadcast_f32(-2.0f)) / select_f32(small, q, e + 1.0f);
    return copysign_f32(select_f32(small, a, broadcast_f32(1.0f)) + ratio, x);
}

#endif

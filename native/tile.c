/* The tile engine at one instruction set: meson builds this file once per set, with MERCER_ISA naming it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "denormals.h"
#include "mercer.h"
#include "simd_math.h"
#include "simd_apply.inc"
#include "checksum.inc"

#define MERCER_STRING_(x) #x
#define MERCER_STRING(x) MERCER_STRING_(x)

/* A register block is MR rows by NV vectors: 24 accumulators of 32 registers with AVX-512, 12 of 16 else.
 * KC features of MR rows and one panel stay in the caches while a block is summed.
 *
 * Why a product of our own and not BLAS on tiles: one thread of a Zen 4 core, n = 4000, symmetric, ms at d = 16, 128,
 * 784: prototypes of this 29, 65, 292 and of OpenBLAS called tile by tile 30, 70, 325 (float64; float32 8, 26, 131 and
 * 13, 36, 165). This code's product alone runs at 40, 54 and 53 GF/s in float64, NumPy's product of two large matrices
 * at 54. KC from 128 to 784 changes the time by less than its noise. And no BLAS thread has to be kept out of ours. */
#if MERCER_VB == 64
#define MR 8
#else
#define MR 4
#endif
#define NV 3
#define KC 256

#define MERCER_TABLE(of_adjoint_bytes, of_adjoint_rows, of_add, of_dots)   \
    const MercerTable MERCER_SUFFIX(N(table)) = {                          \
        .isa = MERCER_STRING(MERCER_ISA),                                  \
        .element = sizeof(T),                                              \
        .panel_width = NR,                                                 \
        .tile = TILE,                                                      \
        .scratch_bytes = N(scratch_bytes),                                 \
        .pack_rows = N(pack_rows),                                         \
        .pack_panel = N(pack_panel),                                       \
        .panel_norms = N(panel_norms),                                     \
        .sparse_norms = N(sparse_norms),                                   \
        .tile_values = N(tile_values),                                     \
        .narrow = N(narrow_tile),                                          \
        .store = N(store_tile),                                            \
        .store_transposed = N(store_transposed),                           \
        .multiply = N(multiply),                                           \
        .multiply_transposed = N(multiply_transposed),                     \
        .smo_step = SMO_STEP,                                              \
        .smo_add = N(smo_add),                                             \
        .smo_update = N(smo_update),                                       \
        .smo_partner = N(smo_partner),                                     \
        .smo_along = smo_along,                                            \
        .near_scan = N(near_scan),                                         \
        .near_pair = N(near_pair),                                         \
        .near_integers = near_integers,                                    \
        .near_product = near_product,                                      \
        .symmetric_tile = N(symmetric_tile),                               \
        .coarse_add = of_add,                                              \
        .coarse_dots = of_dots,                                            \
        .pair_terms = N(pair_terms),                                       \
        .pair_rows = PAIR_VECTORS * VL,                                    \
        .pairs_bytes = N(pairs_bytes),                                     \
        .pairs = N(pairs),                                                 \
        .simd = N(simd),                                                   \
        .checksum = checksum,                                              \
        .adjoint_bytes = of_adjoint_bytes,                                 \
        .adjoint_rows = of_adjoint_rows,                                   \
    }

/* As many floats as a vector has doubles; of doubles all. */
typedef float vf32_half __attribute__((vector_size(MERCER_VB / 2)));
typedef int32_t vi32_half __attribute__((vector_size(MERCER_VB / 2)));

/* The compiler's own conversion of half a vector takes it apart and joins it again. */
#if MERCER_VB > 16
MERCER_INLINE vf64 widen_f32(vf32_half a) { return MERCER_PICK(, _mm256_cvtps_pd, _mm512_cvtps_pd)(a); }
#else
MERCER_INLINE vf64 widen_f32(vf32_half a) { return __builtin_convertvector(a, vf64); }
#endif
MERCER_INLINE vf64 widen_f64(vf64 a) { return a; }
MERCER_INLINE vf32_half half_select_f32(vi32_half mask, vf32_half a, vf32_half b)
{
    return (vf32_half)((mask & (vi32_half)a) | (~mask & (vi32_half)b));
}
#if MERCER_VB > 16
MERCER_INLINE vf32_half half_max_f32(vf32_half a, vf32_half b) { return MERCER_PICK(, _mm_max_ps, _mm256_max_ps)(a, b); }
MERCER_INLINE vf32_half half_min_f32(vf32_half a, vf32_half b) { return MERCER_PICK(, _mm_min_ps, _mm256_min_ps)(a, b); }
#else
MERCER_INLINE vf32_half half_max_f32(vf32_half a, vf32_half b) { return half_select_f32(a > b, a, b); }
MERCER_INLINE vf32_half half_min_f32(vf32_half a, vf32_half b) { return half_select_f32(a < b, a, b); }
#endif
MERCER_INLINE vf64 half_select_f64(vi64 mask, vf64 a, vf64 b) { return select_f64(mask, a, b); }
MERCER_INLINE vf64 half_max_f64(vf64 a, vf64 b) { return max_f64(a, b); }
MERCER_INLINE vf64 half_min_f64(vf64 a, vf64 b) { return min_f64(a, b); }

#include "nearest_integers.inc"
#include "smo_along.inc"

#define T double
#define V vf64
#define HALF vf64
#define VI vi64
#define VL MERCER_VL64
#define TILE 96
#define N(name) name##_f64
#include "tile.inc"
#include "smo.inc"
#include "nearest.inc"
#include "symmetric.inc"
#include "pairs.inc"
#include "adjoint.inc"
MERCER_TABLE(adjoint_bytes, adjoint_rows, NULL, NULL);
#undef T
#undef V
#undef HALF
#undef VI
#undef VL
#undef TILE
#undef N

#define T float
#define V vf32
#define HALF vf32_half
#define VI vi32
#define VL MERCER_VL32
#define TILE 192
#define N(name) name##_f32
#include "tile.inc"
#include "smo.inc"
#include "nearest.inc"
#include "symmetric.inc"
#include "pairs.inc"
#include "coarse.inc"
MERCER_TABLE(NULL, NULL, coarse_add, coarse_dots); /* derivatives are taken in float64 */

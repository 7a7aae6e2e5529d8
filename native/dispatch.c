/* The one place that knows which instruction sets exist: binds a table when first asked. */
#include <stdlib.h>
#include <string.h>

#include "mercer.h"
#include "sweep.h"

extern const MercerTable table_f64_baseline, table_f32_baseline;
extern const MercerSweep sweep_f64_baseline, sweep_f32_baseline;
#ifdef MERCER_HAVE_V3
extern const MercerTable table_f64_v3, table_f32_v3;
extern const MercerSweep sweep_f64_v3, sweep_f32_v3;
#endif
#ifdef MERCER_HAVE_V4
extern const MercerTable table_f64_v4, table_f32_v4;
extern const MercerSweep sweep_f64_v4, sweep_f32_v4;
#endif

/* GCC's and Clang's cpu_supports asks the operating system's saved state (XCR0) as well. */
int mercer_isa_available(const char *name)
{
    if (strcmp(name, "baseline") == 0)
        return 1;
#ifdef MERCER_HAVE_V3
    if (strcmp(name, "v3") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#endif
#ifdef MERCER_HAVE_V4
    if (strcmp(name, "v4") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
#endif
    return 0;
}

static const char *chosen(void)
{
    static const char *isa = NULL; /* Written once, under the GIL: the module asks at import. */
    if (isa)
        return isa;
    const char *forced = getenv("MERCER_ISA"), *best = "baseline";
    static const char *const names[] = {"baseline", "v3", "v4"};
    for (int i = 0; i < 3; i++) {
        if (!mercer_isa_available(names[i]))
            continue;
        best = names[i];
        if (forced && strcmp(forced, best) == 0)
            break;
    }
    return isa = best;
}

const char *mercer_isa(void)
{
    return chosen();
}

const MercerTable *mercer_table(int is_float32)
{
    const char *isa = chosen();
#ifdef MERCER_HAVE_V4
    if (strcmp(isa, "v4") == 0)
        return is_float32 ? &table_f32_v4 : &table_f64_v4;
#endif
#ifdef MERCER_HAVE_V3
    if (strcmp(isa, "v3") == 0)
        return is_float32 ? &table_f32_v3 : &table_f64_v3;
#endif
    (void)isa;
    return is_float32 ? &table_f32_baseline : &table_f64_baseline;
}

const MercerSweep *mercer_sweep(int is_float32)
{
    const char *isa = chosen();
#ifdef MERCER_HAVE_V4
    if (strcmp(isa, "v4") == 0)
        return is_float32 ? &sweep_f32_v4 : &sweep_f64_v4;
#endif
#ifdef MERCER_HAVE_V3
    if (strcmp(isa, "v3") == 0)
        return is_float32 ? &sweep_f32_v3 : &sweep_f64_v3;
#endif
    (void)isa;
    return is_float32 ? &sweep_f32_baseline : &sweep_f64_baseline;
}

uint64_t mercer_checksum(ptrdiff_t n_bytes, const char *bytes)
{
    return mercer_table(0)->checksum(n_bytes, bytes);
}

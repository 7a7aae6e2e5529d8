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

/* Return from a function of is_float32 the chosen set's one of what there is for each set. */
#define RETURN_OF_SET(name, set)     \
    if (strcmp(chosen(), #set) == 0) \
        return is_float32 ? &name##_f32_##set : &name##_f64_##set;
#ifdef MERCER_HAVE_V4
#define RETURN_OF_V4(name) RETURN_OF_SET(name, v4)
#else
#define RETURN_OF_V4(name)
#endif
#ifdef MERCER_HAVE_V3
#define RETURN_OF_V3(name) RETURN_OF_SET(name, v3)
#else
#define RETURN_OF_V3(name)
#endif
#define RETURN_CHOSEN(name) \
    RETURN_OF_V4(name)      \
    RETURN_OF_V3(name)      \
    return is_float32 ? &name##_f32_baseline : &name##_f64_baseline;

const MercerTable *mercer_table(int is_float32) { RETURN_CHOSEN(table) }

const MercerSweep *mercer_sweep(int is_float32) { RETURN_CHOSEN(sweep) }

uint64_t mercer_checksum(ptrdiff_t n_bytes, const char *bytes)
{
    return mercer_table(0)->checksum(n_bytes, bytes);
}

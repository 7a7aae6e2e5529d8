/* The loops of sweep.h at one instruction set: meson builds this file once per set, with MERCER_ISA naming it. */
#include "sweep.h"

#include <math.h>
#include <string.h>

#include "mercer.h"

/* Entries whose slopes are computed together. */
enum { BLOCK = 128 };

static inline ptrdiff_t block_end(ptrdiff_t begin, ptrdiff_t n)
{
    return n - begin < BLOCK ? n : begin + BLOCK;
}

#define T float
#define N(name) name##_f32
#include "sweep_slopes.inc"
#undef T
#undef N

#define T double
#define N(name) name##_f64
#include "sweep_slopes.inc"
#undef T
#undef N

/* The share of an extremum: ties are split, and what is not a number is what was returned. */
#define MORE(WINS, SELF) (WINS || SELF != SELF ? 1.0 : x == y ? 0.5 : 0.0)

/* x op y, the slopes in x and in y, and the second slopes in x twice, in x and y, in y twice. */
#define BINARY(X)                                                                                           \
    X(ADD, x + y, 1.0, 1.0, 0.0, 0.0, 0.0)                                                                  \
    X(SUBTRACT, x - y, 1.0, -1.0, 0.0, 0.0, 0.0)                                                            \
    X(MULTIPLY, x *y, y, x, 0.0, 1.0, 0.0)                                                                  \
    X(DIVIDE, x / y, 1.0 / y, -r / y, 0.0, -1.0 / (y * y), 2.0 * r / (y * y))                               \
    X(MAXIMUM, x >= y || x != x ? x : y, MORE(x > y, x), MORE(y > x, y), 0.0, 0.0, 0.0)                     \
    X(MINIMUM, x <= y || x != x ? x : y, MORE(x < y, x), MORE(y < x, y), 0.0, 0.0, 0.0)                     \
    X(SCALE, times_f64(x, y), y, x, 0.0, 1.0, 0.0)

static void rows_product_f64(ptrdiff_t lead, ptrdiff_t n, const double *restrict t, const double *restrict slope,
                             double *restrict out)
{
    for (ptrdiff_t k = 0; k < lead; k++)
        for (ptrdiff_t i = 0; i < n; i++)
            out[k * n + i] = times_f64(t[k * n + i], slope[i]);
}

/* 0 * t is 0 for finite t and NaN otherwise, so its sum tells whether all were finite. */
static int binary_f64(int op, ptrdiff_t rows, ptrdiff_t n, const double *x_, ptrdiff_t x_row, ptrdiff_t x_step,
                      const double *y_, ptrdiff_t y_row, ptrdiff_t y_step, double *restrict out)
{
    double bad = 0.0;
    switch (op) {
#define LOOP(VALUE, XI, YI)                                                                                 \
    for (ptrdiff_t k = 0; k < rows; k++)                                                                    \
        for (ptrdiff_t i = 0; i < n; i++) {                                                                 \
            const double x = x_[k * x_row + XI], y = y_[k * y_row + YI];                                    \
            out[k * n + i] = VALUE;                                                                         \
        }
#define CASE(NAME, VALUE, IN_X, IN_Y, XX, XY, YY)                                                           \
    case MERCER_##NAME:                                                                                     \
        if (x_step && y_step)                                                                               \
            LOOP(VALUE, i, i)                                                                               \
        else if (x_step)                                                                                    \
            LOOP(VALUE, i, 0)                                                                               \
        else                                                                                                \
            LOOP(VALUE, 0, i *y_step)                                                                       \
        break;
        BINARY(CASE)
#undef CASE
#undef LOOP
    }
#pragma omp simd reduction(+ : bad)
    for (ptrdiff_t i = 0; i < rows * n; i++)
        bad += 0.0 * out[i];
    return bad == 0.0;
}

static void slope_product2_f64(int op, int which, ptrdiff_t lead, ptrdiff_t n, const double *restrict t,
                               int t_step, const double *restrict x_, int x_step, const double *restrict y_,
                               int y_step, const double *restrict r_, double *restrict out)
{
    switch (op) {
/* Of entries next to each other the compiler makes vectors. */
#define ROW(SLOPE, T, X, Y)                                                                                 \
    for (ptrdiff_t i = 0; i < n; i++) {                                                                     \
        const double x = x_[X], y = y_[Y], r = r_[i], a = t[T], slope = SLOPE;                              \
        (void)x, (void)y, (void)r;                                                                          \
        out[i] = times_f64(a, slope);                                                                       \
    }
#define ROWS(SLOPE)                                                                                         \
    for (ptrdiff_t i = 0; i < n; i++) {                                                                     \
        const double x = x_[i * x_step], y = y_[i * y_step], r = r_[i], slope = SLOPE;                      \
        (void)x, (void)y, (void)r;                                                                          \
        for (ptrdiff_t k = 0; k < lead; k++) {                                                              \
            const double a = t_step ? t[k * n + i] : t[k];                                                  \
            out[k * n + i] = times_f64(a, slope);                                                           \
        }                                                                                                   \
    }
#define LOOP(SLOPE)                                                                                         \
    if (lead > 1)                                                                                           \
        ROWS(SLOPE)                                                                                         \
    else if (t_step && x_step && y_step)                                                                    \
        ROW(SLOPE, i, i, i)                                                                                 \
    else                                                                                                    \
        ROW(SLOPE, i * t_step, i * x_step, i * y_step)
#define CASE(NAME, VALUE, IN_X, IN_Y, XX, XY, YY)                                                           \
    case MERCER_##NAME:                                                                                     \
        if (which) {                                                                                        \
            LOOP(IN_Y)                                                                                      \
        } else {                                                                                            \
            LOOP(IN_X)                                                                                      \
        }                                                                                                   \
        break;
        BINARY(CASE)
#undef CASE
#undef LOOP
#undef ROWS
#undef ROW
    }
}

static void push2_f64(int op, ptrdiff_t rows, ptrdiff_t n, const double *s, ptrdiff_t s_step, const double *t,
                      ptrdiff_t t_step, const double *x_, ptrdiff_t x_row, ptrdiff_t x_step, const double *y_,
                      ptrdiff_t y_row, ptrdiff_t y_step, const double *r_, double *restrict out)
{
    static const double zero = 0.0;
    const ptrdiff_t s_row = s ? x_row : 0, t_row = t ? y_row : 0;
    const int both = s && t, x_moves = both && s_step && x_step, y_moves = both && t_step && y_step;
    s_step = s ? s_step : 0, t_step = t ? t_step : 0;
    s = s ? s : &zero, t = t ? t : &zero;
    switch (op) {
#define LOOP(IN_X, IN_Y, S, T, X, Y)                                                                        \
    for (ptrdiff_t k = 0; k < rows; k++)                                                                    \
        for (ptrdiff_t i = 0; i < n; i++) {                                                                 \
            const double x = x_[k * x_row + X], y = y_[k * y_row + Y], r = r_[k * n + i];                   \
            const double a = s[k * s_row + S], b = t[k * t_row + T];                                        \
            (void)x, (void)y, (void)r;                                                                      \
            out[k * n + i] = times_f64(a, IN_X) + times_f64(b, IN_Y);                                       \
        }
#define CASE(NAME, VALUE, IN_X, IN_Y, XX, XY, YY)                                                           \
    case MERCER_##NAME:                                                                                     \
        if (x_moves && y_moves)                                                                             \
            LOOP(IN_X, IN_Y, i, i, i, i)                                                                    \
        else if (y_moves && !x_step)                                                                        \
            LOOP(IN_X, IN_Y, 0, i, 0, i)                                                                    \
        else if (x_moves && !y_step)                                                                        \
            LOOP(IN_X, IN_Y, i, 0, i, 0)                                                                    \
        else                                                                                                \
            LOOP(IN_X, IN_Y, i *s_step, i *t_step, i *x_step, i *y_step)                                    \
        break;
        BINARY(CASE)
#undef CASE
#undef LOOP
    }
}

/* An operand's entries in a block: its own, or `room` full of one number (0 for NULL). */
static const double *entries(const double *x, int step, ptrdiff_t n, double *room)
{
    if (x && step)
        return x;
    for (ptrdiff_t i = 0; i < n; i++)
        room[i] = x ? *x : 0.0;
    return room;
}

static void slope_push2_block(int op, int which, ptrdiff_t n, const double *restrict s, const double *restrict t,
                              const double *restrict x_, const double *restrict y_, const double *restrict r_,
                              const double *restrict u, const double *restrict v, double *restrict out)
{
    switch (op) {
#define LOOP(SLOPE, IN_X, IN_Y)                                                                             \
    for (ptrdiff_t i = 0; i < n; i++) {                                                                     \
        const double x = x_[i], y = y_[i], r = r_[i], slope = SLOPE, a = s[i], b = t[i];                    \
        (void)x, (void)y, (void)r;                                                                          \
        const double first = times_f64(a, slope);                                                           \
        out[i] = first + (times_f64(times_f64(b, IN_X), u[i]) + times_f64(times_f64(b, IN_Y), v[i]));       \
    }
#define CASE(NAME, VALUE, IN_X, IN_Y, XX, XY, YY)                                                           \
    case MERCER_##NAME:                                                                                     \
        if (which)                                                                                          \
            LOOP(IN_Y, XY, YY)                                                                              \
        else                                                                                                \
            LOOP(IN_X, XX, XY)                                                                              \
        break;
        BINARY(CASE)
#undef CASE
#undef LOOP
    }
}

static void slope_push2_f64(int op, int which, ptrdiff_t n, const double *s, int s_step, const double *t, int t_step,
                            const double *x, int x_step, const double *y, int y_step, const double *r,
                            const double *u, int u_step, const double *v, int v_step, double *out)
{
    double rooms[6][BLOCK];
    const ptrdiff_t most = block_end(0, n);
    s = entries(s, s_step, most, rooms[0]), t = entries(t, t_step, most, rooms[1]);
    x = entries(x, x_step, most, rooms[2]), y = entries(y, y_step, most, rooms[3]);
    u = entries(u, u_step, most, rooms[4]), v = entries(v, v_step, most, rooms[5]);
    for (ptrdiff_t at = 0; at < n; at += BLOCK) {
        slope_push2_block(op, which, block_end(at, n) - at, s, t, x, y, r + at, u, v, out + at);
        s += s == rooms[0] ? 0 : BLOCK, t += t == rooms[1] ? 0 : BLOCK;
        x += x == rooms[2] ? 0 : BLOCK, y += y == rooms[3] ? 0 : BLOCK;
        u += u == rooms[4] ? 0 : BLOCK, v += v == rooms[5] ? 0 : BLOCK;
    }
}

static void scale_f64(ptrdiff_t n, double *t, const double *slope, int step)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; i++)
        t[i] = times_f64(t[i], slope[i * step]);
}

static double scaled_sum_f64(ptrdiff_t n, const double *t, const double *slope)
{
    double s = 0.0;
#pragma omp simd reduction(+ : s)
    for (ptrdiff_t i = 0; i < n; i++)
        s += times_f64(t[i], slope[i]);
    return s;
}

static double sum_f64(ptrdiff_t n, const double *x)
{
    double s = 0.0;
#pragma omp simd reduction(+ : s)
    for (ptrdiff_t i = 0; i < n; i++)
        s += x[i];
    return s;
}

/* Short rows one entry after the other, as NumPy does. */
static double short_sum(ptrdiff_t n, const double *x)
{
    double s = 0.0;
    for (ptrdiff_t i = 0; i < n; i++)
        s += x[i];
    return s;
}

static void sum_middle_f64(ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const double *restrict x,
                           double *restrict out)
{
    if (after == 1) {
        for (ptrdiff_t i = 0; i < before; i++)
            out[i] = n < MERCER_SHORT ? short_sum(n, x + i * n) : sum_f64(n, x + i * n);
        return;
    }
    for (ptrdiff_t i = 0; i < before; i++, out += after) {
        memset(out, 0, (size_t)after * sizeof *out);
        for (ptrdiff_t j = 0; j < n; j++)
            accumulate_f64(after, x + (i * n + j) * after, out);
    }
}

static void repeat_middle_f64(ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const double *restrict x,
                              double *restrict out)
{
    for (ptrdiff_t i = 0; after == 1 && i < before; i++, out += n)
        for (ptrdiff_t j = 0; j < n; j++)
            out[j] = x[i];
    for (ptrdiff_t i = 0; after > 1 && i < before; i++, x += after)
        for (ptrdiff_t j = 0; j < n; j++, out += after)
            memcpy(out, x, (size_t)after * sizeof *out);
}

static int all_finite_f64(ptrdiff_t n, const double *x)
{
    double bad = 0.0;
#pragma omp simd reduction(+ : bad)
    for (ptrdiff_t i = 0; i < n; i++)
        bad += 0.0 * x[i];
    return bad == 0.0;
}

const MercerSweep MERCER_SUFFIX(sweep_f64) = {
    .slope_product = slope_product_f64,
    .slope_push = slope_push_f64,
    .accumulate = accumulate_f64,
    .rows_product = rows_product_f64,
    .binary = binary_f64,
    .slope_product2 = slope_product2_f64,
    .push2 = push2_f64,
    .slope_push2 = slope_push2_f64,
    .scale = scale_f64,
    .scaled_sum = scaled_sum_f64,
    .sum = sum_f64,
    .sum_middle = sum_middle_f64,
    .repeat_middle = repeat_middle_f64,
    .all_finite = all_finite_f64,
};

const MercerSweep MERCER_SUFFIX(sweep_f32) = {
    .slope_product = slope_product_f32,
    .slope_push = slope_push_f32,
    .accumulate = accumulate_f32,
};

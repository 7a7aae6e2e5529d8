#include "sweep.h"

#include <math.h>
#include <string.h>

#include "mercer.h"

/* One line an operation: slope f'(x), second slope f''(x), with r = f(x), w = `elementary`; values are NumPy's own. */
#define UNARY(X)                                                                                            \
    X(NEGATIVE, -1.0, 0.0)                                                                                  \
    X(SIN, w, -r)                                                                                           \
    X(COS, -w, -r)                                                                                          \
    X(TAN, 1.0 + r * r, 2.0 * r * (1.0 + r * r))                                                            \
    X(EXP, r, r)                                                                                            \
    X(EXPM1, w, w)                                                                                          \
    X(LOG, 1.0 / x, -1.0 / (x * x))                                                                         \
    X(LOG1P, 1.0 / (1.0 + x), -1.0 / ((1.0 + x) * (1.0 + x)))                                               \
    X(SQRT, 0.5 / r, -0.25 / (x * r))                                                                       \
    X(SQUARE, 2.0 * x, 2.0)                                                                                 \
    X(RECIPROCAL, -r * r, 2.0 * r * r * r)                                                                  \
    X(TANH, 1.0 - r * r, -2.0 * r * (1.0 - r * r))                                                          \
    X(SINH, cosh(x), r)                                                                                     \
    X(COSH, sinh(x), r)                                                                                     \
    X(ARCTAN, 1.0 / (1.0 + x * x), -2.0 * x / ((1.0 + x * x) * (1.0 + x * x)))                              \
    X(ABSOLUTE, (double)((x > 0.0) - (x < 0.0)), 0.0)                                                       \
    X(POWER_BY, c == 0.0 ? 0.0 : c * raised(x, c - 1.0),                                                    \
      c == 0.0 || c == 1.0 ? 0.0 : c * (c - 1.0) * raised(x, c - 2.0))                                      \
    X(TAN_OF_ANSWER, 1.0 + r * r, 2.0 * r)                                                                  \
    X(EXP_OF_ANSWER, r, 1.0)                                                                                \
    X(SQRT_OF_ANSWER, 0.5 / r, -0.5 / (r * r))                                                              \
    X(RECIPROCAL_OF_ANSWER, -r * r, -2.0 * r)                                                               \
    X(TANH_OF_ANSWER, 1.0 - r * r, -2.0 * r)

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
    X(SCALE, times(x, y), y, x, 0.0, 1.0, 0.0)

/* What a zero tangent or a zero slope multiplies stays zero, so that a path with a zero in it has none of the
   other's infinities, whichever end the sweep starts from. */
static inline double times(double t, double slope)
{
    return (t == 0.0) | (slope == 0.0) ? 0.0 : t * slope;
}

/* Squares and cubes as products, which is what NumPy computes for squares. */
static inline double raised(double x, double c)
{
    return c == 2.0 ? x * x : c == 1.0 ? x : c == 0.0 ? 1.0 : c == 3.0 ? x * x * x : pow(x, c);
}

/* Entries whose slopes are computed together. */
enum { BLOCK = 128 };

/* Write the function that a slope is made of where neither x nor r gives it, by vectors. */
static void elementary(int op, ptrdiff_t n, const double *x, double *w)
{
    const int function = op == MERCER_SIN ? SIMD_COS : op == MERCER_COS ? SIMD_SIN : op == MERCER_EXPM1 ? SIMD_EXP : -1;
    if (function >= 0)
        mercer_table(0)->simd(function, x, w, n);
}

static inline ptrdiff_t block_end(ptrdiff_t begin, ptrdiff_t n)
{
    return n - begin < BLOCK ? n : begin + BLOCK;
}

static void slope_product_block(int op, ptrdiff_t lead, ptrdiff_t n, ptrdiff_t begin, const double *t,
                                const double *restrict x_, const double *restrict r_, double c, double *out)
{
    const ptrdiff_t end = block_end(begin, n);
    double w_[BLOCK];
    (void)c;
    elementary(op, end - begin, x_ + begin, w_);
    switch (op) {
#define CASE(NAME, SLOPE, SECOND)                                                                           \
    case MERCER_##NAME:                                                                                     \
        if (lead == 1) {                                                                                    \
            for (ptrdiff_t i = begin; i < end; i++) {                                                       \
                const double x = x_[i], r = r_[i], w = w_[i - begin], a = t[i];                             \
                (void)x, (void)r, (void)w;                                                                  \
                out[i] = times(a, SLOPE);                                                                   \
            }                                                                                               \
            break;                                                                                          \
        }                                                                                                   \
        for (ptrdiff_t i = begin; i < end; i++) {                                                           \
            const double x = x_[i], r = r_[i], w = w_[i - begin], slope = SLOPE;                            \
            (void)x, (void)r, (void)w;                                                                      \
            for (ptrdiff_t k = 0; k < lead; k++)                                                            \
                out[k * n + i] = times(t[k * n + i], slope);                                                \
        }                                                                                                   \
        break;
        UNARY(CASE)
#undef CASE
    }
}

void mercer_slope_product(int op, ptrdiff_t lead, ptrdiff_t n, const double *t, const double *x, const double *r,
                          double c, double *out)
{
    for (ptrdiff_t begin = 0; begin < n; begin += BLOCK)
        slope_product_block(op, lead, n, begin, t, x, r, c, out);
}

static void slope_push_block(int op, ptrdiff_t lead, ptrdiff_t n, ptrdiff_t begin, const double *s,
                             const double *t, const double *x_, const double *r_, double c, const double *u,
                             double *out, double *product)
{
    const ptrdiff_t end = block_end(begin, n);
    double w_[BLOCK];
    (void)c;
    elementary(op, end - begin, x_ + begin, w_);
    switch (op) {
#define CASE(NAME, SLOPE, SECOND)                                                                           \
    case MERCER_##NAME:                                                                                     \
        for (ptrdiff_t i = begin; i < end; i++) {                                                           \
            const double x = x_[i], r = r_[i], w = w_[i - begin];                                           \
            (void)x, (void)r, (void)w;                                                                      \
            const double slope = SLOPE, second = times(t[i], SECOND);                                       \
            if (product)                                                                                    \
                product[i] = times(t[i], slope);                                                            \
            for (ptrdiff_t k = 0; k < lead; k++) {                                                          \
                const double a = s ? s[k * n + i] : 0.0, b = u ? u[k * n + i] : 0.0;                        \
                out[k * n + i] = times(a, slope) + times(b, second);                                        \
            }                                                                                               \
        }                                                                                                   \
        break;
        UNARY(CASE)
#undef CASE
    }
}

void mercer_slope_push(int op, ptrdiff_t lead, ptrdiff_t n, const double *s, const double *t, const double *x,
                       const double *r, double c, const double *u, double *out, double *product)
{
    for (ptrdiff_t begin = 0; begin < n; begin += BLOCK)
        slope_push_block(op, lead, n, begin, s, t, x, r, c, u, out, product);
}

void mercer_rows_product(ptrdiff_t lead, ptrdiff_t n, const double *restrict t, const double *restrict slope,
                         double *restrict out)
{
    for (ptrdiff_t k = 0; k < lead; k++)
        for (ptrdiff_t i = 0; i < n; i++)
            out[k * n + i] = times(t[k * n + i], slope[i]);
}

/* 0 * t is 0 for finite t and NaN otherwise, so its sum tells whether all were finite. */
int mercer_binary(int op, ptrdiff_t rows, ptrdiff_t n, const double *x_, ptrdiff_t x_row, ptrdiff_t x_step,
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

void mercer_slope_product2(int op, int which, ptrdiff_t lead, ptrdiff_t n, const double *restrict t,
                           int t_step, const double *restrict x_, int x_step, const double *restrict y_,
                           int y_step, const double *restrict r_, double *restrict out)
{
    switch (op) {
/* Of entries next to each other the compiler makes vectors. */
#define ROW(SLOPE, T, X, Y)                                                                                 \
    for (ptrdiff_t i = 0; i < n; i++) {                                                                     \
        const double x = x_[X], y = y_[Y], r = r_[i], a = t[T], slope = SLOPE;                              \
        (void)x, (void)y, (void)r;                                                                          \
        out[i] = times(a, slope);                                                                           \
    }
#define ROWS(SLOPE)                                                                                         \
    for (ptrdiff_t i = 0; i < n; i++) {                                                                     \
        const double x = x_[i * x_step], y = y_[i * y_step], r = r_[i], slope = SLOPE;                      \
        (void)x, (void)y, (void)r;                                                                          \
        for (ptrdiff_t k = 0; k < lead; k++) {                                                              \
            const double a = t_step ? t[k * n + i] : t[k];                                                  \
            out[k * n + i] = times(a, slope);                                                               \
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

void mercer_push2(int op, ptrdiff_t rows, ptrdiff_t n, const double *s, ptrdiff_t s_step, const double *t,
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
            out[k * n + i] = times(a, IN_X) + times(b, IN_Y);                                               \
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

void mercer_slope_push2(int op, int which, ptrdiff_t n, const double *s, int s_step, const double *t, int t_step,
                        const double *x_, int x_step, const double *y_, int y_step, const double *r_,
                        const double *u, int u_step, const double *v, int v_step, double *restrict out)
{
    static const double zero = 0.0;
    s = s ? s : &zero, u = u ? u : &zero, v = v ? v : &zero;
    switch (op) {
#define LOOP(SLOPE, IN_X, IN_Y)                                                                             \
    for (ptrdiff_t i = 0; i < n; i++) {                                                                     \
        const double x = x_[i * x_step], y = y_[i * y_step], r = r_[i], slope = SLOPE;                      \
        const double a = s[i * s_step], b = t[i * t_step], du = u[i * u_step], dv = v[i * v_step];          \
        (void)x, (void)y, (void)r;                                                                          \
        out[i] = times(a, slope);                                                                           \
        out[i] += times(times(b, IN_X), du) + times(times(b, IN_Y), dv);                                    \
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

void mercer_accumulate(ptrdiff_t n, const double *restrict x, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] += x[i];
}

void mercer_scale(ptrdiff_t n, double *t, const double *slope, int step)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; i++)
        t[i] = times(t[i], slope[i * step]);
}

double mercer_scaled_sum(ptrdiff_t n, const double *t, const double *slope)
{
    double s = 0.0;
#pragma omp simd reduction(+ : s)
    for (ptrdiff_t i = 0; i < n; i++)
        s += times(t[i], slope[i]);
    return s;
}

double mercer_sum(ptrdiff_t n, const double *x)
{
    double s = 0.0;
#pragma omp simd reduction(+ : s)
    for (ptrdiff_t i = 0; i < n; i++)
        s += x[i];
    return s;
}

void mercer_sum_middle(ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const double *restrict x,
                       double *restrict out)
{
    for (ptrdiff_t i = 0; i < before; i++, out += after) {
        if (after == 1)
            out[0] = mercer_sum(n, x + i * n);
        else
            memset(out, 0, (size_t)after * sizeof *out);
        for (ptrdiff_t j = 0; after > 1 && j < n; j++)
            mercer_accumulate(after, x + (i * n + j) * after, out);
    }
}

void mercer_repeat_middle(ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const double *restrict x,
                          double *restrict out)
{
    for (ptrdiff_t i = 0; i < before; i++, x += after)
        for (ptrdiff_t j = 0; j < n; j++, out += after) {
            if (after == 1)
                out[0] = x[0];
            else
                memcpy(out, x, (size_t)after * sizeof *out);
        }
}

int mercer_all_finite(ptrdiff_t n, const double *x)
{
    double bad = 0.0;
#pragma omp simd reduction(+ : bad)
    for (ptrdiff_t i = 0; i < n; i++)
        bad += 0.0 * x[i];
    return bad == 0.0;
}

uint64_t mercer_checksum(ptrdiff_t n_bytes, const char *bytes)
{
    return mercer_table(0)->checksum(n_bytes, bytes);
}

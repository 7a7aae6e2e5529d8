/* Elementwise operations of the tape: values, and products with their slopes.

A slope product is t * f'(x), in which a zero of either stays zero whatever the other. The same loop serves
pushforwards (t is a tangent) and pullbacks (t is a cotangent). Vectors of the same length, or numbers
(step 0). `lead` slope products share one x: t has that many rows. */
#ifndef MERCER_SWEEP_H
#define MERCER_SWEEP_H

#include <stddef.h>
#include <stdint.h>

enum {
    MERCER_NEGATIVE = 1,
    MERCER_SIN,
    MERCER_COS,
    MERCER_TAN,
    MERCER_EXP,
    MERCER_EXPM1,
    MERCER_LOG,
    MERCER_LOG1P,
    MERCER_SQRT,
    MERCER_SQUARE,
    MERCER_RECIPROCAL,
    MERCER_TANH,
    MERCER_SINH,
    MERCER_COSH,
    MERCER_ARCTAN,
    MERCER_ABSOLUTE,
    MERCER_POWER_BY, /* x ** c for one number c */
    /* Slopes as functions of the answer alone, second slopes their derivatives in it. */
    MERCER_TAN_OF_ANSWER,
    MERCER_EXP_OF_ANSWER,
    MERCER_SQRT_OF_ANSWER,
    MERCER_RECIPROCAL_OF_ANSWER,
    MERCER_TANH_OF_ANSWER,
    MERCER_N_UNARY,
    MERCER_ADD = 64,
    MERCER_SUBTRACT,
    MERCER_MULTIPLY,
    MERCER_DIVIDE,
    MERCER_MAXIMUM,
    MERCER_MINIMUM,
    MERCER_SCALE, /* x y, where a zero of either stays zero */
    MERCER_N_OPCODES
};

/* Fewer numbers than these NumPy adds up one after the other. */
enum { MERCER_SHORT = 8 };

/* What one type can do at one instruction set: arrays of it where there is void. */
typedef struct {
    /* out[i, j] = t[i, j] * f'(x[j]), r = f(x). */
    void (*slope_product)(int op, ptrdiff_t lead, ptrdiff_t n, const void *t, const void *x, const void *r,
                          double c, void *out);
    /* out[i, j] = s[i, j] * f'(x[j]) + t[j] * f''(x[j]) * u[i, j]; s or u may be NULL (zero). If product is not NULL,
       product[j] = t[j] * f'(x[j]). Of slopes of the answer x is the answer, and u its tangent. */
    void (*slope_push)(int op, ptrdiff_t lead, ptrdiff_t n, const void *s, const void *t, const void *x,
                       const void *r, double c, const void *u, void *out, void *product);
    /* out += x */
    void (*accumulate)(ptrdiff_t n, const void *x, void *out);
    /* float64 only from here on. */
    /* out = x op y in rows of n; returns whether all of it is finite. From row to row x goes on by x_row, in a row by
       x_step, y likewise. */
    int (*binary)(int op, ptrdiff_t rows, ptrdiff_t n, const double *x, ptrdiff_t x_row, ptrdiff_t x_step,
                  const double *y, ptrdiff_t y_row, ptrdiff_t y_step, double *out);
    /* out[i, j] = t[i, j] * the slope in the first (0) or second (1) argument; t has step 0 or 1 in j. */
    void (*slope_product2)(int op, int which, ptrdiff_t lead, ptrdiff_t n, const double *t, int t_step,
                           const double *x, int x_step, const double *y, int y_step, const double *r,
                           double *out);
    /* out = s * the slope in x + t * the slope in y, in rows as above; s (with the rows of x) or t (with those of y)
       may be NULL (zero). */
    void (*push2)(int op, ptrdiff_t rows, ptrdiff_t n, const double *s, ptrdiff_t s_step, const double *t,
                  ptrdiff_t t_step, const double *x, ptrdiff_t x_row, ptrdiff_t x_step, const double *y,
                  ptrdiff_t y_row, ptrdiff_t y_step, const double *r, double *out);
    /* out = s * f_w + t * (f_wx * u + f_wy * v), f_w the slope in the first (0) or second (1) argument; each of s,
       u and v may be NULL (zero). */
    void (*slope_push2)(int op, int which, ptrdiff_t n, const double *s, int s_step, const double *t, int t_step,
                        const double *x, int x_step, const double *y, int y_step, const double *r,
                        const double *u, int u_step, const double *v, int v_step, double *out);
    /* out[i, j] = t[i, j] * slope[j], zeros staying zero. */
    void (*rows_product)(ptrdiff_t lead, ptrdiff_t n, const double *t, const double *slope, double *out);
    /* t *= slope, and the sum of t * slope; zeros stay zero. */
    void (*scale)(ptrdiff_t n, double *t, const double *slope, int step);
    double (*scaled_sum)(ptrdiff_t n, const double *t, const double *slope);
    /* out[i, k] = the sum over j of x[i, j, k], x of shape (before, n, after). */
    void (*sum_middle)(ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const double *x, double *out);
    /* out[i, j, k] = x[i, k], out of shape (before, n, after). */
    void (*repeat_middle)(ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const double *x, double *out);
    int (*all_finite)(ptrdiff_t n, const double *x);
    double (*sum)(ptrdiff_t n, const double *x);
} MercerSweep;

/* dispatch.c */
const MercerSweep *mercer_sweep(int is_float32);
/* A number that changes with any bit of the memory, almost surely. */
uint64_t mercer_checksum(ptrdiff_t n_bytes, const char *bytes);

#endif

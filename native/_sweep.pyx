# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What the tape needs to be fast: traced values, their levels, primitives and the reverse sweep.

`mercer._native` is the only importer; `mercer.autodiff.trace` gives these their names. Operators on float64
arrays of one shape (or numbers) go through sweep_loops.c without NumPy's dispatch; everything else calls the
rule's NumPy functions.
"""

import itertools
from inspect import signature

import numpy as np

cimport cython
cimport numpy as cnp
from cpython.ref cimport Py_REFCNT, PyObject
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport free, realloc

cnp.import_array()
cnp.import_ufunc()

cdef extern from *:
    """
    #include <numpy/arrayscalars.h>
    static inline PyObject *mercer_number(double value)
    {
        PyObject *number = PyArrayScalar_New(Double);
        if (number != NULL)
            PyArrayScalar_ASSIGN(number, Double, value);
        return number;
    }
    /* Of a pointer, so that Cython makes no reference of its own on the way. */
    static inline Py_ssize_t mercer_references(PyObject *x)
    {
        return Py_REFCNT(x);
    }
    #define MERCER_IS_NUMBER(x) (Py_TYPE(x) == &PyDoubleArrType_Type || PyFloat_CheckExact(x))
    """
    object mercer_number(double value)
    Py_ssize_t mercer_references(PyObject *x) noexcept
    bint MERCER_IS_NUMBER(object x) noexcept
    double PyFloat_AS_DOUBLE(object x) noexcept

cdef extern from "mercer.h" nogil:
    int mercer_openmp() noexcept

cdef extern from "sweep.h" nogil:
    int MERCER_POWER_BY, MERCER_N_UNARY, MERCER_ADD, MERCER_SUBTRACT, MERCER_MULTIPLY, MERCER_SCALE
    int MERCER_DIVIDE, MERCER_NEGATIVE, MERCER_EXP, MERCER_TAN, MERCER_TANH, MERCER_SQRT, MERCER_RECIPROCAL
    int MERCER_SINH, MERCER_COSH, MERCER_TAN_OF_ANSWER, MERCER_EXP_OF_ANSWER, MERCER_SQRT_OF_ANSWER
    int MERCER_RECIPROCAL_OF_ANSWER, MERCER_TANH_OF_ANSWER
    enum: MERCER_N_OPCODES, MERCER_SHORT
    ctypedef struct MercerSweep:
        void (*slope_product)(int op, ptrdiff_t lead, ptrdiff_t n, const void *t, const void *x,
                              const void *r, double c, void *out) noexcept
        void (*slope_push)(int op, ptrdiff_t lead, ptrdiff_t n, const void *s, const void *t, const void *x,
                           const void *r, double c, const void *u, void *out, void *product) noexcept
        int (*binary)(int op, ptrdiff_t rows, ptrdiff_t n, const double *x, ptrdiff_t x_row, ptrdiff_t x_step,
                      const double *y, ptrdiff_t y_row, ptrdiff_t y_step, double *out) noexcept
        void (*slope_product2)(int op, int which, ptrdiff_t lead, ptrdiff_t n, const double *t, int t_step,
                               const double *x, int x_step, const double *y, int y_step, const double *r,
                               double *out) noexcept
        void (*accumulate)(ptrdiff_t n, const void *x, void *out) noexcept
        void (*push2)(int op, ptrdiff_t rows, ptrdiff_t n, const double *s, ptrdiff_t s_step, const double *t,
                      ptrdiff_t t_step, const double *x, ptrdiff_t x_row, ptrdiff_t x_step, const double *y,
                      ptrdiff_t y_row, ptrdiff_t y_step, const double *r, double *out) noexcept
        void (*slope_push2)(int op, int which, ptrdiff_t n, const double *s, int s_step, const double *t,
                            int t_step, const double *x, int x_step, const double *y, int y_step,
                            const double *r, const double *u, int u_step, const double *v, int v_step,
                            double *out) noexcept
        void (*rows_product)(ptrdiff_t lead, ptrdiff_t n, const double *t, const double *slope,
                             double *out) noexcept
        void (*scale)(ptrdiff_t n, double *t, const double *slope, int step) noexcept
        double (*scaled_sum)(ptrdiff_t n, const double *t, const double *slope) noexcept
        void (*sum_middle)(ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const double *x,
                           double *out) noexcept
        void (*repeat_middle)(ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const double *x,
                              double *out) noexcept
        double (*sum)(ptrdiff_t n, const double *x) noexcept
        int (*all_finite)(ptrdiff_t n, const double *x) noexcept
    const MercerSweep *mercer_sweep(int is_float32) noexcept
    uint64_t mercer_checksum(ptrdiff_t n_bytes, const char *bytes) noexcept

cdef const MercerSweep *DOUBLES = mercer_sweep(False)
cdef const MercerSweep *FLOATS = mercer_sweep(True)

# Above these lengths NumPy's own vector loops are at least as fast: for cheap operations, and for libm's.
cdef enum:
    COPIED_UP_TO = 16384  # bytes
    CHEAP_UP_TO = 16384
    LIBM_UP_TO = 96
    MAX_DIMS = 64  # NumPy's

#: The tables that rules fill: NumPy function -> implementation, ufunc -> primitive, method -> handler, name
#: -> method.
FUNCTIONS = {}
UFUNCS = {}
UFUNC_METHODS = {}
METHODS = {}
PROPERTIES = {}
#: NumPy function that makes arrays -> function(like, …), what its argument ``like=`` calls.
CREATION = {}
#: name -> how an error is made; autodiff.trace registers these.
ERRORS = {}

cdef dict _ufuncs = UFUNCS
cdef dict _functions = FUNCTIONS
# Their operators mean something else than those of arrays.
cdef tuple _OTHER_ARITHMETIC = (np.matrix, np.ma.MaskedArray)
cdef object _errstate = np.errstate
cdef object _add = np.add
cdef object _add_reduce = np.add.reduce
cdef object _multiply = np.multiply
cdef object _order = itertools.count(1)
cdef object _FLOAT64 = np.dtype(np.float64)

include "sweep_memory.pxi"
include "sweep_levels.pxi"
include "sweep_traced.pxi"
include "sweep_primitives.pxi"
include "sweep_operations.pxi"
include "sweep_slopes.pxi"
include "sweep_axes.pxi"
include "sweep_linear.pxi"
include "sweep_backward.pxi"
include "sweep_pushed.pxi"
include "sweep_calls.pxi"


# -- the operations that sweep.h knows ------------------------------------------------------------------

cdef Primitive ADD, SUBTRACT, MULTIPLY, DIVIDE, POWER, NEGATIVE, SQUARE, SCALE, GETITEM, SUM
ADD = SUBTRACT = MULTIPLY = DIVIDE = POWER = NEGATIVE = SQUARE = SCALE = GETITEM = SUM = None

_UNARY = (
    np.negative, np.sin, np.cos, np.tan, np.exp, np.expm1, np.log, np.log1p, np.sqrt, np.square,
    np.reciprocal, np.tanh, np.sinh, np.cosh, np.arctan, np.absolute, np.power,
)
_BINARY = (np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.minimum, "scale")
# In the order of the enumeration in sweep.h.
OPCODES = {f: 1 + i for i, f in enumerate(_UNARY)} | {f: MERCER_ADD + i for i, f in enumerate(_BINARY)}
for _ufunc, _opcode in OPCODES.items():
    if _opcode < MERCER_POWER_BY:
        find_loop(_ufunc, _opcode)
# Which zero of two comes out is NumPy's to say.
find_loop2(np.maximum, OPCODES[np.maximum])
find_loop2(np.minimum, OPCODES[np.minimum])


def define_operators(**primitives):
    """Name the primitives behind the operators, once the rules have defined them."""
    global ADD, SUBTRACT, MULTIPLY, DIVIDE, POWER, NEGATIVE, SQUARE, SCALE, GETITEM, SUM
    ADD, SUBTRACT, MULTIPLY = primitives["add"], primitives["subtract"], primitives["multiply"]
    DIVIDE, POWER, NEGATIVE = primitives["divide"], primitives["power"], primitives["negative"]
    SQUARE, SCALE = primitives["square"], primitives["scale"]
    GETITEM, SUM = primitives["getitem"], primitives["sum"]


cpdef object full(double value, tuple shape):
    """Return an array of a shape full of one number, sooner than np.full does for small ones."""
    cdef cnp.ndarray out = new_array(shape)
    cdef double *data = data_of(out)
    cdef Py_ssize_t i
    for i in range(cnp.PyArray_SIZE(out)):
        data[i] = value
    return out


def openmp():
    """Return the version of OpenMP this was built with, 0 if without."""
    return mercer_openmp()

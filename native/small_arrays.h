/* Small arrays that a derivative has let go are kept whole, to be handed out again: NumPy takes 1,100 instructions to
 * make one and to end it, a sine of ten numbers 800. Included after NumPy's headers; the GIL guards it. */
#ifndef MERCER_SMALL_ARRAYS_H
#define MERCER_SMALL_ARRAYS_H

#include <string.h>

/* A shelf has arrays of one shape, of at most SHELF_BYTES together: 1 MiB on all. */
enum { SHELVES = 32, SHELF_ARRAYS = 256, SHELF_BYTES = 1 << 15 };

typedef struct {
    int n;
    PyObject *arrays[SHELF_ARRAYS];
} MercerShelf;

static MercerShelf mercer_shelves[SHELVES];
static PyArray_Descr *mercer_float64;
static PyObject *mercer_small_handler;

/* handler: what arrays made while a derivative is taken have their memory from */
static void mercer_open_shelves(PyObject *handler)
{
    mercer_float64 = PyArray_DescrFromType(NPY_DOUBLE);
    mercer_small_handler = handler;
}

static inline MercerShelf *mercer_shelf_of(int ndim, const npy_intp *dims)
{
    npy_uintp hash = (npy_uintp)ndim;
    for (int i = 0; i < ndim; i++)
        hash = hash * 31 + (npy_uintp)dims[i];
    return mercer_shelves + (hash ^ hash >> 5) % SHELVES;
}

static inline int mercer_holds(const MercerShelf *shelf, int ndim, const npy_intp *dims)
{
    if (shelf->n == 0)
        return 0;
    PyArrayObject *last = (PyArrayObject *)shelf->arrays[shelf->n - 1];
    return PyArray_NDIM(last) == ndim && PyArray_CompareLists(PyArray_DIMS(last), dims, ndim);
}

/* Return a new float64 array in C order. */
static inline PyObject *mercer_new_array(int ndim, npy_intp *dims)
{
    MercerShelf *shelf = mercer_shelf_of(ndim, dims);
    if (mercer_holds(shelf, ndim, dims))
        return shelf->arrays[--shelf->n];
    return PyArray_EMPTY(ndim, dims, NPY_DOUBLE, 0);
}

/* Whether an array is as mercer_new_array makes it, and nothing refers to it beside the caller. */
static inline int mercer_is_lone(PyObject *x)
{
    const PyArrayObject_fields *a = (PyArrayObject_fields *)x;
    return PyArray_CheckExact(x) && Py_REFCNT(x) == 1 && a->descr == mercer_float64 && a->base == NULL &&
           (a->flags & ~NPY_ARRAY_F_CONTIGUOUS) == (NPY_ARRAY_CARRAY | NPY_ARRAY_OWNDATA) &&
           a->weakreflist == NULL && a->_buffer_info == NULL &&
           (a->mem_handler == mercer_small_handler || a->mem_handler == PyDataMem_DefaultHandler);
}

/* Keep a small array that the caller lets go of now and nobody else has; anything else is left alone. */
static inline void mercer_shelve(PyObject *x)
{
    if (!mercer_is_lone(x))
        return;
    PyArrayObject *a = (PyArrayObject *)x;
    MercerShelf *shelf = mercer_shelf_of(PyArray_NDIM(a), PyArray_DIMS(a));
    const npy_intp bytes = PyArray_NBYTES(a);
    if (shelf->n && !mercer_holds(shelf, PyArray_NDIM(a), PyArray_DIMS(a)))
        while (shelf->n) /* what was asked for before */
            Py_DECREF(shelf->arrays[--shelf->n]);
    if (bytes == 0 || bytes * (shelf->n + 1) > SHELF_BYTES || shelf->n == SHELF_ARRAYS)
        return;
    Py_INCREF(x);
    shelf->arrays[shelf->n++] = x;
}

#endif

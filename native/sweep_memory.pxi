# Arrays whose pages are kept, within traced runs and sweeps, and small ones kept whole. Part of _sweep.pyx.

cdef extern from "array_memory.h":
    object mercer_array_handler()
    bint mercer_is_plain(object handler) noexcept

cdef extern from "small_arrays.h":
    void mercer_open_shelves(object handler)
    object mercer_new_array(int ndim, cnp.npy_intp *dims)
    void mercer_shelve(PyObject *x) noexcept

cdef extern from *:
    """
    /* The same list with room for more; its items have moved from the shorter one. */
    static PyObject *mercer_longer_list(PyObject *shorter, Py_ssize_t room)
    {
        PyObject *list = PyList_New(room);
        if (list != NULL) {
            Py_ssize_t size = PyList_GET_SIZE(shorter);
            for (Py_ssize_t i = 0; i < size; i++)
                PyList_SET_ITEM(list, i, PyList_GET_ITEM(shorter, i));
            Py_SET_SIZE(list, size);
            Py_SET_SIZE(shorter, 0);
        }
        return list;
    }
    /* Put an object into the room of a list. */
    static inline void mercer_append(PyObject *list, PyObject *x)
    {
        const Py_ssize_t n = PyList_GET_SIZE(list);
        Py_INCREF(x);
        Py_SET_SIZE(list, n + 1);
        PyList_SET_ITEM(list, n, x);
    }
    static inline void mercer_let_go(PyObject *list, Py_ssize_t i)
    {
        PyObject *x = PyList_GET_ITEM(list, i);
        Py_INCREF(Py_None);
        PyList_SET_ITEM(list, i, Py_None);
        mercer_shelve(x);
        Py_DECREF(x);
    }
    """
    list mercer_longer_list(list shorter, Py_ssize_t room)
    void mercer_append(list, object x) noexcept
    void mercer_let_go(list, Py_ssize_t i) noexcept
    PyObject *PyList_GET_ITEM(list, Py_ssize_t i) noexcept

cdef object _HANDLER = mercer_array_handler()
mercer_open_shelves(_HANDLER)


cdef object keep_pages():
    """Have this thread's arrays made of kept pages from now on; return what `restore_pages` wants."""
    if not mercer_is_plain(cnp.PyDataMem_GetHandler()):  # an outer derivative's, or the user's own
        return None
    return cnp.PyDataMem_SetHandler(_HANDLER)


cdef int restore_pages(object before) except -1:
    if before is not None:
        cnp.PyDataMem_SetHandler(before)
    return 0


def run(f, args):
    """Return f(*args)."""
    before = keep_pages()
    try:
        return f(*args)
    finally:
        restore_pages(before)

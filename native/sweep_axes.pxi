# Sums over axes and their transposes, repetition along axes. Part of _sweep.pyx.


cdef struct Run:
    # Neighbouring axes that are summed or repeated, between those before and what is kept of those after.
    Py_ssize_t before, n, after


cdef int runs_of(int ndim, const cnp.npy_intp *dims, const bint *repeated, Run *runs):
    """Find the runs of repeated axes, last run first; return how many there are."""
    cdef int count = 0, i = ndim - 1, k
    cdef Py_ssize_t after = 1, n
    while i >= 0:
        if not repeated[i]:
            after *= dims[i]
            i -= 1
            continue
        n = 1
        while i >= 0 and repeated[i]:
            n *= dims[i]
            i -= 1
        runs[count].before, runs[count].n, runs[count].after = 1, n, after
        for k in range(i + 1):
            runs[count].before *= dims[k]
        count += 1
    return count


cdef object new_array(tuple shape):
    """Return a new float64 array."""
    cdef cnp.npy_intp dims[MAX_DIMS]
    cdef int i
    for i in range(len(shape)):
        dims[i] = shape[i]
    return cnp.PyArray_EMPTY(len(shape), dims, cnp.NPY_DOUBLE, 0)


cdef object sum_to(cnp.ndarray g, tuple shape):
    """Return the sums over what broadcasting has repeated, in the shape that it had before."""
    cdef Run runs[MAX_DIMS]
    cdef bint repeated[MAX_DIMS]
    cdef int ndim = cnp.PyArray_NDIM(g), extra = ndim - <int>len(shape), i, count
    for i in range(ndim):
        repeated[i] = i < extra or (shape[i - extra] == 1 and cnp.PyArray_DIM(g, i) != 1)
    count = runs_of(ndim, cnp.PyArray_DIMS(g), repeated, runs)
    for i in range(count):
        out = new_array(shape if i == count - 1 else (runs[i].before * runs[i].after,))
        mercer_sum_middle(runs[i].before, runs[i].n, runs[i].after, data_of(g), data_of(out))
        g = out
    return g


cdef object repeat_to(object g, tuple shape, tuple axes):
    """Return a new array with the entries of a float64 array (or number) repeated along `axes`, counted from
    the back; `shape` is that of the result.
    """
    cdef Run runs[MAX_DIMS]
    cdef bint repeated[MAX_DIMS]
    cdef cnp.npy_intp dims[MAX_DIMS]
    cdef int ndim = <int>len(shape), i, count
    cdef Operand o
    read(g, &o)
    if not o.step:
        return full(o.data[0], shape)
    for i in range(ndim):
        dims[i], repeated[i] = shape[i], False
    for axis in axes:
        repeated[ndim + <int>axis] = True
    count = runs_of(ndim, dims, repeated, runs)
    for i in range(count - 1, -1, -1):
        out = new_array(shape if i == 0 else (runs[i].before * runs[i].n * runs[i].after,))
        mercer_repeat_middle(runs[i].before, runs[i].n, runs[i].after, data_of(g), data_of(out))
        g = out
    return g if count else np.array(g)

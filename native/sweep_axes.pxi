# Broadcasting, sums over axes, and repetition along axes. Part of _sweep.pyx.


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
    return mercer_new_array(<int>len(shape), dims)


cdef object sum_to(object g, tuple shape, object _):
    """Return the sums over what broadcasting has repeated, in the shape that it had before."""
    cdef Run runs[MAX_DIMS]
    cdef bint repeated[MAX_DIMS]
    cdef cnp.ndarray a = <cnp.ndarray>g
    cdef int ndim = cnp.PyArray_NDIM(a), extra = ndim - <int>len(shape), i, count
    if not shape:
        return mercer_number(DOUBLES.sum(cnp.PyArray_SIZE(a), data_of(a)))
    for i in range(ndim):
        repeated[i] = i < extra or (shape[i - extra] == 1 and cnp.PyArray_DIM(a, i) != 1)
    count = runs_of(ndim, cnp.PyArray_DIMS(a), repeated, runs)
    for i in range(count):
        out = new_array(shape if i == count - 1 else (runs[i].before * runs[i].after,))
        DOUBLES.sum_middle(runs[i].before, runs[i].n, runs[i].after, data_of(g), data_of(out))
        g = out
    return g if count else g.reshape(shape)


cdef object repeat_to(object g, tuple shape, object axes):
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
    for axis in <tuple>axes:
        repeated[ndim + <int>axis] = True
    count = runs_of(ndim, dims, repeated, runs)
    for i in range(count - 1, -1, -1):
        out = new_array(shape if i == 0 else (runs[i].before * runs[i].n * runs[i].after,))
        DOUBLES.repeat_middle(runs[i].before, runs[i].n, runs[i].after, data_of(g), data_of(out))
        g = out
    return g if count else np.array(g)


# -- two arrays of different shapes ---------------------------------------------------------------------


cdef struct Pair:
    # Two arrays broadcast together, as rows of entries that C loops go through. Neighbouring axes along which
    # both go on, or both stay, are one axis here; there are at least two.
    int ndim, result_ndim
    cnp.npy_intp result[MAX_DIMS]
    Py_ssize_t n[MAX_DIMS]         # from the last axis
    Py_ssize_t x_step[MAX_DIMS]
    Py_ssize_t y_step[MAX_DIMS]
    Py_ssize_t at[MAX_DIMS]        # of the rows: the indices in all further axes
    Py_ssize_t x_at, y_at, size


cdef bint pair(cnp.ndarray x, cnp.ndarray y, Pair *p):
    """Describe how two arrays in C order are broadcast; return 0 if they cannot be."""
    cdef int nx = cnp.PyArray_NDIM(x), ny = cnp.PyArray_NDIM(y), i, k = -1
    cdef Py_ssize_t a, b, n, x_size = 1, y_size = 1, x_step, y_step
    p.result_ndim = max(nx, ny)
    p.x_at, p.y_at, p.size = 0, 0, 1
    for i in range(p.result_ndim):
        a = cnp.PyArray_DIM(x, nx - 1 - i) if i < nx else 1
        b = cnp.PyArray_DIM(y, ny - 1 - i) if i < ny else 1
        if a != b and a != 1 and b != 1:
            return False
        n = b if a == 1 else a
        p.result[p.result_ndim - 1 - i] = n
        x_step, y_step = 0 if a == 1 else x_size, 0 if b == 1 else y_size
        x_size, y_size, p.size = x_size * a, y_size * b, p.size * n
        if n == 1:
            continue
        if k >= 0 and x_step == p.n[k] * p.x_step[k] and y_step == p.n[k] * p.y_step[k]:
            p.n[k] *= n
            continue
        k += 1
        p.n[k], p.x_step[k], p.y_step[k], p.at[k] = n, x_step, y_step, 0
    while k < 1:
        k += 1
        p.n[k], p.x_step[k], p.y_step[k], p.at[k] = 1, 0, 0, 0
    p.ndim = k + 1
    return True


cdef bint next_rows(Pair *p):
    """Go on to the next block of rows; return 0 after the last."""
    cdef int k
    for k in range(2, p.ndim):
        p.at[k] += 1
        p.x_at += p.x_step[k]
        p.y_at += p.y_step[k]
        if p.at[k] < p.n[k]:
            return True
        p.x_at -= p.n[k] * p.x_step[k]
        p.y_at -= p.n[k] * p.y_step[k]
        p.at[k] = 0
    return False


cdef object value2_pair(int opcode, object x, object y):
    """Compute an operation on float64 arrays that are broadcast; None if NumPy has something to say."""
    cdef Pair p
    cdef bint finite = True
    cdef const double *a = data_of(x)
    cdef const double *b = data_of(y)
    cdef double *at
    if loops[opcode] != NULL or not pair(x, y, &p) or p.size > CHEAP_UP_TO:
        return None
    out = mercer_new_array(p.result_ndim, p.result)
    at = data_of(out)
    while finite and p.size:
        finite = DOUBLES.binary(opcode, p.n[1], p.n[0], a + p.x_at, p.x_step[1], p.x_step[0],
                                b + p.y_at, p.y_step[1], p.y_step[0], at)
        at += p.n[1] * p.n[0]
        if not next_rows(&p):
            break
    return out if finite else None


cdef object push2_pair(int opcode, object s, object t, object x, object y, object r):
    """Return s times the slope in x plus t times the slope in y, for arrays that are broadcast (s as x, t as
    y, or None); None if that is not so.
    """
    cdef Pair p
    cdef Py_ssize_t done = 0
    if not pair(x, y, &p) or p.size != cnp.PyArray_SIZE(<cnp.ndarray>r):
        return None
    out = new_like(r)
    while p.size:
        DOUBLES.push2(opcode, p.n[1], p.n[0], NULL if s is None else data_of(s) + p.x_at, p.x_step[0],
                      NULL if t is None else data_of(t) + p.y_at, p.y_step[0],
                      data_of(x) + p.x_at, p.x_step[1], p.x_step[0],
                      data_of(y) + p.y_at, p.y_step[1], p.y_step[0], data_of(r) + done, data_of(out) + done)
        done += p.n[1] * p.n[0]
        if not next_rows(&p):
            break
    return out

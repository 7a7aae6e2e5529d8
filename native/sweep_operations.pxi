# Operations of sweep.h: operands, values, operators on traced values. Part of _sweep.pyx.


cdef struct Operand:
    const double *data
    Py_ssize_t n
    int step          # 0: a number
    double number


cdef inline int read(object x, Operand *o):
    """Describe a float64 array in C order, or a number; return 0 for anything else.

    `o` must stay where it is.
    """
    cdef cnp.ndarray array
    cdef int i
    if type(x) is cnp.ndarray:
        array = <cnp.ndarray>x
        if cnp.PyArray_TYPE(array) != cnp.NPY_DOUBLE or not cnp.PyArray_ISCARRAY_RO(array):
            return 0
        o.n, o.data = 1, <const double *>cnp.PyArray_DATA(array)
        for i in range(cnp.PyArray_NDIM(array)):
            o.n *= cnp.PyArray_DIM(array, i)
        o.step = 1 if cnp.PyArray_NDIM(array) else 0
        return 1
    if MERCER_IS_NUMBER(x):
        o.number, o.n, o.step, o.data = PyFloat_AS_DOUBLE(x), 1, 0, &o.number
        return 1
    if type(x) is int and -2**53 < x < 2**53:
        o.number, o.n, o.step, o.data = <double>x, 1, 0, &o.number
        return 1
    return 0


cdef inline const MercerSweep *loops_for(object x) noexcept:
    """Return the loops for an array's type; those for float64 of anything else."""
    cdef bint single = type(x) is cnp.ndarray and cnp.PyArray_TYPE(<cnp.ndarray>x) == cnp.NPY_FLOAT
    return FLOATS if single else DOUBLES


cdef inline int read_for(const MercerSweep *loops, object x, Operand *o):
    """Describe what some loops can go through: as `read`, or float32 arrays in C order."""
    cdef cnp.ndarray array
    if loops is DOUBLES:
        return read(x, o)
    if type(x) is not cnp.ndarray:
        return 0
    array = <cnp.ndarray>x
    o.data, o.n, o.step = <const double *>cnp.PyArray_DATA(array), cnp.PyArray_SIZE(array), 1
    return (cnp.PyArray_TYPE(array) == cnp.NPY_FLOAT and cnp.PyArray_ISCARRAY_RO(array)
            and cnp.PyArray_NDIM(array) > 0)


cdef inline object new_like(object x):
    """Return a new array of an array's shape, and of its type if that is float32, else float64."""
    cdef cnp.ndarray a = <cnp.ndarray>x
    if cnp.PyArray_TYPE(a) == cnp.NPY_FLOAT:
        return cnp.PyArray_EMPTY(cnp.PyArray_NDIM(a), cnp.PyArray_DIMS(a), cnp.NPY_FLOAT, 0)
    return mercer_new_array(cnp.PyArray_NDIM(a), cnp.PyArray_DIMS(a))


cdef inline bint same_shape(object x, object y):
    cdef cnp.ndarray a = <cnp.ndarray>x, b = <cnp.ndarray>y
    cdef int i
    if cnp.PyArray_NDIM(a) != cnp.PyArray_NDIM(b):
        return False
    for i in range(cnp.PyArray_NDIM(a)):
        if cnp.PyArray_DIM(a, i) != cnp.PyArray_DIM(b, i):
            return False
    return True


cdef inline double *data_of(object x):
    return <double *>cnp.PyArray_DATA(<cnp.ndarray>x)


cdef inline int slope_loop(int op):
    """Which loop of NumPy's computes the slope."""
    if op == MERCER_SINH:
        return MERCER_COSH
    return MERCER_SINH if op == MERCER_COSH else 0


cdef inline bint slope_is_cheap(int op):
    """Whether sweep_loops.c computes the slope by vectors."""
    return not (op == MERCER_SINH or op == MERCER_COSH or op == MERCER_POWER_BY)


# -- values ---------------------------------------------------------------------------------------------


# NumPy's own loops over float64, called without its dispatch: the same values, bit for bit.
cdef cnp.PyUFuncGenericFunction loops[MERCER_N_OPCODES]
cdef void *loop_data[MERCER_N_OPCODES]


cdef int find_loop(object ufunc, int opcode) except -1:
    """Look up the loop from float64 to float64 of a ufunc of one argument."""
    cdef cnp.ufunc u = <cnp.ufunc>ufunc
    cdef int i
    for i in range(u.ntypes):
        if u.types[2 * i] == cnp.NPY_DOUBLE and u.types[2 * i + 1] == cnp.NPY_DOUBLE:
            loops[opcode] = u.functions[i]
            loop_data[opcode] = u.data[i] if u.data != NULL else NULL
            break
    return 0


cdef int find_loop2(object ufunc, int opcode) except -1:
    """Look up the loop of a ufunc of two float64 arguments."""
    cdef cnp.ufunc u = <cnp.ufunc>ufunc
    cdef int i
    for i in range(u.ntypes):
        if (u.types[3 * i] == cnp.NPY_DOUBLE and u.types[3 * i + 1] == cnp.NPY_DOUBLE
                and u.types[3 * i + 2] == cnp.NPY_DOUBLE):
            loops[opcode] = u.functions[i]
            loop_data[opcode] = u.data[i] if u.data != NULL else NULL
            break
    return 0


cdef inline bint run_binary(int opcode, Py_ssize_t n, const double *x, int x_step, const double *y,
                            int y_step, double *out) noexcept:
    """Compute an operation of two arguments; return whether all results are finite."""
    cdef char *at[3]
    cdef cnp.npy_intp size = n
    cdef cnp.npy_intp steps[3]
    if loops[opcode] == NULL:
        return DOUBLES.binary(opcode, 1, n, x, 0, x_step, y, 0, y_step, out)
    at[0], at[1], at[2] = <char *>x, <char *>y, <char *>out
    steps[0], steps[1], steps[2] = x_step * sizeof(double), y_step * sizeof(double), sizeof(double)
    loops[opcode](at, &size, steps, loop_data[opcode])
    return DOUBLES.all_finite(n, out)


cdef inline bint run_loop(int opcode, Py_ssize_t n, const double *x, double *out) noexcept:
    """Compute a ufunc on n numbers; return whether all results are finite."""
    cdef char *at[2]
    cdef cnp.npy_intp size = n
    cdef cnp.npy_intp steps[2]
    at[0], at[1] = <char *>x, <char *>out
    steps[0] = steps[1] = sizeof(double)
    loops[opcode](at, &size, steps, loop_data[opcode])
    return DOUBLES.all_finite(n, out)


cdef object value1(Primitive p, object x, object c):
    """Compute an operation of one argument (and a number c) on a plain value."""
    cdef Operand o
    cdef double r
    if c is None and read(x, &o) and loops[p.opcode] != NULL and type(x) is not int:
        if not o.step:
            if run_loop(p.opcode, 1, o.data, &r):
                return mercer_number(r)
        else:
            out = new_like(x)
            if run_loop(p.opcode, o.n, o.data, data_of(out)):
                return out
    elif c is not None and MERCER_IS_NUMBER(x):  # numbers have a power of their own
        return x ** c
    elif c is not None and type(c) is int and c == 2 and read(x, &o):  # as NumPy does
        return value2(MULTIPLY, x, x)
    # NumPy says what it has to say of values that are not finite.
    return p.fun(x) if c is None else p.fun(x, c)


cdef object value2(Primitive p, object x, object y):
    """Compute an operation of two arguments on plain values."""
    cdef Operand a, b
    cdef double r
    if read(x, &a) and read(y, &b) and a.n <= CHEAP_UP_TO and b.n <= CHEAP_UP_TO:
        if not a.step and not b.step:
            if run_binary(p.opcode, 1, a.data, 0, b.data, 0, &r):
                return mercer_number(r)
        elif not (a.step and b.step) or same_shape(x, y):
            out = new_like(x if a.step else y)
            if run_binary(p.opcode, a.n if a.step else b.n, a.data, a.step, b.data, b.step, data_of(out)):
                return out
        else:
            out = value2_pair(p.opcode, x, y)
            if out is not None:
                return out
    return p.fun(x, y)


# -- operators on traced values -------------------------------------------------------------------------


cdef object operator2(Primitive p, object x, object y):
    other = y if is_traced(x) else x
    if MERCER_IS_NUMBER(other) or isinstance(other, (Traced, int)) or type(other) is cnp.ndarray:
        return operate2(p, x, y)
    return NotImplemented if _declines(other) else apply(p, (x, y), {})


cdef object operate1(Primitive p, object x, object c):
    """Compute an operation of one argument (c None, or a plain number) on a value of any level."""
    cdef Traced t
    cdef Forward forward
    cdef Tape tape
    if not is_traced(x):
        return value1(p, x, c)
    t = <Traced>x
    if t._base is not None:
        fresh(t)
    if not t.level.open:
        raise ERRORS["closed"](p.name)
    below = t.value
    ans = operate1(p, below, c)
    if not is_differentiable(ans):
        raise ERRORS["type"](p.name, ans)
    if t.level.is_tape:
        tape = <Tape>t.level
        if slope_reads_answer(p.opcode) and is_large(ans):
            below = like_of(below)
        tape.begin(p, below, c, ans, 0)
        tape.parent(t.slot)
        if c is not None:
            tape.parent(-1)
        return traced(ans, tape, tape.n_slots - 1, None)
    forward = <Forward>t.level
    if t.tangent is None:
        return traced(ans, forward, -1, None)
    tangent = cast(slope_product(p, t.tangent, below, ans, c, forward.lead), ans)
    return traced(ans, forward, -1, tangent)


cdef object operate2(Primitive p, object x, object y):
    """Compute an operation of two arguments on values of any level."""
    cdef Level top = None
    cdef Traced tx = None, ty = None
    cdef Tape tape
    cdef Forward forward
    if is_traced(x):
        tx = <Traced>x
        if tx._base is not None:
            fresh(tx)
        top = tx.level
    if is_traced(y):
        ty = <Traced>y
        if ty._base is not None:
            fresh(ty)
        if tx is None or ty.level.order > top.order:
            top = ty.level
            tx = None
        elif ty.level is not top:
            ty = None
    if top is None:
        return value2(p, x, y)
    if p is POWER:
        if not is_traced(y) and plain_number(y):
            return operate1(p, x, y)
        return apply(p, (x, y), {})
    if not top.open:
        raise ERRORS["closed"](p.name)
    if tx is not None:
        x = tx.value
    if ty is not None:
        y = ty.value
    ans = operate2(p, x, y)
    if not is_differentiable(ans):
        raise ERRORS["type"](p.name, ans)
    if top.is_tape:
        tape = <Tape>top
        if p.opcode == MERCER_ADD or p.opcode == MERCER_SUBTRACT:  # only shapes matter
            x, y = shaped(x, tx is not None), shaped(y, ty is not None)
            tape.begin(p, x, y, None, 0)
        elif tx is ty and p is MULTIPLY and is_real(ans):
            # The same derivative at half the work; the answer's entries are not read.
            tape.begin(SQUARE, x, None, like_of(ans) if is_large(ans) else ans, 0)
            tape.parent(tx.slot)
            return traced(ans, tape, tape.n_slots - 1, None)
        elif p.opcode == MERCER_MULTIPLY and is_large(ans):  # each slope is the other argument
            kept = tape.kept(x) if tx is None else shaped(x, True) if ty is None else x
            y = tape.kept(y) if ty is None else shaped(y, True) if tx is None else y
            tape.begin(p, kept, y, None, 0)
        else:
            if tx is None:
                x = tape.kept(x)
            if ty is None:
                y = tape.kept(y)
            tape.begin(p, x, y, ans, 0)
        tape.parent(tx.slot if tx is not None else -1)
        tape.parent(ty.slot if ty is not None else -1)
        return traced(ans, tape, tape.n_slots - 1, None)
    forward = <Forward>top
    s = None if tx is None else tx.tangent
    t = None if ty is None else ty.tangent
    if tx is ty and p is MULTIPLY and s is not None and is_real(ans):
        tangent = cast(slope_product(SQUARE, s, x, ans, None, forward.lead), ans)
    else:
        tangent = push2(p, s, t, x, y, ans, forward)
    return traced(ans, forward, -1, tangent)


cdef inline bint is_large(object x):
    """Whether it pays not to keep an array of this length, and no loop for shorter ones would read it."""
    x = inside(x)
    return type(x) is cnp.ndarray and cnp.PyArray_SIZE(<cnp.ndarray>x) > CHEAP_UP_TO


cdef inline bint is_real(object x):
    """Whether a value is known to be of a real floating type."""
    cdef int number = type_number(x)
    return number >= 0 and cnp.PyTypeNum_ISFLOAT(number)


cdef inline bint slope_reads_answer(int op):
    """Whether the slope is computed from the answer alone."""
    return op in (MERCER_EXP, MERCER_TANH, MERCER_SQRT, MERCER_TAN, MERCER_RECIPROCAL)


cdef inline object shaped(object x, bint needed):
    """Return a plain number as it is, of others what tells shape and type; any number if it is not needed."""
    if needed and MERCER_IS_NUMBER(x):
        return x
    return 0.0 if not needed or MERCER_IS_NUMBER(inside(x)) else like_of(x)


cdef bint plain_number(object y):
    return MERCER_IS_NUMBER(y) or type(y) is int

# The reverse sweep. Part of _sweep.pyx.


def backward(Tape tape, list seeds, list inputs, chunk=None, bint last=False, Forward pushed=None):
    """Return the cotangents of some slots from those of others, last record first (LINMA 1.3).

    Parameters
    ----------
    tape : Tape
    seeds : list of (slot, cotangent)
        With `chunk`, cotangents have a leading axis of that length.
    inputs : list of int
        The slots asked for.
    chunk : int or None
    last : bool
        Whether no other sweep follows: records are forgotten on the way, which leaves room for cotangents.
    pushed : Forward, optional
        The level of which alone the result's tangents will be read: `inputs` are the tape's first slots, and
        what products give them has no value.

    Returns
    -------
    list
        A cotangent for each slot of `inputs`, None for zero.
    """
    before = keep_pages()
    try:
        return swept(tape, seeds, inputs, chunk, last, pushed)
    finally:
        restore_pages(before)


cdef class Quiet:
    """NumPy's warnings are off from `begin` to `end`. A sweep begins at its first step that may call NumPy:
    it takes 11,000 instructions, a step through a sine of ten numbers some 1,000.
    """

    cdef object state

    cdef int begin(self) except -1:
        if self.state is None:
            self.state = _errstate(all="ignore")
            self.state.__enter__()
        return 0

    cdef int end(self) except -1:
        if self.state is not None:
            self.state.__exit__(None, None, None)
        return 0


cdef list swept(Tape tape, list seeds, list inputs, object chunk, bint last, Forward pushed):
    cdef list held = [None] * tape.n_slots
    cdef bytearray owned = bytearray(tape.n_slots)  # whether the array in a slot is the sweep's own
    cdef Py_ssize_t i, j, begin, slot, served
    cdef int n
    cdef Primitive p
    cdef Quiet quiet = Quiet.__new__(Quiet)
    for at, g in seeds:
        held[at] = g if held[at] is None else held[at] + g
    tape.check_guards()
    tape.factors = {}  # no rule will ask again, and the records have those that they need
    try:
        for i in range(tape.n_records - 1, -1, -1):
            if last and i + 1 < tape.n_records:
                tape.forget(i + 1)
            slot = tape.headers[i].slot
            n = tape.headers[i].outputs
            p = <Primitive>tape.kept_of(i, PRIMITIVE)
            begin = tape.headers[i].first
            if n == 0:
                g = held[slot]
                if g is None:
                    continue
                held[slot] = None
                if p.opcode:
                    pull_operation(tape, i, p, g, owned[slot], held, owned, chunk, quiet)
                    continue
                if chunk is None and ((p is GETITEM and pull_index(tape, i, g, held, owned, quiet))
                                      or (p is SUM and pull_sum(tape, i, g, held, owned, quiet))):
                    continue
            else:
                g = tuple(held[slot:slot + n])
                for part in g:
                    if part is not None:
                        break
                else:
                    continue
                held[slot:slot + n] = [None] * n
            quiet.begin()
            served = 0
            if pushed is not None and p.bilinear:
                served = len(inputs)
                pull_tangents(tape, i, p, g, served, pushed, held, owned, quiet)
            needed = [tape.parents[j] >= served for j in range(begin, tape.headers[i + 1].first)]
            j = begin
            for part in p.pull(g, tape.kept_of(i, ANSWER), operands(tape, i), keywords(tape, i), needed,
                               chunk):
                if part is not None and tape.parents[j] >= 0:
                    # The list has it, too.
                    deposit(held, owned, tape.parents[j], part, is_unshared(part, 2), quiet)
                j += 1
    finally:
        quiet.end()
    if last and tape.n_records:
        tape.forget(0)
    return [held[at] for at in inputs]


cdef int pull_tangents(Tape tape, Py_ssize_t i, Primitive p, object g, Py_ssize_t n_inputs, Forward level,
                       list held, bytearray owned, Quiet quiet) except -1:
    """Pull the tangent of a cotangent back through a product to its arguments that are the tape's inputs."""
    cdef tuple args = <tuple>tape.kept_of(i, ARGS)
    cdef tuple values = tuple([at_level(a, level) for a in args])
    cdef Py_ssize_t which, slot
    for which in range(2):
        slot = tape.parents[tape.headers[i].first + which]
        if not 0 <= slot < n_inputs:
            continue
        rule, other = p.vjp[which], tangent_at(args[1 - which], level)
        part = tangent_at(g, level)
        if part is not None:
            part = rule(part, tape.kept_of(i, ANSWER), *values)
        if other is not None:
            moved = (other, values[1]) if which else (values[0], other)
            term = rule(at_level(g, level), tape.kept_of(i, ANSWER), *moved)
            part = term if part is None else part + term
        if part is not None:
            zero = np.broadcast_to(np.zeros((), np_like(part).dtype), shape_of(part))
            deposit(held, owned, slot, traced(zero, level, -1, part), False, quiet)
    return 0


cdef object tangent_at(object a, Level level):
    return (<Traced>a).tangent if is_traced(a) and (<Traced>a).level is level else None


cdef inline bint owns_memory(object part):
    return type(part) is cnp.ndarray and cnp.PyArray_CHKFLAGS(<cnp.ndarray>part, cnp.NPY_ARRAY_OWNDATA)


cdef int deposit(list held, bytearray owned, Py_ssize_t slot, object part, bint fresh_array,
                 Quiet quiet) except -1:
    """Add a cotangent to a slot; `fresh_array` says that nobody else has it."""
    have = held[slot]
    if have is None:
        held[slot] = part
        owned[slot] = fresh_array
    elif owned[slot] and owned_pair(have, part):
        mercer_accumulate(cnp.PyArray_SIZE(<cnp.ndarray>part), data_of(part), data_of(have))
    else:
        quiet.begin()
        held[slot] = operate2(ADD, have, part)
        owned[slot] = type(held[slot]) is cnp.ndarray
    return 0


cdef int pull_operation(Tape tape, Py_ssize_t i, Primitive p, object g, bint g_is_owned, list held,
                        bytearray owned, object chunk, Quiet quiet) except -1:
    """Pull a cotangent back through an operation that sweep.h knows."""
    cdef Operand a, o, q, k
    cdef Py_ssize_t begin = tape.headers[i].first
    cdef bint passed_on, is_ours
    cdef Py_ssize_t lead = 0 if chunk is None else chunk
    cdef int which
    x, y, r = tape.kept_of(i, ARGS), tape.kept_of(i, SECOND), tape.kept_of(i, ANSWER)
    if p.opcode == MERCER_POWER_BY and (tape.parents[begin + 1] >= 0 or not plain_number(y)):
        quiet.begin()
        needed = (tape.parents[begin] >= 0, tape.parents[begin + 1] >= 0)
        parts = elementwise_pull(p, g, r, (x, y), needed, chunk)
        for which in range(2):
            if parts[which] is not None:
                deposit(held, owned, tape.parents[begin + which], parts[which], False, quiet)
        return 0
    if p.opcode < MERCER_N_UNARY:
        k.number = 0.0
        if isinstance(x, Like):
            if top_of(g, r, None, None) is not None:  # the slope's derivative is that of the answer
                quiet.begin()
                part = elementwise_pull(p, g, r, (x,), (True,), chunk)[0]
                return deposit(held, owned, tape.parents[begin], part, is_unshared(part, 1), quiet)
            x = r
        if (g_is_owned and not lead and cnp.PyArray_CheckExact(g)
                and read(g, &a) and read(x, &o) and read(r, &q) and a.n == o.n and a.n == q.n
                and (a.n <= LIBM_UP_TO or slope_is_cheap(p.opcode))
                and (y is None or read(y, &k))):
            mercer_slope_product(p.opcode, 1, a.n, a.data, o.data, q.data, k.number, <double *>a.data)
            return deposit(held, owned, tape.parents[begin], g, True, quiet)
        quiet.begin()
        if real_of(g, x):
            part = slope_product(p, g, x, r, y, lead)
        else:
            part = elementwise_pull(p, g, r, operands(tape, i), (True, False), chunk)[0]
        return deposit(held, owned, tape.parents[begin], part, is_unshared(part, 1), quiet)
    quiet.begin()
    part0 = part1 = None
    if tape.parents[begin] >= 0:
        part0 = pulled2(p, 0, g, x, y, r, chunk, g_is_owned and tape.parents[begin + 1] < 0)
    if tape.parents[begin + 1] >= 0:
        part1 = pulled2(p, 1, g, x, y, r, chunk, g_is_owned and not shares(part0, g))
    # g itself stays the sweep's own if one argument alone has it.
    passed_on = g_is_owned and not (part0 is g and part1 is g)
    if part0 is not None:
        is_ours = passed_on if part0 is g else is_unshared(part0, 1)
        deposit(held, owned, tape.parents[begin], part0, is_ours, quiet)
    if part1 is not None:
        is_ours = passed_on if part1 is g else is_unshared(part1, 1)
        deposit(held, owned, tape.parents[begin + 1], part1, is_ours, quiet)
    return 0


cdef object pulled2(Primitive p, int which, object g, object x, object y, object r, object chunk,
                    bint g_is_free):
    """Return the cotangent of an argument of a binary operation, in the place of g if that is free."""
    of = y if which else x
    if p.opcode == MERCER_ADD or p.opcode == MERCER_SUBTRACT:
        return pulled_term(p, which, g, x, y, chunk, g_is_free)
    if not (real_of(g, x) and real_of(g, y)):
        return elementwise_pull(p, g, r, (x, y), (which == 0, which == 1), chunk)[which]
    if chunk is None and p.opcode == MERCER_MULTIPLY and MERCER_IS_NUMBER(of):
        part = scaled_sum(g, x if which else y)
        if part is not None:
            return part
    if g_is_free and scaled_in_place(p, which, g, x, y):
        part = g
    else:
        part = slope_product2(p, which, g, x, y, r, 0 if chunk is None else chunk, r)
    if MERCER_IS_NUMBER(inside(part)) and MERCER_IS_NUMBER(inside(of)):
        return part
    return summed(part, of, chunk)


cdef object pulled_term(Primitive p, int which, object g, object x, object y, object chunk, bint g_is_free):
    """Return the cotangent of a term of a sum or difference."""
    part, of = g, y if which else x
    if not (MERCER_IS_NUMBER(inside(g)) and MERCER_IS_NUMBER(inside(of))):
        part = summed(g, of, chunk)
    if p.opcode == MERCER_ADD or not which:
        return part
    # The sums over copies are negated, which are fewer.
    return g if part is g and g_is_free and scaled_in_place(p, 1, g, x, y) else operate1(NEGATIVE, part, None)


cdef object scaled_sum(object g, object slope):
    """Return Σ g · slope of float64 arrays in C order, without an array of the products; else None."""
    cdef Operand a, b
    cdef Traced t
    if is_dual(g):
        t = <Traced>g
        value, tangent = scaled_sum(t.value, slope), scaled_sum(t.tangent, slope)
        return None if value is None or tangent is None else traced(value, t.level, -1, tangent)
    if read(g, &a) and read(slope, &b) and a.step and b.step and same_shape(g, slope):
        return mercer_number(mercer_scaled_sum(a.n, a.data, b.data))
    return None


cdef bint scaled_in_place(Primitive p, int which, object g, object x, object y):
    """Multiply g by the slope of a product or of what is subtracted; return 0 if not both are C-ordered."""
    cdef Operand b
    cdef Traced t
    if p.opcode != MERCER_MULTIPLY and p.opcode != MERCER_SUBTRACT:
        return False
    slope = -1.0 if p.opcode == MERCER_SUBTRACT else x if which else y
    if not read(slope, &b):
        return False
    if is_dual(g):
        t = <Traced>g
        if not (is_scalable(t.value, slope) and is_scalable(t.tangent, slope)):
            return False
        mercer_scale(cnp.PyArray_SIZE(<cnp.ndarray>t.tangent), data_of(t.tangent), b.data, b.step)
        g = t.value
    elif not is_scalable(g, slope):
        return False
    mercer_scale(cnp.PyArray_SIZE(<cnp.ndarray>g), data_of(g), b.data, b.step)
    return True


cdef bint is_dual(object g):
    """Whether a cotangent is that of a Hessian-vector product: plain, with one plain tangent."""
    cdef Traced t
    if not is_traced(g):
        return False
    t = <Traced>g
    return (not t.level.is_tape and not (<Forward>t.level).lead and t._base is None
            and type(t.value) is cnp.ndarray and type(t.tangent) is cnp.ndarray)


cdef bint is_scalable(object g, object slope):
    return (type(g) is cnp.ndarray and cnp.PyArray_TYPE(<cnp.ndarray>g) == cnp.NPY_DOUBLE
            and cnp.PyArray_ISCARRAY(<cnp.ndarray>g) and cnp.PyArray_NDIM(<cnp.ndarray>g)
            and (MERCER_IS_NUMBER(slope) or type(slope) is int or same_shape(g, slope)))


cdef bint shares(object part, object g):
    """Whether an array may have another's memory."""
    if isinstance(part, cnp.ndarray):
        return part is g or not cnp.PyArray_CHKFLAGS(<cnp.ndarray>part, cnp.NPY_ARRAY_OWNDATA)
    return is_traced(part) and len(shape_of(part)) > 0


cdef bint is_unshared(object part, Py_ssize_t references):
    """Whether an array's memory is its own, and nobody has the array but the caller's references."""
    cdef PyObject *value
    cdef PyObject *tangent
    if type(part) is cnp.ndarray:
        return is_lone(<PyObject *>part, references)
    if not is_dual(part) or mercer_references(<PyObject *>part) > references:
        return False
    value, tangent = <PyObject *>(<Traced>part).value, <PyObject *>(<Traced>part).tangent
    return is_lone(value, 1) and is_lone(tangent, 1)


cdef bint is_lone(PyObject *array, Py_ssize_t references):
    if mercer_references(array) > references:
        return False
    return (cnp.PyArray_CHKFLAGS(<cnp.ndarray>array, cnp.NPY_ARRAY_OWNDATA)
            and cnp.PyArray_ISWRITEABLE(<cnp.ndarray>array))


cdef object summed(object part, object x, object chunk):
    """Return a part of a cotangent in the shape and type of its argument."""
    if (chunk is None and type(part) is cnp.ndarray and MERCER_IS_NUMBER(x)
            and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>part)
            and cnp.PyArray_TYPE(<cnp.ndarray>part) == cnp.NPY_DOUBLE):
        return mercer_number(mercer_sum(cnp.PyArray_SIZE(<cnp.ndarray>part), data_of(part)))
    return unbroadcast(part, x, chunk)


cdef bint real_of(object g, object x):
    """Whether neither value is complex."""
    return not (is_complex(g) or (x is not None and is_complex(x)))

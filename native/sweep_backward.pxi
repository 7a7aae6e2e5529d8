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
        The level of which alone the results' tangents are wanted: they are returned in the cotangents' place.
        There are no other inputs than `inputs`, and no chunk.

    Returns
    -------
    list
        A cotangent for each slot of `inputs`, None for zero.
    """
    cdef Sweep sweep = Sweep.__new__(Sweep)
    sweep.tape, sweep.chunk, sweep.last, sweep.pushed = tape, chunk, last, pushed
    sweep.held, sweep.owned = [None] * tape.n_slots, bytearray(tape.n_slots)
    before = keep_pages()
    try:
        swept(sweep, seeds)
    finally:
        restore_pages(before)
    return [sweep.held[at] for at in inputs]


@cython.final
cdef class Sweep:
    """What a sweep goes through its records with."""

    cdef Tape tape
    cdef object chunk
    cdef bint last
    cdef list held             # the cotangent in each slot
    cdef bytearray owned       # whether the array in a slot is the sweep's own
    cdef Forward pushed
    cdef bytearray bare        # with `pushed`: of which slots the cotangent's tangent alone is held
    cdef object quiet

    cdef int hush(self) except -1:
        """Turn NumPy's warnings off for the rest of the sweep. It does so at its first step that may call
        NumPy: it takes 11,000 instructions, a step through a sine of ten numbers some 1,000.
        """
        if self.quiet is None:
            self.quiet = _errstate(all="ignore")
            self.quiet.__enter__()
        return 0

    cdef int end(self) except -1:
        if self.quiet is not None:
            self.quiet.__exit__(None, None, None)
        return 0

    cdef inline bint is_bare(self, Py_ssize_t slot):
        return self.pushed is not None and self.bare[slot]


cdef int swept(Sweep sweep, list seeds) except -1:
    cdef Tape tape = sweep.tape
    cdef Py_ssize_t i
    tape.check_guards()
    tape.factors = {}  # no rule will ask again, and the records have those that they need
    if sweep.pushed is not None:
        sweep.bare = bare_slots(tape, sweep.pushed)
    try:
        for at, g in seeds:
            if sweep.is_bare(at):
                g = tangent_at(g, sweep.pushed)
            if g is not None:
                deposit(sweep, at, g, False)
        for i in range(tape.n_records - 1, -1, -1):
            if sweep.last and i + 1 < tape.n_records:
                tape.forget(i + 1)
            pull_record(sweep, i)
    finally:
        sweep.end()
    if sweep.last and tape.n_records:
        tape.forget(0)
    return 0


cdef int pull_record(Sweep sweep, Py_ssize_t i) except -1:
    """Pull what is held of a record's answer back to its arguments."""
    cdef Tape tape = sweep.tape
    cdef Py_ssize_t slot = tape.headers[i].slot, j = tape.headers[i].first
    cdef int n = tape.headers[i].outputs
    cdef Primitive p = <Primitive>tape.kept_of(i, PRIMITIVE)
    cdef tuple args
    if n == 0:
        g = sweep.held[slot]
        if g is None:
            return 0
        sweep.held[slot] = None
        if p.opcode:
            return pull_operation(sweep, i, p, g)
        if sweep.chunk is None and ((p is GETITEM and pull_index(sweep, i, g))
                                    or (p is SUM and pull_sum(sweep, i, g))):
            return 0
    else:
        g = tuple(sweep.held[slot:slot + n])
        for part in g:
            if part is not None:
                break
        else:
            return 0
        sweep.held[slot:slot + n] = [None] * n
    sweep.hush()
    args = operands(tape, i)
    needed = [tape.parents[k] >= 0 for k in range(j, tape.headers[i + 1].first)]
    if sweep.is_bare(slot):
        args = tuple([at_level(a, sweep.pushed) for a in args])
    elif p.bilinear and sweep.pushed is not None:
        pull_tangents(sweep, i, p, g, needed)
    for part in p.pull(g, tape.kept_of(i, ANSWER), args, keywords(tape, i), needed, sweep.chunk):
        if part is not None and tape.parents[j] >= 0:
            # The list has it, too.
            deposit_part(sweep, slot, tape.parents[j], part, is_unshared(part, 2))
        j += 1
    return 0


cdef inline bint owns_memory(object part):
    return type(part) is cnp.ndarray and cnp.PyArray_CHKFLAGS(<cnp.ndarray>part, cnp.NPY_ARRAY_OWNDATA)


cdef int deposit(Sweep sweep, Py_ssize_t slot, object part, bint fresh_array) except -1:
    """Add a cotangent to a slot; `fresh_array` says that nobody else has it."""
    have = sweep.held[slot]
    if have is None:
        sweep.held[slot] = part
        sweep.owned[slot] = fresh_array
    elif not (sweep.owned[slot] and accumulate(have, part)):
        sweep.hush()
        sweep.held[slot] = have = operate2(ADD, have, part)
        sweep.owned[slot] = type(have) is cnp.ndarray
    return 0


cdef int deposit_part(Sweep sweep, Py_ssize_t answer, Py_ssize_t slot, object part,
                      bint fresh_array) except -1:
    """Add what the cotangent of a record's answer (in the slot `answer`) gives to an argument."""
    if sweep.is_bare(slot) and not sweep.is_bare(answer):
        part = tangent_at(part, sweep.pushed)
    return 0 if part is None else deposit(sweep, slot, part, fresh_array)


cdef int pull_operation(Sweep sweep, Py_ssize_t i, Primitive p, object g) except -1:
    """Pull a cotangent back through an operation that sweep.h knows."""
    cdef Operand a, o, q, k
    cdef Tape tape = sweep.tape
    cdef Py_ssize_t first = tape.headers[i].first, slot = tape.headers[i].slot, parent = tape.parents[first]
    cdef Py_ssize_t lead = 0 if sweep.chunk is None else sweep.chunk
    cdef bint g_is_owned = sweep.owned[slot], narrowed
    cdef const MercerSweep *loops
    x, y, r = tape.kept_of(i, ARGS), tape.kept_of(i, SECOND), tape.kept_of(i, ANSWER)
    if sweep.is_bare(slot):
        x, y, r = at_level(x, sweep.pushed), at_level(y, sweep.pushed), at_level(r, sweep.pushed)
    if p.opcode == MERCER_POWER_BY and (tape.parents[first + 1] >= 0 or not plain_number(y)):
        sweep.hush()
        needed = (parent >= 0, tape.parents[first + 1] >= 0)
        for part in elementwise_pull(p, g, r, (x, y), needed, sweep.chunk):
            if part is not None:
                deposit_part(sweep, slot, tape.parents[first], part, False)
            first += 1
        return 0
    if p.opcode > MERCER_N_UNARY:
        return pull_operation2(sweep, i, p, g, x, y, r)
    k.number = 0.0
    narrowed = sweep.is_bare(parent) and not sweep.is_bare(slot)
    if isinstance(x, Like):
        if top_of(g, r, None, None) is not None:
            sweep.hush()
            part = slope_product_of_answer(p, g, x, r, sweep.chunk, sweep.pushed if narrowed else None)
            return 0 if part is None else deposit(sweep, parent, part, is_unshared(part, 1))
        x = r
    elif isinstance(r, Like):  # of a square
        r = x
    loops = loops_for(g)
    if (g_is_owned and not (narrowed or lead) and cnp.PyArray_CheckExact(g)
            and read_for(loops, g, &a) and read_for(loops, x, &o) and read_for(loops, r, &q)
            and a.n == o.n and a.n == q.n and (a.n <= LIBM_UP_TO or slope_is_cheap(p.opcode))
            and (y is None or read(y, &k))):
        loops.slope_product(p.opcode, 1, a.n, a.data, o.data, q.data, k.number, <double *>a.data)
        return deposit(sweep, parent, g, True)
    sweep.hush()
    if not real_of(g, x):
        part = elementwise_pull(p, g, r, (x,) if y is None else (x, y), (True, False), sweep.chunk)[0]
        return deposit_part(sweep, slot, parent, part, is_unshared(part, 1))
    if narrowed:
        part = pushed_slope_product(p, g, x, r, y, sweep.pushed)
    else:
        part = slope_product(p, g, x, r, y, lead)
    return 0 if part is None else deposit(sweep, parent, part, is_unshared(part, 1))


cdef int pull_operation2(Sweep sweep, Py_ssize_t i, Primitive p, object g, object x, object y,
                         object r) except -1:
    """Pull a cotangent back through an operation of two arguments."""
    cdef Tape tape = sweep.tape
    cdef Py_ssize_t first = tape.headers[i].first, slot = tape.headers[i].slot, parent
    cdef bint g_is_owned = sweep.owned[slot], narrowed = False, is_ours
    cdef int which
    cdef list parts = [None, None]
    sweep.hush()
    for which in range(2):
        parent = tape.parents[first + which]
        if parent >= 0 and sweep.is_bare(parent) and not sweep.is_bare(slot):
            parts[which], narrowed = pushed2(p, which, g, x, y, r, sweep.pushed), True
    for which in range(2):
        parent = tape.parents[first + which]
        if parent >= 0 and not (sweep.is_bare(parent) and not sweep.is_bare(slot)):
            is_ours = not (narrowed or shares(parts[0], g) if which else tape.parents[first + 1] >= 0)
            parts[which] = pulled2(p, which, g, x, y, r, sweep.chunk, g_is_owned and is_ours)
    # g itself stays the sweep's own if one argument alone has it.
    g_is_owned = g_is_owned and not (narrowed or (parts[0] is g and parts[1] is g))
    for which in range(2):
        part, parts[which] = parts[which], None
        if part is not None:
            is_ours = g_is_owned if part is g else is_unshared(part, 1)
            deposit(sweep, tape.parents[first + which], part, is_ours)
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
        return mercer_number(DOUBLES.scaled_sum(a.n, a.data, b.data))
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
        DOUBLES.scale(cnp.PyArray_SIZE(<cnp.ndarray>t.tangent), data_of(t.tangent), b.data, b.step)
        g = t.value
    elif not is_scalable(g, slope):
        return False
    DOUBLES.scale(cnp.PyArray_SIZE(<cnp.ndarray>g), data_of(g), b.data, b.step)
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
        return mercer_number(DOUBLES.sum(cnp.PyArray_SIZE(<cnp.ndarray>part), data_of(part)))
    return unbroadcast(part, x, chunk)


cdef bint real_of(object g, object x):
    """Whether neither value is complex."""
    return not (is_complex(g) or (x is not None and is_complex(x)))

# The reverse sweep. Part of _sweep.pyx.


def backward(Tape tape, list seeds, list inputs, chunk=None):
    """Return the cotangents of some slots from those of others, last record first (LINMA 1.3).

    Parameters
    ----------
    tape : Tape
    seeds : list of (slot, cotangent)
        With `chunk`, cotangents have a leading axis of that length.
    inputs : list of int
        The slots asked for.
    chunk : int or None

    Returns
    -------
    list
        A cotangent for each slot of `inputs`, None for zero.
    """
    cdef list held = [None] * tape.n_slots
    cdef bytearray owned = bytearray(tape.n_slots)  # whether the array in a slot is the sweep's own
    cdef Py_ssize_t i, j, begin, slot
    cdef int n
    cdef Primitive p
    for at, g in seeds:
        held[at] = g if held[at] is None else held[at] + g
    tape.check_guards()
    with _errstate(all="ignore"):
        for i in range(tape.n_records - 1, -1, -1):
            slot = tape.slots[i]
            n = tape.outputs[i]
            p = <Primitive>tape.primitives[i]
            begin = tape.first[i]
            if n == 0:
                g = held[slot]
                if g is None:
                    continue
                held[slot] = None
                if p.opcode:
                    pull_operation(tape, i, p, g, owned[slot], held, owned, chunk)
                    continue
                if chunk is None and ((p is GETITEM and pull_index(tape, i, g, held, owned))
                                      or (p is SUM and pull_sum(tape, i, g, held, owned))):
                    continue
            else:
                g = tuple(held[slot:slot + n])
                for part in g:
                    if part is not None:
                        break
                else:
                    continue
                held[slot:slot + n] = [None] * n
            needed = [tape.parents[j] >= 0 for j in range(begin, tape.first[i + 1])]
            kwargs = tape.kwargs[i]
            j = begin
            if kwargs is None:
                kwargs = {}
            for part in p.pull(g, tape.answers[i], operands(tape, i), kwargs, needed, chunk):
                if part is not None and tape.parents[j] >= 0:
                    deposit(held, owned, tape.parents[j], part, False)
                j += 1
    return [held[at] for at in inputs]


cdef inline bint owns_memory(object part):
    return type(part) is cnp.ndarray and cnp.PyArray_CHKFLAGS(<cnp.ndarray>part, cnp.NPY_ARRAY_OWNDATA)


cdef int deposit(list held, bytearray owned, Py_ssize_t slot, object part, bint fresh_array) except -1:
    """Add a cotangent to a slot; `fresh_array` says that nobody else has it."""
    have = held[slot]
    if have is None:
        held[slot] = part
        owned[slot] = fresh_array
    elif owned[slot] and owned_pair(have, part):
        mercer_accumulate(cnp.PyArray_SIZE(<cnp.ndarray>part), data_of(part), data_of(have))
    else:
        held[slot] = operate2(ADD, have, part)
        owned[slot] = type(held[slot]) is cnp.ndarray
    return 0


cdef int pull_operation(Tape tape, Py_ssize_t i, Primitive p, object g, bint g_is_owned, list held,
                        bytearray owned, object chunk) except -1:
    """Pull a cotangent back through an operation that sweep.h knows."""
    cdef Operand a, o, q, k
    cdef Py_ssize_t begin = tape.first[i], parent
    cdef Py_ssize_t lead = 0 if chunk is None else chunk
    cdef int which
    x, y, r = tape.args[i], tape.seconds[i], tape.answers[i]
    if p.opcode == MERCER_POWER_BY and (tape.parents[begin + 1] >= 0 or not plain_number(y)):
        needed = (tape.parents[begin] >= 0, tape.parents[begin + 1] >= 0)
        parts = elementwise_pull(p, g, r, (x, y), needed, chunk)
        for which in range(2):
            if parts[which] is not None:
                deposit(held, owned, tape.parents[begin + which], parts[which], False)
        return 0
    if p.opcode < MERCER_N_UNARY:
        k.number = 0.0
        if (g_is_owned and not lead and cnp.PyArray_CheckExact(g)
                and read(g, &a) and read(x, &o) and read(r, &q) and a.n == o.n and a.n == q.n
                and (a.n <= LIBM_UP_TO or slope_is_cheap(p.opcode))
                and (y is None or read(y, &k))):
            mercer_slope_product(p.opcode, 1, a.n, a.data, o.data, q.data, k.number, <double *>a.data)
            return deposit(held, owned, tape.parents[begin], g, True)
        if real_of(g, x):
            part = slope_product(p, g, x, r, y, lead)
        else:
            part = elementwise_pull(p, g, r, operands(tape, i), (True, False), chunk)[0]
        return deposit(held, owned, tape.parents[begin], part, part is not g)
    for which in range(2):
        parent = tape.parents[begin + which]
        if parent < 0:
            continue
        of = y if which else x
        if p.opcode == MERCER_ADD or p.opcode == MERCER_SUBTRACT:
            pull_term(g, of, p.opcode == MERCER_SUBTRACT and which, parent, held, owned, chunk)
            continue
        if real_of(g, x) and real_of(g, y):
            part = slope_product2(p, which, g, x, y, r, lead, r)
            fresh_array = part is not g
            if not (MERCER_IS_NUMBER(inside(part)) and MERCER_IS_NUMBER(inside(of))):
                part = summed(part, of, chunk)
        else:
            part = elementwise_pull(p, g, r, (x, y), (which == 0, which == 1), chunk)[which]
            fresh_array = False
        deposit(held, owned, parent, part, fresh_array and not is_traced(part))
    return 0


cdef int pull_term(object g, object of, bint negative, Py_ssize_t parent, list held, bytearray owned,
                   object chunk) except -1:
    """Pull a cotangent back to a term of a sum or difference."""
    part = g
    if not (MERCER_IS_NUMBER(inside(g)) and MERCER_IS_NUMBER(inside(of))):
        part = summed(g, of, chunk)
    if negative:  # of the sums over copies, which are fewer
        part = operate1(NEGATIVE, part, None)
    deposit(held, owned, parent, part, part is not g and owns_memory(part))
    return 0


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

# Sweeps of which the tangents alone are wanted: Hessian-vector products. Part of _sweep.pyx.
#
# From the inputs up to the first operations whose slopes have tangents nobody reads the values of cotangents.
# There the sweep holds their tangents bare, which such operations pass on as they do any cotangent: the half
# of a sum over pairs.


cdef bytearray bare_slots(Tape tape, Level level):
    """Return for each slot whether only the tangent of its cotangent will be read, at a level."""
    cdef bytearray bare = bytearray(b"\1") * tape.n_slots
    cdef Py_ssize_t i, j, slot
    cdef bint is_bare
    for i in range(tape.n_records):
        is_bare = slopes_are_constant(tape, i, level)
        for j in range(tape.headers[i].first, tape.headers[i + 1].first):
            is_bare = is_bare and (tape.parents[j] < 0 or bare[tape.parents[j]])
        if not is_bare:
            slot = tape.headers[i].slot
            for j in range(max(tape.headers[i].outputs, 1)):
                bare[slot + j] = False
    return bare


cdef bint slopes_are_constant(Tape tape, Py_ssize_t i, Level level):
    """Whether the slopes that a record's pullback multiplies by are known to have no tangents at a level."""
    cdef Primitive p = <Primitive>tape.kept_of(i, PRIMITIVE)
    cdef Py_ssize_t first = tape.headers[i].first, n = tape.headers[i + 1].first - first, j
    cdef tuple args
    if p.opcode == MERCER_ADD or p.opcode == MERCER_SUBTRACT or p.opcode == MERCER_NEGATIVE:
        return True
    if p.opcode and p.opcode < MERCER_N_UNARY:
        return False
    args = operands(tape, i)
    if p.opcode == MERCER_MULTIPLY or p.opcode == MERCER_SCALE or p.bilinear:
        for j in range(2):
            if tape.parents[first + j] >= 0 and stands_at(args[1 - j], level):
                return False
        return True
    if p.opcode == MERCER_DIVIDE or p.linear:
        for j in range(1, n):
            if tape.parents[first + j] >= 0 or stands_at(args[j], level):
                return False
        return True
    return False


cdef inline bint stands_at(object a, Level level):
    return is_traced(a) and (<Traced>a).level is level


cdef object tangent_at(object a, Level level):
    return (<Traced>a).tangent if stands_at(a, level) else None


cdef object pushed_slope_product(Primitive p, object g, object x, object r, object c, Forward level):
    """Return the tangent of g · f'(x), r = f(x), None for zero."""
    s, u = tangent_at(g, level), tangent_at(x, level)
    if s is None and u is None:
        return None
    if below_is_plain(g, x, r, level):
        return slope_push(p, s, at_level(g, level), at_level(x, level), at_level(r, level), c, u, 0)
    return tangent_at(slope_product(p, g, x, r, c, 0), level)


cdef object pushed2(Primitive p, int which, object g, object x, object y, object r, Forward level):
    """Return the tangent of what `pulled2` returns, None for zero."""
    cdef Pushed2 o
    of = y if which else x
    if p.opcode == MERCER_ADD or p.opcode == MERCER_SUBTRACT:
        g = tangent_at(g, level)
        return None if g is None else pulled_term(p, which, g, x, y, None, False)
    if read_pushed2(&o, g, x, y, r, level):
        part = slope_push2(p.opcode, which, &o, at_level(r, level))
        return None if part is None else summed(part, of, None)
    return tangent_at(pulled2(p, which, g, x, y, r, None, False), level)


cdef int pull_tangents(Sweep sweep, Py_ssize_t i, Primitive p, object g, list needed) except -1:
    """Pull a cotangent's tangent back through a product to those arguments of which no more is wanted."""
    cdef Tape tape = sweep.tape
    cdef Forward level = sweep.pushed
    cdef tuple args = <tuple>tape.kept_of(i, ARGS)
    cdef tuple values = tuple([at_level(a, level) for a in args])
    cdef Py_ssize_t which, slot
    for which in range(2):
        slot = tape.parents[tape.headers[i].first + which]
        if slot < 0 or not sweep.bare[slot]:
            continue
        needed[which] = False
        rule, other, part = p.vjp[which], tangent_at(args[1 - which], level), tangent_at(g, level)
        if part is not None:
            part = rule(part, tape.kept_of(i, ANSWER), *values)
        if other is not None:
            moved = (other, values[1]) if which else (values[0], other)
            term = rule(at_level(g, level), tape.kept_of(i, ANSWER), *moved)
            part = term if part is None else added_to(part, term)
        if part is not None:
            deposit(sweep, slot, part, is_unshared(part, 1))
    return 0

# Linear maps on values of any level without a rule in Python: basic indexing and sums. Part of _sweep.pyx.


cpdef object apply_linear(Primitive p, object x, tuple rest, dict kwargs):
    """Compute a function that is linear in its first argument, the only one that may be traced.

    With other arguments the same it maps tangents, too (a chunk's leading axis is its rule's business).
    """
    cdef Traced t
    cdef Tape tape
    cdef Forward forward
    if not is_traced(x):
        out = short_sums(x, rest) if p is SUM and not kwargs else None
        return p.fun(x, *rest, **kwargs) if out is None else out
    t = fresh(<Traced>x)
    if not t.level.open:
        raise ERRORS["closed"](p.name)
    ans = apply_linear(p, t.value, rest, kwargs)
    if t.level.is_tape:
        tape = <Tape>t.level
        tape.begin(p, (like_of(t.value), *rest), kwargs, like_of(ans), 0)
        tape.parent(t.slot)
        for _ in rest:
            tape.parent(-1)
        return traced(ans, tape, tape.n_slots - 1, None)
    forward = <Forward>t.level
    tangent = None
    if t.tangent is not None:
        if forward.lead:
            tangent = p.push([t.tangent] + [None] * len(rest), ans, (t.value, *rest), kwargs, forward.chunk)
        else:
            tangent = apply_linear(p, t.tangent, rest, kwargs)
    return traced(ans, forward, -1, tangent)


# -- basic indexing -------------------------------------------------------------------------------------


cdef class ReadAgain:
    """How a view by basic indexing is read again from its base."""

    cdef readonly object index

    def __init__(self, index):
        self.index = index

    def __call__(self, base):
        """Return what the index reads from the base now."""
        return apply_linear(GETITEM, base, (), {"index": self.index})


cdef object read_basic(Traced x, object index):
    """Return x[index] as a view that sees later assignments, or a number."""
    cdef Traced out = apply_linear(GETITEM, x, (), {"index": index})
    if shape_of(out):
        out._base, out._base_version, out._again = x, x._version, ReadAgain(index)
    return out


cpdef bint is_basic(object index):
    """Whether an index makes a view (NumPy's basic indexing)."""
    if isinstance(index, tuple):
        for part in <tuple>index:
            if not is_basic_part(part):
                return False
        return True
    return is_basic_part(index)


cdef bint is_basic_part(object part):
    return (type(part) is int or part is None or part is Ellipsis or isinstance(part, slice)
            or isinstance(part, np.integer) or (isinstance(part, int) and not isinstance(part, bool)))


cdef bint only_adds_axes(object index):
    """Whether an index reads all entries in their order."""
    if not isinstance(index, tuple):
        index = (index,)
    for part in <tuple>index:
        if not (part is None or part is Ellipsis or (
                isinstance(part, slice) and part.start is None and part.stop is None and part.step is None)):
            return False
    return True


cdef object put_basic(object g, tuple shape, object index):
    """Return zeros with `g` at an index."""
    if only_adds_axes(index) and type(g) is cnp.ndarray:
        return g.reshape(shape)
    out = np.zeros(shape)
    out[index] = g
    return out


cdef int pull_index(Sweep sweep, Py_ssize_t i, object g) except -1:
    """Add the cotangent of x[index] into that of x where it stands; return 0 if that needs a rule.

    A loop over entries would else make an array of x's size for each.
    """
    cdef Tape tape = sweep.tape
    cdef Py_ssize_t parent = tape.parents[tape.headers[i].first]
    cdef tuple args = <tuple>tape.kept_of(i, ARGS)
    cdef Like x = <Like>args[0]
    if x.number != cnp.NPY_DOUBLE or type_number(g) != cnp.NPY_DOUBLE or parent < 0:
        return 0
    index = args[1] if len(args) > 1 else (<dict>tape.kept_of(i, SECOND))["index"]
    have = sweep.held[parent]
    if is_basic(index) and (have is None or is_traced(g) or is_traced(have) or only_adds_axes(index)):
        part = transposed(put_basic, g, x.shape, index)
        if part is not None:
            deposit(sweep, parent, part, owns_memory(part))
            return 1
    if is_traced(g) or is_traced(have):
        return 0
    if have is None:
        have = np.zeros(x.shape)
    elif type_number(have) != cnp.NPY_DOUBLE or MERCER_IS_NUMBER(have):
        return 0
    elif not (sweep.owned[parent] and cnp.PyArray_ISCARRAY(<cnp.ndarray>have)):
        have = np.array(have, np.float64)
    sweep.hush()
    if not is_basic(index):
        np.add.at(have, index, g)
    elif MERCER_IS_NUMBER(g) and type(index) is int and cnp.PyArray_NDIM(<cnp.ndarray>have) == 1:
        data_of(have)[<Py_ssize_t>index + (x.shape[0] if index < 0 else 0)] += <double>g
    else:
        have[index] += g
    sweep.held[parent] = have
    sweep.owned[parent] = True
    return 1


cdef object short_sums(object x, tuple how):
    """Return NumPy's sums, to the bit, over a short last axis of a float64 array; else None.

    NumPy takes 140 instructions for a sum of three numbers, this takes 15.
    """
    cdef cnp.ndarray a
    cdef Operand o
    cdef Py_ssize_t n
    cdef int ndim
    if type(x) is not cnp.ndarray:
        return None
    a = <cnp.ndarray>x
    ndim = cnp.PyArray_NDIM(a)
    if how != ((-1,), False) or ndim < 2 or cnp.PyArray_DIM(a, ndim - 1) >= MERCER_SHORT or not read(x, &o):
        return None
    out = mercer_new_array(ndim - 1, cnp.PyArray_DIMS(a))
    n = cnp.PyArray_SIZE(<cnp.ndarray>out)
    DOUBLES.sum_middle(n, cnp.PyArray_DIM(a, ndim - 1), 1, o.data, data_of(out))
    if DOUBLES.all_finite(n, data_of(out)):
        return out
    return None  # NumPy says what it has to say


# -- sums -----------------------------------------------------------------------------------------------


cdef int pull_sum(Sweep sweep, Py_ssize_t i, object g) except -1:
    """Add the cotangent of a sum into that of what was summed; return 0 if that needs a rule."""
    cdef Tape tape = sweep.tape
    cdef tuple args = <tuple>tape.kept_of(i, ARGS)
    cdef Like x = <Like>args[0]
    if x.number != cnp.NPY_DOUBLE or keywords(tape, i):
        return 0
    part = transposed(repeat_to, g, x.shape, args[1])
    if part is None:
        return 0
    deposit(sweep, tape.parents[tape.headers[i].first], part, type(part) is cnp.ndarray)
    return 1


# -- transposes on values of any level ------------------------------------------------------------------

# A linear map of float64 arrays in C order, and numbers: map(g, shape of the result, what else it needs).
ctypedef object (*Map)(object, tuple, object)


cdef object transposed(Map map, object g, tuple shape, object how):
    """Return a linear map of a value, None where that needs the rule: where its level is not forward mode
    in one direction, or inside is something else than float64.
    """
    cdef Traced t
    cdef Operand o
    if not is_traced(g):
        return map(g, shape, how) if read(g, &o) else None
    t = <Traced>g
    if t.level.is_tape or not t.level.open or (<Forward>t.level).lead:
        return None
    value = transposed(map, t.value, shape, how)
    tangent = None if t.tangent is None else transposed(map, t.tangent, shape, how)
    if value is None or (tangent is None and t.tangent is not None):
        return None
    return traced(value, t.level, -1, tangent)

# What every call of a derivative does with the leaves of its arguments and of its value. Part of _sweep.pyx.


def inputs_of(Tape tape, list leaves):
    """Return what a tape's inputs hold, and these inputs.

    What is assigned to an outer derivative's values later must not reach this tape.
    """
    cdef list values = [snapshot(x) if is_traced(x) else x for x in leaves]
    return values, [tape.variable(x) for x in values]


def outputs_of(Tape tape, list leaves):
    """Return for each leaf of a function's value its slot (None if it is of no tape or another), and what it
    holds.
    """
    cdef list slots = [], values = []
    for x in leaves:
        ours = belongs(x, tape)
        slots.append((<Traced>x).slot if ours else None)
        values.append((<Traced>x).value if ours else x)
    return slots, values


cpdef bint belongs(object x, Level level):
    """Whether a value is traced at a level."""
    return is_traced(x) and fresh(<Traced>x).level is level


def pulled(Tape tape, list slots, cotangents, list leaves, chunk=None, bint last=False, pushed=None):
    """Return the cotangents of a tape's inputs, None where nothing depends on them.

    Parameters
    ----------
    tape : Tape
    slots : list of int or None
        Of the outputs.
    cotangents : sequence
        Theirs, None for zero.
    leaves : list
        What the inputs hold: they are the tape's first slots.
    chunk : int or None
    last : bool
        Whether no other sweep follows.
    pushed : Forward, optional
        The level of which alone tangents are wanted: these are returned.
    """
    cdef list seeds = [], inputs = [], result
    cdef Py_ssize_t i
    if len(cotangents) != len(slots):
        raise ValueError(f"there are {len(cotangents)} cotangents for {len(slots)} outputs")
    for i in range(len(slots)):
        if slots[i] is not None and cotangents[i] is not None:
            seeds.append((slots[i], cotangents[i]))
    for i in range(len(leaves)):
        inputs.append(i)
    result = backward(tape, seeds, inputs, chunk, last, pushed)
    for i in range(len(leaves)):
        result[i] = cast(result[i], leaves[i])
    return result


def zeros_for_none(list cotangents, list leaves, chunk=None):
    """Put zeros of the leaves' shapes and types where there is None."""
    cdef Py_ssize_t i
    cdef tuple lead = () if chunk is None else (chunk,)
    for i in range(len(leaves)):
        if cotangents[i] is None:
            cotangents[i] = np.zeros(lead + shape_of(leaves[i]), np_like(leaves[i]).dtype)[()]
    return cotangents


def owned(list arrays, others):
    """Return arrays that may be written into: copies of those that share memory or are read-only."""
    cdef set seen = {id(x) for x in others}
    cdef list result = []
    for x in arrays:
        if isinstance(x, cnp.ndarray) and (
            id(x) in seen or not cnp.PyArray_CHKFLAGS(<cnp.ndarray>x, cnp.NPY_ARRAY_OWNDATA)
            or not cnp.PyArray_ISWRITEABLE(<cnp.ndarray>x)
        ):
            x = x.copy()
        seen.add(id(x))
        result.append(x)
    return result

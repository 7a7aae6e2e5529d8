"""The reverse sweep over a tape (LINMA 1.3): from the last record to the first, without recursion."""

__all__ = ["backward"]


def backward(tape, seeds, inputs, chunk=None):
    """Return the cotangents of some slots from those of others.

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
    held = [None] * tape.n_slots
    for slot, g in seeds:
        held[slot] = g if held[slot] is None else held[slot] + g
    for primitive, args, kwargs, parents, ans, slot, n_outputs in reversed(tape.records):
        if n_outputs:
            g = tuple(held[slot : slot + n_outputs])
            if all(part is None for part in g):
                continue
        else:
            g = held[slot]
            if g is None:
                continue
        needed = [p >= 0 for p in parents]
        for parent, part in zip(parents, primitive.pull(g, ans, args, kwargs, needed, chunk), strict=False):
            if parent >= 0 and part is not None:
                held[parent] = part if held[parent] is None else held[parent] + part
        held[slot : slot + (n_outputs or 1)] = [None] * (n_outputs or 1)
    return [held[slot] for slot in inputs]

# Primitives, and how they are applied to values of any levels. Part of _sweep.pyx.


cdef class Primitive:
    """A function with a derivative rule.

    Parameters
    ----------
    fun : callable
        Computes the value from plain arrays.
    jvp, vjp : see :func:`mercer.autodiff.rules.define`
    name : str
        For messages.
    batched : bool
        Whether `jvp` and `vjp` take tangents and cotangents with one more leading axis, a direction each;
        if not, they are called once for each direction.
    view : bool
        Whether NumPy returns a view of the first argument.
    linear : bool
        Whether the function is linear in its first argument, so that no derivative needs its entries.
    unread : bool
        Whether `vjp` needs the answer's shape and type only, as `linear` implies.
    bilinear : bool
        Whether it is a product of two arguments, linear in each; `vjp` is then a sequence.
    partials : tuple, optional
        Of an elementwise function: for each argument ``partial(ans, *args)``, a number, or None for zero.
    opcode : int
        Its number among the operations of sweep.h, or 0.
    """

    cdef public object fun, jvp, vjp
    cdef public str name
    cdef public bint batched, view, linear, unread, bilinear
    cdef public tuple partials
    cdef public int opcode
    cdef object __weakref__

    def __init__(self, fun, jvp=None, vjp=None, *, name=None, batched=False, view=False, linear=False,
                 unread=False, bilinear=False, partials=None, opcode=0):
        self.fun, self.jvp, self.vjp = fun, jvp, vjp
        self.name = name or getattr(fun, "__name__", repr(fun))
        self.batched, self.view, self.linear, self.unread = batched, view, linear, unread
        self.bilinear, self.partials, self.opcode = bilinear, partials, opcode

    def __repr__(self):
        return f"<primitive {self.name}>"

    def __call__(self, *args, **kwargs):
        return apply(self, args, kwargs)

    def push(self, tangents, ans, args, kwargs, chunk):
        """Return the tangent of the answer (a tuple if that is one), None where it is zero.

        `tangents` has None for each zero; with `chunk` they have a leading axis of that length.
        """
        if self.partials is not None:
            return elementwise_push(self, tangents, ans, args, chunk)
        with _errstate(all="ignore"):
            if chunk is None or self.batched:
                return self._push(tangents, ans, args, kwargs)
            return _joined([
                self._push([None if t is None else t[i] for t in tangents], ans, args, kwargs)
                for i in range(chunk)
            ])

    def pull(self, cotangent, ans, args, kwargs, needed, chunk):
        """Return a cotangent (or None for zero) for each argument that is `needed`.

        `cotangent` is an array, or for a tuple of outputs a tuple with None for each zero.
        """
        if self.partials is not None:
            return elementwise_pull(self, cotangent, ans, args, needed, chunk)
        if chunk is None or self.batched:
            return self._pull(cotangent, ans, args, kwargs, needed)
        if isinstance(cotangent, tuple):
            rows = [tuple([None if g is None else g[i] for g in cotangent]) for i in range(chunk)]
        else:
            rows = [cotangent[i] for i in range(chunk)]
        return _joined([tuple(self._pull(g, ans, args, kwargs, needed)) for g in rows])

    def _push(self, tangents, ans, args, kwargs):
        if self.jvp is None:
            return ERRORS["transposed pull"](self, tangents, ans, args, kwargs)
        if callable(self.jvp):
            return self.jvp(tangents, ans, *args, **kwargs)
        total = None
        for rule, tangent in zip(self.jvp, tangents):
            if tangent is not None and rule is not None:
                term = rule(tangent, ans, *args, **kwargs)
                if total is None:
                    total = term
                elif type(total) is cnp.ndarray:
                    total = added_to(total, term)
                else:
                    total = _added(total, term)
        return total

    def _pull(self, cotangent, ans, args, kwargs, needed):
        if self.vjp is None:
            return ERRORS["transposed push"](self, cotangent, ans, args, kwargs, needed)
        if callable(self.vjp):
            return self.vjp(cotangent, ans, needed, *args, **kwargs)
        return [
            rule(cotangent, ans, *args, **kwargs) if need and rule is not None else None
            for rule, need in zip(self.vjp, needed)
        ]


def _added(a, b):
    """Return the sum of two tangents, entry by entry for tuples, None being zero."""
    if isinstance(a, tuple):
        return tuple([_added(x, y) for x, y in zip(a, b, strict=True)])
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _joined(list results):
    """Stack what the directions gave: arrays, None, or tuples of these."""
    if isinstance(results[0], (tuple, list)):
        return tuple([_joined(list(column)) for column in zip(*results, strict=True)])
    present = next((r for r in results if r is not None), None)
    if present is None:
        return None
    return np.stack([np.zeros_like(present) if r is None else r for r in results])


cpdef object apply(Primitive primitive, tuple args, dict kwargs):
    """Compute a primitive on values of any levels.

    Parameters
    ----------
    primitive : Primitive
    args : tuple
        Every array that may be traced; a list with traced values in it is stacked, and any list where
        slopes are NumPy functions of the arguments.
    kwargs : dict
        What is not differentiated (axes, flags).

    Returns
    -------
    value
        Traced where the innermost level among the arguments says so.
    """
    cdef Level top = None, level
    cdef Traced x
    cdef bint foreign = False
    other = None
    for a in args:
        if is_traced(a):
            x = <Traced>a
            if x._base is not None:
                fresh(x)  # what was assigned to the base of a view may be of a higher level
            level = x.level
            if top is None or level.order > top.order:
                top = level
        elif isinstance(a, cnp.ndarray):
            if type(a) is not cnp.ndarray and isinstance(a, _OTHER_ARITHMETIC):
                other = a
        elif isinstance(a, (list, tuple)):
            if primitive.partials is not None:
                return apply(primitive, tuple([stacked(b) for b in args]), kwargs)
            if _holds_traced(a):
                return apply(primitive, tuple([joined(b) for b in args]), kwargs)
        elif is_foreign(a):
            foreign = True
    if top is None:
        return primitive.fun(*args, **kwargs)
    if foreign:
        return ERRORS["foreign"](primitive, args, kwargs)
    if other is not None:
        raise ERRORS["subclass"](primitive.name, other)
    if not top.open:
        raise ERRORS["closed"](primitive.name)
    cdef list below = []
    for a in args:
        if is_traced(a) and (<Traced>a).level is top:
            below.append((<Traced>a).value)
        else:
            below.append(a)
    cdef tuple raw = tuple(below)
    ans = apply(primitive, raw, kwargs)
    if is_traced(ans) and (<Traced>ans).level.order >= top.order:
        raise ERRORS["closure"](primitive.name)
    if not isinstance(ans, tuple) and not is_differentiable(ans):
        if np_like(ans).dtype.kind == "O":
            raise ERRORS["type"](primitive.name, ans)
        return ans
    if top.is_tape:
        out = (<Tape>top).record(primitive, args, raw, kwargs, ans)
    else:
        out = (<Forward>top).record(primitive, args, raw, kwargs, ans)
    if primitive.view and is_traced(out):
        x = <Traced>out
        if shape_of(ans) and np.may_share_memory(plain(x), plain(args[0])):  # some layouts need a copy
            x._base, x._base_version = args[0], (<Traced>args[0])._version
            x._again = SeenAgain(primitive, args[1:], kwargs)
    return out


cdef inline bint is_foreign(object x):
    """Whether an argument is an array of another library (a data frame, a sparse matrix)."""
    return not (x is None or MERCER_IS_NUMBER(x) or isinstance(x, (int, float, slice, type, np.generic))) \
        and hasattr(x, "__array_priority__")


class SeenAgain:
    """How a view made by a function is made again from its base."""

    __slots__ = ("args", "kwargs", "primitive")

    def __init__(self, primitive, args, kwargs):
        self.primitive, self.args, self.kwargs = primitive, args, kwargs

    def __call__(self, base):
        return apply(self.primitive, (base, *self.args), self.kwargs)


cdef bint _holds_traced(object items):
    for item in items:
        if is_traced(item):
            return True
        if isinstance(item, (list, tuple)) and _holds_traced(item):
            return True
    return False


cdef object joined(object a):
    """Return a list or tuple that holds traced values as one traced array, another one as it is."""
    if isinstance(a, (list, tuple)) and _holds_traced(a):
        return np.stack([joined(item) for item in a])
    return a


cpdef object stacked(object a):
    """Return a list or tuple as an array, traced if it holds traced values; anything else as it is."""
    a = joined(a)
    return np.asarray(a) if isinstance(a, (list, tuple)) else a

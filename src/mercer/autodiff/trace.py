"""Traced values: what a function sees instead of its arrays while it is differentiated.

A NumPy function meets :class:`Traced` values through ``__array_ufunc__``, ``__array_function__``, operators
and methods. Each ends in :func:`apply`, which takes the values of the innermost derivative (the highest
level) apart, computes on what they hold, which may be values of an outer derivative, and lets the level
record what its mode needs: a tape slot (reverse) or a tangent (forward).

The way through: derivative → trace → rules (found by function) → sweep.
"""

import itertools
from inspect import signature

import numpy as np

from mercer.autodiff.errors import ClosedTraceError, NoRuleError, TraceValueError, trace_error

#: NumPy function -> what computes it on traced values.
FUNCTIONS = {}
#: ufunc -> its primitive.
UFUNCS = {}
#: method of ufuncs ("reduce", "outer", …) -> handler(ufunc, *inputs, **kwargs); "__call__" has keywords.
UFUNC_METHODS = {}
#: name -> function(self, …), the methods and properties of arrays.
METHODS = {}
PROPERTIES = {}
#: NumPy function that makes arrays -> function(like, …), what its argument ``like=`` calls.
CREATION = {}

_order = itertools.count(1)


class Level:
    """One derivative being computed; a later one has a higher `order`, so nesting needs no more."""

    __slots__ = ("open", "order")

    def __init__(self):
        self.order = next(_order)
        self.open = True


class Tape(Level):
    """Reverse mode: every operation on its variables, in order.

    A record is ``(primitive, args, kwargs, parents, ans, slot, n_outputs)``: arguments and answer as the
    level below has them, the slots of the arguments that are variables (−1 for others), the first slot of
    the answer, and the number of outputs (0: one array, not a tuple). Records never refer to the tape's own
    variables, so there are no cycles.
    """

    __slots__ = ("n_slots", "records")

    def __init__(self):
        super().__init__()
        self.records = []
        self.n_slots = 0

    def variable(self, value):
        """Return a new input of the tape."""
        self.n_slots += 1
        return Traced(value, self, self.n_slots - 1)

    constant = variable

    def record(self, primitive, args, raw, kwargs, ans):
        parents = [a.slot if isinstance(a, Traced) and a.level is self else -1 for a in args]
        first = self.n_slots
        outputs = len(ans) if isinstance(ans, tuple) else 0
        self.n_slots += outputs or 1
        self.records.append((primitive, raw, kwargs, parents, ans, first, outputs))
        if not outputs:
            return Traced(ans, self, first)
        return rebuilt(ans, [variable_or_raw(a, self, first + i) for i, a in enumerate(ans)])


class Forward(Level):
    """Forward mode: dual numbers, with `chunk` directions in a leading axis of each tangent, or one (None)."""

    __slots__ = ("chunk",)

    def __init__(self, chunk=None):
        super().__init__()
        self.chunk = chunk

    def constant(self, value):
        """Return a value without a tangent that can take part in assignments."""
        return Traced(value, self)

    def record(self, primitive, args, raw, kwargs, ans):
        tangents = [a.tangent if isinstance(a, Traced) and a.level is self else None for a in args]
        tangent = None
        if any(t is not None for t in tangents):
            tangent = primitive.push(tangents, ans, raw, kwargs, self.chunk)
        if not isinstance(ans, tuple):  # traced without a tangent, too: it may be assigned into
            return Traced(ans, self, tangent=tangent)
        tangent = [None] * len(ans) if tangent is None else tangent
        return rebuilt(
            ans,
            [
                Traced(a, self, tangent=t) if is_differentiable(a) else a
                for a, t in zip(ans, tangent, strict=True)
            ],
        )


def rebuilt(like, items):
    """Return `items` as the kind of tuple that `like` is."""
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)


def is_differentiable(value):
    """Whether a value (traced or not) has a floating or complex type."""
    return np_like(value).dtype.kind in "fc"


def variable_or_raw(value, tape, slot):
    return Traced(value, tape, slot) if is_differentiable(np_like(value)) else value


def np_like(value):
    """Return something with shape and dtype."""
    return value if hasattr(value, "dtype") else np.asarray(value)


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A value that is being differentiated; it behaves as the array (or scalar) it stands for.

    `value` is what the level below sees: an array, a NumPy scalar, or a traced value of an outer derivative.
    On a tape, `slot` is where its cotangent will be summed; in forward mode `tangent` is its tangent (None: zero).
    """

    __slots__ = ("_again", "_base", "_base_version", "_version", "level", "slot", "tangent", "value")
    __hash__ = None

    def __init__(self, value, level, slot=-1, tangent=None):
        self.value = value
        self.level = level
        self.slot = slot
        self.tangent = tangent
        self._version = 0
        self._base = None

    # -- what it looks like ---------------------------------------------------------------------------

    @property
    def shape(self):
        return np.shape(self.value) if not isinstance(self.value, Traced) else self.value.shape

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return int(np.prod(self.shape))

    @property
    def dtype(self):
        return np_like(self.value).dtype

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of a traced scalar")
        return self.shape[0]

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over a traced scalar")
        return (self[i] for i in range(self.shape[0]))

    def __repr__(self):
        mode = "reverse" if isinstance(self.level, Tape) else "forward"
        return f"Traced({plain(self)!r}, {mode} mode, level {self.level.order})"

    def __format__(self, spec):
        return f"Traced({format(plain(self), spec)})"  # so that float() of the text fails

    def __bool__(self):
        value = plain(self)
        if np.size(value) != 1:
            raise trace_error(
                "bool()",
                f"the truth of a traced array of shape {self.shape} is not one value",
                "use a.any() or a.all(), or np.where to select by element",
                TraceValueError,
            )
        return bool(value)

    def __getattr__(self, name):
        if name in PROPERTIES:
            return PROPERTIES[name](self)
        if name in METHODS:
            return METHODS[name].__get__(self)
        raise AttributeError(f"traced arrays have no attribute {name!r}")

    def __dir__(self):
        return sorted({*object.__dir__(self), *METHODS, *PROPERTIES})

    def __round__(self, ndigits=None):
        return round(plain(self), ndigits)

    def __copy__(self):
        return np.copy(self)

    def __deepcopy__(self, memo):
        return np.copy(self)

    # -- the ways into NumPy --------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if method == "__call__" and not kwargs:
            rule = UFUNCS.get(ufunc)
            if rule is None:
                raise no_rule(f"np.{ufunc.__name__}")
            return rule(*inputs)
        return UFUNC_METHODS[method](ufunc, *inputs, **kwargs)

    def __array_function__(self, func, types, args, kwargs):
        rule = FUNCTIONS.get(func)
        if rule is None and func in CREATION:
            return CREATION[func](self, *args, **kwargs)
        if rule is None:
            raise no_rule(f"{func.__module__}.{func.__name__}".replace("numpy.", "np."))
        if kwargs and any(isinstance(v, Traced) for v in kwargs.values()):
            bound = signature(func).bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        return rule(*args, **kwargs)

    def __getitem__(self, index):
        return METHODS["__getitem__"](self, index)

    def __setitem__(self, index, value):
        METHODS["__setitem__"](self, index, value)

    # -- the ways out of NumPy ------------------------------------------------------------------------

    def __array__(self, dtype=None, copy=None):
        raise trace_error(
            "np.asarray()",
            "a traced value cannot become a plain array, the derivative would be lost",
            "keep it traced: np.stack joins traced values (np.array([x, y]) is not dispatched by NumPy), "
            "assignment needs a traced array (np.zeros_like(x) or np.zeros(n, like=x) makes one), "
            "ad.stop_gradient(x) gives the plain value",
        )

    def __float__(self):
        raise no_number(self, "float()")

    def __int__(self):
        raise no_number(self, "int()")

    def __index__(self):
        raise no_number(self, "operator.index()")

    def __complex__(self):
        raise no_number(self, "complex()")

    def __reduce_ex__(self, protocol):
        raise trace_error(
            "pickle", "a traced value belongs to the derivative being computed", "pickle ad.stop_gradient(x)"
        )


def no_number(x, operation):
    return trace_error(
        operation,
        "a traced value cannot become a plain number, the derivative would be lost",
        "use NumPy's functions (np.sin for math.sin), np.stack for lists of traced values, np.zeros_like(x) "
        "for arrays to assign into, or ad.stop_gradient(x) for the plain value",
    )


def no_rule(name):
    return trace_error(
        name,
        "has no derivative rule",
        "write it with NumPy functions that have one, or give it a rule by ad.primitive",
        NoRuleError,
    )


def plain(x):
    """Return the array or scalar inside of a value, through all levels."""
    while isinstance(x, Traced):
        x = fresh(x).value
    return x


def fresh(x):
    """Return a traced value after what was assigned to the array that it is a view of has reached it."""
    if x._base is None:
        return x
    views, view = [], x
    while view._base is not None:
        views.append(view)
        view = view._base
    for view in reversed(views):  # a long chain of views must not recurse
        if view._base_version != view._base._version:
            adopt(view, view._again(view._base))
            view._base_version = view._base._version
    return x


def adopt(x, other):
    """Make the name `x` mean the value `other`, as an assignment into an array does."""
    if isinstance(other, Traced):
        x.value, x.level, x.slot, x.tangent = other.value, other.level, other.slot, other.tangent
    else:  # what was traced in it has been overwritten
        constant = x.level.constant(other)
        x.value, x.slot, x.tangent = other, constant.slot, None
    x._version += 1


def apply(primitive, args, kwargs):
    """Compute a primitive on values of any levels.

    Parameters
    ----------
    primitive : Primitive
    args : tuple
        Every array that may be traced; a list with traced values in it is stacked.
    kwargs : dict
        What is not differentiated (axes, flags).

    Returns
    -------
    value
        Traced where the innermost level among the arguments says so.
    """
    top = None
    for a in args:
        if isinstance(a, Traced):
            fresh(a)  # what was assigned to the base of a view may be of a higher level
            if top is None or a.level.order > top.order:
                top = a.level
        elif isinstance(a, list | tuple) and any(isinstance(item, Traced) for item in a):
            return apply(primitive, tuple(stacked(b) for b in args), kwargs)
    if top is None:
        return primitive.fun(*args, **kwargs)
    if not top.open:
        raise trace_error(
            primitive.name,
            "a traced value is used after its derivative was computed",
            "return what you need from the function (has_aux=True), do not store it elsewhere",
            ClosedTraceError,
        )
    raw = tuple(a.value if isinstance(a, Traced) and a.level is top else a for a in args)
    ans = apply(primitive, raw, kwargs)
    if isinstance(ans, Traced) and ans.level.order >= top.order:
        raise trace_error(
            primitive.name,
            "its function uses traced values that are not among its arguments",
            "pass them as arguments",
        )
    if not isinstance(ans, tuple) and not is_differentiable(np_like(ans)):
        return ans
    out = top.record(primitive, args, raw, kwargs, ans)
    if primitive.view and isinstance(out, Traced) and out.shape and shares_memory(out, args[0]):
        out._base, out._base_version = args[0], args[0]._version
        out._again = lambda base: primitive(base, *args[1:], **kwargs)
    return out


def shares_memory(x, y):
    """Whether NumPy returned a view: some layouts cannot be reshaped without a copy."""
    return np.may_share_memory(plain(x), plain(y))


def stacked(a):
    """Return a list or tuple that holds traced values as one traced array."""
    if isinstance(a, list | tuple) and any(isinstance(item, Traced) for item in a):
        return np.stack([stacked(item) for item in a])
    return a

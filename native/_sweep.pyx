# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What the tape needs to be fast: traced values, their levels, primitives and the reverse sweep.

`mercer._native` is the only importer; `mercer.autodiff.trace` gives these their names. Operators on float64 arrays of
one shape (or numbers) go through sweep.c without NumPy's dispatch; everything else calls the rule's NumPy functions.
"""

import itertools
from inspect import signature

import numpy as np

cimport cython
cimport numpy as cnp
from cpython.ref cimport Py_REFCNT
from libc.stdint cimport int32_t
from libc.stdlib cimport free, realloc

cnp.import_array()
cnp.import_ufunc()

cdef extern from *:
    """
    #include <numpy/arrayscalars.h>
    static inline PyObject *mercer_number(double value)
    {
        PyObject *number = PyArrayScalar_New(Double);
        if (number != NULL)
            PyArrayScalar_ASSIGN(number, Double, value);
        return number;
    }
    #define MERCER_IS_NUMBER(x) (Py_TYPE(x) == &PyDoubleArrType_Type || PyFloat_CheckExact(x))
    """
    object mercer_number(double value)
    bint MERCER_IS_NUMBER(object x) noexcept
    double PyFloat_AS_DOUBLE(object x) noexcept

cdef extern from "sweep.h" nogil:
    int MERCER_POWER_BY, MERCER_N_UNARY, MERCER_ADD, MERCER_SUBTRACT, MERCER_MULTIPLY, MERCER_SCALE
    int MERCER_DIVIDE, MERCER_NEGATIVE, MERCER_EXP
    int MERCER_SIN, MERCER_COS, MERCER_SINH, MERCER_COSH, MERCER_EXPM1
    enum: MERCER_N_OPCODES
    void mercer_slope_product(int op, ptrdiff_t lead, ptrdiff_t n, const double *t, const double *x,
                              const double *r, double c, double *out) noexcept
    void mercer_slope_push(int op, ptrdiff_t lead, ptrdiff_t n, const double *s, const double *t, const double *x,
                           const double *r, double c, const double *u, double *out) noexcept
    int mercer_binary(int op, ptrdiff_t n, const double *x, int x_step, const double *y, int y_step,
                      double *out) noexcept
    void mercer_slope_product2(int op, int which, ptrdiff_t lead, ptrdiff_t n, const double *t, int t_step,
                               const double *x, int x_step, const double *y, int y_step, const double *r,
                               double *out) noexcept
    void mercer_accumulate(ptrdiff_t n, const double *x, double *out) noexcept
    void mercer_push2(int op, ptrdiff_t n, const double *s, int s_step, const double *t, int t_step,
                      const double *x, int x_step, const double *y, int y_step, const double *r,
                      double *out) noexcept
    void mercer_rows_product(ptrdiff_t lead, ptrdiff_t n, double sign, const double *t, const double *slope,
                             double *out) noexcept
    double mercer_sum(ptrdiff_t n, const double *x) noexcept
    unsigned long long mercer_checksum(ptrdiff_t n_bytes, const char *bytes) noexcept
    int mercer_all_finite(ptrdiff_t n, const double *x) noexcept

# Above these lengths NumPy's own vector loops are at least as fast: for cheap operations, and for those of libm.
cdef enum:
    COPIED_UP_TO = 16384  # bytes
    CHEAP_UP_TO = 16384
    LIBM_UP_TO = 96

#: The tables that rules fill: NumPy function -> implementation, ufunc -> primitive, method -> handler, name -> method.
FUNCTIONS = {}
UFUNCS = {}
UFUNC_METHODS = {}
METHODS = {}
PROPERTIES = {}
#: NumPy function that makes arrays -> function(like, …), what its argument ``like=`` calls.
CREATION = {}
#: name -> how an error is made; autodiff.trace registers these.
ERRORS = {}

cdef dict _ufuncs = UFUNCS
cdef dict _functions = FUNCTIONS
# Their operators mean something else than those of arrays.
cdef tuple _OTHER_ARITHMETIC = (np.matrix, np.ma.MaskedArray)
cdef object _errstate = np.errstate
cdef object _add = np.add
cdef object _add_reduce = np.add.reduce
cdef object _multiply = np.multiply
cdef object _order = itertools.count(1)


cdef class Level:
    """One derivative being computed; a later one has a higher `order`, so nesting needs no more.

    Attributes
    ----------
    order : int
    open : bool
        Whether the function is still being run; values of a closed level are refused.
    """

    cdef readonly long order
    cdef public bint open
    cdef bint is_tape

    def __init__(self):
        self.order = next(_order)
        self.open = True


cdef class Tape(Level):
    """Reverse mode: every operation on its variables, in order.

    A record has the primitive, its arguments and answer as the level below has them, and the slots of the
    arguments (−1 for those that are not variables of this tape). Records never refer to the tape's own
    variables, so there are no cycles, and lists end without recursion however long the chain is.
    """

    # An operation of sweep.h keeps its operands in `args` and `seconds`, others a tuple in `args`: fewer
    # objects for the collector to look through.
    cdef list primitives, args, seconds, kwargs, answers
    cdef int32_t *parents      # of all records, one after another
    cdef Py_ssize_t *first     # of each record: where its parents begin
    cdef int32_t *slots        # of each record: the slot of its (first) output
    cdef int32_t *outputs      # of each record: 0 for an array, or how many a tuple has
    cdef Py_ssize_t n_records, n_parents, room_records, room_parents
    cdef list guards           # (array of the caller's, checksum): what must not have changed when it is used
    cdef readonly Py_ssize_t n_slots

    def __cinit__(self):
        self.is_tape = True
        self.primitives, self.args, self.seconds, self.kwargs, self.answers = [], [], [], [], []
        self.guards = []

    def __dealloc__(self):
        free(self.parents)
        free(self.first)
        free(self.slots)
        free(self.outputs)

    def __len__(self):
        return self.n_records

    @property
    def records(self):
        """The records as tuples (primitive, args, kwargs, parents, answer, slot, number of outputs)."""
        return [
            (
                self.primitives[i], operands(self, i), self.kwargs[i] or {},
                [self.parents[j] for j in range(self.first[i], self.first[i + 1])],
                self.answers[i], self.slots[i], self.outputs[i],
            )
            for i in range(self.n_records)
        ]

    def variable(self, value):
        """Return a new input of the tape."""
        self.n_slots += 1
        return traced(value, self, self.n_slots - 1, None)

    def constant(self, value):
        """Return a value on which nothing depends yet, to be assigned into."""
        return self.variable(value)

    def clear(self):
        """Forget all records, so that a traced value that a user's object keeps by mistake keeps nothing else."""
        self.primitives, self.args, self.seconds, self.kwargs, self.answers = [], [], [], [], []
        self.guards = []
        self.n_records = self.n_parents = 0

    cdef int begin(self, Primitive primitive, object args, object second, dict kwargs, object answer,
                   int outputs) except -1:
        """Write a record whose parents follow by `parent`."""
        cdef Py_ssize_t n = self.n_records
        if n + 1 >= self.room_records:
            self.room_records = 64 if self.room_records == 0 else 2 * self.room_records
            self.first = <Py_ssize_t *>_grown(self.first, self.room_records * sizeof(Py_ssize_t))
            self.slots = <int32_t *>_grown(self.slots, self.room_records * sizeof(int32_t))
            self.outputs = <int32_t *>_grown(self.outputs, self.room_records * sizeof(int32_t))
            if n == 0:
                self.first[0] = 0
        self.primitives.append(primitive)
        self.args.append(args)
        self.seconds.append(second)
        self.kwargs.append(kwargs)
        self.answers.append(answer)
        self.slots[n] = <int32_t>self.n_slots
        self.outputs[n] = outputs
        self.first[n + 1] = self.first[n]
        self.n_slots += outputs if outputs else 1
        self.n_records = n + 1
        return 0

    cdef int parent(self, Py_ssize_t slot) except -1:
        if self.n_parents + 1 >= self.room_parents:
            self.room_parents = 128 if self.room_parents == 0 else 2 * self.room_parents
            self.parents = <int32_t *>_grown(self.parents, self.room_parents * sizeof(int32_t))
        self.parents[self.n_parents] = <int32_t>slot
        self.n_parents += 1
        self.first[self.n_records] = self.n_parents
        return 0

    cdef object kept(self, object x):
        """Return an operand that is not of this tape so that the caller's later changes do not reach it.

        Small arrays are copied; of larger ones a checksum says at the sweep whether they have changed.
        """
        cdef cnp.ndarray a
        if isinstance(x, Traced):
            return traced((<Traced>x).value, (<Traced>x).level, (<Traced>x).slot, (<Traced>x).tangent)
        if type(x) is cnp.ndarray:
            a = <cnp.ndarray>x
            if cnp.PyArray_NBYTES(a) <= COPIED_UP_TO:
                return x.copy()
            if x.base is not None or cnp.PyArray_ISWRITEABLE(a):
                self.guards.append((x, checksum(x)))
        return x

    cdef int check_guards(self) except -1:
        for x, before in self.guards:
            if checksum(x) != before:
                raise ERRORS["changed"](x)
        return 0

    cdef object record(self, Primitive primitive, tuple args, tuple raw, dict kwargs, object answer):
        cdef Py_ssize_t i, slot
        cdef tuple kept
        cdef bint others = False
        for i in range(len(args)):
            if not (isinstance(args[i], Traced) and (<Traced>args[i]).level is self) \
                    and (isinstance(args[i], Traced) or type(args[i]) is cnp.ndarray):
                others = True
        if others:
            raw = tuple([
                b if isinstance(a, Traced) and (<Traced>a).level is self else self.kept(b) for a, b in zip(args, raw)
            ])
        if isinstance(answer, tuple):
            self.begin(primitive, raw, None, kwargs, answer, <int>len(answer))
        elif primitive.opcode:
            self.begin(primitive, raw[0], raw[1] if len(raw) > 1 else None, None, answer, 0)
        elif primitive.linear:
            kept, like = (Like(raw[0]), *raw[1:]), Like(answer)
            self.begin(primitive, kept, None, kwargs, like, 0)
        else:
            self.begin(primitive, raw, None, kwargs, answer, 0)
        slot = self.slots[self.n_records - 1]
        for a in args:
            self.parent((<Traced>a).slot if isinstance(a, Traced) and (<Traced>a).level is self else -1)
        if not isinstance(answer, tuple):
            return traced(answer, self, slot, None)
        return rebuilt(
            answer,
            [traced(a, self, slot + i, None) if is_differentiable(a) else a for i, a in enumerate(answer)],
        )


def snapshot(x):
    """Return a value that later assignments to `x` do not reach."""
    if isinstance(x, Traced):
        fresh(<Traced>x)
        return traced((<Traced>x).value, (<Traced>x).level, (<Traced>x).slot, (<Traced>x).tangent)
    return x.copy() if type(x) is cnp.ndarray else x


cdef object checksum(object x):
    """Return a number that tells whether the entries of an array have changed."""
    cdef cnp.ndarray a = np.ascontiguousarray(x)
    if cnp.PyArray_TYPE(a) == cnp.NPY_OBJECT:
        return 0
    return mercer_checksum(cnp.PyArray_NBYTES(a), <const char *>cnp.PyArray_DATA(a))


cdef tuple operands(Tape tape, Py_ssize_t i):
    """Return the arguments of a record."""
    if (<Primitive>tape.primitives[i]).opcode:
        return (tape.args[i],) if tape.seconds[i] is None else (tape.args[i], tape.seconds[i])
    return <tuple>tape.args[i]


cdef void *_grown(void *memory, size_t size) except NULL:
    cdef void *larger = realloc(memory, size)
    if larger == NULL:
        raise MemoryError("no memory for a tape")
    return larger


cdef class Forward(Level):
    """Forward mode: values with a tangent each, of one direction or of `chunk` (a leading axis of the tangents)."""

    cdef readonly object chunk
    cdef Py_ssize_t lead

    def __init__(self, chunk=None):
        Level.__init__(self)
        self.chunk = chunk
        self.lead = 0 if chunk is None else chunk

    def constant(self, value):
        """Return a value without a tangent that can take part in assignments."""
        return traced(value, self, -1, None)

    cdef object record(self, Primitive primitive, tuple args, tuple raw, dict kwargs, object answer):
        cdef list tangents = [
            (<Traced>a).tangent if isinstance(a, Traced) and (<Traced>a).level is self else None for a in args
        ]
        tangent = None
        for t in tangents:
            if t is not None:
                tangent = primitive.push(tangents, answer, raw, kwargs, self.chunk)
                break
        if not isinstance(answer, tuple):  # traced without a tangent, too: it may be assigned into
            return traced(answer, self, -1, tangent)
        if tangent is None:
            tangent = [None] * len(answer)
        return rebuilt(
            answer,
            [traced(a, self, -1, t) if is_differentiable(a) else a for a, t in zip(answer, tangent, strict=True)],
        )


cdef object rebuilt(object like, list items):
    """Return `items` as the kind of tuple that `like` is."""
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)


cdef class Like:
    """The shape and type of an array whose entries a rule does not need."""

    cdef readonly tuple shape
    cdef readonly object dtype
    cdef int number

    def __init__(self, x):
        self.shape = shape_of(x)
        self.dtype = np_like(x).dtype
        self.number = self.dtype.num

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return _product(self.shape)


cdef Py_ssize_t _product(tuple shape):
    cdef Py_ssize_t size = 1
    for n in shape:
        size *= n
    return size


cdef tuple shape_of(object x):
    while isinstance(x, Traced):
        x = (<Traced>x).value
    if isinstance(x, Like):
        return (<Like>x).shape
    if isinstance(x, cnp.ndarray):
        return x.shape
    if isinstance(x, float) or isinstance(x, int):
        return ()
    return np.shape(x)


cpdef object np_like(object value):
    """Return something with the shape and dtype of a value."""
    return value if hasattr(value, "dtype") else np.asarray(value)


cdef bint is_differentiable(object value):
    """Whether a value (traced or not) has a floating or complex type."""
    if isinstance(value, cnp.ndarray):
        return cnp.PyArray_ISFLOAT(<cnp.ndarray>value) or cnp.PyArray_ISCOMPLEX(<cnp.ndarray>value)
    if isinstance(value, float) or isinstance(value, Traced):
        return True
    return np_like(value).dtype.kind in "fc"


cdef inline Traced traced(object value, Level level, Py_ssize_t slot, object tangent):
    cdef Traced x = Traced.__new__(Traced)
    x.value = value
    x.level = level
    x.slot = slot
    x.tangent = tangent
    return x


# A traced value refers to levels and arrays only, which never refer to it: it needs no collector.
@cython.freelist(256)
@cython.no_gc
cdef class Traced:
    """A value that is being differentiated; it behaves as the array (or scalar) it stands for.

    Attributes
    ----------
    value : array, NumPy scalar or Traced
        What the level below sees.
    level : Level
    slot : int
        On a tape: where its cotangent will be summed.
    tangent : array, Traced or None
        In forward mode: its tangent (None: zero).
    """

    cdef public object value
    cdef public Level level
    cdef public Py_ssize_t slot
    cdef public object tangent
    cdef public Traced _base
    cdef public object _again
    cdef public Py_ssize_t _version, _base_version

    def __init__(self, value, Level level, slot=-1, tangent=None):
        self.value, self.level, self.slot, self.tangent = value, level, slot, tangent

    def __dealloc__(self):
        # A view of a view of a view … ends link by link, not by recursion.
        cdef Traced base = self._base, further
        self._base = None
        while base is not None and Py_REFCNT(base) == 1:
            further = base._base
            base._base = None
            base = further

    # -- what it looks like ---------------------------------------------------------------------------

    @property
    def shape(self):
        return shape_of(self.value)

    @property
    def ndim(self):
        return len(shape_of(self.value))

    @property
    def size(self):
        return _product(shape_of(self.value))

    @property
    def dtype(self):
        return np_like(self.value).dtype

    def __len__(self):
        cdef tuple shape = shape_of(self.value)
        if not shape:
            raise TypeError("len() of a traced scalar")
        return shape[0]

    def __iter__(self):
        cdef tuple shape = shape_of(self.value)
        if not shape:
            raise TypeError("iteration over a traced scalar")
        return (self[i] for i in range(shape[0]))

    def __repr__(self):
        mode = "reverse" if self.level.is_tape else "forward"
        return f"Traced({plain(self)!r}, {mode} mode, level {self.level.order})"

    def __format__(self, spec):
        return f"Traced({format(plain(self), spec)})"  # so that float() of the text fails

    def __bool__(self):
        value = plain(self)
        if np.size(value) != 1:
            raise ERRORS["truth"](self)
        return bool(value)

    @property
    def T(self):
        return PROPERTIES["T"](self)

    def sum(self, *args, **kwargs):
        return METHODS["sum"](self, *args, **kwargs)

    def mean(self, *args, **kwargs):
        return METHODS["mean"](self, *args, **kwargs)

    def dot(self, other):
        return METHODS["dot"](self, other)

    def reshape(self, *shape, **kwargs):
        return METHODS["reshape"](self, *shape, **kwargs)

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
            rule = _ufuncs.get(ufunc)
            if rule is None:
                raise ERRORS["no rule"](f"np.{ufunc.__name__}")
            if type(rule) is Primitive and (<Primitive>rule).opcode:
                if len(inputs) == 1:
                    return operate1(<Primitive>rule, inputs[0], None)
                out = operator2(<Primitive>rule, inputs[0], inputs[1])
                return apply(<Primitive>rule, inputs, {}) if out is NotImplemented else out
            return rule(*inputs)
        return UFUNC_METHODS[method](ufunc, *inputs, **kwargs)

    def __array_function__(self, func, types, args, kwargs):
        rule = _functions.get(func)
        if rule is None and func in CREATION:
            return CREATION[func](self, *args, **kwargs)
        if rule is None:
            raise ERRORS["no rule"](f"{func.__module__}.{func.__name__}".replace("numpy.", "np."))
        if kwargs:
            for v in kwargs.values():
                if isinstance(v, Traced):
                    bound = signature(func).bind(*args, **kwargs)
                    return rule(*bound.args, **bound.kwargs)
        return rule(*args, **kwargs)

    def __getitem__(self, index):
        if type(index) is int and self.ndim == 1:  # a number, not a view
            return apply(GETITEM, (self,), {"index": index})
        return METHODS["__getitem__"](self, index)

    def __setitem__(self, index, value):
        METHODS["__setitem__"](self, index, value)

    def __add__(self, other):
        return operator2(ADD, self, other)

    def __radd__(self, other):
        return operator2(ADD, other, self)

    def __sub__(self, other):
        return operator2(SUBTRACT, self, other)

    def __rsub__(self, other):
        return operator2(SUBTRACT, other, self)

    def __mul__(self, other):
        return operator2(MULTIPLY, self, other)

    def __rmul__(self, other):
        return operator2(MULTIPLY, other, self)

    def __truediv__(self, other):
        return operator2(DIVIDE, self, other)

    def __rtruediv__(self, other):
        return operator2(DIVIDE, other, self)

    def __pow__(self, other, modulo):
        return operator2(POWER, self, other) if modulo is None else NotImplemented

    def __rpow__(self, other, modulo):
        return operator2(POWER, other, self) if modulo is None else NotImplemented

    def __neg__(self):
        return operate1(NEGATIVE, self, None)

    def __pos__(self):
        return np.positive(self)

    def __abs__(self):
        return np.absolute(self)

    def __matmul__(self, other):
        return NotImplemented if _declines(other) else np.matmul(self, other)

    def __rmatmul__(self, other):
        return np.matmul(other, self)

    def __mod__(self, other):
        return NotImplemented if _declines(other) else np.remainder(self, other)

    def __rmod__(self, other):
        return np.remainder(other, self)

    def __floordiv__(self, other):
        return NotImplemented if _declines(other) else np.floor_divide(self, other)

    def __rfloordiv__(self, other):
        return np.floor_divide(other, self)

    def __divmod__(self, other):
        return NotImplemented if _declines(other) else np.divmod(self, other)

    def __rdivmod__(self, other):
        return np.divmod(other, self)

    def __lt__(self, other):
        return NotImplemented if _declines(other) else np.less(self, other)

    def __le__(self, other):
        return NotImplemented if _declines(other) else np.less_equal(self, other)

    def __gt__(self, other):
        return NotImplemented if _declines(other) else np.greater(self, other)

    def __ge__(self, other):
        return NotImplemented if _declines(other) else np.greater_equal(self, other)

    def __eq__(self, other):
        return NotImplemented if _declines(other) else np.equal(self, other)

    def __ne__(self, other):
        return NotImplemented if _declines(other) else np.not_equal(self, other)

    __hash__ = None

    def __iadd__(self, other):
        return METHODS["__iadd__"](self, other)

    def __isub__(self, other):
        return METHODS["__isub__"](self, other)

    def __imul__(self, other):
        return METHODS["__imul__"](self, other)

    def __itruediv__(self, other):
        return METHODS["__itruediv__"](self, other)

    def __ipow__(self, other):
        return METHODS["__ipow__"](self, other)

    def __imatmul__(self, other):
        return METHODS["__imatmul__"](self, other)

    def __imod__(self, other):
        return METHODS["__imod__"](self, other)

    def __ifloordiv__(self, other):
        return METHODS["__ifloordiv__"](self, other)

    # -- the ways out of NumPy ------------------------------------------------------------------------

    def __array__(self, dtype=None, copy=None):
        raise ERRORS["array"](self)

    def __float__(self):
        raise ERRORS["number"](self, "float()")

    def __int__(self):
        raise ERRORS["number"](self, "int()")

    def __index__(self):
        raise ERRORS["number"](self, "operator.index()")

    def __complex__(self):
        raise ERRORS["number"](self, "complex()")

    def __reduce_ex__(self, protocol):
        raise ERRORS["pickle"](self)


cdef bint _declines(object other):
    """Whether an operand asks NumPy to leave the operation to its own method."""
    return not isinstance(other, (cnp.ndarray, float, int, Traced)) and \
        getattr(type(other), "__array_ufunc__", 0) is None


cpdef object plain(object x):
    """Return the array or scalar inside of a value, through all levels."""
    while isinstance(x, Traced):
        x = fresh(<Traced>x).value
    return x


cpdef Traced fresh(Traced x):
    """Return a traced value after what was assigned to the array that it is a view of has reached it."""
    cdef Traced view = x
    cdef list views
    if x._base is None:
        return x
    if x._base._base is None:
        if x._base_version != x._base._version:
            renew(x)
        return x
    views = []
    while view._base is not None:
        views.append(view)
        view = view._base
    for view in reversed(views):  # a long chain of views must not recurse
        if view._base_version != view._base._version:
            renew(view)
    return x


cdef int renew(Traced view) except -1:
    adopt(view, view._again(view._base))
    view._base_version = view._base._version
    return 0


cpdef object adopt(Traced x, object other):
    """Make the name `x` mean the value `other`, as an assignment into an array does."""
    cdef Traced source
    if isinstance(other, Traced):
        source = <Traced>other
    else:  # what was traced in it has been overwritten
        source = <Traced>x.level.constant(other)
    x.value, x.level, x.slot, x.tangent = source.value, source.level, source.slot, source.tangent
    x._version += 1


# -- primitives -----------------------------------------------------------------------------------------


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
    partials : tuple, optional
        Of an elementwise function: for each argument ``partial(ans, *args)``, a number, or None for zero.
    opcode : int
        Its number among the operations of sweep.h, or 0.
    """

    cdef public object fun, jvp, vjp
    cdef public str name
    cdef public bint batched, view, linear
    cdef public tuple partials
    cdef public int opcode
    cdef object __weakref__

    def __init__(self, fun, jvp=None, vjp=None, *, name=None, batched=False, view=False, linear=False,
                 partials=None, opcode=0):
        self.fun, self.jvp, self.vjp = fun, jvp, vjp
        self.name = name or getattr(fun, "__name__", repr(fun))
        self.batched, self.view, self.linear = batched, view, linear
        self.partials, self.opcode = partials, opcode

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
                self._push([None if t is None else t[i] for t in tangents], ans, args, kwargs) for i in range(chunk)
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
                total = term if total is None else _added(total, term)
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
        Every array that may be traced; a list with traced values in it is stacked.
    kwargs : dict
        What is not differentiated (axes, flags).

    Returns
    -------
    value
        Traced where the innermost level among the arguments says so.
    """
    cdef Level top = None, level
    cdef Traced x
    other = None
    for a in args:
        if isinstance(a, Traced):
            x = <Traced>a
            if x._base is not None:
                fresh(x)  # what was assigned to the base of a view may be of a higher level
            level = x.level
            if top is None or level.order > top.order:
                top = level
        elif isinstance(a, cnp.ndarray):
            if type(a) is not cnp.ndarray and isinstance(a, _OTHER_ARITHMETIC):
                other = a
        elif isinstance(a, (list, tuple)) and _holds_traced(a):
            return apply(primitive, tuple([stacked(b) for b in args]), kwargs)
    if top is None:
        return primitive.fun(*args, **kwargs)
    if other is not None:
        raise ERRORS["subclass"](primitive.name, other)
    if not top.open:
        raise ERRORS["closed"](primitive.name)
    cdef list below = []
    for a in args:
        if isinstance(a, Traced) and (<Traced>a).level is top:
            below.append((<Traced>a).value)
        else:
            below.append(a)
    cdef tuple raw = tuple(below)
    ans = apply(primitive, raw, kwargs)
    if isinstance(ans, Traced) and (<Traced>ans).level.order >= top.order:
        raise ERRORS["closure"](primitive.name)
    if not isinstance(ans, tuple) and not is_differentiable(ans):
        if np_like(ans).dtype.kind == "O":
            raise ERRORS["type"](primitive.name, ans)
        return ans
    if top.is_tape:
        out = (<Tape>top).record(primitive, args, raw, kwargs, ans)
    else:
        out = (<Forward>top).record(primitive, args, raw, kwargs, ans)
    if primitive.view and isinstance(out, Traced):
        x = <Traced>out
        if shape_of(ans) and np.may_share_memory(plain(x), plain(args[0])):  # some layouts need a copy
            x._base, x._base_version = args[0], (<Traced>args[0])._version
            x._again = SeenAgain(primitive, args[1:], kwargs)
    return out


class SeenAgain:
    """How a view made by a function is made again from its base."""

    __slots__ = ("args", "kwargs", "primitive")

    def __init__(self, primitive, args, kwargs):
        self.primitive, self.args, self.kwargs = primitive, args, kwargs

    def __call__(self, base):
        return apply(self.primitive, (base, *self.args), self.kwargs)


cdef bint _holds_traced(object items):
    for item in items:
        if isinstance(item, Traced):
            return True
        if isinstance(item, (list, tuple)) and _holds_traced(item):
            return True
    return False


cpdef object stacked(object a):
    """Return a list or tuple that holds traced values as one traced array."""
    if isinstance(a, (list, tuple)) and _holds_traced(a):
        return np.stack([stacked(item) for item in a])
    return a


# -- operands of the C loops ----------------------------------------------------------------------------


cdef struct Operand:
    const double *data
    Py_ssize_t n
    int step          # 0: a number
    double number


cdef inline int read(object x, Operand *o):
    """Describe a float64 array in C order, or a number; return 0 for anything else. `o` must stay where it is."""
    cdef cnp.ndarray array
    if MERCER_IS_NUMBER(x):
        o.number, o.n, o.step, o.data = PyFloat_AS_DOUBLE(x), 1, 0, &o.number
        return 1
    if isinstance(x, cnp.ndarray):
        array = <cnp.ndarray>x
        if cnp.PyArray_TYPE(array) != cnp.NPY_DOUBLE or not cnp.PyArray_ISCARRAY_RO(array):
            return 0
        if type(x) is not cnp.ndarray:
            return 0
        o.n, o.data = cnp.PyArray_SIZE(array), <const double *>cnp.PyArray_DATA(array)
        o.step = 1 if cnp.PyArray_NDIM(array) else 0
        return 1
    if type(x) is int and -2**53 < x < 2**53:
        o.number, o.n, o.step, o.data = <double>x, 1, 0, &o.number
        return 1
    return 0


cdef inline object new_like(object x):
    """Return a new float64 array of an array's shape."""
    cdef cnp.ndarray a = <cnp.ndarray>x
    return cnp.PyArray_EMPTY(cnp.PyArray_NDIM(a), cnp.PyArray_DIMS(a), cnp.NPY_DOUBLE, 0)


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
    """Which loop of NumPy's computes the slope, up to its sign."""
    return (MERCER_COS if op == MERCER_SIN else MERCER_SIN if op == MERCER_COS else MERCER_COSH if op == MERCER_SINH
            else MERCER_SINH if op == MERCER_COSH else MERCER_EXP if op == MERCER_EXPM1 else 0)


cdef inline bint slope_is_cheap(int op):
    return not (op == MERCER_SIN or op == MERCER_COS or op == MERCER_SINH or op == MERCER_COSH
                or op == MERCER_EXPM1 or op == MERCER_POWER_BY)


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


cdef inline bint run_binary(int opcode, Py_ssize_t n, const double *x, int x_step, const double *y, int y_step,
                            double *out) noexcept:
    """Compute an operation of two arguments; return whether all results are finite."""
    cdef char *at[3]
    cdef cnp.npy_intp size = n
    cdef cnp.npy_intp steps[3]
    if loops[opcode] == NULL:
        return mercer_binary(opcode, n, x, x_step, y, y_step, out)
    at[0], at[1], at[2] = <char *>x, <char *>y, <char *>out
    steps[0], steps[1], steps[2] = x_step * sizeof(double), y_step * sizeof(double), sizeof(double)
    loops[opcode](at, &size, steps, loop_data[opcode])
    return mercer_all_finite(n, out)


cdef inline bint run_loop(int opcode, Py_ssize_t n, const double *x, double *out) noexcept:
    """Compute a ufunc on n numbers; return whether all results are finite."""
    cdef char *at[2]
    cdef cnp.npy_intp size = n
    cdef cnp.npy_intp steps[2]
    at[0], at[1] = <char *>x, <char *>out
    steps[0] = steps[1] = sizeof(double)
    loops[opcode](at, &size, steps, loop_data[opcode])
    return mercer_all_finite(n, out)


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
    return p.fun(x, y)


# -- operators on traced values -------------------------------------------------------------------------


cdef object operator2(Primitive p, object x, object y):
    other = y if isinstance(x, Traced) else x
    if MERCER_IS_NUMBER(other) or isinstance(other, (Traced, int)) or type(other) is cnp.ndarray:
        return operate2(p, x, y)
    return NotImplemented if _declines(other) else apply(p, (x, y), {})


cdef object operate1(Primitive p, object x, object c):
    """Compute an operation of one argument (c None, or a plain number) on a value of any level."""
    cdef Traced t
    cdef Forward forward
    cdef Tape tape
    if not isinstance(x, Traced):
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
        tape.begin(p, below, c, None, ans, 0)
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
    if isinstance(x, Traced):
        tx = <Traced>x
        if tx._base is not None:
            fresh(tx)
        top = tx.level
    if isinstance(y, Traced):
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
        if not isinstance(y, Traced) and plain_number(y):
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
            tape.begin(p, x, y, None, None, 0)
        else:
            tape.begin(p, x if tx is not None else tape.kept(x), y if ty is not None else tape.kept(y), None, ans, 0)
        tape.parent(tx.slot if tx is not None else -1)
        tape.parent(ty.slot if ty is not None else -1)
        return traced(ans, tape, tape.n_slots - 1, None)
    forward = <Forward>top
    tangent = push2(p, tx.tangent if tx is not None else None, ty.tangent if ty is not None else None, x, y, ans,
                    forward)
    return traced(ans, forward, -1, tangent)


cdef inline object shaped(object x, bint needed):
    """Return a number as it is, of an array its shape and type only (any number if it is not needed)."""
    if not needed:
        return 0.0
    return x if MERCER_IS_NUMBER(x) else Like(x)


cdef bint plain_number(object y):
    return MERCER_IS_NUMBER(y) or type(y) is int


# -- products with slopes: pushforwards and pullbacks of elementwise operations --------------------------


cdef object slope_product(Primitive p, object t, object x, object r, object c, Py_ssize_t lead):
    """Return t · f'(x), r = f(x), on values of any level; t has a leading axis if `lead`.

    It is an operation with a derivative of its own, so that a Hessian-vector product takes one loop where
    the gradient takes one.
    """
    cdef Operand a, o, b, k
    cdef Level top
    cdef double out_number
    k.number = 0.0
    top = top_of(t, x, r)
    if top is None:
        if (read(t, &a) and read(x, &o) and read(r, &b) and o.n == b.n and a.n == o.n * (lead if lead else 1)
                and (a.step or not o.step)
                and (c is None or read(c, &k))):
            if not a.step:
                mercer_slope_product(p.opcode, 1, 1, a.data, o.data, b.data, k.number, &out_number)
                return mercer_number(out_number)
            out = new_like(t)
            if o.step or lead:
                if o.n <= LIBM_UP_TO or slope_is_cheap(p.opcode):
                    mercer_slope_product(p.opcode, lead if lead else 1, o.n, a.data, o.data, b.data, k.number,
                                         data_of(out))
                    return out
                if slope_loop(p.opcode) and o.step:
                    slope = new_like(x)
                    run_loop(slope_loop(p.opcode), o.n, o.data, data_of(slope))
                    mercer_rows_product(lead if lead else 1, o.n, -1.0 if p.opcode == MERCER_COS else 1.0, a.data,
                                        data_of(slope), data_of(out))
                    return out
    elif not lead and top.open and below_is_plain(t, x, r, top):
        return slope_product_above(p, t, x, r, c, top)
    partial = p.partials[0]
    if not callable(partial):
        return t if partial == 1 else -t
    with _errstate(all="ignore"):
        slope = partial(r, x) if c is None else partial(r, x, c)
    return product(t, slope, lead)


cdef Level top_of(object t, object x, object r):
    cdef Level top = None
    for a in (t, x, r):
        if isinstance(a, Traced) and (top is None or (<Traced>a).level.order > top.order):
            top = (<Traced>a).level
    return top


cdef inline object at_level(object a, Level top):
    return (<Traced>a).value if isinstance(a, Traced) and (<Traced>a).level is top else a


cdef bint below_is_plain(object t, object x, object r, Level top):
    """Whether under the top level there are float64 arrays of one shape (or numbers) only."""
    cdef Operand a, b, o
    t, x, r = at_level(t, top), at_level(x, top), at_level(r, top)
    if not (read(t, &a) and read(x, &o) and read(r, &b)):
        return False
    if a.n != o.n or a.step != o.step or b.n != o.n:
        return False
    return not a.step or same_shape(t, x)


cdef object slope_product_above(Primitive p, object t, object x, object r, object c, Level top):
    """The slope product where one level stands above plain arrays: recorded as an operation itself."""
    cdef Tape tape
    cdef Forward forward
    t0, x0, r0 = at_level(t, top), at_level(x, top), at_level(r, top)
    ans = slope_product(p, t0, x0, r0, c, 0)
    if top.is_tape:
        tape = <Tape>top
        tape.begin(slope_of(p), (t0, x0, r0, c), None, None, ans, 0)
        tape.parent((<Traced>t).slot if t0 is not t else -1)
        tape.parent((<Traced>x).slot if x0 is not x else -1)
        tape.parent(-1)
        tape.parent(-1)
        return traced(ans, tape, tape.n_slots - 1, None)
    forward = <Forward>top
    s = (<Traced>t).tangent if t0 is not t else None
    u = (<Traced>x).tangent if x0 is not x else None
    if s is None and u is None:
        return ans
    return traced(ans, forward, -1, slope_push(p, s, t0, x0, r0, c, u, forward.lead))


cdef object slope_push(Primitive p, object s, object t, object x, object r, object c, object u, Py_ssize_t lead):
    """Return s · f'(x) + t · f''(x) · u."""
    cdef Operand a, b, o, q, v, k
    cdef double out_number
    cdef Py_ssize_t rows = lead if lead else 1
    k.number = 0.0
    a.data = v.data = NULL
    if (read(t, &b) and read(x, &o) and read(r, &q) and (c is None or read(c, &k))
            and b.step == o.step and q.step == o.step
            and (s is None or (read(s, &a) and a.n == rows * o.n and (a.step or not o.step)))
            and (u is None or (read(u, &v) and v.n == rows * o.n and (v.step or not o.step)))):
        like = u if s is None else s
        if not o.step and not lead:
            mercer_slope_push(p.opcode, 1, 1, a.data, b.data, o.data, q.data, k.number, v.data, &out_number)
            return mercer_number(out_number)
        out = new_like(like)
        mercer_slope_push(p.opcode, rows, o.n, a.data, b.data, o.data, q.data, k.number, v.data, data_of(out))
        return out
    total = None if s is None else slope_product(p, s, x, r, c, lead)
    if u is not None:
        term = ERRORS["second slope"](p, t, x, c, u)
        total = term if total is None else total if term is None else total + term
    return total


cdef dict _slopes = {}


cdef Primitive slope_of(Primitive p):
    """Return the primitive of p's slope product (t, x, f(x), c)."""
    cdef Primitive slope = _slopes.get(id(p))
    if slope is None:

        def pull(g, ans, needed, t, x, r, c):
            return [
                slope_product(p, g, x, r, c, 0) if needed[0] else None,
                slope_push(p, None, t, x, r, c, g, 0) if needed[1] else None,
                None,
                None,
            ]

        slope = Primitive(None, vjp=pull, name=f"slope of {p.name}")
        _slopes[id(p)] = slope
    return slope


cdef object push2(Primitive p, object s, object t, object x, object y, object r, Forward level):
    """Return the tangent of a binary operation; s and t are the tangents of x and y (None: zero)."""
    cdef Operand a, b, o, q, v
    cdef double number
    if s is None and t is None:
        return None
    a.data = b.data = NULL
    if not level.lead and read(x, &o) and read(y, &q) and read(r, &v) \
            and (s is None or (read(s, &a) and (not a.step or a.n == v.n))) \
            and (t is None or (read(t, &b) and (not b.step or b.n == v.n))) \
            and (not o.step or o.n == v.n) and (not q.step or q.n == v.n):
        if not v.step:
            mercer_push2(p.opcode, 1, a.data, 0, b.data, 0, o.data, 0, q.data, 0, v.data, &number)
            return mercer_number(number)
        if v.n <= CHEAP_UP_TO and (not (o.step and q.step) or same_shape(x, y)):
            out = new_like(r)
            mercer_push2(p.opcode, v.n, a.data, a.step, b.data, b.step, o.data, o.step, q.data, q.step, v.data,
                         data_of(out))
            return out
    total = None
    if s is not None:
        total = slope_product2(p, 0, s, x, y, r, level.lead, x)
    if t is not None:
        term = slope_product2(p, 1, t, x, y, r, level.lead, y)
        if total is None:
            total = term
        elif p.opcode != MERCER_ADD and p.opcode != MERCER_SUBTRACT and owned_pair(total, term):
            mercer_accumulate(cnp.PyArray_SIZE(<cnp.ndarray>term), data_of(term), data_of(total))
        else:
            total = operate2(ADD, total, term)
    if total is None:
        return None
    shape = shape_of(r)
    if level.lead:
        shape = (level.lead, *shape)
    return cast(total if shape_of(total) == shape else np.broadcast_to(total, shape), r)


cdef inline bint owned_pair(object a, object b):
    """Whether b can be added into a where it stands."""
    return (
        type(a) is cnp.ndarray and type(b) is cnp.ndarray
        and cnp.PyArray_TYPE(<cnp.ndarray>a) == cnp.NPY_DOUBLE and cnp.PyArray_TYPE(<cnp.ndarray>b) == cnp.NPY_DOUBLE
        and cnp.PyArray_ISCARRAY(<cnp.ndarray>a) and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>b) and same_shape(a, b)
    )


cdef object slope_product2(Primitive p, int which, object t, object x, object y, object r, Py_ssize_t lead,
                           object of):
    """Return t times the slope of a binary operation in its argument `which`, of the answer's shape.

    `of` is what t is the tangent of; a cotangent has the answer's shape already (`of` is r).
    """
    cdef Operand a, b, o, q
    cdef double out_number
    cdef Py_ssize_t rows = lead if lead else 1
    cdef int op = p.opcode
    r_is_known = r is not None
    if op == MERCER_ADD or (op == MERCER_SUBTRACT and which == 0):
        return aligned(t, of, r, lead) if lead else t
    if op == MERCER_SUBTRACT:
        t = aligned(t, of, r, lead) if lead else t
        return operate1(NEGATIVE, t, None)
    if r_is_known and read(t, &a) and read(x, &o) and read(y, &b) and read(r, &q):
        if (not o.step or not b.step or same_shape(x, y)) and (a.n == rows * q.n or (a.n == rows)):
            if not q.step and not lead:
                mercer_slope_product2(op, which, 1, 1, a.data, 0, o.data, 0, b.data, 0, q.data, &out_number)
                return mercer_number(out_number)
            if q.n <= CHEAP_UP_TO:
                step = 1 if a.n == rows * q.n else 0
                out = new_like(r) if not lead else np.empty((lead, *shape_of(r)))
                mercer_slope_product2(op, which, rows, q.n, a.data, step, o.data, o.step, b.data, b.step, q.data,
                                      data_of(out))
                return out
    t = aligned(t, of, r, lead) if lead else t
    if op == MERCER_MULTIPLY:
        return product(t, x if which else y, lead)
    if op == MERCER_SCALE:  # what was masked stays so
        return product(x, t, lead) if which else product(t, y, lead)
    with _errstate(all="ignore"):
        slope = p.partials[which](r, x, y)
    return product(t, slope, lead)


cdef object aligned(object t, object of, object r, Py_ssize_t lead):
    """Give a chunk of tangents the axes that broadcasting adds to what they belong to."""
    cdef Py_ssize_t missing = len(shape_of(r)) - len(shape_of(of))
    if of is r or missing <= 0:
        return t
    return np.reshape(t, (lead, *(1,) * missing, *shape_of(of)))


cdef object product(object t, object slope, Py_ssize_t lead):
    """Return t · slope, in which zeros of t stay zero; with `lead` t has one more axis at the front."""
    return operate2(SCALE, t, slope)


cdef object product_of(Primitive p, Py_ssize_t which, object t, object slope, Py_ssize_t lead):
    """The product with the slope in an argument; of a product with zeros kept, what was masked stays so."""
    return product(slope, t, lead) if p.opcode == MERCER_SCALE and which == 1 else product(t, slope, lead)


def scale_plain(t, slope):
    """t · slope on plain arrays of any shapes and types, where a zero of t stays zero."""
    cdef cnp.ndarray array
    with _errstate(all="ignore"):
        out = _multiply(t, slope)
        if isinstance(out, cnp.ndarray) and cnp.PyArray_TYPE(<cnp.ndarray>out) == cnp.NPY_DOUBLE \
                and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>out):
            array = <cnp.ndarray>out
            if mercer_all_finite(cnp.PyArray_SIZE(array), <const double *>cnp.PyArray_DATA(array)):
                return out
        elif np.isfinite(out).all():
            return out
        return np.where(np.equal(t, 0), np.zeros((), out.dtype), out)[()]


cdef object elementwise_push(Primitive p, list tangents, object ans, tuple args, object chunk):
    """Return the tangent of an elementwise function: Σ tangent · partial derivative."""
    cdef Py_ssize_t lead = 0 if chunk is None else chunk
    cdef Py_ssize_t i
    total = None
    for i in range(len(args)):
        tangent = tangents[i]
        partial = p.partials[i]
        if tangent is None or partial is None:
            continue
        if lead:
            tangent = aligned(tangent, args[i], ans, lead)
        if callable(partial):
            with _errstate(all="ignore"):
                slope = partial(ans, *args)
            term = product_of(p, i, tangent, slope, lead)
        else:
            term = tangent if partial == 1 else operate1(NEGATIVE, tangent, None) if partial == -1 else tangent * partial
        total = term if total is None else operate2(ADD, total, term)
    if total is None:
        return None
    shape = shape_of(ans)
    if lead:
        shape = (lead, *shape)
    return cast(total if shape_of(total) == shape else np.broadcast_to(total, shape), ans)


cdef object elementwise_pull(Primitive p, object g, object ans, tuple args, object needed, object chunk):
    """Return the cotangents of an elementwise function's arguments: conj(partial) · g, summed over copies."""
    cdef Py_ssize_t lead = 0 if chunk is None else chunk
    cdef Py_ssize_t i
    cdef list result = []
    for i in range(len(args)):
        partial = p.partials[i]
        if partial is None or not needed[i]:
            result.append(None)
            continue
        if callable(partial):
            slope = partial(ans, *args)
            if is_complex(slope):
                slope = np.conj(slope)
            part = product_of(p, i, g, slope, lead)
        else:
            part = g if partial == 1 else operate1(NEGATIVE, g, None) if partial == -1 else g * partial
        result.append(unbroadcast(part, args[i], chunk))
    return result


cdef int type_number(object x):
    """The number of a value's dtype; −1 if that takes longer to find out."""
    while isinstance(x, Traced):
        x = (<Traced>x).value
    if MERCER_IS_NUMBER(x):
        return cnp.NPY_DOUBLE
    if isinstance(x, cnp.ndarray):
        return cnp.PyArray_TYPE(<cnp.ndarray>x)
    if isinstance(x, Like):
        return (<Like>x).number
    return -1


cdef bint is_complex(object x):
    cdef int number = type_number(x)
    if number >= 0:
        return cnp.PyTypeNum_ISCOMPLEX(number)
    return np_like(x).dtype.kind == "c"


def unbroadcast(g, like, chunk=None):
    """Return the cotangent of an argument from that of what it was broadcast to (the sum over copies).

    Parameters
    ----------
    g : array of shape (*lead, …)
        `lead` is one axis if `chunk` is given.
    like : the argument, or anything with its shape and dtype

    Returns
    -------
    array of shape (*lead, *like.shape), of the argument's type (its real part if the argument is real).
    """
    cdef tuple shape = shape_of(like), have = shape_of(g)
    cdef Py_ssize_t lead = 0 if chunk is None else 1, extra, i
    if lead:
        have = have[1:]
    if shape != have:
        extra = len(have) - len(shape)
        if extra < 0:
            raise ValueError(f"a cotangent of shape {have} cannot be that of an argument of shape {shape}")
        axes = [lead + i for i in range(extra)]
        for i in range(len(shape)):
            if shape[i] == 1 and have[extra + i] != 1:
                axes.append(lead + extra + i)
        if axes:
            if type(g) is cnp.ndarray:
                g = _add_reduce(g, axis=tuple(axes), keepdims=True)
            else:
                g = np.sum(g, axis=tuple(axes), keepdims=True)
        if extra:
            g = np.reshape(g, shape_of(g)[:lead] + shape)
            if not shape and not lead and type(g) is cnp.ndarray:
                g = g[()]
    return cast(g, like)


cpdef object cast(object g, object like):
    """Return a cotangent in the floating type of the argument it belongs to."""
    if g is None:
        return None
    cdef int number = type_number(g)
    if number >= 0 and number == type_number(like):
        return g
    have, want = np_like(g).dtype, np_like(like).dtype
    if have == want or want.kind not in "fc":
        return g
    if have.kind == "c" and want.kind == "f":
        g = np.real(g)
    return g if np_like(g).dtype == want else g.astype(want)


# -- the reverse sweep ----------------------------------------------------------------------------------


def backward(Tape tape, list seeds, list inputs, chunk=None):
    """Return the cotangents of some slots from those of others (LINMA 1.3), from the last record to the first.

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
                if p is GETITEM and chunk is None and put_back(tape, i, g, held, owned):
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
            for part in p.pull(g, tape.answers[i], operands(tape, i), {} if kwargs is None else kwargs, needed, chunk):
                if part is not None and tape.parents[j] >= 0:
                    deposit(held, owned, tape.parents[j], part, False)
                j += 1
    return [held[at] for at in inputs]


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


cdef int put_back(Tape tape, Py_ssize_t i, object g, list held, bytearray owned) except -1:
    """Add the cotangent of x[index] into that of x where it stands; return 0 if that needs a rule.

    A loop over entries would else make an array of x's size for each.
    """
    cdef Py_ssize_t parent = tape.parents[tape.first[i]]
    cdef tuple args
    cdef Like x = <Like>(<tuple>tape.args[i])[0]
    if x.number != cnp.NPY_DOUBLE or type_number(g) != cnp.NPY_DOUBLE or isinstance(g, Traced) or parent < 0:
        return 0
    have = held[parent]
    if have is None:
        have = np.zeros(x.shape)
    elif isinstance(have, Traced) or type_number(have) != cnp.NPY_DOUBLE or MERCER_IS_NUMBER(have):
        return 0
    elif not (owned[parent] and cnp.PyArray_ISCARRAY(<cnp.ndarray>have)):
        have = np.array(have, np.float64)
    args = <tuple>tape.args[i]
    index = args[1] if len(args) > 1 else (<dict>tape.kwargs[i])["index"]
    if not is_basic(index):
        np.add.at(have, index, g)
    elif MERCER_IS_NUMBER(g) and type(index) is int and cnp.PyArray_NDIM(<cnp.ndarray>have) == 1:
        data_of(have)[<Py_ssize_t>index + (x.shape[0] if index < 0 else 0)] += <double>g
    else:
        have[index] += g
    held[parent] = have
    owned[parent] = True
    return 1


cpdef bint is_basic(object index):
    """Whether an index makes a view (NumPy's basic indexing)."""
    if isinstance(index, tuple):
        for part in index:
            if not is_basic_part(part):
                return False
        return True
    return is_basic_part(index)


cdef bint is_basic_part(object part):
    return (type(part) is int or part is None or part is Ellipsis or isinstance(part, slice)
            or isinstance(part, np.integer) or (isinstance(part, int) and not isinstance(part, bool)))


cdef int pull_operation(Tape tape, Py_ssize_t i, Primitive p, object g, bint g_is_owned, list held, bytearray owned,
                        object chunk) except -1:
    """Pull a cotangent back through an operation that sweep.h knows."""
    cdef Operand a, o, q, k
    cdef Py_ssize_t begin = tape.first[i], parent
    cdef Py_ssize_t lead = 0 if chunk is None else chunk
    cdef int which
    x, y, r = tape.args[i], tape.seconds[i], tape.answers[i]
    if p.opcode == MERCER_POWER_BY and (tape.parents[begin + 1] >= 0 or not plain_number(y)):
        parts = elementwise_pull(p, g, r, (x, y), (tape.parents[begin] >= 0, tape.parents[begin + 1] >= 0), chunk)
        for which in range(2):
            if parts[which] is not None:
                deposit(held, owned, tape.parents[begin + which], parts[which], False)
        return 0
    if p.opcode < MERCER_N_UNARY:
        k.number = 0.0
        if (g_is_owned and not lead and cnp.PyArray_CheckExact(g) and read(g, &a) and read(x, &o) and read(r, &q)
                and a.n == o.n and a.n == q.n and (a.n <= LIBM_UP_TO or slope_is_cheap(p.opcode))
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
        if real_of(g, x) and real_of(g, y):
            part = slope_product2(p, which, g, x, y, r, lead, r)
            fresh_array = part is not g
            if not MERCER_IS_NUMBER(part) or not MERCER_IS_NUMBER(of):
                part = summed(part, of, chunk)
        else:
            part = elementwise_pull(p, g, r, (x, y), (which == 0, which == 1), chunk)[which]
            fresh_array = False
        deposit(held, owned, parent, part, fresh_array and not isinstance(part, Traced))
    return 0


cdef object summed(object part, object x, object chunk):
    """Return a part of a cotangent in the shape and type of its argument."""
    if chunk is None and type(part) is cnp.ndarray and MERCER_IS_NUMBER(x) and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>part) \
            and cnp.PyArray_TYPE(<cnp.ndarray>part) == cnp.NPY_DOUBLE:
        return mercer_number(mercer_sum(cnp.PyArray_SIZE(<cnp.ndarray>part), data_of(part)))
    return unbroadcast(part, x, chunk)


cdef bint real_of(object g, object x):
    """Whether neither value is complex."""
    return not (is_complex(g) or (x is not None and is_complex(x)))


# -- the operations that sweep.h knows ------------------------------------------------------------------

cdef Primitive ADD, SUBTRACT, MULTIPLY, DIVIDE, POWER, NEGATIVE, SCALE, GETITEM
ADD = SUBTRACT = MULTIPLY = DIVIDE = POWER = NEGATIVE = SCALE = GETITEM = None

OPCODES = {
    np.negative: 1, np.sin: 2, np.cos: 3, np.tan: 4, np.exp: 5, np.expm1: 6, np.log: 7, np.log1p: 8, np.sqrt: 9,
    np.square: 10, np.reciprocal: 11, np.tanh: 12, np.sinh: 13, np.cosh: 14, np.arctan: 15, np.absolute: 16,
    np.power: 17, np.add: 64, np.subtract: 65, np.multiply: 66, np.true_divide: 67, np.maximum: 68, np.minimum: 69,
    "scale": 70,
}
for _ufunc, _opcode in OPCODES.items():
    if _opcode < MERCER_POWER_BY:
        find_loop(_ufunc, _opcode)
# Which zero of two comes out is NumPy's to say.
find_loop2(np.maximum, OPCODES[np.maximum])
find_loop2(np.minimum, OPCODES[np.minimum])


def define_operators(**primitives):
    """Name the primitives behind the operators, once the rules have defined them."""
    global ADD, SUBTRACT, MULTIPLY, DIVIDE, POWER, NEGATIVE, SCALE, GETITEM
    ADD, SUBTRACT, MULTIPLY = primitives["add"], primitives["subtract"], primitives["multiply"]
    DIVIDE, POWER, NEGATIVE = primitives["divide"], primitives["power"], primitives["negative"]
    SCALE, GETITEM = primitives["scale"], primitives["getitem"]


def full(double value, tuple shape):
    """Return an array of a shape full of one number, sooner than np.full does for small ones."""
    cdef cnp.ndarray out = np.empty(shape)
    cdef double *data = data_of(out)
    cdef Py_ssize_t i
    for i in range(cnp.PyArray_SIZE(out)):
        data[i] = value
    return out

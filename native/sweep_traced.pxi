# Traced values: the array protocols, and the meaning of views and assignment. Part of _sweep.pyx.


# A traced value refers to levels and arrays only, which never refer to it: it needs no collector.
@cython.final
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

    # Data frames leave an operation to an operand of a higher priority than theirs (pandas: 4000).
    __pandas_priority__ = 5000

    def __init__(self, value, Level level, slot=-1, tangent=None):
        self.value, self.level, self.slot, self.tangent = value, level, slot, tangent

    def __dealloc__(self):
        mercer_shelve(<PyObject *>self.value)
        mercer_shelve(<PyObject *>self.tangent)
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

    @shape.setter
    def shape(self, shape):
        METHODS["__set_shape__"](self, shape)

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

    @property
    def real(self):
        return PROPERTIES["real"](self)

    @real.setter
    def real(self, value):
        METHODS["__set_real__"](self, value)

    @property
    def imag(self):
        return PROPERTIES["imag"](self)

    @imag.setter
    def imag(self, value):
        METHODS["__set_imag__"](self, value)

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

    def __array_ufunc__(self, ufunc, str method not None, *inputs, **kwargs):
        if method == "__call__" and not kwargs:
            rule = _ufuncs.get(ufunc)
            if rule is None:
                raise ERRORS["no rule"](ufunc)
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
                if is_traced(v):
                    bound = signature(func).bind(*args, **kwargs)
                    return rule(*bound.args, **bound.kwargs)
        return rule(*args, **kwargs)

    def __getitem__(self, index):
        return read_basic(self, index) if is_basic(index) else METHODS["__getitem__"](self, index)

    def __setitem__(self, index, value):
        METHODS["__setitem__"](self, index, value)

    def __delitem__(self, index):
        raise ERRORS["deletion"](self)

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
        if modulo is not None:
            raise ERRORS["modulo"](self)
        return operator2(POWER, self, other)

    def __rpow__(self, other, modulo):
        if modulo is not None:
            raise ERRORS["modulo"](self)
        return operator2(POWER, other, self)

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
        if isinstance(other, (str, bytes)):  # NumPy's operator knows these, its function does not
            return plain(self) == other
        return NotImplemented if _declines(other) else np.equal(self, other)

    def __ne__(self, other):
        if isinstance(other, (str, bytes)):
            return plain(self) != other
        return NotImplemented if _declines(other) else np.not_equal(self, other)

    def __hash__(self):
        raise ERRORS["hash"](self)

    def __and__(self, other):
        raise ERRORS["bits"](self, "&")

    def __rand__(self, other):
        raise ERRORS["bits"](self, "&")

    def __or__(self, other):
        raise ERRORS["bits"](self, "|")

    def __ror__(self, other):
        raise ERRORS["bits"](self, "|")

    def __xor__(self, other):
        raise ERRORS["bits"](self, "^")

    def __rxor__(self, other):
        raise ERRORS["bits"](self, "^")

    def __lshift__(self, other):
        raise ERRORS["bits"](self, "<<")

    def __rlshift__(self, other):
        raise ERRORS["bits"](self, "<<")

    def __rshift__(self, other):
        raise ERRORS["bits"](self, ">>")

    def __rrshift__(self, other):
        raise ERRORS["bits"](self, ">>")

    def __invert__(self):
        raise ERRORS["bits"](self, "~")

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
        return ERRORS["array"](self)

    def __float__(self):
        raise ERRORS["number"](self, "float()")

    def __int__(self):
        raise ERRORS["number"](self, "int()")

    def __index__(self):
        raise ERRORS["number"](self, "operator.index()")

    def __complex__(self):
        raise ERRORS["number"](self, "complex()")

    def __trunc__(self):
        raise ERRORS["number"](self, "math.trunc()")

    def __bytes__(self):
        return METHODS["tobytes"](self)

    def __reduce_ex__(self, protocol):
        raise ERRORS["pickle"](self)


cdef extern from *:
    """
    /* Put a function in the place of __array_ufunc__ called without a tuple and a dict. */
    typedef PyObject *(*Method)(PyObject *, PyObject **, Py_ssize_t, PyObject *);
    static int mercer_put_method(PyObject *type, Method function)
    {
        static PyMethodDef method = {"__array_ufunc__", NULL, METH_FASTCALL | METH_KEYWORDS, NULL};
        method.ml_meth = (PyCFunction)(void (*)(void))function;
        PyObject *descriptor = PyDescr_NewMethod((PyTypeObject *)type, &method);
        if (descriptor == NULL)
            return -1;
        const int status = PyDict_SetItemString(((PyTypeObject *)type)->tp_dict, method.ml_name, descriptor);
        Py_DECREF(descriptor);
        PyType_Modified((PyTypeObject *)type);
        return status;
    }
    """
    ctypedef object (*Method)(object, PyObject **, Py_ssize_t, PyObject *)
    int mercer_put_method(object type, Method function) except -1
    object PyObject_Vectorcall(object f, PyObject **args, size_t n, PyObject *names)


cdef object _any_ufunc = Traced.__array_ufunc__


cdef object array_ufunc(object self, PyObject **args, Py_ssize_t n, PyObject *names):
    """Traced.__array_ufunc__ for calls of the operations of sweep.h; all else is left to the method.

    A tuple and a dict less at each: 330 instructions of a sine's 7,300, there and back.
    """
    cdef Primitive p
    # A method's name that begins so is __call__; to compare all of it takes longer.
    if names == NULL and 3 <= n <= 4 and type(<object>args[1]) is str and (<str><object>args[1])[0] == "_":
        rule = _ufuncs.get(<object>args[0])
        if type(rule) is Primitive and (<Primitive>rule).opcode:
            p = <Primitive>rule
            if n == 3:
                return operate1(p, <object>args[2], None)
            out = operator2(p, <object>args[2], <object>args[3])
            if out is not NotImplemented:
                return out
            return apply(p, (<object>args[2], <object>args[3]), {})
    return PyObject_Vectorcall(_any_ufunc.__get__(self), args, n, names)


mercer_put_method(Traced, array_ufunc)


cdef bint _declines(object other):
    """Whether an operand asks NumPy to leave the operation to its own method."""
    return not isinstance(other, (cnp.ndarray, float, int, Traced)) and \
        getattr(type(other), "__array_ufunc__", 0) is None


cpdef object plain(object x):
    """Return the array or scalar inside of a value, through all levels."""
    while is_traced(x):
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
    if is_traced(other):
        source = <Traced>other
    else:  # what was traced in it has been overwritten
        source = <Traced>x.level.constant(other)
    x.value, x.level, x.slot, x.tangent = source.value, source.level, source.slot, source.tangent
    x._version += 1

# Levels: the tape of reverse mode, forward mode, and what looks at values. Part of _sweep.pyx.


cdef class Level:
    """One derivative being computed; a later one has a higher `order`, so nesting needs no more.

    Attributes
    ----------
    order : int
    open : bool
        Whether the function is still being run; values of a closed level are refused.
    factors : dict
        What rules share that factorise the same matrix.
    """

    cdef readonly long order
    cdef readonly dict factors
    cdef public bint open
    cdef bint is_tape

    def __init__(self):
        self.order = next(_order)
        self.factors = {}
        self.open = True


cdef struct Record:
    Py_ssize_t first           # where its parents begin
    int32_t slot               # of its (first) output
    int32_t outputs            # 0 for an array, or how many a tuple has


cdef enum:
    # What a tape keeps of each record. An operation of sweep.h has its operands in the places of `args` and
    # `second`; others have a tuple, and their keywords.
    PRIMITIVE, ARGS, SECOND, ANSWER, N_KEPT


cdef class Tape(Level):
    """Reverse mode: every operation on its variables, in order.

    A record has the primitive, its arguments and answer as the level below has them, and the slots of the
    arguments (−1 for those that are not variables of this tape). Records never refer to the tape's own
    variables, so there are no cycles, and lists end without recursion however long the chain is.
    """

    cdef list kept_objects     # N_KEPT of each record
    cdef Record *headers       # of each record, and where the next one's parents begin
    cdef int32_t *parents      # of all records, one after another
    cdef Py_ssize_t n_records, n_parents, room_records, room_parents
    cdef dict guards           # id -> (array of the caller's, checksum): what must not have changed when used
    cdef readonly Py_ssize_t n_slots

    def __cinit__(self):
        self.is_tape = True
        self.kept_objects, self.guards = [], {}

    def __dealloc__(self):
        free(self.parents)
        free(self.headers)

    def __len__(self):
        return self.n_records

    @property
    def records(self):
        """The records as tuples (primitive, args, kwargs, parents, answer, slot, number of outputs)."""
        return [
            (
                self.kept_of(i, PRIMITIVE), operands(self, i), keywords(self, i),
                [self.parents[j] for j in range(self.headers[i].first, self.headers[i + 1].first)],
                self.kept_of(i, ANSWER), self.headers[i].slot, self.headers[i].outputs,
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
        """Forget all records: a traced value that a user's object keeps by mistake keeps nothing else."""
        self.kept_objects, self.room_records = [], 0
        self.guards, self.factors = {}, {}
        self.n_records = self.n_parents = 0

    cdef object kept_of(self, Py_ssize_t i, int what):
        """Return what is kept of a record."""
        return <object>PyList_GET_ITEM(self.kept_objects, N_KEPT * i + what)

    cdef int forget(self, Py_ssize_t i) except -1:
        """Let go of what a record holds, once the last sweep has passed it."""
        cdef int what
        for what in range(ARGS, N_KEPT):
            mercer_let_go(self.kept_objects, N_KEPT * i + what)
        return 0

    cdef int begin(self, Primitive primitive, object args, object second, object answer,
                   int outputs) except -1:
        """Write a record whose parents follow by `parent`; `second` may be the keywords (see ARGS)."""
        cdef Py_ssize_t n = self.n_records
        if n + 1 >= self.room_records:
            self.room_records = 64 if self.room_records == 0 else 2 * self.room_records
            self.headers = <Record *>_grown(self.headers, self.room_records * sizeof(Record))
            self.kept_objects = mercer_longer_list(self.kept_objects, N_KEPT * self.room_records)
            if n == 0:
                self.headers[0].first = 0
        mercer_append(self.kept_objects, primitive)
        mercer_append(self.kept_objects, args)
        mercer_append(self.kept_objects, second)
        mercer_append(self.kept_objects, answer)
        self.headers[n].slot = <int32_t>self.n_slots
        self.headers[n].outputs = outputs
        self.headers[n + 1].first = self.headers[n].first
        self.n_slots += outputs if outputs else 1
        self.n_records = n + 1
        return 0

    cdef int parent(self, Py_ssize_t slot) except -1:
        if self.n_parents + 1 >= self.room_parents:
            self.room_parents = 128 if self.room_parents == 0 else 2 * self.room_parents
            self.parents = <int32_t *>_grown(self.parents, self.room_parents * sizeof(int32_t))
        self.parents[self.n_parents] = <int32_t>slot
        self.n_parents += 1
        self.headers[self.n_records].first = self.n_parents
        return 0

    cdef object kept(self, object x):
        """Return an operand that is not of this tape so that the caller's later changes do not reach it.

        Small arrays are copied; of larger ones a checksum says at the sweep whether they have changed.
        """
        cdef cnp.ndarray a
        if is_traced(x):
            return traced((<Traced>x).value, (<Traced>x).level, (<Traced>x).slot, (<Traced>x).tangent)
        if type(x) is cnp.ndarray:
            a = <cnp.ndarray>x
            if cnp.PyArray_NBYTES(a) <= COPIED_UP_TO:
                return x.copy("K")  # the layout decides what is a view
            if x.base is not None or cnp.PyArray_ISWRITEABLE(a):
                self.guard(a)
        return x

    cdef int guard(self, cnp.ndarray x) except -1:
        """Write down an array's checksum at each use: what is changed and changed back has changed, too."""
        now = checksum(x)
        known = self.guards.get(id(x))
        if known is None:
            self.guards[id(x)] = (x, now)
        elif known[1] != now:
            self.guards[id(x)] = (x, None)
        return 0

    cdef int check_guards(self) except -1:
        for x, before in self.guards.values():
            if before is None or checksum(x) != before:
                raise ERRORS["changed"](x)
        return 0

    cdef object record(self, Primitive primitive, tuple args, tuple raw, dict kwargs, object answer):
        cdef Py_ssize_t i, slot
        cdef tuple kept
        cdef bint others = False
        for i in range(len(args)):
            if not (is_traced(args[i]) and (<Traced>args[i]).level is self) \
                    and (is_traced(args[i]) or type(args[i]) is cnp.ndarray):
                others = True
        if others:
            raw = tuple([
                b if is_traced(a) and (<Traced>a).level is self else self.kept(b)
                for a, b in zip(args, raw)
            ])
        if isinstance(answer, tuple):
            self.begin(primitive, raw, kwargs, answer, <int>len(answer))
        elif primitive.opcode:
            self.begin(primitive, raw[0], raw[1] if len(raw) > 1 else None, answer, 0)
        elif primitive.linear:
            self.begin(primitive, (like_of(raw[0]), *raw[1:]), kwargs, like_of(answer), 0)
        else:
            self.begin(primitive, raw, kwargs, Like(answer) if primitive.unread else answer, 0)
        slot = self.headers[self.n_records - 1].slot
        for a in args:
            self.parent((<Traced>a).slot if is_traced(a) and (<Traced>a).level is self else -1)
        if not isinstance(answer, tuple):
            return traced(answer, self, slot, None)
        return rebuilt(
            answer,
            [traced(a, self, slot + i, None) if is_differentiable(a) else a for i, a in enumerate(answer)],
        )


def snapshot(x):
    """Return a value that later assignments to `x` do not reach."""
    if is_traced(x):
        fresh(<Traced>x)
        return traced((<Traced>x).value, (<Traced>x).level, (<Traced>x).slot, (<Traced>x).tangent)
    return x.copy("K") if type(x) is cnp.ndarray else x


cpdef object checksum(cnp.ndarray x):
    """Return a number that tells whether the entries of an array have changed."""
    cdef cnp.ndarray a = x if cnp.PyArray_ISONESEGMENT(x) else np.ascontiguousarray(x)
    if cnp.PyArray_TYPE(a) == cnp.NPY_OBJECT:
        return 0
    return mercer_checksum(cnp.PyArray_NBYTES(a), <const char *>cnp.PyArray_DATA(a))


cdef tuple operands(Tape tape, Py_ssize_t i):
    """Return the arguments of a record."""
    args = tape.kept_of(i, ARGS)
    if not (<Primitive>tape.kept_of(i, PRIMITIVE)).opcode:
        return <tuple>args
    second = tape.kept_of(i, SECOND)
    return (args,) if second is None else (args, second)


cdef dict keywords(Tape tape, Py_ssize_t i):
    """Return the keywords of a record."""
    if (<Primitive>tape.kept_of(i, PRIMITIVE)).opcode:
        return {}
    return <dict>tape.kept_of(i, SECOND) or {}


cdef void *_grown(void *memory, size_t size) except NULL:
    cdef void *larger = realloc(memory, size)
    if larger == NULL:
        raise MemoryError("no memory for a tape")
    return larger


cdef class Forward(Level):
    """Forward mode: values with a tangent each, of one direction or of `chunk` (a leading axis)."""

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
            (<Traced>a).tangent if is_traced(a) and (<Traced>a).level is self else None for a in args
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
            [
                traced(a, self, -1, t) if is_differentiable(a) else a
                for a, t in zip(answer, tangent, strict=True)
            ],
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
        self.describe(x)

    cdef int describe(self, object x) except -1:
        cdef object value = inside(x)
        self.shape = shape_of(value)
        if MERCER_IS_NUMBER(value):
            self.dtype = _FLOAT64
        elif isinstance(value, cnp.ndarray):
            self.dtype = <object>cnp.PyArray_DESCR(<cnp.ndarray>value)
        else:
            self.dtype = np_like(value).dtype
        self.number = (<cnp.dtype>self.dtype).type_num
        return 0

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return _product(self.shape)


cdef inline Like like_of(object x):
    """Return Like(x), sooner."""
    cdef Like like = Like.__new__(Like)
    like.describe(x)
    return like


cdef Py_ssize_t _product(tuple shape):
    cdef Py_ssize_t size = 1
    for n in shape:
        size *= n
    return size


cdef inline bint is_traced(object x):
    """Whether a value is traced; the type has no subclasses, so one comparison tells."""
    return type(x) is Traced


cdef inline object inside(object x):
    """Return the array or number in a value; assignments to a base may not have reached it."""
    while is_traced(x):
        x = (<Traced>x).value
    return x


cdef tuple shape_of(object x):
    x = inside(x)
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
    if MERCER_IS_NUMBER(value) or is_traced(value):
        return True
    if isinstance(value, cnp.ndarray):
        return cnp.PyArray_ISFLOAT(<cnp.ndarray>value) or cnp.PyArray_ISCOMPLEX(<cnp.ndarray>value)
    return np_like(value).dtype.kind in "fc"


cdef inline Traced traced(object value, Level level, Py_ssize_t slot, object tangent):
    cdef Traced x = Traced.__new__(Traced)
    x.value = value
    x.level = level
    x.slot = slot
    x.tangent = tangent
    return x

# Products with slopes: pushforwards and pullbacks of elementwise operations. Part of _sweep.pyx.


cdef object slope_product(Primitive p, object t, object x, object r, object c, Py_ssize_t lead):
    """Return t · f'(x), r = f(x), on values of any level; t has a leading axis if `lead`.

    It is an operation with a derivative of its own, so that a Hessian-vector product takes one loop where
    the gradient takes one.
    """
    cdef Operand a, o, b, k
    cdef Level top
    cdef double out_number
    cdef const MercerSweep *loops = loops_for(x)
    k.number = 0.0
    top = top_of(t, x, r, None)
    if top is None:
        if (read_for(loops, t, &a) and read_for(loops, x, &o) and read_for(loops, r, &b)
                and o.n == b.n and a.n == o.n * (lead if lead else 1)
                and (a.step or not o.step)
                and (c is None or read(c, &k))):
            if not a.step:
                DOUBLES.slope_product(p.opcode, 1, 1, a.data, o.data, b.data, k.number, &out_number)
                return mercer_number(out_number)
            out = new_like(t)
            if o.step or lead:
                if o.n <= LIBM_UP_TO or slope_is_cheap(p.opcode):
                    loops.slope_product(p.opcode, lead if lead else 1, o.n, a.data, o.data, b.data, k.number,
                                        data_of(out))
                    return out
                if slope_loop(p.opcode) and o.step and loops is DOUBLES:
                    slope = new_like(x)
                    run_loop(slope_loop(p.opcode), o.n, o.data, data_of(slope))
                    DOUBLES.rows_product(lead if lead else 1, o.n, a.data, data_of(slope), data_of(out))
                    return out
    elif not lead and top.open and below_is_plain(t, x, r, top):
        return slope_product_above(p, t, x, r, c, top)
    partial = p.partials[0]
    if not callable(partial):
        return t if partial == 1 else -t
    with _errstate(all="ignore"):
        slope = partial(r, x) if c is None else partial(r, x, c)
    return product(t, slope, lead)


cdef Level top_of(object t, object x, object y, object r):
    """Return the innermost level of up to four values, None if all are plain."""
    return later(later(level_of(t), level_of(x)), later(level_of(y), level_of(r)))


cdef inline Level level_of(object a):
    return (<Traced>a).level if is_traced(a) else None


cdef inline Level later(Level a, Level b):
    return a if b is None or (a is not None and a.order > b.order) else b


cdef inline object at_level(object a, Level top):
    return (<Traced>a).value if is_traced(a) and (<Traced>a).level is top else a


cdef bint below_is_plain(object t, object x, object r, Level top):
    """Whether under the top level there are arrays of one shape and type that loops know, or numbers."""
    cdef Operand a, b, o
    cdef const MercerSweep *loops
    t, x, r = at_level(t, top), at_level(x, top), at_level(r, top)
    loops = loops_for(x)
    if not (read_for(loops, t, &a) and read_for(loops, x, &o) and read_for(loops, r, &b)):
        return False
    if a.n != o.n or a.step != o.step or b.n != o.n:
        return False
    return not a.step or same_shape(t, x)


cdef object slope_product_above(Primitive p, object t, object x, object r, object c, Level top):
    """The slope product where one level stands above plain arrays: recorded as an operation itself."""
    cdef Tape tape
    cdef Forward forward
    t0, x0, r0 = at_level(t, top), at_level(x, top), at_level(r, top)
    if top.is_tape:
        ans = slope_product(p, t0, x0, r0, c, 0)
        tape = <Tape>top
        tape.begin(slope_of(p), (t0, x0, r0, c), None, ans, 0)
        tape.parent((<Traced>t).slot if t0 is not t else -1)
        tape.parent((<Traced>x).slot if x0 is not x else -1)
        tape.parent(-1)
        tape.parent(-1)
        return traced(ans, tape, tape.n_slots - 1, None)
    forward = <Forward>top
    s = (<Traced>t).tangent if t0 is not t else None
    u = (<Traced>x).tangent if x0 is not x else None
    if s is None and u is None:
        return slope_product(p, t0, x0, r0, c, 0)
    if not forward.lead:
        ans, tangent = slope_both(p.opcode, s, t0, x0, r0, c, u)
        if ans is not None:
            return traced(ans, forward, -1, tangent)
    ans = slope_product(p, t0, x0, r0, c, 0)
    return traced(ans, forward, -1, slope_push(p, s, t0, x0, r0, c, u, forward.lead))


cdef struct Pushed:
    # The operands of s · f'(x) + t · f''(x) · u; s and u may be NULL (zero).
    Operand s, t, x, r, c, u
    const MercerSweep *loops


cdef bint read_pushed(Pushed *o, int opcode, object s, object t, object x, object r, object c, object u,
                      Py_ssize_t rows):
    """Describe operands of one shape, s and u with an axis of `rows` in front, and find their loops."""
    o.loops = loops_for(x)
    o.c.number = 0.0
    o.s.data = o.u.data = NULL
    return ((o.loops is DOUBLES or slope_is_cheap(opcode))
            and read_for(o.loops, t, &o.t) and read_for(o.loops, x, &o.x) and read_for(o.loops, r, &o.r)
            and (c is None or read(c, &o.c)) and o.t.step == o.x.step and o.r.step == o.x.step
            and (s is None or (read_for(o.loops, s, &o.s) and o.s.n == rows * o.x.n
                               and (o.s.step or not o.x.step)))
            and (u is None or (read_for(o.loops, u, &o.u) and o.u.n == rows * o.x.n
                               and (o.u.step or not o.x.step))))


cdef tuple slope_both(int opcode, object s, object t, object x, object r, object c, object u):
    """Return t · f'(x) and its tangent s · f'(x) + t · f''(x) · u, the slope being computed once."""
    cdef Pushed o
    cdef double product, push
    if not read_pushed(&o, opcode, s, t, x, r, c, u, 1):
        return None, None
    if not o.x.step:
        o.loops.slope_push(opcode, 1, 1, o.s.data, o.t.data, o.x.data, o.r.data, o.c.number, o.u.data,
                           &push, &product)
        return mercer_number(product), mercer_number(push)
    ans, tangent = new_like(x), new_like(x)
    o.loops.slope_push(opcode, 1, o.x.n, o.s.data, o.t.data, o.x.data, o.r.data, o.c.number, o.u.data,
                       data_of(tangent), data_of(ans))
    return ans, tangent


cdef object slope_push(Primitive p, object s, object t, object x, object r, object c, object u,
                       Py_ssize_t lead):
    """Return s · f'(x) + t · f''(x) · u."""
    total = slope_pushed(p.opcode, s, t, x, r, c, u, lead)
    if total is not None:
        return total
    if s is not None:
        total = slope_product(p, s, x, r, c, lead)
    if u is not None:
        term = ERRORS["second slope"](p, t, x, c, u)
        total = term if total is None else total if term is None else total + term
    return total


cdef object slope_pushed(int opcode, object s, object t, object x, object r, object c, object u,
                         Py_ssize_t lead):
    """Return the same of float64 operands of one shape, else None."""
    cdef Pushed o
    cdef double number
    cdef Py_ssize_t rows = lead if lead else 1
    if not read_pushed(&o, opcode, s, t, x, r, c, u, rows):
        return None
    if not o.x.step and not lead:
        o.loops.slope_push(opcode, 1, 1, o.s.data, o.t.data, o.x.data, o.r.data, o.c.number, o.u.data,
                           &number, NULL)
        return mercer_number(number)
    out = new_like(u if s is None else s)
    o.loops.slope_push(opcode, rows, o.x.n, o.s.data, o.t.data, o.x.data, o.r.data, o.c.number, o.u.data,
                       data_of(out), NULL)
    return out


cdef object slope_product_of_answer(Primitive p, object t, Like x, object r, object chunk, Forward pushed):
    """Return t · f'(x) where t or r = f(x) is traced, and of x no more is kept than its shape and type: the
    slope and its derivative are those of r. With `pushed` return the tangent at this level, None for zero.
    """
    cdef Level top = top_of(t, r, None, None)
    if not top.is_tape and top.open and chunk is None and below_is_plain(t, r, r, top):
        t0, r0, s, u = at_level(t, top), at_level(r, top), tangent_at(t, top), tangent_at(r, top)
        if pushed is not None and pushed is top and not (s is None and u is None):
            part = slope_pushed(of_answer(p.opcode), s, t0, r0, r0, None, u, 0)
            if part is not None:
                return part
        elif pushed is None and not (s is None and u is None or (<Forward>top).lead):
            ans, tangent = slope_both(of_answer(p.opcode), s, t0, r0, r0, None, u)
            if ans is not None:
                return traced(ans, top, -1, tangent)
    part = elementwise_pull(p, t, r, (x,), (True,), chunk)[0]
    return part if pushed is None else tangent_at(part, pushed)


cdef int of_answer(int opcode):
    """The number of an operation's slope as a function of the answer."""
    if opcode == MERCER_TAN:
        return MERCER_TAN_OF_ANSWER
    if opcode == MERCER_EXP:
        return MERCER_EXP_OF_ANSWER
    if opcode == MERCER_SQRT:
        return MERCER_SQRT_OF_ANSWER
    return MERCER_RECIPROCAL_OF_ANSWER if opcode == MERCER_RECIPROCAL else MERCER_TANH_OF_ANSWER


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
    cdef bint is_sum = p.opcode == MERCER_ADD or p.opcode == MERCER_SUBTRACT
    if s is None and t is None:
        return None
    a.data = b.data = NULL
    if (not level.lead and read(x, &o) and read(y, &q) and read(r, &v)
            and (v.n <= CHEAP_UP_TO or not (is_sum or s is None or t is None))
            and (s is None or (read(s, &a) and a.n == o.n and a.step == o.step))
            and (t is None or (read(t, &b) and b.n == q.n and b.step == q.step))):
        if not v.step:
            DOUBLES.push2(p.opcode, 1, 1, a.data, 0, b.data, 0, o.data, 0, 0, q.data, 0, 0, v.data, &number)
            return mercer_number(number)
        if o.step and q.step and not same_shape(x, y):
            out = push2_pair(p.opcode, s, t, x, y, r)
        else:
            out = new_like(r)
            DOUBLES.push2(p.opcode, 1, v.n, a.data, a.step, b.data, b.step, o.data, 0, o.step, q.data, 0,
                          q.step, v.data, data_of(out))
        if out is not None:
            return out
    total = None
    if is_sum and not (level.lead or s is None or t is None):
        total, t = operate2(p, s, t), None
    elif s is not None:
        total = slope_product2(p, 0, s, x, y, r, level.lead, x)
    if t is not None:
        term = slope_product2(p, 1, t, x, y, r, level.lead, y)
        if total is None:
            total = term
        else:
            total = operate2(ADD, total, term) if is_sum else added_to(total, term)
    if total is None:
        return None
    shape = shape_of(r)
    if level.lead:
        shape = (level.lead, *shape)
    return cast(total if shape_of(total) == shape else np.broadcast_to(total, shape), r)


cdef object added_to(object total, object term):
    """Return total + term, where it stands if nobody but the caller has `total`."""
    if is_unshared(total, 1) and accumulate(total, term):
        return total
    return operate2(ADD, total, term)


cdef bint accumulate(object a, object b):
    """Add b into a where it stands; return 0 if not both are arrays of one shape and type that loops know."""
    cdef Operand o
    cdef const MercerSweep *loops = loops_for(a)
    if not (type(a) is cnp.ndarray and type(b) is cnp.ndarray and cnp.PyArray_ISCARRAY(<cnp.ndarray>a)
            and read_for(loops, a, &o) and read_for(loops, b, &o) and same_shape(a, b)):
        return False
    loops.accumulate(o.n, o.data, data_of(a))
    return True


cdef object slope_product2(Primitive p, int which, object t, object x, object y, object r, Py_ssize_t lead,
                           object of):
    """Return t times the slope of a binary operation in its argument `which`, of the answer's shape.

    `of` is what t is the tangent of; a cotangent has the answer's shape already (`of` is r).
    """
    cdef Operand a, b, o, q
    cdef double out_number
    cdef Py_ssize_t rows = lead if lead else 1
    cdef int op = p.opcode
    cdef Level top
    if op == MERCER_ADD or (op == MERCER_SUBTRACT and which == 0):
        return aligned(t, of, r, lead) if lead else t
    if op == MERCER_SUBTRACT:
        t = aligned(t, of, r, lead) if lead else t
        return operate1(NEGATIVE, t, None)
    if read(t, &a) and read(x, &o) and read(y, &b) and read(r, &q):
        if (not o.step or not b.step or same_shape(x, y)) and (a.n == rows * q.n or (a.n == rows)):
            if not q.step and not lead:
                DOUBLES.slope_product2(op, which, 1, 1, a.data, 0, o.data, 0, b.data, 0, q.data, &out_number)
                return mercer_number(out_number)
            if q.n <= CHEAP_UP_TO:
                step = 1 if a.n == rows * q.n else 0
                out = new_like(r) if not lead else np.empty((lead, *shape_of(r)))
                DOUBLES.slope_product2(op, which, rows, q.n, a.data, step, o.data, o.step, b.data, b.step,
                                       q.data, data_of(out))
                return out
    elif not lead:
        top = top_of(t, x, y, r)
        if top is not None and top.open and not top.is_tape and not (<Forward>top).lead:
            out = slope_product2_above(p, which, t, x, y, r, <Forward>top)
            if out is not None:
                return out
    t = aligned(t, of, r, lead) if lead else t
    if op == MERCER_MULTIPLY or op == MERCER_SCALE:
        return product(t, x if which else y, lead)
    with _errstate(all="ignore"):
        slope = p.partials[which](r, x, y)
    return product(t, slope, lead)


cdef struct Pushed2:
    # The operands of s · f_w + t · (f_wx · u + f_wy · v), of one shape or numbers; s, u, v: NULL for zero.
    Operand s, t, x, y, r, u, v


cdef bint read_pushed2(Pushed2 *o, object t, object x, object y, object r, Forward level):
    """Describe values with their tangents at a level; return 0 if not all are float64 arrays of one shape or
    numbers.
    """
    cdef bint both
    x0, y0 = at_level(x, level), at_level(y, level)
    if not (read(at_level(t, level), &o.t) and read(x0, &o.x) and read(y0, &o.y)
            and read(at_level(r, level), &o.r) and read_tangent(t, level, &o.s)
            and read_tangent(x, level, &o.u) and read_tangent(y, level, &o.v)):
        return False
    both = o.x.step and o.y.step
    return (fits(&o.t, &o.r) and fits(&o.x, &o.r) and fits(&o.y, &o.r) and fits(&o.s, &o.r)
            and fits(&o.u, &o.r) and fits(&o.v, &o.r) and o.r.n <= CHEAP_UP_TO
            and (not both or same_shape(x0, y0)))


cdef inline bint read_tangent(object a, Forward level, Operand *o):
    """Describe the tangent that a value has at a level, NULL for zero."""
    cdef Traced x
    o.data, o.n, o.step = NULL, 1, 0
    if not is_traced(a):
        return True
    x = <Traced>a
    return x.level is not level or x.tangent is None or read(x.tangent, o)


cdef inline bint fits(Operand *o, Operand *like):
    """Whether an operand can stand in a loop over another: it is a number, or there is an entry for each."""
    return not o.step or (like.step and o.n == like.n)


cdef object slope_product2_above(Primitive p, int which, object t, object x, object y, object r,
                                 Forward level):
    """The product with a slope of a binary operation, and its tangent, where one forward level stands above
    arrays of one shape (or numbers); None where that is not so.
    """
    cdef Pushed2 o
    if not read_pushed2(&o, t, x, y, r, level):
        return None
    r0 = at_level(r, level)
    ans = slope_product2(p, which, at_level(t, level), at_level(x, level), at_level(y, level), r0, 0, r0)
    tangent = slope_push2(p.opcode, which, &o, r0)
    return ans if tangent is None else traced(ans, level, -1, tangent)


cdef object slope_push2(int opcode, int which, Pushed2 *o, object r):
    """Return s · f_w + t · (f_wx · u + f_wy · v), None for zero."""
    cdef double number
    if o.s.data == NULL and o.u.data == NULL and o.v.data == NULL:
        return None
    if not o.r.step:
        DOUBLES.slope_push2(opcode, which, 1, o.s.data, 0, o.t.data, 0, o.x.data, 0, o.y.data, 0, o.r.data,
                            o.u.data, 0, o.v.data, 0, &number)
        return mercer_number(number)
    out = new_like(r)
    DOUBLES.slope_push2(opcode, which, o.r.n, o.s.data, o.s.step, o.t.data, o.t.step, o.x.data, o.x.step,
                        o.y.data, o.y.step, o.r.data, o.u.data, o.u.step, o.v.data, o.v.step, data_of(out))
    return out


cdef object aligned(object t, object of, object r, Py_ssize_t lead):
    """Give a chunk of tangents the axes that broadcasting adds to what they belong to."""
    cdef Py_ssize_t missing = len(shape_of(r)) - len(shape_of(of))
    if of is r or missing <= 0:
        return t
    return np.reshape(t, (lead, *(1,) * missing, *shape_of(of)))


cdef object product(object t, object slope, Py_ssize_t lead):
    """Return t · slope, in which zeros stay zero; with `lead` t has one more axis at the front."""
    return operate2(SCALE, t, slope)


def scale_plain(t, slope):
    """t · slope on plain arrays of any shapes and types, where a zero of either stays zero."""
    cdef cnp.ndarray array
    with _errstate(all="ignore"):
        out = _multiply(t, slope)
        if isinstance(out, cnp.ndarray) and cnp.PyArray_TYPE(<cnp.ndarray>out) == cnp.NPY_DOUBLE \
                and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>out):
            array = <cnp.ndarray>out
            if DOUBLES.all_finite(cnp.PyArray_SIZE(array), <const double *>cnp.PyArray_DATA(array)):
                return out
        elif np.isfinite(out).all():
            return out
        return np.where(np.equal(t, 0) | np.equal(slope, 0), np.zeros((), out.dtype), out)[()]


cdef object times_constant(object t, object partial):
    return t if partial == 1 else operate1(NEGATIVE, t, None) if partial == -1 else t * partial


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
            term = product(tangent, slope, lead)
        else:
            term = times_constant(tangent, partial)
        total = term if total is None else operate2(ADD, total, term)
    if total is None:
        return None
    shape = shape_of(ans)
    if lead:
        shape = (lead, *shape)
    return cast(total if shape_of(total) == shape else np.broadcast_to(total, shape), ans)


cdef object elementwise_pull(Primitive p, object g, object ans, tuple args, object needed, object chunk):
    """Return the cotangents of an elementwise function's arguments: conj(partial) · g, copies summed."""
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
            part = product(g, slope, lead)
        else:
            part = times_constant(g, partial)
        result.append(unbroadcast(part, args[i], chunk))
    return result


cdef int type_number(object x):
    """The number of a value's dtype; −1 if that takes longer to find out."""
    x = inside(x)
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
    if not lead and shape != have and len(have) >= len(shape) and _product(have) <= CHEAP_UP_TO:
        part = transposed(sum_to, g, shape, None)
        if part is not None:
            return cast(part, like)
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

"""How derivative rules are written: primitives, and functions composed of others.

Three kinds, from the shortest:

- a composite is written in NumPy functions that have rules: ``@composite(np.var)``;
- an elementwise primitive has a partial derivative for each argument: ``elementwise(np.sin, lambda ans, x: np.cos(x))``;
- any other primitive has a pushforward and a pullback: ``define(np.linalg.inv, jvp=…, vjp=…)``.

Rules are NumPy functions of values that may themselves be traced, so that every nesting of modes works.

Conventions. A real function L of a complex z has the gradient ∂L/∂x + i ∂L/∂y, so a pullback multiplies by
the conjugate of the derivative. A zero tangent or cotangent is None, and zero entries stay zero where the
local slope is infinite (:data:`scale`).
"""

import numpy as np

from mercer.autodiff.errors import trace_error
from mercer.autodiff.trace import FUNCTIONS, UFUNCS, Tape, Traced, apply, np_like, plain

__all__ = ["Primitive", "cast", "composite", "define", "elementwise", "no_derivative", "scale", "unbroadcast"]


class Primitive:
    """A function with a derivative rule.

    Parameters
    ----------
    fun : callable
        Computes the value from plain arrays.
    jvp, vjp : see :func:`define`
    name : str
        For messages.
    batched : bool
        Whether `jvp` and `vjp` take tangents and cotangents with one more leading axis, a direction each;
        if not, they are called once for each direction.
    view : bool
        Whether NumPy returns a view of the first argument.
    """

    __slots__ = ("batched", "fun", "jvp", "name", "view", "vjp")

    def __init__(self, fun, jvp=None, vjp=None, *, name=None, batched=False, view=False):
        self.fun, self.jvp, self.vjp = fun, jvp, vjp
        self.name = name or getattr(fun, "__name__", repr(fun))
        self.batched, self.view = batched, view

    def __repr__(self):
        return f"<primitive {self.name}>"

    def __call__(self, *args, **kwargs):
        return apply(self, args, kwargs)

    def push(self, tangents, ans, args, kwargs, chunk):
        """Return the tangent of the answer (a tuple if that is one), None where it is zero.

        `tangents` has None for each zero; with `chunk` they have a leading axis of that length.
        """
        with np.errstate(all="ignore"):
            if chunk is None or self.batched:
                return self._push(tangents, ans, args, kwargs)
            return _joined(
                self._push([None if t is None else t[i] for t in tangents], ans, args, kwargs)
                for i in range(chunk)
            )

    def pull(self, cotangent, ans, args, kwargs, needed, chunk):
        """Return a cotangent (or None for zero) for each argument that is `needed`.

        `cotangent` is an array, or for a tuple of outputs a tuple with None for each zero.
        """
        if chunk is None or self.batched:
            return self._pull(cotangent, ans, args, kwargs, needed)
        several = isinstance(cotangent, tuple)
        return _joined(
            tuple(
                self._pull(
                    tuple(None if g is None else g[i] for g in cotangent) if several else cotangent[i],
                    ans,
                    args,
                    kwargs,
                    needed,
                )
            )
            for i in range(chunk)
        )

    def _push(self, tangents, ans, args, kwargs):
        if self.jvp is None:
            return _transposed_pull(self, tangents, ans, args, kwargs)
        if callable(self.jvp):
            return self.jvp(tangents, ans, *args, **kwargs)
        total = None
        for rule, tangent in zip(self.jvp, tangents, strict=False):
            if tangent is not None and rule is not None:
                term = rule(tangent, ans, *args, **kwargs)
                total = term if total is None else _added(total, term)
        return total

    def _pull(self, cotangent, ans, args, kwargs, needed):
        if self.vjp is None:
            return _transposed_push(self, cotangent, ans, args, kwargs, needed)
        if callable(self.vjp):
            return self.vjp(cotangent, ans, needed, *args, **kwargs)
        return [
            rule(cotangent, ans, *args, **kwargs) if need and rule is not None else None
            for rule, need in zip(self.vjp, needed, strict=False)
        ]


def _added(a, b):
    """Return the sum of two tangents, entry by entry for tuples, None being zero."""
    if isinstance(a, tuple):
        return tuple(_added(x, y) for x, y in zip(a, b, strict=True))
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _joined(results):
    """Stack what the directions gave: arrays, None, or tuples of these."""
    results = list(results)
    if isinstance(results[0], tuple | list):
        return tuple(_joined(column) for column in zip(*results, strict=True))
    present = next((r for r in results if r is not None), None)
    if present is None:
        return None
    return np.stack([np.zeros_like(present) if r is None else r for r in results])


def _transposed_pull(primitive, tangents, ans, args, kwargs):
    """Return the pushforward of a primitive that has a pullback only: the transpose of a linear map."""
    from mercer.autodiff.sweep import backward

    tape = Tape()
    needed = [t is not None for t in tangents]
    outputs = ans if isinstance(ans, tuple) else (ans,)
    seeds = [tape.variable(np.zeros_like(a)) for a in outputs]
    pulled = primitive._pull(tuple(seeds) if isinstance(ans, tuple) else seeds[0], ans, args, kwargs, needed)
    pairs = [
        (p, t) for p, t in zip(pulled, tangents, strict=False) if isinstance(p, Traced) and p.level is tape
    ]
    tape.open = False
    result = backward(tape, [(p.slot, np.conj(t)) for p, t in pairs], [s.slot for s in seeds])
    result = [None if r is None else np.conj(r) for r in result]
    return tuple(result) if isinstance(ans, tuple) else result[0]


def _transposed_push(primitive, cotangent, ans, args, kwargs, needed):
    """Return the pullback of a primitive that has a pushforward only."""
    from mercer.autodiff.sweep import backward

    tape = Tape()
    seeds = [tape.variable(np.zeros_like(a)) if need else None for a, need in zip(args, needed, strict=True)]
    with np.errstate(all="ignore"):
        pushed = primitive._push(seeds, ans, args, kwargs)
    several = isinstance(ans, tuple)
    pairs = [
        (p.slot, g)
        for p, g in zip(pushed if several else (pushed,), cotangent if several else (cotangent,), strict=True)
        if g is not None and isinstance(p, Traced) and p.level is tape
    ]
    tape.open = False
    slots = [s.slot for s in seeds if s is not None]
    pulled = iter(backward(tape, pairs, slots))
    return [cast(next(pulled), a) if need else None for a, need in zip(args, needed, strict=True)]


def define(fun, *, jvp=None, vjp=None, name=None, batched=False, view=False, handles=None):
    """Make a primitive and let it stand for `fun` on traced values.

    Parameters
    ----------
    fun : callable
        The NumPy function itself, or one of our own that computes on plain arrays. Differentiable arguments
        are positional; what is passed by keyword is not differentiated.
    jvp : sequence of callables, or callable, or "linear"
        For each positional argument ``rule(tangent, ans, *args, **kwargs)``, whose sum is the tangent of the
        answer (None in the sequence: no derivative). Or one callable ``jvp(tangents, ans, *args, **kwargs)``,
        `tangents` having None for zeros. Or "linear": `fun` is linear in its first argument and is applied to the tangent.
        Left out: the transpose of `vjp` is used.
    vjp : sequence of callables, or callable
        For each positional argument ``rule(cotangent, ans, *args, **kwargs)`` -> its cotangent. Or one
        callable ``vjp(cotangent, ans, needed, *args, **kwargs)`` -> a sequence with None for what is not
        needed. Left out: the transpose of `jvp`.
    name, batched, view : see :class:`Primitive`
    handles : callable, default=`fun`
        The NumPy function that the primitive computes, if it takes the same arguments.

    Returns
    -------
    Primitive
        Called like `fun`, it takes traced and plain values.
    """
    primitive = Primitive(fun, jvp, vjp, name=name, batched=batched, view=view)
    if jvp == "linear":
        primitive.jvp = [lambda t, ans, x, *rest, **kwargs: primitive(t, *rest, **kwargs)]
    handled = handles or fun
    (UFUNCS if isinstance(handled, np.ufunc) else FUNCTIONS)[handled] = primitive
    return primitive


def elementwise(fun, *partials, name=None, handles=None):
    """Make a primitive of an elementwise function from its partial derivatives.

    Parameters
    ----------
    fun : callable
        Computes elementwise, with broadcasting.
    *partials : callable, number or None
        For each argument ``partial(ans, *args)``, or a constant, or None for a derivative that is zero everywhere.

    Returns
    -------
    Primitive
    """
    primitive = Elementwise(fun, partials, name=name)
    handled = handles or fun
    (UFUNCS if isinstance(handled, np.ufunc) else FUNCTIONS)[handled] = primitive
    return primitive


class Elementwise(Primitive):
    """An elementwise function: both modes from one partial derivative for each argument."""

    __slots__ = ("partials",)

    def __init__(self, fun, partials, name=None):
        super().__init__(fun, name=name, batched=True)
        self.partials = partials

    def push(self, tangents, ans, args, kwargs, chunk):
        total, shape = None, np.shape(ans)
        lead = () if chunk is None else (chunk,)
        with np.errstate(all="ignore"):
            for partial, tangent, x in zip(self.partials, tangents, args, strict=True):
                if tangent is None or partial is None:
                    continue
                missing = len(shape) - np.ndim(x)
                if lead and missing:
                    tangent = np.reshape(tangent, (*lead, *(1,) * missing, *np.shape(x)))
                term = _times(tangent, partial, ans, args)
                total = term if total is None else total + term
        if total is not None and np.shape(total) != lead + shape:
            total = np.broadcast_to(total, lead + shape)
        return cast(total, ans)

    def pull(self, cotangent, ans, args, kwargs, needed, chunk):
        result = []
        with np.errstate(all="ignore"):
            for partial, need, x in zip(self.partials, needed, args, strict=True):
                if need and partial is not None:
                    result.append(unbroadcast(_times(cotangent, partial, ans, args, conj=True), x, chunk))
                else:
                    result.append(None)
        return result


def _times(t, partial, ans, args, conj=False):
    if partial is _factor:  # what was masked stays so in the next derivative; the finite rest has further ones
        masked = np.equal(plain(args[0]), 0) & ~np.isfinite(plain(t))
        if np.any(masked):
            t = np.where(masked, 0, t)
    if callable(partial):
        slope = partial(ans, *args)
        return scale(t, np.conj(slope) if conj and slope_is_complex(slope) else slope)
    return t if partial == 1 else -t if partial == -1 else t * partial


def slope_is_complex(slope):
    return np_like(slope).dtype.kind == "c"


def _scale(t, slope):
    """t · slope, where a zero of t stays zero even if the slope is infinite or not a number."""
    with np.errstate(all="ignore"):
        out = t * slope
        if not np.isfinite(np.sum(out)):
            out = np.where(np.equal(t, 0), np.zeros((), out.dtype), out)[()]
    return out


def _factor(ans, t, s):
    return t


#: ``scale(t, slope)``: the product in which a zero of `t` stays zero whatever the slope.
scale = Elementwise(_scale, (), name="scale")
scale.partials = (lambda ans, t, s: s, _factor)


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
    lead = 0 if chunk is None else 1
    shape, have = np.shape(like), np.shape(g)[lead:]
    if shape != have:
        extra = len(have) - len(shape)
        axes = tuple(range(lead, lead + extra)) + tuple(
            lead + extra + i for i, n in enumerate(shape) if n == 1 and have[extra + i] != 1
        )
        if axes:
            g = np.sum(g, axis=axes, keepdims=True)
        if extra:
            g = np.reshape(g, np.shape(g)[:lead] + shape)
    return cast(g, like)


def cast(g, like):
    """Return a cotangent in the floating type of the argument it belongs to."""
    if g is None:
        return None
    have, want = np_like(g).dtype, np_like(like).dtype
    if have == want or want.kind not in "fc":
        return g
    if have.kind == "c" and want.kind == "f":
        g = np.real(g)
    return g if np_like(g).dtype == want else g.astype(want)


def composite(*functions):
    """Register a function, written in NumPy calls that have rules, for `functions` on traced values."""

    def register(f):
        for function in functions:
            FUNCTIONS[function] = f
        return f

    return register


def no_derivative(*functions):
    """Register functions whose derivative is zero wherever it exists: they see plain values."""
    from mercer.autodiff.trace import plain

    def stripped(item):
        if isinstance(item, Traced):
            return plain(item)
        if isinstance(item, list | tuple) and not hasattr(item, "_fields"):
            return type(item)(stripped(i) for i in item)
        return item

    for function in functions:

        def f(*args, _function=function, **kwargs):
            args = stripped(args)
            return _function(*args, **{k: stripped(v) for k, v in kwargs.items()})

        (UFUNCS if isinstance(function, np.ufunc) else FUNCTIONS)[function] = f


def must_be_plain(x, operation, what):
    """Raise if an argument that is not differentiated holds a traced value."""
    if isinstance(x, Traced):
        raise trace_error(operation, f"{what} cannot be differentiated", f"pass a plain value as {what}")

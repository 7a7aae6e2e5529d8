"""How derivative rules are written: primitives, and functions composed of others.

Three kinds, from the shortest:

- a composite is written in NumPy functions that have rules: ``@composite(np.var)``;
- an elementwise primitive has a partial derivative for each argument:
  ``elementwise(np.sin, lambda ans, x: np.cos(x))``;
- any other primitive has a pushforward and a pullback: ``define(np.linalg.inv, jvp=…, vjp=…)``.

Rules are NumPy functions of values that may themselves be traced, so that every nesting of modes works.

Conventions. A real function L of a complex z has the gradient ∂L/∂x + i ∂L/∂y, so a pullback multiplies by
the conjugate of the derivative. A zero tangent or cotangent is None. A zero entry stays zero where the local
slope is infinite, and a zero slope where the tangent is (:data:`scale`), so that both modes agree.
"""

import numpy as np

from mercer.autodiff.trace import (
    ERRORS,
    FUNCTIONS,
    OPCODES,
    UFUNCS,
    Primitive,
    Tape,
    Traced,
    backward,
    cast,
    plain,
    scale_plain,
    unbroadcast,
)

__all__ = ["Primitive", "cast", "composite", "define", "elementwise", "no_derivative", "scale", "unbroadcast"]


def _transposed_pull(primitive, tangents, ans, args, kwargs):
    """Return the pushforward of a primitive that has a pullback only: the transpose of a linear map."""
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


def define(fun, *, jvp=None, vjp=None, name=None, handles=None, unread=False, **kinds):
    """Make a primitive and let it stand for `fun` on traced values.

    Parameters
    ----------
    fun : callable
        The NumPy function itself, or one of our own that computes on plain arrays. Differentiable arguments
        are positional; what is passed by keyword is not differentiated.
    jvp : sequence of callables, or callable, or "linear"
        For each positional argument ``rule(tangent, ans, *args, **kwargs)``, whose sum is the tangent of the
        answer (None in the sequence: no derivative). Or one callable ``jvp(tangents, ans, *args, **kwargs)``,
        `tangents` having None for zeros. Or "linear": `fun` is linear in its first argument and is applied
        to the tangent.
        Left out: the transpose of `vjp` is used.
    vjp : sequence of callables, or callable
        For each positional argument ``rule(cotangent, ans, *args, **kwargs)`` -> its cotangent. Or one
        callable ``vjp(cotangent, ans, needed, *args, **kwargs)`` -> a sequence with None for what is not
        needed. Left out: the transpose of `jvp`.
    handles : callable, default=`fun`
        The NumPy function that the primitive computes, if it takes the same arguments.
    name, unread, **kinds : see :class:`Primitive`

    Returns
    -------
    Primitive
        Called like `fun`, it takes traced and plain values.
    """
    linear = jvp == "linear"
    primitive = Primitive(fun, jvp, vjp, name=name, linear=linear, unread=unread or linear, **kinds)
    if linear:
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
        For each argument ``partial(ans, *args)``, or a constant, or None for a derivative that is zero
        everywhere.

    Returns
    -------
    Primitive
    """
    primitive = Primitive(fun, name=name, batched=True, partials=partials, opcode=OPCODES.get(fun, 0))
    handled = handles or fun
    (UFUNCS if isinstance(handled, np.ufunc) else FUNCTIONS)[handled] = primitive
    return primitive


#: ``scale(t, slope)``: the product in which a zero of either stays zero whatever the other is.
scale = Primitive(scale_plain, name="scale", batched=True, partials=(), opcode=OPCODES["scale"])


def _zero_stays(ans, t, s):
    return t


scale.partials = (lambda ans, t, s: s, _zero_stays)


def _second_slope(primitive, t, x, c, u):
    """Return t · f''(x) · u of an elementwise function f of one argument, by a tape of its own."""
    if not callable(primitive.partials[0]):
        return None
    tape = Tape()
    v = tape.variable(x)
    args = (v,) if c is None else (v, c)
    slope = primitive.partials[0](primitive(*args), *args)
    tape.open = False
    if not isinstance(slope, Traced) or slope.level is not tape:
        return None
    (second,) = backward(tape, [(slope.slot, np.ones_like(x))], [v.slot])
    return scale(t, scale(u, second))


# What the compiled part calls back for.
ERRORS["transposed pull"] = _transposed_pull
ERRORS["transposed push"] = _transposed_push
ERRORS["second slope"] = _second_slope


def composite(*functions):
    """Register a function, written in NumPy calls that have rules, for `functions` on traced values."""

    def register(f):
        for function in functions:
            FUNCTIONS[function] = f
        return f

    return register


def no_derivative(*functions):
    """Register functions whose derivative is zero wherever it exists: they see plain values."""

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

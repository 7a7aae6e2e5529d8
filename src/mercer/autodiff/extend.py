"""Users' own derivative rules: opaque functions, better derivatives, and values held constant."""

import functools

import numpy as np

from mercer.autodiff.derivative import Linearised, push, zero_of
from mercer.autodiff.errors import trace_error
from mercer.autodiff.rules import Primitive, cast
from mercer.autodiff.trace import ERRORS, Tape, Traced, checksum, fresh, plain
from mercer.autodiff.trees import flatten, unflatten

__all__ = ["custom_rule", "primitive", "stop_gradient"]


#: Bytes of a plain argument up to which a tape copies it.
COPIED_UP_TO = 16384


def stop_gradient(x):
    """Return the plain value of x, which is constant for every derivative being computed.

    Parameters
    ----------
    x : array, number or tree

    Returns
    -------
    array, number or tree
        New arrays: writing into them leaves x alone.

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> ad.grad(lambda x: x * ad.stop_gradient(x))(3.0)
    np.float64(3.0)
    """
    leaves, structure = flatten(x)
    leaves = [plain(leaf) for leaf in leaves]
    return unflatten(structure, [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])


def primitive(fun=None, *, jvp=None, vjp=None, name=None):
    """Make one operation of a function that cannot be traced: compiled code, a solver, a table.

    Parameters
    ----------
    fun : callable, default=None
        Sees plain arrays, returns an array or a tree of arrays. Without it, a decorator is returned.
    jvp : callable, default=None
        ``jvp(tangents, ans, *args, **kwargs)`` returns the tangent of the answer. `tangents` has an entry for
        each positional argument: an array (of zeros where nothing varies), or None for what is no number.
    vjp : callable, default=None
        ``vjp(cotangent, ans, *args, **kwargs)`` returns a cotangent for each positional argument: a tuple, or
        for one argument the cotangent alone; None stands for zero. If one of `jvp` and `vjp` is left out, the
        transpose of the other takes its place, so that the other has to be written in NumPy.
    name : str, default=``fun.__name__``
        For messages.

    Returns
    -------
    callable
        Called like `fun`. Arguments may be trees; keyword arguments are not differentiated. To have second
        derivatives, write the rules in NumPy functions and calls of the primitive itself.

    Raises
    ------
    TypeError
        At once, if neither rule is given; when called, if a traced value comes by keyword.
    ValueError
        If what a rule returns has another structure or shape than what it belongs to.

    Examples
    --------
    >>> import math, numpy as np, mercer.autodiff as ad
    >>> @ad.primitive(vjp=lambda g, ans, x: g * ans)
    ... def exp(x):
    ...     return math.exp(x)
    >>> ad.grad(lambda x: exp(x) ** 2)(0.0), ad.jvp(exp, (0.0,), (3.0,))
    (np.float64(2.0), (1.0, np.float64(3.0)))
    """
    if fun is None:
        return functools.partial(primitive, jvp=jvp, vjp=vjp, name=name)
    name = name or getattr(fun, "__name__", repr(fun))
    _check_rules("ad.primitive", name, jvp=jvp, vjp=vjp)
    return _with_rules(fun, name, jvp and _users_jvp(jvp), vjp and _users_vjp(vjp))


def custom_rule(f=None, *, jvp=None, vjp=None, name=None):
    """Give a function written in NumPy a derivative of its own, for example one with fewer rounding errors.

    Parameters
    ----------
    f : callable, default=None
        Written in NumPy. Without it, a decorator is returned.
    jvp, vjp : callable, "transpose" or None
        As in :func:`primitive`. A mode whose rule is None traces f as usual; "transpose" takes the transpose
        of the other rule, so that both modes have the same derivative.
    name : str, default=``f.__name__``

    Returns
    -------
    callable
        Called like `f`.

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> def softplus(x):
    ...     return np.log(1 + np.exp(x))
    >>> safe = ad.custom_rule(
    ...     softplus, jvp=lambda t, ans, x: t[0] / (1 + np.exp(-x)), vjp="transpose"
    ... )
    >>> ad.grad(safe)(1.0)
    np.float64(0.7310585786300049)
    """
    if f is None:
        return functools.partial(custom_rule, jvp=jvp, vjp=vjp, name=name)
    name = name or getattr(f, "__name__", repr(f))
    rules = {"jvp": jvp, "vjp": vjp}
    given = {k: None if rule == "transpose" else rule for k, rule in rules.items()}
    _check_rules("ad.custom_rule", name, **given)
    forward = _users_jvp(jvp) if given["jvp"] else None if jvp == "transpose" else traced_jvp
    reverse = _users_vjp(vjp) if given["vjp"] else None if vjp == "transpose" else traced_vjp
    return _with_rules(f, name, forward, reverse)


def _check_rules(maker, name, **rules):
    for mode, rule in rules.items():
        if rule is not None and not callable(rule):
            raise TypeError(f"{maker}: the {mode} of {name} must be a function, got {rule!r}")
    if not any(rules.values()):
        raise TypeError(f"{maker}: {name} needs a derivative rule; give jvp=, vjp= or both")


def _with_rules(fun, name, jvp, vjp):
    """Return `fun` as one operation whose rules take a :class:`Call` first."""

    @functools.wraps(fun, updated=())
    def operation(*args, **kwargs):
        call, traced = Call.of(fun, name, args, kwargs)
        if not traced:
            return fun(*args, **kwargs)
        if any(isinstance(x, Traced) for x in flatten(kwargs)[0]):
            raise trace_error(
                name,
                "a traced value comes by keyword, and keywords are not differentiated",
                "pass it by position",
            )
        return call.apply(traced, jvp and functools.partial(jvp, call), vjp and functools.partial(vjp, call))

    return operation


class Call:
    """A function at its arguments, as a function of those leaves alone that are traced.

    It holds no traced values itself, so that a tape may refer to it.

    Attributes
    ----------
    result : structure of what the function returned last
    """

    __slots__ = ("fun", "guards", "lowest", "name", "result", "structure", "untraced", "where")

    @classmethod
    def of(cls, fun, name, args, kwargs):
        """Return the call and the traced leaves of its arguments."""
        self = cls()
        leaves, self.structure = flatten((args, kwargs))
        self.fun, self.name = fun, name
        self.where = [i for i, x in enumerate(leaves) if isinstance(x, Traced)]
        traced = [leaves[i] for i in self.where]
        self.untraced, self.guards = [None if isinstance(x, Traced) else x for x in leaves], []
        self.lowest = min((level.order for x in traced for level in levels_of(x)), default=0)
        return self, traced

    def apply(self, traced, jvp, vjp, batched=False):
        """Return the function's value as one operation with the given rules."""
        ans = Primitive(self.value, jvp, vjp, name=self.name, batched=batched)(*traced)
        if any(isinstance(level, Tape) for x in traced for level in levels_of(x)):
            self.keep()
        return self.tree(ans)

    def keep(self):
        """Keep plain arguments from later changes: copies of small arrays, checksums of large ones."""
        for i, x in enumerate(self.untraced):
            if type(x) is np.ndarray and x.nbytes <= COPIED_UP_TO:
                self.untraced[i] = x.copy("K")
            elif type(x) is np.ndarray and x.dtype.kind != "O":
                self.guards.append((x, checksum(x)))

    def value(self, *values):
        """Return the leaves of the function's value at plain leaves: an array, or a tuple of arrays."""
        out = self(*values)
        for x in out if isinstance(out, tuple) else (out,):
            if isinstance(x, Traced) and x.level.order >= self.lowest:
                raise trace_error(
                    self.name,
                    "its function uses traced values that are not among its arguments",
                    "pass them as arguments",
                )
        return out

    def __call__(self, *values):
        args, kwargs = self.arguments(values)
        out, self.result = flatten(self.fun(*args, **kwargs))
        if not out:
            return np.zeros(0, int)
        return out[0] if self.result is None else tuple(out)

    def arguments(self, values):
        """Return the arguments that have `values` where traced leaves were."""
        for x, before in self.guards:
            if checksum(x) != before:
                raise ERRORS["changed"](x)
        return self.filled(self.untraced, values)

    def filled(self, leaves, values):
        leaves = list(leaves)
        for i, x in zip(self.where, values, strict=True):
            leaves[i] = x
        return unflatten(self.structure, leaves)

    def tree(self, ans):
        """Return the function's value from its leaves."""
        if self.result is None:
            return ans
        return unflatten(self.result, ans if isinstance(ans, tuple) else ())


def levels_of(x):
    """Return the levels of a value, from the innermost derivative to the outermost."""
    levels = []
    while isinstance(x, Traced):
        levels.append(fresh(x).level)
        x = x.value
    return levels


# -- users' rules, which see trees -----------------------------------------------------------------------


def _users_jvp(rule):
    def jvp(call, tangents, ans, *values):
        args, kwargs = call.arguments(values)
        tangents = [zero_of(x) if t is None else t for t, x in zip(tangents, values, strict=True)]
        tangents, _ = call.filled([_zero(x) for x in call.untraced], tangents)
        pushed = rule(tangents, call.tree(ans), *args, **kwargs)
        outputs = ans if isinstance(ans, tuple) else (ans,)
        parts = _parts(pushed, call.result, len(outputs), f"the jvp of {call.name}", "tangent", "its value")
        parts = _checked(parts, outputs, f"the jvp of {call.name}", "tangent", "its value")
        return tuple(parts) if isinstance(ans, tuple) else parts[0]

    return jvp


def _users_vjp(rule):
    def vjp(call, cotangent, ans, needed, *values):
        args, kwargs = call.arguments(values)
        where = f"the vjp of {call.name}"
        outputs, parts = (ans, cotangent) if isinstance(ans, tuple) else ((ans,), (cotangent,))
        parts = [zero_of(x) if g is None else g for g, x in zip(parts, outputs, strict=True)]
        pulled = rule(
            call.tree(tuple(parts) if isinstance(ans, tuple) else parts[0]), call.tree(ans), *args, **kwargs
        )
        cotangents = []
        for i, (g, arg) in enumerate(zip(_for_each(pulled, args, where), args, strict=True)):
            leaves, structure = flatten(arg)
            found = _parts(g, structure, len(leaves), where, "cotangent", f"argument {i}")
            mine = [c if i in call.where else None for i, c in enumerate(found, len(cotangents))]
            cotangents += _checked(mine, leaves, where, "cotangent", f"argument {i}")
        return [cotangents[i] for i in call.where]

    return vjp


def _zero(x):
    """Return the tangent of what does not vary; None for what is no number."""
    try:
        return zero_of(x) if np.asarray(x).dtype.kind in "biufc" else None
    except ValueError:  # a ragged sequence
        return None


def _for_each(pulled, args, where):
    if len(args) == 1 and (
        isinstance(args[0], tuple) or not (isinstance(pulled, tuple) and len(pulled) == 1)
    ):
        return (pulled,)
    if not isinstance(pulled, tuple | list) or len(pulled) != len(args):
        got = f"{len(pulled)} entries" if isinstance(pulled, tuple | list) else type(pulled).__name__
        raise ValueError(
            f"{where} must return a tuple with a cotangent (or None) for each of {len(args)} arguments, "
            f"got {got}"
        )
    return pulled


def _parts(tree, structure, count, where, what, of):
    """Return the leaves of what a rule returned, None for zeros."""
    if tree is None:
        return [None] * count
    if structure is None:
        if isinstance(tree, tuple | list | dict):
            raise ValueError(
                f"{where} must return a {what} that is one array, as {of} is, got a {type(tree).__name__}"
            )
        return [tree]
    try:
        return structure.flatten_up_to(tree)
    except ValueError as error:
        raise ValueError(
            f"{where} must return a {what} of the structure of {of}, {structure}; {error}"
        ) from None


def _checked(parts, likes, where, what, of):
    """Return tangents or cotangents in the types of what they belong to, if they have its shapes."""
    for part, like in zip(parts, likes, strict=True):
        if part is not None and np.shape(part) != np.shape(like):
            raise ValueError(
                f"{where} returned a {what} of shape {np.shape(part)}, but {of} has shape {np.shape(like)}"
            )
    return [
        None if part is None else cast(part if isinstance(part, Traced) else np.asarray(part)[()], like)
        for part, like in zip(parts, likes, strict=True)
    ]


# -- rules that trace ------------------------------------------------------------------------------------


def chunk_of(directions, points):
    """Return the length of the leading axis that tangents have more than their points; None without."""
    for t, x in zip(directions, points, strict=True):
        if t is not None:
            return np.shape(t)[0] if np.ndim(t) > np.ndim(x) else None
    return None


def traced_jvp(call, tangents, ans, *values):
    """Push tangents through a call by tracing it."""
    pushed = push(call, list(values), None, list(tangents), chunk_of(tangents, values))[1]
    return tuple(pushed) if isinstance(ans, tuple) else pushed[0]


def traced_vjp(call, cotangent, ans, needed, *values):
    """Pull cotangents through a call by tracing it."""
    outputs, parts = (ans, cotangent) if isinstance(ans, tuple) else ((ans,), (cotangent,))
    at = Linearised(call, list(values), None)
    return at.sweep(parts, chunk_of(parts, outputs))

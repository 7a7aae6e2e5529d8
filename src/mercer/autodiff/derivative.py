"""First derivatives: pushforward (LINMA 1.2), pullback and gradients (1.3)."""

import functools

import numpy as np

from mercer.autodiff.errors import made_clear, trace_error
from mercer.autodiff.rules import cast
from mercer.autodiff.trace import (
    Forward,
    Tape,
    Traced,
    belongs,
    fresh,
    inputs_of,
    np_like,
    outputs_of,
    owned,
    plain,
    pulled,
    run,
    snapshot,
    zeros_for_none,
)
from mercer.autodiff.trees import flatten, is_leaf, leaf, unflatten

__all__ = ["grad", "jvp", "value_and_grad", "vjp"]

_ONE = np.float64(1.0)


class Linearised:
    """A function's value at a point with its tape: what reverse mode starts from.

    Attributes
    ----------
    outputs : list of arrays
        The leaves of the value.
    """

    def __init__(self, f, leaves, structure, has_aux=False):
        self.tape = Tape()
        self.leaves, variables = inputs_of(self.tape, leaves)
        try:
            value, self.aux = called(f, unflatten_args(structure, variables)), None
            if has_aux:
                value, aux = split_aux(value)
                self.aux = without(aux, self.tape)
            out, self.structure = flatten(value)
            self.slots, self.outputs = outputs_of(self.tape, out)
        finally:
            self.tape.open = False

    def value(self):
        return unflatten(self.structure, self.outputs)

    def sweep(self, cotangents, chunk=None, last=False, pushed=None):
        """Return the cotangents of the inputs (their tangents at the level `pushed`), None for zero."""
        return pulled(self.tape, self.slots, cotangents, self.leaves, chunk, last, pushed)

    def pull(self, cotangents, chunk=None, last=False):
        """Return the cotangents of the inputs as arrays of their own, zeros where nothing depends on them."""
        swept = self.sweep(cotangents, chunk, last)
        return owned(zeros_for_none(swept, self.leaves, chunk), cotangents)


def called(f, args):
    """Return f's value; what NumPy says of a traced value that it could not convert is made clear."""
    try:
        return run(f, args)
    except ValueError as error:
        clear = made_clear(error)
        if clear is None:
            raise
        raise clear from error


def unflatten_args(structures, leaves):
    """Return the arguments of a call from their leaves."""
    if structures is None:
        return leaves
    args, start = [], 0
    for count, structure in structures:
        args.append(unflatten(structure, leaves[start : start + count]))
        start += count
    return args


def flatten_args(args, name):
    """Return the leaves of several arguments, and their structures."""
    leaves, structures = [], []
    for i, arg in enumerate(args):
        items, structure = flatten(arg)
        structures.append((len(items), structure))
        leaves += [x if is_leaf(x) else leaf(x, f"argument {i} of {name}") for x in items]
    return leaves, structures


def split_aux(value):
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError("with has_aux=True the function returns (value, aux)")
    return value


def without(tree, level):
    """Return a tree with the values of a level replaced by what they hold."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [fresh(x).value if belongs(x, level) else x for x in leaves])


def check_function(f, transform):
    """Raise for what cannot be called: a point, most often, in the function's place."""
    if not callable(f):
        raise TypeError(
            f"{transform} takes a function, got {type(f).__name__}; {transform}(f) is a function, and "
            f"{transform}(f)(x) its value at x"
        )


def name_of(f):
    return getattr(f, "__name__", repr(f))


# -- the two modes --------------------------------------------------------------------------------------


def push(f, leaves, structures, tangents, chunk=None, has_aux=False):
    """Return the leaves of f's value, their tangents (None: zero), the structure, and aux."""
    level = Forward(chunk)
    try:
        duals = [Traced(x, level, tangent=t) for x, t in zip(leaves, tangents, strict=True)]
        value, aux = called(f, unflatten_args(structures, duals)), None
        if has_aux:
            value, aux = split_aux(value)
        out, structure = flatten(value)
        values = [fresh(o).value if belongs(o, level) else o for o in out]
        pushed = [o.tangent if belongs(o, level) else None for o in out]
        return values, pushed, structure, without(aux, level) if has_aux else None
    finally:
        level.open = False


def jvp(f, primals, tangents, has_aux=False):
    """Return f(x) and its directional derivative J v, by dual numbers (LINMA 1.2).

    Parameters
    ----------
    f : callable
        Takes ``len(primals)`` arrays (or trees of arrays), returns an array or a tree.
    primals, tangents : sequence
        The point and the direction, of equal structure and shapes.
    has_aux : bool, default=False
        Whether f returns (value, aux); aux is returned third.

    Returns
    -------
    value, tangent
        Of the structure of f's value.

    Raises
    ------
    ValueError
        If a tangent's structure or shape is not its primal's.

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> ad.jvp(np.sin, (0.0,), (2.0,))
    (np.float64(0.0), np.float64(2.0))
    """
    leaves, structures = flatten_args(_sequence(primals, "primals"), name_of(f))
    directions = _matching(leaves, structures, _sequence(tangents, "tangents"), "tangent")
    values, pushed, structure, aux = push(f, leaves, structures, directions, has_aux=has_aux)
    check_numbers(values, f"jvp of {name_of(f)}")
    pushed = [zero_of(v) if t is None else t for v, t in zip(values, pushed, strict=True)]
    result = unflatten(structure, values), unflatten(structure, owned(pushed, directions))
    return (*result, aux) if has_aux else result


def check_numbers(values, operation):
    """Raise if a value has no derivative to be zero: objects (arrays of traced values), text."""
    for x in values:
        if np_like(x).dtype.kind not in "biufc":
            raise trace_error(
                operation,
                f"its value has a part of the type {np_like(x).dtype}, which has no derivative",
                "return arrays of numbers (np.stack joins traced values), and the rest by has_aux=True",
            )


def zero_of(value):
    """Return the zero of a value's space (integers have float zeros)."""
    like = np_like(value)
    return np.zeros(np.shape(value), like.dtype if like.dtype.kind in "fc" else np.float64)[()]


def _sequence(items, what):
    if not isinstance(items, list | tuple):
        raise TypeError(
            f"{what} must be a tuple or a list with one entry for each argument, got {type(items).__name__}"
        )
    return items


def _matching(leaves, structures, given, what):
    """Return the leaves of tangents or cotangents after checking them against what they belong to."""
    if len(given) != len(structures):
        raise ValueError(f"there are {len(structures)} arguments but {len(given)} {what}s")
    checked, start = [], 0
    for i, ((count, structure), item) in enumerate(zip(structures, given, strict=True)):
        items, found = flatten(np.asarray(item) if structure is None and isinstance(item, list) else item)
        if found != structure:
            shown = "is one array" if structure is None else f"has the structure {structure}"
            got = "is one array" if found is None else f"has the structure {found}"
            raise ValueError(f"{what} {i} {got}, what it belongs to {shown}; make them equal")
        for x, t in zip(leaves[start : start + count], items, strict=True):
            checked.append(_matched(x, leaf(t, f"{what} {i}"), f"{what} {i}"))
        start += count
    return checked


def _matched(x, t, what):
    """Return a tangent in the type of what it belongs to."""
    if np.shape(t) != np.shape(x):
        raise ValueError(
            f"{what} has shape {np.shape(t)}, what it belongs to has {np.shape(x)}; make them equal"
        )
    if np_like(t).dtype.kind == "c" and np_like(x).dtype.kind == "f":
        raise TypeError(f"{what} is complex, what it belongs to is real; take its real part if that is meant")
    return cast(t, x)


def vjp(f, *primals, has_aux=False):
    """Return f(x) and its pullback, by reverse mode (LINMA 1.3).

    Parameters
    ----------
    f : callable
    *primals : arrays, numbers or trees of arrays
    has_aux : bool, default=False
        Whether f returns (value, aux); aux is returned third.

    Returns
    -------
    value
    pullback : callable
        ``pullback(cotangent)`` returns a tuple with Jᵀ cotangent for each primal. It may be called more than
        once, and can itself be differentiated.

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> value, pullback = ad.vjp(lambda x, y: x * y, 2.0, 3.0)
    >>> pullback(1.0)
    (np.float64(3.0), np.float64(2.0))
    """
    leaves, structures = flatten_args(primals, name_of(f))
    # The pullback lives on, while the caller may change his arrays and the value that he gets.
    at = Linearised(f, [snapshot(x) for x in leaves], structures, has_aux)
    check_numbers(at.outputs, f"vjp of {name_of(f)}")

    def pullback(cotangent):
        cotangents = _matching(at.outputs, [(len(at.outputs), at.structure)], [cotangent], "cotangent")
        return tuple(unflatten_args(structures, at.pull(cotangents)))

    value = unflatten(at.structure, [snapshot(o) for o in at.outputs])
    if not has_aux:
        return value, pullback
    leaves, structure = flatten(at.aux)
    return value, pullback, unflatten(structure, [snapshot(o) for o in leaves])


# -- gradients ------------------------------------------------------------------------------------------


def value_and_grad(f, argnums=0, has_aux=False, holomorphic=False):
    """Return a function that computes f's value and gradient in one sweep.

    Parameters
    ----------
    f : callable
        Returns a real scalar (or (scalar, aux) with `has_aux`).
    argnums : int or sequence of int, default=0
        The positional arguments to differentiate in; a sequence gives a tuple of gradients.
    has_aux : bool, default=False
    holomorphic : bool, default=False
        Whether f is a holomorphic function with a complex value; the result is then its complex derivative.

    Returns
    -------
    callable
        ``(*args, **kwargs) -> (value, gradient)``, or ``((value, aux), gradient)`` with `has_aux`.
    """
    check_function(f, "value_and_grad")

    @functools.wraps(f, updated=())
    def value_and_gradient(*args, **kwargs):
        at, gradient = _gradient(f, args, kwargs, argnums, has_aux, holomorphic)
        value = at.value()
        return (value, at.aux) if has_aux else value, gradient

    return value_and_gradient


def _gradient(f, args, kwargs, argnums, has_aux, holomorphic):
    """Return f at its arguments, its tape cleared, and the gradient."""
    at, structures = linearise(f, args, kwargs, argnums, has_aux)
    gradients = at.pull([_scalar_seed(at, f, holomorphic)], last=True)
    at.tape.clear()
    if holomorphic:
        gradients = [np.conj(g) for g in gradients]
    result = unflatten_args(structures, gradients)
    return at, result[0] if isinstance(argnums, int) else tuple(result)


def grad(f, argnums=0, has_aux=False, holomorphic=False):
    """Return a function that computes the gradient of a scalar function (LINMA 1.3).

    Parameters
    ----------
    f, argnums, has_aux, holomorphic : see :func:`value_and_grad`

    Returns
    -------
    callable
        ``(*args, **kwargs) -> gradient``, of the structure, shapes and types of the argument (integers count
        as float64), or ``(gradient, aux)`` with `has_aux`.

    Raises
    ------
    TypeError
        If f's value is not one floating number.

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> ad.grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    check_function(f, "grad")

    @functools.wraps(f, updated=())
    def gradient(*args, **kwargs):
        at, result = _gradient(f, args, kwargs, argnums, has_aux, holomorphic)
        return (result, at.aux) if has_aux else result

    return gradient


def gradient_pushed(f, x, v):
    """Return the directional derivative of a gradient, which itself is computed as far as that needs it."""
    leaves, structures = flatten_args((x,), name_of(f))
    directions = _matching(leaves, structures, [v], "tangent")
    level = Forward()
    try:
        at = Linearised(
            f, [Traced(x, level, tangent=t) for x, t in zip(leaves, directions, strict=True)], structures
        )
        tangents = at.sweep([_scalar_seed(at, f, False)], last=True, pushed=level)
        at.tape.clear()
    finally:
        level.open = False
    return unflatten_args(structures, owned(zeros_for_none(tangents, leaves), directions))[0]


def linearise(f, args, kwargs, argnums, has_aux=False):
    """Return f at its arguments on a tape, for the arguments named by argnums, and their structures."""
    if argnums == 0 and len(args) == 1 and not kwargs and is_leaf(args[0]):  # the commonest call
        return Linearised(f, [args[0]], None, has_aux), None
    wanted, function = chosen(f, args, kwargs, argnums)
    leaves, structures = flatten_args(wanted, name_of(f))
    return Linearised(function, leaves, structures, has_aux), structures


def chosen(f, args, kwargs, argnums):
    """Return the arguments that argnums names, and f as a function of them alone."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not isinstance(n, int):
            raise TypeError(f"argnums must be a whole number or several, got {argnums!r}")
        if not -len(args) <= n < len(args):
            raise ValueError(
                f"argnums names argument {n}, but {name_of(f)} got {len(args)} positional arguments"
            )
    if numbers == (0,) and len(args) == 1 and not kwargs:
        return args, f
    numbers = tuple(n % len(args) for n in numbers)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"argnums {argnums} names an argument twice")

    def function(*some):
        every = list(args)
        for n, value in zip(numbers, some, strict=True):
            every[n] = value
        return f(*every, **kwargs)

    return [args[n] for n in numbers], function


def _scalar_seed(at, f, holomorphic):
    """Return the cotangent 1 of a scalar value, or say why the value has no gradient."""
    if len(at.outputs) == 1 and type(plain(at.outputs[0])) is np.float64:
        return _ONE
    if not at.outputs:
        raise trace_error(
            f"grad of {name_of(f)}",
            "its value has no number in it (None, or an empty tree)",
            "return a scalar",
        )
    like = np_like(at.outputs[0]) if len(at.outputs) == 1 else None
    if like is None or like.size != 1:
        shapes = [np.shape(o) for o in at.outputs]
        raise trace_error(
            f"grad of {name_of(f)}",
            f"its value has {'shape' if len(shapes) == 1 else 'shapes'} {str(shapes)[1:-1]}, not one number",
            "return a scalar, or use ad.jacobian or ad.vjp",
        )
    if like.dtype.kind == "c" and not holomorphic:
        raise trace_error(
            f"grad of {name_of(f)}", "its value is complex", "return a real number, or say holomorphic=True"
        )
    if like.dtype.kind not in "fc":
        raise trace_error(
            f"grad of {name_of(f)}",
            f"its value has the type {like.dtype}, which has no derivative",
            "return a float",
        )
    return np.ones(like.shape, like.dtype)[()]

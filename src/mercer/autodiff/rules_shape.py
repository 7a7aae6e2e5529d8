"""Rules of functions that move entries about: shapes, axes, joining and cutting.

What NumPy returns as a view is a view here (`view=True`): it sees what is assigned to its base later. Most
functions are composed of a few primitives (reshape, transpose, broadcast, concatenate, stack and indexing).
"""

import operator

import numpy as np

from mercer.autodiff.array_methods import joined, ndim_of, shape_of
from mercer.autodiff.rules import Primitive, composite, no_derivative, unbroadcast
from mercer.autodiff.trace import CREATION, Traced, plain, stacked

# What only looks at shapes, types or memory.
no_derivative(
    np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj, np.iscomplex, np.isreal, np.result_type,
    np.can_cast, np.common_type, np.min_scalar_type, np.shares_memory, np.may_share_memory, np.array_repr,
    np.array_str, np.array2string, np.tril_indices_from, np.triu_indices_from, np.diag_indices_from,
    np.unravel_index, np.ravel_multi_index,
)  # fmt: skip


def lead_of(t, x):
    """Return the leading axes that a tangent has beyond those of its value: () or (chunk,)."""
    return shape_of(t)[: ndim_of(t) - ndim_of(x)]


def normal_axis(axis, ndim):
    """Return an axis counted from the front."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis % ndim


def normal_axes(axes, ndim):
    """Return a tuple of different axes counted from the front; None means all."""
    if axes is None:
        return tuple(range(ndim))
    axes = axes if np.iterable(axes) else (axes,)
    result = tuple(normal_axis(a, ndim) for a in axes)
    if len(set(result)) != len(result):
        raise ValueError(f"axes {tuple(axes)} name an axis twice")
    return result


# -- shape ----------------------------------------------------------------------------------------------

reshape_to = Primitive(
    lambda x, shape: np.reshape(x, shape),
    jvp=[lambda t, ans, x, shape: reshape_to(t, (*lead_of(t, x), *shape_of(ans)))],
    vjp=[lambda g, ans, x, shape: reshape_to(g, (*lead_of(g, ans), *shape_of(x)))],
    name="np.reshape",
    batched=True,
    view=True,
)


@composite(np.reshape)
def _reshape(a, /, shape=None, order="C", *, newshape=None, copy=None):
    """Column order is a reshape of the transpose."""
    shape = newshape if shape is None else shape
    if type(shape) is not tuple:
        shape = tuple(shape) if np.iterable(shape) else (shape,)
    if order == "A":
        flags = np.asarray(plain(a)).flags
        order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
    if order == "F":
        out = transposed(reshape_to(transposed(a), shape[::-1]))
    elif order == "C":
        out = reshape_to(a, shape)
    else:
        raise ValueError(f"order must be one of 'C', 'F', or 'A' (got {order!r})")
    return copy_of(out) if copy else out


def _order_of(axes, t, x):
    """Return the order of a tangent's axes, the leading one staying in front."""
    extra = ndim_of(t) - ndim_of(x)
    return (*range(extra), *(a + extra for a in axes))


transpose_by = Primitive(
    lambda x, axes: np.transpose(x, axes),
    jvp=[lambda t, ans, x, axes: transpose_by(t, _order_of(axes, t, x))],
    vjp=[lambda g, ans, x, axes: transpose_by(g, _order_of(np.argsort(axes), g, x))],
    name="np.transpose",
    batched=True,
    view=True,
)


def transposed(a):
    """Return `a` with its axes reversed."""
    return transpose_by(a, tuple(range(ndim_of(a)))[::-1])


@composite(np.transpose, np.permute_dims)
def _transpose(a, axes=None):
    if axes is None:
        return transposed(a)
    if len(axes) != ndim_of(a):
        raise ValueError(f"axes {axes} do not match an array of shape {shape_of(a)}")
    return transpose_by(a, normal_axes(tuple(axes), ndim_of(a)))


@composite(np.moveaxis)
def _moveaxis(a, source, destination):
    ndim = ndim_of(a)
    source, destination = normal_axes(source, ndim), normal_axes(destination, ndim)
    if len(source) != len(destination):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [i for i in range(ndim) if i not in source]
    for d, s in sorted(zip(destination, source, strict=True)):
        order.insert(d, s)
    return transpose_by(a, tuple(order))


@composite(np.rollaxis)
def _rollaxis(a, axis, start=0):
    ndim = ndim_of(a)
    axis, start = normal_axis(axis, ndim), start + ndim if start < 0 else start
    return np.moveaxis(a, axis, start - 1 if axis < start else start)


@composite(np.swapaxes)
def _swapaxes(a, axis1, axis2):
    order = list(range(ndim_of(a)))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose_by(a, tuple(order))


@composite(np.matrix_transpose, np.linalg.matrix_transpose)
def _matrix_transpose(x):
    if ndim_of(x) < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {ndim_of(x)}")
    return np.swapaxes(x, -1, -2)


@composite(np.expand_dims)
def _expand_dims(a, axis):
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = ndim_of(a) + len(axes)
    axes = normal_axes(tuple(axes), ndim)
    shape = iter(shape_of(a))
    return reshape_to(a, tuple(1 if i in axes else next(shape) for i in range(ndim)))


@composite(np.squeeze)
def _squeeze(a, axis=None):
    shape = shape_of(a)
    if axis is None:
        return reshape_to(a, tuple(n for n in shape if n != 1))
    axes = normal_axes(axis, len(shape))
    if any(shape[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshape_to(a, tuple(n for i, n in enumerate(shape) if i not in axes))


@composite(np.ravel)
def _ravel(a, order="C"):
    """A view of what lies in memory in this order, as in NumPy, else a copy; "K" is the order in memory."""
    a = stacked(a)
    value = plain(a)
    if not isinstance(value, np.ndarray):
        return np.reshape(a, -1)
    if order == "K":
        a, order = transpose_by(a, tuple(np.argsort(-np.abs(value.strides), kind="stable").tolist())), "C"
    elif order == "A":
        order = "F" if value.flags.fnc else "C"
    contiguous = plain(a).flags.f_contiguous if order == "F" else plain(a).flags.c_contiguous
    flat = np.reshape(a, -1, order=order)
    return flat if contiguous else np.copy(flat)


def _spread_jvp(t, ans, x, shape):
    lead = lead_of(t, x)
    missing = ndim_of(ans) - ndim_of(x)
    if lead and missing:
        t = reshape_to(t, (*lead, *(1,) * missing, *shape_of(x)))
    return broadcast_shape(t, (*lead, *shape_of(ans)))


broadcast_shape = Primitive(
    lambda x, shape: np.broadcast_to(x, shape),
    jvp=[_spread_jvp],
    vjp=[lambda g, ans, x, shape: unbroadcast(g, x, (ndim_of(g) - ndim_of(ans)) or None)],
    name="np.broadcast_to",
    batched=True,
    view=True,
)


@composite(np.broadcast_to)
def _broadcast_to(array, shape, subok=False):
    return broadcast_shape(array, tuple(shape) if np.iterable(shape) else (shape,))


@composite(np.broadcast_arrays)
def _broadcast_arrays(*args, subok=False):
    args = [stacked(a) for a in args]
    shape = np.broadcast_shapes(*(shape_of(a) for a in args))
    return tuple(a if shape_of(a) == shape else np.broadcast_to(a, shape) for a in args)


def _at_least(ndim, grown):
    def f(*arys):
        result = [np.reshape(a, grown(shape_of(a))) if ndim_of(a) < ndim else a for a in map(stacked, arys)]
        return result[0] if len(result) == 1 else tuple(result)

    return f


composite(np.atleast_1d)(_at_least(1, lambda shape: (1,)))
composite(np.atleast_2d)(_at_least(2, lambda shape: (1, *shape) if shape else (1, 1)))
composite(np.atleast_3d)(_at_least(3, lambda shape: ((1, 1, 1), (1, *shape, 1), (*shape, 1))[len(shape)]))


@composite(np.meshgrid)
def _meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    n = len(xi)
    places = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else range(n)
    grids = [np.reshape(x, (1,) * i + (-1,) + (1,) * (n - 1 - i)) for x, i in zip(xi, places, strict=True)]
    if not sparse:
        grids = np.broadcast_arrays(*grids)
    return tuple(np.copy(g) for g in grids) if copy else tuple(grids)


# -- copies, and new arrays like a traced one ---------------------------------------------------------------

copy_of = Primitive(
    lambda x, order="K": np.copy(x, order),
    jvp=[lambda t, ans, x, order="K": t],
    vjp=[lambda g, ans, x, order="K": g],
    name="np.copy",
    batched=True,
)
composite(np.copy)(lambda a, order="K", subok=False: copy_of(a, order=order))


composite(np.astype)(lambda x, dtype, /, *, copy=True, device=None: x.astype(dtype, copy=copy))


def constant(like, value):
    """Return new entries as a value that takes part in the trace, so that it can be assigned into."""
    return like.level.constant(value) if value.dtype.kind in "fc" else value


@composite(np.zeros_like, np.empty_like)
def _zeros_like(a, dtype=None, order="K", subok=True, shape=None, *, device=None):
    return constant(a, np.zeros_like(a.value, dtype=dtype, order=order, shape=shape))


@composite(np.ones_like)
def _ones_like(a, dtype=None, order="K", subok=True, shape=None, *, device=None):
    return constant(a, np.ones_like(a.value, dtype=dtype, order=order, shape=shape))


@composite(np.full_like)
def _full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None, *, device=None):
    out = np.zeros_like(a, dtype=dtype, order=order, shape=shape)
    out[...] = fill_value
    return out


def _created(function):
    """Return what ``function(..., like=x)`` does: the entries become part of the trace that x is in."""
    return lambda like, *args, **kwargs: constant(like, function(*args, **kwargs))


for _function in (
    np.zeros, np.ones, np.empty, np.arange, np.eye, np.identity, np.tri, np.fromfunction, np.frombuffer,
    np.fromiter,
    np.fromstring, np.genfromtxt, np.loadtxt,
):  # fmt: skip
    CREATION[_function] = _created(_function)


def _full_like_this(like, shape, fill_value, dtype=None, **kwargs):
    dtype = np.result_type(fill_value) if dtype is None else dtype
    out = constant(like, np.zeros(shape, dtype))
    if isinstance(fill_value, Traced):
        out[...] = fill_value
        return out
    return constant(like, np.full(shape, fill_value, dtype))


def _converted(function):
    """Return what ``function(a, ..., like=x)`` does, where a may be traced; NumPy says whether it copies."""

    def convert(like, a, *args, **kwargs):
        a = joined(a)
        held = plain(a)
        out = function(held, *args, **kwargs)
        if not isinstance(a, Traced):
            return constant(like, out)
        if isinstance(held, np.ndarray) and np.may_share_memory(out, held):
            return a if out.shape == a.shape else np.reshape(a, out.shape)
        order = "F" if out.flags.fnc else "C" if out.flags.c_contiguous else "K"
        copied = copy_of(a, order=order) if out.dtype == a.dtype else a.astype(out.dtype, order=order)
        return copied if out.shape == copied.shape else copy_of(np.reshape(copied, out.shape), order=order)

    return convert


CREATION[np.full] = _full_like_this
for _function in (np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray, np.require):
    CREATION[_function] = _converted(_function)


# -- diagonals and triangles ------------------------------------------------------------------------------


def _embedded(g, shape, offset):
    out = np.zeros((*g.shape[:-1], *shape), g.dtype)
    i = np.arange(g.shape[-1])
    out[..., i - min(offset, 0), i + max(offset, 0)] = g
    return out


embed_diagonal = Primitive(
    _embedded,
    jvp=[lambda t, ans, x, shape, offset: embed_diagonal(t, shape, offset)],
    vjp=[lambda g, ans, x, shape, offset: diagonal_of(g, offset)],
    name="transpose of np.diagonal",
    batched=True,
)
diagonal_of = Primitive(
    lambda x, offset: np.diagonal(x, offset, -2, -1),
    jvp=[lambda t, ans, x, offset: diagonal_of(t, offset)],
    vjp=[lambda g, ans, x, offset: embed_diagonal(g, shape_of(x)[-2:], offset)],
    name="np.diagonal",
    batched=True,
    view=True,
)


@composite(np.diagonal)
def _diagonal(a, offset=0, axis1=0, axis2=1):
    ndim = ndim_of(a)
    if ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    axis1, axis2 = normal_axis(axis1, ndim), normal_axis(axis2, ndim)
    if axis1 == axis2:
        raise ValueError("axis1 and axis2 cannot be the same")
    rest = tuple(i for i in range(ndim) if i not in (axis1, axis2))
    return diagonal_of(transpose_by(a, (*rest, axis1, axis2)), offset)


@composite(np.linalg.diagonal)
def _linalg_diagonal(x, /, *, offset=0):
    return np.diagonal(x, offset, -2, -1)


@composite(np.diag)
def _diag(v, k=0):
    if ndim_of(v) == 2:
        return np.diagonal(v, k)
    if ndim_of(v) != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = shape_of(v)[0] + abs(k)
    return embed_diagonal(v, (n, n), k)


@composite(np.diagflat)
def _diagflat(v, k=0):
    return np.diag(np.ravel(v), k)


def _triangle(m, keep):
    m = stacked(m)
    shape = shape_of(m)[-2:]
    return np.where(keep(shape * 2 if len(shape) == 1 else shape), m, np.zeros(1, m.dtype))


@composite(np.tril)
def _tril(m, k=0):
    return _triangle(m, lambda shape: np.tri(*shape, k=k, dtype=bool))


@composite(np.triu)
def _triu(m, k=0):
    return _triangle(m, lambda shape: ~np.tri(*shape, k=k - 1, dtype=bool))


@composite(np.trace)
def _trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    return np.sum(np.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype, out=out)


@composite(np.linalg.trace)
def _linalg_trace(x, /, *, offset=0, dtype=None):
    return np.trace(x, offset, -2, -1, dtype=dtype)

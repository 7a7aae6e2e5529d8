"""Rules of functions that move entries about: shapes, axes, joining and cutting.

What NumPy returns as a view is a view here (`view=True`): it sees what is assigned to its base later. Most
functions are composed of a few primitives (reshape, transpose, broadcast, concatenate, stack and indexing).
"""

import math
import operator

import numpy as np

from mercer.autodiff.array_methods import getitem, write_into
from mercer.autodiff.errors import trace_error
from mercer.autodiff.rules import Primitive, cast, composite, no_derivative, unbroadcast
from mercer.autodiff.trace import Traced, plain, stacked

# What only looks at shapes, types or memory.
no_derivative(
    np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj, np.iscomplex, np.isreal, np.result_type,
    np.can_cast, np.common_type, np.min_scalar_type, np.shares_memory, np.may_share_memory, np.array_repr,
    np.array_str, np.array2string, np.tril_indices_from, np.triu_indices_from, np.diag_indices_from, np.ix_,
    np.unravel_index, np.ravel_multi_index,
)  # fmt: skip


def lead_of(t, x):
    """Return the leading axes that a tangent has beyond those of its value: () or (chunk,)."""
    return np.shape(t)[: np.ndim(t) - np.ndim(x)]


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
    axes = axes if isinstance(axes, tuple | list) else (axes,)
    result = tuple(normal_axis(a, ndim) for a in axes)
    if len(set(result)) != len(result):
        raise ValueError(f"axes {tuple(axes)} name an axis twice")
    return result


# -- shape ----------------------------------------------------------------------------------------------

reshape_to = Primitive(
    lambda x, shape: np.reshape(x, shape),
    jvp=[lambda t, ans, x, shape: reshape_to(t, (*lead_of(t, x), *np.shape(ans)))],
    vjp=[lambda g, ans, x, shape: reshape_to(g, (*lead_of(g, ans), *np.shape(x)))],
    name="np.reshape",
    batched=True,
    view=True,
)


@composite(np.reshape)
def reshape(a, /, shape=None, order="C", *, newshape=None, copy=None):
    """Column order is a reshape of the transpose."""
    shape = newshape if shape is None else shape
    shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
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
    extra = np.ndim(t) - np.ndim(x)
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
    return transpose_by(a, tuple(range(np.ndim(a)))[::-1])


@composite(np.transpose, np.permute_dims)
def transpose(a, axes=None):
    if axes is None:
        return transposed(a)
    if len(axes) != np.ndim(a):
        raise ValueError(f"axes {axes} do not match an array of shape {np.shape(a)}")
    return transpose_by(a, normal_axes(tuple(axes), np.ndim(a)))


@composite(np.moveaxis)
def moveaxis(a, source, destination):
    ndim = np.ndim(a)
    source, destination = normal_axes(source, ndim), normal_axes(destination, ndim)
    if len(source) != len(destination):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [i for i in range(ndim) if i not in source]
    for d, s in sorted(zip(destination, source, strict=True)):
        order.insert(d, s)
    return transpose_by(a, tuple(order))


@composite(np.rollaxis)
def rollaxis(a, axis, start=0):
    ndim = np.ndim(a)
    axis, start = normal_axis(axis, ndim), start + ndim if start < 0 else start
    return np.moveaxis(a, axis, start - 1 if axis < start else start)


@composite(np.swapaxes)
def swapaxes(a, axis1, axis2):
    order = list(range(np.ndim(a)))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose_by(a, tuple(order))


@composite(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x):
    if np.ndim(x) < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {np.ndim(x)}")
    return np.swapaxes(x, -1, -2)


@composite(np.expand_dims)
def expand_dims(a, axis):
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = np.ndim(a) + len(axes)
    axes = normal_axes(tuple(axes), ndim)
    shape = iter(np.shape(a))
    return reshape_to(a, tuple(1 if i in axes else next(shape) for i in range(ndim)))


@composite(np.squeeze)
def squeeze(a, axis=None):
    shape = np.shape(a)
    if axis is None:
        return reshape_to(a, tuple(n for n in shape if n != 1))
    axes = normal_axes(axis, len(shape))
    if any(shape[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshape_to(a, tuple(n for i, n in enumerate(shape) if i not in axes))


@composite(np.ravel)
def ravel(a, order="C"):
    return np.reshape(a, -1, order="C" if order == "K" else order)


def _spread_jvp(t, ans, x, shape):
    lead = lead_of(t, x)
    missing = np.ndim(ans) - np.ndim(x)
    if lead and missing:
        t = reshape_to(t, (*lead, *(1,) * missing, *np.shape(x)))
    return broadcast_shape(t, (*lead, *np.shape(ans)))


broadcast_shape = Primitive(
    lambda x, shape: np.broadcast_to(x, shape),
    jvp=[_spread_jvp],
    vjp=[lambda g, ans, x, shape: unbroadcast(g, x, (np.ndim(g) - np.ndim(ans)) or None)],
    name="np.broadcast_to",
    batched=True,
    view=True,
)


@composite(np.broadcast_to)
def broadcast_to(array, shape, subok=False):
    return broadcast_shape(array, (shape,) if np.ndim(shape) == 0 else tuple(shape))


@composite(np.broadcast_arrays)
def broadcast_arrays(*args, subok=False):
    args = [stacked(a) for a in args]
    shape = np.broadcast_shapes(*(np.shape(a) for a in args))
    return tuple(a if np.shape(a) == shape else np.broadcast_to(a, shape) for a in args)


def _at_least(ndim, shape_of):
    def f(*arys):
        result = [np.reshape(a, shape_of(np.shape(a))) if np.ndim(a) < ndim else a for a in map(stacked, arys)]
        return result[0] if len(result) == 1 else tuple(result)

    return f


composite(np.atleast_1d)(_at_least(1, lambda shape: (1,)))
composite(np.atleast_2d)(_at_least(2, lambda shape: (1, *shape) if shape else (1, 1)))
composite(np.atleast_3d)(_at_least(3, lambda shape: ((1, 1, 1), (1, *shape, 1), (*shape, 1))[len(shape)]))


@composite(np.meshgrid)
def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
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
    lambda x: np.copy(x), jvp=[lambda t, ans, x: t], vjp=[lambda g, ans, x: g], name="np.copy", batched=True
)
composite(np.copy)(lambda a, order="K", subok=False: copy_of(a))


def constant(like, value):
    """Return new entries as a value that takes part in the trace, so that it can be assigned into."""
    return like.level.constant(value) if value.dtype.kind in "fc" else value


@composite(np.zeros_like, np.empty_like)
def zeros_like(a, dtype=None, order="K", subok=True, shape=None, *, device=None):
    return constant(a, np.zeros_like(a.value, dtype=dtype, shape=shape))


@composite(np.ones_like)
def ones_like(a, dtype=None, order="K", subok=True, shape=None, *, device=None):
    return constant(a, np.ones_like(a.value, dtype=dtype, shape=shape))


@composite(np.full_like)
def full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None, *, device=None):
    out = np.zeros_like(a, dtype=dtype, shape=shape)
    out[...] = fill_value
    return out


# -- joining --------------------------------------------------------------------------------------------


def _parts(tangents, ans, arrays):
    """Return a tangent for each of several arrays, zeros for None."""
    lead = next(lead_of(t, a) for t, a in zip(tangents, arrays, strict=True) if t is not None)
    return lead, [
        np.zeros((*lead, *np.shape(a)), ans.dtype) if t is None else t
        for t, a in zip(tangents, arrays, strict=True)
    ]


def _concatenate_jvp(tangents, ans, *arrays, axis, **kwargs):
    if all(t is None for t in tangents):
        return None
    lead, tangents = _parts(tangents, ans, arrays)
    return concatenate_of(*tangents, axis=axis + len(lead), **kwargs)


def _concatenate_vjp(g, ans, needed, *arrays, axis, **kwargs):
    before = (slice(None),) * (axis + np.ndim(g) - np.ndim(ans))
    result, start = [], 0
    for a, need in zip(arrays, needed, strict=True):
        stop = start + np.shape(a)[axis]
        result.append(cast(getitem(g, (*before, slice(start, stop))), a) if need else None)
        start = stop
    return result


concatenate_of = Primitive(
    lambda *arrays, **kwargs: np.concatenate(arrays, **kwargs),
    jvp=_concatenate_jvp,
    vjp=_concatenate_vjp,
    name="np.concatenate",
    batched=True,
)


def _kinds(dtype, casting):
    return {} if dtype is None and casting == "same_kind" else {"dtype": dtype, "casting": casting}


@composite(np.concatenate)
def concatenate(arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind"):
    arrays = [stacked(a) for a in arrays]
    if axis is None:
        arrays, axis = [np.ravel(a) for a in arrays], 0
    if any(np.ndim(a) == 0 for a in arrays):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axis = normal_axis(axis, np.ndim(arrays[0]))
    return write_into(out, concatenate_of(*arrays, axis=axis, **_kinds(dtype, casting)))


def _stack_jvp(tangents, ans, *arrays, axis, **kwargs):
    if all(t is None for t in tangents):
        return None
    lead, tangents = _parts(tangents, ans, arrays)
    return stack_of(*tangents, axis=axis + len(lead), **kwargs)


def _stack_vjp(g, ans, needed, *arrays, axis, **kwargs):
    before = (slice(None),) * (axis + np.ndim(g) - np.ndim(ans))
    return [
        cast(getitem(g, (*before, i)), a) if need else None
        for i, (a, need) in enumerate(zip(arrays, needed, strict=True))
    ]


stack_of = Primitive(
    lambda *arrays, **kwargs: np.stack(arrays, **kwargs),
    jvp=_stack_jvp,
    vjp=_stack_vjp,
    name="np.stack",
    batched=True,
)


@composite(np.stack)
def stack(arrays, axis=0, out=None, *, dtype=None, casting="same_kind"):
    arrays = [stacked(a) for a in arrays]
    axis = normal_axis(axis, np.ndim(arrays[0]) + 1)
    return write_into(out, stack_of(*arrays, axis=axis, **_kinds(dtype, casting)))


def _many(result):
    return [result] if not isinstance(result, list | tuple) else result


@composite(np.vstack)
def vstack(tup, *, dtype=None, casting="same_kind"):
    return np.concatenate(_many(np.atleast_2d(*tup)), 0, dtype=dtype, casting=casting)


@composite(np.hstack)
def hstack(tup, *, dtype=None, casting="same_kind"):
    arrays = _many(np.atleast_1d(*tup))
    return np.concatenate(arrays, 0 if np.ndim(arrays[0]) == 1 else 1, dtype=dtype, casting=casting)


@composite(np.dstack)
def dstack(tup):
    return np.concatenate(_many(np.atleast_3d(*tup)), 2)


@composite(np.column_stack)
def column_stack(tup):
    arrays = [stacked(a) for a in tup]
    return np.concatenate([a if np.ndim(a) > 1 else np.reshape(a, (-1, 1)) for a in arrays], 1)


def _depth(item):
    return 1 + max(map(_depth, item)) if isinstance(item, list) else 0


@composite(np.block)
def block(arrays):
    depth = _depth(arrays)
    ndim = max(depth, max(np.ndim(a) for a in _leaves(arrays)))

    def joined(item, level):
        if not isinstance(item, list):
            return np.reshape(item, (1,) * (ndim - np.ndim(item)) + np.shape(item))
        return np.concatenate([joined(i, level + 1) for i in item], axis=level - depth)

    return joined(arrays, 0) if depth else np.copy(arrays)


def _leaves(item):
    return [leaf for i in item for leaf in _leaves(i)] if isinstance(item, list) else [item]


@composite(np.append)
def append(arr, values, axis=None):
    if axis is None:
        return np.concatenate((np.ravel(arr), np.ravel(stacked(values))))
    return np.concatenate((arr, values), axis)


@composite(np.insert)
def insert(arr, obj, values, axis=None):
    """NumPy's own insertion of numbers tells where each entry goes."""
    values = stacked(values)
    if axis is None:
        arr, axis = np.ravel(arr), 0
    axis = normal_axis(axis, np.ndim(arr))
    n = np.shape(arr)[axis]
    values = np.reshape(values, (1,) * (np.ndim(arr) - np.ndim(values)) + np.shape(values))
    if np.ndim(obj) == 0 and not isinstance(obj, slice):
        values = np.moveaxis(values, 0, axis)
    count = len(np.insert(np.zeros(n), obj, 0.0)) - n
    count = max(count, np.shape(values)[axis]) if np.size(obj) == 1 else count
    order = np.insert(np.arange(n), obj, np.arange(n, n + count))
    values = np.broadcast_to(values, (*np.shape(arr)[:axis], count, *np.shape(arr)[axis + 1 :]))
    joined = np.concatenate((arr, values), axis, dtype=arr.dtype, casting="unsafe")
    return np.take(joined, order, axis)


@composite(np.delete)
def delete(arr, obj, axis=None):
    if axis is None:
        arr, axis = np.ravel(arr), 0
    return np.take(arr, np.delete(np.arange(np.shape(arr)[axis]), plain(obj)), axis)


# -- cutting --------------------------------------------------------------------------------------------


def _cut(a, cuts, axis):
    before = (slice(None),) * normal_axis(axis, np.ndim(a))
    cuts = [*(operator.index(c) for c in cuts), None]
    return [a[(*before, slice(i, j))] for i, j in zip([0, *cuts[:-1]], cuts, strict=True)]


@composite(np.array_split)
def array_split(ary, indices_or_sections, axis=0):
    if np.ndim(indices_or_sections):
        return _cut(ary, indices_or_sections, axis)
    n = int(indices_or_sections)
    if n <= 0:
        raise ValueError("number sections must be larger than 0.")
    each, extra = divmod(np.shape(ary)[axis], n)
    return _cut(ary, [i * each + min(i, extra) for i in range(1, n)], axis)


@composite(np.split)
def split(ary, indices_or_sections, axis=0):
    if np.ndim(indices_or_sections) == 0 and np.shape(ary)[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return np.array_split(ary, indices_or_sections, axis)


@composite(np.hsplit)
def hsplit(ary, indices_or_sections):
    if np.ndim(ary) == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return np.split(ary, indices_or_sections, 1 if np.ndim(ary) > 1 else 0)


@composite(np.vsplit)
def vsplit(ary, indices_or_sections):
    if np.ndim(ary) < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return np.split(ary, indices_or_sections, 0)


@composite(np.dsplit)
def dsplit(ary, indices_or_sections):
    if np.ndim(ary) < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return np.split(ary, indices_or_sections, 2)


@composite(np.unstack)
def unstack(x, /, *, axis=0):
    if np.ndim(x) == 0:
        raise ValueError("Input array must be at least 1-d.")
    return tuple(np.moveaxis(x, axis, 0))


# -- repetition and order -------------------------------------------------------------------------------


@composite(np.tile)
def tile(A, reps):
    reps = (reps,) if np.ndim(reps) == 0 else tuple(reps)
    shape = (1,) * (len(reps) - np.ndim(A)) + np.shape(A)
    reps = (1,) * (len(shape) - len(reps)) + reps
    pairs = [(r, n) for r, n in zip(reps, shape, strict=True)]
    spread = np.reshape(A, [k for _, n in pairs for k in (1, n)])
    spread = np.broadcast_to(spread, [k for pair in pairs for k in pair])
    return np.copy(np.reshape(spread, [r * n for r, n in pairs]))


@composite(np.repeat)
def repeat(a, repeats, axis=None):
    if axis is None:
        a, axis = np.ravel(a), 0
    return np.take(a, np.repeat(np.arange(np.shape(a)[axis]), plain(repeats)), axis)


@composite(np.roll)
def roll(a, shift, axis=None):
    if axis is None:
        return np.reshape(np.roll(np.ravel(a), shift, 0), np.shape(a))
    shifts, axes = np.broadcast_arrays(shift, axis)
    for s, ax in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True):
        n = np.shape(a)[ax]
        s = s % n if n else 0
        before = (slice(None),) * normal_axis(ax, np.ndim(a))
        if s:
            a = np.concatenate((a[(*before, slice(n - s, None))], a[(*before, slice(n - s))]), ax)
    return np.copy(a)


@composite(np.flip)
def flip(m, axis=None):
    axes = normal_axes(axis, np.ndim(m))
    return m[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(np.ndim(m)))]


@composite(np.fliplr)
def fliplr(m):
    if np.ndim(m) < 2:
        raise ValueError("Input must be >= 2-d.")
    return np.flip(m, 1)


@composite(np.flipud)
def flipud(m):
    if np.ndim(m) < 1:
        raise ValueError("Input must be >= 1-d.")
    return np.flip(m, 0)


@composite(np.rot90)
def rot90(m, k=1, axes=(0, 1)):
    first, second = normal_axes(tuple(axes), np.ndim(m))
    k %= 4
    if k == 0:
        return m[:]
    if k == 2:
        return np.flip(m, (first, second))
    if k == 1:
        return np.swapaxes(np.flip(m, second), first, second)
    return np.flip(np.swapaxes(m, first, second), second)


@composite(np.resize)
def resize(a, new_shape):
    shape = (new_shape,) if np.ndim(new_shape) == 0 else tuple(new_shape)
    size, n = math.prod(shape), np.size(a)
    if n == 0:
        return constant(a, np.zeros(shape, a.dtype))
    return np.reshape(np.ravel(a)[np.arange(size) % n], shape)


# -- diagonals and triangles ------------------------------------------------------------------------------


@composite(np.diagonal, np.linalg.diagonal)
def diagonal(a, offset=0, axis1=0, axis2=1):
    ndim = np.ndim(a)
    axis1, axis2 = normal_axis(axis1, ndim), normal_axis(axis2, ndim)
    if axis1 == axis2:
        raise ValueError("axis1 and axis2 cannot be the same")
    rest = tuple(i for i in range(ndim) if i not in (axis1, axis2))
    a = transpose_by(a, (*rest, axis1, axis2))
    n = max(min(np.shape(a)[-2] + min(offset, 0), np.shape(a)[-1] - max(offset, 0)), 0)
    i = np.arange(n)
    return a[..., i - min(offset, 0), i + max(offset, 0)]


@composite(np.linalg.diagonal)
def linalg_diagonal(x, /, *, offset=0):
    return np.diagonal(x, offset, -2, -1)


@composite(np.diag)
def diag(v, k=0):
    if np.ndim(v) == 2:
        return np.diagonal(v, k)
    if np.ndim(v) != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = np.shape(v)[0] + abs(k)
    i = np.arange(np.shape(v)[0])
    out = np.zeros_like(v, shape=(n, n))
    out[i - min(k, 0), i + max(k, 0)] = v
    return out


@composite(np.diagflat)
def diagflat(v, k=0):
    return np.diag(np.ravel(v), k)


def _triangle(m, keep):
    m = stacked(m)
    return np.where(keep(np.shape(m)[-2:]), m, np.zeros(1, m.dtype))


@composite(np.tril)
def tril(m, k=0):
    return _triangle(m, lambda shape: np.tri(*shape[-2:], k=k, dtype=bool) if len(shape) > 1 else np.tri(*shape, k=k, dtype=bool))


@composite(np.triu)
def triu(m, k=0):
    return _triangle(m, lambda shape: ~np.tri(*shape[-2:], k=k - 1, dtype=bool) if len(shape) > 1 else ~np.tri(*shape, k=k - 1, dtype=bool))


@composite(np.trace)
def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    return np.sum(np.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype, out=out)


@composite(np.linalg.trace)
def linalg_trace(x, /, *, offset=0, dtype=None):
    return np.trace(x, offset, -2, -1, dtype=dtype)


# -- selection by index -----------------------------------------------------------------------------------


def _bounded(indices, n, mode):
    """Return indices within an axis, by take's modes."""
    indices = np.asarray(plain(indices))
    if mode == "wrap":
        return indices % n
    if mode == "clip":
        return np.clip(indices, 0, n - 1)
    if mode != "raise":
        raise ValueError(f"mode must be 'raise', 'wrap' or 'clip', got {mode!r}")
    return indices


@composite(np.take)
def take(a, indices, axis=None, out=None, mode="raise"):
    if axis is None:
        a, axis = np.ravel(a), 0
    axis = normal_axis(axis, np.ndim(a))
    indices = _bounded(indices, np.shape(a)[axis], mode)
    return write_into(out, getitem(a, (*(slice(None),) * axis, indices)))


def along(shape, indices, axis):
    """Return the index that take_along_axis stands for."""
    ndim = len(shape)
    return tuple(
        indices if i == axis else np.arange(n).reshape((1,) * i + (-1,) + (1,) * (ndim - 1 - i))
        for i, n in enumerate(shape)
    )


@composite(np.take_along_axis)
def take_along_axis(arr, indices, axis=-1):
    if axis is None:
        arr, axis, indices = np.ravel(arr), 0, np.ravel(indices)
    axis = normal_axis(axis, np.ndim(arr))
    return getitem(arr, _along_of(arr, indices, axis))


def _along_of(arr, indices, axis):
    if np.ndim(indices) != np.ndim(arr):
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    shape = np.shape(arr)
    lengths = tuple(
        m if m != 1 or n == 1 else 1 for m, n in zip(np.shape(indices), shape, strict=True)
    )
    full = tuple(n if i != axis else lengths[i] for i, n in enumerate(shape))
    return along(full, np.asarray(plain(indices)), axis)


@composite(np.put_along_axis)
def put_along_axis(arr, indices, values, axis):
    _target(arr, "np.put_along_axis")
    if axis is None:
        arr[np.unravel_index(np.ravel(indices), arr.shape)] = values
        return
    arr[_along_of(arr, indices, normal_axis(axis, np.ndim(arr)))] = values


@composite(np.compress)
def compress(condition, a, axis=None, out=None):
    return np.take(a, np.flatnonzero(plain(stacked(condition))), axis, out)


@composite(np.extract)
def extract(condition, arr):
    return np.take(np.ravel(arr), np.flatnonzero(plain(condition)))


# -- assignment by functions ------------------------------------------------------------------------------


def _target(a, operation):
    if not isinstance(a, Traced):
        raise trace_error(
            operation,
            "assignment of a traced value into a plain array would lose the derivative",
            "make the array by np.zeros_like(x) or np.zeros(shape, like=x)",
        )


@composite(np.copyto)
def copyto(dst, src, casting="same_kind", where=True):
    _target(dst, "np.copyto")
    if where is True:
        dst[...] = src
    else:
        where = plain(where)
        dst[...] = np.where(where, src, dst)


@composite(np.fill_diagonal)
def fill_diagonal(a, val, wrap=False):
    _target(a, "np.fill_diagonal")
    shape = np.shape(a)
    marks = np.zeros(shape, bool)
    np.fill_diagonal(marks, True, wrap=wrap)
    index = np.nonzero(marks)
    n = len(index[0])
    a[index] = val if np.ndim(val) == 0 else np.resize(val, n)


@composite(np.put)
def put(a, ind, v, mode="raise"):
    _target(a, "np.put")
    ind = _bounded(ind, a.size, mode)
    n = np.size(ind)
    if n:
        a[np.unravel_index(np.ravel(ind) % a.size, a.shape)] = v if np.ndim(v) == 0 else np.resize(v, n)


@composite(np.place)
def place(arr, mask, vals):
    _target(arr, "np.place")
    index = np.nonzero(np.reshape(plain(mask), arr.shape))
    if len(index[0]):
        arr[index] = np.resize(vals, len(index[0]))


@composite(np.putmask)
def putmask(a, mask, values):
    _target(a, "np.putmask")
    where = np.flatnonzero(plain(mask))
    if len(where):
        a[np.unravel_index(where, a.shape)] = np.take(np.resize(values, a.size), where)

"""Rules of functions that join, cut, repeat and turn arrays."""

import math
import operator

import numpy as np

from mercer.autodiff.array_methods import getitem, ndim_of, shape_of, write_into
from mercer.autodiff.rules import Primitive, cast, composite
from mercer.autodiff.rules_shape import constant, lead_of, normal_axes, normal_axis
from mercer.autodiff.trace import plain, stacked

# -- joining --------------------------------------------------------------------------------------------


def _parts(tangents, ans, arrays):
    """Return a tangent for each of several arrays, zeros for None."""
    lead = next(lead_of(t, a) for t, a in zip(tangents, arrays, strict=True) if t is not None)
    return lead, [
        np.zeros((*lead, *shape_of(a)), ans.dtype) if t is None else t
        for t, a in zip(tangents, arrays, strict=True)
    ]


def _concatenate_jvp(tangents, ans, *arrays, axis, **kwargs):
    if all(t is None for t in tangents):
        return None
    lead, tangents = _parts(tangents, ans, arrays)
    return concatenate_of(*tangents, axis=axis + len(lead), **kwargs)


def _concatenate_vjp(g, ans, needed, *arrays, axis, **kwargs):
    before = (slice(None),) * (axis + ndim_of(g) - ndim_of(ans))
    result, start = [], 0
    for a, need in zip(arrays, needed, strict=True):
        stop = start + shape_of(a)[axis]
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
def _concatenate(arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind"):
    arrays = [stacked(a) for a in arrays]
    if axis is None:
        arrays, axis = [np.ravel(a) for a in arrays], 0
    if any(ndim_of(a) == 0 for a in arrays):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axis = normal_axis(axis, ndim_of(arrays[0]))
    return write_into(out, concatenate_of(*arrays, axis=axis, **_kinds(dtype, casting)))


def _stack_jvp(tangents, ans, *arrays, axis, **kwargs):
    if all(t is None for t in tangents):
        return None
    lead, tangents = _parts(tangents, ans, arrays)
    return stack_of(*tangents, axis=axis + len(lead), **kwargs)


def _stack_vjp(g, ans, needed, *arrays, axis, **kwargs):
    before = (slice(None),) * (axis + ndim_of(g) - ndim_of(ans))
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
def _stack(arrays, axis=0, out=None, *, dtype=None, casting="same_kind"):
    arrays = [stacked(a) for a in arrays]
    axis = normal_axis(axis, ndim_of(arrays[0]) + 1)
    return write_into(out, stack_of(*arrays, axis=axis, **_kinds(dtype, casting)))


def _many(result):
    return [result] if not isinstance(result, list | tuple) else result


@composite(np.vstack)
def _vstack(tup, *, dtype=None, casting="same_kind"):
    return np.concatenate(_many(np.atleast_2d(*tup)), 0, dtype=dtype, casting=casting)


@composite(np.hstack)
def _hstack(tup, *, dtype=None, casting="same_kind"):
    arrays = _many(np.atleast_1d(*tup))
    return np.concatenate(arrays, 0 if ndim_of(arrays[0]) == 1 else 1, dtype=dtype, casting=casting)


@composite(np.dstack)
def _dstack(tup):
    return np.concatenate(_many(np.atleast_3d(*tup)), 2)


@composite(np.column_stack)
def _column_stack(tup):
    arrays = [stacked(a) for a in tup]
    return np.concatenate([a if ndim_of(a) > 1 else np.reshape(a, (-1, 1)) for a in arrays], 1)


def _depth(item):
    return 1 + max(map(_depth, item)) if isinstance(item, list) else 0


@composite(np.block)
def _block(arrays):
    depth = _depth(arrays)
    ndim = max(depth, max(ndim_of(a) for a in _leaves(arrays)))

    def joined(item, level):
        if not isinstance(item, list):
            return np.reshape(item, (1,) * (ndim - ndim_of(item)) + shape_of(item))
        return np.concatenate([joined(i, level + 1) for i in item], axis=level - depth)

    return joined(arrays, 0) if depth else np.copy(arrays)


def _leaves(item):
    return [leaf for i in item for leaf in _leaves(i)] if isinstance(item, list) else [item]


@composite(np.append)
def _append(arr, values, axis=None):
    if axis is None:
        return np.concatenate((np.ravel(arr), np.ravel(stacked(values))))
    return np.concatenate((arr, values), axis)


@composite(np.insert)
def _insert(arr, obj, values, axis=None):
    """NumPy's own insertion of numbers tells where each entry goes."""
    arr, values = stacked(arr), stacked(values)
    if axis is None:
        arr, axis = np.ravel(arr), 0
    axis = normal_axis(axis, ndim_of(arr))
    n = shape_of(arr)[axis]
    values = np.reshape(values, (1,) * (ndim_of(arr) - ndim_of(values)) + shape_of(values))
    if ndim_of(obj) == 0 and not isinstance(obj, slice):
        values = np.moveaxis(values, 0, axis)
    count = len(np.insert(np.zeros(n), obj, 0.0)) - n
    count = max(count, shape_of(values)[axis]) if np.size(obj) == 1 else count
    order = np.insert(np.arange(n), obj, np.arange(n, n + count))
    values = np.broadcast_to(values, (*shape_of(arr)[:axis], count, *shape_of(arr)[axis + 1 :]))
    joined = np.concatenate((arr, values), axis, dtype=arr.dtype, casting="unsafe")
    return np.take(joined, order, axis)


@composite(np.delete)
def _delete(arr, obj, axis=None):
    if axis is None:
        arr, axis = np.ravel(arr), 0
    return np.take(arr, np.delete(np.arange(shape_of(arr)[axis]), plain(obj)), axis)


# -- cutting --------------------------------------------------------------------------------------------


def _cut(a, cuts, axis):
    before = (slice(None),) * normal_axis(axis, ndim_of(a))
    cuts = [*(operator.index(c) for c in cuts), None]
    return [a[(*before, slice(i, j))] for i, j in zip([0, *cuts[:-1]], cuts, strict=True)]


@composite(np.array_split)
def _array_split(ary, indices_or_sections, axis=0):
    if ndim_of(indices_or_sections):
        return _cut(ary, indices_or_sections, axis)
    n = int(indices_or_sections)
    if n <= 0:
        raise ValueError("number sections must be larger than 0.")
    each, extra = divmod(shape_of(ary)[axis], n)
    return _cut(ary, [i * each + min(i, extra) for i in range(1, n)], axis)


@composite(np.split)
def _split(ary, indices_or_sections, axis=0):
    if ndim_of(indices_or_sections) == 0 and shape_of(ary)[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return np.array_split(ary, indices_or_sections, axis)


@composite(np.hsplit)
def _hsplit(ary, indices_or_sections):
    if ndim_of(ary) == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return np.split(ary, indices_or_sections, 1 if ndim_of(ary) > 1 else 0)


@composite(np.vsplit)
def _vsplit(ary, indices_or_sections):
    if ndim_of(ary) < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return np.split(ary, indices_or_sections, 0)


@composite(np.dsplit)
def _dsplit(ary, indices_or_sections):
    if ndim_of(ary) < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return np.split(ary, indices_or_sections, 2)


@composite(np.unstack)
def _unstack(x, /, *, axis=0):
    if ndim_of(x) == 0:
        raise ValueError("Input array must be at least 1-d.")
    return tuple(np.moveaxis(x, axis, 0))


# -- repetition and order -------------------------------------------------------------------------------


@composite(np.tile)
def _tile(A, reps):
    reps = (reps,) if ndim_of(reps) == 0 else tuple(reps)
    shape = (1,) * (len(reps) - ndim_of(A)) + shape_of(A)
    reps = (1,) * (len(shape) - len(reps)) + reps
    pairs = [(r, n) for r, n in zip(reps, shape, strict=True)]
    spread = np.reshape(A, [k for _, n in pairs for k in (1, n)])
    spread = np.broadcast_to(spread, [k for pair in pairs for k in pair])
    return np.copy(np.reshape(spread, [r * n for r, n in pairs]))


@composite(np.repeat)
def _repeat(a, repeats, axis=None):
    if axis is None:
        a, axis = np.ravel(a), 0
    return np.take(a, np.repeat(np.arange(shape_of(a)[axis]), plain(repeats)), axis)


@composite(np.roll)
def _roll(a, shift, axis=None):
    if axis is None:
        return np.reshape(np.roll(np.ravel(a), shift, 0), shape_of(a))
    shifts, axes = np.broadcast_arrays(shift, axis)
    for s, ax in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True):
        n = shape_of(a)[ax]
        s = s % n if n else 0
        before = (slice(None),) * normal_axis(ax, ndim_of(a))
        if s:
            a = np.concatenate((a[(*before, slice(n - s, None))], a[(*before, slice(n - s))]), ax)
    return np.copy(a)


@composite(np.flip)
def _flip(m, axis=None):
    axes = normal_axes(axis, ndim_of(m))
    return m[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(ndim_of(m)))]


@composite(np.fliplr)
def _fliplr(m):
    if ndim_of(m) < 2:
        raise ValueError("Input must be >= 2-d.")
    return np.flip(m, 1)


@composite(np.flipud)
def _flipud(m):
    if ndim_of(m) < 1:
        raise ValueError("Input must be >= 1-d.")
    return np.flip(m, 0)


@composite(np.rot90)
def _rot90(m, k=1, axes=(0, 1)):
    first, second = normal_axes(tuple(axes), ndim_of(m))
    k %= 4
    if k == 0:
        return m[:]
    if k == 2:
        return np.flip(m, (first, second))
    if k == 1:
        return np.swapaxes(np.flip(m, second), first, second)
    return np.flip(np.swapaxes(m, first, second), second)


@composite(np.resize)
def _resize(a, new_shape):
    shape = (new_shape,) if ndim_of(new_shape) == 0 else tuple(new_shape)
    size, n = math.prod(shape), np.size(a)
    if n == 0:
        return constant(a, np.zeros(shape, a.dtype))
    return np.reshape(np.ravel(a)[np.arange(size) % n], shape)

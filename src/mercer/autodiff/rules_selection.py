"""Rules of functions that take entries by index, or assign to them."""

import numpy as np

from mercer.autodiff.array_methods import getitem, joined, ndim_of, shape_of, write_into
from mercer.autodiff.errors import trace_error
from mercer.autodiff.rules import composite
from mercer.autodiff.rules_shape import normal_axis
from mercer.autodiff.trace import Traced, plain, stacked

# -- selection by index -----------------------------------------------------------------------------------


def _bounded(indices, n, mode):
    """Return indices within an axis, by take's modes, that the caller cannot change later."""
    indices = plain(indices)
    empty = isinstance(indices, list | tuple) and not np.size(
        indices
    )  # of no type, for NumPy of whole numbers
    indices = np.array(indices, int if empty else None)
    if mode == "wrap":
        return indices % n
    if mode == "clip":
        return np.clip(indices, 0, n - 1)
    if mode != "raise":
        raise ValueError(f"mode must be 'raise', 'wrap' or 'clip', got {mode!r}")
    return indices


@composite(np.take)
def _take(a, indices, axis=None, out=None, mode="raise"):
    if axis is None:
        a, axis = np.ravel(a), 0
    axis = normal_axis(axis, ndim_of(a))
    indices = _bounded(indices, shape_of(a)[axis], mode)
    return write_into(out, getitem(a, (*(slice(None),) * axis, indices)))


def along(shape, indices, axis):
    """Return the index that take_along_axis stands for."""
    ndim = len(shape)
    return tuple(
        indices if i == axis else np.arange(n).reshape((1,) * i + (-1,) + (1,) * (ndim - 1 - i))
        for i, n in enumerate(shape)
    )


@composite(np.take_along_axis)
def _take_along_axis(arr, indices, axis=-1):
    if axis is None:
        arr, axis, indices = np.ravel(arr), 0, np.ravel(indices)
    axis = normal_axis(axis, ndim_of(arr))
    return getitem(arr, _along_of(arr, indices, axis))


def _along_of(arr, indices, axis):
    if ndim_of(indices) != ndim_of(arr):
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    shape = shape_of(arr)
    lengths = tuple(m if m != 1 or n == 1 else 1 for m, n in zip(shape_of(indices), shape, strict=True))
    full = tuple(n if i != axis else lengths[i] for i, n in enumerate(shape))
    return along(full, np.array(plain(indices)), axis)


@composite(np.put_along_axis)
def _put_along_axis(arr, indices, values, axis):
    _target(arr, "np.put_along_axis")
    if axis is None:
        arr[np.unravel_index(np.ravel(indices), arr.shape)] = values
        return
    arr[_along_of(arr, indices, normal_axis(axis, ndim_of(arr)))] = values


@composite(np.compress)
def _compress(condition, a, axis=None, out=None):
    return np.take(a, np.flatnonzero(plain(stacked(condition))), axis, out)


@composite(np.extract)
def _extract(condition, arr):
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
def _copyto(dst, src, casting="same_kind", where=True):
    _target(dst, "np.copyto")
    if where is True:
        dst[...] = src
    else:
        where = plain(where)
        dst[...] = np.where(where, src, dst)


@composite(np.fill_diagonal)
def _fill_diagonal(a, val, wrap=False):
    _target(a, "np.fill_diagonal")
    shape = shape_of(a)
    marks = np.zeros(shape, bool)
    np.fill_diagonal(marks, True, wrap=wrap)
    index = np.nonzero(marks)
    n = len(index[0])
    a[index] = val if ndim_of(val) == 0 else np.resize(val, n)


@composite(np.put)
def _put(a, ind, v, mode="raise"):
    _target(a, "np.put")
    v = joined(v)
    ind = _bounded(ind, a.size, mode)
    n = np.size(ind)
    if n:
        a[np.unravel_index(np.ravel(ind) % a.size, a.shape)] = v if ndim_of(v) == 0 else np.resize(v, n)


@composite(np.place)
def _place(arr, mask, vals):
    _target(arr, "np.place")
    index = np.nonzero(np.reshape(plain(mask), arr.shape))
    if len(index[0]):
        arr[index] = np.resize(joined(vals), len(index[0]))


@composite(np.putmask)
def _putmask(a, mask, values):
    _target(a, "np.putmask")
    where = np.flatnonzero(plain(mask))
    if len(where):
        a[np.unravel_index(where, a.shape)] = np.take(np.resize(joined(values), a.size), where)

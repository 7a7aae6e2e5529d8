"""Rules of functions that move entries about."""

import itertools

import numpy as np

from mercer.autodiff.rules import cast, composite, define, no_derivative, unbroadcast

# What only looks at shapes or types.
no_derivative(np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj, np.result_type)

define(
    np.reshape, jvp="linear", vjp=[lambda g, ans, x, *args, **kwargs: np.reshape(g, np.shape(x))], view=True
)


@composite(np.zeros_like)
def zeros_like(a, dtype=None, order="K", subok=True, shape=None, **_):
    """Return zeros that take part in the trace, so that they can be assigned into."""
    return a.level.constant(np.zeros_like(a.value, dtype=dtype, shape=shape))


def _broadcast_vjp(g, ans, x, *args, **kwargs):
    return unbroadcast(g, x)


def _transpose_vjp(g, ans, x, axes=None):
    return np.transpose(g, None if axes is None else np.argsort(np.asarray(axes) % len(axes)))


define(np.broadcast_to, jvp="linear", vjp=[_broadcast_vjp], view=True)
define(np.transpose, jvp="linear", vjp=[_transpose_vjp], view=True)
define(np.copy, jvp="linear", vjp=[lambda g, ans, x, *args, **kwargs: g])


def _joined_jvp(tangents, ans, *arrays, axis):
    tangents = [
        np.zeros(np.shape(a), ans.dtype) if t is None else t for t, a in zip(tangents, arrays, strict=True)
    ]
    return _concatenate(*tangents, axis=axis)


def _joined_vjp(g, ans, needed, *arrays, axis):
    cuts = np.cumsum([np.shape(a)[axis] for a in arrays])[:-1]
    return [cast(part, a) for part, a in zip(np.split(g, cuts, axis), arrays, strict=True)]


_concatenate = define(
    lambda *arrays, axis: np.concatenate(arrays, axis=axis),
    name="np.concatenate",
    jvp=_joined_jvp,
    vjp=_joined_vjp,
)


@composite(np.concatenate)
def concatenate(arrays, axis=0):
    if axis is None:
        return _concatenate(*(np.ravel(a) for a in arrays), axis=0)
    return _concatenate(*arrays, axis=axis)


@composite(np.stack)
def stack(arrays, axis=0):
    return concatenate([np.expand_dims(a, axis) for a in arrays], axis)


@composite(np.expand_dims)
def expand_dims(a, axis):
    axes = axis if isinstance(axis, tuple) else (axis,)
    ndim = a.ndim + len(axes)
    axes = {ax % ndim for ax in axes}
    shape = iter(np.shape(a))
    return np.reshape(a, tuple(1 if i in axes else next(shape) for i in range(ndim)))


@composite(np.ravel)
def ravel(a, order="C"):
    return np.reshape(a, -1, order=order)


@composite(np.split)
def split(a, sections, axis=0):
    n = np.shape(a)[axis]
    if np.ndim(sections) == 0:
        if n % sections:
            raise ValueError("array split does not result in an equal division")
        sections = np.arange(1, sections) * (n // sections)
    cuts = [0, *sections, n]
    lead = (slice(None),) * (axis % np.ndim(a))
    return [a[(*lead, slice(i, j))] for i, j in itertools.pairwise(cuts)]


@composite(np.moveaxis)
def moveaxis(a, source, destination):
    order = np.moveaxis(np.empty((0,) * a.ndim).reshape([0] * a.ndim), source, destination)  # checks the axes
    del order
    source = [s % a.ndim for s in np.atleast_1d(source)]
    destination = [d % a.ndim for d in np.atleast_1d(destination)]
    rest = [i for i in range(a.ndim) if i not in source]
    for d, s in sorted(zip(destination, source, strict=True)):
        rest.insert(d, s)
    return np.transpose(a, rest)


@composite(np.swapaxes)
def swapaxes(a, axis1, axis2):
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return np.transpose(a, order)

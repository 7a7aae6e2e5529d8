"""Rules of sums, means, products and extrema.

The primitives take a tuple of axes counted from the back, so that the leading axis of a chunk of tangents
stays where it is; the functions around them read NumPy's arguments.
"""

import math

import numpy as np

from mercer.autodiff.array_methods import write_into
from mercer.autodiff.rules import Primitive, composite, no_derivative
from mercer.autodiff.rules_shape import (
    broadcast_shape, getitem, normal_axes, normal_axis, reshape_to, transpose_by,
)  # fmt: skip
from mercer.autodiff.trace import Traced, plain, stacked

_NO = np._NoValue

no_derivative(
    np.all, np.any, np.count_nonzero, np.argmax, np.argmin, np.nanargmax, np.nanargmin, np.argsort, np.lexsort,
    np.argpartition, np.searchsorted, np.digitize, np.nonzero, np.flatnonzero, np.argwhere, np.isin,
    np.array_equal, np.array_equiv, np.allclose, np.isclose,
)  # fmt: skip


def back_axes(axis, ndim):
    """Return a sorted tuple of axes counted from the back; None means all."""
    return tuple(a - ndim for a in sorted(normal_axes(axis, ndim)))


def spread(g, ans, x, axis, keepdims):
    """Return what has the shape of a reduction with the shape of what was reduced, entries repeated."""
    return broadcast_shape(kept(g, ans, x, axis, keepdims), (*np.shape(g)[: np.ndim(g) - np.ndim(ans)], *np.shape(x)))


def kept(g, ans, x, axis, keepdims=False):
    """Return what has the shape of a reduction with the reduced axes as ones."""
    if keepdims or not axis:
        return g
    lead = np.shape(g)[: np.ndim(g) - np.ndim(ans)]
    shape = [1 if i - np.ndim(x) in axis else n for i, n in enumerate(np.shape(x))]
    return reshape_to(g, (*lead, *shape))


def chosen_only(a, where, fill=0):
    """Return `a` with `fill` where a reduction leaves entries out."""
    if where is _NO or where is True:
        return a
    return np.where(plain(where), a, np.asarray(fill, a.dtype))


def flag(value, default=False):
    return default if value is _NO else bool(value)


# -- sums -----------------------------------------------------------------------------------------------

sum_of = Primitive(
    lambda x, axis, keepdims, **kwargs: np.sum(x, axis=axis, keepdims=keepdims, **kwargs),
    jvp=[lambda t, ans, x, axis, keepdims, **kwargs: sum_of(t, axis, keepdims, **kwargs)],
    vjp=[lambda g, ans, x, axis, keepdims, **kwargs: spread(g, ans, x, axis, keepdims)],
    name="np.sum",
    batched=True,
)


@composite(np.sum)
def sum(a, axis=None, dtype=None, out=None, keepdims=_NO, initial=_NO, where=_NO):
    a = chosen_only(stacked(a), where)
    kwargs = {} if dtype is None else {"dtype": dtype}
    total = sum_of(a, back_axes(axis, np.ndim(a)), flag(keepdims), **kwargs)
    if initial is not _NO:
        total = total + initial
    return write_into(out, total)


def count(a, axis, keepdims=False, where=_NO):
    """Return how many entries a reduction takes in (a number, or an array where `where` is one)."""
    if where is _NO or where is True:
        return math.prod(np.shape(a)[i] for i in normal_axes(axis, np.ndim(a)))
    return np.sum(np.broadcast_to(plain(where), np.shape(a)), axis=axis, keepdims=keepdims)


mean_of = Primitive(
    lambda x, axis, keepdims, **kwargs: np.mean(x, axis=axis, keepdims=keepdims, **kwargs),
    jvp=[lambda t, ans, x, axis, keepdims, **kwargs: mean_of(t, axis, keepdims, **kwargs)],
    vjp=[lambda g, ans, x, axis, keepdims, **kwargs: spread(g / count(x, axis), ans, x, axis, keepdims)],
    name="np.mean",
    batched=True,
)


@composite(np.mean)
def mean(a, axis=None, dtype=None, out=None, keepdims=_NO, *, where=_NO):
    a = stacked(a)
    if where is _NO or where is True:
        kwargs = {} if dtype is None else {"dtype": dtype}
        return write_into(out, mean_of(a, back_axes(axis, np.ndim(a)), flag(keepdims), **kwargs))
    total = np.sum(a, axis, dtype, None, flag(keepdims), where=where)
    return write_into(out, np.true_divide(total, count(a, axis, flag(keepdims), where)).astype(total.dtype))


@composite(np.cumsum)
def cumsum(a, axis=None, dtype=None, out=None):
    a = stacked(a)
    if axis is None:
        a, axis = np.ravel(a), 0
    kwargs = {} if dtype is None else {"dtype": dtype}
    return write_into(out, cumsum_of(a, normal_axis(axis, np.ndim(a)) - np.ndim(a), **kwargs))


def _cumsum_vjp(g, ans, x, axis, **kwargs):
    return np.flip(cumsum_of(np.flip(g, axis), axis), axis)


cumsum_of = Primitive(
    lambda x, axis, **kwargs: np.cumsum(x, axis=axis, **kwargs),
    jvp=[lambda t, ans, x, axis, **kwargs: cumsum_of(t, axis, **kwargs)],
    vjp=[_cumsum_vjp],
    name="np.cumsum",
    batched=True,
)

# -- extrema --------------------------------------------------------------------------------------------


def _shares(x, ans, axis, keepdims):
    """Return each entry's share in an extremum: ties share evenly."""
    x, top = plain(x), plain(kept(ans, ans, x, axis, keepdims))
    ties = np.equal(x, top)
    if np.isnan(top).any():
        ties |= np.isnan(x) & np.isnan(top)
    return ties / np.maximum(np.sum(ties, axis=axis, keepdims=True), 1).astype(ans.dtype)


def _extremum(fun, name):
    primitive = Primitive(
        lambda x, axis, keepdims: fun(x, axis=axis, keepdims=keepdims),
        jvp=[
            lambda t, ans, x, axis, keepdims: sum_of(t * _shares(x, ans, axis, keepdims), axis, keepdims)
        ],
        vjp=[
            lambda g, ans, x, axis, keepdims: kept(g, ans, x, axis, keepdims) * _shares(x, ans, axis, keepdims)
        ],
        name=name,
        batched=True,
    )

    def extremum(a, axis=None, out=None, keepdims=_NO, initial=_NO, where=_NO):
        a = stacked(a)
        if where is not _NO and where is not True:
            if initial is _NO:
                raise ValueError(f"{name} with where needs an initial value")
            a = np.where(plain(where), a, np.asarray(plain(initial), a.dtype))
        if initial is _NO:
            return write_into(out, primitive(a, back_axes(axis, np.ndim(a)), flag(keepdims)))
        return write_into(out, _with_initial(a, axis, keepdims, initial))

    def _with_initial(a, axis, keepdims, initial):
        """The initial value takes part as one more entry."""
        axes = normal_axes(axis, np.ndim(a))
        rest = [i for i in range(np.ndim(a)) if i not in axes]
        shape = [np.shape(a)[i] for i in rest]
        flat = reshape_to(transpose_by(a, (*rest, *axes)), (*shape, count(a, axis)))
        more = np.broadcast_to(initial, (*shape, 1))
        result = primitive(np.concatenate((flat, more), axis=-1, dtype=a.dtype), (-1,), False)
        if flag(keepdims):
            result = reshape_to(result, [1 if i in axes else n for i, n in enumerate(np.shape(a))])
        return result

    return composite(fun)(extremum)


_extremum(np.max, "np.max")
_extremum(np.min, "np.min")


@composite(np.sort)
def sort(a, axis=-1, kind=None, order=None, *, stable=None):
    """Entries keep their derivatives through the stable permutation."""
    a = stacked(a)
    if axis is None:
        a, axis = np.ravel(a), 0
    order = np.argsort(plain(a), axis=axis, kind="stable")
    return np.take_along_axis(a, order, axis)

"""The methods of ufuncs on traced values: calls with keywords, reduce, accumulate, reduceat, outer, at.

What has a NumPy function of its own (``add.reduce`` is ``sum``) takes that function's rule; a few reductions
have rules here; any other binary ufunc with a rule is applied one step after the other.
"""

import warnings

import numpy as np

from mercer.autodiff.array_methods import getitem, is_basic, put, x_like
from mercer.autodiff.errors import trace_error
from mercer.autodiff.rules import define, scale
from mercer.autodiff.trace import UFUNC_METHODS, UFUNCS, Traced, no_rule, plain, ufunc_name

#: What NumPy calls some reductions and accumulations.
REDUCTIONS = {
    np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min,
    np.logical_and: np.all, np.logical_or: np.any,
}  # fmt: skip
ACCUMULATIONS = {np.add: np.cumsum, np.multiply: np.cumprod}


def _rule(ufunc):
    if ufunc not in UFUNCS:
        raise no_rule(ufunc)
    return UFUNCS[ufunc]


def _binary(ufunc, method):
    """Raise where NumPy has no such method, or no rule is known."""
    if ufunc.nin != 2 or ufunc.nout != 1:
        raise ValueError(f"{method} only supported for binary functions")
    _rule(ufunc)


# -- calls with keywords --------------------------------------------------------------------------------


def call(
    ufunc, *inputs, out=None, where=True, dtype=None, casting="same_kind", order="K", subok=True, **kwargs
):
    """Compute ``ufunc(*inputs, out=…, where=…, dtype=…)``.

    Parameters
    ----------
    ufunc : np.ufunc
    *inputs : arrays, traced or not
    out : traced array or tuple of these, optional
        Is assigned to. A plain array may be given only for results without a derivative (comparisons,
        rounding).
    where : array of bool
        Nothing is computed elsewhere: there `out` keeps its values, and without `out` there are zeros (in
        NumPy, what was in memory).
    dtype : dtype, optional
        Of the computation.

    Raises
    ------
    TraceError
        If the result is traced and `out` a plain array.
    """
    if "signature" in kwargs or "sig" in kwargs:
        raise trace_error(ufunc_name(ufunc), "signature= is not followed", "use dtype=")
    rule = _rule(ufunc) if any(isinstance(x, Traced) for x in inputs) else ufunc
    axes, given = kwargs.pop("axes", None), inputs
    if axes is not None:
        inputs = [_last(x, at) for x, at in zip(inputs, axes, strict=False)]
    if dtype is not None:
        inputs = [_in_type(x, np.dtype(dtype), casting, ufunc) for x in inputs]
    outs = (None,) * ufunc.nout if out is None else out if isinstance(out, tuple) else (out,)
    where = plain(where)
    if where is True:
        results = rule(*inputs, **kwargs)
        results = results if isinstance(results, tuple) else (results,)
        if axes is not None and len(axes) > len(inputs):
            results = [_last(r, at, back=True) for r, at in zip(results, axes[len(inputs) :], strict=True)]
        written = [_into(o, r, casting, ufunc, given) for o, r in zip(outs, results, strict=True)]
    else:
        written = _masked(ufunc, rule, inputs, outs, np.asarray(where, bool), casting, kwargs)
    return written[0] if ufunc.nout == 1 else tuple(written)


def _last(x, axes, back=False):
    """Return an operand of a generalised ufunc with its core axes moved to the end, or back from there."""
    axes = axes if isinstance(axes, tuple) else (axes,)
    ends = tuple(range(-len(axes), 0))
    return np.moveaxis(x, ends, axes) if back else np.moveaxis(x, axes, ends)


def _in_type(x, dtype, casting, ufunc):
    """Return an input in the type of the computation, if it is an array of floating or complex numbers."""
    if not hasattr(x, "dtype") or x.dtype.kind not in "fc" or dtype.kind == "b":
        return x
    if not np.can_cast(x.dtype, dtype, casting):
        raise TypeError(
            f"Cannot cast {ufunc_name(ufunc)}'s input from {x.dtype} to {dtype} with casting rule {casting!r}"
        )
    return x.astype(dtype)


def _check_out(out, result, casting, ufunc, inputs=()):
    if isinstance(result, Traced) and not isinstance(out, Traced):
        in_place = inputs and out is inputs[0]
        raise trace_error(
            f"in-place {ufunc_name(ufunc)}" if in_place else f"{ufunc_name(ufunc)}(out=…)",
            "the result is traced and cannot be written into a plain array, the derivative would be lost",
            "write W = W - x for W -= x, or start from a traced array: np.zeros_like(x), np.array(W, like=x)"
            if in_place
            else "leave out= away, or make the array by np.zeros_like(x)",
        )
    if not np.can_cast(result.dtype, out.dtype, casting):
        raise TypeError(f"Cannot cast {ufunc_name(ufunc)}'s output from {result.dtype} to {out.dtype}")


def _into(out, result, casting="same_kind", ufunc=None, inputs=()):
    """Return a result, or `out` after assigning the result to it."""
    if out is None:
        return result
    _check_out(out, result, casting, ufunc, inputs)
    if out.shape == () and inputs and out is inputs[0]:
        return result  # x += 1 gives the name of a scalar a new value
    if np.shape(result) != out.shape:
        raise ValueError(f"{ufunc_name(ufunc)}: the result has shape {np.shape(result)}, out has {out.shape}")
    out[...] = result
    return out


def _masked(ufunc, rule, inputs, outs, mask, casting, kwargs):
    """Compute on the entries that `mask` selects, and on no others."""
    shape = np.broadcast_shapes(mask.shape, *(np.shape(x) for x in (*inputs, *outs) if x is not None))
    mask = np.broadcast_to(mask, shape)
    chosen = [x if np.ndim(x) == 0 else np.broadcast_to(x, shape)[mask] for x in inputs]
    results = rule(*chosen, **kwargs)
    written = []
    for out, result in zip(outs, results if isinstance(results, tuple) else (results,), strict=True):
        if out is None:
            warnings.warn(
                f"{ufunc_name(ufunc)}: where= without out= leaves the rest undefined; it is zero here",
                stacklevel=5,
            )
            out = np.zeros_like(result, shape=shape)
        else:
            _check_out(out, result, casting, ufunc)
        if mask.any():
            out[mask] = result
        written.append(out)
    return written


# -- reduce ---------------------------------------------------------------------------------------------


def reduce(
    ufunc, array, axis=0, dtype=None, out=None, keepdims=False, initial=np._NoValue, where=True, **kwargs
):
    """Compute ``ufunc.reduce(array, axis, …)``."""
    _binary(ufunc, "reduce")
    if not isinstance(array, Traced):
        array = np.asarray(array) if not _holds_traced(array) else np.stack(array)
    out = out[0] if isinstance(out, tuple) else out
    if axis == 0 and np.ndim(array) == 0:
        axis = None
    given = {"initial": initial} if initial is not np._NoValue else {}
    if where is not True:
        given["where"] = plain(where)
    if ufunc in REDUCTIONS:
        if dtype is not None and dtype != array.dtype:
            given["dtype"] = dtype
        return _into(out, REDUCTIONS[ufunc](array, axis=axis, keepdims=keepdims, **given), ufunc=ufunc)
    if dtype is not None:
        array = _in_type(array, np.dtype(dtype), "same_kind", ufunc)
    axes = _axes(axis, array.ndim)
    if ufunc in _SLOPES and not given and array.size:
        rows = _rows(array, axes)
        result = _sloped(rows, ufunc=ufunc, axis=-rows.ndim)
    else:
        result = _in_steps(ufunc, array, axes, **given)
    if keepdims:
        result = np.reshape(result, tuple(1 if i in axes else n for i, n in enumerate(array.shape)))
    return _into(out, result, ufunc=ufunc)


def _holds_traced(x):
    return isinstance(x, list | tuple) and any(isinstance(item, Traced) for item in x)


def _axes(axis, ndim):
    """Return the reduced axes in order, from what NumPy's `axis` means."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    for ax in axes:
        if not -ndim <= ax < ndim:
            raise np.exceptions.AxisError(ax, ndim)
    return tuple(sorted(ax % ndim for ax in axes))


def _rows(array, axes):
    """Return the array with the reduced axes joined into the first."""
    rest = [i for i in range(array.ndim) if i not in axes]
    moved = np.transpose(array, (*axes, *rest)) if array.ndim > 1 else array
    return np.reshape(moved, (int(np.prod([array.shape[i] for i in axes])), *(array.shape[i] for i in rest)))


def _in_steps(ufunc, array, axes, initial=np._NoValue, where=True):
    """Reduce one entry after the other, as NumPy does for a ufunc that is not associative."""
    rows = _rows(array, axes)
    masks = None if where is True else _rows(np.broadcast_to(np.asarray(where, bool), array.shape), axes)
    start = 0
    if initial is not np._NoValue and initial is not None:
        acc = np.broadcast_to(np.asarray(initial, array.dtype), rows.shape[1:])
    elif ufunc.identity is not None and (masks is not None or not len(rows)):
        acc = np.full(rows.shape[1:], ufunc.identity, array.dtype)
    elif masks is not None:
        raise ValueError(
            f"{ufunc_name(ufunc, 'reduce')} has no identity, so to use where= one must give initial="
        )
    elif not len(rows):
        raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
    else:
        acc, start = rows[0], 1
    for i in range(start, len(rows)):
        acc = ufunc(acc, rows[i]) if masks is None else np.where(masks[i], ufunc(acc, rows[i]), acc)
    return acc


def shares(x, axis, base=np.e):
    """The shares of entries in a sum of powers; equal infinities have equal shares."""
    top = np.max(plain(x), axis=axis, keepdims=True, initial=-np.inf)
    infinite = np.isinf(top)
    shifted = x - np.where(infinite, 0, top)
    powers = np.exp(shifted) if base == np.e else np.exp2(shifted)
    if infinite.any():
        powers = np.where(infinite, np.equal(x, top).astype(top.dtype), powers)
    return powers / np.sum(powers, axis=axis, keepdims=True)


def _of_length(x, ans, axis):
    return np.where(np.equal(ans, 0), 0, x / ans)


def _ties(x, ans, axis):
    """Equal shares for the entries that are the extremum (or NaN, if that is NaN)."""
    x, ans = plain(x), plain(ans)
    same = np.equal(x, ans) | (np.isnan(ans) & np.isnan(x))
    return same.astype(x.dtype) / np.sum(same, axis=axis, keepdims=True).astype(x.dtype)


#: ufunc -> (x, its reduction, axes) -> the derivative of that in each entry
_SLOPES = {
    np.logaddexp: lambda x, ans, axis: shares(x, axis),
    np.logaddexp2: lambda x, ans, axis: shares(x, axis, 2),
    np.hypot: _of_length,
    np.fmax: _ties,
    np.fmin: _ties,
}


def _sloped_jvp(t, ans, x, *, ufunc, axis):
    return np.sum(scale(t, _SLOPES[ufunc](x, np.expand_dims(ans, axis), axis)), axis=axis)


def _sloped_vjp(g, ans, x, *, ufunc, axis):
    return scale(np.expand_dims(g, axis), _SLOPES[ufunc](x, np.expand_dims(ans, axis), axis))


_sloped = define(
    lambda x, *, ufunc, axis: ufunc.reduce(x, axis=axis),
    name="ufunc.reduce",
    jvp=[_sloped_jvp],
    vjp=[_sloped_vjp],
    batched=True,
)


# -- accumulate, reduceat, outer, at --------------------------------------------------------------------


def accumulate(ufunc, array, axis=0, dtype=None, out=None):
    """Compute ``ufunc.accumulate(array, axis, …)``."""
    _binary(ufunc, "accumulate")
    out = out[0] if isinstance(out, tuple) else out
    if array.ndim == 0:
        raise TypeError("cannot accumulate on a scalar")
    if dtype is not None:
        array = _in_type(array, np.dtype(dtype), "same_kind", ufunc)
    if ufunc in ACCUMULATIONS:
        return _into(out, ACCUMULATIONS[ufunc](array, axis=axis), ufunc=ufunc)
    (axis,) = _axes(axis, array.ndim)
    if not array.size:
        return _into(out, np.copy(array), ufunc=ufunc)
    rows = np.moveaxis(array, axis, -1)
    if ufunc in (np.maximum, np.minimum):
        result = _running(rows, ufunc=ufunc)
    else:
        steps = [rows[..., 0]]
        for i in range(1, rows.shape[-1]):
            steps.append(ufunc(steps[-1], rows[..., i]))
        result = np.stack(steps, axis=-1)
    return _into(out, np.moveaxis(result, -1, axis), ufunc=ufunc)


def _running_jvp(t, ans, x, *, ufunc):
    """The tangent of a running extremum: the mean over the entries that are equal to it so far."""
    x, ans = plain(x), plain(ans)
    same = np.equal(x, ans) | (np.isnan(x) & np.isnan(ans))
    new = np.ones(ans.shape, bool)
    new[..., 1:] = np.not_equal(ans[..., 1:], ans[..., :-1])
    if (same == new).all():  # no ties
        start = np.maximum.accumulate(np.where(new, np.arange(x.shape[-1]), 0), axis=-1)
        return np.take_along_axis(t, start, -1)
    count = np.zeros(ans.shape[:-1])
    total, steps = np.zeros_like(t[..., 0]), []
    for i in range(x.shape[-1]):
        total = np.where(new[..., i], t[..., i], np.where(same[..., i], total + t[..., i], total))
        count = np.where(new[..., i], 1, count + same[..., i])
        steps.append(total / count.astype(ans.dtype))
    return np.stack(steps, axis=-1)


_running = define(
    lambda x, *, ufunc: ufunc.accumulate(x, axis=-1), name="ufunc.accumulate", jvp=[_running_jvp]
)


def reduceat(ufunc, array, indices, axis=0, dtype=None, out=None):
    """Compute ``ufunc.reduceat(array, indices, axis, …)``: the reductions of slices."""
    _binary(ufunc, "reduceat")
    out = out[0] if isinstance(out, tuple) else out
    if dtype is not None:
        array = _in_type(array, np.dtype(dtype), "same_kind", ufunc)
    (axis,) = _axes(axis, array.ndim)
    indices, n = np.array(plain(indices)), array.shape[axis]
    for k, i in enumerate(indices):
        if not 0 <= i < n:
            raise IndexError(
                f"index {i} at {k} is out of bounds for {ufunc_name(ufunc, 'reduceat')} [0, {n})"
            )
    if ufunc is np.add:
        return _into(out, _sums(array, indices=indices, axis=axis - array.ndim), ufunc=ufunc)
    rows = np.moveaxis(array, axis, 0)
    parts = [
        reduce(ufunc, rows[i:j]) if i + 1 < j else rows[i]
        for i, j in zip(indices, [*indices[1:], n], strict=True)
    ]
    result = np.stack(parts) if parts else rows[:0]
    return _into(out, np.moveaxis(result, 0, axis), ufunc=ufunc)


def _members(indices, n):
    """Return the entries of each slice of reduceat, and the number of its slice, one after the other."""
    ends = np.append(indices[1:], n)
    lengths = np.maximum(ends - indices, 1)
    slices = np.repeat(np.arange(len(indices)), lengths)
    first = np.cumsum(lengths) - lengths
    return indices[slices] + np.arange(len(slices)) - first[slices], slices


def _sums_vjp(g, ans, x, *, indices, axis):
    entries, slices = _members(indices, x.shape[axis])
    rest = (slice(None),) * (-axis - 1)
    return put(getitem(g, (..., slices, *rest)), x_like(x), (..., entries, *rest))


_sums = define(
    lambda x, *, indices, axis: np.add.reduceat(x, indices, axis=axis),
    name="np.add.reduceat",
    jvp=[lambda t, ans, x, *, indices, axis: _sums(t, indices=indices, axis=axis)],
    vjp=[_sums_vjp],
)


def outer(ufunc, a, b, **kwargs):
    """Compute ``ufunc.outer(a, b)``: the ufunc on every pair of entries."""
    if ufunc.nin != 2:
        raise ValueError("outer product only supported for binary functions")
    return ufunc(np.reshape(a, np.shape(a) + (1,) * np.ndim(b)), b, **kwargs)


def at(ufunc, a, indices, *b):
    """Compute ``ufunc.at(a, indices, b)``: in place, an entry that is named twice is changed twice."""
    _rule(ufunc)
    if not isinstance(a, Traced):
        raise trace_error(
            ufunc_name(ufunc, "at"),
            "a traced value cannot be written into a plain array, the derivative would be lost",
            "make the array by np.zeros_like(x)",
        )
    positions = np.arange(a.size).reshape(a.shape)[indices]
    b = [np.broadcast_to(x, np.shape(positions)) for x in b]
    turns = _turns(np.ravel(positions))
    if is_basic(indices) or not turns.any():
        a[indices] = ufunc(a[indices], *b)
        return
    flat, positions, b = np.copy(np.reshape(a, -1)), np.ravel(positions), [np.ravel(x) for x in b]
    if ufunc in (np.add, np.subtract):
        flat = ufunc(flat, put(b[0] * np.ones((), flat.dtype), x_like(flat), positions))
    else:
        for turn in range(turns.max() + 1):
            now = turns == turn
            flat[positions[now]] = ufunc(flat[positions[now]], *(x[now] for x in b))
    a[...] = np.reshape(flat, a.shape)


def _turns(positions):
    """Return how often each entry has been named before."""
    order = np.argsort(positions, kind="stable")
    ranked = positions[order]
    first = np.searchsorted(ranked, ranked)
    turns = np.empty(len(positions), int)
    turns[order] = np.arange(len(positions)) - first
    return turns


UFUNC_METHODS.update(
    __call__=call, reduce=reduce, accumulate=accumulate, reduceat=reduceat, outer=outer, at=at
)

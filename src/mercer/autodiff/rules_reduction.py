"""Rules of sums, means, products and extrema.

The primitives take a tuple of axes counted from the back, so that the leading axis of a chunk of tangents
stays where it is; the functions around them read NumPy's arguments.
"""

import math
import warnings

import numpy as np

from mercer.autodiff.array_methods import ndim_of, shape_of, write_into
from mercer.autodiff.rules import Primitive, cast, composite, no_derivative
from mercer.autodiff.rules_shape import broadcast_shape, normal_axes, normal_axis, reshape_to, transpose_by
from mercer.autodiff.trace import Traced, apply_linear, full, plain, stacked

_NO = np._NoValue
_ALL_AXES = [tuple(range(-n, 0)) for n in range(65)]

no_derivative(
    np.all, np.any, np.count_nonzero, np.argmax, np.argmin, np.nanargmax, np.nanargmin, np.argsort,
    np.lexsort, np.argpartition, np.searchsorted, np.digitize, np.nonzero, np.flatnonzero, np.argwhere,
    np.isin,
    np.array_equal, np.array_equiv, np.allclose, np.isclose,
)  # fmt: skip


def back_axes(axis, ndim):
    """Return a sorted tuple of axes counted from the back; None means all."""
    if axis is None:
        return tuple(range(-ndim, 0))
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis - ndim if axis >= 0 else axis,)
    return tuple(a - ndim for a in sorted(normal_axes(axis, ndim)))


def spread(g, ans, x, axis, keepdims):
    """Return what has the shape of a reduction with the shape of what was reduced, entries repeated."""
    if type(g) is np.float64 and x.dtype == np.float64:
        return full(g, x.shape)
    if not isinstance(g, Traced):  # memory of its own: it may become a gradient
        g = np.asarray(g)
        out = np.empty((*g.shape[: g.ndim - ndim_of(ans)], *shape_of(x)), g.dtype)
        out[...] = kept(g, ans, x, axis, keepdims)
        return out
    return broadcast_shape(
        kept(g, ans, x, axis, keepdims), (*shape_of(g)[: ndim_of(g) - ndim_of(ans)], *shape_of(x))
    )


def kept(g, ans, x, axis, keepdims=False):
    """Return what has the shape of a reduction with the reduced axes as ones."""
    if keepdims or not axis:
        return g
    lead = shape_of(g)[: ndim_of(g) - ndim_of(ans)]
    shape = [1 if i - ndim_of(x) in axis else n for i, n in enumerate(shape_of(x))]
    if isinstance(g, np.ndarray):
        return g.reshape(*lead, *shape)
    return reshape_to(g, (*lead, *shape))


def chosen_only(a, where, fill=0):
    """Return `a` with `fill` where a reduction leaves entries out."""
    if where is _NO or where is True:
        return a
    return np.where(plain(where), a, np.asarray(fill, a.dtype))


def flag(value, default=False):
    """Return a flag that NumPy may leave unset."""
    return default if value is _NO else bool(value)


# -- sums -----------------------------------------------------------------------------------------------

_add_up = np.add.reduce

sum_of = Primitive(
    lambda x, axis, keepdims, dtype=None: _add_up(x, axis, dtype, None, keepdims),
    jvp=[lambda t, ans, x, axis, keepdims, **kwargs: sum_of(t, axis, keepdims, **kwargs)],
    vjp=[lambda g, ans, x, axis, keepdims, **kwargs: spread(g, ans, x, axis, keepdims)],
    name="np.sum",
    batched=True,
    linear=True,
)


@composite(np.sum)
def _sum(a, axis=None, dtype=None, out=None, keepdims=_NO, initial=_NO, where=_NO):
    if dtype is out is None and initial is where is _NO and isinstance(a, Traced):
        axes = _ALL_AXES[a.ndim] if axis is None else back_axes(axis, a.ndim)
        return apply_linear(sum_of, a, (axes, flag(keepdims)), {})
    a = chosen_only(stacked(a), where)
    kwargs = {} if dtype is None else {"dtype": dtype}
    total = sum_of(a, back_axes(axis, ndim_of(a)), flag(keepdims), **kwargs)
    if initial is not _NO:
        total = total + initial
    return write_into(out, total)


def count(a, axis, keepdims=False, where=_NO):
    """Return how many entries a reduction takes in (a number, or an array where `where` is one)."""
    if where is _NO or where is True:
        return math.prod(shape_of(a)[i] for i in normal_axes(axis, ndim_of(a)))
    return np.sum(np.broadcast_to(plain(where), shape_of(a)), axis=axis, keepdims=keepdims)


mean_of = Primitive(
    lambda x, axis, keepdims, **kwargs: np.mean(x, axis=axis, keepdims=keepdims, **kwargs),
    jvp=[lambda t, ans, x, axis, keepdims, **kwargs: mean_of(t, axis, keepdims, **kwargs)],
    vjp=[lambda g, ans, x, axis, keepdims, **kwargs: spread(g / count(x, axis), ans, x, axis, keepdims)],
    name="np.mean",
    batched=True,
)


@composite(np.mean)
def _mean(a, axis=None, dtype=None, out=None, keepdims=_NO, *, where=_NO):
    a = stacked(a)
    if where is _NO or where is True:
        kwargs = {} if dtype is None else {"dtype": dtype}
        return write_into(out, mean_of(a, back_axes(axis, ndim_of(a)), flag(keepdims), **kwargs))
    total = np.sum(a, axis, dtype, None, flag(keepdims), where=where)
    return write_into(out, np.true_divide(total, count(a, axis, flag(keepdims), where)).astype(total.dtype))


@composite(np.cumsum)
def _cumsum(a, axis=None, dtype=None, out=None):
    a = stacked(a)
    if axis is None:
        a, axis = np.ravel(a), 0
    kwargs = {} if dtype is None else {"dtype": dtype}
    return write_into(out, cumsum_of(a, normal_axis(axis, ndim_of(a)) - ndim_of(a), **kwargs))


def _cumsum_vjp(g, ans, x, axis, **kwargs):
    return np.flip(cumsum_of(np.flip(g, axis), axis), axis)


cumsum_of = Primitive(
    lambda x, axis, **kwargs: np.cumsum(x, axis=axis, **kwargs),
    jvp=[lambda t, ans, x, axis, **kwargs: cumsum_of(t, axis, **kwargs)],
    vjp=[_cumsum_vjp],
    name="np.cumsum",
    batched=True,
)


def _with_one(running, axis, initial):
    """Put an initial value (0 of a sum, 1 of a product) in front of a running sum or product."""
    shape = list(shape_of(running))
    shape[axis] = 1
    return np.concatenate((np.full(shape, initial, running.dtype), running), axis)


def _running(fun, initial):
    def cumulative(x, /, *, axis=None, dtype=None, out=None, include_initial=False):
        x = np.atleast_1d(stacked(x))
        if axis is None:
            if ndim_of(x) != 1:
                raise ValueError(
                    "For arrays which have more than one dimension ``axis`` argument is required."
                )
            axis = 0
        running = fun(x, axis=axis, dtype=dtype)
        return write_into(out, _with_one(running, axis, initial) if include_initial else running)

    return cumulative


composite(np.cumulative_sum)(_running(np.cumsum, 0))
composite(np.cumulative_prod)(_running(np.cumprod, 1))

# -- products -------------------------------------------------------------------------------------------


def _well_scaled(ans):
    """Whether no product is zero, infinite or has lost digits, so that one may divide by a factor."""
    value = np.abs(plain(ans))
    info = np.finfo(value.dtype)
    return bool(np.all((value > info.tiny / info.eps) & (value < info.max)))


def _others(x, ans):
    """Return the product of all other entries along the last axis: ∂ prod / ∂x_i, exact at zeros."""
    if _well_scaled(ans):
        return np.expand_dims(ans, -1) / x
    if shape_of(x)[-1] == 0:
        return x
    before = _with_one(cumprod_of(x[..., :-1]), -1, 1)
    after = _with_one(cumprod_of(np.flip(x, -1)[..., :-1]), -1, 1)
    return before * np.flip(after, -1)


prod_of = Primitive(
    lambda x, **kwargs: np.prod(x, axis=-1, **kwargs),
    jvp=[lambda t, ans, x, **kwargs: sum_of(t * _others(x, ans), (-1,), False)],
    vjp=[lambda g, ans, x, **kwargs: cast(np.expand_dims(g, -1) * np.conj(_others(x, ans)), x)],
    name="np.prod",
    batched=True,
)


def flat_axes(a, axis):
    """Return `a` with the axes of a reduction as one, the last, and the shape of a result that keeps them."""
    axes = normal_axes(axis, ndim_of(a))
    rest = tuple(i for i in range(ndim_of(a)) if i not in axes)
    shape = tuple(shape_of(a)[i] for i in rest)
    if axes != (ndim_of(a) - 1,):
        a = reshape_to(transpose_by(a, (*rest, *axes)), (*shape, count(a, axes)))
    unreduced = iter(shape)
    return a, tuple(1 if i in axes else next(unreduced) for i in range(len(axes) + len(rest)))


@composite(np.prod)
def _prod(a, axis=None, dtype=None, out=None, keepdims=_NO, initial=_NO, where=_NO):
    a, shape = flat_axes(chosen_only(stacked(a), where, 1), axis)
    total = prod_of(a, **({} if dtype is None else {"dtype": dtype}))
    if flag(keepdims):
        total = reshape_to(total, shape)
    return write_into(out, total if initial is _NO else total * initial)


def _recurrence(factor, term):
    """Return y with y_k = factor_k y_{k−1} + term_k along the last axis, by doubling: exact at zeros."""
    n, reach = shape_of(factor)[-1], 1
    while reach < n:
        term = np.concatenate(
            (term[..., :reach], term[..., reach:] + factor[..., reach:] * term[..., :-reach]), -1
        )
        reach *= 2
        if reach < n:
            half = reach // 2
            factor = np.concatenate((factor[..., :half], factor[..., half:] * factor[..., :-half]), -1)
    return term


def _cumprod_jvp(t, ans, x, **kwargs):
    # d y_k = x_k d y_{k−1} + y_{k−1} d x_k
    if _well_scaled(ans):
        return ans * cumsum_of(t / x, -1)
    if shape_of(x)[-1] == 0:
        return t
    return _recurrence(x, t * _with_one(ans[..., :-1], -1, 1))


def _cumprod_vjp(g, ans, x, **kwargs):
    # h_k = g_k + conj(x_{k+1}) h_{k+1}, and the cotangent of x_k is conj(y_{k−1}) h_k.
    if _well_scaled(ans):
        return cast(np.flip(cumsum_of(np.flip(np.conj(ans) * g, -1), -1), -1) / np.conj(x), x)
    if shape_of(x)[-1] == 0:
        return g
    factor = np.flip(_with_one(np.flip(x[..., 1:], -1), -1, 1), -1)
    h = np.flip(_recurrence(np.conj(np.flip(factor, -1)), np.flip(g, -1)), -1)
    return cast(h * np.conj(_with_one(ans[..., :-1], -1, 1)), x)


cumprod_of = Primitive(
    lambda x, **kwargs: np.cumprod(x, axis=-1, **kwargs),
    jvp=[_cumprod_jvp],
    vjp=[_cumprod_vjp],
    name="np.cumprod",
    batched=True,
)


@composite(np.cumprod)
def _cumprod(a, axis=None, dtype=None, out=None):
    a = stacked(a)
    if axis is None:
        a, axis = np.ravel(a), 0
    kwargs = {} if dtype is None else {"dtype": dtype}
    axis = normal_axis(axis, ndim_of(a))
    if axis == ndim_of(a) - 1:
        return write_into(out, cumprod_of(a, **kwargs))
    return write_into(out, np.swapaxes(cumprod_of(np.swapaxes(a, axis, -1), **kwargs), axis, -1))


# -- extrema --------------------------------------------------------------------------------------------


def _shares(x, ans, axis, keepdims):
    """Return each entry's share in an extremum: ties share evenly."""
    x, top = plain(x), plain(kept(ans, ans, x, axis, keepdims))
    ties = np.equal(x, top)
    if np.isnan(top).any():
        ties |= np.isnan(x) & np.isnan(top)
    count = np.count_nonzero(ties, axis=axis, keepdims=True)
    return ties.astype(ans.dtype) if np.all(count == 1) else ties / np.maximum(count, 1).astype(ans.dtype)


def _extremum(fun, name):
    primitive = Primitive(
        lambda x, axis, keepdims: fun(x, axis=axis, keepdims=keepdims),
        jvp=[lambda t, ans, x, axis, keepdims: sum_of(t * _shares(x, ans, axis, keepdims), axis, keepdims)],
        vjp=[
            lambda g, ans, x, axis, keepdims: (
                kept(g, ans, x, axis, keepdims) * _shares(x, ans, axis, keepdims)
            )
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
            return write_into(out, primitive(a, back_axes(axis, ndim_of(a)), flag(keepdims)))
        return write_into(out, _with_initial(a, axis, keepdims, initial))

    def _with_initial(a, axis, keepdims, initial):
        """The initial value takes part as one more entry."""
        flat, shape = flat_axes(a, axis)
        more = np.broadcast_to(initial, (*shape_of(flat)[:-1], 1))
        result = primitive(np.concatenate((flat, more), axis=-1, dtype=a.dtype), (-1,), False)
        return reshape_to(result, shape) if flag(keepdims) else result

    return extremum


composite(np.max, np.amax)(_extremum(np.max, "np.max"))
composite(np.min, np.amin)(_extremum(np.min, "np.min"))


@composite(np.ptp)
def _ptp(a, axis=None, out=None, keepdims=_NO):
    a = stacked(a)
    keepdims = flag(keepdims)
    return write_into(out, np.max(a, axis, keepdims=keepdims) - np.min(a, axis, keepdims=keepdims))


# -- where NaN counts as missing --------------------------------------------------------------------------


def without_nan(a, fill):
    """Return `a` with NaN replaced, and a mask of where it was."""
    a = stacked(a)
    missing = np.isnan(plain(a))
    return (np.where(missing, np.asarray(fill, a.dtype), a) if missing.any() else a), missing


@composite(np.nansum)
def _nansum(a, axis=None, dtype=None, out=None, keepdims=_NO, initial=_NO, where=_NO):
    return np.sum(without_nan(a, 0)[0], axis, dtype, out, keepdims, initial, where)


@composite(np.nanprod)
def _nanprod(a, axis=None, dtype=None, out=None, keepdims=_NO, initial=_NO, where=_NO):
    return np.prod(without_nan(a, 1)[0], axis, dtype, out, keepdims, initial, where)


@composite(np.nancumsum)
def _nancumsum(a, axis=None, dtype=None, out=None):
    return np.cumsum(without_nan(a, 0)[0], axis, dtype, out)


@composite(np.nancumprod)
def _nancumprod(a, axis=None, dtype=None, out=None):
    return np.cumprod(without_nan(a, 1)[0], axis, dtype, out)


@composite(np.nanmean)
def _nanmean(a, axis=None, dtype=None, out=None, keepdims=_NO, *, where=_NO):
    filled, missing = without_nan(a, 0)
    keep = ~missing if where is _NO or where is True else ~missing & plain(where)
    return np.mean(filled, axis, dtype, out, keepdims, where=keep)


def _nan_extremum(fun, name, fill):
    def extremum(a, axis=None, out=None, keepdims=_NO, initial=_NO, where=_NO):
        filled, missing = without_nan(a, fill)
        chosen = {} if initial is _NO else {"initial": initial}
        if where is not _NO and where is not True:
            chosen["where"] = where
        result = fun(filled, axis, None, flag(keepdims), **chosen)
        if not chosen:
            empty = np.all(missing, axis=axis, keepdims=flag(keepdims))
            if np.any(empty):
                warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=4)
                result = np.where(empty, np.asarray(np.nan, result.dtype), result)
        return write_into(out, result)

    extremum.__name__ = name
    return extremum


composite(np.nanmax)(_nan_extremum(np.max, "nanmax", -np.inf))
composite(np.nanmin)(_nan_extremum(np.min, "nanmin", np.inf))

"""Rules of variances and what is like them, and of functions that sort."""

import functools

import numpy as np

from mercer.autodiff.array_methods import ndim_of, shape_of, write_into
from mercer.autodiff.errors import trace_error
from mercer.autodiff.rules import Primitive, cast, composite
from mercer.autodiff.rules_reduction import (
    back_axes,
    count,
    flag,
    flat_axes,
    kept,
    mean_of,
    sum_of,
    without_nan,
)  # fmt: skip
from mercer.autodiff.rules_shape import normal_axes, reshape_to
from mercer.autodiff.trace import Traced, np_like, plain, stacked

_NO = np._NoValue

# -- variances ------------------------------------------------------------------------------------------


def _deviations(x, axis):
    """Return x minus its mean, and where all entries are equal, which makes the deviations exactly 0."""
    d = x - mean_of(x, axis, True)
    value = plain(x)
    if not value.size or value.dtype.kind != "f":
        return d, np.equal(plain(d), 0).all(axis=axis, keepdims=True)
    level = np.equal(np.max(value, axis=axis, keepdims=True), np.min(value, axis=axis, keepdims=True))
    if level.any():  # the mean of equal entries may be rounded
        d = d - np.where(level, plain(d), np.zeros((), d.dtype))
    return d, level


def _inner(d, t):
    """Re(conj(d) t), entry by entry."""
    return np.real(np.conj(d) * t) if d.dtype.kind == "c" else d * t


def _freedom(x, axis, ddof):
    """Return n − ddof; NaN where that is not positive, since such a variance has no derivative."""
    n = count(x, axis) - ddof
    return n if n > 0 else np.nan


def _var_jvp(t, ans, x, axis, keepdims, ddof):
    n = _freedom(x, axis, ddof)
    return sum_of(_inner(_deviations(x, axis)[0], t), axis, keepdims) * (2 / n)


def _var_vjp(g, ans, x, axis, keepdims, ddof):
    n = _freedom(x, axis, ddof)
    return cast(kept(g, ans, x, axis, keepdims) * (2 / n) * _deviations(x, axis)[0], x)


var_of = Primitive(
    lambda x, axis, keepdims, ddof: np.var(x, axis=axis, keepdims=keepdims, ddof=ddof),
    jvp=[_var_jvp],
    vjp=[_var_vjp],
    name="np.var",
    batched=True,
)


def _std_slope(x, ans, axis, keepdims, ddof):
    """∂ std / ∂x = (x − mean) / ((n − ddof) std), which is 0 where all entries are equal."""
    d, level = _deviations(x, axis)
    scaled = kept(ans, ans, x, axis, keepdims) * _freedom(x, axis, ddof)
    if not level.any():
        return d / scaled
    return np.where(level, np.zeros((), d.dtype), d / np.where(level, np.ones((), scaled.dtype), scaled))


def _std_jvp(t, ans, x, axis, keepdims, ddof):
    return sum_of(_inner(_std_slope(x, ans, axis, keepdims, ddof), t), axis, keepdims)


def _std_vjp(g, ans, x, axis, keepdims, ddof):
    return cast(kept(g, ans, x, axis, keepdims) * _std_slope(x, ans, axis, keepdims, ddof), x)


std_of = Primitive(
    lambda x, axis, keepdims, ddof: np.std(x, axis=axis, keepdims=keepdims, ddof=ddof),
    jvp=[_std_jvp],
    vjp=[_std_vjp],
    name="np.std",
    batched=True,
)


def _root(v):
    """The square root with derivative 0 at 0."""
    zero = np.equal(plain(v), 0)
    if not zero.any():
        return np.sqrt(v)
    return np.where(zero, np.zeros((), v.dtype), np.sqrt(np.where(zero, np.ones((), v.dtype), v)))


def _without_rounding(d, value, axis, where):
    """Return deviations from the mean, exactly 0 where the entries that count are equal."""
    if value.dtype.kind != "f":
        return d
    low = np.min(value, axis=axis, keepdims=True, where=plain(where), initial=np.inf)
    high = np.max(value, axis=axis, keepdims=True, where=plain(where), initial=-np.inf)
    level = np.equal(low, high)
    return d - np.where(level, plain(d), np.zeros((), d.dtype)) if level.any() else d


def _spread_of(primitive, finish):
    def f(a, axis=None, dtype=None, out=None, ddof=0, keepdims=_NO, *, where=_NO, mean=_NO, correction=_NO):
        a = stacked(a)
        if correction is not _NO:
            if ddof != 0:
                raise ValueError("ddof and correction can't be provided simultaneously.")
            ddof = correction
        if dtype is not None:
            a = a.astype(dtype)
        plainly = (where is _NO or where is True) and mean is _NO
        if plainly:
            return write_into(out, primitive(a, back_axes(axis, ndim_of(a)), flag(keepdims), ddof))
        if mean is _NO:
            mean = np.mean(a, axis, keepdims=True, where=where)
            d = _without_rounding(a - mean, plain(a), axis, where)
        else:
            d = a - mean
        square = np.sum(_inner(d, d), axis, keepdims=flag(keepdims), where=where)
        n = np.maximum(count(a, axis, flag(keepdims), where) - ddof, 0)
        return write_into(out, finish(np.true_divide(square, n).astype(square.dtype)))

    return f


composite(np.var)(_spread_of(var_of, lambda v: v))
composite(np.std)(_spread_of(std_of, _root))


def _nan_spread(fun):
    def f(a, axis=None, dtype=None, out=None, ddof=0, keepdims=_NO, *, where=_NO, mean=_NO, correction=_NO):
        filled, missing = without_nan(a, 0)
        keep = ~missing if where is _NO or where is True else ~missing & plain(where)
        if keep.all():
            keep = _NO
        return fun(
            filled, axis, dtype, out, ddof, flag(keepdims), where=keep, mean=mean, correction=correction
        )

    return f


composite(np.nanvar)(_nan_spread(np.var))
composite(np.nanstd)(_nan_spread(np.std))


@composite(np.average)
def _average(a, axis=None, weights=None, returned=False, *, keepdims=_NO):
    a, keepdims = stacked(a), flag(keepdims)
    if weights is None:
        average = np.mean(a, axis, keepdims=keepdims)
        total = np.full(shape_of(average), float(count(a, axis)))
    else:
        weights = _weights_of(stacked(weights), a, axis)
        dtype = np.result_type(np_like(a).dtype, np_like(weights).dtype)
        total = np.sum(weights, axis, dtype=dtype, keepdims=keepdims)
        if np.any(np.equal(plain(total), 0.0)):
            raise ZeroDivisionError("Weights sum to zero, can't be normalized")
        average = np.sum(np.multiply(a, weights), axis, keepdims=keepdims) / total
    return (average, np.broadcast_to(total, shape_of(average))) if returned else average


def _weights_of(weights, a, axis):
    """Return weights with the axes of what they weigh."""
    if shape_of(weights) == shape_of(a):
        return weights
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    axes = normal_axes(axis, ndim_of(a))
    if shape_of(weights) != tuple(shape_of(a)[i] for i in axes):
        raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
    weights = np.transpose(weights, np.argsort(axes))
    return reshape_to(weights, tuple(n if i in axes else 1 for i, n in enumerate(shape_of(a))))


@composite(np.cov)
def _cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, *, dtype=None):
    X = _variables(m, rowvar)
    if y is not None:
        X = np.concatenate((X, _variables(y, rowvar)), 0)
    dtype = np.result_type(X.dtype, np.float64) if dtype is None else np.dtype(dtype)
    X = X if X.dtype == dtype else X.astype(dtype)
    ddof = (0 if bias else 1) if ddof is None else ddof
    w = None if fweights is None else np.asarray(plain(fweights), float)
    if aweights is not None:
        aweights = stacked(aweights)
        w = aweights if w is None else w * aweights
    if w is None:
        X, fact, weighted = X - np.mean(X, 1, keepdims=True), shape_of(X)[1] - ddof, None
    else:
        total = np.sum(w)
        X = X - (np.sum(X * w, 1) / total)[:, None]
        fact = total - ddof * (1 if aweights is None else np.sum(w * aweights) / total)
        weighted = w
    right = X if weighted is None else X * weighted
    return np.squeeze(np.matmul(X, np.conj(np.transpose(right))) * np.true_divide(1, fact))  # as NumPy does


def _variables(m, rowvar):
    m = np.atleast_2d(stacked(m))
    return np.transpose(m) if not rowvar and shape_of(m)[0] != 1 else m


@composite(np.corrcoef)
def _corrcoef(x, y=None, rowvar=True, *, dtype=None):
    c = np.cov(x, y, rowvar, dtype=dtype)
    if ndim_of(c) == 0:
        return c / c
    std = np.sqrt(np.real(np.diag(c)))
    c = c / std[:, None] / std[None, :]
    if c.dtype.kind == "c":
        return c
    # Rounding beyond ±1 is cut off in the value, not in the derivative.
    over = np.abs(plain(c)) > 1
    return c + np.where(over, np.sign(plain(c)) - plain(c), np.zeros((), c.dtype)) if over.any() else c


# -- what sorts -------------------------------------------------------------------------------------------


@composite(np.sort)
def _sort(a, axis=-1, kind=None, order=None, *, stable=None):
    """Entries keep their derivatives through the stable permutation."""
    a = stacked(a)
    if axis is None:
        a, axis = np.ravel(a), 0
    return np.take_along_axis(a, stable_order(plain(a), axis), axis)


def stable_order(value, axis):
    """Return the stable order of entries; faster sorts find the same where none are equal."""
    if value.size < 64:
        return np.argsort(value, axis=axis, kind="stable")
    order = np.argsort(value, axis=axis)
    ranked = np.moveaxis(np.take_along_axis(value, order, axis), axis, -1)
    if np.all(ranked[..., 1:] > ranked[..., :-1]):
        return order
    return np.argsort(value, axis=axis, kind="stable")


@composite(np.sort_complex)
def _sort_complex(a):
    a = np.sort(a, -1)
    return a if a.dtype.kind == "c" else a.astype(np.clongdouble if a.dtype == np.longdouble else complex)


@composite(np.partition)
def _partition(a, kth, axis=-1, kind="introselect", order=None):
    a = stacked(a)
    if axis is None:
        a, axis = np.ravel(a), 0
    return np.take_along_axis(a, np.argpartition(plain(a), kth, axis=axis), axis)


def _ranked(x, axis, skip_nan=False):
    """Return x sorted along one last axis, the shape that keeps axes, and whether NaN spoils a result."""
    x, shape = flat_axes(stacked(x), axis)
    value = plain(x)
    spoiled = np.isnan(value).any(axis=-1) & (not skip_nan)
    return np.sort(x, -1), shape, spoiled


def _finished(result, shape, spoiled, keepdims, out, lead=()):
    if np.any(spoiled):
        result = np.where(spoiled, np.asarray(np.nan, result.dtype), result)
    return write_into(out, reshape_to(result, (*lead, *shape)) if keepdims else result)


@composite(np.median)
def _median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    x, shape, spoiled = _ranked(a, axis)
    n = shape_of(x)[-1]
    middle = x[..., n // 2] if n % 2 else np.mean(x[..., n // 2 - 1 : n // 2 + 1], -1)
    return _finished(middle, shape, spoiled, keepdims, out)


def _ranks(n, q, method, weights=None, rows=()):
    """Return where quantiles are among n sorted entries: NumPy's own quantiles of the ranks 0, …, n − 1."""
    ranks = np.broadcast_to(np.arange(float(n)), (*rows, n))
    return np.quantile(ranks, q, axis=-1, method=method, **({} if weights is None else {"weights": weights}))


def _at_ranks(x, at, dtype):
    """Return sorted entries (last axis) at fractional ranks of shape (*q, *rows), linearly between."""
    low = np.clip(np.floor(at), 0, shape_of(x)[-1] - 1).astype(int)
    rest = (at - low).astype(dtype)
    rows = np.indices(low.shape)[low.ndim - (ndim_of(x) - 1) :] if ndim_of(x) > 1 else ()
    first = x[(*rows, low)]
    if not np.any(rest):
        return first if first.dtype == dtype else first.astype(dtype)
    second = x[(*rows, np.minimum(low + 1, shape_of(x)[-1] - 1))]
    between = np.where(rest > 0, second - first, np.zeros((), x.dtype))
    return (
        first + rest * between
        if np.all(rest < 0.5)
        else np.where(rest < 0.5, first + rest * between, second - (1 - rest) * between)
    )


def _quantile_of(fun, x, q, axis, out, method, keepdims, weights):
    if isinstance(q, Traced) or isinstance(weights, Traced):
        raise trace_error(
            "np.quantile", "q and weights cannot be differentiated", "pass plain values, or use np.interp"
        )
    a = stacked(x)
    if np.size(a) == 0:
        return write_into(out, fun(plain(a), q, axis=axis, method=method, keepdims=keepdims, weights=weights))
    if a.dtype.kind != "f":
        raise trace_error("np.quantile", f"an array of shape {shape_of(a)}, {a.dtype}", "pass real entries")
    dtype = fun(np.zeros(2, a.dtype), q, method=method).dtype
    q = np.asanyarray(q if fun is np.quantile else np.true_divide(q, 100))
    x, shape, spoiled = _ranked(a, axis)
    rows = shape_of(x)[:-1]
    if weights is None:
        at = _ranks(shape_of(x)[-1], q, method)
        at = np.broadcast_to(np.reshape(at, q.shape + (1,) * len(rows)), q.shape + rows)
    else:
        w = np.broadcast_to(_weights_of(np.asarray(weights), a, axis), shape_of(a))
        order = np.argsort(plain(flat_axes(a, axis)[0]), axis=-1, kind="stable")
        w = np.take_along_axis(flat_axes(w, axis)[0], order, -1)
        at = _ranks(shape_of(x)[-1], q, method, w, rows)
    return _finished(_at_ranks(x, at, dtype), shape, spoiled, keepdims, out, q.shape)


@composite(np.quantile)
def _quantile(
    a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *, weights=None
):
    return _quantile_of(np.quantile, a, q, axis, out, method, keepdims, weights)


@composite(np.percentile)
def _percentile(
    a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *, weights=None
):
    return _quantile_of(np.percentile, a, q, axis, out, method, keepdims, weights)


def _by_rows(fun):
    """Return the version of a quantile that leaves NaN out: row by row where there is any."""

    @functools.wraps(fun)
    def f(a, *q, axis=None, out=None, keepdims=_NO, **kwargs):
        a, keepdims = stacked(a), flag(keepdims)
        missing = np.isnan(plain(a))
        if not missing.any():
            return fun(a, *q, axis=axis, out=out, keepdims=keepdims, **kwargs)
        x, shape = flat_axes(a, axis)
        rows = reshape_to(x, (-1, shape_of(x)[-1]))
        keep = ~np.isnan(plain(rows))
        results = []
        for i in range(len(keep)):
            row = rows[i][keep[i]] if keep[i].any() else rows[i]
            results.append(fun(row, *q, **kwargs))
        lead = shape_of(q[0]) if q else ()
        joined = np.reshape(np.stack(results, -1), (*lead, *(shape if keepdims else shape_of(x)[:-1])))
        return write_into(out, joined)

    return f


@composite(np.nanmedian)
def _nanmedian(a, axis=None, out=None, overwrite_input=False, keepdims=_NO):
    return _by_rows(np.median)(a, axis=axis, out=out, keepdims=keepdims)


@composite(np.nanquantile)
def _nanquantile(
    a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=_NO, *, weights=None
):
    if weights is not None:
        raise trace_error("np.nanquantile", "weights have no rule", "leave out NaN and use np.quantile")
    return _by_rows(np.quantile)(a, q, axis=axis, out=out, keepdims=keepdims, method=method)


@composite(np.nanpercentile)
def _nanpercentile(
    a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=_NO, *, weights=None
):
    if weights is not None:
        raise trace_error("np.nanpercentile", "weights have no rule", "leave out NaN and use np.percentile")
    return _by_rows(np.percentile)(a, q, axis=axis, out=out, keepdims=keepdims, method=method)


@composite(np.unique)
def _unique(
    ar,
    return_index=False,
    return_inverse=False,
    return_counts=False,
    axis=None,
    *,
    equal_nan=True,
    sorted=True,
):
    """Each value keeps the derivative of the entry where it stands first."""
    ar = stacked(ar)
    found = np.unique(
        plain(ar), True, return_inverse, return_counts, axis, equal_nan=equal_nan, sorted=sorted
    )
    values = np.take(ar, found[1], axis)
    rest = found[1:] if return_index else found[2:]
    return (values, *rest) if rest else values

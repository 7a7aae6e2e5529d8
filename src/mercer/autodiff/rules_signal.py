"""Rules of convolutions, interpolation, differences, integrals along an axis, and histograms."""

import operator

import numpy as np

from mercer.autodiff.array_methods import ndim_of, put, shape_of
from mercer.autodiff.rules import Primitive, cast, composite
from mercer.autodiff.rules_shape import normal_axes, normal_axis
from mercer.autodiff.trace import Traced, plain, stacked

# -- convolution ----------------------------------------------------------------------------------------


def _correlated(g, v, n):
    """The transpose of the full convolution with v, onto n entries."""
    m = shape_of(v)[0]
    return convolve_of(g, np.conj(np.flip(v, 0)))[m - 1 : m - 1 + n]


convolve_of = Primitive(
    lambda a, v: np.convolve(a, v),
    jvp=[lambda t, ans, a, v: convolve_of(t, v), lambda t, ans, a, v: convolve_of(a, t)],
    vjp=[
        lambda g, ans, a, v: cast(_correlated(g, v, shape_of(a)[0]), a),
        lambda g, ans, a, v: cast(_correlated(g, a, shape_of(v)[0]), v),
    ],
    name="np.convolve",
)


@composite(np.convolve)
def _convolve(a, v, mode="full"):
    a, v = np.atleast_1d(stacked(a)), np.atleast_1d(stacked(v))
    n, m = shape_of(a)[0], shape_of(v)[0]
    if not n or not m:
        raise ValueError(f"{'a' if not n else 'v'} cannot be empty")
    if m > n:
        a, v, n, m = v, a, m, n
    full = convolve_of(a, v)
    if mode == "full":
        return full
    if mode == "same":
        return full[(m - 1) // 2 : (m - 1) // 2 + n]
    if mode == "valid":
        return full[m - 1 : n]
    raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")


@composite(np.correlate)
def _correlate(a, v, mode="valid"):
    a, v = np.atleast_1d(stacked(a)), np.atleast_1d(stacked(v))
    if shape_of(v)[0] > shape_of(a)[0] and mode != "full":
        return np.flip(np.conj(np.correlate(v, a, mode)), 0)
    return np.convolve(a, np.conj(np.flip(v, 0)), mode)


# -- interpolation --------------------------------------------------------------------------------------


@composite(np.interp)
def _interp(x, xp, fp, left=None, right=None, period=None):
    """At a node the slopes of both sides count half each."""
    x, xp, fp = _double(x), _double(xp), _double(fp)
    if period is not None:
        x, xp, fp = _one_period(x, xp, fp, np.abs(period))
        left = right = None
    value, nodes = plain(x), np.asarray(plain(xp))
    n = len(nodes)
    if n == 0:
        raise ValueError("array of sample points is empty")
    left, right = fp[0] if left is None else left, fp[-1] if right is None else right
    after = np.searchsorted(nodes, value, side="right")
    result = _between(x, xp, fp, after, left, right, n)
    inner = np.equal(nodes[np.clip(after - 1, 0, n - 1)], value) & (after > 0)
    if np.any(inner):
        before = _between(x, xp, fp, np.where(inner, after - 1, after), left, right, n)
        # A jump to `left` or `right` has no slope of its own.
        smooth = inner & np.equal(plain(before), plain(result))
        result = np.where(smooth, 0.5 * result + 0.5 * before, result)
        ends = np.equal(nodes[-1], value) & ~smooth
        result = np.where(ends, fp[-1], result) if np.any(ends) else result
    return result[()] if ndim_of(result) == 0 else result


def _double(a):
    """Return `a` in double precision, in which np.interp computes."""
    a = stacked(a)
    if not isinstance(a, Traced):
        a = np.asarray(a)
    dtype = np.complex128 if a.dtype.kind == "c" else np.float64
    return a if a.dtype == dtype else a.astype(dtype)


def _between(x, xp, fp, after, left, right, n):
    """Return the linear function of the interval in front of node `after`, or the value outside."""
    if n == 1:
        inside = np.broadcast_to(fp[0], shape_of(x))
    else:
        i = np.clip(after - 1, 0, n - 2)
        x0, f0 = xp[i], fp[i]
        inside = f0 + (fp[i + 1] - f0) / (xp[i + 1] - x0) * (x - x0)
    return np.where(after == 0, left, np.where(after == n, right, inside))


def _one_period(x, xp, fp, period):
    """Bring points into one period, sort them, and repeat one on each side."""
    if plain(period) == 0:
        raise ValueError("period must be a non-zero value")
    x, xp = np.remainder(x, period), np.remainder(xp, period)
    order = np.argsort(plain(xp), kind="stable")
    xp, fp = xp[order], fp[order]
    xp = np.concatenate((xp[-1:] - period, xp, xp[:1] + period))
    return x, xp, np.concatenate((fp[-1:], fp, fp[:1]))


# -- differences and integrals --------------------------------------------------------------------------


def _along(axis, *parts):
    """Return an index with `parts` of one axis."""
    return (*(slice(None),) * axis, *parts)


@composite(np.diff)
def _diff(a, n=1, axis=-1, prepend=np._NoValue, append=np._NoValue):
    a = stacked(a)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    if n == 0:
        return a
    axis = normal_axis(axis, ndim_of(a))
    more = [_edge(prepend, a, axis), a, _edge(append, a, axis)]
    more = [part for part in more if part is not None]
    if len(more) > 1:
        a = np.concatenate(more, axis)
    for _ in range(n):
        a = a[_along(axis, slice(1, None))] - a[_along(axis, slice(None, -1))]
    return a


def _edge(value, a, axis):
    if value is np._NoValue:
        return None
    value = stacked(value)
    return (
        value
        if ndim_of(value)
        else np.broadcast_to(value, [1 if i == axis else n for i, n in enumerate(a.shape)])
    )


@composite(np.ediff1d)
def _ediff1d(ary, to_end=None, to_begin=None):
    d = np.diff(np.ravel(stacked(ary)))
    parts = [to_begin, d, to_end]
    return np.concatenate([np.ravel(stacked(p)) for p in parts if p is not None], dtype=d.dtype)


@composite(np.trapezoid)
def _trapezoid(y, x=None, dx=1.0, axis=-1):
    y = stacked(y)
    axis = normal_axis(axis, ndim_of(y))
    if x is not None:
        x = stacked(x)
        dx = np.diff(x, axis=axis if ndim_of(x) > 1 else -1)
        if ndim_of(x) == 1:
            dx = np.reshape(dx, [-1 if i == axis else 1 for i in range(ndim_of(y))])
    return np.sum(dx * (y[_along(axis, slice(1, None))] + y[_along(axis, slice(None, -1))]) / 2.0, axis)


def _spacings(f, varargs, axes):
    """Return a number or an array of differences for each axis."""
    if len(varargs) == 0:
        return [1.0] * len(axes)
    if len(varargs) == 1 and ndim_of(varargs[0]) == 0:
        return [varargs[0]] * len(axes)
    if len(varargs) != len(axes):
        raise TypeError("invalid number of arguments")
    spacings = []
    for given, axis in zip(varargs, axes, strict=True):
        given = stacked(given)
        if ndim_of(given) == 0:
            spacings.append(given)
            continue
        if shape_of(given) != (shape_of(f)[axis],):
            raise ValueError("distances must match the length of the corresponding dimension")
        spacings.append(np.diff(given))
    return spacings


@composite(np.gradient)
def _gradient(f, *varargs, axis=None, edge_order=1):
    f = stacked(f)
    f = f if isinstance(f, Traced) else np.asarray(f)
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    axes = normal_axes(axis, ndim_of(f))
    results = []
    for ax, h in zip(axes, _spacings(f, varargs, axes), strict=True):
        if shape_of(f)[ax] < edge_order + 1:
            raise ValueError(
                "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) "
                "elements are required."
            )
        slopes = np.moveaxis(_slopes(np.moveaxis(f, ax, -1), h, edge_order), -1, ax)
        keep = slopes.dtype == f.dtype or f.dtype.kind not in "fc"
        results.append(slopes if keep else slopes.astype(f.dtype))
    return results[0] if len(results) == 1 else tuple(results)


def _slopes(f, h, edge_order):
    """Return the derivative along the last axis: of parabolas through three points, lines at ends."""
    uniform = ndim_of(h) == 0
    if uniform:
        inner = (f[..., 2:] - f[..., :-2]) / (2.0 * h)
        first = last = (h, h)
    else:
        h1, h2 = h[:-1], h[1:]
        if (plain(h) == plain(h)[0]).all() and not isinstance(h, Traced):
            inner = (f[..., 2:] - f[..., :-2]) / (2.0 * h[0])
        else:
            inner = (
                -h2 / (h1 * (h1 + h2)) * f[..., :-2]
                + (h2 - h1) / (h1 * h2) * f[..., 1:-1]
                + h1 / (h2 * (h1 + h2)) * f[..., 2:]
            )
        first, last = (h[0], h[min(1, len(h) - 1)]), (h[-1], h[max(-2, -len(h))])
    if edge_order == 1:
        left = (f[..., 1] - f[..., 0]) / first[0]
        right = (f[..., -1] - f[..., -2]) / last[0]
    else:
        left = _end_slope(f[..., 0], f[..., 1], f[..., 2], *first)
        right = -_end_slope(f[..., -1], f[..., -2], f[..., -3], *last)
    return np.concatenate((left[..., None], inner, right[..., None]), -1)


def _end_slope(f0, f1, f2, h1, h2):
    """The slope at the first of three points of the parabola through them."""
    return -(2.0 * h1 + h2) / (h1 * (h1 + h2)) * f0 + (h1 + h2) / (h1 * h2) * f1 - h1 / (h2 * (h1 + h2)) * f2


# -- counting -------------------------------------------------------------------------------------------


@composite(np.bincount)
def _bincount(x, /, weights=None, minlength=0):
    """Weights may be traced, what is counted has no derivative."""
    x = np.asarray(plain(stacked(x)))
    if not isinstance(weights, Traced):
        return np.bincount(x, weights, minlength)
    counts = np.bincount(x, minlength=minlength)
    if weights.dtype.kind == "f":
        weights = weights.astype(np.float64, copy=False)  # NumPy counts in double precision
    return put(weights, _Sized(counts.shape), x)


class _Sized:
    __slots__ = ("shape",)

    def __init__(self, shape):
        self.shape = shape


@composite(np.histogram_bin_edges)
def _histogram_bin_edges(a, bins=10, range=None, weights=None):
    """Edges that come from the least and the largest entry move with them."""
    a = stacked(a)
    if ndim_of(bins) == 1:
        return stacked(bins)
    value = plain(a)
    edges = np.histogram_bin_edges(value, bins, range, plain(weights))
    if range is not None or not value.size or value.min() == value.max():
        return edges
    t = (np.arange(len(edges)) / (len(edges) - 1)).astype(edges.dtype)
    low, high = np.min(a), np.max(a)
    return low + (high - low) * t


@composite(np.histogram)
def _histogram(a, bins=10, range=None, density=None, weights=None):
    """Counts have no derivative; traced weights and edges do."""
    a, bins = stacked(a), bins if ndim_of(bins) == 0 else stacked(bins)
    edges = np.histogram_bin_edges(a, bins, range, weights)
    counts, _ = np.histogram(plain(a), plain(bins), range, None, plain(weights))
    if isinstance(weights, Traced):
        cuts = np.histogram_bin_edges(plain(a), plain(bins), range)
        at = np.searchsorted(cuts, np.ravel(plain(a)), side="right") - 1
        at = np.where(np.ravel(plain(a)) == cuts[-1], len(cuts) - 2, at)
        inside = np.flatnonzero((at >= 0) & (at < len(cuts) - 1))
        counts = np.bincount(at[inside], np.ravel(weights)[inside], len(cuts) - 1).astype(weights.dtype)
    if density:
        counts = counts / np.diff(edges) / np.sum(counts)
    return counts, edges


# -- functions of parts ---------------------------------------------------------------------------------


@composite(np.apply_along_axis)
def _apply_along_axis(func1d, axis, arr, *args, **kwargs):
    arr = stacked(arr)
    axis = normal_axis(axis, ndim_of(arr))
    moved = np.moveaxis(arr, axis, -1)
    rest = shape_of(moved)[:-1]
    results = [stacked(func1d(moved[i], *args, **kwargs)) for i in np.ndindex(rest)]
    if not results:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    joined = np.reshape(np.stack(results), (*rest, *shape_of(results[0])))
    extra = ndim_of(results[0])
    return np.moveaxis(joined, range(len(rest), len(rest) + extra), range(axis, axis + extra))


@composite(np.apply_over_axes)
def _apply_over_axes(func, a, axes):
    for axis in axes if ndim_of(axes) else (axes,):
        axis = operator.index(axis)
        result = func(a, axis)
        a = result if ndim_of(result) == ndim_of(a) else np.expand_dims(result, axis)
    return a

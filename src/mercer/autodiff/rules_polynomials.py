"""Rules of grids between ends, of polynomials as NumPy has them, of sliding windows and of sets."""

import warnings

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mercer.autodiff.array_methods import ndim_of, scatter, shape_of
from mercer.autodiff.rules import Primitive, cast, composite, define
from mercer.autodiff.rules_shape import normal_axis, reshape_to
from mercer.autodiff.trace import Traced, plain, stacked

# -- grids ----------------------------------------------------------------------------------------------


def _floating(x):
    """Return the type in which steps between the ends are counted."""
    return x.dtype if x.dtype.kind in "fc" else np.dtype(float)


@composite(np.linspace)
def _linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *, device=None):
    start, stop = np.broadcast_arrays(start, stop)
    parts = num - 1 if endpoint else num
    delta = stop - start
    step = delta / parts if parts > 0 else delta * np.nan
    k = np.reshape(np.arange(0, num, dtype=_floating(delta)), (-1, *(1,) * ndim_of(delta)))
    grid = start + k * step if parts > 0 else start + k * delta
    if endpoint and num > 1:  # the end itself, not what rounding makes of it
        grid = np.concatenate((grid[:-1], stop[None]))
    if axis != 0:
        grid = np.moveaxis(grid, 0, axis)
    grid = grid if dtype is None else grid.astype(dtype)
    return (grid, step) if retstep else grid


@composite(np.logspace)
def _logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    if ndim_of(base):
        start, stop, base = np.broadcast_arrays(start, stop, base)
    exponents = np.linspace(start, stop, num, endpoint, axis=axis)
    grid = np.power(np.expand_dims(base, axis) if ndim_of(base) else base, exponents)
    return grid if dtype is None else grid.astype(dtype)


@composite(np.geomspace)
def _geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    start, stop = np.broadcast_arrays(start, stop)
    if np.any(np.equal(plain(start), 0)) or np.any(np.equal(plain(stop), 0)):
        raise ValueError("Geometric sequence cannot include zero")
    parts = max(num - 1 if endpoint else num, 1)
    t = np.reshape(np.arange(num) / parts, (-1, *(1,) * ndim_of(start)))
    grid = start * np.power(stop / start, t)
    grid = np.moveaxis(grid, 0, axis) if axis != 0 else grid
    return grid if dtype is None else grid.astype(dtype)


@composite(np.vander)
def _vander(x, N=None, increasing=False):
    x = stacked(x)
    if ndim_of(x) != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    n = shape_of(x)[0] if N is None else N
    powers = np.arange(n) if increasing else np.arange(n)[::-1]
    return np.power(x[:, None], powers)


# -- polynomials: the highest power first -----------------------------------------------------------------


@composite(np.polyval)
def _polyval(p, x):
    p, x = stacked(p), stacked(x)
    value = np.zeros(shape_of(x), np.result_type(p, x))
    for c in p:  # Horner's scheme
        value = value * x + c
    return value


def _same_length(a, b):
    a, b = np.atleast_1d(stacked(a)), np.atleast_1d(stacked(b))
    n = max(shape_of(a)[0], shape_of(b)[0])
    return tuple(np.pad(p, (n - shape_of(p)[0], 0)) if shape_of(p)[0] < n else p for p in (a, b))


composite(np.polyadd)(lambda a1, a2: np.add(*_same_length(a1, a2)))
composite(np.polysub)(lambda a1, a2: np.subtract(*_same_length(a1, a2)))
composite(np.polymul)(lambda a1, a2: np.convolve(a1, a2))


@composite(np.polyder)
def _polyder(p, m=1):
    p = stacked(p)
    for _ in range(m):
        p = p[:-1] * np.arange(shape_of(p)[0] - 1, 0, -1)
    return p


@composite(np.polyint)
def _polyint(p, m=1, k=None):
    p = stacked(p)
    constants = [0.0] * m if k is None else [k] * m if ndim_of(k) == 0 else k
    if len(constants) != m and len(constants) != 1:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for i in range(m):
        c = constants[i if len(constants) == m else 0]
        p = np.concatenate((p / np.arange(shape_of(p)[0], 0, -1), np.reshape(c, (1,))))
    return p


def _roots_slope(ans, p):
    """Powers of the roots, and p' there: dr = −Σ rᵏ dpₖ / p'(r). A repeated root has no derivative."""
    return np.vander(ans, shape_of(p)[0]), np.polyval(np.polyder(p), ans)


def _roots_jvp(t, ans, p):
    powers, slope = _roots_slope(ans, p)
    return cast(-(powers @ t) / slope, ans)


def _roots_vjp(g, ans, p):
    powers, slope = _roots_slope(ans, p)
    return cast(-np.conj(powers).T @ (g / np.conj(slope)), p)


define(np.roots, jvp=[_roots_jvp], vjp=[_roots_vjp])


@composite(np.poly)
def _poly(seq_of_zeros):
    roots = np.atleast_1d(stacked(seq_of_zeros))
    if ndim_of(roots) == 2 and shape_of(roots)[0] == shape_of(roots)[1] != 0:
        roots = np.linalg.eigvals(roots)
    elif ndim_of(roots) != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    p = np.ones(1, roots.dtype)
    for root in roots:
        p = np.convolve(p, np.stack((np.ones((), roots.dtype), -root)))
    values = plain(roots)
    pairs = np.iscomplexobj(values) and np.all(np.sort(values) == np.sort(np.conj(values)))
    return np.real(p) if pairs else p


@composite(np.polyfit)
def _polyfit(x, y, deg, rcond=None, full=False, w=None, cov=False):
    x, y, order = stacked(x) + 0.0, stacked(y) + 0.0, int(deg) + 1
    if order < 1:
        raise ValueError("expected deg >= 0")
    if ndim_of(x) != 1 or not shape_of(x)[0]:
        raise TypeError("expected non-empty vector for x")
    if ndim_of(y) not in (1, 2) or shape_of(y)[0] != shape_of(x)[0]:
        raise TypeError(f"expected y of shape {shape_of(x)} or with more columns, got {shape_of(y)}")
    columns = np.vander(x, order)
    if w is not None:
        w = stacked(w) + 0.0
        if shape_of(w) != shape_of(x):
            raise TypeError(f"expected weights of shape {shape_of(x)}, got {shape_of(w)}")
        columns, y = columns * w[:, None], (y.T * w).T
    scale = np.sqrt(np.sum(columns * columns, axis=0))  # for a better condition
    rcond = shape_of(x)[0] * np.finfo(x.dtype).eps if rcond is None else rcond
    columns = columns / scale
    c, residuals, rank, singular = np.linalg.lstsq(columns, y, rcond)
    c = (c.T / scale).T
    if full:
        return c, residuals, rank, singular, rcond
    if rank != order:
        warnings.warn("Polyfit may be poorly conditioned", np.exceptions.RankWarning, stacklevel=3)
    return (c, _coefficients_covariance(columns, scale, residuals, cov, ndim_of(y))) if cov else c


def _coefficients_covariance(columns, scale, residuals, how, ndim):
    covariance, (n, order) = np.linalg.inv(columns.T @ columns) / np.outer(scale, scale), shape_of(columns)
    if how != "unscaled" and n <= order:
        raise ValueError("the number of data points must exceed order to scale the covariance matrix")
    factor = 1 if how == "unscaled" else residuals / (n - order)
    return covariance * factor if ndim == 1 else covariance[:, :, None] * factor


# -- windows ----------------------------------------------------------------------------------------------


def _windows_jvp(t, ans, x, shape, axes):
    extra = ndim_of(t) - ndim_of(x)
    return windows_of(t, shape, tuple(a + extra for a in axes))


def _windows_vjp(g, ans, x, shape, axes):
    size, lead = int(np.prod(shape_of(x))), shape_of(g)[: ndim_of(g) - ndim_of(ans)]
    positions = sliding_window_view(np.arange(size).reshape(shape_of(x)), shape, axes)
    return reshape_to(scatter(g, positions, (size,), lead), (*lead, *shape_of(x)))


windows_of = Primitive(
    lambda x, shape, axes: sliding_window_view(x, shape, axes),
    jvp=[_windows_jvp],
    vjp=[_windows_vjp],
    name="sliding_window_view",
    batched=True,
    view=True,
)


@composite(sliding_window_view)
def _sliding_window_view(x, window_shape, axis=None, *, subok=False, writeable=False):
    shape = tuple(window_shape) if np.iterable(window_shape) else (window_shape,)
    axes = tuple(range(ndim_of(x))) if axis is None else tuple(axis) if np.iterable(axis) else (axis,)
    if len(shape) != len(axes):
        raise ValueError(f"window_shape {shape} and axis {axes} must have the same length")
    return windows_of(x, shape, tuple(normal_axis(a, ndim_of(x)) for a in axes))


# -- sets -------------------------------------------------------------------------------------------------


@composite(np.trim_zeros)
def _trim_zeros(filt, trim="fb", axis=None):
    if ndim_of(filt) != 1:
        raise ValueError("np.trim_zeros of traced values takes vectors")
    nonzero = np.flatnonzero(plain(filt))
    start = nonzero[0] if len(nonzero) and "f" in trim.lower() else 0
    stop = nonzero[-1] + 1 if len(nonzero) and "b" in trim.lower() else shape_of(filt)[0]
    return filt[start:stop] if len(nonzero) else filt[:0]


composite(np.unique_values)(lambda x: np.unique(x))
composite(np.union1d)(lambda ar1, ar2: np.unique(np.concatenate((ar1, ar2), axis=None)))


@composite(np.intersect1d)
def _intersect1d(ar1, ar2, assume_unique=False, return_indices=False):
    value, at1, at2 = np.intersect1d(plain(ar1), plain(ar2), assume_unique, return_indices=True)
    first = np.ravel(ar1)[at1] if isinstance(ar1, Traced) else value
    return (first, at1, at2) if return_indices else first


@composite(np.setdiff1d)
def _setdiff1d(ar1, ar2, assume_unique=False):
    ar1 = np.ravel(ar1) if assume_unique else np.unique(ar1)
    return ar1[np.isin(plain(ar1), plain(ar2), invert=True)]

"""The rule of np.pad, axis by axis as NumPy does it: each mode joins parts that have rules."""

import numpy as np

from mercer.autodiff.array_methods import ndim_of, shape_of
from mercer.autodiff.errors import trace_error
from mercer.autodiff.rules import composite
from mercer.autodiff.trace import Traced, plain, stacked


def _pairs(value, ndim):
    """Return (before, after) for each axis from what np.pad takes; entries may be traced."""
    if isinstance(value, dict):
        return [_pairs(value.get(i, value.get(i - ndim, 0)), 1)[0] for i in range(ndim)]
    value = stacked(value)
    if not isinstance(value, Traced):
        value = np.asarray(value)
    value = np.broadcast_to(value, (ndim, 2))
    return [(value[i, 0], value[i, 1]) for i in range(ndim)]


def _edge(x, axis, start, stop):
    index = [slice(None)] * ndim_of(x)
    index[axis] = slice(start, stop)
    return x[tuple(index)]


def _repeated(x, axis, n):
    shape = list(shape_of(x))
    shape[axis] = n
    return np.broadcast_to(x, shape)


def _ends(x, axis, widths, make):
    """Return x with `make(side)`, of length 1 along the axis, repeated on each side."""
    parts = [_repeated(make(0), axis, widths[0]), x, _repeated(make(1), axis, widths[1])]
    kept = [p for p in parts if shape_of(p)[axis]]
    return np.concatenate(kept, axis, dtype=x.dtype, casting="unsafe")


def _constant(x, axis, widths, constant_values):
    unit = tuple(1 if i == axis else n for i, n in enumerate(shape_of(x)))
    return _ends(x, axis, widths, lambda side: np.broadcast_to(constant_values[side], unit))


def _statistic(fun):
    def pad(x, axis, widths, stat_length=None):
        def make(side):
            n = shape_of(x)[axis]
            length = n if stat_length is None or stat_length[side] is None else min(int(stat_length[side]), n)
            part = _edge(x, axis, 0, length) if side == 0 else _edge(x, axis, n - length, n)
            return fun(part, axis=axis, keepdims=True)

        return _ends(x, axis, widths, make)

    return pad


def _linear_ramp(x, axis, widths, end_values):
    n = shape_of(x)[axis]

    def ramp(side):
        edge = _edge(x, axis, 0, 1) if side == 0 else _edge(x, axis, n - 1, n)
        steps = np.arange(widths[side])
        part = (steps if side == 0 else steps[::-1]) / max(widths[side], 1)
        part = part.reshape([-1 if i == axis else 1 for i in range(ndim_of(x))]).astype(x.dtype)
        return end_values[side] + (edge - end_values[side]) * part

    return np.concatenate((ramp(0), x, ramp(1)), axis, dtype=x.dtype, casting="unsafe")


def _copied(mode):
    """Modes whose new entries are copies (or, reflected oddly, differences) of old ones."""

    def pad(x, axis, widths, reflect_type="even"):
        n = shape_of(x)[axis]
        if reflect_type == "odd":
            matrix = np.pad(np.eye(n, dtype=x.dtype), [widths, (0, 0)], mode=mode, reflect_type="odd")
            return np.moveaxis(np.matmul(np.moveaxis(x, axis, -1), matrix.T), -1, axis)
        return np.take(x, np.pad(np.arange(n), widths, mode=mode), axis)

    return pad


MODES = {
    "constant": _constant, "empty": lambda x, axis, widths: _constant(x, axis, widths, (0, 0)),
    "edge": _copied("edge"), "reflect": _copied("reflect"), "symmetric": _copied("symmetric"),
    "wrap": _copied("wrap"), "linear_ramp": _linear_ramp, "maximum": _statistic(np.max),
    "minimum": _statistic(np.min), "mean": _statistic(np.mean), "median": _statistic(np.median),
}  # fmt: skip
#: The keyword of each mode that has one for each side of each axis.
SIDED = {
    "constant": "constant_values", "linear_ramp": "end_values", "maximum": "stat_length",
    "minimum": "stat_length",
    "mean": "stat_length", "median": "stat_length",
}  # fmt: skip


@composite(np.pad)
def _pad(array, pad_width, mode="constant", **kwargs):
    x = stacked(array)
    if not isinstance(mode, str) or mode not in MODES:
        raise trace_error("np.pad", f"mode {mode!r} has no rule", f"use one of {', '.join(MODES)}")
    ndim = ndim_of(x)
    if not ndim:
        return np.copy(x)
    widths = [(int(b), int(a)) for b, a in _pairs(plain(pad_width), ndim)]
    if min(min(w) for w in widths) < 0:
        raise ValueError("index can't contain negative values")
    key = SIDED.get(mode)
    default = None if key == "stat_length" else 0
    unknown = set(kwargs) - {key if key else "reflect_type" if mode in ("reflect", "symmetric") else ""}
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {unknown}")
    sides = _pairs(kwargs.get(key, default), ndim) if key and kwargs.get(key, default) is not None else None
    for axis in range(ndim):
        if widths[axis] == (0, 0):
            continue
        if key:
            x = MODES[mode](x, axis, widths[axis], None if sides is None else sides[axis])
        else:
            x = MODES[mode](x, axis, widths[axis], **kwargs)
    return np.copy(x) if x is array else x

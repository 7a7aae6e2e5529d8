"""Jacobian matrices (LINMA 1.5), by chunks of directions in the cheaper mode."""

import functools

import numpy as np

from mercer.autodiff.derivative import (
    Linearised,
    check_function,
    check_numbers,
    chosen,
    flatten_args,
    name_of,
    push,
    unflatten_args,
    zero_of,
)
from mercer.autodiff.errors import trace_error
from mercer.autodiff.rules import cast
from mercer.autodiff.trace import np_like
from mercer.autodiff.trees import unflatten

__all__ = ["jacobian"]

# An empty array has no directions; one of zeros finds the shapes.
_NO_DIRECTION = [slice(0, 1)]


def jacobian(f, mode="auto", argnums=0, chunk_size=None, has_aux=False, holomorphic=False):
    """Return a function that computes the Jacobian matrix (LINMA 1.5).

    Parameters
    ----------
    f : callable
        Array (or tree) to array (or tree).
    mode : {"auto", "forward", "reverse"}, default="auto"
        "auto" takes the mode with fewer passes: forward for at most as many inputs as outputs (LINMA 1.5.3).
    argnums : int or sequence of int, default=0
    chunk_size : int, optional
        Directions carried in one pass; the default lets a chunk of all tangents take some 64 MB at most.
    has_aux, holomorphic : bool

    Returns
    -------
    callable
        Its value has the output's shape followed by the input's: ``J[i, j] = ∂f_i/∂x_j``. Trees give a tree
        (that of the output) of trees (that of the input).
    """
    check_function(f, "jacobian")
    if mode not in ("auto", "forward", "reverse"):
        raise ValueError(f'mode must be "auto", "forward" or "reverse", got {mode!r}')

    @functools.wraps(f, updated=())
    def jacobian_of(*args, **kwargs):
        wanted, function = chosen(f, args, kwargs, argnums)
        leaves, structures = flatten_args(wanted, name_of(f))
        n_inputs = sum(np.size(x) for x in leaves)
        at = None
        if mode == "reverse" or (mode == "auto" and n_inputs > 1):
            at = Linearised(function, leaves, structures, has_aux)
        if mode == "reverse" or (at is not None and sum(np.size(o) for o in at.outputs) < n_inputs):
            blocks, outputs, structure, aux = *_rows(at, chunk_size), at.structure, at.aux
        else:
            blocks, outputs, structure, aux = _columns(function, leaves, structures, chunk_size, has_aux)
        check_numbers(outputs, f"jacobian of {name_of(f)}")
        if not holomorphic and any(np_like(o).dtype.kind == "c" for o in outputs):
            raise trace_error(f"jacobian of {name_of(f)}", "its value is complex", "say holomorphic=True")
        result = unflatten(structure, [_in_arguments(row, structures, argnums) for row in blocks])
        return (result, aux) if has_aux else result

    return jacobian_of


def _in_arguments(row, structures, argnums):
    parts = unflatten_args(structures, row)
    return parts[0] if isinstance(argnums, int) else tuple(parts)


def _chunks(total, chunk_size, largest):
    """Return slices of at most a chunk's length."""
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"chunk_size must be a whole number of at least 1, got {chunk_size!r}")
    size = chunk_size or max(1, min(total, 2**26 // (8 * max(largest, 1))))
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _units(shapes, part):
    """Return rows `part` of the unit matrix of a space, cut and shaped as its parts."""
    sizes = [int(np.prod(s)) for s in shapes]
    start, result = 0, []
    for size, shape in zip(sizes, shapes, strict=True):
        block = np.zeros((part.stop - part.start, size))
        rows = np.arange(max(part.start, start), min(part.stop, start + size))
        block[rows - part.start, rows - start] = 1
        result.append(block.reshape(len(block), *shape))
        start += size
    return result


def _columns(f, leaves, structures, chunk_size, has_aux):
    """Return the Jacobian's blocks by forward passes, `chunk_size` columns at once."""
    shapes = [np.shape(x) for x in leaves]
    total = sum(int(np.prod(s)) for s in shapes)
    parts = []
    for part in _chunks(total, chunk_size, total) or _NO_DIRECTION:
        units = [cast(u, x) for u, x in zip(_units(shapes, part), leaves, strict=True)]
        values, pushed, structure, aux = push(f, leaves, structures, units, part.stop - part.start, has_aux)
        lead = (part.stop - part.start,)
        parts.append(
            [
                np.zeros(lead + np.shape(v), zero_of(v).dtype) if t is None else t
                for v, t in zip(values, pushed, strict=True)
            ]
        )
    blocks = []
    for value, *flat in zip(values, *parts, strict=True):
        columns = np.moveaxis(np.concatenate(flat)[:total], 0, -1)
        blocks.append(_cut(columns, shapes, np.shape(value)))
    return blocks, values, structure, aux


def _rows(at, chunk_size):
    """Return the Jacobian's blocks by reverse sweeps, `chunk_size` rows at once."""
    shapes = [np.shape(o) for o in at.outputs]
    total = sum(int(np.prod(s)) for s in shapes)
    largest = sum(np.size(x) for x in at.leaves)
    parts = []
    for part in _chunks(total, chunk_size, max(largest, total)) or _NO_DIRECTION:
        units = [
            u if np_like(o).dtype.kind not in "fc" else cast(u, o)
            for u, o in zip(_units(shapes, part), at.outputs, strict=True)
        ]
        parts.append(at.pull(units, part.stop - part.start))
    at.tape.clear()
    rows = [
        parts[0][i] if len(parts) == 1 else np.concatenate([p[i] for p in parts])
        for i in range(len(at.leaves))
    ]
    rows = [np.conj(r) if np_like(r).dtype.kind == "c" else r for r in rows]
    blocks, start = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        blocks.append(
            [
                np.reshape(r[start : start + size], shape + np.shape(x))
                for r, x in zip(rows, at.leaves, strict=True)
            ]
        )
        start += size
    return blocks, at.outputs


def _cut(columns, shapes, out_shape):
    """Split the last axis into blocks and give each the shape of its input."""
    blocks, start = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        blocks.append(np.reshape(columns[..., start : start + size], out_shape + shape))
        start += size
    return blocks

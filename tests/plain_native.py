"""The oracle of the tile engine: the same API on plain NumPy row pairs, slow and right."""

import numpy as np
from scipy import sparse

from mercer.kernels import pairs
from mercer.kernels.program import Gradient, Side, Tangent

__all__ = ["gram", "matmul", "pull", "pull_push", "push"]

_PAIRS = 20_000


def _dense(side):
    features = [f.toarray() if sparse.issparse(f) else f for f in side.features]
    return Side(side.n, features, np.asarray(side.vecs))


def _strips(left, right):
    step = max(1, _PAIRS // max(right.n, 1))
    for start in range(0, left.n, step):
        yield slice(start, min(start + step, left.n))


def _expand(array, count, repeat, axis=0):
    if array is None:
        return None
    if repeat:
        return np.repeat(array, count, axis=axis)
    return np.concatenate([array] * count, axis=axis)


def _expand_side(side, rows, count, repeat):
    features = [None if f is None else _expand(f[rows], count, repeat) for f in side.features]
    vecs = _expand(side.vecs[:, rows], count, repeat, axis=1)
    return Side(vecs.shape[1] if len(vecs) else (rows.stop - rows.start) * count, features, vecs)


def _pairs_of(left, right, rows):
    k = rows.stop - rows.start
    return (
        _expand_side(left, rows, right.n, True),
        _expand_side(right, slice(0, right.n), k, False),
    )


def _expand_tangent(t, left, right, rows):
    if t is None:
        return None
    k, every = rows.stop - rows.start, slice(0, right.n)
    lefts = t.left or [None] * len(left.features)
    rights = t.right or [None] * len(left.features)
    return Tangent(
        left=[None if f is None else _expand(f[rows], right.n, True) for f in lefts],
        right=[None if f is None else _expand(f[every], k, False) for f in rights],
        left_vecs=None if t.left_vecs is None else _expand(t.left_vecs[:, rows], right.n, True, 1),
        right_vecs=None if t.right_vecs is None else _expand(t.right_vecs, k, False, 1),
        slots=t.slots,
        log_weights=t.log_weights,
        blocks=_expand_blocks(t.blocks, rows),
    )


def _expand_blocks(blocks, rows):
    return {c: np.asarray(block)[rows].ravel() for c, block in (blocks or {}).items()}


def gram(program, left, right, out, symmetric=False, blocks=None, n_threads=None):
    """Fill ``out`` (n, m) with the kernel of every pair of rows."""
    left, right = _dense(left), _dense(right)
    for rows in _strips(left, right):
        a, b = _pairs_of(left, right, rows)
        value = pairs.value(program, a, b, _expand_blocks(blocks, rows))
        out[rows] = value.reshape(-1, right.n)
    if symmetric:
        lower = np.tril_indices(left.n, -1)
        out[lower] = out.T[lower]


def matmul(program, left, right, V, out, symmetric=False, blocks=None, n_threads=None):
    """Fill ``out`` (n, p) with K @ V."""
    left, right = _dense(left), _dense(right)
    for rows in _strips(left, right):
        a, b = _pairs_of(left, right, rows)
        value = pairs.value(program, a, b, _expand_blocks(blocks, rows))
        out[rows] = value.reshape(-1, right.n) @ V


def push(program, left, right, tangent, out, blocks=None, n_threads=None):
    """Fill ``out`` (n, m) with the directional derivative of K."""
    left, right = _dense(left), _dense(right)
    for rows in _strips(left, right):
        a, b = _pairs_of(left, right, rows)
        t = _expand_tangent(tangent, left, right, rows)
        out[rows] = pairs.push(program, a, b, t, _expand_blocks(blocks, rows)).reshape(-1, right.n)


def _cotangent(G, rows):
    if isinstance(G, tuple):
        return (G[0][rows] @ G[1].T).ravel()
    return np.asarray(G)[rows].ravel()


def _gradient(program, left, right):
    return Gradient(
        features=[None if f is None else np.zeros(f.shape) for f in left.features],
        vecs=np.zeros((len(program.vecs), left.n)),
        slots=np.zeros(len(program.slots)),
        log_weights=[
            None if leaf.weight is None else np.zeros(f.shape[1])
            for leaf, f in zip(program.leaves, left.features, strict=True)
        ],
        blocks={c: np.zeros((left.n, right.n)) for c in program.block_leaves},
    )


def _collect(total, part, rows, m):
    k = rows.stop - rows.start
    for whole, piece in zip(total.features, part.left, strict=True):
        if whole is not None:
            whole[rows] += piece.reshape(k, m, -1).sum(axis=1)
    total.vecs[:, rows] += part.left_vecs.reshape(len(total.vecs), k, m).sum(axis=2)
    total.slots[:] += part.slots
    for whole, piece in zip(total.log_weights, part.log_weights, strict=True):
        if whole is not None:
            whole += piece
    for c, block in total.blocks.items():
        block[rows] += part.blocks[c].reshape(k, m)


def pull(program, left, right, G, blocks=None, n_threads=None):
    """The `Gradient` of ⟨G, K⟩ in the rows, slots, weights and blocks."""
    zero = Tangent([None] * len(program.leaves), [None] * len(program.leaves))
    return pull_push(program, left, right, G, zero, blocks, n_threads)[0]


def pull_push(program, left, right, G, tangent, blocks=None, n_threads=None):
    """The gradient as by `pull`, and its directional derivative at fixed G."""
    left, right = _dense(left), _dense(right)
    total, total_dot = _gradient(program, left, right), _gradient(program, left, right)
    for rows in _strips(left, right):
        a, b = _pairs_of(left, right, rows)
        t = _expand_tangent(tangent, left, right, rows)
        parts = pairs.pull_push(program, a, b, _cotangent(G, rows), t, _expand_blocks(blocks, rows))
        _collect(total, parts[0], rows, right.n)
        _collect(total_dot, parts[1], rows, right.n)
    return total, total_dot

"""Kernel programs on tiles: matrices, products with them, derivatives.

Place on the way: ``loading`` → **tiles** → ``_gram`` (compiled).
"""

import numpy as np
from scipy import sparse

from .._arrays import column_scales
from ..kernels.program import Gradient, Side, Tangent
from .loading import FLOAT64, _gram, count_threads, dtype_of

__all__ = [
    "gram", "matmul", "pair_decisions", "pair_votes", "pair_votes_given", "pull", "pull_push", "push", "simd",
]  # fmt: skip

_SIMD_FUNCTIONS = ("exp", "expneg", "log", "log1p", "sin", "cos", "sinpi", "tanh", "sqrt", "rint")
_LEAST_ERROR = 1e-35


def _adjacent_columns(out):
    # The rows of a field of a packed record are no whole number of items apart: not aligned.
    adjacent = out.strides[1] == out.itemsize and out.strides[0] >= out.itemsize * out.shape[1]
    return adjacent and out.flags.aligned


def gram(
    program, left, right, out, symmetric=False, blocks=None, n_threads=None, cancels=None, on_step=None
):  # fmt: skip
    """Fill ``out`` with the kernel of every pair of rows.

    Parameters
    ----------
    program : Program
    left, right : Side
        Features of one dtype, float32 or float64.
    out : ndarray of shape (n, m), any strides
    symmetric : bool
        `right` is `left`: half of the tiles are computed, and the result is exactly symmetric.
    blocks : dict, optional
        Per BLOCK leaf its (n, m) matrix.
    n_threads : int, optional
    cancels : float, optional
        An expanded squared distance below this part of the rows' squared norms is recomputed from
        differences. None keeps the distance's own digits, 0 those that one of the size of the norms has.
    on_step : callable, optional
        ``on_step()``, called now and then; may raise.
    """
    dtype = dtype_of(left, out.dtype)
    if 0 in out.shape:
        return
    direct = _adjacent_columns(out) and out.dtype in (dtype, np.float32)
    if not direct and out.dtype == dtype and _adjacent_columns(out.T):
        # Kernels are symmetric functions.
        swapped = {index: np.asarray(block).T for index, block in (blocks or {}).items()}
        gram(program, right, left, out.T, symmetric, swapped, n_threads, cancels, on_step)
        return
    target = out if direct else np.empty(out.shape, dtype)
    threads = count_threads(n_threads)
    run = _gram.Run(program, left, right, symmetric, blocks, dtype, threads, cancels=cancels)
    run.gram(target, on_step)
    if target is not out:
        out[...] = target


def matmul(
    program, left, right, V, out, symmetric=False, blocks=None, n_threads=None, cancels=None, densify=False
):  # fmt: skip
    """Fill ``out`` (n, p), float64, with K @ V, V (m, p), without forming K.

    Memory is O(n·p) and O(d) per row of the packed copies: with `densify` columns that are sparse are packed
    once, not tile by tile. The other parameters are as in `gram`.
    """
    dtype = dtype_of(left)
    if len(V) != right.n:
        raise ValueError(f"V has {len(V)} rows, and K {right.n} columns")
    if 0 in out.shape or 0 in V.shape:
        out[...] = 0.0
        return
    scale = None if V.dtype == dtype else column_scales(V)
    V = np.ascontiguousarray(V if scale is None else V / scale, dtype=dtype)
    target = out if out.flags.c_contiguous and out.dtype == FLOAT64 else np.empty(out.shape)
    threads = count_threads(n_threads)
    run = _gram.Run(program, left, right, symmetric, blocks, dtype, threads, densify=densify, cancels=cancels)
    run.matmul(V, target)
    if scale is not None:
        target *= scale
    if target is not out:
        out[...] = target


def pair_votes(
    program, left, right, pairs, *, errors=None, blocks=None, cancels=None, tie_to_first=False, n_threads=None
):  # fmt: skip
    """By class the pairs that it wins, by decisions of all pairs about each row.

    Parameters
    ----------
    program, left, right, blocks, cancels, n_threads
        As in `gram`; the columns are the terms of the decisions, class by class.
    pairs : tuple of ndarrays
        Where each class's terms begin, and end (k + 1,); coefficients (k − 1, m), those of a pair (a, b) in
        row b − 1 of class a's terms and in row a of class b's; and intercepts (k (k − 1) / 2,).
    errors : tuple of ndarrays of shapes (k (k - 1) / 2,) and (n,), optional
        By pair and by row: the largest error of a decision is their product.
    tie_to_first : bool
        Whose a decision of 0 is.

    Returns
    -------
    votes : ndarray of shape (n, k)
        float64.
    more : ndarray of shape (n, k)
        With errors how many of a class's pairs they leave open, else sums of decisions for it.
    """
    votes, more = np.empty((2, left.n, len(pairs[0]) - 1))
    run = _pairs_run(program, left, right, pairs, blocks, cancels, n_threads)
    of_pairs = of_rows = None
    if errors is not None:
        # what is below that is rounding of float32 itself, and no product is 0 · ∞
        of_pairs, of_rows = _typed(run, np.maximum(errors[0], _LEAST_ERROR)), _typed(run, errors[1])
    run.pairs(*_typed_pairs(run, pairs), of_pairs, of_rows, tie_to_first, votes, more, None)
    return votes, more


def pair_decisions(program, left, right, pairs, out, *, blocks=None, n_threads=None):
    """Fill ``out`` (n, k (k - 1) / 2), C-ordered float64, with the decisions that `pair_votes` counts."""
    run = _pairs_run(program, left, right, pairs, blocks, None, n_threads)
    run.pairs(*_typed_pairs(run, pairs), None, None, False, None, None, out)


def pair_votes_given(decisions, k, *, tie_to_first=False):
    """The votes and sums of `pair_votes`, by given decisions (n, k (k − 1) / 2)."""
    votes, sums = np.empty((2, len(decisions), k))
    _gram.pairs_given(np.ascontiguousarray(decisions, dtype=np.float64), tie_to_first, votes, sums)
    return votes, sums


def _pairs_run(program, left, right, pairs, blocks, cancels, n_threads):
    if right.n != pairs[0][-1]:
        raise ValueError(f"{pairs[0][-1]} terms were described, and {right.n} given")
    dtype, threads = dtype_of(left), count_threads(n_threads)
    return _gram.Run(program, left, right, False, blocks, dtype, threads, densify=True, cancels=cancels)


def _typed_pairs(run, pairs):
    starts, coefficients, intercept = pairs
    k = len(starts) - 1
    # native code takes these for granted
    if coefficients.shape != (k - 1, starts[-1]) or intercept.shape != (k * (k - 1) // 2,):
        raise ValueError(
            f"{k} classes with {starts[-1]} terms do not go with coefficients {coefficients.shape} and "
            f"intercepts {intercept.shape}"
        )
    return np.asarray(starts, dtype=np.intp), _typed(run, coefficients), _typed(run, intercept)


def _typed(run, values):
    with np.errstate(over="ignore", under="ignore"):
        return np.ascontiguousarray(values, dtype=run.dtype)


def _doubles(array):
    if array is None:
        return None
    if sparse.issparse(array):
        array = array.toarray()
    return np.ascontiguousarray(array, dtype=np.float64)


def _dense(side):
    return Side(side.n, [_doubles(f) for f in side.features], np.asarray(side.vecs, dtype=np.float64))


def _adjoint(program, left, right, tangent, blocks, n_threads):
    n_leaves = len(program.leaves)
    if tangent is not None:
        tangent = Tangent(
            left=[_doubles(f) for f in tangent.left or [None] * n_leaves],
            right=[_doubles(f) for f in tangent.right or [None] * n_leaves],
            left_vecs=_doubles(tangent.left_vecs),
            right_vecs=_doubles(tangent.right_vecs),
            slots=_doubles(tangent.slots),
            log_weights=None if tangent.log_weights is None else [_doubles(w) for w in tangent.log_weights],
            blocks={index: _doubles(block) for index, block in (tangent.blocks or {}).items()},
        )
    return _gram.Adjoint(program, _dense(left), _dense(right), tangent, blocks, count_threads(n_threads))


def push(program, left, right, tangent, out, blocks=None, n_threads=None):
    """Fill ``out`` (n, m) with the directional derivative of K along a `Tangent`."""
    target = out if out.flags.c_contiguous and out.dtype == FLOAT64 else np.empty(out.shape)
    _adjoint(program, left, right, tangent, blocks, n_threads).push(target)
    if target is not out:
        out[...] = target


def pull(program, left, right, G, blocks=None, n_threads=None):
    """The `Gradient` of ⟨G, K⟩ in what belongs to the rows, and in slots, weights and blocks.

    Parameters
    ----------
    program, left, right, blocks, n_threads
        As in `gram`.
    G : ndarray of shape (n, m), or a pair of arrays (C, V)
        The pair, (n, p) and (m, p), stands for C @ V.T, which is not formed.
    """
    return Gradient(*_adjoint(program, left, right, None, blocks, n_threads).pull(G)[0])


def pull_push(program, left, right, G, tangent, blocks=None, n_threads=None):
    """The gradient as by `pull`, and its directional derivative along a `Tangent` at fixed G."""
    first, second = _adjoint(program, left, right, tangent, blocks, n_threads).pull(G)
    return Gradient(*first), Gradient(*second)


def simd(name, x):
    """A function of the vector library on an array of float32 or float64."""
    x = np.ascontiguousarray(x)
    y = np.empty_like(x)
    if _gram.simd(_SIMD_FUNCTIONS.index(name), x, y):
        raise ValueError(f"the vector library has no {name}")
    return y

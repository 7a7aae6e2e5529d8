"""Derivatives of a compiled kernel: from the samples and hyperparameters to the program's inputs, and back.

``_native`` differentiates K in what a program reads: features, row vectors, slots, weights, blocks. Here
the chain rule takes them on to X, Z and the hyperparameters through the views, the row functions and the
monomials, for the first and the second order. All of it is O(n·d).

Place on the way: ``prepared`` → **derivatives** → ``_native`` | ``pairs``.

Hyperparameters are named by path. ``_native`` gives a row side's gradient; the columns' comes from a
second call with the sides swapped. In the symmetric case one call with G + Gᵀ is the total derivative in
X, and counts twice what belongs to pairs: slots, weights and one-sided views.
"""

from dataclasses import dataclass

import numpy as np

from .. import _native
from .chain import Ends, Sum, slot_gradient, slot_second, weight_gradient, weight_second
from .prepared import check_range, n_rows, take_rows
from .program import LeafKind
from .views import plus

# A strip has at most so many pairs of rows.
_STRIP_ENTRIES = 2**20

__all__ = ["ALL", "Wanted", "pullback", "pullback_pushforward", "pushforward"]


@dataclass(frozen=True)
class Wanted:
    """Which gradients are asked for; the others come out as None, or partly.

    Attributes
    ----------
    rows, columns : bool
        dX and dZ. In the symmetric case `rows` is both.
    params : bool
        dparams.
    """

    rows: bool = True
    columns: bool = True
    params: bool = True

    def of_strips(self, Z):
        """What strips of rows against all columns are asked for."""
        return self if Z is not None else Wanted(self.rows, self.rows, self.params)

    def swapped(self, program):
        """Whether a call with the sides swapped is needed."""
        through = bool(program.vecs) or any(
            leaf.kind != LeafKind.BLOCK and leaf.view.has_params for leaf in program.leaves
        )
        return (self.columns and _reaches_samples(program)) or (self.params and through)

    def from_block(self, leaf):
        """Whether a BLOCK leaf's own gradient is needed."""
        return self.rows or self.columns or bool(leaf.view.kernel._bounds)


ALL = Wanted()


# ---------------------------------------------------------------- row strips of matrix leaves


def _strips(program, X, Z):
    """Row strips by which a program with BLOCK leaves keeps its memory at O(strip · m); else None."""
    n, m = n_rows(X), n_rows(X if Z is None else Z)
    leaves = [program.leaves[c].view for c in program.block_leaves]
    if not leaves or n * m <= _STRIP_ENTRIES or not all(leaf.has_strips for leaf in leaves):
        return None
    step = max(1, _STRIP_ENTRIES // m)
    return [slice(start, min(n, start + step)) for start in range(0, n, step)]


def _rows_of(G, rows):
    return (G[0][rows], G[1]) if isinstance(G, tuple) else G[rows]


def _sum_of_strips(strips, X, Z, one):
    """Gradients of all strips: those of the rows side by side, all others added.

    ``one(rows, columns)`` is the gradient of a strip of rows of X against the columns. K is the same
    function of both sides, so that the symmetric case is the sum over the two of X against X.
    """
    columns = X if Z is None else Z
    dX, other = None, Sum()
    for rows in strips:
        part, d_columns, dparams = one(rows, columns)
        other.add(d_columns, dparams)
        if part is not None:
            dX = np.zeros(X.shape) if dX is None else dX
            dX[rows] = part
    if Z is None:
        return plus(dX, other.samples), None, other.params
    return dX, other.samples, other.params


# ---------------------------------------------------------------- first order


def pushforward(program, X, Z, tX, tZ, tparams, out, n_threads=None):
    """Fill ``out`` (n, m) with the directional derivative of K.

    Parameters
    ----------
    program : Program
    X, Z : ndarray or sequence
        Z None is the symmetric case, where tX moves both sides.
    tX, tZ : ndarray, or None for zero
    tparams : dict
        By path.
    out : ndarray of shape (n, m)
    """
    strips = _strips(program, X, Z)
    if strips is not None:
        columns, t_columns = (X, tX) if Z is None else (Z, tZ)
        for rows in strips:
            t = None if tX is None else tX[rows]
            pushforward(program, take_rows(X, rows), columns, t, t_columns, tparams, out[rows], n_threads)
        return out
    ends = Ends(program, X, Z)
    tangent, _ = ends.tangents(tX, tX if Z is None else tZ, tparams)
    _native.push(
        program, ends.x_rows, ends.z_columns, tangent, out, blocks=ends.blocks(), n_threads=n_threads
    )
    check_range(program, ends.X, out, out.dtype)
    return out


def _symmetrised(G):
    """G + Gᵀ, in the form that was given: a matrix, or a pair of factors."""
    if isinstance(G, tuple):
        C, V = G
        return np.hstack([C, V]), np.hstack([V, C])
    return G + G.T


def _transposed(G):
    return G[::-1] if isinstance(G, tuple) else G.T


def _reached(program, samples):
    """Leaves and row functions on the way to what is wanted: all, or those that lead to hyperparameters."""
    leaves = [
        leaf.view.differentiable and (samples or leaf.view.has_params or leaf.view.one_sided)
        for leaf in program.leaves
    ]
    return leaves, [samples or function.has_params for function in program.vecs]


def _absorb(total, program, X, gradient, *, pair_share, first, samples):
    """Add one call's gradient, on its way through views and row functions.

    ``pair_share`` weighs what belongs to pairs; ``first`` says whether this call counts it at all, and
    ``samples`` whether the gradient in X is wanted.
    """
    leaves, functions = _reached(program, samples)
    for reached, leaf, dF in zip(leaves, program.leaves, gradient.features, strict=True):
        if dF is None or not reached:
            continue
        dX, dparams = leaf.view.rows.pullback(X, dF)
        if leaf.view.one_sided and not first:
            dparams = {}
        total.add(dX, dparams, pair_share if leaf.view.one_sided else 1.0)
    for reached, function, da in zip(functions, program.vecs, gradient.vecs, strict=True):
        if reached:
            total.add(*function.pullback(X, da))
    if first:
        total.add_params(slot_gradient(program, gradient.slots), pair_share)
        total.add_params(weight_gradient(program, gradient.log_weights), pair_share)


def pullback(program, X, Z, G, n_threads=None, *, wanted=ALL):
    """Gradient of ⟨G, K⟩ in X, Z and the hyperparameters.

    Parameters
    ----------
    program : Program
    X, Z : ndarray or sequence
        Z None is the symmetric case.
    G : ndarray of shape (n, m), or a pair (C, V)
        The cotangent; a pair stands for C @ V.T.
    wanted : Wanted
        What may be left out.

    Returns
    -------
    dX, dZ : ndarray, or None
        None for discrete samples; dZ also in the symmetric case.
    dparams : dict
        By path, of what the gradient reaches.
    """
    strips = _strips(program, X, Z)
    if strips is not None:
        return _sum_of_strips(
            strips,
            X,
            Z,
            lambda rows, columns: pullback(
                program, take_rows(X, rows), columns, _rows_of(G, rows), n_threads, wanted=wanted.of_strips(Z)
            ),
        )
    ends = Ends(program, X, Z)
    blocks = ends.blocks()
    share = 0.5 if ends.symmetric else 1.0
    if ends.symmetric:
        G = _symmetrised(G)
    total = Sum()
    g = _native.pull(program, ends.x_rows, ends.z_columns, G, blocks=blocks, n_threads=n_threads)
    _check_gradient(program, ends.X, g)
    _absorb(total, program, ends.X, g, pair_share=share, first=True, samples=wanted.rows)
    other = Sum()
    if not ends.symmetric and wanted.swapped(program):
        left, right = ends.swapped()
        turned = {c: block.T for c, block in blocks.items()}
        h = _native.pull(program, left, right, _transposed(G), blocks=turned, n_threads=n_threads)
        _absorb(other, program, ends.Z, h, pair_share=share, first=False, samples=wanted.columns)
        total.add_params(other.params)
    for c, cotangent in g.blocks.items():
        if not wanted.from_block(program.leaves[c]):
            continue
        z = None if ends.symmetric else ends.Z
        dX, dZ, dparams = program.leaves[c].view.pullback(ends.X, z, share * cotangent)
        total.add(dX, dparams)
        other.add(dZ, {})
    return total.samples, other.samples, total.params


def _check_gradient(program, X, gradient):
    for dF in gradient.features:
        if dF is not None:
            check_range(program, X, dF, dF.dtype)


def _reaches_samples(program):
    return bool(program.vecs) or any(
        leaf.kind != LeafKind.BLOCK and leaf.view.differentiable for leaf in program.leaves
    )


# ---------------------------------------------------------------- second order


def _absorb_dot(total, program, X, tX, tparams, gradients, *, pair_share, first, samples):
    """As `_absorb`, for the directional derivative of the gradient."""
    g, g_dot = gradients
    leaves, functions = _reached(program, samples)
    for reached, leaf, dF, tdF in zip(leaves, program.leaves, g.features, g_dot.features, strict=True):
        if dF is None or not reached:
            continue
        tdX, tdparams = leaf.view.rows.second(X, tX, tparams, dF, tdF)
        if leaf.view.one_sided and not first:
            tdparams = {}
        total.add(tdX, tdparams, pair_share if leaf.view.one_sided else 1.0)
    for reached, function, da, tda in zip(functions, program.vecs, g.vecs, g_dot.vecs, strict=True):
        if reached:
            total.add(*function.second(X, tX, tparams, da, tda))
    if first:
        for part in (
            slot_gradient(program, g_dot.slots),
            slot_second(program, g.slots, tparams),
            weight_gradient(program, g_dot.log_weights),
            weight_second(program, g.log_weights, tparams),
        ):
            total.add_params(part, pair_share)


def pullback_pushforward(program, X, Z, G, tX, tZ, tparams, n_threads=None, *, wanted=ALL):
    """Directional derivative of `pullback` at fixed G, along tX, tZ and tparams; `wanted` as there.

    Returns
    -------
    tdX, tdZ : ndarray, or None
    tdparams : dict
        By path.
    """
    strips = _strips(program, X, Z)
    if strips is not None:

        def one(rows, columns):
            t = None if tX is None else tX[rows]
            g = _rows_of(G, rows)
            t_columns = tX if Z is None else tZ
            return pullback_pushforward(
                program,
                take_rows(X, rows),
                columns,
                g,
                t,
                t_columns,
                tparams,
                n_threads,
                wanted=wanted.of_strips(Z),
            )

        return _sum_of_strips(strips, X, Z, one)
    ends = Ends(program, X, Z)
    blocks = ends.blocks()
    share = 0.5 if ends.symmetric else 1.0
    if ends.symmetric:
        G, tZ = _symmetrised(G), tX
    tangent, swapped = ends.tangents(tX, tZ, tparams)
    total, other = Sum(), Sum()
    pair = _native.pull_push(
        program, ends.x_rows, ends.z_columns, G, tangent, blocks=blocks, n_threads=n_threads
    )
    _check_gradient(program, ends.X, pair[1])
    _absorb_dot(total, program, ends.X, tX, tparams, pair, pair_share=share, first=True, samples=wanted.rows)
    if not ends.symmetric and wanted.swapped(program):
        left, right = ends.swapped()
        turned = {c: block.T for c, block in blocks.items()}
        turned_pair = _native.pull_push(
            program, left, right, _transposed(G), swapped(), blocks=turned, n_threads=n_threads
        )
        _absorb_dot(
            other,
            program,
            ends.Z,
            tZ,
            tparams,
            turned_pair,
            pair_share=share,
            first=False,
            samples=wanted.columns,
        )
        total.add_params(other.params)
    for c in program.block_leaves:
        if not wanted.from_block(program.leaves[c]):
            continue
        source, z = program.leaves[c].view, None if ends.symmetric else ends.Z
        cotangent, cotangent_dot = share * pair[0].blocks[c], share * pair[1].blocks[c]
        tz = None if ends.symmetric else tZ
        for tdX, tdZ, tdparams in (
            source.pullback(ends.X, z, cotangent_dot),
            source.second(ends.X, z, cotangent, tX, tz, tparams),
        ):
            total.add(tdX, tdparams)
            other.add(tdZ, {})
    return total.samples, other.samples, total.params

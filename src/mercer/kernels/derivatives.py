"""Derivatives of a compiled kernel: from the samples and hyperparameters to the program's inputs, and back.

``_native`` differentiates K in what a program reads: features, row vectors, slots, weights, blocks. Here
the chain rule takes them on to X, Z and the hyperparameters through the views, the row functions and the
monomials, for the first and the second order. All of it is O(n·d).

Place on the way: ``prepared`` → **derivatives** → ``_native`` | ``pairs``.

Hyperparameters are named by path. ``_native`` gives a row side's gradient; the columns' comes from a
second call with the sides swapped. In the symmetric case one call with G + Gᵀ is the total derivative in
X, and counts twice what belongs to pairs: slots, weights and one-sided views.
"""

import numpy as np

from .. import _native
from . import pairs
from .prepared import densify, n_rows, row_vectors
from .program import LeafKind, Side, Tangent
from .views import plus

__all__ = ["diag_pull", "diag_pull_push", "diag_push", "pullback", "pullback_pushforward", "pushforward"]


# ---------------------------------------------------------------- sums


class _Sum:
    """A gradient being added up: in the samples (None while it is zero), and by path."""

    def __init__(self):
        self.samples, self.params = None, {}

    def add(self, samples, params, share=1.0):
        self.samples = plus(self.samples, samples)
        self.add_params(params, share)

    def add_params(self, params, share=1.0):
        for path, value in params.items():
            value = share * value
            self.params[path] = self.params[path] + value if path in self.params else value


def _times(g, slope):
    return 0.0 if g == 0 else g * slope


def _slot_gradient(program, slots):
    """By path, Σ s̄ ∂slot/∂θ."""
    total = _Sum()
    for slot, g in zip(program.slots, slots, strict=True):
        for path in slot.paths:
            total.add_params({path: _times(g, slot.derivative(path).value(program.params))})
    return total.params


def _slot_second(program, slots, tparams):
    """By path, Σ s̄ ∂²slot/∂θ∂φ φ̇: the part of the gradient's tangent at fixed s̄."""
    total = _Sum()
    for slot, g in zip(program.slots, slots, strict=True):
        for path in slot.paths:
            first = slot.derivative(path)
            dot = sum(
                _times(tparams.get(other, 0.0), first.derivative(other).value(program.params))
                for other in first.paths
            )
            total.add_params({path: _times(g, dot)})
    return total.params


def _weight_gradient(program, log_weights):
    """By path; w = c θ^e, so ∂log w/∂θ = e/θ."""
    total = _Sum()
    for leaf, g in zip(program.leaves, log_weights, strict=True):
        if leaf.weight is not None:
            theta = np.asarray(program.params[leaf.weight.path], dtype=np.float64)
            total.add_params({leaf.weight.path: leaf.weight.exponent * _folded(g, theta) / theta})
    return total.params


def _weight_second(program, log_weights, tparams):
    """By path, the tangent of e·ḡ/θ at fixed ḡ: −e ḡ θ̇/θ²."""
    total = _Sum()
    for leaf, g in zip(program.leaves, log_weights, strict=True):
        if leaf.weight is not None and leaf.weight.path in tparams:
            theta = np.asarray(program.params[leaf.weight.path], dtype=np.float64)
            ratio = tparams[leaf.weight.path] / theta
            total.add_params({leaf.weight.path: -leaf.weight.exponent * _folded(g, theta) * ratio / theta})
    return total.params


def _folded(g, theta):
    return g if theta.ndim else g.sum()


# ---------------------------------------------------------------- sides and tangents


class _Ends:
    """A program's inputs on both sides in the form that derivative runs read (see ``View.rows``)."""

    def __init__(self, program, X, Z):
        self.program = program
        self.symmetric = Z is None
        self.X = _dense(X)
        self.Z = self.X if self.symmetric else _dense(Z)
        x_vecs = row_vectors(program, self.X)
        z_vecs = x_vecs if self.symmetric else row_vectors(program, self.Z)
        self.x_rows, self.z_columns = self._sides(self.X, self.Z, x_vecs, z_vecs)
        self._vecs = x_vecs, z_vecs

    def swapped(self):
        """The sides of the call for the columns' gradient."""
        return self._sides(self.Z, self.X, *self._vecs[::-1])

    def _sides(self, X, Z, x_vecs, z_vecs):
        lefts, rights = [], []
        for leaf in self.program.leaves:
            left = right = None
            if leaf.kind != LeafKind.BLOCK and leaf.view.differentiable:
                left, right = leaf.view.rows.apply(X), leaf.view.columns.apply(Z)
            elif leaf.kind != LeafKind.BLOCK:
                left, right = (_dense(f) for f in leaf.view.sides(X, Z))
            lefts.append(left)
            rights.append(right)
        return Side(n_rows(X), lefts, x_vecs), Side(n_rows(Z), rights, z_vecs)

    def blocks(self):
        """Values of the BLOCK leaves."""
        z = None if self.symmetric else self.Z
        return {c: self.program.leaves[c].view.block(self.X, z) for c in self.program.block_leaves}

    def features_dot(self, X, tX, tparams, role):
        """Tangents of the features of one side; the role is "rows" or "columns"."""
        out = []
        for leaf in self.program.leaves:
            if leaf.kind == LeafKind.BLOCK or not leaf.view.differentiable:
                out.append(None)
            else:
                out.append(getattr(leaf.view, role).pushforward(X, tX, tparams))
        return out

    def vecs_dot(self, X, tX, tparams):
        """Tangents of the row vectors of one side, or None."""
        if not self.program.vecs:
            return None
        return np.array([f.pushforward(X, tX, tparams) for f in self.program.vecs])

    def weights_dot(self, tparams):
        """Tangents ẇ/w of the weights, per leaf (d,) or None."""
        return [
            None
            if leaf.weight is None
            else _weight_dot(self.program, leaf.weight, tparams, features.shape[1])
            for leaf, features in zip(self.program.leaves, self.x_rows.features, strict=True)
        ]

    def tangents(self, tX, tZ, tparams):
        """The program's tangent, and that of the swapped call."""
        program = self.program
        slots = np.array([_slot_dot(program, slot, tparams) for slot in program.slots])
        weights = self.weights_dot(tparams)
        z = None if self.symmetric else self.Z
        blocks = {
            c: program.leaves[c].view.pushforward(self.X, z, tX, None if z is None else tZ, tparams)
            for c in program.block_leaves
        }
        x_vecs = self.vecs_dot(self.X, tX, tparams)
        z_vecs = x_vecs if self.symmetric else self.vecs_dot(self.Z, tZ, tparams)
        forward = Tangent(
            left=self.features_dot(self.X, tX, tparams, "rows"),
            right=self.features_dot(self.Z, tZ, tparams, "columns"),
            left_vecs=x_vecs,
            right_vecs=z_vecs,
            slots=slots,
            log_weights=weights,
            blocks=blocks,
        )

        def swapped():
            return Tangent(
                left=self.features_dot(self.Z, tZ, tparams, "rows"),
                right=self.features_dot(self.X, tX, tparams, "columns"),
                left_vecs=z_vecs,
                right_vecs=x_vecs,
                slots=slots,
                log_weights=weights,
                blocks={c: block.T for c, block in blocks.items()},
            )

        return forward, swapped


def _dense(X):
    return densify(X, "a kernel's derivative") if hasattr(X, "shape") else X


def _slot_dot(program, slot, tparams):
    return sum(
        _times(tparams.get(path, 0.0), slot.derivative(path).value(program.params)) for path in slot.paths
    )


def _weight_dot(program, weight, tparams, d):
    if weight.path not in tparams:
        return None
    rate = weight.exponent * tparams[weight.path] / np.asarray(program.params[weight.path], np.float64)
    return np.broadcast_to(rate, (d,)).astype(np.float64)


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
    ends = _Ends(program, X, Z)
    tangent, _ = ends.tangents(tX, tX if Z is None else tZ, tparams)
    _native.push(
        program, ends.x_rows, ends.z_columns, tangent, out, blocks=ends.blocks(), n_threads=n_threads
    )
    return out


def _symmetrised(G):
    """G + Gᵀ, in the form that was given: a matrix, or a pair of factors."""
    if isinstance(G, tuple):
        C, V = G
        return np.hstack([C, V]), np.hstack([V, C])
    return G + G.T


def _transposed(G):
    return G[::-1] if isinstance(G, tuple) else G.T


def _absorb(total, program, X, gradient, *, pair_share, first):
    """Add one call's gradient, on its way through views and row functions.

    ``pair_share`` weighs what belongs to pairs; ``first`` says whether this call counts it at all.
    """
    for leaf, dF in zip(program.leaves, gradient.features, strict=True):
        if dF is None or not leaf.view.differentiable:
            continue
        dX, dparams = leaf.view.rows.pullback(X, dF)
        if leaf.view.one_sided and not first:
            dparams = {}
        total.add(dX, dparams, pair_share if leaf.view.one_sided else 1.0)
    for function, da in zip(program.vecs, gradient.vecs, strict=True):
        total.add(*function.pullback(X, da))
    if first:
        total.add_params(_slot_gradient(program, gradient.slots), pair_share)
        total.add_params(_weight_gradient(program, gradient.log_weights), pair_share)


def pullback(program, X, Z, G, n_threads=None):
    """Gradient of ⟨G, K⟩ in X, Z and the hyperparameters.

    Parameters
    ----------
    program : Program
    X, Z : ndarray or sequence
        Z None is the symmetric case.
    G : ndarray of shape (n, m), or a pair (C, V)
        The cotangent; a pair stands for C @ V.T.

    Returns
    -------
    dX, dZ : ndarray, or None
        None for discrete samples; dZ also in the symmetric case.
    dparams : dict
        By path, of what the gradient reaches.
    """
    ends = _Ends(program, X, Z)
    blocks = ends.blocks()
    share = 0.5 if ends.symmetric else 1.0
    if ends.symmetric:
        G = _symmetrised(G)
    total = _Sum()
    g = _native.pull(program, ends.x_rows, ends.z_columns, G, blocks=blocks, n_threads=n_threads)
    _absorb(total, program, ends.X, g, pair_share=share, first=True)
    other = _Sum()
    if not ends.symmetric and _reaches_samples(program):
        left, right = ends.swapped()
        turned = {c: block.T for c, block in blocks.items()}
        h = _native.pull(program, left, right, _transposed(G), blocks=turned, n_threads=n_threads)
        _absorb(other, program, ends.Z, h, pair_share=share, first=False)
        total.add_params(other.params)
    for c, cotangent in g.blocks.items():
        z = None if ends.symmetric else ends.Z
        dX, dZ, dparams = program.leaves[c].view.pullback(ends.X, z, share * cotangent)
        total.add(dX, dparams)
        other.add(dZ, {})
    return total.samples, other.samples, total.params


def _reaches_samples(program):
    return bool(program.vecs) or any(
        leaf.kind != LeafKind.BLOCK and leaf.view.differentiable for leaf in program.leaves
    )


# ---------------------------------------------------------------- second order


def _absorb_dot(total, program, X, tX, tparams, gradients, *, pair_share, first):
    """As `_absorb`, for the directional derivative of the gradient."""
    g, g_dot = gradients
    for leaf, dF, tdF in zip(program.leaves, g.features, g_dot.features, strict=True):
        if dF is None or not leaf.view.differentiable:
            continue
        tdX, tdparams = leaf.view.rows.second(X, tX, tparams, dF, tdF)
        if leaf.view.one_sided and not first:
            tdparams = {}
        total.add(tdX, tdparams, pair_share if leaf.view.one_sided else 1.0)
    for function, da, tda in zip(program.vecs, g.vecs, g_dot.vecs, strict=True):
        total.add(*function.second(X, tX, tparams, da, tda))
    if first:
        for part in (
            _slot_gradient(program, g_dot.slots),
            _slot_second(program, g.slots, tparams),
            _weight_gradient(program, g_dot.log_weights),
            _weight_second(program, g.log_weights, tparams),
        ):
            total.add_params(part, pair_share)


def pullback_pushforward(program, X, Z, G, tX, tZ, tparams, n_threads=None):
    """Directional derivative of `pullback` at fixed G, along tX, tZ and tparams.

    Returns
    -------
    tdX, tdZ : ndarray, or None
    tdparams : dict
        By path.
    """
    ends = _Ends(program, X, Z)
    blocks = ends.blocks()
    share = 0.5 if ends.symmetric else 1.0
    if ends.symmetric:
        G, tZ = _symmetrised(G), tX
    tangent, swapped = ends.tangents(tX, tZ, tparams)
    total, other = _Sum(), _Sum()
    pair = _native.pull_push(
        program, ends.x_rows, ends.z_columns, G, tangent, blocks=blocks, n_threads=n_threads
    )
    _absorb_dot(total, program, ends.X, tX, tparams, pair, pair_share=share, first=True)
    if not ends.symmetric and _reaches_samples(program):
        left, right = ends.swapped()
        turned = {c: block.T for c, block in blocks.items()}
        turned_pair = _native.pull_push(
            program, left, right, _transposed(G), swapped(), blocks=turned, n_threads=n_threads
        )
        _absorb_dot(other, program, ends.Z, tZ, tparams, turned_pair, pair_share=share, first=False)
        total.add_params(other.params)
    for c in program.block_leaves:
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


# ---------------------------------------------------------------- the diagonal


def _diag_ends(program, X):
    ends = _Ends(program, X, None)
    blocks = {c: program.leaves[c].view.diag(ends.X, None) for c in program.block_leaves}
    return ends, blocks


def diag_push(program, X, tX, tparams):
    """Directional derivative of k(x_i, x_i), (n,)."""
    ends, blocks = _diag_ends(program, X)
    return pairs.push(program, ends.x_rows, ends.z_columns, _diag_tangent(ends, tX, tparams), blocks)


def _diag_tangent(ends, tX, tparams):
    program = ends.program
    vecs = ends.vecs_dot(ends.X, tX, tparams)
    return Tangent(
        left=ends.features_dot(ends.X, tX, tparams, "rows"),
        right=ends.features_dot(ends.X, tX, tparams, "columns"),
        left_vecs=vecs,
        right_vecs=vecs,
        slots=np.array([_slot_dot(program, slot, tparams) for slot in program.slots]),
        log_weights=ends.weights_dot(tparams),
        blocks={
            c: program.leaves[c].view.diag_pushforward(ends.X, tX, tparams) for c in program.block_leaves
        },
    )


def diag_pull(program, X, g):
    """Gradient of Σ gᵢ k(x_i, x_i): dX (or None), and a dict by path."""
    ends, blocks = _diag_ends(program, X)
    grad = pairs.pull(program, ends.x_rows, ends.z_columns, g, blocks)
    total = _Sum()
    for leaf, left, right in zip(program.leaves, grad.left, grad.right, strict=True):
        if left is not None and leaf.view.differentiable:
            total.add(*leaf.view.rows.pullback(ends.X, left))
            total.add(*leaf.view.columns.pullback(ends.X, right))
    for function, left, right in zip(program.vecs, grad.left_vecs, grad.right_vecs, strict=True):
        total.add(*function.pullback(ends.X, left + right))
    total.add_params(_slot_gradient(program, grad.slots))
    total.add_params(_weight_gradient(program, grad.log_weights))
    for c, cotangent in grad.blocks.items():
        total.add(*program.leaves[c].view.diag_pullback(ends.X, cotangent))
    return total.samples, total.params


def diag_pull_push(program, X, g, tg, tX, tparams):
    """Directional derivative of `diag_pull` along tg, tX and tparams."""
    ends, blocks = _diag_ends(program, X)
    tangent = _diag_tangent(ends, tX, tparams)
    grad, grad_dot = pairs.pull_push(program, ends.x_rows, ends.z_columns, g, tangent, blocks)
    total = _Sum()
    total.add(*diag_pull(program, X, tg))
    for c, leaf in enumerate(program.leaves):
        if grad.left[c] is not None and leaf.view.differentiable:
            rows, columns = leaf.view.rows, leaf.view.columns
            total.add(*rows.second(ends.X, tX, tparams, grad.left[c], grad_dot.left[c]))
            total.add(*columns.second(ends.X, tX, tparams, grad.right[c], grad_dot.right[c]))
    for v, function in enumerate(program.vecs):
        da, tda = grad.left_vecs[v] + grad.right_vecs[v], grad_dot.left_vecs[v] + grad_dot.right_vecs[v]
        total.add(*function.second(ends.X, tX, tparams, da, tda))
    for part in (
        _slot_gradient(program, grad_dot.slots),
        _slot_second(program, grad.slots, tparams),
        _weight_gradient(program, grad_dot.log_weights),
        _weight_second(program, grad.log_weights, tparams),
    ):
        total.add_params(part)
    for c in program.block_leaves:
        source = program.leaves[c].view
        total.add(*source.diag_pullback(ends.X, grad_dot.blocks[c]))
        total.add(*source.diag_second(ends.X, grad.blocks[c], tX, tparams))
    return total.samples, total.params

"""The chain rule between what a program reads and what a user gave: samples and hyperparameters.

Place on the way: ``prepared`` → **chain** → ``derivatives``, ``diag``.
"""

import numpy as np

from .prepared import densify, n_rows, row_vectors
from .program import LeafKind, Side, Tangent
from .views import plus

__all__ = ["Ends", "Sum", "slot_gradient", "slot_second", "weight_gradient", "weight_second"]


# ---------------------------------------------------------------- sums


class Sum:
    """A gradient being added up: in the samples (None while it is zero), and by path."""

    def __init__(self):
        self.samples, self.params = None, {}

    def add(self, samples, params, share=1.0):
        """Add a gradient; the share weighs that in the hyperparameters."""
        self.samples = plus(self.samples, samples)
        self.add_params(params, share)

    def add_params(self, params, share=1.0):
        """Add a gradient by path, times the share."""
        for path, value in params.items():
            value = share * value
            self.params[path] = self.params[path] + value if path in self.params else value


def _times(g, slope):
    return 0.0 if g == 0 else g * slope


def slot_gradient(program, slots):
    """By path, Σ s̄ ∂slot/∂θ."""
    total = Sum()
    for slot, g in zip(program.slots, slots, strict=True):
        for path in slot.paths:
            total.add_params({path: _times(g, slot.derivative(path).value(program.params))})
    return total.params


def slot_second(program, slots, tparams):
    """By path, Σ s̄ ∂²slot/∂θ∂φ φ̇: the part of the gradient's tangent at fixed s̄."""
    total = Sum()
    for slot, g in zip(program.slots, slots, strict=True):
        for path in slot.paths:
            first = slot.derivative(path)
            dot = sum(
                _times(tparams.get(other, 0.0), first.derivative(other).value(program.params))
                for other in first.paths
            )
            total.add_params({path: _times(g, dot)})
    return total.params


def weight_gradient(program, log_weights):
    """By path; w = c θ^e, so ∂log w/∂θ = e/θ."""
    total = Sum()
    for leaf, g in zip(program.leaves, log_weights, strict=True):
        if leaf.weight is not None:
            theta = np.asarray(program.params[leaf.weight.path], dtype=np.float64)
            total.add_params({leaf.weight.path: leaf.weight.exponent * _folded(g, theta) / theta})
    return total.params


def weight_second(program, log_weights, tparams):
    """By path, the tangent of e·ḡ/θ at fixed ḡ: −e ḡ θ̇/θ²."""
    total = Sum()
    for leaf, g in zip(program.leaves, log_weights, strict=True):
        if leaf.weight is not None and leaf.weight.path in tparams:
            theta = np.asarray(program.params[leaf.weight.path], dtype=np.float64)
            ratio = tparams[leaf.weight.path] / theta
            total.add_params({leaf.weight.path: -leaf.weight.exponent * _folded(g, theta) * ratio / theta})
    return total.params


def _folded(g, theta):
    return g if theta.ndim else g.sum()


# ---------------------------------------------------------------- sides and tangents


class Ends:
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

    def slots_dot(self, tparams):
        """Tangents of the slots, (n_slots,)."""
        return np.array([_slot_dot(self.program, slot, tparams) for slot in self.program.slots])

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
        slots = self.slots_dot(tparams)
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

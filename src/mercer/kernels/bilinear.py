"""The second derivative of a kernel along two directions, D²k[t, s], on pairs of rows in plain NumPy.

Place on the way: ``chain`` → **bilinear** → ``differentiable``, ``rows``. A program runs on numbers with two
infinitesimals: a value, its derivatives along t and along s, and the mixed one. The matrix D²K[t, s] is what
forward mode over forward mode needs; the other three nestings have a gradient in them, and run compiled
(``pullback_pushforward``).

Conventions are those of ``pairs``.
"""

from dataclasses import dataclass

import numpy as np

from . import leaves as _leaves
from .chain import Ends
from .pairs import elementwise
from .prepared import n_rows
from .program import Opcode

__all__ = ["diag_second_push", "second_pushforward"]

# Entries of the widest array of pairs that one strip of rows makes.
_STRIP_ENTRIES = 2**20


def _times(a, b):
    """a·b, and 0 where either is 0."""
    return np.where((a == 0) | (b == 0), 0.0, a * b)


@dataclass(frozen=True)
class _Jet:
    """A value, its derivatives along t and along s, and the mixed second derivative."""

    v: np.ndarray
    t: np.ndarray
    s: np.ndarray
    ts: np.ndarray

    def __add__(self, other):
        return _Jet(self.v + other.v, self.t + other.t, self.s + other.s, self.ts + other.ts)

    def __mul__(self, other):
        return _Jet(
            self.v * other.v,
            _times(self.t, other.v) + _times(self.v, other.t),
            _times(self.s, other.v) + _times(self.v, other.s),
            _times(self.ts, other.v)
            + _times(self.t, other.s)
            + _times(self.s, other.t)
            + _times(self.v, other.ts),
        )

    def through(self, f, f1, f2):
        """The jet of a function of one number, of which the derivatives are given."""
        ts = _times(self.ts, f1) + _times(_times(self.t, self.s), f2)
        return _Jet(f, _times(self.t, f1), _times(self.s, f1), ts)

    def rows(self, index):
        """Entries by index along the first axis."""
        return _Jet(*(part[index] for part in (self.v, self.t, self.s, self.ts)))


def _jet(v, t, s, ts):
    """A jet in float64, None being zero."""
    v = np.asarray(v, dtype=np.float64)
    zero = np.zeros(v.shape)
    return _Jet(v, *(zero if part is None else np.asarray(part, np.float64) for part in (t, s, ts)))


class _Inputs:
    """Jets of all that a program reads, of both sides.

    Parameters
    ----------
    program : Program
    X, Z : ndarray or sequence
        Z None for the symmetric case.
    t, s : tuple of (tX, tZ, tparams)
        The directions; tparams by path, tZ unused in the symmetric case.
    """

    def __init__(self, program, X, Z, t, s):
        ends = Ends(program, X, Z)
        self.program, self.ends = program, ends
        (tX, tZ, self.t), (sX, sZ, self.s) = t, s
        self.left = self._features("rows", ends.x_rows, ends.X, tX, sX)
        self.vecs = self._vecs(ends.X, ends.x_rows.vecs, tX, sX)
        if ends.symmetric:
            tZ, sZ, self.right_vecs = tX, sX, self.vecs
        else:
            self.right_vecs = self._vecs(ends.Z, ends.z_columns.vecs, tZ, sZ)
        self.right = self._features("columns", ends.z_columns, ends.Z, tZ, sZ)
        self.directions = (tX, tZ), (sX, sZ)
        self.slots = _jet(
            program.slot_values,
            ends.slots_dot(self.t),
            ends.slots_dot(self.s),
            [_slot_mixed(program, slot, self.t, self.s) for slot in program.slots],
        )
        self.weights = self._weights()

    def _features(self, role, side, X, tX, sX):
        out = []
        for leaf, features in zip(self.program.leaves, side.features, strict=True):
            if features is None:
                out.append(None)
            elif not leaf.view.differentiable:
                dense = features.toarray() if hasattr(features, "toarray") else features
                out.append(_jet(dense, None, None, None))
            else:
                view = getattr(leaf.view, role)
                out.append(
                    _jet(
                        features,
                        view.pushforward(X, tX, self.t),
                        view.pushforward(X, sX, self.s),
                        view.mixed(X, (tX, self.t), (sX, self.s)),
                    )
                )
        return out

    def _vecs(self, X, values, tX, sX):
        return [
            _jet(
                value,
                f.pushforward(X, tX, self.t),
                f.pushforward(X, sX, self.s),
                f.mixed(X, (tX, self.t), (sX, self.s)),
            )
            for f, value in zip(self.program.vecs, values, strict=True)
        ]

    def _weights(self):
        """Per leaf (w, ẇ/w along t, along s, D²(log w)[t, s]), or None."""
        out = []
        first, second = self.ends.weights_dot(self.t), self.ends.weights_dot(self.s)
        for leaf, jet, lt, ls in zip(self.program.leaves, self.left, first, second, strict=True):
            if leaf.weight is None:
                out.append(None)
                continue
            zero = np.zeros(jet.v.shape[1])
            w = leaf.weight.value(self.program.params, len(zero))
            lt, ls = (zero if one is None else one for one in (lt, ls))
            # log w = e log θ + const., so D²(log w)[t, s] = −e θ̇ₜ θ̇ₛ/θ².
            out.append((w, lt, ls, -lt * ls / leaf.weight.exponent))
        return out

    def blocks(self):
        """Per BLOCK leaf its jet, (n, m)."""
        X, Z = self.ends.X, None if self.ends.symmetric else self.ends.Z
        (tX, tZ), (sX, sZ) = self.directions
        tZ, sZ = (None, None) if Z is None else (tZ, sZ)
        out = {}
        for c in self.program.block_leaves:
            source = self.program.leaves[c].view
            out[c] = _jet(
                source.block(X, Z),
                source.pushforward(X, Z, tX, tZ, self.t),
                source.pushforward(X, Z, sX, sZ, self.s),
                source.mixed(X, Z, (tX, tZ, self.t), (sX, sZ, self.s)),
            )
        return out

    def diag_blocks(self):
        """Per BLOCK leaf the jet of its diagonal, (n,)."""
        X, (tX, _), (sX, _) = self.ends.X, *self.directions
        out = {}
        for c in self.program.block_leaves:
            source = self.program.leaves[c].view
            out[c] = _jet(
                source.diag(X, None),
                source.diag_pushforward(X, tX, self.t),
                source.diag_pushforward(X, sX, self.s),
                source.diag_mixed(X, (tX, self.t), (sX, self.s)),
            )
        return out

    def run(self, i, j, blocks):
        """D²k of the pairs (x_i, z_j), for two arrays of indices and the blocks' jets of those pairs."""
        out = []
        for op, a, b, c in self.program.ops.tolist():
            if op == Opcode.LEAF:
                jet = blocks[c] if c in blocks else self._leaf(c, i, j)
            elif op == Opcode.ADD:
                jet = out[a] + out[b]
            elif op == Opcode.MUL:
                jet = out[a] * out[b]
            elif op == Opcode.MULC:
                jet = out[a] * self.slots.rows(c)
            elif op == Opcode.ADDC:
                jet = out[a] + self.slots.rows(c)
            elif op in (Opcode.MODULATE, Opcode.OFFSET):
                f, h = self.vecs[c].rows(i), self.right_vecs[c].rows(j)
                jet = out[a] * f * h if op == Opcode.MODULATE else out[a] + f + h
            else:
                jet = out[a].through(*elementwise(op, out[a].v, c))
            out.append(jet)
        return out[-1].ts

    def _leaf(self, c, i, j):
        leaf, x, z = self.program.leaves[c], self.left[c].rows(i), self.right[c].rows(j)
        w, lt, ls, lts = self.weights[c] or (None, 0.0, 0.0, 0.0)
        first = _leaves.partials(leaf, x.v, z.v, w)
        moved = _leaves.partials_dot(leaf, x.v, z.v, w, x.s, z.s, ls)

        def along(slopes, tx, tz, tw):
            total = _times(tx, slopes[0]) + _times(tz, slopes[1])
            return total if slopes[2] is None else total + _times(tw, slopes[2])

        t = along(first, x.t, z.t, lt).sum(axis=1)
        s = along(first, x.s, z.s, ls).sum(axis=1)
        ts = (along(first, x.ts, z.ts, lts) + along(moved, x.t, z.t, lt)).sum(axis=1)
        return _Jet(_leaves.value(leaf, x.v, z.v, w), t, s, ts)


def _slot_mixed(program, slot, t, s):
    """D²slot[t, s] = Σ ∂²slot/∂θ∂φ θ̇ₜ φ̇ₛ."""
    total = 0.0
    for path in slot.paths:
        first = slot.derivative(path)
        for other in first.paths:
            product = t.get(path, 0.0) * s.get(other, 0.0)
            if product != 0.0:
                total += product * first.derivative(other).value(program.params)
    return total


@np.errstate(all="ignore")
def second_pushforward(program, X, Z, t, s, out):
    """Fill ``out`` (n, m) with the second derivative of K along t and s.

    Parameters
    ----------
    program : Program
    X, Z : ndarray or sequence
        Z None is the symmetric case, where tX and sX move both sides.
    t, s : tuple of (tX, tZ, tparams)
        Directions; None for zero, tparams by path.
    out : ndarray of shape (n, m)
    """
    inputs = _Inputs(program, X, Z, t, s)
    blocks = inputs.blocks()
    n, m = out.shape
    widest = max([1, *(jet.v.shape[1] for jet in inputs.left if jet is not None)])
    step = max(1, _STRIP_ENTRIES // max(1, m * widest))
    for start in range(0, n, step):
        rows = np.arange(start, min(n, start + step))
        i, j = np.repeat(rows, m), np.tile(np.arange(m), len(rows))
        part = {c: block.rows((i, j)) for c, block in blocks.items()}
        out[rows] = inputs.run(i, j, part).reshape(len(rows), m)
    return out


@np.errstate(all="ignore")
def diag_second_push(program, X, t, s):
    """Second derivative of the diagonal k(x_i, x_i) along (tX, tparams) and (sX, sparams), (n,)."""
    (tX, tparams), (sX, sparams) = t, s
    inputs = _Inputs(program, X, None, (tX, None, tparams), (sX, None, sparams))
    every = np.arange(n_rows(X))
    return inputs.run(every, every, inputs.diag_blocks())

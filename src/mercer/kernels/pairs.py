"""Kernel programs on pairs of rows, in plain NumPy: ``k.diag``, and the oracle for the tile engine.

Place on the way: ``program`` → **pairs** (pair i is row i of the left side and row i of the right side). The
same meaning as ``_native`` has for all n·m pairs, in float64 throughout. A derivative of a derivative comes
from running the reverse sweep on dual numbers.

Conventions: a zero cotangent or tangent stays zero through an infinite slope, and a zero slope makes an
infinite one zero; Matérn ν = ½ has derivative 0 at r = 0.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from . import leaves as _leaves
from .program import Opcode

__all__ = ["PairGradient", "elementwise", "pull", "pull_push", "push", "value"]


@dataclass
class PairGradient:
    """Gradient of Σ gᵢ kᵢ over pairs, in both sides.

    Attributes
    ----------
    left, right : list
        Per leaf a float64 array (n, d), or None for BLOCK.
    left_vecs, right_vecs : ndarray of shape (n_vecs, n)
    slots : ndarray of shape (n_slots,)
    log_weights : list
        Per leaf an array (d,), or None.
    blocks : dict
        Per BLOCK leaf an array (n,).
    """

    left: list
    right: list
    left_vecs: np.ndarray
    right_vecs: np.ndarray
    slots: np.ndarray
    log_weights: list
    blocks: dict


@dataclass(frozen=True)
class _Dual:
    """A value and its directional derivative."""

    v: np.ndarray
    t: np.ndarray

    def __add__(self, other):
        return _Dual(self.v + other.v, self.t + other.t)

    def __mul__(self, other):
        return _Dual(self.v * other.v, _times(self.t, other.v) + _times(other.t, self.v))

    def times(self, slope):
        """Self as a cotangent, times a slope: zero stays zero."""
        return _Dual(_times(self.v, slope.v), _times(self.t, slope.v) + _times(self.v, slope.t))


def _times(g, f):
    """g·f, and 0 where either is 0: what has vanished stays so against a rate that overflowed."""
    return np.where((g == 0) | (f == 0), 0.0, g * f)


@np.errstate(all="ignore")
def elementwise(opcode, a, power=-1):
    """One of the elementwise operations, with its first and second derivative.

    Parameters
    ----------
    opcode : Opcode
    a : ndarray
    power : int
        The exponent of POW and POWM1.

    Returns
    -------
    f, f1, f2 : ndarray
    """
    if opcode == Opcode.EXP:
        f = np.exp(a)
        return f, f, f
    if opcode == Opcode.EXPNEG:
        f = np.exp(-a)
        return f, -f, f
    if opcode in (Opcode.MATERN12, Opcode.MATERN32, Opcode.MATERN52):
        return _matern(opcode, a)
    if opcode == Opcode.LOG1P:
        inverse = 1.0 / (1.0 + a)
        return np.log1p(a), inverse, -(inverse**2)
    if opcode == Opcode.TANH:
        f = np.tanh(a)
        # 1/cosh² keeps its digits where 1 − tanh² loses them.
        slope = 1.0 / np.cosh(a) ** 2
        return f, slope, -2.0 * f * slope
    base = a if opcode == Opcode.POW else 1.0 + a
    f1 = power * base ** (power - 1)
    f2 = power * (power - 1) * base ** (power - 2) if power > 1 else np.zeros_like(a)
    if opcode == Opcode.POW:
        return base**power, f1, f2
    small = np.expm1(power * np.log1p(np.clip(a, -0.5, 0.5)))
    return np.where(np.abs(a) <= 0.5, small, base**power - 1.0), f1, f2


def _matern(opcode, s):
    """Matérn functions of s = r², with derivatives in s; dq/ds = p²/(2q) for q = p·r."""
    p = {Opcode.MATERN12: 1.0, Opcode.MATERN32: np.sqrt(3.0), Opcode.MATERN52: np.sqrt(5.0)}[opcode]
    # Capped where exp(−q) has long been 0, so that no inf meets it.
    q = np.minimum(p * np.sqrt(s), 1e4)
    e = np.exp(-q)
    # Rounding may lift (1 + q)e^(−q) over 1 at a small q: hence the minimum.
    at_zero = q == 0
    over_q = np.where(at_zero, 0.0, 1.0 / np.where(at_zero, 1.0, q))
    if opcode == Opcode.MATERN12:
        return e, -0.5 * e * over_q, 0.25 * e * over_q**2 * (1.0 + over_q)
    if opcode == Opcode.MATERN32:
        return np.minimum((1.0 + q) * e, 1.0), -1.5 * e, 2.25 * e * over_q
    return np.minimum((1.0 + q + q**2 / 3.0) * e, 1.0), -5.0 / 6.0 * (1.0 + q) * e, 25.0 / 12.0 * e


def _rows(features):
    if features is None:
        return None
    if sparse.issparse(features):
        features = features.toarray()
    return np.asarray(features, dtype=np.float64)


class _Run:
    """A program on given pairs along a given direction (zero unless a tangent is given)."""

    def __init__(self, program, left, right, tangent=None, blocks=None):
        self.program, self.n = program, left.n
        self.x = [_rows(f) for f in left.features]
        self.z = [_rows(f) for f in right.features]
        self.blocks = blocks or {}
        self.w = [
            None if leaf.weight is None else leaf.weight.value(program.params, x.shape[1])
            for leaf, x in zip(program.leaves, self.x, strict=True)
        ]
        none = [None] * len(program.leaves)
        t = tangent
        self.tx = self._tangents(self.x, none if t is None else t.left)
        self.tz = self._tangents(self.z, none if t is None else t.right)
        self.tw = self._tangents(self.w, none if t is None or t.log_weights is None else t.log_weights)
        self.tblocks = {} if t is None else t.blocks
        self.slots = self._dual(program.slot_values, None if t is None else t.slots)
        self.left_vecs = self._dual(left.vecs, None if t is None else t.left_vecs)
        self.right_vecs = self._dual(right.vecs, None if t is None else t.right_vecs)

    @staticmethod
    def _tangents(values, tangents):
        return [
            None if v is None else np.zeros_like(v) if t is None else np.asarray(t, dtype=np.float64)
            for v, t in zip(values, tangents, strict=True)
        ]

    @staticmethod
    def _dual(value, tangent):
        value = np.asarray(value, dtype=np.float64)
        return _Dual(value, np.zeros_like(value) if tangent is None else np.asarray(tangent, np.float64))

    def _vec(self, c):
        f, h = self.left_vecs, self.right_vecs
        return _Dual(f.v[c], f.t[c]), _Dual(h.v[c], h.t[c])

    def _slot(self, c):
        return _Dual(self.slots.v[c], self.slots.t[c])

    def _leaf(self, c):
        if self.x[c] is None:
            value = np.asarray(self.blocks[c], dtype=np.float64)
            tangent = self.tblocks.get(c)
            return _Dual(value, np.zeros_like(value) if tangent is None else tangent)
        leaf, x, z, w = self.program.leaves[c], self.x[c], self.z[c], self.w[c]
        value = _leaves.value(leaf, x, z, w)
        tangent = np.zeros_like(value)
        if np.any(self.tx[c]) or np.any(self.tz[c]) or (w is not None and np.any(self.tw[c])):
            s_x, s_z, s_w = _leaves.partials(leaf, x, z, w)
            tangent = np.sum(_times(self.tx[c], s_x) + _times(self.tz[c], s_z), axis=1)
            if w is not None:
                tangent += np.sum(_times(self.tw[c], s_w), axis=1)
        return _Dual(value, tangent)

    def forward(self):
        """All registers."""
        out = []
        for op, a, b, c in self.program.ops.tolist():
            out.append(self._step(op, out[a] if a >= 0 else None, out[b] if b >= 0 else None, c))
        return out

    def _step(self, op, a, b, c):
        if op == Opcode.LEAF:
            return self._leaf(c)
        if op == Opcode.ADD:
            return a + b
        if op == Opcode.MUL:
            return a * b
        if op == Opcode.MULC:
            return a * self._slot(c)
        if op == Opcode.ADDC:
            return a + self._slot(c)
        if op in (Opcode.MODULATE, Opcode.OFFSET):
            f, h = self._vec(c)
            return a * f * h if op == Opcode.MODULATE else a + f + h
        f, f1, _ = elementwise(op, a.v, c)
        return _Dual(f, _times(a.t, f1))

    def reverse(self, g):
        """The gradient of Σ g·k and its directional derivative."""
        registers = self.forward()
        zero = _Dual(np.zeros(self.n), np.zeros(self.n))
        bars = [zero] * len(registers)
        bars[-1] = _Dual(np.asarray(g, dtype=np.float64), np.zeros(self.n))
        out = self._zeros(), self._zeros()
        for i in range(len(registers) - 1, -1, -1):
            op, a, b, c = self.program.ops[i].tolist()
            bar = bars[i]
            if op == Opcode.LEAF:
                self._leaf_back(c, bar, out)
            elif op == Opcode.ADD:
                bars[a] = bars[a] + bar
                bars[b] = bars[b] + bar
            elif op == Opcode.MUL:
                bars[a] = bars[a] + bar.times(registers[b])
                bars[b] = bars[b] + bar.times(registers[a])
            else:
                bars[a] = bars[a] + self._unary_back(op, registers[a], c, bar, out)
        return out

    def _zeros(self):
        def like(features):
            return [None if f is None else np.zeros(f.shape) for f in features]

        n_vecs = self.left_vecs.v.shape[0]
        return PairGradient(
            left=like(self.x),
            right=like(self.z),
            left_vecs=np.zeros((n_vecs, self.n)),
            right_vecs=np.zeros((n_vecs, self.n)),
            slots=np.zeros(len(self.slots.v)),
            log_weights=like(self.w),
            blocks={c: np.zeros(self.n) for c in self.program.block_leaves},
        )

    def _unary_back(self, op, a, c, bar, out):
        if op == Opcode.MULC:
            self._to_slot(c, bar.times(a), out)
            return bar.times(self._slot(c))
        if op == Opcode.ADDC:
            self._to_slot(c, bar, out)
            return bar
        if op in (Opcode.MODULATE, Opcode.OFFSET):
            f, h = self._vec(c)
            to_f, to_h = (bar.times(a * h), bar.times(a * f)) if op == Opcode.MODULATE else (bar, bar)
            for grad, f_part, h_part in zip(out, (to_f.v, to_f.t), (to_h.v, to_h.t), strict=True):
                grad.left_vecs[c] += f_part
                grad.right_vecs[c] += h_part
            return bar.times(f * h) if op == Opcode.MODULATE else bar
        _, f1, f2 = elementwise(op, a.v, c)
        return bar.times(_Dual(f1, _times(a.t, f2)))

    @staticmethod
    def _to_slot(c, part, out):
        out[0].slots[c] += part.v.sum()
        out[1].slots[c] += part.t.sum()

    def _leaf_back(self, c, bar, out):
        if self.x[c] is None:
            out[0].blocks[c] += bar.v
            out[1].blocks[c] += bar.t
            return
        leaf, x, z, w = self.program.leaves[c], self.x[c], self.z[c], self.w[c]
        first = _leaves.partials(leaf, x, z, w)
        second = _leaves.partials_dot(leaf, x, z, w, self.tx[c], self.tz[c], self.tw[c])
        bar = _Dual(bar.v[:, None], bar.t[:, None])
        parts = [None if s is None else bar.times(_Dual(s, ts)) for s, ts in zip(first, second, strict=True)]
        for grad, name in zip(out, "vt", strict=True):
            grad.left[c] += getattr(parts[0], name)
            grad.right[c] += getattr(parts[1], name)
            if w is not None:
                grad.log_weights[c] += getattr(parts[2], name).sum(axis=0)


@np.errstate(all="ignore")
def value(program, left, right, blocks=None):
    """Kernel value of each pair.

    Parameters
    ----------
    program : Program
    left, right : Side
        Of equally many rows n.
    blocks : dict
        Per BLOCK leaf an array (n,).

    Returns
    -------
    ndarray of shape (n,)
    """
    return _Run(program, left, right, None, blocks).forward()[-1].v


@np.errstate(all="ignore")
def push(program, left, right, tangent, blocks=None):
    """Directional derivative of each pair's value, (n,)."""
    return _Run(program, left, right, tangent, blocks).forward()[-1].t


@np.errstate(all="ignore")
def pull(program, left, right, g, blocks=None):
    """Gradient of Σ gᵢ kᵢ, a `PairGradient`."""
    return _Run(program, left, right, None, blocks).reverse(g)[0]


@np.errstate(all="ignore")
def pull_push(program, left, right, g, tangent, blocks=None):
    """Gradient of Σ gᵢ kᵢ and its directional derivative at fixed g, two `PairGradient`."""
    return _Run(program, left, right, tangent, blocks).reverse(g)

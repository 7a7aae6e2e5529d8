"""Kernels whose distance in feature space grows with a plain distance of the samples.

Place on the way: ``program`` → **distance** → ``estimators``, whose search for neighbours then needs no
kernel values: the order is that of the plain distance, and digits that k(x, x) − 2k(x, z) + k(z, z) cancels
are kept.
"""

from dataclasses import dataclass, replace
from math import factorial

import numpy as np

from .program import Leaf, LeafKind, Opcode

__all__ = ["DistanceForm", "distance_form"]

_MATERN = (Opcode.MATERN12, Opcode.MATERN32, Opcode.MATERN52)
_DISTANCES = (LeafKind.SQDIST, LeafKind.L1, LeafKind.CHI2)


@dataclass(frozen=True)
class DistanceForm:
    """k(x, x) − 2k(x, z) + k(z, z) as an increasing function of one leaf's distance s.

    Attributes
    ----------
    leaf : Leaf
        SQDIST, L1 or CHI2, without weights.
    weight : ndarray of shape (d,) or None
        Weights of the features, where they differ.
    factor : float
        What s is multiplied by for the weights that do not.
    chain : tuple
        (opcode, constant) from the leaf to the kernel; None where the kernel is the leaf's dot product times
        `scale`.
    scale : float
    """

    leaf: Leaf
    weight: np.ndarray | None
    factor: float
    chain: tuple | None
    scale: float = 1.0

    @np.errstate(all="ignore")
    def squared(self, s):
        """Squared distances in feature space, of plain distances s ≥ 0.

        Parameters
        ----------
        s : ndarray
            float64; infinity is allowed.

        Returns
        -------
        ndarray
        """
        s = self.factor * s
        if self.chain is None:
            return self.scale * s
        # f(s) = start + change, kept apart so that a small change keeps its digits.
        start, change = 0.0, s
        for opcode, constant in self.chain:
            start, change = _advance(opcode, constant, start, change)
        return np.maximum(-2.0 * change, 0.0)


def _advance(opcode, c, start, change):
    """One operation on start + change: the new start and change."""
    if opcode == Opcode.MULC:
        return start * c, change * c
    if opcode == Opcode.ADDC:
        return start + c, change
    if opcode == Opcode.EXP:
        return np.exp(start), np.exp(start) * np.expm1(change)
    if opcode == Opcode.EXPNEG:
        return np.exp(-start), np.exp(-start) * np.expm1(-change)
    if opcode == Opcode.LOG1P:
        return np.log1p(start), np.log1p(change / (1.0 + start))
    if opcode == Opcode.POW:
        # b^p − a^p = (b − a) Σ b^i a^(p−1−i)
        end = start + change
        return start**c, change * sum(end**i * start ** (c - 1 - i) for i in range(c))
    return 1.0, _matern_change(opcode, np.sqrt(change))


def _matern_change(opcode, r):
    """Matérn's f(r) − 1; by its series near 0, where the parts cancel."""
    if opcode == Opcode.MATERN12:
        return np.expm1(-r)
    wide = opcode == Opcode.MATERN52
    q = np.sqrt(5.0 if wide else 3.0) * r
    plain = np.where(np.isinf(q), -1.0, (q + (q * q / 3.0 if wide else 0.0)) * np.exp(-q) + np.expm1(-q))
    # (1 + q)e^(−q) = Σ (−q)ⁿ (1 − n)/n!, and with q²/3 more Σ (−q)ⁿ (n − 1)(n − 3)/(3 n!)
    small = np.minimum(q, 1.0)
    series = np.zeros_like(small)
    for n in range(22, 1, -1):
        term = (n - 1) * (n - 3) / 3 if wide else 1 - n
        series = series * -small + term / factorial(n)
    return np.where(q < 1.0, series * small**2, plain)


def _chain(program):
    """(opcode, constant) of each operation after the leaf, if they are one chain; else None."""
    chain, values = [], program.slot_values
    for at, (opcode, a, b, c) in enumerate(program.ops.tolist()):
        if at == 0:
            if opcode != Opcode.LEAF:
                return None
            continue
        if a != at - 1 or b >= 0 or opcode in (Opcode.MODULATE, Opcode.OFFSET, Opcode.LEAF):
            return None
        constant = float(values[c]) if opcode in (Opcode.MULC, Opcode.ADDC) else c
        chain.append((Opcode(opcode), constant))
    return tuple(chain)


def _decreases(chain):
    """Whether the chain certainly decreases in s ≥ 0."""
    rises, nonnegative, at_zero = True, True, True
    for opcode, constant in chain:
        if opcode == Opcode.MULC:
            if constant == 0 or not np.isfinite(constant):
                return False
            rises, nonnegative = rises == (constant > 0), nonnegative and constant > 0
        elif opcode == Opcode.ADDC:
            nonnegative, at_zero = nonnegative and constant >= 0, at_zero and constant == 0
        elif opcode in (Opcode.EXP, Opcode.EXPNEG):
            rises, nonnegative, at_zero = rises == (opcode == Opcode.EXP), True, False
        elif opcode in _MATERN and at_zero and nonnegative and rises:
            rises, at_zero = False, False
        elif opcode not in (Opcode.LOG1P, Opcode.POW) or not nonnegative:
            return False
    return not rises


def distance_form(program, n_features):
    """The distance that a program's neighbours are ordered by, if there is one.

    Parameters
    ----------
    program : Program
    n_features : int or None
        Columns of the samples.

    Returns
    -------
    DistanceForm or None
        None where kernel values must be compared.
    """
    if len(program.leaves) != 1 or len(program.vecs) or (chain := _chain(program)) is None:
        return None
    (leaf,) = program.leaves
    if leaf.kind == LeafKind.DOT:
        return _of_dot_product(leaf, chain)
    if leaf.kind not in _DISTANCES or not _decreases(chain):
        return None
    if leaf.weight is None:
        return DistanceForm(leaf, None, 1.0, chain)
    weight = leaf.weight.value(program.params, leaf.view.n_features(n_features))
    leaf = replace(leaf, weight=None)
    if len(weight) and np.all(weight == weight[0]):
        # Without weights distances of whole numbers are exact; extreme scales are applied before squares are
        # taken.
        if 1e-50 < weight[0] < 1e50:
            return DistanceForm(
                leaf, None, float(weight[0]) ** (2 if leaf.kind == LeafKind.SQDIST else 1), chain
            )
    return DistanceForm(leaf, weight, 1.0, chain)


def _of_dot_product(leaf, chain):
    # c·xᵀz + b has the distance c‖x − z‖²: nothing cancels, however far the samples are from 0.
    scale = 1.0
    for opcode, constant in chain:
        if opcode == Opcode.MULC and 0 < constant < np.inf:
            scale *= constant
        elif opcode != Opcode.ADDC and (opcode, constant) != (Opcode.POW, 1):
            return None
    return DistanceForm(replace(leaf, kind=LeafKind.SQDIST), None, 1.0, None, scale)

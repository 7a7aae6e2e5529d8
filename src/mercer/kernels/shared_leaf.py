"""A leaf's values in memory, for kernels that differ in what they make of them: a grid's, of one γ each.

Place on the way: ``program``, ``_native`` → **shared_leaf** → ``solvers``, ``model_selection``.
"""

import threading
from dataclasses import replace

import numpy as np
from scipy import sparse

from .. import _native
from .prepared import width
from .program import Leaf, LeafKind, Monomial, Opcode, Program, Side

__all__ = ["SharedLeaf", "SharedLeaves"]

# Kinds that may be shared, and the power of a scalar weight that is a factor of their values.
_POWERS = {LeafKind.DOT: 0, LeafKind.SQDIST: 2, LeafKind.L1: 1, LeafKind.CHI2: 0}
# Of so many numbers in a row on, to read a value takes less time than to compute it (3000 rows, two Zen 4
# cores, a matrix by its leaf against as a whole: 57 features 1.1 times as long, 100 0.8, 180 0.5, 256 0.4).
_FROM = 128


class SharedLeaves:
    """The leaves of kernels of the same samples."""

    def __init__(self):
        self._known = []

    def of(self, kernel, X):
        """The `SharedLeaf` of one kernel more, or None where its leaf is not worth keeping.

        Parameters
        ----------
        kernel : Kernel
        X : ndarray, csr_array or sequence
            The samples, as the kernel's check returns them.

        Returns
        -------
        SharedLeaf or None
        """
        program = kernel._compiled(width(X))
        for leaf in self._known:
            if leaf.over(program) is not None:
                leaf.users += 1
                return leaf
        if not SharedLeaf.takes(program, X):
            return None
        self._known.append(SharedLeaf(program))
        return self._known[-1]


class SharedLeaf:
    """Values of the only leaf of a kernel for all pairs of rows of one sample.

    Parameters
    ----------
    program : Program
        Of the kernel: it sets the scale of the values.

    Attributes
    ----------
    users : int
        Kernels that have it; of one alone nothing is kept.
    """

    def __init__(self, program):
        (leaf,) = program.leaves
        self._leaf, self._weight, self.users = leaf, _weight(program, leaf), 1
        ops = np.array([[Opcode.LEAF, -1, -1, 0]], dtype=np.int32)
        self._program = Program(ops, program.leaves, (), (), program.params)
        self._lock, self._values = threading.Lock(), {}

    @staticmethod
    def takes(program, X):
        """Whether the only leaf of a program is one of those that are worth keeping."""
        if len(program.leaves) != 1 or program.leaves[0].kind not in _POWERS:
            return False
        (leaf,) = program.leaves
        plain = not leaf.view.has_params and _weight(program, leaf) is not None
        numbers = X.nnz / X.shape[0] if sparse.issparse(X) else width(X) or 0
        return plain and numbers >= _FROM

    def over(self, program):
        """The program with this leaf's values as a given matrix; None where its leaf is another one."""
        bare = [replace(leaf, weight=None) for leaf in (*program.leaves, self._leaf)]
        if len(bare) != 2 or bare[0] != bare[1]:
            return None
        weight = _weight(program, program.leaves[0])
        if weight is None:
            return None
        with np.errstate(all="ignore"):
            factor = (np.float64(weight) / self._weight) ** _POWERS[self._leaf.kind]
        if not (0 < factor < np.inf):
            return None
        given = replace(program, leaves=(Leaf(LeafKind.BLOCK, None),))
        return given if factor == 1 else _scaled(given, float(factor))

    def fill(self, program, side, out, key, *, n_threads=None, on_step=None):
        """The symmetric kernel matrix (n, n) of a side, into `out`.

        Parameters
        ----------
        program : Program
        side : Side
            float64.
        out : ndarray of shape (n, n)
        key : hashable
            The same for the same side.
        n_threads, on_step
            As for ``_native.gram``.
        """
        over = self.over(program) if self.users > 1 else None
        options = {"symmetric": True, "n_threads": n_threads, "on_step": on_step}
        if over is None:
            _native.gram(program, side, side, out, **options)
            return
        with self._lock:
            if key not in self._values:
                values = _native.empty((side.n, side.n), np.dtype(np.float64), n_threads)
                _native.gram(self._program, side, side, values, **options)
                self._values[key] = values
        given = Side(side.n, [None], side.vecs)
        _native.gram(over, given, given, out, blocks={0: self._values[key]}, **options)


def _weight(program, leaf):
    """A leaf's weight for all features, 1 without one; None where features have their own."""
    if leaf.weight is None:
        return 1.0
    if np.ndim(program.params[leaf.weight.path]):
        return None
    return float(leaf.weight.value(program.params, 1)[0])


def _scaled(program, factor):
    """The program with its leaf's value times a factor."""
    place = int(np.flatnonzero(program.ops[:, 0] == Opcode.LEAF)[0])
    ops = program.ops.copy()
    registers = ops[:, 1:3]
    registers[registers >= place] += 1
    times = [[Opcode.MULC, place, -1, len(program.slots)]]
    ops = np.concatenate([ops[: place + 1], times, ops[place + 1 :]]).astype(np.int32)
    return replace(program, ops=ops, slots=(*program.slots, Monomial(factor)))

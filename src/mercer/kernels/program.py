"""The kernel program: what a kernel expression compiles to, and what the tile engine runs.

An expression becomes a flat list of operations in single-assignment form: operation ``i`` writes
register ``i``, the last register is the kernel value. A *leaf* reduces two feature rows to one number
(a dot product, a squared distance, …); every other operation is elementwise, with at most one
parameter per pair of rows, which keeps the derivative rules to a value, a first and a second
derivative each.

Place on the way: kernel expression → **program** → ``_native`` (tiles) or ``pairs`` (row pairs).
"""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

__all__ = [
    "Builder",
    "Gradient",
    "Leaf",
    "LeafKind",
    "Monomial",
    "Opcode",
    "Program",
    "Side",
    "Tangent",
    "Weight",
]


class LeafKind(IntEnum):
    """How a leaf reduces two feature rows x, z to one number s; δ = x − z, w the leaf's weights."""

    DOT = 0  # Σ x z
    SQDIST = 1  # Σ (w δ)²
    L1 = 2  # Σ w |δ|
    CHI2 = 3  # Σ (x − z)² / (x + z), 0 where x + z = 0
    DIRICHLET = 4  # Π r(δ), r(δ) = sin((2D+1)πδ)/sin(πδ), over 2D+1 each if unit
    BLOCK = 5  # given as a matrix: user functions, lookups, precomputed


class Opcode(IntEnum):
    """Operations of a program; ``a``, ``b`` are registers, ``c`` the last field of an operation."""

    LEAF = 0  # s of leaf c
    ADD = 1  # a + b
    MUL = 2  # a * b
    MULC = 3  # a * slot[c]
    ADDC = 4  # a + slot[c]
    MODULATE = 5  # a * vec[c][i] * vec[c][j]
    OFFSET = 6  # a + vec[c][i] + vec[c][j]
    EXP = 7  # exp(a)
    EXPNEG = 8  # exp(−a)
    MATERN12 = 9  # exp(−r), r = √a
    MATERN32 = 10  # (1 + √3 r) exp(−√3 r)
    MATERN52 = 11  # (1 + √5 r + 5r²/3) exp(−√5 r)
    LOG1P = 12  # log(1 + a)
    TANH = 13  # tanh(a)
    POW = 14  # a^c, c ≥ 1
    POWM1 = 15  # (1 + a)^c − 1, c ≥ 1, without cancellation at small a


_LARGEST = np.finfo(np.float64).max


def _finite(values):
    """Cut to the finite range: an infinite weight or slot would make NaN of a distance 0."""
    return np.minimum(np.maximum(values, -_LARGEST), _LARGEST)  # clip takes three times as long


@dataclass(frozen=True)
class Monomial:
    """``coefficient · Π θ^exponent`` over named scalar hyperparameters.

    Every slot of a program is one, so that its derivatives with respect to the hyperparameters are
    again monomials.
    """

    coefficient: float = 1.0
    exponents: tuple = ()  # ((path, exponent), …), no path twice

    @np.errstate(all="ignore")
    def value(self, params):
        """Value at ``params``, a dict from path to float; 0⁰ = 1; infinity where it leaves the range."""
        out = np.float64(self.coefficient)
        for path, exponent in self.exponents:
            out = out * np.float64(params[path]) ** exponent
        return float(out)

    def derivative(self, path):
        """The monomial ∂/∂θ_path (with coefficient 0 if it does not occur)."""
        exponents = dict(self.exponents)
        power = exponents.pop(path, 0)
        if power == 0:
            return Monomial(0.0)
        if power != 1:
            exponents[path] = power - 1
        return Monomial(self.coefficient * power, tuple(exponents.items()))

    @property
    def paths(self):
        """Names of the hyperparameters that occur."""
        return tuple(path for path, _ in self.exponents)


@dataclass(frozen=True)
class Weight:
    """Feature weights ``w = coefficient · θ^exponent`` of a difference leaf, scalar or per feature."""

    path: str
    exponent: float
    coefficient: float = 1.0

    @np.errstate(all="ignore")
    def value(self, params, n_features):
        """The weights as a float64 array of shape (n_features,)."""
        theta = np.asarray(params[self.path], dtype=np.float64)
        return np.full(n_features, _finite(self.coefficient * theta**self.exponent))


@dataclass(frozen=True)
class Leaf:
    """A leaf: its kind, the view that makes its features from X, and what it needs besides."""

    kind: LeafKind
    view: object  # kernels.views.View; for BLOCK the kernel that computes the block
    weight: Weight | None = None  # SQDIST and L1 only
    degree: int = 0  # DIRICHLET only
    unit: bool = False  # DIRICHLET only: each factor over 2D+1, so that it is 1 at integers


@dataclass(frozen=True)
class Side:
    """One side (the rows X, or the columns Z) of a run of a program.

    Attributes
    ----------
    n : int
        Rows.
    features : list
        Per leaf an ndarray of shape (n, d), any strides, or a canonical CSR array; None for BLOCK.
    vecs : ndarray of shape (n_vecs, n)
        The row vectors of MODULATE and OFFSET, float64.
    """

    n: int
    features: list
    vecs: np.ndarray


@dataclass(frozen=True)
class Program:
    """A compiled expression: operations, leaves, row functions, slots, and the hyperparameters' values.

    ``ops`` is an int32 array of shape (n_ops, 4) with rows (opcode, a, b, c).
    """

    ops: np.ndarray
    leaves: tuple
    vecs: tuple  # kernels.views.RowFunction
    slots: tuple  # Monomial
    params: dict = field(hash=False, compare=False)  # path -> float or ndarray

    @property
    def slot_values(self):
        """Values of the slots, float64 of shape (n_slots,)."""
        return _finite(np.array([slot.value(self.params) for slot in self.slots], dtype=np.float64))

    @property
    def block_leaves(self):
        """Indices of the leaves whose values arrive as matrices."""
        return [i for i, leaf in enumerate(self.leaves) if leaf.kind == LeafKind.BLOCK]


class Builder:
    """Collects a program while an expression's nodes emit themselves.

    A node emits by calling the methods below; each returns the register that it wrote. Equal leaves are
    emitted once.
    """

    def __init__(self):
        self._ops, self._leaves, self._vecs, self._slots = [], [], [], []
        self.params = {}

    def param(self, path, value):
        """Declare a hyperparameter by its full path."""
        self.params[path] = value

    def _emit(self, opcode, a=-1, b=-1, c=-1):
        op = (int(opcode), a, b, c)
        # The same operation on the same registers is the same value.
        if op in self._ops:
            return self._ops.index(op)
        self._ops.append(op)
        return len(self._ops) - 1

    def leaf(self, leaf):
        """Emit a leaf."""
        if leaf not in self._leaves:
            self._leaves.append(leaf)
        return self._emit(Opcode.LEAF, c=self._leaves.index(leaf))

    def add(self, a, b):
        """Emit a + b."""
        return self._emit(Opcode.ADD, a, b)

    def mul(self, a, b):
        """Emit a * b."""
        return self._emit(Opcode.MUL, a, b)

    def _slot(self, slot):
        if slot not in self._slots:
            self._slots.append(slot)
        return self._slots.index(slot)

    def scale(self, a, slot):
        """Emit a * slot, a Monomial."""
        return self._emit(Opcode.MULC, a, c=self._slot(slot))

    def shift(self, a, slot):
        """Emit a + slot, a Monomial."""
        return self._emit(Opcode.ADDC, a, c=self._slot(slot))

    def _vec(self, row_function):
        self._vecs.append(row_function)
        return len(self._vecs) - 1

    def modulate(self, a, row_function):
        """Emit a · f(x) f(z)."""
        return self._emit(Opcode.MODULATE, a, c=self._vec(row_function))

    def offset(self, a, row_function):
        """Emit a + f(x) + f(z)."""
        return self._emit(Opcode.OFFSET, a, c=self._vec(row_function))

    def unary(self, opcode, a, power=-1):
        """Emit an elementwise function of one register."""
        return self._emit(opcode, a, c=power)

    def program(self, result):
        """The finished program, whose last register is ``result``."""
        if result != len(self._ops) - 1:
            raise AssertionError("the result must be the last operation")
        return Program(
            ops=np.array(self._ops, dtype=np.int32).reshape(-1, 4),
            leaves=tuple(self._leaves),
            vecs=tuple(self._vecs),
            slots=tuple(self._slots),
            params=dict(self.params),
        )


@dataclass(frozen=True)
class Tangent:
    """A direction in everything that a program reads; None is zero.

    Attributes
    ----------
    left, right : list
        Per leaf an ndarray like the side's features, or None.
    left_vecs, right_vecs : ndarray of shape (n_vecs, n), or None
    slots : ndarray of shape (n_slots,), or None
    log_weights : list
        Per leaf ẇ/w of shape (d,), or None.
    blocks : dict
        Per BLOCK leaf an (n, m) array.
    """

    left: list
    right: list
    left_vecs: np.ndarray | None = None
    right_vecs: np.ndarray | None = None
    slots: np.ndarray | None = None
    log_weights: list | None = None
    blocks: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Gradient:
    """The gradient of ⟨G, K⟩ in what belongs to the rows, and in the slots and weights.

    Attributes
    ----------
    features : list
        Per leaf a float64 array (n, d), or None for BLOCK.
    vecs : ndarray of shape (n_vecs, n)
    slots : ndarray of shape (n_slots,)
    log_weights : list
        Per leaf Σᵢⱼ gᵢⱼ ∂sᵢⱼ/∂log w of shape (d,), or None where a leaf has no weights.
    blocks : dict
        Per BLOCK leaf the (n, m) cotangent of its matrix.
    """

    features: list
    vecs: np.ndarray
    slots: np.ndarray
    log_weights: list
    blocks: dict

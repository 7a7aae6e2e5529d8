"""Kernels of the dot product: linear, polynomial, sigmoid, cosine, and the exponential dot product.

Place on the way: ``base.Kernel`` → **dot_product** → ``program``.

References: LN14 rules 1, 8; MLR7 (7.9)–(7.12); LINMA (4.16); SCKN.
"""

from itertools import combinations_with_replacement
from math import comb, factorial
from typing import ClassVar

import numpy as np

from .._arrays import plain
from .._memory import readable_size
from .base import Kernel
from .program import Leaf, LeafKind, Monomial, Opcode, Weight
from .rows import Norm
from .values import checked_count, checked_scale
from .views import Metric, Unit

__all__ = ["Cosine", "ExpDotProduct", "Linear", "Polynomial", "Sigmoid", "check_width"]

_NONNEGATIVE = (0.0, np.inf)
# Explicit features are a check, not a method: half a gigabyte at most.
_FEATURE_BYTES = 2**29


def check_width(owner, n, width):
    """Refuse an explicit feature matrix that is too large.

    Parameters
    ----------
    owner : str
        Whose features, for the error.
    n, width : int
        Rows and columns.
    """
    need = 8 * n * width
    if need > _FEATURE_BYTES:
        raise ValueError(
            f"the explicit features of {owner} are {width:,} per sample, {readable_size(need)} for {n} "
            "samples; use the kernel itself, for fits of many rows with KernelRidge(approximation=…)"
        )


class Linear(Kernel):
    """Linear kernel xᵀz, or xᵀAz.

    Parameters
    ----------
    metric : array_like of shape (d, d), default=None
        A, symmetric positive semidefinite; None for the identity.

    References
    ----------
    LN14 rules 1 and 8.

    Examples
    --------
    >>> from mercer.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    _bounds: ClassVar = {"metric": (-np.inf, np.inf)}

    def __init__(self, metric=None):
        if metric is not None:
            if type(metric) is list:
                metric = np.array(metric)
            object.__setattr__(self, "_root", _metric_root(np.asarray(plain(metric))))
        self._set(metric=metric)

    def _view(self, scope):
        if self.metric is None:
            return scope.view()
        matrix = np.asarray(plain(self.metric), dtype=np.float64)
        return scope.view(Metric(matrix, self._root, scope.path("metric")))

    def _emit(self, builder, scope):
        if self.metric is not None:
            self._declare(builder, scope, "metric")
        view = self._view(scope)
        if scope.n_features is not None:
            view.n_features(scope.n_features)  # raises if the metric does not fit
        return builder.leaf(Leaf(LeafKind.DOT, view))

    def _features(self, X, **options):
        return X if self.metric is None else X @ self._root


def _metric_root(A):
    """L with A = L Lᵀ; raises unless A is symmetric positive semidefinite."""
    if A.ndim != 2 or A.shape[0] != A.shape[1] or A.size == 0 or A.dtype.kind not in "fiub":
        raise ValueError(
            f"Linear: metric must be a square matrix of real numbers, got {A.dtype} of shape {A.shape}"
        )
    A = A.astype(np.float64)
    if not np.isfinite(A).all():
        i, j = np.argwhere(~np.isfinite(A))[0]
        raise ValueError(f"Linear: metric has {A[i, j]} at row {i}, column {j}")
    size = np.abs(A).max()
    gap = np.abs(A - A.T)
    if gap.max() > 1e-10 * size:
        i, j = np.unravel_index(int(np.argmax(gap)), gap.shape)
        raise ValueError(
            f"Linear: metric must be symmetric, but entries ({i}, {j}) and ({j}, {i}) are {A[i, j]} and "
            f"{A[j, i]}; use (A + A.T) / 2"
        )
    values, vectors = np.linalg.eigh(0.5 * (A + A.T))
    if values[0] < -10 * len(A) * np.finfo(np.float64).eps * max(size, np.abs(values).max()):
        raise ValueError(
            "Linear: metric must be positive semidefinite (LN14 rule 8), but it has the eigenvalue "
            f"{values[0]:.6g}"
        )
    positive = values > 0
    if not positive.any():
        return np.zeros((len(A), 1))
    return vectors[:, positive] * np.sqrt(values[positive])


class Polynomial(Kernel):
    """Polynomial kernel (γ xᵀz + c)^D, less c^D without the bias.

    Parameters
    ----------
    degree : int
        D, positive.
    gamma : float, default=1
        γ > 0.
    coef0 : float, default=1
        c ≥ 0.
    include_bias : bool, default=True
        Whether the constant feature counts; without it, c^D is taken off (without cancellation).

    References
    ----------
    MLR7 (7.12), LINMA (4.16).
    """

    _bounds: ClassVar = {"gamma": (0.0, np.inf), "coef0": _NONNEGATIVE}

    def __init__(self, degree, gamma=1.0, coef0=1.0, include_bias=True):
        checked_count("Polynomial", "degree", degree)
        checked_scale(
            "Polynomial", "gamma", gamma, rule="gamma > 0 keeps it positive semidefinite (LN14 rule 2)"
        )
        checked_scale(
            "Polynomial",
            "coef0",
            coef0,
            zero=True,
            rule="coef0 >= 0 keeps it positive semidefinite (LN14 rule 4)",
        )
        self._set(degree=degree, gamma=gamma, coef0=coef0, include_bias=bool(include_bias))

    def _emit(self, builder, scope):
        gamma, coef0 = (self._declare(builder, scope, name) for name in ("gamma", "coef0"))
        degree = int(plain(self.degree))
        s = builder.leaf(Leaf(LeafKind.DOT, scope.view()))
        if self.include_bias:
            s = builder.shift(builder.scale(s, Monomial(1.0, ((gamma, 1),))), Monomial(1.0, ((coef0, 1),)))
            return builder.unary(Opcode.POW, s, degree)
        constant = Monomial(1.0, ((coef0, degree),))
        bias = constant.value(builder.params)
        # c^D((1 + γs/c)^D − 1) does not cancel, but for a small c its parts leave the range; then there
        # is little to cancel.
        if not np.isfinite(bias):
            raise ValueError(
                f"{self!r} takes off coef0 ** degree, which is beyond the range of float64; lower either"
            )
        if bias > 1e-12:
            s = builder.scale(s, Monomial(1.0, ((gamma, 1), (coef0, -1))))
            return builder.scale(builder.unary(Opcode.POWM1, s, degree), constant)
        s = builder.shift(builder.scale(s, Monomial(1.0, ((gamma, 1),))), Monomial(1.0, ((coef0, 1),)))
        return builder.shift(builder.unary(Opcode.POW, s, degree), Monomial(-1.0, ((coef0, degree),)))

    def _features(self, X, **options):
        n, d = X.shape
        degree, gamma, c = int(plain(self.degree)), float(plain(self.gamma)), float(plain(self.coef0))
        check_width(repr(self), n, comb(d + degree, degree))
        columns = []
        for power in range(0 if self.include_bias else 1, degree + 1):
            # (γs + c)^D = Σ_p C(D, p) γ^p c^(D−p) s^p, and s^p by the multinomial theorem.
            outer = comb(degree, power) * gamma**power * c ** (degree - power)
            for chosen in combinations_with_replacement(range(d), power):
                counts = np.bincount(chosen, minlength=d) if power else np.zeros(d, dtype=int)
                ways = factorial(power)
                for count in counts.tolist():
                    ways //= factorial(count)
                columns.append(np.sqrt(outer * ways) * np.prod(X**counts, axis=1))
        return np.stack(columns, axis=1)


class Sigmoid(Kernel):
    """tanh(γ xᵀz + c), as ``sklearn.metrics.pairwise.sigmoid_kernel``; not positive semidefinite in general.

    Parameters
    ----------
    gamma : float, default=1
    coef0 : float, default=1

    Examples
    --------
    >>> from mercer.kernels import Sigmoid
    >>> Sigmoid(gamma=0.5, coef0=0.0)([[1.0, 1.0]], [[1.0, 0.0], [1.0, -1.0]]).round(3)
    array([[0.462, 0.   ]])
    """

    is_psd = None
    psd_note = "tanh(γ xᵀz + c) is not positive semidefinite for all γ, c and samples"
    _bounds: ClassVar = {"gamma": (0.0, np.inf), "coef0": (-np.inf, np.inf)}

    def __init__(self, gamma=1.0, coef0=1.0):
        checked_scale("Sigmoid", "gamma", gamma)
        value = plain(coef0)
        if np.ndim(value) != 0 or isinstance(value, str | bytes) or value is None or not np.isfinite(value):
            raise ValueError(f"Sigmoid: coef0 must be a finite number, got {value!r}")
        self._set(gamma=gamma, coef0=coef0)

    def _emit(self, builder, scope):
        gamma, coef0 = (self._declare(builder, scope, name) for name in ("gamma", "coef0"))
        s = builder.leaf(Leaf(LeafKind.DOT, scope.view()))
        s = builder.shift(builder.scale(s, Monomial(1.0, ((gamma, 1),))), Monomial(1.0, ((coef0, 1),)))
        return builder.unary(Opcode.TANH, s)


class Cosine(Kernel):
    """Cosine of the angle, xᵀz/(‖x‖‖z‖), 0 for a zero row, as scikit-learn's ``cosine_similarity``.

    Examples
    --------
    >>> from mercer.kernels import Cosine
    >>> Cosine()([[1.0, 1.0]], [[3.0, 0.0], [0.0, 0.0]]).round(3)
    array([[0.707, 0.   ]])
    """

    def __init__(self):
        self._set()

    def _emit(self, builder, scope):
        # Rows are scaled before they are multiplied: norms beyond 1e154 would overflow in a product.
        return builder.leaf(Leaf(LeafKind.DOT, scope.view(Unit())))

    def _features(self, X, **options):
        return Unit().apply(X)


class ExpDotProduct(Kernel):
    """‖x‖‖z‖ exp(β(cos∠(x, z) − 1)), the kernel of a convolutional kernel network.

    Parameters
    ----------
    beta : float
        β > 0.
    unit_norm : bool, default=False
        Promise that rows have norm 1: then exp(β(xᵀz − 1)).

    References
    ----------
    SCKN.
    """

    _bounds: ClassVar = {"beta": (0.0, np.inf)}

    def __init__(self, beta, unit_norm=False):
        checked_scale("ExpDotProduct", "beta", beta)
        self._set(beta=beta, unit_norm=bool(unit_norm))

    def _emit(self, builder, scope):
        beta = self._declare(builder, scope, "beta")
        if self.unit_norm:
            s = builder.leaf(Leaf(LeafKind.DOT, scope.view()))
            s = builder.scale(builder.shift(s, Monomial(-1.0)), Monomial(1.0, ((beta, 1),)))
            return builder.unary(Opcode.EXP, s)
        return builder.modulate(self._unit(builder, scope, beta), Norm(scope.columns))

    def _emit_normalized(self, builder, scope):
        if self.unit_norm:
            return super()._emit_normalized(builder, scope)
        return self._unit(builder, scope, self._declare(builder, scope, "beta"))

    def _unit(self, builder, scope, beta):
        # β(cos − 1) = −½β‖x̂ − ẑ‖², which is exactly 0 for equal rows.
        leaf = Leaf(LeafKind.SQDIST, scope.view(Unit()), weight=Weight(beta, 0.5, np.sqrt(0.5)))
        return builder.unary(Opcode.EXPNEG, builder.leaf(leaf))

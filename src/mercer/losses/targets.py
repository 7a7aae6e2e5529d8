"""Costs of real targets.

Place on the way: ``base`` → **targets**.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import entr

from .base import Diagonal, Loss, floats, pair, positive

__all__ = ["EpsilonInsensitive", "Huber", "Poisson", "Quantile", "Squared"]


@dataclass(frozen=True)
class Squared(Loss):
    """(f − y)².

    References
    ----------
    MLR7 (7.31).
    """

    shifts: ClassVar[bool] = True

    @np.errstate(over="ignore")
    def value(self, y, f):
        """(f − y)²."""
        y, f = pair(y, f)
        r = f - y
        r *= r
        return r

    @np.errstate(over="ignore")
    def derivative(self, y, f):
        """2(f − y)."""
        y, f = pair(y, f)
        return 2 * (f - y)

    def curvature(self, y, f):
        """2."""
        return np.full_like(floats(f), 2.0)

    def curvature_bound(self, n_classes=2):
        """2."""
        return 2.0

    @np.errstate(over="ignore")
    def conjugate(self, y, u):
        """``u y + u²/4``."""
        y, u = pair(y, u)
        return u * (y + u / 4)

    def feasible(self, y, u):
        """Every u is."""
        return floats(u)


@dataclass(frozen=True)
class Huber(Loss):
    """(f − y)² up to |f − y| = δ, and its tangent δ(2|f − y| − δ) beyond.

    Parameters
    ----------
    delta : float, default=1.0
        δ > 0; as it grows the cost becomes `Squared`.

    References
    ----------
    P. J. Huber, Robust estimation of a location parameter, 1964; twice its scale, as MLR7 (7.31) has no ½.
    """

    shifts: ClassVar[bool] = True

    delta: float = 1.0

    def __post_init__(self):
        positive(self, "delta", self.delta)

    def _clipped(self, y, f):
        y, f = pair(y, f)
        r = f - y
        return r, np.clip(r, -self.delta, self.delta)

    @np.errstate(over="ignore")
    def value(self, y, f):
        """c(2r − c), where r = f − y and c is r clipped at ±δ."""
        r, c = self._clipped(y, f)
        return c * (2 * r - c)

    def dual_box(self, y, most):
        """|a| ≤ δ w / α."""
        return -self.delta * most, self.delta * most

    @np.errstate(over="ignore")
    def derivative(self, y, f):
        """2c."""
        return 2 * self._clipped(y, f)[1]

    @np.errstate(over="ignore")
    def curvature(self, y, f):
        """2 where c = r, 0 beyond."""
        r, c = self._clipped(y, f)
        return np.where(r == c, r.dtype.type(2), r.dtype.type(0))

    def curvature_bound(self, n_classes=2):
        """2."""
        return 2.0

    @np.errstate(over="ignore")
    def conjugate(self, y, u):
        """``u y + u²/4`` for |u| ≤ 2δ."""
        y, u = pair(y, u)
        return np.where(np.abs(u) <= 2 * self.delta, u * (y + u / 4), u.dtype.type(np.inf))

    def feasible(self, y, u):
        """``u`` clipped at ±2δ."""
        return np.clip(floats(u), -2 * self.delta, 2 * self.delta)


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """max(0, |f − y| − ε).

    Parameters
    ----------
    epsilon : float, default=0.1
        ε ≥ 0; 0 is the absolute error.

    References
    ----------
    V. Vapnik, The Nature of Statistical Learning Theory, 1995, 6.1.
    """

    shifts: ClassVar[bool] = True

    smooth: ClassVar[bool] = False
    epsilon: float = 0.1

    def __post_init__(self):
        positive(self, "epsilon", self.epsilon, zero=True)

    @property
    def slopes(self):
        """Below and above the tube."""
        return -1.0, 1.0

    @property
    def tube(self):
        """Half of the width in which the cost is 0."""
        return self.epsilon

    @np.errstate(over="ignore")
    def value(self, y, f):
        """max(0, |f − y| − ε)."""
        y, f = pair(y, f)
        return np.maximum(np.abs(f - y) - self.epsilon, 0)

    @np.errstate(over="ignore")
    def derivative(self, y, f):
        """The sign of f − y outside of the tube."""
        y, f = pair(y, f)
        r = f - y
        return np.sign(r) * (np.abs(r) > self.epsilon)

    def curvature(self, y, f):
        """0."""
        return np.zeros_like(floats(f))

    @np.errstate(over="ignore")
    def conjugate(self, y, u):
        """``u y + ε|u|`` for |u| ≤ 1."""
        y, u = pair(y, u)
        size = np.abs(u)
        return np.where(size <= 1, u * y + self.epsilon * size, u.dtype.type(np.inf))

    def feasible(self, y, u):
        """``u`` clipped at ±1."""
        return np.clip(floats(u), -1, 1)


@dataclass(frozen=True)
class Quantile(Loss):
    """max(τ(y − f), (τ − 1)(y − f)), least in expectation at the τ-quantile.

    Parameters
    ----------
    level : float, default=0.5
        τ between 0 and 1; ½ is half the absolute error.

    References
    ----------
    R. Koenker and G. Bassett, Regression quantiles, 1978.
    """

    shifts: ClassVar[bool] = True

    smooth: ClassVar[bool] = False
    level: float = 0.5

    def __post_init__(self):
        positive(self, "level", self.level, below=1)

    @property
    def slopes(self):
        """Below y and above it."""
        return -self.level, 1 - self.level

    @property
    def tube(self):
        """Half of the width in which the cost is 0."""
        return 0.0

    @np.errstate(over="ignore")
    def value(self, y, f):
        """The larger of τ(y − f) and (τ − 1)(y − f)."""
        y, f = pair(y, f)
        r = y - f
        return np.maximum(self.level * r, (self.level - 1) * r)

    @np.errstate(over="ignore")
    def derivative(self, y, f):
        """−τ below y, 1 − τ above."""
        y, f = pair(y, f)
        r = f - y
        return (r > 0) * r.dtype.type(1 - self.level) - (r < 0) * r.dtype.type(self.level)

    def curvature(self, y, f):
        """0."""
        return np.zeros_like(floats(f))

    @np.errstate(over="ignore")
    def conjugate(self, y, u):
        """``u y`` for −τ ≤ u ≤ 1 − τ."""
        y, u = pair(y, u)
        return np.where((-self.level <= u) & (u <= 1 - self.level), u * y, u.dtype.type(np.inf))

    def feasible(self, y, u):
        """``u`` clipped at −τ and 1 − τ."""
        return np.clip(floats(u), -self.level, 1 - self.level)


@dataclass(frozen=True)
class Poisson(Loss):
    """eᶠ − y f: the negative log-likelihood of counts y of mean eᶠ, without its constant.

    References
    ----------
    P. McCullagh and J. A. Nelder, Generalized Linear Models, 1989, 6.2.
    """

    needs: ClassVar[str] = "nonnegative"

    @np.errstate(over="ignore")
    def value(self, y, f):
        """eᶠ − y f."""
        y, f = pair(y, f)
        # Beyond this eᶠ is infinite anyway, and y f may not be.
        return np.exp(f) - y * np.minimum(f, 1e3)

    @np.errstate(over="ignore")
    def derivative(self, y, f):
        """eᶠ − y."""
        y, f = pair(y, f)
        return np.exp(f) - y

    @np.errstate(over="ignore")
    def curvature(self, y, f):
        """eᶠ."""
        return np.exp(floats(f))

    def root(self, y, f):
        """The square root of eᶠ, which is in range where eᶠ is not."""
        with np.errstate(over="ignore"):
            return Diagonal(np.exp(0.5 * floats(f)))

    @np.errstate(over="ignore")
    def conjugate(self, y, u):
        """``v log v − v`` for v = u + y ≥ 0."""
        y, u = pair(y, u)
        v = u + y
        return -entr(v) - np.maximum(v, 0)

    def feasible(self, y, u):
        """``u`` of at least −y."""
        y, u = pair(y, u)
        return np.maximum(u, -y)

"""Kernels of the difference: RBF, Laplacian, Matérn, rational quadratic, and of histograms: chi-squared.

Place on the way: ``base.Kernel`` → **stationary** → ``program``.

References: MLR7 (7.17), (7.19); LINMA (4.19).
"""

from math import factorial
from typing import ClassVar

import numpy as np

from .._arrays import plain
from .base import Kernel
from .dot_product import check_width
from .matern import emit_general
from .program import Leaf, LeafKind, Monomial, Opcode, Weight
from .values import checked_scale

__all__ = ["RBF", "ChiSquared", "Laplacian", "Matern", "RationalQuadratic"]

_POSITIVE = (0.0, np.inf)


class _Stationary(Kernel):
    """A kernel whose diagonal is 1, so that it is its own normalisation."""

    def _emit_normalized(self, builder, scope):
        return self._emit(builder, scope)

    def _check_width(self, scope, name):
        values = plain(getattr(self, name))
        if np.ndim(values) and scope.n_features is not None and len(values) != scope.width:
            raise ValueError(
                f"{self!r} has {len(values)} values of {name}, but the samples have {scope.width} features"
            )


def _squared_distance(kernel, builder, scope, name, exponent, coefficient=1.0):
    kernel._check_width(scope, name)
    path = kernel._declare(builder, scope, name)
    return builder.leaf(Leaf(LeafKind.SQDIST, scope.view(), weight=Weight(path, exponent, coefficient)))


class RBF(_Stationary):
    """Gaussian kernel exp(−γ‖x − z‖²), or with a length scale ℓ, γ = 1/(2ℓ²).

    Parameters
    ----------
    gamma : float or array_like of shape (d,), default=None
        γ > 0; one per feature is exp(−Σ γⱼδⱼ²). None is 1, unless a length scale is given.
    length_scale : float or array_like of shape (d,), default=None
        ℓ > 0, in place of gamma. Derivatives are in whichever is given.

    References
    ----------
    MLR7 (7.17), LINMA (4.19).

    Examples
    --------
    >>> from mercer.kernels import RBF
    >>> 0.5 * RBF(gamma=2.0) + RBF(length_scale=[1.0, 3.0])
    0.5 * RBF(gamma=2.0) + RBF(length_scale=[1.0, 3.0])
    """

    _bounds: ClassVar = {"gamma": _POSITIVE, "length_scale": _POSITIVE}

    def __init__(self, gamma=None, length_scale=None):
        if gamma is not None and length_scale is not None:
            raise ValueError(
                f"RBF: give gamma or length_scale, not both; got gamma={gamma!r} and "
                f"length_scale={length_scale!r}"
            )
        if length_scale is None:
            gamma = 1.0 if gamma is None else gamma
            checked_scale("RBF", "gamma", gamma, per_feature=True)
        else:
            checked_scale("RBF", "length_scale", length_scale, per_feature=True)
        self._set(gamma=gamma, length_scale=length_scale)

    def _replace(self, **params):
        # One of the two set takes the other's place.
        for name, other in (("gamma", "length_scale"), ("length_scale", "gamma")):
            if params.get(name) is not None and other not in params:
                params[other] = None
        return super()._replace(**params)

    def _emit(self, builder, scope):
        if self.length_scale is None:
            s = _squared_distance(self, builder, scope, "gamma", 0.5)
        else:
            s = _squared_distance(self, builder, scope, "length_scale", -1, np.sqrt(0.5))
        return builder.unary(Opcode.EXPNEG, s)

    def _features(self, X, n_terms=20, **options):
        # e^(−γ(x−z)²) = e^(−γx²) e^(−γz²) Σ_m (2γxz)^m/m!, cut after n_terms, per feature.
        n, d = X.shape
        check_width(f"{self!r}, cut after {n_terms} terms per feature,", n, n_terms**d)
        if self.length_scale is None:
            gamma = np.broadcast_to(np.asarray(plain(self.gamma), dtype=np.float64), (d,))
        else:
            gamma = 0.5 / np.broadcast_to(np.asarray(plain(self.length_scale), dtype=np.float64), (d,)) ** 2
        out = np.ones((n, 1))
        for x, g in zip(X.T, gamma, strict=True):
            terms = [np.exp(-g * x**2) * np.sqrt((2 * g) ** m / factorial(m)) * x**m for m in range(n_terms)]
            out = (out[:, :, None] * np.stack(terms, axis=1)[:, None, :]).reshape(n, -1)
        return out


class Laplacian(_Stationary):
    """exp(−γ‖x − z‖₁), as ``sklearn.metrics.pairwise.laplacian_kernel``.

    Parameters
    ----------
    gamma : float or array_like of shape (d,), default=1
        γ > 0, or one per feature. The derivative of |δ| at 0 is 0.

    Examples
    --------
    >>> from mercer.kernels import Laplacian
    >>> Laplacian(gamma=0.5)([[0.0, 1.0]], [[1.0, 3.0]]).round(3)
    array([[0.223]])
    """

    _bounds: ClassVar = {"gamma": _POSITIVE}

    def __init__(self, gamma=1.0):
        checked_scale("Laplacian", "gamma", gamma, per_feature=True)
        self._set(gamma=gamma)

    def _emit(self, builder, scope):
        self._check_width(scope, "gamma")
        path = self._declare(builder, scope, "gamma")
        leaf = Leaf(LeafKind.L1, scope.view(), weight=Weight(path, 1))
        return builder.unary(Opcode.EXPNEG, builder.leaf(leaf))


class Matern(_Stationary):
    """Matérn kernel of smoothness ν.

    With q = √(2ν) r, r = ‖(x − z)/ℓ‖: 2^(1−ν)/Γ(ν) q^ν K_ν(q). In closed form e^(−q) for ν = ½, (1 +
    q)e^(−q) for 3/2, (1 + q + q²/3)e^(−q) for 5/2; exp(−r²/2) for ν = ∞.

    Parameters
    ----------
    nu : float, default=1.5
        ν > 0, or infinity. ν = ½, 3/2, 5/2 and ∞ run in the tile engine; any other goes through SciPy's
        Bessel functions. There is no derivative in ν.
    length_scale : float or array_like of shape (d,), default=1
        ℓ > 0, or one per feature.

    Notes
    -----
    For ν ≤ ½ the kernel has a kink at equal points, where the derivative is taken as 0.

    Examples
    --------
    >>> from mercer.kernels import Matern
    >>> Matern(nu=2.5, length_scale=2.0)([[0.0]], [[0.0], [1.0]]).round(3)
    array([[1.   , 0.829]])
    """

    _bounds: ClassVar = {"length_scale": _POSITIVE}

    def __init__(self, nu=1.5, length_scale=1.0):
        if not (isinstance(nu, float | np.floating) and nu == np.inf):
            checked_scale("Matern", "nu", nu)
        checked_scale("Matern", "length_scale", length_scale, per_feature=True)
        self._set(nu=nu, length_scale=length_scale)

    def _emit(self, builder, scope):
        nu = float(plain(self.nu))
        if nu == np.inf:
            s = _squared_distance(self, builder, scope, "length_scale", -1, np.sqrt(0.5))
            return builder.unary(Opcode.EXPNEG, s)
        closed = {0.5: Opcode.MATERN12, 1.5: Opcode.MATERN32, 2.5: Opcode.MATERN52}
        if nu in closed:
            return builder.unary(closed[nu], _squared_distance(self, builder, scope, "length_scale", -1))
        self._check_width(scope, "length_scale")
        self._declare(builder, scope, "length_scale")
        return emit_general(builder, scope, nu, self.length_scale)


class RationalQuadratic(_Stationary):
    """(1 + r²/(2αℓ²))^(−α), r = ‖x − z‖.

    Parameters
    ----------
    length_scale : float or array_like of shape (d,), default=1
        ℓ > 0, or one per feature.
    alpha : float, default=1
        α > 0.

    Examples
    --------
    >>> from mercer.kernels import RationalQuadratic
    >>> RationalQuadratic(alpha=0.5)([[0.0]], [[0.0], [1.0]]).round(3)
    array([[1.   , 0.707]])
    """

    _bounds: ClassVar = {"length_scale": _POSITIVE, "alpha": _POSITIVE}

    def __init__(self, length_scale=1.0, alpha=1.0):
        checked_scale("RationalQuadratic", "length_scale", length_scale, per_feature=True)
        checked_scale("RationalQuadratic", "alpha", alpha)
        self._set(length_scale=length_scale, alpha=alpha)

    def _emit(self, builder, scope):
        s = _squared_distance(self, builder, scope, "length_scale", -1)
        alpha = self._declare(builder, scope, "alpha")
        s = builder.unary(Opcode.LOG1P, builder.scale(s, Monomial(0.5, ((alpha, -1),))))
        return builder.unary(Opcode.EXP, builder.scale(s, Monomial(-1.0, ((alpha, 1),))))


class ChiSquared(_Stationary):
    """exp(−γ Σ (x − z)²/(x + z)) of nonnegative samples, as ``sklearn.metrics.pairwise.chi2_kernel``.

    Parameters
    ----------
    gamma : float, default=1
        γ > 0.

    Notes
    -----
    A negative entry in the samples is a `ValueError`.

    Examples
    --------
    >>> from mercer.kernels import ChiSquared
    >>> ChiSquared()([[0.2, 0.8]], [[0.4, 0.6]]).round(3)
    array([[0.909]])
    """

    _bounds: ClassVar = {"gamma": _POSITIVE}

    def __init__(self, gamma=1.0):
        checked_scale("ChiSquared", "gamma", gamma)
        self._set(gamma=gamma)

    def _emit(self, builder, scope):
        gamma = self._declare(builder, scope, "gamma")
        s = builder.leaf(Leaf(LeafKind.CHI2, scope.view()))
        return builder.unary(Opcode.EXPNEG, builder.scale(s, Monomial(1.0, ((gamma, 1),))))

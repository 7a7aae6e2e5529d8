"""Fourier: the periodic kernel of all frequencies up to a degree, a product of Dirichlet kernels.

Place on the way: ``base.Kernel`` → **fourier** → ``program``.

References: MLR7 (7.13)–(7.16).
"""

from typing import ClassVar

import numpy as np

from .._arrays import plain
from .base import Kernel
from .dot_product import check_width
from .program import Leaf, LeafKind, Monomial
from .values import checked_count, checked_scale
from .views import Wrap

__all__ = ["Fourier"]


class Fourier(Kernel):
    """Fourier kernel ∏ sin((2D+1)πδ)/sin(πδ), δ = (x − z)/period, less 1 without the bias.

    At integer δ a factor is its limit 2D+1, and k(x, x) = (2D+1)^d.

    Parameters
    ----------
    degree : int
        D, positive.
    period : float or array_like of shape (d,), default=1
        The period, or one per feature.
    include_bias : bool, default=True
        Whether the constant feature counts; without it 1 is taken off.

    Raises
    ------
    ValueError
        On evaluation, if (2D+1)^d leaves the floating-point range; ``Fourier(…).normalize()`` never does.

    References
    ----------
    MLR7 (7.15)–(7.16).

    Examples
    --------
    >>> from mercer.kernels import Fourier
    >>> Fourier(2)([[0.0]], [[3.0], [0.5]])
    array([[5., 1.]])
    """

    _bounds: ClassVar = {"period": (0.0, np.inf)}

    def __init__(self, degree, period=1.0, include_bias=True):
        checked_count("Fourier", "degree", degree)
        checked_scale("Fourier", "period", period, per_feature=True)
        self._set(degree=degree, period=period, include_bias=bool(include_bias))

    def _leaf(self, builder, scope, unit):
        period = np.asarray(plain(self.period), dtype=np.float64)
        if period.ndim and scope.n_features is not None and len(period) != scope.width:
            raise ValueError(
                f"{self!r} has {len(period)} periods, but the samples have {scope.width} features"
            )
        path = self._declare(builder, scope, "period")
        wrap = Wrap(tuple(period.tolist()) if period.ndim else float(period), path)
        degree = int(plain(self.degree))
        return builder.leaf(Leaf(LeafKind.DIRICHLET, scope.view(wrap), degree=degree, unit=unit))

    def _emit(self, builder, scope):
        register = self._leaf(builder, scope, unit=False)
        return register if self.include_bias else builder.shift(register, Monomial(-1.0))

    def _emit_normalized(self, builder, scope):
        register = self._leaf(builder, scope, unit=True)
        if self.include_bias:
            return register
        # (∏r − 1)/((2D+1)^d − 1) = (P − ε)/(1 − ε) with P = ∏r/(2D+1)^d, ε = (2D+1)^(−d): no overflow.
        log_epsilon = -scope.width * np.log(2.0 * int(plain(self.degree)) + 1.0)
        register = builder.shift(register, Monomial(-float(np.exp(log_epsilon))))
        return builder.scale(register, Monomial(-1.0 / float(np.expm1(log_epsilon))))

    def _features(self, X, **options):
        n, d = X.shape
        degree = int(plain(self.degree))
        check_width(repr(self), n, (2 * degree + 1) ** d)
        phase = 2.0 * np.pi * np.arange(1, degree + 1) * (X / np.asarray(plain(self.period)))[:, :, None]
        factors = np.concatenate(
            [np.ones((n, d, 1)), np.sqrt(2) * np.cos(phase), np.sqrt(2) * np.sin(phase)], axis=2
        )
        out = np.ones((n, 1))
        for j in range(d):
            out = (out[:, :, None] * factors[:, j, None, :]).reshape(n, -1)
        return out if self.include_bias else out[:, 1:]

"""Matérn functions of any smoothness ν, with first and second derivative in the squared distance.

With s = r², q = √(2νs) and M_μ(q) = 2^(1−μ)/Γ(μ) q^μ K_μ(q), the kernel is φ(s) = M_ν(q), and by
d/dq [q^ν K_ν(q)] = −q^ν K_(ν−1)(q)

    φ'(s)  = −2^(1−ν)/Γ(ν) ν q^(ν−1) K_(ν−1)(q)
    φ''(s) =  2^(1−ν)/Γ(ν) ν² q^(ν−2) K_(ν−2)(q)

Place on the way: a BLOCK leaf of ``stationary.Matern``; the squared distances come from ``_native``.
"""

from typing import ClassVar

import numpy as np
from scipy.special import gammaln, kve

from .._arrays import plain
from .base import Kernel
from .blocks import BlockKernel, BlockSource
from .program import Leaf, LeafKind, Weight

__all__ = ["emit_general", "matern"]

# Above this order Debye's expansion has 1e-13; below it, kve neither overflows nor loses digits where it
# matters.
_DEBYE = 50.0


@np.errstate(all="ignore")
def matern(nu, s, order=2):
    """Matérn function of the squared scaled distance, and its derivatives in it.

    Parameters
    ----------
    nu : float
        ν > 0, finite.
    s : ndarray
        r² = ‖(x − z)/ℓ‖².
    order : {0, 2}
        0 leaves the derivatives out.

    Returns
    -------
    f, f1, f2 : ndarray
        The derivatives None at order 0. Where a derivative is infinite at s = 0 it is taken as 0 there.
    """
    q = np.sqrt(2.0 * nu) * np.sqrt(s)
    zero = s == 0
    # Rounding may lift a value near 1 over it.
    f = np.where(zero, 1.0, np.minimum(_bessel(nu, nu, q), 1.0))
    if order == 0:
        return f, None, None
    at_zero = -nu / (2.0 * (nu - 1.0)) if nu > 1 else 0.0
    f1 = np.where(zero, at_zero, -nu * _bessel(nu, nu - 1.0, q))
    at_zero = nu**2 / (4.0 * (nu - 1.0) * (nu - 2.0)) if nu > 2 else 0.0
    f2 = np.where(zero, at_zero, nu**2 * _bessel(nu, nu - 2.0, q))
    return f, f1, f2


def _bessel(nu, mu, q):
    """2^(1−ν)/Γ(ν) q^μ K_μ(q) for q > 0; 0 at infinity."""
    if mu > _DEBYE:
        # M_μ is in range; the rest of the factor is Γ(μ) 2^(μ−ν)/Γ(ν), 1 or short products for μ = ν − 1,
        # ν − 2.
        steps = round(nu - mu)
        factor = np.prod([0.5 / (nu - 1.0 - i) for i in range(steps)]) if steps else 1.0
        return factor * _debye(mu, q)
    order = abs(mu)
    bessel = kve(order, q)
    log = (1.0 - nu) * np.log(2.0) - gammaln(nu) + mu * np.log(q) + np.log(bessel) - q
    # Far out kve fails, where e^(−q) has long made everything 0.
    out = np.where(q > 1e5, 0.0, np.exp(log))
    if mu > 0:
        # K_μ overflows only where q is so small that two terms of the series are exact.
        series = 1.0 - (q**2 / (4.0 * (mu - 1.0)) if mu > 1 else 0.0)
        scale = np.exp((mu - nu) * np.log(2.0) + gammaln(mu) - gammaln(nu))
        out = np.where(np.isinf(bessel), scale * series, out)
    return out


# Debye's polynomials u_k(t) / t^k in powers of t²; Abramowitz & Stegun 9.3.9.
def _debye_polynomials(count):
    from fractions import Fraction

    # u_{k+1}(t) = ½ t²(1 − t²) u_k'(t) + ⅛ ∫₀ᵗ (1 − 5x²) u_k(x) dx
    u, out = {0: Fraction(1)}, []
    for _ in range(count):
        out.append(sorted((power, float(c)) for power, c in u.items()))
        following = {}
        for power, c in u.items():
            for p, v in (
                (power + 1, c * power / 2 + c / (8 * (power + 1))),
                (power + 3, -c * power / 2 - 5 * c / (8 * (power + 3))),
            ):
                following[p] = following.get(p, 0) + v
        u = following
    return out


_POLYNOMIALS = _debye_polynomials(7)


def _debye(mu, q):
    """M_μ(q) for large μ, uniformly in q, with all that is large taken out by hand."""
    z = q / mu
    w = np.hypot(1.0, z)
    y = z * (z / (1.0 + w))  # w − 1
    log = mu * (np.log1p(0.5 * y) - y) - 0.5 * np.log(w)
    # The same sum at t = 1 stands for Γ(μ)'s own series, so that M_μ(0) = 1 exactly.
    return np.where(np.isinf(q), 0.0, np.exp(log) * _debye_sum(mu, 1.0 / w) / _debye_sum(mu, 1.0))


def _debye_sum(mu, t):
    return sum(
        (-1.0) ** k / mu**k * sum(c * t**power for power, c in terms) for k, terms in enumerate(_POLYNOMIALS)
    )


class _SquaredDistance(Kernel):
    """‖(x − z)/ℓ‖², which is no kernel itself."""

    is_psd = False
    psd_note = "a squared distance is not positive semidefinite"
    _bounds: ClassVar = {"length_scale": (0.0, np.inf)}

    def __init__(self, length_scale):
        self._set(length_scale=length_scale)

    def _emit(self, builder, scope):
        path = self._declare(builder, scope, "length_scale")
        return builder.leaf(Leaf(LeafKind.SQDIST, scope.view(), weight=Weight(path, -1)))


class _GeneralMatern(BlockKernel):
    """Matérn as a function of the matrix of squared distances."""

    _bounds: ClassVar = {"length_scale": (0.0, np.inf)}

    def __init__(self, nu, length_scale):
        self._set(nu=nu, length_scale=length_scale)

    @property
    def _distance(self):
        return _SquaredDistance(self.length_scale)

    def _functions(self, X, Z, order=2):
        return matern(self.nu, self._distance(X, Z), order)

    def _block(self, X, Z):
        X, Z = _double(X, Z)
        return self._functions(X, Z, order=0)[0]

    def _block_diag(self, X):
        return np.ones(X.shape[0])

    def _block_pullback(self, X, Z, G):
        X, Z = _double(X, Z)
        return self._distance.pullback(X, Z, _times(G, self._functions(X, Z)[1]))

    def _block_pushforward(self, X, Z, tX, tZ, tparams):
        X, Z = _double(X, Z)
        return _times(self._distance.pushforward(X, Z, tX, tZ, tparams), self._functions(X, Z)[1])

    def _block_second(self, X, Z, G, tX, tZ, tparams):
        X, Z = _double(X, Z)
        _, f1, f2 = self._functions(X, Z)
        moved = _times(G, _times(self._distance.pushforward(X, Z, tX, tZ, tparams), f2))
        first = self._distance.pullback(X, Z, moved)
        second = self._distance.pullback_pushforward(X, Z, _times(G, f1), tX, tZ, tparams)
        dX, dZ = (None if a is None else a + b for a, b in zip(first[:2], second[:2], strict=True))
        return dX, dZ, {name: first[2][name] + second[2][name] for name in first[2]}

    def _block_mixed(self, X, Z, t, s):
        X, Z = _double(X, Z)
        _, f1, f2 = self._functions(X, Z)
        both = [self._distance.pushforward(X, Z, *along) for along in (t, s)]
        curved = _times(self._distance.second_pushforward(X, Z, t, s), f1)
        return _times(both[0] * both[1], f2) + curved


def _double(*arrays):
    """Return points in float64: below ν = 1 slopes grow where the squared distance of float32 is 0."""
    return (None if a is None else a.astype(np.float64, copy=False) for a in arrays)


def _times(g, slope):
    """g·slope, 0 where either is 0 whatever the other is."""
    return np.multiply(g, slope, out=np.zeros(np.shape(slope)), where=(np.asarray(g) != 0) & (slope != 0))


def emit_general(builder, scope, nu, length_scale):
    """Write a Matérn kernel of any ν into a program; the length scale is declared by the caller."""
    kernel = _GeneralMatern(float(nu), plain(length_scale))
    return builder.leaf(Leaf(LeafKind.BLOCK, BlockSource(kernel, scope)))

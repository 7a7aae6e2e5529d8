"""Costs of classes: two, coded as y = ±1, and many, coded as 0 … C − 1.

Place on the way: ``base`` → **classes**.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import entr, xlog1py

from .base import Diagonal, Loss, floats, pair

__all__ = ["JointSquaredMargin", "Logistic", "Softmax", "SquaredMargin"]

_ROOT2 = float(np.sqrt(2.0))

# ---------------------------------------------------------------- of two classes


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + e^(−y f)) for y = ±1, the softmax cost of two classes.

    References
    ----------
    MLR7 (7.43).
    """

    needs: ClassVar[str] = "sign"

    def value(self, y, f):
        """log(1 + e^(−m)) with m = y f, as max(−m, 0) + log1p(e^(−|m|))."""
        y, f = pair(y, f)
        m = y * f
        out = np.log1p(np.exp(-np.abs(m)))
        out -= np.minimum(m, 0)
        return out

    def derivative(self, y, f):
        """−y / (1 + eᵐ)."""
        y, f = pair(y, f)
        m = y * f
        t = np.exp(-np.abs(m))
        return np.where(m >= 0, t, 1) / (1 + t) * -y

    def curvature(self, y, f):
        """``e⁻ᵐ / (1 + e⁻ᵐ)²``, even in m."""
        return self._root(y, f) ** 2

    def root(self, y, f):
        """The square root of the curvature."""
        return Diagonal(self._root(y, f))

    @staticmethod
    def _root(y, f):
        y, f = pair(y, f)
        half = np.exp(-0.5 * np.abs(y * f))
        return half / (1 + half * half)

    def curvature_bound(self, n_classes=2):
        """¼, at a margin of 0."""
        return 0.25

    def conjugate(self, y, u):
        """``s log s + (1 − s) log(1 − s)`` for 0 ≤ s = −y u ≤ 1."""
        y, u = pair(y, u)
        s = -y * u
        inside = np.clip(s, 0, 1)
        out = xlog1py(1 - inside, -inside) - entr(inside)
        return np.where(s == inside, out, out.dtype.type(np.inf))

    def feasible(self, y, u):
        """``s`` clipped at 0 and 1."""
        y, u = pair(y, u)
        return -y * np.clip(-y * u, 0, 1)


@dataclass(frozen=True)
class SquaredMargin(Loss):
    """max²(0, 1 − y f) for y = ±1.

    References
    ----------
    MLR7 (7.46).
    """

    needs: ClassVar[str] = "sign"

    @staticmethod
    def _short(y, f):
        """What the margin falls short of 1 by."""
        m = 1 - y * f
        return np.maximum(m, 0, out=m) if m.ndim else np.maximum(m, 0)

    @np.errstate(over="ignore")
    def value(self, y, f):
        """max²(0, 1 − y f)."""
        m = self._short(*pair(y, f))
        return m * m

    def dual_box(self, y, most):
        """``y a ≥ 0``."""
        return np.where(y > 0, 0.0, -np.inf), np.where(y > 0, np.inf, 0.0)

    @np.errstate(over="ignore")
    def derivative(self, y, f):
        """−2y max(0, 1 − y f)."""
        y, f = pair(y, f)
        return -2 * y * self._short(y, f)

    def curvature(self, y, f):
        """2 for margins below 1, 0 from there on."""
        y, f = pair(y, f)
        return 2 * (y * f < 1).astype(f.dtype)

    def curvature_bound(self, n_classes=2):
        """2."""
        return 2.0

    @np.errstate(over="ignore")
    def conjugate(self, y, u):
        """``s²/4 − s`` for s = −y u ≥ 0."""
        y, u = pair(y, u)
        s = -y * u
        return np.where(s >= 0, s * (s / 4 - 1), s.dtype.type(np.inf))

    def feasible(self, y, u):
        """``s`` of at least 0."""
        y, u = pair(y, u)
        return -y * np.maximum(-y * u, 0)


# ---------------------------------------------------------------- of many classes


def _dense(f):
    """Values as floats with nothing between its numbers in memory, in whichever order they are there."""
    f = floats(f)
    return f if f.strides == np.empty_like(f).strides else f.copy(order="K")


def _own(y, f):
    """Where each sample's own class is in f's memory, f being dense: an index of ``f.ravel("K")``."""
    *steps, step = (stride // f.itemsize for stride in f.strides)
    index = np.empty_like(f[..., 0], dtype=np.intp)
    np.multiply(y, step, out=index, casting="unsafe")
    for axis, step in enumerate(steps, 1):
        places = np.arange(0, index.shape[axis - 1] * step, step) if step else 0
        index += np.reshape(places, (-1, *[1] * (index.ndim - axis)))
    return index


def _sums_to_zero(u):
    """Whether the classes' parts cancel, up to the rounding of their sum."""
    bound = 8 * np.finfo(u.dtype).eps * np.maximum(np.abs(u).sum(-1), 1)
    return np.abs(u.sum(-1)) <= bound


class _SoftmaxRoot:
    """diag(√p)(I − √p√pᵀ), whose product with its transpose is diag(p) − ppᵀ as √p has norm 1."""

    def __init__(self, p, rest):
        self._rest, self._r = rest, np.sqrt(p)

    @cached_property
    def diagonal(self):
        return self._r * np.sqrt(self._rest)

    def forward(self, c):
        r = self._r
        out = np.einsum("...c,...c->...", r, c)[..., None] * r
        np.subtract(c, out, out=out)
        out *= r
        return out

    def adjoint(self, v):
        r = self._r
        out = r * v
        out -= np.einsum("...c,...c->...", r, out)[..., None] * r
        return out


@dataclass(frozen=True)
class Softmax(Loss):
    """log Σⱼ e^(fⱼ) − f_c, c the sample's own class.

    References
    ----------
    MLR7 (7.48), where 1 + Σ_{j≠c} e^(fⱼ − f_c) is the same sum over e^(f_c).
    """

    vector: ClassVar[bool] = True
    needs: ClassVar[str] = "code"

    @staticmethod
    @np.errstate(over="ignore")
    def _parts(f):
        """The index of the largest, its value, e^(fⱼ − largest) with 0 at its place, and their sum.

        Summed without the 1 of the largest, so that probabilities next to 1 keep the digits of 1 − p.
        """
        top = np.argmax(f, axis=-1)
        index = _own(top, f)
        largest = f.ravel("K")[index]
        e = np.subtract(f, largest[..., None], out=np.empty_like(f))
        np.exp(e, out=e)
        e.ravel("K")[index] = 0
        return index, largest, e, e.sum(-1)

    def probabilities(self, f):
        """e^(fⱼ) / Σ e^(f), finite for every finite f.

        Parameters
        ----------
        f : array_like of shape (…, C)

        Returns
        -------
        ndarray of shape (…, C)
        """
        return self._probabilities(_dense(f))[0]

    def _probabilities(self, f):
        """p, 1 − p of the largest, and its index."""
        index, _, p, rest = self._parts(f)
        total = 1 + rest
        p /= total[..., None]
        p.ravel("K")[index] = 1 / total
        return p, rest / total, index

    @np.errstate(over="ignore")
    def value(self, y, f):
        """``largest − f_c + log1p(sum of the others)``."""
        f = _dense(f)
        _, largest, _, rest = self._parts(f)
        return largest - f.ravel("K")[_own(y, f)] + np.log1p(rest)

    def derivative(self, y, f):
        """``p − e_c``."""
        f = _dense(f)
        p, rest, index = self._probabilities(f)
        own = _own(y, f)
        flat = p.ravel("K")
        flat[own] = np.where(own == index, -rest, flat[own] - 1)
        return p

    def curvature(self, y, f):
        """``p(1 − p)``."""
        p, q = self._complement(_dense(f))
        return p * q

    def _complement(self, f):
        p, rest, index = self._probabilities(f)
        q = 1 - p
        q.ravel("K")[index] = rest
        return p, q

    def root(self, y, f):
        """diag(√p)(I − √p√pᵀ)."""
        return _SoftmaxRoot(*self._complement(_dense(f)))

    def curvature_bound(self, n_classes=2):
        """½, for two classes of even odds (Gershgorin: 2pⱼ(1 − pⱼ))."""
        return 0.5

    def conjugate(self, y, u):
        """Σ pⱼ log pⱼ for p = u + e_c of the simplex."""
        u = floats(u)
        p = self._point(y, u)
        return np.where(_sums_to_zero(u), -entr(p).sum(-1), u.dtype.type(np.inf))

    @staticmethod
    def _point(y, u):
        p = np.array(_dense(u), order="K")
        p.ravel("K")[_own(y, p)] += 1
        return p

    def feasible(self, y, u):
        """``p`` without its negative parts, divided by its sum."""
        u = floats(u)
        p = np.maximum(self._point(y, u), 0)
        total = p.sum(-1, keepdims=True)
        own = _own(y, p)
        flat = p.ravel("K")
        if not np.all(total > 0):
            flat[own] = np.where(total[..., 0] > 0, flat[own], 1)
            total = p.sum(-1, keepdims=True)
        p /= total
        # Own part from the others: what 1 − p lost next to 1 is back. Rounding may add them up beyond 1.
        flat[own] = 0
        flat[own] = np.maximum(-p.sum(-1), -1)
        return p


class _JointRoot:
    """√2 (e_j − e_c) for each class j whose margin is short."""

    def __init__(self, active, own):
        self._active, self._own = active, own

    def _like(self, c):
        """A copy laid out as is what `_own` points into."""
        out = np.empty_like(self._active, dtype=np.result_type(self._active, c))
        out[...] = c
        return out

    @cached_property
    def diagonal(self):
        out = _ROOT2 * self._active
        out.ravel("K")[self._own] = np.sqrt(2 * self._active.sum(-1))
        return out

    def forward(self, c):
        out = self._like(c)
        out *= self._active
        out *= _ROOT2
        out.ravel("K")[self._own] = -out.sum(-1)
        return out

    def adjoint(self, v):
        out = self._like(v)
        out -= out.ravel("K")[self._own][..., None]
        out *= self._active
        out *= _ROOT2
        return out


@dataclass(frozen=True)
class JointSquaredMargin(Loss):
    """Σ_{j≠c} max²(0, 1 + fⱼ − f_c), c the sample's own class: each other class a margin of its own.

    With two classes it is `SquaredMargin` of f_c − fⱼ.

    References
    ----------
    MLR7 (7.46) for the margin; J. Weston and C. Watkins, Support vector machines for multi-class pattern
    recognition, 1999, for the sum over classes.
    """

    vector: ClassVar[bool] = True
    needs: ClassVar[str] = "code"

    @staticmethod
    @np.errstate(over="ignore")
    def _short(y, f):
        """What each margin falls short of 1 by, 0 for the own class; and the own class's flat index."""
        own = _own(y, f)
        m = np.subtract(f, f.ravel("K")[own][..., None], out=np.empty_like(f))
        m += 1
        np.maximum(m, 0, out=m)
        m.ravel("K")[own] = 0
        return m, own

    @np.errstate(over="ignore")
    def value(self, y, f):
        """Σ_{j≠c} max²(0, 1 + fⱼ − f_c)."""
        m, _ = self._short(y, _dense(f))
        return np.einsum("...c,...c->...", m, m)

    @np.errstate(over="ignore")
    def derivative(self, y, f):
        """2 max(0, 1 + fⱼ − f_c), for the own class less their sum."""
        m, own = self._short(y, _dense(f))
        m *= 2
        m.ravel("K")[own] = -m.sum(-1)
        return m

    def curvature(self, y, f):
        """2 for each short margin, for the own class their number times 2."""
        f = _dense(f)
        m, own = self._short(y, f)
        out = 2 * (m > 0).astype(f.dtype)
        out.ravel("K")[own] = out.sum(-1)
        return out

    def root(self, y, f):
        """√2 (e_j − e_c) for each short margin j."""
        f = _dense(f)
        m, own = self._short(y, f)
        return _JointRoot((m > 0).astype(f.dtype), own)

    def curvature_bound(self, n_classes=2):
        """2C, twice the Laplacian of a star of C nodes."""
        return 2.0 * n_classes

    @np.errstate(over="ignore")
    def conjugate(self, y, u):
        """Σ_{j≠c} (uⱼ²/4 − uⱼ) for uⱼ ≥ 0 and u_c less their sum."""
        u = floats(u)
        others = np.array(_dense(u), order="K")
        others.ravel("K")[_own(y, others)] = 0
        out = (others * (others / 4 - 1)).sum(-1)
        inside = _sums_to_zero(u) & (others >= 0).all(-1)
        return np.where(inside, out, u.dtype.type(np.inf))

    def feasible(self, y, u):
        """The others' parts of at least 0, the own one less their sum."""
        u = np.array(_dense(u), order="K")
        own = _own(y, u)
        np.maximum(u, 0, out=u)
        u.ravel("K")[own] = 0
        u.ravel("K")[own] = -u.sum(-1)
        return u

    def dual_moves(self, code, n_classes):
        """e_c − e_j for each class j but the own one."""
        units = np.eye(n_classes)
        samples, classes = np.nonzero(units[code] == 0)
        return samples, classes, units[code[samples]] - units[classes]

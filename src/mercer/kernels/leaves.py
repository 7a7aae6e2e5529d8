"""What a leaf computes from two feature rows: the value, its partial derivatives, and theirs.

The plain NumPy statement of each ``LeafKind``, on pairs of rows: ``x`` and ``z`` are (n, d) arrays, pair i is
(x_i, z_i), ``w`` the (d,) weights. ``pairs`` interprets programs with it; the tile engine does the same tile
by tile.

Conventions: |δ| has derivative 0 at 0, and so do the terms of CHI2 where x + z = 0.
"""

import numpy as np

from .program import LeafKind

__all__ = ["dirichlet", "partials", "partials_dot", "value"]


def value(leaf, x, z, w):
    """Value of a leaf for each pair of rows.

    Parameters
    ----------
    leaf : Leaf
    x, z : ndarray of shape (n, d)
    w : ndarray of shape (d,), or None
        The weights of SQDIST and L1.

    Returns
    -------
    ndarray of shape (n,)
    """
    if leaf.kind == LeafKind.DOT:
        return np.sum(x * z, axis=1)
    if leaf.kind == LeafKind.SQDIST:
        # Weights meet the difference before it is squared: only their product has to be in range.
        return np.sum((w * (x - z)) ** 2, axis=1)
    if leaf.kind == LeafKind.L1:
        return np.sum(w * np.abs(x - z), axis=1)
    if leaf.kind == LeafKind.CHI2:
        return np.sum((x - z) * _chi_ratio(x, z), axis=1)
    r, _, _ = _factors(leaf, x, z, order=0)
    return np.prod(r, axis=1)


def partials(leaf, x, z, w):
    """Derivatives of a leaf's value in x, z and log w.

    Returns
    -------
    s_x, s_z : ndarray of shape (n, d)
    s_w : ndarray of shape (n, d), or None without weights
    """
    if leaf.kind == LeafKind.DOT:
        return z, x, None
    if leaf.kind == LeafKind.SQDIST:
        wd = w * (x - z)
        return 2.0 * w * wd, -2.0 * w * wd, 2.0 * wd**2
    if leaf.kind == LeafKind.L1:
        s_x = w * np.sign(x - z)
        return s_x, -s_x, w * np.abs(x - z)
    if leaf.kind == LeafKind.CHI2:
        q = _chi_ratio(x, z)
        return q * (2.0 - q), -q * (2.0 + q), None
    r, r1, _ = _factors(leaf, x, z, order=1)
    before, after = _products(r)
    s_x = r1 * before * after
    return s_x, -s_x, None


def partials_dot(leaf, x, z, w, tx, tz, tw):
    """Directional derivatives of what `partials` returns, along (tx, tz, tw), tw = ẇ/w.

    Returns
    -------
    ts_x, ts_z : ndarray of shape (n, d)
    ts_w : ndarray of shape (n, d), or None without weights
    """
    if leaf.kind == LeafKind.DOT:
        return tz, tx, None
    if leaf.kind == LeafKind.SQDIST:
        wd = w * (x - z)
        twd = w * (tx - tz) + wd * tw
        ts_x = 2.0 * w * (twd + wd * tw)
        return ts_x, -ts_x, 4.0 * wd * twd
    if leaf.kind == LeafKind.L1:
        s_x = w * np.sign(x - z)
        return s_x * tw, -s_x * tw, s_x * (tx - tz) + w * np.abs(x - z) * tw
    if leaf.kind == LeafKind.CHI2:
        q = _chi_ratio(x, z)
        tq = _ratio(tx - tz - q * (tx + tz), x + z)
        return 2.0 * (1.0 - q) * tq, -2.0 * (1.0 + q) * tq, None
    return _dirichlet_dot(leaf, x, z, tx - tz)


def _ratio(a, b):
    """A / b, 0 where b is 0."""
    return np.divide(a, b, out=np.zeros(np.broadcast(a, b).shape), where=b != 0)


def _chi_ratio(x, z):
    # Of halves: the sum of two samples may leave the range.
    return _ratio(0.5 * x - 0.5 * z, 0.5 * x + 0.5 * z)


def dirichlet(degree, t, order=2):
    """Dirichlet kernel r(t) = sin((2D+1)πt)/sin(πt) and its derivatives; LINMA and MLR7 (7.15).

    Parameters
    ----------
    degree : int
        D.
    t : ndarray
        The difference, in periods.
    order : {0, 1, 2}
        The derivatives asked for; the rest is None.

    Returns
    -------
    r, r1, r2 : ndarray, or None
    """
    t = t - np.rint(t)
    size = 2 * degree + 1
    y = size * t
    y -= 2.0 * np.rint(0.5 * y)
    # Below |t| = 1e-9/(2D+1) the quotient is 2D+1 to 1e-17, and its parts may be subnormal.
    near = np.abs(t) < 1e-9 / size
    r = np.sin(np.pi * y) / np.where(near, 1.0, np.sin(np.pi * t))
    r[near] = size
    r1 = r2 = None
    if order > 0:
        # r = 1 + 2 Σ cos(2πmt): term by term, as the derivative of the quotient cancels near t = 0.
        r1, r2 = np.zeros_like(t), np.zeros_like(t)
        for m in range(1, degree + 1):
            angle = 2.0 * np.pi * (m * t - np.rint(m * t))
            r1 -= m * np.sin(angle)
            r2 -= m**2 * np.cos(angle)
        r1 *= 4.0 * np.pi
        r2 *= 8.0 * np.pi**2
    return r, r1, r2


def _factors(leaf, x, z, order):
    factors = dirichlet(leaf.degree, x - z, order)
    if leaf.unit:
        factors = [None if f is None else f / (2 * leaf.degree + 1) for f in factors]
    return factors


def _products(r):
    """For each column the products of those before and after it: no division, so zeros do no harm."""
    one = np.ones_like(r[:, :1])
    before = np.cumprod(np.hstack([one, r[:, :-1]]), axis=1)
    after = np.cumprod(np.hstack([one, r[:, :0:-1]]), axis=1)[:, ::-1]
    return before, after


def _dirichlet_dot(leaf, x, z, td):
    r, r1, r2 = _factors(leaf, x, z, order=2)
    tr = r1 * td
    before, after = _products(r)
    tbefore, tafter = np.zeros_like(r), np.zeros_like(r)
    for k in range(1, r.shape[1]):
        tbefore[:, k] = tbefore[:, k - 1] * r[:, k - 1] + before[:, k - 1] * tr[:, k - 1]
        tafter[:, -1 - k] = tafter[:, -k] * r[:, -k] + after[:, -k] * tr[:, -k]
    ts_x = r2 * td * before * after + r1 * (tbefore * after + before * tafter)
    return ts_x, -ts_x, None

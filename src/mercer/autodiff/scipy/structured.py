"""Matrices of a form in `scipy.linalg` (block diagonal, Toeplitz, banded), and systems with them."""

import math

import numpy as np
import scipy.linalg

from mercer.autodiff.array_methods import put
from mercer.autodiff.rules import Primitive, cast
from mercer.autodiff.rules_products import conjugate
from mercer.autodiff.scipy._arguments import array
from mercer.autodiff.trace import Like

__all__ = [
    "block_diag", "circulant", "hankel", "solve_banded", "solve_toeplitz", "solveh_banded", "toeplitz",
]  # fmt: skip


def block_diag(*arrs):
    """Return a matrix with the given ones (or rows) along its diagonal, and zeros elsewhere.

    Parameters
    ----------
    *arrs : arrays of at most 2 dimensions

    Returns
    -------
    array of shape (Σ rows, Σ columns)
    """
    arrs = [array(a) for a in arrs]
    arrs = [np.reshape(a, (1, -1)) if np.ndim(a) < 2 else a for a in arrs]
    width, start, rows = sum(np.shape(a)[1] for a in arrs), 0, []
    for a in arrs:
        height, own = np.shape(a)
        left = np.zeros((height, start), a.dtype)
        right = np.zeros((height, width - start - own), a.dtype)
        rows.append(np.concatenate([left, a, right], 1))
        start += own
    return np.concatenate(rows, 0) if rows else np.zeros((1, 0))


def toeplitz(c, r=None):
    """Return the matrix with constant diagonals, first column c and first row r (conj(c) by default).

    Parameters
    ----------
    c, r : arrays of shapes (m,) and (n,)

    Returns
    -------
    array of shape (m, n)
    """
    c = array(c)
    r = conjugate(c) if r is None else array(r)
    m, n = np.shape(c)[0], np.shape(r)[0]
    return np.concatenate([c[::-1], r[1:]])[_differences(m, n)]


def _differences(m, n):
    """Return where the entries of a Toeplitz matrix stand in (c reversed, r without its first)."""
    return (m - 1) - np.arange(m)[:, None] + np.arange(n)


def circulant(c):
    """Return the circulant matrix with first column c, of shape (n,)."""
    c = array(c)
    i = np.arange(np.shape(c)[0])
    return c[(i[:, None] - i) % len(i)] if len(i) else np.zeros((0, 0))


def hankel(c, r=None):
    """Return the matrix with constant antidiagonals, first column c and last row r (zeros by default).

    Parameters
    ----------
    c, r : arrays of shapes (m,) and (n,)

    Returns
    -------
    array of shape (m, n)
    """
    c = array(c)
    r = np.zeros(np.shape(c), c.dtype) if r is None else array(r)
    values = np.concatenate([c, r[1:]])
    return values[np.arange(np.shape(c)[0])[:, None] + np.arange(np.shape(r)[0])]


def _columns(x):
    """Return vectors (n, …) as the columns of a matrix."""
    return np.reshape(x, (np.shape(x)[0], math.prod(np.shape(x)[1:])))


# -- Toeplitz systems -------------------------------------------------------------------------------------


def _toeplitz_jvp(tangents, ans, c, r, b):
    tc, tr, right = tangents
    if tc is not None or tr is not None:
        tc = np.zeros_like(c) if tc is None else tc
        moved = toeplitz(tc, np.zeros_like(r) if tr is None else tr) @ ans
        right = -moved if right is None else right - moved
    return _solve_toeplitz(c, r, right)


def _toeplitz_vjp(g, ans, needed, c, r, b):
    # Tᴴ has the first column conj(r), with the corner of c, and the first row conj(c)
    column = conjugate(np.concatenate([c[:1], r[1:]]))
    y = _solve_toeplitz(column, conjugate(c), g)
    n = np.shape(c)[0]
    pairs = _columns(y) @ np.conj(_columns(ans)).T
    along = put(-pairs, Like(np.zeros(max(2 * n - 1, 0), pairs.dtype)), _differences(n, n))
    to_r = np.concatenate([np.zeros_like(along[:1]), along[n:]])  # the corner is c's
    return cast(along[n - 1 :: -1], c), cast(to_r, r), cast(y, b)


_solve_toeplitz = Primitive(
    lambda c, r, b: scipy.linalg.solve_toeplitz((c, r), b, check_finite=False),
    _toeplitz_jvp,
    _toeplitz_vjp,
    name="scipy.linalg.solve_toeplitz",
)


def solve_toeplitz(c_or_cr, b, check_finite=True):
    """Return the solution of T x = b for a Toeplitz matrix, by Levinson's recursion.

    Parameters
    ----------
    c_or_cr : array of shape (n,), or tuple of two
        T's first column, and its first row (conj(c) by default).
    b : array of shape (n,) or (n, m)

    Returns
    -------
    array of b's shape
    """
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    c = np.ravel(array(c))
    return _solve_toeplitz(c, conjugate(c) if r is None else np.ravel(array(r)), array(b))


# -- banded systems ---------------------------------------------------------------------------------------


def _shifted(row, d):
    """Return out[j] = row[j − d], zero where there is none; of the first axis."""
    d = max(-len(row), min(d, len(row)))  # bands may be more than the matrix has diagonals
    zeros = np.zeros_like(row[: abs(d)])
    return np.concatenate([zeros, row[: len(row) - d]]) if d >= 0 else np.concatenate([row[-d:], zeros])


def _rows_times(ab, x, upper):
    """Return A x of a banded matrix, A[i, i + d] = ab[upper − d, i + d]."""
    spread = (slice(None),) + (None,) * (np.ndim(x) - 1)
    terms = [_shifted(ab[k][spread] * x, k - upper) for k in range(np.shape(ab)[0])]
    return sum(terms[1:], terms[0])


def _adjoint_bands(ab, lower, upper):
    """Return the bands of Aᴴ, which has `upper` below its diagonal and `lower` above."""
    rows = [_shifted(conjugate(ab[upper + d]), d) for d in range(lower, -upper - 1, -1)]
    return np.stack(rows)


def _banded_value(ab, b, *, lower, upper, symmetric):
    if symmetric is None:
        return scipy.linalg.solve_banded((lower, upper), ab, b, check_finite=False)
    half = ab[upper:] if symmetric == "lower" else ab[: upper + 1]
    return scipy.linalg.solveh_banded(half, b, lower=symmetric == "lower", check_finite=False)


def _banded_jvp(tangents, ans, ab, b, **form):
    t, right = tangents
    if t is not None:
        moved = _rows_times(t, ans, form["upper"])
        right = -moved if right is None else right - moved
    return _solve_banded(ab, right, **form)


def _banded_vjp(g, ans, needed, ab, b, *, lower, upper, symmetric):
    turned = ab if symmetric else _adjoint_bands(ab, lower, upper)
    y = _solve_banded(turned, g, lower=upper, upper=lower, symmetric=symmetric)
    y, x = _columns(y), np.conj(_columns(ans))
    bands = [-np.sum(_shifted(y, d) * x, axis=1) for d in range(upper, -lower - 1, -1)]
    return cast(np.stack(bands), ab), cast(np.reshape(y, np.shape(ans)), b)


_solve_banded = Primitive(_banded_value, _banded_jvp, _banded_vjp, name="scipy.linalg.solve_banded")


def solve_banded(l_and_u, ab, b, overwrite_ab=False, overwrite_b=False, check_finite=True):
    """Return the solution of a x = b for a banded matrix.

    Parameters
    ----------
    l_and_u : (int, int)
        The numbers of diagonals below and above the main one.
    ab : array of shape (l + u + 1, n)
        ``ab[u + i - j, j] == a[i, j]``.
    b : array of shape (n,) or (n, m)

    Returns
    -------
    array of b's shape
    """
    lower, upper = (int(k) for k in l_and_u)
    ab, b = array(ab), array(b)
    if np.shape(ab)[0] != lower + upper + 1:
        raise ValueError(f"ab has {np.shape(ab)[0]} rows, l + u + 1 is {lower + upper + 1}")
    return _solve_banded(ab, b, lower=lower, upper=upper, symmetric=None)


def solveh_banded(ab, b, overwrite_ab=False, overwrite_b=False, lower=False, check_finite=True):
    """Return the solution of a x = b for a Hermitian positive definite banded matrix.

    Parameters
    ----------
    ab : array of shape (u + 1, n)
        The diagonals above the main one, ``ab[u + i - j, j] == a[i, j]``; with `lower` those below,
        ``ab[i - j, j] == a[i, j]``.
    b : array of shape (n,) or (n, m)
    lower : bool

    Returns
    -------
    array of b's shape
    """
    ab, b = array(ab), array(b)
    u = np.shape(ab)[0] - 1
    if lower:
        others = [_shifted(conjugate(ab[d]), d) for d in range(u, 0, -1)]
        bands = np.concatenate([np.stack(others), ab]) if u else ab
    else:
        others = [_shifted(conjugate(ab[u - d]), -d) for d in range(1, u + 1)]
        bands = np.concatenate([ab, np.stack(others)]) if u else ab
    return _solve_banded(bands, b, lower=u, upper=u, symmetric="lower" if lower else "upper")

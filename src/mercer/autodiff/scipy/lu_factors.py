"""LU factors with partial pivoting: the order of the rows is constant between jumps."""

import numpy as np
import scipy.linalg

from mercer.autodiff.errors import TraceValueError, trace_error
from mercer.autodiff.rules import Primitive
from mercer.autodiff.rules_linalg import Triangular, solve_with, triangle
from mercer.autodiff.rules_products import adjoint
from mercer.autodiff.scipy._arguments import array, only
from mercer.autodiff.trace import plain

__all__ = ["lu", "lu_factor", "rows_of"]


def rows_of(piv):
    """Return the order of the rows from LAPACK's exchanges."""
    order = np.arange(len(piv))
    for i, j in enumerate(plain(piv)):
        order[[i, j]] = order[[j, i]]
    return order


def _by_lower(below, x, trans=0):
    """Return L⁻¹ x, or L⁻ᴴ x."""
    held = plain(below)
    return solve_with(Triangular(held, held.dtype, True, True), below, x, trans)


def _by_upper(above, x, trans=0):
    """Return x U⁻¹, or x U⁻ᴴ."""
    held = plain(above)
    return adjoint(solve_with(Triangular(held, held.dtype, False), above, adjoint(x), 0 if trans else 2))


def _upper(x):
    return triangle(x, False)


def _lower(x):
    return triangle(x, True, strict=True)


# with F = L⁻¹ dA U⁻¹: dL = L low(F), dU = up(F) U
def _lu_jvp(tangents, ans, a, *, factors):
    below, above = ans
    moved = _by_lower(below, _by_upper(above, tangents[0]))
    return np.matmul(below, _lower(moved)), np.matmul(_upper(moved), above)


def _lu_vjp(g, ans, needed, a, *, factors):
    (below, above), (gl, gu) = ans, g
    low = 0.0 if gl is None else _lower(np.matmul(adjoint(below), gl))
    up = 0.0 if gu is None else _upper(np.matmul(gu, adjoint(above)))
    return [_by_upper(above, _by_lower(below, low + up, 2), 2)]


#: L and U of a square matrix whose rows are in order, as LAPACK has found them
_ordered = Primitive(lambda a, *, factors: factors, _lu_jvp, _lu_vjp, name="scipy.linalg.lu", batched=True)


def _factors(a, held_l, held_u, order):
    """Return L and U of a[order]; beyond the square part either is the other's inverse times a."""
    k = min(a.shape)
    rows = a[order]
    square = held_l[:k], held_u[:, :k]
    if np.any(np.diagonal(square[1]) == 0):
        raise trace_error(
            "scipy.linalg.lu",
            "the matrix is singular, its factors are not differentiable",
            "shift the matrix",
            TraceValueError,
        )
    below, above = _ordered(rows[:k, :k], factors=square)
    if a.shape[0] > k:
        below = np.concatenate([below, _by_upper(above, rows[k:])])
    if a.shape[1] > k:
        above = np.concatenate([above, _by_lower(below, rows[:, k:])], 1)
    return below, above


def lu(a, permute_l=False, overwrite_a=False, check_finite=True, p_indices=False):
    """Return the factors of a = P L U.

    Parameters
    ----------
    a : array of shape (m, n)
    permute_l : bool
        Whether to return P L and U.
    p_indices : bool
        Whether to return P as the order of L's rows, ``a = L[p] @ U``.

    Returns
    -------
    p : array of shape (m, m) or (m,)
        Not differentiated.
    below, above : arrays of shapes (m, k) and (k, n), k = min(m, n)
    """
    a = array(a)
    if a.ndim != 2:
        only("lu", ndim=(a.ndim, 2))
    p, held_l, held_u = scipy.linalg.lu(plain(a), p_indices=True, check_finite=False)
    below, above = _factors(a, held_l, held_u, np.argsort(p))
    if permute_l:
        return below[p], above
    return (p if p_indices else np.eye(a.shape[0], dtype=held_l.real.dtype)[p]), below, above


def lu_factor(a, overwrite_a=False, check_finite=True):
    """Return L and U in one array (L's ones left out) and the exchanges of rows, for :func:`lu_solve`.

    Parameters
    ----------
    a : array of shape (n, n)

    Returns
    -------
    lu : array of shape (n, n)
    piv : array of int of shape (n,)
    """
    a = array(a)
    only("lu_factor", shape=(a.shape, a.shape[-1:] * 2))
    held, piv = scipy.linalg.lu_factor(plain(a), check_finite=False)
    held_l = _lower(held) + np.eye(len(piv), dtype=held.dtype)
    below, above = _factors(a, held_l, _upper(held), rows_of(piv))
    return _lower(below) + above, piv

"""Preconditioned conjugate gradients for several right-hand sides at once.

The matrix is only ever a function ``V -> A @ V``. An unpenalised intercept is a linear constraint, and is
kept by projection (Gould, Hribar & Nocedal 2001), which costs no second right-hand side.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["Iterate", "conjugate_gradient"]


@dataclass
class Iterate:
    """Where conjugate gradients stopped.

    Attributes
    ----------
    X : ndarray of shape (n, t)
        The solution.
    shift : ndarray of shape (t,)
        The multiplier of the constraint: ``A X + s shiftᵀ = B``; zero without one.
    residual : ndarray of shape (t,)
        Norms of the residual as the recurrence has it.
    n_iter : int
        Products with A.
    """

    X: np.ndarray
    shift: np.ndarray
    residual: np.ndarray
    n_iter: int


class _Projection:
    """Keeps ``sᵀX = 0``: takes the part along s out of residuals, in the preconditioner's metric."""

    def __init__(self, s, precondition, n_columns):
        self.s = s
        self.W = precondition(np.repeat(s[:, None], n_columns, axis=1), np.arange(n_columns))
        self.scale = s @ self.W

    def split(self, R, columns):
        """Remove ``s βᵀ`` from R in place and return β; then ``sᵀ P⁻¹ R = 0``."""
        beta = np.einsum("ij,ij->j", self.W[:, columns], R) / self.scale[columns]
        R -= self.s[:, None] * beta
        return beta

    def clean(self, Z, columns):
        """Take rounding off ``sᵀZ = 0``, in place."""
        Z -= self.W[:, columns] * ((self.s @ Z) / self.scale[columns])


def conjugate_gradient(
    apply, B, precondition, *, target, max_iter, constraint=None, on_step=None, patience=None
):
    """Solve ``A X = B`` column by column, with one product ``A @ P`` a step for all the columns.

    Parameters
    ----------
    apply : callable
        ``apply(V, columns) -> A V``, A symmetric positive definite (on the constraint), V of shape (n,
        len(columns)); it may depend on the column.
    B : ndarray of shape (n, t)
        Right-hand sides; kept as they are.
    precondition : callable
        ``precondition(V, columns) -> P⁻¹ V``.
    target : ndarray of shape (t,)
        Norm of the residual at which a column is done.
    max_iter : int
        Most products with A.
    constraint : ndarray of shape (n,) or None
        s: solve ``A X + s bᵀ = B`` with ``sᵀX = 0`` instead.
    on_step : callable or None
        ``on_step(n_iter, residual)`` after each product.
    patience : int or None
        Stop when the worst residual has not halved for so many steps.

    Returns
    -------
    Iterate

    References
    ----------
    Gould, Hribar & Nocedal, "On the solution of equality constrained quadratic programming problems arising
    in optimization", SIAM J. Sci. Comput. 23 (2001), algorithm II with residual update.
    """
    n, t = B.shape
    columns = np.arange(t)
    projection = None if constraint is None else _Projection(constraint, precondition, t)
    X, R, shift = np.zeros((n, t)), B.copy(), np.zeros(t)

    def conditioned(R, columns):
        if projection is not None:
            shift[columns] += projection.split(R, columns)
        Z = precondition(R, columns)
        if projection is not None:
            projection.clean(Z, columns)
        return Z

    Z = conditioned(R, columns)
    residual = np.linalg.norm(R, axis=0)
    columns = np.flatnonzero(residual > target)
    R, P = R[:, columns], Z[:, columns]
    rho = np.einsum("ij,ij->j", R, P)
    n_iter, best, best_at = 0, np.inf, 0
    while columns.size and n_iter < max_iter:
        Q = apply(P, columns)
        n_iter += 1
        curvature = np.einsum("ij,ij->j", P, Q)
        # A direction without curvature: rounding has used up this column's residual.
        step = np.divide(rho, curvature, out=np.zeros_like(rho), where=curvature > 0)
        X[:, columns] += step * P
        old = R.copy()
        R -= step * Q
        Z = conditioned(R, columns)
        residual[columns] = np.linalg.norm(R, axis=0)
        if on_step is not None:
            on_step(n_iter, residual)
        worst = float(np.max(residual[columns]))
        if worst < best / 2:
            best, best_at = worst, n_iter
        elif not np.isfinite(worst) or (patience is not None and n_iter - best_at >= patience):
            break
        before, rho = rho, np.einsum("ij,ij->j", R, Z)
        # Polak and Ribière's form: rounding in a float32 preconditioner does not spoil the directions.
        change = rho - np.einsum("ij,ij->j", old, Z)
        P = Z + np.divide(change, before, out=np.zeros_like(rho), where=before > 0) * P
        going = (residual[columns] > target[columns]) & (curvature > 0) & (rho > 0)
        if not going.all():
            columns, R, P, rho = columns[going], R[:, going], P[:, going], rho[going]
    return Iterate(X, shift, residual, n_iter)

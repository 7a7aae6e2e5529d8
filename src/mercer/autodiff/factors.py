"""Linear systems of the implicit function theorem: one factorisation, kept, serves every order and mode.

A factor solves ``A x = r`` for one right side or several (rows), and its `transposed` solves with Aᵀ (LINMA
1.46, 1.48). Matrices are scaled by powers of two first, so that condition numbers do not depend on units.
"""

import warnings

import numpy as np
import scipy.linalg.lapack as lapack
import scipy.sparse

from mercer.autodiff.rules import define

__all__ = ["Cholesky", "ImplicitFunctionError", "Krylov", "LU", "SparseLU", "kept_solve", "warn_unconverged"]

#: Largest error of one Krylov solution, ‖r − A x‖ / ‖r‖, that passes without a warning.
KRYLOV_RTOL = 1e-10


class ImplicitFunctionError(np.linalg.LinAlgError):
    """The implicit function theorem does not hold where it is asked for (LINMA, theorem 1.2).

    A ``LinAlgError``, and so a ``ValueError``.
    """


class Factor:
    """What the factors share.

    Attributes
    ----------
    rcond : float or None
        An estimate of the reciprocal condition number of the scaled matrix, in the 1-norm; None if unknown.
    transposed : Factor
        Solves with the transpose, by the same factorisation.
    """

    rcond = None

    def __init__(self, trans=False):
        self._trans = trans

    @property
    def transposed(self):
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        other._trans = not self._trans
        return other

    def solve(self, r):
        """Return x with ``A x = r``, for each row of an `r` of shape (..., n)."""
        if not np.any(r):
            return np.zeros_like(r)
        rows = np.reshape(r, (-1, np.shape(r)[-1])).astype(np.float64, copy=False)
        return np.reshape(self._solve(rows), np.shape(r)).astype(r.dtype, copy=False)


def _powers(largest):
    """Return the powers of two that bring magnitudes to about 1; zeros keep 1."""
    return np.exp2(-np.clip(np.round(np.log2(np.where(largest > 0, largest, 1.0))), -1000, 1000))


def _scales(A):
    """Return scales of the rows and columns after which the largest magnitude in each is about 1."""
    magnitudes = abs(A)
    dense = not scipy.sparse.issparse(A)
    rows = _powers(magnitudes.max(axis=1) if dense else magnitudes.max(axis=1).toarray().ravel())
    scaled = rows[:, None] * magnitudes if dense else scipy.sparse.diags_array(rows) @ magnitudes
    return rows, _powers(scaled.max(axis=0) if dense else scaled.max(axis=0).toarray().ravel())


class LU(Factor):
    """LU of a dense matrix of shape (n, n).

    Parameters
    ----------
    A : ndarray of shape (n, n)
    scale : ndarray of shape (n,), optional
        What rows and columns are multiplied by first, where more is known of them than their largest entries.
    """

    def __init__(self, A, scale=None):
        super().__init__()
        scale = np.ones(len(A)) if scale is None else _powers(1 / scale)
        scaled = A * scale[:, None] * scale
        rows, columns = _scales(scaled)
        scaled = np.asfortranarray(scaled * rows[:, None] * columns, dtype=np.float64)
        self.rows, self.columns = scale * rows, scale * columns
        norm = _norm1(scaled)
        self.lu, self.pivots, info = lapack.dgetrf(scaled, overwrite_a=1)
        self.rcond = 0.0 if info else lapack.dgecon(self.lu, norm)[0]

    def _solve(self, rows):
        left, right = (self.columns, self.rows) if self._trans else (self.rows, self.columns)
        solved, _ = lapack.dgetrs(self.lu, self.pivots, (rows * left).T, trans=int(self._trans))
        return solved.T * right


class Cholesky(Factor):
    """Cholesky of a dense symmetric matrix of shape (n, n); `pivot` is where it broke down, or None."""

    def __init__(self, A):
        super().__init__()
        self.pivot = None
        self.scale = np.exp2(np.round(np.log2(_powers(abs(np.diagonal(A)))) / 2))
        scaled = np.asfortranarray(A * self.scale[:, None] * self.scale, dtype=np.float64)
        norm = _norm1(scaled)
        self.c, info = lapack.dpotrf(scaled, lower=1, overwrite_a=1)
        if info:
            self.pivot, self.rcond = info - 1, 0.0
        else:
            self.rcond = lapack.dpocon(self.c, norm, uplo="L")[0]

    def _solve(self, rows):
        solved, _ = lapack.dpotrs(self.c, (rows * self.scale).T, lower=1)
        return solved.T * self.scale


class SparseLU(Factor):
    """SuperLU of a SciPy sparse matrix of shape (n, n)."""

    def __init__(self, A):
        super().__init__()
        from scipy.sparse.linalg import splu

        self.rows, self.columns = _scales(A)
        scale = scipy.sparse.diags_array
        scaled = scipy.sparse.csc_array(scale(self.rows) @ A @ scale(self.columns), dtype=np.float64)
        try:
            self.lu = splu(scaled)
        except RuntimeError:  # "Factor is exactly singular"
            self.rcond = 0.0
            return
        norm = abs(scaled).sum(axis=0).max(initial=0.0)
        inverse = _inverse_norm(self.lu.solve, lambda r: self.lu.solve(r, trans="T"), len(self.rows))
        self.rcond = 1 / (norm * inverse) if np.isfinite(inverse) and inverse else 0.0

    def _solve(self, rows):
        left, right = (self.columns, self.rows) if self._trans else (self.rows, self.columns)
        solved = self.lu.solve(np.ascontiguousarray((rows * left).T), trans="T" if self._trans else "N")
        return solved.T * right


def _norm1(A):
    return float(abs(A).sum(axis=0).max(initial=0.0))


def _inverse_norm(solve, solve_transposed, n):
    """Estimate ‖A⁻¹‖₁ from below, by Hager's ascent (Higham, Accuracy and Stability, algorithm 15.1)."""
    with np.errstate(all="ignore"):
        x, best = np.full(n, 1 / max(n, 1)), 0.0
        for _ in range(5):
            y = solve(x)
            best = max(best, abs(y).sum())
            z = solve_transposed(np.where(y < 0, -1.0, 1.0))
            j = int(np.argmax(abs(z)))
            if not abs(z[j]) > z @ x:
                break
            x = np.zeros(n)
            x[j] = 1
    return best


class Krylov(Factor):
    """No matrix: GMRES, or conjugate gradients for a symmetric one, on products with A and Aᵀ.

    Parameters
    ----------
    product, product_transposed : callable
        ``v (n,) -> A v``, ``v -> Aᵀ v``.
    n : int
    symmetric : bool
        Whether A is symmetric positive definite.
    rtol : float
        Each solution's residual is checked against it.
    """

    def __init__(self, product, product_transposed, n, symmetric=False, rtol=KRYLOV_RTOL):
        super().__init__()
        self.products = product, product_transposed
        self.n, self.symmetric, self.rtol = n, symmetric, rtol

    def _solve(self, rows):
        return np.stack([self._solve_one(r) for r in rows])

    def _solve_one(self, r):
        from scipy.sparse.linalg import LinearOperator, cg, gmres

        norm = np.linalg.norm(r)
        if not norm:
            return np.zeros_like(r)
        A = LinearOperator((self.n, self.n), matvec=self.products[self._trans], dtype=np.float64)
        with np.errstate(all="ignore"):
            if self.symmetric:
                x, _ = cg(A, r, rtol=self.rtol / 2, atol=0.0, maxiter=max(10 * self.n, 100))
            else:
                restart = min(self.n, 200)
                x, _ = gmres(A, r, rtol=self.rtol / 2, atol=0.0, restart=restart, maxiter=20)
            residual = np.linalg.norm(r - A @ x) / norm
        if not residual <= self.rtol:
            method = "conjugate gradients" if self.symmetric else "GMRES"
            warn_unconverged(
                f"{method} left a residual of {residual:.1e} (‖r − A x‖/‖r‖, wanted {self.rtol:.0e}) in the "
                "linear system of an implicit derivative, whose error is that times the condition number of "
                'A = ∂F/∂w; where A is singular there is none; linear_solver="lu" or jacobian= solve directly'
            )
        return x


def warn_unconverged(message):
    """Warn in scikit-learn's class for what has not converged."""
    from sklearn.exceptions import ConvergenceWarning  # here, since scikit-learn takes a second to load

    warnings.warn(message, ConvergenceWarning, stacklevel=2)


def _kept_solve(r, *, factor):
    return factor.solve(r)


#: ``kept_solve(r, factor=…)``: A⁻¹ r, a linear primitive; its pullback solves with Aᵀ.
kept_solve = define(
    _kept_solve,
    jvp="linear",
    vjp=[lambda g, ans, r, *, factor: kept_solve(g, factor=factor.transposed)],
    name="implicit solve",
    batched=True,
)

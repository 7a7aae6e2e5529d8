"""Rules of linear systems, inverses, determinants and Cholesky factors.

One factorisation serves a solution, its pushforward, its pullback and their derivatives: the rules of
:func:`solve_with` pass the factor on, which is a plain value.

A function of a symmetric (Hermitian) matrix has a symmetric gradient, whichever triangle its value is read
from; its pushforward sees the symmetric part of a tangent. All functions take stacks (…, n, n).
"""

import numpy as np
import scipy.linalg.lapack as lapack

from mercer.autodiff.rules import Primitive, composite, define, scale, unbroadcast
from mercer.autodiff.rules_products import adjoint, align, conjugate, lead_of, matrix_transpose
from mercer.autodiff.trace import np_like, plain

__all__ = ["LU", "Triangular", "solve_with", "symmetric_part"]


def symmetric_part(x):
    """Return (x + xᴴ)/2."""
    return 0.5 * (x + adjoint(x))


def times(a, x, vector):
    """Return the product of matrices with columns, or with vectors."""
    if not vector:
        return np.matmul(a, x)
    out = np.matmul(a, np.expand_dims(x, -1))
    return np.reshape(out, np.shape(out)[:-1])


def floating(*arrays):
    """Return the type that NumPy's linear algebra computes in."""
    return np.result_type(np.float32, *(a.dtype if a.dtype.kind in "fc" else np.float64 for a in arrays))


# -- systems --------------------------------------------------------------------------------------------


class Factor:
    """What solves with one plain matrix, again and again.

    Parameters
    ----------
    a : ndarray of shape (..., n, n)
    dtype : dtype
        What to compute in.
    """

    def __init__(self, a, dtype):
        self.a = np.asarray(a, dtype)
        self.real = self.a.dtype.kind == "f"

    def solve(self, b, trans):
        """Return x of op(a) x = b; op is the matrix (trans 0), its transpose (1) or its adjoint (2).

        Parameters
        ----------
        b : ndarray of shape (..., n, m)
        """
        if self.real and b.dtype.kind == "c":
            return self.solve(b.real, trans) + 1j * self.solve(b.imag, trans)
        b = np.asarray(b, self.a.dtype)
        if self.a.ndim > 2 or not self.a.size or not b.size:
            return np.linalg.solve((self.whole, matrix_transpose, adjoint)[trans](self.full()), b)
        if b.shape[-2] != len(self.a):
            raise ValueError(f"solve: the matrix has shape {self.a.shape}, the right side {b.shape}")
        if b.ndim == 2:
            return self.columns(b, trans)
        flat = np.moveaxis(b, -2, 0)
        x = self.columns(flat.reshape(len(flat), -1), trans)
        return np.moveaxis(x.reshape(flat.shape), 0, -2)

    @staticmethod
    def whole(a):
        return a

    def full(self):
        """Return the matrix as it is meant."""
        return self.a

    def mask(self, t):
        """Return the part of a matrix that derivatives see."""
        return t


class LU(Factor):
    """Solves with a square matrix by its LU factors, made when they are first needed."""

    factors = None

    def columns(self, b, trans):
        if self.factors is None:
            getrf = {"f": lapack.sgetrf, "d": lapack.dgetrf, "F": lapack.cgetrf, "D": lapack.zgetrf}
            lu, pivots, info = getrf[self.a.dtype.char](self.a)
            if info:
                raise np.linalg.LinAlgError("Singular matrix")
            self.factors = lu, pivots
        getrs = {"f": lapack.sgetrs, "d": lapack.dgetrs, "F": lapack.cgetrs, "D": lapack.zgetrs}
        return getrs[self.a.dtype.char](*self.factors, b, trans=trans)[0]


class Triangular(Factor):
    """Solves with one triangle of a matrix, with ones on the diagonal if it is `unit`."""

    def __init__(self, a, dtype, lower, unit=False):
        super().__init__(a, dtype)
        self.lower, self.unit = bool(lower), bool(unit)

    def columns(self, b, trans):
        trtrs = {"f": lapack.strtrs, "d": lapack.dtrtrs, "F": lapack.ctrtrs, "D": lapack.ztrtrs}
        x, info = trtrs[self.a.dtype.char](self.a, b, lower=self.lower, trans=trans, unitdiag=self.unit)
        if info:
            raise np.linalg.LinAlgError(f"singular matrix: resolution failed at diagonal {info - 1}")
        return x

    def full(self):
        a = self.mask(self.a)
        return a + np.eye(a.shape[-1], dtype=a.dtype) if self.unit else a

    def mask(self, t):
        shift = 1 if self.unit else 0
        return np.tril(t, -shift) if self.lower else np.triu(t, shift)


def _solve_value(a, b, *, factor, trans, vector):
    x = factor.solve(b[..., None] if vector else b, trans)
    return x[..., 0] if vector else x


def _solve_jvp(tangents, ans, a, b, *, factor, trans, vector):
    ta, tb = tangents
    right = None if tb is None else align(tb, b, np.ndim(ans))
    if ta is not None:
        ta = (Factor.whole, matrix_transpose, adjoint)[trans](factor.mask(ta))
        moved = times(align(ta, a, np.ndim(ans) + vector), ans, vector)
        right = -moved if right is None else right - moved
    return _solve(a, right, factor=factor, trans=trans, vector=vector)


def _solve_vjp(g, ans, needed, a, b, *, factor, trans, vector):
    lead = lead_of(g, ans)
    if trans == 1:
        gb = conjugate(_solve(a, conjugate(g), factor=factor, trans=0, vector=vector))
    else:
        gb = _solve(a, g, factor=factor, trans=2 - trans, vector=vector)
    ga = None
    if needed[0]:
        left, right = (gb, ans) if trans == 0 else (ans, gb)
        ga = -_outer(left, right, vector)
        ga = factor.mask(conjugate(ga) if trans == 1 else ga)
    return [
        unbroadcast(ga, a, lead) if needed[0] else None,
        unbroadcast(gb, b, lead) if needed[1] else None,
    ]


def _outer(left, right, vector):
    """Return left rightᴴ, of columns or of vectors."""
    if vector:
        return np.multiply(np.expand_dims(left, -1), np.expand_dims(conjugate(right), -2))
    return np.matmul(left, adjoint(right))


_solve = Primitive(_solve_value, _solve_jvp, _solve_vjp, name="np.linalg.solve", batched=True)


def solve_with(factor, a, b, trans=0):
    """Return the solution of op(a) x = b by a factor of plain(a), differentiable in a and b.

    Parameters
    ----------
    factor : Factor
    a : array of shape (..., n, n)
    b : array of shape (n,) or (..., n, m)
    trans : {0, 1, 2}
        Whether op(a) is a, its transpose or its adjoint.
    """
    a, b = np_like(a), np_like(b)
    trans = 2 if trans and factor.real else trans
    return _solve(a, b, factor=factor, trans=trans, vector=np.ndim(b) == 1)


@composite(np.linalg.solve)
def solve(a, b):
    """The solution of a x = b: dx = a⁻¹ (db − da x)."""
    a, b = np_like(a), np_like(b)
    return solve_with(LU(plain(a), floating(a, b)), a, b)


# -- inverses -------------------------------------------------------------------------------------------

# d A⁻¹ = −A⁻¹ dA A⁻¹ (SCKN)
define(
    np.linalg.inv,
    jvp=[lambda t, ans, a: -np.matmul(np.matmul(ans, t), ans)],
    vjp=[lambda g, ans, a: -np.matmul(np.matmul(adjoint(ans), g), adjoint(ans))],
    batched=True,
)

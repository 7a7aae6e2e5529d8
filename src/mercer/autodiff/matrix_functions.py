"""Functions of symmetric matrices, f(A) = U f(Λ) Uᵀ, right where eigenvalues repeat.

Their derivatives of every order are sums over divided differences of f at the eigenvalues, in A's eigenbasis
(Daleckii and Krein): no eigenvector is differentiated and nothing is divided by a gap. For A^(-1/2) the first
divided differences are minus SCKN's F.
"""

import itertools
import math

import numpy as np

from mercer.autodiff.derivative import jvp
from mercer.autodiff.errors import trace_error
from mercer.autodiff.rules import Primitive, unbroadcast
from mercer.autodiff.rules_linalg import symmetric_part
from mercer.autodiff.rules_products import adjoint, align, lead_of
from mercer.autodiff.trace import Traced, np_like, plain

__all__ = ["inverse_sqrt", "symmetric_function"]

#: Spread of points, relative to their size, up to which averages of derivatives may stand for differences.
NEAR = 0.5
#: Entries of a tensor of divided differences that may be held at once.
HELD = 2**22


# -- divided differences --------------------------------------------------------------------------------


def nth_derivative(f, order):
    """Return the derivative of an elementwise function, of any order, by nested dual numbers."""
    for _ in range(order):
        f = _derivative(f)
    return f


def _derivative(f):
    return lambda w: jvp(f, (w,), (np.ones_like(w),))[1]


class DividedDifferences:
    """Divided differences f[λ_i0, …, λ_ik] of a function at the eigenvalues of a matrix.

    Far points: by differences of those of lower order. Near points: by averages of f's k-th derivative (the
    formula of Hermite and Genocchi, Gauss' rule), so that nothing cancels. Each has an estimate of its error,
    and the smaller one is taken.

    Parameters
    ----------
    f : callable
        Elementwise, in NumPy functions.
    df : callable, optional
        Its derivative; differentiated automatically if left out.
    """

    def __init__(self, f, df=None):
        self.f, self.df = f, df

    def values(self, w):
        """Return f at the eigenvalues, of shape (..., n)."""
        value = self.f(w)
        if isinstance(value, Traced):
            raise trace_error(
                "symmetric_function",
                "f depends on a traced value that is not the matrix",
                "scale or shift the matrix, or the result, by that value instead",
            )
        value = np.asarray(value)
        if value.shape != w.shape or value.dtype.kind != "f":
            raise ValueError(
                f"f must be real and elementwise: for eigenvalues of shape {w.shape} it gave "
                f"{value.dtype} of shape {value.shape}"
            )
        return value

    def derivative(self, order):
        """Return f's derivative as a function."""
        return nth_derivative(self.f, order) if self.df is None else nth_derivative(self.df, order - 1)

    def at(self, w, index):
        """Return divided differences and estimates of their errors.

        Parameters
        ----------
        w : ndarray of shape (..., n)
            Ascending.
        index : sequence of k + 1 integer arrays
            Of shapes that broadcast together.

        Returns
        -------
        values, errors : ndarray of shape (..., *shape of the indices)
        """
        if len(index) == 1:
            values = np.take(self.values(w), index[0], -1)
            return values, np.finfo(values.dtype).eps * np.abs(values)
        index = np.sort(np.stack(np.broadcast_arrays(*index)), 0)  # the values are symmetric in their points
        points = np.stack([np.take(w, i, -1) for i in index])
        (low, low_error), (high, high_error) = self.at(w, index[:-1]), self.at(w, index[1:])
        spread = points[-1] - points[0]
        apart = spread > 0
        safe = np.where(apart, spread, 1)
        values = np.where(apart, (high - low) / safe, 0)
        errors = np.where(apart, (low_error + high_error) / safe, np.inf)
        size = np.max(np.abs(points), 0)
        whole = np.max(np.abs(w), -1, initial=0)[(..., *(None,) * (index.ndim - 1))]
        eps = np.finfo(w.dtype).eps
        lost = errors / eps > 64 * np.abs(values)
        drowned = errors > np.sqrt(eps) * np.abs(values)  # eigenvalues that are rounding errors of 0
        near = lost & ((spread <= NEAR * size) | (drowned & (spread <= 0.03 * whole)))
        if np.any(near):
            averages, gaps = self._average(points[:, near])
            better = gaps <= errors[near]
            values[near] = np.where(better, averages, values[near])
            errors[near] = np.where(better, gaps, errors[near])
        return values, errors

    def _average(self, points):
        """Return ∫ f⁽ᵏ⁾ over the simplex spanned by k + 1 points, and the gap to a rule with fewer nodes."""
        order = len(points) - 1
        f = self.derivative(order)
        fine, coarse = _simplex_rule(f, points, 5), _simplex_rule(f, points, 4)
        eps = np.finfo(points.dtype).eps
        return fine, np.abs(fine - coarse) + eps * np.abs(fine)


def _simplex_rule(f, points, nodes):
    """Integrate f(Σ tᵢ xᵢ) over t ≥ 0, Σ tᵢ = 1, by Gauss' rule in collapsed coordinates."""
    x, weights = np.polynomial.legendre.leggauss(nodes)
    x, weights = (x + 1) / 2, weights / 2
    order = len(points) - 1
    total = 0.0
    for picks in itertools.product(range(nodes), repeat=order):
        at, rest, weight = points[0], 1.0, 1.0
        for level, pick in enumerate(picks):
            rest *= x[pick]
            at = at + rest * (points[level + 1] - points[level])
            weight *= weights[pick] * x[pick] ** (order - 1 - level)
        total = total + points.dtype.type(weight) * f(at)
    return total


class InverseSquareRoot(DividedDifferences):
    """The divided differences of λ^(-1/2), in closed form as far as second derivatives need them."""

    def __init__(self):
        super().__init__(lambda w: 1 / np.sqrt(w))

    def values(self, w):
        """Return λ^(-1/2), or say which eigenvalue has none."""
        if np.any(w <= 0):
            raise np.linalg.LinAlgError(
                f"inverse_sqrt: A is not positive definite, its smallest eigenvalue is {np.min(w):.3g}; "
                f"add a multiple of the unit matrix (epsilon > {abs(np.min(w)):.1g})"
            )
        return 1 / np.sqrt(w)

    def at(self, w, index):
        """Return divided differences and estimates of their errors."""
        if not 2 <= len(index) <= 3:
            return super().at(w, index)
        s = [np.take(np.sqrt(w), i, -1) for i in index]
        if len(index) == 2:  # −F of SCKN
            values = -1 / (s[0] * s[1] * (s[0] + s[1]))
        else:
            pairs = (s[0] + s[1]) * (s[1] + s[2]) * (s[2] + s[0])
            values = (s[0] + s[1] + s[2]) / (s[0] * s[1] * s[2] * pairs)
        return values, 8 * np.finfo(values.dtype).eps * np.abs(values)


# -- derivatives of every order -------------------------------------------------------------------------


class Spectrum:
    """A plain matrix's eigenvalues and eigenvectors, and the divided differences of a function at them.

    Parameters
    ----------
    a : ndarray of shape (..., n, n)
        Its symmetric part is meant.
    differences : DividedDifferences
    """

    def __init__(self, a, differences):
        self.w, self.u = np.linalg.eigh(symmetric_part(a))
        self.differences = differences
        self.first = None

    def value(self):
        """Return f(A)."""
        return (self.u * self.differences.values(self.w)[..., None, :]) @ adjoint(self.u)

    def pushed(self, directions):
        """Return Dᵏ f(A)[E_1, …, E_k], symmetric and linear in each direction."""
        inner = [adjoint(self.u) @ symmetric_part(e) @ self.u for e in directions]
        n = self.w.shape[-1]
        if len(inner) == 1:
            if self.first is None:
                self.first = self.differences.at(self.w, np.ogrid[:n, :n])[0]
            out = self.first * inner[0]
        else:
            out = self._summed(inner, n)
        return self.u @ out @ adjoint(self.u)

    def _summed(self, inner, n):
        """Return Σ over the orders of E_1 … E_k and over inner indices of f[…] E_ia E_ab … E_zj."""
        k = len(inner)
        letters = "iabcdefgh"[:k] + "j"
        terms = ",".join("..." + letters[m : m + 2] for m in range(k))
        rule = f"...{letters},{terms}->...ij"
        stack = math.prod(self.w.shape[:-1])
        step = max(1, HELD // max(1, stack * n**k))  # the first inner index in parts, to bound memory
        out = 0
        for start in range(0, n, step):
            part = slice(start, min(n, start + step))
            index = list(np.ogrid[(slice(0, n),) * (k + 1)])
            index[1] = index[1][(slice(None), part)]
            tensor = self.differences.at(self.w, index)[0]
            for e in itertools.permutations(inner):
                second = e[1][..., part, :] if k > 1 else None
                out = out + np.einsum(rule, tensor, e[0][..., :, part], second, *e[2:])
        return out


def _function_value(a, *directions, spectrum):
    out = spectrum.pushed(directions) if directions else spectrum.value()
    if a.dtype.kind == "f" and out.dtype.kind == "c" and not any(map(np.iscomplexobj, directions)):
        out = out.real
    return out


def _function_jvp(tangents, ans, a, *directions, spectrum):
    ndim, total = np.ndim(ans), None
    for i, t in enumerate(tangents):
        if t is None:
            continue
        if i:
            chosen = [*directions[: i - 1], align(t, directions[i - 1], ndim), *directions[i:]]
        else:
            chosen = [*directions, align(t, a, ndim)]
        term = _function(a, *chosen, spectrum=spectrum)
        total = term if total is None else total + term
    return total


def _function_vjp(g, ans, needed, a, *directions, spectrum):
    # ⟨G, Dᵏf(A)[E…]⟩ is Dᵏ⁺¹ of tr ∫f, symmetric in all of its directions: the map is its own transpose.
    lead, result = lead_of(g, ans), []
    for i, need in enumerate(needed):
        if not need:
            result.append(None)
        elif i:
            chosen = [*directions[: i - 1], g, *directions[i:]]
            result.append(unbroadcast(_function(a, *chosen, spectrum=spectrum), directions[i - 1], lead))
        else:
            result.append(unbroadcast(_function(a, *directions, g, spectrum=spectrum), a, lead))
    return result


_function = Primitive(_function_value, _function_jvp, _function_vjp, name="symmetric_function", batched=True)


def _applied(A, differences):
    A = np_like(A)
    if A.dtype.kind not in "fc":
        A = A.astype(np.float64)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"A must be a square matrix or a stack of them, got the shape {A.shape}")
    return _function(A, spectrum=Spectrum(plain(A), differences))


def symmetric_function(f, A, df=None):
    """Return f(A) = U f(Λ) Uᵀ of a symmetric matrix A = U Λ Uᵀ, differentiable in A to any order.

    The derivative in the direction E is U (F ∘ (Uᵀ E U)) Uᵀ, F holding the divided differences
    (f(λ_i) − f(λ_j)) / (λ_i − λ_j), and f'(λ) on equal eigenvalues; near ones do not cancel.

    Parameters
    ----------
    f : callable
        A real elementwise function in NumPy functions, smooth at and between the eigenvalues.
    A : array of shape (..., n, n)
        Symmetric or Hermitian; its symmetric part is taken, and the gradient is symmetric.
    df : callable, optional
        f's derivative, where automatic differentiation of f is not wanted.

    Returns
    -------
    array of shape (..., n, n)

    Raises
    ------
    ValueError
        If A is not square, or f not real and elementwise.

    References
    ----------
    SCKN, for f(λ) = λ^(-1/2); Daleckii and Krein's formula for every f and order.

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> A = np.eye(2)
    >>> ad.grad(lambda A: ad.symmetric_function(np.exp, A)[0, 1])(A).round(6)
    array([[0.      , 1.359141],
           [1.359141, 0.      ]])
    """
    return _applied(A, DividedDifferences(f, df))


def inverse_sqrt(A, epsilon=0):
    """Return (A + εI)^(-1/2) of a symmetric positive definite matrix, differentiable to any order.

    The derivative in the direction E is −U (F ∘ (Uᵀ E U)) Uᵀ with
    F_kl = 1 / (√δ_k √δ_l (√δ_k + √δ_l)), at repeated eigenvalues too.

    Parameters
    ----------
    A : array of shape (..., n, n)
        Its symmetric part is taken, and the gradient is symmetric.
    epsilon : float, default=0
        May be traced.

    Returns
    -------
    array of shape (..., n, n)

    Raises
    ------
    numpy.linalg.LinAlgError
        If A + εI is not positive definite, with its smallest eigenvalue.

    References
    ----------
    SCKN, the corrected derivative. A product of powers of A with dA, as in the formula that SCKN corrects, is
    right only where A and dA commute: nearly so where A is close to a multiple of the unit matrix, as
    diagonally dominant kernel matrices are.

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> ad.inverse_sqrt(np.diag([4.0, 16.0]))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    if isinstance(epsilon, Traced) or epsilon != 0:
        A = np_like(A)
        A = A + epsilon * np.eye(A.shape[-1], dtype=A.dtype if A.dtype.kind in "fc" else np.float64)
    return _applied(A, InverseSquareRoot())

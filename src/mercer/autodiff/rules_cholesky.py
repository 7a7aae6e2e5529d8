"""Rules of the Cholesky factor.

With A = L Lᴴ, dA = dL Lᴴ + L dLᴴ defines dL (:data:`_push`), and a cotangent of A is the Hermitian Ā with
which 2 Ā L has the lower triangle of that of L (:data:`_pull`). Both equations are linear, so that their own
derivatives are solutions of the same equations.

Both solutions halve the matrix: for A = [[A₁₁, ·], [A₂₁, A₂₂]] the factor has L₁₁, that of A₁₁; L₂₁ = A₂₁
L₁₁⁻ᴴ; and L₂₂, that of A₂₂ − L₂₁ L₂₁ᴴ. It is less than a third of the work of triangular solutions with all
of L (Murray, Differentiation of the Cholesky decomposition, 2016, has blocks of one size).
"""

import numpy as np

from mercer.autodiff.rules import Primitive, define, unbroadcast
from mercer.autodiff.rules_linalg import Triangular, symmetric_part
from mercer.autodiff.rules_products import adjoint, align, lead_of
from mercer.autodiff.trace import Traced

#: Up to this size a matrix is not halved: small products and solutions reach less of the processor's speed.
WHOLE = 128


def _half_lower(x):
    """Return the lower triangle with half of the (real) diagonal: X with X + Xᴴ = x, for Hermitian x."""
    x = np.tril(x)
    i = np.arange(x.shape[-1])
    x[..., i, i] = 0.5 * x[..., i, i].real
    return x


def _split(x):
    """Return the two diagonal blocks of matrices, and the one below between them."""
    k = x.shape[-1] // 2
    return x[..., :k, :k], x[..., k:, :k], x[..., k:, k:]


def _push_value(lower, t):
    """Return dL from a Hermitian dA."""
    out = np.zeros_like(t)
    _push_into(out, lower, t)
    return out


def _push_into(out, lower, t):
    if _is_whole(lower):
        solve = Triangular(lower, lower.dtype, lower=True).solve
        # dL = L Φ(L⁻¹ dA L⁻ᴴ), Φ the lower triangle with half of the diagonal
        out[...] = np.matmul(lower, _half_lower(solve(adjoint(solve(t, 0)), 0)))
        return
    (first, below, last), (t_first, t_below, t_last) = _split(lower), _split(t)
    out_first, out_below, out_last = _split(out)
    _push_into(out_first, first, t_first)
    solve = Triangular(first, lower.dtype, lower=True).solve
    out_below[...] = adjoint(solve(adjoint(t_below - np.matmul(below, adjoint(out_first))), 0))
    moved = np.matmul(out_below, adjoint(below))
    _push_into(out_last, last, t_last - (moved + adjoint(moved)))


def _pull_value(lower, g):
    """Return the Hermitian cotangent of A from that of L, of which the lower triangle is read."""
    out = np.empty_like(g)
    _pull_into(out, lower, g)
    return out


def _pull_into(out, lower, g):
    if _is_whole(lower):
        # The transpose of that: the Hermitian part of L⁻ᴴ Φ(Lᴴ G) L⁻¹.
        solve = Triangular(lower, lower.dtype, lower=True).solve
        inner = _half_lower(np.matmul(adjoint(lower), g))
        out[...] = symmetric_part(solve(adjoint(solve(inner, 2)), 2))
        return
    (first, below, last), (g_first, g_below, g_last) = _split(lower), _split(g)
    out_first, out_below, out_last = _split(out)
    _pull_into(out_last, last, g_last)
    solve = Triangular(first, lower.dtype, lower=True).solve
    moved = adjoint(solve(adjoint(g_below - 2 * np.matmul(out_last, below)), 2))
    _pull_into(out_first, first, g_first - np.matmul(adjoint(moved), below))
    np.multiply(0.5, moved, out=out_below)
    above = out[..., : first.shape[-1], first.shape[-1] :]
    above[...] = adjoint(out_below)


def _is_whole(lower):
    return lower.shape[-1] <= WHOLE or lower.ndim > 2


# -- and their own derivatives --------------------------------------------------------------------------


def _times_lower(a, lower):
    """Return a L, for arrays in five eighths of the work: most entries above the diagonal are left zero."""
    if isinstance(a, Traced) or isinstance(lower, Traced):
        return np.matmul(a, lower)
    k = lower.shape[-1] // 2
    out = np.zeros(np.broadcast_shapes(a.shape, lower.shape), a.dtype)
    np.matmul(a, lower[..., :k], out=out[..., :k])
    np.matmul(a[..., k:, k:], lower[..., k:, k:], out=out[..., k:, k:])
    return out


def _push_jvp(tangents, ans, lower, t):
    # ddA − dL L̇ᴴ − L̇ dLᴴ = d(dL) Lᴴ + L d(dL)ᴴ
    t_lower, right = tangents
    if t_lower is not None:
        moved = np.matmul(ans, adjoint(align(t_lower, lower, np.ndim(ans))))
        moved = moved + adjoint(moved)
        right = -moved if right is None else right - moved
    return _push(lower, right)


def _push_vjp(g, ans, needed, lower, t):
    pulled = _pull(lower, g)
    of_lower = -2 * _times_lower(pulled, ans) if needed[0] else None
    return [unbroadcast(of_lower, lower, lead_of(g, ans)) if needed[0] else None, pulled]


def _pull_jvp(tangents, ans, lower, g):
    # 2 dĀ L has the lower triangle of dG − 2 Ā dL.
    t_lower, right = tangents
    if t_lower is not None:
        moved = 2 * _times_lower(ans, align(t_lower, lower, np.ndim(ans)))
        right = -moved if right is None else right - moved
    return _pull(lower, right)


def _pull_vjp(h, ans, needed, lower, g):
    pushed = _push(lower, symmetric_part(h))
    of_lower = -2 * _times_lower(ans, pushed) if needed[0] else None
    return [unbroadcast(of_lower, lower, lead_of(h, ans)) if needed[0] else None, pushed]


_push = Primitive(_push_value, _push_jvp, _push_vjp, name="np.linalg.cholesky", batched=True)
_pull = Primitive(_pull_value, _pull_jvp, _pull_vjp, name="np.linalg.cholesky", batched=True)


def _cholesky_jvp(t, ans, a, *, upper=False):
    moved = _push(adjoint(ans) if upper else ans, symmetric_part(t))
    return adjoint(moved) if upper else moved


def _cholesky_vjp(g, ans, a, *, upper=False):
    return _pull(adjoint(ans), adjoint(g)) if upper else _pull(ans, g)


def _cholesky_value(a, *, upper=False):
    return np.linalg.cholesky(a, upper=True) if upper else np.linalg.cholesky(a)


define(
    _cholesky_value,
    name="np.linalg.cholesky",
    jvp=[_cholesky_jvp],
    vjp=[_cholesky_vjp],
    batched=True,
    handles=np.linalg.cholesky,
)

"""Rules of the Cholesky factor.

Both modes halve the matrix: for A = [[A₁₁, ·], [A₂₁, A₂₂]] the factor has L₁₁, that of A₁₁; L₂₁ = A₂₁ L₁₁⁻ᴴ;
and L₂₂, that of A₂₂ − L₂₁ L₂₁ᴴ. It is less than a third of the work of triangular solutions with all of L
(Murray, Differentiation of the Cholesky decomposition, 2016, has blocks of one size). They are written in
functions that have rules, so that further derivatives take as little.
"""

import numpy as np

from mercer.autodiff.rules import Primitive, define
from mercer.autodiff.rules_linalg import Triangular, solve_with, symmetric_part, triangle
from mercer.autodiff.rules_products import adjoint
from mercer.autodiff.trace import plain

#: Up to this size a matrix is not halved: small products and solutions reach less of the processor's speed.
WHOLE = 128


def _half_lower(x):
    """Return the lower triangle with half of the (real) diagonal: X with X + Xᴴ = x, for Hermitian x."""
    n = np.shape(x)[-1]
    half = 0.5 * np.eye(n, dtype=np.real(plain(x)).dtype)
    if x.dtype.kind == "c":
        return triangle(x, strict=True) + half * np.real(x)
    return np.multiply(x, np.tri(n, k=-1, dtype=x.dtype) + half)


def _solve(lower, x, trans):
    return solve_with(Triangular(plain(lower), lower.dtype, lower=True), lower, x, trans)


def _split(x, k):
    """Return the two diagonal blocks of matrices, and the one below."""
    return x[..., :k, :k], x[..., k:, :k], x[..., k:, k:]


def _joined_value(first, below, above, last):
    k, n = first.shape[-1], first.shape[-1] + last.shape[-1]
    out = np.empty((*first.shape[:-2], n, n), np.result_type(first, below, last))
    out[..., :k, :k], out[..., :k, k:] = first, above
    out[..., k:, :k], out[..., k:, k:] = below, last
    return out


def _joined_jvp(tangents, ans, *blocks):
    lead = next(np.shape(t) for t in tangents if t is not None)[: -np.ndim(ans)]
    zero = lambda x: np.zeros((*lead, *np.shape(x)), ans.dtype)  # noqa: E731
    return _joined(*(zero(x) if t is None else t for t, x in zip(tangents, blocks, strict=True)))


def _joined_vjp(g, ans, needed, first, *others):
    k = np.shape(first)[-1]
    return g[..., :k, :k], g[..., k:, :k], g[..., :k, k:], g[..., k:, k:]


#: ``_joined(first, below, above, last)``: matrices from their blocks.
_joined = Primitive(
    _joined_value, _joined_jvp, _joined_vjp, name="np.linalg.cholesky", batched=True, unread=True
)


def _push(lower, t):
    """Return the tangent of L from a Hermitian one of A."""
    n = np.shape(lower)[-1]
    if n <= WHOLE or np.ndim(lower) > 2:
        # dL = L Φ(L⁻¹ dA L⁻ᴴ), Φ the lower triangle with half of the diagonal
        inner = _solve(lower, adjoint(_solve(lower, t, 0)), 0)
        return np.matmul(lower, _half_lower(inner))
    first, below, last = _split(lower, n // 2)
    t_first, t_below, t_last = _split(t, n // 2)
    t_first = _push(first, t_first)
    t_below = adjoint(_solve(first, adjoint(t_below - np.matmul(below, adjoint(t_first))), 0))
    moved = np.matmul(t_below, adjoint(below))
    t_last = _push(last, t_last - (moved + adjoint(moved)))
    return _joined(t_first, t_below, np.zeros_like(adjoint(t_below)), t_last)


def _pull(lower, g):
    """Return the Hermitian cotangent of A from that of L, of which the lower triangle is read."""
    n = np.shape(lower)[-1]
    if n <= WHOLE or np.ndim(lower) > 2:
        # The transpose of that: the Hermitian part of L⁻ᴴ Φ(Lᴴ G) L⁻¹.
        inner = _half_lower(np.matmul(adjoint(lower), g))
        return symmetric_part(_solve(lower, adjoint(_solve(lower, inner, 2)), 2))
    first, below, last = _split(lower, n // 2)
    g_first, g_below, g_last = _split(g, n // 2)
    g_last = _pull(last, g_last)
    g_below = adjoint(_solve(first, adjoint(g_below - 2 * np.matmul(g_last, below)), 2))
    g_first = _pull(first, g_first - np.matmul(adjoint(g_below), below))
    half = 0.5 * g_below
    return _joined(g_first, half, adjoint(half), g_last)


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

"""Rules of QR factors."""

import numpy as np

from mercer.autodiff.rules import Primitive, composite
from mercer.autodiff.rules_decompositions import diagonal_matrix, diagonals, refuse, total_of
from mercer.autodiff.rules_linalg import Triangular, solve_with, triangle
from mercer.autodiff.rules_products import adjoint
from mercer.autodiff.trace import np_like, plain


def _qr_value(a):
    return np.linalg.qr(a)


def _by_inverse(x, r):
    """Return x R⁻¹."""
    return adjoint(solve_with(_upper(r), r, adjoint(x), trans=2))


def _upper(r):
    held = plain(r)
    size = np.abs(np.diagonal(held, 0, -2, -1))
    if np.any(size <= held.shape[-1] * np.finfo(size.dtype).eps * np.max(size, -1, keepdims=True, initial=0)):
        refuse("np.linalg.qr", "the columns are linearly dependent, the factors are not differentiable there",
               "drop or shift the dependent columns")  # fmt: skip
    return Triangular(held, held.dtype, lower=False)


def _turn(m):
    """Return the skew part of a product that is skew plus upper triangular with a real diagonal."""
    low = triangle(m, strict=True)
    out = low - adjoint(low)
    return out + diagonal_matrix(1j * np.imag(diagonals(m))) if m.dtype.kind == "c" else out


def _turn_transposed(k):
    out = triangle(k - adjoint(k), strict=True)
    return out + diagonal_matrix(1j * np.imag(diagonals(k))) if k.dtype.kind == "c" else out


# QᴴdA R⁻¹ = Ω + dR R⁻¹ with Ω skew and the other upper triangular
def _qr_jvp(tangents, ans, a):
    q, r = ans
    moved = _by_inverse(tangents[0], r)
    m = np.matmul(adjoint(q), moved)
    turn = _turn(m)
    return moved - np.matmul(q, m - turn), np.matmul(m - turn, r)


def _qr_vjp(g, ans, needed, a):
    (q, r), (gq, gr) = ans, g
    stretch = None if gr is None else np.matmul(gr, adjoint(r))
    turn = None if gq is None else np.matmul(adjoint(q), gq)
    k = turn if stretch is None else -stretch if turn is None else turn - stretch
    inner = total_of(stretch, _turn_transposed(k))
    out = np.matmul(q, inner if turn is None else inner - turn)
    if gq is not None:
        out = out + gq
    # X R⁻ᴴ
    return [adjoint(solve_with(_upper(r), r, adjoint(out)))]


_qr = Primitive(_qr_value, _qr_jvp, _qr_vjp, name="np.linalg.qr", batched=True)


@composite(np.linalg.qr)
def qr(a, mode="reduced"):
    """The QR factors of matrices of full rank."""
    a = np_like(a)
    m, n = a.shape[-2:]
    if mode not in ("reduced", "r", "complete") or (mode == "complete" and m > n):
        refuse(
            "np.linalg.qr",
            f"mode {mode!r} is not differentiable"
            + (", any basis would do for the columns beyond the rank" if mode == "complete" else ""),
            'use mode="reduced" or "r"',
        )
    if m < n:  # R = [R₁, QᴴA₂]
        q, r = _qr(a[..., :m])
        r = np.concatenate([r, np.matmul(adjoint(q), a[..., m:])], -1)
    else:
        q, r = _qr(a)
    return r if mode == "r" else type(np.linalg.qr(np.eye(1)))(q, r)

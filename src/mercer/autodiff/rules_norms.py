"""Rules of norms and condition numbers, pseudo-inverses, least squares, powers and tensor equations.

A norm has the gradient 0 at 0. Pseudo-inverses are differentiated at constant rank.
"""

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from mercer.autodiff.errors import TraceValueError, trace_error
from mercer.autodiff.rules import Primitive, cast, composite, define, no_derivative, unbroadcast
from mercer.autodiff.rules_linalg import symmetric_part, times
from mercer.autodiff.rules_products import adjoint, conjugate, lead_of
from mercer.autodiff.trace import np_like, plain

# -- vectors --------------------------------------------------------------------------------------------


def _norm_value(x, *, order, axis, keepdims):
    if order == 2 and len(axis) == np.ndim(x) and not keepdims:
        return np.linalg.norm(x)
    return np.linalg.vector_norm(x, ord=order, axis=axis, keepdims=keepdims)


def _nonzero(x, zero):
    return np.where(zero, np.ones((), x.dtype), x) if np.any(zero) else x


def _direction(ans, x, order, axis, keepdims):
    """Return the gradient: x / ‖x‖, or the phases of x times (|x| / ‖x‖)^(p−1); 0 where an entry is 0."""
    norm = ans if keepdims else np.expand_dims(ans, axis)
    norm = _nonzero(norm, np.equal(plain(norm), 0))
    if order == 2:
        return x / norm
    zero = np.equal(plain(x), 0)
    held = _nonzero(x, zero)
    size = np.abs(held)
    out = np.multiply(held / size, (size / norm) ** (order - 1))
    return np.where(zero, np.zeros((), x.dtype), out) if np.any(zero) else out


def _norm_jvp(t, ans, x, *, order, axis, keepdims):
    moved = np.multiply(conjugate(_direction(ans, x, order, axis, keepdims)), t)
    return np.sum(np.real(moved) if moved.dtype.kind == "c" else moved, axis=axis, keepdims=keepdims)


def _norm_vjp(g, ans, x, *, order, axis, keepdims):
    g = g if keepdims else np.expand_dims(g, axis)
    return cast(np.multiply(g, _direction(ans, x, order, axis, keepdims)), x)


# axes count from the end, so that tangents with a leading axis of directions are no exception
_norm = define(_norm_value, name="np.linalg.norm", jvp=[_norm_jvp], vjp=[_norm_vjp], batched=True)


def _axes(axis, ndim):
    """Return axes as a tuple, counted from the end."""
    axis = range(ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    return tuple(a if a < 0 else a - ndim for a in axis)


def _vector_norm(x, order, axis, keepdims):
    """Return norms over one or several axes (a tuple, from the end)."""
    order = 2 if order is None else order
    if isinstance(order, str):
        raise ValueError(f"Invalid norm order {order!r} for vectors")
    if order == 0:
        size = np_like(plain(x))
        return np.sum(size != 0, axis=axis, keepdims=keepdims).astype(np.abs(size).dtype)
    if order == np.inf:
        return _largest(np.abs(x), axis, keepdims)
    if order == -np.inf:
        return np.min(np.abs(x), axis=axis, keepdims=keepdims)
    if order == 1:
        return np.sum(np.abs(x), axis=axis, keepdims=keepdims)
    return _norm(x, order=order, axis=axis, keepdims=keepdims)


def _largest(x, axis, keepdims=False):
    """Return the largest of entries that are not negative; 0 where there are none."""
    return (np.max if x.size else np.sum)(x, axis=axis, keepdims=keepdims)


# -- matrices -------------------------------------------------------------------------------------------


def _matrix_norm(x, order, axis, keepdims):
    """Return norms over a pair of axes."""
    ndim = np.ndim(x)
    row, column = normalize_axis_tuple(axis, ndim, allow_duplicate=True)
    if row == column:
        raise ValueError("Duplicate axes given.")
    if order in (None, "fro", "f"):
        return _norm(x, order=2, axis=_axes((row, column), ndim), keepdims=keepdims)
    if order in ("nuc", 2, -2):
        s = np.linalg.svdvals(np.moveaxis(x, (row, column), (-2, -1)))
        out = np.sum(s, -1) if order == "nuc" else _largest(s, -1) if order == 2 else np.min(s, -1)
    elif order in (1, -1, np.inf, -np.inf):
        across, along = (row, column) if abs(order) == 1 else (column, row)
        sums = np.sum(np.abs(x), axis=across)
        pick = _largest if order > 0 else np.min
        out = pick(sums, axis=along - 1 if along > across else along)
    else:
        raise ValueError("Invalid norm order for matrices.")
    return np.expand_dims(out, (row, column)) if keepdims else out


def _floating(x):
    x = np_like(x)
    return x if x.dtype.kind in "fc" else x.astype(np.float64)


@composite(np.linalg.norm)
def norm(x, ord=None, axis=None, keepdims=False):
    """The norms of vectors and matrices, of every order that NumPy has."""
    x = _floating(x)
    ndim = np.ndim(x)
    if axis is None:
        if ord is None or (ord in ("f", "fro") and ndim == 2) or (ord == 2 and ndim == 1):
            return _norm(x, order=2, axis=_axes(None, ndim), keepdims=keepdims)
        if ndim not in (1, 2):
            raise ValueError("Improper number of dimensions to norm.")
    axes = _axes(axis, ndim)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError("Improper number of dimensions to norm.")


@composite(np.linalg.vector_norm)
def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """The norms of vectors along one or several axes."""
    x = _floating(x)
    return _vector_norm(x, ord, _axes(axis, np.ndim(x)), keepdims)


@composite(np.linalg.matrix_norm)
def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """The norms of matrices in the last two axes."""
    return _matrix_norm(_floating(x), ord, (-2, -1), keepdims)


@composite(np.linalg.cond)
def cond(x, p=None):
    """The condition number in the norm of an order."""
    if p in (None, 2, -2):
        s = np.linalg.svdvals(x)
        large, small = s[..., 0], s[..., -1]
        return small / large if p == -2 else large / small
    return norm(x, p, (-2, -1)) * norm(np.linalg.inv(x), p, (-2, -1))


no_derivative(np.linalg.matrix_rank)

# -- pseudo-inverses ------------------------------------------------------------------------------------


def _residual_of(p, a, left):
    """Return I − A A⁺ (left) or I − A⁺ A."""
    product = np.matmul(a, p) if left else np.matmul(p, a)
    return np.eye(np.shape(product)[-1], dtype=product.dtype) - product


# dA⁺ = −A⁺ dA A⁺ + A⁺ A⁺ᴴ dAᴴ (I − A A⁺) + (I − A⁺ A) dAᴴ A⁺ᴴ A⁺, at constant rank (Golub and Pereyra)
def _pinv_jvp(t, ans, a, *, hermitian, options):
    t = symmetric_part(t) if hermitian else t
    p, th = ans, adjoint(t)
    out = -np.matmul(p, np.matmul(t, p))
    out = out + np.matmul(np.matmul(p, adjoint(p)), np.matmul(th, _residual_of(p, a, True)))
    return out + np.matmul(_residual_of(p, a, False), np.matmul(th, np.matmul(adjoint(p), p)))


def _pinv_vjp(g, ans, a, *, hermitian, options):
    p, gh = ans, adjoint(g)
    out = -np.matmul(adjoint(p), np.matmul(g, adjoint(p)))
    out = out + np.matmul(_residual_of(p, a, True), np.matmul(gh, np.matmul(p, adjoint(p))))
    out = out + np.matmul(np.matmul(adjoint(p), p), np.matmul(gh, _residual_of(p, a, False)))
    return symmetric_part(out) if hermitian else out


_pinv = define(
    lambda a, *, hermitian, options: np.linalg.pinv(a, hermitian=hermitian, **options),
    name="np.linalg.pinv",
    jvp=[_pinv_jvp],
    vjp=[_pinv_vjp],
    batched=True,
)


@composite(np.linalg.pinv)
def pinv(a, rcond=None, hermitian=False, **options):
    """The pseudo-inverse of matrices of constant rank."""
    if rcond is not None:
        options["rcond"] = rcond
    return _pinv(np_like(a), hermitian=hermitian, options=options)


# -- least squares --------------------------------------------------------------------------------------


def _lstsq_value(a, b, *, rcond):
    return np.linalg.lstsq(a, b, rcond)[0]


def _lstsq_parts(ans, a, b):
    """Return A⁺, the residuals b − A x, and whether b is one vector."""
    vector = np.ndim(b) == 1
    return np.linalg.pinv(a), b - np.matmul(a, ans), vector


# x = A⁺ b with A⁺ b = x and (I − A A⁺) b = r put into A⁺'s derivative
def _lstsq_jvp(tangents, ans, a, b, *, rcond):
    ta, tb = tangents
    p, r, vector = _lstsq_parts(ans, a, b)
    out = None if tb is None else times(p, tb, vector)
    if ta is not None:
        th = adjoint(ta)
        term = times(p, times(adjoint(p), times(th, r, vector), vector), vector) - times(
            p, times(ta, ans, vector), vector
        )
        term = term + times(
            _residual_of(p, a, False), times(th, times(adjoint(p), ans, vector), vector), vector
        )
        out = term if out is None else out + term
    return out


def _lstsq_vjp(g, ans, needed, a, b, *, rcond):
    p, r, vector = _lstsq_parts(ans, a, b)
    gb = times(adjoint(p), g, vector)
    ga = None
    if needed[0]:
        x, pg = ans, times(p, gb, vector)
        rest = times(_residual_of(p, a, False), g, vector)
        back = times(adjoint(p), x, vector)
        if vector:
            gb1, x1, r1, pg1, rest1, back1 = (np.expand_dims(v, -1) for v in (gb, x, r, pg, rest, back))
        else:
            gb1, x1, r1, pg1, rest1, back1 = gb, x, r, pg, rest, back
        ga = np.matmul(r1, adjoint(pg1)) - np.matmul(gb1, adjoint(x1)) + np.matmul(back1, adjoint(rest1))
    lead = lead_of(g, ans)
    return [ga if ga is None else unbroadcast(ga, a, lead), cast(gb, b) if needed[1] else None]


_lstsq = Primitive(_lstsq_value, _lstsq_jvp, _lstsq_vjp, name="np.linalg.lstsq", batched=True)


@composite(np.linalg.lstsq)
def lstsq(a, b, rcond=None):
    """The least-squares solution for a matrix of full rank, and what NumPy returns beside it."""
    a, b = _floating(a), _floating(b)
    _, residuals, rank, _ = np.linalg.lstsq(plain(a), plain(b), rcond)
    if rank < min(a.shape):
        raise trace_error(
            "np.linalg.lstsq",
            f"the matrix of shape {a.shape} has the rank {rank}, the solution is not differentiable there",
            "add a ridge, or use np.linalg.pinv if the rank does not change",
            TraceValueError,
        )
    x = _lstsq(a, b, rcond=rcond)
    if np.size(residuals):
        gaps = b - np.matmul(a, x)
        residuals = np.sum(np.real(np.multiply(conjugate(gaps), gaps)), axis=0, keepdims=np.ndim(b) == 1)
    return x, residuals, rank, np.linalg.svdvals(a)


# -- powers, tensor equations ---------------------------------------------------------------------------


@composite(np.linalg.matrix_power)
def matrix_power(a, n):
    """Powers by whole numbers, by repeated squaring."""
    a = np_like(a)
    if n < 0:
        a, n = np.linalg.inv(a), -n
    if n == 0:
        return np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape).copy()
    if n == 3:  # NumPy's order, which is not that of squaring
        return np.matmul(np.matmul(a, a), a)
    result = None
    while n:
        n, odd = divmod(n, 2)
        if odd:
            result = a if result is None else np.matmul(result, a)
        if n:
            a = np.matmul(a, a)
    return result


@composite(np.linalg.tensorsolve)
def tensorsolve(a, b, axes=None):
    """The solution x of ``tensordot(a, x, x.ndim) = b``."""
    if axes is not None:
        rest = [i for i in range(np.ndim(a)) if i not in axes]
        a = np.transpose(a, rest + list(axes))
    shape = np.shape(a)[np.ndim(b) :]
    n = int(np.prod(shape))
    if np.size(a) != n * n:
        raise np.linalg.LinAlgError(
            "Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])"
        )
    return np.reshape(np.linalg.solve(np.reshape(a, (n, n)), np.reshape(b, -1)), shape)


@composite(np.linalg.tensorinv)
def tensorinv(a, ind=2):
    """The inverse of a tensor as a map from its last axes to the first `ind`."""
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    shape = np.shape(a)
    n = int(np.prod(shape[ind:]))
    return np.reshape(np.linalg.inv(np.reshape(a, (n, -1))), shape[ind:] + shape[:ind])

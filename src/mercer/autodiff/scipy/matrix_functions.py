"""Functions of a matrix in `scipy.linalg` on traced and plain values, and Sylvester's equation.

A function that is a power series has derivatives of every order by values of one block triangular matrix.
"""

import numpy as np
import scipy.linalg

from mercer.autodiff.errors import TraceValueError, trace_error
from mercer.autodiff.rules import Primitive, unbroadcast
from mercer.autodiff.rules_products import adjoint, align, lead_of
from mercer.autodiff.scipy._arguments import array
from mercer.autodiff.trace import plain

__all__ = ["expm", "expm_frechet", "logm", "solve_sylvester", "sqrtm"]


def _block_pushed(f, a, directions):
    """Return Dᵏ f(a)[E_1, …, E_k] from f of one block triangular matrix.

    f([[A, E], [0, A]]) = [[f(A), Df(A)[E]], [0, f(A)]]; once more for each further direction (Mathias).
    """
    n = a.shape[-1]
    shape = np.broadcast_shapes(a.shape, *(e.shape for e in directions))
    kind = np.result_type(a, *directions)
    out = np.empty(shape, kind)
    spread = [np.broadcast_to(x, shape) for x in (a, *directions)]
    for at in np.ndindex(shape[:-2]):
        big, product = spread[0][at], 1.0
        size = np.max(np.abs(big), initial=0) or 1.0
        for k, e in enumerate(spread[1:]):
            scale = (np.max(np.abs(e[at]), initial=0) or 1.0) / size  # E as large as A: neither drowns
            corner = np.kron(np.eye(2**k, dtype=big.dtype), (e[at] / scale).astype(kind))
            big = np.block([[big, corner], [np.zeros_like(big), big]])
            product *= scale
        corner = f(big)[:n, -n:] * product
        out[at] = corner.real if kind.kind == "f" else corner
    return out


def _matrix_function(f, name, check=None):
    """Return a primitive of a matrix function that is a power series, with derivatives of every order."""

    def value(a, *directions):
        if directions:
            return _block_pushed(f, a, directions)
        if a.ndim == 2:
            return f(a)
        parts = np.stack([f(x) for x in a.reshape(-1, *a.shape[-2:])])
        return parts.reshape(a.shape)

    def jvp(tangents, ans, a, *directions):
        if check is not None:
            check(plain(a))
        total, every = None, (a, *directions)
        for i, t in enumerate(tangents):
            if t is None:
                continue
            moved = align(t, every[i], np.ndim(ans))
            if moved.dtype != ans.dtype:  # SciPy has logarithms in double precision alone
                moved = moved.astype(ans.dtype)
            chosen = [*directions, moved] if i == 0 else [*directions[: i - 1], moved, *directions[i:]]
            term = primitive(a, *chosen)
            total = term if total is None else total + term
        return total

    # ⟨G, Df(A)[E]⟩ = ⟨Df(Aᴴ)[G], E⟩; with directions, all of them are conjugated and transposed too
    def vjp(g, ans, needed, a, *directions):
        if check is not None:
            check(plain(a))
        lead, result = lead_of(g, ans), []
        turned = [adjoint(e) for e in directions]
        for i, need in enumerate(needed):
            if not need:
                result.append(None)
                continue
            chosen = [*turned, g] if i == 0 else [*turned[: i - 1], g, *turned[i:]]
            result.append(unbroadcast(primitive(adjoint(a), *chosen), (a, *directions)[i], lead))
        return result

    primitive = Primitive(value, jvp, vjp, name=f"scipy.linalg.{name}", batched=True)
    return primitive


_expm = _matrix_function(scipy.linalg.expm, "expm")


def _off_the_cut(name):
    def check(a):
        w = np.linalg.eigvals(a)
        size = np.max(np.abs(w), initial=0)
        if np.any((np.real(w) <= 1e-14 * size) & (np.abs(np.imag(w)) <= 1e-14 * size)):
            raise trace_error(
                f"scipy.linalg.{name}",
                "the matrix has an eigenvalue on the closed negative real axis, where the principal value is "
                "not differentiable",
                "shift the matrix",
                TraceValueError,
            )

    return check


_sqrtm = _matrix_function(scipy.linalg.sqrtm, "sqrtm", _off_the_cut("sqrtm"))
_logm = _matrix_function(scipy.linalg.logm, "logm", _off_the_cut("logm"))


def expm(A):
    """Return the matrix exponential.

    Parameters
    ----------
    A : array of shape (..., n, n)

    Returns
    -------
    array of shape (..., n, n)

    Notes
    -----
    Derivatives of every order come from the exponential of one block triangular matrix:
    exp([[A, E], [0, A]]) has D exp(A)[E] in its corner.
    """
    return _expm(array(A))


def expm_frechet(A, E, method=None, compute_expm=True, check_finite=True):
    """Return the matrix exponential and its derivative in a direction.

    Parameters
    ----------
    A, E : arrays of shape (n, n)
    method : str, optional
        Is accepted and has no effect.
    compute_expm : bool

    Returns
    -------
    expm_A : array of shape (n, n)
        Left out unless `compute_expm`.
    expm_frechet_AE : array of shape (n, n)
    """
    A, E = array(A), array(E)
    derivative = _expm(A, E)
    return (_expm(A), derivative) if compute_expm else derivative


def sqrtm(A):
    """Return the principal square root, with derivatives as :func:`expm`'s.

    Parameters
    ----------
    A : array of shape (..., n, n)
        To differentiate, without eigenvalues on the closed negative real axis.

    Returns
    -------
    array of shape (..., n, n)
    """
    return _sqrtm(array(A))


def logm(A):
    """Return the principal logarithm, with derivatives as :func:`expm`'s.

    Parameters
    ----------
    A : array of shape (..., n, n)
        To differentiate, without eigenvalues on the closed negative real axis.

    Returns
    -------
    array of shape (..., n, n)
    """
    return _logm(array(A))


# -- Sylvester's equation -------------------------------------------------------------------------------


def _sylvester_value(a, b, q):
    shape = np.broadcast_shapes(q.shape[:-2], a.shape[:-2], b.shape[:-2])
    if not shape:
        return scipy.linalg.solve_sylvester(a, b, q)
    a, b, q = (np.broadcast_to(x, shape + x.shape[-2:]) for x in (a, b, q))
    return np.stack(
        [scipy.linalg.solve_sylvester(a[i], b[i], q[i]) for i in np.ndindex(shape)]
    ).reshape(q.shape)  # fmt: skip


def _sylvester_jvp(tangents, ans, a, b, q):
    ta, tb, tq = tangents
    right = None if tq is None else align(tq, q, np.ndim(ans))
    if ta is not None:
        term = np.matmul(align(ta, a, np.ndim(ans)), ans)
        right = -term if right is None else right - term
    if tb is not None:
        term = np.matmul(ans, align(tb, b, np.ndim(ans)))
        right = -term if right is None else right - term
    return _sylvester(a, b, right)


def _sylvester_vjp(g, ans, needed, a, b, q):
    back = _sylvester(adjoint(a), adjoint(b), g)
    lead = lead_of(g, ans)
    return [
        unbroadcast(-np.matmul(back, adjoint(ans)), a, lead) if needed[0] else None,
        unbroadcast(-np.matmul(adjoint(ans), back), b, lead) if needed[1] else None,
        unbroadcast(back, q, lead) if needed[2] else None,
    ]


_sylvester = Primitive(
    _sylvester_value, _sylvester_jvp, _sylvester_vjp, name="scipy.linalg.solve_sylvester", batched=True
)


def solve_sylvester(a, b, q):
    """Return the solution of a x + x b = q.

    Parameters
    ----------
    a : array of shape (m, m)
    b : array of shape (n, n)
    q : array of shape (m, n)

    Returns
    -------
    array of shape (m, n)
    """
    return _sylvester(array(a), array(b), array(q))

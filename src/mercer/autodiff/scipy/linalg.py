"""Functions of `scipy.linalg` on traced and plain values.

They take SciPy's arguments; what only steers memory or checks (``overwrite_a``, ``check_finite``) is accepted
and has no effect. Matrices, or stacks of them where SciPy takes stacks. Conventions as for ``np.linalg``:
functions of symmetric matrices have symmetric gradients.
"""

import numpy as np
import scipy.linalg

from mercer.autodiff.errors import TraceValueError, trace_error
from mercer.autodiff.rules import Primitive, unbroadcast
from mercer.autodiff.rules_linalg import Triangular, floating, shared_lu, solve_with, triangle
from mercer.autodiff.rules_products import adjoint, align, conjugate, lead_of, matrix_transpose
from mercer.autodiff.trace import Traced, np_like, plain

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "det", "eig", "eigh", "eigvals",
    "eigvalsh", "expm", "hankel", "inv", "kron", "logm", "lstsq", "norm", "pinv", "qr", "solve",
    "solve_sylvester", "solve_triangular", "sqrtm", "svd", "svdvals", "toeplitz",
]  # fmt: skip


def _array(x):
    """Return an array of a floating type, traced if something in it is."""
    if isinstance(x, list | tuple) and any(isinstance(item, Traced | list | tuple) for item in x):
        x = np.stack([_array(item) for item in x])
    x = np_like(x)
    return x if x.dtype.kind in "fc" else x.astype(np.float64)


def _only(function, **options):
    """Raise for an option whose derivative is not written."""
    for name, (value, wanted) in options.items():
        if value is not None and value != wanted:
            raise trace_error(
                f"scipy.linalg.{function}",
                f"{name}={value!r} is not differentiated",
                f"leave out {name}",
                TraceValueError,
            )


def _lasting(a):
    """Return the plain value of a matrix, which the caller cannot change while a pullback needs it."""
    return plain(a) if isinstance(a, Traced) else a.copy("K")


# -- systems --------------------------------------------------------------------------------------------


def solve_triangular(a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False, check_finite=True):
    """Return the solution of op(a) x = b for a triangular matrix; the other triangle is not read.

    Parameters
    ----------
    a : array of shape (..., n, n)
    b : array of shape (n,) or (..., n, m)
    trans : {0, 1, 2, "N", "T", "C"}
        Whether op(a) is a, its transpose or its adjoint.
    lower, unit_diagonal : bool

    Returns
    -------
    array of b's shape

    Raises
    ------
    numpy.linalg.LinAlgError
        If a diagonal entry is 0.
    """
    a, b = _array(a), _array(b)
    trans = {"N": 0, "T": 1, "C": 2}.get(trans, trans)
    return solve_with(Triangular(_lasting(a), floating(a, b), lower, unit_diagonal), a, b, trans)


def solve(
    a,
    b,
    lower=False,
    overwrite_a=False,
    overwrite_b=False,
    check_finite=True,
    assume_a=None,
    transposed=False,
):
    """Return the solution of a x = b.

    Parameters
    ----------
    a : array of shape (..., n, n)
    b : array of shape (n,) or (..., n, m)
    lower : bool
        The triangle that is read, for symmetric, Hermitian, positive definite and triangular matrices.
    assume_a : str, optional
        As SciPy has it: "gen", "sym", "her", "pos", "diagonal", "upper triangular", "lower triangular", …
        Gradients of "sym", "her" and "pos" are symmetric; a matrix assumed banded is taken as a full one.
    transposed : bool
        Whether to solve aᵀ x = b.

    Returns
    -------
    array of b's shape
    """
    a, b = _array(a), _array(b)
    kind = {"symmetric": "sym", "hermitian": "her", "positive definite": "pos"}.get(assume_a, assume_a)
    if kind in ("upper triangular", "lower triangular"):
        return solve_triangular(a, b, int(transposed), kind == "lower triangular")
    if kind in ("sym", "her", "pos"):
        a = _whole(a, lower, hermitian=kind != "sym")
        if kind == "pos" and not transposed:
            return cho_solve((np.linalg.cholesky(a), True), b)
    elif kind == "diagonal":
        a = a * np.eye(a.shape[-1], dtype=a.dtype)
    return solve_with(shared_lu(a, floating(a, b)), a, b, int(transposed))


def _whole(a, lower, hermitian=True):
    """Return the symmetric matrix of which one triangle is given; its gradient is the triangle's, shared."""
    held = plain(a)
    turned = adjoint if hermitian else matrix_transpose
    whole = triangle(held, lower) + turned(triangle(held, lower, strict=True))
    # equal in value to the symmetric matrix of the triangle, with the derivative of the symmetric part
    return whole if not isinstance(a, Traced) else _half(a, hermitian) + (whole - _half(held, hermitian))


def _half(a, hermitian):
    return 0.5 * (a + (adjoint(a) if hermitian else matrix_transpose(a)))


def cholesky(a, lower=False, overwrite_a=False, check_finite=True):
    """Return the Cholesky factor, upper unless `lower`, of the matrix that this triangle of `a` stands for.

    Parameters
    ----------
    a : array of shape (..., n, n)
    lower : bool

    Returns
    -------
    array of shape (..., n, n)

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not positive definite.
    """
    return np.linalg.cholesky(_array(a)) if lower else np.linalg.cholesky(_array(a), upper=True)


def cho_factor(a, lower=False, overwrite_a=False, check_finite=True):
    """Return the Cholesky factor (its other triangle zero) and `lower`, for :func:`cho_solve`.

    Parameters
    ----------
    a : array of shape (n, n)
    lower : bool

    Returns
    -------
    c : array of shape (n, n)
    lower : bool
    """
    return cholesky(a, lower), lower


def cho_solve(c_and_lower, b, overwrite_b=False, check_finite=True):
    """Return the solution of A x = b by A's Cholesky factor.

    Parameters
    ----------
    c_and_lower : tuple
        (c, lower), as :func:`cho_factor` returns it.
    b : array of shape (n,) or (..., n, m)

    Returns
    -------
    array of b's shape
    """
    c, lower = c_and_lower
    c, b = _array(c), _array(b)
    factor = Triangular(_lasting(c), floating(c, b), lower)
    first, second = (0, 2) if lower else (2, 0)
    return solve_with(factor, c, solve_with(factor, c, b, first), second)


# -- as NumPy has them ----------------------------------------------------------------------------------


def inv(a, overwrite_a=False, check_finite=True, **options):
    """Return the inverse: see :func:`numpy.linalg.inv`."""
    return np.linalg.inv(_array(a))


def det(a, overwrite_a=False, check_finite=True):
    """Return the determinant: see :func:`numpy.linalg.det`."""
    return np.linalg.det(_array(a))


def pinv(a, atol=None, rtol=None, return_rank=False, check_finite=True):
    """Return the pseudo-inverse at constant rank: see :func:`numpy.linalg.pinv`."""
    _only("pinv", atol=(atol, 0), return_rank=(return_rank, False))
    a = _array(a)
    rtol = max(a.shape[-2:]) * np.finfo(a.dtype).eps if rtol is None else rtol
    return np.linalg.pinv(a, rcond=rtol)


def lstsq(a, b, cond=None, overwrite_a=False, overwrite_b=False, check_finite=True, lapack_driver=None):
    """Return the least-squares solution and what NumPy returns beside it: see :func:`numpy.linalg.lstsq`."""
    return np.linalg.lstsq(_array(a), _array(b), cond)


def norm(a, ord=None, axis=None, keepdims=False, check_finite=True):
    """Return a norm: see :func:`numpy.linalg.norm`."""
    return np.linalg.norm(_array(a), ord, axis, keepdims)


def kron(a, b):
    """Return the Kronecker product: see :func:`numpy.kron`."""
    return np.kron(_array(a), _array(b))


def eigh(a, b=None, *, lower=True, eigvals_only=False, subset_by_index=None, **options):
    """Return eigenvalues and eigenvectors of a symmetric or Hermitian matrix, or of a pencil (a, b).

    Parameters
    ----------
    a : array of shape (..., n, n)
    b : array of shape (n, n), optional
        Positive definite; then a v = λ b v, and vᴴ b v = 1.
    lower : bool
        The triangle that is read.
    eigvals_only : bool
    subset_by_index : (first, last), optional

    Returns
    -------
    w, v : arrays of shapes (..., n) and (..., n, n)
        Or w alone.
    """
    _only("eigh", subset_by_value=(options.get("subset_by_value"), None), type=(options.get("type"), 1))
    a, uplo = _array(a), "L" if lower else "U"
    part = slice(None) if subset_by_index is None else slice(subset_by_index[0], subset_by_index[1] + 1)
    if b is not None:  # L⁻¹ A L⁻ᴴ (Lᴴ v) = λ (Lᴴ v), B = L Lᴴ
        factor = cholesky(b, lower=True) if lower else adjoint(cholesky(b))
        a = solve_triangular(factor, _whole(a, lower), lower=True)
        a = solve_triangular(factor, adjoint(a), lower=True)
    if eigvals_only:
        return np.linalg.eigvalsh(a, uplo)[..., part]
    w, v = np.linalg.eigh(a, uplo)
    if b is not None:
        v = solve_triangular(factor, v, trans=2, lower=True)
    return w[..., part], v[..., part]


def eigvalsh(a, b=None, *, lower=True, subset_by_index=None, **options):
    """Return the eigenvalues of a symmetric or Hermitian matrix or pencil: see :func:`eigh`."""
    return eigh(a, b, lower=lower, eigvals_only=True, subset_by_index=subset_by_index, **options)


def eig(
    a, b=None, left=False, right=True, overwrite_a=False, overwrite_b=False, check_finite=True, **options
):
    """Return complex eigenvalues and the right eigenvectors of a matrix with distinct eigenvalues."""
    _only("eig", b=(b, None), left=(left, False))
    w, v = np.linalg.eig(_array(a))
    w = w if w.dtype.kind == "c" else w + 0j
    return (w, v) if right else w


def eigvals(a, b=None, overwrite_a=False, check_finite=True, **options):
    """Return the complex eigenvalues of a matrix with distinct eigenvalues."""
    return eig(a, b, right=False)


def svd(a, full_matrices=True, compute_uv=True, overwrite_a=False, check_finite=True, lapack_driver="gesdd"):
    """Return the singular value decomposition: see :func:`numpy.linalg.svd`."""
    return np.linalg.svd(_array(a), full_matrices, compute_uv)


def svdvals(a, overwrite_a=False, check_finite=True):
    """Return the singular values, largest first."""
    return np.linalg.svd(_array(a), compute_uv=False)


def qr(a, overwrite_a=False, lwork=None, mode="full", pivoting=False, check_finite=True):
    """Return the QR factors: see :func:`numpy.linalg.qr`; mode is "full", "economic" or "r"."""
    _only("qr", pivoting=(pivoting, False))
    a = _array(a)
    if mode == "r":
        _only("qr", mode=(mode if a.shape[-2] > a.shape[-1] else None, "economic"))
        return (np.linalg.qr(a, "r"),)
    q, r = np.linalg.qr(a, {"full": "complete", "economic": "reduced"}[mode])
    return q, r


# -- matrix functions -----------------------------------------------------------------------------------


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
    return _expm(_array(A))


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
    return _sqrtm(_array(A))


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
    return _logm(_array(A))


def _sylvester_value(a, b, q):
    shape = np.broadcast_shapes(q.shape[:-2], a.shape[:-2], b.shape[:-2])
    if not shape:
        return scipy.linalg.solve_sylvester(a, b, q)
    a, b, q = (np.broadcast_to(x, shape + x.shape[-2:]) for x in (a, b, q))
    return np.stack(
        [scipy.linalg.solve_sylvester(a[i], b[i], q[i]) for i in np.ndindex(shape)]
    ).reshape(q.shape)  # fmt: skip


def _sylvester_jvp(tangents, ans, a, b, q):
    ta, tb, right = tangents
    if ta is not None:
        term = np.matmul(ta, ans)
        right = -term if right is None else right - term
    if tb is not None:
        term = np.matmul(ans, tb)
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
    return _sylvester(_array(a), _array(b), _array(q))


# -- matrices of a form ---------------------------------------------------------------------------------


def block_diag(*arrs):
    """Return a matrix with the given ones (or rows) along its diagonal, and zeros elsewhere.

    Parameters
    ----------
    *arrs : arrays of at most 2 dimensions

    Returns
    -------
    array of shape (Σ rows, Σ columns)
    """
    arrs = [_array(a) for a in arrs]
    arrs = [np.reshape(a, (1, -1)) if np.ndim(a) < 2 else a for a in arrs]
    width, start, rows = sum(np.shape(a)[1] for a in arrs), 0, []
    for a in arrs:
        height, own = np.shape(a)
        left = np.zeros((height, start), a.dtype)
        right = np.zeros((height, width - start - own), a.dtype)
        rows.append(np.concatenate([left, a, right], 1))
        start += own
    return np.concatenate(rows, 0) if rows else np.zeros((1, 0))


def toeplitz(c, r=None):
    """Return the matrix with constant diagonals, first column c and first row r (conj(c) by default).

    Parameters
    ----------
    c, r : arrays of shapes (m,) and (n,)

    Returns
    -------
    array of shape (m, n)
    """
    c = _array(c)
    r = conjugate(c) if r is None else _array(r)
    m, n = np.shape(c)[0], np.shape(r)[0]
    values = np.concatenate([c[::-1], r[1:]])
    return values[(m - 1) - np.arange(m)[:, None] + np.arange(n)]


def circulant(c):
    """Return the circulant matrix with first column c, of shape (n,)."""
    c = _array(c)
    i = np.arange(np.shape(c)[0])
    return c[(i[:, None] - i) % len(i)] if len(i) else np.zeros((0, 0))


def hankel(c, r=None):
    """Return the matrix with constant antidiagonals, first column c and last row r (zeros by default).

    Parameters
    ----------
    c, r : arrays of shapes (m,) and (n,)

    Returns
    -------
    array of shape (m, n)
    """
    c = _array(c)
    r = np.zeros(np.shape(c), c.dtype) if r is None else _array(r)
    values = np.concatenate([c, r[1:]])
    return values[np.arange(np.shape(c)[0])[:, None] + np.arange(np.shape(r)[0])]

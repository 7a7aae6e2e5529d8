"""Functions of `scipy.linalg` on traced and plain values: systems and decompositions, and the rest by name.

They take SciPy's arguments; what only steers memory or checks (``overwrite_a``, ``check_finite``) is accepted
and has no effect. Matrices, or stacks of them where SciPy takes stacks. Conventions as for ``np.linalg``:
functions of symmetric matrices have symmetric gradients.
"""

import numpy as np

from mercer.autodiff.rules_linalg import Triangular, floating, shared_lu, solve_with, triangle
from mercer.autodiff.rules_products import adjoint, matrix_transpose
from mercer.autodiff.scipy._arguments import array, only
from mercer.autodiff.scipy.lu_factors import lu, lu_factor, rows_of
from mercer.autodiff.scipy.matrix_functions import expm, expm_frechet, logm, solve_sylvester, sqrtm
from mercer.autodiff.scipy.structured import (
    block_diag,
    circulant,
    hankel,
    solve_banded,
    solve_toeplitz,
    solveh_banded,
    toeplitz,
)
from mercer.autodiff.trace import Traced, plain

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "det", "eig", "eigh", "eigvals",
    "eigvalsh", "expm", "expm_frechet", "hankel", "inv", "kron", "logm", "lstsq", "lu", "lu_factor",
    "lu_solve", "norm", "pinv", "qr", "solve", "solve_banded", "solve_sylvester", "solve_toeplitz",
    "solve_triangular", "solveh_banded", "sqrtm", "svd", "svdvals", "toeplitz",
]  # fmt: skip


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
    a, b = array(a), array(b)
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
    a, b = array(a), array(b)
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
    return np.linalg.cholesky(array(a)) if lower else np.linalg.cholesky(array(a), upper=True)


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
    c, b = array(c), array(b)
    factor = Triangular(_lasting(c), floating(c, b), lower)
    first, second = (0, 2) if lower else (2, 0)
    return solve_with(factor, c, solve_with(factor, c, b, first), second)


def lu_solve(lu_and_piv, b, trans=0, overwrite_b=False, check_finite=True):
    """Return the solution of op(a) x = b by a's LU factors.

    Parameters
    ----------
    lu_and_piv : tuple
        (lu, piv), as :func:`lu_factor` returns it.
    b : array of shape (n,) or (n, m)
    trans : {0, 1, 2}
        Whether op(a) is a, its transpose or its adjoint.

    Returns
    -------
    array of b's shape
    """
    factors, order = array(lu_and_piv[0]), rows_of(lu_and_piv[1])
    b = array(b)
    below = Triangular(_lasting(factors), floating(factors, b), True, True)
    above = Triangular(_lasting(factors), floating(factors, b), False)
    if not trans:
        return solve_with(above, factors, solve_with(below, factors, b[order]))
    return solve_with(below, factors, solve_with(above, factors, b, trans), trans)[np.argsort(order)]


# -- as NumPy has them ----------------------------------------------------------------------------------


def inv(a, overwrite_a=False, check_finite=True, **options):
    """Return the inverse: see :func:`numpy.linalg.inv`."""
    return np.linalg.inv(array(a))


def det(a, overwrite_a=False, check_finite=True):
    """Return the determinant: see :func:`numpy.linalg.det`."""
    return np.linalg.det(array(a))


def pinv(a, atol=None, rtol=None, return_rank=False, check_finite=True):
    """Return the pseudo-inverse at constant rank: see :func:`numpy.linalg.pinv`."""
    only("pinv", atol=(atol, 0), return_rank=(return_rank, False))
    a = array(a)
    rtol = max(a.shape[-2:]) * np.finfo(a.dtype).eps if rtol is None else rtol
    return np.linalg.pinv(a, rcond=rtol)


def lstsq(a, b, cond=None, overwrite_a=False, overwrite_b=False, check_finite=True, lapack_driver=None):
    """Return the least-squares solution and what NumPy returns beside it: see :func:`numpy.linalg.lstsq`."""
    return np.linalg.lstsq(array(a), array(b), cond)


def norm(a, ord=None, axis=None, keepdims=False, check_finite=True):
    """Return a norm: see :func:`numpy.linalg.norm`."""
    return np.linalg.norm(array(a), ord, axis, keepdims)


def kron(a, b):
    """Return the Kronecker product: see :func:`numpy.kron`."""
    return np.kron(array(a), array(b))


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
    only("eigh", subset_by_value=(options.get("subset_by_value"), None), type=(options.get("type"), 1))
    a, uplo = array(a), "L" if lower else "U"
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
    only("eig", b=(b, None), left=(left, False))
    w, v = np.linalg.eig(array(a))
    w = w if w.dtype.kind == "c" else w + 0j
    return (w, v) if right else w


def eigvals(a, b=None, overwrite_a=False, check_finite=True, **options):
    """Return the complex eigenvalues of a matrix with distinct eigenvalues."""
    return eig(a, b, right=False)


def svd(a, full_matrices=True, compute_uv=True, overwrite_a=False, check_finite=True, lapack_driver="gesdd"):
    """Return the singular value decomposition: see :func:`numpy.linalg.svd`."""
    return np.linalg.svd(array(a), full_matrices, compute_uv)


def svdvals(a, overwrite_a=False, check_finite=True):
    """Return the singular values, largest first."""
    return np.linalg.svd(array(a), compute_uv=False)


def qr(a, overwrite_a=False, lwork=None, mode="full", pivoting=False, check_finite=True):
    """Return the QR factors: see :func:`numpy.linalg.qr`; mode is "full", "economic" or "r"."""
    only("qr", pivoting=(pivoting, False))
    a = array(a)
    if mode == "r":
        only("qr", mode=(mode if a.shape[-2] > a.shape[-1] else None, "economic"))
        return (np.linalg.qr(a, "r"),)
    q, r = np.linalg.qr(a, {"full": "complete", "economic": "reduced"}[mode])
    return q, r

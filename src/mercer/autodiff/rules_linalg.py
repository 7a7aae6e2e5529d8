"""Rules of linear systems, inverses and determinants.

One factorisation serves the solutions and the logarithm of the determinant of a traced matrix
(:func:`shared_lu`), and their derivatives of every order: rules pass the factor on, which is a plain value.

A function of a symmetric (Hermitian) matrix has a symmetric gradient, whichever triangle its value is read
from; its pushforward sees the symmetric part of a tangent. All functions take stacks (…, n, n).
"""

import numpy as np
from scipy.linalg import bandwidth

from mercer.autodiff import lapack
from mercer.autodiff.rules import Primitive, composite, define, unbroadcast
from mercer.autodiff.rules_products import adjoint, align, conjugate, lead_of, matrix_transpose
from mercer.autodiff.trace import Traced, np_like, plain

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


def negated(x):
    """Return −x of a new array, which may be written into."""
    return np.negative(x, out=x) if type(x) is np.ndarray else -x


def triangle(x, lower=True, strict=False):
    """Return one triangle of matrices, with or without its diagonal, and zeros elsewhere."""
    i, j = np.ogrid[: np.shape(x)[-2], : np.shape(x)[-1]]
    i, j = (i, j) if lower else (j, i)
    return np.where(i > j if strict else i >= j, x, np.zeros((), x.dtype))


def floating(*arrays):
    """Return the type of what NumPy's linear algebra gives."""
    return np.result_type(np.float32, *(a.dtype if a.dtype.kind in "fc" else np.float64 for a in arrays))


# -- systems --------------------------------------------------------------------------------------------


class Factor:
    """What solves with one plain matrix, again and again.

    Parameters
    ----------
    a : ndarray of shape (..., n, n)
    dtype : dtype
        Of the solutions.
    computed : dtype, optional
        What to compute in, if not in that.
    """

    def __init__(self, a, dtype, computed=None):
        self.dtype = np.dtype(dtype)
        self.a = np.asarray(a, computed or dtype)
        self.real = self.a.dtype.kind == "f"

    def solve(self, b, trans):
        """Return x of op(a) x = b; op is the matrix (trans 0), its transpose (1) or its adjoint (2).

        Parameters
        ----------
        b : ndarray of shape (..., n, m)
        """
        if self.real and b.dtype.kind == "c":
            return self.solve(b.real, trans) + 1j * self.solve(b.imag, trans)
        return self._solve(np.asarray(b, self.a.dtype), trans).astype(self.dtype, copy=False)

    def _solve(self, b, trans):
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
    """Solves with a square matrix by its LU factors, made when they are first needed.

    In double precision, as NumPy's linear algebra is for single, too.
    """

    factors = inverted = None

    def __init__(self, a, dtype):
        super().__init__(a, dtype, np.result_type(dtype, np.float64))

    def factorised(self):
        """Return LAPACK's factors and pivots, and where a pivot is 0 (from 1 on; 0: nowhere)."""
        if self.factors is None:
            self.factors = _factors_of_triangle(self.a) or lapack.getrf(self.a)
        return self.factors

    def columns(self, b, trans):
        """Return the solution for the columns of b, of shape (n, m)."""
        lu, pivots, singular = self.factorised()
        if singular:
            raise np.linalg.LinAlgError("Singular matrix")
        return lapack.getrs(lu, pivots, b, trans)

    def inverse(self):
        """Return the inverse, of shape (..., n, n), sooner than solutions for unit vectors give it."""
        if self.inverted is not None:
            return self.inverted
        if self.a.ndim > 2 or not self.a.size:
            return np.linalg.inv(self.a).astype(self.dtype, copy=False)
        lu, pivots, singular = self.factorised()
        if singular:
            raise np.linalg.LinAlgError("Singular matrix")
        return lapack.getri(lu, pivots).astype(self.dtype, copy=False)


def _factors_of_triangle(a):
    """Return the LU factors of a real triangular matrix as LAPACK has them, in n² operations, or None.

    None if the matrix is not triangular, or elimination would exchange rows.
    """
    if a.dtype.kind != "f" or len(a) != a.shape[1]:
        return None
    below, above = bandwidth(a)
    pivot = np.diagonal(a)
    if (below and above) or not np.all(pivot):
        return None
    with np.errstate(all="ignore"):
        lu = a * (1 / pivot) if below else a
    if not np.isfinite(np.sum(lu)) or (below and np.any(np.abs(pivot) < np.max(np.abs(a), axis=0))):
        return None
    if below:
        np.fill_diagonal(lu, pivot)
    return np.asfortranarray(lu), np.arange(len(a)), 0


#: How many factored matrices a level remembers at once.
SHARED = 4


def shared_lu(a, dtype):
    """Return the LU factors of plain(a), the same for all rules that ask for those of one traced matrix."""
    held = plain(a)
    if not isinstance(a, Traced):
        return LU(held, dtype)  # the caller may have changed it since
    factors, key = a.level.factors, (id(held), dtype)
    if key not in factors:
        if len(factors) == SHARED:
            del factors[next(iter(factors))]
        factors[key] = held, LU(held, dtype)
    return factors[key][1]


class Triangular(Factor):
    """Solves with one triangle of a matrix, with ones on the diagonal if it is `unit`."""

    def __init__(self, a, dtype, lower, unit=False):
        super().__init__(a, dtype)
        self.lower, self.unit = bool(lower), bool(unit)

    def columns(self, b, trans):
        """Return the solution for the columns of b, of shape (n, m)."""
        if not self.unit and not (pivots := np.diagonal(self.a)).all():
            (zeros,) = np.nonzero(pivots == 0)
            raise np.linalg.LinAlgError(f"singular matrix: resolution failed at diagonal {zeros[0]}")
        return lapack.trsm(self.a, b, self.lower, trans, self.unit)

    def full(self):
        """Return the triangle that is meant."""
        a = self.mask(self.a)
        return a + np.eye(a.shape[-1], dtype=a.dtype) if self.unit else a

    def mask(self, t):
        """Return the triangle of a matrix that derivatives see."""
        return triangle(t, self.lower, self.unit)


def _solve_value(a, b, *, factor, trans, vector):
    x = factor.solve(b[..., None] if vector else b, trans)
    return x[..., 0] if vector else x


def _solve_jvp(tangents, ans, a, b, *, factor, trans, vector):
    ta, tb = tangents
    right = None if tb is None else align(tb, b, np.ndim(ans))
    if ta is not None:
        ta = (Factor.whole, matrix_transpose, adjoint)[trans](factor.mask(ta))
        moved = times(align(ta, a, np.ndim(ans) + vector), ans, vector)
        right = negated(moved) if right is None else right - moved
    return _solve(a, right, factor=factor, trans=trans, vector=vector)


def _solve_vjp(g, ans, needed, a, b, *, factor, trans, vector):
    lead = lead_of(g, ans)
    if trans == 1:
        gb = conjugate(_solve(a, conjugate(g), factor=factor, trans=0, vector=vector))
    else:
        gb = _solve(a, g, factor=factor, trans=2 - trans, vector=vector)
    ga = None
    if needed[0]:
        left, right = (-gb, ans) if trans == 0 else (-ans, gb)
        ga = _outer(left, right, vector)
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
    return solve_with(shared_lu(a, floating(a, b)), a, b)


# -- inverses -------------------------------------------------------------------------------------------

# d A⁻¹ = −A⁻¹ dA A⁻¹ (SCKN)
_INVERSE = {
    "jvp": [lambda t, ans, a, **_: negated(np.matmul(np.matmul(ans, t), ans))],
    "vjp": [lambda g, ans, a, **_: negated(np.matmul(np.matmul(adjoint(ans), g), adjoint(ans)))],
    "name": "np.linalg.inv",
    "batched": True,
}
define(np.linalg.inv, **_INVERSE)  # NumPy's value to the last bit

#: ``_inverse(a, factor=…)``: for derivatives, from the factor that is there.
_inverse = Primitive(lambda a, *, factor: factor.inverse(), **_INVERSE)


# -- determinants ---------------------------------------------------------------------------------------


def _all_but_one(s):
    """Return for each i the product of the others, without a division."""
    ones = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
    return before * after


def _all_but_two(s):
    """Return for each i ≠ j the product of the others, without a division; 0 for i = j."""
    n = s.shape[-1]
    i, j = np.ogrid[:n, :n]
    ones = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
    between = np.cumprod(np.where(i < j, s[..., None, :], 1), -1)
    between = np.concatenate([np.ones_like(between[..., :1]), between[..., :-1]], -1)
    upper = np.where(i < j, before[..., :, None] * between * after[..., None, :], 0)
    return upper + matrix_transpose(upper)


def _cofactors_value(a, *directions):
    """Return C with Σ C_ij F_ij = Dᵏ⁺¹ det(A)[E_1, …, E_k, F] for every F; for k = 0 the cofactors.

    det is a polynomial, so this is right at every matrix, singular ones included: with A = U S Vᴴ,
    adj(A) = det(U) det(Vᴴ) V adj(S) Uᴴ, and adj(S) and its first derivative are products of the other
    singular values. Further derivatives are coefficients of a polynomial in one variable, found by
    interpolation at roots of unity.
    """
    n = a.shape[-1]
    if len(directions) > 1:
        return _cofactors_interpolated(a, *directions)
    if not directions and a.size and (inverse := _good_inverse(a)) is not None:
        return np.linalg.det(a)[..., None, None] * matrix_transpose(inverse)
    u, s, vh = np.linalg.svd(a)
    turn = (np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    if directions:
        e = adjoint(u) @ directions[0] @ adjoint(vh)
        pairs = _all_but_two(s)
        middle = -pairs * e
        middle[..., np.arange(n), np.arange(n)] = times(pairs, np.diagonal(e, 0, -2, -1), True)
    else:
        middle = _all_but_one(s)[..., None] * np.eye(n, dtype=s.dtype)
    return turn * matrix_transpose(adjoint(vh) @ middle @ adjoint(u))


def _good_inverse(a):
    """Return the inverse of well-conditioned matrices, or None."""
    try:
        inverse = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return None
    sizes = np.abs(a).sum(-1).max(-1) * np.abs(inverse).sum(-1).max(-1)
    return inverse if np.all(sizes < 1e3) else None


def _cofactors_interpolated(a, *directions):
    last, degree = directions[-1], a.shape[-1] - len(directions)
    others = directions[:-1]
    shape = np.broadcast_shapes(a.shape, *(e.shape for e in directions))
    total = np.zeros(shape, np.result_type(a, *directions, np.complex64))
    if degree < 1 or not total.size:
        return total if np.iscomplexobj(a) or any(map(np.iscomplexobj, directions)) else total.real
    size = np.max(np.abs(last))
    radius = max(np.max(np.abs(a)), np.finfo(np.float64).tiny) / size if size else 1.0
    for root in np.exp(2j * np.pi * np.arange(degree + 1) / (degree + 1)):
        step = (radius * root).astype(total.dtype)
        total += _cofactors_value(a + step * last, *others) / step
    total /= degree + 1
    return total if np.iscomplexobj(a) or any(map(np.iscomplexobj, directions)) else total.real


def _cofactors_jvp(tangents, ans, a, *directions):
    ta, *rest = tangents
    ndim, total = np.ndim(ans), None
    for i, t in enumerate(rest):
        if t is not None:
            others = [*directions[:i], align(t, directions[i], ndim), *directions[i + 1 :]]
            term = _cofactors(a, *others)
            total = term if total is None else total + term
    if ta is not None:
        term = _cofactors(a, *directions, align(ta, a, ndim))
        total = term if total is None else total + term
    return total


def _cofactors_vjp(g, ans, needed, a, *directions):
    lead, back = lead_of(g, ans), conjugate(g)
    result = [unbroadcast(conjugate(_cofactors(a, *directions, back)), a, lead) if needed[0] else None]
    for i, need in enumerate(needed[1:]):
        others = directions[:i] + directions[i + 1 :]
        term = conjugate(_cofactors(a, *others, back)) if need else None
        result.append(unbroadcast(term, directions[i], lead) if need else None)
    return result


_cofactors = Primitive(_cofactors_value, _cofactors_jvp, _cofactors_vjp, name="np.linalg.det", batched=True)

define(
    np.linalg.det,
    jvp=[lambda t, ans, a: np.sum(np.multiply(_cofactors(a), t), axis=(-2, -1))],
    vjp=[lambda g, ans, a: np.multiply(np.expand_dims(g, (-2, -1)), conjugate(_cofactors(a)))],
    batched=True,
)


def _slogdet_value(a, *, factor):
    if a.ndim != 2 or not a.size or a.shape[0] != a.shape[1]:
        return np.linalg.slogdet(a)
    lu, pivots, singular = factor.factorised()
    kind, scalar = type(np.linalg.slogdet(np.eye(1))), factor.dtype.type
    pivot = np.diagonal(lu)
    if singular:
        return kind(scalar(0), np.real(scalar(0)) - np.inf)
    swaps = np.count_nonzero(pivots != np.arange(len(pivots)))
    size = np.abs(pivot)
    total = np.add.accumulate(np.log(size))[-1]  # in NumPy's order
    return kind(scalar(np.prod(pivot / size) * (-1) ** swaps), np.real(scalar(total)))


def _slogdet_jvp(tangents, ans, a, *, factor):
    # d log det A = tr(A⁻¹ dA), split into modulus and sign
    factor.inverted = factor.inverse()  # for this and a sweep's derivative
    trace = np.einsum("...ij,...ji->...", _inverse(a, factor=factor), tangents[0])
    if not factor.real:
        return 1j * ans[0] * np.imag(trace), np.real(trace)
    return None, trace


def _slogdet_vjp(g, ans, needed, a, *, factor):
    sign, log = g
    if factor.real:
        total = log
    else:
        total = None if sign is None else -1j * np.imag(conjugate(sign) * ans[0])
        total = log if total is None else total if log is None else total + log
    if total is None:
        return [None]
    return [np.multiply(np.expand_dims(total, (-2, -1)), adjoint(_inverse(a, factor=factor)))]


_slogdet = Primitive(_slogdet_value, _slogdet_jvp, _slogdet_vjp, name="np.linalg.slogdet", batched=True)


@composite(np.linalg.slogdet)
def slogdet(a):
    """The sign and the logarithm of the modulus of a determinant."""
    a = np_like(a)
    return _slogdet(a, factor=shared_lu(a, floating(a)))

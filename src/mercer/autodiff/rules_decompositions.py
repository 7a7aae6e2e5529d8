"""Rules of eigenvalues and singular values.

Repeated eigenvalues (and singular values): equal ones share their cotangents and tangents equally, as ties of
a maximum do; symmetric functions of them are then right. The eigenvectors of a repeated eigenvalue are not
differentiable, since any basis of its eigenspace would do. Reverse mode lets pass what does not depend on the
basis, like a sum over the eigenspace: the part of the cotangent that would turn the basis is then zero. So
that this is no accident of a special basis, traced functions see a generic one there, not LAPACK's. Forward
mode lets pass tangents that do not split the eigenvalue. All else raises, and so do second derivatives there;
``ad.symmetric_function`` needs no eigenvectors and has them all.
"""

import numpy as np

from mercer.autodiff.errors import TraceValueError, trace_error
from mercer.autodiff.rules import Primitive, composite
from mercer.autodiff.rules_linalg import symmetric_part, times
from mercer.autodiff.rules_products import adjoint, conjugate, matrix_transpose
from mercer.autodiff.trace import Traced, np_like, plain


def refuse(operation, why, remedy="use ad.symmetric_function for functions of the matrix"):
    """Raise for a derivative that does not exist."""
    raise trace_error(operation, why, remedy, TraceValueError)


class Repeated:
    """Which of a matrix's eigenvalues or singular values are equal, up to rounding.

    Parameters
    ----------
    w : ndarray of shape (..., n)
        Sorted, plain.
    """

    def __init__(self, w, operation, kind):
        self.w, self.operation, self.kind = w, operation, kind
        n = w.shape[-1]
        self.eps = np.finfo(w.dtype).eps
        self.unit = 4 * max(n, 8) * self.eps
        self.largest = np.max(np.abs(w), -1, keepdims=True, initial=0)
        jump = np.abs(np.diff(w, axis=-1)) > self.unit * self.largest
        label = np.concatenate([np.zeros(w.shape[:-1] + (min(n, 1),), int), np.cumsum(jump, -1)], -1)
        self.same = label[..., :, None] == label[..., None, :]
        self.any = self.same.sum() > w.size
        self.zero = np.abs(w) <= self.unit * self.largest

    def shared(self, x):
        """Return values, one for each eigenvalue, with the mean of equal ones in the place of each."""
        if not self.any or x is None:
            return x
        weights = self.same / self.same.sum(-1, keepdims=True)
        return times(weights.astype(self.w.dtype), x, True)

    def inverse_gaps(self, w):
        """Return 1 / (w_j − w_i), and 0 where that is infinite."""
        gaps = np.expand_dims(w, -2) - np.expand_dims(w, -1)
        if not self.any:
            gaps = gaps + np.eye(w.shape[-1], dtype=w.dtype)
        else:
            gaps = np.where(self.same, np.ones((), w.dtype), gaps)
        return np.where(self.same, np.zeros((), w.dtype), 1 / gaps)

    def negligible(self, part, whole):
        """Whether entries of a matrix inside equal pairs vanish, up to rounding of the whole."""
        part, whole = np.abs(plain(part)), np.abs(plain(whole))
        inside = np.where(self.same & ~np.eye(self.same.shape[-1], dtype=bool), part, 0)
        return np.all(inside <= 64 * self.unit * np.max(whole, initial=0))

    def check_split(self, moved):
        """Raise unless a tangent, in the basis of the eigenvectors, moves equal eigenvalues alike."""
        if not self.any:
            return
        moved = np.asarray(plain(moved))
        diagonal = np.real(np.diagonal(moved, 0, -2, -1))
        even = np.abs(diagonal - self.shared(diagonal)) <= 64 * self.unit * np.max(np.abs(moved), initial=0)
        if not (np.all(even) and self.negligible(moved, moved)):
            self.refuse("this tangent splits it; reverse mode differentiates what does not depend on them")

    def check_turn(self, turn, stretch, values):
        """Raise unless a cotangent leaves the basis of each eigenspace alone.

        `turn` is its skew part, in the basis of the eigenvectors. All of it, `stretch`, is the same for a sum
        over the eigenspace and for a matrix function; these are told apart by how the values are used.
        """
        if not self.any:
            return
        if not self.negligible(turn, stretch):
            self.refuse("the result depends on their choice in the eigenspace")
        if values is None or self.negligible(stretch, stretch):
            return
        values = np.asarray(plain(values))
        if np.any(np.abs(values - self.shared(values)) > 64 * self.unit * np.max(np.abs(values), initial=0)):
            self.refuse("the result uses them together with the values")

    def check_first(self, x, needs_nonzero=False):
        """Raise if this is part of a second derivative."""
        if isinstance(x, Traced) and (self.any or (needs_nonzero and np.any(self.zero))):
            what = "repeated" if self.any else "zero"
            refuse(
                self.operation, f"second derivatives do not exist at {what} {self.kind}s ({self._which()})"
            )

    def refuse(self, why):
        """Raise, naming the repeated value."""
        refuse(
            self.operation,
            f"the {'eigen' if self.kind == 'eigenvalue' else 'singular '}vectors of the repeated {self.kind} "
            f"{self._which()} are not differentiable: {why}",
        )

    def _which(self):
        counts = self.same.sum(-1)
        chosen = counts > 1 if np.any(counts > 1) else self.zero
        return f"{self.w[chosen][-1]:.6g}"


def diagonals(x):
    """Return the diagonals of the last two axes."""
    n = np.shape(x)[-1]
    return np.sum(np.multiply(x, np.eye(n, dtype=np.real(plain(x)).dtype)), axis=-1)


def _columns(x, weights):
    """Return matrices with their columns multiplied by weights."""
    return np.multiply(x, np.expand_dims(weights, -2))


def total_of(a, b):
    """Return the sum of two arrays, None being zero."""
    return b if a is None else a if b is None else a + b


def generic_turns(same):
    """Return orthogonal matrices (…, n, n) that turn the columns of each group of equal ones, generically.

    Parameters
    ----------
    same : ndarray of bool of shape (..., n, n)
    """
    n = same.shape[-1]
    turns = np.zeros(same.shape)
    for at in np.ndindex(same.shape[:-2]):
        for first in np.unique(np.argmax(same[at], -1)):
            group = np.flatnonzero(same[at][first])
            block = np.random.default_rng(n).standard_normal((len(group), len(group)))
            turns[at][np.ix_(group, group)] = np.linalg.qr(block)[0] if len(group) > 1 else 1
    return turns


# -- symmetric eigenvalues ------------------------------------------------------------------------------


def _eigh_value(a, *, uplo):
    w, u = out = np.linalg.eigh(a, uplo)
    repeated = Repeated(w, "np.linalg.eigh", "eigenvalue")
    return type(out)(w, u @ generic_turns(repeated.same).astype(w.dtype)) if repeated.any else out


def _eigh_jvp(t, ans, a, *, uplo):
    # dλ_i = u_iᴴ dA u_i, dU = U (F ∘ Uᴴ dA U), F_ij = 1/(λ_j − λ_i) off the diagonal
    w, u = ans
    repeated = Repeated(plain(w), "np.linalg.eigh", "eigenvalue")
    repeated.check_first(w)
    inner = np.matmul(np.matmul(adjoint(u), symmetric_part(t)), u)
    repeated.check_split(inner)
    return np.real(diagonals(inner)), np.matmul(u, np.multiply(repeated.inverse_gaps(w), inner))


def _eigh_vjp(g, ans, needed, a, *, uplo):
    (w, u), (gw, gu) = ans, g
    repeated = Repeated(plain(w), "np.linalg.eigh", "eigenvalue")
    repeated.check_first(w)
    inner = None
    if gu is not None:
        k = np.matmul(adjoint(u), gu)
        turn = 0.5 * (k - adjoint(k))
        repeated.check_turn(turn, k, gw)
        inner = np.multiply(repeated.inverse_gaps(w), turn)
    if gw is not None:
        inner = total_of(inner, diagonal_matrix(repeated.shared(gw)))
    return [symmetric_part(np.matmul(np.matmul(u, inner), adjoint(u)))]


def diagonal_matrix(x):
    """Return matrices with given diagonals."""
    return np.multiply(np.expand_dims(x, -2), np.eye(np.shape(x)[-1], dtype=x.dtype))


_eigh = Primitive(_eigh_value, lambda ts, *rest, **kw: _eigh_jvp(ts[0], *rest, **kw), _eigh_vjp,
                  name="np.linalg.eigh", batched=True)  # fmt: skip


def _eigenvectors(a, ans, uplo, repeated):
    """Return the eigenvectors for the rule of eigenvalues alone, traced where this is a second derivative."""
    repeated.check_first(a)
    return _eigh(a, uplo=uplo)[1] if isinstance(a, Traced) else ans[1]


def _eigvalsh_jvp(tangents, ans, a, *, uplo):
    repeated = Repeated(plain(ans[0]), "np.linalg.eigvalsh", "eigenvalue")
    u = _eigenvectors(a, ans, uplo, repeated)
    moved = np.multiply(np.matmul(symmetric_part(tangents[0]), u), conjugate(u))
    return repeated.shared(np.real(np.sum(moved, axis=-2))), None


def _eigvalsh_vjp(g, ans, needed, a, *, uplo):
    repeated = Repeated(plain(ans[0]), "np.linalg.eigvalsh", "eigenvalue")
    u = _eigenvectors(a, ans, uplo, repeated)
    return [symmetric_part(np.matmul(_columns(u, repeated.shared(g[0])), adjoint(u)))]


_eigvalsh = Primitive(_eigh_value, _eigvalsh_jvp, _eigvalsh_vjp, name="np.linalg.eigvalsh", batched=True)


@composite(np.linalg.eigh)
def eigh(a, UPLO="L"):
    """The eigenvalues and eigenvectors of a symmetric or Hermitian matrix."""
    return _eigh(np_like(a), uplo=UPLO)


@composite(np.linalg.eigvalsh)
def eigvalsh(a, UPLO="L"):
    """The eigenvalues of a symmetric or Hermitian matrix."""
    return _eigvalsh(np_like(a), uplo=UPLO)[0]


# -- singular values ------------------------------------------------------------------------------------


def _svd_value(a, *, full, hermitian):
    u, s, vh = out = np.linalg.svd(a, full_matrices=full, hermitian=hermitian)
    repeated = Repeated(s, "np.linalg.svd", "singular value")
    if not repeated.any and not np.any(repeated.zero):
        return out
    turn_u, turn_v = (
        _turns_beyond(repeated, n, shift) for shift, n in enumerate((u.shape[-1], vh.shape[-2]))
    )
    return type(out)(u @ turn_u.astype(s.dtype), s, adjoint(turn_v.astype(s.dtype)) @ vh)


def _turns_beyond(repeated, n, seed):
    """Return turns of n columns; those of singular values 0 and those beyond form one group."""
    k = repeated.w.shape[-1]
    label = np.full(repeated.w.shape[:-1] + (n,), -1)
    label[..., :k] = np.where(repeated.zero, -1, np.argmax(repeated.same, -1))
    turns = generic_turns(label[..., :, None] == label[..., None, :])
    return turns if seed == 0 else np.where(label[..., :, None] < 0, matrix_transpose(turns), turns)


def _svd_parts(ans, operation="np.linalg.svd"):
    """Return U and V cut to the singular values, the rest of each (or None), and what repeats."""
    u, s, vh = ans
    k, v = np.shape(s)[-1], adjoint(vh)
    repeated = Repeated(plain(s), operation, "singular value")
    repeated.check_first(s, needs_nonzero=True)
    rest_u = u[..., k:] if np.shape(u)[-1] > k else None
    rest_v = v[..., k:] if np.shape(v)[-1] > k else None
    return (
        u if rest_u is None else u[..., :k],
        s,
        v if rest_v is None else v[..., :k],
        rest_u,
        rest_v,
        repeated,
    )


def _inverse_sums(s, repeated):
    """Return 1 / (s_i + s_j), and 0 where both are zero."""
    sums = np.expand_dims(s, -2) + np.expand_dims(s, -1)
    both = repeated.zero[..., :, None] & repeated.zero[..., None, :]
    if not np.any(both):
        return 1 / sums
    return np.where(both, np.zeros((), s.dtype), 1 / np.where(both, np.ones((), s.dtype), sums))


def _over(x, s, repeated):
    """Return columns divided by singular values; where those are zero, the columns must be."""
    if not np.any(repeated.zero):
        return np.multiply(x, np.expand_dims(1 / s, -2))
    zero = repeated.zero[..., None, :]
    held = np.abs(plain(x))
    if np.any(np.where(zero, held, 0) > 64 * repeated.unit * np.max(held, initial=0)):
        refuse("np.linalg.svd", "the singular vectors of the singular value 0 are not differentiable here")
    safe = np.where(repeated.zero, np.ones((), s.dtype), s)
    return np.multiply(x, np.expand_dims(np.where(repeated.zero, np.zeros((), s.dtype), 1 / safe), -2))


def _beyond(x, u):
    """Return the part of columns that is orthogonal to those of u."""
    return x - np.matmul(u, np.matmul(adjoint(u), x))


# U⁻¹dU and V⁻¹dV solve Ω_u S − S Ω_v + dS = P = Uᴴ dA V: with gaps s_j − s_i and sums s_i + s_j, never
# differences of squares, 2 Ω = (P + Pᴴ)/gaps ± (P − Pᴴ)/sums.
def _svd_jvp(tangents, ans, a, *, full, hermitian):
    t = symmetric_part(tangents[0]) if hermitian else tangents[0]
    u, s, v, rest_u, rest_v, repeated = _svd_parts(ans)
    tv, thu = np.matmul(t, v), np.matmul(adjoint(t), u)
    p = np.matmul(adjoint(u), tv)
    even, odd = p + adjoint(p), p - adjoint(p)
    repeated.check_split(even)
    _check_zero_tangent(p, repeated)
    even = 0.5 * np.multiply(repeated.inverse_gaps(s), even)
    odd = 0.5 * np.multiply(_inverse_sums(s, repeated), odd)
    du, dv = np.matmul(u, even + odd), np.matmul(v, even - odd)
    if np.shape(u)[-2] > np.shape(u)[-1]:
        du = du + _over(_beyond(tv, u), s, repeated)
    if np.shape(v)[-2] > np.shape(v)[-1]:
        dv = dv + _over(_beyond(thu, v), s, repeated)
    du, dv = _with_rest(du, u, rest_u), _with_rest(dv, v, rest_v)
    return du, _signed(np.real(diagonals(p)), repeated), adjoint(dv)


def _check_zero_tangent(p, repeated):
    if np.count_nonzero(repeated.zero) and np.any(
        np.where(repeated.zero[..., :, None] & repeated.zero[..., None, :], np.abs(plain(p)), 0)
        > 64 * repeated.unit * np.max(np.abs(plain(p)), initial=0)
    ):
        refuse("np.linalg.svd", "at a singular value 0 this tangent has no derivative in forward mode")


def _refuse_rest():
    refuse(
        "np.linalg.svd",
        "the columns of U or V that full_matrices=True adds are not differentiable, any basis would do",
        "use full_matrices=False",
    )


def _with_rest(du, u, rest):
    """Return the tangent of all columns; those beyond stay orthogonal to the moved ones and do not turn."""
    if rest is None:
        return du
    return np.concatenate([du, -np.matmul(u, np.matmul(adjoint(du), rest))], -1)


def _signed(ds, repeated):
    """Return what singular values get: equal ones share, and 0 is a kink with the subgradient 0."""
    ds = repeated.shared(ds)
    return np.where(repeated.zero, np.zeros((), ds.dtype), ds) if np.any(repeated.zero) else ds


def _without_rest(g, u, rest):
    """Return the cotangent of the columns that belong to singular values, after those beyond gave theirs."""
    if g is None or rest is None:
        return g
    k = np.shape(u)[-1]
    own, beyond = g[..., :k], g[..., k:]
    inner = np.matmul(adjoint(rest), beyond)
    held = np.abs(plain(inner))
    turn = np.abs(plain(inner - adjoint(inner)))
    if np.any(turn > 1e3 * np.finfo(held.dtype).eps * np.max(held, initial=0)):
        _refuse_rest()
    return own - np.matmul(rest, np.matmul(adjoint(beyond), u))


def _svd_vjp(g, ans, needed, a, *, full, hermitian):
    gu, gs, gvh = g
    u, s, v, rest_u, rest_v, repeated = _svd_parts(ans)
    gu = _without_rest(gu, u, rest_u)
    gv = _without_rest(None if gvh is None else adjoint(gvh), v, rest_v)
    ku = None if gu is None else np.matmul(adjoint(u), gu)
    kv = None if gv is None else np.matmul(adjoint(v), gv)
    inner = None if gs is None else diagonal_matrix(_signed(gs, repeated))
    if ku is not None or kv is not None:
        inner = total_of(inner, _svd_turns(ku, kv, gs, s, repeated))
    out = np.matmul(u, np.matmul(inner, adjoint(v)))
    if gu is not None and np.shape(u)[-2] > np.shape(u)[-1]:
        out = out + np.matmul(_over(_beyond(gu, u), s, repeated), adjoint(v))
    if gv is not None and np.shape(v)[-2] > np.shape(v)[-1]:
        out = out + np.matmul(u, adjoint(_over(_beyond(gv, v), s, repeated)))
    return [symmetric_part(out) if hermitian else out]


def _svd_turns(ku, kv, gs, s, repeated):
    """Return the cotangent of P from those of the turns of U and V."""
    both, gap = total_of(ku, kv), ku if kv is None else -kv if ku is None else ku - kv
    even, odd = 0.5 * (both - adjoint(both)), 0.5 * (gap - adjoint(gap))
    repeated.check_turn(even, both, gs)
    zero = repeated.zero[..., :, None] & repeated.zero[..., None, :]
    if np.any(
        np.where(zero, np.abs(plain(odd)), 0) > 64 * repeated.unit * np.max(np.abs(plain(gap)), initial=0)
    ):
        refuse("np.linalg.svd", "the singular vectors of the singular value 0 are not differentiable here")
    return np.multiply(repeated.inverse_gaps(s), even) + np.multiply(_inverse_sums(s, repeated), odd)


_svd = Primitive(_svd_value, _svd_jvp, _svd_vjp, name="np.linalg.svd", batched=True)


def _singular_vectors(a, ans, hermitian):
    repeated = Repeated(plain(ans[1]), "np.linalg.svdvals", "singular value")
    repeated.check_first(a, needs_nonzero=True)
    u, _, vh = _svd(a, full=False, hermitian=hermitian) if isinstance(a, Traced) else ans
    return u, vh, repeated


def _svdvals_jvp(tangents, ans, a, *, full, hermitian):
    u, vh, repeated = _singular_vectors(a, ans, hermitian)
    t = symmetric_part(tangents[0]) if hermitian else tangents[0]
    moved = np.real(np.sum(np.multiply(np.matmul(t, adjoint(vh)), conjugate(u)), axis=-2))
    return None, _signed(moved, repeated), None


def _svdvals_vjp(g, ans, needed, a, *, full, hermitian):
    u, vh, repeated = _singular_vectors(a, ans, hermitian)
    out = np.matmul(_columns(u, _signed(g[1], repeated)), vh)
    return [symmetric_part(out) if hermitian else out]


_svdvals = Primitive(_svd_value, _svdvals_jvp, _svdvals_vjp, name="np.linalg.svdvals", batched=True)


@composite(np.linalg.svd)
def svd(a, full_matrices=True, compute_uv=True, hermitian=False):
    """The singular value decomposition, or the singular values alone."""
    a = np_like(a)
    if not compute_uv:
        return _svdvals(a, full=False, hermitian=hermitian)[1]
    return _svd(a, full=full_matrices and a.shape[-1] != a.shape[-2], hermitian=hermitian)


@composite(np.linalg.svdvals)
def svdvals(x, /):
    """The singular values, largest first."""
    return _svdvals(np_like(x), full=False, hermitian=False)[1]


# -- eigenvalues of any matrix --------------------------------------------------------------------------


def _eig_jvp(tangents, ans, a):
    # V⁻¹ dA V = dΛ + …: dλ its diagonal, dV = V (F ∘ V⁻¹ dA V) + a multiple of each vector, which keeps
    # its norm 1 and its largest entry real, as LAPACK scales them.
    w, v = ans
    held = plain(w)
    size = np.abs(held)
    unit = np.eye(held.shape[-1], dtype=size.dtype)
    gaps = np.abs(held[..., :, None] - held[..., None, :]) + unit * np.max(size, initial=1)
    if np.any(gaps <= 32 * np.finfo(size.dtype).eps * np.max(size, initial=0)):
        refuse("np.linalg.eig", "at repeated eigenvalues neither they nor their vectors are differentiable",
               "use np.linalg.eigh or ad.symmetric_function if the matrix is symmetric")  # fmt: skip
    inner = np.linalg.solve(v, np.matmul(tangents[0], v))
    gaps = np.expand_dims(w, -2) - np.expand_dims(w, -1) + unit
    dv = np.matmul(v, np.multiply(inner, (1 - unit) / gaps))
    along = np.real(np.sum(np.multiply(conjugate(v), dv), axis=-2))
    dv = dv - _columns(v, along)
    if v.dtype.kind == "c":
        largest = np.argmax(np.abs(plain(v)), axis=-2)
        pick = np.moveaxis(np.eye(np.shape(v)[-2], dtype=size.dtype)[largest], -1, -2)
        phase = np.imag(np.sum(np.multiply(pick, np.multiply(dv, 1 / _safe(v, pick))), axis=-2))
        dv = dv - 1j * _columns(v, phase)
    return diagonals(inner), dv


def _safe(v, pick):
    return np.where(pick > 0, v, np.ones((), v.dtype))


_eig = Primitive(np.linalg.eig, _eig_jvp, name="np.linalg.eig")


@composite(np.linalg.eig)
def eig(a):
    """The eigenvalues and eigenvectors of a matrix whose eigenvalues are distinct."""
    return _eig(np_like(a))


@composite(np.linalg.eigvals)
def eigvals(a):
    """The eigenvalues of a matrix, distinct ones."""
    return _eig(np_like(a))[0]

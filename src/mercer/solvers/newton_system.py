"""The Newton system of a kernelised loss: conjugate gradients in lockstep, and their preconditioner.

With the root S of the curvature (S Sᵀ = w · Hessian) the Newton step takes the c of

    (Sᵀ K S + 2α I) c + Sᵀ1 β = r,    1ᵀ S c = 0,

where nothing is divided by the curvature: a row without any has c = 0. All problems share each product with
K. Arrays are (n, q, C): row, problem, output of the loss, and in memory column after column (`laid_out`), so
that sums over outputs are sums of columns.
"""

import copy

import numpy as np
from scipy.linalg import blas, lapack

from .._arrays import column_scales, power_of_two
from .._threads import n_threads as count_threads
from .held_matrix import WHOLE_UP_TO, each_block

__all__ = [
    "Curvature",
    "Following",
    "Norms",
    "Preconditioner",
    "by_problem",
    "columns_of",
    "joined",
    "laid_out",
    "solve_newton_system",
]

#: Multiply-adds of forming an r×r matrix that take as long as one of a product with K, which waits for
#: memory.
_CHEAPER = 6.0
#: Up to this trace of F W² Fᵀ over 2α the preconditioner works in float32.
_SINGLE_UP_TO = 1e4
#: Constraints that a preconditioner's rounding cannot tell from dependent ones, by its dtype: taken for
#: independent, dependent ones make steps of the noise.
_DEPENDENT = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-5}
#: So many rows of F tell the norms of residuals.
_LEADING = 128


def laid_out(A):
    """The same with the first axis next to each other in memory, and the others as they are."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(A, 0, -1)), -1, 0)


def joined(A):
    """(n, q, C) as (q, C · n), which shares the memory of what is laid out."""
    return A.transpose(1, 2, 0).reshape(A.shape[1], -1)


def by_problem(A, B):
    """Inner products of (n, q, C) arrays by problem, of shape (q,)."""
    n, q, n_outputs = A.shape
    columns = np.einsum("ij,ij->j", A.reshape(n, -1), B.reshape(n, -1))
    return columns.reshape(q, n_outputs).sum(axis=1)


class Curvature:
    """The root S of the weighted Hessians at one point, for some problems.

    Parameters
    ----------
    loss : Loss
    y : ndarray of shape (n, q)
    f : ndarray of shape (n, q, C)
    root_weights : ndarray of shape (n, q)
        √w.
    """

    def __init__(self, loss, y, f, root_weights):
        self.vector, self.shape = loss.vector, f.shape
        self._args = loss, y, f, root_weights
        self._root = loss.root(y, f if self.vector else f[:, :, 0])
        self._s = root_weights[:, :, None]
        diagonal = self._root.diagonal if self.vector else self._root.diagonal[:, :, None]
        self._own = diagonal
        self.diagonal = diagonal * self._s

    def take(self, problems):
        """The same for some of the problems."""
        loss, y, f, root_weights = self._args
        return Curvature(loss, y[:, problems], f[:, problems], root_weights[:, problems])

    def forward(self, c):
        """S c."""
        return self._s * self._root.forward(c) if self.vector else self.diagonal * c

    def adjoint(self, v):
        """Sᵀ v."""
        return self._root.adjoint(self._s * v) if self.vector else self.diagonal * v

    def forward_normalised(self, c):
        """``D⁻¹ S c`` with D the diagonal, 0 where that is."""
        return self._over_own(self._root.forward(c)) if self.vector else c

    def adjoint_normalised(self, v):
        """``Sᵀ D⁻¹ v``."""
        return self._root.adjoint(self._over_own(v)) if self.vector else v

    def _over_own(self, v):
        return np.divide(v, self._own, out=np.zeros_like(v), where=self._own > 0)

    def matrices(self):
        """S as matrices, (n, q, C, C)."""
        n, q, n_outputs = self.shape
        out, one = np.empty((q, n_outputs, n_outputs, n)), np.empty_like(self.diagonal)
        for k, unit in enumerate(np.eye(n_outputs)):
            one[...] = unit
            out[:, :, k] = self.forward(one).transpose(1, 2, 0)
        return out.transpose(3, 0, 1, 2)

    def constants(self, beta):
        """``Sᵀ`` of what is β, of shape (q, C), in every row."""
        same = np.empty_like(self.diagonal)
        same[...] = beta
        return self.adjoint(same)

    def sums(self, c):
        """The sums of S c over the rows, of shape (q, C)."""
        return self.forward(c).sum(axis=0)


class Following:
    """A preconditioner made at one curvature D₀ that serves those of later steps, by scaling its rows.

    For a the system's inverse is ``(K + 2α D⁻²)⁻¹``, which changes with D no more than that diagonal does,
    while the large eigenvectors of D K D turn with it. Hence what was made for D₀ takes rows over
    ``√((2α + k D²) / (2α + k D₀²))``, k being K's diagonal: D / D₀ where rows bend, 1 where they do not.
    (spam, α below 4e-3: 240 products where there are 340 without.)

    Parameters
    ----------
    curvature : Curvature
        Gives D₀.
    alphas : ndarray of shape (q,)
    diagonal : ndarray of shape (n,)
        Of K.
    """

    def __init__(self, curvature, alphas, diagonal):
        n, _, self.n_outputs = curvature.diagonal.shape
        self.diagonal, self.shift = diagonal[:, None], np.repeat(2 * alphas, self.n_outputs)
        self.D = curvature.diagonal.reshape(n, -1)
        self.rest = self.made_at = self.shift + self.D**2 * self.diagonal
        self.scale = np.ones_like(self.D)

    def at(self, curvature):
        """The same for another curvature of the same problems."""
        other = copy.copy(self)
        other.D = curvature.diagonal.reshape(self.D.shape)
        other.rest = self.shift + other.D**2 * self.diagonal
        other.scale = np.sqrt(other.rest / self.made_at)
        return other

    def apply(self, curvature, R, problems):
        """``Sᵀ D⁻¹ X⁻¹ D⁻¹ S R`` with X the preconditioner's matrix, and the norms of S R in K's, squared.

        For elementwise losses S = D, and nothing but X⁻¹ is left.
        """
        Z, size = self(curvature.forward_normalised(R), problems)
        return curvature.adjoint_normalised(Z), size

    def take(self, going):
        """The same for some of the problems."""
        other, columns = copy.copy(self), columns_of(np.flatnonzero(going), self.n_outputs)
        for name in ("D", "rest", "made_at", "scale"):
            setattr(other, name, getattr(self, name)[:, columns])
        other.shift = self.shift[columns]
        return other


class Preconditioner(Following):
    """``(D (Fᵀ F + R) D + 2α I)⁻¹`` by problem and output, with K ≈ Fᵀ F + R cut to the rank that pays.

    R is the diagonal of what F leaves: a kernel of short reach leaves little else, and on spam steps of
    conjugate gradients are as few as without R at twice the rank (500, α = 0.02). It scales rows by
    √2α W / D = 1 / √(1 + R D² / 2α).

    Parameters
    ----------
    low_rank : LowRank
        Of K.
    curvature : Curvature
        Gives D.
    alphas : ndarray of shape (q,)
    n_threads : int or None
        Changes nothing in the result.
    """

    def __init__(self, low_rank, curvature, alphas, n_threads=None):
        super().__init__(curvature, alphas, low_rank.diagonal)
        n, columns = self.D.shape
        self._dear = _products_cost(columns)
        rank, D, root = _posed(low_rank, curvature, alphas, self._dear)
        self.norms = Norms(low_rank)
        single = n > WHOLE_UP_TO and _trace(low_rank, rank, D / root, self.shift) <= _SINGLE_UP_TO
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self.F, unit = (low_rank.single, low_rank.unit) if single else (low_rank.F, 1.0)
        self.F = self.F[:rank].astype(self.dtype, copy=False)
        W = D / root * (unit / np.sqrt(self.shift))
        self.root, self.W = root.astype(self.dtype), W.astype(self.dtype)
        self.inverse = np.empty((columns, rank, rank), self.dtype)
        if rank:
            work = 0.5 * columns * n * rank**2
            each_block(
                lambda column, _: self._invert(column), np.arange(columns + 1), count_threads(n_threads), work
            )

    @staticmethod
    def fits_single(low_rank, curvature, alphas):
        """Whether float32 carries it."""
        dear = _products_cost(curvature.diagonal[0].size)
        rank, D, root = _posed(low_rank, curvature, alphas, dear)
        shift = np.repeat(2 * alphas, curvature.diagonal.shape[2])
        return _trace(low_rank, rank, D / root, shift) <= _SINGLE_UP_TO

    @property
    def cost(self):
        """What making it takes, in products with K."""
        n = self.F.shape[1]
        return 0.0 if n <= WHOLE_UP_TO else len(self.F) ** 2 / (self._dear * n)

    def take(self, going):
        """The same for some of the problems."""
        other, columns = super().take(going), columns_of(np.flatnonzero(going), self.n_outputs)
        other.root, other.W = self.root[:, columns], self.W[:, columns]
        other.inverse = self.inverse[columns]
        return other

    def _invert(self, column):
        """(F W² Fᵀ + I)⁻¹ of one column."""
        G = self.F * self.W[:, column]
        syrk = blas.ssyrk if self.dtype == np.float32 else blas.dsyrk
        inner = syrk(1.0, G.T, trans=1, lower=1).astype(np.float64)
        diagonal = inner.diagonal().copy()
        rounding = np.finfo(self.dtype).eps * float(diagonal.sum())
        for extra in (0.0, 1e-2, 1.0, 1e2, 1e6):
            A = inner.copy(order="F")
            A.flat[:: len(A) + 1] = diagonal + (1.0 + extra * rounding)
            L, info = lapack.dpotrf(A, lower=1, overwrite_a=1)
            if info == 0:
                break
        inverse = lapack.dpotri(L, lower=1, overwrite_c=1)[0]
        below = np.tril(inverse, -1)
        self.inverse[column] = below + below.T
        self.inverse[column].flat[:: len(A) + 1] = inverse.diagonal()

    def __call__(self, R, problems):
        """Apply to (n, len(problems), C); and what D R has in K's norm, squared, by problem."""
        n, q, n_outputs = R.shape
        columns = columns_of(problems, n_outputs)
        V = R.reshape(n, -1)
        scale = column_scales(V)  # residuals shrink below what float32 can hold
        V = (V / scale).astype(self.dtype, copy=False)
        rows_scale, root, W, inverse = self.scale[:, columns], self.root, self.W, self.inverse
        if len(columns) < root.shape[1]:
            root, W, inverse = root[:, columns], W[:, columns], inverse[columns]
        size = self.norms.squares(self.D[:, columns] * V) * scale**2
        root = (root * rows_scale).astype(self.dtype)
        V = V / root
        inner = np.ascontiguousarray((self.F @ (W * V)).T)
        solved = np.stack([np.matmul(each, v) for each, v in zip(inverse, inner, strict=True)])
        out = (V - W * (self.F.T @ solved.T)) / root
        return (out / self.shift[columns] * scale).reshape(R.shape), size.reshape(q, n_outputs).sum(axis=1)


def _products_cost(columns):
    """`_CHEAPER` for so many columns, which share the reading of K."""
    return _CHEAPER * min(1.0, 5 / columns)


class Norms:
    """Tells norms in K's: by some rows of F, and the mean of what they leave.

    Parameters
    ----------
    low_rank : LowRank
        Of K.
    """

    def __init__(self, low_rank):
        self.F, self.size = low_rank.single[:_LEADING], low_rank.unit**2
        self.left = low_rank.mean_left(len(self.F)) / self.size

    def squares(self, V):
        """The squared norms of the columns of V."""
        scale = column_scales(V)
        V = (V / scale).astype(np.float32, copy=False)
        inner = self.F @ V
        parts = np.einsum("ij,ij->j", inner, inner) + self.left * np.einsum("ij,ij->j", V, V)
        return self.size * scale**2 * parts.astype(np.float64)


def scaled_residuals(curvature, R, norms):
    """R (n, q, C) over powers of two by problem, these, and the squares of S R in K's norm by problem."""
    n, q, n_outputs = R.shape
    scale = power_of_two(np.abs(R).max(axis=(0, 2)))  # residuals shrink below what float32 can hold
    V = R / scale[:, None]
    SV = curvature.forward(V).reshape(n, -1)
    return V, scale, norms.squares(SV).reshape(q, n_outputs).sum(axis=1) * scale**2


def columns_of(problems, n_outputs):
    """Where the outputs of some problems are in (n, q · C)."""
    return (np.asarray(problems)[:, None] * n_outputs + np.arange(n_outputs)).ravel()


def _posed(low_rank, curvature, alphas, dear):
    """The rank that pays, D, and the root of what is diagonal in the systems over 2α."""
    D = curvature.diagonal
    n, _, n_outputs = D.shape
    D, shift = D.reshape(n, -1), np.repeat(2 * alphas, n_outputs)
    curved = float(np.max(np.einsum("ij,ij->j", D, D) / shift)) / n
    rank = _rank_that_pays(low_rank, curved, n, dear)
    return rank, D, np.sqrt(1.0 + D**2 * (low_rank.left(rank)[:, None] / shift))


def _trace(low_rank, rank, W, shift):
    """The largest trace of ``F W² Fᵀ / 2α``, F of so many rows."""
    return float(np.max((low_rank.diagonal - low_rank.left(rank)) @ W**2 / shift))


def _rank_that_pays(low_rank, curvature, n, dear):
    """A rank; `curvature` is the mean of d² over 2α.

    Steps of conjugate gradients for one regularisation strength go like the root of the trace left over 2α
    (spam and satimage, α from 100 to 1e-4: a factor of about 1); a rank r costs n r² once.
    """
    if n <= WHOLE_UP_TO or not low_rank.history:
        return len(low_rank.F)

    def cost(step):
        rank, left = step
        return n * rank**2 + dear * n**2 * np.sqrt(max(left, 0.0) * curvature)

    return min([*low_rank.history, (len(low_rank.F), low_rank.trace)], key=cost)[0]


def _pseudo_inverse(A, rcond):
    """A generalised inverse of positive semidefinite matrices (q, C, C), blind to scales of rows."""
    diagonal = np.maximum(np.einsum("qaa->qa", A), 0.0)
    scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0)
    scale = scale[:, :, None] * scale[:, None]
    if A.shape[1] == 1:
        return scale
    return scale * np.linalg.pinv(scale * A, rcond=rcond, hermitian=True)


class _System:
    """``M = Sᵀ K S + 2α I`` of the problems still to be solved, with its preconditioner and constraint.

    The constraint ``1ᵀ S c = 0`` is kept by projection: the part along Sᵀ1 is taken out of residuals. Of a
    loss that a common shift does not change the outputs' constraints depend on each other: hence the
    pseudo-inverse.
    """

    def __init__(self, curvature, alphas, preconditioner, fit_intercept):
        self.curvature, self.shift, self.preconditioner = curvature, 2 * alphas, preconditioner
        self.problems, self.constrained = np.arange(len(alphas)), fit_intercept
        if fit_intercept:
            n, q, n_outputs = curvature.shape
            self.W = np.empty((q, n_outputs, n_outputs * n))
            inner = np.empty((q, n_outputs, n_outputs))
            for k, unit in enumerate(np.eye(n_outputs)):
                W, _ = self.precondition(curvature.constants(unit))
                self.W[:, k], inner[:, k] = joined(W), curvature.sums(W)
            inner = 0.5 * (inner + inner.transpose(0, 2, 1))
            self.inverse = _pseudo_inverse(inner, _DEPENDENT[preconditioner.dtype])

    def take(self, going):
        """Go on with some of the problems only."""
        self.problems, self.shift = self.problems[going], self.shift[going]
        self.curvature = self.curvature.take(going)
        if self.constrained:
            self.W, self.inverse = self.W[going], self.inverse[going]

    def multiply(self, product, P):
        """M P, and K S P."""
        n = len(P)
        image = product(self.curvature.forward(P).reshape(n, -1))
        image = image.reshape(P.shape).astype(np.float64, copy=False)
        return self.curvature.adjoint(image) + self.shift[:, None] * P, image

    def precondition(self, R):
        """The preconditioned R, and the norms of S R in K's, squared."""
        return self.preconditioner.apply(self.curvature, R, self.problems)

    def project(self, R):
        """R less Sᵀ1 β, and β of shape (q, C)."""
        if not self.constrained:
            return R, 0.0
        beta = self._multipliers((self.W @ joined(R)[:, :, None])[:, :, 0])
        return R - self.curvature.constants(beta), beta

    def condition(self, R):
        """The preconditioned residual, on the constraint up to rounding, and norms as above."""
        Z, size = self.precondition(R)
        if self.constrained:
            gamma = self._multipliers(self.curvature.sums(Z))
            n, q, n_outputs = Z.shape
            Z = Z - (gamma[:, None] @ self.W).reshape(q, n_outputs, n).transpose(2, 0, 1)
        return Z, np.sqrt(size)

    def _multipliers(self, sums):
        return np.einsum("qab,qb->qa", self.inverse, sums)


def solve_newton_system(
    product, curvature, alphas, right, preconditioner, *, target, max_iter, fit_intercept=True, patience=None
):
    """Solve the Newton systems of q problems with one product ``K @ V`` a step for all.

    Parameters
    ----------
    product : callable
        ``V -> K @ V``, V of shape (n, k).
    curvature : Curvature
    alphas : ndarray of shape (q,)
    right : ndarray of shape (n, q, C)
        r.
    preconditioner : Preconditioner
    target : ndarray of shape (q,)
        Where ``‖S ρ‖`` of the residual ρ in K's norm is to come to: 2α times what a full step leaves of the
        gradient.
    max_iter : int
        Most products.
    fit_intercept : bool
        Whether there are β and the constraint.
    patience : int or None
        Give up when no problem's error has halved for so many steps.

    Returns
    -------
    step : ndarray of shape (n, q, C)
        S c.
    image : ndarray of shape (n, q, C)
        K S c.
    shift : ndarray of shape (q, C)
        β.
    reached : ndarray of bool of shape (q,)
        Whether the target was.
    n_iter : int
        Products.

    References
    ----------
    Gould, Hribar & Nocedal, "On the solution of equality constrained quadratic programming problems arising
    in optimization", SIAM J. Sci. Comput. 23 (2001).
    """
    q, n_outputs = right.shape[1:]
    solution, image = np.zeros_like(right), np.zeros_like(right)
    shift, error, n_iter = np.zeros((q, n_outputs)), np.zeros(q), 0
    system = _System(curvature, alphas, preconditioner, fit_intercept)
    R, beta = system.project(right)
    P, error = system.condition(R)
    shift += beta
    rho, best, best_at = by_problem(R, P), np.inf, 0
    going, reached = (error > target) & (rho > 0), error <= target
    while n_iter < max_iter and going.any():
        if not going.all():
            system.take(going)
            R, P, rho = R[:, going], P[:, going], rho[going]
        mine = system.problems
        Q, KSP = system.multiply(product, P)
        n_iter += 1
        bend = by_problem(P, Q)
        length = np.divide(rho, bend, out=np.zeros_like(rho), where=bend > 0)[:, None]
        solution[:, mine] += length * P
        image[:, mine] += length * KSP
        old = R
        R, beta = system.project(R - length * Q)
        shift[mine] += beta
        Z, error = system.condition(R)
        reached[mine] = error <= target[mine]
        worst = float(np.max(error / target[mine]))
        if worst < best / 2:
            best, best_at = worst, n_iter
        elif not np.isfinite(worst) or (patience is not None and n_iter - best_at >= patience):
            break
        before, rho = rho, by_problem(R, Z)
        # Polak and Ribière's form: rounding in a float32 preconditioner does not spoil the directions.
        change = rho - by_problem(old, Z)
        P = Z + np.divide(change, before, out=np.zeros_like(rho), where=before > 0)[:, None] * P
        going = ~reached[mine] & (bend > 0) & (rho > 0)
    return curvature.forward(solution), image, shift, reached, n_iter

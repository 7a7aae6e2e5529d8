"""The Newton system of a kernelised loss: conjugate gradients in lockstep, and their preconditioner.

With the root S of the curvature (S Sᵀ = w · Hessian) the Newton step takes the c of

    (Sᵀ K S + 2α I) c + Sᵀ1 β = r,    1ᵀ S c = 0,

where nothing is divided by the curvature: a row without any has c = 0. All problems share each product with
K. Arrays are (n, q, C): row, problem, output of the loss.
"""

import copy

import numpy as np
from scipy.linalg import blas, lapack

from .._threads import n_threads as count_threads
from .held_matrix import WHOLE_UP_TO, each_block, product_by_rows

__all__ = ["Curvature", "Preconditioner", "by_problem", "solve_newton_system"]

#: Multiply-adds of forming an r×r matrix that take as long as one of a product with K, which waits for
#: memory.
_CHEAPER = 4.0
#: Up to this trace over 2α the preconditioner works in float32.
_SINGLE_UP_TO = 1e4


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

    def constants(self):
        """``Sᵀ`` of what is 1 in one output and 0 in the others, for each: (C, n, q, C)."""
        out = np.empty((self.shape[2], *self.shape))
        for k in range(self.shape[2]):
            one = np.zeros(self.shape)
            one[:, :, k] = 1.0
            out[k] = self.adjoint(one)
        return out


class Preconditioner:
    """``(D Fᵀ F D + 2α I)⁻¹`` by problem and output, with K ≈ Fᵀ F cut to the rank that pays.

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
        D = curvature.diagonal
        n, self.q, self.n_outputs = D.shape
        self.shift = np.repeat(2 * alphas, self.n_outputs)
        squares = np.einsum("ij,ij->j", D.reshape(n, -1), D.reshape(n, -1))
        self._dear = _products_cost(self.q * self.n_outputs)
        curved = float(np.max(squares / self.shift)) / n
        rank, self.left = _rank_that_pays(low_rank, curved, n, self._dear)
        trace = np.einsum("ij,ij->", low_rank.F, low_rank.F, dtype=np.float64) / n
        single = trace * np.max(squares / self.shift) <= _SINGLE_UP_TO
        self.dtype = np.dtype(np.float32 if single and n > WHOLE_UP_TO else np.float64)
        self.F = low_rank.F[:rank].astype(self.dtype, copy=False)
        self.D = D.reshape(n, -1).astype(self.dtype)
        self.inverse = np.empty((self.q * self.n_outputs, rank, rank), self.dtype)
        self.threads = count_threads(n_threads) if n * rank**2 > 1e7 else 1
        self._blocks = np.linspace(0, n, 5).astype(np.intp)
        if rank:
            columns = np.arange(len(self.inverse) + 1)
            each_block(lambda column, _: self._invert(column), columns, self.threads)

    @property
    def cost(self):
        """What making it takes, in products with K."""
        n = self.F.shape[1]
        return 0.0 if n <= WHOLE_UP_TO else len(self.F) ** 2 / (self._dear * n)

    def take(self, going):
        """The same for some of the problems."""
        other = copy.copy(self)
        columns = self._columns(np.flatnonzero(going))
        other.shift, other.inverse, other.D = self.shift[columns], self.inverse[columns], self.D[:, columns]
        return other

    def _invert(self, column):
        """(F D² Fᵀ + 2α I)⁻¹ of one column."""
        G = self.F * self.D[:, column]
        syrk = blas.ssyrk if self.dtype == np.float32 else blas.dsyrk
        inner = syrk(1.0, G.T, trans=1, lower=1).astype(np.float64)
        diagonal = inner.diagonal().copy()
        scale = float(diagonal.sum())
        rounding = np.finfo(self.dtype).eps
        for extra in (0.0, 1e-2, 1.0, 1e2, 1e6):
            A = inner.copy(order="F")
            A.flat[:: len(A) + 1] = diagonal + (self.shift[column] + extra * rounding * scale)
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
        columns = self._columns(problems)
        V = R.reshape(n, -1)
        scale = np.abs(V).max(axis=0)
        scale[scale == 0] = 1.0  # residuals shrink below what float32 can hold
        whole = len(columns) == self.D.shape[1]
        D = self.D if whole else self.D[:, columns]
        W = D * (V / scale).astype(self.dtype, copy=False)
        inner = product_by_rows(self.F, W, self.threads)
        size = np.einsum("ij,ij->j", inner, inner) + self.left * np.einsum("ij,ij->j", W, W)
        size = (size.astype(np.float64) * scale**2).reshape(q, n_outputs).sum(axis=1)
        inverse = self.inverse if whole else self.inverse[columns]
        inner = np.ascontiguousarray(inner.T)
        solved, out = np.empty_like(inner), np.empty(V.shape)

        def solve(column, _):
            np.matmul(inverse[column], inner[column], out=solved[column])

        def remove(start, stop):
            some = slice(start, stop)
            removed = (D[some] * (self.F[:, some].T @ solved.T)).astype(np.float64) * scale
            out[some] = (V[some] - removed) / self.shift[columns]

        each_block(solve, np.arange(len(columns) + 1), self.threads)
        each_block(remove, self._blocks, self.threads)
        return out.reshape(R.shape), size

    def _columns(self, problems):
        first = np.asarray(problems)[:, None] * self.n_outputs
        return (first + np.arange(self.n_outputs)).ravel()


def _products_cost(columns):
    """`_CHEAPER` for so many columns, which share the reading of K."""
    return _CHEAPER * min(1.0, 5 / columns)


def _rank_that_pays(low_rank, curvature, n, dear):
    """A rank, and the mean of what it leaves of K's diagonal; `curvature` is the mean of d² over 2α.

    Steps of conjugate gradients for one regularisation strength go like the root of the trace left over 2α
    (spam and satimage, α from 100 to 1e-4: a factor of about 1); a rank r costs n r² once.
    """
    history = low_rank.history
    if n <= WHOLE_UP_TO or not history:
        return len(low_rank.F), low_rank.trace / n
    best, found = np.inf, (len(low_rank.F), low_rank.trace / n)
    for rank, left in history:
        cost = n * rank**2 + dear * n**2 * np.sqrt(max(left, 0.0) * curvature)
        if cost < best:
            best, found = cost, (rank, left / n)
    return found


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
            self.E = curvature.constants()
            self.W = np.stack([self.precondition(E)[0] for E in self.E])
            inner = np.stack([[by_problem(E, W) for W in self.W] for E in self.E])
            inner = (0.5 * (inner + inner.transpose(1, 0, 2))).transpose(2, 0, 1)
            self.inverse = np.linalg.pinv(inner, rcond=1e-10, hermitian=True)

    def take(self, going):
        """Go on with some of the problems only."""
        self.problems, self.shift = self.problems[going], self.shift[going]
        self.curvature = self.curvature.take(going)
        if self.constrained:
            self.E, self.W = self.E[:, :, going], self.W[:, :, going]
            self.inverse = self.inverse[going]

    def multiply(self, product, P):
        """M P, and K S P."""
        n = len(P)
        image = product(self.curvature.forward(P).reshape(n, -1))
        image = image.reshape(P.shape).astype(np.float64, copy=False)
        return self.curvature.adjoint(image) + self.shift[:, None] * P, image

    def precondition(self, R):
        """``Sᵀ D⁻¹ X⁻¹ D⁻¹ S R`` with X the preconditioner's matrix, and the norms of S R in K's, squared.

        For elementwise losses S = D, and nothing but X⁻¹ is left.
        """
        Z, size = self.preconditioner(self.curvature.forward_normalised(R), self.problems)
        return self.curvature.adjoint_normalised(Z), size

    def project(self, R):
        """R less Sᵀ1 β, and β of shape (q, C)."""
        if not self.constrained:
            return R, 0.0
        beta = self._along(self.W, R)
        for k, E in enumerate(self.E):
            R = R - E * beta[:, k, None]
        return R, beta

    def condition(self, R):
        """The preconditioned residual, on the constraint up to rounding, and norms as above."""
        Z, size = self.precondition(R)
        if self.constrained:
            gamma = self._along(self.E, Z)
            for k, W in enumerate(self.W):
                Z = Z - W * gamma[:, k, None]
        return Z, np.sqrt(size)

    def _along(self, A, B):
        inner = np.stack([by_problem(each, B) for each in A], axis=1)
        return np.einsum("qab,qb->qa", self.inverse, inner)


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

"""One kernelised cost over given rows: which of them count, K in the forms that solvers want, its minimum.

Place on the way: ``solvers`` → **_cost_problem** → estimators that minimise a cost.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from .._arrays import row_strips, square_part
from .._memory import check_output
from .._threads import one_blas_thread
from ..gram import Gram
from ..kernels.dot_product import Linear
from ..kernels.precomputed import Precomputed
from ..kernels.prepared import n_rows
from ..solvers.descent import check_momentum
from ..solvers.held_matrix import HeldMatrix, low_rank_of, preconditioner_rank
from ..solvers.kernel_descent import descend
from ..solvers.newton import newton
from ..solvers.newton_primal import cheap_in_features
from ..solvers.outcome import indefinite, not_finite
from ..solvers.piecewise_linear import piecewise_linear
from ..solvers.pivoted_cholesky import LowRank, pivoted_cholesky
from ._base import own_rows
from ._svm import negative_eigenvalue

__all__ = ["CostProblem", "CostResult", "constant_of"]

#: An eigenvalue of the centres' matrix below this times the largest is rounding.
_RANK = 1e-12
#: So many rows are tried whether they span K, where it has many more: then it need not be formed.
_PROBED, _PROBED_FROM = 128, 2000


@dataclass(frozen=True)
class CostResult:
    """What a solver reached.

    Attributes
    ----------
    a : ndarray of shape (n,), (n, q) or (n, C)
        Dual coefficients of the rows that count.
    b : ndarray of shape (), (q,) or (C,)
        Intercepts.
    objective : float or ndarray of shape (q,)
        Σ w l + α aᵀKa.
    gap : float or ndarray of shape (q,)
        What that is above its minimum at most; NaN where it is not known.
    gradient : float or ndarray of shape (q,)
        The norm of the gradient in the feature space over one to compare it with; NaN where there is none.
    n_iter : int
    converged : bool
    solver : str
    history : dict or None
        Of gradient descent.
    relative_gap : float or None
        Of "smo", as its `tol` takes it.
    indefinite : bool
        Whether it shows that K is not positive semidefinite; what was reached then need be no minimum.
    """

    a: np.ndarray
    b: np.ndarray
    objective: float | np.ndarray
    gap: float | np.ndarray
    gradient: float | np.ndarray
    n_iter: int
    converged: bool
    solver: str
    history: dict | None = None
    relative_gap: float | None = None
    indefinite: bool = False


class CostProblem:
    """Rows of positive weight, their kernel matrix, and solvers of costs on them.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray, csr_array or sequence
        All the rows, as the kernel's check returns them; for a precomputed kernel the square matrix.
    weights : ndarray of shape (n_all,) or None
        Rows of weight ≤ 0 are left out.
    approximation : int or None
        So many rows, drawn uniformly, span the functions; None, or as many as there are, is all of them.
    rng : RandomState or Generator
        Draws these, pivots of preconditioners, and batches.
    memory_budget : float
        Bytes that the float64 matrix may take; beyond, each product computes it anew.
    n_jobs : int or None
        Changes nothing in the results.

    Attributes
    ----------
    kept : ndarray of int or None
        The rows that count; None is all.
    n : int
        Their number.
    weights : ndarray of shape (n,) or None
        Theirs.
    """

    def __init__(self, kernel, X, weights, *, approximation, rng, memory_budget=1e9, n_jobs=None):
        self.kernel, self._X, self._rng, self._n_jobs = kernel, X, rng, n_jobs
        self.precomputed = "matrix" in kernel._readers()
        self._n_all = n_rows(X)
        self.kept = None if weights is None or (weights > 0).all() else np.flatnonzero(weights > 0)
        self.weights = weights if self.kept is None else weights[self.kept]
        self.n = self._n_all if self.kept is None else len(self.kept)
        self._budget = memory_budget
        self._centres = self._features = self._matrix = None
        if approximation is not None and approximation < self.n:
            self._centres = np.sort(rng.choice(self.n, size=approximation, replace=False))

    # ---------------------------------------------------------------- the kernel matrix

    def of_kept(self, values):
        """Values by all rows, of those that count."""
        return values if self.kept is None else values[self.kept]

    def _samples(self):
        X = self._X
        if self.kept is not None:
            X = square_part(X, self.kept) if self.precomputed else own_rows(X, self.kept)
        # Also for float32 rows: rounding of K is then no part of what alpha has to cover.
        return X.astype(np.float64, copy=False) if isinstance(X, np.ndarray) or sp.issparse(X) else X

    def _columns(self, samples, index):
        """K[:, index]."""
        if type(self.kernel) is Precomputed:
            return np.ascontiguousarray(samples[:, index])
        if self.precomputed:
            Z = np.broadcast_to(np.zeros(1), (len(index), len(index)))
            return Gram(self.kernel, samples[:, index], Z, n_threads=self._n_jobs).formed()
        return Gram(self.kernel, samples, own_rows(samples, index), n_threads=self._n_jobs).formed()

    def features(self):
        """Φ (n, r) with K ≈ ΦΦᵀ by the centres: K_nm K_mm⁺ K_mn; and R with Φ = K_nm R."""
        if self._features is None:
            samples = self._samples()
            check_output(self.n, len(self._centres), np.float64)
            columns = self._columns(samples, self._centres)
            _raise_unless_finite(columns)
            inner = columns[self._centres]
            values, vectors = np.linalg.eigh(0.5 * (inner + inner.T))
            used = values > _RANK * max(values[-1], 0.0)
            root = vectors[:, used] / np.sqrt(values[used])
            # Transposed in memory, as preconditioners read it: it is the largest array of such a fit.
            features, right = np.empty((root.shape[1], self.n)), np.ascontiguousarray(root.T)
            for some in row_strips(len(features), self.n):
                features[some] = 0.0  # its pages, which the first columns would have made all at once
            for rows in row_strips(self.n, len(features)):
                features[:, rows] = right @ columns[rows].T
            self._features = features.T, root
        return self._features

    def matrix(self):
        """K of the rows that count, or None where it would take more than the budget."""
        if self._matrix is None and 8.0 * self.n**2 <= self._budget:
            check_output(self.n, self.n, np.float64)
            samples = self._samples()
            if type(self.kernel) is Precomputed:
                K = np.ascontiguousarray(samples)
            else:
                K = self.kernel(samples, n_threads=self._n_jobs)
            _raise_unless_finite(K)
            self._matrix = K
        return self._matrix

    def operators(self):
        """K as products, rows and diagonal.

        Returns
        -------
        dict
            "product", "diagonal", and "rows" of K itself.
        """
        if self._centres is not None:
            features, _ = self.features()
            return {
                "product": lambda V: features @ (features.T @ V),
                "diagonal": np.einsum("ij,ij->i", features, features),
            }
        K = self.matrix()
        if K is not None:
            return {
                "product": HeldMatrix(K, None, self._n_jobs).exact,
                "rows": lambda index: K[index],
                "diagonal": K.diagonal().copy(),
            }
        gram, diagonal = self._lazy()
        return {"product": gram.dot, "rows": gram.rows, "diagonal": diagonal}

    def _lazy(self):
        """K's products and rows, without the matrix, and its diagonal."""
        gram = Gram(self.kernel, self._samples(), n_threads=self._n_jobs)
        diagonal = gram.diag()
        _raise_unless_finite(diagonal[:, None])
        return gram, diagonal

    def _low_rank(self, operators):
        if self._centres is not None:
            features, _ = self.features()
            return LowRank(features.T, self._centres, 0.0)
        if self._matrix is not None:
            return low_rank_of(self._matrix, self._rng)
        rank = preconditioner_rank(self.n, self._budget)
        return pivoted_cholesky(operators["diagonal"], operators["rows"], rank, rng=self._rng)

    # ---------------------------------------------------------------- solving

    def solve(self, loss, y, alpha, *, fit_intercept=True, solver="newton", on_step=None, **options):
        """Minimise Σ w l(y, b + Ka) + α aᵀKa.

        Parameters
        ----------
        loss : Loss
        y : ndarray of shape (n,) or (n, q)
            Targets of the rows that count, as the cost takes them; q problems side by side.
        alpha : float
            Positive.
        fit_intercept : bool
        solver : {"newton", "smo", "gd", "sgd"}
            "smo" for costs of two slopes, the others for smooth ones.
        on_step : callable or None
            ``on_step(n_iter, reached)``.
        **options
            tol, max_iter, and start (a, b), by any solver; n_classes, for a cost of vectors; step, momentum,
            decay and batch_size, of descent. None is the solver's default.

        Returns
        -------
        CostResult
        """
        given = {name: value for name, value in options.items() if value is not None}
        solve = {"newton": self._newton, "smo": self._smo}.get(solver, self._descend)
        constant = constant_of(loss, y, self.weights) if fit_intercept else 0.0
        if constant:
            y = y - constant
            if "start" in given:
                a, b = given["start"]
                given["start"] = a, b - constant
        with one_blas_thread():
            result = solve(loss, y, float(alpha), bool(fit_intercept), solver, on_step, given)
            if solver != "smo":
                result = self.judged(result, loss, y, float(alpha))
        return replace(result, b=result.b + constant) if constant else result

    def judged(self, result, loss, y, alpha):
        """A result, not converged where aᵀKa or pᵀKp, p = −w l′/(2α), shows that K is not psd.

        Its own figures take both for squared norms: they cannot tell a minimum from a saddle.
        """
        if self.kernel.is_psd is True or self._centres is not None:
            return result
        operators, a = self.operators(), result.a.reshape(self.n, -1)
        h = operators["product"](a)
        with np.errstate(over="ignore", invalid="ignore"):
            g = loss.derivative(y if y.ndim == 2 or loss.vector else y[:, None], h + result.b)
        p = g if self.weights is None else self.weights[:, None] * g
        pairs = ((a, h), (p, operators["product"](p)))
        shown = any(indefinite(*pair, operators["diagonal"]) for pair in pairs)
        if not (shown or result.converged) and self.matrix() is not None:
            shown = negative_eigenvalue(self.matrix()) is not None
        return replace(result, converged=result.converged and not shown, indefinite=shown)

    def _of_low_rank(self, n_contrasts):
        """K's factor and the product by it, where few of K's rows turn out to span it; else None."""
        own = self.kernel.is_psd is True and not self.precomputed
        if not own or self._centres is not None or self._matrix is not None or self.n < _PROBED_FROM:
            return None
        gram, diagonal = self._lazy()
        found = pivoted_cholesky(diagonal, gram.rows, _PROBED, rng=self._rng)
        F = found.F
        if not (found.complete and cheap_in_features(self.n, len(F), n_contrasts)):
            return None
        return found, {"product": lambda V: F.T @ (F @ V)}

    def _newton(self, loss, y, alpha, fit_intercept, solver, on_step, options):
        found = self._of_low_rank(options["n_classes"] - 1 if loss.vector else 1)
        if found is None:
            operators = self.operators()
            low_rank = self._low_rank(operators)
        else:
            low_rank, operators = found
        single, alone = None, y.ndim == 1
        if self._matrix is not None:
            single = HeldMatrix(self._matrix, low_rank, self._n_jobs).single
        outcome = newton(
            operators["product"],
            loss,
            y,
            np.full(1 if alone else y.shape[1], alpha),
            weights=self.weights,
            fit_intercept=fit_intercept,
            low_rank=low_rank,
            matrix=self._matrix,
            single=single,
            on_step=on_step,
            n_threads=self._n_jobs,
            **options,
        )
        parts = (outcome.a, outcome.b, outcome.objective, outcome.gap, outcome.gradient)
        if alone:
            parts = (outcome.a[:, 0], *(part[0] for part in parts[1:]))
        n_iter, converged = int(np.max(outcome.n_iter)), bool(np.all(outcome.converged))
        return CostResult(*parts, n_iter=n_iter, converged=converged, solver="newton")

    def _descend(self, loss, y, alpha, fit_intercept, solver, on_step, options):
        if (size := options.get("batch_size", 0)) > self.n:
            raise ValueError(f"batch_size={size} is more than the {self.n} samples; take at most {self.n}")
        check_momentum(options.get("momentum", 0.0))
        operators = self.operators()
        found = descend(
            operators["product"],
            loss,
            y,
            self.weights,
            alpha,
            fit_intercept,
            rows=operators.get("rows"),
            features=None if self._centres is None else self.features()[0],
            diagonal=operators["diagonal"],
            stochastic=solver == "sgd",
            rng=self._rng,
            on_step=on_step,
            **options,
        )
        return CostResult(
            a=found.solution,
            b=found.intercept,
            objective=found.objective,
            gap=np.nan,
            gradient=found.gradient_norm / (found.scale or 1.0),
            n_iter=found.n_iter,
            converged=found.converged,
            solver=found.solver,
            history=found.history,
        )

    def _smo(self, loss, y, alpha, fit_intercept, solver, on_step, options):
        start = options.pop("start", None)
        kernel, samples = self.kernel, None
        if self._centres is not None:
            kernel, samples = Linear(), self.features()[0]
            if not samples.shape[1]:  # of a kernel that is 0
                samples = np.zeros((self.n, 1))
        else:
            samples = self._samples()
        found = piecewise_linear(
            kernel,
            samples,
            loss,
            y,
            self.weights,
            alpha,
            fit_intercept=fit_intercept,
            start=None if start is None else start[0],
            n_threads=self._n_jobs,
            on_step=on_step,
            **options,
        )
        return CostResult(
            a=found.a,
            b=np.float64(found.b),
            objective=found.objective,
            gap=found.gap,
            gradient=np.nan,
            n_iter=found.n_iter,
            converged=found.converged,
            solver=f"smo, {found.rows}",
            relative_gap=found.relative_gap,
            indefinite=found.indefinite,
        )

    # ---------------------------------------------------------------- what a fitted model keeps

    def fitted(self, a):
        """The rows that predictions need, copied, and their coefficients.

        Parameters
        ----------
        a : ndarray of shape (n,) or (n, k)
            Dual coefficients of the rows that count.

        Returns
        -------
        samples : ndarray, csr_array or list
            For a precomputed kernel the whole matrix, as every row is a column of later queries.
        dual : ndarray of shape (m,) or (m, k)
            Of these rows.
        """
        rows = self.kept
        if self._centres is not None:
            features, root = self.features()
            a = root @ (features.T @ a)
            rows = self._centres if rows is None else rows[self._centres]
        if self.precomputed and rows is not None:
            dual = np.zeros((self._n_all, *a.shape[1:]))
            dual[rows] = a
            return own_rows(self._X), dual
        return own_rows(self._X, rows), a


def constant_of(loss, y, weights):
    """What targets may do without beside an intercept: their mean, next to which digits would be lost.

    Parameters
    ----------
    loss : Loss
    y : ndarray of shape (n,)
    weights : ndarray of shape (n,) or None
        Not negative, and one above 0.

    Returns
    -------
    float
        0 of a cost that a common shift changes.
    """
    if not loss.shifts:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(np.average(y, weights=weights))
        return mean if np.isfinite(mean) and np.isfinite(y - mean).all() else 0.0


def _raise_unless_finite(K):
    """Raise for the first row of K with an entry that is not finite."""
    # The sum is finite in all but the rarest cases, and takes no array of its own.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(K.sum()):
            return
    bad = ~np.isfinite(K).all(axis=1)
    if bad.any():
        raise not_finite(int(np.argmax(bad)))

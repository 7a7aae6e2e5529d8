"""Kernel ridge regression.

Place on the way: ``solvers`` → **estimators**.
"""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgWarning
from sklearn.base import MultiOutputMixin, RegressorMixin

from .._arrays import as_double, check_targets, check_weights, copied, square_part
from .._memory import check_output
from .._progress import progress
from .._threads import n_threads, one_blas_thread
from .._warnings import warn
from ..gram import Gram
from ..kernels.precomputed import Precomputed
from ..solvers import NotPositiveDefinite
from ..solvers.least_squares import ridge_cg, ridge_cholesky, ridge_loo_residuals
from ..solvers.ridge_functions import check_alpha
from ._base import KernelEstimator, check_choice, check_flag, check_number, check_rng, own_rows
from ._centres import CentredRidge

__all__ = ["KernelRidge"]

_SOLVERS = ("auto", "cholesky", "cg")
#: From so many rows on "cg" multiplies by a float32 matrix, and by the float64 one for the residuals of each
#: round.
_SINGLE_FROM = 2000
#: Residual from where on rounding is worth a warning.
_POOR = 1e-4


class KernelRidge(MultiOutputMixin, RegressorMixin, KernelEstimator):
    """Ridge regression in a kernel's feature space: exact, or iterative where n is large.

    Minimises Σ wᵢ (b + hᵢᵀz − yᵢ)² + α zᵀHz over dual coefficients z and an intercept b that is not
    penalised, where H is the kernel matrix of the training rows and hᵢ its columns.

    Parameters
    ----------
    alpha : float or array_like of shape (t,), default=1.0
        Strength of the penalty, one for all targets or one each. 0 is kernelised least squares, and needs a
        regular kernel matrix.
    kernel : Kernel, str or callable, default="linear"
        An expression such as ``0.5 * RBF(2.0) + Polynomial(3)``; a name ("linear", "poly", "rbf",
        "laplacian", "sigmoid", "cosine", "chi2", "fourier", "precomputed"); or a callable
        ``f(x_row, z_row, **kernel_params) -> float``.
    gamma : float, "scale", "auto" or None, default=None
        For names. None and "auto" are 1 / n_features (1 for "chi2"), "scale" 1 / (n_features · X.var()); the
        number is fixed at `fit`.
    degree : int, default=3
        For "poly" and "fourier".
    coef0 : float, default=1
        For "poly" and "sigmoid".
    kernel_params : dict or None, default=None
        Keyword arguments of a callable.
    fit_intercept : bool, default=True
        Whether to fit b. scikit-learn's ``KernelRidge`` has none.
    approximation : int or None, default=None
        So many training rows, drawn uniformly, span the functions: f(x) = k(x, C) z + b with the penalty
        α zᵀ k(C, C) z. Memory is then n times that, and `solver` has no say. None, or as many as there are
        rows, is all of them.
    solver : {"auto", "cholesky", "cg"}, default="auto"
        "cholesky" is exact and stores the matrix; "cg" iterates on products with it and stores a factor of
        low rank. "auto" takes "cholesky" while the float64 matrix fits `memory_budget`.
    tol : float, default=1e-6
        For "cg": residual of the linear system over the norm of the centred targets.
    max_iter : int or None, default=None
        For "cg": products with the matrix at most; None is 1000.
    memory_budget : float, default=1e9
        Bytes that the kernel matrix may take under "auto" (1e9 is n = 11180), and twice what "cg" may spend
        on its preconditioner.
    precond_rank : int or None, default=None
        For "cg": rank of the preconditioner at most; None stops where more would not pay.
    store_factor : bool, default=False
        Keep the Cholesky factor (n² numbers) for `leave_one_out_`, which refactors otherwise.
    n_jobs : int or None, default=None
        Threads: None is OpenMP's setting or the cores available, −1 all cores.
    verbose : bool or int, default=False
        For "cg": show a progress bar with the residual.
    random_state : int, RandomState, Generator or None, default=None
        Draws the rows of `approximation`, and for "cg" the preconditioner's pivots, which move results by
        less than `tol`.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (n,) or (n, t)
        z. Rows of weight ≤ 0 have none, except that with a precomputed kernel they have 0.
    intercept_ : float or ndarray of shape (t,)
        b; 0 without `fit_intercept`.
    X_fit_ : ndarray, csr_array or list
        The training rows, or the drawn ones, that `dual_coef_` belongs to (a precomputed kernel: the
        matrix), a copy.
    kernel_ : Kernel
        The expression that was used.
    n_features_in_ : int
        Columns at `fit`.
    feature_names_in_ : ndarray of shape (d,)
        Their names, if they were all strings.
    n_iter_ : int
        Products with the kernel matrix; 1 for "cholesky".
    converged_ : bool
        Of "cg" whether `tol` was reached. "cholesky" has no tolerance: what `residual_` tells is rounding, by
        a kernel matrix that α leaves next to singular; from 1e-4 on `fit` warns of it.
    residual_ : float
        The relative residual at the end, the largest over the targets.
    solver_used_ : str
        "cholesky", "cholesky, float32 refined" (a float32 factor that preconditions float64 residuals), both
        with an "and" where the alphas differ in that, "cg", or "centres, cholesky".
    leave_one_out_ : ndarray of shape (n,) or (n, t)
        Each target less its prediction by the fit without that row, in closed form on first access; without
        `approximation`.

    Raises
    ------
    NotPositiveDefinite
        If the kernel matrix plus the penalty is not positive definite, with the pivot.

    See Also
    --------
    mercer.solvers.ridge : The same for a given matrix.

    Notes
    -----
    A `sample_weight` of 2 is the row written twice; one of 0 or less is the row left out.

    References
    ----------
    MLR7 (7.31); LN14, kernel regression.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import KernelRidge
    >>> from mercer.kernels import RBF
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> model = KernelRidge(alpha=1e-3, kernel=RBF(gamma=10.0)).fit(X, np.sin(6 * X[:, 0]))
    >>> bool(np.max(np.abs(model.leave_one_out_)) < 0.05)
    True
    """

    def __init__(
        self,
        alpha=1.0,
        *,
        kernel="linear",
        gamma=None,
        degree=3,
        coef0=1,
        kernel_params=None,
        fit_intercept=True,
        approximation=None,
        solver="auto",
        tol=1e-6,
        max_iter=None,
        memory_budget=1e9,
        precond_rank=None,
        store_factor=False,
        n_jobs=None,
        verbose=False,
        random_state=None,
    ):
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.approximation = approximation
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.precond_rank = precond_rank
        self.store_factor = store_factor
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # ---------------------------------------------------------------- fit

    def fit(self, X, y, sample_weight=None):
        """Fit to data.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Training rows; with a precomputed kernel the matrix (n, n); strings or sets for a kernel of those.
        y : array_like of shape (n,) or (n, t)
            Targets.
        sample_weight : array_like of shape (n,), float or None, default=None
            Weights of the squares.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input, before any work, with argument, place and remedy.
        NotPositiveDefinite
            See above.

        Warns
        -----
        ConvergenceWarning
            Of "cg" if `tol` was not reached.
        LinAlgWarning
            SciPy's, if rounding leaves a residual of more than 1e-4 to "cholesky".
        """
        self._check_parameters()
        X, names = self._training_samples(X)
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        y = check_targets(y, n, owner=type(self).__name__)
        weights = check_weights(sample_weight, n)
        kernel = self._kernel_for(X, weights)
        Y = np.array(y.reshape(n, -1), dtype=np.float64)
        problem = _Problem(kernel, X, Y, check_alpha(self.alpha, Y.shape[1]), weights, self.fit_intercept)
        # Compiled loops have the threads; what BLAS makes of several of its own varies in the last digits.
        with one_blas_thread():
            centred = self._centred(problem, X, weights)
            if centred is not None:
                self._keep(problem, *centred, X, y, names)
                return self
            outcome = self._solve(problem)
        self._keep(problem, outcome, None, X, y, names)
        return self

    def _centred(self, problem, X, weights):
        """The solution by drawn centres and the samples that it needs, or None without such."""
        if self.approximation is None:
            return None
        centred = CentredRidge(
            problem.kernel,
            X,
            weights,
            approximation=self.approximation,
            rng=check_rng(self.random_state),
            n_jobs=self.n_jobs,
        )
        if not centred.drawn:
            return None
        outcome = centred.solve_ridge(problem.Y, problem.alphas, self.fit_intercept)
        samples, dual = centred.kept_samples(outcome.solution)
        return replace(outcome, solution=dual), samples

    def _check_parameters(self):
        check_alpha(self.alpha, np.size(self.alpha))
        check_choice("solver", self.solver, _SOLVERS)
        check_number("tol", self.tol, above=0)
        check_number("max_iter", self.max_iter, least=1, integer=True, none=True)
        check_number("approximation", self.approximation, least=1, integer=True, none=True)
        check_number("precond_rank", self.precond_rank, least=1, integer=True, none=True)
        check_number("memory_budget", self.memory_budget, above=0)
        check_flag("fit_intercept", self.fit_intercept)
        check_flag("store_factor", self.store_factor)
        check_rng(self.random_state)
        n_threads(self.n_jobs)
        self._check_kernel()

    def _solve(self, problem):
        solver = self.solver
        if solver == "auto":
            solver = "cholesky" if 8.0 * problem.n**2 <= self.memory_budget else "cg"
        common = {"s": problem.s, "fit_intercept": self.fit_intercept}
        if solver == "cholesky":
            K = problem.matrix(self.n_jobs)
            try:
                outcome = ridge_cholesky(
                    K,
                    problem.Y,
                    problem.alphas,
                    keep_factor=self.store_factor,
                    n_threads=self.n_jobs,
                    **common,
                )
            except NotPositiveDefinite as error:
                if problem.kept is None:
                    raise
                row = problem.kept[error.pivot]  # in the caller's numbering
                raise NotPositiveDefinite(row, error.value, error.remedy) from None
            if not outcome.residual <= _POOR:
                warn(
                    "K + alpha I is next to singular: of the targets rounding leaves a residual of "
                    f"{outcome.residual:.1e}; raise alpha, the least of which is {np.min(self.alpha):.1e}",
                    LinAlgWarning,
                )
            return outcome
        limit = 1000 if self.max_iter is None else self.max_iter
        rank = self.precond_rank
        if rank is None:
            rank = int(min(problem.n // 4, 4000, self.memory_budget / (16 * problem.n)))
        with progress(self.verbose, "kernel ridge", limit) as on_step:
            return ridge_cg(
                Y=problem.Y,
                alphas=problem.alphas,
                tol=self.tol,
                max_iter=limit,
                max_rank=max(rank, min(problem.n, 50)),
                rng=check_rng(self.random_state),
                on_step=on_step,
                **problem.operators(self.n_jobs),
                **common,
            )

    def _keep(self, problem, outcome, samples, X, y, names):
        """Assign what the fit found, all at the end: a fit that fails leaves the estimator as it was."""
        # With a precomputed kernel a row is a column of later queries, so that none may be dropped.
        dual, rows = outcome.solution, problem.kept
        drawn = samples is not None
        if not drawn and problem.precomputed and rows is not None:
            dual = np.zeros((len(problem.targets), dual.shape[1]))
            dual[rows] = outcome.solution
            rows = None
        if not drawn:
            samples = own_rows(X, rows)
            problem.drop_samples(X)
        intercept = outcome.intercept[0] if y.ndim == 1 else outcome.intercept
        dual = dual.reshape(-1, *y.shape[1:])
        self.__dict__.update(
            X_fit_=samples,
            kernel_=problem.kernel,
            **self._coefficients(problem.kernel, X, samples, dual, intercept if self.fit_intercept else 0.0),
            n_iter_=outcome.n_iter,
            converged_=outcome.converged,
            residual_=outcome.residual,
            solver_used_=outcome.solver,
            _problem=None if drawn else problem,
            _factors=outcome.factor,
            _loo=None,
            _shape=y.shape,
        )
        self._set_features(X, names)

    # ---------------------------------------------------------------- predict

    def predict(self, X):
        """Predicted targets ``k(X, X_fit_) @ dual_coef_ + intercept_``, without forming the kernel matrix.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            Rows; with a precomputed kernel the matrix (m, n) against the training rows.

        Returns
        -------
        ndarray of shape (m,) or (m, t)
            float32 if both the training rows and these are; worked out in float64 where terms cancel.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            For rows unlike the fit's: another number of columns, NaN or infinity (with its row).
        """
        self._require_fit("dual_coef_")
        return self._expansion(X)

    @property
    def leave_one_out_(self):
        """``y − ŷ₋ᵢ``: each target less its prediction by the fit without that row; of y's shape.

        In closed form, on first access. It takes a Cholesky factor of the n×n matrix, whatever solver was
        used. A row of weight ≤ 0 is in no fit, and has the residual of the fit. NaN where `fit_intercept` has
        no other row to go by.
        """
        self._require_fit("dual_coef_")
        if self._problem is None:
            raise AttributeError(
                "leave_one_out_ belongs to fits with all rows; set approximation=None, and fit again"
            )
        if self._loo is None:
            with one_blas_thread():
                self._loo = self._leave_one_out().reshape(self._shape)
        return self._loo

    def _leave_one_out(self):
        problem = self._problem
        samples = self.X_fit_
        common = {"s": problem.s, "fit_intercept": problem.fit_intercept, "n_threads": self.n_jobs}
        if self._factors is not None:
            inside = ridge_loo_residuals(None, problem.Y, problem.alphas, factors=self._factors, **common)
        else:
            K = problem.matrix(self.n_jobs, samples)
            inside = ridge_loo_residuals(K, problem.Y, problem.alphas, **common)
        if problem.kept is None:
            return inside
        out = np.empty(problem.targets.shape)
        out[problem.kept] = inside
        removed = np.setdiff1d(np.arange(len(out)), problem.kept)
        held = samples[removed] if problem.precomputed else problem.removed
        out[removed] = problem.targets[removed] - self.predict(held).reshape(len(removed), -1)
        return out


class _Problem:
    """One ridge problem: which rows count, the roots of their weights, and K in the forms that solvers want.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray, csr_array or sequence
        All the rows; `drop_samples` lets go of them.
    Y : ndarray of shape (n, t)
        All the targets, owned.
    alphas : ndarray of shape (t,)
    weights : ndarray of shape (n,) or None
    fit_intercept : bool
    """

    def __init__(self, kernel, X, Y, alphas, weights, fit_intercept):
        self.kernel, self.alphas, self.fit_intercept = kernel, alphas, fit_intercept
        self.precomputed = "matrix" in kernel._readers()
        self.targets, self.kept, self.removed = Y, None, None
        if weights is not None and not (weights > 0).all():
            self.kept = np.flatnonzero(weights > 0)
        self.Y = Y if self.kept is None else Y[self.kept]
        self.n = len(self.Y)
        self.s = None if weights is None else np.sqrt(weights if self.kept is None else weights[self.kept])
        self._X = X

    def drop_samples(self, X):
        """Let go of the caller's rows, keeping copies of those that were left out."""
        if self.kept is not None and not self.precomputed:
            self.removed = own_rows(X, np.setdiff1d(np.arange(len(self.targets)), self.kept))
        self._X = None

    def _samples(self, X):
        if self.kept is None:
            return X
        return square_part(X, self.kept) if self.precomputed else own_rows(X, self.kept)

    def matrix(self, n_jobs, fitted=None):
        """K of the rows that count, a new float64 array; `fitted` are ``X_fit_`` once the fit is over."""
        check_output(self.n, self.n, np.float64)
        if fitted is None:
            X = self._samples(self._X)
        else:
            X = self._samples(fitted) if self.precomputed else fitted
        if type(self.kernel) is Precomputed:
            return copied(X, np.float64)
        # float64 also for float32 rows: rounding of K is then no part of what alpha has to cover.
        return self.kernel(as_double(X), n_threads=n_jobs)

    def operators(self, n_jobs):
        """K as products, rows and diagonal, for conjugate gradients."""
        X = as_double(self._samples(self._X))
        if type(self.kernel) is Precomputed:
            return {"operator": lambda V: X @ V, "diagonal": X.diagonal(), "rows": lambda index: X[index]}
        gram = Gram(self.kernel, X, n_threads=n_jobs)
        operators = {"operator": gram.dot, "diagonal": gram.diag(), "rows": gram.rows}
        numeric = isinstance(X, np.ndarray) or sp.issparse(X)
        # A matrix that a user's function computes is no cheaper in float32.
        if self.n >= _SINGLE_FROM and numeric and not self.kernel._compiled(X.shape[1]).block_leaves:
            with np.errstate(over="ignore"):
                single = X.astype(np.float32)
            if np.isfinite(single.sum()):
                operators["fast"] = _single_product(Gram(self.kernel, single, n_threads=n_jobs))
        return operators


def _single_product(gram):
    def product(V):
        # What leaves float32's range comes back as a bad residual, and then the solver takes float64.
        with np.errstate(over="ignore", invalid="ignore"):
            return gram.dot(V)

    return product

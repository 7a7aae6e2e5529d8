"""Kernel regression by any cost.

Place on the way: ``_cost_problem`` → **regression** → ``model_selection``.
"""

import numpy as np
from sklearn.base import RegressorMixin

from .._arrays import check_targets, check_weights
from .._progress import progress
from .._threads import n_threads
from ..kernels.prepared import n_rows
from ..losses import EpsilonInsensitive, Huber, Loss, Poisson, Quantile, Squared
from ..solvers.outcome import warn_unconverged
from ._base import KernelEstimator, check_choice, check_flag, check_number, check_rng
from ._cost_problem import CostProblem
from ._labels import one_column

__all__ = ["KernelRegressor"]

_LOSSES = {
    "squared": Squared(),
    "huber": Huber(),
    "epsilon_insensitive": EpsilonInsensitive(),
    "quantile": Quantile(),
    "poisson": Poisson(),
}
_SOLVERS = ("auto", "newton", "smo", "gd", "sgd")
#: What None stands for.
_TOL = {"newton": 1e-8, "smo": 1e-10, "gd": 1e-4, "sgd": 1e-2}


class KernelRegressor(RegressorMixin, KernelEstimator):
    """Regression in a kernel's feature space by a cost of one's choice.

    Minimises Σ wᵢ l(yᵢ, fᵢ) + α aᵀKa with f = b + Ka over dual coefficients a and an intercept b that is not
    penalised.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        The cost l: "squared", "huber", "epsilon_insensitive", "quantile" (the median), "poisson" (counts, of
        mean eᶠ); or a cost of `mercer.losses`, such as ``Huber(delta=2.0)`` or ``Quantile(level=0.9)``.
    alpha : float, default=1.0
        Strength of the penalty, above 0.
    kernel : Kernel, str or callable, default="rbf"
        An expression such as ``0.5 * RBF(2.0) + Polynomial(3)``; a name ("linear", "poly", "rbf",
        "laplacian", "sigmoid", "cosine", "chi2", "fourier", "precomputed"); or a callable
        ``f(x_row, z_row, **kernel_params) -> float``. It should be positive semidefinite.
    gamma : float, "scale", "auto" or None, default="scale"
        For names. None and "auto" are 1 / n_features (1 for "chi2"), "scale" 1 / (n_features · X.var()); the
        number is fixed at `fit`.
    degree : int, default=3
        For "poly" and "fourier".
    coef0 : float, default=0.0
        For "poly" and "sigmoid".
    kernel_params : dict or None, default=None
        Keyword arguments of a callable.
    fit_intercept : bool, default=True
        Whether to fit b.
    solver : {"auto", "newton", "smo", "gd", "sgd"}, default="auto"
        "newton" for smooth costs (Huber's begins at the dual's optimum where the matrix is in memory), "smo"
        (the dual) for costs with kinks; "auto" chooses. "gd" is gradient descent with momentum, "sgd" the
        same on batches, for smooth costs.
    approximation : int or None, default=None
        So many training rows, drawn uniformly, span the functions that are fitted, which makes work and
        memory linear in n; None is all of them.
    tol : float or None, default=None
        For "newton" the relative gradient (None is 1e-8), or, where rounding keeps that above it, the gap
        over the objective; for "smo" the duality gap over the objective of the best constant (1e-10), for
        "gd" (1e-4) and "sgd" (1e-2) the gradient's norm over that at a = 0 and the best b.
    max_iter : int or None, default=None
        Most iterations; None is the solver's default.
    step, momentum, decay, batch_size : float or None, default=None
        For "gd" and "sgd", see `mercer.solvers.kernel_descent.descend`; None chooses.
    memory_budget : float, default=1e9
        Bytes that the kernel matrix may take (1e9 is n = 11180); beyond, products compute it anew.
    warm_start : bool, default=False
        Whether `fit` starts from the last solution, if that had as many rows.
    n_jobs : int or None, default=None
        Threads: None is OpenMP's setting or the cores available, −1 all cores. Results are the same.
    verbose : bool or int, default=False
        Show a progress bar with the gradient, for "smo" with the gap.
    random_state : int, RandomState, Generator or None, default=None
        Draws the rows of `approximation`, the pivots of a preconditioner, and the batches of "sgd".

    Attributes
    ----------
    dual_coef_ : ndarray of shape (n,)
        a. Rows of weight ≤ 0 have none, except that with a precomputed kernel they have 0. With
        `approximation` those of its rows.
    intercept_ : float
        b; 0 without `fit_intercept`.
    X_fit_ : ndarray, csr_array or list
        The training rows that `dual_coef_` belongs to (a precomputed kernel: the matrix), a copy.
    kernel_ : Kernel
        The expression that was used.
    loss_ : Loss
        The cost that was used.
    objective_ : float
        What was reached of the minimum, Σ w l + α aᵀKa.
    duality_gap_ : float
        What that is above the minimum at most; NaN by "gd" and "sgd".
    gradient_norm_ : float
        As `tol` takes it; NaN by "smo".
    n_iter_ : int
        Iterations: Newton's steps, changes of pairs, steps of descent, or rounds through the batches.
    converged_ : bool
        Whether `tol` was reached.
    solver_used_ : str
        "newton", "smo" with the precision of its rows, "gd" or "sgd".
    history_ : dict of str to ndarray
        By "gd" and "sgd" only: "objective" and "gradient_norm" from the start on, "step" of each iteration.
    n_features_in_ : int
        Columns at `fit`.
    feature_names_in_ : ndarray of shape (d,)
        Their names, if they were all strings.

    See Also
    --------
    KernelRidge : The squared cost, exactly, with leave-one-out residuals, and many targets at once.
    SVR : The ε-insensitive cost, with C = 1/(2α).

    Notes
    -----
    A `sample_weight` of 2 is the row written twice; one of 0 or less is the row left out.

    References
    ----------
    MLR7 7.3 and table 7.1, for (7.31)'s and other costs; R. Koenker, Quantile Regression, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import KernelRegressor
    >>> from mercer.losses import Quantile
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.sin(6 * X[:, 0]) + 0.3 * np.cos(np.arange(100.0) ** 2)
    >>> model = KernelRegressor(Quantile(0.9), alpha=0.01).fit(X, y)
    >>> float(np.mean(y <= model.predict(X) + 1e-4).round(1))
    0.9
    """

    def __init__(
        self,
        loss="squared",
        alpha=1.0,
        *,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0.0,
        kernel_params=None,
        fit_intercept=True,
        solver="auto",
        approximation=None,
        tol=None,
        max_iter=None,
        step=None,
        momentum=None,
        decay=None,
        batch_size=None,
        memory_budget=1e9,
        warm_start=False,
        n_jobs=None,
        verbose=False,
        random_state=None,
    ):
        self.loss = loss
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.approximation = approximation
        self.tol = tol
        self.max_iter = max_iter
        self.step = step
        self.momentum = momentum
        self.decay = decay
        self.batch_size = batch_size
        self.memory_budget = memory_budget
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self):
        """As the base's; counts are not negative."""
        tags = super().__sklearn_tags__()
        loss = _LOSSES.get(self.loss) if isinstance(self.loss, str) else self.loss
        tags.target_tags.positive_only = getattr(loss, "needs", None) == "nonnegative"
        return tags

    # ---------------------------------------------------------------- fit

    def fit(self, X, y, sample_weight=None):
        """Fit to data.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Training rows; with a precomputed kernel the matrix (n, n); strings or sets for a kernel of those.
        y : array_like of shape (n,)
            Targets.
        sample_weight : array_like of shape (n,), float or None, default=None
            Weights of the costs.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input, before any work, with argument, place and remedy; for targets that the cost is not
            defined for.
        Diverged
            By "gd" and "sgd", for a step that is too long.
        """
        loss, solver = self._check_parameters()
        X, names = self._training_samples(X)
        n = n_rows(X)
        y = one_column(check_targets(y, n, owner=type(self).__name__))
        weights = check_weights(sample_weight, n)
        check_cost_targets(loss, y, weights, self.fit_intercept)
        problem = CostProblem(
            self._kernel_for(X, weights),
            X,
            weights,
            approximation=self.approximation,
            rng=check_rng(self.random_state),
            memory_budget=self.memory_budget,
            n_jobs=self.n_jobs,
        )
        result = self._solve(problem, loss, problem.of_kept(y).astype(np.float64), solver)
        self._warn(result)
        self._keep(problem, result, loss, X, names)
        return self

    def _check_parameters(self):
        """The cost and the solver; raise for a parameter that is out of its range, before any work."""
        loss = self.loss
        if isinstance(loss, str):
            check_choice("loss", loss, tuple(_LOSSES))
            loss = _LOSSES[loss]
        if not isinstance(loss, Loss) or loss.needs not in ("real", "nonnegative"):
            raise TypeError(
                f"loss must be one of {', '.join(map(repr, _LOSSES))}, or a cost of real targets from "
                f"mercer.losses such as Huber(2.0), got {loss!r}"
            )
        check_choice("solver", self.solver, _SOLVERS)
        solver = self.solver
        if solver == "auto":
            solver = "newton" if loss.smooth else "smo"
        if loss.smooth == (solver == "smo"):
            kind = "is smooth, and has" if loss.smooth else "has kinks, where there is"
            other = "'newton'" if loss.smooth else "'smo'"
            if loss.smooth or solver == "newton":
                raise ValueError(f"solver={solver!r}: {loss!r} {kind} none of what it needs; take {other}")
        self._check_numbers()
        self._check_kernel()
        return loss, solver

    def _check_numbers(self):
        check_number("alpha", self.alpha, above=0, finite=True)
        check_number("approximation", self.approximation, least=1, integer=True, none=True)
        check_number("tol", self.tol, above=0, none=True)
        check_number("max_iter", self.max_iter, least=1, integer=True, none=True)
        check_number("step", self.step, above=0, none=True, word="backtracking")
        for name in ("momentum", "decay"):
            check_number(name, getattr(self, name), least=0, none=True)
        check_number("batch_size", self.batch_size, least=1, integer=True, none=True)
        check_number("memory_budget", self.memory_budget, above=0)
        for name in ("fit_intercept", "warm_start"):
            check_flag(name, getattr(self, name))
        check_rng(self.random_state)
        n_threads(self.n_jobs)

    def _solve(self, problem, loss, y, solver):
        options = {"tol": self.tol, "max_iter": self.max_iter, "start": self._last(problem)}
        if solver in ("gd", "sgd"):
            options |= {name: getattr(self, name) for name in ("step", "momentum", "decay")}
        if solver == "sgd":
            options["batch_size"] = self.batch_size
        if options["tol"] is None:
            options["tol"] = _TOL[solver]
        # "smo" counts problems, of which there is one.
        total, label = (1, "gap") if solver == "smo" else (self.max_iter, "gradient")
        with progress(self.verbose, type(self).__name__, total, label=label) as on_step:
            return problem.solve(
                loss,
                y,
                self.alpha,
                fit_intercept=self.fit_intercept,
                solver=solver,
                on_step=on_step,
                **options,
            )

    def _last(self, problem):
        """The last solution, if it is wanted and had as many rows."""
        last = self.__dict__.get("_solution") if self.warm_start else None
        if last is None or len(last[0]) != problem.n:
            return None
        return last if self.fit_intercept else (last[0], np.zeros_like(last[1]))

    def _warn(self, result):
        if not result.converged:
            tol = _TOL[result.solver.split(",")[0]] if self.tol is None else self.tol
            warn_unconverged(
                type(self).__name__,
                result.gradient if result.relative_gap is None else result.relative_gap,
                tol,
                result.n_iter,
                "raise max_iter, alpha or tol, or scale the samples",
                indefinite=result.indefinite,
            )

    def _keep(self, problem, result, loss, X, names):
        """Assign what the fit found, all at the end: a fit that fails leaves the estimator as it was."""
        samples, dual = problem.fitted(result.a)
        intercept = np.float64(result.b if self.fit_intercept else 0.0)
        coefficients = self._coefficients(problem.kernel, X, samples, np.array(dual), intercept)
        self.__dict__.update(
            X_fit_=samples,
            kernel_=problem.kernel,
            loss_=loss,
            **coefficients,
            objective_=float(result.objective),
            duality_gap_=float(result.gap),
            gradient_norm_=float(result.gradient),
            n_iter_=max(result.n_iter, 1),
            converged_=result.converged,
            solver_used_=result.solver,
            _solution=(result.a, result.b) if self.warm_start else None,
        )
        if result.history is not None:
            self.history_ = result.history
        elif hasattr(self, "history_"):
            del self.history_
        self._set_features(X, names)

    # ---------------------------------------------------------------- predict

    def predict(self, X):
        """Predicted targets: ``f = k(X, X_fit_) @ dual_coef_ + intercept_``, and eᶠ by Poisson's cost.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            Rows; with a precomputed kernel the matrix (m, n) against the training rows.

        Returns
        -------
        ndarray of shape (m,)
            float32 if both the training rows and these are; worked out in float64 where terms cancel.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            For rows unlike the fit's: another number of columns, NaN or infinity (with its row).
        """
        self._require_fit("dual_coef_")
        return predicted_mean(self.loss_, self._expansion(X))


def predicted_mean(loss, f):
    """What f predicts by a cost, written over f.

    Parameters
    ----------
    loss : Loss
    f : ndarray

    Returns
    -------
    ndarray
        eᶠ by Poisson's cost, else f.
    """
    if isinstance(loss, Poisson):
        with np.errstate(over="ignore"):
            np.exp(f, out=f)
    return f


def check_cost_targets(loss, y, weights, fit_intercept):
    """Raise for targets that the cost is not defined for, in the caller's numbering.

    Parameters
    ----------
    loss : Loss
    y : ndarray of shape (n,)
    weights : ndarray of shape (n,) or None
        Rows of weight ≤ 0 are not looked at.
    fit_intercept : bool

    Raises
    ------
    ValueError
    """
    if weights is not None:
        # Rows without weight are not there; 0 is a target for every cost.
        y = np.where(weights > 0, y, 0.0)
    loss.check(y)
    if isinstance(loss, Poisson) and fit_intercept and not y.any():
        raise ValueError(
            "loss='poisson': all targets are 0, so that the intercept has no least value but −∞; give rows "
            "with counts above 0, or fit_intercept=False"
        )

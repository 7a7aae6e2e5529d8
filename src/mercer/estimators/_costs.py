"""Base of the classifiers that minimise a cost: parameters, the problem that labels pose, decisions.

Place on the way: ``_cost_problem`` → **_costs** → ``classification``.
"""

from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import ClassifierMixin

from .._arrays import check_weights
from .._progress import progress
from .._threads import n_threads, one_blas_thread
from ..kernels.prepared import n_rows
from ..losses import Loss
from ..solvers.outcome import warn_unconverged
from ..solvers.quasi_newton import lbfgs
from ._base import KernelEstimator, check_choice, check_flag, check_number, check_rng
from ._cost_problem import CostProblem, CostResult
from ._labels import encode_labels
from ._svc import SupportVectorClassifier

__all__ = ["CostClassifier", "Posed"]

_SOLVERS = ("auto", "newton", "lbfgs", "gd", "sgd")
#: What `tol` None stands for.
_TOL = {"newton": 1e-8, "lbfgs": 1e-5, "gd": 1e-4, "sgd": 1e-2}


@dataclass(frozen=True)
class Posed:
    """What labels and weights ask a solver for.

    Attributes
    ----------
    loss : Loss
    y : ndarray of shape (n,) or (n, q)
        Targets as the loss takes them, of all rows; q problems one against the rest.
    weights : ndarray of shape (n,) or None
        Class weight times sample weight; 0 for a row that is left out.
    sample_weight : ndarray of shape (n,) or None
        Without the class weights.
    classes : ndarray of shape (k,)
        All labels.
    class_weight : ndarray of shape (k,)
    present : ndarray of int
        Classes with a row of positive weight; codes and columns count these.
    """

    loss: Loss
    y: np.ndarray
    weights: np.ndarray | None
    sample_weight: np.ndarray | None
    classes: np.ndarray
    class_weight: np.ndarray
    present: np.ndarray


class CostClassifier(ClassifierMixin, KernelEstimator):
    """Base of the classifiers: Σ wᵢ l(yᵢ, b + hᵢᵀz) + α zᵀHz.

    Subclasses have the parameters listed there, and say by `_loss` which cost they minimise.
    """

    # ---------------------------------------------------------------- parameters

    def _check_parameters(self):
        """Raise for a parameter that is out of its range, before any work."""
        self._check_kernel()
        check_number("alpha", self.alpha, above=0, finite=True)
        check_choice("solver", self.solver, _SOLVERS)
        check_number("tol", self.tol, above=0, none=True)
        check_number("max_iter", self.max_iter, least=1, integer=True, none=True)
        check_number("memory_budget", self.memory_budget, above=0)
        check_number("approximation", self.approximation, least=1, integer=True, none=True)
        check_number("batch_size", self.batch_size, least=1, integer=True, none=True)
        check_number("step", self.step, above=0, none=True, word="backtracking")
        check_number("momentum", self.momentum, least=0, none=True)
        check_flag("fit_intercept", self.fit_intercept)
        check_flag("warm_start", self.warm_start)
        if isinstance(self.class_weight, str):
            check_choice("class_weight", self.class_weight, ("balanced",))
        check_rng(self.random_state)
        n_threads(self.n_jobs)

    _class_weights = SupportVectorClassifier._class_weights
    _given_weights = SupportVectorClassifier._given_weights
    _present, _one_class_hint = SupportVectorClassifier._present, SupportVectorClassifier._one_class_hint

    def _loss(self, n_present):
        """The cost for so many classes, and how it takes targets: "sign", "code" or "rest"."""
        raise NotImplementedError

    # ---------------------------------------------------------------- the problem

    def _posed(self, y, sample_weight, n):
        """Targets and weights for a solver; nothing is set on the estimator.

        Parameters
        ----------
        y : array_like of shape (n,)
            Labels.
        sample_weight : array_like of shape (n,), float or None
        n : int
            Rows of X.

        Returns
        -------
        Posed
        """
        classes, codes = encode_labels(y, n, type(self).__name__)
        sample_weight = check_weights(sample_weight, n)
        class_weight, weights = self._class_weights(classes, codes, sample_weight)
        counts = np.bincount(codes if weights is None else codes[weights > 0], minlength=len(classes))
        present = self._present(classes, counts)
        sample_weight = weights
        if self.class_weight is not None:
            weights = class_weight[codes] * (1.0 if weights is None else np.maximum(weights, 0.0))
        elif weights is not None:
            weights = np.maximum(weights, 0.0)
        loss, kind = self._loss(len(present))
        # A row of a class that is left out has no code; it has no weight either.
        codes = np.searchsorted(present, codes).clip(max=len(present) - 1)
        if kind == "code":
            targets = codes
        elif kind == "sign":
            targets = np.where(codes == 1, 1.0, -1.0)
        else:
            targets = np.where(codes[:, None] == np.arange(len(present)), 1.0, -1.0)
        return Posed(loss, targets, weights, sample_weight, classes, class_weight, present)

    # ---------------------------------------------------------------- fit

    def fit(self, X, y, sample_weight=None):
        """Fit to labelled rows.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Training rows; with a precomputed kernel the matrix (n, n); strings or sets for a kernel of those.
        y : array_like of shape (n,)
            Labels of any type.
        sample_weight : array_like of shape (n,), float or None, default=None
            Weights of the costs. A weight of 2 is the row written twice; one of 0 or less is the row left
            out, but `classes_` keeps its label.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input, before any work, with argument, place and remedy.
        """
        self._check_parameters()
        X, names = self._training_samples(X)
        posed = self._posed(y, sample_weight, n_rows(X))
        kernel = self._kernel_for(X, posed.sample_weight)
        problem = CostProblem(
            kernel,
            X,
            posed.weights,
            approximation=self.approximation,
            rng=check_rng(self.random_state),
            memory_budget=self.memory_budget,
            n_jobs=self.n_jobs,
        )
        result = self._solve(problem, posed)
        self._warn(result)
        self._keep(X, names, kernel, problem, posed, result)
        return self

    def _solver(self):
        return "newton" if self.solver == "auto" else self.solver

    def _solve(self, problem, posed):
        solver, y = self._solver(), problem.of_kept(posed.y)
        options = {
            "tol": _TOL[solver] if self.tol is None else float(self.tol),
            "max_iter": self.max_iter,
            "start": self._previous(posed, problem),
            "n_classes": len(posed.present) if posed.loss.vector else None,
        }
        if solver in ("gd", "sgd"):
            options |= {"step": self.step, "momentum": self.momentum}
            options |= {"batch_size": self.batch_size} if solver == "sgd" else {}
        with progress(self.verbose, type(self).__name__, label="gradient") as on_step:
            if solver == "lbfgs":
                return self._lbfgs(problem, posed.loss, y, on_step, options)
            common = {"fit_intercept": self.fit_intercept, "solver": solver, "on_step": on_step}
            if y.ndim == 1 or solver == "newton":
                return problem.solve(posed.loss, y, self.alpha, **common, **options)
            return _side_by_side(
                [
                    problem.solve(
                        posed.loss, column, self.alpha, **common, **options | {"start": _column(options, k)}
                    )
                    for k, column in enumerate(y.T)
                ]
            )

    def _lbfgs(self, problem, loss, y, on_step, options):
        columns = y[:, None] if y.ndim == 1 else y
        found = []
        with one_blas_thread():
            operators = problem.operators()
            low_rank = problem._low_rank(operators)
            for k, column in enumerate(columns.T):
                start = options["start"] if y.ndim == 1 else _column(options, k)
                result = lbfgs(
                    operators["product"],
                    loss,
                    column,
                    float(self.alpha),
                    weights=problem.weights,
                    fit_intercept=bool(self.fit_intercept),
                    low_rank=low_rank,
                    on_step=on_step,
                    **{**options, "start": start},
                )
                result = CostResult(**result, solver="lbfgs")
                found.append(problem.judged(result, loss, column, float(self.alpha)))
        return found[0] if y.ndim == 1 else _side_by_side(found)

    def _warn(self, result):
        if result.converged:
            return
        solver = self._solver()
        tol = _TOL[solver] if self.tol is None else self.tol
        worst = float(np.max(result.gradient))
        warn_unconverged(
            f"{type(self).__name__} ({solver})",
            worst,
            tol,
            result.n_iter,
            "raise max_iter, tol or alpha",
            indefinite=result.indefinite,
        )

    # ---------------------------------------------------------------- what is kept

    def _previous(self, posed, problem):
        """Where the last fit ended, if it was one of the same rows and classes."""
        last = self.__dict__.get("_last")
        if not self.warm_start or last is None or not np.array_equal(self.classes_, posed.classes):
            return None
        a, b, present = last
        outputs = posed.y.shape[1:] if not posed.loss.vector else (len(posed.present),)
        if a.shape != (problem.n, *outputs) or not np.array_equal(present, posed.present):
            return None
        return a, b if self.fit_intercept else np.zeros_like(b)

    def _keep(self, X, names, kernel, problem, posed, result):
        """Assign what the fit found, all at the end: a fit that fails leaves the estimator as it was."""
        samples, dual = problem.fitted(result.a)
        dual, intercept = self._spread(dual, np.asarray(result.b, dtype=np.float64)[()], posed)
        self.__dict__.update(
            classes_=posed.classes,
            class_weight_=posed.class_weight,
            X_fit_=samples,
            kernel_=kernel,
            **self._coefficients(kernel, X, samples, dual, intercept),
            n_iter_=max(int(result.n_iter), 1),
            converged_=bool(result.converged),
            objective_=result.objective,
            duality_gap_=result.gap,
            gradient_norm_=result.gradient,
            solver_used_=result.solver,
            _absent=np.setdiff1d(np.arange(len(posed.classes)), posed.present),
            _last=(result.a, result.b, posed.present) if self.warm_start else None,
        )
        if result.history is not None:
            self.history_ = result.history
        elif hasattr(self, "history_"):
            del self.history_
        self._set_features(X, names)

    @staticmethod
    def _spread(dual, intercept, posed):
        """Coefficients and intercepts of all classes; those left out have the intercept −∞."""
        k, present = len(posed.classes), posed.present
        if len(present) == k:
            return dual, intercept
        if dual.ndim == 1:  # f of the second against the first
            dual, intercept = np.outer(dual, (-0.5, 0.5)), np.multiply(intercept, (-0.5, 0.5))
        wide, shift = np.zeros((len(dual), k)), np.full(k, -np.inf)
        wide[:, present], shift[present] = dual, intercept
        return wide, shift

    # ---------------------------------------------------------------- predict

    def _decisions(self, X):
        """``b + hᵀz`` of shape (m,) for two classes, (m, k) for more, −∞ for a class without rows.

        All that a fitted classifier says about X comes from this and `classes_`.
        """
        return self._expansion(X)

    def decision_function(self, X):
        """Decisions: for two classes one, positive for the second; else one for each class.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            Rows; with a precomputed kernel the matrix against the training rows.

        Returns
        -------
        ndarray of shape (m,) or (m, k)
            float32 if both the training rows and these are; worked out in float64 where terms cancel. A class
            without training rows of positive weight has one less than the least of the others.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            For rows unlike the fit's.
        """
        self._require_fit("classes_")
        f = self._decisions(X)
        out = np.isneginf(f[:1])
        if out.any():
            absent = out.ravel()
            f[:, absent] = f[:, ~absent].min(axis=1, keepdims=True) - 1
        return f

    def predict(self, X):
        """Labels.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (m,)
            The class of the largest decision, of equal ones the first.
        """
        self._require_fit("classes_")
        f = self._decisions(X)
        return self.classes_[(f > 0).astype(np.intp) if f.ndim == 1 else np.argmax(f, axis=1)]


def _column(options, k):
    start = options["start"]
    return None if start is None else (start[0][:, k], start[1][k])


def _side_by_side(results):
    """Problems solved one after the other as one result."""
    first, columns = results[0], {}
    for name in ("a", "b", "objective", "gap", "gradient"):
        columns[name] = np.stack([np.asarray(getattr(each, name)) for each in results], axis=-1)
    return replace(
        first,
        **columns,
        n_iter=max(each.n_iter for each in results),
        converged=all(each.converged for each in results),
        indefinite=any(each.indefinite for each in results),
        history=None if first.history is None else [each.history for each in results],
    )

"""A grid of hyperparameters over folds, exact and fast.

Place on the way: ``estimators`` → ``_machine_path``, ``_scores``, ``_results`` → **path**.

    SVC (pairs)   one kernel matrix for all folds and C, warm starts along C, folds in parallel
    _machine_path all others    clone and fit, cell by cell
      _scores
"""

import time
import warnings
from numbers import Integral

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.model_selection import GridSearchCV, check_cv
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import indexable

from .._progress import progress
from .._threads import n_threads, one_blas_thread
from ..kernels.prepared import n_rows
from ._machine_path import MachinePath
from ._results import Outcome, cells_of, results_of
from ._scores import Scores, decided, known_from_decisions
from ._work import run_tasks

__all__ = ["PathCV"]


class PathCV(GridSearchCV):
    """Cross-validated search over a grid, for the price of a few fits where the estimator allows.

    It finds what scikit-learn's ``GridSearchCV`` finds, under the same names, and stands where that stands.
    For `SVC` with one-against-one machines a kernel matrix is computed once for all folds and all C, rows
    that are held out are variables whose box is zero, and each C begins at the solution of the one before;
    every machine is solved to the estimator's `tol`, as it would be by itself. Whatever else is searched
    goes through ``clone`` and ``fit``, one after another.

    Parameters
    ----------
    estimator : estimator
        Its parameters hold for whatever is not searched.
    Cs : sequence of float or None, default=None
        Values of ``C``, in any order.
    gammas : sequence of float, "scale" or "auto", or None, default=None
        Values of ``gamma``, or of ``kernel__gamma`` if the kernel is an expression that has one. "scale" is
        that of each fold's training rows.
    param_grid : dict, list of dict or None, default=None
        Other parameters, as in ``GridSearchCV``; the grid is the product with `Cs` and `gammas`.
    cv : int, splitter, iterable or None, default=None
        As scikit-learn's ``check_cv`` reads it: five folds by default, stratified for a classifier.
    scoring : str, callable, list, dict or None, default=None
        As in ``GridSearchCV``; None is the estimator's own score.
    refit : bool, str or callable, default=True
        Whether to fit to all rows at the best cell; for several scorers the name of the one that chooses; or
        a function of `cv_results_` that returns an index.
    n_jobs : int or None, default=None
        Threads: None is OpenMP's setting or the cores available, −1 all cores. It changes nothing in the
        results.
    verbose : bool or int, default=False
        Show a progress bar with the lowest error so far.
    error_score : "raise" or float, default=nan
        The score where a fit raises an error.
    return_train_score : bool, default=False
        Whether to score the training rows, too.

    Attributes
    ----------
    cv_results_ : dict
        As in ``GridSearchCV``.
    best_index_, best_score_, best_params_, best_estimator_
        The best cell; the first of equal ones.
    test_error_ : ndarray of shape (n_cells, n_splits)
        MLR7's error of the held-out rows: the share of labels that are wrong, of a regression the mean
        squared difference.
    train_error_ : ndarray of shape (n_cells, n_splits)
        That of the training rows; only with `return_train_score`.
    n_splits_ : int
    refit_time_ : float
        Seconds.
    scorer_ : scorer, or dict of them
    multimetric_ : bool

    References
    ----------
    MLR7 section 7.3, (7.34), (7.39).
    """

    def __init__(
        self,
        estimator,
        *,
        Cs=None,
        gammas=None,
        param_grid=None,
        cv=None,
        scoring=None,
        refit=True,
        n_jobs=None,
        verbose=False,
        error_score=np.nan,
        return_train_score=False,
    ):
        self.estimator = estimator
        self.Cs = Cs
        self.gammas = gammas
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.error_score = error_score
        self.return_train_score = return_train_score

    def fit(self, X, y=None, sample_weight=None, groups=None):
        """Search, and fit to all rows at the best cell.

        Parameters
        ----------
        X : array_like, sparse matrix or sequence of n samples
            A precomputed kernel's matrix is split by rows and columns.
        y : array_like of shape (n,) or (n, t), or None
            Targets.
        sample_weight : array_like of shape (n,) or None
            For the fits, not for the scores.
        groups : array_like of shape (n,) or None
            For the splitter.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For a grid that cannot be, and where every fit fails. After an error or an interrupt the
            attributes are as they were.
        """
        threads = n_threads(self.n_jobs)
        cells = cells_of(self.estimator, self.Cs, self.gammas, self.param_grid)
        scores = Scores(self.estimator, self.scoring, self.error_score)
        self._check_refit_by(scores)
        X, y, groups, sample_weight = indexable(X, y, groups, sample_weight)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(cv.split(X, y, groups))
        if not splits:
            raise ValueError(f"cv={self.cv!r} makes no folds")
        outcomes = [[None] * len(splits) for _ in cells]
        with progress(self.verbose, "PathCV", total=len(cells) * len(splits)) as on_step:
            self._go_fast(X, y, weights, cells, splits, scores, threads, outcomes, on_step)
            self._go_plainly(X, y, weights, cells, splits, scores, outcomes, on_step)
        _judge_fits(outcomes, self.error_score)
        found = self._found(cells, outcomes, scores, len(splits))
        if self.refit:
            found.update(self._refitted(X, y, weights, found["best_params_"]))
        for name in ("best_estimator_", "refit_time_", "best_score_", "feature_names_in_", "train_error_"):
            self.__dict__.pop(name, None)
        self.__dict__.update(found)
        return self

    # ---------------------------------------------------------------- what was found

    def _check_refit_by(self, scores):
        if scores.several and self.refit is not False and not callable(self.refit):
            if not isinstance(self.refit, str) or self.refit not in scores.scorers:
                raise ValueError(
                    f"refit={self.refit!r} with several scorers: it must be the name of the one that chooses "
                    f"({', '.join(map(repr, scores.scorers))}), a callable, or False"
                )

    def _found(self, cells, outcomes, scores, n_splits):
        results = results_of(cells, outcomes, n_splits, self.return_train_score)
        several = "score" not in outcomes[0][0].test
        found = {
            "cv_results_": results,
            "n_splits_": n_splits,
            "multimetric_": several,
            "scorer_": scores.scorers if scores.several else scores.scorers["score"],
            "test_error_": np.array([[one.test_error for one in row] for row in outcomes]),
        }
        if self.return_train_score:
            found["train_error_"] = np.array([[one.train_error for one in row] for row in outcomes])
        if self.refit or not several:
            by = self.refit if several else "score"
            found.update(self._best(results, by))
        return found

    def _best(self, results, by):
        if callable(self.refit):
            index = self.refit(results)
            if not isinstance(index, Integral):
                raise TypeError(f"refit returned {index!r}, which is no index of a cell")
            if not 0 <= index < len(results["params"]):
                raise IndexError(f"refit returned {index}, and there are {len(results['params'])} cells")
            return {"best_index_": index, "best_params_": results["params"][index]}
        index = results[f"rank_test_{by}"].argmin()
        score = results[f"mean_test_{by}"][index]
        return {"best_index_": index, "best_params_": results["params"][index], "best_score_": score}

    def _refitted(self, X, y, weights, params):
        best = clone(self.estimator).set_params(**clone(params, safe=False))
        begin = time.perf_counter()
        more = {} if weights is None else {"sample_weight": weights}
        best.fit(X, **more) if y is None else best.fit(X, y, **more)
        found = {"best_estimator_": best, "refit_time_": time.perf_counter() - begin}
        if hasattr(best, "feature_names_in_"):
            found["feature_names_in_"] = best.feature_names_in_
        return found

    # ---------------------------------------------------------------- ways

    def _go_plainly(self, X, y, weights, cells, splits, scores, outcomes, on_step):
        """Clone and fit for what is not there yet; a signal ends the fit that is under way."""
        for row, cell in zip(outcomes, cells, strict=True):
            for fold, (train, test) in enumerate(splits):
                if row[fold] is None:
                    estimator = clone(self.estimator).set_params(**clone(cell, safe=False))
                    row[fold] = scores.fitted(estimator, X, y, weights, train, test, self.return_train_score)
                    _show(on_step, outcomes)

    def _go_fast(self, X, y, weights, cells, splits, scores, threads, outcomes, on_step):
        """Fill in what chains of machines along C can tell."""
        machines = self._machines(cells)
        if not machines or not known_from_decisions(self.scoring, scores.scorers):
            return
        first = machines[0][0]
        samples, _ = first._training_samples(X)
        y = np.asarray(y)
        if y.ndim != 1 or len(y) != n_rows(samples) or y.dtype.kind not in "iubUSO":
            return
        path = MachinePath(
            samples, y, weights, splits, with_train=self.return_train_score,
            labels_only=scores.are_of_labels(first), n_threads=threads,
        )  # fmt: skip
        if not path.fits_memory():
            return
        tasks = _tasks(path, machines, len(splits))

        def work(task, check):
            return self._outcomes_of(task, path.run(task, check), path, X, y, scores)

        def on_done(results):
            _enter(outcomes, tasks, results)
            _show(on_step, outcomes)

        with one_blas_thread():
            results = run_tasks(tasks, work, threads, on_done)
        _enter(outcomes, tasks, results)
        short = sum(result[1] for result in results if result is not None)
        if short:
            warnings.warn(
                f"{short} of the machines stopped short of tol: rounding leaves no step that helps; "
                "raise tol, or scale the samples",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _machines(self, cells):
        """(machine without its C, cells by C) for each set of the other parameters that chains are for."""
        if not MachinePath.takes(self.estimator) and not self.param_grid:
            return []
        found = []
        for index, cell in enumerate(cells):
            machine = clone(self.estimator).set_params(**clone(cell, safe=False))
            if not MachinePath.takes(machine):
                continue
            machine._check_parameters()
            if not np.isfinite(machine.C):
                continue
            others = {name: value for name, value in cell.items() if name != "C"}
            for known, _, by_C in found:
                if _same(known, others):
                    by_C.setdefault(float(machine.C), []).append(index)
                    break
            else:
                found.append((others, machine, {float(machine.C): [index]}))
        return [(machine, by_C) for _, machine, by_C in found]

    def _outcomes_of(self, task, steps, path, X, y, scores):
        """Outcome by cell, and how many machines stopped short; None where a fit by itself must tell."""
        if steps is None:
            return None
        train, test = path.splits[task.fold]
        machine, give = decided(task.machine, path.classes)
        dtype = np.float32 if getattr(path.X, "dtype", None) == np.float32 else np.float64
        wanted = [test, train][: 1 + self.return_train_score]
        direct = scores.is_accuracy(machine)
        parts = [(rows if direct else _safe_split(machine, X, y, rows, train)[0], y[rows]) for rows in wanted]
        found, short = {}, 0
        for C, spent, *values, converged in steps:
            begin, told = time.perf_counter(), []
            for (samples, targets), decisions in zip(parts, values, strict=False):
                give(decisions.astype(dtype, copy=False))
                told.append(scores.decided(machine, samples, targets))
            outcome = Outcome(*told[0][:1], test_error=told[0][1], fit_time=spent)
            outcome.score_time = time.perf_counter() - begin
            if self.return_train_score:
                outcome.train, outcome.train_error = told[1]
            short += not converged
            found.update(dict.fromkeys(task.cells[C], outcome))
        return found, short


def _same(a, b):
    try:
        return a.keys() == b.keys() and all(a[name] is b[name] or bool(a[name] == b[name]) for name in a)
    except ValueError:  # arrays
        return False


def _tasks(path, machines, n_splits):
    tasks = []
    for machine, by_C in machines:
        for fold in range(n_splits):
            task = path.task(machine, fold)
            if task is not None:
                task.cells = by_C
                tasks.append(task)
    return tasks


def _enter(outcomes, tasks, results):
    for task, result in zip(tasks, results, strict=True):
        if result is not None:
            for index, outcome in result[0].items():
                outcomes[index][task.fold] = outcome


def _show(on_step, outcomes):
    if on_step is None:
        return
    known = [one.test_error for row in outcomes for one in row if one is not None]
    if known:
        on_step(len(known), float(np.min(known)))


def _judge_fits(outcomes, error_score):
    """Warn of fits that failed; raise where all did."""
    troubles = [one.trouble for row in outcomes for one in row if one.trouble]
    total = sum(map(len, outcomes))
    if not troubles:
        return
    if len(troubles) == total:
        raise ValueError(f"All the {total} fits failed; the first one with:\n{troubles[0]}")
    warnings.warn(
        f"{len(troubles)} fits failed out of a total of {total}. The score on these train-test partitions "
        f"for these parameters is set to {error_score}; set error_score='raise' to stop there. The first one "
        "failed with:\n"
        f"{troubles[0]}",
        FitFailedWarning,
        stacklevel=3,
    )

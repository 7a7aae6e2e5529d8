"""A grid of hyperparameters over folds, exact and fast.

Place on the way: ``estimators`` → ``_machine_path``, ``_alpha_path``, ``_search`` → **path**.

    SVC (pairs)                one kernel matrix for all folds and C, warm starts along C, folds in parallel
    _machine_path
    ridge, Newton costs        one kernel matrix for all folds and α, which are solved together; a pipeline's
    _alpha_path, _families     transformers are fitted fold by fold
    all others                 clone and fit, cell by cell
    _search
"""

import time
import warnings
from numbers import Integral

import numpy as np
from sklearn import get_config
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import indexable

from .._arrays import check_weights
from .._progress import progress
from .._threads import n_threads
from ..kernels.prepared import n_rows
from ._alpha_path import go_by_alphas
from ._alphas import alphas_from_spectrum, of_alphas, searches_alpha
from ._machine_path import go_by_machines
from ._results import cells_of, last_step, results_of
from ._scores import Scores, weights_of
from ._search import Search, check_weights_of, splits_of

__all__ = ["PathCV"]

# What an earlier fit may have left that this one does not find.
_MAY_BE_ABSENT = (
    "best_estimator_", "best_index_", "best_params_", "refit_time_", "best_score_", "feature_names_in_",
    "train_error_", "best_alpha_", "alpha_1se_",
)  # fmt: skip


class PathCV(GridSearchCV):
    """Cross-validated search over a grid, for the price of a few fits where the estimator allows.

    It finds what scikit-learn's ``GridSearchCV`` finds, under the same names, and stands where that stands.
    For `SVC` with one-against-one machines a kernel matrix is computed once for all folds and all C, rows
    that are held out are variables whose box is zero, and each C begins at the solution of the one before;
    every machine is solved to the estimator's `tol`, as it would be by itself. For the estimators with a
    penalty α one kernel matrix serves all folds and all α: `KernelRidge` by spaces in which all α of a fold
    are solved (each to a residual that is checked) or by one decomposition, the others by Newton steps for
    some folds together, each α from the ones before; where scores are of labels alone, logistic regression
    ends once a bound proves that no label can change. Whatever else is searched goes through ``clone`` and
    ``fit``, one after another.

    The last step of a ``Pipeline`` counts as the estimator: its transformers are fitted to each fold's
    training rows, so that nothing of the held-out ones leaks.

    Parameters
    ----------
    estimator : estimator
        Its parameters hold for whatever is not searched.
    alphas : sequence of float or None, default=None
        Values of ``alpha``, in any order, each once. None makes a grid for an estimator that has one, unless
        `param_grid` does: 22 values, three a decade, down from the power of ten above the largest eigenvalue
        of the centred kernel matrix.
    Cs : sequence of float or None, default=None
        Values of ``C``, in any order.
    gammas : sequence of float, "scale" or "auto", or None, default=None
        Values of ``gamma``, or of ``kernel__gamma`` if the kernel is an expression that has one. "scale" is
        that of each fold's training rows.
    param_grid : dict, list of dict or None, default=None
        Other parameters, as in ``GridSearchCV``; the grid is the product with `alphas`, `Cs`
        and `gammas`.
    cv : int, splitter, iterable, "loo" or None, default=None
        As scikit-learn's ``check_cv`` reads it: five folds by default, stratified for a classifier. "loo",
        for `KernelRidge` without transformers before it, leaves each row out in closed form, and scores the
        held-out predictions of all rows together; ``LeaveOneOut()`` takes the same predictions, each as a
        fold, but for gamma="scale", which "loo" takes of all rows.
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
    best_alpha_ : float
        The α of the best cell; only where α was searched.
    alpha_1se_ : float
        The largest α whose mean score is within one standard error of the best one's, other parameters being
        those of the best cell. With cv="loo" it goes by the rows' squared errors, whatever `scoring` is.
    test_error_ : ndarray of shape (n_cells, n_splits)
        MLR7's error of the held-out rows: the share of labels that are wrong, of a regression the mean
        squared difference. With cv="loo" a column for each row.
    train_error_ : ndarray of shape (n_cells, n_splits)
        That of the training rows; with `return_train_score`, and where all of the search went by α.
    n_splits_ : int
    refit_time_ : float
        Seconds.
    scorer_ : scorer, or dict of them
    multimetric_ : bool

    References
    ----------
    MLR7 section 7.3, (7.34), (7.39).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mercer import SVC, PathCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = PathCV(SVC(), Cs=[0.1, 1.0, 10.0], gammas=["scale", 0.1]).fit(X, y)
    >>> sorted(search.best_params_), bool(search.best_score_ > 0.95)
    (['C', 'gamma'], True)
    >>> search.test_error_.shape
    (6, 5)
    """

    def __init__(
        self,
        estimator,
        *,
        alphas=None,
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
        self.alphas = alphas
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
        y : array_like of shape (n,) or (n, t), or None, default=None
            Targets.
        sample_weight : array_like of shape (n,), float or None, default=None
            For the fits, and for the scores and errors of rows, as in scikit-learn 1.9: a scorer that takes
            no weights is warned of; with metadata routing they go to the steps and scorers that ask for them.
        groups : array_like of shape (n,) or None, default=None
            For the splitter.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For a grid that cannot be, for held-out rows whose weights leave nothing to score, and where every
            fit fails. After an error or an interrupt the attributes are as they were.
        """
        threads = n_threads(self.n_jobs)
        if y is None and get_tags(self.estimator).target_tags.required:
            name = type(self.estimator).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        X, y, groups = indexable(X, y, groups)
        weights = check_weights(sample_weight, n_rows(X))
        if isinstance(self.cv, str):
            self._check_pooled(n_rows(X) if weights is None else np.count_nonzero(weights > 0))
        scores = Scores(self.estimator, self.scoring, self.error_score, weights is not None)
        if scores.several:
            self._check_refit_by(scores.scorers)
        fit_params = self._fit_params(weights, groups)
        alphas = self._alphas(X, y, weights)
        cells = cells_of(self.estimator, alphas, self.Cs, self.gammas, self.param_grid)
        splits = splits_of(self.estimator, self.cv, X, y, groups)
        if scores.take_weights:
            check_weights_of(splits, weights)
        search = Search(
            self.estimator, cells, splits, X, y, weights, fit_params, scores, bool(self.return_train_score),
            threads, refits=bool(self.refit), pooled=isinstance(self.cv, str),
        )  # fmt: skip
        n_fits = len(cells) * len(splits)
        with progress(self.verbose, type(self).__name__, n_fits, label="lowest error") as on_step:
            search.on_step = on_step
            go_by_machines(search)
            go_by_alphas(search)
            search.go_plainly()
        _judge_fits(search.outcomes, self.error_score)
        _name_scores(search.outcomes, self.error_score)
        found = self._found(search)
        if self.refit:
            found.update(self._refitted(search, found["best_params_"]))
        for name in _MAY_BE_ABSENT:
            self.__dict__.pop(name, None)
        self.__dict__.update(found)
        return self

    def _fit_params(self, weights, groups):
        """What fits are given by row: weights for the last step; where metadata are routed, if they ask."""
        if get_config()["enable_metadata_routing"]:
            given = {"sample_weight": weights, "groups": groups}
            given = {name: values for name, values in given.items() if values is not None}
            return process_routing(self, "fit", **given)["estimator"]["fit"]
        return {} if weights is None else {f"{last_step(self.estimator)[1]}sample_weight": weights}

    def _alphas(self, X, y, weights):
        """The values of α: given, from the spectrum, or None for an estimator that has none to search."""
        if self.alphas is not None or not searches_alpha(self.estimator, self.param_grid):
            return self.alphas
        return alphas_from_spectrum(self.estimator, X, y, weights)

    def _check_pooled(self, n):
        """Raise for what no prediction of each of n rows by all others in closed form can tell."""
        if isinstance(self.estimator, Pipeline) and len(self.estimator) > 1:
            raise ValueError(
                "cv='loo' is for KernelRidge by itself: transformers before it are to be fitted without each "
                "row; pass cv=LeaveOneOut()"
            )
        if self.return_train_score:
            raise ValueError(
                "cv='loo' makes no fits whose training rows could be scored; leave return_train_score out, "
                "or pass cv=LeaveOneOut()"
            )
        if n < 2:
            raise ValueError(f"cv='loo' predicts each row by all others, got {n} row of positive weight")

    # ---------------------------------------------------------------- what was found

    def _check_refit_by(self, names):
        if self.refit is not False and not callable(self.refit):
            if not isinstance(self.refit, str) or self.refit not in names:
                raise ValueError(
                    f"refit={self.refit!r} with several scorers: it must be the name of the one that chooses "
                    f"({', '.join(map(repr, names))}), a callable, or False"
                )

    def _found(self, search):
        outcomes = search.outcomes
        results = results_of(search.cells, outcomes, len(search.splits), self.return_train_score)
        several = search.scores.several or outcomes[0][0].test.keys() != {"score"}
        if several:
            self._check_refit_by(outcomes[0][0].test)  # a callable's names are not known before
        n_cells, scorers = len(search.cells), search.scores.scorers
        errors = np.array([[one.test_error for one in row] for row in outcomes])
        found = {
            "cv_results_": results,
            "n_splits_": len(search.splits),
            "multimetric_": several,
            "scorer_": scorers if search.scores.several else scorers["score"],
            "test_error_": errors.reshape(n_cells, -1),
            # by which errors of pooled rows count
            "_error_weights": weights_of(search.weights, slice(None)) if search.pooled else None,
        }
        if all(one.train_error is not None for row in outcomes for one in row):
            found["train_error_"] = np.array([[one.train_error for one in row] for row in outcomes])
        if self.refit or not several:
            by = self.refit if several else "score"
            found.update(self._best(results, by))
            found.update(of_alphas(self.estimator, found, None if callable(by) else by))
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

    def _refitted(self, search, params):
        best = search.posed(params)
        begin = time.perf_counter()
        more = search.fit_params
        best.fit(search.X, **more) if search.y is None else best.fit(search.X, search.y, **more)
        found = {"best_estimator_": best, "refit_time_": time.perf_counter() - begin}
        if hasattr(best, "feature_names_in_"):
            found["feature_names_in_"] = best.feature_names_in_
        return found


def _name_scores(outcomes, error_score):
    """Where a callable returns a dict: name the scores of fits and scorings that failed as the others are."""
    every = [one for row in outcomes for one in row]
    names = next((one.test for one in every if one.test.keys() != {"score"}), None)
    if names is None:
        return
    for one in every:
        if one.test.keys() == {"score"}:
            one.test = dict.fromkeys(names, error_score)
        if one.train is not None and one.train.keys() == {"score"}:
            one.train = dict.fromkeys(names, error_score)


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

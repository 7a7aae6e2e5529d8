"""Estimators with an α whose fits over folds are found together: how each is posed, and what it answers.

Place on the way: ``solvers``, ``estimators`` → **families** → ``_alpha_path``.
"""

import warnings
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import column_or_1d

from .._arrays import check_targets, check_weights, square_part
from .._threads import n_threads as count_threads
from ..estimators._base import check_rng
from ..estimators._cost_problem import constant_of
from ..estimators._costs import _TOL
from ..estimators.classification import KernelLogisticRegression, SquaredMarginClassifier
from ..estimators.regression import KernelRegressor, check_cost_targets, predicted_mean
from ..estimators.ridge import KernelRidge
from ..kernels.prepared import n_rows
from ..solvers.held_matrix import HeldMatrix, low_rank_of
from ..solvers.newton import MAX_ITER, newton
from ..solvers.newton_labels import Labels
from ..solvers.ridge_folds import ridge_folds
from ..solvers.spectral import ridge_loo_path
from ._work import in_turns

__all__ = ["ClassifierFamily", "RegressorFamily", "RidgeFamily", "family_of"]

# Solutions of the last α in whose span the next one begins.
_STARTS = 5
# Folds in lockstep, at most, and columns of their products: folds share the reading of the matrix, but wait
# for each other, and their arrays leave the caches (two cores, five folds one by one, by two, by three and
# together: satimage with six columns a fold 23, 20, 26 and 28 s, spam with one 8.4, 8.0, 6.5 and 7.5 s). Of
# few rows all are, since Python's own work is then most of it.
_TOGETHER, _COLUMNS, _FEW_ROWS = 3, 12, 1000


class _Family:
    """What all have: an `estimator`, and the `weights` (n,) or None of all rows."""

    def kernel(self, X, train):
        """The kernel expression for training rows X, the rows `train` if it depends on them."""
        depends = self.weights is not None and len(train) == n_rows(X)
        return self.estimator._kernel_for(X, self.weights[train] if depends else None)


class RidgeFamily(_Family):
    """Kernel ridge for all α and folds at once.

    Parameters
    ----------
    estimator : KernelRidge
        Of the parameters, but for α.
    X, y : samples and targets of all rows
    weights : ndarray of shape (n,) or None
    folds : list of (fold, train, test)

    Attributes
    ----------
    folds : list of (fold, train, test)
        Those that are solved here; the others are for fits by themselves.
    """

    # What predictions tell beside labels and decisions.
    answers = ()

    def __init__(self, estimator, X, y, weights, folds):
        n = n_rows(X)
        self.estimator, self.shape = estimator, np.shape(y)[1:]
        y = check_targets(y, n, owner=type(estimator).__name__)
        self.Y = np.array(y.reshape(n, -1), dtype=np.float64)
        self.weights = check_weights(weights, n)
        counted = np.ones(n, bool) if self.weights is None else self.weights > 0
        self.folds = [fold for fold in folds if counted[fold[1]].any()]

    @staticmethod
    def takes(estimator):
        """Whether an estimator's parameters are of the kind that this way is for."""
        return (
            type(estimator) is KernelRidge
            and np.ndim(estimator.alpha) == 0
            and estimator.solver in ("auto", "cholesky")
            and estimator.approximation is None
        )

    def machine(self):
        """An estimator that predicts what is given to it, and the function that gives."""
        return _answering(self.estimator, "predict")

    def values(self, K, alphas, n_threads):
        """Yield (α, fold, predictions of all rows)."""
        found = ridge_folds(
            K, self.Y, alphas, [train for _, train, _ in self.folds],
            weights=self.weights, fit_intercept=bool(self.estimator.fit_intercept), n_threads=n_threads,
        )  # fmt: skip
        for (fold, _, _), by_alpha in zip(self.folds, found.values, strict=True):
            for alpha, values in zip(alphas, by_alpha, strict=True):
                yield float(alpha), fold, values.reshape(-1, *self.shape)

    def held_out(self, K, alphas, n_threads):
        """Predictions of each row by the fit without it, of shape (m, n, ...); of all rows by the others.

        A row of weight ≤ 0 is in no fit.
        """
        common = {"fit_intercept": bool(self.estimator.fit_intercept), "n_threads": n_threads}
        kept = slice(None) if self.weights is None else np.flatnonzero(self.weights > 0)
        weights = None if self.weights is None else self.weights[kept]
        part = K if self.weights is None else square_part(K, kept)
        out = np.empty((len(alphas), *self.Y.shape))
        out[:, kept] = self.Y[kept] - ridge_loo_path(part, self.Y[kept], alphas, weights=weights, **common)
        if weights is not None and len(weights) < len(self.Y):
            others = np.flatnonzero(self.weights <= 0)
            found = ridge_folds(K, self.Y, alphas, [kept], weights=self.weights, **common)
            out[:, others] = found.values[0][:, others]
        return out.reshape(len(alphas), len(self.Y), *self.shape)


@dataclass
class _Fold:
    """A fold's own problem.

    Attributes
    ----------
    weights : ndarray of shape (n,)
        0 for rows that are held out.
    """

    fold: int
    train: np.ndarray
    test: np.ndarray
    weights: np.ndarray


class _NewtonFamily(_Family):
    """Costs by Newton's method: some folds in lockstep, each α from the ones before.

    Subclasses set `loss`, the targets `y` (n,) or (n, r), r problems side by side, and `_folds`.

    Parameters
    ----------
    estimator : estimator
        Of the parameters, but for α.
    X, y : samples and targets of all rows
    weights : ndarray of shape (n,) or None
    folds : list of (fold, train, test)
        Those to be solved, if they can be here.

    Attributes
    ----------
    labels_only : bool
        Whether f will be asked for labels alone: these may be known before f has all digits.
    """

    n_classes = None

    def __init__(self, estimator, X, y, weights, folds):
        self.estimator, self.labels_only = estimator, False
        self.weights = check_weights(weights, n_rows(X))
        self._folds = self._posed_folds(y, folds, n_rows(X))

    @property
    def folds(self):
        """(fold, train, test) of those that are solved here; the others are for fits by themselves."""
        return [(one.fold, one.train, one.test) for one in self._folds]

    def values(self, K, alphas, n_threads):
        """Yield (α, fold, f of all rows), from the largest α down."""
        # All α and folds share the price of its principal axes.
        low_rank = low_rank_of(K, check_rng(self.estimator.random_state)).rotated()
        threads = count_threads(n_threads)
        columns = self.n_classes or (1 if self.y.ndim == 1 else self.y.shape[1])
        groups = _in_lockstep(self._folds, len(K), columns)
        held = HeldMatrix(K, low_rank, n_threads)
        alphas = sorted(alphas, reverse=True)
        chains = [partial(self._chain, group, alphas, held, low_rank, len(groups)) for group in groups]
        short = 0
        for index, (alpha, found) in in_turns(chains, threads):
            short += np.count_nonzero(~found.converged)
            f = found.f if self.y.ndim == 1 else found.f.reshape(len(K), len(groups[index]), -1)
            for place, one in enumerate(groups[index]):
                yield alpha, one.fold, f[:, place]
        if short:
            warnings.warn(
                f"{short} of the problems of {type(self.estimator).__name__} stopped short of tol; raise "
                "max_iter, tol or the smallest alpha",
                ConvergenceWarning,
                stacklevel=6,
            )

    def _chain(self, folds, alphas, held, low_rank, share, check):
        """Yield (α, outcome of some folds), each α from the ones before, beside as many chains as `share`."""

        def checked(product):
            def multiply(V):
                check()
                return product(V)

            return multiply

        tol, n_rest = self.estimator.tol, 1 if self.y.ndim == 1 else self.y.shape[1]
        y = self.y if self.y.ndim == 1 else np.tile(self.y, len(folds))
        options = {
            "weights": np.repeat([one.weights for one in folds], n_rest, axis=0).T,
            "fit_intercept": bool(self.estimator.fit_intercept),
            "low_rank": low_rank,
            "matrix": held.K,
            "tol": _TOL["newton"] if tol is None else tol,
            "share": share,
            "check": check,
            "n_classes": self.n_classes,
            "labels": Labels(held.K) if self.labels_only and Labels.takes(self.loss) else None,
        }
        if self.estimator.max_iter is not None:
            options["max_iter"] = self.estimator.max_iter
        starts = []
        for alpha in alphas:
            every, mine = np.full(n_rest * len(folds), alpha), held.on(check())
            found = newton(
                checked(mine.exact), self.loss, y, every, n_threads=mine.threads, start=starts or None,
                single=None if mine.single is None else checked(mine.single), **options,
            )  # fmt: skip
            starts = [found, *starts][:_STARTS]
            yield float(alpha), found


def _ends_by_tol(estimator):
    """Whether no fewer steps are allowed than by default: a fit that is cut short depends on its start."""
    return estimator.max_iter is None or estimator.max_iter >= MAX_ITER


def _in_lockstep(folds, n, columns):
    """Folds in groups, whatever the number of threads."""
    together = len(folds) if n < _FEW_ROWS else min(max(_COLUMNS // columns, 1), _TOGETHER)
    count = -(-len(folds) // together)
    bounds = np.linspace(0, len(folds), count + 1).round().astype(int)
    return [folds[start:stop] for start, stop in pairwise(bounds)]


class ClassifierFamily(_NewtonFamily):
    """Classifiers that minimise a cost; the folds whose training rows have all classes are solved here."""

    answers = ("predict_proba", "predict_log_proba")

    @staticmethod
    def takes(estimator):
        """Whether an estimator's parameters are of the kind that this way is for."""
        own = type(estimator) in (KernelLogisticRegression, SquaredMarginClassifier)
        exact = own and estimator.approximation is None and _ends_by_tol(estimator)
        return exact and estimator.solver in ("auto", "newton")

    def _posed_folds(self, y, folds, n):
        posed = self.estimator._posed(y, None, n)
        self.loss, self.y, self.classes = posed.loss, posed.y, posed.classes
        self.n_classes = len(posed.classes) if posed.loss.vector else None
        found = []
        for fold, train, test in folds:
            one = self._posed(y, train)
            if one is not None:
                weights = np.zeros(n)
                weights[train] = 1.0 if one.weights is None else one.weights
                found.append(_Fold(fold, train, test, weights))
        return found

    def _posed(self, y, train):
        """What a fold's training rows pose; None if that is not all classes against each other."""
        given = None if self.weights is None else self.weights[train]
        try:
            posed = self.estimator._posed(np.asarray(y)[train], given, len(train))
        except ValueError:
            return None  # the fit by itself says why
        same = np.array_equal(posed.classes, self.classes)
        return posed if same and len(posed.present) == len(posed.classes) else None

    def machine(self):
        """An estimator that answers by the decisions that are given to it, and the function that gives."""
        return _answering(self.estimator, "_decisions", classes_=self.classes, _absent=np.empty(0, int))


class RegressorFamily(_NewtonFamily):
    """`KernelRegressor` with a smooth cost."""

    answers = ()
    constant = 0.0

    @staticmethod
    def takes(estimator):
        """Whether an estimator's parameters are of the kind that this way is for."""
        if type(estimator) is not KernelRegressor or estimator.approximation is not None:
            return False
        return _ends_by_tol(estimator) and estimator._check_parameters()[1] == "newton"

    def _posed_folds(self, y, folds, n):
        self.loss, _ = self.estimator._check_parameters()
        self.y = column_or_1d(check_targets(y, n, owner=type(self.estimator).__name__)).astype(np.float64)
        found = []
        for fold, train, test in folds:
            weights = np.zeros(n)
            weights[train] = 1.0 if self.weights is None else np.maximum(self.weights[train], 0.0)
            try:
                check_cost_targets(self.loss, self.y, weights, self.estimator.fit_intercept)
            except ValueError:
                continue  # the fit by itself says why
            if weights.any():
                found.append(_Fold(fold, train, test, weights))
        if self.estimator.fit_intercept and found:
            self.constant = constant_of(self.loss, self.y, sum(one.weights for one in found))
            self.y -= self.constant
        return found

    def machine(self):
        """An estimator that predicts what is given to it, and the function that gives."""
        return _answering(self.estimator, "predict")

    def values(self, K, alphas, n_threads):
        """Yield (α, fold, predictions of all rows), from the largest α down."""
        for alpha, fold, f in super().values(K, alphas, n_threads):
            yield alpha, fold, predicted_mean(self.loss, f + self.constant)


def _answering(estimator, method, **attributes):
    """A copy of an estimator of which one method returns what was given last, and the function that gives."""
    machine, box = clone(estimator), {}

    def answer(X):
        return box["values"]

    answer.__name__ = method  # scorers ask for it
    machine.__dict__.update({method: answer}, **attributes)
    return machine, lambda values: box.update(values=values)


def family_of(estimator):
    """The class that finds an estimator's fits together, or None."""
    for family in (RidgeFamily, ClassifierFamily, RegressorFamily):
        if family.takes(estimator):
            return family
    return None

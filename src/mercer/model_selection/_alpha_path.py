"""The fast way through a grid of α: one kernel matrix for all folds and all α of a kernel.

Place on the way: ``solvers``, ``estimators`` → ``_families`` → **alpha_path** → ``path``.

Held-out rows are rows of weight zero, so that their predictions fall out of what a solver computes anyway.
A pipeline's transformers are fitted to each fold's training rows, and each fold then has a matrix of its own.
"""

import time
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from sklearn.base import TransformerMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import _safe_split

from .. import _native
from .._memory import available_memory
from .._threads import one_blas_thread
from ..estimators._base import same_parameters
from ..kernels.precomputed import Precomputed
from ..kernels.prepared import n_rows, sides, take_rows, width
from ..kernels.shared_leaf import SharedLeaves
from ._families import family_of
from ._results import Outcome, last_step
from ._scores import first_of_equal, known_from_decisions, weights_of
from ._work import left_to_fits

__all__ = ["go_by_alphas", "kernel_matrix"]

# The part of the free memory that matrices may take, and how many: a kernel's, what solvers make of it, and
# that of a leaf.
_SHARE, _MATRICES = 0.5, 5


def go_by_alphas(search):
    """Fill in what solvers for all α and all folds at once can tell.

    Parameters
    ----------
    search : Search
    """
    views = _Views(search)
    for group in _groups(search):
        answers = family_of(group.final).answers
        if not known_from_decisions(search.scores.scoring, search.scores.scorers, answers):
            continue
        for view in views.of(group):
            with _refusals(search.pooled):
                _solve(search, group, view)


def _refusals(pooled):
    """What becomes of errors: the fits by themselves raise them again, of which pooled rows have none."""
    return nullcontext() if pooled else left_to_fits()


@dataclass
class _Group:
    """Cells that differ in α alone.

    Attributes
    ----------
    others : dict
        Their other parameters.
    estimator : estimator
        Of these, as a whole.
    cells : dict
        α to the indices of the cells that have it.
    """

    others: dict
    estimator: object
    cells: dict

    @property
    def final(self):
        """The estimator that has the α."""
        return last_step(self.estimator)[0]


def _groups(search):
    found = []
    for index, cell in enumerate(search.cells):
        if all(search.outcomes[index]):
            continue  # machines told
        estimator = search.posed(cell)
        final, prefix = last_step(estimator)
        if not _is_taken(search, estimator):
            continue
        others = {name: value for name, value in cell.items() if name != f"{prefix}alpha"}
        alpha = float(final.alpha)
        for group in found:
            if same_parameters(group.others, others):
                group.cells.setdefault(alpha, []).append(index)
                break
        else:
            found.append(_Group(others, estimator, {alpha: [index]}))
    return found


def _is_taken(search, estimator):
    """Whether there is a family for an estimator, its parameters are in range, and it alone has weights."""
    final, _ = last_step(estimator)
    with _refusals(search.pooled):
        if family_of(final) is not None:
            final._check_parameters()
            return search.weighs_last_step(estimator)
    return False


# ---------------------------------------------------------------- rows of folds


@dataclass
class _View:
    """Rows as the last step sees them, and the folds for which it sees them so.

    Attributes
    ----------
    X : samples
    y : ndarray
    weights : ndarray or None
    folds : list of (fold, train, test)
        The places of rows in `X`.
    leaves : SharedLeaves
        Of X.
    scored : ndarray or None
        The places of the training rows of the only fold as predictions see them, if the fit sees others.
    """

    X: object
    y: np.ndarray
    weights: np.ndarray | None
    folds: list
    leaves: SharedLeaves
    scored: np.ndarray | None = None


class _Views:
    """Views of a search's rows; those behind transformers are kept for the groups that share these."""

    def __init__(self, search):
        self.search, self._before, self._held, self._leaves = search, None, None, SharedLeaves()
        self.y = None if search.y is None else np.asarray(search.y)

    def of(self, group):
        """The views of a group of cells."""
        search = self.search
        if self.y is None or len(self.y) != n_rows(search.X):
            return []
        unique = [len(np.unique(train)) == len(train) for train, _ in search.splits]
        if not isinstance(group.estimator, Pipeline) or len(group.estimator) == 1:
            folds = [(k, *split) for k, split in enumerate(search.splits) if unique[k]]
            return self._by_kernel(group.final, folds)
        if group.final._is_precomputed(group.final.kernel):
            return []  # transformers make a square matrix of training rows, and another one of held-out rows
        before = group.estimator[:-1]
        known = {
            name: _plain(value) for name, value in before.get_params(deep=True).items() if name != "steps"
        }
        if self._held is None or not same_parameters(self._before, known):
            self._before = known
            self._held = [self._behind(before, k) for k in range(len(search.splits)) if unique[k]]
        return [view for view in self._held if view is not None]

    def _by_kernel(self, final, folds):
        """One view for all folds, unless the kernel depends on the training rows."""
        depends = isinstance(final.kernel, str) and final.kernel != "precomputed" and final._gamma_is_scale()
        parts = [[fold] for fold in folds] if depends else [folds]
        search = self.search
        return [_View(search.X, self.y, search.weights, part, self._leaves) for part in parts if part]

    def _behind(self, before, fold):
        """A fold's rows behind transformers that were fitted to its training rows."""
        search = self.search
        train, test = search.splits[fold]
        before = clone(before)
        X_train, y_train = _safe_split(before, search.X, search.y, train)
        X_test, _ = _safe_split(before, search.X, search.y, test, train)
        try:
            parts = [before.fit_transform(X_train, y_train), before.transform(X_test)]
            if not _only_fits_and_transforms(before):
                again = before.transform(X_train)
                parts += [] if _alike(parts[0], again) else [again]
            if any(sp.issparse(part) for part in parts):
                X = sp.csr_array(sp.vstack(parts))
            elif all(type(part) is np.ndarray for part in parts):
                X = np.concatenate(parts)
            else:
                return None
        except Exception:
            return None  # the pipeline's fit or its predictions fail, too, as `error_score` says
        rows = np.concatenate([train, test, train][: len(parts)])
        weights = None if search.weights is None else search.weights[rows]
        bounds = np.cumsum([n_rows(part) for part in parts])
        fitted, held_out, *scored = np.split(np.arange(bounds[-1]), bounds[:-1])
        folds = [(fold, fitted, held_out)]
        return _View(X, self.y[rows], weights, folds, SharedLeaves(), *scored)


def _only_fits_and_transforms(before):
    """Whether transformers make of training rows what they make of these when asked again."""
    own = (getattr(type(step), "fit_transform", None) for _, step in before.steps)
    return all(one in (None, TransformerMixin.fit_transform) for one in own)


def _alike(rows, others):
    """Whether samples are the same but for rounding."""
    if rows.dtype.kind not in "fiub":
        return np.array_equal(rows, others)
    dtype = np.result_type(rows.dtype, np.float32)
    return abs(rows.astype(dtype) - others).max() <= np.sqrt(np.finfo(dtype).eps) * abs(rows).max()


def _plain(value):
    """A parameter as it can be compared: an estimator, of which each cell has its own, by its class."""
    return type(value) if hasattr(value, "get_params") else value


# ---------------------------------------------------------------- solving


def kernel_matrix(kernel, X, n_threads, leaves=None):
    """The matrix (n, n) of all samples, float64.

    Parameters
    ----------
    kernel : Kernel
    X : samples
        As the estimator's check returns them.
    n_threads : int or None
    leaves : SharedLeaves or None
        Of the same samples.

    Returns
    -------
    ndarray
        Not to be written to.
    """
    if type(kernel) is Precomputed:
        return np.ascontiguousarray(X, dtype=np.float64)
    if isinstance(X, np.ndarray) or sp.issparse(X):
        X = X.astype(np.float64, copy=False)
    leaf = None if leaves is None else leaves.of(kernel, X)
    if leaf is None:
        return kernel(X, n_threads=n_threads)
    program = kernel._compiled(width(X))
    out = _native.empty((n_rows(X),) * 2, np.dtype(np.float64), n_threads)
    leaf.fill(program, sides(program, X)[0], out, None, n_threads=n_threads)
    return out


def _solve(search, group, view):
    """All α of a group on the folds of a view."""
    final, n = group.final, n_rows(view.X)
    if _MATRICES * 8.0 * n * n > _SHARE * available_memory() and n > 2000:
        return
    begin = time.perf_counter()
    X, _ = final._training_samples(view.X)
    alphas = np.array(sorted(group.cells, reverse=True))
    family = family_of(final)(final, X, view.y, view.weights, view.folds)
    if not family.folds:
        return
    family.labels_only = search.scores.are_of_labels(final)
    train = family.folds[0][1]
    kernel = family.kernel(take_rows(X, train) if len(view.folds) == 1 else X, train)
    machine, give = family.machine()
    dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
    with one_blas_thread():
        K = kernel_matrix(kernel, X, search.n_threads, view.leaves)
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(K.sum()):
                return  # the fits by themselves tell which row it is
        for alpha, fold, outcome in _outcomes(search, view, family, K, alphas, machine, give, dtype):
            outcome.fit_time = (time.perf_counter() - begin) / (len(alphas) * len(family.folds))
            for index in group.cells[alpha]:
                search.outcomes[index][fold] = outcome
            if fold == family.folds[-1][0]:
                search.show()


def _outcomes(search, view, family, K, alphas, machine, give, dtype):
    """Yield (α, fold, `Outcome`)."""
    if hasattr(family, "held_out") and _leaves_one_out(search, family.folds, len(K)):
        told = _pooled if search.pooled else _one_by_one
        for alpha, values in zip(alphas, family.held_out(K, alphas, search.n_threads), strict=True):
            give(values.astype(dtype, copy=False))
            for fold, outcome in told(search, family, machine, give, view):
                yield float(alpha), fold, outcome
        return
    if search.pooled:
        return
    first = None if family.labels_only else first_of_equal(view.X)
    parts = {fold: _Parts(search, view, fold, train, test, first) for fold, train, test in family.folds}
    for alpha, fold, values in family.values(K, alphas, search.n_threads):
        yield alpha, fold, parts[fold].outcome(machine, give, values.astype(dtype, copy=False))


# ---------------------------------------------------------------- one row at a time


def _leaves_one_out(search, folds, n):
    """Whether each fold holds out one row, and trains on all others."""
    if search.pooled:
        return True
    # Of n - 1 different rows the sum tells which one is missing.
    total = n * (n - 1) // 2
    alone = all(
        len(test) == 1 and len(train) == n - 1 and int(train.sum() + test[0]) == total
        for _, train, test in folds
    )
    return alone and n > 1 and not search.with_train


def _pooled(search, family, machine, give, view):
    errors, _ = _squared_errors(machine, view.y)
    weights = weights_of(search.weights, slice(None))
    yield 0, Outcome(search.scores.of(machine, None, search.y, weights), test_error=errors)


def _one_by_one(search, family, machine, give, view):
    errors, predicted = _squared_errors(machine, view.y)
    direct = search.scores.of_one_row(machine)
    for fold, _, test in family.folds:
        error = float(errors[test[0]])
        if direct is not None:
            scores = {"score": direct(error)}
        else:
            give(predicted[test])
            scores = search.scores.of(machine, None, *_targets(search, search.splits[fold][1]))
        yield fold, Outcome(scores, test_error=error)


def _targets(search, rows):
    """Targets of some rows of a search, of the user's own kind, and their weights."""
    return _safe_indexing(search.y, rows), weights_of(search.weights, rows)


def _squared_errors(machine, y):
    """Of each row, the mean over its targets; and the predictions."""
    predicted = np.asarray(machine.predict(None))
    errors = np.square(predicted - np.asarray(y).reshape(predicted.shape)).reshape(len(predicted), -1)
    return errors.mean(axis=1), predicted


# ---------------------------------------------------------------- whole folds


class _Parts:
    """Scores of one fold."""

    def __init__(self, search, view, fold, train, test, first):
        self.search, self.places = search, (test, train if view.scored is None else view.scored)
        self.targets = [_targets(search, rows) for rows in reversed(search.splits[fold])]
        if first is not None:
            self.places = tuple(first[rows] for rows in self.places)

    def outcome(self, machine, give, values):
        """The `Outcome` for predictions of all rows."""
        search, begin = self.search, time.perf_counter()
        give(values[self.places[0]])
        scores, error = search.scores.decided(machine, None, *self.targets[0])
        outcome = Outcome(scores, test_error=error, score_time=time.perf_counter() - begin)
        give(values[self.places[1]])
        if search.with_train:
            outcome.train, outcome.train_error = search.scores.decided(machine, None, *self.targets[1])
        else:
            outcome.train_error = search.scores.error(machine, None, *self.targets[1])
        return outcome

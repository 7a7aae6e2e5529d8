"""A search under way: what it goes over, and what is known of it so far.

Place on the way: ``_results``, ``_scores`` → **search** → ``_machine_path``, ``_alpha_path`` → ``path``.
"""

from dataclasses import dataclass, field

import numpy as np
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.metadata_routing import process_routing

from ..estimators._base import KernelEstimator
from ..estimators._labels import check_labels
from ..kernels.prepared import n_rows
from ._results import last_step
from ._scores import Scores

__all__ = ["Search", "check_weights_of", "splits_of"]


@dataclass
class Search:
    """What all ways through a grid share.

    Attributes
    ----------
    estimator : estimator
        Its parameters hold for whatever a cell does not name.
    cells : list of dict
    splits : list of (train, test)
    X : array, sparse matrix or sequence of n samples
    y : array_like or None
    weights : ndarray of shape (n,) or None
    fit_params : dict
        Arguments of fits by name, by row: weights, where these are there and asked for.
    scores : Scores
    with_train : bool
        Whether training rows are to be scored, too.
    n_threads : int
    refits : bool
        Whether all rows are to be fitted at the end.
    pooled : bool
        Whether each row is predicted without it, and all are scored together.
    on_step : callable or None
        ``on_step(n_known, lowest_error)``.
    outcomes : list of list of (Outcome or None)
        By cell and fold.
    """

    estimator: object
    cells: list
    splits: list
    X: object
    y: object
    weights: np.ndarray | None
    fit_params: dict
    scores: Scores
    with_train: bool
    n_threads: int
    refits: bool = False
    pooled: bool = False
    on_step: object = None
    outcomes: list = field(default_factory=list)

    def __post_init__(self):
        self.outcomes = [[None] * len(self.splits) for _ in self.cells]

    def posed(self, cell):
        """The estimator of a cell."""
        return clone(self.estimator).set_params(**clone(cell, safe=False))

    def weighs_last_step(self, estimator):
        """Whether the weights of rows, if there are any, go to an estimator's last step and to no other."""
        if self.weights is None or not get_config()["enable_metadata_routing"]:
            return True
        if not self.fit_params:
            return False  # they are for scores alone
        steps = estimator if isinstance(estimator, Pipeline) else make_pipeline(estimator)
        routed = process_routing(steps, "fit", **self.fit_params)
        return [name for name, asked in routed.items() if any(asked.values())] == [steps.steps[-1][0]]

    def show(self):
        """Tell the progress bar."""
        if self.on_step is None:
            return
        known = [np.mean(one.test_error) for row in self.outcomes for one in row if one is not None]
        if known:
            self.on_step(len(known), float(np.min(known)))

    def go_plainly(self):
        """Clone and fit for what is not there yet; a signal ends the fit that is under way."""
        if self.pooled and any(row[0] is None for row in self.outcomes):
            raise ValueError(
                "cv='loo' is for KernelRidge solved by 'auto' or 'cholesky', scored by its predictions, with "
                "a kernel matrix that fits into memory; pass cv=LeaveOneOut()"
            )
        for row, cell in zip(self.outcomes, self.cells, strict=True):
            for fold, (train, test) in enumerate(self.splits):
                if row[fold] is None:
                    row[fold] = self.scores.fitted(
                        self.posed(cell), self.X, self.y, self.weights, self.fit_params, train, test,
                        self.with_train,
                    )  # fmt: skip
                    self.show()


def splits_of(estimator, cv, X, y, groups):
    """Folds as pairs of index arrays.

    Parameters
    ----------
    estimator : estimator
    cv : object
        As `PathCV` has it; "loo" makes one fold of all rows, whose predictions are each made without it.
    X, y, groups : samples, targets, groups

    Returns
    -------
    list of (train, test)

    Raises
    ------
    ValueError
        Without folds; for a classifier's targets that are no labels; for training rows of one class, where
        an estimator with α is to tell classes apart.
    """
    classifier = is_classifier(estimator)
    if classifier and y is not None:
        check_labels(y, type(estimator).__name__)
    if isinstance(cv, str):
        if cv != "loo":
            raise ValueError(f"cv={cv!r} is unknown; pass a number of folds, a splitter, or 'loo'")
        return [(np.arange(n_rows(X)),) * 2]
    rows = np.arange(n_rows(X))
    splits = [
        (_rows_of(rows, train, cv, fold), _rows_of(rows, test, cv, fold))
        for fold, (train, test) in enumerate(check_cv(cv, y, classifier=classifier).split(X, y, groups))
    ]
    if not splits:
        raise ValueError(f"cv={cv!r} makes no folds")
    final, _ = last_step(estimator)
    if classifier and isinstance(final, KernelEstimator) and hasattr(final, "alpha") and y is not None:
        y = np.asarray(y)
        for fold, (train, _) in enumerate(splits):
            if len(np.unique(y)) > 1 and len(np.unique(y[train])) == 1:
                raise ValueError(
                    f"cv={cv!r}: the training rows of fold {fold} are all of class {y[train].tolist()[0]!r}; "
                    "stratify, for example by cv=StratifiedKFold(5)"
                )
    return splits


def check_weights_of(splits, weights):
    """Raise where no held-out row of a fold has a positive weight.

    Parameters
    ----------
    splits : list of (train, test)
    weights : ndarray of shape (n,)
    """
    for fold, (_, test) in enumerate(splits):
        if not (weights[test] > 0).any():
            raise ValueError(
                f"sample_weight leaves nothing to score in fold {fold}: none of its held-out rows has a "
                "positive weight; drop such rows, or choose other folds"
            )


def _rows_of(rows, index, cv, fold):
    """The rows that a splitter means by places from either end, or by a mask."""
    index = np.asarray(index)
    try:
        return rows[index] if index.size else rows[:0]
    except IndexError as error:
        raise ValueError(
            f"cv={cv!r}: fold {fold} is no selection of the {len(rows)} rows: {error}; pass indices or masks"
        ) from None

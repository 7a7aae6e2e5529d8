"""Scores of machines that were fitted, and of those of which only the decisions are known.

Place on the way: **scores** → ``path``.
"""

import numbers
import time
import warnings
from copy import copy
from inspect import signature
from traceback import format_exc

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier, is_regressor
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import check_scoring
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import _safe_split

from .._native import pair_votes_given
from ..estimators._canonical import canonical_rows
from ..kernels.prepared import n_rows
from ._results import Outcome

__all__ = ["Scores", "decided", "first_of_equal", "known_from_decisions", "weights_of"]

# Responses that a scorer may ask for and decisions give.
_RESPONSES = {"predict", "decision_function"}


def decided(machine, classes):
    """A machine that answers with what it is given, and a function that gives it that.

    These are decisions of all pairs, (m, p), or which class each row is of, (m,). `machine` is not fitted.
    """
    machine = copy(machine)
    box, k = {}, len(classes)
    machine.__dict__.update(
        classes_=classes, support_=np.empty(0, np.int32), _pairwise=True, _absent=np.empty(0, int),
        # rows are asked for some at a time
        _query_samples=lambda X: np.arange(n_rows(X)), _values=lambda rows: box["values"][rows],
        _votes=lambda rows, **options: pair_votes_given(box["values"][rows], k, **options),
    )  # fmt: skip

    def give(values):
        box["values"] = values
        if values.ndim == 1:
            machine._labels = lambda rows: box["values"][rows]

    return machine, give


def known_from_decisions(scoring, scorers, more=()):
    """Whether every scorer asks for labels or decisions only.

    Parameters
    ----------
    scoring : object
        As the user gave it.
    scorers : dict
        Name to scorer.
    more : iterable of str
        Further methods that decisions tell.

    Returns
    -------
    bool
    """
    if scoring is None:
        return True
    for scorer in scorers.values():
        asked = getattr(scorer, "_response_method", None)
        asked = (asked,) if isinstance(asked, str) else asked
        # of several the first that there is is taken
        if not asked or asked[0] not in _RESPONSES.union(more):
            return False
    return True


def weights_of(weights, rows):
    """What some rows count for in a score: their weights, of which one that is not positive counts as 0.

    Parameters
    ----------
    weights : ndarray of shape (n,) or None
        Of all rows.
    rows : ndarray of int or slice

    Returns
    -------
    ndarray or None
    """
    return None if weights is None else np.maximum(weights[rows], 0.0)


def first_of_equal(X):
    """For each row the first one that equals it, or None where there are no two.

    By its decision both are to be scored: where ranks count, a last digit that differs breaks their tie.

    Parameters
    ----------
    X : ndarray, sparse matrix or sequence of n
        What is no matrix of numbers has no equal rows here.

    Returns
    -------
    ndarray of int of shape (n,), or None
    """
    if getattr(X, "ndim", 0) != 2 or getattr(X, "dtype", np.dtype(object)).kind not in "biuf":
        return None
    equal = canonical_rows(X, None, 1, None)
    if equal.members is None:
        return None
    first = np.empty(X.shape[0], np.intp)
    first[equal.members] = np.repeat(equal.rows, np.diff(equal.starts))
    return first


class Scores:
    """Scorers, and what becomes of an error.

    Rows count by their weights where these are given: in errors, unless none is positive, and for scorers
    that take weights; where metadata are routed, for those that ask for them.

    Parameters
    ----------
    estimator : estimator
    scoring : str, callable, list, tuple, set, dict or None
        As for scikit-learn's ``GridSearchCV``.
    error_score : "raise" or float
    weighted : bool, default=False
        Whether rows have weights.

    Attributes
    ----------
    scorers : dict
        Name to scorer; "score" for a single one.
    several : bool
    take_weights : set of str
        Scorers for which rows count by their weights.
    """

    def __init__(self, estimator, scoring, error_score, weighted=False):
        if not isinstance(error_score, numbers.Number) and error_score != "raise":
            raise ValueError(f"error_score must be 'raise' or a number, got {error_score!r}")
        self.scoring, self.error_score = scoring, error_score
        self.several = not (scoring is None or isinstance(scoring, str) or callable(scoring))
        if not self.several:
            names = {"score": scoring}
        else:
            names = scoring if isinstance(scoring, dict) else {name: name for name in scoring}
        if not names:
            raise ValueError(f"scoring is empty, got {scoring!r}; name at least one scorer")
        self.scorers = {name: check_scoring(estimator, scoring=scorer) for name, scorer in names.items()}
        self._weighted = weighted
        self.take_weights = {
            name
            for name, scorer in self.scorers.items()
            if weighted and _takes_weights(scorer, estimator if names[name] is None else None)
        }
        others = self.scorers.keys() - self.take_weights
        if weighted and others and not get_config()["enable_metadata_routing"]:
            warnings.warn(
                f"The scoring {', '.join(sorted(others))} takes no sample_weight: all rows count alike in it",
                UserWarning,
                stacklevel=3,
            )

    # ---------------------------------------------------------------- of one estimator

    def of(self, estimator, X, y, weights):
        """Scores by name.

        Parameters
        ----------
        estimator : estimator
            Fitted.
        X, y : samples and their targets
        weights : ndarray or None
            Of these rows, as `weights_of` has them.

        Returns
        -------
        dict
        """
        found = {}
        for name, scorer in self.scorers.items():
            more = {"sample_weight": weights} if name in self.take_weights else {}
            try:
                score = scorer(estimator, X, **more) if y is None else scorer(estimator, X, y, **more)
            except Exception:
                if self.error_score == "raise":
                    raise
                warnings.warn(
                    "Scoring failed. The score on this train-test partition for these parameters will be "
                    f"set to {self.error_score}. Details: \n{format_exc()}",
                    UserWarning,
                    stacklevel=2,
                )
                score = self.error_score
            if isinstance(score, dict):
                found.update(score)
            else:
                found[name] = _number(score, name)
        return found

    def is_accuracy(self, estimator):
        """Whether the only score is the share of labels that are right."""
        own = self.scoring is None and type(estimator).score is ClassifierMixin.score
        named = isinstance(self.scoring, str) and self.scoring == "accuracy"
        return own or (named and is_classifier(estimator))

    def tells_error(self, estimator):
        """Whether the only score is 1 less the error."""
        return self.is_accuracy(estimator) and (not self._weighted or "score" in self.take_weights)

    def are_of_labels(self, estimator):
        """Whether no scorer asks for more than labels."""
        asked = [getattr(scorer, "_response_method", None) for scorer in self.scorers.values()]
        return self.is_accuracy(estimator) or all(one == "predict" for one in asked)

    def of_one_row(self, estimator):
        """The only score as a function of a single row's squared error; None where it is not known to be one.

        R² of one row is not defined: NaN, with a warning of scikit-learn's class.
        """
        if self.scoring == "neg_mean_squared_error":
            return lambda error: -error
        if self.scoring == "r2" or (self.scoring is None and type(estimator).score is RegressorMixin.score):
            warnings.warn(
                "R² is not defined for folds of a single row: the scores are NaN; pass cv='loo' to score the "
                "held-out predictions together, or scoring='neg_mean_squared_error'",
                UndefinedMetricWarning,
                stacklevel=6,
            )
            return lambda error: np.nan
        return None

    def decided_each(self, machine, give, decisions, X, y, weights):
        """Scores and errors of a machine of `decided` by one set of decisions after another."""
        if self.tells_error(machine):
            give(np.concatenate(decisions))
            labels = _predicted(machine, np.arange(len(decisions) * len(y)))
            if labels is not None:
                shares = [_share_right(some, y, weights) for some in labels.reshape(len(decisions), -1)]
                return [({"score": share}, 1.0 - share) for share in shares]
        told = []
        for values in decisions:
            give(values)
            told.append(self.decided(machine, X, y, weights))
        return told

    def decided(self, machine, X, y, weights):
        """Scores and error of predictions that are at hand, or cheap."""
        predicted = _predicted(machine, X)
        if predicted is not None and self.tells_error(machine):
            share = _share_right(predicted, y, weights)
            return {"score": share}, 1.0 - share
        return self.of(machine, X, y, weights), _error(machine, predicted, y, weights)

    # ---------------------------------------------------------------- by fitting

    def fitted(self, estimator, X, y, weights, fit_params, train, test, with_train):
        """The `Outcome` of an estimator that is fitted to a fold by itself."""
        begin = time.perf_counter()
        X_train, y_train = _safe_split(estimator, X, y, train)
        X_test, y_test = _safe_split(estimator, X, y, test, train)
        more = {name: values[train] for name, values in fit_params.items()}
        try:
            estimator.fit(X_train, **more) if y is None else estimator.fit(X_train, y_train, **more)
        except Exception:
            if self.error_score == "raise":
                raise
            scores = dict.fromkeys(self.scorers, self.error_score)
            spent = time.perf_counter() - begin
            return Outcome(scores, dict(scores), fit_time=spent, trouble=format_exc())
        fit_time = time.perf_counter() - begin
        at_test, at_train = weights_of(weights, test), weights_of(weights, train)
        scores = self.of(estimator, X_test, y_test, at_test)
        outcome = Outcome(scores, fit_time=fit_time, score_time=time.perf_counter() - begin - fit_time)
        if with_train:
            outcome.train = self.of(estimator, X_train, y_train, at_train)
        with warnings.catch_warnings():  # scores have warned
            warnings.simplefilter("ignore")
            outcome.test_error = self.error(estimator, X_test, y_test, at_test, scores)
            if with_train:
                outcome.train_error = self.error(estimator, X_train, y_train, at_train, outcome.train)
        return outcome

    def error(self, estimator, X, y, weights, scores=None):
        """MLR7's error: the share of labels that are wrong, or the mean squared difference.

        Parameters
        ----------
        estimator : estimator
            Fitted.
        X, y : samples and their targets
        weights : ndarray or None
            As for `of`.
        scores : dict or None
            Of these rows, if they are known.

        Returns
        -------
        float
            NaN where there is none.
        """
        if y is None or not (is_classifier(estimator) or is_regressor(estimator)):
            return np.nan
        # what stands for a score that failed tells nothing
        if scores is not None and self.tells_error(estimator) and scores["score"] != self.error_score:
            return 1.0 - scores["score"]
        return _error(estimator, _predicted(estimator, X), y, weights)


def _predicted(estimator, X):
    """Predictions, or None where there are none: scorers that ask for them tell why."""
    try:
        return np.asarray(estimator.predict(X))
    except Exception:
        return None


def _error(estimator, predicted, y, weights):
    if predicted is None:
        return np.nan
    if weights is not None and not weights.any():
        weights = None
    if not is_regressor(estimator):
        return 1.0 - _share_right(predicted, y, weights)
    y = np.asarray(y, dtype=np.float64).reshape(predicted.shape)
    return _mean(np.square(predicted.astype(np.float64) - y), weights)


def _share_right(predicted, y, weights):
    y = y.toarray() if sp.issparse(y) else np.asarray(y)
    return _mean(predicted == y.reshape(predicted.shape), weights)


def _mean(values, weights):
    """The mean over outputs and rows, which count by their weights."""
    return float(np.average(values.reshape(len(values), -1).mean(axis=1), weights=weights))


def _takes_weights(scorer, estimator):
    """Whether a scorer, or the own score of an estimator if one is given, takes sample weights."""
    if get_config()["enable_metadata_routing"]:
        asks = hasattr(scorer, "get_metadata_routing")
        return asks and bool(get_routing_for_object(scorer).consumes("score", ["sample_weight"]))
    function = getattr(scorer, "_score_func", scorer) if estimator is None else estimator.score
    return "sample_weight" in signature(function).parameters


def _number(score, name):
    if hasattr(score, "item") and np.size(score) == 1:
        score = score.item()
    if not isinstance(score, numbers.Number):
        raise ValueError(
            f"scoring must return a number, got {score!r} of type {type(score).__name__} from the "
            f"scorer {name!r}"
        )
    return score

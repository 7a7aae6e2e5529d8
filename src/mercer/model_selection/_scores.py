"""Scores of machines that were fitted, and of those of which only the decisions are known.

Place on the way: **scores** → ``path``.
"""

import numbers
import time
import warnings
from traceback import format_exc

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin, clone, is_classifier, is_regressor
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import check_scoring
from sklearn.utils.metaestimators import _safe_split

from ._results import Outcome, weight_name

__all__ = ["Scores", "decided", "known_from_decisions"]

# Responses that a scorer may ask for and decisions give.
_RESPONSES = {"predict", "decision_function"}


def decided(machine, classes):
    """A machine that answers with given decisions, and a function that gives it those of all pairs (m, p)."""
    machine = clone(machine)
    box = {}
    machine.__dict__.update(
        classes_=classes, support_=np.empty(0, np.int32), _pairwise=True, _absent=np.empty(0, int),
        _query_samples=lambda X: X, _values=lambda X: box["values"],
    )  # fmt: skip
    return machine, lambda values: box.update(values=values)


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


class Scores:
    """Scorers, and what becomes of an error.

    Parameters
    ----------
    estimator : estimator
    scoring : str, callable, list, tuple, set, dict or None
        As for scikit-learn's ``GridSearchCV``.
    error_score : "raise" or float

    Attributes
    ----------
    scorers : dict
        Name to scorer; "score" for a single one.
    several : bool
    """

    def __init__(self, estimator, scoring, error_score):
        if not isinstance(error_score, numbers.Number) and error_score != "raise":
            raise ValueError(f"error_score must be 'raise' or a number, got {error_score!r}")
        self.scoring, self.error_score = scoring, error_score
        self.several = not (scoring is None or isinstance(scoring, str) or callable(scoring))
        if not self.several:
            self.scorers = {"score": check_scoring(estimator, scoring=scoring)}
            return
        names = scoring if isinstance(scoring, dict) else {name: name for name in scoring}
        if not names:
            raise ValueError(f"scoring is empty, got {scoring!r}; name at least one scorer")
        self.scorers = {name: check_scoring(estimator, scoring=scorer) for name, scorer in names.items()}

    # ---------------------------------------------------------------- of one estimator

    def of(self, estimator, X, y):
        """Scores by name.

        Parameters
        ----------
        estimator : estimator
            Fitted.
        X, y : samples and their targets

        Returns
        -------
        dict
        """
        found = {}
        for name, scorer in self.scorers.items():
            try:
                score = scorer(estimator, X) if y is None else scorer(estimator, X, y)
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
        return own or (isinstance(self.scoring, str) and self.scoring == "accuracy")

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

    def decided(self, machine, X, y):
        """Scores and error of predictions that are at hand, or cheap."""
        error = self.error(machine, X, y)
        return {"score": 1.0 - error} if self.is_accuracy(machine) else self.of(machine, X, y), error

    # ---------------------------------------------------------------- by fitting

    def fitted(self, estimator, X, y, weights, train, test, with_train):
        """The `Outcome` of an estimator that is fitted to a fold by itself."""
        begin = time.perf_counter()
        X_train, y_train = _safe_split(estimator, X, y, train)
        X_test, y_test = _safe_split(estimator, X, y, test, train)
        more = {} if weights is None else {weight_name(estimator): weights[train]}
        try:
            estimator.fit(X_train, **more) if y is None else estimator.fit(X_train, y_train, **more)
        except Exception:
            if self.error_score == "raise":
                raise
            scores = dict.fromkeys(self.scorers, self.error_score)
            spent = time.perf_counter() - begin
            return Outcome(scores, dict(scores), fit_time=spent, trouble=format_exc())
        fit_time = time.perf_counter() - begin
        scores = self.of(estimator, X_test, y_test)
        outcome = Outcome(scores, fit_time=fit_time, score_time=time.perf_counter() - begin - fit_time)
        outcome.test_error = self.error(estimator, X_test, y_test, scores)
        if with_train:
            outcome.train = self.of(estimator, X_train, y_train)
            outcome.train_error = self.error(estimator, X_train, y_train, outcome.train)
        return outcome

    def error(self, estimator, X, y, scores=None):
        """MLR7's error: the share of labels that are wrong, or the mean squared difference.

        Parameters
        ----------
        estimator : estimator
            Fitted.
        X, y : samples and their targets
        scores : dict or None
            Of these rows, if they are known.

        Returns
        -------
        float
            NaN where there is none.
        """
        if y is None or not (is_classifier(estimator) or is_regressor(estimator)):
            return np.nan
        if scores is not None and self.is_accuracy(estimator):
            return 1.0 - scores["score"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predicted = np.asarray(estimator.predict(X))
        if is_regressor(estimator):
            return float(np.mean(np.square(predicted - np.asarray(y).reshape(predicted.shape))))
        return 1.0 - float(np.mean(predicted == np.asarray(y)))


def _number(score, name):
    if hasattr(score, "item"):
        score = score.item()
    if not isinstance(score, numbers.Number):
        raise ValueError(
            f"scoring must return a number, got {score!r} of type {type(score).__name__} from the "
            f"scorer {name!r}"
        )
    return score

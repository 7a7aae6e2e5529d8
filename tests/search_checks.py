"""What tests of searches share: scores as fits have them, one by one."""

import numpy as np
from sklearn.base import clone
from sklearn.metrics import check_scoring, make_scorer
from sklearn.model_selection import cross_validate
from sklearn.utils.metaestimators import _safe_split


def mean_decision():
    """A scorer that tells far more of a machine than its labels do."""
    weigh = np.sin(np.arange(1.0, 5000.0))

    def told(y, decisions, sample_weight=None):
        d = np.asarray(decisions).reshape(len(y), -1)
        return float(np.average((d * weigh[: len(d), None]).mean(axis=1), weights=sample_weight))

    return make_scorer(told, response_method="decision_function")


def refuse_fits(monkeypatch):
    """Fail where the plain way is taken."""
    monkeypatch.setattr("mercer.model_selection._scores.Scores.fitted", None)


def splits_of(search, name="test_score"):
    """Scores (cells, folds) of a search."""
    return np.stack([search.cv_results_[f"split{k}_{name}"] for k in range(search.n_splits_)], axis=1)


def by_fits(search, X, y, sample_weight=None, groups=None, scoring=None):
    """Scores (cells, folds) of clone and fit, held-out rows counting by their weights."""
    scoring = scoring or search.scoring
    last = search.estimator.steps[-1][0] + "__" if hasattr(search.estimator, "steps") else ""
    params = None if sample_weight is None else {f"{last}sample_weight": sample_weight}
    found = []
    for cell in search.cv_results_["params"]:
        done = cross_validate(
            clone(search.estimator).set_params(**cell), X, y, cv=search.cv, groups=groups, scoring=scoring,
            error_score="raise", params=params, return_estimator=True, return_indices=True,
        )  # fmt: skip
        if sample_weight is not None:
            scorer = check_scoring(search.estimator, scoring)
            folds = zip(done["estimator"], *done["indices"].values(), strict=True)
            done["test_score"] = [
                scorer(one, *_safe_split(one, X, y, test, train), sample_weight=sample_weight[test])
                for one, train, test in folds
            ]
        found.append(done["test_score"])
    return np.array(found)

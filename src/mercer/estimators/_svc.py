"""Classification by support vectors: the layout of coefficients, decisions, votes and probabilities.

Place on the way: ``_machines`` → ``_svm`` → **_svc** → ``svm``.
"""

from math import fsum

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if

from ..kernels.prepared import n_rows, take_rows
from ..solvers.platt import fit_sigmoids, sigmoid
from ._base import check_choice, check_flag, check_number, check_rng
from ._certain import certain_argmax, certain_votes
from ._labels import encode_labels
from ._machines import coefficients_by_class, pairs_of
from ._one_against_one import couple, votes_and_sums
from ._svm import _NO_WEIGHT, SupportVectorMachine, in_range

__all__ = ["SupportVectorClassifier"]

_FOLDS = 5
# And as how many rows one may count.
_MOST_UNITS = 2**40
# Numbers of one batch of votes, or of decisions, and as many rows of it at least.
_BATCH, _ROWS = 2**22, 64
# The largest error of a rounded sum over that of some like it; sums within a tile are rounded, too.
_SAFETY = 6.0


class SupportVectorClassifier(ClassifierMixin, SupportVectorMachine):
    """Base of `SVC` and `NuSVC`."""

    def _check_parameters(self):
        super()._check_parameters()
        check_flag("probability", self.probability)
        check_rng(self.random_state)
        check_choice("decision_function_shape", self.decision_function_shape, ("ovo", "ovr"))
        word = isinstance(self.break_ties, str) and self.break_ties == "auto"
        if not (word or isinstance(self.break_ties, bool | np.bool_)):
            raise ValueError(f"break_ties={self.break_ties!r} is unknown; known are 'auto', True, False")
        if isinstance(self.class_weight, str):
            check_choice("class_weight", self.class_weight, ("balanced",))

    # ---------------------------------------------------------------- fit

    def fit(self, X, y, sample_weight=None):
        """Fit to labelled rows.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Training rows; with a precomputed kernel the matrix (n, n); whatever a kernel of strings or sets,
            or a callable, takes.
        y : array_like of shape (n,)
            Labels of any type.
        sample_weight : array_like of shape (n,), float or None, default=None
            Factors of each row's C. A weight of 2 is the row written twice; one of 0 or less is the row left
            out, but `classes_` keeps its label.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input, before any work, with argument, place and remedy; and for a problem without a
            solution.
        """
        self._check_parameters()
        X, names = self._training_samples(X)
        n = n_rows(X)
        classes, codes = encode_labels(y, n, type(self).__name__)
        weights = self._weights(sample_weight, n)
        class_weight, weights = self._class_weights(classes, codes, weights)
        rows = self._canonical(X, codes, len(classes), weights)
        sizes = np.diff(rows.offsets)
        present = self._present(classes, sizes)
        own = in_range(np.repeat(class_weight, sizes), rows.weights, "class_weight times sample_weight")
        kernel = self._kernel_for(X, rows.weights, rows.rows)
        previous = self._previous(n, classes, rows)
        folds = self._folds(rows) if self.probability else None
        machines = self._machines(kernel, X, rows, own, codes, present, previous, folds)
        self._keep_classes(X, names, kernel, machines, rows, classes, class_weight, present)
        return self

    _one_class_hint = "give weight to samples of another"

    def _present(self, classes, sizes):
        """Which classes have rows; raises unless two have."""
        present = np.flatnonzero(sizes)
        if not len(present):
            raise ValueError(
                f"{_NO_WEIGHT} Of class_weight={self.class_weight!r} two must be larger than 0, at least"
            )
        if len(present) < 2:
            raise ValueError(
                "Invalid input - all samples with positive weights belong to the same class"
                f" ({classes.tolist()[present[0]]!r}); {self._one_class_hint}"
            )
        return present

    def _class_weights(self, classes, codes, weights):
        """Weights of the classes, and sample weights that leave out those of no weight."""
        k = len(classes)
        if isinstance(self.class_weight, str):
            # Σ of all weights over (number of classes · Σ of the class's), so that a weight of 2 is a row
            # written twice.
            sums = _sums_by_class(codes, weights, k)
            here = sums > 0
            return np.divide(sums.sum(), here.sum() * sums, out=np.zeros(k), where=here), weights
        if self.class_weight is None:
            return np.ones(k), weights
        class_weight = self._given_weights(classes)
        if (class_weight <= 0).any():
            weights = np.where(class_weight[codes] > 0, 1.0 if weights is None else weights, 0.0)
        return class_weight, weights

    def _given_weights(self, classes):
        """The numbers of a dictionary, 1 for classes that it leaves out."""
        given = self.class_weight
        if not isinstance(given, dict):
            raise TypeError(f"class_weight must be a dict, 'balanced' or None, got {given!r}")
        labels = classes.tolist()
        unknown, left_out = set(given) - set(labels), [label for label in labels if label not in given]
        if unknown and left_out:
            raise ValueError(
                f"The classes, {left_out}, are not in class_weight, which names {sorted(unknown, key=str)} "
                f"instead"
            )
        for label in labels:
            check_number(f"class_weight[{label!r}]", given.get(label, 1.0), least=0, finite=True)
        return np.array([float(given.get(label, 1.0)) for label in labels])

    def _folds(self, rows):
        """Which part of each distinct row is held out in which of five folds, (folds, m).

        Rows, in an order by content, are dealt to the folds in turn, class by class. One that is there many
        times is dealt in parts: held out as a whole, it would leave a machine that never saw it.
        """
        parts = np.split(rows.weights, rows.offsets[1:-1])
        unit = np.concatenate([np.full(len(part), _unit(part)) for part in parts])
        count = np.minimum(np.rint(rows.weights / unit), _MOST_UNITS).clip(1).astype(np.intp)
        sums, sizes = count.cumsum(), np.diff(rows.offsets)
        first = sums - count
        first = first - np.repeat(np.append(first, 0)[rows.offsets[:-1]], sizes)
        # of `count` places from `first` on each fold has those that leave its number modulo five
        before = (np.arange(_FOLDS)[:, None] - first) % _FOLDS
        shares = (count - before + _FOLDS - 1) // _FOLDS / count
        return shares[shares.any(axis=1)]

    def _is_pairwise(self, k):
        """Whether the machines are those of pairs of the k classes."""
        return True

    def _previous(self, n, classes, rows):
        """β of the last fit by problem, see `_last_coefficients`."""
        k = len(classes)
        if not (self.warm_start and np.array_equal(self.__dict__.get("classes_"), classes)):
            return None
        D = self._last_coefficients(n, k - 1 if self._is_pairwise(k) else k, rows)
        if D is None or not self._is_pairwise(k):
            return None if D is None else list(D)
        o = rows.offsets
        return [
            np.concatenate([D[b - 1, o[a] : o[a + 1]], D[a, o[b] : o[b + 1]]])
            for a, b in pairs_of(np.flatnonzero(np.diff(o)))
        ]

    # ---------------------------------------------------------------- layout

    def _keep_classes(self, X, names, kernel, machines, rows, classes, class_weight, present):
        k = len(classes)
        pairwise = self._is_pairwise(k)
        if pairwise:
            D, scale, problems = _pair_layout(machines, len(rows.rows), pairs_of(present), k)
            machines.widen(problems, k * (k - 1) // 2)
            _settle_absent(machines.intercept, present, k)
        else:
            D, scale = np.zeros((k, len(rows.rows))), None
            by_class = machines.beta.reshape(-1, len(rows.rows))
            D[np.arange(k) if len(by_class) == k else present] = by_class
            problems = present
            if len(machines.objective) == len(present):
                machines.widen(problems, k)
        support, beta, bound, group = rows.spread(D, machines.bound, evenly=machines.coupled)
        prob = _sigmoids(machines, rows, problems, k == 2) if self.probability else (np.empty(0), np.empty(0))
        self._keep(
            X, names, kernel, machines, support=support, beta=beta, bound=bound,
            scale=None if scale is None else scale[:, group], intercept=machines.intercept,
            counts=np.bincount(group, minlength=k), sign=-1.0 if k == 2 and pairwise else 1.0,
            n_iter_=machines.n_iter.astype(np.int32), classes_=classes, class_weight_=class_weight,
            _absent=np.flatnonzero(rows.offsets[1:] == rows.offsets[:-1]), _pairwise=pairwise,
            _probA=prob[0], _probB=prob[1],
        )  # fmt: skip

    def _get_coef(self):
        k = len(self.classes_)
        if k == 2 or not self._pairwise:
            return super()._get_coef()
        ends = np.cumsum(self._n_support)
        parts = [slice(end - count, end) for end, count in zip(ends, self._n_support, strict=True)]
        V, D = self.support_vectors_, self.dual_coef_
        coef = [
            safe_sparse_dot(D[[b - 1], parts[a]], V[parts[a]])
            + safe_sparse_dot(D[[a], parts[b]], V[parts[b]])
            for a, b in pairs_of(np.arange(k))
        ]
        return sp.vstack(coef, format="csr") if sp.issparse(coef[0]) else np.vstack(coef)

    # ---------------------------------------------------------------- decisions

    def _counts_votes(self):
        return self._pairwise and len(self.classes_) > 2

    def _pairs(self):
        """Where the classes' support vectors begin, coefficients, intercepts: see `Expansion.pair_votes`."""
        starts = np.concatenate([[0], np.cumsum(self._n_support)])
        return starts, self._dual_coef_, self._intercept_

    def _values(self, X):
        """(m, p) decisions of all problems, positive for the first class of a pair, in the results' dtype."""
        if self._counts_votes():
            values = self._terms().pair_decisions(X, self._pairs(), self.n_jobs)
        else:
            values = self._function_sums(X) + self._intercept_
        return values.astype(self._dtype_of(X), copy=False)

    def _votes(self, X, *, tie_to_first=False):
        """By class the pairs that it wins, and its summed decisions, both (m, k)."""
        return self._terms().pair_votes(X, self._pairs(), self.n_jobs, tie_to_first=tie_to_first)

    def _by_class(self, X):
        """Decisions of shape (m, k), or (m,) of two classes, whose largest (sign) `predict` goes by."""
        if self._counts_votes():
            return votes_and_sums(*self._votes(X, tie_to_first=True)).astype(self._dtype_of(X), copy=False)
        values = self._values(X)
        if len(self.classes_) == 2:
            return -values[:, 0] if self._pairwise else values[:, 1] - values[:, 0]
        if len(self._absent):
            values[:, self._absent] = np.delete(values, self._absent, axis=1).min(axis=1, keepdims=True) - 1
        return values

    def decision_function(self, X):
        """Decisions: for two classes one, positive for the second; else one for each class or pair.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            Rows; with a precomputed kernel the matrix against all training rows, or against the support
            vectors only, K[:, support_]; where these are all rows it is read as that against all, in their
            order.

        Returns
        -------
        ndarray of shape (m,), (m, k) or (m, k (k - 1) / 2)
            With ``decision_function_shape="ovr"`` one column for each class: of pairs, the votes with the
            decisions as fractions; else what was trained. With "ovo" one for each pair, positive for the
            first class. float32 if both the training rows and these are.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            For rows unlike the fit's.
        """
        self._require_fit("support_")
        X, k = self._query_samples(X), len(self.classes_)
        if k == 2 or self.decision_function_shape == "ovr":
            return self._by_class(X)
        if self._pairwise:
            return self._values(X)
        values, (a, b) = self._by_class(X), np.triu_indices(k, 1)
        return values[:, a] - values[:, b]

    def predict(self, X):
        """Labels.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (m,)
            The class of the largest decision; see `break_ties` for votes.
        """
        self._require_fit("support_")
        if self.break_ties is True and self.decision_function_shape == "ovo":
            raise ValueError(
                "break_ties must be False when decision_function_shape is 'ovo' ('auto' will do, too)"
            )
        X = self._query_samples(X)
        m = n_rows(X)
        step = max(1, _BATCH // len(self.classes_))
        labels = np.empty(m, np.intp)
        for start in range(0, m, step):
            part = slice(start, start + step)
            labels[part] = self._labels(X if m <= step else take_rows(X, part))
        return self.classes_[labels]

    def _labels(self, X):
        """Which class each row is of: by float32 decisions, and exact ones where these leave a doubt."""
        terms = self._rounded_terms(X)
        rounded = None if terms is None else self._rounded_labels(terms, X)
        if rounded is None:
            return self._exact_labels(X)
        labels, certain = rounded
        doubtful = np.flatnonzero(~certain)
        if doubtful.size:
            labels[doubtful] = self._exact_labels(take_rows(X, doubtful))
        return labels

    def _exact_labels(self, X):
        if self._counts_votes() and not self._breaks_ties():
            return np.argmax(self._votes(X)[0], axis=1)
        values = self._by_class(X)
        return np.argmax(values, axis=1) if values.ndim == 2 else (values > 0).astype(np.intp)

    def _breaks_ties(self):
        return bool(self.break_ties) and self.decision_function_shape == "ovr"

    def _rounded_labels(self, terms, X):
        """Labels by float32 sums, and whether errors leave them as they are; None where sums overflow."""
        if self._counts_votes():
            counted = terms.single_votes(X, self._pairs(), _SAFETY, self.n_jobs)
            return None if counted is None else certain_votes(*counted)
        summed = terms.single(X, self._dual_coef_, self.n_jobs)
        if summed is None:
            return None
        sums, rows, errors = summed
        values, bounds = sums + self._intercept_, _SAFETY * rows[:, None] * errors
        if self._pairwise:
            return (values[:, 0] < 0).astype(np.intp), np.abs(values[:, 0]) > bounds[:, 0]
        present = np.setdiff1d(np.arange(len(self.classes_)), self._absent)
        best, certain = certain_argmax(values[:, present], bounds[:, present])
        return present[best], certain

    # ---------------------------------------------------------------- probabilities

    def _has_probability(self):
        if not self.probability:
            raise AttributeError(
                "predict_proba is not available when probability=False; set it, and fit again"
            )
        return True

    @available_if(_has_probability)
    def predict_proba(self, X):
        """Probabilities of the classes, by sigmoids of decisions; only with ``probability=True``.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (m, k)
            Each row sums to 1. Of two classes the one that `predict` returns has the larger; of three or more
            `predict`, which goes by the decisions, may return another than the most probable.

        Raises
        ------
        NotFittedError
            Before a fit with ``probability=True``.
        """
        self._require_fit("support_")
        X, k = self._query_samples(X), len(self.classes_)
        if not len(self._probA):
            raise NotFittedError(
                "predict_proba is not available when fitted with probability=False; fit again"
            )
        m = n_rows(X)
        step = max(_ROWS, _BATCH // k**2)
        if m <= step:
            return self._probabilities(self._values(X))
        out = np.empty((m, k), self._dtype_of(X))
        for start in range(0, m, step):
            part = slice(start, start + step)
            out[part] = self._probabilities(self._values(take_rows(X, part)))
        return out

    def _probabilities(self, values):
        """Of all classes (m, k), by decisions of all problems (m, p)."""
        k = len(self.classes_)
        present = np.setdiff1d(np.arange(k), self._absent)
        out = np.zeros((len(values), k), values.dtype)
        if not self._pairwise:
            p = sigmoid(values[:, present].astype(np.float64), self._probA[present], self._probB[present])
            out[:, present] = p / np.maximum(p.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
            return out
        p = sigmoid(values.astype(np.float64), self._probA, self._probB)
        if k == 2:
            out[:, 0] = _on_its_side(p[:, 0].astype(values.dtype), values[:, 0])
            out[:, 1] = 1 - out[:, 0]
            return out
        a, b = np.triu_indices(k, 1)
        here = np.isin(a, present) & np.isin(b, present)
        out[:, present] = couple(p[:, here], len(present))
        return out

    @available_if(_has_probability)
    def predict_log_proba(self, X):
        """Logarithms of `predict_proba`.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)

        Returns
        -------
        ndarray of shape (m, k)
            −inf where a class has no training row of positive weight.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @property
    def probA_(self):
        """Slopes of the sigmoids, one for each problem; empty without ``probability=True``."""
        self._require_fit("support_")
        return self._probA

    @property
    def probB_(self):
        """Offsets of the sigmoids."""
        self._require_fit("support_")
        return self._probB


def _sums_by_class(codes, weights, k):
    """Sums of the weights above 0, or numbers of rows: rounded once, whatever the order of the rows."""
    counts = np.bincount(codes, minlength=k)
    if weights is None:
        return counts
    ordered = np.maximum(weights, 0)[np.argsort(codes, kind="stable")]
    return np.array([fsum(part) for part in np.split(ordered, counts.cumsum()[:-1])])


@np.errstate(over="ignore", invalid="ignore")
def _unit(weights):
    """Which weight is one row's, by the weights of a class's distinct rows; its scale is no matter.

    Of multiples the common measure, as of rows that are repeated; else the middle one, so that rows with
    weights of all sizes are not held out in parts, of which machines would know the rest.
    """
    if not len(weights):
        return 1.0
    ratios = weights / weights.min()
    if (weights == np.rint(weights)).all() and weights.max() < 2.0**62:
        unit = float(np.gcd.reduce(weights.astype(np.int64)))
    elif (np.abs(ratios - np.rint(ratios)) <= 1e-9 * ratios).all():
        unit = float(weights.min())
    else:
        unit = float(np.median(weights))
    return unit if len(weights) >= _FOLDS else min(unit, 1.0)


def _on_its_side(p, decision):
    """Probabilities of the first class with rounding to ½ undone where a decision is not 0."""
    half = p.dtype.type(0.5)
    return np.where(decision < 0, np.minimum(p, np.nextafter(half, half - half)), np.maximum(p, half))


def _pair_layout(machines, m, pairs, k):
    """`coefficients_by_class`, and what these are divided by.

    Returns
    -------
    D : ndarray of shape (k - 1, m)
    scale : ndarray of shape (k - 1, k) or None
        ρ likewise, by class.
    problems : ndarray
        The solved pairs' places among all.
    """
    D, (a, b) = coefficients_by_class(machines.beta, machines.sides, pairs, k, m), pairs.T
    scale = None if machines.scale is None else np.ones((k - 1, k))
    if scale is not None:
        scale[b - 1, a] = scale[a, b] = machines.scale
    return D, scale, a * k - a * (a + 1) // 2 + b - a - 1


def _settle_absent(intercept, present, k):
    """Pairs with a class that has no samples are decided for the other."""
    if len(present) == k:
        return
    here = np.isin(np.arange(k), present)
    a, b = np.triu_indices(k, 1)
    intercept[here[a] & ~here[b]] = 1.0
    intercept[~here[a] & here[b]] = -1.0


def _sigmoids(machines, rows, problems, two_classes):
    """A and B of each problem, from decisions about samples that were held out."""
    A, B = np.zeros((2, len(machines.intercept)))
    decisions, labels, samples, shares, ends = machines.held_out
    weights = shares * rows.weights[samples]
    A[problems], B[problems] = fit_sigmoids(decisions, labels > 0, weights, ends, through_half=two_classes)
    return A, B

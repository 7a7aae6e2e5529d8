"""Support vector machines.

Place on the way: ``solvers`` → ``_machines`` → ``_svm``, ``_svc`` → **svm**.
"""

import numpy as np
from sklearn.base import OutlierMixin, RegressorMixin

from .._arrays import check_targets
from ..kernels.prepared import n_rows
from ._base import check_choice
from ._canonical import equal_across
from ._machines import c_machines, first_come, nu_machines, nu_regression, one_class, pairs_of, regression
from ._svc import SupportVectorClassifier
from ._svm import SupportVectorMachine, warn_if_indefinite

__all__ = ["SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM"]


class SVC(SupportVectorClassifier):
    """TODO."""

    def __init__(
        self,
        C=1.0,
        *,
        kernel="rbf",
        degree=3,
        gamma="scale",
        coef0=0.0,
        kernel_params=None,
        shrinking=True,
        probability=False,
        tol=1e-3,
        cache_size=None,
        class_weight=None,
        verbose=False,
        max_iter=-1,
        multiclass="ovo",
        decision_function_shape="ovr",
        break_ties="auto",
        warm_start=False,
        n_jobs=None,
        random_state=None,
    ):
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.shrinking = shrinking
        self.probability = probability
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.multiclass = multiclass
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _check_parameters(self):
        super()._check_parameters()
        check_choice("multiclass", self.multiclass, ("ovo", "ovr", "crammer-singer"))

    def _is_pairwise(self):
        return self.multiclass == "ovo"

    def _machines(self, kernel, X, rows, weights, codes, present, previous, folds):
        upper = self.C * weights
        if np.isinf(self.C) and not isinstance(X, list) and not self._is_precomputed(self.kernel):
            same = equal_across(X, rows.rows, codes)
            if same is not None:
                raise ValueError(
                    f"C=inf: the classes are not separable, since rows {same[0]} and {same[1]} of X are equal and their labels "
                    "are not; use a finite C, or drop one"
                )
        pairs = pairs_of(present) if self._is_pairwise() or len(rows.offsets) == 3 else None
        start = _within(previous, rows, upper, pairs) if previous is not None else None
        return self._solve(
            c_machines, kernel, X, rows.groups, rows, upper, weights, pairs, folds=folds, start=start
        )


class NuSVC(SupportVectorClassifier):
    """TODO."""

    def __init__(
        self,
        nu=0.5,
        *,
        kernel="rbf",
        degree=3,
        gamma="scale",
        coef0=0.0,
        kernel_params=None,
        shrinking=True,
        probability=False,
        tol=1e-3,
        cache_size=None,
        class_weight=None,
        verbose=False,
        max_iter=-1,
        decision_function_shape="ovr",
        break_ties="auto",
        warm_start=False,
        n_jobs=None,
        random_state=None,
    ):
        self.nu = nu
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.shrinking = shrinking
        self.probability = probability
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state

    _one_class_hint = "specified nu is infeasible"

    def _machines(self, kernel, X, rows, weights, codes, present, previous, folds):
        sums = np.add.reduceat(weights, rows.offsets[:-1][present])
        pairs = pairs_of(present)
        feasible = min(
            2 * min(sums[i], sums[j]) / (sums[i] + sums[j]) for i, j in pairs_of(range(len(present)))
        )
        if self.nu > feasible * (1 + 1e-12):
            raise ValueError(
                f"specified nu is infeasible: nu={self.nu!r}, and the largest feasible nu is {feasible:.6g}, twice the smaller "
                "share of a class (by weight) in a pair of classes"
            )
        start = None
        if previous is not None:
            totals = [
                self.nu * (weights[_at(rows, a)].sum() + weights[_at(rows, b)].sum()) / 2 for a, b in pairs
            ]
            start = [
                _scaled(beta, total, rows, weights, pair)
                for beta, total, pair in zip(previous, totals, pairs, strict=True)
            ]
        machines = self._solve(
            nu_machines, kernel, X, rows.groups, rows, weights, self.nu, pairs, folds=folds, start=start
        )
        return machines


def _at(rows, group):
    return slice(rows.offsets[group], rows.offsets[group + 1])


def _within(previous, rows, upper, pairs):
    """A start for C-SVC out of the last coefficients: scaled into the boxes; 0 where signs or sums do not fit."""
    start = []
    m = len(upper)
    for index, beta in enumerate(previous):
        if pairs is None:
            group = (
                np.flatnonzero(np.diff(rows.offsets))[index]
                if len(previous) != len(rows.offsets) - 1
                else index
            )
            signs, box = np.full(m, -1.0), upper
            signs[_at(rows, group)] = 1.0
        else:
            a, b = (_at(rows, group) for group in pairs[index])
            signs = np.repeat([1.0, -1.0], [a.stop - a.start, b.stop - b.start])
            box = np.concatenate([upper[a], upper[b]])
        start.append(_into_box(beta, signs, box))
    return start


def _into_box(beta, signs, box):
    size = np.abs(beta)
    if (signs * beta < 0).any() or abs(beta.sum()) > 1e-9 * size.max(initial=0.0):
        return np.zeros_like(beta)
    used = size > 0
    room = min(1.0, float(np.min(box[used] / size[used], initial=1.0)))
    return np.clip(beta * room, -box, box)


def _scaled(beta, total, rows, weights, pair):
    """A start for ν-SVC: the last coefficients with sums of `total`; None where they do not fit."""
    a, b = (_at(rows, group) for group in pair)
    n_a, box = a.stop - a.start, np.concatenate([weights[a], weights[b]])
    first, second = beta[:n_a].sum(), -beta[n_a:].sum()
    if not (first > 0 and second > 0 and (beta[:n_a] >= 0).all() and (beta[n_a:] <= 0).all()):
        return None
    beta = np.concatenate([beta[:n_a] * (total / first), beta[n_a:] * (total / second)])
    return beta if (np.abs(beta) <= box).all() else None


class _Regressor(RegressorMixin, SupportVectorMachine):
    """Base of `SVR` and `NuSVR`."""

    def fit(self, X, y, sample_weight=None):
        """Fit to targets.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Training rows; with a precomputed kernel the matrix (n, n); whatever a kernel of strings or sets, or a callable, takes.
        y : array_like of shape (n,)
            Targets.
        sample_weight : array_like of shape (n,), float or None
            Factors of each row's C. A weight of 2 is the row written twice; one of 0 or less is the row left out.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input, before any work, with argument, place and remedy; and for a problem without a solution.
        """
        self._check_parameters()
        X, names = self._training_samples(X)
        n = n_rows(X)
        y = check_regression_targets(y, n, type(self).__name__)
        weights = self._weights(sample_weight, n)
        rows = self._canonical(X, None, 1, weights, y)
        if self._is_precomputed(self.kernel):
            warn_if_indefinite(X)
        kernel = self._resolve_kernel(X, rows)
        machines = self._machines(kernel, X, rows, y[rows.rows], rows.weights)
        support, beta, bound, _ = rows.spread(machines.beta[0][None], machines.bound)
        self._keep(
            X, names, kernel, machines, support=support, coefficients=beta, bound=bound, intercept=machines.intercept,
            counts=[len(support)], n_iter_=int(machines.n_iter[0]), **self._more(machines),
        )  # fmt: skip
        return self

    def _more(self, machines):
        return {}

    def predict(self, X):
        """Predicted targets, ``k(X, support_vectors_) @ dual_coef_[0] + intercept_``.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            Rows; with a precomputed kernel the matrix against all training rows, or against the support vectors only.

        Returns
        -------
        ndarray of shape (m,)
            float32 if both the training rows and these are.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            For rows unlike the fit's.
        """
        return self._single_decision(X)

    def _last(self, n, rows):
        """β of the last fit by distinct row, if `warm_start` and there were as many rows."""
        known = self.__dict__
        if not self.warm_start or "support_" not in known or self.shape_fit_[0] != n:
            return None
        out = np.zeros(n)
        out[self.support_] = self._dual_coef_[0]
        return rows.gathered(out)


def check_regression_targets(y, n, owner):
    """Targets as float64 of shape (n,)."""
    y = check_targets(y, n, owner=owner)
    if y.ndim == 2:
        from sklearn.utils import column_or_1d

        y = column_or_1d(y, warn=True)
    return y.astype(np.float64, copy=False)


class SVR(_Regressor):
    """TODO."""

    def __init__(
        self,
        *,
        kernel="rbf",
        degree=3,
        gamma="scale",
        coef0=0.0,
        kernel_params=None,
        tol=1e-3,
        C=1.0,
        epsilon=0.1,
        shrinking=True,
        cache_size=None,
        verbose=False,
        max_iter=-1,
        warm_start=False,
        n_jobs=None,
    ):
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.tol = tol
        self.C = C
        self.epsilon = epsilon
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.n_jobs = n_jobs

    def _machines(self, kernel, X, rows, y, weights):
        upper = self.C * weights
        last = self._last(n_rows(X), rows)
        start = None if last is None else [_into_box(last, np.sign(last), upper)]
        return self._solve(
            regression, kernel, X, rows.groups, y, upper, weights, float(self.epsilon), start=start
        )

    def _inseparable(self, bound):
        return (
            f"C=inf: no function of this kernel comes within epsilon={self.epsilon!r} of every target (its slope has no limit); "
            "use a finite C, or a larger epsilon"
        )


class NuSVR(_Regressor):
    """TODO."""

    def __init__(
        self,
        *,
        nu=0.5,
        C=1.0,
        kernel="rbf",
        degree=3,
        gamma="scale",
        coef0=0.0,
        kernel_params=None,
        shrinking=True,
        tol=1e-3,
        cache_size=None,
        verbose=False,
        max_iter=-1,
        warm_start=False,
        n_jobs=None,
    ):
        self.nu = nu
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.shrinking = shrinking
        self.tol = tol
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.n_jobs = n_jobs

    def _machines(self, kernel, X, rows, y, weights):
        upper = self.C * weights
        last = self._last(n_rows(X), rows)
        start = None if last is None else _two_parts(last, upper, self.nu * upper.sum() / 2)
        groups = rows.groups * 2
        return self._solve(nu_regression, kernel, X, groups, y, upper, weights, float(self.nu), start=start)

    def _more(self, machines):
        return {"epsilon_": machines.extra["epsilon"]}


def _two_parts(beta, upper, total):
    """α and −α* of given sums whose difference is β, if there are such."""
    alpha, other = np.maximum(beta, 0), np.maximum(-beta, 0)
    if (alpha > upper).any() or (other > upper).any() or max(alpha.sum(), other.sum()) > total:
        return None
    # The same to both, where there is room.
    alpha_more = first_come(total - alpha.sum(), upper - np.maximum(alpha, other))
    alpha, other = alpha + alpha_more, other + alpha_more
    if abs(alpha.sum() - total) > 1e-9 * total or abs(other.sum() - total) > 1e-9 * total:
        return None
    return [np.concatenate([alpha, -other])]


class OneClassSVM(OutlierMixin, SupportVectorMachine):
    """TODO."""

    def __init__(
        self,
        *,
        kernel="rbf",
        degree=3,
        gamma="scale",
        coef0=0.0,
        kernel_params=None,
        tol=1e-3,
        nu=0.5,
        shrinking=True,
        cache_size=None,
        verbose=False,
        max_iter=-1,
        warm_start=False,
        n_jobs=None,
    ):
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.tol = tol
        self.nu = nu
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.n_jobs = n_jobs

    def fit(self, X, y=None, sample_weight=None):
        """Fit to rows, most of which are regular."""
        self._check_parameters()
        X, names = self._training_samples(X)
        n = n_rows(X)
        weights = self._weights(sample_weight, n)
        rows = self._canonical(X, None, 1, weights)
        if self._is_precomputed(self.kernel):
            warn_if_indefinite(X)
        kernel = self._resolve_kernel(X, rows)
        machines = self._solve(one_class, kernel, X, rows.groups, rows.weights, float(self.nu))
        support, beta, bound, _ = rows.spread(machines.beta[0][None], machines.bound)
        self._keep(
            X, names, kernel, machines, support=support, coefficients=beta, bound=bound, intercept=machines.intercept,
            counts=[len(support)], n_iter_=int(machines.n_iter[0]),
        )  # fmt: skip
        self.offset_ = -self.intercept_
        return self

    def decision_function(self, X):
        """Positive for a row like most, negative for an outlier."""
        return self._single_decision(X)

    def score_samples(self, X):
        """Decisions without the offset."""
        return self.decision_function(X) + self.offset_

    def predict(self, X):
        """1 for a row like most, −1 for an outlier."""
        return np.where(self.decision_function(X) > 0, 1, -1).astype(np.intp)

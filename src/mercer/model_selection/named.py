"""Searches over α under the name of what they fit: `KernelRidgeCV` and its like.

Place on the way: ``path`` → **named**.
"""

from sklearn import get_config
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin, is_classifier
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _num_samples

from ..estimators._base import KernelEstimator
from ..estimators._labels import encode_labels
from ..estimators.classification import KernelLogisticRegression, SquaredMarginClassifier
from ..estimators.ridge import KernelRidge
from .path import PathCV

__all__ = ["KernelLogisticRegressionCV", "KernelRidgeCV", "SquaredMarginCV"]


class _NamedCV(KernelEstimator, PathCV):
    """A `PathCV` whose estimator is made from its own parameters."""

    # What a `PathCV` has beside.
    Cs = param_grid = None
    refit, error_score, return_train_score = True, "raise", False

    @property
    def estimator(self):
        """The estimator whose α is searched, not fitted."""
        one = self._one()
        if get_config()["enable_metadata_routing"]:  # weights are this one's own argument
            one.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        names = one.get_params(deep=False).keys() & self.get_params(deep=False).keys()
        return one.set_params(**{name: getattr(self, name) for name in names - {"verbose"}})

    def fit(self, X, y, sample_weight=None, groups=None):
        """Choose α over the folds, and fit to all rows with it.

        Parameters
        ----------
        X : array_like, sparse matrix or sequence of n samples
            A precomputed kernel's matrix is split by rows and columns.
        y : array_like of shape (n,) or (n, t)
            Targets.
        sample_weight : array_like of shape (n,) or None, default=None
            For the fits, and for the scores and errors of rows.
        groups : array_like of shape (n,) or None, default=None
            For the splitter.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input. After an error or an interrupt the attributes are as they were.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if is_classifier(self):
            n = _num_samples(X)
            if n == 0:
                raise ValueError(f"{type(self).__name__} got X with 0 sample(s), a minimum of 1 is required")
            encode_labels(y, n, type(self).__name__)  # says what is wrong with labels
            y = column_or_1d(y)
        return super().fit(X, y, sample_weight=sample_weight, groups=groups)

    # ---------------------------------------------------------------- of the best fit

    @property
    def alpha_(self):
        """The α that was chosen."""
        return self.best_alpha_

    @property
    def dual_coef_(self):
        """Dual coefficients of the fit to all rows."""
        return self.best_estimator_.dual_coef_

    @property
    def intercept_(self):
        """Intercept of the fit to all rows."""
        return self.best_estimator_.intercept_

    @property
    def n_iter_(self):
        """Iterations of the fit to all rows."""
        return self.best_estimator_.n_iter_

    @property
    def X_fit_(self):
        """The rows that `dual_coef_` belongs to."""
        return self.best_estimator_.X_fit_

    @property
    def kernel_(self):
        """The kernel of the fit to all rows."""
        return self.best_estimator_.kernel_


class KernelRidgeCV(MultiOutputMixin, RegressorMixin, _NamedCV):
    """`KernelRidge` with α chosen by cross-validation: all α and folds together, exactly.

    Parameters
    ----------
    alphas : sequence of float or None, default=None
        Values of α in any order; None makes 22 of them from the spectrum, as in `PathCV`.
    kernel, gamma, degree, coef0, kernel_params, fit_intercept
        As in `KernelRidge`.
    gammas : sequence of float, "scale" or "auto", or None, default=None
        Values of gamma to search as well.
    cv : int, splitter, iterable, "loo" or None, default=None
        As in `PathCV`; "loo" is leave-one-out in closed form.
    scoring : str, callable or None, default=None
        As in `PathCV`; None is R².
    n_jobs : int or None, default=None
        Threads.
    verbose : bool or int, default=False
        Show a progress bar.

    Attributes
    ----------
    alpha_ : float
        The α that was chosen.
    alpha_1se_, best_score_, cv_results_, test_error_, train_error_
        As in `PathCV`.
    best_estimator_ : KernelRidge
        Fitted to all rows; `dual_coef_`, `intercept_`, `X_fit_` and `kernel_` are its.

    References
    ----------
    MLR7 (7.31), 7.3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import KernelRidgeCV
    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> model = KernelRidgeCV(kernel="rbf", gamma=20.0, cv="loo").fit(X, np.sin(6 * X[:, 0]))
    >>> bool(model.score(X, np.sin(6 * X[:, 0])) > 0.999)
    True
    """

    _one = KernelRidge

    def __init__(
        self,
        alphas=None,
        *,
        kernel="linear",
        gamma=None,
        degree=3,
        coef0=1,
        kernel_params=None,
        fit_intercept=True,
        gammas=None,
        cv=None,
        scoring=None,
        n_jobs=None,
        verbose=False,
    ):
        self.alphas = alphas
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.gammas = gammas
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.verbose = verbose


class _NamedClassifierCV(ClassifierMixin, _NamedCV):
    """That of a classifier."""

    def score(self, X, y, sample_weight=None):
        """The score by `scoring` of the fit to all rows; None is the accuracy.

        Parameters
        ----------
        X : array_like, sparse matrix or sequence of m samples
        y : array_like of shape (m,)
            True labels.
        sample_weight : array_like of shape (m,) or None, default=None

        Returns
        -------
        float
        """
        if self.scoring is None:
            return super().score(X, y, sample_weight)
        self._require_fit("best_estimator_")
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self.scorer_(self.best_estimator_, X, y, **weights)


class KernelLogisticRegressionCV(_NamedClassifierCV):
    """`KernelLogisticRegression` with α chosen by cross-validation: some folds in lockstep, α after α.

    Parameters
    ----------
    alphas : sequence of float or None, default=None
        Values of α in any order; None makes 22 of them from the spectrum, as in `PathCV`.
    kernel, gamma, degree, coef0, kernel_params, fit_intercept, class_weight, tol, max_iter
        As in `KernelLogisticRegression`.
    gammas : sequence of float, "scale" or "auto", or None, default=None
        Values of gamma to search as well.
    cv : int, splitter, iterable or None, default=None
        As in `PathCV`; five stratified folds by default.
    scoring : str, callable or None, default=None
        As in `PathCV`; None is the share of right labels.
    n_jobs : int or None, default=None
        Threads.
    verbose : bool or int, default=False
        Show a progress bar.
    random_state
        As in `KernelLogisticRegression`.

    Attributes
    ----------
    alpha_ : float
        The α that was chosen.
    alpha_1se_, best_score_, cv_results_, test_error_, train_error_
        As in `PathCV`.
    best_estimator_ : KernelLogisticRegression
        Fitted to all rows; `classes_`, `dual_coef_`, `intercept_`, `X_fit_` and `kernel_` are its.

    References
    ----------
    MLR7 (7.36), 7.3.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mercer import KernelLogisticRegressionCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KernelLogisticRegressionCV(alphas=[0.01, 0.1, 1.0]).fit(X, y)
    >>> bool(model.best_score_ > 0.95)
    True
    """

    _one = KernelLogisticRegression

    def __init__(
        self,
        alphas=None,
        *,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0,
        kernel_params=None,
        fit_intercept=True,
        class_weight=None,
        tol=None,
        max_iter=None,
        gammas=None,
        cv=None,
        scoring=None,
        n_jobs=None,
        verbose=False,
        random_state=None,
    ):
        self.alphas = alphas
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.gammas = gammas
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state


class SquaredMarginCV(_NamedClassifierCV):
    """`SquaredMarginClassifier` with α chosen by cross-validation: some folds in lockstep, α after α.

    Parameters
    ----------
    alphas : sequence of float or None, default=None
        Values of α in any order; None makes 22 of them from the spectrum, as in `PathCV`.
    kernel, gamma, degree, coef0, kernel_params, fit_intercept, class_weight, multiclass, tol, max_iter
        As in `SquaredMarginClassifier`.
    gammas : sequence of float, "scale" or "auto", or None, default=None
        Values of gamma to search as well.
    cv : int, splitter, iterable or None, default=None
        As in `PathCV`; five stratified folds by default.
    scoring : str, callable or None, default=None
        As in `PathCV`; None is the share of right labels.
    n_jobs : int or None, default=None
        Threads.
    verbose : bool or int, default=False
        Show a progress bar.
    random_state : int, RandomState, Generator or None, default=None
        As in `SquaredMarginClassifier`.

    Attributes
    ----------
    alpha_ : float
        The α that was chosen.
    alpha_1se_, best_score_, cv_results_, test_error_, train_error_
        As in `PathCV`.
    best_estimator_ : SquaredMarginClassifier
        Fitted to all rows; `classes_`, `dual_coef_`, `intercept_`, `X_fit_` and `kernel_` are its.

    References
    ----------
    MLR7 (7.46), 7.3.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mercer import SquaredMarginCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SquaredMarginCV(alphas=[0.01, 0.1, 1.0]).fit(X, y)
    >>> bool(model.best_score_ > 0.95)
    True
    """

    _one = SquaredMarginClassifier

    def __init__(
        self,
        alphas=None,
        *,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0,
        kernel_params=None,
        fit_intercept=True,
        class_weight=None,
        multiclass="ovr",
        tol=None,
        max_iter=None,
        gammas=None,
        cv=None,
        scoring=None,
        n_jobs=None,
        verbose=False,
        random_state=None,
    ):
        self.alphas = alphas
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.multiclass = multiclass
        self.tol = tol
        self.max_iter = max_iter
        self.gammas = gammas
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

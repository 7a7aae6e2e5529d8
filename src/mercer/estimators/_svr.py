"""Regression by support vectors, and one class.

Place on the way: ``_function_machines`` → ``_svm`` → **_svr** → ``svm``.
"""

import numpy as np
from sklearn.base import OutlierMixin, RegressorMixin

from .._arrays import check_targets
from ..kernels.prepared import n_rows
from ._function_machines import nu_regression, one_class, regression
from ._labels import one_column
from ._svm import SupportVectorMachine, in_range

__all__ = ["SVR", "NuSVR", "OneClassSVM"]


class _OneFunction(SupportVectorMachine):
    """Base of machines with one problem."""

    _fit_depth = 5

    def _fit(self, X, y, sample_weight):
        self._check_parameters()
        X, names = self._training_samples(X)
        n = n_rows(X)
        y = self._targets(y, n)
        weights = self._weights(sample_weight, n)
        rows = self._canonical(X, None, 1, weights, y)
        kernel = self._kernel_for(X, rows.weights, rows.rows)
        previous = self._last_coefficients(n, 1, rows)
        previous = None if previous is None else previous[0]
        machines = self._machines(kernel, X, rows, None if y is None else y[rows.rows], previous)
        support, beta, bound, _ = rows.spread(machines.beta[None], machines.bound)
        self._keep(
            X,
            names,
            kernel,
            machines,
            support=support,
            beta=beta,
            bound=bound,
            intercept=machines.intercept,
            counts=[len(support)],
            n_iter_=int(machines.n_iter[0]),
            **self._more(machines),
        )
        return self

    def _targets(self, y, n):
        """Targets of n rows, checked; None for a machine without any."""
        return None

    def _more(self, machines):
        """Further attributes."""
        return {}


class _Regressor(RegressorMixin, _OneFunction):
    """Base of `SVR` and `NuSVR`."""

    def fit(self, X, y, sample_weight=None):
        """Fit to targets.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Training rows; with a precomputed kernel the matrix (n, n); whatever a kernel of strings or sets,
            or a callable, takes.
        y : array_like of shape (n,)
            Targets.
        sample_weight : array_like of shape (n,), float or None, default=None
            Factors of each row's C. A weight of 2 is the row written twice; one of 0 or less is the row left
            out.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input, before any work, with argument, place and remedy; and for a problem without a
            solution.
        """
        return self._fit(X, y, sample_weight)

    def _targets(self, y, n):
        y = one_column(check_targets(y, n, owner=type(self).__name__))
        return y.astype(np.float64, copy=False)

    def predict(self, X):
        """Predicted targets, ``k(X, support_vectors_) @ dual_coef_[0] + intercept_``.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            Rows; with a precomputed kernel the matrix against all training rows, or against the support
            vectors only, K[:, support_]; where these are all rows it is read as that against all, in their
            order.

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

    def _inseparable(self, bound):
        return (
            "C=inf: no function of this kernel comes near enough to every target, so that ‖w‖ has no limit; "
            "use a finite "
            "C, or a larger epsilon"
        )


class SVR(_Regressor):
    """Regression that ignores errors up to ε.

    It minimises ½‖w‖² + Σ Cᵢ max(0, |yᵢ − wᵀφ(xᵢ) − b| − ε), by its dual. It takes the place of
    scikit-learn's ``SVR``.

    Parameters
    ----------
    kernel, degree, gamma, coef0, kernel_params
        As for `SVC`.
    tol : float, default=1e-3
        By how much the optimality conditions (KKT) may be violated at the end, in units of y.
    C : float, default=1.0
        What an error beyond ε costs, larger than 0; infinity allows none.
    epsilon : float, default=0.1
        ε ≥ 0.
    shrinking, cache_size, verbose, max_iter, warm_start, n_jobs
        As for `SVC`.

    Attributes
    ----------
    support_ : ndarray of shape (s,)
        The support vectors' rows at `fit`.
    support_vectors_ : ndarray, csr_array or list
        Those rows, a copy; empty for a precomputed kernel.
    n_support_ : ndarray of shape (1,)
        s.
    dual_coef_ : ndarray or csr_array of shape (1, s)
        β = α − α*.
    intercept_ : ndarray of shape (1,)
        b.
    coef_ : ndarray or csr_array of shape (1, d)
        w, for the linear kernel.
    on_margin_ : ndarray of shape (s,)
        Which support vectors have 0 < |β| < C: their error is ε.
    objective_, primal_objective_, duality_gap_ : ndarray of shape (1,)
        ½βᵀKβ − yᵀβ + ε Σ|β|, then the objective above at the intercept, and their sum, which is ≥ 0. With
        ``C=inf`` both of these are infinite if an error exceeds ε, if only within `tol`.
    kkt_gap_, converged_ : ndarray of shape (1,)
        The violation reached, and whether it is within `tol`.
    margin_, hinge_loss_ : ndarray of shape (1,)
        1 / ‖w‖, and the sum of the errors beyond ε by weight, without C.
    n_iter_ : int
        Iterations.
    kernel_, fit_status_, solver_used_, shape_fit_, n_features_in_, feature_names_in_
        As for `SVC`.

    Warns
    -----
    ConvergenceWarning
        If `tol` was not reached, with the gap.

    References
    ----------
    Smola and Schölkopf, A tutorial on support vector regression, Statistics and Computing 14, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import SVR
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = SVR(C=100.0, gamma=10.0, epsilon=0.01).fit(X, np.sin(6 * X[:, 0]))
    >>> bool(np.max(np.abs(model.predict(X) - np.sin(6 * X[:, 0]))) < 0.012)
    True
    """

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

    def _machines(self, kernel, X, rows, y, previous):
        upper = in_range(self.C, rows.weights, "C times sample_weight")
        return self._solve(
            regression, kernel, X, rows.groups, y, upper, rows.weights, float(self.epsilon), previous=previous
        )


class NuSVR(_Regressor):
    """Regression with a bound on the share of support vectors in place of ε.

    It minimises ½‖w‖² + νε Σ Cᵢ + Σ Cᵢ max(0, |yᵢ − wᵀφ(xᵢ) − b| − ε) over ε, too, by its dual. It takes the
    place of scikit-learn's ``NuSVR``.

    Parameters
    ----------
    nu : float, default=0.5
        Upper bound of the share of errors beyond ε, lower bound of that of support vectors, both by weight;
        0 < nu ≤ 1.
    C : float, default=1.0
        What an error beyond ε costs, larger than 0 and finite.
    kernel, degree, gamma, coef0, kernel_params
        As for `SVC`.
    shrinking, tol, cache_size, verbose, max_iter, warm_start, n_jobs
        As for `SVR`.

    Attributes
    ----------
    epsilon_ : float
        ε.
    support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_, on_margin_
        As for `SVR`.
    objective_, primal_objective_, duality_gap_ : ndarray of shape (1,)
        ½βᵀKβ − yᵀβ, then the objective above at the intercept and ε, and their sum, which is ≥ 0.
    kkt_gap_, converged_, margin_, hinge_loss_, n_iter_, kernel_, fit_status_, solver_used_
        As for `SVR`.
    shape_fit_, n_features_in_, feature_names_in_
        Of X at `fit`.

    References
    ----------
    Schölkopf, Smola, Williamson and Bartlett, New support vector algorithms, Neural Computation 12, 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NuSVR
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = NuSVR(nu=0.3, C=100.0, gamma=10.0).fit(X, np.sin(6 * X[:, 0]))
    >>> bool(np.max(np.abs(model.predict(X) - np.sin(6 * X[:, 0]))) < 0.05)
    True
    """

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

    def _check_parameters(self):
        super()._check_parameters()
        if np.isinf(self.C):
            raise ValueError("C must be finite for NuSVR, whose coefficients sum to a share of it; got inf")

    def _machines(self, kernel, X, rows, y, previous):
        upper = in_range(self.C, rows.weights, "C times sample_weight")
        return self._solve(
            nu_regression, kernel, X, rows.groups, y, upper, rows.weights, float(self.nu), previous=previous
        )

    def _more(self, machines):
        return {"epsilon_": machines.extra["epsilon"]}


class OneClassSVM(OutlierMixin, _OneFunction):
    """Where most of a distribution lies, as a half-space of the feature space.

    It minimises ½‖w‖² − νρ Σ wᵢ + Σ wᵢ max(0, ρ − wᵀφ(xᵢ)), by its dual. It takes the place of scikit-learn's
    ``OneClassSVM``.

    Parameters
    ----------
    kernel, degree, gamma, coef0, kernel_params
        As for `SVC`.
    tol : float, default=1e-3
        By how much the optimality conditions (KKT) may be violated at the end.
    nu : float, default=0.5
        Upper bound of the share of outliers at `fit`, lower bound of that of support vectors, both by weight;
        0 < nu ≤ 1.
    shrinking, cache_size, verbose, max_iter, warm_start, n_jobs
        As for `SVC`.

    Attributes
    ----------
    support_, support_vectors_, n_support_, coef_, kernel_, fit_status_, solver_used_
        As for `SVR`.
    dual_coef_ : ndarray or csr_array of shape (1, s)
        α, whose sum is ν times that of the weights.
    intercept_, offset_ : ndarray of shape (1,)
        −ρ, and ρ.
    on_margin_ : ndarray of shape (s,)
        Which support vectors have 0 < α < wᵢ: their score is ρ.
    objective_, primal_objective_, duality_gap_ : ndarray of shape (1,)
        ½αᵀKα, then the objective above, and their sum, which is ≥ 0.
    kkt_gap_, converged_, margin_, hinge_loss_, n_iter_
        As for `SVR`.
    shape_fit_, n_features_in_, feature_names_in_
        Of X at `fit`.

    References
    ----------
    Schölkopf, Platt, Shawe-Taylor, Smola and Williamson, Estimating the support of a high-dimensional
    distribution, Neural Computation 13, 2001.

    Examples
    --------
    >>> from mercer import OneClassSVM
    >>> model = OneClassSVM(gamma=0.5, nu=0.5).fit([[0.0], [0.1], [-0.1], [4.0]])
    >>> model.predict([[0.0], [3.0]]).tolist()
    [1, -1]
    """

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
        """Fit to rows most of which are regular.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Training rows; with a precomputed kernel the matrix (n, n); whatever a kernel of strings or sets,
            or a callable, takes.
        y : object, default=None
            Not used.
        sample_weight : array_like of shape (n,), float or None, default=None
            A weight of 2 is the row written twice; one of 0 or less is the row left out.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input, before any work, with argument, place and remedy.
        """
        return self._fit(X, None, sample_weight)

    def _machines(self, kernel, X, rows, y, previous):
        return self._solve(one_class, kernel, X, rows.groups, rows.weights, float(self.nu), previous=previous)

    @property
    def offset_(self):
        """ρ, the score of what lies between regular rows and outliers: ``-intercept_``."""
        if "support_" not in self.__dict__:
            raise AttributeError("OneClassSVM is not fitted: there is no offset_")
        return -self.intercept_

    def decision_function(self, X):
        """Scores less ρ: positive for a row like most, negative for an outlier.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            Rows; with a precomputed kernel the matrix against all training rows, or against the support
            vectors only, K[:, support_]; where these are all rows it is read as that against all, in their
            order.

        Returns
        -------
        ndarray of shape (m,)
            float32 if both the training rows and these are.
        """
        return self._single_decision(X)

    def score_samples(self, X):
        """Scores, ``k(X, support_vectors_) @ dual_coef_[0]``.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)

        Returns
        -------
        ndarray of shape (m,)
        """
        return self.decision_function(X) + self.offset_

    def predict(self, X):
        """1 for a row like most, −1 for an outlier.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)

        Returns
        -------
        ndarray of shape (m,)
            Integers.
        """
        return np.where(self.decision_function(X) > 0, 1, -1).astype(np.intp)

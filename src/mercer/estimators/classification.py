"""Classifiers that minimise a kernelised cost: logistic regression, and the squared margin.

Place on the way: ``losses``, ``solvers`` → **estimators** → ``model_selection``.
"""

import numpy as np

from ..losses import JointSquaredMargin, Logistic, Softmax, SquaredMargin
from ._base import check_choice
from ._costs import CostClassifier

__all__ = ["KernelLogisticRegression", "SquaredMarginClassifier"]


class KernelLogisticRegression(CostClassifier):
    """Logistic regression in a kernel's feature space, for two classes and for more.

    Minimises Σ wᵢ l(yᵢ, b + hᵢᵀz) + α zᵀHz, where H is the kernel matrix of the training rows and hᵢ its
    columns: for two classes l is log(1 + e^(−yf)); for more each class has its z and b, their penalties add
    up, and l is log Σⱼ e^(fⱼ) less the own class's f.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, above 0.
    kernel : Kernel, str or callable, default="rbf"
        An expression such as ``0.5 * RBF(2.0) + Polynomial(3)``; a name ("linear", "poly", "rbf",
        "laplacian", "sigmoid", "cosine", "chi2", "fourier", "precomputed"); or a callable
        ``f(x_row, z_row, **kernel_params) -> float``. It has to be positive semidefinite.
    gamma : float, "scale", "auto" or None, default="scale"
        For names. "scale" is 1 / (n_features · X.var()), None and "auto" are 1 / n_features (1 for "chi2");
        the number is fixed at `fit`.
    degree : int, default=3
        For "poly" and "fourier".
    coef0 : float, default=0
        For "poly" and "sigmoid".
    kernel_params : dict or None, default=None
        Keyword arguments of a callable.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalised.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by class; "balanced" is Σw over (number of classes · Σw of the class).
        A class of weight 0 is left out.
    approximation : int or None, default=None
        So many training rows, drawn uniformly, span the functions: f(x) = k(x, C) z + b with the penalty
        α zᵀ k(C, C) z. Memory is then n times that. None, or as many as there are rows, is all of them.
    solver : {"auto", "newton", "lbfgs", "gd", "sgd"}, default="auto"
        "newton" (and "auto"): Newton's method, its systems by preconditioned conjugate gradients, or, of few
        rows and where few rows span the kernel matrix, by factors in its features; "lbfgs": SciPy's; "gd" and
        "sgd": gradient descent with momentum on all samples, or on batches.
    tol : float or None, default=None
        For the gradient in the feature space over that of the penalty, a bound of the function's relative
        error there, or, where rounding keeps that above it, for the gap over the objective; for "gd" and
        "sgd" for the gradient over that of the best b alone. None is 1e-8 for "newton", 1e-5 for "lbfgs",
        1e-4 for "gd", 1e-2 for "sgd".
    max_iter : int or None, default=None
        Most steps. None is 100 for "newton", 10000 for "lbfgs" and "gd", 500 rounds for "sgd".
    step : float, "backtracking" or None, default=None
        Of "gd" and "sgd"; "backtracking", for "gd" only, finds one by Armijo's rule. None is 1/L with L a
        bound of the cost's curvature; for "sgd" (1 − `momentum`)/L, which falls off as rounds go by.
    momentum : float or None, default=None
        Of "gd" and "sgd", at least 0 and below 1. None is 0 for "sgd"; for "gd" 0.9, or without a `step` what
        damps the slowest direction critically, at most 0.99.
    batch_size : int or None, default=None
        Of "sgd"; None is 32.
    memory_budget : float, default=1e9
        Bytes that the kernel matrix may take (1e9 is n = 11180); beyond, each product computes it anew.
    warm_start : bool, default=False
        Begin where the last fit of the same rows and classes ended.
    n_jobs : int or None, default=None
        Threads: None is OpenMP's setting or the cores available, −1 all cores.
    verbose : bool or int, default=False
        Show a progress bar with the gradient.
    random_state : int, RandomState, Generator or None, default=None
        Draws the rows of `approximation`, the preconditioner's pivots, which move results by less than
        `tol`, and batches.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        Labels, sorted; those without a row of positive weight too.
    dual_coef_ : ndarray of shape (m,) or (m, k)
        z, one column for each of more than two classes. Rows of weight ≤ 0 have none, except that with a
        precomputed kernel they have 0.
    intercept_ : float or ndarray of shape (k,)
        b; −∞ for a class that is left out.
    X_fit_ : ndarray, csr_array or list
        The training rows, or the drawn ones, that `dual_coef_` belongs to (a precomputed kernel: the
        matrix), a copy.
    kernel_ : Kernel
        The expression that was used.
    class_weight_ : ndarray of shape (k,)
        Factors by class.
    objective_ : float
        Σ w l + α zᵀHz.
    duality_gap_ : float
        What `objective_` is above its minimum at most; NaN with "gd" and "sgd".
    gradient_norm_ : float
        Where the solver stopped, as `tol` says; with "gd" and "sgd" over the norm of the best b alone.
    n_iter_ : int
        Steps.
    converged_ : bool
        Whether `tol` was reached.
    solver_used_ : str
        "newton", "lbfgs", "gd" or "sgd".
    history_ : dict
        With "gd" and "sgd": "objective", "gradient_norm" and "step" by iteration.
    n_features_in_ : int
        Columns at `fit`.
    feature_names_in_ : ndarray of shape (d,)
        Their names, if they were all strings.

    See Also
    --------
    SquaredMarginClassifier : Without probabilities, and with coefficients that are 0 beyond the margin.

    Notes
    -----
    With a linear kernel it is scikit-learn's ``LogisticRegression`` with C = 1/(2α). The intercepts of more
    than two classes sum to 0; a common shift changes nothing.

    References
    ----------
    MLR7 (7.43) and (7.48).

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import KernelLogisticRegression
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> model = KernelLogisticRegression(kernel="linear", alpha=0.5).fit(X, ["no", "no", "yes", "yes"])
    >>> model.predict([[3.0], [-0.5]]).tolist()
    ['yes', 'no']
    >>> bool(model.predict_proba([[3.0]])[0, 1] > 0.9)
    True
    """

    def __init__(
        self,
        alpha=1.0,
        *,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0,
        kernel_params=None,
        fit_intercept=True,
        class_weight=None,
        approximation=None,
        solver="auto",
        tol=None,
        max_iter=None,
        step=None,
        momentum=None,
        batch_size=None,
        memory_budget=1e9,
        warm_start=False,
        n_jobs=None,
        verbose=False,
        random_state=None,
    ):
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.approximation = approximation
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.step = step
        self.momentum = momentum
        self.batch_size = batch_size
        self.memory_budget = memory_budget
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _loss(self, n_present):
        return (Logistic(), "sign") if n_present == 2 else (Softmax(), "code")

    def predict(self, X):
        """Labels.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (m,)
            The class of the largest probability, of equal ones the first.
        """
        labels = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[labels]

    def predict_proba(self, X):
        """Probabilities of the classes.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (m, k)
            Each row sums to 1; 0 for a class without training rows of positive weight.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X):
        """Logarithms of `predict_proba`, finite where those have become 0.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)

        Returns
        -------
        ndarray of shape (m, k)
            −∞ for a class without training rows of positive weight.
        """
        self._require_fit("classes_")
        f = self._decisions(X)
        if f.ndim == 1:
            # −log(1 + e^(±f)); of the nearly certain class the probability is then next to 1, not above.
            return np.stack([-np.logaddexp(0, f), -np.logaddexp(0, -f)], axis=1)
        f = f - f.max(axis=1, keepdims=True)
        return f - np.log(np.exp(f).sum(axis=1, keepdims=True))


class SquaredMarginClassifier(CostClassifier):
    """The squared margin cost in a kernel's feature space: the squared hinge, for two classes and for more.

    Minimises Σ wᵢ max²(0, 1 − yᵢ(b + hᵢᵀz)) + α zᵀHz, where H is the kernel matrix of the training rows and
    hᵢ its columns. Rows beyond the margin have the dual coefficient 0.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, above 0.
    kernel : Kernel, str or callable, default="rbf"
        An expression such as ``0.5 * RBF(2.0) + Polynomial(3)``; a name ("linear", "poly", "rbf",
        "laplacian", "sigmoid", "cosine", "chi2", "fourier", "precomputed"); or a callable
        ``f(x_row, z_row, **kernel_params) -> float``. It has to be positive semidefinite.
    gamma : float, "scale", "auto" or None, default="scale"
        For names. "scale" is 1 / (n_features · X.var()), None and "auto" are 1 / n_features (1 for "chi2");
        the number is fixed at `fit`.
    degree : int, default=3
        For "poly" and "fourier".
    coef0 : float, default=0
        For "poly" and "sigmoid".
    kernel_params : dict or None, default=None
        Keyword arguments of a callable.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalised.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by class; "balanced" is Σw over (number of classes · Σw of the class).
        A class of weight 0 is left out.
    multiclass : {"ovr", "joint"}, default="ovr"
        Of more than two classes: each against the rest; or one problem, Σ_{j≠c} max²(0, 1 + fⱼ − f_c) with c
        the row's own class.
    approximation : int or None, default=None
        So many training rows, drawn uniformly, span the functions: f(x) = k(x, C) z + b with the penalty
        α zᵀ k(C, C) z. Memory is then n times that. None, or as many as there are rows, is all of them.
    solver : {"auto", "newton", "lbfgs", "gd", "sgd"}, default="auto"
        "newton" (and "auto"): Newton's method, its systems by preconditioned conjugate gradients; where the
        matrix is in memory it begins, in the joint form of many rows after some steps, at the optimum of the
        dual, found by steps over faces of its box. Where few rows span the matrix, in its features instead.
        "lbfgs": SciPy's; "gd" and "sgd": gradient descent with momentum on all samples, or on batches.
    tol : float or None, default=None
        For the gradient in the feature space over that of the penalty, a bound of the function's relative
        error there, or, where rounding keeps that above it, for the gap over the objective; for "gd" and
        "sgd" for the gradient over that of the best b alone. None is 1e-8 for "newton", 1e-5 for "lbfgs",
        1e-4 for "gd", 1e-2 for "sgd".
    max_iter : int or None, default=None
        Most steps, those over faces of the dual not counted. None is 100 for "newton", 10000 for "lbfgs" and
        "gd", 500 rounds for "sgd".
    step : float, "backtracking" or None, default=None
        Of "gd" and "sgd"; "backtracking", for "gd" only, finds one by Armijo's rule. None is 1/L with L a
        bound of the cost's curvature; for "sgd" (1 − `momentum`)/L, which falls off as rounds go by.
    momentum : float or None, default=None
        Of "gd" and "sgd", at least 0 and below 1. None is 0 for "sgd"; for "gd" 0.9, or without a `step` what
        damps the slowest direction critically, at most 0.99.
    batch_size : int or None, default=None
        Of "sgd"; None is 32.
    memory_budget : float, default=1e9
        Bytes that the kernel matrix may take (1e9 is n = 11180); beyond, each product computes it anew.
    warm_start : bool, default=False
        Begin where the last fit of the same rows and classes ended.
    n_jobs : int or None, default=None
        Threads: None is OpenMP's setting or the cores available, −1 all cores.
    verbose : bool or int, default=False
        Show a progress bar with the gradient.
    random_state : int, RandomState, Generator or None, default=None
        Draws the rows of `approximation`, the preconditioner's pivots, which move results by less than
        `tol`, and batches.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        Labels, sorted; those without a row of positive weight too.
    dual_coef_ : ndarray of shape (m,) or (m, k)
        z, one column for each of more than two classes. Rows of weight ≤ 0 have none, except that with a
        precomputed kernel they have 0.
    intercept_ : float or ndarray of shape (k,)
        b; −∞ for a class that is left out.
    X_fit_ : ndarray, csr_array or list
        The training rows, or the drawn ones, that `dual_coef_` belongs to (a precomputed kernel: the
        matrix), a copy.
    kernel_ : Kernel
        The expression that was used.
    class_weight_ : ndarray of shape (k,)
        Factors by class.
    objective_ : float or ndarray of shape (k,)
        Σ w l + α zᵀHz, one entry for each problem of "ovr".
    duality_gap_ : float or ndarray of shape (k,)
        What `objective_` is above its minimum at most; NaN with "gd" and "sgd".
    gradient_norm_ : float or ndarray of shape (k,)
        Where the solver stopped, as `tol` says; with "gd" and "sgd" over the norm of the best b alone.
    n_iter_ : int
        Steps.
    converged_ : bool
        Whether `tol` was reached.
    solver_used_ : str
        "newton", "lbfgs", "gd" or "sgd".
    history_ : dict or list of dict
        With "gd" and "sgd": "objective", "gradient_norm" and "step" by iteration.
    n_features_in_ : int
        Columns at `fit`.
    feature_names_in_ : ndarray of shape (d,)
        Their names, if they were all strings.

    See Also
    --------
    KernelLogisticRegression : With probabilities.
    SVC : The margin cost without the square.

    References
    ----------
    MLR7 (7.46); J. Weston and C. Watkins, Support vector machines for multi-class pattern recognition, 1999,
    for the joint form.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import SquaredMarginClassifier
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> model = SquaredMarginClassifier(kernel="linear", alpha=0.1).fit(X, [0, 0, 1, 1])
    >>> model.predict([[3.0], [-0.5]])
    array([1, 0])
    """

    def __init__(
        self,
        alpha=1.0,
        *,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0,
        kernel_params=None,
        fit_intercept=True,
        class_weight=None,
        multiclass="ovr",
        approximation=None,
        solver="auto",
        tol=None,
        max_iter=None,
        step=None,
        momentum=None,
        batch_size=None,
        memory_budget=1e9,
        warm_start=False,
        n_jobs=None,
        verbose=False,
        random_state=None,
    ):
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.multiclass = multiclass
        self.approximation = approximation
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.step = step
        self.momentum = momentum
        self.batch_size = batch_size
        self.memory_budget = memory_budget
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _check_parameters(self):
        super()._check_parameters()
        check_choice("multiclass", self.multiclass, ("ovr", "joint"))

    def _loss(self, n_present):
        if n_present == 2:
            return SquaredMargin(), "sign"
        return (JointSquaredMargin(), "code") if self.multiclass == "joint" else (SquaredMargin(), "rest")

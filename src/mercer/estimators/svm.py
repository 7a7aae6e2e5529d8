"""Support vector machines.

Place on the way: ``solvers`` → ``_machines`` → ``_svm`` → ``_svc``, ``_svr`` → **svm**.
"""

import warnings

import numpy as np

from ..solvers.dual_layout import STATUS
from ._all_at_once import all_at_once
from ._base import check_choice
from ._canonical import equal_across
from ._machines import c_machines, n_problems, nu_machines, pairs_of
from ._svc import SupportVectorClassifier
from ._svm import in_range
from ._svr import SVR, NuSVR, OneClassSVM

__all__ = ["SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM"]


class SVC(SupportVectorClassifier):
    """Classification by the widest margin between classes in a kernel's feature space.

    For each pair of classes it minimises ½‖w‖² + Σ Cᵢ ξᵢ over w, b and ξ ≥ 0 with yᵢ(wᵀφ(xᵢ) + b) ≥ 1 − ξᵢ,
    by its dual. It takes the place of scikit-learn's ``SVC``.

    Parameters
    ----------
    C : float, default=1.0
        What a violation of the margin costs, larger than 0; infinity allows none (hard margin).
    kernel : Kernel, str or callable, default="rbf"
        An expression such as ``0.5 * RBF(2.0) + Polynomial(3)``; a name ("linear", "poly", "rbf",
        "laplacian", "sigmoid", "cosine", "chi2", "fourier", "precomputed"); or a callable
        ``f(X, Z, **kernel_params) -> (n, m)`` of two blocks of rows.
    degree : int, default=3
        For the names "poly" and "fourier".
    gamma : float, "scale" or "auto", default="scale"
        For names. "scale" is 1 / (n_features · X.var()), each row counted by its weight, "auto" is
        1 / n_features; the number is fixed at `fit`.
    coef0 : float, default=0.0
        For the names "poly" and "sigmoid".
    kernel_params : dict or None, default=None
        Keyword arguments of a callable.
    shrinking : bool, default=True
        Whether samples that look settled are left alone until the end. It changes the time only.
    probability : bool, default=False
        Whether to fit `predict_proba`: sigmoids of the decisions about held-out samples of five folds. For
        three or more classes `predict`, which goes by the decisions, may differ from the most probable class.
    tol : float, default=1e-3
        By how much the optimality conditions (KKT) may be violated at the end.
    cache_size : float or None, default=None
        Megabytes for rows of the kernel matrix; None is half of the memory that is free.
    class_weight : dict, "balanced" or None, default=None
        Factors of C by class. "balanced" is Σ of all weights over (number of classes · Σ of the class's).
    verbose : bool, default=False
        Show a progress bar with the gap.
    max_iter : int, default=-1
        Pairwise steps of each problem at most; −1 for no limit of practical use. Newton steps over faces,
        taken in between where pairwise steps crawl, do not count. For Crammer and Singer's problem blocks of
        samples.
    multiclass : {"ovo", "ovr", "crammer-singer"}, default="ovo"
        What is trained for more than two classes: pairs, each class against all others, or all in one problem
        without intercepts.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Whether `decision_function` has one column for each class or for each pair.
    break_ties : "auto" or bool, default="auto"
        For pairs. "auto": `predict` returns the class of the largest `decision_function` value where it has a
        column for each class. False: LIBSVM's vote, where of equal votes the first class wins. True: as
        "auto", and an error with ``decision_function_shape="ovo"``. Of two classes a decision of exactly 0 is
        for the first one (LIBSVM's for the second).
    warm_start : bool, default=False
        Start from the coefficients of the last fit, where they are feasible.
    n_jobs : int or None, default=None
        Threads: None is OpenMP's setting or the cores available, −1 all cores. It changes nothing in the
        results.
    random_state : int, RandomState or None, default=None
        Not used: nothing is drawn.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        Sorted labels.
    support_ : ndarray of shape (s,)
        The support vectors' rows at `fit`, by class.
    support_vectors_ : ndarray, csr_array or list
        Those rows, a copy; empty for a precomputed kernel.
    n_support_ : ndarray of shape (k,)
        How many each class has.
    dual_coef_ : ndarray or csr_array of shape (k - 1, s)
        yα in LIBSVM's layout: row b − 1 of the support vectors of class a, and row a of those of class b,
        hold the pair (a, b), a < b. Otherwise of shape (k, s), a row for each class.
    intercept_ : ndarray of shape (k (k - 1) / 2,), or (k,)
        The mean over the support vectors on the margin; the middle of what is optimal where there is none.
    coef_ : ndarray or csr_array of shape (k (k - 1) / 2, d), or (k, d)
        w, for the linear kernel.
    class_weight_ : ndarray of shape (k,)
        Factors of C.
    on_margin_ : ndarray of shape (s,)
        Which support vectors have 0 < α < C in some problem.
    objective_, primal_objective_, duality_gap_ : ndarray of shape (p,)
        For each problem ½αᵀQα − Σα, then ½‖w‖² + Σ Cᵢξᵢ at the intercept, and their sum, which is ≥ 0.
    kkt_gap_, converged_, n_iter_ : ndarray of shape (p,)
        The violation reached, whether it is within `tol`, and the iterations, which `max_iter` limits.
    margin_, hinge_loss_ : ndarray of shape (p,)
        1 / ‖w‖, and Σ ξᵢ by weight, without C.
    probA_, probB_ : ndarray of shape (p,)
        The sigmoids 1 / (1 + exp(A f + B)); B is 0 for two classes.
    kernel_ : Kernel
        The expression that was used.
    fit_status_ : int
        0, or 1 where `max_iter` was reached.
    solver_used_ : str
        "smo", or "blocks" for Crammer and Singer's problem, with the precision of the kernel's rows.
    shape_fit_, n_features_in_, feature_names_in_
        Of X at `fit`.

    Raises
    ------
    ValueError
        With ``C=inf`` if a pair of classes is not separable, with the equal rows or the bound on the margin
        that prove it.

    Warns
    -----
    ConvergenceWarning
        If `tol` was not reached, with the gap.

    Notes
    -----
    Rows that are equal, with labels that are, are solved as one, in an order of their content: a weight of 2
    is the row written twice, and the order of the rows has no influence on coefficients, intercepts and
    objectives, to the last digit. `decision_function` adds up in the order of `support_`, which moves it by
    rounding, about 1e-15 of its size.

    References
    ----------
    LN14, kernel support vector machines; LINMA 4.4. Fan, Chen and Lin, Working set selection using second
    order information for training support vector machines, JMLR 6, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import SVC
    >>> X = np.array([[0.0], [1.0], [3.0], [6.0]])
    >>> model = SVC(C=np.inf, kernel="linear").fit(X, ["low", "low", "high", "high"])
    >>> model.predict([[1.9], [2.1]]).tolist()
    ['low', 'high']
    >>> model.support_.tolist(), model.margin_.tolist()
    ([2, 1], [1.0])
    """

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
        if self.probability and self.multiclass == "crammer-singer":
            raise ValueError("probability=True needs machines of two sides: use multiclass='ovo' or 'ovr'")

    def _is_pairwise(self, k):
        return self.multiclass == "ovo" or (k == 2 and self.multiclass == "ovr")

    def _machines(self, kernel, X, rows, weights, codes, present, previous, folds):
        upper = in_range(self.C, weights, "C times sample_weight times class_weight")
        if np.isinf(self.C):
            self._check_separable(X, rows, codes)
        if self.multiclass == "crammer-singer":
            return self._solve_at_once(all_at_once, kernel, X, rows, upper, weights, previous)
        pairs = pairs_of(present) if self._is_pairwise(len(rows.offsets) - 1) else None
        if pairs is None and previous is not None:
            previous = [previous[group] for group in present]
        options = {"folds": folds, "previous": previous}
        options["n_problems"] = n_problems(len(present) if pairs is None else len(pairs), folds)
        return self._solve(c_machines, kernel, X, rows.groups, rows, upper, weights, pairs, **options)

    def _check_separable(self, X, rows, codes):
        """Raise if equal rows have different labels: no kernel tells them apart."""
        if isinstance(X, list) or self._is_precomputed(self.kernel):
            return
        same = equal_across(X, rows.rows, codes)
        if same is not None:
            raise ValueError(
                f"C=inf: the classes are not separable, since rows {same[0]} and {same[1]} of X are equal "
                f"and their "
                "labels are not; use a finite C, or drop one"
            )


class NuSVC(SupportVectorClassifier):
    """Classification with a bound on the share of support vectors in place of a cost.

    For each pair of classes it minimises ½‖w‖² − νρ Σ wᵢ + Σ wᵢ ξᵢ with yᵢ(wᵀφ(xᵢ) + b) ≥ ρ − ξᵢ, by its
    dual, and divides w and b by ρ. It takes the place of scikit-learn's ``NuSVC``.

    Parameters
    ----------
    nu : float, default=0.5
        Lower bound of the share of support vectors, upper bound of that of rows inside of the margin, both by
        weight. At most twice the smaller class's share in a pair.
    kernel, degree, gamma, coef0, kernel_params
        As for `SVC`.
    shrinking, probability, tol, cache_size
        As for `SVC`; `tol` is for the problem before the division by ρ.
    class_weight : dict, "balanced" or None, default=None
        Factors of the rows' weights by class.
    verbose, max_iter, decision_function_shape, break_ties, warm_start, n_jobs, random_state
        As for `SVC`.

    Attributes
    ----------
    classes_, support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_, class_weight_, on_margin_
        As for `SVC`.
    objective_, primal_objective_, duality_gap_ : ndarray of shape (p,)
        Those of the problems above, before the division by ρ: ½αᵀQα is the first.
    kkt_gap_, converged_, n_iter_, margin_, hinge_loss_, probA_, probB_, kernel_, fit_status_, solver_used_
        As for `SVC`.
    shape_fit_, n_features_in_, feature_names_in_
        Of X at `fit`.

    Raises
    ------
    ValueError
        If nu is infeasible, with the largest that is not.

    Warns
    -----
    UserWarning
        If ρ is 0 for a pair of classes: their decisions then say nothing.
    ConvergenceWarning
        If `tol` was not reached, with the gap.

    References
    ----------
    Schölkopf, Smola, Williamson and Bartlett, New support vector algorithms, Neural Computation 12, 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NuSVC
    >>> X = np.array([[0.0], [1.0], [3.0], [6.0]])
    >>> model = NuSVC(nu=0.5, kernel="linear").fit(X, [-1, -1, 1, 1])
    >>> model.predict([[1.5], [4.0]]).tolist()
    [-1, 1]
    """

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
        pairs = pairs_of(present)
        sums = np.bincount(codes[rows.rows], weights, minlength=len(rows.offsets) - 1)[pairs]
        feasible = float(np.min(2 * sums.min(axis=1) / sums.sum(axis=1)))
        if self.nu > feasible * (1 + 1e-12):
            raise ValueError(
                f"specified nu is infeasible: nu={self.nu!r}, and the largest feasible nu is {feasible:.6g}, "
                f"twice the "
                "smaller share of a class (by weight) in a pair of classes"
            )
        options = {"folds": folds, "previous": previous, "n_problems": n_problems(len(pairs), folds)}
        machines = self._solve(nu_machines, kernel, X, rows.groups, rows, weights, self.nu, pairs, **options)
        self._warn_of_margins(machines)
        return machines

    def _warn_of_margins(self, machines):
        """Say so where decisions, which were divided by rho, are noise."""
        rho, gap = machines.extra["rho"], machines.kkt_gap
        flat = rho != machines.scale
        small = ~flat & (rho <= gap) & (machines.status == STATUS.index("converged"))
        where = f"in {np.count_nonzero(flat if flat.any() else small)} of {len(rho)} pairs of classes"
        if flat.any():
            text = (
                f"nu={self.nu!r} leaves no margin (rho = 0) {where}, since their reduced convex hulls meet: "
                "their decisions say nothing; raise nu"
            )
        elif small.any():
            text = (
                f"nu={self.nu!r} leaves no margin (rho) {where} that is larger than the gap that was "
                f"reached, {gap[small].max():.1e}: their decisions say little; lower tol, or raise nu"
            )
        else:
            return
        warnings.warn(text, UserWarning, stacklevel=4)

"""What the five support vector machines share: parameters, rows, attributes, and sums over support vectors.

Place on the way: ``solvers`` → ``_machines`` → **_svm** → ``svm``.
"""

import warnings
from functools import update_wrapper

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_feature_names

from .._arrays import check_samples, check_weights
from .._progress import progress
from .._threads import n_threads
from ..kernels.base import Kernel
from ..kernels.dot_product import Linear
from ..kernels.precomputed import PER_PAIR, FunctionKernel, Precomputed
from ..kernels.prepared import n_rows
from ..kernels.user import name_of
from ..solvers.dual import DualSamples
from ..solvers.dual_layout import STATUS
from ..solvers.eigenpairs import ritz_values
from ._base import KernelEstimator, check_flag, check_number, own_rows, same_parameters
from ._canonical import canonical_rows
from ._expansion import Expansion

__all__ = ["SupportVectorMachine", "in_range"]

_NO_WEIGHT = "Invalid input - all samples have zero or negative weights."
# Rows of all samples fit into so much: then nobody asks how much memory is free, which takes as long as a
# small fit.
_SMALL_CACHE = 2**26
_SMALL = 1000
# Entries of a sparse matrix that is made dense for the solver, which packs dense panels anyway.
_DENSE_UP_TO = 2**20
# An eigenvalue below −this times the largest is no rounding.
_INDEFINITE = 1e-6
_LANCZOS_UP_TO = 4000
# From so many kernel values on labels are decided by rounded ones, where these leave no doubt.
_ROUNDED_FROM = 2e5


class _Blocks:
    """A callable kernel with its keyword arguments; a sparse matrix that it returns becomes an array."""

    def __init__(self, function, params):
        self.function, self.params = function, dict(params or {})
        update_wrapper(self, function, updated=())

    def __call__(self, X, Z):
        try:
            K = self.function(X, Z, **self.params)
        except Exception as error:
            error.add_note(
                f"the kernel {name_of(self.function)} was called with two blocks, of {n_rows(X)} and "
                f"{n_rows(Z)} rows; {PER_PAIR}"
            )
            raise
        return K.toarray() if sp.issparse(K) else K

    def __eq__(self, other):
        same = isinstance(other, _Blocks) and self.function == other.function
        return same and same_parameters(self.params, other.params)

    def __hash__(self):
        return hash((_Blocks, self.function, tuple(sorted(self.params))))


class SupportVectorMachine(KernelEstimator):
    """Base of the five machines."""

    # Frames from a warning about the samples up to the caller of fit.
    _fit_depth = 4

    # ---------------------------------------------------------------- parameters

    def _check_parameters(self):
        """Raise for a parameter that is out of its range, before any work."""
        self._check_kernel()
        check_number("tol", self.tol, above=0, finite=True)
        check_number("cache_size", self.cache_size, above=0, none=True)
        check_number("max_iter", self.max_iter, least=-1, integer=True)
        check_flag("shrinking", self.shrinking)
        check_flag("warm_start", self.warm_start)
        if self.n_jobs is not None:
            n_threads(self.n_jobs)
        for name, least in (("C", None), ("nu", None), ("epsilon", 0)):
            if hasattr(self, name):
                above = 0 if least is None else None
                check_number(name, getattr(self, name), above=above, least=least, finite=name == "epsilon")
        if hasattr(self, "nu") and self.nu > 1:
            raise ValueError(f"nu must be larger than 0 and at most 1, got {self.nu!r}")

    def _options(self, n):
        """What `DualSamples.solve` is told."""
        small = _SMALL_CACHE if n <= _SMALL else None
        return {
            "tol": float(self.tol),
            "max_iter": int(self.max_iter),
            "cache_bytes": small if self.cache_size is None else float(self.cache_size) * 2**20,
            "shrinking": bool(self.shrinking),
        }

    # ---------------------------------------------------------------- samples

    def _is_function(self):
        return callable(self.kernel) and not isinstance(self.kernel, Kernel)

    _blocks_of = _Blocks

    def _variance(self, X, weights, rows):
        # Of rows by content: the caller's order would change the last digit, and with it where a fit ends
        # within `tol`.
        variance = super()._variance(X, weights, rows)
        if not np.isfinite(variance):
            raise ValueError(
                "The dual coefficients or intercepts are not finite: the variance of X, from which "
                "gamma='scale' comes, leaves "
                "float64's range; scale the samples down first"
            )
        return variance

    def _training_samples(self, X):
        if self._is_function():
            checked = FunctionKernel(self.kernel)._checked(X)
            if isinstance(checked, list):
                return checked, None
        if sp.issparse(X) and self._is_precomputed(self.kernel):
            raise TypeError("Sparse precomputed kernels are not supported; pass the matrix as K.toarray()")
        X, names = super()._training_samples(X)
        if self.kernel == "precomputed" or type(self.kernel) is Precomputed:
            warn_if_indefinite(X, self._fit_depth)
        return X, names

    def _query_samples(self, X):
        """X checked against the fit; of a kernel matrix the columns of the support vectors."""
        if self._is_function() and not hasattr(self, "n_features_in_"):
            return self.kernel_._checked(X)
        if not self._is_precomputed(self.kernel):
            return super()._query_samples(X)
        if sp.issparse(X):
            raise TypeError("Sparse precomputed kernels are not supported; pass the matrix as K.toarray()")
        n, n_support = self.shape_fit_[0], len(self.support_)
        given, X = X, check_samples(X, owner=type(self).__name__)
        if X.shape[1] == n and type(given) is not np.ndarray:
            _check_feature_names(self, given, reset=False)
        if X.shape[1] not in (n, n_support):
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {n} features as input: "
                f"X.shape[1] = {X.shape[1]} should be equal to {n}, the number of samples at training time "
                f"(or to "
                f"{n_support}, that of the support vectors: K[:, model.support_])"
            )
        return X[:, self.support_] if X.shape[1] == n else X

    def _weights(self, sample_weight, n):
        """Weights as `check_weights`; scikit-learn's words where none is positive."""
        if sample_weight is None:
            return None
        given = np.asarray(sample_weight)
        if given.dtype.kind in "fiub" and given.shape == (n,) and n and (given <= 0).all():
            raise ValueError(f"{_NO_WEIGHT} At least one sample_weight must be larger than 0")
        weights = check_weights(sample_weight, n)
        with np.errstate(over="ignore"):
            if weights is not None and np.isinf(np.maximum(weights, 0).sum()):
                raise ValueError(
                    f"sample_weight sums to more than float64 holds (its largest is {weights.max():.3g}); "
                    "divide all weights by that"
                )
        return weights

    def _canonical(self, X, codes, n_groups, weights, targets=None):
        """Distinct rows; of a kernel matrix, or of what is no matrix of numbers, all as they are."""
        numbers = isinstance(X, np.ndarray) or sp.issparse(X)
        merge = numbers and not self._is_precomputed(self.kernel)
        return canonical_rows(X, codes, n_groups, weights, targets=targets, merge=merge)

    def _solve(self, solve, kernel, X, groups, *args, n_problems=1, **kwargs):
        """Run one function of `_machines`, with a progress bar."""
        if sp.issparse(X) and X.shape[0] * X.shape[1] <= _DENSE_UP_TO and "any" not in kernel._readers():
            X = X.toarray()  # faster, and then storage changes no digit
        samples = DualSamples(kernel, X, groups, n_threads=self.n_jobs)
        with progress(self.verbose, type(self).__name__, n_problems, label="gap") as on_step:
            options = self._options(sum(map(len, groups)))
            machines = solve(samples, *args, on_step=on_step, **kwargs, **options)
        self._judge(machines)
        return machines

    def _solve_at_once(self, solve, kernel, *args):
        """Run `all_at_once` likewise."""
        options = self._options(0)
        options.pop("shrinking")
        if self.cache_size is None:
            options["cache_bytes"] = None
        with progress(self.verbose, type(self).__name__, label="gap") as on_step:
            machines = solve(kernel, *args, n_jobs=self.n_jobs, on_step=on_step, **options)
        self._judge(machines)
        return machines

    def _last_coefficients(self, n, p, rows):
        """(p, m) coefficients of the last fit by distinct row, if it is wanted and had this form."""
        known = self.__dict__
        if not self.warm_start or "support_" not in known or self.shape_fit_[0] != n or len(self._beta) != p:
            return None
        out = np.zeros((p, n))
        out[:, self.support_] = self._beta
        return rows.gathered(out)

    def _judge(self, machines):
        """Raise for what has no solution."""
        reached = {STATUS[status] for status in machines.status.tolist()}
        if "inseparable" in reached:
            bound = machines.margin_bound[machines.status == STATUS.index("inseparable")].min()
            raise ValueError(self._inseparable(bound))
        finite = np.isfinite(machines.intercept).all() and np.isfinite(machines.beta).all()
        if "not finite" in reached or not finite:
            raise ValueError(
                "The dual coefficients or intercepts are not finite. The input data may contain large values "
                "and need to be "
                "preprocessed: scale the samples, or use kernel.normalize()"
            )

    def _inseparable(self, bound):
        return (
            f"C=inf: the classes are not separable by this kernel (the margin is at most {bound:.1e}, which "
            f"is rounding); "
            "use a finite C"
        )

    def _warn(self, machines):
        """Say so where `tol` was not reached."""
        short = machines.status != STATUS.index("converged")
        if not short.any():
            return
        gap = float(machines.kkt_gap[short].max())
        if (machines.status == STATUS.index("capped")).any():
            limit = "its own limit of steps" if self.max_iter == -1 else f"max_iter={self.max_iter}"
            text = (
                f"Solver terminated early ({limit}).  Consider pre-processing your data with StandardScaler "
                f"or MinMaxScaler. The gap reached is {gap:.1e}, and tol={self.tol:.1e}"
            )
        else:
            text = (
                f"{type(self).__name__} stopped at a gap of {gap:.1e}, short of tol={self.tol:.1e}: rounding "
                f"leaves no step "
                "that helps; raise tol, or scale the samples"
            )
        warnings.warn(text, ConvergenceWarning, stacklevel=5)

    # ---------------------------------------------------------------- attributes

    def _keep(
        self,
        X,
        names,
        kernel,
        machines,
        *,
        support,
        beta,
        bound,
        intercept,
        counts,
        scale=None,
        sign=1.0,
        **more,
    ):
        """Assign what the fit found, all at the end: a fit that fails leaves the estimator as it was.

        `beta` (p, s) is the solver's, within `bound`, and what a warm start begins with; the functions'
        coefficients are β over `scale`; those that are published have `sign`, too.
        """
        dtype = X.dtype if getattr(X, "dtype", None) == np.float32 else np.dtype(np.float64)
        precomputed = self._is_precomputed(self.kernel)
        vectors = np.empty((0, 0), dtype) if precomputed else own_rows(X, support)
        coefficients = beta if scale is None else beta / scale
        published = (sign * coefficients).astype(dtype)
        size = np.abs(beta)
        converged = machines.status == STATUS.index("converged")
        with np.errstate(divide="ignore"):
            margin = 1 / np.sqrt(machines.squared_norm)
        kept = {
            "kernel_": kernel,
            "support_": support.astype(np.int32),
            "support_vectors_": vectors,
            "dual_coef_": sp.csr_array(published) if sp.issparse(X) else published,
            "intercept_": (sign * intercept + 0.0).astype(dtype),
            "on_margin_": ((size > 0) & (size < bound)).any(axis=0),
            "shape_fit_": X.shape if hasattr(X, "shape") else (len(X),),
            "fit_status_": int((machines.status == STATUS.index("capped")).any()),
            "objective_": machines.objective.copy(),
            "primal_objective_": machines.primal,
            "duality_gap_": machines.gap,
            "kkt_gap_": np.maximum(machines.kkt_gap, 0.0),
            "converged_": converged,
            "margin_": margin,
            "hinge_loss_": machines.loss,
            "solver_used_": f"{'blocks' if machines.coupled else 'smo'}, {machines.rows}",
            "_beta": beta,
            "_dual_coef_": coefficients,
            "_intercept_": intercept,
            "_n_support": np.asarray(counts, dtype=np.int32),
            "_gamma": getattr(kernel, "gamma", 0.0),
            **more,
        }
        self.__dict__.update(kept)
        self._packed = None if precomputed else Expansion(kernel, kept["support_vectors_"])
        self._set_features(X, names)
        self._warn(machines)

    @property
    def n_support_(self):
        """Support vectors of each class; one number for regression and one class."""
        if "_n_support" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} is not fitted: there is no n_support_")
        return self._n_support

    @property
    def coef_(self):
        """Weights of the features, for the linear kernel only; read-only."""
        if self.kernel != "linear" and not (type(self.kernel) is Linear and self.kernel == Linear()):
            raise AttributeError("coef_ is only available when using a linear kernel")
        if "support_" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} is not fitted: there is no coef_")
        coef = self._get_coef()
        (coef.data if sp.issparse(coef) else coef).flags.writeable = False
        return coef

    def _get_coef(self):
        return safe_sparse_dot(self.dual_coef_, self.support_vectors_)

    # ---------------------------------------------------------------- sums over support vectors

    def _function_sums(self, X):
        """Sums over the support vectors, (m, p) for p rows of coefficients."""
        return self._terms()(X, self._dual_coef_, self.n_jobs)

    def _terms(self):
        """The support vectors, packed for sums once they are wanted."""
        n = len(self.support_)
        if self._is_precomputed(self.kernel):
            known = Expansion(self.kernel_, np.broadcast_to(np.zeros(1), (n, n)))
        else:
            known = self.__dict__.get("_packed")
            if known is None or known.samples is not self.support_vectors_:  # somebody put others there
                known = Expansion(self.kernel_, self.support_vectors_)
        if not n == self._n_support.sum() == known.n_terms == self._dual_coef_.shape[1]:
            raise ValueError(f"The internal representation of {type(self).__name__} was altered")
        return known

    def _rounded_terms(self, X):
        """The same where labels by float32 sums pay; else None."""
        if n_rows(X) * len(self.support_) < _ROUNDED_FROM:
            return None
        terms = self._terms()
        return terms if terms.has_single else None

    def _dtype_of(self, X):
        single = getattr(X, "dtype", None) == np.float32 and self.intercept_.dtype == np.float32
        return np.dtype(np.float32 if single else np.float64)

    def _single_decision(self, X):
        """Σ βᵢ k(x, xᵢ) + b of the only function there is, of shape (m,)."""
        self._require_fit("support_")
        X = self._query_samples(X)
        values = self._function_sums(X)[:, 0] + self._intercept_[0]
        return values.astype(self._dtype_of(X), copy=False)


def in_range(factors, weights, name):
    """Weights times factors; they are infinite where the factor is.

    Parameters
    ----------
    factors : float or ndarray of shape (m,)
    weights : ndarray of shape (m,)
        Larger than 0.
    name : str
        How an error calls the product.

    Returns
    -------
    ndarray of shape (m,)

    Raises
    ------
    ValueError
        Where a product overflows, which would mean a hard margin, or is 0, which would leave the row out.
    """
    with np.errstate(over="ignore", under="ignore"):
        out = factors * weights
    bad = np.flatnonzero((out <= 0) | (np.isinf(out) & np.isfinite(factors)))
    if bad.size:
        factor, weight = np.broadcast_to(factors, out.shape)[bad[0]], weights[bad[0]]
        raise ValueError(
            f"{name} leaves float64's range: {factor:.3g} times {weight:.3g}; bring both nearer to 1"
        )
    return out


def warn_if_indefinite(K, stacklevel=2):
    """Warn where a kernel matrix that was given has a negative eigenvalue.

    Parameters
    ----------
    K : ndarray of shape (n, n)
    stacklevel : int
        As in ``warnings.warn``.
    """
    found = negative_eigenvalue(K)
    if found is not None:
        warnings.warn(
            f"the precomputed kernel matrix is not positive semidefinite: it has an eigenvalue of about "
            f"{found[0]:.3g} (the "
            f"largest is about {found[1]:.3g}); the problem then may have several solutions, of which this "
            f"is one",
            UserWarning,
            stacklevel=stacklevel,
        )


def negative_eigenvalue(K):
    """About the least and the largest eigenvalue, if the least is below 0 by more than rounding.

    Parameters
    ----------
    K : ndarray of shape (n, n)

    Returns
    -------
    (float, float) or None
        None, too, for a matrix of too many rows.

    Notes
    -----
    By `ritz_values`, which never lie below the least eigenvalue.
    """
    if len(K) > _LANCZOS_UP_TO:
        return None
    values = ritz_values(K)
    if values[0] < -_INDEFINITE * max(values[-1], -values[0]):
        return float(values[0]), float(values[-1])
    return None

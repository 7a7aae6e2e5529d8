"""What estimators share: kernels by expression, name or callable; samples in; scikit-learn's conventions.

Place on the way: ``solvers`` → **estimators** → ``model_selection``.
"""

import copy
from difflib import get_close_matches
from functools import partial
from numbers import Real

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names, _get_feature_names

from .._arrays import as_double, check_samples, copied, plain, refuse_traced, row_strips
from ..gram import Gram
from ..kernels.base import Kernel
from ..kernels.names import from_name
from ..kernels.precomputed import FunctionKernel, Precomputed
from ..kernels.prepared import n_rows, take_rows
from ._canonical import weighted_variance

__all__ = [
    "KernelEstimator",
    "PairwiseFunction",
    "check_choice",
    "check_flag",
    "check_number",
    "check_rng",
    "own_rows",
    "same_parameters",
]


#: Samples that tell whether sums in float32 do, and the part of the largest sum that they may lose.
_PROBE, _LOST = 32, 1e-5

_OF_BLOCKS = "a function of blocks X and Z of rows is mercer.kernels.FunctionKernel(f)"


def check_choice(name, value, known):
    """Raise a ``ValueError`` with the nearest names unless `value` is one of `known`.

    Parameters
    ----------
    name : str
        The parameter.
    value : object
        What was given.
    known : sequence of str
        What there is.
    """
    if isinstance(value, str) and value in known:
        return
    near = get_close_matches(value.lower(), known, n=2, cutoff=0.4) if isinstance(value, str) else []
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise ValueError(f"{name}={value!r} is unknown; {hint}known are {', '.join(map(repr, known))}")


def check_number(name, value, *, above=None, least=None, integer=False, none=False, finite=False, word=None):
    """Raise unless a parameter is a number in its range.

    Parameters
    ----------
    name : str
        The parameter.
    value : object
        What was given.
    above, least : float or None
        It must be larger than `above`, at least `least`.
    integer, none, finite : bool
        Whether it must be an integer; whether None will do; whether it must be finite.
    word : str or None
        What will do besides.
    """
    if (value is None and none) or (isinstance(value, str) and value == word):
        return
    number = plain(value)
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    if isinstance(number, bool | np.bool_) or not isinstance(number, kinds):
        kinds = ["an integer" if integer else "a number", *[repr(word)] * bool(word), *["None"] * none]
        hint = "; a kernel goes by its name, kernel=…" if isinstance(value, Kernel) else ""
        raise TypeError(f"{name} must be {' or '.join(kinds)}, got {value!r}{hint}")
    if above is not None and not number > above:
        bound = f"larger than {above}"
    elif least is not None and not number >= least:
        bound = f"at least {least}"
    elif number != number or (finite and abs(number) == np.inf):
        bound = "finite"
    else:
        return
    raise ValueError(f"{name} must be {bound}, got {value!r}")


def check_flag(name, value):
    """Raise a ``TypeError`` unless a parameter is True or False (or 1 or 0).

    Parameters
    ----------
    name : str
        The parameter.
    value : object
        What was given.
    """
    if not isinstance(value, bool | np.bool_ | int | np.integer) or value not in (0, 1):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_rng(random_state):
    """A RandomState, or the Generator that was given.

    Parameters
    ----------
    random_state : int, RandomState, Generator or None

    Returns
    -------
    RandomState or Generator
    """
    return random_state if isinstance(random_state, np.random.Generator) else check_random_state(random_state)


def same_parameters(a, b):
    """Whether two dicts of parameters hold the same: arrays only if they are one.

    Parameters
    ----------
    a, b : dict

    Returns
    -------
    bool
    """
    try:
        return a.keys() == b.keys() and all(a[name] is b[name] or bool(a[name] == b[name]) for name in a)
    except ValueError:  # arrays
        return False


class PairwiseFunction:
    """Blocks of a function of two rows, scikit-learn's form of a callable kernel.

    Parameters
    ----------
    function : callable
        ``function(x_row, z_row, **params) -> float``.
    params : dict or None
        Its keyword arguments.
    """

    def __init__(self, function, params=None):
        self.function, self.params = function, dict(params or {})

    def __call__(self, X, Z=None):
        """The block (n, m) of two blocks of rows; half of it is computed if they are the same."""
        symmetric = Z is None or Z is X
        Z = X if Z is None else Z
        out = np.empty((X.shape[0], Z.shape[0]))
        for i in range(X.shape[0]):
            for j in range(i if symmetric else 0, Z.shape[0]):
                value = self._called(X[i], Z[j])
                if not isinstance(value, Real):
                    self._check(value)
                out[i, j] = value
            if symmetric:
                out[i:, i] = out[i, i:]
        return out

    def _called(self, x, z):
        try:
            return self.function(x, z, **self.params)
        except Exception as error:
            error.add_note(
                f"the kernel {self._name} was called with two rows, of shape {x.shape}, for a real number; "
                f"{_OF_BLOCKS}"
            )
            raise

    def _check(self, value):
        """Raise if a value, which is no plain number, does not hold one."""
        value = np.asarray(value)
        if value.ndim or value.dtype.kind not in "fiub":
            raise TypeError(
                f"the kernel {self._name} must return a real number for two rows, got {value.dtype} of shape "
                f"{value.shape}; {_OF_BLOCKS}"
            )

    @property
    def _name(self):
        return getattr(self.function, "__qualname__", repr(self.function))

    def __repr__(self):
        return f"PairwiseFunction({self._name})"

    def __eq__(self, other):
        same = isinstance(other, PairwiseFunction) and self.function == other.function
        return same and same_parameters(self.params, other.params)

    def __hash__(self):
        return hash((type(self), self.function, tuple(sorted(self.params))))


class KernelEstimator(BaseEstimator):
    """An estimator with a ``kernel`` parameter: expression, name or callable.

    Subclasses have the parameters ``kernel``, and ``gamma``, ``degree``, ``coef0``, ``kernel_params`` for
    names and callables.
    """

    def set_params(self, **params):
        """Set parameters; those of the kernel expression (``kernel__gamma``) replace the kernel by a new one.

        Parameters
        ----------
        **params
            As in ``get_params(deep=True)``.

        Returns
        -------
        self
        """
        inner = {
            key.removeprefix("kernel__"): params.pop(key)
            for key in list(params)
            if key.startswith("kernel__")
        }
        if not inner:
            return super().set_params(**params)
        kernel = params.get("kernel", self.kernel)
        if not isinstance(kernel, Kernel) and hasattr(kernel, "set_params"):
            return super().set_params(**params, **{f"kernel__{key}": value for key, value in inner.items()})
        if not isinstance(kernel, Kernel):
            raise ValueError(
                f"kernel={kernel!r} has no parameters {sorted(inner)!r}; pass an expression such as "
                "mercer.kernels.RBF(), or set gamma, degree or coef0"
            )
        changed = kernel.set_params(**inner)
        super().set_params(**{**params, "kernel": changed})
        return self

    def __sklearn_tags__(self):
        """Sparse rows are fine; a given kernel matrix is split by rows and columns."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed(self.kernel)
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    @staticmethod
    def _is_precomputed(kernel):
        if isinstance(kernel, Kernel):
            return "matrix" in kernel._readers()
        return kernel == "precomputed" if isinstance(kernel, str) else False

    # ---------------------------------------------------------------- kernel and samples

    def _kernel_for(self, X, weights=None, rows=None):
        """The kernel expression for training samples X, with every hyperparameter a number from now on.

        "scale" goes by `weights`, of `rows` or of all: 2 is the row written twice, 0 the row left out.
        """
        kernel = self.kernel
        if isinstance(kernel, Kernel):
            return kernel
        if isinstance(kernel, str):
            d, variance = X.shape[1], partial(self._variance, X, weights, rows)
            return from_name(kernel, self.gamma, self.degree, self.coef0, n_features=d, variance=variance)
        return FunctionKernel(self._blocks_of(kernel, self.kernel_params))

    # Blocks of a callable kernel; what it is called with is the estimator's convention.
    _blocks_of = PairwiseFunction

    def _variance(self, X, weights, rows):
        return weighted_variance(X, weights, rows)

    def _gamma_is_scale(self):
        return isinstance(self.gamma, str) and self.gamma == "scale"

    def _check_kernel(self):
        """Raise for a kernel that is none, before any work."""
        kernel = self.kernel
        for name in ("kernel", "gamma", "coef0"):
            refuse_traced(getattr(self, name, None), name)
        if isinstance(kernel, type) or not (isinstance(kernel, Kernel | str) or callable(kernel)):
            hint = f"; use {kernel.__name__}(…), an instance" if isinstance(kernel, type) else ""
            raise TypeError(f"kernel must be a kernel expression, a name or a callable, got {kernel!r}{hint}")
        if isinstance(kernel, str):
            # The kernel's own rules for its hyperparameters; what comes from the data breaks none.
            from_name(kernel, self.gamma, self.degree, self.coef0, n_features=1, variance=1.0)
            # of those that do not read them, too
            if isinstance(self.gamma, Real):
                check_number("gamma", self.gamma, least=0)
            check_number("degree", self.degree, least=0, integer=True)
            check_number("coef0", self.coef0, finite=True)

    def _reads_rows(self):
        """Whether samples are rows of numbers (and not strings, sets or the like)."""
        if not isinstance(self.kernel, Kernel):
            return True
        return bool({"samples", "matrix"} & set(self.kernel._readers()))

    def _training_samples(self, X):
        """X checked, and its columns' names or None; nothing is set on the estimator."""
        if not self._reads_rows():
            return self.kernel._checked(X), None
        names = None if type(X) is np.ndarray else _get_feature_names(X)
        precomputed = self._is_precomputed(self.kernel)
        X = check_samples(X, owner=type(self).__name__)
        if precomputed:
            X = X.toarray() if sp.issparse(X) else X
            _check_precomputed(X)
        return X, names

    def _query_samples(self, X):
        """X checked against the fit."""
        if not self._reads_rows():
            return self.kernel_._checked(X)
        if type(X) is not np.ndarray or hasattr(self, "feature_names_in_"):
            _check_feature_names(self, X, reset=False)
        X = check_samples(X, n_features=self.n_features_in_, owner=type(self).__name__)
        return X.toarray() if sp.issparse(X) and self._is_precomputed(self.kernel) else X

    def _coefficients(self, kernel, X, samples, dual, intercept):
        """The attributes of an expansion over `samples`, of X's dtype: float32 or float64.

        In float32 what terms lose may be all that their sum has, where they cancel. There the float64 ones
        are kept besides, as some of the samples tell.
        """
        double, single = (dual, intercept), getattr(X, "dtype", None) == np.float32
        if single:
            with np.errstate(over="ignore"):
                dual, intercept = dual.astype(np.float32), np.float32(intercept)
        suffices = not single or self._single_suffices(kernel, samples, dual, double[0])
        return {"dual_coef_": dual, "intercept_": intercept, "_double": None if suffices else double}

    def _single_suffices(self, kernel, samples, single, double):
        """Whether sums over float32 samples have digits enough at some of these."""
        n = n_rows(samples)
        some = take_rows(samples, np.arange(0, n, -(-n // _PROBE)))
        with np.errstate(over="ignore", invalid="ignore"):
            lost = self._sums(kernel, some, samples, single)
        sums = self._sums(kernel, some, samples, double, in_double=True)
        lost = np.abs(lost - sums).max(axis=0)
        return bool((lost <= _LOST * np.abs(sums).max(axis=0)).all())

    def _sums(self, kernel, X, samples, dual, *, in_double=False):
        """``k(X, samples) @ dual``, row by row: no value depends on the other rows."""
        X = as_double(X) if in_double else X
        if type(kernel) is Precomputed and dual.ndim == 1:
            # in a fifth of the time; the rounding of BLAS goes by a row's place
            return np.einsum("ij,j->i", np.ascontiguousarray(X), dual)
        samples = as_double(samples) if in_double else samples
        return Gram(kernel, X, samples, n_threads=self.n_jobs) @ dual

    def _expansion(self, X):
        """``k(X, X_fit_) @ dual_coef_ + intercept_``, a new array of X's dtype and the fit's."""
        X, samples = self._query_samples(X), self.X_fit_
        if self._double is None:
            values = self._sums(self.kernel_, X, samples, self.dual_coef_)
            values += self.intercept_
            return values
        dual, intercept = self._double
        values = self._sums(self.kernel_, X, samples, dual, in_double=True)
        values += intercept
        return values.astype(np.float32) if X.dtype == np.float32 else values

    def _set_features(self, X, names):
        """The attributes of scikit-learn that describe the columns; to be called when a fit has succeeded."""
        if getattr(X, "ndim", 0) == 2:
            self.n_features_in_ = X.shape[1]
        elif hasattr(self, "n_features_in_"):
            del self.n_features_in_
        if names is not None:
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _require_fit(self, attribute):
        if attribute not in self.__dict__:
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate "
                "arguments before using this estimator."
            )


def own_rows(X, index=None):
    """Samples that no caller can change: a copy, of some rows if `index` says which.

    Parameters
    ----------
    X : ndarray, csr_array or sequence
    index : ndarray of ints or None

    Returns
    -------
    ndarray, csr_array or list
    """
    if sp.issparse(X):
        return X.copy() if index is None else X[index]
    if isinstance(X, np.ndarray) and X.dtype != object:
        return copied(X) if index is None else X[index]
    return copy.deepcopy(X if index is None else [X[i] for i in index])


def _check_precomputed(K):
    n, m = K.shape
    if n != m:
        raise ValueError(
            f"kernel='precomputed' needs a square matrix at fit, got shape {K.shape}; pass k(X_train)"
        )
    # Every rounding of a real kernel is well below this; a solver reads one triangle only.
    limit = 1e-5 * max(float(np.max(np.abs(K.diagonal()))), np.finfo(K.dtype).tiny)
    for rows in row_strips(n):
        gap = np.abs(K[rows] - K[:, rows].T)
        if gap.max() > limit:
            i, j = np.unravel_index(int(np.argmax(gap)), gap.shape)
            start = rows.start
            raise ValueError(
                f"kernel='precomputed' needs a symmetric matrix at fit, but entries ({start + i}, {j}) and "
                f"({j}, {start + i}) are {K[start + i, j]:.8g} and {K[j, start + i]:.8g}; symmetrise it with "
                "(K + K.T) / 2"
            )

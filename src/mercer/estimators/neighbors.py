"""Classification and regression by nearest neighbours in a kernel's feature space.

Place on the way: ``_neighbors_base`` → **neighbors**.

References: LN14, the quiz on kernelised nearest neighbours.
"""

import warnings

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import DataConversionWarning

from .._arrays import check_targets
from ..kernels.prepared import n_rows
from ._labels import check_labels
from ._neighbors_base import KernelNeighbors

__all__ = ["KernelKNeighborsClassifier", "KernelKNeighborsRegressor"]


class KernelKNeighborsClassifier(ClassifierMixin, MultiOutputMixin, KernelNeighbors):
    """Votes of the nearest training rows in a kernel's feature space.

    The squared distance is k(x, x) − 2k(x, z) + k(z, z), for any kernel. Equal distances are taken in the
    order of the training rows, equal votes go to the smallest class.

    Parameters
    ----------
    n_neighbors : int, default=5
        How many vote.
    weights : {"uniform", "distance"}, callable or None, default="uniform"
        Votes count alike (None, too), or by 1/distance (if some distances are 0, only these), or by what the
        callable makes of an array of distances (m, n_neighbors).
    kernel : Kernel, str or callable, default="rbf"
        An expression such as ``0.5 * RBF(2.0) + Polynomial(3)``; a name ("linear", "poly", "rbf",
        "laplacian", "sigmoid", "cosine", "chi2", "fourier", "precomputed"); or a callable ``f(x_row, z_row,
        **kernel_params) -> float``.
    gamma : float, "scale" or "auto", default="scale"
        For names. "scale" is 1 / (n_features · X.var()), "auto" 1 / n_features; the number is fixed at `fit`.
    degree : int, default=3
        For "poly" and "fourier".
    coef0 : float, default=0.0
        For "poly" and "sigmoid".
    kernel_params : dict or None, default=None
        Keyword arguments of a callable.
    algorithm : {"auto", "brute", "tree"}, default="auto"
        "tree" is scikit-learn's `KDTree`, for kernels that fall with a Euclidean or absolute distance (RBF,
        Laplacian, Matérn, rational quadratic) and for the linear kernel; "auto" takes it for few features
        and many rows. Results are the same.
    n_jobs : int or None, default=None
        Threads: None is OpenMP's setting or the cores available, −1 all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,), or list of them
        Labels; a list with one array per output if y had several.
    outputs_2d_ : bool
        Whether y had several columns.
    n_samples_fit_ : int
        Training rows.
    X_fit_ : ndarray, csr_array or list
        The training rows (a precomputed kernel: the matrix), a copy.
    kernel_ : Kernel
        The expression that was used.
    algorithm_used_ : str
        "brute" or "tree".
    n_features_in_ : int
        Columns at `fit`.
    feature_names_in_ : ndarray of shape (d,)
        Their names, if they were all strings.

    Notes
    -----
    No n×m matrix is formed. Where the kernel falls with a plain distance of the samples, neighbours are
    those of the plain distance, which keeps its order where kernel values are equal to all digits. A squared
    distance that is negative by rounding is 0; one that is negative beyond rounding is an error, as the
    kernel has no feature space.

    References
    ----------
    LN14, the quiz on kernelised nearest neighbours.

    Examples
    --------
    >>> from mercer import KernelKNeighborsClassifier
    >>> model = KernelKNeighborsClassifier(n_neighbors=1, kernel="rbf", gamma=1.0)
    >>> model.fit([[0.0], [1.0], [4.0]], ["a", "a", "b"]).predict([[3.0]]).tolist()
    ['b']
    """

    def __init__(
        self,
        n_neighbors=5,
        *,
        weights="uniform",
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0.0,
        kernel_params=None,
        algorithm="auto",
        n_jobs=None,
    ):
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.algorithm = algorithm
        self.n_jobs = n_jobs

    def __sklearn_tags__(self):
        """Several outputs are fine, indicator matrices being a case of them."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X, y):
        """Keep the training rows and their labels.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Training rows; with a precomputed kernel the matrix (n, n); strings or sets for a kernel of those.
        y : array_like of shape (n,) or (n, t)
            Labels.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input, with argument, place and remedy.
        """
        self._check_parameters()
        X, names = self._training_samples(X)
        y, one_column = _labels(y, n_rows(X), type(self).__name__)
        classes, codes = [], np.empty(y.shape, dtype=np.intp)
        for t in range(y.shape[1]):
            labels, codes[:, t] = np.unique(y[:, t], return_inverse=True)
            classes.append(labels)
        fitted = self._fit_search(X)
        self.__dict__.update(fitted, outputs_2d_=not one_column, _codes=codes)
        self.classes_ = classes[0] if one_column else classes
        self._set_features(X, names)
        return self

    def predict(self, X=None, *, diagonal=None):
        """The label with the most votes; of equal votes the smallest label.

        Parameters
        ----------
        X, diagonal
            As for `kneighbors`.

        Returns
        -------
        ndarray of shape (m,) or (m, t)
        """
        self._require_fit("X_fit_")
        out = [labels[np.argmax(v, axis=1)] for labels, v in self._votes(X, diagonal)]
        return np.stack(out, axis=1) if self.outputs_2d_ else out[0]

    def predict_proba(self, X=None, *, diagonal=None):
        """Shares of the votes.

        Parameters
        ----------
        X, diagonal
            As for `kneighbors`.

        Returns
        -------
        ndarray of shape (m, n_classes), or list of them
            Columns in the order of `classes_`; a list with one array per output if y had several.
        """
        self._require_fit("X_fit_")
        out = [v / v.sum(axis=1, keepdims=True) for _, v in self._votes(X, diagonal)]
        return out if self.outputs_2d_ else out[0]

    def _votes(self, X, diagonal):
        """Per output its labels and the sums of votes (m, n_classes)."""
        indices, weights = self._weighted(X, diagonal)
        _check_some(weights)
        rows = np.arange(len(indices))
        out = []
        for t, labels in enumerate(self.classes_ if self.outputs_2d_ else [self.classes_]):
            votes = np.zeros((len(indices), len(labels)))
            # One neighbour after the other: a label that comes twice among them is added twice.
            for c in range(indices.shape[1]):
                votes[rows, self._codes[indices[:, c], t]] += 1.0 if weights is None else weights[:, c]
            out.append((labels, votes))
        return out


class KernelKNeighborsRegressor(MultiOutputMixin, RegressorMixin, KernelNeighbors):
    """Means of the nearest training targets in a kernel's feature space.

    The squared distance is k(x, x) − 2k(x, z) + k(z, z), for any kernel. Equal distances are taken in the
    order of the training rows.

    Parameters
    ----------
    n_neighbors : int, default=5
        How many are averaged.
    weights : {"uniform", "distance"}, callable or None, default="uniform"
        As for `KernelKNeighborsClassifier`.
    kernel : Kernel, str or callable, default="rbf"
        As for `KernelKNeighborsClassifier`.
    gamma : float, "scale" or "auto", default="scale"
        For names.
    degree : int, default=3
        For "poly" and "fourier".
    coef0 : float, default=0.0
        For "poly" and "sigmoid".
    kernel_params : dict or None, default=None
        Keyword arguments of a callable.
    algorithm : {"auto", "brute", "tree"}, default="auto"
        As for `KernelKNeighborsClassifier`.
    n_jobs : int or None, default=None
        Threads: None is OpenMP's setting or the cores available, −1 all cores.

    Attributes
    ----------
    n_samples_fit_ : int
        Training rows.
    X_fit_ : ndarray, csr_array or list
        The training rows (a precomputed kernel: the matrix), a copy.
    kernel_ : Kernel
        The expression that was used.
    algorithm_used_ : str
        "brute" or "tree".
    n_features_in_ : int
        Columns at `fit`.
    feature_names_in_ : ndarray of shape (d,)
        Their names, if they were all strings.

    References
    ----------
    LN14, the quiz on kernelised nearest neighbours.

    Examples
    --------
    >>> from mercer import KernelKNeighborsRegressor
    >>> model = KernelKNeighborsRegressor(n_neighbors=2, kernel="laplacian", gamma=1.0)
    >>> model.fit([[0.0], [1.0], [4.0]], [0.0, 1.0, 4.0]).predict([[0.25]]).tolist()
    [0.5]
    """

    def __init__(
        self,
        n_neighbors=5,
        *,
        weights="uniform",
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0.0,
        kernel_params=None,
        algorithm="auto",
        n_jobs=None,
    ):
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.algorithm = algorithm
        self.n_jobs = n_jobs

    def fit(self, X, y):
        """Keep the training rows and their targets.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Training rows; with a precomputed kernel the matrix (n, n); strings or sets for a kernel of those.
        y : array_like of shape (n,) or (n, t)
            Targets.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input, with argument, place and remedy.
        """
        self._check_parameters()
        X, names = self._training_samples(X)
        y = check_targets(y, n_rows(X), owner=type(self).__name__)
        fitted = self._fit_search(X)
        self.__dict__.update(fitted, _targets=np.array(y, dtype=np.float64))
        self._set_features(X, names)
        return self

    def predict(self, X=None, *, diagonal=None):
        """Weighted means of the neighbours' targets.

        Parameters
        ----------
        X, diagonal
            As for `kneighbors`.

        Returns
        -------
        ndarray of shape (m,) or (m, t)
            float32 if both the training rows and these are.
        """
        self._require_fit("X_fit_")
        indices, weights = self._weighted(X, diagonal)
        _check_some(weights)
        targets = self._targets.reshape(len(self._targets), -1)
        total = np.zeros((len(indices), targets.shape[1]))
        for c in range(indices.shape[1]):
            part = targets[indices[:, c]]
            total += part if weights is None else part * weights[:, c, None]
        total /= indices.shape[1] if weights is None else weights.sum(axis=1, dtype=np.float64)[:, None]
        out = total.reshape(len(indices), *self._targets.shape[1:])
        return out if self._wide(X) else out.astype(np.float32)


def _labels(y, n, owner):
    """Labels as (n, t), and whether they were one column; in the form scikit-learn expects."""
    if y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None")
    y = y.toarray() if hasattr(y, "toarray") else y
    check_labels(y, owner)
    y = np.asarray(y)
    if len(y) != n:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n} rows, y has {len(y)}"
        )
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected: y.ravel() has the shape (n_samples,)",
            DataConversionWarning,
            stacklevel=3,
        )
    one_column = y.ndim == 1 or y.shape[1] == 1
    return y.reshape(n, -1), one_column


def _check_some(weights):
    """Raise where a row's neighbours have no sum of weights to divide by."""
    if weights is None:
        return
    total, size = (part.sum(axis=1, dtype=np.float64) for part in (weights, np.abs(weights)))
    ok = total > np.finfo(np.float32).eps * size
    if not ok.all():
        i = int(np.argmin(ok))
        if not size[i]:
            raise ValueError(
                f"all neighbours of row {i} have the weight 0, so that none counts; let weights(distances) "
                "be positive for some of them"
            )
        raise ValueError(
            f"the weights of the neighbours of row {i} add up to {total[i]:.3g}, by which nothing can be "
            "divided; let weights(distances) have a positive sum"
        )

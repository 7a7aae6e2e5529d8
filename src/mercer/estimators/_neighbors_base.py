"""What the classifier and the regressor by nearest neighbours share: the fit's samples, and the search.

Place on the way: ``_nearest`` → **_neighbors_base** → ``neighbors``.
"""

import numpy as np
import scipy.sparse as sp

from .._threads import n_threads, one_blas_thread
from ..kernels.distance import distance_form
from ..kernels.prepared import n_rows
from ..kernels.program import LeafKind
from ._base import KernelEstimator, check_choice, check_number, own_rows
from ._nearest import by_kernel_values, by_plain_distance, by_tree, own_diagonal, plain_rows, tree_of

__all__ = ["KernelNeighbors", "combine_weights"]

_ALGORITHMS = ("auto", "brute", "tree")
# A tree wins up to so many features, from so many rows on.
_TREE_FEATURES, _TREE_ROWS = 3, 10000


class KernelNeighbors(KernelEstimator):
    """Neighbours by the distance of a kernel's feature space."""

    # ---------------------------------------------------------------- fit

    def _check_parameters(self):
        check_number("n_neighbors", self.n_neighbors, least=1, integer=True)
        if self.weights is not None and not callable(self.weights):
            check_choice("weights", self.weights, ("uniform", "distance"))
        check_choice("algorithm", self.algorithm, _ALGORITHMS)
        n_threads(self.n_jobs)
        self._check_kernel()

    def _fit_search(self, X):
        """What a search needs of the training samples, as attributes to be set; nothing is set here."""
        kernel = self._kernel_for(X)
        width = X.shape[1] if hasattr(X, "shape") else None
        program = kernel._compiled(width)
        form = distance_form(program, width)
        samples = own_rows(X)
        fitted = {
            "X_fit_": samples,
            "kernel_": kernel,
            "n_samples_fit_": n_rows(X),
            "algorithm_used_": "brute",
            "_form": form,
            "_tree": None,
            "_diagonal": None,
        }
        with one_blas_thread():
            if form is None:
                fitted["_diagonal"] = own_diagonal(kernel, program, samples, self.n_jobs)
            tree = self._tree_rows(form, program, samples)
            if tree is not None:
                fitted["_tree"], fitted["algorithm_used_"] = tree_of(*tree), "tree"
        return fitted

    def _tree_rows(self, form, program, X):
        """What to build a tree of, or None; raises where one is asked for that cannot be."""
        if self.algorithm == "brute":
            return None
        reason = None
        if form is None or form.leaf.kind == LeafKind.CHI2:
            reason = "orders neighbours by no Euclidean or absolute distance of the samples"
        elif sp.issparse(X) or not hasattr(X, "shape"):
            reason = "has samples here that are no dense array"
        if reason is not None:
            if self.algorithm == "tree":
                raise ValueError(
                    f"algorithm='tree' cannot search by kernel={self.kernel!r}, which {reason}; use 'brute' "
                    "or 'auto'"
                )
            return None
        kind, _, right, weight = plain_rows(form, program, X, None)
        if sp.issparse(right):
            return None
        small = right.shape[1] <= _TREE_FEATURES and len(right) >= _TREE_ROWS
        return (kind, right, weight) if self.algorithm == "tree" or small else None

    # ---------------------------------------------------------------- search

    def kneighbors(self, X=None, n_neighbors=None, return_distance=True, *, diagonal=None):
        """The training rows nearest to each row, the nearest first; of equal ones the first row comes first.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d) or None, default=None
            Queries; with a precomputed kernel the matrix (m, n) against the training rows. None stands for
            the training rows, of which none is its own neighbour.
        n_neighbors : int or None, default=None
            None is the parameter's.
        return_distance : bool, default=True
            Whether distances are wanted.
        diagonal : array_like of shape (m,) or None, default=None
            With a precomputed kernel k(x, x) of the queries, without which there is an order, but no
            distances.

        Returns
        -------
        distances : ndarray of shape (m, n_neighbors)
            √(k(x, x) − 2k(x, z) + k(z, z)), if `return_distance`; float32 if all samples are.
        indices : ndarray of shape (m, n_neighbors)
            Training rows.

        Raises
        ------
        ValueError
            For more neighbours than there are, rows unlike the fit's, or a kernel whose squared distance is
            negative beyond rounding.

        References
        ----------
        LN14, the quiz on kernelised nearest neighbours.
        """
        self._require_fit("X_fit_")
        n_neighbors = self.n_neighbors if n_neighbors is None else n_neighbors
        check_number("n_neighbors", n_neighbors, least=1, integer=True)
        known = self.n_samples_fit_ - (X is None)
        if n_neighbors > known:
            itself = ", and none is its own neighbour" if X is None else ""
            raise ValueError(
                f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {n_neighbors}, n_samples_fit = "
                f"{self.n_samples_fit_}{itself}; lower n_neighbors to {known} at most"
            )
        squared, indices = self._search(X, int(n_neighbors), return_distance, diagonal)
        if not return_distance:
            return indices
        return np.sqrt(squared).astype(squared.dtype if self._wide(X) else np.float32, copy=False), indices

    def _wide(self, X):
        """Whether results are float64."""
        given = self.X_fit_ if X is None else X
        kinds = (getattr(F, "dtype", None) for F in (given, self.X_fit_))
        return not all(kind in (np.float32, np.float16) for kind in kinds)

    def _search(self, X, k, distances, diagonal):
        """Squared distances in feature space (or scores, if they are not asked for), and indices."""
        own = X is None
        if diagonal is not None and (own or not self._is_precomputed(self.kernel_)):
            raise ValueError(
                "diagonal is for queries of a precomputed kernel; else k(x, x) is computed, leave it out"
            )
        if own:
            Q, Z, left_out = self.X_fit_, None, np.arange(self.n_samples_fit_)
        else:
            Q, Z = self.kernel_._paired(self._query_samples(X), self.X_fit_)
            left_out = None
        program = self.kernel_._compiled(self.X_fit_.shape[1] if hasattr(self.X_fit_, "shape") else None)
        with one_blas_thread():
            if self._form is None:
                left = self._diagonal if own else self._query_diagonal(program, Q, distances, diagonal)
                return by_kernel_values(program, Q, Z, k, left, self._diagonal, left_out, self.n_jobs)
            raw = plain_rows(self._form, program, Q, Z)
            if self._tree is not None and not sp.issparse(raw[1]):
                plain, indices = by_tree(self._tree, raw, k, left_out, self.n_jobs)
            else:
                plain, indices = by_plain_distance(raw, k, left_out, self.n_jobs)
            return self._form.squared(plain), indices

    def _query_diagonal(self, program, Q, distances, diagonal):
        if not self._is_precomputed(self.kernel_):
            return own_diagonal(self.kernel_, program, Q, self.n_jobs)
        if diagonal is None:
            if distances:
                raise ValueError(
                    "distances by a precomputed kernel need k(x, x) of the queries, which k(X, X_fit) does "
                    "not hold: pass diagonal=…, of shape (m,); neighbours themselves (return_distance=False, "
                    "weights='uniform') do without"
                )
            return None
        diagonal = np.asarray(diagonal, dtype=np.float64)
        if diagonal.shape != (n_rows(Q),) or not np.isfinite(diagonal).all():
            raise ValueError(
                f"diagonal must be {n_rows(Q)} finite numbers k(x, x), one per query, got shape "
                f"{diagonal.shape}"
            )
        return diagonal

    def kneighbors_graph(self, X=None, n_neighbors=None, mode="connectivity", *, diagonal=None):
        """The neighbours as a sparse matrix.

        Parameters
        ----------
        X, n_neighbors
            As for `kneighbors`.
        mode : {"connectivity", "distance"}, default="connectivity"
            Ones, or the distances.
        diagonal
            As for `kneighbors`.

        Returns
        -------
        csr_matrix of shape (m, n_samples_fit)
            Row i has its neighbours in the order of distance.
        """
        self._require_fit("X_fit_")
        check_choice("mode", mode, ("connectivity", "distance"))
        found = self.kneighbors(X, n_neighbors, mode == "distance", diagonal=diagonal)
        indices = found[1] if mode == "distance" else found
        values = found[0].reshape(-1) if mode == "distance" else np.ones(indices.size)
        starts = np.arange(0, indices.size + 1, indices.shape[1])
        return sp.csr_matrix((values, indices.reshape(-1), starts), shape=(len(indices), self.n_samples_fit_))

    def _weighted(self, X, diagonal):
        """Indices (m, k) of neighbours and their weights, or None where all are 1."""
        if self.weights is None or (isinstance(self.weights, str) and self.weights == "uniform"):
            return self.kneighbors(X, return_distance=False, diagonal=diagonal), None
        distances, indices = self.kneighbors(X, diagonal=diagonal)
        return indices, combine_weights(self.weights, distances)


def combine_weights(weights, distances):
    """Weights of neighbours at some distances.

    Parameters
    ----------
    weights : "distance" or callable
        1/distance, where rows with a neighbour at distance 0 count those alone; or distances → weights.
    distances : ndarray of shape (m, k)

    Returns
    -------
    ndarray of shape (m, k)

    Raises
    ------
    ValueError
        If a callable returns another shape, or what is no number.
    """
    if callable(weights):
        out = np.asarray(weights(distances))
        if out.shape != distances.shape or out.dtype.kind not in "fiub":
            raise ValueError(
                f"weights(distances) must return numbers of the shape {distances.shape} of its argument, got "
                f"{out.dtype} of shape {out.shape}"
            )
        if not np.isfinite(out).all():
            raise ValueError("weights(distances) returned NaN or infinity; give finite weights")
        return out
    zero = distances == 0
    with np.errstate(divide="ignore", over="ignore"):
        out = 1.0 / distances
    zero |= np.isinf(out)  # of distances so small that their reciprocals are out of range
    some = zero.any(axis=1)
    out[some] = zero[some]
    return out

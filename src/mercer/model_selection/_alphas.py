"""α in a search: which estimators have one, a grid from the spectrum, and the choices among its values.

Place on the way: ``_search`` → **alphas** → ``path``.
"""

from collections.abc import Mapping
from numbers import Real

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor

from .._arrays import square_part
from .._threads import one_blas_thread
from ..estimators._base import KernelEstimator, same_parameters
from ..kernels.prepared import n_rows, take_rows
from ..solvers.spectral import eigenvalue_range
from ._alpha_path import kernel_matrix
from ._results import last_step

__all__ = ["alphas_from_spectrum", "cells_along", "of_alphas", "searches_alpha"]

# The grid: from the power of ten above the largest eigenvalue, at which nearly nothing is fitted, down by so
# many decades in so many steps each.
_DECADES, _STEPS = 7, 3
# Rows of which the largest eigenvalue is found; it grows like the number of rows.
_ROWS = 500


def has_alpha(estimator):
    """Whether an estimator, or the last one of a pipeline, is one of ours that α regularises."""
    final, _ = last_step(estimator)
    supervised = is_classifier(final) or is_regressor(final)
    return isinstance(final, KernelEstimator) and supervised and "alpha" in final.get_params(deep=False)


def searches_alpha(estimator, param_grid):
    """Whether a grid is to be made for α: there is one, and `param_grid` does not give it."""
    grids = [] if param_grid is None else [param_grid] if isinstance(param_grid, Mapping) else param_grid
    name = f"{last_step(estimator)[1]}alpha"
    return has_alpha(estimator) and not any(name in grid for grid in grids if isinstance(grid, Mapping))


def alphas_from_spectrum(estimator, X, y, weights):
    """Values of α over the range in which they matter: 22, ascending.

    Parameters
    ----------
    estimator : estimator
        See `has_alpha`.
    X, y : samples and targets
    weights : ndarray of shape (n,) or None
        One is positive, at least; the other rows are left out.

    Returns
    -------
    list of float
        From 1e-7 to 1 times the power of ten above the largest eigenvalue of the centred kernel matrix, or
        above K's trace where that is rounding.
    """
    final, prefix = last_step(estimator)
    if prefix and len(estimator) > 1:
        X = clone(estimator[:-1]).fit_transform(X, y)
    X, _ = final._training_samples(X)
    final._check_kernel()
    kernel = final._kernel_for(X, weights)
    kept = np.arange(n_rows(X)) if weights is None else np.flatnonzero(weights > 0)
    index = kept[:: -(-len(kept) // _ROWS)]
    some = square_part(X, index) if final._is_precomputed(final.kernel) else take_rows(X, index)
    with one_blas_thread():
        K = kernel_matrix(kernel, some, 1)
        largest = eigenvalue_range(K)[1]
        whole = np.abs(K.diagonal()).sum()
        if largest <= np.finfo(K.dtype).eps * whole:
            largest = whole  # of samples that are all the same it is rounding; any alpha will do
    largest *= len(kept) / len(index)
    if weights is not None:
        largest *= np.mean(weights[kept])
    top = np.ceil(np.log10(largest)) if largest > 0 and np.isfinite(largest) else 0.0
    return [float(f"{value:.3g}") for value in np.logspace(top - _DECADES, top, _DECADES * _STEPS + 1)]


def of_alphas(estimator, found, by):
    """`best_alpha_`, and `alpha_1se_` where a score tells it.

    The latter is the largest α whose mean score is within one standard error of the best one's, among the
    cells that share its other parameters.

    Parameters
    ----------
    estimator : estimator
    found : dict
        `best_params_`, `best_index_`, `cv_results_`, `test_error_` and `_error_weights`.
    by : str or None
        The score that chose.

    Returns
    -------
    dict
    """
    name = f"{last_step(estimator)[1]}alpha"
    best = found["best_params_"]
    if name not in best:
        return {}
    chosen = {"best_alpha_": best[name]}
    if by is None:
        return chosen
    cells = found["cv_results_"]["params"]
    along = cells_along(cells, best, name)
    if not along:
        return chosen
    mean, error = _scores(found, by)
    least = mean[found["best_index_"]] - error[found["best_index_"]]
    if not all(isinstance(cells[index][name], Real) for index in along):
        return chosen
    near = [cells[index][name] for index in along if mean[index] >= least]
    return {**chosen, "alpha_1se_": max(near, default=best[name])}


def cells_along(cells, best, name):
    """The cells that differ from the best one in α alone; none where it has an α for each target.

    Parameters
    ----------
    cells : list of dict
    best : dict
        One of them.
    name : str
        α's.

    Returns
    -------
    list of int
    """

    def others(cell):
        return {key: value for key, value in cell.items() if key != name}

    return [
        index
        for index, cell in enumerate(cells)
        if np.ndim(best[name]) == 0
        and np.ndim(cell.get(name, ())) == 0
        and same_parameters(others(cell), others(best))
    ]


def _scores(found, by):
    """Means and their standard errors by cell; of pooled rows those of their errors."""
    results, errors = found["cv_results_"], found["test_error_"]
    count = found["n_splits_"]
    if count == 1 and errors.shape[1] > 1:
        n, weights = errors.shape[1], found["_error_weights"]
        mean = np.average(errors, axis=1, weights=weights)
        parts = np.full(n, 1 / n) if weights is None else weights / weights.sum()
        # of a weighted mean, which for equal weights is s / √n
        spread = np.sqrt(np.square((errors - mean[:, None]) * parts).sum(axis=1) * n / (n - 1))
        return -mean, spread
    spread = results[f"std_test_{by}"] / np.sqrt(max(count - 1, 1))
    return results[f"mean_test_{by}"], np.where(np.isfinite(spread), spread, 0.0)

"""Cells of a grid, and what is found of them, in scikit-learn's form.

Place on the way: **results** → ``path``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import rankdata
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline

from .._warnings import warn
from ..estimators._base import KernelEstimator, check_number
from ..estimators._costs import CostClassifier
from ..estimators.regression import KernelRegressor
from ..kernels.base import Kernel
from ..kernels.values import checked_scale

__all__ = ["Outcome", "cells_of", "last_step", "results_of"]


@dataclass
class Outcome:
    """What is known of a cell on one fold.

    Attributes
    ----------
    test : dict
        Score of the held-out rows by scorer.
    train : dict or None
        Score of the training rows.
    test_error : float
        MLR7's error of the held-out rows; NaN where there is none. For pooled rows an array of theirs.
    train_error : float or None
        That of the training rows; None where it was not asked for.
    fit_time, score_time : float
        Seconds.
    trouble : str or None
        Of a fit that raised an error.
    """

    test: dict
    train: dict | None = None
    test_error: float = np.nan
    train_error: float | None = None
    fit_time: float = 0.0
    score_time: float = 0.0
    trouble: str | None = None


# ---------------------------------------------------------------- cells


def last_step(estimator):
    """An estimator, or the last one of a pipeline, and the prefix of its parameters' names."""
    if not isinstance(estimator, Pipeline):
        return estimator, ""
    name, final = estimator.steps[-1]
    return final, f"{name}__"


def cells_of(estimator, alphas, Cs, gammas, param_grid):
    """The parameters of each cell.

    Parameters
    ----------
    estimator : estimator
        Or a pipeline, whose last step has the parameters.
    alphas, Cs, gammas : sequence or None
    param_grid : dict, list of dict or None

    Returns
    -------
    list of dict
        In the order of scikit-learn's ``ParameterGrid``.

    Raises
    ------
    ValueError, TypeError
        For values out of range, parameters that the estimator does not have, and those given twice.
    """
    known = estimator.get_params()
    final, prefix = last_step(estimator)
    own = {}
    if alphas is not None:
        # Ridge has a minimum without a penalty; other costs need not.
        bound = "above" if isinstance(final, CostClassifier | KernelRegressor) else "least"
        check = partial(check_number, **{bound: 0})
        own[f"{prefix}alpha"] = _distinct("alphas", _values("alphas", alphas, check))
        _require(final, "alphas", "alpha")
    if Cs is not None:
        own[f"{prefix}C"] = _values("Cs", Cs, partial(check_number, above=0))
        _require(final, "Cs", "C")
    if gammas is not None:
        # Kernels refuse 0, which scikit-learn's machines take.
        ours = isinstance(final, KernelEstimator)
        check = partial(checked_scale, type(final).__name__) if ours else partial(check_number, least=0)
        values = _values("gammas", gammas, check, names=("scale", "auto"))
        own[prefix + _gamma_name(final, final.get_params())] = values
    grids = (
        [{}] if param_grid is None else [param_grid] if isinstance(param_grid, Mapping) else list(param_grid)
    )
    for grid in grids:
        if not isinstance(grid, Mapping):
            raise TypeError(f"param_grid must be a dict or a list of dicts, got {param_grid!r}")
        twice = sorted(set(grid) & set(own))
        if twice:
            raise ValueError(
                f"param_grid has {', '.join(twice)}, which alphas, Cs or gammas give, too; pass one of them"
            )
        _check_names(estimator, grid, known)
    cells = [cell for grid in grids for cell in ParameterGrid({**grid, **own})]
    if not cells:
        raise ValueError(f"param_grid={param_grid!r} has no cell; give at least one value for each parameter")
    return cells


def _require(estimator, argument, name):
    if name not in estimator.get_params():
        raise ValueError(
            f"{argument}: {type(estimator).__name__} has no parameter {name}; pass its own parameters by "
            "param_grid="
        )


def _distinct(name, values):
    """Values each of which is there once; else the first that repeats another is named."""
    for i, value in enumerate(values):
        if not np.isfinite(value):
            raise ValueError(f"{name}[{i}] must be finite, got {value!r}")
        if value in values[:i]:
            raise ValueError(f"{name}[{i}] repeats {name}[{values.index(value)}], {value!r}; pass each once")
    return values


def _values(name, values, check, *, names=()):
    if isinstance(values, str) or (np.ndim(values) == 0 and not np.iterable(values)):
        raise TypeError(f"{name} must be a sequence of values, got {values!r}; pass [{values!r}]")
    values = list(values.tolist() if isinstance(values, np.ndarray) else values)
    if not values:
        raise ValueError(f"{name} is empty; pass at least one value")
    for i, value in enumerate(values):
        if isinstance(value, str) and value in names:
            continue
        if isinstance(value, str) and names:
            raise ValueError(f"{name}[{i}] must be a number or one of {names}, got {value!r}")
        check(f"{name}[{i}]", value)
    return values


def _gamma_name(estimator, known):
    kernel = known.get("kernel")
    if isinstance(kernel, Kernel):
        if "gamma" in kernel.get_params():
            return "kernel__gamma"
        others = ", ".join(sorted(f"kernel__{key}" for key in kernel.get_params(deep=True))) or "none"
        raise ValueError(
            f"gammas: the kernel {kernel!r} has no parameter gamma of its own; search one that it has by "
            f"param_grid= ({others})"
        )
    if "gamma" not in known:
        raise ValueError(
            f"gammas: {type(estimator).__name__} has no parameter gamma; pass its own parameters by "
            "param_grid="
        )
    return "gamma"


def _check_names(estimator, grid, known):
    for name, values in grid.items():
        if name.split("__")[0] not in known:
            raise ValueError(
                f"param_grid: {type(estimator).__name__} has no parameter {name!r}; it has "
                f"{', '.join(sorted(known))}"
            )
        if isinstance(values, str) or not np.iterable(values):
            raise TypeError(
                f"param_grid[{name!r}] must be a sequence of values, got {values!r}; pass [{values!r}]"
            )
        if not len(list(values)):
            raise ValueError(f"param_grid[{name!r}] is empty; pass at least one value")


# ---------------------------------------------------------------- results


def results_of(cells, outcomes, n_splits, with_train):
    """``cv_results_`` with scikit-learn's names, order and ranks.

    Parameters
    ----------
    cells : list of dict
    outcomes : list of list of Outcome
        By cell and fold.
    n_splits : int
    with_train : bool

    Returns
    -------
    dict
    """
    results = {}

    def store(name, values, *, splits=False, rank=False):
        values = np.array(values, dtype=np.float64).reshape(len(cells), n_splits)
        if splits:
            for fold in range(n_splits):
                results[f"split{fold}_{name}"] = values[:, fold]
        mean = np.average(values, axis=1)
        results[f"mean_{name}"] = mean
        if splits and not np.isfinite(mean).all():
            warn(f"One or more of the {name.split('_')[0]} scores are non-finite: {mean}")
        with np.errstate(invalid="ignore"):
            results[f"std_{name}"] = np.sqrt(np.average((values - mean[:, None]) ** 2, axis=1))
        if rank:
            results[f"rank_{name}"] = _ranks(mean)

    store("fit_time", [[one.fit_time for one in row] for row in outcomes])
    store("score_time", [[one.score_time for one in row] for row in outcomes])
    results.update(_parameters(cells))
    results["params"] = cells
    for name in outcomes[0][0].test:
        store(f"test_{name}", [[one.test[name] for one in row] for row in outcomes], splits=True, rank=True)
        if with_train:
            store(f"train_{name}", [[one.train[name] for one in row] for row in outcomes], splits=True)
    return results


def _ranks(mean):
    """1 for the best; cells without a score come last."""
    if np.isnan(mean).all():
        return np.ones(len(mean), dtype=np.int32)
    known = np.where(np.isnan(mean), np.nanmin(mean) - 1, mean)
    return rankdata(-known, method="min").astype(np.int32, copy=False)


def _parameters(cells):
    """``param_…``: masked where a cell does not have the parameter."""
    names = dict.fromkeys(f"param_{name}" for cell in cells for name in cell)
    for key in names:
        name = key.removeprefix("param_")
        found = [cell[name] for cell in cells if name in cell]
        try:
            array = np.array(found)
            dtype = array.dtype if array.dtype.kind != "U" and array.ndim == 1 else object
        except ValueError:  # values of several lengths
            dtype = object
        column = np.ma.MaskedArray(np.empty(len(cells), dtype=dtype), mask=True)
        for index, cell in enumerate(cells):
            if name in cell:
                column[index] = cell[name]
        names[key] = column
    return names

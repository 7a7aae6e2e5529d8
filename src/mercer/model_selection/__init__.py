"""Choosing hyperparameters: whole grids over folds."""

from .named import KernelLogisticRegressionCV, KernelRidgeCV, SquaredMarginCV
from .path import PathCV

__all__ = ["KernelLogisticRegressionCV", "KernelRidgeCV", "PathCV", "SquaredMarginCV"]

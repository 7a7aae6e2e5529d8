"""Choosing hyperparameters: whole grids over folds."""

from .path import PathCV

__all__ = ["PathCV"]

"""Estimators with scikit-learn's conventions.

Place on the way: ``solvers`` → **estimators** → ``model_selection``.
"""

from .ridge import KernelRidge

__all__ = ["KernelRidge"]

"""Estimators with scikit-learn's conventions.

Place on the way: ``solvers`` → **estimators** → ``model_selection``.
"""

from .ridge import KernelRidge
from .svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

__all__ = ["SVC", "SVR", "KernelRidge", "NuSVC", "NuSVR", "OneClassSVM"]

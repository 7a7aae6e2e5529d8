"""Estimators with scikit-learn's conventions.

Place on the way: ``solvers`` → **estimators** → ``model_selection``.
"""

from .classification import KernelLogisticRegression, SquaredMarginClassifier
from .decomposition import KernelPCA
from .neighbors import KernelKNeighborsClassifier, KernelKNeighborsRegressor
from .regression import KernelRegressor
from .ridge import KernelRidge
from .svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

__all__ = [
    "SVC",
    "SVR",
    "KernelKNeighborsClassifier",
    "KernelKNeighborsRegressor",
    "KernelLogisticRegression",
    "KernelPCA",
    "KernelRegressor",
    "KernelRidge",
    "NuSVC",
    "NuSVR",
    "OneClassSVM",
    "SquaredMarginClassifier",
]

"""Kernel machines with a compiled core.

``mercer.kernels`` holds the kernels and their algebra, the names below the estimators. Everything is
imported when it is first asked for, so that a script that only needs a Gram matrix does not load
scikit-learn.
"""

from importlib import import_module as _import_module

__version__ = "0.1.0"

_MODULE_OF = {
    "KernelKNeighborsClassifier": "mercer.estimators.neighbors",
    "KernelKNeighborsRegressor": "mercer.estimators.neighbors",
    "KernelLogisticRegression": "mercer.estimators.classification",
    "KernelLogisticRegressionCV": "mercer.model_selection.named",
    "KernelPCA": "mercer.estimators.decomposition",
    "KernelRegressor": "mercer.estimators.regression",
    "KernelRidge": "mercer.estimators.ridge",
    "KernelRidgeCV": "mercer.model_selection.named",
    "NuSVC": "mercer.estimators.svm",
    "NuSVR": "mercer.estimators.svm",
    "OneClassSVM": "mercer.estimators.svm",
    "PathCV": "mercer.model_selection.path",
    "SVC": "mercer.estimators.svm",
    "SVR": "mercer.estimators.svm",
    "SquaredMarginCV": "mercer.model_selection.named",
    "SquaredMarginClassifier": "mercer.estimators.classification",
    "show_versions": "mercer._versions",
}
_SUBMODULES = (
    *("autodiff", "estimators", "gram", "kernels", "losses", "model_selection", "plotting", "solvers"),
    "testing",
)

__all__ = ["__version__", *_MODULE_OF, *_SUBMODULES]


def __getattr__(name):
    if name in _MODULE_OF:
        value = getattr(_import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)

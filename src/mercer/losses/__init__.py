"""The costs of the kernelised problems, each once: value, derivative, curvature, its root, its conjugate.

Place on the way: ``gram`` → **losses** → ``solvers``.

A cost is a value. Its two kinds differ in what f is:

- elementwise (``vector`` false): f has any shape, and y broadcasts against it;
- of vectors (``vector`` true): the last axis of f are the C classes, and y holds codes 0 … C − 1 and
  broadcasts against ``f.shape[:-1]``.

Another cost is one class with the methods of `Loss`. What leaves the floating-point range is infinite, never
NaN and without a warning, so that a line search can step back from it.

Examples
--------
>>> from mercer.losses import Huber, Softmax
>>> Huber(delta=1.0).value(0.0, [0.5, 2.0])
array([0.25, 3.  ])
>>> Softmax().probabilities([-1000.0, -1001.0, -1002.0])
array([0.66524096, 0.24472847, 0.09003057])
"""

from .base import Loss
from .classes import JointSquaredMargin, Logistic, Softmax, SquaredMargin
from .targets import EpsilonInsensitive, Huber, Poisson, Quantile, Squared

__all__ = [
    "EpsilonInsensitive",
    "Huber",
    "JointSquaredMargin",
    "Logistic",
    "Loss",
    "Poisson",
    "Quantile",
    "Softmax",
    "Squared",
    "SquaredMargin",
]

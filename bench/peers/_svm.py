"""What the benchmarks of support vector machines share: the problems, the peers, the dual objective."""

import importlib
import logging
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import make_classification

from . import _data

#: The sets of the folder of data files, each with its γ; None is 1/d.
SETS = {
    "letter": None,
    "magic": None,
    "usps": None,
    "shuttle": None,
    "satimage": None,
    "spam": None,
    "dna": None,
    "pendigits": None,
    "a9a": None,
    "w8a": None,
    "ijcnn1": None,
    "cod_rna_std": None,
    "mnist10k": 0.02,
}
SYNTHETIC = "synthetic"
# Floats of a block of the kernel matrix while the objective is computed.
BLOCK = 8_000_000


@dataclass(frozen=True)
class Problem:
    """Rows to train on (n, d) and to test on, their labels, and γ."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    gamma: float

    @property
    def title(self):
        """The name and the shape."""
        n, d = self.X.shape
        return f"{self.name} {n}×{d}" + (" CSR" if sp.issparse(self.X) else "")

    def cut(self, n, n_test):
        """The first rows of each part only."""
        parts = self.X[:n], self.y[:n], self.X_test[:n_test], self.y_test[:n_test]
        return Problem(self.name, *parts, self.gamma)


def available():
    """Names of the problems that can be had here."""
    return [*SETS, SYNTHETIC] if _data.folder() is not None else [SYNTHETIC]


def problem(name):
    """One of the sets, or the synthetic problem: 20000 × 20, two classes of two clusters each."""
    if name == SYNTHETIC:
        X, y = make_classification(25000, 20, n_informative=10, random_state=0)
        parts = *_data.standardised(X[:20000], y[:20000], X[20000:]), y[20000:]
    else:
        parts = _data.classification(name)
    return Problem(name, *parts, SETS.get(name) or 1 / parts[0].shape[1])


def under_test(module, name):
    """The class under test, looked up when it is needed: another module may stand in for mercer."""
    return getattr(importlib.import_module(module), name)


class Intelex:
    """scikit-learn-intelex's machines, where it is installed, from its own module: sklearn stays as it is."""

    def __init__(self):
        self.messages = []
        try:
            self._module = importlib.import_module("sklearnex.svm")
        except ImportError:
            self._module = None
            return
        # It says in its log whether a call was its own or handed on to scikit-learn.
        log = logging.getLogger("sklearnex")
        log.setLevel(logging.INFO)
        log.handlers, log.propagate = [logging.Handler()], False
        log.handlers[0].emit = lambda record: self.messages.append(record.getMessage())

    def machine(self, name):
        """One of them, or None where there is none of that name."""
        return getattr(self._module, name, None)

    def handed_on(self):
        """Whether a call since the last question was scikit-learn's."""
        found = any("fallback" in message for message in self.messages)
        self.messages.clear()
        return found


def dual_objective(model, X, gamma, C):
    """The dual objective of a fitted one-against-one RBF machine, summed over its pairs, in float64.

    Parameters
    ----------
    model : estimator
        With ``support_``, ``n_support_``, ``dual_coef_`` and ``classes_`` as scikit-learn's SVC has them.
    X : ndarray or CSR of shape (n, d)
        What it was fitted to.
    gamma, C : float

    Returns
    -------
    objective : float
        Σ ½ vᵀKv − Σ|v| with v = yα; less is better.
    violation : float
        The largest of |Σv| and of max|v| − C over the pairs, in units of C.
    """
    ends = np.concatenate([[0], np.cumsum(model.n_support_)])
    coef = model.dual_coef_
    coef = np.asarray(coef.toarray() if sp.issparse(coef) else coef, dtype=np.float64)
    X = X[model.support_]
    X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    objective = violation = 0.0
    for i, j in combinations(range(len(model.classes_)), 2):
        # Class i's coefficients against j stand in row j − 1, those of j against i in row i.
        first, second = np.arange(ends[i], ends[i + 1]), np.arange(ends[j], ends[j + 1])
        v = np.concatenate([coef[j - 1, first], coef[i, second]])
        rows = np.concatenate([first, second])[v != 0]
        v = v[v != 0]
        objective += 0.5 * quadratic(X[rows], v, gamma) - np.abs(v).sum()
        if len(v):
            violation = max(violation, abs(v.sum()) / C, np.abs(v).max() / C - 1)
    return objective, violation


def quadratic(X, v, gamma):
    """vᵀKv of the RBF kernel, in blocks of K's rows."""
    squares = np.einsum("ij,ij->i", X, X)
    total = 0.0
    step = max(1, BLOCK // max(1, len(v)))
    for start in range(0, len(v), step):
        part = slice(start, start + step)
        K = X[part] @ X.T
        K *= -2
        K += squares[part, None]
        K += squares
        np.maximum(K, 0, out=K)
        K *= -gamma
        total += v[part] @ (np.exp(K, out=K) @ v)
    return total

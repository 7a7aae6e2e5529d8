"""Kernel ridge: fits by both solvers, predictions, leave-one-out."""

import numpy as np

from mercer import KernelRidge
from mercer.kernels import RBF, Polynomial


class Fit:
    """Exact fits and predictions."""

    params = ([100, 1000, 4000], [1, 10])
    param_names = ("n", "targets")

    def setup(self, n, targets):
        """Draw a smooth function with noise."""
        self.X, self.Y = samples(n, targets)
        self.model = KernelRidge(alpha=1e-2, kernel=0.5 * RBF(gamma=0.1) + Polynomial(2, gamma=0.1))
        self.fitted = KernelRidge(alpha=1e-2, kernel=self.model.kernel).fit(self.X, self.Y)

    def time_fit(self, n, targets):
        self.model.fit(self.X, self.Y)

    def time_predict(self, n, targets):
        self.fitted.predict(self.X)

    def time_leave_one_out(self, n, targets):
        model = KernelRidge(alpha=1e-2, kernel=self.model.kernel, store_factor=True)
        return model.fit(self.X, self.Y).leave_one_out_


class ConjugateGradients:
    """Fits without the matrix."""

    timeout = 300
    params = (4000, 20000)
    param_names = ("n",)

    def setup(self, n):
        """Draw a smooth function with noise."""
        self.X, self.Y = samples(n, 1)
        self.model = KernelRidge(alpha=0.1, kernel=RBF(gamma=0.1), solver="cg", random_state=0)

    def time_fit(self, n):
        self.model.fit(self.X, self.Y)

    def peakmem_fit(self, n):
        self.model.fit(self.X, self.Y)

    def track_products(self, n):
        return self.model.fit(self.X, self.Y).n_iter_


def samples(n, targets, d=8):
    """Inputs (n, d) and targets (n, t)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, np.sin(X @ rng.standard_normal((d, targets))) + 0.1 * rng.standard_normal((n, targets))

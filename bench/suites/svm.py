"""Support vector machines: fits, predictions, a grid of C and γ with folds."""

import numpy as np
from sklearn.datasets import make_classification

from mercer import SVC, PathCV


class Fit:
    """Two classes, and many pairs of classes, from sizes that must not pay for machinery to large ones."""

    params = ([100, 1000, 10000], [2, 10], ["float64", "float32"])
    param_names = ("n", "classes", "dtype")

    def setup(self, n, classes, dtype):
        """Draw overlapping clusters."""
        self.X, self.y = samples(n, classes, dtype)
        self.model = SVC(C=10, gamma=1 / self.X.shape[1])
        self.fitted = SVC(C=10, gamma=1 / self.X.shape[1]).fit(self.X, self.y)

    def time_fit(self, n, classes, dtype):
        self.model.fit(self.X, self.y)

    def time_predict(self, n, classes, dtype):
        self.fitted.predict(self.X)

    def track_iterations(self, n, classes, dtype):
        return int(np.sum(self.fitted.n_iter_))


class Memory:
    """What a fit holds: no n × n matrix in float64."""

    def setup(self):
        """Draw overlapping clusters."""
        self.X, self.y = samples(20000, 2, "float64")

    def peakmem_fit(self):
        SVC(C=10, gamma=1 / self.X.shape[1], cache_size=200).fit(self.X, self.y)


class Grid:
    """5 C, 5 γ and 5 folds."""

    timeout = 300
    params = ([300, 2000], [2, 5])
    param_names = ("n", "classes")

    def setup(self, n, classes):
        """Draw overlapping clusters."""
        self.X, self.y = samples(n, classes, "float64")
        self.Cs = np.logspace(-1, 3, 5)
        self.gammas = 2 ** np.linspace(-5, 4, 5) / self.X.shape[1]

    def time_fit(self, n, classes):
        PathCV(SVC(), Cs=self.Cs, gammas=self.gammas, cv=5).fit(self.X, self.y)


def samples(n, classes, dtype, d=20):
    """Standardised inputs (n, d) and labels (n,)."""
    X, y = make_classification(
        n, d, n_informative=10, n_classes=classes, n_clusters_per_class=2, random_state=0
    )
    return ((X - X.mean(axis=0)) / X.std(axis=0)).astype(dtype), y

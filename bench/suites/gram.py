"""Gram matrices, products with them, and pullbacks, for every kernel of the tests' table."""

import numpy as np

from mercer import _native
from mercer._threads import n_threads
from mercer.kernels import RBF, Fourier, Polynomial
from scenarios import SCENARIOS

TARGETS = {
    "rbf": RBF(gamma=0.05),
    "sum": RBF(gamma=0.05) + Polynomial(3),
    "composite": 0.5 * RBF(gamma=0.05) + Polynomial(3) * Fourier(2),
    "fourier": Fourier(5),
}
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


class Kernels:
    """Every scenario at a size where a call takes milliseconds."""

    params = (list(BY_NAME), [1000])
    param_names = ("kernel", "n")

    def setup(self, name, n):
        """Draw the samples, outside the timed part."""
        rng = np.random.default_rng(0)
        scenario = BY_NAME[name]
        self.k, self.X, self.Z = scenario.make(), scenario.domain(rng, n), scenario.domain(rng, n)
        self.V, self.G = rng.standard_normal((n, 10)), rng.standard_normal((n, n))

    def time_symmetric(self, name, n):
        self.k(self.X)

    def time_pairs(self, name, n):
        self.k(self.X, self.Z)

    def time_product(self, name, n):
        self.k.gram(self.X, self.Z) @ self.V

    def time_pullback(self, name, n):
        self.k.pullback(self.X, self.Z, self.G)


class Targets:
    """The expressions that the design sets targets for, at their sizes."""

    params = (list(TARGETS), [16, 128, 784], ["float64", "float32"])
    param_names = ("kernel", "d", "dtype")

    def setup(self, name, d, dtype):
        """Draw the samples; the Fourier kernels' product over many features leaves the range."""
        if d > 16 and name != "rbf":
            raise NotImplementedError
        self.X = np.random.default_rng(0).random((4000, d)).astype(dtype)
        self.out = np.empty((4000, 4000), dtype)

    def time_fresh(self, name, d, dtype):
        TARGETS[name](self.X)

    def time_reused(self, name, d, dtype):
        TARGETS[name](self.X, out=self.out)


class Memory:
    """What a product holds: no n × n matrix."""

    def setup(self):
        """Draw the samples."""
        rng = np.random.default_rng(0)
        self.X, self.V = rng.standard_normal((20000, 20)), rng.standard_normal((20000, 10))

    def peakmem_product(self):
        RBF(gamma=0.05).gram(self.X) @ self.V


def track_threads():
    """Threads that these runs used."""
    return n_threads(None)


def track_instruction_set():
    """The instruction set in use, as its place in the list of those that run here."""
    return list(_native.isas()).index(_native.isa())

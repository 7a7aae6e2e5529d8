"""Support vector machines for all C of one kernel and one fold, each begun at the one before.

Place on the way: ``solvers`` → ``_faces`` → **chains** → ``_machine_path``.

The kernel matrix is that of all samples, whatever the fold: a sample that is held out has the box [0, 0],
and its decision falls out of the solver's gradient. With β in hand a problem is posed in what β still
changes by, so that nothing is computed twice: c becomes F = c − Kβ, and the box moves by −β.
"""

import threading
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ..solvers.dual import STATUS, DualJob, DualSamples
from ._faces import Rows, face_steps, newton_on_faces

__all__ = ["Chain", "Gram", "Pairs", "Reached"]

# Up to so many samples rows are float64, as in a fit by itself.
_DOUBLE_UP_TO = 1000
# The standard deviation of the rounding of a float32 entry, relative to it: uniform within half a unit.
_ROUNDING = 2.4e-8
# Rows by which the size of the entries is judged.
_PROBE = 64
# SMO steps before anything else is tried: so many for each sample, of which there count as many at least.
_STEPS, _LEAST_STEPS = 6, 500
_CAPPED = STATUS.index("capped")


class Pairs:
    """The problems of one-against-one: pairs of classes; those that have no class in common share arrays.

    Parameters
    ----------
    sizes : sequence of int
        Samples of each class; samples are in the order of the classes.

    Attributes
    ----------
    places, signs : list of ndarray
        Of each pair: where its samples are in arrays of shape (n_sets, n), flattened, and their signs.
    """

    def __init__(self, sizes):
        self.sizes, self.k = list(sizes), len(sizes)
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        self.pairs = list(combinations(range(self.k), 2))
        sets = self._rounds()
        self.n_sets = max(sets.values()) + 1
        self.jobs = [DualJob((a, a + 1), (b, b + 1), (1.0, -1.0), set=sets[a, b]) for a, b in self.pairs]
        self.parts = [tuple(self.of_class(c) for c in pair) for pair in self.pairs]
        n = int(self.offsets[-1])
        self.signs = [np.repeat([1.0, -1.0], [sizes[a], sizes[b]]) for a, b in self.pairs]
        self.places = [
            job.set * n + np.concatenate([np.arange(part.start, part.stop) for part in parts])
            for job, parts in zip(self.jobs, self.parts, strict=True)
        ]

    def of_class(self, c):
        """Where the samples of a class are."""
        return slice(int(self.offsets[c]), int(self.offsets[c + 1]))

    def _rounds(self):
        """The round in which two meet when each plays each (the circle method)."""
        places = list(range(self.k + self.k % 2))
        found = {}
        for turn in range(len(places) - 1):
            for i in range(len(places) // 2):
                a, b = sorted((places[i], places[-1 - i]))
                if b < self.k:
                    found[a, b] = turn
            places = [places[0], places[-1], *places[1:-1]]
        return found


class Gram:
    """The kernel matrix of all samples in class order, made when first asked for and shared by the folds.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray, csr_array or sequence
    groups : list of ndarray of int
        Rows of X by class.
    tol : float
        What the solver stops at: float32 entries must do for it.
    n_threads : int

    Attributes
    ----------
    users : int
        Chains that are still to be solved with it.
    """

    def __init__(self, kernel, X, groups, tol, n_threads):
        self._given, self._lock, self._held = (kernel, X, groups, n_threads), threading.Lock(), {}
        self._tol, self._entry_size = tol, None
        self.dtype, self.users = None, 0

    def held(self, check, dtype=None):
        """(DualSamples, matrix, places) in a dtype, by default the one that will do."""
        with self._lock:
            dtype = dtype or self.dtype or self._choose()
            if dtype not in self._held:
                samples = self._samples()
                matrix, places = samples.hold(dtype, on_step=check)
                samples.n_threads = 1
                self._held[dtype] = samples, matrix, places
            return self._held[dtype]

    def leave(self):
        """Say that one of its users needs it no more; the last one takes the matrices along."""
        with self._lock:
            self.users -= 1
            if self.users <= 0:
                self._held.clear()

    def _samples(self):
        kernel, X, groups, n_threads = self._given
        return DualSamples(kernel, X, groups, n_threads=n_threads)

    def _choose(self):
        samples = self._samples()
        single = samples.sizes.sum() > _DOUBLE_UP_TO and 8 * samples.rounding() <= self._tol
        self.dtype = np.dtype(np.float32 if single else np.float64)
        return self.dtype

    def entry_size(self, check):
        """The root mean square of the entries of the largest of some rows."""
        if self._entry_size is None:
            _, matrix, places = self.held(check)
            some = matrix[places[:: max(1, len(places) // _PROBE)]].astype(np.float64)
            self._entry_size = float(np.sqrt(np.square(some).mean(axis=1).max()))
        return self._entry_size


@dataclass
class Reached:
    """The machines of one C.

    Attributes
    ----------
    beta, F : ndarray of shape (n_sets, n)
        yβ and y(c − Kβ) = 1 − y Kβ, by sample in class order; the set of a pair says which row is its.
    bias : ndarray of shape (p,)
    converged : bool
    """

    beta: np.ndarray
    F: np.ndarray
    bias: np.ndarray
    converged: bool


class Chain:
    """The machines of a fold along C, ascending.

    Parameters
    ----------
    gram : Gram
    pairs : Pairs
    weights : ndarray of shape (n,)
        Of each sample in class order, by which C is multiplied: 0 for those held out.
    tol : float
    shrinking : bool
    cache_bytes : float
        For rows of the variables that are left after shrinking.
    check : callable
        Called now and then; may raise.
    """

    def __init__(self, gram, pairs, weights, *, tol, shrinking, cache_bytes, check):
        self.gram, self.pairs, self.weights, self.check = gram, pairs, weights, check
        self.options = {"tol": tol, "shrinking": shrinking, "cache_bytes": cache_bytes, "on_step": check}
        self.beta = np.zeros((pairs.n_sets, len(weights)))
        self.F = np.ones_like(self.beta)
        self.C, self.n_iter = None, 0
        self.every = np.concatenate(pairs.places)
        self.starts = np.cumsum([0] + [len(places) for places in pairs.places[:-1]])
        self.crawled = np.zeros(len(pairs.jobs), bool)
        self.n_train = [sum(int(np.count_nonzero(weights[part])) for part in parts) for parts in pairs.parts]
        self.bias, self.status = np.zeros(len(pairs.jobs)), np.zeros(len(pairs.jobs), int)
        self._read_from(gram.held(check))

    def _read_from(self, held):
        self.samples, matrix, places = held
        self.dtype = matrix.dtype
        self.rows = [Rows(matrix, [_stretch(places, part) for part in parts]) for parts in self.pairs.parts]

    def advance(self, C):
        """Go on to C, which is larger than the one before.

        Returns
        -------
        Reached
        """
        if self.C is not None:
            self._begin(C / self.C)
        self.C = C
        self._reach()
        if self.dtype == np.float32 and self._noise() > self.options["tol"]:
            self._read_from(self.gram.held(self.check, np.dtype(np.float64)))
            self._refresh()
            self._reach()
        # a solution at which rounding leaves no step is one for which a fit by itself warns, too
        return Reached(self.beta.copy(), self.F.copy(), self.bias.copy(), not self.status.any())

    # ---------------------------------------------------------------- where to begin

    def _begin(self, ratio):
        """At β, or at β times the ratio of the two C, whichever has the lower objective at the new C."""
        beta, F = (self._flat(array) for array in (self.beta, self.F))
        linear, quadratic = self._by_pair(beta), self._by_pair(beta * (1 - F))
        lower = 0.5 * ratio**2 * quadratic - ratio * linear < 0.5 * quadratic - linear
        by = np.repeat(np.where(lower, ratio, 1.0), np.diff(self.starts, append=len(beta)))
        self.beta.flat[self.every] = by * beta
        self.F.flat[self.every] = 1 - by * (1 - F)

    def _noise(self):
        """The standard deviation of what rounding of the matrix does to F; LIBSVM's rows are rounded, too."""
        size = np.sqrt(self._by_pair(np.square(self._flat(self.beta))).max())
        return _ROUNDING * self.gram.entry_size(self.check) * size

    def _refresh(self):
        for index, signs in enumerate(self.pairs.signs):
            beta, _ = self._signed(index)
            used = np.flatnonzero(beta)
            self._put(index, self.F, signs - self.rows[index].product(used, beta[used]))

    # ---------------------------------------------------------------- arrays of problems

    def _flat(self, array):
        """An array (n_sets, n) by the variables of all pairs."""
        return array.ravel()[self.every]

    def _by_pair(self, values):
        """Sums of such."""
        return np.add.reduceat(values, self.starts)

    def _signed(self, index):
        """β and F of a pair."""
        places, signs = self.pairs.places[index], self.pairs.signs[index]
        return signs * self.beta.flat[places], signs * self.F.flat[places]

    def _put(self, index, array, signed):
        array.flat[self.pairs.places[index]] = self.pairs.signs[index] * signed

    # ---------------------------------------------------------------- solving

    def _reach(self):
        """SMO for a while; Newton steps for the problems that it leaves; SMO again, which looks at these."""
        every = list(range(len(self.pairs.jobs)))
        self.upper = np.tile(np.minimum(self.C * self.weights, np.finfo(float).max), (len(self.beta), 1))
        left = self._solve(every, _STEPS * max(_LEAST_STEPS, *self.n_train))
        if not left:
            return
        for index in left:
            self._newton(index, self.n_train[index])
        self._solve(left, -1)

    def _newton(self, index, n):
        signs = self.pairs.signs[index]
        beta, F = self._signed(index)
        bound = self.upper.flat[self.pairs.places[index]]
        size = signs * beta
        steps = face_steps(np.count_nonzero((size > 0) & (size < bound)), n)
        # A larger C takes more steps: what was crawled through once is not again.
        if not self.crawled[index] and steps > max(_LEAST_STEPS, n):
            if not self._solve([index], steps):
                return
            beta, F = self._signed(index)
        self.crawled[index] = True
        lower, upper = np.where(signs > 0, 0.0, -bound), np.where(signs > 0, bound, 0.0)
        newton_on_faces(self.rows[index], F, beta, lower, upper, self.options["tol"], check=self.check)
        self._put(index, self.beta, beta)
        self._put(index, self.F, F)

    def _solve(self, which, max_iter):
        """Solve pairs from β, in what β changes by. Returns those that were capped."""
        jobs = [self.pairs.jobs[index] for index in which]
        lower, upper = -self.beta, self.upper - self.beta
        options = {**self.options, "max_iter": max_iter, "fields": True, "dtype": self.dtype}
        outcome = self.samples.solve(jobs, self.F, lower, upper, **options)
        self.n_iter += int(outcome.n_iter.sum())
        places = np.concatenate([self.pairs.places[index] for index in which])
        signs = np.concatenate([self.pairs.signs[index] for index in which])
        change = signs * np.concatenate(outcome.beta)
        beta = self.beta.ravel()[places] + change
        # exactly to the bounds, where they were reached
        at_upper, at_lower = change == upper.ravel()[places], change == lower.ravel()[places]
        beta[at_upper] = self.upper.ravel()[places[at_upper]]
        beta[at_lower] = 0.0
        self.beta.flat[places] = beta
        self.F.flat[places] = signs * np.concatenate(outcome.field)
        self.bias[which], self.status[which] = outcome.bias[:, 0], outcome.status
        return [index for index, status in zip(which, outcome.status, strict=True) if status == _CAPPED]


def _stretch(places, part):
    return slice(int(places[part.start]), int(places[part.stop - 1]) + 1)

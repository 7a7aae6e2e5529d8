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
# SMO steps before anything else is tried, at least.
_LEAST_STEPS = 500
_CAPPED = STATUS.index("capped")


class Pairs:
    """The problems of one-against-one: pairs of classes; those that have no class in common share arrays.

    Parameters
    ----------
    sizes : sequence of int
        Samples of each class; samples are in the order of the classes.
    """

    def __init__(self, sizes):
        self.sizes, self.k = list(sizes), len(sizes)
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        self.pairs = list(combinations(range(self.k), 2))
        sets = self._rounds()
        self.n_sets = max(sets.values()) + 1
        self.jobs = [DualJob((a, a + 1), (b, b + 1), (1.0, -1.0), set=sets[a, b]) for a, b in self.pairs]
        self.parts = [tuple(self.of_class(c) for c in pair) for pair in self.pairs]

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
        self.n_free = 0
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
        inside = (self.beta > 0) & (self.beta < self.upper)
        self.n_free = int(np.count_nonzero(inside, axis=1).max()) * 2 // self.pairs.k
        # a solution at which rounding leaves no step is one for which a fit by itself warns, too
        return Reached(self.beta.copy(), self.F.copy(), self.bias.copy(), not self.status.any())

    # ---------------------------------------------------------------- where to begin

    def _begin(self, ratio):
        """At β, or at β times the ratio of the two C, whichever has the lower objective at the new C."""
        for job, parts in zip(self.pairs.jobs, self.pairs.parts, strict=True):
            for_all = [(self.beta[job.set, part], self.F[job.set, part]) for part in parts]
            linear = sum(beta.sum() for beta, _ in for_all)
            quadratic = sum(beta @ (1 - F) for beta, F in for_all)
            if 0.5 * ratio**2 * quadratic - ratio * linear < 0.5 * quadratic - linear:
                for beta, F in for_all:
                    beta *= ratio
                    F[...] = 1 - ratio * (1 - F)

    def _noise(self):
        """The standard deviation of what rounding of the matrix does to F; LIBSVM's rows are rounded, too."""
        size = max(np.sqrt(sum(np.sum(self.beta[job.set, part] ** 2) for part in parts))
                   for job, parts in zip(self.pairs.jobs, self.pairs.parts, strict=True))  # fmt: skip
        return _ROUNDING * self.gram.entry_size(self.check) * size

    def _refresh(self):
        for index in range(len(self.pairs.jobs)):
            beta, _, signs = self._signed(index)
            used = np.flatnonzero(beta)
            self._put(index, self.F, signs - self.rows[index].product(used, beta[used]))

    # ---------------------------------------------------------------- one problem's arrays

    def _signed(self, index):
        """β and F of a pair, and the signs of its samples."""
        job, parts = self.pairs.jobs[index], self.pairs.parts[index]
        signs = np.repeat([1.0, -1.0], [part.stop - part.start for part in parts])
        beta, F = (np.concatenate([array[job.set, part] for part in parts]) for array in (self.beta, self.F))
        return signs * beta, signs * F, signs

    def _put(self, index, array, signed):
        first, second = self.pairs.parts[index]
        count = first.stop - first.start
        array[self.pairs.jobs[index].set, first] = signed[:count]
        array[self.pairs.jobs[index].set, second] = -signed[count:]

    # ---------------------------------------------------------------- solving

    def _reach(self):
        """SMO for a while; Newton steps for the problems that it leaves; SMO again, which looks at these."""
        every = range(len(self.pairs.jobs))
        self.upper = np.broadcast_to(np.minimum(self.C * self.weights, np.finfo(float).max), self.beta.shape)
        # where most stay free, rows are cut down for nothing
        shrinking = self.options["shrinking"] and 4 * self.n_free < max(self.n_train)
        left = self._solve(every, max(_LEAST_STEPS, *self.n_train), shrinking=shrinking)
        if not left:
            return
        for index in left:
            self._newton(index, self.n_train[index])
        self._solve(left, -1)

    def _newton(self, index, n):
        parts, row = self.pairs.parts[index], self.pairs.jobs[index].set
        beta, F, signs = self._signed(index)
        bound = np.concatenate([self.upper[row, part] for part in parts])
        size = signs * beta
        steps = face_steps(np.count_nonzero((size > 0) & (size < bound)), n)
        # A larger C takes more steps: what was crawled through once is not again.
        if not self.crawled[index] and steps > max(_LEAST_STEPS, n):
            if not self._solve([index], steps):
                return
            beta, F, _ = self._signed(index)
        self.crawled[index] = True
        lower, upper = np.where(signs > 0, 0.0, -bound), np.where(signs > 0, bound, 0.0)
        newton_on_faces(self.rows[index], F, beta, lower, upper, self.options["tol"], check=self.check)
        self._put(index, self.beta, beta)
        self._put(index, self.F, F)

    def _solve(self, which, max_iter, **options):
        """Solve pairs from β, in what β changes by. Returns those that were capped."""
        jobs = [self.pairs.jobs[index] for index in which]
        lower, upper = -self.beta, self.upper - self.beta
        options = {**self.options, "max_iter": max_iter, "fields": True, "dtype": self.dtype, **options}
        outcome = self.samples.solve(jobs, self.F, lower, upper, **options)
        self.n_iter += int(outcome.n_iter.sum())
        left = []
        for at, index in enumerate(which):
            first, second = self.pairs.parts[index]
            count, row = first.stop - first.start, jobs[at].set
            for part, change, F in (
                (first, outcome.beta[at][:count], outcome.field[at][:count]),
                (second, -outcome.beta[at][count:], -outcome.field[at][count:]),
            ):
                # exactly to the bounds, where they were reached
                beta = np.where(
                    change == upper[row, part], self.upper[row, part], self.beta[row, part] + change
                )
                self.beta[row, part] = np.where(change == lower[row, part], 0.0, beta)
                self.F[row, part] = F
            self.bias[index], self.status[index] = outcome.bias[at, 0], outcome.status[at]
            if outcome.status[at] == _CAPPED:
                left.append(index)
        return left


def _stretch(places, part):
    return slice(int(places[part.start]), int(places[part.stop - 1]) + 1)

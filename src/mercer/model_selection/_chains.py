"""Support vector machines for all C of one kernel and one fold, each begun at the one before.

Place on the way: ``solvers`` → **chains** → ``_machine_path``.

The kernel matrix is that of all samples, whatever the fold: a sample that is held out has the box [0, 0],
and its decision falls out of the solver's gradient. F = c − Kβ is handed to the solver with β, so that
nothing is computed twice.
"""

import threading
from dataclasses import dataclass
from itertools import combinations, compress

import numpy as np

from .._native import DUAL_AT_F
from ..solvers.dual import DualSamples
from ..solvers.dual_layout import STATUS, DualJob, most_steps
from ..solvers.faces import face_steps, newton_on_faces

__all__ = ["Chain", "Gram", "Pairs", "Reached"]

# Up to so many samples rows are float64, as in a fit by itself.
_DOUBLE_UP_TO = 1000
# The standard deviation of the rounding of a float32 entry, relative to it: uniform within half a unit. A gap
# may be off by so many of them: two of the largest of many errors meet in it.
_ROUNDING, _LARGEST = 2.4e-8, 8
# A gap of so many times tol by F itself is more than what rounding of rates to float32 leaves beside tol.
_TOO_FAR = 1.1
# So often float32 rows go on from an F that was computed in float64, until all rows are.
_LOOKS = 3
_EPS = np.finfo(np.float64).eps
# Of tol, what rounding of F may come to.
_PART = 1e-3
# Seconds between looks at whether to go on, of those who wait for room.
_WAIT = 0.05
# Rows by which the size of the entries is judged.
_PROBE = 64
# SMO steps before anything else is tried: so many for each sample, of which there count as many at least.
_STEPS, _LEAST_STEPS = 3, 500
_CAPPED = STATUS.index("capped")


class Pairs:
    """The problems of one-against-one: pairs of classes; those that have no class in common share arrays.

    Parameters
    ----------
    sizes : sequence of int
        Samples of each class; samples are in the order of the classes.

    Attributes
    ----------
    first, second : ndarray of shape (p,)
        The classes.
    parts : list
        Of each pair: where the samples of its classes are.
    starts : ndarray of shape (p,)
        Where the samples of each pair begin, one pair after another.
    """

    def __init__(self, sizes):
        self.sizes, self.k = np.array(sizes), len(sizes)
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        pairs = list(combinations(range(self.k), 2))
        sets = self._rounds()
        self.n_sets = max(sets.values()) + 1
        self.jobs = [DualJob((a, a + 1), (b, b + 1), (1.0, -1.0), set=sets[a, b]) for a, b in pairs]
        self.first, self.second = np.array(pairs).T
        self.parts = [tuple(self.of_class(c) for c in pair) for pair in pairs]
        counts = self.sizes[self.first] + self.sizes[self.second]
        self.starts = counts.cumsum() - counts

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
    room : Semaphore
        Of as many as may have a matrix at a time. Who has one must not wait for those who wait for room.
    n_threads : int

    Attributes
    ----------
    users : int
        Chains that are still to be solved with it.
    """

    def __init__(self, kernel, X, groups, tol, *, room, n_threads):
        self._given, self._lock, self._held = (kernel, X, groups, n_threads), threading.Lock(), {}
        self._tol, self._entry_size, self._exact = tol, None, None
        self._room, self._has_room = room, False
        self.dtype, self.users = None, 0

    def held(self, check, dtype=None):
        """(DualSamples, matrix, places) in a dtype, by default the one that will do."""
        with self._lock:
            while not self._has_room:
                check()
                self._has_room = self._room.acquire(timeout=_WAIT)
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
                self._exact = None
                if self._has_room:
                    self._room.release()
                    self._has_room = False

    def _samples(self):
        kernel, X, groups, n_threads = self._given
        return DualSamples(kernel, X, groups, n_threads=n_threads)

    def _choose(self):
        samples = self._samples()
        single = samples.sizes.sum() > _DOUBLE_UP_TO and 8 * samples.rounding() <= self._tol
        self.dtype = np.dtype(np.float32 if single else np.float64)
        return self.dtype

    def exact(self, jobs):
        """Problems laid out in float64, whose rows are computed when they are asked for."""
        with self._lock:
            if self._exact is None:
                self._exact = self._samples()
                self._exact.n_threads = 1
            return self._exact.problems(jobs, np.float64)

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
    beta, F : ndarray
        β and c − Kβ of the samples of each pair, one pair after another; c is 1, or −1 for the second class.
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
        self.C = None
        self.crawled = np.zeros(len(pairs.jobs), bool)
        self.n_train = [sum(int(np.count_nonzero(weights[part])) for part in parts) for parts in pairs.parts]
        self.status, self.gap, self.bias = np.zeros((3, len(pairs.jobs)))
        # of F, as it grows where F is multiplied
        self.rounding = np.full(len(pairs.jobs), _EPS)
        self._read_from(gram.held(check))
        self.beta, self.F = np.zeros(self.problems.size), self.linear.copy()
        # where F was computed from exact kernel values
        self.known = self.beta.copy()

    def _read_from(self, held):
        """Lay out the problems over a matrix; β and F are by variable, as `DualProblems` has them."""
        samples, matrix, places = held
        self.dtype = matrix.dtype
        self.problems = samples.problems(self.pairs.jobs, matrix.dtype)
        self.spans = self.problems.spans
        self.rows = [self.problems.rows(index) for index in range(len(self.spans))]
        self.linear = self.problems.by_variable(self.problems.signs)
        most = self.problems.signs * self.weights[self.problems.samples]
        self.least, self.most = (
            self.problems.by_variable(np.minimum(most, 0.0)),
            self.problems.by_variable(np.maximum(most, 0.0)),
        )

    def advance(self, C):
        """Go on to C, which is larger than the one before.

        Returns
        -------
        Reached
        """
        if self.C is not None:
            self._begin(np.float64(C) / self.C)
        self.C = C
        self._set_box()
        np.clip(self.beta, self.lower, self.upper, out=self.beta)  # where it is but for rounding
        self._reach(range(len(self.spans)))
        looks = 0
        while (far := self._is_far()).any():
            if looks < _LOOKS:
                self._compute_F(far)
            else:
                self._go_double()
                far[:] = True
            self._reach(np.flatnonzero(far).tolist())
            looks += 1
        # a solution at which rounding leaves no step is one for which a fit by itself warns, too
        taken = self.problems.taken
        return Reached(self.beta[taken], self.F[taken], self.bias.copy(), not self.status.any())

    # ---------------------------------------------------------------- where to begin

    def _begin(self, ratio):
        """At β, or at β times the ratio of the two C, whichever has the lower objective at the new C."""
        product = self.linear - self.F
        linear, quadratic = self._by_pair(np.abs(self.beta)), self._by_pair(self.beta * product)
        with np.errstate(over="ignore", invalid="ignore"):
            lower = 0.5 * ratio**2 * quadratic - ratio * linear < 0.5 * quadratic - linear
        self.rounding[lower] *= ratio
        far = lower & (self.rounding > _PART * self.options["tol"])
        for span in compress(self.spans, lower):
            self.beta[span] *= ratio
            self.known[span] *= ratio
        for span in compress(self.spans, lower & ~far):
            self.F[span] += (1 - ratio) * product[span]
        if far.any():
            self._compute_F(far)

    def _is_far(self):
        """Of each pair whether rounding of the matrix may keep its gap from tol, as β is far from `known`.

        Or whether it did: of a large F float32 tells rates apart no more.
        """
        if self.dtype == np.float64:
            return np.zeros(len(self.spans), bool)
        sizes, tol = np.sqrt(self._by_pair(np.square(self.beta - self.known))), self.options["tol"]
        noise = _LARGEST * _ROUNDING * self.gram.entry_size(self.check) * sizes
        return (noise > tol) | ((self.gap > _TOO_FAR * tol) & (self.status == 0))

    def _set_box(self):
        """The bounds of β at C."""
        largest = np.finfo(float).max
        self.lower = np.maximum(self.C * self.least, -largest)
        self.upper = np.minimum(self.C * self.most, largest)

    def _go_double(self):
        """Read from a float64 matrix from now on."""
        beta = self.beta[self.problems.taken]
        self._read_from(self.gram.held(self.check, np.dtype(np.float64)))
        self._set_box()
        self.beta = self.problems.by_variable(beta)
        self.known, self.F = self.beta.copy(), self.linear.copy()
        self._compute_F(np.ones(len(self.spans), bool))

    def _compute_F(self, which):
        """F from β of some pairs, by kernel values in float64."""
        problems = self.problems if self.dtype == np.float64 else self.gram.exact(self.pairs.jobs)
        beta = problems.by_variable(self.beta[self.problems.taken])
        F = problems.by_variable(self.F[self.problems.taken])
        linear = problems.by_variable(problems.signs)
        for index in np.flatnonzero(which):
            self.check()
            span = problems.spans[index]
            used = np.flatnonzero(beta[span])
            F[span] = linear[span] - problems.rows(index).product(used, beta[span][used])
            self.known[self.spans[index]] = self.beta[self.spans[index]]
        self.F = self.problems.by_variable(F[problems.taken])
        self.rounding[which] = _EPS

    def _by_pair(self, values):
        """Sums of values by variable."""
        return np.add.reduceat(values, self.problems.offsets)

    # ---------------------------------------------------------------- solving

    def _reach(self, which):
        """SMO for a while, Newton steps for the pairs that it leaves, SMO again, and so on ever longer."""
        spent = steps = _STEPS * max(_LEAST_STEPS, *self.n_train)
        left = self._solve(which, steps)
        while left and spent < most_steps(max(self.n_train)):
            for index in left:
                self._newton(index, self.n_train[index])
            left = self._solve(left, steps)
            spent += steps
            steps = spent

    def _newton(self, index, n):
        beta, F, lower, upper = (a[self.spans[index]] for a in (self.beta, self.F, self.lower, self.upper))
        steps = face_steps(np.count_nonzero((beta > lower) & (beta < upper)), n)
        # A larger C takes more steps: what was crawled through once is not again.
        if not self.crawled[index] and steps > max(_LEAST_STEPS, n) and not self._solve([index], steps):
            return
        self.crawled[index] = True
        newton_on_faces(self.rows[index], F, beta, lower, upper, self.options["tol"], check=self.check)

    def _solve(self, which, max_iter):
        """Solve pairs from β and F. Returns those that were capped."""
        table = self.problems.solve(
            self.F, self.lower, self.upper, self.beta, self.F, which=which, start=DUAL_AT_F, max_iter=max_iter,
            **self.options,
        )  # fmt: skip
        self.status[which], self.gap[which], self.bias[which] = table["status"], table["gap"], table["bias"][:, 0]
        return [index for index, status in zip(which, table["status"], strict=True) if status == _CAPPED]

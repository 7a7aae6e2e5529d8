"""Support vector machines for all C of one kernel, one fold and one pair of classes.

Place on the way: ``solvers`` → **chains** → ``_machine_path``.

The kernel matrix is that of all samples, whatever the fold: a sample that is held out has the box [0, 0],
and its decision falls out of the solver's gradient. Native code goes from C to C (``dual_path.c``); what SMO
alone, or float32, does not bring to tol is seen to here.
"""

import threading
import time

import numpy as np

from .._native import DUAL_PATH_CAPPED, DUAL_PATH_ENDED, DUAL_PATH_FAR
from ..estimators._machines import binary_jobs, pairs_of
from ..solvers.dual import DualSamples
from ..solvers.dual_layout import most_steps
from ..solvers.dual_path import DualPath
from ..solvers.faces import face_steps, newton_on_faces

__all__ = ["Chain", "Gram", "Pairs"]

# Up to so many samples rows are float64, as in a fit by itself.
_DOUBLE_UP_TO = 1000
# The standard deviation of the rounding of a float32 entry, relative to it: uniform within half a unit. A gap
# may be off by so many of them: two of the largest of many errors meet in it.
_ROUNDING, _LARGEST = 2.4e-8, 8
# So often float32 rows go on from an F that was computed in float64, until all rows are.
_LOOKS = 3
# Seconds between looks at whether to go on, of those who wait for room.
_WAIT = 0.05
# Rows by which the size of the entries is judged.
_PROBE = 64
# SMO steps before anything else is tried: so many for each sample, of which there count as many at least.
_STEPS, _LEAST_STEPS = 3, 500


class Pairs:
    """The problems of one-against-one: pairs of classes. Samples are in the order of the classes.

    Parameters
    ----------
    sizes : sequence of int
        Samples of each class.

    Attributes
    ----------
    classes : ndarray of shape (p, 2)
    first, second : ndarray of shape (p,)
        Its columns.
    jobs : ndarray
        Of `dual_jobs`.
    sides : Sides
        Their samples.
    offsets : ndarray of shape (k + 1,)
        Where the samples of each class begin.
    """

    def __init__(self, sizes):
        self.sizes, self.k = np.array(sizes), len(sizes)
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        self.classes = pairs_of(np.arange(self.k))
        self.first, self.second = self.classes.T
        self.jobs, self.sides = binary_jobs(self.offsets, self.classes)

    def of_class(self, c):
        """The pairs that a class is in, and the parts of their samples that are its own."""
        for p in np.flatnonzero((self.first == c) | (self.second == c)):
            start = 0 if self.first[p] == c else self.sizes[self.first[p]]
            yield int(p), slice(int(start), int(start + self.sizes[c]))


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
    leaf : SharedLeaf or None
        What kernels of the same samples and groups have in common.

    Attributes
    ----------
    users : int
        Tasks that are still to be done with it.
    """

    def __init__(self, kernel, X, groups, tol, *, room, n_threads, leaf=None):
        self._given, self._lock, self._held = (kernel, X, groups, n_threads), threading.Lock(), {}
        self._leaf = leaf
        self._tol, self._entry_size, self._exact = tol, None, None
        self._room, self._has_room = room, False
        self.dtype, self.users, self._whole = None, 0, None

    def held(self, check, dtype=None):
        """(DualSamples, matrix, places) in a dtype, by default the one that will do."""
        with self._lock:
            self._wait(check)
            dtype = dtype or self.dtype or self._choose()
            if dtype not in self._held:
                samples = self._samples()
                matrix, places = samples.hold(dtype, on_step=check)
                samples.n_threads = 1
                self._held[dtype] = samples, matrix, places
            return self._held[dtype]

    def _wait(self, check):
        while not self._has_room:
            check()
            self._has_room = self._room.acquire(timeout=_WAIT)

    def leave(self):
        """Say that one of its users needs it no more; the last one takes the matrices along."""
        with self._lock:
            self.users -= 1
            if self.users <= 0:
                self._held.clear()
                self._exact = self._whole = None
                if self._has_room:
                    self._room.release()
                    self._has_room = False

    def _samples(self, held=False):
        kernel, X, groups, n_threads = self._given
        threads = 1 if held else n_threads
        return DualSamples(kernel, X, groups, n_threads=threads, held=held, leaf=self._leaf)

    def _choose(self):
        samples = self._samples()
        single = samples.sizes.sum() > _DOUBLE_UP_TO and 8 * samples.rounding() <= self._tol
        self.dtype = np.dtype(np.float32 if single else np.float64)
        return self.dtype

    def whole(self, check):
        """DualSamples that have their matrices, for all pairs at once."""
        with self._lock:
            self._wait(check)
            if self._whole is None:
                self._whole = self._samples(held=True)
            return self._whole

    def problem(self, job, check, dtype=None):
        """One problem over the matrix, as `DualProblems`."""
        samples, matrix, _ = self.held(check, dtype)
        return samples.problems(job, matrix.dtype)

    def exact(self, job):
        """One problem whose rows are computed when they are asked for, in float64."""
        with self._lock:
            if self._exact is None:
                self._exact = self._samples()
                self._exact.n_threads = 1
            return self._exact.problems(job, np.float64)

    def entry_size(self, check):
        """The root mean square of the entries of the largest of some rows."""
        if self._entry_size is None:
            _, matrix, places = self.held(check)
            some = matrix[places[:: max(1, len(places) // _PROBE)]].astype(np.float64)
            self._entry_size = float(np.sqrt(np.square(some).mean(axis=1).max()))
        return self._entry_size


class Chain:
    """The machines of a fold and a pair of classes along C, ascending.

    Parameters
    ----------
    gram : Gram
    job : ndarray
        Of one of `dual_jobs`: of the pair.
    weights : ndarray of shape (n,)
        Of each sample in class order, by which C is multiplied: 0 for those held out.
    Cs : ndarray of shape (n_C,)
    tol : float
    shrinking : bool
    cache_bytes : float
        For rows of the variables that are left after shrinking.
    check : callable
        Called now and then; may raise.

    Attributes
    ----------
    path : DualPath
    """

    def __init__(self, gram, job, weights, Cs, *, tol, shrinking, cache_bytes, check):
        self.gram, self.job, self.check = gram, job, check
        self.options = {"tol": tol, "shrinking": shrinking, "cache_bytes": cache_bytes, "on_step": check}
        problem = gram.problem(job, check)
        weights = weights[problem.samples]
        self.n_train = int(np.count_nonzero(weights))
        self.steps = _STEPS * max(_LEAST_STEPS, self.n_train)
        noise = _LARGEST * _ROUNDING * gram.entry_size(check) if problem.dtype == np.float32 else 0.0
        self.path = DualPath(problem, weights, Cs, noise)
        self.crawled = False

    def run(self):
        """Solve for all C.

        Returns
        -------
        DualPath
        """
        at, end = 0, len(self.path.C)
        while at < end:
            at, left = self.path.go_on(at, end, begun=False, max_iter=self.steps, **self.options)
            if left != DUAL_PATH_ENDED:
                begun, spent = time.perf_counter(), self.path.seconds[at]
                self._see_to(at, left)
                self.path.seconds[at] = spent + time.perf_counter() - begun
                at += 1
        return self.path

    def _solve(self, at, max_iter):
        """Go on with one machine. Returns why it is left, which is not so if it is ``DUAL_PATH_ENDED``."""
        return self.path.go_on(at, at + 1, begun=True, max_iter=max_iter, **self.options)[1]

    def _see_to(self, at, left):
        """Bring a machine to tol that native code left."""
        looks = 0
        while left != DUAL_PATH_ENDED:
            if left == DUAL_PATH_CAPPED:
                left = self._crawl(at)
                if left == DUAL_PATH_CAPPED:
                    return
                continue
            if looks < _LOOKS:
                self._compute_F(at)
            else:
                self._go_double(at)
            looks += left == DUAL_PATH_FAR
            left = self._solve(at, self.steps)

    def _crawl(self, at):
        """Newton steps and SMO for a while in turns, ever longer. Returns as `_solve`."""
        path, rows = self.path, self.path.problem.rows(0)
        beta, F, lower, upper = path.beta[at], path.field[at], path.lower, path.upper
        # A larger C takes more steps: what was crawled through once is not again.
        more = face_steps(np.count_nonzero((beta > lower) & (beta < upper)), self.n_train)
        if not self.crawled and more > max(_LEAST_STEPS, self.n_train):
            left = self._solve(at, more)
            if left != DUAL_PATH_CAPPED:
                return left
        self.crawled = True
        left, spent, steps = DUAL_PATH_CAPPED, self.steps, self.steps
        while left == DUAL_PATH_CAPPED and spent < most_steps(self.n_train):
            newton_on_faces(rows, F, beta, lower, upper, self.options["tol"], check=self.check)
            left = self._solve(at, steps)
            spent += steps
            steps = spent
        return left

    def _compute_F(self, at):
        """F of a machine from β, by kernel values in float64."""
        self.check()
        path = self.path
        problem = path.problem if path.problem.dtype == np.float64 else self.gram.exact(self.job)
        beta = problem.by_variable(path.beta[at, path.problem.taken])
        used = np.flatnonzero(beta)
        F = problem.by_variable(problem.signs) - problem.rows(0).product(used, beta[used])
        path.set_known(at, path.problem.by_variable(F[problem.taken]))

    def _go_double(self, at):
        """Read from a float64 matrix from now on."""
        self.path = self.path.on(self.gram.problem(self.job, self.check, np.dtype(np.float64)), at)
        self._compute_F(at)

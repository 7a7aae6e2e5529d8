"""Duals of support vector machines: samples, and how problems over them are solved.

Place on the way: kernel expression → ``gram`` → **solvers** → ``estimators``. ``native/dual.c`` iterates;
``dual_layout`` says what a problem is. Here are the precision of the kernel's rows, and Newton steps over
faces (``faces``) for problems that pairwise steps crawl through.
"""

import threading
from dataclasses import replace
from functools import partial

import numpy as np

from .. import _native
from .._memory import available_memory
from .._threads import n_threads as count_threads
from ..kernels.precomputed import Precomputed
from ..kernels.prepared import cast_side, sides, single_side, take_rows
from .dual_layout import STATUS, DualLayout, DualProblems, most_steps, same_diagonal
from .faces import face_steps, newton_on_faces

__all__ = ["DualSamples"]

# Up to so many samples float64 rows cost nothing that one would notice.
_DOUBLE_UP_TO = 1000
# Rows and columns of the sample by which float32 rows are judged.
_PROBE = 48
# By float32 rows the gap is driven so much further, so that the true one is below `tol`, too.
_CLOSER = 0.8
# SMO steps for each variable before steps over faces are tried, and how many at least; then as many as
# before. Fits of scaled samples at C = 10 take 0.1 to 3 for each.
_PATIENCE, _LEAST_PATIENCE = 8, 4000
# Steps over faces are begun where a few rounds cost no more than the SMO steps before, and may cost so many
# times that, half of it after each time that they did not end the problem.
_FACES_FOR = 4
# Rounds at most, whatever they cost.
_ROUNDS = 500
# Of the memory for rows, in numbers for each entry of a face's matrix: that, and columns of its inverse.
_FACE_NUMBERS = 3
# A constant of c is left out where it is so many times what c spreads over: less takes few digits.
_FAR = 100
_CAPPED = STATUS.index("capped")
# Exact values of F for one of so many variables are worth a look before those for all.
_MANY_NEAR = 2


class DualSamples:
    """Samples of a kernel, in groups that problems refer to.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray, csr_array or sequence
        Samples as the kernel's check returns them; for a precomputed kernel the square matrix.
    groups : list of ndarray of int
        Rows of X by group (class). A row may be in no group.
    n_threads : int or None
        As `mercer._threads.n_threads` reads it. It changes nothing in the results.
    held : bool
        Whether rows are to be those of a matrix in any case.
    leaf : SharedLeaf or None
        Has values for these samples and groups, for matrices that are held.

    Attributes
    ----------
    sizes : ndarray of int
        Samples of each group.
    most_held : float
        Bytes of a kernel matrix that may be held where that pays.
    """

    def __init__(self, kernel, X, groups, *, n_threads=None, held=False, leaf=None):
        self.kernel, self.n_threads, self.leaf = kernel, count_threads(n_threads), leaf
        self._groups = [np.asarray(group, dtype=np.intp) for group in groups]
        self.sizes = np.array([len(group) for group in self._groups])
        self._X = X
        self.program = kernel._compiled(X.shape[1] if hasattr(X, "shape") else None)
        self._layouts, self._matrix, self.held, self.most_held = {}, None, held, 0.0
        self._lock = threading.Lock()

    # ---------------------------------------------------------------- layouts

    def _layout(self, dtype, on_step=None):
        with self._lock:
            if dtype not in self._layouts:
                self._layouts[dtype] = DualLayout(self, dtype, on_step)
            return self._layouts[dtype]

    def matrix(self):
        """The kernel matrix of all rows of X, where rows come from no program."""
        if type(self.kernel) is Precomputed:
            return self._X
        if self._matrix is None:
            self._matrix = self.kernel(self._X, n_threads=self.n_threads)
        return self._matrix

    def scale(self):
        """The largest k(x, x)."""
        return float(self._layout(np.dtype(np.float64)).diagonal.max())

    def rounding(self):
        """The largest error of a float32 row's entry, on a sample of pairs; infinity where it will not do.

        And no less than rounding of the largest k(x, x) of all samples, few of which may be large.
        """
        if self.program.block_leaves:
            K = self.matrix()
            return _least_rounding(np.max(np.abs(K.diagonal()), initial=0.0))
        rows = np.concatenate(self._groups)
        some = rows[:: max(1, len(rows) // _PROBE)][:_PROBE]
        exact, _ = sides(self.program, take_rows(self._X, some))
        K = np.empty((len(some), len(some)))
        _native.gram(self.program, exact, exact, K, symmetric=True, n_threads=1)
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = single_side(self.program, exact)
            K32 = np.empty(K.shape, np.float32)
            _native.gram(self.program, rounded, rounded, K32, symmetric=True, n_threads=1, cancels=0.0)
            error = float(np.max(np.abs(K - K32)))
        if not np.isfinite(error):
            return np.inf
        largest = np.max(np.abs(K))
        if not same_diagonal(self.program):
            largest = max(largest, np.max(np.abs(self._layout(np.dtype(np.float32)).diagonal)))
        return max(_least_rounding(largest), error)

    def hold(self, dtype, *, on_step=None):
        """Have the whole kernel matrix in memory, for many problems over these samples.

        Parameters
        ----------
        dtype : dtype
            Of the rows. float32 entries are those of float64 rounded, as LIBSVM's are.
        on_step : callable or None
            Called now and then; may raise.

        Returns
        -------
        matrix : ndarray of shape (N, N)
            From which `solve` with this dtype reads from now on.
        places : ndarray of shape (n,)
            Where in it the samples are, in the order of the groups. What is in between is of no use.
        """
        layout = self._layout(np.dtype(dtype), on_step)
        if layout.run is not None:
            layout.hold(self.n_threads, on_step)
        return layout.matrix[:, : layout.n], layout.places

    def product(self, places, used, coefficients):
        """Sums over `used` samples with coefficients, at those places in the groups' order, in float64."""
        rows = np.concatenate(self._groups)
        rows, used = rows[places], rows[used]
        if self.program.block_leaves:
            return self.matrix()[rows][:, used] @ coefficients
        left, right = (
            cast_side(sides(self.program, take_rows(self._X, some))[0], np.dtype(np.float64))
            for some in (rows, used)
        )
        out = np.empty((len(rows), 1))
        _native.matmul(self.program, left, right, coefficients[:, None], out, n_threads=self.n_threads)
        return out[:, 0]

    def entries(self, places, dtype):
        """Entries (q, n) of some samples, in the groups' order, by a matrix that is held: float64."""
        layout = self._layout(np.dtype(dtype))
        return _native.matrix_entries(layout.matrix, layout.places[places], layout.places)

    # ---------------------------------------------------------------- solving

    def problems(self, jobs, dtype):
        """Problems laid out for many calls of `DualProblems.solve`, with rows of a dtype."""
        return DualProblems(self._layout(np.dtype(dtype)), jobs)

    def solve(
        self,
        jobs,
        linear,
        lower,
        upper,
        *,
        tol,
        max_iter=-1,
        cache_bytes=None,
        shrinking=True,
        start=None,
        cancels=False,
        fields=False,
        on_step=None,
        dtype=None,
    ):
        """Solve problems, several at once where there are threads.

        Parameters
        ----------
        jobs : ndarray
            Of `dual_jobs`.
        linear, lower, upper : ndarray of shape (n_sets, n)
            c, l and u by sample, in the order of the groups. A sample with l = u = 0 takes no part.
        tol : float
            The gap to be reached.
        max_iter : int
            SMO steps of each problem at most; −1 is `most_steps`. Newton steps over faces do not count.
        cache_bytes : float or None
            For rows of the kernel; None is half of the memory that is free.
        shrinking : bool
            Whether variables that look settled are left alone until the end.
        start : ndarray or None
            Feasible β of one problem after another, where the sums are taken from; None is 0.
        cancels : bool
            Whether K times the start is 0, since β of two variables of one sample cancel.
        fields : bool
            Whether `DualOutcome.field` is wanted.
        on_step : callable or None
            ``on_step(n_done, gap)``, called now and then, and at the end.
        dtype : dtype or None
            Of the rows, as long as steps do not crawl; None chooses, and makes sure of float32 by its
            rounding.

        Returns
        -------
        DualOutcome

        Raises
        ------
        MemoryError
            Without memory for three rows.
        """
        n = int(self.sizes.sum())
        if max_iter < 0:
            max_iter = most_steps(n)
        if cache_bytes is None:
            cache_bytes = 0.5 * available_memory()
        self.most_held = cache_bytes
        options = {"cache_bytes": cache_bytes, "shrinking": shrinking, "fields": fields, "on_step": on_step}
        constants = _constants(jobs, linear)
        within = linear if constants is None else linear - constants[:, None]
        course = _Course(self, jobs, (within, lower, upper), max_iter, options)
        start = {"start": start, "cancels": cancels}
        if dtype is not None or n <= _DOUBLE_UP_TO or 8 * self.rounding() > tol:
            course.run(np.dtype(dtype or np.float64), tol, **start)
        else:
            course.run(np.dtype(np.float32), _CLOSER * tol, **start)
            # no BLAS, whose threads would wake up for it
            sizes = np.sqrt(course.outcome.sums(np.square(course.outcome.betas)))
            # Errors of the entries are independent: the largest of K β is about the largest of theirs times
            # |β|₂.
            course.make_sure(self.rounding() * sizes, tol)
        if constants is not None:
            _put_back(constants, jobs, course.outcome)
        if on_step is not None:
            on_step(len(jobs), course.outcome.gap)
        return course.outcome


def _least_rounding(scale):
    """Rounding of entries of that size; infinity where float32's range might not hold them."""
    return float(np.finfo(np.float32).eps * scale) if 1e-30 < scale < 1e30 or scale == 0 else np.inf


def _constants(jobs, linear):
    """By set what all of c may do without, as Σβ is given: the middle of numbers that are far from 0.

    Beside it digits of Kβ would be lost. None where no numbers are.
    """
    low, high = 0.5 * linear.min(axis=1), 0.5 * linear.max(axis=1)
    far = np.abs(low + high) > _FAR * (high - low)
    if not far.any():
        return None
    negative = (jobs["signs"] < 0).any(axis=1)
    if negative.all():
        return None
    far[jobs["sets"][negative]] = False
    return np.where(far, low + high, 0.0) if far.any() else None


def _put_back(constants, jobs, outcome):
    """Have c of problems be so much more by set; changes their outcome."""
    more = constants[jobs["sets"]]
    more[:, 1] *= jobs["separate"]
    for name in ("bias", "least", "most"):
        getattr(outcome, name)[...] += more
    outcome.objective[...] -= more[:, 0] * outcome.sums(outcome.betas)
    if outcome.fields is not None:
        outcome.fields[...] += more[:, 0].repeat(np.diff(outcome.ends, prepend=0))


class _Course:
    """Problems on their way to the optimum.

    Parameters
    ----------
    samples : DualSamples
    jobs : ndarray
        Of `dual_jobs`.
    box : tuple of ndarray
        c, l and u by sample.
    max_iter : int
        SMO steps of each problem at most.
    options : dict
        For `DualLayout.outcome`.

    Attributes
    ----------
    outcome : DualOutcome
        As far as they have come.
    double : ndarray of bool
        Those whose last steps had rows of float64.
    failed : ndarray of int
        How often steps over faces did not end each.
    """

    def __init__(self, samples, jobs, box, max_iter, options):
        self.samples, self.jobs, self.box, self.max_iter, self.options = samples, jobs, box, max_iter, options
        self.outcome, self.double = None, np.zeros(len(jobs), bool)
        self.failed = np.zeros(len(jobs), int)
        patience = _LEAST_PATIENCE
        if _PATIENCE * 2 * samples.sizes.sum() > patience:  # else no problem is long
            offsets = np.concatenate([[0], samples.sizes.cumsum()])
            patience = max(patience, _PATIENCE * int(np.diff(offsets[jobs["groups"]]).sum(axis=(1, 2)).max()))
        self.patience = min(max_iter, patience)

    def run(self, dtype, tol, which=None, **start):
        """SMO with rows of a dtype, and steps over faces where it crawls.

        Parameters
        ----------
        dtype : dtype
        tol : float
            The gap to be reached.
        which : ndarray of int or None
            Problems to go on with; None are all, from their **start.
        """
        spent = self.patience
        if which is None:
            which, layout = np.arange(len(self.jobs)), self.samples._layout(dtype)
            self.outcome = layout.outcome(
                self.jobs, self.box, tol=tol, max_iter=spent, **start, **self.options
            )
            self.double[:] = dtype == np.float64
        else:
            self._go_on(which, dtype, tol, spent)
        while spent < self.max_iter:
            capped = which[self.outcome.status[which] == _CAPPED]
            if not capped.size:
                break
            self._over_faces(capped, tol, spent)
            more = min(spent, self.max_iter - spent)
            # float32 rows would put off the gradient at what is an optimum of float64's, and may be why steps
            # crawl
            self._go_on(capped, np.dtype(np.float64), tol, more)
            spent += more

    def make_sure(self, noise, tol):
        """Go on in float64 with problems whose gradient float32 rows may have put off by a part of `tol`.

        And with those that ended by rates that are equal when they are rounded.
        """
        status = self.outcome.status
        short = (self.outcome.gap > tol) | (status == STATUS.index("stalled"))
        doubtful = (noise > tol / 2) & ~short & ~self.double & (status != _CAPPED)
        for index in np.flatnonzero(doubtful):
            doubtful[index] = not self._is_close(index, noise[index], tol)
        again = np.flatnonzero((short | doubtful) & (status != _CAPPED) & ~self.double)
        if again.size:
            self.run(np.dtype(np.float64), tol, again)

    def _is_close(self, index, noise, tol):
        """Whether the gap of a problem is up to tol by exact F of the few variables that can set it.

        These are all whose F, which may be off by `noise`, could be the extreme one; with them come those
        that set the bias. F, the gap, the bias and the objective get what is exact.
        """
        outcome, jobs = self.outcome, self.jobs[[index]]
        if outcome.fields is None or jobs["separate"][0]:
            return False
        problems = DualProblems(self.samples._layout(np.dtype(np.float32)), jobs)
        linear, lower, upper = problems.placed(*self.box)[:, problems.taken]
        here = slice(outcome.ends[index] - len(linear), outcome.ends[index])
        beta, F, epsilon = outcome.betas[here], outcome.fields[here].copy(), jobs["epsilon"][0]
        up, down, used = beta < upper, beta > lower, np.flatnonzero(beta)
        if not (up.any() and down.any()):
            return False
        free = up & down & ((beta != 0) | (epsilon == 0))
        to_up, to_down = np.where(beta < 0, epsilon, -epsilon), np.where(beta > 0, -epsilon, epsilon)
        rising, falling = F + to_up, F + to_down
        near = up & (rising >= rising[up].max() - 2 * noise) | free
        near |= down & (falling <= falling[down].min() + 2 * noise)
        if _MANY_NEAR * np.count_nonzero(near) > len(F):
            return False
        places = problems.samples[near], problems.samples[used]
        F[near] = linear[near] - self.samples.product(*places, beta[used])
        most, least = (F + to_up)[up].max(), (F + to_down)[down].min()
        if not most - least <= tol:
            return False
        outcome.fields[here], outcome.gap[index] = F, most - least
        outcome.most[index, 0], outcome.least[index, 0] = most, least
        outcome.bias[index, 0] = (F + to_up)[free].mean() if free.any() else (most + least) / 2
        outcome.objective[index] = epsilon * np.abs(beta).sum() - 0.5 * (beta @ (F + linear))
        return True

    def _of(self, which):
        """Which of all β are those of some problems."""
        ends = self.outcome.ends
        return np.repeat(np.isin(np.arange(len(ends)), which), np.diff(ends, prepend=0))

    def _go_on(self, which, dtype, tol, max_iter):
        """SMO from β of some problems."""
        if not which.size:
            return
        outcome, here, jobs = self.outcome, self._of(which), self.jobs[which]
        start = outcome.betas[here]
        better = self.samples._layout(dtype).outcome(
            jobs, self.box, tol=tol, max_iter=max_iter, start=start, **self.options
        )
        for name in ("bias", "least", "most", "objective", "gap", "bound", "status"):
            getattr(outcome, name)[which] = getattr(better, name)
        outcome.betas[here] = better.betas
        if outcome.fields is not None:
            outcome.fields[here] = better.fields
        outcome.n_iter[which] += better.n_iter
        outcome.n_rows[which] += better.n_rows
        if better.rows not in outcome.rows:
            self.outcome = replace(outcome, rows="float32, float64")
        self.double[which] = dtype == np.float64

    def _over_faces(self, which, tol, spent):
        """Newton steps over faces from β of some problems, after so many SMO steps."""
        layout = self.samples._layout(np.dtype(np.float64))
        problems = DualProblems(layout, self.jobs[which])
        here = self._of(which)
        beta = problems.by_variable(self.outcome.betas[here])
        box = problems.placed(*self.box)
        for k, (index, span) in enumerate(zip(which, problems.spans, strict=True)):
            ranges = problems.ranges(k)
            self._over_faces_of(index, layout, ranges, beta[span], *box[:, span], tol, spent)
        self.outcome.betas[here] = beta[problems.taken]

    def _over_faces_of(self, index, layout, ranges, beta, linear, lower, upper, tol, spent):
        """The same for one problem, whose arrays by variable these are; β is changed in place."""
        job, on_step, sums = self.jobs[index], self.options["on_step"], None
        n_free = np.count_nonzero((beta > lower) & (beta < upper) & ((beta != 0) | (job["epsilon"] == 0)))
        with np.errstate(over="ignore"):
            noise = np.finfo(np.float64).eps * layout.diagonal.max() * np.sqrt(beta @ beta)
        if face_steps(n_free, len(beta)) > spent or noise > tol:
            return
        if job["separate"]:
            if ranges[0] == ranges[1]:
                _gather(beta, upper)
            ends = np.cumsum([part.stop - part.start for part in ranges])
            sums = [slice(end - part.stop + part.start, end) for end, part in zip(ends, ranges, strict=True)]
        rows, new = layout.rows(ranges), beta.copy()
        F, before = _state(rows, beta, linear, job["epsilon"])
        reached = newton_on_faces(
            rows,
            F,
            new,
            lower,
            upper,
            tol,
            rounds=_ROUNDS,
            worth=_FACES_FOR * spent * 0.5 ** self.failed[index],
            check=None if on_step is None else partial(on_step, 0, self.outcome.gap[index]),
            sums=sums,
            epsilon=job["epsilon"],
            most_free=np.sqrt(self.options["cache_bytes"] / (8 * _FACE_NUMBERS)),
            n_threads=self.samples.n_threads,
        )
        self.failed[index] += not reached
        # not so where numbers left the range, or are but rounding
        if _state(rows, new, linear, job["epsilon"])[1] <= before:
            beta[...] = new


def _gather(beta, upper):
    """Let as few samples as can be have two variables, 0 ≤ β₁ and β₂ ≤ 0, that are not 0; changes β.

    What both have in common may pass from one sample to another: K β and the sums stay. Rows of K of
    variables of one sample are the same, so that a face on which both are free is flat.
    """
    up, down = beta.reshape(2, -1)
    both = np.minimum(up, -down)
    total = both.sum()
    up -= both
    down += both
    room = upper[: len(up)] - np.maximum(up, -down)
    order = np.argsort(-room, kind="stable")
    before = np.cumsum(room[order]) - room[order]
    both[order] = np.clip(total - before, 0.0, room[order])
    np.minimum(up + both, upper[: len(up)], out=up)
    down -= both


def _state(rows, beta, linear, epsilon):
    """F = c − Kβ, and ½βᵀKβ − cᵀβ + ε Σ|βᵢ|."""
    used = np.flatnonzero(beta)
    F = linear - rows.product(used, beta[used])
    return F, epsilon * np.abs(beta).sum() - 0.5 * (beta @ (F + linear))

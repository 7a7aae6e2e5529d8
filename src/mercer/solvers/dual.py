"""Duals of support vector machines: samples in the solver's layout, and problems over them.

Place on the way: kernel expression → ``gram`` → **solvers** → ``estimators``. ``native/dual.c`` iterates;
here are the layout, the precision of the kernel's rows, and what comes back by sample.

Every problem is, in signed variables β = yα,

    minimise ½βᵀKβ − cᵀβ + ε Σ|βᵢ|   over   l ≤ β ≤ u   with Σβ as it is at the start,

the sum over all variables, or over each of two ranges by itself (ν-machines). K may be anything symmetric;
where it is not positive semidefinite a step treats a negative curvature as a tiny one, as LIBSVM does.
"""

import weakref
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .. import _native
from .._arrays import available_memory, check_output
from .._threads import n_threads as count_threads
from ..kernels.precomputed import Precomputed
from ..kernels.prepared import cast_side, sides, single_side, take_rows
from ..kernels.program import LeafKind

__all__ = ["DualJob", "DualOutcome", "DualProblems", "DualSamples", "STATUS", "spans", "split"]

#: What a problem's ``status`` means.
STATUS = ("converged", "capped", "stalled", "not finite", "no memory", "stopped", "inseparable")

# Up to so many samples float64 rows cost nothing that one would notice.
_DOUBLE_UP_TO = 1000
# Rows and columns of the sample by which float32 rows are judged.
_PROBE = 48
# By float32 rows the gap is driven so much further, so that the true one is below `tol`, too.
_CLOSER = 0.8
# Rows of a matrix that are put in order at a time.
_STRIP = 512
# Pairs of so many groups ask for most entries, row by row, and of so few samples they are computed at once in
# less time: fits of three or of ten classes of 100 rows take 0.9 of it.
_HELD_FROM, _HELD_UP_TO = 3, 256
# Below so many pairs of samples a second thread costs more than it brings.
_PARALLEL_FROM = 3e5


class DualJob(NamedTuple):
    """One problem.

    Attributes
    ----------
    first : tuple of int
        Groups ``first[0]`` to ``first[1]`` (exclusive) are its variables, in the order of the groups' rows.
    second : tuple of int or None
        A second range of groups, whose variables follow. It may be the first one again.
    signs : tuple of float
        For each range 1, or −1 where c, l and u stand for −c, −u and −l.
    set : int
        The row of c, l and u that it reads.
    separate : bool
        Each range keeps its own sum.
    epsilon : float
        ε.
    """

    first: tuple
    second: tuple | None = None
    signs: tuple = (1.0, 1.0)
    set: int = 0
    separate: bool = False
    epsilon: float = 0.0


@dataclass(frozen=True)
class DualOutcome:
    """What the solver reached, by problem.

    Attributes
    ----------
    betas : ndarray
        β of one problem after another, by its groups' samples.
    fields : ndarray or None
        F = c − Kβ likewise, if asked for, also where the box is [0, 0]: c − F + bias is the decision of
        a sample that took no part.
    ends : ndarray of int of shape (p,)
        Where each problem's samples end.
    bias : ndarray of shape (p, 2)
        The mean of the decision's offset over the variables that are free; where none is, the middle of what
        the others allow. By range where sums are separate, else in the first column.
    least, most : ndarray of shape (p, 2)
        Ends of the interval that the offset may lie in: most ≤ b ≤ least at the optimum.
    objective : ndarray of shape (p,)
        ½βᵀKβ − cᵀβ + ε Σ|βᵢ|.
    gap : ndarray of shape (p,)
        By how much the steepest upward rate exceeds a downward one: the violation of the KKT conditions.
    bound : ndarray of shape (p,)
        For a problem with an infinite bound the largest margin that β allows; else infinity.
    n_iter : ndarray of shape (p,)
    status : ndarray of shape (p,)
        Indices of `STATUS`.
    n_rows : ndarray of shape (p,)
        Rows of the kernel matrix that were computed.
    samples : ndarray of int
        Which of all samples each β is of.
    rows : str
        The precision of the rows: "float32", "float64", or "float32, float64".
    """

    betas: np.ndarray
    fields: np.ndarray | None
    ends: np.ndarray
    bias: np.ndarray
    least: np.ndarray
    most: np.ndarray
    objective: np.ndarray
    gap: np.ndarray
    bound: np.ndarray
    n_iter: np.ndarray
    status: np.ndarray
    n_rows: np.ndarray
    samples: np.ndarray
    rows: str

    @property
    def beta(self):
        """`betas` by problem, a list of views."""
        return split(self.betas, self.ends)

    @property
    def field(self):
        """`fields` likewise."""
        return split(self.fields, self.ends)


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

    Attributes
    ----------
    sizes : ndarray of int
        Samples of each group.
    """

    def __init__(self, kernel, X, groups, *, n_threads=None):
        self.kernel, self.n_threads = kernel, count_threads(n_threads)
        self._groups = [np.asarray(group, dtype=np.intp) for group in groups]
        self.sizes = np.array([len(group) for group in self._groups])
        self._X = X
        self.program = kernel._compiled(X.shape[1] if hasattr(X, "shape") else None)
        self._layouts, self._matrix = {}, None

    # ---------------------------------------------------------------- layouts

    def _layout(self, dtype):
        if dtype not in self._layouts:
            self._layouts[dtype] = _Layout(self, dtype)
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
        """The largest error of a float32 row's entry, on a sample of pairs; infinity where it will not do."""
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
        return max(_least_rounding(np.max(np.abs(K))), error) if np.isfinite(error) else np.inf

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
        layout = self._layout(np.dtype(dtype))
        if layout.run is not None:
            layout.hold(self.n_threads, on_step)
        return layout.matrix[:, : layout.n], layout.places

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
        jobs : list of DualJob
        linear, lower, upper : ndarray of shape (n_sets, n)
            c, l and u by sample, in the order of the groups. A sample with l = u = 0 takes no part.
        tol : float
            The gap to be reached.
        max_iter : int
            Iterations of each problem at most; −1 is 10⁷, or 100 n if that is more.
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
            ``on_step(n_done, gap)``, called now and then.
        dtype : dtype or None
            Of the rows; None chooses, and makes sure of float32 by its rounding.

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
            max_iter = max(10_000_000, 100 * n)
        if cache_bytes is None:
            cache_bytes = 0.5 * available_memory()
        options = (tol, max_iter, cache_bytes, shrinking, fields, on_step)
        box = linear, lower, upper
        if dtype is not None or n <= _DOUBLE_UP_TO:
            layout = self._layout(np.dtype(np.float64 if dtype is None else dtype))
            return layout.outcome(jobs, box, start, *options, cancels=cancels)
        rounding = self.rounding()
        if 8 * rounding > tol:
            layout = self._layout(np.dtype(np.float64))
            return layout.outcome(jobs, box, start, *options, cancels=cancels)
        single = self._layout(np.dtype(np.float32))
        outcome = single.outcome(jobs, box, start, _CLOSER * tol, *options[1:], cancels=cancels)
        return self._made_sure(outcome, rounding, jobs, box, options)

    def _made_sure(self, outcome, rounding, jobs, box, options):
        """Go on in float64 with problems whose gradient float32 rows may have put off by a part of `tol`.

        Errors of the entries are independent: the largest of K β is about the largest of theirs times |β|₂.
        """
        # no BLAS, whose threads would wake up for it
        noise = rounding * np.sqrt([np.square(beta).sum() for beta in outcome.beta])
        short = outcome.status == STATUS.index("stalled")
        capped = outcome.status == STATUS.index("capped")
        again = np.flatnonzero(((noise > options[0] / 2) | short) & ~capped)
        if not again.size:
            return outcome
        double = self._layout(np.dtype(np.float64))
        here = np.repeat(np.isin(np.arange(len(jobs)), again), np.diff(outcome.ends, prepend=0))
        better = double.outcome([jobs[index] for index in again], box, outcome.betas[here], *options)
        for name in ("bias", "least", "most", "objective", "gap", "bound", "status"):
            getattr(outcome, name)[again] = getattr(better, name)
        outcome.betas[here] = better.betas
        if outcome.fields is not None:
            outcome.fields[here] = better.fields
        outcome.n_iter[again] += better.n_iter
        outcome.n_rows[again] += better.n_rows
        return replace(outcome, rows="float32, float64")


def split(values, ends):
    """Views of the parts of an array that end there."""
    ends = ends.tolist()
    return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def spans(firsts, counts):
    """Ranges of integers, one after another: so many from each first one on."""
    counts = counts.ravel()
    ends = counts.cumsum()
    return np.arange(ends[-1]) + (firsts.ravel() - ends + counts).repeat(counts)


def _least_rounding(scale):
    """Rounding of entries of that size; infinity where float32's range might not hold them."""
    return float(np.finfo(np.float32).eps * scale) if 1e-30 < scale < 1e30 or scale == 0 else np.inf


class _Layout:
    """The samples' places, and their kernel rows, in one dtype."""

    def __init__(self, samples, dtype):
        self.samples, self.dtype = weakref.proxy(samples), dtype  # which owns this: no cycle
        self.unit, step = _native.dual_units(dtype)
        rows = np.concatenate(samples._groups)
        self.offsets = np.concatenate([[0], samples.sizes.cumsum()])
        self.starts, self.places, self.order = _native.dual_layout(rows, self.offsets, self.unit)
        self.n = len(self.order)
        self.run, self.matrix = None, None
        program = samples.program
        if program.block_leaves:
            check_output(self.n, self.n + step, dtype)
            self.matrix = np.zeros((self.n, self.n + step), dtype)
            K = samples.matrix()
            for start in range(0, self.n, _STRIP):
                rows = slice(start, start + _STRIP)
                self.matrix[rows, : self.n] = K[self.order[rows]][:, self.order]
            self.diagonal = self.matrix.diagonal().copy()
        elif dtype == np.float64 and len(samples.sizes) >= _HELD_FROM and self.n <= _HELD_UP_TO:
            self._hold_few(program, step)
        else:
            side, _ = sides(program, take_rows(samples._X, self.order))
            side = single_side(program, side) if dtype == np.float32 else cast_side(side, dtype)
            cancels = 0.0 if dtype == np.float32 else None
            self.run = _native.dual_run(program, side, dtype, samples.n_threads, cancels)
            self.diagonal = self._diagonal(program)

    def _hold_few(self, program, step):
        """Have the whole matrix of few samples, whose places are most of them of no use: 0 there."""
        rows = np.concatenate(self.samples._groups)
        side = cast_side(sides(program, take_rows(self.samples._X, rows))[0], self.dtype)
        K = np.empty((len(rows), len(rows)))
        _native.gram(program, side, side, K, symmetric=True, n_threads=1)
        self.matrix = np.zeros((self.n, self.n + step))
        self.matrix[self.places[:, None], self.places] = K
        self.diagonal = self.matrix.diagonal().copy()

    def hold(self, n_threads, on_step=None):
        """Have the whole matrix in place of the run."""
        samples, (_, step) = self.samples, _native.dual_units(self.dtype)
        matrix = _native.empty((self.n, self.n + step), self.dtype, n_threads)
        side = cast_side(sides(samples.program, take_rows(samples._X, self.order))[0], np.dtype(np.float64))
        whole = matrix[:, : self.n]
        _native.gram(samples.program, side, side, whole, symmetric=True, n_threads=n_threads, on_step=on_step)
        matrix[:, self.n :] = 0  # after what can be interrupted: it touches every page
        self.run, self.matrix, self.diagonal = None, matrix, matrix.diagonal().copy()

    def _diagonal(self, program):
        """k(x, x), without a look at each where it is the same for all."""
        same = not program.vecs and all(leaf.kind != LeafKind.DOT for leaf in program.leaves)
        diagonal = np.empty(1 if same else self.n, self.dtype)
        _native.dual_diagonal(self.run, diagonal, 1 if same else self.samples.n_threads)
        return np.full(self.n, diagonal[0]) if same else diagonal

    def outcome(
        self, jobs, box, start, tol, max_iter, cache_bytes, shrinking, fields, on_step, *, cancels=False
    ):  # fmt: skip
        """The `DualOutcome` of problems by sample."""
        problems = DualProblems(self, jobs)
        beta = np.zeros(problems.size)
        field = np.empty(problems.size) if fields else None
        if start is not None:
            beta[problems.taken] = start
        options = {"cache_bytes": cache_bytes, "shrinking": shrinking, "on_step": on_step}
        table = problems.solve(
            *problems.placed(*box),
            beta,
            field,
            started=start is not None and not cancels,
            tol=tol,
            max_iter=max_iter,
            **options,
        )
        names = ("bias", "least", "most", "objective", "gap", "bound", "n_iter", "status", "n_rows")
        return DualOutcome(
            betas=beta[problems.taken],
            fields=None if field is None else field[problems.taken],
            ends=problems.ends,
            rows=self.dtype.type.__name__,
            samples=problems.samples,
            **{name: table[name] for name in names},
        )


class DualProblems:
    """Problems as native/dual.c has them: arrays are by variable, one problem after another.

    In between there are variables that stand for no sample: their box is [0, 0].

    Parameters
    ----------
    layout : _Layout
    jobs : list of DualJob

    Attributes
    ----------
    size : int
        Variables.
    offsets, lengths : ndarray of shape (p,)
        Where each problem begins, and how many variables it has.
    taken, ends : ndarray of int
        Variables that stand for samples, problem by problem; and where each problem's end among them.
    samples, signs, sets : ndarray
        By `taken`: the sample in the order of the groups, the sign of its range, and the problem's set.
    """

    def __init__(self, layout, jobs):
        self._layout = layout
        found = _native.dual_jobs(jobs, layout.starts, layout.offsets, layout.places)
        self._table, self.ends, self.taken, self.samples, self.signs, self.sets = found
        self.offsets, self.lengths = self._table["offset"], self._table["length"].sum(axis=1)
        self.size = int(self.lengths.sum())

    def ranges(self, index):
        """Where the variables of a problem are in the kernel matrix."""
        job = self._table[index]
        return [slice(start, start + n) for start, n in zip(job["start"], job["length"], strict=True) if n]

    def placed(self, linear, lower, upper):
        """c, l and u (n_sets, n) of samples, by variable."""
        out = np.zeros((3, self.size))
        _native.dual_place(linear, lower, upper, self.taken, self.samples, self.signs, self.sets, out)
        return out

    def solve(
        self, linear, lower, upper, beta, field, *, which=None, started=False, tol, max_iter, cache_bytes,
        shrinking, on_step,
    ):  # fmt: skip
        """Solve problems, by default all; beta (size,) and field, which may be linear, get the solution.

        Unless `started`, K times the beta that is given is 0.

        Returns
        -------
        ndarray of `_native.DUAL_JOB`
            Results of the problems.
        """
        layout = self._layout
        lengths, table = self.lengths, self._table
        if which is not None:
            lengths, table = lengths[which], table[which]
        # the long ones first, so that threads end together
        order = np.argsort(-lengths, kind="stable")
        table = table[order]
        table["started"] = started
        threads = 1 if (lengths * lengths).sum() < _PARALLEL_FROM else layout.samples.n_threads
        _native.dual(
            layout.run, layout.matrix, layout.diagonal, linear, lower, upper, table, beta, field,
            tol, max_iter, cache_bytes, shrinking, on_step, threads,
        )  # fmt: skip
        found = np.empty_like(table)
        found[order] = table
        return found

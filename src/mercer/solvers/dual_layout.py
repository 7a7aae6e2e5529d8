"""Problems of ``native/dual.c``, and samples and variables where it has them.

Place on the way: ``_native``, ``faces`` → **dual_layout** → ``dual``.

Every problem is, in signed variables β = yα,

    minimise ½βᵀKβ − cᵀβ + ε Σ|βᵢ|   over   l ≤ β ≤ u   with Σβ as it is at the start,

the sum over all variables, or over each of two ranges by itself (ν-machines). K may be anything symmetric;
where it is not positive semidefinite a step treats a negative curvature as a tiny one, as LIBSVM does.
"""

import weakref
from dataclasses import dataclass
from functools import partial

import numpy as np

from .. import _native
from .._arrays import row_strips
from .._memory import check_output
from ..kernels.prepared import cast_side, sides, single_side, take_rows
from ..kernels.program import LeafKind
from .faces import KernelRows, Rows

__all__ = [
    "STATUS", "DualLayout", "DualOutcome", "DualProblems", "dual_jobs", "most_steps", "same_diagonal",
    "spans", "split",
]  # fmt: skip

#: What a problem's ``status`` means.
STATUS = ("converged", "capped", "stalled", "not finite", "no memory", "stopped", "inseparable")

# Pairs of so many groups ask for most entries, row by row, and of so few samples, or so few each, they are
# computed at once in less time: fits of three or of ten classes of 100 rows take 0.9 of it.
_HELD_FROM, _HELD_UP_TO, _HELD_EACH = 3, 256, 32
# So many problems at a time, whose arrays stay in the caches.
_AT_ONCE = 16384
# Below so many pairs of samples a second thread costs more than it brings; a problem costs some by itself.
_PARALLEL_FROM, _EACH = 3e5, 1000


_JOB = np.dtype(
    [
        ("groups", np.intp, (2, 2)),
        ("signs", np.float64, 2),
        ("sets", np.intp, 2),
        ("separate", np.int64),
        ("epsilon", np.float64),
    ]
)


def dual_jobs(first, second=(0, 0), signs=(1.0, 1.0), sets=(0, 0), *, separate=False, epsilon=0.0):
    """Problems, as an array of one item each.

    Parameters
    ----------
    first : pair of int, or ndarray of shape (p, 2)
        The same for all, or by problem, as the other pairs, too.
        Groups ``first[0]`` to ``first[1]`` (exclusive) are its variables, in the order of the groups' rows.
    second : pair of int
        A second range of groups, whose variables follow. It may be the first one again: then both variables
        of a sample share a row of the kernel.
    signs : pair of float
        For each range 1, or −1 where c, l and u stand for −c, −u and −l.
    sets : pair of int
        For each range the row of c, l and u that it reads; c is the same in both.
    separate : bool
        Each range keeps its own sum.
    epsilon : float
        ε.
    """
    by_problem = [len(each) for each in (first, second, signs, sets) if isinstance(each, np.ndarray)]
    jobs = np.empty(max(by_problem, default=1), _JOB)
    groups = jobs["groups"]
    groups[:, 0], groups[:, 1], jobs["signs"], jobs["sets"] = first, second, signs, sets
    jobs["separate"], jobs["epsilon"] = separate, epsilon
    return jobs


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
        SMO steps.
    status : ndarray of shape (p,)
        Indices of `STATUS`.
    n_rows : ndarray of shape (p,)
        Rows of the kernel matrix that were computed for them.
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
    rows: str

    @property
    def beta(self):
        """`betas` by problem, a list of views."""
        return split(self.betas, self.ends)

    @property
    def field(self):
        """`fields` likewise."""
        return split(self.fields, self.ends)

    def sums(self, values):
        """Sums by problem of values by sample."""
        return np.add.reduceat(values, np.append(0, self.ends[:-1]))


def most_steps(n):
    """How many SMO steps over n variables are enough for whoever has set no limit."""
    return max(10_000_000, 100 * n)


def split(values, ends):
    """Views of the parts of an array that end there."""
    ends = ends.tolist()
    return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def same_diagonal(program):
    """Whether k(x, x) is the same for all x."""
    return not program.vecs and all(leaf.kind != LeafKind.DOT for leaf in program.leaves)


def spans(firsts, counts):
    """Ranges of integers, one after another: so many from each first one on."""
    counts = counts.ravel()
    ends = counts.cumsum()
    return np.arange(ends[-1]) + (firsts.ravel() - ends + counts).repeat(counts)


class DualLayout:
    """The samples' places, and their kernel rows, in one dtype."""

    def __init__(self, samples, dtype, on_step=None):
        self.samples, self.dtype = weakref.proxy(samples), dtype  # which owns this: no cycle
        program, held = samples.program, self._is_held()
        unit, step = _native.dual_units(dtype)
        rows = np.concatenate(samples._groups)
        self.offsets = np.concatenate([[0], samples.sizes.cumsum()])
        # rows of a matrix are read where they are; others are computed by panels
        self.starts, self.places, self.order = _native.dual_layout(rows, self.offsets, 1 if held else unit)
        self.n = len(self.order)
        self.run, self.matrix = None, None
        if program.block_leaves:
            check_output(self.n, self.n + step, dtype)
            self.matrix = np.zeros((self.n, self.n + step), dtype)
            K = samples.matrix()
            for rows in row_strips(self.n):
                if on_step is not None:
                    on_step()
                self.matrix[rows, : self.n] = K[self.order[rows]][:, self.order]
            self.diagonal = self.matrix.diagonal().copy()
        elif held:
            self.hold(samples.n_threads, on_step)
        else:
            side, _ = sides(program, take_rows(samples._X, self.order))
            side = single_side(program, side) if dtype == np.float32 else cast_side(side, dtype)
            cancels = 0.0 if dtype == np.float32 else None
            self.run = _native.dual_run(program, side, dtype, samples.n_threads, cancels)
            self.diagonal = self._diagonal(program)

    def _is_held(self):
        """Whether rows are those of a matrix: of many groups of few samples nearly all entries are wanted."""
        sizes = self.samples.sizes
        n = int(sizes.sum())
        few = self.dtype == np.float64 and n <= _HELD_UP_TO
        many = n <= _HELD_EACH * len(sizes) and n * n * self.dtype.itemsize <= self.samples.most_held
        given = bool(self.samples.program.block_leaves)
        return given or self.samples.held or (len(sizes) >= _HELD_FROM and (few or many))

    def rows(self, ranges):
        """Entries of the kernel among the variables of those places."""
        if self.matrix is not None:
            return Rows(self.matrix, ranges)
        samples = self.samples
        X = take_rows(samples._X, np.concatenate([self.order[part] for part in ranges]))
        side = cast_side(sides(samples.program, X)[0], self.dtype)
        return KernelRows(samples.program, side, samples.n_threads)

    def hold(self, n_threads, on_step=None):
        """Have the whole matrix in place of the run."""
        samples, (_, step) = self.samples, _native.dual_units(self.dtype)
        matrix = _native.empty((self.n, self.n + step), self.dtype, n_threads)
        side = cast_side(sides(samples.program, take_rows(samples._X, self.order))[0], np.dtype(np.float64))
        whole, options = matrix[:, : self.n], {"n_threads": n_threads, "on_step": on_step}
        if samples.leaf is None:
            _native.gram(samples.program, side, side, whole, symmetric=True, **options)
        else:
            samples.leaf.fill(samples.program, side, whole, self.order.tobytes(), **options)
        matrix[:, self.n :] = 0  # after what can be interrupted: it touches every page
        self.run, self.matrix, self.diagonal = None, matrix, matrix.diagonal().copy()

    def _diagonal(self, program):
        """k(x, x), without a look at each where it is the same for all."""
        same = same_diagonal(program)
        diagonal = np.empty(1 if same else self.n, self.dtype)
        _native.dual_diagonal(self.run, diagonal, 1 if same else self.samples.n_threads)
        return np.full(self.n, diagonal[0]) if same else diagonal

    def outcome(self, jobs, box, *, start=None, on_step=None, **options):
        """The `DualOutcome` of problems by sample; the parameters are those of `DualSamples.solve`."""
        if len(jobs) <= _AT_ONCE:
            return self._outcome_of(jobs, box, start=start, on_step=on_step, **options)
        parts, end = [], 0
        for done in range(0, len(jobs), _AT_ONCE):
            begin, some = end, jobs[done : done + _AT_ONCE]
            end += int(np.diff(self.offsets[some["groups"]]).sum())
            looks = None if on_step is None else partial(_count_on, on_step, done)
            own = None if start is None else start[begin:end]
            parts.append(self._outcome_of(some, box, start=own, on_step=looks, **options))
        return _joined(parts)

    def _outcome_of(self, jobs, box, *, start=None, cancels=False, fields=False, **options):
        problems = DualProblems(self, jobs)
        beta = np.zeros(problems.size) if start is None else problems.by_variable(start)
        field = np.empty(problems.size) if fields else None
        started = start is not None and not cancels
        table = problems.solve(*problems.placed(*box), beta, field, started=started, **options)
        names = ("bias", "least", "most", "objective", "gap", "bound", "n_iter", "status", "n_rows")
        return DualOutcome(
            betas=beta[problems.taken],
            fields=None if field is None else field[problems.taken],
            ends=problems.ends,
            rows=self.dtype.type.__name__,
            **{name: table[name] for name in names},
        )


def _count_on(on_step, before, n_done, gap):
    on_step(before + n_done, gap)


def _joined(outcomes):
    """The `DualOutcome` of all problems of several, which were solved alike."""
    sizes = np.cumsum([0, *(len(each.betas) for each in outcomes[:-1])])
    ends = [each.ends + before for each, before in zip(outcomes, sizes, strict=True)]
    parts = {
        name: None if value is None else np.concatenate([getattr(each, name) for each in outcomes])
        for name, value in vars(outcomes[0]).items()
        if name not in ("ends", "rows")
    }
    return DualOutcome(ends=np.concatenate(ends), rows=outcomes[0].rows, **parts)


class DualProblems:
    """Problems as native/dual.c has them: arrays are by variable, one problem after another.

    In between there are variables that stand for no sample: their box is [0, 0].

    Parameters
    ----------
    layout : DualLayout
    jobs : ndarray
        Of `dual_jobs`.

    Attributes
    ----------
    size : int
        Variables.
    offsets, lengths : ndarray of shape (p,)
        Where each problem begins, and how many variables it has.
    taken, ends : ndarray of int
        Variables that stand for samples, problem by problem; and where each problem's end among them.
    samples, signs, sets : ndarray
        By `taken`: the sample in the order of the groups, and the sign and the set of its range.
    """

    def __init__(self, layout, jobs):
        self._layout = layout
        found = _native.dual_lay_jobs(jobs, layout.starts, layout.offsets, layout.places)
        self._table, self.ends, self.taken, self.samples, self.signs, self.sets = found
        self.offsets, self.lengths = self._table["offset"], self._table["length"].sum(axis=1)
        self.size = int(self.lengths.sum())

    def rows(self, index):
        """Entries of the kernel among the variables of a problem."""
        return self._layout.rows(self.ranges(index))

    def ranges(self, index):
        """Where the variables of a problem are in the kernel matrix."""
        job = self._table[index]
        return [slice(start, start + n) for start, n in zip(job["start"], job["length"], strict=True) if n]

    @property
    def dtype(self):
        """Of the rows."""
        return self._layout.dtype

    @property
    def entries(self):
        """What native code reads rows from: the run, or None, the matrix, and the diagonal."""
        return self._layout.run, self._layout.matrix, self._layout.diagonal

    def jobs(self, times):
        """A first problem as native code has it, so many times."""
        return self._table[:1].repeat(times)

    @property
    def spans(self):
        """Of each problem: where its variables are among those of all."""
        return [slice(start, start + n) for start, n in zip(self.offsets, self.lengths, strict=True)]

    def by_variable(self, values):
        """By variable what is given by sample of the problems."""
        out = np.zeros(self.size)
        out[self.taken] = values
        return out

    def placed(self, linear, lower, upper):
        """c, l and u (n_sets, n) of samples, by variable."""
        out = np.zeros((3, self.size))
        _native.dual_place(linear, lower, upper, self.taken, self.samples, self.signs, self.sets, out)
        return out

    def solve(
        self, linear, lower, upper, beta, field, *, started=False, tol, max_iter, cache_bytes, shrinking,
        on_step,
    ):  # fmt: skip
        """Solve all problems; beta (size,) and field, unless it is None, get the solution.

        Unless `started`, K times the beta that is given is 0.

        Returns
        -------
        ndarray of `_native.DUAL_JOB`
            Results of the problems.
        """
        lengths = self.lengths
        # the long ones first, so that threads end together
        order = np.argsort(-lengths, kind="stable") if len(lengths) > 1 else slice(None)
        table = self._table[order].copy()
        table["started"] = started
        threads = 1 if (lengths * lengths + _EACH).sum() < _PARALLEL_FROM else self._layout.samples.n_threads
        _native.dual(
            *self.entries, linear, lower, upper, table, beta, field, tol, max_iter, cache_bytes, shrinking,
            on_step, threads,
        )  # fmt: skip
        found = np.empty_like(table)
        found[order] = table
        return found

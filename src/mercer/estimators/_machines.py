"""The duals of machines for classes: set up for ``solvers.dual``, and read back.

Place on the way: ``solvers`` → **machines** → ``svm``; ``_function_machines`` has those of one function.

With β = yα and f = Kβ + b, the solver returns β, F = c − Kβ and b. Each machine is a list of binary (or
single) problems, whose numbers stand one after another in flat arrays.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .._native import dual_fill
from ..solvers.dual_layout import dual_jobs, spans
from ._warm import start_c, start_nu

_BY_PROBLEM = (
    "intercept", "objective", "squared_norm", "loss", "primal", "gap", "kkt_gap", "n_iter", "status", "scale",
)  # fmt: skip

__all__ = [
    "Machines",
    "binary_jobs",
    "c_machines",
    "coefficients_by_class",
    "n_problems",
    "nu_machines",
    "pairs_of",
    "reached",
]


@dataclass
class Machines:
    """Solved problems.

    Attributes
    ----------
    beta : ndarray
        Of one problem after another, in the order of its samples; a ν-SVC's are not yet divided by ρ.
    intercept : ndarray of shape (p,)
    bound : ndarray of shape (n,)
        The largest |β| of each sample.
    objective, squared_norm, loss, primal, gap : ndarray of shape (p,)
        The dual objective, ‖w‖² of the function that is returned, Σ weight·ξ, the primal objective at the
        intercept, and the sum of both objectives.
    kkt_gap, margin_bound : ndarray of shape (p,)
    n_iter, status : ndarray of shape (p,)
    rows : str
        The precision of the kernel's rows.
    coupled : bool
        Whether all classes are one problem, each sample's β sum to 0, and `n_iter` counts blocks.
    scale : ndarray of shape (p,)
        ρ of a ν-SVC, else 1.
    sides : Sides or None
        The samples of the problems, where there may be several.
    held_out : tuple of ndarrays or None
        Of the parts of samples that were held out, one problem after another: decisions of machines without
        them, labels, which of all distinct rows they are, which parts of these; and where problems end.
    extra : dict
        More that one machine has: "epsilon".
    """

    beta: np.ndarray
    intercept: np.ndarray
    bound: np.ndarray
    objective: np.ndarray
    squared_norm: np.ndarray
    loss: np.ndarray
    primal: np.ndarray
    gap: np.ndarray
    kkt_gap: np.ndarray
    margin_bound: np.ndarray
    n_iter: np.ndarray
    status: np.ndarray
    rows: str
    coupled: bool = False
    scale: np.ndarray | None = None
    sides: "Sides | None" = None
    held_out: tuple | None = None
    extra: dict = field(default_factory=dict)

    def widen(self, places, total):
        """Make room for `total` problems: those at `places` were solved, the others are nothing."""
        if len(places) == total:
            return
        for name in _BY_PROBLEM:
            solved = getattr(self, name)
            if solved is not None:
                setattr(self, name, np.zeros(total, solved.dtype))
                getattr(self, name)[places] = solved


# From a group to the next.
_GROUP = np.arange(2)
# A ν-SVC's ρ below this, relative to the function's size, is rounding.
_NO_MARGIN = 1e-9


def pairs_of(present):
    """The pairs (a, b), a < b, of classes that are there.

    Parameters
    ----------
    present : ndarray of int

    Returns
    -------
    ndarray of shape (p, 2)
    """
    if len(present) == 2:
        return present[None]  # in a fifteenth of the time
    counts = np.arange(len(present) - 1, -1, -1)  # of pairs of which each is the first
    first = np.arange(len(present)).repeat(counts)
    second = np.arange(len(first)) - (counts.cumsum() - counts)[first] + first + 1
    return present[np.array([first, second]).T]


def coefficients_by_class(beta, sides, pairs, k, m):
    """β of pairs in LIBSVM's layout: the pair (a, b) is in row b − 1 of class a's samples and row a of b's.

    Parameters
    ----------
    beta : ndarray
        Of one problem after another.
    sides : Sides
    pairs : ndarray of shape (p, 2)
    k, m : int
        Classes and samples.

    Returns
    -------
    ndarray of shape (k - 1, m)
    """
    out, (a, b) = np.zeros((k - 1, m)), pairs.T
    out[np.column_stack([b - 1, a]).ravel().repeat(sides.counts.ravel()), sides.samples] = beta
    return out


def reached(outcome, p):
    """What `Machines` say of the solver, for the first p problems of a `DualOutcome`."""
    return {
        "kkt_gap": outcome.gap[:p],
        "margin_bound": outcome.bound[:p],
        "n_iter": outcome.n_iter[:p],
        "status": outcome.status[:p],
        "rows": outcome.rows,
    }


@dataclass(frozen=True)
class Sides:
    """The samples of problems: of each some ranges of all distinct rows, with one label each.

    Attributes
    ----------
    firsts, counts : ndarray of int of shape (p, r)
        Where the ranges begin, and how many rows they have.
    signs : tuple of r floats
        1 or −1.
    """

    firsts: np.ndarray
    counts: np.ndarray
    signs: tuple

    @cached_property
    def lengths(self):
        """Samples of each problem."""
        return self.counts.sum(axis=1)

    @cached_property
    def ends(self):
        """Where each problem's samples end."""
        return self.lengths.cumsum()

    @cached_property
    def samples(self):
        """Which of all distinct rows they are, one problem after another."""
        return spans(self.firsts, self.counts)

    @cached_property
    def labels(self):
        """±1 likewise."""
        return np.repeat(self.signs * len(self.counts), self.counts.ravel())

    def sums(self, values):
        """Sums by problem of values by sample."""
        return np.add.reduceat(values, self.ends - self.lengths)


# ---------------------------------------------------------------- classification


def binary_jobs(offsets, pairs, separate=False):
    """Problems of pairs of groups, the first of which has sign 1.

    Parameters
    ----------
    offsets : ndarray of int of shape (k + 1,)
        Where the groups begin, and end.
    pairs : ndarray of int of shape (p, 2)
    separate : bool
        As in `dual_jobs`.

    Returns
    -------
    jobs : ndarray
        Of `dual_jobs`.
    sides : Sides
        Their samples.
    """
    signs = (1.0, -1.0)
    jobs = dual_jobs(pairs[:, :1] + _GROUP, pairs[:, 1:] + _GROUP, signs, separate=separate)
    return jobs, Sides(offsets[pairs], np.diff(offsets)[pairs], signs)


def _rest_jobs(offsets):
    """Jobs of each group that is there against all others; the box of each is a set of its own."""
    present = np.flatnonzero(np.diff(offsets))
    bounds = np.zeros((len(present), 4), np.intp)
    bounds[:, 1], bounds[:, 2], bounds[:, 3] = offsets[present], offsets[present + 1], offsets[-1]
    jobs = dual_jobs((0, len(offsets) - 1), sets=np.arange(len(present))[:, None] + [0, 0])
    return jobs, Sides(bounds[:, :-1], np.diff(bounds), (-1.0, 1.0, -1.0))


def n_problems(p, folds):
    """How many problems p are with each fold held out, too."""
    return p if folds is None else p * (1 + len(folds))


def _with_folds(jobs, n_sets, folds):
    """The jobs once more for each fold: set + fold·n_sets."""
    if folds is None:
        return jobs
    times = len(folds) + 1
    all_jobs = np.tile(jobs, times)
    all_jobs["sets"] += n_sets * np.arange(times).repeat(len(jobs))[:, None]
    return all_jobs


def _held_boxes(upper, folds):
    """`upper` (n_sets, n) as it is, and then with each fold's parts of the samples out."""
    if folds is None:
        return upper
    # an infinite one is 0 of a sample that is out as a whole
    left = [np.multiply(upper, 1 - part, out=np.zeros_like(upper), where=part < 1) for part in folds]
    return np.concatenate([upper, *left])


def c_machines(samples, rows, upper, weights, pairs, *, folds=None, previous=None, **options):
    """C-SVC: min ½βᵀKβ − Σ yβ over 0 ≤ yβ ≤ C, Σβ = 0.

    Parameters
    ----------
    samples : DualSamples
    rows : CanonicalRows
    upper : ndarray of shape (m,)
        C of each sample.
    weights : ndarray of shape (m,)
        What the loss is weighted by in `Machines.loss`.
    pairs : ndarray of shape (p, 2) or None
        The problems; None is each class against the rest.
    folds : ndarray of shape (n_folds, m) or None
        Which part of each sample is held out in each fold; the parts of one add up to 1.
    previous : list of ndarray or None
        β of an earlier fit, of the problems without folds.
    **options
        For `DualSamples.solve`.

    Returns
    -------
    Machines

    References
    ----------
    LN14, the dual of the soft-margin machine.
    """
    if pairs is None:
        jobs, sides = _rest_jobs(rows.offsets)
        linear = sides.labels.reshape(len(jobs), -1)
        top = np.where(linear > 0, upper, 0.0)
        bottom = np.where(linear < 0, upper, 0.0)
    else:
        jobs, sides = binary_jobs(rows.offsets, pairs)
        linear, top, bottom = np.ones((1, len(upper))), upper[None], np.zeros((1, len(upper)))
    n_sets = len(linear)
    top, bottom = _held_boxes(top, folds), _held_boxes(bottom, folds)
    jobs = _with_folds(jobs, n_sets, folds)
    start = None
    if previous is not None:
        start = start_c(previous, sides, upper)
        start = np.pad(start, (0, len(start) * (len(top) // n_sets - 1)))
    linear = np.tile(linear, (len(top) // n_sets, 1))
    outcome = samples.solve(jobs, linear, -bottom, top, start=start, fields=True, **options)
    machines = _c_outcome(outcome, sides, upper, weights)
    if folds is not None:
        machines.held_out = _held_out(outcome, sides, folds, outcome.bias[:, 0], sides.labels)
    return machines


def _c_outcome(outcome, sides, upper, weights):
    p, n = len(sides.counts), sides.ends[-1]
    bias, objective, beta = outcome.bias[:p, 0], outcome.objective[:p], outcome.betas[:n]
    # c = y, hence y f = 1 − y (F − b)
    short = (outcome.fields[:n] - bias.repeat(sides.lengths)) * sides.labels
    loss = sides.sums(weights[sides.samples] * np.maximum(short, 0.0))
    squared = np.maximum(2 * (objective + sides.sums(np.abs(beta))), 0.0)
    primal = 0.5 * squared
    if np.isinf(upper).any():
        # The function is scaled until every sample is at its margin or beyond.
        room = 1 - np.maximum.reduceat(short, sides.ends - sides.lengths)
        primal = np.divide(primal, np.square(room), out=np.full(p, np.inf), where=room > 1e-100)
    else:
        primal += loss * (upper[0] / weights[0])
    return Machines(
        beta=beta,
        intercept=bias,
        bound=upper,
        objective=objective,
        squared_norm=squared,
        loss=loss,
        primal=primal,
        gap=np.maximum(primal + objective, 0.0),
        sides=sides,
        **reached(outcome, p),
    )


def _held_out(outcome, sides, folds, bias, linear, divisor=None):
    """`Machines.held_out`."""
    samples, p = sides.samples, len(sides.counts)
    place, fold = np.nonzero(folds[:, samples].T)
    problem = np.arange(p).repeat(sides.lengths)[place]
    fields = outcome.fields.reshape(-1, len(samples))
    decisions = (linear + np.zeros(len(samples)))[place] - fields[fold + 1, place]
    decisions += bias.reshape(-1, p)[fold + 1, problem]
    if divisor is not None:
        decisions /= divisor.reshape(-1, p)[fold + 1, problem]
    ends = np.searchsorted(problem, np.arange(p), side="right")
    return decisions, sides.labels[place], samples[place], folds[fold, samples[place]], ends


def nu_machines(samples, rows, weights, nu, pairs, *, folds=None, previous=None, **options):
    """ν-SVC: min ½βᵀKβ over 0 ≤ yβ ≤ weight, each class's sum ν/2 of all weights; then all over ρ.

    Parameters
    ----------
    samples : DualSamples
    rows : CanonicalRows
    weights : ndarray of shape (m,)
    nu : float
        Feasible for all pairs.
    pairs : ndarray of shape (p, 2)
    folds, previous, **options
        As for `c_machines`.

    Returns
    -------
    Machines
    """
    jobs, sides = binary_jobs(rows.offsets, pairs, separate=True)
    jobs = _with_folds(jobs, 1, folds)
    top = _held_boxes(weights[None], folds)
    begin = _nu_starts(sides, top, nu)
    if previous is not None:
        start_nu(previous, sides, weights, nu, begin)
    zeros = np.zeros_like(top)
    outcome = samples.solve(jobs, zeros, zeros, top, start=begin, fields=True, **options)
    return _nu_outcome(outcome, samples, sides, weights, nu, folds)


def _nu_starts(sides, top, nu):
    """Feasible β of each pair, set by set of the boxes `top` (n_sets, m)."""
    counts = sides.counts.ravel()
    sums = np.add.reduceat(top[:, sides.samples], counts.cumsum() - counts, axis=1).reshape(len(top), -1, 2)
    # In a fold ν may be out of reach: then as much as there is.
    total = np.minimum(nu * sums.sum(axis=-1) / 2, sums.min(axis=-1))
    totals = (total[..., None] * sides.signs).ravel()
    firsts = (sides.firsts.ravel() + np.arange(len(top))[:, None] * top.shape[1]).ravel()
    return dual_fill(totals, firsts, np.tile(counts, len(top)), top.ravel())


def _margins(outcome, size):
    """ρ of each problem, and what its function is divided by: 1 where ρ is rounding.

    Parameters
    ----------
    outcome : DualOutcome
    size : callable
        The sizes that the problems' functions may have at most, which small samples or weights make small.
    """
    rho = (outcome.bias[:, 1] - outcome.bias[:, 0]) / 2
    most = np.abs(outcome.bias).max(axis=1)
    there = rho > _NO_MARGIN * np.maximum(most, 1.0)
    if not there.all():
        there = rho > _NO_MARGIN * np.maximum(most, np.minimum(size(), 1.0))
    return rho, np.where(there, rho, 1.0)


def _nu_outcome(outcome, samples, sides, weights, nu, folds):
    p, n = len(sides.counts), sides.ends[-1]
    # y f = ρ at free samples, f = Kβ + b: minus their mean of Kβ is b − ρ on one side and b + ρ on the other.
    bias = outcome.bias.mean(axis=1)
    objective, own = outcome.objective[:p], weights[sides.samples]
    sums = np.tile(nu * sides.sums(own), len(bias) // p)
    rho, divisor = _margins(outcome, lambda: sums * samples.scale())
    short = (outcome.fields[:n] - bias[:p].repeat(sides.lengths)) * sides.labels
    loss = sides.sums(own * np.maximum(short + rho[:p].repeat(sides.lengths), 0.0))
    primal = np.maximum(objective, 0.0) - rho[:p] * sums[:p] + loss
    machines = Machines(
        beta=outcome.betas[:n],
        intercept=bias[:p] / divisor[:p],
        bound=weights,
        objective=objective,
        squared_norm=2 * np.maximum(objective, 0.0) / divisor[:p] / divisor[:p],
        loss=loss / divisor[:p],
        primal=primal,
        gap=np.maximum(primal + objective, 0.0),
        scale=divisor[:p],
        sides=sides,
        **reached(outcome, p),
    )
    machines.extra["rho"] = rho[:p]
    if folds is not None:
        machines.held_out = _held_out(outcome, sides, folds, bias, 0.0, divisor)
    return machines

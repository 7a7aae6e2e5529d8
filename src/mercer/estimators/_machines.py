"""The duals of machines for classes: set up for ``solvers.dual``, and read back.

Place on the way: ``solvers`` → **machines** → ``svm``; ``_function_machines`` has those of one function.

With β = yα and f = Kβ + b, the solver returns β, F = c − Kβ and b. Each machine is a list of binary (or
single) problems, whose numbers stand one after another in flat arrays.
"""

from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from .._native import dual_fill
from ..solvers.dual import DualJob
from ._warm import start_c, start_nu

_BY_PROBLEM = (
    "intercept", "objective", "squared_norm", "loss", "primal", "gap", "kkt_gap", "n_iter", "status", "scale",
)  # fmt: skip

__all__ = [
    "Machines",
    "c_machines",
    "nu_machines",
    "pairs_of",
    "reached",
]


@dataclass
class Machines:
    """Solved problems.

    Attributes
    ----------
    beta : list of ndarray
        By problem, in the order of its samples; a ν-SVC's are not yet divided by ρ.
    intercept : ndarray of shape (p,)
    bound : ndarray of shape (n,)
        The largest |β| of each sample.
    objective, squared_norm, loss, primal, gap : ndarray of shape (p,)
        The dual objective, ‖w‖² of the function that is returned, Σ weight·ξ, the primal objective at the
        intercept, and the sum of both objectives.
    kkt_gap, margin_bound : ndarray of shape (p,)
    n_iter, status : ndarray of shape (p,)
    rows : str
    scale : ndarray of shape (p,)
        ρ of a ν-SVC, else 1.
    held_out : list of (decisions, labels, sides) or None
        By problem, where parts were held out: the decisions about them from machines without them.
    extra : dict
        More that one machine has: "epsilon".
    """

    beta: list
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
    scale: np.ndarray | None = None
    held_out: list | None = None
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


# A ν-SVC's ρ below this, relative to the function's size, is rounding.
_NO_MARGIN = 1e-9
_ZERO = np.zeros(1)


def pairs_of(present):
    """The pairs (a, b), a < b, of classes that are there.

    Parameters
    ----------
    present : iterable of int

    Returns
    -------
    list of tuple
    """
    return list(combinations(map(int, present), 2))


def reached(outcome, p):
    """What `Machines` say of the solver, for the first p problems of a `DualOutcome`."""
    return {
        "kkt_gap": outcome.gap[:p],
        "margin_bound": outcome.bound[:p],
        "n_iter": outcome.n_iter[:p],
        "status": outcome.status[:p],
        "rows": outcome.rows,
    }


class Sides(NamedTuple):
    """The samples of one problem, as parts of all distinct rows, each with one label.

    Attributes
    ----------
    parts : tuple of slice
    counts : tuple of int
        Samples of each part.
    signs : tuple of float
        1 or −1.
    """

    parts: tuple
    counts: tuple
    signs: tuple

    def take(self, values):
        """Those of the problem's samples."""
        return np.concatenate([values[part] for part in self.parts])

    def labels(self):
        """±1 by sample."""
        return np.repeat(self.signs, self.counts)


# ---------------------------------------------------------------- classification


def _binary_jobs(offsets, pairs, separate=False):
    """Jobs of pairs of groups, the first of which has sign 1, and their sides."""
    groups, n = [slice(a, b) for a, b in pairwise(offsets.tolist())], np.diff(offsets).tolist()
    jobs = [DualJob((a, a + 1), (b, b + 1), (1.0, -1.0), separate=separate) for a, b in pairs]
    return jobs, [Sides((groups[a], groups[b]), (n[a], n[b]), (1.0, -1.0)) for a, b in pairs]


def _rest_jobs(offsets):
    """Jobs of each group that is there against all others; the box of each is a set of its own."""
    k, n = len(offsets) - 1, int(offsets[-1])
    present = np.flatnonzero(np.diff(offsets))
    jobs = [DualJob((0, k), set=index) for index in range(len(present))]
    bounds = [(int(offsets[group]), int(offsets[group + 1])) for group in present]
    return jobs, [
        Sides((slice(0, a), slice(a, b), slice(b, n)), (a, b - a, n - b), (-1.0, 1.0, -1.0))
        for a, b in bounds
    ]


def _with_folds(jobs, n_sets, folds):
    """The jobs once more for each fold: set + fold·n_sets."""
    if folds is None:
        return jobs
    return [job._replace(set=job.set + n_sets * f) for f in range(int(folds.max()) + 2) for job in jobs]


def _held_boxes(upper, folds):
    """`upper` (n_sets, n) as it is, and then with each fold's samples out."""
    if folds is None:
        return upper
    inside = [upper] + [np.where(folds == f, 0.0, upper) for f in range(int(folds.max()) + 1)]
    return np.concatenate(inside)


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
    pairs : list of tuple or None
        The problems; None is each class against the rest.
    folds : ndarray of shape (m,) or None
        For each sample the fold in which it is held out.
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
        linear = np.stack([side.labels() for side in sides])
        top = np.where(linear > 0, upper, 0.0)
        bottom = np.where(linear < 0, upper, 0.0)
    else:
        jobs, sides = _binary_jobs(rows.offsets, pairs)
        linear, top, bottom = np.ones((1, len(upper))), upper[None], np.zeros((1, len(upper)))
    p, n_sets = len(jobs), len(linear)
    top, bottom = _held_boxes(top, folds), _held_boxes(bottom, folds)
    jobs = _with_folds(jobs, n_sets, folds)
    start = None
    if previous is not None:
        start = start_c(previous, sides, upper)
        start += [np.zeros(len(part)) for part in start] * (len(jobs) // p - 1)
    linear = np.tile(linear, (len(top) // n_sets, 1))
    outcome = samples.solve(jobs, linear, -bottom, top, start=start, fields=True, **options)
    machines = _c_outcome(outcome, sides, upper, weights)
    if folds is not None:
        machines.held_out = [
            _held_out(outcome, j, sides, folds, side.labels()) for j, side in enumerate(sides)
        ]
    return machines


def _spaced(arrays):
    """The arrays one after another, each behind a 0 of its own.

    A sum of one in its place, by ``np.add.reduceat``, then has the digits of its own ``sum()``.
    """
    return np.concatenate([part for array in arrays for part in (_ZERO, array)])


def _c_outcome(outcome, sides, upper, weights):
    p = len(sides)
    bias, objective = outcome.bias[:p, 0], outcome.objective[:p]
    even, hard = (weights == weights[0]).all(), np.isinf(upper).any()
    counts = np.array([side.counts for side in sides])
    counts[:, 0] += 1  # the 0 in front
    lengths = counts.sum(axis=1)
    at = lengths.cumsum() - lengths
    # c = y, hence y f = 1 − y (F − b); the parts' signs are the same in all problems
    short = _spaced(outcome.field[:p]) - bias.repeat(lengths)
    short *= np.repeat(sides[0].signs * p, counts.ravel())
    short[at] = -np.inf
    room = 1 - np.maximum.reduceat(short, at)
    slack = np.maximum(short, 0.0, out=short)
    size = np.add.reduceat(np.abs(_spaced(outcome.beta[:p])), at)
    if even:
        loss = weights[0] * np.add.reduceat(slack, at)
    else:
        loss = np.add.reduceat(_spaced([side.take(weights) for side in sides]) * slack, at)
    squared = np.maximum(2 * (objective + size), 0.0)
    primal = 0.5 * squared
    if hard:
        # The function is scaled until every sample is at its margin or beyond.
        primal = np.divide(primal, np.square(room), out=np.full(p, np.inf), where=room > 1e-100)
    else:
        primal += loss * (upper[0] / weights[0])
    return Machines(
        beta=outcome.beta[:p],
        intercept=bias,
        bound=upper,
        objective=objective,
        squared_norm=squared,
        loss=loss,
        primal=primal,
        gap=np.maximum(primal + objective, 0.0),
        **reached(outcome, p),
    )


def _held_out(outcome, j, sides, folds, linear, divisor=None):
    """Decisions of problem j about its samples, each from the fold that held it out; labels; the sides."""
    own, p = sides[j].take(folds), len(sides)
    decisions = np.empty(len(own))
    for f in range(int(folds.max()) + 1):
        index, held = p * (f + 1) + j, own == f
        bias = outcome.bias[index, 0] if divisor is None else outcome.bias[index].mean()
        values = linear - outcome.field[index] + bias
        decisions[held] = values[held] if divisor is None else values[held] / divisor[index]
    return decisions, sides[j].labels(), sides[j]


def nu_machines(samples, rows, weights, nu, pairs, *, folds=None, previous=None, **options):
    """ν-SVC: min ½βᵀKβ over 0 ≤ yβ ≤ weight, each class's sum ν/2 of all weights; then all over ρ.

    Parameters
    ----------
    samples : DualSamples
    rows : CanonicalRows
    weights : ndarray of shape (m,)
    nu : float
        Feasible for all pairs.
    pairs : list of tuple
    folds, previous, **options
        As for `c_machines`.

    Returns
    -------
    Machines
    """
    jobs, sides = _binary_jobs(rows.offsets, pairs, separate=True)
    p = len(jobs)
    jobs = _with_folds(jobs, 1, folds)
    top = _held_boxes(weights[None], folds)
    begin = _nu_starts(rows.offsets, np.array(pairs), top, nu)
    if previous is not None:
        known = start_nu(previous, sides, weights, nu)
        begin[:p] = [cold if warm is None else warm for warm, cold in zip(known, begin, strict=False)]
    zeros = np.zeros_like(top)
    outcome = samples.solve(jobs, zeros, zeros, top, start=begin, fields=True, **options)
    return _nu_outcome(outcome, sides, weights, nu, folds)


def _nu_starts(offsets, pairs, top, nu):
    """Feasible β of each pair of groups, set by set of the boxes `top` (n_sets, m)."""
    firsts = offsets[pairs] + np.arange(len(top))[:, None, None] * top.shape[1]
    counts = np.broadcast_to(np.diff(offsets)[pairs], firsts.shape).ravel()
    group_sums = np.array([[box[a:b].sum() for a, b in pairwise(offsets.tolist())] for box in top])
    sums = group_sums[:, pairs]
    # In a fold ν may be out of reach: then as much as there is.
    total = np.minimum(nu * sums.sum(axis=-1) / 2, sums.min(axis=-1))
    totals = np.stack([total, -total], axis=-1).ravel()
    beta = dual_fill(totals, firsts.ravel(), counts, top.ravel())
    ends = counts.reshape(-1, 2).sum(axis=1).cumsum().tolist()
    return [beta[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _nu_outcome(outcome, sides, weights, nu, folds):
    p = len(sides)
    # y f = ρ at free samples, f = Kβ + b: minus their mean of Kβ is b − ρ on one side and b + ρ on the other.
    bias = outcome.bias.mean(axis=1)
    rho = (outcome.bias[:, 1] - outcome.bias[:, 0]) / 2
    divisor = np.where(rho > _NO_MARGIN * np.maximum(np.abs(outcome.bias).max(axis=1), 1.0), rho, 1.0)
    objective = outcome.objective[:p]
    counts = np.array([side.counts for side in sides])
    lengths = counts.sum(axis=1)
    at = lengths.cumsum() - lengths
    own = weights[outcome.samples[: lengths.sum()]]
    short = np.concatenate(outcome.field[:p]) - bias[:p].repeat(lengths)
    # the parts' signs are the same in all problems
    short *= np.repeat(sides[0].signs * p, counts.ravel())
    loss = np.add.reduceat(own * np.maximum(short + rho[:p].repeat(lengths), 0.0), at)
    share = nu * np.add.reduceat(own, at)
    primal = np.maximum(objective, 0.0) - rho[:p] * share + loss
    machines = Machines(
        beta=outcome.beta[:p],
        intercept=bias[:p] / divisor[:p],
        bound=weights,
        objective=objective,
        squared_norm=2 * np.maximum(objective, 0.0) / np.square(divisor[:p]),
        loss=loss / divisor[:p],
        primal=primal,
        gap=np.maximum(primal + objective, 0.0),
        scale=divisor[:p],
        **reached(outcome, p),
    )
    machines.extra["rho"] = rho[:p]
    if folds is not None:
        machines.held_out = [_held_out(outcome, j, sides, folds, 0.0, divisor) for j in range(p)]
    return machines

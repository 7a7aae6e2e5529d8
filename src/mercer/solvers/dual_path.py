"""One problem of ``native/dual.c`` for boxes that grow, each begun at the one before.

Place on the way: ``dual_layout`` → **dual_path** → ``_chains``.
"""

import numpy as np

from .. import _native
from .dual_layout import STATUS

__all__ = ["DualPath"]

_CONVERGED = STATUS.index("converged")
_EPS = np.finfo(np.float64).eps


class DualPath:
    """A problem whose box is C times another, without kinks, by C. Arrays are by variable of the problem.

    Parameters
    ----------
    problem : DualProblems
        Of one job, over a matrix or a run.
    weights : ndarray of shape (n,)
        Of its samples: the box at C = 1 is from 0 to their signs times these.
    C : ndarray of shape (n_C,)
        Ascending.
    noise : float
        What rounding of the rows leaves in F at most, for each unit that β is off from `known`; 0 where
        nothing is asked of F.

    Attributes
    ----------
    linear, least, most : ndarray
        c, which is the samples' signs, and the box at C = 1.
    lower, upper : ndarray
        The box at the C where it stands.
    beta, field : ndarray of shape (n_C, size)
        β and F = c − Kβ.
    known : ndarray
        β at which F was computed from exact kernel values, multiplied as β is.
    rounding : float
        Of F there.
    seconds : ndarray of shape (n_C,)
        That were spent on each C.
    """

    def __init__(self, problem, weights, C, noise):
        self.problem, self.weights, self.C = problem, weights, C
        self.noise, self.rounding = noise, _EPS
        most = problem.signs * weights
        self.linear = problem.by_variable(problem.signs)
        self.least = problem.by_variable(np.minimum(most, 0.0))
        self.most = problem.by_variable(np.maximum(most, 0.0))
        self.lower, self.upper, self.known = np.zeros((3, problem.size))
        self.beta, self.field = np.zeros((2, len(C), problem.size))
        self.field[0] = self.linear
        self.seconds, self.jobs = np.zeros(len(C)), problem.jobs(len(C))

    def go_on(self, at, end, *, begun, **options):
        """Solve for some C; the parameters are those of `_native.dual_path`.

        Returns
        -------
        at : int
            Where it ended.
        left : int
            Why: one of ``_native.DUAL_PATH_…``.
        """
        return _native.dual_path(*self.problem.entries, self.jobs, self, at, end, begun, **options)

    def on(self, problem, at):
        """The same over other rows, whose F is exact: as it is up to one C, at which F is to be known."""
        other = DualPath(problem, self.weights, self.C, 0.0)
        here, there = slice(at + 1), self.problem.taken
        other.beta[here, problem.taken] = self.beta[here, there]
        other.field[here, problem.taken] = self.field[here, there]
        other.jobs[["status", "bias"]] = self.jobs[["status", "bias"]]
        other.seconds = self.seconds
        return other

    def set_known(self, at, field):
        """F at one C is computed from exact kernel values."""
        self.field[at] = field
        self.known[:] = self.beta[at]
        self.rounding = _EPS

    @property
    def converged(self):
        """Which of the problems reached tol."""
        return self.jobs["status"] == _CONVERGED

    @property
    def bias(self):
        """As `DualOutcome` has it, of shape (n_C,)."""
        return self.jobs["bias"][:, 0]

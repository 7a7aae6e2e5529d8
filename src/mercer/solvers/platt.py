"""Probabilities from decisions: a sigmoid fitted by its likelihood.

Place on the way: decisions of held-out samples → **platt** → ``estimators``.
"""

from copy import copy

import numpy as np

__all__ = ["fit_sigmoids", "sigmoid"]

_MAX_ITER = 100
_MIN_STEP = 1e-10
# What is added to curvatures, relative to the sum of weights.
_RIDGE = 1e-12
# A slope that is next to none still tells one side of 0 from the other.
_FLATTEST = -1e-6


def sigmoid(decisions, A, B):
    """1 / (1 + exp(A f + B)), without overflow.

    Parameters
    ----------
    decisions : ndarray
    A, B : float or ndarray

    Returns
    -------
    ndarray
    """
    z = A * decisions + B
    e = np.exp(-np.abs(z))
    return np.where(z > 0, e, 1.0) / (1 + e)


class _Problems:
    """Sigmoids that are fitted in lockstep, the samples (n,) of one problem after another.

    Attributes
    ----------
    f, t, w : ndarray of shape (n,)
        Decisions over the problem's largest, targets and weights.
    lengths, A, B, cost : ndarray of shape (p,)
    through_half : bool
    """

    def __init__(self, f, t, w, lengths, B, through_half):
        self.f, self.t, self.w, self.lengths, self.through_half = f, t, w, lengths, through_half
        self.starts = lengths.cumsum() - lengths
        self.A, self.B = np.zeros(len(lengths)), B
        self.total = self.sums(w)
        self.cost = self.costs(self.A, B)

    def sums(self, values):
        return np.add.reduceat(values, self.starts)

    def spread(self, values):
        return values.repeat(self.lengths)

    def part(self, which):
        """Some of them (a mask), as they are."""
        some = self.spread(which)
        other = copy(self)
        other.f, other.t, other.w = (each[some] for each in (self.f, self.t, self.w))
        for name in ("lengths", "A", "B", "cost", "total"):
            setattr(other, name, getattr(self, name)[which])
        other.starts = other.lengths.cumsum() - other.lengths
        return other

    def costs(self, A, B):
        """Minus the logarithms of the likelihoods."""
        z = self.spread(A) * self.f + self.spread(B)
        # w (t z + log(1 + e^−z)), in the form that does not overflow
        return self.sums(self.w * ((self.t - (z < 0)) * z + np.log1p(np.exp(-np.abs(z)))))

    def step(self):
        """One of Newton's steps, with backtracking. Returns which problems may go on.

        The ridge keeps the curvature positive. With decisions less their mean by curvature neither unknown
        acts on the other, and no digits cancel.
        """
        f, ridge = self.f, _RIDGE * self.total
        p = sigmoid(f, self.spread(self.A), self.spread(self.B))
        residual, curvature = self.w * (self.t - p), self.w * p * (1 - p)
        total, mean = self.sums(curvature), np.zeros(len(ridge))
        slopes = [self.sums(f * residual), np.zeros(len(ridge))]
        if not self.through_half:
            slopes[1] = self.sums(residual)
            np.divide(self.sums(f * curvature), total, out=mean, where=total > 0)
        apart = f - self.spread(mean)
        along_A = -self.sums(apart * residual) / (self.sums(curvature * np.square(apart)) + ridge)
        along_B = 0.0 * ridge if self.through_half else -slopes[1] / (total + ridge) - mean * along_A
        going = np.maximum(np.abs(slopes[0]), np.abs(slopes[1])) >= 1e-8 * self.total
        return self._backtrack(along_A, along_B, slopes[0] * along_A + slopes[1] * along_B, going)

    def _backtrack(self, along_A, along_B, downhill, going):
        size, moved, waiting = 1.0, np.zeros(len(going), bool), going
        while size >= _MIN_STEP and waiting.any():
            here = self.part(waiting)
            A, B = here.A + size * along_A[waiting], here.B + size * along_B[waiting]
            cost = here.costs(A, B)
            down = cost < here.cost + 1e-4 * size * downhill[waiting]
            now = np.flatnonzero(waiting)[down]
            self.A[now], self.B[now], self.cost[now], moved[now] = A[down], B[down], cost[down], True
            waiting = going & ~moved
            size /= 2
        return moved


def fit_sigmoids(decisions, positive, weights, ends, *, through_half=False):
    """A and B of sigmoids that make their labels likeliest.

    Parameters
    ----------
    decisions : ndarray of shape (n,)
        Of one sigmoid after another.
    positive : ndarray of shape (n,)
        Which labels are positive.
    weights : ndarray of shape (n,)
    ends : ndarray of int of shape (p,)
        Where each sigmoid's samples end, of which it has one at least.
    through_half : bool
        Whether B is 0, so that the probability is ½ where the decision is 0.

    Returns
    -------
    A, B : ndarray of shape (p,)
        A is negative with `through_half`.

    Notes
    -----
    Targets are (N₊ + 1)/(N₊ + 2) and 1/(N₋ + 2) rather than 1 and 0, N being sums of weights over the largest
    of these where that is below 1. Newton's steps with backtracking, on decisions divided by their largest
    size, of all sigmoids at once.

    References
    ----------
    Platt, Probabilistic outputs for support vector machines, 1999; Lin, Lin and Weng, A note on Platt's
    probabilistic outputs for support vector machines, Machine Learning 68, 2007.
    """
    lengths = np.diff(ends, prepend=0)
    starts = ends - lengths
    largest = np.maximum.reduceat(weights, starts)
    weights = weights / np.where(largest > 0, np.minimum(largest, 1.0), 1.0).repeat(lengths)  # 1 is a sample
    n_pos = np.add.reduceat(weights * positive, starts)
    n_neg = np.add.reduceat(weights * ~positive, starts)
    high, low = (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2)
    t = np.where(positive, high.repeat(lengths), low.repeat(lengths))
    size = np.maximum.reduceat(np.abs(decisions), starts)
    size[size == 0] = 1.0
    A, B = np.zeros(len(ends)), np.zeros(len(ends)) if through_half else np.log((n_neg + 1) / (n_pos + 1))
    f, left = decisions / size.repeat(lengths), np.arange(len(ends))
    problems = _Problems(f, t, weights, lengths, B.copy(), through_half)
    for _ in range(_MAX_ITER):
        going = problems.step()
        A[left], B[left] = problems.A, problems.B
        left = left[going]
        if not left.size:
            break
        problems = problems if going.all() else problems.part(going)
    A /= size
    return (np.minimum(A, _FLATTEST / size), 0.0 * B) if through_half else (A, B)

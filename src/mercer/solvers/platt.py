"""Probabilities from decisions: a sigmoid fitted by its likelihood.

Place on the way: decisions of held-out samples → **platt** → ``estimators``.
"""

import numpy as np
from scipy.special import expit

__all__ = ["fit_sigmoid", "sigmoid"]

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
    return expit(-(A * decisions + B))


def _cost(f, t, w, A, B):
    z = A * f + B
    # w (t z + log(1 + e^−z)), in the form that does not overflow
    return float(np.sum(w * (np.where(z >= 0, t * z, (t - 1) * z) + np.log1p(np.exp(-np.abs(z))))))


def fit_sigmoid(decisions, positive, weights, *, through_half=False):
    """A and B of the sigmoid that makes the labels likeliest.

    Parameters
    ----------
    decisions : ndarray of shape (n,)
    positive : ndarray of shape (n,)
        Which labels are positive.
    weights : ndarray of shape (n,)
    through_half : bool
        Whether B is 0, so that the probability is ½ where the decision is 0.

    Returns
    -------
    tuple of two floats
        A is negative with `through_half`.

    Notes
    -----
    Targets are (N₊ + 1)/(N₊ + 2) and 1/(N₋ + 2) rather than 1 and 0, N being sums of weights over the largest
    of these where that is below 1. Newton's steps with backtracking, on decisions divided by their largest
    size.

    References
    ----------
    Platt, Probabilistic outputs for support vector machines, 1999; Lin, Lin and Weng, A note on Platt's
    probabilistic outputs for support vector machines, Machine Learning 68, 2007.
    """
    weights = weights / min(1.0, float(np.max(weights, initial=0.0)) or 1.0)  # 1 is a sample
    n_pos, n_neg = float(weights[positive].sum()), float(weights[~positive].sum())
    t = np.where(positive, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))
    size = float(np.max(np.abs(decisions), initial=0.0)) or 1.0
    f, A = decisions / size, 0.0
    B = 0.0 if through_half else float(np.log((n_neg + 1) / (n_pos + 1)))
    cost = _cost(f, t, weights, A, B)
    for _ in range(_MAX_ITER):
        p = sigmoid(f, A, B)
        residual = weights * (t - p)
        slope = np.array([f @ residual, 0.0 if through_half else residual.sum()])
        if np.max(np.abs(slope)) < 1e-8 * weights.sum():
            break
        step = _newton(f, residual, weights * p * (1 - p), _RIDGE * weights.sum(), through_half)
        A, B, cost, moved = _backtrack(f, t, weights, A, B, cost, slope, step)
        if not moved:
            break
    A /= size
    return (min(A, _FLATTEST / size), 0.0) if through_half else (A, B)


def _newton(f, residual, curvature, ridge, through_half):
    """Newton's step; the ridge keeps the curvature positive.

    With decisions less their mean by curvature neither unknown acts on the other, and no digits cancel.
    """
    total = curvature.sum()
    mean = 0.0 if through_half or not total > 0 else f @ curvature / total
    step = -((f - mean) @ residual) / (curvature @ np.square(f - mean) + ridge)
    return np.array([step, 0.0 if through_half else -residual.sum() / (total + ridge) - mean * step])


def _backtrack(f, t, weights, A, B, cost, slope, step):
    size, downhill = 1.0, float(slope @ step)
    while size >= _MIN_STEP:
        new = _cost(f, t, weights, A + size * step[0], B + size * step[1])
        if new < cost + 1e-4 * size * downhill:
            return A + size * step[0], B + size * step[1], new, True
        size /= 2
    return A, B, cost, False

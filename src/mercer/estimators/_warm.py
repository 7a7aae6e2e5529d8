"""Feasible starts of the duals out of the coefficients of an earlier fit.

Place on the way: an earlier fit → **warm** → ``_machines``.

Any feasible start leads to the optimum; where signs, boxes or sums do not fit, the start is a cold one.
"""

import numpy as np

from .._native import dual_fill
from ..solvers.dual_layout import split

__all__ = ["first_come", "start_c", "start_nu", "start_nu_regression", "start_regression", "start_sum"]

# Of the largest coefficient: what rounding leaves of a sum that should be 0.
_ROUNDING = 1e-9
# Of a bound, what rounding leaves of a coefficient at it.
_NEAR = 1e-12


def first_come(total, upper):
    """Coefficients that take `total` out of their boxes [0, upper], the first ones first (LIBSVM's start).

    Parameters
    ----------
    total : float
        Below 0 it is 0.
    upper : ndarray of shape (n,)

    Returns
    -------
    ndarray of shape (n,)
    """
    return dual_fill(np.array([max(total, 0.0)]), np.zeros(1, np.intp), np.array([len(upper)]), upper)


def _into_box(beta, signs, box):
    """β of sum 0, made smaller until it fits its box; 0 where it cannot."""
    size = np.abs(beta)
    if (signs * beta < 0).any() or abs(beta.sum()) > _ROUNDING * size.max(initial=0.0):
        return np.zeros_like(beta)
    used = size > 0
    room = min(1.0, float(np.min(box[used] / size[used], initial=1.0)))
    return np.clip(beta * room, -box, box)


def _at_bounds(beta, box):
    """β with what rounding has left next to a bound, or beyond it, brought there; None if it does not fit."""
    size = np.abs(beta)
    if (size > (1 + _NEAR) * box).any():
        return None
    return np.where(size >= (1 - _NEAR) * box, np.copysign(box, beta), beta)


def start_c(previous, sides, upper):
    """Starts of C-SVC.

    Parameters
    ----------
    previous : list of ndarray
        β by problem.
    sides : Sides
        The samples of the problems, and their labels.
    upper : ndarray of shape (m,)
        C of each sample.

    Returns
    -------
    ndarray
        One start after another.
    """
    parts = (split(values, sides.ends) for values in (sides.labels, upper[sides.samples]))
    return np.concatenate([_into_box(*each) for each in zip(previous, *parts, strict=True)])


def start_nu(previous, sides, weights, nu, starts):
    """Put starts of ν-SVC that fit in place of others: β with both classes' sums as they must be.

    Parameters
    ----------
    previous, sides
        As for `start_c`.
    weights : ndarray of shape (m,)
    nu : float
    starts : ndarray
        One start after another, perhaps of more problems.
    """
    parts = (split(values, sides.ends) for values in (weights[sides.samples], sides.labels, starts))
    for beta, box, sign, start in zip(previous, *parts, strict=True):
        total = nu * box.sum() / 2
        sums = [(sign * beta)[sign == each].sum() for each in (1, -1)]
        if min(sums) <= 0 or (sign * beta < 0).any():
            continue
        beta = _at_bounds(beta * np.where(sign > 0, total / sums[0], total / sums[1]), box)
        if beta is not None:
            start[:] = beta


def start_regression(beta, upper):
    """A start of ε-SVR.

    Parameters
    ----------
    beta, upper : ndarray of shape (m,)

    Returns
    -------
    ndarray of shape (m,)
    """
    return _into_box(beta, np.sign(beta), upper)


def start_nu_regression(beta, upper, total):
    """A start of ν-SVR: α and −α*, each of sum `total`, with β = α − α*; None if there is none.

    Parameters
    ----------
    beta, upper : ndarray of shape (m,)
    total : float

    Returns
    -------
    ndarray of shape (2m,), or None
    """
    beta = _at_bounds(beta, upper)
    if beta is None or abs(beta.sum()) > _ROUNDING * np.abs(beta).max(initial=0.0):
        return None
    size = np.abs(beta)
    if size.sum() > 2 * (1 + _NEAR) * total:
        return None
    # The same to both, where there is room.
    more = first_come(total - size.sum() / 2, upper - size)
    alpha, other = np.maximum(beta, 0) + more, np.maximum(-beta, 0) + more
    fits = max(abs(alpha.sum() - total), abs(other.sum() - total)) <= _ROUNDING * total
    return np.concatenate([alpha, -other]) if fits else None


def start_sum(beta, upper, total):
    """A start of one class: β ≥ 0 of sum `total`; None if it does not fit.

    Parameters
    ----------
    beta, upper : ndarray of shape (m,)
    total : float

    Returns
    -------
    ndarray of shape (m,), or None
    """
    if (beta < 0).any() or not beta.any():
        return None
    return _at_bounds(beta * (total / beta.sum()), upper)

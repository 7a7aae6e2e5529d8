"""Labels from rounded decisions: which of them the rounding cannot have changed.

Place on the way: decisions of machines → **certain** → ``svm``, which decides the others from exact values.
"""

import numpy as np

from ._one_against_one import votes

__all__ = ["certain_argmax", "certain_votes"]


def certain_argmax(values, bounds):
    """The column of the largest value, and whether errors within the bounds leave it the largest.

    Parameters
    ----------
    values : ndarray of shape (m, k)
    bounds : ndarray of shape (m, k) or (k,)
        Largest error of each value, or of each column.

    Returns
    -------
    best : ndarray of int
    certain : ndarray of bool
    """
    best = np.argmax(values, axis=1)
    rows, bounds = np.arange(len(values)), np.broadcast_to(bounds, values.shape)
    others = values + bounds
    others[rows, best] = -np.inf
    return best, values[rows, best] - bounds[rows, best] > others.max(axis=1)


def certain_votes(values, bounds, k):
    """The class that wins most pairs, and whether errors within the bounds leave it alone in that.

    Where classes are level nothing is certain, however such ties are broken.

    Parameters
    ----------
    values : ndarray of shape (m, k (k - 1) / 2)
        Decisions of pairs.
    bounds : ndarray of shape (m, k (k - 1) / 2) or (k (k - 1) / 2,)
        Largest error of each, or of each pair.
    k : int

    Returns
    -------
    best : ndarray of int
    certain : ndarray of bool
    """
    won = votes(values, k)
    best = np.argmax(won, axis=1)
    rows = np.arange(len(values))
    open_ = np.abs(values) <= bounds
    doubtful = np.flatnonzero(open_.any(axis=1))
    least, rivals = won[rows, best], won
    # a pair that is open may be lost by the class that has it, and won by the other
    swings = _open_pairs(open_[doubtful], k)
    least[doubtful] -= swings[np.arange(len(doubtful)), best[doubtful]]
    rivals[doubtful] += swings
    rivals[rows, best] = -1
    return best, least > rivals.max(axis=1)


def _open_pairs(open_, k):
    """How many open pairs each class is in."""
    out = np.zeros((len(open_), k))
    first = 0
    for a in range(k - 1):
        block = open_[:, first : first + k - 1 - a]
        out[:, a] += block.sum(axis=1)
        out[:, a + 1 :] += block
        first += k - 1 - a
    return out

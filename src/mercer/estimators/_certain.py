"""Labels from rounded decisions: which of them the rounding cannot have changed.

Place on the way: decisions of machines → **certain** → ``svm``, which decides the others from exact values.
"""

import numpy as np

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


def certain_votes(votes, open_):
    """The class that wins most pairs, and whether open pairs leave it alone in that, however they end.

    Where classes are level nothing is certain, however such ties are broken.

    Parameters
    ----------
    votes, open_ : ndarray of shape (m, k)
        By class: pairs that it wins as decisions are, and pairs whose decisions' errors leave them open.

    Returns
    -------
    best : ndarray of int
    certain : ndarray of bool
    """
    best, rows = np.argmax(votes, axis=1), np.arange(len(votes))
    # a pair that is open may be lost by the class that has it, and won by the other
    least, rivals = votes[rows, best] - open_[rows, best], votes + open_
    rivals[rows, best] = -1
    return best, least > rivals.max(axis=1)

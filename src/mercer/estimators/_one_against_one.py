"""Several classes from two: values and probabilities out of pairs.

Place on the way: decisions of machines → **one against one** → ``svm``.

Pairs (a, b), a < b, stand in lexicographic order, and a positive decision is for a (LIBSVM's convention).
"""

import numpy as np

__all__ = ["couple", "votes_and_sums"]

# Numbers of one batch of linear systems.
_BATCH = 2**16
# LIBSVM's bounds on pairwise probabilities: with one of 0 the coupling is singular.
_LEAST = 1e-7


def votes_and_sums(votes, sums):
    """One value for each class: its votes, and in between its summed decisions, squeezed into ±1/3.

    Parameters
    ----------
    votes, sums : ndarray of shape (m, k)
        By `Expansion.pair_votes`, a decision of 0 being the first class's.

    Returns
    -------
    ndarray of shape (m, k)
        scikit-learn's ``decision_function_shape="ovr"``.
    """
    return votes + sums / (3 * (np.abs(sums) + 1))


def couple(probabilities, k):
    """Probabilities of classes from those of pairs: the least squares of rᵦₐ pₐ − rₐᵦ pᵦ, summing to 1.

    Parameters
    ----------
    probabilities : ndarray of shape (m, k (k - 1) / 2)
        Of the first class of each pair.
    k : int

    Returns
    -------
    ndarray of shape (m, k)

    References
    ----------
    Wu, Lin and Weng, Probability estimates for multi-class classification by pairwise coupling, JMLR 5, 2004:
    the second approach, by its linear equations.
    """
    a, b = np.triu_indices(k, 1)
    out = np.empty((len(probabilities), k))
    step = max(1, _BATCH // (k + 1) ** 2)
    for start in range(0, len(out), step):
        r = np.clip(probabilities[start : start + step], _LEAST, 1 - _LEAST)
        wins = np.zeros((len(r), k, k))  # of the row's class against the column's
        wins[:, a, b], wins[:, b, a] = r, 1 - r
        system = np.zeros((len(r), k + 1, k + 1))
        np.multiply(wins, -wins.transpose(0, 2, 1), out=system[:, :k, :k])
        system[:, np.arange(k), np.arange(k)] = np.square(wins).sum(axis=1)
        system[:, k, :k] = system[:, :k, k] = 1.0
        right = np.zeros((len(r), k + 1, 1))
        right[:, k] = 1.0
        p = np.maximum(np.linalg.solve(system, right)[:, :k, 0], 0.0)
        out[start : start + step] = p / p.sum(axis=1, keepdims=True)
    return out

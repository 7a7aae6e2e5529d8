"""Several classes from two: votes, decisions and probabilities out of pairs.

Place on the way: decisions of machines → **one against one** → ``svm``.

Pairs (a, b), a < b, stand in lexicographic order, and a positive decision is for a (LIBSVM's convention).
"""

from functools import lru_cache

import numpy as np

__all__ = ["couple", "decisions_by_class", "pair_decisions", "votes"]

# Numbers of one batch of linear systems.
_BATCH = 2**20
# Up to so many numbers by two classes indices cost less than slices class by class: they are read once more.
_FEW = 2**15
# LIBSVM's bounds on pairwise probabilities: with one of 0 the coupling is singular.
_LEAST = 1e-7


@lru_cache(maxsize=8)
def _pairs(k):
    """The classes a and b of each pair."""
    a, b = np.triu_indices(k, 1)
    a.flags.writeable = b.flags.writeable = False
    return a, b


def pair_decisions(products, intercept):
    """Decisions of all pairs from products by class.

    Parameters
    ----------
    products : ndarray of shape (k, m, k - 1)
        Of each class's support vectors with their coefficients in the pairs with the other classes.
    intercept : ndarray of shape (k (k - 1) / 2,)

    Returns
    -------
    ndarray of shape (m, k (k - 1) / 2)
    """
    k, m, _ = products.shape
    if k * k * m <= _FEW:
        a, b = _pairs(k)
        out = products[a, :, b - 1] + products[b, :, a]
    else:
        out, first = np.empty((len(intercept), m)), 0
        for a in range(k - 1):
            pairs = out[first : first + k - 1 - a]
            np.add(products[a, :, a:].T, products[a + 1 :, :, a], out=pairs)
            first += k - 1 - a
    out += intercept[:, None]
    return out.T


def votes(decisions, k, *, tie_to_first=False):
    """How many pairs each class wins.

    Parameters
    ----------
    decisions : ndarray of shape (m, k (k - 1) / 2)
    k : int
    tie_to_first : bool
        Whose a decision of 0 is: LIBSVM's vote gives it to the second class, scikit-learn's values by class
        to the first.

    Returns
    -------
    ndarray of shape (m, k)
    """
    won = ((decisions >= 0) if tie_to_first else (decisions > 0)).T
    return _sums_by_class(won, ~won, k).T


def decisions_by_class(decisions, k):
    """One value for each class: its votes, and in between its summed decisions, squeezed into ±1/3.

    Parameters
    ----------
    decisions : ndarray of shape (m, k (k - 1) / 2)
    k : int

    Returns
    -------
    ndarray of shape (m, k)
        scikit-learn's ``decision_function_shape="ovr"``.
    """
    sums = _sums_by_class(decisions.T, -decisions.T, k).T
    return votes(decisions, k, tie_to_first=True) + sums / (3 * (np.abs(sums) + 1))


def _sums_by_class(firsts, seconds, k):
    """Sums (k, m) over the pairs of each class: of `firsts` (p, m) where it is first, else of `seconds`."""
    m = firsts.shape[1]
    if k * k * m <= _FEW:
        a, b = _pairs(k)
        square = np.zeros((k, k, m))
        square[a, b], square[b, a] = firsts, seconds
        return square.sum(axis=1)
    out, first = np.zeros((k, m)), 0
    for a in range(k - 1):
        pairs = slice(first, first + k - 1 - a)
        out[a] += firsts[pairs].sum(axis=0)
        out[a + 1 :] += seconds[pairs]
        first += k - 1 - a
    return out


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
    a, b = _pairs(k)
    out = np.empty((len(probabilities), k))
    step = max(1, _BATCH // (k + 1) ** 2)
    for start in range(0, len(out), step):
        r = np.clip(probabilities[start : start + step], _LEAST, 1 - _LEAST)
        system = np.zeros((len(r), k + 1, k + 1))
        system[:, a, b] = system[:, b, a] = -r * (1 - r)
        for c in range(k):
            # Q_cc = Σ r_jc²: r holds the first's probability, the other's is 1 − r
            system[:, c, c] = np.square(1 - r[:, a == c]).sum(axis=1) + np.square(r[:, b == c]).sum(axis=1)
        system[:, k, :k] = system[:, :k, k] = 1.0
        right = np.zeros((len(r), k + 1, 1))
        right[:, k] = 1.0
        p = np.maximum(np.linalg.solve(system, right)[:, :k, 0], 0.0)
        out[start : start + step] = p / p.sum(axis=1, keepdims=True)
    return out

"""Costs of quadratic and straight pieces by their duals.

Place on the way: ``faces``, ``newton_problem`` → **newton_dual** → ``newton``.

The dual of Σ w l(y, f) + α aᵀ K a, for the squared margin and for Huber's cost, is the problem of a machine:

    min ½ aᵀ (K + diag(α / w)) a − yᵀ a,    lower ≤ a ≤ upper,    Σ a = 0 with an intercept.

Newton's steps on f are cut at each kink that a row crosses, and at a small α there are many (spam, 3450 rows,
α = 1e-4: no end after 129 steps, 54 s). Steps over faces of the dual's box end at its optimum: 42 of them,
0.24 s; from α = 1 down to 1e-3 0.5 to 0.2 s where Newton's take 1 to 12.
"""

import numpy as np

from .._threads import n_threads as count_threads
from .faces import Rows, newton_on_faces

__all__ = ["minimise_duals"]

#: Of the largest |y|, where a dual's gap is to come to.
_TOL = 1e-9
_ROUNDS = 200
#: Free variables, beyond which a face costs more than steps of Newton's method that it saves.
_MOST_FREE = 4000


def minimise_duals(problems, K, start, check=None, n_threads=None):
    """Coefficients near the minima of problems, by their duals.

    Parameters
    ----------
    problems : Problems
    K : ndarray of shape (n, n) or None
        float64, C order.
    start : ndarray of shape (n, q) or None
        Coefficients to begin at, where they are in the box.
    check : callable or None
        Called now and then; may raise.
    n_threads : int or None
        Changes nothing in the result.

    Returns
    -------
    ndarray of shape (n, q), or None
        None where the cost has no such dual, or numbers leave the range.
    """
    if K is None or problems.loss.vector:
        return None
    out = np.zeros(problems.y.shape)
    for k, alpha in enumerate(problems.alphas):
        y, w = problems.y[:, k], problems.weights[:, k]
        rows = np.flatnonzero(w > 0)
        with np.errstate(over="ignore"):
            box = problems.loss.dual_box(y, w / alpha)
            diagonal = np.divide(alpha, w, out=np.zeros(len(w)), where=w > 0)
        if box is None or not np.isfinite(diagonal).all() or not len(rows):
            return None
        lower, upper = np.where(w > 0, box, 0.0)
        y = y.astype(np.float64)
        begun = Rows(K, [slice(0, len(K))], diagonal)
        beta, F = _started(begun, y, lower, upper, None if start is None else start[:, k], problems)
        newton_on_faces(
            begun,
            F,
            beta,
            lower,
            upper,
            _TOL * float(np.abs(y[rows]).max()),
            rounds=_ROUNDS,
            check=check,
            sums=None if problems.fit_intercept else [],
            most_free=_MOST_FREE,
            n_threads=count_threads(n_threads),
        )
        out[:, k] = beta
    return out


def _started(rows, y, lower, upper, start, problems):
    """β and F = y − (K + diag) β: the multiple of the start that is the best one, or 0."""
    beta = np.zeros(len(y))
    if start is None:
        return beta, y.copy()
    inside = np.isfinite(start).all() and ((lower <= start) & (start <= upper)).all()
    even = not problems.fit_intercept or abs(start.sum()) <= 1e-12 * np.abs(start).sum()
    used = np.flatnonzero(start)
    if not (inside and even and used.size):
        return beta, y.copy()
    product = rows.product(used, np.ascontiguousarray(start[used]))
    linear, quadratic = float(y @ start), float(start @ product)
    if not linear > 0 or not quadratic > 0:
        return beta, y.copy()
    scale = linear / quadratic
    # The box of the squared margin is a cone; another has the start itself.
    if not ((lower <= scale * start) & (scale * start <= upper)).all():
        scale = 1.0
    return scale * start, y - scale * product

"""Costs of quadratic and straight pieces by their duals.

Place on the way: ``faces``, ``newton_problem`` → **newton_dual** → ``newton``.

The dual of Σ w l(y, f) + α aᵀ K a, for the squared margin and for Huber's cost, is the problem of a machine:

    min ½ aᵀ (K + diag(α / w)) a − yᵀ a,    lower ≤ a ≤ upper,    Σ a = 0 with an intercept,

and for the joint squared margin, with a variable for each sample i and each class j but its own class c,

    min ½ Σ_k a_kᵀ K a_k + ½ Σ (α / w_i) d_ij² − Σ d_ij,    a_i = Σ_j d_ij (e_c − e_j),    d ≥ 0,

where each class's coefficients a_k sum to 0 with an intercept.

Newton's steps on f are cut at each kink that a row crosses, and at a small α there are many (spam, 3450 rows,
α = 1e-4: no end after 129 steps, 54 s). Steps over faces of the dual's box end at its optimum: 42 of them,
0.24 s; from α = 1 down to 1e-3 0.5 to 0.2 s where Newton's take 1 to 12.
"""

import numpy as np

from .._threads import n_threads as count_threads
from .faces import Rows, newton_on_faces

__all__ = ["has_duals", "minimise_duals"]

#: Of the largest |y|, where a dual's gap is to come to.
_TOL = 1e-9
_ROUNDS = 200
#: A start's sums may be off by so much of its sizes.
_OFF = 1e-3
#: Free variables, beyond which a face costs more than steps of Newton's method that it saves.
_MOST_FREE = 4000
#: Variables of a dual of vectors, which has arrays of so many rows and a column for each class.
_MOST = 30_000


def has_duals(problems, K):
    """Whether these may have duals that `minimise_duals` goes by, K (n, n) being at hand."""
    n, one = len(problems.y), problems.take([0])
    if K is None:
        return False
    if problems.loss.vector:
        moves = problems.loss.dual_moves(one.y[:1, 0], problems.n_outputs)
        return moves is not None and n * (problems.n_outputs - 1) <= _MOST
    return problems.loss.dual_box(one.y[:1, 0].astype(np.float64), np.ones(1)) is not None


def minimise_duals(problems, K, start, check=None, n_threads=None):
    """Coefficients near the minima of problems, by their duals.

    Parameters
    ----------
    problems : Problems
    K : ndarray of shape (n, n)
        float64, C order.
    start : ndarray of shape (n, q, C) or None
        Coefficients to begin at, where they are in the box; not None for a cost of vectors.
    check : callable or None
        Called now and then; may raise.
    n_threads : int or None
        Changes nothing in the result.

    Returns
    -------
    ndarray of shape (n, q, C), or None
        None where numbers leave the range.
    """
    pose = _Joint if problems.loss.vector else _Single
    duals = [pose(problems, K, k) for k in range(len(problems.alphas))]
    if not all(dual.posed for dual in duals):
        return None
    out = []
    for k, dual in enumerate(duals):
        beta, F = _started(dual, dual.begin(None if start is None else start[:, k]))
        newton_on_faces(
            dual.rows,
            F,
            beta,
            dual.lower,
            dual.upper,
            _TOL * float(np.abs(dual.linear).max()),
            rounds=_ROUNDS,
            check=check,
            sums=dual.sums,
            most_free=_MOST_FREE,
            n_threads=count_threads(n_threads),
        )
        out.append(dual.coefficients(beta))
    return np.stack(out, axis=1)


class _Single:
    """The dual of one problem of a cost of single values.

    Attributes
    ----------
    posed : bool
        Whether there is one, and its numbers are in range.
    rows : Rows
    linear, lower, upper : ndarray
    sums : ndarray of shape (m, n)
    """

    def __init__(self, problems, K, k):
        y, w, alpha = problems.y[:, k].astype(np.float64), problems.weights[:, k], problems.alphas[k]
        taken = w > 0
        with np.errstate(over="ignore"):
            box = problems.loss.dual_box(y, w / alpha)
            diagonal = np.divide(alpha, w, out=np.zeros(len(w)), where=taken)
        self.posed = bool(np.isfinite(diagonal).all()) and bool(taken.any())
        if self.posed:
            self.lower, self.upper = np.where(taken, box, 0.0)
            self.linear, self.rows = np.where(taken, y, 0.0), Rows(K, [slice(0, len(K))], diagonal)
            self.sums = np.ones((int(problems.fit_intercept), len(K)))

    def begin(self, a):
        """β of coefficients (n, 1), or 0."""
        return np.zeros(len(self.linear)) if a is None else a[:, 0].copy()

    def coefficients(self, beta):
        """Coefficients (n, 1) of β."""
        return beta[:, None]


class _Joint:
    """That of one problem of the joint squared margin."""

    def __init__(self, problems, K, k):
        code, w, alpha = problems.y[:, k], problems.weights[:, k], problems.alphas[k]
        with np.errstate(over="ignore"):
            ridge = np.divide(alpha, w, out=np.zeros(len(w)), where=w > 0)
        self.posed = bool(np.isfinite(ridge).all()) and bool((w > 0).any())
        if self.posed:
            self.samples, self.others, self.moves = problems.loss.dual_moves(code, problems.n_outputs)
            self.rows = _JointRows(K, self.samples, self.moves, ridge[self.samples])
            self.lower, self.linear = np.zeros(len(self.samples)), np.ones(len(self.samples))
            self.upper = np.where(w > 0, np.inf, 0.0)[self.samples]
            self.sums = self.moves.T[: (problems.n_outputs - 1) * problems.fit_intercept]

    def begin(self, a):
        """The variables d of coefficients (n, C)."""
        return np.maximum(-a[self.samples, self.others], 0.0)

    def coefficients(self, d):
        """Coefficients (n, C) of d."""
        return self.rows.gathered(np.arange(len(d)), d)


class _JointRows:
    """As `faces.Rows`, for d."""

    dtype = np.dtype(np.float64)

    def __init__(self, K, samples, moves, diagonal):
        self.K, self.samples, self.moves, self.diagonal = (
            Rows(K, [slice(0, len(K))]),
            samples,
            moves,
            diagonal,
        )

    def gathered(self, A, change):
        """Coefficients (n, C) of d that is 0 but for `change` at A."""
        out = np.zeros((len(self.K.places), self.moves.shape[1]))
        np.add.at(out, self.samples[A], change[:, None] * self.moves[A])
        return out

    def square(self, A):
        """As `Rows.square`."""
        out = self.K.square(self.samples[A])
        out.T[...] *= self.moves[A] @ self.moves[A].T
        np.einsum("ii->i", out)[:] += self.diagonal[A]
        return out

    def product(self, A, change):
        """As `Rows.product`."""
        a = self.gathered(A, change)
        used = np.flatnonzero(a.any(axis=1))
        f = np.stack([self.K.product(used, np.ascontiguousarray(part)) for part in a[used].T], axis=1)
        out = np.einsum("ic,ic->i", self.moves, f[self.samples])
        out[A] += self.diagonal[A] * change
        return out


def _started(dual, begin):
    """β and F: the multiple of where to begin that is the best one, or 0."""
    nothing = np.zeros(len(begin)), dual.linear.copy()
    if not np.isfinite(begin @ begin):  # nor would what follows be
        return nothing
    # Rounding, or steps to come, may have left something in the sums: each variable gives its part of it.
    sizes = np.abs(begin)
    parts = np.linalg.lstsq((dual.sums * sizes) @ dual.sums.T, dual.sums @ begin, rcond=None)[0] @ dual.sums
    used = np.flatnonzero(begin)
    inside = ((dual.lower <= begin) & (begin <= dual.upper)).all()
    if not (inside and used.size and np.abs(parts).max() <= _OFF):
        return nothing
    begin = begin - sizes * parts
    product = dual.rows.product(used, np.ascontiguousarray(begin[used]))
    linear, quadratic = float(dual.linear @ begin), float(begin @ product)
    if not linear > 0 or not quadratic > 0:
        return nothing
    scale = linear / quadratic
    # The box of a squared margin is a cone; another has the start itself.
    if not ((dual.lower <= scale * begin) & (scale * begin <= dual.upper)).all():
        scale = 1.0
    return scale * begin, dual.linear - scale * product

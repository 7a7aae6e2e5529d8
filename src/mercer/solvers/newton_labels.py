"""Labels at the minimum of a softmax cost, known before the minimum is.

Place on the way: ``newton_problem`` → **newton_labels** → ``newton_steps``.

Let P be ε above its minimum at (a, b), e the way from there to the minimum in the feature space, p a row's
probabilities and p* those at the minimum. Then

    α ‖e‖² + Σ w KL(p* ‖ p) = ε.

So a row of weight w keeps its label if every p* of another label has w KL(p* ‖ p) > ε. The difference of two
outputs at any row x moves by no more than it does at a row x' that is trained on, where KL bounds it, and
⟨e, φ(x) − φ(x')⟩: the row next to x tells its label.

ε is at most what P exceeds the dual's value at a itself by,

    Σ w (l(f) + l*(u) − u f),    u = −2αa / w,

which a Newton step leaves far below the gap to −g/2α, as this is off by K times what a is.
"""

import numpy as np

from ..losses import Logistic, Softmax

__all__ = ["Labels"]

_EPS = float(np.finfo(np.float64).eps)
#: Of the largest |f|, what rounding of cheap products may leave in it, and some more.
_BLUR = 3e-6
#: So many rows are looked at by their neighbours; of more, some tell how far it is.
_MOST, _SOME = 32, 8


class Labels:
    """Tells problems all of whose rows, held out or not, have the labels of the minimum.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Positive semidefinite.
    """

    def __init__(self, K):
        self._K, self._diagonal = K, np.maximum(K.diagonal(), 0.0)
        self._sizes = np.sqrt(self._diagonal)
        self._largest = float(self._sizes.max(initial=0.0))

    @staticmethod
    def takes(loss):
        """Whether a cost is of the kind that this is for."""
        return isinstance(loss, Logistic | Softmax)

    def judge(self, problems, f, a, gap):
        """Whether the labels are those of the minimum, and by which factor the error is to fall for that.

        Parameters
        ----------
        problems : Problems
        f : ndarray of shape (n, q, C)
            K a + b, b being the best for K a.
        a : ndarray of shape (n, q, C)
        gap : ndarray of shape (q,)
            What P is above its minimum at most, as far as is known.

        Returns
        -------
        known : ndarray of bool of shape (q,)
        factor : ndarray of shape (q,)
            An estimate.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            excess = np.fmin(gap, _excess(problems, f, a, self._largest))
            found = [self._judge_one(problems, f, q, excess[q]) for q in range(len(excess))]
        known, factor = zip(*found, strict=True)
        return np.array(known), np.array(factor)

    def _judge_one(self, problems, f, q, excess):
        if not excess < np.inf:
            return False, 0.0
        vector, w = problems.loss.vector, problems.weights[:, q]
        F = f[:, q] if vector else np.concatenate([np.zeros_like(f[:, q]), f[:, q]], axis=1)
        own, rows = F.argmax(axis=1), np.arange(len(F))
        gaps = F[rows, own][:, None] - F - _BLUR * np.abs(F).max()
        gaps[rows, own] = np.inf
        # Two outputs share ‖e‖, of which one is all there is of a single one.
        distance = np.sqrt((2 if vector else 1) * excess / problems.alphas[q])
        # Intercepts, in order, are apart by no more than any two outputs of a row are.
        moves = problems.fit_intercept * (problems.n_outputs - 1 if vector else 1)
        gaps_over_moves = gaps / (distance * (self._sizes + moves * self._largest))[:, None]
        p = Softmax().probabilities(F)
        room = np.fmax(gaps_over_moves.min(axis=1), _room_alone(p, own, gaps, w, excess))
        unsure = np.flatnonzero(~(room > 1))
        if not unsure.size:
            return True, 1.0
        few = unsure.size <= _MOST
        if not few:
            unsure = unsure[np.argpartition(gaps[unsure].min(axis=1), _SOME)[:_SOME]]
        trained = np.flatnonzero(w > 0)
        others, weights = p[trained], w[trained]
        apart = distance * self._apart(unsure, trained)
        for k, row in enumerate(unsure):
            each = gaps_over_moves[row]
            for c in np.flatnonzero(~(each > 1)):
                near = apart[k] + _most_moved(others[:, [own[row], c]], weights, excess)
                each[c] = np.fmax(each[c], gaps[row, c] / near.min())
            room[row] = np.fmax(room[row], each.min())
        found = np.fmax(room[unsure], 0.0)
        # as the least of numbers that are spread evenly from 0
        factor = min(2 * float(np.median(found)) / (1 + found.size), 1.0)
        return bool(few and (found > 1).all()), factor

    def _apart(self, some, others):
        """‖φ(x) − φ(x')‖ of rows."""
        inner = self._K[some[:, None], others]
        return np.sqrt(np.maximum(self._diagonal[some, None] - 2 * inner + self._diagonal[others], 0.0))


def _room_alone(p, own, gaps, w, excess):
    """The root of what KL has to be for another label over what it is at most, by row.

    Among the p* with two equal entries in place of p₁ and p₂ the nearest has −log(1 − (√p₁ − √p₂)²).
    """
    rows = np.arange(len(p))
    first, second = p[rows, own], p[rows, gaps.argmin(axis=1)]
    least = -np.log1p(-np.square(np.sqrt(first) - np.sqrt(second)))
    return np.where((gaps.min(axis=1) > 0) & (w > 0), np.sqrt(w * least / excess), 0.0)


def _most_moved(p, w, excess):
    """What log p₁/p₂ moves by at most, by row; ∞ where more than 1 is not excluded.

    A move by Δ ≤ 1 takes KL ≥ ((p₁ p₂) / (p₁ + p₂)) Δ² / 4.
    """
    moved = np.sqrt(4 * excess * p.sum(axis=1) / (w * p.prod(axis=1)))
    return np.where(moved <= 1, moved, np.inf)


def _excess(problems, f, a, largest):
    """P less the dual's value next to a, by problem; `largest` is the root of K's largest diagonal entry."""
    loss, w = problems.loss, problems.weights
    counts = w > 0
    scale = np.divide(2 * problems.alphas, w, out=np.zeros_like(w), where=counts)[:, :, None]

    def plain(values):
        return values if loss.vector else values[:, :, 0]

    u = -scale * a
    inside = loss.feasible(problems.y, plain(u)).reshape(u.shape)
    moved = np.divide(inside - u, scale, out=np.zeros_like(u), where=scale > 0)
    if problems.fit_intercept:
        # Σ a = 0 by a move of the row that bends most, far from the dual's bounds.
        short = (a - moved).sum(axis=0)
        if loss.vector:
            short -= short.mean(axis=1, keepdims=True)
        row, each = problems.curvature(f).diagonal.min(axis=2).argmax(axis=0), np.arange(len(short))
        inside[row, each] += scale[row, each] * short
        moved[row, each] += np.where(counts[row, each, None], short, np.inf)
    inside = plain(inside)
    products = -plain(f) * inside
    parts = (
        loss.value(problems.y, plain(f)),
        loss.conjugate(problems.y, inside),
        products.sum(axis=2) if loss.vector else products,
    )
    gaps = np.where(counts, w * sum(parts), 0.0).sum(axis=0)
    rounding = 4 * _EPS * np.where(counts, w * sum(map(np.abs, parts)), 0.0).sum(axis=0)
    away = largest * np.sqrt(np.square(moved).sum(axis=2)).sum(axis=0)
    return np.maximum(gaps, 0.0) + rounding + problems.alphas * away**2

"""The problems that Newton's method solves in lockstep, and their minima in spans of a few functions.

Place on the way: ``losses`` → **newton_problem** → ``newton``.
"""

import numpy as np

from .newton_system import Curvature, by_problem, joined

__all__ = ["Problems", "minimise_in_span"]

_EPS = float(np.finfo(np.float64).eps)


class Problems:
    """q weighted problems of one loss. Arrays are (n, q, C): row, problem, output of the loss.

    Parameters
    ----------
    loss : Loss
    y : ndarray of shape (n, q)
    weights : ndarray of shape (n, q)
    alphas : ndarray of shape (q,)
    fit_intercept : bool
    n_outputs : int
        C.
    """

    def __init__(self, loss, y, weights, alphas, fit_intercept, n_outputs):
        self.loss, self.y, self.weights, self.alphas = loss, y, weights, alphas
        self.fit_intercept, self.n_outputs = fit_intercept, n_outputs

    def take(self, going):
        """Some of the problems."""
        return Problems(
            self.loss,
            self.y[:, going],
            self.weights[:, going],
            self.alphas[going],
            self.fit_intercept,
            self.n_outputs,
        )

    def costs(self, f):
        """Σ w l by problem."""
        value = self.loss.value(self.y, f if self.loss.vector else f[:, :, 0])
        # A weight of 0 is no term, whatever the loss is there.
        return np.einsum("ij,ij->j", np.where(self.weights > 0, value, 0.0), self.weights)

    def dual_values(self, a, h):
        """What P is not below, by problem, for a of the dual's box and sum, h = K a."""
        w = self.weights
        u = np.divide(
            -2 * self.alphas[:, None] * a, w[:, :, None], out=np.zeros(a.shape), where=w[:, :, None] > 0
        )
        u = self.loss.feasible(self.y, u if self.loss.vector else u[:, :, 0])  # which rounding may have left
        conjugate = self.loss.conjugate(self.y, u)
        conjugates = np.einsum("ij,ij->j", np.where(w > 0, conjugate, 0.0), w)
        return -conjugates - self.alphas * by_problem(a, h)

    def lost(self, a, diagonal):
        """What rounding of K a may leave in P, and in a dual's value, by problem.

        An entry has eps times what its terms have in the square, one rounding being as likely up as down,
        and of P the slope there is w l' = −2α a.
        """
        return 4 * _EPS * self.alphas * np.einsum("i,iqc,iqc->q", diagonal, a, a)

    def gradients(self, f):
        """Derivatives w l' in f."""
        g = self.loss.derivative(self.y, f if self.loss.vector else f[:, :, 0])
        w = self.weights[:, :, None]
        return np.where(w > 0, g if self.loss.vector else g[:, :, None], 0.0) * w

    def curvature(self, f):
        """The root of w · Hessian."""
        return Curvature(self.loss, self.y, f, np.sqrt(self.weights))

    def centre(self, h, b):
        """The b that minimises the costs at f = h + b."""
        if not self.fit_intercept:
            return b
        if b.shape[1] == 1:
            return _root(self, h, b)
        return minimise_in_span(self, None, None, None, b, h)[1]


def _root(problems, h, b):
    """One intercept for each problem, by Newton's method on the monotone slope of the costs, in brackets.

    Values of the costs would tell b to half of its digits only.
    """
    low, high, width = np.full(len(b), -np.inf), np.full(len(b), np.inf), np.ones(len(b))
    last = high.copy()
    b = b[:, 0].copy()
    total = np.maximum(problems.weights.sum(axis=0), np.finfo(float).tiny)
    for _ in range(200):
        f = h + b[:, None]
        g = problems.gradients(f)
        slope, size = g.sum(axis=(0, 2)), np.abs(g).sum(axis=(0, 2))
        D = problems.curvature(f).diagonal
        bend = np.einsum("iqc,iqc->q", D, D)
        # Each value is rounded, and so are their slopes.
        least = 4 * _EPS * size + _EPS * np.einsum("iqc,iqc,iqc->q", D, D, np.abs(f))
        going = (np.abs(slope) > least) | np.isinf(slope)
        high[going & (slope > 0)], low[going & (slope < 0)] = b[going & (slope > 0)], b[going & (slope < 0)]
        # Next to each other: there is no number between.
        going &= high - low > 2 * _EPS * np.abs(b)
        if not going.any():
            break
        bent = (bend > 1e-12 * total) & np.isfinite(slope)
        newton = b - np.divide(slope, bend, out=np.zeros_like(slope), where=bent)
        # Without curvature, or out of the bracket: the middle, or a stride that doubles.
        outside = ~((newton > low) & (newton < high)) | (newton == b)
        next_ = np.where(outside, b - np.sign(slope) * width, newton)
        width[going & outside] *= 2
        # The middle, too, where steps do not shrink: from far up, exponentials come down by 1 at a time.
        slow = np.abs(newton - b) > np.maximum(0.5 * last, 1e-8 * np.maximum(1.0, np.abs(b)))
        enclosed = (outside | slow) & np.isfinite(low) & np.isfinite(high)
        next_[enclosed] = 0.5 * (low[enclosed] + high[enclosed])
        last = np.abs(next_ - b)
        b = np.where(going, next_, b)
    return b[:, None]


def minimise_in_span(problems, A, H, t, b, base=None, rtol=0.0):
    """Minimise over functions ``Σ tₖ hₖ + b``, hₖ = K aₖ, by Newton's method with halved steps.

    Parameters
    ----------
    problems : Problems
    A, H : list of ndarray of shape (n, q, C), or None
        Dual coefficients and values of m functions.
    t : ndarray of shape (q, m), or None
        Where to begin.
    b : ndarray of shape (q, C)
        Likewise; kept without an intercept.
    base : ndarray of shape (n, q, C) or None
        Values that are added, without a penalty.
    rtol : float
        Where above 0, a fall of P by less than this part of it is not worth another step.

    Returns
    -------
    t : ndarray of shape (q, m), or None
    b : ndarray of shape (q, C)
    """
    span = _Span(problems, A, H, base, b.shape[1])
    m = span.n_functions
    x = np.concatenate([np.zeros((len(b), 0)) if t is None else t, b], axis=1)
    value = span.value(x)
    rounding = _EPS * np.sqrt(len(problems.y))  # of a sum over the rows
    for _ in range(60):
        step, going = span.step(x)
        if not going.any():
            break
        length = going.astype(float)
        for _ in range(50):
            candidate = x - length[:, None] * step
            reached = span.value(candidate)
            worse = ~(reached <= value + 4 * rounding * np.abs(value)) & (length > 0)
            if not worse.any():
                break
            length[worse] = np.where(length[worse] > 1e-12, length[worse] / 2, 0.0)
        moved = np.abs(candidate - x).max(axis=1) > 2 * _EPS * (1 + np.abs(x).max(axis=1))
        if rtol > 0:
            moved &= value - reached > rtol * np.abs(reached)
        x, value = candidate, reached
        if not moved.any():
            break
    return (None if t is None else x[:, :m]), (x[:, m:] if problems.fit_intercept else b)


class _Span:
    """P and its Newton steps in the coordinates x = (t, b)."""

    def __init__(self, problems, A, H, base, n_outputs):
        self.problems, self.base = problems, base
        self.H = [] if H is None else H
        self.n_functions, self.n_outputs = len(self.H), n_outputs
        self.free = self.n_functions + (n_outputs if problems.fit_intercept else 0)
        if self.H:
            inner = np.stack([[by_problem(a, h) for h in H] for a in A])
            inner = 0.5 * (inner + inner.transpose(1, 0, 2))
            self.penalty = problems.alphas[:, None, None] * inner.transpose(2, 0, 1)

    def _values(self, x):
        parts = [] if self.base is None else [self.base]
        parts += [h * x[:, k, None] for k, h in enumerate(self.H)]
        f = parts[0] + x[:, self.n_functions :]
        for part in parts[1:]:
            f += part
        return f

    def value(self, x):
        value = self.problems.costs(self._values(x))
        if self.H:
            t = x[:, : self.n_functions]
            value = value + np.einsum("qj,qjk,qk->q", t, self.penalty, t)
        return value

    def step(self, x):
        """The Newton step, to be taken off x, and which problems are not at their minima."""
        m, free = self.n_functions, self.free
        f = self._values(x)
        g = self.problems.gradients(f)
        slope = np.zeros_like(x)
        size = np.zeros_like(x)
        for k, h in enumerate(self.H):
            slope[:, k], size[:, k] = by_problem(h, g), by_problem(np.abs(h), np.abs(g))
        slope[:, m:], size[:, m:] = g.sum(axis=0), np.abs(g).sum(axis=0)
        if m:
            pull = 2 * np.einsum("qjk,qk->qj", self.penalty, x[:, :m])
            slope[:, :m] += pull
            size[:, :m] += np.abs(pull)
        step = np.zeros_like(x)
        rounding = _EPS * np.sqrt(len(f))
        going = (np.abs(slope[:, :free]) > 4 * rounding * size[:, :free]).any(axis=1)
        if going.any():
            step[:, :free] = np.einsum("qjk,qk->qj", self._inverse(f), slope[:, :free])
        return step, going

    def _inverse(self, f):
        curvature, m = self.problems.curvature(f), self.n_functions
        n, q, n_outputs = curvature.shape
        images = np.empty((q, self.free, n_outputs * n))
        for k, h in enumerate(self.H):
            images[:, k] = joined(curvature.adjoint(h))
        for k, unit in enumerate(np.eye(n_outputs)[: self.free - m], m):
            images[:, k] = joined(curvature.constants(unit))
        bend = images @ images.transpose(0, 2, 1)
        if m:
            bend[:, :m, :m] += 2 * self.penalty
        # Where no row bends (Huber's tails) the step is one of gradient descent, whose length is halved or
        # repeated as need be.
        total = self.problems.weights.sum(axis=0)
        flat = np.abs(bend).max(axis=(1, 2)) <= 1e-12 * total
        bend[flat] = np.eye(self.free) * np.maximum(total[flat], np.finfo(float).tiny)[:, None, None]
        scale = np.sqrt(np.maximum(np.einsum("qjj->qj", bend), np.finfo(float).tiny))
        scale = 1 / np.where(scale > 1e-150, scale, 1.0)
        inverse = np.linalg.pinv(bend * scale[:, :, None] * scale[:, None, :], rcond=1e-13, hermitian=True)
        return inverse * scale[:, :, None] * scale[:, None, :]

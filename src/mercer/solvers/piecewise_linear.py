"""Costs of two slopes and a flat piece between them, by their dual: quantiles, absolute errors, ε-tubes.

Place on the way: ``dual`` → **piecewise_linear** → ``estimators``.

Such a cost has the conjugate uy + ε|u| on an interval, so that the dual of Σ wᵢ l(yᵢ, b + (Ka)ᵢ) + α aᵀKa in
a = −wu/(2α) is the problem that `dual` solves, in a itself:

    minimise ½aᵀKa − yᵀa + ε Σ|aᵢ|   over   −sw/(2α) ≥ a ≥ −tw/(2α)   with Σa = 0,

s < 0 < t being the slopes.
"""

from dataclasses import dataclass

import numpy as np

from .._arrays import check_output
from ..kernels.precomputed import Precomputed
from .dual import STATUS, DualJob, DualSamples
from .outcome import not_finite

__all__ = ["PiecewiseLinearOutcome", "best_intercept", "piecewise_linear"]

#: The gap in a KKT condition that the first round goes to, over the targets' spread.
_FIRST = 1e-3
_LEAST = 1e-15
_ROUNDS = 12


@dataclass(frozen=True)
class PiecewiseLinearOutcome:
    """What the solver reached.

    Attributes
    ----------
    a : ndarray of shape (n,)
        Dual coefficients.
    b : float
        The intercept; 0 without one.
    f : ndarray of shape (n,)
        b + Ka.
    objective : float
        Σ w l + α aᵀKa.
    gap : float
        How far it is from its minimum at most, by the dual.
    n_iter : int
        Pairs of variables that were changed.
    converged : bool
    rows : str
        The precision of the kernel's rows.
    """

    a: np.ndarray
    b: float
    f: np.ndarray
    objective: float
    gap: float
    n_iter: int
    converged: bool
    rows: str


def best_intercept(loss, residual, weights):
    """The b that minimises Σ wᵢ l(rᵢ, b): a quantile of the kinks.

    Parameters
    ----------
    loss : Loss
        With `slopes` and `tube`.
    residual : ndarray of shape (n,)
        r = y − Ka.
    weights : ndarray of shape (n,)
        Positive.

    Returns
    -------
    float
        The middle, where an interval does.
    """
    low, high = loss.slopes
    kinks = np.concatenate([residual - loss.tube, residual + loss.tube])
    rises = np.concatenate([-low * weights, high * weights])
    order = np.argsort(kinks, kind="stable")
    kinks = kinks[order]
    total = -low * weights.sum()
    slope = np.cumsum(rises[order]) - total
    blur = 1e-13 * max(total, high * weights.sum()) + 1e-300
    first = int(np.argmax(slope >= -blur))
    last = first
    if slope[first] <= blur:
        last = int(np.argmax(slope > blur)) if slope[-1] > blur else first
    return float(0.5 * kinks[first] + 0.5 * kinks[last])


def _with_free(kernel, X, n, n_threads):
    """The kernel matrix with two samples more that are orthogonal to all: they free Σa from being 0."""
    check_output(n + 2, n + 2, np.float64)
    matrix = np.zeros((n + 2, n + 2))
    matrix[:n, :n] = X if type(kernel) is Precomputed else kernel(X, n_threads=n_threads)
    return matrix


def piecewise_linear(
    kernel,
    X,
    loss,
    y,
    weights,
    alpha,
    *,
    fit_intercept=True,
    tol=1e-8,
    max_iter=-1,
    start=None,
    n_threads=None,
    on_step=None,
):
    """Minimise Σ wᵢ l(yᵢ, b + (Ka)ᵢ) + α aᵀKa over a and b for a cost of two slopes.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray, csr_array or sequence
        n samples as the kernel's check returns them; for a precomputed kernel the square matrix.
    loss : Loss
        With `slopes` and `tube`.
    y : ndarray of shape (n,)
    weights : ndarray of shape (n,) or None
        Positive.
    alpha : float
        Positive.
    fit_intercept : bool
        Whether b is free. Without it the kernel matrix is formed.
    tol : float
        The duality gap over the objective at which to stop.
    max_iter : int
        Iterations at most; −1 is as `DualSamples.solve` has it.
    start : ndarray of shape (n,) or None
        a of an earlier fit; it is scaled into the box.
    n_threads : int or None
        Changes nothing in the result.
    on_step : callable or None
        ``on_step(n_done, gap)``, called now and then.

    Returns
    -------
    PiecewiseLinearOutcome

    Raises
    ------
    ValueError
        If the kernel's values leave the floating-point range.
    """
    n = len(y)
    weights = np.ones(n) if weights is None else weights
    problem = _Box(loss, y, weights, alpha, fit_intercept)
    if fit_intercept:
        samples = DualSamples(kernel, X, [np.arange(n)], n_threads=n_threads)
    else:
        matrix = _with_free(kernel, X, n, n_threads)
        samples = DualSamples(Precomputed(), matrix, [np.arange(n + 2)], n_threads=n_threads)
    beta = None if start is None else problem.scaled(start)
    kkt, n_iter, best = _FIRST * problem.spread, 0, None
    for count in range(_ROUNDS):
        left = -1 if max_iter < 0 else max(max_iter - n_iter, 1)
        outcome = samples.solve(
            [DualJob((0, 1), epsilon=float(loss.tube))],
            *problem.box,
            tol=kkt,
            max_iter=left,
            start=None if beta is None else [beta],
            fields=True,
            on_step=on_step,
            # What float32 rows leave out is too much for the gap.
            dtype=None if count == 0 else np.float64,
        )
        beta, n_iter = outcome.beta[0], n_iter + int(outcome.n_iter[0])
        status = STATUS[outcome.status[0]]
        if status == "not finite" or not np.isfinite(beta).all():
            raise not_finite(_first_bad(kernel, X, n))
        found = problem.judged(beta, outcome.field[0], tol, n_iter, outcome.rows)
        exact = "float32" not in found.rows
        if best is None or found.gap <= best.gap or "float32" in best.rows:
            best = found
        done = found.converged and exact
        if done or status == "capped" or kkt <= _LEAST * problem.spread or (status == "stalled" and exact):
            break
        # The gap falls about as the violations do; not by more than can be told beforehand.
        if not found.converged:
            kkt *= np.clip(0.5 * tol * found.objective / found.gap, 1e-3, 0.2)
    return best


class _Box:
    """The dual's box, and what a point of it is worth."""

    def __init__(self, loss, y, weights, alpha, fit_intercept):
        self.loss, self.y, self.weights = loss, y, weights
        self.alpha, self.fit_intercept = float(alpha), fit_intercept
        low, high = loss.slopes
        # May overflow where alpha underflows: a bound of infinity is none.
        with np.errstate(over="ignore"):
            C = np.minimum(weights / (2 * self.alpha), 1e300)
        self.low, self.high = -high * C, -low * C
        middle = np.median(y) if fit_intercept else 0.0
        self.spread = float(np.max(np.abs(y - middle))) or 1.0
        self.box = (y[None], self.low[None], self.high[None])
        if not fit_intercept:
            most = 2 * max(self.high.sum(), -self.low.sum())
            # One is never below 0, the other never above: c cancels what ε|a| would have them pay.
            more = ([loss.tube, -loss.tube], [0.0, -most], [most, 0.0])
            self.box = tuple(np.append(part, ends)[None] for part, ends in zip(self.box, more, strict=True))

    def scaled(self, a):
        """A feasible point along a."""
        bound = np.where(a > 0, self.high, -self.low)
        size = np.abs(a)
        share = np.divide(bound, size, out=np.ones_like(size), where=size > bound).min()
        a = np.clip(share * a, self.low, self.high)
        total = a.sum()
        return a if self.fit_intercept else np.append(a, [max(-total, 0.0), min(-total, 0.0)])

    def judged(self, beta, field, tol, n_iter, rows):
        a = beta[: len(self.y)]
        h = self.y - field[: len(self.y)]
        b = best_intercept(self.loss, self.y - h, self.weights) if self.fit_intercept else 0.0
        f = h + b
        squared = a @ h
        costs = self.weights @ self.loss.value(self.y, f)
        objective = costs + self.alpha * squared
        # P − D by sample, of which Fenchel's inequality leaves none negative; Σ a b is 0.
        terms = self.loss.value(self.y, f) * self.weights
        terms += 2 * self.alpha * (a * (f - self.y) + self.loss.tube * np.abs(a))
        gap = max(float(terms.sum()), 0.0)
        return PiecewiseLinearOutcome(
            a=a.copy(),
            b=b,
            f=f,
            objective=float(objective),
            gap=gap,
            n_iter=n_iter,
            converged=gap <= tol * objective,
            rows=rows,
        )


def _first_bad(kernel, X, n):
    """The first row of the kernel matrix with an entry that is not finite."""
    for i in range(n):
        row = X[i] if type(kernel) is Precomputed else kernel(X[i : i + 1], X)
        if not np.isfinite(row).all():
            return i
    return 0

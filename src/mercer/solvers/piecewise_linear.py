"""Costs of two slopes and a flat piece between them, by their dual: quantiles, absolute errors, ε-tubes.

Place on the way: ``dual`` → **piecewise_linear** → ``estimators``.

Such a cost has the conjugate uy + ε|u| on an interval, so that the dual of Σ wᵢ l(yᵢ, b + (Ka)ᵢ) + α aᵀKa in
a = −wu/(2α) is the problem that `dual` solves, in a itself:

    minimise ½aᵀKa − yᵀa + ε Σ|aᵢ|   over   −sw/(2α) ≥ a ≥ −tw/(2α)   with Σa = 0,

s < 0 < t being the slopes.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.linalg import lapack

from .._arrays import flush_small
from .._memory import check_output
from .._threads import n_threads as count_threads
from ..gram import Gram
from ..kernels.precomputed import Precomputed
from ..kernels.prepared import take_rows
from .dual import DualSamples
from .dual_layout import STATUS, dual_jobs
from .faces import newton_on_faces
from .outcome import indefinite, not_finite

__all__ = ["PiecewiseLinearOutcome", "best_intercept", "piecewise_linear"]

#: The gap in a KKT condition that the first round goes to, over the targets' spread.
_FIRST = 1e-3
_LEAST = 1e-15
#: Iterations of a round, by sample and at least: then Newton's steps may do better.
_ROUND, _LEAST_ROUND = 50, 20_000
#: Numbers in the columns that Newton's steps after a round may take, and cubes of their variables.
_POLISH_UP_TO, _POLISH_WORK = 2e7, 1e9
#: Fewer variables than these take a step as long.
_LEAST_FREE = 100
#: Rounds over faces at most, and what they may cost, in pairwise steps of those that went before.
_ROUNDS, _FACES_FOR = 500, 4
#: What such a step adds to the diagonal, of its sum, and how often what that put off is put right.
_RIDGE, _REFINEMENTS = 1e-14, 3
#: Rounds in a row in which the gap does not fall by a tenth, until it is taken for rounding's.
_IDLE = 25


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
    relative_gap : float
        As `tol` takes it.
    indefinite : bool
        Whether a shows that K is not positive semidefinite: the gap then bounds nothing.
    """

    a: np.ndarray
    b: float
    f: np.ndarray
    objective: float
    gap: float
    n_iter: int
    converged: bool
    rows: str
    relative_gap: float
    indefinite: bool = False


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


def _with_free(matrix):
    """A kernel matrix with two samples more that are orthogonal to all: they free Σa from being 0."""
    n = len(matrix)
    check_output(n + 2, n + 2, np.float64)
    out = np.zeros((n + 2, n + 2))
    out[:n, :n] = matrix
    return out


class _Columns:
    """Columns of the kernel matrix, and products with them; rows for `newton_on_faces`."""

    dtype = np.dtype(np.float64)

    def __init__(self, kernel, X, n_threads):
        self.kernel, self.X, self.n_threads = kernel, X, n_threads

    def _gram(self, index):
        return Gram(self.kernel, self.X, take_rows(self.X, index), n_threads=self.n_threads)

    def __call__(self, index):
        """K[:, index]."""
        if type(self.kernel) is Precomputed:
            return self.X[:, index]
        return self._gram(index).formed()

    def diagonal(self):
        """Of K."""
        if type(self.kernel) is Precomputed:
            return self.X.diagonal()
        return Gram(self.kernel, self.X, n_threads=self.n_threads).diag()

    def dot(self, a):
        """K a."""
        index = np.flatnonzero(a)
        return self.product(index, a[index]) if index.size else np.zeros(len(a))

    def square(self, index):
        """K among some rows, in Fortran order."""
        if type(self.kernel) is Precomputed:
            return np.asfortranarray(self.X[np.ix_(index, index)])
        return Gram(self.kernel, take_rows(self.X, index), n_threads=self.n_threads).formed().T

    def product(self, index, change):
        """K times a vector that is 0 but for `change` at some rows."""
        if type(self.kernel) is Precomputed:
            return self.X[:, index] @ change
        return self._gram(index) @ change


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
        The duality gap at which to stop, over the objective of a = 0.
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
        if samples.program.block_leaves:  # a user's function, or a given matrix: not to be called again
            kernel, X = Precomputed(), samples.matrix()
    else:
        X = X if type(kernel) is Precomputed else kernel(X, n_threads=n_threads)
        kernel = Precomputed()
        samples = DualSamples(kernel, _with_free(X), [np.arange(n + 2)], n_threads=n_threads)
    columns = _Columns(kernel, X, n_threads)
    beta = None if start is None else problem.whole(problem.scaled(start))
    kkt, n_iter, best = _FIRST * problem.spread, 0, None
    idle, mark = 0, np.inf
    most = max(10_000_000, 100 * n) if max_iter < 0 else max_iter
    while True:
        outcome = samples.solve(
            dual_jobs((0, 1), epsilon=float(loss.tube)),
            *problem.box,
            tol=kkt,
            max_iter=min(most - n_iter, max(_ROUND * n, _LEAST_ROUND)),
            # To ask how much memory is free takes as long as a small problem.
            cache_bytes=2**26 if n <= 1000 else None,
            start=beta,
            on_step=on_step,
        )
        n_iter, status = n_iter + int(outcome.n_iter[0]), STATUS[outcome.status[0]]
        a = outcome.betas[:n]
        if status == "not finite" or not np.isfinite(a).all():
            raise not_finite(_first_bad(columns, n))
        check = None if on_step is None else partial(on_step, 0, float(outcome.gap[0]))
        a, h = _over_faces(problem, columns, a, columns.dot(a), tol, n_iter, check)
        a, h = _polished(problem, columns, a, h)
        found = problem.judged(a, h, tol, n_iter, outcome.rows)
        best = found if best is None or found.gap < best.gap else best
        idle, mark = (0, best.gap) if best.gap < 0.9 * mark else (idle + 1, mark)
        if found.converged or n_iter >= most or kkt <= _LEAST * problem.spread or idle == _IDLE:
            break
        beta = problem.whole(a)
        if status == "capped":
            continue
        # The gap falls about as the violations do; not by more than can be told beforehand.
        kkt *= np.clip(0.5 * tol * problem.size / found.gap, 1e-3, 0.2)
    if on_step is not None:
        on_step(1, best.gap)
    shown = indefinite(best.a[:, None], (best.f - best.b)[:, None], columns.diagonal())
    return replace(best, n_iter=n_iter, converged=best.converged and not shown, indefinite=shown)


def _over_faces(problem, columns, a, h, tol, spent, check):
    """Steps over faces towards the optimum where pairwise steps would crawl, after so many: a, and Ka.

    They may cost as much as those did; `_polished` puts right what rounding of their factors leaves.
    """
    if not 0 < len(problem.free(a)) ** 2 <= _POLISH_UP_TO:
        return a, h
    new, F = np.clip(a, problem.low, problem.high), problem.y - h
    most = 2 * problem.alpha * np.maximum(problem.high, -problem.low).sum()
    newton_on_faces(
        columns,
        F,
        new,
        problem.low,
        problem.high,
        tol * problem.size / most,  # by so much in each KKT condition the gap is small enough
        rounds=_ROUNDS,
        worth=_FACES_FOR * spent,
        check=check,
        sums=None if problem.fit_intercept else np.empty((0, len(a))),
        epsilon=float(problem.loss.tube),
        n_threads=count_threads(columns.n_threads),
    )
    new = np.clip(new, problem.low, problem.high)
    return new, columns.dot(new)


def _polished(problem, columns, a, h):
    """Newton's steps among the coefficients that are inside of their box, up to a whole one: a, and Ka.

    The problem is quadratic there, so that the first whole step ends at rounding. One that meets a bound
    leaves a coefficient less. Where fewer would do (K is of low rank) steps go down along what K ignores.
    """
    free, left = problem.free(a), _POLISH_WORK
    if not 0 < len(free) * len(a) <= _POLISH_UP_TO:
        return a, h
    a, b, K = a.copy(), problem.intercept(h), columns(free)
    while free.size and left > 0:
        left -= max(len(free), _LEAST_FREE) ** 3
        rate = (problem.y - h - b - problem.loss.tube * np.sign(a))[free]
        step, shift, is_solved = _face_step(K[free], rate, -a.sum() if problem.fit_intercept else None)
        if step is None:
            break
        moved, share = problem.moved(a[free], step, free)
        if share == 1 and not is_solved:
            break
        h = h + K @ (moved - a[free])
        a[free], b = moved, b + share * shift
        if share == 1:
            break
        kept = np.isin(free, problem.free(a))
        free, K = free[kept], K[:, kept]
    return a, h


def _face_step(K, rate, total):
    """The d and β of ``K d + β = rate``, Σd = total (both without, if None), and whether they are that.

    Of equal rows K is singular: a little is added to its diagonal, so that d is the shortest but for
    rounding, and taken off again by steps of refinement. d is None where it is not finite.
    """
    m = len(K)
    size = m + (total is not None)
    A, right = np.zeros((size, size)), np.zeros(size)
    A[:m, :m], right[:m] = K, rate
    if total is not None:
        A[m, :m] = A[:m, m] = 1.0
        right[m] = total
    definite = flush_small(A.copy(order="F"), float(np.max(np.abs(K), initial=0.0)))
    np.einsum("ii->i", definite)[:m] += _RIDGE * np.trace(K)
    factor, pivots, info = lapack.dsytrf(definite, lower=1, overwrite_a=1)
    if info:
        return None, 0.0, False
    solution, residual = np.zeros(size), right
    for _ in range(1 + _REFINEMENTS):
        solution = solution + lapack.dsytrs(factor, pivots, residual[:, None], lower=1)[0][:, 0]
        residual = right - A @ solution
    if not np.isfinite(solution).all():
        return None, 0.0, False
    # A step that leaves no less than it found is one of rounding.
    before = np.max(np.abs(rate))
    is_solved = np.max(np.abs(residual[:m])) <= 0.1 * before + 1e-13 * (before + 1e-300)
    return solution[:m], float(solution[m]) if size > m else 0.0, is_solved


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
        nothing = self.intercept(np.zeros(len(y)))
        self.size = float(weights @ loss.value(y, np.full(len(y), nothing)))
        middle = np.median(y) if fit_intercept else 0.0
        self.spread = float(np.max(np.abs(y - middle))) or 1.0
        self.box = (y[None], self.low[None], self.high[None])
        if not fit_intercept:
            most = 2 * max(self.high.sum(), -self.low.sum())
            # One is never below 0, the other never above: c cancels what ε|a| would have them pay.
            more = ([loss.tube, -loss.tube], [0.0, -most], [most, 0.0])
            self.box = tuple(np.append(part, ends)[None] for part, ends in zip(self.box, more, strict=True))

    def scaled(self, a):
        """A feasible point along a; with an intercept the heavier sign becomes as light as the other."""
        up, down = a[a > 0].sum(), -a[a < 0].sum()
        # A sum that is rounding stays: scaling for it would take coefficients off their bounds.
        if self.fit_intercept and abs(up - down) > 1e-12 * max(up, down):
            a = np.where(a > 0, a * (min(up, down) / (up or 1.0)), a * (min(up, down) / (down or 1.0)))
        bound = np.where(a > 0, self.high, -self.low)
        size = np.abs(a)
        share = np.divide(bound, size, out=np.ones_like(size), where=size > bound).min()
        return np.clip(share * a, self.low, self.high)

    def whole(self, a):
        """All variables that the solver knows, for these coefficients."""
        total = a.sum()
        return a if self.fit_intercept else np.append(a, [max(-total, 0.0), min(-total, 0.0)])

    def free(self, a):
        """The coefficients inside of their interval."""
        edge = 1e-12 * (self.high - self.low)
        inside = (a > self.low + edge) & (a < self.high - edge)
        return np.flatnonzero(inside & (np.abs(a) > edge) if self.loss.tube else inside)

    def moved(self, a, step, index):
        """Along a step up to the first bound; and how much of it that was."""
        low, high = self.low[index], self.high[index]
        if self.loss.tube:
            low, high = np.where(a > 0, 0.0, low), np.where(a > 0, high, 0.0)
        room = np.where(step > 0, high, low) - a
        with np.errstate(over="ignore"):
            shares = np.divide(room, step, out=np.full(len(a), np.inf), where=step != 0)
        share = min(1.0, float(shares.min()))
        moved = np.clip(a + share * step, low, high)
        met = shares <= share
        moved[met] = (a + room)[met]
        return moved, share

    def intercept(self, h):
        return best_intercept(self.loss, self.y - h, self.weights) if self.fit_intercept else 0.0

    def judged(self, a, h, tol, n_iter, rows):
        b = self.intercept(h)
        f = h + b
        costs = self.weights * self.loss.value(self.y, f)
        objective = float(costs.sum() + self.alpha * (a @ h))
        # P − D by sample, of which Fenchel's inequality leaves none negative; Σ a b is 0.
        gaps = costs + 2 * self.alpha * (a * (f - self.y) + self.loss.tube * np.abs(a))
        gap = max(float(gaps.sum()), 0.0)
        relative = gap / (self.size or 1.0)
        return PiecewiseLinearOutcome(a, b, f, objective, gap, n_iter, relative <= tol, rows, relative)


def _first_bad(columns, n):
    """The first row of the kernel matrix with an entry that is not finite."""
    for i in range(n):
        if not np.isfinite(columns(np.array([i]))).all():
            return i
    return 0

"""The multiclass support vector machine of Crammer and Singer: one problem for all classes, no intercept.

Place on the way: ``gram``, ``crammer_singer_block`` → **crammer_singer** → ``estimators``.

Per sample the variables are coupled by a sum, across samples by the kernel. Blocks of samples are solved with
the rest held (`crammer_singer_block`); here are their choice, the scores of all samples, and the rows of K.
"""

from dataclasses import dataclass

import numpy as np

from .._memory import available_memory
from .._threads import one_blas_thread
from .crammer_singer_block import Block, free_variables, violation_of
from .outcome import not_finite, warn_unconverged

__all__ = ["CrammerSingerOutcome", "crammer_singer"]

# Samples of a block: at least so many, twice the free ones if that is more, at most the second. On 5000 rows
# of 10 classes at C = 1, 256, 512 and 1024 as the first took 3.0, 2.8 and 5.6 s on a machine with other work.
_BLOCK, _BLOCK_MOST = 512, 2048
# Entries of a block's rows, and of the tile of rows that one update of the scores gathers.
_BLOCK_ENTRIES, _TILE = 2**25, 256
# A block is solved until its violation is this part of what it was: 0.1 took 1.9 times as long, 0.8 1.7.
_FRACTION = 0.5
# Blocks without a new least violation and without a decrease of the objective beyond rounding.
_PATIENCE = 20


@dataclass(frozen=True)
class CrammerSingerOutcome:
    """What the solver reached.

    Attributes
    ----------
    coef : ndarray of shape (n, k)
        A. Rows sum to zero; that of a removed sample is zero, and so is the column of an absent class.
    decision : ndarray of shape (n, k)
        K A, also for removed samples.
    present : ndarray of bool of shape (k,)
        Classes with a sample of positive bound. The others take no part, not even as rivals: leave their
        columns out of the argmax.
    objective : float
        ½ Σₘ A·ₘᵀ K A·ₘ + Σ Aᵢₘ eᵢₘ, which is ≤ 0.
    primal_objective : float
        ½ Σₘ |wₘ|² + Σ Cᵢ ξᵢ with ξᵢ = maxₘ(fₘ + eᵢₘ) − f_yᵢ. Where Cᵢ is infinite, f is first scaled up so
        that these ξᵢ are zero.
    gap : float
        The largest violation of the KKT conditions by a sample.
    duality_gap : float
        ``primal_objective + objective``, zero at the optimum.
    n_iter : int
        Blocks.
    n_rows : int
        Rows of the kernel matrix that were asked for.
    converged : bool
        Whether ``gap < tol``.
    capped : bool
        Whether it is not, since `max_iter` was reached.
    """

    coef: np.ndarray
    decision: np.ndarray
    present: np.ndarray
    objective: float
    primal_objective: float
    gap: float
    duality_gap: float
    n_iter: int
    n_rows: int
    converged: bool
    capped: bool


def crammer_singer(
    rows,
    diagonal,
    labels,
    n_classes,
    upper,
    *,
    tol=1e-3,
    max_iter=-1,
    start=None,
    on_step=None,
    warn=True,
):
    """Train all classes of a support vector machine at once.

    Over A of shape (n, k), with e_im = 1 − [m = yᵢ],

        minimise ½ Σₘ A·ₘᵀ K A·ₘ + Σ_im A_im e_im   over   Σₘ A_im = 0,  A_im ≤ Cᵢ [m = yᵢ];

    the decision is fₘ(x) = Σᵢ A_im k(x, xᵢ), the prediction its argmax. With g = K A + e, sample i violates
    the optimality conditions by maxₘ g_im − min {g_im : A_im < Cᵢ [m = yᵢ]}.

    Parameters
    ----------
    rows : callable
        ``rows(index) -> K[index]`` of shape (len(index), n), float32 or float64; `Gram.rows` is one, with
        threads of its own, where the rest runs on one. K is symmetric; where it is not positive semidefinite,
        one gets a point that meets the conditions.
    diagonal : ndarray of shape (n,)
        That of K.
    labels : ndarray of int of shape (n,)
        yᵢ, from 0 to ``n_classes − 1``.
    n_classes : int
        k.
    upper : ndarray of shape (n,)
        Cᵢ. Zero removes a sample, infinity lets it violate no margin.
    tol : float
        The violation to be reached.
    max_iter : int
        Blocks at most; −1 is 10000, or n if that is more.
    start : ndarray of shape (n, k) or None
        A to start from, made feasible first; None is 0.
    on_step : callable or None
        ``on_step(n_iter, gap)`` before each block.
    warn : bool
        Whether to warn; else the caller does.

    Returns
    -------
    CrammerSingerOutcome

    Raises
    ------
    ValueError
        Labels or bounds out of range, fewer than two classes with samples, a row of K that is not finite, or
        infinite bounds on samples that cannot be separated.

    Warns
    -----
    ConvergenceWarning
        Short of `tol`, where `max_iter` is reached or rounding leaves no progress.

    References
    ----------
    Crammer & Singer, "On the algorithmic implementation of multiclass kernel-based vector machines", JMLR 2
    (2001). Keerthi, Sundararajan, Chang, Hsieh & Lin, "A sequential dual method for large scale multi-class
    linear SVMs", KDD 2008. Moré & Toraldo, "On the solution of large quadratic programming problems with
    bound constraints", SIAM J. Optim. 1 (1991), for the change between faces and Newton's steps.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> K = np.outer(x, x)
    >>> out = crammer_singer(lambda index: K[index], np.diag(K), np.array([0, 0, 1, 1]), 2, np.ones(4))
    >>> out.decision.argmax(axis=1)
    array([0, 0, 1, 1])
    """
    diagonal, labels, upper = _checked(diagonal, labels, n_classes, upper)
    present = np.zeros(n_classes, bool)
    present[labels[upper > 0]] = True
    if present.sum() < 2:
        raise ValueError(f"at least 2 classes must have samples of positive weight, got {present.sum()}")
    if start is not None and np.shape(start) != (len(labels), n_classes):
        raise ValueError(f"start must have shape {(len(labels), n_classes)}, got {np.shape(start)}")
    y = np.where(upper > 0, np.cumsum(present)[labels] - 1, 0)
    if max_iter < 0:
        max_iter = max(10_000, len(labels))
    with one_blas_thread():
        solver = _Solver(rows, diagonal, y, int(present.sum()), upper)
        if start is not None:
            solver.begin(np.asarray(start, dtype=np.float64)[:, present])
        gap, n_iter = solver.run(tol, max_iter, on_step)
    converged = bool(gap < tol)
    capped = not converged and n_iter >= max_iter
    if warn and not converged:
        remedy = "raise max_iter or tol, scale the samples, or lower C" if capped else "raise tol"
        warn_unconverged("Crammer and Singer's solver", gap, tol, n_iter, remedy)
    coef, decision = np.zeros((2, len(y), n_classes))
    coef[:, present], decision[:, present] = solver.A, solver.F
    objective, primal, between = solver.objectives()
    return CrammerSingerOutcome(
        coef, decision, present, objective, primal, gap, between, n_iter, solver.K.n_rows, converged, capped
    )


def _checked(diagonal, labels, n_classes, upper):
    diagonal, upper = (np.asarray(a, dtype=np.float64) for a in (diagonal, upper))
    labels = np.asarray(labels)
    n = len(labels)
    if diagonal.shape != (n,) or upper.shape != (n,):
        raise ValueError(f"diagonal and upper must have shape ({n},), got {diagonal.shape} and {upper.shape}")
    if labels.dtype.kind not in "iu" or (n and not 0 <= labels.min() <= labels.max() < n_classes):
        raise ValueError(f"labels must be integers from 0 to {n_classes - 1}; encode the classes first")
    if not (upper >= 0).all():
        i = int(np.argmin(upper >= 0))
        raise ValueError(f"upper must be 0 or more (C times a weight), got {upper[i]} at row {i}")
    if not np.isfinite(diagonal).all():
        raise not_finite(int(np.argmin(np.isfinite(diagonal))))
    return diagonal, labels, upper


class _Rows:
    """Rows of K in float64, kept as far as half of the free memory goes; the least recently used go first."""

    def __init__(self, rows, n):
        self._rows, self.n_rows, self.single = rows, 0, False
        capacity = int(min(n, max(_BLOCK, 0.5 * available_memory() / (8 * n))))
        self.block = min(capacity, _BLOCK_MOST, max(64, _BLOCK_ENTRIES // n))
        self.kept = np.empty((capacity, n))
        self._slot, self._owner = np.full(n, -1), np.full(capacity, -1)
        self._used, self._clock = np.zeros(capacity, np.int64), 0

    def slots(self, index):
        """Where the rows of up to ``block`` samples are kept."""
        self._clock += 1
        self._used[self._slot[index[self._slot[index] >= 0]]] = self._clock
        missing = index[self._slot[index] < 0]
        if len(missing):
            got = np.asarray(self._rows(missing))
            finite = np.isfinite(got).all(axis=1)
            if not finite.all():
                raise not_finite(int(missing[np.argmin(finite)]))
            self.n_rows, self.single = self.n_rows + len(missing), got.dtype == np.float32
            free = np.sort(np.argsort(self._used, kind="stable")[: len(missing)])
            evicted = self._owner[free]
            self._slot[evicted[evicted >= 0]] = -1
            self._slot[missing], self._owner[free], self._used[free] = free, missing, self._clock
            self.kept[free] = got
        return self._slot[index]


class _Solver:
    """Scores and variables of all samples, and the loop over blocks."""

    def __init__(self, rows, diagonal, y, k, cap):
        n = len(y)
        self.K, self.y, self.cap = _Rows(rows, n), y, cap
        self.scale = float(np.max(np.abs(diagonal))) or 1.0
        # A sample without curvature (or with a negative one) takes long steps, as LIBSVM has it.
        self.d = np.maximum(diagonal, 1e-12 * self.scale)
        self.A, self.e = np.zeros((n, k)), np.ones((n, k))
        self.e[np.arange(n), y] = 0.0
        self.g = self.e.copy()
        self.hard = np.isinf(cap)

    @property
    def F(self):
        return self.g - self.e

    def begin(self, A):
        """Start from A, made feasible: rivals ≤ 0, the own class what is left, rows shrunk to their bound."""
        A, each = np.minimum(A, 0.0), np.arange(len(A))
        A[each, self.y] = 0.0
        total = -A.sum(axis=1)
        shrink = np.minimum(1.0, np.divide(self.cap, total, out=np.ones_like(total), where=total > 0))
        A *= shrink[:, None]
        # a sum that rounding alone keeps off the bound is at the bound
        A[each, self.y] = np.where(total >= self.cap * (1 - 1e-14), self.cap, -A.sum(axis=1))
        support = np.flatnonzero(A.any(axis=1))
        for first in range(0, len(support), self.K.block):
            block = support[first : first + self.K.block]
            self._move(block, self.K.slots(block), A[block])

    def run(self, tol, max_iter, on_step):
        """Blocks until the violation is below `tol`; it, and how many there were."""
        damping, best, idle, n_iter = 1e-8, np.inf, 0, 0
        while True:
            violation = violation_of(self.g, self.A, self.cap, self.y)
            gap = float(violation.max())
            if on_step is not None:
                on_step(n_iter, gap)
            if gap < tol or n_iter >= max_iter or idle >= _PATIENCE:
                return gap, n_iter
            index = self._working_set(violation, tol)
            slots = self.K.slots(index)
            block = Block(self.K.kept[np.ix_(slots, index)], *(a[index] for a in self._state()))
            damping = block.solve(max(tol / 2, _FRACTION * float(violation[index].max())), damping)
            decrease = self._move(index, slots, block.A)
            n_iter += 1
            idle = 0 if gap < 0.99 * best or decrease > 1e-15 * abs(np.sum(self.A * self.e)) else idle + 1
            best = min(best, gap)
            if self.hard.any():
                self._refuse_inseparable()

    def _state(self):
        return self.g, self.A, self.cap, self.y, self.d

    def _working_set(self, violation, tol):
        """The largest violations, and then free samples: these must give way when the others move."""
        free = free_variables(self.A, self.cap, self.y).sum(axis=1) > 1
        size = min(max(_BLOCK, 2 * int(free.sum())), self.K.block)
        # all free samples rank below all violations that matter
        key = np.where(violation > tol / 2, 1 + violation, np.where(free, violation / tol, -1.0))
        order = np.argsort(-key, kind="stable")[:size]
        return np.sort(order[key[order] >= 0])

    def _move(self, index, slots, A):
        """Set A of a block, and update all scores; by how much the objective fell."""
        D, before = A - self.A[index], self.g[index]
        moved = np.flatnonzero(D.any(axis=1))
        for first in range(0, len(moved), _TILE):
            tile = moved[first : first + _TILE]
            self.g += self.K.kept[slots[tile]].T @ D[tile]
        self.A[index] = A
        return -0.5 * float(np.vdot(before + self.g[index], D))

    def _refuse_inseparable(self):
        # |w| ≥ L / √Q by weak duality along the ray t A, L the sum of A's own classes and Q = Σ A·ₘᵀ K A·ₘ.
        L, Q = -float(np.sum(np.minimum(self.A, 0))), float(np.vdot(self.A, self.F))
        margin = np.sqrt(max(Q, 0.0)) / L if L > 0 else np.inf
        # what is below is rounding of the kernel's entries
        if margin < np.sqrt(self.scale) * (1e-3 if self.K.single else 1e-7):
            raise ValueError(
                "the samples cannot be separated, as C=inf demands: the largest margin that the dual still "
                f"allows is {margin:.1e}; use a finite C"
            )

    def objectives(self):
        """The dual objective, the primal one, and their sum."""
        F, each = self.F, np.arange(len(self.y))
        square = float(np.vdot(self.A, F))
        dual = 0.5 * square + float(np.sum(self.A * self.e))
        worst = self.g.max(axis=1)
        slack = worst - self.g[each, self.y]
        if not self.hard.any():
            # Σ (Cᵢ [m = yᵢ] − A_im)(max g − g_im): no term is negative, and so no digits cancel
            rest = -self.A
            rest[each, self.y] += self.cap
            gap = float(np.sum(rest * (worst[:, None] - self.g)))
            return dual, gap - dual, gap
        room = 1.0 - float(slack[self.hard].max())
        if room <= 0:
            return dual, np.inf, np.inf
        scores = F / room + self.e
        soft = np.where(self.hard, 0.0, self.cap)
        primal = 0.5 * square / room**2 + float(soft @ (scores.max(axis=1) - scores[each, self.y]))
        return dual, primal, primal + dual

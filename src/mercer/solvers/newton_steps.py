"""Newton's steps on several problems in lockstep, from where they are.

Place on the way: ``newton_problem``, ``newton_system``, ``newton_factors`` → **newton_steps** → ``newton``,
which has the formulas.
"""

from dataclasses import dataclass

import numpy as np

from .newton_factors import preconditioner
from .newton_system import by_problem, solve_newton_system

__all__ = ["Figures", "Inner", "State", "minimise", "settled"]

#: Of the decrease that the slope promises, a step has to bring so much.
_ARMIJO = 1e-4
#: Relative rounding of P, where f comes out of float32 products and where not: below it steps are full, and
#: below what rounding of K a leaves, up to this part.
_BLUR = {True: 1e-7, False: 1e-12}
_MOST_BLUR = 1e-10
#: Steps after which the gradient has to have halved, or P to have fallen by this part.
_PATIENCE = 8
_SLOWEST = 1e-6
#: Steps of conjugate gradients after which, in float32, their error has to have halved.
_SINGLE_PATIENCE = 30
_MOST_PRODUCTS = 500
#: Steps of conjugate gradients for one system from which on a dearer preconditioner may pay for few rows.
_HARD = 100
#: Of the largest |K a|, what cheap products may have left in it.
_DRIFT = 1e-6


@dataclass
class State:
    """Coefficients, h = K a, and intercepts."""

    a: np.ndarray
    h: np.ndarray
    b: np.ndarray

    def take(self, going):
        """That of some of the problems."""
        return State(self.a[:, going], self.h[:, going], self.b[going])

    def put(self, going, other):
        """Put in that of some of the problems."""
        self.a[:, going], self.h[:, going], self.b[going] = other.a, other.h, other.b


@dataclass
class _Gauge:
    """What is known at a state."""

    f: np.ndarray
    p: np.ndarray  # −g/(2α)
    Kp: np.ndarray
    error: np.ndarray  # ‖a − p‖ in the feature space
    gradient: np.ndarray
    objective: np.ndarray
    gap: np.ndarray
    lost: np.ndarray  # by rounding of K a, in P

    def take(self, left):
        return _Gauge(
            self.f[:, left],
            self.p[:, left],
            self.Kp[:, left],
            *(part[left] for part in (self.error, self.gradient, self.objective, self.gap, self.lost)),
        )


def _gauge(problems, inner, state):
    """How far a state is from the solution, by p and K p. One product."""
    n = len(state.a)
    f = state.h + state.b
    g = problems.gradients(f)
    p = -g / (2 * problems.alphas[:, None])
    Kp = inner.exact(p.reshape(n, -1)).reshape(p.shape)
    # Below 0 by rounding these are as much above.
    away = np.abs(by_problem(state.a - p, state.h - Kp))
    own = by_problem(state.a, state.h)
    size = np.maximum(np.abs(own), np.abs(by_problem(p, Kp)))
    objective = problems.costs(f) + problems.alphas * own
    lost, blur = problems.lost(state.a, inner.diagonal), _BLUR[False] * np.abs(objective)
    error = np.sqrt(away)
    relative = np.divide(error, np.sqrt(size), out=np.zeros_like(error), where=(size > 0) & (size < np.inf))
    relative[~(size < np.inf)] = 1.0  # p is beyond the range: next to it a is 0
    relative[(problems.alphas * np.maximum(away, size) <= lost) & (lost <= blur)] = 0.0  # K a is 0
    if problems.fit_intercept:
        sums, sizes = np.abs(g.sum(axis=0)).max(axis=1), np.abs(g).sum(axis=(0, 2))
        relative = np.maximum(relative, np.divide(sums, sizes, out=np.zeros_like(sums), where=sizes > 0))
    # Where K a cancels, P may be off by more than its own sum's rounding.
    gap = problems.alphas * away + np.maximum(lost - blur, 0.0)
    if problems.fit_intercept:
        # Nought but for rounding, or where no b attains the minimum.
        gap = gap + np.abs((g.sum(axis=0) * state.b).sum(axis=1))
    return _Gauge(f, p, Kp, error, relative, objective, gap, lost)


def _step(problems, state, gauge, step, image, shift, blur):
    """Move along the line to (p + step, b + shift) until P has fallen enough: a new state."""
    da, dh = gauge.p + step - state.a, gauge.Kp + image - state.h
    alphas = problems.alphas
    first = by_problem(state.a, dh) + by_problem(da, state.h)
    second = by_problem(da, dh)
    own = by_problem(state.a, state.h)
    # g = −2α p, and Σ g = 0.
    slope = 2 * alphas * by_problem(state.a - gauge.p, dh)
    length, df = np.ones(len(alphas)), dh + shift
    known = np.abs(gauge.objective)
    blur = np.maximum(blur * known, np.minimum(gauge.lost, _MOST_BLUR * known))
    for _ in range(40):
        costs = problems.costs(gauge.f + length[:, None] * df)
        value = costs + alphas * (own + length * first + length**2 * second)
        limit = gauge.objective + _ARMIJO * length * np.minimum(slope, 0.0) + blur
        short = ~(value <= limit)
        if not short.any():
            break
        length[short] /= 2
    else:
        # Rounding, or numbers beyond the range, left no descent in it.
        da[:, short], dh[:, short], shift = 0.0, 0.0, np.where(short[:, None], 0.0, shift)
    t = length[:, None]
    moved = State(state.a + t * da, state.h + t * dh, state.b + length[:, None] * shift)
    whole = length == 1
    if whole.any():  # without the rounding of a − a
        moved.a[:, whole] = (gauge.p + step)[:, whole]
        moved.h[:, whole] = (gauge.Kp + image)[:, whole]
    return moved


def _forcing(gradient, tol):
    """By which factor a system's error is to fall: as a full step's own error, and not beyond `tol`."""
    ahead = np.divide(tol, gradient, out=np.ones_like(gradient), where=gradient > 0)
    return np.clip(0.3 * np.maximum(gradient, ahead), 3e-5, 0.1)


def _by_column(product):
    """The same, its results laid out as arrays are here."""
    return lambda V: np.asfortranarray(product(V))


class Inner:
    """The product and the preconditioner of the Newton systems, renewed when that pays."""

    def __init__(self, product, single, low_rank, matrix, share, n_threads):
        self.exact = _by_column(product)
        self.product = self.exact if single is None else _by_column(single)
        self.low_rank, self.matrix, self.share, self.n_threads = low_rank, matrix, share, n_threads
        self.diagonal = low_rank.diagonal
        self.preconditioner, self.n_products = None, 0
        self._first = self._excess = 0
        self._hard = False

    @property
    def cheap(self):
        """Whether products lose digits."""
        return self.product is not self.exact

    def give_up_single(self):
        """Go on with exact products."""
        self.product = self.exact

    def renew(self):
        """Forget the preconditioner."""
        self.preconditioner = None

    def take(self, going):
        """Go on with some of the problems."""
        if self.preconditioner is not None:
            self.preconditioner = self.preconditioner.take(going)

    def _preconditioner(self, problems, curvature):
        """The one at hand, following the curvature, or a new one."""
        followed = None
        if self.preconditioner is not None and self._excess < self.preconditioner.cost:
            followed = self.preconditioner.at(curvature)
        if followed is None:
            self.preconditioner = None  # its memory first
            self.preconditioner = followed = preconditioner(
                self.low_rank,
                curvature,
                problems.alphas,
                self.matrix,
                self.share,
                self.n_threads,
                self._hard,
            )
            self._first = None
        return followed

    def solve(self, problems, gauge, state, tol):
        """The step from a state, its image under K, and the shift of b."""
        curvature = problems.curvature(gauge.f)
        preconditioner = self._preconditioner(problems, curvature)
        target = 2 * problems.alphas * gauge.error * _forcing(gauge.gradient, tol)
        step, image, shift, reached, n_iter = solve_newton_system(
            self.product,
            curvature,
            problems.alphas,
            curvature.adjoint(state.h - gauge.Kp),
            preconditioner,
            target=target,
            max_iter=_MOST_PRODUCTS,
            fit_intercept=problems.fit_intercept,
            patience=_SINGLE_PATIENCE if self.cheap else 10 * _SINGLE_PATIENCE,
        )
        self.n_products += n_iter
        if self._first is None:
            self._first, self._excess = n_iter, 0
        self._excess += max(0, n_iter - self._first)
        self._hard |= n_iter > _HARD
        if not reached.all():
            self.give_up_single()
            self._excess = np.inf  # the preconditioner may be at fault
        return step, image, shift


@dataclass
class Figures:
    """What was reached, by problem."""

    objective: np.ndarray
    gap: np.ndarray
    gradient: np.ndarray
    n_iter: np.ndarray
    known: np.ndarray  # whether the labels are

    @classmethod
    def of(cls, q):
        """Those of q problems, as yet 0."""
        return cls(*(np.zeros(q) for _ in range(3)), np.zeros(q, dtype=np.intp), np.zeros(q, dtype=bool))

    def put(self, going, gauge, n_iter):
        """Take those of some of the problems from a gauge."""
        self.objective[going], self.gap[going] = gauge.objective, gauge.gap
        self.gradient[going], self.n_iter[going] = gauge.gradient, n_iter


def minimise(problems, inner, state, tol, max_iter, on_step, least=None, labels=None):
    """Newton steps, `state` being changed, until each problem is done, is stuck, or may go no further.

    `least` is what no objective is below, if that is known: rounding may keep the gradient above `tol`. With
    `labels` (`Labels`) a problem is done, too, where these are known.
    """
    q = len(problems.alphas)
    least = np.full(q, -np.inf) if least is None else least
    figures, going = Figures.of(q), np.arange(q)
    best, lowest, best_at = np.full(q, np.inf), np.full(q, np.inf), np.zeros(q, dtype=np.intp)
    all_, current = problems, State(state.a, state.h, state.b)
    for n_iter in range(max_iter + 1):
        current.b = problems.centre(current.h, current.b)
        gauge = _gauge(problems, inner, current)
        inner.n_products += 1
        state.put(going, current)
        figures.put(going, gauge, n_iter)
        if on_step is not None:
            on_step(n_iter, figures.gradient)
        fallen = lowest[going] - gauge.objective > _SLOWEST * np.abs(gauge.objective)
        better = (gauge.gradient < best[going] / 2) | fallen
        some = going[better]
        best[some], lowest[some], best_at[some] = gauge.gradient[better], gauge.objective[better], n_iter
        stuck = n_iter - best_at[going] >= _PATIENCE
        anew = stuck.any() and inner.cheap
        if anew:
            inner.give_up_single()
            current.h = inner.exact(current.a.reshape(len(current.a), -1)).reshape(current.a.shape)
            best_at[going], stuck[:] = n_iter, False
        excess = np.abs(gauge.objective - least[going]) + gauge.lost
        proven = (n_iter > 0) & (excess <= tol * np.abs(gauge.objective))
        left, aim = (gauge.gradient > tol) & ~stuck & ~proven, tol
        if labels is not None and left.any() and not anew:
            figures.known[going], factor = labels.judge(problems, gauge.f, current.a, gauge.gap)
            left &= ~figures.known[going]
            aim = np.maximum(tol, factor * gauge.gradient)[left]
        if not left.any() or n_iter == max_iter:
            break
        if not left.all():
            going = going[left]
            problems, current, gauge = all_.take(going), current.take(left), gauge.take(left)
            inner.take(left)
        cheap = inner.cheap
        step, image, shift = inner.solve(problems, gauge, current, aim)
        current = _step(problems, current, gauge, step, image, shift, _BLUR[cheap])
    return figures


def settled(inner, state):
    """Put K a for h, and say whether it was that but for float32's rounding of small steps."""
    h = inner.exact(state.a.reshape(len(state.a), -1)).reshape(state.a.shape)
    inner.n_products += 1
    near = np.abs(h - state.h).max() <= _DRIFT * np.abs(h).max()
    state.h[...] = h
    return near

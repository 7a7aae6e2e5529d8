"""Newton's method for kernelised losses, several problems in lockstep.

Minimises over a and b, with f = K a + b,

    P(a, b) = Σᵢ wᵢ l(yᵢ, fᵢ) + α aᵀ K a,

C outputs being summed over. At the minimum a = −g/(2α), g = w l'(f). At any f p = −g/(2α) is a point of the
dual problem, where Σ p = 0 if b minimises P for that a. The gap between P(a, b) and the dual value of p is
then α (a − p)ᵀ K (a − p), without any cancellation, and the feature-space norm of a − p bounds the distance
of a to the solution (P is 2α-strongly convex in that norm).
"""

from dataclasses import dataclass

import numpy as np

from .newton_dual import has_duals, minimise_duals
from .newton_factors import preconditioner
from .newton_problem import Problems, minimise_in_span
from .newton_system import by_problem, laid_out, solve_newton_system

__all__ = ["NewtonOutcome", "newton"]

#: Of the decrease that the slope promises, a step has to bring so much.
_ARMIJO = 1e-4
#: Relative rounding of P, where f comes out of float32 products and where not: below it steps are full.
_BLUR = {True: 1e-7, False: 1e-12}
#: Steps after which the gradient has to have halved, or P to have fallen by this part.
_PATIENCE = 8
_SLOWEST = 1e-6
#: Steps of conjugate gradients after which, in float32, their error has to have halved.
_SINGLE_PATIENCE = 30
_MOST_PRODUCTS = 500
#: Of P, what the last step in the span of other solutions may have brought.
_START = 1e-4
#: Variables of a dual of vectors up to which no step goes before it, and else how many steps.
_AT_ONCE, _FEW_STEPS = 1000, 15
#: Of the largest |K a|, what cheap products may have left in it.
_DRIFT = 1e-6
#: Σ of the curvatures times K's diagonal over 2α from where on a first fit comes down from larger alphas; and
#: the gradient to which, in how many steps each.
_GENTLE = 100.0
_ROUGHLY = 0.1
_MOST_ROUGH = 10


@dataclass
class NewtonOutcome:
    """Where Newton's method stopped.

    Attributes
    ----------
    a : ndarray of shape (n, q) or (n, q, C)
        Dual coefficients.
    b : ndarray of shape (q,) or (q, C)
        Intercepts; of a loss that a common shift does not change, with sum 0.
    f : ndarray like a
        ``K a + b`` for all rows, those of weight 0 as well.
    objective : ndarray of shape (q,)
        P.
    gap : ndarray of shape (q,)
        What P is above its minimum at most.
    gradient : ndarray of shape (q,)
        The gradient of P in the feature space over that of the penalty: a bound of the relative error of the
        function in that space.
    n_iter : ndarray of int of shape (q,)
        Steps.
    converged : ndarray of bool of shape (q,)
    n_products : int
        Products with K, the cheap ones too.
    """

    a: np.ndarray
    b: np.ndarray
    f: np.ndarray
    objective: np.ndarray
    gap: np.ndarray
    gradient: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    n_products: int


@dataclass
class _State:
    """Coefficients, h = K a, and intercepts."""

    a: np.ndarray
    h: np.ndarray
    b: np.ndarray

    def take(self, going):
        return _State(self.a[:, going], self.h[:, going], self.b[going])

    def put(self, going, other):
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

    def take(self, left):
        return _Gauge(
            self.f[:, left],
            self.p[:, left],
            self.Kp[:, left],
            *(part[left] for part in (self.error, self.gradient, self.objective, self.gap)),
        )


def _gauge(problems, product, state):
    """How far a state is from the solution, by p and K p. One product."""
    n = len(state.a)
    f = state.h + state.b
    g = problems.gradients(f)
    p = -g / (2 * problems.alphas[:, None])
    Kp = product(p.reshape(n, -1)).reshape(p.shape)
    away = np.maximum(by_problem(state.a - p, state.h - Kp), 0.0)
    own = by_problem(state.a, state.h)
    size = np.maximum(np.maximum(own, by_problem(p, Kp)), 0.0)
    error = np.sqrt(away)
    relative = np.divide(error, np.sqrt(size), out=np.zeros_like(error), where=(size > 0) & (size < np.inf))
    relative[~(size < np.inf)] = 1.0  # p is beyond the range: next to it a is 0
    if problems.fit_intercept:
        sums, sizes = np.abs(g.sum(axis=0)).max(axis=1), np.abs(g).sum(axis=(0, 2))
        relative = np.maximum(relative, np.divide(sums, sizes, out=np.zeros_like(sums), where=sizes > 0))
    objective = problems.costs(f) + problems.alphas * own
    gap = problems.alphas * away
    if problems.fit_intercept:
        # Nought but for rounding, or where no b attains the minimum.
        gap = gap + np.abs((g.sum(axis=0) * state.b).sum(axis=1))
    return _Gauge(f, p, Kp, error, relative, objective, gap)


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
    blur = blur * np.abs(gauge.objective)
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
    moved = _State(state.a + t * da, state.h + t * dh, state.b + length[:, None] * shift)
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


class _Inner:
    """The product and the preconditioner of the Newton systems, renewed when that pays."""

    def __init__(self, product, single, low_rank, matrix, share, n_threads):
        self.exact = _by_column(product)
        self.product = self.exact if single is None else _by_column(single)
        self.low_rank, self.matrix, self.share, self.n_threads = low_rank, matrix, share, n_threads
        self.preconditioner, self.n_products = None, 0
        self._first = self._excess = 0

    @property
    def cheap(self):
        return self.product is not self.exact

    def give_up_single(self):
        self.product = self.exact

    def renew(self):
        self.preconditioner = None

    def take(self, going):
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
                self.low_rank, curvature, problems.alphas, self.matrix, self.share, self.n_threads
            )
            self._first = None
        return followed

    def solve(self, problems, gauge, state, tol):
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
        if not reached.all():
            self.give_up_single()
            self._excess = np.inf  # the preconditioner may be at fault
        return step, image, shift


def _started(problems, start, product, shape):
    n, q, _ = shape
    if start is None:
        return _State(laid_out(np.zeros(shape)), laid_out(np.zeros(shape)), np.zeros(shape[1:]))
    if isinstance(start, tuple):
        a, b = (np.array(part, dtype=np.float64) for part in start)
        a, b = laid_out(a.reshape(shape)), b.reshape(shape[1:])
        return _State(a, product(a.reshape(n, -1)).reshape(shape), b)
    outcomes = [start] if isinstance(start, NewtonOutcome) else list(start)
    A = [each.a.reshape(shape) for each in outcomes]
    B = [each.b.reshape(shape[1:]) for each in outcomes]
    H = [each.f.reshape(shape) - b for each, b in zip(outcomes, B, strict=True)]
    t = np.zeros((q, len(A)))
    t[:, 0] = 1.0
    t, b = minimise_in_span(problems, A, H, t, B[0].copy(), rtol=_START)
    a, h = (sum(each * t[:, k, None] for k, each in enumerate(parts)) for parts in (A, H))
    return _State(a, h, b)


def _nearer(problems, inner, start, tol, max_iter, on_step):
    """Where duals of vectors begin: coefficients that are stationary at some f.

    Where a dual has many variables, all of which would be free at first, a few steps leave fewer.

    Returns
    -------
    a, b : tuple of ndarray
    n_iter : int
        Steps taken.
    near : bool
        Whether (a, b) is the minimum as it is.
    """
    n, n_iter = len(problems.y), 0
    state = _started(problems, start, inner.exact, (n, len(problems.alphas), problems.n_outputs))
    if n * (problems.n_outputs - 1) > _AT_ONCE:
        n_iter = _come_down(problems, inner, state, max_iter) if start is None else 0
        most = min(max_iter - n_iter, _FEW_STEPS)
        figures = _minimise(problems, inner, state, tol, most, on_step)
        n_iter += int(np.max(figures.n_iter))
        inner.renew()
        if (figures.gradient <= tol).all():
            return (state.a, state.b), n_iter, True
    f = state.h + problems.centre(state.h, state.b)
    a = -problems.gradients(f) / (2 * problems.alphas[:, None])
    return (a, np.zeros(a.shape[1:])), n_iter, False


def _coefficients(start, shape):
    """Those of the first of the starts, where each problem has one for each row."""
    if isinstance(start, list):
        start = start[0]
    a = start[0] if isinstance(start, tuple) else getattr(start, "a", None)
    return None if a is None or np.size(a) != np.prod(shape) else np.reshape(a, shape)


@dataclass
class _Figures:
    """What was reached, by problem."""

    objective: np.ndarray
    gap: np.ndarray
    gradient: np.ndarray
    n_iter: np.ndarray

    @classmethod
    def of(cls, q):
        return cls(*(np.zeros(q) for _ in range(3)), np.zeros(q, dtype=np.intp))

    def put(self, going, gauge, n_iter):
        self.objective[going], self.gap[going] = gauge.objective, gauge.gap
        self.gradient[going], self.n_iter[going] = gauge.gradient, n_iter


def _minimise(problems, inner, state, tol, max_iter, on_step, least=None):
    """Newton steps, `state` being changed, until each problem is done, is stuck, or may go no further.

    `least` is what no objective is below, if that is known: rounding may keep the gradient above `tol`.
    """
    q = len(problems.alphas)
    least = np.full(q, -np.inf) if least is None else least
    figures, going = _Figures.of(q), np.arange(q)
    best, lowest, best_at = np.full(q, np.inf), np.full(q, np.inf), np.zeros(q, dtype=np.intp)
    all_, current = problems, _State(state.a, state.h, state.b)
    for n_iter in range(max_iter + 1):
        current.b = problems.centre(current.h, current.b)
        gauge = _gauge(problems, inner.exact, current)
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
        if stuck.any() and inner.cheap:
            inner.give_up_single()
            current.h = inner.exact(current.a.reshape(len(current.a), -1)).reshape(current.a.shape)
            best_at[going], stuck[:] = n_iter, False
        proven = (n_iter > 0) & (gauge.objective - least[going] <= tol * np.abs(gauge.objective))
        left = (gauge.gradient > tol) & ~stuck & ~proven
        if not left.any() or n_iter == max_iter:
            break
        if not left.all():
            going = going[left]
            problems, current, gauge = all_.take(going), current.take(left), gauge.take(left)
            inner.take(left)
        cheap = inner.cheap
        step, image, shift = inner.solve(problems, gauge, current, tol)
        current = _step(problems, current, gauge, step, image, shift, _BLUR[cheap])
    return figures


def _come_down(problems, inner, state, max_iter):
    """Bring a first state near the minimum by way of larger alphas, each roughly; the number of steps.

    From afar, steps at a small alpha are cut short by the rows that they would throw beyond a kink.
    """
    diagonal = np.einsum("ij,ij->j", inner.low_rank.F, inner.low_rank.F, dtype=np.float64)
    centred = problems.centre(state.h, state.b)
    d = problems.curvature(state.h + centred).diagonal
    strength = np.einsum("i,iqc->q", diagonal, d * d) / (2 * problems.alphas)
    state.b, n_iter = centred, 0
    for rung in range(int(np.ceil(np.log10(max(float(np.max(strength)), 1.0) / _GENTLE))), 0, -1):
        some = np.flatnonzero(strength > _GENTLE * 10.0 ** (rung - 1))
        part = problems.take(some)
        part.alphas = part.alphas * np.minimum(10.0**rung, strength[some] / _GENTLE)
        found = state.take(some)
        inner.renew()
        figures = _minimise(part, inner, found, _ROUGHLY, min(max_iter - n_iter, _MOST_ROUGH), None)
        n_iter += int(np.max(figures.n_iter))
        state.put(some, found)
    inner.renew()
    return n_iter


def _settled(inner, state):
    """Put K a for h, and say whether it was that but for float32's rounding of small steps."""
    h = inner.exact(state.a.reshape(len(state.a), -1)).reshape(state.a.shape)
    inner.n_products += 1
    settled = np.abs(h - state.h).max() <= _DRIFT * np.abs(h).max()
    state.h[...] = h
    return settled


def _outcome(problems, inner, state, figures, tol):
    """The figures and the state, with the fit's own K a where float32 may have left traces in it."""
    n = len(state.a)
    converged = figures.gradient <= tol
    if not converged.all():
        short = np.flatnonzero(~converged)
        state.h[:, short] = inner.exact(state.a[:, short].reshape(n, -1)).reshape(n, len(short), -1)
        inner.n_products += 1
        # Rounding may keep the gradient of a badly conditioned problem above any tolerance.
        converged |= figures.gap <= tol * np.abs(figures.objective)
    if problems.loss.vector and problems.fit_intercept:
        state.b -= state.b.mean(axis=1, keepdims=True)
    f = state.h + state.b
    if problems.loss.vector:
        a, b = state.a, state.b
    else:
        a, b, f = state.a[:, :, 0], state.b[:, 0], f[:, :, 0]
    return NewtonOutcome(
        a, b, f, figures.objective, figures.gap, figures.gradient, figures.n_iter, converged, inner.n_products
    )


def newton(
    product,
    loss,
    y,
    alphas,
    *,
    weights=None,
    fit_intercept=True,
    low_rank,
    matrix=None,
    single=None,
    start=None,
    tol=1e-8,
    max_iter=100,
    on_step=None,
    n_classes=None,
    share=1,
    check=None,
    n_threads=None,
):
    """Minimise ``Σ w l(y, K a + b) + α aᵀ K a`` by Newton's method with a line search, q problems at once.

    Parameters
    ----------
    product : callable
        ``V -> K @ V`` in float64, V of shape (n, k) and K positive semidefinite.
    loss : Loss
        With a derivative and a curvature.
    y : ndarray of shape (n,) or (n, q)
        Targets as the loss takes them.
    alphas : ndarray of shape (q,)
        Above 0.
    weights : ndarray of shape (n,) or (n, q) or None
        Not negative. A row of weight 0 takes no part: so a fold is held out, and its decisions are in ``f``.
    fit_intercept : bool
        Whether b is free, or 0.
    low_rank : LowRank
        ``K ≈ Fᵀ F``, by `pivoted_cholesky`, for the preconditioner; it serves all problems.
    matrix : ndarray of shape (n, n) or None
        K in float64, for factors where no low rank will do, and for duals.
    single : callable or None
        A cheaper, less exact product, of float32 values. What it loses comes back with the next step.
    start : NewtonOutcome, list of NewtonOutcome, (a, b), or None
        Where to begin: outcomes of the same shape, for other alphas for instance, in whose span the minimum
        is taken; a tuple costs a product more.
    tol : float
        For the relative gradient, see `NewtonOutcome`.
    max_iter : int
        Most steps.
    on_step : callable or None
        ``on_step(n_iter, gradient)``.
    n_classes : int or None
        C, of a loss of vectors; None is the largest code and one more.
    share : int
        So many calls like this share the memory that one would take.
    check : callable or None
        Called now and then; may raise.
    n_threads : int or None
        Changes nothing in the result.

    Returns
    -------
    NewtonOutcome
        Nothing warns of problems short of `tol`; they are not ``converged``. Where rounding leaves no
        further progress, a gap of `tol` times the objective will do.

    References
    ----------
    MLR7 7.3 for the problems; O. Chapelle, Training a support vector machine in the primal, 2007.
    """
    y = np.asarray(y)
    n, q = len(y), len(alphas)
    weights = np.ones(n) if weights is None else weights
    shape = (n, q)
    n_outputs = 1 if not loss.vector else (int(y.max()) + 1 if n_classes is None else n_classes)
    problems = Problems(
        loss,
        laid_out(np.broadcast_to(y if y.ndim == 2 else y[:, None], shape)),
        laid_out(np.broadcast_to(weights if weights.ndim == 2 else weights[:, None], shape)),
        np.asarray(alphas, dtype=np.float64),
        fit_intercept,
        n_outputs,
    )
    inner = _Inner(product, single, low_rank, matrix, share, n_threads)
    a, before = None, 0
    if has_duals(problems, matrix):
        near = False
        if loss.vector:
            start, before, near = _nearer(problems, inner, start, tol, max_iter, on_step)
        if not near:
            a = minimise_duals(problems, matrix, _coefficients(start, (n, q, n_outputs)), check, n_threads)
        start = start if a is None else (a, np.zeros((q, n_outputs)))
    state = _started(problems, start, inner.exact, (n, q, n_outputs))
    least = None if a is None else problems.dual_values(state.a, state.h)
    if start is None:
        before = _come_down(problems, inner, state, max_iter)
    figures = _minimise(problems, inner, state, tol, max_iter - before, on_step, least)
    if inner.cheap and not _settled(inner, state):
        inner.give_up_single()
        inner.renew()
        before += figures.n_iter
        figures = _minimise(problems, inner, state, tol, max_iter - int(np.max(before)), on_step, least)
    figures.n_iter += before
    if least is not None:
        # At tiny α rounding of f leaves little of p, where the dual's own solution still has all digits.
        short = figures.gradient > tol
        figures.gap[short] = np.minimum(figures.gap, np.maximum(figures.objective - least, 0.0))[short]
    return _outcome(problems, inner, state, figures, tol)

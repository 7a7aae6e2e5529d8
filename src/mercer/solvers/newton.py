"""Newton's method for kernelised losses, several problems in lockstep.

Minimises over a and b, with f = K a + b,

    P(a, b) = Σᵢ wᵢ l(yᵢ, fᵢ) + α aᵀ K a,

C outputs being summed over. At the minimum a = −g/(2α), g = w l'(f). At any f p = −g/(2α) is a point of the
dual problem, where Σ p = 0 if b minimises P for that a. The gap between P(a, b) and the dual value of p is
then α (a − p)ᵀ K (a − p), without any cancellation, and the feature-space norm of a − p bounds the distance
of a to the solution (P is 2α-strongly convex in that norm).

``newton_steps`` has the steps; here is where they begin, and what comes back.
"""

from dataclasses import dataclass

import numpy as np

from .newton_dual import has_duals, minimise_duals
from .newton_primal import minimise_primal, primal_pays
from .newton_problem import Problems, minimise_in_span
from .newton_steps import Figures, Inner, State, minimise, settled
from .newton_system import laid_out

__all__ = ["MAX_ITER", "NewtonOutcome", "newton"]

#: Most steps, unless the caller says otherwise.
MAX_ITER = 100

#: Of P, what the last step in the span of other solutions may have brought.
_START = 1e-4
#: Variables of a dual of vectors up to which no step goes before it, and else how many steps.
_AT_ONCE, _FEW_STEPS = 1000, 15
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
        Whether `gradient` is at most the tolerance, or all labels are known, if that will do.
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


def _started(problems, start, product, shape):
    n, q, _ = shape
    if start is None:
        return State(laid_out(np.zeros(shape)), laid_out(np.zeros(shape)), np.zeros(shape[1:]))
    if isinstance(start, tuple):
        a, b = (np.array(part, dtype=np.float64) for part in start)
        a, b = laid_out(a.reshape(shape)), b.reshape(shape[1:])
        return State(a, product(a.reshape(n, -1)).reshape(shape), b)
    outcomes = [start] if isinstance(start, NewtonOutcome) else list(start)
    A = [each.a.reshape(shape) for each in outcomes]
    B = [each.b.reshape(shape[1:]) for each in outcomes]
    H = [each.f.reshape(shape) - b for each, b in zip(outcomes, B, strict=True)]
    t = np.zeros((q, len(A)))
    t[:, 0] = 1.0
    t, b = minimise_in_span(problems, A, H, t, B[0].copy(), rtol=_START)
    a, h = (sum(each * t[:, k, None] for k, each in enumerate(parts)) for parts in (A, H))
    return State(a, h, b)


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
        figures = minimise(problems, inner, state, tol, most, on_step)
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


def _come_down(problems, inner, state, max_iter):
    """Bring a first state near the minimum by way of larger alphas, each roughly; the number of steps.

    From afar, steps at a small alpha are cut short by the rows that they would throw beyond a kink.
    """
    centred = problems.centre(state.h, state.b)
    d = problems.curvature(state.h + centred).diagonal
    strength = np.einsum("i,iqc->q", inner.diagonal, d * d) / (2 * problems.alphas)
    strength = np.minimum(strength, np.finfo(float).max)
    state.b, n_iter = centred, 0
    for rung in range(int(np.ceil(np.log10(max(float(np.max(strength)), 1.0) / _GENTLE))), 0, -1):
        some = np.flatnonzero(strength > _GENTLE * 10.0 ** (rung - 1))
        part = problems.take(some)
        part.alphas = part.alphas * np.minimum(10.0**rung, strength[some] / _GENTLE)
        found = state.take(some)
        inner.renew()
        figures = minimise(part, inner, found, _ROUGHLY, min(max_iter - n_iter, _MOST_ROUGH), None)
        n_iter += int(np.max(figures.n_iter))
        state.put(some, found)
    inner.renew()
    return n_iter


def _still_known(labels, problems, figures, state):
    """Whether labels that were known are, by the K a that has been put for h, and by b that is best for it.

    By the dual's value at a alone: the gap at hand came from the h before. Where that does not tell, the next
    steps, from here, begin with a gap of their own.
    """
    some = np.flatnonzero(figures.known)
    if not some.size:
        return True
    part, found = problems.take(some), state.take(some)
    found.b = part.centre(found.h, found.b)
    state.put(some, found)
    return labels.judge(part, found.h + found.b, found.a, np.full(some.size, np.inf))[0].all()


def _outcome(problems, inner, state, figures, tol):
    """The figures and the state, with the fit's own K a where float32 may have left traces in it."""
    n = len(state.a)
    finite = np.isfinite(figures.objective)
    converged = finite & (figures.gradient <= tol) | figures.known
    if not converged.all():
        short = np.flatnonzero(~converged)
        state.h[:, short] = inner.exact(state.a[:, short].reshape(n, -1)).reshape(n, len(short), -1)
        inner.n_products += 1
        # Rounding may keep the gradient of a badly conditioned problem above any tolerance.
        converged |= finite & (figures.gap <= tol * np.abs(figures.objective))
    return _packed(problems, state, figures, converged, inner.n_products)


def _packed(problems, state, figures, converged, n_products):
    """An outcome of a state, in the shapes that callers have."""
    a, b = state.a, state.b
    if problems.loss.vector and problems.fit_intercept:
        b = b - b.mean(axis=1, keepdims=True)
    f = state.h + b
    if not problems.loss.vector:
        a, b, f = a[:, :, 0], b[:, 0], f[:, :, 0]
    reached = (figures.objective, figures.gap, figures.gradient, figures.n_iter)
    return NewtonOutcome(a, b, f, *reached, converged, n_products)


def _in_features(problems, product, low_rank, start, tol, max_iter, on_step, n_threads):
    """The outcome of steps in K's features, one problem after the other."""
    n, q, n_outputs = len(problems.y), len(problems.alphas), problems.n_outputs
    state = _started(problems, None, product, (n, q, n_outputs))
    if start is not None:
        # Steps are cheaper than a search in the span of several.
        begin = start[0] if isinstance(start, list) else start
        a, b = (begin.a, begin.b) if isinstance(begin, NewtonOutcome) else begin
        state.a[...], state.b[...] = np.reshape(a, state.a.shape), np.reshape(b, state.b.shape)
    figures, converged = Figures.of(q), np.zeros(q, dtype=bool)
    for k in range(q):

        def tell(n_iter, gradient, k=k):
            figures.gradient[k] = gradient
            if on_step is not None:
                on_step(n_iter, figures.gradient)

        here = None if start is None else (state.a[:, k], state.b[k])
        found = minimise_primal(problems.take([k]), product, low_rank, here, tol, max_iter, tell, n_threads)
        figures.put(k, found, found.n_iter)
        state.a[:, k], state.h[:, k], state.b[k], converged[k] = found.a, found.h, found.b, found.converged
    return _packed(problems, state, figures, converged, n_products=1)


# Of tiny alphas p = −g/(2α) may leave the range, as may costs: figures tell of what does.
@np.errstate(over="ignore", invalid="ignore")
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
    max_iter=MAX_ITER,
    on_step=None,
    n_classes=None,
    labels=None,
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
        is taken; a tuple costs a product more. One from which a problem does not end gives way to None.
    tol : float
        For the relative gradient, see `NewtonOutcome`.
    max_iter : int
        Most steps.
    on_step : callable or None
        ``on_step(n_iter, gradient)``.
    n_classes : int or None
        C, of a loss of vectors; None is the largest code and one more.
    labels : Labels or None
        For problems that are asked for labels alone: once these are known a problem counts as converged.
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

    def attempt(start):
        inner = Inner(product, single, low_rank, matrix, share, n_threads)
        return _from(problems, inner, start, tol, max_iter, on_step, labels, check)

    def features(start):
        return _in_features(problems, product, low_rank, start, tol, max_iter, on_step, n_threads)

    duals = has_duals(problems, matrix)
    if not primal_pays(problems, low_rank, labels is None and not duals, tol):
        # From afar steps go by way of larger α, where from another problem's solution they may be stuck.
        ways = [(attempt, start)] + [(attempt, None)] * (start is not None)
    elif duals and 2 * len(low_rank.F) > n:
        ways = [(attempt, start), (features, None)]  # the dual's own solution has digits that −g/(2α) has not
    else:
        ways = [(features, start)] + [(attempt, None)] * (max_iter >= MAX_ITER)
    found = []
    for way, begin in ways:
        found.append(way(begin))
        if found[-1].converged.all():
            break
    return max(found, key=_success)


def _success(outcome):
    """How many problems have converged, and then how little the others may lack."""
    return outcome.converged.sum(), -np.nan_to_num(outcome.gap, nan=np.inf).sum()


def _from(problems, inner, start, tol, max_iter, on_step, labels, check):
    """The outcome of steps from a start."""
    n, q, n_outputs = len(problems.y), len(problems.alphas), problems.n_outputs
    a, before = None, 0
    if has_duals(problems, inner.matrix):
        near = False
        if problems.loss.vector:
            start, before, near = _nearer(problems, inner, start, tol, max_iter, on_step)
        if not near:
            begin = _coefficients(start, (n, q, n_outputs))
            a = minimise_duals(problems, inner.matrix, begin, check, inner.n_threads)
        start = start if a is None else (a, np.zeros((q, n_outputs)))
    state = _started(problems, start, inner.exact, (n, q, n_outputs))
    least = None if a is None else problems.dual_values(state.a, state.h)
    if start is None:
        before = _come_down(problems, inner, state, max_iter)
    single = inner.cheap
    figures = minimise(problems, inner, state, tol, max_iter - before, on_step, least, labels)
    drifts = inner.cheap or (single and figures.known.any())
    if drifts and not (settled(inner, state) and _still_known(labels, problems, figures, state)):
        inner.give_up_single()
        inner.renew()
        before += figures.n_iter
        most = max_iter - int(np.max(before))
        figures = minimise(problems, inner, state, tol, most, on_step, least, labels)
    figures.n_iter += before
    if least is not None:
        # At tiny α rounding of f leaves little of p, where the dual's own solution still has all digits.
        short = figures.gradient > tol
        lost = problems.lost(state.a, inner.diagonal)
        figures.gap[short] = np.minimum(figures.gap, np.abs(figures.objective - least) + lost)[short]
    return _outcome(problems, inner, state, figures, tol)

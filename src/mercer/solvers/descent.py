"""Gradient descent with momentum for any function: on all samples at once, or on batches of them.

Place on the way: ``losses`` → **solvers** → ``estimators``. What it makes of kernelised costs is
`kernel_descent`.
"""

from dataclasses import dataclass, field

import numpy as np

__all__ = ["QUIET", "Descent", "Diverged", "check_momentum", "gradient_descent", "stochastic_descent"]

#: A cost this many times its size above the best one so far will not come back.
_BLOWN_UP = 1e12
#: For iterates that may leave the floating-point range; what does is found in the record.
QUIET = {"over": "ignore", "invalid": "ignore"}


class Diverged(ArithmeticError):
    """The steps led away from the minimum.

    Parameters
    ----------
    n_iter : int
        Iterations up to the one that gave up.
    objective : float
        The cost there.
    step : float
        The last step.
    remedy : str
        What to do about it.

    Attributes
    ----------
    n_iter, objective, step
        As above.
    """

    def __init__(self, n_iter, objective, step, remedy):
        super().__init__(
            f"gradient descent diverged in iteration {n_iter} (cost {objective:.1e}, step {step:.3g}); "
            f"{remedy}"
        )
        self.n_iter, self.objective, self.step, self.remedy = n_iter, objective, step, remedy

    def __reduce__(self):
        return type(self), (self.n_iter, self.objective, self.step, self.remedy)


@dataclass(frozen=True)
class Descent:
    """Where descent stopped, and how it came there.

    Attributes
    ----------
    solution : ndarray
        The minimiser, or a kernelised problem's dual coefficients.
    objective, gradient_norm : float
        There.
    n_iter : int
        Iterations: steps on all samples, or rounds through the batches.
    converged : bool
        Whether the gradient's norm reached its tolerance.
    solver : str
        "gd" or "sgd".
    history : dict of str to ndarray
        "objective" and "gradient_norm" at the start and after each iteration, n_iter + 1 each; "step", the
        length of each iteration's (last) step, n_iter.
    intercept : ndarray or None
        Of a kernelised problem.
    scale : float
        What the tolerance was multiplied by to compare the gradient's norm with.
    """

    solution: np.ndarray
    objective: float
    gradient_norm: float
    n_iter: int
    converged: bool
    solver: str
    history: dict = field(repr=False)
    intercept: np.ndarray | None = None
    scale: float = 1.0


class _Record:
    """What was reached in each iteration."""

    def __init__(self, on_step, remedy):
        self.objective, self.gradient_norm, self.step = [], [], []
        self._remedy = remedy
        self._on_step, self._best = on_step, np.inf

    def add(self, objective, gradient_norm):
        self.objective.append(float(objective))
        self.gradient_norm.append(float(gradient_norm))
        n_iter = len(self.step)
        excess = self.objective[-1] - self._best
        if not np.isfinite(objective + gradient_norm) or excess > _BLOWN_UP * (1 + abs(self._best)):
            self.raise_diverged()
        self._best = min(self._best, self.objective[-1])
        if self._on_step is not None and n_iter:
            self._on_step(n_iter, self.gradient_norm[-1])

    def raise_diverged(self):
        if not self.step:
            raise ValueError(
                f"the cost or its gradient is not finite at the start (cost {self.objective[-1]!r}); start "
                "elsewhere"
            )
        raise Diverged(len(self.step), self.objective[-1], self.step[-1], self._remedy)

    def outcome(self, solution, tol, solver):
        history = {name: np.array(getattr(self, name)) for name in ("objective", "gradient_norm", "step")}
        norm = self.gradient_norm[-1]
        return Descent(
            solution, self.objective[-1], norm, len(self.step), norm <= tol, solver, history=history
        )


# ---------------------------------------------------------------- arguments


def _check_number(name, value, low, high, what, *, open_low=False):
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number:
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not ((low < value if open_low else low <= value) and value < high):
        raise ValueError(f"{name} must be {what}, got {value!r}")


def check_momentum(momentum):
    """Raise unless a momentum is in its range.

    Parameters
    ----------
    momentum : float

    Raises
    ------
    ValueError, TypeError
    """
    _check_number("momentum", momentum, 0, 1, "at least 0 and below 1")


def _check(step, momentum, decay, max_iter, tol, *, stochastic):
    if isinstance(step, str):
        if step != "backtracking":
            raise ValueError(f"step={step!r} is unknown; give a positive number or 'backtracking'")
        if stochastic:
            raise ValueError(
                "step='backtracking' needs the whole cost, which a batch does not tell; give a number"
            )
        if decay:
            raise ValueError(
                f"decay={decay!r} has no meaning with step='backtracking'; leave it 0, or give a step"
            )
    else:
        _check_number("step", step, 0, np.inf, "above 0 and finite", open_low=True)
    check_momentum(momentum)
    _check_number("decay", decay, 0, np.inf, "at least 0 and finite")
    _check_number("tol", tol, 0, np.inf, "at least 0 and finite")
    _check_number("max_iter", max_iter, 1, np.inf, "at least 1")


def _remedy(step, momentum, *others):
    """What to do about divergence, of what was not done."""
    if isinstance(step, str):
        return "the cost leaves the floating-point range: scale the problem down"
    ways = [f"take a step below {step:.3g}", *(["a smaller momentum"] if momentum else []), *others]
    return " or ".join(filter(None, [", ".join(ways[:-1]), ways[-1]]))


# ---------------------------------------------------------------- all samples at once


def _dot(gradient):
    return float(np.vdot(gradient, gradient))


def _hidden(objective):
    """What rounding of the cost may hide."""
    return 800 * np.finfo(np.float64).eps * abs(objective)


class _Backtracking:
    """Steps by Armijo's rule: halved until a plain step lowers the cost by half of what its slope promises.

    Each search starts from twice the last step. Momentum is added to the step that this finds, unless the
    cost rises by it. Where rounding of the cost hides what a step promises, the last one that could be judged
    stands, or one is halved until the gradient becomes smaller.
    """

    def __init__(self, value, value_and_gradient, squared_norm):
        self._value, self._both, self._squared_norm = value, value_and_gradient, squared_norm
        self._last, self._judged = 0.5, False

    def __call__(self, w, objective, gradient, squared):
        hidden = _hidden(objective)
        seen = 0.5 * self._last * squared > hidden
        if self._judged and not seen:
            return self._last
        step = first = 2 * self._last
        while not self._lowers(w - step * gradient, objective, squared, 0.5 * step * squared, hidden):
            step /= 2
            if step < 1e-60 * first:
                if not seen:
                    return step
                remedy = "no step against the gradient lowers the cost: check the gradient"
                raise Diverged(0, objective, step, remedy)
        self._last, self._judged = step, True
        return step

    def _lowers(self, w, objective, squared, promised, hidden):
        if promised > hidden:
            return self._value(w) <= objective - promised + 0.01 * hidden
        return self._squared_norm(self._both(w)[1]) < squared


def gradient_descent(
    value_and_gradient,
    start,
    *,
    step="backtracking",
    momentum=0.0,
    decay=0.0,
    max_iter=1000,
    tol=1e-6,
    value=None,
    squared_norm=_dot,
    on_step=None,
):
    """Minimise by w ← w − s∇g(w) + β(w − w′), where w′ is the iterate before w.

    Parameters
    ----------
    value_and_gradient : callable
        ``w -> (g(w), ∇g(w))``, the gradient of w's shape.
    start : ndarray
        The first w; kept as it is.
    step : float or "backtracking", default="backtracking"
        s: fixed, decaying (see `decay`), or found anew in each iteration by Armijo's rule.
    momentum : float, default=0.0
        β in [0, 1).
    decay : float, default=0.0
        Iteration k, from 0, takes s / (1 + k·decay).
    max_iter : int, default=1000
        Iterations at most.
    tol : float, default=1e-6
        Norm of the gradient to stop at.
    value : callable or None, default=None
        ``w -> g(w)`` for backtracking, where that is cheaper than both.
    squared_norm : callable, default: of the Euclidean norm
        ``∇g -> ‖∇g‖²`` of the space that the gradient belongs to.
    on_step : callable or None, default=None
        ``on_step(n_iter, gradient_norm)`` after each iteration.

    Returns
    -------
    Descent

    Raises
    ------
    Diverged
        When the cost overflows or rises without end.
    ValueError, TypeError
        For a step, momentum, decay, tol or max_iter out of range.

    References
    ----------
    MLR7 (7.29).

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.solvers.descent import gradient_descent
    >>> valley = np.array([1.0, 100.0])
    >>> def cost(w):
    ...     return 0.5 * w @ (valley * w), valley * w
    >>> plain = gradient_descent(cost, [1.0, 1.0], step=0.01)
    >>> heavy = gradient_descent(cost, [1.0, 1.0], step=0.01, momentum=0.8)
    >>> heavy.n_iter < plain.n_iter / 4
    True
    """
    _check(step, momentum, decay, max_iter, tol, stochastic=False)
    w = np.array(start, dtype=np.float64)
    if value is None:

        def value(w):
            return value_and_gradient(w)[0]

    search = _Backtracking(value, value_and_gradient, squared_norm) if isinstance(step, str) else None
    record = _Record(on_step, _remedy(step, momentum, "step='backtracking'"))
    before = w
    with np.errstate(**QUIET):
        while True:
            objective, gradient = value_and_gradient(w)
            squared = squared_norm(gradient)
            record.add(objective, np.sqrt(squared))
            k = len(record.step)
            if record.gradient_norm[-1] <= tol or k >= max_iter:
                return record.outcome(w, tol, "gd")
            s = step / (1 + k * decay) if search is None else search(w, objective, gradient, squared)
            record.step.append(float(s))
            after = w - s * gradient
            if momentum:
                ahead = after + momentum * (w - before)
                # Armijo's rule vouches for the plain step alone.
                if search is None or value(ahead) <= objective + _hidden(objective):
                    after = ahead
            before, w = w, after


# ---------------------------------------------------------------- batches


def stochastic_descent(
    batch_gradient,
    start,
    n,
    value_and_gradient,
    *,
    step,
    momentum=0.0,
    decay=0.0,
    batch_size=1,
    max_iter=100,
    tol=1e-6,
    squared_norm=_dot,
    random_state=None,
    on_step=None,
):
    """Minimise by steps on batches: each iteration goes through all n samples once, in a new order.

    Parameters
    ----------
    batch_gradient : callable
        ``batch_gradient(w, index)``: an estimate of ∇g(w) from the samples `index`, whose mean over equal
        batches is ∇g(w). The caller scales it, by n / len(index) where g sums over samples.
    start : ndarray
        The first w; kept as it is.
    n : int
        Number of samples.
    value_and_gradient : callable
        As for `gradient_descent`; called once an iteration, for the record and to see when to stop.
    step : float
        s.
    momentum : float, default=0.0
        β in [0, 1).
    decay : float, default=0.0
        Step number k, from 0 and counted through all iterations, takes s / (1 + k·decay).
    batch_size : int, default=1
        Samples of a batch, at most n; the last batch of an iteration may be smaller.
    max_iter : int, default=100
        Iterations at most.
    tol, squared_norm, on_step
        As for `gradient_descent`.
    random_state : int, RandomState, Generator or None, default=None
        Draws the orders.

    Returns
    -------
    Descent

    Raises
    ------
    Diverged, ValueError, TypeError
        As `gradient_descent`.

    References
    ----------
    MLR7 (7.29) on batches; its 8.3 for decaying steps.
    """
    _check(step, momentum, decay, max_iter, tol, stochastic=True)
    _check_number("batch_size", batch_size, 1, np.inf, "at least 1")
    if not isinstance(batch_size, int | np.integer):
        raise TypeError(f"batch_size must be an integer, got {batch_size!r}")
    if batch_size > n:
        raise ValueError(f"batch_size={batch_size} is more than the {n} samples; take at most {n}")
    rng = _generator(random_state)
    w = np.array(start, dtype=np.float64)
    before, k, s = w, 0, step
    record = _Record(on_step, _remedy(step, momentum))
    with np.errstate(**QUIET):
        while True:
            objective, gradient = value_and_gradient(w)
            record.add(objective, np.sqrt(squared_norm(gradient)))
            if record.gradient_norm[-1] <= tol or len(record.step) >= max_iter:
                return record.outcome(w, tol, "sgd")
            order = rng.permutation(n)
            for first in range(0, n, batch_size):
                s = step / (1 + k * decay)
                after = w - s * batch_gradient(w, order[first : first + batch_size])
                if momentum:
                    after += momentum * (w - before)
                before, w, k = w, after, k + 1
            record.step.append(float(s))


def _generator(random_state):
    if isinstance(random_state, np.random.Generator | np.random.RandomState):
        return random_state
    return np.random.default_rng(random_state)

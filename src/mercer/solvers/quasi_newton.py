"""Kernelised costs by SciPy's L-BFGS, in coordinates where a low-rank factor of K has taken its spread.

Place on the way: ``losses``, ``pivoted_cholesky``, ``newton_problem`` → **quasi_newton** → ``estimators``.
"""

from contextlib import suppress

import numpy as np
from scipy.optimize import minimize

from .newton_problem import Problems

__all__ = ["lbfgs"]

_EPS = float(np.finfo(np.float64).eps)
#: SciPy gives a line search up where values have no more digits; without its memory it may go on.
_STARTS = 4
#: Parts of K's largest eigenvalue that may be its rounding, where it shows negative ones: to nine places, …,
#: and to float32. Rounds among the others for each.
_ROUNDING = (1e-9, 1e-8, 1e-7, 1e-6)
_ROUNDS = 20


class _Coordinates:
    """``a = (Fᵀ F + δ I)^(−1/2) u``, in which the penalty is close to |u|².

    Parameters
    ----------
    low_rank : LowRank
        K ≈ Fᵀ F.
    """

    def __init__(self, low_rank):
        F = np.asarray(low_rank.F, dtype=np.float64)
        n = F.shape[1]
        values, vectors = np.linalg.eigh(F @ F.T) if len(F) else (np.zeros(0), np.zeros((0, 0)))
        largest = float(values[-1]) if len(values) else 0.0
        used = values > 1e-14 * largest
        self.V = (vectors[:, used] / np.sqrt(values[used])).T @ F  # orthonormal rows
        self.delta = max(low_rank.trace / n, 1e-10 * largest, np.finfo(float).tiny)
        self.root = np.sqrt(values[used] + self.delta)
        self.whole = True

    def restrict(self, product, rounding):
        """Leave out where K is at most this part of its largest eigenvalue: below 0 there is no minimum.

        The factor of a K that is not positive semidefinite tells little of it, so that K is asked again.
        """
        values, vectors = np.linalg.eigh(self.V @ product(self.V.T))
        used = values > rounding * values.max(initial=0.0)
        self.V, self.root, self.whole = vectors[:, used].T @ self.V, np.sqrt(values[used]), False

    def __call__(self, u):
        """The symmetric map from u to a."""
        rest = self.whole / np.sqrt(self.delta)
        return u * rest + self.V.T @ ((1 / self.root - rest)[:, None] * (self.V @ u))

    def back(self, a):
        """U of an a."""
        rest = self.whole * np.sqrt(self.delta)
        return a * rest + self.V.T @ ((self.root - rest)[:, None] * (self.V @ a))

    def outside(self, a):
        """The part of an a that is not in the span."""
        return a - self.V.T @ (self.V @ a)


class _Unbounded(Exception):
    """K has shown a negative eigenvalue, along which the cost falls without end."""


class _Cost:
    """The objective and its gradient in (u, b); remembers the best point that was seen, with its K a."""

    def __init__(self, product, loss, y, alpha, weights, fit_intercept, low_rank, n_outputs):
        self.product, self.loss, self.y, self.alpha = product, loss, y, alpha
        self.weights, self.fit_intercept, self.coordinates = weights, fit_intercept, _Coordinates(low_rank)
        self.shape, self.diagonal = (len(y), n_outputs), low_rank.diagonal
        self.sizes, self.left = np.sqrt(self.diagonal), low_rank.trace / len(y)
        one = np.array([alpha])
        self.problems = Problems(loss, y[:, None], weights[:, None], one, fit_intercept, n_outputs)
        self.seen, self.rest = None, 0.0

    def split(self, x):
        n_free = self.shape[0] * self.shape[1]
        b = x[n_free:] if self.fit_intercept else np.zeros(self.shape[1])
        return x[:n_free].reshape(self.shape), b

    def joined(self, u, b):
        return np.concatenate([u.ravel(), b]) if self.fit_intercept else u.ravel()

    def __call__(self, x):
        u, b = self.split(x)
        a = self.coordinates(u) + self.rest
        found, pull, slope = self.figures(a, self.product(a), b)
        if self.seen is None or found["objective"] <= self.seen["objective"]:
            self.seen = {**found, "x": x.copy()}
        return found["objective"], self.joined(self.coordinates(pull), slope)

    def figures(self, a, h, b):
        """What is known at h = K a and b, and the gradients in a and b."""
        f = h + b
        own = f if self.loss.vector else f[:, 0]
        g = self.gradient(f)
        norm = float(np.vdot(a, h))
        if norm < -4 * _EPS * float(np.square(self.sizes @ np.abs(a)).sum()):
            raise _Unbounded
        value = float(self.weights @ self.loss.value(self.y, own) + self.alpha * norm)
        # K (g + 2αa), of which K a is known.
        pull = self.product(g) + 2 * self.alpha * h
        # Below 0 by rounding, which is as much above.
        away = abs(float(np.vdot(g + 2 * self.alpha * a, pull)))
        size = 2 * self.alpha * np.sqrt(abs(norm))
        least = np.sqrt(abs(float(np.vdot(g, pull - 2 * self.alpha * h))))
        gradient = np.sqrt(away) / max(size, least) if max(size, least) > 0 else 0.0
        slope = g.sum(axis=0)
        gap = away / (4 * self.alpha) + float(self.problems.lost(a[:, None], self.diagonal)[0])
        if self.fit_intercept:
            total = np.abs(g).sum()
            gradient = max(gradient, float(np.abs(slope).max() / total) if total > 0 else 0.0)
            gap += abs(float(slope @ b))  # nought at the best b, but for rounding
        found = {"a": a, "h": h, "b": b.copy(), "objective": value, "gradient": gradient, "gap": gap}
        return found, pull, slope

    def gradient(self, f):
        """Derivatives w l' in f."""
        g = self.loss.derivative(self.y, f if self.loss.vector else f[:, 0])
        return self.weights[:, None] * (g if self.loss.vector else g[:, None])

    def settle(self):
        """Put −g/(2α), which a is at the minimum, for what of a is outside of the span."""
        b, on = self.seen["b"], self.coordinates
        p = -self.gradient(self.seen["h"] + b) / (2 * self.alpha)
        a = self.seen["a"] + on.outside(p - self.seen["a"])
        self.rest = 0.0 if on.whole else on.outside(a)
        self.seen = {**self.figures(a, self.product(a), b)[0], "x": self.joined(on.back(a), b)}
        self.centre()

    def restrict(self, rounding):
        """Begin anew, where K is above its rounding."""
        self.coordinates.restrict(self.product, rounding)
        self.seen, self.rest = None, 0.0

    def centre(self):
        """Put the best b for the best a: only there the gap is one."""
        if self.fit_intercept:
            a, h = self.seen["a"], self.seen["h"]
            b = self.problems.centre(h[:, None], self.seen["b"][None])[0]
            x = self.joined(self.split(self.seen["x"])[0], b)
            self.seen = {**self.figures(a, h, b)[0], "x": x}


def lbfgs(
    product,
    loss,
    y,
    alpha,
    *,
    weights=None,
    fit_intercept=True,
    low_rank,
    start=None,
    tol=1e-5,
    max_iter=None,
    n_classes=None,
    on_step=None,
):
    """Minimise ``Σ w l(y, K a + b) + α aᵀ K a`` by SciPy's L-BFGS-B.

    Parameters
    ----------
    product : callable
        ``V -> K @ V``.
    loss : Loss
    y : ndarray of shape (n,)
    alpha : float
        Above 0.
    weights : ndarray of shape (n,) or None
    fit_intercept : bool
    low_rank : LowRank
        Of K, for the coordinates.
    start : (a, b) or None
    tol : float
        For the relative gradient in the feature space, as `newton` has it.
    max_iter : int or None
        Most steps; None is 10000.
    n_classes : int or None
        C, of a loss of vectors.
    on_step : callable or None
        ``on_step(n_iter, gradient)``.

    Returns
    -------
    dict
        a, b, objective, gap, gradient, n_iter, converged.
    """
    weights = np.ones(len(y)) if weights is None else weights
    n_outputs = n_classes if loss.vector else 1
    cost = _Cost(product, loss, y, alpha, weights, fit_intercept, low_rank, n_outputs)
    limit = 10000 if max_iter is None else max_iter
    found = _from(cost, start, tol, limit, on_step, 0)
    if start is None or found["converged"] or found["n_iter"] >= limit:
        return found
    # A line search may find no digits left where values begin small, and many from afar.
    cold = _from(cost, None, tol, limit, on_step, found["n_iter"])
    better = cold if cold["converged"] or cold["gap"] < found["gap"] else found
    return better | {"n_iter": cold["n_iter"]}


def _from(cost, start, tol, limit, on_step, count):
    """What is found from a start, `count` steps having been made before."""
    loss, (n, n_outputs) = cost.loss, cost.shape
    cost.seen, cost.rest = None, 0.0
    x = np.zeros(n * n_outputs + (n_outputs if cost.fit_intercept else 0))
    if start is not None:
        a, b = (np.asarray(part, dtype=np.float64) for part in start)
        x[: a.size] = cost.coordinates.back(a.reshape(cost.shape)).ravel()
        if cost.fit_intercept:
            x[a.size :] = b.ravel()
    # What an earlier fit left where this K is 0 would stay, and be rounding of K a.
    settles = start is not None and cost.left <= cost.coordinates.delta / 2

    def callback(intermediate_result):
        nonlocal count
        count += 1
        if on_step is not None:
            on_step(count, cost.seen["gradient"])
        if cost.seen["gradient"] <= tol:
            raise StopIteration

    def attempt(x):
        restricted = not cost.coordinates.whole
        cost(x)
        cost.centre()
        if settles or restricted:
            cost.settle()
        for _ in range(_ROUNDS if restricted else _STARTS):
            if cost.seen["gradient"] <= tol or count >= limit:
                break
            left = limit - count
            options = {"maxiter": left, "maxfun": 10 * left, "ftol": 0.0, "gtol": 0.0, "maxcor": 20}
            minimize(cost, cost.seen["x"], jac=True, method="L-BFGS-B", callback=callback, options=options)
            cost.centre()
            if restricted:
                cost.settle()

    bounded = False
    for rounding in (None, *_ROUNDING):
        if rounding is not None:
            cost.restrict(rounding)
            x[:] = 0.0
        with suppress(_Unbounded):
            attempt(x)
            bounded = True
            break
    seen = {name: cost.seen[name] for name in ("a", "b", "objective", "gap", "gradient")}
    # Rounding may keep the gradient of a badly conditioned problem above any tolerance.
    near = seen["gradient"] <= tol or seen["gap"] <= tol * abs(seen["objective"])
    converged = bounded and near and np.isfinite(seen["objective"])
    if loss.vector and cost.fit_intercept:
        seen["b"] = seen["b"] - seen["b"].mean()
    if not loss.vector:
        seen["a"], seen["b"] = seen["a"][:, 0], seen["b"][0]
    return {**seen, "n_iter": count, "converged": bool(converged)}

"""Kernelised costs by SciPy's L-BFGS, in coordinates where a low-rank factor of K has taken its spread.

Place on the way: ``losses``, ``pivoted_cholesky`` → **quasi_newton** → ``estimators``.
"""

import numpy as np
from scipy.optimize import minimize

__all__ = ["lbfgs"]

#: SciPy gives a line search up where values have no more digits; without its memory it may go on.
_STARTS = 4


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
        self.scale = 1 / np.sqrt(values[used] + self.delta) - 1 / np.sqrt(self.delta)

    def __call__(self, u):
        """The symmetric map from u to a."""
        return u / np.sqrt(self.delta) + self.V.T @ (self.scale[:, None] * (self.V @ u))

    def back(self, a):
        """U of an a."""
        inverse = 1 / (self.scale + 1 / np.sqrt(self.delta)) - np.sqrt(self.delta)
        return a * np.sqrt(self.delta) + self.V.T @ (inverse[:, None] * (self.V @ a))


class _Cost:
    """The objective and its gradient in (u, b); remembers the best point that was seen, with its K a."""

    def __init__(self, product, loss, y, alpha, weights, fit_intercept, coordinates, n_outputs):
        self.product, self.loss, self.y, self.alpha = product, loss, y, alpha
        self.weights, self.fit_intercept, self.coordinates = weights, fit_intercept, coordinates
        self.shape = (len(y), n_outputs)
        self.n_products, self.seen = 0, None

    def split(self, x):
        n_free = self.shape[0] * self.shape[1]
        b = x[n_free:] if self.fit_intercept else np.zeros(self.shape[1])
        return x[:n_free].reshape(self.shape), b

    def __call__(self, x):
        u, b = self.split(x)
        a = self.coordinates(u)
        h = self.product(a)
        self.n_products += 1
        f = h + b
        own = f if self.loss.vector else f[:, 0]
        g = self.loss.derivative(self.y, own)
        g = self.weights[:, None] * (g if self.loss.vector else g[:, None])
        value = float(self.weights @ self.loss.value(self.y, own) + self.alpha * np.vdot(a, h))
        # K (g + 2αa), of which K a is known.
        pull = self.product(g) + 2 * self.alpha * h
        self.n_products += 1
        away = max(float(np.vdot(g + 2 * self.alpha * a, pull)), 0.0)
        size = 2 * self.alpha * np.sqrt(max(float(np.vdot(a, h)), 0.0))
        least = np.sqrt(max(float(np.vdot(g, pull - 2 * self.alpha * h)), 0.0))
        gradient = np.sqrt(away) / max(size, least) if max(size, least) > 0 else 0.0
        slope = g.sum(axis=0)
        if self.fit_intercept:
            total = np.abs(g).sum()
            gradient = max(gradient, float(np.abs(slope).max() / total) if total > 0 else 0.0)
        if self.seen is None or value <= self.seen["objective"]:
            gap = away / (4 * self.alpha)
            self.seen = {"a": a, "b": b.copy(), "objective": value, "gradient": gradient, "gap": gap}
        inner = self.coordinates(pull).ravel()
        return value, np.concatenate([inner, slope]) if self.fit_intercept else inner


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
        a, b, objective, gap (where b minimises, as at the end), gradient, n_iter, converged.
    """
    n_outputs = n_classes if loss.vector else 1
    coordinates = _Coordinates(low_rank)
    weights = np.ones(len(y)) if weights is None else weights
    cost = _Cost(product, loss, y, alpha, weights, fit_intercept, coordinates, n_outputs)
    x = np.zeros(len(y) * n_outputs + (n_outputs if fit_intercept else 0))
    if start is not None:
        a, b = (np.asarray(part, dtype=np.float64) for part in start)
        x[: a.size] = coordinates.back(a.reshape(len(y), n_outputs)).ravel()
        if fit_intercept:
            x[a.size :] = b.ravel()
    limit, count = 10000 if max_iter is None else max_iter, 0

    def callback(intermediate_result):
        nonlocal count
        count += 1
        if on_step is not None:
            on_step(count, cost.seen["gradient"])
        if cost.seen["gradient"] <= tol:
            raise StopIteration

    cost(x)
    for _ in range(_STARTS):
        if cost.seen["gradient"] <= tol or count >= limit:
            break
        left = limit - count
        options = {"maxiter": left, "maxfun": 10 * left, "ftol": 0.0, "gtol": 0.0, "maxcor": 20}
        x = minimize(cost, x, jac=True, method="L-BFGS-B", callback=callback, options=options).x
    seen = dict(cost.seen)
    if loss.vector and fit_intercept:
        seen["b"] = seen["b"] - seen["b"].mean()
    if not loss.vector:
        seen["a"], seen["b"] = seen["a"][:, 0], seen["b"][0]
    return {**seen, "n_iter": count, "converged": bool(seen["gradient"] <= tol)}

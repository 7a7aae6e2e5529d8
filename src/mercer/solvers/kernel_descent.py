"""Kernelised costs by gradient descent, on all samples or on batches of them.

Place on the way: ``descent`` → **kernel_descent** → ``estimators``.
"""

from dataclasses import replace

import numpy as np

from .descent import QUIET, check_momentum, gradient_descent, stochastic_descent

__all__ = ["descend"]

# Targets that a constant fits but for so much, in gradients, are fitted by it.
_ALL_CONSTANT = 1e-9
# Steps to the best constant: by gradients, and by where slopes change their sign.
_CONSTANT_STEPS, _DOUBLINGS, _HALVINGS = 20, 60, 60


class _Problem:
    """Σ w l(y, b + Ka) + α aᵀKa, as a function on the feature space.

    Descent there needs no features: from v = Σ aᵢφ(xᵢ), a step against the gradient of (7.36) in v is one
    against r = w l′(f) + 2αa in a, and moves f = b + Ka by Kr. So an iterate holds b, a and f, which all move
    by multiples of the "gradient", b's part, r and Kr plus b's part; an iteration takes one product with K,
    and a backtracked step none. The condition number is that of K and not, as for the gradient in a, of K².
    """

    def __init__(self, product, loss, y, weights, alpha, fit_intercept, n_classes=None):
        y = np.asarray(y)
        self.loss, self.product, self.fit_intercept = loss, product, fit_intercept
        self.alpha, self.n = float(alpha), len(y)
        self.y = y if loss.vector else y.reshape(self.n, -1)
        if not loss.vector:
            self.columns = self.y.shape[1]
        else:
            self.columns = int(y.max()) + 1 if n_classes is None else n_classes
        self.weights = np.ones((self.n, 1)) if weights is None else np.asarray(weights, dtype=float)[:, None]

    def start(self, a, b):
        """An iterate (1 + 2n, columns): b, a, and f above each other."""
        w = np.zeros((1 + 2 * self.n, self.columns))
        if a is not None:
            w[1 : 1 + self.n] = np.reshape(a, (self.n, -1))
            w[1 + self.n :] = self.product(w[1 : 1 + self.n])
        if b is not None and self.fit_intercept:
            w[0] = b
            w[1 + self.n :] += w[0]
        return w

    def parts(self, w):
        return w[0], w[1 : 1 + self.n], w[1 + self.n :]

    def value(self, w):
        b, a, f = self.parts(w)
        costs = self.loss.value(self.y, f)
        weights = self.weights[:, 0] if self.loss.vector else self.weights
        return float(np.sum(weights * costs) + self.alpha * np.vdot(a, f - b))

    def value_and_gradient(self, w):
        _, a, f = self.parts(w)
        out = np.empty_like(w)
        _, r, change = self.parts(out)
        np.multiply(self.weights, self.loss.derivative(self.y, f), out=r)
        out[0] = r.sum(0) if self.fit_intercept else 0.0
        r += 2 * self.alpha * a
        change[...] = self.product(r)
        change += out[0]
        return self.value(w), out

    def squared_norm(self, gradient):
        g, r, change = self.parts(gradient)
        # Rounding may leave less than nothing of rᵀKr.
        return max(float(np.vdot(g, g) + np.vdot(r, change - g)), 0.0)

    def constant(self):
        """The best b at a = 0, of shape (columns,); 0 where there is none.

        A cost of one number is convex: what its slopes add up to changes its sign there. That of vectors has
        bounded curvature, and some steps are near enough.
        """
        b = np.zeros(self.columns)
        if not self.fit_intercept:
            return b
        if self.loss.vector:
            most = self.loss.curvature_bound(self.columns) * self.weights.sum()
            for _ in range(_CONSTANT_STEPS):
                b = b - self._slopes(b) / most
            return b
        low, high = b - 1.0, b + 1.0
        for _ in range(_DOUBLINGS):
            rising, falling = self._slopes(low) > 0, self._slopes(high) < 0
            if not (rising | falling).any():
                break
            low, high = np.where(rising, 2 * low, low), np.where(falling, 2 * high, high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            beyond = self._slopes(middle) > 0
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        return np.where(rising | falling, 0.0, (low + high) / 2)

    def _slopes(self, b):
        """Of Σ w l(y, b) by column."""
        f = np.broadcast_to(b, (self.n, self.columns))
        return (self.weights * self.loss.derivative(self.y, f)).sum(axis=0)

    def whole(self, w):
        """The iterate with f, of one with what batches read, or nothing, below a."""
        w = w[: 1 + self.n]
        return np.concatenate([w, self.product(w[1:]) + w[0]])

    def of_batches(self, w, features):
        """The iterate that batches move: b, a, and below v = Φᵀa, if there are features."""
        w = w[: 1 + self.n]
        return w if features is None else np.concatenate([w, features.T @ w[1:]])

    def batch_gradient(self, rows, features):
        v = slice(1 + self.n, None)

        def gradient(w, index):
            out = 2 * self.alpha * w
            f = (rows(index) @ w[1:] if features is None else features[index] @ w[v]) + w[0]
            g = self.weights[index] * self.loss.derivative(self.y[index], f)
            g *= self.n / len(index)
            out[0] = g.sum(0) if self.fit_intercept else 0.0
            out[1 + index] += g
            if features is not None:
                out[v] += features[index].T @ g
            return out

        return gradient

    def least_curvature(self, w):
        """2α of the slowest direction in the feature space, or that of an intercept at w if it is less."""
        if not self.fit_intercept:
            return 2 * self.alpha
        bend = np.square(self.loss.root(self.y, self.parts(w)[2]).diagonal)
        return min(2 * self.alpha, float(np.min((self.weights * bend).sum(axis=0))))

    def largest_eigenvalue(self, n_steps=12):
        """Of the weighted K plus 11ᵀ for the intercept, by power steps; a little above, to be sure."""
        root = np.sqrt(self.weights)
        v = root * np.abs(np.random.default_rng(0).standard_normal((self.n, 1))) + 1e-300
        size = 0.0
        for _ in range(n_steps):
            v /= np.linalg.norm(v)
            scaled = root * v
            v = root * (self.product(scaled) + (scaled.sum() if self.fit_intercept else 0.0))
            size = float(np.linalg.norm(v))
            if not size > 0:
                return 0.0
        return 1.1 * size


def descend(
    product,
    loss,
    y,
    weights,
    alpha,
    fit_intercept,
    *,
    rows=None,
    features=None,
    diagonal=None,
    stochastic=False,
    step=None,
    momentum=None,
    decay=None,
    batch_size=None,
    max_iter=None,
    tol=None,
    rng=None,
    start=None,
    n_classes=None,
    on_step=None,
):
    """Minimise a kernelised cost Σ wᵢ l(yᵢ, b + (Ka)ᵢ) + α aᵀKa over a and b by (stochastic) descent.

    For an estimator's ``solver="gd"``::

        found = descend(lambda V: K @ V, Logistic(), y, None, alpha, True)
        a, b = found.solution, found.intercept

    and for "sgd" with ``stochastic=True``, ``rows=lambda index: K[index]``, ``diagonal=K.diagonal()`` and a
    generator `rng` besides. Steps are taken along the gradient in the kernel's feature space.

    Parameters
    ----------
    product : callable
        ``V -> K @ V`` for V of shape (n, k).
    loss : Loss
        The cost.
    y : ndarray of shape (n,) or (n, q)
        Targets as the cost takes them; q problems are minimised together, as one sum. For a cost of vectors
        codes (n,).
    weights : ndarray of shape (n,) or None
        Not negative.
    alpha : float
        α ≥ 0.
    fit_intercept : bool
        Whether b is free; 0 otherwise.
    rows : callable or None
        ``index -> K[index]``, for stochastic descent.
    features : ndarray of shape (n, m) or None
        Φ of K = ΦΦᵀ, of which stochastic descent then reads rows in place of K's.
    diagonal : ndarray of shape (n,) or None
        Of K, for stochastic descent's default step.
    stochastic : bool, default=False
        Whether to take batches.
    step : float, "backtracking" or None, default=None
        None is 1/L, where L bounds the curvature by the cost's own and K's largest eigenvalue, and
        "backtracking" for a cost without a bound (Poisson). For stochastic descent L also has a batch's share
        in it, the step is (1 − momentum)/L, and a cost without a bound needs a step.
    momentum : float or None, default=None
        β of (7.29). None is 0 for stochastic descent; otherwise 0.9, or what damps the slowest direction
        critically at the default step, (1 − √(μ/L))², at most 0.99; μ is 2α, or what the cost bends with b
        at the start if that is less.
    decay : float or None, default=None
        None is 0; for stochastic descent the larger of 2α times the step, and what halves it in 20 rounds.
    batch_size : int or None, default=None
        For stochastic descent; None is 32, or all samples if they are fewer.
    max_iter : int or None, default=None
        None is 10000, and 500 rounds through the samples for stochastic descent.
    tol : float or None, default=None
        Norm of the gradient to stop at, over that at a = 0 and the best b, so that a shift of targets is no
        matter; None is 1e-4, and 1e-2 for stochastic descent.
    rng : int, RandomState, Generator or None, default=None
        Draws the batches.
    start : (a, b) or None, default=None
        Where to start; None is a = 0 with the best b, which steps for a large alpha would crawl to.
    n_classes : int or None, default=None
        C for a cost of vectors; None is what the codes reach to.
    on_step : callable or None, default=None
        ``on_step(n_iter, gradient_norm)``, the norm as `tol` takes it.

    Returns
    -------
    Descent
        Its `solution` is a, of shape (n,), (n, q) or (n, C), and `intercept` b, (), (q,) or (C,). Norms of
        gradients are as they are, also in the history.

    Raises
    ------
    Diverged, ValueError, TypeError
        As `gradient_descent`; ValueError for a cost with kinks and no `step`.

    References
    ----------
    MLR7 (7.36), (7.37) and (7.29).
    """
    check_momentum(momentum or 0.0)
    problem = _Problem(product, loss, y, weights, alpha, fit_intercept, n_classes)
    zero = problem.start(None, None)
    with np.errstate(**QUIET):
        constant = problem.start(None, problem.constant())
        scale, whole = (
            np.sqrt(problem.squared_norm(problem.value_and_gradient(w)[1])) for w in (constant, zero)
        )
        scale = max(scale, _ALL_CONSTANT * whole)
    first = constant if start is None else problem.start(*start)
    if tol is None:
        tol = 1e-2 if stochastic else 1e-4
    common = {
        "tol": tol * scale,
        "on_step": None if on_step is None else lambda k, norm: on_step(k, norm / (scale or 1.0)),
        "squared_norm": problem.squared_norm,
    }
    if stochastic:
        size = min(32, problem.n) if batch_size is None else batch_size
        step, momentum, decay = _stochastic_defaults(problem, diagonal, size, step, momentum, decay)
        found = stochastic_descent(
            problem.batch_gradient(rows, features),
            problem.of_batches(first, features),
            problem.n,
            lambda w: problem.value_and_gradient(problem.whole(w)),
            step=step,
            momentum=momentum,
            decay=decay,
            batch_size=size,
            max_iter=500 if max_iter is None else max_iter,
            random_state=rng,
            **common,
        )
    else:
        step, momentum = _defaults(problem, step, momentum, first)
        found = gradient_descent(
            problem.value_and_gradient,
            first,
            step=step,
            momentum=momentum,
            decay=0.0 if decay is None else decay,
            max_iter=10000 if max_iter is None else max_iter,
            value=problem.value,
            **common,
        )
    b, a = found.solution[0], found.solution[1 : 1 + problem.n]
    if not loss.vector and np.ndim(y) == 1:
        b, a = b[0], a[:, 0]
    return replace(found, solution=np.array(a), intercept=np.array(b), scale=float(scale))


def _curvature(problem):
    """The cost's largest curvature; inf if it has no bound."""
    if not problem.loss.smooth:
        raise ValueError(
            f"{problem.loss!r} has kinks, near which no fixed step is small enough: give step and decay, or "
            "take the default solver"
        )
    return problem.loss.curvature_bound(problem.columns)


def _defaults(problem, step, momentum, first):
    """Step and momentum for all samples at once."""
    given = step is not None
    bound = 0.0 if given else _curvature(problem)
    if not given and np.isfinite(bound):
        # The penalty alone has the curvature 2α; nothing at all is flat, where any step will do.
        step = 1 / (bound * problem.largest_eigenvalue() + 2 * problem.alpha or 1.0)
        if momentum is None:
            momentum = min((1 - np.sqrt(problem.least_curvature(first) * step)) ** 2, 0.99)
    elif not given:
        step = "backtracking"
    return step, 0.9 if momentum is None else momentum


def _stochastic_defaults(problem, diagonal, size, step, momentum, decay):
    """Step, momentum and decay for batches."""
    momentum = 0.0 if momentum is None else momentum
    if step is None:
        bound = _curvature(problem)
        if not np.isfinite(bound):
            raise ValueError(
                f"{problem.loss!r} has no largest curvature to choose a step by: give step, or take all "
                "samples"
            )
        # One sample's share of the sum is as steep as n times its own weight.
        own = problem.weights[:, 0] * (diagonal + problem.fit_intercept)
        L = problem.largest_eigenvalue() + problem.n / max(size, 1) * float(np.max(own))
        step = (1 - momentum) / (bound * L + 2 * problem.alpha or 1.0)
    if decay is None and not isinstance(step, str):
        decay = max(2 * problem.alpha * step, size / (20 * problem.n))
    return step, momentum, decay or 0.0

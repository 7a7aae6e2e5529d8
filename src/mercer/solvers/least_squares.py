"""Kernel ridge: the regularised least-squares problem, two routes, and leave-one-out in closed form.

Place on the way: ``cholesky``, ``conjugate_gradient`` → **least_squares** → ``ridge_functions``.

With dual coefficients a, weights W = S² and one intercept b,

    minimise Σ wᵢ (b + (K a)ᵢ − yᵢ)² + α aᵀ K a     (MLR7 7.31)

has a = S c with (S K S + α I) c + S1 b = S y and (S1)ᵀ c = 0: a symmetric form that a small weight does not
spoil.
"""

import numpy as np

from .._arrays import column_scales, power_of_two
from .cholesky import MIXED_FROM, factorize, solve_mixed
from .conjugate_gradient import conjugate_gradient
from .outcome import Outcome, not_finite, warn_unconverged
from .pivoted_cholesky import Woodbury, pivoted_cholesky

__all__ = ["ridge_cg", "ridge_cholesky", "ridge_loo_residuals"]


# ---------------------------------------------------------------- the problem


def _centred(Y, s, fit_intercept):
    """S(Y / unit − mean), the weighted means, and a power of two per target.

    Subtracting the mean changes the intercept only, and keeps digits; the unit keeps squares of tiny and huge
    targets in range, without rounding.
    """
    unit = column_scales(Y)
    Y, mean = Y / unit, np.zeros(Y.shape[1])
    if fit_intercept:
        share = np.ones(len(Y)) if s is None else s / s.max()
        mean = Y.mean(axis=0) if s is None else (share**2 @ Y) / (share @ share)
        Y = Y - mean
    return (Y if s is None else s[:, None] * Y), mean, unit


def _scale(K, s):
    """S K S in place."""
    K *= s[:, None]
    K *= s
    return K


def _groups(alphas):
    """Pairs of one alpha and the columns that have it."""
    values = sorted(set(alphas.tolist()))
    if len(values) == 1:
        return [(values[0], slice(None))]
    return [(value, np.flatnonzero(alphas == value)) for value in values]


def _without_intercept(X, u, one):
    """P B = G⁻¹B − u (1ᵀG⁻¹B)/(1ᵀu), u = G⁻¹1; and the multipliers, which are the intercepts."""
    shift = (one @ X) / (one @ u)
    return X - u[:, None] * shift, shift


# ---------------------------------------------------------------- Cholesky


def ridge_cholesky(
    K, Y, alphas, *, s=None, fit_intercept=True, keep_factor=False, mixed=True, n_threads=None
):
    """Solve by a Cholesky factor; K is overwritten.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric, float64, contiguous; lost.
    Y : ndarray of shape (n, t)
        Targets, float64.
    alphas : ndarray of shape (t,)
        One per target.
    s : ndarray of shape (n,) or None
        Square roots of the (positive) weights.
    fit_intercept : bool
        Whether b is free, or 0.
    keep_factor : bool
        Return the factors, by alpha.
    mixed : bool
        Whether a float32 factor with float64 residuals may be tried.
    n_threads : int or None
        Changes nothing in the result.

    Returns
    -------
    Outcome

    Raises
    ------
    NotPositiveDefinite
    """
    if s is not None:
        _scale(K, s)
    B, mean, unit = _centred(Y, s, fit_intercept)
    one = (np.ones(len(K)) if s is None else s) if fit_intercept else None
    dual, intercept = np.empty(Y.shape), mean.copy()
    residual, factors, routes = 0.0, {}, set()
    groups = _groups(alphas)
    diagonal = K.diagonal().copy() if len(groups) > 1 else None
    for count, (alpha, columns) in enumerate(groups):
        found = None
        # Without a penalty a singular K must be found out, which only the pivots of a float64 factor do.
        if mixed and alpha > 0 and not keep_factor and len(K) >= MIXED_FROM:
            found = solve_mixed(K, alpha, B[:, columns], one, n_threads=n_threads)
        routes.add("cholesky" if found is None else "cholesky, float32 refined")
        if found is None:
            last = count == len(groups) - 1
            factor = factorize(K if last or not keep_factor else K.copy(), alpha, n_threads)
            found = _direct(factor, B[:, columns], one, n_threads)
            if keep_factor:
                factors[alpha] = factor
            elif not last:
                K = factor.restored(diagonal)
        dual[:, columns] = found[0]
        intercept[columns] += found[1]
        residual = max(residual, found[2])
    if s is not None:
        dual *= s[:, None]
    dual *= unit
    route = " and ".join(sorted(routes))
    return Outcome(dual, intercept * unit, route, residual=residual, factor=factors if keep_factor else None)


def _direct(factor, B, one, n_threads):
    """Solution, intercepts and relative residual by a float64 factor."""
    if one is not None:
        B = np.concatenate([B, one[:, None]], axis=1)
    X = factor.solve(B, n_threads)
    R = B - factor.matmul(X, n_threads)
    size = np.sqrt(np.einsum("ij,ij->j", B, B))
    residual = float(np.max(np.sqrt(np.einsum("ij,ij->j", R, R)) / np.where(size > 0, size, 1.0)))
    if one is None:
        return X, 0.0, residual
    X, shift = _without_intercept(X[:, :-1], X[:, -1], one)
    return X, shift, residual


def ridge_loo_residuals(K, Y, alphas, *, s=None, fit_intercept=True, factors=None, n_threads=None):
    """What each row's target differs by from its prediction without that row: (P y)ᵢ / Pᵢᵢ.

    Parameters
    ----------
    K : ndarray of shape (n, n) or None
        Overwritten; None if `factors` are given.
    Y, alphas, s, fit_intercept
        As for `ridge_cholesky`.
    factors : dict or None
        Factors by alpha.
    n_threads : int or None
        Changes nothing in the result.

    Returns
    -------
    ndarray of shape (n, t)
        NaN where a row's prediction without it is undefined (no other row).
    """
    n = len(Y)
    if K is not None:
        if s is not None:
            _scale(K, s)
        diagonal = K.diagonal().copy()
    B, _, unit = _centred(Y, s, fit_intercept)
    one = np.ones(n) if s is None else s
    out = np.empty(Y.shape)
    groups = _groups(alphas)
    for count, (alpha, columns) in enumerate(groups):
        factor = factorize(K, alpha, n_threads) if factors is None else factors[alpha]
        right = np.concatenate([B[:, columns], one[:, None]], axis=1)
        X = factor.solve(right, n_threads)
        last = factors is None and count == len(groups) - 1
        inverse = factor.inverse_diagonal(n_threads)
        X, u = X[:, :-1], X[:, -1]
        if fit_intercept:
            X, _ = _without_intercept(X, u, one)
            inverse = inverse - u**2 / (one @ u)
        # With one row P is 0 up to rounding: nothing predicts it.
        undefined = np.array([n == 1 and fit_intercept] * n)
        denominator = one * np.where(undefined, np.nan, inverse)
        out[:, columns] = X / denominator[:, None] * unit[columns]
        if factors is None and not last:
            K = factor.restored(diagonal)
    return out


# ---------------------------------------------------------------- conjugate gradients


def ridge_cg(
    operator,
    Y,
    alphas,
    *,
    diagonal,
    rows,
    s=None,
    fit_intercept=True,
    tol=1e-6,
    max_iter=1000,
    max_rank=None,
    rng=None,
    fast=None,
    on_step=None,
    warn=True,
):
    """Solve by conjugate gradients on products with K, preconditioned by randomly pivoted Cholesky.

    Parameters
    ----------
    operator : callable
        ``V -> K @ V`` in float64.
    Y, alphas, s, fit_intercept
        As for `ridge_cholesky`.
    diagonal : ndarray of shape (n,)
        Of K.
    rows : callable
        ``index -> K[index]``.
    tol : float
        The residual over the norm of the (centred, weighted) targets at which a target is done.
    max_iter : int
        Most products with K.
    max_rank : int or None
        Rank of the preconditioner at most; None for what the problem's size suggests.
    rng : RandomState or Generator
        Draws the pivots.
    fast : callable or None
        A cheaper, less exact ``V -> K @ V``. Then the residual is worked out anew by `operator` after each
        round.
    on_step : callable or None
        ``on_step(n_iter, relative_residual)``.
    warn : bool
        Warn if a target fell short.

    Returns
    -------
    Outcome
    """
    one = np.ones(len(Y)) if s is None else s
    weigh = (lambda V: V) if s is None else (lambda V: s[:, None] * V)
    if not np.isfinite(diagonal).all():
        raise not_finite(int(np.argmax(~np.isfinite(diagonal))))
    B, mean, unit = _centred(Y, s, fit_intercept)
    if not 1e-30 < diagonal.max(initial=0.0) < 1e30:
        fast = None  # float32's range might not hold K
    precondition = _preconditioner(diagonal, rows, one, alphas, max_rank, rng)

    def product(multiply):
        return lambda V, columns: weigh(multiply(weigh(V))) + alphas[columns] * V

    X, shift, reached, n_iter = _rounds(
        product(operator),
        None if fast is None else product(fast),
        B,
        precondition,
        one if fit_intercept else None,
        tol,
        max_iter,
        on_step,
    )
    worst = float(np.max(reached))
    if warn and worst > tol:
        short = n_iter >= max_iter
        stuck = "it no longer falls (K too ill-conditioned, or not positive semidefinite): raise alpha or tol"
        remedy = "raise max_iter or alpha" if short else f"{stuck}, or take solver='cholesky'"
        warn_unconverged("conjugate gradients", worst, tol, n_iter, remedy)
    dual, intercept = weigh(X) * unit, (mean + shift) * unit
    return Outcome(dual, intercept, "cg", n_iter=max(n_iter, 1), residual=worst, converged=worst <= tol)


def _preconditioner(diagonal, rows, one, alphas, max_rank, rng):
    """The low-rank preconditioner of S K S + α I, times a number: K may be beyond float32's range."""
    n = len(one)
    if max_rank is None:
        max_rank = max(min(n // 4, 4000), min(n, 100))
    unit = power_of_two(np.sqrt(diagonal.max(initial=0.0)) * one.max(initial=0.0))
    one, alphas = one / unit, alphas / unit**2
    low_rank = pivoted_cholesky(
        diagonal * one**2,
        lambda index: one[index, None] * rows(index) * one,
        min(max_rank, n),
        rng=np.random.default_rng(0) if rng is None else rng,
        alpha=float(alphas.min()),
    )
    return Woodbury(low_rank, alphas)


def _rounds(exact, fast, B, precondition, constraint, tol, max_iter, on_step):
    """Conjugate gradients in rounds, each from the true residual of the last one.

    Returns the solution, the constraint's multipliers, the relative residuals and the number of products. A
    cheap product is good for some digits a round; what it missed comes back with the next residual. One that
    does not carry the matrix at all is given up.
    """
    size = np.linalg.norm(B, axis=0)
    unit = np.where(size > 0, size, 1.0)
    X, R, shift = np.zeros_like(B), B, np.zeros(B.shape[1])
    reached, n_iter, stuck = np.where(size > 0, 1.0, 0.0), 0, 0
    inner = exact if fast is None else fast
    while np.any(reached > tol) and n_iter < max_iter and stuck < 2:
        going = reached > tol
        goal = tol * size if inner is exact else np.maximum(0.3 * tol * size, 1e-3 * reached * size)
        iterate = conjugate_gradient(
            inner,
            R,
            precondition,
            target=np.where(going, 0.9 * goal, np.inf),
            max_iter=max_iter - n_iter,
            constraint=constraint,
            on_step=None if on_step is None else lambda i, r, start=n_iter: on_step(start + i, r / unit),
            # Residuals of an ill-conditioned matrix may stand for hundreds of steps before they fall.
            patience=None if inner is exact else 200,
        )
        n_iter += iterate.n_iter
        candidate = X + iterate.X
        left, offset = _residual(exact, candidate, B, constraint)
        now = np.linalg.norm(left, axis=0) / unit
        if not np.max(now[going] / reached[going]) <= 0.3:
            stuck += 1
            inner = exact
        better = now < reached
        X[:, better], shift[better], reached[better] = candidate[:, better], offset[better], now[better]
        R = left if better.all() else _residual(exact, X, B, constraint)[0]
    return X, shift, reached, n_iter


def _residual(product, X, B, s):
    """``B − A X − s shiftᵀ`` with the shift that makes it smallest, and that shift."""
    left = B - product(X, np.arange(B.shape[1]))
    if s is None:
        return left, np.zeros(B.shape[1])
    shift = (s @ left) / (s @ s)
    return left - s[:, None] * shift, shift

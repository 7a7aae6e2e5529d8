"""Kernel ridge regression as a function that is differentiated: in K, y, α and the weights.

Place on the way: ``least_squares.ridge`` and ``ridge_loo``, where an argument is traced → **traced_ridge**.

With weights the system is K + α W⁻¹, and with an intercept b the solution is G⁻¹(y − b 1). Everything is said
in NumPy functions that automatic differentiation follows; the linear systems go through the hook that it
registers, with one Cholesky factor for the value and all derivatives.

References: MLR7 (7.31); LN14, kernelised least squares.
"""

import numpy as np

from .._arrays import check_samples, check_targets, check_weights, is_traced, plain, trace_hooks
from .._threads import one_blas_thread
from .cholesky import factorize

__all__ = ["traced_loo", "traced_ridge"]


def _system(K, y, alpha, sample_weight, check_alpha):
    """K, targets (n, t), α of shape () or (t,), weights or None, and the rows that count or None."""
    K = K.formed() if hasattr(K, "formed") else K
    n = check_samples(plain(K), name="K").shape[0]
    if plain(K).shape[1] != n:
        raise ValueError(f"K must be square, got shape {K.shape}")
    targets = check_targets(plain(y), n, owner="ridge")
    n_targets = 1 if targets.ndim == 1 else targets.shape[1]
    check_alpha(plain(alpha), n_targets)
    weights = check_weights(plain(sample_weight), n)
    K, y, alpha = (value if is_traced(value) else np.asarray(value) for value in (K, y, alpha))
    keep = None
    if weights is not None:
        if not (weights > 0).all():
            keep = np.flatnonzero(weights > 0)
        weights = sample_weight if is_traced(sample_weight) else weights
        # One number stands for all rows.
        weights = weights * np.ones(n) if np.ndim(weights) == 0 else weights
    Y = np.reshape(y, (n, n_targets))
    return K, Y, alpha, weights, keep


def _factored(G):
    """A function that solves with a symmetric G, whose factor is kept."""
    values = np.array(plain(G), dtype=np.float64, order="C")
    with one_blas_thread():
        factor = factorize(values, 0.0)

    def solve(B):
        with one_blas_thread():
            return factor.solve(np.asarray(B, dtype=np.float64))

    return solve


def _inverse_products(K, alpha, weights, *right):
    """G⁻¹ B for each B, with G = K + α W⁻¹ made symmetric."""
    n = K.shape[0]
    penalty = alpha * np.ones(n) if weights is None else alpha / weights
    G = 0.5 * (K + np.transpose(K)) + np.eye(n) * penalty
    factor = _factored(G)
    return [trace_hooks["solve"](G, B, factor) for B in right]


def _mean(Y):
    return np.sum(Y, axis=0) / Y.shape[0]


def _groups(alpha, n_targets):
    """Pairs of an α and the targets that have it."""
    if np.ndim(alpha) == 0:
        return [(alpha, slice(None))]
    if alpha.shape[0] == 1:
        return [(alpha[0], slice(None))]
    return [(alpha[i], slice(i, i + 1)) for i in range(n_targets)]


def _kept(K, Y, weights, keep):
    """The rows that count."""
    if keep is None:
        return K, Y, weights
    return K[keep][:, keep], Y[keep], weights[keep]


def _solution(K, Y, alpha, weights, fit_intercept):
    """Dual coefficients (n, t) and intercepts (t,)."""
    one = np.ones((K.shape[0], 1))
    duals, intercepts = [], []
    for value, columns in _groups(alpha, Y.shape[1]):
        part = Y[:, columns]
        if not fit_intercept:
            duals += _inverse_products(K, value, weights, part)
            continue
        # Less the mean: the intercept takes it up, and digits are kept.
        mean = _mean(part)
        dual, u = _inverse_products(K, value, weights, part - mean, one)
        shift = np.sum(dual, axis=0) / np.sum(u)
        duals.append(dual - u * shift)
        intercepts.append(mean + shift)
    return np.concatenate(duals, axis=1), np.concatenate(intercepts) if fit_intercept else None


def _spread(values, keep, n):
    """Rows at their places among n, zeros elsewhere."""
    if keep is None:
        return values
    out = np.zeros((n, len(keep)))
    out[keep, np.arange(len(keep))] = 1.0
    return out @ values


def traced_ridge(K, y, alpha, sample_weight, fit_intercept, check_alpha):
    """Dual coefficients, and the intercept with `fit_intercept`, as `least_squares.ridge` returns them.

    Parameters
    ----------
    K, y, alpha, sample_weight, fit_intercept
        As for `least_squares.ridge`; any of the first four traced.
    check_alpha : callable
        ``least_squares.check_alpha``.

    Returns
    -------
    dual, or (dual, intercept)
    """
    shape = np.shape(plain(y))
    K, Y, alpha, weights, keep = _system(K, y, alpha, sample_weight, check_alpha)
    n = K.shape[0]
    inner, targets, weights = _kept(K, Y, weights, keep)
    dual, intercept = _solution(inner, targets, alpha, weights, fit_intercept)
    dual = np.reshape(_spread(dual, keep, n), shape)
    if not fit_intercept:
        return dual
    return dual, (intercept[0] if len(shape) == 1 else intercept)


def _left_out(K, Y, alpha, weights, fit_intercept):
    """(P y)ᵢ / Pᵢᵢ with P = G⁻¹, less uuᵀ/(1ᵀu), u = G⁻¹1, for the intercept."""
    identity, every = np.eye(K.shape[0]), np.arange(K.shape[0])
    out = []
    for value, columns in _groups(alpha, Y.shape[1]):
        part = Y[:, columns]
        if fit_intercept:
            part = part - _mean(part)
        (P,) = _inverse_products(K, value, weights, identity)
        if fit_intercept:
            u = np.sum(P, axis=1)
            P = P - u[:, None] * (u / np.sum(u))
        out.append((P @ part) / P[every, every][:, None])
    return np.concatenate(out, axis=1)


def traced_loo(K, y, alpha, sample_weight, fit_intercept, check_alpha):
    """Leave-one-out residuals, as `least_squares.ridge_loo` returns them.

    Parameters
    ----------
    K, y, alpha, sample_weight, fit_intercept, check_alpha
        As for `traced_ridge`.

    Returns
    -------
    array like y
    """
    shape = np.shape(plain(y))
    K, Y, alpha, weights, keep = _system(K, y, alpha, sample_weight, check_alpha)
    inner, targets, kept_weights = _kept(K, Y, weights, keep)
    inside = _left_out(inner, targets, alpha, kept_weights, fit_intercept)
    if keep is not None:
        dual, intercept = _solution(inner, targets, alpha, kept_weights, fit_intercept)
        out = Y - K[:, keep] @ dual - (intercept if fit_intercept else 0.0)
        absent = np.setdiff1d(np.arange(K.shape[0]), keep)
        inside = np.concatenate([inside, out[absent]])[np.argsort(np.concatenate([keep, absent]))]
    return np.reshape(inside, shape)

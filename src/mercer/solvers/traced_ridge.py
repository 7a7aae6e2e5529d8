"""Kernel ridge regression as a function that is differentiated: in K, y, α and the weights.

Place on the way: ``least_squares.ridge`` and ``ridge_loo``, where an argument is traced → **traced_ridge**.

With weights the system is K + α W⁻¹, and with an intercept b the solution is G⁻¹(y − b 1). Everything is said
in NumPy functions that automatic differentiation follows; the linear systems go through the hook that it
registers, with one Cholesky factor for the value and all derivatives.

References: MLR7 (7.31); LN14, kernelised least squares.
"""

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator

from .._arrays import check_samples, check_targets, check_weights, is_traced, plain, trace_hooks
from .._threads import one_blas_thread
from .cholesky import factorize

__all__ = ["traced_loo", "traced_ridge"]


def _checked(K, y, alpha, sample_weight, check_alpha):
    """K, targets (n, t), α of shape () or (t,), weights or None, and the rows that count or None."""
    if not is_traced(K) and isinstance(K, LinearOperator) and not hasattr(K, "formed"):
        K = K @ np.eye(K.shape[1])
    K = K.formed() if hasattr(K, "formed") else K
    values = check_samples(plain(K), name="K")
    n = values.shape[0]
    if values.shape[1] != n:
        raise ValueError(f"K must be square, got shape {values.shape}")
    if not is_traced(K):
        K = values.toarray() if issparse(values) else values
    targets = check_targets(plain(y), n, owner="ridge")
    n_targets = 1 if targets.ndim == 1 else targets.shape[1]
    check_alpha(plain(alpha), n_targets)
    weights = check_weights(plain(sample_weight), n)
    y, alpha = (value if is_traced(value) else np.asarray(value) for value in (y, alpha))
    keep = None
    if weights is not None:
        if not (weights > 0).all():
            keep = np.flatnonzero(weights > 0)
        weights = sample_weight if is_traced(sample_weight) else weights
        # One number stands for all rows.
        weights = weights * np.ones(n) if np.ndim(weights) == 0 else weights
    Y = np.reshape(y, (n, n_targets))
    return K, Y, alpha, weights, keep


class Factored:
    """The Cholesky factor and, once asked for, the inverse of a symmetric positive definite matrix.

    Parameters
    ----------
    G : ndarray of shape (n, n)
        Plain: tapes hold this object, which may not hold their values.
    """

    def __init__(self, G):
        self._inverse = None
        with one_blas_thread():
            self._factor = factorize(np.array(G, dtype=np.float64, order="C"), 0.0)

    def solve(self, B):
        """G⁻¹ B for B of shape (n, t)."""
        with one_blas_thread():
            return self._factor.solve(np.asarray(B, dtype=np.float64))

    @property
    def inverse(self):
        """G⁻¹, exactly symmetric."""
        if self._inverse is None:
            with one_blas_thread():
                lower, _ = lapack.dpotri(self._factor.array, lower=1)
            self._inverse = np.tril(lower) + np.tril(lower, -1).T
        return self._inverse


class _System:
    """G = K + α W⁻¹, made symmetric, and what is computed with its inverse; all of it is followed."""

    def __init__(self, K, alpha, weights):
        n = K.shape[0]
        penalty = alpha * np.ones(n) if weights is None else alpha / weights
        self.G = 0.5 * (K + np.transpose(K)) + np.eye(n) * penalty
        self.factored = Factored(plain(self.G))

    def solve(self, B):
        """G⁻¹ B."""
        return trace_hooks["solve"](self.G, B, self.factored)

    def inverse_diagonal(self):
        """diag(G⁻¹)."""
        return trace_hooks["inverse_diagonal"](self.G, self.factored)


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
        system = _System(K, value, weights)
        if not fit_intercept:
            duals.append(system.solve(part))
            continue
        # Less the mean: the intercept takes it up, and digits are kept.
        mean = _mean(part)
        dual, u = system.solve(part - mean), system.solve(one)
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
    K, Y, alpha, weights, keep = _checked(K, y, alpha, sample_weight, check_alpha)
    n = K.shape[0]
    inner, targets, weights = _kept(K, Y, weights, keep)
    dual, intercept = _solution(inner, targets, alpha, weights, fit_intercept)
    dual = np.reshape(_spread(dual, keep, n), shape)
    if not fit_intercept:
        return dual
    return dual, (intercept[0] if len(shape) == 1 else intercept)


def _left_out(K, Y, alpha, weights, fit_intercept):
    """(P y)ᵢ / Pᵢᵢ with P = G⁻¹, less uuᵀ/(1ᵀu), u = G⁻¹1, for the intercept."""
    out = []
    for value, columns in _groups(alpha, Y.shape[1]):
        part, system = Y[:, columns], _System(K, value, weights)
        diagonal = system.inverse_diagonal()[:, None]
        if not fit_intercept:
            out.append(system.solve(part) / diagonal)
            continue
        u = system.solve(np.ones((K.shape[0], 1)))
        dual = system.solve(part - _mean(part))
        out.append((dual - u * (np.sum(dual, axis=0) / np.sum(u))) / (diagonal - u * u / np.sum(u)))
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
    K, Y, alpha, weights, keep = _checked(K, y, alpha, sample_weight, check_alpha)
    inner, targets, kept_weights = _kept(K, Y, weights, keep)
    inside = _left_out(inner, targets, alpha, kept_weights, fit_intercept)
    if keep is not None:
        dual, intercept = _solution(inner, targets, alpha, kept_weights, fit_intercept)
        out = Y - K[:, keep] @ dual - (intercept if fit_intercept else 0.0)
        absent = np.setdiff1d(np.arange(K.shape[0]), keep)
        inside = np.concatenate([inside, out[absent]])[np.argsort(np.concatenate([keep, absent]))]
    return np.reshape(inside, shape)

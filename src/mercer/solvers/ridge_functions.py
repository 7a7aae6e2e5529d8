"""Kernel ridge of a given matrix, as functions that automatic differentiation follows.

Place on the way: ``least_squares``, ``traced_ridge`` → **ridge_functions** → ``estimators``.
"""

import numpy as np
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator

from .._arrays import check_samples, check_targets, check_weights, is_traced, refuse_traced, square_part
from .._threads import one_blas_thread
from .least_squares import ridge_cholesky, ridge_loo_residuals
from .traced_ridge import traced_loo, traced_ridge

__all__ = ["check_alpha", "ridge", "ridge_loo"]


def _functional(K, y, alpha, sample_weight):
    """Checked copies: rows that count, y as a matrix, one alpha per target, square roots of the weights."""
    n = K.shape[0]
    if n != K.shape[1]:
        raise ValueError(f"K must be square, got shape {K.shape}")
    y = check_targets(y, n, owner="ridge")
    Y = y.reshape(n, -1).astype(np.float64)
    alphas = check_alpha(alpha, Y.shape[1])
    weights = check_weights(sample_weight, n)
    keep = None if weights is None or (weights > 0).all() else np.flatnonzero(weights > 0)
    s = None if weights is None else np.sqrt(weights if keep is None else weights[keep])
    return y, (Y if keep is None else Y[keep]), alphas, s, keep


def check_alpha(alpha, n_targets):
    """One alpha per target, float64.

    Parameters
    ----------
    alpha : float or array_like of shape (t,)
        Not negative.
    n_targets : int
        t.

    Returns
    -------
    ndarray of shape (t,)

    Raises
    ------
    ValueError
        A negative or infinite alpha, or another number of them.
    TypeError
        If it is no number.
    """
    refuse_traced(alpha, "alpha")
    try:
        alphas = np.asarray(alpha)
        if alphas.dtype.kind not in "fiuO" or alpha is None:
            raise TypeError
        alphas = alphas.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"alpha must be a nonnegative number or one per target, got {alpha!r}") from None
    if alphas.ndim > 1 or (alphas.ndim == 1 and len(alphas) not in (1, n_targets)):
        raise ValueError(
            f"alpha must be one number or one per target ({n_targets}), got shape {alphas.shape}"
        )
    bad = ~(np.isfinite(alphas) & (alphas >= 0))
    if bad.any():
        place = "" if alphas.ndim == 0 else f" at index {int(np.argmax(bad))}"
        got = float(alphas) if alphas.ndim == 0 else float(alphas[bad][0])
        raise ValueError(
            f"alpha must be finite and not negative, got {got!r}{place}; use a small positive number"
        )
    return np.broadcast_to(alphas, (n_targets,)).astype(np.float64)


def _matrix(K):
    """K as an operator or a float array whose entries are finite."""
    if isinstance(K, LinearOperator):
        return K
    K = check_samples(K, name="K")
    return K.toarray() if issparse(K) else K


def _square(K, keep):
    """A float64 copy in C order of the rows and columns that count."""
    if isinstance(K, LinearOperator):
        K = K.formed() if hasattr(K, "formed") else K @ np.eye(K.shape[1])
    return np.array(K if keep is None else square_part(K, keep), dtype=np.float64, order="C")


def ridge(K, y, alpha=1.0, *, sample_weight=None, fit_intercept=False):
    """Dual coefficients of kernel ridge regression for a given kernel matrix.

    Automatic differentiation follows it in K (its gradient is symmetric), y, alpha and the weights, by the
    factor that solved it.

    Parameters
    ----------
    K : array_like or sparse matrix of shape (n, n), or Gram
        Symmetric; kept as it is. An operator is formed.
    y : array_like of shape (n,) or (n, t)
        Targets.
    alpha : float or array_like of shape (t,), default=1.0
        Not negative; 0 needs a regular K.
    sample_weight : array_like of shape (n,) or None, default=None
        A weight ≤ 0 removes the row: its dual coefficient is 0.
    fit_intercept : bool, default=False
        Also fit an unpenalised constant.

    Returns
    -------
    dual : ndarray like y
    intercept : float or ndarray of shape (t,)
        Only with `fit_intercept`.

    Raises
    ------
    ValueError, TypeError
        For bad input, before any work.
    NotPositiveDefinite
        If ``K + alpha·diag(1/w)`` is not, with the pivot.

    References
    ----------
    MLR7 (7.31); LN14, kernelised least squares.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.solvers import ridge
    >>> ridge(np.array([[1.0, 2.0], [2.0, 4.0]]), [1.0, 3.0], alpha=1.0)
    array([-0.16666667,  0.66666667])
    """
    if is_traced(K, y, alpha, sample_weight):
        return traced_ridge(K, y, alpha, sample_weight, fit_intercept, check_alpha)
    K = _matrix(K)
    y, Y, alphas, s, keep = _functional(K, y, alpha, sample_weight)
    with one_blas_thread():
        outcome = ridge_cholesky(_square(K, keep), Y, alphas, s=s, fit_intercept=fit_intercept)
    dual = outcome.solution
    if keep is not None:
        dual = np.zeros((K.shape[0], dual.shape[1]))
        dual[keep] = outcome.solution
    dual = dual.reshape(y.shape)
    if not fit_intercept:
        return dual
    return dual, (float(outcome.intercept[0]) if y.ndim == 1 else outcome.intercept)


def ridge_loo(K, y, alpha=1.0, *, sample_weight=None, fit_intercept=False):
    """Leave-one-out residuals ``y − ŷ₋ᵢ`` of kernel ridge regression, without a refit.

    Automatic differentiation follows it in K, y, alpha and the weights.

    Parameters
    ----------
    K, y, alpha, sample_weight, fit_intercept
        As for `ridge`. A row of weight ≤ 0 is in no fit: its residual is that of the fit.

    Returns
    -------
    ndarray like y

    References
    ----------
    MLR7 7.3; the block inverse gives ``(P y)ᵢ / Pᵢᵢ`` with P = G⁻¹, less ``uuᵀ/(1ᵀu)``, u = G⁻¹1, for the
    intercept.
    """
    if is_traced(K, y, alpha, sample_weight):
        return traced_loo(K, y, alpha, sample_weight, fit_intercept, check_alpha)
    K = _matrix(K)
    y, Y, alphas, s, keep = _functional(K, y, alpha, sample_weight)
    with one_blas_thread():
        inside = ridge_loo_residuals(_square(K, keep), Y, alphas, s=s, fit_intercept=fit_intercept)
    if keep is None:
        return inside.reshape(y.shape)
    dual = ridge(K, y, alpha, sample_weight=sample_weight, fit_intercept=fit_intercept)
    dual, intercept = dual if fit_intercept else (dual, 0.0)
    out = np.asarray(y, dtype=np.float64).reshape(len(y), -1) - ((K @ dual).reshape(len(y), -1) + intercept)
    out[keep] = inside
    return out.reshape(y.shape)

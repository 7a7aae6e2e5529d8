"""Leave-one-out residuals of kernel ridge for many penalties at once, and the spectrum's extent.

Place on the way: ``band``, ``least_squares`` → **spectral** → ``estimators``, ``model_selection``.

One orthogonal reduction of S K S serves every α; of the ways to it, the size of the problem and the number of
penalties choose:

    few α, or α below what rounding leaves of the reduction    a Cholesky factor for each
    few rows                                                   eigenvalues
    all others                                                 a band matrix, and a banded factor for each α
"""

import numpy as np
import scipy.linalg
from scipy.linalg import blas, lapack

from .._arrays import copied
from .._threads import n_threads as count_threads
from .._threads import one_blas_thread
from .band import Team, inverse_diagonals, orthogonal, reduce_to_band, row_blocks
from .least_squares import _centred, _scale, _without_intercept, ridge_loo_residuals
from .outcome import not_finite

__all__ = ["eigenvalue_range", "ridge_loo_path"]

_EPS = np.finfo(np.float64).eps
#: Up to this many rows all eigenvectors on one thread are found sooner, or before anyone who waits notices:
#: 0.35 s of one core at n = 1000 against 0.85 by a band, 2.2 against 3.7 at 2000 (50 penalties).
_FEW_ROWS = 1000
#: Up to this many penalties a Cholesky factor for each costs less than a reduction.
_FEW_ALPHAS = 4


def ridge_loo_path(K, Y, alphas, *, weights=None, fit_intercept=True, n_threads=None, check=None):
    """Leave-one-out residuals ``y − ŷ₋ᵢ`` of kernel ridge regression for each of several penalties.

    They are those of `ridge_loo_residuals` up to rounding, which is that of a Cholesky factor: some
    ``0.1 eps ‖S K S‖ / alpha`` of the largest, S² the weights, and less where K is regular. For an alpha
    below ``n eps ‖S K S‖`` there is a Cholesky factor, whose pivots tell what is not positive definite.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric, positive semidefinite, float64; kept as it is.
    Y : ndarray of shape (n, t)
        Targets, float64.
    alphas : array_like of shape (m,)
        Not negative, in any order; 0 needs a regular K.
    weights : ndarray of shape (n,) or None
        Positive.
    fit_intercept : bool
        Whether an unpenalised constant is fitted, too.
    n_threads : int or None
        Changes nothing in the result.
    check : callable or None
        Called in this thread, every 0.1 s or so but not within a Cholesky factorisation; what it raises goes
        to the caller.

    Returns
    -------
    ndarray of shape (m, n, t)
        NaN where a row's prediction without it is undefined (no other row, and an intercept).

    Raises
    ------
    ValueError
        For penalties that cannot be, and where K is infinite or NaN.
    NotPositiveDefinite
        If ``S K S + alpha I`` is not, for the smallest such alpha.

    References
    ----------
    MLR7 7.3; ``(P y)ᵢ / Pᵢᵢ`` with P = G⁻¹, less ``uuᵀ/(1ᵀu)``, u = G⁻¹1, for the intercept.
    """
    values, place = np.unique(_checked(alphas), return_inverse=True)
    n, t = Y.shape
    s = None if weights is None else np.sqrt(weights)
    out = np.empty((len(values), n, t))
    with one_blas_thread(), Team(count_threads(n_threads), check) as team:
        done = np.zeros(len(values), dtype=bool)
        floor, _ = eigenvalue_range(K, weights=weights, centred=False)
        wanted = np.flatnonzero(values > floor)
        if len(wanted) > _FEW_ALPHAS:
            A = copied(K, np.float64)
            if s is not None:
                _scale(A, s)
            B, _, unit = _centred(Y, s, fit_intercept)
            one = np.ones(n) if s is None else s
            solve = _by_eigenvalues if n <= _FEW_ROWS else _by_band
            solved, X, inverse = solve(A, np.column_stack([B, one]), values[wanted], team)
            for i, index in enumerate(wanted[solved]):
                out[index] = _residuals(X[i], inverse[i], one, unit, fit_intercept)
            done[wanted[solved]] = True
            del A
        for index in np.flatnonzero(~done):
            team.pause()
            K_lost, alpha = np.array(K, dtype=np.float64, order="C"), np.full(t, values[index])
            out[index] = ridge_loo_residuals(
                K_lost, Y, alpha, s=s, fit_intercept=fit_intercept, n_threads=n_threads
            )
    return out[place]


def _checked(alphas):
    alphas = np.asarray(alphas, dtype=np.float64)
    if alphas.ndim != 1 or not len(alphas):
        raise ValueError(f"alphas must be a sequence of at least one number, got shape {alphas.shape}")
    bad = ~(np.isfinite(alphas) & (alphas >= 0))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(f"alphas must be finite and not negative, got {alphas[i]} at index {i}")
    return alphas


def _residuals(X, inverse, one, unit, fit_intercept):
    """(P y)ᵢ / Pᵢᵢ from ``G⁻¹ [B, 1]`` and the diagonal of G⁻¹."""
    X, u = X[:, :-1], X[:, -1]
    if fit_intercept:
        X, _ = _without_intercept(X, u, one)
        inverse = inverse - u**2 / (one @ u)
        if len(one) == 1:
            inverse = np.full(1, np.nan)
    return X / (one * inverse)[:, None] * unit


def _by_eigenvalues(A, B, alphas, team):
    """Which of the penalties are large enough, ``(A + αI)⁻¹B`` and the diagonals of the inverses."""
    team.pause()
    eigenvalues, Q = np.linalg.eigh(A)  # SciPy's would keep the interpreter's lock
    least = len(A) * _EPS * np.abs(eigenvalues).max()
    solved = np.flatnonzero(alphas + eigenvalues[0] > least)
    weights = 1.0 / (eigenvalues + alphas[solved, None])
    X = Q @ (weights[:, :, None] * (Q.T @ B))
    return solved, X, weights @ (Q**2).T


def _by_band(A, B, alphas, team):
    """As `_by_eigenvalues`; A is lost."""
    band = reduce_to_band(A, _width(len(alphas)), team)
    Q = orthogonal(band, team, out=A)
    right = Q.T @ B
    factors, solutions, solved = [], [], []
    for i, alpha in enumerate(alphas):
        team.pause()
        entries = band.entries.copy(order="F")
        entries[0] += alpha
        factor, info = lapack.dpbtrf(entries, lower=1, overwrite_ab=1)
        if not info:
            solved.append(i)
            factors.append(factor)
            solutions.append(lapack.dpbtrs(factor, right, lower=1)[0])
    if not solved:
        return [], None, None
    inverse = inverse_diagonals(factors, Q, team)
    # One product for all penalties: Q is read once.
    together = np.ascontiguousarray(np.concatenate(solutions, axis=1))
    X = np.empty_like(together)

    def multiply(block):
        rows = slice(*block)
        np.matmul(Q[rows], together, out=X[rows])

    team.run(multiply, row_blocks(len(Q)))
    return solved, X.reshape(len(A), len(solved), -1).transpose(1, 0, 2), inverse


def _width(n_alphas):
    """Diagonals of the band: a wide one is reached sooner, a narrow one is solved faster."""
    return 48 if n_alphas <= 100 else 32


# ---------------------------------------------------------------- the spectrum's extent


def eigenvalue_range(K, n=None, *, weights=None, centred=True, tol=0.01, max_iter=60):
    """The largest eigenvalue of a kernel matrix by a few Lanczos steps, and the rounding error beside it.

    Penalties outside of this range do nothing, or leave nothing.

    Parameters
    ----------
    K : array_like or operator of shape (n, n), or callable
        Symmetric; a callable is ``V -> K @ V`` for V of shape (n, 1).
    n : int or None
        Rows, where `K` is a callable.
    weights : ndarray of shape (n,) or None
        Positive: then S K S is meant, S² = diag(weights).
    centred : bool
        Whether the part that an unpenalised intercept takes is left out.
    tol : float
        Relative accuracy.
    max_iter : int
        Products at most.

    Returns
    -------
    floor : float
        ``n eps`` times the largest: smaller eigenvalues are rounding error.
    largest : float
        Of an indefinite matrix, in magnitude.

    Raises
    ------
    ValueError
        Where K is infinite or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.solvers.spectral import eigenvalue_range
    >>> floor, largest = eigenvalue_range(np.diag([1.0, 2.0, 8.0]), centred=False)
    >>> round(largest, 2)
    8.0
    """
    multiply = K if callable(K) else lambda V: K @ V
    n = K.shape[0] if n is None else n
    s = np.ones(n) if weights is None else np.sqrt(weights)
    unit = s / blas.dnrm2(s) if centred else np.zeros(n)

    def product(v):
        v = np.asarray(multiply((s * v)[:, None]), dtype=np.float64)[:, 0]
        if not np.isfinite(v).all():
            raise not_finite(int(np.argmax(~np.isfinite(v))))
        v = s * v
        return v - unit * (unit @ v)

    v = np.random.default_rng(0).normal(size=n)
    v -= unit * (unit @ v)
    if centred and n == 1:
        return 0.0, 0.0
    basis, diagonal, below = [v / blas.dnrm2(v)], [], []
    while True:
        v = product(basis[-1])
        diagonal.append(float(basis[-1] @ v))
        span = np.array(basis)
        for _ in range(2):
            v = v - (span @ v) @ span
        rest = float(blas.dnrm2(v))
        values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, below)
        best = int(np.argmax(np.abs(values)))
        largest = abs(float(values[best]))
        # The residual bounds the distance to an eigenvalue.
        if rest * abs(vectors[-1, best]) <= tol * largest or len(basis) >= min(max_iter, n):
            return n * _EPS * largest, largest
        below.append(rest)
        basis.append(v / rest)

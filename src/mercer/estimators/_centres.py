"""Kernel ridge with uniformly drawn centres: f(x) = k(x, C) z + b.

Place on the way: ``_cost_problem`` → **_centres** → ``ridge``.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from .._arrays import column_scales
from ..solvers.outcome import NotPositiveDefinite, Outcome
from ._base import own_rows
from ._cost_problem import CostProblem

__all__ = ["CentredRidge"]

_ROWS = 4096


class CentredRidge(CostProblem):
    """Σ w (b + k(x, C) z − y)² + α zᵀ k(C, C) z, by the normal equations of features that whiten k(C, C).

    Parameters
    ----------
    kernel, X, weights, approximation, rng, n_jobs
        As for `CostProblem`.

    Attributes
    ----------
    drawn : bool
        Whether there are fewer centres than rows; otherwise the exact problem is the one to solve.
    """

    @property
    def drawn(self):
        return self._centres is not None

    def solve_ridge(self, Y, alphas, fit_intercept):
        """Coefficients of the features and intercepts.

        Parameters
        ----------
        Y : ndarray of shape (n, t)
            Targets of the rows that count.
        alphas : ndarray of shape (t,)
        fit_intercept : bool

        Returns
        -------
        Outcome
            Its solution is z, of shape (m, t).

        Raises
        ------
        NotPositiveDefinite
            With alpha = 0 and features that depend on each other.
        """
        features, root = self.features()
        unit = column_scales(Y)
        Y = Y / unit
        middle, mean = np.zeros(features.shape[1]), np.zeros(Y.shape[1])
        if fit_intercept:
            share = np.full(self.n, 1 / self.n) if self.weights is None else self.weights / self.weights.sum()
            middle, mean = share @ features, share @ Y
        inner, right = self._normal(features, Y, middle, mean)
        V, residual = np.empty(right.shape), 0.0
        for alpha in np.unique(alphas):
            columns = np.flatnonzero(alphas == alpha)
            V[:, columns] = _solve(inner, alpha, right[:, columns])
            left = right[:, columns] - inner @ V[:, columns] - alpha * V[:, columns]
            size = np.linalg.norm(right[:, columns], axis=0)
            relative = np.linalg.norm(left, axis=0) / np.where(size > 0, size, 1.0)
            residual = max(residual, float(relative.max()))
        intercept = mean - middle @ V
        return Outcome(root @ V * unit, intercept * unit, "centres, cholesky", residual=residual)

    def _normal(self, features, Y, middle, mean):
        """Φᵀ W Φ and Φᵀ W Y of what is centred, over fixed blocks of rows."""
        inner = np.zeros((features.shape[1],) * 2)
        right = np.zeros((features.shape[1], Y.shape[1]))
        for start in range(0, self.n, _ROWS):
            some = slice(start, start + _ROWS)
            block, targets = features[some] - middle, Y[some] - mean
            if self.weights is not None:
                s = np.sqrt(self.weights[some])[:, None]
                block, targets = block * s, targets * s
            inner += block.T @ block
            right += block.T @ targets
        return inner, right

    def kept_samples(self, dual):
        """The rows that predictions need, copied, and coefficients by them.

        Parameters
        ----------
        dual : ndarray of shape (m, t)
            z.

        Returns
        -------
        samples : ndarray, csr_array or list
            For a precomputed kernel the whole matrix, as every row is a column of later queries.
        dual : ndarray of shape (m, t) or (n, t)
        """
        rows = self._centres if self.kept is None else self.kept[self._centres]
        if not self.precomputed:
            return own_rows(self._X, rows), dual
        wide = np.zeros((self._n_all, dual.shape[1]))
        wide[rows] = dual
        return own_rows(self._X), wide


def _solve(inner, alpha, right):
    if not len(inner):
        return right
    A = inner + alpha * np.eye(len(inner))
    try:
        return cho_solve(cho_factor(A, lower=True, overwrite_a=True), right)
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(inner)[0])
        remedy = "raise alpha, or draw fewer centres"
        raise NotPositiveDefinite(0, least + alpha, remedy, name="the features' matrix") from None

"""Kernel ridge for many alphas and folds, exact, for the price of about one factorisation a fold.

Place on the way: ``least_squares``, ``shifted`` → **ridge_folds** → ``model_selection``.

    few rows                  all alphas from one eigendecomposition ("eigh")
    few alphas, or alpha = 0  a Cholesky factor each ("cholesky"), which tells of a K that is not definite
    otherwise                 one rational Krylov space ("krylov"); what it does not solve goes to "cholesky"
"""

from dataclasses import dataclass

import numpy as np

from .._arrays import square_part
from .._threads import in_threads, one_blas_thread
from .._threads import n_threads as count_threads
from .least_squares import ridge_cholesky
from .outcome import NotPositiveDefinite, not_finite
from .shifted import FoldProblem, ShiftedSpace

__all__ = ["FoldsOutcome", "ridge_folds"]

_EPS = np.finfo(np.float64).eps
#: Up to so many rows a fold is decomposed; 3 alphas or fewer have a factor each.
_SMALL, _FEW = 256, 3
#: Rows of a matrix that are looked at for infinities at a time, and alphas whose values are worked out so.
_BLOCK = 256


@dataclass(frozen=True)
class FoldsOutcome:
    """What `ridge_folds` found.

    Attributes
    ----------
    values : ndarray of shape (n_folds, m, n, t)
        Predictions for all rows, by fold and alpha; NaN where a fit failed.
    residual : ndarray of shape (n_folds, m)
        The largest relative residual over the targets.
    n_iter : ndarray of shape (n_folds,)
        Products with the matrix and solves with a factor.
    routes : tuple of str
        By fold.
    errors : dict
        (fold, index of the alpha) to the `NotPositiveDefinite` that it met; empty unless these are kept.
    dual : list of ndarray of shape (m, n, t), or None
        By fold, 0 for rows that are not in it; only if asked for.
    """

    values: np.ndarray
    residual: np.ndarray
    n_iter: np.ndarray
    routes: tuple
    errors: dict
    dual: list | None = None


def ridge_folds(
    K,
    Y,
    alphas,
    trains,
    *,
    weights=None,
    fit_intercept=True,
    keep_dual=False,
    keep_errors=False,
    n_threads=None,
    check=None,
    _route=None,
):
    """Predictions of kernel ridge fits to parts of the rows, for every alpha.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric, float64, of all rows; kept as it is.
    Y : ndarray of shape (n, t)
        Targets.
    alphas : array_like of shape (m,)
        Not negative, in any order.
    trains : sequence of ndarray of int
        The rows of each fit. A row twice in one counts twice.
    weights : ndarray of shape (n,) or None
        Rows of weight ≤ 0 are in no fit.
    fit_intercept : bool
        Whether each fit has a constant that is not penalised.
    keep_dual : bool
        Return the dual coefficients, too.
    keep_errors : bool
        Put what fails into `FoldsOutcome.errors` instead of raising it.
    n_threads : int or None
        Changes nothing in the result.
    check : callable or None
        Called every 0.1 s or so, from any thread; what it raises ends the work.

    Returns
    -------
    FoldsOutcome

    Raises
    ------
    NotPositiveDefinite
        If a fold's K plus the penalty is not, naming both.
    ValueError
        For a fold without rows, or a K that is infinite or NaN.

    Notes
    -----
    A score (R² or a mean squared error over the targets' variance) differs from that of a direct solution by
    less than 1e-6: see `ShiftedSpace`.

    References
    ----------
    MLR7 (7.31), section 7.3.
    """
    K = np.asarray(K)
    Y = np.asarray(Y, dtype=np.float64).reshape(len(K), -1)
    alphas = np.asarray(alphas, dtype=np.float64)
    _check_finite(K)
    work = _Work(K, Y, alphas, trains, weights, fit_intercept, keep_dual, keep_errors, check)
    with one_blas_thread():
        work.run(count_threads(n_threads), _route)
    return work.outcome()


def _check_finite(K):
    for start in range(0, len(K), _BLOCK):
        good = np.isfinite(K[start : start + _BLOCK]).all(axis=1)
        if not good.all():
            raise not_finite(start + int(np.argmin(good)))


class _Work:
    """The folds of one call, and where their results go."""

    def __init__(self, K, Y, alphas, trains, weights, fit_intercept, keep_dual, keep_errors, check):
        self.K, self.Y, self.weights, self.fit_intercept = K, Y, weights, fit_intercept
        self.alphas, self.place = np.unique(alphas, return_inverse=True)
        self.keep_errors = keep_errors
        self.check = _Check(check)
        self.problems = [self._problem(fold, train) for fold, train in enumerate(trains)]
        shape = (len(self.problems), len(self.alphas))
        self.values = np.full((*shape, *Y.shape), np.nan)
        self.dual = np.zeros((*shape, *Y.shape)) if keep_dual else None
        self.residual = np.full(shape, np.nan)
        self.n_iter = np.zeros(len(self.problems), dtype=int)
        self.routes = [set() for _ in self.problems]
        self.errors = {}

    def _problem(self, fold, train):
        rows = np.arange(len(self.K))[train]  # masks, too
        if self.weights is not None:
            rows = rows[self.weights[rows] > 0]
        if not len(rows):
            raise ValueError(f"fold {fold} has no row of positive weight to train on")
        return FoldProblem(self.K, self.Y, rows, self.weights, self.fit_intercept, self.check)

    # ---------------------------------------------------------------- routes

    def run(self, n_threads, forced):
        direct = {}
        spaces = []
        for fold, problem in enumerate(self.problems):
            n = len(problem.rows)
            # Below, a singular matrix fails in a factorisation: pivots of rounding error (see `factorize`).
            floor = 80 * np.sqrt(n) * _EPS * float(np.abs(problem.diagonal).max())
            apart = self.alphas <= floor
            route = forced or ("eigh" if n <= _SMALL else "krylov")
            if (forced is None and np.count_nonzero(~apart) <= _FEW) or route == "cholesky":
                apart[:] = True
            direct[fold] = np.flatnonzero(apart)
            if not apart.all():
                spaces.append((fold, route, np.flatnonzero(~apart)))
        for start in range(0, len(spaces), n_threads):
            for fold, left in self._spaces(spaces[start : start + n_threads], n_threads):
                direct[fold] = np.union1d(direct[fold], left)
        for fold, indices in direct.items():
            for index in indices:
                self._cholesky(fold, int(index), n_threads)

    def _spaces(self, wave, n_threads):
        """Solve folds side by side; (fold, indices of alphas) that are left to a direct solver."""
        share = max(1, n_threads // len(wave))
        made = []
        for fold, route, indices in wave:
            problem = self.problems[fold]
            problem.n_threads = share
            made.append(ShiftedSpace(problem, self.alphas[indices], whole=route == "eigh"))
        while not all(space.done for space in made):
            for space in made:
                if space.wanted is not None:  # all threads at one factor, and signals are met
                    space.problem.n_threads = n_threads
                    space.provide(n_threads)
                    space.problem.n_threads = share
            self._side_by_side([space.advance for space in made if not space.done], n_threads)
        found = list(zip(wave, made, strict=True))
        self._side_by_side([lambda one=one: self._enter(*one) for one in found], n_threads)
        return [(fold, indices[space.left]) for (fold, _, indices), space in found]

    def _side_by_side(self, tasks, n_threads):
        try:
            in_threads(tasks, n_threads)
        except BaseException:
            self.check.stopping = True
            raise

    def _enter(self, what, space):
        fold, route, indices = what
        good = np.flatnonzero(~space.left)
        for start in range(0, len(good), _BLOCK):
            some = good[start : start + _BLOCK]
            F, X = space.values(some)
            self.values[fold, indices[some]] = F.transpose(1, 0, 2)
            if self.dual is not None:
                for index, column in zip(indices[some], X.transpose(1, 0, 2), strict=True):
                    np.add.at(self.dual[fold, index], self.problems[fold].rows, column)
            self.check()
        self.residual[fold, indices[good]] = space.residual[good]
        self.n_iter[fold] = space.n_iter
        if len(good):
            self.routes[fold].add(route)

    def _cholesky(self, fold, index, n_threads):
        problem, alpha = self.problems[fold], float(self.alphas[index])
        self.check()
        problem.n_threads = n_threads
        rows = problem.rows
        A = square_part(self.K, rows)
        try:
            found = ridge_cholesky(
                A, self.Y[rows], np.full(self.Y.shape[1], alpha), s=problem.s,
                fit_intercept=self.fit_intercept, n_threads=n_threads,
            )  # fmt: skip
        except NotPositiveDefinite as error:
            named = f"the kernel matrix of fold {fold} with alpha={alpha:g}"
            error = NotPositiveDefinite(error.pivot, error.value, error.remedy, named)
            if not self.keep_errors:
                raise error from None
            self.errors[fold, index] = error
            return
        unweighted = found.solution if problem.s is None else found.solution / problem.s[:, None]
        self.values[fold, index] = problem.product(unweighted) + found.intercept
        if self.dual is not None:
            np.add.at(self.dual[fold, index], rows, found.solution)
        self.residual[fold, index] = found.residual
        self.n_iter[fold] += 1
        self.routes[fold].add("cholesky")

    # ---------------------------------------------------------------- results

    def outcome(self):
        place = self.place
        errors = {
            (fold, index): error
            for (fold, unique), error in self.errors.items()
            for index in np.flatnonzero(place == unique).tolist()
        }
        same = len(place) == len(self.alphas) and (place == np.arange(len(place))).all()
        dual = None
        if self.dual is not None:
            dual = list(self.dual if same else self.dual[:, place])
        return FoldsOutcome(
            self.values if same else self.values[:, place],
            self.residual[:, place],
            self.n_iter,
            tuple(" and ".join(sorted(routes)) for routes in self.routes),
            errors,
            dual,
        )


class _Check:
    """The caller's check, and whether another thread failed; it knows no folds, which know it: no cycle."""

    def __init__(self, check):
        self.check, self.stopping = check, False

    def __call__(self):
        if self.stopping:
            raise _Stopped
        if self.check is not None:
            self.check()


class _Stopped(Exception):
    """Raised in the threads when another one failed."""

"""Newton's method in the features of a kernel matrix of low rank, for any α.

Place on the way: ``newton_problem``, ``newton_system`` → **newton_primal** → ``newton``.

With K = Fᵀ F, F of shape (r, n), functions are f = Fᵀ w + b and the penalty is α ‖w‖². A step solves

    (Σᵢ [fᵢ, 1] Hᵢ [fᵢ, 1]ᵀ + 2α [I, 0]) (Δw, Δb) = −(F g + 2α w, Σ g)

of r + 1 variables for each output, fᵢ being a column of F and Hᵢ the weighted Hessian. Nothing is divided by
α: where that is so small that what K takes to 0 fills −g/(2α), K times that is rounding, and steps in
coefficients go by it. Here the part that K does not see is never formed.

The triangle R of that matrix RᵀR is Cholesky's, of products; where these leave too few digits of 2α next to
large Hessians it comes from a QR factorisation of what they are products of.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import lapack, lstsq, solve_triangular

from .._threads import in_threads
from .._threads import n_threads as count_threads

__all__ = ["Primal", "cheap_in_features", "minimise_primal", "primal_pays"]

_EPS = float(np.finfo(np.float64).eps)
#: Rows of K that a product or a QR factorisation takes up at a time; rows of F that one product is made for.
_STRETCH, _BLOCK = 4096, 128
#: A first α takes so many times less than K's trace has; then it falls tenfold, so many times at most, in as
#: many steps as it takes for a gradient of this part.
_GENTLE, _RUNGS, _ROUGHLY = 1e-2, 20, 0.1
#: Of P, a squared Newton decrement that is at its rounding if it does not fall any more. Elsewhere it has to
#: have fallen by half after so many steps, or P by this part.
_SETTLED, _PATIENCE, _SLOWEST = 1e-12, 8, 1e-6
#: Of P, a squared decrement that is what P is above its minimum at most: half of it would be but for terms of
#: third order.
_NEAR = 1e-6
#: Of a pivot, what has to be left for a factor by products.
_DIGITS = 1e-10
#: A step is taken where the slope along it has fallen to this part.
_FLAT = 0.1
#: A step's multiply-adds, those of C − 1 outputs in one, over those of a product with K up to which it is the
#: cheaper one (4000 rows: rank 400 of one output, 200 of three); some more; most of a QR factorisation, where
#: others fail.
_CHEAP, _SMALL, _MOST = 40.0, 3e7, 1e9
#: Of the tolerance, what rounding may take of P for others to reach it.
_FAILS = 1e-2
#: Of the tolerance, what rounding of K times −g/(2α) may take; of P, its own rounding.
_LOST, _BLUR = 1e-3, 1e-12


@dataclass
class Primal:
    """Where the steps have ended, of one problem.

    Attributes
    ----------
    a : ndarray of shape (n, C)
        Coefficients: −g/(2α) where K times that keeps its digits, else the smallest with F a = w.
    h : ndarray of shape (n, C)
        K a.
    b : ndarray of shape (C,)
    objective, gap, gradient : float
        As `NewtonOutcome` has them; near the minimum, where the dual's gap is rounding over α, that is the
        squared Newton decrement.
    n_iter : int
    converged : bool
    """

    a: np.ndarray
    h: np.ndarray
    b: np.ndarray
    objective: float
    gap: float
    gradient: float
    n_iter: int
    converged: bool


def cheap_in_features(n, rank, n_contrasts):
    """Whether steps in the features of a matrix of low rank are the cheaper ones.

    Parameters
    ----------
    n, rank : int
        Of K.
    n_contrasts : int
        Outputs, of a loss of vectors one less.

    Returns
    -------
    bool
    """
    return 2 * rank <= n and _adds(n, rank, n_contrasts) <= _CHEAP * n**2 + _SMALL


def _adds(n, rank, n_contrasts):
    """A step's multiply-adds."""
    return n * float(rank * n_contrasts) ** 2


def primal_pays(problems, low_rank, small, tol):
    """Whether K's features are all at hand, and steps in them are cheap or, at a tiny α, others fail.

    Parameters
    ----------
    problems : Problems
    low_rank : LowRank
    small : bool
        Whether steps of few multiply-adds are cheap where K's rank is not low, too.
    tol : float
        Of the problems.

    Returns
    -------
    bool
    """
    (rank, n), q, n_outputs = low_rank.F.shape, len(problems.alphas), problems.n_outputs
    if not rank or not low_rank.complete:
        return False
    n_contrasts = n_outputs - problems.loss.vector
    adds = _adds(n, rank, n_contrasts)
    if (small and adds <= _SMALL) or cheap_in_features(n, rank, n_contrasts):
        return True
    if adds * n_contrasts * (1 + rank / n) > _MOST:
        return False
    f = np.zeros((n, q, n_outputs))
    p = -problems.gradients(f) / (2 * problems.alphas[:, None])
    lost = problems.lost(p, low_rank.diagonal)
    return bool((lost > _FAILS * tol * np.abs(problems.costs(f))).any())


def minimise_primal(problems, product, low_rank, start, tol, max_iter, tell, n_threads=None):
    """Minimise one problem's cost over w and b.

    Parameters
    ----------
    problems : Problems
        Of one problem.
    product : callable
        ``V -> K @ V``.
    low_rank : LowRank
        K but for rounding.
    start : (a, b) or None
        Of shapes (n, C) and (C,); None is 0 at larger α, which falls from fit to fit.
    tol : float
        For the relative gradient, or for the gap over P.
    max_iter : int
        Most steps.
    tell : callable
        ``tell(n_iter, gradient)``.
    n_threads : int or None
        Changes nothing in the result.

    Returns
    -------
    Primal
    """
    F, n_outputs = low_rank.F, problems.n_outputs
    alpha, n_iter, threads = float(problems.alphas[0]), 0, count_threads(n_threads)
    w, b = np.zeros((len(F), n_outputs)), np.zeros((1, n_outputs))
    rungs = []
    if start is None:
        top = _GENTLE * float(low_rank.diagonal @ problems.weights[:, 0])
        count = int(np.clip(np.ceil(np.log10(top or alpha) - np.log10(alpha)), 0, _RUNGS))
        rungs = [top / 10.0**k for k in range(count)]
    else:
        w, b = F @ start[0], start[1].reshape(1, n_outputs)
    b = problems.centre((F.T @ w)[:, None], b)
    for rung in rungs:
        part = problems.take([0])
        part.alphas = np.array([rung])
        steps = _Steps(part, F, w, b, threads)
        n_iter += steps.run(_ROUGHLY, max_iter - n_iter)
        w, b = steps.w, steps.b
    steps = _Steps(problems, F, w, b, threads)
    n_iter += steps.run(tol, max_iter - n_iter, lambda k: tell(n_iter + k, steps.gradient))
    steps.centre()
    a, h, objective = steps.coefficients(product, low_rank.diagonal, tol)
    added = max(abs(objective - steps.objective) - _BLUR * abs(objective), 0.0)
    near = steps.decrement <= min(tol, _NEAR) * abs(steps.objective)
    gap = (min(steps.bound, steps.decrement) if near else steps.bound) + added
    least = gap if steps.gradient > tol else added
    return Primal(
        a,
        h,
        steps.b[0],
        objective,
        gap,
        steps.gradient,
        n_iter,
        bool(least <= tol * abs(objective)),
    )


class _Steps:
    """Newton's steps of one problem from (w, b), and what is known where they are.

    Several outputs have w and b in C − 1 contrasts B, as a common shift of theirs changes no cost: w = v Bᵀ.
    """

    def __init__(self, problems, F, w, b, threads):
        self.problems, self.F, self.b, self.threads = problems, F, b, threads
        self.alpha, n_outputs = float(problems.alphas[0]), problems.n_outputs
        ones_first = np.c_[np.ones(n_outputs), np.eye(n_outputs)[:, 1:]]
        self.B = np.linalg.qr(ones_first)[0][:, problems.loss.vector :]
        self.w = w @ self.B @ self.B.T  # a start may have a common part, which steps would leave
        self.constants = int(problems.fit_intercept)

    def run(self, tol, max_iter, tell=None):
        """Steps until the gradient is at most `tol`, or nothing is left but rounding; their number."""
        best, lowest, waited = np.inf, np.inf, 0
        for k in range(max_iter + 1):
            self._look()
            if tell is not None:
                tell(k)
            self.decrement, size = np.inf, abs(self.objective)
            # Slopes that are nothing but rounding, over a tiny α, lead anywhere.
            risen = not self.objective - lowest <= _SLOWEST * size
            if self.gradient <= tol or risen:
                break
            fallen = lowest - self.objective > _SLOWEST * size
            if self.objective <= lowest:
                lowest, kept = self.objective, (self.w, self.b)
            R = self._triangle()
            z = solve_triangular(R, self.slopes.ravel(), trans=1, check_finite=False)
            self.decrement = float(z @ z)
            waited = 0 if self.decrement < best / 2 or fallen else waited + 1
            best = min(best, self.decrement)
            settled = waited and self.decrement <= _SETTLED * size
            if settled or waited >= _PATIENCE or not self.decrement < np.inf or k == max_iter:
                break
            self._step(-solve_triangular(R, z, check_finite=False).reshape(self.slopes.shape).T @ self.B.T)
        if risen and lowest < np.inf:
            self.w, self.b = kept
        return k

    def centre(self):
        """Take the best b, and the figures there."""
        self.b = self.problems.centre((self.F.T @ self.w)[:, None], self.b)
        self._look()

    def _look(self):
        """Take the figures where the steps are."""
        self.f = (self.F.T @ self.w)[:, None] + self.b
        self.g = self.problems.gradients(self.f)[:, 0]
        pull, sums = self.F @ self.g, self.g.sum(axis=0)[None][: self.constants]
        slope = pull + 2 * self.alpha * self.w
        away, off, total = np.linalg.norm(slope), float(np.abs(sums).sum()), float(np.abs(self.g).sum())
        size = max(2 * self.alpha * np.linalg.norm(self.w), np.linalg.norm(pull))
        self.gradient = max(away / size if size > 0 else 0.0, off / total if total > 0 else 0.0)
        self.bound = away**2 / (4 * self.alpha) + off * float(np.abs(self.b).max())
        self.objective = float(self.problems.costs(self.f)[0] + self.alpha * np.vdot(self.w, self.w))
        self.slopes = np.ascontiguousarray((np.concatenate([slope, sums]) @ self.B).T)

    def _triangle(self):
        """R, of the system's matrix RᵀR; what is below its diagonal is to be left unread."""
        curvature, F = self.problems.curvature(self.f), self.F
        S = curvature.matrices()[:, 0] if len(self.B) > 1 else curvature.diagonal[:, 0, :, None]
        S = np.einsum("ce,ick->iek", self.B, S)
        bent = np.abs(S).max(axis=(1, 2)) > 0
        if not bent.all():
            S, F = S[bent], F[:, bent]
        ridge = np.full((S.shape[1], len(F) + self.constants), 2 * self.alpha)
        # Rows that bend may be too few to tell b.
        ridge[:, len(F) :] = _EPS * float(np.square(S).max(initial=0.0)) or 1.0
        R = _by_products(S, F, ridge, self.threads)
        return _by_reflections(S, F, ridge) if R is None else R

    def _step(self, step):
        """Move along a step to where the slope has fallen enough."""
        dw, db = np.split(step, [len(self.F)])
        df = (self.F.T @ dw + db.sum(axis=0))[:, None]
        own, other = 2 * self.alpha * np.vdot(self.w, dw), 2 * self.alpha * np.vdot(dw, dw)

        def slope(t):
            found = float(np.vdot(self.problems.gradients(self.f + t * df), df) + own + t * other)
            return found if found == found else np.inf  # beyond the range

        low, high, t = 0.0, np.inf, 1.0
        for _ in range(60):
            here = slope(t)
            if abs(here) <= _FLAT * self.decrement:
                break
            low, high = (low, t) if here > 0 else (t, high)
            t = 0.5 * (low + high) if high < np.inf else 2 * t
        self.w, self.b = self.w + t * dw, self.b + t * db.sum(axis=0)

    def coefficients(self, product, diagonal, tol):
        """Of the function that w is; K times them; and P there, where that is rounded."""
        a, counts = -self.g / (2 * self.alpha), np.flatnonzero(self.problems.weights[:, 0])
        lost = float(self.problems.lost(a[:, None], diagonal)[0])
        most = _LOST * tol * abs(self.objective)
        h, value = self._image(product, a)
        if not max(lost, abs(value - self.objective)) <= most:
            a = np.zeros_like(a)
            a[counts] = lstsq(self.F[:, counts], self.w, cond=_EPS, lapack_driver="gelsy")[0]
            h, value = self._image(product, a)
        return a, h, value

    def _image(self, product, a):
        h = product(a)
        return h, float(self.problems.costs(h[:, None] + self.b)[0] + self.alpha * np.vdot(a, h))


def _by_products(S, F, ridge, threads):
    """The factor of ``Σᵢ Sᵢ Sᵢᵀ ⊗ [fᵢ, 1] [fᵢ, 1]ᵀ`` and the ridge, or None where it has too few digits."""
    (rank, n), n_outputs = F.shape, len(ridge)
    H = np.einsum("iek,ifk->efi", S, S)
    M = np.zeros((*ridge.shape, *ridge.shape))  # of which only what is below the diagonal is read

    def fill(e, f, start):
        stop = min(start + _BLOCK, rank)
        for first in range(0, n, _STRETCH):
            columns = slice(first, first + _STRETCH)
            part = F[start:stop, columns] * H[e, f, columns]
            M[e, start:stop, f, :stop] += part @ F[:stop, columns].T
            M[e, rank:, f, start:stop] += part.sum(axis=1)

    pairs = [(e, f) for e in range(n_outputs) for f in range(e + 1)]
    # The longest ones first.
    tasks = [partial(fill, *pair, start) for start in range(0, rank, _BLOCK)[::-1] for pair in pairs]
    in_threads(tasks, threads, 0.5 * len(pairs) * n * rank**2)
    for e, f in pairs:
        M[e, rank:, f, rank:] = H[e, f].sum()
        if e > f:  # symmetric, and below the diagonal as a whole
            M[e, :, f] = np.tril(M[e, :, f]) + np.tril(M[e, :, f], -1).T
    M = M.reshape(ridge.size, ridge.size)
    M.flat[:: len(M) + 1] += ridge.ravel()
    size = np.sqrt(M.diagonal())
    M /= size
    M /= size[:, None]
    R, info = lapack.dpotrf(M.T, overwrite_a=1, clean=0)
    if info or not R.diagonal().min() ** 2 >= _DIGITS:
        return None
    R *= size
    return R


def _by_reflections(S, F, ridge):
    """The same factor by QR: products would leave nothing of a ridge of less than their rounding."""
    R, rank = np.diag(np.sqrt(ridge.ravel())), len(F)
    for start in range(0, len(S), _STRETCH):
        part = S[start : start + _STRETCH]
        rows = np.ones((ridge.shape[1], len(part)))
        rows[:rank] = F[:, start : start + _STRETCH]
        images = np.einsum("iek,ji->ikej", part, rows).reshape(-1, len(R))
        R = lapack.dgeqrf(np.asfortranarray(np.vstack([np.triu(R), images])), overwrite_a=1)[0][: len(R)]
    return R

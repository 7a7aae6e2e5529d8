"""One regularised least-squares problem for many alphas at once, by one rational Krylov space.

Place on the way: ``cholesky``, ``least_squares`` → **shifted** → ``ridge_folds``.

With A = S K S on the rows of a fold (the direction of the intercept projected out), (A + αI) c = B is solved
for every α by Galerkin's condition in one space V: T = VᵀAV, c = V (T + αI)⁻¹ VᵀB. V grows by products with A
and by solves with (A + σI), σ a pole with one Cholesky factor: each solve lessens the error at α = Rσ or σ/R
by (√R − 1)/(√R + 1) or better (Zolotarev's bound for a repeated pole), and products serve the large alphas.

The factor is in float64. With one in float32 the space is that of A + E, and residuals E c(α), which differ
from alpha to alpha, stay behind at 1e-4: 200 vectors did not remove them (cpusmall, 4000 rows).
"""

import numpy as np

from .. import _native
from .._threads import in_threads
from .cholesky import Factor, factorize
from .least_squares import _centred
from .outcome import NotPositiveDefinite

__all__ = ["FoldProblem", "ShiftedSpace"]

_EPS = np.finfo(np.float64).eps
#: Rows of K that one product takes at a time, whoever computes it: results do not depend on the threads.
_ROWS = 512
#: Right-hand sides whose residuals are worked out at a time.
_COLUMNS = 256
#: Steps until the first look at the residuals; bounds of what is done until the next.
_STEPS, _MOST_STEPS, _LEAST_STEPS = 48, 48, 6
#: Most poles of one space.
_POLES = 8


def _norms(X):
    return np.sqrt(np.einsum("ij,ij->j", X, X))


class FoldProblem:
    """(A + αI) c + S1 b = B on some rows, with A = S K S and (S1)ᵀc = 0 where there is an intercept.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric, float64; kept as it is.
    Y : ndarray of shape (n, t)
        Targets.
    rows : ndarray of int
        The rows of the fit, all of positive weight; a row may be there twice.
    weights : ndarray of shape (n,) or None
    fit_intercept : bool
    check : callable
        Called every 0.1 s or so; it may raise.

    Attributes
    ----------
    B : ndarray of shape (N, t)
        S(Y − mean), in units of powers of two.
    size : ndarray of shape (t,)
        Its columns' norms.
    """

    def __init__(self, K, Y, rows, weights, fit_intercept, check):
        self.K, self.Y, self.rows, self.check = K, Y, rows, check
        self.repeats = len(np.unique(rows)) < len(rows)
        self.s = None if weights is None else np.sqrt(weights[rows])
        self.fit_intercept = fit_intercept
        self.B, self.mean, self.unit = _centred(Y[rows], self.s, fit_intercept)
        self.size = _norms(self.B)
        self.n_threads = 1
        self._one = np.ones(len(rows)) if self.s is None else self.s
        self._unit_one = self._one / np.linalg.norm(self._one)
        diagonal = K.diagonal()[rows]
        self.diagonal = diagonal if self.s is None else diagonal * self.s**2

    def square(self):
        """A, in Fortran order."""
        n = len(self.rows)
        out = _native.empty((n, n), np.float64, self.n_threads)

        def fill(start):
            some = self.rows[start : start + _ROWS]
            part = out[start : start + _ROWS]
            np.take(self.K[some], self.rows, axis=1, out=part)
            if self.s is not None:
                part *= self.s
                part *= self.s[start : start + _ROWS, None]
            self.check()

        self._by_rows(fill, n)
        return out.T

    def product(self, V):
        """``K[:, rows] @ (S V)``, for all rows of K."""
        n = len(self.K)
        V = V if self.s is None else self.s[:, None] * V
        narrow = 2 * len(self.rows) < n  # cutting columns costs less than products with zeros
        if not narrow:
            padded = np.zeros((n, V.shape[1]))
            if self.repeats:
                np.add.at(padded, self.rows, V)
            else:
                padded[self.rows] = V
        out = np.empty((n, V.shape[1]))

        def fill(start):
            part = self.K[start : start + _ROWS]
            out[start : start + _ROWS] = part[:, self.rows] @ V if narrow else part @ padded
            self.check()

        self._by_rows(fill, n)
        return out

    def inside(self, KV):
        """A V projected, from the result of `product`."""
        AV = KV[self.rows]
        return self.project(AV if self.s is None else self.s[:, None] * AV)

    def project(self, V):
        """V less its part along S1, which no c has."""
        if not self.fit_intercept:
            return V
        return V - self._unit_one[:, None] * (self._unit_one @ V)

    def complement(self):
        """An orthonormal basis of all c."""
        if not self.fit_intercept:
            return np.eye(len(self.rows))
        return np.linalg.qr(self._unit_one[:, None], mode="complete")[0][:, 1:]

    def solved(self, factor, V):
        """(ΠAΠ + σI)⁻¹ V by a factor of A + σI, for V that Π leaves as it is."""
        if not self.fit_intercept:
            return factor.solve(V, self.n_threads)
        X = factor.solve(np.column_stack([V, self._one]), self.n_threads)
        X, u = X[:, :-1], X[:, -1]
        return X - u[:, None] * ((self._one @ X) / (self._one @ u))

    def intercepts(self, KVC):
        """The b of S1 b = B − A c in the mean, for products ``K[rows] S c`` of shape (N, m, t)."""
        if not self.fit_intercept:
            return np.zeros(KVC.shape[1:])
        weighted = self._one if self.s is None else self._one * self.s
        return (self._one @ self.B - np.tensordot(weighted, KVC, 1)) / (self._one @ self._one)

    def _by_rows(self, fill, n):
        starts = range(0, n, _ROWS)
        in_threads([lambda start=start: fill(start) for start in starts], self.n_threads)


class ShiftedSpace:
    """The space of one problem, and what is solved in it.

    Parameters
    ----------
    problem : FoldProblem
    alphas : ndarray of shape (m,)
        Ascending, positive.
    accuracy : float
        Target: the residual over ‖B‖ may be `accuracy` · √(α/λ₁), and `cap` at most.
    cap : float
    whole : bool
        Take all of the vectors at once: exact, for few rows.

    Attributes
    ----------
    wanted : float or None
        A pole whose factor `advance` waits for.
    done : bool
    left : ndarray of bool, shape (m,)
        Alphas that this space does not solve, when it is done.
    residual : ndarray of shape (m,)
        The largest over the targets, relative.
    n_iter : int
        Products and solves with blocks of vectors.
    """

    def __init__(self, problem, alphas, *, accuracy=5e-7, cap=1e-8, whole=False):
        self.problem, self.alphas, self.accuracy, self.cap = problem, alphas, accuracy, cap
        n, self.n_targets = problem.B.shape
        self.most = n - problem.fit_intercept
        self.limit = self.most if whole else min(self.most, max(400, n // 3))
        self.V = self.KV = self.AV = None
        self.k = self.n_known = self.n_iter = 0
        self.residual, self.aim = np.full(len(alphas), np.inf), np.ones(len(alphas))
        self.left, self.beyond = np.zeros((2, len(alphas)), dtype=bool)
        self.done, self.begun, self.wanted = False, whole, None
        self.sigma = self.factor = self.array = None
        self.poles, self.refused = [], 0.0
        self.history = []
        self._start(whole)

    def _start(self, whole):
        n = len(self.problem.B)
        room = self.most if whole else min(self.limit, 128)
        self.V = np.empty((n, room), order="F")
        self.KV = np.empty((len(self.problem.K), room), order="F")
        self.AV = np.empty((n, room), order="F")
        if whole:
            self.V[...] = self.problem.complement()
            self.k = self.most
            self._absorb()
            return
        self.last = slice(0, self._extend(self.problem.B[:, self.problem.size > 0]))
        # An upper bound of λ₁ that costs nothing; RBF's trace is n, its λ₁ about n/3.
        trace = float(np.abs(self.problem.diagonal).sum())
        low, high = self.alphas[0], min(self.alphas[-1], trace / 300)
        if low < 1e-3 * trace:
            # Products serve the alphas near λ₁, so the pole is in the lower part of the range: found best of
            # 5e-4, 1e-3, 2e-3, 4e-3 for alphas from 1e-4 to 1e2 on three real spectra.
            self.wanted = low * (max(high, low) / low) ** 0.26

    # ---------------------------------------------------------------- what the space is made of

    def provide(self, n_threads):
        """Factor A + σI for the pole that is wanted; a pole that is refused leaves the one before."""
        sigma, self.wanted = self.wanted, None
        self._load()
        self.poles.append(sigma)
        self.factor, self.sigma = None, None
        try:
            self.factor, self.sigma = factorize(self.array, sigma, n_threads), sigma
        except NotPositiveDefinite:
            # then A + αI is not either, for any alpha below
            self.refused = max(self.refused, sigma)
            self._restore()

    def _load(self):
        if self.array is None:
            self.array = self.problem.square()
            self.diagonal = self.array.diagonal().copy()
        elif self.factor is not None:
            self._restore()

    def _restore(self):
        self.array = Factor(self.array, self.diagonal).restored(self.diagonal)

    def _extend(self, W):
        """Append an orthonormal basis of what columns add to the space; how many that are."""
        before = self.k
        for w in W.T:
            if self.k == self.limit:
                break
            self._make_room()
            w = w / max(np.abs(w).max(), np.finfo(float).tiny)
            start = np.linalg.norm(w)
            if start == 0:
                continue
            w, kept, V = w / start, 1.0, self.V[:, : self.k]
            for _ in range(3):  # twice is enough (Kahan, Parlett) unless the second takes much away, too
                w = self.problem.project((w - V @ (w @ V))[:, None])[:, 0]
                size = np.linalg.norm(w)
                kept *= size
                if kept < 100 * _EPS:
                    break
                w = w / size
                if size > 0.7:
                    break
            if kept >= 100 * _EPS:
                self.V[:, self.k] = w
                self.k += 1
        return self.k - before

    def _make_room(self):
        if self.k < self.V.shape[1]:
            return
        room = min(self.limit, 2 * self.k)
        for name in ("V", "KV", "AV"):
            old = getattr(self, name)
            new = np.empty((len(old), room), order="F")
            new[:, : old.shape[1]] = old
            setattr(self, name, new)

    def _absorb(self):
        """Products of K with the vectors that are new."""
        new = slice(self.n_known, self.k)
        if self.k > self.n_known:
            self.KV[:, new] = self.problem.product(self.V[:, new])
            self.AV[:, new] = self.problem.inside(self.KV[:, new])
            self.n_known = self.k
        V = self.V[:, : self.k]
        T = V.T @ self.AV[:, : self.k]
        self.theta, self.U = np.linalg.eigh((T + T.T) / 2)
        self.right = self.U.T @ (V.T @ self.problem.B)

    # ---------------------------------------------------------------- what is solved in it

    def _solved(self, some):
        """Coefficients in V, (k, m', t), for some of the alphas, and residual vectors (N, m', t)."""
        V, AV = self.V[:, : self.k], self.AV[:, : self.k]
        alphas = self.alphas[some]
        inverse = 1 / (self.theta[:, None] + alphas)
        shape = (self.k, len(alphas), self.n_targets)
        C = (self.U @ (inverse[:, :, None] * self.right[:, None]).reshape(self.k, -1)).reshape(shape)
        R = self._residual(V, AV, C, alphas)
        # A second solve, for the residual, undoes the rounding of the decomposition.
        step = self.U.T @ (V.T @ R.reshape(len(R), -1))
        C += (self.U @ (inverse[:, :, None] * step.reshape(shape)).reshape(self.k, -1)).reshape(shape)
        return C, self._residual(V, AV, C, alphas)

    def _residual(self, V, AV, C, alphas):
        shape = (len(V), len(alphas), self.n_targets)
        AX = (AV @ C.reshape(self.k, -1)).reshape(shape)
        X = (V @ C.reshape(self.k, -1)).reshape(shape)
        return self.problem.B[:, None] - AX - alphas[:, None] * X

    def _judge(self):
        """Residuals of all, how far each is beyond its target, and for each target the worst one's vector."""
        size = np.where(self.problem.size > 0, self.problem.size, 1.0)
        largest = float(np.abs(self.theta).max())
        excess = np.empty((len(self.alphas), self.n_targets))
        worst, vectors = np.zeros(self.n_targets), np.zeros_like(self.problem.B)
        positive = self.theta[0] + self.alphas > 0
        self.left = ~positive
        step = max(1, _COLUMNS // self.n_targets)
        for start in range(0, len(self.alphas), step):
            some = np.arange(start, min(start + step, len(self.alphas)))
            some = some[positive[some]]
            if not len(some):
                continue
            C, R = self._solved(some)
            relative = np.sqrt(np.einsum("imt,imt->mt", R, R)) / size
            x = np.sqrt(np.einsum("imt,imt->mt", C, C)) / size
            # ‖δf‖ on other rows is at most √λ₁ ‖r‖ / 2√α, λ₁ that of K there; a score moves by twice that
            # over its targets' norm. Rounding ends the descent between these two bounds.
            alphas = self.alphas[some]
            wanted = np.minimum(self.cap, self.accuracy * np.sqrt(alphas / np.maximum(alphas, largest)))
            rounding = 4 * _EPS * (largest * x + 1)
            aim = np.maximum(wanted[:, None], rounding)
            excess[some] = relative / aim
            self.beyond[some] = (relative > np.maximum(aim, np.sqrt(len(R)) * rounding)).any(axis=1)
            self.aim[some] = aim.max(axis=1)
            self.residual[some] = relative.max(axis=1)
            for j in range(self.n_targets):
                i = int(np.argmax(excess[some, j]))
                if excess[some[i], j] > worst[j]:
                    worst[j], vectors[:, j] = excess[some[i], j], R[:, i, j]
            self.problem.check()
        excess[~positive] = 0
        return excess.max(axis=1), vectors[:, worst > 1]

    def values(self, some):
        """Predictions for all rows of K, (n, m', t), and dual coefficients (N, m', t)."""
        problem = self.problem
        C = self._solved(some)[0] if self.k else np.zeros((0, len(some), self.n_targets))
        C = C.reshape(self.k, len(some) * self.n_targets)
        shape = (-1, len(some), self.n_targets)
        F = (self.KV[:, : self.k] @ C).reshape(shape)
        F = (F + problem.intercepts(F[problem.rows]) + problem.mean) * problem.unit
        X = (self.V[:, : self.k] @ C).reshape(shape)
        return F, (X if problem.s is None else problem.s[:, None, None] * X) * problem.unit

    # ---------------------------------------------------------------- how it grows

    def advance(self):
        """Grow until all is solved, until a factor is wanted, or until nothing helps."""
        if self.k == 0:
            self.done, self.residual[:] = True, 0.0
        while not self.done and self.wanted is None:
            if self.k > self.n_known:
                self._absorb()
            if not self.begun:
                self.begun = True
                self._chain(_STEPS, True, True)
                continue
            excess, vectors = self._judge()
            open_ = excess > 1
            if not open_.any():
                self.done = True
            elif self.k >= self.limit or not (self._wants_pole(excess) or self._gains()):
                self._give_up()
            elif self.wanted is None:
                self._grow(excess, vectors)
        if self.done:
            self.array = self.factor = None

    def _grow(self, excess, vectors):
        open_ = excess > 1
        low = bool(open_[self.alphas < 10 * (self.sigma or 0)].any())
        high = bool(open_[self.alphas > (self.sigma or 0)].any())
        before = self.k
        added = self._extend(self.problem.project(vectors))
        if added:
            self.last = slice(before, self.k)
        due = self._due(excess) * (1.1 if low and high else 0.6)  # steps of one kind go to where they help
        self._chain(min(max(int(due), _LEAST_STEPS), _MOST_STEPS), low, high)
        if self.k == before:
            self._give_up()

    def _give_up(self):
        """Nothing helps any more: what is at the limit of rounding is solved, the rest is left."""
        self.left |= self.beyond
        self.done = True

    def _chain(self, n_steps, low, high):
        """Steps with the pole (for low alphas), with A (for high ones), or in turns."""
        for step in range(n_steps):
            V = self.V[:, self.last]
            with_pole = self.factor is not None and (low and (step % 2 == 0 or not high))
            W = self.problem.solved(self.factor, V) if with_pole else self._times(V)
            before = self.k
            if not self._extend(W):
                return
            self.last = slice(before, self.k)
            self.n_iter += 1
            self.problem.check()

    def _times(self, V):
        self._load_once()
        return self.problem.project(
            _native.symmetric_product(self.array, self.diagonal, V, self.problem.n_threads)
        )

    def _load_once(self):
        if self.array is None:
            self._load()

    def _gains(self):
        """Whether the last rounds with this pole brought anything: three without are the end."""
        return len(self.history) < 4 or self.history[-1][0].max() < 0.5 * self.history[-4][0].max()

    def _due(self, excess):
        """Steps that the worst alpha still needs at the rate of the last round."""
        worst = int(np.argmax(excess))
        before, k = 1 / self.aim[worst], 0
        if len(self.history) > 1:
            before, k = self.history[-2][0][worst], self.history[-2][1]
        gain = np.log(max(before, 1.0) / excess[worst]) / max(1, self.k - k)
        return np.log(excess[worst]) / max(gain, 1e-3) / self.n_targets

    def _wants_pole(self, excess):
        """Set `wanted` where the steps still due cost more than a factor, going by the last round."""
        self.history.append((excess, self.k))
        if len(self.history) < 2 or len(self.poles) >= _POLES:
            return False
        # A factor of n rows costs about n/75 solves: n³/3 at 25 Gflop/s, n² numbers at 8 GB/s.
        if self._due(excess) < 60 + len(self.problem.rows) / 40:
            return False
        alpha = self.alphas[np.argmax(excess)]
        near = alpha if self.sigma is None else alpha * (self.sigma / alpha) ** (1 / 3)
        if near <= self.refused or any(max(near / p, p / near) < 1.5 for p in self.poles):
            return False
        self.wanted = near
        del self.history[:-1]
        return True

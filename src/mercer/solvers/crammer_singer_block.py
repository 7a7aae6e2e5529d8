"""A block of samples of Crammer and Singer's machine, solved while all others are held.

Place on the way: **crammer_singer_block** → ``crammer_singer``.

Sweeps of exact solves by sample find which variables are at their bounds, Newton's steps over those that are
not settle the rest. The first are cheap and coarse, the second make up for kernels of bad condition.
"""

import numpy as np
from scipy.linalg import lapack

__all__ = ["Block", "free_variables", "violation_of"]

# So many sweeps before each of so many Newton's steps, at most.
_SWEEPS, _ROUNDS = 3, 30
# Newton's equations in up to so many variables by Cholesky, in more by conjugate gradients: 600 took 1.5
# times as long at C = 10, and 1500 took 2.4 times as long at C = 100.
_DIRECT = 2200
_CG_STEPS, _CG_RESIDUAL, _CG_PROGRESS = 60, 0.1, 1e-3


# ---------------------------------------------------------------- one sample


def free_variables(A, cap, y):
    """Which variables may grow: A_im < Cᵢ [m = yᵢ]. All may shrink."""
    free, each = A < 0, np.arange(len(A))
    free[each, y] = A[each, y] < cap
    return free


def violation_of(g, A, cap, y):
    """Each sample's violation of the optimality conditions; 0 of removed ones."""
    least = np.where(free_variables(A, cap, y), g, np.inf).min(axis=1)
    return np.where(cap > 0, g.max(axis=1) - least, 0.0)


def _settled(g, a, c, y, target):
    """Whether one sample's violation is at most `target`, in plain numbers."""
    least = g[y] if a[y] < c else np.inf
    for x, z in zip(g, a, strict=True):
        if z < 0 and x < least:
            least = x
    return max(g) - least <= target


def _solve_sample(g, a, c, y, d):
    """The minimiser of ½d|x − a|² + gᵀx over Σx = 0, x ≤ c[m = y]: xₘ = −(uₘ − θ)₊/d for rivals m.

    u = g − da, less its own class's value. Plain numbers: for a few classes NumPy's calls take longer.
    """
    own = g[y] - d * a[y]
    u = [x - d * z - own for x, z in zip(g, a, strict=True)]
    u[y] = -np.inf
    order = sorted(u, reverse=True)
    # free: the own class is one more term of the mean, of value 0
    total, theta, count = 0.0, 0.0, 1
    for x in order:
        if x <= theta:
            break
        total, count = total + x, count + 1
        theta = total / count
    if theta <= c * d:
        new = [(theta - x) / d if x > theta else 0.0 for x in u]
        new[y] = min(c, -sum(new))
        return new
    total, theta, count = -c * d, -np.inf, 0
    for x in order:
        if x <= theta:
            break
        total, count = total + x, count + 1
        theta = total / count
    new = [(theta - x) / d if x > theta else 0.0 for x in u]
    size = -sum(new)
    # c d below the rounding of u: all of it goes to the largest
    if size <= 0:
        new, size = [-1.0 if x == order[0] else 0.0 for x in u], float(u.count(order[0]))
    new = [x * (c / size) for x in new]
    new[y] = c
    return new


def _nearest(P, cap, y):
    """The feasible rows nearest to those of P, whose sums are zero: `_solve_sample` for many."""
    each, counts = np.arange(len(P)), np.arange(1, P.shape[1])
    u = P[each, y][:, None] - P
    u[each, y] = -np.inf
    order = -np.sort(-u, axis=1)[:, :-1]
    sums = np.cumsum(order, axis=1)
    n = np.count_nonzero(order * (counts + 1) > sums, axis=1)
    theta = np.where(n > 0, sums[each, np.maximum(n, 1) - 1] / (n + 1), 0.0)
    full = np.flatnonzero(theta > cap)
    if len(full):
        rest = sums[full] - cap[full, None]
        n = np.maximum(np.count_nonzero(order[full] * counts > rest, axis=1), 1)
        theta[full] = rest[np.arange(len(full)), n - 1] / n
    A = np.minimum(theta[:, None] - u, 0.0)
    A[each, y] = 0.0
    A[each, y] = np.minimum(cap, -A.sum(axis=1))
    A[full, y[full]] = cap[full]
    return A


# ---------------------------------------------------------------- one block


class Block:
    """Samples that move while all others are held: K among them, their gradient g, variables A, bounds."""

    def __init__(self, K, g, A, cap, y, d):
        self.K, self.g, self.A, self.cap, self.y, self.d = K, g, A, cap, y, d

    def solve(self, target, damping):
        """Reduce the violation to `target`; returns the damping for Newton's steps of the next block."""
        for _ in range(_ROUNDS):
            self._sweep(target)
            if self._reached(target):
                break
            direction = self._newton(damping)
            reached = 0.0 if direction is None else self._search(*direction)
            damping *= 10 if reached < 0.1 else 0.1 if reached > 0.5 else 1
            damping = min(max(damping, 1e-10), 1.0)
            if self._reached(target):
                break
        # what rounding left of the sums
        each = np.arange(len(self.A))
        own = self.A[each, self.y]
        self.A[each, self.y] = 0.0
        self.A[each, self.y] = np.where(own < self.cap, np.minimum(-self.A.sum(axis=1), self.cap), self.cap)
        return damping

    def _reached(self, target):
        return violation_of(self.g, self.A, self.cap, self.y).max() <= target

    def _sweep(self, target):
        """Exact solves of one sample after another, the worst first, where it violates by over `target`."""
        g, A = np.ascontiguousarray(self.g.T), self.A
        cap, y, d = self.cap.tolist(), self.y.tolist(), self.d.tolist()
        for _ in range(_SWEEPS):
            violation = violation_of(g.T, A, self.cap, self.y)
            order = np.flatnonzero(violation > target)
            for i in order[np.argsort(-violation[order], kind="stable")].tolist():
                slope, old, row = g[:, i].tolist(), A[i].tolist(), self.K[i]
                if _settled(slope, old, cap[i], y[i], target):
                    continue
                new = _solve_sample(slope, old, cap[i], y[i], d[i])
                for m, (after, before) in enumerate(zip(new, old, strict=True)):
                    if after != before:
                        g[m] += (after - before) * row
                A[i] = new
            if not len(order):
                break
        self.g = np.ascontiguousarray(g.T)

    def _newton(self, damping):
        """A direction over the free variables of samples with two or more, and which these are; or None.

        The curvature is that of K + `damping` times d: samples that are equal, or 0, make no singular system.
        """
        free = free_variables(self.A, self.cap, self.y)
        count = free.sum(axis=1)
        free[count < 2] = False
        size = int(np.maximum(count - 1, 0).sum())
        if size == 0:
            return None
        D = self._direct(free, damping) if size <= _DIRECT else self._iterated(free, damping)
        return None if D is None else (D, free)

    def _direct(self, free, damping):
        """Newton's direction by Cholesky, each sample's sum eliminated by a reference class."""
        each = np.arange(len(free))
        reference = np.where(free[each, self.y], self.y, np.argmin(self.A, axis=1))
        rest = free.copy()
        rest[each, reference] = False
        i, m = np.nonzero(rest)
        r = reference[i]
        K = self.K[np.ix_(i, i)]
        same = np.nonzero(i[:, None] == i)
        K[same] += damping * self.d[i[same[0]]]
        signs = (m[:, None] == m).astype(np.int8) - (m[:, None] == r) - (r[:, None] == m) + (r[:, None] == r)
        K *= signs
        # K's transpose is in Fortran order, and K is symmetric
        _, x, status = lapack.dposv(K.T, self.g[i, r] - self.g[i, m], lower=1, overwrite_a=1)
        if status or not np.isfinite(x).all():
            return None
        D = np.zeros_like(self.A)
        D[i, m] = x
        D[each, reference] -= D.sum(axis=1)
        return D

    def _iterated(self, free, damping):
        """Newton's direction by conjugate gradients, projected on sums of zero."""
        inner = np.flatnonzero(free.any(axis=1))
        K, d, mask = self.K[np.ix_(inner, inner)], self.d[inner, None], free[inner].astype(np.float64)
        share = mask / mask.sum(axis=1, keepdims=True)

        def project(V):
            return V * mask - (V * mask).sum(axis=1, keepdims=True) * share

        X, R = np.zeros_like(mask), -project(self.g[inner])
        P = R / d
        rho = first = float(np.vdot(R, P))
        most = 0.0
        for _ in range(_CG_STEPS):
            if rho <= _CG_RESIDUAL**2 * first:
                break
            Q = project(K @ P) + damping * d * P
            curvature = float(np.vdot(P, Q))
            if curvature <= 0:
                break
            step = rho / curvature
            X += step * P
            R -= step * Q
            if step * rho <= _CG_PROGRESS * most:
                break
            most = max(most, step * rho)
            Z = R / d
            rho, before = float(np.vdot(R, Z)), rho
            P = Z + rho / before * P
        D = np.zeros_like(self.A)
        D[inner] = X
        return D

    def _search(self, D, free):
        """Move along the projection of the ray A + t D; returns t, zero if the objective would not fall.

        On the ray, and not on the line to its projection at t = 1, variables come to their bounds.
        """
        t = 1.0
        for last in (False, False, False, True):
            P = self._projected(self.A + t * D, free)
            change = P - self.A
            product = self.K @ change
            slope, curvature = float(np.vdot(self.g, change)), float(np.vdot(change, product))
            if slope >= 0:
                t *= 0.1
                continue
            best = 1.0 if curvature <= -slope else -slope / curvature
            whole = slope + 0.5 * curvature <= 0.5 * best * (slope + 0.5 * best * curvature)
            if whole or last:
                self.A = P if whole else self.A + best * change
                self.g = self.g + (1.0 if whole else best) * product
                return t if whole else best * t
            t *= min(max(best, 0.1), 0.7)
        return 0.0

    def _projected(self, P, free):
        outside, each = P > 0, np.arange(len(P))
        outside[each, self.y] = P[each, self.y] > self.cap
        rows = np.flatnonzero(outside.any(axis=1))
        if len(rows):
            P[rows] = np.where(free[rows], _nearest(P[rows], self.cap[rows], self.y[rows]), self.A[rows])
        return P

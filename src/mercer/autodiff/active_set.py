"""A program's solution with plain data: exact on its active set, and called degenerate where it is."""

import numpy as np
import scipy.linalg

from mercer.autodiff.factors import LU

__all__ = ["Point"]

#: Slacks and multipliers below this, relative to the data, are zero once they are exact …
EXACT_TOL = 1e-9
#: … and below this where they are as the solver left them.
SOLVER_TOL = 1e-6


class Point:
    """A program with plain data: its solution, made exact on the active set, and what is degenerate there.

    Attributes
    ----------
    x, y, z : ndarray
    strong, weak : ndarray of int
        Rows of G that hold with equality and have a positive, or no multiplier.
    factor : LU or None
        Of the KKT matrix of the strongly active rows.
    """

    def __init__(self, P, q, G, h, A, b):
        self.P, self.q, self.G, self.h, self.A, self.b = P, q, G, h, A, b
        self.norms = np.linalg.norm(G, axis=1)
        self.strong = self.weak = np.zeros(0, int)
        self.factor = None

    def solve(self, solver):
        """Find the solution by a solver, then exactly on its active set if the KKT matrix is regular."""
        if not len(self.h) and self._exact(self.strong):
            return
        found = solver(self.P, self.q, self.G, self.h, self.A, self.b)
        self.x, self.y, self.z = (np.asarray(part, np.float64) for part in found)
        slack, multiplier = self._relative(self.x, self.y, self.z)
        active = np.flatnonzero(multiplier > slack)
        if not self._polish(active):
            self.x, self.y, self.z = (np.asarray(part, np.float64) for part in found)
            self.factor = None
            self.weak = np.flatnonzero((slack <= SOLVER_TOL) & (multiplier <= SOLVER_TOL))
            self.strong = np.setdiff1d(active, self.weak)

    def _relative(self, x, y, z):
        """Return slacks and multipliers relative to the size of x and of the gradient."""
        slack = self.h - self.G @ x
        size = self.norms * np.max(abs(x), initial=0.0) + abs(self.h)
        terms = [abs(self.q), abs(self.P @ x), abs(self.A.T @ y), abs(z) * self.norms]
        gradient = max(np.max(t, initial=0.0) for t in terms)
        return slack / np.where(size > 0, size, 1.0), z * self.norms / (gradient or 1.0)

    def _polish(self, active):
        """Solve the KKT system of the active rows, exchanging those that contradict it; say if it holds."""
        for _ in range(20):
            if not self._exact(active):
                return False
            slack, multiplier = self._relative(self.x, self.y, self.z)
            tol = min(max(EXACT_TOL, 1e2 * np.finfo(float).eps / self.factor.rcond), SOLVER_TOL)
            inside = np.zeros(len(self.h), bool)
            inside[active] = True
            violated, negative = ~inside & (slack < -tol), inside & (multiplier < -tol)
            if not (violated.any() or negative.any()):
                self.weak = np.flatnonzero(np.where(inside, multiplier, slack) <= tol)
                self.strong = active
                return True
            active = np.flatnonzero((inside | violated) & ~negative)
        return False

    def _exact(self, active):
        """Factor the KKT matrix of active rows and solve; say whether it is regular."""
        G = self.G[active]
        n, p, k = len(self.q), len(self.b), len(active)
        self.factor = None
        if p + k > n:
            return False
        K = np.zeros((n + p + k,) * 2)
        K[:n, :n] = self.P
        K[n : n + p, :n], K[n + p :, :n] = self.A, G
        K[:n, n : n + p], K[:n, n + p :] = self.A.T, G.T
        # Units of the objective and the rows are no bad condition: P and the normals become about 1.
        root = np.sqrt(np.max(abs(self.P)) or 1.0)
        norms = np.concatenate([np.linalg.norm(self.A, axis=1), self.norms[active]])
        factor = LU(K, np.concatenate([np.full(n, 1 / root), root / np.where(norms > 0, norms, 1.0)]))
        if not factor.rcond > 10 * np.finfo(float).eps:
            return False
        right = np.concatenate([-self.q, self.b, self.h[active]])
        w = factor.solve(right)
        w = w + factor.solve(right - K @ w)
        self.x, self.y, self.z = w[:n], w[n : n + p], np.zeros(len(self.h))
        self.z[active] = w[n + p :]
        self.factor = factor
        return True

    @property
    def regular(self):
        """Whether the solution is a smooth function of the data."""
        return self.factor is not None and not self.weak.size

    def w(self):
        """Return x, y and the multipliers of the strongly active rows as one vector."""
        return np.concatenate([self.x, self.y, self.z[self.strong]])

    def value(self):
        """Return the objective."""
        return self.x @ (self.P @ self.x) / 2 + self.q @ self.x

    # -- what is wrong --------------------------------------------------------------------------------------

    def diagnosis(self, inequalities, equations):
        """Return what fails ("LICQ", "strict complementarity", "uniqueness") and a text for each."""
        reasons, texts = [], []
        strong = np.setdiff1d(self.strong, self.weak)
        everything = np.concatenate([strong, self.weak]).astype(int)
        names = equations + [inequalities[i] for i in everything]
        rank = self._rank(everything)
        if rank < len(names):
            reasons.append("LICQ")
            texts.append(
                f"LICQ fails (a degenerate vertex, or redundant rows): the {len(names)} active constraints "
                f"({_listed(names)}) have gradients of rank {rank}, so their multipliers are not unique"
            )
        if self._flat(strong):
            reasons.append("uniqueness")
            texts.append(
                "the solution is not unique to first order: along some direction neither the objective nor "
                "the constraints with positive multipliers change"
                + (f" ({_listed([inequalities[i] for i in self.weak])} have none)" if self.weak.size else "")
            )
        elif self.weak.size:
            reasons.append("strict complementarity")
            texts.append(
                f"strict complementarity fails: {_listed([inequalities[i] for i in self.weak])} hold with "
                "equality but have the multiplier 0 (weakly active), so there are one-sided derivatives only"
            )
        if not reasons:
            texts.append("the active constraints cannot be told from the solver's answer")
        return reasons, texts

    def _normals(self, rows):
        normals = np.concatenate([self.A, self.G[rows]])
        norms = np.linalg.norm(normals, axis=1)
        return normals / np.where(norms > 0, norms, 1.0)[:, None]

    def _rank(self, rows):
        values = np.linalg.svd(self._normals(rows), compute_uv=False)
        return int(np.sum(values > 1e-10 * np.max(values, initial=0.0)))

    def _flat(self, rows):
        """Whether P is singular on the directions along which equations and rows keep their values."""
        normals = self._normals(rows)
        free = scipy.linalg.null_space(normals, rcond=1e-10) if len(normals) else np.eye(len(self.q))
        if not free.shape[1]:
            return False
        curvature = np.linalg.eigvalsh(free.T @ self.P @ free)
        return bool(curvature[0] <= 1e-10 * np.max(abs(self.P)))


def _listed(names):
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

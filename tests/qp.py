"""The duals of the five support vector machines, solved without SMO: what the tests hold a fit against.

Each is min ½aᵀQa + pᵀa with 0 ≤ a ≤ u and one or two fixed sums Σ sᵢaᵢ = e, each over variables of its own.
Clarabel, a general interior-point solver, goes to about 1e-9; one solve of the KKT equations on the active
set that it found goes to the last digits, and `solve` raises unless the optimality conditions then hold.
"""

from dataclasses import dataclass

import clarabel
import numpy as np
import scipy.sparse as sp

# Regularisations and equilibrations of Clarabel to try in turn: 1 problem in 100 needs more than the first.
ATTEMPTS = [(r, e) for r in (1e-8, 1e-11, 1e-6, 1e-4) for e in (True, False)]


class Unbounded(Exception):
    """A hard margin on inseparable samples: the dual has no minimum."""


class Infeasible(Exception):
    """No variables have the sums that nu asks for."""


@dataclass(frozen=True)
class Dual:
    """One dual problem; n samples, N variables.

    ``spread`` (n, N) takes the variables to the coefficients of the expansion, β = spread @ a, so that
    Q = spreadᵀ K spread. ``signs`` (k, N) holds a row of ±1, and 0 elsewhere, per fixed sum.
    """

    kind: str
    K: np.ndarray
    spread: np.ndarray
    linear: np.ndarray
    upper: np.ndarray
    signs: np.ndarray
    totals: np.ndarray

    @property
    def Q(self):
        return self.spread.T @ self.K @ self.spread

    def objective(self, a):
        beta = self.spread @ a
        return 0.5 * beta @ self.K @ beta + self.linear @ a

    def gradient(self, a):
        return self.spread.T @ (self.K @ (self.spread @ a)) + self.linear

    def multipliers(self, a):
        """The interval (lo, hi) of each sum's optimal multiplier; lo > hi by the violation of optimality."""
        v = -self.gradient(a)
        intervals = []
        for s in self.signs:
            grows, shrinks = a < self.upper, a > 0
            up = ((s > 0) & grows) | ((s < 0) & shrinks)
            down = ((s > 0) & shrinks) | ((s < 0) & grows)
            values = s * v
            intervals.append((values[up].max(initial=-np.inf), values[down].min(initial=np.inf)))
        return np.array(intervals)


@dataclass(frozen=True)
class Solution:
    """An optimum: β (one of them), the values Kβ, the objective and the optimal biases (the only ones).

    ``scale`` is ρ of ν-SVC, whose decision values are (Kβ + b)/ρ, and 1 for the others.
    """

    dual: Dual
    a: np.ndarray
    beta: np.ndarray
    objective: float
    multipliers: np.ndarray

    @property
    def free(self):
        """Whether a variable lies inside of its box, so that the bias is one number."""
        return bool(np.all(self.multipliers[:, 1] - self.multipliers[:, 0] < 1e-7))

    @property
    def bias_interval(self):
        lo, hi = self.multipliers.T
        if len(lo) == 1:
            return lo[0], hi[0]
        return (lo[0] - hi[1]) / 2, (hi[0] - lo[1]) / 2

    @property
    def bias(self):
        """LIBSVM's: each multiplier at the middle of its interval, or at its end if it has but one."""
        m = _middles(self.multipliers)
        return m[0] if len(m) == 1 else (m[0] - m[1]) / 2

    @property
    def scale(self):
        return -_middles(self.multipliers).sum() / 2 if self.dual.kind == "nu_svc" else 1.0

    def decision(self, K):
        """Decision values at new points, K their kernel values with the samples (m, n)."""
        return (K @ self.beta + self.bias) / self.scale


def _middles(intervals):
    lo, hi = intervals.T
    return np.where(np.isinf(lo), hi, np.where(np.isinf(hi), lo, (np.nan_to_num(lo) + np.nan_to_num(hi)) / 2))


# ------------------------------------------------------------------------------------------- the duals


def c_svc(K, y, C):
    """½‖w‖² + ΣCᵢξᵢ; y is ±1, C one number per sample, inf for a hard margin."""
    y, C = np.asarray(y, float), np.broadcast_to(np.asarray(C, float), len(y))
    return Dual("c_svc", K, np.diag(y), -np.ones(len(y)), C, y[None], np.zeros(1))


def nu_svc(K, y, nu, weights):
    """½‖w‖² − νρΣwᵢ + Σwᵢξᵢ, y(f + b) ≥ ρ − ξ, as LIBSVM solves it before the division by ρ."""
    y, weights = np.asarray(y, float), np.asarray(weights, float)
    signs = np.array([y > 0, y < 0], float)
    totals = np.full(2, nu * weights.sum() / 2)
    if np.any(totals > signs @ weights * (1 + 1e-12)):
        raise Infeasible
    return Dual("nu_svc", K, np.diag(y), np.zeros(len(y)), weights, signs, totals)


def _regression(kind, K, linear, C, signs, totals):
    n = len(K)
    spread = np.hstack([np.eye(n), -np.eye(n)])
    return Dual(kind, K, spread, linear, np.tile(np.broadcast_to(np.asarray(C, float), n), 2), signs, totals)


def epsilon_svr(K, y, C, epsilon):
    """½‖w‖² + ΣCᵢ(|y − f − b| − ε)₊."""
    ones = np.ones(len(y))
    return _regression(
        "epsilon_svr",
        K,
        np.hstack([epsilon - y, epsilon + y]),
        C,
        np.hstack([ones, -ones])[None],
        np.zeros(1),
    )


def nu_svr(K, y, C, nu):
    """½‖w‖² + νεΣCᵢ + ΣCᵢ(|y − f − b| − ε)₊, ε a variable, too."""
    n = len(y)
    half = nu * np.broadcast_to(C, n).sum() / 2
    signs = np.kron(np.eye(2), np.ones(n))
    return _regression("nu_svr", K, np.hstack([-y, y]), C, signs, np.full(2, half))


def one_class(K, nu, weights):
    """½‖w‖² − νρΣwᵢ + Σwᵢ(ρ − f)₊; the bias is −ρ."""
    weights = np.asarray(weights, float)
    n = len(weights)
    totals = np.array([nu * weights.sum()])
    return Dual("one_class", K, np.eye(n), np.zeros(n), weights, np.ones((1, n)), totals)


# ------------------------------------------------------------------------------------------- the solver


def solve(dual, tol=1e-9):
    """The optimum of a dual.

    Raises
    ------
    Unbounded
        If a hard margin has no solution.
    ArithmeticError
        If the optimality conditions fail by more than `tol`, relative to the largest gradient.
    """
    u, full = dual.upper, np.zeros(len(dual.upper), bool)
    for s, total in zip(dual.signs, dual.totals, strict=True):
        # A sum that takes all that there is leaves no room inside of the box.
        full |= (s != 0) & np.all(s >= 0) & (total >= u[s != 0].sum() * (1 - 1e-12))
    moves = (u > 0) & ~full
    errors = []
    for regularization, equilibrate in ATTEMPTS:
        a = np.where(full, u, 0.0)
        if moves.any():
            lower, upper = _interior_point(dual, a, moves, regularization, equilibrate)
            _polish(dual, a, moves & ~lower & ~upper)
        multipliers = dual.multipliers(a)
        violation = np.max(multipliers[:, 0] - multipliers[:, 1]) / (1 + np.abs(dual.gradient(a)).max())
        residual = np.abs(dual.signs @ a - dual.totals).max() / (1 + np.abs(a).max())
        if max(violation, residual) <= tol:
            return Solution(dual, a, dual.spread @ a, dual.objective(a), multipliers)
        errors.append(f"{violation:.1e} (gap), {residual:.1e} (sums)")
    raise ArithmeticError("the oracle is off by " + "; ".join(errors))


def _interior_point(dual, a, moves, regularization, equilibrate):
    """Fill in ``a[moves]``; which of all variables lie at 0, which at their upper bound."""
    m, Q = int(moves.sum()), dual.Q
    finite = np.isfinite(dual.upper[moves])
    signs = dual.signs[:, moves]
    rows = np.flatnonzero(np.any(signs != 0, axis=1))
    A = np.vstack([signs[rows], -np.eye(m), np.eye(m)[finite]])
    b = np.hstack([(dual.totals - dual.signs @ a)[rows], np.zeros(m), dual.upper[moves][finite]])
    linear = dual.linear[moves] + Q[moves] @ a
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_iter = False, 500
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    settings.static_regularization_constant, settings.equilibrate_enable = regularization, equilibrate
    cones = [clarabel.ZeroConeT(len(rows)), clarabel.NonnegativeConeT(m + int(finite.sum()))]
    P = sp.csc_matrix(np.triu(Q[np.ix_(moves, moves)]))
    result = clarabel.DefaultSolver(P, linear, sp.csc_matrix(A), b, cones, settings).solve()
    if "DualInfeasible" in str(result.status):
        raise Unbounded
    x, z = np.array(result.x), np.array(result.z)[len(rows) :]
    pressed = np.zeros(m)
    pressed[finite] = z[m:]
    upper = np.zeros(len(a), bool)
    lower = upper.copy()
    lower[moves] = z[:m] > x
    upper[moves] = pressed > dual.upper[moves] - x
    a[moves] = x
    a[lower], a[upper] = 0, dual.upper[upper]
    return lower, upper


def _polish(dual, a, free):
    """Newton's steps on the free variables, each the shortest that solves the KKT equations.

    A variable that a step would take out of its box stays at the bound from then on.
    """
    for _ in range(6):
        rows = np.flatnonzero(np.any(dual.signs[:, free] != 0, axis=1))
        if not len(rows):
            return
        S, Q = dual.signs[rows][:, free], dual.Q[np.ix_(free, free)]
        system = np.block([[Q, S.T], [S, np.zeros((len(rows), len(rows)))]])
        residual = np.hstack([-dual.gradient(a)[free], (dual.totals - dual.signs @ a)[rows]])
        # An equation that many solve (equal rows) loses those digits that its smallest values lack.
        step = np.linalg.lstsq(system, residual, rcond=1e-13)[0][: len(Q)]
        a[free] = np.clip(a[free] + step, 0, dual.upper[free])
        free = free & (a > 0) & (a < dual.upper)

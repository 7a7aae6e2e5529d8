"""Linear and quadratic programs, differentiable in all their data (LINMA 1.8.2).

    minimise ½ xᵀPx + qᵀx  subject to  Gx ≤ h,  Ax = b                      (a linear program has P = 0)

A solver gives values. The inequalities that hold with equality and have a positive multiplier are the active
ones; they and the equations make the KKT conditions (1.51) a square system F(w, data) = 0 in w = (x, y, z of
the active), linear in w, with the symmetric matrix

    K = [[P, Aᵀ, G_aᵀ], [A, 0, 0], [G_a, 0, 0]].

Where K is regular and no constraint is active by a hair, one LU of it gives values to rounding and
derivatives of every order by `implicit.continued`; (1.52) without its inactive rows, whose multipliers are
zero. Elsewhere the solution has no derivative, and what fails is named.

The way through: solver → ``active_set`` → K → `Solved` → `ProgramSolution`.
"""

import functools

import numpy as np

from mercer.autodiff.active_set import Point
from mercer.autodiff.factors import ImplicitFunctionError
from mercer.autodiff.implicit import check_condition, continued, levels
from mercer.autodiff.trace import Traced, plain

__all__ = ["DegenerateProgram", "ProgramSolution", "UnsolvedProgram", "linear_program", "quadratic_program"]


class UnsolvedProgram(ValueError):
    """A program has no solution, or the solver found none."""


class DegenerateProgram(ImplicitFunctionError):
    """A program's solution is no differentiable function of its data.

    Attributes
    ----------
    reasons : tuple of str
        What fails: "LICQ", "strict complementarity", "uniqueness".
    """

    def __init__(self, message, reasons=()):
        super().__init__(message)
        self.reasons = tuple(reasons)

    def __reduce__(self):
        return type(self), (str(self), self.reasons)


class ProgramSolution:
    """What a program's solver found; derivatives are taken when a part is asked for.

    Attributes
    ----------
    x : array of shape (n,)
        The solution.
    value : scalar
        The optimal value. Its first derivative needs less than x's: by the envelope theorem it is that of the
        Lagrangian, so that ∂value/∂q = x, ∂value/∂h = −z, ∂value/∂b = −y.
    y : array of shape (p,)
        Multipliers of Ax = b in the Lagrangian ½xᵀPx + qᵀx + yᵀ(Ax − b) + zᵀ(Gx − h).
    z : array of shape (m,)
        Multipliers of Gx ≤ h, ≥ 0; 0 for inactive ones.
    z_lower, z_upper : arrays of shape (n,)
        Of linear programs alone: multipliers of the bounds, ≥ 0.
    active : ndarray of bool, of shape (m,)
        Which rows of Gx ≤ h hold with equality (plain; None in a tangent).
    """

    def __init__(self, parts, active=None):
        _register()
        self._parts, self.active = parts, active

    def __getattr__(self, name):
        parts = self.__dict__.get("_parts", {})
        if name not in parts:
            raise AttributeError(f"a program's solution has {', '.join(parts)} and active, not {name!r}")
        value = parts[name]
        if callable(value):
            value = parts[name] = value()
        return value

    def __dir__(self):
        return sorted({*object.__dir__(self), *self._parts})

    def __getstate__(self):
        return {"_parts": {name: getattr(self, name) for name in self._parts}, "active": self.active}

    def __repr__(self):
        return f"ProgramSolution(x={self.x!r}, value={self.value!r})"


@functools.cache
def _register():
    import optree

    def flat(solution):
        names = tuple(solution._parts)
        return [getattr(solution, name) for name in names], names, names

    optree.register_pytree_node(
        ProgramSolution,
        flat,
        lambda names, parts: ProgramSolution(dict(zip(names, parts, strict=True))),
        namespace="mercer",
    )


def quadratic_program(P, q, G=None, h=None, A=None, b=None, *, solver=None):
    """Minimise ½ xᵀPx + qᵀx subject to Gx ≤ h and Ax = b; differentiable in all six.

    Parameters
    ----------
    P : array of shape (n, n)
        Positive semidefinite; its symmetric part counts, and its gradient is symmetric.
    q : array of shape (n,)
    G, h : arrays of shapes (m, n) and (m,), optional
    A, b : arrays of shapes (p, n) and (p,), optional
    solver : callable, optional
        ``solver(P, q, G, h, A, b) -> (x, y, z)`` on plain arrays (those left out have no rows). Default:
        Clarabel, an optional dependency (``pip install mercer[qp]``), not needed without inequalities. Six
        digits are enough: values are then made exact on the active set.

    Returns
    -------
    ProgramSolution
        With x, value, y and z.

    Raises
    ------
    UnsolvedProgram
        If the program is infeasible, unbounded, or not convex.
    DegenerateProgram
        If a derivative is asked for where there is none: an active constraint has the multiplier 0, active
        constraints have dependent gradients, or the solution is not unique.
    ImportError
        If Clarabel is needed and absent.

    References
    ----------
    LINMA 1.8.2, equations (1.49)–(1.53).

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> P, A, b = np.eye(2), np.ones((1, 2)), np.array([1.0])
    >>> ad.jacobian(lambda q: ad.quadratic_program(P, q, A=A, b=b).x)(np.zeros(2))
    array([[-0.5,  0.5],
           [ 0.5, -0.5]])
    """
    q = _array(q, 1, "q")
    n = q.shape[0]
    P = _array(P, 2, "P", (n, n))
    G, h = _constraints(G, h, n, "G", "h")
    A, b = _constraints(A, b, n, "A", "b")
    P = (P + np.transpose(P)) / 2
    names = (
        [f"row {i} of Gx ≤ h" for i in range(h.shape[0])],
        [f"row {i} of Ax = b" for i in range(b.shape[0])],
    )
    _check_convex(plain(P))
    solved = Solved((P, q, G, h, A, b), names, solver or _clarabel)
    parts = {"x": solved.x, "value": solved.value, "y": solved.y, "z": solved.z}
    return ProgramSolution(parts, solved.active)


def linear_program(c, A_ub=None, b_ub=None, A_eq=None, b_eq=None, bounds=(0, None)):
    """Minimise cᵀx subject to A_ub x ≤ b_ub, A_eq x = b_eq and bounds; differentiable in all of them.

    Parameters
    ----------
    c : array of shape (n,)
    A_ub, b_ub : arrays of shapes (m, n) and (m,), optional
    A_eq, b_eq : arrays of shapes (p, n) and (p,), optional
    bounds : pair, or n pairs, or array of shape (n, 2), default=(0, None)
        (lower, upper) for all variables or for each; None (or an infinity) is no bound. As in
        ``scipy.optimize.linprog`` the default is x ≥ 0.

    Returns
    -------
    ProgramSolution
        With x, value, y (of A_eq), z (of A_ub), z_lower and z_upper. A vertex does not move with c, so ∂x/∂c
        = 0 where the solution is a nondegenerate, unique vertex, and ∂value/∂c = x.

    Raises
    ------
    UnsolvedProgram
        If the program is infeasible or unbounded.
    DegenerateProgram
        If a derivative is asked for at a degenerate vertex or where the optimum is not unique.

    References
    ----------
    LINMA (1.49)–(1.53); values by HiGHS' dual simplex.

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> def best(c, b):
    ...     return ad.linear_program(c, np.array([[1.0, 2.0], [3.0, 1.0]]), b)
    >>> c, b = np.array([-1.0, -1.0]), np.array([4.0, 6.0])
    >>> best(c, b).x
    array([1.6, 1.2])
    >>> ad.grad(lambda c: best(c, b).value)(c)
    array([1.6, 1.2])
    """
    c = _array(c, 1, "c")
    n = c.shape[0]
    G, h = _constraints(A_ub, b_ub, n, "A_ub", "b_ub")
    A, b = _constraints(A_eq, b_eq, n, "A_eq", "b_eq")
    m, p = h.shape[0], b.shape[0]
    lower, upper = _bounds(bounds, n)
    fixed = [
        i
        for i in range(n)
        if plain(lower[i]) == plain(upper[i])
        and not isinstance(lower[i], Traced)
        and not isinstance(upper[i], Traced)
    ]
    low = [i for i in range(n) if np.isfinite(plain(lower[i])) and i not in fixed]
    high = [i for i in range(n) if np.isfinite(plain(upper[i])) and i not in fixed]
    G, h = _stack(
        [(G, h), (-np.eye(n)[low], [-lower[i] for i in low]), (np.eye(n)[high], [upper[i] for i in high])]
    )
    A, b = _stack([(A, b), (np.eye(n)[fixed], [lower[i] for i in fixed])])
    names = (
        [f"row {i} of A_ub" for i in range(m)]
        + [f"the lower bound of x[{i}]" for i in low]
        + [f"the upper bound of x[{i}]" for i in high],
        [f"row {i} of A_eq" for i in range(p)] + [f"the bounds of x[{i}]" for i in fixed],
    )
    solved = Solved((np.zeros((n, n)), c, G, h, A, b), names, _highs)

    def multipliers(which, columns, sign):
        """Return the multipliers of bounds at their places; a fixed variable's has one sign or the other."""
        z, y = which(), solved.y()[p:]
        places = np.zeros((n, len(columns)))
        places[columns, range(len(columns))] = 1
        rest = np.zeros((n, len(fixed)))
        rest[fixed, range(len(fixed))] = sign
        return places @ z + np.maximum(rest @ y, 0)

    parts = {
        "x": solved.x,
        "value": solved.value,
        "y": lambda: solved.y()[:p],
        "z": lambda: solved.z()[:m],
        "z_lower": lambda: multipliers(lambda: solved.z()[m : m + len(low)], low, -1),
        "z_upper": lambda: multipliers(lambda: solved.z()[m + len(low) :], high, 1),
    }
    return ProgramSolution(parts, solved.active[:m])


# -- data -----------------------------------------------------------------------------------------------


def _array(x, ndim, name, shape=None):
    """Return data as a float array (traced data as they are), of a checked shape."""
    if not isinstance(x, Traced):
        x = np.asarray(x.toarray() if hasattr(x, "toarray") else x, np.float64)
    if x.ndim != ndim or (shape is not None and x.shape != shape):
        wanted = shape if shape is not None else "(n,)" if ndim == 1 else "(rows, n)"
        raise ValueError(f"{name} has shape {x.shape}, it must have {wanted}")
    if name in "qc" and not x.shape[0]:
        raise ValueError(f"{name} is empty: a program has at least one variable")
    if not np.all(np.isfinite(plain(x))):
        raise ValueError(f"{name} has infinite or NaN entries; leave out constraints that do not bind")
    return x


def _constraints(matrix, right, n, name, right_name):
    if (matrix is None) != (right is None):
        raise ValueError(
            f"{name} and {right_name} belong together, got only {right_name if matrix is None else name}"
        )
    if matrix is None:
        return np.zeros((0, n)), np.zeros(0)
    right = _array(right, 1, right_name)
    return _array(matrix, 2, name, (right.shape[0], n)), right


def _bounds(bounds, n):
    """Return n lower and n upper bounds, infinite where there are none."""
    if bounds is None:
        bounds = (0, None)
    one = len(bounds) == 2 and all(_is_number(end) for end in bounds)
    pairs = [bounds] * n if one else [bounds[i] for i in range(len(bounds))]
    if len(pairs) != n or any(_is_number(pair) or len(pair) != 2 for pair in pairs):
        raise ValueError(f"bounds must be one (lower, upper) pair or {n} of them, got {bounds!r:.80}")
    lower = [-np.inf if pair[0] is None else pair[0] for pair in pairs]
    upper = [np.inf if pair[1] is None else pair[1] for pair in pairs]
    for i in range(n):
        if not plain(lower[i]) <= plain(upper[i]):
            raise UnsolvedProgram(
                f"x[{i}] has the bounds {plain(lower[i])} and {plain(upper[i])}: infeasible"
            )
    return lower, upper


def _is_number(x):
    return x is None or (not isinstance(x, list | tuple) and np.ndim(x) == 0)


def _stack(blocks):
    """Return the constraints of several blocks (matrix, right sides) as one, traced only where they are."""
    blocks = [block for block in blocks if len(block[1])] or blocks[:1]
    matrices = [matrix for matrix, _ in blocks]
    rights = []
    for _, right in blocks:
        traced = isinstance(right, list) and any(isinstance(x, Traced) for x in right)
        rights.append(
            np.stack(right) if traced else right if isinstance(right, Traced) else np.asarray(right, float)
        )
    if len(blocks) == 1:
        return matrices[0], rights[0]
    return np.concatenate(matrices), np.concatenate(rights)


def _check_convex(P):
    try:
        np.linalg.cholesky(P)
    except np.linalg.LinAlgError:
        values = np.linalg.eigvalsh(P)
        if values[0] < -1e-12 * len(P) * max(abs(values[0]), abs(values[-1])):
            raise UnsolvedProgram(
                f"P is not positive semidefinite (smallest eigenvalue {values[0]:.2e}), the program is not "
                "convex"
            ) from None


# -- solvers --------------------------------------------------------------------------------------------


def _highs(P, q, G, h, A, b):
    """Solve a linear program, all of whose bounds are rows of G."""
    from scipy.optimize import linprog

    result = linprog(q, G, h, A, b, bounds=(None, None), method="highs-ds")
    if result.status:
        what = {2: "is infeasible", 3: "is unbounded"}.get(result.status, "was not solved")
        raise UnsolvedProgram(f"the linear program {what} (HiGHS: {result.message})")
    return result.x, -result.eqlin.marginals, -result.ineqlin.marginals


def _clarabel(P, q, G, h, A, b):
    """Solve a quadratic program by Clarabel's interior-point method."""
    try:
        import clarabel
    except ImportError as error:
        raise ImportError(
            "quadratic_program with inequalities needs Clarabel: pip install 'mercer[qp]' (or clarabel), or "
            "give a solver=, which returns (x, y, z)"
        ) from error
    from scipy.sparse import csc_matrix

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(len(b)), clarabel.NonnegativeConeT(len(h))]
    data = csc_matrix(np.triu(P)), q, csc_matrix(np.concatenate([A, G])), np.concatenate([b, h]), cones
    for tol in (1e-11, 1e-8):  # the first is out of reach where the data are badly scaled
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
        settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = settings.reduced_tol_feas = 1e-7
        found = clarabel.DefaultSolver(*data, settings).solve()
        status = str(found.status)
        if "Solved" in status or "Infeasible" in status:
            break
    if status not in ("Solved", "AlmostSolved"):
        what = {"PrimalInfeasible": "is infeasible", "DualInfeasible": "is unbounded"}.get(
            status.removeprefix("Almost"), "was not solved"
        )
        raise UnsolvedProgram(f"the quadratic program {what} (Clarabel: {status})")
    multipliers = np.array(found.z)
    return np.array(found.x), multipliers[: len(b)], multipliers[len(b) :]


# -- the solution ---------------------------------------------------------------------------------------


class Solved:
    """A program with its plain solution, the active set, and the parts as functions of traced data.

    Parameters
    ----------
    data : tuple
        P (symmetric), q, G, h, A, b.
    names : pair of lists
        What to call the rows of G and those of A.
    solver : callable
    """

    def __init__(self, data, names, solver):
        self.data, self.names = data, names
        self.point = Point(*(plain(d) for d in data))
        self.point.solve(solver)
        self.n, self.p = len(self.point.q), len(self.point.b)
        self._w = None

    @property
    def active(self):
        active = np.zeros(len(self.point.h), bool)
        active[self.point.strong] = active[self.point.weak] = True
        return active

    def x(self):
        return self._solution()[: self.n]

    def y(self):
        return self._solution()[self.n : self.n + self.p]

    def z(self):
        point, w = self.point, self._solution()
        if not isinstance(w, Traced):
            return point.z
        places = np.zeros((len(point.h), len(point.strong)))
        places[point.strong, range(len(point.strong))] = 1
        return places @ w[self.n + self.p :]

    def value(self):
        """Return the Lagrangian, which is stationary in w: what w misses enters squared."""
        P, q, _, _, A, b = self.data
        if not self._traced():
            return self.point.value()
        # All data meet in the residual, so that derivatives nested in different data are counted together.
        depth = levels(self._residual(self.point.w()))
        if depth <= 1:
            self._check_value()
            w = self.point.w()
        else:
            self._check()
            w = self._moved(depth // 2)
        x, y, z = w[: self.n], w[self.n : self.n + self.p], w[self.n + self.p :]
        G, h = self._active_rows()
        return x @ (P @ x) / 2 + q @ x + y @ (A @ x - b) + z @ (G @ x - h)

    # -- the KKT system (1.52) in x, y and the active z -----------------------------------------------------

    def _active_rows(self):
        G, h = self.data[2:4]
        strong = self.point.strong
        return G[strong], h[strong]

    def _residual(self, w):
        P, q, _, _, A, b = self.data
        G, h = self._active_rows()
        x, y, z = w[: self.n], w[self.n : self.n + self.p], w[self.n + self.p :]
        stationary = P @ x + q
        if self.p:
            stationary = stationary + np.transpose(A) @ y
        if len(self.point.strong):
            stationary = stationary + np.transpose(G) @ z
        return np.concatenate([stationary, A @ x - b, G @ x - h])

    def _traced(self):
        return any(isinstance(d, Traced) for d in self.data)

    def _moved(self, steps=None):
        """Return w with its derivatives: as many as are asked for, or of some order."""
        w = self.point.w()
        if not self._traced():
            return w
        r = self._residual(w)
        return continued(self._residual, w, r, self.point.factor, levels(r) if steps is None else steps)

    def _solution(self):
        if self._w is None:
            if self._traced():
                self._check()
            self._w = self._moved()
        return self._w

    def _check(self):
        """Raise unless the solution is a smooth function of the data."""
        if not self.point.regular:
            self._raise(*self.point.diagnosis(*self.names))
        check_condition(self.point.factor, "the KKT matrix of the active constraints", np.float64)

    def _check_value(self):
        """Raise unless the optimal value has a first derivative in what is traced (Danskin's theorem)."""
        if self.point.regular:
            return
        P, q, G, h, A, b = (isinstance(d, Traced) for d in self.data)
        reasons = self.point.diagnosis(*self.names)
        x_must_be_unique, multipliers_must_be = P or q or G or A, G or A or h or b
        if (x_must_be_unique and "uniqueness" in reasons[0]) or (
            multipliers_must_be and "LICQ" in reasons[0]
        ):
            self._raise(*reasons, what="the optimal value")

    def _raise(self, reasons, texts, what="the solution"):
        raise DegenerateProgram(
            f"{what} of the program is no differentiable function of its data: "
            + "; ".join(texts)
            + "; drop redundant constraints, perturb the data, or add a small multiple of the identity to P",
            reasons,
        )

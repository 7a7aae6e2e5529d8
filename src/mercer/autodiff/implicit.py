"""Derivatives of a solver's answer by the implicit function theorem (LINMA 1.8): the solver is not traced.

w*(λ) solves F(w, λ) = 0, found by anybody's solver. With A = ∂F/∂w at the solution for the plain λ, the chord
step w ↦ w − A⁻¹ F(w, λ) on a *traced* λ adds one order of derivative to w, starting from the plain solution,
which has none: the first step is dw = −A⁻¹ ∂_λF dλ (1.43), forward as in (1.44), reverse as in (1.47). As
many steps as derivatives are nested are exact, so that one factorisation of A serves all modes and orders
(1.46, 1.48).

The way through: solve → w (plain) → ``jacobian`` → ``factors`` → `continued`.
"""

import functools

import numpy as np
import scipy.sparse

from mercer.autodiff.derivative import grad, jvp, vjp
from mercer.autodiff.errors import TraceError, trace_error
from mercer.autodiff.factors import (
    LU,
    Cholesky,
    ImplicitFunctionError,
    Krylov,
    SparseLU,
    kept_solve,
    warn_unconverged,
)
from mercer.autodiff.jacobians import jacobian
from mercer.autodiff.trace import Traced, fresh, np_like, plain
from mercer.autodiff.trees import flatten, leaf, unflatten

__all__ = ["argmin", "fixed_point", "implicit_root"]

#: "auto" takes the Krylov solver above this number of unknowns, whose dense matrix would be 200 MB.
DENSE_UNKNOWNS = 5000
#: The Newton step from solve's answer may be this long, relative to the largest unknown.
ROOT_RTOL = 1e-6

SOLVERS = ("auto", "lu", "cholesky", "sparse", "krylov")


def implicit_root(F, solve=None, *, linear_solver="auto", jacobian=None, has_aux=False, rtol=ROOT_RTOL):
    """Return λ ↦ w*, a root of F(w, λ) = 0 found by `solve`, with derivatives of any order and mode.

    Parameters
    ----------
    F : callable
        ``F(w, *args)`` in NumPy, with as many values as w has entries. Its derivatives are taken; those of
        `solve` never are.
    solve : callable, default=None
        ``solve(*args, **kwargs) -> w``, an array or a tree of arrays. It is called with plain values and may
        do as it pleases (``scipy.optimize.root``, a loop, another language). Keyword arguments reach `solve`
        alone and are not differentiated. Left out: the result is a decorator for `solve`.
    linear_solver : {"auto", "lu", "cholesky", "sparse", "krylov"}, default="auto"
        For ∂F/∂w: a dense factorisation ("cholesky" only if it is symmetric positive definite); SuperLU for a
        sparse `jacobian`; or GMRES by products, without the matrix, each solution's residual checked to
        1e-10. "auto" is "sparse" if `jacobian` returns a SciPy sparse matrix, "lu" up to 5000 unknowns, and
        "krylov" above.
    jacobian : callable, optional
        ``jacobian(w, *args)``: ∂F/∂w, of shape (n, n) for n entries of w, dense or SciPy sparse. Default: by
        :func:`jacobian`.
    has_aux : bool, default=False
        Whether `solve` returns (w, aux); so does the result, with aux as it is.
    rtol : float, default=1e-06
        How far solve's answer may be from the root (by Newton's step there, relative to the largest entry of
        w, with 1e-8 beside it) without a warning.

    Returns
    -------
    callable
        ``(*args, **kwargs) -> w``. With plain arguments it is what `solve` returned; traced arguments may be
        arrays or trees.

    Raises
    ------
    ImplicitFunctionError
        If ∂F/∂w is singular where the derivative is asked for, or what `solve` returned is no simple root.

    Warns
    -----
    ConvergenceWarning
        If ∂F/∂w is badly conditioned, if the root is not found to `rtol`, or if a Krylov solution falls
        short.

    References
    ----------
    LINMA 1.8, equations (1.43)–(1.48).

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> root = ad.implicit_root(lambda w, a: w * w - a, lambda a: np.sqrt(a))
    >>> ad.grad(root)(4.0), ad.grad(ad.grad(root))(4.0)
    (np.float64(0.25), np.float64(-0.03125))
    """
    rule = _Rule(F, linear_solver, jacobian, rtol=rtol)
    return _bound(rule, solve, has_aux)


def fixed_point(g, solve=None, *, linear_solver="auto", jacobian=None, has_aux=False, rtol=ROOT_RTOL):
    """Return λ ↦ w*, a fixed point w = g(w, λ) found by `solve`, with derivatives of any order and mode.

    Parameters
    ----------
    g : callable
        ``g(w, *args)``, of the structure of w.
    solve, linear_solver : see :func:`implicit_root`
    jacobian : callable, optional
        ``jacobian(w, *args)``: ∂g/∂w, of shape (n, n).
    has_aux, rtol : see :func:`implicit_root`

    Returns
    -------
    callable

    References
    ----------
    LINMA (1.42): the square root is the fixed point of x = (x + a/x)/2, since 2x² = x² + a.

    Examples
    --------
    >>> import mercer.autodiff as ad
    >>> @ad.fixed_point(lambda x, a: (x + a / x) / 2)
    ... def root(a, x=1.0, tol=1e-15):
    ...     while abs(x * x - a) > tol * a:
    ...         x = (x + a / x) / 2
    ...     return x
    >>> ad.grad(root)(4.0)
    np.float64(0.25)
    """
    return _bound(_Rule(g, linear_solver, jacobian, fixed=True, rtol=rtol), solve, has_aux)


def argmin(f, solve=None, *, linear_solver="auto", hessian=None, has_aux=False, rtol=ROOT_RTOL):
    """Return λ ↦ w*, a minimum of f(w, λ) over w found by `solve`, with derivatives of any order and mode.

    Parameters
    ----------
    f : callable
        ``f(w, *args)``: one real number; w is differentiated twice by :func:`grad` and :func:`jacobian`.
    solve, linear_solver : see :func:`implicit_root`
        For the Hessian; "auto" is "cholesky", or "krylov" (conjugate gradients), or "sparse". Cholesky alone
        tells a minimum from a saddle point.
    hessian : callable, optional
        ``hessian(w, *args)``, of shape (n, n).
    has_aux, rtol : see :func:`implicit_root`

    Returns
    -------
    callable

    Raises
    ------
    ImplicitFunctionError
        If the Hessian in w is not positive definite there: the minimum is not strict, or none.

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> def loss(w, a):
    ...     return np.sum((w - 3.0) ** 2) + a * np.sum(w**2)
    >>> ridge = ad.argmin(loss, lambda a: np.full(2, 3 / (1 + a)))
    >>> ad.jacobian(ridge)(1.0)
    array([-0.75, -0.75])
    """
    return _bound(_Rule(grad(f), linear_solver, hessian, minimum=True, rtol=rtol), solve, has_aux)


def _bound(rule, solve, has_aux):
    """Return the differentiable function of a solver, or a decorator that makes it."""
    if solve is None:
        return lambda solve: _bound(rule, solve, has_aux)

    @functools.wraps(solve, updated=())
    def solution(*args, **kwargs):
        leaves, structure = flatten(args)
        for name, value in kwargs.items():
            if any(isinstance(x, Traced) for x in flatten(value)[0]):
                raise trace_error(
                    getattr(solve, "__name__", "the solver"),
                    f"its keyword argument {name!r} is traced, but keywords are not differentiated",
                    "pass it by position (F gets it then, too), or ad.stop_gradient of it",
                )
        fixed = args
        if any(isinstance(x, Traced) for x in leaves):
            fixed = unflatten(structure, [plain(x) for x in leaves])
        w = solve(*fixed, **kwargs)
        w, aux = w if has_aux else (w, None)
        w = rule.differentiable(w, args, fixed)
        return (w, aux) if has_aux else w

    return solution


class _Rule:
    """What is zero at the solution, and how its Jacobian is solved with.

    `fixed` says that F is g of w = g(w, λ), `minimum` that it is a gradient, whose Jacobian is symmetric.
    """

    def __init__(self, F, linear_solver, jacobian, fixed=False, minimum=False, rtol=ROOT_RTOL):
        if linear_solver not in SOLVERS:
            raise ValueError(f"linear_solver must be one of {', '.join(SOLVERS)}, got {linear_solver!r}")
        if linear_solver == "sparse" and jacobian is None:
            raise ValueError(
                'linear_solver="sparse" needs jacobian= (hessian=), which returns a SciPy sparse matrix'
            )
        self.F, self.linear_solver, self.jacobian = F, linear_solver, jacobian
        self.fixed, self.minimum, self.rtol = fixed, minimum, rtol

    def differentiable(self, w, args, fixed):
        """Return solve's answer with derivatives in what is traced in `args` or in F's closure."""
        leaves, structure = flatten(w)
        if any(isinstance(x, Traced) for x in leaves):
            raise trace_error(
                "implicit derivative",
                "the solver's answer is traced, so it uses traced values that are not among its arguments",
                "pass them as arguments (F gets them, too)",
            )
        other = next((x for x in leaves if np.asarray(x).dtype.kind not in "biufc"), None)
        if other is not None or w is None:
            raise trace_error(
                "implicit derivative",
                f"solve's answer has a part of type {type(other).__name__}, not an array of numbers",
                "return the solution (result.x of SciPy's OptimizeResult), and the rest by has_aux=True",
            )
        space = Space([leaf(x, "the solver's answer") for x in leaves], structure)
        w0 = space.joined(space.leaves)
        if not w0.size:
            return w
        if not np.all(np.isfinite(w0)):
            raise ImplicitFunctionError(
                "the solver's answer has infinite or NaN entries, it has no derivative"
            )

        def residual(v):
            return self._residual(space, v, args)

        r = residual(w0)
        depth = levels(r)
        if not depth:
            return w

        # It knows no traced arguments, since a Krylov factor, which the tape keeps, keeps it.
        def fixed_residual(v):
            return self._residual(space, v, fixed)

        factor = self.factor(fixed_residual, w0, space, fixed)
        check_root(factor, fixed_residual, w0, plain(r), self.rtol)
        return space.split(continued(residual, w0, r, factor, depth))

    def _residual(self, space, v, args):
        parts = flatten(self.F(space.split(v), *args))[0]
        r = joined([p if isinstance(p, Traced) else np.asarray(p) for p in parts])
        if r.shape != v.shape:
            name = "g" if self.fixed else "F"
            raise ValueError(
                f"{name} has {r.size} values for the {v.size} entries of w (complex ones count twice); "
                "there must be as many"
            )
        return r - v if self.fixed else r

    # -- the linear system -----------------------------------------------------------------------------

    def factor(self, residual, w0, space, args):
        """Return ∂F/∂w, factored, after checking its condition."""
        given = None if self.jacobian is None else self._given(residual, w0, space, args)
        kind = self.linear_solver
        if kind == "auto":
            kind = "krylov" if w0.size > DENSE_UNKNOWNS else "cholesky" if self.minimum else "lu"
            if given is not None:
                kind = "sparse" if scipy.sparse.issparse(given) else "cholesky" if self.minimum else "lu"
        if kind == "krylov":
            return _krylov(residual, w0, given, self.minimum)
        A = plain(jacobian(residual, "forward")(w0)) if given is None else given
        if kind == "sparse" or scipy.sparse.issparse(A):
            factor = SparseLU(_finite(scipy.sparse.csc_array(A)))
        elif kind == "cholesky":
            factor = self._cholesky(_finite(A))
        else:
            factor = LU(_finite(A))
        check_condition(factor, "the Hessian of f in w" if self.minimum else "∂F/∂w", A.dtype)
        return factor

    def _given(self, residual, w0, space, args):
        """Return the user's Jacobian as that of F in the real entries of w, checked in one direction."""
        A = self.jacobian(space.split(w0), *args)
        n = space.n
        A = A if scipy.sparse.issparse(A) else np.reshape(plain(A), (n, n))
        if A.shape != (n, n):
            raise ValueError(
                f"jacobian= has shape {A.shape} for {n} entries of w; return a matrix of shape ({n}, {n})"
            )
        if space.is_complex:
            block = scipy.sparse.block_array if scipy.sparse.issparse(A) else np.block
            A = _interleaved(block([[A.real, -A.imag], [A.imag, A.real]]), space)
        if self.fixed:
            A = A - (scipy.sparse.eye_array(w0.size) if scipy.sparse.issparse(A) else np.eye(w0.size))
        direction = np.cos(np.arange(1.0, w0.size + 1)).astype(w0.dtype)
        try:
            product = plain(jvp(residual, (w0,), (direction,))[1])
        except TraceError:  # F may be beyond tracing in w, which first order does not need if A is given
            return A
        gap = np.linalg.norm(A @ direction - product)
        size = np.linalg.norm(abs(A) @ abs(direction))
        if not gap <= max(1e-6, 1e3 * np.finfo(w0.dtype).eps) * size:
            raise ValueError(
                f"jacobian= (hessian=) is not the derivative in w: a product with it differs by {gap:.1e} of "
                f"{size:.1e}; check its sign and order of entries"
            )
        return A

    def _cholesky(self, A):
        gap = float(np.max(abs(A - A.T), initial=0.0))
        if not gap <= 1e3 * np.finfo(A.dtype).eps * np.max(abs(A), initial=0.0):
            raise ValueError(f'∂F/∂w is not symmetric (by {gap:.1e}); use linear_solver="lu"')
        factor = Cholesky(A)
        if factor.pivot is None:
            return factor
        general = LU(A)
        if general.rcond > np.finfo(A.dtype).eps:
            what = "the Hessian of f in w" if self.minimum else "∂F/∂w"
            raise ImplicitFunctionError(
                f"{what} is not positive definite at pivot {factor.pivot}: "
                + (
                    "solve found a saddle point or a maximum; ad.implicit_root(ad.grad(f), solve) "
                    "differentiates those"
                    if self.minimum
                    else 'use linear_solver="lu"'
                )
            )
        return general


def _interleaved(A, space):
    """Bring rows and columns from (all real parts, all imaginary parts) to the order of `Space.joined`."""
    order, start = [], 0
    for x in space.leaves:
        part = np.arange(start, start + np.size(x))
        order += [part, space.n + part] if np_like(x).dtype.kind == "c" else [part]
        start += np.size(x)
    order = np.concatenate(order)
    return (A.tocsr() if scipy.sparse.issparse(A) else A)[order][:, order]


def _krylov(residual, w0, given, symmetric):
    if given is not None:
        return Krylov(lambda v: given @ v, lambda v: given.T @ v, w0.size, symmetric)

    def product(v):
        return plain(jvp(residual, (w0,), (v.astype(w0.dtype, copy=False),))[1])

    _, pullback = vjp(residual, w0)
    return Krylov(product, lambda v: plain(pullback(v.astype(w0.dtype, copy=False))[0]), w0.size, symmetric)


def _finite(A):
    values = A.data if scipy.sparse.issparse(A) else A
    if not np.all(np.isfinite(values)):
        raise ImplicitFunctionError(
            "∂F/∂w has infinite or NaN entries at the solver's answer, there is no derivative"
        )
    return A


def check_condition(factor, what, dtype):
    """Raise if a factored matrix is singular to working precision, warn if nearly so."""
    eps = np.finfo(dtype).eps
    if not factor.rcond > eps:
        raise ImplicitFunctionError(
            f"the implicit function theorem fails at the solver's answer: {what} is singular (reciprocal "
            f"condition number {factor.rcond:.1e}), so the solution is not a differentiable function of the "
            "arguments there"
        )
    if factor.rcond < eps ** (2 / 3):
        warn_unconverged(
            f"{what} is badly conditioned at the solver's answer (reciprocal condition number "
            f"{factor.rcond:.1e}): relative errors of the derivative may reach {eps / factor.rcond:.0e}; "
            "scale or regularise the problem"
        )


def check_root(factor, residual, w0, r0, rtol):
    """Raise if w0 is no simple root of the residual, warn if it is one only roughly.

    Newton's step measures the distance to a simple root, and a second step with the same matrix is shorter
    by far there; near a multiple root, where the theorem fails, it has 1/4 to 1/e of the first one's length.
    """
    eps = np.finfo(w0.dtype).eps
    size = np.max(abs(w0), initial=0.0)
    step = factor.solve(r0)
    first = np.max(abs(step), initial=0.0)
    if first <= max(rtol, 100 * eps) * size + 1000 * eps:
        return
    r1 = plain(residual(w0 - step))
    second = np.max(abs(factor.solve(r1)), initial=0.0) if np.all(np.isfinite(r1)) else np.inf
    if not second <= 0.1 * first:
        raise ImplicitFunctionError(
            f"the solver's answer (largest entry {size:.2e}) is no simple root: Newton's step from it has "
            f"length {first:.1e}, and the next one {second:.1e}, not a tenth; either solve stopped early "
            f"(|F| is {np.max(abs(r0)):.1e}), or the root is multiple and the implicit function theorem "
            "fails there"
        )
    if first > max(rtol, 100 * eps) * size + max(1e-8, 1000 * eps):
        warn_unconverged(
            f"the solver's answer is {first:.1e} from the root by Newton's step (its largest entry is "
            f"{size:.2e}, |F| {np.max(abs(r0)):.1e}), and the derivative is about as inaccurate; tighten the "
            "solver's tolerance"
        )


# -- the derivatives ------------------------------------------------------------------------------------


def levels(x):
    """Return how many derivatives a value is part of."""
    depth = 0
    while isinstance(x, Traced):
        x = fresh(x).value
        depth += 1
    return depth


def continued(residual, w0, r, factor, steps):
    """Return w0 as a function of what is traced in the residual, exact to `steps` derivatives.

    Parameters
    ----------
    residual : callable
        ``w -> F(w, λ)`` with traced values in λ.
    w0 : ndarray of shape (n,)
        The plain solution, which the value of the result equals bit for bit.
    r : traced array of shape (n,)
        ``residual(w0)``.
    factor : Factor
        Of ∂F/∂w at w0.
    steps : int

    Returns
    -------
    traced array of shape (n,)
    """
    w = w0
    for k in range(steps):
        if k:
            r = residual(w)
        # w − w0 − A⁻¹(F − F₀): what solve left of F is no derivative
        w = w - kept_solve(r - plain(r), factor=factor)
    return w


def joined(leaves):
    """Return real and imaginary parts of all entries as one vector of floats."""
    parts = []
    for x in leaves:
        kind = np_like(x).dtype.kind
        for part in (np.real(x), np.imag(x)) if kind == "c" else (x,):
            parts.append(part if np.ndim(part) == 1 else np.reshape(part, (-1,)))
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0)


class Space:
    """The entries of w as one real vector; complex leaves give their real parts, then the imaginary ones."""

    def __init__(self, leaves, structure):
        self.leaves, self.structure = leaves, structure
        self.is_complex = any(np_like(x).dtype.kind == "c" for x in leaves)
        self.n = sum(np.size(x) for x in leaves)

    def joined(self, leaves):
        return joined(leaves)

    def split(self, v):
        """Return the tree of a vector."""
        leaves, start = [], 0
        for x in self.leaves:
            parts = []
            for _ in range(2 if np_like(x).dtype.kind == "c" else 1):
                part = v if np.size(x) == v.shape[0] else v[start : start + np.size(x)]
                parts.append(part if np.ndim(x) == 1 else np.reshape(part, np.shape(x)))
                start += np.size(x)
            part = parts[0] + 1j * parts[1] if len(parts) == 2 else parts[0]
            leaves.append(part if part.dtype == np_like(x).dtype else part.astype(np_like(x).dtype))
        return unflatten(self.structure, leaves)

"""Derivatives of solvers' answers (LINMA 1.8) against closed forms, mpmath, and explicit differentiation."""

import gc
import weakref

import mpmath
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

import mercer.autodiff as ad
from mercer.autodiff import factors, implicit
from mercer.autodiff.errors import TraceError
from mercer.autodiff.factors import ImplicitFunctionError
from mercer.autodiff.trace import Traced, plain
from mercer.testing import check_derivative

SIZE = 6


def newton(F, w, *args, steps=12):
    """A solver that knows nothing of derivatives of its answer: Newton's method with differences."""
    for _ in range(steps):
        r = F(w, *args)
        J = np.stack(
            [(F(w + 1e-6 * e, *args) - F(w - 1e-6 * e, *args)) / 2e-6 for e in np.eye(w.size)], axis=1
        )
        w = w - np.linalg.solve(J, r)
    return w


def plain_only(*trees):
    return not any(isinstance(x, Traced) for tree in trees for x in implicit.flatten(tree)[0])


# -- the square root (1.42) ---------------------------------------------------------------------------------

ROOTS = {
    "root": ad.implicit_root(lambda w, a: w * w - a, np.sqrt),
    "fixed point": ad.fixed_point(lambda w, a: (w + a / w) / 2, np.sqrt),
    "minimum": ad.argmin(lambda w, a: w**3 / 3 - a * w, np.sqrt),
}


@pytest.mark.parametrize("name", ROOTS)
def test_square_root_to_fourth_order_in_every_mode(name):
    a, f = 2.7, ROOTS[name]
    exact = [np.sqrt(a), a**-0.5 / 2, -(a**-1.5) / 4, 3 * a**-2.5 / 8, -15 * a**-3.5 / 16]

    def forward(f):
        return lambda a: ad.jvp(f, (a,), (1.0,))[1]

    for modes in ((ad.grad,) * 4, (forward,) * 4, (ad.grad, forward) * 2, (forward, ad.grad) * 2):
        g, found = f, [f(a)]
        for mode in modes:
            g = mode(g)
            found.append(g(a))
        # Each order divides by 2√a once more, and adds a few products: some ulp for each.
        np.testing.assert_allclose(found, exact, rtol=1e-13)


def test_decorator_and_function_are_one():
    @ad.fixed_point(lambda x, a: (x + a / x) / 2)
    def heron(a, x=1.0):
        """Take the square root."""
        for _ in range(30):
            x = (x + a / x) / 2
        return x

    assert heron.__name__ == "heron"
    assert heron.__doc__ == "Take the square root."
    assert ad.grad(heron)(4.0, x=3.0) == pytest.approx(0.25, rel=1e-14)
    assert ad.grad(heron)(4) == pytest.approx(0.25, rel=1e-14)
    assert ad.grad(ad.fixed_point(lambda x, a: (x + a / x) / 2, np.sqrt))(4.0) == 0.25


# -- where the theorem holds, and where it fails (example 1.1) ---------------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_circle_on_both_branches(sign):
    y = ad.implicit_root(lambda y, x: x**2 + y**2 - 1, lambda x: sign * np.sqrt(1 - x**2))
    x = 0.6
    assert ad.grad(y)(x) == pytest.approx(-x / y(x), rel=1e-14)
    assert ad.grad(ad.grad(y))(x) == pytest.approx(-1 / y(x) ** 3, rel=1e-13)


def test_circle_where_the_theorem_fails():
    y = ad.implicit_root(lambda y, x: x**2 + y**2 - 1, lambda x: np.sqrt(1 - x**2))
    for call in (ad.grad(y), lambda x: ad.jvp(y, (x,), (1.0,)), ad.hessian(y)):
        with pytest.raises(
            ImplicitFunctionError, match=r"theorem fails.*singular.*reciprocal condition number 0\.0e\+00"
        ):
            call(1.0)
    assert y(1.0) == 0


def test_multiple_root_is_told_though_the_solver_stopped_beside_it():
    def solve(x):
        y = 1.0
        for _ in range(25):  # Newton at a double root halves the error
            y = y - (x**2 + y**2 - 1) / (2 * y)
        return y

    with pytest.raises(ImplicitFunctionError, match=r"no simple root.*multiple"):
        ad.grad(ad.implicit_root(lambda y, x: x**2 + y**2 - 1, solve))(1.0)


def test_singular_and_badly_conditioned_matrices(rng):
    A = rng.standard_normal((4, 4))
    A[3] = A[0] + A[1]
    solve = ad.implicit_root(lambda w, b: A @ w - b, lambda b: np.ones(4))
    with pytest.raises(
        ImplicitFunctionError, match=r"∂F/∂w is singular \(reciprocal condition number \d\.\de-1"
    ):
        ad.jacobian(solve)(A @ np.ones(4))
    A[3] += 1e-13 * rng.standard_normal(4)
    with pytest.warns(
        ConvergenceWarning, match=r"badly conditioned.*reciprocal condition number \d\.\de-1[3-6]"
    ):
        ad.jacobian(solve)(A @ np.ones(4))


def test_units_of_unknowns_and_equations_do_not_count_as_bad_condition():
    scale = np.array([1e-20, 1.0, 1e15])
    solve = ad.implicit_root(
        lambda w, b: (w / scale) ** 3 * scale[::-1] - b, lambda b: np.cbrt(b / scale[::-1]) * scale
    )
    b = np.array([1.0, 2.0, 3.0]) * scale[::-1]
    exact = scale / (3 * np.cbrt(b / scale[::-1]) ** 2 * scale[::-1])
    np.testing.assert_allclose(np.diagonal(ad.jacobian(solve)(b)), exact, rtol=1e-13)


@pytest.mark.parametrize("condition", [1e3, 1e6])
def test_error_at_a_bad_condition_against_mpmath(condition):
    """F(w, λ) = A (w³ + w) − λ has the derivative diag(3w² + 1)⁻¹ A⁻¹; target 1e-8 at condition 1e6."""
    n = 12
    rng = np.random.default_rng(5)
    U, V = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    A = U * np.geomspace(1, 1 / condition, n) @ V
    w = rng.uniform(0.5, 1.5, n)
    solve = ad.implicit_root(lambda w, lam: A @ (w**3 + w) - lam, lambda lam: w)
    g, t = rng.standard_normal((2, n))
    lam = A @ (w**3 + w)
    pulled = ad.vjp(solve, lam)[1](g)[0]
    pushed = ad.jvp(solve, (lam,), (t,))[1]
    with mpmath.workdps(50):
        exact_A, D = mpmath.matrix(A.tolist()), [3 * mpmath.mpf(x) ** 2 + 1 for x in w]
        want_g = mpmath.lu_solve(
            exact_A.T, mpmath.matrix([mpmath.mpf(x) / d for x, d in zip(g, D, strict=True)])
        )
        want_t = mpmath.lu_solve(exact_A, mpmath.matrix(t.tolist()))
        want_t = [x / d for x, d in zip(want_t, D, strict=True)]
    for found, want in ((pulled, want_g), (pushed, want_t)):
        want = np.array([float(x) for x in want])
        # LU's forward error is some n · eps · condition at most
        assert np.max(abs(found - want)) <= 10 * n * np.finfo(float).eps * condition * np.max(abs(want))
        assert np.max(abs(found - want)) <= 1e-8 * np.max(abs(want))


# -- any solver, arguments and structure ---------------------------------------------------------------------


def system(w, A, p):
    return np.tanh(A @ w) + p["s"] * w**3 + w - p["b"]


def by_scipy(A, p):
    assert plain_only(A, p)
    found = scipy.optimize.root(lambda w: system(w, A, p), np.zeros(len(A)), tol=1e-13)
    return found.x


@pytest.fixture
def data(rng):
    return rng.standard_normal((SIZE, SIZE)) / 3, {"s": np.float64(0.7), "b": rng.standard_normal(SIZE)}


def test_scipy_root_with_trees_of_arguments(data):
    solve = ad.implicit_root(system, by_scipy)
    check_derivative(solve, *data)
    np.testing.assert_array_equal(solve(*data), by_scipy(*data))
    assert ad.value_and_grad(lambda p: np.sum(solve(data[0], p)))(data[1])[0] == np.sum(by_scipy(*data))


def test_fixed_point_of_a_contraction(data):
    A, p = data

    def g(w, A, b):
        return np.tanh(A @ w) / 2 + b

    @ad.fixed_point(g)
    def iterate(A, b):
        w = np.zeros(SIZE)
        for _ in range(200):
            w = g(w, A, b)
        return w

    check_derivative(iterate, A / 2, p["b"])


def test_tree_of_unknowns():
    def F(w, lam):
        return [w["a"] * lam + np.sin(w["a"]) - 1, w["b"] ** 3 + w["b"] - np.sum(w["a"])]

    def solve(lam):
        def flat(v, lam):
            first, second = F({"a": v[:2], "b": v[2]}, lam)
            return np.append(first, second)

        v = newton(flat, np.ones(3), lam)
        return {"a": v[:2], "b": v[2]}

    root = ad.implicit_root(F, solve)
    check_derivative(root, np.array([1.5, 2.5]))
    assert ad.jacobian(root)(np.array([1.5, 2.5]))["b"].shape == (2,)


def test_matrix_unknown_a_lyapunov_equation(rng):
    """X of shape (3, 3) with A X + X Aᵀ + X³/10 = Q."""
    A = np.eye(3) * 2 + 0.3 * rng.standard_normal((3, 3))

    def F(X, A, Q):
        return A @ X + X @ np.transpose(A) + X**3 / 10 - Q

    def solve(A, Q):
        return newton(lambda v, A, Q: np.ravel(F(v.reshape(3, 3), A, Q)), np.zeros(9), A, Q).reshape(3, 3)

    check_derivative(ad.implicit_root(F, solve), A, rng.standard_normal((3, 3)))


@pytest.mark.parametrize(
    "jacobian",
    [None, lambda w, a: np.diag(3 * w**2 + 1), lambda w, a: scipy.sparse.diags_array(3 * w**2 + 1)],
)
def test_complex_unknowns_of_a_holomorphic_equation(jacobian, rng):
    a = rng.standard_normal(3) + 1j * rng.standard_normal(3)

    def solve(a):
        w = np.full(3, 0.5 + 0.5j)
        for _ in range(100):
            w = w - (w**3 + w - a) / (3 * w**2 + 1)
        return w

    root = ad.implicit_root(lambda w, a: w**3 + w - a, solve, jacobian=jacobian)
    exact = 1 / (3 * solve(a) ** 2 + 1)
    np.testing.assert_allclose(ad.jacobian(root, holomorphic=True)(a), np.diag(exact), atol=1e-13)
    np.testing.assert_allclose(ad.vjp(root, a)[1](np.ones(3, complex))[0], np.conj(exact), rtol=1e-12)
    check_derivative(root, a)


def test_complex_unknowns_of_an_equation_that_is_not_holomorphic():
    """3w + conj(w) = a: w = Re a / 4 + i Im a / 2."""
    root = ad.implicit_root(lambda w, a: 3 * w + np.conj(w) - a, lambda a: a.real / 4 + 0.5j * a.imag)
    assert ad.jvp(root, (1 + 2j,), (1j,))[1] == pytest.approx(0.5j, abs=1e-15)
    assert ad.jvp(root, (1 + 2j,), (1 + 0j,))[1] == pytest.approx(0.25, abs=1e-15)
    check_derivative(root, 1 + 2j)


def test_float32_stays_and_has_its_own_tolerances():
    b = np.array([1.0, 2.0, 3.0], np.float32)
    root = ad.implicit_root(lambda w, b: w**3 - b, np.cbrt)
    g = ad.grad(lambda b: np.sum(root(b)))(b)
    assert g.dtype == np.float32
    np.testing.assert_allclose(g, b ** np.float32(-2 / 3) / 3, rtol=8 * np.finfo(np.float32).eps)
    assert ad.jvp(root, (b,), (b,))[1].dtype == np.float32


def test_aux_and_keywords():
    @ad.implicit_root(lambda w, a: w**3 - a, has_aux=True)
    def solve(a, start=1.0):
        w, steps = start, 0
        while abs(w**3 - a) > 1e-12 * a and steps < 50:
            w, steps = w - (w**3 - a) / (3 * w**2), steps + 1
        return w, {"steps": steps}

    gradient, aux = ad.grad(solve, has_aux=True)(8.0, start=2.5)
    assert gradient == pytest.approx(1 / 12, rel=1e-13)
    assert aux["steps"] > 1
    assert solve(8.0)[1]["steps"] > 1
    with pytest.raises(TraceError, match=r"keyword argument 'start' is traced.*position"):
        ad.grad(lambda s: solve(8.0, start=s)[0])(1.0)


def test_what_is_traced_in_the_closure_of_F_counts():
    def outer(theta):
        return ad.implicit_root(lambda w, a: w**2 - a * theta, lambda a: np.sqrt(a * plain(theta)))(4.0)

    assert ad.grad(outer)(9.0) == pytest.approx(np.sqrt(4 / 9) / 2, rel=1e-14)
    check_derivative(outer, 9.0)
    with pytest.raises(TraceError, match=r"answer is traced.*pass them as arguments"):
        ad.grad(lambda theta: ad.implicit_root(lambda w, a: w**2 - a, lambda a: np.sqrt(a * theta))(4.0))(9.0)


def test_no_dependence_and_no_unknowns():
    root = ad.implicit_root(lambda w, a: w**2 - 4.0, lambda a: 2.0)
    assert ad.grad(root)(3.0) == 0
    none = ad.implicit_root(lambda w, a: w * a, lambda a: np.zeros(0))
    assert ad.jacobian(none)(3.0).shape == (0,)


# -- the linear solvers -----------------------------------------------------------------------------------


def tridiagonal(w, b):
    """A discretised −u″ + u³ = b."""
    padded = np.concatenate([np.zeros(1), w, np.zeros(1)])
    return 2 * w - padded[2:] - padded[:-2] + w**3 - b


def tridiagonal_jacobian(w, b):
    return scipy.sparse.diags_array(
        [np.full(w.size - 1, -1.0), 2 + 3 * w**2, np.full(w.size - 1, -1.0)], offsets=[-1, 0, 1]
    )


def solve_tridiagonal(b):
    w = np.zeros(b.size)
    for _ in range(10):
        w = w - np.linalg.solve(tridiagonal_jacobian(w, b).toarray(), tridiagonal(w, b))
    return w


KINDS = {
    "dense": {},
    "given dense": {"jacobian": lambda w, b: tridiagonal_jacobian(w, b).toarray()},
    "cholesky": {"linear_solver": "cholesky"},
    "sparse by the matrix": {"jacobian": tridiagonal_jacobian},
    "sparse": {"jacobian": tridiagonal_jacobian, "linear_solver": "sparse"},
    "krylov": {"linear_solver": "krylov"},
    "krylov with a matrix": {"linear_solver": "krylov", "jacobian": tridiagonal_jacobian},
}


@pytest.mark.parametrize("kind", KINDS)
def test_linear_solvers_agree(kind, rng):
    b = rng.standard_normal(9)
    root = ad.implicit_root(tridiagonal, solve_tridiagonal, **KINDS[kind])
    J = np.linalg.inv(tridiagonal_jacobian(solve_tridiagonal(b), b).toarray())
    for mode in ("forward", "reverse"):
        # Krylov residuals of 1e-10 times a condition of some 10
        np.testing.assert_allclose(
            ad.jacobian(root, mode)(b), J, atol=1e-13 if "krylov" not in kind else 1e-9
        )
    check_derivative(root, b)


@pytest.mark.parametrize("kind", ["dense", "sparse", "krylov", "cholesky"])
def test_asymmetric_or_not_transposes_are_right(kind, rng):
    """Forward and reverse use A and Aᵀ; an asymmetric A tells them apart."""
    A = np.triu(rng.standard_normal((5, 5))) + 3 * np.eye(5)
    options = {"linear_solver": {"dense": "lu"}.get(kind, kind)}
    if kind == "sparse":
        options["jacobian"] = lambda w, b: scipy.sparse.csr_array(A)
    root = ad.implicit_root(lambda w, b: A @ w - b, lambda b: np.linalg.solve(A, b), **options)
    if kind == "cholesky":
        with pytest.raises(ValueError, match=r'not symmetric.*linear_solver="lu"'):
            ad.jacobian(root)(np.ones(5))
        return
    for mode in ("forward", "reverse"):
        np.testing.assert_allclose(ad.jacobian(root, mode)(np.ones(5)), np.linalg.inv(A), atol=1e-9)


def test_krylov_reports_a_residual_that_falls_short():
    A = np.array([[1.0, 2.0], [2.0, 4.0]])  # singular: b's move has no answer
    root = ad.implicit_root(lambda w, b: A @ w - b, lambda b: np.array([1.0, 1.0]), linear_solver="krylov")
    with pytest.warns(ConvergenceWarning, match=r"GMRES left a residual of \d\.\de[+-]\d+"):
        ad.jvp(root, (np.array([3.0, 6.0]),), (np.array([1.0, 0.0]),))


def test_many_unknowns_go_to_krylov_on_their_own(monkeypatch):
    monkeypatch.setattr(implicit, "DENSE_UNKNOWNS", 8)
    monkeypatch.setattr(implicit, "LU", None)
    b = np.linspace(-1, 1, 9)
    ad.jvp(ad.implicit_root(tridiagonal, solve_tridiagonal), (b,), (b,))


@pytest.mark.parametrize("kind", ["LU", "Cholesky", "SparseLU"])
def test_condition_estimates(kind, rng):
    U = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    A = U * np.geomspace(1, 1e-7, 30) @ U.T
    factor = getattr(factors, kind)(scipy.sparse.csc_array(A) if kind == "SparseLU" else (A + A.T) / 2)
    # The 1-norm's number of a matrix whose scaling hardly changes it: within a factor n of the 2-norm's.
    assert 1e-7 / 100 < factor.rcond < 1e-7 * 100


def test_one_factorisation_serves_all(monkeypatch, data):
    made = []

    class Counted(factors.LU):
        def __init__(self, A):
            made.append(A.shape)
            super().__init__(A)

    monkeypatch.setattr(implicit, "LU", Counted)
    A, p = data
    solve = ad.implicit_root(system, by_scipy)
    _, pullback = ad.vjp(lambda b: solve(A, {**p, "b": b}), p["b"])
    for g in np.eye(SIZE):
        pullback(g)
    assert len(made) == 1
    made.clear()
    ad.jacobian(lambda b: solve(A, {**p, "b": b}), "forward")(p["b"])
    assert len(made) == 1
    made.clear()
    ad.hvp(lambda b: np.sum(solve(A, {**p, "b": b}) ** 2), p["b"], np.ones(SIZE))
    assert len(made) == 1


@pytest.mark.parametrize("kind", ["LU", "Krylov"])
def test_memory_goes_without_the_collector(kind, monkeypatch):
    kept = []
    original = getattr(implicit, kind)

    def made(*args):
        factor = original(*args)
        kept.append(weakref.ref(factor))
        return factor

    monkeypatch.setattr(implicit, kind, made)
    root = ad.implicit_root(tridiagonal, solve_tridiagonal, linear_solver=kind.lower())
    gc.collect()
    gc.disable()
    try:
        ad.grad(lambda b: np.sum(root(b) ** 2))(np.ones(5))
        ad.hvp(lambda b: np.sum(root(b) ** 2), np.ones(5), np.ones(5))
        assert len(kept) == 2
        assert all(reference() is None for reference in kept)
    finally:
        gc.enable()


# -- minima -----------------------------------------------------------------------------------------------


def test_hypergradient_of_a_logistic_regression(rng):
    """The derivative of a validation loss in the penalty (LSQR got such ones wrong in the first digit)."""
    X, V = rng.standard_normal((2, 40, 5))
    y, v = np.sign(X[:, 0] + 0.3 * rng.standard_normal(40)), np.sign(V[:, 0])

    def loss(w, X, log_alpha):
        return np.sum(np.log(1 + np.exp(-y * (X @ w)))) + np.exp(log_alpha) * np.sum(w**2) / 2

    def solve(X, log_alpha):
        w = np.zeros(5)
        for _ in range(30):
            p = 1 / (1 + np.exp(y * (X @ w)))
            H = (X.T * (p * (1 - p))) @ X + np.exp(log_alpha) * np.eye(5)
            w = w - np.linalg.solve(H, -X.T @ (y * p) + np.exp(log_alpha) * w)
        return w

    fit = ad.argmin(loss, solve)
    check_derivative(fit, X, 0.4)
    check_derivative(lambda a: np.sum(np.log(1 + np.exp(-v * (V @ fit(X, a))))), 0.4)


def test_saddle_points_and_flat_minima_are_not_minima():
    saddle = ad.argmin(
        lambda w, a: w[0] ** 2 - w[1] ** 2 + a * np.sum(w), lambda a: np.array([-a / 2, a / 2])
    )
    with pytest.raises(ImplicitFunctionError, match=r"not positive definite at pivot 1: .*saddle point"):
        ad.jacobian(saddle)(1.0)
    flat = ad.argmin(lambda w, a: (w[0] + w[1] - a) ** 2, lambda a: np.array([a, 0.0]))
    with pytest.raises(ImplicitFunctionError, match="Hessian of f in w is singular"):
        ad.jacobian(flat)(1.0)


def test_given_hessian_dense_or_sparse():
    for hessian in (
        lambda w, a: np.diag(12 * w**2 + 2),
        lambda w, a: scipy.sparse.diags_array(12 * w**2 + 2),
    ):
        fit = ad.argmin(
            lambda w, a: np.sum(w**4 + w**2 - a * w),
            lambda a: newton(lambda w, a: 4 * w**3 + 2 * w - a, np.ones(a.size), a),
            hessian=hessian,
        )
        check_derivative(fit, np.array([1.0, 2.0, 3.0]))


# -- what bad input gets ----------------------------------------------------------------------------------


def test_answers_that_are_no_roots():
    def off(error):
        return ad.implicit_root(lambda w, a: w**2 - a, lambda a: np.sqrt(a) * (1 + error))

    with pytest.raises(ImplicitFunctionError, match=r"no simple root.*stopped early \(\|F\| is"):
        ad.grad(off(0.5))(4.0)
    with pytest.warns(ConvergenceWarning, match=r"2\.0e-05 from the root.*tighten"):
        ad.grad(off(1e-5))(4.0)
    assert ad.grad(off(1e-9))(4.0) == pytest.approx(0.25, rel=2e-9)
    assert (
        ad.grad(ad.implicit_root(lambda w, a: w**2 - a, lambda a: np.sqrt(a) * 1.00001, rtol=1e-4))(4.0) > 0
    )
    # a root at zero has no size of its own
    assert ad.grad(ad.implicit_root(lambda w, a: w**3 + w - a, lambda a: 1e-10))(0.0) == pytest.approx(1)
    with pytest.raises(ImplicitFunctionError, match="infinite or NaN"):
        ad.grad(off(np.nan))(4.0)


def test_misuse_is_named():
    with pytest.raises(ValueError, match="linear_solver must be one of auto, lu"):
        ad.implicit_root(lambda w, a: w - a, linear_solver="qr")
    with pytest.raises(ValueError, match="needs jacobian="):
        ad.implicit_root(lambda w, a: w - a, linear_solver="sparse")
    with pytest.raises(ValueError, match="F has 1 values for the 2 entries of w"):
        ad.grad(lambda a: np.sum(ad.implicit_root(lambda w, a: np.sum(w) - a, lambda a: np.ones(2))(a)))(2.0)
    with pytest.raises(ValueError, match=r"jacobian= .* is not the derivative in w"):
        ad.grad(ad.implicit_root(lambda w, a: w**2 - a, np.sqrt, jacobian=lambda w, a: -2 * w))(4.0)
    with pytest.raises(ValueError, match="jacobian= has shape"):
        ad.grad(
            ad.implicit_root(lambda w, a: w**2 - a, np.sqrt, jacobian=lambda w, a: scipy.sparse.eye_array(2))
        )(4.0)


def test_a_failed_solver_leaves_nothing_behind():
    def broken(a):
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        ad.grad(ad.implicit_root(lambda w, a: w**2 - a, broken))(4.0)
    assert ad.grad(ROOTS["root"])(4.0) == 0.25


@pytest.mark.parametrize(
    ("solve", "kind"),
    [
        (lambda a: None, "NoneType"),
        (lambda a: scipy.optimize.root(lambda x: x * x - a, 1.0), "OptimizeResult"),
        (lambda a: (np.sqrt(a), "converged"), "str"),
    ],
    ids=["nothing", "a result", "a flag"],
)
def test_an_answer_that_is_no_array_of_numbers_is_named(solve, kind):
    root = ad.implicit_root(lambda w, a: w * w - a, solve)
    with pytest.raises(
        TraceError, match=rf"solve's answer has a part of type {kind}.*result.x.*has_aux=True"
    ):
        ad.grad(root)(2.0)

"""Costs of two slopes by their dual: against a general solver, and the conditions of optimality."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from mercer import SVR
from mercer.kernels import RBF, FunctionKernel, Linear, Precomputed, Spectrum
from mercer.losses import EpsilonInsensitive, Quantile
from mercer.solvers.piecewise_linear import _Box, _Columns, _polished, best_intercept, piecewise_linear

LOSSES = [Quantile(0.5), Quantile(0.9), Quantile(0.05), EpsilonInsensitive(0.2), EpsilonInsensitive(0.0)]
each = pytest.mark.parametrize("loss", LOSSES, ids=repr)
intercepts = pytest.mark.parametrize("fit_intercept", [True, False])


def problem(rng, n=60):
    X = rng.standard_normal((n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * rng.standard_normal(n) + 2


def by_scipy(K, loss, y, weights, alpha, fit_intercept):
    """The minimum of the primal with slacks, a quadratic program, by scipy's SLSQP."""
    n = len(y)
    low, high = loss.slopes
    L = np.linalg.cholesky(K + 1e-13 * np.eye(n))
    # In v with Ka = L v, and slacks above and below the tube.
    A = np.hstack([L, np.full((n, 1), float(fit_intercept)), np.eye(n), -np.eye(n)])

    def cost(w):
        v, up, down = w[:n], w[n + 1 : 2 * n + 1], w[2 * n + 1 :]
        gradient = np.concatenate([2 * alpha * v, [0.0], -low * weights, high * weights])
        return alpha * v @ v - low * weights @ up + high * weights @ down, gradient

    constraints = [
        {"type": "ineq", "fun": lambda w: A @ w - (y - loss.tube), "jac": lambda w: A},
        {"type": "ineq", "fun": lambda w: y + loss.tube - A @ w, "jac": lambda w: -A},
    ]
    start = np.zeros(3 * n + 1)
    start[n] = np.median(y) if fit_intercept else 0.0
    start[n + 1 : 2 * n + 1] = np.maximum(y - start[n], 0)
    start[2 * n + 1 :] = np.maximum(start[n] - y, 0)
    bounds = [(None, None)] * (n + 1) + [(0, None)] * (2 * n)
    found = minimize(
        cost,
        start,
        jac=True,
        bounds=bounds,
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-13},
    )
    return found.fun


@each
@intercepts
def test_objectives_are_those_of_a_general_solver(loss, fit_intercept, rng):
    X, y = problem(rng, n=18)
    weights = rng.uniform(0.5, 2.0, size=18)
    K = RBF(gamma=0.5)(X)
    found = piecewise_linear(RBF(gamma=0.5), X, loss, y, weights, 0.3, fit_intercept=fit_intercept)
    assert found.converged
    assert found.objective == pytest.approx(by_scipy(K, loss, y, weights, 0.3, fit_intercept), rel=1e-8)


@each
@intercepts
@pytest.mark.parametrize("alpha", [1e3, 1.0, 1e-2])
def test_conditions_of_optimality_hold(loss, fit_intercept, alpha, rng):
    """By the subgradient of each cost at its own value, which no solver enters."""
    X, y = problem(rng)
    K = RBF(gamma=0.5)(X)
    found = piecewise_linear(RBF(gamma=0.5), X, loss, y, None, alpha, fit_intercept=fit_intercept)
    f = K @ found.a + found.b
    np.testing.assert_allclose(found.f, f, atol=1e-10)
    assert found.objective == pytest.approx(loss.value(y, f).sum() + alpha * found.a @ K @ found.a, rel=1e-12)
    u = -2 * alpha * found.a
    low, high = loss.slopes
    far = f - y
    blur = 1e-7
    np.testing.assert_allclose(u[far < -loss.tube - blur], low, rtol=1e-9)
    np.testing.assert_allclose(u[far > loss.tube + blur], high, rtol=1e-9)
    np.testing.assert_allclose(u[np.abs(far) < loss.tube - blur], 0.0, atol=1e-9)
    assert np.all((u >= low - 1e-12) & (u <= high + 1e-12))
    if fit_intercept:
        assert abs(found.a.sum()) <= 1e-9 * np.abs(found.a).sum() + 1e-12
    else:
        assert found.b == 0
    nothing = best_intercept(loss, y, np.ones(len(y))) if fit_intercept else 0.0
    assert 0 <= found.gap <= 1e-8 * loss.value(y, nothing).sum()


def test_the_gap_bounds_what_is_left(rng):
    X, y = problem(rng)
    best = piecewise_linear(RBF(gamma=0.5), X, Quantile(0.7), y, None, 0.01, tol=1e-12)
    early = piecewise_linear(RBF(gamma=0.5), X, Quantile(0.7), y, None, 0.01, max_iter=25)
    assert not early.converged
    assert early.n_iter == 25
    assert best.objective < early.objective <= best.objective + early.gap * (1 + 1e-9)


@each
def test_intercepts_are_the_least_of_all_kinks(loss, rng):
    """By trying every kink, where a piecewise linear function of b has its minimum."""
    for n in [1, 2, 7, 20]:
        r, w = rng.standard_normal(n), rng.uniform(0.5, 2.0, size=n)
        kinks = np.concatenate([r - loss.tube, r + loss.tube])
        values = [w @ loss.value(r, b) for b in kinks]
        b = best_intercept(loss, r, w)
        assert w @ loss.value(r, b) <= min(values) + 1e-12


def test_an_interval_of_intercepts_has_its_middle():
    assert best_intercept(Quantile(0.5), np.array([0.0, 1.0, 3.0, 9.0]), np.ones(4)) == 2.0
    assert best_intercept(EpsilonInsensitive(1.0), np.array([5.0]), np.ones(1)) == 5.0
    assert best_intercept(EpsilonInsensitive(2.0), np.array([0.0, 1.0]), np.ones(2)) == 0.5


@intercepts
def test_epsilon_insensitive_is_svr(fit_intercept, rng):
    X, y = problem(rng, n=200)
    found = piecewise_linear(
        RBF(gamma=0.5), X, EpsilonInsensitive(0.1), y, None, 0.05, fit_intercept=fit_intercept
    )
    if fit_intercept:
        theirs = SVR(kernel=RBF(gamma=0.5), C=10.0, epsilon=0.1, tol=1e-10).fit(X, y)
        np.testing.assert_allclose(found.f, theirs.predict(X), atol=1e-8)
        # P = 2α (½‖w‖² + C Σ slack)
        assert found.objective == pytest.approx(0.1 * theirs.primal_objective_[0], rel=1e-8)


@intercepts
def test_many_rows_in_single_precision_end_as_exactly(fit_intercept, rng):
    """Over 1000 rows the first round takes float32 rows of K; the gap is that of K itself."""
    X, y = problem(rng, n=1200)
    K = RBF(gamma=0.5)(X)
    found = piecewise_linear(RBF(gamma=0.5), X, Quantile(0.8), y, None, 0.5, fit_intercept=fit_intercept)
    assert found.converged
    np.testing.assert_allclose(found.f, K @ found.a + found.b, atol=1e-11)
    f = K @ found.a + found.b
    costs = Quantile(0.8).value(y, f)
    dual = -0.5 * found.a @ K @ found.a + y @ found.a
    assert costs.sum() + 0.5 * found.a @ K @ found.a - 2 * 0.5 * dual <= 1e-7 * found.objective


@each
def test_a_start_is_gone_on_from(loss, rng):
    X, y = problem(rng)
    first = piecewise_linear(RBF(gamma=0.5), X, loss, y, None, 0.1)
    again = piecewise_linear(RBF(gamma=0.5), X, loss, y, None, 0.1, start=first.a)
    assert again.n_iter <= first.n_iter / 2 + 2
    for alpha in (10.0, 0.01):
        cold = piecewise_linear(RBF(gamma=0.5), X, loss, y, None, alpha)
        warm = piecewise_linear(RBF(gamma=0.5), X, loss, y, None, alpha, start=first.a)
        assert warm.objective == pytest.approx(cold.objective, rel=2e-8)


@each
def test_a_start_from_a_fit_without_an_intercept(loss, rng):
    """Its coefficients have a sum, which the solver would keep."""
    X, y = problem(rng)
    first = piecewise_linear(RBF(gamma=0.5), X, loss, y, None, 0.1, fit_intercept=False)
    assert abs(first.a.sum()) > 1e-3
    warm = piecewise_linear(RBF(gamma=0.5), X, loss, y, None, 0.1, start=first.a)
    cold = piecewise_linear(RBF(gamma=0.5), X, loss, y, None, 0.1)
    assert abs(warm.a.sum()) <= 1e-12 * np.abs(warm.a).sum()
    assert warm.objective == pytest.approx(cold.objective, rel=2e-8)


@each
@intercepts
def test_kernels_without_an_inverse(loss, fit_intercept, rng):
    """Repeated rows and a linear kernel: K is singular, and no step may go through its inverse."""
    X, y = problem(rng, n=20)
    X, y = np.tile(X, (2, 1)), np.concatenate([y, y + 0.05])
    for kernel in [Linear(), RBF(gamma=0.5)]:
        found = piecewise_linear(kernel, X, loss, y, None, 0.01, fit_intercept=fit_intercept)
        assert found.converged
        given = piecewise_linear(Precomputed(), kernel(X), loss, y, None, 0.01, fit_intercept=fit_intercept)
        assert given.objective == pytest.approx(found.objective, rel=2e-8)


@each
@intercepts
def test_tiny_and_flat_problems(loss, fit_intercept):
    one = piecewise_linear(
        RBF(), np.ones((1, 1)), loss, np.array([2.0]), None, 1.0, fit_intercept=fit_intercept
    )
    assert one.converged
    if fit_intercept:
        assert (one.b, one.objective) == (2.0, 0.0)
    flat = piecewise_linear(RBF(), np.arange(4.0)[:, None], loss, np.full(4, 3.0), None, 1.0)
    assert (flat.b, flat.objective, flat.converged) == (3.0, 0.0, True)
    zero = piecewise_linear(RBF(), np.arange(4.0)[:, None], loss, np.zeros(4), None, 1.0, fit_intercept=False)
    assert (zero.objective, zero.converged) == (0.0, True)


@pytest.mark.parametrize("alpha", [1e-12, 1e-6, 1e6, 1e12])
def test_extreme_penalties(alpha, rng):
    X, y = problem(rng, n=30)
    found = piecewise_linear(RBF(gamma=0.5), X, Quantile(0.3), y, None, alpha)
    assert found.converged
    if alpha >= 1e6:
        assert found.objective == pytest.approx(
            Quantile(0.3).value(y, best_intercept(Quantile(0.3), y, np.ones(30))).sum(), rel=1e-4
        )
    else:
        # The fit through all targets costs this much at most, and what was found is that near the minimum.
        K = RBF(gamma=0.5)(X)
        assert found.objective <= alpha * y @ np.linalg.solve(K, y) + found.gap


def test_results_do_not_depend_on_threads(rng):
    X, y = problem(rng, n=300)
    found = [
        piecewise_linear(RBF(gamma=0.5), X, Quantile(0.8), y, None, 0.01, n_threads=k).a for k in (1, 2, 3)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_samples_that_are_no_rows():
    words = ["banana", "ananas", "bandana", "cabana", "savanna", "canada", "panama", "nanny"]
    kernel, y = Spectrum(2).normalize(), np.arange(8.0)
    found = piecewise_linear(kernel, words, Quantile(0.5), y, None, 0.1)
    given = piecewise_linear(Precomputed(), kernel(words), Quantile(0.5), y, None, 0.1)
    assert found.objective == pytest.approx(given.objective, rel=1e-10)
    scaled = piecewise_linear(2.0 * Precomputed(), kernel(words) / 2, Quantile(0.5), y, None, 0.1)
    assert found.objective == pytest.approx(scaled.objective, rel=1e-10)


def test_a_kernel_that_overflows_names_the_row():
    X = np.array([[1.0], [1e200], [2.0]])
    with pytest.raises(ValueError, match="infinite or NaN in row 1"):
        piecewise_linear(Linear(), X, Quantile(0.5), np.arange(3.0), None, 1.0)


@intercepts
def test_a_users_function_is_called_for_each_pair_once(fit_intercept, rng):
    X, y = problem(rng, n=30)
    calls = []

    def function(A, B):
        calls.append(len(A) * len(B))
        return np.exp(-0.5 * ((A[:, None] - B) ** 2).sum(-1))

    found = piecewise_linear(
        FunctionKernel(function), X, Quantile(0.5), y, None, 0.01, fit_intercept=fit_intercept
    )
    plain = piecewise_linear(RBF(gamma=0.5), X, Quantile(0.5), y, None, 0.01, fit_intercept=fit_intercept)
    assert found.objective == pytest.approx(plain.objective, rel=1e-8)
    # A trial of whether it takes blocks may come before.
    assert sum(calls) <= 30 * 30 + 60


@pytest.mark.parametrize("loss", [Quantile(0.8), EpsilonInsensitive(0.1)], ids=repr)
@pytest.mark.parametrize("form", ["kernel", "matrix"])
@pytest.mark.parametrize("alpha", [1e-4, 1e-5, 1e-6])
def test_equal_rows_cost_no_more_than_weights(loss, form, alpha, rng):
    """A bootstrap sample: K among the coefficients that are free is singular."""
    n = 400
    X = rng.standard_normal((n, 3))
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(n)
    drawn = rng.integers(0, n, n)
    rows, counts = np.unique(drawn, return_counts=True)
    kernel = RBF(gamma=0.3)
    merged = piecewise_linear(kernel, X[rows], loss, y[rows], counts.astype(float), alpha)
    repeated, sample = X[drawn], kernel
    if form == "matrix":
        repeated, sample = kernel(repeated), Precomputed()
    found = piecewise_linear(sample, repeated, loss, y[drawn], None, alpha, max_iter=500 * n)
    assert merged.converged
    assert found.converged
    # Rounding of Ka, whose terms cancel; no entry of K is above 1.
    noise = np.finfo(float).eps * n * (np.abs(found.a).sum() + np.abs(merged.a).sum())
    assert noise < 2e-6 * merged.objective
    assert found.objective == pytest.approx(merged.objective, abs=found.gap + merged.gap + noise)


@intercepts
@pytest.mark.parametrize("loss", [Quantile(0.5), EpsilonInsensitive(0.2)], ids=repr)
def test_linear_functions_end_at_the_vertex_of_the_linear_program(loss, fit_intercept, rng):
    """At a tiny alpha, of a kernel of rank 3, where Newton's system is singular."""
    n, d, alpha = 150, 3, 1e-6
    X = 10 * rng.standard_normal((n, d))
    y = X @ [1.0, -2.0, 0.5] + rng.standard_normal(n)
    weights = rng.exponential(size=n)
    found = piecewise_linear(
        Linear(), X, loss, y, weights, alpha, fit_intercept=fit_intercept, max_iter=400 * n
    )
    low, high = loss.slopes
    A = np.hstack([X, np.full((n, 1), float(fit_intercept))])
    rows = np.block([[A, -np.eye(n), np.zeros((n, n))], [-A, np.zeros((n, n)), -np.eye(n)]])
    cost = np.concatenate([np.zeros(d + 1), high * weights, -low * weights])
    limits = np.concatenate([y + loss.tube, loss.tube - y])
    bounds = [(None, None)] * (d + 1) + [(0, None)] * (2 * n)
    least = linprog(cost, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
    assert least.success
    # The penalty at the program's solution is the most that the two minima are apart.
    penalty = alpha * least.x[:d] @ least.x[:d]
    # Rounding of the sums Ka, whose terms cancel.
    noise = np.finfo(float).eps * weights @ (np.abs(X @ X.T) @ np.abs(found.a))
    assert noise < 1e-4 * least.fun
    assert found.converged
    assert least.fun - noise <= found.objective <= least.fun + penalty + noise + found.gap


@intercepts
def test_newton_steps_leave_no_more_free_than_the_rank(fit_intercept, rng):
    """Down along what K does not see, until coefficients meet their bounds; never up."""
    n, d, loss = 80, 3, Quantile(0.5)
    X = rng.standard_normal((n, d))
    y, K = rng.standard_normal(n), X @ X.T
    box = _Box(loss, y, rng.uniform(0.5, 2.0, n), 1e-3, fit_intercept)
    a = box.scaled(0.5 * box.high * rng.uniform(-1, 1, n))
    polished, image = _polished(box, _Columns(Linear(), X, 1), a, K @ a)
    assert (polished >= box.low).all()
    assert (polished <= box.high).all()
    assert len(box.free(a)) > 10 * d
    assert len(box.free(polished)) <= d + fit_intercept
    atol = 1e-9 * np.abs(K).sum(axis=1).max() * box.high.max()
    np.testing.assert_allclose(image, K @ polished, rtol=0, atol=atol)
    if fit_intercept:
        assert abs(polished.sum()) <= 1e-9 * box.high.sum()

    def dual(a):
        return 0.5 * a @ K @ a - y @ a

    assert dual(polished) < dual(a)


@pytest.mark.parametrize("loss", [Quantile(0.5), EpsilonInsensitive(0.1)], ids=repr)
@pytest.mark.parametrize("alpha", [1e-5, 1e-6])
def test_a_small_alpha_needs_no_millions_of_steps(loss, alpha, rng):
    """Hundreds of coefficients are inside of their box there, of which pairwise steps move two."""
    n = 800
    X = rng.standard_normal((n, 4))
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(n)
    found = piecewise_linear(RBF(gamma=0.25), X, loss, y, None, alpha, max_iter=500 * n)
    assert found.converged
    assert found.relative_gap <= 1e-8

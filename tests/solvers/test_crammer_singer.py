"""Crammer and Singer's problem against a general solver, its own optimality conditions, and peers."""

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear, minimize
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from mercer.kernels import RBF
from mercer.solvers import crammer_singer as module
from mercer.solvers import crammer_singer_block
from mercer.solvers.crammer_singer import crammer_singer
from mercer.solvers.crammer_singer_block import _nearest, _solve_sample


def solve(K, y, C, k=None, **options):
    k = int(np.max(y)) + 1 if k is None else k
    C = np.broadcast_to(np.asarray(C, float), len(y))
    return crammer_singer(lambda index: K[index], np.diag(K), y, k, C, **options)


def losses(y, k):
    return 1.0 - (np.arange(k) == y[:, None])


def oracle(K, y, C, k):
    """A minimiser and the least value by an interior-point solver, over A; None where it fell short."""
    n = len(y)
    C = np.broadcast_to(np.asarray(C, float), n)
    e = losses(y, k)
    P = sp.csc_matrix(np.triu(np.kron(K, np.eye(k))))
    upper = np.where(e == 0, C[:, None], 0.0)
    bounded = np.isfinite(upper.ravel())
    rows = sp.vstack([sp.kron(sp.eye(n), np.ones((1, k))), sp.eye(n * k, format="csr")[bounded]])
    right = np.hstack([np.zeros(n), upper.ravel()[bounded]])
    options = clarabel.DefaultSettings()
    options.verbose, options.max_iter = False, 300
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-11
    cones = [clarabel.ZeroConeT(n), clarabel.NonnegativeConeT(int(bounded.sum()))]
    result = clarabel.DefaultSolver(P, e.ravel(), sp.csc_matrix(rows), right, cones, options).solve()
    if result.status != clarabel.SolverStatus.Solved:
        return None
    return np.array(result.x).reshape(n, k), result.obj_val


def check(out, K, y, C, tol):
    """Feasible, optimal to `tol`, and true to what it says."""
    A, F, e = out.coef, K @ out.coef, losses(y, out.coef.shape[1])
    C = np.broadcast_to(np.asarray(C, float), len(y))
    upper = np.where(e == 0, C[:, None], 0.0)
    scale = np.max(np.abs(A), initial=1.0)
    assert np.all(A <= upper)
    np.testing.assert_allclose(A.sum(axis=1), 0, atol=1e-13 * scale)
    np.testing.assert_allclose(out.decision, F, atol=1e-10 * scale * max(1.0, np.abs(K).max()))
    g = (F + e)[:, out.present]
    free = (A < upper)[:, out.present]
    violation = g.max(axis=1) - np.where(free, g, np.inf).min(axis=1)
    assert np.max(violation[C > 0]) <= tol
    assert out.converged
    np.testing.assert_allclose(out.objective, 0.5 * np.vdot(A, F) + np.vdot(A, e), rtol=1e-9, atol=1e-12)
    assert out.duality_gap >= 0
    np.testing.assert_allclose(out.primal_objective, out.duality_gap - out.objective)


def primal(A, K, y, C):
    """½⟨A, KA⟩ + Σ Cᵢ maxₘ(fᵢₘ + eᵢₘ − fᵢᵧ) over the classes that are there, a bound."""
    F = K @ A
    there = np.unique(y[C > 0])
    slack = (F + losses(y, A.shape[1]))[:, there].max(axis=1) - F[np.arange(len(y)), y]
    return 0.5 * np.vdot(A, F) + C[C > 0] @ slack[C > 0]


@pytest.fixture
def blobs(rng):
    y = np.arange(60) % 4
    X = rng.normal(size=(60, 3)) + 1.2 * rng.normal(size=(4, 3))[y]
    return X, y


@pytest.mark.parametrize("C", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_meets_an_interior_point_solver(blobs, kernel, C):
    X, y = blobs
    K = X @ X.T if kernel == "linear" else RBF(gamma=0.5)(X)
    out = solve(K, y, C, tol=1e-9)
    check(out, K, y, C, 1e-9)
    A, best = oracle(K, y, C, 4)
    np.testing.assert_allclose(out.objective, best, rtol=1e-7)
    np.testing.assert_allclose(out.decision, K @ A, atol=1e-4)
    assert out.duality_gap < 1e-7 * abs(best)


def test_meets_scipy(rng):
    X = rng.normal(size=(8, 2))
    K, y, k, C = RBF(gamma=0.7)(X), np.arange(8) % 3, 3, 2.0
    e = losses(y, k)

    def value(a):
        A = a.reshape(8, k)
        return 0.5 * np.vdot(A, K @ A) + np.vdot(A, e), (K @ A + e).ravel()

    bounds = [(None, C if e[i, m] == 0 else 0.0) for i in range(8) for m in range(k)]
    sums = {"type": "eq", "fun": lambda a: a.reshape(8, k).sum(axis=1)}
    found = minimize(
        value,
        np.zeros(8 * k),
        jac=True,
        bounds=bounds,
        constraints=sums,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    out = solve(K, y, C, tol=1e-10)
    np.testing.assert_allclose(out.objective, found.fun, rtol=1e-7)
    np.testing.assert_allclose(out.coef, found.x.reshape(8, k), atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.sampled_from([0.01, 1.0, 100.0, 1e4]), st.booleans())
def test_any_tiny_problem(seed, k, C, linear):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(k, 25))
    X = np.round(rng.normal(size=(n, 2)), 1)
    X[n // 2] = X[0]
    y = np.hstack([np.arange(k), rng.integers(0, k, n - k)])
    upper = C * rng.choice([0.0, 0.5, 1.0, 3.0], n)
    upper[:k] = C
    K = X @ X.T if linear else np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    tol = 1e-7
    out = solve(K, y, upper, k, tol=tol)
    check(out, K, y, upper, tol)
    # a violation v leaves at most v Σ Cᵢ: weak duality proves it, without another solver
    assert primal(out.coef, K, y, upper) + out.objective <= tol * upper.sum() + 1e-9 * (
        1 + abs(out.objective)
    )
    found = oracle(K, y, upper, k)
    if found is not None:  # it gives up on some singular K
        np.testing.assert_allclose(out.objective, found[1], rtol=1e-7, atol=1e-7 + tol * upper.sum())


@pytest.mark.parametrize(("seed", "k"), [(614, 3), (5, 3), (5, 4), (85, 5)])
def test_a_sample_that_is_zero_stops_no_newton_step(seed, k):
    """K has a row of zeros, and at a large C nothing but Newton's steps ends."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(k, 25))
    X = np.round(rng.normal(size=(n, 2)), 1)
    X[-1] = 0.0
    y = np.hstack([np.arange(k), rng.integers(0, k, n - k)])
    upper = 1e4 * rng.choice([0.5, 1.0, 3.0], n)
    K, tol = X @ X.T, 1e-7
    out = solve(K, y, upper, k, tol=tol, max_iter=300)
    check(out, K, y, upper, tol)


@pytest.mark.parametrize("C", [0.3, 10.0])
def test_two_classes_are_the_binary_machine_without_intercept(rng, C):
    X = rng.normal(size=(40, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=40) > 0).astype(int)
    K, s = RBF(gamma=1.0)(X), 2.0 * y - 1
    out = solve(K, y, C, tol=1e-9)
    # A_i1 = sᵢaᵢ and f₁ = −f₀: ½aᵀ(2Q)a − Σa over 0 ≤ a ≤ C, with 2Q = RᵀR as bounded least squares
    values, vectors = np.linalg.eigh(2 * s[:, None] * K * s)
    R = np.sqrt(np.maximum(values, 1e-13))[:, None] * vectors.T
    a = lsq_linear(R, np.linalg.lstsq(R.T, np.ones(40), rcond=None)[0], (0, C), method="bvls", tol=1e-14).x
    np.testing.assert_allclose(out.objective, 0.5 * np.sum((R @ a) ** 2) - a.sum(), rtol=1e-7)
    np.testing.assert_allclose(out.decision[:, 1], K @ (s * a), atol=1e-4)
    np.testing.assert_allclose(out.decision[:, 0], -out.decision[:, 1], atol=1e-12)


@pytest.mark.lenient
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_meets_liblinear(blobs, C):
    X, y = blobs
    peer = LinearSVC(C=C, multi_class="crammer_singer", fit_intercept=False, tol=1e-8, max_iter=10**6)
    peer.fit(X, y)
    out = solve(X @ X.T, y, C, tol=1e-7)
    np.testing.assert_allclose(out.coef.T @ X, peer.coef_, atol=1e-3)
    np.testing.assert_array_equal(out.decision.argmax(axis=1), peer.predict(X))


@pytest.mark.parametrize("direct", [0, 10**6])
@pytest.mark.parametrize("block", [7, 64, 512])
def test_blocks_and_both_ways_to_newtons_step_meet_one_optimum(rng, monkeypatch, block, direct):
    y = rng.integers(0, 5, 150)
    X = rng.normal(size=(150, 4)) + 0.8 * rng.normal(size=(5, 4))[y]
    K = RBF(gamma=0.2)(X)
    best = solve(K, y, 5.0, tol=1e-8)
    check(best, K, y, 5.0, 1e-8)
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_BLOCK_MOST", 2 * block)
    monkeypatch.setattr(crammer_singer_block, "_DIRECT", direct)
    out = solve(K, y, 5.0, tol=1e-5)
    check(out, K, y, 5.0, 1e-5)
    np.testing.assert_allclose(out.objective, best.objective, rtol=1e-6)


def test_rows_that_are_forgotten_come_again(rng, monkeypatch):
    y = rng.integers(0, 3, 200)
    K = RBF(gamma=0.5)(rng.normal(size=(200, 3)))
    expected = solve(K, y, 3.0, tol=1e-6)
    monkeypatch.setattr(module, "available_memory", lambda: 0)
    for name in ("_BLOCK", "_BLOCK_MOST"):
        monkeypatch.setattr(module, name, 70)
    out = solve(K, y, 3.0, tol=1e-6)
    assert out.n_rows > 200 >= expected.n_rows
    check(out, K, y, 3.0, 1e-6)
    np.testing.assert_allclose(out.objective, expected.objective, rtol=1e-7)


def test_equal_runs_are_equal_to_the_bit(blobs):
    X, y = blobs
    grams = [RBF(gamma=0.5).gram(X, n_threads=threads) for threads in (1, 2)]
    first, second = (crammer_singer(gram.rows, gram.diag(), y, 4, np.ones(60)) for gram in grams)
    np.testing.assert_array_equal(first.coef, second.coef)
    assert first.n_iter == second.n_iter


def test_float32_rows(blobs):
    X, y = blobs
    K = RBF(gamma=0.5)(X)
    out = solve(K.astype(np.float32), y, 1.0)
    assert out.converged
    assert out.coef.dtype == np.float64
    np.testing.assert_allclose(out.objective, solve(K, y, 1.0).objective, rtol=1e-4)


class TestRemoved:
    def test_a_zero_bound_is_an_absent_row(self, blobs, rng):
        X, y = blobs
        K, keep = RBF(gamma=0.5)(X), rng.random(60) < 0.7
        out = solve(K, y, np.where(keep, 2.0, 0.0), tol=1e-9)
        less = solve(K[np.ix_(keep, keep)], y[keep], 2.0, tol=1e-9)
        assert not out.coef[~keep].any()
        np.testing.assert_allclose(out.decision, K[:, keep] @ less.coef, atol=1e-6)

    def test_a_class_without_samples_takes_no_part(self, blobs):
        X, y = blobs
        K = RBF(gamma=0.5)(X)
        out = solve(K, y, np.where(y == 1, 0.0, 2.0), 6, tol=1e-9)
        np.testing.assert_array_equal(out.present, [True, False, True, True, False, False])
        assert not out.coef[:, ~out.present].any()
        rest = y != 1
        labels = np.searchsorted([0, 2, 3], y[rest])
        less = solve(K[np.ix_(rest, rest)], labels, 2.0, tol=1e-9)
        np.testing.assert_allclose(out.objective, less.objective, rtol=1e-8)
        np.testing.assert_allclose(out.decision[:, out.present], K[:, rest] @ less.coef, atol=1e-6)

    def test_weights_equal_repetition(self, blobs, rng):
        X, y = blobs
        counts = rng.integers(0, 4, 60)
        counts[:4] = 1
        K, index = RBF(gamma=0.5)(X), np.repeat(np.arange(60), counts)
        out = solve(K, y, 0.7 * counts, tol=1e-9)
        repeated = solve(K[np.ix_(index, index)], y[index], 0.7, tol=1e-9)
        np.testing.assert_allclose(out.objective, repeated.objective, rtol=1e-8)
        np.testing.assert_allclose(out.decision, K[:, index] @ repeated.coef, atol=1e-6)


class TestHardMargin:
    def test_separable(self, rng):
        y = np.arange(30) % 3
        X = rng.normal(size=(30, 2)) + 20 * np.array([[0, 1], [1, -1], [-1, -1]])[y]
        K = X @ X.T
        out = solve(K, y, np.inf, tol=1e-9)
        check(out, K, y, np.inf, 1e-9)
        np.testing.assert_allclose(out.objective, oracle(K, y, np.inf, 3)[1], rtol=1e-6)
        assert 0 <= out.duality_gap < 1e-6 * -out.objective
        g = out.decision + losses(y, 3)
        assert np.max(g.max(axis=1) - out.decision[np.arange(30), y]) <= 1e-9

    @pytest.mark.parametrize("k", [2, 4])
    def test_inseparable(self, rng, k):
        X = rng.normal(size=(40, 2))
        with pytest.raises(ValueError, match=r"cannot be separated, as C=inf demands: .* use a finite C"):
            solve(X @ X.T, np.arange(40) % k, np.inf)

    def test_equal_samples_of_two_classes(self):
        K = RBF(gamma=1.0)(np.array([[0.0], [0.0], [1.0], [2.0]]))
        with pytest.raises(ValueError, match="cannot be separated"):
            solve(K, np.array([0, 1, 0, 1]), np.inf)

    def test_some_bounds_are_finite(self, blobs):
        X, y = blobs
        K, C = RBF(gamma=2.0)(X), np.where(np.arange(60) < 30, np.inf, 0.5)
        out = solve(K, y, C, tol=1e-8)
        check(out, K, y, C, 1e-8)
        np.testing.assert_allclose(out.objective, oracle(K, y, C, 4)[1], rtol=1e-7)
        assert out.duality_gap < 1e-5 * -out.objective


@pytest.mark.parametrize("k", [2, 3, 7])
def test_one_sample_per_class(k):
    out = solve(np.eye(k), np.arange(k), 10.0, tol=1e-12)
    check(out, np.eye(k), np.arange(k), 10.0, 1e-12)
    # fₘ(xᵢ) = a for the own class, −a/(k−1) for others, and the margin 1 between them
    np.testing.assert_allclose(np.diag(out.coef), (k - 1) / k, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_samples_without_curvature(value):
    K, y = np.diag([abs(value), abs(value), value, abs(value)]), np.array([0, 1, 2, 0])
    out = solve(K, y, 2.0)
    assert out.converged
    assert out.gap < 1e-3
    if value == 0:
        check(out, K, y, 2.0, 1e-3)
        np.testing.assert_allclose(out.objective, -8.0, rtol=1e-12)


def test_a_warm_start_goes_on_and_an_infeasible_one_is_mended(blobs, rng):
    X, y = blobs
    K = RBF(gamma=0.5)(X)
    out = solve(K, y, 2.0, tol=1e-8)
    again = solve(K, y, 2.0, tol=1e-7, start=out.coef)
    assert again.n_iter == 0
    np.testing.assert_allclose(again.objective, out.objective, rtol=1e-12)
    for start in (solve(K, y, 20.0).coef, rng.normal(size=(60, 4)) * 10):
        mended = solve(K, y, 2.0, tol=1e-8, start=start)
        check(mended, K, y, 2.0, 1e-8)
        np.testing.assert_allclose(mended.objective, out.objective, rtol=1e-9)


def test_a_capped_or_stalled_solve_warns(blobs):
    X, y = blobs
    K = X @ X.T
    with pytest.warns(ConvergenceWarning, match=r"Crammer and Singer's solver stopped .* raise max_iter"):
        out = solve(K, y, 100.0, tol=1e-6, max_iter=0)
    assert (out.n_iter, out.converged, out.capped, out.gap) == (0, False, True, 1.0)
    with pytest.warns(ConvergenceWarning, match="short of tol=1.0e-300; raise tol"):
        out = solve(K, y, 100.0, tol=1e-300)
    assert not out.converged
    assert not out.capped
    assert out.gap < 1e-9


def test_steps_are_told(blobs):
    X, y = blobs
    steps = []
    out = solve(RBF()(X), y, 1.0, on_step=lambda n, gap: steps.append((n, gap)))
    assert [n for n, _ in steps] == list(range(out.n_iter + 1))
    assert steps[-1][1] == out.gap


class TestBadInput:
    K, y = np.eye(4), np.array([0, 1, 0, 1])

    def test_a_row_is_not_finite(self):
        K = self.K.copy()
        K[2, 0] = np.nan
        with pytest.raises(ValueError, match="the kernel matrix is infinite or NaN in row 2"):
            solve(K, self.y, 1.0)
        K[1, 1] = np.inf
        with pytest.raises(ValueError, match="the kernel matrix is infinite or NaN in row 1"):
            solve(K, self.y, 1.0)

    @pytest.mark.parametrize("bad", [-1.0, np.nan])
    def test_upper(self, bad):
        with pytest.raises(ValueError, match=r"upper must be 0 or more .* at row 3"):
            solve(self.K, self.y, [1.0, 1.0, 1.0, bad])

    def test_labels(self):
        with pytest.raises(ValueError, match="labels must be integers from 0 to 1"):
            solve(self.K, self.y + 1, 1.0, 2)

    def test_one_class(self):
        with pytest.raises(
            ValueError, match="at least 2 classes must have samples of positive weight, got 1"
        ):
            solve(self.K, self.y, [1.0, 0.0, 1.0, 0.0])

    def test_shapes(self):
        with pytest.raises(ValueError, match=r"start must have shape \(4, 2\), got \(4, 3\)"):
            solve(self.K, self.y, 1.0, start=np.zeros((4, 3)))
        with pytest.raises(ValueError, match=r"diagonal and upper must have shape \(4,\)"):
            crammer_singer(lambda index: self.K[index], np.ones(3), self.y, 2, np.ones(4))


@pytest.mark.parametrize("k", [2, 3, 10])
def test_both_projections_agree(rng, k):
    P = rng.normal(size=(200, k)) * rng.choice([0.1, 1, 10], size=(200, 1))
    P -= P.mean(axis=1, keepdims=True)
    y, cap = rng.integers(0, k, 200), rng.choice([0.1, 1.0, np.inf], 200)
    A = _nearest(P, cap, y)
    for row, c, label, expected in zip(P, cap, y, A, strict=True):
        one = _solve_sample((-row).tolist(), [0.0] * k, float(c), int(label), 1.0)
        np.testing.assert_allclose(one, expected, atol=1e-13)
    np.testing.assert_allclose(A.sum(axis=1), 0, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("C", [1.0, 10.0])
def test_digits(C):
    X, y = load_digits(return_X_y=True)
    X = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-9)
    gram = RBF(gamma=1 / 64).gram(X)
    out = crammer_singer(gram.rows, gram.diag(), y, 10, np.full(len(y), C))
    check(out, gram.formed(), y, C, 1.001e-3)
    assert out.duality_gap < 1e-3 * -out.objective

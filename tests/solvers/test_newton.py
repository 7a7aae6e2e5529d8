"""Newton's method on kernelised losses: against a generic minimiser, its figures, lockstep, hard cases."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_iris

from mercer.kernels import RBF
from mercer.losses import (
    Huber,
    JointSquaredMargin,
    Logistic,
    Poisson,
    Softmax,
    Squared,
    SquaredMargin,
)
from mercer.solvers import newton as newton_module
from mercer.solvers import newton_system, quasi_newton
from mercer.solvers.held_matrix import HeldMatrix
from mercer.solvers.newton import newton
from mercer.solvers.newton_system import Curvature, Preconditioner, solve_newton_system
from mercer.solvers.pivoted_cholesky import LowRank, pivoted_cholesky
from mercer.solvers.quasi_newton import lbfgs
from newton_checks import targets

LOSSES = [
    Logistic(),
    SquaredMargin(),
    Softmax(),
    JointSquaredMargin(),
    Huber(delta=0.5),
    Poisson(),
    Squared(),
]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
intercepts = pytest.mark.parametrize("fit_intercept", [True, False])
#: Not fewer than the rows from which systems are preconditioned by part of K, in float32 where that will do.
LARGE = 510


#: For tests that hold for steps in K's features, which so few rows have unless told, as well.
both = pytest.mark.parametrize("coefficients", [True, False], indirect=True)


@pytest.fixture(autouse=True)
def coefficients(request, monkeypatch):
    """Whether all steps are in coefficients."""
    wanted = getattr(request, "param", True)
    if wanted:
        monkeypatch.setattr(newton_module, "primal_pays", lambda *_: False)
    return wanted


def low_rank_of(K, rank=None):
    rng = np.random.default_rng(0)
    return pivoted_cholesky(K.diagonal(), lambda index: K[index], rank or len(K), rng=rng)


def problem(loss, rng, n=60):
    X = rng.normal(size=(n, 3))
    return RBF(gamma=0.3)(X), targets(loss, X[:, 0] - X[:, 1], rng), rng.integers(0, 3, size=n).astype(float)


def solve(K, loss, y, alpha, **options):
    alphas = np.atleast_1d(np.asarray(alpha, dtype=float))
    return newton(lambda V: K @ V, loss, y, alphas, low_rank=low_rank_of(K), **options)


def generic_minimum(K, loss, y, alpha, w, fit_intercept=True):
    """The least Σ w l(y, b + Φv) + α|v|², K = ΦΦᵀ, by SciPy on MLR7's formula."""
    values, vectors = np.linalg.eigh(K)
    used = values > 1e-13 * values[-1]
    features = vectors[:, used] * np.sqrt(values[used])
    C = 3 if loss.vector else 1
    r = features.shape[1]

    def cost(x):
        v, b = x[: r * C].reshape(r, C), x[r * C :]
        f = features @ v + (b if fit_intercept else 0.0)
        own = f if loss.vector else f[:, 0]
        g = w[:, None] * loss.derivative(y, own).reshape(len(y), C)
        slope = [(features.T @ g + 2 * alpha * v).ravel(), g.sum(axis=0) if fit_intercept else []]
        return w @ loss.value(y, own) + alpha * np.vdot(v, v), np.concatenate(slope)

    x = np.zeros(r * C + (C if fit_intercept else 0))
    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 60}
    return minimize(cost, x, jac=True, method="L-BFGS-B", options=options).fun


@both
@every_loss
class TestTheMinimum:
    @intercepts
    @pytest.mark.parametrize("alpha", [10.0, 0.1])
    def test_against_a_generic_minimiser(self, loss, fit_intercept, alpha, rng):
        K, y, w = problem(loss, rng)
        outcome = solve(K, loss, y, alpha, weights=w, fit_intercept=fit_intercept)
        assert outcome.converged.all()
        expected = generic_minimum(K, loss, y, alpha, w, fit_intercept)
        # SciPy stops with relative errors of up to 1e-10 of its own.
        np.testing.assert_allclose(outcome.objective, expected, rtol=1e-8)
        assert outcome.objective[0] <= expected + 1e-11 * abs(expected)

    def test_objective_gap_and_gradient_are_what_they_say(self, loss, rng):
        K, y, w = problem(loss, rng)
        rough = solve(K, loss, y, 0.1, weights=w, tol=1e-2)
        fine = solve(K, loss, y, 0.1, weights=w, tol=1e-10)
        a, b, f = rough.a[:, 0], rough.b[0], rough.f[:, 0]
        np.testing.assert_allclose(f, K @ a + b, atol=1e-10)
        objective = w @ loss.value(y, f) + 0.1 * np.sum(a * (K @ a))
        np.testing.assert_allclose(rough.objective[0], objective, rtol=1e-12)
        excess = rough.objective[0] - fine.objective[0]
        rounding = 1e-13 * abs(fine.objective[0])
        assert -rounding <= excess <= rough.gap[0] + rounding
        # P is 2α-strongly convex in the feature space.
        away = a - fine.a[:, 0]
        distance, size = np.sum(away * (K @ away)), np.sum(a * (K @ a))
        assert np.sqrt(distance / size) <= 1.01 * rough.gradient[0] + 1e-9
        assert fine.gap[0] <= 1e-15 * abs(fine.objective[0])

    def test_coefficients_are_derivatives(self, loss, rng):
        K, y, w = problem(loss, rng)
        outcome = solve(K, loss, y, 0.3, weights=w)
        g = w.reshape(-1, *[1] * (outcome.a.ndim - 2)) * loss.derivative(y, outcome.f[:, 0])
        # The gradient bounds the feature-space norm; that of the eigenvectors of small eigenvalues is less.
        np.testing.assert_allclose(K @ (g + 0.6 * outcome.a[:, 0]), 0, atol=1e-6)
        np.testing.assert_allclose(outcome.a.sum(axis=0), 0, atol=1e-6)

    def test_weight_0_is_a_row_less_and_2_a_row_more(self, loss, rng):
        K, y, w = problem(loss, rng)
        rows = np.repeat(np.arange(len(y)), w.astype(int))
        weighted = solve(K, loss, y, 0.1, weights=w)
        repeated = solve(K[np.ix_(rows, rows)], loss, y[rows], 0.1)
        np.testing.assert_allclose(weighted.objective, repeated.objective, rtol=1e-12)
        np.testing.assert_allclose(weighted.f[rows], repeated.f, atol=1e-6)
        assert not weighted.a[w == 0].any()
        assert (w == 0).any()
        assert (w == 2).any()

    def test_a_held_out_fold_has_the_decisions_of_the_fit_without_it(self, loss, rng):
        K, y, _ = problem(loss, rng)
        fold = np.arange(len(y)) % 3
        w = (fold[:, None] != np.arange(3)).astype(float)
        together = solve(K, loss, y, [0.1, 1.0, 0.1], weights=w)
        assert together.converged.all()
        for k, alpha in enumerate([0.1, 1.0, 0.1]):
            train = np.flatnonzero(fold != k)
            alone = solve(
                K[np.ix_(train, train)], loss, y[train], alpha, n_classes=3 if loss.vector else None
            )
            np.testing.assert_allclose(together.objective[k], alone.objective[0], rtol=1e-12)
            f = K[:, train] @ alone.a[:, 0] + alone.b[0]
            np.testing.assert_allclose(together.f[:, k], f, atol=1e-6)

    def test_a_path_starts_where_the_alpha_before_ended(self, loss, coefficients, rng):
        K, y, w = problem(loss, rng)
        last, steps = [], []
        for alpha in np.geomspace(10, 0.3, 5):
            warm = solve(K, loss, y, alpha, weights=w, start=last or None)
            cold = solve(K, loss, y, alpha, weights=w)
            np.testing.assert_allclose(warm.objective, cold.objective, rtol=1e-12)
            np.testing.assert_allclose(warm.f, cold.f, atol=1e-6)
            last = [warm, *last[:2]]
            steps.append((warm.n_iter[0], cold.n_iter[0]))
        again = solve(K, loss, y, 0.3, weights=w, start=(warm.a, warm.b))
        assert again.n_iter[0] == 0
        warm, cold = np.sum(steps, axis=0)
        # In features a cold start comes down from larger α in as few steps.
        assert warm < cold or isinstance(loss, Squared) or (warm == cold and not coefficients)

    @pytest.mark.parametrize("alpha", [1e12, 1e6, 1e-6])
    def test_extreme_alphas(self, loss, alpha, rng):
        K, y, _ = problem(loss, rng, n=25)
        outcome = solve(K, loss, y, alpha)
        assert outcome.converged.all()
        assert np.isfinite(outcome.f).all()
        if alpha == 1e12:
            constant = solve(np.zeros_like(K), loss, y, 1.0)
            np.testing.assert_allclose(outcome.f, constant.f, atol=1e-9)

    def test_rounding_of_large_coefficients_shortens_no_step(self, loss, rng):
        # the last digits of K decide by how much P seems to rise
        K, y, _ = problem(loss, rng, n=25)
        for _ in range(6):
            noise = 1e-15 * rng.normal(size=K.shape)
            assert solve(K + noise + noise.T, loss, y, 1e-6).converged.all()

    def test_bits_do_not_depend_on_the_number_of_threads(self, loss, rng):
        X = rng.normal(size=(LARGE, 4))
        y = targets(loss, X[:, 0], rng)
        K = RBF(gamma=0.2)(X)
        results = []
        for n_threads in (1, 2, 3):
            held = HeldMatrix(K, low_rank_of(K, 150), n_threads)
            outcome = newton(
                held.exact,
                loss,
                y,
                np.array([1.0, 0.5]),
                tol=1e-3,
                low_rank=low_rank_of(K, 150),
                n_threads=n_threads,
            )
            results.append(outcome)
        for other in results[1:]:
            np.testing.assert_array_equal(results[0].a, other.a)
            np.testing.assert_array_equal(results[0].f, other.f)


def test_lbfgs_begins_anew_where_a_start_leads_nowhere(rng, monkeypatch):
    K, y, calls = RBF(gamma=0.3)(rng.normal(size=(40, 2))), rng.choice([-1.0, 1.0], 40), []
    options = {"low_rank": low_rank_of(K), "tol": 1e-6}
    minimum = lbfgs(K.dot, Logistic(), y, 0.1, **options)

    def reluctant(*args, **kwargs):
        """A line search without a step, as where values have no digits left, and then SciPy's."""
        calls.append(args[1])
        if len(calls) > quasi_newton._STARTS:
            minimize(*args, **kwargs)

    monkeypatch.setattr(quasi_newton, "minimize", reluctant)
    found = lbfgs(K.dot, Logistic(), y, 0.1, start=(rng.normal(size=40), 1.0), **options)
    assert found["converged"]
    assert found["objective"] == pytest.approx(minimum["objective"], rel=1e-9)
    assert calls[0].any()
    assert not calls[quasi_newton._STARTS][:40].any()


@every_loss
def test_lbfgs_reaches_the_same_minimum(loss, rng):
    K, y, w = problem(loss, rng)
    options = {"weights": w, "low_rank": low_rank_of(K, 50), "n_classes": 3 if loss.vector else None}
    found = lbfgs(lambda V: K @ V, loss, y, 1.0, tol=1e-4, **options)
    expected = solve(K, loss, y, 1.0, weights=w)
    assert found["converged"]
    assert found["n_iter"] > 0
    np.testing.assert_allclose(found["objective"], expected.objective[0], rtol=1e-7)
    assert -1e-12 <= (found["objective"] - expected.objective[0]) / abs(expected.objective[0])
    assert found["objective"] - expected.objective[0] <= found["gap"] + 1e-12
    again = lbfgs(lambda V: K @ V, loss, y, 1.0, tol=1e-4, start=(found["a"], found["b"]), **options)
    assert again["n_iter"] == 0


class TestPreconditionedSystems:
    @pytest.mark.parametrize("loss", [Logistic(), Softmax(), JointSquaredMargin()], ids=str)
    @pytest.mark.parametrize("rank", [0, 10, 40])
    def test_against_the_bordered_matrix(self, loss, rank, rng):
        K, y, _ = problem(loss, rng, n=40)
        C = 3 if loss.vector else 1
        f = rng.normal(size=(40, 1, C))
        curvature = Curvature(loss, y[:, None], f, np.ones((40, 1)))
        low_rank = low_rank_of(K, rank) if rank else LowRank(np.empty((0, 40)), np.empty(0, int), 40.0)
        preconditioner = Preconditioner(low_rank, curvature, np.array([0.5]))
        right = curvature.adjoint(rng.normal(size=(40, 1, C)))
        step, image, _, reached, _ = solve_newton_system(
            lambda V: K @ V,
            curvature,
            np.array([0.5]),
            right,
            preconditioner,
            target=np.array([1e-11]),
            max_iter=500,
        )
        assert reached.all()
        # S as a matrix, column by column.
        columns = np.eye(40 * C).reshape(-1, 40, 1, C)
        S = np.stack([curvature.forward(c).ravel() for c in columns], axis=1)
        E = S.T @ np.kron(np.ones((40, 1)), np.eye(C))
        M = S.T @ np.kron(K, np.eye(C)) @ S + np.eye(40 * C)
        bordered = np.block([[M, E], [E.T, np.zeros((C, C))]])
        solution = np.linalg.lstsq(bordered, np.append(right.ravel(), np.zeros(C)), rcond=1e-12)[0]
        np.testing.assert_allclose(step.ravel(), S @ solution[: 40 * C], atol=1e-9)
        np.testing.assert_allclose(image.reshape(40, C), K @ step.reshape(40, C), atol=1e-9)

    def test_a_whole_factor_makes_elementwise_systems_one_step(self, rng):
        K, y, _ = problem(Logistic(), rng)
        curvature = Curvature(Logistic(), y[:, None], rng.normal(size=(60, 1, 1)), np.ones((60, 1)))
        preconditioner = Preconditioner(low_rank_of(K), curvature, np.array([0.01]))
        right = curvature.adjoint((K @ rng.normal(size=60))[:, None, None])
        *_, reached, n_iter = solve_newton_system(
            lambda V: K @ V,
            curvature,
            np.array([0.01]),
            right,
            preconditioner,
            target=np.array([1e-8]),
            max_iter=9,
        )
        assert reached.all()
        assert n_iter == 1

    def test_rounding_in_float32_does_not_make_dependent_constraints_independent(self):
        # Each row's sum is 0, but for what was found at most on satimage (1200 rows): 3e-8 of the diagonal.
        inner = np.array([[2.0, -1.0, -1.0], [-1.0, 3.0, -2.0], [-1.0, -2.0, 3.0]])
        scale = np.array([1e-3, 1.0, 1e3])  # of outputs, which is no matter
        inner, right = scale[:, None] * inner * scale, scale * np.array([1.0, 1.0, -2.0])
        noise = 3e-8 * np.abs(inner) * np.eye(3)
        cut = newton_system._DEPENDENT[np.dtype(np.float32)]
        solved = newton_system._pseudo_inverse((inner + noise)[None], cut)[0] @ right
        np.testing.assert_allclose(inner @ solved, right, rtol=1e-6)
        exact = newton_system._pseudo_inverse(inner[None], 1e-10)[0] @ right
        np.testing.assert_allclose(solved, exact, rtol=1e-6)
        independent = newton_system._pseudo_inverse((inner + noise)[None], 1e-10)[0]
        assert np.abs(independent).max() > 1e5 * np.abs(newton_system._pseudo_inverse(inner[None], cut)).max()


class TestHeldMatrix:
    def test_the_cheap_product_loses_no_more_than_the_rest_of_float32(self, rng):
        X = rng.normal(size=(1100, 3))
        K = RBF(gamma=0.05)(X)
        low_rank = low_rank_of(K, 200)
        held = HeldMatrix(K, low_rank, 2)
        V = rng.normal(size=(1100, 3)) * [1.0, 1e-60, 1e60]
        np.testing.assert_allclose(held.exact(V), K @ V, rtol=1e-10)
        rest = np.linalg.norm(K - low_rank.F.T @ low_rank.F, 2)
        error = np.linalg.norm(held.single(V) - K @ V, axis=0)
        # Rounding of what is left, and that of float64 products with the whole.
        bound = 4 * np.finfo(np.float32).eps * rest + 1e-12 * np.linalg.norm(K, 2)
        assert (error <= bound * np.linalg.norm(V, axis=0)).all()

    def test_small_matrices_have_no_cheap_product(self, rng):
        K = RBF(gamma=1.0)(rng.normal(size=(30, 2)))
        assert HeldMatrix(K, low_rank_of(K)).single is None
        assert HeldMatrix(K).single is None

    @pytest.mark.parametrize("alpha", [1.0, 1e-3])
    def test_newton_with_cheap_products_has_the_digits_of_float64(self, alpha, rng):
        X = rng.normal(size=(1100, 4))
        y = targets(Logistic(), 2 * X[:, 0], rng)
        K = RBF(gamma=0.1)(X)
        low_rank = low_rank_of(K, 250)
        held = HeldMatrix(K, low_rank)
        options = {"low_rank": low_rank, "start": None}
        cheap = newton(held.exact, Logistic(), y, np.array([alpha]), single=held.single, **options)
        exact = newton(held.exact, Logistic(), y, np.array([alpha]), **options)
        assert cheap.converged.all()
        assert exact.converged.all()
        np.testing.assert_allclose(cheap.objective, exact.objective, rtol=1e-12)
        np.testing.assert_allclose(cheap.f, K @ cheap.a + cheap.b, atol=1e-7)
        np.testing.assert_allclose(cheap.f, exact.f, atol=1e-6)

    def test_a_useless_cheap_product_is_given_up(self, rng):
        K, y, _ = problem(Logistic(), rng, n=80)
        noise = np.random.default_rng(1)

        def broken(V):
            return (K @ V) * (1 + 0.5 * noise.normal(size=V.shape))

        outcome = solve(K, Logistic(), y, 0.01, single=broken)
        assert outcome.converged.all()
        np.testing.assert_allclose(outcome.objective, solve(K, Logistic(), y, 0.01).objective, rtol=1e-12)


@both
class TestHardCases:
    def test_separable_data_at_a_tiny_penalty(self, rng):
        X = np.r_[rng.normal(size=(20, 2)) - 5, rng.normal(size=(20, 2)) + 5]
        y = np.repeat([-1.0, 1.0], 20)
        # Below 1e-6 what margins lack, of α's size, is mostly rounding of f: 1 fit of 6 stops short at 1e-10.
        for loss, alpha in ((Logistic(), 1e-10), (SquaredMargin(), 1e-6)):
            outcome = solve(X @ X.T, loss, y, alpha)
            assert outcome.converged.all()
            assert np.isfinite(outcome.a).all()
            assert (y * outcome.f[:, 0] > 0).all()

    @pytest.mark.parametrize("alpha", [1e-13, 1e-17, 1e-30])
    @pytest.mark.parametrize("loss", [Squared(), SquaredMargin()], ids=str)
    def test_an_alpha_below_rounding_ends_at_the_data(self, loss, alpha, rng):
        """Where −g/(2α) is noise no step is taken that raises P, and a fit that fell short says so."""
        K, y = RBF(gamma=1.0)(rng.normal(size=(12, 2))), np.tile([-1.0, 1.0], 6)
        outcome = solve(K, loss, y, alpha)
        assert (loss.value(y, outcome.f[:, 0]) < 1e-8).all()
        assert outcome.converged.all() or (outcome.gap > 1e-8 * outcome.objective).all()

    @pytest.mark.parametrize("alpha", [1.0, 1e-8])
    def test_equal_rows_with_opposite_labels(self, alpha, rng):
        X = np.repeat(rng.normal(size=(15, 2)), 2, axis=0)
        y = np.tile([-1.0, 1.0], 15)
        outcome = solve(RBF(gamma=1.0)(X), Logistic(), y, alpha)
        assert outcome.converged.all()
        np.testing.assert_allclose(outcome.f, 0, atol=1e-6)
        np.testing.assert_allclose(outcome.objective, 30 * np.log(2), rtol=1e-12)

    @every_loss
    @pytest.mark.parametrize("constant", [0.0, 1.0])
    def test_a_constant_kernel_leaves_the_constant_fit(self, loss, constant, rng):
        _, y, w = problem(loss, rng)
        K = np.full((60, 60), constant)
        outcome = solve(K, loss, y, 1.0, weights=w)
        expected = generic_minimum(np.eye(60) * 1e-12, loss, y, 1e9, w)
        assert outcome.converged.all()
        np.testing.assert_allclose(outcome.objective, expected, rtol=1e-9)
        np.testing.assert_allclose(np.ptp(outcome.f, axis=0), 0, atol=1e-9)

    def test_weights_of_a_thousand_and_of_a_ten_thousandth(self, rng):
        K, y, _ = problem(SquaredMargin(), rng)
        w = np.where(y > 0, 1000.0, 1e-4)
        outcome = solve(K, SquaredMargin(), y, 1.0, weights=w)
        assert outcome.converged.all()
        assert outcome.gap[0] <= 1e-9 * outcome.objective[0]

    def test_targets_without_a_slope(self):
        K = RBF(gamma=1.0)(np.arange(5.0)[:, None])
        outcome = solve(K, Squared(), np.full(5, 3.0), 1.0)
        assert outcome.converged.all()
        assert not outcome.a.any()
        np.testing.assert_allclose(outcome.f, 3.0, rtol=1e-14)

    def test_far_outliers_of_huber(self, rng):
        K, y, _ = problem(Huber(), rng)
        y = y.copy()
        y[::7] += 1e6
        outcome = solve(K, Huber(delta=0.1), y, 0.1)
        np.testing.assert_allclose(
            outcome.objective, generic_minimum(K, Huber(delta=0.1), y, 0.1, np.ones(60)), rtol=1e-8
        )

    def test_steps_may_run_out(self, rng):
        K, y, _ = problem(Softmax(), rng)
        outcome = solve(K, Softmax(), y, 1e-3, max_iter=1)
        assert not outcome.converged.any()
        assert outcome.gap[0] > 0
        assert outcome.gradient[0] > 1e-8
        np.testing.assert_allclose(outcome.f, (K @ outcome.a[:, 0] + outcome.b)[:, None], atol=1e-10)

    def test_on_step_sees_the_gradients_fall(self, rng):
        K, y, _ = problem(Logistic(), rng)
        seen = []
        solve(K, Logistic(), y, [1.0, 0.5], on_step=lambda n_iter, gradient: seen.append(gradient.max()))
        assert seen[-1] <= 1e-8 < seen[0]


def real(name):
    X, y = {"cancer": load_breast_cancer, "iris": load_iris}[name](return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return RBF(gamma=1 / X.shape[1])(X), y


@pytest.mark.parametrize("loss", [Logistic(), SquaredMargin()], ids=str)
@pytest.mark.parametrize("alpha", [1.0, 1e-2])
def test_breast_cancer_against_a_generic_minimiser(loss, alpha):
    K, y = real("cancer")
    y = np.where(y == 1, 1.0, -1.0)
    outcome = newton(lambda V: K @ V, loss, y, np.array([alpha]), low_rank=low_rank_of(K, 200))
    assert outcome.converged.all()
    np.testing.assert_allclose(
        outcome.objective, generic_minimum(K, loss, y, alpha, np.ones(len(y))), rtol=1e-8
    )


@pytest.mark.parametrize("loss", [Softmax(), JointSquaredMargin()], ids=str)
@pytest.mark.parametrize("alpha", [1.0, 1e-2])
def test_iris_against_a_generic_minimiser(loss, alpha):
    K, y = real("iris")
    outcome = solve(K, loss, y, alpha)
    np.testing.assert_allclose(outcome.objective, generic_minimum(K, loss, y, alpha, np.ones(150)), rtol=1e-8)

"""Costs of quadratic and straight pieces by the faces of their duals: certificates by weak duality."""

import numpy as np
import pytest

from mercer.kernels import RBF
from mercer.losses import Huber, JointSquaredMargin, Logistic, Softmax, SquaredMargin
from mercer.solvers.held_matrix import low_rank_of
from mercer.solvers.newton import newton
from mercer.solvers.newton_dual import has_duals, minimise_duals
from mercer.solvers.newton_problem import Problems

LOSSES = [SquaredMargin(), Huber(delta=0.3)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)
intercepts = pytest.mark.parametrize("fit_intercept", [True, False])


def problem(loss, rng, n=120):
    X = rng.normal(size=(n, 3))
    y = X[:, 0] + 0.8 * rng.normal(size=n)
    y = np.where(y > 0, 1.0, -1.0) if loss.needs == "sign" else y
    return RBF(0.5)(X), y, rng.integers(0, 4, size=n).astype(float)


def solve(K, loss, y, alphas, **options):
    alphas = np.atleast_1d(np.asarray(alphas, dtype=float))
    return newton(
        lambda V: K @ V,
        loss,
        y,
        alphas,
        low_rank=low_rank_of(K, np.random.RandomState(0)),
        matrix=K,
        **options,
    )


def dual_value(K, loss, y, alpha, w, a):
    """What no function is below, for a of sum 0 within the box."""
    counted = w > 0
    conjugates = loss.conjugate(y[counted], -2 * alpha * a[counted] / w[counted])
    return -w[counted] @ conjugates - alpha * a @ K @ a


@every_loss
class TestByTheDual:
    @intercepts
    @pytest.mark.parametrize("alpha", [1e4, 1.0, 1e-3, 1e-6, 1e-9])
    def test_a_dual_value_proves_the_minimum(self, loss, fit_intercept, alpha, rng):
        K, y, w = problem(loss, rng)
        options = {"weights": w, "fit_intercept": fit_intercept}
        outcome = solve(K, loss, y, alpha, **options)
        assert outcome.converged.all()
        problems = Problems(loss, y[:, None], w[:, None], np.array([alpha]), fit_intercept, 1)
        a = minimise_duals(problems, K, None)[:, 0, 0]
        assert (a[w == 0] == 0).all()
        assert not fit_intercept or abs(a.sum()) <= 1e-12 * np.abs(a).sum()
        proven = dual_value(K, loss, y, alpha, w, a)
        f = outcome.f[:, 0]
        a = outcome.a[:, 0]
        np.testing.assert_allclose(w @ loss.value(y, f) + alpha * a @ K @ a, outcome.objective[0], rtol=1e-9)
        np.testing.assert_allclose(outcome.objective[0], proven, rtol=1e-9)

    def test_few_steps_of_newton_are_left(self, loss, rng):
        K, y, w = problem(loss, rng, 300)
        assert solve(K, loss, y, 1e-5, weights=w, max_iter=5).converged.all()

    def test_a_gap_at_a_tiny_alpha_is_that_of_the_dual(self, loss, rng):
        K, y, w = problem(loss, rng)
        outcome = solve(K, loss, y, 1e-10, weights=w)
        assert outcome.converged.all()
        assert outcome.gap[0] <= 1e-9 * outcome.objective[0]

    def test_several_problems_begin_at_those_of_another_alpha(self, loss, rng):
        K, y, w = problem(loss, rng)
        weights = np.stack([w, np.roll(w, 7)], axis=1)
        before = solve(K, loss, y, [1e-2, 1e-2], weights=weights)
        for alpha in (1e-3, 1e-1):
            fresh = solve(K, loss, y, [alpha] * 2, weights=weights)
            going_on = solve(K, loss, y, [alpha] * 2, weights=weights, start=[before])
            np.testing.assert_allclose(going_on.objective, fresh.objective, rtol=1e-10)

    def test_a_start_outside_of_the_box_is_none(self, loss, rng):
        K, y, w = problem(loss, rng)
        expected = solve(K, loss, y, 1e-2, weights=w)
        for a in (-1e9 * y, np.ones(len(y)), np.full(len(y), np.nan)):
            problems = Problems(loss, y[:, None], w[:, None], np.array([1e-2]), True, 1)
            found = minimise_duals(problems, K, a[:, None, None])[:, 0, 0]
            np.testing.assert_allclose(
                dual_value(K, loss, y, 1e-2, w, found), expected.objective[0], rtol=1e-9
            )

    def test_bits_do_not_depend_on_the_number_of_threads(self, loss, rng):
        K, y, w = problem(loss, rng, 400)
        found = [solve(K, loss, y, 1e-3, weights=w, n_threads=k) for k in (1, 2, 3)]
        for other in found[1:]:
            np.testing.assert_array_equal(other.a, found[0].a)

    def test_what_is_asked_now_and_then_may_end_it(self, loss, rng):
        K, y, w = problem(loss, rng)

        def check():
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            solve(K, loss, y, 1e-3, weights=w, check=check)

    def test_weights_beyond_the_range_are_left_to_newton(self, loss, rng):
        K, y, w = problem(loss, rng)
        problems = Problems(loss, y[:, None], 1e-320 * w[:, None], np.array([1.0]), True, 1)
        assert minimise_duals(problems, K, None) is None


@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=str)
def test_other_costs_have_no_such_dual(loss):
    y = np.ones((3, 1)) if loss.needs == "sign" else np.zeros((3, 1), int)
    problems = Problems(loss, y, np.ones((3, 1)), np.ones(1), True, 2)
    assert not has_duals(problems, np.eye(3))


def test_without_a_matrix_there_is_none():
    problems = Problems(SquaredMargin(), np.ones((3, 1)), np.ones((3, 1)), np.ones(1), True, 1)
    assert has_duals(problems, np.eye(3))
    assert not has_duals(problems, None)


@pytest.mark.parametrize("order", ["as they come", "one class after the other"])
@pytest.mark.parametrize("alpha", [1e-2, 1e-5])
def test_classes_in_any_order(order, alpha, rng):
    """From 0 on, the first to join have to be of both classes."""
    K, y, _ = problem(SquaredMargin(), rng, 400)
    rows = np.argsort(y, kind="stable") if order == "one class after the other" else np.arange(400)
    outcome = solve(K[np.ix_(rows, rows)], SquaredMargin(), y[rows], alpha, max_iter=3)
    assert outcome.converged.all()


def vectors(rng, n, n_classes=3):
    X = rng.normal(size=(n, 4))
    y = np.argmax(X[:, :n_classes] + 0.7 * rng.normal(size=(n, n_classes)), axis=1)
    return RBF(0.1)(X), y, rng.integers(0, 4, size=n).astype(float)


class TestTheJointSquaredMargin:
    @intercepts
    @pytest.mark.parametrize("n_classes", [2, 3, 5])
    @pytest.mark.parametrize("alpha", [1e4, 1.0, 1e-3, 1e-6, 1e-9])
    @pytest.mark.parametrize("at_once", [10**6, 0])
    def test_a_dual_value_proves_the_minimum(
        self, alpha, n_classes, fit_intercept, at_once, rng, monkeypatch
    ):  # fmt: skip
        monkeypatch.setattr("mercer.solvers.newton._AT_ONCE", at_once)
        loss = JointSquaredMargin()
        K, y, w = vectors(rng, 80, 4)
        y = y % n_classes if n_classes < 5 else y  # of five one class is not there
        options = {"weights": w, "fit_intercept": fit_intercept, "n_classes": n_classes}
        outcome = solve(K, loss, y, alpha, **options)
        assert outcome.converged.all()
        a, f = outcome.a[:, 0], outcome.f[:, 0]
        primal = w @ loss.value(y, f) + alpha * np.einsum("ic,ij,jc->", a, K, a)
        np.testing.assert_allclose(primal, outcome.objective[0], rtol=1e-9)
        problems = Problems(loss, y[:, None], w[:, None], np.array([alpha]), fit_intercept, n_classes)
        proven = minimise_duals(problems, K, outcome.a.reshape(80, 1, -1))[:, 0]
        assert (proven[w == 0] == 0).all()
        assert not fit_intercept or np.abs(proven.sum(axis=0)).max() <= 1e-12 * np.abs(proven).sum()
        u = -2 * alpha * proven[w > 0] / w[w > 0, None]
        dual = -w[w > 0] @ loss.conjugate(y[w > 0], loss.feasible(y[w > 0], u))
        np.testing.assert_allclose(
            primal, dual - alpha * np.einsum("ic,ij,jc->", proven, K, proven), rtol=1e-8
        )

    def test_one_step_of_newton_is_left(self, rng):
        K, y, w = vectors(rng, 200)
        outcome = solve(K, JointSquaredMargin(), y, 1e-5, weights=w, max_iter=1)
        assert outcome.converged.all()

    def test_several_problems_begin_at_those_of_another_alpha(self, rng):
        K, y, w = vectors(rng, 100)
        weights = np.stack([w, np.roll(w, 7)], axis=1)
        Y = np.stack([y, y], axis=1)
        before = solve(K, JointSquaredMargin(), Y, [1e-2, 1e-2], weights=weights)
        for alpha in (1e-4, 1e-1):
            fresh = solve(K, JointSquaredMargin(), Y, [alpha] * 2, weights=weights)
            going_on = solve(K, JointSquaredMargin(), Y, [alpha] * 2, weights=weights, start=[before])
            np.testing.assert_allclose(going_on.objective, fresh.objective, rtol=1e-9)

    def test_two_classes_are_the_squared_margin(self, rng):
        K, y, w = vectors(rng, 90, 2)
        joint = solve(K, JointSquaredMargin(), y, 1e-4, weights=w)
        # f₁ − f₀ has the coefficients a₁ − a₀ = 2 a₁: half of the penalty
        single = solve(K, SquaredMargin(), np.where(y, 1.0, -1.0), 0.5e-4, weights=w)
        np.testing.assert_allclose(joint.objective, single.objective, rtol=1e-8)

    @pytest.mark.parametrize("max_iter", [0, 1, 10])
    def test_no_more_steps_than_allowed(self, max_iter, rng, monkeypatch):
        monkeypatch.setattr("mercer.solvers.newton._AT_ONCE", 0)
        K, y, w = vectors(rng, 120)
        outcome = solve(K, JointSquaredMargin(), y, 1e-5, weights=w, max_iter=max_iter)
        assert outcome.n_iter[0] <= max_iter

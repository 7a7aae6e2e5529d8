"""Duals for boxes that grow: each as it is by itself, and left where SMO alone stops short."""

import numpy as np
import pytest

from mercer._native import DUAL_PATH_CAPPED, DUAL_PATH_ENDED, DUAL_PATH_FAR, DUAL_PATH_ROUNDED
from mercer.kernels import RBF, Precomputed
from mercer.solvers.dual import DualSamples
from mercer.solvers.dual_layout import dual_jobs
from mercer.solvers.dual_path import DualPath

JOB = dual_jobs((0, 1), (1, 2), (1.0, -1.0))
CS = np.array([0.1, 1.0, 30.0, 1e4])


def problem_of(kernel, X, n_first, dtype=np.float64, *, held=True):
    samples = DualSamples(kernel, X, [np.arange(n_first), np.arange(n_first, len(X))], n_threads=1)
    if held:
        samples.hold(np.dtype(dtype))
    return samples, samples.problems(JOB, dtype)


def go(path, at=0, end=None, *, begun=False, tol=1e-6, max_iter=10**6, on_step=None):
    end = len(path.C) if end is None else end
    return path.go_on(
        at, end, begun=begun, tol=tol, max_iter=max_iter, cache_bytes=1e7, shrinking=True, on_step=on_step
    )


def of_samples(path, at):
    taken = path.problem.taken
    return path.beta[at, taken], path.field[at, taken]


def check(path, at, K, c, weights, tol, noise):
    beta, field = of_samples(path, at)
    lower, upper = path.C[at] * weights * np.minimum(c, 0), path.C[at] * weights * np.maximum(c, 0)
    assert np.array_equal(np.clip(beta, lower, upper), beta)
    np.testing.assert_allclose(beta.sum(), 0, atol=1e-12 * np.abs(beta).sum())
    F = c - K @ beta
    np.testing.assert_allclose(field, F, atol=noise)  # also of those that are held out
    assert F[beta < upper].max() - F[beta > lower].min() <= tol + noise
    free = (beta > lower) & (beta < upper)
    if free.any():
        assert path.bias[at] == pytest.approx(F[free].mean(), abs=noise)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_machine_is_at_its_optimum(dtype, held, rng):
    X, c = rng.normal(size=(240, 4)), np.repeat([1.0, -1.0], [100, 140])
    weights = rng.uniform(0.5, 2, size=240) * (np.arange(240) % 5 > 0)
    samples, problem = problem_of(RBF(0.3), X, 100, dtype, held=held)
    path = DualPath(problem, weights, CS, 0.0)
    tol = 1e-6 if dtype == np.float64 else 1e-3
    assert go(path, tol=tol) == (len(CS), DUAL_PATH_ENDED)
    assert path.converged.all()
    assert (path.seconds > 0).all()
    for at, C in enumerate(CS):
        noise = (1e-7 if dtype == np.float32 else 1e-14) * 240 * C
        check(path, at, RBF(0.3)(X), c, weights, tol, noise)
        one = np.ones((1, 240))
        alone = samples.solve(JOB, one, 0 * one, C * weights[None], tol=tol, dtype=dtype)
        K = RBF(0.3)(X)
        objectives = [0.5 * b @ K @ b - c @ b for b in (of_samples(path, at)[0], alone.beta[0])]
        assert objectives[0] == pytest.approx(objectives[1], rel=10 * tol)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_of_those_that_left_come_back(dtype, held, rng):
    # most of 1600 leave after 100 to 1000 steps, more of them later, and all are back at the end of each C
    X = rng.normal(size=(1600, 3))
    X[:, 0] += np.repeat([0.0, 2.0], 800)
    weights, c = 1.0 * (np.arange(1600) % 5 > 0), np.repeat([1.0, -1.0], 800)
    _, problem = problem_of(RBF(0.3), X, 800, dtype, held=held)
    path = DualPath(problem, weights, np.array([1.0, 100.0, 3000.0]), 0.0)
    tol = 1e-6 if dtype == np.float64 else 1e-3
    assert go(path, tol=tol) == (3, DUAL_PATH_ENDED)
    for at, C in enumerate(path.C):
        noise = (3e-8 if dtype == np.float32 else 1e-15) * 1600 * C
        check(path, at, RBF(0.3)(X), c, weights, tol, noise)


def test_of_a_tiny_C_little_is_known_of_a_huge_one(rng):
    # F is c, in which K β is lost: β times the ratio of both C seems to lower the objective without end
    X, c = rng.normal(size=(40, 4)), np.repeat([1.0, -1.0], 20)
    _, problem = problem_of(RBF(0.3), X, 20)
    path = DualPath(problem, np.ones(40), np.array([1e-100, 1e16]), 0.0)
    assert go(path) == (2, DUAL_PATH_ENDED)
    for at in range(2):
        check(path, at, RBF(0.3)(X), c, np.ones(40), 1e-6, 1e-9)


@pytest.mark.parametrize("seed", [0, 2])
def test_many_steps_leave_gradients_those_of_beta(seed):
    # tens of thousands of a matrix of little rank: F is computed again from β's change
    A, c = np.random.default_rng(seed).normal(size=(30, 5)), np.repeat([1.0, -1.0], 15)
    K = A @ A.T
    _, problem = problem_of(Precomputed(), K, 15, held=False)
    path = DualPath(problem, np.ones(30) * (np.arange(30) % 6 > 0), np.array([1.0, 1e6]), 0.0)
    assert go(path) == (2, DUAL_PATH_ENDED)
    assert path.jobs["n_iter"][1] > 5000
    beta, field = of_samples(path, 1)
    noise = np.finfo(float).eps * K.diagonal().max() * np.linalg.norm(beta)
    np.testing.assert_allclose(field, c - K @ beta, atol=2 * noise)


def test_a_capped_machine_is_left_and_goes_on(rng):
    X, c = rng.normal(size=(200, 4)), np.repeat([1.0, -1.0], 100)
    _, problem = problem_of(RBF(0.3), X, 100)
    path = DualPath(problem, np.ones(200), CS, 0.0)
    at, left = go(path, max_iter=150)
    assert left == DUAL_PATH_CAPPED
    assert not path.converged[at]
    assert at < len(CS) - 1
    # as far as it came it is told
    beta, field = of_samples(path, at)
    np.testing.assert_allclose(field, c - RBF(0.3)(X) @ beta, atol=1e-10)
    assert go(path, at, at + 1, begun=True) == (at + 1, DUAL_PATH_ENDED)
    assert go(path, at + 1) == (len(CS), DUAL_PATH_ENDED)
    for at in range(len(CS)):
        check(path, at, RBF(0.3)(X), c, np.ones(200), 1e-6, 1e-9)


def test_what_rounding_may_spoil_is_left(rng):
    X = rng.normal(size=(200, 4))
    _, problem = problem_of(RBF(0.3), X, 100)
    far = DualPath(problem, np.ones(200), CS, 1e-3)
    at, left = go(far)
    assert left == DUAL_PATH_FAR
    assert far.noise * np.linalg.norm(far.beta[at] - far.known) > 1e-6
    far.set_known(at, far.field[at])
    assert go(far, at, at + 1, begun=True) == (at + 1, DUAL_PATH_ENDED)  # it is there, and near
    grown = DualPath(problem, np.ones(200), CS, 0.0)
    grown.rounding = 1e-6
    at, left = go(grown)
    assert (at, left) == (1, DUAL_PATH_ROUNDED)  # begun, but not solved
    np.testing.assert_allclose(grown.beta[1], 10 * grown.beta[0])
    assert go(grown, at, begun=True)[1] == DUAL_PATH_ENDED


def test_over_other_rows_it_goes_on(rng):
    X, c = rng.normal(size=(200, 4)), np.repeat([1.0, -1.0], 100)
    samples, problem = problem_of(RBF(0.3), X, 100, np.float32)
    path = DualPath(problem, np.ones(200), CS, 0.0)
    go(path, end=2, tol=1e-3)
    samples.hold(np.dtype(np.float64))
    path = path.on(samples.problems(JOB, np.float64), 1)
    beta, _ = of_samples(path, 1)
    path.set_known(1, path.problem.by_variable(c - RBF(0.3)(X) @ beta))
    assert go(path, 1, begun=True) == (len(CS), DUAL_PATH_ENDED)
    for at in range(1, len(CS)):
        check(path, at, RBF(0.3)(X), c, np.ones(200), 1e-6, 1e-9)
    assert path.converged.all()


def test_a_path_can_be_stopped(rng):
    X = rng.normal(size=(2000, 4))
    _, problem = problem_of(RBF(0.3), X, 1000)
    path = DualPath(problem, np.ones(2000), CS, 0.0)

    def stop(n_done, gap):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(path, on_step=stop)

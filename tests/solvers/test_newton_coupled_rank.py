"""A low rank of several outputs with what couples these: what it inverts, whom it serves, what it spares."""

import numpy as np
import pytest

from mercer.kernels import RBF
from mercer.losses import JointSquaredMargin, Softmax
from mercer.solvers import newton_coupled_rank, newton_factors
from mercer.solvers.held_matrix import low_rank_of
from mercer.solvers.newton_coupled_rank import CoupledRank, rank_that_pays
from mercer.solvers.newton_system import Curvature, Preconditioner, solve_newton_system
from newton_checks import reaches_what_it_reaches_without

#: More rows than those up to which the preconditioner is the whole of K.
N, C = 510, 3
LOSSES = pytest.mark.parametrize("loss", [Softmax(), JointSquaredMargin()], ids=str)


class Systems:
    """Systems of some problems; each holds out a fold."""

    def __init__(self, q, loss=None, alpha=1e-2):
        self.rng = rng = np.random.default_rng(5)
        self.loss = loss or Softmax()
        self.K = RBF(0.5)(rng.normal(size=(N, 2)))
        self.low_rank = low_rank_of(self.K, rng)
        self.alphas = alpha * 2.0 ** np.arange(q)
        self.y = rng.integers(0, C, (N, q))
        self.f = rng.normal(size=(N, q, C))
        self.root_weights = (np.arange(N)[:, None] % 5 != np.arange(q)).astype(float)
        self.R = self.curvature().adjoint(rng.normal(size=(N, q, C)))

    def curvature(self):
        return Curvature(self.loss, self.y, self.f, self.root_weights)

    def made(self, rank=60, n_threads=None):
        args = self.low_rank, self.curvature(), self.alphas, self.K.diagonal()
        return CoupledRank(*args, rank, 1.0, n_threads)

    def apply(self, made, problems=None):
        problems = np.arange(len(self.alphas)) if problems is None else problems
        return made.apply(self.curvature().take(problems), self.R[:, problems], problems)

    def matrix(self, problem, K):
        """``Sᵀ K S + 2α I``."""
        curvature, S = self.curvature().take([problem]), np.zeros((N, C, N, C))
        for j in range(C):
            image = curvature.forward(np.broadcast_to(np.eye(C)[j], (N, 1, C)))[:, 0]
            S[np.arange(N), :, np.arange(N), j] = image
        S = S.reshape(N * C, N * C)
        return S.T @ np.kron(K, np.eye(C)) @ S + 2 * self.alphas[problem] * np.eye(N * C)

    def steps(self, made):
        """Products that systems with a right-hand side of K's kind take."""
        curvature = self.curvature()
        right = curvature.adjoint(np.einsum("ij,jqc->iqc", self.K, np.cos(self.f)))
        _, size = made.apply(curvature, right, np.arange(len(self.alphas)))
        target = 1e-5 * np.sqrt(size)
        *_, reached, n_iter = solve_newton_system(
            lambda V: self.K @ V, curvature, self.alphas, right, made, target=target, max_iter=500
        )
        assert reached.all()
        return n_iter


@LOSSES
@pytest.mark.parametrize(("single", "scale"), [(True, 1.0), (True, 1e-60), (True, 1e15), (False, 1.0)])
def test_it_is_the_inverse_of_its_rank(loss, single, scale, monkeypatch):
    if not single:
        monkeypatch.setattr(newton_coupled_rank, "_SINGLE_UP_TO", 0.0)
    systems = Systems(2, loss, alpha=0.05)
    systems.R *= scale
    made, F = systems.made(), systems.low_rank.F[:60]
    assert made.made
    found, _ = systems.apply(made)
    for k in range(2):
        M = systems.matrix(k, F.T @ F)
        expected = np.linalg.solve(M, systems.R[:, k].ravel())
        loss_of_digits = 5 * np.finfo(made.dtype).eps * np.trace(M) / (2 * systems.alphas[k])
        assert loss_of_digits < 0.05
        error = np.linalg.norm(found[:, k].ravel() - expected)
        assert error <= (loss_of_digits + 1e-12) * np.linalg.norm(expected)


def test_norms_are_those_of_K():
    systems = Systems(2)
    _, size = systems.apply(systems.made())
    SR = systems.curvature().forward(systems.R)
    exact = np.einsum("iqc,ij,jqc->q", SR, systems.K, SR, optimize=True)
    np.testing.assert_allclose(size, exact, rtol=0.1)  # 128 rows of F, and the mean of what they leave


def test_of_no_rank_there_is_nothing_but_alpha():
    systems = Systems(2)
    found, _ = systems.apply(systems.made(rank=0))
    np.testing.assert_allclose(found, systems.R / (2 * systems.alphas[:, None]), rtol=1e-14)


@LOSSES
def test_some_of_the_problems(loss):
    systems = Systems(3, loss)
    made, some = systems.made(), np.array([0, 2])
    whole, part = systems.apply(made), systems.apply(made, some)
    taken = made.take(np.array([True, False, True])).apply(
        systems.curvature().take(some), systems.R[:, some], np.arange(2)
    )
    for one, other, every in zip(part, taken, whole, strict=True):
        np.testing.assert_array_equal(other, one)
        every = every[:, some] if every.ndim > 1 else every[some]
        np.testing.assert_allclose(one, every, rtol=1e-5, atol=1e-5 * np.abs(every).max())


@pytest.mark.parametrize("q", [1, 3])
def test_threads_change_nothing(q):
    systems = Systems(q)
    expected = systems.apply(systems.made(n_threads=1))
    for n_threads in (2, 3):
        for one, other in zip(systems.apply(systems.made(n_threads=n_threads)), expected, strict=True):
            np.testing.assert_array_equal(one, other)


@LOSSES
def test_steps_are_few_where_outputs_by_themselves_take_many(loss):
    systems = Systems(2, loss, alpha=1e-3)
    alone = Preconditioner(systems.low_rank, systems.curvature(), systems.alphas)
    assert systems.steps(systems.made(rank=120)) < 0.5 * systems.steps(alone)


def test_it_follows_small_changes_of_the_curvature_and_leaves_large_ones():
    systems = Systems(2)
    made, old = systems.made(), systems.f
    systems.f = old + 0.02 * systems.rng.normal(size=old.shape)
    followed = made.at(systems.curvature())
    assert systems.steps(followed) <= systems.steps(made)
    systems.f = 3 * old
    assert made.at(systems.curvature()) is None


def test_a_larger_rank_pays_at_a_smaller_alpha():
    low_rank, curvature = Systems(1).low_rank.rotated(), Systems(1).curvature()
    found = [rank_that_pays(low_rank, curvature, np.array([alpha])) for alpha in (1e2, 1e-1, 1e-4)]
    ranks, making, steps = zip(*found, strict=True)
    assert ranks[0] < ranks[1] < ranks[2]
    assert making[0] < making[2]
    assert steps[0] < steps[2]


@LOSSES
def test_newton_reaches_what_it_reaches_without(loss, monkeypatch):
    monkeypatch.setattr(newton_factors, "_FACTORS_TAKE", np.inf)
    systems = Systems(2, loss)
    reaches_what_it_reaches_without(CoupledRank, systems, loss, monkeypatch)


class TestPrincipalAxes:
    def test_it_is_the_same_matrix(self):
        low_rank = Systems(1).low_rank
        rotated = low_rank.rotated()
        scale = np.trace(low_rank.F @ low_rank.F.T)
        np.testing.assert_allclose(rotated.F.T @ rotated.F, low_rank.F.T @ low_rank.F, atol=1e-13 * scale)
        inner = rotated.F @ rotated.F.T
        np.testing.assert_allclose(inner, np.diag(inner.diagonal()), atol=1e-13 * scale)
        assert (np.diff(inner.diagonal()) <= 1e-13 * scale).all()
        assert rotated.trace == low_rank.trace

    def test_its_history_tells_what_ranks_leave(self):
        systems = Systems(1)
        rotated = systems.low_rank.rotated()
        assert len(rotated.history) > 2
        for rank, left in rotated.history:
            F = rotated.F[:rank]
            exact = np.trace(systems.K - F.T @ F)
            assert left == pytest.approx(exact, abs=1e-10 * N)

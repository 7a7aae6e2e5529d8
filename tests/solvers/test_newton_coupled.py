"""Factors of several outputs at once: what they solve, what they leave out, and when they are taken."""

import numpy as np
import pytest

from mercer.kernels import RBF
from mercer.losses import JointSquaredMargin, Softmax
from mercer.solvers import newton_coupled, newton_factors
from mercer.solvers.held_matrix import low_rank_of
from mercer.solvers.newton_coupled import CoupledFactors, Directions
from mercer.solvers.newton_coupled_rank import CoupledRank
from mercer.solvers.newton_factors import preconditioner
from mercer.solvers.newton_system import Curvature, Preconditioner, solve_newton_system
from newton_checks import reaches_what_it_reaches_without

EPS = float(np.finfo(np.float32).eps)
#: More rows than those up to which the preconditioner is the whole of K.
N, C = 510, 3
LOSSES = pytest.mark.parametrize("loss", [Softmax(), JointSquaredMargin()], ids=str)


class Systems:
    """Systems of some problems, of which most samples are far from the borders; each holds out a fold."""

    def __init__(self, q, loss=None, alpha=1e-3, gamma=2.0):
        self.rng = rng = np.random.default_rng(11)
        self.loss = loss or Softmax()
        self.K = RBF(gamma)(rng.normal(size=(N, 2)))
        self.low_rank = low_rank_of(self.K, rng)
        self.alphas = alpha * 2.0 ** np.arange(q)
        self.y = rng.integers(0, C, (N, q))
        self.f = rng.normal(size=(N, q, C)) * np.exp(rng.uniform(-1, 3, size=(N, 1, 1)))
        self.root_weights = (np.arange(N)[:, None] % 5 != np.arange(q)).astype(float)
        self.R = self.curvature().adjoint(rng.normal(size=(N, q, C)))

    def curvature(self):
        return Curvature(self.loss, self.y, self.f, self.root_weights)

    def directions(self):
        return Directions(self.curvature(), self.alphas, self.K.diagonal())

    def factors(self, n_threads=None):
        curvature = self.curvature()
        return CoupledFactors(self.low_rank, curvature, self.alphas, self.K, self.directions(), n_threads)

    def apply(self, factors, problems=None):
        problems = np.arange(len(self.alphas)) if problems is None else problems
        return factors.apply(self.curvature().take(problems), self.R[:, problems], problems)

    def root(self, problem):
        """S of a problem, (N · C, N · C)."""
        curvature, S = self.curvature().take([problem]), np.zeros((N, C, N, C))
        for j in range(C):
            image = curvature.forward(np.broadcast_to(np.eye(C)[j], (N, 1, C)))[:, 0]
            S[np.arange(N), :, np.arange(N), j] = image
        return S.reshape(N * C, N * C)

    def matrix(self, problem):
        """``Sᵀ K S + 2α I``."""
        S = self.root(problem)
        return S.T @ np.kron(self.K, np.eye(C)) @ S + 2 * self.alphas[problem] * np.eye(N * C)


@LOSSES
@pytest.mark.parametrize("scale", [1.0, 1e-60, 1e15])
def test_with_nothing_left_out_they_are_the_inverse(loss, scale, monkeypatch):
    monkeypatch.setattr(newton_coupled, "_LEFT_OUT", 1e-6)
    systems = Systems(2, loss, alpha=0.05)
    systems.R *= scale
    found, size = systems.apply(systems.factors())
    for k in range(2):
        M = systems.matrix(k)
        expected = np.linalg.solve(M, systems.R[:, k].ravel())
        # Entries, factor and solution are rounded, each by a few EPS of the trace; and EPS times it is added.
        loss_of_digits = 5 * EPS * np.trace(M) / (2 * systems.alphas[k])
        assert loss_of_digits < 0.05
        error = np.linalg.norm(found[:, k].ravel() - expected)
        assert error <= (loss_of_digits + 1e-6) * np.linalg.norm(expected)
        v = systems.root(k) @ (systems.R[:, k].ravel() / scale)
        exact = v @ np.kron(systems.K, np.eye(C)) @ v
        # 128 rows of F, and the mean of what they leave.
        assert size[k] / scale**2 == pytest.approx(exact, rel=0.1)


@LOSSES
def test_directions_are_left_out_up_to_a_part_of_what_is_added(loss):
    systems = Systems(2, loss, alpha=0.47)  # no sum of even eigenvalues over 2α is the bound
    found = systems.directions()
    for k in range(2):
        S = systems.root(k)
        blocks = (S @ S.T).reshape(N, C, N, C)[np.arange(N), :, np.arange(N)]
        every = np.sort(np.linalg.eigvalsh(blocks).ravel() / (2 * systems.alphas[k]))  # K's diagonal is 1
        kept = found.bend[:, :, k].ravel()[found.places[k]] / (2 * systems.alphas[k])
        left = every[: len(every) - len(kept)].sum()
        assert 0 < len(kept) < 2 * N
        np.testing.assert_allclose(np.sort(kept), every[-len(kept) :], rtol=1e-9, atol=1e-12)
        assert left <= newton_coupled._LEFT_OUT < left + kept.min()
        u = found.U[:, :, k].reshape(-1, C)[found.places[k]]
        np.testing.assert_allclose(np.linalg.norm(u, axis=1), 1.0, rtol=1e-12)


def test_of_no_directions_there_is_nothing_but_alpha():
    systems = Systems(2, alpha=1e4)
    factors = systems.factors()
    assert factors.made
    expected = systems.R / (2 * systems.alphas[:, None])
    np.testing.assert_allclose(systems.apply(factors)[0], expected, rtol=1e-14)


@LOSSES
def test_some_of_the_problems(loss):
    systems = Systems(3, loss)
    factors, some = systems.factors(), np.array([0, 2])
    whole, sizes = systems.apply(factors)
    part, part_sizes = systems.apply(factors, some)
    taken = factors.take(np.array([True, False, True])).apply(
        systems.curvature().take(some), systems.R[:, some], np.arange(2)
    )
    np.testing.assert_allclose(part, whole[:, some], rtol=1e-6, atol=1e-9 * np.abs(whole).max())
    np.testing.assert_array_equal(taken[0], part)
    np.testing.assert_array_equal(taken[1], part_sizes)
    np.testing.assert_allclose(part_sizes, sizes[some], rtol=1e-5)  # float32 sums, in BLAS's order


@pytest.mark.parametrize("q", [1, 3])
def test_threads_change_nothing(q):
    systems = Systems(q)
    expected = systems.apply(systems.factors(1))
    for n_threads in (2, 3):
        found = systems.apply(systems.factors(n_threads))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


def steps_of(systems, made):
    """Products that systems with a right-hand side of K's kind take."""
    curvature = systems.curvature()
    right = curvature.adjoint(np.einsum("ij,jqc->iqc", systems.K, np.cos(systems.f)))
    _, size = made.apply(curvature, right, np.arange(len(systems.alphas)))
    *_, reached, n_iter = solve_newton_system(
        lambda V: systems.K @ V,
        curvature,
        systems.alphas,
        right,
        made,
        target=1e-5 * np.sqrt(size),
        max_iter=500,
    )
    assert reached.all()
    return n_iter


@pytest.mark.parametrize(("loss", "alpha"), [(Softmax(), 1e-3), (JointSquaredMargin(), 0.05)], ids=str)
def test_steps_are_few_where_a_low_rank_takes_many(loss, alpha):
    systems = Systems(2, loss, alpha)
    low_rank = Preconditioner(systems.low_rank, systems.curvature(), systems.alphas)
    assert steps_of(systems, systems.factors()) < 0.5 * steps_of(systems, low_rank)


def test_made_at_one_curvature_they_serve_another():
    systems = Systems(2)
    made = systems.factors()
    systems.f += 0.3 * systems.rng.normal(size=systems.f.shape)
    Q = made.at(systems.curvature()).Q
    inner = np.einsum("inqc,jnqc->nqij", Q, Q)
    np.testing.assert_allclose(inner, inner * np.eye(len(Q)), atol=1e-9)  # definite, hence
    assert steps_of(systems, made.at(systems.curvature())) < 0.8 * steps_of(systems, made)


class TestWhichItIs:
    def test_factors_where_they_spare_more_than_they_cost(self):
        systems = Systems(1, alpha=1e-4)
        of = systems.low_rank, systems.curvature()
        assert isinstance(preconditioner(*of, systems.alphas, systems.K), CoupledFactors)
        assert isinstance(preconditioner(*of, 1e6 * systems.alphas, systems.K), CoupledRank)

    def test_otherwise_the_low_rank(self, monkeypatch):
        systems = Systems(1, alpha=1e-4)
        of = systems.low_rank, systems.curvature(), systems.alphas
        indefinite = 3 * systems.K - 2 * np.diag(systems.K.diagonal())
        for matrix in (None, indefinite):
            assert isinstance(preconditioner(*of, matrix), Preconditioner)
        monkeypatch.setattr(newton_factors, "_ROOM", 0.01)
        assert isinstance(preconditioner(*of, systems.K), Preconditioner)

    def test_of_many_outputs_the_low_rank(self):
        systems = Systems(1, alpha=1e-4)
        f = systems.rng.normal(size=(N, 1, 23))
        curvature = Curvature(Softmax(), systems.y, f, systems.root_weights)
        made = preconditioner(systems.low_rank, curvature, systems.alphas, systems.K)
        assert isinstance(made, Preconditioner)


@LOSSES
def test_newton_reaches_what_it_reaches_without(loss, monkeypatch):
    monkeypatch.setattr(newton_factors, "_FACTORS_TAKE", -np.inf)
    systems = Systems(2, loss, alpha=0.5)
    reaches_what_it_reaches_without(CoupledFactors, systems, loss, monkeypatch)

"""Factors of Newton systems: what they solve, which rows they take, and when there are none."""

import numpy as np
import pytest

from mercer.kernels import RBF, Linear
from mercer.losses import Logistic, Softmax
from mercer.solvers import newton_factors, newton_parts
from mercer.solvers.held_matrix import low_rank_of
from mercer.solvers.newton_factors import Factors, _bending_rows, preconditioner
from mercer.solvers.newton_system import Curvature, Preconditioner, solve_newton_system
from mercer.solvers.pivoted_cholesky import pivoted_cholesky
from newton_checks import reaches_what_it_reaches_without

EPS = float(np.finfo(np.float32).eps)
#: More rows than those up to which the preconditioner is the whole of K.
N = 510


class Systems:
    """Systems of some problems, whose curvatures differ widely, each with a fold held out."""

    def __init__(self, q, loss=None, alpha=1e-4, gamma=2.0):
        self.rng = rng = np.random.default_rng(7)
        self.loss = loss or Logistic()
        X = rng.normal(size=(N, 2))
        self.K, self.low_rank = RBF(gamma)(X), None
        self.low_rank = low_rank_of(self.K, rng)
        self.alphas = alpha * 2.0 ** np.arange(q)
        C = 3 if self.loss.vector else 1
        self.y = rng.integers(0, 3, (N, q)) if self.loss.vector else rng.choice([-1.0, 1.0], (N, q))
        self.f = rng.normal(size=(N, q, C)) * np.exp(rng.uniform(-1, 2, size=(N, 1, 1)))
        self.root_weights = (np.arange(N)[:, None] % 5 != np.arange(q)).astype(float)
        self.R = rng.normal(size=(N, q, C))

    def curvature(self):
        return Curvature(self.loss, self.y, self.f, self.root_weights)

    def factors(self, n_threads=None):
        curvature = self.curvature()
        rows = _bending_rows(self.K, curvature, self.alphas)
        return Factors(self.low_rank, curvature, self.alphas, self.K, rows, n_threads)


def test_rows_are_left_out_up_to_a_part_of_what_is_added():
    systems = Systems(3, alpha=0.5)
    D = systems.curvature().diagonal[:, :, 0]
    for k, rows in enumerate(_bending_rows(systems.K, systems.curvature(), systems.alphas)):
        strength = D[:, k] ** 2 * systems.K.diagonal() / (2 * systems.alphas[k])
        left_out = np.delete(strength, rows)
        assert 0 < len(rows) < N - N // 5
        assert left_out.sum() <= 0.3 < left_out.sum() + strength[rows].min()
        assert left_out.max() <= strength[rows].min()
        assert (np.diff(rows) > 0).all()
        assert systems.root_weights[rows, k].all()


@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e-60, 1e15])
def test_against_the_matrix(loss, scale):
    systems = Systems(2, loss, alpha=0.05)
    systems.R *= scale
    found, size = systems.factors()(systems.R, np.arange(2))
    D, C = systems.curvature().diagonal, systems.R.shape[2]
    rows = _bending_rows(systems.K, systems.curvature(), systems.alphas)
    for problem, output in np.ndindex(2, C):
        d, shift = D[:, problem, output], 2 * systems.alphas[problem]
        M, taken = d[:, None] * systems.K * d, np.zeros(N, dtype=bool)
        taken[rows[problem * C + output]] = True
        M[~(taken[:, None] & taken)] = 0.0
        M[np.diag_indices(N)] = d**2 * systems.K.diagonal() + shift
        expected = np.linalg.solve(M, systems.R[:, problem, output])
        # Entries, factor and solution are rounded, each by a few EPS of the trace; and EPS times it is added.
        loss_of_digits = 5 * EPS * np.trace(M) / shift
        assert loss_of_digits < 0.05
        error = np.linalg.norm(found[:, problem, output] - expected)
        assert error <= loss_of_digits * np.linalg.norm(expected)
    W = D * systems.R
    exact = np.einsum("iqc,ij,jqc->q", W, systems.K, W, optimize=True)
    np.testing.assert_allclose(size, exact, rtol=0.1)  # 128 rows of F, and the mean of what they leave


class TestFewRows:
    """What is factored whole: in float32 where that carries it, or else in float64; or a low rank of K."""

    def preconditioner(self, kernel, alpha, loss=None, n=60):
        rng = np.random.default_rng(3)
        K, loss = kernel(rng.normal(size=(n, 2))), loss or Logistic()
        C = 3 if loss.vector else 1
        y = rng.integers(0, 3, (n, 1)) if loss.vector else rng.choice([-1.0, 1.0], (n, 1))
        curvature = Curvature(loss, y, rng.normal(size=(n, 1, C)), np.ones((n, 1)))
        made = preconditioner(low_rank_of(K, rng), curvature, np.array([alpha]), K)
        return made, K, curvature, rng.normal(size=(n, 1, C))

    @pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=str)
    @pytest.mark.parametrize(("alpha", "dtype", "rtol"), [(1e-3, np.float32, 1e-2), (1e-6, np.float64, 1e-6)])
    def test_dtype(self, loss, alpha, dtype, rtol):
        made, K, curvature, R = self.preconditioner(RBF(20.0), alpha, loss)
        assert type(made) is Factors
        assert made.dtype == dtype
        found, _ = made(R, np.arange(1))
        for output in range(R.shape[2]):
            d = curvature.diagonal[:, 0, output]
            expected = np.linalg.solve(d[:, None] * K * d + 2 * alpha * np.eye(60), R[:, 0, output])
            error = np.linalg.norm(found[:, 0, output] - expected)
            assert error <= rtol * np.linalg.norm(expected)

    def test_a_low_rank_is_taken_as_it_is(self):
        assert type(self.preconditioner(Linear(), 1e-3)[0]) is Preconditioner


def test_a_large_scale_of_weights_is_no_matter():
    systems = Systems(2)
    found, _ = systems.factors()(systems.R, np.arange(2))
    systems.root_weights, systems.alphas = systems.root_weights * 2.0**70, systems.alphas * 2.0**140
    scaled, _ = systems.factors()(systems.R * 2.0**-70, np.arange(2))
    np.testing.assert_array_equal(scaled * 2.0**210, found)


def test_of_no_rows_there_is_the_diagonal():
    systems = Systems(2, alpha=1e4)
    factors = systems.factors()
    assert factors.made
    assert [len(rows) for rows, _, _ in factors.parts] == [0, 0]
    D, shift = systems.curvature().diagonal, 2 * systems.alphas[:, None]
    expected = systems.R / (D**2 * systems.K.diagonal()[:, None, None] + shift)
    np.testing.assert_allclose(factors(systems.R, np.arange(2))[0], expected, rtol=1e-14)


@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=str)
def test_some_of_the_problems(loss):
    systems = Systems(3, loss)
    factors = systems.factors()
    whole, sizes = factors(systems.R, np.arange(3))
    some, some_sizes = factors(systems.R[:, [0, 2]], np.array([0, 2]))
    taken, taken_sizes = factors.take(np.array([True, False, True]))(systems.R[:, [0, 2]], np.arange(2))
    last, _ = factors.take(np.array([True, False, True]))(systems.R[:, [2]], np.array([1]))
    np.testing.assert_array_equal(some, whole[:, [0, 2]])
    np.testing.assert_array_equal(taken, some)
    np.testing.assert_array_equal(last, whole[:, [2]])
    np.testing.assert_array_equal(taken_sizes, some_sizes)
    np.testing.assert_allclose(some_sizes, sizes[[0, 2]], rtol=1e-5)  # float32 sums, in BLAS's order


@pytest.mark.parametrize("alpha", [1e-4, 0.05])
def test_numbers_of_16_bits_are_near_those_of_32(alpha, monkeypatch):
    systems = Systems(2, alpha=alpha)
    coarse, _ = systems.factors()(systems.R, np.arange(2))
    monkeypatch.setattr(newton_parts, "_COARSE_UP_TO", 0.0)
    fine, _ = systems.factors()(systems.R, np.arange(2))
    largest = N * (systems.curvature().diagonal ** 2).max() / (2 * alpha)
    error = np.linalg.norm(coarse - fine)
    # A part of 2⁻¹⁶ in each number of a row, which (L Lᵀ)⁻¹ takes twice.
    assert 0 < error <= 2 * 2.0**-16 * np.sqrt(largest) * np.linalg.norm(fine)


@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=str)
@pytest.mark.parametrize("of_low_rank", [False, True])
def test_made_at_one_curvature_it_serves_another(loss, of_low_rank):
    systems = Systems(2, loss, alpha=1e-3)
    if of_low_rank:
        made = Preconditioner(systems.low_rank, systems.curvature(), systems.alphas)
    else:
        made = systems.factors()
    before = systems.curvature().diagonal
    systems.f += systems.rng.normal(size=systems.f.shape)
    curvature = systems.curvature()
    k, shift = systems.K.diagonal()[:, None, None], 2 * systems.alphas[:, None]
    E = np.sqrt((shift + k * curvature.diagonal**2) / (shift + k * before**2))
    found, _ = made.at(curvature)(systems.R, np.arange(2))
    expected = made(systems.R / E, np.arange(2))[0] / E
    left_out = np.zeros(E.shape, dtype=bool)  # by factors; of these the diagonal is always the new one
    for column, (rows, *_) in enumerate([] if of_low_rank else made.parts):
        left_out.reshape(N, -1)[:, column] = ~np.isin(np.arange(N), rows)
    np.testing.assert_allclose(
        found[~left_out], expected[~left_out], rtol=1e-3, atol=1e-3 * np.abs(expected).max()
    )

    right, steps = curvature.adjoint(np.einsum("ij,jqc->iqc", systems.K, systems.R)), []
    for preconditioner_ in (made.at(curvature), made):
        *_, reached, n_iter = solve_newton_system(
            lambda V: systems.K @ V,
            curvature,
            systems.alphas,
            right,
            preconditioner_,
            target=1e-4 * np.sqrt(made.at(curvature)(right, np.arange(2))[1]),
            max_iter=500,
        )
        assert reached.all()
        steps.append(n_iter)
    assert steps[0] < 0.9 * steps[1]


@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=str)
def test_threads_change_nothing(q, loss):
    systems = Systems(q, loss)
    expected = systems.factors(1)(systems.R, np.arange(q))
    for n_threads in (2, 3):
        found = systems.factors(n_threads)(systems.R, np.arange(q))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize(("loss", "part"), [(Logistic(), 0.2), (Softmax(), 0.8)], ids=str)
def test_steps_are_few_where_a_low_rank_takes_many(loss, part):
    systems, steps = Systems(2, loss, alpha=1e-3, gamma=20.0), []
    curvature = systems.curvature()
    low_rank = pivoted_cholesky(systems.K.diagonal(), lambda index: systems.K[index], 40, rng=systems.rng)
    right = curvature.adjoint(np.einsum("ij,jqc->iqc", systems.K, systems.R))
    for made in (systems.factors(), Preconditioner(low_rank, curvature, systems.alphas)):
        _, size = made(right, np.arange(2))
        *_, reached, n_iter = solve_newton_system(
            lambda V: systems.K @ V,
            curvature,
            systems.alphas,
            right,
            made,
            target=1e-4 * np.sqrt(size),
            max_iter=500,
        )
        assert reached.all()
        steps.append(n_iter)
    # Of a cost with several outputs the coupling of these is left, by any of the two.
    assert steps[0] < part * steps[1]


class TestWhichItIs:
    def test_factors_where_float32_does_not_carry_the_low_rank(self):
        systems = Systems(1)
        curvature = systems.curvature()
        made = preconditioner(systems.low_rank, curvature, systems.alphas, systems.K)
        assert isinstance(made, Factors)
        made = preconditioner(systems.low_rank, curvature, 1e5 * systems.alphas, systems.K)
        assert isinstance(made, Preconditioner)
        assert made.dtype == np.float32

    def test_without_a_matrix_or_definiteness_or_room_it_is_the_low_rank(self, monkeypatch):
        systems = Systems(1)
        curvature = systems.curvature()
        indefinite = 3 * systems.K - 2 * np.diag(systems.K.diagonal())
        rows = _bending_rows(indefinite, curvature, systems.alphas)
        assert not Factors(systems.low_rank, curvature, systems.alphas, indefinite, rows).made
        for matrix in (None, indefinite):
            made = preconditioner(systems.low_rank, curvature, systems.alphas, matrix)
            assert isinstance(made, Preconditioner)
            assert made.dtype == np.float64
        monkeypatch.setattr(newton_factors, "_ROOM", 0.1)
        made = preconditioner(systems.low_rank, curvature, systems.alphas, systems.K)
        assert isinstance(made, Preconditioner)


def test_newton_reaches_what_it_reaches_without(monkeypatch):
    systems = Systems(1, alpha=1e-3, gamma=20.0)
    reaches_what_it_reaches_without(Factors, systems, Logistic(), monkeypatch)

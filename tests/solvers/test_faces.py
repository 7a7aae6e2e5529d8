"""Newton steps on faces against a general solver, and where they give up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercer.kernels import RBF, Linear
from mercer.solvers.dual import DualSamples
from mercer.solvers.dual_layout import dual_jobs
from mercer.solvers.faces import Rows, newton_on_faces


def problem(rng, n, C, kernel, dtype=np.float64):
    X = rng.standard_normal((n, 3))
    signs = np.where(X[:, 0] + 0.8 * rng.standard_normal(n) > 0, 1.0, -1.0)
    signs[:2] = 1.0, -1.0
    K = kernel(X)
    return K.astype(dtype), signs, np.where(signs > 0, 0.0, -C), np.where(signs > 0, C, 0.0)


def gap(F, beta, lower, upper):
    return F[beta < upper].max() - F[beta > lower].min()


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 60), C=st.sampled_from([0.1, 1.0, 100.0, 1e4]))
def test_reaches_the_optimum_from_anywhere_feasible(seed, n, C):
    rng = np.random.default_rng(seed)
    K, signs, lower, upper = problem(rng, n, C, RBF(0.3))
    # every pair of opposite signs may rise together
    first, second = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
    beta = np.zeros(n)
    count = min(len(first), len(second))
    amounts = C * rng.choice([0.0, 0.3, 1.0], size=count)
    beta[first[:count]], beta[second[:count]] = amounts, -amounts
    F = signs - K @ beta
    before = 0.5 * beta @ K @ beta - signs @ beta
    done = newton_on_faces(Rows(K, [slice(0, n)]), F, beta, lower, upper, 1e-6, rounds=200)
    after = 0.5 * beta @ K @ beta - signs @ beta
    size = 1 + np.abs(beta).sum()
    np.testing.assert_allclose(F, signs - K @ beta, atol=1e-11 * size)
    assert (beta >= lower).all()
    assert (beta <= upper).all()
    assert abs(beta.sum()) <= 1e-10 * size
    assert after <= before + 1e-9 * size
    if done:
        assert gap(F, beta, lower, upper) <= 1e-6
    else:
        assert gap(F, beta, lower, upper) > 1e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("C", [10.0, 1000.0])
def test_the_solvers_optimum(dtype, C, rng):
    n = 300
    X = rng.standard_normal((n, 3))
    y = (X[:, 0] + 0.8 * rng.standard_normal(n) > 0).astype(int)
    groups = [np.flatnonzero(y == 0), np.flatnonzero(y == 1)]
    samples = DualSamples(RBF(0.3), X, groups)
    matrix, places = samples.hold(dtype)
    ones = np.ones((1, n))
    job = dual_jobs((0, 1), (1, 2), (1.0, -1.0))
    out = samples.solve(job, ones, 0 * ones, C * ones, tol=1e-5, fields=True, dtype=dtype)
    signs = np.repeat([1.0, -1.0], [len(group) for group in groups])
    capped = samples.solve(
        job, ones, 0 * ones, C * ones, tol=1e-5, max_iter=300, fields=True, dtype=dtype, start=None
    )
    beta, F = capped.beta[0].copy(), capped.field[0].copy()
    ranges = [
        slice(places[0], places[len(groups[0]) - 1] + 1),
        slice(places[len(groups[0])], places[-1] + 1),
    ]
    lower, upper = np.where(signs > 0, 0.0, -C), np.where(signs > 0, C, 0.0)
    newton_on_faces(Rows(matrix, ranges), F, beta, lower, upper, 1e-5, rounds=200)
    # feasible and never worse; from where SMO was stopped most of what is left to gain is gained
    K = matrix[np.ix_(places, places)].astype(np.float64)
    reached, most, found = (
        0.5 * v @ K @ v - signs @ v for v in (capped.beta[0], out.beta[0], beta)
    )  # by the entries, without the rounding of F on the way
    assert most - 1e-6 * abs(most) <= found
    assert found - most <= 0.5 * (reached - most) + 1e-6 * abs(found)


@pytest.mark.parametrize("C", [0.3, 100.0])
def test_without_the_sum_and_with_a_diagonal(C, rng):
    K, signs, lower, upper = problem(rng, 150, C, RBF(0.3))
    diagonal = rng.uniform(0, 0.1, size=150)
    beta, F = np.zeros(150), signs.copy()
    rows = Rows(K, [slice(0, 150)], diagonal)
    assert newton_on_faces(rows, F, beta, lower, upper, 1e-9, rounds=200, sums=np.zeros((0, 150)))
    np.testing.assert_allclose(F, signs - K @ beta - diagonal * beta, atol=1e-10)
    assert ((lower <= beta) & (beta <= upper)).all()
    assert F[beta < upper].max(initial=0.0) <= 1e-9
    assert F[beta > lower].min(initial=0.0) >= -1e-9


def test_no_round_begins_with_too_many_variables(rng):
    K, signs, lower, upper = problem(rng, 150, 1e6, RBF(0.3))
    beta, F = np.zeros(150), signs.copy()
    assert not newton_on_faces(Rows(K, [slice(0, 150)]), F, beta, lower, upper, 1e-9, most_free=40)
    assert 0 < np.count_nonzero(beta) <= 40


def test_gives_up_on_an_indefinite_matrix():
    K = np.array([[1.0, 3.0], [3.0, 1.0]])
    beta, F = np.array([0.5, -0.5]), np.array([1.0, -1.0])
    F -= K @ beta
    before = beta.copy()
    done = newton_on_faces(Rows(K, [slice(0, 2)]), F, beta, np.array([0.0, -1]), np.array([1.0, 0]), 1e-6)
    assert not done
    np.testing.assert_array_equal(beta, before)


def test_a_matrix_of_low_rank(rng):
    K, signs, lower, upper = problem(rng, 80, 10.0, Linear())
    beta, F = np.zeros(80), signs.copy()
    newton_on_faces(Rows(K, [slice(0, 80)]), F, beta, lower, upper, 1e-6, rounds=100)
    np.testing.assert_allclose(F, signs - K @ beta, atol=1e-8)
    assert -0.5 * beta @ (F + signs) < 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [RBF(0.3), 0.5 * RBF(0.1) * Linear() + RBF(2.0)])
def test_the_matrix_that_is_held(dtype, kernel, rng):
    X = rng.standard_normal((300, 4))
    groups = [np.arange(0, 300, 2), np.arange(1, 300, 2)]
    samples = DualSamples(kernel, X, groups)
    matrix, places = samples.hold(dtype)
    order = np.concatenate(groups)
    assert matrix.dtype == dtype
    expected = kernel(X[order])
    np.testing.assert_allclose(
        matrix[np.ix_(places, places)],
        expected,
        rtol=4 * np.finfo(dtype).eps,
        atol=1e-14 * np.abs(expected).max(),
    )
    assert samples.hold(dtype)[0] is not None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, 33, 1100])
def test_entries_and_products_of_a_matrix(n, dtype, rng):
    wide = rng.standard_normal((n, n + 5))
    wide[:, :n] += wide[:, :n].T
    matrix = wide.astype(dtype)[:, :n]
    ranges = [slice(0, n // 3), slice(n // 2, n)]
    rows = Rows(matrix, ranges)
    some = rng.permutation(len(rows.places))[: 1 + n // 4]
    K = matrix.astype(np.float64)[np.ix_(rows.places, rows.places)]
    np.testing.assert_array_equal(rows.square(some), K[np.ix_(some, some)])
    change = rng.standard_normal(len(some))
    np.testing.assert_allclose(rows.product(some, change), K[:, some] @ change, atol=1e-12 * n)


def test_making_the_matrix_can_be_stopped(rng):
    def stop():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        DualSamples(RBF(), rng.standard_normal((30, 2)), [np.arange(30)]).hold(np.float64, on_step=stop)

"""The dual solver: the same optimum whatever the rows' precision, cache, storage, threads and shrinking."""

import gc
import signal
import threading
import time
import weakref

import numpy as np
import pytest
from scipy import sparse

from mercer._native import DUAL_JOB, dual_fill, dual_lay_jobs, dual_layout, dual_place
from mercer.kernels import RBF, FunctionKernel, Laplacian, Linear, Polynomial, Precomputed
from mercer.solvers.dual import DualSamples
from mercer.solvers.dual_layout import STATUS, DualLayout, dual_jobs

PAIR = dual_jobs((0, 1), (1, 2), (1.0, -1.0))
A, B = np.triu_indices(4, 1)
FOUR = dual_jobs(A[:, None] + [0, 1], B[:, None] + [0, 1], (1.0, -1.0))


def two_classes(n=300, d=5, seed=0, noise=0.6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.where(X[:, 0] ** 2 + X[:, 1] + noise * rng.standard_normal(n) > 1, 1, -1)
    return X, y


def groups_of(y):
    return [np.flatnonzero(y == label) for label in np.unique(y)]


def solve(kernel, X, y, C=1.0, tol=1e-6, jobs=PAIR, n_threads=1, **options):
    samples = DualSamples(kernel, X, groups_of(y), n_threads=n_threads)
    n = int(samples.sizes.sum())
    one = np.ones((1, n))
    return samples.solve(jobs, one, 0 * one, C * one, tol=tol, **options)


def signed(y):
    """The labels in the order of the groups, +1 for the first."""
    return np.concatenate([np.full(len(g), s) for g, s in zip(groups_of(y), (1.0, -1.0), strict=True)])


def kkt_gap(K, y, beta, C):
    """The violation of the optimality conditions, by their definition."""
    order = np.concatenate(groups_of(y))
    F = signed(y) - K[np.ix_(order, order)] @ beta
    lower, upper = np.where(signed(y) > 0, 0, -C), np.where(signed(y) > 0, C, 0)
    return F[beta < upper].max() - F[beta > lower].min()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("C", [0.1, 10.0, 1e4])
def test_the_gap_that_is_reported_is_the_violation_of_the_conditions(dtype, C):
    X, y = two_classes()
    outcome = solve(RBF(gamma=0.3), X, y, C, tol=1e-3, dtype=dtype)
    K = RBF(gamma=0.3)(X)
    beta = outcome.beta[0]
    assert outcome.status[0] == STATUS.index("converged")
    assert outcome.gap[0] <= 1e-3
    noise = 1e-12 if dtype == np.float64 else 4e-7
    assert abs(kkt_gap(K, y, beta, C) - outcome.gap[0]) <= noise * np.abs(beta).sum()
    assert abs(beta.sum()) <= 1e-12 * np.abs(beta).sum()
    order = np.concatenate(groups_of(y))
    objective = 0.5 * beta @ K[np.ix_(order, order)] @ beta - np.abs(beta).sum()
    np.testing.assert_allclose(outcome.objective[0], objective, rtol=1e-5 if dtype == np.float32 else 1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shrinking_and_the_cache_change_nothing_but_time(dtype):
    X, y = two_classes(4000, 4, noise=1.0)
    kernel = RBF(gamma=0.5)
    whole = solve(kernel, X, y, 3.0, tol=1e-4, shrinking=False, dtype=dtype)
    for options in ({}, {"cache_bytes": 2e5}, {"cache_bytes": 0}, {"shrinking": False, "cache_bytes": 3e6}):
        other = solve(kernel, X, y, 3.0, tol=1e-4, dtype=dtype, **options)
        assert other.gap[0] <= 1e-4
        np.testing.assert_allclose(other.objective, whole.objective, rtol=1e-6)
        np.testing.assert_allclose(other.bias[0, 0], whole.bias[0, 0], atol=2e-3)
    assert whole.n_rows[0] < 4000


def test_shrinking_brings_back_the_gradient_of_what_it_left_alone():
    X, y = two_classes(4000, 4, noise=1.0)
    kernel = RBF(gamma=0.5)
    outcome = solve(kernel, X, y, 3.0, tol=1e-3, fields=True, dtype=np.float64)
    order = np.concatenate(groups_of(y))
    F = signed(y) - kernel(X[order]) @ outcome.beta[0]
    np.testing.assert_allclose(outcome.field[0], F, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3])
def test_problems_on_a_matrix_are_cut_down_and_brought_back(dtype, classes):
    X, y = two_classes(1500, 3)
    # of three classes, the pair of the first and the last has another one in between
    y[::2] = np.where(X[::2, 2] > 0, y[::2], classes - 1)
    groups, kernel = groups_of(y), RBF(gamma=0.5)
    K = kernel(X)
    job = dual_jobs((0, 1), (len(groups) - 1, len(groups)), (1.0, -1.0))
    taken = np.concatenate([groups[0], groups[-1]])
    sign = np.repeat([1.0, -1.0], [len(groups[0]), len(groups[-1])])
    one, found = np.ones((1, len(X))), []
    for n_threads in (1, 2, 3):
        samples = DualSamples(Precomputed(), K, groups, n_threads=n_threads)
        options = {"tol": 1e-3, "fields": True, "dtype": dtype}
        found.append(samples.solve(job, one, 0 * one, 30 * one, **options))
        np.testing.assert_array_equal(found[0].beta[0], found[-1].beta[0])
        np.testing.assert_array_equal(found[0].field[0], found[-1].field[0])
    whole = samples.solve(job, one, 0 * one, 30 * one, shrinking=False, **options)
    np.testing.assert_allclose(found[0].objective, whole.objective, rtol=1e-5)
    beta = found[0].beta[0]
    noise = 1e-13 if dtype == np.float64 else 3e-8
    np.testing.assert_allclose(
        found[0].field[0], sign - K[np.ix_(taken, taken)] @ beta, atol=noise * np.abs(beta).sum()
    )


def rates(K, c, beta, lower, upper, epsilon=0.0):
    """At which each variable gains by going up, and loses by going down, as definitions have it."""
    F = c - K @ beta
    up = np.where(beta < upper, F + np.where(beta < 0, epsilon, -epsilon), -np.inf)
    return up, np.where(beta > lower, F + np.where(beta > 0, -epsilon, epsilon), np.inf)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("wide", [1e10, 1e12, 1e13, 1e15])
def test_boxes_of_any_width_side_by_side(wide, epsilon, rng):
    n = 60
    K, c = RBF(0.5)(rng.normal(size=(n, 2))), rng.normal(size=n)
    lower, upper = np.zeros((2, n))
    lower[::2], upper[1::2] = -1 / wide, 1 / wide
    lower[::3], upper[::3] = -1.0, 0.5 / wide  # of these the upper bound is as near to the kink
    upper[1::3] = 1.0
    samples = DualSamples(Precomputed(), K, [np.arange(n)])
    out = samples.solve(dual_jobs((0, 1), epsilon=epsilon), c[None], lower[None], upper[None], tol=1e-6)
    up, down = rates(K, c, out.betas, lower, upper, epsilon)
    assert out.status[0] == STATUS.index("converged")
    assert up.max() - down.min() <= 1.001e-6
    assert out.gap[0] == pytest.approx(up.max() - down.min(), abs=1e-12)
    small = np.minimum(-lower, upper) == 0
    assert np.count_nonzero(small & (np.abs(out.betas) >= 0.9 / wide)) > 10  # at the far end of their boxes


def test_small_variables_beside_huge_ones_stay_where_they_are():
    """Two of 10⁸ and two of 3·10⁻⁵: each pair has its own kernel."""
    K = np.diag([1e-8, 1e-8, 1.0, 1.0])
    c = np.array([1.0, -1.0, 3e-5, -3e-5])
    lower, upper = np.where(c < 0, -1e9, 0.0), np.where(c > 0, 1e9, 0.0)
    samples = DualSamples(Precomputed(), K, [np.arange(4)])
    out = samples.solve(dual_jobs((0, 1)), c[None], lower[None], upper[None], tol=1e-6)
    up, down = rates(K, c, out.betas, lower, upper)
    assert up.max() - down.min() <= 1e-6
    np.testing.assert_allclose(np.abs(out.betas), [1e8, 1e8, 3e-5, 3e-5], rtol=0.1)


@pytest.mark.parametrize("offset", [-1e5, 1e7, 1e12])
@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("n", [200, 1100])  # rows of float64, and of float32
def test_a_constant_that_all_targets_share_costs_no_digits(offset, separate, n):
    x = np.linspace(-3, 3, n)[:, None]
    K, small, tol = RBF(1.0)(x), np.sin(2 * x[:, 0]), 1e-3
    samples = DualSamples(RBF(1.0), x, [np.arange(n // 2), np.arange(n // 2, n)])
    job = dual_jobs((0, 1), (1, 2), separate=separate, epsilon=0.02)
    one, start = np.ones((1, n)), np.where(np.arange(n) % 5, 0.0, 0.1)
    y = (offset + small) - offset  # as its digits are
    out, plain = (
        samples.solve(job, c[None], -10 * one, 10 * one, tol=tol, start=start, fields=True)
        for c in (offset + small, y)
    )
    assert out.status[0] == STATUS.index("converged")
    up, down = rates(K, y, out.betas, -10.0, 10.0, 0.02)
    for part in [slice(0, n // 2), slice(n // 2, n)] if separate else [slice(0, n)]:
        assert up[part].max() - down[part].min() <= 1.001 * tol
    np.testing.assert_allclose(out.betas, plain.betas, atol=1e-12)
    ulp = np.spacing(abs(offset))
    np.testing.assert_allclose(out.fields, offset + (y - K @ out.betas), atol=2 * ulp + 1e-4)
    for name in ("bias", "least", "most"):
        used = np.array([True, separate])
        found = getattr(out, name)[0, used]
        np.testing.assert_allclose(found, offset + getattr(plain, name)[0, used], atol=2 * ulp)
    moved = plain.objective[0] - offset * out.betas.sum()
    np.testing.assert_allclose(out.objective[0], moved, rtol=1e-12, atol=1e-9)


def test_rates_that_float32_holds_no_more():
    """ρ is tens of thousands, of which float32 has steps of 0.002 or 0.004."""
    n, tol, kernel = 1200, 1e-3, RBF(0.05)
    X = np.random.default_rng(3).normal(size=(n, 5))
    samples, zero, weights = DualSamples(kernel, X, [np.arange(n)]), np.zeros((1, n)), np.full((1, n), 100.0)
    K, start = kernel(X), np.where(np.arange(n) < n // 2, 100.0, 0.0)
    found = []
    for dtype in (None, np.float32):
        out = samples.solve(dual_jobs((0, 1)), zero, zero, weights, tol=tol, start=start, dtype=dtype)
        up, down = rates(K, zero[0], out.betas, 0.0, 100.0)
        found.append((up.max() - down.min(), out.gap[0]))
    assert found[0][0] <= tol
    # what is left between the two is rounding of K's entries
    assert found[1][0] > 3 * tol
    assert found[1][1] == pytest.approx(found[1][0], abs=tol)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, "precomputed"])
@pytest.mark.parametrize("known", [True, False])
def test_few_samples_so_large_that_float32_will_not_do(form, known, monkeypatch):
    """Ten million steps of float32 rows end at a gap of 4."""
    rng, kernel = np.random.default_rng(0), Polynomial(2, 0.1, 1.0)
    X = rng.normal(size=(1500, 3))
    X[rng.choice(1500, 6, replace=False)] *= 3000
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=1500) > 0, 1, -1)
    if not known:
        monkeypatch.setattr(DualSamples, "rounding", lambda self: 0.0)
    out = solve(*((Precomputed(), kernel(X)) if form == "precomputed" else (kernel, form(X))), y, tol=1e-3)
    assert out.rows == ("float64" if known else "float32, float64")
    assert out.status[0] == STATUS.index("converged")
    assert out.n_iter[0] < (2000 if known else 50_000)
    order = np.concatenate(groups_of(y))
    K, c = kernel(X[order]), signed(y)
    up, down = rates(K, c, out.beta[0], np.minimum(c, 0.0), np.maximum(c, 0.0))
    assert up.max() - down.min() <= 1.01e-3


@pytest.mark.parametrize(("n", "seed"), [(30, 0), (60, 7), (30, 1)])
def test_after_many_steps_gradients_are_those_of_beta(n, seed):
    """Tens of thousands, which put off F by 70 to 650 times what rounding leaves when it is computed."""
    rng = np.random.default_rng(seed)
    A, c = rng.normal(size=(n, 5)), np.where(rng.normal(size=n) > 0, 1.0, -1.0)
    K = A @ A.T
    problems = DualSamples(Precomputed(), K, [np.arange(n)]).problems(dual_jobs((0, 1)), np.float64)
    beta, field = np.zeros(problems.size), np.empty(problems.size)
    box = problems.placed(c[None], np.minimum(1e6 * c, 0)[None], np.maximum(1e6 * c, 0)[None])
    found = problems.solve(
        *box, beta, field, tol=1e-6, max_iter=100_000, cache_bytes=1e6, shrinking=True, on_step=None
    )
    beta, field = beta[problems.taken], field[problems.taken]
    assert found["n_iter"][0] > 5000
    noise = np.finfo(float).eps * K.diagonal().max() * np.linalg.norm(beta)
    np.testing.assert_allclose(field, c - K @ beta, atol=2 * noise)
    up, down = rates(K, c, beta, np.minimum(1e6 * c, 0), np.maximum(1e6 * c, 0))
    assert found["gap"][0] == pytest.approx(up.max() - down.min(), abs=4 * noise)


@pytest.mark.parametrize("separate", [True, False])
def test_sums_stay_where_nothing_bounds_beta(separate):
    rng, half, n = np.random.default_rng(0), 200, 400
    X = rng.normal(size=(n, 3))
    samples = DualSamples(RBF(1.0), X, [np.arange(half), np.arange(half, n)])
    job = dual_jobs((0, 1), (1, 2), separate=separate)
    c = 3 + 0.03 * X[:, :1].T + 0.003 * rng.normal(size=(1, n))
    out = samples.solve(job, c, np.zeros((1, n)), np.full((1, n), np.inf), tol=1e-8, start=np.full(n, 1 / n))
    assert out.n_iter[0] > 256  # β is looked at as a whole now and then
    assert out.betas.sum() == pytest.approx(1, rel=1e-12)
    if separate:
        assert out.betas[:half].sum() == pytest.approx(0.5, rel=1e-12)


def test_a_float32_matrix_has_no_denormals(rng):
    X = rng.uniform(0.0, 110.0, (400, 1))
    matrix, places = DualSamples(Laplacian(1.0), X, [np.arange(400)]).hold(np.float32)
    matrix, exact = matrix[np.ix_(places, places)], np.exp(-np.abs(X - X.T))
    gone = exact < np.finfo(np.float32).smallest_normal
    assert (exact[gone] > np.finfo(np.float32).smallest_subnormal).any()
    np.testing.assert_allclose(matrix, np.where(gone, 0, exact), rtol=1e-6)


@pytest.mark.parametrize("parts", [1, 3, 60])
@pytest.mark.parametrize("adjacent", [True, False])
@pytest.mark.parametrize("separate", [True, False])
def test_samples_that_are_held_out_of_a_matrix_are_passed_over(parts, adjacent, separate):
    """Few stretches, and more than rows are read in; the others' F is there in the end."""
    X, y = two_classes(1300, 3)
    groups, kernel = groups_of(y) + [np.arange(20)], RBF(gamma=0.5)
    order = [0, 1] if adjacent else [1, 0]
    job = dual_jobs((order[0], order[0] + 1), (order[1], order[1] + 1), (1.0, -1.0), separate=separate)
    samples = DualSamples(kernel, X, groups)
    samples.hold(np.float64)
    n = len(y) + 20
    out = (np.arange(n) * 2 * parts // n) % 2 == 1
    upper = np.where(out, 0.0, 10.0)[None]
    options = {"tol": 1e-8, "fields": True, "dtype": np.float64}
    zero, c = np.zeros((1, n)), np.ones((1, n))
    taken = np.concatenate([groups[index] for index in order])
    sign = np.repeat([1.0, -1.0], samples.sizes[order])
    ends = np.cumsum(samples.sizes)
    outs = np.concatenate([out[ends[index] - samples.sizes[index] : ends[index]] for index in order])
    # where each class keeps its own sum, that of a start
    start = np.where(outs, 0.0, 0.5) * sign if separate else None
    found = samples.solve(job, c, zero, upper, start=start, **options)
    plain = DualSamples(kernel, X, groups).solve(job, c, zero, upper, start=start, **options)
    np.testing.assert_allclose(found.objective, plain.objective, rtol=1e-7)
    np.testing.assert_allclose(found.beta[0], plain.beta[0], atol=1e-4)
    K = kernel(X[taken])
    np.testing.assert_allclose(found.field[0], sign - K @ found.beta[0], atol=1e-11)


def test_two_variables_of_one_sample_are_brought_back_on_a_matrix():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (700, 2))
    y = np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(700)
    kernel, groups = RBF(gamma=2.0), [np.arange(700)]
    jobs = dual_jobs((0, 1), (0, 1), epsilon=0.2)  # most stay within the tube: they are cut away
    c, five = y[None, :], np.full((1, 700), 5.0)
    for form, data in ((Precomputed(), kernel(X)), (kernel, X)):
        samples = DualSamples(form, data, groups)
        outcome = samples.solve(jobs, c, -five, five, tol=1e-5, fields=True, dtype=np.float64)
        beta = outcome.beta[0][:700] + outcome.beta[0][700:]
        np.testing.assert_allclose(outcome.field[0], np.tile(y - kernel(X) @ beta, 2), atol=1e-10)


@pytest.mark.parametrize("n", [40, 1300])
def test_a_start_that_cancels_is_multiplied_by_nothing(n):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 3))
    y, half, zero = np.sin(X).sum(axis=1), np.full(n, 0.5), np.zeros(n)
    samples = DualSamples(RBF(gamma=0.3), X, [np.arange(n)] * 2)
    box = [np.concatenate(pair)[None] for pair in ((y, y), (zero, -2 * half), (2 * half, zero))]
    job, start = dual_jobs((0, 1), (1, 2), separate=True), np.concatenate([half, -half])
    options = {"tol": 1e-6, "start": start, "fields": True, "dtype": np.float64}
    plain, short = (samples.solve(job, *box, cancels=cancels, **options) for cancels in (False, True))
    beta = short.beta[0][:n] + short.beta[0][n:]
    np.testing.assert_allclose(short.field[0], np.tile(y - RBF(gamma=0.3)(X) @ beta, 2), atol=1e-10)
    np.testing.assert_allclose(short.objective, plain.objective, rtol=1e-6)
    np.testing.assert_allclose(short.bias, plain.bias, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d", "n_threads"), [(40, 3, 1), (1300, 3, 1), (1300, 100, 2)])
def test_two_variables_of_one_sample_share_its_row(n, d, n_threads, dtype):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d))
    y, zero, kernel = np.sin(X).sum(axis=1), np.zeros(n), RBF(gamma=1 / d)
    start = np.concatenate([np.full(n, 0.5), np.full(n, -0.5)])
    options = {"tol": 1e-4, "start": start, "cancels": True, "fields": True, "dtype": dtype}
    once, twice = (DualSamples(kernel, X, [np.arange(n)] * times, n_threads=n_threads) for times in (1, 2))
    box = [np.stack(pair) for pair in ((y, y), (zero, zero - 2.0), (zero + 2.0, zero))]
    ours = once.solve(dual_jobs((0, 1), (0, 1), sets=(0, 1), separate=True), *box, **options)
    theirs = twice.solve(
        dual_jobs((0, 1), (1, 2), separate=True), *(each.reshape(1, -1) for each in box), **options
    )
    field = np.tile(y - kernel(X) @ (ours.betas[:n] + ours.betas[n:]), 2)
    np.testing.assert_allclose(ours.fields, field, atol=1e-4 if dtype == np.float32 else 1e-10)
    np.testing.assert_allclose(ours.objective, theirs.objective, rtol=1e-5)
    np.testing.assert_allclose(ours.bias, theirs.bias, atol=2e-4)
    np.testing.assert_allclose([ours.betas[:n].sum(), ours.betas[n:].sum()], [n / 2, -n / 2])
    assert ours.n_iter[0] > n / 2
    assert ours.n_rows[0] < 0.8 * theirs.n_rows[0]


@pytest.mark.parametrize("n_threads", [2, 3])
@pytest.mark.parametrize(("n", "d"), [(500, 3), (7000, 6)])
def test_any_number_of_threads_gives_the_same_bits(n, d, n_threads):
    X, y = two_classes(n, d, noise=0.2)
    one = solve(RBF(gamma=0.3), X, y, 10.0, tol=1e-3)
    many = solve(RBF(gamma=0.3), X, y, 10.0, tol=1e-3, n_threads=n_threads)
    np.testing.assert_array_equal(one.beta[0], many.beta[0])
    assert one.n_iter[0] == many.n_iter[0]


def test_several_problems_at_once_are_the_same_problems():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((1500, 70))  # wide enough that own-class parts of rows are shared
    y = rng.integers(0, 4, 1500)
    X[np.arange(1500), y] += 2
    pairs = FOUR
    together = [solve(RBF(gamma=0.01), X, y, 5.0, jobs=pairs, n_threads=t) for t in (1, 2, 3)]
    alone = [solve(RBF(gamma=0.01), X, y, 5.0, jobs=pair) for pair in pairs.reshape(-1, 1)]
    for k in range(len(pairs)):
        np.testing.assert_array_equal(together[0].beta[k], alone[k].beta[0])
        for others in together[1:]:
            np.testing.assert_array_equal(together[0].beta[k], others.beta[k])


@pytest.mark.parametrize("kernel", [RBF(gamma=0.3), Linear(), Polynomial(2) + RBF(0.1)], ids=str)
@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array])
def test_a_matrix_that_is_held_for_few_samples_of_many_groups_changes_no_answer(kernel, stored, monkeypatch):
    rng = np.random.default_rng(5)
    y = rng.integers(0, 4, 90)
    X = rng.standard_normal((90, 4)) + 2 * np.eye(4)[y]
    assert DualSamples(kernel, X, groups_of(y))._layout(np.dtype(np.float64)).run is None
    held = solve(kernel, stored(X), y, 2.0, 1e-9, jobs=FOUR, fields=True)
    monkeypatch.setattr("mercer.solvers.dual_layout._HELD_UP_TO", 0)
    monkeypatch.setattr("mercer.solvers.dual_layout._HELD_EACH", 0)
    by_rows = solve(kernel, stored(X), y, 2.0, 1e-9, jobs=FOUR, fields=True)
    np.testing.assert_allclose(held.objective, by_rows.objective, rtol=1e-9)
    np.testing.assert_allclose(held.fields, by_rows.fields, atol=1e-7)  # of 2 · 90 entries; tol is 1e-9
    np.testing.assert_allclose(held.bias, by_rows.bias, atol=1e-7)


def many_groups(k, rng):
    y = np.repeat(np.arange(k), rng.integers(1, 7, k))
    a, b = np.triu_indices(k, 1)
    jobs = dual_jobs(a[:, None] + [0, 1], b[:, None] + [0, 1], (1.0, -1.0))
    return rng.standard_normal((len(y), 5)) + y[:, None] % 7, y, jobs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_groups_of_few_samples_are_solved_from_a_matrix_where_memory_allows(dtype, rng, monkeypatch):
    X, y, jobs = many_groups(60, rng)
    samples = DualSamples(RBF(0.1), X, groups_of(y))
    assert len(y) > 130
    monkeypatch.setattr("mercer.solvers.dual_layout._HELD_UP_TO", 0)
    ones, options = np.ones((1, len(y))), {"tol": 1e-5, "dtype": dtype, "fields": True}
    held = samples.solve(jobs, ones, 0 * ones, 5 * ones, **options)
    assert samples._layout(np.dtype(dtype)).run is None
    narrow = DualSamples(RBF(0.1), X, groups_of(y))
    by_rows = narrow.solve(jobs, ones, 0 * ones, 5 * ones, cache_bytes=2.0**15, **options)
    assert narrow._layout(np.dtype(dtype)).run is not None
    K, eps = RBF(0.1)(X), np.finfo(dtype).eps
    for job, *of_both in zip(jobs, held.beta, by_rows.beta, held.field, by_rows.field, strict=True):
        rows = np.concatenate([np.flatnonzero(y == group) for group in job["groups"][:, 0]])
        sign = np.where(y[rows] == job["groups"][0, 0], 1.0, -1.0)
        for beta, field in (of_both[0::2], of_both[1::2]):
            F = sign - K[np.ix_(rows, rows)] @ beta
            # entries are off by their rounding, and by a few of those of a distance
            off = 16 * eps * (1 + np.abs(beta).sum())
            np.testing.assert_allclose(field, F, rtol=0, atol=off)
            up, down = beta < np.maximum(5 * sign, 0), beta > np.minimum(5 * sign, 0)
            assert F[up].max() - F[down].min() <= 1e-5 + 2 * off


@pytest.mark.parametrize("begin", [None, "feasible"])
def test_problems_in_parts_are_those_at_once(begin, rng, monkeypatch):
    X, y, jobs = many_groups(20, rng)
    ones, seen = np.ones((1, len(y))), []
    start = None
    if begin:
        firsts = solve(RBF(0.1), X, y, 1.0, 1e-1, jobs=jobs)
        start = firsts.betas
    options = {
        "tol": 1e-8, "fields": True, "start": start, "on_step": lambda done, gap: seen.append(done)
    }  # fmt: skip
    whole = DualSamples(RBF(0.1), X, groups_of(y)).solve(jobs, ones, 0 * ones, ones, **options)
    monkeypatch.setattr("mercer.solvers.dual_layout._AT_ONCE", 37)
    parts = DualSamples(RBF(0.1), X, groups_of(y)).solve(jobs, ones, 0 * ones, ones, **options)
    for name, value in vars(whole).items():
        np.testing.assert_array_equal(getattr(parts, name), value, err_msg=name)
    assert max(seen) == len(jobs)


KERNELS = {
    "linear": Linear(),
    "polynomial": Polynomial(2, gamma=0.2),
    "normalized": Polynomial(2, gamma=0.2).normalize(),
    "composite": 0.5 * RBF(gamma=0.2) + Polynomial(2, gamma=0.1) * RBF(gamma=0.05),
    "few columns": RBF(gamma=0.5).on([0, 1, 2]),
}


@pytest.mark.parametrize("storage", ["dense", "csr"])
@pytest.mark.parametrize("name", KERNELS)
def test_rows_by_the_program_are_rows_of_the_matrix(name, storage):
    kernel = KERNELS[name]
    X, y = two_classes(1700, 12)
    X[np.abs(X) < 0.6] = 0
    K = kernel(X)
    by_matrix = solve(Precomputed(), K, y, 2.0, tol=1e-3, fields=True, dtype=np.float64)
    stored = sparse.csr_array(X) if storage == "csr" else X
    by_rows = solve(kernel, stored, y, 2.0, tol=1e-3, fields=True, dtype=np.float64)
    np.testing.assert_allclose(by_rows.objective, by_matrix.objective, rtol=1e-5)
    order = np.concatenate(groups_of(y))
    for outcome in (by_matrix, by_rows):
        F = signed(y) - K[np.ix_(order, order)] @ outcome.beta[0]
        np.testing.assert_allclose(outcome.field[0], F, atol=1e-8)


def test_a_users_function_serves_as_rows():
    X, y = two_classes(200)
    f = FunctionKernel(lambda X, Z: np.tanh(X @ Z.T) + X @ Z.T)
    outcome = solve(f, X, y)
    assert outcome.gap[0] <= 1e-6


def test_a_start_is_where_the_solver_begins():
    X, y = two_classes(2500, 4)
    cold = solve(RBF(gamma=0.5), X, y, 3.0, tol=1e-4)
    warm = solve(RBF(gamma=0.5), X, y, 3.0, tol=1e-4, start=cold.betas)
    assert warm.n_iter[0] <= 10
    np.testing.assert_allclose(warm.objective, cold.objective, rtol=1e-7)


def test_a_box_of_zero_is_a_row_left_out():
    X, y = two_classes(400)
    groups = groups_of(y)
    order = np.concatenate(groups)
    inside = np.arange(400) % 5 != 0
    samples = DualSamples(RBF(gamma=0.5), X, groups)
    one = np.ones((1, 400))
    outcome = samples.solve(PAIR, one, 0 * one, (2.0 * inside)[None], tol=1e-8, fields=True)
    kept = order[inside]
    fewer = solve(RBF(gamma=0.5), X[np.sort(kept)], y[np.sort(kept)], 2.0, tol=1e-8)
    np.testing.assert_allclose(outcome.objective, fewer.objective, rtol=1e-9)
    decision = signed(y) - outcome.field[0] + outcome.bias[0, 0]
    expected = RBF(gamma=0.5)(X[order], X[order]) @ outcome.beta[0] + outcome.bias[0, 0]
    np.testing.assert_allclose(decision, expected, atol=1e-10)


def test_a_range_keeps_its_own_sum_where_sums_are_separate():
    X, y = two_classes(300)
    sizes = [len(g) for g in groups_of(y)]
    start = np.concatenate([np.full(size, s * 30.0 / size) for size, s in zip(sizes, (1, -1), strict=True)])
    job = PAIR.copy()
    job["separate"] = True
    samples = DualSamples(RBF(gamma=0.5), X, groups_of(y))
    one = np.ones((1, 300))
    outcome = samples.solve(job, 0 * one, 0 * one, one, tol=1e-8, start=start)
    beta = outcome.beta[0]
    np.testing.assert_allclose([beta[: sizes[0]].sum(), beta[sizes[0] :].sum()], [30, -30], rtol=1e-12)
    order = np.concatenate(groups_of(y))
    F = -RBF(gamma=0.5)(X[order]) @ beta
    for part, (first, last) in enumerate([(0, sizes[0]), (sizes[0], 300)]):
        f, b = F[first:last], np.abs(beta[first:last])
        sign = 1 if part == 0 else -1
        up, down = (b < 1, b > 0) if sign > 0 else (b > 0, b < 1)
        assert f[up].max() - f[down].min() <= 1e-8 + 1e-12
        free = (b > 0) & (b < 1)
        np.testing.assert_allclose(outcome.bias[0, part], f[free].mean(), atol=1e-10)


def test_values_that_overflow_are_reported():
    X, y = two_classes(40)
    samples = DualSamples(Polynomial(3), X * 1e60, groups_of(y))
    one = np.ones((1, 40))
    samples._X = X * 1e110
    outcome = samples.solve(PAIR, one, 0 * one, one, tol=1e-3)
    assert STATUS[outcome.status[0]] == "not finite"


def test_a_cap_and_its_gap_are_reported():
    X, y = two_classes(300)
    outcome = solve(RBF(gamma=0.5), X, y, 10.0, max_iter=7)
    assert STATUS[outcome.status[0]] == "capped"
    assert outcome.n_iter[0] == 7
    assert outcome.gap[0] > 1e-6


def test_a_hard_margin_without_separation_ends_with_a_bound():
    X = np.array([[0.0], [1.0], [2.0]])
    samples = DualSamples(Linear(), X, [np.array([0, 2]), np.array([1])])
    one = np.ones((1, 3))
    outcome = samples.solve(PAIR, one, 0 * one, np.inf * one, tol=1e-3)
    assert STATUS[outcome.status[0]] == "inseparable"
    assert outcome.bound[0] < 1e-6


def test_ctrl_c_ends_a_long_solve():
    X, y = two_classes(6000, 20, noise=5.0)
    timer = threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT))
    before = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        solve(RBF(gamma=0.05), X, y, 1e6, tol=1e-9, dtype=np.float64)
    assert time.perf_counter() - before < 1.5


def test_memory_goes_with_the_last_name():
    X, y = two_classes(1200)
    samples = DualSamples(RBF(gamma=0.5), X, groups_of(y))
    one = np.ones((1, 1200))
    samples.solve(PAIR, one, 0 * one, one, tol=1e-3)
    gone = weakref.ref(samples)
    gc.disable()
    try:
        del samples
        assert gone() is None
    finally:
        gc.enable()


def test_jobs_are_described_as_c_has_them():
    assert DUAL_JOB.itemsize % 8 == 0


class TestLayouts:
    """Against loops over the words of their descriptions."""

    SIZES, UNIT = [3, 0, 8, 1], 4

    def laid(self):
        rows = np.random.default_rng(0).permutation(40)[: sum(self.SIZES)]
        offsets = np.concatenate([[0], np.cumsum(self.SIZES)])
        return rows, offsets, *dual_layout(rows, offsets, self.UNIT)

    def test_groups_begin_at_multiples_and_are_filled_up_by_their_last(self):
        rows, offsets, starts, places, order = self.laid()
        np.testing.assert_array_equal(starts, [0, 4, 8, 16, 20])
        np.testing.assert_array_equal(order[places], rows)
        for g, size in enumerate(self.SIZES):
            first = starts[g]
            np.testing.assert_array_equal(places[offsets[g] : offsets[g + 1]], first + np.arange(size))
            if size:
                assert (order[first + size : starts[g + 1]] == rows[offsets[g + 1] - 1]).all()

    def test_jobs_and_boxes_are_those_of_their_samples(self):
        _, offsets, starts, places, _ = self.laid()
        jobs = np.concatenate(
            [
                dual_jobs((0, 1), (2, 4), (1.0, -1.0), sets=(1, 1), separate=True),
                dual_jobs((1, 3), epsilon=0.5),
                dual_jobs((2, 3), (2, 3), sets=(0, 1)),
            ]
        )
        table, ends, taken, samples, signs, sets = dual_lay_jobs(jobs, starts, offsets, places)
        np.testing.assert_array_equal(table["separate"], [1, 0, 0])
        np.testing.assert_array_equal(table["epsilon"], [0, 0.5, 0])
        linear, lower, upper = np.random.default_rng(1).normal(size=(3, 2, offsets[-1]))
        out = np.zeros((3, table["length"].sum()))
        dual_place(linear, lower, upper, taken, samples, signs, sets, out)
        at, variable, expected = 0, 0, np.zeros_like(out)
        for job, row, end in zip(jobs, table, ends, strict=True):
            assert row["offset"] == variable
            for r, groups in enumerate(job["groups"]):
                assert row["start"][r] == starts[groups[0]]
                for k in range(offsets[groups[0]], offsets[groups[1]]):
                    v = variable + places[k] - starts[groups[0]]
                    own = job["sets"][r]
                    assert (taken[at], samples[at], signs[at], sets[at]) == (v, k, job["signs"][r], own)
                    box = sorted(job["signs"][r] * part[own, k] for part in (lower, upper))
                    swapped = lower[own, k] > upper[own, k]
                    expected[:, v] = job["signs"][r] * linear[own, k], *(box[::-1] if swapped else box)
                    at += 1
                variable += row["length"][r]
            assert at == end
        np.testing.assert_array_equal(out, expected)

    def test_totals_are_taken_from_the_first_boxes(self):
        upper = np.array([0.5, 0.0, 2.0, 1.0, 0.25])
        found = dual_fill(np.array([1.0, -0.75, 9.0]), np.array([0, 3, 1]), np.array([3, 2, 2]), upper)
        np.testing.assert_array_equal(found, [0.5, 0.0, 0.5, -0.75, 0.0, 0.0, 2.0])


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize(
    "jobs", [PAIR, dual_jobs((0, 2), epsilon=0.1), dual_jobs((0, 2), (0, 2), separate=True)]
)
def test_rows_computed_together_are_those_one_by_one(jobs, n_threads, stored, rng):
    X = rng.normal(size=(700, 150)) * (rng.random((700, 150)) < 0.9)
    y = (X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=700) > 1).astype(int)
    samples = DualSamples(RBF(0.01), stored(X), groups_of(y), n_threads=n_threads)
    one, start = np.ones((1, 700)), None
    if jobs["separate"][0]:
        start = np.concatenate([np.full(700, 0.5), np.full(700, -0.5)])
    box = one * rng.normal(size=700), -one, one
    found = [
        # room for 8 rows only: then there is one at a time
        samples.solve(jobs, *box, tol=1e-6, start=start, cache_bytes=bytes_, dtype=np.float64)
        for bytes_ in (2.0**28, 8 * 8 * 1500)
    ]
    np.testing.assert_array_equal(found[0].betas, found[1].betas)
    assert found[0].n_iter[0] > 100
    assert found[0].n_rows[0] < found[1].n_rows[0]


@pytest.mark.parametrize("kernel", [RBF(0.3), Precomputed()], ids=str)
@pytest.mark.parametrize("off", [0.0, 5e-4])
def test_float32_rows_do_where_exact_values_of_few_variables_prove_the_gap(kernel, off, rng, monkeypatch):
    X = rng.normal(size=(1300, 4))
    y = (X[:, 0] * X[:, 1] + 0.7 * rng.normal(size=1300) > 0).astype(int)
    groups, tol = groups_of(y), 1e-3
    K = RBF(0.3)(X)
    samples = DualSamples(kernel, X if kernel == RBF(0.3) else K, groups)
    # as large as they may be; what they are is added to F, below
    monkeypatch.setattr(DualSamples, "rounding", lambda self: 2e-6)
    outcome_of = DualLayout.outcome

    def disturbed(layout, *args, **options):
        out = outcome_of(layout, *args, **options)
        if layout.dtype == np.float32:
            out.fields[...] += off * np.sin(1e3 * out.fields)
        return out

    monkeypatch.setattr(DualLayout, "outcome", disturbed)
    one = np.ones((1, 1300))
    out = samples.solve(PAIR, one, 0 * one, 20 * one, tol=tol, fields=True)
    assert out.rows == "float32"
    order, sign = np.concatenate(groups), np.repeat([1.0, -1.0], [len(group) for group in groups])
    lower, upper = np.minimum(20 * sign, 0), np.maximum(20 * sign, 0)
    F = sign - K[np.ix_(order, order)] @ out.betas
    gap = F[out.betas < upper].max() - F[out.betas > lower].min()
    np.testing.assert_allclose(out.gap, gap, atol=1e-11)
    assert gap <= tol
    free = (out.betas > lower) & (out.betas < upper)
    np.testing.assert_allclose(out.fields[free], F[free], atol=1e-11)
    # of the others it is that of float32 rows, and what was added
    rounding = np.finfo(np.float32).eps * np.linalg.norm(out.betas)
    np.testing.assert_allclose(out.fields, F, rtol=0, atol=off + 2 * rounding)
    np.testing.assert_allclose(out.bias[0, 0], F[free].mean(), atol=1e-12)
    atol = 0.5 * (off * np.abs(out.betas).sum() + rounding * np.linalg.norm(out.betas))
    np.testing.assert_allclose(out.objective, -0.5 * out.betas @ (F + sign), rtol=0, atol=atol)


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_exact_values_of_few_variables_prove_the_gap_of_a_tube(epsilon, rng, monkeypatch):
    X = rng.normal(size=(1300, 3))
    c, K = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=1300), RBF(0.3)(X)
    samples = DualSamples(RBF(0.3), X, [np.arange(1300)])
    monkeypatch.setattr(DualSamples, "rounding", lambda self: 2e-6)
    box = c[None], np.full((1, 1300), -20.0), np.full((1, 1300), 20.0)
    out = samples.solve(dual_jobs((0, 1), epsilon=epsilon), *box, tol=1e-3, fields=True)
    if epsilon:  # of most variables β is 0; without a tube none is, and all are computed anew
        assert out.rows == "float32"
    beta, F = out.betas, c - K @ out.betas
    up, down = F + np.where(beta < 0, epsilon, -epsilon), F + np.where(beta > 0, -epsilon, epsilon)
    gap = up[beta < 20].max() - down[beta > -20].min()
    np.testing.assert_allclose(out.gap, gap, atol=1e-11)
    assert gap <= 1e-3
    free = (np.abs(beta) < 20) & ((beta != 0) | (epsilon == 0))
    np.testing.assert_allclose(out.bias[0, 0], up[free].mean(), atol=1e-12)
    # F of variables at bounds is that of float32 rows, off by about their rounding times |β|₂
    atol = 0.5 * np.finfo(np.float32).eps * beta @ beta
    expected = epsilon * np.abs(beta).sum() - 0.5 * beta @ (F + c)
    np.testing.assert_allclose(out.objective, expected, rtol=0, atol=atol)


def test_a_gap_that_exact_values_do_not_prove_goes_on_in_float64(rng, monkeypatch):
    X = rng.normal(size=(1300, 4))
    y = (X[:, 0] * X[:, 1] + 0.7 * rng.normal(size=1300) > 0).astype(int)
    samples = DualSamples(RBF(0.3), X, groups_of(y))
    monkeypatch.setattr(DualSamples, "rounding", lambda self: 2e-6)
    exact = DualSamples.product
    monkeypatch.setattr(DualSamples, "product", lambda *args: exact(*args) + 1e-2 * np.arange(len(args[1])))
    one = np.ones((1, 1300))
    out = samples.solve(PAIR, one, 0 * one, 20 * one, tol=1e-3, fields=True)
    assert out.rows == "float32, float64"
    assert out.gap[0] <= 1e-3


def test_entries_are_those_of_the_precision_that_is_asked_for(rng):
    X, y, jobs = many_groups(12, rng)
    ones = np.ones((1, len(y)))
    samples = DualSamples(RBF(0.1), X, groups_of(y), held=True)
    samples.solve(jobs, ones, 0 * ones, ones, tol=1e-3, dtype=np.float32)
    places, K = np.array([3, 0, 7]), RBF(0.1)(X)[np.ix_([3, 0, 7], np.arange(len(y)))]
    before = samples.entries(places, np.float32)
    samples.solve(jobs, ones, 0 * ones, ones, tol=1e-3, dtype=np.float64)
    np.testing.assert_array_equal(samples.entries(places, np.float32), before)
    np.testing.assert_array_equal(before, K.astype(np.float32))
    np.testing.assert_allclose(samples.entries(places, np.float64), K, rtol=4e-16)

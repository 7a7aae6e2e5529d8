"""Problems of the dual that pairwise steps crawl through: Newton steps over faces bring them to their end."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning

from mercer import SVC, SVR, NuSVC, NuSVR
from mercer.kernels import RBF, Linear
from mercer.solvers import dual
from mercer.solvers.dual import DualSamples
from mercer.solvers.dual_layout import STATUS, dual_jobs
from mercer.solvers.faces import Rows, face_steps, newton_on_faces


def noisy_xor(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    return X, (X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(n) > 0).astype(int)


@pytest.mark.parametrize("n", [300, 1100])
def test_a_hard_margin_of_random_labels(n):
    """K + 1e-6 I of low rank: more than ten million pairwise steps."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n, n // 3))
    K, y = A @ A.T / n + 1e-6 * np.eye(n), rng.integers(0, 2, n)
    model = SVC(kernel="precomputed", C=np.inf).fit(K, y)
    assert model.converged_.all()
    assert model.n_iter_[0] < 300 * n
    beta = np.zeros(n)
    beta[model.support_] = model.dual_coef_[0]
    sign = np.where(y == model.classes_[1], 1.0, -1.0)
    margins = sign * (K @ beta + model.intercept_[0])
    assert margins.min() > 1 - 2e-3
    assert abs(beta.sum()) < 1e-11 * np.abs(beta).sum()
    dual_value, primal = (
        np.abs(beta).sum() - 0.5 * beta @ K @ beta,
        0.5 * beta @ K @ beta / margins.min() ** 2,
    )
    assert dual_value <= primal * (1 + 1e-9) <= dual_value * (1 + 5e-3)


@pytest.mark.parametrize("n", [700, 1500])  # rows of float64, and of float32 at first
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, sp.csr_array])
def test_noise_at_a_huge_C(n, dtype, layout):
    X, y = noisy_xor(n)
    X = layout(X.astype(dtype))
    model = SVC(C=1e6, gamma=0.2).fit(X, y)  # eight million pairwise steps of 1500 samples
    assert model.converged_.all()
    assert model.n_iter_[0] < 40 * n
    assert model.duality_gap_[0] < 1e-4 * abs(model.objective_[0])
    total = abs(model.dual_coef_).sum(dtype=np.float64)
    assert abs(model.dual_coef_.sum(dtype=np.float64)) < (1e-11 if dtype == np.float64 else 1e-6) * total
    assert (abs(model.dual_coef_).max() == 1e6) == (n == 1500)


def reached(make, X, y, monkeypatch):
    """The model with Newton steps over faces after a few SMO steps, and the one without."""
    models, calls = [], []

    def counted(*args, **options):
        calls.append(newton_on_faces(*args, **options))
        return calls[-1]

    monkeypatch.setattr(dual, "newton_on_faces", counted)
    monkeypatch.setattr(dual, "face_steps", lambda *_: 1)
    for least, patience in ((200, 1), (200, 10**6)):
        monkeypatch.setattr(dual, "_LEAST_PATIENCE", least)
        monkeypatch.setattr(dual, "_PATIENCE", patience)
        models.append(make().fit(X, y))
        assert bool(calls) == (patience == 1)
        calls.clear()
    own, plain = models
    assert np.all(own.converged_)
    assert np.all(plain.converged_)
    return own, plain


@pytest.mark.parametrize(
    "make",
    [
        lambda: SVC(C=3e4, gamma=0.2),
        lambda: SVC(C=1e3, gamma=0.2, class_weight={0: 1.0, 1: 7.0}, shrinking=False),
        lambda: NuSVC(nu=0.3, gamma=0.05, tol=1e-7),
    ],
)
def test_the_same_classifier_as_by_pairwise_steps(make, monkeypatch):
    X, y = noisy_xor(600)
    own, plain = reached(make, X, y, monkeypatch)
    assert abs(own.objective_ - plain.objective_) <= own.duality_gap_ + plain.duality_gap_ + 1e-9 * abs(
        plain.objective_
    )
    scale = np.abs(plain.decision_function(X)).max()
    np.testing.assert_allclose(own.decision_function(X), plain.decision_function(X), atol=1e-4 * scale)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SVR(C=1e5, gamma=1.0, epsilon=1.0, tol=1e-4),
        lambda: SVR(C=1e5, gamma=1.0, epsilon=0.0, tol=1e-4),
        lambda: NuSVR(C=1e4, gamma=1.0, nu=0.4, tol=1e-3),
    ],
)
def test_the_same_regressor_as_by_pairwise_steps(make, monkeypatch):
    X, y = load_diabetes(return_X_y=True)
    own, plain = reached(make, X, y, monkeypatch)
    assert abs(own.objective_ - plain.objective_) <= own.duality_gap_ + plain.duality_gap_
    np.testing.assert_allclose(own.predict(X), plain.predict(X), atol=2e-5 * np.ptp(y))


def test_nu_machines_on_samples_as_they_come():
    """Ten million pairwise steps do not end either."""
    X, y = load_breast_cancer(return_X_y=True)
    target = X[:, 0] + 0.01 * X[:, 3] + np.where(y, 1.0, -1.0)
    model = NuSVR(kernel="linear", C=10.0, nu=0.3).fit(X[:, 1:], target)
    assert model.converged_
    assert model.n_iter_ < 2_000_000
    # w itself: half of it and the errors are the primal objective
    w = model.dual_coef_[0] @ model.support_vectors_
    residual = np.abs(X[:, 1:] @ w + model.intercept_[0] - target)
    epsilon = np.quantile(residual, 1 - 0.3)
    primal = 0.5 * w @ w + 10.0 * (0.3 * len(y) * epsilon + np.maximum(residual - epsilon, 0).sum())
    assert -model.objective_ <= primal <= -model.objective_ * (1 + 1e-3)


def test_some_problems_of_several_crawl():
    X, y = noisy_xor(600)
    far = np.random.default_rng(1).standard_normal((60, 5)) + 12.0
    X, y = np.concatenate([X, far]), np.concatenate([y, np.full(60, 2)])
    model = SVC(C=1e6, gamma=0.2).fit(X, y)
    assert model.converged_.all()
    alone = SVC(C=1e6, gamma=0.2).fit(X[y < 2], y[y < 2])
    assert model.n_iter_[0] > 4000 > model.n_iter_[1]
    np.testing.assert_allclose(model.objective_[0], alone.objective_[0], rtol=1e-6)


@pytest.mark.parametrize("n", [700, 1500])
def test_any_number_of_threads(n):
    X, y = noisy_xor(n)
    one, two = (SVC(C=1e6, gamma=0.2, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)
    np.testing.assert_array_equal(one.n_iter_, two.n_iter_)


@pytest.mark.parametrize("max_iter", [100, 6000, 9001])
def test_no_more_steps_than_allowed(max_iter):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((900, 300))
    K, y = A @ A.T / 900 + 1e-6 * np.eye(900), rng.integers(0, 2, 900)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = SVC(kernel="precomputed", C=np.inf, max_iter=max_iter).fit(K, y)
    assert model.n_iter_[0] == max_iter


def test_an_interrupt_between_rounds_leaves_the_estimator(monkeypatch):
    X, y = noisy_xor(400)
    model = SVC(C=1.0, gamma=0.2).fit(X, y)
    before = model.dual_coef_.copy()

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(dual, "newton_on_faces", stop)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(C=1e6).fit(X, y)
    np.testing.assert_array_equal(model.dual_coef_, before)


def test_a_kernel_that_is_not_positive_semidefinite_goes_on_by_pairwise_steps(monkeypatch):
    monkeypatch.setattr(dual, "_LEAST_PATIENCE", 10)
    monkeypatch.setattr(dual, "_PATIENCE", 1)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    y = (X[:, 0] + 0.5 * rng.standard_normal(80) > 0).astype(int)
    K = np.tanh(X @ X.T - 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = SVC(kernel="precomputed", C=10.0).fit(K, y)
    assert model.converged_.all()
    beta = np.zeros(80)
    beta[model.support_] = model.dual_coef_[0]
    rate = np.where(y == 1, 1.0, -1.0) - K @ beta
    upper, lower = np.where(y == 1, 10.0, 0.0), np.where(y == 1, 0.0, -10.0)
    assert rate[beta < upper].max() - rate[beta > lower].min() <= 1.001e-3


def test_classes_that_are_not_separable_are_told_so():
    X, y = noisy_xor(200)
    X, y = np.concatenate([X, X[:1]]), np.concatenate([y, 1 - y[:1]])
    with pytest.raises(ValueError, match="not separable"):
        SVC(kernel="poly", degree=3, gamma=1.0, C=np.inf).fit(X, y)


@pytest.mark.parametrize("kernel", [RBF(0.3), 2.0 * RBF(0.3) + Linear()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_are_computed_are_those_that_are_held(kernel, dtype, rng):
    X = rng.standard_normal((90, 4)).astype(dtype)
    groups = [np.arange(0, 90, 2), np.arange(1, 90, 2)]
    samples = DualSamples(kernel, X, groups)
    problems = samples.problems(dual_jobs((0, 1), (1, 2)), np.float64)
    computed = samples._layout(np.dtype(np.float64)).rows(problems.ranges(0))
    matrix, _ = samples.hold(np.float64)
    held = Rows(matrix, problems.ranges(0))
    A, change = rng.permutation(problems.taken)[:30], rng.standard_normal(30)
    np.testing.assert_allclose(computed.square(A), held.square(A), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(computed.product(A, change), held.product(A, change), atol=1e-10)


def test_what_two_variables_of_a_sample_have_in_common_is_gathered(rng):
    for n in (1, 2, 30):
        upper = np.concatenate([rng.choice([0.0, 0.5, 2.0], n), np.zeros(n)])
        first, second = upper[:n] * rng.uniform(size=n), -upper[:n] * rng.uniform(size=n)
        beta = np.concatenate([first, second])
        dual._gather(beta, upper)
        up, down = beta.reshape(2, -1)
        np.testing.assert_allclose(up + down, first + second, atol=1e-15)
        np.testing.assert_allclose([up.sum(), down.sum()], [first.sum(), second.sum()], atol=1e-13)
        assert (up >= 0).all()
        assert (down <= 0).all()
        assert (np.maximum(up, -down) <= upper[:n] * (1 + 1e-15)).all()
        both_free = (up > 0) & (down < 0) & (np.maximum(up, -down) < upper[:n] * (1 - 1e-12))
        assert both_free.sum() <= 1


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("rank", [2, 40])
def test_faces_with_kinks_and_sums_against_their_conditions(rank, epsilon, separate, rng):
    n, C, tol = 60, 5.0, 1e-9
    A = rng.standard_normal((n, rank))
    K, c = A @ A.T, 3 * rng.standard_normal(n)
    parts = [slice(0, 25), slice(25, n)] if separate else [slice(0, n)]
    beta = np.zeros(n)
    for part in parts:  # somewhere inside, of a sum that is not 0
        beta[part] = rng.uniform(-1, 1.5, size=part.stop - part.start)
    sums = [beta[part].sum() for part in parts]
    F, lower, upper = c - K @ beta, np.full(n, -C), np.full(n, C)
    assert newton_on_faces(
        Rows(K, [slice(0, n)]), F, beta, lower, upper, tol, rounds=300, sums=parts, epsilon=epsilon
    )
    np.testing.assert_allclose(F, c - K @ beta, atol=1e-9)
    np.testing.assert_allclose([beta[part].sum() for part in parts], sums, atol=1e-12)
    assert (np.abs(beta) <= C).all()
    rate = c - K @ beta
    up, down = rate + np.where(beta < 0, epsilon, -epsilon), rate + np.where(beta > 0, -epsilon, epsilon)
    for part in parts:
        assert up[part][beta[part] < C].max() - down[part][beta[part] > -C].min() <= 2 * tol
    if epsilon and rank < n:
        assert np.count_nonzero(beta == 0) > 0


def test_status_is_that_of_the_last_steps():
    X, y = noisy_xor(300)
    groups = [np.flatnonzero(y == 0), np.flatnonzero(y == 1)]
    samples = DualSamples(RBF(0.2), X, groups)
    ones = np.ones((1, len(y)))
    out = samples.solve(
        dual_jobs((0, 1), (1, 2), (1.0, -1.0)), ones, 0 * ones, 1e6 * ones, tol=1e-3, fields=True
    )
    assert STATUS[out.status[0]] == "converged"
    assert out.n_iter[0] > 4000
    sign = np.repeat([1.0, -1.0], [len(group) for group in groups])
    K = RBF(0.2)(X[np.concatenate(groups)])
    np.testing.assert_allclose(out.field[0], sign - K @ out.beta[0], atol=1e-9 * np.abs(out.beta[0]).sum())


def test_what_faces_may_cost_does_not_grow_where_they_do_not_help(monkeypatch):
    X, y = noisy_xor(700)
    worth = []

    def in_vain(*_, **options):
        worth.append(options["worth"])
        return False

    monkeypatch.setattr(dual, "newton_on_faces", in_vain)
    SVC(C=1e6, gamma=0.2).fit(X, y)
    assert len(worth) > 2
    assert set(worth) == {worth[0]}


def test_rounds_end_where_nothing_is_gained_and_where_they_cost_too_much(rng):
    A = rng.standard_normal((150, 5))
    K, y = A @ A.T + 1e-3 * np.eye(150), np.where(A[:, 0] * A[:, 1] > 0, 1.0, -1.0)
    lower, upper = np.where(y > 0, 0.0, -1e6), np.where(y > 0, 1e6, 0.0)

    def rounds_of(tol, **options):
        count, beta = [], np.zeros(150)
        newton_on_faces(
            Rows(K, [slice(0, 150)]),
            y - K @ beta,
            beta,
            lower,
            upper,
            tol,
            rounds=500,
            check=lambda: count.append(1),
            **options,
        )
        return len(count)

    enough = rounds_of(1e-6)
    assert enough < 100
    assert enough < rounds_of(1e-30) < enough + 20  # a gap that rounding does not let it reach
    assert rounds_of(1e-6, worth=face_steps(40, 150)) < enough


def test_numbers_near_the_range():
    X = np.random.default_rng(0).standard_normal((8, 8))
    K, y = 1e304 * (X @ X.T) / 30, 1e-6 * np.where(np.arange(8) % 2, 1.0, -1.0)
    beta, wide = np.zeros(8), np.full(8, 1e3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        newton_on_faces(Rows(K, [slice(0, 8)]), y.copy(), beta, -wide, wide, 1e-9)
    assert np.isfinite(beta).all()

"""Steps of the dual solver that leave earlier ones at their minima: few where pairwise ones crawl."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from mercer import SVC, SVR
from mercer.kernels import RBF, Linear
from mercer.solvers.dual import DualSamples
from mercer.solvers.dual_layout import STATUS, dual_jobs


def primal_of(X, sign, w, b, C):
    """½ wᵀw + C Σ ξ, by its definition."""
    return 0.5 * w @ w + C * np.maximum(1 - sign * (X @ w + b), 0).sum()


# Plain pairwise steps take 2.6 million and more than ten million.
@pytest.mark.parametrize(("C", "most"), [(1.0, 60_000), (100.0, 1_500_000)])
def test_a_linear_kernel_on_samples_as_they_come(C, most):
    X, y = load_breast_cancer(return_X_y=True)
    model = SVC(kernel="linear", C=C).fit(X, y)
    assert model.converged_.all()
    assert model.n_iter_[0] < most
    alpha = np.abs(model.dual_coef_[0])
    assert alpha.max() == C
    assert abs(model.dual_coef_.sum()) < 1e-11 * alpha.sum()
    w = model.dual_coef_[0] @ model.support_vectors_
    dual = alpha.sum() - 0.5 * w @ w
    primal = primal_of(X, np.where(y == model.classes_[1], 1, -1), w, model.intercept_[0], C)
    assert dual <= primal <= dual * (1 + 1e-3)


def test_several_classes_as_they_come():
    X, y = load_wine(return_X_y=True)
    model = SVC(kernel="linear", C=100.0).fit(X, y)  # 1.2 million pairwise steps
    assert model.converged_.all()
    assert model.n_iter_.sum() < 20_000


@pytest.mark.parametrize(("kernel", "C"), [("linear", 1e4), ("rbf", 1e5)])
def test_kinks_are_met_and_left(kernel, C):
    X, y = load_diabetes(return_X_y=True)
    epsilon = 1.0
    model = SVR(kernel=kernel, C=C, gamma=1.0, epsilon=epsilon, tol=1e-4).fit(X, y)
    assert model.converged_
    beta = np.zeros(len(y))
    beta[model.support_] = model.dual_coef_[0]
    K = (Linear() if kernel == "linear" else RBF(1.0))(X)
    dual = y @ beta - epsilon * np.abs(beta).sum() - 0.5 * beta @ K @ beta
    residuals = np.abs(K @ beta + model.intercept_[0] - y)
    primal = 0.5 * beta @ K @ beta + C * np.maximum(residuals - epsilon, 0).sum()
    assert abs(beta.sum()) < 1e-11 * np.abs(beta).sum()
    assert dual <= primal <= dual * (1 + 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shrinking", [False, True])
def test_ten_thousands_of_steps_and_the_gap_is_what_it_says(dtype, shrinking):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 5))
    sign = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=len(X)) > 0, 1.0, -1.0)
    order = np.argsort(-sign, kind="stable")
    X, sign, C = X[order], sign[order], 300.0
    parts = [np.flatnonzero(sign > 0), np.flatnonzero(sign < 0)]
    samples = DualSamples(RBF(0.2), X, parts, n_threads=1)
    one = np.ones((1, len(X)))
    job = dual_jobs((0, 1), (1, 2), (1.0, -1.0))
    outcome = samples.solve(job, one, 0 * one, C * one, tol=1e-3, dtype=dtype, shrinking=shrinking)
    assert outcome.status[0] == STATUS.index("converged")
    assert 10_000 < outcome.n_iter[0] < 60_000
    beta = outcome.beta[0]
    F = sign - RBF(0.2)(X) @ beta
    lower, upper = np.minimum(C * sign, 0), np.maximum(C * sign, 0)
    assert np.all((lower <= beta) & (beta <= upper))
    gap = F[beta < upper].max() - F[beta > lower].min()
    assert gap <= 1e-3 + np.finfo(dtype).eps * np.linalg.norm(beta)  # what rounding of the rows does to F


@pytest.mark.parametrize("seed", [34, 39, 101, 105, 175])
def test_a_variable_that_rounding_brings_to_its_bound_is_there(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, size=(1200, 2)).astype(float)  # of 49 kinds, in a space of three dimensions
    y = X @ [1, 0.5] + rng.normal(size=len(X)) > 0
    model = SVC(kernel="poly", degree=2, C=300.0, tol=1e-2, max_iter=300_000).fit(X, y)
    assert model.converged_.all()  # not stalled with a variable beyond its bound


def test_any_number_of_threads_gives_the_same_bits():
    rng = np.random.default_rng(0)
    X = 100 * rng.normal(size=(7000, 4))
    y = X[:, 0] + 50 * rng.normal(size=len(X)) > 0
    parts = [np.flatnonzero(~y), np.flatnonzero(y)]
    one, job = np.ones((1, len(X))), dual_jobs((0, 1), (1, 2), (1.0, -1.0))
    found = []
    for n_threads in (1, 2, 3):
        samples = DualSamples(Linear(), X, parts, n_threads=n_threads)
        options = {"tol": 1e-3, "max_iter": 12_000, "shrinking": False, "fields": True}
        outcome = samples.solve(job, one, 0 * one, one, **options)
        assert outcome.n_iter[0] == 12_000  # directions begin after 7000
        found.append((outcome.betas, outcome.fields))
    for betas, fields in found[1:]:
        np.testing.assert_array_equal(betas, found[0][0])
        np.testing.assert_array_equal(fields, found[0][1])


def test_denormal_numbers_are_as_before_after_a_fit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    parts = [np.flatnonzero(X[:, 0] < 0), np.flatnonzero(X[:, 0] >= 0)]
    one, job = np.ones((1, len(X))), dual_jobs((0, 1), (1, 2), (1.0, -1.0))
    outcome = DualSamples(RBF(1.0), X, parts, n_threads=1).solve(job, one, 0 * one, one, tol=1e-3)
    assert outcome.rows == "float32"  # whose passes take them for 0
    assert np.float32(1e-38) * np.float32(0.1) > 0

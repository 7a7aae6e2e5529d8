"""Equal rows that were solved as one: what each of them gets of the coefficients."""

import numpy as np
import pytest

from mercer import SVC
from mercer.estimators._canonical import canonical_rows

EPS = np.finfo(np.float64).eps


@pytest.mark.parametrize("spread", [1.0, 3.0, 8.0])
def test_equal_rows_fill_up_one_after_another(spread, rng):
    """Weights of many sizes, and groups of many sizes before: each group's sum is what it was."""
    X = np.round(2 * rng.normal(size=(300, 1)))
    weights = 10 ** rng.uniform(-spread, spread, size=300)
    rows = canonical_rows(X, None, 1, weights)
    bound, m = 3.0 * rows.weights, len(rows.rows)
    signs = rng.choice([-1.0, 1.0], size=(2, m))
    part = np.stack([np.ones(m), rng.choice([0.0, 0.4, 1.0], size=m)])  # of the bound
    index, values, own, _ = rows.spread(signs * part * bound, bound)
    np.testing.assert_allclose(own, 3 * weights[index], rtol=4 * EPS)
    np.testing.assert_array_equal(np.abs(values[0]), own)
    whole = np.zeros((2, 300))
    whole[:, index] = values
    for row, first in enumerate(rows.rows):
        group = np.flatnonzero(X[:, 0] == X[first, 0])
        given = np.sum(whole[:, group], axis=1)
        # Sums of up to 100 numbers, each right to a few ulps of the whole.
        np.testing.assert_allclose(given, (signs * part * bound)[:, row], atol=32 * EPS * bound[row])
        size = np.abs(whole[1, group])
        open_ = np.flatnonzero((size > 0) & (size < 3 * weights[group] * (1 - 1e-12)))
        assert len(open_) <= 1
        assert not open_.size or not size[open_[0] + 1 :].any()


def test_infinite_bounds_leave_all_to_the_first():
    rows = canonical_rows(np.zeros((3, 1)), None, 1, None)
    index, values, own, _ = rows.spread(np.array([[-2.0]]), np.array([np.inf]))
    assert (index.tolist(), values.tolist(), own.tolist()) == ([0], [[-2.0]], [np.inf])


def test_support_vectors_at_their_bounds_are_not_on_the_margin():
    """Equal rows with weights of six decades."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = np.round(rng.normal(size=(40, 1)))
        y = np.where(X[:, 0] + rng.normal(size=40) > 0, 1, 0)
        weights = 10 ** rng.uniform(-3, 3, size=40)
        model = SVC(kernel="linear").fit(X, y, sample_weight=weights)
        size, bound = np.abs(model.dual_coef_[0]), weights[model.support_]
        assert np.all(size[model.on_margin_] < bound[model.on_margin_] * (1 - 1e-9))


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0, 1.0], [0.5, 2.0, 1.0, 3.0]], ids=["alike", "weighted"])
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_equal_rows_of_one_problem_for_all_classes_are_feasible_each(C, weights):
    """By class coefficients sum to 0, up to C in the own class, and are ≤ 0 in the others."""
    X, y = np.array([[0.0], [0.0], [1.0], [2.0]]), np.array([0, 0, 1, 2])
    model = SVC(kernel="linear", multiclass="crammer-singer", C=C, tol=1e-8, warm_start=True)
    beta = model.fit(X, y, sample_weight=weights).dual_coef_
    np.testing.assert_allclose(beta.sum(axis=0), 0, atol=4 * EPS * np.abs(beta).max())
    own = y[model.support_] == np.arange(3)[:, None]
    assert np.all(beta[~own] <= 0)
    assert np.all(beta[own] <= (1 + 4 * EPS) * C * np.array(weights)[model.support_])
    assert model.fit(X, y, sample_weight=weights).n_iter_[0] == 0

"""Labels from rounded decisions: a certain one is the exact one, whatever the rounding was."""

import numpy as np
import pytest

from mercer import SVC
from mercer.estimators._certain import certain_argmax, certain_votes
from mercer.estimators._one_against_one import decisions_by_class, pair_decisions, votes


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("break_ties", [True, False])
def test_certain_votes_are_the_exact_winners(k, break_ties):
    rng = np.random.default_rng(k)
    p = k * (k - 1) // 2
    exact = rng.normal(size=(4000, p))
    bounds = rng.uniform(0.01, 0.2, size=p)
    rounded = exact + bounds * rng.uniform(-1, 1, size=exact.shape)
    best, certain = certain_votes(rounded, bounds, k)
    won = decisions_by_class(exact, k) if break_ties else votes(exact, k)
    np.testing.assert_array_equal(best[certain], np.argmax(won, axis=1)[certain])
    assert 0.1 < certain.mean() < 1


def test_certain_argmax_is_the_exact_one():
    rng = np.random.default_rng(0)
    exact = rng.normal(size=(5000, 4))
    bounds = np.array([0.1, 0.0, 0.2, 0.05])
    rounded = exact + bounds * rng.uniform(-1, 1, size=exact.shape)
    best, certain = certain_argmax(rounded, bounds)
    np.testing.assert_array_equal(best[certain], np.argmax(exact, axis=1)[certain])
    assert 0.5 < certain.mean() < 1


def test_without_errors_all_but_ties_are_certain():
    values = np.array([[1.0, 2.0, -3.0], [-1.0, -1.0, 2.0], [0.5, -0.5, 0.1]])
    best, certain = certain_votes(values, np.zeros(3), 3)
    assert best.tolist() == [0, 1, 0]
    assert certain.tolist() == [True, True, False]


@pytest.mark.parametrize("k", [2, 3, 10])
def test_decisions_about_few_rows_are_those_about_many(k):
    rng = np.random.default_rng(k)
    products, intercept = rng.normal(size=(k, 9000, k - 1)), rng.normal(size=k * (k - 1) // 2)
    products[:, ::7] = 0.0
    intercept[0] = 0.0  # and so there are decisions of 0
    many = pair_decisions(products, intercept)
    by_class = decisions_by_class(many, k)
    for few in (slice(0, 1), slice(5, 12), slice(100, 107)):
        some = pair_decisions(products[:, few], intercept)
        np.testing.assert_array_equal(some, many[few])
        for to_first in (False, True):
            won = votes(many, k, tie_to_first=to_first)
            np.testing.assert_array_equal(votes(some, k, tie_to_first=to_first), won[few])
        # Sums of k - 1 numbers up to about 10, in another order, over 3.
        atol = 10 * k * np.finfo(np.float64).eps
        np.testing.assert_allclose(decisions_by_class(some, k), by_class[few], rtol=0, atol=atol)


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_in_either_precision_are_the_sums(k, dtype):
    rng = np.random.default_rng(k)
    X = (rng.normal(size=(300, 6)) + 40.0).astype(dtype)  # far from the origin: centring counts
    model = SVC(gamma=0.1, C=3.0).fit(X, np.arange(300) % k)
    Z = (rng.normal(size=(900, 6)) + 40.0).astype(dtype)
    K = model.kernel_(Z.astype(float), model.support_vectors_.astype(float))
    ends = np.cumsum(model._segments())
    expected = [
        K[:, end - count : end] @ model._dual_coef_[:, end - count : end].T
        for end, count in zip(ends, model._segments(), strict=True)
    ]
    size = np.abs(model.dual_coef_).sum()
    np.testing.assert_allclose(model._products(Z), expected, atol=2 * np.finfo(dtype).eps * size)
    products, error = model._rounded_products(Z)
    np.testing.assert_allclose(products, expected, atol=error * size)
    assert error < 1e-4
    np.testing.assert_array_equal(model._labels(Z), model._exact_labels(Z))

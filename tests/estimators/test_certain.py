"""Labels from rounded decisions: a certain one is the exact one, whatever the rounding was."""

import numpy as np
import pytest

from mercer import SVC
from mercer.estimators._certain import certain_argmax, certain_votes
from mercer.estimators._expansion import Expansion
from mercer.estimators._one_against_one import decisions_by_class, pair_decisions, votes
from mercer.estimators._svc import _SAFETY
from mercer.kernels import RBF, Linear, Polynomial


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
    products, by_row, errors = model._rounded_products(Z)
    near = np.isfinite(by_row)
    assert near.mean() > 0.99
    assert np.all((np.abs(products - expected) < _SAFETY * by_row[:, None] * errors)[:, near])
    assert errors.max() < 1e-5 * size
    np.testing.assert_array_equal(model._labels(Z), model._exact_labels(Z))


def test_a_row_far_from_all_others_has_the_label_of_its_decision():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    model = SVC(kernel="linear").fit(X, np.where(X[:, 0] + 0.5 * rng.normal(size=400) > 0, 1, -1))
    w, b = model.coef_[0], model.intercept_[0]
    Z = rng.normal(size=(2000, 2))
    along = 1e5 * np.array([-w[1], w[0]]) / np.hypot(*w) - b * w / (w @ w)
    for step in np.linspace(-2e-3, 2e-3, 8):
        Z[1] = along + step * w
        assert model.predict(Z)[1] == np.sign(model.decision_function(Z)[1]) == model.predict(Z[1:2])[0]


@pytest.mark.parametrize(
    ("kernel", "rows", "terms"),
    [
        (Linear(), 1e5, 1.0),
        (Polynomial(3), 1e3, 1.0),
        (Linear(), 1.0, 1e5),
        (RBF(gamma=0.1) + 1e-3 * Linear().on([1]), 1e5, 1.0),
        (RBF(gamma=0.1), 1e-2, 1.0),
    ],
    ids=["far row", "far row, cubic", "far term", "far in one leaf", "only row that is near"],
)
def test_the_error_of_rounded_sums_holds_for_rows_and_terms_unlike_others(kernel, rows, terms):
    """Those that are looked at are at equal steps: the second one is not."""
    rng = np.random.default_rng(1)
    X, Z = rng.normal(size=(2000, 3)), rng.normal(size=(300, 3))
    X *= 100.0 if rows < 1 else 1.0
    X[1] *= rows
    Z[1] *= terms
    coefficients = rng.uniform(0, 1, size=(1, 300))
    expansion = Expansion(kernel, Z, [300])
    sums, by_row, errors = expansion.single(X, coefficients)
    assert np.all(np.abs(sums - expansion(X, coefficients))[0, :, 0] < _SAFETY * by_row * errors.item())
    assert np.isinf(by_row).mean() < 0.01
    assert np.median(by_row) <= 5 * by_row[2]


@pytest.mark.parametrize("multiclass", ["ovo", "ovr", "crammer-singer"])
def test_a_class_without_weight_and_far_rows_leave_the_labels(multiclass):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(600, 2)), np.arange(600) % 4
    X[:, 0] += y
    model = SVC(multiclass=multiclass, kernel="poly", degree=2).fit(
        X, y, sample_weight=np.where(y == 2, 0.0, 1)
    )
    Z = 2 * rng.normal(size=(3000, 2))
    Z[1] = 1e4
    np.testing.assert_array_equal(model._labels(Z), model._exact_labels(Z))

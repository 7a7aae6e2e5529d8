"""Labels from rounded decisions: a certain one is the exact one, whatever the rounding was."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.svm import SVC as LibSVC

from mercer import SVC, SVR
from mercer.estimators._certain import certain_argmax, certain_votes
from mercer.estimators._expansion import Expansion
from mercer.estimators._one_against_one import votes_and_sums
from mercer.estimators._svc import _SAFETY
from mercer.kernels import RBF, Linear, Polynomial, Precomputed


def of_pairs(first, second, k):
    """Sums by class over its pairs: of `first` (m, p) where it is the pair's first, else of `second`."""
    out = np.zeros((len(first), k))
    for p, (a, b) in enumerate(combinations(range(k), 2)):
        out[:, a] += first[:, p]
        out[:, b] += second[:, p]
    return out


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("break_ties", [True, False])
def test_certain_votes_are_the_exact_winners(k, break_ties):
    rng = np.random.default_rng(k)
    p = k * (k - 1) // 2
    exact = rng.normal(size=(4000, p))
    bounds = rng.uniform(0.01, 0.2, size=p)
    rounded = exact + bounds * rng.uniform(-1, 1, size=exact.shape)
    open_ = np.abs(rounded) <= bounds
    best, certain = certain_votes(of_pairs(rounded > 0, rounded <= 0, k), of_pairs(open_, open_, k))
    won = of_pairs(exact > 0, exact <= 0, k)
    if break_ties:
        won = votes_and_sums(won, of_pairs(exact, -exact, k))
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


def test_without_open_pairs_all_but_ties_are_certain():
    best, certain = certain_votes(np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 1.0]]), np.zeros((2, 3)))
    assert best.tolist() == [0, 0]
    assert certain.tolist() == [True, False]


def pair_problem(k, m, rng, largest=9):
    """New rows, terms and coefficients, and the plain decisions; some are 0."""
    counts = rng.integers(0, largest, k)
    counts[rng.integers(k)] = 70  # more than are summed at a time
    X, Z = rng.normal(size=(m, 3)), rng.normal(size=(counts.sum(), 3))
    starts = np.concatenate([[0], counts.cumsum()])
    V, intercept = rng.normal(size=(k - 1, len(Z))), rng.normal(size=k * (k - 1) // 2)
    intercept[0] = V[0, starts[0] : starts[1]] = V[0, starts[1] : starts[2]] = 0.0
    K = RBF(gamma=0.3)(X, Z)
    decisions = np.empty((m, len(intercept)))
    for p, (a, b) in enumerate(combinations(range(k), 2)):
        own, other = slice(*starts[a : a + 2]), slice(*starts[b : b + 2])
        decisions[:, p] = K[:, own] @ V[b - 1, own] + K[:, other] @ V[a, other] + intercept[p]
    return X, Z, (starts, V, intercept), decisions


@pytest.mark.parametrize(("k", "m"), [(3, 1), (4, 31), (5, 33), (7, 400), (8, 64), (30, 65)])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_decisions_and_votes_of_pairs_are_the_plain_sums(k, m, n_threads, rng):
    X, Z, pairs, expected = pair_problem(k, m, rng)
    terms = Expansion(RBF(gamma=0.3), Z)
    decisions = terms.pair_decisions(X, pairs, n_threads)
    # up to 80 terms of size up to about 4
    np.testing.assert_allclose(decisions, expected, rtol=0, atol=200 * np.finfo(float).eps)
    assert (decisions[:, 0] == 0).all()
    for to_first in (False, True):
        votes, sums = terms.pair_votes(X, pairs, n_threads, tie_to_first=to_first)
        first = decisions >= 0 if to_first else decisions > 0
        np.testing.assert_array_equal(votes, of_pairs(first, ~first, k))
        atol = 200 * k * np.finfo(float).eps
        np.testing.assert_allclose(sums, of_pairs(expected, -expected, k), rtol=0, atol=atol)
    votes, open_ = terms.single_votes(X, pairs, _SAFETY, n_threads)
    assert (open_[:, :2] >= 1).all()  # the pair whose decisions are 0
    assert (open_ <= k - 1).all()
    assert (np.abs(votes - of_pairs(expected > 0, expected <= 0, k)) <= open_).all()
    assert open_.sum() <= 2 * m * (1 + 0.01 * len(pairs[2]))


def test_decisions_about_few_rows_are_those_about_many(rng):
    X, Z, pairs, _ = pair_problem(6, 500, rng)
    terms = Expansion(RBF(gamma=0.3), Z)
    decisions, votes = terms.pair_decisions(X, pairs), terms.pair_votes(X, pairs)
    for few in (slice(0, 1), slice(5, 12), slice(101, 433)):
        np.testing.assert_array_equal(terms.pair_decisions(X[few], pairs), decisions[few])
        for part, whole in zip(terms.pair_votes(X[few], pairs), votes, strict=True):
            np.testing.assert_array_equal(part, whole[few])


@pytest.mark.parametrize("shift", [1e-30, 1e30])
def test_pairs_near_the_ends_of_float32s_range_are_open_or_right(shift, rng):
    X, Z, (starts, V, intercept), decisions = pair_problem(5, 200, rng)
    terms = Expansion(RBF(gamma=0.3), Z)
    for scale in (shift, shift**1.3):
        counted = terms.single_votes(X, (starts, scale * V, scale * intercept), _SAFETY)
        if counted is not None:
            votes, open_ = counted
            assert (np.abs(votes - of_pairs(decisions > 0, decisions <= 0, 5)) <= open_).all()


@pytest.mark.parametrize(("kernel", "times"), [(Precomputed(), 1.0), (2.0 * Precomputed(), 0.5)])
def test_pairs_of_a_matrix_that_is_given(kernel, times, rng):
    X, Z, pairs, expected = pair_problem(5, 90, rng)
    K = times * RBF(gamma=0.3)(X, Z)
    terms = Expansion(kernel, np.broadcast_to(np.zeros(1), (len(Z), len(Z))))
    np.testing.assert_allclose(terms.pair_decisions(K, pairs), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_in_either_precision_are_the_plain_ones(k, dtype):
    rng = np.random.default_rng(k)
    X = (rng.normal(size=(300, 6)) + 40.0).astype(dtype)  # far from the origin: centring counts
    model = SVC(gamma=0.1, C=3.0).fit(X, np.arange(300) % k)
    Z = (rng.normal(size=(900, 6)) + 40.0).astype(dtype)
    expected = model.kernel_(Z.astype(float), model.support_vectors_.astype(float)) @ model._dual_coef_.T
    terms, size = model._terms(), np.abs(model.dual_coef_).sum()
    sums = terms(Z, model._dual_coef_)
    np.testing.assert_allclose(sums, expected, atol=2 * np.finfo(dtype).eps * size)
    rounded, by_row, errors = terms.single(Z, model._dual_coef_)
    near = np.isfinite(by_row)
    assert near.mean() > 0.99
    assert np.all((np.abs(rounded - expected) < _SAFETY * by_row[:, None] * errors)[near])
    assert errors.max() < 1e-5 * size
    np.testing.assert_array_equal(model._labels(Z), model._exact_labels(Z))


@pytest.mark.parametrize("n", [120, 1300])
def test_hundreds_of_classes_of_few_rows_are_those_of_scikit_learn(n):
    rng = np.random.default_rng(n)
    centres = 1.5 * rng.normal(size=(n // 3, 8))
    y = np.arange(n) % len(centres)
    X = centres[y] + rng.normal(size=(n, 8))
    ours, theirs = (each(C=10.0, gamma=0.05, tol=1e-6).fit(X, y) for each in (SVC, LibSVC))
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    # a float32 row's rounding, times |β|₁ of up to 10
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    Z = X + 0.3 * rng.normal(size=X.shape)
    for model in (ours, theirs):
        model.decision_function_shape = "ovo"
    np.testing.assert_allclose(ours.decision_function(Z[:50]), theirs.decision_function(Z[:50]), atol=1e-4)
    # a decision of rounding may be either's
    assert (ours.predict(Z) == theirs.predict(Z)).mean() > 0.99


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
    expansion = Expansion(kernel, Z)
    sums, by_row, errors = expansion.single(X, coefficients)
    assert np.all(np.abs(sums - expansion(X, coefficients))[:, 0] < _SAFETY * by_row * errors.item())
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


@pytest.mark.parametrize(
    "model", [SVC(), SVC(multiclass="ovr"), SVC(multiclass="crammer-singer"), SVR()], ids=str
)
@pytest.mark.parametrize("much", [slice(0, 1), slice(None, -1)])
def test_other_support_vectors_than_there_are_coefficients_are_refused(model, much, rng):
    X, y = rng.normal(size=(300, 3)), np.arange(300) % 4
    model.fit(X, y)
    model.support_vectors_ = model.support_vectors_[much]
    for rows in (X[:2], np.tile(X, (5, 1))):
        with pytest.raises(ValueError, match="was altered"):
            model.predict(rows)


def test_native_sums_refuse_what_does_not_go_together(rng):
    X, Z, (starts, V, intercept), _ = pair_problem(4, 10, rng)
    terms = Expansion(RBF(gamma=0.3), Z)
    for pairs in ((starts, V[:-1], intercept), (starts, V[:, :-1], intercept), (starts, V, intercept[:-1])):
        with pytest.raises(ValueError, match="do not go with"):
            terms.pair_decisions(X, pairs)
        with pytest.raises(ValueError, match="do not go with"):
            terms.pair_votes(X, pairs)
    with pytest.raises(ValueError, match="were described"):
        Expansion(RBF(gamma=0.3), Z[1:]).pair_decisions(X, (starts, V, intercept))
    with pytest.raises(ValueError, match="V has 3 rows"):
        terms(X, V[:, :3])

"""Sigmoids of decisions: the likeliest ones, by another minimiser, and where decisions hardly differ."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from mercer import SVC, NuSVC
from mercer.estimators._canonical import CanonicalRows
from mercer.solvers.platt import fit_sigmoids, sigmoid


def fit_sigmoid(decisions, positive, weights):
    """A and B of a single one."""
    A, B = fit_sigmoids(decisions, positive, weights, np.array([len(decisions)]))
    return A[0], B[0]


def numbers(positive, weights):
    """Of positive and other labels; the largest weight is a sample's, if it is below 1."""
    weights = weights / min(1.0, weights.max())
    return weights[positive].sum(), weights[~positive].sum()


def cost(parameters, decisions, positive, weights):
    """Minus the likelihood's logarithm, over the sum of weights."""
    n_pos, n_neg = numbers(positive, weights)
    t = np.where(positive, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))
    z = parameters[0] * decisions + parameters[1]
    return np.sum(weights * (t * z + np.logaddexp(0, -z))) / weights.sum()


@pytest.mark.parametrize("weight", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_no_other_sigmoid_is_likelier(weight, shift, rng):
    decisions = rng.normal(size=200)
    positive = decisions + rng.normal(size=200) > 0
    decisions += shift
    weights = weight * rng.uniform(0.5, 2, size=200)
    found = cost(fit_sigmoid(decisions, positive, weights), decisions, positive, weights)
    rest = decisions - shift, positive, weights
    assert found <= minimize(cost, [-1.0, 0.0], args=rest, tol=1e-12).fun + 1e-12


@pytest.mark.parametrize("weight", [1e-9, 1.0, 1e4, 1e12])
@pytest.mark.parametrize("apart", [0.0, 1e-15, 1e-9])
@pytest.mark.parametrize("scale", [1.0, 1e-8])
def test_decisions_that_hardly_differ_have_the_share_of_the_positive(weight, apart, scale):
    """Newton's equations are singular there."""
    decisions, positive = -np.ones(30), np.arange(30) < 7
    decisions[-1] -= apart
    decisions *= scale
    weights = np.where(np.arange(30) < 20, weight, 1e-3 * weight)
    A, B = fit_sigmoid(decisions, positive, weights)
    n_pos, n_neg = numbers(positive, weights)
    share = (n_pos * (n_pos + 1) / (n_pos + 2) + n_neg / (n_neg + 2)) / (n_pos + n_neg)
    np.testing.assert_allclose(sigmoid(decisions, A, B), share, atol=1e-6)
    assert abs(A) * scale < 100


@pytest.mark.parametrize("through_half", [False, True])
def test_sigmoids_together_are_those_by_themselves(through_half, rng):
    sizes, parts = rng.integers(1, 60, 40), []
    for number, n in enumerate(sizes):
        f = rng.normal(size=n) * 10.0 ** rng.integers(-6, 6) + (number % 3)
        weights = rng.uniform(0.1, 2, n) * 10.0 ** rng.integers(-9, 9)
        parts.append((0 * f if number % 7 == 0 else f, f > rng.normal(size=n), weights))
    flat = map(np.concatenate, zip(*parts, strict=True))
    together = fit_sigmoids(*flat, sizes.cumsum(), through_half=through_half)
    alone = [fit_sigmoids(*part, np.array([len(part[0])]), through_half=through_half) for part in parts]
    np.testing.assert_allclose(np.transpose(together), np.array(alone)[:, :, 0], rtol=1e-9)


def test_sigmoids_do_not_overflow():
    z = np.array([-np.inf, -800.0, -1.0, -0.0, 0.0, 1.0, 800.0, np.inf])
    np.testing.assert_allclose(sigmoid(z, 1.0, 0.0), expit(-z), rtol=2 * np.finfo(float).eps)


def test_of_three_classes_with_rows_that_are_next_to_equal():
    X, y = np.arange(9)[:, None] * 1e-9, np.arange(9) % 3
    weights = np.array([1e4, 1e5, 1e6, 1e6, 1e3, 1e3, 1e6, 1e6, 1e3])
    model = SVC(probability=True, multiclass="ovr", kernel="linear").fit(X, y, sample_weight=weights)
    assert np.all(np.abs([model.probA_, model.probB_]) < 10)
    np.testing.assert_allclose(
        model.predict_proba(X), model.predict_proba(X[:1]).repeat(9, axis=0), atol=1e-6
    )


class TestFolds:
    """What is held out of rows that are there many times."""

    @staticmethod
    def log_loss(machine, X, y, truth):
        p = machine.fit(X, y).predict_proba(X)
        return -np.mean(truth * np.log(p[:, 1]) + (1 - truth) * np.log(p[:, 0]))

    @pytest.mark.parametrize("machine", [SVC(probability=True), NuSVC(nu=0.2, probability=True)], ids=str)
    def test_few_distinct_rows(self, machine, rng):
        X = rng.integers(1, 11, size=(600, 1)).astype(float)
        truth = sigmoid(X[:, 0] - 5.5, -2.0, 0.0)
        y = (rng.random(600) < truth).astype(int)
        best = -np.mean(truth * np.log(truth) + (1 - truth) * np.log(1 - truth))
        assert self.log_loss(machine, X, y, truth) < best + 0.1  # of whole rows' folds: best + 0.23

    def test_two_rows(self):
        X, y = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0, 1, 0, 1])
        counts = np.array([90, 10, 10, 90])
        weighted = SVC(kernel="linear", probability=True).fit(X, y, sample_weight=counts)
        np.testing.assert_allclose(weighted.predict_proba(X[::2])[:, 1], [0.1, 0.9], atol=0.02)
        repeated = SVC(kernel="linear", probability=True).fit(X.repeat(counts, 0), y.repeat(counts))
        assert repeated.probA_ == weighted.probA_

    @pytest.mark.parametrize("counts", [[1, 2, 3, 7, 1, 12, 5, 6], [1] * 8, [2] * 8])
    def test_parts_add_up_and_no_fold_has_more_than_its_turn(self, counts):
        counts = np.array(counts, dtype=float)
        rows = CanonicalRows(np.arange(8), np.array([0, 3, 3, 8]), counts)
        held = SVC()._folds(rows)
        np.testing.assert_allclose(held.sum(axis=0), 1.0, rtol=1e-15)
        for start, stop in ((0, 3), (3, 8)):  # rows are dealt in turn, class by class
            dealt = (held * counts)[:, start:stop].sum(axis=1)
            assert np.ptp(dealt) <= (1 if stop - start < 5 else np.gcd.reduce(counts[start:stop].astype(int)))
        whole = counts == 1
        assert set(np.unique(held[:, whole])) <= {0.0, 1.0}

    @pytest.mark.parametrize("scale", [1 / 300, 1e-6, 2.7, 1000.0])
    def test_the_scale_of_weights_holds_no_row_out_in_parts(self, scale, rng):
        X = rng.normal(size=(300, 3))
        y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
        known = SVC(probability=True).fit(X, y)
        weights = np.full(300, scale)
        scaled = SVC(C=1 / scale, probability=True).fit(X, y, sample_weight=weights)
        # larger weights are more rows in the prior of the targets, but not in the folds
        atol = 1e-6 if scale < 1 else 0.02
        np.testing.assert_allclose(scaled.predict_proba(X), known.predict_proba(X), atol=atol)

    @pytest.mark.parametrize(
        "weights", [[2.7] * 8, [0.3, 0.5, 0.9, 0.7, 800.0, 1000.0, 1500.0, 600.0], [3.0] * 8], ids=str
    )
    def test_weights_that_are_no_counts_leave_rows_whole(self, weights):
        rows = CanonicalRows(np.arange(12), np.array([0, 6, 12]), np.array((weights * 2)[:12]))
        held = SVC()._folds(rows)
        whole = rows.weights <= np.repeat([np.median(rows.weights[:6]), np.median(rows.weights[6:])], 6)
        assert set(np.unique(held[:, whole])) == {0.0, 1.0}

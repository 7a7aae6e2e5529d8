"""Sigmoids of decisions: the likeliest ones, by another minimiser, and where decisions hardly differ."""

import numpy as np
import pytest
from scipy.optimize import minimize

from mercer import SVC
from mercer.solvers.platt import fit_sigmoid, sigmoid


def cost(parameters, decisions, positive, weights):
    """Minus the likelihood's logarithm, over the sum of weights."""
    n_pos, n_neg = weights[positive].sum(), weights[~positive].sum()
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
    n_pos, n_neg = weights[positive].sum(), weights[~positive].sum()
    share = (n_pos * (n_pos + 1) / (n_pos + 2) + n_neg / (n_neg + 2)) / (n_pos + n_neg)
    np.testing.assert_allclose(sigmoid(decisions, A, B), share, atol=1e-6)
    assert abs(A) * scale < 100


def test_of_three_classes_with_rows_that_are_next_to_equal():
    X, y = np.arange(9)[:, None] * 1e-9, np.arange(9) % 3
    weights = np.array([1e4, 1e5, 1e6, 1e6, 1e3, 1e3, 1e6, 1e6, 1e3])
    model = SVC(probability=True, multiclass="ovr", kernel="linear").fit(X, y, sample_weight=weights)
    assert np.all(np.abs([model.probA_, model.probB_]) < 10)
    np.testing.assert_allclose(
        model.predict_proba(X), model.predict_proba(X[:1]).repeat(9, axis=0), atol=1e-6
    )

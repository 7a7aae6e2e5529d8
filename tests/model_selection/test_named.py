"""Searches under the name of what they fit: `PathCV` of that, and scikit-learn's conventions."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import (
    KernelLogisticRegression,
    KernelLogisticRegressionCV,
    KernelRidge,
    KernelRidgeCV,
    PathCV,
    SquaredMarginClassifier,
    SquaredMarginCV,
)
from mercer.kernels import RBF

ALPHAS = [0.01, 1.0]
NAMED = {
    "ridge": (KernelRidgeCV, KernelRidge, load_diabetes),
    "logistic": (KernelLogisticRegressionCV, KernelLogisticRegression, load_iris),
    "squared margin": (SquaredMarginCV, SquaredMarginClassifier, load_iris),
}


def checked():
    return [
        KernelRidgeCV(alphas=ALPHAS, cv=3),
        KernelLogisticRegressionCV(alphas=ALPHAS, cv=3),
        SquaredMarginCV(alphas=ALPHAS, cv=3),
    ]


@pytest.mark.lenient  # tiny folds: R² of one row, classes with fewer rows than folds
@parametrize_with_checks(checked())
def test_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", NAMED)
def test_it_is_the_path_of_its_estimator(name):
    make, one, load = NAMED[name]
    X, y = load(return_X_y=True)
    X, y = X[::4], y[::4]
    named = make(ALPHAS, kernel="rbf", gamma=0.5, gammas=[0.1, 1.0], cv=3).fit(X, y)
    path = PathCV(one(kernel="rbf", gamma=0.5), alphas=ALPHAS, gammas=[0.1, 1.0], cv=3).fit(X, y)
    np.testing.assert_array_equal(named.test_error_, path.test_error_)
    assert named.best_params_ == path.best_params_
    assert named.alpha_ == path.best_alpha_
    np.testing.assert_array_equal(named.predict(X), path.predict(X))
    np.testing.assert_array_equal(named.dual_coef_, path.best_estimator_.dual_coef_)
    np.testing.assert_array_equal(named.intercept_, path.best_estimator_.intercept_)
    assert named.kernel_ == path.best_estimator_.kernel_
    assert len(named.X_fit_) == len(X)


@pytest.mark.parametrize("name", NAMED)
def test_its_own_grid_and_its_parameters(name):
    make, _, load = NAMED[name]
    X, y = load(return_X_y=True)
    model = make(kernel=RBF(1.0), cv=3)
    assert clone(model).set_params(kernel__gamma=0.3).kernel == RBF(0.3)
    assert len(clone(model).fit(X[::5], y[::5]).cv_results_["params"]) == 22
    assert type(model).__name__ in repr(model)


def test_probabilities_where_there_are_some():
    X, y = load_iris(return_X_y=True)
    model = KernelLogisticRegressionCV(ALPHAS, cv=3, scoring="neg_log_loss").fit(X[::3], y[::3])
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert not hasattr(SquaredMarginCV(ALPHAS).fit(X[::3], y[::3]), "predict_proba")


def test_it_stands_within_a_search():
    X, y = load_diabetes(return_X_y=True)
    search = GridSearchCV(KernelRidgeCV(ALPHAS, kernel=RBF(1.0), cv=3), {"kernel__gamma": [1.0, 10.0]}, cv=2)
    assert search.fit(X[:100], y[:100]).best_estimator_.alpha_ in ALPHAS


def test_classifiers_score_by_their_scoring():
    X, y = load_iris(return_X_y=True)
    model = KernelLogisticRegressionCV([0.1, 1.0], scoring="neg_log_loss").fit(X, y)
    expected = -log_loss(y, model.predict_proba(X))
    assert model.score(X, y) == pytest.approx(expected, rel=1e-12)
    weights = np.linspace(0.0, 1.0, len(y))
    expected = -log_loss(y, model.predict_proba(X), sample_weight=weights)
    assert model.score(X, y, sample_weight=weights) == pytest.approx(expected, rel=1e-12)
    accuracy = KernelLogisticRegressionCV([0.1, 1.0]).fit(X, y)
    assert accuracy.score(X, y) == np.mean(accuracy.predict(X) == y)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_grid_for_samples_that_are_all_the_same(kernel, rng):
    """The spectrum of the centred matrix is rounding: the mean, and the classes' shares."""
    X, y, labels = np.full((30, 2), 3.0), rng.normal(size=30), np.arange(30) % 3 == 0
    ridge = KernelRidgeCV(kernel=kernel).fit(X, y)
    assert ridge.alpha_ >= 1e-6
    np.testing.assert_allclose(ridge.predict(X), y.mean(), rtol=1e-6)
    logistic = KernelLogisticRegressionCV(kernel=kernel).fit(X, labels)
    np.testing.assert_allclose(logistic.predict_proba(X[:1])[0], [2 / 3, 1 / 3], rtol=1e-6)

"""Kernels by name: scikit-learn's names and rules, and the errors."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import pairwise_kernels

from mercer.kernels import (
    RBF,
    ChiSquared,
    Cosine,
    Fourier,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    Sigmoid,
)
from mercer.kernels.names import from_name, variance_of


@pytest.fixture
def X():
    return np.random.default_rng(0).random((12, 5))


@pytest.mark.parametrize(
    "name", ["linear", "poly", "polynomial", "rbf", "sigmoid", "cosine", "chi2", "laplacian"]
)
@pytest.mark.parametrize("gamma", [0.3, None])
@pytest.mark.parametrize("coef0", [0.0, 1.0])
def test_values_are_scikit_learns(X, name, gamma, coef0):
    if name == "chi2" and gamma is None:
        expected = pairwise_kernels(X, X[:7], metric="chi2", gamma=1.0)
    else:
        expected = pairwise_kernels(
            X, X[:7], metric=name, filter_params=True, gamma=gamma, degree=2, coef0=coef0
        )
    k = from_name(name, gamma, 2, coef0, n_features=5)
    np.testing.assert_allclose(k(X, X[:7]), expected, rtol=1e-12)


def test_which_kernel_is_which():
    assert from_name("linear") == Linear()
    assert (
        from_name("poly", 0.5, 2, 3.0)
        == from_name("polynomial", 0.5, 2, 3.0)
        == Polynomial(2, gamma=0.5, coef0=3.0)
    )
    assert from_name("rbf", 0.5) == RBF(gamma=0.5)
    assert from_name("sigmoid", 0.5, coef0=0.0) == Sigmoid(gamma=0.5, coef0=0.0)
    assert from_name("cosine") == Cosine()
    assert from_name("chi2", 0.5) == ChiSquared(gamma=0.5)
    assert from_name("chi2") == ChiSquared(gamma=1.0)
    assert from_name("laplacian", 0.5) == Laplacian(gamma=0.5)
    assert from_name("fourier", degree=4) == Fourier(4)
    assert from_name("precomputed") == Precomputed()


def test_gamma_rules(X):
    variance = variance_of(X)
    assert variance == pytest.approx(X.var(), rel=1e-14)
    assert from_name("rbf", "scale", n_features=5, variance=variance).gamma == 1 / (5 * variance)
    for gamma in ("auto", None):
        assert from_name("rbf", gamma, n_features=5, variance=variance).gamma == 0.2
    for variance in (0.0, 1e-320):
        assert from_name("rbf", "scale", n_features=5, variance=variance).gamma == 1.0
    assert from_name("rbf", np.float32(0.5)).gamma == 0.5


def test_names_that_need_no_gamma_do_not_ask_for_the_data():
    for name in ("linear", "cosine", "fourier", "precomputed"):
        for gamma in ("scale", "auto", None):
            from_name(name, gamma)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("rbff", "'rbf'"),
        ("RBF", "'rbf'"),
        ("polynom", "'polynomial'"),
        ("gaussian", "'rbf'"),
        ("matern", "known are"),
        ("lin ear", "'linear'"),
    ],
)
def test_an_unknown_name_gets_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"unknown kernel '{name}'.*{near}"):
        from_name(name)
    with pytest.raises(ValueError, match=r"nown are 'linear', 'poly'.*mercer.kernels"):
        from_name(name)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((3,), TypeError, "string, got 3"),
        ((None,), TypeError, "string, got None"),
        (("rbf", "scales"), ValueError, "gamma='scales'.*'scale', 'auto' or None"),
        (("linear", "scales"), ValueError, "gamma='scales'"),
        (("rbf", "auto"), ValueError, "gamma='auto'.*n_features"),
        (("rbf", None), ValueError, "gamma=None.*n_features"),
        (("rbf", [1.0, 2.0]), ValueError, "one number"),
        (("rbf", -1.0), ValueError, "gamma"),
        (("rbf", float("nan")), ValueError, "gamma"),
        (("poly", 1.0, 2.5), (ValueError, TypeError), "degree"),
    ],
)
def test_bad_arguments(arguments, error, match):
    with pytest.raises(error, match=match):
        from_name(*arguments)


def test_scale_needs_the_variance():
    with pytest.raises(ValueError, match="variance"):
        from_name("rbf", "scale", n_features=3)


def test_a_variance_that_is_a_function_is_called_where_gamma_is_read():
    assert from_name("rbf", "scale", n_features=2, variance=lambda: 2.0).gamma == 0.25
    for name in ("linear", "cosine", "fourier", "precomputed"):
        from_name(name, "scale", n_features=2, variance=lambda: 1 / 0)
    from_name("chi2", variance=lambda: 1 / 0)


def test_a_variance_beyond_the_range_is_named():
    X = np.array([[1e200, -1e200], [0.0, 1e200]])
    for form in (np.asarray, sp.csr_array):
        with pytest.raises(ValueError, match="the variance of X, from which gamma='scale' comes, leaves"):
            from_name("rbf", "scale", n_features=2, variance=variance_of(form(X)))


def test_variance_does_not_cancel_nor_touch_its_argument():
    X = np.array([[1e8 + 1, 1e8], [1e8, 1e8 + 1]])
    assert variance_of(X) == variance_of(sp.csr_array(X)) == 0.25
    assert variance_of(X.astype(np.float32) * 0 + np.float32(3)) == 0
    doubled = sp.coo_array(([1.0, 1.0, 4.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    assert variance_of(doubled) == np.var([2.0, 0, 0, 4])
    rows = sp.csr_array((np.array([1.0, 1.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    assert variance_of(rows) == 1.0
    assert rows.nnz == 2
    assert variance_of(np.array([[250, 3]], dtype=np.uint8)) == np.var([250.0, 3.0])


def test_gamma_is_a_plain_number_that_can_be_set(X):
    k = from_name("rbf", "scale", n_features=5, variance=2.0)
    assert k.get_params()["gamma"] == 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert k.set_params(gamma=0.2) == RBF(gamma=0.2)

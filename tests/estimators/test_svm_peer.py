"""The five support vector machines beside scikit-learn's: objectives, decision values, predictions.

scikit-learn's own data sets come with it. LIBSVM's (heart_scale, vowel) and a larger regression set are
read from the folder that ``MERCER_BENCH_DATA`` names, where it is set.
"""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import datasets
from sklearn import svm as reference
from sklearn.gaussian_process.kernels import RBF as GPKernel
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV

from mercer import SVC, SVR, NuSVC, NuSVR, OneClassSVM

FOLDER = os.environ.get("MERCER_BENCH_DATA")
needs_folder = pytest.mark.skipif(not FOLDER, reason="MERCER_BENCH_DATA names no folder of data")

# Decision values differ by a few tol: each side stops within tol of the optimal gradient.
TOL = 1e-5
CLOSE = {"rtol": 0, "atol": 50 * TOL}


def bundled(name):
    """One of scikit-learn's sets, standardised, the first 80 % of a shuffle for training."""
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[:600]
    X, y = X[order].astype(float), y[order]
    scale = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1)
    cut = len(X) * 4 // 5
    return X[:cut], y[:cut], X[cut:], y[cut:]


def from_folder(name):
    spec = importlib.util.spec_from_file_location("mercer_bench_load", Path(FOLDER) / "load.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data = {key: np.asarray(value, float) for key, value in module.load(name).items() if key[0] in "Xy"}
    if "X_train" in data:
        return data["X_train"], data["y_train"], data["X_test"], data["y_test"]
    order = np.random.default_rng(0).permutation(len(data["X"]))[:1000]
    X, y = data["X"][order], data["y"][order]
    cut = len(X) * 4 // 5
    return X[:cut], y[:cut], X[cut:], y[cut:]


def dense(array):
    return array.toarray() if sp.issparse(array) else np.asarray(array)


def fit_both(ours, params, X, y, **fit_params):
    """mercer's fit and scikit-learn's, with equal parameters; LIBSVM's vote in both."""
    peer = getattr(reference, ours.__name__)(**params)
    extra = {"break_ties": False} if hasattr(peer, "break_ties") else {}
    given = (X,) if ours is OneClassSVM else (X, y)
    return ours(**params, **extra).fit(*given, **fit_params), peer.fit(*given, **fit_params)


def pair_objectives(model, X, y, kernel):
    """½βᵀKβ − Σ|β| of each pair of classes of a C-SVC, from scikit-learn's layout of coefficients."""
    K = pairwise_kernels(dense(X)[model.support_], metric=kernel["kernel"], filter_params=True, **kernel)
    ends = np.cumsum(model.n_support_)
    starts, coef = ends - model.n_support_, dense(model.dual_coef_)
    values = []
    for i in range(len(ends)):
        for j in range(i + 1, len(ends)):
            first, second = slice(starts[i], ends[i]), slice(starts[j], ends[j])
            beta = np.zeros(len(K))
            beta[first], beta[second] = coef[j - 1, first], coef[i, second]
            values.append(0.5 * beta @ K @ beta - np.abs(beta).sum())
    return np.array(values)


def compare_classifiers(ours, params, data):
    X, y, Z, labels = data
    # ν-SVC is solved before its division by ρ, which is small for a small ν: so much more must tol be.
    shape = {"decision_function_shape": "ovo", "tol": TOL if ours is SVC else TOL / 1000}
    close = CLOSE if ours is SVC else {"rtol": 1e-4, "atol": CLOSE["atol"]}
    model, peer = fit_both(ours, {**params, **shape}, X, y)
    np.testing.assert_allclose(model.decision_function(Z), peer.decision_function(Z), **close)
    sure = np.abs(peer.decision_function(Z)).reshape(len(Z), -1).min(axis=1) > CLOSE["atol"]
    np.testing.assert_array_equal(model.predict(Z)[sure], peer.predict(Z)[sure])
    assert model.score(Z, labels) == pytest.approx(peer.score(Z, labels), abs=0.01)
    np.testing.assert_allclose(model.n_support_, peer.n_support_, rtol=0.02, atol=2)
    if ours is SVC:
        kernel = {
            key: value for key, value in params.items() if key in {"kernel", "gamma", "degree", "coef0"}
        }
        found, theirs = (pair_objectives(m, X, y, kernel) for m in (model, peer))
        np.testing.assert_array_less(found - theirs, 1e-6 * np.abs(theirs))
        np.testing.assert_allclose(model.objective_, found, rtol=1e-6)
        assert np.all(model.duality_gap_ >= 0)
        assert np.all(model.duality_gap_ <= 1e-3 * np.abs(found))
    model, peer = (m.set_params(decision_function_shape="ovr") for m in (model, peer))
    # Ranks of the sums count, so this form jumps where a vote does.
    np.testing.assert_allclose(model.decision_function(Z)[sure], peer.decision_function(Z)[sure], **close)


KERNELS = [
    {"kernel": "linear", "C": 0.1},
    {"kernel": "rbf", "gamma": 0.05, "C": 1.0},
    {"kernel": "rbf", "gamma": 0.01, "C": 100.0},
    {"kernel": "poly", "gamma": 0.1, "degree": 2, "coef0": 1.0, "C": 0.5},
    {"kernel": "sigmoid", "gamma": 0.01, "coef0": 0.0, "C": 1.0},
]


@pytest.mark.parametrize("params", KERNELS, ids=str)
@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits"])
def test_svc_on_bundled_data(name, params):
    if params["kernel"] == "sigmoid" and name == "digits":
        pytest.skip("indefinite: there are several local optima")
    compare_classifiers(SVC, params, bundled(name))


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits"])
# Where ν times the rows is a whole number, no vector need be free, and LIBSVM takes one that rounding left
# 1e-16 short of its bound for free: its ρ then is an end of the optimal interval, not the middle.
@pytest.mark.parametrize("nu", [0.0513, 0.307])
def test_nu_svc_on_bundled_data(name, nu):
    compare_classifiers(NuSVC, {"kernel": "rbf", "gamma": 0.05, "nu": nu}, bundled(name))


@pytest.mark.parametrize("name", ["iris", "breast_cancer"])
@pytest.mark.parametrize("class_weight", ["balanced", {0: 5.0}], ids=str)
def test_class_weights_and_sample_weights(name, class_weight):
    X, y, Z, _ = bundled(name)
    weights = np.random.default_rng(1).uniform(0.2, 3, size=len(X))
    if class_weight == "balanced":
        weights = None  # scikit-learn's leaves them out (its issue 30056); the given case 12 has both
    params = {"kernel": "rbf", "gamma": 0.05, "tol": TOL, "class_weight": class_weight}
    model, peer = fit_both(SVC, params, X, y, sample_weight=weights)
    np.testing.assert_allclose(model.class_weight_, peer.class_weight_, rtol=1e-12)
    for shape in ("ovo", "ovr"):
        values = [m.set_params(decision_function_shape=shape).decision_function(Z) for m in (model, peer)]
        np.testing.assert_allclose(values[0], values[1], **CLOSE)


@pytest.mark.parametrize("gamma", ["scale", "auto"])
def test_named_gammas(gamma):
    X, y, Z, _ = bundled("wine")
    model, peer = fit_both(SVC, {"gamma": gamma, "tol": TOL}, 3 * X, y)
    np.testing.assert_allclose(model.decision_function(3 * Z), peer.decision_function(3 * Z), **CLOSE)


REGRESSIONS = [
    (SVR, {"kernel": "rbf", "gamma": 0.05, "C": 10.0, "epsilon": 0.1}),
    (SVR, {"kernel": "linear", "C": 1.0, "epsilon": 0.5}),
    (SVR, {"kernel": "poly", "gamma": 0.1, "degree": 2, "coef0": 1.0, "C": 0.1}),
    (NuSVR, {"kernel": "rbf", "gamma": 0.05, "C": 10.0, "nu": 0.3}),
    (NuSVR, {"kernel": "linear", "C": 1.0, "nu": 0.7}),
]
by_machine = pytest.mark.parametrize(
    ("ours", "params"), REGRESSIONS, ids=lambda value: getattr(value, "__name__", None) or str(value)
)


def compare_regressions(ours, params, data):
    X, y, Z, _ = data
    y = (y - y.mean()) / y.std()
    model, peer = fit_both(ours, {**params, "tol": TOL}, X, y)
    np.testing.assert_allclose(model.predict(Z), peer.predict(Z), **CLOSE)
    assert model.n_support_ == pytest.approx(peer.n_support_, rel=0.02, abs=2)
    kernel = {key: value for key, value in params.items() if key in {"kernel", "gamma", "degree", "coef0"}}
    values = []
    for m in (model, peer):
        beta = np.zeros(len(X))
        beta[m.support_] = dense(m.dual_coef_)[0]
        K = pairwise_kernels(X, metric=kernel["kernel"], filter_params=True, **kernel)
        tube = m.epsilon * np.abs(beta).sum() if ours is SVR else 0
        values.append(0.5 * beta @ K @ beta - y @ beta + tube)
    assert values[0] <= values[1] + 1e-6 * abs(values[1])
    np.testing.assert_allclose(np.ravel(model.objective_), values[0], rtol=1e-6)
    assert 0 <= np.ravel(model.duality_gap_)[0] <= 1e-3 * abs(values[0])


@by_machine
def test_regression_on_bundled_data(ours, params):
    compare_regressions(ours, params, bundled("diabetes"))


@pytest.mark.parametrize("nu", [0.05, 0.5])
@pytest.mark.parametrize("name", ["wine", "breast_cancer"])
def test_one_class_on_bundled_data(name, nu):
    X, y, Z, _ = bundled(name)
    params = {"kernel": "rbf", "gamma": 0.05, "nu": nu, "tol": TOL}
    model, peer = fit_both(OneClassSVM, params, X, y)
    # One class is solved with boxes of 1, so that its values are sums over hundreds of samples.
    values = peer.decision_function(Z)
    np.testing.assert_allclose(model.decision_function(Z), values, **CLOSE)
    np.testing.assert_array_equal(model.predict(Z), peer.predict(Z))
    np.testing.assert_allclose(model.offset_, peer.offset_, **CLOSE)
    np.testing.assert_allclose(model.score_samples(Z), peer.score_samples(Z), **CLOSE)


def test_sparse_rows_give_what_dense_rows_give():
    X, y, Z, _ = bundled("digits")
    X, Z = np.where(X > 0.5, X, 0), np.where(Z > 0.5, Z, 0)
    params = {"kernel": "rbf", "gamma": 0.02, "tol": TOL}
    _, peer = fit_both(SVC, params, sp.csr_array(X), y)
    model = SVC(**params).fit(sp.csr_array(X), y)
    expected = SVC(**params).fit(X, y).decision_function(Z)
    np.testing.assert_allclose(model.decision_function(sp.csr_array(Z)), expected, **CLOSE)
    assert sp.issparse(model.support_vectors_)
    assert sp.issparse(model.dual_coef_) == sp.issparse(peer.dual_coef_)
    np.testing.assert_allclose(dense(model.dual_coef_), dense(peer.dual_coef_), atol=1e-3)


@needs_folder
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("heart_scale", {"kernel": "rbf", "gamma": 1 / 13, "C": 1.0}),
        ("heart_scale", {"kernel": "linear", "C": 1.0}),
        ("heart_scale", {"kernel": "poly", "gamma": 1 / 13, "degree": 3, "coef0": 0.0, "C": 100.0}),
        ("vowel", {"kernel": "rbf", "gamma": 0.1, "C": 10.0}),
        ("vowel", {"kernel": "linear", "C": 1.0}),
    ],
    ids=str,
)
def test_libsvms_data(name, params):
    compare_classifiers(SVC, params, from_folder(name))


@needs_folder
@by_machine
@pytest.mark.parametrize("name", ["abalone", "bodyfat"])
def test_larger_regressions(name, ours, params):
    X, y, Z, labels = from_folder(name)
    scale = np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    compare_regressions(ours, params, ((X - X.mean(axis=0)) / scale, y, (Z - X.mean(axis=0)) / scale, labels))


def test_parameters_of_a_callable_are_set_like_those_of_others(rng):
    X = rng.normal(size=(60, 2))
    y = (np.sum(X**2, axis=1) > 1.4).astype(int)
    grid = {"kernel__length_scale": [0.1, 1.0, 10.0]}
    found, known = (
        GridSearchCV(machine(kernel=GPKernel(1.0)), grid).fit(X, y) for machine in (SVC, reference.SVC)
    )
    assert found.best_params_ == known.best_params_
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], known.cv_results_["mean_test_score"])

"""Kernels as values, and their algebra: names, equality, parameters, cloning, rules and errors."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.model_selection import GridSearchCV, ParameterGrid

import mercer.kernels
from mercer.kernels import (
    RBF,
    ChiSquared,
    Cosine,
    ExpDotProduct,
    Fourier,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
    Spectrum,
    check_psd,
)
from scenarios import SCENARIOS, weight

by_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)


# ---------------------------------------------------------------- values


@by_scenario
def test_a_kernel_is_equal_to_its_remake_and_hashes_alike(scenario):
    one, other = scenario.make(), scenario.make()
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other}) == 1
    assert one != 2.0 * one
    assert one != "a string"


@by_scenario
def test_pickle_and_copies_are_equal(scenario, rng):
    kernel = scenario.make()
    X = scenario.domain(rng, 4)
    K = kernel(X)
    again = pickle.loads(pickle.dumps(kernel))
    assert again == kernel
    assert repr(again) == repr(kernel)
    np.testing.assert_array_equal(again(X), K)
    assert copy.deepcopy(kernel) == kernel
    assert clone(kernel) is kernel


@by_scenario
def test_set_params_of_get_params_is_the_same_kernel(scenario):
    kernel = scenario.make()
    assert kernel.set_params(**kernel.get_params(deep=False)) == kernel
    assert kernel.set_params(**{h.name: h.value for h in kernel.hyperparameters}) == kernel
    assert kernel.set_params() is kernel
    names = kernel.get_params(deep=True)
    for h in kernel.hyperparameters:
        assert h.name in names
        assert h.bounds[0] < h.bounds[1]


@by_scenario
def test_repr_is_the_expression(scenario):
    kernel = scenario.make()
    text = repr(kernel)
    if "<" in text or "weight" in text:
        return  # samples and functions have no expression
    assert eval(text, vars(mercer.kernels).copy()) == kernel


@pytest.mark.parametrize(
    "text",
    [
        "RBF(gamma=1.0)",
        "RBF(length_scale=[1.0, 2.0])",
        "0.5 * RBF(gamma=2.0) + Polynomial(3) * Fourier(2)",
        "Matern(nu=float('inf'))",
        "2 * (3 * Linear())",
        "2 * (Linear() * Cosine())",
        "2 * Linear() * Cosine()",
        "Linear() * (2 * Cosine())",
        "(Linear() + Cosine()) ** 2 * Laplacian()",
        "(Linear() ** 2) ** 3",
        "(2 * Linear()).exp().normalize()",
        "(Linear() + Cosine()).polynomial([0.5, 1.0]).on([0, 2])",
        "(Linear() * Cosine()).on(slice(0, 2, None))",
        "Polynomial(2, gamma=0.5, include_bias=False)",
        "Linear(metric=[[1.0, 0.0], [0.0, 2.0]])",
        "Linear() + 2 * Cosine().on(1)",
        "Finite([[1.0, 0.0], [0.0, 1.0]], labels=[('a', 1), ('b', 2)])",
    ],
)
def test_repr_is_what_was_written(text):
    kernel = eval(text, vars(mercer.kernels).copy())
    assert repr(kernel) == text
    assert eval(repr(kernel), vars(mercer.kernels).copy()) == kernel


def test_equality_is_of_content():
    assert RBF(gamma=[1, 2]) == RBF(gamma=np.array([1.0, 2.0]))
    assert hash(RBF(gamma=[1, 2])) == hash(RBF(gamma=np.array([1.0, 2.0])))
    assert RBF(gamma=1) == RBF(gamma=np.float64(1.0)) == RBF(gamma=np.array(1.0)) == RBF()
    assert RBF(gamma=0.5) != RBF(length_scale=1.0)
    assert RBF(gamma=[1.0]) != RBF(gamma=1.0)
    assert Linear() + Cosine() != Cosine() + Linear()
    assert Linear().on(0) == Linear().on([0])
    assert Linear().on(slice(0, 1)) != Linear().on(slice(0, 2))
    assert Linear().on([True, False]) != Linear().on([1, 0])
    assert RBF().modulate(weight) == RBF().modulate(weight)
    assert RBF().modulate(weight) != RBF().modulate(np.sum)
    X = np.ones((3, 2))
    assert RBF().center(X) == RBF().center(X.copy())
    assert RBF().center(X) != RBF().center(2 * X)


def test_a_kernel_cannot_be_changed():
    kernel, gammas = RBF(0.5), np.array([1.0, 2.0])
    with pytest.raises(AttributeError, match=r"immutable; use set_params\(gamma="):
        kernel.gamma = 2.0
    with pytest.raises(AttributeError, match="immutable"):
        del kernel.gamma
    ard = RBF(gammas)
    gammas[0] = 5.0
    assert ard == RBF([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        ard.gamma[0] = 3.0
    X = np.ones((3, 2))
    centered = Linear().center(X)
    before = centered([[1.0, 2.0]])
    X[:] = 7.0
    np.testing.assert_array_equal(centered([[1.0, 2.0]]), before)


def test_arguments_stay_as_given():
    for value in (2, 2.0, np.float32(2.0), np.float64(2.0)):
        assert RBF(value).gamma is value
        assert (value * RBF()).scale is value
    kernel = RBF(0.5)
    assert (kernel + Linear()).k1 is kernel
    assert (3 * kernel).get_params() == {
        "scale": 3,
        "kernel": kernel,
        "kernel__gamma": 0.5,
        "kernel__length_scale": None,
    }


# ---------------------------------------------------------------- names


def test_sums_and_products_flatten():
    a, b, c = RBF(), Linear(), Cosine()
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert list((a + b + c).get_params(deep=False)) == ["k1", "k2", "k3"]
    assert sum([a, b, c]) == a + b + c
    assert (a + b).set_params(k2=b + c) == a + b + c
    assert (a + a).k2 is a
    with pytest.raises(AttributeError, match="no attribute 'k3'"):
        _ = (a + b).k3


def test_nested_names():
    kernel = 0.5 * RBF(2.0) + Polynomial(3) * Fourier(2)
    assert [h.name for h in kernel.hyperparameters] == [
        "k1__scale",
        "k1__kernel__gamma",
        "k2__k1__gamma",
        "k2__k1__coef0",
        "k2__k2__period",
    ]
    changed = kernel.set_params(k1__kernel__gamma=7.0, k2__k1__degree=2)
    assert changed == 0.5 * RBF(7.0) + Polynomial(2) * Fourier(2)
    assert kernel == 0.5 * RBF(2.0) + Polynomial(3) * Fourier(2)
    assert kernel.set_params(k1=Linear(), k2__k2__degree=5) == Linear() + Polynomial(3) * Fourier(5)
    assert kernel.set_params(k1=Linear([[1.0]]), k1__metric=[[2.0]]).k1 == Linear([[2.0]])


def test_rbf_has_one_of_two_parameters():
    assert RBF().set_params(length_scale=2.0) == RBF(length_scale=2.0)
    assert RBF(length_scale=2.0).set_params(gamma=3.0) == RBF(3.0)
    assert [h.name for h in RBF(length_scale=2.0).hyperparameters] == ["length_scale"]
    with pytest.raises(ValueError, match="gamma or length_scale, not both"):
        RBF(gamma=1.0, length_scale=1.0)
    with pytest.raises(ValueError, match="gamma or length_scale, not both"):
        RBF().set_params(gamma=1.0, length_scale=1.0)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"Invalid parameter 'gama' for kernel RBF.*Valid parameters are"):
        RBF().set_params(gama=1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'k3'"):
        (RBF() + Linear()).set_params(k3__gamma=1.0)
    with pytest.raises(ValueError, match=r"'gamma' of .* is no kernel"):
        RBF().set_params(gamma__x=1.0)


class KernelMean(RegressorMixin, BaseEstimator):
    """As little of an estimator with a kernel as scikit-learn's searches need."""

    def __init__(self, kernel=None):
        self.kernel = kernel

    def set_params(self, **params):
        nested = {k[8:]: params.pop(k) for k in list(params) if k.startswith("kernel__")}
        super().set_params(**params)
        if nested:
            self.kernel = self.kernel.set_params(**nested)
        return self

    def fit(self, X, y):
        self.X_, self.y_ = X, y
        return self

    def predict(self, X):
        K = self.kernel(X, self.X_)
        return K @ self.y_ / K.sum(axis=1)


def test_grid_search_changes_the_nested_kernel(rng):
    X = rng.normal(size=(40, 2))
    y = np.sin(3 * X[:, 0])
    kernel = RBF(1e-3) + 1e-6 * RBF(1.0)
    grid = {"kernel__k1__gamma": [1e-3, 10.0], "kernel__k2__scale": [1e-6, 1e-3]}
    search = GridSearchCV(KernelMean(kernel), grid, cv=3).fit(X, y)
    assert len(search.cv_results_["params"]) == len(ParameterGrid(grid))
    assert len(set(search.cv_results_["mean_test_score"])) == 4
    assert search.best_estimator_.kernel.k1.gamma == 10.0
    assert kernel == RBF(1e-3) + 1e-6 * RBF(1.0)
    assert search.best_estimator_.get_params()["kernel__k1__gamma"] == 10.0


# ---------------------------------------------------------------- the rules


def test_the_algebra_is_elementwise(rng):
    X, Z = rng.normal(size=(6, 3)), rng.normal(size=(5, 3))
    a, b = RBF(0.5), Polynomial(2)
    A, B = a(X, Z), b(X, Z)
    close = {"rtol": 1e-13, "atol": 1e-13}
    np.testing.assert_allclose((a + b)(X, Z), A + B, **close)
    np.testing.assert_allclose((a * b)(X, Z), A * B, **close)
    np.testing.assert_allclose((2.5 * a)(X, Z), 2.5 * A, **close)
    np.testing.assert_allclose((a * np.float64(2.5))(X, Z), 2.5 * A, **close)
    np.testing.assert_allclose((np.float32(2.5) * a)(X, Z), 2.5 * A, **close)
    np.testing.assert_allclose((a**3)(X, Z), A**3, **close)
    np.testing.assert_allclose(b.polynomial([1, 2, 3])(X, Z), 1 + 2 * B + 3 * B**2, **close)
    np.testing.assert_allclose(b.polynomial([4])(X, Z), np.full((6, 5), 4.0), **close)
    np.testing.assert_allclose(a.exp()(X, Z), np.exp(A), **close)
    np.testing.assert_allclose((a + a)(X, Z), 2 * A, **close)
    np.testing.assert_allclose((a * a)(X, Z), A**2, **close)
    f = np.outer(weight(X), weight(Z))
    np.testing.assert_allclose(a.modulate(weight)(X, Z), f * A, **close)
    scale = np.sqrt(np.outer(b.diag(X), b.diag(Z)))
    np.testing.assert_allclose(b.normalize()(X, Z), B / scale, **close)
    np.testing.assert_allclose(b.normalize().normalize()(X, Z), B / scale, **close)
    C = b.center(Z)(X)
    means = b(X, Z).mean(axis=1)
    np.testing.assert_allclose(C, b(X) - means[:, None] - means + b(Z).mean(), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(b.center(Z)(Z).sum(axis=0), 0.0, atol=1e-10)


def test_normalizing_a_zero_sample_gives_zero():
    K = Linear().normalize()([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    np.testing.assert_allclose(K, [[0, 0, 0], [0, 1, 1], [0, 1, 1]], rtol=1e-15)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: -1.0 * RBF(), ValueError, r"c must be nonnegative.*LN14 rule 2"),
        (lambda: float("nan") * RBF(), ValueError, "c must be nonnegative and finite"),
        (lambda: RBF().polynomial([1.0, -2.0]), ValueError, r"got -2\.0 at index 1.*LN14 rule 4"),
        (lambda: RBF().polynomial(2.0), ValueError, "coefficients must be a sequence"),
        (lambda: RBF() ** 0, ValueError, r"p must be an integer >= 1.*LN14 rule 5"),
        (lambda: RBF() ** 0.5, ValueError, r"p must be an integer >= 1, got 0\.5.*LN14 rule 5"),
        (lambda: RBF() ** -1, ValueError, "p must be an integer >= 1"),
        (
            lambda: Linear([[1.0, 0.0], [0.0, -2.0]]),
            ValueError,
            r"LN14 rule 8\), but it has the eigenvalue -2",
        ),
        (lambda: Linear([[1.0, 2.0], [0.0, 1.0]]), ValueError, r"must be symmetric.*\(0, 1\) and \(1, 0\)"),
        (lambda: Linear([1.0, 2.0]), ValueError, "must be a square matrix"),
        (lambda: Linear([[np.nan]]), ValueError, "metric has nan at row 0, column 0"),
        (lambda: RBF(0.0), ValueError, "gamma must be positive and finite, got 0.0"),
        (lambda: RBF([1.0, -1.0]), ValueError, r"gamma must be positive and finite, got -1\.0 at index 1"),
        (lambda: RBF([[1.0]]), ValueError, "one number per feature, got shape"),
        (lambda: RBF("scale"), TypeError, "gamma must be a positive number, got 'scale'"),
        (lambda: RBF(1j), TypeError, "gamma must be a positive real number"),
        (lambda: RBF(True), TypeError, "gamma must be a positive number, got True"),
        (lambda: RBF(length_scale=np.inf), ValueError, "length_scale must be positive and finite"),
        (lambda: Polynomial(0), ValueError, "degree must be an integer >= 1, got 0"),
        (lambda: Polynomial(2.5), ValueError, "degree must be an integer"),
        (lambda: Polynomial("2"), TypeError, "degree must be an integer"),
        (lambda: Polynomial(2, gamma=-1.0), ValueError, "gamma > 0 keeps it positive semidefinite"),
        (lambda: Polynomial(2, coef0=-1.0), ValueError, "coef0 >= 0 keeps it positive semidefinite"),
        (lambda: Fourier(-1), ValueError, "degree must be an integer >= 1"),
        (lambda: Fourier(2, period=0.0), ValueError, "period must be positive"),
        (lambda: Matern(nu=0.0), ValueError, "nu must be positive"),
        (lambda: Matern(nu=-np.inf), ValueError, "nu must be positive"),
        (lambda: RationalQuadratic(alpha=-1.0), ValueError, "alpha must be positive"),
        (lambda: ExpDotProduct(-1.0), ValueError, "beta must be positive"),
        (lambda: ChiSquared(0.0), ValueError, "gamma must be positive"),
        (lambda: Laplacian(-1.0), ValueError, "gamma must be positive"),
        (lambda: Sigmoid(coef0=np.nan), ValueError, "coef0 must be a finite number"),
        (
            lambda: RBF() + 1.0,
            TypeError,
            r"k \+ 1.0: a number is no kernel; k.polynomial\(\[c, 1\]\) is k \+ c",
        ),
        (lambda: 2 + RBF(), TypeError, r"k \+ 2: a number is no kernel"),
        (lambda: RBF() + "a", TypeError, "unsupported operand"),
        (lambda: RBF() - Linear(), ValueError, "k1 - k2: a difference may not be positive semidefinite"),
        (lambda: -RBF(), ValueError, r"-k: multiples are c \* k with c >= 0"),
        (lambda: RBF() - 1, TypeError, "k - 1: a number is no kernel"),
        (lambda: RBF() / np.float64(2.0), TypeError, r"k / 2.0 is not defined; write \(1 / 2.0\) \* k"),
        (lambda: RBF() - "a", TypeError, "unsupported operand"),
        (lambda: RBF() / RBF(), TypeError, "unsupported operand"),
        (lambda: "a" * RBF(), TypeError, "unsupported operand|can't multiply"),
        (lambda: RBF().polynomial([]), ValueError, r"must be a sequence \[c0, c1"),
        (lambda: RBF() ** 2**31, ValueError, "an integer >= 1 and <= 2147483647"),
        (lambda: Fourier(10**10), ValueError, "an integer >= 1 and <= 2147483647"),
        (lambda: RBF().modulate(3.0), TypeError, "f must be a function of a block of samples"),
        (lambda: RBF().on("age"), TypeError, "columns are an integer, a slice, integers or a mask"),
        (lambda: RBF().on([]), TypeError, "columns are"),
        (lambda: Spectrum(3).on(0), TypeError, "rows of numbers"),
        (lambda: RBF().center([[np.nan]]), ValueError, "NaN"),
    ],
)
def test_what_breaks_a_rule_is_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize(
    ("kernel", "match"),
    [
        (RBF([1.0, 2.0]), "has 2 values of gamma, but the samples have 3 features"),
        (Matern(0.7, [1.0, 2.0]), "has 2 values of length_scale, but the samples have 3 features"),
        (Fourier(2, [1.0, 2.0]), "has 2 periods, but the samples have 3 features"),
        (Linear(np.eye(2)), "metric is 2 x 2, but the samples have 3 features"),
        (RBF().on(3), "reads column 3, but the samples have only 3 columns"),
        (RBF().on([0, -4]), "reads column -4"),
        (RBF().on([2]).on([0, 1]), "reads column 2, but the samples have only 2 columns"),
        (RBF().on([True, False]), "a mask of 2 columns, but the samples have 3"),
        (RBF().on(slice(5, 9)), "reads no column of the 3"),
        (Sigmoid(1.0, -50.0).exp().modulate(lambda X: X), r"of shape \(2,\), got \(2, 3\); one entry or row"),
        (Sigmoid(1.0, -50.0).normalize(), "not positive semidefinite"),
    ],
    ids=repr,
)
def test_what_does_not_fit_the_samples_is_refused(kernel, match):
    X = np.arange(6.0).reshape(2, 3) / 10
    with pytest.raises(ValueError, match=match):
        kernel(X)


def test_samples_of_two_widths_are_refused():
    with pytest.raises(ValueError, match="X has 2 features, but Z has 3"):
        RBF()(np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="Input Z contains NaN at row 1, column 0"):
        RBF()(np.ones((2, 1)), [[0.0], [np.nan]])
    with pytest.raises(TypeError, match="combines kernels that read different things: samples, strings"):
        (RBF() + Spectrum(2))(["ab"])


def test_what_a_users_function_raises_passes_through():
    def fails(X):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        RBF().modulate(fails)(np.ones((2, 1)))
    with pytest.raises(ValueError, match="returned inf at row 1; every entry must be finite"):
        RBF().modulate(lambda X: np.array([1.0, np.inf]))(np.ones((2, 1)))
    with pytest.raises(ValueError, match="must return real numbers, got dtype complex128"):
        RBF().modulate(lambda X: np.array([1.0, 1j]))(np.ones((2, 1)))


# ---------------------------------------------------------------- positive semidefiniteness


def test_the_flag_says_what_is_known():
    assert RBF().is_psd
    assert (2 * RBF() + Linear() ** 2 * Fourier(2)).exp().normalize().is_psd
    for kernel in (Sigmoid(), RBF() + Sigmoid(), 2 * Sigmoid().exp(), Sigmoid().on(0)):
        assert kernel.is_psd is None
        assert "not positive semidefinite for all" in kernel.psd_note


LEAVES = st.sampled_from(
    [
        Linear(),
        Linear([[2.0, 1.0], [1.0, 1.0]]),
        Polynomial(2, 0.5),
        Polynomial(3, 0.5, include_bias=False),
        RBF(0.7),
        RBF(length_scale=[0.5, 2.0]),
        Laplacian(0.5),
        Matern(0.5),
        Matern(1.5),
        Matern(2.5, [0.5, 1.5]),
        Matern(0.8),
        Matern(np.inf),
        RationalQuadratic(1.0, 0.5),
        Fourier(2),
        Fourier(3, 1.7, include_bias=False),
        Cosine(),
        ExpDotProduct(1.5),
        RBF(0.7).on(0),
        Linear().on(1),
    ]
)


def combined(kernels):
    scale = st.floats(0.0, 3.0)
    return st.one_of(
        st.builds(lambda a, b: a + b, kernels, kernels),
        st.builds(lambda a, b: a * b, kernels, kernels),
        st.builds(lambda c, a: c * a, scale, kernels),
        st.builds(lambda a: a**2, kernels),
        st.builds(lambda a, c: a.polynomial(c), kernels, st.lists(scale, min_size=1, max_size=3)),
        st.builds(lambda a: a.normalize().exp(), kernels),
        st.builds(lambda a: a.normalize(), kernels),
        st.builds(lambda a: a.modulate(lambda X: X[:, 0]), kernels),
        st.builds(lambda a: a.center([[0.5, -0.5], [1.0, 0.25]]), kernels),
    )


@given(st.recursive(LEAVES, combined, max_leaves=5), st.integers(0, 2**31))
def test_random_compositions_are_positive_semidefinite(kernel, seed):
    X = np.random.default_rng(seed).normal(size=(7, 2))
    X[6] = X[0]
    K = kernel(X)
    np.testing.assert_array_equal(K, K.T)
    assert kernel.is_psd
    # Rounding is relative to the parts of a composition, which may be larger than what is left of them.
    size = np.abs(K).max() + np.abs(uncentered(kernel)(X)).max()
    assert check_psd(K, tolerance=1e-11 * (size + 1.0))
    np.testing.assert_allclose(kernel.diag(X), np.diag(K), rtol=1e-10, atol=1e-11 * (size + 1.0))


def uncentered(kernel):
    """The largest of its parts that a centring takes apart."""
    inner = getattr(kernel, "kernel", None)
    return kernel if inner is None else inner

"""Kernels differentiated: every scenario in both modes and second order, and what models are made of them."""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest
from scipy import sparse

import mercer.autodiff as ad
from mercer import SVC, KernelRidge
from mercer.kernels import (
    RBF,
    ExpDotProduct,
    Finite,
    FunctionKernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Precomputed,
    RationalQuadratic,
    Spectrum,
)
from mercer.solvers import ridge, ridge_loo
from mercer.testing import check_derivative
from scenarios import SCENARIOS

MODES = ["forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse"]
by_mode = pytest.mark.parametrize("mode", MODES)
by_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)


def free(kernel):
    """Names and values of the hyperparameters that may move both ways."""
    found = [(h.name, np.asarray(h.value, np.float64)) for h in kernel.hyperparameters]
    bounds = {h.name: h.bounds[0] for h in kernel.hyperparameters}
    found = [(name, value) for name, value in found if np.all(value != bounds[name])]
    return [name for name, _ in found], [value[()] for _, value in found]


def at(kernel, names, values):
    """The kernel with hyperparameters set; matrices stay symmetric."""
    values = [0.5 * (v + v.T) if np.ndim(v) == 2 else v for v in values]
    return kernel.set_params(**dict(zip(names, values, strict=True)))


# -- every kernel ---------------------------------------------------------------------------------------


@by_scenario
def test_first_and_second_order_of_every_kernel(scenario, rng):
    kernel = scenario.make()
    names, values = free(kernel)
    # Off the axes, where |x| and ratios of a zero row have kinks.
    X, Z = scenario.domain(rng, 3) + 0.05, scenario.domain(rng, 2) + 0.05
    check_derivative(lambda X, Z, *values: at(kernel, names, values)(X, Z), X, Z, *values)


FORMS = {
    "k(X)": lambda k, X, Z, V, v: k(X),
    # A normalised kernel's diagonal is constant; a factor gives differences something to hold on to.
    "diag": lambda k, X, Z, V, v: k.diag(X) * np.sum(X * X, axis=1),
    "product": lambda k, X, Z, V, v: k.gram(X, Z) @ V,
    "symmetric product": lambda k, X, Z, V, v: k.gram(X) @ v,
}
#: One of each way through: leaves, views with hyperparameters, row functions, blocks, slots.
SOME = ["linear-metric", "fourier-periods", "centered", "matern-0.7", "exp-dot-product", "composite"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(s, marks=() if s.name in SOME else pytest.mark.slow) for s in SCENARIOS],
    ids=lambda s: s.name,
)
def test_other_forms(form, scenario, rng):
    kernel = scenario.make()
    names, values = free(kernel)
    X, Z = scenario.domain(rng, 3) + 0.05, scenario.domain(rng, 2) + 0.05
    V, v = rng.normal(size=(2, 2)), rng.normal(size=3)

    def f(X, Z, V, v, *values):
        return FORMS[form](at(kernel, names, values), X, Z, V, v)

    check_derivative(f, X, Z, V, v, *values)


@by_scenario
def test_values_are_those_of_the_plain_kernel(scenario, rng):
    kernel = scenario.make()
    names, values = free(kernel)
    X, Z, v = scenario.domain(rng, 4), scenario.domain(rng, 3), rng.normal(size=3)
    k = at(kernel, names, values)
    expected = k(X, Z), k(X), k.diag(X), k.gram(X, Z) @ v, k.gram(X, Z).T @ expected_like(X)

    def f(X, *values):
        k = at(kernel, names, values)
        return k(X, Z), k(X), k.diag(X), k.gram(X, Z) @ v, k.gram(X, Z).T @ expected_like(X)

    for got, want in zip(ad.vjp(f, X, *values)[0], expected, strict=True):
        np.testing.assert_array_equal(got, want)


def expected_like(X):
    return np.linspace(-1.0, 1.0, len(X))


@by_scenario
def test_each_gradient_alone_is_that_of_the_whole_pullback(scenario, rng, monkeypatch):
    # What is not asked for is left out of the compiled calls; in strips of rows, too.
    monkeypatch.setattr("mercer.kernels.derivatives._STRIP_ENTRIES", 8)
    kernel = scenario.make()
    X, Z = scenario.domain(rng, 4), scenario.domain(rng, 3)
    for columns in (Z, None):
        G = rng.normal(size=(4, 4 if columns is None else 3))
        dX, dZ, dparams = kernel.pullback(X, columns, G)
        found = [
            (dX, ad.grad(lambda X, Z=columns, G=G: np.sum(G * kernel(X, Z)))(X)),
            (dZ, None if columns is None else ad.grad(lambda Z, G=G: np.sum(G * kernel(X, Z)))(Z)),
        ]
        for name, value in kernel.get_params().items():
            if name in dparams:
                value = np.asarray(value, np.float64)[()]

                def f(t, name=name, Z=columns, G=G):
                    return np.sum(G * kernel.set_params(**{name: t})(X, Z))

                found.append((dparams[name], ad.grad(f)(value)))
        for expected, alone in found:
            if expected is not None:
                np.testing.assert_allclose(alone, expected, rtol=1e-12, atol=1e-12)


FORMULAS = {
    "rbf": (lambda t: RBF(t), lambda s, p, t: np.exp(-t * s)),
    "length scale": (lambda t: RBF(length_scale=t), lambda s, p, t: np.exp(-s / (2 * t * t))),
    "rational quadratic": (
        lambda t: RationalQuadratic(0.75, t),
        lambda s, p, t: np.exp(-t * np.log(1 + s / (2 * t * 0.75**2))),
    ),
    "polynomial": (lambda t: Polynomial(3, gamma=t, coef0=0.5), lambda s, p, t: (t * p + 0.5) ** 3),
    "exp of a sum": (
        lambda t: (t * Linear() + RBF(t)).exp(),
        lambda s, p, t: np.exp(t * p + np.exp(-t * s)),
    ),
    "product": (lambda t: t * RBF(0.5) * Linear(), lambda s, p, t: t * np.exp(-0.5 * s) * p),
}


@pytest.mark.parametrize("name", FORMULAS)
@by_mode
def test_hessians_are_those_of_the_formula_in_numpy(name, mode, rng):
    make, formula = FORMULAS[name]
    X, Z, W = rng.normal(size=(3, 2)), rng.normal(size=(2, 2)), rng.normal(size=(3, 2))

    def by_kernel(u):
        return np.sum(W * make(u[6])(np.reshape(u[:6], (3, 2)), Z))

    def by_formula(u):
        X = np.reshape(u[:6], (3, 2))
        difference = np.reshape(X, (3, 1, 2)) - Z
        return np.sum(W * formula(np.sum(difference * difference, axis=2), X @ Z.T, u[6]))

    u = np.append(X, 0.6)
    np.testing.assert_allclose(ad.grad(by_kernel)(u), ad.grad(by_formula)(u), rtol=1e-11, atol=1e-13)
    expected = ad.hessian(by_formula, mode="forward-over-reverse")(u)
    np.testing.assert_allclose(ad.hessian(by_kernel, mode=mode)(u), expected, rtol=1e-10, atol=1e-12)


def test_the_hessian_of_a_sum_in_four_modes(rng):
    k = 0.5 * Matern(2.5, [0.75, 1.5]) + Polynomial(2).normalize()
    X, Z, v = rng.normal(size=(3, 2)), rng.normal(size=(2, 2)), rng.normal(size=2)
    functions = {
        "matrix": lambda X: np.sum(k(X, Z) @ v),
        "product": lambda X: np.sum(k.gram(X, Z) @ v),
        "turned": lambda X: np.sum(k.gram(Z, X).T @ v),
    }
    found = [ad.hessian(f, mode=mode)(X) for f in functions.values() for mode in MODES]
    for hessian in found:
        assert hessian.shape == (3, 2, 3, 2)
        np.testing.assert_allclose(hessian, found[0], rtol=1e-11, atol=1e-12)
    h, d = 1e-5, rng.normal(size=X.shape)
    gradient = ad.grad(functions["matrix"])
    difference = (gradient(X + h * d) - gradient(X - h * d)) / (2 * h)
    # central differences: h² and eps/h
    np.testing.assert_allclose(np.tensordot(found[0], d, 2), difference, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_chunks_of_directions_are_single_ones_side_by_side(mode, rng):
    X, v = rng.normal(size=(3, 2)), rng.normal(size=3)

    def f(X):
        return RBF(0.5)(X), Linear().gram(X) @ v

    for chunked, one in zip(
        ad.jacobian(f, mode=mode)(X), ad.jacobian(f, mode=mode, chunk_size=1)(X), strict=True
    ):
        np.testing.assert_array_equal(chunked, one)


@by_mode
def test_products_in_second_order_through_both_factors(mode, rng):
    # f(u) = ⟨C, K(X, θ) V⟩ with X, θ and V all moving, against the formed matrix.
    Z, C = rng.normal(size=(3, 2)), rng.normal(size=(2, 2))

    def f(u, formed):
        X, V = np.reshape(u[:4], (2, 2)), np.reshape(u[4:10], (3, 2))
        K = (u[10] * RBF(u[11])).gram(X, Z)
        return np.sum(C * ((K.formed() if formed else K) @ V) ** 2)

    u = np.append(rng.normal(size=10), [0.75, 0.5])
    expected = ad.hessian(lambda u: f(u, True))(u)
    np.testing.assert_allclose(
        ad.hessian(lambda u: f(u, False), mode=mode)(u), expected, rtol=1e-10, atol=1e-11
    )


# -- equal points ---------------------------------------------------------------------------------------


@by_mode
@pytest.mark.parametrize(
    ("kernel", "curvature"),
    [(RBF(0.5), 1.0), (Matern(1.5), 3.0), (Matern(2.5), 5 / 3), (Matern(3.5), 7 / 5)],
    ids=repr,
)
def test_second_order_at_equal_points(kernel, curvature, mode):
    # k = 1 − ½ c r² + …: gradient 0 and Hessian −c I.
    x = np.array([0.3, -0.2])
    f = lambda u: np.sum(kernel(np.reshape(u, (1, 2)), x[None]))  # noqa: E731
    np.testing.assert_array_equal(ad.grad(f)(x), 0.0)
    np.testing.assert_allclose(ad.hessian(f, mode=mode)(x), -curvature * np.eye(2), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("nu", [0.3, 0.5, 0.7, 1.2, 1.5, 2.5])
@pytest.mark.parametrize("distance", [1e-10, 1e-19, 1e-23, 1e-30])
def test_the_slope_of_float32_at_distances_whose_square_underflows(nu, distance):
    Z = np.array([[0.0, 0.0], [0.5, 0.1]], np.float32)
    X = np.array([[distance, 0.0]], np.float32)
    slopes = []
    for x, z in ((X, Z), (X.astype(float), Z.astype(float))):
        e = np.zeros_like(x)
        e[0, 0] = 1
        forward = ad.jvp(lambda x, z=z: Matern(nu)(x, z), (x,), (e,))[1][0, 0]
        assert ad.grad(lambda x, z=z: Matern(nu)(x, z)[0, 0])(x)[0, 0] == forward
        slopes.append(forward)
    assert slopes[0].dtype == np.float32
    assert slopes[0] < 0
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=8 * np.finfo(np.float32).eps)


@by_mode
@pytest.mark.parametrize("kernel", [Laplacian(0.5), Matern(0.5), Matern(0.3), ExpDotProduct(2.0)], ids=repr)
def test_kinks_at_equal_points_are_finite(kernel, mode, rng):
    X = rng.normal(size=(3, 2))
    X[2] = 0.0  # and a row whose norm has no derivative
    f = lambda X: np.sum(kernel(X))  # noqa: E731
    assert np.isfinite(ad.grad(f)(X)).all()
    assert np.isfinite(ad.hessian(f, mode=mode)(X)).all()
    g = lambda x: np.sum(kernel(x, X[:1]))  # noqa: E731
    if not isinstance(kernel, ExpDotProduct):
        np.testing.assert_array_equal(ad.grad(g)(X[:1]), 0.0)  # |δ| has derivative 0 at 0


def test_the_symmetric_call_is_the_sum_over_both_arguments(rng):
    X, G = rng.normal(size=(4, 2)), rng.normal(size=(4, 4))
    k = Matern(1.5) * Linear()
    total = ad.grad(lambda X: np.sum(G * k(X)))(X)
    np.testing.assert_allclose(ad.grad(lambda X: np.sum(G * k(X, X)))(X), total, rtol=1e-14)
    left, right = ad.grad(lambda X, Z: np.sum(G * k(X, Z)), (0, 1))(X, X.copy())
    np.testing.assert_allclose(left + right, total, rtol=1e-12, atol=1e-13)


# -- models ---------------------------------------------------------------------------------------------


def leave_one_out(X, y):
    """Mean squared leave-one-out error in (log γ, log α)."""

    def f(u):
        gamma, alpha = np.exp(u)
        return np.sum(ridge_loo(RBF(gamma)(X), y, alpha) ** 2) / len(y)

    return f


@pytest.fixture
def regression(rng):
    X = rng.uniform(-1.0, 1.0, size=(40, 2))
    return X, np.sin(3.0 * X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=40)


def test_gradient_of_the_leave_one_out_error(regression):
    f, u = leave_one_out(*regression), np.log([0.7, 0.05])
    gradient = ad.grad(f)(u)
    for i, direction in enumerate(np.eye(2)):
        h = 1e-5
        difference = (f(u + h * direction) - f(u - h * direction)) / (2 * h)
        assert gradient[i] == pytest.approx(difference, rel=1e-6)
    check_derivative(f, u)


def test_newton_on_the_leave_one_out_error(regression):
    f, u = leave_one_out(*regression), np.log([0.7, 0.05])
    errors = [f(u)]
    for _ in range(7):
        gradient, hessian = ad.grad(f)(u), ad.hessian(f)(u)
        values, vectors = np.linalg.eigh(hessian)
        # Newton's step with the curvatures made positive, one e-fold at most, halved until the error falls.
        step = -vectors @ ((vectors.T @ gradient) / np.abs(values))
        step = step / max(1.0, np.max(np.abs(step)))
        while f(u + step) > errors[-1] and np.max(np.abs(step)) > 1e-6:
            step = step / 2
        u = u + step
        errors.append(f(u))
    assert np.all(np.diff(errors) <= 1e-14)
    assert errors[-1] < 0.9 * errors[0]
    # The last steps square the error: that is an exact Hessian.
    assert np.max(np.abs(ad.grad(f)(u))) < 1e-12
    assert np.all(np.linalg.eigvalsh(ad.hessian(f)(u)) > 0)


def test_marginal_likelihood_of_a_gaussian_process(regression):
    # ∂/∂θ ½(yᵀG⁻¹y + log det G) = ½ tr((G⁻¹ − aaᵀ) ∂K/∂θ), a = G⁻¹y, in a length scale for each feature.
    X, y = regression

    def f(length_scale, noise):
        G = RBF(length_scale=length_scale)(X) + noise * np.eye(len(y))
        return 0.5 * (y @ np.linalg.solve(G, y) + np.linalg.slogdet(G)[1])

    scales, noise = np.array([0.6, 1.1]), 0.05
    by_scale, by_noise = ad.grad(f, (0, 1))(scales, noise)
    K = RBF(length_scale=scales)(X)
    inverse = np.linalg.inv(K + noise * np.eye(len(y)))
    a = inverse @ y
    W = 0.5 * (inverse - np.outer(a, a))
    expected = [
        np.sum(W * K * (X[:, j, None] - X[None, :, j]) ** 2) / scales[j] ** 3 for j in range(X.shape[1])
    ]
    np.testing.assert_allclose(by_scale, expected, rtol=1e-9)
    assert by_noise == pytest.approx(np.trace(W), rel=1e-9)
    check_derivative(f, scales, noise)


def test_inducing_points_are_learned_through_products(rng):
    # A Nyström-like cost in Z alone: its gradient through gram products is that through matrices.
    X, Z, y = rng.normal(size=(12, 2)), rng.normal(size=(3, 2)), rng.normal(size=12)
    k = RBF(0.5)

    def f(Z, formed):
        K = k(X, Z) if formed else k.gram(X, Z)
        b = K.T @ y
        return np.sum((K @ ridge(k(Z), b, 0.1) - y) ** 2)

    np.testing.assert_allclose(
        ad.grad(lambda Z: f(Z, False))(Z), ad.grad(lambda Z: f(Z, True))(Z), rtol=1e-11, atol=1e-13
    )
    check_derivative(lambda Z: f(Z, False), Z)


# -- kernels that hold traced hyperparameters -----------------------------------------------------------


def test_a_traced_hyperparameter_is_kept_as_given():
    plain = 0.5 * RBF(gamma=0.25) + Linear()

    def f(c, gamma):
        k = c * RBF(gamma=gamma) + Linear()
        assert k.k1.scale is c
        assert k.get_params()["k1__kernel__gamma"] is gamma
        assert (k == plain, hash(k) == hash(plain), repr(k) == repr(plain)) == (True, True, True)
        assert k.is_psd is True
        assert k.set_params(k1__kernel__gamma=0.25).k1.scale is c
        assert (np.float64(2.0) * k).scale == 2.0
        return np.sum(k(np.eye(2)))

    # k = 0.5 e^{−γ r²} + δ with r² = 2 off the diagonal: d/dc Σ = 2 + 2e^{−2γ}.
    dc, dgamma = ad.grad(f, (0, 1))(0.5, 0.25)
    assert dc == pytest.approx(2 + 2 * np.exp(-0.5), rel=1e-14)
    assert dgamma == pytest.approx(-2 * np.exp(-0.5), rel=1e-14)
    assert ad.jvp(f, (0.5, 0.25), (1.0, 0.0))[1] == pytest.approx(dc, rel=1e-14)


@pytest.mark.parametrize(
    ("make", "value", "match"),
    [
        (lambda t: RBF(-t), 0.5, "gamma must be positive"),
        (lambda t: t * Linear(), -1.0, "rule 2"),
        (lambda t: Polynomial(2, coef0=t), -1.0, "rule 4"),
        (lambda t: Linear(t), -np.eye(2), "positive semidefinite"),
        (lambda t: RBF(t)(np.ones((2, 3))), np.ones(2), "2 values of gamma"),
    ],
)
def test_hyperparameters_are_validated_on_their_values(make, value, match):
    with pytest.raises(ValueError, match=match):
        ad.grad(lambda t: np.sum(make(t)(np.ones((2, 2)))))(value)


def test_other_kinds_of_samples(rng):
    X, y = rng.normal(size=(5, 3)), rng.normal(size=5)
    S = sparse.csr_array(np.where(X > 0, X, 0.0))
    dense = ad.grad(lambda g: y @ RBF(g)(S.toarray()) @ y)(0.5)
    assert ad.grad(lambda g: y @ RBF(g)(S) @ y)(0.5) == pytest.approx(dense, rel=1e-12)
    assert ad.grad(lambda g: y @ (RBF(g).gram(S) @ y))(0.5) == pytest.approx(dense, rel=1e-12)
    words = ["abab", "baba", "aab"]
    assert ad.grad(lambda c: np.sum((c * Spectrum(2))(words)))(0.5) == np.sum(Spectrum(2)(words))
    counts = ad.grad(lambda M: np.sum(Finite(M, labels=["a", "b"])(["a", "b", "a"])))(np.eye(2))
    np.testing.assert_array_equal(counts, [[4.0, 2.0], [2.0, 1.0]])
    K = X @ X.T
    np.testing.assert_allclose(ad.grad(lambda K: np.sum(Precomputed()(K) ** 2))(K), 2 * K, rtol=1e-12)
    bilinear = FunctionKernel(lambda X, Z: X @ Z.T, lambda X, Z, G: (G @ Z, G.T @ X))
    np.testing.assert_allclose(
        ad.grad(lambda X: np.sum(bilinear(X)))(X),
        ad.grad(lambda X: np.sum(Linear()(X)))(X),
        rtol=1e-12,
    )


def test_float32_stays(rng):
    X = rng.normal(size=(4, 2)).astype(np.float32)
    v = rng.normal(size=4).astype(np.float32)
    for f in (lambda X: RBF(0.5)(X), lambda X: RBF(0.5).gram(X) @ v, lambda X: RBF(0.5).diag(X)):
        value, pullback = ad.vjp(f, X)
        assert value.dtype == np.float32
        assert pullback(np.ones_like(value))[0].dtype == np.float32
        assert ad.jvp(f, (X,), (X,))[1].dtype == np.float32
    assert ad.grad(lambda g: np.sum(RBF(g)(X)))(np.float32(0.5)).dtype == np.float32
    assert ad.grad(lambda g: np.sum(RBF(g)(X)))(0.5).dtype == np.float64


def test_the_operator_of_traced_values(rng):
    X, Z, w = rng.normal(size=(4, 2)), rng.normal(size=(3, 2)), rng.normal(size=4)
    k = RBF(0.5)

    def f(X):
        K = k.gram(X, Z)
        assert (K.shape, K.dtype, len(K), K.symmetric) == ((4, 3), np.float64, 4, False)
        full = k(X, Z)
        pairs = [
            (K.formed(), full),
            (K.rows([0, 2]), full[[0, 2]]),
            (K[1], full[1]),
            (K[1:3], full[1:3]),
            (w @ K, w @ full),
            (K.T @ w, full.T @ w),
            (K.diag(), np.stack([full[i, i] for i in range(3)])),
            (k.gram(X).diag(), k.diag(X)),
        ]
        return [np.sum(a**2) for a, _ in pairs], [np.sum(b**2) for _, b in pairs]

    for got, want in zip(*ad.jacobian(f, mode="reverse")(X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-13)
    # A plain operator and a traced factor, on either side.
    np.testing.assert_allclose(ad.jacobian(lambda v: k.gram(X, Z) @ v)(w[:3]), k(X, Z), rtol=1e-14)
    np.testing.assert_allclose(ad.jacobian(lambda v: v @ k.gram(X, Z))(w), k(X, Z).T, rtol=1e-14)


# -- memory ---------------------------------------------------------------------------------------------


def peak(f):
    tracemalloc.start()
    try:
        f()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_products_form_no_matrix_in_any_order(rng):
    n = 2000  # a matrix of 32 MB
    X, v = rng.normal(size=(n, 2)), rng.normal(size=n)
    f = lambda X: np.sum((RBF(0.5).gram(X) @ v) ** 2)  # noqa: E731
    assert peak(lambda: ad.grad(f)(X)) < 8e6
    assert peak(lambda: ad.hvp(f, X, X)) < 24e6  # strips of 8 MB, and the sums of a few


def test_a_kernel_is_gone_with_its_last_name():
    seen = []

    def f(gamma):
        k = RBF(gamma)
        seen.append(weakref.ref(k))
        return np.sum(k(np.eye(2)))

    gc.disable()
    try:
        ad.grad(f)(0.5)
        assert seen[0]() is None
    finally:
        gc.enable()


def test_nothing_waits_for_the_cycle_collector():
    def f(u):
        k = u[0] * RBF(u[1])
        a = ridge(k(X0), Y0, u[2])
        return np.sum(ridge_loo(k(X0), Y0, u[2]) ** 2) + a @ (k.gram(X0) @ a) + np.sum(k.diag(X0))

    u = np.array([1.0, 0.5, 0.1])
    derivatives = [
        lambda: ad.grad(f)(u),
        lambda: ad.jvp(f, (u,), (u,)),
        *(lambda mode=mode: ad.hvp(f, u, u, mode=mode) for mode in MODES),
    ]
    for derivative in derivatives:
        derivative()
        gc.collect()
        gc.disable()
        try:
            derivative()
            assert gc.collect() == 0
        finally:
            gc.enable()


# -- what cannot be followed ----------------------------------------------------------------------------

X0 = np.array([[0.0, 1.0], [2.0, 0.5], [1.0, 1.0]])
Y0 = np.array([1.0, -1.0, 1.0])


@pytest.mark.parametrize(
    ("f", "x", "match"),
    [
        (lambda X: KernelRidge().fit(X, Y0).dual_coef_, X0, r"X: it is traced.*mercer\.solvers\.ridge"),
        (lambda y: KernelRidge().fit(X0, y).dual_coef_, Y0, r"y: it is traced.*mercer\.solvers\.ridge"),
        (lambda g: KernelRidge(kernel=RBF(g)).fit(X0, Y0).dual_coef_, 0.5, "kernel: it is traced"),
        (lambda g: KernelRidge(kernel="rbf", gamma=g).fit(X0, Y0).dual_coef_, 0.5, "gamma: it is traced"),
        (lambda a: KernelRidge(alpha=a).fit(X0, Y0).dual_coef_, 0.5, "alpha: it is traced"),
        (lambda X: KernelRidge().fit(X0, Y0).predict(X), X0, "X: it is traced"),
        (lambda g: SVC(kernel=RBF(g)).fit(X0, Y0).dual_coef_, 0.5, "kernel: it is traced"),
        (lambda g: RBF(g).features(X0), 0.5, "hyperparameter of the kernel: it is traced"),
        (lambda g: RBF(g).pullback(X0, None, np.eye(3))[0], 0.5, "hyperparameter of the kernel"),
        (lambda X: RBF(0.5).center(X)(X0), X0, "the reference of center: it is traced"),
        (lambda g: RBF(g)(X0, out=np.empty((3, 3))), 0.5, "no memory of its own"),
        (lambda nu: Matern(nu)(X0), 1.5, "no derivative in nu"),
        (lambda d: Polynomial(d)(X0), 2.0, "no derivative in degree"),
        (lambda c: RBF(0.5).polynomial([c, 1.0])(X0), 0.5, r"np\.stack"),
    ],
)
def test_what_would_lose_the_derivative_is_refused(f, x, match):
    with pytest.raises(TypeError, match=match) as raised:
        ad.grad(lambda x: np.sum(f(x)))(x)
    assert "test_rules_kernels.py" in str(raised.value) or "composite.py" in str(raised.value)


def test_functions_without_derivatives_say_what_to_give():
    for kernel, match in [
        (RBF(0.5).modulate(lambda X: X[:, 0]), "gradient="),
        (FunctionKernel(lambda X, Z: X @ Z.T), "gradient="),
    ]:
        with pytest.raises(ValueError, match=match):
            ad.grad(lambda X, k=kernel: np.sum(k(X)))(X0)
        ad.grad(lambda c, k=kernel: np.sum((c * k)(X0)))(0.5)  # not needed here


def test_third_derivatives_are_refused():
    third = ad.grad(ad.grad(ad.grad(lambda g: np.sum(RBF(g)(X0)))))
    with pytest.raises(NotImplementedError, match="first and second order"):
        third(0.5)
    # What is linear goes on: V has no second derivative of its own.
    f = lambda g, v: np.sum((RBF(g).gram(X0) @ v) ** 2)  # noqa: E731
    mixed = ad.grad(lambda v: ad.grad(lambda g: ad.grad(f)(g, v))(0.5))(Y0)
    h = 1e-4
    second = [ad.hessian(f)(0.5, Y0 + h * e) - ad.hessian(f)(0.5, Y0 - h * e) for e in np.eye(3)]
    np.testing.assert_allclose(mixed, np.array(second) / (2 * h), rtol=1e-6, atol=1e-7)

"""Derivatives of kernels: forward against differences, reverse against forward, second order against first.

The directional derivative is compared with central differences of the 50-digit values, whose error falls
with h²; the pullback with the directional derivative by ⟨G, K̇⟩ = ⟨dX, tX⟩ + …; the second order with
differences of the pullback.
"""

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import sparse

from mercer.kernels import RBF, ExpDotProduct, Fourier, Laplacian, Linear, Matern, Polynomial
from scenarios import SCENARIOS

by_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
symmetric_or_not = pytest.mark.parametrize("symmetric", [False, True], ids=["X,Z", "X"])


def direction(kernel, rng):
    """A random direction in the hyperparameters."""
    out = {}
    for h in kernel.hyperparameters:
        # A parameter at its bound has no difference quotient from both sides.
        t = rng.normal(size=np.shape(h.value)) * (np.asarray(h.value) != h.bounds[0])
        if np.ndim(t) == 2:
            t = t + t.T  # a metric stays symmetric
        out[h.name] = t if np.ndim(t) else float(t)
    return out


def moved(kernel, tparams, h):
    """The kernel with its hyperparameters moved by h along a direction."""
    values = {p.name: p.value for p in kernel.hyperparameters}
    return kernel.set_params(
        **{name: np.asarray(values[name]) + h * np.asarray(t) for name, t in tparams.items()}
    )


def samples(scenario, rng, symmetric):
    X = scenario.domain(rng, 5)
    Z = None if symmetric else scenario.domain(rng, 4)
    tX = rng.normal(size=X.shape)
    tZ = None if symmetric else rng.normal(size=Z.shape)
    return X, Z, tX, tZ


def shifted(A, tA, h):
    return None if A is None else A + h * tA


def inner(gradients, tangents):
    """⟨dX, tX⟩ + ⟨dZ, tZ⟩ + Σ ⟨dθ, tθ⟩."""
    (dX, dZ, dparams), (tX, tZ, tparams) = gradients, tangents
    total = np.sum(dX * tX) + (0.0 if tZ is None else np.sum(dZ * tZ))
    return total + sum(np.sum(dparams[name] * tparams[name]) for name in tparams)


def assert_error_falls(f, derivative, steps, noise):
    """Central differences approach a derivative as h², until rounding (noise/h) takes over."""
    errors = []
    for h in steps:
        errors.append(np.abs((f(h) - f(-h)) / (2 * h) - derivative).max())
    size = max(1.0, np.abs(derivative).max())
    for before, after in pairwise(errors):
        assert after <= 0.35 * before + noise * size / steps[-1], errors
    assert errors[-1] <= 1e-4 * size, errors


@by_scenario
@symmetric_or_not
def test_pushforward_against_differences(scenario, symmetric, rng):
    kernel = scenario.make()
    X, Z, tX, tZ = samples(scenario, rng, symmetric)
    tparams = direction(kernel, rng)

    def f(h):
        return moved(kernel, tparams, h)(shifted(X, tX, h), shifted(Z, tZ, h))

    K_dot = kernel.pushforward(X, Z, tX, tZ, tparams)
    assert_error_falls(f, K_dot, [1e-3, 2.5e-4, 6.25e-5], noise=1e-12)


@by_scenario
@symmetric_or_not
def test_pullback_is_the_transpose_of_pushforward(scenario, symmetric, rng):
    kernel = scenario.make()
    X, Z, tX, tZ = samples(scenario, rng, symmetric)
    tparams = direction(kernel, rng)
    K_dot = kernel.pushforward(X, Z, tX, tZ, tparams)
    G = rng.normal(size=K_dot.shape)
    gradients = kernel.pullback(X, Z, G)
    assert gradients[0].shape == X.shape
    assert (gradients[1] is None) == symmetric
    assert set(gradients[2]) == {h.name for h in kernel.hyperparameters}
    forward = np.sum(G * K_dot)
    scale = np.abs(G * K_dot).sum() + 1.0
    assert inner(gradients, (tX, tZ, tparams)) == pytest.approx(forward, abs=1e-12 * scale)
    # Each hyperparameter and each side alone, so that nothing hides in the sum.
    for name, t in tparams.items():
        forward = np.sum(G * kernel.pushforward(X, Z, tparams={name: t}))
        assert np.sum(gradients[2][name] * t) == pytest.approx(forward, abs=1e-12 * scale)


@by_scenario
@symmetric_or_not
def test_second_order_against_differences(scenario, symmetric, rng):
    kernel = scenario.make()
    X, Z, tX, tZ = samples(scenario, rng, symmetric)
    tparams = direction(kernel, rng)
    G = rng.normal(size=(len(X), len(X if symmetric else Z)))
    second = kernel.pullback_pushforward(X, Z, G, tX, tZ, tparams)

    def f(h):
        first = moved(kernel, tparams, h).pullback(shifted(X, tX, h), shifted(Z, tZ, h), G)
        return flat(first)

    assert_error_falls(f, flat(second), [1e-3, 2.5e-4, 6.25e-5], noise=1e-12)


def flat(gradients):
    dX, dZ, dparams = gradients
    parts = [dX, np.zeros(0) if dZ is None else dZ, *(np.asarray(d) for d in dparams.values())]
    return np.concatenate([np.ravel(p) for p in parts])


@by_scenario
def test_second_order_is_symmetric(scenario, rng):
    kernel = scenario.make()
    X, Z, tX, tZ = samples(scenario, rng, False)
    _, _, uX, uZ = samples(scenario, rng, False)
    t, u = direction(kernel, rng), direction(kernel, rng)
    G = rng.normal(size=(len(X), len(Z)))
    one = inner(kernel.pullback_pushforward(X, Z, G, tX, tZ, t), (uX, uZ, u))
    other = inner(kernel.pullback_pushforward(X, Z, G, uX, uZ, u), (tX, tZ, t))
    assert one == pytest.approx(other, rel=1e-9, abs=1e-9)


@by_scenario
def test_the_symmetric_case_is_the_sum_over_both_arguments(scenario, rng):
    kernel = scenario.make()
    X = scenario.domain(rng, 5)
    G = rng.normal(size=(5, 5))
    dX, _, dparams = kernel.pullback(X, None, G)
    left, right, both = kernel.pullback(X, X, G)
    np.testing.assert_allclose(dX, left + right, rtol=1e-10, atol=1e-10)
    for name in dparams:
        np.testing.assert_allclose(dparams[name], both[name], rtol=1e-9, atol=1e-9)


@by_scenario
def test_a_low_rank_cotangent_needs_no_matrix(scenario, rng):
    kernel = scenario.make()
    X, Z = scenario.domain(rng, 5), scenario.domain(rng, 4)
    C, V = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    dX, dZ, dparams, dV = kernel.gram(X, Z).pullback(V, C)
    expected = kernel.pullback(X, Z, C @ V.T)
    np.testing.assert_allclose(dX, expected[0], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(dZ, expected[1], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(dV, kernel(X, Z).T @ C, rtol=1e-10, atol=1e-11)
    for name in dparams:
        np.testing.assert_allclose(dparams[name], expected[2][name], rtol=1e-10, atol=1e-11)
    dX, dZ, dparams, _ = kernel.gram(X).pullback(C, C[::-1])
    expected = kernel.pullback(X, None, C[::-1] @ C.T)
    assert dZ is None
    np.testing.assert_allclose(dX, expected[0], rtol=1e-10, atol=1e-11)
    for name in dparams:
        np.testing.assert_allclose(dparams[name], expected[2][name], rtol=1e-10, atol=1e-11)


@by_scenario
def test_pushforward_against_exact_differences(scenario, rng):
    # One pair; differences of the 50-digit values at an h that leaves only mercer's own error.
    kernel = scenario.make()
    x, z, t = scenario.domain(rng, 1), scenario.domain(rng, 1), rng.normal(size=(1, 3))
    with mpmath.workdps(50):
        h = mpmath.mpf(10) ** -20
        ahead, behind = (
            [a + sign * h * b for a, b in zip(*map(_mpf, (x[0], t[0])), strict=True)] for sign in (1, -1)
        )
        expected = float((scenario.exact(ahead, _mpf(z[0])) - scenario.exact(behind, _mpf(z[0]))) / (2 * h))
    assert kernel.pushforward(x, z, tX=t)[0, 0] == pytest.approx(expected, rel=1e-12, abs=1e-13)


def _mpf(values):
    return [mpmath.mpf(float(v)) for v in values]


# ---------------------------------------------------------------- equal points and the ends of the range


SMOOTH = [RBF(0.7), RBF(length_scale=[0.5, 1.0, 2.0]), Matern(1.5), Matern(2.5), Matern(3.3), Matern(70.0)]


@pytest.mark.parametrize(
    "kernel", [*SMOOTH, Matern(0.5), Matern(0.3), Laplacian(), ExpDotProduct(2.0)], ids=repr
)
def test_equal_points_have_zero_gradient(kernel, rng):
    X = rng.normal(size=(3, 3))
    dX, dZ, dparams = kernel.pullback(X, X.copy(), np.eye(3))
    if not isinstance(kernel, ExpDotProduct):
        np.testing.assert_array_equal(dX, 0.0)
        np.testing.assert_array_equal(dZ, 0.0)
        assert all(np.all(d == 0) for d in dparams.values())
    second = kernel.pullback_pushforward(X, X.copy(), np.eye(3), rng.normal(size=X.shape))
    assert np.isfinite(flat(second)).all()


@pytest.mark.parametrize(
    ("kernel", "curvature"), [(Matern(1.5), 3.0), (Matern(2.5), 5 / 3), (Matern(3.5), 7 / 5)]
)
def test_matern_curves_as_it_should_at_equal_points(kernel, curvature):
    # k = 1 − ½ ν/(ν−1) r² + …
    X = np.array([[0.3, -0.2]])
    t = np.array([[1.0, 2.0]])
    tdX, _, _ = kernel.pullback_pushforward(X, X.copy(), [[1.0]], t)
    np.testing.assert_allclose(tdX, -curvature * t, rtol=1e-12)


def test_zero_rows_and_zero_coefficients():
    X, Z = np.array([[0.0, 0.0], [1.0, 2.0]]), np.array([[1.0, -1.0], [0.0, 0.0]])
    for kernel in (ExpDotProduct(2.0), Linear().normalize()):
        gradients = kernel.pullback(X, Z, np.ones((2, 2)))
        assert np.isfinite(flat(gradients)).all()
        np.testing.assert_array_equal(gradients[0][0], 0.0)
    # d/dc ((s + c)² − c²) = 2s at c = 0.
    _, _, dparams = Polynomial(2, coef0=0.0, include_bias=False).pullback([[2.0]], [[3.0]], [[1.0]])
    assert dparams["coef0"] == pytest.approx(12.0)
    _, _, dparams = (0.0 * RBF()).pullback([[0.0]], [[1.0]], [[1.0]])
    assert dparams["scale"] == pytest.approx(np.exp(-1.0))
    _, _, dparams = RBF().polynomial([0.0, 0.0, 0.0]).pullback([[0.0]], [[1.0]], [[1.0]])
    np.testing.assert_allclose(dparams["coefficients"], np.exp([0.0, -1.0, -2.0]))


VANISHED = [RBF(length_scale=1e-160), Matern(2.5, 1e-160), Matern(1.7, 1e-160), RBF(1e300)]


def test_no_nan_where_the_value_has_vanished():
    # G30 (e): the derivative in log ℓ of a kernel that has decayed to nothing is 0.
    for kernel in VANISHED:
        dX, dZ, dparams = kernel.pullback([[0.0]], [[1.0]], [[1.0]])
        for value in (dX, dZ, *dparams.values()):
            np.testing.assert_array_equal(value, 0.0)


def test_no_nan_forward_or_in_second_order_where_the_value_has_vanished():
    for kernel in VANISHED:
        h = kernel.hyperparameters[0]
        tangents = {"tX": [[1.0]], "tparams": {h.name: h.value}}
        np.testing.assert_array_equal(kernel.pushforward([[0.0]], [[1.0]], **tangents), 0.0)
        tdX, tdZ, tdparams = kernel.pullback_pushforward([[0.0]], [[1.0]], [[1.0]], **tangents)
        for value in (tdX, tdZ, *tdparams.values()):
            np.testing.assert_array_equal(value, 0.0)


@pytest.mark.parametrize("kernel", [Linear(), RBF(0.5), Polynomial(2) * RBF(0.1), Matern(0.8)], ids=repr)
def test_gradients_have_the_type_of_the_samples(kernel, rng):
    X, Z = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    G = rng.normal(size=(4, 5))
    expected = kernel.pullback(X, Z, G)
    single = kernel.pullback(X.astype(np.float32), Z.astype(np.float32), G)
    assert single[0].dtype == single[1].dtype == np.float32
    np.testing.assert_allclose(single[0], expected[0], rtol=1e-4, atol=1e-5)
    dense = kernel.pullback(sparse.csr_array(X), sparse.csr_array(Z), G)
    np.testing.assert_allclose(dense[0], expected[0], rtol=1e-12)
    assert kernel.pushforward(X.astype(np.float32), Z.astype(np.float32), X).dtype == np.float32
    whole = kernel.pullback([[1, 2]], [[0, 1]], [[1]])
    assert whole[0].dtype == np.float64


def test_hyperparameters_in_nested_places(rng):
    X = rng.normal(size=(4, 2))
    kernel = (2.0 * RBF(0.5) + Fourier(2, [1.0, 2.0]).on([1, 0]) * Linear()).normalize()
    _, _, dparams = kernel.pullback(X, None, np.ones((4, 4)))
    assert set(dparams) == {
        "kernel__k1__scale",
        "kernel__k1__kernel__gamma",
        "kernel__k2__k1__kernel__period",
    }
    assert dparams["kernel__k2__k1__kernel__period"].shape == (2,)
    assert isinstance(dparams["kernel__k1__scale"], float)


# ---------------------------------------------------------------- errors


def test_what_does_not_fit_is_refused(rng):
    X, kernel = rng.normal(size=(3, 2)), RBF()
    with pytest.raises(ValueError, match=r"G must have the shape \(3, 3\)"):
        kernel.pullback(X, None, np.ones((3, 2)))
    with pytest.raises(ValueError, match="in the symmetric case tX moves both"):
        kernel.pushforward(X, None, X, X)
    with pytest.raises(ValueError, match=r"tX must have the shape \(3, 2\)"):
        kernel.pushforward(X, None, X[:2])
    with pytest.raises(ValueError, match="'gama' is no differentiable hyperparameter"):
        kernel.pushforward(X, None, X, tparams={"gama": 1.0})
    with pytest.raises(ValueError, match=r"tparams\['gamma'\] must have the shape \(\)"):
        kernel.pushforward(X, None, X, tparams={"gamma": [1.0, 2.0]})


def test_a_user_function_without_gradient_says_so(rng):
    X = rng.normal(size=(3, 2))
    with pytest.raises(ValueError, match="gradient="):
        RBF().modulate(lambda X: X[:, 0]).pullback(X, None, np.eye(3))
    half = RBF().modulate(lambda X: X[:, 0], lambda X: np.eye(2)[[0, 0, 0]])
    assert half.pullback(X, None, np.eye(3))[0].shape == (3, 2)
    with pytest.raises(ValueError, match="hessian_product="):
        half.pullback_pushforward(X, None, np.eye(3), X)


# ---------------------------------------------------------------- strips, and the end of the range


@pytest.mark.parametrize("name", ["composite-block", "matern-3.25-ard"])
@symmetric_or_not
def test_strips_of_rows_add_up(name, symmetric, rng, monkeypatch):
    scenario = next(s for s in SCENARIOS if s.name == name)
    kernel = scenario.make() + Linear(np.eye(3)) * Fourier(2, 1.5).normalize() * RBF(0.5).center(np.eye(3))
    X, Z, tX, tZ = samples(scenario, rng, symmetric)
    tparams = direction(kernel, rng)
    G = rng.normal(size=(len(X), len(X if symmetric else Z)))

    def everything():
        return (
            kernel.pushforward(X, Z, tX, tZ, tparams).ravel(),
            flat(kernel.pullback(X, Z, G)),
            flat(kernel.pullback_pushforward(X, Z, G, tX, tZ, tparams)),
        )

    whole = everything()
    monkeypatch.setattr("mercer.kernels.derivatives._STRIP_ENTRIES", 10)
    for part, expected in zip(everything(), whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-11, atol=1e-11)


def test_derivatives_of_an_overflowing_fourier_kernel_say_so(rng):
    X = rng.random((3, 500))
    with pytest.raises(ValueError, match=r"401\^500.*normalize"):
        Fourier(200).pullback(X, None, np.ones((3, 3)))
    with pytest.raises(ValueError, match="normalize"):
        Fourier(200).pushforward(X, None, X)
    with pytest.raises(ValueError, match="normalize"):
        Fourier(200).pullback_pushforward(X, None, np.ones((3, 3)), X)
    assert np.isfinite(Fourier(200).normalize().pullback(X, None, np.ones((3, 3)))[0]).all()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"G": 1j * np.eye(2)}, "G must hold real numbers, got dtype complex128"),
        ({"G": "words"}, "G must hold real numbers, got dtype <U5"),
        ({"tX": 1j * np.ones((2, 3))}, "tX must hold real numbers"),
        ({"tparams": {"gamma": 1j}}, r"tparams\['gamma'\] must hold real numbers"),
    ],
)
def test_cotangents_and_tangents_are_real(arguments, match):
    arguments = {"G": np.eye(2), **arguments}
    with pytest.raises(ValueError, match=match):
        RBF().pullback_pushforward(np.ones((2, 3)), None, **arguments)


def test_a_sparse_tangent_is_a_tangent(rng):
    X, tX = rng.random((4, 3)), sparse.csr_array(rng.random((4, 3)))
    np.testing.assert_array_equal(
        RBF().pushforward(sparse.csr_array(X), None, tX), RBF().pushforward(X, None, tX.toarray())
    )


def test_a_packed_cotangent_is_read_where_it_lies(rng):
    X, G = rng.random((3, 2)), rng.random((3, 3))
    packed = np.zeros(3, dtype=[("G", "f8", (3,)), ("flag", "i1")])
    packed["G"] = G
    np.testing.assert_array_equal(RBF().pullback(X, None, packed["G"])[0], RBF().pullback(X, None, G)[0])


def test_a_derivative_matrix_beyond_memory_is_refused_first():
    X = np.zeros((10**6, 1))
    with pytest.raises(ValueError, match=r"a 1000000 x 1000000 kernel matrix of float64 needs 8 TB"):
        RBF().pushforward(X, None, X)

"""The second derivative along two directions: against the compiled second order, and against differences."""

import numpy as np
import pytest

from mercer.kernels import RBF, Finite, FunctionKernel, Matern, Polynomial, bilinear
from scenarios import SCENARIOS, real

by_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
symmetric_or_not = pytest.mark.parametrize("symmetric", [False, True], ids=["X,Z", "X"])


def direction(kernel, X, Z, rng):
    """A random direction in samples and hyperparameters."""
    params = {}
    for h in kernel.hyperparameters:
        t = rng.normal(size=np.shape(h.value))
        params[h.name] = t + t.T if np.ndim(t) == 2 else t
    return rng.normal(size=X.shape), None if Z is None else rng.normal(size=Z.shape), params


def inner(gradients, tangents):
    (dX, dZ, dparams), (tX, tZ, tparams) = gradients, tangents
    total = np.sum(dX * tX) + (0.0 if tZ is None else np.sum(dZ * tZ))
    return total + sum(np.sum(dparams[name] * tparams[name]) for name in tparams)


@by_scenario
@symmetric_or_not
def test_agrees_with_the_compiled_second_order(scenario, symmetric, rng):
    # ⟨G, D²K[t, s]⟩ is ⟨D∇⟨G, K⟩[t], s⟩, of which the other side comes from the tile engine.
    kernel, X = scenario.make(), scenario.domain(rng, 5)
    Z = None if symmetric else scenario.domain(rng, 4)
    t, s = direction(kernel, X, Z, rng), direction(kernel, X, Z, rng)
    second = kernel.second_pushforward(X, Z, t, s)
    G = rng.normal(size=second.shape)
    expected = inner(kernel.pullback_pushforward(X, Z, G, *t), s)
    scale = np.sum(np.abs(G * second)) + 1.0
    assert np.sum(G * second) == pytest.approx(expected, abs=1e-12 * scale)


@symmetric_or_not
def test_against_differences_of_the_pushforward(symmetric, rng):
    kernel = 0.5 * RBF([0.5, 1.0, 2.0]) + Polynomial(3) * Matern(2.5, 0.75).normalize()
    X, Z = real(rng, 5), None if symmetric else real(rng, 4)
    t, s = direction(kernel, X, Z, rng), direction(kernel, X, Z, rng)
    values = {h.name: np.asarray(h.value) for h in kernel.hyperparameters}

    def pushed(h):
        moved = kernel.set_params(**{name: values[name] + h * s[2][name] for name in values})
        return moved.pushforward(X + h * s[0], None if Z is None else Z + h * s[1], *t)

    h = 1e-4
    expected = (pushed(h) - pushed(-h)) / (2 * h)
    # h² times a third derivative of some 1e2
    np.testing.assert_allclose(kernel.second_pushforward(X, Z, t, s), expected, rtol=1e-4, atol=1e-4)


def test_strips_give_what_one_piece_gives(rng, monkeypatch):
    kernel = (Matern(0.7) + RBF(0.5)).center(real(rng, 3))
    X, Z = real(rng, 7), real(rng, 4)
    t, s = direction(kernel, X, Z, rng), direction(kernel, X, Z, rng)
    whole = kernel.second_pushforward(X, Z, t, s)
    monkeypatch.setattr(bilinear, "_STRIP_ENTRIES", 24)
    np.testing.assert_array_equal(kernel.second_pushforward(X, Z, t, s), whole)


def test_missing_parts_are_zeros(rng):
    kernel, X, Z = RBF(0.5), real(rng, 4), real(rng, 3)
    tX, sZ = rng.normal(size=X.shape), rng.normal(size=Z.shape)
    short = kernel.second_pushforward(X, Z, (tX, None, None), (None, sZ, None))
    zeros = np.zeros_like
    full = kernel.second_pushforward(X, Z, (tX, zeros(Z), {"gamma": 0.0}), (zeros(X), sZ, {"gamma": 0.0}))
    np.testing.assert_allclose(short, full, rtol=1e-14)


def test_float32_stays(rng):
    X = real(rng, 4).astype(np.float32)
    t = (rng.normal(size=X.shape), None, None)
    assert RBF(0.5).second_pushforward(X, None, t, t).dtype == np.float32


def test_discrete_samples_move_the_matrix_alone(rng):
    kernel = Finite([[2.0, 1.0], [1.0, 3.0]]).polynomial([0.0, 0.0, 1.0])
    t, s = np.array([[1.0, 0.5], [0.5, 2.0]]), np.eye(2)
    name = "kernel__matrix"
    second = kernel.second_pushforward([0, 1, 1], None, (None, None, {name: t}), (None, None, {name: s}))
    np.testing.assert_allclose(second, (2.0 * t * s)[np.ix_([0, 1, 1], [0, 1, 1])])  # D²(M²) = 2 t s


def test_a_function_has_no_second_derivative(rng):
    kernel = FunctionKernel(lambda X, Z: X @ Z.T, lambda X, Z, G: (G @ Z, G.T @ X))
    X = real(rng, 3)
    t = (rng.normal(size=X.shape), None, None)
    with pytest.raises(ValueError, match="no second derivative"):
        kernel.second_pushforward(X, None, t, t)
    np.testing.assert_array_equal(kernel.second_pushforward(X, None, t, (None, None, None)), 0.0)

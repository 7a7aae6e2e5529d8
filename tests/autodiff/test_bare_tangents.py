"""Where nobody reads the values of cotangents, a Hessian-vector product holds tangents alone.

The other nestings of the modes hold both, and must agree.
"""

import numpy as np
import pytest

import mercer.autodiff as ad

OTHERS = ("reverse-over-forward", "reverse-over-reverse", "forward-over-forward")

C = np.random.default_rng(1).uniform(0.5, 1.5, (4, 3))
A = np.random.default_rng(2).standard_normal((3, 3))

#: Of x (4, 3): where operations meet of which one argument's cotangent is read and the other's is not.
FUNCTIONS = {
    "sum with a linear term": lambda x: np.sum((np.sin(x) + x) ** 3),
    "linear term first": lambda x: np.sum((x + np.sin(x)) * np.cos(x)),
    "difference": lambda x: np.sum((x - np.sin(x)) * (np.exp(x) - 2 * x)),
    "same twice": lambda x: np.sum((x + x) * (x - 0.5 * x) - x * x),
    "product with a linear term": lambda x: np.sum(x * np.sin(C * x) * x),
    "quotient": lambda x: np.sum((C * x) / (1 + x * x) / C),
    "negative": lambda x: np.sum(np.exp(-x) * np.negative(-x)),
    "linear": lambda x: np.sum(C * x) - 3 * x[0, 1],
    "linear after a slope": lambda x: 2 * np.sum(np.sin(x) @ A - C),
    "broadcast": lambda x: np.sum(np.tanh(x[:, None, :] - x[None]) ** 2 * x[:, None, :1]),
    "column plus nonlinear": lambda x: np.sum(np.exp(x[:, :1] + np.sin(x)) / (x[0] + 9)),
    "number": lambda x: np.sum(x[0, 0] * np.sin(x[1, 1] * C)) * x[2, 2] + x[0, 0],
    "products of matrices": lambda x: np.sum(np.tanh(C.T @ x @ A) @ x.T),
    "matrix twice": lambda x: np.sum((x @ x.T) @ x * C),
    "network": lambda x: np.sum(np.tanh(np.tanh(C @ x.T + x[:, 0]) @ x + x[0]) ** 2),
    "extremum": lambda x: np.sum(np.maximum(x, np.sin(3 * x)) * np.minimum(x, 0.3) * x),
    "power": lambda x: np.sum(x**2 * np.abs(x) ** 1.5) + np.sum(np.power(1 + x * x, x)),
    "joined": lambda x: np.sum(np.concatenate([x, np.sin(x)]) ** 3 * np.stack([x, C]).reshape(8, 3)),
    "chosen": lambda x: np.sum(np.where(x > 0, x, np.exp(x)) * x + x[[0, 0, 2, 1]] ** 2 * x),
    "sums": lambda x: np.sum(x, axis=0) @ np.sum(x * x, axis=0) + np.mean(x) * np.sum(x[1:3] * C[:2]),
    "assigned": lambda x: _assigned(x),
    "two outputs": lambda x: np.sum(np.linalg.eigh(x.T @ x + np.diag([1.0, 2.0, 4.0]))[0] ** 2 * x[0]),
    "not of x": lambda x: 3.0,
}


def _assigned(x):
    y = np.zeros_like(x)
    y[1:] = x[:-1] * C[1:]
    y[0] = np.sin(x[0])
    return np.sum(y * y * x)


@pytest.fixture
def point():
    return np.random.default_rng(0).standard_normal((2, 4, 3))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_products_are_those_of_the_other_modes(point, name):
    x, v = point
    f = FUNCTIONS[name]
    found = ad.hvp(f, x, v)
    assert found.shape == x.shape
    assert found.flags.owndata
    assert found.flags.writeable
    for mode in OTHERS:
        np.testing.assert_allclose(found, ad.hvp(f, x, v, mode=mode), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_products_are_differentiated_themselves(point, name):
    """Levels below the pushed one stand in what is held."""
    x, v = point
    f = FUNCTIONS[name]
    product = lambda x, mode: np.sum(C * ad.hvp(f, x, v, mode=mode))  # noqa: E731
    for derivative in (
        lambda mode: ad.grad(product)(x, mode),
        lambda mode: ad.jvp(lambda x: product(x, mode), (x,), (C,))[1],
        lambda mode: ad.hvp(lambda x: product(x, mode), x, C),
    ):
        exact = derivative("reverse-over-forward")
        np.testing.assert_allclose(derivative("forward-over-reverse"), exact, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_leaves_of_a_tree_keep_their_types(point, dtype):
    x, v = point.astype(dtype)
    tree, directions = {"a": x, "b": x[0, 0]}, {"a": v, "b": v[0, 0]}
    f = lambda t: np.sum(np.tanh(t["a"] * t["b"]) + t["a"] * t["a"])  # noqa: E731
    found, other = (ad.hvp(f, tree, directions, mode=mode) for mode in ("forward-over-reverse", OTHERS[0]))
    for key in "ab":
        assert found[key].dtype == dtype
        np.testing.assert_allclose(found[key], other[key], rtol=32 * np.finfo(dtype).eps, atol=1e-6)


def test_a_vector_that_does_not_fit_is_told():
    with pytest.raises(ValueError, match=r"tangent 0 has shape \(2,\)"):
        ad.hvp(lambda x: np.sum(x * x), np.ones(3), np.ones(2))

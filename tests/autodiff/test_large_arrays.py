"""Of large arrays the tape keeps less, and the sweep writes where it may: derivatives are those of the parts.

Functions that are sums over entries are differentiated whole, above the lengths from which these paths are
taken, and in short pieces.
"""

import numpy as np
import pytest

import mercer.autodiff as ad

N, PIECE = 18000, 1000
MODES = ("forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")


def once_more(x, c):
    """The same cotangent goes to two arguments, which must not write into it."""
    y = np.sin(x)
    z = y - 0.5 * x
    return (y + z) - (z - y) * c


FUNCTIONS = {
    "exp": lambda x, c: np.exp(-0.5 * x),
    "tanh": lambda x, c: np.tanh(x) * c,
    "sqrt": lambda x, c: np.sqrt(x) * x,
    "tan": lambda x, c: np.tan(0.2 * x),
    "reciprocal": lambda x, c: np.reciprocal(1 + x * x),
    "number times array": lambda x, c: 2.0 * (c * x) * 3,
    "array times array": lambda x, c: (x * c) * (x * x),
    "differences": lambda x, c: (c - x) - (x - c) - (1.0 - x * x),
    "same twice": lambda x, c: (x - x * x) + (x * x - x) * x - (x - x),
    "quotient": lambda x, c: (c - x) / (1.0 + x * x),
    "shared": once_more,
}


def total(f, weights, c):
    return lambda x: np.sum(weights * f(x, c))


def in_pieces(derivative, f, *arrays):
    """Return a derivative of Σ weights · f(x, c), computed for a short piece after the other."""
    return np.concatenate(
        [
            derivative(
                total(f, *(a[i : i + PIECE] for a in arrays[:2])), *(a[i : i + PIECE] for a in arrays[2:])
            )
            for i in range(0, N, PIECE)
        ]
    )


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    weights, c, x, v = rng.uniform(0.2, 1.7, (4, N))
    weights[::7] = 0.0
    return weights, c, x, v


def gradient(f, x, v):
    return ad.grad(f)(x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_the_pieces(arrays, name):
    f = FUNCTIONS[name]
    whole = total(f, *arrays[:2])
    exact = in_pieces(gradient, f, *arrays)
    np.testing.assert_allclose(ad.grad(whole)(arrays[2]), exact, rtol=1e-13, atol=1e-15)
    value, pullback = ad.vjp(lambda x: f(x, arrays[1]), arrays[2])
    cotangent = arrays[0].copy()
    for _ in range(2):  # a tape may be swept again, and a cotangent is the caller's
        np.testing.assert_allclose(pullback(cotangent)[0], exact, rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(cotangent, arrays[0])
    np.testing.assert_array_equal(value, f(arrays[2], arrays[1]))
    for mode in MODES:
        product = lambda g, x, v, mode=mode: ad.hvp(g, x, v, mode=mode)  # noqa: E731
        np.testing.assert_allclose(
            product(whole, *arrays[2:]), in_pieces(product, f, *arrays), rtol=1e-12, atol=1e-14
        )


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_other_types(arrays, dtype):
    weights, c, x, _ = (a.astype(dtype) for a in arrays)
    f = lambda x: np.real(np.sum(weights * np.exp(0.5 * x) * np.tanh(c * x)))  # noqa: E731
    pieces = [slice(i, i + PIECE) for i in range(0, N, PIECE)]
    parts = [
        ad.grad(lambda x, i=i: np.real(np.sum(weights[i] * np.exp(0.5 * x) * np.tanh(c[i] * x))))(x[i])
        for i in pieces
    ]
    result = ad.grad(f)(x)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, np.concatenate(parts), rtol=16 * np.finfo(dtype).eps)


def test_the_derivative_in_a_number_times_an_array(arrays):
    weights, c, x, _ = arrays
    weights = weights.copy()
    weights[3], x = 0.0, x.copy()
    x[3] = np.inf  # a zero cotangent stays zero

    def f(s):
        scaled = s * x
        return np.sum(np.where(weights > 0, scaled, 0.0) * weights) + np.sum(s * c) * s

    exact = np.sum(weights[weights > 0] * x[weights > 0]) + 2 * 1.5 * np.sum(c)
    assert ad.grad(f)(1.5) == pytest.approx(exact, rel=1e-12)
    assert ad.hvp(f, 1.5, 1.0) == pytest.approx(2 * np.sum(c), rel=1e-12)


def test_chunks_of_directions(arrays):
    weights, c, x, _ = arrays
    f = lambda s: np.stack([np.sum(weights * np.exp(s[0] * x)), np.sum((s[1] * c - x) * np.tanh(s[0] * x))])  # noqa: E731
    s = np.array([0.3, 0.7])
    forward, reverse = (ad.jacobian(f, mode=mode)(s) for mode in ("forward", "reverse"))
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)
    exact = np.sum(weights * x * np.exp(0.3 * x)), np.sum(c * np.tanh(0.3 * x))
    np.testing.assert_allclose([reverse[0, 0], reverse[1, 1]], exact, rtol=1e-12)


def test_products_of_matrices_whose_answers_are_not_kept():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 150, 150)) / 12
    f = lambda a: np.sum(np.tanh(a @ b @ a) * np.einsum("ij,jk->ik", a, a))  # noqa: E731
    e, h = rng.standard_normal((150, 150)), 1e-5
    numeric = (f(a + h * e) - f(a - h * e)) / (2 * h)
    assert np.sum(ad.grad(f)(a) * e) == pytest.approx(numeric, rel=1e-7)
    products = [ad.hvp(f, a, e, mode=mode) for mode in MODES]
    for p in products[1:]:
        np.testing.assert_allclose(p, products[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("function", [np.multiply, np.true_divide, np.maximum, np.add, np.subtract])
def test_tangents_of_broadcast_operations_are_those_of_their_rows(function):
    rng = np.random.default_rng(0)
    x, y, s, t = rng.uniform(0.2, 1.7, (4, 150))
    s[::7] = t[::5] = 0.0
    for left, right in ((x[:, None], y), (x, y[:, None]), (x[:, None] * y, x), (y[:, None], x[:, None] * y)):
        primals = (np.array(left), np.array(right))
        tangents = tuple(np.resize(z, p.shape) for z, p in zip((s, t), primals, strict=True))
        large = ad.jvp(function, primals, tangents)[1]
        assert large.shape == (150, 150)
        for i in (0, 7, 149):
            row = [z[i] if z.ndim == 2 else z for z in (*primals, *tangents)]
            np.testing.assert_array_equal(large[i], ad.jvp(function, row[:2], row[2:])[1])

"""Factors: shared within a derivative, known of a triangular matrix, halved for Cholesky's derivatives."""

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff import rules_cholesky, rules_linalg

L = np.linalg
MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")


@pytest.fixture
def factored(monkeypatch):
    """Return a list that grows by one with every factorisation."""
    calls, getrf = [], rules_linalg.lapack.getrf
    monkeypatch.setattr(rules_linalg.lapack, "getrf", lambda a: calls.append(1) or getrf(a))
    return calls


def definite(n, seed=0, kind="f"):
    x = np.random.default_rng(seed).standard_normal((2, n, n + 3))
    x = x[0] + 1j * x[1] if kind == "c" else x[0]
    return x @ np.conj(x.T) / n + np.eye(n)


# -- sharing --------------------------------------------------------------------------------------------


def evidence(K, y):
    return 0.5 * y @ L.solve(K, y) + 0.5 * L.slogdet(K)[1] + np.trace(L.inv(K)) + np.sum(L.solve(K, y))


def test_a_matrix_is_factored_once_in_a_derivative(factored):
    K, y = definite(6), np.linspace(1, 2, 6)
    f = lambda s: evidence(s * K, y)  # noqa: E731
    for derivative in (ad.grad(f), lambda s: ad.hvp(f, s, 1.0), lambda s: ad.jvp(f, (s,), (1.0,))):
        factored.clear()
        derivative(1.3)
        assert len(factored) == 1
    h = 1e-5
    assert ad.grad(f)(1.3) == pytest.approx((f(1.3 + h) - f(1.3 - h)) / (2 * h), rel=1e-8)


def test_matrices_are_told_apart(factored):
    """More of them than are remembered, one after the other and again, and one that is assigned to."""
    many, y = [definite(4, seed) for seed in range(6)], np.ones(4)

    def f(s):
        matrices = [s * K for K in many]
        total = sum(y @ L.solve(K, y) for K in matrices) + sum(L.slogdet(K)[1] for K in matrices)
        K = matrices[-1]
        K[0, 0] = K[0, 0] + s
        return total + y @ L.solve(K, y)

    h = 1e-5
    assert ad.grad(f)(1.1) == pytest.approx((f(1.1 + h) - f(1.1 - h)) / (2 * h), rel=1e-8)


def test_the_type_decides_too():
    K, y = definite(5).astype(np.float32), np.ones(5)
    value, pullback = ad.vjp(lambda K: (L.slogdet(K)[1], L.solve(K, y)), K)
    assert value[0] == pytest.approx(L.slogdet(K)[1], rel=1e-6)
    np.testing.assert_array_equal(value[1], L.solve(K, y))
    assert value[1].dtype == np.float64
    assert pullback((np.float32(1), y))[0].dtype == np.float32


def test_a_plain_matrix_that_is_changed_is_factored_again():
    K, y = definite(5), np.ones(5)

    def f(x):
        first = L.solve(K, x)
        K[0, 0] += 1.0
        second = L.solve(K, x)
        K[0, 0] -= 1.0
        return np.sum(first * y) + 2 * np.sum(second * y)

    K[0, 0] = 3.0
    other = K + np.diag([1.0, 0, 0, 0, 0])
    exact = L.solve(K, y) + 2 * L.solve(other, y)
    np.testing.assert_allclose(ad.grad(f)(y), exact, rtol=1e-12)


# -- values ---------------------------------------------------------------------------------------------


def triangles(dtype):
    lower = L.cholesky(definite(70)).astype(dtype)
    steep = lower.copy()
    steep[5, 2] = 9.0  # elimination exchanges rows
    hole = lower.copy()
    hole[3, 3] = -hole[3, 3]
    return {
        "lower": lower, "upper": lower.T.copy(), "transposed": lower.T, "steep": steep, "negative": hole,
        "diagonal": np.diag(np.diagonal(lower)), "full": definite(70).astype(dtype), "one": lower[:1, :1],
        "strided": np.repeat(lower, 2, axis=1)[:, ::2], "tiny": lower * dtype(1e-38),
    }  # fmt: skip


@pytest.mark.parametrize("name", triangles(np.float64))
def test_values_are_numpys(name):
    """Bit for bit where NumPy and SciPy have the same LAPACK, also of triangles, whose factors are known."""
    a = triangles(np.float64)[name]
    a.flags.writeable = False
    b = np.linspace(1, 2, len(a))
    for f in (
        L.solve,
        lambda a, b: L.inv(a),
        lambda a, b: L.solve(a, np.outer(b, b)),
        lambda a, b: L.slogdet(a),
    ):
        for value, exact in zip(ad.vjp(lambda a, f=f: f(a, b), a)[0], f(a, b), strict=True):
            np.testing.assert_allclose(value, exact, rtol=1e-12, atol=1e-14 * np.max(np.abs(exact)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", triangles(np.float64))
def test_factors_of_triangles_are_lapacks(name, dtype):
    """Bit for bit if that multiplies by the reciprocal of a pivot, as OpenBLAS and the reference do."""
    a = triangles(dtype)[name]
    found = rules_linalg._factors_of_triangle(a)
    assert (found is None) == (name in ("steep", "full"))
    if found is not None:
        for part, exact in zip(found, rules_linalg.lapack.getrf(a), strict=True):
            np.testing.assert_allclose(part, exact, rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", ["lower", "upper", "steep", "negative", "diagonal"])
def test_triangles_have_the_gradients_of_full_matrices(name):
    a, b = triangles(np.float64)[name], np.linspace(1, 2, 70)
    x = L.solve(a, b)
    np.testing.assert_allclose(
        ad.grad(lambda a: b @ L.solve(a, b))(a), -np.outer(L.solve(a.T, b), x), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        ad.grad(lambda a: L.slogdet(a)[1])(a), L.inv(a).T, rtol=1e-9, atol=1e-11 * abs(L.inv(a)).max()
    )


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("place", [(2, 2), (4, 1)])
def test_triangles_with_a_hole(place, value):
    """What is singular, or no number, is LAPACK's to say."""
    a = np.tril(definite(6))
    a[place] = value
    b = np.ones(6)
    with np.errstate(all="ignore"):
        try:
            exact = L.solve(a, b)
        except L.LinAlgError:
            with pytest.raises(L.LinAlgError, match="Singular"):
                ad.vjp(lambda a: L.solve(a, b), a)
            return
        np.testing.assert_array_equal(ad.vjp(lambda a: L.solve(a, b), a)[0], exact)


# -- Cholesky -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", "fc")
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", [64, 65, 66, 131])
def test_halving_changes_no_derivative_of_cholesky(n, upper, kind, monkeypatch):
    a, t = definite(n, kind=kind), definite(n, 1, kind)
    weights = definite(n, 2, kind)
    f = lambda a: np.sum(np.real(np.conj(weights) * np.sin(L.cholesky(a, upper=upper))))  # noqa: E731
    derivatives = [
        lambda: ad.jvp(lambda a: L.cholesky(a, upper=upper), (a,), (t,))[1],
        lambda: ad.grad(f)(a),
        *(lambda mode=mode: ad.hvp(f, a, t, mode=mode) for mode in MODES[1:] if kind == "f"),
    ]
    monkeypatch.setattr(rules_cholesky, "WHOLE", 64)
    halved = [d() for d in derivatives]
    monkeypatch.setattr(rules_cholesky, "WHOLE", 1000)
    for d, result in zip(derivatives, halved, strict=True):
        expected = d()
        np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-12 * np.max(np.abs(expected)))


def test_halving_takes_chunks_and_keeps_types(monkeypatch):
    monkeypatch.setattr(rules_cholesky, "WHOLE", 64)
    a = definite(70)
    f = lambda s: np.diagonal(L.cholesky(a + s[0] * np.eye(70) + s[1] * a))[::10]  # noqa: E731
    s = np.array([0.1, 0.3])
    forward, reverse = (ad.jacobian(f, mode=mode)(s) for mode in ("forward", "reverse"))
    np.testing.assert_allclose(forward, reverse, rtol=1e-11)
    single = a.astype(np.float32)
    gradient = ad.grad(lambda a: np.sum(L.cholesky(a)))(single)
    assert gradient.dtype == np.float32
    np.testing.assert_array_equal(gradient, gradient.T)
    np.testing.assert_allclose(gradient, ad.grad(lambda a: np.sum(L.cholesky(a)))(a), rtol=1e-3, atol=1e-4)

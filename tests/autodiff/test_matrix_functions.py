"""f(A) of symmetric A by divided differences: against 50 digits, at repeated and near eigenvalues."""

import itertools

import mpmath
import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.matrix_functions import DividedDifferences, InverseSquareRoot
from mercer.testing import check_derivative

MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")

# name: (our function of A, the function of an eigenvalue in mpmath)
FUNCTIONS = {
    "inverse_sqrt": (ad.inverse_sqrt, lambda x: 1 / mpmath.sqrt(x)),
    "sqrt": (lambda A: ad.symmetric_function(np.sqrt, A), mpmath.sqrt),
    "log": (lambda A: ad.symmetric_function(np.log, A), mpmath.log),
    "exp": (lambda A: ad.symmetric_function(np.exp, A), mpmath.exp),
    "sin": (lambda A: ad.symmetric_function(np.sin, A, np.cos), mpmath.sin),
    "power": (lambda A: ad.symmetric_function(lambda w: w**-0.5, A), lambda x: x ** mpmath.mpf(-0.5)),
}

SPECTRA = {
    "one value": [3.0, 3, 3, 3],
    "repeated": [2.0, 2, 2, 5],
    "two pairs": [1.0, 1, 4, 4],
    "near": [1.0, 1 + 1e-12, 1 + 1e-8, 2],
    "nearer than seen": [1.0, 1 + 1e-3, 1.02, 1.05],
    "apart": [0.5, 1.0, 2.0, 3.5],
}


def rotated(rng, w):
    q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    a = q @ np.diag(w) @ q.T
    return 0.5 * (a + a.T)


def symmetric(rng, n=4):
    e = rng.standard_normal((n, n))
    return e + e.T


def along(f, a, e, order):
    """The derivatives of t ↦ f(A + tE) at 0, by differences in 50 digits."""
    a, e, h = mpmath.matrix(a.tolist()), mpmath.matrix(e.tolist()), mpmath.mpf(10) ** -12

    def at(t):
        w, u = mpmath.eigsy(a + t * e)
        return u * mpmath.diag([f(x) for x in w]) * u.T

    if order == 1:
        d = (at(h) - at(-h)) / (2 * h)
    else:
        d = (at(h) - 2 * at(0) + at(-h)) / h**2
    return np.array(d.tolist(), float)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_against_fifty_digits(rng, name, spectrum):
    f, exact = FUNCTIONS[name]
    a, e, g = rotated(rng, SPECTRA[spectrum]), symmetric(rng), symmetric(rng)
    with mpmath.workdps(50):
        first, second = along(exact, a, e, 1), along(exact, a, e, 2)
    pushed = lambda a: ad.jvp(f, (a,), (e,))[1]  # noqa: E731
    np.testing.assert_allclose(pushed(a), first, rtol=0, atol=1e-12 * np.max(np.abs(first)))
    np.testing.assert_allclose(
        ad.jvp(pushed, (a,), (e,))[1], second, rtol=0, atol=1e-11 * np.max(np.abs(second))
    )
    gradient = ad.grad(lambda a: np.sum(g * f(a)))(a)
    assert np.sum(gradient * e) == pytest.approx(np.sum(g * first), rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(gradient, gradient.T, rtol=0, atol=1e-15 * np.max(np.abs(gradient)))


def test_inverse_sqrt_at_multiples_of_the_unit_matrix(rng):
    # A = cI commutes with all: A^(-1/2) moves by −½ c^(-3/2) E, then by ¾ c^(-5/2) E².
    e = symmetric(rng)
    for c in (0.25, 1.0, 3.0, 1e6):
        a = c * np.eye(4)
        pushed = lambda a: ad.jvp(ad.inverse_sqrt, (a,), (e,))[1]  # noqa: E731
        np.testing.assert_allclose(pushed(a), -0.5 * c**-1.5 * e, rtol=1e-12, atol=1e-15 * c**-1.5)
        second = ad.jvp(pushed, (a,), (e,))[1]
        np.testing.assert_allclose(second, 0.75 * c**-2.5 * e @ e, rtol=1e-12, atol=1e-14 * c**-2.5)
        gradient = ad.grad(lambda a: np.sum(e * ad.inverse_sqrt(a)))(a)
        np.testing.assert_allclose(gradient, -0.5 * c**-1.5 * e, rtol=1e-12, atol=1e-15 * c**-1.5)


def test_the_derivative_solves_the_equation_of_the_inverse(rng):
    # d(A^-½) A^-½ + A^-½ d(A^-½) = −A⁻¹ dA A⁻¹ (SCKN), as a system of Kronecker sums
    a, e = rotated(rng, [0.3, 1.0, 1.0, 4.0]), symmetric(rng)
    root, inverse = ad.inverse_sqrt(a), np.linalg.inv(a)
    system = np.kron(np.eye(4), root) + np.kron(root, np.eye(4))
    solved = np.linalg.solve(system, -(inverse @ e @ inverse).ravel()).reshape(4, 4)
    np.testing.assert_allclose(ad.jvp(ad.inverse_sqrt, (a,), (e,))[1], solved, rtol=1e-11, atol=1e-12)


def commuting_products(a, e):
    """Products of powers that would be d(A^-½) if A and dA commuted, as before SCKN's erratum."""
    w, u = np.linalg.eigh(a)
    power = lambda p: (u * w**p) @ u.T  # noqa: E731
    yield -0.25 * (power(-1.5) @ e + e @ power(-1.5))
    yield -0.25 * (power(-0.5) @ e @ power(-1.0) + power(-1.0) @ e @ power(-0.5))
    yield -0.5 * power(-0.75) @ e @ power(-0.75)


def test_the_uncorrected_formula_is_wrong_away_from_diagonal_dominance(rng):
    # A = (1 − s) I + s 11ᵀ; the direction couples its two eigenspaces, where A and dA do not commute
    v = rng.standard_normal(4)
    e = np.add.outer(v - np.mean(v), v - np.mean(v))
    off = np.ones((4, 4)) - np.eye(4)
    for strength, wrong in ((1e-3, False), (0.9, True)):  # Gram matrices of far and of near anchors
        a = np.eye(4) + strength * off
        dominant = np.all(2 * np.abs(np.diag(a)) > np.abs(a).sum(1))
        assert dominant != wrong
        h = 1e-4
        exact = (ad.inverse_sqrt(a + h * e) - ad.inverse_sqrt(a - h * e)) / (2 * h)
        size = np.linalg.norm(exact)
        assert np.linalg.norm(ad.jvp(ad.inverse_sqrt, (a,), (e,))[1] - exact) < 1e-5 * size
        for product in commuting_products(a, e):
            error = np.linalg.norm(product - exact) / size
            assert error > 0.1 if wrong else error < 1e-2  # a difference check lets the latter pass


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 3, 3)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_modes_orders_and_stacks(rng, name, shape, kind):
    f = FUNCTIONS[name][0]
    x = 0.3 * rng.standard_normal(shape)
    x = x + 0.3j * rng.standard_normal(shape) if kind == "complex" else x
    check_derivative(lambda x: f(x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(shape[-1])), x)
    if kind == "real":
        a = x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])
        forward, reverse = (ad.jacobian(f, mode=m)(a) for m in ("forward", "reverse"))
        np.testing.assert_allclose(forward, reverse, atol=1e-12)
        single = [ad.jvp(f, (a,), (e.reshape(shape),))[1] for e in np.eye(a.size)]
        np.testing.assert_allclose(forward, np.stack(single, -1).reshape(shape + shape), atol=1e-12)


@pytest.mark.parametrize("name", ["inverse_sqrt", "log"])
def test_four_nestings_agree_at_repeated_eigenvalues(rng, name):
    f = FUNCTIONS[name][0]
    b = rng.standard_normal(4)
    for w in ([3.0, 3, 3, 3], [2.0, 2, 5, 5]):
        a = rotated(rng, w)
        hessians = [ad.hessian(lambda a: np.sum(np.sin(f(a) @ b)), mode=m)(a) for m in MODES]
        for h in hessians:
            np.testing.assert_allclose(h, hessians[0], rtol=0, atol=1e-12)


def test_third_derivatives(rng):
    e = symmetric(rng)

    def pushed(f):
        return lambda a: ad.jvp(f, (a,), (e,))[1]

    for w in ([3.0, 3, 3, 3], [2.0, 2, 2, 5], [1.0, 1.001, 1.02, 1.05]):
        a = rotated(rng, w)
        third = pushed(pushed(pushed(ad.inverse_sqrt)))(a)
        with mpmath.workdps(60):
            first = lambda t: along(lambda x: 1 / mpmath.sqrt(x), a + t * e, e, 2)  # noqa: B023, E731
            h = 1e-4
            exact = (8 * (first(h) - first(-h)) - (first(2 * h) - first(-2 * h))) / (12 * h)
        np.testing.assert_allclose(third, exact, rtol=0, atol=1e-8 * np.max(np.abs(exact)))
        if len(set(w)) == 1:  # −15/8 c^(-7/2) E³
            np.testing.assert_allclose(third, -1.875 * 3**-3.5 * e @ e @ e, rtol=1e-11, atol=1e-13)


def test_divided_differences_in_every_order_do_not_cancel():
    w = np.array([0.5, 1.0, 1 + 1e-13, 1 + 1e-6, 1.001, 1.2, 3.0])
    for order, tolerance in ((1, 2e-14), (2, 1e-12), (3, 1e-10)):
        index = np.array(list(itertools.combinations_with_replacement(range(len(w)), order + 1))).T
        with mpmath.workdps(60):
            exact = [float(confluent([mpmath.mpf(x) for x in w[i]])) for i in index.T]
        for differences in (InverseSquareRoot(), DividedDifferences(lambda w: w**-0.5)):
            values, errors = differences.at(w, list(index))
            np.testing.assert_allclose(values, exact, rtol=tolerance)
            assert np.all(np.abs(values - exact) <= 1e3 * errors)  # the estimate is one


def confluent(points):
    """Divided differences of x^(-1/2), by the recursion, or derivatives where all points are one."""
    if points[0] == points[-1]:
        k = len(points) - 1
        return mpmath.binomial(mpmath.mpf(-0.5), k) * points[0] ** (mpmath.mpf(-0.5) - k)
    return (confluent(points[1:]) - confluent(points[:-1])) / (points[-1] - points[0])


def test_eigenvalues_that_are_rounding_errors_of_zero(rng):
    v = rng.standard_normal((4, 1))
    a, e = v @ v.T, symmetric(rng)  # rank 1: three eigenvalues are ±1e-17
    with mpmath.workdps(50):
        exact = along(mpmath.exp, a, e, 1)
    np.testing.assert_allclose(
        ad.jvp(lambda a: ad.symmetric_function(np.exp, a), (a,), (e,))[1], exact, rtol=1e-11, atol=1e-12
    )


def test_float32_and_integers():
    a = np.array([[2.0, 0.5], [0.5, 1.0]], np.float32)
    assert ad.inverse_sqrt(a).dtype == np.float32
    assert ad.grad(lambda a: np.sum(ad.inverse_sqrt(a, 0.1)))(a).dtype == np.float32
    assert ad.grad(lambda a: np.sum(ad.symmetric_function(np.exp, a)))(a).dtype == np.float32
    np.testing.assert_allclose(ad.inverse_sqrt(np.array([[4, 0], [0, 1]])), np.diag([0.5, 1.0]))


def test_epsilon_is_differentiable():
    f = lambda epsilon: np.sum(ad.inverse_sqrt(np.diag([3.0, 8.0]), epsilon))  # noqa: E731
    assert f(1.0) == pytest.approx(1 / 2 + 1 / 3, rel=1e-15)
    assert ad.grad(f)(1.0) == pytest.approx(-0.5 * (1 / 8 + 1 / 27), rel=1e-14)
    check_derivative(f, 1.0)


def test_only_the_symmetric_part_counts(rng):
    a = 4 * np.eye(3) + rng.standard_normal((3, 3))
    np.testing.assert_allclose(ad.inverse_sqrt(a), ad.inverse_sqrt(0.5 * (a + a.T)), rtol=1e-14)


def test_what_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match=r"smallest eigenvalue is -1; add .* \(epsilon > 1\)"):
        ad.inverse_sqrt(np.diag([-1.0, 2.0]))
    with pytest.raises(ValueError, match=r"square .* got the shape \(2, 3\)"):
        ad.inverse_sqrt(np.ones((2, 3)))
    with pytest.raises(ValueError, match="real and elementwise"):
        ad.symmetric_function(np.sum, np.eye(2))
    with pytest.raises(TypeError, match="f depends on a traced value"):
        ad.grad(lambda p: np.sum(ad.symmetric_function(lambda w: w**p, np.eye(2))))(2.0)


def test_empty_matrices():
    assert ad.grad(lambda a: np.sum(ad.inverse_sqrt(a)))(np.zeros((0, 0))).shape == (0, 0)
    assert ad.grad(lambda a: np.sum(ad.inverse_sqrt(a)))(np.zeros((0, 2, 2))).shape == (0, 2, 2)


def test_large_matrices_sum_second_derivatives_in_parts(rng, monkeypatch):
    from mercer.autodiff import matrix_functions

    x = rng.standard_normal((6, 6))
    a, v = x @ x.T + np.eye(6), symmetric(rng, 6)
    f = lambda a: np.sum(np.sin(ad.symmetric_function(np.log, a)))  # noqa: E731
    whole = ad.hvp(f, a, v)
    monkeypatch.setattr(matrix_functions, "HELD", 2 * 36)
    np.testing.assert_allclose(ad.hvp(f, a, v), whole, rtol=1e-13, atol=1e-14)

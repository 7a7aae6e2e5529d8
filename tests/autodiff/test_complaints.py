"""What users of other packages complained of, one test each; reports by repository and number."""

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError
from mercer.testing import check_derivative

BOTH = ("forward", "reverse")
X = np.array([0.3, -0.7, 1.1])
both = pytest.mark.parametrize("mode", BOTH)


@both
def test_assignment_is_followed(mode):
    """autograd 58, 177, 559: B[i] = x failed obscurely."""

    def f(x):
        B = np.zeros_like(x)
        for i in range(3):
            B[i] = x[i] ** 2
        B[0] += B[1]
        return B

    np.testing.assert_allclose(ad.jacobian(f, mode)(X), [[0.6, -1.4, 0], [0, -1.4, 0], [0, 0, 2.2]])


@both
def test_numpy_itself_gives_no_silent_zero(mode):
    """autograd 423: plain numpy.dot gave a Jacobian of zeros."""
    A = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(ad.jacobian(lambda x: np.dot(A, x), mode)(X), A)
    np.testing.assert_array_equal(ad.jacobian(lambda x: A @ x, mode)(X), A)
    with pytest.raises(TraceError):
        ad.jacobian(lambda x: A.dot(x), mode)(X)


def test_einsum_broadcasting_gives_the_arguments_shape():
    """autograd 376."""
    a, b = np.ones((1, 3)), np.ones((4, 3))
    ga, gb = ad.grad(lambda a, b: np.sum(np.einsum("...i,...i->...", a, b)), argnums=(0, 1))(a, b)
    assert (ga.shape, gb.shape) == (a.shape, b.shape)
    np.testing.assert_array_equal(ga, np.full((1, 3), 4.0))


@both
def test_whole_numbers_become_floats(mode):
    """autograd 482, 229: integer input was a TypeError."""
    np.testing.assert_array_equal(ad.jacobian(lambda x: x / 2, mode)(np.array([1, 2])), np.eye(2) / 2)
    assert ad.jacobian(lambda x: x**2, mode)(3) == 6.0


@both
def test_norm_at_zero(mode):
    """autograd 151, 586, 617: NaN."""
    assert np.all(ad.jacobian(np.linalg.norm, mode)(np.zeros(3)) == 0)


@both
@pytest.mark.parametrize(
    ("power", "slope"), [(0, 0.0), (0.0, 0.0), (1, 1.0), (1.0, 1.0), (2, 0.0), (2.5, 0.0), (3, 0.0)]
)
def test_powers_at_zero(mode, power, slope):
    """autograd 116, 581: NaN."""
    assert ad.jacobian(lambda x: x**power, mode)(0.0) == slope
    np.testing.assert_array_equal(ad.jacobian(lambda x: np.power(x, power), mode)(np.zeros(1)), [[slope]])


@both
@pytest.mark.parametrize("power", [2, 2.0, 3])
def test_second_derivatives_of_powers_at_zero(mode, power):
    second = ad.jacobian(ad.jacobian(lambda x: x**power, mode), mode)(0.0)
    assert second == (2.0 if power == 2 else 0.0)


@both
@pytest.mark.lenient
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_where_leaks_nothing_from_the_branch_not_taken(mode):
    """jax 347, 5798."""
    got = ad.jacobian(lambda x: np.sum(np.where(x > 0, np.log(x), 0)), mode)(np.array([-1.0, 0, 2]))
    np.testing.assert_array_equal(got, [0, 0, 0.5])


MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")
BRANCHES = {
    "squared logarithm": lambda x: np.log(x) ** 2,
    "entropy": lambda x: x * np.log(x),
    "quotient": lambda x: np.log(x) / x,
    "root of a root": lambda x: np.sqrt(x) ** 3,
    "logarithm twice": lambda x: np.log(np.log(x + 1)),
    "power": lambda x: x**x,
    "angle": lambda x: np.arctan2(np.log(x), x),
    "inner": lambda x: np.exp(-1 / x),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.lenient
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_where_leaks_nothing_in_second_order(name, mode):
    f, x = BRANCHES[name], np.array([-1.0, 2.0, 0.0])
    curvature = ad.second_directional(f, 2.0, 1.0, 1.0)
    masked = ad.hessian(lambda x: np.sum(np.where(x > 0, f(x), 0.0)), mode=mode)(x)
    np.testing.assert_allclose(masked, np.diag([0.0, curvature, 0.0]), rtol=1e-13)
    product = ad.hvp(lambda x: np.sum(np.where(x > 0, f(x), 0.0)), x, np.ones(3), mode=mode)
    np.testing.assert_allclose(product, [0.0, curvature, 0.0], rtol=1e-13)


@both
def test_ties_of_max_have_one_convention(mode):
    """jax 13600, 37821: ties were shared by one function and not by another."""
    tie = np.array([2.0, 2.0])
    for f in (np.max, lambda x: np.maximum(x[0], x[1]), lambda x: np.fmax(x[0], x[1]), lambda x: x.max()):
        np.testing.assert_array_equal(ad.jacobian(f, mode)(tie), [0.5, 0.5])


@both
def test_repeated_eigenvalues(mode):
    """jax 669, 4646: what does not depend on the choice of eigenvectors is finite."""
    got = ad.jacobian(lambda A: np.sum(np.linalg.eigvalsh(A) ** 2), mode)(np.eye(3))
    np.testing.assert_allclose(got, 2 * np.eye(3), atol=1e-12)


@both
def test_cholesky_has_a_symmetric_gradient(mode):
    """jax 40421, 12795; pytorch 137284: the triangle's convention."""
    A = np.array([[2.0, 0.3], [0.3, 1.0]])
    got = ad.jacobian(lambda A: np.sum(np.log(np.diag(np.linalg.cholesky(A)))), mode)(A)
    np.testing.assert_allclose(got, np.linalg.inv(A) / 2, rtol=1e-12)
    for f in (np.linalg.cholesky, lambda A: np.linalg.eigh(A)[0]):
        J = ad.jacobian(f, mode)(A)
        np.testing.assert_allclose(J, np.swapaxes(J, -1, -2), atol=1e-14)


def test_singular_values_of_any_size():
    """pytorch 194705: the difference of squares overflowed."""
    for size in (1e-160, 1e160):
        A = size * np.array([[1.0, 0.5], [0.0, 2.0]])
        g = ad.grad(lambda A: np.linalg.svd(A)[0][0, 0])(A)
        assert np.all(np.isfinite(g))


def test_one_convention_for_complex_numbers():
    """jax 979; autograd 27: of a real L(z) the gradient is ∂L/∂x + i ∂L/∂y."""
    z = np.array([0.3 + 1j, -2.0 + 0.5j])
    np.testing.assert_allclose(ad.grad(lambda z: np.sum(np.abs(z) ** 2))(z), 2 * z, rtol=1e-14)
    np.testing.assert_allclose(ad.grad(lambda z: np.sum(np.real(z * z)))(z), 2 * np.conj(z), rtol=1e-14)
    check_derivative(lambda z: np.sum(np.abs(z * np.exp(z)) ** 2), z)


@both
@pytest.mark.parametrize(
    "scalar",
    [np.float64(2), np.float32(2), np.float16(2), np.longdouble(2), np.int8(2), np.uint64(2), np.bool_(True),
     np.array(2.0), 2, 2.0],
    ids=lambda s: type(s).__name__,
)  # fmt: skip
def test_every_scalar_type_on_either_side(mode, scalar):
    """numpy 17650, 27348: np.float64 * x went past __rmul__."""
    s = float(scalar)
    np.testing.assert_allclose(ad.jacobian(lambda x: np.sum(scalar * x), mode)(X), [s] * 3)
    np.testing.assert_allclose(ad.jacobian(lambda x: scalar / x, mode)(X), np.diag(-s / X**2), rtol=1e-6)
    np.testing.assert_allclose(ad.jacobian(lambda x: x[0] + scalar - x[1] * scalar, mode)(X), [1, -s, 0])


@pytest.mark.parametrize("outer", BOTH)
@pytest.mark.parametrize("inner", BOTH)
def test_nested_derivatives_are_not_confused(outer, inner):
    """ForwardDiff.jl 83, 313, 443."""
    D, E = (lambda f, x, mode=mode: ad.jacobian(f, mode)(x) for mode in (outer, inner))
    assert D(lambda x: x * E(lambda y: x + y, 1.0), 1.0) == 1.0
    assert D(lambda x: E(lambda y: x * y**2, x) + E(lambda y: x**2 + 0 * y, 1.0), 3.0) == 12.0


def test_a_thousand_steps_do_not_recurse():
    """micrograd pull 90. Memory (autograd 103) and threads (autograd pull 659) are in test_conduct."""

    def f(x):
        for _ in range(5000):
            x = np.sin(x)
        return x

    assert 0 < ad.grad(f)(1.0) < 1


def test_branches_are_recorded_again():
    """LogDensityProblems.jl pull 85: a replayed tape ignored branches."""
    gradient = ad.grad(lambda x: x**2 if x > 0 else -3 * x)
    assert [gradient(1.0), gradient(-1.0), gradient(2.0)] == [2.0, -3.0, 4.0]


def test_a_hessian_takes_few_passes():
    """autograd 492: a Hessian and gradient of 325 variables took 1.14 s, a pass for each row."""
    passes = []

    def f(x):
        passes.append(1)
        return np.sum(np.log(1 + np.exp(x)) * np.cos(x[::-1]))

    H = ad.hessian(f)(np.linspace(-1, 1, 325))
    assert len(passes) <= 4
    np.testing.assert_allclose(H, H.T, atol=1e-13)

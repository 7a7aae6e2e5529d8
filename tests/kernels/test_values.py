"""Kernel values: against 50-digit references, at the edges of the range, and from every form of input."""

import mpmath
import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import pairwise

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
)
from scenarios import SCENARIOS

by_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def exact_matrix(scenario, X, Z):
    return np.array([[float(scenario.exact(x, z)) for z in Z.tolist()] for x in X.tolist()])


def tolerance(dtype, expected):
    """Each operation of a program rounds once or twice, and sums of either sign lose what they cancel."""
    eps = np.finfo(dtype).eps
    return {"rtol": 200 * eps, "atol": 200 * eps * max(1.0, float(np.abs(expected).max()))}


@by_scenario
@both_dtypes
def test_matches_the_exact_values(scenario, dtype, rng):
    X = scenario.domain(rng, 6).astype(dtype)
    Z = np.vstack([scenario.domain(rng, 4).astype(dtype), X[:2]])
    kernel = scenario.make()
    expected = exact_matrix(scenario, X, Z)
    K = kernel(X, Z)
    assert K.dtype == dtype
    np.testing.assert_allclose(K, expected, **tolerance(dtype, expected))


@by_scenario
def test_the_symmetric_call_is_symmetric_and_agrees(scenario, rng):
    X = scenario.domain(rng, 9)
    kernel = scenario.make()
    K = kernel(X)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(K, kernel(X, X.copy()), rtol=1e-13, atol=1e-13 * np.abs(K).max())
    np.testing.assert_allclose(kernel.diag(X), np.diag(K), rtol=1e-13, atol=1e-13 * np.abs(K).max())


@by_scenario
def test_every_form_of_the_samples_gives_the_same(scenario, rng):
    X, Z = scenario.domain(rng, 7), scenario.domain(rng, 5)
    kernel = scenario.make()
    K = kernel(X, Z)
    wide = np.zeros((7, 2 * X.shape[1]))
    wide[:, ::2] = X
    read_only = X.copy()
    read_only.flags.writeable = False
    for form in (X.tolist(), np.asfortranarray(X), wide[:, ::2], X[::-1].copy()[::-1], read_only):
        np.testing.assert_allclose(kernel(form, Z), K, rtol=1e-14, atol=1e-14)


@by_scenario
def test_sparse_samples_give_the_same(scenario, rng):
    X, Z = scenario.domain(rng, 7), scenario.domain(rng, 5)
    X[rng.random(X.shape) < 0.3] = 0.0
    X[2] = 0.0
    kernel = scenario.make()
    if "modulate" in repr(kernel):
        pytest.skip("the user's function reads dense samples")
    expected = kernel(X, Z)
    for form in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        np.testing.assert_allclose(kernel(form(X), form(Z)), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(kernel(sparse.csr_array(X), Z), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(kernel(X, sparse.csr_array(Z)), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(kernel.diag(sparse.csr_array(X)), kernel.diag(X), rtol=1e-13)
    np.testing.assert_allclose(kernel(sparse.csr_array(X)), kernel(X), rtol=1e-13, atol=1e-13)


@by_scenario
def test_out_is_filled_whatever_its_strides(scenario, rng):
    X, Z = scenario.domain(rng, 7), scenario.domain(rng, 5)
    kernel = scenario.make()
    K = kernel(X, Z)
    for out in (np.empty((7, 5)), np.empty((7, 5), order="F"), np.empty((14, 10))[::2, ::2]):
        assert kernel(X, Z, out=out) is out
        np.testing.assert_allclose(out, K, rtol=1e-13, atol=1e-13)
    with pytest.raises(ValueError, match=r"out must be a float64 array of shape \(7, 5\)"):
        kernel(X, Z, out=np.empty((5, 7)))
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        kernel(X, Z, out=out)


# ---------------------------------------------------------------- scikit-learn's definitions


@pytest.mark.parametrize(
    ("kernel", "reference"),
    [
        (RBF(0.3), lambda X, Z: pairwise.rbf_kernel(X, Z, gamma=0.3)),
        (Laplacian(0.3), lambda X, Z: pairwise.laplacian_kernel(X, Z, gamma=0.3)),
        (Sigmoid(0.3, 0.1), lambda X, Z: pairwise.sigmoid_kernel(X, Z, gamma=0.3, coef0=0.1)),
        (
            Polynomial(3, 0.3, 0.7),
            lambda X, Z: pairwise.polynomial_kernel(X, Z, degree=3, gamma=0.3, coef0=0.7),
        ),
        (Cosine(), pairwise.cosine_similarity),
        (ChiSquared(0.4), lambda X, Z: pairwise.chi2_kernel(X, Z, gamma=0.4)),
        (Linear(), pairwise.linear_kernel),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.lenient
def test_agrees_with_scikit_learn(kernel, reference, rng):
    X, Z = rng.exponential(size=(8, 4)), rng.exponential(size=(6, 4))
    X[3] = 0.0
    X[4, 1] = Z[2, 1] = 0.0
    np.testing.assert_allclose(kernel(X, Z), reference(X, Z), rtol=1e-12, atol=1e-14)


# ---------------------------------------------------------------- the Fourier kernel next to integers


def dirichlet_exact(degree, x, z):
    with mpmath.workdps(60):
        t = mpmath.mpf(float(x)) - mpmath.mpf(float(z))
        t -= mpmath.nint(t)
        if t == 0:
            return float(2 * degree + 1)
        return float(mpmath.sin((2 * degree + 1) * mpmath.pi * t) / mpmath.sin(mpmath.pi * t))


@pytest.mark.parametrize("degree", [1, 2, 5, 50, 200])
@pytest.mark.parametrize("z", [0.0, 0.37, -0.37, 0.5, 1.0, 123.456, -1e6 + 0.125, 1e6 + 1 / 3])
def test_each_fourier_factor_is_accurate_around_integers(degree, z):
    steps = [0.0, *(sign * 10.0**-e for e in range(3, 18) for sign in (1, -1)), 0.25, 1 / 3, 0.4999, 0.5]
    steps += [j / (2 * degree + 1) + h for j in (1, degree) for h in (0.0, 1e-9)]
    X = np.array([[z + n + h] for n in (0, 1, -3, 1000) for h in steps])
    kernel = Fourier(degree)
    expected = [dirichlet_exact(degree, x, z) for x in X[:, 0]]
    K = kernel(X, [[z]])[:, 0]
    # The bound of the contract.
    np.testing.assert_allclose(K, expected, rtol=0, atol=1e-12 * (2 * degree + 1))
    np.testing.assert_allclose(
        kernel.normalize()(X, [[z]])[:, 0], np.array(expected) / (2 * degree + 1), rtol=0, atol=1e-12
    )


def test_fourier_says_when_it_leaves_the_range(rng):
    X = rng.random((4, 500))
    with pytest.raises(ValueError, match=r"401\^500.*normalize"):
        Fourier(200)(X)
    with pytest.raises(ValueError, match="normalize"):
        Fourier(200).diag(X)
    with pytest.raises(ValueError, match="normalize"):
        Fourier(5)(X[:, :40].astype(np.float32))
    singles = Fourier(5).gram(np.zeros((2, 40), np.float32))
    for call in (
        singles.diag,
        lambda: singles @ np.ones(2, np.float32),
        lambda: Fourier(5).diag(singles._samples.X),
    ):
        with pytest.raises(ValueError, match=r"11\^40.*range of float32.*normalize"):
            call()
    for bias in (True, False):
        K = Fourier(200, include_bias=bias).normalize()(X)
        np.testing.assert_array_equal(np.diag(K), 1.0)
        assert np.isfinite(K).all()
    assert np.isfinite(Fourier(5)(X[:, :40])).all()


def test_fourier_without_bias_normalizes_in_one_dimension():
    K = Fourier(3, include_bias=False).normalize()([[0.0]], [[0.0], [1.0], [0.5]])
    np.testing.assert_allclose(K, [[1.0, 1.0, (-1 - 1) / 6]], rtol=1e-15)


# ---------------------------------------------------------------- edges


def test_duplicates_give_exactly_one(rng):
    X = rng.normal(size=(5, 4)) * 1e3
    for kernel in (
        RBF(2.0),
        Matern(0.5),
        Matern(1.5),
        Matern(2.5),
        Matern(0.8),
        Matern(80.0),
        Laplacian(),
        Matern(np.inf),
    ):
        np.testing.assert_array_equal(np.diag(kernel(X, X.copy())), 1.0)
        np.testing.assert_array_equal(kernel.diag(X), 1.0)
        np.testing.assert_array_equal(np.diag(kernel(X)), 1.0)


def test_shifted_data_give_the_same_matrix(rng):
    X = np.round(rng.normal(size=(8, 3)) * 64) / 64
    np.testing.assert_allclose(RBF()(X + 2.0**27), RBF()(X), rtol=1e-14)
    two = np.vstack([X, X + 2.0**27])
    K = RBF()(two)
    np.testing.assert_allclose(K[:8, :8], RBF()(X), rtol=1e-14)
    np.testing.assert_allclose(K[8:, 8:], RBF()(X), rtol=1e-14)


@pytest.mark.parametrize("nu", [0.3, 0.7, 1.0, 1.2, 2.0, 3.0, 3.25, 10.0, 49.5, 51.2, 80.0, 300.0])
def test_matern_of_any_order_from_touching_to_far(nu):
    r = np.array([0.0, 1e-200, 1e-150, 1e-30, 1e-9, 1e-4, 0.01, 0.3, 1.0, 3.0, 10.0, 40.0, 1e3, 1e160, 1e300])
    K = Matern(nu)(r[:, None], [[0.0]])[:, 0]
    assert K[0] == 1.0
    with mpmath.workdps(40):
        v = mpmath.mpf(nu)
        for value, x in zip(K, r, strict=True):
            q = mpmath.sqrt(2 * v) * mpmath.mpf(float(x))
            far = q > 1e4
            if nu > 100 and 0 < x < 1000 and not 0.1 < x < 5:
                continue  # mpmath takes seconds there
            exact = (
                1 if x == 0 else 0 if far else 2 ** (1 - v) / mpmath.gamma(v) * q**v * mpmath.besselk(v, q)
            )
            assert value == pytest.approx(float(exact), rel=5e-12, abs=1e-300)


def test_scales_at_the_ends_of_the_range():
    # G30: scale first, square afterwards.
    assert RBF(length_scale=1e-170)([[0.0]], [[1e-170]])[0, 0] == pytest.approx(np.exp(-0.5), rel=1e-12)
    assert RBF(1e-320)([[0.0]], [[100.0]])[0, 0] == 1.0
    assert RBF(1e300)([[0.0]], [[1.0]])[0, 0] == 0.0
    for nu in (0.5, 1.5, 2.5, 1.7, np.inf):
        assert Matern(nu)([[0.0]], [[1e200]])[0, 0] == 0.0
    assert RationalQuadratic()([[0.0]], [[1e200]])[0, 0] == 0.0
    assert Laplacian()([[0.0]], [[1e300]])[0, 0] == 0.0


def test_parameters_whose_powers_leave_the_range_warn_of_nothing():
    X = np.array([[0.0], [1.0]])
    # (1 + r²/2α)^(−α) goes to 1 with α.
    for kernel, apart in (
        (RBF(length_scale=1e-320), 0),
        (Matern(0.5, 1e-320), 0),
        (RationalQuadratic(1, 1e-320), 1),
    ):
        assert kernel(X).tolist() == [[1, apart], [apart, 1]]
        assert kernel.diag(X).tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"takes off coef0 \*\* degree, which is beyond the range"):
        Polynomial(200, coef0=1e10, include_bias=False)([[0.0]])


def test_matern_of_any_order_is_zero_far_out():
    assert Matern(0.7)([[0.0]], [[1e100]])[0, 0] == 0.0


def test_rows_of_any_magnitude_have_a_direction():
    tiny = np.array([[1.0, 2.0, 2.0]]) * 2.0**-1070
    for X in (tiny, sparse.csr_array(tiny), tiny * 2.0**1000 * 2.0**1000):
        np.testing.assert_allclose(Cosine()(X, [[1.0, 2.0, 2.0]]), [[1.0]], rtol=1e-14)


@pytest.mark.parametrize("kernel", [Cosine(), ExpDotProduct(2.0)])
def test_equal_rows_have_equal_directions_in_any_layout(kernel, rng):
    X = rng.random((40, 13))
    value = kernel(X).diagonal()
    np.testing.assert_array_equal(kernel(X, np.asfortranarray(X)).diagonal(), value)
    np.testing.assert_array_equal(np.diagonal(kernel(X, X[::-1])[:, ::-1]), value)


def test_the_normalized_exponential_stays_in_range():
    # exp(x·z)/√(exp(x·x) exp(z·z)) is the Gaussian kernel.
    X = np.array([[30.0, 4.0], [1.0, 2.0], [29.9, 4.0]])
    np.testing.assert_allclose(Linear().exp().normalize()(X), RBF(0.5)(X), atol=1e-12)


def test_normalizing_what_overflows_names_the_row():
    with pytest.raises(
        ValueError, match=r"finite k\(x, x\), but it overflows at row 1; scale the samples down"
    ):
        Polynomial(200).normalize()([[1.0], [100.0]])
    with pytest.raises(ValueError, match="overflows at row 0"):
        Polynomial(3).normalize()(np.array([[1e7]], np.float32))
    # 1/√k(x, x) of a subnormal k(x, x) is out of range once it is squared.
    assert np.isfinite(Linear().polynomial([5e-324]).normalize()([[1.0], [2.0]])).all()


@both_dtypes
@pytest.mark.parametrize(
    "kernel", [RBF(1.0), Laplacian(1.0), Matern(nu=0.5), Matern(nu=1.5), Matern(nu=2.5)], ids=repr
)
def test_values_below_the_smallest_normal_number_are_0(kernel, dtype):
    # processors take ten times as long over denormals, in the matrix as in all that reads it
    far = 110.0 if dtype == np.float32 else 760.0
    X = np.linspace(0.0, far, 2001, dtype=dtype)[:, None]
    X = np.sqrt(X) if isinstance(kernel, RBF) else X
    row = kernel(X[:1], X)[0]
    smallest = np.finfo(dtype).smallest_normal
    np.testing.assert_array_equal(row[[0, -1]], [1, 0])
    assert ((row == 0) | (row >= smallest)).all()
    assert row[row > 0].min() < 1e6 * smallest  # the polynomial before Matérn's exponential is that large


def test_polynomial_without_bias_keeps_small_values():
    # (1 + s)^3 − 1 = 3s + 3s² + s³, where subtraction would leave nothing.
    assert Polynomial(3, include_bias=False)([[1e-20]], [[1.0]])[0, 0] == pytest.approx(3e-20, rel=1e-14)
    for coef0 in (0.0, 1e-300, 1e-5, 1e5, 1e60):
        value = Polynomial(3, coef0=coef0, include_bias=False)([[2.0]], [[3.0]])[0, 0]
        with mpmath.workdps(400):
            exact = (6 + mpmath.mpf(coef0)) ** 3 - mpmath.mpf(coef0) ** 3
        assert value == pytest.approx(float(exact), rel=1e-9)


def test_cosine_of_zero_rows_and_huge_rows():
    X = np.array([[0.0, 0.0], [3.0, 4.0], [3e200, 4e200], [3e-200, 4e-200]])
    np.testing.assert_allclose(
        Cosine()(X), [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]], rtol=1e-15
    )
    np.testing.assert_allclose(ExpDotProduct(2.0)(X[:2]), [[0, 0], [0, 25]], rtol=1e-15)


def test_chi_squared_refuses_negative_samples():
    with pytest.raises(ValueError, match=r"nonnegative samples, but Z has -0\.5 at row 1, column 0"):
        ChiSquared()([[1.0, 2.0]], [[0.0, 1.0], [-0.5, 1.0]])
    with pytest.raises(ValueError, match=r"but X has -0\.5 at row 2, column 1"):
        ChiSquared()(sparse.csr_array([[0.0, 1.0], [0.0, 0.0], [3.0, -0.5]]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_chi_squared_of_huge_and_tiny_samples(dtype):
    # One feature against 0: (x − 0)²/(x + 0) = x.
    top, low = np.finfo(dtype).max, np.finfo(dtype).tiny
    for x, gamma in ((top, 1 / top), (low, 0.25 / low)):
        X = np.array([[x], [0.0]], dtype)
        for value in (
            ChiSquared(float(gamma))(X)[0, 1],
            ChiSquared(float(gamma)).gram(X).pullback([0.0, 1.0], [1.0, 0.0])[3][1],
        ):
            assert value == pytest.approx(np.exp(-float(gamma) * float(x)), rel=1e-6)


def test_the_largest_samples_warn_of_nothing():
    X = np.full((3, 12), np.finfo(np.float64).max)
    X[1] = 0.0
    for kernel in (RBF(), Matern(0.5), RationalQuadratic()):
        assert kernel(X).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


def test_columns_stay_with_their_kernel():
    X = np.array([[0.0, 0.0], [1.0, 5.0]])
    k = 2 * RBF(length_scale=1.0).on([0]) + RBF(length_scale=2.0).on([1])
    np.testing.assert_allclose(k(X), [[3.0, 1.2569982530486743], [1.2569982530486743, 3.0]], rtol=1e-12)
    np.testing.assert_allclose(k.diag(X), [3.0, 3.0])
    nested = RBF(0.5).on([1, 2]).on([3, 0, 1])
    Y = np.arange(8.0).reshape(2, 4) ** 1.5
    np.testing.assert_allclose(nested(Y), RBF(0.5)(Y[:, [0, 1]]), rtol=1e-15)
    np.testing.assert_allclose(RBF(0.01).on(-1)(Y), RBF(0.01)(Y[:, [3]]), rtol=1e-15)
    np.testing.assert_allclose(
        RBF(0.01).on([True, False, True, False])(Y), RBF(0.01)(Y[:, [0, 2]]), rtol=1e-15
    )


# ---------------------------------------------------------------- explicit features


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (Linear(), {}),
        (Linear([[2.0, 0.5], [0.5, 1.0]]), {}),
        (Polynomial(3, 0.5, 2.0), {}),
        (Polynomial(4, include_bias=False), {}),
        (Fourier(2), {}),
        (Fourier(3, [1.5, 2.0], include_bias=False), {}),
        (RBF(0.3), {"n_terms": 25}),
        (RBF(length_scale=[1.0, 2.0]), {"n_terms": 25}),
        (Cosine(), {}),
        (2 * Linear() + Fourier(1) * Polynomial(2), {}),
        (Polynomial(2) ** 2, {}),
        (Linear().polynomial([1.0, 0.0, 2.0]), {}),
        (Polynomial(2).normalize(), {}),
        (Polynomial(2).center([[0.1, 0.2], [0.3, -0.4]]), {}),
        (Linear().on(1).modulate(lambda X: X[:, 0]), {}),
    ],
    ids=repr,
)
def test_explicit_features_give_the_kernel(kernel, options, rng):
    X = rng.uniform(-1, 1, size=(6, 2))
    F = kernel.features(X, **options)
    np.testing.assert_allclose(F @ F.T, kernel(X), rtol=1e-10, atol=1e-12)


def test_features_that_are_too_many_say_how_many(rng):
    X = rng.normal(size=(100, 30))
    with pytest.raises(ValueError, match=r"847,660,528 per sample"):
        Polynomial(10).features(X)
    with pytest.raises(ValueError, match=r"per sample, .* KernelRidge\(approximation="):
        Fourier(3).features(X)
    with pytest.raises(ValueError, match=r"no finite feature map; .* KernelRidge\(approximation="):
        Laplacian().features(X)

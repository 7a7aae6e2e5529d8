"""check_psd and embedding: definitions, certificates, tolerances, and what bad matrices get."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from mercer.kernels import (
    RBF,
    ChiSquared,
    Cosine,
    Fourier,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Spectrum,
    psd,
)

EPS = np.finfo(np.float64).eps


def random_symmetric(rng, spectrum):
    """A matrix with the given eigenvalues."""
    n = len(spectrum)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    K = (Q * spectrum) @ Q.T
    return (K + K.T) / 2


def test_result_is_true_exactly_when_psd():
    good, bad = psd.check_psd(np.eye(3)), psd.check_psd(np.diag([1.0, -0.5, 2.0]))
    assert good
    assert good.is_psd is True
    assert good.witness is None
    assert good.smallest_eigenvalue == 1.0
    assert not bad
    assert bad.is_psd is False
    assert bad.smallest_eigenvalue == -0.5
    assert np.allclose(np.abs(bad.witness), [0, 1, 0], atol=EPS)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(-1.0, 1.0), st.sampled_from([1e-150, 1.0, 1e150])
)
def test_decides_as_the_spectrum_does_and_the_witness_certifies(n, seed, least, scale):
    rng = np.random.default_rng(seed)
    spectrum = np.concatenate([[least], rng.uniform(1, 2, n - 1)])
    K = scale * random_symmetric(rng, spectrum)
    result = psd.check_psd(K)
    # 40 n eps: ten times the roundings of building K, four times the factor for the solver's.
    assert abs(result.smallest_eigenvalue / scale - least) <= 40 * n * EPS * 2
    if abs(least) > 100 * n * EPS:
        assert bool(result) == (least > 0)
    if not result:
        v = result.witness
        assert v @ (K / scale) @ v < 0
        assert np.isclose(v @ v, 1)


def test_every_gram_matrix_of_real_rows_passes_in_both_precisions():
    rng = np.random.default_rng(0)
    for n, d in [(1, 1), (7, 2), (8, 8), (9, 20), (64, 3), (65, 65)]:
        for dtype in (np.float32, np.float64):
            X = rng.standard_normal((n, d)).astype(dtype)
            assert psd.check_psd(X @ X.T)
            assert psd.check_psd(np.asfortranarray(X @ X.T))


def test_integers_booleans_lists_sparse_and_read_only():
    K = np.array([[2, 1], [1, 2]])
    K.flags.writeable = False
    for same in (K, K.tolist(), K.astype(np.uint8), sparse.csr_array(K), sparse.coo_matrix(K)):
        assert psd.check_psd(same).smallest_eigenvalue == pytest.approx(1.0, abs=4 * EPS)
    assert psd.check_psd(np.ones((3, 3), dtype=bool))
    assert psd.check_psd(np.zeros((4, 4)))
    assert psd.check_psd(np.zeros((4, 4))).tolerance == 0


def test_tolerance_is_stated_and_can_be_set():
    K = np.diag([1.0, -1e-9])
    assert not psd.check_psd(K)
    assert psd.check_psd(K, tolerance=1e-8)
    assert psd.check_psd(K, tolerance=1e-8).tolerance == 1e-8
    assert psd.check_psd(K.astype(np.float32))  # -1e-9 lies within float32's rounding
    with pytest.raises(ValueError, match="tolerance must be at least 0, got -1"):
        psd.check_psd(K, tolerance=-1)


@pytest.mark.parametrize(
    ("K", "error", "match"),
    [
        (np.ones((2, 3)), ValueError, r"square matrix.*\(2, 3\)"),
        (np.ones(3), ValueError, r"square matrix.*\(3,\)"),
        (np.zeros((0, 0)), ValueError, "at least one row"),
        ([[1.0, 2.0], [3.0, 4.0]], ValueError, r"symmetric.*K\[0, 1\] = 2.*K\[1, 0\] = 3.*\(K \+ K.T\) / 2"),
        ([[1.0, np.nan], [np.nan, 1.0]], ValueError, r"K\[0, 1\] is nan"),
        ([[np.inf]], ValueError, r"K\[0, 0\] is inf"),
        (np.eye(2) * 1j, ValueError, "real"),
        ([["a"]], TypeError, "numbers"),
    ],
)
@pytest.mark.parametrize("function", [psd.check_psd, psd.embedding])
def test_what_bad_matrices_get(function, K, error, match):
    with pytest.raises(error, match=match):
        function(K)


def test_rounding_asymmetry_passes():
    K = random_symmetric(np.random.default_rng(1), np.array([1.0, 2.0, 3.0]))
    K[0, 1] += 4 * EPS
    assert psd.check_psd(K)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_embedding_has_the_inner_products_and_the_rank(n, rank, seed):
    rng = np.random.default_rng(seed)
    rank = min(rank, n)
    spectrum = np.concatenate([np.zeros(n - rank), rng.uniform(1, 10, rank)])
    K = random_symmetric(rng, spectrum)
    E = psd.embedding(K)
    assert E.shape == (n, rank)
    assert E.dtype == np.float64
    # The backward error of eigh, and the eigenvalues within the tolerance that are dropped.
    np.testing.assert_allclose(E @ E.T, K, atol=40 * n * EPS * 10)


def test_embedding_is_deterministic_and_keeps_the_precision():
    K = np.array([[2.0, -1.0], [-1.0, 2.0]])
    E = psd.embedding(K)
    np.testing.assert_allclose(E.T @ E, np.diag([3.0, 1.0]), atol=8 * EPS)
    assert (E[np.abs(E).argmax(axis=0), range(2)] > 0).all()
    assert psd.embedding(K.astype(np.float32)).dtype == np.float32
    assert psd.embedding([[1, 0], [0, 1]]).dtype == np.float64


def test_embedding_recovers_points_up_to_a_rotation():
    # LINMA (4.9)-(4.10): features that share a Gram matrix differ by a rotation.
    X = np.random.default_rng(2).standard_normal((6, 3))
    E = psd.embedding(X @ X.T)
    Q = np.linalg.lstsq(X, E, rcond=None)[0]
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(X @ Q, E, atol=1e-12)


def test_embedding_refuses_an_indefinite_matrix_with_a_remedy():
    with pytest.raises(ValueError, match=r"smallest eigenvalue is -1.*K \+ c \* I"):
        psd.embedding([[1.0, 2.0], [2.0, 1.0]])


def test_embedding_tolerance_sets_the_rank():
    K = np.diag([1.0, 1e-6])
    assert psd.embedding(K).shape == (2, 2)
    assert psd.embedding(K, tolerance=1e-5).shape == (2, 1)


def test_arguments_are_left_alone():
    K = random_symmetric(np.random.default_rng(3), np.array([1.0, 2.0, 3.0]))
    before = K.copy()
    psd.check_psd(K), psd.embedding(K)
    assert np.array_equal(K, before)


# ---------------------------------------------------------------- LN14: what the rules build is PSD

LEAVES = [
    Linear(),
    Linear(metric=[[2.0, 1.0], [1.0, 0.5]]),
    Polynomial(2, coef0=0.5),
    Cosine(),
    RBF(gamma=0.7),
    RBF(length_scale=[0.5, 2.0]),
    Laplacian(gamma=0.4),
    Matern(nu=0.5, length_scale=0.8),
    Matern(nu=2.5),
    Matern(nu=0.9),
    RationalQuadratic(length_scale=0.7, alpha=0.6),
    ChiSquared(gamma=0.5),
    Fourier(2, period=1.5),
    Fourier(1, include_bias=False),
    RBF(gamma=2.0).on(1),
]
REFERENCE = np.array([[0.1, 0.9], [0.5, 0.5], [0.8, 0.3]])


def first_column(X):
    """A function of each row, for rule 6."""
    return X[:, 0] - 0.3


def rules(k):
    """What LN14's rules make of kernels."""
    return st.one_of(
        st.builds(lambda a, c: c * a, k, st.floats(0.0, 3.0)),
        st.builds(lambda a, b: a + b, k, k),
        st.builds(lambda a, b: a * b, k, k),
        st.builds(lambda a, p: a.normalize() ** p, k, st.integers(1, 4)),
        st.builds(
            lambda a, c: a.normalize().polynomial(c), k, st.lists(st.floats(0, 2), min_size=1, max_size=4)
        ),
        st.builds(lambda a: a.modulate(first_column), k),
        st.builds(lambda a: a.normalize().exp(), k),
        st.builds(lambda a: a.normalize(), k),
        st.builds(lambda a: a.center(REFERENCE), k),
    )


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(st.sampled_from(LEAVES), rules, max_leaves=5),
    st.integers(1, 12),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_every_composition_is_psd(k, n, seed, doubled):
    X = np.random.default_rng(seed).random((n, 2))
    X = np.concatenate([X, X]) if doubled else X
    K = k(X)
    assert k.is_psd
    assert np.array_equal(K, K.T)
    # Centring and modulation leave less than what they started from, and with it that one's rounding: hence
    # an absolute part, for leaves whose values reach 25.
    assert psd.check_psd(K, tolerance=1e-10 * max(1.0, np.abs(K).max()) * len(K))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("ab", max_size=6), min_size=1, max_size=8), st.integers(1, 3), st.integers(0, 2))
def test_compositions_of_string_kernels_are_psd(X, k, m):
    spectrum = Spectrum(k, m, "ab")
    for kernel in (
        spectrum,
        spectrum.normalize(),
        spectrum.normalize().exp() + 2 * spectrum**2,
        spectrum.center(X),
    ):
        K = kernel(X)
        assert psd.check_psd(K, tolerance=1e-10 * max(1.0, np.abs(K).max()))

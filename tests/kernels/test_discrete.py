"""Kernels of sets, strings, labels, matrices and functions: values by brute force, derivatives, errors."""

import pickle
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from mercer.kernels import (
    RBF,
    Finite,
    FunctionKernel,
    Linear,
    Precomputed,
    SetIntersection,
    Spectrum,
    check_psd,
    embedding,
)

RNG = np.random.default_rng(0)
SETS = [{1, 2, 3}, frozenset({2, 3, 4}), set(), {"a", 2, None}, {1, 2, 3, 4, "a"}]
STRINGS = ["GATTACA", "TACATA", "GA", "", "ATTACAGATTACA"]
LABELS = ["hot", "warm", "cold"]
MATRIX = np.array([[2.0, 1.0, 0.2], [1.0, 1.5, 0.4], [0.2, 0.4, 1.0]])


def minimum(X, Z):
    """min(x, z) for positive x, z: the Brownian kernel."""
    return np.minimum(X, Z.T)


def squared(X, Z):
    """(xᵀz)²."""
    return (X @ Z.T) ** 2


def squared_gradient(X, Z, G):
    """Gradient of Σ G (xᵀz)²."""
    H = 2 * G * (X @ Z.T)
    return H @ Z, H.T @ X


DISCRETE = {
    "sets": (SetIntersection(), SETS),
    "spectrum": (Spectrum(2), STRINGS),
    "mismatch": (Spectrum(2, mismatches=1, alphabet="ACGT"), STRINGS),
    "finite": (Finite(MATRIX, LABELS), ["warm", "cold", "hot", "warm", "warm"]),
    "function": (
        FunctionKernel(lambda X, Z: np.array([[len(set(x) & set(z)) for z in Z] for x in X])),
        STRINGS,
    ),
}
each_discrete = pytest.mark.parametrize(("k", "X"), DISCRETE.values(), ids=DISCRETE)


# ---------------------------------------------------------------- common behaviour


@each_discrete
@pytest.mark.parametrize("n_threads", [1, 2])
def test_matrix_diagonal_symmetry_and_rows_agree(k, X, n_threads):
    K = k(X, n_threads=n_threads)
    assert K.shape == (5, 5)
    assert K.dtype == np.float64
    assert np.array_equal(K, K.T)
    assert np.array_equal(k.diag(X), np.diag(K))
    assert np.array_equal(k(X, X[:3]), K[:, :3])
    assert np.array_equal(k(X, list(X)), K)
    for i in range(5):
        assert np.array_equal(k(X[i : i + 1], X), K[i : i + 1])
    out = np.empty((5, 5), order="F")
    assert k(X, out=out) is out
    assert np.array_equal(out, K)


@each_discrete
def test_every_rule_of_construction(k, X):
    K = k(X).copy()
    scale = np.sqrt(np.outer(np.diag(K), np.diag(K)))
    cosine = np.divide(K, scale, out=np.zeros_like(K), where=scale > 0)
    offset = K.mean(axis=1)
    for kernel, expected in [
        (3 * k, 3 * K),
        (k + k, 2 * K),
        (k * k, K**2),
        (k**3, K**3),
        (k.polynomial([1, 0, 2]), 1 + 2 * K**2),
        ((0.1 * k).exp(), np.exp(0.1 * K)),
        (k.normalize(), cosine),
        ((2 * k + k).normalize(), cosine),
        (k.center(X), K - offset - offset[:, None] + K.mean()),
        (k.modulate(lambda X: np.arange(1.0, len(X) + 1)), K * np.outer(np.arange(1, 6), np.arange(1, 6))),
    ]:
        np.testing.assert_allclose(kernel(X), expected, rtol=1e-13, atol=1e-12, err_msg=repr(kernel))
        if "modulate" not in repr(kernel):
            np.testing.assert_allclose(
                kernel(X, X[1:4]), expected[:, 1:4], rtol=1e-13, atol=1e-12, err_msg=repr(kernel)
            )
            np.testing.assert_allclose(
                kernel.diag(X), np.diag(expected), rtol=1e-13, atol=1e-12, err_msg=repr(kernel)
            )


@each_discrete
def test_gram_operator(k, X):
    V = RNG.standard_normal((5, 2))
    np.testing.assert_allclose(k.gram(X) @ V, k(X) @ V, rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(
        (0.5 * k).gram(X, X[:3]) @ V[:3], 0.5 * k(X, X[:3]) @ V[:3], rtol=1e-13, atol=1e-12
    )


@each_discrete
def test_derivatives_in_the_samples_are_none(k, X):
    G = RNG.standard_normal((5, 5))
    for kernel in (k, 2 * k, k.normalize()):
        dX, dZ, _ = kernel.pullback(X, X[::-1], G)
        assert dX is None
        assert dZ is None
        assert kernel.pullback(X, None, G)[0] is None
        assert not kernel.pushforward(X, None).any()
    assert (3.0 * k).pullback(X, None, G)[2]["scale"] == pytest.approx(np.sum(G * k(X)))


@pytest.mark.parametrize(
    "k",
    [
        SetIntersection(),
        Spectrum(3),
        Spectrum(3, mismatches=1, alphabet="ACGT"),
        Finite(MATRIX),
        Finite(MATRIX, LABELS),
        Precomputed(),
        FunctionKernel(minimum),
        FunctionKernel(squared, squared_gradient),
    ],
    ids=repr,
)
def test_is_a_value(k):
    assert pickle.loads(pickle.dumps(k)) == k
    assert hash(pickle.loads(pickle.dumps(k))) == hash(k)
    assert k.set_params(**k.get_params(deep=False)) == k
    assert k != Linear()
    assert (k + k) == (k + k)
    assert repr(k).startswith(type(k).__name__ + "(")
    with pytest.raises(AttributeError, match="immutable"):
        k.anything = 1


def test_values_differ_by_content():
    assert Spectrum(3) != Spectrum(4)
    assert Spectrum(3) != Spectrum(3, mismatches=1)
    assert Finite(MATRIX) != Finite(2 * MATRIX)
    assert Finite(MATRIX) != Finite(MATRIX, LABELS)
    assert Finite(MATRIX) == Finite(MATRIX.tolist()) == Finite(sp.csr_array(MATRIX))
    assert FunctionKernel(minimum) != FunctionKernel(squared)
    assert Spectrum(3).set_params(k=4) == Spectrum(4)
    with pytest.raises(ValueError, match="q"):
        Spectrum(3).set_params(q=4)


def test_whether_psd_is_known():
    assert SetIntersection().is_psd
    assert Spectrum(2).is_psd
    assert Finite(MATRIX).is_psd
    for k in (Precomputed(), FunctionKernel(minimum)):
        assert k.is_psd is None
        assert "check_psd" in k.psd_note


# ---------------------------------------------------------------- sets


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.frozensets(st.integers(0, 6), max_size=5), min_size=1, max_size=6),
    st.lists(st.frozensets(st.integers(3, 9), max_size=5), min_size=1, max_size=6),
)
def test_sets_by_brute_force(X, Z):
    k = SetIntersection()
    assert np.array_equal(k(X, Z), [[len(a & b) for b in Z] for a in X])
    assert np.array_equal(k.diag(X), [len(a) for a in X])
    # LN14 theorem 2; exp within 2 ulp.
    np.testing.assert_allclose(k.exp()(X, Z), [[np.exp(len(a & b)) for b in Z] for a in X], rtol=1e-15 * 4)
    assert check_psd(k.exp()(X))
    assert check_psd(k(X))
    jaccard_free = k.normalize()(X)
    assert np.array_equal(np.diag(jaccard_free) > 0.5, [len(a) > 0 for a in X])


def test_sets_in_every_form():
    expected = [[2.0, 1.0], [1.0, 3.0]]
    objects = np.empty(2, dtype=object)
    objects[:] = [{1, 2}, {2, 3, 4}]
    for X in (
        [{1, 2}, {2, 3, 4}],
        ({1, 2}, frozenset({2, 3, 4})),
        [[1, 2, 2], (2, 3, 4)],
        [np.array([1, 2]), range(2, 5)],
        [{1: "x", 2: "y"}, [2, 3, 4]],
        objects,
        objects[:, None],
    ):
        assert SetIntersection()(X).tolist() == expected
    assert SetIntersection()(np.array([[1, 2, 3], [3, 4, 4]])).tolist() == [[3, 1], [1, 2]]


def test_sets_in_a_data_frame():
    pd = pytest.importorskip("pandas")
    s = pd.Series([{1, 2}, {2}], index=["p", "q"])
    assert SetIntersection()(s).tolist() == SetIntersection()(s.to_frame()).tolist() == [[2, 1], [1, 1]]


@pytest.mark.parametrize(
    ("X", "error", "match"),
    [
        ("abc", TypeError, r"one string.*pass \[X\]"),
        ({1, 2}, TypeError, "one set"),
        ([1, 2], TypeError, r"X\[0\] is 1 of type int.*set"),
        (["ab"], TypeError, r"X\[0\] is 'ab'.*set\(…\)"),
        ([{1}, [[1]]], TypeError, r"X\[1\] has an element that is not hashable"),
        ([iter([1, 2])], TypeError, r"X\[0\].*collection"),
        ([], ValueError, "empty"),
        (None, TypeError, "sequence of sets"),
        (7, TypeError, "sequence of sets"),
        (sp.eye_array(3), TypeError, "sequence of sets"),
    ],
)
def test_sets_errors(X, error, match):
    with pytest.raises(error, match=match):
        SetIntersection()(X)


def test_set_features():
    F = SetIntersection().features(SETS)
    assert np.array_equal(F @ F.T, SetIntersection()(SETS))
    assert set(np.unique(F)) == {0.0, 1.0}


# ---------------------------------------------------------------- strings


def spectrum(X, Z, k):
    counts = [[Counter(s[i : i + k] for i in range(len(s) - k + 1)) for s in side] for side in (X, Z)]
    return np.array([[sum(a[w] * b[w] for w in a) for b in counts[1]] for a in counts[0]], dtype=float)


strings = st.lists(st.text("abcß", max_size=8), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(strings, strings, st.integers(1, 4))
def test_spectrum_by_brute_force(X, Z, k):
    assert np.array_equal(Spectrum(k)(X, Z), spectrum(X, Z, k))
    assert np.array_equal(Spectrum(k)(X), spectrum(X, X, k))
    K = Spectrum(k).normalize()(X)
    np.testing.assert_allclose(np.diag(K), [float(len(s) >= k) for s in X], rtol=1e-14)
    # Cauchy and Schwarz, up to rounding.
    assert (np.abs(K) <= 1 + 1e-14).all()


@settings(max_examples=30, deadline=None)
@given(strings, strings, st.integers(1, 3), st.integers(0, 3))
def test_mismatches_share_columns_between_the_sides(X, Z, k, m):
    both = Spectrum(k, mismatches=m)(X + Z)
    assert np.array_equal(Spectrum(k, mismatches=m)(X, Z), both[: len(X), len(X) :])
    alphabet = Spectrum(k, m, "abcßd")
    assert np.array_equal(alphabet(X, Z), alphabet(X + Z)[: len(X), len(X) :])
    # One alphabet on both sides, also in the norms.
    unit = Spectrum(k, m).normalize()(X, Z)
    np.testing.assert_allclose(unit, Spectrum(k, m).normalize()(X + Z)[: len(X), len(X) :], rtol=1e-13)
    assert (unit <= 1 + 1e-14).all()


def test_mismatch_by_hand():
    # AA and AC share AA, AC and the two other A? at distance 1, over four letters.
    K = Spectrum(2, mismatches=1, alphabet="ACGT")(["AA", "AC", "CC"])
    assert K.tolist() == [[7, 4, 2], [4, 7, 4], [2, 4, 7]]


def test_more_mismatches_than_letters_count_everything():
    K = Spectrum(2, mismatches=2, alphabet="ab")(["aa", "bbb"])
    assert K.tolist() == [[4, 8], [8, 16]]
    assert Spectrum(2, mismatches=5, alphabet="ab")(["aa", "bbb"]).tolist() == K.tolist()


def test_strings_in_every_form():
    expected = spectrum(STRINGS, STRINGS, 2)
    bytes_ = [s.encode() for s in STRINGS]
    for X in (STRINGS, tuple(STRINGS), np.array(STRINGS), np.array(STRINGS, dtype=object)[:, None], bytes_):
        assert np.array_equal(Spectrum(2)(X), expected)
    assert np.array_equal(Spectrum(2, 1, b"ACGT")(bytes_), Spectrum(2, 1, "ACGT")(STRINGS))


def test_all_strings_too_short():
    assert not Spectrum(5)(["ab", ""]).any()
    assert not Spectrum(5).normalize()(["ab", ""]).any()
    assert not Spectrum(5, mismatches=2)(["ab"], ["abc", "d"]).any()
    assert Spectrum(5).diag(["ab", "abcdef"]).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("X", "error", "match"),
    [
        ("GATTACA", TypeError, r"one string.*pass \[X\]"),
        ([1, 2], TypeError, r"X\[0\] is 1 of type int, where a string is needed"),
        (["A", None], TypeError, r"X\[1\] is None"),
        (["A", b"A"], TypeError, r"X\[1\].*str is needed"),
        (np.eye(2), TypeError, r"X\[0\].*string"),
        ([], ValueError, "empty"),
    ],
)
def test_string_errors(X, error, match):
    with pytest.raises(error, match=match):
        Spectrum(2)(X)
    with pytest.raises(error, match=match.replace("X", "Z")):
        Spectrum(2)(["A"], X)


def test_bytes_against_text_is_refused():
    with pytest.raises(TypeError, match=r"both hold str or both bytes"):
        Spectrum(2)(["AB"], [b"AB"])
    with pytest.raises(TypeError, match="alphabet is bytes"):
        Spectrum(2, 0, b"AB")(["AB"])
    for k in (Spectrum(2, 0, "AB"), Spectrum(2, 0, b"AB")):
        good, bad = ["AB", "AAC"], ["AB", "", "AC"]
        if isinstance(k.alphabet, bytes):
            good, bad = ([s.encode() for s in side] for side in (good[:1], bad))
        with pytest.raises(ValueError, match=r"X\[2\] has b?'C' at place 1, .*alphabet b?'AB'"):
            k(bad)
        with pytest.raises(ValueError, match=r"Z\[2\] has b?'C' at place 1"):
            k(good[:1], bad)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((0,), ValueError, "k must be"),
        ((2.5,), ValueError, "k must be"),
        (("2",), TypeError, "k must be"),
        ((2, -1), ValueError, "mismatches must be"),
        ((2, 0, 7), TypeError, "alphabet"),
        ((2, 0, ""), TypeError, "alphabet"),
    ],
)
def test_spectrum_arguments(arguments, error, match):
    with pytest.raises(error, match=match):
        Spectrum(*arguments)


def test_string_features():
    F = Spectrum(2).features(STRINGS)
    assert np.array_equal(F @ F.T, Spectrum(2)(STRINGS))


def test_wrong_kinds_of_samples_do_not_mix():
    with pytest.raises(TypeError, match="read different things"):
        (Spectrum(2) + RBF())(STRINGS)
    with pytest.raises((TypeError, ValueError), match="string"):
        RBF()(STRINGS)


# ---------------------------------------------------------------- finite


def test_finite_is_a_lookup():
    k = Finite(MATRIX, LABELS)
    ix = np.array([1, 2, 0, 1, 1])
    X = [LABELS[i] for i in ix]
    assert np.array_equal(k(X, ["cold", "hot"]), MATRIX[np.ix_(ix, [2, 0])])
    for same in (np.array(X), tuple(X), np.array(X, dtype=object)[:, None]):
        assert np.array_equal(k(same), MATRIX[np.ix_(ix, ix)])
    for index in (ix, ix.tolist(), ix[:, None], ix.astype(np.uint8), ix.astype(float)):
        assert np.array_equal(Finite(MATRIX)(index), MATRIX[np.ix_(ix, ix)])
    assert np.array_equal(
        Finite(MATRIX, labels=[(0, 1), None, 2.5])([None, (0, 1)]), MATRIX[np.ix_([1, 0], [1, 0])]
    )


def test_finite_column_among_numbers():
    X = np.column_stack([[0, 2, 1, 1], RNG.standard_normal((4, 2))])
    k = Finite(MATRIX).on(0) * RBF(gamma=0.5).on([1, 2])
    ix = [0, 2, 1, 1]
    expected = MATRIX[np.ix_(ix, ix)] * RBF(gamma=0.5)(X[:, 1:])
    np.testing.assert_allclose(k(X), expected, rtol=1e-14)
    np.testing.assert_allclose(k(X, X[:2]), expected[:, :2], rtol=1e-14)
    np.testing.assert_allclose(k.diag(X), np.diag(expected), rtol=1e-14)
    assert np.array_equal(Finite(MATRIX).on(0)(X), MATRIX[np.ix_(ix, ix)])
    for kernel in (Finite(MATRIX), 2 * Finite(MATRIX)):
        with pytest.raises(ValueError, match=r"reads one column of labels.*X has 3.*\.on"):
            kernel(X)
    with pytest.raises(ValueError, match=r"reads one column of labels.*\.on"):
        (Finite(MATRIX) * RBF())(X)


def test_finite_gradient_is_symmetric_and_agrees_with_differences():
    ix, iz = [1, 2, 0, 1, 1], [0, 0, 2]
    G, T = RNG.standard_normal((5, 3)), RNG.standard_normal((3, 3))
    T = T + T.T
    for make in (
        Finite,
        lambda M: 2 * Finite(M).exp(),
        lambda M: Finite(M).normalize(),
        lambda M: Finite(M) ** 2,
    ):
        k = make(MATRIX)
        name = next(h.name for h in k.hyperparameters if h.name.endswith("matrix"))
        for Z, g in ((iz, G), (None, RNG.standard_normal((5, 5)))):
            dX, dZ, dparams = k.pullback(ix, Z, g)
            assert dX is None
            assert dZ is None
            dM = dparams[name]
            assert np.array_equal(dM, dM.T)
            tK = k.pushforward(ix, Z, tparams={name: T})
            assert np.sum(g * tK) == pytest.approx(np.sum(dM * T), rel=1e-12)
            errors = []
            for h in (1e-2, 5e-3):
                difference = (make(MATRIX + h * T)(ix, Z) - make(MATRIX - h * T)(ix, Z)) / (2 * h)
                errors.append(np.abs(difference - tK).max())
            assert errors[1] <= 0.3 * errors[0] + 1e-12
            tdM = k.pullback_pushforward(ix, Z, g, tparams={name: T})[2][name]
            plus, minus = (make(MATRIX + s * 1e-5 * T).pullback(ix, Z, g)[2][name] for s in (1, -1))
            np.testing.assert_allclose(tdM, (plus - minus) / 2e-5, atol=1e-6 * (1 + np.abs(tdM).max()))


def test_finite_scatter_adds_repeated_labels():
    G = np.arange(6.0).reshape(3, 2)
    dM = Finite(MATRIX).pullback([0, 0, 1], [2, 2], G)[2]["matrix"]
    expected = np.zeros((3, 3))
    np.add.at(expected, ([[0], [0], [1]], [[2, 2]]), G)
    assert np.array_equal(dM, (expected + expected.T) / 2)


def test_finite_features_are_an_embedding():
    k = Finite(MATRIX, LABELS)
    X = ["cold", "hot", "cold"]
    F = k.features(X)
    np.testing.assert_allclose(F @ F.T, k(X), rtol=1e-13)
    assert np.array_equal(F, embedding(MATRIX)[[2, 0, 2]])


@pytest.mark.parametrize(
    ("matrix", "labels", "error", "match"),
    [
        ([[1, 2], [2, 1]], None, ValueError, "positive semidefinite.*LINMA.*smallest eigenvalue is -1"),
        ([[1, 2], [0, 1]], None, ValueError, "symmetric"),
        ([[1, 2, 3]], None, ValueError, "square"),
        ([[np.nan]], None, ValueError, "nan"),
        ("abc", None, TypeError, "numbers"),
        (np.eye(2), ["a"], ValueError, "2 rows.*1 labels"),
        (np.eye(2), ["a", "a"], ValueError, "'a' occurs at 0 and at 1"),
    ],
)
def test_finite_arguments(matrix, labels, error, match):
    with pytest.raises(error, match=match):
        Finite(matrix, labels)


@pytest.mark.parametrize(
    ("k", "X", "error", "match"),
    [
        (Finite(MATRIX, LABELS), ["hot", "tepid"], ValueError, r"X\[1\] is 'tepid'.*'hot', 'warm', 'cold'"),
        (Finite(MATRIX, LABELS), [["hot"]], (TypeError, ValueError), "label"),
        (Finite(MATRIX, LABELS), "hot", TypeError, "one string"),
        (Finite(MATRIX), [0, 3], ValueError, r"X\[1\] is 3"),
        (Finite(MATRIX), [0, -1], ValueError, r"X\[1\] is -1"),
        (Finite(MATRIX), [0.5], TypeError, "whole numbers"),
        (Finite(MATRIX), ["hot"], TypeError, "whole numbers"),
        (Finite(MATRIX), [], ValueError, "empty"),
    ],
)
def test_finite_samples(k, X, error, match):
    with pytest.raises(error, match=match):
        k(X)


def test_finite_keeps_its_own_matrix():
    M = MATRIX.copy()
    k = Finite(M)
    M[:] = 7
    assert np.array_equal(k([0, 1, 2]), MATRIX)


def test_a_large_matrix_of_low_rank_passes():
    X = RNG.standard_normal((300, 2))
    Finite(X @ X.T)
    Finite((X @ X.T).astype(np.float32))


# ---------------------------------------------------------------- precomputed


@pytest.mark.parametrize("dtype", [np.float32, np.float64, int])
def test_precomputed_is_its_samples(dtype):
    K = (10 * MATRIX).astype(dtype)
    out = np.float32 if dtype == np.float32 else np.float64
    for same in (K, K.tolist(), np.asfortranarray(K), sp.csr_array(K)):
        result = Precomputed()(same)
        assert result is not same
        assert np.array_equal(result, K)
    assert Precomputed()(K).dtype == out
    assert np.array_equal(Precomputed()(K[:2], K), K[:2])
    assert np.array_equal(Precomputed().diag(K), np.diag(K))
    np.testing.assert_allclose((2 * Precomputed()).exp()(K / 10), np.exp(2 * (K / 10)), rtol=1e-6)
    np.testing.assert_allclose(Precomputed().normalize()(K).diagonal(), 1.0, rtol=1e-6)


def test_precomputed_diagonal_of_many_rows():
    X = RNG.standard_normal((1500, 2))
    K = X @ X.T
    np.testing.assert_allclose((2 * Precomputed()).diag(K), 2 * np.diag(K), rtol=1e-14)
    np.testing.assert_allclose(np.diag((2 * Precomputed()).normalize()(K)), 1.0, rtol=1e-12)


def test_precomputed_pullback_is_the_cotangent():
    G = RNG.standard_normal((3, 3))
    dX, dZ, dparams = Precomputed().pullback(MATRIX, None, G)
    np.testing.assert_allclose(dX, (G + G.T) / 2, rtol=1e-15)
    assert dZ is None
    assert dparams == {}
    dX, dZ, _ = Precomputed().pullback(MATRIX[:2], MATRIX, G[:2])
    assert np.array_equal(dX, G[:2])
    assert not np.any(dZ)
    dX, _, _ = Precomputed().exp().pullback(MATRIX[:2], MATRIX, G[:2])
    np.testing.assert_allclose(dX, G[:2] * np.exp(MATRIX[:2]), rtol=1e-14)
    T = RNG.standard_normal((3, 3))
    T = T + T.T
    tK = Precomputed().normalize().pushforward(MATRIX, None, T)
    plus, minus = (Precomputed().normalize()(MATRIX + s * 1e-5 * T) for s in (1, -1))
    np.testing.assert_allclose(tK, (plus - minus) / 2e-5, atol=1e-9)
    dX, _, _ = Precomputed().normalize().pullback(MATRIX, None, G)
    assert np.sum(dX * T) == pytest.approx(np.sum(G * tK), rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((MATRIX[:2],), r"square in a symmetric call, got shape \(2, 3\)"),
        ((np.array([[1.0, 2.0], [3.0, 4.0]]),), r"symmetric, but K\[0, 1\] = 2.*K\[1, 0\] = 3"),
        ((MATRIX[:2], MATRIX[:2]), r"one column per row of Z.*\(2, 3\).*2 rows"),
        ((np.full((2, 2), np.nan),), "NaN"),
    ],
)
def test_precomputed_errors(arguments, match):
    with pytest.raises(ValueError, match=match):
        Precomputed()(*arguments)


def test_a_large_matrix_is_checked_too():
    K = np.ones((1500, 1500))
    K[1400, 3] = 2.0
    with pytest.raises(ValueError, match=r"K\[3, 1400\] = 1 and K\[1400, 3\] = 2"):
        Precomputed()(K)
    with pytest.raises(ValueError, match=r"square.*\(1500, 1499\)"):
        Precomputed()(K[:, :-1])


def test_precomputed_rows_do_not_know_their_diagonal():
    for call in (lambda k: k.diag(MATRIX[:2]), lambda k: k.normalize()(MATRIX[:2], MATRIX)):
        with pytest.raises(ValueError, match=r"shape \(2, 3\) has no k\(x, x\).*normalise"):
            call(Precomputed())


# ---------------------------------------------------------------- functions


def test_function_gets_whole_blocks_and_combines():
    X, Z = RNG.random((7, 1)), RNG.random((4, 1))
    k = FunctionKernel(minimum)
    assert np.array_equal(k(X, Z), np.minimum(X, Z.T))
    assert np.array_equal(k(X), np.minimum(X, X.T))
    assert np.array_equal(k.diag(X), X[:, 0])
    np.testing.assert_allclose((2 * k + RBF())(X, Z), 2 * np.minimum(X, Z.T) + RBF()(X, Z), rtol=1e-14)
    wide = np.hstack([RNG.random((7, 2)), X])
    assert np.array_equal(k.on(2)(wide), k(X))
    assert k(X.astype(np.float32)).dtype == np.float32
    assert check_psd(k(X))


def test_function_of_many_rows_is_asked_in_strips():
    sizes = []

    def f(X, Z):
        sizes.append((len(X), len(Z)))
        return X @ Z.T

    X = RNG.random((3000, 2))
    K = FunctionKernel(f)(X)
    np.testing.assert_allclose(K, X @ X.T, rtol=1e-13)
    assert max(n * m for n, m in sizes) * 8 <= 2**25
    assert all(m == 3000 for _, m in sizes)
    sizes.clear()
    np.testing.assert_allclose(FunctionKernel(f).diag(X), np.sum(X * X, axis=1), rtol=1e-13)
    assert max(n for n, _ in sizes) <= 16


def test_function_derivatives():
    X, Z, G = RNG.standard_normal((5, 3)), RNG.standard_normal((4, 3)), RNG.standard_normal((5, 4))
    tX, tZ = RNG.standard_normal((5, 3)), RNG.standard_normal((4, 3))
    native = Linear() ** 2
    k = FunctionKernel(squared, squared_gradient)
    for mine, same in (
        (k, native),
        (3 * k, 3 * native),
        ((0.1 * k).exp(), (0.1 * native).exp()),
        (k * RBF(), native * RBF()),
        (k.normalize(), native.normalize()),
        (k.on([2, 0]), native.on([2, 0])),
    ):
        got, expected = mine.pullback(X, Z, G), same.pullback(X, Z, G)
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-11, atol=1e-12)
        H = RNG.standard_normal((5, 5))
        np.testing.assert_allclose(
            mine.pullback(X, None, H)[0], same.pullback(X, None, H)[0], rtol=1e-11, atol=1e-11
        )
        np.testing.assert_allclose(
            mine.pushforward(X, Z, tX, tZ), same.pushforward(X, Z, tX, tZ), rtol=1e-11, atol=1e-12
        )
        np.testing.assert_allclose(
            mine.pushforward(X, None, tX), same.pushforward(X, None, tX), rtol=1e-11, atol=1e-12
        )


def test_function_without_derivatives_says_so():
    X, G = RNG.random((3, 1)), np.ones((3, 3))
    with pytest.raises(ValueError, match=r"minimum.*no derivative.*gradient\(X, Z, G\)"):
        FunctionKernel(minimum).pullback(X, None, G)
    with pytest.raises(ValueError, match="no derivative"):
        FunctionKernel(minimum).pushforward(X, None, X)
    with pytest.raises(ValueError, match="no second derivative"):
        FunctionKernel(squared, squared_gradient).pullback_pushforward(X, None, G, X)


def test_function_exceptions_pass_unchanged():
    class Mine(Exception):
        pass

    error = Mine("from inside")

    def f(X, Z):
        raise error

    X = np.eye(2)
    for call in (
        lambda: FunctionKernel(f)(X),
        lambda: FunctionKernel(f).diag(X),
        lambda: (2 * FunctionKernel(f) + RBF()).gram(X) @ np.ones(2),
        lambda: FunctionKernel(squared, lambda X, Z, G: f(X, Z)).pullback(X, None, X),
    ):
        with pytest.raises(Mine) as caught:
            call()
        assert caught.value is error


@pytest.mark.parametrize(
    ("f", "match"),
    [
        (lambda X, Z: 1.0, r"shape \(2, 2\).*got \(\).*lambda X, Z"),
        (lambda X, Z: np.ones((2, 3)), r"shape \(2, 2\).*got \(2, 3\)"),
        (lambda X, Z: np.full((2, 2), np.nan), r"returned nan at \(0, 0\)"),
        (lambda X, Z: np.eye(2) * 1j, "real numbers"),
        (lambda X, Z: np.array([["a"] * 2] * 2), "real numbers"),
        (lambda X, Z: np.array([[1.0, 2.0], [3.0, 4.0]]), "symmetric"),
        (lambda X, Z: None, "real numbers"),
    ],
)
def test_what_a_function_returns_is_checked(f, match):
    with pytest.raises(ValueError, match=match):
        FunctionKernel(f)(np.eye(2))


def test_what_a_gradient_returns_is_checked():
    with pytest.raises(ValueError, match="must return a pair"):
        FunctionKernel(squared, lambda X, Z, G: X).pullback(np.eye(2), None, np.eye(2))
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        FunctionKernel(squared, lambda X, Z, G: (X, Z[:1])).pullback(np.eye(2), None, np.eye(2))


def test_function_samples_may_be_anything_or_are_checked_as_numbers():
    k = FunctionKernel(lambda X, Z: np.array([[float(x == z) for z in Z] for x in X]))
    assert k(["a", "b", "a"]).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert k([{1}, (2, 3), None]).tolist() == np.eye(3).tolist()
    with pytest.raises(ValueError, match="NaN"):
        FunctionKernel(squared)([[np.nan]])
    with pytest.raises(ValueError, match="2D"):
        FunctionKernel(squared)([1.0, 2.0])
    with pytest.raises(TypeError, match="sequence of samples"):
        k("abc")
    with pytest.raises(ValueError, match="empty"):
        k([])


@pytest.mark.parametrize("arguments", [(3,), (None,), (minimum, 3)])
def test_function_arguments(arguments):
    with pytest.raises(TypeError, match="must be a function"):
        FunctionKernel(*arguments)


def test_discrete_samples_have_no_tangent():
    with pytest.raises(ValueError, match="tX is given, but the samples are discrete"):
        Spectrum(2).pushforward(["abc", "bcd"], None, np.ones((2, 1)))


def test_on_needs_columns():
    with pytest.raises(TypeError, match="needs samples of shape"):
        Finite(np.eye(2), ["a", "b"]).on(0)(["a"])


def test_a_large_precomputed_matrix_normalizes(rng, monkeypatch):
    # Diagonal and derivatives go through samples in pieces, which a matrix of kernel values does not have.
    X, k = rng.random((30, 4)), Precomputed().normalize()
    K, G, tK = X @ X.T + np.eye(30), rng.random((30, 30)), rng.random((30, 30))

    def everything():
        yield k.diag(K)
        yield k(K)
        yield k.pushforward(K, None, tK)
        yield k.pullback(K, None, G)[0]
        yield k.pullback_pushforward(K, None, G, tK)[0]

    expected = list(everything())
    monkeypatch.setattr("mercer.kernels.prepared._CHUNK", 100)
    monkeypatch.setattr("mercer.kernels.derivatives._STRIP_ENTRIES", 100)
    for part, whole in zip(everything(), expected, strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-13)

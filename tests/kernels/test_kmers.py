"""K-mer counts and indicators against brute force."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mercer.kernels import kmers
from mercer.kernels.kmers import count_kmers, indicators


def brute(strings, k, mismatches=0, alphabet=None):
    """Gram matrix of the mismatch kernel by its definition: every window, every k-mer near it."""
    alphabet = sorted(set(alphabet if alphabet is not None else "".join(strings)))
    rows = []
    for s in strings:
        row = Counter()
        for i in range(len(s) - k + 1):
            if mismatches == 0:
                row[tuple(s[i : i + k])] += 1
                continue
            for near in product(alphabet, repeat=k):
                row[near] += sum(a != b for a, b in zip(s[i : i + k], near, strict=True)) <= mismatches
        rows.append(row)
    return np.array([[sum(a[t] * b[t] for t in a) for b in rows] for a in rows], dtype=float)


def gram(features):
    return (features @ features.T).toarray()


strings = st.lists(st.text("ACGé😀", max_size=9), min_size=1, max_size=5)


@settings(max_examples=100, deadline=None)
@given(strings, st.integers(1, 5))
def test_counts_are_exact(X, k):
    features = count_kmers(X, k)
    assert features.has_canonical_format
    assert features.dtype == np.float64
    assert np.array_equal(gram(features), brute(X, k))
    assert np.array_equal(features.sum(axis=1), [max(0, len(s) - k + 1) for s in X])


@settings(max_examples=60, deadline=None)
@given(strings, st.integers(1, 3), st.integers(0, 4), st.sampled_from([None, "ACGé😀T"]))
def test_mismatches_are_exact(X, k, mismatches, alphabet):
    assert np.array_equal(gram(count_kmers(X, k, mismatches, alphabet)), brute(X, k, mismatches, alphabet))


@pytest.mark.parametrize("k", [1, 2, 5, 15, 16, 31, 40, 64])
def test_codes_longer_than_a_word(k):
    rng = np.random.default_rng(k)
    letters = list("ACDEFGHIKLMNPQRSTVWY")
    base = "".join(rng.choice(letters, 80))
    X = [base, base[3:], base[:40] + "A" + base[41:], "A" * 80, ""]
    assert np.array_equal(gram(count_kmers(X, k)), brute(X, k))


@pytest.mark.parametrize(("k", "mismatches"), [(15, 1), (16, 2), (33, 1)])
def test_neighbours_across_words(k, mismatches):
    # Two k-mers at distance d share the neighbours within m: counted here by the places where they differ.
    rng = np.random.default_rng(0)
    letters = "ACDEFGHIKLMNPQRSTVWY"
    a = "".join(rng.choice(list(letters), k))
    b = a[: k // 2] + ("A" if a[k // 2] != "A" else "C") + a[k // 2 + 1 :]
    c = ("A" if b[0] != "A" else "C") + b[1:]
    K = gram(count_kmers([a, b, c], k, mismatches, letters))
    n = len(letters)
    size = {1: 1 + k * (n - 1), 2: 1 + k * (n - 1) + k * (k - 1) // 2 * (n - 1) ** 2}[mismatches]
    # Distance 1, m = 1: the n k-mers that vary in the place. m = 2: also any one change elsewhere of those.
    near = {1: n, 2: n + (k - 1) * (n - 1) * n}[mismatches]
    assert np.array_equal(np.diag(K), [size] * 3)
    assert K[0, 1] == near
    assert K[1, 2] == near
    if mismatches == 1:
        assert K[0, 2] == 2


def test_bytes_equal_text_and_letters_may_be_anything():
    X = ["GATTACA", "TACATA", "GA", ""]
    assert np.array_equal(gram(count_kmers([s.encode() for s in X], 3)), brute(X, 3))
    assert np.array_equal(gram(count_kmers([b"\x00\xff\x00\xff", b"\xff\x00"], 2)), [[5, 1], [1, 1]])
    assert np.array_equal(gram(count_kmers(["\ud800a\ud800a", "a\ud800"], 2)), [[5, 1], [1, 1]])


def test_alphabet_errors_say_where():
    with pytest.raises(ValueError, match=r"'N' at place 2 of string 1 .*alphabet 'ACGT'"):
        count_kmers(["ACG", "ACN"], 2, 0, "ACGT")


def test_too_many_neighbours_is_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr(kmers, "available_memory", lambda: 10**6)
    with pytest.raises(ValueError, match=r"neighbours each.*lower k or mismatches"):
        count_kmers(["".join(np.random.default_rng(0).choice(list("ABCDEFGHIJ"), 500))], 6, 3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.frozensets(st.one_of(st.integers(-3, 3), st.text(max_size=1), st.none())), min_size=1, max_size=6
    )
)
def test_indicators(X):
    features = indicators(X)
    assert features.has_canonical_format
    assert np.array_equal(gram(features), [[len(a & b) for b in X] for a in X])

"""Strings and sets as sparse rows of counts, with columns that both sides share.

A k-mer is a substring of length k. Letters become small integers and a k-mer one or more 62-bit words of
digits in base |alphabet|, so that counting is NumPy's sorting and not a loop over substrings.

Place on the way: strings or sets → **kmers** → CSR features → the DOT leaf of `Spectrum`, `SetIntersection`.
"""

from itertools import chain, combinations
from math import comb

import numpy as np
from scipy import sparse

from .._memory import available_memory, readable_size

__all__ = ["count_kmers", "indicators"]

_WORD_BITS = 62


def indicators(sets):
    """The indicator vectors of sets over the vocabulary of all of them.

    Parameters
    ----------
    sets : list of set or frozenset

    Returns
    -------
    csr_array of shape (len(sets), max(1, |vocabulary|))
        Canonical; the columns are the elements in the order in which they first occur.
    """
    elements = list(chain.from_iterable(sets))
    column = {element: j for j, element in enumerate(dict.fromkeys(elements))}
    indices = np.fromiter(map(column.__getitem__, elements), dtype=np.int64, count=len(elements))
    rows = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
    return _count(rows, indices, (len(sets), max(1, len(column))))


def count_kmers(strings, k, mismatches=0, alphabet=None):
    """How often each k-mer occurs in each string, exactly or within a Hamming distance.

    Parameters
    ----------
    strings : list of str, or list of bytes
    k : int
    mismatches : int
        An occurrence counts for every k-mer over the alphabet that differs from it in at most so many
        places.
    alphabet : str or bytes, default=None
        None: the letters that occur in the strings.

    Returns
    -------
    csr_array of shape (len(strings), n_kmers)
        Canonical; columns in the order of the k-mers' codes, at least one. A string shorter than k has a
        row of zeros.

    Raises
    ------
    ValueError
        For a letter outside the alphabet, or if the neighbourhoods do not fit into memory.
    """
    letters, lengths, size = _letters(strings, alphabet)
    rows, starts = _windows(lengths, k)
    shape = (len(strings), 1)
    if len(rows) == 0:
        return sparse.csr_array(shape, dtype=np.float64)
    codes = _codes(letters, starts, k, size)
    first, inverse = _unique(codes)
    counts = _count(rows, inverse, (len(strings), len(first)))
    if mismatches == 0 or size == 1:
        return counts
    mismatches = min(mismatches, k)
    n_near = sum(comb(k, i) * (size - 1) ** i for i in range(mismatches + 1))
    # The neighbours' codes with their sorting, then the product's entries.
    need = len(first) * n_near * 8 * (2 * codes.shape[1] + 4) + counts.nnz * n_near * 16
    if need > available_memory():
        raise ValueError(
            f"{len(first)} distinct {k}-mers with {n_near} neighbours each ({mismatches} mismatches, "
            f"{size} letters) need up to {readable_size(need)}; lower k or mismatches, or give fewer strings"
        )
    windows = letters[starts[first][:, None] + np.arange(k)]
    return _canonical(counts @ _neighbourhoods(windows, codes[first], size, mismatches))


def _letters(strings, alphabet):
    """All letters as indices into the alphabet, the strings' lengths and the alphabet's size."""
    lengths = np.array([len(s) for s in strings], dtype=np.int64)
    points = _code_points(strings)
    if alphabet is None:
        known, letters = np.unique(points, return_inverse=True)
        return letters.astype(np.int64).ravel(), lengths, len(known)
    known = np.unique(_code_points([alphabet]))
    letters = np.minimum(np.searchsorted(known, points), len(known) - 1)
    unknown = np.flatnonzero(known[letters] != points)
    if len(unknown):
        at = int(unknown[0])
        i = int(np.searchsorted(np.cumsum(lengths), at, side="right"))
        place = at - int(lengths[:i].sum())
        raise ValueError(
            f"the letter {strings[i][place : place + 1]!r} at place {place} of string {i} is not in the "
            f"alphabet {alphabet!r}"
        )
    return letters, lengths, len(known)


def _code_points(strings):
    if isinstance(strings[0], bytes):
        return np.frombuffer(b"".join(strings), dtype=np.uint8)
    # surrogatepass: a lone surrogate is a letter like any other.
    return np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _windows(lengths, k):
    """Of every window of length k the index of its string and its start among all letters."""
    n_windows = np.maximum(lengths - k + 1, 0)
    rows = np.repeat(np.arange(len(lengths)), n_windows)
    offsets = np.cumsum(lengths) - lengths
    before = np.cumsum(n_windows) - n_windows
    return rows, np.arange(len(rows)) - before[rows] + offsets[rows]


def _places(k, size):
    """Of each of k digits the word that holds it and its weight there."""
    per_word = max(1, int(_WORD_BITS / np.log2(max(size, 2))))
    place = np.arange(k)
    return place // per_word, size ** (place % per_word).astype(np.int64)


def _codes(letters, starts, k, size):
    """The code of each window, int64 of shape (n_windows, n_words)."""
    word, weight = _places(k, size)
    codes = np.zeros((len(starts), word[-1] + 1), dtype=np.int64)
    for j in range(k):
        codes[:, word[j]] += letters[starts + j] * weight[j]
    return codes


def _unique(codes):
    """Index of the first of each distinct code, and each code's rank among the distinct ones."""
    values = codes[:, 0] if codes.shape[1] == 1 else codes
    if values.ndim == 1 and (top := int(values.max()) + 1) <= 4 * len(values):
        # So few codes are possible that a table of them is cheaper than sorting.
        first = np.full(top, -1, dtype=np.int64)
        first[values[::-1]] = np.arange(len(values))[::-1]
        present = first >= 0
        return first[present], (np.cumsum(present) - 1)[values]
    _, first, inverse = np.unique(values, axis=0, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def _neighbourhoods(windows, codes, size, mismatches):
    """The incidence of distinct k-mers and all k-mers within the distance, csr of shape (u, v).

    Changing i chosen digits by nonzero shifts modulo the alphabet's size reaches each k-mer at the
    distance i exactly once.
    """
    u, k = windows.shape
    word, weight = _places(k, size)
    near = [codes]
    for i in range(1, mismatches + 1):
        shifts = np.indices((size - 1,) * i).reshape(i, -1) + 1
        for places in combinations(range(k), i):
            moved = np.repeat(codes[:, None, :], shifts.shape[1], axis=1)
            for shift, j in zip(shifts, places, strict=True):
                old = windows[:, j, None]
                moved[:, :, word[j]] += ((old + shift) % size - old) * weight[j]
            near.append(moved.reshape(-1, codes.shape[1]))
    rows = np.concatenate([np.repeat(np.arange(u), len(block) // u) for block in near])
    first, columns = _unique(np.concatenate(near))
    return _count(rows, columns, (u, len(first)))


def _count(rows, columns, shape):
    ones = np.ones(len(rows))
    return _canonical(sparse.coo_array((ones, (rows, columns)), shape=shape).tocsr())


def _canonical(matrix):
    matrix = sparse.csr_array(matrix)
    matrix.sum_duplicates()
    matrix.sort_indices()
    return matrix

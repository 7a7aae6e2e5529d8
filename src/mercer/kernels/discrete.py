"""Kernels of sets, of strings, and of labels.

`SetIntersection` and `Spectrum` are inner products of sparse counts: both sides are encoded over joint
columns and go on as a dot-product leaf. `Finite` looks its values up and brings them as a block.

Place on the way: samples → **kernel expression** → ``program``.
"""

from collections.abc import Collection, Iterable, Sized
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse

from .._arrays import check_samples, plain
from .._memory import available_memory, readable_size
from .blocks import BlockKernel, BlockSource, EncodedKernel
from .kmers import count_kmers, indicators
from .precomputed import FunctionKernel, Precomputed
from .prepared import n_rows
from .program import Leaf, LeafKind
from .psd import embedding, require_psd, symmetric
from .values import checked_count
from .views import View

__all__ = ["Finite", "FunctionKernel", "Precomputed", "SetIntersection", "Spectrum"]


# ---------------------------------------------------------------- samples


def _listed(X, name, what):
    """A one-dimensional sequence of samples as a list; a column (n, 1) counts as one."""
    if isinstance(X, str | bytes):
        raise TypeError(f"{name} is one string, where a sequence of {what} is needed; pass [{name}]")
    if sparse.issparse(X) or not isinstance(X, Iterable) or not isinstance(X, Sized):
        raise TypeError(f"{name} must be a sequence of {what}, got {type(X).__name__}")
    if isinstance(X, dict | set | frozenset):
        raise TypeError(
            f"{name} must be a sequence of {what}, got one {type(X).__name__}; its order is no order"
        )
    if hasattr(X, "columns"):  # a data frame iterates over the names of its columns
        X = X.to_numpy()
    shape = getattr(X, "shape", ())
    if len(shape) == 2 and shape[1] == 1:
        X = np.asarray(X).ravel()
    samples = X.tolist() if isinstance(X, np.ndarray) and X.ndim == 1 else list(X)
    if not samples:
        raise ValueError(f"{name} is empty (0 samples), while a minimum of 1 is required")
    return samples


def _sets(X, name):
    samples = _listed(X, name, "sets")
    for i, sample in enumerate(samples):
        # A collection, not any iterable: an iterator would be empty when it is read again.
        if isinstance(sample, str | bytes) or not isinstance(sample, Collection):
            remedy = "; for its letters pass set(…)" if isinstance(sample, str | bytes) else ""
            raise TypeError(
                f"{name}[{i}] is {sample!r} of type {type(sample).__name__}, where a set or another "
                f"collection of hashable elements is needed{remedy}"
            )
        if not isinstance(sample, set | frozenset):
            try:
                samples[i] = frozenset(sample.ravel().tolist() if isinstance(sample, np.ndarray) else sample)
            except TypeError:
                raise TypeError(f"{name}[{i}] has an element that is not hashable: {sample!r}") from None
    return samples


def _strings(X, name):
    samples = _listed(X, name, "strings")
    kind = bytes if isinstance(samples[0], bytes) else str
    for i, sample in enumerate(samples):
        if not isinstance(sample, kind):
            mixed = i > 0 and isinstance(sample, str | bytes)
            raise TypeError(
                f"{name}[{i}] is {sample!r} of type {type(sample).__name__}, where "
                + (
                    f"{kind.__name__} is needed as in {name}[0]; decode bytes first"
                    if mixed
                    else "a string is needed"
                )
            )
    return samples


# ---------------------------------------------------------------- sparse counts


class _CountKernel(EncodedKernel):
    """An inner product of counts."""

    def _count(self, samples):
        """Counts of the samples, canonical CSR."""
        raise NotImplementedError

    def _encode(self, X, Z):
        # Both sides at once, so that they share their columns.
        if Z is None:
            return self._count(X), None
        joint = self._count([*X, *Z])
        return joint[: len(X)], joint[len(X) :]

    def _emit_normalized(self, builder, scope):
        # Unit rows over the joint columns: the norms belong to the same counts, and no row gets dense.
        return builder.leaf(Leaf(LeafKind.DOT, _UnitCounts(self)))

    def diag(self, X):
        """Values k(x_i, x_i).

        Parameters
        ----------
        X : sequence of length n

        Returns
        -------
        ndarray of shape (n,)
        """
        return _square_sums(self._count(self._check_samples(X)))

    def _features(self, X):
        features = self._count(X)
        n, p = features.shape
        if 8 * n * p > (free := available_memory()):
            raise ValueError(
                f"{n} x {p} features of {self!r} take {readable_size(8 * n * p)}, and "
                f"{readable_size(free)} are available; use fewer samples, or the kernel itself"
            )
        return features.toarray()


@dataclass(frozen=True)
class _UnitCounts(View):
    """Counts over their norm; rows of zeros stay."""

    kernel: _CountKernel

    differentiable = False

    def apply(self, X):
        """Features of one side."""
        return _unit(self.kernel._encode(X, None)[0])

    def sides(self, X, Z):
        """Features of both sides."""
        left, right = self.kernel._encode(X, Z)
        left = _unit(left)
        return left, left if Z is None else _unit(right)


def _square_sums(counts):
    return np.asarray(counts.multiply(counts).sum(axis=1), dtype=np.float64).ravel()


def _unit(counts):
    norms = np.sqrt(_square_sums(counts))
    data = counts.data / np.repeat(norms, np.diff(counts.indptr))
    return sparse.csr_array((data, counts.indices, counts.indptr), shape=counts.shape)


class SetIntersection(_CountKernel):
    """Size of the intersection, k(S, T) = |S ∩ T|.

    The inner product of the sets' indicator vectors; ``SetIntersection().exp()`` is exp(|S ∩ T|). Samples
    are a sequence of sets, or of other collections of hashable elements, in which repetition does not
    count. Derivatives in the samples are None.

    References
    ----------
    LN14, theorem 2.

    Examples
    --------
    >>> from mercer.kernels import SetIntersection
    >>> SetIntersection()([{1, 2, 3}, {2, 3, 4}, set()]).tolist()
    [[3.0, 2.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 0.0]]
    """

    _reads = "sets"

    def _count(self, samples):
        return indicators(samples)

    def _check_samples(self, X, name="X"):
        return _sets(X, name)


class Spectrum(_CountKernel):
    """Inner product of the k-mer counts of two strings.

    A k-mer is a substring of length k. With ``mismatches`` m each of a string's k-mers counts for every
    k-mer over the alphabet that differs from it in at most m places. A string shorter than k has no k-mers,
    and k is 0 there. ``.normalize()`` takes the strings' lengths out. Derivatives in the samples are None.

    Parameters
    ----------
    k : int
        At least 1.
    mismatches : int, default=0
    alphabet : str or bytes, default=None
        The letters that strings may have. None: those that occur in the call. With mismatches the number of
        letters enters the value, so give the alphabet wherever values of several calls have to agree.

    Raises
    ------
    ValueError
        If k or mismatches is out of range, or a letter is not in the alphabet.
    TypeError
        If the samples are not strings, all str or all bytes.

    References ---------- LINMA 4.2.4; C. Leslie, E. Eskin, W. S. Noble, "The spectrum kernel", 2002, and
    "Mismatch string kernels", 2004.

    Examples
    --------
    >>> from mercer.kernels import Spectrum
    >>> Spectrum(2)(["GATTA", "ATTA", "C"]).tolist()
    [[4.0, 3.0, 0.0], [3.0, 3.0, 0.0], [0.0, 0.0, 0.0]]
    """

    _reads = "strings"

    def __init__(self, k, mismatches=0, alphabet=None):
        checked_count("Spectrum", "k", k)
        checked_count("Spectrum", "mismatches", mismatches, least=0)
        if alphabet is not None and (not isinstance(alphabet, str | bytes) or len(alphabet) == 0):
            raise TypeError(f"Spectrum: alphabet must be a string of its letters or None, got {alphabet!r}")
        self._set(k=k, mismatches=mismatches, alphabet=alphabet)

    def _count(self, samples):
        if len({isinstance(sample, bytes) for sample in samples}) > 1:
            raise TypeError("X and Z must both hold str or both bytes; decode the bytes first")
        return count_kmers(samples, int(self.k), int(self.mismatches), self.alphabet)

    def _check_samples(self, X, name="X"):
        samples = _strings(X, name)
        if self.alphabet is not None and isinstance(self.alphabet, bytes) != isinstance(samples[0], bytes):
            raise TypeError(
                f"{name} holds {type(samples[0]).__name__}, but the alphabet is "
                f"{type(self.alphabet).__name__}; make them the same"
            )
        if self.alphabet is not None and (unknown := set().union(*samples) - set(self.alphabet)):
            i, j = next(
                (i, j) for i, s in enumerate(samples) for j, letter in enumerate(s) if letter in unknown
            )
            raise ValueError(
                f"{name}[{i}] has {samples[i][j : j + 1]!r} at place {j}, which is not in the alphabet "
                f"{self.alphabet!r}; add it to the alphabet, or take it out of the string"
            )
        return samples


# ---------------------------------------------------------------- labels


class Finite(BlockKernel):
    """A kernel of finitely many things: a lookup in a positive semidefinite matrix.

    Samples are labels, as a sequence or a column (n, 1). Among the columns of a matrix of numbers
    ``.on(column)`` chooses the one that holds the labels. Derivatives in the samples are None or zero; that
    in ``matrix`` is symmetric, for the matrix is.

    Parameters
    ----------
    matrix : array_like of shape (N, N)
        Symmetric positive semidefinite; k(labels[i], labels[j]) = matrix[i, j].
    labels : sequence of N hashables, default=None
        None for 0, …, N − 1.

    Raises
    ------
    ValueError
        If the matrix is not positive semidefinite (with its smallest eigenvalue), if labels repeat or are
        not N, or if a sample is no label.

    References
    ----------
    LINMA 4.2, (4.5)–(4.10).

    Examples
    --------
    >>> from mercer.kernels import Finite
    >>> k = Finite([[1.0, 0.5], [0.5, 1.0]], labels=["hot", "warm"])
    >>> k(["warm", "hot", "warm"], ["hot"]).tolist()
    [[0.5], [1.0], [0.5]]
    """

    _reads = "any"
    _bounds: ClassVar = {"matrix": (-np.inf, np.inf)}

    def __init__(self, matrix, labels=None):
        if isinstance(matrix, list | tuple):
            matrix = np.array(matrix)
        elif sparse.issparse(matrix):
            matrix = matrix.toarray()
        require_psd(plain(matrix), "matrix", "LINMA theorem 4.1: each matrix of a kernel is")
        if labels is not None:
            labels = list(labels.tolist() if isinstance(labels, np.ndarray) else labels)
            if len(labels) != len(plain(matrix)):
                raise ValueError(
                    f"Finite: matrix has {len(plain(matrix))} rows, but there are {len(labels)} labels"
                )
            first = {}
            for i, label in enumerate(labels):
                if first.setdefault(label, i) != i:
                    raise ValueError(
                        f"Finite: label {label!r} occurs at {first[label]} and at {i}; labels differ"
                    )
        self._set(matrix=matrix, labels=labels)

    def _emit(self, builder, scope):
        self._declare(builder, scope, "matrix")
        return builder.leaf(Leaf(LeafKind.BLOCK, _Lookup(self, scope)))

    def _check_samples(self, X, name="X"):
        # A matrix of numbers has the labels in one of its columns, which .on chooses.
        is_matrix = len(getattr(X, "shape", ())) == 2 and X.shape[1] > 1
        return check_samples(X, name=name) if is_matrix else _listed(X, name, "labels")

    def _features(self, X):
        return embedding(plain(self.matrix))[self._index(X, "X")]

    def _values(self):
        """The matrix in float64, exactly symmetric."""
        if "_cached_values" not in self.__dict__:
            object.__setattr__(self, "_cached_values", symmetric(plain(self.matrix), "matrix")[0])
        return self._cached_values

    def _index(self, X, name):
        """Indices of labels in the matrix."""
        if len(getattr(X, "shape", ())) == 2 and X.shape[1] != 1:
            raise ValueError(
                f"Finite reads one column of labels, but {name} has {X.shape[1]}; choose one with .on(column)"
            )
        samples = (
            X if isinstance(X, list) else _listed(X.toarray() if sparse.issparse(X) else X, name, "labels")
        )
        if self.labels is None:
            return _indices(samples, len(plain(self.matrix)), name)
        if "_cached_places" not in self.__dict__:
            object.__setattr__(self, "_cached_places", {label: i for i, label in enumerate(self.labels)})
        try:
            return np.array([self._cached_places[label] for label in samples], dtype=np.intp)
        except (KeyError, TypeError):
            raise _unknown_label(samples, self._cached_places, name) from None

    def _places(self, X, Z):
        ix = self._index(X, "X")
        return ix, ix if Z is None else self._index(Z, "Z")

    def _block(self, X, Z):
        return self._values()[np.ix_(*self._places(X, Z))]

    def _block_pullback(self, X, Z, G):
        # The block is P M Qᵀ with indicators P and Q, so the gradient is PᵀG Q, made symmetric as M is.
        ix, iz = self._places(X, Z)
        size = len(self._values())
        dM = _indicator(ix, size).T @ G
        dM = (_indicator(iz, size).T @ np.ascontiguousarray(dM.T)).T
        return None, None, {"matrix": 0.5 * (dM + dM.T)}

    def _block_pushforward(self, X, Z, tX, tZ, tparams):
        if (tM := tparams.get("matrix")) is None:
            return None
        return (0.5 * (tM + tM.T))[np.ix_(*self._places(X, Z))]


def _indices(samples, size, name):
    try:
        values = np.asarray(samples)
    except ValueError:
        values = np.empty((0, 0))
    whole = values.ndim == 1 and (
        values.dtype.kind in "iu" or (values.dtype.kind == "f" and (values % 1 == 0).all())
    )
    if not whole:
        raise TypeError(
            f"{name} must be a sequence of whole numbers 0, …, {size - 1}, as Finite has no labels; "
            "give it labels=…"
        )
    bad = np.flatnonzero((values < 0) | (values >= size))
    if len(bad):
        raise ValueError(f"{name}[{bad[0]}] is {samples[bad[0]]}, but Finite knows 0, …, {size - 1}")
    return values.astype(np.intp)


def _unknown_label(samples, places, name):
    for i, label in enumerate(samples):
        try:
            known = label in places
        except TypeError:
            return TypeError(f"{name}[{i}] is {label!r}, which is not hashable and so no label of Finite")
        if not known:
            some = ", ".join(map(repr, list(places)[:5])) + (", …" if len(places) > 5 else "")
            return ValueError(f"{name}[{i}] is {label!r}, which is no label of Finite; they are {some}")
    raise AssertionError("every label is known")


@dataclass(frozen=True)
class _Lookup(BlockSource):
    """A `Finite` where it stands in an expression; its diagonal without a loop over samples."""

    def _see(self, X):
        return super()._see(X) if hasattr(X, "shape") else X

    def diag(self, X, Z=None):
        """Looked-up values, (n,)."""
        return self.kernel._values()[self.kernel._places(self._see(X), self._see(Z))]

    def diag_pullback(self, X, g):
        """Gradient in the matrix's diagonal."""
        places, size = self.kernel._index(self._see(X), "X"), len(self.kernel._values())
        return None, self._full({"matrix": np.diag(np.bincount(places, weights=g, minlength=size))})

    def diag_pushforward(self, X, tX, tparams):
        """Looked-up tangents of the diagonal."""
        tM = self._own(tparams).get("matrix")
        return np.zeros(n_rows(X)) if tM is None else np.diag(tM)[self.kernel._index(self._see(X), "X")]

    def diag_second(self, X, g, tX, tparams):
        """Nothing: values are linear in the matrix."""
        return None, {}

    def diag_mixed(self, X, t, s):
        """Nothing, likewise."""
        return None


def _indicator(index, size):
    return sparse.csr_array((np.ones(len(index)), index, np.arange(len(index) + 1)), shape=(len(index), size))

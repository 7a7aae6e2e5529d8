"""A symmetric matrix to band form by orthogonal transformations, almost all of it matrix products.

Place on the way: **band** → ``spectral``.

    K = Q B Qᵀ        panels by QR, both sides of the rest by matrix products
    B + αI = L Lᵀ     a banded factor for each α
    diag(Q (B + αI)⁻¹ Qᵀ)    squares of L⁻¹Qᵀ, block by block

LAPACK's way to eigenvalues reads the whole matrix once for each column, which no number of threads makes
fast; here it is read once for a panel of columns. BLAS runs on one thread, and the threads share fixed blocks
of rows and columns: the results are the same bit for bit, however many there are.
"""

import contextvars
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from scipy.linalg import lapack

__all__ = ["Band", "Team", "inverse_diagonals", "orthogonal", "reduce_to_band", "row_blocks"]

#: Rows of a block that one thread updates at a time, and columns of it: a product of the two fits the cache.
_ROWS, _COLUMNS = 256, 256
#: Columns of Q that one thread makes, panels that it applies at once, and rows of their product at a time.
_CHUNK, _MERGED, _STRIP = 256, 4, 512
#: Rows of Q and factors that one thread handles at once in `inverse_diagonals`.
_SOLVED, _FACTORS = 256, 4
#: Seconds between two calls of the user's `check`.
_PAUSE = 0.05


class _Stopped(Exception):
    """Another thread failed, or the user wants no more."""


class Team:
    """Threads that share tasks; the caller's is one of them.

    Parameters
    ----------
    n_threads : int
    check : callable or None
        Called in the caller's thread now and then; what it raises ends all.
    """

    def __init__(self, n_threads, check=None):
        self._others, self._check = n_threads - 1, check
        self._owner, self._last = threading.get_ident(), time.monotonic()
        self._stopping, self._local = False, threading.local()
        self._pool = ThreadPoolExecutor(self._others) if self._others > 0 else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stopping = True
        if self._pool is not None:
            self._pool.shutdown()

    def pause(self):
        """Raise if there is to be no more; long tasks call it in between."""
        if self._stopping:
            raise _Stopped
        if self._check is None or threading.get_ident() != self._owner:
            return
        if time.monotonic() - self._last > _PAUSE:
            self._check()
            self._last = time.monotonic()

    def scratch(self, *shape):
        """An uninitialised array in memory that this thread keeps."""
        size = int(np.prod(shape))
        kept = getattr(self._local, "kept", None)
        if kept is None or len(kept) < size:
            kept = self._local.kept = np.empty(size)
        return kept[:size].reshape(shape)

    def run(self, work, tasks):
        """Call ``work(task)`` for each task.

        Parameters
        ----------
        work : callable
        tasks : list
            They begin in this order.
        """
        index = itertools.count()

        def body():
            try:
                while (i := next(index)) < len(tasks):
                    self.pause()
                    work(tasks[i])
            except BaseException:
                self._stopping = True
                raise

        count = min(self._others, len(tasks) - 1)
        futures = [self._pool.submit(contextvars.copy_context().run, body) for _ in range(count)]
        try:
            body()
        except _Stopped:
            pass  # the thread that failed tells why
        finally:
            wait(futures)
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in errors:
            if not isinstance(error, _Stopped):
                raise error


def _blocks(start, stop, size):
    """The parts of ``start:stop`` between multiples of `size`."""
    edges = [start, *range(start - start % size + size, stop, size), stop]
    return list(itertools.pairwise(edges))


def row_blocks(n, size=_ROWS):
    """Pairs of first and last row, exclusive, of blocks of `size`."""
    return _blocks(0, n, size)


# ---------------------------------------------------------------- reduction


@dataclass(frozen=True)
class Reflector:
    """``I − V T Vᵀ``, acting on the rows from `start` on.

    Attributes
    ----------
    start : int
    V : ndarray of shape (n - start, r)
    T : ndarray of shape (r, r)
    """

    start: int
    V: np.ndarray
    T: np.ndarray


@dataclass(frozen=True)
class Band:
    """``Qᵀ K Q``, of which the entries further than `width` from the diagonal are zero.

    Attributes
    ----------
    entries : ndarray of shape (width + 1, n)
        Row d is the d-th diagonal below the main one: LAPACK's lower band storage.
    reflectors : list of Reflector
        Q is their product.
    """

    entries: np.ndarray
    reflectors: list

    @property
    def width(self):
        """The number of diagonals on each side."""
        return len(self.entries) - 1


def _reflector(start, panel):
    """The QR factorisation of a panel of columns: Q as a reflector, and R."""
    qr, tau, _, _ = lapack.dgeqrf(panel, lwork=max(1, 32 * panel.shape[1]))
    r = len(tau)
    V = np.tril(qr[:, :r], -1)
    np.fill_diagonal(V, 1.0)
    overlaps, T = V.T @ V, np.zeros((r, r))
    for j in range(r):
        T[:j, j] = -tau[j] * (T[:j, :j] @ overlaps[:j, j])
        T[j, j] = tau[j]
    return Reflector(start, V, T), np.triu(qr[:r])


def reduce_to_band(A, width, team):
    """Reduce a symmetric matrix to band form.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Symmetric, float64, C order; lost. The lower triangle is worked on.
    width : int
        Diagonals to keep on each side.
    team : Team

    Returns
    -------
    Band
    """
    n = len(A)
    entries, reflectors = np.zeros((width + 1, n), order="F"), []
    for left in range(0, n, width):
        right = min(left + width, n)
        columns = A[left:right, left:right]
        if right < n:
            reflector, R = _reflector(right, A[right:, left:right])
            _transform(A, reflector, team)
            reflectors.append(reflector)
            columns = np.concatenate([columns, R])
        for j in range(right - left):
            column = columns[j : j + width + 1, j]
            entries[: len(column), left + j] = column
    return Band(entries, reflectors)


def _transform(A, reflector, team):
    """``A ← QᵀAQ`` on the rows and columns that Q acts on.

    A − V Wᵀ − W Vᵀ, W = Y − ½ V TᵀVᵀY, Y = A V T.
    """
    V, T, start = reflector.V, reflector.T, reflector.start
    n = len(A)
    Y, rows = np.empty_like(V), _blocks(start, n, _ROWS)

    # Above the diagonal blocks A is old: what stands there is read on the other side.
    def multiply(block):
        top, bottom = block
        out = np.matmul(A[top:bottom, start:bottom], V[: bottom - start], out=Y[top - start : bottom - start])
        if bottom < n:
            out += A[bottom:, top:bottom].T @ V[bottom - start :]

    team.run(multiply, rows)
    Y = Y @ T
    W = Y - V @ (0.5 * (T.T @ (V.T @ Y)))
    lefts, rights = np.concatenate([V, W], axis=1), np.concatenate([W, V], axis=1).T

    def update(block):
        (top, bottom), (left, right) = block
        change = np.matmul(
            lefts[top - start : bottom - start],
            rights[:, left - start : right - start],
            out=team.scratch(bottom - top, right - left),
        )
        A[top:bottom, left:right] -= change

    team.run(update, [(row, column) for row in rows for column in _blocks(start, row[1], _COLUMNS)])


# ---------------------------------------------------------------- Q


def _merged(reflectors, n):
    """One reflector for several that follow each other."""
    start = reflectors[0].start
    ranks = np.cumsum([0] + [len(one.T) for one in reflectors])
    V, T = np.zeros((n - start, ranks[-1])), np.zeros((ranks[-1], ranks[-1]))
    for one, low, high in zip(reflectors, ranks[:-1], ranks[1:], strict=True):
        V[one.start - start :, low:high] = one.V
        T[low:high, low:high] = one.T
        T[:low, low:high] = -T[:low, :low] @ (V[:, :low].T @ V[:, low:high]) @ one.T
    return Reflector(start, V, T)


def orthogonal(band, team, out=None):
    """Q, the product of the reflectors.

    Parameters
    ----------
    band : Band
    team : Team
    out : ndarray of shape (n, n) or None
        Where to put it.

    Returns
    -------
    ndarray of shape (n, n)
    """
    n = band.entries.shape[1]
    Q = np.empty((n, n)) if out is None else out
    groups = [band.reflectors[i : i + _MERGED] for i in range(0, len(band.reflectors), _MERGED)]
    merged = [None] * len(groups)

    def merge(i):
        merged[i] = _merged(groups[i], n)

    def make(chunk):
        left, right = chunk
        Z = np.eye(n, right - left, -left)
        for one in reversed(merged):
            # The columns before a reflector's rows are those of the identity still.
            if one.start < right:
                team.pause()
                rest = Z[one.start :]
                S = one.T @ (one.V.T @ rest)
                for top in range(0, len(rest), _STRIP):
                    strip = rest[top : top + _STRIP]
                    strip -= np.matmul(one.V[top : top + _STRIP], S, out=team.scratch(*strip.shape))
        Q[:, left:right] = Z

    team.run(merge, list(range(len(groups))))
    team.run(make, row_blocks(n, _CHUNK)[::-1])
    return Q


# ---------------------------------------------------------------- diagonals of inverses


def _inverse_of_triangles(L):
    """Inverses of lower triangular matrices, of shape (m, w, w), by halves."""
    w = L.shape[-1]
    if w == 1:
        return 1.0 / L
    h = w // 2
    out = np.zeros_like(L)
    out[:, :h, :h] = _inverse_of_triangles(L[:, :h, :h])
    out[:, h:, h:] = _inverse_of_triangles(L[:, h:, h:])
    out[:, h:, :h] = -out[:, h:, h:] @ (L[:, h:, :h] @ out[:, :h, :h])
    return out


def _steps(factor):
    """Matrices Mₖ with ``Zₖ = Mₖ [Zₖ₋₁; Qₖᵀ]`` for Z = L⁻¹Qᵀ in blocks of the band's width.

    In band storage entry (i, j) of L is at i + w j of the flat array: a block is a view. The last block,
    where it is short, is filled up by the identity.
    """
    w, n = len(factor) - 1, factor.shape[1]
    count = -(-n // w)
    flat = np.zeros((count * w + w) * (w + 1))
    flat[: factor.size] = factor.ravel(order="F")
    flat[n * (w + 1) : count * w * (w + 1) : w + 1] = 1.0
    strides = (8 * w * (w + 1), 8, 8 * w)
    diagonal = np.tril(as_strided(flat, (count, w, w), strides))
    below = np.triu(as_strided(flat[w:], (count, w, w), strides))
    inverse = _inverse_of_triangles(diagonal)
    out = np.zeros((count, w, 2 * w))
    out[:, :, w:] = inverse
    np.matmul(inverse[1:], -below[:-1], out=out[1:, :, :w])
    return out


def inverse_diagonals(factors, Q, team):
    """``diag(Q (L Lᵀ)⁻¹ Qᵀ)`` for each of several banded factors L.

    Parameters
    ----------
    factors : list of ndarray of shape (w + 1, n)
        Lower band storage.
    Q : ndarray of shape (n, n)
    team : Team

    Returns
    -------
    ndarray of shape (m, n)
    """
    n, w = len(Q), len(factors[0]) - 1
    count = -(-n // w)
    out = np.empty((len(factors), n))
    size = min(_FACTORS, len(factors))
    steps = np.empty((count, size, w, 2 * w))
    for first in range(0, len(factors), size):
        group = factors[first : first + size]
        here = steps[:, : len(group)]

        def prepare(i, group=group, here=here):
            here[:, i] = _steps(group[i])

        def solve(chunk, first=first, here=here):
            top, bottom = chunk
            m, c = here.shape[1], bottom - top
            both = team.scratch(2, m, 2 * w, c)
            both[...] = 0.0
            squares = np.zeros((m, c))
            for k in range(count):
                if k % 16 == 0:
                    team.pause()
                right, Z = both[k % 2], both[1 - k % 2, :, :w]
                block = Q[top:bottom, k * w : (k + 1) * w].T
                right[:, w : w + len(block)] = block
                right[:, w + len(block) :] = 0.0
                np.matmul(here[k], right, out=Z)
                squares += np.einsum("awc,awc->ac", Z, Z)
            out[first : first + m, top:bottom] = squares

        team.run(prepare, list(range(len(group))))
        team.run(solve, row_blocks(n, _SOLVED))
    return out

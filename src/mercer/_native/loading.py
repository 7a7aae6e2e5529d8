"""Compiled modules, loaded with idle threads that sleep; the number of threads they get; large arrays.

Place on the way: **loading** → ``tiles``, ``factors``, ``duals``, ``neighbors``.
"""

import os
import warnings
from contextlib import contextmanager

import numpy as np

from .._threads import n_threads as _threads_asked_for

__all__ = [
    "FLOAT64",
    "_cholesky",
    "_dual",
    "_gram",
    "_nearest",
    "_sweep",
    "count_threads",
    "dtype_of",
    "empty",
    "isa",
    "isas",
    "openmp",
]

FLOAT64 = np.dtype(np.float64)


@contextmanager
def _idle_threads_sleep():
    """Have OpenMP's idle threads sleep, unless the environment says how they are to wait.

    By default libgomp's threads spin for milliseconds after each loop, on the cores that BLAS or another
    process wants next: a fit of 400 rows then takes 78 ms where it takes 1.6 (two busy cores). The library
    reads the setting once, when it is loaded.
    """
    if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        yield
        return
    os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        yield
    finally:
        del os.environ["OMP_WAIT_POLICY"]


with _idle_threads_sleep():
    from mercer import _cholesky, _dual, _gram, _nearest, _sweep

isa, isas, openmp = _gram.isa, _gram.isas, _gram.openmp

if (_forced := os.environ.get("MERCER_ISA")) and _forced != isa():
    warnings.warn(
        f"MERCER_ISA={_forced!r} is none of the instruction sets here, {isas()}; {isa()!r} is used",
        RuntimeWarning,
        stacklevel=2,
    )

# More threads than four per core only cost memory, and systems refuse to start thousands.
_MOST_THREADS = 4 * (os.cpu_count() or 1)

# GNU's OpenMP waits for ever in a child that was forked after parallel loops ran: it gets one thread.
_parallel = {"ran": False, "lost": False}


def _after_fork():
    _parallel["lost"] = _parallel["ran"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def count_threads(n_threads):
    """How many threads a loop gets; 1 where it would wait for ever for others."""
    count = min(_threads_asked_for(n_threads), _MOST_THREADS)
    if _parallel["lost"]:
        return 1
    _parallel["ran"] = _parallel["ran"] or count > 1
    return count


def empty(shape, dtype, n_threads=None):
    """An uninitialised array whose memory is ready to be filled.

    A large one begins on a 64-byte boundary, so that whole cache lines are stored past the caches, and its
    pages are there: those of a result that was let go, or new ones, made in parallel.
    """
    dtype = np.dtype(dtype)
    size = dtype.itemsize * shape[0] * shape[1]
    if size < 2**22:
        return np.empty(shape, dtype)
    return np.frombuffer(_gram.Memory(size, count_threads(n_threads)), dtype).reshape(shape)


def dtype_of(left, default=FLOAT64):
    """The dtype of a side's features."""
    for features in left.features:
        if features is not None:
            return features.dtype
    return default

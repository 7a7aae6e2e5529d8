"""How many threads: the one place where ``n_jobs`` and ``n_threads`` become a number.

Compiled loops take the number as their last argument; BLAS and LAPACK stay on one (`one_blas_thread`).
"""

import math
import operator
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import lru_cache
from pathlib import Path

__all__ = ["available_cores", "in_threads", "n_threads", "one_blas_thread"]

_CGROUP_ROOT = Path("/sys/fs/cgroup")
# Multiply-adds that one thread does in about 1 ms; to start some takes 0.3 to 0.6.
_WORTH = 4e7


def _read(path):
    try:
        return path.read_text().split()
    except (OSError, UnicodeDecodeError):
        return []


def _quota(folder):
    """Cores granted by one cgroup folder (version 2, then version 1), or infinity."""
    words = _read(folder / "cpu.max")
    if not words:
        words = _read(folder / "cpu.cfs_quota_us") + _read(folder / "cpu.cfs_period_us")
    try:
        quota, period = (float(word) for word in words)  # "max" is unlimited, and so is a quota of −1
    except ValueError:
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf


def _cgroup_folders(root, membership):
    """Folders whose limits bind this process: its own cgroup's and each ancestor's."""
    folders = [root, root / "cpu"]
    for line in membership:
        _, _, path = line.partition("::")  # version 2 names no controller
        base = root
        if not path:
            _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
            if "cpu" not in controllers.split(","):
                continue
            base = root / "cpu"
        for part in Path(path).parts[1:]:
            base = base / part
            folders.append(base)
    return folders


@lru_cache(maxsize=1)
def _cgroup_cores(root=_CGROUP_ROOT, membership=Path("/proc/self/cgroup")):
    """The CPU share of the process's cgroup in cores, infinity where there is none."""
    return min((_quota(folder) for folder in _cgroup_folders(root, _read(membership))), default=math.inf)


def available_cores():
    """Cores that this process may use: its affinity mask, cut to the cgroup's share.

    Returns
    -------
    int
        At least 1.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    share = _cgroup_cores()
    return max(1, min(cores, math.ceil(share))) if math.isfinite(share) else max(1, cores)


def _omp_setting():
    """The first level of ``OMP_NUM_THREADS``, or None if it is unset or no positive integer."""
    word = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(word) if word.isdecimal() and int(word) > 0 else None


def n_threads(n=None):
    """Turn ``n_jobs`` or ``n_threads`` into a number of threads.

    Parameters
    ----------
    n : int or None
        None: ``OMP_NUM_THREADS`` if set, else `available_cores`. A negative number counts down from the
        available cores as joblib does: −1 is all of them, −2 all but one.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        If `n` is 0.
    TypeError
        If `n` is no integer.
    """
    if n is None:
        return _omp_setting() or available_cores()
    if isinstance(n, bool):
        raise TypeError(f"the number of threads (n_jobs, n_threads) must be an integer or None, got {n!r}")
    try:
        count = operator.index(n)
    except TypeError:
        raise TypeError(
            f"the number of threads (n_jobs, n_threads) must be an integer or None, got {n!r}"
        ) from None
    if count == 0:
        raise ValueError(
            "the number of threads (n_jobs, n_threads) is 0; use None for the default, -1 for all cores, or "
            "a positive number"
        )
    return count if count > 0 else max(1, available_cores() + 1 + count)


@lru_cache(maxsize=1)
def _controller():
    # Looking the loaded libraries up takes milliseconds, so it is done once; SciPy's LAPACK must be there by
    # then.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_blas_thread():
    """Run the body with BLAS and LAPACK on one thread; what there was is restored on the way out.

    Bodies in several threads each set their own limit: one shared by all, set by the first, made 16 fits of
    1200 rows in 4 threads take 3 s where they take 0.3 (OpenBLAS 0.3.31).
    """
    libraries = (library for library in _controller().lib_controllers if library.user_api == "blas")
    # Where nothing changes, nothing is set, since the setting belongs to the whole process and restoring it
    # would race with other threads' fits.
    if all(library.num_threads == 1 for library in libraries):
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield


def in_threads(tasks, n_threads, work=math.inf):
    """Call each of the tasks, which do not depend on each other.

    Parameters
    ----------
    tasks : list of callable
    n_threads : int
        1 is the caller's own.
    work : float
        Multiply-adds of all tasks, a number that is read but once counting for four: where they take less
        than the threads' start, the caller does them all.

    Returns
    -------
    list
        What they returned. The first of those that failed raises its error, after all have ended.
    """
    if n_threads <= 1 or len(tasks) <= 1 or work < _WORTH:
        return [task() for task in tasks]
    with ThreadPoolExecutor(min(n_threads, len(tasks))) as pool:
        futures = [pool.submit(copy_context().run, task) for task in tasks]
    return [future.result() for future in futures]

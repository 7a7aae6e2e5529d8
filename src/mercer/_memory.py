"""How much memory there is, and what would not fit into it.

Place on the way: **memory** → kernel expression → ``gram`` → ``solvers`` → ``estimators``.
"""

import os
from pathlib import Path

import numpy as np

__all__ = ["available_memory", "check_output", "readable_size"]


def readable_size(n_bytes):
    """Bytes as a short text, in decimal units."""
    value = float(n_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.4g} TB"


def _cgroup_free():
    """Memory left to this process's cgroup (version 2, then 1), infinity where it has no limit."""
    root = Path("/sys/fs/cgroup")
    for limit, used, stat in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        try:
            free = int((root / limit).read_text()) - int((root / used).read_text())
            fields = dict(line.split() for line in (root / stat).read_text().splitlines())
            # Pages of files that nobody uses count as used, but are given back on demand.
            return free + int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))
        except (OSError, ValueError):
            continue
    return float("inf")


def available_memory():
    """Bytes that this process can still allocate without swapping, as far as the system tells.

    Returns
    -------
    int
        The smaller of what the machine and the cgroup have left; the largest int where neither is known.
    """
    free = float("inf")
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = min(free, _cgroup_free())
    return max(0, int(free)) if free != float("inf") else 2**63 - 1


def check_output(n, m, dtype):
    """Refuse a kernel matrix that does not fit into memory.

    Parameters
    ----------
    n, m : int
        Its shape.
    dtype : dtype
        Its dtype.

    Raises
    ------
    ValueError
        Saying its size, what is available, and what to use instead.
    """
    dtype = np.dtype(dtype)
    need = n * m * dtype.itemsize
    # Small results are not worth the look at the system's figures.
    if need < 2**28:
        return
    free = available_memory()
    if need > free:
        raise ValueError(
            f"a {n} x {m} kernel matrix of {dtype} needs {readable_size(need)}, and "
            f"{readable_size(free)} are available; "
            "k.gram(X, Z) is an operator that multiplies by it (k.gram(X, Z) @ V) without forming it"
        )

"""Interleaved timing, the machine's own rates, and processes whose memory is measured or that serve calls."""

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


def seconds_of(run):
    """Seconds of one call; what it returns is freed outside the timed part."""
    start = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    del result
    return seconds


#: OpenBLAS's threads go on spinning for 0.1 s after a call. Without a pause each side would share a core with
#: those of the side before it.
PAUSE = 0.15


def interleaved(runs, repeats, pause=PAUSE):
    """Median seconds of each of the named callables.

    They take turns, so that a slow spell of the machine meets all of them; each has one untimed call before.

    Parameters
    ----------
    runs : dict
        Name to callable without arguments.
    repeats : int
    pause : float
        Seconds of rest before each timed call.

    Returns
    -------
    dict
        Name to median seconds.
    """
    times = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            time.sleep(pause)
            times[name].append(seconds_of(run))
    return {name: statistics.median(values) for name, values in times.items()}


class Rates:
    """Calls that measure what the machine can do: NumPy's matrix product, and copying.

    They are interleaved with the measured calls, so that fractions compare the same minutes.
    """

    def __init__(self, dtype, n=1500, copied=64_000_000):
        rng = np.random.default_rng(0)
        self.a, self.b = rng.random((2, n, n)).astype(dtype)
        self.product = np.empty((n, n), dtype)
        self.source, self.target = np.ones((2, copied // 8))

    @property
    def runs(self):
        """The two calls, for :func:`interleaved`."""
        return {
            "gemm": lambda: np.matmul(self.a, self.b, out=self.product),
            "copy": lambda: np.copyto(self.target, self.source),
        }

    def flops(self, medians):
        """Floating-point operations a second of a matrix product."""
        return 2 * len(self.a) ** 3 / medians["gemm"]

    def bytes(self, medians):
        """Bytes a second that a copy writes (it reads as many)."""
        return self.source.nbytes / medians["copy"]


def peak_memory():
    """The most memory that this process has held at once, in bytes."""
    # ru_maxrss of a child starts at what its parent held when it forked; VmHWM belongs to the program alone.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class Crashed(RuntimeError):
    """A worker was ended by a signal."""


def in_process(module, *arguments, **environment):
    """Run ``python -m module --worker arguments…`` and return what it reports by :func:`report`."""
    command = [sys.executable, "-m", module, "--worker", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": _path()} | environment
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        error = Crashed if done.returncode < 0 else RuntimeError
        raise error(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def report(**values):
    """Print a worker's figures and its peak memory for the process that started it."""
    print(json.dumps(values | {"peak": peak_memory()}))


class Elsewhere:
    """An object in a new process, which waits at a pipe between the calls of its methods.

    Parameters
    ----------
    make : callable
        Makes the object there, of `arguments`.
    """

    def __init__(self, make, *arguments):
        spawn = multiprocessing.get_context("spawn")
        self._pipe, end = spawn.Pipe()
        spawn.Process(target=_serve, args=(end, make, arguments), daemon=True).start()
        end.close()  # so that the end of that process is seen here

    def call(self, method, *arguments):
        """Return what a method returns, EOFError if it raises: the process then prints why and ends."""
        self._pipe.send((method, arguments))
        return self._pipe.recv()


def _serve(pipe, make, arguments):
    served = make(*arguments)
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:  # who called has ended
            return
        pipe.send(getattr(served, method)(*arguments))


def _path():
    # A relative entry of PYTHONPATH means the folder that the benchmark was started from.
    return os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)


def table(head, rows):
    """Print rows under a head, names to the left and figures to the right."""
    widths = [max(len(str(row[i])) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["─" * width for width in widths], *rows]:
        cells = (
            f"{c:<{w}}" if i == 0 else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells), flush=True)


def verdict(ratio, target):
    """A ratio beside its target."""
    return f"≥ {target:g}×", f"{ratio:.1f}×" + ("  " if ratio >= target else " ✗")

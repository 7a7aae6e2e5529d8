"""What runs here: versions, threads, instruction set, BLAS; the end of the way, imported by nothing."""

import importlib
import platform
import sys
from importlib import metadata

__all__ = ["show_versions", "versions"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "threadpoolctl", "matplotlib", "tqdm")


def _version_of(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _build():
    """What Meson wrote down at build time; nothing where the source tree is run as it stands."""
    try:
        module = importlib.import_module("mercer._build")
    except ImportError:
        return {}
    return {
        "compiler": module.COMPILER,
        "Cython": f"{module.CYTHON} (at build time)",
        "build type": module.BUILDTYPE,
        "instruction sets built": ", ".join(module.INSTRUCTION_SETS),
    }


def _native():
    from mercer import _native

    return {
        "instruction set in use": _native.isa(),
        "instruction sets usable here": ", ".join(_native.isas()),
        "OpenMP": f"_OPENMP = {_native.openmp()}",
    }


def _blas():
    import scipy.linalg  # noqa: F401  (loads the second BLAS that a fit will use)
    import threadpoolctl

    return [
        f"{pool['internal_api']} {pool['version'] or 'of unknown version'}, {pool['num_threads']} threads"
        + (f", {pool['architecture']}" if "architecture" in pool else "")
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    ] or ["none that threadpoolctl knows"]


def versions():
    """Versions and settings that a report of a bug or of a timing needs.

    Returns
    -------
    dict
        From what is named to a string, or a list of strings for the BLAS libraries that are loaded.
    """
    import mercer
    from mercer._threads import n_threads

    info = {
        "mercer": mercer.__version__,
        "Python": sys.version.split()[0] + f" ({platform.python_implementation()})",
        "platform": f"{platform.system()} {platform.machine()}",
    }
    info.update((package, _version_of(package)) for package in _PACKAGES)
    info.update(_build())
    info.update(_native())
    info["threads by default"] = str(n_threads(None))
    info["BLAS"] = _blas()
    return info


def show_versions():
    """Print versions, threads, instruction set and BLAS.

    See Also
    --------
    mercer.kernels : the kernels whose tile engine the instruction set belongs to.

    Notes
    -----
    The environment variable ``MERCER_ISA`` (``baseline``, ``v3`` or ``v4``) forces an instruction set,
    ``OMP_NUM_THREADS`` sets the threads.
    """
    for name, value in versions().items():
        lines = [value] if isinstance(value, str) else value
        for line in lines:
            print(f"{name:<29}{line}")
            name = ""

"""What autodiff raises, with the operation, the line of the user's code and the remedy."""

import linecache
import sys
from pathlib import Path

#: Packages whose frames are not the user's code.
_LIBRARIES = {"mercer", "numpy", "scipy", "sklearn", "pandas", "optree"} | sys.stdlib_module_names


class TraceError(TypeError):
    """A traced value was used where it cannot be followed."""


class TraceValueError(TraceError, ValueError):
    """A trace error where NumPy has a ValueError."""


class NoRuleError(TraceError, NotImplementedError):
    """A function without a derivative rule met a traced value."""


class ClosedTraceError(TraceError):
    """A traced value outlived the derivative that made it."""


def user_line():
    """Return the innermost line of the user's code, as ``file:line: text``, and the library it called.

    The library is None if it is NumPy or this one.
    """
    frame, inner = sys._getframe(1), None
    while frame is not None and _root(frame) in _LIBRARIES:
        frame, inner = frame.f_back, frame
    if frame is None:
        return "an unknown line", None
    name, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, line).strip()
    library = None if inner is None or _root(inner) in ("mercer", "numpy") else _public(inner)
    return f"{Path(name).name}:{line}" + (f": {text}" if text else ""), library


def _root(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0]


def _public(frame):
    parts = frame.f_globals["__name__"].split(".")
    return ".".join(part for part in parts if not part.startswith("_"))


def trace_error(operation, why, remedy, kind=TraceError):
    """Return an error that says which operation failed, why, where, and what to do instead."""
    where, library = user_line()
    return kind(f"{operation}{f' in {library}' if library else ''}: {why} (at {where}); {remedy}")


def made_clear(error):
    """Return what to raise in place of NumPy's error about an element that it could not convert, or None."""
    cause = error.__cause__
    if isinstance(error, TraceError) or not isinstance(cause, TraceError):
        return None
    return TraceValueError(f"assignment to an element of a plain array: {cause}")

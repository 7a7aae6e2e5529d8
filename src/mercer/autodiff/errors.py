"""What autodiff raises, with the operation, the line of the user's code and the remedy."""

import linecache
import sys
from pathlib import Path

import numpy

_OWN = (str(Path(__file__).parents[1]), str(Path(numpy.__file__).parent))


class TraceError(TypeError):
    """A traced value was used where it cannot be followed."""


class TraceValueError(TraceError, ValueError):
    """A trace error where NumPy has a ValueError."""


class NoRuleError(TraceError, NotImplementedError):
    """A function without a derivative rule met a traced value."""


class ClosedTraceError(TraceError):
    """A traced value outlived the derivative that made it."""


def user_line():
    """Return the innermost line of code outside mercer and NumPy, as ``file:line: text``."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*_OWN, "<__array_function__")):
        frame = frame.f_back
    if frame is None:
        return "an unknown line"
    name, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, line).strip()
    return f"{Path(name).name}:{line}" + (f": {text}" if text else "")


def trace_error(operation, why, remedy, kind=TraceError):
    """Return an error that says which operation failed, why, where, and what to do instead."""
    return kind(f"{operation}: {why} (at {user_line()}); {remedy}")

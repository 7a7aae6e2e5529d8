"""What autodiff raises, with the operation, the line of the user's code and the remedy."""

import ast
import dis
import itertools
import linecache
import sys
import types
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


def _user_frame():
    """Return the innermost frame of the user's code and those it called, the outermost first."""
    frame, called = sys._getframe(1), []
    while frame is not None and _root(frame) in _LIBRARIES:
        called.append(frame)
        frame = frame.f_back
    # What lies within this package is no code that the user chose.
    return frame, list(itertools.takewhile(lambda f: _root(f) != "mercer", reversed(called)))


def _line(frame):
    name, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, line).strip()
    return f"{Path(name).name}:{line}" + (f": {text}" if text else "")


def _root(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0]


def _public(frame):
    parts = frame.f_globals["__name__"].split(".")
    return ".".join(part for part in parts if not part.startswith("_"))


def _library(called):
    """Return the function called, or its module where that has no public name."""
    if not called:
        return None
    code, module = called[0].f_code, _public(called[0])
    if _root(called[0]) != "numpy":
        name = code.co_qualname.partition(".")[0]  # a method is named by its class
        found = not name.startswith("_") and hasattr(sys.modules.get(module), name)
        return f"{module}.{name}" if found else module
    for shown, home in (("np", "numpy"), (module, module)):
        function = getattr(sys.modules.get(home), code.co_name, None)
        if getattr(getattr(function, "_implementation", function), "__code__", None) is code:
            return f"{shown}.{code.co_name}"
    return None


def _written_call(frame):
    """Return the call that the user's code is at as (what stands before the point, name); None if unknown."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).encode()
    positions = itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    first, last, start, stop = next(positions, (None, None, None, None))
    if first is None or first != last or start is None:
        return None, None
    try:
        call = ast.parse(line[start:stop].decode().strip(), mode="eval").body
    except SyntaxError:
        return None, None
    function = call.func if isinstance(call, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return ast.unparse(function.value), function.attr
    return None, function.id if isinstance(function, ast.Name) else None


def written_as(*operations):
    """Whether the Python code that runs is at one of these instructions, or calls of these names."""
    frame = sys._getframe(1)
    while frame is not None and _root(frame) == "mercer":
        frame = frame.f_back
    if frame is None:
        return False
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return instruction in operations or _written_call(frame)[1] in operations


#: What to write for methods of random generators: they draw an order of plain numbers.
_DRAWN = {
    "permutation": "x[rng.permutation(len(x))]",
    "permuted": "np.take_along_axis(x, rng.permuted(order, axis), axis), order being whole numbers",
    "choice": "x[rng.choice(len(x), size)]",
}


def _substitute(frame, called):
    """Return what to write instead of a call that NumPy's dispatch does not reach, or None."""
    if frame is None:
        return None
    before, name = _written_call(frame)
    if not called and name in _DRAWN:
        return f"write {_DRAWN[name]}"
    if called and _root(called[0]) == "pandas":
        return "take the array out of the Series or DataFrame: df.to_numpy() @ x"
    if name == "as_strided":
        return "use np.lib.stride_tricks.sliding_window_view, or indices: x[i[:, None] + j]"
    names = [inner.f_code.co_name for inner in called] + [name]  # decorators hide a function's name
    if called and _root(called[0]) == "scipy":
        for module in ("scipy.linalg", "scipy.special"):
            own = getattr(sys.modules.get(f"mercer.autodiff.{module}"), "__all__", ())
            found = next((name for name in names if name in own), None)
            if found is not None and _public(called[0]) in ("scipy", module):
                return f"use mercer.autodiff.{module}.{found}, which takes traced values"
    if name == "dot" and not isinstance(frame.f_globals.get(before), types.ModuleType):
        return f"write {before} @ …, or np.dot({before}, …): methods of plain arrays take plain values alone"
    if called and _public(called[0]) == "scipy.sparse":
        return "use M.toarray(), or the products M @ x and x @ M"
    if called and _root(called[0]) == "scipy":
        return "write it with NumPy functions, or give the call a rule of its own by ad.primitive"
    return None


def trace_error(operation, why, remedy, kind=TraceError):
    """Return an error that says which operation failed, why, where, and what to do instead."""
    frame, called = _user_frame()
    library, where = _library(called), "an unknown line" if frame is None else _line(frame)
    if operation == "np.asarray()":
        remedy = _substitute(frame, called) or remedy
    return kind(f"{operation}{f' in {library}' if library else ''}: {why} (at {where}); {remedy}")


def made_clear(error):
    """Return what to raise in place of NumPy's error about an element that it could not convert, or None."""
    cause = error.__cause__
    if isinstance(error, TraceError) or not isinstance(cause, TraceError):
        return None
    return TraceValueError(f"assignment to an element of a plain array: {cause}")

"""Traced values: what a function sees instead of its arrays while it is differentiated.

A NumPy function meets :class:`Traced` values through ``__array_ufunc__``, ``__array_function__``, operators
and methods. Each ends in :func:`apply`, which takes the values of the innermost derivative (the highest
level) apart, computes on what they hold, which may be values of an outer derivative, and lets the level
record what its mode needs: a tape slot (reverse) or a tangent (forward).

The way through: derivative → trace → rules (found by function) → sweep. All of it is compiled
(native/_sweep.pyx); this module names it and says what its errors read.
"""

import sys

import numpy as np

from mercer._native import sweep as _sweep
from mercer.autodiff.errors import (
    ClosedTraceError,
    NoRuleError,
    TraceError,
    TraceValueError,
    trace_error,
    written_as,
)

__all__ = [
    "CREATION",
    "ERRORS",
    "FUNCTIONS",
    "METHODS",
    "OPCODES",
    "PROPERTIES",
    "UFUNCS",
    "UFUNC_METHODS",
    "Forward",
    "Like",
    "Primitive",
    "ReadAgain",
    "Tape",
    "Traced",
    "adopt",
    "apply",
    "apply_linear",
    "backward",
    "belongs",
    "cast",
    "checksum",
    "define_operators",
    "fresh",
    "full",
    "inputs_of",
    "is_basic",
    "np_like",
    "outputs_of",
    "owned",
    "plain",
    "pulled",
    "run",
    "scale_plain",
    "snapshot",
    "stacked",
    "unbroadcast",
    "zeros_for_none",
]

FUNCTIONS, UFUNCS, UFUNC_METHODS = _sweep.FUNCTIONS, _sweep.UFUNCS, _sweep.UFUNC_METHODS
METHODS, PROPERTIES, CREATION = _sweep.METHODS, _sweep.PROPERTIES, _sweep.CREATION
ERRORS, OPCODES = _sweep.ERRORS, _sweep.OPCODES
Forward, Like, Primitive = _sweep.Forward, _sweep.Like, _sweep.Primitive
Tape, Traced = _sweep.Tape, _sweep.Traced
adopt, apply, apply_linear, ReadAgain = _sweep.adopt, _sweep.apply, _sweep.apply_linear, _sweep.ReadAgain
backward, fresh = _sweep.backward, _sweep.fresh
cast, np_like, plain, unbroadcast = _sweep.cast, _sweep.np_like, _sweep.plain, _sweep.unbroadcast
checksum = _sweep.checksum
belongs, inputs_of, outputs_of = _sweep.belongs, _sweep.inputs_of, _sweep.outputs_of
owned, pulled, run = _sweep.owned, _sweep.pulled, _sweep.run
zeros_for_none = _sweep.zeros_for_none
define_operators, full, is_basic, scale_plain, snapshot, stacked = (
    _sweep.define_operators,
    _sweep.full,
    _sweep.is_basic,
    _sweep.scale_plain,
    _sweep.snapshot,
    _sweep.stacked,
)


def _truth(x):
    return trace_error(
        "bool()",
        f"the truth of a traced array of shape {x.shape} is not one value",
        "use a.any() or a.all(), or np.where to select by element",
        TraceValueError,
    )


def _array(x):
    """Raise, but for SciPy's ``matrix @ x``: that is left to an x of which NumPy makes an object."""
    caller = sys._getframe(1)
    sparse = caller.f_globals["__name__"].startswith("scipy.sparse")
    if sparse and caller.f_code.co_name == "_matmul_dispatch":
        deferred = np.empty((), object)
        return deferred
    raise trace_error(
        "np.asarray()",
        "a traced value cannot become a plain array, the derivative would be lost",
        "keep it traced: np.stack joins traced values (np.array([x, y]) is not dispatched by NumPy), "
        "assignment needs a traced array (np.zeros_like(x) or np.zeros(n, like=x) makes one), "
        "ad.stop_gradient(x) gives the plain value",
        ValueError if written_as("nditer") else TraceError,  # for a TypeError, np.nditer has words of its own
    )


def _number(x, operation):
    return trace_error(
        operation,
        "a traced value cannot become a plain number, the derivative would be lost",
        "use NumPy's functions (np.sin for math.sin), np.stack for lists of traced values, np.zeros_like(x) "
        "for arrays to assign into, or ad.stop_gradient(x) for the plain value",
    )


def _pickle(x):
    return trace_error(
        "pickle", "a traced value belongs to the derivative being computed", "pickle ad.stop_gradient(x)"
    )


def _hash(x):
    return trace_error(
        "hash()",
        "a traced value is unhashable, as arrays are: it is no key of a dict, no element of a set",
        "take a plain key, as float(ad.stop_gradient(x))",
    )


def _bits(x, operator):
    return trace_error(
        f"the operator {operator}",
        f"works on bits of whole numbers and booleans, a traced value has the type {x.dtype}",
        "compare first, as in (x > 0) & mask; 2**n * x shifts by n",
    )


def _modulo(x):
    return trace_error(
        "pow()", "a third argument is for whole numbers", "write np.remainder(x**y, z) for pow(x, y, z)"
    )


def _deletion(x):
    return trace_error(
        "del x[…]", "entries of an array cannot be deleted", "write x = np.delete(x, …)", TraceValueError
    )


def ufunc_name(ufunc, method=""):
    """Return a ufunc's name as users write it."""
    home = "np" if getattr(np, ufunc.__name__, None) is ufunc else "scipy.special"
    return f"{home}.{ufunc.__name__}" + (f".{method}" if method else "")


def no_rule(function):
    """Return the error for a function, a ufunc or a name, without a rule."""
    name = function if isinstance(function, str) else ufunc_name(function)
    remedy = "write it with NumPy functions that have one, or give it a rule by ad.primitive"
    if name.startswith("np.save"):
        remedy = "save ad.stop_gradient(x)"
    return trace_error(name, "has no derivative rule", remedy, NoRuleError)


def _closed(name):
    return trace_error(
        name,
        "a traced value is used after its derivative was computed",
        "return what you need from the function (has_aux=True), do not store it elsewhere",
        ClosedTraceError,
    )


def _changed(x):
    return trace_error(
        "the reverse sweep",
        f"an array of shape {x.shape} and type {x.dtype} was changed in place after a traced value met it",
        "use a copy of it in the function, or change another array",
    )


def _subclass(name, x):
    return trace_error(
        name,
        f"a {type(x).__name__} has other arithmetic than an array",
        "use np.asarray(m), or np.where with a mask",
    )


def _type(name, x):
    return trace_error(
        name,
        f"its value has the type {getattr(x, 'dtype', type(x))}",
        "use floating or complex numbers (M.toarray() or M @ x for a sparse matrix M)",
    )


def _closure(name):
    return trace_error(
        name, "its function uses traced values that are not among its arguments", "pass them as arguments"
    )


_sweep.ERRORS.update(
    {
        "truth": _truth,
        "array": _array,
        "number": _number,
        "pickle": _pickle,
        "hash": _hash,
        "bits": _bits,
        "modulo": _modulo,
        "deletion": _deletion,
        "no rule": no_rule,
        "closed": _closed,
        "closure": _closure,
        "changed": _changed,
        "subclass": _subclass,
        "type": _type,
    }
)

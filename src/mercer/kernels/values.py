"""Kernels as values: parameters kept as given, and equality, hash, repr, pickling by content.

Place on the way: **values** → ``base.Kernel``.
"""

import inspect
import math
import numbers
from typing import ClassVar

import numpy as np

from .._arrays import plain

# Programs hold exponents and degrees as 32-bit integers.
_LARGEST_COUNT = 2**31 - 1

__all__ = ["Value", "canonical", "checked_count", "checked_scale", "shown"]


class Value:
    """A frozen object whose content is its constructor's arguments."""

    _names = ()
    _defaults: ClassVar = {}

    def __init_subclass__(cls, **kwargs):
        """Read the names and defaults of the parameters off the constructor."""
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
            cls._names = tuple(p.name for p in parameters if p.kind is not p.VAR_POSITIONAL)
            cls._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

    def _set(self, **params):
        for name, value in params.items():
            object.__setattr__(self, name, _frozen(value))

    def __setattr__(self, name, value):
        raise AttributeError(f"kernels are immutable; use set_params({name}=…), which returns a new kernel")

    def __delattr__(self, name):
        raise AttributeError("kernels are immutable")

    def _params(self):
        """The constructor's arguments by name."""
        return {name: getattr(self, name) for name in self._names}

    def _key(self):
        return (type(self), *((name, canonical(value)) for name, value in self._params().items()))

    def __eq__(self, other):
        if not isinstance(other, Value):
            return NotImplemented
        return self is other or self._key() == other._key()

    def __hash__(self):
        return hash(self._key())

    def __getstate__(self):
        """The arguments, without what is only cached."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_cached")}

    def __setstate__(self, state):
        for name, value in state.items():
            object.__setattr__(self, name, _frozen(value))

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        parts = []
        for name, value in self._params().items():
            if name in self._defaults:
                default = self._defaults[name]
                if value is default or canonical(value) == canonical(default):
                    continue
                parts.append(f"{name}={shown(value)}")
            else:
                parts.append(shown(value))
        return f"{type(self).__name__}({', '.join(parts)})"


def _frozen(value):
    """An array becomes a read-only copy, a list a tuple of what it held; all else stays as given."""
    if type(value) is np.ndarray:
        value = value.copy()
        value.flags.writeable = False
    elif type(value) is list:
        value = tuple(value)
    return value


def canonical(value):
    """What a parameter is compared and hashed by."""
    value = plain(value)
    if isinstance(value, Value):
        return value._key()
    if isinstance(value, np.ndarray | tuple | list | np.generic):
        try:
            array = np.asarray(value)
        except ValueError:
            array = None
        if array is not None and array.dtype.kind in "fiub":
            array = np.asarray(array, dtype=np.float64) + 0.0  # −0 is 0
            return float(array) if array.ndim == 0 else ("array", array.shape, array.tobytes())
        if isinstance(value, np.ndarray):
            return ("array", value.shape, tuple(map(canonical, value.ravel().tolist())))
        if isinstance(value, tuple | list):
            return ("sequence", tuple(map(canonical, value)))
    if hasattr(value, "tocoo"):
        entries = value.tocoo()
        return (
            "sparse",
            value.shape,
            entries.data.tobytes(),
            *(np.asarray(c).tobytes() for c in entries.coords),
        )
    if isinstance(value, set | frozenset):
        return ("set", frozenset(map(canonical, value)))
    if isinstance(value, dict):
        return ("dict", frozenset((name, canonical(item)) for name, item in value.items()))
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return value


def shown(value):
    """A parameter as its constructor's argument; long arrays by their shape only."""
    value = plain(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        value = value.item() if value.ndim == 0 else value.tolist() if value.size <= 64 else value
    if isinstance(value, np.ndarray) or hasattr(value, "tocoo"):
        return f"<array of shape {value.shape}>"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, tuple):
        return _shown_sequence(value)
    if callable(value) and not isinstance(value, Value):
        return getattr(value, "__qualname__", repr(value))
    return repr(value)


def _shown_sequence(value):
    if len(value) > 64:
        return f"<sequence of length {len(value)}>"
    # A tuple inside stays one: a label has to be hashable.
    return f"[{', '.join(repr(item) if isinstance(item, tuple) else shown(item) for item in value)}]"


def checked_scale(owner, name, value, *, zero=False, per_feature=False, rule=""):
    """Raise unless a hyperparameter is a finite positive number, or an array of such.

    Parameters
    ----------
    owner, name : str
        For the error.
    value : float, array_like or traced
        The value.
    zero : bool
        Whether 0 will do.
    per_feature : bool
        Whether one number per feature will do.
    rule : str
        The rule of construction that it would break.
    """
    number = plain(value)
    why = f"; {rule}" if rule else ""
    needed = "nonnegative" if zero else "positive"
    if isinstance(number, bool | np.bool_ | str | bytes) or number is None:
        raise TypeError(f"{owner}: {name} must be a {needed} number, got {number!r}")
    array = np.asarray(number)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{owner}: {name} must be a {needed} real number, got {number!r}")
    if array.ndim > (1 if per_feature else 0) or (array.ndim and array.size == 0):
        form = "a number or one number per feature" if per_feature else "one number"
        raise ValueError(f"{owner}: {name} must be {form}, got shape {array.shape}")
    good = np.isfinite(array) & ((array >= 0) if zero else (array > 0))
    if not good.all():
        bad = array[~good].ravel()[0] if array.ndim else array
        place = f" at index {int(np.argmin(good))}" if array.ndim else ""
        raise ValueError(f"{owner}: {name} must be {needed} and finite, got {bad}{place}{why}")


def checked_count(owner, name, value, least=1):
    """Raise unless a parameter is an integer that is large enough; returns it as int."""
    number = plain(value)
    if isinstance(number, bool | np.bool_) or not isinstance(number, numbers.Integral):
        is_whole = (
            isinstance(number, numbers.Real)
            and not isinstance(number, bool | np.bool_)
            and float(number).is_integer()
        )
        if not is_whole:
            kind = ValueError if isinstance(number, numbers.Real) else TypeError
            raise kind(f"{owner}: {name} must be an integer >= {least}, got {number!r}")
    if not least <= number <= _LARGEST_COUNT:
        most = f" and <= {_LARGEST_COUNT}" if number > least else ""
        raise ValueError(f"{owner}: {name} must be an integer >= {least}{most}, got {number!r}")
    return int(number)

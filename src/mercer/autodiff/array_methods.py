"""The methods, properties, indexing and assignment of traced arrays.

Assignment follows NumPy's meaning: the name that is assigned to keeps its identity, and what was read from
it by basic indexing before is a view that sees the change, and writes through. Views made by other
functions see changes but refuse to be written to.
"""

import numpy as np

from mercer.autodiff.errors import trace_error
from mercer.autodiff.rules import cast, define, unbroadcast
from mercer.autodiff.trace import METHODS, PROPERTIES, Traced, adopt, apply, fresh, plain

# -- indexing -------------------------------------------------------------------------------------------


def _getitem(x, index):
    return x[index]


def _put(g, x, index):
    """The transpose of x[index]: contributions to an entry read twice add up."""
    out = np.zeros(np.shape(x), g.dtype)
    if is_basic(index):
        out[index] = g
    else:
        np.add.at(out, index, g)
    return out


put = define(
    _put,
    name="index transpose",
    jvp="linear",
    vjp=[lambda g, ans, t, x, index: cast(getitem(g, index), t)],
)
getitem = define(
    _getitem, name="x[index]", jvp="linear", vjp=[lambda g, ans, x, index: put(g, x_like(x), index)]
)


class Like:
    """The shape and type of an array, without its entries."""

    __slots__ = ("dtype", "ndim", "shape")

    def __init__(self, x):
        self.shape, self.dtype, self.ndim = np.shape(x), x.dtype, len(np.shape(x))


def x_like(x):
    return Like(x)


def is_basic(index):
    """Whether an index makes a view (NumPy's basic indexing)."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or part is Ellipsis or isinstance(part, int | np.integer | slice) for part in parts
    ) and not any(isinstance(part, bool) for part in parts)


def _setitem(x, value, index):
    out = x.copy() if isinstance(x, np.ndarray) else np.array(x)
    out[index] = value
    return out


def _written(shape, index):
    """For each entry that an index names, whether it is the one that stays there: the last write wins."""
    size = int(np.prod(shape))
    positions = np.arange(size).reshape(shape)[index]
    last = np.full(size, -1)
    order = np.arange(np.size(positions))
    last[np.ravel(positions)] = order
    return (last[np.ravel(positions)] == order).reshape(np.shape(positions))


def _setitem_value(g, index):
    part = getitem(g, index)
    return part if is_basic(index) else part * _written(np.shape(g), index)


def _setitem_jvp(tangents, ans, x, value, index):
    t, tv, *_ = tangents
    t = np.zeros_like(ans) if t is None else t
    return setitem(t, np.zeros((), ans.dtype) if tv is None else tv, index)


setitem = define(
    _setitem,
    name="x[index] = value",
    jvp=_setitem_jvp,
    vjp=[
        lambda g, ans, x, value, index: setitem(g, np.zeros((), g.dtype), index),
        lambda g, ans, x, value, index: unbroadcast(_setitem_value(g, index), value),
    ],
)


def _index_of(index):
    """Return an index in which nothing is traced, or say which part is."""
    parts = index if isinstance(index, tuple) else (index,)
    for part in parts:
        if isinstance(part, Traced):
            raise trace_error(
                "x[index]", "an index must be whole numbers or booleans", "index by plain values"
            )
    if isinstance(index, list):
        return np.asarray(index) if index else np.zeros(0, int)
    return index


def _get(self, index):
    index = _index_of(index)
    out = apply(getitem, (self,), {"index": index})
    if isinstance(out, Traced) and out.shape and is_basic(index):
        out._base, out._base_version, out._again = self, self._version, ReadAgain(index)
    return out


class ReadAgain:
    """How a view by basic indexing is read again from its base."""

    __slots__ = ("index",)

    def __init__(self, index):
        self.index = index

    def __call__(self, base):
        return apply(getitem, (base,), {"index": self.index})


def _set(self, index, value):
    fresh(self)
    index = _index_of(index)
    if self._base is not None and not isinstance(self._again, ReadAgain):
        raise trace_error(
            "assignment",
            "this array is a view that NumPy would write through",
            "assign to the array itself, or to x.copy()",
        )
    adopt(self, apply(setitem, (self, value), {"index": index}))
    if self._base is not None:
        _set(self._base, self._again.index, self)
        self._base_version = self._base._version


METHODS["__getitem__"] = _get
METHODS["__setitem__"] = _set


def _in_place(ufunc):
    """Return ``x += y`` and its kin: an array keeps its identity, a scalar gets a new value, as in NumPy."""

    def operate(self, other):
        out = ufunc(self, other)
        if not self.shape:
            return out
        if np.shape(out) != self.shape:
            raise ValueError(
                f"in-place {ufunc.__name__}: the result has shape {np.shape(out)}, the array {self.shape}"
            )
        _set(self, ..., out)
        return self

    return operate


for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "pow": np.power,
    "matmul": np.matmul, "mod": np.remainder, "floordiv": np.floor_divide,
}.items():  # fmt: skip
    METHODS[f"__i{_name}__"] = _in_place(_ufunc)

# -- methods --------------------------------------------------------------------------------------------

for _name in (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "clip", "compress", "conj", "conjugate", "cumprod",
    "cumsum", "diagonal", "dot", "max", "mean", "min", "nonzero", "prod", "put", "ravel", "repeat", "round", "searchsorted",
    "squeeze", "std", "sum", "swapaxes", "take", "trace", "var",
):  # fmt: skip
    METHODS[_name] = getattr(np, _name)


def _shape_of(shape):
    return shape[0] if len(shape) == 1 and not isinstance(shape[0], int | np.integer) else shape


METHODS["reshape"] = lambda self, *shape, **kwargs: np.reshape(self, _shape_of(shape), **kwargs)
METHODS["transpose"] = lambda self, *axes: np.transpose(self, (_shape_of(axes) if axes else None))
METHODS["flatten"] = lambda self, order="C": np.copy(np.reshape(self, -1, order=order))
METHODS["copy"] = lambda self, order="C": np.copy(self)
METHODS["view"] = lambda self, *args, **kwargs: _refuse("view()", "astype or a copy")


def _refuse(operation, remedy):
    raise trace_error(operation, "a traced array has no plain memory of its own", f"use {remedy}")


def _no_plain(name):
    return lambda self, *args, **kwargs: _refuse(f"x.{name}()", "ad.stop_gradient(x) for the plain value")


for _name in ("tolist", "item", "tobytes", "tofile", "dump", "dumps", "byteswap", "setflags", "getfield"):
    METHODS[_name] = _no_plain(_name)


def _fill(self, value):
    _set(self, ..., value)


def _sort(self, axis=-1, **kwargs):
    _set(self, ..., np.sort(self, axis=axis, **kwargs))


def _partition(self, kth, axis=-1, **kwargs):
    _set(self, ..., np.partition(self, kth, axis=axis, **kwargs))


METHODS["fill"], METHODS["sort"], METHODS["partition"] = _fill, _sort, _partition


def _astype(self, dtype, **kwargs):
    dtype = np.dtype(dtype)
    return astype(self, dtype=dtype) if dtype.kind in "fc" else plain(self).astype(dtype)


astype = define(
    lambda x, dtype: x.astype(dtype),
    name="astype",
    jvp="linear",
    vjp=[lambda g, ans, x, dtype: cast(g, x)],
)
METHODS["astype"] = _astype

PROPERTIES["T"] = np.transpose
PROPERTIES["mT"] = lambda self: np.swapaxes(self, -1, -2)
PROPERTIES["real"] = np.real
PROPERTIES["imag"] = np.imag
PROPERTIES["itemsize"] = lambda self: self.dtype.itemsize
PROPERTIES["nbytes"] = lambda self: self.size * self.dtype.itemsize
PROPERTIES["flat"] = lambda self: _refuse("x.flat", "np.ravel(x)")
PROPERTIES["data"] = lambda self: _refuse("x.data", "ad.stop_gradient(x) for the plain value")

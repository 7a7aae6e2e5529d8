"""The methods, properties, indexing and assignment of traced arrays.

Assignment follows NumPy's meaning: the name that is assigned to keeps its identity, and a view (what basic
indexing, reshape, transpose and their kin read before) sees the change and writes through to its base.
What NumPy makes read-only (broadcast arrays, diagonals) sees changes but refuses to be written to.
"""

import math

import numpy as np
from scipy.sparse import csc_array

from mercer.autodiff.errors import TraceValueError, trace_error, written_as
from mercer.autodiff.rules import Primitive, cast, unbroadcast
from mercer.autodiff.trace import (
    FUNCTIONS,
    METHODS,
    PROPERTIES,
    Like,
    ReadAgain,
    Traced,
    adopt,
    apply,
    fresh,
    is_basic,
    plain,
)


def shape_of(x):
    """Return the shape of anything, sooner than np.shape does for a traced value."""
    try:
        return x.shape
    except AttributeError:
        return np.shape(x)


def ndim_of(x):
    """Return the number of axes of anything."""
    try:
        return x.ndim
    except AttributeError:
        return np.ndim(x)


# -- indexing -------------------------------------------------------------------------------------------


def _led(index, n_lead):
    """Return an index that leaves `n_lead` leading axes alone, and where these then are in what it reads.

    Advanced indices that stand apart put their axes first, before the leading ones.
    """
    parts = index if isinstance(index, tuple) else (index,)
    led = (*(slice(None),) * n_lead, *parts)
    if is_basic(index):
        return led, 0
    at = [i for i, p in enumerate(parts) if not (p is None or p is Ellipsis or isinstance(p, slice))]
    if at[-1] - at[0] == len(at) - 1:
        return led, 0
    arrays = [np.asarray(parts[i]) for i in at]
    return led, max(1 if a.dtype == bool else a.ndim for a in arrays)


def read(t, index, n_lead):
    """Return ``t[lead, *index]`` with the leading axes in front."""
    if not n_lead:
        return getitem(t, index)
    led, first = _led(index, n_lead)
    out = getitem(t, led)
    return np.moveaxis(out, range(first, first + n_lead), range(n_lead)) if first else out


def _positions(shape, index):
    """Return the flat positions of the entries that an index names."""
    return np.arange(math.prod(shape)).reshape(shape)[index]


def _put(g, index, shape, lead):
    """The transpose of x[index]: contributions to an entry read twice add up."""
    if is_basic(index):
        out = np.zeros((*lead, *shape), g.dtype)
        out[_led(index, len(lead))[0] if lead else index] = g
        return out
    size, rows = math.prod(shape), math.prod(lead)
    if (
        not lead
        and isinstance(index, np.ndarray)
        and index.ndim == 1
        and index.dtype != bool
        and size > shape[0]
    ):
        return _rows_added(g, index, shape)
    at = _positions(shape, index).ravel()
    g = g.reshape(rows, at.size)
    if at.size < 2 or np.bincount(at).max() == 1:
        out = np.zeros((rows, size), g.dtype)
        out[:, at] = g
    else:
        everywhere = (at + size * np.arange(rows)[:, None]).ravel()
        out = _summed(everywhere, g.ravel(), rows * size)
    return out.reshape((*lead, *shape))


def _rows_added(g, index, shape):
    """Return zeros to which rows of g are added: a product with the sparse matrix of the index."""
    n, m = shape[0], len(index)
    at = np.where(index < 0, index + n, index)
    if m < 2 or np.bincount(at).max() == 1:
        out = np.zeros(shape, g.dtype)
        out[at] = g
        return out
    picks = csc_array((np.ones(m, g.real.dtype), at, np.arange(m + 1)), shape=(n, m))
    return (picks @ g.reshape(m, -1)).reshape(shape)


def _summed(at, g, size):
    """Return the sums of the entries of g that go to each of `size` positions."""
    if g.dtype.kind == "c":
        total = _summed(at, g.real, size) + 1j * _summed(at, g.imag, size)
        return total.astype(g.dtype, copy=False)
    if g.dtype.itemsize <= 8:
        return np.bincount(at, g, size).astype(g.dtype, copy=False)
    out = np.zeros(size, g.dtype)
    np.add.at(out, at, g)
    return out


scatter = Primitive(
    _put,
    name="transpose of x[index]",
    jvp=[
        lambda t, ans, g, index, shape, lead: scatter(
            t, index, shape, shape_of(t)[: ndim_of(t) - ndim_of(g)] + lead
        )
    ],
    vjp=[lambda g, ans, x, index, shape, lead: cast(read(g, index, ndim_of(g) - len(shape)), x)],
    batched=True,
    linear=True,
)


x_like = Like


def put(g, like, index):
    """Return zeros like an array with g's entries added at an index."""
    return scatter(g, index, like.shape, ())


def _getitem_vjp(g, ans, x, index):
    return scatter(g, index, shape_of(x), shape_of(g)[: ndim_of(g) - ndim_of(ans)])


getitem = Primitive(
    lambda x, index: x[index],
    name="x[index]",
    jvp=[lambda t, ans, x, index: read(t, index, ndim_of(t) - ndim_of(x))],
    vjp=[_getitem_vjp],
    batched=True,
    linear=True,
)


def _setitem(x, value, index):
    # The layout is kept: it decides what NumPy makes views of.
    out = x.copy("K") if isinstance(x, np.ndarray) else np.array(x)
    out[index] = value
    return out


def _written(shape, index):
    """For each entry that an index names, whether it is the one that stays there: the last write wins."""
    positions = _positions(shape, index)
    last = np.full(math.prod(shape), -1)
    order = np.arange(positions.size)
    last[positions.ravel()] = order
    return (last[positions.ravel()] == order).reshape(positions.shape)


def write(t, value, index, ans, value_shape):
    """Return ``t`` with ``t[lead, *index] = value``, where value may have the leading axes, too."""
    n_lead = ndim_of(t) - ndim_of(ans)
    if not n_lead:
        return setitem(t, value, index)
    led, first = _led(index, n_lead)
    if ndim_of(value) > len(value_shape):
        region = np.broadcast_to(False, shape_of(ans))[index].ndim
        lead = shape_of(value)[: ndim_of(value) - len(value_shape)]
        value = np.reshape(value, (*lead, *(1,) * (region - len(value_shape)), *value_shape))
        if first:
            value = np.moveaxis(value, range(n_lead), range(first, first + n_lead))
    return setitem(t, value, led)


def _setitem_jvp(tangents, ans, x, value, index):
    t, tv, *_ = tangents
    if t is None and tv is None:
        return None
    if t is None:
        lead = shape_of(tv)[: ndim_of(tv) - ndim_of(value)]
        t = np.zeros((*lead, *shape_of(ans)), ans.dtype)
    return write(t, np.zeros((), ans.dtype) if tv is None else tv, index, ans, shape_of(value))


def _setitem_vjp(g, ans, needed, x, value, index):
    to_x = write(g, np.zeros((), g.dtype), index, ans, ()) if needed[0] else None
    to_value = None
    if needed[1]:
        n_lead = ndim_of(g) - ndim_of(ans)
        to_value = read(g, index, n_lead)
        if not is_basic(index):
            to_value = np.where(_written(shape_of(ans), index), to_value, np.zeros((), g.dtype))
        to_value = unbroadcast(to_value, value, n_lead or None)
    return to_x, to_value, None


setitem = Primitive(
    _setitem, name="x[index] = value", jvp=_setitem_jvp, vjp=_setitem_vjp, batched=True, linear=True
)


def _index_of(index):
    """Return an index in which nothing is traced or can change later, or say which part is."""
    if isinstance(index, tuple):
        return tuple(_part_of(part) for part in index)
    return _part_of(index)


def _part_of(part):
    if isinstance(part, Traced):
        raise trace_error("x[index]", "an index must be whole numbers or booleans", "index by plain values")
    if isinstance(part, list):
        return np.asarray(part) if part else np.zeros(0, int)
    return part.copy() if isinstance(part, np.ndarray) else part


def _get(self, index):
    return apply(getitem, (self,), {"index": _index_of(index)})


def _set(self, index, value):
    fresh(self)
    if isinstance(value, Traced) and value._base is self and value.ndim:
        _refuse_swap(self)
    index = _index_of(index)
    base = self._base
    if base is None:
        adopt(self, _assigned(self, index, value))
        return
    if isinstance(self._again, ReadAgain):
        _set(base, self._again.index, _assigned(self, index, value))
    elif self.dtype != base.dtype:
        _set_part(base, _assigned(self, index, value), self._again.primitive is FUNCTIONS[np.imag])
    else:
        if not plain(self).flags.writeable:
            raise trace_error(
                "assignment",
                "this array is a view that NumPy does not let be written to",
                "assign to the array itself, or to x.copy()",
                TraceValueError,
            )
        positions = self._again(np.arange(base.size).reshape(base.shape))[index]
        if base.shape:
            _set(base, np.unravel_index(positions, base.shape), value)
        elif np.size(positions):
            _set(base, (), value)
    adopt(self, self._again(base))
    self._base_version = base._version


def _with_part(z, part, *, imaginary):
    """Return a complex array with its real or imaginary part, an array of its shape, replaced."""
    out = np.array(z)
    if imaginary:
        out.imag = part
    else:
        out.real = part
    return out


def _with_part_jvp(tangents, ans, z, part, *, imaginary):
    t, own = tangents
    t = np.zeros(shape_of(own), ans.dtype) if t is None else t
    return with_part(t, np.zeros(shape_of(t)) if own is None else own, imaginary=imaginary)


def _with_part_vjp(g, ans, needed, z, part, *, imaginary):
    own = np.imag(g) if imaginary else np.real(g)
    return with_part(g, np.zeros(shape_of(g)), imaginary=imaginary), own


with_part = Primitive(
    _with_part, name="z.real = x", jvp=_with_part_jvp, vjp=_with_part_vjp, batched=True, linear=True
)


def _set_part(z, value, imaginary):
    """Do ``z.real = value`` or ``z.imag = value``."""
    if z.dtype.kind == "c":
        _set(z, ..., with_part(z, np.broadcast_to(joined(value), z.shape), imaginary=imaginary))
    elif imaginary:
        raise TypeError("array does not have imaginary part to set")
    else:
        _set(z, ..., value)


METHODS["__set_real__"] = lambda self, value: _set_part(self, value, False)
METHODS["__set_imag__"] = lambda self, value: _set_part(self, value, True)


def _set_shape(self, shape):
    raise trace_error("x.shape = …", "the shape of a traced array is fixed", "write x = x.reshape(…)")


METHODS["__set_shape__"] = _set_shape


def _refuse_swap(x):
    """Raise if compiled code assigns a view of an array to its part: shuffling would copy rows onto others.

    It exchanges x[i] and x[j], of which one is a view that has changed when its turn comes.
    """
    if not written_as("STORE_SUBSCR", "STORE_SLICE", "setitem", "__setitem__"):
        raise trace_error(
            "shuffle",
            f"the rows of a traced array of shape {x.shape} are views, which exchanging them would mix up",
            "shuffle an order: x = x[rng.permutation(len(x))]",
        )


def joined(a):
    """Return nested lists with traced values in them as one traced array."""
    if not isinstance(a, list | tuple):
        return a
    items = [joined(item) for item in a]
    return np.stack(items) if any(isinstance(item, Traced) for item in items) else a


def _assigned(x, index, value):
    """Return x with entries replaced; as in NumPy, ones in front of the value's shape may be too many."""
    value = joined(value)
    if ndim_of(value) and shape_of(value)[0] == 1:
        region = np.broadcast_to(False, x.shape)[index].ndim
        extra = ndim_of(value) - region
        if extra > 0 and shape_of(value)[:extra] == (1,) * extra:
            value = np.reshape(value, shape_of(value)[extra:])
    return apply(setitem, (x, value), {"index": index})


def write_into(out, value):
    """Return `value`, or `out` after the assignment of it, as ``out=`` of NumPy's functions means.

    Raises
    ------
    TraceError
        If a traced value would be written into a plain array.
    """
    if isinstance(out, tuple):
        (out,) = out
    if out is None:
        return value
    if shape_of(out) != shape_of(value):
        raise ValueError(f"out has shape {shape_of(out)}, the result {shape_of(value)}")
    if isinstance(value, Traced) and not isinstance(out, Traced):
        raise trace_error(
            "out=",
            "assignment of a traced value into a plain array would lose the derivative",
            "make the array by np.zeros_like(x) or np.zeros(shape, like=x), or leave out= away",
        )
    out[...] = value
    return out


METHODS["__getitem__"] = _get
METHODS["__setitem__"] = _set


def _in_place(ufunc):
    """Return ``x += y`` and its kin: an array keeps its identity, a scalar gets a new value, as in NumPy."""

    def operate(self, other):
        out = ufunc(self, other)
        if not isinstance(plain(self), np.ndarray):
            return out
        if not np.can_cast(out.dtype, self.dtype, "same_kind"):
            raise TypeError(f"in-place {ufunc.__name__}: {out.dtype} does not fit into {self.dtype}")
        if shape_of(out) != self.shape:
            raise ValueError(
                f"in-place {ufunc.__name__}: the result has shape {shape_of(out)}, the array {self.shape}"
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
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "clip", "cumprod",
    "cumsum", "diagonal", "dot", "max", "mean", "min", "nonzero", "prod", "put", "ravel", "repeat", "round",
    "searchsorted", "squeeze", "std", "sum", "swapaxes", "take", "trace", "var",
):  # fmt: skip
    METHODS[_name] = getattr(np, _name)


def _shape_of(shape):
    return shape[0] if len(shape) == 1 and not isinstance(shape[0], int | np.integer) else shape


METHODS["reshape"] = lambda self, *shape, **kwargs: np.reshape(self, _shape_of(shape), **kwargs)
METHODS["transpose"] = lambda self, *axes: np.transpose(self, (_shape_of(axes) if axes else None))
METHODS["flatten"] = lambda self, order="C": np.copy(np.ravel(self, order))
METHODS["copy"] = lambda self, order="C": np.copy(self, order)
METHODS["compress"] = lambda self, condition, axis=None, out=None: np.compress(condition, self, axis, out)
METHODS["conj"] = METHODS["conjugate"] = lambda self: np.conjugate(self) if self.dtype.kind == "c" else self
METHODS["to_device"] = lambda self, device, /, *, stream=None: self
METHODS["__array_namespace__"] = lambda self, /, *, api_version=None: np
METHODS["view"] = lambda self, *args, **kwargs: _refuse("view()", "astype or a copy")


def _refuse(operation, remedy):
    raise trace_error(operation, "a traced array has no plain memory of its own", f"use {remedy}")


def _no_plain(name):
    return lambda self, *args, **kwargs: _refuse(f"x.{name}()", "ad.stop_gradient(x) for the plain value")


for _name in (
    "tolist", "item", "tobytes", "tofile", "dump", "dumps", "byteswap", "setflags", "getfield", "setfield",
    "resize", "as_integer_ratio",
):  # fmt: skip
    METHODS[_name] = _no_plain(_name)


def _fill(self, value):
    _set(self, ..., value)


def _sort(self, axis=-1, **kwargs):
    _set(self, ..., np.sort(self, axis=axis, **kwargs))


def _partition(self, kth, axis=-1, **kwargs):
    _set(self, ..., np.partition(self, kth, axis=axis, **kwargs))


METHODS["fill"], METHODS["sort"], METHODS["partition"] = _fill, _sort, _partition


def _astype(self, dtype, order="K", casting="unsafe", subok=True, copy=True):
    dtype = np.dtype(dtype)
    if not copy and dtype == self.dtype and plain(self).astype(dtype, order, copy=False) is plain(self):
        return self
    if dtype.kind not in "biufc":
        raise trace_error(
            f"astype({dtype})",
            "the derivative would be lost",
            "keep a floating type, or use ad.stop_gradient(x)",
        )
    return astype(self, dtype=dtype, order=order) if dtype.kind in "fc" else plain(self).astype(dtype, order)


astype = Primitive(
    lambda x, dtype, order: x.astype(dtype, order),
    name="astype",
    jvp=[lambda t, ans, x, dtype, order: t.astype(dtype)],
    vjp=[lambda g, ans, x, dtype, order: cast(g, x)],
    batched=True,
)
METHODS["astype"] = _astype

PROPERTIES["T"] = np.transpose
PROPERTIES["mT"] = lambda self: np.swapaxes(self, -1, -2)
PROPERTIES["real"] = np.real
PROPERTIES["imag"] = np.imag
PROPERTIES["itemsize"] = lambda self: self.dtype.itemsize
PROPERTIES["strides"] = lambda self: np.asarray(plain(self)).strides
PROPERTIES["flags"] = lambda self: np.asarray(plain(self)).flags
PROPERTIES["base"] = lambda self: self._base
PROPERTIES["device"] = lambda self: "cpu"
PROPERTIES["nbytes"] = lambda self: self.size * self.dtype.itemsize
PROPERTIES["flat"] = lambda self: _refuse("x.flat", "np.ravel(x)")
PROPERTIES["data"] = lambda self: _refuse("x.data", "ad.stop_gradient(x) for the plain value")

"""Arrays in: shape, dtype, layout, sparsity and finiteness, each checked once, with errors that say where.

Place on the way: **arrays** → kernel expression → ``gram`` → ``losses`` → ``solvers`` → ``estimators``.
Nothing here writes to what it was given, and floating-point arrays pass through without a copy.
"""

import numpy as np
import scipy.sparse as sp

__all__ = [
    "as_double",
    "check_out",
    "check_samples",
    "check_targets",
    "check_weights",
    "column_scales",
    "common",
    "copied",
    "flush_small",
    "is_traced",
    "plain",
    "plain_hooks",
    "power_of_two",
    "refuse_traced",
    "row_strips",
    "square_part",
    "trace_hooks",
]

# Numbers of large matrices that are made at a time.
_STRIP = 2**21

_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))

#: Functions ``value -> number or ndarray or NotImplemented`` by which automatic differentiation, once
#: imported, says what a traced value is worth.
plain_hooks = []

#: What automatic differentiation, once imported, computes in place of a kernel or solver of traced values:
#: "matrix", "diag", "gram", "product", "solve", "inverse_diagonal"; and "refused", the error for others.
trace_hooks = {}


def as_double(X):
    """Samples that are numbers in float64; others as they are.

    Parameters
    ----------
    X : ndarray, sparse matrix or sequence

    Returns
    -------
    The same, or a copy.
    """
    return X.astype(np.float64, copy=False) if isinstance(X, np.ndarray) or sp.issparse(X) else X


def row_strips(n, length=2**14):
    """Slices of some rows of n, short enough for Ctrl-C between them.

    Parameters
    ----------
    n : int
    length : int
        Of a row; as it is, a row may be long.

    Yields
    ------
    slice
    """
    size = max(1, _STRIP // max(length, 1))
    for start in range(0, n, size):
        yield slice(start, min(n, start + size))


def copied(X, dtype=None):
    """A copy in C order, made by `row_strips`.

    Parameters
    ----------
    X : ndarray
    dtype : dtype or None
        None is X's.

    Returns
    -------
    ndarray
    """
    out = np.empty(X.shape, X.dtype if dtype is None else dtype)
    for rows in row_strips(len(X)):
        out[rows] = X[rows]
    return out


def square_part(A, index):
    """``A[np.ix_(index, index)]``, made by `row_strips`: in an eighth of the time where it is large.

    Parameters
    ----------
    A : ndarray or sparse matrix of shape (n, n)
    index : ndarray of int of shape (m,)
        From 0 on.

    Returns
    -------
    ndarray, in C order, or sparse matrix, of shape (m, m)
    """
    if sp.issparse(A):
        return A[np.ix_(index, index)]
    out = np.empty((len(index), len(index)), A.dtype)
    for rows in row_strips(len(index)):
        # The mode that needs no copy of `out`.
        np.take(A[index[rows]], index, axis=1, out=out[rows], mode="clip")
    return out


def plain(value):
    """The numeric value of a hyperparameter that may be traced.

    Parameters
    ----------
    value : float, ndarray, or a traced value
        Whatever a kernel or estimator keeps as its hyperparameter.

    Returns
    -------
    float or ndarray
        `value` itself unless one of `plain_hooks` knows better.
    """
    for hook in plain_hooks:
        known = hook(value)
        if known is not NotImplemented:
            return known
    return value


def is_traced(*values):
    """Whether automatic differentiation follows one of some values.

    Parameters
    ----------
    *values : object

    Returns
    -------
    bool
    """
    return bool(plain_hooks) and any(plain(value) is not value for value in values)


def refuse_traced(value, name):
    """Raise if a value is traced where only plain ones can be computed with.

    Parameters
    ----------
    value : object
    name : str
        How the error calls it.

    Raises
    ------
    TypeError
        With the remedy.
    """
    if is_traced(value) and "refused" in trace_hooks:
        raise trace_hooks["refused"](name)


# ---------------------------------------------------------------- finiteness


def _first_bad(values):
    """Index of the first entry that is not finite, and how many there are; (None, 0) if all are."""
    bad = ~np.isfinite(values)
    count = int(np.count_nonzero(bad))
    if count == 0:
        return None, 0
    return np.unravel_index(int(np.argmax(bad)), values.shape), count


def _is_finite(values):
    # One pass without a temporary. A sum of huge finite values may overflow too: then look at each entry.
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum()
    return bool(np.isfinite(total)) or _first_bad(values)[1] == 0


def _place(index):
    return ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column"), index, strict=False))


def _at(index):
    """Where an entry is, after the verb; nothing for a single number."""
    return f" at {_place(index)}" if len(index) else ""


def _raise_not_finite(values, name, index, count, place):
    got = "NaN" if np.isnan(values[index]) else "infinity (inf)"
    more = "" if count == 1 else f", and {count - 1} more such {'entry' if count == 2 else 'entries'}"
    raise ValueError(f"Input {name} contains {got} at {place}{more}; drop or impute those rows first")


def _check_finite(values, name):
    if _is_finite(values):
        return
    index, count = _first_bad(values)
    _raise_not_finite(values, name, index, count, _place(index))


# ---------------------------------------------------------------- conversion


def _is_word(value):
    return isinstance(value, str | bytes)


def _is_number(value):
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _numeric_error(X, name):
    """The error for an object array that is not numeric: the first entry at fault, and the remedy."""
    # NumPy turns a list of numbers and words into words: then those that are no numbers are the ones to name.
    disguised = all(map(_is_word, X.flat)) and not all(map(_is_number, X.flat))
    for index, value in np.ndenumerate(X):
        if _is_word(value) and not (disguised and _is_number(value)):
            remedy = (
                "encode such columns first (sklearn.preprocessing.OneHotEncoder), or use a kernel for strings"
            )
            if name == "y":
                remedy = (
                    "convert the targets; for labels of classes there are SVC and KernelLogisticRegression"
                )
            elif name == "sample_weight":
                remedy = "give one number for each row; weights by class are a classifier's class_weight"
            return ValueError(
                f"{name} holds the string {value!r}{_at(index)}, where a number is needed; {remedy}"
            )
        if isinstance(value, complex | np.complexfloating):
            return ValueError(f"Complex data not supported: {name} holds {value!r}{_at(index)}")
        if isinstance(value, int) and not _is_number(value):
            return ValueError(
                f"{name} holds an integer of {value.bit_length()} bits{_at(index)}, too large for "
                "float64; scale that column first"
            )
        if not _is_word(value) and not _is_number(value):
            return TypeError(
                f"{name} holds {value!r}{_at(index)}, and a number's argument must be a string or a "
                f"real number, not {type(value).__name__!r}; convert or drop it first"
            )
    return ValueError(f"{name} cannot be converted to numbers")


def _to_float(X, name):
    """A native-endian, aligned float32 or float64 ndarray with the values of `X`."""
    refuse_traced(X, name)
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(f"{name} has {int(X.mask.sum())} masked entries; fill or drop them first")
    try:
        X = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"{name} is not a rectangular array: {error}") from None
    kind = X.dtype.kind
    if kind == "c":
        raise ValueError(
            f"Complex data not supported: {name} has dtype {X.dtype}; pass real and imaginary parts apart"
        )
    if kind in "US":
        raise _numeric_error(X.astype(object), name)
    if kind == "O":
        if X.ndim == 0 and X.item() is not None:
            raise TypeError(
                f"{name} is {X.item()!r:.80} of type {type(X.item()).__name__}, where numbers are needed; "
                "pass an array, a list of rows or a data frame"
            )
        try:
            if any(map(_is_word, X.flat)):
                raise ValueError
            return X.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise _numeric_error(X, name) from None
    if kind not in "fiub":
        raise TypeError(f"{name} has dtype {X.dtype}, where numbers are needed; convert it first")
    dtype = np.dtype(np.float32) if kind == "f" and X.dtype.itemsize <= 4 else np.dtype(np.float64)
    return X if X.dtype == dtype and X.flags.aligned else np.array(X, dtype=dtype)


def _check_columns(X, name):
    """Refuse column indices outside the shape, which SciPy accepts and compiled loops follow."""
    if X.nnz and not 0 <= X.indices.min() <= X.indices.max() < X.shape[1]:
        at = int(np.argmax((X.indices < 0) | (X.indices >= X.shape[1])))
        row = int(np.searchsorted(X.indptr, at, side="right")) - 1
        raise ValueError(
            f"{name} is a broken sparse matrix: row {row} has the column index {X.indices[at]}, and there "
            f"are {X.shape[1]} columns; build it anew from its entries"
        )


def _check_csr(X, name):
    """Canonical CSR (sorted, duplicates added up) with float data; the caller's matrix stays as it is."""
    if X.dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported: {name} has dtype {X.dtype}; pass real and imaginary parts apart"
        )
    if X.ndim != 2:
        raise ValueError(f"{name} must have 2 dimensions (rows are samples), got shape {X.shape}")
    data = _to_float(X.data, name) if X.format == "csr" else None
    if data is not None:
        # A shell of our own around the caller's arrays: SciPy caches flags on the object that it examines.
        out = sp.csr_array((data, X.indices, X.indptr), shape=X.shape, copy=False)
        _check_columns(out, name)
        if not out.has_canonical_format:
            out = out.copy()
            out.sum_duplicates()
    else:
        floats = np.float32 if X.dtype.kind == "f" and X.dtype.itemsize <= 4 else np.float64
        # Converted first: duplicates are added up, and narrow integers would wrap around.
        out = sp.csr_array(X.astype(floats).tocsr())
        out.sum_duplicates()
    if out.nnz and not _is_finite(out.data):
        index, count = _first_bad(out.data)
        row = int(np.searchsorted(out.indptr, index[0], side="right")) - 1
        _raise_not_finite(out.data, name, index, count, _place((row, int(out.indices[index[0]]))))
    return out


def _check_shape(X, name, n_features, min_samples, owner):
    n, d = X.shape
    if n < min_samples:
        raise ValueError(
            f"{name} has {n} sample(s) (shape={X.shape}) while a minimum of {min_samples} is required."
        )
    if n_features is not None and d != n_features:
        raise ValueError(
            f"{name} has {d} features, but {owner} is expecting {n_features} features as input; "
            "give the columns that were there at first, in the same order"
        )
    if d == 0:
        raise ValueError(f"{name} has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")


def check_samples(X, *, name="X", n_features=None, allow_sparse=True, min_samples=1, owner="this kernel"):
    """Rows of samples as a floating-point matrix.

    Parameters
    ----------
    X : array_like, data frame or sparse matrix of shape (n, d)
        Integers and booleans become float64, float16 becomes float32.
    name : str
        How errors call it.
    n_features : int or None
        The number of columns it must have.
    allow_sparse : bool
        Whether a sparse matrix may pass.
    min_samples : int
        The least number of rows.
    owner : str
        Who expects `n_features`, for the error.

    Returns
    -------
    ndarray or scipy.sparse.csr_array of shape (n, d)
        float32 or float64. A float array comes back without a copy, with whatever strides it has, and may be
        read-only. Sparse input becomes CSR with sorted indices and no duplicates.

    Raises
    ------
    ValueError
        NaN or infinity (with its row and column), no rows, no columns, another number of dimensions than 2,
        complex numbers, strings, another number of features.
    TypeError
        Objects that are no numbers, dates, or a sparse matrix where none is allowed.
    """
    if type(X) is np.ndarray and X.ndim == 2 and X.dtype in _FLOATS and X.flags.aligned:
        _check_shape(X, name, n_features, min_samples, owner)
        _check_finite(X, name)
        return X
    if sp.issparse(X):
        if not allow_sparse:
            raise TypeError(
                f"{name} is a sparse {X.format} matrix, but dense data is required here; "
                f"convert it with {name}.toarray()"
            )
        X = _check_csr(X, name)
        _check_shape(X, name, n_features, min_samples, owner)
        return X
    if isinstance(X, str | bytes):
        raise ValueError(f"{name} is the string {X!r}, where rows of numbers are needed")
    X = _to_float(X, name)
    if X.ndim != 2:
        fix = f" Reshape your data: {name}.reshape(-1, 1) is one feature, {name}.reshape(1, -1) one sample."
        raise ValueError(
            f"Expected 2D array (rows are samples), got {X.ndim}D array instead: {name} has shape {X.shape}."
            + (fix if X.ndim < 2 else "")
        )
    _check_shape(X, name, n_features, min_samples, owner)
    _check_finite(X, name)
    return X


def common(X, Z):
    """Both matrices in the wider of their two dtypes.

    Parameters
    ----------
    X, Z : ndarray or csr_array
        float32 or float64, as `check_samples` returns them.

    Returns
    -------
    tuple of two
        The arrays themselves where the dtypes agree.
    """
    if X.dtype == Z.dtype:
        return X, Z
    return X.astype(np.float64, copy=False), Z.astype(np.float64, copy=False)


def power_of_two(size):
    """One next to each size, so that scaling by it does not round; 1 for 0 and what is not finite.

    Parameters
    ----------
    size : float or ndarray
        Not negative.

    Returns
    -------
    float or ndarray
        Above half of the size, and no more than it.
    """
    usable = np.isfinite(size) & (size > 0)
    return np.ldexp(1.0, np.frexp(np.where(usable, size, 1.0))[1] - 1)


def column_scales(V):
    """Powers of two that divide columns into numbers up to 2, without rounding.

    Parameters
    ----------
    V : ndarray of shape (n, p)
        float64.

    Returns
    -------
    ndarray of shape (p,)
        1 for a column of zeros, or one that is not finite.
    """
    return power_of_two(np.max(np.abs(V), axis=0))


def flush_small(A, unit=1.0):
    """Make entries that are next to nothing beside a unit 0, in place: their products would be denormals.

    Arithmetic with those takes a hundred times as long, and matrices of kernels of short reach are full of
    them. Errors are up to 2⁻⁵¹ of the unit in float32, 2⁻⁴⁸³ in float64, and of rounding.

    Parameters
    ----------
    A : ndarray
        float32 or float64.
    unit : float
        Of the size of A's largest entries.

    Returns
    -------
    ndarray
        A.
    """
    grain = A.dtype.type(np.ldexp(unit, -27 if A.dtype == np.float32 else -430))
    A += grain
    A -= grain
    return A


# ---------------------------------------------------------------- targets and weights


def check_targets(y, n_samples, *, name="y", owner="the estimator"):
    """Targets as a floating-point array of shape (n,) or (n, t).

    Parameters
    ----------
    y : array_like of shape (n,) or (n, t)
        Real numbers.
    n_samples : int
        Rows of X.
    name, owner : str
        How errors call the targets, and who wants them.

    Returns
    -------
    ndarray
        float32 or float64, not copied if it is one of them.

    Raises
    ------
    ValueError
        No targets, another length than X's, NaN or infinity, strings, complex numbers.
    TypeError
        A sparse matrix, or objects that are no numbers.
    """
    if y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None")
    if sp.issparse(y):
        raise TypeError(
            f"{name} is a sparse {y.format} matrix, but dense data is required here; use {name}.toarray()"
        )
    if not (type(y) is np.ndarray and y.dtype in _FLOATS):
        y = _to_float(y, name)
    if y.ndim not in (1, 2):
        raise ValueError(
            f"{name} should be a 1d array, or 2d with one column per target, got shape {y.shape}"
        )
    if y.shape[0] != n_samples:
        raise ValueError(
            "Found input variables with inconsistent numbers of samples: "
            f"X has {n_samples} rows, {name} has {y.shape[0]}"
        )
    if y.ndim == 2 and y.shape[1] == 0:
        raise ValueError(f"{name} has no columns (shape={y.shape}); give at least one target")
    if not _is_finite(y):
        index, count = _first_bad(y)
        got = "NaN" if np.isnan(y[index]) else f"infinity or a value too large for {y.dtype!r}"
        raise ValueError(
            f"Input {name} contains {got}.\n"
            f"The first is at {_place(index)}, {count} in all; drop those rows first"
        )
    return y


def check_weights(sample_weight, n_samples, *, name="sample_weight"):
    """Sample weights as float64 of shape (n,), or None where they are all one.

    Parameters
    ----------
    sample_weight : array_like of shape (n,), float or None
        A number stands for that weight everywhere. A weight ≤ 0 is allowed: such a row counts as absent.
    n_samples : int
        Rows of X.
    name : str
        How errors call it.

    Returns
    -------
    ndarray of shape (n,) or None

    Raises
    ------
    ValueError
        Another shape, NaN or infinity, or no weight that is positive.
    """
    if sample_weight is None:
        return None
    weights = _to_float(sample_weight, name).astype(np.float64, copy=False)
    if weights.ndim == 0:
        weights = np.full(n_samples, float(weights))
    if weights.ndim != 1:
        raise ValueError(f"{name} must be a 1D array with one weight per row of X, got shape {weights.shape}")
    if weights.shape[0] != n_samples:
        raise ValueError(f"{name} has {weights.shape[0]} entries, but X has {n_samples} rows")
    _check_finite(weights, name)
    if not np.any(weights > 0):
        raise ValueError(
            f"{name} has no positive entry (all are zero or less, and such a row counts as absent)"
        )
    return weights


def check_out(out, shape, dtype):
    """Refuse an ``out`` that cannot take a result.

    Parameters
    ----------
    out : ndarray
        What the caller gave; any strides will do.
    shape, dtype : tuple, dtype
        Those of the result.

    Raises
    ------
    ValueError
        If it is no array, has another shape or dtype, or is read-only.
    """
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype:
        got = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ValueError(f"out must be a {dtype} array of shape {shape}, got {got}")
    if not out.flags.writeable:
        raise ValueError("out is read-only; pass a writeable array")

"""Operands of other libraries beside traced values: data frames, sparse matrices.

What NumPy reads as an array (a pandas Series or DataFrame) is read as one. A sparse matrix of SciPy's takes
part in matrix products; anything else with it would be another sparse matrix, which cannot be traced.
"""

import numpy as np
import scipy.sparse

from mercer.autodiff.errors import trace_error
from mercer.autodiff.rules import Primitive, cast
from mercer.autodiff.trace import ERRORS, UFUNCS, Traced, apply


def _foreign(primitive, args, kwargs):
    """Apply a primitive to arguments of which some are arrays of another library."""
    if any(scipy.sparse.issparse(a) for a in args):
        return _sparse(primitive, *args)
    return apply(primitive, tuple(_read(a) for a in args), kwargs)


def _read(a):
    return np.asarray(a) if hasattr(a, "__array__") and not isinstance(a, Traced) else a


def _sparse(primitive, *args):
    """Return a product with a sparse matrix, of which no other function is traced."""
    product = primitive is UFUNCS[np.matmul]
    if primitive is UFUNCS[np.multiply]:  # the older class, as np.matrix, multiplies matrices by *
        product = any(scipy.sparse.isspmatrix(a) for a in args) and all(np.ndim(a) for a in args)
    if not product or any(np.ndim(a) != 2 for a in args if scipy.sparse.issparse(a)):
        raise trace_error(
            primitive.name,
            "with a sparse matrix beside a traced value only the products M @ x and x @ M are differentiated",
            "use M.toarray(), or write it with such products",
        )
    left, right = args
    if scipy.sparse.issparse(left):
        return _times(right, matrix=left.copy())  # the sweep must find it as it is now
    return np.transpose(_times(np.transpose(left), matrix=right.T.copy()))


def _times_columns(t, x, matrix):
    """Return matrix @ t, where t may have an axis of directions in front of those that x has."""
    if np.ndim(t) == np.ndim(x):
        return _times(t, matrix=matrix)
    rows = np.moveaxis(t, 0, -1)
    out = _times(np.reshape(rows, (matrix.shape[1], -1)), matrix=matrix)
    return np.moveaxis(np.reshape(out, (matrix.shape[0], *np.shape(rows)[1:])), -1, 0)


_times = Primitive(
    lambda x, *, matrix: matrix @ x,
    name="sparse matrix @ x",
    jvp=[lambda t, ans, x, *, matrix: _times_columns(t, x, matrix)],
    vjp=[lambda g, ans, x, *, matrix: cast(_times_columns(g, x, matrix.conj().T), x)],
    batched=True,
    linear=True,
)
ERRORS["foreign"] = _foreign

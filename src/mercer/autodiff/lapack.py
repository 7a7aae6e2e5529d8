"""LAPACK routines for rules, of the library that NumPy computes with.

NumPy's and SciPy's wheels bring an OpenBLAS each, and after each call the threads of one wait for a while on
cores that the other wants: where products by NumPy and factors by SciPy alternate, a likelihood of 500
points takes twice as long (two cores). So routines are looked up in NumPy's own library, whose drivers call
them, too. Where it has none of these names, the system has one BLAS for both, and SciPy's routines serve.
"""

import ctypes
from functools import cache

import numpy as np
import scipy.linalg.lapack as scipy_lapack

__all__ = ["getrf", "getri", "getrs", "trtrs"]

_LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}
_TRANS = b"NTC"


@cache
def _numpy_routine(name, letter):
    """Return a routine of NumPy's wheels, whose integers have 64 bits, or None."""
    try:
        library = ctypes.CDLL(np.linalg._umath_linalg.__file__)
    except (AttributeError, OSError):
        return None
    return getattr(library, f"scipy_{letter}{name}_64_", None)


def _routines(name, dtype):
    """Return NumPy's and SciPy's routine of a name; the first may be None."""
    letter = _LETTERS[dtype.char]
    return _numpy_routine(name, letter), getattr(scipy_lapack, letter + name)


def _call(routine, *args):
    """Call a Fortran routine with letters (bytes), numbers and arrays; return what it says of success."""
    info = ctypes.c_int64()
    passed = [
        x if type(x) is bytes
        else ctypes.c_void_p(x.ctypes.data) if type(x) is np.ndarray
        else ctypes.byref(ctypes.c_int64(x))
        for x in args
    ]  # fmt: skip
    lengths = [ctypes.c_size_t(1) for x in args if type(x) is bytes]
    routine(*passed, ctypes.byref(info), *lengths)
    return info.value


def getrf(a):
    """Return LU factors of a square matrix in one array, its pivots, and where a pivot is 0.

    Parameters
    ----------
    a : ndarray of shape (n, n)
        float32, float64, complex64 or complex128.

    Returns
    -------
    lu : ndarray of shape (n, n)
        In Fortran order.
    pivots : ndarray of shape (n,)
        Row i was exchanged with row pivots[i].
    singular : int
        From 1 on; 0: nowhere.
    """
    numpys, scipys = _routines("getrf", a.dtype)
    if numpys is None:
        return scipys(a)
    n = len(a)
    lu, pivots = np.array(a, order="F"), np.zeros(n, np.int64)
    singular = _call(numpys, n, n, lu, n, pivots)
    return lu, pivots - 1, singular


def getrs(lu, pivots, b, trans):
    """Return x of op(a) x = b by the factors of a.

    Parameters
    ----------
    lu, pivots : of `getrf`
    b : ndarray of shape (n, m)
        Of the type of lu.
    trans : {0, 1, 2}
        Whether op(a) is a, its transpose or its adjoint.
    """
    numpys, scipys = _routines("getrs", lu.dtype)
    if numpys is None:
        return scipys(lu, pivots, b, trans=trans)[0]
    n, m = b.shape
    x = np.array(b, order="F")
    _call(numpys, _TRANS[trans : trans + 1], n, m, lu, n, pivots + 1, x, n)
    return x


def getri(lu, pivots):
    """Return the inverse of a matrix by its factors, which are not singular.

    Parameters
    ----------
    lu, pivots : of `getrf`
    """
    numpys, scipys = _routines("getri", lu.dtype)
    n = len(lu)
    if numpys is None:
        return scipys(lu, pivots, lwork=64 * n)[0]
    inverse, room = lu.copy("F"), np.empty(64 * n, lu.dtype)
    _call(numpys, n, inverse, n, pivots + 1, room, room.size)
    return inverse


def trtrs(a, b, lower, trans, unit):
    """Return x of op(a) x = b for one triangle of a, and where its diagonal is 0.

    Parameters
    ----------
    a : ndarray of shape (n, n)
    b : ndarray of shape (n, m)
        Of the type of a.
    lower : bool
    trans : {0, 1, 2}
        Whether op(a) is a, its transpose or its adjoint.
    unit : bool
        Whether the diagonal is one, whatever a has there.

    Returns
    -------
    x : ndarray of shape (n, m)
    singular : int
        From 1 on; 0: nowhere.
    """
    if a.flags.c_contiguous and trans < 2:  # Fortran's order of the transpose
        a, lower, trans = a.T, not lower, 1 - trans
    numpys, scipys = _routines("trtrs", a.dtype)
    if numpys is None:
        return scipys(a, b, lower=lower, trans=trans, unitdiag=unit)
    n, m = b.shape
    x = np.array(b, order="F")
    letters = b"L" if lower else b"U", _TRANS[trans : trans + 1], b"U" if unit else b"N"
    return x, _call(numpys, *letters, n, m, np.asfortranarray(a), n, x, n)

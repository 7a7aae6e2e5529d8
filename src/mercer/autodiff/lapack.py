"""LAPACK routines for rules, of the library that NumPy computes with.

NumPy's and SciPy's wheels bring an OpenBLAS each, and after each call the threads of one wait for a while on
cores that the other wants: where products by NumPy and factors by SciPy alternate, a likelihood of 500
points takes twice as long (two cores). So routines are looked up in NumPy's own library, whose drivers call
them, too. Where it has none of these names, the system has one BLAS for both, and SciPy's routines serve.
"""

import ctypes
from functools import cache

import numpy as np
import scipy.linalg.blas as scipy_blas
import scipy.linalg.lapack as scipy_lapack

__all__ = ["getrf", "getri", "getrs", "trsm"]

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


def _routines(name, dtype, package=scipy_lapack):
    """Return NumPy's and SciPy's routine of a name; the first may be None."""
    letter = _LETTERS[dtype.char]
    return _numpy_routine(name, letter), getattr(package, letter + name)


def _call(routine, *args):
    """Call a Fortran routine with letters (bytes), whole numbers and arrays."""
    passed = [
        x if type(x) is bytes
        else ctypes.c_void_p(x.ctypes.data) if type(x) is np.ndarray
        else ctypes.byref(ctypes.c_int64(x))
        for x in args
    ]  # fmt: skip
    routine(*passed, *(ctypes.c_size_t(1) for x in args if type(x) is bytes))


def _checked(routine, *args):
    """Call a routine whose last argument says of success; return that."""
    info = np.zeros((), np.int64)
    _call(routine, *args, info)
    return int(info)


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
    singular = _checked(numpys, n, n, lu, n, pivots)
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
    _checked(numpys, _TRANS[trans : trans + 1], n, m, lu, n, pivots + 1, x, n)
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
    _checked(numpys, n, inverse, n, pivots + 1, room, room.size)
    return inverse


def trsm(a, b, lower, trans, unit):
    """Return x of op(a) x = b for one triangle of a, whose diagonal is not 0.

    Neither array is transposed: of rows one after another Fortran sees the transpose, and then solves
    xᵀ op(a)ᵀ = bᵀ.

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
        In the order of b.
    """
    a, flipped, leading = _as_fortran_reads(a)
    trans = trans if a.dtype.kind == "c" else min(trans, 1)
    # A conjugate without a transpose is not among BLAS's operations.
    right = flipped if trans == 2 else b.strides[1] < b.strides[0]
    letter = _TRANS[2:] if trans == 2 else _TRANS[:1] if (trans == 1) == (flipped != right) else _TRANS[1:2]
    numpys, scipys = _routines("trsm", a.dtype, scipy_blas)
    if numpys is None:
        a, x = a.T if flipped else a, b.T if right else b
        x = scipys(1, a, x, right, lower != flipped, _TRANS.index(letter), unit)
        return x.T if right else x
    x, one = np.array(b, order="C" if right else "F"), np.ones((), a.dtype)
    letters = b"R" if right else b"L", b"L" if lower != flipped else b"U", letter, b"U" if unit else b"N"
    m, n = x.shape[::-1] if right else x.shape
    _call(numpys, *letters, m, n, one, a, leading, x, m)
    return x


def _as_fortran_reads(a):
    """Return a square matrix, whether Fortran sees its transpose, and how far its columns are apart."""
    for flipped, (near, far) in enumerate((a.strides, a.strides[::-1])):
        if near == a.itemsize and far % a.itemsize == 0 and far >= len(a) * a.itemsize:
            return a, bool(flipped), far // a.itemsize
    return np.asfortranarray(a), False, len(a)

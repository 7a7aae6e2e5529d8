"""One table for rules of array functions: a line each, checked in every mode, chunk and type."""

from typing import NamedTuple

import numpy as np

import mercer.autodiff as ad
from mercer.testing import check_derivative


class Case(NamedTuple):
    """A function and a point where it is smooth; `complex` says whether it takes complex entries too."""

    name: str
    function: object
    args: tuple
    complex: bool = True


def points(*shapes, low=-2.0, high=2.0, seed=7):
    """Draw arrays of some shapes whose entries are all different, by 0.03 at least."""
    rng = np.random.default_rng(seed)
    size = sum(int(np.prod(s)) for s in shapes)
    values = rng.permutation(np.linspace(low, high, max(size, 2)))[:size] + 0.01 * rng.uniform(size=size)
    arrays, start = [], 0
    for shape in shapes:
        n = int(np.prod(shape))
        arrays.append(values[start : start + n].reshape(shape))
        start += n
    return tuple(arrays)


def flat(value):
    """Return a value or a tuple of values as one vector."""
    if isinstance(value, tuple | list):
        return np.concatenate([flat(v) for v in value])
    return np.ravel(value)


def check_case(case):
    """Value, derivatives of two orders, chunks of directions, single precision, complex entries."""
    check_value(case.function, case.args)
    check_derivative(case.function, *case.args)
    check_chunks(case.function, case.args)
    check_single_precision(case.function, case.args)
    if case.complex:
        rng = np.random.default_rng(3)
        turned = tuple(a + 1j * rng.permutation(a.ravel()).reshape(a.shape) for a in case.args)
        check_value(case.function, turned)
        check_derivative(case.function, *turned, order=1)


def check_value(f, args):
    """The value under both modes is NumPy's own, of the same shapes and type."""
    expected = f(*args)
    pushed = ad.jvp(f, args, tuple(np.ones_like(a) for a in args))[0]
    pulled = ad.vjp(f, *args)[0]
    for found in (pushed, pulled):
        compare(found, expected)


def compare(found, expected):
    """Compare values, or tuples of them, in shape, type and entries (to the rounding of sums)."""
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            compare(a, b)
        return
    assert np.shape(found) == np.shape(expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    eps = np.finfo(np.asarray(expected).dtype).eps if np.asarray(expected).dtype.kind in "fc" else 0
    np.testing.assert_allclose(found, expected, rtol=64 * eps, atol=64 * eps)


def check_chunks(f, args):
    """Jacobians by chunks in both modes are what single directions give."""
    for n, x in enumerate(args):
        if not x.size:
            continue

        def g(z, n=n):
            return flat(f(*args[:n], z, *args[n + 1 :]))

        units = np.eye(x.size).reshape(x.size, *x.shape)
        single = np.stack([ad.jvp(g, (x,), (u,))[1].ravel() for u in units], -1)
        for mode in ("forward", "reverse"):
            J = ad.jacobian(g, mode=mode)(x)
            np.testing.assert_allclose(J.reshape(single.shape), single, rtol=1e-12, atol=1e-12, err_msg=mode)


def check_single_precision(f, args):
    """What is float32 stays float32 in values, tangents and cotangents, and is near the float64 value."""
    narrow = tuple(a.astype(np.float32) for a in args)
    expected = f(*narrow)
    value, tangent = ad.jvp(f, narrow, tuple(np.ones_like(a) for a in narrow))
    value2, pullback = ad.vjp(f, *narrow)
    for found in (value, value2):
        compare(found, expected)
    compare_types(tangent, expected)
    ones = ones_of(expected)
    for g, a in zip(pullback(ones), narrow, strict=True):
        assert g.shape == a.shape
        assert g.dtype == a.dtype


def compare_types(tangent, value):
    """Compare the types of floating values with those of their tangents."""
    if isinstance(value, tuple | list):
        for t, v in zip(tangent, value, strict=True):
            compare_types(t, v)
    elif np.asarray(value).dtype.kind in "fc":
        assert np.asarray(tangent).dtype == np.asarray(value).dtype


def ones_of(value):
    """Return ones of the structure of a value."""
    if isinstance(value, tuple | list):
        return type(value)(ones_of(v) for v in value)
    return np.ones_like(value)[()]

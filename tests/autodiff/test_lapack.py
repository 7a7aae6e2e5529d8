"""LAPACK routines by NumPy's library and by SciPy's: solutions of equations, whichever serves."""

import itertools

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff import lapack

KINDS = [np.float32, np.float64, np.complex64, np.complex128]
TRANS = {0: lambda a: a, 1: np.transpose, 2: lambda a: np.conj(a.T)}


@pytest.fixture(params=["NumPy's", "SciPy's"])
def library(request, monkeypatch):
    if request.param == "SciPy's":
        monkeypatch.setattr(lapack, "_numpy_routine", lambda name, letter: None)
    elif lapack._numpy_routine("getrf", "d") is None:
        pytest.skip("NumPy has no BLAS of its own here")


def random(dtype, *shape):
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def check(found, exact, dtype):
    assert found.dtype == dtype
    scale = np.max(np.abs(exact), initial=0.0)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e4 * np.finfo(dtype).eps * scale)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("n", [1, 2, 7, 150])
def test_factors_solve_and_invert(library, dtype, n):
    a, b = random(dtype, n, n) + 2 * np.eye(n, dtype=dtype), random(dtype, n, 3)
    before = a.copy(), b.copy()
    lu, pivots, singular = lapack.getrf(a)
    assert not singular
    swapped = a.copy()
    for i, j in enumerate(pivots):
        swapped[[i, j]] = swapped[[j, i]]
    check((np.tril(lu, -1) + np.eye(n, dtype=dtype)) @ np.triu(lu), swapped, dtype)
    for trans, op in TRANS.items():
        check(op(a) @ lapack.getrs(lu, pivots, b, trans), b, dtype)
    check(a @ lapack.getri(lu, pivots), np.eye(n), dtype)
    np.testing.assert_array_equal(a, before[0])
    np.testing.assert_array_equal(b, before[1])


def test_a_zero_pivot_is_told(library):
    assert lapack.getrf(np.array([[1.0, 2.0], [2.0, 4.0]]))[2] == 2


LAYOUTS = {
    "rows": np.array,
    "columns": lambda x: np.array(x, order="F"),
    "a block of rows": lambda x: np.pad(x, 2)[2:-2, 2:-2],
    "a block of columns": lambda x: np.pad(x.T, 2)[2:-2, 2:-2].T,
    "every other": lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
    "backwards": lambda x: np.array(x[::-1, ::-1])[::-1, ::-1],
}


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("n", "m"), [(9, 4), (9, 1), (1, 3), (1, 1)])
def test_triangles_solve(library, dtype, layout, n, m):
    a, b = random(dtype, n, n) / 9 + np.eye(n, dtype=dtype), random(dtype, n, m)
    held = LAYOUTS[layout](a)
    for lower, unit, trans in itertools.product([True, False], [True, False], TRANS):
        part = np.tril(a) if lower else np.triu(a)
        if unit:
            np.fill_diagonal(part, 1)
        for right in LAYOUTS.values():
            given = right(b)
            check(TRANS[trans](part) @ lapack.trsm(held, given, lower, trans, unit), b, dtype)
            np.testing.assert_array_equal(given, b)
    np.testing.assert_array_equal(held, a)


@pytest.mark.parametrize("dtype", KINDS)
def test_values_are_numpys(dtype):
    """In double precision for single, too."""
    a, b = random(dtype, 40, 40), random(dtype, 40)
    (x, sign, log), _ = ad.vjp(lambda a, b: (np.linalg.solve(a, b), *np.linalg.slogdet(a)), a, b)
    eps = 64 * np.finfo(np.float64).eps * np.linalg.cond(a) + np.finfo(dtype).eps
    for found, exact in zip((x, sign, log), (np.linalg.solve(a, b), *np.linalg.slogdet(a)), strict=True):
        assert found.dtype == exact.dtype
        np.testing.assert_allclose(found, exact, rtol=0, atol=eps * np.max(np.abs(exact)))

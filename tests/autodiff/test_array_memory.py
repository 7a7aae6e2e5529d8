"""Arrays of traced runs, whose memory is kept for the next: they are as good as any, and outlive the run."""

import ctypes
import gc
import tracemalloc
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import numpy as np
import numpy._core._multiarray_umath
import pytest
from numpy._core.multiarray import get_handler_name

import mercer.autodiff as ad

#: Entries of float64 below what is kept, just from there on, and among those of huge pages.
SIZES = [100, 8191, 8192, 8193, 300_000, 1_000_000]

#: Bytes of a pointer.
SLOT = ctypes.sizeof(ctypes.c_void_p)


def in_a_run(make):
    """Return what `make` returns within a derivative."""
    found = []
    ad.grad(lambda s: found.append(make()) or s)(1.0)
    return found[0]


def test_the_handler_is_set_within_runs_alone():
    assert in_a_run(lambda: get_handler_name(np.empty(8192))) == "mercer"
    assert get_handler_name(np.empty(8192)) == "default_allocator"
    with pytest.raises(ZeroDivisionError):
        ad.grad(lambda s: s * (1 // 0))(1.0)
    assert get_handler_name(np.empty(8192)) == "default_allocator"
    assert in_a_run(lambda: in_a_run(lambda: get_handler_name(np.empty(1)))) == "mercer"


def numpys(at, kind):
    """Return an entry of NumPy's table for C."""
    capsule = ctypes.pythonapi.PyCapsule_GetPointer
    capsule.restype, capsule.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return kind.from_address(capsule(numpy._core._multiarray_umath._ARRAY_API, None) + at * SLOT)


def test_a_users_own_handler_stays():
    """Here a copy of NumPy's with another name."""
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(numpys(304, ctypes.c_void_p).value)
    plain = ctypes.py_object.from_address(numpys(306, ctypes.c_void_p).value).value
    pointer = ctypes.pythonapi.PyCapsule_GetPointer(plain, b"mem_handler")
    # a name of 127 bytes, a version of one, five pointers
    own = ctypes.create_string_buffer(ctypes.string_at(pointer, 128 + 5 * SLOT))
    own[:11] = b"the user's\0"
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = make(ctypes.addressof(own), b"mem_handler", None)
    before = set_handler(capsule)
    try:
        assert in_a_run(lambda: get_handler_name(np.empty(8192))) == "the user's"
        assert get_handler_name(np.empty(8192)) == "the user's"
    finally:
        set_handler(before)


@pytest.mark.parametrize("n", SIZES)
def test_zeros_are_zeros(n):
    """Also in memory that had something else."""
    for _ in range(3):
        in_a_run(lambda: np.full(n, 7.0)).sum()
        zeros = in_a_run(lambda: np.zeros(n))
        assert not zeros.any()
        zeros += 1


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", [1, *SIZES])
def test_arrays_are_resized_from_any_size_to_any(n, m):
    def resized():
        x = np.arange(float(n))
        x.resize(m, refcheck=False)
        return x

    for _ in range(2):  # again, with memory of the first
        x = in_a_run(resized)
        np.testing.assert_array_equal(
            x, np.resize(np.arange(float(n)), m) if m <= n else np.pad(np.arange(float(n)), (0, m - n))
        )
        x[:] = -1.0


def test_arrays_outlive_the_run_and_do_not_share_memory():
    kept = [in_a_run(lambda i=i, n=n: np.full(n, float(i))) for i in range(4) for n in SIZES]
    gc.collect()
    for at, x in enumerate(kept):
        assert np.all(x == at // len(SIZES))
        assert x.ctypes.data % 16 == 0


def test_threads_give_back_what_others_made():
    def work(seed):
        x = np.random.default_rng(seed).standard_normal(60_000)
        result = [ad.grad(lambda x: np.sum(np.sin(x) * np.exp(x)))(x) for _ in range(20)]
        return x, result

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda seed: copy_context().run(work, seed), range(16)))
    for x, results in done:
        for result in results:
            np.testing.assert_allclose(result, (np.cos(x) + np.sin(x)) * np.exp(x), rtol=1e-13, atol=1e-12)


def test_memory_is_seen_by_tracemalloc():
    tracemalloc.start()
    try:
        x = in_a_run(lambda: np.empty(500_000))
        assert tracemalloc.get_traced_memory()[0] >= x.nbytes
        del x
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_small_arrays_that_someone_still_has_are_left_alone():
    """Results of traced operations come back only once nothing refers to them: here something does."""
    x = np.linspace(0.1, 0.9, 7)
    doubles = ctypes.POINTER(ctypes.c_double)
    ways = (lambda a: a, lambda a: a[2:], memoryview, lambda a: a.ctypes.data_as(doubles))
    kept = []

    def f(x):
        for way in ways:
            x = np.sin(x)
            kept.append(way(ad.stop_gradient(x)))
        return np.sum(x)

    ad.grad(f)(x)
    for _ in range(3):  # others of the same shape, made and forgotten
        ad.grad(lambda x: np.sum(np.cos(np.cos(np.cos(np.cos(x))))))(x)
    whole, part, seen, pointer = kept
    sines = [x]
    for _ in ways:
        sines.append(np.sin(sines[-1]))
    np.testing.assert_array_equal(whole, sines[1])
    np.testing.assert_array_equal(part, sines[2][2:])
    np.testing.assert_array_equal(np.asarray(seen), sines[3])
    np.testing.assert_array_equal(pointer[:7], sines[4])


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.setflags(write=False),
        lambda a: setattr(a, "dtype", np.int64),
        lambda a: setattr(a, "shape", (1, 7)),
        lambda a: a.resize(3, refcheck=False),
        weakref.ref,
    ],
    ids=["read-only", "type", "shape", "size", "weak reference"],
)
def test_small_arrays_that_someone_changed_do_not_come_back(change):
    """Whatever was done to an array that a function got hold of, the next one of its shape is a fresh one."""
    left = []

    def f(x):
        y = np.sin(x)
        left.append(change(ad.stop_gradient(y)))
        return np.sum(np.cos(x))  # y is of no more use

    x = np.linspace(0.1, 0.9, 7)
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # NumPy would have no one set a shape
            gradient = ad.grad(f)(x)
        assert gradient.flags.writeable
        assert gradient.flags.owndata
        np.testing.assert_allclose(gradient, -np.sin(x), rtol=1e-15)
    assert all(reference is None or reference() is None for reference in left)


def test_small_arrays_that_are_kept_are_bounded():
    """However many shapes there were: a shelf of each 1/32 MiB, no more than 32."""

    def f(x):
        for _ in range(300):
            x = np.sin(x)
        return np.sum(x)

    for n in range(1, 200, 7):
        ad.grad(f)(np.linspace(0.1, 0.9, n))
    tracemalloc.start()
    try:
        for n in range(1, 200):
            ad.grad(f)(np.linspace(0.1, 0.9, n))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 4 << 20

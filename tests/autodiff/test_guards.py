"""What a caller changes after a traced value met it is found by the checksum, whatever the change is.

A function that uses a large plain array, and changes it before its derivative is swept, has an error for an
answer, never a wrong derivative.
"""

import itertools

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError
from mercer.autodiff.trace import checksum

N = 64


def hadamard():
    """Return entries ±1 whose signs cancel in every sum with weights that are a polynomial of low degree."""
    H = np.ones((1, 1))
    while len(H) < N:
        H = np.block([[H, H], [H, -H]])
    return H


def numbers(dtype=np.float64):
    return np.random.default_rng(0).standard_normal((N, N)).astype(dtype)


ARRAYS = {
    "numbers": numbers,
    "float32": lambda: np.tile(numbers(np.float32), (2, 1)),
    "signs": hadamard,
    "ones": lambda: np.ones((N, N)),
    "integers": lambda: np.arange(N * N).reshape(N, N),
    "F": lambda: np.asfortranarray(numbers()),
    "strided": lambda: np.repeat(numbers(), 2, axis=1)[:, ::2],
    "backwards": lambda: numbers()[::-1],
}


def swapped(A):
    A[[3, 40]] = A[[40, 3]]


def one_bit(A):
    A[-1, -1] = np.nextafter(A[-1, -1], 2 * A[-1, -1]) if A.dtype.kind == "f" else A[-1, -1] + 1


def two_signs(A):
    A[0, 0], A[1, 0] = -A[0, 0], -A[1, 0]


CHANGES = {
    "negated": lambda A: np.negative(A, out=A),
    "two signs": two_signs,
    "scaled": lambda A: np.multiply(A, 2, out=A),
    "an entry's last bit": one_bit,
    "sorted": lambda A: A.sort(axis=0),
    "rows exchanged": swapped,
    "set to one number": lambda A: A.fill(3),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("array", ARRAYS)
def test_every_change_is_found(array, change):
    A = ARRAYS[array]()
    before, plain = A.copy(), np.linspace(1, 2, N).astype(A.dtype if A.dtype.kind == "f" else float)

    def f(w):
        value = np.sum((A @ w) ** 2)
        CHANGES[change](A)
        return value

    CHANGES[change](A)
    differs = not np.array_equal(A, before)
    A[...] = before
    if differs:
        with pytest.raises(TraceError, match="changed in place"):
            ad.grad(f)(plain)
    else:
        np.testing.assert_array_equal(ad.grad(f)(plain), 2 * (A @ plain) @ A)


def test_what_is_changed_back_between_two_uses_is_found():
    """The second product used other numbers than the array has at the sweep."""
    A = numbers()

    def f(w):
        first = A @ w
        A[0] += 1.0
        second = A @ w
        A[0] -= 1.0
        return np.sum(first * second)

    A[0] = 0.25  # so that the sum and the difference are exact
    with pytest.raises(TraceError, match="changed in place"):
        ad.grad(f)(np.ones(N))


def test_an_array_may_be_used_again_and_changed_afterwards():
    A = numbers()
    w = np.linspace(0.1, 1.0, N)
    expected = 2 * (A.T @ (2 * (A @ w)))
    np.testing.assert_allclose(ad.grad(lambda w: np.sum(2 * (A @ w) * (A @ w)))(w), expected, rtol=1e-13)
    A[...] = 1.0
    np.testing.assert_allclose(
        ad.grad(lambda w: np.sum(A @ w))(w), np.full(N, float(N)), rtol=4 * np.finfo(float).eps
    )


def test_every_bit_counts():
    """Of memory of any length; and two signs, which a product with an odd number lets cancel."""
    rng = np.random.default_rng(0)
    for size in (1, 7, 8, 9, 127, 128, 129, 511, 512, 513, 1100):
        x = rng.integers(0, 256, size, dtype=np.uint8)
        before = checksum(x)
        assert checksum(x.copy()) == before
        seen = {before}
        for bit in range(8 * size):
            x[bit // 8] ^= 1 << bit % 8
            seen.add(checksum(x))
            x[bit // 8] ^= 1 << bit % 8
        tops = [i for i in range(size) if i % 8 == 7]  # the signs of float64
        for i, j in itertools.combinations(tops, 2):
            x[[i, j]] ^= 128
            seen.add(checksum(x))
            x[[i, j]] ^= 128
        assert len(seen) == 1 + 8 * size + len(tops) * (len(tops) - 1) // 2
        assert checksum(x) == before

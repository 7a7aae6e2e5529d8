"""Compiled broadcasting, sums over axes and basic indexing give what NumPy and the rules give.

Values are NumPy's bit for bit. Derivatives of all orders equal those of extended precision, which takes the
rules' way through NumPy.
"""

import itertools

import numpy as np
import pytest

import mercer.autodiff as ad

MODES = ("forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")
#: Shapes that are broadcast together: axes that both have, that one has, ones anywhere, none, empty ones.
PAIRS = [
    ((3, 1, 2), (1, 4, 2)),
    ((4,), (3, 1)),
    ((3, 4), (4,)),
    ((3, 4), (1, 4)),
    ((3, 1), (3, 4)),
    ((2, 3, 4), (3, 1)),
    ((2, 1, 3, 1), (5, 1, 4)),
    ((2, 1, 1, 3), (4, 5, 1)),
    ((1, 1), (3,)),
    ((1, 5), (5,)),
    ((1, 1), (1,)),
    ((3, 1), (0,)),
    ((0, 3), (1, 3)),
    ((), (2, 3)),
    ((2, 1, 2, 1, 2, 1), (1, 3, 1, 3, 1, 3)),
    ((150, 1), (150,)),  # longer than the loops are for
]
OPERATIONS = [np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.minimum]
INDICES = [
    np.s_[:, None, :], np.s_[None], np.s_[None, :, :], np.s_[...], np.s_[..., None], np.s_[:], np.s_[()],
    np.s_[0], np.s_[-1], np.s_[1, 2], np.s_[1:, ::2], np.s_[::-1], np.s_[:, None, 1], np.s_[2:2], np.int64(1),
    np.s_[..., 1:], np.s_[-2:, None, ::-1],
]  # fmt: skip


def numbers(shape, seed):
    return np.asarray(np.random.default_rng(seed).uniform(0.2, 1.8, shape))


def wide(x):
    return x.astype(np.longdouble)


def check(f, x, v):
    """Compare the value, the gradient and products with the Hessian with those of extended precision."""
    value, gradient = ad.value_and_grad(f)(x)
    assert value == f(x)
    expected = ad.grad(f)(wide(x))
    scale = 1 + np.abs(expected).max(initial=0)
    assert gradient.dtype == np.float64
    assert gradient.shape == x.shape
    assert np.abs(gradient - expected).max(initial=0) < 1e-13 * scale
    assert abs(ad.jvp(f, (x,), (v,))[1] - np.sum(v * expected)) < 1e-13 * scale * max(1, x.size)
    second = ad.hvp(f, wide(x), wide(v))
    scale = 1 + np.abs(second).max(initial=0)
    for mode in MODES:
        assert np.abs(ad.hvp(f, x, v, mode) - second).max(initial=0) < 1e-12 * scale
    if x.size < 30:
        for mode in ("forward", "reverse"):
            assert np.abs(ad.jacobian(f, mode=mode)(x) - expected).max(initial=0) < 1e-13 * (1 + scale)


@pytest.mark.parametrize("shapes", PAIRS, ids=str)
@pytest.mark.parametrize("ufunc", OPERATIONS, ids=lambda f: f.__name__)
def test_broadcast(ufunc, shapes):
    for one, two in (shapes, shapes[::-1]):
        x, y = numbers(one, 1), numbers(two, 2)
        expected = ufunc(x, y)
        value, pull = ad.vjp(ufunc, x, y)
        np.testing.assert_array_equal(value, expected, strict=True)
        g = numbers(expected.shape, 3)
        pulled = pull(g)
        assert [p.shape for p in pulled] == [one, two]
        assert not np.shares_memory(*pulled)
        np.testing.assert_array_equal(g, numbers(expected.shape, 3))
        w = numbers(expected.shape, 4)
        check(lambda x, y=y, w=w: np.sum(w * np.sin(ufunc(x * x, y))), x, numbers(one, 5))
        check(lambda y, x=x, w=w: np.sum(w * np.sin(ufunc(x, y * y))), y, numbers(two, 6))
        check(lambda x, s=two, w=w: np.sum(w * np.sin(ufunc(x, np.ones(s) * np.sum(x)))), x, numbers(one, 7))


def test_broadcast_says_what_numpy_says():
    x, y = np.ones((3, 1)), np.array([1.0, 0.0])
    with pytest.raises(FloatingPointError, match="divide by zero"):
        ad.vjp(np.true_divide, x, y)
    with pytest.raises(ValueError, match="could not be broadcast"):
        ad.vjp(np.add, np.ones((3, 2)), np.ones((2, 3)))
    with np.errstate(all="ignore"):
        expected = np.true_divide(x, y)
        np.testing.assert_array_equal(ad.vjp(np.true_divide, x, y)[0], expected)


@pytest.mark.parametrize("keepdims", [False, True])
def test_sums(keepdims):
    x, v = numbers((2, 3, 1, 4), 1), numbers((2, 3, 1, 4), 2)
    axes = [None, *(c for n in range(5) for c in itertools.combinations(range(4), n)), 0, -1, (-1, 0)]
    for axis in axes:
        expected = np.sum(x, axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(
            ad.vjp(lambda x, axis=axis: np.sum(x, axis=axis, keepdims=keepdims), x)[0], expected, strict=True
        )
        w = numbers(expected.shape, 3)
        check(lambda x, axis=axis, w=w: np.sum(w * np.sin(np.sum(x * x, axis=axis, keepdims=keepdims))), x, v)
    for shape in ((0, 3), (3, 0), (0,), (1,)):
        for axis in (None, 0):
            check(
                lambda x, axis=axis: np.sum(np.sin(np.sum(x, axis=axis))),
                numbers(shape, 1),
                numbers(shape, 2),
            )


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_basic_indexing(index):
    x, v = numbers((3, 4), 1), numbers((3, 4), 2)
    value = ad.vjp(lambda x: x[index], x)[0]
    np.testing.assert_array_equal(value, x[index], strict=True)
    w = numbers(np.shape(value), 3)
    check(lambda x: np.sum(w * np.sin(x[index])), x, v)
    check(lambda x: np.sum(w * x[index] * x[index]) + np.sum((x * x)[index]) * np.sum(x), x, v)


def test_cotangents_of_views_are_their_own():
    """Two arguments to which one cotangent flows through reshapes do not share it."""
    g = numbers((1, 3), 1)
    x, y = numbers((1, 3), 2), numbers((3,), 3)
    _, pull = ad.vjp(lambda x, y: (x + y) + np.sin(y), x, y)
    to_x, to_y = pull(g)
    np.testing.assert_array_equal(to_x, g)
    np.testing.assert_allclose(to_y, g[0] * (1 + np.cos(y)), rtol=1e-15)
    _, pull = ad.vjp(lambda x: x[None] + x[:][None], x)
    np.testing.assert_array_equal(pull(g[None])[0], 2 * g)
    np.testing.assert_array_equal(g, numbers((1, 3), 1))


def test_cotangents_in_other_layouts():
    """A transposed or read-only cotangent is put back, too, when a loop reads entry after entry."""
    x = numbers((3, 4), 1)
    w = numbers((3, 4), 2)

    def f(x):
        rows = [x[i] * x[i] for i in range(3)]
        return (
            np.sum(np.stack(rows).T * w.T)
            + np.sum(x[:, 1:].T * w[:, 1:].T)
            + np.sum(x[slice(np.array(1), 3)])
        )

    check(f, x, numbers((3, 4), 3))


def test_views_see_assignments():
    def f(x):
        y = x * 1.0
        rows, column = y[:, None], y[:2]
        y[0] = x[1] * x[2]
        column[1] = x[0] ** 3
        return np.sum(np.sin(rows))

    def plainly(x):
        return np.sin(x[1] * x[2]) + np.sin(x[0] ** 3) + np.sin(x[2])

    x, v = numbers(3, 1), numbers(3, 2)
    np.testing.assert_allclose(ad.grad(f)(x), ad.grad(plainly)(x), rtol=1e-14)
    for mode in MODES:
        np.testing.assert_allclose(ad.hvp(f, x, v, mode), ad.hvp(plainly, x, v), rtol=1e-13)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 9])
def test_sums_over_a_short_last_axis_are_numpys(n):
    x = np.random.default_rng(n).standard_normal((5, 4, n)) * 10.0 ** np.arange(4)[:, None]
    x[0, 0] = -0.0
    t = x[::-1].copy()
    for axis, keepdims in ((2, False), (-1, False), (2, True)):
        value, tangent = ad.jvp(lambda x: np.sum(x, axis=axis, keepdims=keepdims), (x,), (t,))  # noqa: B023
        for found, entries in ((value, x), (tangent, t)):
            exact = np.sum(entries, axis=axis, keepdims=keepdims)
            assert found.shape == exact.shape
            assert found.tobytes() == exact.tobytes()


def test_numpy_says_of_a_short_sum_that_it_overflows():
    x = np.full((2, 3), 1e308)
    with pytest.raises(FloatingPointError, match="overflow"):
        ad.jvp(lambda x: np.sum(x, axis=1), (x,), (np.ones((2, 3)),))

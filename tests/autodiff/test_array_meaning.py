"""Copies, views, parts and exchanges of traced arrays mean what NumPy's mean, or are refused."""

import operator
import random

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError
from mercer.testing import check_derivative

LAYOUTS = {
    "C": lambda x: x * 1,
    "transposed": lambda x: (x * 1).T,
    "strided": lambda x: (x * 1)[:, ::2],
    "row": lambda x: (x * 1)[0],
    "column": lambda x: (x * 1)[:, 0],
    "number": lambda x: (x * 1)[0, 0],
    "broadcast": lambda x: np.broadcast_to((x * 1)[0], (2, 3)),
    "flat": lambda x: (x * 1).reshape(-1),
    "F": lambda x: np.copy(x * 1, order="F"),
}
CONVERSIONS = {
    **{
        name: getattr(np, name)
        for name in ("asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "array", "require")
    },
    **{
        f"{name} {dtype and dtype.__name__} {order}": lambda x, name=name, dtype=dtype, order=order, **like: (
            np.array(x, dtype, order=order, copy=name, **like)
        )
        for name in (None, True, False)
        for dtype in (None, np.float64, np.float32)
        for order in "KACF"
    },
    **{
        f"require {needs}": lambda x, needs=needs, **like: np.require(x, None, needs, **like)
        for needs in ("C", "F", "W", "O", "CO", "FA")
    },
    "ndmin": lambda x, **like: np.array(x, ndmin=3, **like),
    "ndmin of a view": lambda x, **like: np.array(x, ndmin=3, copy=None, **like),
}


def _written(x, layout, convert, **like):
    """Convert an array, write into the result, and return the entries and strides that both then have."""
    a = layout(x)
    try:
        b = convert(a, **like)
        b[...] = 7 + x[0, 0]
    except ValueError as error:
        b = np.zeros(0) if isinstance(error, TraceError) or "read-only" in str(error) else np.zeros(1)
    return [
        (
            np.array(ad.stop_gradient(part)),
            [s for s, n in zip(part.strides, part.shape, strict=True) if n > 1],
        )
        for part in (a, b)
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_share_memory_as_in_numpy(name, layout):
    x, seen = np.arange(6.0).reshape(2, 3), []
    ad.vjp(lambda x: seen.extend(_written(x, LAYOUTS[layout], CONVERSIONS[name], like=x)), x)
    expected = _written(x, LAYOUTS[layout], CONVERSIONS[name])
    for (entries, strides), (want, strides_wanted) in zip(seen, expected, strict=True):
        np.testing.assert_array_equal(entries, want)
        assert strides == strides_wanted


@pytest.mark.parametrize(
    "copied",
    [
        lambda x: np.copy(x.T, order="F").ravel("K"),
        lambda x: x.T.copy().ravel("K"),
        lambda x: x.copy("F").ravel("K"),
        lambda x: np.copy(x.T).ravel("K"),
        lambda x: x.T.astype(np.float32).ravel("K"),
        lambda x: x.astype(np.float32, order="F").ravel("K"),
        lambda x: (np.zeros_like(x.T) + x.T).ravel("A"),
        lambda x: np.full_like(x, x, order="F").ravel("K"),
        lambda x: np.asfortranarray(x, like=x).reshape(-1, order="A"),
    ],
)
def test_copies_have_numpys_layout(copied):
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(ad.vjp(copied, x)[0], copied(x))


@pytest.mark.filterwarnings("default:you are shuffling")
@pytest.mark.parametrize(
    "shuffle",
    [
        lambda x: np.random.default_rng(0).shuffle(x),
        lambda x: np.random.RandomState(0).shuffle(x),
        lambda x: np.random.default_rng(0).shuffle(x[1:]),
        lambda x: np.random.default_rng(0).shuffle(x.reshape(3, 2, 1)),
    ],
)
def test_rows_are_not_shuffled_onto_each_other(shuffle):
    with pytest.warns(UserWarning, match="Traced"), pytest.raises(TraceError, match="permutation"):
        ad.grad(lambda x: shuffle(x) or np.sum(x))(np.arange(6.0).reshape(3, 2))


@pytest.mark.filterwarnings("default:you are shuffling")
def test_numbers_are_shuffled():
    def f(x):
        y = np.copy(x)
        np.random.default_rng(5).shuffle(y)
        return np.sum(y * np.arange(6.0))

    order = np.arange(6)
    np.random.default_rng(5).shuffle(order)
    with pytest.warns(UserWarning, match="Traced"):
        np.testing.assert_array_equal(ad.grad(f)(np.ones(6)), np.argsort(order))


@pytest.mark.parametrize(
    ("draw", "remedy"),
    [
        (lambda x: np.random.default_rng(0).permutation(x), r"x\[rng.permutation\(len\(x\)\)\]"),
        (lambda x: np.random.default_rng(0).permuted(x, axis=0), "take_along_axis"),
        (lambda x: np.random.default_rng(0).choice(x, 2), r"x\[rng.choice"),
    ],
)
def test_generators_say_to_draw_an_order(draw, remedy):
    with pytest.raises(TraceError, match=remedy):
        ad.grad(lambda x: np.sum(draw(x)))(np.ones((3, 2)))


def _exchanged(x):
    x[0], x[1] = x[1], x[0]  # of views: NumPy gives the second row twice
    return x


def _exchanged_by_calls(x):
    operator.setitem(x, 0, x[1])
    x.__setitem__(2, x[1])
    return x


def _exchanged_slices(x):
    x[:1], x[1:2] = x[1:2], x[:1]
    return x


def _exchanged_by_random(x):
    random.Random(0).shuffle(x)  # Python's own, of a list: rows are views here, too
    return x


@pytest.mark.parametrize(
    "program", [_exchanged, _exchanged_by_calls, _exchanged_slices, _exchanged_by_random]
)
def test_views_may_be_assigned_to_their_array(program):
    x, weights = np.arange(6.0).reshape(3, 2), np.arange(1.0, 7.0).reshape(3, 2)
    f = lambda x: np.sum(weights * program(np.copy(x)) ** 2)  # noqa: E731
    assert ad.value_and_grad(f)(x)[0] == f(x)
    check_derivative(f, x)


# -- parts of complex arrays ----------------------------------------------------------------------------


def _real_assigned(z):
    z.real = 2.0 * z.real * z.imag
    return z


def _imaginary_assigned(z):
    z.imag = np.sin(z.real)
    return z


def _real_written(z):
    z.real[1:] = z.imag[:-1] ** 2
    z.imag[0] = 3.0
    return z


def _real_in_place(z):
    z.real *= z.imag
    z.imag += 1.0
    return z


def _part_of_a_view(z):
    z[::2].real = 0.5
    z[1:].imag = z[:-1].real
    return z


def _number_for_all(z):
    z.real = z[0].imag
    return z


@pytest.mark.parametrize(
    "program",
    [_real_assigned, _imaginary_assigned, _real_written, _real_in_place, _part_of_a_view, _number_for_all],
)
def test_parts_of_complex_arrays_are_assigned_to(program):
    def f(x, y):
        z = program(x + 1j * y)
        return np.stack([np.real(z * z), np.imag(z * z)])

    x, y = np.array([0.5, -1.0, 2.0]), np.array([1.5, 0.3, -0.7])
    np.testing.assert_array_equal(ad.vjp(f, x, y)[0], f(x, y))
    check_derivative(f, x, y)


def test_infinite_parts_stay():
    z = np.array([complex(1.0, np.inf), 2.0])
    f = lambda z: _set_real(np.copy(z), np.array([3.0, 4.0]))  # noqa: E731
    np.testing.assert_array_equal(ad.vjp(f, z)[0], [complex(3.0, np.inf), 4.0])


def _set_real(z, value):
    z.real = value
    return z


def test_real_arrays_have_no_imaginary_part_to_set():
    def f(x):
        x.imag = 1.0
        return np.sum(x)

    with pytest.raises(TypeError, match="does not have imaginary part"):
        ad.grad(f)(np.ones(2))
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum(_set_real(x * 1.0, x * x)))(np.ones(2)), 2.0)


def test_the_shape_is_not_assigned_to():
    def f(x):
        x.shape = (4,)
        return np.sum(x)

    with pytest.raises(TraceError, match=r"x = x\.reshape"):
        ad.grad(f)(np.ones((2, 2)))


@pytest.mark.parametrize("jacobian", [ad.grad, lambda f: ad.jacobian(f, mode="forward")])
def test_a_plain_array_does_not_take_traced_values_in_place(jacobian):
    def subtracted(x):
        W = np.ones((3, 3))
        W -= x
        return np.sum(W)

    def multiplied(x):
        W = np.ones((3, 3))
        W @= np.outer(x, x)
        return np.sum(W)

    for f, name in ((subtracted, "subtract"), (multiplied, "matmul")):
        with pytest.raises(
            TraceError, match=rf"in-place np\.{name}.*W = W - x.*zeros_like.*np\.array\(W, like=x\)"
        ):
            jacobian(f)(np.ones(3))


def test_generalised_ufuncs_take_axes():
    a, b = np.random.default_rng(0).standard_normal((2, 3, 4)), np.arange(24.0).reshape(4, 3, 2)
    f = lambda a: np.matmul(a, b, axes=[(2, 1), (1, 0), (0, 2)])  # noqa: E731
    np.testing.assert_array_equal(ad.vjp(f, a[:, :, :2])[0].shape, f(a[:, :, :2]).shape)


@pytest.mark.parametrize("put", [lambda x, v: x.put([0, 2], v), lambda x, v: np.put(x, [0, 2], v)])
def test_lists_of_traced_values_are_put(put):
    def f(x):
        y = np.copy(x)
        put(y, [x[1] ** 2, 3.0 * x[2]])
        return y * y

    check_derivative(f, np.array([1.0, -2.0, 0.5]))


@pytest.mark.parametrize(
    "f",
    [
        lambda w: np.bincount([0, 2, 2, 1], w),
        lambda w: np.average(np.arange(1.0, 5.0), weights=w),
        lambda w: np.average(w, weights=np.array([0.1, 0.2, 0.3, 0.7])),
        lambda w: np.average(w, weights=[1, 2, 3, 4]),
    ],
)
def test_single_precision_weights_count_as_numpys(f):
    w = np.float32([0.1, 0.7, 0.3, 1e-3])
    value = ad.vjp(f, w)[0]
    np.testing.assert_array_equal(value, f(w))
    assert value.dtype == f(w).dtype
    assert ad.grad(lambda w: np.sum(f(w)))(w).dtype == np.float32


def test_covariances_and_powers_are_numpys_to_the_bit():
    x = np.random.default_rng(4).standard_normal((7, 7))
    for f in (np.cov, np.corrcoef, lambda x: np.linalg.matrix_power(x, 3)):
        np.testing.assert_array_equal(ad.vjp(f, x)[0], f(x))


def test_numbers_of_complex_parts_have_numpys_cotangents():
    gradient = ad.grad(lambda x: 2.0 * (x + 1j * x)[0].imag)(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(gradient, [2.0, 0.0])

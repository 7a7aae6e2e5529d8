"""The compiled fast path gives what the plain one gives: NumPy's values bit for bit, the rules' slopes.

Each operation of the compiled loops, over shapes, layouts, types and the lengths at which the path changes.
"""

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.trace import OPCODES, UFUNCS

#: At vectors' ends, at those of blocks of slopes (128), and on both sides of where NumPy's loops take over
#: (96 for libm, 16384 for the rest).
SIZES = (0, 1, 7, 8, 9, 63, 64, 65, 95, 96, 97, 127, 128, 129, 16383, 16384, 16385)
UNARY = [f for f in OPCODES if isinstance(f, np.ufunc) and f.nin == 1]
BINARY = [np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.minimum, np.power]
EXPONENTS = (0, 1, 2, 3, -1, -2, 0.0, 1.0, 2.0, 3.0, 0.5, -0.5, 1.5, np.float64(2.5), 2**40)
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -1e-310, 1e-160, 1e160, 1e308, -1e308, 1.0, 800.0]
)
MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")


def strided(x):
    """Return the same entries, every second one in memory."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def read_only(x):
    """Return a copy that cannot be written to."""
    x = x.copy()
    x.flags.writeable = False
    return x


def misaligned(x):
    """Return the same entries one byte off."""
    out = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


LAYOUTS = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "strided": strided,
    "backwards": lambda x: x[::-1].copy()[::-1],
    "read-only": read_only,
    "byte-swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "misaligned": misaligned,
}
SHAPES = ((), (1,), (5,), (1, 5), (3, 5), (2, 1, 5), (0, 5))


def points(shape, seed=0, dtype=np.float64):
    """Return numbers at which every operation is smooth and none is 1."""
    return np.asarray(np.random.default_rng(seed).uniform(0.15, 1.9, shape).astype(dtype))


def powers_of_two(shape, dtype=np.float64, seed=5):
    """Return directions whose product with a slope is exact."""
    rng = np.random.default_rng(seed)
    return np.asarray((rng.choice([-1.0, 1.0], shape) * 2.0 ** rng.integers(-3, 4, shape)).astype(dtype))


def same(a, b):
    """Assert that values agree bit for bit (NaN for NaN), in type and in kind.

    A tape sees a copy of its input, whose values NumPy rounds in another way than those of a reversed array
    where it has vector functions (AVX-512).
    """
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=")
    np.testing.assert_array_equal(a, b, strict=False)
    assert a.shape == b.shape
    number = ~np.isnan(b)
    assert (np.signbit(a) == np.signbit(b))[number].all()


def within(a, b, ulps):
    """Assert that a is within some units in the last place of b."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    assert a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=")
    eps = np.finfo(b.dtype.newbyteorder("=")).eps
    assert (np.abs(a - b) <= ulps * eps * np.abs(b)).all()


def partial(ufunc, which, ans, *args):
    """Return the rule's slope as NumPy computes it, of the answer's shape."""
    rule = UFUNCS[ufunc]
    if rule.partials is None:
        return np.sign(args[0]) + 0 * ans  # np.absolute, whose rule is for complex numbers, too
    slope = rule.partials[which]
    slope = slope(ans, *args) if callable(slope) else np.full(np.shape(ans), slope)
    return np.broadcast_to(slope, np.shape(ans)).astype(np.asarray(ans).dtype)


def check_unary(f, x, slope, ulps=2):
    """Compare values and slopes of one function of one argument in both modes, alone and in chunks."""
    ans, t = f(x), powers_of_two(x.shape, x.dtype.newbyteorder("="))
    value, tangent = ad.jvp(f, (x,), (t,))
    same(value, ans)
    within(tangent, t * slope, ulps)
    value, pull = ad.vjp(f, x)
    same(value, f(x.copy()))
    within(pull(t)[0], t * slope, ulps)
    # The sweep's own cotangent is multiplied where it stands.
    chain = ad.vjp(lambda x: f(x * 1) * 2 + f(x * 1) * 2, x)[1](t)[0]
    within(chain, 4 * t * slope, ulps + 1)
    if 0 < x.size <= 10:
        expected = np.zeros(x.shape * 2, t.dtype)
        expected.reshape(x.size, x.size)[range(x.size), range(x.size)] = np.ravel(slope)
        for mode in ("forward", "reverse"):
            for size in (None, 1, 2):
                within(ad.jacobian(f, mode, chunk_size=size)(x), expected, ulps)


@pytest.mark.parametrize("ufunc", UNARY, ids=lambda f: f.__name__)
def test_unary_lengths(ufunc):
    for n in SIZES:
        x = points(n, n)
        check_unary(ufunc, x, partial(ufunc, 0, ufunc(x), x))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.longdouble], ids=lambda d: d.__name__)
@pytest.mark.parametrize("ufunc", UNARY, ids=lambda f: f.__name__)
def test_unary_shapes_layouts_types(ufunc, dtype):
    for shape in SHAPES:
        for layout, change in LAYOUTS.items():
            if layout != "C" and not shape:
                continue
            x = change(points(shape, len(shape), dtype))
            check_unary(ufunc, x, partial(ufunc, 0, ufunc(x), x), 2 if dtype == np.float64 else 4)
    number = dtype(0.7)
    check_unary(ufunc, number, partial(ufunc, 0, ufunc(number), number), 2 if dtype == np.float64 else 4)


@pytest.mark.parametrize("c", EXPONENTS, ids=repr)
def test_powers_of_a_number(c):
    def f(x):
        return np.power(x, c)

    for n in SIZES:
        # A large power that neither overflows nor vanishes.
        x = points(n, n) if c != 2**40 else 1 + points(n, n) * 2.0**-42
        # NumPy's and the C library's pow differ by less than 2 ulp; the large power's slope has c − 1 for c.
        check_unary(f, x, partial(np.power, 0, f(x), x, c), 4)
    x = points((3, 5)).astype(np.float32)
    if c != 2**40 and not isinstance(c, np.float64):
        check_unary(f, x, partial(np.power, 0, f(x), x, c), 8)


def operands(n):
    """Return pairs of operands whose broadcasting or kind differs."""
    x, y = points((n,), 1), points((n,), 2)
    yield from ((x, y), (x, 1.5), (0.5, x), (x, 2), (2, x), (x, np.float64(0.7)), (np.asarray(0.7), x))
    yield from ((x, x.copy()), (x, points((1,), 3)), (points((1,), 3), x))  # ties; a row of one
    if n < 100:
        yield from ((x, points((3, n), 3)), (points((3, 1), 3), x), (x, points((1, n), 3)))
        yield from ((x, y.astype(np.float32)), (x, np.arange(1, n + 1)), (x, True), (x, strided(y)))
        yield from ((x.astype(np.float32), y.astype(np.float32)), (x.astype(np.longdouble), y))
        yield from ((x, y.astype(y.dtype.newbyteorder())), (x[::-1], y), (misaligned(x), y))


def summed(t, shape):
    """Return the sum over the copies that broadcasting made."""
    t = np.sum(t, axis=tuple(range(t.ndim - len(shape))))
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and t.shape[i] != 1)
    return np.sum(t, axis=axes, keepdims=True)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("ufunc", BINARY, ids=lambda f: f.__name__)
def test_binary(ufunc, n):
    for args in operands(n):
        ans = ufunc(*args)
        g = powers_of_two(ans.shape, ans.dtype.newbyteorder("="))
        for which in range(2):
            x = args[which]
            if np.asarray(x).dtype.kind != "f":
                continue

            def f(x, which=which, args=args):
                return ufunc(x, args[1]) if which == 0 else ufunc(args[0], x)

            slope = partial(ufunc, which, ans, *args)
            # Sums of n products may be taken in another order; the entries of t are at most 8.
            bound = 16 * (8 + n) * np.finfo(ans.dtype).eps * (1 + np.abs(slope).max(initial=0))
            value, pull = ad.vjp(f, x)
            same(value, f(np.copy(x)))
            got = pull(g)[0]
            assert np.asarray(got).dtype.newbyteorder("=") == np.asarray(x).dtype.newbyteorder("=")
            expected = summed(g * slope, np.shape(x))
            loose = bound if got.dtype == ans.dtype else 1e-5 * (1 + np.abs(expected))
            assert (np.abs(got - expected) <= loose).all()
            t = powers_of_two(np.shape(x), np.asarray(x).dtype.newbyteorder("="))
            value, tangent = ad.jvp(f, (x,), (t,))
            same(value, ans)
            within(tangent, np.broadcast_to((t * slope).astype(ans.dtype), ans.shape), 4)
        if np.asarray(args[0]).dtype.kind == np.asarray(args[1]).dtype.kind == "f":
            check_both(ufunc, args, ans, g)


def check_both(ufunc, args, ans, g):
    """Compare the two modes with both arguments varying, alone and in chunks."""
    t = [powers_of_two(np.shape(x), np.asarray(x).dtype.newbyteorder("="), i) for i, x in enumerate(args)]
    pulled = ad.vjp(ufunc, *args)[1](g)
    _, pushed = ad.jvp(ufunc, args, t)
    left = np.sum(np.multiply(g, pushed, dtype=np.longdouble))
    terms = [np.multiply(p, d, dtype=np.longdouble) for p, d in zip(pulled, t, strict=True)]
    scale = 1 + sum(np.abs(term).sum() for term in terms) + np.abs(g * pushed).sum()
    eps = np.finfo(min(np.asarray(x).dtype.newbyteorder("=") for x in args)).eps
    assert abs(left - sum(term.sum() for term in terms)) <= 30 * eps * scale
    if 0 < ans.size <= 27:
        single = ad.jacobian(ufunc, "forward", (0, 1), chunk_size=1)(*args)
        for mode in ("forward", "reverse"):
            for size in (None, 2):
                for a, b in zip(
                    ad.jacobian(ufunc, mode, (0, 1), chunk_size=size)(*args), single, strict=True
                ):
                    assert (np.abs(a - b) <= 8 * eps * (np.abs(b) + 1e-3)).all()


def test_special_numbers():
    """Infinities, NaN, zeros and the ends of the range have NumPy's values."""
    with np.errstate(all="ignore"):
        for ufunc in UNARY:
            same(ad.vjp(ufunc, SPECIAL)[0], ufunc(SPECIAL))
            same(ad.jvp(ufunc, (SPECIAL,), (SPECIAL,))[0], ufunc(SPECIAL))
            for x in SPECIAL:
                same(ad.vjp(ufunc, x)[0], ufunc(x))
        x, y = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))
        for ufunc in (np.add, np.subtract, np.multiply, np.true_divide, np.power):
            same(ad.vjp(ufunc, x, y)[0], ufunc(x, y))
            for a, b in zip(x, y, strict=True):
                same(ad.vjp(ufunc, a, b)[0], ufunc(a, b))
                same(ad.vjp(lambda x, ufunc=ufunc, b=b: ufunc(x, b), x)[0], ufunc(x, b))


@pytest.mark.parametrize("n", [1, 9, 97])
@pytest.mark.parametrize("ufunc", [*UNARY, *EXPONENTS[:-1]], ids=lambda f: getattr(f, "__name__", repr(f)))
def test_second_order(ufunc, n):
    """Second slopes equal those of extended precision, which takes the rules' way through NumPy."""
    f = ufunc if isinstance(ufunc, np.ufunc) else lambda x: x**ufunc
    x, v, w = points(n, n), powers_of_two(n), points(n, n + 1)

    def loss(x):
        return np.sum(w * f(0.5 * x) * f(0.7 * x))

    reference = ad.hvp(loss, x.astype(np.longdouble), v.astype(np.longdouble))
    assert reference.dtype == np.longdouble
    scale = 1 + np.abs(reference).max()
    for mode in MODES:
        assert np.abs(ad.hvp(loss, x, v, mode) - reference).max() < 2e-14 * scale
        if n < 10:
            rows = ad.hessian(loss, mode)(x) @ v
            assert np.abs(rows - reference).max() < 2e-14 * scale
            third = ad.jvp(lambda x, mode=mode: ad.hvp(loss, x, v, mode), (x,), (v,))[1]
            back = ad.vjp(lambda x, mode=mode: ad.hvp(loss, x, v, mode), x)[1](v)[0]
            assert np.abs(third - back).max() < 1e-12 * (1 + np.abs(third).max())
    small = ad.hvp(loss, x.astype(np.float32), v.astype(np.float32))
    assert small.dtype == np.float32
    assert np.abs(small - reference).max() < 1e-4 * scale


@pytest.mark.parametrize("shapes", [((), ()), ((), (9,)), ((9,), ()), ((9,), (9,)), ((3, 1), (4,))], ids=str)
@pytest.mark.parametrize("ufunc", BINARY, ids=lambda f: f.__name__)
def test_second_order_of_two(ufunc, shapes):
    """As above, with both arguments varying: numbers, arrays of one shape, and others."""
    point = [points(shape, 1 + i) for i, shape in enumerate(shapes)]
    along = [powers_of_two(shape, seed=3 + i) for i, shape in enumerate(shapes)]

    def loss(pair):
        x, y = pair
        return np.sum(np.sin(ufunc(1.1 * x, np.exp(0.1 * y))) * x)

    def wide(arrays):
        return [a.astype(np.longdouble) for a in arrays]

    for mode in MODES[1:]:  # the first takes one array only
        reference = ad.hvp(loss, wide(point), wide(along), mode)
        for got, expected in zip(ad.hvp(loss, point, along, mode), reference, strict=True):
            assert np.abs(got - expected).max() < 2e-14 * (1 + np.abs(expected).max())
        for which in range(2):  # where one argument has no tangent

            def partly(x, which=which):
                return loss([x, point[1]] if which == 0 else [point[0], x])

            got = ad.hvp(partly, point[which], along[which], mode)
            zeros = [t if i == which else np.zeros_like(t) for i, t in enumerate(along)]
            expected = ad.hvp(loss, wide(point), wide(zeros), mode)[which]
            assert np.abs(got - expected).max() < 2e-14 * (1 + np.abs(expected).max())


# a number made of all variables, and the variables, against an array of their length
MIXED = {
    "over a dot product": lambda x, c: np.sum(c * (c / np.dot(x, x))),
    "over a sum": lambda x, c: c @ (c / np.sum(x)),
    "angle": lambda x, c: np.sum(c * np.arctan2(c, np.dot(x, x))),
    "power": lambda x, c: np.sum(c * c ** np.sum(x * x)),
    "times": lambda x, c: np.sum(c * np.sin(c * np.dot(x, x)) * x),
    "hypot": lambda x, c: np.sum(c * np.hypot(np.sum(x), c)),
    "logaddexp": lambda x, c: np.sum(c * np.logaddexp(c, x[0] * x[-1])),
    "products of other shapes": lambda x, c: np.sum(np.ravel((np.ones(1) * x[0])[:, None] * c) * c) * x[-1],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", MIXED)
def test_directions_are_not_taken_for_entries(name, n, mode):
    """In a Hessian there are as many directions as variables: as entries of an array beside a number."""
    x, c = powers_of_two(n) + 0.5, np.linspace(1, 2, n)
    f = lambda x: MIXED[name](x, c)  # noqa: E731
    rows = [ad.hvp(f, x, e, "reverse-over-reverse") for e in np.eye(n)]
    np.testing.assert_allclose(ad.hessian(f, mode)(x), rows, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_one_direction_has_an_axis_of_its_own(mode):
    A, w = points((2, 3)), points(6, seed=1)
    f = lambda y: np.sum(w * np.ravel(np.reshape(np.ones(1) * y * y, (1, 1)) * A))  # noqa: E731
    found = ad.hessian(f, mode)(1.5)
    assert found.shape == ()
    np.testing.assert_allclose(found, 2 * w @ np.ravel(A), rtol=1e-13)


def test_users_arrays_are_not_written():
    """Cotangents and tangents that flow through unchanged belong to the caller."""
    x, g = points(5), powers_of_two(5)
    before = g.copy()
    _, pull = ad.vjp(lambda x: (x, x + 0, np.sin(x + 0), x[1:]), x)
    first = pull((g, g, g, g[1:]))[0]
    np.testing.assert_array_equal(g, before)
    first[...] = 0
    second = pull((g, g, g, g[1:]))[0]
    np.testing.assert_array_equal(g, before)
    np.testing.assert_allclose(second[1:], (3 * g + np.cos(x) * g)[1:], rtol=1e-15)
    _, tangents = ad.jvp(lambda x: (x, x + 0, x - 0, x[1:], x * 1 + x), (x,), (g,))
    for t in tangents:
        assert not np.shares_memory(t, g)
        t[...] = 0
    np.testing.assert_array_equal(g, before)
    two = ad.vjp(lambda x, y: x + y, x, x)[1](g)
    assert not np.shares_memory(*two)


def test_the_ufunc_protocol_called_by_hand():
    def f(x):
        return x.__array_ufunc__(np.multiply, "__call__", x, x.__array_ufunc__(np.sin, "__call__", x))

    value, slope = ad.value_and_grad(f)(0.5)
    assert value == 0.5 * np.sin(0.5)
    np.testing.assert_allclose(slope, np.sin(0.5) + 0.5 * np.cos(0.5), rtol=1e-15)
    with pytest.raises(TypeError, match="method"):
        ad.grad(lambda x: x.__array_ufunc__(np.sin, None, x))(0.5)
    with pytest.raises(TypeError, match="positional"):
        ad.grad(lambda x: x.__array_ufunc__(np.sin))(0.5)


@pytest.mark.parametrize("n", [1, 7, 130, 18000])
@pytest.mark.parametrize("ufunc", UNARY, ids=lambda u: u.__name__)
def test_single_precision_is_double_precision_rounded(ufunc, n):
    """Loops for float32 give float32 of what those for float64 give, on arrays of any length."""
    x, t, v = points((3, n), seed=8, dtype=np.float32)
    x = x / 2

    def derivatives(x, t, v):
        f = lambda x: np.sum(t * ufunc(x))  # noqa: E731
        yield ad.jvp(ufunc, (x,), (t,))[1]
        yield ad.grad(f)(x)
        yield ad.hvp(f, x, v)
        yield ad.hvp(lambda x: np.sum(np.sin(ufunc(x)) * t), x, v)
        yield ad.jacobian(lambda s: ufunc(s[0] * (s[1] * x)), mode="forward")(np.ones(2, x.dtype))

    double = derivatives(*(a.astype(np.float64) for a in (x, t, v)))
    for single, exact in zip(derivatives(x, t, v), double, strict=True):
        assert single.dtype == np.float32
        scale = np.max(np.abs(exact), initial=1e-3)
        np.testing.assert_allclose(single, exact, rtol=64 * np.finfo(np.float32).eps, atol=1e-6 * scale)

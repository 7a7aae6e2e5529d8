"""Random programs of NumPy calls: NumPy's values; derivatives that agree mutually and with differences.

A program works on a list of arrays: each step makes one more from what is there, or assigns into one. It
runs on plain arrays, in extended precision (for differences) and traced.
"""

import functools

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError

MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")
SHAPES = ((), (), (1,), (3,), (3,), (2, 3), (3, 1), (1, 3), (3, 3), (2, 1, 3), (0,), (97,))
UNARY = (
    np.sin, np.cos, np.tanh, np.arctan, np.negative, np.square, np.abs, np.arcsinh, np.positive,
    lambda v: np.exp(np.tanh(v)), lambda v: np.log(1.5 + np.sin(v)), lambda v: np.sqrt(1 + v * v),
    lambda v: np.expm1(np.sin(v)), lambda v: np.log1p(v * v), lambda v: 1 / (2.5 + np.cos(v)),
    lambda v: np.tan(0.5 * np.sin(v)), lambda v: np.sinh(np.sin(v)) - np.cosh(np.cos(v)),
    lambda v: np.reciprocal(2.5 + np.sin(v)), lambda v: np.power(v, 2), lambda v: np.power(v, 3),
    lambda v: np.power(1.5 + v * v, -1.5), lambda v: np.power(v, 0), lambda v: 1.7**v, lambda v: v + v,
    lambda v: v * v, lambda v: v - v, lambda v: np.maximum(v, 0.1), lambda v: np.maximum(v, v),
    lambda v: np.clip(v, -0.83, 1.01), lambda v: np.hypot(v, 1.1), lambda v: v * np.sign(v),
)  # fmt: skip
BINARY = (
    np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.fmax, np.logaddexp,
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, lambda a, b: a / (2.5 + np.sin(b)),
    lambda a, b: (1.2 + np.cos(a)) ** b, lambda a, b: np.arctan2(a, b + 7), lambda a, b: np.hypot(a, b + 7),
)  # fmt: skip
REDUCTIONS = (np.sum, np.mean, np.max, np.min, np.prod, np.var)
ALONG = (np.cumsum, np.cumprod, np.sort, np.flip, np.diff, functools.partial(np.repeat, repeats=2))
SHAPED = (
    np.transpose, np.ravel, np.squeeze, np.atleast_2d, lambda v: np.expand_dims(v, 0), lambda v: v[None] + 0,
    lambda v: np.broadcast_to(v, (2, *v.shape)), lambda v: np.reshape(v, (v.size, 1)),
    lambda v: np.roll(v, 1), lambda v: np.where(v > 0.1, v, 0.3),
)  # fmt: skip


def arranged(rng, a):
    """Return an array in one of several layouts in memory."""
    kind = rng.integers(5)
    if kind == 0 and a.ndim:
        return np.asfortranarray(a)
    if kind == 1 and a.ndim:
        wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]))
        wide[..., ::2] = a
        return wide[..., ::2]
    return a[::-1].copy()[::-1] if kind == 2 and a.ndim else a


def constant(rng, shape):
    """Return a plain operand: a number of some type or an array that broadcasts."""
    value = float(rng.uniform(-2, 2))
    kinds = (
        value, round(value), np.float64(value), np.float32(value), np.asarray(value), np.int64(round(value)),
        value > 0, rng.integers(-3, 4, shape), rng.uniform(-2, 2, shape).astype(np.float32),
        rng.uniform(-2, 2, tuple(1 if rng.random() < 0.4 else n for n in shape)),
        arranged(rng, rng.uniform(-2, 2, shape)),
    )  # fmt: skip
    return kinds[rng.integers(len(kinds))]


def index(rng, shape):
    """Return an index of any kind into a shape."""
    kind = rng.integers(5)
    if kind == 0 and shape and shape[0]:
        return int(rng.integers(-shape[0], shape[0]))
    if kind == 1:
        return rng.random(shape) < 0.5
    if kind == 2 and shape and shape[0]:
        return rng.integers(-shape[0], shape[0], rng.integers(6))
    parts = []
    for n in shape[: rng.integers(len(shape) + 1)]:
        choices = [slice(None, None, -1), slice(n // 2, None), slice(None, None, 2), None]
        choices += [int(rng.integers(-n, n)), rng.integers(0, n, 3)] if n else []
        part = choices[rng.integers(len(choices))]
        parts += [None, slice(None)] if part is None else [part]
    return (*parts, ...) if rng.random() < 0.2 else tuple(parts)


class Program:
    """A random function of `n_inputs` arrays, made by running it on plain arrays.

    Attributes
    ----------
    inputs : tuple of arrays
        Where it was made, read-only.
    outputs : list of int
        Which arrays of the list it returns.
    """

    def __init__(self, seed):
        rng = self.rng = np.random.default_rng(seed)
        base, self.steps = SHAPES[rng.integers(len(SHAPES))], []
        shapes = [
            base if rng.random() < 0.6 else SHAPES[rng.integers(len(SHAPES))]
            for _ in range(rng.integers(1, 4))
        ]
        self.inputs = tuple(arranged(rng, np.asarray(rng.uniform(-2, 2, s))) for s in shapes)
        for x in self.inputs:
            x.flags.writeable = False
        self.values = [np.copy(x) for x in self.inputs]
        kinds = (
            self.unary,
            self.binary,
            self.binary,
            self.reduce,
            self.along,
            self.shape,
            self.read,
            self.write,
        )
        for _ in range(rng.integers(4, 14)):
            kinds[rng.integers(len(kinds))]()
        last = len(self.values) - 1
        self.outputs = [last] if rng.random() < 0.7 else [last, int(rng.integers(last + 1))]

    def __call__(self, *inputs):
        values = [np.copy(x) for x in inputs]
        for step in self.steps:
            step(values)
        values = [values[i] for i in self.outputs]
        return values[0] if len(values) == 1 else tuple(values)

    def pick(self):
        """Return the number of an array in the list, often the last."""
        last = len(self.values) - 1
        return last if self.rng.random() < 0.5 else int(self.rng.integers(last + 1))

    def emit(self, make):
        """Add a step that makes an array, and one that keeps it of moderate size."""
        value = make(self.values)
        if value.size > 300 or value.dtype.kind != "f":
            return
        self.steps.append(lambda values: values.append(make(values)))
        self.values.append(value)
        if value.size and np.abs(value).max() > 30:
            at = len(self.values) - 1
            self.emit(lambda values: np.tanh(values[at] * 0.01) * 3)

    def unary(self):
        """A function of one array."""
        i, f = self.pick(), UNARY[self.rng.integers(len(UNARY))]
        self.emit(lambda values: f(values[i]))

    def binary(self):
        """A function of two arrays, or of an array and a constant on either side."""
        i, j, f = self.pick(), self.pick(), BINARY[self.rng.integers(len(BINARY))]
        a, b = self.values[i], self.values[j]
        if self.rng.random() < 0.5:
            c, turned = constant(self.rng, a.shape), self.rng.random() < 0.5
            self.emit(lambda values: f(c, values[i]) if turned else f(values[i], c))
        elif a.ndim and a.shape == b.shape and self.rng.random() < 0.3:
            self.emit(lambda values: np.concatenate([values[i], values[j]]))
        elif a.ndim and b.ndim == 1 and a.shape[-1:] == b.shape:
            self.emit(lambda values: values[i] @ values[j])
        elif all(m == n or 1 in (m, n) for m, n in zip(a.shape[::-1], b.shape[::-1], strict=False)):
            self.emit(lambda values: f(values[i], values[j]))

    def reduce(self):
        """A reduction over one axis or all."""
        i, f = self.pick(), REDUCTIONS[self.rng.integers(len(REDUCTIONS))]
        a = self.values[i]
        if a.size == 0 or (f is np.prod and a.ndim > 1):
            return
        axis = int(self.rng.integers(-a.ndim, a.ndim)) if a.ndim and self.rng.random() < 0.7 else None
        keepdims = bool(self.rng.random() < 0.4)
        self.emit(lambda values: f(values[i], axis=axis, keepdims=keepdims))

    def along(self):
        """A function along an axis that keeps it."""
        i, f = self.pick(), ALONG[self.rng.integers(len(ALONG))]
        a = self.values[i]
        if a.ndim and a.shape[0]:
            axis = int(self.rng.integers(-a.ndim, a.ndim))
            self.emit(lambda values: f(values[i], axis=axis))

    def shape(self):
        """Another shape or order of the same entries."""
        i, f = self.pick(), SHAPED[self.rng.integers(len(SHAPED))]
        self.emit(lambda values: f(values[i]))

    def read(self):
        """Reading by an index (a view that later assignments go through, if it is basic)."""
        i = self.pick()
        at = index(self.rng, self.values[i].shape)
        self.emit(lambda values: values[i][at])

    def write(self):
        """Assignment and augmented assignment of a constant or of another array."""
        i, j = self.pick(), self.pick()
        a = self.values[i]
        if not isinstance(a, np.ndarray) or not a.flags.writeable:
            return
        at = index(self.rng, a.shape)
        fits = np.shape(self.values[j]) in ((), np.shape(a[at]))
        value = float(self.rng.uniform(-1, 1))
        how = self.rng.integers(4)

        def step(values):
            x, y = values[i], np.sin(values[j]) if fits else value
            if how == 0:
                x[at] = y
            elif how == 1:
                x[at] += y
            elif how == 2:
                x[at] *= y
            else:
                x *= 0.5
                x += 0.25

        step(self.values)
        self.steps.append(step)


def leaves(value):
    """Return the parts of a function's value."""
    return value if isinstance(value, tuple) else (value,)


def close(a, b, tolerance):
    """Assert that parts agree within a tolerance, relative to the largest entry."""
    for p, q in zip(leaves(a), leaves(b), strict=True):
        assert np.shape(p) == np.shape(q)
        if np.size(p):
            assert np.abs(p - q).max() <= tolerance * (1 + np.abs(q).max())


def inner(a, b):
    """Return the sum of products of two lists of arrays, and the sum of their sizes."""
    terms = [np.multiply(p, q, dtype=float) for p, q in zip(a, b, strict=True)]
    return sum(t.sum() for t in terms), sum(np.abs(t).sum() for t in terms)


def differences(f, xs, vs):
    """Return central differences in extended precision with two steps."""
    xs, vs = ([np.asarray(a, np.longdouble) for a in arrays] for arrays in (xs, vs))
    for h in (np.longdouble(1e-6), np.longdouble(2e-6)):
        up, down = (leaves(f(*[x + s * v for x, v in zip(xs, vs, strict=True)])) for s in (h, -h))
        yield tuple(np.asarray((a - b) / (2 * h), float) for a, b in zip(up, down, strict=True))


def check(f, xs, tolerance):
    """Check values, types, first derivatives in both modes, and whose memory they are."""
    rng = np.random.default_rng(0)
    plain = leaves(f(*xs))
    vs, ws = ([np.asarray(rng.normal(size=np.shape(x)).astype(x.dtype)) for x in a] for a in (xs, plain))
    given = (*xs, *vs, *ws)
    before = [a.copy() for a in given]
    value, pushed = ad.jvp(f, xs, tuple(vs))
    reversed_value, pull = ad.vjp(f, *xs)
    for a in (value, reversed_value):
        for p, q in zip(leaves(a), plain, strict=True):
            np.testing.assert_array_equal(p, q)
            assert p.dtype == q.dtype
    pulled = pull(ws[0] if len(ws) == 1 else tuple(ws))
    assert [t.dtype for t in leaves(pushed)] == [p.dtype for p in plain]
    assert [(g.dtype, g.shape) for g in pulled] == [(x.dtype, x.shape) for x in xs]
    (left, size), (right, other) = inner(ws, leaves(pushed)), inner(pulled, vs)
    assert abs(left - right) <= tolerance * (1 + size + other)
    for a, b in zip(given, before, strict=True):
        np.testing.assert_array_equal(a, b)
    arrays = [a for a in (*pulled, *leaves(pushed)) if isinstance(a, np.ndarray)]
    for i, a in enumerate(arrays):
        assert a.flags.writeable
        assert not any(np.shares_memory(a, b) for b in (*given, *arrays[:i]))
    return vs, leaves(pushed)


@pytest.mark.parametrize("block", range(12))
def test_first_derivatives(block):
    """Both modes agree, in both precisions; forward mode with differences where these exist."""
    compared = 0
    for seed in range(25 * block, 25 * block + 25):
        f = Program(seed)
        vs, pushed = check(f, f.inputs, 1e-11)
        with np.errstate(under="ignore"):
            check(f, tuple(x.astype(np.float32) for x in f.inputs), 1e-3)
        once, twice = differences(f, f.inputs, vs)
        if all(np.allclose(a, b, rtol=1e-6, atol=1e-6) for a, b in zip(once, twice, strict=True)):
            close(pushed, once, 1e-6)
            compared += 1
    assert compared >= 20  # the rest crosses a kink


@pytest.mark.parametrize("block", range(4))
def test_chunks(block):
    """A chunk of directions gives what single ones give."""
    compared = 0
    for seed in range(25 * block, 25 * block + 25):
        f = Program(seed)
        if (
            not 0 < sum(x.size for x in f.inputs) <= 12
            or not 0 < sum(np.size(p) for p in leaves(f(*f.inputs))) <= 30
        ):
            continue
        numbers = tuple(range(len(f.inputs)))
        reference = ad.jacobian(f, "forward", numbers, chunk_size=1)(*f.inputs)
        for mode in ("forward", "reverse"):
            for size in (None, 1, 3):
                blocks = ad.jacobian(f, mode, numbers, chunk_size=size)(*f.inputs)
                if isinstance(blocks[0], tuple):
                    for a, b in zip(blocks, reference, strict=True):
                        close(a, b, 1e-12)
                else:
                    close(blocks, reference, 1e-12)
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("block", range(6))
def test_second_and_third_derivatives(block):
    """The four nestings agree, and so do their derivatives, for programs of one array."""
    compared = 0
    for seed in range(30 * block, 30 * block + 30):
        f = Program(seed)
        if len(f.inputs) > 1 or not 0 < f.inputs[0].size < 50:
            continue
        (x,), v = f.inputs, np.asarray(np.random.default_rng(seed).normal(size=f.inputs[0].shape))

        def loss(x, f=f):
            return sum(np.sum(np.square(p)) for p in leaves(f(x)))

        reference = ad.hvp(loss, x, v)
        for mode in MODES:
            close(ad.hvp(loss, x, v, mode), reference, 1e-10)
        close(ad.second_directional(loss, x, v, v), np.sum(reference * v), 1e-9)
        third = ad.jvp(lambda x, loss=loss, v=v: ad.hvp(loss, x, v), (x,), (v,))[1]
        for mode in MODES[1:]:
            close(ad.vjp(lambda x, m=mode, loss=loss, v=v: ad.hvp(loss, x, v, m), x)[1](v)[0], third, 1e-8)
        compared += 1
    assert compared >= 4


def test_what_the_programs_found():
    """Faults that random programs came upon."""
    # A tangent of where() keeps the value's type when a plain branch is the wider one.
    for mode in ("forward", "reverse"):
        wide = ad.jacobian(lambda x: np.where(True, x, np.array(-3)), mode)(np.ones(2, np.float32))
        np.testing.assert_array_equal(wide, np.eye(2))
    pushed = ad.jvp(lambda x: np.where(True, x, np.array(-3)), (np.float32(2),), (np.float32(1),))
    assert pushed[1].dtype == pushed[0].dtype == np.float64
    # Booleans are operands of arctan2 like other numbers.
    assert ad.grad(lambda x: np.arctan2(True, x))(1.0) == pytest.approx(-0.5, abs=1e-15)
    # A boolean index into an array without axes.
    assert ad.grad(lambda x: np.sum(x[np.array(True)] * 3.0))(1.5) == 3.0
    assert ad.grad(lambda x: x[np.array(False)].sum() + x)(1.5) == 1.0

    def through_view(x):
        y = np.copy(x)
        view = np.expand_dims(y, 0)
        view *= 3
        view[[False]] = 7
        view[...] += [x]
        return y * 2

    # Assignment through a view of an array without axes.
    x = np.array(2.0)
    assert through_view(x) == 16
    assert ad.value_and_grad(through_view)(x) == (16, 8)
    assert ad.jvp(through_view, (x,), (1.0,)) == (16, 8)


def test_points_of_other_kinds():
    """Foreign byte order becomes the machine's; matrices and masked arrays are refused."""
    x = np.array([1.0, 2.0, 3.0])
    swapped = x.astype(x.dtype.newbyteorder())
    assert ad.grad(lambda x: np.sum(x**2))(swapped).dtype.isnative
    _, pull = ad.vjp(lambda x: (x, x[0] * 1.0), x)
    np.testing.assert_array_equal(pull((swapped, 10.0))[0], [11, 2, 3])
    _, pushed = ad.jvp(lambda x: (x, x[0] * x), (swapped,), (swapped,))
    np.testing.assert_array_equal(pushed[1], 2 * x)
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.asmatrix(x)
    for other in (np.ma.array(x, mask=[0, 1, 0]), matrix):
        with pytest.raises(TypeError, match=r"np\.asarray"):
            ad.grad(lambda x: np.sum(x * x))(other)
        with pytest.raises(TypeError, match=r"np\.asarray"):
            ad.jvp(np.sin, (np.ones(other.shape),), (other,))


TRIANGLE = np.array([[2.0, 0.0, 0.0], [1.0, 3.0, 0.0], [0.5, 1.0, 4.0]])
PLACES = np.array([2, 0, 0])
WEIGHTS = np.array([0.5, -1.0, 2.0])


def weighted(x, w):
    """Return a product that the rules below belong to."""
    return x * x * w


LATER = {
    "product": (WEIGHTS, lambda x, b: x * b * x),
    "large product": (np.linspace(1, 2, 3000), lambda x, b: x[:1] * b * x[1:2]),
    "matmul": (TRIANGLE, lambda x, b: b @ (x * x)),
    "where": (PLACES > 0, lambda x, b: np.where(b, x, x * x)),
    "take": (PLACES, lambda x, b: np.take(x * x, b)),
    "take_along_axis": (PLACES, lambda x, b: np.take_along_axis(x * x, b, 0)),
    "index": (PLACES, lambda x, b: (x * x)[b]),
    "reduceat": (np.array([0, 2]), lambda x, b: np.add.reduceat(x * x, b)),
    "solve": (TRIANGLE, lambda x, b: np.linalg.solve(b, x * x)),
    "triangular": (TRIANGLE, lambda x, b: ad.scipy.linalg.solve_triangular(b, x * x, lower=True)),
    "factored": (TRIANGLE, lambda x, b: ad.scipy.linalg.cho_solve((b, True), x * x)),
    "checkpoint": (WEIGHTS, ad.checkpoint(weighted)),
    "primitive": (WEIGHTS, ad.primitive(weighted, vjp=lambda g, ans, x, w: (2 * g * x * w, None))),
    "custom rule": (WEIGHTS, ad.custom_rule(weighted, vjp=lambda g, ans, x, w: (2 * g * x * w, None))),
    "large checkpoint": (np.linspace(1, 2, 3000), lambda x, b: ad.checkpoint(weighted)(x[:1], b)),
}


@pytest.mark.parametrize("name", LATER)
def test_what_the_caller_changes_later(name):
    """An array that is written to after its use leaves the derivative right, or is named by an error."""
    given, f = LATER[name]
    x = np.array([1.0, 2.0, 3.0])

    def through(x, reused):
        buffer = given.copy()
        value = f(x, buffer)
        if reused:
            buffer[...] = 1
        return value

    expected = ad.jacobian(through, "reverse")(x, False)
    np.testing.assert_array_equal(
        ad.jacobian(through, "forward")(x, True), ad.jacobian(through, "forward")(x, False)
    )
    if name.startswith("large"):
        with pytest.raises(TraceError, match="changed in place"):
            ad.jacobian(through, "reverse")(x, True)
    else:
        np.testing.assert_array_equal(ad.jacobian(through, "reverse")(x, True), expected)


@pytest.mark.parametrize("order", "CFAK")
def test_ravel_copies_where_numpy_does(order):
    """Assignment to what ravel returns reaches its base if NumPy returns a view; "K" is memory order."""
    layouts = (
        lambda y: y, lambda y: y.T, lambda y: y.swapaxes(0, 1), lambda y: y[:, ::2], lambda y: y[0, 0, ::2],
        lambda y: y[::-1], lambda y: y.T[:, ::-1], lambda y: np.moveaxis(y, 0, -1), lambda y: y[:1],
    )  # fmt: skip
    x = np.arange(24.0).reshape(2, 3, 4)
    for layout in layouts:
        for flat in (np.ravel, lambda y, order: y.ravel(order), lambda y, order: y.flatten(order)):

            def f(x, layout=layout, flat=flat):
                y = np.copy(x)
                v = flat(layout(y), order=order)
                v *= 10
                return y, v

            tangents = ad.jvp(f, (x,), (x,))[1]
            pulled = ad.vjp(lambda x, f=f: np.concatenate([p.reshape(-1) for p in f(x)]), x)
            for expected, value, tangent in zip(f(x), ad.vjp(f, x)[0], tangents, strict=True):
                np.testing.assert_array_equal(value, expected)
                np.testing.assert_array_equal(tangent, expected)  # f is linear
            g = np.cos(np.arange(float(pulled[0].size)))
            assert np.sum(pulled[1](g)[0] * x) == pytest.approx(g @ pulled[0], rel=1e-12)

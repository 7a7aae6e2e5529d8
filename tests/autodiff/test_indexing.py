"""Indexing of traced arrays and assignment into them: NumPy's meaning, exact derivatives, clear refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError
from mercer.testing import check_derivative
from rule_checks import Case as Rule
from rule_checks import check_case, check_chunks, check_value, points

SHAPE = (3, 4, 2)
B = np.array([True, False, True])
BB = np.arange(12).reshape(3, 4) % 3 == 0
INDICES = {
    "number": 1, "negative": -1, "numbers": (1, -2), "entry": (2, 0, -1), "numpy integer": np.int64(2),
    "slice": slice(1, None), "step": slice(None, None, 2),
    "reverse": (slice(None, None, -1), slice(3, 0, -2)),
    "slices": (slice(0, 2), slice(1, 3), 0), "ellipsis": (..., 1), "ellipsis middle": (0, ..., 1), "all": ...,
    "empty tuple": (), "newaxis": (None, 1, None, ..., None), "empty slice": slice(2, 2),
    "beyond": slice(1, 99),
    "list": [0, 2], "duplicates": [0, 2, 0, 0, -3], "2-d integers": np.array([[0, 1], [1, -1]]),
    "empty list": [],
    "pairs": ([0, 2, 0, 0], [0, 1, 0, -4]), "broadcast pairs": (np.array([[0], [2]]), [1, 1, 3]),
    "triples": ([0, 0], [1, 1], [1, 1]), "integer and slice": ([1, 1, 0], slice(1, 3)),
    "slice and integer": (slice(None), [3, 3, 0]), "apart": ([0, 0, 2], slice(None), [1, 1, 0]),
    "apart with number": (0, slice(None), [1, 1]), "number apart": ([2, 2], slice(1, 3), 0),
    "newaxis apart": ([0, 2], None, [1, 1]), "ellipsis apart": ([1, 1], ..., [0, 0]),
    "last": (..., [1, 1, 0]),
    "ix": np.ix_([0, 2, 2], [3, 1]), "boolean": B, "boolean list": [True, False, False], "boolean 2-d": BB,
    "boolean all": BB[..., None] & np.array([True, False]), "no true": np.zeros(3, bool),
    "boolean and slice": (B, slice(1)),
    "boolean apart": (B, slice(None), [1, 0]), "boolean and integer": (B, [1, 1]),
    "after slice": (slice(None), [True, False, True, True]),
    "true": True, "false": np.False_, "0-d integer": np.array(1),
    "0-d pair": (np.array(0), slice(None), np.array(1)),
    "uint8": np.array([2, 0, 2], np.uint8), "boolean with number": (B, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", INDICES)
def test_reading(name):
    check_case(
        Rule(name, lambda x: x[INDICES[name]] * 1.0, points(SHAPE), complex=name in ("duplicates", "apart"))
    )


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("value", ["number", "full", "last axis"])
def test_writing(name, value):
    index = INDICES[name]
    region = np.zeros(SHAPE)[index].shape
    shape = {"number": (), "full": region, "last axis": region[-1:]}[value]

    def f(x, v):
        y = x + 0 * np.sum(v)
        y[index] = v
        return y * x

    x, v = points(SHAPE, shape)
    check_value(f, (x, v))
    check_derivative(f, x, v)
    if value == "full":
        check_chunks(f, (x, v))


def test_an_index_used_twice():
    """G21."""
    x = np.arange(3.0)
    np.testing.assert_array_equal(
        ad.grad(lambda x: np.sum(np.array([1.0, 10.0, 100.0, 1000.0]) * x[[0, 2, 0, 0]]))(x),
        [1101.0, 0.0, 10.0],
    )
    for mode in ("forward", "reverse"):
        J = ad.jacobian(lambda x: x[[0, 0]], mode=mode)(x)
        np.testing.assert_array_equal(J, [[1, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum(x[[-1, 2]]))(x), [0.0, 0.0, 2.0])
    A = np.ones((3, 2))
    weights = np.array([1.0, 4.0, 1.0, 1.0])
    np.testing.assert_array_equal(
        ad.grad(lambda A: np.sum(weights * A[[0, 2, 0, 0], [0, 1, 0, 0]]))(A), [[3.0, 0], [0, 0], [0, 4.0]]
    )
    for mode in (
        "forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse",
    ):  # fmt: skip
        H = ad.hessian(lambda x: np.sum(x[[0, 0]] ** 2), mode=mode)(x)
        np.testing.assert_array_equal(H, np.diag([4.0, 0.0, 0.0]))


def _filled(p, zeros):
    buffer = zeros(p)
    for i in range(3):
        buffer[i] = p[i] ** 2 * p[(i + 1) % 3]
    return np.sum(buffer * np.array([1.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    "zeros",
    [
        np.zeros_like, np.empty_like, np.ones_like, lambda p: np.zeros(3, like=p),
        lambda p: np.empty((3,), like=p),
        lambda p: np.full(3, 7.0, like=p), lambda p: np.array([0.0, 0, 0], like=p),
        lambda p: np.arange(3.0, like=p),
        lambda p: np.full_like(p, 2.0), lambda p: np.zeros_like(p, shape=(3,)), lambda p: np.copy(p),
        lambda p: p * 0,
        lambda p: np.zeros((2, 3), like=p)[1], lambda p: np.zeros(6, like=p).reshape(2, 3)[0],
        lambda p: np.ones(3, like=p) * 1.0, lambda p: np.eye(3, like=p)[1],
        lambda p: np.zeros((3, 1), like=p).T[0],
    ],
)  # fmt: skip
def test_results_written_into_an_array(zeros):
    """G26, with every way to make the array."""
    p = np.array([2.0, 3.0, 5.0])

    def f(p):
        return _filled(p, zeros)

    assert ad.value_and_grad(f)(p)[0] == 252
    np.testing.assert_array_equal(ad.grad(f)(p), [87.0, 64.0, 78.0])
    np.testing.assert_array_equal(ad.jacobian(f, mode="forward")(p), [87.0, 64.0, 78.0])
    check_derivative(f, p)
    np.testing.assert_array_equal(p, [2.0, 3.0, 5.0])


def test_a_later_write_wins():
    """G26."""

    def f(q):
        buffer = np.zeros(1, like=q)
        buffer[0] = q[0]
        buffer[0] = q[1]
        return np.sum(buffer)

    def g(q):
        buffer = np.zeros(2, like=q)
        buffer[[0, 0, 1]] = np.stack([q[0], q[1], q[0]])
        return np.sum(buffer * np.array([1.0, 10.0]))

    q = np.array([4.0, 6.0])
    for mode in ("forward", "reverse"):
        np.testing.assert_array_equal(ad.jacobian(f, mode=mode)(q), [0.0, 1.0])
        np.testing.assert_array_equal(ad.jacobian(g, mode=mode)(q), [10.0, 1.0])


def test_augmented_assignment():
    """G26; names of arrays keep their identity, names of scalars get new values."""

    def f(r):
        y = r * 1
        y += 2 * r
        return np.sum(y)

    np.testing.assert_array_equal(ad.grad(f)(np.ones(2)), [3.0, 3.0])

    def every(x):
        y = x * 1
        same = y
        y += x
        y -= 0.5 * x
        y *= x
        y /= 1 + x * x
        y **= 2
        y[1:] += x[:-1]
        y[[0, 0]] *= 3
        y %= 5.0
        return same * 1

    def scalars(x):
        y = x[0]
        z = y
        y += x[1]
        y *= 2
        return z * 10 + y

    def widened(x):
        y = x[0]
        y *= x
        return y

    def matrices(x):
        y = x[:2, :2] * 1
        y @= y
        return y

    check_value(every, points((3,), low=0.2))
    check_derivative(every, *points((3,), low=0.2))
    x = np.array([2.0, 3.0])
    np.testing.assert_array_equal(ad.grad(scalars)(x), [12.0, 2.0])
    np.testing.assert_array_equal(ad.jacobian(widened)(x), [[4.0, 0.0], [3.0, 2.0]])
    check_derivative(matrices, *points((3, 2)))


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_the_input_of_a_function_may_be_overwritten(mode):
    x = np.array([1.0, 2.0, 3.0])

    def f(x):
        x[0] = x[1] * x[2]
        x += x[::-1]
        return x * 1

    expected = f(x.copy())
    np.testing.assert_array_equal(ad.jvp(f, (x,), (x,))[0], expected)
    np.testing.assert_array_equal(x, [1.0, 2.0, 3.0])
    J = ad.jacobian(f, mode=mode)(x)
    np.testing.assert_array_equal(J, [[0, 3, 3], [0, 2, 0], [0, 3, 3]])
    check_derivative(lambda x: f(x * 1), x)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize(
    "view",
    [
        lambda y: y[1:], lambda y: y[::-1], lambda y: y.reshape(2, 2), lambda y: y.reshape(2, 2).T,
        lambda y: np.ravel(y),
        lambda y: y[:, None], lambda y: y.reshape(2, 2)[1], lambda y: y.reshape(2, 2, order="F")[0],
        lambda y: y[1:][:2],
        lambda y: np.split(y, 2)[1], lambda y: np.flip(y), lambda y: np.atleast_2d(y),
        lambda y: np.squeeze(y[None]),
        lambda y: np.moveaxis(y.reshape(2, 2), 0, 1)[0], lambda y: np.expand_dims(y, 0)[0, ::2],
        lambda y: y[...],
        lambda y: np.swapaxes(y.reshape(1, 4), 0, 1), lambda y: next(iter(y.reshape(2, 2))),
        lambda y: np.rot90(y.reshape(2, 2)),
    ],
)  # fmt: skip
def test_views(view, mode):
    """A view sees later writes and writes through, whatever the chain; what is copied does not."""

    def f(x):
        y = x * x
        v = view(y)
        before = v * 1
        y[1] = x[3] * x[0]
        seen = v * 1
        v[..., -1] = x[2]
        v *= x[1]
        return np.concatenate([np.ravel(before), np.ravel(seen), np.ravel(v), np.ravel(y)])

    x = np.array([1.5, -2.0, 3.0, 0.5])
    expected = f(x)
    np.testing.assert_array_equal(ad.vjp(f, x)[0], expected)
    np.testing.assert_array_equal(ad.jvp(f, (x,), (x,))[0], expected)
    J = ad.jacobian(f, mode=mode)(x)
    h = 1e-30
    exact = np.stack([f(x + 1j * h * e).imag / h for e in np.eye(4)], -1)  # f is a polynomial
    np.testing.assert_allclose(J, exact, rtol=1e-13, atol=1e-13)


def test_layouts_that_numpy_must_copy_are_no_views():
    def f(x):
        y = x.reshape(2, 3).T * 1  # in column order: ravel copies
        flat = y.ravel()
        part = x.reshape(2, 3)[:, :2]
        joined = part.reshape(-1)
        y[0, 0] = 0.0
        part[0, 0] = x[5]
        return np.concatenate([flat, y.ravel(), joined, part.ravel(), x])

    x = np.arange(1.0, 7.0)
    expected = f(x.copy())
    np.testing.assert_array_equal(ad.vjp(f, x)[0], expected)
    np.testing.assert_array_equal(ad.jvp(f, (x,), (x,))[0], expected)


@pytest.mark.parametrize(
    "view",
    [lambda y: np.broadcast_to(y, (2, 3)), lambda y: np.diagonal(np.outer(y, y))],
)
def test_views_that_refuse_writes(view):
    def f(x):
        y = x * 1
        view(y)[0] = 1.0
        return np.sum(y)

    for call in (lambda: ad.grad(f)(np.ones(3)), lambda: ad.jvp(f, (np.ones(3),), (np.ones(3),))):
        with pytest.raises(TraceError, match=r"assignment: this array is a view.*copy"):
            call()


def test_a_read_only_view_sees_writes():
    def f(x):
        y = np.outer(x, x)
        d, b = np.diagonal(y), np.broadcast_to(y[0], (2, 3))
        y[0] = x[2]
        return np.concatenate([d, b.ravel()])

    check_value(f, points((3,)))
    check_derivative(f, *points((3,)))


def test_types_of_assignment():
    def f(x):
        y = np.zeros(3, np.float32, like=x)
        y[:] = x
        return y

    x = np.array([1.0, 2.0, 3.0])
    value, pullback = ad.vjp(f, x)
    assert value.dtype == np.float32
    assert pullback(np.ones(3, np.float32))[0].dtype == np.float64
    assert ad.jvp(f, (x,), (x,))[1].dtype == np.float32

    def g(z):
        y = np.zeros(2, complex, like=z)
        y[0] = z[0]  # a real number into a complex array
        y[1] = 1j * z[1]
        return np.sum(np.real(y * np.conj(y)))

    np.testing.assert_allclose(ad.grad(g)(x), [2.0, 4.0, 0.0])
    check_derivative(g, x)

    def h(x):
        y = x * 1
        y += 1j * x
        return y

    with pytest.raises(TypeError):
        h(x)
    with pytest.raises(TypeError):
        ad.vjp(h, x)


def test_shapes_of_assignment():
    def f(x):
        y = np.zeros((2, 3), like=x)
        y[0] = x[None, :3]  # ones in front may be too many
        y[1, :1] = x[3:]
        y[:, 2:] = x[:1]
        y[1, 1] = x[3:][0]
        return y

    check_value(f, points((4,)))
    check_derivative(f, *points((4,)))
    for bad in (lambda y, x: y.__setitem__(0, x), lambda y, x: y.__setitem__((5, 0), x[0])):
        with pytest.raises((ValueError, IndexError)):
            ad.vjp(lambda x, bad=bad: bad(np.zeros((2, 3), like=x), x), np.ones(4))


def test_assignment_of_lists_of_traced_values():
    def f(x):
        y = np.zeros((2, 2), like=x)
        y[0] = [x[0] * x[1], x[1]]
        y[1] = (x[0], 2.0)
        return y

    np.testing.assert_array_equal(ad.jacobian(f)(np.array([2.0, 3.0]))[0], [[3.0, 2.0], [0.0, 1.0]])


@pytest.mark.parametrize("write", ["entry", "slice", "add", "out", "copyto", "mask"])
def test_plain_arrays_refuse_traced_values(write):
    def f(x):
        y = np.zeros(3)
        if write == "entry":
            y[0] = x[0]
        elif write == "slice":
            y[:2] = x[:2]
        elif write == "add":
            y += x
        elif write == "out":
            np.sin(x, out=y)
        elif write == "copyto":
            np.copyto(y, x)
        else:
            y[y == 0] = x
        return np.sum(y)

    for call in (lambda: ad.grad(f)(np.ones(3)), lambda: ad.jvp(f, (np.ones(3),), (np.ones(3),))):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        error = caught.value
        text = str(error) + str(error.__cause__)
        assert "zeros_like" in text
        assert "test_indexing.py" in text  # the line of the user's code


def test_index_arrays_may_change_after_they_were_used():
    def f(x):
        at = np.array([0, 1])
        y = x[at]
        z = np.zeros(3, like=x)
        z[at] = x[:2] * 2
        at[:] = 2
        return y * z[:2]

    np.testing.assert_array_equal(
        ad.jacobian(f, mode="reverse")(np.array([1.0, 3.0, 5.0]))[:, :2], np.diag([4.0, 12.0])
    )


def test_traced_indices_are_refused():
    for index in (lambda x: x[0], lambda x: (0, x), lambda x: slice(None, x[0])):
        with pytest.raises(TypeError, match=r"index|plain number"):
            ad.vjp(lambda x, index=index: x[index(x)], np.ones((2, 2)))
    x = np.array([1.0, 0.0])
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum(x[x > 0.5]))(x), [1.0, 0.0])
    np.testing.assert_array_equal(ad.grad(lambda x: x[np.argmax(x)])(x), [1.0, 0.0])


@pytest.mark.parametrize("outer", ["forward", "reverse"])
@pytest.mark.parametrize("inner", ["forward", "reverse"])
def test_an_outer_array_takes_inner_values(outer, inner):
    """An array of an outer derivative, and a view of it, into which an inner derivative writes and reads."""

    def f(x):
        buffer = np.zeros(3, like=x)
        part = buffer[:2]

        def g(y):
            buffer[0] = y * x[0]
            buffer[1] = y**2
            return np.sum(part * np.stack([y, x[1]]))  # y² x0 + y² x1

        return ad.jacobian(g, mode=inner)(x[2])  # 2 x2 (x0 + x1)

    x = np.array([2.0, 3.0, 5.0])
    np.testing.assert_allclose(ad.jacobian(f, mode=outer)(x), [10.0, 10.0, 10.0])


def test_values_of_a_closed_derivative_are_refused():
    kept = []

    def f(x):
        kept.append(x)
        return np.sum(x)

    ad.grad(f)(np.ones(2))
    for use in (lambda x: x + 1, lambda x: x[0], lambda x: np.sum(x), lambda x: x.__setitem__(0, 1.0)):
        with pytest.raises(TraceError, match="after its derivative"):
            use(kept[0])


METHODS = [
    lambda x: x.sum() + x.mean(axis=0)[0], lambda x: x.T @ x, lambda x: x.max(1) - x.min(1),
    lambda x: x.clip(-1, 1),
    lambda x: x.dot(x.T), lambda x: x.round(1) * x, lambda x: x.astype(np.float32).astype(float) * x,
    lambda x: x.real,
    lambda x: x.conj(), lambda x: x.squeeze(), lambda x: x.swapaxes(0, 1), lambda x: x.trace(),
    lambda x: x.flatten(),
    lambda x: x.copy(), lambda x: x.transpose(), lambda x: x.ravel()[x.argsort(axis=None)],
    lambda x: x.prod(0),
    lambda x: x.repeat(2), lambda x: x.var() + x.std(ddof=1),
    lambda x: x.compress([True, False, True], axis=0),
    lambda x: x.take([1, 0]), lambda x: x.diagonal(), lambda x: x.cumsum() + x.cumprod(), lambda x: x.mT,
    lambda x: x.imag + x, lambda x: x.choose([x, x]) if x.dtype.kind == "i" else x * len(x),
]  # fmt: skip


@pytest.mark.parametrize("f", METHODS)
def test_methods(f):
    (x,) = points((3, 4))
    x = np.where(np.abs(np.abs(x) - 1) < 0.03, 0.5, x)
    check_value(f, (x,))
    if f is not METHODS[6]:
        check_derivative(f, x)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("tolist", lambda x: x.tolist()), ("item", lambda x: x.item()), ("tobytes", lambda x: x.tobytes()),
        ("view", lambda x: x.view(int)), ("flat", lambda x: x.flat), ("data", lambda x: x.data),
        ("resize", lambda x: x.resize(4)),
    ],
)  # fmt: skip
def test_ways_out_are_refused(name, call):
    with pytest.raises(TraceError, match=name):
        ad.vjp(call, np.ones(3))


def test_unknown_attributes_are_attribute_errors():
    ad.vjp(lambda x: (np.testing.assert_equal(hasattr(x, "unknown"), False), x)[1], np.ones(2))


def test_long_loops_of_writes():
    """n writes into an array of n: exact, and not quadratic in the depth of views."""

    def f(x):
        y = np.zeros_like(x)
        y[0] = x[0]
        for i in range(1, len(x)):
            y[i] = 0.5 * y[i - 1] + x[i]
        return y

    x = np.ones(200)
    J = ad.jacobian(f, mode="forward")(x)
    i = np.arange(200)
    np.testing.assert_allclose(
        J, np.where(i[:, None] >= i, 0.5 ** np.maximum(i[:, None] - i, 0.0), 0), atol=1e-15
    )
    np.testing.assert_allclose(ad.vjp(f, x)[1](np.ones(200))[0], J.sum(0), rtol=1e-14)


# -- random programs --------------------------------------------------------------------------------------

VIEWS = [
    lambda y: y[1:], lambda y: y[::-1], lambda y: y.T, lambda y: y.reshape(-1), lambda y: y[..., :1],
    lambda y: y[None],
    lambda y: np.flip(y, 0), lambda y: y.reshape(y.shape[::-1]), lambda y: np.atleast_2d(y),
    lambda y: y[[0, 0]],
    lambda y: y * 1, lambda y: y.copy(), lambda y: np.swapaxes(y, 0, -1), lambda y: y[..., ::2],
]  # fmt: skip
WRITES = [
    lambda y, v: y.__setitem__(0, v), lambda y, v: y.__setitem__(..., v), lambda y,
    v: y.__setitem__([0, 0], v * 2),
    lambda y, v: y.__setitem__((..., slice(None, None, 2)), v), lambda y,
    v: y.__setitem__(y.shape[0] - 1, y[0] * v),
    lambda y, v: y.__iadd__(v), lambda y, v: y.__imul__(v), lambda y, v: y.fill(v),
    lambda y, v: y.__setitem__(slice(None, None, -1), y * v), lambda y, v: y.__setitem__(..., y[:1] + v),
]  # fmt: skip


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 13), st.integers(0, 3)),
        min_size=1,
        max_size=8,
    )
)
def test_random_programs(steps):
    """Views and writes in any order: values as NumPy's, derivatives by the complex step."""

    def program(x):
        names = [x * 1, (x * x).reshape(2, 2)]
        for is_view, which, what, number in steps:
            y = names[which % len(names)]
            if is_view:
                names.append(VIEWS[what](y))
            elif y.size:
                WRITES[what % len(WRITES)](y, x[number])
        return np.concatenate([np.ravel(y) for y in names])

    x = np.array([0.9, -1.1, 1.2, 0.8])
    expected = program(x)
    np.testing.assert_array_equal(ad.vjp(program, x)[0], expected)
    np.testing.assert_array_equal(ad.jvp(program, (x,), (x,))[0], expected)
    h = 1e-30
    exact = np.stack([program(x + 1j * h * e).imag / h for e in np.eye(4)], -1)
    for mode in ("forward", "reverse"):
        np.testing.assert_allclose(ad.jacobian(program, mode=mode)(x), exact, rtol=1e-12, atol=1e-12)

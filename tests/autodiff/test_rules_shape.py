"""Rules that move entries about: shapes, joins, cuts, repetition, padding, selection, assignment."""

import re
from pathlib import Path

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError
from mercer.autodiff.trace import FUNCTIONS
from mercer.testing import check_derivative
from rule_checks import Case, check_case, points

V, A, T = (5,), (3, 4), (2, 3, 4)
I2 = np.array([[2, 0], [1, 1]])

SHAPE = [
    Case("reshape", lambda x: np.reshape(x, (4, 3)), points(A)),
    Case("reshape -1", lambda x: np.reshape(x, (2, -1)), points(A)),
    Case("reshape shape=", lambda x: np.reshape(x, shape=(2, 6)), points(A)),
    Case("reshape F", lambda x: np.reshape(x, (2, 6), order="F"), points(A)),
    Case("reshape A", lambda x: np.reshape(x.T, 12, order="A"), points(A)),
    Case("reshape copy", lambda x: np.reshape(x, 12, copy=True), points(A)),
    Case("reshape method", lambda x: x.reshape(4, -1) * x.reshape((4, 3), order="F"), points(A)),
    Case("ravel", lambda x: np.ravel(x) * x.ravel(order="F"), points(A)),
    Case("flatten", lambda x: x.flatten() * x.flatten("F"), points(A)),
    Case("transpose", lambda x: np.transpose(x), points(T)),
    Case("transpose axes", lambda x: np.transpose(x, (2, 0, -2)), points(T)),
    Case("transpose method", lambda x: x.transpose(1, 0, 2) + x.transpose((1, 0, 2)), points(T)),
    Case("T and mT", lambda x: (x.T, x.mT), points(T)),
    Case("permute_dims", lambda x: np.permute_dims(x, (1, 2, 0)), points(T)),
    Case("matrix_transpose", lambda x: np.matrix_transpose(x), points(T)),
    Case("linalg.matrix_transpose", lambda x: np.linalg.matrix_transpose(x), points(T)),
    Case("moveaxis", lambda x: np.moveaxis(x, 0, -1), points(T)),
    Case("moveaxis two", lambda x: np.moveaxis(x, [0, -1], [1, 0]), points(T)),
    Case("rollaxis", lambda x: (np.rollaxis(x, 2), np.rollaxis(x, 0, 3), np.rollaxis(x, 1, -1)), points(T)),
    Case("swapaxes", lambda x: np.swapaxes(x, 0, -1), points(T)),
    Case("expand_dims", lambda x: np.expand_dims(x, (0, -1)), points(A)),
    Case(
        "squeeze", lambda x: (np.squeeze(x), np.squeeze(x, -1), x.squeeze(axis=(1, 3))), points((2, 1, 3, 1))
    ),
    Case("broadcast_to", lambda x: np.broadcast_to(x, (2, 3, 4)), points((3, 1))),
    Case("broadcast_arrays", lambda x, y: np.broadcast_arrays(x, y), points((3, 1), (4,))),
    Case("atleast_1d", lambda x, y: np.atleast_1d(x, y), points((), V)),
    Case("atleast_2d", lambda x, y: np.atleast_2d(x, y), points((), V)),
    Case("atleast_3d", lambda x, y: np.atleast_3d(x, y), points(V, A)),
    Case("atleast_3d one", lambda x: np.atleast_3d(x), points(())),
    Case("meshgrid", lambda x, y: np.meshgrid(x, y), points((3,), (4,))),
    Case("meshgrid ij", lambda x, y: np.meshgrid(x, y, indexing="ij", sparse=True), points((3,), (4,))),
    Case("meshgrid three", lambda x, y, z: np.meshgrid(x, y, z, copy=False), points((2,), (3,), (2,))),
    Case("copy", lambda x: np.copy(x) * x.copy(), points(A)),
    Case(
        "astype",
        lambda x: np.astype(np.astype(x, np.longdouble), x.dtype) * x.astype(x.dtype),
        points(A),
        False,
    ),
    Case("zeros_like", lambda x: np.zeros_like(x) + np.empty_like(x) * 0 + x, points(A)),
    Case("ones_like", lambda x: np.ones_like(x) * x, points(A)),
    Case("full_like", lambda x, y: np.full_like(x + y, y) * x, points(A, ())),
    Case("array like", lambda x: np.array([x[0], x[1] * x[2]], like=x), points(V)),
    Case(
        "array like nested", lambda x: np.array([[x[0], 1.0], [x[2], x[1]]], like=x, dtype=x.dtype), points(V)
    ),
    Case(
        "asarray like",
        lambda x: np.asarray(x, like=x) * np.asarray([1, 2], like=x, dtype=x.dtype)[0],
        points(V),
    ),
    Case("full like", lambda x: np.full(3, x[1], like=x) * x[0], points(V)),
]
DIAGONAL = [
    Case("diag", lambda x: np.diag(x), points(V)),
    Case("diag k", lambda x: np.diag(x, -2) + np.diag(x, 2), points((3,))),
    Case("diag of matrix", lambda x: (np.diag(x), np.diag(x, 1), np.diag(x, -1)), points(A)),
    Case("diagonal", lambda x: np.diagonal(x, 1, 2, 0), points(T)),
    Case("diagonal outside", lambda x: np.diagonal(x, 4), points(A)),
    Case("diagonal method", lambda x: x.diagonal(-1), points(A)),
    Case("linalg.diagonal", lambda x: np.linalg.diagonal(x, offset=1), points(T)),
    Case("diagflat", lambda x: np.diagflat(x, 1), points((2, 2))),
    Case("tril", lambda x: np.tril(x, -1), points(T)),
    Case("triu", lambda x: np.triu(x, 1), points(T)),
    Case("tril of vector", lambda x: np.tril(x), points(V)),
    Case("trace", lambda x: np.trace(x, 1, 2, 0), points(T)),
    Case("linalg.trace", lambda x: np.linalg.trace(x, offset=-1), points(T)),
]
JOIN = [
    Case("concatenate", lambda x, y: np.concatenate((x, y, x)), points(A, (2, 4))),
    Case("concatenate axis", lambda x, y: np.concatenate([x, y], axis=-1), points(A, (3, 2))),
    Case("concatenate None", lambda x, y: np.concatenate([x, y], axis=None), points(A, V)),
    Case("concatenate constant", lambda x: np.concatenate([x, np.ones((1, 4), x.dtype)]), points(A)),
    Case("stack", lambda x, y: np.stack([x, y, y]), points(A, A)),
    Case("stack axis", lambda x, y: np.stack((x, y), axis=-1), points(A, A)),
    Case("stack scalars", lambda x: np.stack([x[0] * x[1], x[2], 1.0 * x[4]]), points(V)),
    Case("vstack", lambda x, y: np.vstack((x, y)), points((4,), A)),
    Case("hstack", lambda x, y: (np.hstack((x, x)), np.hstack((y, y))), points(V, A)),
    Case("dstack", lambda x, y: np.dstack((x, y)), points(A, A)),
    Case("column_stack", lambda x, y: np.column_stack((x, y)), points((3,), A)),
    Case("block", lambda x, y: np.block([[x, y], [y.T, np.zeros((2, 2), x.dtype)]]), points((3, 3), (3, 2))),
    Case("block line", lambda x, y: np.block([x, y]), points((3,), (2,))),
    Case("append", lambda x, y: (np.append(x, y), np.append(x, y, axis=0)), points(A, (2, 4))),
    Case("append number", lambda x: np.append(x, x[0]), points(V)),
    Case("insert", lambda x, y: np.insert(x, 2, y), points(V, ())),
    Case("insert many", lambda x, y: np.insert(x, [0, 3, 3], y, axis=1), points(A, (3, 3))),
    Case("insert row", lambda x, y: np.insert(x, 1, y, axis=0), points(A, (4,))),
    Case("insert column", lambda x, y: np.insert(x, 1, y, axis=1), points(A, (3,))),
    Case("insert slice", lambda x, y: np.insert(x, slice(1, 3), y), points(V, (2,))),
    Case("delete", lambda x: (np.delete(x, 1), np.delete(x, [0, -1], axis=1)), points(A)),
    Case("delete slice", lambda x: np.delete(x, slice(None, None, 2), 1), points(A)),
    Case("split", lambda x: np.split(x, 2, axis=1), points(A)),
    Case("split at", lambda x: np.split(x, [1, 1, 3], axis=-1), points(A)),
    Case("array_split", lambda x: np.array_split(x, 3), points(V)),
    Case("hsplit", lambda x: np.hsplit(x, 2), points(A)),
    Case("vsplit", lambda x: np.vsplit(x, [1]), points(A)),
    Case("dsplit", lambda x: np.dsplit(x, 2), points(T)),
    Case("unstack", lambda x: np.unstack(x, axis=1), points(T)),
    Case("iteration", lambda x: [row * 2 for row in x], points(A)),
]
ORDER = [
    Case("tile", lambda x: np.tile(x, 3), points(A)),
    Case("tile two", lambda x: np.tile(x, (2, 1, 3)), points(A)),
    Case("tile fewer", lambda x: np.tile(x, (2,)), points(A)),
    Case("repeat", lambda x: np.repeat(x, 3), points(A)),
    Case("repeat axis", lambda x: np.repeat(x, [1, 0, 2], axis=0), points(A)),
    Case("repeat method", lambda x: x.repeat(2, 1), points(A)),
    Case("roll", lambda x: np.roll(x, 5), points(A)),
    Case("roll axis", lambda x: np.roll(x, -1, axis=1), points(A)),
    Case("roll axes", lambda x: np.roll(x, (1, 2), axis=(0, 1)), points(A)),
    Case("roll twice", lambda x: np.roll(x, 1, axis=(0, 0)), points(A)),
    Case("flip", lambda x: np.flip(x), points(A)),
    Case("flip axis", lambda x: np.flip(x, (0, -1)), points(T)),
    Case("fliplr", lambda x: np.fliplr(x), points(A)),
    Case("flipud", lambda x: np.flipud(x), points(A)),
    *(Case(f"rot90 {k}", lambda x, k=k: np.rot90(x, k, (0, 2)), points(T)) for k in (-1, 0, 1, 2, 3)),
    Case("resize", lambda x: np.resize(x, (3, 5)), points(A)),
    Case("resize smaller", lambda x: np.resize(x, 7), points(A)),
]
PAD = [
    Case("pad", lambda x: np.pad(x, 2), points(A)),
    Case("pad sides", lambda x: np.pad(x, ((1, 2), (0, 3))), points(A)),
    Case("pad dict", lambda x: np.pad(x, {-1: (1, 2)}), points(A)),
    Case("pad constants", lambda x: np.pad(x, 1, constant_values=((1, 2), (3, 4))), points(A)),
    Case(
        "pad traced constant",
        lambda x, c: np.pad(x + 0 * c, ((1, 0), (2, 1)), constant_values=c),
        points(A, ()),
    ),
    *(
        Case(f"pad {mode}", lambda x, mode=mode: np.pad(x, ((1, 2), (2, 0)), mode), points((3, 4)))
        for mode in ("edge", "reflect", "symmetric", "wrap", "linear_ramp", "mean")
    ),
    *(
        Case(f"pad {mode} wide", lambda x, mode=mode: np.pad(x, (7, 5), mode), points((3,)))
        for mode in ("reflect", "symmetric", "wrap")
    ),
    *(
        Case(f"pad {mode} odd", lambda x, m=mode: np.pad(x, (2, 5), m, reflect_type="odd"), points(A, low=0))
        for mode in ("reflect", "symmetric")
    ),
    *(
        Case(f"pad {mode}", lambda x, mode=mode: np.pad(x, 2, mode, stat_length=2), points(A), False)
        for mode in ("maximum", "minimum", "mean", "median")
    ),
    Case("pad ramp", lambda x: np.pad(x, (3, 2), "linear_ramp", end_values=(5, -4)), points(V)),
    Case("pad traced ramp", lambda x, e: np.pad(x + 0 * e, 2, "linear_ramp", end_values=e), points(V, ())),
]
SELECT = [
    Case("take", lambda x: np.take(x, I2), points(A)),
    Case("take axis", lambda x: np.take(x, I2, axis=-1), points(T)),
    Case("take number", lambda x: np.take(x, -1, axis=1), points(T)),
    Case("take wrap", lambda x: np.take(x, [4, -5, 0], mode="wrap", axis=0), points(A)),
    Case("take clip", lambda x: x.take([4, -5, 0], mode="clip", axis=1), points(A)),
    Case(
        "take_along_axis",
        lambda x: np.take_along_axis(x, np.array([[0, 3], [2, 2], [1, 0]]), axis=1),
        points(A),
    ),
    Case("take_along_axis one", lambda x: np.take_along_axis(x, np.array([[2, 1, 0, 0]]), axis=0), points(A)),
    Case("take_along_axis None", lambda x: np.take_along_axis(x, np.array([5, 5, 0]), axis=None), points(A)),
    Case("compress", lambda x: np.compress([True, False, True], x, axis=0), points(A)),
    Case("compress method", lambda x: x.compress([False, True, True]), points(A)),
    Case("extract", lambda x: np.extract(np.eye(3, 4) > 0, x), points(A)),
    Case("unique", lambda x: np.unique(x), points(A), False),
]


def _assigned(assign):
    def f(x, v):
        y = x + 0 * np.ravel(v)[0]  # traced whichever argument is
        assign(y, v)
        return y * x

    return f


ASSIGN = [
    Case("fill_diagonal", _assigned(lambda y, v: np.fill_diagonal(y, v[0])), points(A, V)),
    Case("fill_diagonal list", _assigned(lambda y, v: np.fill_diagonal(y, v)), points((4, 4), (4,))),
    Case(
        "fill_diagonal wrap", _assigned(lambda y, v: np.fill_diagonal(y, v[1], wrap=True)), points((7, 3), V)
    ),
    Case("copyto", _assigned(lambda y, v: np.copyto(y, v)), points(A, (4,))),
    Case("copyto where", _assigned(lambda y, v: np.copyto(y, v, where=np.eye(3, 4) > 0)), points(A, (4,))),
    Case("put", _assigned(lambda y, v: np.put(y, [1, -1, 1], v)), points(A, V)),
    Case("put method", _assigned(lambda y, v: y.put([3, 4], v, mode="wrap")), points(A, (1,))),
    Case(
        "put_along_axis",
        _assigned(lambda y, v: np.put_along_axis(y, np.array([[1], [0], [3]]), v, 1)),
        points(A, (3, 1)),
    ),
    Case(
        "place", _assigned(lambda y, v: np.place(y, np.arange(12).reshape(3, 4) % 2 > 0, v)), points(A, (4,))
    ),
    Case(
        "putmask", _assigned(lambda y, v: np.putmask(y, np.arange(12).reshape(3, 4) % 3 > 0, v)), points(A, V)
    ),
    Case("fill", _assigned(lambda y, v: y.fill(v[2])), points(A, V)),
    Case("sort method", _assigned(lambda y, v: y.sort(axis=0)), points(A, V), False),
    Case("out=", _assigned(lambda y, v: np.concatenate((v, v), out=y)), points((10,), V)),
    Case("take out=", _assigned(lambda y, v: np.take(v, [1, 1, 0], out=y)), points((3,), V)),
]

ALL = SHAPE + DIAGONAL + JOIN + ORDER + PAD + SELECT + ASSIGN


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
def test_rule(case):
    check_case(case)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.reshape(-1), lambda x: x.T, lambda x: np.concatenate([x, x]),
        lambda x: np.stack([x, x], -1),
        lambda x: np.flip(x), lambda x: np.roll(x, 1), lambda x: np.tile(x, 2), lambda x: np.repeat(x, 2),
        lambda x: np.pad(x, 1), lambda x: np.take(x, np.zeros(0, int)), lambda x: np.take(x, []),
        lambda x: np.take(x, [[]], axis=-1),
        lambda x: np.broadcast_to(x, (2, *x.shape)),
        lambda x: np.atleast_3d(x), lambda x: np.squeeze(x), lambda x: np.copy(x),
    ],
)  # fmt: skip
def test_empty_and_single(f, shape):
    x = np.ones(shape)
    value = f(x)
    for mode in ("forward", "reverse"):
        J = ad.jacobian(f, mode=mode)(x)
        assert J.shape == value.shape + shape
        assert J.sum() == np.sum(ad.jvp(f, (x,), (np.ones(shape),))[1])


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda x: np.reshape(x, (5, 5)), ValueError),
        (lambda x: np.transpose(x, (0, 1)), ValueError),
        (lambda x: np.moveaxis(x, 0, 2), np.exceptions.AxisError),
        (lambda x: np.squeeze(x, 0), ValueError),
        (lambda x: np.split(x, 2), ValueError),
        (lambda x: np.stack([x, x[:2]]), ValueError),
        (lambda x: np.take(x, 7), IndexError),
        (lambda x: np.take(x, 0, mode="hop"), ValueError),
        (lambda x: np.concatenate([x[0], x[1]]), ValueError),
        (lambda x: np.flip(x, 1), np.exceptions.AxisError),
        (lambda x: np.transpose(np.diag(x), (0, 0)), ValueError),
        (lambda x: np.diagonal(np.diag(x), 0, 1, 1), ValueError),
    ],
)
def test_numpy_raises_what_it_raises_for_plain_arrays(f, error):
    x = np.arange(3.0)
    with pytest.raises(error):
        f(x)
    for call in (lambda: ad.jvp(f, (x,), (x,)), lambda: ad.vjp(f, x)):
        with pytest.raises(error):
            call()


def test_pad_by_a_function_has_no_rule():
    with pytest.raises(TraceError, match=r"np\.pad.*has no rule"):
        ad.vjp(lambda x: np.pad(x, 1, lambda *a: None), np.ones(3))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.shape(x) + (np.ndim(x), np.size(x)),
        lambda x: np.argsort(x).tolist(), lambda x: np.nonzero(x > 0)[0].tolist(),
        lambda x: np.searchsorted(np.sort(x), 0.1), lambda x: np.digitize(x, [0.0, 1.0]).tolist(),
        lambda x: np.isrealobj(x), lambda x: np.array_equal(x, x), lambda x: np.argmax(x),
        lambda x: str(np.sign(x[0])),
        lambda x: [i.tolist() for i in np.ix_(x > 0)], lambda x: np.array_repr(x), lambda x: len(x),
        lambda x: [i.tolist() for i in np.unique(x, return_inverse=True)[1:]],
        lambda x: np.result_type(x, np.float32),
        lambda x: np.count_nonzero(x), lambda x: bool(np.any(x > 1)), lambda x: np.argwhere(x > 0).tolist(),
        lambda x: np.lexsort((x,)).tolist(), lambda x: x.argmin(), lambda x: x.searchsorted(3.0),
        lambda x: np.tril_indices_from(x[:, None])[0].tolist(), lambda x: (x.nbytes, x.itemsize, x.strides),
    ],
)  # fmt: skip
def test_plain_answers(f):
    x = np.array([0.5, -1.0, 2.0, 0.1])
    seen = []

    def g(x):
        seen.append(f(x))
        return np.sum(x)

    ad.grad(g)(x)
    ad.jvp(g, (x,), (x,))
    assert seen == [f(x), f(x)]


def test_every_rule_is_checked():
    """The functions that the modules of these tests cover are named in the tests' tables."""
    covered = {
        f"rules_{name}"
        for name in (
            "shape", "joining", "selection", "padding", "reduction", "statistics", "signal", "fourier",
            "polynomials",
        )
    }  # fmt: skip
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    missing = [
        function.__name__
        for function, rule in FUNCTIONS.items()
        if getattr(rule, "__module__", "").rpartition(".")[2] in covered
        and not re.search(rf"\b{function.__name__}\b", text)
    ]
    assert not missing


@pytest.mark.parametrize(
    "same",
    [
        lambda x: x.conj(),
        lambda x: x.conjugate(),
        lambda x: x.astype(float, copy=False),
        lambda x: np.astype(x, float, copy=False),
        lambda x: x.astype(float),
        lambda x: x.astype(float, order="F", copy=False),
        np.conjugate,
    ],
)
def test_what_numpy_returns_as_it_is_sees_writes(same):
    x = np.arange(1.0, 7.0).reshape(2, 3)

    def f(x):
        y = x * x
        z = same(y)
        z[0] = 3 * x[1]
        return np.sum(y * z)

    assert ad.vjp(f, x)[0] == f(x)
    check_derivative(f, x)

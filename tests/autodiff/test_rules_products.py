"""Products: values as NumPy's, both modes, second order, chunks; real, complex, broadcast and stacked."""

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.testing import check_derivative


def draw(rng, shape, kind):
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if kind == "c" else x


def one_by_one(f, args, k):
    """The Jacobian in argument k, a direction at a time."""
    x = args[k]
    columns = [
        ad.jvp(lambda y: f(*args[:k], y, *args[k + 1 :]), (x,), (e.reshape(np.shape(x)),))[1]
        for e in np.eye(np.size(x))
    ]
    return np.stack(columns, -1).reshape(np.shape(columns[0]) + np.shape(x))


def check_chunks(f, *args):
    """Jacobians by chunks of directions in either mode equal single ones."""
    for k in range(len(args) if np.size(args[0]) else 0):
        single = one_by_one(f, args, k)
        for mode in ("forward", "reverse"):
            chunked = ad.jacobian(f, mode=mode, argnums=k)(*args)
            np.testing.assert_allclose(chunked, single, rtol=1e-12, atol=1e-12)


MATMUL = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)),
    ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((1, 2, 3), (4, 3, 2)),
    ((1, 1), (1, 1)), ((2, 0), (0, 3)),
]  # fmt: skip

EINSUM = [
    ("i,i", (2,), (1,)), ("ii->i", (3, 3)), ("ii", (3, 3)), ("ij,jk", (2, 3), (3, 4)), ("ij->", (2, 3)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 2)), ("i,j->ij", (2,), (3,)), ("ij,j,ik->k", (2, 3), (3,), (2, 2)),
    ("iij->j", (3, 3, 2)), ("i...,i", (3, 2, 2), (3,)), ("ijk->kj", (2, 3, 4)), ("ij,kj->i", (2, 1), (4, 3)),
    ("iii->i", (2, 2, 2)), (" i j , j -> i ", (2, 3), (3,)), ("...,...", (2, 3), (3,)),
]  # fmt: skip

L = np.linalg
# name: (function, shapes)
PRODUCTS = {
    "dot 1 1": (np.dot, (3,), (3,)),
    "dot 2 1": (np.dot, (2, 3), (3,)),
    "dot 3 2": (np.dot, (4, 2, 3), (3, 2)),
    "dot 2 3": (np.dot, (2, 3), (4, 3, 2)),
    "dot 1 3": (np.dot, (3,), (4, 3, 2)),
    "dot scalar": (np.dot, (), (4, 3)),
    "vdot": (np.vdot, (2, 3), (2, 3)),
    "inner": (np.inner, (4, 3), (2, 3)),
    "inner 3": (np.inner, (2, 4, 3), (3,)),
    "inner scalar": (np.inner, (), (3,)),
    "outer": (np.outer, (2, 2), (3,)),
    "tensordot": (np.tensordot, (2, 3, 4), (3, 4, 2)),
    "tensordot pairs": (lambda a, b: np.tensordot(a, b, ((0, 2), (1, 0))), (2, 3, 4), (4, 2, 3)),
    "tensordot one": (lambda a, b: np.tensordot(a, b, (0, -1)), (2, 3), (3, 2)),
    "tensordot 0": (lambda a, b: np.tensordot(a, b, 0), (2,), (3,)),
    "kron": (np.kron, (2, 3), (3, 2)),
    "kron 1 2": (np.kron, (2,), (3, 2)),
    "cross": (np.cross, (4, 3), (3,)),
    "cross axis": (lambda a, b: np.cross(a, b, axis=0), (3, 2), (3, 2)),
    "cross axes": (lambda a, b: np.cross(a, b, axisa=0, axisb=1, axisc=0), (3, 2), (2, 3)),
    "vecdot": (np.vecdot, (4, 3), (3,)),
    "matvec": (getattr(np, "matvec", np.matmul), (2, 3), (3,)),
    "vecmat": (getattr(np, "vecmat", np.matmul), (3,), (3, 2)),
    "multi_dot": (lambda *a: L.multi_dot(a), (4, 2), (2, 5), (5, 3)),
    "multi_dot vectors": (lambda *a: L.multi_dot(a), (2,), (2, 5), (5, 3), (3,)),
    "multi_dot 2": (lambda *a: L.multi_dot(a), (2, 3), (3, 2)),
    "linalg.matmul": (L.matmul, (2, 3), (3, 2)),
    "linalg.outer": (L.outer, (2,), (3,)),
    "linalg.tensordot": (lambda a, b: L.tensordot(a, b, axes=1), (2, 3), (3, 2)),
    "linalg.cross": (lambda a, b: L.cross(a, b, axis=0), (3, 2), (3, 2)),
    "linalg.vecdot": (lambda a, b: L.vecdot(a, b, axis=0), (3, 2), (3, 2)),
    "linalg.trace": (lambda a: L.trace(a, offset=1), (2, 3, 3)),
    "linalg.diagonal": (lambda a: L.diagonal(a, offset=-1), (2, 3, 3)),
    "linalg.matrix_transpose": (L.matrix_transpose, (2, 3, 4)),
}


@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize(("a", "b"), MATMUL)
def test_matmul(rng, a, b, kind):
    x, y = draw(rng, a, kind), draw(rng, b, kind)
    np.testing.assert_array_equal(ad.vjp(np.matmul, x, y)[0], x @ y)
    check_derivative(np.matmul, x, y)
    if kind == "f":
        check_chunks(lambda x, y: x @ y, x, y)


@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize("case", EINSUM, ids=lambda case: case[0])
def test_einsum(rng, case, kind):
    rule, *shapes = case
    args = [draw(rng, s, kind) for s in shapes]
    f = lambda *a: np.einsum(rule, *a)  # noqa: E731
    np.testing.assert_array_equal(ad.vjp(f, *args)[0], f(*args))
    check_derivative(f, *args)
    if kind == "f":
        check_chunks(f, *args)


@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_product(rng, name, kind):
    f, *shapes = PRODUCTS[name]
    args = [draw(rng, s, kind) for s in shapes]
    value = ad.vjp(f, *args)[0]
    assert np.shape(value) == np.shape(f(*args))
    # the products may be summed in another order
    np.testing.assert_allclose(value, f(*args), rtol=1e-13, atol=1e-14)
    check_derivative(f, *args)
    if kind == "f":
        check_chunks(f, *args)


def _written_diagonal(B):
    d = np.einsum("ii->i", B)
    d += B[0] ** 2
    return np.linalg.det(B) * np.sum(d)


def _written_transpose(B):
    C = np.einsum("ij->ji", B)
    C[0] = 2 * B[1]
    B[2] *= C[1]
    return np.sum(B**2 * C)


def _written_sum(B):
    s = np.einsum("ij->i", B)
    s += 1
    return np.sum(B * s)


@pytest.mark.parametrize("f", [_written_diagonal, _written_transpose, _written_sum])
def test_einsum_without_a_sum_is_a_view(rng, f):
    A = rng.random((3, 3))
    on_copy = lambda A: f(A * 1.0)  # noqa: E731
    assert ad.vjp(on_copy, A)[0] == on_copy(A)
    check_derivative(on_copy, A)


def test_einsum_with_lists_of_labels_and_a_path(rng):
    a, b, c = rng.standard_normal((2, 3)), rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    check_derivative(lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]), a, b)
    check_derivative(lambda a, b: np.einsum(a, [Ellipsis, 1], b, [1, 2]), a, b)
    check_derivative(lambda a, b, c: np.einsum("ij,jk,kl->il", a, b, c, optimize=True), a, b, c)
    with pytest.raises(ValueError, match="2 operands, but 3 terms"):
        ad.grad(lambda a: np.einsum("ij,jk,kl", a, b))(a)


def test_gradients_are_unbroadcast():  # G23
    gx, gy = ad.grad(lambda x, y: np.einsum("i,i", x, y), argnums=(0, 1))(
        np.array([2.0, 5.0]), np.array([3.0])
    )
    np.testing.assert_array_equal(gx, [3.0, 3.0])
    np.testing.assert_array_equal(gy, [7.0])


@pytest.mark.parametrize("f", [np.matmul, np.dot, np.kron, lambda a, b: np.einsum("ij,jk", a, b)])
def test_float32_stays_float32_and_mixed_types_go_home(rng, f):
    a, b = rng.standard_normal((3, 3)).astype(np.float32), rng.standard_normal((3, 3))
    assert ad.grad(lambda a: np.sum(f(a, a)))(a).dtype == np.float32
    ga, gb = ad.grad(lambda a, b: np.sum(f(a, b)), argnums=(0, 1))(a, b)
    assert (ga.dtype, gb.dtype) == (np.float32, np.float64)
    assert ad.grad(lambda b: np.sum(np.real(f(b, 1j * b))))(b).dtype == np.float64


def test_plain_lists_and_traced_lists_take_part():
    x = np.array([1.0, 2.0])
    np.testing.assert_array_equal(ad.grad(lambda x: np.dot(x, [3.0, 4.0]))(x), [3.0, 4.0])
    np.testing.assert_array_equal(ad.grad(lambda x: np.sum([[1.0, 0.0], [1.0, 1.0]] @ x))(x), [2.0, 1.0])
    np.testing.assert_array_equal(ad.grad(lambda x: np.dot([x[0], x[1]], x))(x), [2.0, 4.0])


def test_cross_products_keep_infinities_apart():
    a, b = np.array([np.inf, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(ad.vjp(np.cross, a, b)[0], np.cross(a, b))


def test_shapes_that_do_not_fit_are_named():
    x = np.ones((2, 3))
    with pytest.raises(ValueError, match="shape-mismatch"):
        ad.grad(lambda x: np.sum(np.tensordot(x, x)) + np.sum(np.tensordot(x, x, 1)))(x)
    with pytest.raises(ValueError, match="one-dimensional"):
        ad.grad(lambda x: np.sum(np.linalg.outer(x, x)))(x)
    with pytest.raises(ValueError, match="at least two"):
        ad.grad(lambda x: np.sum(np.linalg.multi_dot([x])))(x)


_rng = np.random.default_rng(3)
M, STACK, ROW = _rng.standard_normal((4, 4)), _rng.standard_normal((3, 2, 4)), _rng.standard_normal(4)


def assigned(x):
    y = np.zeros_like(x)
    y[:] = x
    y[0] = x[1] * x[2]
    return y


PUSHED = {
    "of layers": (lambda p: np.sum(np.tanh(np.tanh(M @ p[0] + p[1]) @ p[2]) ** 2), [M + 1, ROW, M.T - 1]),
    "with itself": (lambda A: np.sum(np.sin(A @ A)), M),
    "with its transpose": (lambda A: np.sum(np.sin(A.T @ A @ M)) + np.sum(A**3), M),
    "quadratic": (lambda x: x @ (M @ x), ROW),
    "linear": (lambda x: np.sum(M @ x), ROW),
    "of vectors": (lambda x: np.sin(x @ M) @ x, ROW),
    "stacked": (lambda A: np.sum(np.tanh(STACK @ A)), M),
    "after an assignment": (lambda x: np.sum(np.exp(assigned(x) @ M)), ROW),
    "in an inner gradient": (lambda x: np.sum(ad.grad(lambda y: np.sum(np.sin(M @ y) * x))(x) ** 2), ROW),
}


@pytest.mark.parametrize("case", PUSHED)
def test_a_hessian_vector_product_leaves_out_the_gradient_only(case):
    """What products give to the inputs has tangents alone: these are those of the whole gradient."""
    f, x = PUSHED[case]
    v = [np.cos(i) for i in x] if isinstance(x, list) else np.cos(x)
    whole = lambda x: ad.jvp(ad.grad(f), (x,), (v,))[1]  # noqa: E731
    product = lambda x: ad.hvp(f, x, v)  # noqa: E731
    np.testing.assert_equal(product(x), whole(x))
    if isinstance(x, list):
        return
    for outer in (
        lambda h: ad.grad(lambda x: np.sum(np.sin(h(x))))(x),
        lambda h: ad.jvp(h, (x,), (v,))[1],
        lambda h: ad.jacobian(h, mode="forward")(x),
    ):
        np.testing.assert_allclose(outer(product), outer(whole), rtol=1e-13, atol=1e-13)

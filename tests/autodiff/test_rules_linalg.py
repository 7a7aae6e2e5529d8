"""np.linalg: values as NumPy's, both modes, second order, chunks; special matrices and what is refused."""

import itertools

import mpmath
import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.testing import check_derivative

L = np.linalg
MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")


def draw(rng, shape, kind):
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if kind == "c" else x


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def hermitian(x):
    return 0.5 * (x + adjoint(x))


def positive(x):
    return x @ adjoint(x) + 2 * np.eye(np.shape(x)[-1], dtype=x.dtype)


def leaves(value):
    return list(value) if isinstance(value, tuple) else [value]


def check_values(f, *args):
    """Values, shapes and types equal NumPy's; sums may round in another order."""
    for traced, expected in zip(leaves(ad.vjp(f, *args)[0]), leaves(f(*args)), strict=True):
        assert np.shape(traced) == np.shape(expected)
        assert np.asarray(traced).dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(traced, expected, rtol=1e-12, atol=1e-12)


def check_chunks(f, *args):
    """Jacobians by chunks of directions in either mode equal single ones."""
    for k, x in enumerate(args):
        g = lambda y, k=k: f(*args[:k], y, *args[k + 1 :])  # noqa: E731
        columns = [ad.jvp(g, (x,), (e.reshape(x.shape),))[1] for e in np.eye(x.size)]
        single = np.stack(columns, -1).reshape(np.shape(columns[0]) + x.shape)
        for mode in ("forward", "reverse"):
            np.testing.assert_allclose(ad.jacobian(g, mode=mode)(x), single, rtol=1e-9, atol=1e-9)


def rebuilt_svd(x, full=False):
    u, s, vh = L.svd(x, full_matrices=full)
    k = np.shape(s)[-1]
    return (u[..., :k] * np.exp(s)[..., None, :]) @ vh[..., :k, :]


def rebuilt_eigh(x, uplo="L"):
    w, u = L.eigh(hermitian(x), uplo)
    return (u * np.exp(w)[..., None, :]) @ adjoint(u)


# name: (function, shapes, kinds); those of symmetric matrices see a symmetric one made of their argument
CASES = {
    "solve 1": (L.solve, [(3, 3), (3,)], "fc"),
    "solve 2": (L.solve, [(3, 3), (3, 2)], "fc"),
    "solve stack": (L.solve, [(2, 3, 3), (3, 2)], "fc"),
    "solve stacked right": (L.solve, [(3, 3), (2, 3, 2)], "fc"),
    "solve stack 1": (L.solve, [(2, 3, 3), (3,)], "fc"),
    "solve broadcast": (L.solve, [(2, 1, 3, 3), (2, 3, 1)], "fc"),
    "inv": (L.inv, [(3, 3)], "fc"),
    "inv stack": (L.inv, [(2, 3, 3)], "fc"),
    "det": (L.det, [(3, 3)], "fc"),
    "det 1": (L.det, [(1, 1)], "fc"),
    "det stack": (L.det, [(2, 3, 3)], "fc"),
    "slogdet": (lambda a: L.slogdet(a)[1], [(3, 3)], "fc"),
    "slogdet both": (lambda a: tuple(L.slogdet(a)), [(2, 3, 3)], "c"),
    "cholesky": (lambda a: L.cholesky(positive(a)), [(3, 3)], "fc"),
    "cholesky upper": (lambda a: adjoint(L.cholesky(positive(a), upper=True)), [(3, 3)], "fc"),
    "cholesky stack": (lambda a: L.cholesky(positive(a)), [(2, 3, 3)], "fc"),
    "qr": (lambda a: tuple(L.qr(a)), [(4, 3)], "fc"),
    "qr square": (lambda a: tuple(L.qr(a, "complete")), [(3, 3)], "fc"),
    "qr wide": (lambda a: tuple(L.qr(a)), [(2, 4)], "fc"),
    "qr r": (lambda a: L.qr(a, mode="r"), [(2, 4, 3)], "fc"),
    "eigh": (lambda a: tuple(L.eigh(hermitian(a))), [(3, 3)], "f"),
    "eigh up": (lambda a: tuple(L.eigh(hermitian(a), UPLO="U")), [(2, 3, 3)], "f"),
    "eigh rebuilt": (rebuilt_eigh, [(3, 3)], "fc"),
    "eigvalsh": (lambda a: L.eigvalsh(hermitian(a)), [(3, 3)], "fc"),
    "eigvalsh stack": (lambda a: L.eigvalsh(hermitian(a), UPLO="U"), [(2, 3, 3)], "fc"),
    "eig": (lambda a: tuple(L.eig(a)), [(3, 3)], "fc"),
    "eig stack": (lambda a: tuple(L.eig(a)), [(2, 3, 3)], "fc"),
    "eigvals": (L.eigvals, [(3, 3)], "fc"),
    "svd": (lambda a: tuple(L.svd(a)), [(3, 3)], "f"),
    "svd tall": (lambda a: tuple(L.svd(a, full_matrices=False)), [(4, 2)], "f"),
    "svd wide": (lambda a: tuple(L.svd(a, full_matrices=False)), [(2, 4)], "f"),
    "svd tall full": (lambda a: tuple(L.svd(a)), [(3, 2)], "f"),
    "svd wide full": (lambda a: tuple(L.svd(a)), [(2, 2, 3)], "f"),
    "svd rebuilt tall": (rebuilt_svd, [(4, 2)], "fc"),
    "svd rebuilt full": (lambda a: rebuilt_svd(a, True), [(2, 5)], "fc"),
    "svd values": (lambda a: L.svd(a, compute_uv=False), [(2, 3, 2)], "fc"),
    "svd hermitian": (lambda a: L.svd(hermitian(a), hermitian=True)[1], [(3, 3)], "fc"),
    "svdvals": (L.svdvals, [(2, 3)], "fc"),
    "pinv": (L.pinv, [(4, 3)], "fc"),
    "pinv wide": (L.pinv, [(2, 2, 3)], "fc"),
    "pinv hermitian": (lambda a: L.pinv(positive(a), hermitian=True), [(3, 3)], "fc"),
    "lstsq": (lambda a, b: L.lstsq(a, b)[0], [(4, 3), (4,)], "fc"),
    "lstsq several": (lambda a, b: L.lstsq(a, b)[:2], [(4, 3), (4, 2)], "fc"),
    "lstsq wide": (lambda a, b: L.lstsq(a, b)[0], [(2, 3), (2, 2)], "fc"),
    "lstsq values": (lambda a, b: L.lstsq(a, b)[3], [(3, 2), (3,)], "fc"),
    "matrix_power 5": (lambda a: L.matrix_power(a, 5), [(3, 3)], "fc"),
    "matrix_power -2": (lambda a: L.matrix_power(a, -2), [(2, 3, 3)], "fc"),
    "matrix_power 0": (lambda a: L.matrix_power(a, 0) + a, [(3, 3)], "fc"),
    "tensorsolve": (L.tensorsolve, [(2, 3, 6), (2, 3)], "fc"),
    "tensorsolve axes": (lambda a, b: L.tensorsolve(a, b, axes=(0, 2)), [(2, 6, 3), (6,)], "fc"),
    "tensorinv": (L.tensorinv, [(2, 3, 6)], "fc"),
    "tensorinv 1": (lambda a: L.tensorinv(a, ind=1), [(6, 2, 3)], "fc"),
    "norm": (L.norm, [(2, 3)], "fc"),
    "norm all": (L.norm, [(2, 3, 2)], "fc"),
    "norm kept": (lambda a: L.norm(a, axis=0, keepdims=True), [(2, 3)], "fc"),
    **{
        f"norm {p}": (lambda a, p=p: L.norm(a, p, axis=-1), [(2, 3)], "fc")
        for p in (None, 1, 2, np.inf, -np.inf, 3, 2.5, 0.5, -1, -2)
    },
    **{
        f"matrix norm {p}": (lambda a, p=p: L.norm(a, p, (0, 2), keepdims=True), [(3, 2, 4)], "fc")
        for p in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
    },
    "matrix_norm": (lambda a: L.matrix_norm(a, ord="nuc"), [(2, 3, 3)], "fc"),
    "vector_norm": (lambda a: L.vector_norm(a, ord=3), [(2, 3)], "fc"),
    **{
        f"cond {p}": (lambda a, p=p: L.cond(a, p), [(3, 3)], "fc")
        for p in (None, -2, 1, -np.inf, "fro", "nuc")
    },
}  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, (_, _, kinds) in CASES.items() for k in kinds])
def test_function(rng, name, kind):
    f, shapes, _ = CASES[name]
    args = [draw(rng, s, kind) for s in shapes]
    check_values(f, *args)
    check_derivative(f, *args)
    value = f(*args)
    if kind == "f" and not isinstance(value, tuple) and not np.iscomplexobj(value):
        check_chunks(f, *args)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case[1] in ([(3, 3)], [(4, 3)])])
def test_float32_stays_float32(rng, name):
    f, shapes, _ = CASES[name]
    args = [draw(rng, s, "f").astype(np.float32) for s in shapes]
    value, pullback = ad.vjp(f, *args)
    kinds = {np.asarray(v).dtype.char for v in leaves(value)}
    assert kinds <= {"f", "F"}
    ones = [np.ones_like(v) for v in leaves(value)]
    assert pullback(tuple(ones) if isinstance(value, tuple) else ones[0])[0].dtype == np.float32


# -- determinants ---------------------------------------------------------------------------------------

SINGULAR = [
    np.zeros((1, 1)), np.zeros((2, 2)), np.zeros((3, 3)), np.diag([1.0, 1, 0]), np.array([[3.0, 6], [1, 2]]),
    np.array([[1.0, 2, 3], [2, 4, 6], [3, 6, 9]]), np.array([[1.0, 0], [1, 1]]), np.diag([1.0, 2, 0, 0]),
]  # fmt: skip


def minor(a):
    return float(mpmath.det(mpmath.matrix(a.tolist())))


def cofactors(a):
    n = len(a)
    return np.array(
        [
            [
                (-1) ** (i + j) * minor(np.delete(np.delete(a, i, 0), j, 1))
                if n > 1 else 1.0
                for j in range(n)
            ]
            for i in range(n)
        ]
    )  # fmt: skip


@pytest.mark.parametrize("a", SINGULAR)
def test_gradient_of_det_is_the_cofactors_everywhere(rng, a):  # G24
    np.testing.assert_allclose(ad.grad(L.det)(a), cofactors(a), atol=1e-13)
    e = rng.standard_normal(a.shape)
    assert ad.jvp(L.det, (a,), (e,))[1] == pytest.approx(np.sum(cofactors(a) * e), abs=1e-12)


@pytest.mark.parametrize("a", SINGULAR)
def test_det_has_its_higher_derivatives_at_singular_matrices(rng, a):
    e, f, g = rng.standard_normal((3, *a.shape))
    hessians = [ad.hessian(L.det, mode=m)(a) for m in MODES]
    for h in hessians:
        np.testing.assert_allclose(h, hessians[0], atol=1e-10)
    # A mixed difference with h = ±½ is exact for polynomials of degree ≤ 4 in this symmetric form.
    second = sum(s * t * L.det(a + 0.5 * (s * e + t * f)) for s, t in itertools.product((1, -1), repeat=2))
    if len(a) < 4:
        assert np.sum(hessians[0] * np.multiply.outer(e, f)) == pytest.approx(second, abs=1e-10)
    along = lambda f, e: lambda a: ad.jvp(f, (a,), (e,))[1]  # noqa: E731
    third = along(along(along(L.det, e), f), g)(a)
    exact = sum(
        s * t * u * L.det(a + 0.5 * (s * e + t * f + u * g))
        for s, t, u in itertools.product((1, -1), repeat=3)
    )
    assert third == pytest.approx(exact, abs=1e-9)
    assert np.sum(ad.grad(along(along(L.det, e), f))(a) * g) == pytest.approx(third, abs=1e-9)


def test_log_determinant_of_a_singular_matrix_has_no_gradient():
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        ad.grad(lambda a: L.slogdet(a)[1])(np.array([[1.0, 2], [2, 4]]))


def test_the_pullback_of_solve_and_all_second_derivatives_factor_once(rng, monkeypatch):
    from mercer.autodiff import rules_linalg

    calls = []
    getrf = rules_linalg.lapack.getrf
    monkeypatch.setattr(rules_linalg.lapack, "getrf", lambda a: calls.append(1) or getrf(a))
    a, b = rng.standard_normal((4, 4)), rng.standard_normal(4)
    ad.hvp(lambda a: np.sum(np.linalg.solve(a, b) ** 2), a, a)
    assert len(calls) == 1
    calls.clear()
    ad.hvp(lambda a: np.linalg.slogdet(a)[1], a, a)
    assert len(calls) == 1


# -- triangles ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "lower"),
    [
        (L.cholesky, True), (lambda a: L.cholesky(a, upper=True), False), (L.eigvalsh, True),
        (lambda a: L.eigvalsh(a, "U"), False), (lambda a: L.eigh(a)[1], True),
    ],
)  # fmt: skip
def test_one_triangle_is_read_and_the_gradient_is_symmetric(rng, f, lower):
    a = positive(rng.standard_normal((3, 3)))
    garbage = np.triu(np.full((3, 3), 7.0), 1)
    spoilt = np.tril(a) + garbage if lower else np.triu(a) + garbage.T
    np.testing.assert_allclose(ad.vjp(f, spoilt)[0], f(a), rtol=1e-12)
    weights = rng.standard_normal(np.shape(f(a)))
    gradient = ad.grad(lambda a: np.sum(weights * f(a)))(a)
    np.testing.assert_array_equal(gradient, gradient.T)


def test_float32_eigenvectors_have_float32_derivatives():
    a = np.array([[2.0, 0.3], [0.1, 1.0]], np.float32)
    f = lambda a: np.sum(np.abs(np.linalg.eig(a)[1]) ** 3) + np.sum(np.linalg.eigvals(a) ** 2)  # noqa: E731
    assert ad.jvp(np.linalg.eig, (a,), (a,))[1][1].dtype == ad.hvp(f, a, a).dtype == np.float32
    twice = np.array([[1.0, 1e-6], [1e-6, 1.0]], np.float32)  # equal eigenvalues, as far as float32 tells
    with pytest.raises(ValueError, match="repeated eigenvalues"):
        ad.jvp(np.linalg.eig, (twice,), (a,))


def test_a_matrix_that_is_not_positive_definite_has_no_factor():
    with pytest.raises(np.linalg.LinAlgError):
        ad.grad(lambda a: np.sum(L.cholesky(a)))(-np.eye(2))


# -- repeated eigenvalues -------------------------------------------------------------------------------


@pytest.fixture
def repeated(rng):
    q = L.qr(rng.standard_normal((4, 4)))[0]
    return hermitian(q @ np.diag([1.0, 2, 2, 3]) @ q.T)


def weights(rng):
    return hermitian(rng.standard_normal((4, 4)))


def test_sums_over_an_eigenspace_are_differentiable(rng, repeated):
    g, e = weights(rng), weights(rng)

    def projected(a):
        w, u = L.eigh(a)
        return np.sum(g * (u[:, 1:3] @ u[:, 1:3].T)) + np.sum(w[1:3] ** 2)

    h = 1e-4
    exact = (projected(repeated + h * e) - projected(repeated - h * e)) / (2 * h)
    assert np.sum(ad.grad(projected)(repeated) * e) == pytest.approx(exact, abs=1e-6)


def test_symmetric_functions_of_eigenvalues_are_right_in_both_modes(rng, repeated):
    for a in (repeated, np.eye(4)):
        np.testing.assert_allclose(ad.grad(lambda a: np.sum(L.eigvalsh(a) ** 3))(a), 3 * a @ a, atol=1e-12)
        e = weights(rng)
        pushed = ad.jvp(lambda a: np.sum(L.eigvalsh(a) ** 3), (a,), (e,))[1]
        assert pushed == pytest.approx(3 * np.sum(a @ a * e), abs=1e-12)


def test_equal_eigenvalues_share_equally():
    np.testing.assert_allclose(ad.grad(lambda a: L.eigvalsh(a)[-1])(np.eye(4)), np.eye(4) / 4, atol=1e-15)
    np.testing.assert_allclose(ad.grad(lambda a: L.svdvals(a)[0])(np.eye(4)), np.eye(4) / 4, atol=1e-15)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: L.eigh(a)[1][0, 1],
        lambda a: L.eigh(a)[1][0, 2],
        lambda a: np.sum(np.sin(L.eigh(a)[1])),
        lambda a: ((lambda w, u: (u * w**2) @ u.T)(*L.eigh(a)))[0, 1],
        lambda a: L.svd(a)[0][0, 1],
        lambda a: ((lambda u, s, vh: (u * s**2) @ vh)(*L.svd(a)))[0, 1],
    ],
)
def test_eigenvectors_of_repeated_eigenvalues_are_refused(rng, repeated, f):
    for a in (repeated, 2 * np.eye(4)):
        with pytest.raises(
            ValueError, match=r"vectors of the repeated .* 2 are not differentiable.*symmetric_function"
        ):
            ad.grad(f)(a)
        with pytest.raises(ValueError, match=r"the repeated .* 2 are not differentiable"):
            ad.jvp(f, (a,), (weights(rng),))


def test_other_eigenvectors_are_not_touched_by_repeated_eigenvalues(rng, repeated):
    e = weights(rng)
    f = lambda a: L.eigh(a)[1][0, 0] ** 2  # noqa: E731
    h = 1e-4
    exact = (f(repeated + h * e) - f(repeated - h * e)) / (2 * h)
    assert np.sum(ad.grad(f)(repeated) * e) == pytest.approx(exact, abs=1e-6)


def test_second_derivatives_at_repeated_eigenvalues_are_refused(rng, repeated):
    for mode in MODES:
        with pytest.raises(
            ValueError, match=r"second derivatives do not exist at repeated eigenvalues \(2\)"
        ):
            ad.hvp(lambda a: np.sum(L.eigvalsh(a) ** 2), repeated, weights(rng), mode=mode)
    with pytest.raises(ValueError, match="second derivatives do not exist at zero singular values"):
        ad.hvp(lambda a: np.sum(L.svdvals(a)), np.diag([1.0, 2, 0]), np.eye(3))


def test_the_polar_factor_is_differentiable_at_repeated_singular_values(rng):
    q, r = (L.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
    a, g, e = q @ np.diag([2.0, 2, 1, 1]) @ r, rng.standard_normal((4, 4)), rng.standard_normal((4, 4))

    def polar(a):
        u, _, vh = L.svd(a)
        return np.sum(g * (u @ vh))

    h = 1e-4
    assert np.sum(ad.grad(polar)(a) * e) == pytest.approx(
        (polar(a + h * e) - polar(a - h * e)) / (2 * h), abs=1e-6
    )


def test_huge_and_tiny_singular_values_do_not_overflow():
    for size in (1e-200, 1e200):  # squares of the singular values are not representable
        a = np.array([[2.0, 0.3], [0.1, 1.0]]) * size
        scaled = ad.grad(lambda a: L.svd(a)[0][0, 0])(a) * size
        np.testing.assert_allclose(scaled, ad.grad(lambda a: L.svd(a)[0][0, 0])(a / size), rtol=1e-12)


def test_what_is_not_differentiable_is_refused():
    a = np.ones((3, 2))
    with pytest.raises(ValueError, match="linearly dependent"):
        ad.grad(lambda a: np.sum(L.qr(a)[0]))(a)
    with pytest.raises(ValueError, match='mode="reduced"'):
        ad.grad(lambda a: np.sum(L.qr(a, "complete")[0]))(a)
    with pytest.raises(ValueError, match="has the rank 1"):
        ad.grad(lambda a: np.sum(L.lstsq(a, np.ones(3))[0]))(a)
    with pytest.raises(ValueError, match="repeated eigenvalues"):
        ad.grad(lambda a: np.real(L.eig(a)[1][0, 0]))(np.eye(2))
    with pytest.raises(ValueError, match="full_matrices=False"):
        ad.grad(lambda a: L.svd(a)[0][0, 3])(np.arange(8.0).reshape(4, 2) ** 2)


# -- norms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [None, 1, 2, 3, 2.5, np.inf, -np.inf, -1, "fro", "nuc", "two"])
def test_norms_have_the_gradient_zero_at_zero(order):  # G19
    matrix = order in ("fro", "nuc", "two")
    x = np.zeros((2, 3)) if matrix else np.zeros(3)
    f = lambda x: L.norm(x, 2 if order == "two" else order)  # noqa: E731
    with np.errstate(divide="ignore"):  # a negative order divides by 0 on its way, as plain NumPy does
        np.testing.assert_array_equal(ad.grad(f)(x), np.zeros_like(x))
        np.testing.assert_array_equal(ad.grad(lambda x: f(x) ** 2)(x), np.zeros_like(x))
        assert ad.jvp(f, (x,), (np.ones_like(x),))[1] == 0


def test_norms_share_at_ties_and_count_without_slope():
    np.testing.assert_array_equal(
        ad.grad(lambda x: L.norm(x, np.inf))(np.array([2.0, -2, 1])), [0.5, -0.5, 0]
    )
    np.testing.assert_allclose(ad.grad(L.norm)(np.array([3.0, 4.0])), [0.6, 0.8], rtol=1e-15)
    np.testing.assert_array_equal(ad.grad(lambda x: L.norm(x, 0) * x[0])(np.array([3.0, 4.0])), [2.0, 0.0])
    with pytest.raises(ValueError, match="Invalid norm order"):
        ad.grad(lambda x: L.norm(x, "fro", axis=0))(np.ones(3))


def test_the_nuclear_norm_has_the_polar_factor_as_its_subgradient():
    a = np.diag([2.0, 2.0, 0.0])
    np.testing.assert_allclose(ad.grad(lambda a: L.norm(a, "nuc"))(a), np.diag([1.0, 1, 0]), atol=1e-15)


def test_the_rank_is_a_plain_value(rng):
    a = rng.standard_normal((3, 3))
    np.testing.assert_array_equal(ad.grad(lambda a: L.matrix_rank(a) * np.sum(a))(a), np.full((3, 3), 3.0))


# -- empty, and all together ----------------------------------------------------------------------------


@pytest.mark.parametrize("f", [L.inv, L.det, L.eigvalsh, L.svdvals, lambda a: L.slogdet(a)[1]])
def test_empty_matrices_and_stacks(f):
    for shape in ((0, 0), (0, 2, 2)):
        assert ad.grad(lambda a: np.sum(f(a)))(np.zeros(shape)).shape == shape


def test_four_nestings_agree_through_everything(rng):
    b, c = rng.standard_normal(4), rng.standard_normal((4, 4))

    def f(x):
        a = positive(x)
        w, u = L.eigh(a + 0.1 * c @ c.T)
        root = ad.inverse_sqrt(a, 0.1)
        return (
            b @ L.solve(a + c, b)
            + L.slogdet(a)[1] * np.sum(np.sin(L.cholesky(a) @ b))
            + np.sum(np.sin(u[:, 1] ** 2 * w[2]))
            + np.sum(np.tanh(root @ b))
        )

    x, v = rng.standard_normal((4, 4)), rng.standard_normal((4, 4))
    check_derivative(f, x)
    products = [ad.hvp(f, x, v, mode=m) for m in MODES]
    for product in products:
        np.testing.assert_allclose(product, products[0], rtol=1e-10, atol=1e-10 * np.max(np.abs(product)))
    full = ad.hessian(f)(x)
    np.testing.assert_allclose(np.tensordot(full, v, 2), products[0], rtol=1e-9, atol=1e-9)

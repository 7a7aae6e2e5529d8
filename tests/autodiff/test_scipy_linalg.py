"""ad.scipy.linalg: values as SciPy's, both modes, second order, chunks."""

import numpy as np
import pytest
import scipy.linalg

import mercer.autodiff as ad
from mercer.autodiff.scipy import linalg
from mercer.testing import check_derivative


def draw(rng, shape, kind):
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if kind == "c" else x


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def hermitian(x):
    return 0.5 * (x + adjoint(x))


def positive(x):
    return x @ adjoint(x) + 2 * np.eye(np.shape(x)[-1])


def leaves(value):
    return list(value) if isinstance(value, tuple) else [value]


def triangular(**options):
    return lambda m: lambda a, b: m.solve_triangular(a, b, **options)


def solved(made=lambda a: a, **options):
    return lambda m: lambda a, b: m.solve(made(a), b, **options)


MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")
S, V, M = (3, 3), (3,), (3, 2)
# name: (module -> function, shapes, kinds)
CASES = {
    **{
        f"solve_triangular {trans} {lower} {unit}": (
            triangular(trans=trans, lower=lower, unit_diagonal=unit), [S, M if lower else V], "fc"
        )
        for trans in (0, "T", 2) for lower in (False, True) for unit in (False, True)
    },
    "solve": (solved(), [S, M], "fc"),
    "solve transposed": (solved(transposed=True), [S, V], "f"),
    "solve sym": (solved(lambda a: 0.5 * (a + np.swapaxes(a, -1, -2)), assume_a="sym"), [S, M], "fc"),
    "solve her": (solved(hermitian, assume_a="her", lower=True), [S, V], "fc"),
    "solve pos": (solved(positive, assume_a="pos"), [S, M], "fc"),
    "solve pos lower": (solved(positive, assume_a="pos", lower=True), [S, V], "fc"),
    "solve upper": (solved(assume_a="upper triangular"), [S, V], "fc"),
    "solve lower": (solved(assume_a="lower triangular"), [S, M], "fc"),
    "solve diagonal": (
        solved(lambda a: np.multiply(a, np.eye(3)), assume_a="diagonal"), [S, M], "fc"
    ),
    "cholesky": (lambda m: lambda a: m.cholesky(positive(a)), [S], "fc"),
    "cholesky lower": (lambda m: lambda a: m.cholesky(positive(a), lower=True), [S], "fc"),
    "cho_solve": (lambda m: lambda a, b: m.cho_solve(m.cho_factor(positive(a)), b), [S, M], "fc"),
    "cho_solve lower": (lambda m: lambda a, b: m.cho_solve(m.cho_factor(positive(a), True), b), [S, V], "fc"),
    "inv": (lambda m: m.inv, [S], "fc"),
    "det": (lambda m: m.det, [S], "fc"),
    "pinv": (lambda m: m.pinv, [M], "fc"),
    "lstsq": (lambda m: lambda a, b: m.lstsq(a, b)[0], [M, V], "fc"),
    "norm": (lambda m: lambda a: m.norm(a, 1), [M], "fc"),
    "eigh": (lambda m: lambda a: m.eigh(hermitian(a)), [S], "f"),
    "eigh part": (lambda m: lambda a: m.eigh(hermitian(a), subset_by_index=(1, 2))[0], [S], "fc"),
    "eigvalsh": (lambda m: lambda a: m.eigvalsh(hermitian(a), lower=False), [S], "fc"),
    "pencil": (lambda m: lambda a, b: m.eigh(hermitian(a), positive(b), eigvals_only=True), [S, S], "fc"),
    "pencil up": (
        lambda m: lambda a, b: np.abs(m.eigh(hermitian(a), positive(b), lower=False)[1]), [S, S], "fc"
    ),
    "eigvals": (lambda m: m.eigvals, [S], "fc"),
    "eig": (lambda m: m.eig, [S], "c"),
    "svd": (lambda m: lambda a: m.svd(a, full_matrices=False), [M], "f"),
    "svdvals": (lambda m: m.svdvals, [M], "fc"),
    "qr": (lambda m: lambda a: m.qr(a, mode="economic"), [M], "fc"),
    "qr full": (lambda m: m.qr, [S], "fc"),
    "expm": (lambda m: m.expm, [S], "fc"),
    "expm stack": (lambda m: m.expm, [(2, 2, 2)], "fc"),
    "sqrtm": (lambda m: lambda a: m.sqrtm(positive(a) + 0.3 * a), [S], "fc"),
    "logm": (lambda m: lambda a: m.logm(positive(a) + 0.3 * a), [(2, 2)], "fc"),
    "solve_sylvester": (lambda m: m.solve_sylvester, [S, (2, 2), M], "fc"),
    "block_diag": (lambda m: m.block_diag, [(2, 3), (2,), (1, 1)], "fc"),
    "toeplitz": (lambda m: m.toeplitz, [V], "fc"),
    "toeplitz rows": (lambda m: m.toeplitz, [V, (4,)], "fc"),
    "circulant": (lambda m: m.circulant, [(4,)], "fc"),
    "hankel": (lambda m: m.hankel, [V], "fc"),
    "hankel rows": (lambda m: m.hankel, [V, (2,)], "fc"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, (_, _, kinds) in CASES.items() for k in kinds])
def test_function(rng, name, kind):
    make, shapes, _ = CASES[name]
    f, args = make(linalg), [draw(rng, s, kind) for s in shapes]
    expected = leaves(make(scipy.linalg)(*args))
    for value in (ad.vjp(f, *args)[0], f(*args)):  # traced and plain
        for found, wanted in zip(leaves(value), expected, strict=True):
            assert np.shape(found) == np.shape(wanted)
            if name not in ("eigh", "eig", "svd"):  # signs and phases of vectors are free
                np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)
    check_derivative(f, *args)
    if kind == "f" and len(expected) == 1 and not np.iscomplexobj(expected[0]):
        for k, x in enumerate(args):
            g = lambda y, k=k: f(*args[:k], y, *args[k + 1 :])  # noqa: E731
            columns = [ad.jvp(g, (x,), (e.reshape(x.shape),))[1] for e in np.eye(x.size)]
            single = np.stack(columns, -1).reshape(np.shape(columns[0]) + x.shape)
            for mode in ("forward", "reverse"):
                np.testing.assert_allclose(ad.jacobian(g, mode=mode)(x), single, rtol=1e-9, atol=1e-9)
            weights = np.cos(np.arange(np.size(expected[0]))).reshape(np.shape(expected[0]))
            total = lambda y, g=g, w=weights: np.sum(w * g(y))  # noqa: E731
            by_columns = [ad.hvp(total, x, e.reshape(x.shape)) for e in np.eye(x.size)]
            by_columns = np.reshape(by_columns, (*x.shape, *x.shape))
            for mode in MODES:
                np.testing.assert_allclose(ad.hessian(total, mode)(x), by_columns, rtol=1e-8, atol=1e-8)


def test_the_other_triangle_is_neither_read_nor_given_a_gradient(rng):
    a, b = rng.standard_normal((3, 3)) + 3 * np.eye(3), rng.standard_normal(3)
    spoilt = np.tril(a) + np.triu(np.full((3, 3), np.nan), 1)
    gradient = ad.grad(lambda a: np.sum(linalg.solve_triangular(a, b, lower=True)))(spoilt)
    assert np.all(np.triu(gradient, 1) == 0)
    assert np.all(np.isfinite(gradient))
    spoilt = positive(a) + np.triu(np.full((3, 3), 9.0), 1)
    f = lambda a: np.sum(linalg.solve(a, b, assume_a="pos", lower=True))  # noqa: E731
    assert ad.value_and_grad(f)(spoilt)[0] == pytest.approx(
        np.sum(np.linalg.solve(positive(a), b)), rel=1e-12
    )


def test_expm_of_what_commutes(rng):
    a = rng.standard_normal((3, 3))
    np.testing.assert_allclose(
        ad.jvp(linalg.expm, (a,), (a,))[1], a @ scipy.linalg.expm(a), rtol=1e-12, atol=1e-12
    )
    for size in (1e-30, 1e30):  # a direction's length changes nothing but the length of the result
        moved = ad.jvp(linalg.expm, (a,), (size * a,))[1]
        np.testing.assert_allclose(moved / size, a @ scipy.linalg.expm(a), rtol=1e-12, atol=1e-12)


def test_what_has_no_derivative_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match="singular matrix: resolution failed at diagonal 1"):
        ad.grad(lambda b: np.sum(linalg.solve_triangular(np.diag([1.0, 0.0]), b)))(np.ones(2))
    with pytest.raises(ValueError, match="closed negative real axis"):
        ad.grad(lambda a: np.real(linalg.sqrtm(a)[0, 0]))(np.diag([1.0, -2.0]))
    with pytest.raises(ValueError, match="pivoting=True is not differentiated"):
        linalg.qr(np.eye(2), pivoting=True)


def test_float32_stays_float32():
    a = np.array([[2.0, 0.5], [0.3, 1.0]], np.float32)
    for f in (
        linalg.expm,
        linalg.sqrtm,
        linalg.inv,
        linalg.cholesky,
        lambda a: linalg.solve_triangular(a, a),
    ):
        value, gradient = ad.value_and_grad(lambda a, f=f: np.sum(f(a)))(a)
        assert (value.dtype, gradient.dtype) == (np.float32, np.float32)


@pytest.mark.filterwarnings("ignore:logm result may be inaccurate")  # of the value, by SciPy
@pytest.mark.parametrize("kind", "fc")
def test_the_logarithm_in_single_precision_has_its_values_type(kind, rng):
    """SciPy's value of float32 is float64: so is the tangent, as accurate as that in float64."""
    single = (np.eye(3) * 4 + draw(rng, (3, 3), kind)).astype("F" if kind == "c" else "f")
    e = draw(rng, (3, 3), kind).astype(single.dtype)
    value, tangent = ad.jvp(linalg.logm, (single,), (e,))
    double = np.result_type(single, np.float64)
    exact = ad.jvp(linalg.logm, (single.astype(double),), (e.astype(double),))[1]
    assert tangent.dtype == value.dtype
    np.testing.assert_allclose(tangent, exact, rtol=1e-12 if value.dtype == double else 1e-5)
    pulled = ad.vjp(linalg.logm, single)[1](value)[0]
    assert pulled.dtype == single.dtype
    np.testing.assert_allclose(np.vdot(pulled, e), np.vdot(value, tangent), rtol=1e-5)

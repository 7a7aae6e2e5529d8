"""Rules of convolutions, interpolation, differences, integrals, counts and Fourier transforms."""

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.testing import check_derivative
from rule_checks import Case, check_case, check_chunks, check_value, flat, points

V, A, T = (5,), (3, 4), (2, 3, 4)
MODES = ("full", "same", "valid")
NODES = np.array([-2.5, -1.0, 0.3, 0.9, 2.6])

CONVOLVE = [
    *(
        Case(f"{f.__name__} {mode} {n} {m}", lambda a, v, f=f, mode=mode: f(a, v, mode), points((n,), (m,)))
        for f in (np.convolve, np.correlate)
        for mode in MODES
        for n, m in ((6, 3), (3, 6), (4, 4), (5, 2), (2, 5), (1, 3))
    ),
    Case("convolve plain", lambda a: np.convolve(a, [1.0, -2.0, 0.5]).astype(a.dtype), points(V)),
]
INTERP = [
    Case("interp", lambda x: np.interp(x, NODES, NODES**2), points(A), False),
    Case("interp number", lambda x: np.interp(x, NODES, NODES**2), (np.array(0.4),), False),
    Case("interp values", lambda f: np.interp([-3.0, 0.5, 1.0, 4.0], NODES, f), points(V)),
    Case("interp all", lambda x, d, f: np.interp(x, NODES + 0.05 * d, f), points((4,), V, V), False),
    Case(
        "interp ends",
        lambda f, e: np.interp([-3.0, 0.5, 4.0] + 0 * e, NODES, f, e, 2 * e),
        points(V, ()),
        False,
    ),
    Case("interp one node", lambda x, f: np.interp(x, [0.123], f), points((4,), (1,)), False),
    Case("interp period", lambda x, f: np.interp(x, NODES, f, period=4.7), points((4,), V), False),
]
DIFFERENCES = [
    Case("diff", lambda x: np.diff(x), points(A)),
    Case("diff twice", lambda x: np.diff(x, 2, axis=0), points(A)),
    Case("diff none", lambda x: np.diff(x, 0) * 2, points(A)),
    Case("diff ends", lambda x, y: np.diff(x, prepend=y, append=0), points(A, ())),
    Case("diff prepend", lambda x, y: np.diff(x, axis=0, prepend=y), points(A, (2, 4))),
    Case("ediff1d", lambda x: np.ediff1d(x), points(A)),
    Case("ediff1d ends", lambda x: np.ediff1d(x, to_end=x[:2], to_begin=x[0]), points(V)),
    Case("trapezoid", lambda y: np.trapezoid(y, dx=0.5), points(A)),
    Case("trapezoid points", lambda y, x: np.trapezoid(y, x, axis=0), points(A, (3,))),
    Case("trapezoid grid", lambda y, x: np.trapezoid(y, x, axis=1), points(A, A)),
    Case("gradient", lambda f: np.gradient(f), points(V)),
    Case("gradient axes", lambda f: np.gradient(f), points(A)),
    Case("gradient axis", lambda f: np.gradient(f, axis=1, edge_order=2), points(A)),
    Case("gradient spacing", lambda f, h: np.gradient(f, h, axis=0), points(A, (), low=0.5)),
    Case("gradient spacings", lambda f, h: np.gradient(f, 0.5, h, edge_order=2), points(A, (), low=0.5)),
    Case("gradient points", lambda f, h: np.gradient(f, np.cumsum(h)), points(V, V, low=0.5)),
    Case("gradient points 2", lambda f, h: np.gradient(f, np.cumsum(h), edge_order=2), points(V, V, low=0.5)),
    Case(
        "gradient even points",
        lambda f: np.gradient(f, np.arange(5.0), edge_order=2).astype(f.dtype),
        points(V),
    ),
    Case("gradient plain points", lambda f: np.gradient(f, [0.0, 1, 3], [0.0, 1, 1.5, 2]), points(A), False),
]
COUNTS = [
    Case("bincount", lambda w: np.bincount([0, 3, 1, 3, 3], w).astype(w.dtype), points(V), False),
    Case("bincount long", lambda w: np.bincount([2, 2, 0, 1, 0], w, 6).astype(w.dtype), points(V), False),
    Case("histogram edges", lambda x: np.histogram(x, 4)[1], points(V), False),
    Case(
        "histogram density", lambda x: np.histogram(x, 4, density=True)[0].astype(x.dtype), points(V), False
    ),
    Case("histogram_bin_edges", lambda x: np.histogram_bin_edges(x, 3), points(V), False),
    Case(
        "histogram weights",
        lambda x, w: np.histogram(x + 0 * w, [-1.5, 0.1, 1.0, 3.0], weights=w)[0].astype(w.dtype),
        points(V, V),
        False,
    ),
]
PARTS = [
    Case("apply_along_axis", lambda x: np.apply_along_axis(lambda v: np.sum(v * v), 1, x), points(T)),
    Case("apply_along_axis vectors", lambda x: np.apply_along_axis(lambda v: v[:2] * v[-1], 0, x), points(T)),
    Case("apply_along_axis matrices", lambda x: np.apply_along_axis(np.diag, -1, x), points(A)),
    Case("apply_over_axes", lambda x: np.apply_over_axes(np.sum, x, [0, 2]), points(T)),
]
ALL = CONVOLVE + INTERP + DIFFERENCES + COUNTS + PARTS


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
def test_rule(case):
    check_case(case)


# -- Fourier transforms -----------------------------------------------------------------------------------

F = np.fft
TRANSFORMS = [
    *(
        (
            f"{f.__name__} n={n} axis={axis} {norm}",
            lambda x, f=f, n=n, axis=axis, norm=norm: f(x, n, axis, norm),
        )
        for f in (F.fft, F.ifft, F.irfft, F.hfft, F.rfft, F.ihfft)
        for n, axis, norm in (
            (None, -1, None),
            (5, 0, "ortho"),
            (2, 1, "forward"),
            (6, -1, "backward"),
            (3, 1, "ortho"),
        )
    ),
    *(
        (
            f"{f.__name__} s={s} axes={axes} {norm}",
            lambda x, f=f, s=s, axes=axes, norm=norm: f(x, s, axes, norm),
        )
        for f in (F.fft2, F.ifft2, F.rfft2, F.irfft2)
        for s, axes, norm in ((None, (-2, -1), None), ((4, 2), (0, 1), "ortho"), ((2, 5), (1, 0), "forward"))
    ),
    *(
        (
            f"{f.__name__} s={s} axes={axes} {norm}",
            lambda x, f=f, s=s, axes=axes, norm=norm: f(x, s, axes, norm),
        )
        for f in (F.fftn, F.ifftn, F.rfftn, F.irfftn)
        for s, axes, norm in ((None, None, None), ((4, 3), (-1, 0), "ortho"), (None, (1,), "forward"))
    ),
    ("fftshift", F.fftshift),
    ("fftshift axis", lambda x: F.fftshift(x, 1)),
    ("ifftshift", lambda x: F.ifftshift(x, axes=(0,))),
]


def _parts(f):
    """Return a transform with real outputs: the real and the imaginary part."""

    def g(x):
        y = f(x)
        return np.concatenate([np.ravel(np.real(y)), np.ravel(np.imag(y))]) if y.dtype.kind == "c" else y

    return g


@pytest.mark.parametrize(("name", "f"), TRANSFORMS, ids=[t[0] for t in TRANSFORMS])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_fourier(name, f, kind):
    (x,) = points(A)
    if kind == "complex":
        if name.startswith(("rfft", "ihfft")):
            with pytest.raises(TypeError):
                ad.vjp(f, x + 1j)
            return
        x = x + 1j * x[::-1, ::-1]
    check_value(f, (x,))
    check_derivative(lambda x: f(x) * np.sum(x), x)
    if kind == "real":
        check_chunks(_parts(f), (x,))
    narrow = x.astype(np.complex64 if kind == "complex" else np.float32)
    value, pullback = ad.vjp(f, narrow)
    assert value.dtype == f(narrow).dtype
    assert pullback(np.ones_like(value))[0].dtype == narrow.dtype


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_transposes_of_fourier_transforms_are_exact(n):
    """Against the matrix of the transform, Re ⟨F x, g⟩ = ⟨x, Fᵀ g⟩ for real x."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n)
    for f in (F.fft, F.rfft, F.ihfft):
        matrix = np.stack([f(e) for e in np.eye(n)], -1)
        g = rng.standard_normal(len(matrix)) + 1j * rng.standard_normal(len(matrix))
        np.testing.assert_allclose(ad.vjp(f, x)[1](g)[0], np.real(matrix.conj().T @ g), atol=1e-14)
    z = rng.standard_normal(n // 2 + 1) + 0j
    g = rng.standard_normal(n)
    real = np.stack([F.irfft(e, n) for e in np.eye(n // 2 + 1)], -1)
    imaginary = np.stack([F.irfft(1j * e, n) for e in np.eye(n // 2 + 1)], -1)
    np.testing.assert_allclose(
        ad.vjp(lambda z: F.irfft(z, n), z)[1](g)[0], real.T @ g + 1j * (imaginary.T @ g), atol=1e-14
    )


def test_parseval():
    x = np.random.default_rng(0).standard_normal(16)
    gradient = ad.grad(lambda x: np.sum(np.abs(F.fft(x, norm="ortho")) ** 2))(x)
    np.testing.assert_allclose(gradient, 2 * x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "call", [lambda x: F.fft(x, 0), lambda x: F.fft(x, norm="odd"), lambda x: F.irfft(x[:1])]
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match=r"Invalid"):
        ad.vjp(call, np.ones(4))


# -- kinks and ends ---------------------------------------------------------------------------------------


def test_interpolation_at_a_node_shares_both_slopes():
    nodes, values = np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 8.0])

    def f(x):
        return np.interp(x, nodes, values)

    for x, slope in ((0.5, 2.0), (1.0, 4.0), (1.5, 6.0), (0.0, 1.0), (2.0, 3.0), (-1.0, 0.0), (3.0, 0.0)):
        assert ad.grad(f)(x) == slope
        assert ad.jvp(f, (x,), (1.0,)) == (f(x), slope)

    # A jump at an end leaves the inner slope's value alone.
    def g(x):
        return np.interp(x, nodes, values, left=-5.0, right=50.0)

    for x in (0.0, 2.0):
        assert ad.vjp(g, x)[0] == g(x)
    np.testing.assert_array_equal(ad.grad(lambda v: np.interp(1.0, nodes, v))(values), [0.0, 1.0, 0.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_weighted_counts_have_the_type_of_their_weights(dtype):
    f = lambda w: np.histogram([0.1, 0.4, 0.9], bins=2, weights=w)[0]  # noqa: E731
    w = np.array([0.5, 2.0, 1.0], dtype)
    value, tangent = ad.jvp(f, (w,), (w,))
    np.testing.assert_array_equal(value, f(w), strict=True)
    np.testing.assert_array_equal(tangent, f(w), strict=True)


def test_convolution_of_nothing():
    for f in (np.convolve, np.correlate):
        with pytest.raises(ValueError, match="empty"):
            ad.vjp(lambda a, f=f: f(a, np.zeros(0)), np.ones(2))


def test_flat_joins_tuples():
    np.testing.assert_array_equal(flat((np.ones((2, 1)), [np.zeros(1), 3.0])), [1, 1, 0, 3])

"""The calls: what goes in, what comes out, and what is refused."""

import functools

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der, rosen_hess

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError

MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")
X = np.array([0.3, -0.7, 1.1])
every_mode = pytest.mark.parametrize("mode", MODES)
both_modes = pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])


def f(x):
    return np.sum(np.sin(x) * x)


def df(x):
    return np.cos(x) * x + np.sin(x)


def d2f(x):
    return np.diag(2 * np.cos(x) - x * np.sin(x))


class TestJvp:
    def test_values(self):
        value, tangent = ad.jvp(f, (X,), (X + 1,))
        assert value == f(X)
        assert tangent == pytest.approx(df(X) @ (X + 1), rel=1e-14)

    def test_several_arguments_and_trees(self):
        value, tangent = ad.jvp(
            lambda p, y: {"a": p["x"] * y, "b": (p["z"][0],)},
            ({"x": X, "z": [2.0]}, 3.0),
            ({"x": X, "z": [5.0]}, 1.0),
        )
        np.testing.assert_allclose(value["a"], 3 * X)
        np.testing.assert_allclose(tangent["a"], 4 * X)
        assert (value["b"], tangent["b"]) == ((2.0,), (5.0,))

    def test_aux(self):
        value, tangent, aux = ad.jvp(lambda x: (x * x, {"seen": x}), (3.0,), (1.0,), has_aux=True)
        assert (value, tangent, aux["seen"]) == (9.0, 6.0, 3.0)
        assert isinstance(aux["seen"], float)

    def test_constant_values_have_zero_tangents(self):
        value, tangent = ad.jvp(lambda x: (np.ones(2), 3, x > 0), (X,), (X,))
        assert [np.shape(t) for t in tangent] == [(2,), (), (3,)]
        assert all(np.all(t == 0) for t in tangent)
        assert value[1] == 3

    def test_integers_count_as_floats(self):
        assert ad.jvp(lambda x: x**2 / 2, (3,), (1,)) == (4.5, 3.0)

    def test_lists_of_numbers_stand_for_the_tangent_of_an_array(self):
        np.testing.assert_array_equal(ad.jvp(lambda x: 2 * x, (X,), ([1, 2, 3],))[1], [2, 4, 6])

    @pytest.mark.parametrize(
        ("primals", "tangents", "error", "message"),
        [
            ((X,), (X[:2],), ValueError, r"tangent 0 has shape \(2,\), what it belongs to has \(3,\)"),
            ((X, X), (X,), ValueError, "there are 2 arguments but 1 tangents"),
            ((X,), ({"x": X},), ValueError, "tangent 0 has the structure .*x.*, what .* is one array"),
            (({"x": X},), (X,), ValueError, "tangent 0 is one array, what .* has the structure"),
            ((X,), (1j * X,), TypeError, "tangent 0 is complex, what it belongs to is real"),
            ((X,), (X > 0,), None, None),
            (X, (X,), TypeError, "primals must be a tuple or a list .* got ndarray"),
            ((X,), X, TypeError, "tangents must be a tuple or a list"),
            (("text",), (X,), TypeError, "argument 0 of .* holds 'text' of type <U4, which cannot be differ"),
            ((np.array([X, None], object),), (X,), TypeError, "cannot be differentiated"),
            ((X,), ("text",), TypeError, "tangent 0 holds 'text'"),
        ],
    )  # fmt: skip
    def test_bad_input(self, primals, tangents, error, message):
        def g(x, y=0.0):
            return np.sum(x)

        if error is None:
            assert ad.jvp(g, primals, tangents)[1] == 2.0
            return
        with pytest.raises(error, match=message):
            ad.jvp(g, primals, tangents)


class TestVjp:
    def test_values(self):
        value, pullback = ad.vjp(lambda x, y: x * y, X, 2.0)
        np.testing.assert_array_equal(value, 2 * X)
        for _ in range(2):
            gx, gy = pullback(np.ones(3))
            np.testing.assert_array_equal(gx, [2, 2, 2])
            assert gy == pytest.approx(np.sum(X))

    def test_trees(self):
        value, pullback = ad.vjp(
            lambda p: [p["a"] * 2, {"b": p["a"] * p["c"]}], {"a": X, "c": 3.0, "d": None}
        )
        (g,) = pullback([np.ones(3), {"b": np.ones(3)}])
        np.testing.assert_array_equal(value[1]["b"], 3 * X)
        np.testing.assert_array_equal(g["a"], [5, 5, 5])
        assert g["c"] == pytest.approx(np.sum(X))
        assert g["d"] is None

    def test_aux(self):
        value, pullback, aux = ad.vjp(lambda x: (x * x, x + 1), 3.0, has_aux=True)
        assert (value, aux, pullback(1.0)) == (9.0, 4.0, (6.0,))

    def test_the_pullback_can_be_differentiated(self):
        g = ad.grad(lambda x: ad.vjp(lambda y: x * y**2, 3.0)[1](1.0)[0] * x)(2.0)
        assert g == 24.0
        pullback = ad.vjp(lambda y: y**2, 3.0)[1]
        assert ad.grad(lambda c: pullback(c)[0])(5.0) == 6.0

    @pytest.mark.parametrize(
        ("cotangent", "error", "message"),
        [
            (np.ones(2), ValueError, r"cotangent 0 has shape \(2,\), what it belongs to has \(3,\)"),
            ((np.ones(3),), ValueError, "cotangent 0 has the structure .* belongs to is one array"),
            (1j * np.ones(3), TypeError, "cotangent 0 is complex"),
        ],
    )
    def test_bad_cotangents(self, cotangent, error, message):
        with pytest.raises(error, match=message):
            ad.vjp(lambda x: x * 2, X)[1](cotangent)


class TestGrad:
    def test_values(self):
        np.testing.assert_allclose(ad.grad(f)(X), df(X), rtol=1e-14)
        value, gradient = ad.value_and_grad(f)(X)
        assert value == f(X)
        np.testing.assert_allclose(gradient, df(X), rtol=1e-14)

    def test_argnums_and_keywords(self):
        def g(a, b, *, c=1.0, power=2):
            return np.sum(a * b**power) * c

        a, b = X, X + 2
        np.testing.assert_allclose(ad.grad(g, argnums=1)(a, b, c=3.0), 6 * a * b)
        for argnums in ((0, 1), [0, 1], (0, -1)):
            ga, gb = ad.grad(g, argnums=argnums)(a, b, power=1)
            np.testing.assert_allclose(ga, b)
            np.testing.assert_allclose(gb, a)
        (only,) = ad.grad(g, argnums=(0,))(a, b)
        np.testing.assert_allclose(only, b**2)
        value, (gb, ga) = ad.value_and_grad(g, argnums=(1, 0))(a, b)
        assert value == pytest.approx(g(a, b))
        np.testing.assert_allclose(ga, b**2)
        np.testing.assert_allclose(gb, 2 * a * b)

    def test_what_is_not_differentiated_may_be_anything(self):
        g = ad.grad(lambda x, name, obj: x**2 if name == "square" else obj)
        assert g(3.0, "square", object()) == 6.0

    def test_aux(self):
        gradient, aux = ad.grad(lambda x: (f(x), {"x": x, "n": 3}), has_aux=True)(X)
        np.testing.assert_allclose(gradient, df(X), rtol=1e-14)
        assert isinstance(aux["x"], np.ndarray)
        (value, aux), gradient = ad.value_and_grad(lambda x: (f(x), "text"), has_aux=True)(X)
        assert (value, aux) == (f(X), "text")
        with pytest.raises(TypeError, match=r"with has_aux=True the function returns \(value, aux\)"):
            ad.grad(f, has_aux=True)(X)

    def test_aux_of_nested_derivatives(self):
        # What the inner derivative hands out is still followed by the outer one.
        def outer(x):
            gradient, aux = ad.grad(lambda y: (y**2 * x, x * y), has_aux=True)(3.0)
            return gradient + aux

        assert ad.grad(outer)(2.0) == 6.0 + 3.0

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.longdouble])
    def test_types_are_kept(self, dtype):
        gradient = ad.grad(lambda x: np.sum(x * x))(X.astype(dtype))
        assert gradient.dtype == dtype
        assert ad.grad(lambda x: x * x)(dtype(2.0)).dtype == dtype
        assert ad.jacobian(lambda x: x * x, "forward")(X.astype(dtype)).dtype == dtype

    @pytest.mark.parametrize("x", [3, np.int32(3), True, np.array(3), np.uint8(3)])
    def test_integers_count_as_float64(self, x):
        gradient = ad.grad(lambda x: x**2 / 4)(x)
        assert gradient == x / 2
        assert gradient.dtype == np.float64

    def test_a_constant_has_a_zero_gradient_of_the_arguments_shape(self):
        np.testing.assert_array_equal(ad.grad(lambda x: 3.0)(X.astype(np.float32)), np.zeros(3, np.float32))
        g = ad.grad(lambda p: p["a"] * 2)({"a": 1.0, "b": X})
        assert g["a"] == 2.0
        np.testing.assert_array_equal(g["b"], np.zeros(3))

    def test_results_are_arrays_of_their_own(self):
        a, b = X.copy(), X.copy()
        ga, gb = ad.grad(lambda a, b: np.sum(a + b), argnums=(0, 1))(a, b)
        ga *= 5
        np.testing.assert_array_equal(gb, np.ones(3))
        v = np.ones(3)
        tangents = ad.jvp(lambda x: (x, np.reshape(x, (3, 1))), (a,), (v,))[1]
        (pulled,) = ad.vjp(lambda x: x, a)[1](v)
        for t in (*tangents, pulled):
            t *= 7
        np.testing.assert_array_equal(tangents[0], tangents[1].ravel())
        np.testing.assert_array_equal(v, np.ones(3))
        for mode in ("forward", "reverse"):
            one, two = ad.jacobian(lambda x: (x, np.broadcast_to(x[0], (2, 3))), mode)(a)
            one += 1
            two += 1
            np.testing.assert_array_equal(one, np.eye(3) + 1)
        np.testing.assert_array_equal(a, X)

    def test_the_wrapped_function_keeps_its_name(self):
        def cost(x):
            """Return the cost."""
            return x * x

        for wrap in (ad.grad, ad.value_and_grad, ad.jacobian, ad.hessian):
            assert wrap(cost).__name__ == "cost"
            assert wrap(cost).__doc__ == "Return the cost."
            wrap(functools.partial(cost))(1.0)

    @pytest.mark.parametrize(
        ("argnums", "error", "message"),
        [
            (2, ValueError, "argnums names argument 2, but g got 2 positional arguments"),
            (-3, ValueError, "argnums names argument -3"),
            ((0, 5), ValueError, "argnums names argument 5"),
            ((0, 0), ValueError, r"argnums \(0, 0\) names an argument twice"),
            ((1, -1), ValueError, r"argnums \(1, -1\) names an argument twice"),
            ("x", TypeError, "argnums must be a whole number or several, got 'x'"),
            ((0.0,), TypeError, "argnums must be a whole number or several"),
        ],
    )
    def test_bad_argnums(self, argnums, error, message):
        def g(a, b):
            return a * b

        with pytest.raises(error, match=message):
            ad.grad(g, argnums=argnums)(1.0, 2.0)
        with pytest.raises(error, match=message):
            ad.jacobian(g, argnums=argnums)(1.0, 2.0)

    @pytest.mark.parametrize(
        ("g", "message"),
        [
            (lambda x: x * 2, r"grad of <lambda>: its value has shape \(3,\), not one number .*return a sc"),
            (lambda x: (x[0], x[1]), r"its value has shapes \(\), \(\), not one number"),
            (lambda x: 1j * x[0], "its value is complex .*holomorphic=True"),
            (lambda x: x.shape[0], "its value has the type int64, which has no derivative"),
            (lambda x: x[0] > 0, "its value has the type bool, which has no derivative"),
            (lambda x: None, r"grad of <lambda>: its value has no number in it \(None.*; return a scalar"),
            (lambda x: "text", "its value has the type <U4, which has no derivative"),
        ],
    )  # fmt: skip
    def test_bad_values(self, g, message):
        with pytest.raises(TraceError, match=message):
            ad.grad(g)(X)

    def test_a_string_leaf(self):
        def g(p):
            return p["x"]

        with pytest.raises(TypeError, match=r"argument 0 of g holds 'relu' of type <U4.*others by argnums"):
            ad.grad(g)({"x": 1.0, "name": "relu"})

    def test_an_object_as_an_argument(self):
        class Net:
            weights = X

        with pytest.raises(TypeError, match=r"argument 0 of .* of type Net, which cannot"):
            ad.grad(lambda net: np.sum(net.weights))(Net())
        with pytest.raises(TypeError, match="of type object"):
            ad.grad(np.sum)(np.array([None]))

    def test_parts_that_are_no_numbers(self):
        # An array of traced values would have a derivative of zero, silently.
        def g(x):
            out = np.zeros(2, object)
            out[0], out[1] = x[0], x[1]
            return out

        for call in (
            lambda: ad.jvp(g, (X,), (X,)),
            lambda: ad.vjp(g, X),
            lambda: ad.jacobian(g, "forward")(X),
            lambda: ad.jacobian(g, "reverse")(X),
        ):
            with pytest.raises(TraceError, match=r"of g: its value has a part of the type object.*np.stack"):
                call()


class TestJacobian:
    @staticmethod
    def g(x):
        return np.stack([x[0] * x[1], np.sin(x[2]), x[0], x[1] ** 2])

    J = np.array([[-0.7, 0.3, 0], [0, 0, np.cos(1.1)], [1, 0, 0], [0, -1.4, 0]])

    @both_modes
    @pytest.mark.parametrize("chunk_size", [None, 1, 2, 3, 100])
    def test_values(self, mode, chunk_size):
        np.testing.assert_allclose(ad.jacobian(self.g, mode, chunk_size=chunk_size)(X), self.J, rtol=1e-14)
        wide = ad.jacobian(lambda x: self.g(x)[:2], mode, chunk_size=chunk_size)(X)
        np.testing.assert_allclose(wide, self.J[:2], rtol=1e-14)

    @both_modes
    def test_shapes(self, mode):
        A = np.arange(6.0).reshape(2, 3)
        J = ad.jacobian(lambda A: A.T @ A, mode)(A)
        assert J.shape == (3, 3, 2, 3)
        dA = np.cos(A)
        np.testing.assert_allclose(np.tensordot(J, dA, 2), dA.T @ A + A.T @ dA, rtol=1e-13)
        assert ad.jacobian(np.sum, mode)(A).shape == (2, 3)
        assert ad.jacobian(lambda c: c * A, mode)(2.0).shape == (2, 3)
        assert np.shape(ad.jacobian(lambda c: c * c, mode)(2.0)) == ()

    @both_modes
    def test_trees_argnums_keywords_and_aux(self, mode):
        def g(p, y, *, k):
            return {"u": p["a"] * y, "v": [p["b"] * k]}, "aux"

        p = {"a": X, "b": 2.0}
        J, aux = ad.jacobian(g, mode, argnums=(0, 1), has_aux=True)(p, 3.0, k=5.0)
        assert aux == "aux"
        (to_p, to_y) = J["u"]
        np.testing.assert_array_equal(to_p["a"], 3 * np.eye(3))
        np.testing.assert_array_equal(to_p["b"], np.zeros(3))
        np.testing.assert_array_equal(to_y, X)
        assert J["v"][0][0]["b"] == 5.0
        np.testing.assert_array_equal(J["v"][0][0]["a"], np.zeros(3))

    @both_modes
    def test_empty(self, mode):
        assert ad.jacobian(lambda x: np.ones(2), mode)(np.zeros(0)).shape == (2, 0)
        assert ad.jacobian(lambda x: x[:0], mode)(X).shape == (0, 3)
        assert ad.jacobian(lambda x: x * 2, mode)(np.zeros(0)).shape == (0, 0)
        assert ad.jacobian(lambda x: x.T, mode)(np.zeros((2, 0))).shape == (0, 2, 2, 0)

    @both_modes
    def test_complex(self, mode):
        z = np.array([0.3 + 1j, -2.0])
        J = ad.jacobian(lambda z: z**2 * z[0], mode, holomorphic=True)(z)
        expected = np.diag(2 * z * z[0])
        expected[:, 0] += z**2
        np.testing.assert_allclose(J, expected, rtol=1e-14)
        with pytest.raises(
            TraceError, match=r"jacobian of <lambda>: its value is complex .*holomorphic=True"
        ):
            ad.jacobian(lambda z: z * z, mode)(z)

    @both_modes
    def test_integer_values_have_zero_rows(self, mode):
        J = ad.jacobian(lambda x: (x > 0, x), mode)(X)
        np.testing.assert_array_equal(J[0], np.zeros((3, 3)))
        np.testing.assert_array_equal(J[1], np.eye(3))

    def test_auto_takes_the_cheaper_mode(self):
        seen = []

        def g(x):
            seen.append(repr(x))
            return np.stack([np.sum(x), np.sum(x * x)])

        ad.jacobian(g)(np.zeros(10))
        assert "reverse" in seen[-1]
        seen.clear()
        ad.jacobian(g)(np.zeros(1))
        assert "forward" in seen[-1]

    def test_bad_options(self):
        with pytest.raises(ValueError, match='mode must be "auto", "forward" or "reverse", got \'backward\''):
            ad.jacobian(f, mode="backward")
        for size in (0, -1, 1.5):
            with pytest.raises(ValueError, match="chunk_size must be a whole number of at least 1"):
                ad.jacobian(f, chunk_size=size)(X)


class TestSecondOrder:
    @every_mode
    def test_values(self, mode):
        np.testing.assert_allclose(ad.hessian(f, mode)(X), d2f(X), rtol=1e-13)
        np.testing.assert_allclose(ad.hvp(f, X, X + 1, mode), d2f(X) @ (X + 1), rtol=1e-13)
        assert ad.hvp(lambda x: x**3, 2.0, 1.0, mode) == pytest.approx(12.0)
        for chunk_size in (1, 2):
            np.testing.assert_allclose(ad.hessian(f, mode, chunk_size=chunk_size)(X), d2f(X), rtol=1e-13)

    @every_mode
    def test_trees(self, mode):
        def g(p):
            return np.sum(p["a"] ** 2 * p["b"])

        p, v = {"a": X, "b": 2.0}, {"a": np.ones(3), "b": 1.0}
        got = ad.hvp(g, p, v, mode)
        np.testing.assert_allclose(got["a"], 4 + 2 * X, rtol=1e-14)
        assert got["b"] == pytest.approx(2 * np.sum(X))
        H = ad.hessian(g, mode)(p)
        np.testing.assert_allclose(H["a"]["a"], 4 * np.eye(3), atol=1e-15)
        np.testing.assert_allclose(H["a"]["b"], 2 * X, rtol=1e-14)
        np.testing.assert_allclose(H["b"]["a"], 2 * X, rtol=1e-14)
        assert H["b"]["b"] == 0

    @every_mode
    def test_argnums_and_keywords(self, mode):
        H = ad.hessian(lambda a, b, c=1.0: a * b**3 * c, mode, argnums=1)(2.0, 3.0, c=5.0)
        assert H == pytest.approx(2 * 6 * 3 * 5)

    @every_mode
    def test_linear_and_constant_functions(self, mode):
        np.testing.assert_array_equal(ad.hessian(np.sum, mode)(X), np.zeros((3, 3)))
        np.testing.assert_array_equal(ad.hessian(lambda x: 1.0, mode)(X), np.zeros((3, 3)))
        assert ad.hessian(lambda x: 1.0, mode)(np.zeros(0)).shape == (0, 0)

    def test_second_directional(self):
        v, w = X + 1, X - 2
        assert ad.second_directional(f, X, v, w) == pytest.approx(w @ d2f(X) @ v, rel=1e-13)
        np.testing.assert_allclose(ad.second_directional(lambda x: x**3, X, v, w), 6 * X * v * w, rtol=1e-14)
        e, d = {"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}
        assert ad.second_directional(lambda p: p["a"] * p["b"], {"a": 1.0, "b": 2.0}, e, d) == 1.0

    def test_third_order(self):
        third = ad.grad(ad.grad(ad.grad(lambda x: x**4)))
        assert third(2.0) == 48.0
        assert ad.jvp(lambda x: ad.hvp(lambda y: y**4, x, 1.0), (2.0,), (1.0,))[1] == 48.0

    def test_bad_modes(self):
        for call in (lambda m: ad.hessian(f, m), lambda m: ad.hvp(f, X, X, mode=m)):
            with pytest.raises(ValueError, match=r"mode must be one of forward-over-forward.* got 'reverse'"):
                call("reverse")


class TestWithScipy:
    def test_rosenbrock_as_scipy_writes_it(self):
        x = np.array([1.3, 0.7, 0.8, 1.9, 1.2])

        def cost(x):
            return np.sum(100.0 * (x[1:] - x[:-1] ** 2.0) ** 2.0 + (1 - x[:-1]) ** 2.0)

        assert cost(x) == rosen(x)
        np.testing.assert_allclose(ad.grad(cost)(x), rosen_der(x), rtol=1e-12)
        for mode in MODES:
            np.testing.assert_allclose(ad.hessian(cost, mode)(x), rosen_hess(x), rtol=1e-12)
        result = minimize(
            cost, x, jac=ad.grad(cost), hessp=lambda x, v: ad.hvp(cost, x, v), method="Newton-CG", tol=1e-12
        )
        np.testing.assert_allclose(result.x, np.ones(5), rtol=1e-7)
        result = minimize(ad.value_and_grad(cost), x, jac=True, method="BFGS")
        np.testing.assert_allclose(result.x, np.ones(5), rtol=1e-5)


def test_what_vjp_returns_may_be_written_into():
    x = np.asfortranarray([[0.1, 0.2], [0.3, 0.4]])
    value, pullback, aux = ad.vjp(lambda x: (np.exp(x), np.exp(x)), x, has_aux=True)
    right = np.exp(x)
    value[...], aux[...], x[...] = 0.0, 0.0, 0.0
    np.testing.assert_array_equal(pullback(np.ones((2, 2)))[0], right)


def test_a_function_sees_the_layout_of_its_points():
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3))

    def f(x):
        y = x * 1.0
        flat = y.reshape(-1)  # a copy for this layout, as in NumPy
        flat[0] = 7 * x[1, 1]
        return np.sum(y) + np.sum(flat)

    np.testing.assert_array_equal(ad.vjp(f, x)[1](1.0)[0], [[1, 2, 2], [2, 9, 2]])
    assert ad.vjp(f, x)[0] == f(x)

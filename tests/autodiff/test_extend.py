"""Users' own rules: opaque functions, better derivatives, and values held constant."""

import math

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError
from mercer.testing import check_derivative

MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")
X = np.array([0.3, -0.7, 1.1])


def opaque(x):
    """The exponential, by Python's own library: nothing traced gets through."""
    assert isinstance(x, np.ndarray)
    return np.array([math.exp(v) for v in x])


exp_vjp = ad.primitive(opaque, vjp=lambda g, ans, x: g * exp_vjp(x))
exp_jvp = ad.primitive(opaque, jvp=lambda t, ans, x: t[0] * exp_jvp(x))
exp_both = ad.primitive(
    opaque, jvp=lambda t, ans, x: t[0] * exp_both(x), vjp=lambda g, ans, x: (exp_both(x) * g,)
)
exp_ans = ad.primitive(opaque, jvp=lambda t, ans, x: t[0] * ans, vjp=lambda g, ans, x: g * ans)

one_rule = pytest.mark.parametrize("exp", [exp_vjp, exp_jvp, exp_both, exp_ans])


class TestPrimitive:
    @one_rule
    def test_all_modes_from_any_rule(self, exp):
        check_derivative(exp, X)
        check_derivative(lambda x: np.sum(exp(x) ** 2) * exp(x), X)
        np.testing.assert_array_equal(exp(X), opaque(X))

    @one_rule
    @pytest.mark.parametrize("mode", MODES)
    def test_second_order(self, exp, mode):
        hessian = ad.hessian(lambda x: np.sum(exp(x)), mode)(X)
        np.testing.assert_allclose(hessian, np.diag(np.exp(X)), rtol=1e-14)

    @one_rule
    @pytest.mark.parametrize("mode", ["forward", "reverse"])
    @pytest.mark.parametrize("chunk_size", [None, 1, 2])
    def test_jacobian(self, exp, mode, chunk_size):
        jacobian = ad.jacobian(exp, mode, chunk_size=chunk_size)(X)
        np.testing.assert_allclose(jacobian, np.diag(np.exp(X)), rtol=1e-14)

    def test_decorator_keeps_name_and_text(self):
        @ad.primitive(jvp=lambda t, ans, x: t[0])
        def same(x):
            """Return x."""
            return x

        assert same.__name__ == "same"
        assert same.__doc__ == "Return x."
        assert ad.grad(same)(2.0) == 1.0

    def test_several_arguments_keywords_and_constants(self):
        def pull(g, ans, a, b, n, scale=1.0):
            return g * b * n * scale, g * a * n * scale, None

        f = ad.primitive(lambda a, b, n, scale=1.0: a * b * n * scale, vjp=pull)
        assert ad.grad(f, argnums=(0, 1))(2.0, 3.0, 5, scale=7.0) == (105.0, 70.0)
        assert ad.grad(f, argnums=1)(2.0, 3.0, 5) == 10.0
        assert ad.jvp(lambda a: f(a, 3.0, 5), (2.0,), (1.0,)) == (30.0, 15.0)
        check_derivative(lambda a, b: f(a, b, 5), X, X + 1)

    def test_tangents_are_zeros_where_nothing_varies(self):
        seen = []

        def push(tangents, ans, x, y, method):
            seen.append(tangents)
            return tangents[0] * y + tangents[1] * x

        f = ad.primitive(lambda x, y, method: x * y, jvp=push)
        tangent = ad.jvp(lambda x: f(x, X, "fast"), (X,), (np.ones(3),))[1]
        np.testing.assert_array_equal(tangent, X)
        np.testing.assert_array_equal(seen[0][1], np.zeros(3))
        assert seen[0][2] is None

    def test_trees(self):
        def fun(state, weights):
            return {"p": state["q"] * weights[0], "n": 3, "s": [state["r"] @ weights[1]]}

        def pull(g, ans, state, weights):
            q, (s,) = g["p"], g["s"]
            return (
                {"q": q * weights[0], "r": s * weights[1]},
                [np.sum(q * state["q"]), s * state["r"]],
            )

        f = ad.primitive(fun, vjp=pull)

        def g(f):
            return lambda state, w: (lambda out: out["p"] * out["s"][0] * out["n"])(f(state, w))

        at = {"q": X, "r": X + 1}, [2.0, X * 2]
        check_derivative(g(f), *at)
        for got, expected in zip(*(ad.vjp(g(h), *at)[1](X)[0].values() for h in (f, fun)), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-14)
        # An output that is not used has the cotangent zero, not None.
        assert ad.grad(lambda w: np.sum(f(at[0], [w, at[1][1]])["s"][0]))(2.0) == 0.0

    def test_types_are_kept(self):
        x = X.astype(np.float32)
        assert ad.grad(lambda x: np.sum(exp_both(x)))(x).dtype == np.float32
        f = ad.primitive(np.real, vjp=lambda g, ans, z: g + 0j, jvp=lambda t, ans, z: np.real(t[0]))
        check_derivative(f, np.array([1 + 2j]))

    def test_opaque_rules_serve_first_order(self):
        f = ad.primitive(
            opaque,
            jvp=lambda t, ans, x: np.array([math.exp(v) for v in x]) * t[0],
            vjp=lambda g, ans, x: np.array([math.exp(v) for v in x]) * g,
        )
        np.testing.assert_allclose(ad.grad(lambda x: np.sum(f(x)))(X), np.exp(X), rtol=1e-14)
        with pytest.raises(TraceError, match=r"float\(\).*test_extend.py"):
            ad.hvp(lambda x: np.sum(f(x)), X, X)

    def test_no_rule(self):
        with pytest.raises(TypeError, match="opaque needs a derivative rule; give jvp=, vjp= or both"):
            ad.primitive(opaque)
        with pytest.raises(TypeError, match="table needs a derivative rule"):
            ad.primitive(name="table")(opaque)
        with pytest.raises(TypeError, match="the jvp of opaque must be a function, got 'linear'"):
            ad.primitive(opaque, jvp="linear")

    @pytest.mark.parametrize(
        ("rules", "message"),
        [
            (
                {"vjp": lambda g, ans, x: np.sum(g)},
                r"vjp of opaque returned a cotangent of shape \(\), but argument 0 has shape \(3,\)",
            ),
            (
                {"vjp": lambda g, ans, x: (g, g)},
                r"vjp of opaque must return a cotangent that is one array, as argument 0 is, got a tuple",
            ),
            (
                {"vjp": lambda g, ans, x: {"x": g}},
                r"vjp of opaque must return a cotangent that is one array, .* got a dict",
            ),
            (
                {"jvp": lambda t, ans, x: t[0][:2]},
                r"jvp of opaque returned a tangent of shape \(2,\), but its value has shape \(3,\)",
            ),
            (
                {"jvp": lambda t, ans, x: t},
                r"jvp of opaque must return a tangent that is one array, as its value is, got a tuple",
            ),
        ],
    )
    def test_wrong_shapes(self, rules, message):
        f = ad.primitive(opaque, **rules)
        with pytest.raises((ValueError, TypeError), match=message):
            ad.grad(lambda x: np.sum(f(x)))(X)
        with pytest.raises((ValueError, TypeError), match=message):
            ad.jvp(f, (X,), (X,))

    def test_wrong_count_and_structure(self):
        f = ad.primitive(lambda a, b: a + b, vjp=lambda g, ans, a, b: g)
        with pytest.raises(ValueError, match=r"a cotangent \(or None\) for each of 2 arguments"):
            ad.grad(f)(1.0, 2.0)
        f = ad.primitive(lambda a: (a, a), jvp=lambda t, ans, a: [t[0], t[0]])
        with pytest.raises(ValueError, match="jvp of <lambda> must return a tangent of the structure"):
            ad.jvp(f, (1.0,), (1.0,))

    def test_none_is_zero(self):
        f = ad.primitive(
            lambda a, b: (a, b), jvp=lambda t, ans, a, b: (t[0], None), vjp=lambda g, ans, a, b: (g[0], None)
        )
        assert ad.jvp(f, (1.0, 2.0), (3.0, 4.0))[1] == (3.0, 0.0)
        assert ad.vjp(f, 1.0, 2.0)[1]((3.0, 4.0)) == (3.0, 0.0)
        check = ad.primitive(lambda x: x, jvp=lambda t, ans, x: None, vjp=lambda g, ans, x: None)
        np.testing.assert_array_equal(ad.grad(lambda x: np.sum(check(x)))(X), 0)

    def test_traced_keyword(self):
        f = ad.primitive(lambda x, scale=1.0: x * scale, vjp=lambda g, ans, x, scale=1.0: g * scale)
        with pytest.raises(
            TraceError, match=r"<lambda>: a traced value comes by keyword.*test_extend.py.*by position"
        ):
            ad.grad(lambda x: f(1.0, scale=x))(1.0)
        assert ad.grad(f)(1.0, scale=3.0) == 3.0

    def test_a_closure_over_a_traced_value_is_told(self):
        def outer(c):
            f = ad.primitive(lambda x: x * c, vjp=lambda g, ans, x: g, name="scaled")
            return f(c)

        with pytest.raises(TraceError, match="scaled: its function uses traced values that are not among"):
            ad.grad(outer)(2.0)

        def pair(c):
            return ad.primitive(lambda x: (x, c), vjp=lambda g, ans, x: g[0], name="pair")(c)[0]

        with pytest.raises(TraceError, match="pair: its function uses traced values"):
            ad.grad(pair)(2.0)

    def test_an_error_inside_leaves_nothing_behind(self):
        def fails(g, ans, x):
            raise ZeroDivisionError("mine")

        f = ad.primitive(opaque, vjp=fails)
        with pytest.raises(ZeroDivisionError, match="mine"):
            ad.grad(lambda x: np.sum(f(x)))(X)
        np.testing.assert_allclose(ad.grad(lambda x: np.sum(exp_both(x)))(X), np.exp(X), rtol=1e-14)

    def test_a_method(self):
        class Scale:
            def __init__(self, by):
                self.by = by

            @ad.primitive(vjp=lambda g, ans, self, x: (None, g * self.by))
            def of(self, x):
                return x * self.by

        np.testing.assert_array_equal(ad.grad(lambda x: np.sum(Scale(3.0).of(x)))(X), 3.0)

    def test_integer_results_are_plain(self):
        count = ad.primitive(lambda x: int(np.sum(x > 0)), vjp=lambda g, ans, x: None)
        assert ad.grad(lambda x: np.sum(x) * count(x))(X).tolist() == [2.0, 2.0, 2.0]
        nothing = ad.primitive(lambda x: None, vjp=lambda g, ans, x: None)
        assert ad.vjp(lambda x: (x, nothing(x)), 1.0)[0] == (1.0, None)


class TestCustomRule:
    @staticmethod
    def softplus(x):
        return np.log(1 + np.exp(x))

    @pytest.mark.lenient
    @pytest.mark.filterwarnings("ignore:overflow")
    def test_a_better_derivative(self):
        safe = ad.custom_rule(self.softplus, jvp=lambda t, ans, x: t[0] / (1 + np.exp(-x)), vjp="transpose")
        assert ad.grad(safe)(1000.0) == 1.0
        assert ad.jvp(safe, (1000.0,), (1.0,))[1] == 1.0
        assert ad.grad(self.softplus)(1000.0) != 1.0
        check_derivative(safe, X)

    def test_a_mode_without_a_rule_is_traced(self):
        def cube(x):
            return x**3

        clipped = ad.custom_rule(cube, vjp=lambda g, ans, x: np.clip(g, -1, 1) * 3 * x**2)
        assert ad.jvp(clipped, (2.0,), (5.0,))[1] == 60.0
        assert ad.vjp(clipped, 2.0)[1](5.0) == (12.0,)
        marked = ad.custom_rule(cube, jvp=lambda t, ans, x: 7 * t[0])
        assert ad.grad(marked)(2.0) == 12.0
        assert ad.jvp(marked, (2.0,), (1.0,))[1] == 7.0
        for f in (ad.custom_rule(cube, jvp=lambda t, ans, x: 3 * x**2 * t[0]),
                  ad.custom_rule(cube, vjp=lambda g, ans, x: 3 * x**2 * g)):  # fmt: skip
            check_derivative(f, X)
            np.testing.assert_allclose(ad.jacobian(f, "forward")(X), np.diag(3 * X**2))
            np.testing.assert_allclose(ad.jacobian(f, "reverse")(X), np.diag(3 * X**2))

    def test_the_rule_counts_at_every_level(self):
        # The given first derivative is differentiated, not the function's own.
        f = ad.custom_rule(np.abs, jvp=lambda t, ans, x: t[0] * np.tanh(1e3 * x), vjp="transpose")
        for mode in MODES:
            assert ad.hessian(f, mode)(0.0) == pytest.approx(1e3)

    def test_trees(self):
        f = ad.custom_rule(
            lambda p: {"y": p["a"] * p["b"][0]},
            vjp=lambda g, ans, p: {"a": g["y"] * p["b"][0], "b": [g["y"] * p["a"]]},
        )
        check_derivative(lambda p: f(p)["y"] * f(p)["y"], {"a": 2.0, "b": [3.0]})

    def test_errors(self):
        with pytest.raises(TypeError, match=r"ad.custom_rule: softplus needs a derivative rule"):
            ad.custom_rule(self.softplus)
        with pytest.raises(TypeError, match="needs a derivative rule"):
            ad.custom_rule(self.softplus, jvp="transpose")


class TestStopGradient:
    def test_no_level_sees_it(self):
        assert ad.grad(lambda x: x * ad.stop_gradient(x))(3.0) == 3.0
        assert ad.jvp(lambda x: ad.stop_gradient(x) ** 2, (3.0,), (1.0,)) == (9.0, 0.0)
        for mode in MODES:
            assert ad.hessian(lambda x: x**2 * ad.stop_gradient(x), mode)(3.0) == 6.0
        # For an outer derivative it is constant, too.
        assert ad.grad(lambda x: ad.grad(lambda y: y * ad.stop_gradient(x * y))(2.0))(3.0) == 0.0

    def test_trees_and_plain_values(self):
        def f(x):
            held = ad.stop_gradient({"a": x, "b": [x * 2, 3], "c": "name"})
            assert isinstance(held["a"], np.ndarray)
            assert held["c"] == "name"
            return np.sum(x * held["b"][0] + held["b"][1])

        np.testing.assert_array_equal(ad.grad(f)(X), 2 * X)
        np.testing.assert_array_equal(ad.stop_gradient(X), X)
        assert ad.stop_gradient(2.0) == 2.0

    def test_writing_into_it_changes_nothing_else(self):
        x = X.copy()

        def f(x):
            held = ad.stop_gradient(x)
            held[:] = 100.0
            return np.sum(x * x)

        np.testing.assert_array_equal(ad.grad(f)(x), 2 * X)
        f(x)
        np.testing.assert_array_equal(x, X)

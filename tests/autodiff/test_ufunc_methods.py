"""Methods of ufuncs on traced values: keywords of calls, reduce, accumulate, reduceat, outer, at."""

import functools

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.errors import NoRuleError, TraceError
from mercer.testing import check_derivative

EPS = np.finfo(float).eps
X = np.array([[0.3, 0.7, 1.21, 0.9], [0.2, 0.8, 0.4, 2.0], [1.1, 0.5, 0.6, 0.1]])


def check(f, *args, order=2, **kwargs):
    """Check the value against NumPy's, the derivatives, and chunked Jacobians."""
    np.testing.assert_allclose(ad.jvp(f, args, args)[0], f(*args), rtol=4 * EPS)
    check_derivative(f, *args, order=order, **kwargs)
    forward = ad.jacobian(f, mode="forward")(*args)
    np.testing.assert_allclose(ad.jacobian(f, mode="reverse")(*args), forward, rtol=1e-12, atol=1e-14)
    x = args[0]
    column = ad.jvp(f, args, (np.ones_like(x), *(np.zeros_like(a) for a in args[1:])))[1]
    total = np.sum(forward, axis=tuple(range(np.ndim(column), np.ndim(forward))))
    np.testing.assert_allclose(total, column, rtol=1e-12, atol=1e-13)


def needs_numpys(ufunc):
    """Skip where NumPy's own reduction of three numbers is wrong, as of power and arctan2 with AVX-512."""
    x = np.array([1.5, 2.0, 0.7])
    if not np.isclose(ufunc.reduce(x), functools.reduce(ufunc, x)):
        np.testing.assert_allclose(ad.vjp(ufunc.reduce, x)[0], functools.reduce(ufunc, x), rtol=4 * EPS)
        pytest.skip(f"np.{ufunc.__name__}.reduce({x}) is {ufunc.reduce(x)} on this machine")


REDUCED = [np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2,
           np.hypot, np.subtract, np.true_divide, np.power, np.arctan2]  # fmt: skip


@pytest.mark.parametrize("ufunc", REDUCED, ids=lambda u: u.__name__)
class TestReduce:
    def test_axes(self, ufunc):
        needs_numpys(ufunc)
        check(ufunc.reduce, X)
        check(lambda x: ufunc.reduce(x, axis=-1), X)
        check(lambda x: ufunc.reduce(x, axis=1, keepdims=True), X, order=1)
        check(lambda x: ufunc.reduce(x, 0), X[:, 0])
        if ufunc not in (np.subtract, np.true_divide, np.power, np.arctan2):
            check(lambda x: ufunc.reduce(x, axis=(0, 1)), X, order=1)
            check(lambda x: ufunc.reduce(x, axis=None), X, order=1)

    def test_initial_and_where(self, ufunc):
        needs_numpys(ufunc)
        check(lambda x: ufunc.reduce(x, axis=1, initial=0.45), X, order=1)
        if ufunc not in (np.subtract, np.true_divide, np.power, np.arctan2):
            check(lambda x: ufunc.reduce(x, axis=1, initial=0.45, where=X > 0.35), X, order=1)

    def test_one_entry(self, ufunc):
        check(ufunc.reduce, X[:1], order=1)

    def test_types(self, ufunc):
        x = X.astype("f")
        value, tangent = ad.jvp(ufunc.reduce, (x,), (x,))
        assert value.dtype == tangent.dtype == ad.vjp(ufunc.reduce, x)[1](value)[0].dtype == np.dtype("f")

    def test_accumulate(self, ufunc):
        check(ufunc.accumulate, X)
        check(lambda x: ufunc.accumulate(x, axis=-1), X)
        check(ufunc.accumulate, X[0], order=1)
        assert ad.vjp(ufunc.accumulate, X[:0])[1](X[:0])[0].shape == (0, 4)

    def test_reduceat(self, ufunc):
        needs_numpys(ufunc)
        check(lambda x: ufunc.reduceat(x, [0, 2, 1, 1], axis=1), X)
        check(lambda x: ufunc.reduceat(x, [1]), X, order=1)

    def test_outer(self, ufunc):
        check(lambda x: ufunc.outer(x, np.array([[1.1, 0.6]])), X[0], order=1)
        check(lambda x: ufunc.outer(np.array([[1.1, 0.6]]), x), X[0], order=1)

    def test_at(self, ufunc):
        def at(x, b):
            out = np.copy(x)
            ufunc.at(out, [0, 1, 0, 0], b)
            return out

        b = np.array([0.4, 1.3, 0.35, 1.2])
        check_derivative(at, X[0], b)
        check_derivative(lambda b: at(np.zeros_like(b) + X[1], b), b, order=1)


class TestProducts:
    @pytest.mark.parametrize("zeros", [0, 1, 2, 3])
    def test_zeros_are_exact(self, zeros):
        x = np.array([2.0, 3.0, -0.5, 4.0])
        x[:zeros] = 0
        others = [np.prod(np.delete(x, i)) for i in range(4)]
        assert ad.grad(np.multiply.reduce)(x).tolist() == others
        assert ad.jvp(np.multiply.reduce, (x,), (np.ones(4),))[1] == sum(others)
        check_derivative(np.multiply.reduce, x)
        check_derivative(np.multiply.accumulate, x)


class TestTies:
    def test_of_a_reduction(self):
        x = np.array([1.0, 3.0, 3.0, 3.0])
        for f in (np.maximum, np.fmax):
            np.testing.assert_allclose(ad.grad(f.reduce)(x), [0, 1 / 3, 1 / 3, 1 / 3])
        for f in (np.minimum, np.fmin):
            np.testing.assert_allclose(ad.grad(f.reduce)(-x), [0, 1 / 3, 1 / 3, 1 / 3])

    def test_of_a_running_extremum(self):
        x = np.array([1.0, 1.0, 0.0, 2.0, 2.0, 2.0, 1.0])
        want = np.array([
            [1, 0, 0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0, 0, 0],
            [0, 0, 0, 1, 0, 0, 0],
            [0, 0, 0, 0.5, 0.5, 0, 0], [0, 0, 0, 1 / 3, 1 / 3, 1 / 3, 0], [0, 0, 0, 1 / 3, 1 / 3, 1 / 3, 0],
        ])  # fmt: skip
        for mode in ("forward", "reverse"):
            np.testing.assert_allclose(ad.jacobian(np.maximum.accumulate, mode=mode)(x), want)
            np.testing.assert_allclose(ad.jacobian(np.minimum.accumulate, mode=mode)(-x), want)


class TestLogaddexp:
    @pytest.mark.lenient
    def test_infinities(self):
        g = ad.grad(np.logaddexp.reduce)
        assert g(np.array([-np.inf, -np.inf])).tolist() == [0.5, 0.5]
        assert g(np.array([-np.inf, 2.0])).tolist() == [0, 1]
        assert g(np.array([np.inf, 2.0])).tolist() == [1, 0]

    def test_large_entries_have_exact_shares(self):
        g = ad.grad(np.logaddexp.reduce)(np.array([1e9, 1e9 - 1]))
        np.testing.assert_allclose(g, [1 / (1 + np.exp(-1)), 1 / (1 + np.e)], rtol=4 * EPS)


class TestOut:
    def test_into_a_traced_array(self):
        def f(x):
            out = np.zeros_like(x)
            view = out[1:]
            assert np.sin(x, out=out) is out
            np.multiply(out, x, out=out)
            return out + np.sum(view**2)

        check_derivative(f, X[0])
        np.testing.assert_allclose(
            ad.jvp(f, (X[0],), (X[0],))[0], X[0] * np.sin(X[0]) + np.sum((X[0] * np.sin(X[0]))[1:] ** 2)
        )

    def test_in_place_operators(self):
        def f(x):
            y = np.copy(x)
            same = y
            y += x
            y *= np.sin(x)
            y **= 2
            y /= 3.0
            y -= 1
            assert same is y
            return y

        check_derivative(f, X[0])

    def test_a_scalar_gets_a_new_value(self):
        def f(x):
            y = x
            y += 1
            return x * y

        assert ad.grad(f)(3.0) == 7.0

    def test_two_outputs(self):
        def f(x):
            whole, part = np.zeros_like(x), np.zeros_like(x)
            np.divmod(x, 0.33, out=(whole, part))
            return part * x

        check_derivative(f, X[0])

    def test_constants_overwrite(self):
        def f(x):
            y = x * 2
            np.add(1.0, np.ones(4), out=y)
            return np.sum(y * x)

        assert ad.grad(f)(X[0]).tolist() == [2, 2, 2, 2]

    def test_a_plain_array_is_refused(self):
        out = np.zeros(4)
        with pytest.raises(TraceError, match=r"np\.sin\(out=.*plain array.*zeros_like"):
            ad.grad(lambda x: np.sum(np.sin(x, out=out)))(X[0])
        with pytest.raises(TraceError, match=r"in-place np\.add: .*zeros_like"):
            ad.grad(lambda x: np.sum(np.add(out, x, out=out)))(X[0])
        with pytest.raises(TraceError, match=r"np\.add\(out="):
            ad.grad(lambda x: np.sum(np.add.reduce(x, out=out[0:1].reshape(()))))(X[0])
        with pytest.raises(TraceError, match=r"np\.add\.at.*zeros_like"):
            ad.grad(lambda x: np.add.at(out, [0], x[0]) or x[0])(X[0])
        assert out.tolist() == [0, 0, 0, 0]

    def test_a_plain_array_takes_what_is_constant(self):
        flags = np.zeros(4, bool)
        ad.grad(lambda x: np.sum(x[np.greater(x, 0.5, out=flags)]))(X[0])
        assert flags.tolist() == [False, True, True, True]

    def test_shape_and_type(self):
        with pytest.raises(ValueError, match=r"result has shape \(4,\), out has \(1,\)"):
            ad.grad(lambda x: np.sum(np.sin(x, out=x[:1] * 1)))(X[0])
        with pytest.raises(TypeError, match="Cannot cast"):
            ad.grad(lambda x: np.sum(np.exp(x * 1j, out=x * 1)))(X[0])


class TestWhere:
    def test_nothing_is_computed_elsewhere(self):
        x = np.array([-1.0, 0.0, 2.0])

        def f(x, y):
            out = y * 1
            np.log(x, out=out, where=x > 0)
            return out * y

        check_derivative(lambda v: f(np.stack([-1.0, 0.0, 1.0]) + v * np.array([0, 0, 1.0]), v), x + 3)
        assert ad.grad(lambda x: np.sum(f(x, np.ones(3) + 0 * x)))(x).tolist() == [0, 0, 0.5]

    def test_without_out_the_rest_is_zero(self):
        with pytest.warns(UserWarning, match="where= without out="):
            value, tangent = ad.jvp(
                lambda x: np.sqrt(x, where=np.array([True, False])), (np.array([4.0, -1.0]),), (np.ones(2),)
            )
        assert value.tolist() == [2, 0]
        assert tangent.tolist() == [0.25, 0]

    def test_broadcasting(self):
        def f(x, y):
            out = np.zeros_like(X) + y[:, None]
            return np.multiply(x, y[:, None], out=out, where=np.array([True, False, True, True]))

        check_derivative(f, X[0], X[:, 0])

    def test_nowhere_and_scalars(self):
        def f(x):
            return np.exp(x, out=x * 2, where=np.zeros(4, bool))

        assert ad.jvp(f, (X[0],), (np.ones(4),))[1].tolist() == [2] * 4


class TestDtype:
    def test_of_the_computation(self):
        x = X[0].astype("f")
        value, tangent = ad.jvp(lambda x: np.add(x, 1, dtype=float), (x,), (x,))
        assert value.dtype == tangent.dtype == float
        assert ad.grad(lambda x: np.sum(np.multiply(x, x, dtype=complex).real))(x).dtype == np.dtype("f")
        assert ad.vjp(lambda x: np.add.reduce(x, dtype=float), x)[1](1.0)[0].dtype == np.dtype("f")
        assert ad.jvp(lambda x: np.exp(x, dtype="f", casting="same_kind"), (X[0],), (X[0],))[
            1
        ].dtype == np.dtype("f")

    def test_casting(self):
        with pytest.raises(TypeError, match=r"Cannot cast np\.exp's input"):
            ad.grad(lambda x: np.sum(np.exp(x, dtype="f", casting="safe")))(X[0])
        with pytest.raises(TypeError, match="Cannot cast"):
            ad.grad(lambda x: np.sum(np.add(x, 1, dtype=int)))(X[0])
        with pytest.raises(TraceError, match="dtype="):
            ad.grad(lambda x: np.sum(np.exp(x, signature="d->d")))(X[0])


class TestRefusals:
    def test_no_rule(self):
        from scipy.special import smirnov

        with pytest.raises(NoRuleError, match=r"scipy\.special\.smirnov"):
            ad.grad(lambda x: smirnov.reduce(x))(X[0])
        with pytest.raises(ValueError, match="binary"):
            ad.grad(lambda x: np.sin.reduce(x))(X[0])
        with pytest.raises(ValueError, match="binary"):
            ad.grad(lambda x: np.sin.accumulate(x))(X[0])
        with pytest.raises(ValueError, match="binary"):
            ad.grad(lambda x: np.sin.outer(x, x))(X[0])

    def test_axis_and_indices(self):
        with pytest.raises(np.exceptions.AxisError):
            ad.grad(lambda x: np.logaddexp.reduce(x, axis=3))(X)
        with pytest.raises(IndexError, match="index 9"):
            ad.grad(lambda x: np.add.reduceat(x, [9]))(X[0])
        with pytest.raises(ValueError, match="zero-size"):
            ad.grad(lambda x: np.arctan2.reduce(x))(X[0, :0])

    def test_comparison_reductions_are_plain(self):
        def f(x):
            assert np.logical_and.reduce(x > 0) is np.True_
            assert np.logical_or.reduce(x) is np.True_
            return x[0]

        ad.grad(f)(X[0])


class TestAt:
    def test_unary_and_slices(self):
        def f(x):
            out = x * 1
            np.negative.at(out, [0, 1, 0, 2])
            np.square.at(out, [1, 1])
            np.multiply.at(out, slice(1, 3), x[:2])
            np.add.at(out, np.array([True, False, True, True]), x[:3])
            np.subtract.at(out, (np.array([0, 0]),), x[1])
            return out

        check_derivative(f, X[0])
        np.testing.assert_array_equal(ad.jvp(f, (X[0],), (X[0],))[0], f(X[0]))

    def test_in_two_dimensions(self):
        def f(x, b):
            out = x * 1
            np.add.at(out, ([0, 0, 2], [1, 1, 3]), b)
            np.multiply.at(out, (slice(None), [1, 1]), b[:2])
            return out

        check_derivative(f, X, np.array([0.4, 1.3, 0.35]))

"""Bug reports of the given list that concern differentiation, each with its kind around it."""

import numpy as np
import pytest

import mercer.autodiff as ad

MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")
BOTH = ("forward", "reverse")
both = pytest.mark.parametrize("mode", BOTH)


def slope(f, x, mode):
    """The derivative of a function, by one mode; of a scalar function the gradient."""
    return ad.jacobian(f, mode)(x)


@both
class TestG19NormAndAbsoluteValueAtZero:
    def test_values(self, mode):
        zero = np.zeros(3)
        np.testing.assert_array_equal(slope(np.linalg.norm, zero, mode), zero)
        np.testing.assert_array_equal(slope(lambda x: np.linalg.norm(x) ** 2, zero, mode), zero)
        assert slope(np.abs, 0.0, mode) == 0.0
        np.testing.assert_allclose(slope(np.linalg.norm, np.array([3.0, 4.0]), mode), [0.6, 0.8], rtol=1e-12)

    @pytest.mark.parametrize("ord", [None, 2, 1, 3, 1.5, np.inf])
    def test_other_norms(self, mode, ord):
        np.testing.assert_array_equal(slope(lambda x: np.linalg.norm(x, ord), np.zeros(3), mode), np.zeros(3))

    def test_parts_at_zero(self, mode):
        A = np.array([[0.0, 0.0], [3.0, 4.0]])
        J = slope(lambda A: np.linalg.norm(A, axis=1), A, mode)
        np.testing.assert_allclose(J[0], 0)
        np.testing.assert_allclose(J[1], [[0, 0], [0.6, 0.8]], rtol=1e-12)
        np.testing.assert_array_equal(
            slope(lambda x: np.sum(np.abs(x)), np.array([-2.0, 0, 3]), mode), [-1, 0, 1]
        )


@both
class TestG20TheBranchNotTaken:
    def test_values(self, mode):
        def f(x):
            return np.sum(np.where(x > 0, x * np.log(np.where(x > 0, x, 1)), 0))

        def g(x):
            safe = np.where(x == 0, 1, x)
            return np.sum(np.where(x == 0, 1, np.sin(x) / safe))

        np.testing.assert_allclose(slope(f, np.array([0.0, 2]), mode), [0, 1.6931471805599454], rtol=1e-12)
        np.testing.assert_allclose(slope(g, np.array([0.0, 1]), mode), [0, -0.3011686789397568], rtol=1e-12)

    @pytest.mark.lenient
    @pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
    def test_without_the_inner_selection_the_selected_branch_counts(self, mode):
        got = slope(lambda x: np.sum(np.where(x > 0, x * np.log(x), 0)), np.array([0.0, 2]), mode)
        np.testing.assert_allclose(got, [0, 1.6931471805599454], rtol=1e-12)
        got = slope(lambda x: np.sum(np.where(x > 0, np.sqrt(x), -x)), np.array([0.0, 4]), mode)
        np.testing.assert_allclose(got, [-1, 0.25])


class TestG21AnIndexUsedTwice:
    A = np.arange(6.0).reshape(3, 2)
    weights = np.array([1.0, 10, 100, 1000])

    @both
    def test_values(self, mode):
        x = np.array([2.0, 3, 5])
        np.testing.assert_array_equal(
            slope(lambda x: np.sum(self.weights * x[[0, 2, 0, 0]]), x, mode), [1101, 0, 10]
        )
        np.testing.assert_array_equal(slope(lambda x: x[[0, 0]], x, mode), [[1, 0, 0], [1, 0, 0]])
        np.testing.assert_array_equal(slope(lambda x: np.sum(x[[-1, 2]]), x, mode), [0, 0, 2])
        got = slope(lambda A: np.sum(np.array([1, 4, 1, 1]) * A[[0, 2, 0, 0], [0, 1, 0, 0]]), self.A, mode)
        np.testing.assert_array_equal(got, [[3, 0], [0, 0], [0, 4]])
        np.testing.assert_array_equal(slope(lambda x: np.sum(np.take(x, [1, 1, -2])), x, mode), [0, 3, 0])

    @pytest.mark.parametrize("mode", MODES)
    def test_second_order(self, mode):
        H = ad.hessian(lambda x: np.sum(x[[0, 0]] ** 2), mode)(np.ones(3))
        np.testing.assert_array_equal(H, np.diag([4, 0, 0]))


@both
class TestG22EqualMaxima:
    def test_values(self, mode):
        np.testing.assert_array_equal(slope(np.max, np.array([2.0, 2, 1]), mode), [0.5, 0.5, 0])
        assert slope(lambda x: np.max(np.stack([x, x])), 5.0, mode) == 1.0
        assert slope(lambda x: np.maximum(x, x), 5.0, mode) == 1.0
        a, b = ad.jacobian(np.maximum, mode, argnums=(0, 1))(1.0, 1.0)
        assert a + b == 1.0
        assert a == b
        assert slope(lambda x: np.max(np.stack([x, 3 * x])), 2.0, mode) == 3.0

    @pytest.mark.parametrize("extreme", [np.max, np.min, np.amax, np.amin])
    def test_shares_sum_to_one(self, mode, extreme):
        A = np.array([[1.0, 1, 1], [2, 0, 0], [0, 2, 2]])
        J = slope(lambda A: extreme(A, axis=1), A, mode)
        np.testing.assert_allclose(J.sum(axis=(1, 2)), 1, rtol=1e-15)
        assert np.all(J >= 0)


class TestG23ShapeAndTypeOfAGradient:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_values(self, dtype):
        a = np.array([[1], [2], [3]], dtype)
        b, c = np.array([0, 1, 2, 3], dtype), np.array(2, dtype)
        da, db, dc = ad.grad(lambda a, b, c: np.sum(c * a * b), argnums=(0, 1, 2))(a, b, c)
        np.testing.assert_array_equal(da, [[12.0]] * 3)
        np.testing.assert_array_equal(db, [12.0] * 4)
        assert np.shape(dc) == ()
        assert dc == 36.0
        assert da.dtype == db.dtype == dc.dtype == dtype
        x, y = np.array([2, 5], dtype), np.array([3], dtype)
        dx, dy = ad.grad(lambda x, y: np.einsum("i,i", x, y), argnums=(0, 1))(x, y)
        np.testing.assert_array_equal(dx, [3, 3])
        np.testing.assert_array_equal(dy, [7])
        assert dx.dtype == dy.dtype == dtype

    def test_integer_arguments(self):
        gradient = ad.grad(lambda x: np.sum(x**2 / 4))(np.array([1, 2, 3]))
        assert gradient.dtype == np.float64
        np.testing.assert_array_equal(gradient, [0.5, 1, 1.5])


@both
class TestG24DeterminantOfASingularMatrix:
    @pytest.mark.parametrize(
        ("A", "cofactors"),
        [
            ([[3, 6], [1, 2]], [[2, -1], [-6, 3]]),
            (np.zeros((2, 2)), np.zeros((2, 2))),
            (np.diag([1, 1, 0]), np.diag([0, 0, 1])),
            ([[0]], [[1]]),
            ([[1, 0], [1, 1]], [[1, -1], [0, 1]]),
            (np.zeros((3, 3)), np.zeros((3, 3))),
        ],
    )
    def test_values(self, mode, A, cofactors):
        np.testing.assert_allclose(slope(np.linalg.det, np.array(A, float), mode), cofactors, atol=1e-10)


class TestG25ADerivativeInsideADerivative:
    @staticmethod
    def derivative(mode):
        if mode == "forward":
            return lambda f, x: ad.jvp(f, (x,), (1.0,))[1]
        return lambda f, x: ad.grad(f)(x)

    @pytest.mark.parametrize("outer", BOTH)
    @pytest.mark.parametrize("inner", BOTH)
    def test_values(self, outer, inner):
        D, E = self.derivative(outer), self.derivative(inner)
        assert D(lambda x: x**2 * E(lambda y: x * y + y**2, 2.0), 3.0) == 51.0
        assert D(lambda x: x * E(lambda y: x**2 * y**3, 2.0), 0.5) == 9.0
        assert D(lambda x: E(lambda y: x * y**2, x), 3.0) == 12.0
        assert D(lambda x: x * ad.jvp(lambda y: x * y**2, (2.0,), (3.0,))[1], 3.0) == 72.0
        # Three levels, each using the others' variables.
        assert D(lambda x: E(lambda y: D(lambda z: x * y * z**2, x) * y, x), 3.0) == 4 * 3 * 3.0**2


@both
class TestG26WritingIntoAnArray:
    """Writes into arrays that are traced are followed; into a plain array, an error names the remedy."""

    @pytest.mark.parametrize(
        "make", [lambda p, n: np.zeros(n, like=p), lambda p, n: np.zeros_like(p, shape=n)]
    )
    def test_values(self, mode, make):
        def F(p):
            buf = make(p, 3)
            for i in range(3):
                buf[i] = p[i] ** 2 * p[(i + 1) % 3]
            return np.sum(buf * np.array([1.0, 2, 3]))

        def second(q):
            buf = make(q, 1)
            buf[0] = q[0]
            buf[0] = q[1]
            return np.sum(buf)

        def third(r):
            y = r * 1
            y += 2 * r
            return np.sum(y)

        assert F(np.array([2.0, 3, 5])) == 252
        np.testing.assert_array_equal(slope(F, np.array([2.0, 3, 5]), mode), [87, 64, 78])
        np.testing.assert_array_equal(slope(second, np.array([2.0, 3]), mode), [0, 1])
        np.testing.assert_array_equal(slope(third, np.array([2.0, 3]), mode), [3, 3])

    @pytest.mark.parametrize("index", [0, slice(None), [0, 1], slice(0, 1), (..., 0)])
    def test_into_a_plain_array(self, mode, index):
        def F(p):
            buf = np.zeros(2)
            buf[index] = p[0]
            return np.sum(buf)

        with pytest.raises(
            (TypeError, ValueError), match=r"(?s)test_given_autodiff.py.*buf\[index\] = .*np.zeros_like"
        ):
            slope(F, np.ones(2), mode)

    def test_in_place_operations_on_a_plain_array(self, mode):
        def F(p):
            buf = np.zeros(2)
            buf += p
            return np.sum(buf)

        with pytest.raises((TypeError, ValueError), match="cannot be written into a plain array"):
            slope(F, np.ones(2), mode)


class TestG27NothingToDifferentiate:
    def test_values(self):
        assert ad.grad(lambda x: 3.0)(np.zeros(0)).shape == (0,)
        assert ad.grad(np.sum)(np.zeros(0)).shape == (0,)
        for mode in ("auto", *BOTH):
            assert ad.jacobian(lambda x: np.zeros(2), mode)(np.zeros(0)).shape == (2, 0)
            assert ad.jacobian(lambda x: x[:0], mode)(np.zeros(2)).shape == (0, 2)
        for mode in MODES:
            assert ad.hessian(np.sum, mode)(np.zeros(0)).shape == (0, 0)

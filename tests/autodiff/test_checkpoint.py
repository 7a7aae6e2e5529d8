"""Recomputing in reverse mode: single functions, and loops with a fixed number of kept states."""

import gc
import tracemalloc
from functools import cache
from math import comb

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.autodiff.checkpoint import default_slots, first_kept, n_advances, revolve
from mercer.autodiff.errors import TraceError
from mercer.testing import check_derivative

MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")
X = np.array([0.3, -0.7, 1.1])


class Counted:
    """A function that counts its calls."""

    def __init__(self, f):
        self.f, self.calls = f, 0

    def __call__(self, *args):
        self.calls += 1
        return self.f(*args)


def block(x, y=0.5):
    return np.sin(x * y) * np.exp(x)


class TestCheckpoint:
    def test_derivatives(self):
        check_derivative(ad.checkpoint(block), X, X + 1)
        nested = ad.checkpoint(lambda x: (ad.checkpoint(block)(x), {"y": x * 2}))
        check_derivative(lambda x: nested(x)[0] * nested(x)[1]["y"], X)

    @pytest.mark.parametrize("mode", MODES)
    def test_second_order(self, mode):
        def f(block):
            return lambda x: np.sum(block(block(x)) ** 2)

        nested = ad.checkpoint(lambda x: ad.checkpoint(block)(x))
        expected = ad.hessian(f(block), mode)(X)
        np.testing.assert_allclose(ad.hessian(f(nested), mode)(X), expected, rtol=1e-12)

    @pytest.mark.parametrize("mode", ["forward", "reverse"])
    def test_jacobian(self, mode):
        f = Counted(block)
        np.testing.assert_allclose(
            ad.jacobian(ad.checkpoint(f), mode)(X), ad.jacobian(block, mode)(X), rtol=1e-14
        )
        # One pass for all directions, whatever their number.
        assert f.calls == (1 if mode == "forward" else 2)

    def test_calls(self):
        f = Counted(block)
        ad.grad(lambda x: np.sum(ad.checkpoint(f)(x)))(X)
        assert f.calls == 2
        f.calls = 0
        ad.jvp(ad.checkpoint(f), (X,), (X,))
        assert f.calls == 1
        ad.checkpoint(f)(X)
        assert f.calls == 2

    def test_keywords_constants_and_structure(self):
        f = ad.checkpoint(lambda x, n, name, y: {name: x**n * y, "none": None})
        value, pullback = ad.vjp(lambda x, y: f(x, 2, "out", y=y), X, 3.0)
        np.testing.assert_allclose(value["out"], 3 * X**2)
        assert value["none"] is None
        gx, gy = pullback({"out": np.ones(3), "none": None})
        np.testing.assert_allclose(gx, 6 * X)
        assert gy == pytest.approx(np.sum(X**2))

    def test_closures_over_traced_values_are_told(self):
        def outer(c):
            def inner(x):
                return x * c

            return ad.checkpoint(inner)(c)

        with pytest.raises(TraceError, match=r"checkpoint of inner: its function uses traced values .* pass"):
            ad.grad(outer)(2.0)

        # Those of an outer derivative are followed.
        def inner_gradient(c):
            return ad.grad(lambda x: ad.checkpoint(lambda x: x**2 * c)(x))(3.0)

        assert ad.grad(inner_gradient)(2.0) == 6.0
        assert ad.jvp(inner_gradient, (2.0,), (1.0,)) == (12.0, 6.0)

    @pytest.mark.parametrize(
        "wrap", [ad.grad, lambda f: lambda x: ad.hvp(f, x, x, mode="reverse-over-reverse")]
    )
    def test_memory(self, wrap):
        def many(x):
            for _ in range(100):
                x = np.sin(x)
            return x

        def peak(block):
            def f(x):
                for _ in range(5):
                    x = block(x)
                return np.sum(x)

            tracemalloc.start()
            wrap(f)(np.full(2000, 0.5))
            top = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return top

        assert peak(ad.checkpoint(many)) < 0.4 * peak(many)

    def test_no_cycles(self):
        f = ad.checkpoint(lambda x: (block(x), x))
        gc.collect()
        gc.disable()
        try:
            for mode in MODES:
                ad.hessian(lambda x: np.sum(f(x)[0] * f(x)[1]), mode)(X)
            assert gc.collect() == 0
        finally:
            gc.enable()


# -- loops -----------------------------------------------------------------------------------------------


@cache
def fewest(n, slots):
    """The recurrence that binomial checkpointing solves: the best place for the next kept state."""
    if n == 1:
        return 0
    if slots == 1:
        return n * (n - 1) // 2
    return min(m + fewest(n - m, slots - 1) + fewest(m, slots) for m in range(1, n))


class TestSchedule:
    @pytest.mark.parametrize("slots", range(1, 8))
    def test_it_is_optimal(self, slots):
        for n in range(1, 60):
            kept, advances, reversed_ = {0}, 0, []
            for reverse, start, k in revolve(n, slots):
                assert start in kept
                advances += k - start
                if reverse:
                    reversed_.append(k)
                    kept.discard(k)
                else:
                    kept.add(k)
                assert len(kept) <= slots
            assert reversed_ == list(range(n))[::-1]
            assert not kept
            assert advances == fewest(n, slots) == n_advances(n, slots)

    @pytest.mark.parametrize("slots", [2, 3, 5, 20])
    @pytest.mark.parametrize("r", [1, 2, 3, 4])
    def test_the_formula_at_its_corners(self, slots, r):
        # β(s, r) = C(s+r, s) steps need t = r β(s, r) − β(s+1, r−1) advances.
        n = comb(slots + r, slots)
        assert n_advances(n, slots) == r * n - comb(slots + r, slots + 1)
        assert sum(k - start for _, start, k in revolve(n, slots)) == n_advances(n, slots)

    def test_default(self):
        for n in (1, 2, 3, 10, 1000, 10000):
            s = default_slots(n)
            assert n_advances(n, s) <= 2 * n
            assert comb(s + 2, 2) >= n > comb(s + 1, 2) or s == 1
        assert default_slots(10000) == 140

    def test_first_kept(self):
        assert first_kept(10, 1) == [0]
        assert first_kept(1, 5) == [0]
        assert len(first_kept(100, 7)) == 7


def step(carry, x, w):
    u, v = carry
    u = u + 0.1 * np.sin(v) * x * w
    return (u, v * np.cos(u)), {"y": u * x}


def plain_scan(step, carry, xs, args=()):
    ys = []
    for k in range(len(xs)):
        carry, y = step(carry, xs[k], *args)
        ys.append(y["y"])
    return carry, {"y": np.stack(ys)}


CARRY = (X, X + 1)
XS = np.linspace(0.5, 1.5, 21).reshape(7, 3)


def objective(result):
    (u, v), ys = result
    return np.sum(np.sin(u)) + np.sum(u * v) + np.sum(ys["y"] ** 2)


def plain(carry, xs, w):
    return objective(plain_scan(step, carry, xs, (w,)))


def saved(slots):
    return lambda carry, xs, w: objective(ad.scan_checkpointed(step, carry, xs, slots=slots, args=(w,)))


every_slots = pytest.mark.parametrize("slots", [1, 2, 3, 20, None])


class TestScan:
    @every_slots
    def test_value(self, slots):
        got = ad.scan_checkpointed(step, CARRY, XS, slots=slots, args=(X,))
        expected = plain_scan(step, CARRY, XS, (X,))
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[1]["y"], expected[1]["y"])

    @every_slots
    def test_gradients_are_those_of_the_plain_loop(self, slots):
        got = ad.grad(saved(slots), argnums=(0, 1, 2))(CARRY, XS, X)
        expected = ad.grad(plain, argnums=(0, 1, 2))(CARRY, XS, X)
        for a, b in zip([*got[0], *got[1:]], [*expected[0], *expected[1:]], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)

    @every_slots
    def test_differences(self, slots):
        check_derivative(
            lambda carry, xs, w: ad.scan_checkpointed(step, carry, xs, slots=slots, args=(w,)), CARRY, XS, X
        )

    @every_slots
    @pytest.mark.parametrize("mode", MODES)
    def test_second_order(self, slots, mode):
        def in_all(f):
            return lambda p: f((p[:3], p[3:6]), np.reshape(p[6:27], (7, 3)), p[27:])

        at = np.concatenate([*CARRY, XS.ravel(), X])
        v = np.cos(np.arange(at.size))
        got = ad.hvp(in_all(saved(slots)), at, v, mode=mode)
        np.testing.assert_allclose(got, ad.hvp(in_all(plain), at, v), rtol=1e-11, atol=1e-13)

    @every_slots
    @pytest.mark.parametrize("mode", ["forward", "reverse"])
    def test_jacobian(self, slots, mode):
        def of(scan, **options):
            return ad.jacobian(lambda xs: scan(step, CARRY, xs, args=(X,), **options)[1]["y"], mode)(XS)

        np.testing.assert_allclose(
            of(ad.scan_checkpointed, slots=slots), of(plain_scan), rtol=1e-13, atol=1e-15
        )

    @pytest.mark.parametrize("n", [1, 2, 5, 17, 60])
    @pytest.mark.parametrize("slots", [1, 2, 3, 4, 10, 100])
    def test_the_number_of_steps_run_is_the_binomial_one(self, n, slots):
        f = Counted(lambda x: x + 0.1 * np.sin(x))
        ad.grad(lambda x: np.sum(ad.scan_checkpointed(f, x, length=n, slots=slots)[0]))(X)
        # One more than Griewank and Walther count: the last step runs before its cotangent is there.
        assert f.calls == n_advances(n, slots) + n + 1

    def test_a_second_pullback_starts_again(self):
        f = Counted(lambda x: x + 0.1 * np.sin(x))
        _, pullback = ad.vjp(lambda x: ad.scan_checkpointed(f, x, length=20, slots=3)[0], X)
        first = pullback(np.ones(3))
        f.calls = 0
        np.testing.assert_array_equal(pullback(np.ones(3)), first)
        assert f.calls == n_advances(20, 3) + 20

    def test_forward_mode_runs_each_step_once(self):
        f = Counted(lambda x: x + 0.1 * np.sin(x))
        ad.jvp(lambda x: ad.scan_checkpointed(f, x, length=20)[0], (X,), (X,))
        assert f.calls == 20

    def test_what_varies_may_come_in_late_or_never(self):
        # The carry starts as numbers, a counter stays whole, and one of the args is no array.
        def f(w):
            def step(carry, power, w, name):
                total, count = carry
                assert name == "plain"
                return (total + w**power, count + 1), None

            (total, count), ys = ad.scan_checkpointed(step, (0, 0), np.array([1, 2, 3]), args=(w, "plain"))
            assert (count, ys) == (3, None)
            return total

        assert ad.grad(f)(2.0) == 1 + 4 + 12
        assert ad.jvp(f, (2.0,), (1.0,)) == (14.0, 17.0)
        assert ad.hvp(f, 2.0, 1.0) == ad.hvp(f, 2.0, 1.0, mode="reverse-over-forward") == 2 + 12

    def test_writing_into_the_carry(self):
        def step(u, x):
            u[1:] += 0.1 * u[:-1] * x
            return u

        def loop(u, xs):
            u = 1 * u
            for x in xs:
                u = step(u, x)
            return u

        u, xs = X.copy(), np.linspace(0, 1, 9)
        got = ad.grad(
            lambda u, xs: np.sum(ad.scan_checkpointed(step, u, xs, slots=3)[0] ** 2), argnums=(0, 1)
        )(u, xs)
        expected = ad.grad(lambda u, xs: np.sum(loop(u, xs) ** 2), argnums=(0, 1))(u, xs)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14)
        np.testing.assert_array_equal(u, X)

    def test_writing_into_anything_else_raises(self):
        def step(u, x):
            x[0] = 0.0
            return u + x

        with pytest.raises(ValueError, match="read-only"):
            ad.grad(lambda u: np.sum(ad.scan_checkpointed(step, u, XS.copy())[0]))(X)

    def test_changing_shapes(self):
        def f(x):
            step = Counted(lambda u: np.concatenate([u, u[-1:] ** 2]))
            return np.sum(ad.scan_checkpointed(step, x, length=3, slots=2)[0])

        check_derivative(f, X)

    def test_closures_over_traced_values_are_told(self):
        with pytest.raises(
            TraceError, match=r"ad.scan_checkpointed: its function uses traced values .* pass them"
        ):
            ad.grad(lambda c: ad.scan_checkpointed(lambda x: x * c, c, length=3)[0])(2.0)

    def test_no_steps(self):
        assert ad.scan_checkpointed(step, CARRY, np.zeros((0, 3)), args=(X,)) == (CARRY, None)
        assert ad.grad(lambda x: ad.scan_checkpointed(np.sin, x, length=0)[0])(2.0) == 1.0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, r"must hold arrays of one length .* got lengths \[\]"),
            ({"xs": XS, "length": 3}, r"got lengths \[3, 7\]"),
            ({"xs": [1.0, 2.0]}, r"must hold arrays of one length"),
            ({"length": 3, "slots": 0}, "slots must be a whole number of at least 1, got 0"),
            ({"length": 3, "slots": 2.5}, "slots must be a whole number of at least 1, got 2.5"),
            (
                {"length": 3},
                r"must return a carry of the structure it got \(one array\), or \(carry, y\); it returned",
            ),
        ],
    )
    def test_bad_input(self, options, message):
        with pytest.raises(ValueError, match=message):
            ad.scan_checkpointed(lambda *x: [1.0], X, **options)

    def test_no_cycles(self):
        gc.collect()
        gc.disable()
        try:
            for mode in MODES:
                ad.hvp(lambda w: saved(2)(CARRY, XS, w), X, X, mode=mode)
            assert gc.collect() == 0
        finally:
            gc.enable()

    def test_memory(self):
        def step(x):
            return x + 0.001 * np.sin(x) * np.exp(-x)

        def loop(x):
            for _ in range(300):
                x = step(x)
            return np.sum(x)

        def peak(f):
            tracemalloc.start()
            ad.grad(f)(np.linspace(0, 1, 1000))
            top = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return top

        assert peak(lambda x: np.sum(ad.scan_checkpointed(step, x, length=300)[0])) < 0.1 * peak(loop)

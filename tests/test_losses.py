"""The costs against their formulas at 50 digits, and against what convexity demands of them."""

import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mpmath import mp, mpf

from mercer.losses import (
    EpsilonInsensitive,
    Huber,
    JointSquaredMargin,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    Softmax,
    Squared,
    SquaredMargin,
)

EPS = np.finfo(np.float64).eps
N_CLASSES = 4


def softmax(c, *f):
    return mpmath.log(sum(mpmath.exp(fj - f[c]) for fj in f))


def joint(c, *f):
    return sum(max(mpf(0), 1 + fj - f[c]) ** 2 for j, fj in enumerate(f) if j != c)


#: Each cost with its formula in numbers of 50 digits.
COSTS = {
    Squared(): lambda y, f: (f - y) ** 2,
    Huber(1.5): lambda y, f: (f - y) ** 2 if abs(f - y) <= 1.5 else 1.5 * (2 * abs(f - y) - 1.5),
    EpsilonInsensitive(0.3): lambda y, f: max(mpf(0), abs(f - y) - mpf(0.3)),
    Quantile(0.2): lambda y, f: max(mpf(0.2) * (y - f), (mpf(0.2) - 1) * (y - f)),
    Poisson(): lambda y, f: mpmath.exp(f) - y * f,
    Logistic(): lambda y, f: mpmath.log1p(mpmath.exp(-y * f)),
    SquaredMargin(): lambda y, f: max(mpf(0), 1 - y * f) ** 2,
    Softmax(): softmax,
    JointSquaredMargin(): joint,
}
each = pytest.mark.parametrize("loss", COSTS, ids=lambda loss: type(loss).__name__)
of_vectors = pytest.mark.parametrize("loss", [Softmax(), JointSquaredMargin()], ids=repr)


def sample(loss, n, rng, scale=3.0):
    """Targets and values, with margins from far inside to far outside."""
    if loss.vector:
        return rng.integers(N_CLASSES, size=n), scale * rng.standard_normal((n, N_CLASSES))
    f = scale * rng.standard_normal(n)
    y = {
        "real": rng.standard_normal(n),
        "sign": rng.choice([-1.0, 1.0], size=n),
        "nonnegative": rng.poisson(2.0, size=n).astype(float),
    }[loss.needs]
    return y, f


def exact(loss, y, f, order):
    """Derivatives of one sample's cost in each part of f, by mpmath's differences at 50 digits."""
    formula = COSTS[loss]
    with mp.workdps(50):
        parts = [mpf(v) for v in np.atleast_1d(f)]
        y = int(y) if loss.vector else mpf(y)
        if order == 0:
            return float(formula(y, *parts))
        out = []
        for j in range(len(parts)):

            def along(t, j=j):
                return formula(y, *parts[:j], t, *parts[j + 1 :])

            # A step of its own, below the distance to any kink of the samples.
            out.append(float(mpmath.diff(along, parts[j], order, h=mpf(10) ** -15)))
        return np.array(out) if loss.vector else out[0]


def hessians(loss, y, f):
    """(n, C, C) by S's products with the unit vectors, which is not S Sᵀ formed by itself."""
    S = loss.root(y, f)
    unit = np.eye(f.shape[-1])
    columns = [S.forward(S.adjoint(np.broadcast_to(e, f.shape))) for e in unit]
    return np.stack(columns, axis=-1)


# ---------------------------------------------------------------- against the formulas


@each
def test_values_derivatives_and_curvatures_are_those_of_the_formula(loss, rng):
    y, f = sample(loss, 40, rng)
    for order, ours in enumerate([loss.value(y, f), loss.derivative(y, f), loss.curvature(y, f)]):
        theirs = np.array([exact(loss, a, b, order) for a, b in zip(y, f, strict=True)])
        # A few roundings of terms up to max(|f|, |y|)²; mpmath's differences are good for 20 digits.
        np.testing.assert_allclose(ours, theirs, rtol=32 * EPS, atol=32 * EPS)


@each
def test_errors_of_differences_fall_with_the_step(loss, rng):
    y, f = sample(loss, 30, rng)
    direction = rng.standard_normal(f.shape)
    slope = loss.derivative(y, f) * direction
    slope = slope.sum(-1) if loss.vector else slope
    error = []
    for h in [1e-2, 1e-3, 1e-4]:
        difference = (loss.value(y, f + h * direction) - loss.value(y, f - h * direction)) / (2 * h)
        error.append(np.abs(difference - slope))
    # Quadratically where the formula is smooth; a kink within the step can only leave it.
    assert np.median(error[1]) <= max(0.02 * np.median(error[0]), 1e-11)
    assert np.median(error[2]) <= max(0.02 * np.median(error[1]), 1e-10)
    assert np.max(error[2]) < 1e-3


@of_vectors
def test_the_root_gives_the_hessian(loss, rng):
    y, f = sample(loss, 20, rng)
    H = hessians(loss, y, f)
    h = 1e-5
    for j in range(N_CLASSES):
        e = h * np.eye(N_CLASSES)[j]
        column = (loss.derivative(y, f + e) - loss.derivative(y, f - e)) / (2 * h)
        np.testing.assert_allclose(H[:, :, j], column, atol=1e-9)
    diagonal = H[:, range(N_CLASSES), range(N_CLASSES)]
    np.testing.assert_allclose(diagonal, loss.curvature(y, f), rtol=16 * EPS, atol=EPS)
    np.testing.assert_allclose(loss.root(y, f).diagonal ** 2, diagonal, rtol=16 * EPS, atol=EPS)


@each
def test_no_curvature_is_above_its_bound(loss, rng):
    y, f = sample(loss, 300, rng, scale=1.0)
    bound = loss.curvature_bound(N_CLASSES)
    if not loss.vector:
        assert np.max(loss.curvature(y, f), initial=0.0) <= bound
    else:
        assert np.linalg.eigvalsh(hessians(loss, y, f)).max() <= bound * (1 + 1e-12)
    # And none is above what one sample attains.
    steepest = {
        Squared: (0.0, 0.0),
        Huber: (0.0, 0.0),
        Logistic: (1, 0.0),
        SquaredMargin: (1, 0.0),
        Softmax: (0, np.array([0.0, 0.0, -800.0, -800.0])),
        JointSquaredMargin: (0, np.zeros(N_CLASSES)),
    }.get(type(loss))
    if steepest is None:
        assert bound == np.inf
    elif loss.vector:
        H = hessians(loss, steepest[0], steepest[1])
        assert np.linalg.eigvalsh(H).max() == pytest.approx(bound, rel=1e-12)
    else:
        assert loss.curvature(*steepest) == bound


@each
def test_adjoint_and_root_agree(loss, rng):
    y, f = sample(loss, 25, rng)
    c, v = rng.standard_normal(f.shape), rng.standard_normal(f.shape)
    S = loss.root(y, f)
    left, right = np.sum(v * S.forward(c)), np.sum(S.adjoint(v) * c)
    np.testing.assert_allclose(left, right, rtol=1e-12)
    np.testing.assert_allclose(S.diagonal**2, loss.curvature(y, f), rtol=8 * EPS, atol=EPS)
    if not loss.vector:
        np.testing.assert_array_equal(S.forward(c), S.diagonal * c)


def test_softmax_of_very_negative_scores():
    # G10.e
    p = Softmax().probabilities([-1000, -1001, -1002])
    np.testing.assert_allclose(
        p, [0.6652409557748219, 0.24472847105479764, 0.09003057317038046], rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(Softmax().probabilities(np.full((2, 3), 1e300)), 1 / 3)


def test_softmax_of_two_classes_is_logistic(rng):
    f = 5 * rng.standard_normal((50, 2))
    y = rng.integers(2, size=50)
    sign, margin = 2 * y - 1, f[:, 1] - f[:, 0]
    np.testing.assert_allclose(Softmax().value(y, f), Logistic().value(sign, margin), rtol=1e-13)
    np.testing.assert_allclose(
        Softmax().derivative(y, f)[:, 1], Logistic().derivative(sign, margin), rtol=1e-13
    )
    np.testing.assert_allclose(
        Softmax().curvature(y, f)[:, 0], Logistic().curvature(sign, margin), rtol=1e-13
    )


def test_the_joint_margin_of_two_classes_is_the_squared_margin(rng):
    f = 2 * rng.standard_normal((50, 2))
    y = rng.integers(2, size=50)
    both = JointSquaredMargin().value(y, f)
    np.testing.assert_allclose(both, SquaredMargin().value(2 * y - 1, f[:, 1] - f[:, 0]), rtol=1e-13)


def test_a_large_delta_makes_huber_squared(rng):
    y, f = sample(Squared(), 30, rng)
    for method in ("value", "derivative", "curvature"):
        np.testing.assert_array_equal(getattr(Huber(1e6), method)(y, f), getattr(Squared(), method)(y, f))


def test_digits_of_tiny_costs_survive():
    # log(1 + e⁻⁵⁰) = e⁻⁵⁰ to 22 digits; 1 − p must not come from 1 less p.
    tiny = np.exp(-50.0)
    assert Logistic().value(1, 50.0) == pytest.approx(tiny, rel=1e-14)
    assert Logistic().derivative(1, 50.0) == pytest.approx(-tiny, rel=1e-14)
    f = np.array([50.0, 0.0, -800.0])
    assert Softmax().value(0, f) == pytest.approx(tiny, rel=1e-14)
    np.testing.assert_allclose(Softmax().derivative(0, f)[:2], [-tiny, tiny], rtol=1e-14)
    np.testing.assert_allclose(Softmax().curvature(0, f)[:2], tiny, rtol=1e-14)


# ---------------------------------------------------------------- conjugates


@each
def test_what_is_made_feasible_is_feasible(loss, rng):
    y, f = sample(loss, 2000, rng)
    for dtype in (np.float64, np.float32):
        u = (f * 10.0 ** rng.integers(-12, 2, np.shape(f))).astype(dtype)
        assert np.isfinite(loss.conjugate(y, loss.feasible(y, u))).all()


@each
def test_fenchel_and_young_meet_at_the_derivative(loss, rng):
    y, f = sample(loss, 200, rng)
    u = loss.derivative(y, f)
    product = (u * f).sum(-1) if loss.vector else u * f
    value, conjugate = loss.value(y, f), loss.conjugate(y, u)
    size = 1 + np.abs(value) + np.abs(product)
    assert np.all(np.abs(value + conjugate - product) <= 16 * EPS * size)
    np.testing.assert_allclose(loss.feasible(y, u), u, rtol=8 * EPS, atol=8 * EPS)


@each
@given(data=st.data())
def test_no_value_is_below_its_conjugate_line(loss, data):
    shape = (N_CLASSES,) if loss.vector else ()
    numbers = st.floats(-50, 50, allow_subnormal=False)
    f = data.draw(arrays(np.float64, shape, elements=numbers))
    u = data.draw(arrays(np.float64, shape, elements=numbers))
    y = data.draw(
        {
            "real": numbers,
            "nonnegative": st.integers(0, 50),
            "sign": st.sampled_from([-1, 1]),
            "code": st.integers(0, N_CLASSES - 1),
        }[loss.needs]
    )
    near = loss.feasible(y, u)
    conjugate = loss.conjugate(y, near)
    assert np.isfinite(conjugate)
    product = np.sum(near * f)
    gap = loss.value(y, f) + conjugate - product
    assert gap >= -64 * EPS * (1 + abs(product) + abs(conjugate))
    # What is outside is infinite, and what is inside stays.
    if np.isfinite(loss.conjugate(y, u)):
        np.testing.assert_allclose(near, u, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("loss", [loss for loss in COSTS if not loss.vector], ids=repr)
def test_the_conjugate_is_the_supremum(loss):
    """By a search over f on a fine grid, for one u inside the domain."""
    y = 1.0
    u = loss.derivative(y, 0.4) * 0.7 if loss.needs == "sign" else 0.4 * (1 - getattr(loss, "level", 0.0))
    grid = np.linspace(-60, 60, 2_400_001)
    assert loss.conjugate(y, u) == pytest.approx(np.max(u * grid - loss.value(y, grid)), abs=1e-8)


@pytest.mark.parametrize(
    ("loss", "y", "u", "expected"),
    [
        (Logistic(), 1, 0.0, 0.0),
        (Logistic(), 1, -1.0, 0.0),
        (Logistic(), -1, 1.0, 0.0),
        (Logistic(), 1, np.nextafter(0, 1), np.inf),
        (Logistic(), 1, -1.0000001, np.inf),
        (Softmax(), 1, [0.0, 0.0, 0.0], 0.0),
        (Softmax(), 1, [1.0, -1.0, 0.0], 0.0),
        (Softmax(), 1, [-0.1, -0.4, 0.5], np.inf),
        (Softmax(), 1, [0.1, -0.4, 0.5], np.inf),
        (Poisson(), 2, -2.0, 0.0),
        (Poisson(), 2, -2.0000001, np.inf),
        (Poisson(), 0, 0.0, 0.0),
        (SquaredMargin(), -1, 0.0, 0.0),
        (SquaredMargin(), -1, -1e-9, np.inf),
        (Huber(2.0), 1.0, 4.0, 8.0),
        (Huber(2.0), 1.0, 4.0000001, np.inf),
        (EpsilonInsensitive(0.5), 2.0, -1.0, -1.5),
        (EpsilonInsensitive(0.5), 2.0, 1.0000001, np.inf),
        (Quantile(0.25), 2.0, 0.75, 1.5),
        (Quantile(0.25), 2.0, -0.25, -0.5),
        (Quantile(0.25), 2.0, -0.2500001, np.inf),
        (JointSquaredMargin(), 0, [-3.0, 1.0, 2.0], 1 / 4 - 1 + 4 / 4 - 2),
        (JointSquaredMargin(), 0, [1.0, -1.0, 0.0], np.inf),
        (JointSquaredMargin(), 0, [-3.0, 1.0, 1.0], np.inf),
    ],
    ids=repr,
)
def test_conjugates_at_the_border(loss, y, u, expected):
    assert loss.conjugate(y, np.array(u)) == expected


def test_a_point_without_a_positive_part_becomes_a_corner():
    u = np.array([[-5.0, -7.0, -2.0], [-1.0, -0.5, 3.0]])
    np.testing.assert_array_equal(Softmax().feasible([1, 0], u), [[0.0, 0.0, 0.0], [-1.0, 0.0, 1.0]])


# ---------------------------------------------------------------- forms and extremes


@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_precision_is_that_of_f(loss, dtype, rng):
    y, f = sample(loss, 12, rng)
    y = y if loss.needs != "real" else y.astype(dtype)
    f = f.astype(dtype)
    u = loss.derivative(y.astype(np.int64) if loss.needs != "real" else y, f)
    S = loss.root(y.astype(y.dtype if loss.vector else dtype), f)
    found = [u, S.diagonal, S.forward(f), S.adjoint(f)]
    y = y.astype(np.int64) if loss.needs != "real" else y
    found += [loss.value(y, f), loss.curvature(y, f), loss.conjugate(y, u), loss.feasible(y, u)]
    assert {a.dtype for a in found} == {np.dtype(dtype)}
    wide = loss.derivative(y, f.astype(np.float64))
    np.testing.assert_allclose(u, wide, rtol=1e-5, atol=1e-6)


@each
@pytest.mark.parametrize("size", [1e3, 1e8, 1e300])
def test_extreme_values_give_numbers(loss, size):
    """No NaN and no warning (which would raise here); what overflows is inf."""
    targets = {"real": [-2.0, 0.0, 1e10], "nonnegative": [0, 1, 1e10], "sign": [-1, 1], "code": [0, 2]}
    for y in targets[loss.needs]:
        for sign in [-1, 1]:
            f = np.array([sign * size, 0.5, -sign * size]) if loss.vector else np.array([sign * size])
            u = loss.derivative(y, f)
            S = loss.root(y, f)
            values = [loss.value(y, f), u, loss.curvature(y, f), S.diagonal]
            assert not any(np.isnan(v).any() for v in values)
            if np.isfinite(u).all():
                inside = loss.feasible(y, u)
                assert not np.isnan(loss.conjugate(y, inside)).any()
                small = np.ones_like(f)
                assert not np.isnan(S.forward(small)).any()
                assert not np.isnan(S.adjoint(small)).any()


@pytest.mark.parametrize("m", [1e3, 1e8, 1e300])
def test_the_logistic_cost_of_a_huge_margin_is_the_margin(m):
    assert Logistic().value(1, -m) == m
    assert Logistic().value(1, m) == 0
    assert Softmax().value(1, np.array([m, -m])) == 2 * m
    assert SquaredMargin().value(1, m) == 0


@each
def test_problems_side_by_side_are_each_their_own(loss, rng):
    pairs = [sample(loss, 9, rng) for _ in range(3)]
    y = np.stack([p[0] for p in pairs], axis=1)
    f = np.stack([p[1] for p in pairs], axis=1)
    c = rng.standard_normal(f.shape)
    S = loss.root(y, f)
    u = loss.derivative(y, f)
    together = [loss.value(y, f), u, loss.curvature(y, f), loss.conjugate(y, u), loss.feasible(y, u)]
    together += [S.forward(c), S.adjoint(c)]
    for j, (yj, fj) in enumerate(pairs):
        S, u = loss.root(yj, fj), loss.derivative(yj, fj)
        alone = [loss.value(yj, fj), u, loss.curvature(yj, fj), loss.conjugate(yj, u), loss.feasible(yj, u)]
        alone += [S.forward(c[:, j]), S.adjoint(c[:, j])]
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_array_equal(a[:, j], b)
    # One column of targets for all of them.
    column = pairs[0][0][:, None]
    np.testing.assert_array_equal(loss.value(column, f)[:, 0], loss.value(*pairs[0]))


@each
def test_layout_and_read_only_input_change_nothing(loss, rng):
    y, f = sample(loss, 10, rng)
    y, f = np.stack([y, y], axis=1), np.stack([f, 2 * f], axis=1)
    expected = [loss.value(y, f), loss.derivative(y, f), loss.root(y, f).forward(f)]
    for array in (y, f):
        array.setflags(write=False)
    fortran = np.asfortranarray(f)
    found = [loss.value(y, fortran), loss.derivative(y, fortran), loss.root(y, fortran).forward(fortran)]
    for a, b in zip(expected, found, strict=True):
        # Sums over classes may run in another order.
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-14)


@each
def test_no_samples(loss):
    f = np.empty((0, 3, N_CLASSES)) if loss.vector else np.empty((0, 3))
    y = np.empty((0, 1), dtype=int)
    assert loss.value(y, f).shape == (0, 3)
    assert loss.derivative(y, f).shape == f.shape
    assert loss.root(y, f).adjoint(f).shape == f.shape


@each
def test_costs_are_values(loss):
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert eval(repr(loss)) == loss
    assert len({loss, type(loss)(**vars(loss))}) == 1
    assert isinstance(loss, Loss)


def test_costs_with_other_parameters_differ():
    assert Huber(1.0) != Huber(2.0)
    assert Quantile(0.5) != EpsilonInsensitive(0.5)


def test_kinks_have_the_derivative_zero():
    assert Quantile(0.3).derivative(1.0, 1.0) == 0
    assert EpsilonInsensitive(0.5).derivative(1.0, 1.5) == 0
    assert EpsilonInsensitive(0.0).derivative(1.0, 1.0) == 0


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Huber(0), ValueError, "Huber: delta must be above 0 and finite, got 0"),
        (lambda: Huber(np.inf), ValueError, "delta must be above 0 and finite, got inf"),
        (lambda: Huber(np.nan), ValueError, "delta must be .* got nan"),
        (lambda: Huber("1"), TypeError, "delta must be a number, got '1'"),
        (lambda: EpsilonInsensitive(-0.1), ValueError, "epsilon must be at least 0 and finite, got -0.1"),
        (lambda: Quantile(1.0), ValueError, "level must be above 0 and below 1, got 1.0"),
        (lambda: Quantile(True), TypeError, "level must be a number, got True"),
    ],
)
def test_bad_parameters(make, error, match):
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize(
    ("loss", "y", "match"),
    [
        (Poisson(), [1.0, -0.5], r"Poisson\(\) takes numbers of at least 0, but y\[1\] is -0.5"),
        (Logistic(), [1, 0, -1], r"takes −1 or 1, but y\[1\] is 0"),
        (Softmax(), [0, 1.5], r"takes codes of classes, integers from 0, but y\[1\] is 1.5"),
        (Softmax(), [[0, 1], [-1, 0]], r"but y\[1, 0\] is -1"),
        (Squared(), [0.0, np.nan], r"takes numbers, but y\[1\] is nan"),
    ],
)
def test_targets_that_a_cost_does_not_take(loss, y, match):
    with pytest.raises(ValueError, match=match):
        loss.check(np.array(y))


@each
def test_targets_that_a_cost_takes(loss, rng):
    loss.check(sample(loss, 5, rng)[0])


@of_vectors
def test_the_order_in_memory_changes_nothing(loss, rng):
    y, f = rng.integers(N_CLASSES, size=(9, 2)), rng.standard_normal((9, 2, N_CLASSES))
    c = rng.standard_normal(f.shape)
    by_column = np.ascontiguousarray(f.transpose(1, 2, 0)).transpose(2, 0, 1)
    with_gaps = np.zeros((9, 4, N_CLASSES))[:, ::2]
    with_gaps[...] = f
    for other in (by_column, with_gaps):
        for one in (c, np.asfortranarray(c)):
            for name in ("forward", "adjoint"):
                expected = getattr(loss.root(y, f), name)(c)
                np.testing.assert_allclose(getattr(loss.root(y, other), name)(one), expected, rtol=1e-14)
        for name in ("value", "derivative", "curvature"):
            expected = getattr(loss, name)(y, f)
            np.testing.assert_allclose(getattr(loss, name)(y, other), expected, rtol=1e-14)
    assert loss.derivative(y, by_column).strides == by_column.strides

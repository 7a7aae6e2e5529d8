"""The plain interpreter of programs: leaves and operations against 50-digit values and differences."""

from itertools import pairwise

import mpmath
import numpy as np
import pytest

from mercer.kernels import leaves, pairs
from mercer.kernels.program import Builder, Leaf, LeafKind, Monomial, Opcode, Side, Tangent, Weight
from mercer.kernels.rows import RowFunction
from mercer.kernels.views import Identity

EPS = np.finfo(np.float64).eps
KINDS = [LeafKind.DOT, LeafKind.SQDIST, LeafKind.L1, LeafKind.CHI2, LeafKind.DIRICHLET]


def leaf_of(kind, unit=False):
    weight = Weight("w", 1) if kind in (LeafKind.SQDIST, LeafKind.L1) else None
    return Leaf(kind, Identity(), weight=weight, degree=3, unit=unit)


def draw(rng, n=6, d=4):
    x, z = rng.uniform(0.1, 2.0, size=(2, n, d))
    return x, z, rng.uniform(0.5, 2.0, size=d)


def exact(leaf, x, z, w):
    x, z, w = ([mpmath.mpf(float(v)) for v in a] for a in (x, z, w))
    terms = list(zip(x, z, w, strict=True))
    if leaf.kind == LeafKind.DOT:
        return mpmath.fsum(a * b for a, b, _ in terms)
    if leaf.kind == LeafKind.SQDIST:
        return mpmath.fsum((c * (a - b)) ** 2 for a, b, c in terms)
    if leaf.kind == LeafKind.L1:
        return mpmath.fsum(c * abs(a - b) for a, b, c in terms)
    if leaf.kind == LeafKind.CHI2:
        return mpmath.fsum((a - b) ** 2 / (a + b) for a, b, _ in terms)
    product = mpmath.mpf(1)
    for a, b, _ in terms:
        t = (a - b) * mpmath.pi
        product *= mpmath.sin((2 * leaf.degree + 1) * t) / mpmath.sin(t)
    return product / (2 * leaf.degree + 1) ** (len(terms) if leaf.unit else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", [False, True])
def test_leaves_match_the_exact_values(kind, unit, rng):
    x, z, w = draw(rng)
    leaf = leaf_of(kind, unit)
    with mpmath.workdps(50):
        expected = [float(exact(leaf, *row, w)) for row in zip(x, z, strict=True)]
    np.testing.assert_allclose(leaves.value(leaf, x, z, w), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_leaves_partials_against_differences(kind, rng):
    x, z, w = draw(rng)
    tx, tz, tw = rng.normal(size=x.shape), rng.normal(size=z.shape), rng.normal(size=w.shape)
    leaf = leaf_of(kind)

    def along(f, h):
        return f(leaf, x + h * tx, z + h * tz, w * np.exp(h * tw))

    s_x, s_z, s_w = leaves.partials(leaf, x, z, w)
    dot = np.sum(s_x * tx + s_z * tz + (0 if s_w is None else s_w * tw), axis=1)
    assert_converges(lambda h: along(leaves.value, h), dot)
    seconds = leaves.partials_dot(leaf, x, z, w, tx, tz, tw)
    for i, second in enumerate(seconds):
        if second is not None:
            assert_converges(lambda h, i=i: along(leaves.partials, h)[i], second)


def assert_converges(f, derivative):
    errors = [np.abs((f(h) - f(-h)) / (2 * h) - derivative).max() for h in (1e-3, 2.5e-4, 6.25e-5)]
    size = max(1.0, np.abs(derivative).max())
    for before, after in pairwise(errors):
        assert after <= 0.1 * before + 1e-8 * size, errors
    assert errors[-1] <= 1e-4 * size, errors


def test_chi_squared_where_both_are_zero():
    leaf = leaf_of(LeafKind.CHI2)
    x, z = np.array([[0.0, 1.0]]), np.array([[0.0, 0.0]])
    np.testing.assert_array_equal(leaves.value(leaf, x, z, None), [1.0])
    for part in leaves.partials(leaf, x, z, None)[:2]:
        assert part[0, 0] == 0.0
    for part in leaves.partials_dot(leaf, x, z, None, np.ones((1, 2)), np.ones((1, 2)), None)[:2]:
        assert np.isfinite(part).all()


# ---------------------------------------------------------------- Dirichlet


@pytest.mark.parametrize("degree", [1, 4, 50, 200])
def test_dirichlet_and_its_derivatives_around_integers(degree):
    steps = [0.0, *(10.0**-e for e in range(1, 18)), 1e-300, 5e-324, 0.25, 0.3333, 0.5, 1 / (2 * degree + 1)]
    t = np.array([n + sign * s for n in (0.0, 1.0, -7.0) for s in steps for sign in (1, -1)])
    size = 2 * degree + 1
    r, r1, r2 = leaves.dirichlet(degree, t)
    with mpmath.workdps(60):
        for i, v in enumerate(t.tolist()):
            u = mpmath.mpf(v) - mpmath.nint(mpmath.mpf(v))
            waves = [(m, 2 * mpmath.pi * m * u) for m in range(1, degree + 1)]
            exact_r = 1 + 2 * mpmath.fsum(mpmath.cos(a) for _, a in waves)
            exact_1 = -4 * mpmath.pi * mpmath.fsum(m * mpmath.sin(a) for m, a in waves)
            exact_2 = -8 * mpmath.pi**2 * mpmath.fsum(m**2 * mpmath.cos(a) for m, a in waves)
            # Bounds in units of the largest value of each, so that a term that vanishes has no say.
            assert abs(r[i] - exact_r) <= 1e-12 * size
            assert abs(r1[i] - exact_1) <= 1e-12 * size**2
            assert abs(r2[i] - exact_2) <= 1e-12 * size**3


def test_dirichlet_products_with_zeros(rng):
    # r = 0 at multiples of 1/(2D+1): a derivative by division would be lost.
    leaf = Leaf(LeafKind.DIRICHLET, Identity(), degree=1)
    x, z = np.array([[1 / 3, 1 / 3, 0.1]]), np.zeros((1, 3))
    s_x, _, _ = leaves.partials(leaf, x, z, None)
    slope = leaves.dirichlet(1, np.array([1 / 3]))[1][0]
    np.testing.assert_allclose(s_x, [[0, 0, 0]], atol=1e-14)
    tx = np.array([[1.0, 0.0, 0.0]])
    ts_x, _, _ = leaves.partials_dot(leaf, x, z, None, tx, np.zeros((1, 3)), None)
    r3 = leaves.dirichlet(1, np.array([0.1]))[0][0]
    np.testing.assert_allclose(ts_x[0, 1], slope * slope * r3, rtol=1e-12)


# ---------------------------------------------------------------- elementwise operations


SQ3, SQ5 = np.sqrt(3.0), np.sqrt(5.0)
OPERATIONS = {
    Opcode.EXP: (mpmath.exp, [-5.0, -0.1, 0.0, 1.0, 7.0]),
    Opcode.EXPNEG: (lambda a: mpmath.exp(-a), [0.0, 0.1, 3.0, 50.0]),
    Opcode.MATERN12: (lambda a: mpmath.exp(-mpmath.sqrt(a)), [1e-9, 0.1, 1.0, 30.0, 1e4]),
    Opcode.MATERN32: (
        lambda a: (1 + mpmath.sqrt(3 * a)) * mpmath.exp(-mpmath.sqrt(3 * a)),
        [1e-9, 0.1, 1.0, 30.0, 1e4],
    ),
    Opcode.MATERN52: (
        lambda a: (1 + mpmath.sqrt(5 * a) + 5 * a / 3) * mpmath.exp(-mpmath.sqrt(5 * a)),
        [1e-9, 0.1, 1.0, 30.0, 1e4],
    ),
    Opcode.LOG1P: (lambda a: mpmath.log(1 + a), [0.0, 1e-18, 0.5, 1e10]),
    Opcode.TANH: (mpmath.tanh, [-20.0, -1.0, 0.0, 1e-9, 0.7, 20.0]),
    Opcode.POW: (lambda a: a**4, [-2.0, -0.1, 0.0, 0.3, 5.0]),
    Opcode.POWM1: (lambda a: (1 + a) ** 4 - 1, [-2.5, -1.0, -0.5, -1e-17, 0.0, 1e-17, 0.49, 0.51, 9.0]),
}


@pytest.mark.parametrize("opcode", OPERATIONS, ids=lambda o: o.name)
def test_operations_and_their_derivatives_match(opcode):
    f, points = OPERATIONS[opcode]
    with np.errstate(all="raise", under="ignore"):
        got = pairs.elementwise(opcode, np.array(points), 4)
    with mpmath.workdps(60):
        for i, a in enumerate(points):
            for order in range(3):
                expected = mpmath.diff(f, mpmath.mpf(a), order) if order else f(mpmath.mpf(a))
                assert got[order][i] == pytest.approx(float(expected), rel=1e-13, abs=1e-30)


@pytest.mark.parametrize("opcode", [Opcode.MATERN12, Opcode.MATERN32, Opcode.MATERN52, Opcode.EXPNEG])
def test_operations_at_zero_and_infinity(opcode):
    f, f1, f2 = pairs.elementwise(opcode, np.array([0.0, np.inf]))
    np.testing.assert_array_equal(f, [1.0, 0.0])
    np.testing.assert_array_equal([f1[1], f2[1]], 0.0)
    # By convention 0 where the limit is infinite.
    slope = {Opcode.MATERN12: 0.0, Opcode.MATERN32: -1.5, Opcode.MATERN52: -5 / 6, Opcode.EXPNEG: -1.0}[
        opcode
    ]
    assert f1[0] == pytest.approx(slope)
    assert np.isfinite(f2[0])


# ---------------------------------------------------------------- whole programs


class Given(RowFunction):
    """A row vector as given."""


def everything():
    """A program with each operation."""
    b = Builder()
    b.param("w", np.array([0.5, 1.0, 1.5, 0.75]))
    b.param("a", 0.75)
    b.param("b", 1.25)
    a, c = Monomial(1.0, (("a", 1),)), Monomial(0.5, (("a", 2), ("b", -1)))
    dots = b.leaf(leaf_of(LeafKind.DOT))
    squares = b.leaf(leaf_of(LeafKind.SQDIST))
    rest = b.add(b.leaf(leaf_of(LeafKind.L1)), b.leaf(leaf_of(LeafKind.CHI2)))
    periodic = b.unary(Opcode.TANH, b.leaf(leaf_of(LeafKind.DIRICHLET, unit=True)))
    block = b.leaf(Leaf(LeafKind.BLOCK, "block"))
    out = b.mul(b.shift(b.scale(dots, a), c), b.unary(Opcode.EXPNEG, b.scale(squares, c)))
    for op in (Opcode.MATERN12, Opcode.MATERN32, Opcode.MATERN52):
        out = b.add(out, b.unary(op, squares))
    out = b.add(b.unary(Opcode.POW, out, 2), b.unary(Opcode.POWM1, b.scale(dots, a), 3))
    out = b.add(out, b.unary(Opcode.EXP, b.scale(b.unary(Opcode.LOG1P, rest), Monomial(-1.0, (("b", 1),)))))
    out = b.offset(b.modulate(b.add(out, b.mul(periodic, periodic)), Given()), Given())
    return b.program(b.mul(out, b.add(block, out)))


class Point:
    """Everything that a program reads, as one vector that can be moved along a tangent."""

    def __init__(self, rng, program, n=5, d=4):
        self.program = program
        self.x = rng.uniform(0.1, 1.0, size=(n, d))
        self.z = rng.uniform(0.1, 1.0, size=(n, d))
        self.vecs = rng.normal(size=(2, 2, n))
        self.block = rng.normal(size=n)

    def _side(self, features, vecs):
        blank = [leaf.kind == LeafKind.BLOCK for leaf in self.program.leaves]
        return Side(len(features), [None if b else features for b in blank], vecs)

    def direction(self, rng):
        return {
            "x": rng.normal(size=self.x.shape),
            "z": rng.normal(size=self.z.shape),
            "vecs": rng.normal(size=self.vecs.shape),
            "w": rng.normal(size=4),
            "a": rng.normal(),
            "b": rng.normal(),
            "block": rng.normal(size=self.block.shape),
        }

    def moved(self, t, h):
        p = self.program
        params = {
            "w": p.params["w"] * np.exp(h * t["w"]),
            "a": p.params["a"] + h * t["a"],
            "b": p.params["b"] + h * t["b"],
        }
        program = type(p)(p.ops, p.leaves, p.vecs, p.slots, params)
        vecs = self.vecs + h * t["vecs"]
        left, right = self._side(self.x + h * t["x"], vecs[0]), self._side(self.z + h * t["z"], vecs[1])
        return program, left, right, {p.block_leaves[0]: self.block + h * t["block"]}

    def tangent(self, t):
        p = self.program
        slots = [
            sum(t[path] * slot.derivative(path).value(p.params) for path in slot.paths) for slot in p.slots
        ]
        blank = [leaf.kind == LeafKind.BLOCK for leaf in p.leaves]
        return Tangent(
            left=[None if b else t["x"] for b in blank],
            right=[None if b else t["z"] for b in blank],
            left_vecs=t["vecs"][0],
            right_vecs=t["vecs"][1],
            slots=np.array(slots),
            log_weights=[None if leaf.weight is None else t["w"] for leaf in p.leaves],
            blocks={p.block_leaves[0]: t["block"]},
        )


def dotted(grad, t, tangent):
    """The inner product of a gradient with a direction."""
    total = np.sum(grad.left_vecs * t["vecs"][0]) + np.sum(grad.right_vecs * t["vecs"][1])
    total += np.sum(grad.slots * tangent.slots)
    for left, right, weights in zip(grad.left, grad.right, grad.log_weights, strict=True):
        if left is not None:
            total += np.sum(left * t["x"]) + np.sum(right * t["z"])
        if weights is not None:
            total += np.sum(weights * t["w"])
    return total + sum(np.sum(b * t["block"]) for b in grad.blocks.values())


def test_a_program_of_everything_forward_and_reverse(rng):
    program = everything()
    used = {int(op) for op in program.ops[:, 0]}
    assert used == {int(op) for op in Opcode}
    point = Point(rng, program)
    t = point.direction(rng)
    tangent = point.tangent(t)
    at = point.moved(t, 0.0)
    k_dot = pairs.push(*at[:3], tangent, at[3])
    assert_converges(lambda h: pairs.value(*point.moved(t, h)), k_dot)
    g = rng.normal(size=len(k_dot))
    grad = pairs.pull(*at[:3], g, at[3])
    assert dotted(grad, t, tangent) == pytest.approx(np.sum(g * k_dot), rel=1e-12)


def test_a_program_of_everything_in_second_order(rng):
    program = everything()
    point = Point(rng, program)
    t = point.direction(rng)
    at = point.moved(t, 0.0)
    g = rng.normal(size=point.block.shape)
    grad, grad_dot = pairs.pull_push(*at[:3], g, point.tangent(t), at[3])

    def flat(part):
        arrays = [part.left_vecs, part.right_vecs, part.slots, *part.blocks.values()]
        arrays += [a for a in (*part.left, *part.right, *part.log_weights) if a is not None]
        return np.concatenate([np.ravel(a) for a in arrays])

    first = pairs.pull(*at[:3], g, at[3])
    np.testing.assert_array_equal(flat(grad), flat(first))

    def along(h):
        program, left, right, blocks = point.moved(t, h)
        return flat(pairs.pull(program, left, right, g, blocks))

    assert_converges(along, flat(grad_dot))


def test_one_register_read_twice_collects_both_cotangents():
    b = Builder()
    s = b.leaf(Leaf(LeafKind.DOT, Identity()))
    program = b.program(b.mul(s, s))
    x, z = np.array([[2.0]]), np.array([[3.0]])
    sides = Side(1, [x], np.empty((0, 1))), Side(1, [z], np.empty((0, 1)))
    grad = pairs.pull(program, *sides, [1.0])
    assert grad.left[0][0, 0] == 2 * 6.0 * 3.0


def test_zero_cotangents_pass_infinite_slopes():
    b = Builder()
    b.param("w", 1.0)
    s = b.unary(Opcode.MATERN32, b.leaf(leaf_of(LeafKind.SQDIST)))
    program = b.program(b.unary(Opcode.POW, b.add(s, s), 2))
    x = np.array([[1e200], [0.0]])
    sides = Side(2, [x], np.empty((0, 2))), Side(2, [np.zeros((2, 1))], np.empty((0, 2)))
    tangent = Tangent([np.ones((2, 1))], [None])
    for grad in pairs.pull_push(program, *sides, [1.0, 0.0], tangent):
        np.testing.assert_array_equal(grad.left[0], 0.0)
        np.testing.assert_array_equal(grad.log_weights[0], 0.0)

"""The tile engine against the plain interpreter of programs (plain_native), at every instruction set."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import plain_native as plain
from mercer import _native
from mercer.kernels.program import Builder, Leaf, LeafKind, Monomial, Opcode, Side, Tangent, Weight

EPS = np.finfo(np.float64).eps


def leaf(kind, path="w", view="x", **more):
    weight = Weight(path, 1.0) if kind in (LeafKind.SQDIST, LeafKind.L1) else None
    return Leaf(kind, view, weight, **more)


def unary(opcode, power=-1, kind=LeafKind.SQDIST, scale=0.1):
    """A leaf, scaled, under one elementwise operation."""
    b = Builder()
    b.param("w", 0.7)
    b.param("c", scale)
    return b.program(b.unary(opcode, b.scale(b.leaf(leaf(kind)), Monomial(1.0, (("c", 1),))), power))


def composite():
    """Every binary operation, parameters and row vectors, over three leaves."""
    b = Builder()
    b.param("w", 0.5)
    b.param("u", np.array([0.3]))
    b.param("c", 0.8)
    rbf = b.unary(Opcode.EXPNEG, b.leaf(leaf(LeafKind.SQDIST)))
    dot = b.shift(
        b.scale(b.leaf(leaf(LeafKind.DOT)), Monomial(0.1, (("c", 2),))), Monomial(1.0, (("c", -1),))
    )
    fourier = b.leaf(leaf(LeafKind.DIRICHLET, degree=2, unit=True))
    cubed = b.mul(b.unary(Opcode.POW, dot, 3), fourier)
    laplace = b.unary(Opcode.EXPNEG, b.leaf(leaf(LeafKind.L1, "u")))
    both = b.add(b.modulate(rbf, "f"), b.offset(cubed, "g"))
    return b.program(b.add(both, b.mul(laplace, rbf)))


PROGRAMS = {
    "exp": unary(Opcode.EXP, kind=LeafKind.DOT),
    "expneg": unary(Opcode.EXPNEG),
    "matern12": unary(Opcode.MATERN12),
    "matern32": unary(Opcode.MATERN32),
    "matern52": unary(Opcode.MATERN52),
    "log1p": unary(Opcode.LOG1P),
    "tanh": unary(Opcode.TANH, kind=LeafKind.DOT),
    "pow": unary(Opcode.POW, 5, LeafKind.DOT),
    "pow one": unary(Opcode.POW, 1, LeafKind.DOT),
    "powm1": unary(Opcode.POWM1, 4, LeafKind.DOT),
    "l1": unary(Opcode.EXPNEG, kind=LeafKind.L1),
    "chi2": unary(Opcode.EXPNEG, kind=LeafKind.CHI2),
    "composite": composite(),
}
for _degree in (1, 5, 60):
    for _unit in (False, True):
        _b = Builder()
        PROGRAMS[f"dirichlet {_degree} {_unit}"] = _b.program(
            _b.leaf(leaf(LeafKind.DIRICHLET, degree=_degree, unit=_unit))
        )


def make_sides(program, n, m, d, dtype=np.float64, seed=0):
    """Two sides with a few equal rows; CHI2 wants them nonnegative."""
    rng = np.random.default_rng(seed)
    X, Z = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    Z[: min(n, m) // 3] = X[: min(n, m) // 3]
    if any(leaf.kind == LeafKind.CHI2 for leaf in program.leaves):
        X, Z = abs(X), abs(Z)
    count = len(program.vecs)

    def side(F, rows):
        return Side(rows, [F.astype(dtype)] * len(program.leaves), rng.uniform(0.5, 1.5, (count, rows)))

    return side(X, n), side(Z, m)


def close(actual, expected, factor=64.0):
    """Equal to rounding, relative to the largest entry."""
    scale = max(1e-300, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(actual / scale, expected / scale, rtol=0, atol=factor * EPS)


def values(program, left, right, module=_native, **options):
    out = np.empty((left.n, right.n), left.features[0].dtype)
    module.gram(program, left, right, out, **options)
    return out


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 9, 3), (64, 65, 8), (97, 200, 9), (8, 31, 300)])
def test_values(name, shape):
    program = PROGRAMS[name]
    if shape[2] == 300 and name.endswith("False"):
        shape = (*shape[:2], 30)  # (2D+1)^d stays in range
    left, right = make_sides(program, *shape)
    expected = values(program, left, right, plain)
    # A product of d factors, each right to a few eps of its maximum 2D+1, relative to the largest value.
    close(values(program, left, right), expected, factor=64 + 64 * shape[2])


@pytest.mark.parametrize("name", PROGRAMS)
def test_float32_is_near_float64(name):
    program = PROGRAMS[name]
    left, right = make_sides(program, 50, 210, 11, np.float32)
    exact = Side(left.n, [f.astype(float) for f in left.features], left.vecs)
    other = Side(right.n, [f.astype(float) for f in right.features], right.vecs)
    expected = values(program, exact, other)
    # The argument δ of a Dirichlet factor carries eps/2, its slope is below π(2D+1)²; D = 60, d = 11.
    factor = 4e4 if "dirichlet 60" in name else 200
    actual = values(program, left, right).astype(float)
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=factor * np.finfo(np.float32).eps * abs(expected).max()
    )


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_symmetric_is_the_same_bit_for_bit(name, dtype):
    program = PROGRAMS[name]
    left, _ = make_sides(program, 200, 1, 12, dtype)
    K = values(program, left, left, symmetric=True)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(K, values(program, left, left))


@pytest.mark.parametrize("name", ["expneg", "composite", "dirichlet 5 False"])
def test_rows_do_not_depend_on_their_batch_nor_threads(name):
    program = PROGRAMS[name]
    left, right = make_sides(program, 203, 301, 20)
    K = values(program, left, right, n_threads=1)
    np.testing.assert_array_equal(K, values(program, left, right, n_threads=2))
    some = Side(5, [f[40:45] for f in left.features], left.vecs[:, 40:45])
    np.testing.assert_array_equal(K[40:45], values(program, some, right))
    V = np.random.default_rng(1).normal(size=(301, 7))
    products = [np.empty((203, 7)) for _ in range(2)]
    for threads, out in enumerate(products, 1):
        _native.matmul(program, left, right, V, out, n_threads=threads)
    np.testing.assert_array_equal(*products)


@pytest.mark.parametrize("p", [1, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matmul(p, symmetric, dtype):
    program = PROGRAMS["composite"]
    left, right = make_sides(program, 410, 410 if symmetric else 300, 5, dtype)
    right = left if symmetric else right
    V = np.random.default_rng(1).normal(size=(right.n, p)).astype(dtype)
    out = np.empty((left.n, p))
    _native.matmul(program, left, right, V, out, symmetric=symmetric)
    expected = values(program, left, right).astype(float) @ V
    tolerance = 40 * np.finfo(dtype).eps * abs(expected).max()
    np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance)
    again = np.empty_like(out)
    _native.matmul(program, left, right, V, again, symmetric=symmetric, n_threads=2)
    np.testing.assert_array_equal(out, again)


@pytest.mark.parametrize("layout", ["C", "F", "strided", "wider", "negative", "packed"])
def test_output_layouts(layout):
    program = PROGRAMS["expneg"]
    left, right = make_sides(program, 30, 41, 9)
    out = {
        "C": lambda: np.empty((30, 41)),
        "F": lambda: np.empty((30, 41), order="F"),
        "strided": lambda: np.empty((60, 82))[::2, ::2],
        "wider": lambda: np.empty((30, 50))[:, 4:45],
        "negative": lambda: np.empty((30, 41))[::-1],
        # Rows one byte more than whole doubles apart.
        "packed": lambda: np.zeros(30, dtype=[("K", "f8", (41,)), ("flag", "i1")])["K"],
    }[layout]()
    _native.gram(program, left, right, out)
    # A column-ordered result is made with the sides exchanged, so centred at another point.
    close(out, values(program, left, right))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1536, 1601])
@pytest.mark.parametrize("offset", [0, 4])
def test_large_results_past_the_caches(n, dtype, offset):
    """Above 8 MB rows are stored whole vectors at a time where they are aligned; so, too, where not."""
    program = PROGRAMS["expneg"]
    left, _ = make_sides(program, n, 1, 10, dtype)
    memory = _native.empty((n + 1, n), dtype).reshape(-1)
    K = memory[offset : offset + n * n].reshape(n, n)
    K[...] = np.nan
    _native.gram(program, left, left, K, symmetric=True)
    np.testing.assert_array_equal(K, K.T)
    for rows in (slice(0, 100), slice(n - 100, n)):
        some = Side(100, [f[rows] for f in left.features], left.vecs[:, rows])
        np.testing.assert_array_equal(K[rows], values(program, some, left))


@pytest.mark.parametrize("n", [1, 95, 97, 200, 1501])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_float32_result_of_float64_samples_is_rounded(n, symmetric):
    program = PROGRAMS["composite"]
    left, _ = make_sides(program, n, 1, 12, np.float64)
    K = np.full((n, n + 3), np.nan, np.float32)
    steps = []
    _native.gram(program, left, left, K[:, :n], symmetric=symmetric, on_step=lambda: steps.append(1))
    np.testing.assert_array_equal(K[:, :n], values(program, left, left).astype(np.float32))
    assert np.isnan(K[:, n:]).all()
    assert steps


@pytest.mark.parametrize("order", ["F", "strided", "readonly"])
@pytest.mark.parametrize("d", [3, 20])
def test_input_layouts(order, d):
    program = PROGRAMS["composite"]
    left, right = make_sides(program, 30, 41, d)

    def laid(F):
        if order == "F":
            return np.asfortranarray(F)
        if order == "strided":
            wide = np.zeros((2 * F.shape[0], 3 * F.shape[1]))
            wide[::2, ::3] = F
            return wide[::2, ::3]
        F = F.copy()
        F.flags.writeable = False
        return F

    a = Side(left.n, [laid(f) for f in left.features], left.vecs)
    b = Side(right.n, [laid(f) for f in right.features], right.vecs)
    np.testing.assert_array_equal(values(program, a, b), values(program, left, right))


@pytest.mark.parametrize("sides", ["left", "right", "both"])
@pytest.mark.parametrize("name", ["expneg", "exp", "l1", "chi2", "composite"])
def test_csr(sides, name):
    program = PROGRAMS[name]
    left, right = make_sides(program, 130, 140, 30)
    rng = np.random.default_rng(2)
    dense = [f * (rng.uniform(size=f.shape) < 0.2) for f in (left.features[0], right.features[0])]
    dense[1][:20] = dense[0][:20]
    forms = [
        sparse.csr_array(F) if sides in (side, "both") else F
        for F, side in zip(dense, ("left", "right"), strict=True)
    ]
    many = len(program.leaves)
    expected = values(
        program, Side(130, [dense[0]] * many, left.vecs), Side(140, [dense[1]] * many, right.vecs)
    )
    a, b = Side(130, [forms[0]] * many, left.vecs), Side(140, [forms[1]] * many, right.vecs)
    out = np.empty((130, 140))
    _native.gram(program, a, b, out)
    close(out, expected)
    if sides == "both" and name == "expneg":
        same = np.empty((130, 130))
        _native.gram(program, a, a, same, symmetric=True)
        np.testing.assert_array_equal(np.diag(same), 1.0)


@pytest.mark.parametrize("name", ["expneg", "exp", "l1", "chi2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wide_csr_takes_the_columns_that_occur(name, dtype):
    program, rng = PROGRAMS[name], np.random.default_rng(3)
    d = 2**31 - 1
    columns = np.sort(rng.choice(d, 7, replace=False))
    small = [rng.uniform(size=(n, 7)) * (rng.uniform(size=(n, 7)) < 0.5) for n in (50, 60)]
    small = [F.astype(dtype) for F in small]
    wide = []
    for F in map(sparse.csr_array, small):
        wide.append(
            sparse.csr_array(
                (F.data, columns[F.indices].astype(np.int64), F.indptr), shape=(len(F.indptr) - 1, d)
            )
        )
    out = np.empty((50, 60), dtype)
    _native.gram(program, Side(50, wide[:1], np.empty((0, 50))), Side(60, wide[1:], np.empty((0, 60))), out)
    expected = values(program, Side(50, small[:1], np.empty((0, 50))), Side(60, small[1:], np.empty((0, 60))))
    np.testing.assert_allclose(out, expected, rtol=100 * np.finfo(dtype).eps)


def random_tangent(program, left, right, rng):
    return Tangent(
        left=[rng.normal(size=f.shape) for f in left.features],
        right=[rng.normal(size=f.shape) for f in right.features],
        left_vecs=rng.normal(size=left.vecs.shape),
        right_vecs=rng.normal(size=right.vecs.shape),
        slots=rng.normal(size=len(program.slots)),
        log_weights=[
            None if leaf.weight is None else rng.normal(size=f.shape[1])
            for leaf, f in zip(program.leaves, left.features, strict=True)
        ],
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives(name):
    program = PROGRAMS[name]
    left, right = make_sides(program, 19, 70, 4)
    rng = np.random.default_rng(3)
    tangent, G = random_tangent(program, left, right, rng), rng.normal(size=(19, 70))
    G[3], G[:, 5] = 0.0, 0.0
    pushed, expected = np.empty((19, 70)), np.empty((19, 70))
    _native.push(program, left, right, tangent, pushed)
    plain.push(program, left, right, tangent, expected)
    close(pushed, expected, 1e4)
    for actual, reference in zip(
        _native.pull_push(program, left, right, G, tangent),
        plain.pull_push(program, left, right, G, tangent),
        strict=True,
    ):
        for a, e in zip(actual.features, reference.features, strict=True):
            close(a, e, 1e4)
        close(actual.vecs, reference.vecs, 1e4)
        close(actual.slots, reference.slots, 1e4)
        for a, e in zip(actual.log_weights, reference.log_weights, strict=True):
            assert (a is None) == (e is None)
            if a is not None:
                close(a, e, 1e4)


def test_factored_cotangent_and_threads():
    program = PROGRAMS["composite"]
    left, right = make_sides(program, 50, 70, 4)
    rng = np.random.default_rng(3)
    C, V = rng.normal(size=(50, 3)), rng.normal(size=(70, 3))
    whole = _native.pull(program, left, right, C @ V.T, n_threads=1)
    factored = _native.pull(program, left, right, (C, V), n_threads=2)
    for a, e in zip(factored.features, whole.features, strict=True):
        close(a, e, 1e3)
    again = _native.pull(program, left, right, (C, V), n_threads=1)
    np.testing.assert_array_equal(again.slots, factored.slots)
    np.testing.assert_array_equal(again.features[0], factored.features[0])


def test_blocks():
    b = Builder()
    b.param("c", 2.0)
    program = b.program(
        b.unary(Opcode.EXPNEG, b.scale(b.leaf(Leaf(LeafKind.BLOCK, "f")), Monomial(1.0, (("c", 1),))))
    )
    rng = np.random.default_rng(0)
    block = rng.uniform(size=(20, 30))
    left, right = (Side(n, [None], np.zeros((0, n))) for n in block.shape)
    out = np.empty(block.shape)
    _native.gram(program, left, right, out, blocks={0: block})
    close(out, np.exp(-2 * block))
    G, t = rng.normal(size=block.shape), rng.normal(size=block.shape)
    close(_native.pull(program, left, right, G, {0: block}).blocks[0], -2 * G * out, 1e3)
    tangent = Tangent([None], [None], blocks={0: t})
    _, dot = _native.pull_push(program, left, right, G, tangent, {0: block})
    close(dot.blocks[0], 4 * G * out * t, 1e3)


def test_cancelling_pairs_are_recomputed():
    """Two clusters 2²⁷ apart, of short binary fractions: every distance is known exactly."""
    rng = np.random.default_rng(0)
    near = rng.integers(-64, 65, size=(40, 12)) / 64
    X = np.concatenate([near, near + 2.0**27])
    b = Builder()
    b.param("w", 0.5)
    program = b.program(b.unary(Opcode.EXPNEG, b.leaf(leaf(LeafKind.SQDIST))))
    side = Side(80, [X], np.zeros((0, 80)))
    K = values(program, side, side, symmetric=True)
    exact = np.exp(-0.25 * ((near[:, None] - near[None]) ** 2).sum(-1))
    np.testing.assert_allclose(K[:40, :40], exact, rtol=16 * EPS)
    np.testing.assert_array_equal(K[40:, 40:], K[:40, :40])
    np.testing.assert_array_equal(K[:40, 40:], 0.0)


def run_python(code, **environment):
    environment = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_wait_for_the_parents_threads():
    code = """
import os, numpy as np
from mercer.kernels import RBF
X = np.random.default_rng(0).random((1500, 20))
K = RBF()(X, n_threads=2)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(RBF()(X, n_threads=2), K) else 3)
print(os.waitpid(child, 0)[1])
"""
    assert run_python(code).stdout == "0\n"


def test_an_unknown_instruction_set_is_reported():
    done = run_python("from mercer import _native", MERCER_ISA="avx2")
    assert "MERCER_ISA='avx2' is none of the instruction sets here, ['baseline'" in done.stderr


def test_absurd_thread_counts_are_cut():
    program = PROGRAMS["expneg"]
    left, right = make_sides(program, 30, 41, 9)
    out = np.empty((30, 41))
    _native.gram(program, left, right, out, n_threads=10**12)
    np.testing.assert_array_equal(out, values(program, left, right))


@pytest.mark.slow
@pytest.mark.parametrize("isa", _native.isas())
def test_every_instruction_set(isa):
    """This file, and those of other compiled solvers, again with the instruction set forced."""
    environment = {**os.environ, "MERCER_ISA": isa}
    probe = [sys.executable, "-c", "from mercer import _native; print(_native.isa())"]
    assert subprocess.run(probe, env=environment, capture_output=True, text=True).stdout.strip() == isa
    here = Path(__file__)
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", here]
    others = "solvers/test_dual.py", "solvers/test_cholesky.py", "autodiff/test_guards.py"
    tests += [here.parent / name for name in others]
    done = subprocess.run(
        tests, env=environment, capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    assert done.returncode == 0, done.stdout[-3000:]


class TestMemoryOfResults:
    def test_is_kept_for_the_next_result_only_after_the_last_reference(self):
        first = _native.empty((1000, 1000), np.float64)
        address, view = first.ctypes.data, first[3:5]
        view[...] = 7.0
        del first
        second = _native.empty((1000, 1000), np.float64)
        second[...] = 1.0
        assert second.ctypes.data != address
        np.testing.assert_array_equal(view, 7.0)
        del view
        third = _native.empty((1000, 1000), np.float64)
        assert third.ctypes.data == address
        assert third.ctypes.data % 64 == 0

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the C library what a block holds")
    def test_goes_to_a_smaller_result_up_to_two_thirds_of_it(self):
        first = _native.empty((1000, 30000), np.float64)  # 240 MB, beside which little else is kept
        address = first.ctypes.data
        del first
        second = _native.empty((1000, 21000), np.float64)
        assert second.ctypes.data == address
        second[...] = 1.0
        del second
        assert _native.empty((1000, 14000), np.float64).ctypes.data != address

    @pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads the memory that Linux reports")
    def test_no_more_than_256_mb_are_kept(self):
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        before = resident()
        arrays = [_native.empty((1000, 2000 + 500 * i), np.float64) for i in range(14)]  # 590 MB
        del arrays
        assert resident() - before < 2**28 + 2**26

"""The vector functions of native/simd_math.h, at each instruction set that this machine has.

One process per instruction set evaluates every argument below; the references are mpmath's at 50 digits, and
for the dense samples those of an extended long double where the platform has one.
"""

import os
import subprocess
import sys
from functools import cache

import mpmath
import numpy as np
import pytest

from mercer import _native

# What simd_math.h promises, in units in the last place of the true value.
MAX_ULP = 2.0
DTYPES = ("float64", "float32")
SIZES = (0, 1, 7, 8, 9, 63, 64, 65)
INF, NAN = np.inf, np.nan
PI = np.longdouble("3.14159265358979323846264338327950288")
# Payload and sign are no reason to take a NaN for a number (R writes missing values as the first).
NANS = {
    "float64": np.array([0x7FF8000000000000, 0x7FF80000000007A2, 0xFFF8000000ABCDEF], np.uint64),
    "float32": np.array([0x7FC00000, 0x7FC007A2, 0xFFC12345], np.uint32),
}
FUNCTIONS = {
    "exp": mpmath.exp,
    "expneg": lambda x: mpmath.exp(-x),  # for kernels: 0 below the smallest normal number
    "log": mpmath.log,
    "log1p": mpmath.log1p,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "sinpi": mpmath.sinpi,
    "tanh": mpmath.tanh,
}
# Argument, value; "tiny" is the smallest denormal number, "max" the largest number.
SPECIAL = {
    "exp": [(0, 1), (-0.0, 1), ("tiny", 1), (INF, INF), ("max", INF), (-INF, 0), ("-max", 0)],
    "expneg": [(0, 1), (-0.0, 1), ("tiny", 1), (-INF, INF), ("-max", INF), (INF, 0), ("max", 0)],
    "log": [(1, 0), (0, -INF), (-0.0, -INF), (INF, INF), (-1, NAN), ("-tiny", NAN), (-INF, NAN)],
    "log1p": [(0, 0), ("tiny", "tiny"), ("-tiny", "-tiny"), (-1, -INF), (INF, INF), (-1.5, NAN), (-INF, NAN)],
    "sin": [(0, 0), (-0.0, 0), ("tiny", "tiny"), ("-tiny", "-tiny"), (INF, NAN), (-INF, NAN)],
    "cos": [(0, 1), (-0.0, 1), ("tiny", 1), (INF, NAN), (-INF, NAN)],
    "sinpi": [(0, 0), (0.5, 1), (-0.5, -1), (1.5, -1), (1e15, 0), ("max", 0), (INF, NAN), (-INF, NAN)],
    "tanh": [(0, 0), ("tiny", "tiny"), ("-tiny", "-tiny"), (INF, 1), (-INF, -1), ("max", 1), (400, 1)],
    "sqrt": [(0, 0), (4, 2), (INF, INF), (-1, NAN)],
    "rint": [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-3.5, -4), ("max", "max"), (INF, INF), (-INF, -INF)],
}  # fmt: skip
CASES = [(name, dtype) for name in FUNCTIONS for dtype in DTYPES]


def signed_powers(rng, low, high, count):
    """Both signs, the magnitude's logarithm uniform."""
    return np.exp(rng.uniform(np.log(low), np.log(high), count)) * rng.choice([-1.0, 1.0], count)


def neighbours(rng, step, dtype, last, count):
    """Numbers next to multiples of `step`, where sin or cos nearly vanishes."""
    x = (rng.integers(-last, last + 1, count) * step).astype(dtype)
    return x + rng.integers(-3, 4, count).astype(dtype) * np.spacing(x)


def exp_arguments(rng, info, count):
    underflow, overflow = np.log(float(info.smallest_subnormal)) - 2, np.log(float(info.max)) + 0.5
    return [
        rng.uniform(-50, 0, count),
        rng.uniform(-1, 1, count),
        rng.uniform(underflow, overflow, count),
        rng.uniform(underflow, np.log(float(info.smallest_normal)), count),
        signed_powers(rng, 1e-20, 1.0, count),
    ]


def arguments(name, dtype, count):
    """Samples of each range that has its own dangers, `count` of each."""
    rng, info = np.random.default_rng(20240229), np.finfo(dtype)
    tiny, normal, top = float(info.smallest_subnormal), float(info.smallest_normal), float(info.max) * 0.99
    if name in ("exp", "expneg"):
        ranges = exp_arguments(rng, info, count)
        ranges = [-x for x in ranges] if name == "expneg" else ranges
    elif name == "log":
        ranges = [
            np.abs(signed_powers(rng, tiny, top, count)),
            rng.uniform(tiny, normal, count),
            rng.uniform(0.5, 2, count),
            1 + signed_powers(rng, float(info.eps) / 2, 0.5, count),
        ]
    elif name == "log1p":
        ranges = [
            signed_powers(rng, tiny, 0.99, count),
            rng.uniform(-1 + float(info.epsneg), 3, count),
            np.abs(signed_powers(rng, 1e-3, top, count)),
        ]
    elif name in ("sin", "cos"):
        ranges = [
            rng.uniform(-10, 10, count),
            rng.uniform(-1e5, 1e5, count),
            signed_powers(rng, 1e-20, top, count),
            neighbours(rng, PI / 2, dtype, 20, count),
            neighbours(rng, PI / 2, dtype, 63000, count),
            neighbours(rng, PI / 4, dtype, 10**7, count),
        ]
    elif name == "sinpi":
        ranges = [
            rng.uniform(-10, 10, count),
            signed_powers(rng, 1e-20, 1e18, count),
            rng.uniform(-1e6, 1e6, count),
            neighbours(rng, np.longdouble(0.25), dtype, 10**5, count),
        ]
    else:
        ranges = [rng.uniform(-3, 3, count), rng.uniform(0.6, 0.7, count)]
        ranges.append(signed_powers(rng, tiny, 50, count))
    return np.concatenate(ranges).astype(dtype)


def special(name, dtype):
    """Arguments and values of SPECIAL[name], the NaNs of NANS at the end."""
    info = np.finfo(dtype)
    names = {
        sign + word: float(value) * (-1 if sign else 1)
        for word, value in (("tiny", info.smallest_subnormal), ("max", info.max))
        for sign in ("", "-")
    }
    pairs = np.array([[names.get(v, v) for v in pair] for pair in SPECIAL[name]], dtype=np.float64)
    nans = NANS[dtype].view(dtype)
    return tuple(np.concatenate([column.astype(dtype), nans]) for column in pairs.T)


def inputs():
    """Every argument array, by a key that names case, function and dtype."""
    arrays = {}
    for dtype in DTYPES:
        for name in SPECIAL:
            arrays[f"special {name} {dtype}"] = special(name, dtype)[0]
            for size in SIZES:
                arrays[f"size{size} {name} {dtype}"] = np.resize(arrays[f"special {name} {dtype}"], size)
        for name in FUNCTIONS:
            arrays[f"sampled {name} {dtype}"] = arguments(name, dtype, 200)
            arrays[f"dense {name} {dtype}"] = arguments(name, dtype, 20000)
        positive = np.abs(signed_powers(np.random.default_rng(1), 1e-45, 1e38, 1000)).astype(dtype)
        arrays[f"exact sqrt {dtype}"] = positive
        halves = (np.arange(-50, 51) / 2).astype(dtype)
        arrays[f"exact rint {dtype}"] = np.concatenate([positive, -positive, halves])
        arrays[f"mirror expneg {dtype}"] = -arrays[f"dense exp {dtype}"]
    return arrays


EVALUATE = """
import sys
import numpy as np
from mercer import _native
assert _native.isa() == sys.argv[1], _native.isa()
with np.load(sys.argv[2]) as arrays:
    np.savez(sys.argv[3], **{key: _native.simd(key.split()[1], arrays[key]) for key in arrays.files})
"""


@pytest.fixture(scope="module", params=["baseline", "v3", "v4"])
def run(request, tmp_path_factory):
    """Arguments and values by key, as one instruction set computes them."""
    isa = request.param
    if isa not in _native.isas():
        pytest.skip(f"{isa} is not usable here: {_native.isas()} are")
    folder = tmp_path_factory.mktemp(isa)
    x = inputs()
    np.savez(folder / "x.npz", **x)
    command = [sys.executable, "-c", EVALUATE, isa, str(folder / "x.npz"), str(folder / "y.npz")]
    subprocess.run(command, env={**os.environ, "MERCER_ISA": isa}, check=True)
    with np.load(folder / "y.npz") as y:
        return x, {key: y[key] for key in y.files}


@cache
def sampled_reference(name, dtype):
    """High and low part of the true values at 50 digits."""
    with mpmath.workdps(50):
        exact = [FUNCTIONS[name](mpmath.mpf(float(x))) for x in arguments(name, dtype, 200)]
        return np.array([(float(value), float(value - float(value))) for value in exact]).T


@cache
def dense_reference(name, dtype):
    x = arguments(name, dtype, 20000).astype(np.longdouble)
    with np.errstate(all="ignore"):
        if name == "expneg":
            y = np.exp(-x)
        elif name == "sinpi":
            n = np.rint(2 * x)
            r, quadrant = PI * (x - n / 2), np.fmod(n, 4)
            y = np.where(n % 2 == 1, np.cos(r), np.sin(r)) * np.where((quadrant % 4) >= 2, -1, 1)
        else:
            y = getattr(np, name)(x)
        high = y.astype(np.float64)
        low = np.where(np.isfinite(high), y - np.where(np.isfinite(high), high, 0), 0)
        return high, low.astype(np.float64)


def without_denormals(name, reference, dtype):
    """What `expneg` is to give in place of the true values."""
    gone = name == "expneg" and (np.abs(reference[0]) < np.finfo(dtype).smallest_normal)
    return np.where(gone, 0.0, reference)


def ulp_errors(y, reference, dtype):
    """|y − reference| in units in the last place of the reference; 0 where both overflow."""
    high, low = reference
    info = np.finfo(dtype)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.minimum(np.abs(high), float(info.max)).astype(dtype)).astype(np.float64)
        error = np.abs((y.astype(np.float64) - high) - low) / unit
        # What rounds to inf is beyond max + half a unit of max.
        overflow = high > float(info.max) + float(info.max) * float(info.eps) / 4
    return np.where(overflow & (y == INF), 0, error)


def assert_accurate(x, y, reference, dtype):
    errors = ulp_errors(y, reference, dtype)
    worst = np.argmax(np.where(np.isnan(errors), INF, errors))
    assert errors[worst] <= MAX_ULP, f"{errors[worst]:.3g} ulp at {x[worst]!r}: {y[worst]!r}"


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_values_are_within_two_ulp_of_mpmath(run, name, dtype):
    x, y = (arrays[f"sampled {name} {dtype}"] for arrays in run)
    assert_accurate(x, y, without_denormals(name, sampled_reference(name, dtype), dtype), dtype)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than double here")
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_values_are_within_two_ulp_on_dense_samples(run, name, dtype):
    x, y = (arrays[f"dense {name} {dtype}"] for arrays in run)
    assert_accurate(x, y, without_denormals(name, dense_reference(name, dtype), dtype), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values_are_exact(run, name, dtype):
    x, expected = special(name, dtype)
    np.testing.assert_array_equal(run[1][f"special {name} {dtype}"], expected, err_msg=f"at {x}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPECIAL)
def test_a_value_depends_on_no_neighbour(run, name, dtype):
    whole = run[1][f"special {name} {dtype}"]
    for size in SIZES:
        np.testing.assert_array_equal(run[1][f"size{size} {name} {dtype}"], np.resize(whole, size))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sqrt", "rint"])
def test_sqrt_and_rint_round_as_numpy(run, name, dtype):
    x, y = (arrays[f"exact {name} {dtype}"] for arrays in run)
    np.testing.assert_array_equal(y, getattr(np, name)(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_expneg_is_exp_of_the_negative_bit_for_bit_but_for_denormals(run, dtype):
    exp, expneg = run[1][f"dense exp {dtype}"], run[1][f"mirror expneg {dtype}"]
    gone = exp < np.finfo(dtype).smallest_normal
    assert (exp[gone] > 0).any()
    np.testing.assert_array_equal(expneg, np.where(gone, 0, exp))

"""Arrays in: what passes without a copy, what is converted, and what is refused with a place and a remedy."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from mercer._arrays import (
    check_samples,
    check_targets,
    check_weights,
    column_scales,
    common,
    flush_small,
    plain,
    plain_hooks,
    power_of_two,
    row_strips,
    square_part,
)

FLOATS = [np.float32, np.float64]


class TestSamplesThatPass:
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("form", ["C", "F", "strided", "read-only", "reversed"])
    def test_float_arrays_are_not_copied(self, rng, dtype, form):
        X = rng.normal(size=(6, 4)).astype(dtype)
        X = {
            "C": X,
            "F": np.asfortranarray(X),
            "strided": X[::2, ::2],
            "read-only": X,
            "reversed": X[::-1],
        }[form]
        if form == "read-only":
            X.flags.writeable = False
        checked = check_samples(X)
        assert checked is X

    def test_memory_map_is_not_read_into_memory(self, tmp_path, rng):
        path = tmp_path / "X.npy"
        np.save(path, rng.normal(size=(5, 3)))
        X = np.load(path, mmap_mode="r")
        checked = check_samples(X)
        assert np.shares_memory(checked, X)
        np.testing.assert_array_equal(checked, X)

    @pytest.mark.parametrize(
        ("dtype", "becomes"),
        [
            (np.uint8, np.float64),
            (np.int16, np.float64),
            (np.int64, np.float64),
            (bool, np.float64),
            (np.float16, np.float32),
            (">f8", np.float64),
            (">f4", np.float32),
            (object, np.float64),
            (np.longdouble, np.float64),
        ],
    )
    def test_numbers_of_other_types_keep_their_values(self, dtype, becomes):
        X = np.array([[1, 0], [0, 1]]).astype(dtype)
        checked = check_samples(X)
        assert checked.dtype == becomes
        assert checked.dtype.isnative
        np.testing.assert_array_equal(checked, [[1, 0], [0, 1]])

    def test_lists_and_data_frames(self):
        np.testing.assert_array_equal(check_samples([[1, 2], [3, 4]]), [[1.0, 2.0], [3.0, 4.0]])
        frame = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
        np.testing.assert_array_equal(check_samples(frame), frame.to_numpy())

    def test_unaligned_memory_is_copied(self):
        packed = np.zeros(3, dtype=[("tag", "i1"), ("x", "f8", 2)])
        packed["x"] = [[1, 2], [3, 4], [5, 6]]
        checked = check_samples(packed["x"])
        assert checked.flags.aligned
        np.testing.assert_array_equal(checked, packed["x"])

    def test_a_finite_sum_that_overflows_is_no_infinity(self):
        X = np.full((2, 2), np.finfo(np.float64).max)
        assert check_samples(X) is X
        X = np.array([[np.finfo(np.float32).max] * 3], dtype=np.float32)
        assert check_samples(X) is X


class TestSparse:
    @pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok"])
    def test_each_format_becomes_canonical_csr(self, form, rng):
        X = sp.random_array((7, 5), density=0.4, rng=rng).asformat(form)
        checked = check_samples(X)
        assert checked.format == "csr"
        assert checked.has_canonical_format
        np.testing.assert_array_equal(checked.toarray(), X.toarray())

    def test_duplicates_add_up_and_the_callers_matrix_stays(self):
        data, indices, indptr = np.array([1.0, 2.0, 5.0]), np.array([2, 2, 0]), np.array([0, 3])
        X = sp.csr_matrix((data, indices, indptr), shape=(1, 3))
        checked = check_samples(X)
        np.testing.assert_array_equal(checked.toarray(), [[5.0, 0.0, 3.0]])
        np.testing.assert_array_equal(X.indices, [2, 2, 0])
        np.testing.assert_array_equal(X.data, [1.0, 2.0, 5.0])

    def test_integer_data(self):
        checked = check_samples(sp.csr_array(np.array([[0, 3], [1, 0]])))
        assert checked.dtype == np.float64

    def test_nan_is_named_by_its_row_and_column(self):
        X = sp.csr_array((np.array([1.0, np.nan]), np.array([0, 2]), np.array([0, 0, 1, 2])), shape=(3, 3))
        with pytest.raises(ValueError, match="contains NaN at row 2, column 2"):
            check_samples(X)

    def test_where_only_dense_will_do(self):
        with pytest.raises(TypeError, match=r"sparse csr matrix, but dense data is required.*toarray"):
            check_samples(sp.csr_array(np.eye(2)), allow_sparse=False)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ([[1.0, 2.0], [np.nan, 1.0]], ValueError, "Input X contains NaN at row 1, column 0; drop or impute"),
        (
            [[1.0, np.inf], [np.nan, 1.0]],
            ValueError,
            r"infinity \(inf\) at row 0, column 1, and 1 more such entry",
        ),
        (np.zeros((0, 3)), ValueError, r"0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1"),
        (np.zeros((3, 0)), ValueError, r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1"),
        (np.zeros(3), ValueError, r"1D array instead: X has shape \(3,\).*Reshape your data"),
        (np.zeros((2, 2, 2)), ValueError, "got 3D array"),
        (3.0, ValueError, "got 0D array"),
        (np.zeros((2, 2), complex), ValueError, "Complex data not supported: X has dtype complex128"),
        (
            np.array([[1, 2j]], dtype=object),
            ValueError,
            "Complex data not supported: X holds 2j at row 0, column 1",
        ),
        ([[1, "a"]], ValueError, "X holds the string 'a' at row 0, column 1"),
        (np.array([["1", "2"]]), ValueError, "X holds the string '1' at row 0, column 0"),
        (np.array([[1, "2"]], dtype=object), ValueError, "X holds the string '2' at row 0, column 1"),
        (np.array([[1.0, "a"]], dtype=object), ValueError, "the string 'a' at row 0, column 1.*encode"),
        (np.array([[1.0, None]], dtype=object), ValueError, "contains NaN at row 0, column 1"),
        (np.array([[{}]], dtype=object), TypeError, "argument must be a string or a real number"),
        ([[1.0, 2.0], [3.0]], ValueError, "X is not a rectangular array"),
        ("abc", ValueError, "X is the string 'abc'"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), TypeError, r"dtype datetime64\[D\]"),
        (np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]]), ValueError, "1 masked entries"),
        (sp.csr_array(np.array([[1j]])), ValueError, "Complex data not supported"),
    ],
)
def test_bad_samples_are_refused_with_place_and_remedy(X, error, message):
    with pytest.raises(error, match=message):
        check_samples(X)


def test_duplicates_of_narrow_integers_add_up():
    entries = (np.array([200, 100], np.uint8), ([0, 0], [1, 1]))
    for make in (sp.coo_array, sp.coo_matrix):
        assert check_samples(make(entries, shape=(2, 2)))[0, 1] == 300
    flags = sp.coo_array((np.array([True, True]), ([0, 0], [1, 1])), shape=(2, 2))
    assert check_samples(flags)[0, 1] == 2


@pytest.mark.parametrize("index", [-1, 3])
def test_a_column_index_out_of_bounds_is_refused(index):
    X = sp.csr_array(np.eye(3))
    X.indices[2] = index
    with pytest.raises(ValueError, match=f"row 2 has the column index {index}, and there are 3 columns"):
        check_samples(X)


@pytest.mark.parametrize(
    ("X", "error", "match"),
    [
        ([[10**400]], ValueError, "an integer of 1329 bits at row 0, column 0, too large for float64"),
        ({"a": 1}, TypeError, "X is {'a': 1} of type dict, where numbers are needed"),
        ((row for row in [[1.0]]), TypeError, "of type generator, where numbers are needed"),
    ],
)
def test_things_that_are_no_matrix_are_named(X, error, match):
    with pytest.raises(error, match=match):
        check_samples(X)


def test_feature_count_unlike_the_fits():
    with pytest.raises(
        ValueError, match="X has 1 features, but KernelRidge is expecting 4 features as input"
    ):
        check_samples(np.ones((2, 1)), n_features=4, owner="KernelRidge")


def test_an_argument_is_called_by_its_name():
    with pytest.raises(ValueError, match="Input Z contains NaN"):
        check_samples([[np.nan]], name="Z")


def test_common_takes_the_wider_dtype(rng):
    X, Z = rng.normal(size=(2, 2)), rng.normal(size=(2, 2)).astype(np.float32)
    assert [a.dtype for a in common(X, Z)] == [np.float64] * 2
    assert [a.dtype for a in common(Z, Z)] == [np.float32] * 2
    assert common(X, X)[0] is X


class TestTargets:
    @pytest.mark.parametrize(
        ("y", "error", "message"),
        [
            (None, ValueError, "requires y to be passed, but the target y is None"),
            ([1.0], ValueError, "X has 2 rows, y has 1"),
            ([[[1.0]], [[2.0]]], ValueError, "y should be a 1d array"),
            (np.zeros((2, 0)), ValueError, "y has no columns"),
            ([1.0, np.nan], ValueError, r"Input y contains NaN.*\n.*row 1"),
            ([1.0, np.inf], ValueError, "Input y contains infinity"),
            (["a", "b"], ValueError, "y holds the string 'a' at row 0"),
            ([1j, 2j], ValueError, "Complex data"),
            (sp.csr_array(np.ones((2, 1))), TypeError, "sparse"),
        ],
    )
    def test_bad_ones(self, y, error, message):
        with pytest.raises(error, match=message):
            check_targets(y, 2)

    def test_good_ones(self):
        y = np.array([1.0, 2.0])
        assert check_targets(y, 2) is y
        assert check_targets([1, 2], 2).dtype == np.float64
        assert check_targets(pd.Series([1, 2]), 2).shape == (2,)


class TestWeights:
    def test_none_and_numbers(self):
        assert check_weights(None, 3) is None
        np.testing.assert_array_equal(check_weights(2, 3), [2.0, 2.0, 2.0])
        np.testing.assert_array_equal(check_weights([1, -1, 0], 3), [1.0, -1.0, 0.0])

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([0.0, 0.0], "no positive entry .*zero"),
            ([1.0, np.nan], "Input sample_weight contains NaN at row 1"),
            ("balanced", "the string 'balanced'.*; give one number for each row; .* class_weight"),
            ([1.0], "has 1 entries, but X has 2 rows"),
            ([[1.0], [1.0]], "1D array with one weight per row"),
        ],
    )
    def test_bad_ones(self, weights, message):
        with pytest.raises(ValueError, match=message):
            check_weights(weights, 2)


def test_powers_of_two_next_to_sizes():
    sizes = np.array([1.0, 1.5, 2.0, 0.7, 3e300, 5e-324, 0.0, np.inf, np.nan])
    expected = [1.0, 1.0, 2.0, 0.5, 2.0**998, 2.0**-1074, 1.0, 1.0, 1.0]
    np.testing.assert_array_equal(power_of_two(sizes), expected)
    assert power_of_two(6.0) == 4.0
    V = np.array([[0.0, -6.0, 1.0], [0.0, 5.0, np.inf]])
    np.testing.assert_array_equal(column_scales(V), [1.0, 4.0, 1.0])


@pytest.mark.parametrize("unit", [1.0, 2.0**-60, 2.0**60])
@pytest.mark.parametrize(("dtype", "grain"), [(np.float32, 2.0**-51), (np.float64, 2.0**-483)])
def test_small_numbers_become_zero(rng, dtype, grain, unit):
    sizes = np.ldexp(unit, -rng.integers(0, 60 if dtype == np.float32 else 900, 4000))
    A = (rng.uniform(-1, 1, 4000) * sizes).astype(dtype).reshape(40, 100)
    A[0, 0] = unit
    before = A.copy()
    assert flush_small(A, unit) is A
    assert (A == 0).mean() > 0.05
    assert np.abs(A[A != 0]).min() >= grain * unit
    assert A[0, 0] == unit
    rounding = 2 * np.finfo(dtype).eps * np.abs(before.astype(np.float64))
    assert (np.abs(A.astype(np.float64) - before) <= grain * unit + rounding).all()


def test_flushing_keeps_nan_and_infinity():
    np.testing.assert_array_equal(flush_small(np.array([np.nan, np.inf, -np.inf])), [np.nan, np.inf, -np.inf])


@pytest.mark.parametrize("length", [0, 1, 2**14, 2**20, 10**9])
@pytest.mark.parametrize("n", [0, 1, 127, 128, 129, 300])
def test_strips_are_all_rows_in_order(n, length):
    strips = list(row_strips(n, length))
    assert [i for some in strips for i in range(n)[some]] == list(range(n))
    assert all((some.stop - some.start) * length <= max(2**21, length) for some in strips)


@pytest.mark.parametrize("m", [0, 1, 130, 300])
@pytest.mark.parametrize("form", ["C", "F", "sparse", "float32"])
def test_a_part_of_a_square(rng, form, m):
    A = rng.normal(size=(300, 300))
    index = rng.integers(0, 300, m)
    expected = A[np.ix_(index, index)]
    if form == "sparse":
        found = square_part(sp.csr_array(A), index).toarray()
    else:
        A = A.astype(np.float32) if form == "float32" else np.array(A, order=form)
        found, expected = square_part(A, index), expected.astype(A.dtype)
        assert found.flags.c_contiguous
        assert found.dtype == A.dtype
    np.testing.assert_array_equal(found, expected)


def test_plain_asks_the_hooks():
    class Traced:
        value = 3.0

    def hook(value):
        return value.value if isinstance(value, Traced) else NotImplemented

    plain_hooks.append(hook)
    try:
        assert plain(Traced()) == 3.0
        assert plain(2.0) == 2.0
    finally:
        plain_hooks.remove(hook)

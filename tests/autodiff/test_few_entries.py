"""Arrays with no entry, or with one: NumPy's values, and derivatives of the shape of what they belong to."""

import warnings

import numpy as np
import pytest
import scipy.special

import mercer.autodiff as ad

SHAPES = ((), (1,), (0,), (0, 3), (3, 0), (1, 1), (2, 0, 2))
ORDERS = {"vector": (2, 1, np.inf, 3, 0), "matrix": ("fro", "nuc", 1, np.inf, 2)}
FUNCTIONS = {
    **{
        f"{f.__name__} {options}": lambda x, f=f, options=options: f(x, **options)
        for f in (
            np.sum, np.prod, np.mean, np.var, np.std, np.median, np.quantile,
            np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nanstd, np.nanmedian,
        )
        for options in ({}, {"axis": -1}, {"axis": 0, "keepdims": True})
        if f is not np.quantile or options.setdefault("q", 0.3)
    },
    **{
        f"{f.__name__} ddof={ddof}": lambda x, f=f, ddof=ddof: f(x, ddof=ddof)
        for f in (np.var, np.std, np.nanvar)
        for ddof in (1, 2)
    },
    **{
        f"{f.__name__} {initial}": lambda x, f=f, initial=initial: f(x, include_initial=initial)
        for f in (np.cumulative_sum, np.cumulative_prod)
        for initial in (True, False)
    },
    **{
        f"norm {order}": lambda x, order=order: np.linalg.norm(x, order)
        for order in (None, *ORDERS["vector"], *ORDERS["matrix"])
    },
    **{f"vector_norm {o}": lambda x, o=o: np.linalg.vector_norm(x, ord=o) for o in ORDERS["vector"]},
    **{f"matrix_norm {o}": lambda x, o=o: np.linalg.matrix_norm(x, ord=o) for o in ORDERS["matrix"]},
    **{
        f"pad {mode}": lambda x, mode=mode: np.pad(x, (2, 1) if np.ndim(x) else 0, mode)
        for mode in ("constant", "linear_ramp")
    },
    "logsumexp": ad.scipy.special.logsumexp,
    "logsumexp, weighted": lambda x: ad.scipy.special.logsumexp(x, b=np.full(np.shape(x), 2.0)),
    "softmax": ad.scipy.special.softmax,
    **{
        f"{f.__name__}.{method}": lambda x, f=f, method=method: getattr(f, method)(x)
        for f in (np.hypot, np.logaddexp, np.add, np.multiply, np.maximum)
        for method in ("reduce", "accumulate")
    },
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_few_entries(name, shape):
    """What NumPy refuses is an error of the same kind; else the value is NumPy's in shape and type."""
    if not shape and "axis" in name:
        pytest.skip("some of NumPy's reductions take an axis of a number, some do not")
    f, x = FUNCTIONS[name], np.full(shape, -1.25)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of means of nothing, which NumPy warns of
        try:
            expected = np.asarray(f(x))
        except (ValueError, IndexError, TypeError, np.exceptions.AxisError, np.linalg.LinAlgError) as error:
            for run in (lambda: ad.jvp(f, (x,), (x,)), lambda: ad.vjp(f, x)):
                with pytest.raises((type(error), ValueError)):
                    run()
            return
        value, tangent = ad.jvp(f, (x,), (np.ones(shape),))
        again, pull = ad.vjp(f, x)
        (gradient,) = pull(np.ones(expected.shape))
    for found in (value, again):
        np.testing.assert_allclose(found, expected, rtol=1e-14)
        assert (np.shape(found), np.asarray(found).dtype) == (expected.shape, expected.dtype)
    assert np.shape(tangent) == expected.shape
    assert (np.shape(gradient), np.asarray(gradient).dtype) == (shape, x.dtype)
    if x.size and np.isfinite(expected).all():
        np.testing.assert_allclose(np.sum(gradient), np.sum(tangent), rtol=1e-14)


def test_reduceat_of_one_entry_is_the_entry():
    """It is not the ufunc of the entry and its identity: np.hypot keeps the sign."""
    x = np.array([-1.0, -2.0, 3.0])

    def f(x):
        return np.hypot.reduceat(x, [0, 1])

    value, tangent = ad.jvp(f, (x,), (np.ones(3),))
    np.testing.assert_array_equal(value, f(x))
    np.testing.assert_allclose(tangent, [1.0, 1.0 / np.sqrt(13)], rtol=1e-14)


def test_a_variance_without_freedom_has_no_derivative():
    """Where n ≤ ddof the variance is infinite or NaN, and no finite number is its slope."""
    for ddof in (2, 3):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for f in (np.var, np.std):
                assert np.isnan(
                    ad.grad(lambda x, f=f, ddof=ddof: f(x, ddof=ddof))(np.array([1.0, 2.0]))
                ).all()


def test_weights_of_one_number():
    """log(b exp(a)) = a + log b, whose slope in b is 1/b, a number like b."""
    slopes = ad.grad(lambda a, b: ad.scipy.special.logsumexp(a, b=b), argnums=(0, 1))(0.5, 4.0)
    assert [np.shape(s) for s in slopes] == [(), ()]
    np.testing.assert_allclose(slopes, [1.0, 0.25], rtol=1e-14)
    assert scipy.special.logsumexp(0.5, b=4.0) == pytest.approx(0.5 + np.log(4.0))

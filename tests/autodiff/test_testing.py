"""Checks of derivatives must fail on wrong rules, however small the error."""

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.testing import check_derivative

X = np.array([0.3, -0.7, 1.1])


def sine(slope=1.0, forward_slope=None, second=None):
    """The sine by a rule whose slope may be wrong."""
    forward_slope = slope if forward_slope is None else forward_slope
    cosine = np.cos if second is None else second
    return ad.primitive(
        np.sin,
        jvp=lambda t, ans, x: forward_slope * t[0] * cosine(x),
        vjp=lambda g, ans, x: slope * g * cosine(x),
    )


def test_right_rules_pass():
    check_derivative(sine(), X)
    check_derivative(lambda x, y: {"a": x * sine()(y), "b": [y]}, X, 2.0)
    check_derivative(lambda z: z * z, np.array([0.3 + 1j, 2.0]))
    check_derivative(lambda x: np.sum(x) * 1e-9, X)
    check_derivative(lambda x: np.exp(x + 30), X)
    check_derivative(lambda tree: tree["x"] * tree["y"][0], {"x": X, "y": (2,)})


@pytest.mark.parametrize("error", [1.0, 1e-3, 1e-5, 1e-7, -1e-8])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_wrong_slopes_fail(error, scale):
    f = sine(1 + error)
    with pytest.raises(AssertionError, match="do not fall to"):
        check_derivative(lambda x: scale * f(x), X, order=1)


def test_modes_that_differ_are_told():
    with pytest.raises(AssertionError, match=r"by forward mode .* do not fall"):
        check_derivative(sine(forward_slope=1 + 1e-6), X, order=1)
    with pytest.raises(AssertionError, match=r"by reverse mode .* do not fall"):
        check_derivative(sine(1 + 1e-6, forward_slope=1.0), X, order=1)
    check_derivative(sine(1 + 1e-6, forward_slope=1.0), X, order=1, modes=["forward"])


def test_wrong_second_derivatives_fail():
    # The slope is right, its derivative is not followed.
    blind = sine(second=lambda x: np.cos(ad.stop_gradient(x)))
    check_derivative(blind, X, order=1)
    with pytest.raises(AssertionError, match="forward over forward mode"):
        check_derivative(blind, X)
    with pytest.raises(AssertionError, match="reverse over reverse mode"):
        check_derivative(ad.primitive(np.sin, vjp=lambda g, ans, x: g * np.cos(ad.stop_gradient(x))), X,
                         modes=["reverse"])  # fmt: skip


def test_a_zero_derivative_is_not_taken_for_a_small_one():
    with pytest.raises(AssertionError):
        check_derivative(lambda x: 1e-12 * np.sin(ad.stop_gradient(x)), X, order=1)
    check_derivative(lambda x: ad.stop_gradient(np.ones(3)) * np.ones(2)[0] + 0 * x, X)


def test_differences_are_told_as_plain_numbers():
    with pytest.raises(AssertionError, match=r"give \[-?\d.*\d\]: the relative errors"):
        check_derivative(sine(2.0), X, order=1)


def test_a_missing_conjugate_fails():
    wrong = ad.primitive(lambda z: z * z, jvp=lambda t, ans, z: 2 * z * t[0], vjp=lambda g, ans, z: 2 * z * g)
    with pytest.raises(AssertionError, match="reverse mode"):
        check_derivative(wrong, np.array([0.5 + 0.8j]), order=1)


@pytest.mark.parametrize("wrong", [{"order": 3}, {"modes": ()}, {"modes": ["backward"]}])
def test_bad_input(wrong):
    with pytest.raises(ValueError, match="order must be 1 or 2"):
        check_derivative(np.sin, X, **wrong)

"""Losses of masked probabilities: logits of −inf have the derivative 0 in both modes, to second order."""

import numpy as np
import pytest
import scipy.special as sp

import mercer.autodiff as ad
from mercer.autodiff.scipy.special import log_softmax, logsumexp, softmax
from mercer.testing import check_derivative

MASK = np.array([[True, True, False, True], [True, False, False, False], [True, True, True, True]])
X = np.random.default_rng(0).standard_normal((3, 4))


def _softmax(z):
    e = np.exp(z - np.max(z, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _log_softmax(z):
    return z - logsumexp(z, axis=-1, keepdims=True)


def _running(z):
    return np.logaddexp.accumulate(z, axis=-1)[:, 1:][MASK[:, 1:]]


LOSSES = {
    "p log p where": lambda z: np.where(MASK, _softmax(z) * np.log(_softmax(z)), 0),
    "p log p inner where": lambda z: _softmax(z) * np.log(np.where(MASK, _softmax(z), 1)),
    "xlogy": lambda z: sp.xlogy(_softmax(z), _softmax(z)),
    "entr": lambda z: sp.entr(_softmax(z)),
    "entr of scipy's": lambda z: sp.entr(softmax(z, axis=-1)),
    "xlogy of scipy's": lambda z: sp.xlogy(softmax(z, axis=-1), softmax(z, axis=-1)),
    "p l where": lambda z: np.where(MASK, np.exp(_log_softmax(z)) * _log_softmax(z), 0),
    "softmax log_softmax": lambda z: np.where(MASK, softmax(z, axis=-1) * log_softmax(z, axis=-1), 0),
    "nansum": lambda z: np.nansum(_softmax(z) * np.log(_softmax(z)), axis=-1),
    "nan_to_num": lambda z: np.nan_to_num(_softmax(z) * np.log(_softmax(z))),
    "log of p + eps": lambda z: _softmax(z) * np.log(_softmax(z) + 1e-6),
    "clip": lambda z: _softmax(z) * np.log(np.clip(_softmax(z), 1e-6, 1)),
    "log where": lambda z: _softmax(z) * np.log(_softmax(z), out=np.zeros_like(z), where=MASK),
    "sum where": lambda z: np.sum(_softmax(z) * np.log(_softmax(z)), axis=-1, where=MASK),
    "selected": lambda z: _softmax(z)[MASK] * np.log(_softmax(z)[MASK]),
    "logsumexp": lambda z: logsumexp(z, axis=-1),
    "logsumexp with weights": lambda z: logsumexp(z, axis=-1, b=np.where(MASK, 1.0, 0.0)),
    "logaddexp.reduce": lambda z: np.logaddexp.reduce(z, axis=-1),
    "logaddexp of two": lambda z: np.logaddexp(z[:, 2], z[:, 1])[[0, 2]],
    "logaddexp.accumulate": _running,
    "entropy": lambda z: logsumexp(z, axis=-1) - np.sum(np.where(MASK, _softmax(z) * z, 0), axis=-1),
    "chosen log": lambda z: log_softmax(z, axis=-1)[:, 0],
    "rel_entr": lambda z: sp.rel_entr(_softmax(z), np.where(MASK, 0.25, 0)),
    "kl_div": lambda z: sp.kl_div(_softmax(z), np.where(MASK, 0.25, 0)),
    "attention": lambda z: _softmax(z) @ X.T,
    "roots": lambda z: np.where(MASK, np.sqrt(_softmax(z)), 0),
    "focal": lambda z: (1 - _softmax(z)) ** 2 * np.where(MASK, np.log(_softmax(z)), 0),
    "binary": lambda z: sp.entr(sp.expit(z)) + sp.entr(sp.expit(-z)),
}


def _assigned(x):
    z = np.copy(x)
    z[~MASK] = -np.inf
    return z


def _copied(x):
    z = np.copy(x)
    np.copyto(z, -np.inf, where=~MASK)
    return z


MASKS = {
    "where": lambda x: np.where(MASK, x, -np.inf),
    "added": lambda x: x + np.where(MASK, 0.0, -np.inf),
    "assigned": _assigned,
    "copied": _copied,
}


@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("loss", LOSSES)
@np.errstate(divide="ignore", invalid="ignore")
def test_masked_losses(loss, masked):
    f = lambda x: LOSSES[loss](MASKS[masked](x))  # noqa: E731
    check_derivative(f, X)
    assert (ad.jacobian(f)(X)[..., ~MASK] == 0).all()


@np.errstate(divide="ignore", invalid="ignore")
def test_a_row_of_minus_infinity_shares_equally():
    z = np.full((1, 3), -np.inf)
    np.testing.assert_array_equal(ad.grad(lambda z: logsumexp(z))(z), np.full((1, 3), 1 / 3))
    np.testing.assert_array_equal(ad.grad(lambda z: np.logaddexp.reduce(z[0]))(z), np.full((1, 3), 1 / 3))


def test_an_empty_sum_of_exponentials():
    with np.errstate(divide="ignore"):
        for b in (None, np.ones((2, 0))):
            x = np.zeros((2, 0))
            value, pullback = ad.vjp(lambda x, b=b: logsumexp(x, axis=1, b=b), x)
            np.testing.assert_array_equal(value, sp.logsumexp(x, axis=1, b=b))
            assert pullback(np.ones(2))[0].shape == (2, 0)


@pytest.mark.parametrize("c", [0.0, -0.0])
def test_a_zero_slope_before_an_infinite_one_is_zero_in_both_modes(c):
    """Of √(c x) at c = 0, a constant in x, the derivative is 0 whichever end the chain rule starts from."""
    with np.errstate(divide="ignore"):
        for shape in ((), (3,), (2, 3), (200_000,)):
            x, v = np.ones(shape), np.full(shape, 2.0)
            f = lambda x: np.sqrt(np.abs(c * x))  # noqa: E731
            assert not np.any(ad.jvp(f, (x,), (v,))[1])
            assert not np.any(ad.vjp(f, x)[1](v)[0])

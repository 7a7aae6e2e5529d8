"""Rules of sums, means, extrema and what sorts."""

import numpy as np

from mercer.autodiff.rules import define


def _sum_vjp(g, ans, x, axis=None, dtype=None, out=None, keepdims=False, **_):
    if axis is not None and not keepdims:
        g = np.expand_dims(g, axis)
    return np.broadcast_to(g, np.shape(x))


define(np.sum, jvp="linear", vjp=[_sum_vjp])

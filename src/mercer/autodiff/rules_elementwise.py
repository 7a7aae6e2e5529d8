"""Rules of elementwise functions: one line each."""

import numpy as np

from mercer.autodiff.rules import cast, composite, define, elementwise, no_derivative
from mercer.autodiff.trace import plain

elementwise(np.add, 1, 1)
elementwise(np.subtract, 1, -1)
elementwise(np.multiply, lambda ans, x, y: y, lambda ans, x, y: x)
elementwise(np.true_divide, lambda ans, x, y: 1 / y, lambda ans, x, y: -ans / y)
elementwise(np.negative, -1)
elementwise(np.sin, lambda ans, x: np.cos(x))
elementwise(np.cos, lambda ans, x: -np.sin(x))
elementwise(np.exp, lambda ans, x: ans)
elementwise(np.log, lambda ans, x: 1 / x)
no_derivative(np.isfinite, np.equal, np.greater, np.less, np.not_equal, np.greater_equal, np.less_equal)


define(np.conjugate, jvp=[lambda t, ans, x: np.conj(t)], vjp=[lambda g, ans, x: np.conj(g)], batched=True)
define(np.real, jvp=[lambda t, ans, x: np.real(t)], vjp=[lambda g, ans, x: cast(np.real(g), x)], batched=True)
define(
    np.imag,
    jvp=[lambda t, ans, x: np.imag(t)],
    vjp=[lambda g, ans, x: cast(1j * np.real(g), x)],
    batched=True,
)

_where = elementwise(
    lambda x, y, condition: np.where(condition, x, y),
    lambda ans, x, y, condition: np.asarray(condition, ans.dtype),
    lambda ans, x, y, condition: np.asarray(np.logical_not(condition), ans.dtype),
    None,
    name="np.where",
)


@composite(np.where)
def where(condition, x, y):
    """Select by element; what is not selected gets a zero tangent and cotangent, exactly."""
    return _where(x, y, plain(condition))

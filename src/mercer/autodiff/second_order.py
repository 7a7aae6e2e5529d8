"""Second derivatives (LINMA 1.7): Hessian-vector products and Hessians, in four nestings of the two modes."""

import functools

from mercer.autodiff.derivative import check_function, grad, gradient_pushed, jvp, vjp
from mercer.autodiff.jacobians import jacobian

__all__ = ["hessian", "hvp", "second_directional"]

MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")


def _checked(mode):
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    return mode


def hvp(f, x, v, mode="forward-over-reverse"):
    """Return the product of f's Hessian at x with v.

    Parameters
    ----------
    f : callable
        A scalar function of one array (or tree).
    x, v : array or tree
        Of equal shapes.
    mode : str, default="forward-over-reverse"
        Which derivative is taken of which: the outer mode is named first (LINMA 1.7). "forward-over-forward"
        takes one pass for each entry of x (in chunks), the others a constant number.

    Returns
    -------
    array or tree, as x

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> ad.hvp(lambda x: np.sum(x**3), np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([6., 0.])
    """
    _checked(mode)
    if mode == "forward-over-reverse":
        return gradient_pushed(f, x, v)
    if mode == "reverse-over-forward":
        return grad(lambda x: jvp(f, (x,), (v,))[1])(x)
    if mode == "reverse-over-reverse":
        _, pullback = vjp(grad(f), x)
        return pullback(v)[0]
    return jvp(jacobian(f, mode="forward"), (x,), (v,))[1]


def hessian(f, mode="forward-over-reverse", argnums=0, chunk_size=None):
    """Return a function that computes f's Hessian.

    Parameters
    ----------
    f : callable
        A scalar function.
    mode : str, default="forward-over-reverse"
        See :func:`hvp`.
    argnums : int, default=0
        The argument to differentiate in.
    chunk_size : int, optional
        Directions carried in one pass.

    Returns
    -------
    callable
        Its value has the shape of the argument twice; for a tree, a tree of trees.
    """
    check_function(f, "hessian")
    outer, inner = _checked(mode).split("-over-")
    if inner == "reverse":
        gradient = grad(f, argnums)
    else:
        gradient = jacobian(f, "forward", argnums, chunk_size)

    @functools.wraps(f, updated=())
    def hessian_of(*args, **kwargs):
        return jacobian(gradient, outer, argnums, chunk_size)(*args, **kwargs)

    return hessian_of


def second_directional(f, x, v, w):
    """Return wᵀ ∇²f(x) v by doubly nested dual numbers (LINMA 1.7.1): no tape, no Hessian.

    Parameters
    ----------
    f : callable
    x, v, w : array or tree
        Of equal shapes.

    Returns
    -------
    scalar
        Or, for a function with several values, one for each.
    """
    return jvp(lambda x: jvp(f, (x,), (v,))[1], (x,), (w,))[1]

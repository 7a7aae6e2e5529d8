"""Checks of derivatives, for users' own functions and rules as for ours."""

import numpy as np

import mercer.autodiff as ad
from mercer.autodiff.trees import flatten, leaf, unflatten

__all__ = ["check_derivative"]


def check_derivative(
    f, *args, order=2, modes=("forward", "reverse"), rtol=1e-6, holomorphic=False, random_state=0
):
    """Check f's derivatives at a point against central differences, and forward against reverse mode.

    Parameters
    ----------
    f : callable
        Takes the arguments; returns an array, a number or a tree of these.
    *args : arrays, numbers or trees
        The point; float64 or complex128. f must be smooth within some 1e-3 of it.
    order : {1, 2}
        2 checks the derivative of the derivative too, in every nesting of the modes.
    modes : sequence of {"forward", "reverse"}
        What to check; rules that have one mode only are checked in that.
    rtol : float
        Of the differences, whose error must also fall with their step. Forward and reverse mode are compared to 1e-9.
    random_state : int
        The directions drawn.

    Raises
    ------
    AssertionError
        Naming the comparison that failed, and by how much.

    Examples
    --------
    >>> import numpy as np
    >>> check_derivative(lambda x: np.sin(x) * x, np.array([0.3, 0.7]))
    """
    rng = np.random.default_rng(random_state)
    leaves, structure = flatten(tuple(args))
    leaves = [leaf(x, "the point") for x in leaves]
    point = unflatten(structure, leaves)
    u, w = [_direction(rng, x) for x in leaves], None
    value, tangent = ad.jvp(f, point, unflatten(structure, u)) if "forward" in modes else (f(*point), None)
    outputs, shape = flatten(value)
    w = [_direction(rng, np.asarray(o)) for o in outputs]

    def moved(h):
        return _dot(
            w, flatten(f(*unflatten(structure, [x + h * d for x, d in zip(leaves, u, strict=True)])))[0]
        )

    found = {}
    if tangent is not None:
        found["forward"] = _dot(w, flatten(tangent)[0])
    if "reverse" in modes:
        pulled = ad.vjp(f, *point)[1](unflatten(shape, w))
        found["reverse"] = _dot(flatten(pulled)[0], u)
    _against_differences(found, moved, rtol, f"of order {3 - order}" if order == 1 else "")
    if len(found) == 2:
        _close(found["forward"], found["reverse"], 1e-9, "forward and reverse mode differ")
    if order == 2:
        _check_second(f, point, structure, u, w, shape, modes, rtol, rng)


def _check_second(f, point, structure, u, w, shape, modes, rtol, rng):
    """Check the derivatives of x ↦ ⟨w, J(x) u⟩, computed in each mode, in each mode."""
    firsts = {}
    if "forward" in modes:
        firsts["forward"] = lambda *x: _dot(w, flatten(ad.jvp(f, x, unflatten(structure, u))[1])[0])
    if "reverse" in modes:
        firsts["reverse"] = lambda *x: _dot(flatten(ad.vjp(f, *x)[1](unflatten(shape, w)))[0], u)
    found = {}
    leaves = flatten(point)[0]
    v = [_direction(rng, x) for x in leaves]
    for inner, first in firsts.items():
        if "forward" in modes:
            found[f"forward over {inner}"] = ad.jvp(first, point, unflatten(structure, v))[1]
        if "reverse" in modes:
            found[f"reverse over {inner}"] = _dot(flatten(ad.vjp(first, *point)[1](1.0))[0], v)
        _against_differences(
            found,
            lambda h, first=first: first(
                *unflatten(structure, [x + h * d for x, d in zip(leaves, v, strict=True)])
            ),
            rtol,
            "of second order",
        )
    values = list(found.values())
    for name, value in found.items():
        _close(value, values[0], 1e-8, f"{name} and {next(iter(found))} differ")


def _direction(rng, x):
    """Draw a direction of norm 1, or 0 for what has no derivative."""
    if x.dtype.kind not in "fc":
        return np.zeros(x.shape)
    d = rng.standard_normal(x.shape)
    if x.dtype.kind == "c":
        d = d + 1j * rng.standard_normal(x.shape)
    return (d / max(np.linalg.norm(np.ravel(d)), 1e-300)).astype(x.dtype)[()]


def _dot(a, b):
    """The real inner product Re Σ conj(a) b."""
    return sum(np.sum(np.real(np.conj(x) * y)) for x, y in zip(a, b, strict=True))


def _against_differences(found, moved, rtol, what):
    """Compare with central differences (f(h) − f(−h)) / 2h, extrapolated; the best of several steps counts."""
    estimates = []
    for h in (1e-2, 1e-3, 1e-4):
        d1 = (moved(h) - moved(-h)) / (2 * h)
        d2 = (moved(h / 2) - moved(-h / 2)) / h
        estimates.append((4 * d2 - d1) / 3)
    scale = max(1.0, *(abs(e) for e in estimates))
    for name, value in found.items():
        errors = [abs(value - e) / scale for e in estimates]
        if not min(errors) <= rtol:
            raise AssertionError(
                f"{name} derivative {what} is {value}, differences give {estimates} (smallest error {min(errors):.1e} of {rtol:.1e})"
            )


def _close(a, b, rtol, message):
    if not abs(a - b) <= rtol * max(1.0, abs(a), abs(b)):
        raise AssertionError(f"{message}: {a} and {b}, by {abs(a - b):.1e}")

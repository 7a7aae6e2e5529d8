"""Checks of derivatives, for users' own functions and rules as for ours."""

import itertools

import numpy as np

import mercer.autodiff as ad
from mercer.autodiff.trees import flatten, leaf, unflatten

__all__ = ["check_derivative"]

STEPS = (1e-2, 1e-3, 1e-4)


def check_derivative(f, *args, order=2, modes=("forward", "reverse"), rtol=1e-6, random_state=0):
    """Check f's derivatives at a point against differences, and forward against reverse mode.

    The derivative along a random direction is compared with extrapolated central differences of several steps
    h. It must lie about as near to them as they lie to each other, so that an error that does not fall with
    h is found however small it is; `rtol` is what must be reached at least. Forward mode must be the
    transpose of reverse mode, and all nestings of the two modes must have one second derivative.

    Parameters
    ----------
    f : callable
        Takes the arguments; returns an array, a number or a tree of these.
    *args : arrays, numbers or trees
        The point; float64 or complex128. f must be smooth within 1e-2 of it.
    order : {1, 2}, default=2
        2 checks the derivative of the derivative too, in every nesting of the modes.
    modes : sequence of {"forward", "reverse"}, default=("forward", "reverse")
        What to check; rules that have one mode only are checked in that.
    rtol : float, default=1e-06
        The largest error of first and second derivatives, relative to the derivative and to f.
    random_state : int, default=0
        The directions drawn.

    Raises
    ------
    AssertionError
        Naming the comparison that failed, and by how much.

    Notes
    -----
    Complex numbers count as pairs of real ones: ⟨a, b⟩ = Re Σ conj(a) b.

    Examples
    --------
    >>> import numpy as np
    >>> check_derivative(lambda x: np.sin(x) * x, np.array([0.3, 0.7]))
    """
    if order not in (1, 2) or not modes or not {"forward", "reverse"}.issuperset(modes):
        raise ValueError(
            f'order must be 1 or 2, modes some of "forward" and "reverse"; got {order!r} and {modes!r}'
        )
    at = _Point(f, args, random_state)
    found = {f"{mode} mode": at.first(mode)(*at.args) for mode in modes}
    scale = _against_differences(found, lambda *x: _dot(at.w, flatten(f(*x))[0]), at, at.u, rtol)
    _agree(found, 1e-9, scale)
    if order == 2:
        _check_second(at, modes, rtol)


class _Point:
    """A function at a point, with random directions u, v of its arguments and w of its value."""

    def __init__(self, f, args, random_state):
        rng = np.random.default_rng(random_state)
        leaves, self.structure = flatten(tuple(args))
        self.f, self.leaves = f, [leaf(x, "the point") for x in leaves]
        self.args = unflatten(self.structure, self.leaves)
        outputs, self.value_structure = flatten(f(*self.args))
        self.u, self.v = ([_direction(rng, x) for x in self.leaves] for _ in range(2))
        self.w = [_direction(rng, np.asarray(x)) for x in outputs]

    def tree(self, leaves):
        return unflatten(self.structure, leaves)

    def moved(self, h, direction):
        return self.tree([x + h * d for x, d in zip(self.leaves, direction, strict=True)])

    def first(self, mode):
        """Return x ↦ ⟨w, J(x) u⟩, computed in one mode."""
        if mode == "forward":
            return lambda *x: _dot(self.w, flatten(ad.jvp(self.f, x, self.tree(self.u))[1])[0])
        w = unflatten(self.value_structure, self.w)
        return lambda *x: _dot(flatten(ad.vjp(self.f, *x)[1](w))[0], self.u)


def _check_second(at, modes, rtol):
    """Check the derivatives of ⟨w, J(x) u⟩, computed in each mode, in each mode."""
    found = {}
    for inner in modes:
        first, nested = at.first(inner), {}
        if "forward" in modes:
            nested[f"forward over {inner} mode"] = ad.jvp(first, at.args, at.tree(at.v))[1]
        if "reverse" in modes:
            pulled = ad.vjp(first, *at.args)[1](1.0)
            nested[f"reverse over {inner} mode"] = _dot(flatten(pulled)[0], at.v)
        scale = _against_differences(nested, first, at, at.v, rtol)
        found |= nested
    _agree(found, 1e-8, scale)


def _direction(rng, x):
    """Draw a direction of norm 1, or 0 for what has no derivative."""
    if x.dtype.kind not in "fc":
        return np.zeros(x.shape)[()]
    d = rng.standard_normal(x.shape)
    if x.dtype.kind == "c":
        d = d + 1j * rng.standard_normal(x.shape)
    return (d / max(np.linalg.norm(np.ravel(d)), 1e-300)).astype(x.dtype)[()]


def _dot(a, b):
    """The real inner product Re Σ conj(a) b."""
    return sum(np.sum(np.real(np.conj(x) * y)) for x, y in zip(a, b, strict=True))


def _against_differences(found, scalar, at, direction, rtol):
    """Compare with (8 (f(h/2) − f(−h/2)) − (f(h) − f(−h))) / 6h, right to order h⁴; return the scale."""
    estimates, values = [], []
    for h in STEPS:
        far, near = ([scalar(*at.moved(s * k, direction)) for s in (1, -1)] for k in (h, h / 2))
        estimates.append(float((8 * (near[0] - near[1]) - (far[0] - far[1])) / (6 * h)))
        values += far
    scale = max(map(abs, (*estimates, *values))) or 1.0
    # Two differences agree to their truncation and rounding errors, without knowing either.
    spread = min(abs(a - b) for a, b in itertools.pairwise(estimates)) / scale
    allowed = min(rtol, max(20 * spread, 1e-9))
    for name, value in found.items():
        errors = [abs(value - e) / scale for e in estimates]
        if not min(errors) <= allowed:
            raise AssertionError(
                f"the derivative by {name} is {value}, differences of steps {STEPS} give {estimates}: the "
                f"relative errors {', '.join(f'{e:.1e}' for e in errors)} do not fall to {allowed:.1e}"
            )
    return scale


def _agree(found, rtol, scale):
    (name, value), *rest = found.items()
    for other, also in rest:
        error = abs(value - also) / max(scale, abs(value))
        if not error <= rtol:
            raise AssertionError(f"{name} and {other} differ: {value} and {also}, relatively by {error:.1e}")

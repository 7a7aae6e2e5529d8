"""Rules of kernels: where `mercer.kernels` and automatic differentiation meet.

``k(X, Z)``, ``k.diag(X)`` and ``k.gram(X, Z) @ V`` are primitives. A kernel's own derivatives compute their
rules (``kernel_forms``): the pushforward, the pullback, and the two of second order.

Two primitives say it all. With p the traced samples and hyperparameters and L what is taken of the matrix
(all of it, its diagonal, or its product with V),

- ``along``: L DⁿK(p)[t₁, …, tₙ], the n-th derivative along n directions (n = 0 is the value);
- ``gradient``: the gradient in p of ⟨G, L DⁿK(p)[t₁, …, tₙ]⟩.

Each is linear in its directions, in G and in V, and the derivative of either in p is the same with one
direction more. So the rules are written once for every n, and what can be evaluated, n ≤ 2 and n ≤ 1, is
second order in every nesting of the modes.

The kernels reach what is registered here through the hooks of `mercer._arrays`.
"""

import numpy as np

from mercer._arrays import plain_hooks, trace_hooks
from mercer.autodiff.errors import NoRuleError, trace_error
from mercer.autodiff.kernel_forms import SIDES, Diagonal, Matrix, Point, Product
from mercer.autodiff.rules import Primitive, cast
from mercer.autodiff.trace import Traced, plain
from mercer.gram import Gram
from mercer.kernels.base import Kernel
from mercer.kernels.prepared import take_rows

__all__ = ["TracedGram"]


# -- plain values ---------------------------------------------------------------------------------------


def _plain_kernel(kernel):
    """A kernel with every hyperparameter plain; the kernel itself if nothing in it is traced."""
    known = kernel.__dict__.get("_cached_plain")
    if known is None:
        traced = {
            name: plain(value) for name, value in kernel.get_params().items() if isinstance(value, Traced)
        }
        # Not itself: that would be a cycle, which memory outlives.
        known = kernel.set_params(**traced) if traced else False
        object.__setattr__(kernel, "_cached_plain", known)
    return known or kernel


@plain_hooks.append
def _plain(value):
    if isinstance(value, Traced):
        return plain(value)
    if isinstance(value, Kernel):
        return _plain_kernel(value)
    return value.plain() if isinstance(value, TracedGram) else NotImplemented


# -- the two primitives ---------------------------------------------------------------------------------


def _split(args, at, dirs):
    """The arguments of a primitive: traced parts, directions by role, and what it is linear in."""
    start = len(at.roles)
    directions = []
    for roles in dirs:
        directions.append(dict(zip(roles, args[start : start + len(roles)], strict=True)))
        start += len(roles)
    return args[: len(at.roles)], directions, args[start:]


def _call(primitive, at, p, directions, linear, **kwargs):
    tangents = [t for direction in directions for t in direction.values()]
    dirs = tuple(tuple(direction) for direction in directions)
    return primitive(*p, *tangents, *linear, at=at, dirs=dirs, **kwargs)


def _present(direction):
    return {role: t for role, t in direction.items() if t is not None}


def _swapped(items, i, item):
    """A list with entry i replaced."""
    return [*items[:i], item, *items[i + 1 :]]


def _refuse_third(at, order):
    if order > 2:
        raise trace_error(
            repr(at.kernel),
            "kernels have derivatives of first and second order, and this is one of the third",
            "write the kernel's formula in NumPy where more are needed",
            NoRuleError,
        )


def _along_value(*args, at, dirs):
    _refuse_third(at, len(dirs))
    _, directions, linear = _split(args, at, dirs)
    return at.form.along(at, [at.direction(d) for d in directions], *linear)


def _gradient_value(*args, at, dirs, wanted):
    _refuse_third(at, len(dirs) + 1)
    _, directions, linear = _split(args, at, dirs)
    found = at.form.gradient(at, [at.direction(d) for d in directions], wanted, *linear)
    return at.gathered(*found, wanted)


def _tangents(primitive, tangents, args, at, dirs, **kwargs):
    """The tangents of a primitive, one from each kind of argument."""
    p, directions, linear = _split(args, at, dirs)
    tp, t_directions, t_linear = _split(tangents, at, dirs)
    moved = _present(dict(zip(at.roles, tp, strict=True)))
    if moved:
        yield _call(primitive, at, p, [*directions, moved], linear, **kwargs)
    for i, t in enumerate(map(_present, t_directions)):
        if t:
            yield _call(primitive, at, p, _swapped(directions, i, t), linear, **kwargs)
    for i, t in enumerate(t_linear):
        if t is not None:
            yield _call(primitive, at, p, directions, _swapped(linear, i, t), **kwargs)


def _along_jvp(tangents, ans, *args, at, dirs):
    total = None
    for part in _tangents(along, tangents, args, at, dirs):
        total = part if total is None else total + part
    return total


def _gradient_jvp(tangents, ans, *args, at, dirs, wanted):
    total = None
    for part in _tangents(gradient, tangents, args, at, dirs, wanted=wanted):
        total = part if total is None else tuple(a + b for a, b in zip(total, part, strict=True))
    return total


def _cotangents(at, dirs, args, needed, extra, linear):
    """Cotangents of the traced parts and of the directions of either primitive.

    What is differentiated is ⟨G, L DⁿK[directions, *extra]⟩, G the last of `linear`.
    """
    p, directions, _ = _split(args, at, dirs)
    need_p, need_directions, _ = _split(needed, at, dirs)
    out = _gradients(at, p, [*directions, *extra], linear, dict(zip(at.roles, need_p, strict=True)))
    for i, need in enumerate(need_directions):
        rest = [*directions[:i], *directions[i + 1 :], *extra]
        out += _gradients(at, p, rest, linear, need)
    return out


def _gradients(at, p, directions, linear, need):
    wanted = tuple(role for role, needs in need.items() if needs)
    if not wanted:
        return [None] * len(need)
    found = _call(gradient, at, p, directions, linear, wanted=wanted)
    found = dict(zip(wanted, found, strict=True))
    return [found.get(role) for role in need]


def _turned(at, p, directions, C):
    """(L DⁿK)ᵀ C for a product."""
    turned = [{SIDES.get(role, role): t for role, t in d.items()} for d in directions]
    if at.symmetric:
        turned = directions
    return _call(along, at.turned, p, turned, [C])


def _along_vjp(g, ans, needed, *args, at, dirs):
    p, directions, linear = _split(args, at, dirs)
    out = _cotangents(at, dirs, args, needed, [], [*linear, g])
    if linear:
        out.append(cast(_turned(at, p, directions, g), linear[0]) if needed[-1] else None)
    return out


def _gradient_vjp(g, ans, needed, *args, at, dirs, wanted):
    p, directions, linear = _split(args, at, dirs)
    moved = _present(dict(zip(wanted, g, strict=True)))
    directions = [*directions, moved]
    out = _cotangents(at, dirs, args, needed, [moved], linear)
    *V, G = linear
    need = needed[len(out) :]
    if V:
        out.append(cast(_turned(at, p, directions, G), V[0]) if need[0] else None)
    out.append(cast(_call(along, at, p, directions, V), G) if need[-1] else None)
    return out


along = Primitive(_along_value, _along_jvp, _along_vjp, name="a kernel's derivative")
gradient = Primitive(_gradient_value, _gradient_jvp, _gradient_vjp, name="a kernel's pullback")


# -- what the kernels call ------------------------------------------------------------------------------


def _value(form, kernel, X, Z, *linear, n_threads=None):
    """A form's value on traced samples, hyperparameters or V."""
    traced = {side: x for side, x in (("X", X), ("Z", Z)) if isinstance(x, Traced)}
    differentiable = {h.name for h in kernel.hyperparameters}
    for name, value in kernel.get_params().items():
        if isinstance(value, Traced):
            if name not in differentiable:
                raise trace_error(
                    repr(kernel),
                    f"it has no derivative in {name}, which is traced",
                    f"pass a plain value (ad.stop_gradient); it has those in {sorted(differentiable)}",
                    NoRuleError,
                )
            traced[name] = value
    at = Point(form, _plain_kernel(kernel), plain(X), plain(Z), tuple(traced), n_threads)
    return _call(along, at, tuple(traced.values()), [], linear)


def _hook(name):
    def register(function):
        trace_hooks[name] = function
        return function

    return register


@_hook("matrix")
def _matrix(kernel, X, Z, out=None, n_threads=None):
    if out is not None:
        raise trace_error("k(X, Z, out=…)", "a traced matrix has no memory of its own", "leave out= out")
    return _value(Matrix, kernel, X, None if Z is X else Z, n_threads=n_threads)


@_hook("diag")
def _diag(kernel, X):
    return _value(Diagonal, kernel, X, None)


@_hook("product")
def _product(gram, V):
    """K @ V for a plain operator and a traced V."""
    samples = gram._samples
    return TracedGram(gram.kernel, samples.X, samples.Z, n_threads=gram.n_threads) @ V


@_hook("gram")
class TracedGram:
    """A kernel matrix of traced samples or hyperparameters, whose products never form it.

    ``k.gram(X, Z)`` makes one; its products are differentiated without an n×m array.

    Parameters
    ----------
    kernel : Kernel
    X, Z : array_like
        Z None for the symmetric case.
    n_threads : int or None

    Attributes
    ----------
    shape : tuple
        (n, m).
    dtype : dtype
        That of the samples.
    """

    # Arrays leave ``V @ K`` to the operator.
    __array_ufunc__ = None
    __hash__ = None

    def __init__(self, kernel, X, Z=None, *, n_threads=None):
        self.kernel, self.X, self.Z, self.n_threads = kernel, X, None if Z is X else Z, n_threads
        operator = self.plain()
        self.shape, self.dtype = operator.shape, operator.dtype

    def plain(self):
        """The operator without its derivative.

        Returns
        -------
        Gram
        """
        return Gram(_plain_kernel(self.kernel), plain(self.X), plain(self.Z), n_threads=self.n_threads)

    @property
    def symmetric(self):
        """Whether rows and columns are the same samples."""
        return self.Z is None

    @property
    def T(self):
        """The same with rows and columns swapped."""
        return self if self.symmetric else TracedGram(self.kernel, self.Z, self.X, n_threads=self.n_threads)

    def dot(self, V):
        """``K @ V``.

        Parameters
        ----------
        V : array_like of shape (m,) or (m, p)

        Returns
        -------
        array of shape (n,) or (n, p)
        """
        V = V if isinstance(V, Traced) else np.asarray(V)
        if V.ndim not in (1, 2) or V.shape[0] != self.shape[1]:
            raise ValueError(f"V must have {self.shape[1]} rows, one per column of K, got shape {V.shape}")
        if V.dtype.kind not in "fiub":
            raise ValueError(
                f"V must hold real numbers, got dtype {V.dtype}; multiply real and imaginary parts apart"
            )
        return _value(Product, self.kernel, self.X, self.Z, V, n_threads=self.n_threads)

    def __matmul__(self, V):
        """``K @ V``, as `dot`."""
        return self.dot(V)

    def __rmatmul__(self, V):
        """``V @ K``."""
        return np.transpose(self.T.dot(np.transpose(V)))

    def __len__(self):
        """The number of rows."""
        return self.shape[0]

    def rows(self, index):
        """Some rows as a matrix.

        Parameters
        ----------
        index : slice or array of ints or boolean mask

        Returns
        -------
        array of shape (len(index), m)
        """
        if isinstance(index, int | np.integer):
            return self.rows(np.array([range(len(self))[index]]))[0]
        X = take_rows(self.X, index if isinstance(index, slice) else np.asarray(index))
        return self.kernel(X, self.X if self.symmetric else self.Z, n_threads=self.n_threads)

    def __getitem__(self, index):
        """Rows by index, as `rows`."""
        return self.rows(index)

    def diag(self):
        """Entries (i, i).

        Returns
        -------
        array of shape (min(n, m),)
        """
        return self.kernel.diag(self.X) if self.symmetric else np.diagonal(self.formed())

    def formed(self):
        """The matrix itself.

        Returns
        -------
        array of shape (n, m)
        """
        return self.kernel(self.X, self.Z, n_threads=self.n_threads)


@_hook("refused")
def _refused(name):
    return trace_error(
        name,
        "it is traced, but what was called computes on plain values and would lose the derivative",
        "differentiate k(X, Z), k.diag(X), k.gram(X, Z) @ V, and for kernel ridge regression "
        "mercer.solvers.ridge(k(X), y, alpha) or ridge_loo; or pass ad.stop_gradient of it",
    )

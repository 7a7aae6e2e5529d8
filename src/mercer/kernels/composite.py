"""Kernels made of kernels: the construction rules, each a node that writes itself into a program.

Place on the way: ``base.Kernel``'s operators → **composite** → ``program``.

Sums and products flatten, and name their children k1, k2, …; the others call theirs ``kernel``. What
would break positive semidefiniteness is an error that names the rule (LN14, rules 1–8).
"""

from typing import ClassVar

import numpy as np

from .._arrays import plain
from .base import Kernel
from .dot_product import check_width
from .prepared import n_rows
from .program import Monomial, Opcode
from .rows import Centering, HalfDiag, InverseSqrtDiag, UserFunction
from .values import canonical, checked_count, checked_scale, shown
from .views import Identity

__all__ = [
    "Centered",
    "Exp",
    "Modulated",
    "Normalized",
    "On",
    "PolynomialOf",
    "Power",
    "Product",
    "Scaled",
    "Sum",
]

_ATOM, _POWER, _PRODUCT, _SUM = 3, 2, 1, 0


def _strength(kernel):
    """How tightly the outermost operator of a kernel's repr binds."""
    return getattr(kernel, "_binds", _ATOM)


def _inside(kernel, least):
    text = repr(kernel)
    return text if _strength(kernel) >= least else f"({text})"


def _worst(kernels):
    """The flag and note of a combination that is PSD if all of its kernels are."""
    for kernel in kernels:
        if kernel.is_psd is not True:
            return kernel.is_psd if len(kernels) == 1 else None, kernel.psd_note
    return True, ""


def _check_kernels(owner, kernels):
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"{owner} combines kernels, got {kernel!r} of type {type(kernel).__name__}")


# ---------------------------------------------------------------- sums and products


class _Flat(Kernel):
    """A sum or product of kernels, its children k1, k2 and so on."""

    def __init__(self, *kernels):
        _check_kernels(type(self).__name__, kernels)
        if not kernels:
            raise ValueError(f"{type(self).__name__} needs at least one kernel")
        flat = []
        for kernel in kernels:
            flat += kernel.kernels if type(kernel) is type(self) else [kernel]
        self._set(kernels=tuple(flat))

    def __getattr__(self, name):
        kernels = self.__dict__.get("kernels", ())
        if name[:1] == "k" and name[1:].isdecimal() and 1 <= int(name[1:]) <= len(kernels):
            return kernels[int(name[1:]) - 1]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _params(self):
        return {f"k{i}": kernel for i, kernel in enumerate(self.kernels, 1)}

    def _replace(self, **params):
        return type(self)(*{**self._params(), **params}.values())

    @property
    def is_psd(self):
        """True if all are, else None."""
        return _worst(self.kernels)[0]

    @property
    def psd_note(self):
        """Why it is not known."""
        return _worst(self.kernels)[1]

    def _fold(self, builder, scope, emit, combine):
        out = None
        for name, kernel in self._params().items():
            register = emit(kernel, builder, scope.child(name))
            out = register if out is None else combine(out, register)
        return out


class Sum(_Flat):
    """k1 + k2 + … (LN14 rule 3).

    Parameters
    ----------
    *kernels : Kernel
        Sums among them are flattened.
    """

    _binds = _SUM

    def __repr__(self):
        return " + ".join(_inside(kernel, _PRODUCT) for kernel in self.kernels)

    def _emit(self, builder, scope):
        return self._fold(builder, scope, lambda kernel, b, s: kernel._emit(b, s), builder.add)

    def _features(self, X, **options):
        check_width("a sum", len(X), sum(k._features(X[:1], **options).shape[1] for k in self.kernels))
        return np.hstack([kernel._features(X, **options) for kernel in self.kernels])


class Product(_Flat):
    """k1 · k2 · … (LN14 rule 5).

    Parameters
    ----------
    *kernels : Kernel
        Products among them are flattened.
    """

    _binds = _PRODUCT

    def __repr__(self):
        first, *rest = self.kernels
        return " * ".join([_inside(first, _PRODUCT), *(_inside(kernel, _POWER) for kernel in rest)])

    def _emit(self, builder, scope):
        return self._fold(builder, scope, lambda kernel, b, s: kernel._emit(b, s), builder.mul)

    def _emit_normalized(self, builder, scope):
        # Factor by factor: a diagonal that is out of range as a product may be in range one by one.
        return self._fold(builder, scope, lambda kernel, b, s: kernel._emit_normalized(b, s), builder.mul)

    def _features(self, X, **options):
        return _row_products("a product", X, self.kernels, options)


def _row_products(owner, X, kernels, options):
    """Φ of a product: products of one feature of each factor."""
    widths = [kernel._features(X[:1], **options).shape[1] for kernel in kernels]
    check_width(owner, len(X), int(np.prod(widths, dtype=object)))
    out = np.ones((len(X), 1))
    for kernel in kernels:
        features = kernel._features(X, **options)
        out = (out[:, :, None] * features[:, None, :]).reshape(len(X), -1)
    return out


# ---------------------------------------------------------------- one kernel inside


class _Wrapper(Kernel):
    """A combination of one kernel, its child ``kernel``."""

    @property
    def is_psd(self):
        """That of the kernel inside."""
        return self.kernel.is_psd

    @property
    def psd_note(self):
        """That of the kernel inside."""
        return self.kernel.psd_note

    def _inner(self, builder, scope):
        return self.kernel._emit(builder, scope.child("kernel"))


class Scaled(_Wrapper):
    """c · k with c ≥ 0 (LN14 rule 2).

    Parameters
    ----------
    scale : float
        c.
    kernel : Kernel
    """

    _binds = _PRODUCT
    _bounds: ClassVar = {"scale": (0.0, np.inf)}

    def __init__(self, scale, kernel):
        _check_kernels("c * k", [kernel])
        checked_scale(
            "c * k", "c", scale, zero=True, rule="c >= 0 keeps it positive semidefinite (LN14 rule 2)"
        )
        self._set(scale=scale, kernel=kernel)

    def __repr__(self):
        return f"{shown(self.scale)} * {_inside(self.kernel, _POWER)}"

    def _emit(self, builder, scope):
        register = self._inner(builder, scope)
        return builder.scale(register, Monomial(1.0, ((self._declare(builder, scope, "scale"), 1),)))

    def _emit_normalized(self, builder, scope):
        if plain(self.scale) == 0:
            return super()._emit_normalized(builder, scope)
        return self.kernel._emit_normalized(builder, scope.child("kernel"))

    def _features(self, X, **options):
        return np.sqrt(float(plain(self.scale))) * self.kernel._features(X, **options)


class Power(_Wrapper):
    """k^p, p a positive integer (LN14 rule 5).

    Parameters
    ----------
    kernel : Kernel
    power : int
        p.
    """

    _binds = _POWER

    def __init__(self, kernel, power):
        _check_kernels("k ** p", [kernel])
        try:
            checked_count("k ** p", "p", power)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"{error}; whole powers are products (LN14 rule 5), others need not be PSD"
            ) from None
        self._set(kernel=kernel, power=power)

    def __repr__(self):
        return f"{_inside(self.kernel, _ATOM)} ** {shown(self.power)}"

    def _emit(self, builder, scope):
        return builder.unary(Opcode.POW, self._inner(builder, scope), int(plain(self.power)))

    def _emit_normalized(self, builder, scope):
        register = self.kernel._emit_normalized(builder, scope.child("kernel"))
        return builder.unary(Opcode.POW, register, int(plain(self.power)))

    def _features(self, X, **options):
        return _row_products("a power", X, [self.kernel] * int(plain(self.power)), options)


class PolynomialOf(_Wrapper):
    """Σ cᵢ kⁱ with cᵢ ≥ 0 (LN14 rule 4).

    Parameters
    ----------
    kernel : Kernel
    coefficients : sequence of float
        c₀, c₁, …
    """

    _bounds: ClassVar = {"coefficients": (0.0, np.inf)}

    def __init__(self, kernel, coefficients):
        _check_kernels("polynomial", [kernel])
        if np.ndim(plain(coefficients)) != 1 or len(plain(coefficients)) == 0:
            raise ValueError(f"polynomial: coefficients must be a sequence [c0, c1, …], got {coefficients!r}")
        checked_scale(
            "polynomial",
            "coefficients",
            coefficients,
            zero=True,
            per_feature=True,
            rule="nonnegative coefficients keep it positive semidefinite (LN14 rule 4)",
        )
        self._set(kernel=kernel, coefficients=coefficients)

    def __repr__(self):
        return f"{_inside(self.kernel, _ATOM)}.polynomial({shown(self.coefficients)})"

    def _emit(self, builder, scope):
        path = scope.path("coefficients")
        values = np.asarray(plain(self.coefficients), dtype=np.float64)
        slots = []
        for i, value in enumerate(values):
            builder.param(f"{path}[{i}]", float(value))
            slots.append(Monomial(1.0, ((f"{path}[{i}]", 1),)))
        register = self._inner(builder, scope)
        if len(slots) == 1:
            return builder.shift(builder.scale(register, Monomial(0.0)), slots[0])
        # Horner: (c_p k + c_{p−1}) k + …
        out = builder.scale(register, slots[-1])
        for slot in slots[-2:0:-1]:
            out = builder.mul(builder.shift(out, slot), register)
        return builder.shift(out, slots[0])

    def _features(self, X, **options):
        values = np.asarray(plain(self.coefficients), dtype=np.float64)
        parts = [np.full((len(X), 1), np.sqrt(values[0]))]
        for power, value in enumerate(values[1:], 1):
            parts.append(np.sqrt(value) * _row_products("a polynomial", X, [self.kernel] * power, options))
        return np.hstack(parts)


class Exp(_Wrapper):
    """exp(k) (LN14 rule 7).

    Parameters
    ----------
    kernel : Kernel
    """

    def __init__(self, kernel):
        _check_kernels("exp", [kernel])
        self._set(kernel=kernel)

    def __repr__(self):
        return f"{_inside(self.kernel, _ATOM)}.exp()"

    def _emit(self, builder, scope):
        return builder.unary(Opcode.EXP, self._inner(builder, scope))

    def _emit_normalized(self, builder, scope):
        # exp(k(x, z) − ½k(x, x) − ½k(z, z)): the exponentials one by one may be out of range.
        half = HalfDiag(self.kernel._program(scope.child("kernel")))
        return builder.unary(Opcode.EXP, builder.offset(self._inner(builder, scope), half))


class Modulated(_Wrapper):
    """f(x) k(x, z) f(z) for any function f (LN14 rule 6).

    Parameters
    ----------
    kernel : Kernel
    f : callable
        X (n, d) → (n,).
    gradient : callable, default=None
        X → (n, d).
    hessian_product : callable, default=None
        (X, T) → (n, d).
    """

    def __init__(self, kernel, f, gradient=None, hessian_product=None):
        _check_kernels("modulate", [kernel])
        for name, function in (("f", f), ("gradient", gradient), ("hessian_product", hessian_product)):
            if not callable(function) and (name == "f" or function is not None):
                raise TypeError(
                    f"modulate: {name} must be a function of a block of samples, got {function!r}"
                )
        self._set(kernel=kernel, f=f, gradient=gradient, hessian_product=hessian_product)

    def __repr__(self):
        arguments = [shown(self.f)]
        for name in ("gradient", "hessian_product"):
            if getattr(self, name) is not None:
                arguments.append(f"{name}={shown(getattr(self, name))}")
        return f"{_inside(self.kernel, _ATOM)}.modulate({', '.join(arguments)})"

    def _emit(self, builder, scope):
        function = UserFunction(self.f, self.gradient, self.hessian_product, scope.columns)
        return builder.modulate(self._inner(builder, scope), function)

    def _features(self, X, **options):
        function = UserFunction(self.f, None, None, Identity())
        return function.value(X)[:, None] * self.kernel._features(X, **options)


class Normalized(_Wrapper):
    """k(x, z)/√(k(x, x) k(z, z)), 0 where k(x, x) = 0 (LN14 rule 6).

    Parameters
    ----------
    kernel : Kernel
    """

    def __init__(self, kernel):
        _check_kernels("normalize", [kernel])
        self._set(kernel=kernel)

    def __repr__(self):
        return f"{_inside(self.kernel, _ATOM)}.normalize()"

    def _emit(self, builder, scope):
        return self.kernel._emit_normalized(builder, scope.child("kernel"))

    def _emit_normalized(self, builder, scope):
        return self._emit(builder, scope)

    def _features(self, X, **options):
        divisor = InverseSqrtDiag(self.kernel._compiled(X.shape[1]))
        return divisor.value(X)[:, None] * self.kernel._features(X, **options)


class Centered(_Wrapper):
    """Inner product of features less their mean over reference samples.

    k(x, z) − mean_j k(x, r_j) − mean_j k(r_j, z) + mean_jl k(r_j, r_l).

    Parameters
    ----------
    kernel : Kernel
    reference : array_like of shape (n, d)
        The samples r_j; copied.
    """

    def __init__(self, kernel, reference):
        _check_kernels("center", [kernel])
        self._set(kernel=kernel, reference=reference)
        checked = kernel._checked(reference, "the reference of center")
        # Their own copy: the caller's array may change later.
        object.__setattr__(self, "_samples", checked.copy() if hasattr(checked, "copy") else list(checked))

    def __repr__(self):
        return f"{_inside(self.kernel, _ATOM)}.center({_shown_samples(self.reference)})"

    def _key(self):
        return (type(self), self.kernel._key(), canonical(self.reference))

    def _emit(self, builder, scope):
        inner = scope.child("kernel")
        register = self._inner(builder, scope)
        return builder.offset(register, Centering(self.kernel._program(inner), self._samples))

    def _features(self, X, **options):
        samples = self._samples.toarray() if hasattr(self._samples, "toarray") else self._samples
        features = self.kernel._features(X, **options)
        return features - self.kernel._features(samples, **options).mean(axis=0)


def _shown_samples(reference):
    shape = getattr(reference, "shape", (n_rows(reference),))
    return f"<samples of shape {tuple(shape)}>"


class On(_Wrapper):
    """A kernel of some columns of the samples.

    Parameters
    ----------
    kernel : Kernel
    columns : int, slice or sequence of int
        Negative ones count from the end; a boolean mask is read as one.
    """

    def __init__(self, kernel, columns):
        _check_kernels("on", [kernel])
        if kernel._readers().keys() - {"samples", "any"}:
            raise TypeError(
                f"on(columns) needs samples that are rows of numbers, which {kernel!r} does not read"
            )
        _check_columns(columns)
        self._set(kernel=kernel, columns=columns)

    def __repr__(self):
        columns = self.columns if isinstance(self.columns, slice) else shown(self.columns)
        return f"{_inside(self.kernel, _ATOM)}.on({columns})"

    def _key(self):
        columns = self.columns
        if isinstance(columns, slice):
            columns = ("slice", columns.start, columns.stop, columns.step)
        else:
            columns = np.atleast_1d(np.asarray(columns))
            columns = (columns.dtype.kind == "b", canonical(columns))  # a mask is no list of 0 and 1
        return (type(self), self.kernel._key(), columns)

    def _indices(self, d):
        if d is None:
            raise TypeError(f"{self!r} needs samples of shape (n, d), to take columns from")
        columns = self.columns
        if isinstance(columns, slice):
            indices = range(d)[columns]
        else:
            columns = np.atleast_1d(np.asarray(columns))
            if columns.dtype.kind == "b":
                if len(columns) != d:
                    raise ValueError(
                        f"{self!r} has a mask of {len(columns)} columns, but the samples have {d}"
                    )
                columns = np.flatnonzero(columns)
            bad = columns[(columns >= d) | (columns < -d)]
            if bad.size:
                raise ValueError(f"{self!r} reads column {bad[0]}, but the samples have only {d} columns")
            indices = (columns % d).tolist()
        if len(indices) == 0:
            raise ValueError(f"{self!r} reads no column of the {d} there are")
        return tuple(int(i) for i in indices)

    def _inside_scope(self, scope):
        return scope.on(self._indices(scope.width)).child("kernel")

    def _emit(self, builder, scope):
        return self.kernel._emit(builder, self._inside_scope(scope))

    def _emit_normalized(self, builder, scope):
        return self.kernel._emit_normalized(builder, self._inside_scope(scope))

    def _features(self, X, **options):
        return self.kernel._features(X[:, list(self._indices(X.shape[1]))], **options)


def _check_columns(columns):
    if isinstance(columns, slice):
        return
    array = np.atleast_1d(np.asarray(columns))
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iub":
        raise TypeError(f"on(columns): columns are an integer, a slice, integers or a mask, got {columns!r}")

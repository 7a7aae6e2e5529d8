"""Kernel: what every kernel is, and the algebra by which kernels are combined.

Place on the way: arrays → **kernel expression** → ``program`` → ``gram``. A kernel is a frozen
value. A leaf says which hyperparameters are differentiable (`_bounds`) and writes itself into a
program (`_emit`); everything else, matrices and derivatives of every combination, follows from the
program.

References: LN14, the eight construction rules.
"""

from dataclasses import dataclass
from typing import ClassVar

from .. import _native
from .._arrays import check_out, check_samples, is_traced, plain, refuse_traced, trace_hooks
from .._memory import check_output
from .algebra import Algebra
from .differentiable import Differentiable
from .prepared import Prepared, paired, typed_diagonal, width
from .program import Builder
from .scope import Scope
from .values import Value

__all__ = ["Hyperparameter", "Kernel"]


@dataclass(frozen=True)
class Hyperparameter:
    """A differentiable hyperparameter of a kernel.

    Attributes
    ----------
    name : str
        Its key in ``get_params(deep=True)``.
    value : float or ndarray
        As it was given.
    bounds : tuple of two floats
        Between which it may move.
    """

    name: str
    value: object
    bounds: tuple


class Kernel(Differentiable, Algebra, Value):
    """A kernel function k(x, z), as an immutable value.

    Subclasses are `RBF`, `Polynomial`, … and the combinations that operators make of them: ``c * k``,
    ``k1 + k2``, ``k1 * k2``, ``k ** p``, ``k.polynomial(coefficients)``, ``k.modulate(f)``, ``k.exp()``,
    ``k.normalize()``, ``k.center(X)``, ``k.on(columns)``.

    Attributes
    ----------
    is_psd : bool or None
        Whether every matrix of the kernel is positive semidefinite; None if that is not known.
    psd_note : str
        Why, where it is not True.
    """

    # NumPy scalars leave ``c * k`` to the kernel.
    __array_ufunc__ = None

    is_psd = True
    psd_note = ""
    # What samples it reads: "samples" (rows of numbers), another word, or "any".
    _reads = "samples"
    # Differentiable hyperparameters of its own, name -> bounds.
    _bounds: ClassVar = {}

    # ------------------------------------------------------------ what subclasses write

    def _emit(self, builder, scope):
        """Write the kernel into a program; returns its register.

        Parameters
        ----------
        builder : Builder
        scope : Scope
        """
        raise NotImplementedError

    def _emit_normalized(self, builder, scope):
        """Write k(x, z)/√(k(x, x) k(z, z)); override where it is simpler than dividing."""
        from .rows import InverseSqrtDiag

        divisor = InverseSqrtDiag(self._program(scope))
        return builder.modulate(self._emit(builder, scope), divisor)

    def _features(self, X, **options):
        """Explicit features, see `features`."""
        raise ValueError(
            f"{self!r} has no finite feature map; for fits of many rows see KernelRidge(approximation=…)"
        )

    def _check_samples(self, X, name="X"):
        """Samples as ``prepared`` wants them; override together with ``_reads``."""
        return check_samples(X, name=name)

    def _declare(self, builder, scope, name):
        """Declare one of its hyperparameters; returns the path."""
        path = scope.path(name)
        builder.param(path, plain(getattr(self, name)))
        return path

    # ------------------------------------------------------------ parameters

    def _children(self):
        return {name: value for name, value in self._params().items() if isinstance(value, Kernel)}

    def _replace(self, **params):
        return type(self)(**{**self._params(), **params})

    def get_params(self, deep=True):
        """Constructor's arguments by name.

        Parameters
        ----------
        deep : bool, default=True
            Also those of the kernels inside, as ``k1__gamma``.

        Returns
        -------
        dict
        """
        params = dict(self._params())
        if deep:
            for name, child in self._children().items():
                params.update({f"{name}__{key}": value for key, value in child.get_params().items()})
        return params

    def set_params(self, **params):
        """Return a new kernel with some parameters replaced; this one stays as it is.

        Parameters
        ----------
        **params
            Keys as in ``get_params(deep=True)``.

        Returns
        -------
        Kernel

        Raises
        ------
        ValueError
            If there is no such parameter.
        """
        if not params:
            return self
        own, nested = {}, {}
        for key, value in params.items():
            name, _, rest = key.partition("__")
            if name not in self._params():
                raise ValueError(
                    f"Invalid parameter {name!r} for kernel {self!r}. "
                    f"Valid parameters are: {sorted(self._params())!r}."
                )
            if rest:
                nested.setdefault(name, {})[rest] = value
            else:
                own[name] = value
        for name, inner in nested.items():
            child = own.get(name, self._params()[name])
            if not isinstance(child, Kernel):
                raise ValueError(
                    f"{name!r} of {self!r} is no kernel, so it has no parameters {sorted(inner)!r}"
                )
            own[name] = child.set_params(**inner)
        return self._replace(**own)

    def __sklearn_clone__(self):
        """Immutable, so its own clone."""
        return self

    @property
    def hyperparameters(self):
        """Differentiable hyperparameters with their values and bounds, a list of `Hyperparameter`."""
        out = [
            Hyperparameter(name, getattr(self, name), bounds)
            for name, bounds in self._bounds.items()
            if getattr(self, name) is not None
        ]
        for name, child in self._children().items():
            out += [Hyperparameter(f"{name}__{h.name}", h.value, h.bounds) for h in child.hyperparameters]
        return out

    # ------------------------------------------------------------ compilation and input

    def _program(self, scope):
        builder = Builder()
        return builder.program(self._emit(builder, scope))

    def _compiled(self, n_features):
        """The program for samples of so many columns; kept, since the kernel never changes."""
        cache = self.__dict__.get("_cached_programs")
        if cache is None:
            cache = {}
            object.__setattr__(self, "_cached_programs", cache)
        if n_features not in cache:
            # A program holds numbers: whoever follows hyperparameters asks for that of a plain kernel.
            refuse_traced(self, "a hyperparameter of the kernel")
            cache[n_features] = self._program(Scope(n_features))
        return cache[n_features]

    def _readers(self):
        """By kind of samples, a leaf that reads it."""
        children = self._children()
        if not children:
            return {self._reads: self}
        return {kind: leaf for child in children.values() for kind, leaf in child._readers().items()}

    def _checked(self, X, name="X"):
        readers = self._readers()
        specific = {kind: leaf for kind, leaf in readers.items() if kind != "any"} or readers
        if len(specific) > 1:
            raise TypeError(
                f"{self!r} combines kernels that read different things: {', '.join(sorted(specific))}"
            )
        return next(iter(specific.values()))._check_samples(X, name)

    def _inputs(self, X, Z):
        same = Z is None or Z is X
        X = self._checked(X)
        if same:
            return X, None
        Z = self._checked(Z, "Z")
        return self._paired(X, Z)

    def _paired(self, X, Z):
        X, Z = paired(X, Z)
        if width(X) is not None and self._reads != "matrix" and width(X) != width(Z):
            raise ValueError(
                f"X has {width(X)} features, but Z has {width(Z)}; both need the same columns, in one order"
            )
        return X, Z

    def _prepared(self, X, Z=None):
        """The compiled kernel bound to checked samples, for `Gram`."""
        X, Z = self._inputs(X, Z)
        return Prepared(self._compiled(width(X)), X, Z)

    # ------------------------------------------------------------ values

    def __call__(self, X, Z=None, *, out=None, n_threads=None):
        """Kernel matrix k(x_i, z_j).

        Parameters
        ----------
        X : array_like of shape (n, d)
            Rows are samples; ndarray, CSR, data frame, list.
        Z : array_like of shape (m, d), default=None
            None for X: then half of the work, and an exactly symmetric matrix.
        out : ndarray of shape (n, m), default=None
            Where to write it, with any strides, of the result's dtype.
        n_threads : int, default=None
            None is OpenMP's setting or the cores available; -1 all cores.

        Returns
        -------
        ndarray of shape (n, m)
            float32 if all samples are, else float64.

        Raises
        ------
        ValueError
            For samples with NaN or infinity, of different width, or for a matrix larger than memory.

        Notes
        -----
        Automatic differentiation follows it in X, Z and the `hyperparameters`, to second order, and so it
        does `diag` and the products of `gram`.
        """
        if is_traced(self, X, Z):
            return trace_hooks["matrix"](self, X, Z, out=out, n_threads=n_threads)
        run = self._prepared(X, Z)
        if out is None:
            check_output(*run.shape, run.dtype)
            out = _native.empty(run.shape, run.dtype, n_threads)
        else:
            check_out(out, run.shape, run.dtype)
        return run.fill(out, n_threads)

    def diag(self, X):
        """Values k(x_i, x_i).

        Parameters
        ----------
        X : array_like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        if is_traced(self, X):
            return trace_hooks["diag"](self, X)
        X = self._checked(X)
        return typed_diagonal(self._compiled(width(X)), X)

    def gram(self, X, Z=None, *, n_threads=None):
        """The kernel matrix as a lazy linear operator, whose products never form it.

        Parameters
        ----------
        X : array_like of shape (n, d)
        Z : array_like of shape (m, d), default=None
        n_threads : int, default=None

        Returns
        -------
        Gram
        """
        from ..gram import Gram

        if is_traced(self, X, Z):
            return trace_hooks["gram"](self, X, Z, n_threads=n_threads)
        return Gram(self, X, Z, n_threads=n_threads)

    def features(self, X, **options):
        """Explicit features Φ with ΦΦᵀ = k(X), where they exist and are small enough.

        Parameters
        ----------
        X : array_like of shape (n, d)
        **options
            ``n_terms`` for `RBF`, whose expansion is cut off.

        Returns
        -------
        ndarray of shape (n, p)

        Raises
        ------
        ValueError
            If there is no finite feature map, or it is too large (with its size).

        References
        ----------
        MLR7 7.9, 7.13, 7.19; LINMA 4.2.
        """
        refuse_traced(self, "a hyperparameter of the kernel")
        X = self._checked(X)
        return self._features(X.toarray() if hasattr(X, "toarray") else X, **options)

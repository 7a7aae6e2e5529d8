"""Kernel: what every kernel is, and the algebra by which kernels are combined.

Place on the way: arrays → **kernel expression** → ``program`` → ``gram`` | ``features``. A kernel is a
frozen value. A leaf says which hyperparameters are differentiable (`_bounds`) and writes itself into a
program (`_emit`); everything else, matrices and derivatives of every combination, follows from the
program.

References: LN14, the eight construction rules.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .. import _native
from .._arrays import check_out, check_output, check_samples, plain
from . import derivatives
from .algebra import Algebra
from .prepared import Prepared, dtype_of, n_rows, paired, typed_diagonal
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


class Kernel(Algebra, Value):
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
            f"{self!r} has no finite feature map; RandomFourierFeatures or Nystroem approximate one"
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
        deep : bool
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
        if _width(X) is not None and self._reads != "matrix" and _width(X) != _width(Z):
            raise ValueError(
                f"X has {_width(X)} features, but Z has {_width(Z)}; both need the same columns, in one order"
            )
        return X, Z

    def _prepared(self, X, Z=None):
        """The compiled kernel bound to checked samples, for `Gram`."""
        X, Z = self._inputs(X, Z)
        return Prepared(self._compiled(_width(X)), X, Z)

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
        """
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
        X = self._checked(X)
        return typed_diagonal(self._compiled(_width(X)), X)

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
        X = self._checked(X)
        return self._features(X.toarray() if hasattr(X, "toarray") else X, **options)

    # ------------------------------------------------------------ derivatives

    def _by_name(self, dparams):
        """Gradients by path as gradients by name, each of its value's shape; zero where nothing reached."""
        out = {}
        for h in self.hyperparameters:
            value = np.asarray(plain(h.value), dtype=np.float64)
            grad = np.zeros(value.shape)
            if h.name in dparams:
                grad = grad + dparams[h.name]
            elif value.ndim:
                for i in range(value.size):
                    grad[i] = dparams.get(f"{h.name}[{i}]", 0.0)
            out[h.name] = grad if value.ndim else float(grad)
        return out

    def _by_path(self, tparams):
        """Tangents by name as tangents by path."""
        out, known = {}, {h.name: h for h in self.hyperparameters}
        for name, tangent in (tparams or {}).items():
            if name not in known:
                raise ValueError(f"{name!r} is no differentiable hyperparameter; they are {sorted(known)!r}")
            shape = np.shape(plain(known[name].value))
            tangent = _real(tangent, f"tparams[{name!r}]")
            if tangent.shape != shape:
                raise ValueError(
                    f"tparams[{name!r}] must have the shape {shape} of its value, got {tangent.shape}"
                )
            out[name] = tangent if shape else float(tangent)
            if len(shape) == 1:
                out.update({f"{name}[{i}]": float(t) for i, t in enumerate(tangent)})
        return out

    def _derivative_inputs(self, X, Z):
        given = Z is not None
        X = self._checked(X)
        if given:
            X, Z = self._paired(X, self._checked(Z, "Z"))
        return self._compiled(_width(X)), X, Z

    def pullback(self, X, Z, G, *, n_threads=None):
        """Gradient of ⟨G, k(X, Z)⟩.

        Parameters
        ----------
        X : array_like of shape (n, d)
        Z : array_like of shape (m, d), or None
            None is the symmetric case k(X), where dX goes through both arguments.
        G : array_like of shape (n, m)
            The cotangent of the kernel matrix.
        n_threads : int, default=None

        Returns
        -------
        dX : ndarray of shape (n, d), or None
            None for samples that are not numeric.
        dZ : ndarray of shape (m, d), or None
            None also in the symmetric case.
        dparams : dict
            Gradients of the `hyperparameters`, by name.

        Notes
        -----
        |δ| and norms have derivative 0 at 0, and Matérn ν = ½ has derivative 0 at equal points.
        """
        program, X, Z = self._derivative_inputs(X, Z)
        G = _cotangent(G, X, Z)
        dX, dZ, dparams = derivatives.pullback(program, X, Z, G, n_threads)
        return _like(dX, X), _like(dZ, Z), self._by_name(dparams)

    def pushforward(self, X, Z, tX=None, tZ=None, tparams=None, *, n_threads=None):
        """Directional derivative of k(X, Z).

        Parameters
        ----------
        X : array_like of shape (n, d)
        Z : array_like of shape (m, d), or None
        tX : array_like of shape (n, d), or None for zero
            In the symmetric case it moves both arguments.
        tZ : array_like of shape (m, d), or None for zero
        tparams : dict, or None for zero
            Directions of the `hyperparameters`, by name.
        n_threads : int, default=None

        Returns
        -------
        ndarray of shape (n, m)
        """
        program, X, Z = self._derivative_inputs(X, Z)
        tX, tZ = _tangent(tX, X, "tX"), _tangent(tZ, Z, "tZ")
        shape = n_rows(X), n_rows(X if Z is None else Z)
        check_output(*shape, dtype_of(X))
        out = np.empty(shape, dtype=dtype_of(X))
        return derivatives.pushforward(program, X, Z, tX, tZ, self._by_path(tparams), out, n_threads)

    def pullback_pushforward(self, X, Z, G, tX=None, tZ=None, tparams=None, *, n_threads=None):
        """Directional derivative of `pullback` at fixed G: second order through a kernel.

        Parameters
        ----------
        X, Z, G
            As for `pullback`.
        tX, tZ, tparams
            As for `pushforward`.
        n_threads : int, default=None

        Returns
        -------
        tdX, tdZ : ndarray, or None
        tdparams : dict
        """
        program, X, Z = self._derivative_inputs(X, Z)
        G = _cotangent(G, X, Z)
        tX, tZ = _tangent(tX, X, "tX"), _tangent(tZ, Z, "tZ")
        tdX, tdZ, tdparams = derivatives.pullback_pushforward(
            program, X, Z, G, tX, tZ, self._by_path(tparams), n_threads
        )
        return _like(tdX, X), _like(tdZ, Z), self._by_name(tdparams)


def _width(X):
    shape = getattr(X, "shape", ())
    return shape[1] if len(shape) == 2 else None


def _real(values, name):
    """A cotangent or tangent as an aligned float64 array."""
    values = np.asarray(values.toarray() if hasattr(values, "toarray") else values)
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, got dtype {values.dtype}")
    return np.require(values, np.float64, "A")


def _cotangent(G, X, Z):
    G = _real(G, "G")
    shape = (n_rows(X), n_rows(X if Z is None else Z))
    if G.shape != shape:
        raise ValueError(f"G must have the shape {shape} of the kernel matrix, got {G.shape}")
    return G


def _tangent(t, X, name):
    if t is None:
        return None
    if X is None:
        raise ValueError(f"{name} is given, but there is no Z: in the symmetric case tX moves both arguments")
    if not hasattr(X, "shape") or not hasattr(X, "dtype") or X.dtype.kind != "f":
        raise ValueError(f"{name} is given, but the samples are discrete: nothing moves them; leave it None")
    t = _real(t, name)
    if t.shape != X.shape:
        raise ValueError(f"{name} must have the shape {X.shape} of its samples, got {t.shape}")
    return t


def _like(dX, X):
    """A gradient in the dtype of what it belongs to; zeros where nothing reached numeric samples."""
    if X is None or not hasattr(X, "dtype") or X.dtype.kind != "f":
        return None
    if dX is None:
        return np.zeros(X.shape, dtype=X.dtype)
    return np.asarray(dX).astype(X.dtype, copy=False)

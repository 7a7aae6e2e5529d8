"""Differentiable: a kernel's derivatives of first and second order, by the names that users know.

Place on the way: ``derivatives`` → **differentiable** → ``base.Kernel``.
"""

import numpy as np

from .._arrays import plain
from .._memory import check_output
from . import derivatives
from .bilinear import second_pushforward
from .prepared import dtype_of, n_rows, width

__all__ = ["Differentiable"]


class Differentiable:
    """The part of `Kernel` that differentiates it."""

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
        return self._compiled(width(X)), X, Z

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
        tX : array_like of shape (n, d) or None, default=None (zero)
            In the symmetric case it moves both arguments.
        tZ : array_like of shape (m, d) or None, default=None (zero)
        tparams : dict or None, default=None (zero)
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

    def second_pushforward(self, X, Z, t, s):
        """Second derivative of k(X, Z) along two directions.

        Parameters
        ----------
        X : array_like of shape (n, d)
        Z : array_like of shape (m, d), or None
        t, s : tuple of (tX, tZ, tparams)
            Directions as for `pushforward`, None for zero in each part.

        Returns
        -------
        ndarray of shape (n, m)

        Notes
        -----
        In plain NumPy, O(n·m·d): the forward derivative of `pushforward`. `pullback_pushforward` is compiled.
        """
        program, X, Z = self._derivative_inputs(X, Z)
        t, s = (
            (_tangent(tX, X, "tX"), _tangent(tZ, Z, "tZ"), self._by_path(tparams))
            for tX, tZ, tparams in (t, s)
        )
        shape = n_rows(X), n_rows(X if Z is None else Z)
        check_output(*shape, dtype_of(X))
        out = np.empty(shape, dtype=dtype_of(X))
        return second_pushforward(program, X, Z, t, s, out)


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

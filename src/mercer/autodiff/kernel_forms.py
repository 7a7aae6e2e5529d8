"""What is taken of a kernel matrix, with its derivatives, on plain values: what `rules_kernels` evaluates.

A form is all of the matrix, its diagonal, or its product with V. Each has ``along``, its n-th derivative in n
directions, and ``gradient``, that of ⟨G, form⟩ or its derivative along a direction, by the kernels' own
derivatives.
"""

from functools import cached_property

import numpy as np

from mercer._memory import check_output
from mercer.gram import Gram
from mercer.kernels import derivatives
from mercer.kernels.bilinear import diag_second_push, second_pushforward
from mercer.kernels.diag import diag_pull, diag_pull_push, diag_push
from mercer.kernels.prepared import dtype_of, n_rows, take_rows, typed_diagonal

__all__ = ["SIDES", "Diagonal", "Matrix", "Point", "Product"]

# Entries of the strip of rows by which the derivative of a product is formed.
_STRIP_ENTRIES = 2**20
#: The roles of samples, each with its counterpart on the other side.
SIDES = {"X": "Z", "Z": "X"}


class Point:
    """What a primitive knows of where it is differentiated, all of it plain.

    Parameters
    ----------
    form : type
        What is taken of the matrix: `Matrix`, `Diagonal` or `Product`.
    kernel : Kernel
    X, Z : array_like
        Z None for the symmetric case.
    roles : tuple of str
        What the primitive's first arguments are: "X", "Z", names of hyperparameters.
    n_threads : int or None
    """

    def __init__(self, form, kernel, X, Z, roles, n_threads=None):
        self.form, self.kernel, self.roles, self.n_threads = form, kernel, roles, n_threads
        self.program, self.X, self.Z = kernel._derivative_inputs(X, Z)
        self.symmetric = self.Z is None
        self.shape = n_rows(self.X), n_rows(self.X if self.symmetric else self.Z)
        self.dtype = np.dtype(dtype_of(self.X))
        given = {"X": X, "Z": Z, **{h.name: h.value for h in kernel.hyperparameters}}
        self.like = {role: np.asarray(given[role]) for role in roles}

    @property
    def turned(self):
        """The same with rows and columns swapped."""
        return self if self.symmetric else self._turned

    @cached_property
    def _turned(self):
        roles = tuple(SIDES.get(role, role) for role in self.roles)
        return Point(self.form, self.kernel, self.Z, self.X, roles, self.n_threads)

    def direction(self, tangents):
        """A direction, by role, as (tX, tZ, tparams), the last by path."""
        tX, tZ = (
            None if side not in tangents else np.require(tangents[side], np.float64, "A") for side in "XZ"
        )
        named = {role: t for role, t in tangents.items() if role not in SIDES}
        return tX, tZ, self.kernel._by_path(named)

    def gathered(self, dX, dZ, dparams, wanted):
        """Gradients for the roles that are wanted, each of its argument's shape and type."""
        found = {"X": dX, "Z": dZ, **self.kernel._by_name(dparams)}
        out = []
        for role in wanted:
            like, value = self.like[role], found[role]
            dtype = like.dtype if like.dtype.kind == "f" else np.float64
            out.append(
                np.zeros(like.shape, dtype)
                if value is None
                else np.asarray(value).astype(dtype, copy=False)[()]
            )
        return tuple(out)


# -- the forms -------------------------------------------------------------------------------------------


class Matrix:
    """All of K."""

    @staticmethod
    def along(at, directions):
        """K, or its derivative along one or two directions, (n, m)."""
        if not directions:
            return at.kernel(at.X, at.Z, n_threads=at.n_threads)
        check_output(*at.shape, at.dtype)
        return _strip(at, directions, slice(None), at.dtype)

    @staticmethod
    def gradient(at, directions, wanted, G):
        """Gradient of ⟨G, K⟩, or its derivative along a direction."""
        return _pulled(at, directions, wanted, np.require(G, np.float64, "A"))


class Product:
    """K @ V, of which no n×m matrix is formed."""

    @staticmethod
    def along(at, directions, V):
        """K @ V, or its derivative along one or two directions at fixed V."""
        dtype = np.result_type(at.dtype, V.dtype, np.float32)
        if not directions:
            return Gram(at.kernel, at.X, at.Z, n_threads=at.n_threads).dot(V).astype(dtype, copy=False)
        n, m = at.shape
        out = np.empty((n, *V.shape[1:]), dtype)
        step = max(1, _STRIP_ENTRIES // max(m, 1))
        for start in range(0, n, step):
            rows = slice(start, min(n, start + step))
            out[rows] = _strip(at, directions, rows, np.float64) @ V
        return out

    @staticmethod
    def gradient(at, directions, wanted, V, C):
        """Gradient of ⟨C, K @ V⟩ in the samples and hyperparameters, or its derivative along a direction."""
        pair = tuple(np.array(a.reshape(len(a), -1), np.float64) for a in (C, V))
        return _pulled(at, directions, wanted, pair)


class Diagonal:
    """The entries k(x_i, x_i)."""

    @staticmethod
    def along(at, directions):
        """The diagonal, or its derivative along one or two directions, (n,)."""
        if not directions:
            return typed_diagonal(at.program, at.X)
        t = [(tX, tparams) for tX, _, tparams in directions]
        out = (
            diag_push(at.program, at.X, *t[0])
            if len(t) == 1
            else diag_second_push(at.program, at.X, t[0], t[1])
        )
        return out.astype(at.dtype, copy=False)

    @staticmethod
    def gradient(at, directions, wanted, g):
        """Gradient of ⟨g, diag K⟩, or its derivative along a direction."""
        g = np.asarray(g, np.float64)
        if not directions:
            dX, dparams = diag_pull(at.program, at.X, g)
        else:
            tX, _, tparams = directions[0]
            dX, dparams = diag_pull_push(at.program, at.X, g, np.zeros_like(g), tX, tparams)
        return dX, None, dparams


def _strip(at, directions, rows, dtype):
    """Rows of the derivative of K along one or two directions."""
    X, Z = at.X, at.Z
    if rows != slice(None):
        X, Z = take_rows(at.X, rows), at.X if at.symmetric else at.Z
        directions = [
            (None if tX is None else tX[rows], tX if at.symmetric else tZ, tparams)
            for tX, tZ, tparams in directions
        ]
    out = np.empty((n_rows(X), at.shape[1]), dtype)
    if len(directions) == 1:
        return derivatives.pushforward(at.program, X, Z, *directions[0], out, at.n_threads)
    return second_pushforward(at.program, X, Z, *directions, out)


def _pulled(at, directions, wanted, G):
    params = any(role not in SIDES for role in wanted)
    wanted = derivatives.Wanted("X" in wanted, "Z" in wanted, params)
    if not directions:
        return derivatives.pullback(at.program, at.X, at.Z, G, at.n_threads, wanted=wanted)
    return derivatives.pullback_pushforward(
        at.program, at.X, at.Z, G, *directions[0], at.n_threads, wanted=wanted
    )

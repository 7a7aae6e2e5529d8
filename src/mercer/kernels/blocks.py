"""Kernels whose values come as whole matrices: the base of user functions, lookups and special functions.

A subclass of `BlockKernel` computes a matrix of values for two blocks of samples; in a program it is a
BLOCK leaf, so that it combines with every other kernel. Derivatives are those it defines.

Place on the way: ``base.Kernel`` → **blocks** → ``discrete``, and Matérn of any ν.
"""

from dataclasses import dataclass

import numpy as np

from .base import Kernel
from .prepared import n_rows, take_rows
from .program import Leaf, LeafKind
from .scope import Scope
from .views import View

__all__ = ["BlockKernel", "BlockSource", "EncodedKernel"]


class BlockKernel(Kernel):
    """Base of kernels that compute whole matrices.

    Override `_block`; `_block_diag` where one entry costs less than a row; the derivatives where there
    are any. The defaults below are those of a kernel of discrete samples without hyperparameters.
    """

    def _emit(self, builder, scope):
        for name in self._bounds:
            if getattr(self, name) is not None:
                self._declare(builder, scope, name)
        return builder.leaf(Leaf(LeafKind.BLOCK, BlockSource(self, scope)))

    def _block(self, X, Z):
        """Values as an (n, m) array; Z None is the symmetric case."""
        raise NotImplementedError

    def _block_diag(self, X):
        """Values k(x_i, x_i), (n,)."""
        ones = [self._block(take_rows(X, slice(i, i + 1)), None)[0, 0] for i in range(n_rows(X))]
        return np.array(ones, dtype=np.float64)

    def _block_pullback(self, X, Z, G):
        """Gradient of ⟨G, k⟩: (dX, dZ, dparams by own name); Z None is the symmetric case, dX then total."""
        return None, None, {}

    def _block_pushforward(self, X, Z, tX, tZ, tparams):
        """Directional derivative (n, m), or None for zero; None also in tX and tZ; tparams by own name."""
        return None

    def _block_second(self, X, Z, G, tX, tZ, tparams):
        """Directional derivative of `_block_pullback` at fixed G, in its form."""
        return None, None, {}

    def _block_mixed(self, X, Z, t, s):
        """Second derivative (n, m) along two directions (tX, tZ, tparams), or None for zero."""
        return None


@dataclass(frozen=True)
class BlockSource:
    """A `BlockKernel` where it stands in an expression: its columns, and the paths of its hyperparameters.

    What a BLOCK leaf has in place of a view. The derivatives are named by path.
    """

    kernel: BlockKernel
    scope: Scope

    differentiable = False
    one_sided = False
    # Whether a strip of its rows can be taken by itself.
    has_strips = True

    def _see(self, X):
        return X if X is None else self.scope.columns.apply(X)

    def _see_tangent(self, X, tX):
        return None if tX is None else self.scope.columns.pushforward(X, tX, {})

    def _own(self, tparams):
        names = {self.scope.path(name): name for name in self.kernel._bounds}
        return {names[path]: t for path, t in tparams.items() if path in names}

    def _full(self, dparams):
        return {self.scope.path(name): d for name, d in dparams.items()}

    def _back(self, X, dX):
        return None if X is None or dX is None else self.scope.columns.pullback(X, dX)[0]

    def block(self, X, Z=None):
        """Values, (n, m)."""
        return np.asarray(self.kernel._block(self._see(X), self._see(Z)), dtype=np.float64)

    def diag(self, X, Z=None):
        """Values of pairs (x_i, x_i), or (x_i, z_i)."""
        if Z is None:
            return np.asarray(self.kernel._block_diag(self._see(X)), dtype=np.float64)
        x, z = self._see(X), self._see(Z)
        rows = [slice(i, i + 1) for i in range(n_rows(x))]
        return np.array(
            [self.kernel._block(take_rows(x, i), take_rows(z, i))[0, 0] for i in rows], dtype=np.float64
        )

    def pullback(self, X, Z, G):
        """Gradient of ⟨G, k⟩."""
        dX, dZ, dparams = self.kernel._block_pullback(self._see(X), self._see(Z), G)
        return self._back(X, dX), self._back(Z, dZ), self._full(dparams)

    def pushforward(self, X, Z, tX, tZ, tparams):
        """Directional derivative, (n, m), or zeros."""
        tX, tZ = self._see_tangent(X, tX), self._see_tangent(Z, tZ)
        out = self.kernel._block_pushforward(self._see(X), self._see(Z), tX, tZ, self._own(tparams))
        return np.zeros((n_rows(X), n_rows(X if Z is None else Z))) if out is None else out

    def second(self, X, Z, G, tX, tZ, tparams):
        """Directional derivative of `pullback` at fixed G."""
        tX, tZ = self._see_tangent(X, tX), self._see_tangent(Z, tZ)
        tdX, tdZ, tdparams = self.kernel._block_second(
            self._see(X), self._see(Z), G, tX, tZ, self._own(tparams)
        )
        return self._back(X, tdX), self._back(Z, tdZ), self._full(tdparams)

    def mixed(self, X, Z, t, s):
        """Second derivative along two directions (tX, tZ, tparams), (n, m), or None for zero."""
        seen = [
            (self._see_tangent(X, tX), self._see_tangent(Z, tZ), self._own(tparams))
            for tX, tZ, tparams in (t, s)
        ]
        return self.kernel._block_mixed(self._see(X), self._see(Z), *seen)

    # The diagonal's derivatives, one sample at a time: a block of one row.

    def _each(self, X):
        for i in range(n_rows(X)):
            yield i, take_rows(X, slice(i, i + 1))

    def diag_pushforward(self, X, tX, tparams):
        """Directional derivative of the diagonal, (n,)."""
        out = np.zeros(n_rows(X))
        for i, x in self._each(X):
            t = None if tX is None else tX[i : i + 1]
            out[i] = self.pushforward(x, None, t, None, tparams)[0, 0]
        return out

    def diag_pullback(self, X, g):
        """Gradient of Σ gᵢ k(x_i, x_i)."""
        return self._gather(X, lambda i, x: self.pullback(x, None, np.full((1, 1), g[i])))

    def diag_second(self, X, g, tX, tparams):
        """Directional derivative of `diag_pullback` at fixed g."""

        def one(i, x):
            t = None if tX is None else tX[i : i + 1]
            return self.second(x, None, np.full((1, 1), g[i]), t, None, tparams)

        return self._gather(X, one)

    def diag_mixed(self, X, t, s):
        """Second derivative of the diagonal along two directions (tX, tparams), (n,), or None for zero."""
        out = np.zeros(n_rows(X))
        for i, x in self._each(X):
            along = [(None if tX is None else tX[i : i + 1], None, tparams) for tX, tparams in (t, s)]
            mixed = self.mixed(x, None, *along)
            out[i] = 0.0 if mixed is None else mixed[0, 0]
        return out

    def _gather(self, X, one):
        dX, total = None, {}
        for i, x in self._each(X):
            row, _, dparams = one(i, x)
            if row is not None:
                dX = np.zeros(X.shape) if dX is None else dX
                dX[i] = row[0]
            for path, value in dparams.items():
                total[path] = total.get(path, 0.0) + value
        return dX, total


class EncodedKernel(Kernel):
    """Base of kernels of discrete samples that are inner products of sparse features.

    The features of both sides have the same columns. Override `_encode`; the kernel is then a DOT leaf,
    and needs no matrix of its own.
    """

    def _emit(self, builder, scope):
        return builder.leaf(Leaf(LeafKind.DOT, _EncodedView(self)))

    def _encode(self, X, Z):
        """Features of both sides, CSR or dense, with the same columns; Z None: the second is None."""
        raise NotImplementedError


@dataclass(frozen=True)
class _EncodedView(View):
    """Features of discrete samples, of which the two sides share the columns."""

    kernel: EncodedKernel

    differentiable = False

    def apply(self, X):
        """Features of one side."""
        return self.kernel._encode(X, None)[0]

    def sides(self, X, Z):
        """Features of both sides."""
        left, right = self.kernel._encode(X, Z)
        return left, left if Z is None else right

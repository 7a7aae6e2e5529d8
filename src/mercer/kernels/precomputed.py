"""Kernels whose matrix is given, as samples or by a user's function.

Place on the way: samples → **kernel expression** → ``program``, as a BLOCK leaf.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .._arrays import check_samples
from .blocks import BlockKernel, BlockSource
from .prepared import n_rows, take_rows
from .program import Leaf, LeafKind
from .user import checked, name_of

__all__ = ["PER_PAIR", "FunctionKernel", "Precomputed"]

# Rows of one call of a user's function for the diagonal: so many times the work, so many times fewer calls.
_DIAGONAL_ROWS = 16


# ---------------------------------------------------------------- precomputed


class Precomputed(BlockKernel):
    """The samples are the kernel matrix itself.

    ``k(K)`` is the square matrix K of the training samples with themselves; ``k(K, Z)`` is K of shape (n,
    m), new rows against m training samples, of which Z needs only its number of rows (their own matrix,
    say). The gradient in K is G. Nothing is checked but shape, numbers and symmetry: `check_psd` tells
    whether K is positive semidefinite.

    Raises
    ------
    ValueError
        If K is not square and symmetric in a symmetric call, or has not one column per row of Z.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.kernels import Precomputed
    >>> K = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> (3 * Precomputed())(K).tolist()
    [[6.0, 3.0], [3.0, 6.0]]
    """

    _reads = "matrix"
    is_psd = None
    psd_note = "a precomputed matrix may be anything; check_psd(K) tells"

    def _emit(self, builder, scope):
        return builder.leaf(Leaf(LeafKind.BLOCK, _Given(self, scope)))

    def _inputs(self, X, Z):
        X, Z = super()._inputs(X, Z)
        if Z is None:
            # Of a large matrix `_block` sees strips, which are neither.
            _check_square(X)
            _check_symmetric(X.toarray() if sparse.issparse(X) else X)
        return X, Z

    def _block(self, X, Z):
        K = X.toarray() if sparse.issparse(X) else X
        if Z is None:
            _check_square(K)
            _check_symmetric(K)
        elif K.shape[1] != n_rows(Z):
            raise ValueError(
                f"a precomputed kernel matrix needs one column per row of Z, but X has shape {K.shape} and Z "
                f"has {n_rows(Z)} rows"
            )
        return K

    def _block_pullback(self, X, Z, G):
        return G, None, {}

    def _block_pushforward(self, X, Z, tX, tZ, tparams):
        return tX


@dataclass(frozen=True)
class _Given(BlockSource):
    """A `Precomputed` where it stands in an expression: a diagonal that no row by itself can tell."""

    has_strips = False  # and none is needed: a matrix of this size was given

    def diag(self, X, Z=None):
        """Diagonal of X."""
        K = self._see(X)
        if K.shape[0] != K.shape[1] and Z is None:
            raise ValueError(
                f"a precomputed matrix of shape {K.shape} has no k(x, x) of its rows; normalise or centre "
                "the matrix before its rows are taken"
            )
        return np.asarray(K.diagonal(), dtype=np.float64)

    def diag_pullback(self, X, g):
        """The diagonal matrix of g."""
        return self._back(X, np.diag(g)), {}

    def diag_pushforward(self, X, tX, tparams):
        """Diagonal of the tangent."""
        return np.zeros(n_rows(X)) if tX is None else np.diagonal(self._see_tangent(X, tX))

    def diag_second(self, X, g, tX, tparams):
        """Nothing: the block is linear."""
        return None, {}

    def diag_mixed(self, X, t, s):
        """Nothing, likewise."""
        return None


def _check_square(K):
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f"a precomputed kernel matrix must be square in a symmetric call, got shape {K.shape}; for "
            "new rows give Z as well, with one row per training sample"
        )


def _check_symmetric(K):
    # Half of the digits: a matrix product done in another order is no error, a transposed block is.
    tolerance = np.sqrt(np.finfo(K.dtype).eps) * max(K.max(), -K.min())
    for start in range(0, len(K), 256):
        rows = slice(start, start + 256)
        skew = np.abs(K[rows] - K[:, rows].T)
        if skew.max() > tolerance:
            i, j = np.unravel_index(skew.argmax(), skew.shape)
            i += start
            raise ValueError(
                f"a kernel matrix must be symmetric, but K[{i}, {j}] = {K[i, j]:.17g} and "
                f"K[{j}, {i}] = {K[j, i]:.17g}"
            )


# ---------------------------------------------------------------- a user's function

PER_PAIR = (
    "one entry per pair of rows of its blocks X and Z is needed: a function g of two samples becomes one of "
    "blocks by lambda X, Z: np.array([[g(x, z) for z in Z] for x in X])"
)


class FunctionKernel(BlockKernel):
    """A kernel that a Python function computes, block by block.

    Parameters
    ----------
    f : callable
        f(X, Z) → (n, m): not of two samples but of two blocks of them. X has shape (n, d) and Z (m, d),
        floats, if the samples are numbers (CSR if they were sparse); otherwise both are lists of samples.
        It must be symmetric: f(Z, X) is the transpose. Large matrices are asked for in strips of rows. What
        f raises passes unchanged.
    gradient : callable, default=None
        gradient(X, Z, G) → (dX, dZ), the gradients of Σ G·f(X, Z), of the shapes of X and Z. Derivatives
        need it; second derivatives do not exist.

    Raises
    ------
    TypeError
        If f or gradient is not callable.
    ValueError
        If what f returns has another shape, is not real, or not finite.

    Notes
    -----
    Whether it is positive semidefinite is not known; `check_psd` tests a matrix of it.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.kernels import FunctionKernel
    >>> def minimum(X, Z):
    ...     return np.minimum(X, Z.T)
    >>> FunctionKernel(minimum)([[1.0], [2.0]]).tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """

    _reads = "any"
    is_psd = None
    psd_note = "a function's matrices may be anything; check_psd(k(X)) tests one"

    def __init__(self, f, gradient=None):
        if not callable(f):
            raise TypeError(f"FunctionKernel: f must be a function of two blocks of samples, got {f!r}")
        if gradient is not None and not callable(gradient):
            raise TypeError(
                f"FunctionKernel: gradient must be a function (X, Z, G) -> (dX, dZ), got {gradient!r}"
            )
        self._set(f=f, gradient=gradient)

    def _emit(self, builder, scope):
        return builder.leaf(Leaf(LeafKind.BLOCK, _Called(self, scope)))

    def _check_samples(self, X, name="X"):
        if isinstance(X, list | tuple) and not X:
            raise ValueError(f"{name} is empty (0 samples), while a minimum of 1 is required")
        if sparse.issparse(X) or _is_numeric(X):
            return check_samples(X, name=name)
        if isinstance(X, str | bytes) or not hasattr(X, "__len__") or not hasattr(X, "__iter__"):
            raise TypeError(f"{name} must be a sequence of samples, got {X!r}")
        return X.tolist() if isinstance(X, np.ndarray) else list(X)

    def _call(self, X, Z):
        return checked(self.f, self.f(X, Z), (n_rows(X), n_rows(Z)), PER_PAIR)

    def _block(self, X, Z):
        if Z is not None:
            return self._call(X, Z)
        K = self._call(X, X)
        _check_symmetric(K)
        return K

    def _block_diag(self, X):
        # Diagonals of small square blocks.
        strips = [slice(i, i + _DIAGONAL_ROWS) for i in range(0, n_rows(X), _DIAGONAL_ROWS)]
        return np.concatenate(
            [np.diagonal(self._call(x, x)) for x in (take_rows(X, rows) for rows in strips)]
        )

    def _gradient(self, X, Z, G):
        """What the user's gradient returns, checked."""
        if self.gradient is None:
            raise ValueError(
                f"FunctionKernel({name_of(self.f)}) has no derivative; give it as FunctionKernel(f, "
                "gradient=…), where gradient(X, Z, G) returns (dX, dZ), the gradients of sum(G * f(X, Z))"
            )
        pair = self.gradient(X, Z, G)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"{name_of(self.gradient)} must return a pair (dX, dZ), got {pair!r:.80}")
        dX, dZ = pair
        like = "dX and dZ have the shapes of X and Z"
        return checked(self.gradient, dX, X.shape, like), checked(self.gradient, dZ, Z.shape, like)

    def _block_pullback(self, X, Z, G):
        if not hasattr(X, "shape"):
            return None, None, {}
        dX, dZ = self._gradient(X, X if Z is None else Z, G)
        return (dX + dZ, None, {}) if Z is None else (dX, dZ, {})

    def _block_pushforward(self, X, Z, tX, tZ, tparams):
        # k(x_i, z_j) reads no other row: one call for a z_j gives the slopes in every x_i, and so with the
        # sides swapped.
        if Z is None:
            Z, tZ = X, tX
        n, m = n_rows(X), n_rows(Z)
        out = np.zeros((n, m))
        for j in range(m) if tX is not None else ():
            slopes, _ = self._gradient(X, Z[j : j + 1], np.ones((n, 1)))
            out[:, j] += np.einsum("ij,ij->i", slopes, tX)
        for i in range(n) if tZ is not None else ():
            _, slopes = self._gradient(X[i : i + 1], Z, np.ones((1, m)))
            out[i] += np.einsum("ij,ij->i", slopes, tZ)
        return out

    def _block_second(self, X, Z, G, tX, tZ, tparams):
        if any(t is not None and np.any(t) for t in (tX, tZ)):
            raise ValueError(
                f"FunctionKernel({name_of(self.f)}) has no second derivative in the samples; where one is "
                "needed, build the kernel from those of mercer.kernels"
            )
        return None, None, {}

    def _block_mixed(self, X, Z, t, s):
        if all(any(part is not None and np.any(part) for part in along[:2]) for along in (t, s)):
            self._block_second(X, Z, None, *t)  # raises


@dataclass(frozen=True)
class _Called(BlockSource):
    """A `FunctionKernel` where it stands in an expression; its samples may be no matrix."""

    def _see(self, X):
        return super()._see(X) if hasattr(X, "shape") else X


def _is_numeric(X):
    """Whether samples are rows of numbers, rather than things of which only f knows what they are."""
    try:
        array = np.asarray(X)
    except (ValueError, TypeError):
        return False
    if array.dtype.kind == "O" and array.ndim == 2:
        try:
            array = array.astype(np.float64)
        except (ValueError, TypeError):
            return False
    return array.dtype.kind in "fiubc"

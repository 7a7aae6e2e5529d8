"""The Gram matrix as an operator: products, rows, the diagonal, and the matrix itself only when asked for.

Place on the way: arrays → kernel expression → **gram** → ``solvers`` → ``estimators``.
"""

import numpy as np
from scipy.sparse.linalg import LinearOperator

from . import _native
from ._arrays import check_out, is_traced, trace_hooks
from ._memory import check_output

__all__ = ["Gram"]


class Gram(LinearOperator):
    """``K[i, j] = k(X[i], Z[j])``, computed anew in each product and never stored.

    ``k.gram(X, Z)`` makes one. It is a SciPy ``LinearOperator``, so that SciPy's iterative solvers take it.

    Parameters
    ----------
    kernel : Kernel
        The expression.
    X : array_like of shape (n, d)
        Rows.
    Z : array_like of shape (m, d) or None, default=None
        Columns; None for those of X, and then the operator is symmetric.
    n_threads : int or None, default=None
        As `mercer._threads.n_threads` reads it.

    Attributes
    ----------
    shape : tuple
        (n, m).
    dtype : dtype
        float32 or float64, that of the samples.

    Notes
    -----
    A product needs memory in the order of its operands and one tile per thread, whatever n·m is.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.kernels import RBF
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> K = RBF(gamma=0.1).gram(X)
    >>> bool(np.allclose(K @ np.ones(3), RBF(gamma=0.1)(X).sum(axis=1)))
    True
    """

    def __init__(self, kernel, X, Z=None, *, n_threads=None):
        self._bind(kernel, kernel._prepared(X, Z), n_threads)

    def _bind(self, kernel, prepared, n_threads):
        self.kernel, self.n_threads, self._samples = kernel, n_threads, prepared
        super().__init__(np.dtype(prepared.dtype), prepared.shape)

    def _with(self, prepared):
        other = object.__new__(type(self))
        other._bind(self.kernel, prepared, self.n_threads)
        return other

    @property
    def symmetric(self):
        """Whether rows and columns are the same samples."""
        return self._samples.symmetric

    def _matmat(self, V):
        product = self._samples.matmul(V, n_threads=self.n_threads)
        return product.astype(np.result_type(self.dtype, V.dtype, np.float32), copy=False)

    def _matvec(self, v):
        return self._matmat(v.reshape(-1, 1)).reshape(-1)

    def _rmatmat(self, V):
        return self._transpose()._matmat(V)

    def _rmatvec(self, v):
        return self._transpose()._matvec(v)

    def dot(self, V):
        """``K @ V``.

        Parameters
        ----------
        V : array_like of shape (m,) or (m, p)
            Real numbers; sums run in float64.

        Returns
        -------
        ndarray of shape (n,) or (n, p)
            float32 if both K and V are, else float64.

        Raises
        ------
        ValueError
            For another length, or complex numbers.
        """
        if isinstance(V, LinearOperator) or np.isscalar(V):
            return super().dot(V)
        if is_traced(V):
            return trace_hooks["product"](self, V)
        V = np.asarray(V)
        if V.ndim not in (1, 2) or V.shape[0] != self.shape[1]:
            raise ValueError(f"V must have {self.shape[1]} rows, one per column of K, got shape {V.shape}")
        if V.dtype.kind not in "fiub":
            raise ValueError(
                f"V must hold real numbers, got dtype {V.dtype}; multiply real and imaginary parts apart"
            )
        return self._matvec(V) if V.ndim == 1 else self._matmat(V)

    def __matmul__(self, V):
        """``K @ V``, as `dot`."""
        return self.dot(V)

    def __rmatmul__(self, V):
        """``V @ K``."""
        if is_traced(V):
            return np.transpose(self._transpose().dot(np.transpose(V)))
        return super().__rmatmul__(V)

    def _transpose(self):
        return self._with(self._samples.T)

    def _adjoint(self):
        # Kernels are real: the adjoint is the transpose, k(Z, X).
        return self._transpose()

    def __len__(self):
        """The number of rows."""
        return self.shape[0]

    def rows(self, index):
        """Some rows as a matrix.

        Parameters
        ----------
        index : int, slice, array of ints or boolean mask
            Which ones.

        Returns
        -------
        ndarray of shape (len(index), m), or (m,) for an int
            In the operator's dtype.
        """
        if isinstance(index, int | np.integer):
            n = self.shape[0]
            if not -n <= index < n:
                raise IndexError(f"row {index} is out of bounds for {n} rows")
            return self.rows(np.array([index % n]))[0]
        if not isinstance(index, slice):
            index = np.asarray(index)
            index = index if index.size else index.astype(np.intp)
        return self._with(self._samples.take(index)).formed()

    def __getitem__(self, index):
        """Rows by index, as `rows`; ``K[i, j]`` takes columns ``j`` of them."""
        if isinstance(index, tuple):
            rows, columns = index
            block = self._with(self._samples.take(np.atleast_1d(np.arange(self.shape[0])[rows])))
            block = block.T.rows(columns).T
            return block[0] if np.ndim(np.arange(self.shape[0])[rows]) == 0 else block
        return self.rows(index)

    def diag(self):
        """Entries (i, i), without the rest.

        Returns
        -------
        ndarray of shape (min(n, m),)
        """
        return self._samples.diag()

    def formed(self, out=None):
        """The matrix itself.

        Parameters
        ----------
        out : ndarray of shape (n, m) or None, default=None
            Where to write it, of the operator's dtype and any strides; page faults of fresh memory are a
            large part of the time of a small-dimensional kernel.

        Returns
        -------
        ndarray of shape (n, m)
            `out` if it was given.

        Raises
        ------
        ValueError
            If it does not fit into memory, or `out` has another shape or dtype.
        """
        if out is None:
            check_output(*self.shape, self.dtype)
            out = _native.empty(self.shape, self.dtype)
        else:
            check_out(out, self.shape, self.dtype)
        if out.size:
            self._samples.fill(out, n_threads=self.n_threads)
        return out

    def pullback(self, V, C):
        """Gradient of ⟨C, K @ V⟩, without an n×m array.

        Parameters
        ----------
        V : ndarray of shape (m,) or (m, p)
            What K was multiplied by.
        C : ndarray of shape (n,) or (n, p)
            Cotangent of the product.

        Returns
        -------
        dX : ndarray of shape (n, d)
            With respect to X; in the symmetric case through both arguments.
        dZ : ndarray of shape (m, d) or None
            None in the symmetric case.
        dparams : dict
            By hyperparameter, keyed as ``kernel.get_params(deep=True)``.
        dV : ndarray like V
            ``Kᵀ C``.
        """
        V, C = np.asarray(V), np.asarray(C)
        if not {V.dtype.kind, C.dtype.kind} <= set("fiub"):
            raise ValueError(f"V and C must hold real numbers, got dtypes {V.dtype} and {C.dtype}")
        if V.shape[:1] != self.shape[1:] or C.shape[:1] != self.shape[:1] or V.shape[1:] != C.shape[1:]:
            raise ValueError(
                f"K @ V with K of shape {self.shape} takes V and a cotangent of the product, got {V.shape} "
                f"and {C.shape}"
            )
        pair = (C.reshape(len(C), -1).astype(np.float64), V.reshape(len(V), -1).astype(np.float64))
        dX, dZ, dparams = self._samples.pullback(pair, n_threads=self.n_threads)
        dX, dZ = (None if d is None else d.astype(self.dtype, copy=False) for d in (dX, dZ))
        return dX, dZ, self.kernel._by_name(dparams), self._transpose().dot(C)

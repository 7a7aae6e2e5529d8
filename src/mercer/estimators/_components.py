"""Kernel PCA's centred matrix, and its eigenpairs made into components.

Place on the way: ``solvers`` → **estimators** → ``decomposition``.
"""

import numpy as np

from .._arrays import as_double, row_strips
from .._warnings import warn
from ..gram import Gram
from ..kernels.precomputed import Precomputed
from ..solvers.outcome import not_finite

__all__ = ["CentredGram", "Components"]

_EPS = np.finfo(np.float64).eps
#: Part of the largest eigenvalue below which one is rounding, as scikit-learn has it.
_ZERO = 1e-12
#: Part of the largest eigenvalue above which a negative one is the kernel's doing.
_NEGATIVE = 1e-5
#: Entries of eigenvectors that differ by less than this part are of one size when the sign is chosen.
_TIE = 1e-7


class CentredGram:
    """The centred kernel matrix of training rows (4.60), stored or as products.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray, csr_array or sequence
    stored : bool
    rows : RowBlocks
    n_jobs : int or None

    Attributes
    ----------
    means : ndarray of shape (n,)
        Column means of the matrix as it was before.
    trace : float
        Of the centred matrix.
    scale : float
        A power of two near the largest entry; products are of K over it, whose squares float64 can hold.
    noise : float
        What rounding of the entries can add to an eigenvalue.
    """

    def __init__(self, kernel, X, stored, rows, n_jobs):
        self.rows, self.gram, self.K = rows, None, None
        X = as_double(X)
        if type(kernel) is Precomputed:
            self.K = np.empty(X.shape)
            for some in row_strips(len(X)):
                self.K[some] = (X[some] + X[:, some].T) / 2
        elif stored:
            self.K = Gram(kernel, X, n_threads=n_jobs).formed()
        else:
            self.gram = Gram(kernel, X, n_threads=n_jobs)
        n = self.n = X.shape[0] if hasattr(X, "shape") else len(X)
        if self.K is None:
            diagonal, self.means = self.gram.diag(), self.gram.dot(np.ones(n)) / n
        else:
            diagonal = self.K.diagonal().copy()
            self.means = np.concatenate(rows.map(lambda part: self.K[part].sum(axis=1), self.K.size)) / n
        if not np.isfinite(self.means).all():
            raise not_finite(int(np.argmin(np.isfinite(self.means))))
        largest = max(float(np.abs(diagonal).max()), float(np.abs(self.means).max()))
        self.mean = float(self.means.mean())
        self.trace = float(diagonal.sum() - n * self.mean)
        self.noise = n * _EPS * largest
        self.scale = float(np.ldexp(1.0, np.frexp(largest)[1])) if largest > 0 else 1.0

    def product(self, V):
        """The centred matrix over `scale`, times V of shape (n, b)."""
        V = V - V.mean(axis=0)
        W = self.gram.dot(V) if self.K is None else self.rows.product(self.K, V)
        W -= W.mean(axis=0)
        W /= self.scale
        return W

    def matrix(self):
        """The centred matrix over `scale`, in the stored one's place."""
        K, means = self.K, self.means

        def centre(part):
            K[part] -= means
            K[part] += (self.mean - means[part])[:, None]
            K[part] /= self.scale

        self.rows.map(centre, self.K.size)
        self.K = None
        return K


class Components:
    """Eigenpairs as components: signs, zeros, scaled coefficients, variances.

    Parameters
    ----------
    pairs : Eigenpairs
        Of K over its scale.
    solver : str
    K : CentredGram
    asked : int or None
        The caller's `n_components`.
    drop : bool
        Whether components without variance go, too, where some were asked for.
    """

    def __init__(self, pairs, solver, K, asked, drop):
        n = len(pairs.vectors)
        self.solver, self.n_iter, self.converged = solver, pairs.n_iter, pairs.converged
        values = pairs.values * K.scale
        top = max(float(values[0]), 0.0)
        self.residual = float(np.max(pairs.residuals)) * K.scale / top if top > K.noise else 0.0
        real = values > max(_ZERO * top, K.noise)
        _warn_negative(pairs.least * K.scale, max(_NEGATIVE * top, K.noise))
        _warn_missing(int(real.sum()), asked, n, drop)
        keep = real if asked is None or drop else np.ones_like(real)
        self.values = np.where(real, values, 0.0)[keep]
        self.vectors = _signed(pairs.vectors[:, keep])
        roots = np.sqrt(self.values)
        self.scaled = np.divide(self.vectors, roots, out=np.zeros_like(self.vectors), where=roots > 0)
        # What centring means for coefficients that add up to zero but for rounding.
        self.scaled -= self.scaled.mean(axis=0)
        self.offset = K.means @ self.scaled
        self.variance = self.values / max(n - 1, 1)
        self.ratio = self.values / K.trace if K.trace > K.noise else np.zeros_like(self.values)


def _warn_negative(smallest, limit):
    if smallest < -limit:
        warn(
            f"the centred kernel matrix has the eigenvalue {smallest:.2g}: the kernel is not positive "
            "semidefinite, and coordinates only stand for the part of it that is; mercer.kernels.check_psd "
            "tells which points are at fault"
        )


def _warn_missing(exist, asked, n, drop):
    there_are = f"{exist} component{'s' * (exist != 1)} with variance exist{'s' * (exist == 1)}"
    if asked is None and exist == 0:
        warn(f"{there_are}: in feature space all {n} rows are the same")
    if asked is not None and exist < asked:
        what = "are dropped" if drop else "are zero (remove_zero_eig=True drops them)"
        others = "the others" if drop or asked <= n else f"of the others {n - exist}"
        warn(f"n_components={asked}, but only {there_are} among {n} rows; {others} {what}")


def _signed(U):
    """Columns with the sign that makes the first of their largest entries positive."""
    size = np.abs(U)
    at = np.argmax(size >= (1 - _TIE) * size.max(axis=0), axis=0)
    return U * np.where(U[at, np.arange(U.shape[1])] < 0, -1.0, 1.0)

"""Whether a matrix is positive semidefinite, and the features that it then stands for.

LN14: a kernel is well defined when each of its matrices K has no negative eigenvalue, equivalently
when K = EEᵀ for a real E, equivalently when vᵀKv ≥ 0 for every v. `check_psd` decides by the first,
disproves by the third; `embedding` returns the second.

Place on the way: arrays → **psd** → kernels that take a matrix (`Finite`, a metric), tests, users.
"""

import contextlib
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse

__all__ = ["PSDCheck", "check_psd", "embedding"]

# An eigenvalue solver is backward stable: it errs by a modest multiple of eps·‖K‖₂, and entries that
# were rounded a few times err by at most n·eps·max|K| ≤ n·eps·‖K‖₂ in the same norm. Ten covers both.
_ROUNDING = 10.0


@dataclass(frozen=True)
class PSDCheck:
    """What `check_psd` found; true in a condition if the matrix is positive semidefinite.

    Attributes
    ----------
    is_psd : bool
        Whether ``smallest_eigenvalue >= -tolerance``.
    smallest_eigenvalue : float
    tolerance : float
        How far below zero an eigenvalue may lie and still count as rounding.
    witness : ndarray of shape (n,), or None
        If the matrix is not PSD a unit vector v with vᵀKv < 0; None if it is.
    """

    is_psd: bool
    smallest_eigenvalue: float
    tolerance: float
    witness: np.ndarray | None = None

    def __bool__(self):
        """Whether the matrix is PSD."""
        return self.is_psd


def check_psd(K, *, tolerance=None):
    """Decide whether a symmetric matrix is positive semidefinite.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Symmetric up to rounding; dense or sparse, float32, float64 or integers.
    tolerance : float, default=None
        Eigenvalues of at least ``-tolerance`` pass. None: ``10 n eps max|λ|``, eps of K's dtype.

    Returns
    -------
    PSDCheck
        With ``is_psd`` (also its truth value), ``smallest_eigenvalue``, ``tolerance`` and ``witness``.

    Raises
    ------
    ValueError
        If K is empty, not square, not symmetric, not finite or complex, or the tolerance is negative.

    References
    ----------
    LN14, the definition of well-defined kernels; LINMA theorem 4.1.

    Examples
    --------
    >>> from mercer.kernels import check_psd
    >>> result = check_psd([[1.0, 2.0], [2.0, 1.0]])
    >>> bool(result), round(result.smallest_eigenvalue, 12)
    (False, -1.0)
    """
    K, eps = symmetric(K)
    values = linalg.eigvalsh(K)
    tolerance = _tolerance(values, eps, tolerance)
    smallest = float(values[0])
    if smallest >= -tolerance:
        return PSDCheck(True, smallest, tolerance)
    vector = linalg.eigh(K, subset_by_index=[0, 0])[1][:, 0]
    return PSDCheck(False, smallest, tolerance, vector)


def embedding(K, *, tolerance=None):
    """Features whose inner products are a given kernel matrix.

    Only inner products are known, so the features are one choice up to a rotation: the principal axes,
    the largest first, each with its largest entry positive.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Symmetric positive semidefinite.
    tolerance : float, default=None
        Eigenvalues within it of zero count as zero and give no column. None: as in `check_psd`.

    Returns
    -------
    E : ndarray of shape (n, r)
        Rows are the embedded points: ``E @ E.T`` is K, and r is its rank; float32 for a float32 K, else
        float64.

    Raises
    ------
    ValueError
        If K is not positive semidefinite (with its smallest eigenvalue), or as in `check_psd`.

    References
    ----------
    LINMA (4.7)–(4.10).

    Examples
    --------
    >>> from mercer.kernels import embedding
    >>> E = embedding([[2.0, 1.0], [1.0, 2.0]])
    >>> (E @ E.T).round(12).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    dtype = np.float32 if getattr(K, "dtype", None) == np.float32 else np.float64
    K, eps = symmetric(K)
    values, vectors = linalg.eigh(K)
    tolerance = _tolerance(values, eps, tolerance)
    if values[0] < -tolerance:
        raise ValueError(
            f"K has no embedding: it is not positive semidefinite, its smallest eigenvalue is "
            f"{values[0]:.6g}, below -{tolerance:.3g}; mercer.kernels.check_psd(K).witness shows a "
            f"direction, and K + c * I has one for c >= {-values[0]:.6g}"
        )
    kept = np.flatnonzero(values > tolerance)[::-1]
    vectors = vectors[:, kept]
    if kept.size:
        peak = vectors[np.abs(vectors).argmax(axis=0), np.arange(kept.size)]
        vectors = vectors * np.where(peak < 0, -1.0, 1.0)
    return (vectors * np.sqrt(values[kept])).astype(dtype, copy=False)


def require_psd(matrix, name, rule):
    """Raise unless a constructor's matrix is positive semidefinite.

    Parameters
    ----------
    matrix : array-like of shape (n, n)
    name : str
        What the message calls the matrix.
    rule : str
        The rule that asks for it.

    Raises
    ------
    ValueError
        Naming the rule and the witness's eigenvalue.
    """
    matrix, eps = symmetric(matrix, name)
    # A Cholesky factor of the matrix lifted by less than the tolerance settles most cases, ten times faster.
    lift = _ROUNDING * len(matrix) * eps * float(matrix.diagonal().max())
    if lift > 0:
        lifted = matrix.copy()
        lifted[np.diag_indices(len(matrix))] += lift
        with contextlib.suppress(linalg.LinAlgError):
            linalg.cholesky(lifted, lower=True, overwrite_a=True, check_finite=False)
            return
    values = linalg.eigvalsh(matrix)
    tolerance = _tolerance(values, eps, None)
    if values[0] < -tolerance:
        raise ValueError(
            f"{name} must be positive semidefinite ({rule}), but its smallest eigenvalue is "
            f"{values[0]:.6g} (below -{tolerance:.3g}); mercer.kernels.check_psd({name}).witness is a "
            f"vector v with v' {name} v < 0"
        )


def symmetric(K, name="K"):
    """K as a float64 symmetric array, and the eps of the precision it came in."""
    if sparse.issparse(K):
        K = K.toarray()
    K = np.asarray(K)
    if K.dtype.kind == "c":
        raise ValueError(f"{name} must be real, got dtype {K.dtype}")
    if K.dtype.kind not in "fiub":
        try:
            K = K.astype(np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"{name} must be a matrix of numbers, got dtype {K.dtype}") from None
    if K.ndim != 2 or K.shape[0] != K.shape[1] or K.shape[0] == 0:
        raise ValueError(f"{name} must be a square matrix of at least one row, got shape {K.shape}")
    eps = float(np.finfo(K.dtype).eps) if K.dtype.kind == "f" else 0.0
    eps = max(eps, float(np.finfo(np.float64).eps))
    K = K.astype(np.float64, copy=False)
    bad = np.argwhere(~np.isfinite(K))
    if len(bad):
        i, j = bad[0]
        raise ValueError(f"{name}[{i}, {j}] is {K[i, j]}; every entry must be finite")
    half = 0.5 * K
    skew = np.abs(half - half.T)
    i, j = np.unravel_index(skew.argmax(), skew.shape)
    if skew[i, j] > 0.5 * _ROUNDING * len(K) * eps * np.abs(K).max():
        raise ValueError(
            f"{name} must be symmetric, but {name}[{i}, {j}] = {K[i, j]:.17g} and {name}[{j}, {i}] = "
            f"{K[j, i]:.17g}; if that is rounding, pass ({name} + {name}.T) / 2"
        )
    return half + half.T, eps


def _tolerance(values, eps, tolerance):
    """The tolerance in force for the sorted eigenvalues of an (n, n) matrix."""
    if tolerance is None:
        return _ROUNDING * len(values) * eps * float(np.abs(values).max())
    tolerance = float(tolerance)
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be at least 0, got {tolerance}")
    return tolerance

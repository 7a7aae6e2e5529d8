"""What solvers of kernel ridge regression hand back, and the errors and warnings that all share."""

from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._warnings import warn

__all__ = ["NotPositiveDefinite", "Outcome", "indefinite", "not_finite", "warn_unconverged"]

#: Of K's entries, what rounding may have left in them: they may have been float32.
_ROUNDING = float(np.finfo(np.float32).eps)


class NotPositiveDefinite(np.linalg.LinAlgError):
    """A matrix that should be positive definite is not, at a named pivot.

    A ``LinAlgError``, and so a ``ValueError``.

    Parameters
    ----------
    pivot : int
        The row at which the factorisation broke down, counted from 0.
    value : float
        What was left on the diagonal there.
    remedy : str
        What to do about it.
    name : str, default="K"
        How to call the matrix.

    Attributes
    ----------
    pivot : int
    value : float
    """

    def __init__(self, pivot, value, remedy, name="K"):
        super().__init__(f"{name} is not positive definite at pivot {pivot} ({value:.1e}); {remedy}")
        self.pivot, self.value, self.remedy, self.name = int(pivot), float(value), remedy, name

    def __reduce__(self):
        return type(self), (self.pivot, self.value, self.remedy, self.name)


def not_finite(i):
    """The error for a kernel matrix whose entries left the floating-point range.

    Parameters
    ----------
    i : int
        The first row with such an entry.

    Returns
    -------
    ValueError
    """
    return ValueError(
        f"the kernel matrix is infinite or NaN in row {i}: its entries leave float64's range; scale the "
        "samples down first, or use k.normalize()"
    )


def indefinite(x, Kx, diagonal):
    """Whether vectors show that K is not positive semidefinite: xᵀKx is below 0, and not by rounding of K.

    Parameters
    ----------
    x, Kx : ndarray of shape (n, k)
    diagonal : ndarray of shape (n,)
        Of K.

    Returns
    -------
    bool
    """
    # |Kᵢⱼ| ≤ √(Kᵢᵢ Kⱼⱼ). What overflows shows nothing.
    with np.errstate(over="ignore", invalid="ignore"):
        terms = np.sqrt(np.abs(diagonal)) @ np.abs(x)
        return bool((np.einsum("ij,ij->j", x, Kx) < -_ROUNDING * terms**2).any())


@dataclass(frozen=True)
class Outcome:
    """What a solver of kernel ridge regression reached.

    Attributes
    ----------
    solution : ndarray of shape (n, t)
        Dual coefficients, one column per target.
    intercept : ndarray of shape (t,)
        Zero without an intercept.
    solver : str
        The route that was taken, with its precision where that was a choice.
    n_iter : int
        Iterations; 1 for a direct solve.
    residual : float
        The largest relative residual over the targets.
    converged : bool
        Whether every target reached its tolerance.
    factor : object or None
        A factorisation that was asked for.
    """

    solution: np.ndarray
    intercept: np.ndarray
    solver: str
    n_iter: int = 1
    residual: float = 0.0
    converged: bool = True
    factor: object = None


def warn_unconverged(name, reached, tol, n_iter, remedy, *, indefinite=False):
    """Warn that a solver stopped short of its tolerance.

    Parameters
    ----------
    name : str
        The solver.
    reached, tol : float
        The residual or gap at the end, and what was asked for.
    n_iter : int
        Iterations done.
    remedy : str
        What to do about it.
    indefinite : bool
        Whether that K is not positive semidefinite is the cause: then the residual says nothing, and nor does
        the remedy help.
    """
    short = f"at a residual of {reached:.1e} after {n_iter} iterations, short of tol={tol:.1e}; {remedy}"
    if indefinite:
        short = (
            f"after {n_iter} iterations, perhaps at no minimum: the kernel matrix is not "
            "positive semidefinite (mercer.kernels.check_psd tells); take another kernel"
        )
    warn(f"{name} stopped {short}", ConvergenceWarning)

"""What a cost is, and what all of them share.

Place on the way: ``gram`` → **losses** → ``solvers``.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

__all__ = ["Diagonal", "Loss", "floats", "pair", "positive"]


def floats(f):
    """The same as a floating-point array, integers as float64.

    Parameters
    ----------
    f : array_like

    Returns
    -------
    ndarray
    """
    f = np.asarray(f)
    return f if f.dtype.kind == "f" else f.astype(np.float64)


def pair(y, f):
    """Both as floats; integer and boolean targets take f's dtype, so that float32 stays float32.

    Parameters
    ----------
    y, f : array_like

    Returns
    -------
    y, f : ndarray
    """
    f, y = floats(f), np.asarray(y)
    return (y if y.dtype.kind == "f" else y.astype(f.dtype)), f


class Diagonal:
    """The root of a diagonal Hessian: its own transpose.

    Parameters
    ----------
    diagonal : ndarray like f
    """

    __slots__ = ("diagonal",)

    def __init__(self, diagonal):
        self.diagonal = diagonal

    def forward(self, c):
        """S c, and Sᵀ c as well."""
        return self.diagonal * c

    adjoint = forward


@dataclass(frozen=True)
class Loss:
    """Base of the costs l(y, f), convex in f.

    Attributes
    ----------
    vector : bool
        Whether f has a last axis of classes.
    smooth : bool
        Whether l has a derivative everywhere.
    shifts : bool
        Whether l(y + c, f + c) = l(y, f).
    needs : str
        The targets it takes: "real"; "nonnegative"; "sign", −1 or 1; "code", integers from 0.
    """

    vector: ClassVar[bool] = False
    smooth: ClassVar[bool] = True
    shifts: ClassVar[bool] = False
    needs: ClassVar[str] = "real"

    def value(self, y, f):
        """The cost.

        Parameters
        ----------
        y : array_like
            Targets.
        f : array_like
            Values of the function.

        Returns
        -------
        ndarray like f, of vectors ``f.shape[:-1]``
        """
        raise NotImplementedError

    def dual_box(self, y, most):
        """The box of the dual of a cost that consists of (y − f)² and straight lines, or None for others.

        Parameters
        ----------
        y : ndarray of shape (n,)
        most : ndarray of shape (n,)
            w / α.

        Returns
        -------
        lower, upper : ndarray of shape (n,), or None
        """
        return None

    def dual_moves(self, code, n_classes):
        """The dual's variables d ≥ 0 of a cost of vectors, −Σ d + ½ Σ (α / w) d² beside K, or None.

        Parameters
        ----------
        code : ndarray of int of shape (n,)
        n_classes : int

        Returns
        -------
        samples, classes : ndarray of int of shape (m,)
            Whose variable it is, and the class whose coefficient falls by d.
        moves : ndarray of shape (m, n_classes)
            What the sample's coefficients change by for each unit of d.
        """
        return None

    def derivative(self, y, f):
        """Its gradient in f; 0 at a kink.

        Parameters
        ----------
        y, f : array_like

        Returns
        -------
        ndarray like f
        """
        raise NotImplementedError

    def curvature(self, y, f):
        """Its second derivative in f; of vectors the diagonal of the C×C Hessian.

        Parameters
        ----------
        y, f : array_like

        Returns
        -------
        ndarray like f
        """
        raise NotImplementedError

    def root(self, y, f):
        """S with S Sᵀ = the Hessian of each sample, as an operator.

        Parameters
        ----------
        y, f : array_like

        Returns
        -------
        object
            ``forward(c)`` is S c and ``adjoint(v)`` Sᵀ v, each like f; ``diagonal`` is the square root of
            `curvature`. There is no inverse: samples without curvature have zero rows.
        """
        return Diagonal(np.sqrt(self.curvature(y, f)))

    def conjugate(self, y, u):
        """The convex conjugate, the supremum of u·f − l(y, f) over f.

        Parameters
        ----------
        y : array_like
        u : array_like
            Shaped as f.

        Returns
        -------
        ndarray like `value`
            inf outside of the domain.
        """
        raise NotImplementedError

    def feasible(self, y, u):
        """A point of the conjugate's domain near u: u itself, if it is one.

        Parameters
        ----------
        y, u : array_like

        Returns
        -------
        ndarray like u
        """
        raise NotImplementedError

    def curvature_bound(self, n_classes=2):
        """What no eigenvalue of a sample's Hessian exceeds, for the step of gradient descent.

        Parameters
        ----------
        n_classes : int, default=2
            C, for a cost of vectors.

        Returns
        -------
        float
            inf where there is no bound.
        """
        return np.inf

    def check(self, y, name="y"):
        """Raise a ``ValueError`` unless the cost is defined for these targets, with the first that is not.

        Parameters
        ----------
        y : ndarray of numbers
        name : str, default="y"
            How to call them.
        """
        y = np.asarray(y)
        wrong, what = {
            "real": (np.isnan, "numbers"),
            "nonnegative": (lambda y: ~(y >= 0), "numbers of at least 0"),
            "sign": (lambda y: np.abs(y) != 1, "−1 or 1"),
            "code": (lambda y: (y < 0) | (y != np.floor(y)), "codes of classes, integers from 0"),
        }[self.needs]
        bad = wrong(y)
        if bad.any():
            index = np.unravel_index(int(np.argmax(bad)), bad.shape)
            place = ", ".join(str(i) for i in index)
            raise ValueError(f"{self!r} takes {what}, but {name}[{place}] is {y[index].item()!r}")


def positive(owner, name, value, *, zero=False, below=np.inf):
    """Raise unless a cost's parameter is a number in its range.

    Parameters
    ----------
    owner : Loss
    name : str
    value : object
    zero : bool
        Whether 0 will do.
    below : float
        What it must be below.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{type(owner).__name__}: {name} must be a number, got {value!r}")
    if not ((0 <= value if zero else 0 < value) and value < below):
        least = "at least 0" if zero else "above 0"
        limit = " and finite" if below == np.inf else f" and below {below:g}"
        raise ValueError(f"{type(owner).__name__}: {name} must be {least}{limit}, got {value!r}")

"""The operators and methods by which kernels combine: LN14's construction rules as Python's.

Place on the way: **algebra** → ``base.Kernel``; each rule's kernel is in ``composite``, which needs
`Kernel` first and is therefore imported when a rule is used.
"""

import numpy as np

from .._arrays import plain

__all__ = ["Algebra"]


class Algebra:
    """What makes kernels of kernels."""

    def __add__(self, other):
        from .composite import Sum

        if isinstance(other, Algebra):
            return Sum(self, other)
        if isinstance(other, int) and other == 0:
            return self  # sum([...]) starts from 0
        if _is_number(other):
            raise TypeError(
                f"k + {plain(other)}: a number is no kernel; k.polynomial([c, 1]) is k + c, c * k a multiple"
            )
        return NotImplemented

    def __radd__(self, other):
        return self.__add__(other)

    def __neg__(self):
        raise ValueError("-k: multiples are c * k with c >= 0, which are positive semidefinite (LN14 rule 2)")

    def __sub__(self, other):
        if isinstance(other, Algebra):
            raise ValueError(
                "k1 - k2: a difference may not be positive semidefinite; sums and products are (LN14)"
            )
        if _is_number(other):
            raise TypeError(f"k - {plain(other)}: a number is no kernel")
        return NotImplemented

    def __truediv__(self, other):
        if _is_number(other):
            raise TypeError(f"k / {plain(other)} is not defined; write (1 / {plain(other)}) * k")
        return NotImplemented

    def __mul__(self, other):
        from .composite import Product, Scaled

        if isinstance(other, Algebra):
            return Product(self, other)
        return Scaled(other, self) if _is_number(other) else NotImplemented

    def __rmul__(self, other):
        return self.__mul__(other)

    def __pow__(self, power):
        from .composite import Power

        return Power(self, power)

    def polynomial(self, coefficients):
        """Σ cᵢ kⁱ with nonnegative coefficients (LN14 rule 4).

        Parameters
        ----------
        coefficients : sequence of float
            c₀, c₁, …, none below 0.

        Returns
        -------
        Kernel

        Raises
        ------
        ValueError
            For a negative coefficient, or none.

        Examples
        --------
        >>> from mercer.kernels import Linear
        >>> Linear().polynomial([1.0, 0.0, 2.0])([[1.0], [2.0]])
        array([[ 3.,  9.],
               [ 9., 33.]])
        """
        from .composite import PolynomialOf

        return PolynomialOf(self, coefficients)

    def modulate(self, f, gradient=None, hessian_product=None):
        """Product f(x) k(x, z) f(z) for any function f (LN14 rule 6).

        Parameters
        ----------
        f : callable
            A block of samples X (n, d) → (n,).
        gradient : callable, default=None
            X → (n, d), row i the gradient of f at x_i; derivatives need it.
        hessian_product : callable, default=None
            (X, T) → (n, d), row i the Hessian at x_i times T's row i; second derivatives need it.

        Returns
        -------
        Kernel
        """
        from .composite import Modulated

        return Modulated(self, f, gradient, hessian_product)

    def exp(self):
        """exp(k) (LN14 rule 7)."""
        from .composite import Exp

        return Exp(self)

    def normalize(self):
        """k(x, z)/√(k(x, x) k(z, z)), 0 where k(x, x) = 0 (LN14 rule 6)."""
        from .composite import Normalized

        return Normalized(self)

    def center(self, X):
        """Inner product of features whose mean over the samples X has been taken off.

        Parameters
        ----------
        X : array_like of shape (n, d)
            The samples that set the mean.

        Returns
        -------
        Kernel
        """
        from .composite import Centered

        return Centered(self, X)

    def on(self, columns):
        """Kernel of some of the columns.

        Parameters
        ----------
        columns : int, slice or sequence of int or bool
            Columns of the samples; inside another ``on``, of those that it leaves. Negative ones count from
            the end; a boolean mask has an entry for each column.

        Returns
        -------
        Kernel

        Examples
        --------
        >>> from mercer.kernels import RBF, Linear
        >>> Linear().on([0, -1]) + RBF().on([False, True, False])
        Linear().on([0, -1]) + RBF(gamma=1.0).on([False, True, False])
        """
        from .composite import On

        return On(self, columns)


def _is_number(value):
    value = plain(value)
    return isinstance(value, int | float | np.number) or (isinstance(value, np.ndarray) and value.ndim == 0)

"""Kernels as immutable values, and the algebra that combines them.

Examples
--------
>>> from mercer.kernels import RBF, Polynomial
>>> k = 0.5 * RBF(gamma=2.0) + Polynomial(2)
>>> k([[0.0, 0.0], [1.0, 0.0]])
array([[1.5       , 1.06766764],
       [1.06766764, 4.5       ]])
"""

from .base import Hyperparameter, Kernel
from .dot_product import Cosine, ExpDotProduct, Linear, Polynomial, Sigmoid
from .fourier import Fourier
from .psd import check_psd, embedding
from .stationary import RBF, ChiSquared, Laplacian, Matern, RationalQuadratic

__all__ = [
    "RBF",
    "ChiSquared",
    "Cosine",
    "ExpDotProduct",
    "Fourier",
    "Hyperparameter",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "RationalQuadratic",
    "Sigmoid",
    "check_psd",
    "embedding",
]

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
from .discrete import Finite, FunctionKernel, Precomputed, SetIntersection, Spectrum
from .dot_product import Cosine, ExpDotProduct, Linear, Polynomial, Sigmoid
from .fourier import Fourier
from .names import from_name
from .psd import check_psd, embedding
from .stationary import RBF, ChiSquared, Laplacian, Matern, RationalQuadratic

__all__ = [
    "RBF",
    "ChiSquared",
    "Cosine",
    "ExpDotProduct",
    "Finite",
    "Fourier",
    "FunctionKernel",
    "Hyperparameter",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "Precomputed",
    "RationalQuadratic",
    "SetIntersection",
    "Sigmoid",
    "Spectrum",
    "check_psd",
    "embedding",
    "from_name",
]

"""SciPy functions on traced values, where NumPy's dispatch does not reach them."""

from mercer.autodiff.scipy import linalg, special

__all__ = ["linalg", "special"]

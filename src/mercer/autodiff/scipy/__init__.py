"""SciPy functions on traced values, where NumPy's dispatch does not reach them."""

from mercer.autodiff.scipy import special

__all__ = ["special"]

"""The reverse sweep over a tape (LINMA 1.3), compiled in native/_sweep.pyx."""

from mercer.autodiff.trace import backward

__all__ = ["backward"]

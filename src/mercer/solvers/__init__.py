"""Solvers: each takes arrays or products with them, and returns what it reached as an outcome of its own.

Place on the way: kernel expression → ``gram`` → **solvers** → ``estimators``.
"""

from .outcome import NotPositiveDefinite, Outcome
from .ridge_functions import ridge, ridge_loo

__all__ = ["NotPositiveDefinite", "Outcome", "ridge", "ridge_loo"]

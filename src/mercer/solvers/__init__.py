"""Solvers: each takes arrays or products with them, and returns one kind of outcome.

Place on the way: kernel expression → ``gram`` → **solvers** → ``estimators``.
"""

from .least_squares import ridge, ridge_loo
from .outcome import NotPositiveDefinite, Outcome

__all__ = ["NotPositiveDefinite", "Outcome", "ridge", "ridge_loo"]

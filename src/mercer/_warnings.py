"""Warnings that point at the caller's line, whatever lies between."""

import sys
import warnings

__all__ = ["warn"]


def warn(message, category=UserWarning):
    """Warn of the innermost line that is neither this package's nor scikit-learn's, which wraps methods.

    Parameters
    ----------
    message : str
    category : type
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_between(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_between(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0] in ("mercer", "sklearn")

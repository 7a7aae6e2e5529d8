"""What a user's function returned, checked before anything is computed with it.

Place on the way: a user's functions → **user** → ``rows`` (``modulate``), ``precomputed`` (`FunctionKernel`).
"""

import numpy as np

__all__ = ["checked", "name_of"]


def name_of(f):
    """A function as errors call it."""
    return getattr(f, "__name__", repr(f))


def checked(f, values, shape, remedy):
    """A user's result as a float64 array of the right shape.

    Parameters
    ----------
    f : callable
        Whose result it is, for the error.
    values : array_like
    shape : tuple
        The shape that it must have.
    remedy : str
        What its entries stand for.

    Raises
    ------
    ValueError
        If it has another shape, is not real, or not finite (with the first such place).
    """
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name_of(f)} must return real numbers, got dtype {values.dtype}")
    if values.shape != shape:
        raise ValueError(f"{name_of(f)} must return an array of shape {shape}, got {values.shape}; {remedy}")
    # Aligned too: compiled loops read it.
    values = np.require(values, np.float64, "A")
    if not np.isfinite(values).all():
        place = tuple(np.argwhere(~np.isfinite(values))[0].tolist())
        where = f"row {place[0]}" if len(place) == 1 else str(place)
        raise ValueError(f"{name_of(f)} returned {values[place]} at {where}; every entry must be finite")
    return values

"""Trees of arrays (lists, tuples, dicts, what optree knows) as flat lists of arrays to be differentiated."""

from numbers import Number

import numpy as np

from mercer.autodiff.trace import Traced

__all__ = ["flatten", "is_leaf", "leaf", "unflatten"]

# The abstract Number comes last, since asking it takes longest.
_LEAVES = (np.ndarray, Traced, float, Number)


def flatten(tree):
    """Return the leaves of a tree and what puts them back; an array or number is its own only leaf."""
    if isinstance(tree, _LEAVES):
        return [tree], None
    import optree

    leaves, structure = optree.tree_flatten(tree, none_is_leaf=False, namespace="mercer")
    return leaves, None if structure.is_leaf() else structure


def unflatten(structure, leaves):
    """Return the tree of a structure from :func:`flatten`."""
    if structure is None:
        return leaves[0]
    import optree

    return optree.tree_unflatten(structure, leaves)


def is_leaf(x):
    """Whether a value is a floating array or number as it stands."""
    return type(x) is np.float64 or (type(x) is np.ndarray and x.dtype.char in "fd" and x.dtype.isnative)


def leaf(x, where):
    """Return a leaf as an array or scalar of a floating type (integers: float64) in native byte order."""
    if is_leaf(x):
        return x
    if isinstance(x, Traced | float | complex) and not isinstance(x, np.generic):
        return x if isinstance(x, Traced) else np.asarray(x)[()]
    given, x = x, x if isinstance(x, np.ndarray) else np.asarray(x)
    if isinstance(x, np.matrix | np.ma.MaskedArray):  # their products and sums are not those of arrays
        raise TypeError(
            f"{where} is a {type(x).__name__}, which cannot be differentiated; "
            "pass np.asarray(…) of it, and a mask apart"
        )
    kind = x.dtype.kind
    if kind not in "biufc":
        type_ = type(given).__name__ if kind == "O" and given is not x else x.dtype
        raise TypeError(
            f"{where} holds {given!r:.80} of type {type_}, which cannot be differentiated; "
            "pass arrays or numbers, and choose others by argnums"
        )
    x = x[()] if given is not x else x
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    return x.astype(np.float64) if kind in "biu" else x

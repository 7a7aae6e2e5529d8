"""Labels of classes: what is none, and each one's place among them.

Place on the way: **labels** → ``_svc``, ``_costs``, ``neighbors``, ``model_selection``.
"""

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from .._arrays import check_targets
from .._warnings import warn

__all__ = ["check_labels", "encode_labels", "one_column"]


def one_column(y):
    """Targets of shape (n,); a column is flattened, with scikit-learn's warning.

    Parameters
    ----------
    y : array_like of shape (n,) or (n, 1)

    Returns
    -------
    ndarray of shape (n,)
    """
    if type(y) is np.ndarray and y.ndim == 1:
        return y
    flat = column_or_1d(y)
    if np.asarray(y).ndim == 2:
        warn(
            "A column-vector y was passed when a 1d array was expected: y.ravel() has the shape (n_samples,)",
            DataConversionWarning,
        )
    return flat


def check_labels(y, owner):
    """Raise where an estimator's labels are none.

    Parameters
    ----------
    y : array_like of shape (n,) or (n, t)
    owner : str
        Who wants them.

    Raises
    ------
    ValueError
        NaN or infinity, with its place; numbers that are no labels.
    TypeError
        Labels that have no order among them.
    """
    values = np.asarray(y)
    if values.dtype == object:
        _check_order(values)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        check_targets(values, len(values), owner=owner)  # says where
    if values.dtype.kind not in "iubUS":
        check_classification_targets(y)


def _check_order(values):
    """Raise for the first label, of each column, that cannot be sorted among the others."""
    for column in values.reshape(len(values), -1).T if values.size else ():
        first = column[0]
        for row, value in enumerate(column):
            try:
                value < first  # noqa: B015 (only whether it can be asked)
            except TypeError:
                _refuse_missing(column)
                raise TypeError(
                    f"y holds {value!r} ({type(value).__name__}) at row {row} among labels such as {first!r} "
                    f"({type(first).__name__}), and these have no order; drop rows without a label, and give "
                    "labels of one type, for example by np.asarray(y).astype(str)"
                ) from None


def _refuse_missing(column):
    for row, value in enumerate(column):
        if value is None or value != value:
            raise ValueError(f"Input y contains NaN: {value!r} at row {row} is no label; drop such rows")


def encode_labels(y, n, owner):
    """Sorted classes, and each label's place among them.

    Parameters
    ----------
    y : array_like of shape (n,)
    n : int
        Rows of X.
    owner : str
        Who wants them.

    Returns
    -------
    classes : ndarray of shape (k,)
    codes : ndarray of shape (n,)
    """
    if y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None")
    y = one_column(y)
    if len(y) != n:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n} rows, y has {len(y)}"
        )
    check_labels(y, owner)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"The number of classes has to be greater than one; got {len(classes)} class "
            f"({classes.tolist()[0]!r} "
            f"only)"
        )
    return classes, codes

"""How functions of `scipy.linalg` read their arguments, traced or not."""

import numpy as np

from mercer.autodiff.errors import TraceValueError, trace_error
from mercer.autodiff.trace import Traced, np_like


def array(x):
    """Return an array of a floating type, traced if something in it is."""
    if isinstance(x, list | tuple) and any(isinstance(item, Traced | list | tuple) for item in x):
        x = np.stack([array(item) for item in x])
    x = np_like(x)
    return x if x.dtype.kind in "fc" else x.astype(np.float64)


def only(function, **options):
    """Raise for an option whose derivative is not written."""
    for name, (value, wanted) in options.items():
        if value is not None and value != wanted:
            raise trace_error(
                f"scipy.linalg.{function}",
                f"{name}={value!r} is not differentiated",
                f"leave out {name}",
                TraceValueError,
            )

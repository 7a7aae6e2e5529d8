"""Automatic differentiation of plain NumPy functions: forward, reverse, second order, implicit.

A function written with ``import numpy as np`` is differentiated as it stands:

>>> import numpy as np
>>> import mercer.autodiff as ad
>>> ad.grad(lambda x: np.sum(np.sin(x) * x))(np.array([0.0, 1.0]))
array([0.        , 1.38177329])

The way through: a call (``derivative``, ``second_order``) makes a level, runs the function on traced values
(``trace``), whose operations find their rules (``rules_*``), and sweeps the tape (``sweep``).
"""

import numpy as np

from mercer.autodiff import (  # noqa: F401
    array_methods,
    operands,
    rules_bessel,
    rules_cholesky,
    rules_decompositions,
    rules_distributions,
    rules_elementwise,
    rules_fourier,
    rules_gamma,
    rules_joining,
    rules_kernels,
    rules_linalg,
    rules_norms,
    rules_padding,
    rules_polynomials,
    rules_products,
    rules_qr,
    rules_reduction,
    rules_ridge,
    rules_selection,
    rules_shape,
    rules_signal,
    rules_special,
    rules_statistics,
    scipy,
    ufunc_methods,
)
from mercer.autodiff.checkpoint import checkpoint, scan_checkpointed
from mercer.autodiff.derivative import grad, jvp, value_and_grad, vjp
from mercer.autodiff.extend import custom_rule, primitive, stop_gradient
from mercer.autodiff.implicit import argmin, fixed_point, implicit_root
from mercer.autodiff.jacobians import jacobian
from mercer.autodiff.matrix_functions import inverse_sqrt, symmetric_function
from mercer.autodiff.programs import linear_program, quadratic_program
from mercer.autodiff.rules import scale
from mercer.autodiff.second_order import hessian, hvp, second_directional
from mercer.autodiff.trace import UFUNCS, define_operators

define_operators(
    add=UFUNCS[np.add],
    subtract=UFUNCS[np.subtract],
    multiply=UFUNCS[np.multiply],
    divide=UFUNCS[np.true_divide],
    power=UFUNCS[np.power],
    negative=UFUNCS[np.negative],
    square=UFUNCS[np.square],
    scale=scale,
    getitem=array_methods.getitem,
    sum=rules_reduction.sum_of,
)

__all__ = [
    "argmin",
    "checkpoint",
    "custom_rule",
    "fixed_point",
    "grad",
    "hessian",
    "hvp",
    "implicit_root",
    "inverse_sqrt",
    "jacobian",
    "jvp",
    "linear_program",
    "primitive",
    "quadratic_program",
    "scan_checkpointed",
    "second_directional",
    "stop_gradient",
    "symmetric_function",
    "value_and_grad",
    "vjp",
]

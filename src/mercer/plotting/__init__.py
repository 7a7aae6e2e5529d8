"""Pictures of kernels, of errors and of decisions, as Display objects in scikit-learn's manner.

A display is made from what it shows (``from_kernel``, ``from_errors``, ``from_estimator``), keeps the
numbers, and draws them into given axes by ``plot``; what it drew are its attributes ``ax_``, ``figure_``, ….
matplotlib is optional, the extra ``mercer[plot]``, and imported when something is drawn.

Place on the way: at its end; displays take kernels, fitted estimators and arrays, and import nothing
else of the package.
"""

from mercer.plotting.decision_boundary import DecisionBoundaryDisplay
from mercer.plotting.error_path import ErrorPathDisplay
from mercer.plotting.kernel_surface import KernelSurfaceDisplay

__all__ = ["DecisionBoundaryDisplay", "ErrorPathDisplay", "KernelSurfaceDisplay"]

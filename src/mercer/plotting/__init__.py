"""Pictures of kernels, errors, decisions and computations, as Display objects in scikit-learn's manner.

A display is made from what it shows (``from_kernel``, ``from_errors``, ``from_estimator``, …), keeps the
numbers, and draws them into given axes by ``plot``; what it drew are its attributes ``ax_``, ``figure_``, ….
matplotlib is optional, the extra ``mercer[plot]``, and imported when something is drawn.

Place on the way: at its end; displays take kernels, fitted estimators, functions and arrays, and import
nothing else of the package but for the graph of a function, which is read off autodiff's tape.
"""

from mercer.plotting.computational_graph import ComputationalGraphDisplay
from mercer.plotting.decision_boundary import DecisionBoundaryDisplay
from mercer.plotting.error_path import ErrorPathDisplay
from mercer.plotting.kernel_surface import KernelSurfaceDisplay

__all__ = ["ComputationalGraphDisplay", "DecisionBoundaryDisplay", "ErrorPathDisplay", "KernelSurfaceDisplay"]

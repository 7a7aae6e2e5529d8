"""A kernel as a similarity: its values around one point of the plane (MLR7, figure 7.2)."""

import numpy as np

from mercer.plotting._axes import INK, axes

_KINDS = ("surface", "contour")


class KernelSurfaceDisplay:
    """The surface x ↦ k(x, c) over a rectangle of the plane.

    Make it by :meth:`from_kernel`.

    Parameters
    ----------
    x1, x2 : ndarray of shape (n_points,)
        The grid's coordinates along each axis.
    values : ndarray of shape (n_points, n_points)
        ``values[i, j]`` = k((x1[j], x2[i]), c).
    center : ndarray of shape (2,)
        The point c.
    center_value : float
        k(c, c).
    name : str, default=None
        The title.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    surface_ : matplotlib artist
        The surface or the filled contours.

    References
    ----------
    MLR7 7.1.5, figure 7.2: the polynomial, the Fourier and the RBF kernel around [0.5, 0.5].

    Examples
    --------
    >>> from mercer.kernels import RBF
    >>> from mercer.plotting import KernelSurfaceDisplay
    >>> display = KernelSurfaceDisplay.from_kernel(RBF(gamma=10.0))  # doctest: +SKIP
    """

    def __init__(self, x1, x2, values, *, center, center_value, name=None):
        self.x1, self.x2, self.values = x1, x2, values
        self.center, self.center_value, self.name = center, center_value, name

    @classmethod
    def from_kernel(
        cls,
        kernel,
        *,
        center=(0.5, 0.5),
        bounds=((0.0, 1.0), (0.0, 1.0)),
        n_points=101,
        name=None,
        kind="surface",
        ax=None,
        **plot_kwargs,
    ):
        """Evaluate a kernel over a grid, and draw it.

        Parameters
        ----------
        kernel : callable
            A kernel expression, or anything with ``kernel(X, Z)`` of shape (n, m), of two features.
        center : array-like of shape (2,), default=(0.5, 0.5)
            The point that all others are compared with.
        bounds : array-like of shape (2, 2), default=((0.0, 1.0), (0.0, 1.0))
            Lower and upper end of either axis.
        n_points : int, default=101
            Grid points along each axis, at least 2.
        name : str, optional
            Title; the kernel's repr otherwise.
        kind : {"surface", "contour"}, default="surface"
            A surface in space, or filled contours in the plane.
        ax : matplotlib Axes, optional
            Axes to draw into, of projection "3d" for a surface; new ones otherwise.
        **plot_kwargs
            Given to ``plot_surface`` or ``contourf``.

        Returns
        -------
        KernelSurfaceDisplay

        Raises
        ------
        TypeError
            If the kernel cannot be called.
        ValueError
            If the centre is not a point of the plane, the bounds are not increasing, the grid has fewer than
            two points a side, or ``kind`` or the projection of ``ax`` does not fit.
        ImportError
            If matplotlib is missing.
        """
        if not callable(kernel):
            raise TypeError(
                f"kernel is {kernel!r}; it needs to be an expression such as RBF(gamma=10.0), or a function "
                "of two blocks of rows"
            )
        center = np.asarray(center, dtype=np.float64)
        bounds = np.asarray(bounds, dtype=np.float64)
        if center.shape != (2,):
            raise ValueError(f"center has shape {center.shape}; it needs to be a point of the plane")
        if bounds.shape != (2, 2) or not np.all(bounds[:, 0] < bounds[:, 1]):
            raise ValueError(
                f"bounds is {bounds.tolist()}; it needs ((lower, upper), (lower, upper)), lower < upper"
            )
        if n_points < 2:
            raise ValueError(f"n_points is {n_points}; a grid needs at least 2 points a side")
        x1, x2 = (np.linspace(low, high, n_points) for low, high in bounds)
        points = np.stack(np.meshgrid(x1, x2), axis=-1).reshape(-1, 2)
        values = np.asarray(kernel(points, center[None, :])).reshape(n_points, n_points)
        center_value = float(np.asarray(kernel(center[None, :], center[None, :]))[0, 0])
        name = repr(kernel) if name is None else name
        display = cls(x1, x2, values, center=center, center_value=center_value, name=name)
        return display.plot(kind=kind, ax=ax, **plot_kwargs)

    def plot(self, *, kind="surface", ax=None, **plot_kwargs):
        """Draw the surface.

        Parameters
        ----------
        kind : {"surface", "contour"}, default="surface"
            A surface in space, or filled contours in the plane.
        ax : matplotlib Axes, optional
            Axes to draw into; new ones otherwise.
        **plot_kwargs
            Given to ``plot_surface`` or ``contourf``.

        Returns
        -------
        KernelSurfaceDisplay
            The display itself.

        Raises
        ------
        ValueError
            If ``kind`` or the projection of ``ax`` does not fit.
        """
        if kind not in _KINDS:
            raise ValueError(f"kind is {kind!r}; use one of {', '.join(map(repr, _KINDS))}")
        solid, own = kind == "surface", ax is None
        ax = axes("KernelSurfaceDisplay", ax, projection="3d" if solid else None, figsize=(4.6, 4.2))
        if solid and own:
            ax.set_box_aspect(None, zoom=0.85)  # matplotlib leaves no room for the vertical axis' label
        self.surface_ = self._solid(ax, plot_kwargs) if solid else self._flat(ax, plot_kwargs)
        ax.set_xlabel("$x_1$")
        ax.set_ylabel("$x_2$")
        ax.set_xlim(self.x1[0], self.x1[-1])
        ax.set_ylim(self.x2[0], self.x2[-1])
        if self.name:
            ax.set_title(self.name)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _solid(self, ax, plot_kwargs):
        grid = np.meshgrid(self.x1, self.x2)
        low, high = self.values.min(), max(self.values.max(), self.center_value)
        height = high - low if high > low else 1.0
        floor = low - 0.3 * height
        # matplotlib sorts whole artists by depth, which would hide the centre in its own surface.
        ax.computed_zorder = False
        style = {
            "cmap": "viridis",
            "rcount": 101,
            "ccount": 101,
            "linewidth": 0,
            "antialiased": False,
            "zorder": 2,
        }
        surface = ax.plot_surface(*grid, self.values, **(style | plot_kwargs))
        if high > low:
            ax.contour(
                *grid, self.values, levels=8, zdir="z", offset=floor, cmap="viridis", linewidths=0.8, zorder=1
            )
        ax.plot(*self.center, floor, marker="+", markersize=5, color=INK, zorder=1)
        ax.plot(
            *self.center,
            self.center_value,
            marker="o",
            markersize=5,
            color=INK,
            markeredgecolor="white",
            zorder=3,
        )
        ax.set_zlim(floor, low + 1.02 * height)
        # The space below the surface is the floor's, not a range of values.
        ax.set_zticks([tick for tick in ax.get_zticks() if -0.03 * height <= tick - low <= 1.02 * height])
        # Few and short labels: the two axes' meet at the front corner.
        ax.locator_params("x", nbins=3)
        ax.locator_params("y", nbins=3)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set_zlabel("$k(x, c)$", labelpad=2)
        ax.tick_params(pad=0, labelsize="small")
        ax.view_init(elev=28, azim=-58)
        return surface

    def _flat(self, ax, plot_kwargs):
        style = {"cmap": "viridis", "levels": 20} | plot_kwargs
        surface = ax.contourf(self.x1, self.x2, self.values, **style)
        ax.plot(*self.center, marker="o", markersize=5, markerfacecolor="white", color=INK)
        ax.set_aspect("equal")
        ax.figure.colorbar(surface, ax=ax, label="$k(x, c)$")
        return surface

"""What a classifier makes of the plane: regions, boundaries, margins and support vectors (LN14)."""

import numpy as np
from scipy.ndimage import gaussian_filter

from mercer.plotting import _responses
from mercer.plotting._axes import INK, TEST, TRAIN, axes, pyplot

# Okabe and Ito's palette without black, which is the lines', then grey and two of Tol's dark colours. Each
# class has a marker of its own besides.
COLORS = (
    *(TRAIN, TEST, "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#777777", "#332288", "#882255", "#F0E442"),
)
MARKERS = "os^DvPXp<>"
THIN_MARKERS = "PX"  # crosses, which have less ink at the same size
OUTSIDE = "#999999"
TINT = 0.22  # the share of a class's colour in its region; the rest is white
NAME = "DecisionBoundaryDisplay"


class DecisionBoundaryDisplay:
    """Regions of the predicted classes over the plane, with boundary, margins, points and support vectors.

    Make it by :meth:`from_estimator`.

    Parameters
    ----------
    x1, x2 : ndarray of shape (grid_resolution,)
        The grid's coordinates along each axis.
    regions : ndarray of shape (grid_resolution, grid_resolution)
        ``regions[i, j]`` is the index in ``classes`` of what is predicted at (x1[j], x2[i]).
    classes : ndarray of shape (n_classes,)
        The labels.
    X : ndarray of shape (n, 2)
        The points.
    y : ndarray of shape (n,), optional
        The index in ``classes`` of each point's label.
    decision : ndarray of shape (grid_resolution, grid_resolution), optional
        Decision values of two classes, positive where the second is predicted.
    margin_levels : tuple of float, default=()
        Decision values at which a margin is drawn.
    support_vectors : ndarray of shape (m, 2), optional
        The support vectors.
    on_margin : ndarray of shape (m,) of bool, optional
        Which of them lie on the margin: 0 < α < C.
    one_class : bool, default=False
        Whether the classes are the outside (−1) and the inside (1) of one class.
    feature_names : tuple of two str, optional
        Names of the axes.
    name : str, optional
        The title.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    surface_ : matplotlib QuadContourSet or QuadMesh
        The regions.
    boundary_ : matplotlib QuadContourSet, list of them, or None
        The boundary; for three classes or more a list; None if one class has all of the picture.
    margins_ : matplotlib QuadContourSet or None
        The margins.
    points_ : list of matplotlib PathCollection
        The points, by class.
    rings_ : list of matplotlib PathCollection
        Rings around the support vectors: those on the margin, then those at the bound.

    References
    ----------
    LN14: the margin is where the decision is ±1; a support vector on it has 0 < α < C, one with α = C may lie
    anywhere on its wrong side.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from mercer import SVC
    >>> from mercer.plotting import DecisionBoundaryDisplay
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> svc = SVC(C=10.0, gamma=1.0).fit(X, y)
    >>> display = DecisionBoundaryDisplay.from_estimator(svc, X, y, grid_resolution=50)
    >>> display.margins_.levels
    array([-1.,  1.])
    >>> bool(display.on_margin.sum() < len(svc.support_))
    True
    """

    def __init__(
        self,
        x1,
        x2,
        regions,
        *,
        classes,
        X,
        y=None,
        decision=None,
        margin_levels=(),
        support_vectors=None,
        on_margin=None,
        one_class=False,
        feature_names=None,
        name=None,
    ):
        self.x1, self.x2, self.regions, self.classes, self.X, self.y = x1, x2, regions, classes, X, y
        self.decision, self.margin_levels = decision, margin_levels
        self.support_vectors, self.on_margin = support_vectors, on_margin
        self.one_class, self.feature_names, self.name = one_class, feature_names, name

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y=None,
        *,
        ax=None,
        grid_resolution=200,
        eps=None,
        response_method="auto",
        support_vectors=True,
        name=None,
        colors=None,
        sample_style=None,
    ):
        """Evaluate a fitted classifier over a grid, and draw it.

        Parameters
        ----------
        estimator : estimator
            A fitted classifier or outlier detector of two features; also a pipeline or a search that ends in
            one. Margins and support vectors are drawn if it has ``support_vectors_`` and ``dual_coef_``.
        X : {array-like, sparse matrix, data frame} of shape (n, 2)
            Points to draw, as a rule those of the fit.
        y : array-like of shape (n,), optional
            Their labels; points of one colour otherwise.
        ax : matplotlib Axes, optional
            Axes to draw into; new ones with a legend otherwise.
        grid_resolution : int, default=200
            Grid points along each axis, at least 2.
        eps : float, optional
            How far the picture extends beyond the points, in the unit of ``X``; a tenth of each feature's
            range by default.
        response_method : {"auto", "decision_function", "predict"}, default="auto"
            What the regions are made from. "auto": ``predict``, and for two classes the lines from
            ``decision_function`` where the two agree.
        support_vectors : bool, default=True
            Whether to ring the support vectors.
        name : str, optional
            Title.
        colors : sequence of matplotlib colours, optional
            One for each class.
        sample_style : dict, optional
            Given to ``scatter`` for the points.

        Returns
        -------
        DecisionBoundaryDisplay

        Raises
        ------
        ValueError
            If the estimator is a regressor or was not fitted to two features, if ``X`` has not two columns,
            if ``y`` does not belong to ``X`` or holds a label that is none of the estimator's, or if the grid
            is empty.
        TypeError
            If the estimator has no ``predict``.
        NotFittedError
            If it is not fitted.
        ImportError
            If matplotlib is missing.
        """
        _responses.check_estimator(NAME, estimator, response_method)
        points = _responses.check_points(NAME, X)
        x1, x2 = (_axis_points(column, eps, grid_resolution) for column in points.T)
        grid = np.stack(np.meshgrid(x1, x2), axis=-1).reshape(-1, 2)
        classes, index, decision = _responses.regions(estimator, response_method, X, y, grid)
        shape = (len(x2), len(x1))
        held = {
            "classes": classes,
            "y": None if y is None else _responses.check_labels(NAME, y, len(points), classes),
            "decision": None if decision is None else decision.reshape(shape),
            "feature_names": _responses.feature_names(estimator, X),
            "name": name,
        }
        held |= _responses.machine(estimator, X, points, classes)
        display = cls(x1, x2, index.reshape(shape), X=points, **held)
        return display.plot(ax=ax, support_vectors=support_vectors, colors=colors, sample_style=sample_style)

    def plot(self, *, ax=None, support_vectors=True, colors=None, sample_style=None):
        """Draw regions, lines and points.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw into; new ones with a legend otherwise.
        support_vectors : bool, default=True
            Whether to ring the support vectors.
        colors : sequence of matplotlib colours, optional
            One for each class.
        sample_style : dict, optional
            Given to ``scatter`` for the points.

        Returns
        -------
        DecisionBoundaryDisplay
            The display itself.

        Raises
        ------
        ValueError
            If there are fewer colours than classes, or ``ax`` is not flat.
        ImportError
            If matplotlib is missing.
        """
        own = ax is None
        ax = axes(NAME, ax, figsize=(6.4, 4.2))
        colors = self._colors(colors)
        sample_style = sample_style or {}
        # Fewer pixels for each of many points; smaller than this they are no longer told apart.
        size = max(26 * min(1.0, np.sqrt(300 / len(self.X))), 8)
        self.surface_ = self._regions(ax, colors)
        self.points_ = self._points(ax, colors, size, sample_style)
        self.boundary_, self.margins_ = self._lines(ax)
        self.rings_ = self._rings(ax, np.max(sample_style.get("s", size))) if support_vectors else []
        first, second = self.feature_names or ("$x_1$", "$x_2$")
        ax.set_xlabel(first)
        ax.set_ylabel(second)
        ax.set_xlim(self.x1[0], self.x1[-1])
        ax.set_ylim(self.x2[0], self.x2[-1])
        if self.name:
            ax.set_title(self.name)
        if own:
            # Beside the axes: all of the plane is taken.
            ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), frameon=False, labelspacing=0.7)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _colors(self, colors):
        """One colour (r, g, b) for each class."""
        from matplotlib.colors import to_rgb

        n = len(self.classes)
        if colors is None and self.one_class:
            colors = (OUTSIDE, COLORS[0])
        elif colors is None and n > len(COLORS):
            colors = pyplot(NAME).get_cmap("turbo")(np.linspace(0, 1, n))
        elif colors is None:
            colors = COLORS
        if len(colors) < n:
            raise ValueError(f"colors has {len(colors)} colours for {n} classes; give one for each")
        return [to_rgb(color) for color in colors[:n]]

    def _class_name(self, index):
        if self.one_class:
            return ("outside", "inside")[index]
        return f"class {self.classes[index]}"

    def _regions(self, ax, colors):
        tints = 1 - TINT * (1 - np.array(colors))
        if self.y is None:  # no point tells what the colours mean
            for k, tint in enumerate(tints):
                square = {"marker": "s", "s": 80, "edgecolors": INK, "linewidths": 0.5}
                ax.scatter([], [], color=[tint], label=self._class_name(k), **square)
        if self.decision is not None:
            low, high = min(self.decision.min(), -1.0), max(self.decision.max(), 1.0)
            return ax.contourf(
                self.x1, self.x2, self.decision, levels=[low, 0.0, high], colors=tints, zorder=0
            )
        from matplotlib.colors import ListedColormap

        style = {"cmap": ListedColormap(tints), "vmin": -0.5, "vmax": len(tints) - 0.5, "zorder": 0}
        return ax.pcolormesh(self.x1, self.x2, self.regions, shading="nearest", rasterized=True, **style)

    def _lines(self, ax):
        style = {"colors": INK, "zorder": 2}
        if self.decision is None:
            boundary = self._class_boundaries(ax, style)
            margins = None
        else:
            boundary = self._contour(ax, self.decision, (0.0,), style | {"linewidths": 1.6})
            dashed = style | {"linewidths": 1.0, "linestyles": [(0, (5, 3))]}
            margins = self._contour(ax, self.decision, self.margin_levels, dashed)
        # Contours have no place in a legend; these lines have no points.
        if boundary:
            ax.plot([], [], color=INK, linewidth=1.6, label="boundary")
        if margins is not None:
            ax.plot([], [], color=INK, linewidth=1.0, linestyle=(0, (5, 3)), label=r"margin, $f(x)=\pm 1$")
        return boundary, margins

    def _contour(self, ax, values, levels, style):
        """Contours at those levels that are met; None if none is."""
        met = [level for level in levels if values.min() < level < values.max()]
        return ax.contour(self.x1, self.x2, values, levels=met, **style) if met else None

    def _class_boundaries(self, ax, style):
        # Predictions jump from cell to cell; a blur of about a cell straightens the line they step along.
        shares = np.array([gaussian_filter((self.regions == k) * 1.0, 1.2) for k in range(len(self.classes))])
        lines = []
        for k, share in enumerate(shares):
            lead = share - np.delete(shares, k, axis=0).max(axis=0, initial=0.0)
            lines.append(self._contour(ax, lead, (0.0,), style | {"linewidths": 1.3}))
            if len(shares) == 2:
                return lines[0]
        lines = [line for line in lines if line is not None]
        return lines or None

    def _points(self, ax, colors, size, chosen):
        style = {"s": size, "edgecolors": "white", "linewidths": 0.6, "zorder": 3}
        if self.y is None:
            return [ax.scatter(*self.X.T, **(style | {"color": INK, "label": "points"} | chosen))]
        drawn = []
        for k, color in enumerate(colors):
            marker = MARKERS[k % len(MARKERS)]
            own = {"color": [color], "marker": marker, "label": self._class_name(k)}
            if marker in THIN_MARKERS and "s" not in chosen:
                own["s"] = 1.6 * size
            # Yellow with a white edge would be lost.
            own["edgecolors"] = INK if np.dot(color, (0.2126, 0.7152, 0.0722)) > 0.8 else "white"
            drawn.append(ax.scatter(*self.X[self.y == k].T, **(style | own | chosen)))
        return drawn

    def _rings(self, ax, size):
        if self.support_vectors is None or not len(self.support_vectors):
            return []
        style = {"facecolors": "none", "edgecolors": INK, "zorder": 4}
        if self.on_margin is None:
            groups = [(slice(None), 0.9, "support vector")]
        else:
            inside, at_bound = ("boundary", "outside") if self.one_class else ("margin", "at the bound")
            groups = [
                (self.on_margin, 2.0, f"support vector\non the {inside}"),
                (~self.on_margin, 0.7, f"support vector\n{at_bound}"),
            ]
        drawn = []
        for rows, width, label in groups:
            vectors = self.support_vectors[rows]
            style["label"] = label if len(vectors) else None
            drawn.append(ax.scatter(*vectors.T, s=3.2 * size, linewidths=width, **style))
        return drawn


def _axis_points(column, eps, n_points):
    """The grid along one feature: its range and `eps` to either side."""
    if n_points < 2:
        raise ValueError(f"grid_resolution is {n_points}; a grid needs at least 2 points a side")
    low, high = column.min(), column.max()
    if eps is None:
        eps = 0.1 * (high - low) or 1.0
    low, high = low - eps, high + eps
    if not (eps >= 0 and low < high < np.inf):
        raise ValueError(f"eps is {eps}: the picture would reach from {low} to {high}; use a finite eps > 0")
    return np.linspace(low, high, n_points)

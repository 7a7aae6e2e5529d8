"""The computational graph of a function, with what each mode carries along it (LINMA figures 1.1–1.3)."""

import numpy as np

from mercer.plotting import _layers
from mercer.plotting._axes import INK, TEST, TRAIN, axes

NAME = "ComputationalGraphDisplay"
TANGENT = "#009E73"  # Okabe and Ito's green; the letters r and t tell it from the adjoints' colour, too
COLORS = {"adjoints": TEST, "tangents": TANGENT}
MEANING = {"adjoints": r"adjoint $r = \partial f / \partial s$", "tangents": r"tangent $t = \dot{s}$"}
FONT, LINE, CHARACTER, BOX_GAP, ROW_GAP = 10.0, 0.2, 0.085, 0.75, 0.28  # points, then inches


class ComputationalGraphDisplay:
    """A function's operations from left to right, with the values and tangents or adjoints between them.

    Make it by :meth:`from_function`.

    Parameters
    ----------
    nodes : list of Node
        Each after its parents.
    outputs : list of int
        The nodes that the function returns.
    derivatives : {"adjoints", "tangents"} or None, default="adjoints"
        What was written below the values.
    name : str, optional
        The title.

    Attributes
    ----------
    positions : ndarray of shape (n_nodes, 2)
        Where each node stands, in inches at full size: columns are the longest paths from an input, rows
        ordered by barycentres so that few edges cross.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    boxes_ : list of matplotlib FancyBboxPatch
        One for each node.
    edges_ : list of matplotlib FancyArrowPatch
        Values, from left to right.
    derivative_edges_ : list of matplotlib FancyArrowPatch
        Tangents go with the values, adjoints against them; empty without derivatives.

    References
    ----------
    LINMA figures 1.1 (forward), 1.2 (backward) and 1.3 (the graph of x + x²).
    """

    def __init__(self, nodes, outputs, *, derivatives="adjoints", name=None):
        self.nodes, self.outputs, self.derivatives, self.name = nodes, outputs, derivatives, name
        self.box_height = LINE * max(n.lines() for n in nodes) + 0.14
        columns, rows, routes = _layers.layout([n.parents for n in nodes])
        widths = np.zeros(columns.max() + 1)
        for column, node in zip(columns, nodes, strict=True):
            widths[column] = max(widths[column], CHARACTER * node.characters() + 0.2)
        centres = np.cumsum(widths + BOX_GAP) - widths / 2
        row = self.box_height + ROW_GAP
        self.box_widths = widths[columns]
        self.positions = np.column_stack([centres[columns], rows * row])
        # of a long edge, where it passes each column, and how wide that is
        self._routes = {e: [(centres[c], y * row, widths[c]) for c, y in ps] for e, ps in routes.items()}

    @classmethod
    def from_function(cls, f, *args, derivatives="adjoints", tangents=None, max_nodes=60, name=None, ax=None):
        """Draw the graph of f at a point.

        Parameters
        ----------
        f : callable
            Arrays and numbers to an array or a number, in NumPy.
        *args : arrays or numbers
            The point.
        derivatives : {"adjoints", "tangents"} or None, default="adjoints"
            What to write below the values: adjoints r = ∂f/∂s of reverse mode, for which f's value has to be
            one number, or the tangents t of forward mode.
        tangents : sequence, optional
            The direction, an entry of its argument's shape for each; default: ones for the first argument,
            zeros for the others.
        max_nodes : int, default=60
            More are an error, since nobody could read them.
        name : str, optional
            Title.
        ax : matplotlib Axes, optional
            Axes to draw into; new ones of a fitting size otherwise.

        Returns
        -------
        ComputationalGraphDisplay

        Raises
        ------
        ValueError
            If there are too many nodes, f's value does not depend on its arguments, adjoints are asked for
            and it is not one number, or tangents do not fit.
        ImportError
            If matplotlib is missing.

        Notes
        -----
        Operations that f's value does not depend on are left out. The tape keeps only what a derivative
        needs: an array which nothing but sums have used is shown by its shape.
        """
        from mercer.plotting._operations import Graph  # loads autodiff, which the other displays do without

        if derivatives not in ("adjoints", "tangents", None):
            raise ValueError(
                f'{NAME}: derivatives must be "adjoints", "tangents" or None, got {derivatives!r}'
            )
        graph = Graph(f, args, max_nodes)
        if derivatives == "adjoints":
            written = graph.adjoints()
        elif derivatives == "tangents":
            written = graph.tangents(tangents)
        else:
            written = {}
        nodes, outputs = graph.nodes(written, {"adjoints": "r", "tangents": "t", None: ""}[derivatives])
        return cls(nodes, outputs, derivatives=derivatives, name=name).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw the graph.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw into, in which it is made to fit; new ones of a fitting size otherwise.

        Returns
        -------
        ComputationalGraphDisplay
            The display itself.
        """
        half = np.column_stack([self.box_widths, np.full(len(self.nodes), self.box_height)]) / 2 + 0.08
        low, high = (self.positions - half).min(axis=0), (self.positions + half).max(axis=0)
        for x, y, _ in (p for points in self._routes.values() for p in points):
            low, high = np.minimum(low, (x, y - 0.1)), np.maximum(high, (x, y + 0.1))
        low[1] -= 0.42  # the legend's place
        size = high - low
        ax = axes(NAME, ax, figsize=tuple(np.maximum(size + [0, 0.35 * bool(self.name)], 2.5)))
        ax.set_xlim(low[0], high[0])
        ax.set_ylim(low[1], high[1])
        ax.set_aspect("equal")
        ax.set_axis_off()
        if self.name:
            ax.set_title(self.name, fontsize=FONT + 1)
        extent = ax.get_window_extent()
        inches = np.array([extent.width, extent.height]) / ax.figure.dpi
        self._font = FONT * min(1.0, *(inches / size))
        self.boxes_ = [self._box(ax, i) for i in range(len(self.nodes))]
        self._draw_edges(ax)
        self._legend(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _box(self, ax, i):
        from matplotlib.patches import FancyBboxPatch

        node, (x, y) = self.nodes[i], self.positions[i]
        width = self.box_widths[i]
        corner = (x - width / 2, y - self.box_height / 2)
        given = not node.parents
        box = FancyBboxPatch(
            corner,
            width,
            self.box_height,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor="#F3F3F3" if given else "white",
            edgecolor=INK,
            linewidth=2.0 if i in self.outputs else 1.0,
            zorder=3,
        )
        ax.add_patch(box)
        lines = [
            (f"${node.label}$", INK),
            (node.value, TRAIN),
            (node.derivative, COLORS.get(self.derivatives, INK)),
        ]
        lines = [line for line in lines if line[0]]
        for k, (text, color) in enumerate(lines):
            height = y + LINE * ((len(lines) - 1) / 2 - k)
            style = {"ha": "center", "va": "center_baseline", "fontsize": self._font, "zorder": 4}
            ax.text(x, height, text, color=color, **style)
        return box

    def _draw_edges(self, ax):
        self.edges_, self.derivative_edges_ = [], []
        apart = 0.0 if self.derivatives is None else 0.045
        for i, node in enumerate(self.nodes):
            for parent in dict.fromkeys(node.parents):
                points = [
                    (*self.positions[parent], self.box_widths[parent]),
                    *self._routes.get((parent, i), []),
                    (*self.positions[i], self.box_widths[i]),
                ]
                self.edges_.append(self._edge(ax, points, apart, TRAIN, "-|>", "-"))
                if self.derivatives is not None:
                    arrow = "<|-" if self.derivatives == "adjoints" else "-|>"
                    color = COLORS[self.derivatives]
                    self.derivative_edges_.append(self._edge(ax, points, -apart, color, arrow, (0, (4, 1.5))))

    def _edge(self, ax, points, shift, color, arrow, dashes):
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path

        # From the right of a box to the left of the next, straight past the boxes between them.
        stops = [(x + side * width / 2, y + shift) for x, y, width in points for side in (-1, 1)][1:-1]
        vertices, codes = [stops[0]], [Path.MOVETO]
        for k in range(1, len(stops)):
            a, b = stops[k - 1], stops[k]
            if k % 2 == 0:  # beside a box of another row
                vertices.append(b)
                codes.append(Path.LINETO)
                continue
            middle = (a[0] + b[0]) / 2
            vertices += [(middle, a[1]), (middle, b[1]), b]
            codes += [Path.CURVE4] * 3
        patch = FancyArrowPatch(
            path=Path(vertices, codes),
            arrowstyle=arrow,
            mutation_scale=self._font,
            color=color,
            linewidth=1.1,
            linestyle="-",
            shrinkA=0,
            shrinkB=0,
            zorder=2,
        )
        patch.set_linestyle(dashes)
        ax.add_patch(patch)
        return patch

    def _legend(self, ax):
        from matplotlib.lines import Line2D

        entries = [("value $s$", TRAIN, "-")]
        if self.derivatives is not None:
            entries.append((MEANING[self.derivatives], COLORS[self.derivatives], (0, (4, 1.5))))
        handles = [Line2D([], [], color=c, linestyle=d, label=text) for text, c, d in entries]
        legend = ax.legend(
            handles=handles,
            loc="lower center",
            ncols=len(handles),
            frameon=False,
            fontsize=self._font,
            borderaxespad=0.1,
        )
        for text, handle in zip(legend.get_texts(), handles, strict=True):
            text.set_color(handle.get_color())

"""The quick start's pictures: kernels as similarities, and errors against α."""

import numpy as np

from mercer.kernels import RBF, Fourier, Polynomial
from mercer.plotting import ErrorPathDisplay, KernelSurfaceDisplay

DPI = 160


def similarity(folder):
    """MLR7's figure 7.2: what three kernels call similar to the point [0.5, 0.5]."""
    from matplotlib.figure import Figure

    kernels = {
        "Polynomial, $D = 2$": Polynomial(2, include_bias=False),
        "Fourier, $D = 3$": Fourier(3, include_bias=False),
        r"RBF, $\gamma = 10$": RBF(gamma=10.0),
    }
    figure = Figure(figsize=(12, 4.2))
    panels = figure.subplots(1, 3, subplot_kw={"projection": "3d"})
    figure.subplots_adjust(left=0.0, right=0.95, bottom=0.04, top=0.93, wspace=0.16)
    for panel, (name, kernel) in zip(panels, kernels.items(), strict=True):
        KernelSurfaceDisplay.from_kernel(kernel, name=name, ax=panel)
    return _save(figure, folder / "kernels_around_a_point.png")


def errors(data, alphas, paths, folder):
    """One panel a kernel with its error against α, and a last one with the lowest test error of each."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(12, 6.8), layout="constrained")
    *panels, last = figure.subplots(2, 3, sharey=True).flat
    for i, (panel, (name, path)) in enumerate(zip(panels, paths.items(), strict=True)):
        display = ErrorPathDisplay.from_errors(
            alphas, path.train, path.test, name=name, error_name=data.error_name, ax=panel
        )
        if i % 3:
            panel.set_ylabel("")
        if i < 2:
            panel.set_xlabel("")
    handles = [display.train_line_, display.test_line_, display.best_]
    handles.append(Patch(color="#777777", alpha=0.3, label="± one standard deviation over the folds"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    last.remove()
    _best(figure.add_subplot(2, 3, 6), data, paths, display)
    figure.suptitle(f"{data.name}: {data.describe()}", fontsize="large")
    return _save(figure, folder / f"errors_{data.name.replace(' ', '_')}.png")


def _best(panel, data, paths, display):
    """The lowest mean test error of each kernel, with its spread."""
    best = [path.test[path.best] for path in paths.values()]
    rows = np.arange(len(best))
    panel.errorbar(
        [errors.mean() for errors in best],
        rows,
        xerr=[errors.std() for errors in best],
        linestyle="none",
        marker="*",
        markersize=9,
        capsize=3,
        color="#222222",
        ecolor=display.test_line_.get_color(),
    )
    panel.set_yticks([])
    panel.set_ylim(len(best) - 0.5, -0.6)
    for row, name in enumerate(paths):
        panel.text(0.02, row - 0.25, name, transform=panel.get_yaxis_transform(), fontsize="small")
    panel.set_xlim(left=0)
    panel.set_xlabel(data.error_name)
    panel.set_title("lowest mean test error")
    panel.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _save(figure, path):
    figure.savefig(path, dpi=DPI)
    return path

"""The one place that imports matplotlib, and the look that all displays share."""

# Okabe and Ito's palette: told apart by readers with any of the common colour deficiencies, and in grey.
TRAIN, TEST, INK = "#0072B2", "#D55E00", "#222222"


def pyplot(display):
    """``matplotlib.pyplot``, or an ImportError that names the extra which brings it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        message = f'{display} draws with matplotlib, which is missing; pip install "mercer[plot]"'
        raise ImportError(message) from error
    return plt


def axes(display, ax=None, *, projection=None, figsize=None):
    """The axes to draw into: ``ax`` checked against the projection, or those of a new figure."""
    plt = pyplot(display)
    if ax is None:
        _, ax = plt.subplots(figsize=figsize, layout="compressed", subplot_kw={"projection": projection})
    elif (projection == "3d") != (getattr(ax, "name", None) == "3d"):
        wanted = 'plt.subplots(subplot_kw={"projection": "3d"})' if projection == "3d" else "plt.subplots()"
        raise ValueError(f"{display}: ax has the projection {ax.name!r}; make it by {wanted}")
    return ax

"""The error against the regularisation, with its spread over the folds (MLR7 7.3.2–7.3.3)."""

import numpy as np

from mercer.plotting._axes import INK, TEST, TRAIN, axes


class ErrorPathDisplay:
    """Training and test error over a grid of α: means, spread over the folds, and the best α.

    Make it by :meth:`from_errors`.

    Parameters
    ----------
    alphas : ndarray of shape (n_alphas,)
        Regularisation strengths, increasing.
    train_errors, test_errors : ndarray of shape (n_alphas, n_folds)
        Errors of each fold.
    name : str, optional
        The title.
    error_name : str
        What the errors are, with their unit.

    Attributes
    ----------
    best_index : int
        Where the mean test error is lowest (the first if several).
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    train_line_, test_line_, best_ : matplotlib Line2D
    train_band_, test_band_ : matplotlib PolyCollection
        One standard deviation over the folds to either side.

    References
    ----------
    MLR7 (7.34), (7.39): the errors of a fold; α* is the one of the lowest average test error.
    """

    def __init__(self, alphas, train_errors, test_errors, *, name=None, error_name="error"):
        self.alphas, self.train_errors, self.test_errors = alphas, train_errors, test_errors
        self.name, self.error_name = name, error_name
        self.best_index = int(np.argmin(test_errors.mean(axis=1)))

    @classmethod
    def from_errors(
        cls, alphas, train_errors, test_errors, *, name=None, error_name="error", ax=None, **plot_kwargs
    ):
        """Draw the errors of a cross-validation.

        Parameters
        ----------
        alphas : array-like of shape (n_alphas,)
            Regularisation strengths ≥ 0, in any order.
        train_errors, test_errors : array-like of shape (n_alphas, n_folds)
            Errors of each fold, in the order of ``alphas``.
        name : str, optional
            Title.
        error_name : str
            Label of the vertical axis.
        ax : matplotlib Axes, optional
            Axes to draw into; new ones with a legend otherwise.
        **plot_kwargs
            Given to both of the lines.

        Returns
        -------
        ErrorPathDisplay

        Raises
        ------
        ValueError
            If the shapes do not belong together, or an α is negative or not finite.
        ImportError
            If matplotlib is missing.
        """
        alphas = np.asarray(alphas, dtype=np.float64)
        if alphas.ndim != 1 or alphas.size == 0:
            raise ValueError(f"alphas has shape {alphas.shape}; it needs to be a vector of at least one α")
        wrong = np.flatnonzero(~(np.isfinite(alphas) & (alphas >= 0)))
        if wrong.size:
            raise ValueError(f"alphas[{wrong[0]}] is {alphas[wrong[0]]}; it needs to be finite and ≥ 0")
        order = np.argsort(alphas, kind="stable")
        errors = []
        for key, given in (("train_errors", train_errors), ("test_errors", test_errors)):
            given = np.asarray(given, dtype=np.float64)
            if given.ndim != 2 or given.shape[0] != alphas.size or given.shape[1] == 0:
                raise ValueError(f"{key} has shape {given.shape}; it needs ({alphas.size}, n_folds)")
            errors.append(given[order])
        display = cls(alphas[order], *errors, name=name, error_name=error_name)
        return display.plot(ax=ax, **plot_kwargs)

    def plot(self, *, ax=None, **plot_kwargs):
        """Draw the errors.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw into; new ones with a legend otherwise.
        **plot_kwargs
            Given to both of the lines.

        Returns
        -------
        ErrorPathDisplay
            The display itself.
        """
        own = ax is None
        ax = axes("ErrorPathDisplay", ax, figsize=(5.2, 3.6))
        self.train_line_, self.train_band_ = self._line(
            ax, self.train_errors, "training", TRAIN, "s", "--", plot_kwargs
        )
        self.test_line_, self.test_band_ = self._line(
            ax, self.test_errors, "test", TEST, "o", "-", plot_kwargs
        )
        best = self.alphas[self.best_index], self.test_errors[self.best_index].mean()
        (self.best_,) = ax.plot(
            *best,
            linestyle="none",
            marker="*",
            markersize=13,
            color=INK,
            markeredgecolor="white",
            zorder=5,
            label=r"lowest mean test error",
        )
        self._scale(ax)
        ax.set_xlabel(r"regularisation $\alpha$")
        ax.set_ylabel(self.error_name)
        ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        if self.name:
            ax.set_title(self.name)
        if own:
            ax.legend(frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _line(self, ax, errors, label, color, marker, linestyle, plot_kwargs):
        mean, sd = errors.mean(axis=1), errors.std(axis=1)
        style = {"color": color, "marker": marker, "markersize": 4, "linestyle": linestyle, "linewidth": 1.6}
        (line,) = ax.plot(self.alphas, mean, label=label, **(style | plot_kwargs))
        # Errors are not negative: neither is their band.
        band = ax.fill_between(
            self.alphas, np.maximum(mean - sd, 0), mean + sd, color=line.get_color(), alpha=0.18, linewidth=0
        )
        return line, band

    def _scale(self, ax):
        positive = self.alphas[self.alphas > 0]
        if positive.size == 0:
            return
        if positive.size < self.alphas.size:
            ax.set_xscale("symlog", linthresh=positive.min())
        else:
            ax.set_xscale("log")
        if positive.max() > 1e3 * positive.min():
            ax.xaxis.minorticks_off()

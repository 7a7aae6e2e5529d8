"""The error against the regularisation, with its spread over the folds (MLR7 7.3.2–7.3.3)."""

import numpy as np
from sklearn.base import is_classifier

from mercer.model_selection._alphas import cells_along
from mercer.model_selection._results import last_step
from mercer.plotting._axes import INK, TEST, TRAIN, axes


class ErrorPathDisplay:
    """Training and test error over a grid of α: means, spread over the folds, and the best α.

    Make it by :meth:`from_estimator` or :meth:`from_errors`.

    Parameters
    ----------
    alphas : ndarray of shape (n_alphas,)
        Regularisation strengths, increasing.
    train_errors : ndarray of shape (n_alphas, n_folds) or None
        Errors of each fold; None if they are not known.
    test_errors : ndarray of shape (n_alphas, n_folds)
    name : str, optional
        The title.
    error_name : str, default="error"
        What the errors are, with their unit.
    alpha_1se : float or None, default=None
        The α chosen by the one-standard-error rule, to be marked.

    Attributes
    ----------
    best_index : int
        Where the mean test error is lowest (the first if several).
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    train_line_, test_line_, best_, one_se_ : matplotlib Line2D
        None for what there is not.
    train_band_, test_band_ : matplotlib PolyCollection
        One standard deviation over the folds to either side.

    References
    ----------
    MLR7 (7.34), (7.39): the errors of a fold; α* is the one of the lowest average test error.
    """

    def __init__(self, alphas, train_errors, test_errors, *, name=None, error_name="error", alpha_1se=None):
        self.alphas, self.train_errors, self.test_errors = alphas, train_errors, test_errors
        self.name, self.error_name, self.alpha_1se = name, error_name, alpha_1se
        mean = test_errors.mean(axis=1)
        self.best_index = int(np.argmin(np.where(np.isnan(mean), np.inf, mean)))

    @classmethod
    def from_estimator(cls, search, *, name=None, error_name=None, ax=None, **plot_kwargs):
        """Draw what a `PathCV` found along α, its other parameters being those of the best cell.

        Parameters
        ----------
        search : PathCV
            Fitted, with α among what it searched.
        name : str, optional
            Title.
        error_name : str, optional
            Label of the vertical axis; by default what the errors are.
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
            If α was not searched.
        ImportError
            If matplotlib is missing.
        """
        if not hasattr(search, "best_alpha_"):
            raise ValueError(
                f"{type(search).__name__} has no best_alpha_: it is not fitted, or did not search alpha"
            )
        # of a pipeline the last step's; a kernel may have an alpha of its own
        key, cells = f"{last_step(search.estimator)[1]}alpha", search.cv_results_["params"]
        rows = cells_along(cells, search.best_params_, key)
        if not rows:
            raise ValueError(
                f"the best alpha is one for each target, {search.best_alpha_!r}: no line to draw"
            )
        test = search.test_error_[rows]
        if test.shape[1] != search.n_splits_:  # of pooled rows: their spread is not that of their mean
            test = np.average(test, axis=1, weights=search._error_weights)[:, None]
        train = search.train_error_[rows] if hasattr(search, "train_error_") else None
        if error_name is None:
            error_name = "share of wrong labels" if is_classifier(search) else "mean squared error"
        return cls.from_errors(
            [cells[i][key] for i in rows], train, test, name=name, error_name=error_name,
            alpha_1se=getattr(search, "alpha_1se_", None), ax=ax, **plot_kwargs,
        )  # fmt: skip

    @classmethod
    def from_errors(
        cls, alphas, train_errors, test_errors, *, name=None, error_name="error", alpha_1se=None, ax=None,
        **plot_kwargs,
    ):  # fmt: skip
        """Draw the errors of a cross-validation.

        Parameters
        ----------
        alphas : array-like of shape (n_alphas,)
            Regularisation strengths ≥ 0, in any order.
        train_errors : array-like of shape (n_alphas, n_folds) or None
            Errors of each fold, in the order of ``alphas``.
        test_errors : array-like of shape (n_alphas, n_folds)
        name : str, optional
            Title.
        error_name : str, default="error"
            Label of the vertical axis.
        alpha_1se : float, optional
            An α to mark, chosen by the one-standard-error rule.
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
            if given is None and key == "train_errors":
                errors.append(None)
                continue
            given = np.asarray(given, dtype=np.float64)
            if given.ndim != 2 or given.shape[0] != alphas.size or given.shape[1] == 0:
                raise ValueError(f"{key} has shape {given.shape}; it needs ({alphas.size}, n_folds)")
            errors.append(given[order])
        display = cls(alphas[order], *errors, name=name, error_name=error_name, alpha_1se=alpha_1se)
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
        self.train_line_ = self.train_band_ = self.one_se_ = None
        if self.train_errors is not None:
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
        if self.alpha_1se is not None:
            label = "within one standard error"
            self.one_se_ = ax.axvline(self.alpha_1se, color=INK, linestyle=":", linewidth=1.2, label=label)
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

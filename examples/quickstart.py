"""Kernel ridge machines on real data: several kernels, a path of α, five folds, and scikit-learn beside it.

    python examples/quickstart.py                                 # digits, diabetes and breast cancer
    python examples/quickstart.py --data FILE.csv --target COLUMN # your own data
    python examples/quickstart.py --data FILE.libsvm

Each row of the table is one kernel on one data set: every α of the grid is fitted on four fifths of the rows
and tested on the last fifth, five times over (MLR7 7.3.2–7.3.3). At the best α, scikit-learn then fits the
same machines on the same folds, the two packages in turn. Pictures go to ``pictures/`` (or ``--output``).
"""

import argparse
import pathlib
import sys
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.kernel_ridge import KernelRidge as ScikitRidge

import peers
import pictures
import real_data
from mercer import KernelRidge
from mercer.kernels import RBF, Fourier, Linear, Polynomial

ALPHAS = np.logspace(-2, 3, 6)
N_FOLDS = 5


@dataclass(frozen=True)
class Model:
    """A kernel, and how scikit-learn gets the same ridge machine."""

    name: str
    kernel: object
    peer: object  # alpha -> estimator
    own_gram: bool = False  # whether the peer's kernel matrix is NumPy's

    def ridge(self, alpha):
        """The machine, unfitted; scikit-learn's has no intercept, so neither has this one."""
        return KernelRidge(alpha=alpha, kernel=self.kernel, fit_intercept=False)


def models(n_features):
    """The kernels to try, for standardised inputs."""
    gamma = 1.0 / n_features
    # The period at which this Fourier kernel is as wide around zero as exp(−γδ²): both fall as 1 − γδ².
    degree = 2
    period = 2 * np.pi * np.sqrt(degree * (degree + 1) / (6 * gamma))
    return [
        Model("Linear", Linear(), partial(ScikitRidge, kernel="linear")),
        Model(
            "Polynomial(3)",
            Polynomial(3, gamma=gamma),
            partial(ScikitRidge, kernel="poly", degree=3, gamma=gamma),
        ),
        Model("RBF", RBF(gamma=gamma), partial(ScikitRidge, kernel="rbf", gamma=gamma)),
        Model(
            "Fourier(2)",
            Fourier(degree, period=period).normalize(),
            partial(peers.PrecomputedRidge, gram=partial(peers.fourier_gram, degree=degree, period=period)),
            True,
        ),
        Model(
            "0.5*RBF + Polynomial(3)",
            0.5 * RBF(gamma=gamma) + Polynomial(3, gamma=gamma),
            partial(peers.PrecomputedRidge, gram=partial(peers.sum_gram, degree=3, gamma=gamma)),
            True,
        ),
    ]


@dataclass
class Path:
    """What cross-validation of one kernel found: errors (n_alphas, n_folds), and the seconds that it took."""

    train: np.ndarray
    test: np.ndarray
    seconds: float

    @property
    def best(self):
        """The index of the α of the lowest mean test error."""
        return int(np.argmin(self.test.mean(axis=1)))


def fit_and_predict(ridge, fold):
    """Predictions on the training and on the test part, and the seconds of the fit and of both."""
    mean = fold.T_train.mean(axis=0)
    start = time.perf_counter()
    ridge.fit(fold.X_train, fold.T_train - mean)
    train, test = ridge.predict(fold.X_train), ridge.predict(fold.X_test)
    return train + mean, test + mean, time.perf_counter() - start


def cross_validate(model, data, folds, tick):
    """The training and the test error of each fold for each α."""
    start = time.perf_counter()
    errors = np.empty((2, len(ALPHAS), len(folds)))
    for j, fold in enumerate(folds):
        for i, alpha in enumerate(ALPHAS):
            train, test, _ = fit_and_predict(model.ridge(alpha), fold)
            errors[:, i, j] = data.error(fold.T_train, train), data.error(fold.T_test, test)
            tick()
    return Path(*errors, time.perf_counter() - start)


def side_by_side(model, alpha, folds, tick):
    """Median seconds of both packages over the folds, and the largest gap between their predictions."""
    seconds, gap = [], 0.0
    for fold in folds:
        _, own, own_seconds = fit_and_predict(model.ridge(alpha), fold)
        _, peer, peer_seconds = fit_and_predict(model.peer(alpha), fold)
        seconds.append((own_seconds, peer_seconds))
        gap = max(gap, np.abs(own - peer).max() / np.abs(peer).max())
        tick()
    return *np.median(seconds, axis=0), gap


NOTES = """
errors  mean ± sd over {n_folds} folds: the share of wrong labels, or squared error / variance of target
path    the whole cross-validation, {n_alphas} values of α × {n_folds} folds
mercer, scikit-learn  one fit and two predictions (training and test part) at the best α, median of the folds
†       scikit-learn lacks this kernel: NumPy computes its matrix
The predictions of the two packages differ by at most {gap:.0e} of the largest."""
HEAD = ("kernel", "best α", "training error", "test error", "path", "mercer", "scikit-learn", "ratio")
WIDTHS = (25, 7, 15, 15, 8, 9, 13, 6)


def line(cells):
    """One line of the table: names to the left, numbers to the right."""
    name, *numbers = (f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    return "  ".join([f"{name.strip():<{WIDTHS[0]}}", *numbers])


def row(model, path, own, peer):
    """The table's row of one kernel."""
    best = path.train[path.best], path.test[path.best]
    spread = [f"{errors.mean():.4f} ± {errors.std():.4f}" for errors in best]
    alpha = np.format_float_positional(ALPHAS[path.best], precision=3, fractional=False, trim="-")
    mark = "†" if model.own_gram else " "
    times = [f"{path.seconds:.2f} s", f"{1e3 * own:.1f} ms", f"{1e3 * peer:.1f} ms{mark}"]
    return line([model.name, alpha, *spread, *times, f"{peer / own:.1f}×"])


class Progress:
    """A tqdm bar over all fits, or where tqdm is missing a line for each kernel."""

    def __init__(self, total):
        try:
            from tqdm import tqdm

            self.bar = tqdm(total=total, unit="fit", file=sys.stderr, leave=False, dynamic_ncols=True)
        except ImportError:
            self.bar = None

    def doing(self, what):
        """Say what runs now."""
        if self.bar is None:
            print(f"  {what} …", file=sys.stderr)
        else:
            self.bar.set_description(what)

    def tick(self):
        """Count one fit."""
        if self.bar is not None:
            self.bar.update()

    def write(self, text):
        """Print without breaking the bar."""
        if self.bar is None:
            print(text)
        else:
            self.bar.write(text, file=sys.stdout)

    def close(self):
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()


def run(data_sets):
    """Cross-validate each kernel on each data set, print the table; the paths by data set and kernel."""
    work = [(data, data.folds(N_FOLDS)) for data in data_sets]
    todo = [(data, folds, models(folds[0].X_train.shape[1])) for data, folds in work]
    progress = Progress(sum(len(kernels) for *_, kernels in todo) * N_FOLDS * (len(ALPHAS) + 1))
    paths, gaps = {}, []
    progress.write(line(HEAD))
    for data, folds, kernels in todo:
        progress.write(f"── {data.name}: {data.describe()} ".ljust(sum(WIDTHS) + 2 * len(WIDTHS) - 2, "─"))
        paths[data.name] = {}
        for model in kernels:
            progress.doing(f"{data.name}, {model.name}")
            path = cross_validate(model, data, folds, progress.tick)
            own, peer, gap = side_by_side(model, ALPHAS[path.best], folds, progress.tick)
            paths[data.name][model.name] = path
            gaps.append(gap)
            progress.write(row(model, path, own, peer))
    progress.close()
    print(NOTES.format(n_folds=N_FOLDS, n_alphas=len(ALPHAS), gap=max(gaps)))
    return paths


def arguments(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", metavar="FILE", help="a CSV or LIBSVM file to use instead")
    parser.add_argument("--target", metavar="COLUMN", help="the CSV column to predict: name, or index from 0")
    parser.add_argument(
        "--task", choices=("classification", "regression"), help="guessed from the target if not given"
    )
    parser.add_argument(
        "--rows", type=int, default=2000, metavar="N", help="use N random rows of a larger file"
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("pictures"),
        metavar="FOLDER",
        help="for the pictures",
    )
    given = parser.parse_args(argv)
    if given.data is None and (given.target or given.task):
        parser.error("--target and --task belong to a file of your own: name it by --data")
    if given.rows < 10:
        parser.error(f"--rows {given.rows}: five folds need at least 10 rows")
    return parser, given


def main(argv=None):
    """Run the example."""
    parser, given = arguments(argv)
    try:
        data_sets = real_data.bundled()
        if given.data is not None:
            data_sets = [real_data.from_file(given.data, given.target, task=given.task, max_rows=given.rows)]
        given.output.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    start = time.perf_counter()
    paths = run(data_sets)
    try:
        written = [pictures.similarity(given.output)]
        written += [pictures.errors(data, ALPHAS, paths[data.name], given.output) for data in data_sets]
    except ImportError as error:
        print(f"\nNo pictures: {error}")
        return
    print(f"\n{time.perf_counter() - start:.0f} s. Pictures:", *written, sep="\n  ")


if __name__ == "__main__":
    main()

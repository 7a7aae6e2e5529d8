"""The whole regularisation path of classifiers over folds: softmax probabilities beside an SVM's votes.

    python examples/paths.py [--output FOLDER]

Searches α of ``KernelLogisticRegression`` (multiclass softmax) and C of ``SVC`` (one-against-one) over five
folds of scikit-learn's digits with ``PathCV``, compares both on held-out digits, and draws the errors along
the paths to ``pictures/``.
"""

import argparse
import pathlib
import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from mercer import SVC, KernelLogisticRegression, PathCV

GAMMA = 0.1
ALPHAS = np.logspace(-4, 1, 11)
CS = np.logspace(-1, 4, 16)


def searched(search, X, y):
    """The seconds that a search takes, and the search."""
    start = time.perf_counter()
    search.fit(X, y)
    return time.perf_counter() - start, search


def report(name, seconds, search, X, y):
    """A line about what was found, with accuracy and log-loss of rows that no fold has seen."""
    chosen = ", ".join(f"{key}={value:.2g}" for key, value in search.best_params_.items())
    line = f"{name:<24} {seconds:6.2f} s  {chosen:<14} cross-validated {search.best_score_:.4f}"
    line += f", new digits {search.score(X, y):.4f}"
    if hasattr(search, "predict_proba"):
        line += f", their log-loss {log_loss(y, search.predict_proba(X)):.4f}"
    print(line)


def draw(softmax, machine, folder):
    """Both paths, the machine's against 1/(2C), which stands where α does."""
    import matplotlib.pyplot as plt

    from mercer.plotting import ErrorPathDisplay

    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4), sharey=True, layout="constrained")
    share = "share of wrong labels"
    ErrorPathDisplay.from_estimator(softmax, name="multiclass softmax", error_name=share, ax=axes[0])
    ErrorPathDisplay.from_errors(
        1 / (2 * CS),
        machine.train_error_,
        machine.test_error_,
        name="one-against-one SVM",
        error_name="",
        ax=axes[1],
    )
    axes[1].set_xlabel("1 / (2C)")
    axes[0].legend(frameon=False)
    path = folder / "paths.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def main(argv=None):
    """Run the example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=pathlib.Path, default=pathlib.Path("pictures"), metavar="FOLDER", help="for pictures"
    )
    given = parser.parse_args(argv)
    X, y = load_digits(return_X_y=True)
    X, X_new, y, y_new = train_test_split(X / 16, y, test_size=0.25, random_state=0, stratify=y)
    print(f"\ndigits: {len(ALPHAS)} α, {len(CS)} C × 5 folds of {len(y)} rows, and the fit at the best")
    softmax = PathCV(KernelLogisticRegression(gamma=GAMMA), alphas=ALPHAS)
    machine = PathCV(SVC(gamma=GAMMA), Cs=CS, return_train_score=True)
    for name, search in (("multiclass softmax", softmax), ("one-against-one SVM", machine)):
        seconds, _ = searched(search, X, y)
        report(name, seconds, search, X_new, y_new)
    try:
        given.output.mkdir(parents=True, exist_ok=True)
        print("Picture:", draw(softmax, machine, given.output))
    except ImportError as error:
        print(f"No picture: {error}")


if __name__ == "__main__":
    main()

"""Support vector machines beside scikit-learn's: the same code, the same labels, a fraction of the time.

    python examples/machines.py [--output FOLDER]

Fits both packages' ``SVC`` to scikit-learn's digits and breast-cancer data, searches C and γ over folds with
``PathCV`` beside ``GridSearchCV``, and draws the boundaries of a few kernels to ``pictures/``.
"""

import argparse
import pathlib
import statistics
import time

import numpy as np
import sklearn.svm
from sklearn.datasets import load_breast_cancer, load_digits, make_moons
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from mercer import SVC, PathCV
from mercer.kernels import RBF, Fourier, Linear

KERNELS = {
    "Linear()": Linear(),
    "RBF(gamma=2)": RBF(gamma=2.0),
    "Linear() + 0.5 * Fourier(1, period=4)": Linear() + 0.5 * Fourier(1, period=4.0),
}


def seconds(call, repeats=5):
    """Median seconds of a call, and what it returned."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken), result


def side_by_side(name, X, y):
    """Fit and predict with both packages, and print a line of the table."""
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X_train)
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    ours, theirs = SVC(C=10.0), sklearn.svm.SVC(C=10.0, cache_size=1000)
    fit, peer_fit = seconds(lambda: ours.fit(X_train, y_train)), seconds(lambda: theirs.fit(X_train, y_train))
    predict, peer_predict = seconds(lambda: ours.predict(X_test)), seconds(lambda: theirs.predict(X_test))
    print(
        f"{name:<16} fit {1e3 * fit[0]:7.1f} ms, scikit-learn {1e3 * peer_fit[0]:7.1f}; "
        f"predict {1e3 * predict[0]:6.1f} ms, {1e3 * peer_predict[0]:6.1f}; "
        f"accuracy {np.mean(predict[1] == y_test):.3f}, {np.mean(peer_predict[1] == y_test):.3f}"
    )


def search(X, y):
    """Search C and γ over folds with both packages."""
    X = StandardScaler().fit_transform(X)
    Cs, gammas = np.logspace(-1, 3, 8), np.logspace(-4, 0, 8)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    ours = seconds(lambda: PathCV(SVC(), Cs=Cs, gammas=gammas, cv=folds).fit(X, y), 1)
    grid = GridSearchCV(sklearn.svm.SVC(cache_size=1000), {"C": Cs, "gamma": gammas}, cv=folds)
    theirs = seconds(lambda: grid.fit(X, y), 1)
    print(f"\n{len(Cs) * len(gammas)} cells × 5 folds of {len(y)} rows:")
    for name, (taken, found) in (("PathCV", ours), ("GridSearchCV", theirs)):
        C, gamma = found.best_params_["C"], found.best_params_["gamma"]
        print(
            f"{name:<16} {taken:.2f} s; best accuracy {found.best_score_:.4f} at C={C:.3g}, gamma={gamma:.3g}"
        )


def draw(folder):
    """The boundaries of a few kernels on two moons."""
    import matplotlib.pyplot as plt

    from mercer.plotting import DecisionBoundaryDisplay

    X, y = make_moons(200, noise=0.2, random_state=0)
    figure, axes = plt.subplots(1, len(KERNELS), figsize=(13, 4.6), layout="constrained")
    for panel, (name, kernel) in zip(axes, KERNELS.items(), strict=True):
        DecisionBoundaryDisplay.from_estimator(SVC(C=10.0, kernel=kernel).fit(X, y), X, y, ax=panel)
        panel.set_title(name)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    path = folder / "machines.png"
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
    for name, load in (("digits", load_digits), ("breast cancer", load_breast_cancer)):
        side_by_side(name, *load(return_X_y=True))
    search(*load_breast_cancer(return_X_y=True))
    try:
        given.output.mkdir(parents=True, exist_ok=True)
        print("Picture:", draw(given.output))
    except ImportError as error:
        print(f"No picture: {error}")


if __name__ == "__main__":
    main()

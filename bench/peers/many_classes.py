"""Machines of many classes with few rows each beside scikit-learn's (LIBSVM).

    python -m bench.peers.many_classes [--quick] [--repeats N]

Classes are normal clouds in 20 dimensions, of deviation 1 around centres of deviation 1.5; RBF, γ = 1/20,
C = 10, one against one. As many rows are predicted as were fitted. Fits "with probability" are with Platt's
sigmoids; a grid is 4 C × 2 γ × 3 folds, beside ``GridSearchCV`` on two processes.
"""

import argparse
import statistics
import time
import warnings

import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC as LibSVC

from mercer import SVC, PathCV, show_versions

from . import _timing

GAMMA, C = 0.05, 10.0
SIZES = ((20, 400), (26, 2000), (100, 400), (100, 1000), (300, 1200), (300, 3000), (1000, 5000))
# Larger ones take LIBSVM minutes.
PROBABILITIES_UP_TO, GRIDS_UP_TO, LONG = 1000, 2000, 4000
GRID = {"C": [0.1, 1.0, 10.0, 100.0], "gamma": [0.01, 0.05]}


def clouds(k, n):
    """Samples, labels, and as many further samples."""
    rng = np.random.default_rng(0)
    centres, y = 1.5 * rng.normal(size=(k, 20)), np.arange(n) % k
    return centres[y] + rng.normal(size=(n, 20)), y, centres[y] + rng.normal(size=(n, 20))


def beside(repeats, ours, theirs):
    """Medians of seconds, and what the last calls returned."""
    seconds, returned = ([], []), [None, None]
    for _ in range(repeats):
        for which, call in enumerate((ours, theirs)):
            time.sleep(_timing.PAUSE)
            begin = time.perf_counter()
            returned[which] = call()
            seconds[which].append(time.perf_counter() - begin)
    return *(statistics.median(each) for each in seconds), *returned


def cells(mine, theirs):
    """Two times and their ratio."""
    return [f"{1e3 * mine:.1f}", f"{1e3 * theirs:.1f}", f"{theirs / mine:.1f}×"]


def machines(problem, repeats, *, probability):
    """Cells of fits and predictions, and the part of labels that are equal."""
    X, y, Z = problem
    own, peer = (
        new(C=C, gamma=GAMMA, cache_size=2000, probability=probability, break_ties=False)
        for new in (SVC, LibSVC)
    )
    fits = beside(repeats, lambda: own.fit(X, y), lambda: peer.fit(X, y))
    told = [model.predict_proba if probability else model.predict for model in (own, peer)]
    *took, mine, theirs = beside(repeats, lambda: told[0](Z), lambda: told[1](Z))
    return [*cells(*fits[:2]), *cells(*took)], np.mean(mine == theirs)


def grids(problem, repeats):
    """Cells of searches."""
    ours = PathCV(SVC(), Cs=GRID["C"], gammas=GRID["gamma"], cv=3, refit=False)
    theirs = GridSearchCV(LibSVC(cache_size=2000), GRID, cv=3, refit=False, n_jobs=2)
    return cells(*beside(repeats, lambda: ours.fit(*problem[:2]), lambda: theirs.fit(*problem[:2]))[:2])


def measure(k, n, repeats):
    """One line of the table."""
    problem = clouds(k, n)
    row, equal = machines(problem, repeats, probability=False)
    few = n <= PROBABILITIES_UP_TO
    row += machines(problem, repeats, probability=True)[0] if few else ["–"] * 6
    row += grids(problem, repeats) if n <= GRIDS_UP_TO else ["–"] * 3
    return [f"{k} classes, {n} rows", *row, f"{equal:.4f}"]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the smallest, once: a check that it runs")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    show_versions()
    warnings.simplefilter("ignore", FutureWarning)  # scikit-learn's about its probability=True
    sizes = SIZES[:1] if given.quick else SIZES
    rows = [measure(k, n, 1 if given.quick or n > LONG else given.repeats) for k, n in sizes]
    print(f"\nms, medians of {given.repeats} interleaved repeats (of the largest one)")
    columns = ("fit", "predict", "fit with probability", "predict_proba", "grid")
    heads = [head for column in columns for head in (column, "sklearn", "ratio")]
    _timing.table(["", *heads, "equal labels"], rows)


if __name__ == "__main__":
    main()

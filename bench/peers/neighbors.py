"""Neighbours in an RBF kernel's feature space beside scikit-learn's brute force on Euclidean distance.

    python -m bench.peers.neighbors [--quick] [--repeats N]

All rows of each set are searched, the training rows being among them, with k = 5; inputs are standardised
(mnist10k: bytes over 255). Both sides get float64 rows and two threads, and return distances and indices.
"same" is the share of neighbours that are the same rows (equal distances may come in any order from
scikit-learn), "labels" that of equal predictions, "gap" the largest difference of the Euclidean distances.
"""

import argparse
from functools import partial

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from mercer import KernelKNeighborsClassifier, show_versions

from . import _data, _timing

K, GAMMA = 5, 1e-3
SETS = ("satimage", "letter", "usps", "shuttle", "mnist10k")
TARGET = 3.0


def rows_of(name, most):
    """A set's rows and labels, its parts put together, at most so many of them."""
    X, y, X_test, y_test = _data.classification(name)
    return np.ascontiguousarray(np.vstack([X, X_test])[:most]), np.concatenate([y, y_test])[:most]


def machines(n_jobs, algorithm="brute"):
    """The two estimators, unfitted."""
    own = KernelKNeighborsClassifier(K, kernel="rbf", gamma=GAMMA, algorithm=algorithm, n_jobs=n_jobs)
    return own, KNeighborsClassifier(K, algorithm="brute", n_jobs=n_jobs)


def compare(name, most, repeats, n_jobs):
    """One row of the table."""
    X, y = rows_of(name, most)
    own, peer = (model.fit(X, y) for model in machines(n_jobs))
    medians = _timing.interleaved(
        {"own": lambda: own.kneighbors(X), "peer": lambda: peer.kneighbors(X)}, repeats
    )
    wanted, got = _timing.verdict(medians["peer"] / medians["own"], TARGET)
    (a, at), (b, there) = own.kneighbors(X), peer.kneighbors(X)
    euclidean = np.sqrt(-np.log1p(-np.minimum(0.5 * a**2, 1.0 - 1e-16)) / GAMMA)
    return [
        f"{name} {len(X)}×{X.shape[1]}",
        f"{1e3 * medians['own']:.0f}",
        f"{1e3 * medians['peer']:.0f}",
        wanted,
        got,
        f"{np.mean(at == there):.4f}",
        f"{np.mean(own.predict(X) == peer.predict(X)):.4f}",
        f"{np.max(np.abs(euclidean - b)):.0e}",
    ]


def trees(repeats, n_jobs, n=20000):
    """The tree and brute force on normal rows, which decides what "auto" takes."""
    rows = []
    for d in (2, 4, 6, 8):
        X = np.random.default_rng(0).normal(size=(n, d))
        runs = {}
        for algorithm in ("brute", "tree"):
            model = machines(n_jobs, algorithm)[0].fit(X, np.zeros(n))
            runs[algorithm] = partial(model.kneighbors, X)
        medians = _timing.interleaved(runs, repeats)
        rows.append([f"{n}×{d}", *(f"{1e3 * medians[name]:.0f}" for name in runs)])
    print("\nnormal rows, ms")
    _timing.table(["", "brute", "tree"], rows)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="2000 rows of each set, two repeats")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most", type=int, default=None, help="rows of a set at most")
    arguments = parser.parse_args()
    repeats, most = (2, 2000) if arguments.quick else (arguments.repeats, arguments.most)
    show_versions()
    print(f"\n{K} neighbours of all rows, ms: medians of {repeats} interleaved repeats, two threads")
    head = ["", "mercer", "scikit-learn", "target", "ratio", "same", "labels", "gap"]
    _timing.table(head, [compare(name, most, repeats, 2) for name in SETS])
    trees(repeats, 2, 2000 if arguments.quick else 20000)


if __name__ == "__main__":
    main()

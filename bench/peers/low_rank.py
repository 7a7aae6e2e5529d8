"""Costs on kernel matrices that few rows span, beside scikit-learn's linear models on the same features.

    python -m bench.peers.low_rank [--quick] [--repeats N]

Rows are normal ones in 20 dimensions, labels tell x₀x₁ (of linear kernels x₀ + x₁) with noise, α = 0.01.
Linear kernels stand beside linear models of the same cost, with C = 1/(2α); RBF, γ = 1/20, on m rows drawn
uniformly beside the same models on ``Nystroem``'s m features. Squared margins are without an intercept, which
``LinearSVC`` would penalise.
"""

import argparse
import warnings

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from mercer import KernelLogisticRegression, SquaredMarginClassifier, show_versions
from mercer.kernels import RBF, Linear

from . import _timing

ALPHA, GAMMA = 0.01, 0.05
#: Rows, and rows that span the functions (None is a linear kernel).
SIZES = ((1000, None), (4000, None), (100_000, None), (20_000, 100), (100_000, 100), (100_000, 300))


def problem(n, centres):
    """Samples, and two labels or three."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20))
    score = (X[:, 0] * X[:, 1] if centres else X[:, 0] + X[:, 1]) + rng.normal(size=n)
    return X, {"two": score > 0, "three": np.digitize(score, [-0.5, 0.5])}


def pairs(centres):
    """Name, labels, and the two models."""
    newton = {"C": 1 / (2 * ALPHA), "solver": "newton-cholesky", "tol": 1e-8, "max_iter": 1000}
    svc = {"C": 1 / (2 * ALPHA), "dual": False, "tol": 1e-8, "fit_intercept": False, "max_iter": 10000}

    def ours(machine, **options):
        kernel = RBF(gamma=GAMMA) if centres else Linear()
        return machine(ALPHA, kernel=kernel, approximation=centres, random_state=0, **options)

    def theirs(model):
        features = Nystroem(gamma=GAMMA, n_components=centres, random_state=0) if centres else "passthrough"
        return make_pipeline(features, model)

    yield "logistic", "two", ours(KernelLogisticRegression), theirs(LogisticRegression(**newton))
    yield "softmax", "three", ours(KernelLogisticRegression), theirs(LogisticRegression(**newton))
    margins = ours(SquaredMarginClassifier, fit_intercept=False)
    yield "squared margin", "two", margins, theirs(LinearSVC(**svc))


def measure(n, centres, repeats):
    """Lines of the table."""
    X, labels = problem(n, centres)
    for name, which, mine, theirs in pairs(centres):
        y = labels[which]
        runs = {"mercer": lambda mine=mine, y=y: mine.fit(X, y), "sklearn": lambda p=theirs, y=y: p.fit(X, y)}
        seconds = _timing.interleaved(runs, repeats)
        accuracy = [np.mean(model.predict(X[:5000]) == y[:5000]) for model in (mine, theirs)]
        size = f"{n}×20, {f'{centres} of RBF' if centres else 'linear'}"
        ratio = f"{seconds['sklearn'] / seconds['mercer']:.1f}×"
        times = (f"{1e3 * each:.1f}" for each in seconds.values())
        yield [f"{name}, {size}", *times, ratio, mine.n_iter_, *(f"{each:.4f}" for each in accuracy)]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the smallest, once: a check that it runs")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    show_versions()
    warnings.filterwarnings("ignore", module="sklearn")  # of peers that are short of their tolerance
    sizes, repeats = (SIZES[:1], 1) if given.quick else (SIZES, given.repeats)
    rows = [row for n, centres in sizes for row in measure(n, centres, repeats)]
    print(f"\nfits in ms, medians of {repeats} interleaved repeats")
    _timing.table(["", "mercer", "sklearn", "ratio", "steps", "accuracy", "sklearn"], rows)


if __name__ == "__main__":
    main()

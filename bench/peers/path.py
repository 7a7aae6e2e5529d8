"""Regularisation paths over folds: mercer's PathCV beside the same search by scikit-learn.

    python -m bench.peers.path [names…] [--quick] [--peer-file FILE] [--repeats N]

Kernel ridge: 5000 rows of cpusmall, kin8nm and elevators, standardised; 50 alphas from 1e-4 to 1e2, evenly on
their logarithm, five shuffled folds; RBF, γ = 1/d, no intercept, since scikit-learn's KernelRidge has none;
both refit at the best alpha. "largest gap" is that of the scores (R²) over all folds and alphas. The peer
takes minutes: --peer-file keeps its scores and seconds, so that it runs once; its column says so.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import sklearn
from sklearn.kernel_ridge import KernelRidge as ScikitRidge
from sklearn.model_selection import GridSearchCV, KFold

from mercer import KernelRidge, show_versions
from mercer.model_selection import PathCV

from . import _data, _timing
from .svm_grid import kept_or_run

FOLDS, N_JOBS = 5, 2
RIDGE = {"cpusmall": 20.0, "kin8nm": 20.0, "elevators": 20.0}


def folds():
    """The splitter of both."""
    return KFold(FOLDS, shuffle=True, random_state=0)


def found_by(search, seconds):
    """What is compared of a fitted search over alphas, ready for JSON; cells in order of alpha."""
    results = search.cv_results_
    alphas = [float(params["alpha"]) for params in results["params"]]
    order = np.argsort(alphas)
    scores = np.array([results[f"split{k}_test_score"] for k in range(FOLDS)])[:, order]
    return {
        "seconds": seconds,
        "alphas": np.array(alphas)[order].tolist(),
        "scores": scores.tolist(),
        "best": float(search.best_params_["alpha"]),
    }


def fingerprint(name, X, y, alphas):
    """What a kept result belongs to: the rows, the grid, the version."""
    sums = f"{np.abs(X).sum():.17g} {X[::7].sum():.17g} {np.abs(y).sum():.17g}"
    lines = " ".join(f"{v:.17g}" for v in alphas)
    return f"{name} {X.shape} {sums} | {lines} | {FOLDS} folds, {N_JOBS} jobs, {sklearn.__version__}"


# ---------------------------------------------------------------- kernel ridge


def ridge_peer(X, y, alphas):
    """What GridSearchCV finds, in one call after a tiny one that starts the processes."""
    GridSearchCV(ScikitRidge(), {"alpha": [0.5, 1.0]}, cv=2, n_jobs=N_JOBS).fit(np.eye(8), np.arange(8.0))
    machine = ScikitRidge(kernel="rbf", gamma=1 / X.shape[1])
    search = GridSearchCV(machine, {"alpha": alphas.tolist()}, cv=folds(), n_jobs=N_JOBS)
    return found_by(search, _timing.seconds_of(lambda: search.fit(X, y)))


def ridge_own(X, y, alphas, repeats):
    """What PathCV finds, with the median of its seconds."""
    seconds = []
    for _ in range(repeats):
        machine = KernelRidge(kernel="rbf", gamma=1 / X.shape[1], fit_intercept=False)
        search = PathCV(machine, alphas=alphas, cv=folds())
        time.sleep(_timing.PAUSE)
        seconds.append(_timing.seconds_of(lambda search=search: search.fit(X, y)))
    return found_by(search, float(np.median(seconds)))


def ridge_line(name, n_rows, n_alphas, given):
    """One line of the table."""
    X, y, _, _ = _data.regression(name, n_rows, 100)
    alphas = np.logspace(-4, 2, n_alphas)
    own = ridge_own(X, y, alphas, given.repeats)
    print(f"{name}: {own['seconds']:.2f} s, now scikit-learn's", file=sys.stderr)
    key = "ridge " + fingerprint(name, X, y, alphas)
    other, kept = kept_or_run(given.peer_file, key, lambda: ridge_peer(X, y, alphas))
    gap = np.abs(np.subtract(own["scores"], other["scores"])).max()
    return [
        f"{name} {X.shape[0]}×{X.shape[1]}, {n_alphas}×{FOLDS}",
        f"{own['seconds']:.2f}",
        f"{other['seconds']:.1f}" + (" kept" if kept else ""),
        *_timing.verdict(other["seconds"] / own["seconds"], RIDGE[name]),
        f"{other['best']:.3g}",
        "equal" if own["best"] == other["best"] else f"other: {own['best']:.3g}",
        f"{np.mean(other['scores'], axis=0).max():.4f}",
        f"{gap:.1e}" + ("" if gap < 1e-6 else " ✗"),
    ]


def ridge(given):
    """The table of kernel ridge."""
    rows = []
    for name in given.names or RIDGE:
        rows.append(ridge_line(name, 400 if given.quick else 5000, 6 if given.quick else 50, given))
    print(
        f"\nKernel ridge, seconds: PathCV (median of {given.repeats}), "
        f"GridSearchCV(KernelRidge, n_jobs={N_JOBS})"
    )
    head = ["", "mercer", "sklearn", "target", "ratio", "best alpha", "mercer's", "best score", "largest gap"]
    _timing.table(head, rows)


# ---------------------------------------------------------------- command line


def arguments():
    """The command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="names", help=f"of {', '.join(RIDGE)}; all by default")
    parser.add_argument("--quick", action="store_true", help="6 alphas, 400 rows: a check that it runs")
    parser.add_argument("--peer-file", type=Path, metavar="FILE", help="JSON that keeps the peer's results")
    parser.add_argument("--repeats", type=int, default=3, help="of mercer's search; the peer's runs once")
    given = parser.parse_args()
    unknown = set(given.names) - set(RIDGE)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(RIDGE)}")
    return given


def main():
    """Print the tables."""
    given = arguments()
    show_versions()
    if given.quick:
        print("\nA check that it runs: the targets are those of the full sizes")
    ridge(given)


if __name__ == "__main__":
    main()

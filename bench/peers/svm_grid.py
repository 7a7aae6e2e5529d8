"""A grid of C and γ with five folds: mercer's PathCV beside GridSearchCV of scikit-learn's SVC.

    python -m bench.peers.svm_grid [names…] [--small | --quick] [--peer-file FILE] [--repeats N] [--own …]

spam's 3450 and satimage's 4435 training rows and the first 5000 of magic's, standardised; ten C from 0.1 to
1000 and ten γ from 2⁻⁵/d to 2⁴/d, evenly on their logarithms; StratifiedKFold(5); both refit at the best.
--small takes 6 C and 6 γ of the same ranges and 1500 rows of spam. The peer takes minutes: --peer-file keeps
its scores and seconds, so that it runs once; its column says so. Cells and folds are counted where the score
differs at all; "order" tells whether `cv_results_` lists the cells in scikit-learn's order.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import sklearn
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from mercer import show_versions

from . import _data, _svm, _timing

#: Rows to train on (None is all of the training part), and the target for the ratio.
SETS = {"spam": (None, 25.0), "satimage": (None, 25.0), "magic": (5000, 50.0)}
FOLDS = 5
N_JOBS = 2


def grid(d, n_points):
    """The values of C and of γ, each even on its logarithm."""
    return np.logspace(-1, 3, n_points), 2 ** np.linspace(-5, 4, n_points) / d


def folds():
    """The splitter of both: it does not shuffle."""
    return StratifiedKFold(FOLDS)


def found_by(search, seconds):
    """What is compared of a fitted search, ready for JSON; cells are matched by their parameters."""
    results = search.cv_results_
    cells = [[float(params["C"]), float(params["gamma"])] for params in results["params"]]
    splits = [[float(v) for v in results[f"split{k}_test_score"]] for k in range(FOLDS)]
    best = [float(search.best_params_[key]) for key in ("C", "gamma")]
    mean = [float(v) for v in results["mean_test_score"]]
    return {"seconds": seconds, "cells": cells, "mean": mean, "splits": splits, "best": best}


def peer(X, y, Cs, gammas):
    """What scikit-learn's search finds, in one call after a tiny one that starts the processes."""
    parameters = {"C": Cs.tolist(), "gamma": gammas.tolist()}
    GridSearchCV(SVC(), {"C": [0.5, 1.0]}, cv=2, n_jobs=N_JOBS).fit(np.eye(8), [0, 1] * 4)
    search = GridSearchCV(SVC(cache_size=2000), parameters, cv=folds(), n_jobs=N_JOBS)
    return found_by(search, _timing.seconds_of(lambda: search.fit(X, y)))


def kept_or_run(path, key, run):
    """The peer's result from the file, or else run and put there; and whether it had been kept."""
    kept = json.loads(path.read_text()) if path and path.exists() else {}
    if key in kept:
        return kept[key], True
    result = run()
    if path:
        path.write_text(json.dumps(kept | {key: result}))
    return result, False


def fingerprint(name, X, y, Cs, gammas):
    """What a kept result belongs to: the rows, the grid, the version."""
    sums = f"{np.abs(X).sum():.17g} {X[::7].sum():.17g} {np.unique(y, return_inverse=True)[1].sum()}"
    lines = " ".join(f"{v:.17g}" for v in [*Cs, *gammas])
    return f"{name} {X.shape} {sums} | {lines} | {FOLDS} folds, {N_JOBS} jobs, {sklearn.__version__}"


def own_search(module, X, y, Cs, gammas, repeats):
    """What mercer's search finds, with the median of its seconds."""
    machine, PathCV = (_svm.under_test(module, name) for name in ("SVC", "PathCV"))
    seconds = []
    for _ in range(repeats):
        # LIBSVM's vote, as the peer predicts by; it makes no difference to the time
        search = PathCV(machine(cache_size=2000, break_ties=False), Cs=Cs, gammas=gammas, cv=folds())
        time.sleep(_timing.PAUSE)
        seconds.append(_timing.seconds_of(lambda search=search: search.fit(X, y)))
    return found_by(search, float(np.median(seconds)))


def differences(own, other):
    """How far two results agree: order, best parameters, cells and folds whose scores differ."""
    places = {tuple(cell): index for index, cell in enumerate(own["cells"])}
    order = [places[tuple(cell)] for cell in other["cells"]]
    gap = np.abs(np.array(own["mean"])[order] - other["mean"])
    splits = np.abs(np.array(own["splits"])[:, order] - other["splits"])
    # A mean over the folds is rounded: cells differ where the score of a fold does.
    return {
        "order": own["cells"] == other["cells"],
        "best": own["best"] == other["best"],
        "gap": gap.max(),
        "cells": int((splits > 1e-12).any(axis=0).sum()),
        "folds": int((splits > 1e-12).sum()),
    }


def compare(name, rows, target, n_points, given):
    """One line of the table."""
    X, y, _, _ = _data.classification(name)
    X, y = X[:rows], y[:rows]
    Cs, gammas = grid(X.shape[1], n_points)
    own = own_search(given.own, X, y, Cs, gammas, given.repeats)
    print(f"{name}: {own['seconds']:.2f} s, now scikit-learn's", file=sys.stderr)
    key = fingerprint(name, X, y, Cs, gammas)
    other, kept = kept_or_run(given.peer_file, key, lambda: peer(X, y, Cs, gammas))
    same = differences(own, other)
    C, gamma = other["best"]
    return [
        f"{name} {X.shape[0]}×{X.shape[1]}, {n_points}×{n_points}×{FOLDS}",
        f"{own['seconds']:.2f}",
        f"{other['seconds']:.1f}" + (" kept" if kept else ""),
        *_timing.verdict(other["seconds"] / own["seconds"], target),
        f"{C:.3g}, {gamma:.3g}",
        "equal" if same["best"] else "other " + ", ".join(f"{v:.3g}" for v in own["best"]),
        f"{max(other['mean']):.4f}",
        f"{same['gap']:.1e}",
        f"{same['cells']} of {len(own['cells'])}",
        f"{same['folds']} of {FOLDS * len(own['cells'])}",
        "equal" if same["order"] else "other",
    ]


def arguments():
    """The command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="names", help=f"of {', '.join(SETS)}; all by default")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="6 C, 6 γ, 1500 rows of spam")
    size.add_argument("--quick", action="store_true", help="3 C, 3 γ, 300 rows: a check that it runs")
    parser.add_argument("--peer-file", type=Path, metavar="FILE", help="JSON that keeps the peer's results")
    parser.add_argument("--repeats", type=int, default=3, help="of mercer's search; the peer's runs once")
    parser.add_argument(
        "--own", default="mercer", metavar="MODULE", help="whose SVC and PathCV are under test"
    )
    given = parser.parse_args()
    unknown = set(given.names) - set(SETS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(SETS)}")
    return given


def main():
    """Print the table."""
    given = arguments()
    show_versions()
    if _data.folder() is None:
        print("\nLeft out for want of a folder of data files (MERCER_BENCH_DATA)")
        return
    if given.quick:
        print("\nA check that it runs: the targets are those of the full sizes")
    n_points = 6 if given.small else 3 if given.quick else 10
    limit = 1500 if given.small else 300 if given.quick else None
    rows = []
    for name in given.names or (["spam"] if given.small else SETS):
        n, target = SETS[name]
        rows.append(compare(name, limit or n, target, n_points, given))
    print(
        f"\nSeconds: PathCV (median of {given.repeats}), GridSearchCV(SVC(cache_size=2000), n_jobs={N_JOBS})"
    )
    head = ["", "mercer", "sklearn", "target", "ratio", "best C, γ", "mercer's", "best score", "largest gap"]
    _timing.table([*head, "cells that differ", "folds", "order"], rows)


if __name__ == "__main__":
    main()

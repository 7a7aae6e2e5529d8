"""Support vector classification beside scikit-learn's (LIBSVM) and scikit-learn-intelex's, on real data.

    python -m bench.peers.svm [names…] [--quick] [--repeats N] [--budget SECONDS] [--own MODULE]

All fit one against one with RBF, γ = 1/d (mnist10k 0.02), C = 10, tol = 1e-3, cache_size = 2000.
Inputs are float64; dense ones are standardised by the training rows, mnist10k's divided by 255, CSR as it is.
"excess" is the dual objective less that of LIBSVM over its absolute value, both computed in float64 from
`dual_coef_` by the same code; "violation" is how far the worst pair is outside of 0 ≤ α ≤ C, yᵀα = 0, over C.
"""

import argparse
import statistics
import sys
import time

import numpy as np
import sklearn.svm
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from mercer import show_versions

from . import _data, _svm, _timing

C = 10.0
INTELEX = "intelex"
INTEL = _svm.Intelex()


def machines(own, gamma):
    """The unfitted machines by the names of their columns."""
    classes = {"mercer": own, "sklearn": sklearn.svm.SVC, INTELEX: INTEL.machine("SVC")}
    return {name: SVC(C=C, gamma=gamma, cache_size=2000) for name, SVC in classes.items() if SVC is not None}


def timed(models, problem, repeats, budget):
    """Seconds of fits and predictions, in turn, and the labels predicted.

    There are as many rounds as the slowest gets done within the budget, at least one; where there are more
    than two, the first does not count.

    Returns
    -------
    seconds : dict
        Name to the medians (fit, predict).
    labels : dict
        Name to the predicted labels.
    rounds : int
        That count.
    """
    times, labels = {name: [] for name in models}, {}

    def predict(name):
        labels[name] = models[name].predict(problem.X_test)

    def one_round():
        for name, model in models.items():
            time.sleep(_timing.PAUSE)
            fit = _timing.seconds_of(lambda model=model: model.fit(problem.X, problem.y))
            time.sleep(_timing.PAUSE)
            times[name].append((fit, _timing.seconds_of(lambda name=name: predict(name))))

    one_round()
    rounds = min(repeats + 1, int(budget / max(sum(first[0]) for first in times.values())))
    for _ in range(rounds - 1):
        one_round()
    kept = slice(1 if rounds > 2 else 0, None)
    seconds = {name: np.median(rows[kept], axis=0) for name, rows in times.items()}
    return seconds, labels, len(times["mercer"][kept])


def measure(own, problem, repeats, budget):
    """All figures of one problem, as a dict of dicts by the machines' names."""
    models = machines(own, problem.gamma)
    warm = problem.cut(300, 100)
    for model in models.values():
        model.fit(warm.X, warm.y).predict(warm.X_test)
    INTEL.handed_on()
    seconds, labels, rounds = timed(models, problem, repeats, budget)
    handed_on = INTEL.handed_on()
    objectives = {
        name: _svm.dual_objective(model, problem.X, problem.gamma, C) for name, model in models.items()
    }
    lowest = objectives["sklearn"][0]
    return {
        "problem": problem.title,
        "rounds": rounds,
        "handed_on": handed_on,
        "fit": {name: pair[0] for name, pair in seconds.items()},
        "predict": {name: pair[1] for name, pair in seconds.items()},
        "iterations": {name: iterations(model) for name, model in models.items()},
        "vectors": {name: len(model.support_) for name, model in models.items()},
        "objective": {name: value for name, (value, _) in objectives.items()},
        "excess": {name: (value - lowest) / abs(lowest) for name, (value, _) in objectives.items()},
        "violation": {name: value for name, (_, value) in objectives.items()},
        "accuracy": {name: float(np.mean(found == problem.y_test)) for name, found in labels.items()},
        "agree": float(np.mean(labels["mercer"] == labels["sklearn"])),
    }


def iterations(model):
    """Iterations of all pairs, None where a machine does not count them."""
    counted = getattr(model, "n_iter_", None)
    return None if counted is None else int(np.sum(counted))


def print_times(found):
    """The table of seconds: fit, predict, ratios to scikit-learn and scikit-learn-intelex."""
    targets = {"fit": 5.0, "predict": 0.0}
    others = [INTELEX, "ratio"]
    head = ["", "rounds", "fit", "sklearn", "≥ 5×", *others, "predict", "sklearn", "ratio", *others]
    rows = []
    for figures in found:
        row = [figures["problem"], figures["rounds"]]
        for what, target in targets.items():
            took = figures[what]
            ratio = _timing.verdict(took["sklearn"] / took["mercer"], target)[1]
            row += [short(took["mercer"]), short(took["sklearn"]), ratio]
            if INTELEX in took:
                star = "*" if figures["handed_on"] else ""
                row += [short(took[INTELEX]) + star, f"{took[INTELEX] / took['mercer']:.1f}×"]
            else:
                row += ["not installed", "–"]
        rows.append(row)
    _timing.table(head, rows)
    if any(figures["handed_on"] for figures in found):
        print("* scikit-learn-intelex handed at least one of the calls on to scikit-learn")


def short(seconds):
    """Three digits."""
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def print_optima(found):
    """The table of what was found: iterations, support vectors, dual objectives, accuracies."""
    head = ["", "iterations", "sklearn", "vectors", "sklearn", INTELEX, "objective", "sklearn", "excess"]
    head += [INTELEX, "violation", "accuracy", "sklearn", INTELEX, "equal labels"]
    rows = []
    for figures in found:
        counts, vectors = figures["iterations"], figures["vectors"]
        row = [figures["problem"], *(counts[name] or "–" for name in ("mercer", "sklearn"))]
        row += [vectors["mercer"], vectors["sklearn"], vectors.get(INTELEX, "–")]
        row += [f"{figures['objective'][name]:.9g}" for name in ("mercer", "sklearn")]
        row += [f"{figures['excess'][name]:.1e}" if name in vectors else "–" for name in ("mercer", INTELEX)]
        row.append(f"{figures['violation']['mercer']:.0e}")
        accuracy = figures["accuracy"]
        row += [
            f"{accuracy[name]:.4f}" if name in accuracy else "–" for name in ("mercer", "sklearn", INTELEX)
        ]
        rows.append([*row, f"{figures['agree']:.5f}"])
    _timing.table(head, rows)


def summary(found):
    """The figures that the targets speak of."""
    fits = {f["problem"]: f["fit"]["sklearn"] / f["fit"]["mercer"] for f in found}
    predictions = [f["predict"]["sklearn"] / f["predict"]["mercer"] for f in found]
    excess = {f["problem"]: f["excess"]["mercer"] for f in found}
    off = {f["problem"]: abs(f["accuracy"]["mercer"] - f["accuracy"]["sklearn"]) for f in found}
    slowest, highest, farthest = min(fits, key=fits.get), max(excess, key=excess.get), max(off, key=off.get)
    fit, prediction = statistics.geometric_mean(fits.values()), statistics.geometric_mean(predictions)
    rows = [
        ["fit, geometric mean of the ratios", *_timing.verdict(fit, 10.0), ""],
        ["fit, worst ratio", *_timing.verdict(fits[slowest], 5.0), slowest],
        ["predict, geometric mean of the ratios", *_timing.verdict(prediction, 20.0), ""],
        bound("dual objective, worst relative excess", excess[highest], 1e-6, highest),
        bound("accuracy, largest difference", round(off[farthest], 9), 1e-3, farthest),
    ]
    installed = [f for f in found if INTELEX in f["fit"]]
    for what in ("fit", "predict") if installed else ():
        mean = statistics.geometric_mean(f[what][INTELEX] / f[what]["mercer"] for f in installed)
        rows.append([f"{what}, geometric mean beside {INTELEX}", "–", f"{mean:.1f}×  ", ""])
    print()
    _timing.table(["over all problems above", "target", "got", "where"], rows)


def bound(what, got, most, where):
    """A line of the summary for a figure that has an upper bound."""
    return [what, f"≤ {most:g}", f"{got:.1e}" + ("  " if got <= most else " ✗"), where]


#: What is fitted at n = 100: a title, the machine, its own parameters, and where rows and targets are from.
SMALL = (
    ("SVC, breast cancer", "SVC", {"C": C}, load_breast_cancer),
    ("SVC, digits: 10 classes", "SVC", {"C": C}, load_digits),
    ("NuSVC, breast cancer", "NuSVC", {}, load_breast_cancer),
    ("NuSVC, digits: 10 classes", "NuSVC", {}, load_digits),
    ("SVR, diabetes", "SVR", {"C": C}, load_diabetes),
    ("NuSVR, diabetes", "NuSVR", {"C": C}, load_diabetes),
    ("OneClassSVM, breast cancer", "OneClassSVM", {}, load_breast_cancer),
)


def small(module, repeats):
    """Fits and predictions at n = 100, which must not pay for the machinery of large ones."""
    rows = []
    for title, name, own, read in SMALL:
        X, y = read(return_X_y=True)
        X, y, Z = _data.standardised(X[:100], y[:100], X[100:200])
        classes = {"mercer": _svm.under_test(module, name), "sklearn": getattr(sklearn.svm, name)}
        classes[INTELEX] = INTEL.machine(name)
        models = {key: new(gamma=1 / X.shape[1], **own) for key, new in classes.items() if new is not None}
        fits = {key: lambda m=m, X=X, y=y: m.fit(X, y) for key, m in models.items()}
        predictions = {key: lambda m=m, Z=Z: m.predict(Z) for key, m in models.items()}
        rows.append([title, *small_cells(fits, repeats), *small_cells(predictions, repeats)])
    print(f"\nn=100, medians of {repeats} interleaved repeats, µs; 100 rows predicted")
    head = ["sklearn", "≥ 1×", INTELEX]
    _timing.table(["", "fit", *head, "predict", *head], rows)


def small_cells(runs, repeats):
    """The cells of one kind of call; threads that scikit-learn-intelex leaves awake meet itself only."""
    took = _timing.interleaved({key: runs[key] for key in ("mercer", "sklearn")}, repeats, pause=0)
    if INTELEX in runs:
        took |= _timing.interleaved({INTELEX: runs[INTELEX]}, repeats, pause=0)
    ratio = took["sklearn"] / took["mercer"]
    cells = [f"{1e6 * took[key]:.0f}" if key in took else "–" for key in ("mercer", "sklearn", INTELEX)]
    return [*cells[:2], f"{ratio:.2f}×" + ("  " if ratio >= 1 else " ✗"), cells[2]]


def noisy_products():
    """1500 points whose label is the sign of the product of two of their features, but for noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 5))
    return X, (X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(1500) > 0).astype(int)


#: Where pairwise steps crawl: a title, parameters, and where samples are from, which nobody scaled.
CRAWLING = (
    (
        "breast cancer, linear, C = 1",
        {"kernel": "linear", "C": 1.0},
        lambda: load_breast_cancer(return_X_y=True),
    ),
    (
        "breast cancer, linear, C = 100",
        {"kernel": "linear", "C": 100.0},
        lambda: load_breast_cancer(return_X_y=True),
    ),
    ("wine, linear, C = 100", {"kernel": "linear", "C": 100.0}, lambda: load_wine(return_X_y=True)),
    ("noise 1500×5, RBF, C = 1e4", {"gamma": 0.2, "C": 1e4}, noisy_products),
    ("noise 1500×5, RBF, C = 1e5", {"gamma": 0.2, "C": 1e5}, noisy_products),
)


def crawling(own):
    """Fits of a linear kernel to unscaled samples, and of noise at a large C, once."""
    rows = []
    for title, parameters, read in CRAWLING:
        X, y = read()
        models = [new(cache_size=2000, **parameters) for new in (own, sklearn.svm.SVC)]
        took = [_timing.seconds_of(lambda m=model, X=X, y=y: m.fit(X, y)) for model in models]
        steps = [f"{np.sum(model.n_iter_)}" for model in models]
        rows.append([title, *map(short, took), f"{took[1] / took[0]:.0f}×", *steps])
    print("\nWhere pairwise steps crawl: seconds of a fit, and its iterations")
    _timing.table(["", "mercer", "sklearn", "ratio", "iterations", "sklearn"], rows)


def precisions(own, problem, repeats):
    """One line of mercer's times on float64 and on float32 inputs."""
    inputs = {
        dtype: (problem.X.astype(dtype), problem.X_test.astype(dtype)) for dtype in ("float64", "float32")
    }
    models = {dtype: own(C=C, gamma=problem.gamma, cache_size=2000) for dtype in inputs}
    fits = {dtype: lambda t=dtype: models[t].fit(inputs[t][0], problem.y) for dtype in inputs}
    predictions = {dtype: lambda t=dtype: models[t].predict(inputs[t][1]) for dtype in inputs}
    row = [problem.title]
    for runs in (fits, predictions):
        took = _timing.interleaved(runs, repeats)
        row += [short(took["float64"]), short(took["float32"]), f"{took['float64'] / took['float32']:.2f}×"]
    labels = [run() for run in predictions.values()]
    row += [f"{np.mean(found == problem.y_test):.4f}" for found in labels]
    return [*row, f"{np.mean(labels[0] == labels[1]):.5f}"]


def arguments():
    """The command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*_svm.SETS, _svm.SYNTHETIC]
    parser.add_argument("names", nargs="*", metavar="names", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats: a check that it runs")
    parser.add_argument("--repeats", type=int, default=9, help="at most, within the budget")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of the slowest for each problem")
    parser.add_argument("--own", default="mercer", metavar="MODULE", help="whose machines are under test")
    given = parser.parse_args()
    unknown = set(given.names) - set(known)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    return given, given.names or known


def main():
    """Print the tables."""
    given, names = arguments()
    show_versions()
    if given.quick:
        print("\nA check that it runs: the targets are those of the full sizes")
    missing = [name for name in names if name not in _svm.available()]
    if missing:
        print(f"\nLeft out for want of a folder of data files (MERCER_BENCH_DATA): {', '.join(missing)}")
    own = _svm.under_test(given.own, "SVC")
    repeats = 1 if given.quick else given.repeats
    found, rows = [], []
    for name in (name for name in names if name not in missing):
        problem = _svm.problem(name)
        problem = problem.cut(800, 400) if given.quick else problem
        found.append(measure(own, problem, repeats, given.budget))
        if name in ("letter", "usps", _svm.SYNTHETIC):
            rows.append(precisions(own, problem, repeats))
        print(f"{problem.title}: measured", file=sys.stderr)
    if found:
        print(
            f"\nRBF, C={C:g}; mercer's fit and predict beside the others', medians of interleaved rounds, s"
        )
        print_times(found)
        print("\nAt these optima")
        print_optima(found)
        summary(found)
    small(given.own, 20 if given.quick else 300)
    if not given.quick:
        crawling(own)
    if rows:
        print(f"\nmercer's float64 and float32 inputs, medians of {repeats} interleaved repeats, seconds")
        kinds = ["float64", "float32", "ratio"]
        _timing.table(
            ["", *(f"fit {kind}" for kind in kinds), *kinds, "accuracy", "float32", "equal labels"], rows
        )


if __name__ == "__main__":
    main()

"""Kernel ridge regression beside scikit-learn's, on real data.

    python -m bench.peers.ridge [--quick] [--repeats N]

Both packages fit the same machine without an intercept: RBF, γ = 1/d, standardised inputs and target.
"Cholesky" is the time of SciPy's factorisation of the same matrix alone, over that of mercer's whole fit;
"gap" is the largest difference of the predictions on held-out rows, relative to the largest prediction.
"""

import argparse
from functools import partial

import numpy as np
import scipy.linalg
from sklearn.kernel_ridge import KernelRidge as ScikitRidge

from mercer import KernelRidge, show_versions
from mercer.kernels import RBF

from . import _data, _timing

ALPHA = 1e-2
# Training rows, None for all but the test's. elevators has more, but OpenBLAS's dpotrf for AVX-512 on two
# threads overruns its buffer from some n between 15300 and 15600 on (OpenBLAS issue 2562), whoever calls it.
SETS = {"cpusmall": None, "kin8nm": None, "elevators": 15000, "cadata": 10000}
TOL = 1e-6


def machines(d, solver="cholesky", alpha=ALPHA, **options):
    """The two estimators, unfitted."""
    own = KernelRidge(alpha=alpha, kernel="rbf", gamma=1 / d, fit_intercept=False, solver=solver, **options)
    return own, ScikitRidge(alpha=alpha, kernel="rbf", gamma=1 / d)


def factorise(K):
    """SciPy's Cholesky factorisation, in place: what neither package can do without."""
    return scipy.linalg.cholesky(K, lower=True, overwrite_a=True, check_finite=False)


def compare(name, n_train, repeats, target):
    """Fit and predict on one data set."""
    X, y, X_test, _ = _data.regression(name, n_train, 1000 if n_train is None or n_train > 2000 else 200)
    n, d = X.shape
    own, peer = machines(d)
    K = RBF(gamma=1 / d)(X)
    K.flat[:: n + 1] += ALPHA
    scratch = np.empty_like(K, order="F")

    def cholesky():
        return factorise(scratch)

    times = {"fit": ([], []), "predict": ([], []), "cholesky": []}
    for repeat in range(repeats + 1):
        np.copyto(scratch, K)
        took = [
            (_timing.seconds_of(cholesky),),
            [_timing.seconds_of(partial(model.fit, X, y)) for model in (own, peer)],
            [_timing.seconds_of(partial(model.predict, X_test)) for model in (own, peer)],
        ]
        if repeat or repeats == 1:  # the first round warms up
            times["cholesky"].append(took[0][0])
            for what, pair in (("fit", took[1]), ("predict", took[2])):
                for kept, seconds in zip(times[what], pair, strict=True):
                    kept.append(seconds)
    fits, predictions = (np.median(times[what], axis=1) for what in ("fit", "predict"))
    a, b = own.predict(X_test), peer.predict(X_test)
    wanted, got = _timing.verdict(fits[1] / fits[0], target)
    return [
        f"{name} {n}×{d}",
        f"{fits[0]:.2f}",
        f"{fits[1]:.2f}",
        wanted,
        got,
        f"{np.median(times['cholesky']) / fits[0]:.2f}",
        own.solver_used_,
        f"{1e3 * predictions[0]:.1f}",
        f"{1e3 * predictions[1]:.1f}",
        f"{predictions[1] / predictions[0]:.1f}×",
        f"{np.abs(a - b).max() / np.abs(b).max():.0e}",
    ]


def small(repeats):
    """A fit and a prediction at n = 100, which must not pay for the machinery of a large one."""
    X, y, X_test, _ = _data.regression("kin8nm", 100, 100)
    own, peer = machines(X.shape[1], solver="auto")
    fits = _timing.interleaved(
        {"own": lambda: own.fit(X, y), "peer": lambda: peer.fit(X, y)}, repeats, pause=0
    )
    predictions = _timing.interleaved(
        {"own": lambda: own.predict(X_test), "peer": lambda: peer.predict(X_test)}, repeats, pause=0
    )
    gap = np.abs(own.predict(X_test) - peer.predict(X_test)).max()
    print(f"\nn=100 (kin8nm), medians of {repeats} interleaved repeats, µs")
    rows = []
    for what, medians in (("fit", fits), ("predict", predictions)):
        wanted, got = _timing.verdict(medians["peer"] / medians["own"], 1.0)
        rows.append([what, f"{1e6 * medians['own']:.0f}", f"{1e6 * medians['peer']:.0f}", wanted, got])
    _timing.table(["", "mercer", "scikit-learn", "target", "ratio"], rows)
    print(f"largest difference of the predictions {gap:.0e}")


def short_reach(n, repeats):
    """Of γ far above 1/d: products of entries are denormals, which may take a hundred times as long."""
    X, y, _, _ = _data.regression("kin8nm", n, 100)
    d = X.shape[1]
    rows = []
    for times in (1, 10, 30, 100, 300):
        models = dict(zip(("own", "peer"), machines(d, solver="auto"), strict=True))
        for model in models.values():
            model.set_params(gamma=times / d)
        fits = _timing.interleaved(
            {name: partial(model.fit, X, y) for name, model in models.items()}, repeats, pause=0
        )
        wanted, got = _timing.verdict(fits["peer"] / fits["own"], 1.0)
        rows.append([f"{times}/d", f"{fits['own']:.2f}", f"{fits['peer']:.2f}", wanted, got])
    print(f"\nFits of n={n} (kin8nm) by γ, s")
    _timing.table(["γ", "mercer", "scikit-learn", "target", "ratio"], rows)


def large(n, repeats):
    """kin40k by conjugate gradients, beside scikit-learn's exact solution: each in a process of its own."""
    own = [_timing.in_process("bench.peers.ridge", "mercer", n) for _ in range(repeats)]
    note = ""
    try:
        peer = _timing.in_process("bench.peers.ridge", "scikit-learn", n)
    except _timing.Crashed:
        peer = _timing.in_process("bench.peers.ridge", "scikit-learn", n, OPENBLAS_CORETYPE="Haswell")
        note = (
            "scikit-learn's fit crashed in OpenBLAS (see SETS): its row is with OPENBLAS_CORETYPE=Haswell\n"
        )
    own.sort(key=lambda report: report["seconds"])
    own = own[(len(own) - 1) // 2]
    wanted, got = _timing.verdict(peer["seconds"] / own["seconds"], 5.0)
    gap = np.abs(np.subtract(own["prediction"], peer["prediction"])).max() / np.abs(peer["prediction"]).max()
    print(f"\nkin40k, n={n}, α={ALPHA:g}: conjugate gradients to {TOL:g}, and scikit-learn's exact fit")
    rows = [
        ["mercer", f"{own['seconds']:.1f}", f"{own['peak'] / 1e9:.2f}", f"{own['mse']:.5f}", wanted, got],
        ["scikit-learn", f"{peer['seconds']:.1f}", f"{peer['peak'] / 1e9:.2f}", f"{peer['mse']:.5f}", "", ""],
    ]
    _timing.table(["", "fit, s", "peak RSS, GB", "test MSE", "target", "ratio"], rows)
    print(
        f"{note}mercer: {own['iterations']} products, residual {own['residual']:.1e} "
        f"(recomputed {own['recomputed']:.1e}); predictions differ by {gap:.0e} of the largest; "
        f"target for its memory: under 1.5 GB"
    )


def worker(name, n):
    """One large fit in this process."""
    X, y, X_test, y_test = _data.regression("kin40k", n, 1000)
    d = X.shape[1]
    own, peer = machines(d, solver="cg", tol=TOL, random_state=0)
    model = own if name == "mercer" else peer
    machines(d, solver="cg")[name != "mercer"].fit(X[:200], y[:200])
    seconds = _timing.seconds_of(lambda: model.fit(X, y))
    prediction = model.predict(X_test)
    more = {}
    if name == "mercer":
        residual = RBF(gamma=1 / d).gram(X) @ own.dual_coef_ + ALPHA * own.dual_coef_ - y
        more = {
            "iterations": int(own.n_iter_),
            "residual": float(own.residual_),
            "recomputed": float(np.linalg.norm(residual) / np.linalg.norm(y)),
        }
    mse = float(np.mean((prediction - y_test) ** 2))
    _timing.report(seconds=seconds, mse=mse, prediction=prediction.tolist(), **more)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats: a check that it runs")
    parser.add_argument("--repeats", type=int, default=3, help="for the fits of thousands of rows")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="of these data sets only")
    parser.add_argument("--worker", nargs=2, metavar=("NAME", "N"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker[0], int(given.worker[1]))
        return
    show_versions()
    if given.quick:
        print("\nA check that it runs: the targets are those of the full sizes")
    print(
        f"\nFits, α={ALPHA:g}; medians of interleaved repeats; fits in s, predictions of held-out rows in ms"
    )
    head = [
        "",
        "mercer",
        "sklearn",
        "target",
        "ratio",
        "Cholesky",
        "solver",
        "predict",
        "sklearn",
        "ratio",
        "gap",
    ]
    rows = []
    for name in given.sets:
        n_train = 1000 if given.quick else SETS[name]
        rows.append(compare(name, n_train, 1 if given.quick else given.repeats, 1.0 if given.quick else 1.5))
    _timing.table(head, rows)
    small(50 if given.quick else 300)
    short_reach(500 if given.quick else 4000, 1 if given.quick else given.repeats)
    large(2000 if given.quick else 20000, 1 if given.quick else 2)


if __name__ == "__main__":
    main()

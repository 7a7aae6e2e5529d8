"""Kernel principal components beside scikit-learn's, on real data.

    python -m bench.peers.kpca [--quick] [--repeats N] [--dense]

Both packages find 50 components of standardised rows, RBF, γ = 1/d. The peer is the fastest of scikit-learn's
solvers: ARPACK, randomised, and with ``--dense`` LAPACK (half a minute at n = 5000). "gap" is the largest
difference of the coordinates from ARPACK's, up to each component's sign, over the largest coordinate, among
the components whose eigenvalues are distinct ("of" so many); "randomised" is the same of that solver, which
stops short. "residual" is the largest ``‖K̃u − λu‖`` over the root of λ₁λ, recomputed. The large fit is in a
process of its own, and so is its memory.
"""

import argparse
from functools import partial

import numpy as np
from sklearn.decomposition import KernelPCA as ScikitPCA

from mercer import KernelPCA, show_versions
from mercer.kernels import RBF

from . import _data, _timing

COMPONENTS = 50
#: Data set, rows.
SETS = [("letter", 5000), ("mnist10k", 5000), ("shuttle", 5000), ("letter", 10000), ("shuttle", 10000)]
LARGE = ("shuttle", 50000)


def samples(name, n):
    """The first n rows of a set, its test part after its training part."""
    X, _, X_test, _ = _data.classification(name)
    return np.concatenate((X, X_test))[:n]


def machine(d, n_components=COMPONENTS, **options):
    """The estimator, unfitted."""
    return KernelPCA(n_components, kernel="rbf", gamma=1 / d, random_state=0, **options)


def peer(d, solver):
    """scikit-learn's."""
    return ScikitPCA(COMPONENTS, kernel="rbf", gamma=1 / d, eigen_solver=solver, random_state=0)


def coordinates(model):
    """Those of the training rows, without another fit."""
    return model.eigenvectors_ * np.sqrt(model.eigenvalues_)


def distinct(reference):
    """Which eigenvalues are far enough from their neighbours for a solver's rounding to fix the vectors.

    A residual of 1e-13 λ₁, which ARPACK leaves, over a distance of 1e-7 √(λ₁λ) moves a coordinate by 1e-6 of
    the largest; shuttle has eigenvalues 1 of several isolated rows. The last has an unknown neighbour.
    """
    values = reference.eigenvalues_
    distance = np.abs(np.diff(values))
    nearest = np.minimum(np.append(np.inf, distance), np.append(distance, np.inf))
    return nearest > 1e-6 * np.sqrt(values[0] * values)


def gap(model, reference):
    """The largest difference of coordinates up to sign, over the largest coordinate."""
    A, B = coordinates(model), coordinates(reference)
    signs = np.sign(np.einsum("ij,ij->j", A, B))
    return np.abs(A * signs - B)[:, distinct(reference)].max() / np.abs(B).max()


def residual(model, X):
    """``‖K̃u − λu‖ / √(λ₁λ)``, the largest."""
    U, values = model.eigenvectors_, model.eigenvalues_
    W = RBF(gamma=1 / X.shape[1]).gram(X) @ (U - U.mean(axis=0))
    W -= W.mean(axis=0)
    return np.max(np.linalg.norm(W - U * values, axis=0) / np.sqrt(values[0] * values))


def compare(name, n, repeats, solvers, target):
    """One row of the table."""
    X = samples(name, n)
    n, d = X.shape
    models = {"mercer": machine(d)} | {solver: peer(d, solver) for solver in solvers if solver != "dense"}
    medians = _timing.interleaved({key: partial(model.fit, X) for key, model in models.items()}, repeats)
    if "dense" in solvers:
        medians["dense"] = _timing.seconds_of(partial(peer(d, "dense").fit, X))
    wanted, got = _timing.verdict(min(medians[solver] for solver in solvers) / medians["mercer"], target)
    own = models["mercer"]
    return [
        f"{name} {n}×{d}",
        f"{medians['mercer']:.2f}",
        *(f"{medians[solver]:.2f}" for solver in solvers),
        wanted,
        got,
        own.n_iter_,
        f"{gap(own, models['arpack']):.0e}",
        int(distinct(models["arpack"]).sum()),
        f"{gap(models['randomized'], models['arpack']):.0e}",
        f"{residual(own, X):.0e}",
    ]


def large(name, n, components):
    """A fit without the matrix, in a process of its own."""
    done = _timing.in_process("bench.peers.kpca", name, n, components)
    print(f"\n{name}, n={n}, {components} components: {done['solver']}")
    row = [
        "mercer",
        f"{done['fit']:.1f}",
        f"{done['transform']:.1f}",
        done["products"],
        f"{done['residual']:.0e}",
        f"{done['peak'] / 1e9:.2f}",
        "< 4",
        f"{8 * n**2 / 1e9:.1f}",
    ]
    head = ["", "fit, s", "transform, s", "products", "residual", "peak RSS, GB", "target", "matrix, GB"]
    _timing.table(head, [row])


def worker(name, n, components):
    """One large fit in this process."""
    X = samples(name, n)
    machine(X.shape[1], 4).fit(X[:500])
    model = machine(X.shape[1], components)
    fit = _timing.seconds_of(lambda: model.fit(X))
    transform = _timing.seconds_of(lambda: model.transform(X[:10000]))
    _timing.report(
        fit=fit,
        transform=transform,
        products=int(model.n_iter_),
        residual=float(residual(model, X)),
        solver=model.solver_used_,
    )


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats: a check that it runs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dense", action="store_true", help="time scikit-learn's dense solver too, once")
    parser.add_argument("--sets", nargs="+", choices=sorted({name for name, _ in SETS}), default=None)
    parser.add_argument("--worker", nargs=3, metavar=("NAME", "N", "K"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker[0], int(given.worker[1]), int(given.worker[2]))
        return
    show_versions()
    if given.quick:
        print("\nA check that it runs: the targets are those of the full sizes")
    solvers = ["arpack", "randomized"] + ["dense"] * given.dense
    print(f"\n{COMPONENTS} components, RBF, γ = 1/d; fits in s, medians of interleaved repeats")
    head = ["", "mercer", *solvers, "target", "ratio", "products", "gap", "of", "randomised", "residual"]
    sets = [(name, n) for name, n in SETS if given.sets is None or name in given.sets]
    rows = [
        compare(name, min(n, 1000) if given.quick else n, 1 if given.quick else given.repeats, solvers, 2.0)
        for name, n in (sets[:2] if given.quick else sets)
    ]
    _timing.table(head, rows)
    large(LARGE[0], 12000 if given.quick else LARGE[1], COMPONENTS)


if __name__ == "__main__":
    main()

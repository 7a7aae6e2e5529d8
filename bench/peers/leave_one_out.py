"""Leave-one-out residuals of kernel ridge for 50 penalties beside scikit-learn's RidgeCV, on real data.

    python -m bench.peers.leave_one_out [--quick] [--repeats N] [--sets NAME …]

mercer begins at the samples. RidgeCV, whose leave-one-out is in closed form too, is given features Φ with
ΦΦᵀ = K; making them is not counted. "Naive" is a fit of scikit-learn's KernelRidge for each row and penalty,
from the time of a few of them; "Cholesky" a factor and its inverse's diagonal for each penalty, from the time
of one. "Gap" is the largest difference from RidgeCV's squared residuals, relative to the largest of the same
penalty.
"""

import argparse
import time

import numpy as np
import scipy.linalg
from sklearn.kernel_ridge import KernelRidge as ScikitRidge
from sklearn.linear_model import RidgeCV

from mercer import show_versions
from mercer._threads import one_blas_thread
from mercer.kernels import RBF
from mercer.solvers.least_squares import ridge_loo_residuals
from mercer.solvers.spectral import ridge_loo_path

from . import _data, _timing

ALPHAS = np.logspace(-4, 2, 50)
SETS = ("cpusmall", "kin8nm", "elevators")


def own(X, y):
    """Our residuals, of shape (m, n)."""
    K = RBF(gamma=1 / X.shape[1])(X)
    return ridge_loo_path(K, y[:, None], ALPHAS, fit_intercept=False)[:, :, 0]


def peer(features, y):
    """The squared residuals of RidgeCV, of shape (m, n)."""
    model = RidgeCV(ALPHAS, fit_intercept=False, store_cv_results=True).fit(features, y)
    return model.cv_results_.T


def features_of(K):
    """Φ with ΦΦᵀ = K up to rounding."""
    eigenvalues, Q = scipy.linalg.eigh(K)
    return Q * np.sqrt(np.maximum(eigenvalues, 0))


def naive(K, y, fits):
    """Seconds of all fits, from a few."""

    def fit(i):
        keep = np.delete(np.arange(len(K)), i)
        model = ScikitRidge(alpha=ALPHAS[7 * i % len(ALPHAS)], kernel="precomputed")
        model.fit(K[np.ix_(keep, keep)], y[keep]).predict(K[i : i + 1, keep])

    seconds = [_timing.seconds_of(lambda i=i: fit(i)) for i in range(fits)]
    return float(np.median(seconds)) * len(K) * len(ALPHAS)


def by_cholesky(K, y):
    """Seconds of a factor for each penalty, from one."""
    K = K.copy()
    with one_blas_thread():
        run = lambda: ridge_loo_residuals(K, y[:, None], np.array([1.0]), fit_intercept=False)  # noqa: E731
        return _timing.seconds_of(run) * len(ALPHAS)


def compare(name, n, repeats):
    """One row of the table."""
    X, y, _, _ = _data.regression(name, n, 100)
    K = RBF(gamma=1 / X.shape[1])(X)
    features = features_of(K)
    if repeats > 1:
        runs = {"own": lambda: own(X, y), "peer": lambda: peer(features, y)}
        medians = _timing.interleaved(runs, repeats)
        residuals, squares = own(X, y), peer(features, y)
    else:
        medians, begin = {}, time.perf_counter()
        residuals = own(X, y)
        medians["own"] = time.perf_counter() - begin
        time.sleep(_timing.PAUSE)
        begin = time.perf_counter()
        squares = peer(features, y)
        medians["peer"] = time.perf_counter() - begin
    gap = np.max(np.abs(residuals**2 - squares).max(axis=1) / squares.max(axis=1))
    loop = naive(K, y, 3)
    ours = medians["own"]
    return [
        f"{name} {n}×{X.shape[1]}",
        f"{ours:.2f}",
        f"{medians['peer']:.2f}",
        *_timing.verdict(medians["peer"] / ours, 1.0),
        f"{loop:.0f}",
        *_timing.verdict(loop / ours, 100.0),
        f"{by_cholesky(K, y):.1f}",
        f"{gap:.0e}",
        "same" if np.argmin(squares.mean(axis=1)) == np.argmin((residuals**2).mean(axis=1)) else "OTHER",
    ]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: a check that it runs")
    parser.add_argument("--repeats", type=int, default=3, help="for 1000 and 2000 rows; 5000 rows run once")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="of these data sets only")
    given = parser.parse_args()
    show_versions()
    print(f"\nLeave-one-out, {len(ALPHAS)} penalties from {ALPHAS[0]:g} to {ALPHAS[-1]:g}; seconds")
    head = [
        "",
        "mercer",
        "RidgeCV",
        "target",
        "ratio",
        "naive",
        "target",
        "ratio",
        "Cholesky",
        "gap",
        "best α",
    ]
    sizes = {1000: given.repeats, 2000: given.repeats, 5000: 1}
    if given.quick:
        sizes = {400: 2, 1000: 2}
    rows = [compare(name, n, repeats) for n, repeats in sizes.items() for name in given.sets]
    _timing.table(head, rows)


if __name__ == "__main__":
    main()

"""Paths of kernel logistic regression over folds: beside fits one by one, and scikit-learn's on features.

    python -m bench.peers.logistic_path [names…] [--quick] [--folds N] [--repeats N] [--without-peer]

4000 rows of spam (two classes) and satimage (six), standardised; 20 alphas from 100 down to 1e-4, evenly on
their logarithm, five stratified folds; RBF, γ = 1/d. "one by one" is the loop that PathCV spares: for each
fold a fit for each alpha, each begun at the one before (``warm_start``), by our own KernelLogisticRegression
and to the same tolerance. "textbook" is the same loop by Newton steps with a Cholesky factorisation each, of
two classes only (of six a step would factor 19200 rows). "features" is scikit-learn's LogisticRegressionCV
(lbfgs, its default tolerance, max_iter 1000) on Nyström features Φ of full rank, ΦΦᵀ = K, C = 1/(2α), whose
making is not counted. The loops are run over --folds folds of the five, and their seconds multiplied;
scikit-learn's are halved as if two processes shared the folds at no cost.
"""

import argparse
import sys
import time
import warnings

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold

from mercer import KernelLogisticRegression, PathCV, show_versions
from mercer.kernels import RBF

from . import _data, _timing

FOLDS = 5
SETS = {"spam": 10.0, "satimage": 10.0}


def rows_of(name, n):
    """Some rows of a set, standardised."""
    X, y, X_more, y_more = _data.classification(name)
    return np.concatenate([X, X_more])[:n], np.concatenate([y, y_more])[:n]


def machine(X, **params):
    """The estimator of both of our ways."""
    return KernelLogisticRegression(kernel="rbf", gamma=1 / X.shape[1], **params)


def path(X, y, alphas, folds, repeats):
    """Scores (alphas, folds) by PathCV without its refit, and the median of its seconds."""
    seconds = []
    for _ in range(repeats):
        search = PathCV(machine(X), alphas=alphas, cv=folds, refit=False)
        time.sleep(_timing.PAUSE)
        seconds.append(_timing.seconds_of(lambda search=search: search.fit(X, y)))
    results = search.cv_results_
    scores = np.array([results[f"split{k}_test_score"] for k in range(len(folds))]).T
    return scores, float(np.median(seconds))


def one_by_one(X, y, alphas, folds):
    """Scores by fits that start at the one before, and the seconds."""
    scores, start = np.empty((len(alphas), len(folds))), time.perf_counter()
    for k, (train, test) in enumerate(folds):
        one = machine(X, warm_start=True)
        for i, alpha in enumerate(alphas):
            one.set_params(alpha=alpha).fit(X[train], y[train])
            scores[i, k] = one.score(X[test], y[test])
    return scores, time.perf_counter() - start


def textbook(X, y, alphas, folds):
    """Scores by plain Newton steps of two classes, each fit begun at the one before, and the seconds.

    With g and W the first and second derivatives of the cost by f = K a + b, a step solves
    (K + 2α W⁻¹) a + b = f − W⁻¹ g, 1ᵀa = 0; the gradient falls by 1e-8, as in our own fits.
    """
    scores, start = np.empty((len(alphas), len(folds))), time.perf_counter()
    kernel, labels = RBF(1 / X.shape[1]), np.unique(y)
    for k, (train, test) in enumerate(folds):
        K, across = kernel(X[train]), kernel(X[test], X[train])
        sign = np.where(y[train] == labels[1], 1.0, -1.0)
        a, b = np.zeros(len(train)), 0.0
        for i, alpha in enumerate(alphas):
            a, b = _newton_by_factors(K, sign, alpha, a, b)
            scores[i, k] = np.mean(labels[(across @ a + b > 0).astype(int)] == y[test])
    return scores, time.perf_counter() - start


def _newton_by_factors(K, sign, alpha, a, b):
    """The minimiser (a, b) from where it stands, by steps that are halved until the cost falls."""
    image = K @ a

    def cost(a, image, b):
        return np.logaddexp(0.0, -sign * (image + b)).sum() + alpha * a @ image

    for _ in range(100):
        p = expit(-sign * (image + b))
        g, root = -sign * p, np.sqrt(np.maximum(p * (1 - p), 1e-300))
        residual = g + 2 * alpha * a
        if np.sqrt(residual @ (K @ residual)) <= 1e-8 * 2 * alpha * np.sqrt(a @ image):
            break
        A = root[:, None] * K * root
        A.flat[:: len(A) + 1] += 2 * alpha
        factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        right = np.stack([root * (image + b) - g / root, root], axis=1)
        u, v = cho_solve(factor, right, check_finite=False).T
        shift = (root @ u) / (root @ v)
        goal, before = root * (u - shift * v), cost(a, image, b)
        step = 1.0
        while True:
            new = a + step * (goal - a)
            new_image, new_b = K @ new, b + step * (shift - b)
            if cost(new, new_image, new_b) <= before * (1 + 1e-12):
                break
            step /= 2
        a, image, b = new, new_image, new_b
    return a, b


def on_features(X, y, alphas, folds):
    """Scores by LogisticRegressionCV on features of full rank, and the seconds."""
    values, vectors = np.linalg.eigh(RBF(1 / X.shape[1])(X))
    used = values > 1e-12 * values[-1]
    features = vectors[:, used] * np.sqrt(values[used])
    search = LogisticRegressionCV(
        Cs=1 / (2 * np.asarray(alphas)), cv=folds, max_iter=1000, refit=False, use_legacy_attributes=False,
        l1_ratios=(0.0,), scoring="accuracy",
    )  # fmt: skip
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(features, y)
    return time.perf_counter() - start


def line(name, given):
    """One line of the table."""
    X, y = rows_of(name, 500 if given.quick else 4000)
    alphas = np.logspace(2, -4, 5 if given.quick else 20)
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))
    scores, own = path(X, y, alphas, folds, given.repeats)
    some = folds[: given.folds]
    print(f"{name}: {own:.2f} s; now one by one", file=sys.stderr)
    other_scores, naive = one_by_one(X, y, alphas, some)
    naive *= FOLDS / len(some)
    wrong = np.abs(scores[:, : len(some)] - other_scores).max()
    plain = np.nan
    if len(np.unique(y)) == 2:
        print(f"{name}: {naive:.1f} s; now the textbook's way", file=sys.stderr)
        plain_scores, plain = textbook(X, y, alphas, some)
        plain *= FOLDS / len(some)
        wrong = max(wrong, np.abs(scores[:, : len(some)] - plain_scores).max())
    if given.without_peer:
        peer = np.nan
    else:
        print(f"{name}: {naive:.1f} s; now on features", file=sys.stderr)
        peer = on_features(X, y, alphas, some) * FOLDS / len(some) / 2
    return [
        f"{name} {X.shape[0]}×{X.shape[1]}, {len(np.unique(y))} classes, {len(alphas)}×{FOLDS}",
        f"{own:.2f}",
        f"{naive:.1f}",
        *_timing.verdict(naive / own, SETS[name]),
        *(("–", "–") if np.isnan(plain) else (f"{plain:.1f}", f"{plain / own:.1f}×")),
        f"{peer:.1f}",
        *_timing.verdict(peer / own, 1.0),
        f"{wrong:.1e}",
    ]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="names", help=f"of {', '.join(SETS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="5 alphas, 500 rows: a check that it runs")
    parser.add_argument("--folds", type=int, default=1, help="of the five, that the loops run")
    parser.add_argument("--repeats", type=int, default=3, help="of mercer's search; the loops run once")
    parser.add_argument("--without-peer", action="store_true", help="leave scikit-learn out")
    given = parser.parse_args()
    unknown = set(given.names) - set(SETS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(SETS)}")
    show_versions()
    head = [
        "", "mercer", "one by one", "target", "ratio", "textbook", "ratio", "features", "target", "ratio",
        "largest gap",
    ]  # fmt: skip
    rows = [line(name, given) for name in given.names or SETS]
    print(f"\nKernel logistic regression, seconds; mercer's are the median of {given.repeats}")
    _timing.table(head, rows)


if __name__ == "__main__":
    main()

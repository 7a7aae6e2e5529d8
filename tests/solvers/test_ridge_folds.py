"""Folds and alphas at once: equal to a direct solution of each, whatever the route and the threads."""

import threading

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge as ScikitRidge

from mercer._threads import one_blas_thread
from mercer.kernels import RBF, Linear
from mercer.solvers import NotPositiveDefinite
from mercer.solvers.ridge_folds import ridge_folds
from mercer.solvers.shifted import FoldProblem, ShiftedSpace

ROUTES = ["eigh", "krylov", "cholesky"]
EPS = np.finfo(np.float64).eps


def direct(K, Y, alpha, rows, weights, fit_intercept):
    """Predictions for all rows by LU of the bordered system (K + α/w) a + b = y, 1ᵀa = 0."""
    w = np.ones(len(K)) if weights is None else weights
    rows = rows[w[rows] > 0]
    n, one = len(rows), np.ones((len(rows), 1)) * fit_intercept
    G = np.block([[K[np.ix_(rows, rows)] + np.diag(alpha / w[rows]), one], [one.T, np.zeros((1, 1))]])
    if not fit_intercept:
        G[-1, -1] = 1.0
    mean = Y[rows].mean(axis=0) * fit_intercept
    right = np.vstack([Y[rows] - mean, np.zeros((1, Y.shape[1]))])
    with one_blas_thread():
        solution = np.linalg.solve(G, right)
        solution += np.linalg.solve(G, right - G @ solution)
    return K[:, rows] @ solution[:n] + solution[n] + mean


def tolerance(K, alpha, weights):
    """What rounding may move predictions by, over the targets' norm: √(λ₁/α)/2 · eps ‖K‖‖c‖, ‖c‖ ≤ ‖y‖/α."""
    w = 1.0 if weights is None else weights.max()
    norm = w * np.linalg.norm(K) + 1e-300
    return 1e-6 + 50 * EPS * norm / alpha * np.sqrt(norm / alpha)


def problem(seed):
    """A random problem: K, Y, alphas, trains, weights, fit_intercept."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([2, 3, 7, 30, 65, 130, 300, 500]))
    X = rng.normal(size=(n, int(rng.integers(1, 6))))
    if seed % 4 == 1:
        X[n // 2 :] = X[: n - n // 2]
    K = [RBF(gamma=0.3), Linear(), RBF(gamma=5.0)][seed % 3](X)
    if seed % 7 == 6:
        K = np.zeros_like(K)
    Y = np.sin(2 * X[:, :1]) + 0.1 * rng.normal(size=(n, 1 + seed % 3)) + seed
    if seed % 5 == 4:
        Y[:, 0] = 3.25
    alphas = 10 ** rng.uniform(-4, 3, size=7)
    alphas = np.concatenate([alphas, alphas[:2], [1e10]])
    trains = [np.sort(rng.permutation(n)[: max(1, int(share * n))]) for share in (0.8, 0.8, 0.5, 1.0)]
    weights = rng.uniform(0.1, 3, size=n) if seed % 2 else None
    if weights is not None and n > 5:
        weights[[1, n // 2]] = [0.0, -1.0]
    return K, Y, alphas, trains, weights, bool(seed % 3)


@pytest.mark.parametrize("seed", range(20))
def test_equal_to_fits_of_the_folds_alone(seed):
    K, Y, alphas, trains, weights, fit_intercept = problem(seed)
    before = K.copy()
    for route in [None, *(ROUTES if len(K) <= 300 else [])]:
        out = ridge_folds(
            K, Y, alphas, trains, weights=weights, fit_intercept=fit_intercept, keep_dual=True, _route=route
        )
        np.testing.assert_array_equal(K, before)
        assert out.values.shape == (len(trains), len(alphas), *Y.shape)
        assert out.residual.max() < 1e-8
        for fold, rows in enumerate(trains):
            for index, alpha in enumerate(alphas):
                wanted = direct(K, Y, alpha, rows, weights, fit_intercept)
                size = max(np.abs(Y).max(), np.ptp(Y))
                gap = np.abs(out.values[fold, index] - wanted).max()
                assert gap <= size * tolerance(K, alpha, weights), (route, fold, alpha)
                a = out.dual[fold][index]
                fitted = K @ a
                shift = out.values[fold, index] - fitted
                np.testing.assert_allclose(shift, np.broadcast_to(shift[0], shift.shape), atol=1e-9 * size)
                if fit_intercept:
                    assert np.abs(a.sum(axis=0)).max() <= 1e-10 * max(1e-300, np.abs(a).sum())
                else:
                    assert np.abs(shift).max() <= 1e-9 * size


@pytest.fixture
def middling(rng):
    X = rng.normal(size=(520, 4))
    return RBF(gamma=0.25)(X), np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.normal(size=(520, 1))


def folds_of(n, k=5):
    order = np.random.default_rng(1).permutation(n)
    return [np.setdiff1d(order, part) for part in np.array_split(order, k)]


ALPHAS = np.logspace(-4, 2, 50)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_equal_for_any_number_of_threads(middling, route, fit_intercept, rng):
    K, Y = middling
    alphas = ALPHAS[::12] if route != "krylov" else ALPHAS
    weights = rng.uniform(0.5, 2, len(K))
    first = None
    for n_threads in (1, 2, 3):
        out = ridge_folds(
            K, Y, alphas, folds_of(len(K)), weights=weights, fit_intercept=fit_intercept,
            n_threads=n_threads, _route=route,
        )  # fmt: skip
        assert set(out.routes) == {route}
        first = first or out
        np.testing.assert_array_equal(out.values, first.values)
        np.testing.assert_array_equal(out.residual, first.residual)


def test_scores_of_scikit_learn(middling):
    K, Y = middling
    trains = folds_of(len(K))
    out = ridge_folds(K, Y, ALPHAS, trains, fit_intercept=False)
    assert set(out.routes) == {"krylov"}
    for fold, rows in enumerate(trains):
        test = np.setdiff1d(np.arange(len(K)), rows)
        for index in range(0, 50, 7):
            peer = ScikitRidge(alpha=ALPHAS[index], kernel="precomputed")
            with one_blas_thread():
                peer.fit(K[np.ix_(rows, rows)], Y[rows])
            gap = np.abs(peer.predict(K[np.ix_(test, rows)]) - out.values[fold, index][test])
            assert gap.max() < 1e-7


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_residuals_are_those_of_the_dual(middling, fit_intercept):
    K, Y = middling
    rows = folds_of(len(K))[0]
    out = ridge_folds(K, Y, ALPHAS, [rows], fit_intercept=fit_intercept, keep_dual=True)
    right = Y[rows] - Y[rows].mean() * fit_intercept
    for index, alpha in enumerate(ALPHAS):
        left = Y - out.values[0, index] - alpha * out.dual[0][index]
        relative = np.linalg.norm(left[rows]) / np.linalg.norm(right)
        # rounding of K c, ‖c‖ ≤ ‖y‖/α
        floor = 20 * EPS * np.linalg.norm(K) * np.linalg.norm(out.dual[0][index]) / np.linalg.norm(right)
        assert relative <= 2 * out.residual[0, index] + floor + 1e-13
        assert not out.dual[0][index][np.setdiff1d(np.arange(len(K)), rows)].any()


def test_a_space_of_products_alone_and_one_with_poles(middling):
    K, Y = middling
    rows = np.arange(400)
    for alphas, poles in ((np.logspace(1, 4, 20), 0), (ALPHAS, 1)):
        space = ShiftedSpace(FoldProblem(K, Y, rows, None, True, lambda: None), alphas)
        while not space.done:
            if space.wanted is not None:
                space.provide(1)
            space.advance()
        assert len(space.poles) == poles
        assert not space.left.any()
        # orthonormal, and far fewer vectors than rows
        V = space.V[:, : space.k]
        np.testing.assert_allclose(V.T @ V, np.eye(space.k), atol=1e-13)
        assert space.k < 200


def test_alphas_over_twenty_decades(middling):
    K, Y = middling
    alphas = np.logspace(-10, 10, 41)
    rows = np.arange(400)
    out = ridge_folds(K, Y, alphas, [rows], keep_dual=True)
    for index, alpha in enumerate(alphas):
        wanted = direct(K, Y, alpha, rows, None, True)
        assert np.abs(out.values[0, index] - wanted).max() <= tolerance(K, alpha, None) * np.abs(Y).max()


def test_repeated_rows_count_twice(middling):
    K, Y = middling
    rows = np.concatenate([np.arange(300), np.arange(40)])
    weights = np.ones(len(K))
    weights[:40] = 2
    twice = ridge_folds(K, Y, ALPHAS, [rows], keep_dual=True)
    weighted = ridge_folds(K, Y, ALPHAS, [np.arange(300)], weights=weights, keep_dual=True)
    np.testing.assert_allclose(twice.values, weighted.values, atol=1e-6)
    np.testing.assert_allclose(twice.dual[0], weighted.dual[0], atol=1e-6 * np.abs(weighted.dual[0]).max())


def test_masks_and_orders(middling):
    K, Y = middling
    mask = np.arange(len(K)) % 3 > 0
    order = np.random.default_rng(0).permutation(len(ALPHAS))
    a = ridge_folds(K, Y, ALPHAS, [mask])
    b = ridge_folds(K, Y, ALPHAS[order], [np.flatnonzero(mask)])
    np.testing.assert_array_equal(a.values[:, order], b.values)


class TestNotDefinite:
    @pytest.fixture
    def singular(self, rng):
        X = rng.normal(size=(60, 2))
        return Linear()(X), rng.normal(size=(60, 1))

    @pytest.mark.parametrize("route", [None, *ROUTES])
    def test_alpha_zero_of_a_singular_matrix(self, singular, route):
        K, Y = singular
        with pytest.raises(NotPositiveDefinite, match=r"fold 0 with alpha=0 is not positive definite"):
            ridge_folds(K, Y, [1.0, 0.0, 2.0, 3.0, 4.0], [np.arange(50)], _route=route)

    def test_errors_are_kept(self, singular):
        K, Y = singular
        out = ridge_folds(K, Y, [1.0, 0.0, 2.0, 0.0], [np.arange(50)] * 2, keep_errors=True)
        assert sorted(out.errors) == [(0, 1), (0, 3), (1, 1), (1, 3)]
        assert np.isnan(out.values[:, [1, 3]]).all()
        assert np.isfinite(out.values[:, [0, 2]]).all()

    def test_alpha_zero_of_a_regular_matrix(self, rng):
        X = rng.normal(size=(40, 3))
        K, Y = RBF(gamma=3.0)(X), rng.normal(size=(40, 1))
        out = ridge_folds(K, Y, [0.0, 1e-3, 1e-2, 0.1, 1.0], [np.arange(30)], fit_intercept=False)
        np.testing.assert_allclose(out.values[0, 0, :30], Y[:30], atol=1e-9)

    @pytest.mark.parametrize("route", [None, "krylov"])
    @pytest.mark.parametrize("n", [100, 420])
    def test_indefinite(self, rng, n, route):
        Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
        spectrum = np.linspace(0, 5, n)
        spectrum[0] = -0.5
        K = (Q * spectrum) @ Q.T
        K, Y, rows = (K + K.T) / 2, rng.normal(size=(n, 1)), np.arange(n)
        good = ridge_folds(K, Y, np.linspace(0.6, 5, 8), [rows], fit_intercept=False, _route=route)
        for index, alpha in enumerate(np.linspace(0.6, 5, 8)):
            np.testing.assert_allclose(
                good.values[0, index], direct(K, Y, alpha, rows, None, False), atol=1e-6
            )
        with pytest.raises(NotPositiveDefinite, match=r"fold 0 with alpha=0\.4"):
            ridge_folds(K, Y, [0.4, 0.6, 1, 2, 3], [rows], fit_intercept=False, _route=route)

    def test_infinite(self, middling):
        K, Y = middling
        K[7, 3] = K[3, 7] = np.inf
        with pytest.raises(ValueError, match="row 3"):
            ridge_folds(K, Y, ALPHAS, folds_of(len(K)))


def test_a_fold_without_rows(middling):
    K, Y = middling
    weights = np.ones(len(K))
    weights[:10] = 0
    with pytest.raises(ValueError, match="fold 1 has no row of positive weight"):
        ridge_folds(K, Y, ALPHAS, [np.arange(100), np.arange(10)], weights=weights)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_check_ends_the_work(middling, n_threads):
    K, Y = middling
    calls = []

    def check():
        calls.append(threading.get_ident())
        if len(calls) > 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ridge_folds(K, Y, ALPHAS, folds_of(len(K)), check=check, n_threads=n_threads)
    assert len(calls) < 80


def test_tiny_and_huge_targets_and_kernels(middling):
    K, Y = middling
    rows = np.arange(400)
    wanted = ridge_folds(K, Y, ALPHAS, [rows]).values
    for a, b in ((1e-100, 1e200), (1e100, 1e-200)):
        found = ridge_folds(a * K, b * Y, a * ALPHAS, [rows]).values
        np.testing.assert_allclose(found / b, wanted, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_real_problem(fit_intercept):
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X, Y = X[:1500] / 16, y[:1500, None].astype(float)
    K = RBF(gamma=1 / 64)(X)
    trains = folds_of(1500)
    out = ridge_folds(K, Y, ALPHAS, trains, fit_intercept=fit_intercept)
    assert set(out.routes) == {"krylov"}
    each = ridge_folds(K, Y, ALPHAS[::7], trains, fit_intercept=fit_intercept, _route="cholesky")
    for fold, rows in enumerate(trains):
        test = np.setdiff1d(np.arange(1500), rows)
        for ours, theirs in zip(out.values[fold, ::7], each.values[fold], strict=True):
            errors = [np.mean((v[test] - Y[test]) ** 2) / Y[test].var() for v in (ours, theirs)]
            assert abs(errors[0] - errors[1]) < 1e-7

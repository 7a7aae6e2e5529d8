"""Chains of machines along C: each reaches tol by exact kernel values, with few matrices at a time."""

import threading
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import hinge_loss, make_scorer
from sklearn.preprocessing import StandardScaler

from mercer import SVC, PathCV
from mercer.kernels import RBF, Polynomial, Sigmoid
from mercer.model_selection import _chains, _machine_path
from search_checks import by_fits, mean_decision, refuse_fits, splits_of


def test_rounding_does_not_grow_along_C():
    # pairs of near rows: scaling β is the better start at each C
    rng = np.random.default_rng(2)
    P = rng.normal(size=(10, 3))
    X, y = np.concatenate([P, P + 1e-3 * rng.normal(size=P.shape)]), np.repeat([0, 1], 10)
    scoring = make_scorer(hinge_loss, response_method="decision_function")
    search = PathCV(
        SVC(kernel="linear"), Cs=[1e-8, 1e-4, 1.0, 1e4, 1e8], cv=[(np.arange(20), np.arange(20))],
        scoring=scoring, refit=False,
    ).fit(X, y)  # fmt: skip
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y), rtol=1e-3)


def decisions_of(search, X, y, monkeypatch):
    """Decisions of all folds, cell by cell, by the search and by fits."""
    kept = []

    def keep(y, decisions):
        kept.append(decisions)
        return 0.0

    search = clone(search).set_params(scoring=make_scorer(keep, response_method="decision_function"))
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(X, y)
    ours, kept[:] = list(kept), []
    by_fits(search, X, y)
    return ours, kept


def test_decisions_of_other_classes_have_the_digits_of_the_machines(monkeypatch):
    # at a large C float32 rows leave no digit
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1200, 2)), np.arange(1200) % 3
    X[y == 2] *= 2
    machine, cv = SVC(gamma=0.1, tol=1e-4, decision_function_shape="ovo"), [(np.arange(600), np.arange(1200))]
    search = PathCV(machine, Cs=[1e6], cv=cv, refit=False)
    add, dtypes = _machine_path.MachinePath._add_others, []

    def watch(path, held, *args):
        dtypes.append(held[1].dtype)
        add(path, held, *args)

    monkeypatch.setattr(_machine_path.MachinePath, "_add_others", watch)
    for ours, theirs in zip(*decisions_of(search, X, y, monkeypatch), strict=True):
        # of about 900; both are within tol of the optimum, whose β is large
        np.testing.assert_allclose(ours, theirs, atol=0.3)
    assert dtypes == [np.float64]


@pytest.mark.parametrize(
    ("kernel", "weight", "tol"),
    [(RBF(0.1), 1.0, 1e-3), (RBF(0.1), 1.0, 1e-5), (Sigmoid(gamma=1.0), 1.0, 1e-5)],
)
def test_machines_reach_tol_by_exact_kernel_values(kernel, weight, tol):
    X, y = make_classification(
        1300, 6, n_informative=5, n_redundant=0, n_classes=3, flip_y=0.1, random_state=1
    )
    groups = [np.flatnonzero(y == c) for c in range(3)]
    # of 1 and −1 float32 has all digits, but it does not tell large rates apart
    X = 1e3 * X if isinstance(kernel, Sigmoid) else X
    K = kernel(X[np.concatenate(groups)])
    gram = _chains.Gram(kernel, X, groups, tol, room=threading.Semaphore(), n_threads=1)
    gram.users, pairs = 1, _chains.Pairs([len(group) for group in groups])
    weights = weight * (np.arange(len(y)) % 4 > 0)
    Cs = np.array([1.0, 1e2, 1e4])
    for job in pairs.jobs.reshape(-1, 1):
        path = _chains.Chain(
            gram, job, weights, Cs, tol=tol, shrinking=True, cache_bytes=2.0**26, check=lambda *_: None
        ).run()
        assert path.converged.all()
        first, second = (np.arange(*pairs.offsets[[c, c + 1]]) for c in job["groups"][0, :, 0])
        rows, c = np.concatenate([first, second]), np.repeat([1.0, -1.0], [len(first), len(second)])
        for C, *of_variables in zip(Cs, path.beta, path.field, strict=True):
            beta, field = (values[path.problem.taken] for values in of_variables)
            F = c - K[np.ix_(rows, rows)] @ beta
            lower, upper = C * weights[rows] * np.minimum(c, 0), C * weights[rows] * np.maximum(c, 0)
            assert np.array_equal(np.clip(beta, lower, upper), beta)
            np.testing.assert_allclose(beta.sum(), 0, atol=1e-9 * np.abs(beta).sum())
            # half of which are what rounded rows may do
            assert F[beta < upper].max() - F[beta > lower].min() <= 2 * tol
            np.testing.assert_allclose(field, F, atol=0.5 * tol)


@pytest.mark.parametrize("with_faces", [True, False])
def test_problems_that_crawl_go_on(with_faces, rng, monkeypatch):
    # of labels that are noise at a large C neither SMO for a while nor Newton steps, once, reach tol
    X, y = rng.normal(size=(900, 4)), rng.integers(0, 2, 900)
    if not with_faces:
        X, y = X[:150], y[:150]
        monkeypatch.setattr(_chains, "newton_on_faces", lambda *args, **options: False)
    search = PathCV(SVC(), Cs=[1e4, 1e6], gammas=[0.05], cv=3, scoring=mean_decision(), refit=False)
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(X, y)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y), rtol=1e-2, atol=1e-2)


def test_a_tol_at_which_nothing_moves_leaves_no_support(rng, monkeypatch):
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    search = PathCV(SVC(tol=3.0), Cs=[1.0, 10.0], cv=3, scoring=mean_decision(), refit=False)
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        search.fit(X, y)
    np.testing.assert_array_equal(splits_of(search), by_fits(search, X, y))


@pytest.mark.parametrize(("Cs", "weight"), [([1.0, 1e308], 10.0), ([1e-300, 1.0], 1e-50)])
def test_products_out_of_range_are_refused_as_fits_refuse_them(Cs, weight, rng):
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    search = PathCV(SVC(class_weight={0: 1.0, 1: weight}), Cs=Cs, cv=3, error_score=-1.0, refit=False)
    with pytest.warns(FitFailedWarning, match="leaves float64's range"):
        search.fit(X, y)
    out_of_range = np.array(Cs) != 1.0
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"] == -1, out_of_range)


def test_fit_times_have_those_of_newton_steps(rng, monkeypatch):
    newton = _chains.newton_on_faces

    def slowly(*args, **options):
        time.sleep(0.05)
        return newton(*args, **options)

    monkeypatch.setattr(_chains, "newton_on_faces", slowly)
    X, y = rng.normal(size=(150, 4)), rng.integers(0, 2, 150)
    search = PathCV(SVC(), Cs=[1e6], gammas=[0.05], cv=3, refit=False).fit(X, y)
    assert search.cv_results_["mean_fit_time"][0] > 0.05


@pytest.mark.parametrize("gammas", [["scale"], [0.1, 0.2, 0.3, 0.4, 0.5]])
def test_few_matrices_are_there_at_a_time(gammas, monkeypatch):
    X, y = load_breast_cancer(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[:140, :6], y[:140]
    there, most, held, leave = set(), [], _chains.Gram.held, _chains.Gram.leave

    def count(gram, *args):
        found = held(gram, *args)
        there.add(gram)
        most.append(len(there))
        time.sleep(0.005)
        return found

    def discount(gram):
        if gram.users == 1:
            there.discard(gram)
        leave(gram)

    monkeypatch.setattr(_chains.Gram, "held", count)
    monkeypatch.setattr(_chains.Gram, "leave", discount)
    monkeypatch.setattr(_machine_path, "available_memory", lambda: 1.0)
    grid = {"class_weight": [None, "balanced"], "gamma": gammas}
    search = PathCV(SVC(), param_grid=grid, Cs=[1.0, 2.0], cv=4, refit=False, n_jobs=8).fit(X, y)
    assert max(most) == 2
    assert np.isfinite(splits_of(search)).all()


def classes_of_few_rows(n_classes, rng, n=180):
    y = np.arange(n) % n_classes
    return 1.5 * rng.normal(size=(n_classes, 5))[y] + rng.normal(size=(n, 5)), y


@pytest.mark.parametrize("kernel", ["rbf", "precomputed", Polynomial(2) + 2.0 * RBF(0.1)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_pairs_of_many_classes_of_few_rows_are_solved_together(kernel, weighted, rng, monkeypatch):
    X, y = classes_of_few_rows(12, rng)
    X = np.concatenate([X, X[:3]])  # rows that are there twice, once held out
    y = np.concatenate([y, y[:3]])
    if kernel == "precomputed":
        X = RBF(0.1)(X)
    params = {"sample_weight": rng.uniform(0.5, 2.0, len(y)).round(1)} if weighted else {}
    search = PathCV(
        SVC(kernel=kernel, tol=1e-6), Cs=[0.1, 1.0, 30.0], cv=4, scoring=mean_decision(), refit=False,
        return_train_score=True,
    )  # fmt: skip
    with monkeypatch.context() as patch:
        refuse_fits(patch)
        patch.setattr(_machine_path, "Chain", None)
        search.fit(X, y, **params)
    np.testing.assert_allclose(splits_of(search), by_fits(search, X, y, **params), rtol=1e-5, atol=1e-5)
    together = search.cv_results_["mean_train_score"]
    monkeypatch.setattr(_machine_path, "_MANY", 99)
    search.fit(X, y, **params)
    np.testing.assert_allclose(search.cv_results_["mean_train_score"], together, rtol=1e-5, atol=1e-5)


def test_decisions_that_memory_has_no_room_for_are_left_to_fits(rng, monkeypatch):
    X, y = classes_of_few_rows(30, rng)
    search = PathCV(SVC(), Cs=[0.1, 1.0], cv=3, refit=False).fit(X, y)
    expected = splits_of(search)
    monkeypatch.setattr(_machine_path, "_DECISIONS", 0)
    monkeypatch.setattr(_machine_path, "available_memory", lambda: 1e4)
    monkeypatch.setattr(_machine_path.MachinePath, "_run_together", None)
    np.testing.assert_array_equal(splits_of(search.fit(X, y)), expected)

"""Labels that are known before the minimum is: they are those of the minimum, and the bounds are bounds."""

import numpy as np
import pytest
from scipy.special import rel_entr, softmax

from mercer import KernelLogisticRegression, PathCV, SquaredMarginClassifier
from mercer.kernels import RBF, Linear
from mercer.losses import Logistic, Softmax
from mercer.model_selection import _families
from mercer.solvers import newton as newton_module
from mercer.solvers import newton_labels
from mercer.solvers.newton import newton
from mercer.solvers.newton_labels import Labels
from mercer.solvers.newton_problem import Problems
from mercer.solvers.pivoted_cholesky import pivoted_cholesky

every_loss = pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=lambda loss: type(loss).__name__)


@pytest.fixture(autouse=True)
def coefficients(monkeypatch):
    """Steps are in coefficients, which alone ask for labels."""
    monkeypatch.setattr(newton_module, "primal_pays", lambda *_: False)


def posed(loss, rng, n=80, kernel=RBF(gamma=0.3)):  # noqa: B008
    """K, targets and weights, two problems side by side that hold out different rows."""
    X = rng.normal(size=(n, 3))
    score = X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=n)
    y = np.digitize(score, [-0.7, 0.7]) if loss.vector else np.sign(score)
    weights = rng.choice([0.5, 1.0, 2.0], size=(n, 2))
    weights[: n // 5, 0], weights[n // 2 :: 4, 1] = 0.0, 0.0
    return np.ascontiguousarray(kernel(X)), y, weights


def solve(K, loss, y, alpha, weights, labels=None, **options):
    low_rank = pivoted_cholesky(K.diagonal(), lambda index: K[index], len(K), rng=np.random.default_rng(0))
    return newton(
        lambda V: K @ V, loss, y, np.full(weights.shape[1], alpha), weights=weights, low_rank=low_rank,
        labels=labels, **options,
    )  # fmt: skip


def labels_of(f):
    return f > 0 if f.ndim == 2 else f.argmax(axis=2)


class Watched(Labels):
    """Keeps the values that it is asked about, and what it says."""

    def __init__(self, K):
        super().__init__(K)
        self.seen = []

    def judge(self, problems, f, a, gap):
        known, factor = super().judge(problems, f, a, gap)
        self.seen.append((f.copy(), known))
        return known, factor


@every_loss
@pytest.mark.parametrize("alpha", [10.0, 0.1, 1e-3, 1e-5])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kernel", [RBF(gamma=0.3), RBF(gamma=20.0), Linear()], ids=repr)
def test_known_labels_are_those_of_the_minimum(loss, alpha, fit_intercept, kernel, rng):
    K, y, weights = posed(loss, rng, kernel=kernel)
    labels = Watched(K)
    found = solve(K, loss, y, alpha, weights, labels, fit_intercept=fit_intercept)
    exact = solve(K, loss, y, alpha, weights, fit_intercept=fit_intercept, tol=1e-10)
    assert found.converged.all()
    assert exact.converged.all()
    # far from all others a row's decision is nothing but rounding
    sorted_ = np.sort(exact.f, axis=-1)
    margins = sorted_[:, :, -1] - sorted_[:, :, -2] if loss.vector else np.abs(exact.f)
    sure = margins > 1e-7 * np.abs(exact.f).max()
    same = labels_of(found.f) == labels_of(exact.f)
    assert same[sure].all()
    assert (found.n_iter <= solve(K, loss, y, alpha, weights, fit_intercept=fit_intercept).n_iter).all()
    for f, known in labels.seen:
        if len(known) == 2:  # else one of them is done
            same = labels_of(f if loss.vector else f[:, :, 0]) == labels_of(exact.f)
            assert same[:, known].all()


@every_loss
def test_they_are_known_early(loss, rng):
    K, y, weights = posed(loss, rng, n=200)
    plain = solve(K, loss, y, 1e-2, weights)
    early = solve(K, loss, y, 1e-2, weights, Labels(K))
    assert (early.n_iter < plain.n_iter).all()
    assert (early.gradient > 1e-7).all()


@every_loss
@pytest.mark.parametrize("alpha", [1.0, 1e-4])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_excess_is_a_bound_and_near(loss, alpha, fit_intercept, rng):
    K, y, weights = posed(loss, rng)
    exact = solve(K, loss, y, alpha, weights, fit_intercept=fit_intercept, tol=1e-12)
    C = 3 if loss.vector else 1
    targets = np.repeat(y[:, None], 2, axis=1)
    problems = Problems(loss, targets, weights, np.full(2, alpha), fit_intercept, C)
    best = exact.a.reshape(len(y), 2, C)
    for size in (1e-1, 1e-3, 1e-5):
        a = best * (1 + size * rng.normal(size=best.shape))
        if fit_intercept:  # at most a part of each coefficient
            a -= np.abs(best) * (a.sum(axis=0) / np.abs(best).sum(axis=0))
        if loss.vector:
            a -= a.mean(axis=2, keepdims=True)
        h = np.einsum("ij,jqc->iqc", K, a)
        f = h + problems.centre(h, np.zeros((2, C)))
        value = problems.costs(f) + alpha * np.einsum("iqc,iqc->q", a, h)
        excess = newton_labels._excess(problems, f, a, 1.0)
        above = value - exact.objective
        assert (excess >= above - 1e-13 * value).all()
        if size < 1e-2:
            assert (excess <= 50 * above + 1e-11 * value).all()


def test_what_log_odds_move_by_costs_kl(rng):
    p = softmax(rng.normal(scale=3, size=(4000, 4)), axis=1)
    q = softmax(np.log(p) + rng.normal(size=p.shape) * 10 ** rng.uniform(-3, 0.5, size=(4000, 1)), axis=1)
    kl = rel_entr(q, p).sum(axis=1)
    w = rng.uniform(0.1, 3, size=4000)
    pair = [0, 1]
    most = newton_labels._most_moved(p[:, pair], w, w * kl)
    moved = np.abs(np.log(q[:, 0] / q[:, 1]) - np.log(p[:, 0] / p[:, 1]))
    assert np.isfinite(most).sum() > 500
    assert (moved <= most * (1 + 1e-9)).all()


def test_another_label_costs_kl(rng):
    p = softmax(rng.normal(scale=2, size=(4000, 3)), axis=1)
    q = softmax(np.log(p) + rng.normal(scale=2, size=p.shape), axis=1)
    changed = q.argmax(axis=1) != p.argmax(axis=1)
    # the nearest with two equal entries instead of the two largest is on the border
    order = np.argsort(p, axis=1)
    tied, rows = p.copy(), np.arange(len(p))
    first, second = order[:, 2], order[:, 1]
    tied[rows, first] = tied[rows, second] = np.sqrt(p[rows, first] * p[rows, second])
    tied /= tied.sum(axis=1, keepdims=True)
    gaps = np.log(p.max(axis=1, keepdims=True) / p)
    gaps[rows, first] = np.inf
    w = rng.uniform(0.1, 3, size=4000)

    def room(q):
        return newton_labels._room_alone(p, p.argmax(axis=1), gaps, w, w * rel_entr(q, p).sum(axis=1))

    assert changed.sum() > 500
    assert (room(q)[changed] <= 1 + 1e-9).all()
    np.testing.assert_allclose(room(tied), 1, rtol=1e-6)


@every_loss
def test_rows_without_a_label_of_their_own_end_at_the_tolerance(loss, rng):
    K, y, weights = posed(loss, rng, n=60)
    other = np.roll(np.unique(y), 1)[np.searchsorted(np.unique(y), y)]
    K, weights = np.tile(K, (2, 2)), np.tile(weights, (2, 1))
    found = solve(K, loss, np.concatenate([y, other]), 0.1, weights, Labels(K))
    assert found.converged.all()
    if not loss.vector:  # f is 0 everywhere
        assert (found.gradient <= 1e-8).all()


def test_labels_of_cheap_products_are_looked_at_again(rng):
    K, y, weights = posed(Logistic(), rng)
    said = []

    class Once(Labels):
        def judge(self, problems, f, a, gap):
            known = np.full(len(problems.alphas), not said)
            said.append(known)
            return known, np.ones(len(known))

    found = solve(K, Logistic(), y, 0.1, weights, Once(K), single=lambda V: K @ V)
    assert len(said) > 2
    assert (found.gradient <= 1e-8).all()


@every_loss
def test_scores_by_cheap_products_are_those_of_fits(loss, rng):
    X = rng.normal(size=(1500, 4))
    score = X[:, 0] * X[:, 1] + X[:, 2] + 0.5 * rng.normal(size=len(X))
    y = np.digitize(score, [-0.7, 0.7]) if loss.vector else score > 0
    folds = [(np.arange(300, 1500), np.arange(300)), (np.arange(1200), np.arange(1200, 1500))]
    machine = KernelLogisticRegression(gamma=0.3)
    search = PathCV(machine, alphas=[10.0, 0.1, 1e-3], cv=folds, refit=False).fit(X, y)
    for k, (train, test) in enumerate(folds):
        scores = search.cv_results_[f"split{k}_test_score"]
        for params, found in zip(search.cv_results_["params"], scores, strict=True):
            fit = machine.set_params(**params).fit(X[train], y[train])
            assert found == fit.score(X[test], y[test])


def test_paths_ask_for_them_where_scores_are_of_labels(monkeypatch, rng):
    asked, newton_ = [], newton

    def spy(*args, labels=None, **options):
        asked.append(labels is not None)
        return newton_(*args, labels=labels, **options)

    monkeypatch.setattr(_families, "newton", spy)
    X = rng.normal(size=(90, 3))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=90), [-0.5, 0.5])
    for estimator, scoring, expected in [
        (KernelLogisticRegression(), None, True),
        (KernelLogisticRegression(), ["accuracy", "f1_macro"], True),
        (KernelLogisticRegression(), "neg_log_loss", False),
        (KernelLogisticRegression(), ["accuracy", "neg_log_loss"], False),
        (SquaredMarginClassifier(), None, False),
    ]:
        asked.clear()
        PathCV(estimator, alphas=[1.0, 0.01], cv=3, scoring=scoring, refit=False).fit(X, y)
        assert set(asked) == {expected}

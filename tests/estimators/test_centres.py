"""Fits whose functions are spanned by drawn rows: against the same problem written out, and at the limits."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from mercer import KernelRidge
from mercer.estimators.classification import KernelLogisticRegression, SquaredMarginClassifier
from mercer.kernels import RBF
from mercer.losses import Logistic, SquaredMargin

intercepts = pytest.mark.parametrize("fit_intercept", [True, False])
PARAMS = {"gamma": 0.3, "alpha": 0.1, "random_state": 0}
CLASSIFIERS = [KernelLogisticRegression, SquaredMarginClassifier]


@pytest.fixture
def data(rng):
    X = rng.normal(size=(120, 3))
    score = X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=120)
    return X, score, rng.normal(size=(30, 3)), rng.uniform(0.1, 2, size=120)


def ridge(**params):
    return KernelRidge(**{"kernel": "rbf", "gamma": 0.3, "alpha": 0.1, "random_state": 0} | params)


class TestRidge:
    @intercepts
    def test_against_the_normal_equations_in_z(self, data, fit_intercept):
        X, y, Z, w = data
        model = ridge(approximation=12, fit_intercept=fit_intercept).fit(X, y, w)
        C = model.X_fit_
        assert C.shape == (12, 3)
        assert model.solver_used_ == "centres, cholesky"
        kernel = RBF(gamma=0.3)
        A = np.c_[kernel(X, C), np.ones(120)] if fit_intercept else kernel(X, C)
        penalty = np.zeros((A.shape[1],) * 2)
        penalty[:12, :12] = 0.1 * kernel(C)
        solution = np.linalg.solve(A.T @ (w[:, None] * A) + penalty, A.T @ (w * y))
        expected = kernel(Z, C) @ solution[:12] + (solution[12] if fit_intercept else 0.0)
        # The condition of k(C, C), below 1e6 here, times rounding.
        np.testing.assert_allclose(model.predict(Z), expected, atol=1e-8)

    def test_centres_are_training_rows_drawn_by_random_state(self, data):
        X, y, Z, _ = data
        model, again = (ridge(approximation=20).fit(X, y) for _ in range(2))
        assert all((row == X).all(axis=1).any() for row in model.X_fit_)
        np.testing.assert_array_equal(model.predict(Z), again.predict(Z))
        other = ridge(approximation=20, random_state=1).fit(X, y)
        assert not np.array_equal(other.X_fit_, model.X_fit_)

    @pytest.mark.parametrize("approximation", [120, 1000])
    def test_as_many_centres_as_rows_are_the_exact_fit(self, data, approximation):
        X, y, _, w = data
        exact, model = ridge().fit(X, y, w), ridge(approximation=approximation).fit(X, y, w)
        np.testing.assert_array_equal(model.dual_coef_, exact.dual_coef_)
        np.testing.assert_array_equal(model.leave_one_out_, exact.leave_one_out_)

    def test_rows_of_no_weight_are_never_centres(self, data):
        X, y, Z, w = data
        w = np.where(np.arange(120) % 4 == 0, w, 0.0)
        model, alone = (
            ridge(approximation=20).fit(X, y, w),
            ridge(approximation=20).fit(X[::4], y[::4], w[::4]),
        )
        np.testing.assert_allclose(model.predict(Z), alone.predict(Z), rtol=1e-12)
        exact = ridge().fit(X, y, w)
        np.testing.assert_array_equal(ridge(approximation=30).fit(X, y, w).dual_coef_, exact.dual_coef_)

    def test_many_targets_each_with_its_alpha(self, data):
        X, y, Z, _ = data
        Y = np.stack([y, 1e9 * y**2, y], axis=1)
        model = ridge(approximation=15, alpha=[0.1, 0.1, 3.0]).fit(X, Y)
        for column, alpha in enumerate([0.1, 0.1, 3.0]):
            alone = ridge(approximation=15, alpha=alpha).fit(X, Y[:, column])
            np.testing.assert_allclose(model.predict(Z)[:, column], alone.predict(Z), rtol=1e-9)

    def test_repeated_centres(self, data):
        X, y, Z, _ = data
        X, y = np.repeat(X[:15], 8, axis=0), np.repeat(y[:15], 8)
        model = ridge(approximation=100).fit(X, y)
        # 100 of 120 rows hold each of the 15 points.
        np.testing.assert_allclose(model.predict(Z), ridge().fit(X, y).predict(Z), atol=1e-8)

    @pytest.mark.parametrize("form", [sp.csr_array, np.float32])
    def test_forms_of_the_rows(self, data, form):
        X, y, Z, _ = data
        given, queries = form(X), form(Z)
        model = ridge(approximation=20).fit(given, y)
        expected = ridge(approximation=20).fit(X, y).predict(Z)
        np.testing.assert_allclose(
            model.predict(queries), expected, atol=1e-4 if form is np.float32 else 1e-10
        )
        assert model.dual_coef_.dtype == (np.float32 if form is np.float32 else np.float64)

    def test_a_given_matrix_has_zeros_for_the_other_rows(self, data):
        X, y, Z, w = data
        kernel = RBF(gamma=0.3)
        model = ridge(approximation=20).fit(X, y, w)
        given = ridge(kernel="precomputed", approximation=20).fit(kernel(X), y, w)
        assert np.count_nonzero(given.dual_coef_) == 20
        np.testing.assert_allclose(given.predict(kernel(Z, X)), model.predict(Z), atol=1e-9)

    def test_leave_one_out_says_why_it_is_not_there(self, data):
        X, y, _, _ = data
        with pytest.raises(AttributeError, match="approximation=None"):
            ridge(approximation=5).fit(X, y).leave_one_out_  # noqa: B018

    def test_without_a_penalty_it_is_least_squares(self, data):
        X, y, _, w = data
        model = ridge(approximation=10, alpha=0.0).fit(X, y, w)
        A = np.c_[RBF(gamma=0.3)(X, model.X_fit_), np.ones(120)]
        expected = A @ np.linalg.lstsq(np.sqrt(w)[:, None] * A, np.sqrt(w) * y, rcond=None)[0]
        np.testing.assert_allclose(model.predict(X), expected, atol=1e-8)

    def test_a_kernel_of_zeros_leaves_the_mean(self):
        model = ridge(kernel="linear", approximation=2).fit(np.zeros((3, 1)), [1.0, 2.0, 6.0])
        np.testing.assert_allclose(model.predict([[5.0]]), [3.0], rtol=1e-15)

    @pytest.mark.parametrize("wrong", [0, -3, 2.5, "ten", True])
    def test_a_wrong_number_is_refused(self, data, wrong):
        X, y, _, _ = data
        with pytest.raises((ValueError, TypeError), match="approximation"):
            ridge(approximation=wrong).fit(X, y)

    def test_bits_do_not_depend_on_the_number_of_threads(self, data):
        X, y, _, _ = data
        fits = [ridge(approximation=30, n_jobs=n_jobs).fit(X, y).dual_coef_ for n_jobs in (1, 2, 3)]
        np.testing.assert_array_equal(fits[0], fits[1])
        np.testing.assert_array_equal(fits[0], fits[2])


@pytest.mark.parametrize("classifier", CLASSIFIERS)
class TestClassifiers:
    @intercepts
    def test_against_a_generic_minimiser_in_z(self, classifier, data, fit_intercept):
        X, score, _, w = data
        y = np.where(score > 0, 1.0, -1.0)
        model = classifier(approximation=12, fit_intercept=fit_intercept, **PARAMS).fit(X, y, w)
        C, kernel = model.X_fit_, RBF(gamma=0.3)
        loss = Logistic() if classifier is KernelLogisticRegression else SquaredMargin()
        K, H = kernel(X, C), kernel(C)

        def cost(x):
            f = K @ x[:12] + fit_intercept * x[12]
            g = w * loss.derivative(y, f)
            slope = np.append(K.T @ g + 0.2 * H @ x[:12], fit_intercept * g.sum())
            return w @ loss.value(y, f) + 0.1 * x[:12] @ H @ x[:12], slope

        found = minimize(cost, np.zeros(13), jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 5000})
        np.testing.assert_allclose(model.objective_, found.fun, rtol=1e-8)
        np.testing.assert_allclose(
            cost(np.append(model.dual_coef_, model.intercept_))[0], found.fun, rtol=1e-8
        )

    def test_as_many_centres_as_rows_are_the_exact_fit(self, classifier, data):
        X, score, Z, w = data
        y = np.digitize(score, [-0.5, 0.5])
        exact = classifier(**PARAMS).fit(X, y, w)
        model = classifier(approximation=120, **PARAMS).fit(X, y, w)
        np.testing.assert_array_equal(model.decision_function(Z), exact.decision_function(Z))

    def test_more_centres_come_closer(self, classifier, data):
        X, score, _, _ = data
        y = np.digitize(score, [-0.5, 0.5])
        exact = classifier(**PARAMS).fit(X, y)
        worse, better = (classifier(approximation=m, **PARAMS).fit(X, y) for m in (4, 60))
        assert (exact.objective_ <= better.objective_ * (1 + 1e-9)).all()
        assert (better.objective_ < worse.objective_).all()
        assert worse.X_fit_.shape == (4, 3)
        assert worse.dual_coef_.shape == (4, 3)

    @pytest.mark.slow
    def test_a_hundred_thousand_rows(self, classifier, rng):
        X = rng.normal(size=(100_000, 4))
        y = X[:, 0] * X[:, 1] > 0
        model = classifier(approximation=100, gamma=0.3, alpha=1.0, random_state=0, tol=1e-6).fit(X, y)
        assert model.converged_
        assert model.score(X[:5000], y[:5000]) > 0.9

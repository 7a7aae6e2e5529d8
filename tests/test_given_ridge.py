"""Bug reports of the given list that concern the ridge machine, each with its kind around it.

The numbers were worked out by fractions and 50-digit arithmetic. Kernels and matrices are in
``test_given_kernels``.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mercer import KernelRidge
from mercer.kernels import RBF, Linear, Matern, Polynomial, Precomputed

both_solvers = pytest.mark.parametrize("solver", ["cholesky", "cg"])


def ridge(**params):
    """Ridge as the list writes it, (K + αI) a = y, by a solver that goes to the last digits."""
    return KernelRidge(**{"alpha": 1.0, "fit_intercept": False, "tol": 1e-14, **params})


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
class TestG05GammaFromTheData:
    X = np.array([[0.0, 2], [4, 10]])

    def test_scale_is_fixed_at_fit(self, form):
        model = ridge(kernel="rbf", gamma="scale").fit(form(self.X), [1.0, 2.0])
        assert model.kernel_.gamma == pytest.approx(0.03571428571428571, rel=1e-12)
        a = model.dual_coef_
        # Rows of another spread: γ stays.
        new = np.array([[100.0, 0.0], [0.0, 2.0]])
        expected = RBF(gamma=0.03571428571428571)(new, self.X) @ a
        np.testing.assert_allclose(model.predict(form(new)), expected, rtol=1e-12, atol=1e-300)

    def test_a_rescaled_problem_is_the_same_problem(self, form):
        one = ridge(kernel="rbf", gamma="scale").fit(form(self.X), [1.0, 2.0])
        ten = ridge(kernel="rbf", gamma="scale").fit(form(10 * self.X), [1.0, 2.0])
        assert ten.kernel_.gamma == pytest.approx(0.00035714285714285714, rel=1e-12)
        np.testing.assert_allclose(ten.dual_coef_, one.dual_coef_, rtol=1e-12)

    def test_constant_data(self, form):
        assert (
            ridge(kernel="rbf", gamma="scale").fit(form(np.full((2, 2), 3.0)), [1.0, 2.0]).kernel_.gamma
            == 1.0
        )

    def test_default(self, form):
        assert ridge(kernel="rbf").fit(form(np.ones((3, 4))), np.arange(3.0)).kernel_.gamma == 0.25


class TestG07StorageAndCompanyDoNotMatter:
    X = np.array([[1.0, 0, 0], [0, 2, 0]])
    y = np.array([1.0, -1.0])
    T = np.array([[0.0, 0, 3], [0, 1, 0], [2, 1, 0]])
    formats = pytest.mark.parametrize(
        "form", [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix]
    )

    @formats
    @both_solvers
    def test_values(self, form, solver):
        model = ridge(kernel="linear", solver=solver).fit(form(self.X), self.y)
        np.testing.assert_allclose(model.dual_coef_, [0.5, -0.2], rtol=1e-12)
        np.testing.assert_allclose(model.predict(form(self.T)), [0.0, -0.4, 0.6], atol=1e-12)
        for row, value in zip(self.T, [0.0, -0.4, 0.6], strict=True):
            assert model.predict(form(row[None]))[0] == pytest.approx(value, abs=1e-12)

    @formats
    @pytest.mark.parametrize("k", [Linear(), RBF(gamma=0.3), Polynomial(2), Matern(nu=1.5)], ids=repr)
    def test_many_rows(self, form, k):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((40, 8)) * (rng.random((40, 8)) < 0.3)
        y = rng.standard_normal(40)
        dense = ridge(kernel=k, fit_intercept=True).fit(X[:30], y[:30])
        model = ridge(kernel=k, fit_intercept=True).fit(form(X[:30]), y[:30])
        np.testing.assert_allclose(model.predict(form(X)), dense.predict(X), rtol=1e-10, atol=1e-10)
        single = [model.predict(form(X[i : i + 1]))[0] for i in range(40)]
        np.testing.assert_allclose(single, model.predict(form(X)), rtol=1e-12, atol=1e-12)


class TestG09TheCallersArrays:
    @both_solvers
    def test_values(self, solver):
        X, y, w = np.array([[1.0], [2.0]]), np.array([1.0, 3.0]), np.ones(2)
        kept = X.copy(), y.copy(), w.copy()
        model = ridge(kernel="linear", solver=solver).fit(X, y, sample_weight=w)
        assert all(np.array_equal(a, b) for a, b in zip((X, y, w), kept, strict=True))
        X[:], y[:], w[:] = 999, 999, 999
        np.testing.assert_allclose(model.dual_coef_, [-1 / 6, 2 / 3], rtol=1e-12)
        assert model.predict([[3.0]])[0] == pytest.approx(3.5, rel=1e-12)

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_sparse_and_precomputed(self, form, dtype):
        X = np.random.default_rng(0).random((6, 3)).astype(dtype)
        y = np.arange(6).astype(dtype)
        for kernel, fitted in ((RBF(), X), ("precomputed", RBF()(X))):
            data = form(fitted) if kernel != "precomputed" else fitted.copy()
            model = ridge(kernel=kernel, store_factor=True).fit(data, y)
            before = model.predict(data)
            loo = model.leave_one_out_
            values = data.data if sp.issparse(data) else data
            new = data.copy()
            values[:] = 999
            assert np.array_equal(model.predict(new), before)
            assert np.array_equal(ridge(kernel=kernel).fit(new, y).leave_one_out_, loo) or np.allclose(
                ridge(kernel=kernel).fit(new, y).leave_one_out_, loo, rtol=1e-4
            )


class TestG11WeightZeroMeansAbsent:
    k = RBF(gamma=0.5)
    T = np.array([[1.5], [5.0]])

    @both_solvers
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_values(self, solver, form):
        model = ridge(alpha=0.5, kernel=self.k, solver=solver)
        X = np.array([[0.0], [1], [2], [5]])
        model.fit(form(X), [0.0, 1, 1, 9], sample_weight=[1, 1, 1, 0])
        np.testing.assert_allclose(
            model.predict(self.T), [0.8339474608929748, 0.005198266853384872], rtol=1e-10
        )
        model.fit(form(X[:3]), [0.0, 1, 1], sample_weight=[2, 1, 1])
        np.testing.assert_allclose(
            model.predict(self.T), [0.832962616176431, 0.005139334065733811], rtol=1e-10
        )

    @both_solvers
    @pytest.mark.parametrize("fit_intercept", [False, True])
    def test_weights_are_repetitions(self, solver, fit_intercept):
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((20, 2)), rng.standard_normal((20, 3))
        w = rng.integers(0, 4, 20)
        model = ridge(alpha=0.5, kernel=self.k, solver=solver, fit_intercept=fit_intercept)
        weighted = model.fit(X, y, sample_weight=w).predict(X)
        repeated = model.fit(np.repeat(X, w, axis=0), np.repeat(y, w, axis=0)).predict(X)
        np.testing.assert_allclose(weighted, repeated, rtol=1e-9, atol=1e-10)


class TestG17Precomputed:
    X = np.array([[1.0], [2], [3], [4]])
    y = np.array([1.0, 3, 2, 5])
    expected = (0.5, 1.1805555555555556)

    def routes(self):
        K = self.X @ self.X.T
        yield ridge(kernel="linear"), self.X
        yield ridge(kernel=Linear()), self.X
        yield ridge(kernel="precomputed"), K
        yield ridge(kernel=Precomputed()), K

    def test_values(self):
        for model, data in self.routes():
            scores = cross_val_score(model, data, self.y, cv=KFold(2), scoring="neg_mean_squared_error")
            np.testing.assert_allclose(-scores, self.expected, rtol=1e-12)

    def test_through_a_search(self):
        best = [
            GridSearchCV(model, {"alpha": [0.1, 1.0, 10.0]}, cv=KFold(2), scoring="neg_mean_squared_error")
            .fit(data, self.y)
            .cv_results_["mean_test_score"]
            for model, data in self.routes()
        ]
        for other in best[1:]:
            np.testing.assert_allclose(other, best[0], rtol=1e-10)

    def test_not_square_is_refused(self):
        for kernel in ("precomputed", Precomputed()):
            with pytest.raises(ValueError, match="square"):
                ridge(kernel=kernel).fit(np.ones((3, 4)), [1.0, 2, 3])
            model = ridge(kernel=kernel).fit(np.eye(3), [1.0, 2, 3])
            with pytest.raises(ValueError, match="3"):
                model.predict(np.ones((2, 4)))

    def test_a_pipeline_keeps_working(self):
        X = np.random.default_rng(0).standard_normal((12, 2))
        scores = cross_val_score(make_pipeline(StandardScaler(), ridge(kernel="rbf")), X, X[:, 0], cv=3)
        assert np.isfinite(scores).all()


class TestG18LeaveOneOut:
    X = np.array([[1.0], [2], [3], [4]])
    y = np.array([1.0, 2, 2, 5])
    expected = (1.0, 2.0, 3.409090909090909, 2.933333333333333)

    @both_solvers
    def test_values(self, solver):
        model = ridge(kernel="linear", solver=solver)
        held_out = cross_val_predict(model, self.X, self.y, cv=LeaveOneOut())
        np.testing.assert_allclose(held_out, self.expected, rtol=1e-12)
        assert r2_score(self.y, held_out) == pytest.approx(0.30481685542291603, rel=1e-12)

    @pytest.mark.parametrize("store_factor", [False, True])
    def test_closed_form(self, store_factor):
        model = ridge(kernel="linear", store_factor=store_factor).fit(self.X, self.y)
        np.testing.assert_allclose(self.y - model.leave_one_out_, self.expected, rtol=1e-12)

    def test_score_of_one_row_is_undefined(self):
        model = ridge(kernel="linear").fit(self.X[:3], self.y[:3])
        with pytest.warns(UndefinedMetricWarning):
            assert np.isnan(model.score(self.X[3:], self.y[3:]))

    @pytest.mark.parametrize("fit_intercept", [False, True])
    def test_closed_form_equals_refits(self, fit_intercept):
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((15, 2)), rng.standard_normal((15, 2))
        w = rng.uniform(0.5, 2, 15)
        model = ridge(alpha=0.3, kernel=RBF(), fit_intercept=fit_intercept).fit(X, y, sample_weight=w)
        for i in range(15):
            rest = np.arange(15) != i
            held_out = ridge(alpha=0.3, kernel=RBF(), fit_intercept=fit_intercept)
            held_out.fit(X[rest], y[rest], sample_weight=w[rest])
            expected = y[i] - held_out.predict(X[i : i + 1])[0]
            np.testing.assert_allclose(model.leave_one_out_[i], expected, rtol=1e-10, atol=1e-12)


@both_solvers
def test_g30_ridge_at_a_huge_gamma(solver):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ridge(kernel="rbf", gamma=1e300, solver=solver).fit([[0.0], [1.0]], [3.0, -1.0])
    np.testing.assert_allclose(model.dual_coef_, [1.5, -0.5], rtol=1e-12)

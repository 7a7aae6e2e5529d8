"""KernelRidge: its cost, scikit-learn's conventions, kernels in searches, weights, and bad input."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import LinAlgWarning
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, UndefinedMetricWarning
from sklearn.gaussian_process.kernels import RBF as GaussianProcessRBF
from sklearn.kernel_ridge import KernelRidge as Reference
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import SVR, KernelRidge
from mercer.estimators import ridge as ridge_module
from mercer.kernels import (
    RBF,
    FunctionKernel,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
)
from mercer.solvers import NotPositiveDefinite, least_squares

SOLVERS = ["cholesky", "cg"]
both_solvers = pytest.mark.parametrize("solver", SOLVERS)
intercepts = pytest.mark.parametrize("fit_intercept", [True, False])


@pytest.fixture
def data(rng):
    X = rng.normal(size=(60, 3))
    return X, np.sin(X).sum(axis=1) + 10, rng.normal(size=(25, 3))


@parametrize_with_checks([KernelRidge(), KernelRidge(kernel="rbf", solver="cg", random_state=0)])
@pytest.mark.lenient
@pytest.mark.filterwarnings("default")
def test_scikit_learns_checks_pass_without_exemption(estimator, check):
    check(estimator)


class TestAgainstScikitLearn:
    @pytest.mark.parametrize(
        "params",
        [
            {"kernel": "linear"},
            {"kernel": "rbf"},
            {"kernel": "rbf", "gamma": 0.7},
            {"kernel": "poly", "degree": 2, "coef0": 0.5, "gamma": 0.2},
            {"kernel": "polynomial"},
            {"kernel": "sigmoid", "gamma": 0.01},
            {"kernel": "cosine"},
            {"kernel": "laplacian"},
            {"kernel": "chi2", "gamma": 1.0},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("weighted", [True, False])
    @pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning")
    def test_named_kernels_and_their_defaults(self, params, weighted, rng):
        X, Z = rng.uniform(0.1, 1, size=(50, 4)), rng.uniform(0.1, 1, size=(9, 4))
        y, weights = rng.normal(size=(50, 2)), rng.uniform(0.5, 2, size=50) if weighted else None
        reference = Reference(alpha=0.5, **params).fit(X, y, weights)
        model = KernelRidge(alpha=0.5, fit_intercept=False, **params).fit(X, y, weights)
        np.testing.assert_allclose(model.dual_coef_, reference.dual_coef_, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(model.predict(Z), reference.predict(Z), rtol=1e-8, atol=1e-9)

    def test_alpha_per_target(self, data, rng):
        X, _, Z = data
        y = rng.normal(size=(60, 3))
        alphas = np.array([0.1, 1.0, 0.1])
        reference = Reference(alpha=alphas, kernel="rbf").fit(X, y)
        model = KernelRidge(alpha=alphas, kernel="rbf", fit_intercept=False).fit(X, y)
        np.testing.assert_allclose(model.predict(Z), reference.predict(Z), rtol=1e-9)

    @pytest.mark.parametrize(
        "value", [None, "x", 1j, np.complex64(1), np.ones(3), np.matrix("1 2"), np.ones((1, 1))], ids=repr
    )
    def test_a_callable_that_returns_no_number(self, value):
        model = KernelRidge(kernel=lambda x, z: value)
        with pytest.raises(TypeError, match=r"<lambda> must return a real number .*FunctionKernel\(f\)"):
            model.fit([[1.0], [2.0]], [1.0, 2.0])

    @pytest.mark.parametrize("kind", [float, int, np.float32, np.array])
    def test_a_callable_that_returns_a_number_in_some_form(self, kind):
        X, y = np.array([[1.0], [2.0]]), np.array([1.0, 3.0])
        model = KernelRidge(kernel=lambda x, z: kind(x[0] * z[0])).fit(X, y)
        np.testing.assert_allclose(model.predict(X), KernelRidge().fit(X, y).predict(X))

    def test_a_callable_of_two_blocks_is_told_of_its_rows(self, data):
        X, y, _ = data
        with pytest.raises(ValueError, match="Expected 2D array") as caught:
            KernelRidge(kernel=rbf_kernel).fit(X, y)
        (note,) = caught.value.__notes__
        assert note.startswith("the kernel rbf_kernel was called with two rows, of shape (3,)")
        assert note.endswith("mercer.kernels.FunctionKernel(f)")

    def test_a_callable_of_two_rows(self, data):
        X, y, Z = data

        def similarity(x, z, power):
            return (1 + x @ z) ** power

        params = {"kernel": similarity, "kernel_params": {"power": 2}}
        reference = Reference(alpha=0.5, **params).fit(X, y)
        model = KernelRidge(alpha=0.5, fit_intercept=False, **params).fit(X, y)
        np.testing.assert_allclose(model.predict(Z), reference.predict(Z), rtol=1e-9)

    @pytest.mark.parametrize("machine", [KernelRidge, SVR])
    def test_callables_with_arrays_compare(self, machine, data):
        """Arrays are equal if they are one: a look at all entries is more than a comparison may cost."""
        X, y, _ = data

        def product(x, z, metric):
            return x @ metric @ z.T

        metric = np.eye(X.shape[1])
        one, same, other = (
            machine(kernel=product, kernel_params={"metric": each}).fit(X, y).kernel_
            for each in (metric, metric, metric + 0.0)
        )
        assert one == same
        assert hash(one) == hash(same)
        assert one != other

    def test_scikit_learns_own_kernel_object(self, data):
        X, y, Z = data
        kernel = GaussianProcessRBF(0.8)
        model = KernelRidge(kernel=FunctionKernel(kernel)).fit(X, y)
        expected = KernelRidge(kernel=RBF(length_scale=0.8)).fit(X, y)
        np.testing.assert_allclose(model.predict(Z), expected.predict(Z), rtol=1e-9)


@intercepts
@both_solvers
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("n_targets", [None, 1, 3])
class TestFit:
    def make(self, rng, n_targets, weighted):
        X = rng.normal(size=(50, 3))
        y = rng.normal(size=50 if n_targets is None else (50, n_targets)) + 4
        return X, y, rng.uniform(0.2, 3, size=50) if weighted else None

    def test_stationary_in_dual_coefficients_and_intercept(
        self, rng, solver, fit_intercept, weighted, n_targets
    ):
        X, y, weights = self.make(rng, n_targets, weighted)
        kernel = 0.5 * RBF(gamma=0.4) + Polynomial(2, gamma=0.1)
        options = {"solver": solver, "tol": 1e-12, "random_state": 0}
        model = KernelRidge(0.3, kernel=kernel, fit_intercept=fit_intercept, **options).fit(X, y, weights)
        w = np.ones(50) if weights is None else weights
        error = w * (model.predict(X) - y).T
        K = kernel(X)
        np.testing.assert_allclose(error @ K + 0.3 * model.dual_coef_.T @ K, 0, atol=1e-8)
        if fit_intercept:
            np.testing.assert_allclose(error.sum(axis=-1), 0, atol=1e-8)
        else:
            assert model.intercept_ == 0
        assert model.dual_coef_.shape == model.predict(X).shape == y.shape
        assert np.shape(model.intercept_) == (y.shape[1:] if fit_intercept else ())
        assert model.converged_
        assert model.residual_ < 1e-11
        assert model.solver_used_ == solver
        assert model.n_features_in_ == 3

    def test_leave_one_out_equals_refits(self, rng, solver, fit_intercept, weighted, n_targets):
        X, y, weights = self.make(rng, n_targets, weighted)
        options = {"kernel": RBF(gamma=0.4), "fit_intercept": fit_intercept, "tol": 1e-10}
        model = KernelRidge(0.3, solver=solver, **options).fit(X, y, weights)
        w = np.ones(50) if weights is None else weights
        for i in (0, 7, 49):
            rest = np.arange(50) != i
            refit = KernelRidge(0.3, **options).fit(X[rest], y[rest], w[rest])
            np.testing.assert_allclose(
                model.leave_one_out_[i],
                (y[i : i + 1] - refit.predict(X[i : i + 1]))[0],
                rtol=1e-8,
                atol=1e-10,
            )
        assert model.leave_one_out_.shape == y.shape
        assert model.leave_one_out_ is model.leave_one_out_


class TestLeaveOneOut:
    def test_a_kept_factor_gives_the_same(self, data, rng):
        X, _, _ = data
        y = rng.normal(size=(60, 2))
        options = {"alpha": [0.1, 2.0], "kernel": RBF(gamma=0.4)}
        kept = KernelRidge(store_factor=True, **options).fit(X, y)
        again = KernelRidge(**options).fit(X, y)
        np.testing.assert_allclose(kept.leave_one_out_, again.leave_one_out_, rtol=1e-10)
        np.testing.assert_array_equal(kept.dual_coef_, again.dual_coef_)
        np.testing.assert_allclose(pickle.loads(pickle.dumps(kept)).leave_one_out_, kept.leave_one_out_)

    def test_rows_that_were_left_out_have_the_residual_of_the_fit(self, data, rng):
        X, y, _ = data
        weights = np.ones(60)
        weights[[3, 20]] = 0, -1
        for kernel, samples in ((RBF(gamma=0.4), X), ("precomputed", RBF(gamma=0.4)(X))):
            model = KernelRidge(0.1, kernel=kernel).fit(samples, y, weights)
            expected = y[[3, 20]] - model.predict(samples[[3, 20]])
            np.testing.assert_allclose(model.leave_one_out_[[3, 20]], expected, rtol=1e-12)
            rest = KernelRidge(0.1, kernel=RBF(gamma=0.4)).fit(X[weights > 0], y[weights > 0])
            np.testing.assert_allclose(model.leave_one_out_[weights > 0], rest.leave_one_out_, rtol=1e-9)

    def test_belongs_to_the_last_fit(self, data):
        X, y, _ = data
        model = KernelRidge(kernel="rbf").fit(X, y)
        first = model.leave_one_out_
        np.testing.assert_allclose(model.fit(X, 2 * y).leave_one_out_, 2 * first, rtol=1e-9)

    def test_unfitted(self):
        assert not hasattr(KernelRidge(), "leave_one_out_")


@both_solvers
@intercepts
class TestWeights:
    def test_zero_and_negative_are_absent(self, data, solver, fit_intercept):
        X, y, Z = data
        weights = np.ones(60)
        weights[[0, 5, 59]] = 0, -2, 0
        options = {"kernel": RBF(gamma=0.3), "solver": solver, "fit_intercept": fit_intercept, "tol": 1e-11}
        X_bad = X.copy()
        X_bad[5] = 1e8  # whatever stands there
        model = KernelRidge(0.2, **options).fit(X_bad, y, weights)
        absent = KernelRidge(0.2, **options).fit(X[weights > 0], y[weights > 0])
        np.testing.assert_allclose(model.predict(Z), absent.predict(Z), rtol=1e-8)
        assert len(model.X_fit_) == len(model.dual_coef_) == 57

    def test_two_is_the_row_twice(self, data, solver, fit_intercept):
        X, y, Z = data
        weights = np.ones(60)
        weights[7] = 2
        options = {"kernel": RBF(gamma=0.3), "solver": solver, "fit_intercept": fit_intercept, "tol": 1e-11}
        model = KernelRidge(0.2, **options).fit(X, y, weights)
        twice = KernelRidge(0.2, **options).fit(np.vstack([X, X[7]]), np.append(y, y[7]))
        np.testing.assert_allclose(model.predict(Z), twice.predict(Z), rtol=1e-8)


class TestKernelParameter:
    def test_expressions_are_replaced_and_never_changed(self):
        kernel = 0.5 * RBF(gamma=2.0) + Polynomial(2)
        model = KernelRidge(kernel=kernel)
        model.set_params(kernel__k2__degree=3, alpha=2.0)
        assert model.alpha == 2.0
        assert model.kernel == 0.5 * RBF(gamma=2.0) + Polynomial(3)
        assert kernel == 0.5 * RBF(gamma=2.0) + Polynomial(2)
        model.set_params(kernel=RBF(gamma=1.0), kernel__gamma=7.0)
        assert model.kernel == RBF(gamma=7.0)

    def test_get_params_and_clone(self):
        model = KernelRidge(kernel=RBF(gamma=2.0) + Linear())
        params = model.get_params()
        assert params["kernel__k1__gamma"] == 2.0
        assert params["kernel"] is model.kernel
        assert clone(model).kernel == model.kernel
        assert "kernel__k1__gamma" not in model.get_params(deep=False)

    @pytest.mark.parametrize("kernel", ["rbf", min], ids=str)
    def test_names_and_callables_have_no_parameters(self, kernel):
        with pytest.raises(ValueError, match=r"has no parameters \['gamma'\]; pass an expression"):
            KernelRidge(kernel=kernel).set_params(kernel__gamma=1.0)

    @pytest.mark.parametrize(
        ("kernel", "name"),
        [
            (RBF(gamma=1.0), "kernel__gamma"),
            (Linear() + Polynomial(2) * RBF(gamma=1.0), "kernel__k2__k2__gamma"),
        ],
    )
    def test_grid_search_changes_the_kernel(self, data, kernel, name):
        X, y, _ = data
        values = [1e-3, 0.3, 30.0]
        search = GridSearchCV(KernelRidge(0.01, kernel=kernel), {name: values}, cv=3).fit(X, y)
        expected = [
            GridSearchCV(
                KernelRidge(0.01, kernel=kernel.set_params(**{name.removeprefix("kernel__"): v})), {}, cv=3
            )
            .fit(X, y)
            .best_score_
            for v in values
        ]
        np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-12)
        assert len(set(expected)) == 3
        assert search.best_estimator_.get_params()[name] == search.best_params_[name]

    def test_gamma_is_fixed_at_fit(self, data):
        X, y, _ = data
        for gamma, value in ((None, 1 / 3), ("auto", 1 / 3), ("scale", 1 / (3 * X.var())), (0.2, 0.2)):
            model = KernelRidge(kernel="rbf", gamma=gamma).fit(X, y)
            assert model.kernel_.gamma == pytest.approx(value, rel=1e-12)
            assert model.gamma == gamma

    @pytest.mark.parametrize("form", [np.asarray, np.float32, sp.csr_array])
    def test_scale_counts_a_row_as_often_as_its_weight_says(self, data, form):
        X, y, Z = data
        weights = np.arange(60) % 4 - 1
        X[weights < 1] *= 1e3
        repeats = np.maximum(weights, 0)
        model = KernelRidge(0.1, kernel="rbf", gamma="scale").fit(form(X), y, weights)
        apart = clone(model).fit(form(np.repeat(X, repeats, axis=0)), np.repeat(y, repeats))
        # the same sum, in another order
        assert model.kernel_.gamma == pytest.approx(apart.kernel_.gamma, rel=1e-14)
        np.testing.assert_allclose(model.predict(form(Z)), apart.predict(form(Z)), rtol=1e-5)
        rest = clone(model).fit(form(X[weights > 0]), y[weights > 0]).kernel_.gamma
        assert clone(model).fit(form(X), y, weights > 0).kernel_.gamma == rest

    def test_precomputed(self, data):
        X, y, Z = data
        kernel = RBF(gamma=0.3)
        expected = KernelRidge(0.1, kernel=kernel).fit(X, y).predict(Z)
        for given in ("precomputed", Precomputed()):
            model = KernelRidge(0.1, kernel=given).fit(kernel(X), y)
            np.testing.assert_allclose(model.predict(kernel(Z, X)), expected, rtol=1e-10)
            assert get_tags(model).input_tags.pairwise
        model = KernelRidge(0.1, kernel=2.0 * Precomputed()).fit(0.5 * kernel(X), y)
        np.testing.assert_allclose(model.predict(0.5 * kernel(Z, X)), expected, rtol=1e-10)
        model = KernelRidge(0.1, kernel="precomputed", solver="cg", tol=1e-12).fit(kernel(X), y)
        np.testing.assert_allclose(model.predict(kernel(Z, X)), expected, rtol=1e-9)
        assert not get_tags(KernelRidge()).input_tags.pairwise

    def test_searches_split_a_precomputed_matrix_by_rows_and_columns(self, data):
        X, y, _ = data
        grid = {"alpha": [0.1, 1.0]}
        search = GridSearchCV(KernelRidge(kernel="precomputed"), grid, cv=3).fit(RBF(0.3)(X), y)
        expected = GridSearchCV(KernelRidge(kernel=RBF(0.3)), grid, cv=3).fit(X, y)
        scores = "mean_test_score"
        np.testing.assert_allclose(search.cv_results_[scores], expected.cv_results_[scores], rtol=1e-9)


class TestConduct:
    def test_auto_keeps_to_its_budget(self, data):
        X, y, _ = data
        assert KernelRidge(kernel="rbf", memory_budget=8 * 60**2).fit(X, y).solver_used_ == "cholesky"
        assert KernelRidge(kernel="rbf", memory_budget=8 * 60**2 - 1).fit(X, y).solver_used_ == "cg"

    def test_single_precision_products_are_refined(self, monkeypatch, data):
        X, y, Z = data
        monkeypatch.setattr(ridge_module, "_SINGLE_FROM", 10)
        model = KernelRidge(0.01, kernel="rbf", solver="cg", tol=1e-10, random_state=0).fit(X, y)
        assert model.residual_ < 1e-10
        np.testing.assert_allclose(
            model.predict(Z), KernelRidge(0.01, kernel="rbf").fit(X, y).predict(Z), rtol=1e-6
        )
        far = KernelRidge(0.01, kernel="rbf", solver="cg", tol=1e-8, random_state=0).fit(X + 2.0**30, y)
        assert far.converged_

    def test_mixed_precision_predicts_what_scikit_learn_does(self, monkeypatch, data):
        X, y, Z = data
        monkeypatch.setattr(least_squares, "MIXED_FROM", 10)
        model = KernelRidge(0.01, kernel="rbf", fit_intercept=False).fit(X, y)
        assert model.solver_used_ == "cholesky, float32 refined"
        np.testing.assert_allclose(
            model.predict(Z), Reference(0.01, kernel="rbf").fit(X, y).predict(Z), rtol=1e-10
        )

    def test_repeats_with_random_state(self, data):
        X, y, _ = data
        options = {"kernel": "rbf", "solver": "cg", "precond_rank": 5}
        first, again = (KernelRidge(random_state=7, **options).fit(X, y).dual_coef_ for _ in range(2))
        np.testing.assert_array_equal(first, again)
        for state in (np.random.RandomState(0), np.random.default_rng(0), None):
            assert KernelRidge(random_state=state, **options).fit(X, y).converged_

    def test_falling_short_is_said(self, data):
        X, y, _ = data
        model = KernelRidge(1e-6, kernel="rbf", solver="cg", precond_rank=1, max_iter=2, tol=1e-10)
        with pytest.warns(ConvergenceWarning, match="conjugate gradients stopped at a residual of") as caught:
            model.fit(X, y)
        assert caught[0].filename == __file__
        assert not model.converged_
        assert model.n_iter_ == 2
        assert model.residual_ > 1e-10

    def test_what_rounding_leaves_is_said(self, rng):
        X = rng.normal(size=(200, 2))
        y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
        with pytest.warns(LinAlgWarning, match=r"a residual of .*; raise alpha, .* 1\.0e-12") as caught:
            model = KernelRidge(1e-12, kernel="rbf", gamma=0.1).fit(X, y)
        assert caught[0].filename == __file__
        assert model.residual_ > 1e-4
        assert KernelRidge(1e-8, kernel="rbf", gamma=0.1).fit(X, y).residual_ < 1e-6
        with warnings.catch_warnings():  # as an error it leaves the fit that there was
            warnings.simplefilter("error")
            kept = model.dual_coef_
            with pytest.raises(LinAlgWarning):
                model.fit(X, y + 1)
        assert model.dual_coef_ is kept

    def test_verbose_shows_the_residual(self, data, capsys):
        X, y, _ = data
        KernelRidge(kernel="rbf", solver="cg", verbose=True).fit(X, y)
        assert "residual" in "".join(capsys.readouterr())

    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("mine")])
    @both_solvers
    def test_a_fit_that_fails_leaves_the_estimator_as_it_was(self, data, solver, error):
        X, y, Z = data
        broken = False

        def f(A, B):
            if broken:
                raise error
            return A @ B.T

        model = KernelRidge(kernel=FunctionKernel(f), solver=solver, random_state=0).fit(X, y)
        before, expected = dict(vars(model)), model.predict(Z)
        broken = True
        with pytest.raises(error if isinstance(error, type) else type(error)):
            model.fit(2 * X, y)
        assert vars(model) == before
        broken = False
        np.testing.assert_array_equal(model.predict(Z), expected)

    def test_pickle_repr_and_refit(self, data):
        X, y, Z = data
        model = KernelRidge(0.1, kernel=RBF(gamma=0.3)).fit(X, y)
        loaded = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(loaded.predict(Z), model.predict(Z))
        assert repr(model) == "KernelRidge(alpha=0.1, kernel=RBF(gamma=0.3))"

    def test_score_is_r2_and_undefined_for_one_row(self, data):
        X, y, _ = data
        model = KernelRidge(kernel="rbf").fit(X, y)
        residual = y - model.predict(X)
        assert model.score(X, y) == pytest.approx(1 - residual @ residual / np.sum((y - y.mean()) ** 2))
        with pytest.warns(UndefinedMetricWarning):
            assert np.isnan(model.score(X[:1], y[:1]))

    @pytest.mark.parametrize("n_jobs", [1, 2, -1])
    def test_threads_change_rounding_only(self, data, n_jobs):
        X, y, Z = data
        expected = KernelRidge(kernel="rbf").fit(X, y).predict(Z)
        np.testing.assert_allclose(
            KernelRidge(kernel="rbf", n_jobs=n_jobs).fit(X, y).predict(Z), expected, rtol=1e-10
        )


@pytest.mark.parametrize("n_targets", [None, 3])
@pytest.mark.parametrize("alpha", [1e-2, 1.0])
def test_conjugate_gradients_at_a_size_of_their_own(rng, alpha, n_targets):
    """Rows enough for single-precision products, adaptive ranks and float32 factors, against Cholesky."""
    X = rng.normal(size=(2500, 5))
    y = np.sin(X @ rng.normal(size=(5, n_targets or 1))) + 0.1 * rng.normal(size=(2500, n_targets or 1)) + 7
    y = y[:, 0] if n_targets is None else y
    weights = rng.uniform(0.2, 2, size=2500)
    options = {"alpha": alpha, "kernel": RBF(gamma=0.2) + 0.1 * Linear()}
    direct = KernelRidge(solver="cholesky", **options).fit(X, y, weights)
    model = KernelRidge(solver="cg", tol=1e-9, random_state=0, **options).fit(X, y, weights)
    assert direct.solver_used_ == "cholesky, float32 refined"
    assert model.converged_
    assert model.residual_ <= 1e-9
    assert direct.residual_ < 1e-11
    Z = rng.normal(size=(100, 5))
    np.testing.assert_allclose(model.predict(Z), direct.predict(Z), rtol=1e-5, atol=1e-6)


class TestWithoutPenalty:
    def test_regular_kernels_meet_their_targets(self, data):
        X, y, _ = data
        model = KernelRidge(0.0, kernel=Laplacian(1.0)).fit(X, y)
        np.testing.assert_allclose(model.predict(X), y, rtol=1e-10)

    def test_samples_beyond_the_range_are_named(self, data):
        X, y, _ = data
        for solver in SOLVERS:
            with (
                np.errstate(over="ignore", invalid="ignore"),
                pytest.raises(ValueError, match=r"infinite or NaN in row 0.*scale the samples"),
            ):
                KernelRidge(solver=solver).fit(X * 1e200, y)

    def test_singular_ones_name_the_row(self, data):
        X, y, _ = data
        with pytest.raises(
            NotPositiveDefinite, match=r"not positive definite at pivot 3 .*raise alpha above"
        ):
            KernelRidge(0.0, kernel="linear").fit(X, y)
        weights = np.ones(60)
        weights[1] = 0
        with pytest.raises(NotPositiveDefinite, match="at pivot 4 "):
            KernelRidge(0.0, kernel="linear").fit(X, y, weights)

    def test_an_indefinite_matrix(self):
        with pytest.raises(NotPositiveDefinite, match=r"pivot 1 \(-2\.0e\+00\); raise alpha above 1e\+01"):
            KernelRidge(1.0, kernel="precomputed").fit(np.diag([1.0, -3.0]), [1.0, 2.0])


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("n", [100, 700, 1300])
def test_threads_change_nothing(solver, n, rng):
    """Bit for bit, whatever route is taken: float64, float32 refined, conjugate gradients."""
    X, y = rng.normal(size=(n, 4)), rng.normal(size=(n, 2))
    models = [
        KernelRidge(0.1, kernel=RBF(0.5), solver=solver, n_jobs=jobs, random_state=0).fit(X, y)
        for jobs in (1, 2, 3)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.dual_coef_, models[0].dual_coef_)
        np.testing.assert_array_equal(model.predict(X[:50]), models[0].predict(X[:50]))
        np.testing.assert_array_equal(model.leave_one_out_, models[0].leave_one_out_)


@pytest.mark.parametrize("alpha", [1e-5, 1.6e-5, 3e-5, 1e-4, 3e-4])
def test_conjugate_gradients_where_a_float32_factor_would_fail(alpha, rng):
    """The trace over alpha goes through 1e6 to 3e7."""
    X = rng.standard_normal((300, 3))
    y = np.sin(X[:, 0])
    own = KernelRidge(alpha, kernel=Laplacian(0.3), solver="cg", random_state=0).fit(X, y)
    exact = KernelRidge(alpha, kernel=Laplacian(0.3)).fit(X, y)
    assert own.converged_
    np.testing.assert_allclose(own.predict(X), exact.predict(X), atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_conjugate_gradients_with_weights_over_decades(seed):
    rng = np.random.default_rng(seed)
    X, weights = rng.standard_normal((300, 3)), 10.0 ** rng.uniform(-4, 4, 300)
    y = np.sin(X[:, 0])
    own = KernelRidge(1e-2, kernel=RBF(0.3), solver="cg", random_state=0).fit(X, y, weights)
    assert own.converged_
    exact = KernelRidge(1e-2, kernel=RBF(0.3)).fit(X, y, weights)
    loss = [weights @ np.square(m.predict(X) - y) for m in (own, exact)]
    assert loss[0] == pytest.approx(loss[1], rel=1e-3, abs=1e-9)

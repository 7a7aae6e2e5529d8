"""What bad input gets from the five support vector machines: an error that names cause and remedy."""

import re
import sys
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError

from mercer import SVC, SVR, KernelLogisticRegression, KernelRegressor, NuSVC, NuSVR, OneClassSVM
from mercer.kernels import RBF, Linear

MACHINES = [SVC, NuSVC, SVR, NuSVR, OneClassSVM]
CLASSIFIERS = [SVC, NuSVC]
every_machine = pytest.mark.parametrize("machine", MACHINES)
both_classifiers = pytest.mark.parametrize("machine", CLASSIFIERS)

X = np.array([[-2.0, -1.0], [-1.0, -1.0], [-1.0, -2.0], [1.0, 1.0], [1.0, 2.0], [2.0, 1.0]])
Y = np.array([1, 1, 1, 2, 2, 2])
NO_WEIGHT = "Invalid input - all samples have zero or negative weights"
ONE_LABEL = "Invalid input - all samples with positive weights belong to the same class"


def _id(value):
    """A name that is the same in each process: a function's repr has its address."""
    if not isinstance(value, dict):
        return ""
    return "-".join(f"{name}={'function' if callable(item) else item}" for name, item in value.items())


class TestParameters:
    @pytest.mark.parametrize("machine", [SVC, SVR, NuSVR])
    @pytest.mark.parametrize("C", [0, 0.0, -1.0, np.nan, -np.inf])
    def test_c(self, machine, C):
        with pytest.raises(ValueError, match=r"C must be.*got"):
            machine(C=C).fit(X, Y)

    @pytest.mark.parametrize("machine", [NuSVC, NuSVR, OneClassSVM])
    @pytest.mark.parametrize("nu", [0, -0.1, 1.1, np.nan, np.inf])
    def test_nu(self, machine, nu):
        with pytest.raises(ValueError, match="nu must be"):
            machine(nu=nu).fit(X, Y)

    @pytest.mark.parametrize("epsilon", [-0.1, np.nan, np.inf])
    def test_epsilon(self, epsilon):
        with pytest.raises(ValueError, match="epsilon must be"):
            SVR(epsilon=epsilon).fit(X, Y)

    @every_machine
    @pytest.mark.parametrize(
        ("params", "error", "message"),
        [
            ({"tol": 0}, ValueError, "tol must be"),
            ({"tol": -1e-3}, ValueError, "tol must be"),
            ({"tol": np.inf}, ValueError, "tol must be finite, got inf"),
            ({"kernel": "poly", "coef0": np.nan}, ValueError, "coef0 must be .* finite, got nan"),
            ({"kernel": "poly", "coef0": -np.inf}, ValueError, "coef0 must be .* finite, got -inf"),
            ({"tol": "small"}, TypeError, "tol must be a number"),
            ({"max_iter": 1.5}, TypeError, "max_iter must be an integer"),
            ({"max_iter": -2}, ValueError, "max_iter must be"),
            ({"cache_size": 0}, ValueError, "cache_size must be"),
            ({"cache_size": "big"}, TypeError, "cache_size must be"),
            ({"shrinking": "yes"}, TypeError, "shrinking must be True or False"),
            ({"kernel": "rfb"}, ValueError, "'rbf'"),
            ({"kernel": 3}, TypeError, "kernel must be"),
            ({"kernel": RBF}, TypeError, "an instance"),
            ({"gamma": -1.0}, ValueError, "RBF: gamma must be positive and finite, got -1.0"),
            ({"gamma": 0}, ValueError, "RBF: gamma must be positive and finite, got 0"),
            ({"kernel": "linear", "gamma": -1.0}, ValueError, "gamma must be at least 0, got -1.0"),
            ({"gamma": np.nan}, ValueError, "RBF: gamma must be positive and finite, got nan"),
            ({"gamma": [1.0, 2.0]}, ValueError, r"pass RBF\(gamma=…\)"),
            ({"gamma": "big"}, ValueError, "gamma='big' is unknown"),
            ({"kernel": "poly", "degree": -1}, ValueError, "degree must be"),
            ({"degree": -1}, ValueError, "degree must be at least 0"),
            ({"degree": 1.5}, TypeError, "degree must be an integer"),
            ({"coef0": np.nan}, ValueError, "coef0 must be finite"),
            ({"coef0": "a"}, TypeError, "coef0 must be a number"),
            ({"kernel": "poly", "coef0": "one"}, TypeError, "coef0 must be"),
            ({"n_jobs": 0}, ValueError, "n_jobs"),
            ({"kernel": lambda x, z: x[:, :1]}, ValueError, "shape"),
        ],
        ids=_id,
    )
    def test_shared_ones(self, machine, params, error, message):
        with pytest.raises(error, match=message):
            machine(**params).fit(X, Y)

    @every_machine
    def test_a_callable_of_two_rows_is_told_of_its_blocks(self, machine):
        with pytest.raises(ValueError, match="matmul") as caught:
            machine(kernel=lambda x, z: float(x @ z)).fit(X, Y)
        (note,) = caught.value.__notes__
        assert "<lambda> was called with two blocks, of" in note
        assert "becomes one of blocks by" in note

    @pytest.mark.parametrize("machine", [SVC, SVR, NuSVR])
    @pytest.mark.parametrize("C", ["1", None, True, [1.0, 2.0]])
    def test_c_that_is_no_number(self, machine, C):
        with pytest.raises(TypeError, match="C must be a number"):
            machine(C=C).fit(X, Y)

    @both_classifiers
    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"decision_function_shape": "ovx"}, "decision_function_shape='ovx' is unknown.*'ovr'"),
            ({"class_weight": "balance"}, "balanced"),
            ({"class_weight": {7: 2.0}}, "not in class_weight|7"),
            ({"class_weight": {1: -1.0}}, "class_weight"),
            ({"class_weight": {1: np.nan}}, "class_weight"),
            ({"class_weight": {1: np.inf}}, r"class_weight\[1\] must be finite, got inf"),
            ({"class_weight": {1: 0.0, 2: 0}}, f"{NO_WEIGHT}.*class_weight"),
            ({"break_ties": "sometimes"}, "break_ties='sometimes' is unknown; known are 'auto', True, False"),
            ({"probability": "deprecated_"}, "probability"),
        ],
        ids=str,
    )
    def test_of_classifiers(self, machine, params, message):
        with pytest.raises((ValueError, TypeError), match=message):
            machine(**params).fit(X, Y)

    def test_multiclass(self):
        with pytest.raises(ValueError, match=r"multiclass='crammer_singr' is unknown.*'crammer-singer'"):
            SVC(multiclass="crammer_singr").fit(X, Y)

    @both_classifiers
    def test_breaking_ties_of_pairs(self, machine):
        """scikit-learn's words; it says so at predict, and at fit is as good."""
        three = np.array([0, 0, 1, 1, 2, 2])
        with pytest.raises(ValueError, match="break_ties must be False"):
            machine(decision_function_shape="ovo", break_ties=True).fit(X, three).predict(X)


class TestSamples:
    @every_machine
    @pytest.mark.parametrize(
        ("samples", "message"),
        [
            (np.where(X > 1.5, np.nan, X), "Input X contains NaN"),
            (np.where(X > 1.5, np.inf, X), "infinity"),
            (X[0], "Reshape your data"),
            (np.ones((0, 2)), r"0 sample\(s\)"),
            (np.ones((6, 0)), r"0 feature\(s\)"),
            (X.astype(complex), "Complex data not supported"),
            (X[:, :, None], "3D|dim"),
        ],
        ids=["nan", "inf", "one row", "no rows", "no columns", "complex", "three axes"],
    )
    def test_x(self, machine, samples, message):
        with pytest.raises(ValueError, match=message):
            machine().fit(samples, Y[: len(samples)])

    @pytest.mark.parametrize("machine", [SVC, NuSVC, SVR, NuSVR])
    def test_y(self, machine):
        with pytest.raises(ValueError, match=r"6 .*5|inconsistent"):
            machine().fit(X, Y[:5])
        with pytest.raises(ValueError, match="requires y"):
            machine().fit(X, None)
        with pytest.raises(ValueError, match="NaN"):
            machine().fit(X, np.where(Y > 1, np.nan, 1.0))
        with pytest.raises(ValueError, match=r"1d|shape"):
            machine().fit(X, np.column_stack([Y, Y]))

    @both_classifiers
    def test_targets_that_are_no_labels(self, machine):
        with pytest.raises(ValueError, match=r"Unknown label type|continuous"):
            machine().fit(X, Y + np.linspace(0, 0.5, 6))

    @pytest.mark.parametrize("machine", [SVR, NuSVR])
    def test_targets_that_are_no_numbers(self, machine):
        with pytest.raises((ValueError, TypeError), match=r"'a'|string|number"):
            machine().fit(X, list("abcabc"))

    @both_classifiers
    @pytest.mark.parametrize("label", [0, "a", True])
    def test_one_class_only(self, machine, label):
        with pytest.raises(ValueError, match=r"number of classes has to be greater than one; got 1 class"):
            machine().fit(X, [label] * 6)

    @every_machine
    def test_before_fit_and_other_widths(self, machine):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            machine().predict(X)
        model = machine().fit(X, Y)
        with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2 features"):
            model.predict(X[:, :1])
        with pytest.raises(ValueError, match="NaN"):
            model.predict(np.where(X > 1.5, np.nan, X))

    def test_a_fit_that_fails_leaves_the_estimator(self):
        model = SVC().fit(X, Y)
        before, values = dict(model.__dict__), model.decision_function(X)
        with pytest.raises(ValueError, match="greater than one"):
            model.fit(X, [1] * 6)
        assert model.__dict__ == before
        np.testing.assert_array_equal(model.decision_function(X), values)

    @every_machine
    def test_a_users_exception_passes_unchanged(self, machine):
        class Mine(Exception):
            pass

        def kernel(x, z):
            raise Mine("inside")

        with pytest.raises(Mine, match="inside"):
            machine(kernel=kernel).fit(X, Y)


class TestWeights:
    @every_machine
    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            (np.ones(5), "weight"),
            (np.ones((6, 2)), "weight"),
            (np.array([1, 1, np.nan, 1, 1, 1]), "NaN|finite"),
            (np.array([1, 1, np.inf, 1, 1, 1]), "infinity|finite"),
        ],
        ids=["too few", "two columns", "nan", "inf"],
    )
    def test_no_weights_at_all(self, machine, weights, message):
        with pytest.raises(ValueError, match=message):
            machine().fit(X, Y, sample_weight=weights)

    @every_machine
    def test_a_word_is_not_said_to_be_somewhere(self, machine):
        with pytest.raises(ValueError, match="sample_weight holds the string 'balanced', where a number"):
            machine().fit(X, Y, sample_weight="balanced")

    @every_machine
    @pytest.mark.parametrize("weight", [0.0, -0.3])
    def test_none_is_positive(self, machine, weight):
        with pytest.raises(ValueError, match=NO_WEIGHT):
            machine().fit(X, Y, sample_weight=np.full(6, weight))

    @every_machine
    def test_their_sum_leaves_the_range(self, machine):
        with pytest.raises(ValueError, match=r"sums to more than float64 holds \(its largest is 1e\+308\)"):
            machine().fit(X, Y, sample_weight=np.full(6, 1e308))

    @pytest.mark.parametrize("machine", [SVC, SVR, NuSVR])
    @pytest.mark.parametrize(("C", "weight"), [(1e300, 1e10), (1e-300, 1e-100)])
    def test_with_c_they_leave_the_range(self, machine, C, weight):
        """A finite C allows errors, and a weight larger than 0 is there."""
        with pytest.raises(ValueError, match=r"C times sample_weight.* leaves float64's range: 1e"):
            machine(C=C).fit(X, Y, sample_weight=np.full(6, weight))

    @both_classifiers
    def test_with_those_of_classes_they_leave_the_range(self, machine):
        with pytest.raises(ValueError, match="class_weight times sample_weight leaves float64's range"):
            machine(class_weight={1: 1e300}).fit(X, Y, sample_weight=np.full(6, 1e10))

    @pytest.mark.parametrize("weights", [[0, -0.5, 0, 1, 1, 1], [1, 1, 1, 0, -0.1, -0.3]], ids=str)
    def test_one_class_is_left(self, weights):
        with pytest.raises(ValueError, match=ONE_LABEL):
            SVC().fit(X, Y, sample_weight=weights)
        # scikit-learn's words for ν-SVC; either is right
        with pytest.raises(ValueError, match=f"{ONE_LABEL}|specified nu is infeasible"):
            NuSVC().fit(X, Y, sample_weight=weights)

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    @pytest.mark.parametrize("gone", [0, 1, 2])
    def test_one_of_several_classes_is_left_out(self, form, gone):
        """Its label stays in ``classes_``; it is never predicted, and its probability is 0."""
        rng = np.random.default_rng(0)
        labels = np.repeat(["a", "b", "c"], 20)
        samples = rng.normal(size=(60, 2)) + np.repeat([[0, 0], [3, 0], [0, 3]], 20, axis=0)
        weights = np.where(labels == "abc"[gone], 0.0, 1.0)
        rest = weights > 0
        for shape in ("ovr", "ovo"):
            model = SVC(probability=True, random_state=0, decision_function_shape=shape)
            model.fit(form(samples), labels, sample_weight=weights)
            assert list(model.classes_) == ["a", "b", "c"]
            assert model.n_support_[gone] == 0
            alone = SVC(kernel="rbf", gamma=model.kernel_.gamma).fit(form(samples[rest]), labels[rest])
            np.testing.assert_array_equal(model.predict(form(samples)), alone.predict(form(samples)))
            proba = model.predict_proba(form(samples))
            assert proba.shape == (60, 3)
            np.testing.assert_array_equal(proba[:, gone], 0)
            np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)


class TestNu:
    @pytest.mark.parametrize(
        ("y", "weights", "largest"),
        [
            ([1, 1, 1, 1, 1, 2], None, 1 / 3),
            ([1, 1, 1, 1, 2, 2], None, 2 / 3),
            ([1, 1, 1, 2, 2, 2], [1, 1, 1, 0.5, 0.25, 0.25], 0.5),
            ([1, 1, 1, 2, 2, 3], None, 0.5),
        ],
        ids=str,
    )
    def test_infeasible_says_what_is_feasible(self, y, weights, largest):
        with pytest.raises(ValueError, match=r"specified nu is infeasible.*0\.\d") as caught:
            NuSVC(nu=0.9).fit(X, y, sample_weight=weights)
        numbers = [float(word) for word in _numbers(str(caught.value))]
        assert any(abs(number - largest) < 1e-3 for number in numbers), caught.value
        NuSVC(nu=largest * (1 - 1e-6)).fit(X, y, sample_weight=weights)

    def test_the_largest_itself_is_feasible(self):
        model = NuSVC(nu=2 / 3).fit(X, [1, 1, 1, 1, 2, 2])
        assert np.all(np.isfinite(model.intercept_))
        assert np.all(np.isfinite(model.dual_coef_))

    @staticmethod
    def two_sides(size, weight, tol, unless=None):
        """A model of two classes apart, without a warning but `unless`, and its decisions."""
        rng = np.random.default_rng(0)
        samples, y = rng.normal(size=(60, 2)), np.repeat([0, 1], 30)
        samples[:, 0] += 4 * y - 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if unless is not None:
                warnings.filterwarnings("ignore", message=unless)
            model = NuSVC(nu=0.3, kernel="linear", tol=tol)
            model.fit(size * samples, y, sample_weight=np.full(60, weight))
        return model, model.decision_function(size * samples)

    @pytest.mark.parametrize("size", [1e3, 1e-5, 1e-8])
    @pytest.mark.parametrize("weight", [1.0, 1e-9])
    def test_small_samples_and_weights_have_a_margin(self, size, weight):
        model, decisions = self.two_sides(1.0, 1.0, 1e-6)
        scaled, found = self.two_sides(size, weight, 1e-6 * size**2 * weight)
        np.testing.assert_allclose(found, decisions, atol=1e-4)
        np.testing.assert_allclose(scaled.margin_, size * model.margin_, rtol=1e-4)

    @pytest.mark.parametrize("size", [1e-100, 1e-150])
    def test_a_square_of_rho_that_leaves_the_range_is_not_needed(self, size):
        # tol is far from so small a margin, too
        model, decisions = self.two_sides(size, 1.0, 1e-3, ".*larger than the gap")
        assert 0.5 < np.abs(decisions).mean() < 2
        assert 0.1 < model.margin_[0] / size < 10

    def test_a_margin_within_the_gap_is_said_to_be_none(self):
        """The hulls meet, and at a larger tol rho is what the solver left of its gap."""
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(40, 2)), rng.integers(0, 2, 40)
        for tol in (1e-13, 1e-6, 1e-3):
            with pytest.warns(UserWarning, match="leaves no margin"):
                NuSVC(nu=0.2, kernel="linear", tol=tol).fit(X, y)

    @pytest.mark.parametrize("size", [1e3, 1.0, 1e-5])
    def test_equal_rows_of_both_classes_have_none(self, size):
        samples = np.repeat(np.random.default_rng(0).normal(size=(30, 2)), 2, axis=0)
        with pytest.warns(UserWarning, match=r"no margin \(rho = 0\) in 1 of 1 pairs"):
            NuSVC(kernel="linear").fit(size * samples, np.tile([0, 1], 30))


def _numbers(text):
    words = (word.strip(".,;:()=[]") for word in text.replace("=", " ").split())
    return [word for word in words if word.replace(".", "", 1).replace("e-", "", 1).isdigit()]


class TestHardMargin:
    @pytest.mark.parametrize(
        ("samples", "y", "kernel"),
        [
            ([[0.0], [1.0], [2.0]], [-1, 1, -1], "linear"),
            ([[1.0], [1.0], [2.0]], [-1, 1, 1], "rbf"),
            ([[0.0, 0], [1, 1], [0, 1], [1, 0]], [1, 1, 2, 2], "linear"),
            ([[0.0], [1], [2], [3], [0.5]], [0, 0, 1, 1, 2], "linear"),
        ],
        ids=["between", "one row of both classes", "xor", "one pair of three"],
    )
    def test_inseparable_ends_soon_and_says_so(self, samples, y, kernel):
        start = time.monotonic()
        with pytest.raises(ValueError, match=r"C=inf.*separable"):
            SVC(kernel=kernel, C=np.inf).fit(samples, y)
        assert time.monotonic() - start < 1

    def test_one_row_of_both_classes_is_named(self):
        with pytest.raises(ValueError, match=r"\b1\b.*\b3\b"):
            SVC(kernel="rbf", C=np.inf).fit([[0.0], [1.0], [2.0], [1.0]], [0, 0, 1, 1])

    def test_large_and_inseparable(self):
        rng = np.random.default_rng(0)
        samples = rng.normal(size=(400, 3))
        start = time.monotonic()
        with pytest.raises(ValueError, match="separable"):
            SVC(kernel="linear", C=np.inf).fit(samples, rng.integers(0, 2, size=400))
        assert time.monotonic() - start < 5

    def test_separable_is_no_error(self):
        model = SVC(kernel="linear", C=np.inf).fit(X, Y)
        np.testing.assert_array_equal(model.predict(X), Y)


@every_machine
class TestPrecomputed:
    def test_not_square(self, machine):
        with pytest.raises(ValueError, match="square"):
            machine(kernel="precomputed").fit(X, Y)

    def test_not_symmetric(self, machine):
        K = RBF(0.3)(X)
        K[0, 1] += 0.1
        with pytest.raises(ValueError, match=r"symmetric.*\(0, 1\)"):
            machine(kernel="precomputed").fit(K, Y)

    def test_symmetric_up_to_rounding(self, machine):
        K = RBF(0.3)(X)
        K[0, 1] *= 1 + 1e-13
        machine(kernel="precomputed").fit(K, Y)

    def test_indefinite_warns_and_fits(self, machine):
        K = RBF(0.3)(X) - 0.7 * np.eye(6)
        least = np.linalg.eigvalsh(K)[0]
        assert least < -0.1
        with pytest.warns(UserWarning, match=rf"positive semidefinite.*{least:.1g}"[:-1]):
            model = machine(kernel="precomputed").fit(K, Y)
        assert np.all(np.isfinite(model.dual_coef_))
        assert np.all(np.isfinite(model.predict(K)))

    def test_sparse(self, machine):
        with pytest.raises(TypeError, match="Sparse precomputed"):
            machine(kernel="precomputed").fit(sp.csr_array(np.eye(6)), Y)

    def test_width_at_predict(self, machine):
        K = RBF(0.3)(X)
        model = machine(kernel="precomputed").fit(K, Y)
        np.testing.assert_array_equal(model.predict(K), model.predict(K[:, model.support_]))
        with pytest.raises(ValueError, match="6"):
            model.predict(np.ones((2, 9)))


class TestConvergence:
    @every_machine
    def test_a_capped_solve_warns_with_the_gap(self, machine):
        rng = np.random.default_rng(0)
        samples, y = rng.normal(size=(80, 2)), np.arange(80) % 2
        with pytest.warns(ConvergenceWarning, match=r"max_iter=2.*gap.*\d"):
            model = machine(max_iter=2, kernel="rbf").fit(samples, y)
        assert not np.all(model.converged_)
        assert model.fit_status_ == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = machine(kernel="rbf").fit(samples, y)
        assert np.all(model.converged_)
        assert model.fit_status_ == 0

    @pytest.mark.parametrize("max_iter", [1, 2, 5])
    def test_a_capped_nu_regression_has_a_tube_and_its_objective(self, max_iter):
        rng = np.random.default_rng(1)
        samples, y = rng.normal(size=(20, 2)), rng.normal(size=20)
        with pytest.warns(ConvergenceWarning):
            model = NuSVR(nu=0.9, C=10.0, gamma=1.0, max_iter=max_iter).fit(samples, y)
        assert model.epsilon_ == 0
        errors = np.abs(y - model.predict(samples))
        K = model.kernel_(model.support_vectors_)
        expected = 0.5 * model.dual_coef_[0] @ K @ model.dual_coef_[0] + 10 * errors.sum()
        np.testing.assert_allclose(model.primal_objective_, expected, rtol=1e-10)

    @pytest.mark.parametrize("params", [{}, {"multiclass": "ovr"}, {"multiclass": "crammer-singer"}], ids=str)
    def test_a_capped_fit_of_several_classes_tells_its_caller(self, params):
        rng = np.random.default_rng(0)
        samples, y = rng.normal(size=(900, 3)), rng.integers(0, 3, size=900)
        with pytest.warns(ConvergenceWarning, match=r"max_iter=1\).*gap.*\d") as caught:
            model = SVC(C=10.0, max_iter=1, **params).fit(samples, y)
        assert {warning.filename for warning in caught} == {__file__}
        assert model.fit_status_ == 1
        assert not model.converged_.any()
        assert np.all(model.n_iter_ == 1)
        assert model.solver_used_.startswith("blocks" if "crammer" in str(params) else "smo")

    def test_tol_beyond_rounding_ends(self):
        """Either it gets there, or it says that it did not."""
        rng = np.random.default_rng(0)
        samples, y = 100 * rng.normal(size=(60, 2)), rng.integers(0, 2, size=60)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = SVC(kernel=Linear(), C=10.0, tol=1e-15).fit(samples, y)
        told = any(issubclass(w.category, ConvergenceWarning) for w in caught)
        assert told != bool(np.all(model.converged_))

    def test_samples_beyond_the_range(self):
        with pytest.raises(ValueError, match="The dual coefficients or intercepts are not finite"):
            SVC(kernel="linear").fit(1e200 * X, Y)
        with pytest.raises(ValueError, match="variance of X, from which gamma='scale' comes"):
            SVC().fit(1e200 * X, Y)

    @every_machine
    def test_samples_whose_variance_no_kernel_reads(self, machine):
        machine(kernel="cosine", gamma="scale").fit(1e200 * X, Y)


@both_classifiers
def test_a_seed_that_is_none_is_told_although_nothing_is_drawn(machine):
    with pytest.raises(ValueError, match="'a' cannot be used to seed"):
        machine(random_state="a").fit(X, Y)


@pytest.mark.parametrize("machine", [*CLASSIFIERS, SVR, KernelLogisticRegression, KernelRegressor])
def test_a_column_of_targets_is_told_where_fit_is_called(machine):
    with pytest.warns(DataConversionWarning, match="column-vector") as caught:
        machine().fit(X, Y[:, None])
    assert caught[0].filename == __file__


class TestProgress:
    @pytest.mark.parametrize(
        ("model", "end"),
        [
            (SVC(), "SVC: 100%.* 1/1 .*, gap "),
            (SVC(multiclass="ovr"), "SVC: 100%.* 3/3 .*, gap "),
            (SVC(probability=True), "SVC: 100%.* 18/18 .*, gap "),  # three pairs, and in five folds
            (SVC(multiclass="crammer-singer"), "SVC: .*, gap "),
            (NuSVC(nu=0.4), "NuSVC: 100%.* 3/3 .*, gap "),
            (SVR(), "SVR: 100%.* 1/1 .*, gap "),
        ],
    )
    def test_all_problems_are_told_in_the_end(self, model, end, rng, capfd):
        n_classes = 2 if end.startswith("SVC: 100%.* 1/1") else 3
        y = np.arange(30) % n_classes
        model.set_params(verbose=True).fit(rng.normal(size=(30, 2)) + y[:, None], y)
        assert re.search(end, capfd.readouterr().err)

    def test_without_tqdm(self, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
        SVC(verbose=True).fit(X, Y)
        assert re.fullmatch(r"SVC: step 1, gap .*\n", capsys.readouterr().out)

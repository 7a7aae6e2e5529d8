"""The five support vector machines against a general QP solver, on problems of a few samples.

`qp.solve` knows nothing of working sets; it certifies its optimum to 1e-9 before anything is compared.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import svm as reference
from sklearn.datasets import load_iris, load_wine

import qp
from mercer import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from mercer.kernels import RBF, Linear, Polynomial

KERNELS = {
    "linear": ({"kernel": "linear"}, Linear()),
    "rbf": ({"kernel": "rbf", "gamma": 0.5}, RBF(gamma=0.5)),
    "poly": ({"kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 1.0}, Polynomial(2, gamma=0.5)),
    "expression": ({"kernel": 0.5 * RBF(gamma=0.3) + Linear()}, 0.5 * RBF(gamma=0.3) + Linear()),
    "precomputed": ({"kernel": "precomputed"}, RBF(gamma=0.2)),
}
CLASSES = {"c_svc": SVC, "nu_svc": NuSVC, "epsilon_svr": SVR, "nu_svr": NuSVR, "one_class": OneClassSVM}
CLASSIFIERS = ("c_svc", "nu_svc")
kinds = pytest.mark.parametrize("kind", CLASSES)

# In units of the gradient. What follows from it for objectives and decision values is far below 1e-6.
TOL = 1e-9


@dataclass(frozen=True)
class Problem:
    """One small problem: y holds ±1 for classifiers; nu of a ν-SVC is a share of the largest feasible one."""

    kind: str
    kernel: str
    X: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    C: float = 1.0
    nu: float = 0.5
    epsilon: float = 0.1

    def __repr__(self):
        data = f"X={self.X.tolist()}, y={self.y.tolist()}, weights={self.weights.tolist()}"
        return f"{self.kind}({self.kernel}, {data}, C={self.C}, nu={self.nu}, epsilon={self.epsilon})"

    @property
    def k(self):
        return KERNELS[self.kernel][1]

    @property
    def feasible_nu(self):
        if self.kind != "nu_svc":
            return self.nu
        sides = [self.weights[self.y == s].sum() for s in (-1, 1)]
        return self.nu * 2 * min(sides) / sum(sides)

    @property
    def box(self):
        """The upper bound of each sample's |β|, before the scale of ν-SVC."""
        weights = self.weights[self.weights > 0]
        box = np.zeros(len(self.weights))
        box[self.weights > 0] = weights * (self.C if self.kind in ("c_svc", "epsilon_svr", "nu_svr") else 1.0)
        return box

    def dual(self):
        K = self.k(self.X)
        return {
            "c_svc": lambda: qp.c_svc(K, self.y, self.box),
            "nu_svc": lambda: qp.nu_svc(K, self.y, self.feasible_nu, self.weights),
            "epsilon_svr": lambda: qp.epsilon_svr(K, self.y, self.box, self.epsilon),
            "nu_svr": lambda: qp.nu_svr(K, self.y, self.box, self.nu),
            "one_class": lambda: qp.one_class(K, self.nu, self.weights),
        }[self.kind]()

    def estimator(self, **changes):
        params = {**KERNELS[self.kernel][0], "tol": TOL}
        if self.kind in ("c_svc", "epsilon_svr", "nu_svr"):
            params["C"] = self.C
        if self.kind == "epsilon_svr":
            params["epsilon"] = self.epsilon
        if self.kind in ("nu_svc", "nu_svr", "one_class"):
            params["nu"] = self.feasible_nu
        return CLASSES[self.kind](**{**params, **changes})

    def samples(self, Z=None):
        """What fit, or predict, is given."""
        if self.kernel == "precomputed":
            return self.k(self.X) if Z is None else self.k(Z, self.X)
        return self.X if Z is None else Z

    def fit(self, form=np.asarray, **changes):
        X = self.samples() if self.kernel == "precomputed" else form(self.samples())
        y = None if self.kind == "one_class" else self.y
        return self.estimator(**changes).fit(X, y, sample_weight=self.weights)


def assume_a_scale(problem):
    """Leave out ν-SVC with ρ = 0: the classes' hulls meet, and nothing can be divided by it."""
    if problem.kind == "nu_svc":
        assume(qp.solve(problem.dual()).scale > 1e-3)


def dense(array):
    return array.toarray() if sp.issparse(array) else np.asarray(array)


def coefficients(model, n):
    """β of a binary or one-valued model over all n samples."""
    beta = np.zeros(n)
    beta[model.support_] = dense(model.dual_coef_)[0]
    return beta


def decision(model, X):
    return model.predict(X) if isinstance(model, SVR | NuSVR) else model.decision_function(X)


def objective(problem, beta):
    """The dual objective at β, undone from ν-SVC's scale; its variables are the smallest that give β."""
    K = problem.k(problem.X)
    linear = {
        "c_svc": -np.abs(beta).sum(),
        "nu_svc": 0.0,
        "epsilon_svr": problem.epsilon * np.abs(beta).sum() - problem.y @ beta,
        "nu_svr": -problem.y @ beta,
        "one_class": 0.0,
    }[problem.kind]
    return 0.5 * beta @ K @ beta + linear


def check_against_oracle(problem, form=np.asarray):
    """Everything that a fit says about a problem with a unique w, against the certified optimum."""
    solution = qp.solve(problem.dual())
    model = problem.fit(form)
    beta, scale = coefficients(model, len(problem.X)), 1.0
    if problem.kind == "nu_svc":
        scale = problem.feasible_nu * problem.weights.sum() / np.abs(beta).sum()
    beta, bias = beta * scale, float(model.intercept_[0]) * scale
    size = max(1.0, float(np.abs(problem.k(problem.X) @ solution.beta).max()))
    check_feasible(problem, solution, beta)
    found = objective(problem, beta)
    assert found == pytest.approx(solution.objective, rel=1e-6, abs=TOL * problem.box.sum())
    # w is unique, hence w·x everywhere; the bias is so only up to its interval.
    lo, hi = solution.bias_interval
    assert lo - 1e-5 * size <= bias <= hi + 1e-5 * size
    for Z in (None, np.array([[0.3], [-1.7], [40.0]]) * np.ones(problem.X.shape[1])):
        K = problem.k(problem.X if Z is None else Z, problem.X)
        values = decision(model, problem.samples(Z)) * scale - bias
        far = max(size, float(np.abs(K).max()))
        np.testing.assert_allclose(values, K @ solution.beta, rtol=1e-5, atol=1e-5 * far)
    check_report(problem, model, solution)


def check_feasible(problem, solution, beta):
    slack = 1e-9 * max(1.0, problem.box.sum())
    assert np.all(np.abs(beta) <= problem.box + slack)
    assert np.all(beta[problem.weights <= 0] == 0)
    if problem.kind == "one_class":
        assert beta.min() >= 0
        assert beta.sum() == pytest.approx(problem.nu * problem.weights.sum(), rel=1e-9)
    else:
        assert abs(beta.sum()) <= slack
    if problem.kind in CLASSIFIERS:
        assert np.all(problem.y * beta >= 0)
    if problem.kind == "nu_svr":
        assert np.abs(beta).sum() <= solution.dual.totals.sum() + slack


def check_report(problem, model, solution):
    """objective_, duality_gap_ and primal_objective_, whose sum with the dual's is the gap."""
    room = 1e-6 * abs(solution.objective) + TOL * problem.box.sum()
    gap, value = np.ravel(model.duality_gap_), np.ravel(model.objective_)
    primal = np.ravel(model.primal_objective_)
    assert gap.shape == value.shape == primal.shape == np.ravel(model.converged_).shape == (1,)
    assert np.all(model.converged_)
    assert value[0] == pytest.approx(solution.objective, abs=room)
    assert 0 <= gap[0] <= 10 * room
    assert primal[0] + value[0] == pytest.approx(gap[0], abs=room)
    assert primal[0] == pytest.approx(-solution.objective, abs=10 * room)
    beta = coefficients(model, len(problem.X))
    squared = beta @ problem.k(problem.X) @ beta
    if squared > 1e-12 * max(1.0, np.abs(beta).sum()) ** 2:
        np.testing.assert_allclose(np.ravel(model.margin_), 1 / np.sqrt(squared), rtol=1e-5)


# --------------------------------------------------------------------------------- many small problems


@st.composite
def problems(draw, kind):
    """Integer grids of 2 to 14 points, so that ties, repeated rows and rows of both classes are common."""
    n, d = draw(st.integers(2, 14)), draw(st.integers(1, 2))
    X = np.array(draw(st.lists(st.lists(st.integers(-2, 2), min_size=d, max_size=d), min_size=n, max_size=n)))
    if kind in CLASSIFIERS:
        y = np.array(
            [1.0, -1.0, *draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=n - 2, max_size=n - 2))]
        )
    else:
        y = np.array(draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n)), float)
    weights = [
        1.0,
        1.0,
        *draw(st.lists(st.sampled_from([0, 0.5, 1, 1, 2, 3]), min_size=n - 2, max_size=n - 2)),
    ]
    if draw(st.booleans()):
        weights = np.ones(n)
    return Problem(
        kind,
        draw(st.sampled_from(list(KERNELS))),
        X.astype(float),
        y,
        np.array(weights, float),
        C=draw(st.sampled_from([0.01, 0.1, 1.0, 10.0, 100.0])),
        nu=draw(st.sampled_from([0.1, 0.3, 0.5, 0.8, 0.95])),
        epsilon=draw(st.sampled_from([0.0, 0.1, 1.0, 3.0])),
    )


@kinds
@given(data=st.data())
def test_small_problems(kind, data):
    problem = data.draw(problems(kind))
    assume_a_scale(problem)
    check_against_oracle(problem, data.draw(st.sampled_from([np.asarray, sp.csr_array])))


@given(problem=problems("c_svc"))
def test_hard_margin(problem):
    """C=inf: the oracle's margin if there is one, an error at once if there is none."""
    problem = replace(problem, C=np.inf)
    try:
        solution = qp.solve(problem.dual())
    except qp.Unbounded:
        with pytest.raises(ValueError, match="separable"):
            problem.fit()
        return
    model = problem.fit()
    beta = coefficients(model, len(problem.X))
    assert objective(problem, beta) == pytest.approx(solution.objective, rel=1e-6)
    margins = problem.y * model.decision_function(problem.samples())
    assert margins[problem.weights > 0].min() >= 1 - 1e-5
    np.testing.assert_allclose(margins * problem.y, solution.decision(problem.k(problem.X)), atol=1e-4)
    assert np.all(np.isfinite(model.duality_gap_))


@kinds
@given(data=st.data())
def test_order_of_the_samples_does_not_matter(kind, data):
    problem = data.draw(problems(kind))
    order = np.array(data.draw(st.permutations(range(len(problem.X)))))
    assume_a_scale(problem)
    again = replace(problem, X=problem.X[order], y=problem.y[order], weights=problem.weights[order])
    Z = problem.X
    one, two = (decision(p.fit(), p.samples(Z)) for p in (problem, again))
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5 * max(1, np.abs(one).max()))


@pytest.mark.parametrize("params", [{}, {"class_weight": "balanced"}, {"multiclass": "ovr"}], ids=str)
def test_order_of_the_samples_changes_no_number_that_is_fixed_before_the_fit(params, rng):
    """A last digit of γ or of a class's weight moves the end of the fit within tol."""
    for _ in range(10):
        X, y, weights = (
            rng.normal(size=(60, 3)),
            rng.integers(0, 3, size=60),
            10 ** rng.uniform(-3, 3, size=60),
        )
        order = rng.permutation(60)
        for w in (np.ones(60), weights):
            found = SVC(**params).fit(X, y, sample_weight=w)
            other = SVC(**params).fit(X[order], y[order], sample_weight=w[order])
            assert other.kernel_ == found.kernel_
            np.testing.assert_array_equal(other.class_weight_, found.class_weight_)
            np.testing.assert_array_equal(other.objective_, found.objective_)


@kinds
@given(data=st.data())
def test_a_weight_is_a_repetition(kind, data):
    """Integer weights and repeated rows are one problem, so that they have one bias, too."""
    problem = data.draw(problems(kind))
    repeats = np.round(problem.weights).astype(int)
    problem = replace(problem, weights=repeats.astype(float))
    assume_a_scale(problem)
    rows = np.repeat(np.arange(len(repeats)), repeats)
    again = replace(problem, X=problem.X[rows], y=problem.y[rows], weights=np.ones(len(rows)))
    one, two = (decision(p.fit(), p.samples(problem.X)) for p in (problem, again))
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5 * max(1, np.abs(one).max()))


# ------------------------------------------------------------------------------------ chosen problems


def line(kind, y, *, x=None, weights=None, **params):
    """A problem on a line with the linear kernel."""
    x = np.arange(len(y), dtype=float) if x is None else np.asarray(x, float)
    weights = np.ones(len(y)) if weights is None else np.asarray(weights, float)
    return Problem(kind, "linear", x[:, None], np.asarray(y, float), weights, **params)


CHOSEN = {
    "two points": line("c_svc", [-1, 1], C=10.0),
    "two points, both at the bound": line("c_svc", [-1, 1], C=0.1),
    "one point of both classes": line("c_svc", [-1, 1], x=[1, 1]),
    "all at the bound, biases of an interval": line("c_svc", [-1, -1, 1, 1], C=0.01),
    "unequal classes at the bound": line("c_svc", [-1, -1, -1, 1], C=0.01),
    "a margin and a point inside": line("c_svc", [-1, 1, -1, 1], x=[0, 1, 2, 5], C=1.0),
    "equal rows": line("c_svc", [-1, -1, 1, 1], x=[0, 0, 3, 3]),
    "zero weights": line("c_svc", [-1, 1, 1, -1], x=[0, 1, 4, 9], weights=[1, 0, 2, 0]),
    "negative weights": line("c_svc", [-1, 1, 1, -1], x=[0, 1, 4, 9], weights=[1, -1, 2, -3]),
    "constant targets": line("epsilon_svr", [2, 2, 2]),
    "within the tube": line("epsilon_svr", [0.0, 0.05, 0.1], epsilon=0.1),
    "two targets at one place": line("epsilon_svr", [0, 1, 5], x=[1, 1, 2]),
    "no tube": line("epsilon_svr", [0, 1, 5, 2], epsilon=0.0, C=10.0),
    "one sample": line("epsilon_svr", [3]),
    "nu of the whole box": line("nu_svc", [-1, -1, 1, 1], nu=1.0),
    "nu, unequal classes": line("nu_svc", [-1, -1, -1, 1], nu=0.9),
    "nu regression": line("nu_svr", [0, 1, 5, 2], nu=0.7, C=3.0),
    "nu regression, all of it": line("nu_svr", [0, 1, 5, 2], nu=1.0, C=3.0),
    "one class, all of it": line("one_class", [0, 0, 0], x=[1, 2, 3], nu=1.0),
    "one class, one sample": line("one_class", [0], x=[2], nu=0.5),
    "one class, equal rows": line("one_class", [0, 0, 0, 0], x=[1, 1, 1, 4], nu=0.5),
}


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
def test_chosen_problems_and_the_middle_bias(name, kernel):
    problem = replace(CHOSEN[name], kernel=kernel)
    absent = replace(problem, weights=problem.weights.clip(0))
    check_against_oracle(absent)
    solution, model = qp.solve(absent.dual()), problem.fit()
    assert model.intercept_[0] == pytest.approx(solution.bias / solution.scale, abs=1e-6)


def test_a_wide_interval_of_biases_gets_its_middle():
    """α = C for all four: the bias may be anything in [lo, hi], and LIBSVM takes the middle."""
    problem = CHOSEN["all at the bound, biases of an interval"]
    lo, hi = qp.solve(problem.dual()).bias_interval
    assert hi - lo > 0.5
    assert problem.fit().intercept_[0] == pytest.approx((lo + hi) / 2, abs=1e-12)


def test_free_support_vectors_lie_on_the_margin():
    X, y = load_iris(return_X_y=True)
    X, y = X[50:], y[50:]
    model = SVC(C=5.0, tol=1e-8).fit(X, y)
    alpha = np.abs(model.dual_coef_[0])
    free = (alpha > 1e-9) & (alpha < 5.0 - 1e-9)
    np.testing.assert_array_equal(model.on_margin_, free)
    assert 2 < free.sum() < len(alpha)
    values = model.decision_function(X)[model.support_]
    np.testing.assert_allclose(np.abs(values[free]), 1, atol=1e-6)
    bound = alpha >= 5.0 - 1e-9
    signs = np.sign(model.dual_coef_[0])
    assert np.all(signs[bound] * values[bound] <= 1 + 1e-6)
    slack = np.maximum(0, 1 - np.where(y == 2, 1, -1) * model.decision_function(X))
    np.testing.assert_allclose(model.hinge_loss_, slack.sum(), rtol=1e-6)
    np.testing.assert_allclose(
        model.primal_objective_, 0.5 / model.margin_**2 + 5.0 * model.hinge_loss_, rtol=1e-9
    )


@pytest.mark.parametrize("C", [1e13, 1e20, 1e200])
@pytest.mark.parametrize("copies", [1, 2])
def test_a_box_far_larger_than_the_solution_is_no_bound(C, copies, rng):
    """Coefficients that are small beside C count as any others do."""
    X, y = np.repeat(rng.normal(size=(8, 2)), copies, axis=0), np.repeat(np.arange(8), copies)
    for machine, targets in ((SVC, y % 2), (SVR, y.astype(float))):
        model, hard = (machine(C=c, gamma=0.5, tol=1e-9).fit(X, targets) for c in (C, 1e6))
        np.testing.assert_allclose(model.objective_, hard.objective_, rtol=1e-8)
        np.testing.assert_array_equal(model.support_, hard.support_)
        np.testing.assert_allclose(model.dual_coef_, hard.dual_coef_, rtol=1e-6)


@pytest.mark.parametrize("C", [1e9, 1e13, 1e20, 1e300])
@pytest.mark.parametrize("nu", [0.3, 1.0])
def test_a_nu_regression_without_a_limit_has_no_tube(C, nu, rng):
    """α and α* of size C have no digits left for their difference, which is that of ε = 0."""
    X = rng.normal(size=(30, 3))
    y = X @ [1.0, 2.0, -1.0] + 0.3 * rng.normal(size=30)
    K = RBF(gamma=0.5)(X)
    # At ε = 0 and no bound: K β + b = y with Σβ = 0.
    A = np.block([[K, np.ones((30, 1))], [np.ones((1, 30)), np.zeros((1, 1))]])
    exact = np.linalg.solve(A, np.append(y, 0.0))
    model = NuSVR(nu=nu, C=C, gamma=0.5, tol=1e-6).fit(X, y)
    assert model.converged_.all()
    np.testing.assert_allclose(model.epsilon_, 0, atol=1e-6)
    np.testing.assert_allclose(model.predict(X), y, atol=2e-6)
    least = np.linalg.eigvalsh(K)[0]
    np.testing.assert_allclose(coefficients(model, 30), exact[:30], atol=1e-5 / least)
    assert abs(model.dual_coef_.sum()) < 1e-9 * np.abs(model.dual_coef_).max()


@pytest.mark.parametrize("scale", [1e-150, 1e10, 1e150])
@pytest.mark.parametrize("C", [0.1, 10.0, 1e9])
def test_regressions_of_any_size(scale, C, rng):
    """Targets, C, ε and tol times a number: the same function times it, up to tol."""
    X = rng.normal(size=(40, 3))
    y = X @ [1.0, 2.0, -1.0] + 0.3 * rng.normal(size=40)
    for plain, other in (
        (NuSVR(C=C, gamma=0.3, tol=1e-6), NuSVR(C=C * scale, gamma=0.3, tol=1e-6 * scale)),
        (SVR(C=C, gamma=0.3, tol=1e-6), SVR(C=C * scale, gamma=0.3, tol=1e-6 * scale, epsilon=0.1 * scale)),
    ):
        plain.fit(X, y)
        other.fit(X, scale * y)
        np.testing.assert_allclose(other.predict(X) / scale, plain.predict(X), atol=1e-4)
        np.testing.assert_allclose(other.objective_ / scale / scale, plain.objective_, rtol=1e-4)
        assert other.converged_.all()


def test_targets_far_beyond_the_box_fill_it(rng):
    """Where C is large for its rounding, but small beside the targets, ν has its tube as ever."""
    X = rng.normal(size=(40, 3))
    y = 1e15 * (X @ [1.0, 2.0, -1.0])
    model = NuSVR(nu=0.3, C=1e11, gamma=0.3).fit(X, y)
    assert model.epsilon_ > 1e14
    beta = coefficients(model, 40)
    np.testing.assert_allclose(np.abs(beta).sum(), 0.3 * 40 * 1e11, rtol=1e-9)
    assert abs(beta.sum()) < 1e-9 * 1e11


@pytest.mark.parametrize("tol", [0.5, 1e-6])
def test_errors_that_an_infinite_c_does_not_allow_cost_infinitely_much(tol):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    model = SVR(C=np.inf, gamma=2.0, tol=tol, epsilon=0.05).fit(X, y)
    assert model.hinge_loss_[0] > tol
    assert model.primal_objective_[0] == model.duality_gap_[0] == np.inf


@pytest.mark.parametrize("epsilon", [0.25, 2.0])
def test_a_regression_without_errors_has_no_gap_at_an_infinite_c(epsilon):
    model = SVR(C=np.inf, kernel="linear", tol=1e-12, epsilon=epsilon).fit(
        [[0.0], [0.3], [1.0]], [0.0, 0.3, 1.0]
    )
    slope = max(1 - 2 * epsilon, 0)
    np.testing.assert_allclose(model.primal_objective_, slope**2 / 2, rtol=1e-12)
    np.testing.assert_allclose(model.duality_gap_, 0, atol=1e-12)


def test_class_weights_multiply_c():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 2))
    y, weights = np.where(np.arange(12) < 5, -1.0, 1.0), rng.uniform(0.5, 2, size=12)
    model = SVC(kernel="rbf", gamma=0.5, C=2.0, tol=TOL, class_weight={-1.0: 3.0, 1.0: 0.5})
    model.fit(X, y, sample_weight=weights)
    C = 2.0 * weights * np.where(y < 0, 3.0, 0.5)
    K = RBF(gamma=0.5)(X)
    solution = qp.solve(qp.c_svc(K, y, C))
    np.testing.assert_allclose(coefficients(model, 12), solution.beta, atol=1e-6)
    np.testing.assert_allclose(model.class_weight_, [3.0, 0.5])
    np.testing.assert_allclose(model.decision_function(X), solution.decision(K), atol=1e-6)


# ------------------------------------------------------------------------------------- several classes

MULTICLASS = {"iris": load_iris, "wine": load_wine}


@pytest.fixture(params=MULTICLASS)
def classes(request):
    X, y = MULTICLASS[request.param](return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    keep = np.random.default_rng(0).permutation(len(X))[:60]
    X, y = X[keep], y[keep]
    return X[np.unique(X, axis=0, return_index=True)[1]], y[np.unique(X, axis=0, return_index=True)[1]]


def pair_solution(X, y, pair, C):
    rows = np.flatnonzero((y == pair[0]) | (y == pair[1]))
    K = RBF(gamma=0.3)(X[rows])
    return rows, qp.solve(qp.c_svc(K, np.where(y[rows] == pair[0], 1.0, -1.0), np.full(len(rows), C)))


def test_each_pair_of_classes_is_its_own_optimum(classes):
    X, y = classes
    model = SVC(kernel="rbf", gamma=0.3, C=2.0, tol=TOL, decision_function_shape="ovo").fit(X, y)
    values = model.decision_function(X)
    assert values.shape == (len(X), 3)
    gaps, objectives = model.duality_gap_, model.objective_
    assert gaps.shape == objectives.shape == model.converged_.shape == model.n_iter_.shape == (3,)
    for column, pair in enumerate([(0, 1), (0, 2), (1, 2)]):
        rows, solution = pair_solution(X, y, pair, 2.0)
        expected = solution.decision(RBF(gamma=0.3)(X, X[rows]))
        np.testing.assert_allclose(values[:, column], expected, atol=1e-6)
        assert objectives[column] == pytest.approx(solution.objective, rel=1e-6)
        assert 0 <= gaps[column] <= 1e-5


@pytest.mark.parametrize("machine", ["SVC", "NuSVC"])
@pytest.mark.parametrize("labels", [[0, 1, 2], ["b", "a", "c"]], ids=str)
def test_layout_is_scikit_learns(classes, machine, labels):
    X, y = classes
    y = np.asarray(labels)[y]
    params = {"kernel": "rbf", "gamma": 0.3, "tol": 1e-9, **({"C": 2.0} if machine == "SVC" else {"nu": 0.2})}
    model = {"SVC": SVC, "NuSVC": NuSVC}[machine](**params).fit(X, y)
    peer = getattr(reference, machine)(**params).fit(X, y)
    np.testing.assert_array_equal(model.classes_, peer.classes_)
    np.testing.assert_array_equal(model.support_, peer.support_)
    np.testing.assert_array_equal(model.n_support_, peer.n_support_)
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    assert model.support_.dtype == peer.support_.dtype
    assert model.n_support_.dtype == peer.n_support_.dtype
    assert model.dual_coef_.shape == (2, len(model.support_))
    np.testing.assert_allclose(model.dual_coef_, peer.dual_coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, peer.intercept_, atol=1e-5)
    np.testing.assert_allclose(model.class_weight_, peer.class_weight_)
    assert model.shape_fit_ == peer.shape_fit_ == X.shape
    assert model.fit_status_ == peer.fit_status_ == 0


@kinds
def test_shapes_of_one_valued_machines(kind, rng):
    X, y = rng.normal(size=(20, 3)), np.where(np.arange(20) < 9, -1.0, 1.0)
    problem = Problem(kind, "rbf", X, y, np.ones(20))
    model, peer = problem.fit(), reference_fit(problem)
    for name in ("dual_coef_", "intercept_", "support_", "support_vectors_", "n_support_"):
        ours, theirs = getattr(model, name), getattr(peer, name)
        assert ours.dtype == theirs.dtype, name
        assert ours.shape == theirs.shape, name
        np.testing.assert_allclose(ours, theirs, atol=1e-5, err_msg=name)
    if kind in CLASSIFIERS:
        assert model.n_iter_.shape == (1,)
    else:
        assert isinstance(model.n_iter_, int)
    if kind == "one_class":
        np.testing.assert_allclose(model.offset_, -model.intercept_)
        np.testing.assert_allclose(model.score_samples(X), model.decision_function(X) + model.offset_)


def reference_fit(problem):
    """scikit-learn's fit of a problem."""
    known = getattr(reference, CLASSES[problem.kind].__name__)
    params = {key: value for key, value in problem.estimator().get_params().items() if key in shared(known)}
    y = None if problem.kind == "one_class" else problem.y
    return known(**params).fit(problem.samples(), y, sample_weight=problem.weights)


def shared(known):
    """Parameters that mean the same in both packages; of the others the defaults differ."""
    return set(known().get_params()) - {"probability", "break_ties", "verbose", "cache_size"}


@kinds
@pytest.mark.filterwarnings("ignore:.*leaves no margin")
def test_coef_of_the_linear_kernel(kind, rng):
    X, y = rng.normal(size=(20, 3)), np.where(np.arange(20) < 9, -1.0, 1.0)
    model = Problem(kind, "linear", X, y, np.ones(20)).fit(tol=1e-6)
    assert model.coef_.shape == (1, 3)
    np.testing.assert_allclose(
        X @ model.coef_[0] + model.intercept_, decision(model, X), rtol=1e-6, atol=1e-8
    )
    assert not hasattr(Problem(kind, "rbf", X, y, np.ones(20)).fit(), "coef_")


def cube(X, Z):
    return (1 + 0.1 * X.astype(np.float64) @ Z.T) ** 3


@pytest.mark.parametrize("machine", [SVC, SVR, OneClassSVM])
@pytest.mark.parametrize("kernel", [Polynomial(3, gamma=0.1, coef0=1.0), cube])
def test_decisions_of_float32_rows_have_their_digits_where_terms_cancel(machine, kernel, rng):
    # rounded kernel values of up to 1e8 put off sums of their hundreds by whole numbers
    X = (30 * (rng.normal(size=(120, 3)) + 1)).astype(np.float32)
    y = (X[:, 0] + 9 * rng.normal(size=120) > 30).astype(int)
    model = machine(kernel=kernel, **({} if machine is OneClassSVM else {"C": 1e-3})).fit(X, y)
    double, sign = X.astype(np.float64), -1 if machine is SVC else 1
    K = kernel(double, double[model.support_])
    expected = sign * (K @ model._dual_coef_[0] + model._intercept_[0])
    predict = model.predict if machine is SVR else model.decision_function
    assert predict(X).dtype == np.float32
    np.testing.assert_allclose(predict(X), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("new", [NuSVC, NuSVR, OneClassSVM])
def test_a_warm_start_of_fixed_sums_begins_where_the_last_fit_ended(new, seed):
    rng = np.random.default_rng(seed)
    X, weights = rng.normal(size=(300, 3)), rng.uniform(0.2, 2, 300)
    y = X[:, 0] + 0.3 * rng.normal(size=300)
    model = new(nu=0.3, gamma=0.3, warm_start=True)
    args = (X,) if new is OneClassSVM else (X, y > 0 if new is NuSVC else y)
    cold = np.sum(model.fit(*args, sample_weight=weights).n_iter_)
    assert cold > 50
    assert np.sum(model.fit(*args, sample_weight=weights).n_iter_) <= 0.1 * cold

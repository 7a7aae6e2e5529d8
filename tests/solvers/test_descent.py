"""Gradient descent: against its iterates in closed form, and against other minimisers."""

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from mercer import KernelRegressor
from mercer.kernels import RBF, Linear
from mercer.losses import (
    EpsilonInsensitive,
    Huber,
    JointSquaredMargin,
    Logistic,
    Poisson,
    Softmax,
    Squared,
    SquaredMargin,
)
from mercer.solvers.descent import Diverged, gradient_descent, stochastic_descent
from mercer.solvers.kernel_descent import descend

VALLEY = np.array([1.0, 25.0])


def valley(w):
    return 0.5 * w @ (VALLEY * w), VALLEY * w


def iterates(run, count, **options):
    """The first iterates, each as the solution of a run that stops there."""
    return np.array([run(max_iter=k, tol=0.0, **options).solution for k in range(1, count)])


# ---------------------------------------------------------------- of any function


def test_iterates_are_those_of_the_recurrence():
    """W_k = M^k (w₀, w₀) by the matrix of (7.29) on a quadratic, and not by the recurrence itself."""
    s, beta, start = 0.06, 0.5, np.array([2.0, -1.0])

    def run(**options):
        return gradient_descent(valley, start, step=s, momentum=beta, **options)

    found = iterates(run, 9)
    for j, curvature in enumerate(VALLEY):
        M = np.array([[1 + beta - s * curvature, -beta], [1.0, 0.0]])
        for k, w in enumerate(found[:, j], 1):
            expected = np.linalg.matrix_power(M, k) @ [start[j], start[j]]
            np.testing.assert_allclose(w, expected[0], rtol=1e-12, atol=1e-14)


def test_decaying_steps_multiply():
    s, decay = 0.03, 0.7

    def run(**options):
        return gradient_descent(valley, [2.0, -1.0], step=s, decay=decay, **options)

    found = iterates(run, 7)
    for k, w in enumerate(found, 1):
        factors = np.prod([1 - s / (1 + i * decay) * VALLEY for i in range(k)], axis=0)
        np.testing.assert_allclose(w, factors * [2.0, -1.0], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(run(max_iter=4, tol=0.0).history["step"], s / (1 + decay * np.arange(4)))


def test_the_history_is_that_of_the_iterates():
    found = gradient_descent(valley, [2.0, -1.0], step=0.03, max_iter=5, tol=0.0)
    factors = (1 - 0.03 * VALLEY) ** np.arange(6)[:, None] * [2.0, -1.0]
    np.testing.assert_allclose(found.history["objective"], 0.5 * np.sum(VALLEY * factors**2, axis=1))
    np.testing.assert_allclose(found.history["gradient_norm"], np.linalg.norm(VALLEY * factors, axis=1))
    assert (found.n_iter, found.converged, len(found.history["step"])) == (5, False, 5)
    assert found.objective == found.history["objective"][-1]


def rosenbrock(w):
    x, y = w
    value = (1 - x) ** 2 + 100 * (y - x * x) ** 2
    return value, np.array([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)])


def test_backtracking_finds_the_bottom_of_a_bent_valley():
    found = gradient_descent(rosenbrock, [-1.2, 1.0], max_iter=50_000, tol=1e-6)
    assert found.converged
    np.testing.assert_allclose(found.solution, [1.0, 1.0], atol=1e-5)


def test_backtracked_steps_keep_armijos_rule():
    found = gradient_descent(rosenbrock, [-1.2, 1.0], max_iter=200, tol=0.0)
    fall = -np.diff(found.history["objective"])
    assert np.all(
        fall >= 0.5 * found.history["step"] * found.history["gradient_norm"][:-1] ** 2 * (1 - 1e-12)
    )
    # The largest such step among halves and doubles: one twice as long breaks the rule somewhere.
    assert found.history["step"].max() < 1


def test_momentum_is_faster_on_a_neural_like_cost(rng):
    """As MLR7's figure 7.6: the softmax cost, a fixed step, and after 50 iterations the lower cost."""
    X = rng.standard_normal((60, 2))
    y = np.sign(X[:, 0] * X[:, 1])

    def cost(w):
        hidden = np.tanh(X @ w[:20].reshape(2, 10))
        f = hidden @ w[20:]
        g = Logistic().derivative(y, f)
        inner = X.T @ (g[:, None] * w[20:] * (1 - hidden**2))
        return Logistic().value(y, f).sum(), np.concatenate([inner.ravel(), hidden.T @ g])

    plain, heavy = [], []
    for _ in range(5):
        start = rng.standard_normal(30)
        for momentum, curves in [(0.0, plain), (0.5, heavy)]:
            run = gradient_descent(cost, start, step=1e-3, momentum=momentum, max_iter=50, tol=0.0)
            curves.append(run.history["objective"])
    plain, heavy = np.mean(plain, axis=0), np.mean(heavy, axis=0)
    assert np.all(heavy[5:] < plain[5:])
    # With β = ½ every step counts for two in the long run.
    assert plain[0] - heavy[25] > 0.8 * (plain[0] - plain[50])


def test_batches_of_all_samples_are_plain_descent(rng):
    X, t = rng.standard_normal((30, 3)), rng.standard_normal(30)

    def whole(w):
        r = X @ w - t
        return r @ r, 2 * X.T @ r

    def batch(w, index):
        return 2 * X[index].T @ (X[index] @ w - t[index]) * len(X) / len(index)

    options = {"step": 1e-3, "momentum": 0.3, "max_iter": 40, "tol": 0.0}
    plain = gradient_descent(whole, np.zeros(3), **options)
    batches = stochastic_descent(batch, np.zeros(3), 30, whole, batch_size=30, random_state=0, **options)
    # In another order of the samples.
    np.testing.assert_allclose(batches.solution, plain.solution, rtol=1e-12)
    np.testing.assert_allclose(batches.history["objective"], plain.history["objective"], rtol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 7])
def test_batches_come_near_the_minimum_and_repeat_by_seed(rng, batch_size):
    X = rng.standard_normal((50, 3))
    t = X @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(50)
    seen = []

    def whole(w):
        r = X @ w - t
        return r @ r, 2 * X.T @ r

    def batch(w, index):
        seen.append(index)
        return 2 * X[index].T @ (X[index] @ w - t[index]) * len(X) / len(index)

    def run(seed, max_iter=100):
        return stochastic_descent(
            batch,
            np.zeros(3),
            50,
            whole,
            step=1e-3,
            decay=0.01,
            batch_size=batch_size,
            max_iter=max_iter,
            tol=0.0,
            random_state=seed,
        )

    found = run(3)
    exact = np.linalg.lstsq(X, t, rcond=None)[0]
    np.testing.assert_allclose(found.solution, exact, atol=0.02)
    np.testing.assert_array_equal(run(3).solution, found.solution)
    assert np.any(run(4).solution != found.solution)
    seen.clear()
    run(0, max_iter=2)
    first, second = np.split(np.concatenate(seen), 2)
    np.testing.assert_array_equal(np.sort(first), np.arange(50))
    assert np.any(first != second)
    assert found.history["step"][0] > found.history["step"][-1]


def test_a_convex_cost_ends_where_scipy_does(rng):
    X = rng.standard_normal((40, 4))
    y = np.sign(X[:, 0] + 0.5 * rng.standard_normal(40))

    def cost(w):
        f = X @ w
        return Logistic().value(y, f).sum() + w @ w, X.T @ Logistic().derivative(y, f) + 2 * w

    theirs = minimize(cost, np.zeros(4), jac=True, tol=1e-12)
    for options in [{"step": 0.05}, {"step": 0.05, "momentum": 0.7}, {}, {"momentum": 0.7}]:
        ours = gradient_descent(cost, np.zeros(4), tol=1e-7, **options)
        assert ours.converged
        assert ours.objective == pytest.approx(theirs.fun, rel=1e-12)


def test_steps_that_are_too_long_are_said_to_be():
    remedy = r"diverged in iteration \d+ .*; take a step below 0.1 or step='backtracking'$"
    with pytest.raises(Diverged, match=remedy) as caught:
        gradient_descent(valley, [1.0, 1.0], step=0.1, max_iter=10_000)
    assert caught.value.step == 0.1
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.n_iter) == (str(caught.value), caught.value.n_iter)


def test_an_overflow_is_a_divergence_and_no_nan():
    def cliff(w):
        return np.exp(w @ w), 2 * w * np.exp(w @ w)

    with pytest.raises(Diverged, match="cost inf"):
        gradient_descent(cliff, [2.0], step=10.0)
    assert gradient_descent(cliff, [2.0]).converged


def test_batches_that_diverge_are_said_to(rng):
    for options, remedy in (({}, ""), ({"momentum": 0.5}, " or a smaller momentum")):
        # The step that was given, not what decay has made of it; and no advice that batches refuse.
        with pytest.raises(Diverged, match=f"; take a step below 1{remedy}$"):
            stochastic_descent(
                lambda w, index: VALLEY * w,
                [1.0, 1.0],
                4,
                valley,
                step=1.0,
                decay=0.01,
                max_iter=1000,
                **options,
            )


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_momentum_goes_where_a_backtracked_step_would_rise_by_it(momentum):
    def cliff(w):
        return np.exp(3 * w[0]) - 3 * w[0], 3 * np.exp(3 * w) - 3

    found = gradient_descent(cliff, [-5.0], momentum=momentum)
    assert found.converged
    assert (np.diff(found.history["objective"]) <= 1e-12).all()


def test_a_gradient_that_points_the_wrong_way():
    with pytest.raises(Diverged, match="check the gradient"):
        gradient_descent(lambda w: (w @ w, -2 * w), [1.0, 1.0])


def test_a_start_that_rounding_cannot_better():
    """Where the cost's digits are used up, backtracking neither calls the gradient wrong nor runs away."""

    def steep(w):
        return 100.0 + 5e3 * w @ w, 1e4 * w

    found = gradient_descent(steep, [1e-11], tol=1e-9, max_iter=200)
    assert found.converged


def test_a_start_without_a_cost():
    with pytest.raises(ValueError, match=r"not finite at the start \(cost inf\)"):
        gradient_descent(lambda w: (np.inf, w), [1.0])


def test_a_start_at_the_minimum_takes_no_step():
    found = gradient_descent(valley, [0.0, 0.0])
    assert (found.n_iter, found.converged, found.objective) == (0, True, 0.0)
    assert found.history["step"].shape == (0,)


def test_callbacks_see_each_iteration_and_may_stop_it():
    seen = []
    found = gradient_descent(valley, [1.0, 1.0], step=0.03, on_step=lambda k, norm: seen.append((k, norm)))
    assert [k for k, _ in seen] == list(range(1, found.n_iter + 1))
    np.testing.assert_array_equal([norm for _, norm in seen], found.history["gradient_norm"][1:])

    def interrupt(k, norm):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gradient_descent(valley, [1.0, 1.0], step=0.03, on_step=interrupt)


def test_the_start_is_left_alone():
    start = np.array([1.0, 1.0])
    start.setflags(write=False)
    gradient_descent(valley, start, step=0.03, momentum=0.5)
    np.testing.assert_array_equal(start, [1.0, 1.0])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"step": 0.0}, ValueError, "step must be above 0 and finite, got 0.0"),
        ({"step": -1.0}, ValueError, "step must be above 0 and finite, got -1.0"),
        ({"step": np.inf}, ValueError, "step must be above 0 and finite, got inf"),
        (
            {"step": "armijo"},
            ValueError,
            "step='armijo' is unknown; give a positive number or 'backtracking'",
        ),
        ({"step": None}, TypeError, "step must be a number, got None"),
        ({"momentum": 1.0}, ValueError, "momentum must be at least 0 and below 1, got 1.0"),
        ({"momentum": -0.1}, ValueError, "momentum must be at least 0 and below 1, got -0.1"),
        ({"momentum": True}, TypeError, "momentum must be a number, got True"),
        ({"decay": -1.0, "step": 0.1}, ValueError, "decay must be at least 0 and finite, got -1.0"),
        ({"decay": 1.0}, ValueError, "decay=1.0 has no meaning with step='backtracking'"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1, got 0"),
        ({"tol": np.nan}, ValueError, "tol must be at least 0 and finite, got nan"),
    ],
)
def test_bad_arguments(options, error, match):
    with pytest.raises(error, match=match):
        gradient_descent(valley, [1.0, 1.0], **options)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"batch_size": 5}, ValueError, "batch_size=5 is more than the 4 samples; take at most 4"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({"batch_size": 2.0}, TypeError, "batch_size must be an integer, got 2.0"),
        ({"step": "backtracking"}, ValueError, "needs the whole cost, which a batch does not tell"),
    ],
)
def test_bad_arguments_of_batches(options, error, match):
    with pytest.raises(error, match=match):
        stochastic_descent(lambda w, index: w, [1.0], 4, valley, **{"step": 0.1, **options})


# ---------------------------------------------------------------- of kernelised costs


def objective(K, loss, y, weights, alpha, fit_intercept, shape):
    """MLR7's formula over (b, a) for scipy, with its gradient in a."""
    n, columns = len(K), shape[1]
    weights = np.ones(n) if weights is None else weights

    def cost(w):
        b, a = w[:columns] * fit_intercept, w[columns:].reshape(n, columns)
        f = K @ a + b
        f, y_ = (f, y) if loss.vector else (f[:, 0], y)
        g = weights[:, None] * loss.derivative(y_, f).reshape(n, -1)
        value = weights @ loss.value(y_, f) + alpha * np.sum(a * (K @ a))
        return value, np.concatenate([g.sum(0) * fit_intercept, (K @ (g + 2 * alpha * a)).ravel()])

    return cost


CASES = [
    (Squared(), "real"),
    (Huber(0.5), "real"),
    (Logistic(), "sign"),
    (SquaredMargin(), "sign"),
    (Softmax(), "code"),
    (JointSquaredMargin(), "code"),
    (Poisson(), "count"),
]


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("loss", "kind"), CASES, ids=lambda v: type(v).__name__)
def test_kernelised_costs_end_where_scipy_does(loss, kind, fit_intercept, rng):
    n = 30
    X = rng.standard_normal((n, 2))
    K = RBF(gamma=0.5)(X)
    y = {
        "real": X[:, 0] ** 2 + 3,
        "sign": np.where(X[:, 0] + 0.3 * rng.standard_normal(n) > 0, 1, -1),
        "code": (X[:, 0] > 0).astype(int) + (X[:, 1] > 0),
        "count": rng.poisson(np.exp(X[:, 0])),
    }[kind]
    weights = rng.uniform(0.5, 2.0, size=n)
    shape = (n, 3 if loss.vector else 1)
    cost = objective(K, loss, y, weights, 0.3, fit_intercept, shape)
    theirs = minimize(cost, np.zeros(shape[1] * (n + 1)), jac=True, tol=1e-12, options={"maxiter": 5000})
    found = descend(lambda V: K @ V, loss, y, weights, 0.3, fit_intercept, tol=1e-7)
    assert found.converged
    assert found.solution.shape == ((n, 3) if loss.vector else (n,))
    assert found.objective == pytest.approx(theirs.fun, rel=1e-8)
    w = np.concatenate([np.ravel(found.intercept), np.ravel(found.solution)])
    assert cost(w)[0] == pytest.approx(found.objective, rel=1e-12)
    if not fit_intercept:
        np.testing.assert_array_equal(found.intercept, 0.0)


def test_steps_are_those_in_the_space_of_features(rng):
    """With a linear kernel the features are at hand: the same iterates as descent of (7.36) on weights."""
    X, y = rng.standard_normal((25, 3)), rng.choice([-1, 1], size=25)

    def cost(w):
        f = X @ w[1:] + w[0]
        g = Logistic().derivative(y, f)
        value = Logistic().value(y, f).sum() + 0.2 * w[1:] @ w[1:]
        return value, np.concatenate([[g.sum()], X.T @ g + 0.4 * w[1:]])

    options = {"step": 0.02, "momentum": 0.6, "max_iter": 30, "tol": 0.0}
    theirs = gradient_descent(cost, np.zeros(4), **options)
    K = Linear()(X)
    ours = descend(lambda V: K @ V, Logistic(), y, None, 0.2, True, start=(np.zeros(25), 0.0), **options)
    np.testing.assert_allclose(X.T @ ours.solution, theirs.solution[1:], rtol=1e-12)
    np.testing.assert_allclose(ours.intercept, theirs.solution[0], rtol=1e-12)
    for name in ("objective", "gradient_norm"):
        np.testing.assert_allclose(ours.history[name], theirs.history[name], rtol=1e-9)


@pytest.fixture(scope="module")
def tumours():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    return RBF(gamma=1 / 30)(X), 2 * y - 1


@pytest.mark.parametrize("loss", [Logistic(), SquaredMargin(), Squared()], ids=repr)
@pytest.mark.parametrize("stochastic", [False, True])
def test_defaults_converge(tumours, loss, stochastic):
    K, y = tumours
    found = descend(
        lambda V: K @ V,
        loss,
        y,
        None,
        1.0,
        True,
        rows=lambda index: K[index],
        diagonal=K.diagonal(),
        stochastic=stochastic,
        rng=0,
    )
    norm = found.history["gradient_norm"]
    assert found.converged
    assert norm[-1] <= (1e-2 if stochastic else 1e-4) * norm[0]
    assert found.solver == ("sgd" if stochastic else "gd")


def test_problems_side_by_side_are_one_sum(rng):
    X = rng.standard_normal((20, 2))
    K = RBF(gamma=0.5)(X)
    Y = np.stack([np.sign(X[:, 0]), np.sign(X[:, 1])], axis=1)
    both = descend(lambda V: K @ V, Logistic(), Y, None, 0.5, True, tol=1e-8)
    assert (both.solution.shape, both.intercept.shape) == ((20, 2), (2,))
    for j in range(2):
        alone = descend(lambda V: K @ V, Logistic(), Y[:, j], None, 0.5, True, tol=1e-8)
        np.testing.assert_allclose(both.solution[:, j], alone.solution, atol=1e-6)
        np.testing.assert_allclose(both.intercept[j], alone.intercept, atol=1e-6)


def test_a_warm_start_goes_on(rng):
    X = rng.standard_normal((20, 2))
    K = RBF(gamma=0.5)(X)
    y = np.sign(X[:, 0])
    args = (lambda V: K @ V, Logistic(), y, None, 0.5, True)
    first = descend(*args)
    again = descend(*args, start=(first.solution, first.intercept))
    assert (again.n_iter, again.objective) == (0, pytest.approx(first.objective, rel=1e-12))
    batches = descend(
        *args,
        start=(first.solution, first.intercept),
        stochastic=True,
        rows=lambda index: K[index],
        diagonal=K.diagonal(),
    )
    assert batches.n_iter == 0


@pytest.mark.parametrize(("loss", "kind"), [(Logistic(), "sign"), (Softmax(), "code")])
def test_batches_of_features_are_those_of_their_kernel(loss, kind, rng):
    features = rng.standard_normal((40, 5))
    K, x = features @ features.T, features[:, 0]
    y = np.where(x > 0, 1.0, -1.0) if kind == "sign" else (x > 0).astype(int) + (x > 1)
    start = rng.standard_normal((40, 3) if loss.vector else 40), np.zeros(3) if loss.vector else 0.0
    options = {"stochastic": True, "diagonal": K.diagonal(), "batch_size": 7, "max_iter": 5, "momentum": 0.5}
    by_rows, by_features = (
        descend(lambda V: K @ V, loss, y, None, 0.1, True, start=start, rng=0, **options, **given)
        for given in ({"rows": lambda index: K[index]}, {"features": features})
    )
    np.testing.assert_allclose(by_features.solution, by_rows.solution, rtol=1e-9)
    np.testing.assert_allclose(by_features.history["objective"], by_rows.history["objective"], rtol=1e-9)


def test_weight_two_is_the_row_twice_and_zero_none(rng):
    X = rng.standard_normal((15, 2))
    y = np.sign(X[:, 0])
    weights = np.array([2.0] * 5 + [0.0] * 3 + [1.0] * 7)
    rows = np.repeat(np.arange(15), weights.astype(int))
    K, L = RBF(gamma=0.5)(X), RBF(gamma=0.5)(X[rows])
    ours = descend(lambda V: K @ V, Logistic(), y, weights, 0.5, True, tol=1e-9)
    theirs = descend(lambda V: L @ V, Logistic(), y[rows], None, 0.5, True, tol=1e-9)
    assert ours.objective == pytest.approx(theirs.objective, rel=1e-12)
    np.testing.assert_allclose(K @ ours.solution, (RBF(gamma=0.5)(X, X[rows])) @ theirs.solution, atol=1e-6)
    np.testing.assert_allclose(ours.solution[5:8], 0.0, atol=1e-12)


def test_flat_and_tiny_problems():
    zero = np.zeros((3, 3))
    found = descend(lambda V: zero @ V, Logistic(), np.array([1, -1, 1]), None, 1.0, True)
    assert found.converged
    assert found.intercept == pytest.approx(np.log(2.0), abs=1e-3)
    found = descend(lambda V: zero @ V, Logistic(), np.array([1, -1, 1]), None, 0.0, False)
    assert (found.converged, found.n_iter) == (True, 0)
    one = np.ones((1, 1))
    found = descend(
        lambda V: one @ V,
        Squared(),
        np.array([2.0]),
        None,
        1.0,
        False,
        rows=lambda index: one[index],
        diagonal=np.ones(1),
        stochastic=True,
        tol=1e-6,
    )
    assert found.solution == pytest.approx(1.0, rel=1e-5)


def test_costs_that_no_default_step_suits():
    K = np.eye(3)
    args = (np.array([1.0, 2.0, 3.0]), None, 1.0, True)
    with pytest.raises(ValueError, match=r"EpsilonInsensitive\(epsilon=0.1\) has kinks"):
        descend(lambda V: K @ V, EpsilonInsensitive(), *args)
    options = {"rows": lambda index: K[index], "diagonal": np.ones(3), "stochastic": True}
    with pytest.raises(ValueError, match=r"Poisson\(\) has no largest curvature .* give step"):
        descend(lambda V: K @ V, Poisson(), *args, **options)
    found = descend(lambda V: K @ V, EpsilonInsensitive(), *args, step=0.1, decay=0.1, max_iter=500)
    assert found.history["objective"][-1] < found.history["objective"][0]


@pytest.mark.parametrize("solver", ["gd", "sgd"])
@pytest.mark.parametrize("shift", [20.0, 1e4])
def test_a_shift_of_the_targets_does_not_end_descent_earlier(solver, shift, rng):
    X = rng.normal(size=(200, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
    model, shifted = (
        KernelRegressor("squared", 1e-2, solver=solver, random_state=0).fit(X, y + by) for by in (0.0, shift)
    )
    assert model.converged_
    assert shifted.converged_
    atol = 0.02 if solver == "gd" else 0.2  # tol is 1e-4 of the gradient, and 1e-2
    np.testing.assert_allclose(shifted.predict(X) - shift, model.predict(X), atol=atol)


def test_constant_targets_end_descent(rng):
    model = KernelRegressor("squared", 1e-2, solver="gd").fit(rng.normal(size=(50, 2)), np.full(50, 3.0))
    assert model.converged_
    np.testing.assert_allclose(model.predict(rng.normal(size=(9, 2))), 3.0, rtol=1e-6)

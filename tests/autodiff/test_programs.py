"""Linear and quadratic programs: values, derivatives in all data, and the diagnosis of what has none."""

import builtins
import pickle

import numpy as np
import pytest
import scipy.optimize

import mercer.autodiff as ad
from mercer.autodiff.programs import DegenerateProgram, ProgramSolution, UnsolvedProgram
from mercer.testing import check_derivative


def parts(solution):
    return solution.x, solution.value, solution.y, solution.z


def random_quadratic(rng, n, m, p):
    """A program with a strictly feasible point, some of whose inequalities bind."""
    M = rng.standard_normal((n, n))
    P = M @ M.T / n + 0.1 * np.eye(n)
    x = rng.standard_normal(n)
    G, A = rng.standard_normal((m, n)), rng.standard_normal((p, n))
    return P, 3 * rng.standard_normal(n), G, G @ x + rng.uniform(0.1, 1, m), A, A @ x


def assert_optimal(solution, P, q, G, h, A, b):
    """The KKT conditions of a convex program are enough."""
    P, (x, _, y, z) = (P + P.T) / 2, parts(solution)
    size = np.max(abs(q)) + np.max(abs(P @ x), initial=0.0)
    np.testing.assert_allclose(P @ x + q + G.T @ z + A.T @ y, 0, atol=1e-12 * size)
    np.testing.assert_allclose(A @ x, b, atol=1e-12 * size)
    assert np.max(G @ x - h, initial=-1) <= 1e-12 * size
    assert np.min(z, initial=0) >= 0
    np.testing.assert_allclose(z * (h - G @ x), 0, atol=1e-12 * size)


# -- quadratic programs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m", "p"), [(5, 8, 2), (6, 10, 0), (4, 0, 2), (3, 0, 0), (1, 1, 0)])
def test_quadratic_programs_in_all_data(n, m, p, rng):
    data = random_quadratic(rng, n, m, p)
    assert_optimal(ad.quadratic_program(*data), *data)
    check_derivative(lambda *data: parts(ad.quadratic_program(*data)), *data)


def test_large_quadratic_program_against_differences(rng):
    """n = 100, m = 200; the issue wants 1e-6."""
    data = random_quadratic(rng, 100, 200, 10)
    weights = rng.standard_normal(100)
    solution = ad.quadratic_program(*data)
    assert_optimal(solution, *data)
    assert 10 < solution.active.sum() < 90

    def nearby(*data):
        """Start from the solution here: its active set is exchanged until the KKT conditions hold."""
        moved = ad.quadratic_program(*data, solver=lambda *data: (solution.x, solution.y, solution.z))
        assert_optimal(moved, *data)
        return weights @ moved.x

    gradients = ad.vjp(lambda *data: weights @ ad.quadratic_program(*data).x, *data)[1](1.0)
    for i, gradient in enumerate(gradients):
        direction = rng.standard_normal(data[i].shape)
        direction = direction / np.linalg.norm(direction)

        def difference(step, i=i, direction=direction):
            ends = [nearby(*data[:i], data[i] + s * step * direction, *data[i + 1 :]) for s in (1, -1)]
            return (ends[0] - ends[1]) / (2 * step)

        estimate = (4 * difference(1e-4) - difference(2e-4)) / 3
        assert np.sum(gradient * direction) == pytest.approx(estimate, rel=1e-6, abs=1e-6)


def test_semidefinite_objective_held_by_constraints(rng):
    _, q, G, h, A, b = random_quadratic(rng, 6, 14, 1)
    M = rng.standard_normal((6, 3))
    G, h = np.concatenate([G, np.eye(6), -np.eye(6)]), np.append(h, np.full(12, 5.0))
    solution = ad.quadratic_program(M @ M.T, q, G, h, A, b)
    assert_optimal(solution, M @ M.T, q, G, h, A, b)
    assert solution.active.sum() + 1 < 6  # the objective takes part
    check_derivative(lambda M, q, h: parts(ad.quadratic_program(M @ M.T, q, G, h, A, b)), M, q, h)


def test_projection_onto_the_simplex_has_the_known_jacobian():
    """The projection's Jacobian is I − 11ᵀ/k on the support of k entries, 0 elsewhere."""
    v = np.array([0.9, 0.5, -0.3, 0.4, -2.0])

    def project(v):
        return ad.quadratic_program(np.eye(5), -v, -np.eye(5), np.zeros(5), np.ones((1, 5)), np.ones(1)).x

    support = np.array([1.0, 1, 0, 1, 0])
    for mode in ("forward", "reverse"):
        J = ad.jacobian(project, mode)(v)
        np.testing.assert_allclose(J, np.diag(support) - np.outer(support, support) / 3, atol=1e-14)
    np.testing.assert_allclose(project(v), (v - 0.8 / 3) * support, atol=1e-15)


def test_inactive_inequalities_are_not_equations(rng):
    """A solver that took all rows for equations got other derivatives."""
    P, q, G, h, A, b = random_quadratic(rng, 5, 8, 1)
    solution = ad.quadratic_program(P, q, G, h, A, b)
    active = solution.active
    assert 0 < active.sum() < active.size
    by_all = ad.jacobian(lambda h: ad.quadratic_program(P, q, G, h, A, b).x)(h)
    np.testing.assert_array_equal(by_all[:, ~active], 0)
    equations, right = np.concatenate([A, G[active]]), np.append(b, h[active])
    by_active = ad.jacobian(lambda r: ad.quadratic_program(P, q, A=equations, b=r).x)(right)
    np.testing.assert_allclose(by_all[:, active], by_active[:, 1:], atol=1e-12)
    np.testing.assert_array_equal(solution.z[~active], 0)
    far = ad.jacobian(lambda q: ad.quadratic_program(P, q, G, h + 1e3).x)(q)
    np.testing.assert_allclose(far, -np.linalg.inv(P), atol=1e-12)


def test_value_gradients_are_the_solution_and_the_multipliers(rng):
    data = random_quadratic(rng, 5, 8, 2)
    s = ad.quadratic_program(*data)
    dP, dq, dG, dh, dA, db = ad.vjp(lambda *data: ad.quadratic_program(*data).value, *data)[1](1.0)
    np.testing.assert_allclose(dP, np.outer(s.x, s.x) / 2, atol=1e-13)
    for found, wanted in (
        (dq, s.x),
        (dh, -s.z),
        (db, -s.y),
        (dG, np.outer(s.z, s.x)),
        (dA, np.outer(s.y, s.x)),
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-13)


def test_derivatives_nested_in_different_data_meet(rng):
    """∂²value/∂b∂q = ∂x/∂b."""
    P, q, G, h, A, b = random_quadratic(rng, 5, 8, 2)
    direction = rng.standard_normal(5)

    def pushed(b):
        return ad.jvp(lambda q: ad.quadratic_program(P, q, G, h, A, b).value, (q,), (direction,))[1]

    wanted = ad.grad(lambda b: direction @ ad.quadratic_program(P, q, G, h, A, b).x)(b)
    np.testing.assert_allclose(ad.grad(pushed)(b), wanted, atol=1e-12)

    def pulled(b):
        return direction @ ad.grad(lambda q: ad.quadratic_program(P, q, G, h, A, b).value)(q)

    np.testing.assert_allclose(ad.grad(pulled)(b), wanted, atol=1e-12)


@pytest.mark.parametrize("seed", [39, 168, 215, 367])
def test_units_do_not_matter(seed):
    """Scales of the objective, the rows and x, with which a matrix that is not scaled back looks singular."""
    rng = np.random.default_rng(seed)
    P, q, G, h, A, b = random_quadratic(rng, 12, 12, 2)
    plain = ad.quadratic_program(P, q, G, h, A, b)
    assert 0 < plain.active.sum() < 10
    jacobian = ad.jacobian(lambda q: ad.quadratic_program(P, q, G, h, A, b).x)(q)
    objective, size, rows = (
        10.0 ** rng.integers(-8, 9),
        10.0 ** rng.integers(-4, 5),
        10.0 ** rng.uniform(-3, 3, 12),
    )
    data = objective * P, objective * size * q, G * rows[:, None], h * size * rows, A, b * size
    s = ad.quadratic_program(*data)
    np.testing.assert_allclose(s.x, size * plain.x, rtol=1e-9, atol=1e-11 * size)
    np.testing.assert_allclose(
        s.z * rows, objective * size * plain.z, rtol=1e-9, atol=1e-11 * objective * size
    )
    scaled = ad.jacobian(lambda q: ad.quadratic_program(data[0], q, *data[2:]).x)(data[1])
    np.testing.assert_allclose(scaled * objective, jacobian, atol=1e-9 * np.max(abs(jacobian)))


def test_gradients_have_the_type_of_their_data(rng):
    P, q, G, h, *_ = random_quadratic(rng, 4, 6, 0)
    gradient = ad.grad(lambda q: np.sum(ad.quadratic_program(P, q, G, h).x))(q.astype(np.float32))
    assert gradient.dtype == np.float32
    whole = ad.grad(lambda c: ad.linear_program(c, np.ones((1, 2)), np.ones(1)).value)(np.array([-1, -2]))
    np.testing.assert_allclose(whole, [0.0, 1.0], atol=1e-14)


def test_an_asymmetric_P_counts_by_its_symmetric_part(rng):
    P, q, *_ = random_quadratic(rng, 3, 0, 0)
    skew = np.array([[0.0, 1, 2], [-1, 0, 3], [-2, -3, 0]])
    np.testing.assert_allclose(ad.quadratic_program(P + skew, q).x, -np.linalg.solve(P, q), rtol=1e-12)
    gradient = ad.grad(lambda P: np.sum(ad.quadratic_program(P, q).x))(P + skew)
    np.testing.assert_array_equal(gradient, gradient.T)


def test_any_solver_and_its_answer_made_exact(rng):
    data = random_quadratic(rng, 5, 8, 2)
    exact = ad.quadratic_program(*data)
    called = []

    def rough(*plain):
        called.append([type(d) for d in plain])
        return [
            np.asarray(part) + 1e-6 * rng.standard_normal(np.shape(part))
            for part in parts(exact)
            if np.ndim(part)
        ]

    s = ad.quadratic_program(*data, solver=rough)
    for found, wanted in zip(parts(s), parts(exact), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-12)
    ad.grad(lambda q: np.sum(ad.quadratic_program(data[0], q, *data[2:], solver=rough).x))(data[1])
    assert called == [[np.ndarray] * 6] * 2


def test_a_wrong_active_set_is_exchanged(rng):
    """An answer near a vertex says little of which constraints hold; the exact ones come out."""
    data = random_quadratic(rng, 5, 8, 0)
    exact = ad.quadratic_program(*data)

    def all_inactive(*plain):
        return np.zeros(5), np.zeros(0), np.zeros(8)

    s = ad.quadratic_program(*data, solver=all_inactive)
    np.testing.assert_allclose(s.x, exact.x, atol=1e-12)
    np.testing.assert_array_equal(s.active, exact.active)


# -- linear programs -----------------------------------------------------------------------------------------


def random_linear(rng, n=6, m=4, p=2):
    """Bounded by x ≥ 0 and c > 0; feasible by construction."""
    x = rng.uniform(0.5, 2, n)
    A_ub, A_eq = rng.standard_normal((m, n)), rng.standard_normal((p, n))
    return rng.uniform(0.5, 2, n), A_ub, A_ub @ x + rng.uniform(-0.3, 0.3, m), A_eq, A_eq @ x


@pytest.mark.parametrize("seed", range(4))
def test_linear_programs_in_all_data(seed):
    data = random_linear(np.random.default_rng(seed))
    s = ad.linear_program(*data)
    reference = scipy.optimize.linprog(*data)
    np.testing.assert_allclose(s.x, reference.x, atol=1e-9)
    np.testing.assert_allclose(-s.y, reference.eqlin.marginals, atol=1e-9)
    np.testing.assert_allclose(-s.z, reference.ineqlin.marginals, atol=1e-9)
    np.testing.assert_allclose(s.z_lower, reference.lower.marginals, atol=1e-9)
    np.testing.assert_array_equal(s.z_upper, 0)
    np.testing.assert_allclose(s.x @ data[0], s.value, rtol=1e-13)
    check_derivative(
        lambda *data: (*parts(ad.linear_program(*data)), ad.linear_program(*data).z_lower), *data
    )


def test_sensitivities_against_perturbation():
    c, A_ub, b_ub, A_eq, b_eq = random_linear(np.random.default_rng(0))
    h = 1e-5
    J = ad.jacobian(lambda b: ad.linear_program(c, A_ub, b, A_eq, b_eq).x)(b_ub)
    assert np.max(abs(J)) > 0.1
    moved = [
        (
            ad.linear_program(c, A_ub, b_ub + h * e, A_eq, b_eq).x
            - ad.linear_program(c, A_ub, b_ub - h * e, A_eq, b_eq).x
        )
        / (2 * h)
        for e in np.eye(b_ub.size)
    ]
    # x is piecewise linear in b: differences have rounding errors alone
    np.testing.assert_allclose(J, np.stack(moved, axis=1), atol=1e-9)
    value = ad.grad(lambda c: ad.linear_program(c, A_ub, b_ub, A_eq, b_eq).value)(c)
    np.testing.assert_allclose(value, ad.linear_program(c, A_ub, b_ub, A_eq, b_eq).x, atol=1e-14)
    vertex = ad.jacobian(lambda c: ad.linear_program(c, A_ub, b_ub, A_eq, b_eq).x)(c)
    np.testing.assert_allclose(vertex, 0, atol=1e-13)  # a vertex does not move


def test_standard_form_against_the_matrix_of_1_53(rng):
    """min cᵀx, Ax = b, x ≥ 0: F = [Ax − b; Diag(x)(Aᵀy − c)], with y the dual of (1.50)."""
    n, p = 6, 3
    A, x0 = rng.standard_normal((p, n)), rng.uniform(0.5, 2, n)
    c, b = rng.uniform(0.5, 2, n), A @ x0
    s = ad.linear_program(c, A_eq=A, b_eq=b)
    x, y = s.x, -s.y
    np.testing.assert_allclose(b @ y, c @ x, rtol=1e-12)
    assert np.max(A.T @ y - c) < 1e-12
    K = np.block([[A, np.zeros((p, p))], [np.diag(A.T @ y - c), x[:, None] * A.T]])
    dA, db, dc = rng.standard_normal((p, n)), rng.standard_normal(p), rng.standard_normal(n)
    right = np.concatenate([dA @ x - db, x * (dA.T @ y - dc)])
    wanted = -np.linalg.solve(K, right)

    def both(c, A, b):
        s = ad.linear_program(c, A_eq=A, b_eq=b)
        return np.concatenate([s.x, -s.y])

    np.testing.assert_allclose(ad.jvp(both, (c, A, b), (dc, dA, db))[1], wanted, rtol=1e-10, atol=1e-12)


BOUNDS = {
    "one pair": ((0.0, 2.0), [0.0] * 3, [2.0] * 3),
    "default": (None, [0.0] * 3, [np.inf] * 3),
    "pairs": ([(0, None), (None, 1.5), (0.5, 0.5)], [0, -np.inf, 0.5], [np.inf, 1.5, 0.5]),
    "array": (np.array([[0.0, np.inf], [-1, 4], [0, 3]]), [0, -1, 0], [np.inf, 4, 3]),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_in_each_form(name):
    bounds, lower, upper = BOUNDS[name]
    c, A = np.array([-1.0, -2.0, -0.5]), np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.3]])
    b = np.array([4.3, 1.1])
    s = ad.linear_program(c, A, b, bounds=bounds)
    reference = scipy.optimize.linprog(c, A, b, bounds=np.transpose([lower, upper]))
    np.testing.assert_allclose(s.x, reference.x, atol=1e-12)
    marginals = reference.lower.marginals + reference.upper.marginals
    np.testing.assert_allclose(s.z_lower - s.z_upper, marginals, atol=1e-9)
    assert min(s.z_lower.min(), s.z_upper.min()) >= 0
    check_derivative(lambda c, b: parts(ad.linear_program(c, A, b, bounds=bounds)), c, b)
    np.testing.assert_allclose(c + A.T @ s.z - s.z_lower + s.z_upper, 0, atol=1e-12)


def test_derivatives_in_bounds():
    c, A, b = np.array([-1.0, -2.0]), np.array([[1.0, 1.0]]), np.array([4.0])

    def best(bounds):
        s = ad.linear_program(c, A, b, bounds=bounds)
        return s.x, s.value, s.z_lower, s.z_upper

    check_derivative(best, np.array([[0.0, 10.0], [0.0, 1.5]]))
    gradient = ad.grad(lambda top: ad.linear_program(c, A, b, bounds=[(0, None), (0, top)]).value)(1.5)
    assert gradient == pytest.approx(-1.0, abs=1e-14)  # one of the second, worth 2, for one of the first
    tangent = ad.jvp(lambda top: ad.linear_program(c, A, b, bounds=(0, top)), (3.0,), (1.0,))[1]
    assert isinstance(tangent, ProgramSolution)
    np.testing.assert_allclose(tangent.x, [-1.0, 1.0], atol=1e-14)


def test_solutions_can_be_pickled():
    s = ad.linear_program(np.array([-1.0, -2.0]), np.ones((1, 2)), np.ones(1))
    again = pickle.loads(pickle.dumps(s))
    np.testing.assert_array_equal(again.x, s.x)
    np.testing.assert_array_equal(again.active, s.active)
    assert {"x", "value", "y", "z", "z_lower", "z_upper", "active"} <= set(dir(again))
    assert repr(again) == "ProgramSolution(x=array([0., 1.]), value=np.float64(-2.0))"


# -- where there is no derivative ---------------------------------------------------------------------------


def raised(call, reason, match):
    with pytest.raises(DegenerateProgram, match=match) as caught:
        call()
    assert reason in caught.value.reasons
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.reasons) == (str(caught.value), caught.value.reasons)


def test_a_weakly_active_constraint():
    """min ½(x − q)² s.t. x ≤ 0, at q = 0: the solution min(q, 0) has a kink."""

    def solution(q):
        return ad.quadratic_program(np.eye(1), -q, np.ones((1, 1)), np.zeros(1))

    zero = np.zeros(1)
    np.testing.assert_allclose(solution(zero).x, 0, atol=1e-9)
    for call in (
        lambda: ad.jacobian(lambda q: solution(q).x)(zero),
        lambda: ad.jvp(solution, (zero,), (zero,)),
    ):
        raised(call, "strict complementarity", r"row 0 of Gx ≤ h hold with equality.*\(weakly active\)")
    np.testing.assert_allclose(ad.grad(lambda q: solution(q).value)(zero), 0, atol=1e-9)
    raised(lambda: ad.hessian(lambda q: solution(q).value)(zero), "strict complementarity", "weakly active")
    for side, slope in ((-1e-3, 1.0), (1e-3, 0.0)):
        np.testing.assert_allclose(ad.jacobian(lambda q: solution(q).x)(zero + side), slope, atol=1e-12)


def test_redundant_constraints():
    P, q = np.eye(2), np.array([-1.0, -2.0])
    G, h = np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([1.0, 2.0])

    def solution(q, h=h):
        return ad.quadratic_program(P, q, G, h)

    raised(
        lambda: ad.jacobian(lambda q: solution(q).x)(q),
        "LICQ",
        r"LICQ fails.*2 active constraints \(row 0 of Gx ≤ h, row 1 of Gx ≤ h\).*rank 1.*drop redundant",
    )
    np.testing.assert_allclose(ad.grad(lambda q: solution(q).value)(q), [0, 1], atol=1e-7)
    raised(lambda: ad.grad(lambda h: solution(q, h).value)(h), "LICQ", "the optimal value")


def test_redundant_equations():
    P, A, b = np.eye(2), np.ones((2, 2)), np.ones(2)
    solve = ad.jacobian(lambda q: ad.quadratic_program(P, q, A=A, b=b).x)
    raised(lambda: solve(np.ones(2)), "LICQ", "row 1 of Ax = b")


def test_a_solution_that_is_not_unique():
    P = np.diag([1.0, 0.0])
    G = np.concatenate([np.eye(2), -np.eye(2)])

    def solution(q):
        return ad.quadratic_program(P, q, G, np.ones(4))

    q = np.array([0.3, 0.0])
    raised(lambda: ad.jacobian(lambda q: solution(q).x)(q), "uniqueness", "not unique")
    raised(lambda: ad.grad(lambda q: solution(q).value)(q), "uniqueness", "the optimal value")
    gradient = ad.jacobian(lambda h: ad.quadratic_program(P, q, G, h).value)(np.ones(4))
    np.testing.assert_allclose(gradient, 0, atol=1e-8)


def test_a_linear_program_whose_optimum_is_an_edge():
    c, A, b = np.array([-1.0, -1.0]), np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([1.0, 0.7])
    raised(lambda: ad.jacobian(lambda b: ad.linear_program(c, A, b).x)(b), "uniqueness", "not unique")
    raised(lambda: ad.grad(lambda c: ad.linear_program(c, A, b).value)(c), "uniqueness", "the optimal value")
    np.testing.assert_allclose(ad.grad(lambda b: ad.linear_program(c, A, b).value)(b), [-1, 0], atol=1e-12)


def test_a_degenerate_vertex():
    """Three constraints meet in (1, 1); zero gradients came from such programs."""
    c, A = np.array([-1.0, -2.0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    b = np.array([1.0, 1.0, 2.0])
    np.testing.assert_allclose(ad.linear_program(c, A, b).x, [1, 1], atol=1e-12)
    raised(lambda: ad.jacobian(lambda b: ad.linear_program(c, A, b).x)(b), "LICQ", "degenerate vertex")
    np.testing.assert_allclose(ad.grad(lambda c: ad.linear_program(c, A, b).value)(c), [1, 1], atol=1e-12)
    raised(lambda: ad.grad(lambda b: ad.linear_program(c, A, b).value)(b), "LICQ", "the optimal value")


def test_programs_without_a_solution():
    with pytest.raises(UnsolvedProgram, match=r"linear program is infeasible \(HiGHS"):
        ad.linear_program(np.ones(1), np.ones((1, 1)), -np.ones(1))
    with pytest.raises(UnsolvedProgram, match="linear program is unbounded"):
        ad.linear_program(-np.ones(1))
    with pytest.raises(UnsolvedProgram, match=r"x\[1\] has the bounds 2 and 1"):
        ad.linear_program(np.ones(2), bounds=[(0, 1), (2, 1)])
    G, h = np.array([[1.0], [-1.0]]), np.array([-1.0, -1.0])
    with pytest.raises(UnsolvedProgram, match=r"quadratic program is infeasible \(Clarabel"):
        ad.quadratic_program(np.eye(1), np.ones(1), G, h)
    with pytest.raises(UnsolvedProgram, match="quadratic program is unbounded"):
        ad.quadratic_program(np.diag([1.0, 0.0]), np.ones(2))
    with pytest.raises(UnsolvedProgram, match=r"smallest eigenvalue -1\.00e\+00"):
        ad.quadratic_program(np.diag([1.0, -1.0]), np.ones(2))


def test_misuse_is_named():
    with pytest.raises(ValueError, match=r"P has shape \(3, 3\), it must have \(2, 2\)"):
        ad.quadratic_program(np.eye(3), np.ones(2))
    with pytest.raises(ValueError, match="G and h belong together"):
        ad.quadratic_program(np.eye(2), np.ones(2), np.eye(2))
    with pytest.raises(ValueError, match=r"A_ub has shape \(2, 2\), it must have \(1, 2\)"):
        ad.linear_program(np.ones(2), np.eye(2), np.ones(1))
    with pytest.raises(ValueError, match="h has infinite or NaN entries"):
        ad.quadratic_program(np.eye(2), np.ones(2), np.eye(2), np.array([1.0, np.inf]))
    with pytest.raises(ValueError, match="bounds must be one"):
        ad.linear_program(np.ones(3), bounds=[(0, 1)] * 2)
    with pytest.raises(ValueError, match="c is empty"):
        ad.linear_program(np.zeros(0))
    with pytest.raises(AttributeError, match="x, value, y, z and active, not 'dual'"):
        _ = ad.quadratic_program(np.eye(1), np.ones(1)).dual


def test_without_clarabel(monkeypatch, rng):
    load = builtins.__import__

    def without(name, *rest):
        if name == "clarabel":
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'mercer\[qp\]'"):
        ad.quadratic_program(np.eye(1), np.ones(1), np.ones((1, 1)), np.ones(1))
    P, q, _, _, A, b = random_quadratic(rng, 4, 0, 2)
    assert_optimal(ad.quadratic_program(P, q, A=A, b=b), P, q, np.zeros((0, 4)), np.zeros(0), A, b)

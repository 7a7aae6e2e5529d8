"""Traced values beside lists, data frames and sparse matrices: NumPy's values, or an error with a remedy."""

import numpy as np
import pytest
import scipy.sparse
import scipy.special

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError
from mercer.testing import check_derivative

DENSE = np.array([[1.5, 0.0, -2.0], [0.0, 0.0, 0.7], [3.0, 1.0, 0.0], [0.0, -1.0, 0.2]])
FORMATS = ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"]


X3 = np.array([0.4, 1.1, 0.7])
#: functions of a traced vector and of numbers in a list, where arrays would do
LIST_PROGRAMS = {
    "polyval": lambda x, q: np.polyval(q, x),
    "polyval, coefficients traced": lambda x, q: np.polyval(x, q),
    "polyfit": lambda x, q: np.polyfit(q, x, 1),
    "polyfit, points traced": lambda x, q: np.polyfit(x, q, 1),
    "polyfit, weighted": lambda x, q: np.polyfit(q, x, 1, w=q),
    "linspace": lambda x, q: np.linspace(q, x, 4),
    "linspace from": lambda x, q: np.linspace(x, q, 4),
    "logspace": lambda x, q: np.logspace(q, x, 3),
    "diff": lambda x, q: np.diff(q, prepend=x[:1], append=x[1:]),
    "trapezoid": lambda x, q: np.trapezoid(q, x),
    "cov": lambda x, q: np.cov(x, aweights=q),
    "cov with": lambda x, q: np.cov(q, x),
    "average": lambda x, q: np.average(q, weights=x),
    "histogram": lambda x, q: np.histogram(q, bins=2, weights=x)[0],
    "insert": lambda x, q: np.insert([q, q], 1, x, axis=0),
    "append": lambda x, q: np.append([q], x[None], axis=0),
    "gammainc": lambda x, q: scipy.special.gammainc(q, x),
    "gammainc, order traced": lambda x, q: scipy.special.gammainc(x, q),
    "pseudo_huber": lambda x, q: scipy.special.pseudo_huber(q, x),
    "interp": lambda x, q: np.interp([0.1, 0.6], q, x),
    "where": lambda x, q: np.where([True, False, True], q, x),
    "solve": lambda x, q: np.linalg.solve(np.diag(q).tolist(), x),
    "ufunc": lambda x, q: np.arctan2(q, x) + q * x**q,
}


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("name", LIST_PROGRAMS)
def test_lists_are_arrays(name, kind):
    program, numbers = LIST_PROGRAMS[name], kind([0.3, 0.8, 1.5])
    value, pullback = ad.vjp(lambda x: program(x, numbers), X3)
    np.testing.assert_allclose(value, program(X3, numbers), rtol=1e-14)
    want = ad.vjp(lambda x: program(x, np.array(numbers)), X3)[1](np.ones_like(value))
    np.testing.assert_array_equal(pullback(np.ones_like(value)), want)
    check_derivative(lambda x: program(x, numbers), X3)


@pytest.fixture
def frame():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, -5.0, 6.0]}, index=[7, 8, 9])


FRAME_PROGRAMS = {
    "series times": lambda x, f: f["a"] * x,
    "times series": lambda x, f: x * f["a"],
    "residual": lambda x, f: (f["b"] - x * f["a"]) ** 2,
    "power": lambda x, f: f["a"] ** x,
    "ufunc": lambda x, f: np.multiply(f["a"], x),
    "frame": lambda x, f: f * x[0] - x[1] / f,
    "columns": lambda x, f: x[:2] * f,
    "mask": lambda x, f: x * (f["b"] > x),
    "selected": lambda x, f: x[f["b"] > 0],
    "product": lambda x, f: x @ f,
    "dot": lambda x, f: np.dot(f.T, x),
    "einsum": lambda x, f: np.einsum("ij,i->j", f, x),
    "in place": lambda x, f: np.add(np.copy(x), f["a"]),
    "function": lambda x, f: np.exp(0.1 * f["a"] * x),
    "assigned": lambda x, f: _assigned(np.copy(x), f["a"]),
}


def _assigned(x, series):
    x[...] = series * x
    return x


@pytest.mark.parametrize("name", FRAME_PROGRAMS)
def test_data_frames_are_constants(name, frame):
    program = FRAME_PROGRAMS[name]
    x = np.array([0.5, 1.2, 2.1])
    value, _ = ad.vjp(lambda x: program(x, frame), x)
    np.testing.assert_array_equal(value, np.asarray(program(x, frame)))
    check_derivative(lambda x: program(x, frame), x)


@pytest.mark.parametrize(
    "program", [lambda x, f: f["a"] @ x, lambda x, f: f.T @ x, lambda x, f: f.T.dot(x)], ids=str
)
def test_a_frames_own_products_say_what_to_write(program, frame):
    with pytest.raises(TraceError, match=r"pandas.*to_numpy\(\) @ x"):
        ad.vjp(lambda x: program(x, frame), np.ones(3))


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("form", FORMATS)
def test_sparse_products(form, kind):
    M = getattr(scipy.sparse, f"{form}_{kind}")(DENSE)
    rng = np.random.default_rng(3)
    v, V, w = rng.standard_normal(3), rng.standard_normal((3, 2)), rng.standard_normal(4)
    programs = [
        (lambda x: M @ x, v),
        (lambda x: M @ x, V),
        (lambda x: x @ M, w),
        (lambda x: x @ M, rng.standard_normal((2, 4))),
        (lambda x: M.T @ (M @ x), v),
        (lambda x: np.sin(M @ np.exp(x)), v),
    ]
    if form != "coo":  # its dot is a method of its own
        programs.append((lambda x: M.dot(x), v))
    if kind == "matrix":
        programs += [(lambda x: M * x, v), (lambda x: x * M, w)]
    for program, x in programs:
        value, _ = ad.vjp(program, x)
        np.testing.assert_array_equal(value, program(x))
        check_derivative(program, x)


def test_complex_sparse_products():
    M = scipy.sparse.csr_array(DENSE * (1 + 2j))
    check_derivative(lambda x: np.real((M @ x) ** 2), np.array([1.0, -0.5, 2.0]))
    z = np.array([1 - 1j, 0.5, 2j])
    gradient = ad.grad(lambda z: np.sum(np.abs(M @ z) ** 2))(z)
    np.testing.assert_allclose(gradient, 2 * M.toarray().conj().T @ M.toarray() @ z, rtol=1e-13)


def test_directions_go_through_sparse_products_together():
    M = scipy.sparse.csc_array(DENSE)
    for mode in ("forward", "reverse"):
        np.testing.assert_array_equal(ad.jacobian(lambda x: M @ x, mode=mode)(np.ones(3)), DENSE)
        J = ad.jacobian(lambda X: M @ X, mode=mode)(np.ones((3, 2)))
        np.testing.assert_array_equal(J, np.einsum("ij,kl->ikjl", DENSE, np.eye(2)))


def test_a_sparse_matrix_may_be_changed_before_the_sweep():
    M = scipy.sparse.csr_array(DENSE)
    _, pullback = ad.vjp(lambda x: M @ x, np.ones(3))
    M.data[:] = 0.0
    np.testing.assert_array_equal(pullback(np.ones(4))[0], DENSE.sum(axis=0))


@pytest.mark.parametrize(
    "program",
    [
        lambda M, x: M + np.outer(x, x),
        lambda M, x: np.outer(x, x) - M,
        lambda M, x: M * x,
        lambda M, x: x * M,
        lambda M, x: M.multiply(x),
        lambda M, x: x[0] * M,
        lambda M, x: np.dot(M, x),
    ],
)
def test_other_operations_with_sparse_matrices_say_so(program):
    M = scipy.sparse.csr_array(np.eye(3))
    with pytest.raises(TraceError, match=r"M\.toarray\(\).*products|M\.toarray\(\) or M @ x"):
        ad.vjp(lambda x: program(M, x), np.ones(3))


def test_libraries_say_to_give_them_a_rule():
    from scipy.sparse.linalg import spsolve

    M = scipy.sparse.csc_array(np.eye(3))
    with pytest.raises(TraceError, match=r"ad\.primitive"):
        ad.grad(lambda x: np.sum(spsolve(M, x)))(np.ones(3))

"""The Gram operator: the same numbers as the matrix, and a SciPy operator too."""

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator, cg

from mercer.gram import Gram
from mercer.kernels import RBF, FunctionKernel, Linear, Polynomial

KERNELS = [
    RBF(gamma=0.3),
    0.5 * RBF(gamma=2.0) + Polynomial(2) * Linear(),
    FunctionKernel(lambda X, Z: X @ Z.T),
]
DTYPES = [np.float32, np.float64]


@pytest.fixture(params=KERNELS, ids=repr)
def kernel(request):
    return request.param


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
class TestProducts:
    @pytest.fixture
    def operands(self, kernel, dtype, symmetric, rng):
        X = rng.normal(size=(23, 3)).astype(dtype)
        Z = None if symmetric else rng.normal(size=(9, 3)).astype(dtype)
        # float64 sums of float32 entries, or of float64 ones in another order.
        rtol = 64 * np.finfo(dtype).eps
        return kernel.gram(X, Z), kernel(X, Z), rtol

    def test_vectors_and_matrices(self, operands, rng):
        gram, K, rtol = operands
        for V in (rng.normal(size=K.shape[1]), rng.normal(size=(K.shape[1], 4)), np.ones((K.shape[1], 1))):
            scale = rtol * (np.abs(K) @ np.abs(V)).max()
            np.testing.assert_allclose(gram @ V, K @ V, atol=scale)
            assert (gram @ V).shape == (K @ V).shape

    def test_transpose_and_adjoint(self, operands, rng):
        gram, K, rtol = operands
        V = rng.normal(size=(K.shape[0], 2))
        scale = rtol * (np.abs(K.T) @ np.abs(V)).max()
        np.testing.assert_allclose(gram.T @ V, K.T @ V, atol=scale)
        np.testing.assert_allclose(gram.H @ V[:, 0], K.T @ V[:, 0], atol=scale)
        np.testing.assert_allclose(gram.rmatvec(V[:, 0]), K.T @ V[:, 0], atol=scale)

    def test_rows_entries_diagonal_and_matrix(self, operands):
        gram, K, rtol = operands
        atol = rtol * np.abs(K).max()
        np.testing.assert_allclose(gram.formed(), K, atol=atol)
        np.testing.assert_allclose(gram.diag(), np.diagonal(K), atol=atol)
        for index in (3, -1, slice(2, 11, 3), [5, 0, 5], np.arange(len(K)) % 2 == 0, []):
            rows = np.asarray(index, dtype=int) if isinstance(index, list) else index
            np.testing.assert_allclose(gram[index], K[rows], atol=atol)
        np.testing.assert_allclose(gram[2, 4], K[2, 4], atol=atol)
        np.testing.assert_allclose(gram[1:4, [0, 3]], K[1:4][:, [0, 3]], atol=atol)
        assert gram.formed().dtype == gram.dtype == K.dtype

    def test_pullback_is_the_transpose_of_the_pushforward(self, kernel, symmetric, dtype, rng):
        if isinstance(kernel, FunctionKernel):
            pytest.skip("a function without a gradient")
        X = rng.normal(size=(6, 3)).astype(dtype)
        Z = None if symmetric else rng.normal(size=(4, 3)).astype(dtype)
        m = 6 if symmetric else 4
        V, C = rng.normal(size=(m, 2)), rng.normal(size=(6, 2))
        dX, dZ, dparams, dV = kernel.gram(X, Z).pullback(V, C)
        expected = kernel.pullback(X, Z, C @ V.T)
        rtol = 1e-4 if dtype == np.float32 else 1e-11
        np.testing.assert_allclose(dX, expected[0], rtol=rtol, atol=rtol)
        if symmetric:
            assert dZ is None
        else:
            np.testing.assert_allclose(dZ, expected[1], rtol=rtol, atol=rtol)
        assert dparams.keys() == expected[2].keys()
        for name, value in dparams.items():
            np.testing.assert_allclose(value, expected[2][name], rtol=rtol, atol=rtol)
        np.testing.assert_allclose(dV, kernel(X, Z).T @ C, rtol=rtol, atol=rtol)


def test_it_is_a_scipy_operator(rng):
    X = rng.normal(size=(30, 2))
    gram = RBF(gamma=1.0).gram(X)
    assert isinstance(gram, LinearOperator)
    system = gram + aslinearoperator(0.1 * np.eye(30))
    y = rng.normal(size=30)
    solution, info = cg(system, y, rtol=1e-10, maxiter=500)
    assert info == 0
    np.testing.assert_allclose(solution, np.linalg.solve(RBF(gamma=1.0)(X) + 0.1 * np.eye(30), y), rtol=1e-7)


def test_products_of_integers_are_floats():
    gram = Linear().gram(np.array([[1, 2], [3, 4]]))
    product = gram @ np.array([1, 1])
    assert product.dtype == np.float64
    np.testing.assert_array_equal(product, [16.0, 36.0])


@pytest.mark.parametrize(
    ("V", "message"),
    [
        (np.ones(4), "V must have 3 rows, one per column of K"),
        (np.ones((3, 1, 1)), r"got shape \(3, 1, 1\)"),
        (np.ones(3, complex), "real numbers, got dtype complex128"),
    ],
)
def test_bad_operands(V, message):
    with pytest.raises(ValueError, match=message):
        Linear().gram(np.eye(3)) @ V


def test_out_is_written_with_any_strides(rng):
    X = rng.normal(size=(5, 2))
    gram = RBF(gamma=1.0).gram(X)
    for out in (np.empty((5, 5)), np.empty((5, 5), order="F"), np.empty((10, 10))[::2, ::2]):
        assert gram.formed(out) is out
        np.testing.assert_array_equal(out, gram.formed())


def test_out_may_be_the_samples_themselves(rng):
    X = rng.normal(size=(300, 300))
    K = RBF(gamma=0.01)(X)
    for make in (lambda X: RBF(gamma=0.01)(X, out=X), lambda X: RBF(gamma=0.01).gram(X).formed(X)):
        Y = X.copy()
        assert make(Y) is Y
        np.testing.assert_array_equal(Y, K)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_single_samples_take_vectors_of_any_size(size, rng):
    gram, V = RBF().gram(rng.normal(size=(50, 2)).astype(np.float32)), rng.random((50, 3))
    np.testing.assert_allclose(gram @ (size * V) / size, gram @ V, rtol=1e-6)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((2, 2)), r"float64 array of shape \(3, 3\), got float64 of shape \(2, 2\)"),
        (np.empty((3, 3), np.float32), "got float32"),
        ([[0.0] * 3] * 3, "got list"),
        (np.broadcast_to(0.0, (3, 3)), "read-only"),
    ],
)
def test_bad_outputs(out, message):
    with pytest.raises(ValueError, match=message):
        Linear().gram(np.eye(3)).formed(out)


def test_bad_rows_and_cotangents():
    gram = Linear().gram(np.eye(3))
    with pytest.raises(IndexError, match="row 3 is out of bounds for 3 rows"):
        gram[3]
    with pytest.raises(ValueError, match=r"got \(3, 2\) and \(3,\)"):
        gram.pullback(np.ones((3, 2)), np.ones(3))


def test_a_matrix_beyond_memory_names_its_size():
    gram = Linear().gram(np.ones((10**6, 1)))
    with pytest.raises(ValueError, match=r"8 TB.*k\.gram\(X, Z\)"):
        gram.formed()


def test_repr_and_length():
    gram = Gram(Linear(), np.eye(3), np.ones((2, 3)))
    assert len(gram) == 3
    assert gram.shape == (3, 2)
    assert "3x2" in repr(gram)

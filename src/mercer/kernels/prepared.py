"""A compiled kernel bound to its samples: values, in row strips where a leaf is a matrix, and the diagonal.

Place on the way: ``program`` → **prepared** → ``_native``; ``Kernel.__call__`` and ``gram.Gram`` stand on it.
"""

import numpy as np
from scipy import sparse

from .. import _native
from .._arrays import common, row_strips
from .._memory import available_memory, readable_size
from . import pairs
from .program import LeafKind, Side

__all__ = [
    "Prepared",
    "cast_side",
    "centres",
    "densify",
    "diagonal",
    "n_rows",
    "paired",
    "sides",
    "single_side",
    "take_rows",
    "typed_diagonal",
    "width",
]

# Row strips of a matrix leaf: this many bytes of one block, at most.
_STRIP_BYTES = 2**23
# Pairs per chunk of the diagonal, in entries of the widest feature matrix.
_CHUNK = 2**20
_DIFFERENCES = (LeafKind.SQDIST, LeafKind.L1)
_TAKES_SPARSE = (LeafKind.DOT, LeafKind.SQDIST, LeafKind.L1, LeafKind.CHI2)


def n_rows(X):
    """Number of samples, of an array or a sequence."""
    return X.shape[0] if hasattr(X, "shape") else len(X)


def width(X):
    """Columns of a matrix of samples; None for samples that are no rows of numbers."""
    shape = getattr(X, "shape", ())
    return shape[1] if len(shape) == 2 else None


def take_rows(X, index):
    """Rows of an array or items of a sequence; a slice is a view of memory."""
    if hasattr(X, "shape"):
        return X[index]
    if isinstance(index, slice):
        return X[index]
    return [X[i] for i in np.arange(len(X))[index]]


def densify(X, reason):
    """X as an ndarray, after a look at the memory it takes."""
    if not sparse.issparse(X):
        return X
    need = X.shape[0] * X.shape[1] * X.dtype.itemsize
    if need > 2**26 and need > (free := available_memory()):
        raise ValueError(
            f"{reason} needs dense samples, and {X.shape[0]} x {X.shape[1]} of them take "
            f"{readable_size(need)} where {readable_size(free)} are available; use fewer rows at a time, or "
            "a dot-product or distance kernel"
        )
    return X.toarray()


def dtype_of(X):
    """Dtype of a run: that of float samples, else float64."""
    dtype = getattr(X, "dtype", None)
    return dtype if dtype in (np.float32, np.float64) else np.dtype(np.float64)


def paired(X, Z):
    """X and Z in one dtype and one storage: the wider float, and CSR if either is."""
    if not (hasattr(X, "dtype") and hasattr(Z, "dtype")):
        return X, Z
    if X.dtype.kind == "f" and Z.dtype.kind == "f":
        X, Z = common(X, Z)
    if sparse.issparse(X) != sparse.issparse(Z):
        X, Z = (F if sparse.issparse(F) else sparse.csr_array(F) for F in (X, Z))
    return X, Z


def sides(program, X, Z=None, vecs=None):
    """Both sides of a value run; the right one is the left one if Z is None.

    Parameters
    ----------
    program : Program
    X, Z : ndarray, csr_array or sequence
        As the kernel's input check returns them.
    vecs : pair of ndarray, default=None
        The row vectors of both sides where they are known.

    Returns
    -------
    left, right : Side
    """
    lefts, rights = [], []
    for leaf in program.leaves:
        if leaf.kind == LeafKind.BLOCK:
            lefts.append(None)
            rights.append(None)
            continue
        keep = leaf.kind in _TAKES_SPARSE and leaf.view.keeps_sparse
        x, z = (X, Z) if keep else (_dense_for(leaf, X), _dense_for(leaf, Z))
        left, right = leaf.view.sides(x, z)
        if leaf.kind == LeafKind.CHI2:
            _check_nonnegative(left, "X")
            _check_nonnegative(right, "Z")
        lefts.append(left)
        rights.append(right)
    left = Side(n_rows(X), lefts, row_vectors(program, X) if vecs is None else vecs[0])
    if Z is None:
        return left, left
    return left, Side(n_rows(Z), rights, row_vectors(program, Z) if vecs is None else vecs[1])


def cast_side(side, dtype):
    """A side with features of another dtype."""
    features = [None if F is None else F.astype(dtype, copy=False) for F in side.features]
    return Side(side.n, features, side.vecs)


def centres(program, side):
    """Per leaf a point amid its features, where only their differences count; None for the others."""
    return [
        F[:: max(1, len(F) // 256)].mean(axis=0, dtype=np.float64)
        if leaf.kind in _DIFFERENCES and not sparse.issparse(F) and len(F)
        else None
        for leaf, F in zip(program.leaves, side.features, strict=True)
    ]


def single_side(program, side, around=None):
    """A side in float32.

    What only differences are taken of is centred before it is rounded, so that its digits serve these; both
    sides of a run want the same centres, `around`.
    """
    features = []
    around = centres(program, side) if around is None else around
    for leaf, F, centre in zip(program.leaves, side.features, around, strict=True):
        if centre is not None and not sparse.issparse(F):
            wide, F = F, np.empty(F.shape, np.float32)
            for rows in row_strips(len(F), F.shape[1]):
                F[rows] = np.subtract(wide[rows], centre, dtype=np.float64)
        elif leaf.kind == LeafKind.DIRICHLET:
            F = F - np.rint(F)
        features.append(F)
    return cast_side(Side(side.n, features, side.vecs), np.float32)


def _dense_for(leaf, X):
    return densify(X, f"a kernel of {leaf.kind.name.lower()} kind")


def row_vectors(program, X):
    """Values of a program's row functions, (n_vecs, n)."""
    out = np.empty((len(program.vecs), n_rows(X)))
    for row, function in zip(out, program.vecs, strict=True):
        row[:] = function.value(X)
    return out


def _check_nonnegative(F, name):
    if not F.size or F.min() >= 0:
        return
    if sparse.issparse(F):
        entries = F.tocoo()
        at = int(np.argmin(entries.data))
        i, j = entries.row[at], entries.col[at]
    else:
        i, j = np.unravel_index(int(np.argmin(F)), F.shape)
    raise ValueError(
        f"ChiSquared needs nonnegative samples, but {name} has {F[i, j]} at row {i}, column {j}; shift the "
        "data, or use Laplacian or RBF"
    )


def diagonal(program, X, Z=None):
    """k(x_i, x_i), or k(x_i, z_i), for each row: float64 of shape (n,)."""
    n = n_rows(X)
    out = np.empty(n)
    width = X.shape[1] if hasattr(X, "shape") and len(X.shape) > 1 else 1
    step = max(1, _CHUNK // max(width, 1))
    # Of all rows at once: a precomputed matrix has its diagonal only as a whole.
    whole = {c: program.leaves[c].view.diag(X, Z) for c in program.block_leaves}
    x_vecs = row_vectors(program, X)
    z_vecs = x_vecs if Z is None else row_vectors(program, Z)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        x = take_rows(X, rows)
        z = None if Z is None else take_rows(Z, rows)
        left, right = sides(program, x, z, (x_vecs[:, rows], z_vecs[:, rows]))
        blocks = {c: block[rows] for c, block in whole.items()}
        out[rows] = pairs.value(program, left, right, blocks)
    check_range(program, X, out, out.dtype)
    return out


def typed_diagonal(program, X, Z=None):
    """`diagonal` in the dtype of the run, whose range it must keep."""
    with np.errstate(over="ignore"):
        out = diagonal(program, X, Z).astype(dtype_of(X), copy=False)
    check_range(program, X, out, out.dtype)
    return out


def check_range(program, X, values, dtype):
    """Refuse values that a product of Dirichlet factors drove out of the range of the run's dtype.

    (2D+1)^d, its value at equal points, is the bound; while it is in range nothing has to be looked at.
    """
    for leaf in program.leaves:
        if leaf.kind != LeafKind.DIRICHLET or leaf.unit:
            continue
        size, d = 2 * leaf.degree + 1, leaf.view.n_features(X.shape[1])
        if d * np.log(size) < 0.9 * np.log(np.finfo(dtype).max):
            continue
        if not np.isfinite(values).all():
            raise ValueError(
                f"Fourier(degree={leaf.degree}) of {d} features reaches {size}^{d} at equal points, which is "
                f"out of the range of {dtype}; use Fourier(...).normalize(), which stays in [-1, 1]"
            )


def _overlap(X, out):
    values = X.data if sparse.issparse(X) else X
    return isinstance(values, np.ndarray) and np.may_share_memory(values, out)


class Prepared:
    """A program bound to its samples.

    Parameters
    ----------
    program : Program
    X : ndarray, csr_array or sequence
        The rows.
    Z : like X, or None
        The columns; None for those of X.

    Attributes
    ----------
    program : Program
    left, right : Side
        What ``_native`` reads.
    symmetric : bool
    shape : tuple
    dtype : dtype
        Of the kernel's values.
    """

    def __init__(self, program, X, Z=None, *, built=None):
        self.program, self.X, self.Z = program, X, Z
        self.left, self.right = sides(program, X, Z) if built is None else built
        self.symmetric = Z is None
        self.shape = (self.left.n, self.right.n)
        self.dtype = np.dtype(dtype_of(X))
        self._block_leaves = program.block_leaves

    def __len__(self):
        """Number of rows."""
        return self.left.n

    def _columns(self):
        return self.X if self.Z is None else self.Z

    def take(self, index):
        """The same for some of the rows (an index array, a boolean mask or a slice)."""
        index = index if isinstance(index, slice) else np.atleast_1d(np.asarray(index))
        features = [None if f is None else f[index] for f in self.left.features]
        vecs = self.left.vecs[:, index]
        X = take_rows(self.X, index)
        return Prepared(self.program, X, self._columns(), built=(Side(n_rows(X), features, vecs), self.right))

    @property
    def T(self):
        """The same with rows and columns swapped."""
        if self.symmetric:
            return self
        return Prepared(self.program, self.Z, self.X, built=(self.right, self.left))

    def strips(self):
        """Row strips with their blocks, so that memory is O(strip · m)."""
        n, m = self.shape
        step = max(1, _STRIP_BYTES // max(8 * m, 1))
        for start in range(0, n, step):
            rows = slice(start, min(n, start + step))
            part = self.take(rows)
            # One strip that is all of a symmetric call: the source may halve its work.
            z = None if self.symmetric and step >= n else self._columns()
            blocks = {c: self.program.leaves[c].view.block(part.X, z) for c in self._block_leaves}
            yield rows, part, blocks

    def fill(self, out, n_threads=None):
        """Write the kernel matrix into ``out`` (n, m), of any strides."""
        if any(_overlap(F, out) for F in (self.X, self.Z)):
            out[...] = self.fill(_native.empty(self.shape, self.dtype), n_threads)
            return out
        if self._block_leaves:
            for rows, part, blocks in self.strips():
                _native.gram(
                    self.program, part.left, self.right, out[rows], blocks=blocks, n_threads=n_threads
                )
        else:
            _native.gram(
                self.program, self.left, self.right, out, symmetric=self.symmetric, n_threads=n_threads
            )
        check_range(self.program, self.X, out, self.dtype)
        return out

    def matmul(self, V, out=None, n_threads=None):
        """K @ V for V (m, p), as float64 (n, p), without forming K."""
        V = np.ascontiguousarray(V, dtype=np.float64)
        if out is None:
            out = np.empty((self.shape[0], V.shape[1]))
        if self._block_leaves:
            for rows, part, blocks in self.strips():
                _native.matmul(
                    self.program, part.left, self.right, V, out[rows], blocks=blocks, n_threads=n_threads
                )
        else:
            _native.matmul(
                self.program, self.left, self.right, V, out, symmetric=self.symmetric, n_threads=n_threads
            )
        check_range(self.program, self.X, out, self.dtype)
        return out

    def diag(self):
        """Entries (i, i), in the dtype of the values."""
        k = min(self.shape)
        if self.symmetric:
            return typed_diagonal(self.program, self.X)
        first = slice(0, k)
        return typed_diagonal(self.program, take_rows(self.X, first), take_rows(self.Z, first))

    def pullback(self, G, n_threads=None):
        """Gradient of ⟨G, K⟩; G is (n, m), or a pair (C, V) that stands for C @ V.T.

        Returns
        -------
        dX, dZ : ndarray, or None
        dparams : dict
            By path of scalars and arrays (`Kernel` gathers them by name).
        """
        from . import derivatives

        return derivatives.pullback(self.program, self.X, self.Z, G, n_threads)

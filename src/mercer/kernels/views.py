"""Views: how a leaf of a kernel program reads its features from the samples, with derivatives.

A view is a frozen value that maps X (n, d) to features (n, d'). Views are where whatever acts on single rows
lives (columns, unit norm, wrapping into a period, a metric), so that the n·m part stays in ``_native``.

Place on the way: kernel expression → **views** → ``program`` → ``_native``.

Each view has, besides ``apply``, the maps that derivatives of any order up to two need:

- ``pullback(X, dF)`` → ``(dX, dparams)``, the gradient of ⟨dF, F(X, θ)⟩, dparams a dict from path to
  gradient;
- ``pushforward(X, tX, tparams)`` → the directional derivative of F; None is zero in tX and the result;
- ``second(X, tX, tparams, dF, tdF)`` → the directional derivative of what ``pullback`` returns;
- ``mixed(X, t, s)`` → the second derivative of F along two directions (tX, tparams), None for zero.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

__all__ = ["Chain", "Columns", "Identity", "Metric", "View", "Wrap", "Unit", "plus", "row_norms"]


def plus(a, b):
    """A + b where None is zero."""
    if a is None:
        return b
    return a if b is None else a + b


class View:
    """Base of the views.

    Attributes
    ----------
    rows, columns : View
        What the two sides of a derivative run read. They are the view itself unless the leaf's derivative
        in a hyperparameter needs the two sides to differ (`Metric`); then their leaf value is the same.
    one_sided : bool
        Whether the hyperparameters act through ``rows`` alone, so that the row side's gradient is all of it.
    has_params : bool
        Whether hyperparameters act through the features of both sides.
    differentiable : bool
        Whether features vary smoothly with X.
    keeps_sparse : bool
        Whether CSR input stays CSR.
    """

    one_sided = False
    has_params = False
    differentiable = True
    keeps_sparse = True

    @property
    def rows(self):
        """The view of the row side in derivative runs."""
        return self

    @property
    def columns(self):
        """The view of the column side in derivative runs."""
        return self

    def apply(self, X):
        """Features of X, (n, d')."""
        raise NotImplementedError

    def sides(self, X, Z):
        """Features of both sides; Z None means that both are X. Override where they need each other."""
        left = self.apply(X)
        return left, left if Z is None else self.apply(Z)

    def n_features(self, d):
        """How many features it makes of d columns."""
        return d

    def pullback(self, X, dF):
        """Gradient of ⟨dF, F⟩ in X and in the hyperparameters."""
        raise NotImplementedError

    def pushforward(self, X, tX, tparams):
        """Directional derivative of the features, or None if it is zero."""
        raise NotImplementedError

    def second(self, X, tX, tparams, dF, tdF):
        """Directional derivative of `pullback` along tX, tparams and tdF."""
        raise NotImplementedError

    def mixed(self, X, t, s):
        """Second derivative of the features along two directions; None, as of a linear view."""
        return None


@dataclass(frozen=True)
class Identity(View):
    """All columns as they are."""

    def apply(self, X):
        """X itself."""
        return X

    def pullback(self, X, dF):
        """The gradient itself."""
        return dF, {}

    def pushforward(self, X, tX, tparams):
        """The tangent itself."""
        return tX

    def second(self, X, tX, tparams, dF, tdF):
        """The gradient's tangent itself."""
        return tdF, {}


@dataclass(frozen=True)
class Columns(View):
    """Some columns of X, by nonnegative index."""

    indices: tuple

    def _index(self, d):
        if max(self.indices) >= d:
            raise ValueError(
                f".on({list(self.indices)}) reads column {max(self.indices)}, but there are only {d} columns"
            )
        first, count = self.indices[0], len(self.indices)
        # A slice is a view of memory; a list would copy.
        if self.indices == tuple(range(first, first + count)):
            return slice(first, first + count)
        return list(self.indices)

    def apply(self, X):
        """The columns, a view of memory where they are adjacent."""
        columns = self._index(X.shape[1])
        return X[:, columns]

    def n_features(self, d):
        """The number of columns kept."""
        self._index(d)
        return len(self.indices)

    def pullback(self, X, dF):
        """Gradient with zeros in the other columns."""
        if dF is None:
            return None, {}
        dX = np.zeros(X.shape)
        # A column that is listed twice collects both parts.
        np.add.at(dX.T, list(self.indices), dF.T)
        return dX, {}

    def pushforward(self, X, tX, tparams):
        """The tangent's columns."""
        return None if tX is None else tX[:, self._index(tX.shape[1])]

    def second(self, X, tX, tparams, dF, tdF):
        """Pullback of the gradient's tangent: the map is linear."""
        return self.pullback(X, tdF)


def scaled_rows(X):
    """Rows in float64 over their largest magnitude, and those magnitudes (1 for rows of zeros).

    Nothing that is squared afterwards leaves the range, and equal rows stay equal whatever their layout.
    """
    if sparse.issparse(X):
        scale = abs(X).max(axis=1).toarray().ravel().astype(np.float64)
        scale[scale == 0] = 1.0
        scaled = sparse.csr_array(X.astype(np.float64))
        scaled.data = scaled.data / np.repeat(scale, np.diff(scaled.indptr))
        return scaled, scale
    X = np.asarray(X, dtype=np.float64)
    scale = np.max(np.abs(X), axis=1)
    scale[scale == 0] = 1.0
    return np.divide(X, scale[:, None], order="C"), scale


def _plain_norms(X):
    if sparse.issparse(X):
        return np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    return np.sqrt(np.einsum("ij,ij->i", X, X))


def row_norms(X):
    """Euclidean norms of the rows in float64, without overflow or underflow in the squares."""
    scaled, scale = scaled_rows(X)
    with np.errstate(over="ignore"):
        return scale * _plain_norms(scaled)


def inverse_or_zero(a):
    """1/a, and 0 where a is 0."""
    with np.errstate(over="ignore"):
        return np.divide(1.0, a, out=np.zeros_like(a), where=a != 0)


@dataclass(frozen=True)
class Unit(View):
    """Rows divided by their norm; a zero row stays zero, with derivative zero."""

    def apply(self, X):
        """Unit rows, in the dtype of X."""
        # The scaled rows are divided, not X: the norm of a subnormal row has no inverse.
        scaled, _ = scaled_rows(X)
        inverse = inverse_or_zero(_plain_norms(scaled))
        if sparse.issparse(X):
            scaled.data *= np.repeat(inverse, np.diff(scaled.indptr))
        else:
            scaled *= inverse[:, None]
        return scaled.astype(X.dtype, copy=False)

    def _parts(self, X):
        X = np.asarray(X, dtype=np.float64)
        inverse = inverse_or_zero(row_norms(X))[:, None]
        return X * inverse, inverse

    def pullback(self, X, dF):
        """(dF − x̂ x̂ᵀdF) / ‖x‖."""
        unit, inverse = self._parts(X)
        return (dF - unit * _dots(unit, dF)) * inverse, {}

    def pushforward(self, X, tX, tparams):
        """(tX − x̂ x̂ᵀtX) / ‖x‖."""
        return None if tX is None else self.pullback(X, tX)[0]

    def second(self, X, tX, tparams, dF, tdF):
        """Derivative of (dF − x̂ x̂ᵀdF) / ‖x‖."""
        unit, inverse = self._parts(X)
        out = 0.0 if tdF is None else (tdF - unit * _dots(unit, tdF)) * inverse
        if tX is not None:
            t_norm = _dots(unit, tX)
            t_unit = (tX - unit * t_norm) * inverse
            inner = _dots(unit, dF)
            out = out - (t_unit * inner + unit * _dots(t_unit, dF)) * inverse
            out = out - (dF - unit * inner) * inverse**2 * t_norm
        return np.broadcast_to(out, X.shape), {}

    def mixed(self, X, t, s):
        """Derivative of `pushforward` at fixed t: the map of `pullback` is its own transpose."""
        return None if t[0] is None or s[0] is None else self.second(X, s[0], {}, t[0], None)[0]


def _dots(a, b):
    return np.einsum("ij,ij->i", a, b)[:, None]


@dataclass(frozen=True)
class Wrap(View):
    """Columns in periods, u = fmod(x, p) / p in (−1, 1); fmod is exact, so a large x loses nothing."""

    period: object  # float, or a tuple with one per feature
    path: str

    has_params = True
    keeps_sparse = False

    def _period(self):
        return np.asarray(self.period, dtype=np.float64)

    def apply(self, X):
        """The wrapped columns, in the dtype of X."""
        period = self._period()
        return (np.fmod(X, period, dtype=np.float64) / period).astype(X.dtype, copy=False)

    def _gather(self, terms):
        period = self._period()
        return {self.path: terms.sum(axis=0) if period.ndim else terms.sum()}

    def pullback(self, X, dF):
        """Gradient in X and the period: ∂u/∂x = 1/p, ∂u/∂p = −x/p²."""
        period = self._period()
        return dF / period, self._gather(-dF * X / period**2)

    def pushforward(self, X, tX, tparams):
        """Directional derivative of u."""
        period, tperiod = self._period(), tparams.get(self.path)
        out = None if tX is None else tX / period
        return out if tperiod is None else plus(out, -X * tperiod / period**2)

    def second(self, X, tX, tparams, dF, tdF):
        """Directional derivative of the gradients."""
        period, tperiod = self._period(), tparams.get(self.path)
        tdX, terms = np.zeros(X.shape), np.zeros(X.shape)
        if tdF is not None:
            tdX, terms = tdX + tdF / period, terms - tdF * X / period**2
        if tX is not None:
            terms = terms - dF * tX / period**2
        if tperiod is not None:
            tdX = tdX - dF * tperiod / period**2
            terms = terms + 2.0 * dF * X * tperiod / period**3
        return tdX, self._gather(terms)

    def mixed(self, X, t, s):
        """Of u = x/p: −(tₓsₚ + sₓtₚ)/p² + 2x tₚsₚ/p³."""
        period, tp, sp = self._period(), t[1].get(self.path), s[1].get(self.path)
        out = None
        for moved, rate in ((t[0], sp), (s[0], tp)):
            if moved is not None and rate is not None:
                out = plus(out, -moved * rate / period**2)
        return out if tp is None or sp is None else plus(out, 2.0 * X * tp * sp / period**3)


class _Array:
    """A matrix that a frozen view holds: compared and hashed by content."""

    def __init__(self, value):
        self.value = np.array(value, dtype=np.float64)
        self._key = (self.value.shape, self.value.tobytes())

    def __eq__(self, other):
        return isinstance(other, _Array) and self._key == other._key

    def __hash__(self):
        return hash(self._key)


class Metric(View):
    """X·L with A = L Lᵀ, so that a dot product of two features is xᵀAz (LN14 rule 8).

    In derivative runs the rows are X·A and the columns Z, whose dot product is the same: the gradient in A is
    then Xᵀ times the row features' gradient, also where A is singular.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        A, symmetric positive semidefinite.
    root : ndarray of shape (d, r)
        L.
    path : str
        The hyperparameter's path.
    """

    one_sided = True
    keeps_sparse = False

    def __init__(self, matrix, root, path):
        self._matrix, self._root, self.path = _Array(matrix), _Array(root), path

    def __eq__(self, other):
        return isinstance(other, Metric) and (self._matrix, self.path) == (other._matrix, other.path)

    def __hash__(self):
        return hash((self._matrix, self.path))

    @property
    def rows(self):
        """X·A."""
        return _MetricRows(self._matrix, self.path)

    @property
    def columns(self):
        """X."""
        return Identity()

    def apply(self, X):
        """X·L in the dtype of X."""
        return np.asarray(X @ self._root.value.astype(X.dtype, copy=False))

    def n_features(self, d):
        """Columns of L; checks that A fits."""
        size = self._matrix.value.shape[0]
        if size != d:
            raise ValueError(f"metric is {size} x {size}, but the samples have {d} features")
        return self._root.value.shape[1]


@dataclass(frozen=True)
class _MetricRows(View):
    """X·A, the row side of a derivative run of `Metric`."""

    matrix: _Array
    path: str

    def apply(self, X):
        """X·A."""
        return X @ self.matrix.value

    def pullback(self, X, dF):
        """Gradient dF·A in X, and symmetrised XᵀdF in A."""
        dA = X.T @ dF
        return dF @ self.matrix.value, {self.path: 0.5 * (dA + dA.T)}

    def pushforward(self, X, tX, tparams):
        """Directional derivative tX·A + X·tA."""
        tA = tparams.get(self.path)
        out = None if tX is None else tX @ self.matrix.value
        return out if tA is None else plus(out, X @ (0.5 * (tA + tA.T)))

    def second(self, X, tX, tparams, dF, tdF):
        """Directional derivative of the gradients."""
        tdX, tdA = np.zeros(X.shape), np.zeros(self.matrix.value.shape)
        if tdF is not None:
            tdX, tdA = tdX + tdF @ self.matrix.value, tdA + X.T @ tdF
        if tX is not None:
            tdA = tdA + tX.T @ dF
        if (tA := tparams.get(self.path)) is not None:
            tdX = tdX + dF @ (0.5 * (tA + tA.T))
        return tdX, {self.path: 0.5 * (tdA + tdA.T)}

    def mixed(self, X, t, s):
        """Of X·A: tX·sA + sX·tA."""
        out = None
        for moved, A in ((t[0], s[1].get(self.path)), (s[0], t[1].get(self.path))):
            if moved is not None and A is not None:
                out = plus(out, moved @ (0.5 * (A + A.T)))
        return out


@dataclass(frozen=True)
class Chain(View):
    """A linear view without hyperparameters (`Columns`), then another."""

    first: View
    then: View

    @property
    def one_sided(self):
        """That of the second view."""
        return self.then.one_sided

    @property
    def has_params(self):
        """That of the second view."""
        return self.then.has_params

    @property
    def keeps_sparse(self):
        """That of the second view."""
        return self.then.keeps_sparse

    @property
    def rows(self):
        """The row side's chain."""
        return Chain(self.first, self.then.rows)

    @property
    def columns(self):
        """The column side's chain."""
        return Chain(self.first, self.then.columns)

    def apply(self, X):
        """Second of first."""
        return self.then.apply(self.first.apply(X))

    def n_features(self, d):
        """Second of first."""
        return self.then.n_features(self.first.n_features(d))

    def pullback(self, X, dF):
        """Chain rule."""
        dF, dparams = self.then.pullback(self.first.apply(X), dF)
        return self.first.pullback(X, dF)[0], dparams

    def pushforward(self, X, tX, tparams):
        """Chain rule."""
        return self.then.pushforward(self.first.apply(X), self.first.pushforward(X, tX, {}), tparams)

    def second(self, X, tX, tparams, dF, tdF):
        """Chain rule; the first view is linear."""
        inner, t_inner = self.first.apply(X), self.first.pushforward(X, tX, {})
        tdF, tdparams = self.then.second(inner, t_inner, tparams, dF, tdF)
        return self.first.pullback(X, tdF)[0], tdparams

    def mixed(self, X, t, s):
        """Of the second view along the first one's tangents: the first view is linear."""
        t, s = ((self.first.pushforward(X, tX, {}), tparams) for tX, tparams in (t, s))
        return self.then.mixed(self.first.apply(X), t, s)

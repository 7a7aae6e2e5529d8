"""Factors of Newton systems of several outputs, with what couples these.

Place on the way: ``newton_parts`` → **newton_coupled** → ``newton_factors`` → ``newton``.

Away from the borders of its classes a sample's Hessian is next to nothing, and at one of them mostly of rank
one (two classes, between which the sample is). Hence few eigenvectors of the samples' Hessians make up the
whole system: fewer than there are outputs that bend, and they leave nothing of the coupling, which takes many
steps of conjugate gradients.
"""

import copy

import numpy as np

from .._threads import n_threads as count_threads
from .._threads import one_blas_thread
from .held_matrix import each_block
from .newton_parts import factor_of_part, make_each
from .newton_system import Norms, scaled_residuals

__all__ = ["CoupledFactors", "Directions"]

#: Of ``tr(Sᵀ K S) / 2α``, what directions may have together that are left out of a factor.
_LEFT_OUT = 10.0
#: A factor's multiply-adds over those of a product that takes as long, with the factor's part in it.
_FASTER = 22.0


class Directions:
    """The samples' directions among the outputs in which problems bend.

    Parameters
    ----------
    curvature : Curvature
    alphas : ndarray of shape (q,)
    diagonal : ndarray of shape (n,)
        Of K.

    Attributes
    ----------
    U : ndarray of shape (J, n, q, C)
        For each sample the eigenvectors of its Hessian that count, the largest first, and 0 for the others.
    bend : ndarray of shape (J, n, q)
        Their eigenvalues.
    places : list of ndarray of int
        For each problem where in (J · n,) those are that count.
    strength : float
        The largest ``tr(Sᵀ K S) / 2α``.
    cost : float
        What factors take, in products with K.
    """

    def __init__(self, curvature, alphas, diagonal):
        n, q, n_outputs = curvature.shape
        S = np.ascontiguousarray(curvature.matrices())
        bend, U = np.linalg.eigh(S @ S.swapaxes(2, 3))
        bend, U = bend[:, :, ::-1].transpose(2, 0, 1), U[..., ::-1].transpose(3, 0, 1, 2)
        strength = np.maximum(bend, 0.0) * (diagonal[:, None] / (2 * alphas))
        kept = _all_but_a_part(strength.reshape(-1, q)).reshape(strength.shape)
        kept = kept[: np.count_nonzero(kept, axis=0).max(initial=0)]
        self.U = np.where(kept[..., None], U[: len(kept)], 0.0)
        self.bend = np.where(kept, bend[: len(kept)], 0.0)
        self.places = [np.flatnonzero(kept[:, :, k]) for k in range(q)]
        self.strength = float(strength.sum(axis=(0, 1)).max())
        self.cost = sum(float(len(each)) ** 3 for each in self.places) / (q * n_outputs * _FASTER * n**2)


def _all_but_a_part(strength):
    """Whether entries count: of each column the smallest ones do not, up to what may be left out of it."""
    order = np.argsort(strength, axis=0, kind="stable")
    counts = np.cumsum(np.take_along_axis(strength, order, axis=0), axis=0) > _LEFT_OUT
    kept = np.empty_like(counts)
    np.put_along_axis(kept, order, counts, axis=0)
    return kept


class CoupledFactors:
    """``(Sᵀ K S + 2α I)⁻¹`` by problem, by float32 factors over the samples' directions that bend.

    With unit vectors u of the outputs, σ² their bend and the columns Sᵀu/σ of Q it is
    ``Q A⁻¹ Qᵀ + (I − Q Qᵀ) / 2α``, where A has the entries ``σᵢ uᵢᵀuⱼ Kᵢⱼ σⱼ`` and 2α on its diagonal. At
    another curvature Q and σ are new, the factor being scaled as `Following` tells.

    Parameters
    ----------
    low_rank : LowRank
        Tells norms.
    curvature : Curvature
        Gives S.
    alphas : ndarray of shape (q,)
    K : ndarray of shape (n, n)
        float64.
    directions : Directions
    n_threads : int or None
        Changes nothing in the result.

    Attributes
    ----------
    dtype : dtype
        float32.
    made : bool
        Whether all factors could be.
    cost : float
        What making them takes, in products with K.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, low_rank, curvature, alphas, K, directions, n_threads=None):
        self.threads = count_threads(n_threads)
        self.norms = Norms(low_rank)
        self.shift, self.diagonal, self.cost = 2 * alphas, K.diagonal()[:, None], directions.cost
        self.U, self.made_at = directions.U, self._added(directions.bend)
        self.parts = [None] * len(alphas)

        def make(k, n_threads):
            places = directions.places[k]
            slots, rows = np.divmod(places, len(K))
            d = np.sqrt(directions.bend[slots, rows, k])
            factor = factor_of_part(K, rows, d, self.shift[k], n_threads, self.U[slots, rows, k])
            self.parts[k] = places, *factor

        make_each(make, list(map(len, directions.places)), self.threads)
        self.made = all(solve is not None for _, solve, _ in self.parts)
        self._follow(curvature)

    def _added(self, bend):
        return self.shift + bend * self.diagonal

    def _follow(self, curvature):
        """Put this curvature's Q, and what rows of the factor are to be scaled by."""
        images = np.array([curvature.adjoint(u) for u in self.U]).reshape(self.U.shape)
        bend = np.einsum("jnqc,jnqc->jnq", images, images)
        self.scale = np.sqrt(self._added(bend) / self.made_at)
        self.Q = _orthonormal(images)

    def at(self, curvature):
        """The same for another curvature of the same problems."""
        other = copy.copy(self)
        other._follow(curvature)
        return other

    def take(self, going):
        """The same for some of the problems."""
        other, some = copy.copy(self), np.flatnonzero(going)
        for name in ("U", "made_at", "scale", "Q"):
            setattr(other, name, getattr(self, name)[:, :, some])
        other.shift, other.parts = self.shift[some], [self.parts[k] for k in some]
        return other

    def apply(self, curvature, R, problems):
        """Apply to (n, len(problems), C); and what S R has in K's norm, squared, by problem."""
        n, q, _ = R.shape
        V, scale, size = scaled_residuals(curvature, R, self.norms)
        Q, rows_scale = self.Q, self.scale
        if q < Q.shape[2]:
            Q, rows_scale = Q[:, :, problems], rows_scale[:, :, problems]
        shift, inner = self.shift[problems], np.einsum("jnqc,nqc->qjn", Q, V).reshape(q, -1)
        change = inner / -shift[:, None]
        n_threads = 1 if q > 1 else self.threads

        def solve(k, _):
            places, solve_part, unit = self.parts[problems[k]]
            mine = rows_scale[:, :, k].ravel()[places]
            right = (inner[k, places] / mine).astype(np.float32)
            change[k, places] += solve_part(right, n_threads) / (unit * mine)

        work = 4.0 * sum(len(self.parts[k][0]) ** 2 for k in problems)
        with one_blas_thread():
            each_block(solve, np.arange(q + 1), self.threads, work)
        out = V / shift[:, None] + np.einsum("jnqc,qjn->nqc", Q, change.reshape(q, -1, n))
        return out * scale[:, None], size


def _orthonormal(vectors):
    """Vectors (J, …, C) of norm 1, each without its part along those before; without more, 0."""
    out = np.zeros_like(vectors)
    for j, v in enumerate(vectors):
        size = np.einsum("...c,...c->...", v, v)
        for u in out[:j]:
            v = v - np.einsum("...c,...c->...", u, v)[..., None] * u
        left = np.einsum("...c,...c->...", v, v)
        independent = left > 1e-10 * size
        out[j] = np.divide(v, np.sqrt(left)[..., None], out=out[j], where=independent[..., None])
    return out

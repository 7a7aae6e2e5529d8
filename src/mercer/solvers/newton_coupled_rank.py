"""A low-rank preconditioner of Newton systems of several outputs, with what couples these.

Place on the way: ``newton_system`` → **newton_coupled_rank** → ``newton_factors``.
"""

import numpy as np

from .. import _native
from .._threads import n_threads as count_threads
from .._threads import one_blas_thread
from .held_matrix import each_block
from .newton_parts import make_each
from .newton_system import Following, Norms, columns_of, laid_out, scaled_residuals

__all__ = ["CoupledRank", "rank_that_pays"]

#: Multiply-adds of a factor's making that take as long as one of a product with K.
_FASTER = 1.5
#: Up to this trace of ``F S Sᵀ Fᵀ`` over 2α float32 carries it.
_SINGLE_UP_TO = 3e5

#: Of the systems' diagonals, what may have changed since it was made (satimage, n = 2000, five folds: after a
#: change of 0.02 20 steps where a new one takes 16, after 0.03 46 and 28; of the joint squared margin after
#: 0.06 63 and 6).
_DRIFT = 0.02


def rank_that_pays(low_rank, curvature, alphas):
    """The rank at which making and steps of conjugate gradients take least, and both, in products with K.

    Steps for one regularisation strength go like the root of the trace of ``Sᵀ (K − Fᵀ F) S / 2α`` (satimage,
    n = 4000, α from 0.02 to 4e-4, three Newton steps: a factor of 1.6).

    Parameters
    ----------
    low_rank : LowRank
    curvature : Curvature
    alphas : ndarray of shape (q,)

    Returns
    -------
    rank : int
    making : float
    steps : float
    """
    n, _, n_outputs = curvature.shape
    D = curvature.diagonal
    strength = float(np.max(np.einsum("iqc,iqc->q", D, D) / (2 * alphas))) / n

    def cost(step):
        rank, left = step
        adds = 0.5 * (n_outputs + 1) * n * rank**2 + n_outputs**2 * rank**3 / 3.0
        return rank, adds / (_FASTER * n**2), 1.6 * np.sqrt(max(left, 0.0) * strength)

    costs = [cost(step) for step in (*low_rank.history, (len(low_rank.F), low_rank.trace))]
    return min(costs, key=lambda each: each[1] + each[2])


def _of_contrasts(S):
    """S, each of whose columns has a sum of 0, in coordinates of such vectors: (n, q, C − 1, C)."""
    ones_first = np.eye(S.shape[2])
    ones_first[:, 0] = 1.0
    contrasts = np.linalg.qr(ones_first)[0][:, 1:]
    return laid_out(np.einsum("ce,iqcd->iqed", contrasts, S))


class CoupledRank(Following):
    """``(Sᵀ Fᵀ F S + 2α I)⁻¹`` by problem, with K ≈ Fᵀ F cut to a rank.

    Its system over F's rows and the outputs is ``Σᵢ (fᵢ fᵢᵀ) ⊗ (Sᵢ Sᵢᵀ) + 2α I``, fᵢ a column of F. Where
    outputs are taken one by one, steps of conjugate gradients do not fall with the rank (satimage, α = 0.016,
    error by 1e-4: 47 steps at ranks from 100 to 500, with the coupling 17 and 6).

    Parameters
    ----------
    low_rank : LowRank
        Of K.
    curvature : Curvature
        Gives S.
    alphas : ndarray of shape (q,)
    diagonal : ndarray of shape (n,)
        Of K.
    rank : int
        So many rows of F.
    cost : float
        What making it takes, in products with K.
    n_threads : int or None
        Changes nothing in the result.

    Attributes
    ----------
    dtype : dtype
    made : bool
        Whether all factors could be.
    """

    def __init__(self, low_rank, curvature, alphas, diagonal, rank, cost, n_threads=None):
        super().__init__(curvature, alphas, diagonal)
        self.threads, self.cost = count_threads(n_threads), cost
        self.norms = Norms(low_rank)
        S = _of_contrasts(curvature.matrices() / np.sqrt(2 * alphas)[:, None, None])
        H = np.einsum("iqcd,iqed->iqce", S, S)
        spanned = low_rank.diagonal - low_rank.left(rank)
        single = float(np.max(spanned @ np.einsum("iqcc->iq", H), initial=0.0)) <= _SINGLE_UP_TO
        self.dtype = np.dtype(np.float32 if single else np.float64)
        F, unit = (low_rank.single, low_rank.unit) if single else (low_rank.F, 1.0)
        self.F, self.S = F[:rank].astype(self.dtype, copy=False), (unit * S).astype(self.dtype)
        self.factors, self.made = self._factors((unit**2 * H).astype(self.dtype))

    def _factors(self, H):
        """Cholesky factors of ``Σᵢ (fᵢ fᵢᵀ) ⊗ Hᵢ + I`` by problem, and whether there are all."""
        rank, (n_outputs, q) = len(self.F), (H.shape[2], H.shape[1])
        strength = np.einsum("iqcc->iq", H)
        systems = [_native.empty((n_outputs * rank,) * 2, self.dtype).T for _ in range(q)]

        def fill(index, _):
            k, c = divmod(index, n_outputs)
            rows = np.flatnonzero(strength[:, k])  # a fold's own
            F, weights = self.F[:, rows], H[rows, k, c:, c].T
            below = (weights[:, None] * F).reshape(len(weights) * rank, len(rows)) @ F.T
            systems[k][c * rank :, c * rank : (c + 1) * rank] = below

        status = np.ones(q, int)

        def factor(k, n_threads):
            systems[k].T.flat[:: n_outputs * rank + 1] += 1
            status[k] = _native.cholesky(systems[k], n_threads)

        work = 0.5 * n_outputs * strength.size * rank**2
        with one_blas_thread():
            each_block(fill, np.arange(q * n_outputs + 1), self.threads, work)
        make_each(factor, [n_outputs * rank] * q, self.threads)
        return systems, not status.any()

    def at(self, curvature):
        """The same for another curvature of the same problems, or None where it is too far away."""
        other = super().at(curvature)
        change = np.abs(other.rest - self.made_at).sum(axis=0) / self.made_at.sum(axis=0)
        return other if change.max() <= _DRIFT else None

    def take(self, going):
        """The same for some of the problems."""
        other, some = super().take(going), np.flatnonzero(going)
        other.S, other.factors = self.S[:, some], [self.factors[k] for k in some]
        return other

    def apply(self, curvature, R, problems):
        """Apply to (n, len(problems), C); and what S R has in K's norm, squared, by problem."""
        n, q, n_outputs = R.shape
        V, scale, size = scaled_residuals(curvature, R, self.norms)
        S = self.S if q == self.S.shape[1] else self.S[:, problems]
        columns = columns_of(problems, n_outputs)
        rows_scale = self.scale[:, columns].reshape(V.shape)
        V = V / rows_scale
        image = np.einsum("iqcd,iqd->iqc", S, V.astype(self.dtype))
        inner = (image.reshape(n, -1).T @ self.F.T).reshape(q, S.shape[2] * len(self.F))
        n_threads = 1 if q > 1 else self.threads

        def solve(k, _):
            inner[k] = _native.cholesky_solve(self.factors[problems[k]], inner[k][:, None], n_threads)[:, 0]

        with one_blas_thread():
            each_block(solve, np.arange(q + 1), self.threads, 4.0 * inner.size * inner.shape[1])
        back = inner.reshape(image.shape[1] * image.shape[2], -1) @ self.F
        back = back.reshape(q, S.shape[2], n).transpose(2, 0, 1)
        out = V - np.einsum("iqcd,iqc->iqd", S, back)
        return out / rows_scale * (scale[:, None] / self.shift[columns].reshape(q, n_outputs)), size

"""Crammer and Singer's machine in the form of the others.

Place on the way: ``solvers.crammer_singer`` → **all at once** → ``svm``.
"""

import numpy as np

from .._arrays import square_part
from .._memory import available_memory
from ..gram import Gram
from ..kernels.prepared import take_rows
from ..solvers.crammer_singer import crammer_singer
from ..solvers.dual_layout import STATUS
from ._machines import Machines

__all__ = ["all_at_once"]


def all_at_once(
    kernel, X, rows, upper, weights, previous, *, n_jobs=None, tol, max_iter, cache_bytes, on_step
):
    """Crammer and Singer's problem.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray, csr_array or sequence
        The caller's rows.
    rows : CanonicalRows
    upper, weights : ndarray of shape (m,)
    previous : list of ndarray of shape (m,), by class, or None
    n_jobs : int or None
    tol, max_iter, on_step
        As `crammer_singer` has them.
    cache_bytes : float or None
        The kernel matrix is kept if it takes no more; None is half of the memory that is free.

    Returns
    -------
    Machines
        β by class; no intercepts.
    """
    m, k = len(upper), len(rows.offsets) - 1
    if "matrix" in kernel._readers():
        gram = Gram(kernel, square_part(X, rows.rows), n_threads=n_jobs)
    else:
        own = take_rows(X, rows.rows)
        own = own.astype(np.float64, copy=False) if hasattr(own, "astype") else own
        gram = Gram(kernel, own, n_threads=n_jobs)
    diagonal, take = gram.diag(), gram.rows
    if 8.0 * m * m <= (0.5 * available_memory() if cache_bytes is None else cache_bytes):
        take = gram.formed().__getitem__
    labels = np.repeat(np.arange(k), np.diff(rows.offsets))
    start = None if previous is None else np.stack(previous, axis=1)
    outcome = crammer_singer(
        take,
        diagonal,
        labels,
        k,
        upper,
        tol=tol,
        max_iter=max_iter,
        start=start,
        on_step=on_step,
        warn=False,
    )
    status = "converged" if outcome.converged else "capped" if outcome.capped else "stalled"
    f, own = outcome.decision.copy(), np.arange(m)
    rivals = f + (np.arange(k) != labels[:, None])
    rivals[:, ~outcome.present] = -np.inf
    slack = np.maximum(rivals.max(axis=1) - f[own, labels], 0.0)
    return Machines(
        beta=outcome.coef.T.ravel(), intercept=np.zeros(k), bound=upper,
        objective=np.array([outcome.objective]), squared_norm=np.array([max(float(np.sum(outcome.coef * f)),
        0.0)]), loss=np.array([weights @ slack]), primal=np.array([outcome.primal_objective]),
        gap=np.array([max(outcome.duality_gap, 0.0)]), kkt_gap=np.array([outcome.gap]),
        margin_bound=np.array([np.inf]), n_iter=np.array([outcome.n_iter]),
        status=np.array([STATUS.index(status)]), rows="float64", coupled=True,
    )  # fmt: skip

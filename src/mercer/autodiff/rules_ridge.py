"""Rules of the linear systems of kernel ridge regression (`mercer.solvers.ridge`, `ridge_loo`).

``G`` is symmetric, and so are its cotangents; ``factored`` (of `mercer.solvers.traced_ridge`) is the one
factor of its plain values that the value and all derivatives compute with.
"""

import numpy as np

from mercer._arrays import trace_hooks
from mercer.autodiff.rules import Primitive, cast

__all__ = ["inverse", "inverse_diagonal", "solve"]


def _half(M):
    return 0.5 * (M + np.transpose(M))


def _solve_jvp(tangents, ans, G, B, factored):
    # d(G⁻¹B) = G⁻¹(dB − dG G⁻¹B)
    tG, tB = tangents
    right = None if tG is None else -(tG @ ans)
    if tB is not None:
        right = tB if right is None else tB + right
    return solve(G, right, factored=factored)


def _solve_vjp(g, ans, needed, G, B, factored):
    right = solve(G, g, factored=factored)
    return [-_half(right @ np.transpose(ans)) if needed[0] else None, cast(right, B) if needed[1] else None]


def _inverse_vjp(g, ans, G, factored):
    return -_half(ans @ g @ ans)


def _diagonal_jvp(t, ans, G, factored):
    # d diag(G⁻¹) = −diag(P dG P) with P = G⁻¹
    P = inverse(G, factored=factored)
    return -np.sum((P @ t) * P, axis=1)


def _diagonal_vjp(g, ans, G, factored):
    P = inverse(G, factored=factored)
    return -((P * g) @ P)


solve = Primitive(
    lambda G, B, factored: factored.solve(B), _solve_jvp, _solve_vjp, name="solvers.ridge's linear system"
)
inverse = Primitive(
    lambda G, factored: factored.inverse,
    [lambda t, ans, G, factored: -(ans @ t @ ans)],
    [_inverse_vjp],
    name="solvers.ridge_loo's inverse",
)
inverse_diagonal = Primitive(
    lambda G, factored: np.diagonal(factored.inverse).copy(),
    [_diagonal_jvp],
    [_diagonal_vjp],
    name="solvers.ridge_loo's inverse diagonal",
)
trace_hooks["solve"] = lambda G, B, factored: solve(G, B, factored=factored)
trace_hooks["inverse_diagonal"] = lambda G, factored: inverse_diagonal(G, factored=factored)

"""Derivatives of a kernel's diagonal k(x_i, x_i), which normalisation needs: of pairs, so O(n·d).

Place on the way: ``chain`` → **diag** → ``rows``.
"""

from . import pairs
from .chain import Ends, Sum, slot_gradient, slot_second, weight_gradient, weight_second
from .program import Tangent

__all__ = ["diag_pull", "diag_pull_push", "diag_push"]


def _diag_ends(program, X):
    ends = Ends(program, X, None)
    blocks = {c: program.leaves[c].view.diag(ends.X, None) for c in program.block_leaves}
    return ends, blocks


def diag_push(program, X, tX, tparams):
    """Directional derivative of k(x_i, x_i), (n,)."""
    ends, blocks = _diag_ends(program, X)
    return pairs.push(program, ends.x_rows, ends.z_columns, _diag_tangent(ends, tX, tparams), blocks)


def _diag_tangent(ends, tX, tparams):
    program = ends.program
    vecs = ends.vecs_dot(ends.X, tX, tparams)
    return Tangent(
        left=ends.features_dot(ends.X, tX, tparams, "rows"),
        right=ends.features_dot(ends.X, tX, tparams, "columns"),
        left_vecs=vecs,
        right_vecs=vecs,
        slots=ends.slots_dot(tparams),
        log_weights=ends.weights_dot(tparams),
        blocks={
            c: program.leaves[c].view.diag_pushforward(ends.X, tX, tparams) for c in program.block_leaves
        },
    )


def diag_pull(program, X, g):
    """Gradient of Σ gᵢ k(x_i, x_i): dX (or None), and a dict by path."""
    ends, blocks = _diag_ends(program, X)
    grad = pairs.pull(program, ends.x_rows, ends.z_columns, g, blocks)
    total = Sum()
    for leaf, left, right in zip(program.leaves, grad.left, grad.right, strict=True):
        if left is not None and leaf.view.differentiable:
            total.add(*leaf.view.rows.pullback(ends.X, left))
            total.add(*leaf.view.columns.pullback(ends.X, right))
    for function, left, right in zip(program.vecs, grad.left_vecs, grad.right_vecs, strict=True):
        total.add(*function.pullback(ends.X, left + right))
    total.add_params(slot_gradient(program, grad.slots))
    total.add_params(weight_gradient(program, grad.log_weights))
    for c, cotangent in grad.blocks.items():
        total.add(*program.leaves[c].view.diag_pullback(ends.X, cotangent))
    return total.samples, total.params


def diag_pull_push(program, X, g, tg, tX, tparams):
    """Directional derivative of `diag_pull` along tg, tX and tparams."""
    ends, blocks = _diag_ends(program, X)
    tangent = _diag_tangent(ends, tX, tparams)
    grad, grad_dot = pairs.pull_push(program, ends.x_rows, ends.z_columns, g, tangent, blocks)
    total = Sum()
    total.add(*diag_pull(program, X, tg))
    for c, leaf in enumerate(program.leaves):
        if grad.left[c] is not None and leaf.view.differentiable:
            rows, columns = leaf.view.rows, leaf.view.columns
            total.add(*rows.second(ends.X, tX, tparams, grad.left[c], grad_dot.left[c]))
            total.add(*columns.second(ends.X, tX, tparams, grad.right[c], grad_dot.right[c]))
    for v, function in enumerate(program.vecs):
        da, tda = grad.left_vecs[v] + grad.right_vecs[v], grad_dot.left_vecs[v] + grad_dot.right_vecs[v]
        total.add(*function.second(ends.X, tX, tparams, da, tda))
    for part in (
        slot_gradient(program, grad_dot.slots),
        slot_second(program, grad.slots, tparams),
        weight_gradient(program, grad_dot.log_weights),
        weight_second(program, grad.log_weights, tparams),
    ):
        total.add_params(part)
    for c in program.block_leaves:
        source = program.leaves[c].view
        total.add(*source.diag_pullback(ends.X, grad_dot.blocks[c]))
        total.add(*source.diag_second(ends.X, grad.blocks[c], tX, tparams))
    return total.samples, total.params

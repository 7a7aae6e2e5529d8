"""The duals of machines that are one function: set up for ``solvers.dual``, and read back.

Place on the way: ``solvers`` → ``_machines`` → **function machines** → ``svm``.
"""

import numpy as np

from ..solvers.dual_layout import dual_jobs
from ._machines import Machines, reached
from ._warm import first_come, start_nu_regression, start_regression, start_sum

__all__ = ["nu_regression", "one_class", "regression"]

# Each step rounds coefficients of size C, and so moves decisions by up to _EPS · C · k(x, x): by no more than
# this part of tol, so that 10⁵ steps are a small part of it.
_EPS, _DIGITS = float(np.finfo(np.float64).eps), 1e-4


def regression(samples, y, upper, weights, epsilon, *, previous=None, **options):
    """ε-SVR: min ½βᵀKβ − yᵀβ + ε Σ|β| over |β| ≤ C, Σβ = 0.

    Parameters
    ----------
    samples : DualSamples
        One group.
    y, upper, weights : ndarray of shape (m,)
    epsilon : float
    previous : ndarray of shape (m,) or None
        β of an earlier fit.
    **options
        For `DualSamples.solve`.

    Returns
    -------
    Machines
    """
    jobs = dual_jobs((0, 1), epsilon=epsilon)
    start = None if previous is None else start_regression(previous, upper)
    outcome = samples.solve(jobs, y[None], -upper[None], upper[None], start=start, fields=True, **options)
    beta, bias, objective = outcome.betas, outcome.bias[0, 0], outcome.objective[0]
    squared = max(2 * (objective + y @ beta - epsilon * np.abs(beta).sum()), 0.0)
    slack = np.maximum(np.abs(outcome.fields - bias) - epsilon, 0.0)
    primal = 0.5 * squared
    if not np.isinf(upper).any():
        primal += upper @ slack
    elif slack.max() > 8 * _EPS * (np.abs(beta).sum() * samples.scale() + np.abs(y).max()):
        primal = np.inf  # an error beyond ε that is no rounding
    return _single(outcome, beta, bias, upper, objective, squared, weights @ slack, primal)


def nu_regression(samples, y, upper, weights, nu, *, previous=None, **options):
    """ν-SVR: min ½βᵀKβ − yᵀβ, β = α − α*, over 0 ≤ α, α* ≤ C, each of sum ν ΣC/2.

    Parameters
    ----------
    samples : DualSamples
        One group, of which there are α and −α*.
    y, upper, weights : ndarray of shape (m,)
    nu : float
    previous, **options
        As for `regression`.

    Returns
    -------
    Machines
        With ``extra["epsilon"]``.
    """
    m, total = len(y), nu * upper.sum() / 2
    if _EPS * upper.max() * samples.scale() > _DIGITS * options["tol"]:
        machines = _without_tube(samples, y, upper, weights, total, previous, options)
        if machines is not None:
            return machines
    start = None if previous is None else start_nu_regression(previous, upper, total)
    cold = start is None
    if cold:
        first = first_come(total, upper)
        start = np.concatenate([first, -first])
    jobs, box = dual_jobs((0, 1), (0, 1), sets=(0, 1), separate=True), np.zeros((3, 2, m))
    box[0], box[1, 1], box[2, 0] = y, -upper, upper
    outcome = samples.solve(jobs, *box, start=start, cancels=cold, fields=True, **options)
    beta = outcome.betas[:m] + outcome.betas[m:]
    up, down = outcome.bias[0].tolist()
    # A solve that was cut short may leave less than 0, which is no tube.
    bias, epsilon = (up + down) / 2, max((up - down) / 2, 0.0)
    objective = outcome.objective[0]
    squared = max(2 * (objective + y @ beta), 0.0)
    slack = np.maximum(np.abs(outcome.fields[:m] - bias) - epsilon, 0.0)
    primal = 0.5 * squared + 2 * total * epsilon + upper @ slack
    machines = _single(outcome, beta, bias, upper, objective, squared, weights @ slack, primal)
    machines.extra["epsilon"] = epsilon
    return machines


def _without_tube(samples, y, upper, weights, total, previous, options):
    """The ν-SVR whose ε is 0, or None if it is not.

    Little is left of β = α − α* where both are as large as C and β is not. But then ν leaves no errors: a β
    that is optimal at ε = 0 with Σ|β| ≤ 2 total is that of the ν-SVR, since the same can be added to α and α*
    until their sums are right.
    """
    start = None if previous is None else start_regression(previous, upper)
    box = y[None], -upper[None], upper[None]
    outcome = samples.solve(dual_jobs((0, 1)), *box, start=start, fields=True, **options)
    beta, bias, objective = outcome.betas, outcome.bias[0, 0], outcome.objective[0]
    if not np.abs(beta).sum() <= 2 * total:
        return None
    squared = max(2 * (objective + y @ beta), 0.0)
    slack = np.abs(outcome.fields - bias)
    primal = 0.5 * squared + upper @ slack
    machines = _single(outcome, beta, bias, upper, objective, squared, weights @ slack, primal)
    machines.extra["epsilon"] = 0.0
    return machines


def one_class(samples, weights, nu, *, previous=None, **options):
    """One class: min ½βᵀKβ over 0 ≤ β ≤ weight, Σβ = ν·(all weight).

    Parameters
    ----------
    samples : DualSamples
        One group.
    weights : ndarray of shape (m,)
    nu : float
    previous, **options
        As for `regression`.

    Returns
    -------
    Machines
        The intercept is −ρ.
    """
    total, zeros = nu * weights.sum(), np.zeros((1, len(weights)))
    start = None if previous is None else start_sum(previous, weights, total)
    if start is None:
        start = first_come(total, weights)
    outcome = samples.solve(
        dual_jobs((0, 1)), zeros, zeros, weights[None], start=start, fields=True, **options
    )
    beta, bias, objective = outcome.betas, outcome.bias[0, 0], outcome.objective[0]
    slack = np.maximum(outcome.fields - bias, 0.0)
    loss = weights @ slack
    return _single(
        outcome,
        beta,
        bias,
        weights,
        objective,
        max(2 * objective, 0.0),
        loss,
        max(objective, 0.0) + bias * total + loss,
    )


def _single(outcome, beta, bias, bound, objective, squared, loss, primal):
    def one(value):
        return np.array([value], dtype=np.float64)

    return Machines(
        beta=beta, intercept=one(bias), bound=bound, objective=one(objective), squared_norm=one(squared),
        loss=one(loss), primal=one(primal), gap=one(max(primal + objective, 0.0)), **reached(outcome, 1),
    )  # fmt: skip

"""What tests of the preconditioners of Newton systems share."""

import numpy as np

from mercer.solvers.newton import newton


def reaches_what_it_reaches_without(kind, systems, loss, monkeypatch):
    """With a kind of preconditioner, which is to be made, Newton has the minimum that it has without.

    Parameters
    ----------
    kind : type
    systems : object
        With K, y, alphas, root_weights and low_rank.
    loss : Loss
    monkeypatch : pytest.MonkeyPatch
    """
    made, start = [], kind.__init__
    monkeypatch.setattr(kind, "__init__", lambda self, *args: (made.append(self), start(self, *args))[1])

    def found(matrix):
        return newton(
            lambda V: systems.K @ V,
            loss,
            systems.y,
            systems.alphas,
            weights=systems.root_weights,
            low_rank=systems.low_rank,
            matrix=matrix,
        )

    without, outcome = found(None), found(systems.K)
    assert made
    assert all(each.made for each in made)
    assert outcome.converged.all()
    np.testing.assert_allclose(outcome.objective, without.objective, rtol=1e-12)
    np.testing.assert_allclose(outcome.f, without.f, rtol=1e-6, atol=1e-6)


def targets(loss, score, rng):
    """Targets that a loss takes, following a score with noise."""
    noisy = score + rng.normal(size=len(score))
    if loss.needs == "sign":
        return np.where(noisy > 0, 1.0, -1.0)
    if loss.needs == "code":
        return np.digitize(noisy, [-0.7, 0.7])
    return rng.poisson(np.exp(0.5 * score)).astype(float) if loss.needs == "nonnegative" else noisy

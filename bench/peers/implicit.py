"""Derivatives of solvers' answers: their time beside the solver's, and their errors.

    python -m bench.peers.implicit [--quick] [--repeats N]

- A nonlinear system of n unknowns, tanh(W w) + 2 w = λ, solved by Newton's method with the exact Jacobian
  written by hand: the pullback to λ and W with the LU kept, over that solve's time. Beside it: the same
  derivative by differentiating the unrolled Newton iteration.
- A (w³ + w) = λ at growing condition numbers of A: errors of the pullback and the pushforward against mpmath.
- A quadratic program (n = 100, m = 200 inequalities, 10 equations): errors of the gradients in all data
  against differences, and the time of the derivative over Clarabel's; a linear program against perturbation.
"""

import argparse

import mpmath
import numpy as np
import scipy.linalg

import mercer.autodiff as ad
from mercer import show_versions

from . import _timing


def newton(W, lam):
    """Solve tanh(W w) + 2 w = λ to rounding; returns w and the number of steps."""
    w, steps, size = lam / 2, 0, np.inf
    while size > 1e-14 and steps < 50:
        t = np.tanh(W @ w)
        J = (1 - t * t)[:, None] * W + 2 * np.eye(len(lam))
        step = scipy.linalg.solve(J, t + 2 * w - lam, check_finite=False)
        w, steps = w - step, steps + 1
        size = np.max(abs(step)) / np.max(abs(w))
    return w, steps


def unrolled(W, lam, steps):
    """The same iteration in NumPy's functions, to be traced."""
    w = lam / 2
    for _ in range(steps):
        t = np.tanh(W @ w)
        J = np.reshape(1 - t * t, (-1, 1)) * W + 2 * np.eye(lam.shape[0])
        w = w - np.linalg.solve(J, t + 2 * w - lam)
    return w


def times(n, repeats):
    """Newton's solve, and derivatives of its answer."""
    rng = np.random.default_rng(0)
    W, lam, g = 2 * rng.standard_normal((n, n)) / np.sqrt(n), rng.standard_normal(n), rng.standard_normal(n)
    steps = newton(W, lam)[1]
    root = ad.implicit_root(lambda w, W, lam: np.tanh(W @ w) + 2 * w - lam, lambda W, lam: newton(W, lam)[0])
    _, pull_lam = ad.vjp(lambda lam: root(W, lam), lam)
    _, pull = ad.vjp(root, W, lam)
    _, pull_unrolled = ad.vjp(lambda lam: unrolled(W, lam, steps), lam)
    exact = pull_lam(g)[0]
    gap = np.max(abs(pull_unrolled(g)[0] - exact)) / np.max(abs(exact))
    runs = {
        "newton": lambda: newton(W, lam),
        "pullback to λ": lambda: pull_lam(g),
        "pullback to λ and W": lambda: pull(g),
        "value and pullback to λ and W": lambda: ad.vjp(root, W, lam)[1](g),
        "pushforward, with the solve": lambda: ad.jvp(lambda lam: root(W, lam), (lam,), (g,)),
        "unrolled: pullback to λ": lambda: pull_unrolled(g),
    }
    medians = _timing.interleaved(runs, repeats)
    print(f"\nn = {n}, {steps} Newton steps; medians of {repeats} interleaved repeats")
    rows = []
    for name, seconds in medians.items():
        share = seconds / medians["newton"]
        kept = name.startswith("pullback")
        verdict = (
            ("≤ 5%", f"{100 * share:.1f}%" + ("" if share <= 0.05 else " ✗"))
            if kept
            else ("", f"{100 * share:.0f}%")
        )
        rows.append([name, f"{1e3 * seconds:.1f}", *verdict])
    _timing.table(["", "ms", "target", "of Newton"], rows)
    print(f"implicit and unrolled pullbacks differ by {gap:.0e}")


def conditions(n):
    """Errors at growing condition numbers, against 50 digits."""
    rng = np.random.default_rng(1)
    U, V = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    w, g, t = rng.uniform(0.5, 1.5, n), *rng.standard_normal((2, n))
    rows = []
    for condition in (1e2, 1e4, 1e6, 1e8):
        A = U * np.geomspace(1, 1 / condition, n) @ V
        root = ad.implicit_root(lambda w, lam, A=A: A @ (w**3 + w) - lam, lambda lam: w)
        lam = A @ (w**3 + w)
        pulled, pushed = ad.vjp(root, lam)[1](g)[0], ad.jvp(root, (lam,), (t,))[1]
        with mpmath.workdps(50):
            D = [3 * mpmath.mpf(x) ** 2 + 1 for x in w]
            exact = mpmath.matrix(A.tolist())
            by_D = mpmath.matrix([mpmath.mpf(x) / d for x, d in zip(g, D, strict=True)])
            want_g = [float(x) for x in mpmath.lu_solve(exact.T, by_D)]
            want_t = mpmath.lu_solve(exact, mpmath.matrix(t.tolist()))
            want_t = [float(x / d) for x, d in zip(want_t, D, strict=True)]
        errors = [np.max(abs(a - b)) / np.max(np.abs(b)) for a, b in ((pulled, want_g), (pushed, want_t))]
        bound = "≤ 1e-8" if condition <= 1e6 else ""
        miss = " ✗" if bound and max(errors) > 1e-8 else ""
        rows.append([f"{condition:.0e}", f"{errors[0]:.0e}", f"{errors[1]:.0e}", bound + miss])
    print(f"\nA (w³ + w) = λ, n = {n}: largest relative errors against 50 digits")
    _timing.table(["condition", "pullback", "pushforward", "target"], rows)


def differences(f, data, gradients, rng, h):
    """The largest gap of gradients to extrapolated central differences, relative to the gradient's size."""
    rows = []
    for i, gradient in enumerate(gradients):
        d = rng.standard_normal(data[i].shape)
        d /= np.linalg.norm(d)
        estimates = [
            (f(*data[:i], data[i] + s * d, *data[i + 1 :]) - f(*data[:i], data[i] - s * d, *data[i + 1 :]))
            / (2 * s)
            for s in (h, 2 * h)
        ]
        estimate = (4 * estimates[0] - estimates[1]) / 3
        rows.append(abs(np.sum(gradient * d) - estimate) / max(1.0, np.linalg.norm(gradient)))
    return rows


def quadratic(n, m, p, repeats):
    """Gradients of a quadratic program's solution in its six data."""
    rng = np.random.default_rng(2)
    M = rng.standard_normal((n, n))
    x = rng.standard_normal(n)
    G, A = rng.standard_normal((m, n)), rng.standard_normal((p, n))
    h = G @ x + rng.uniform(0.1, 1, m)
    data = M @ M.T / n + 0.1 * np.eye(n), 3 * rng.standard_normal(n), G, h, A, A @ x
    weights = rng.standard_normal(n)

    def loss(*data):
        return weights @ ad.quadratic_program(*data).x

    _, pull = ad.vjp(loss, *data)
    errors = differences(loss, data, pull(1.0), rng, 1e-5)
    active = int(ad.quadratic_program(*data).active.sum())
    print(f"\nQuadratic program, n = {n}, m = {m} ({active} active), p = {p}: gradients against differences")
    rows = [
        [name, f"{e:.0e}", "≤ 1e-6" + (" ✗" if e > 1e-6 else "")]
        for name, e in zip("P q G h A b".split(), errors, strict=True)
    ]
    _timing.table(["in", "error", "target"], rows)
    runs = {
        "solve": lambda: ad.quadratic_program(*data).x,
        "pullback": lambda: pull(1.0),
        "both": lambda: ad.vjp(loss, *data)[1](1.0),
    }
    medians = _timing.interleaved(runs, repeats)
    print("  ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in medians.items()))


def linear(n, m, p):
    """Sensitivities of a linear program against perturbation."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0.5, 2, n)
    A_ub, A_eq = rng.standard_normal((m, n)), rng.standard_normal((p, n))
    data = rng.uniform(0.5, 2, n), A_ub, A_ub @ x + rng.uniform(-0.3, 0.3, m), A_eq, A_eq @ x
    weights = rng.standard_normal(n)
    print(f"\nLinear program, n = {n}, m = {m}, p = {p}, x ≥ 0: gradients against perturbation")
    rows = []
    for what, loss in (
        ("solution", lambda *data: weights @ ad.linear_program(*data).x),
        ("value", lambda *data: ad.linear_program(*data).value),
    ):
        errors = differences(loss, data, ad.vjp(loss, *data)[1](1.0), rng, 1e-6)
        rows.append([what, *(f"{e:.0e}" for e in errors)])
    _timing.table(["of the", "c", "A_ub", "b_ub", "A_eq", "b_eq"], rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    show_versions()
    times(100 if options.quick else 1000, 1 if options.quick else options.repeats)
    conditions(10 if options.quick else 40)
    quadratic(*((20, 40, 3) if options.quick else (100, 200, 10)), 1 if options.quick else options.repeats)
    linear(*((8, 5, 2) if options.quick else (60, 40, 10)))


if __name__ == "__main__":
    main()

"""Every mode of differentiation on plain NumPy functions, and what each carries and keeps, in pictures.

    python examples/autodiff_tour.py [--output FOLDER]

First and second derivatives of one function in all modes; a square root, a ridge solution and a rule of one's
own differentiated without tracing a solver; the leave-one-out error of ``mercer``'s kernel ridge regression
minimised over log γ and log α by Newton's method. Draws the computational graph with tangents and adjoints,
and the memory of forward, reverse and checkpointed runs of a loop, to ``pictures/``.
"""

import argparse
import pathlib
import time
import tracemalloc

import numpy as np
from sklearn.datasets import load_diabetes

import mercer.autodiff as ad
from mercer.kernels import RBF
from mercer.solvers import ridge_loo

MODES = ("forward-over-forward", "forward-over-reverse", "reverse-over-forward", "reverse-over-reverse")
STEPS, BLOCK, STATE = 196, 14, 20_000  # of the loop whose memory is measured


def f(x, y):
    """The function of the pictures."""
    return np.sin(x * y) + np.exp(x) / (1 + y**2)


def energy(x):
    """A scalar function of a vector, through a determinant and a solution."""
    A = np.outer(x, x) + np.diag(1 + x**2)
    return np.linalg.slogdet(A)[1] + x @ np.linalg.solve(A, np.cos(x))


def first_order():
    """Forward mode, reverse mode, and Jacobians by whichever is cheaper."""
    print("\nf(x, y) = sin(xy) + eˣ / (1 + y²) at (1, 2)")
    value, slope = ad.jvp(f, (1.0, 2.0), (1.0, 0.0))
    print(f"  jvp along x        {value:.6f}, slope {slope:.6f}")
    value, pullback = ad.vjp(f, 1.0, 2.0)
    print("  vjp, pullback(1)   ({:.6f}, {:.6f})".format(*pullback(1.0)))
    print("  grad               ({:.6f}, {:.6f})".format(*ad.grad(f, argnums=(0, 1))(1.0, 2.0)))
    wide, tall = np.ones((2, 30)), np.ones((30, 2))
    for name, M in (("reverse", wide), ("forward", tall)):
        J = ad.jacobian(lambda x, M=M: np.tanh(M @ x))(np.full(M.shape[1], 0.1))
        print(f"  jacobian           {J.shape[0]} × {J.shape[1]}, by {name} mode of its own accord")


def second_order():
    """Hessian times vector in four nestings, the Hessian, and wᵀHv without a tape."""
    x = np.array([0.5, -0.3, 0.8])
    v, w = np.array([1.0, 0.0, -1.0]), np.array([0.0, 1.0, 1.0])
    print("\nlog det A(x) + xᵀ A(x)⁻¹ cos x, second order")
    for mode in MODES:
        product = ad.hvp(energy, x, v, mode=mode)
        print(f"  hvp {mode:<22}" + "".join(f"{p:12.8f}" for p in product))
    gap = np.max(abs(ad.hessian(energy)(x) @ v - product))
    print(f"  hessian @ v differs by {gap:.0e}")
    print(f"  second_directional {ad.second_directional(energy, x, v, w):.8f}, wᵀHv {w @ product:.8f}")


def implicit():
    """Solvers that are not traced: a fixed point, a minimum."""

    @ad.fixed_point(lambda x, a: (x + a / x) / 2)  # LINMA (1.42)
    def root(a):
        x = 1.0
        while abs(x * x - a) > 1e-14 * a:
            x = (x + a / x) / 2
        return x

    print("\nimplicit functions")
    print(
        f"  √4 by Heron's steps: slope {ad.grad(root)(4.0):.6f}, its slope {ad.grad(ad.grad(root))(4.0):.6f}"
    )
    X, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    train, held_out = np.arange(300), np.arange(300, 442)

    def penalised(w, log_alpha):
        r = X[train] @ w - y[train]
        return r @ r / 2 + np.exp(log_alpha) * (w @ w) / 2

    @ad.argmin(penalised)
    def ridge(log_alpha):
        A = X[train].T @ X[train] + np.exp(log_alpha) * np.eye(X.shape[1])
        return np.linalg.solve(A, X[train].T @ y[train])

    def error(log_alpha):
        return np.mean((X[held_out] @ ridge(log_alpha) - y[held_out]) ** 2)

    u, h = np.log(0.1), 1e-5
    found, difference = ad.grad(error)(u), (error(u + h) - error(u - h)) / (2 * h)
    print(f"  held-out error of ridge regression by log α: {found:.8f}, by differences {difference:.8f}")


def rules():
    """A derivative of one's own, for a function whose own overflows."""

    def softplus(x):
        return np.where(x > 0, x, 0.0) + np.log1p(np.exp(-abs(x)))

    safe = ad.custom_rule(softplus, jvp=lambda t, ans, x: t[0] * np.exp(x - ans), vjp="transpose")
    x = np.array([-800.0, 0.0, 800.0])
    slopes = ad.grad(lambda x: np.sum(safe(x)))(x)
    print(
        "\nsoftplus with a rule of its own: slopes "
        + ", ".join(f"{s:g}" for s in slopes)
        + " at −800, 0, 800"
    )


def kernel_newton():
    """Minimise a kernel machine's leave-one-out error by Newton's method through the kernel."""
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:150] / X.std(), (y[:150] - y[:150].mean()) / y.std()

    def error(u):
        log_gamma, log_alpha = u
        return np.mean(ridge_loo(RBF(np.exp(log_gamma))(X), y, np.exp(log_alpha)) ** 2)

    start, u = time.perf_counter(), np.log([0.02, 1.0])
    print(f"\nleave-one-out error of kernel ridge, {len(y)} rows, over (log γ, log α)")
    hessian = ad.hessian(error)
    for step in range(30):
        value, g = ad.value_and_grad(error)(u)
        if step < 3 or np.linalg.norm(g) < 1e-10:
            print(f"  step {step:2d}  error {value:.10f}  |gradient| {np.linalg.norm(g):.1e}")
        if np.linalg.norm(g) < 1e-10:
            break
        eigenvalues, V = np.linalg.eigh(hessian(u))
        direction = -V @ ((V.T @ g) / np.maximum(abs(eigenvalues), 1e-8))  # downhill where it is not convex
        length = min(1.0, 1.0 / np.linalg.norm(direction))
        while error(u + length * direction) > value and length > 1e-8:
            length /= 2
        u = u + length * direction
    print(f"  γ = {np.exp(u[0]):.4g}, α = {np.exp(u[1]):.4g} in {time.perf_counter() - start:.2f} s")


# -- memory ----------------------------------------------------------------------------------------------


def memory_curves():
    """Bytes held while a loop runs and is differentiated, by mode: one sample a step, each way."""
    samples = []

    def sample(x):
        samples.append(tracemalloc.get_traced_memory()[0])
        return x

    # An operation that does nothing, and tells when it is run and when it is pulled back.
    watch = ad.primitive(sample, jvp=lambda t, ans, x: t[0], vjp=lambda g, ans, x: sample(g), name="a sample")

    def step(x):
        return watch(x + 0.01 * np.sin(x) * np.exp(-x))

    def plain_loop(x):
        for _ in range(STEPS):
            x = step(x)
        return np.sum(x)

    @ad.checkpoint
    def block(x):
        for _ in range(BLOCK):
            x = step(x)
        return x

    def in_blocks(x):
        for _ in range(STEPS // BLOCK):
            x = block(x)
        return np.sum(x)

    def binomial(x):
        return np.sum(ad.scan_checkpointed(step, x, length=STEPS)[0])

    x = np.linspace(0.0, 1.0, STATE)
    runs = {
        "forward": lambda: ad.jvp(plain_loop, (x,), (x,)),
        "reverse": lambda: ad.grad(plain_loop)(x),
        "checkpoint": lambda: ad.grad(in_blocks)(x),
        "scan_checkpointed": lambda: ad.grad(binomial)(x),
    }
    curves, gradients = {}, {}
    for name, run in runs.items():
        samples.clear()
        tracemalloc.start()
        start, before = time.perf_counter(), tracemalloc.get_traced_memory()[0]
        gradients[name] = run()
        seconds = time.perf_counter() - start
        tracemalloc.stop()
        curves[name] = (np.array(samples) - before) / 1e6
        most, work = curves[name].max(), len(samples) / STEPS
        print(f"  {name:<18} {most:7.2f} MB at most, {work:.1f} times the steps, {seconds:.2f} s")
    same = max(np.max(abs(gradients["reverse"] - gradients[name])) for name in list(runs)[2:])
    print(f"  the gradients differ by {same:.0e}")
    return curves


def draw_memory(curves, folder):
    """Draw memory against work, as LINMA figures 1.4 and 1.5."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7.6, 4.4), layout="constrained")
    styles = {
        "forward": ("forward mode: a value and its tangent", "#009E73", "-"),
        "reverse": ("reverse mode: every value", "#D55E00", "--"),
        "checkpoint": (f"ad.checkpoint of {BLOCK} steps each", "#882255", "-."),
        "scan_checkpointed": ("ad.scan_checkpointed", "#0072B2", "-"),
    }
    for name, megabytes in curves.items():
        label, color, line = styles[name]
        work = np.arange(1, len(megabytes) + 1) / STEPS
        ax.plot(work, megabytes, color=color, linestyle=line, linewidth=1.6, label=label)
    ax.set_yscale("log")
    ax.set_yticks([0.3, 1, 3, 10, 30, 100], ["0.3", "1", "3", "10", "30", "100"])
    ax.minorticks_off()
    ax.set_xlabel("steps run, run again or pulled back, as a multiple of the loop's")
    ax.set_ylabel("memory held (MB)")
    ax.set_title(f"Differentiating a loop of {STEPS} steps on {STATE} numbers")
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper right")
    return save(figure, folder / "autodiff_memory.png")


def draw_graphs(folder):
    """Draw the graph of f with tangents and with adjoints."""
    import matplotlib.pyplot as plt

    from mercer.plotting import ComputationalGraphDisplay

    figure, axes = plt.subplots(2, 1, figsize=(9, 7.4), layout="constrained")
    for ax, derivatives, name in (
        (axes[0], "tangents", "Forward mode, along x"),
        (axes[1], "adjoints", "Reverse mode"),
    ):
        ComputationalGraphDisplay.from_function(f, 1.0, 2.0, derivatives=derivatives, name=name, ax=ax)
    return save(figure, folder / "autodiff_graph.png")


def save(figure, path):
    """Write a figure."""
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def main(argv=None):
    """Run the example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=pathlib.Path, default=pathlib.Path("pictures"), metavar="FOLDER", help="for pictures"
    )
    given = parser.parse_args(argv)
    first_order()
    second_order()
    implicit()
    rules()
    kernel_newton()
    print(f"\nmemory of a loop of {STEPS} steps on {STATE} numbers, while it is differentiated")
    curves = memory_curves()
    try:
        given.output.mkdir(parents=True, exist_ok=True)
        print("\nPictures:", draw_graphs(given.output), draw_memory(curves, given.output))
    except ImportError as error:
        print(f"\nNo pictures: {error}")


if __name__ == "__main__":
    main()

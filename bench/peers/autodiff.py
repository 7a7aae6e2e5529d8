"""Derivatives beside autograd's, torch's (eager) and jax's (jit), where these are installed.

    python -m bench.peers.autodiff [--quick] [--repeats N] [case …]

Every package differentiates the same formula, written once for a namespace `xp` (mercer's is NumPy itself),
at the same point, with the same number of threads, in a process that imports no other of them; their
derivatives are compared before they are timed in turns. jax's time is without its compilation.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import itertools
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from mercer import show_versions
from mercer._threads import n_threads

from . import _timing

# -- packages -------------------------------------------------------------------------------------------


class Mercer:
    """Mercer: the function is NumPy's."""

    xp = np

    def __init__(self):
        self.package = importlib.import_module("mercer.autodiff")

    def array(self, x):
        return x

    def numpy(self, result):
        return result

    def prepare(self, what, f, x, v):
        """Return a callable without arguments that computes the derivative."""
        if what == "hvp":
            return lambda: self.package.hvp(f, x, v)
        return partial(getattr(self.package, {"gradient": "grad"}.get(what, what))(f), x)

    def repeat(self, body, start, n):
        for _ in range(n):
            start = body(start)
        return start

    def cross_entropy(self, logits, one_hot):
        shifted = logits - self.xp.max(logits, axis=1, keepdims=True)
        log_sum = self.xp.log(self.xp.sum(self.xp.exp(shifted), axis=1))
        return self.xp.mean(log_sum - self.xp.sum(shifted * one_hot, axis=1))


class Autograd(Mercer):
    """The package autograd, with its own NumPy; its Hessians and Jacobians go row by row."""

    def __init__(self):
        self.package = importlib.import_module("autograd")
        self.xp = importlib.import_module("autograd.numpy")

    def prepare(self, what, f, x, v):
        if what == "hvp":
            gradient = self.package.grad(f)
            return lambda: self.package.make_vjp(gradient)(x)[0](v)
        return super().prepare(what, f, x, v)


class Torch(Mercer):
    """torch without compilation."""

    def __init__(self):
        self.xp = self.torch = importlib.import_module("torch")
        self.torch.set_num_threads(n_threads())

    def array(self, x):
        return self.torch.tensor(x) if isinstance(x, np.ndarray | np.generic | float) else x

    def numpy(self, result):
        return [r.detach().numpy() for r in result] if isinstance(result, tuple) else result.detach().numpy()

    def prepare(self, what, f, x, v):
        if what in ("hessian", "jacobian"):
            return partial(
                {"hessian": self.torch.func.hessian, "jacobian": self.torch.func.jacfwd}[what](f), x
            )
        several = isinstance(x, list)
        leaves = x if several else [x]
        vectors = v if several else [v]
        differentiate = self.torch.autograd.grad

        def run():
            variables = [leaf.detach().requires_grad_() for leaf in leaves]
            value = f(variables if several else variables[0])
            gradients = differentiate(value, variables, create_graph=what == "hvp")
            if what == "hvp":
                gradients = differentiate(gradients, variables, vectors)
            return gradients if several else gradients[0]

        return run

    def cross_entropy(self, logits, one_hot):
        return self.torch.nn.functional.cross_entropy(logits, one_hot)


class Jax(Mercer):
    """jax, compiled."""

    def __init__(self):
        self.jax = importlib.import_module("jax")
        self.jax.config.update("jax_enable_x64", True)
        self.xp = self.jax.numpy

    def array(self, x):
        return self.xp.asarray(x) if isinstance(x, np.ndarray | np.generic | float) else x

    def numpy(self, result):
        return self.jax.tree.map(np.asarray, result)

    def prepare(self, what, f, x, v):
        if what == "hvp":
            compiled = self.jax.jit(lambda x, v: self.jax.jvp(self.jax.grad(f), (x,), (v,))[1])
            return lambda: self.jax.block_until_ready(compiled(x, v))
        transform = {"gradient": self.jax.grad, "hessian": self.jax.hessian, "jacobian": self.jax.jacfwd}[
            what
        ]
        compiled = self.jax.jit(transform(f))
        return lambda: self.jax.block_until_ready(compiled(x))

    def repeat(self, body, start, n):
        return self.jax.lax.fori_loop(0, n, lambda _, y: body(y), start)

    def cross_entropy(self, logits, one_hot):
        return -self.xp.mean(self.xp.sum(self.jax.nn.log_softmax(logits) * one_hot, axis=1))


PACKAGES = {"mercer": Mercer, "autograd": Autograd, "torch": Torch, "jax": Jax}


# -- cases ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A function `f(package, x, *data)` at a point, and what its derivative's time should be.

    `over` has the largest allowed ratio of mercer's time to a package's; `operations` counts those of a small
    case, each to take at most 2 µs.
    """

    name: str
    f: Callable
    x: object
    data: tuple = ()
    over: tuple = ()
    operations: int = 0
    derivative: str = "gradient"
    rtol: float = 1e-8
    rests: bool = True

    def direction(self):
        """A vector for the Hessian, as x."""
        rng = np.random.default_rng(7)
        if isinstance(self.x, list):
            return [rng.standard_normal(x.shape).astype(x.dtype) for x in self.x]
        return rng.standard_normal(np.shape(self.x))[()]

    def prepare(self, package, what):
        """The derivative in a package as a callable without arguments."""
        data = tuple(package.array(d) for d in self.data)
        x, v = (
            [package.array(i) for i in tree] if isinstance(tree, list) else package.array(tree)
            for tree in (self.x, self.direction())
        )
        return package.prepare(what, lambda x: self.f(package, x, *data), x, v)


SMALL = (("autograd", 1 / 8), ("torch", 1 / 3))


def sines(package, x):
    for _ in range(50):
        x = package.xp.sin(x)
    return package.xp.sum(x)


def scalars(package, x, n):
    return package.repeat(lambda y: (package.xp.sin(y) + x) * x / 1.25 - 0.3, x, n)


def fan_out(package, x, n):
    return package.repeat(lambda y: y + x * x, x, n)


def perceptron(package, weights, X, one_hot):
    A, a, B, b, C, c = weights
    hidden = package.xp.tanh(X @ A + a)
    return package.cross_entropy(package.xp.tanh(hidden @ B + b) @ C + c, one_hot)


def bodies(package, x, charges, unit):
    xp = package.xp
    difference = x[:, None, :] - x[None, :, :]
    squares = xp.sum(difference * difference, axis=2) + unit
    return 0.5 * xp.sum(charges * (1 - unit) / xp.sqrt(squares))


def covariance(xp, theta, X, unit):
    """Squared exponential with a length for each feature, a variance and noise."""
    A = X * xp.exp(-theta[:-2])
    squares = xp.sum(A * A, axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * (A @ A.T)
    return xp.exp(theta[-2] - 0.5 * distances) + xp.exp(theta[-1]) * unit


def likelihood_slogdet(package, theta, X, y, unit):
    linalg = package.xp.linalg
    K = covariance(package.xp, theta, X, unit)
    return 0.5 * y @ linalg.solve(K, y) + 0.5 * linalg.slogdet(K)[1]


def likelihood_cholesky(package, arguments, y, unit):
    xp = package.xp
    L = xp.linalg.cholesky(covariance(xp, *arguments, unit))
    w = xp.linalg.solve(L, y)
    # autograd has no derivative of diagonal() with its default axes.
    return 0.5 * w @ w + xp.sum(xp.log(xp.diagonal(L, 0, -1, -2)))


def poisson(package, w, A, y):
    rates = A @ w
    return package.xp.sum(package.xp.exp(rates) - y * rates)


def layers(package, x, A, B):
    return package.xp.tanh(B @ package.xp.tanh(A @ x)) * x


def cases(quick):
    """Those of the table, at their sizes or at small ones."""
    rng = np.random.default_rng(0)

    def size(full, small):
        return small if quick else full

    batch, n, p, m = size(256, 16), size(500, 40), size(325, 20), size(200, 20)
    widths = size((784, 256, 256, 10), (20, 8, 8, 3))
    weights = []
    for i, o in itertools.pairwise(widths):
        weights += [rng.standard_normal((i, o)) / np.sqrt(i), 0.1 * rng.standard_normal(o)]
    X, labels = rng.random((batch, widths[0])), np.eye(widths[-1])[rng.integers(0, widths[-1], batch)]
    single = [w.astype(np.float32) for w in weights], (X.astype(np.float32), labels.astype(np.float32))
    charges = rng.uniform(-1, 1, (30, 1))
    inputs, y = rng.standard_normal((n, 5)), rng.standard_normal(n)
    theta, unit = np.array([0.1, 0.3, 0.2, 0.0, 0.4, 0.2, -1.0]), np.eye(n)
    A = 0.3 * rng.standard_normal((3 * p, p)) / np.sqrt(p)
    square = rng.standard_normal((2, m, m)) / np.sqrt(m)
    half, third = (("autograd", 1 / 2),), (("autograd", 1 / 3),)
    x, number = rng.random(10), np.float64(0.7)
    terms, steps = size(20000, 200), size(400, 40)
    counts = rng.poisson(1, 3 * p).astype(float)
    return [
        Case("50 sines of 10", sines, x, (), SMALL, 50, rests=False),
        Case(f"{5 * steps} scalar operations", scalars, number, (steps,), SMALL, 5 * steps, rests=False),
        Case(f"sum of {terms} x²", fan_out, number, (terms,), third, rests=False),
        Case("MLP", perceptron, weights, (X, labels), (*half, ("torch", 1.5))),
        Case("MLP float32", perceptron, *single, (*half, ("torch", 1.5)), rtol=2e-3),
        Case("30 bodies", bodies, rng.standard_normal((30, 3)), (charges @ charges.T, np.eye(30)), third),
        Case("GP, slogdet, in θ", likelihood_slogdet, theta, (inputs, y, unit), half),
        Case("GP, Cholesky, in θ, X", likelihood_cholesky, [theta, inputs], (y, unit), half),
        Case("Poisson log-likelihood", poisson, 0.1 * rng.standard_normal(p), (A, counts)),
        Case("its Hessian", poisson, 0.1 * rng.standard_normal(p), (A, counts), third, derivative="hessian"),
        Case("Jacobian", layers, rng.random(m), tuple(square), (("autograd", 1 / 5),), derivative="jacobian"),
    ]


# -- times ----------------------------------------------------------------------------------------------


BUDGET = 30


class Derivatives:
    """The derivatives of the cases in one package, for a process of its own."""

    def __init__(self, name, quick):
        self.package, self.cases = PACKAGES[name](), {case.name: case for case in cases(quick)}
        self.runs, self.calls = {}, {}

    def value(self, name, what):
        """Return the arrays of a case's derivative, and make it ready for `seconds`."""
        run = self.runs[what] = self.cases[name].prepare(self.package, what)
        result = leaves(self.package.numpy(run()))
        run()
        self.calls[what] = max(1, int(2e-2 / _timing.seconds_of(run)))
        return result

    def seconds(self, what):
        """Seconds of a call, of as many as take 20 ms."""
        run, calls = self.runs[what], self.calls[what]
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - start) / calls


def processes(quick):
    """One for each package that is installed.

    What else a process has imported decides how memory is returned and how threads wait: beside torch and
    jax autograd's time of one network is 17 or 27 ms, by the order of the imports.
    """
    found = {}
    for name in PACKAGES:
        if importlib.util.find_spec(name):
            found[name] = _timing.Elsewhere(Derivatives, name, quick)
        if name != "mercer":
            print(f"{name:<28} {importlib.metadata.version(name) if name in found else 'not installed'}")
    return found


def leaves(result):
    return [np.asarray(r) for r in result] if isinstance(result, list | tuple) else [np.asarray(result)]


def agree(case, what, results):
    """Raise if a package's derivative is not mercer's."""
    for name, result in results.items():
        for a, b in zip(results["mercer"], result, strict=True):
            np.testing.assert_allclose(
                a,
                b,
                rtol=case.rtol,
                atol=case.rtol * np.max(np.abs(b)),
                err_msg=f"{case.name}, {what}, {name}",
            )


def measure(found, kinds, repeats, pause):
    """Medians and minima of interleaved repeats.

    The order is drawn anew for each, since threads of one package may still wait when the next begins. After
    three repeats those that do not fit into BUDGET seconds are left out.
    """
    runs = list(itertools.product(found, kinds))
    times, end = {run: [] for run in runs}, time.perf_counter() + BUDGET
    rng = random.Random(0)
    for i in range(repeats):
        if i >= 3 and time.perf_counter() > end:
            break
        for name, what in rng.sample(runs, len(runs)):
            time.sleep(pause)
            times[name, what].append(found[name].call("seconds", what))
    return {run: (statistics.median(values), min(values)) for run, values in times.items()}


def time_case(case, found, repeats):
    """Time the derivative, and for gradients the Hessian-vector product, in every package."""
    kinds = (case.derivative, "hvp")[: 2 if case.derivative == "gradient" else 1]
    for what in kinds:
        agree(case, what, {name: process.call("value", case.name, what) for name, process in found.items()})
    return measure(found, kinds, repeats, _timing.PAUSE if case.rests else 0.0)


# -- tables ---------------------------------------------------------------------------------------------


def shown(seconds):
    """Median and minimum in ms."""
    return "–" if seconds is None else f"{1e3 * seconds[0]:.3g} ({1e3 * seconds[1]:.3g})"


def against(times, case, name, target):
    """Return mercer's time over a package's, and whether that is within its target."""
    other = times.get((name, case.derivative))
    if other is None:
        return "–"
    ratio = times["mercer", case.derivative][0] / other[0]
    bound = "" if target is None else f" ≤ {target:.3g}" + (" ✗" if ratio > target else "")
    return f"{ratio:.3g}{bound}"


def heads(found):
    """Print what the columns are."""
    others = [name for name in found if name != "mercer"]
    print("\nMedians (minima) in ms; mercer's median over the others' with its target; µs an operation;")
    print("then Hessian-vector products: mercer's in ms, each package's over its own gradient (mercer ≤ 2.5)")
    line("", [*found, *(f"/ {name}" for name in others), "µs", "product", *(f"{name} ×" for name in found)])


def row(case, times, found):
    """Print a case's figures."""
    cells = [shown(times.get((name, case.derivative))) for name in found]
    cells += [against(times, case, name, dict(case.over).get(name)) for name in found if name != "mercer"]
    micro = 1e6 * times["mercer", case.derivative][0] / case.operations if case.operations else None
    cells.append("" if micro is None else f"{micro:.2f}" + (" ✗" if micro > 2 else ""))
    cells.append(shown(times.get(("mercer", "hvp"))))
    for name in found:
        both = times.get((name, "gradient")), times.get((name, "hvp"))
        ratio = None if None in both else both[1][0] / both[0][0]
        miss = " ✗" if name == "mercer" and ratio and ratio > 2.5 else ""
        cells.append("–" if ratio is None else f"{ratio:.2f}{miss}")
    line(case.name, cells)


def line(name, cells):
    print(f"{name:<24}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="*", help="parts of names of cases; without any all are timed")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    show_versions()
    found = processes(options.quick)
    wanted = [c for c in cases(options.quick) if not options.case or any(p in c.name for p in options.case)]
    heads(found)
    for case in wanted:
        row(case, time_case(case, found, 1 if options.quick else options.repeats), found)


if __name__ == "__main__":
    main()

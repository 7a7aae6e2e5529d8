"""Gram matrices and products with them, beside scikit-learn and NumPy.

    python -m bench.peers.gram [--quick] [--repeats N]

All matrices are made anew by each call, which pays for the memory; mercer gets the symmetric call k(X).
"of GEMM" is the rate at which the scalar products of the pairs are made (of half of the pairs, where the
matrix is symmetric) over that of NumPy's matrix product; "of copy" is the rate at which the result is written
over that of a copy.
"""

import argparse

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from mercer import show_versions
from mercer.kernels import RBF, Fourier, Polynomial

from . import _timing


def numpy_rbf(X, gamma, Z=None):
    """exp(−γ‖x − z‖²), in place after the product."""
    Z = X if Z is None else Z
    out = X @ Z.T
    out *= -2
    out += (X**2).sum(axis=1)[:, None]
    out += (Z**2).sum(axis=1)
    np.maximum(out, 0, out=out)
    out *= -gamma
    return np.exp(out, out=out)


def numpy_cube(X):
    """(xᵀz + 1)³, by products: NumPy's power takes an order of magnitude longer."""
    s = X @ X.T
    s += 1
    out = s * s
    out *= s
    return out


def numpy_fourier(X, degree):
    """MLR7 (7.16): the product over the features of sin((2D+1)πδ)/sin(πδ), 2D + 1 at integers."""
    out = np.ones((len(X), len(X)), X.dtype)
    for x in X.T:
        angle = np.subtract.outer(x, x)
        integer = angle == np.rint(angle)
        angle *= np.pi
        ratio = np.sin((2 * degree + 1) * angle)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio /= np.sin(angle, out=angle)
        out *= np.where(integer, 2 * degree + 1, ratio)
    return out


def numpy_fourier_features(X, degree):
    """The same by MLR7 (7.13): each factor is a product of the feature's 2D + 1 cosines and sines."""
    out = np.ones((len(X), len(X)), X.dtype)
    for x in X.T:
        phase = 2 * np.pi * np.outer(x, np.arange(1, degree + 1))
        features = np.hstack([np.full((len(x), 1), np.sqrt(0.5)), np.cos(phase), np.sin(phase)]) * np.sqrt(2)
        out *= features @ features.T
    return out


def numpy_sum(X, gamma):
    """RBF + Polynomial(3)."""
    out = numpy_rbf(X, gamma)
    out += numpy_cube(X)
    return out


def numpy_composite(X, gamma):
    """0.5 * RBF + Polynomial(3) * Fourier(2)."""
    out = numpy_cube(X)
    out *= numpy_fourier(X, 2)
    rbf = numpy_rbf(X, gamma)
    rbf *= 0.5
    out += rbf
    return out


def cases(n):
    """Lines of the table: name, target or None, X, mercer's and the peer's call, whether GEMM measures it."""
    rng = np.random.default_rng(0)
    out = []
    for dtype, targets in ((np.float64, (4.5, 2.5, 1.4)), (np.float32, (6.0, 4.0, 3.0))):
        for d, target in zip((16, 128, 784), targets, strict=True):
            X = rng.standard_normal((n, d)).astype(dtype)
            name = f"RBF d={d} {np.dtype(dtype).name} / rbf_kernel"
            out.append((name, target, X, RBF(gamma=1 / d), lambda X, g=1 / d: rbf_kernel(X, gamma=g), True))
    X = rng.standard_normal((n, 16))
    gamma = 1 / 16
    k = RBF(gamma=gamma) + Polynomial(3)
    out.append(("RBF + Polynomial(3) d=16 / NumPy", 6.0, X, k, lambda X: numpy_sum(X, gamma), True))
    X = rng.random((n, 16))
    k = 0.5 * RBF(gamma=gamma) + Polynomial(3) * Fourier(2)
    out.append(
        ("0.5*RBF + Poly(3)*Fourier(2) d=16 / NumPy", 8.0, X, k, lambda X: numpy_composite(X, gamma), False)
    )
    X = rng.random((n, 20))
    out.append(
        ("Fourier(5) d=20 / NumPy, quotients", 15.0, X, Fourier(5), lambda X: numpy_fourier(X, 5), False)
    )
    name = "Fourier(5) d=20 / NumPy, cosines and sines"
    out.append((name, None, X, Fourier(5), lambda X: numpy_fourier_features(X, 5), False))
    return out


def measure(case, repeats):
    """One line of the table."""
    name, target, X, own, peer, by_gemm = case
    rates = _timing.Rates(X.dtype)
    n, d = X.shape
    a, b = own(X), peer(X)
    gap = np.abs(a - b).max() / np.abs(b).max()
    size = a.nbytes
    del a, b
    medians = _timing.interleaved({"mercer": lambda: own(X), "peer": lambda: peer(X)} | rates.runs, repeats)
    ratio = medians["peer"] / medians["mercer"]
    wanted, got = ("–", f"{ratio:.1f}×  ") if target is None else _timing.verdict(ratio, target)
    gemm = f"{n * n * d / medians['mercer'] / rates.flops(medians):.2f}" if by_gemm else "–"
    copy = f"{size / medians['mercer'] / rates.bytes(medians):.2f}"
    times = [f"{1e3 * medians[key]:.1f}" for key in ("mercer", "peer")]
    return [name, *times, wanted, got, gemm, copy, f"{gap:.0e}"]


def product(n):
    """K @ V, n × n by n × 10, d = 20: each run in a process of its own, in turn, with its peak memory."""
    runs = {"mercer": [], "numpy": []}
    for _ in range(3):
        for name, reports in runs.items():
            reports.append(_timing.in_process("bench.peers.gram", name, n))
    middle = {name: sorted(reports, key=lambda r: r["seconds"])[1] for name, reports in runs.items()}
    own, peer = middle["mercer"], middle["numpy"]
    wanted, got = _timing.verdict(peer["seconds"] / own["seconds"], 4.0)
    gap = abs(own["norm"] - peer["norm"]) / peer["norm"]
    print(f"\nK @ V, RBF, n={n}, d=20, 10 columns; medians of 3 processes each")
    head = ["", "seconds", "peak RSS, GB", "of GEMM", "target", "ratio"]
    rows = []
    for name, r, end in (("mercer, k.gram(X) @ V", own, [wanted, got]), ("NumPy, in blocks", peer, ["", ""])):
        rows.append([name, f"{r['seconds']:.2f}", f"{r['peak'] / 1e9:.2f}", f"{r['gemm']:.2f}", *end])
    _timing.table(head, rows)
    print(f"relative gap of the norms {gap:.0e}; target for mercer's memory: under 1 GB")


def worker(name, n):
    """One product in this process."""
    rng = np.random.default_rng(0)
    X, V = rng.standard_normal((n, 20)), rng.standard_normal((n, 10))
    gamma = 1 / 20

    def own(X, V):
        return RBF(gamma=gamma).gram(X) @ V

    def blocks(X, V, rows=1000):
        return np.vstack([numpy_rbf(X[i : i + rows], gamma, X) @ V for i in range(0, len(X), rows)])

    run = {"mercer": own, "numpy": blocks}[name]
    run(X[:1000], V[:1000])
    seconds = []
    for _ in range(3):
        seconds.append(_timing.seconds_of(lambda: run(X, V)))
    second = sorted(seconds)[1]
    norm = float(np.linalg.norm(run(X, V)))
    peak = _timing.peak_memory()
    rates = _timing.Rates(np.float64)
    flops = rates.flops(_timing.interleaved(rates.runs, 5))
    _timing.report(seconds=second, norm=norm, gemm=2 * n * n * (20 + 10) / second / flops, peak=peak)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats: a check that it runs")
    parser.add_argument(
        "--repeats", type=int, default=15, help="for the RBF lines; the slow peers get a third"
    )
    parser.add_argument("--worker", nargs=2, metavar=("NAME", "N"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker[0], int(given.worker[1]))
        return
    n, repeats = (1000, 3) if given.quick else (4000, given.repeats)
    show_versions()
    if given.quick:
        print("\nA check that it runs: the targets are those of the full sizes")
    print(f"\nGram matrices, n={n}, symmetric call, fresh output; medians of interleaved repeats, ms")
    head = ["", "mercer", "peer", "target", "ratio", "of GEMM", "of copy", "gap"]
    rows = [measure(case, repeats if case[5] else max(1, repeats // 5)) for case in cases(n)]
    _timing.table(head, rows)
    product(4000 if given.quick else 20000)


if __name__ == "__main__":
    main()

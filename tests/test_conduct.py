"""How long computations behave: Ctrl-C ends them at once, memory comes back, threads change nothing."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from mercer import (
    SVC,
    SVR,
    KernelKNeighborsRegressor,
    KernelLogisticRegression,
    KernelPCA,
    KernelRegressor,
    KernelRidge,
    KernelRidgeCV,
    PathCV,
    SquaredMarginClassifier,
)
from mercer.kernels import RBF, Fourier, Polynomial

LONG = {
    "K @ V": "gram = RBF(0.1).gram(X); start(); gram @ X",
    "K @ V, two sides": "gram = RBF(0.1).gram(X, X + 1); start(); gram @ X",
    "K": "Z = X[:60000]; start(); RBF(0.1)(X[:15000], Z)",
    "pullback": "start(); RBF(0.1).gram(X).pullback(X, X)",
    "ridge by cg": "start(); KernelRidge(1e-6, kernel=RBF(5.0), solver='cg', tol=1e-14).fit(X, X[:, 0])",
    "one machine": "y = X[:, 0] * X[:, 1] > 0; start(); SVC(C=100.0).fit(X, y)",
    "many machines": "y = np.arange(len(X)) % 50; start(); SVC().fit(X, y)",
    "grid of machines": "y = X[:20000, 0] * X[:20000, 1] > 0; start(); "
    "PathCV(SVC(), Cs=[1.0, 10.0, 100.0], gammas=[0.1, 1.0]).fit(X[:20000], y)",
    "machines of a given matrix": "K = RBF(5.0)(X[:7000]); y = X[:7000, 0] * X[:7000, 1] > 0; start(); "
    "PathCV(SVC(kernel='precomputed'), Cs=[1.0, 100.0]).fit(K, y)",
    "many decisions": "m = SVC().fit(X[:4000], X[:4000, 0] * X[:4000, 1] > 0); Z = np.tile(X, (40, 1)); "
    "start(); m.predict(Z)",
}


@pytest.mark.parametrize("name", LONG)
def test_ctrl_c_ends_it(name):
    """0.2 s are promised; a loaded machine gets a second, far below the minutes that each would take."""
    script = f"""
        import numpy as np, time
        from mercer import SVC, KernelRidge, PathCV
        from mercer.kernels import RBF
        X = np.random.default_rng(0).normal(size=(120000, 12))
        RBF(0.1)(X[:10])
        def start():
            print("start", flush=True)
        try:
            {LONG[name]}
        except KeyboardInterrupt:
            print(time.monotonic())
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "start\n"
        time.sleep(0.7)
        assert process.poll() is None, "it must still be running"
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        caught = process.stdout.readline()
    assert float(caught) - sent < 1.0


WHOLE = {
    "features": "KernelLogisticRegression(approximation=1000).fit(X[:80000], X[:80000, 0] > 0)",
    "folds": "KernelRidgeCV([1e-3, 1e-2], kernel=RBF(0.1), cv=5).fit(X[:9000], X[:9000, 0])",
}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer sends signals")
@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_no_signal_is_kept_waiting(name):
    """At any moment: a timer asks all the time, and the longest wait is what Ctrl-C would take then."""
    script = f"""
        import numpy as np, signal, time
        from mercer import KernelLogisticRegression, KernelRidgeCV
        from mercer.kernels import RBF
        X = np.random.default_rng(0).normal(size=(120000, 12))
        RBF(0.1)(X[:10])
        met = [time.monotonic()]
        signal.signal(signal.SIGALRM, lambda number, frame: met.append(time.monotonic()))
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        {WHOLE[name]}
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(met), np.diff(met).max())
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    count, longest = done.stdout.split()
    assert int(count) > 50
    assert float(longest) < 1.0


def test_interrupted_fit_leaves_the_estimator(monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = KernelRidge(kernel=RBF(1.0)).fit(X, X[:, 0])
    before = dict(model.__dict__)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("mercer._native.gram", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, X[:, 1])
    assert model.__dict__ == before


@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_an_interrupted_machine_stays_as_it_was(monkeypatch, multiclass):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 3)), np.arange(90) % 3
    model = SVC(multiclass=multiclass).fit(X, y)
    before = {name: value for name, value in model.__dict__.items() if not name.startswith("_")}

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("mercer._native.dual", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:60], y[:60])
    after = {name: value for name, value in model.__dict__.items() if not name.startswith("_")}
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)


def resident():
    """Resident memory in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads the memory that Linux reports")
@pytest.mark.slow
def test_memory_does_not_grow_over_ten_thousand_fits():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    kernel = 0.5 * RBF(1.0) + Polynomial(2) * Fourier(2)
    gc.collect()
    gc.disable()
    try:
        sizes = []
        for i in range(10_000):
            model = KernelRidge(kernel=kernel.set_params(k1__kernel__gamma=1.0 + i)).fit(X, y)
            model.predict(X)
            kernel.pullback(X, None, np.ones((30, 30)))
            if i % 2000 == 1999:
                sizes.append(resident())
    finally:
        gc.enable()
    # Without the cycle collector, too: nothing refers to itself. Below 100 bytes a fit.
    assert sizes[-1] - sizes[0] < 1_000_000


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads the memory that Linux reports")
@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [SVC, SVR, lambda: SVC(probability=True)], ids=["SVC", "SVR", "probabilities"]
)
def test_memory_does_not_grow_over_ten_thousand_machines(make):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    y = np.arange(30) % 3
    gc.collect()
    gc.disable()
    try:
        sizes = []
        for i in range(10_000):
            make().set_params(gamma=1.0 + i % 7).fit(X, y).predict(X)
            if i % 2000 == 1999:
                sizes.append(resident())
    finally:
        gc.enable()
    # Without the cycle collector, too. The least that a cycle left was 1500 bytes a fit.
    assert sizes[-1] - sizes[0] < 1_000_000


KEPT = {
    "ridge": lambda X, y: KernelRidge(kernel=RBF(1.0)).fit(X, y),
    "machines": lambda X, y: SVC(probability=True).fit(X, y > 0),
    "logistic": lambda X, y: KernelLogisticRegression().fit(X, np.digitize(y, [-0.5, 0.5])),
    "huber": lambda X, y: KernelRegressor("huber").fit(X, y),
    "components": lambda X, y: KernelPCA(2, kernel=RBF(1.0), fit_inverse_transform=True).fit(X),
    "neighbours": lambda X, y: KernelKNeighborsRegressor(kernel=RBF(1.0)).fit(X, y).predict(X),
    "path of ridge": lambda X, y: PathCV(KernelRidge(kernel=RBF(1.0)), alphas=[0.1, 1.0], cv=3).fit(X, y),
    "rows left out": lambda X, y: KernelRidgeCV(kernel=RBF(1.0)).fit(X, y),
    "path of logistic": lambda X, y: PathCV(KernelLogisticRegression(), alphas=[0.1, 1.0], cv=3).fit(
        X, y > 0
    ),
    "grid of machines": lambda X, y: PathCV(SVC(), Cs=[1.0, 10.0], gammas=[0.1, 1.0], cv=3).fit(X, y > 0),
}


@pytest.mark.parametrize("name", KEPT)
def test_fits_leave_nothing_to_the_cycle_collector(name):
    """Matrices would stay until it runs, which may be long after: it counts objects, not bytes."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    KEPT[name](X, y)  # what is imported and cached once
    gc.collect()
    gc.disable()
    try:
        KEPT[name](X, y)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_threads_change_nothing_in_machines():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 9))
    y = rng.integers(0, 4, 2400)
    X[np.arange(2400), y] += 1.5

    def results(n_jobs):
        many = SVC(C=5.0, probability=True, n_jobs=n_jobs).fit(X, y)
        one = SVC(C=5.0, n_jobs=n_jobs).fit(
            np.tile(X, (4, 1)) + 1e-3 * np.arange(9600)[:, None], np.tile(y > 1, 4)
        )
        Z = X[:300] + 0.1
        return (
            many.dual_coef_,
            many.predict_proba(Z),
            many.decision_function(Z),
            one.dual_coef_,
            one.predict(Z),
        )

    alone = results(1)
    for n_jobs in (2, 3):
        for a, b in zip(alone, results(n_jobs), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kernel", [RBF(0.3), 0.5 * RBF(0.3) + Polynomial(3) * Fourier(2)], ids=repr)
def test_threads_change_nothing(kernel):
    rng = np.random.default_rng(0)
    X, Z, V = rng.normal(size=(700, 9)), rng.normal(size=(333, 9)), rng.normal(size=(700, 6))
    for run in (
        lambda n: kernel(X, n_threads=n),
        lambda n: kernel(X, Z, n_threads=n),
        lambda n: kernel.gram(X, n_threads=n) @ V,
        lambda n: kernel.gram(Z, X, n_threads=n) @ V,
        lambda n: kernel.gram(X, n_threads=n).pullback(V, V)[0],
    ):
        one = run(1)
        for n in (2, 3):
            np.testing.assert_array_equal(one, run(n))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("machine", "targets"),
    [
        (SVC, "labels"),
        (KernelLogisticRegression, "labels"),
        (KernelLogisticRegression, "signs"),
        (SquaredMarginClassifier, "labels"),
        (KernelRidge, "numbers"),
        (KernelRidge, "pairs"),
        (KernelRegressor, "numbers"),
        (KernelPCA, "none"),
    ],
)
def test_a_row_of_a_given_matrix_has_a_value_of_its_own(machine, targets, dtype, rng):
    """Whatever rows it comes with, and in whatever order of memory."""
    X, t = rng.normal(size=(61, 3)), rng.normal(size=61)
    y = {"labels": rng.integers(0, 3, 61), "signs": t > 0, "numbers": t, "pairs": np.c_[t, -t], "none": None}
    K = RBF(0.3)(X).astype(dtype)
    model = machine(kernel="precomputed").fit(K, y[targets])
    method = next(name for name in ("decision_function", "predict", "transform") if hasattr(model, name))
    values = getattr(model, method)(K)
    alone = np.concatenate([getattr(model, method)(K[i : i + 1]) for i in range(61)])
    np.testing.assert_array_equal(values, alone)
    np.testing.assert_array_equal(values, getattr(model, method)(np.asfortranarray(K)))

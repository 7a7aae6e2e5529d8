"""Real data for the benchmarks, from a folder of files or else from scikit-learn and OpenML.

The folder is the one that ``MERCER_BENCH_DATA`` names, or ``../shared/data`` beside the project; its
``load.py`` has ``load(name) -> dict`` with "X" and "y".
"""

import importlib.util
import os
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
OPENML = {"cpusmall": 562, "kin8nm": 189, "elevators": 216}


def folder():
    """The folder of data files, or None."""
    named = os.environ.get("MERCER_BENCH_DATA")
    if named:
        if not (Path(named) / "load.py").is_file():
            raise FileNotFoundError(f"MERCER_BENCH_DATA names {named}, which has no load.py")
        return Path(named)
    beside = ROOT.parent / "shared" / "data"
    return beside if (beside / "load.py").is_file() else None


def regression(name, n_train, n_test, seed=0):
    """A standardised regression set, split at random.

    Parameters
    ----------
    name : str
        "cpusmall", "kin8nm", "elevators", "cadata" or "kin40k".
    n_train : int or None
        Rows to train on; None is all that are not for the test.
    n_test : int
    seed : int

    Returns
    -------
    X_train, y_train, X_test, y_test : ndarray
        float64; every column has mean 0 and standard deviation 1 over the training rows.
    """
    X, y = _whole(name)
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = order[:n_test], order[n_test:][:n_train]
    scale = X[train].std(axis=0)
    X = (X - X[train].mean(axis=0)) / np.where(scale > 0, scale, 1)
    y = (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


def _whole(name):
    where = folder()
    if where is not None:
        spec = importlib.util.spec_from_file_location("mercer_bench_load", where / "load.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        data = module.load(name)
        X, y = data["X"], data["y"]
    elif name == "cadata":
        from sklearn.datasets import fetch_california_housing

        X, y = fetch_california_housing(return_X_y=True)
    elif name in OPENML:
        from sklearn.datasets import fetch_openml

        X, y = fetch_openml(data_id=OPENML[name], return_X_y=True, as_frame=False, parser="liac-arff")
    else:
        # kin40k is not on OpenML: a smooth function of 8 inputs with little noise stands in for it.
        rng = np.random.default_rng(0)
        X = rng.standard_normal((40000, 8))
        y = np.sin(X @ rng.standard_normal((8, 6))).sum(axis=1) + 0.1 * rng.standard_normal(40000)
    return np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)

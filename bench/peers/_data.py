"""Real data for the benchmarks, from a folder of files or else from scikit-learn and OpenML.

The folder is the one that ``MERCER_BENCH_DATA`` names, or ``../shared/data`` beside the project; its
``load.py`` has ``load(name) -> dict`` with "X" and "y", or where a set has official parts with "X_train",
"y_train", "X_test" and "y_test".
"""

import importlib.util
import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

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


def raw(name):
    """What the folder's ``load`` returns for a set, or None where there is no folder."""
    where = folder()
    if where is None:
        return None
    spec = importlib.util.spec_from_file_location("mercer_bench_load", where / "load.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(name)


def classification(name, seed=0):
    """A classification set in its official parts, else with three quarters of its rows, at random, to train.

    Dense columns get mean 0 and standard deviation 1 over the training rows, but for mnist10k's bytes, which
    are divided by 255; CSR stays as it is.

    Parameters
    ----------
    name : str
        A set of the folder of data files; no other place is asked.
    seed : int

    Returns
    -------
    X_train, y_train, X_test, y_test : ndarray or CSR, float64; ndarray of labels
    """
    data = raw(name)
    if data is None:
        raise FileNotFoundError(f"{name} needs a folder of data files; name it with MERCER_BENCH_DATA")
    if "X_train" in data:
        X, y, X_test, y_test = (data[key] for key in ("X_train", "y_train", "X_test", "y_test"))
    else:
        order = np.random.default_rng(seed).permutation(len(data["y"]))
        train, test = np.split(order, [3 * len(order) // 4])
        X, y, X_test, y_test = data["X"][train], data["y"][train], data["X"][test], data["y"][test]
    if sp.issparse(X):
        return X.astype(np.float64), y, X_test.astype(np.float64), y_test
    X, X_test = np.asarray(X, dtype=np.float64), np.asarray(X_test, dtype=np.float64)
    if name == "mnist10k":
        return X / 255, y, X_test / 255, y_test
    return *standardised(X, y, X_test), y_test


def standardised(X, y, X_test):
    """X and X_test with X's columns at mean 0 and standard deviation 1; y passes through."""
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale == 0] = 1
    return (X - mean) / scale, y, (X_test - mean) / scale


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
    data = raw(name)
    if data is not None:
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

"""Real data for the quick start: what scikit-learn bundles, and CSV or LIBSVM files of one's own."""

import csv
import difflib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_svmlight_file
from sklearn.decomposition import PCA
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

MAX_CLASSES = 20  # an integer target with more distinct values is taken for a number
MAX_DENSE = 100_000_000  # entries of a LIBSVM file that are held as a dense array


@dataclass(frozen=True)
class Fold:
    """One fold's scaled inputs and its targets (n, p)."""

    X_train: np.ndarray
    T_train: np.ndarray
    X_test: np.ndarray
    T_test: np.ndarray


@dataclass(frozen=True)
class DataSet:
    """Inputs X (n, d), the label or number y of each row, and which of the two it is."""

    name: str
    X: np.ndarray
    y: np.ndarray
    task: str  # "classification" or "regression"
    n_components: int | None = None  # principal components that the inputs are reduced to

    @property
    def error_name(self):
        """What :meth:`error` measures."""
        if self.task == "classification":
            return "misclassification rate"
        return "squared error / variance of target"

    def describe(self):
        """Size and task in a few words."""
        rows, columns = self.X.shape
        inputs = f"{columns} inputs"
        if self.n_components is not None:
            inputs += f" reduced to {self.n_components} principal components"
        classes = f" into {len(np.unique(self.y))} classes" if self.task == "classification" else ""
        return f"{rows} rows, {inputs}, {self.task}{classes}"

    def targets(self):
        """What is fitted, (n, p): ±1 for two classes, one column each for more, a number over its sd."""
        if self.task == "regression":
            return (self.y / self.y.std())[:, None]
        classes = np.unique(self.y)
        if len(classes) == 2:
            return np.where(self.y == classes[1], 1.0, -1.0)[:, None]
        return (self.y[:, None] == classes).astype(np.float64)

    def error(self, targets, predictions):
        """The error of predictions (n, p): MLR7 (7.34) or (7.39)."""
        if self.task == "regression":
            return float(np.mean((predictions - targets) ** 2))
        if targets.shape[1] == 1:
            return float(np.mean(np.sign(predictions) != targets))
        return float(np.mean(np.argmax(predictions, axis=1) != np.argmax(targets, axis=1)))

    def folds(self, n_folds):
        """The folds, scaled by what the training part alone knows."""
        kind = StratifiedKFold if self.task == "classification" else KFold
        splits = kind(n_folds, shuffle=True, random_state=0).split(self.X, self.y)
        targets = self.targets()
        out = []
        for train, test in splits:
            scale = StandardScaler()
            if self.n_components is not None:
                scale = make_pipeline(PCA(self.n_components, svd_solver="full"), StandardScaler())
            X_train = scale.fit_transform(self.X[train])
            out.append(Fold(X_train, targets[train], scale.transform(self.X[test]), targets[test]))
        return out


def bundled():
    """The three data sets that come with scikit-learn."""
    digits, diabetes, cancer = load_digits(), load_diabetes(), load_breast_cancer()
    return [
        DataSet("digits", digits.data, digits.target, "classification", n_components=16),
        DataSet("diabetes", diabetes.data, diabetes.target, "regression"),
        DataSet("breast cancer", cancer.data, cancer.target, "classification"),
    ]


def from_file(path, target=None, *, task=None, max_rows=2000, min_per_class=5):
    """A data set from a CSV file (any of ``,``, ``;`` and tabs) or a LIBSVM file.

    Parameters
    ----------
    path : str or Path
        The file.
    target : str, optional
        A CSV file's target: a column's name, or its index from 0 (negative: from the end). In a LIBSVM file
        each line starts with its target, so none is given.
    task : {"classification", "regression"}, optional
        Guessed from the target: text, or at most 20 distinct integers, are classes.
    max_rows : int
        A larger file is represented by this many of its rows, drawn at random.
    min_per_class : int
        Rows that each class needs.

    Returns
    -------
    DataSet

    Raises
    ------
    ValueError
        If the file or the target cannot be used: the message names the line and the column.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        first = next((line for line in _lines(path) if line.strip() and not line.startswith("#")), None)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error
    if first is None:
        raise ValueError(f"{path}: the file is empty")
    read = _read_libsvm if re.fullmatch(r"\S+(\s+(qid:\d+|\d+:\S+))+\s*(#.*)?", first.strip()) else _read_csv
    X, y = read(path, target, first)
    if len(y) < 10:
        raise ValueError(f"{path}: {len(y)} rows; five folds need at least 10")
    if len(y) > max_rows:
        keep = np.sort(np.random.default_rng(0).choice(len(y), max_rows, replace=False))
        X, y = X[keep], y[keep]
    y, task = _task(path, y, task, min_per_class)
    if not isinstance(X, np.ndarray):
        if X.shape[0] * X.shape[1] > MAX_DENSE:
            raise ValueError(
                f"{path}: {X.shape[0]} rows of {X.shape[1]} features are too many for this example, "
                f"which scales them as a dense array; lower --rows"
            )
        X = X.toarray()
    return DataSet(path.stem, X, y, task)


def _lines(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from file


def _read_libsvm(path, target, first):
    if target is not None:
        raise ValueError(f"{path}: lines of a LIBSVM file start with their target; leave --target out")
    try:
        X, y = load_svmlight_file(str(path))
    except ValueError as error:
        raise ValueError(f"{path}: not a valid LIBSVM file: {error}") from error
    for name, values in (("feature", X.data), ("target", y)):
        if not np.isfinite(values).all():
            raise ValueError(f"{path}: a {name} is not finite; remove or replace what is missing")
    return X, y


def _read_csv(path, target, first):
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=max(",;\t", key=first.count), skipinitialspace=True)
        try:
            rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from error
    header = None
    if not any(_is_number(cell) for cell in rows[0][1]):
        header = [cell.strip() for cell in rows.pop(0)[1]]
    if not rows:
        raise ValueError(f"{path}: a header and no rows")
    width = len(header or rows[0][1])
    names = header or [str(i) for i in range(width)]
    for line, row in rows:
        if len(row) != width:
            raise ValueError(f"{path}, line {line}: {len(row)} cells where the first line has {width}")
    column = _target_column(path, target, header, width)
    if width < 2:
        raise ValueError(f"{path}: one column only; the inputs are missing")
    X = np.empty((len(rows), width - 1))
    y = []
    for i, (line, row) in enumerate(rows):
        y.append(row[column].strip())
        if y[-1] == "":
            raise ValueError(f"{path}, line {line}: the target {names[column]!r} is empty")
        cells = row[:column] + row[column + 1 :]
        if not all(map(_is_number, cells)):
            j = next(j for j in range(width) if j != column and not _is_number(row[j]))
            raise ValueError(
                f"{path}, line {line}, column {names[j]!r}: {row[j]!r} is not a finite number; inputs have "
                f"to be numbers: encode or remove the column, and remove rows with missing values"
            )
        X[i] = cells
    return X, np.array(y)


def _is_number(cell):
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def _target_column(path, target, header, width):
    """The index of the target's column."""
    known = (
        f"its columns are {', '.join(header)}" if header else f"without a header, columns are 0…{width - 1}"
    )
    if target is None:
        raise ValueError(f"{path}: which column is the target? Give --target; {known}")
    if header and target in header:
        return header.index(target)
    try:
        index = int(target)
    except ValueError:
        near = difflib.get_close_matches(target, header or [], n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"{path}: there is no column {target!r}; {hint}{known}") from None
    if not -width <= index < width:
        raise ValueError(f"{path}: there is no column {index}; {known}")
    return index % width


def _task(path, y, task, min_per_class):
    """The target, as numbers where it is one, and the task that it poses."""
    try:
        numbers = y.astype(np.float64)
        numeric = bool(np.isfinite(numbers).all())
    except ValueError:
        numeric = False
    if numeric and task is None:
        whole = np.all(numbers == np.rint(numbers)) and len(np.unique(numbers)) <= MAX_CLASSES
        task = "classification" if whole else "regression"
    task = task or "classification"
    if task == "regression":
        if not numeric:
            raise ValueError(f"{path}: the target is not numeric ({str(y[0])!r}, …): no regression")
        if np.ptp(numbers) == 0:
            raise ValueError(f"{path}: the target is {numbers[0]:g} in every row; there is nothing to learn")
        return numbers, task
    y = numbers if numeric else y
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"{path}: the target is {classes[0]} in every row; there is nothing to learn")
    if counts.min() < min_per_class:
        raise ValueError(
            f"{path}: class {classes[counts.argmin()]} has {counts.min()} of the rows, {min_per_class} "
            f"folds need {min_per_class}; is this a regression (--task regression)?"
        )
    return y, task

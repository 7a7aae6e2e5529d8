"""What a fitted estimator tells about the plane: classes, decision values, support vectors.

Only scikit-learn's conventions are asked of an estimator (``predict``, ``decision_function``, ``classes_``,
``support_vectors_``, ``dual_coef_``), so that any package's will do.
"""

import warnings
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_outlier_detector, is_regressor
from sklearn.utils.validation import check_array, check_is_fitted

# ``predict`` is taken to agree with the decision's sign up to this share of the largest decision value.
SIGN_TOLERANCE = 1e-6
# α of LIBSVM and of mercer is set to its bound, not moved towards it: what differs is rounding in float32.
BOUND_RTOL = 1e-6

RESPONSE_METHODS = ("auto", "decision_function", "predict")


def check_estimator(display, estimator, response_method):
    """Raise unless `estimator` is a fitted machine that puts points into classes."""
    name = type(estimator).__name__
    if response_method not in RESPONSE_METHODS:
        known = ", ".join(map(repr, RESPONSE_METHODS))
        raise ValueError(f"response_method is {response_method!r}; use one of {known}")
    if not hasattr(estimator, "predict"):
        raise TypeError(f"{display}: {name} has no predict; give a fitted classifier or outlier detector")
    if is_regressor(estimator):
        raise ValueError(
            f"{display} shows which class each point of the plane gets; {name} is a regressor and has no "
            "classes: give a classifier or an outlier detector"
        )
    check_is_fitted(estimator)
    if response_method == "decision_function" and not hasattr(estimator, "decision_function"):
        raise ValueError(f"{display}: {name} has no decision_function; use response_method='predict'")
    fitted_to = getattr(estimator, "n_features_in_", 2)
    if fitted_to != 2:
        raise ValueError(
            f"{display}: {name} was fitted to {fitted_to} features; a plane has 2: fit it to two columns of X"
        )


def check_points(display, X):
    """The rows of `X` as a dense array of shape (n, 2)."""
    points = check_array(X.toarray() if sp.issparse(X) else X, dtype=np.float64, input_name="X")
    if points.shape[1] != 2:
        raise ValueError(
            f"{display}: X has {points.shape[1]} columns; a plane has 2: give the two features of the fit"
        )
    return points


def check_labels(display, y, n, classes):
    """The index in `classes` of each of the `n` labels."""
    y = np.asarray(y)
    if y.shape == (n, 1):
        y = y[:, 0]
    if y.shape != (n,):
        raise ValueError(
            f"{display}: y has shape {y.shape}; it needs one label for each of the {n} rows of X"
        )
    known = set(classes.tolist())
    strange = [label for label in y.tolist() if label not in known]
    if strange:
        raise ValueError(
            f"{display}: y holds {strange[0]!s}, the estimator's classes are {', '.join(map(str, classes))}; "
            "give the labels of its fit, or y=None"
        )
    return index_in(classes, y)


def index_in(classes, labels):
    """The index in `classes`, in any order, of each label."""
    order = np.argsort(classes, kind="stable")
    return order[np.searchsorted(classes, labels, sorter=order)]


def feature_names(estimator, X):
    """The names of the two features, or None if neither the estimator nor `X` has any."""
    names = getattr(estimator, "feature_names_in_", None)
    names = getattr(X, "columns", None) if names is None else names
    return None if names is None else tuple(map(str, names))


def like(X, rows):
    """`rows` as a data frame with the columns of `X` if that is one: some pipelines select by name."""
    if not hasattr(X, "columns"):
        return rows
    return type(X)(dict(zip(X.columns, rows.T, strict=True)))


@contextmanager
def quiet_about_names():
    """No warning about an array where the fit had a data frame, or the reverse: the columns are in order."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X (does not have valid|has) feature names")
        yield


def respond(estimator, method, X, rows):
    """``getattr(estimator, method)(rows)``, with rows in the form of `X`."""
    with quiet_about_names():
        response = np.asarray(getattr(estimator, method)(like(X, rows)))
    if method == "predict" and response.ndim != 1:
        raise ValueError(
            f"{type(estimator).__name__}.predict gives shape {response.shape}; "
            "a picture needs one label a row: fit to one target"
        )
    return response


def classes_of(estimator, predicted, y):
    """The classes in the estimator's order: −1 and 1 of an outlier detector, else those met."""
    if is_outlier_detector(estimator):
        return np.array([-1, 1])
    if hasattr(estimator, "classes_"):
        return np.asarray(estimator.classes_)
    return np.unique(predicted) if y is None else np.union1d(predicted, np.asarray(y))


def regions(estimator, response_method, X, y, rows):
    """The classes, the class index of each row, and for two classes the decision values.

    Returns
    -------
    classes : ndarray of shape (n_classes,)
    index : ndarray of shape (n_rows,)
    decision : ndarray of shape (n_rows,), or None
        Positive where the second class is predicted; None for more classes, without ``decision_function``, or
        if ``predict`` goes by something else, as a moved threshold.
    """
    if response_method == "decision_function":
        decision, predicted = respond(estimator, "decision_function", X, rows), []
    else:
        predicted = respond(estimator, "predict", X, rows)
    classes = classes_of(estimator, predicted, y)
    if response_method == "decision_function":
        if decision.ndim == 1:
            return classes, (decision > 0).astype(np.intp), decision
        if decision.shape[1] != len(classes):
            raise ValueError(
                f"decision_function has {decision.shape[1]} columns for {len(classes)} classes; "
                "use response_method='predict', or decision_function_shape='ovr'"
            )
        return classes, decision.argmax(axis=1), None
    index, decision = index_in(classes, predicted), None
    if response_method == "auto" and len(classes) == 2 and hasattr(estimator, "decision_function"):
        decision = respond(estimator, "decision_function", X, rows).reshape(-1)
        clear = np.abs(decision) > SIGN_TOLERANCE * np.abs(decision).max()
        if np.any((decision > 0)[clear] != (index == 1)[clear]):
            decision = None
    return classes, index, decision


def machine_in(estimator):
    """The last step of a pipeline, the best of a search, or the estimator itself; what goes before it."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    if hasattr(estimator, "steps") and hasattr(estimator, "named_steps"):
        before, machine = estimator[:-1], estimator[-1]
        return machine, before if len(estimator) > 1 else None
    return estimator, None


def dense(matrix):
    """A dense array of a matrix that may be sparse."""
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def support_vectors(machine, before, X, points):
    """The support vectors in the plane of `points`, or None.

    Behind the first steps of a pipeline they are known by their transforms only: they are rows of `X` if `X`
    is what the pipeline was fitted to.
    """
    if not hasattr(machine, "support_vectors_"):
        return None
    vectors = dense(machine.support_vectors_)
    if before is None:
        return vectors if vectors.ndim == 2 and vectors.shape[1] == 2 else None
    support = getattr(machine, "support_", None)
    if support is None or (len(support) and support.max() >= len(points)):
        return None
    with quiet_about_names():
        transformed = dense(before.transform(X))[support]
    same = transformed.shape == vectors.shape and np.allclose(transformed, vectors, rtol=1e-5)
    return points[support] if same else None


def on_margin(machine, decision):
    """Which support vectors lie on the margin, strictly inside the box: 0 < α < its bound.

    A support vector with y f(x) < 1 is at its bound, whatever its weight; one with y f(x) = 1 is so if its α
    equals the bound of its class, or where that is not known (ν machines) the largest α of those with
    y f(x) < 1.

    Parameters
    ----------
    machine : estimator
        A two-class or one-class machine with `dual_coef_`.
    decision : ndarray of shape (n_support,)
        Decision values of the support vectors.

    Returns
    -------
    ndarray of shape (n_support,) of bool

    References
    ----------
    LN14: the Karush–Kuhn–Tucker conditions of the box.
    """
    dual = dense(machine.dual_coef_).reshape(-1)
    alpha, second = np.abs(dual), (dual > 0).astype(np.intp)
    one_class = is_outlier_detector(machine)
    C = None if one_class else getattr(machine, "C", None) or None  # scikit-learn's ν machines have C = 0
    slack = decision if one_class else np.where(second == 1, decision, -decision) - 1.0
    # The stopping rule bounds the error of y f(x); a ν machine divides by the scale that α shows.
    tolerance = 2 * getattr(machine, "tol", 1e-3) * (max(1.0, alpha.max(initial=0.0)) if C is None else 1.0)
    violates = slack < -tolerance
    if C is not None:
        weights = np.asarray(getattr(machine, "class_weight_", np.ones(2)))
        bound = C * weights[second]
    else:
        bound = alpha[violates].max(initial=0.0) or np.inf
    at_bound = violates | (np.abs(alpha - bound) <= BOUND_RTOL * alpha.max(initial=0.0))
    return ~at_bound


def machine(estimator, X, points, classes):
    """The display's arguments that a margin machine adds: margins, support vectors, which are on them."""
    inner, before = machine_in(estimator)
    one_class = bool(is_outlier_detector(inner))
    found = {"one_class": one_class}
    if not (hasattr(inner, "support_vectors_") and hasattr(inner, "dual_coef_")):
        return found
    found["margin_levels"] = () if one_class or len(classes) > 2 else (-1.0, 1.0)
    vectors = found["support_vectors"] = support_vectors(inner, before, X, points)
    if vectors is not None and len(vectors) and len(classes) == 2:
        with quiet_about_names():
            decision = np.asarray(inner.decision_function(inner.support_vectors_)).reshape(-1)
        found["on_margin"] = on_margin(inner, decision)
    return found

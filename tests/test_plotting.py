"""Displays: what they hold, what they draw, and what they refuse."""

import sys

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mercer import KernelLogisticRegression, KernelRidge, PathCV
from mercer.kernels import RBF, Fourier, Polynomial
from mercer.plotting import ErrorPathDisplay, KernelSurfaceDisplay

ALPHAS = np.array([1e-2, 1e-1, 1e0, 1e1])
TEST = np.array([[0.5, 0.75], [0.25, 0.5], [0.125, 0.625], [0.75, 1.0]])
TRAIN = np.array([[0.0, 0.2], [0.1, 0.1], [0.2, 0.2], [0.6, 0.8]])


@pytest.fixture
def plt():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.mark.parametrize(
    ("kernel", "at_center"),
    [
        (Polynomial(2, include_bias=False), 1.5**2 - 1),
        (Fourier(3, include_bias=False), 7**2 - 1),
        (RBF(gamma=10.0), 1.0),
    ],
    ids=["polynomial", "fourier", "rbf"],
)
def test_surface_holds_the_kernel_around_its_center(plt, kernel, at_center):
    # MLR7 figure 7.2: the three kernels around [0.5, 0.5].
    display = KernelSurfaceDisplay.from_kernel(kernel, n_points=11)
    assert display.center_value == pytest.approx(at_center, rel=1e-14)
    assert display.values[5, 5] == pytest.approx(at_center, rel=1e-14)
    i, j = 2, 9  # values[i, j] belongs to (x1[j], x2[i])
    expected = kernel(np.array([[display.x1[j], display.x2[i]]]), np.array([[0.5, 0.5]]))[0, 0]
    assert display.values[i, j] == pytest.approx(expected, rel=1e-14)
    assert display.ax_.name == "3d"
    assert display.ax_.get_title() == repr(kernel)
    display.figure_.canvas.draw()


def test_surface_draws_into_given_axes_and_as_contours(plt):
    figure, ax = plt.subplots()
    display = KernelSurfaceDisplay.from_kernel(
        RBF(gamma=1.0), center=(0, 1), bounds=((-1, 2), (0, 3)), n_points=7, name="a", kind="contour", ax=ax
    )
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert ax.get_title() == "a"
    assert (display.x1[0], display.x1[-1], display.x2[0], display.x2[-1]) == (-1, 2, 0, 3)
    assert display.values.shape == (7, 7)
    again = display.plot(kind="surface")
    assert again is display
    assert display.ax_ is not ax


def test_surface_of_a_constant_is_drawn(plt):
    KernelSurfaceDisplay.from_kernel(lambda X, Z: np.ones((len(X), len(Z))), n_points=3).figure_.canvas.draw()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"center": (0.5, 0.5, 0.5)}, r"center has shape \(3,\)"),
        ({"bounds": ((0, 1), (1, 1))}, "lower < upper"),
        ({"bounds": (0, 1)}, "lower < upper"),
        ({"n_points": 1}, "n_points is 1"),
        ({"kind": "heatmap"}, "kind is 'heatmap'; use one of 'surface', 'contour'"),
    ],
)
def test_surface_refuses(plt, wrong, message):
    with pytest.raises(ValueError, match=message):
        KernelSurfaceDisplay.from_kernel(RBF(gamma=1.0), **wrong)


def test_surface_wants_what_can_be_called():
    with pytest.raises(TypeError, match=r"kernel is 'rbf'; it needs to be an expression such as RBF"):
        KernelSurfaceDisplay.from_kernel("rbf")


def test_surface_names_the_projection_it_needs(plt):
    _, flat = plt.subplots()
    with pytest.raises(ValueError, match=r"projection \'rectilinear\'; make it by plt.subplots\(subplot_kw"):
        KernelSurfaceDisplay.from_kernel(RBF(gamma=1.0), ax=flat, n_points=3)
    _, solid = plt.subplots(subplot_kw={"projection": "3d"})
    with pytest.raises(ValueError, match=r"projection '3d'; make it by plt.subplots\(\)"):
        KernelSurfaceDisplay.from_kernel(RBF(gamma=1.0), ax=solid, kind="contour", n_points=3)


def test_errors_are_sorted_and_the_best_is_marked(plt):
    order = [2, 0, 3, 1]
    display = ErrorPathDisplay.from_errors(
        ALPHAS[order], TRAIN[order], TEST[order], name="RBF", error_name="mse"
    )
    np.testing.assert_array_equal(display.alphas, ALPHAS)
    np.testing.assert_array_equal(display.test_errors, TEST)
    assert display.best_index == 1  # 0.375 at both of the middle α: the first wins
    np.testing.assert_allclose(display.best_.get_xydata(), [[0.1, 0.375]])
    np.testing.assert_allclose(display.test_line_.get_ydata(), TEST.mean(axis=1))
    np.testing.assert_allclose(display.train_line_.get_ydata(), TRAIN.mean(axis=1))
    band = display.test_band_.get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(0.875 + 0.125)  # one standard deviation above the last mean
    assert display.ax_.get_xscale() == "log"
    assert (display.ax_.get_title(), display.ax_.get_ylabel()) == ("RBF", "mse")
    display.figure_.canvas.draw()


def test_errors_with_an_unregularised_machine(plt):
    display = ErrorPathDisplay.from_errors([0.0, 1e-2, 1e-1, 1.0], TRAIN, TEST)
    assert display.ax_.get_xscale() == "symlog"
    display.figure_.canvas.draw()
    display = ErrorPathDisplay.from_errors([0.0], TRAIN[:1], TEST[:1])
    display.figure_.canvas.draw()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], TRAIN, TEST), r"alphas has shape \(0,\)"),
        (([ALPHAS], TRAIN, TEST), r"alphas has shape \(1, 4\)"),
        (([1, 2, -3, 4], TRAIN, TEST), r"alphas\[2\] is -3.0"),
        (([1, np.nan, 3, 4], TRAIN, TEST), r"alphas\[1\] is nan"),
        ((ALPHAS, TRAIN[:3], TEST), r"train_errors has shape \(3, 2\); it needs \(4, n_folds\)"),
        ((ALPHAS, TRAIN, TEST[:, 0]), r"test_errors has shape \(4,\)"),
    ],
)
def test_errors_refuse(plt, arguments, message):
    with pytest.raises(ValueError, match=message):
        ErrorPathDisplay.from_errors(*arguments)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: KernelSurfaceDisplay.from_kernel(RBF(gamma=1.0), n_points=3),
        lambda: ErrorPathDisplay.from_errors(ALPHAS, TRAIN, TEST),
    ],
)
def test_missing_matplotlib_is_named_with_its_extra(monkeypatch, draw):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'matplotlib, which is missing; pip install "mercer\[plot\]"'):
        draw()


def fitted_search(**params):
    """A path of kernel ridge over two gammas."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    search = PathCV(KernelRidge(kernel="rbf"), alphas=[1.0, 0.01, 0.1], gammas=[0.1, 1.0], **params)
    return search.fit(X, X[:, 0] + 0.5 * rng.standard_normal(40))


def test_the_path_of_a_search_is_that_of_its_best_cell(plt):
    search = fitted_search(cv=4)
    display = ErrorPathDisplay.from_estimator(search)
    rows = [
        i
        for i, cell in enumerate(search.cv_results_["params"])
        if cell["gamma"] == search.best_params_["gamma"]
    ]
    np.testing.assert_array_equal(display.alphas, [0.01, 0.1, 1.0])
    np.testing.assert_array_equal(display.test_errors, search.test_error_[rows][[1, 2, 0]])
    np.testing.assert_array_equal(display.train_errors, search.train_error_[rows][[1, 2, 0]])
    assert display.one_se_.get_xdata()[0] == search.alpha_1se_
    assert display.ax_.get_ylabel() == "mean squared error"
    display.figure_.canvas.draw()


def test_the_path_of_a_pipeline_that_was_not_refitted(plt):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    machine = make_pipeline(StandardScaler(), KernelLogisticRegression())
    search = PathCV(machine, alphas=[1.0, 0.01], refit=False).fit(X, X[:, 0] > 0.3)
    display = ErrorPathDisplay.from_estimator(search)
    np.testing.assert_array_equal(display.test_errors, search.test_error_[::-1])
    assert display.ax_.get_ylabel() == "share of wrong labels"


def test_fits_that_failed_are_not_the_best(plt):
    errors = np.array([[np.nan, 0.1], [0.3, 0.3], [0.2, 0.2]])
    assert ErrorPathDisplay.from_errors([1.0, 2.0, 3.0], None, errors).best_index == 2


def test_the_path_of_pooled_rows_has_no_training_errors(plt):
    search = fitted_search(cv="loo")
    display = ErrorPathDisplay.from_estimator(search)
    assert display.train_line_ is None
    assert display.test_errors.shape == (3, 1)
    best = search.test_error_.mean(axis=1)[search.best_index_]
    np.testing.assert_allclose(display.test_errors.min(), best)
    display.figure_.canvas.draw()


def test_a_search_without_alpha_is_refused(plt):
    with pytest.raises(ValueError, match="PathCV has no best_alpha_"):
        ErrorPathDisplay.from_estimator(PathCV(KernelRidge()))

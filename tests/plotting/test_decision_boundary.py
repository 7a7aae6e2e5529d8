"""The display of decisions: what it reads off an estimator, what it draws, and what it refuses."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_moons
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from mercer import SVC, SVR, NuSVC, OneClassSVM
from mercer.plotting import DecisionBoundaryDisplay
from mercer.plotting.decision_boundary import COLORS, MARKERS

# The floating-point errors of scikit-learn's own code are not what is tested here.
pytestmark = pytest.mark.lenient

X, Y = make_moons(80, noise=0.25, random_state=0)
LABELS = np.array(["waning", "waxing"])[Y]
X3, Y3 = make_blobs(90, centers=3, cluster_std=1.4, random_state=3)


@pytest.fixture
def plt():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def draw(*args, **options):
    display = DecisionBoundaryDisplay.from_estimator(*args, **({"grid_resolution": 40} | options))
    display.figure_.canvas.draw()
    return display


def rgb(artist):
    return tuple(np.round(artist.get_facecolor()[0, :3], 6))


def legend_of(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def ring_sizes(display):
    return [len(ring.get_offsets()) for ring in display.rings_]


class TestTwoClasses:
    def test_boundary_and_dashed_margins_are_at_their_levels(self, plt):
        display = draw(SVC(C=1.0, gamma=1.0).fit(X, Y), X, Y)
        np.testing.assert_array_equal(display.boundary_.levels, [0.0])
        np.testing.assert_array_equal(display.margins_.levels, [-1.0, 1.0])
        assert [dashes[1] is None for dashes in display.boundary_.get_linestyle()] == [True]
        assert [dashes[1] is None for dashes in display.margins_.get_linestyle()] == [False, False]

    def test_lines_lie_where_the_decision_says(self, plt):
        # A linear decision is interpolated without error.
        svc = SVC(kernel="linear", C=1.0).fit(X, Y)
        display = draw(svc, X, Y)
        for lines in (display.boundary_, display.margins_):
            for level, path in zip(lines.levels, lines.get_paths(), strict=True):
                np.testing.assert_allclose(svc.decision_function(path.vertices), level, atol=1e-12)

    def test_values_are_those_of_the_estimator(self, plt):
        svc = SVC(gamma=1.0).fit(X, LABELS)
        display = draw(svc, X, LABELS)
        i, j = 3, 31  # [i, j] belongs to (x1[j], x2[i])
        point = np.array([[display.x1[j], display.x2[i]]])
        assert display.decision[i, j] == pytest.approx(svc.decision_function(point)[0], rel=1e-12)
        assert display.classes[display.regions[i, j]] == svc.predict(point)[0]
        np.testing.assert_array_equal(display.classes[display.y], LABELS)

    @pytest.mark.parametrize(
        "params",
        [{"C": 1.0}, {"C": 5.0, "class_weight": {0: 1.0, 1: 0.3}}, {"C": 0.5, "gamma": 3.0}],
        ids=str,
    )
    def test_thick_rings_are_strictly_inside_the_box(self, plt, params):
        svc = SVC(**params, tol=1e-5).fit(X, Y)
        display = draw(svc, X, Y)
        alpha = np.abs(svc.dual_coef_[0])
        inside = alpha < svc.C * svc.class_weight_[Y[svc.support_]] * (1 - 1e-9)
        assert 0 < inside.sum() < len(inside)
        np.testing.assert_array_equal(display.on_margin, inside)
        thick, thin = display.rings_
        np.testing.assert_array_equal(thick.get_offsets(), svc.support_vectors_[inside])
        np.testing.assert_array_equal(thin.get_offsets(), svc.support_vectors_[~inside])
        assert thick.get_linewidth()[0] > 2 * thin.get_linewidth()[0]
        assert len(thick.get_facecolor()) == 0

    def test_sample_weights_move_the_bound_of_a_row(self, plt, rng):
        weights = rng.uniform(0.2, 5.0, len(X))
        svc = SVC(C=1.0, tol=1e-6).fit(X, Y, sample_weight=weights)
        inside = np.abs(svc.dual_coef_[0]) < weights[svc.support_] * (1 - 1e-9)
        assert 0 < inside.sum() < len(inside)
        np.testing.assert_array_equal(draw(svc, X, Y).on_margin, inside)

    def test_nu_machine_has_the_largest_alpha_as_its_bound(self, plt):
        svc = NuSVC(nu=0.4, tol=1e-6).fit(X, Y)
        alpha = np.abs(svc.dual_coef_[0])
        inside = alpha < alpha.max() * (1 - 1e-9)
        assert 0 < inside.sum() < len(inside)
        np.testing.assert_array_equal(draw(svc, X, Y).on_margin, inside)

    @pytest.mark.parametrize("C", [1e8, np.inf])
    def test_hard_margin_has_all_its_support_vectors_on_the_margin(self, plt, C):
        A, b = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0], [2.0, 1.0], [5.0, 0.5]]), [-1, -1, 1, 1, 1]
        svc = SVC(kernel="linear", C=1e8, tol=1e-8).fit(A, b)
        svc.C = C
        display = draw(svc, A, b)
        assert display.on_margin.all()
        assert ring_sizes(display) == [len(svc.support_), 0]
        assert "support vector\non the margin" in legend_of(display)
        assert "support vector\nat the bound" not in legend_of(display)
        vertices = np.concatenate([path.vertices for path in display.margins_.get_paths()])
        np.testing.assert_allclose(np.unique(np.round(vertices[:, 0], 6)), [0.0, 2.0])

    def test_legend_names_what_is_drawn_beside_the_axes(self, plt):
        display = draw(SVC(gamma=1.0).fit(X, LABELS), X, LABELS, name="moons")
        assert legend_of(display) == [
            *("class waning", "class waxing", "boundary", r"margin, $f(x)=\pm 1$"),
            *("support vector\non the margin", "support vector\nat the bound"),
        ]
        assert display.ax_.get_title() == "moons"
        box = display.ax_.get_legend().get_window_extent()
        assert box.x0 >= display.ax_.get_window_extent().x1
        assert box.x1 <= display.figure_.bbox.x1 + 1

    def test_margins_out_of_sight_are_left_out(self, plt):
        display = draw(SVC(kernel="linear", C=1e-4).fit(X, Y), X, Y)
        assert display.margins_ is None
        assert not any("margin," in text for text in legend_of(display))

    def test_one_class_everywhere_has_no_boundary(self, plt):
        display = draw(SVC(kernel="linear").fit([[0.0, 0.0], [9.0, 0.0]], [0, 1]), [[-5.0, 0.0]], eps=1.0)
        assert display.boundary_ is None
        assert (display.regions == 0).all()

    def test_decision_is_left_out_where_predict_goes_by_another(self, plt):
        model = FixedThresholdClassifier(LogisticRegression(), threshold=0.9, response_method="predict_proba")
        display = draw(model.fit(X, Y), X, Y)
        assert display.decision is None
        grid = np.stack(np.meshgrid(display.x1, display.x2), axis=-1).reshape(-1, 2)
        np.testing.assert_array_equal(display.regions.reshape(-1), model.predict(grid))

    def test_response_method_chooses(self, plt):
        svc = SVC().fit(X, Y)
        by_predict, by_decision = (
            draw(svc, X, Y, response_method=method) for method in ("predict", "decision_function")
        )
        assert by_predict.decision is None
        assert by_predict.margins_ is None
        assert by_predict.boundary_ is not None
        assert ring_sizes(by_predict) == ring_sizes(by_decision)
        np.testing.assert_array_equal(by_predict.regions, by_decision.regions)


class TestOneClass:
    def test_boundary_without_margins_and_rings_on_it(self, plt):
        machine = OneClassSVM(nu=0.2, gamma=0.5, tol=1e-6).fit(X)
        display = draw(machine, X)
        np.testing.assert_array_equal(display.boundary_.levels, [0.0])
        assert display.margins_ is None
        np.testing.assert_array_equal(display.on_margin, machine.dual_coef_[0] < 1 - 1e-9)
        assert 0 < display.on_margin.sum() < len(display.on_margin)
        np.testing.assert_array_equal(display.classes, [-1, 1])
        assert legend_of(display) == [
            *("outside", "inside", "points", "boundary"),
            *("support vector\non the boundary", "support vector\noutside"),
        ]

    def test_points_by_label(self, plt):
        machine = OneClassSVM(nu=0.2, gamma=0.5).fit(X)
        display = draw(machine, X, machine.predict(X))
        assert [len(points.get_offsets()) for points in display.points_] == [
            np.sum(machine.predict(X) == -1),
            np.sum(machine.predict(X) == 1),
        ]
        assert legend_of(display)[:2] == ["outside", "inside"]


class TestManyClasses:
    def test_regions_boundaries_and_plain_rings(self, plt):
        svc = SVC().fit(X3, Y3)
        display = draw(svc, X3, Y3)
        grid = np.stack(np.meshgrid(display.x1, display.x2), axis=-1).reshape(-1, 2)
        np.testing.assert_array_equal(display.regions.reshape(-1), svc.predict(grid))
        assert display.decision is None
        assert display.margins_ is None
        assert [list(lines.levels) for lines in display.boundary_] == [[0.0]] * 3
        assert ring_sizes(display) == [len(svc.support_)]
        assert legend_of(display) == ["class 0", "class 1", "class 2", "boundary", "support vector"]

    def test_boundary_is_straight_where_the_classes_part_along_a_line(self, plt):
        # Nearest of three centres: the boundaries are half-lines from the origin, here y = 0 for x > 0.
        turn = 2 * np.pi / 3
        centers = np.array([[np.cos(a), np.sin(a)] for a in (turn / 2, -turn / 2, np.pi)])
        model = KNeighborsClassifier(1).fit(centers, [0, 1, 2])
        display = draw(model, centers, grid_resolution=100, eps=1.0)
        cell = display.x2[1] - display.x2[0]
        vertices = np.concatenate([path.vertices for path in display.boundary_[0].get_paths()])
        along = vertices[(vertices[:, 0] > 0.3) & (np.abs(vertices[:, 1]) < 0.3)]
        assert len(along) > 20
        assert np.abs(along[:, 1]).max() < cell

    def test_argmax_of_the_decision_function(self, plt):
        svc = SVC(break_ties=True).fit(X3, Y3)
        a, b = (draw(svc, X3, response_method=method) for method in ("predict", "decision_function"))
        np.testing.assert_array_equal(a.regions, b.regions)

    @pytest.mark.parametrize("n_classes", [2, 7, 10, 13])
    def test_each_class_has_a_colour_of_its_own(self, plt, n_classes):
        labels = np.arange(3 * n_classes) % n_classes
        rows = np.stack([labels, np.arange(3 * n_classes) / n_classes], axis=1)
        display = draw(DecisionTreeClassifier().fit(rows, labels), rows, labels)
        colors = [rgb(points) for points in display.points_]
        assert len(set(colors)) == n_classes
        if n_classes <= 10:
            from matplotlib.colors import to_rgb

            np.testing.assert_allclose(colors, [to_rgb(color) for color in COLORS[:n_classes]], atol=1e-6)
        # The region has the hue of its points: a mixture of their colour and white.
        i, j = np.argwhere(display.regions == n_classes - 1)[0]
        region = display.surface_.to_rgba(display.surface_.get_array())[i, j, :3]
        np.testing.assert_allclose(region, 1 - 0.22 * (1 - np.array(colors[-1])), atol=1e-6)

    def test_palette_is_told_apart_by_colour_and_by_shape(self):
        assert len(set(COLORS)) == len(set(MARKERS)) == 10


class TestInput:
    def test_given_axes_are_drawn_into_without_a_legend(self, plt):
        figure, ax = plt.subplots()
        display = draw(SVC().fit(X, Y), X, Y, ax=ax)
        assert display.ax_ is ax
        assert display.figure_ is figure
        assert ax.get_legend() is None
        # What a legend of the caller's finds.
        assert ax.get_legend_handles_labels()[1][:2] == ["class 0", "class 1"]
        again = display.plot(support_vectors=False)
        assert again is display
        assert display.ax_ is not ax
        assert display.rings_ == []

    def test_picture_extends_beyond_the_points(self, plt):
        svc = SVC().fit(X, Y)
        low, high = X.min(axis=0), X.max(axis=0)
        tenth = draw(svc, X)
        np.testing.assert_allclose(
            [tenth.x1[0], tenth.x2[-1]], [low[0], high[1]] + 0.1 * (high - low) * [-1, 1]
        )
        wide = draw(svc, X, eps=2.0, grid_resolution=7)
        np.testing.assert_allclose([wide.x1[0], wide.x2[-1]], [low[0] - 2, high[1] + 2])
        assert wide.regions.shape == (7, 7)
        assert wide.ax_.get_xlim() == (wide.x1[0], wide.x1[-1])
        assert draw(svc, X[:1]).x1[0] == X[0, 0] - 1.0

    def test_names_of_features_are_those_of_the_axes(self, plt):
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(X, columns=["width / mm", "height / mm"])
        svc = SVC().fit(frame, Y)
        for given in (frame, X):  # an array is taken in silence
            display = draw(svc, given, Y)
            assert display.ax_.get_xlabel() == "width / mm"
            assert display.ax_.get_ylabel() == "height / mm"
        assert draw(SVC().fit(X, Y), X, Y).ax_.get_xlabel() == "$x_1$"
        # Names of X only; and a pipeline behind whose first step there are none.
        assert draw(SVC().fit(X, Y), frame, Y).ax_.get_xlabel() == "width / mm"
        pipeline = make_pipeline(StandardScaler(), SVC()).fit(frame, Y)
        for given in (frame, X):
            display = draw(pipeline, given, Y)
            assert display.ax_.get_ylabel() == "height / mm"
            assert sum(ring_sizes(display)) == len(pipeline[-1].support_)

    @pytest.mark.parametrize("to", [sp.csr_array, sp.csr_matrix, sp.csc_array])
    def test_sparse_points_give_the_same_picture(self, plt, to):
        a, b = (draw(SVC().fit(rows, Y), rows, Y) for rows in (X, to(X)))
        np.testing.assert_allclose(a.decision, b.decision, atol=1e-9)
        np.testing.assert_array_equal(a.X, b.X)
        np.testing.assert_array_equal(a.on_margin, b.on_margin)
        assert ring_sizes(a) == ring_sizes(b)

    def test_pipelines_and_searches_are_looked_into(self, plt):
        pipeline = make_pipeline(StandardScaler(), SVC())
        search = GridSearchCV(pipeline, {"svc__C": [0.5]}, cv=2).fit(X, Y)
        display = draw(search, X, Y)
        support = search.best_estimator_[-1].support_
        np.testing.assert_array_equal(display.support_vectors, X[support])
        np.testing.assert_array_equal(display.margins_.levels, [-1.0, 1.0])
        thick = search.decision_function(X[support][display.on_margin])
        np.testing.assert_allclose(np.abs(thick), 1.0, atol=1e-2)
        # Other rows than those of the fit: nobody knows where the support vectors were.
        assert draw(search, X[::-1], Y[::-1]).rings_ == []
        assert draw(search, X[:20], Y[:20]).rings_ == []

    @pytest.mark.parametrize("model", [DecisionTreeClassifier(), KNeighborsClassifier(), KMeans(2, n_init=1)])
    def test_any_estimator_that_predicts_labels_has_regions(self, plt, model):
        display = draw(model.fit(X, Y), X, Y)
        assert set(np.unique(display.regions)) == {0, 1}
        assert display.decision is None
        assert display.rings_ == []
        np.testing.assert_array_equal(display.boundary_.levels, [0.0])

    def test_points_without_labels_have_one_colour_and_the_regions_a_legend(self, plt):
        display = draw(SVC().fit(X, LABELS), X)
        assert len(display.points_) == 1
        assert legend_of(display)[:3] == ["class waning", "class waxing", "points"]

    def test_styles_are_passed_on(self, plt):
        display = draw(
            SVC().fit(X, Y), X, Y, colors=["#00ff00", "black"], sample_style={"s": 50, "alpha": 0.5}
        )
        assert [rgb(points) for points in display.points_] == [(0, 1, 0), (0, 0, 0)]
        assert display.points_[0].get_sizes()[0] == 50
        assert display.points_[1].get_alpha() == 0.5
        assert display.rings_[0].get_sizes()[0] > 2 * 50

    def test_nothing_given_is_changed(self, plt):
        rows, labels = X.copy(), LABELS.copy()
        rows.setflags(write=False)
        svc = SVC().fit(rows, labels)
        before = dict(vars(svc))
        draw(svc, rows, labels, sample_style=(style := {"s": 9}))
        assert style == {"s": 9}
        assert vars(svc).keys() == before.keys()


class TestErrors:
    @pytest.mark.parametrize("model", [SVR(), KernelRidge(), make_pipeline(StandardScaler(), SVR())])
    def test_regression_is_refused(self, plt, model):
        with pytest.raises(ValueError, match=r"is a regressor and has no classes: give a classifier"):
            draw(model.fit(X, Y), X, Y)

    def test_a_machine_that_is_not_fitted(self, plt):
        with pytest.raises(NotFittedError, match="This SVC instance is not fitted yet"):
            draw(SVC(), X, Y)

    def test_what_does_not_predict(self, plt):
        with pytest.raises(TypeError, match="PCA has no predict; give a fitted classifier"):
            draw(PCA().fit(X), X)

    @pytest.mark.parametrize("n", [1, 3])
    def test_other_than_two_columns(self, plt, n):
        rows = np.hstack([X, X])[:, :n]
        with pytest.raises(
            ValueError, match=rf"SVC was fitted to {n} features; a plane has 2: fit it to two"
        ):
            draw(SVC().fit(rows, Y), X, Y)
        with pytest.raises(ValueError, match=rf"X has {n} columns; a plane has 2: give the two features"):
            draw(SVC().fit(X, Y), rows, Y)

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            (Y[:5], r"y has shape \(5,\); it needs one label for each of the 80 rows"),
            (
                np.where(Y, "waxing", "new"),
                "y holds new, the estimator's classes are waning, waxing; give the",
            ),
            (Y, "y holds [01], the estimator's classes are waning, waxing"),
        ],
    )
    def test_labels_that_do_not_belong(self, plt, y, message):
        with pytest.raises(ValueError, match=message):
            draw(SVC().fit(X, LABELS), X, y)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"grid_resolution": 1}, "grid_resolution is 1; a grid needs at least 2"),
            ({"eps": -9.0}, r"eps is -9.0: the picture would reach from .*; use a finite eps > 0"),
            ({"eps": np.nan}, "eps is nan"),
            ({"eps": np.inf}, "eps is inf"),
            (
                {"response_method": "proba"},
                "response_method is 'proba'; use one of 'auto', 'decision_function'",
            ),
            ({"colors": ["red"]}, "colors has 1 colours for 2 classes"),
        ],
    )
    def test_options_out_of_range(self, plt, options, message):
        with pytest.raises(ValueError, match=message):
            draw(SVC().fit(X, Y), X, Y, **options)

    def test_no_decision_function(self, plt):
        with pytest.raises(ValueError, match="has no decision_function; use response_method='predict'"):
            draw(DecisionTreeClassifier().fit(X, Y), X, Y, response_method="decision_function")

    def test_votes_of_pairs_are_no_decision(self, plt):
        rows, labels = make_blobs(60, centers=4, random_state=0)
        svc = SVC(decision_function_shape="ovo").fit(rows, labels)
        with pytest.raises(ValueError, match="has 6 columns for 4 classes; use response_method='predict'"):
            draw(svc, rows, labels, response_method="decision_function")
        draw(svc, rows, labels)

    def test_several_targets(self, plt):
        with pytest.raises(ValueError, match=r"predict gives shape \(1600, 2\); a picture needs one label"):
            draw(DecisionTreeClassifier().fit(X, np.stack([Y, Y], axis=1)), X)

    def test_points_that_are_not_numbers(self, plt):
        with pytest.raises(ValueError, match="Input X contains NaN"):
            draw(SVC().fit(X, Y), np.full((2, 2), np.nan))

    def test_axes_in_space(self, plt):
        _, solid = plt.subplots(subplot_kw={"projection": "3d"})
        with pytest.raises(ValueError, match=r"ax has the projection '3d'; make it by plt.subplots\(\)"):
            draw(SVC().fit(X, Y), X, Y, ax=solid)

    def test_missing_matplotlib_is_named_with_its_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
        with pytest.raises(ImportError, match=r'matplotlib, which is missing; pip install "mercer\[plot\]"'):
            DecisionBoundaryDisplay.from_estimator(SVC().fit(X, Y), X, Y, grid_resolution=3)

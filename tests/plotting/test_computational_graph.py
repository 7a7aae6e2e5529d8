"""The display of a function's graph: its formulas, values, tangents and adjoints, and where they stand."""

import sys

import numpy as np
import pytest

import mercer.autodiff as ad
from mercer.plotting import ComputationalGraphDisplay, _layers


@pytest.fixture
def plt():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def draw(*args, **options):
    display = ComputationalGraphDisplay.from_function(*args, **options)
    display.figure_.canvas.draw()
    return display


def f(x, y):
    return np.sin(x * y) + np.exp(x) / (1 + y**2)


def formulas(display):
    return [node.label for node in display.nodes]


def test_the_graph_of_linma_with_adjoints(plt):
    # LINMA (1.7)–(1.12): x + x² at 3 has the value 12 and the derivative 7
    display = draw(lambda x: x + x**2, 3.0)
    assert formulas(display) == [r"s_{0} = \mathrm{x}", "s_{1} = s_{0}^{2}", "s_{2} = s_{0} + s_{1}"]
    assert [n.value for n in display.nodes] == ["3", "9", "12"]
    assert [n.derivative for n in display.nodes] == ["$r$ = 7", "$r$ = 1", "$r$ = 1"]
    assert [n.parents for n in display.nodes] == [[], [0], [0, 1]]
    assert display.outputs == [2]
    assert len(display.boxes_) == 3
    assert len(display.edges_) == len(display.derivative_edges_) == 3


def test_the_graph_of_linma_with_tangents(plt):
    display = draw(lambda x: x + x**2, 3.0, derivatives="tangents")  # (1.9)
    assert [n.derivative for n in display.nodes] == ["$t$ = 1", "$t$ = 6", "$t$ = 7"]
    display = draw(lambda x: x + x**2, 3.0, derivatives="tangents", tangents=[0.5])
    assert display.nodes[-1].derivative == "$t$ = 3.5"


def test_what_is_written_is_what_the_modes_compute(plt):
    display = draw(f, 1.0, 2.0)
    gradient = ad.grad(f, (0, 1))(1.0, 2.0)
    for node, g in zip(display.nodes, gradient, strict=False):
        assert node.derivative == f"$r$ = {g:.4g}".replace("-", "−")
    assert display.nodes[-1].value == f"{f(1.0, 2.0):.4g}"
    pushed = ad.jvp(f, (1.0, 2.0), (0.5, -1.0))[1]
    display = draw(f, 1.0, 2.0, derivatives="tangents", tangents=(0.5, -1.0))
    assert display.nodes[-1].derivative == f"$t$ = {pushed:.4g}".replace("-", "−")


def test_arrays_tuples_and_constants(plt):
    def g(A, b):
        w, _ = np.linalg.eigh(A + A.T)
        return np.sum(np.linalg.solve(A, b) * w[1]) - b[0] / 2 + 1.5

    A, b = np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([1.0, 2.0])
    display = draw(g, A, b)
    labels = " ".join(formulas(display))
    for part in (r"\mathrm{eigh}", r"\mathrm{solve}(s_{0}, s_{1})", r"[\mathrm{1}]", "/ 2", "+ 1.5"):
        assert part in labels
    assert display.nodes[0].value == "shape (2, 2)"
    gradient = ad.grad(g, 1)(A, b)
    assert display.nodes[1].derivative == f"$r$ = [{gradient[0]:.4g}, {gradient[1]:.4g}]"
    pushed = ad.jvp(g, (A, b), (np.ones((2, 2)), np.zeros(2)))[1]
    assert draw(g, A, b, derivatives="tangents").nodes[-1].derivative.endswith(f"{pushed:.4g}".lstrip("-"))


def test_several_values_and_no_derivatives(plt):
    display = draw(lambda x: (x[0] * x[1], np.sin(x[0])), np.array([1.0, 2.0]), derivatives=None)
    assert len(display.outputs) == 2
    assert display.derivative_edges_ == []
    assert all(n.derivative == "" for n in display.nodes)
    display = draw(lambda x: 2 * x, np.ones(2), derivatives="tangents")
    assert display.nodes[-1].derivative == "$t$ = [2, 2]"


def test_assignments_and_unused_operations(plt):
    def g(x):
        y = np.zeros_like(x)
        np.exp(x)  # nothing depends on it
        y[1:] = x[:-1] ** 2
        return np.sum(y)

    display = draw(g, np.array([1.0, 2.0, 3.0]))
    labels = " ".join(formulas(display))
    assert "exp" not in labels
    assert r"\leftarrow" in labels
    assert r"[\mathrm{1:}]" in labels
    assert display.nodes[0].derivative == "$r$ = [2, 4, 0]"


@pytest.mark.parametrize(
    ("function", "args", "options", "message"),
    [
        (lambda x: 2 * x, (np.ones(2),), {}, r"adjoints belong to a value of one number.*\(2,\)"),
        (lambda x: 3.0, (1.0,), {}, "does not depend on the arguments"),
        (lambda: 3.0, (), {}, "no arguments"),
        (f, (1.0, 2.0), {"derivatives": "both"}, 'derivatives must be "adjoints"'),
        (f, (1.0, 2.0), {"max_nodes": 5}, "9 nodes, more than max_nodes=5"),
        (
            f,
            (1.0, 2.0),
            {"derivatives": "tangents", "tangents": [np.ones(2), 1.0]},
            "tangents have the shapes",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(function, args, options, message):
    with pytest.raises(ValueError, match=message):
        ComputationalGraphDisplay.from_function(function, *args, **options)


def test_an_error_in_the_function_closes_the_tape(plt):
    def bad(x):
        raise KeyError("in the middle")

    with pytest.raises(KeyError):
        ComputationalGraphDisplay.from_function(bad, 1.0)
    assert draw(lambda x: x * x, 2.0).nodes[0].derivative == "$r$ = 4"


def test_texts_stay_in_their_boxes_and_boxes_apart(plt):
    display = draw(f, 1.0, 2.0)
    renderer = display.figure_.canvas.get_renderer()
    boxes = [b.get_window_extent(renderer) for b in display.boxes_]
    for i, a in enumerate(boxes):
        assert not any(a.overlaps(b) for b in boxes[:i])
    texts = [t.get_window_extent(renderer) for t in display.ax_.texts]
    assert len(texts) == 3 * len(boxes)
    for t in texts:
        assert any(b.x0 <= t.x0 and t.x1 <= b.x1 and b.y0 <= t.y0 and t.y1 <= b.y1 for b in boxes)


def test_given_axes_are_drawn_into_and_fitted(plt):
    figure, ax = plt.subplots(figsize=(4, 2.5))
    display = draw(f, 1.0, 2.0, ax=ax, name="f(x, y)")
    assert display.figure_ is figure
    assert ax.get_title() == "f(x, y)"
    renderer = figure.canvas.get_renderer()
    boxes = [b.get_window_extent(renderer) for b in display.boxes_]
    for t in ax.texts:
        t = t.get_window_extent(renderer)
        assert any(b.x0 - 1 <= t.x0 and t.x1 <= b.x1 + 1 for b in boxes)
    figure, ax = plt.subplots(subplot_kw={"projection": "3d"})
    with pytest.raises(ValueError, match="projection"):
        draw(f, 1.0, 2.0, ax=ax)


def test_missing_matplotlib_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"ComputationalGraphDisplay draws with matplotlib.*mercer\[plot\]"):
        ComputationalGraphDisplay.from_function(f, 1.0, 2.0)


# -- the layout ------------------------------------------------------------------------------------------


def random_graph(rng, n):
    return [
        [] if i < 2 else sorted(rng.choice(i, size=min(i, rng.integers(1, 3)), replace=False))
        for i in range(n)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_columns_follow_edges_and_rows_lie_apart(seed):
    parents = random_graph(np.random.default_rng(seed), 20)
    columns, rows, routes = _layers.layout(parents)
    for i, above in enumerate(parents):
        for p in above:
            assert columns[p] < columns[i]
            passed = [c for c, _ in routes.get((p, i), [])]
            assert passed == list(range(columns[p] + 1, columns[i]))
    places = [*zip(columns, rows, strict=True), *(p for points in routes.values() for p in points)]
    for c in set(columns):
        column = np.sort([y for x, y in places if x == c])
        assert np.all(np.diff(column) > 1 - 1e-9)


def test_two_crossed_chains_are_uncrossed():
    # a → c, b → d; d is listed before c
    columns, rows, _ = _layers.layout([[], [], [1], [0], [2], [3]])
    assert list(columns) == [0, 0, 1, 1, 2, 2]
    assert np.sign(rows[0] - rows[1]) == np.sign(rows[3] - rows[2]) == np.sign(rows[5] - rows[4])


@pytest.mark.parametrize("wanted", [[0.0, 0.0], [3.0, 1.0], [1.0, 2.0, 3.0], [0.0, 5.0, -5.0]])
def test_rows_are_moved_as_little_as_possible(wanted):
    from scipy.optimize import minimize

    wanted = np.array(wanted)
    apart = {"type": "ineq", "fun": lambda y: y[:-1] - y[1:] - 1}
    start = -2.0 * np.arange(len(wanted))
    found = minimize(lambda y: np.sum((y - wanted) ** 2), start, constraints=apart, options={"ftol": 1e-14})
    np.testing.assert_allclose(_layers._apart(wanted), found.x, atol=1e-5)

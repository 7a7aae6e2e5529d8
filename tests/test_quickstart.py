"""The quick start: its files, its errors, and a small run from end to end."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, make_classification, make_regression

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are not beside the tests")


@pytest.fixture
def example(monkeypatch):
    """Import one of the example's modules."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


@pytest.fixture
def read(example, tmp_path):
    """Write a text and read it as a data set."""

    def read(text, *args, **kwargs):
        path = tmp_path / "table.csv"
        path.write_text(text, encoding="utf-8")
        return example("real_data").from_file(path, *args, **kwargs)

    return read


def csv(rows=20, head="a,b,kind\n", row="{i},{half},{label}\n", label=lambda i: "xy"[i % 2]):
    return head + "".join(row.format(i=i, half=i / 2, label=label(i)) for i in range(rows))


def test_csv_by_name_and_index(read):
    data = read(csv(), "kind")
    assert data.task == "classification"
    np.testing.assert_array_equal(data.X, np.stack([np.arange(20), np.arange(20) / 2], axis=1))
    assert set(data.y) == {"x", "y"}
    np.testing.assert_array_equal(read(csv(), "-1").y, data.y)
    middle = read(csv(head="a,kind,b\n", row="{i},{label},{half}\n"), "1")
    np.testing.assert_array_equal(middle.y, data.y)


def test_csv_without_a_header_and_with_other_delimiters(read):
    for row in ("{label};{i};{half}\n", "{label}\t{i}\t{half}\n", "{label}, {i}, {half}\n"):
        data = read(csv(head="", row=row), "0")
        assert data.X.shape == (20, 2)
        assert data.task == "classification"


def test_task_is_guessed_from_the_target(read):
    assert read(csv(label=lambda i: i % 3), "kind").task == "classification"
    assert read(csv(label=lambda i: i + 0.5), "kind").task == "regression"
    assert read(csv(30, label=lambda i: i), "kind").task == "regression"  # 30 distinct integers
    assert read(csv(label=lambda i: i % 3), "kind", task="regression").task == "regression"


def test_large_files_are_sampled(read):
    data = read(csv(100, label=lambda i: i / 7), "kind", max_rows=30)
    assert data.X.shape == (30, 2)
    np.testing.assert_allclose(data.y, data.X[:, 0] / 7)


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("", "y", "the file is empty"),
        ("a,b\n", "a", "a header and no rows"),
        (csv(), None, "which column is the target.*a, b, kind"),
        (csv(), "knd", "no column 'knd'; did you mean 'kind'"),
        (csv(), "3", "no column 3; its columns are a, b, kind"),
        (csv(head=""), "kind", "no column 'kind'; without a header, columns are 0…2"),
        (csv(5), "kind", "5 rows; five folds need at least 10"),
        (csv() + "1,2\n", "kind", "line 22: 2 cells where the first line has 3"),
        (csv() + "1,oops,x\n", "kind", "line 22, column 'b': 'oops' is not a finite number"),
        (csv() + "1,nan,x\n", "kind", "line 22, column 'b': 'nan'"),
        (csv() + "1,,x\n", "kind", "line 22, column 'b': ''"),
        (csv() + "1,2,\n", "kind", "line 22: the target 'kind' is empty"),
        (csv() + "1,2,z\n", "kind", "class z has 1 of the rows"),
        (csv(label=lambda i: "x"), "kind", "the target is x in every row"),
        ("a\n" + "1\n2\n" * 10, "a", "one column only"),
    ],
)
def test_bad_csv_is_refused(read, text, target, message):
    with pytest.raises(ValueError, match=message):
        read(text, target)


def test_bad_tasks_are_refused(read):
    with pytest.raises(ValueError, match="not numeric"):
        read(csv(), "kind", task="regression")
    with pytest.raises(ValueError, match="3 in every row"):
        read(csv(label=lambda i: 3), "kind", task="regression")


def test_files_that_are_not_text_or_not_there(example, tmp_path):
    from_file = example("real_data").from_file
    with pytest.raises(ValueError, match="there is no such file"):
        from_file(tmp_path / "absent.csv", "y")
    (tmp_path / "binary").write_bytes(b"\x93NUMPY\xff\xfe\x00")
    with pytest.raises(ValueError, match="not a text file"):
        from_file(tmp_path / "binary", "y")


def test_libsvm(example, tmp_path):
    from_file = example("real_data").from_file
    X, y = make_classification(40, 6, random_state=0)
    X[np.abs(X) < 0.3] = 0
    path = tmp_path / "made.txt"
    dump_svmlight_file(X, y, str(path), zero_based=False)
    data = from_file(path)
    np.testing.assert_allclose(data.X, X)
    np.testing.assert_array_equal(data.y, y)
    assert data.task == "classification"
    with pytest.raises(ValueError, match="leave --target out"):
        from_file(path, "0")
    path.write_text("1 1:0.5 2:1\n-1 1:0.2 2:x\n")
    with pytest.raises(ValueError, match="not a valid LIBSVM file"):
        from_file(path)


def test_errors_of_the_command_line(example, capsys):
    quickstart = example("quickstart")
    for arguments, message in (
        (["--target", "y"], "belong to a file of your own"),
        (["--rows", "3"], "--rows 3"),
        (["--data", "absent.csv"], "absent.csv: there is no such file"),
    ):
        with pytest.raises(SystemExit, match="2"):
            quickstart.main(arguments)
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_own_data_from_end_to_end(example, monkeypatch, tmp_path, capsys, task):
    pytest.importorskip("matplotlib")
    quickstart = example("quickstart")
    make = make_classification if task == "classification" else make_regression
    X, y = make(60, 5, random_state=0)
    path = tmp_path / "own.csv"
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header="a,b,c,d,e,y", comments="")
    monkeypatch.setattr(quickstart, "ALPHAS", np.array([1e-2, 1.0]))
    quickstart.main(["--data", str(path), "--target", "y", "--output", str(tmp_path / "out")])
    out = capsys.readouterr().out
    assert f"own: 60 rows, 5 inputs, {task}" in out
    for kernel in ("Linear", "Polynomial(3)", "RBF", "Fourier(2)", "0.5*RBF + Polynomial(3)"):
        assert f"\n{kernel} " in out
    for name in ("errors_own.png", "kernels_around_a_point.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")


def test_both_packages_fit_the_same_machines(example):
    quickstart, real_data = example("quickstart"), example("real_data")
    data = real_data.bundled()[1]
    folds = data.folds(5)[:1]
    for model in quickstart.models(data.X.shape[1]):
        *_, gap = quickstart.side_by_side(model, 0.1, folds, lambda: None)
        assert gap < 1e-9, model.name  # the condition number is below 1e5


def test_plain_progress_without_tqdm(example, monkeypatch, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "tqdm", None)
    progress = example("quickstart").Progress(3)
    progress.doing("digits, RBF")
    progress.tick()
    progress.write("a row")
    progress.close()
    assert capsys.readouterr() == ("a row\n", "  digits, RBF …\n")


@pytest.mark.slow
def test_the_whole_quick_start(example, tmp_path, capsys):
    example("quickstart").main(["--output", str(tmp_path)])
    out = capsys.readouterr().out
    assert out.count("×\n") == 15  # three data sets, five kernels
    assert len(list(tmp_path.glob("*.png"))) == 4


@pytest.mark.slow
def test_the_machines_example(example, tmp_path, capsys):
    example("machines").main(["--output", str(tmp_path)])
    out = capsys.readouterr().out
    assert out.count("accuracy") == 4
    assert (tmp_path / "machines.png").exists()


@pytest.mark.slow
def test_the_tour_of_autodiff(example, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    example("autodiff_tour").main(["--output", str(tmp_path)])
    out = capsys.readouterr().out
    assert "the gradients differ by 0e+00" in out
    assert len({line.split()[-3:][0] for line in out.splitlines() if line.startswith("  hvp ")}) == 1
    assert {path.name for path in tmp_path.glob("*.png")} == {"autodiff_graph.png", "autodiff_memory.png"}

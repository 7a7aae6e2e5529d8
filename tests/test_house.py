"""The house itself: imports flow one way, the build is whole, the tree holds nothing of one machine."""

import ast
import doctest
import importlib
import os
import re
import subprocess
import sys
import tomllib
import warnings
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

import mercer

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "mercer"

# The way through the package: a module imports only from lines above its own, or from its own line.
# A package stands for all of its modules that have no line of their own.
ORDER = [
    ["mercer"],
    [
        "mercer._threads",
        "mercer._arrays",
        "mercer._memory",
        "mercer._progress",
        "mercer._warnings",
        "mercer._build",
    ],
    ["mercer.kernels.program"],
    ["mercer._native"],
    ["mercer.kernels"],
    ["mercer.gram"],
    ["mercer.features"],
    ["mercer.losses"],
    ["mercer.solvers"],
    ["mercer.estimators"],
    ["mercer.model_selection"],
    ["mercer.autodiff"],
    ["mercer.nn", "mercer.diffusion", "mercer.text"],
    ["mercer.plotting", "mercer.testing", "mercer._versions"],
]

# Imports to the right that are due when a method is called: where the way closes on itself.
DEFERRED = {("mercer.kernels.base", "mercer.gram")}

COMPILED = ["mercer._cholesky", "mercer._dual", "mercer._gram", "mercer._nearest", "mercer._sweep"]
# What imports them.
DOOR = "mercer._native.loading"


def module_name(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def place(name):
    """The index in ORDER of the longest entry that is `name` or a package around it."""
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        prefix = ".".join(parts[:length])
        for index, line in enumerate(ORDER):
            if prefix in line:
                return index
    return 0 if name == "mercer" else None


def imported_modules(path):
    """(module, line, whether at import time) for each import of mercer in a file."""
    tree = ast.parse(path.read_text())
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    inner = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(base + ([node.module] if node.module else []))
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "mercer":
                yield name, node.lineno, id(node) not in inner


def resolve(name):
    """The module that `name`, a module or a name in one, belongs to."""
    parts = name.split(".")
    while parts:
        path = SOURCE.parent.joinpath(*parts)
        if path.with_suffix(".py").exists() or (path / "__init__.py").exists():
            return ".".join(parts)
        if ".".join(parts) in COMPILED:
            return ".".join(parts)
        parts.pop()
    return name


python_files = sorted(SOURCE.rglob("*.py"))
needs_tree = pytest.mark.skipif(not python_files, reason="runs where the source tree is")


@needs_tree
@pytest.mark.parametrize("path", python_files, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_flow_left_to_right(path):
    name = module_name(path)
    own = place(name)
    assert own is not None, f"give {name} a place in ORDER"
    for target, line, at_import in imported_modules(path):
        module = resolve(target)
        where = f"{path.name}:{line} imports {module}"
        if module in COMPILED:
            assert name == DOOR, f"{where}; only {DOOR} imports compiled code"
            continue
        if not at_import and ((name, module) in DEFERRED or name == "mercer"):
            continue
        there = place(module)
        assert there is not None, f"{where}, which has no place in ORDER"
        assert there <= own, f"{where}, which stands to its right"


@needs_tree
def test_no_imports_go_in_a_circle():
    graph = {
        module_name(path): {resolve(target) for target, _, at_import in imported_modules(path) if at_import}
        for path in python_files
    }
    graph = {name: targets - {"mercer", name} for name, targets in graph.items()}
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_a_bare_import_loads_neither_scikit_learn_nor_compiled_code():
    code = (
        "import sys, mercer; dir(mercer); mercer.__version__\n"
        "print(*sorted({'sklearn', 'scipy', 'mercer._gram', 'mercer.kernels'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_public_name_can_be_had():
    for name in mercer.__all__:
        assert getattr(mercer, name) is not None
    assert set(mercer.__all__) <= set(dir(mercer))
    with pytest.raises(AttributeError, match="has no attribute 'KernelBridge'"):
        _ = mercer.KernelBridge


@needs_tree
def test_meson_and_the_package_tell_the_same_version():
    told = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text()).group(1)
    assert mercer.__version__ == told


@needs_tree
def test_dependencies_are_those_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.match(r"[\w-]+", requirement).group(0) for requirement in project["dependencies"]}
    optional = {"clarabel", "matplotlib", "tqdm", "pandas"}
    found = set()
    for path in python_files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    found -= set(sys.stdlib_module_names) | {"mercer"} | optional
    assert {"scikit-learn" if name == "sklearn" else name for name in found} <= declared


@needs_tree
def test_every_compiled_module_of_the_build_is_known_here():
    listing = (ROOT / "native" / "meson.build").read_text()
    block = re.search(r"extension_modules = \{(.*?)\n\}", listing, re.DOTALL).group(1)
    assert sorted(COMPILED) == sorted(f"mercer.{name}" for name in re.findall(r"'(\w+)': ", block))


@pytest.mark.parametrize("name", COMPILED)
def test_each_compiled_module_was_built_with_openmp(name):
    # A module that Meson links without OpenMP builds without a warning and runs serially.
    assert importlib.import_module(name).openmp() >= 201107


def test_show_versions_prints_what_a_report_needs(capsys):
    mercer.show_versions()
    text = capsys.readouterr().out
    assert re.search(rf"^mercer +{re.escape(mercer.__version__)}$", text, re.MULTILINE)
    for name, version in [("numpy", np.__version__), ("Python", sys.version.split()[0])]:
        assert re.search(rf"^{name} +{re.escape(version)}", text, re.MULTILINE)
    for name in ["scipy", "scikit-learn", "instruction set in use", "OpenMP", "threads by default", "BLAS"]:
        assert re.search(rf"^{name} +\S", text, re.MULTILINE), name


def tracked_files():
    if not (ROOT / ".git").exists():
        return []
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


@needs_tree
def test_no_file_names_one_machine_or_a_registry():
    # The words are split so that this file does not hold them.
    folders = "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me", "tm" + "p", "op" + "t"])
    pattern = re.compile(rf"(?<![\w.]){'/'}(?:{folders})/\w|pypi\.{'org'}|python{'hosted'}")
    found = [
        f"{path.relative_to(ROOT)}: {match.group(0)}"
        for path in tracked_files()
        if path.suffix not in {".png", ".npz"}
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_suite_is_strict():
    with pytest.raises(FloatingPointError):
        _ = np.ones(1) / np.zeros(1)
    with pytest.raises(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)


@pytest.mark.lenient
def test_a_lenient_test_warns_only():
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert np.isinf(np.ones(1) / np.zeros(1))


DOCTEST_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@needs_tree
def test_the_example_of_the_readme_runs():
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=DOCTEST_OPTIONS)
    assert result.attempted > 0
    assert result.failed == 0


@needs_tree
@pytest.mark.parametrize("name", [module_name(path) for path in python_files if "_build" not in path.name])
def test_the_examples_of_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=DOCTEST_OPTIONS)
    assert result.failed == 0


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["baseline", "v3", "v4"])
def test_every_instruction_set_passes_the_numeric_tests(isa):
    from mercer import _native

    if isa not in _native.isas():
        pytest.skip(f"{isa} is not usable here: {_native.isas()} are")
    if isa == _native.isa():
        pytest.skip(f"{isa} is what the rest of the suite runs on")
    # test_native runs itself under each set, autodiff reaches kernels by what tests/kernels tests; the
    # others left out, and scikit-learn's checks, hold no numbers.
    left_out = ["test_house.py", "test_native.py", "autodiff", "plotting", "examples"]
    here = Path(__file__).parent
    ignored = [f"--ignore={here / name}" for name in left_out]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--maxfail=10",
            "-k",
            "not check_",
            "-p",
            "no:cacheprovider",
            *ignored,
            str(here),
        ],
        env={**os.environ, "MERCER_ISA": isa},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]

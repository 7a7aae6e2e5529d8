"""Drop-in proof: scikit-learn's own tests of its support vector machines, run with mercer's in their place.

The source is that of the installed scikit-learn. Its imports run as they stand, then the five names are
replaced, in ``svm`` and among the names imported directly, and then the rest runs. LinearSVC, LinearSVR
and the low-level ``_libsvm`` stay scikit-learn's. ``DIFFERS`` lists every test that does not pass, and why.
"""

import ast
import types
from importlib.util import find_spec
from pathlib import Path

import pytest
import sklearn
from sklearn import svm

from mercer import SVC, SVR, NuSVC, NuSVR, OneClassSVM

OURS = {"SVC": SVC, "SVR": SVR, "NuSVC": NuSVC, "NuSVR": NuSVR, "OneClassSVM": OneClassSVM}

# Test, with or without its parameters -> why it must fail with mercer's classes. Each is a strict xfail.
DIFFERS = {
    "test_svr_errors": (
        "a callable kernel that returns a matrix of the wrong shape is refused at fit already, with its "
        "shape; scikit-learn fits what it gave and raises at predict"
    ),
    "test_bad_input": "a machine fitted to dense rows predicts sparse ones, too; scikit-learn's raises",
    "test_custom_kernel_not_array_input[SVC]": (
        "its kernel function is right only where both blocks are the same (it mirrors one half); at predict "
        "mercer asks for the support vectors' columns, scikit-learn for those of all training samples"
    ),
    "test_libsvm_convergence_warnings": (
        "it expects six samples not to be solved in two iterations; the first pair of mercer's is the optimum"
    ),
    "test_precomputed": (
        "it compares dual coefficients of iris to 6 decimals at tol=1e-3, of 'linear' and its matrix: equal "
        "rows merge and have an order by content in the one, not in the other, so that they agree to tol "
        "only (to 1e-8 at tol=1e-9)"
    ),
    "test_probability_raises_futurewarning": "probability is no deprecated parameter here: no warning",
    "test_svc_nusvc_probA_probB_deprecated": "probA_ and probB_ are not deprecated here: no warning",
}

# scikit-learn 1.9, where the list was made, has this many with its one default seed.
COUNTED = {"1.9": 128}

pytestmark = [pytest.mark.lenient, pytest.mark.filterwarnings("default")]


def source_file():
    """The installed file of tests, or None where a package has left them out."""
    try:
        spec = find_spec("sklearn.svm.tests.test_svm")
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None


class DropUnknownMarks(ast.NodeTransformer):
    """Takes off the marks that scikit-learn's own configuration registers; they change no test."""

    def visit_FunctionDef(self, node):
        node.decorator_list = [d for d in node.decorator_list if "thread_unsafe" not in ast.unparse(d)]
        return node


def load(path):
    """The names of scikit-learn's file after a run with our classes."""
    tree = DropUnknownMarks().visit(ast.parse(path.read_text(encoding="utf-8")))
    first = next(i for i, node in enumerate(tree.body) if isinstance(node, ast.Assign | ast.FunctionDef))
    imports, rest = tree.body[:first], tree.body[first:]
    module = types.ModuleType("sklearn_svm_suite")
    module.__file__ = str(path)
    _run(imports, path, module.__dict__)
    replaced = types.ModuleType("svm")
    replaced.__dict__.update({**vars(svm), **OURS})
    module.__dict__.update({name: cls for name, cls in OURS.items() if name in module.__dict__}, svm=replaced)
    _run(rest, path, module.__dict__)
    return module.__dict__


def _run(body, path, names):
    exec(compile(ast.Module(body=body, type_ignores=[]), str(path), "exec"), names)


SOURCE = source_file()
if SOURCE is not None:
    SUITE = load(SOURCE)
    globals().update({name: test for name, test in SUITE.items() if name.startswith("test_")})


def pytest_generate_tests(metafunc):
    """The fixture of scikit-learn's conftest, at its default."""
    if "global_random_seed" in metafunc.fixturenames:
        metafunc.parametrize("global_random_seed", [42])


@pytest.fixture(autouse=True)
def expect_listed_differences(request):
    name = request.node.name
    reason = DIFFERS.get(name, DIFFERS.get(name.partition("[")[0]))
    if reason:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.mark.skipif(SOURCE is None, reason="this scikit-learn comes without its tests")
class TestTheSubstitution:
    def test_every_name_is_ours(self):
        for name, cls in OURS.items():
            assert getattr(SUITE["svm"], name) is cls
            assert SUITE.get(name, cls) is cls
            assert getattr(svm, name) is not cls
        assert SUITE["svm"].LinearSVC is svm.LinearSVC

    def test_every_test_of_the_file_is_here(self, request):
        tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        expected = {name for name in defined if name.startswith("test_")}
        assert expected <= globals().keys()
        assert {name.partition("[")[0] for name in DIFFERS} <= expected
        everything = pytest.Module.from_parent(request.session, path=Path(__file__)).collect()
        found = [item for item in everything if item.name.partition("[")[0] in expected]
        version = ".".join(sklearn.__version__.split(".")[:2])
        assert len(found) == COUNTED.get(version, len(found))
        assert {name for name in DIFFERS if "[" in name} <= {item.name for item in found}

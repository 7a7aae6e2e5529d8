"""The coverage table of docs/autodiff.md is what the rules say; ``python <this file> --write`` makes it anew.

A function's kind is read off its code: whether it is a primitive or comes to one (a rule), is written in
covered functions alone (a composite), or sees plain values (a constant: its derivative is zero).
"""

import doctest
import pathlib
import re
import sys
import types

import numpy as np
import pytest
import scipy
import scipy.linalg
import scipy.special

import mercer.autodiff as ad
from mercer.autodiff.errors import NoRuleError
from mercer.autodiff.trace import CREATION, FUNCTIONS, METHODS, PROPERTIES, UFUNCS, Primitive

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "autodiff.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
DISPATCHED = type(np.sum)
#: Made of an argument's shape alone.
SHAPES_ONLY = {np.zeros_like, np.ones_like, np.empty_like}


def primitives_of(f, seen=None):
    """The primitives that a function of ours comes to, through functions of ours."""
    seen = set() if seen is None else seen
    if isinstance(f, Primitive):
        return {f}
    if not isinstance(f, types.FunctionType) or f in seen or not f.__module__.startswith("mercer.autodiff"):
        return set()
    seen.add(f)
    found = set()
    for cell in f.__closure__ or ():
        found |= primitives_of(cell.cell_contents, seen)
    names = names_in(f.__code__)
    for name in names:
        item = f.__globals__.get(name)
        found |= primitives_of(item, seen)
        if isinstance(item, types.ModuleType) and item.__name__.startswith("mercer.autodiff"):
            for inner in names - {name}:
                found |= primitives_of(vars(item).get(inner), seen)
    return found


def names_in(code):
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*(names_in(c) for c in inner))


def kind(function, rule):
    """(kind, forward, reverse, arguments without a rule) of a function: how each mode is had."""
    constant = "no_derivative" in getattr(rule, "__qualname__", "") or function in SHAPES_ONLY
    if constant:
        return "constant", "0", "0", ""
    found = primitives_of(rule)
    if not found:
        return "composite", "parts", "parts", ""
    forward = all(p.jvp is not None or p.partials is not None for p in found)
    reverse = all(p.vjp is not None or p.partials is not None for p in found)
    partials = rule.partials if isinstance(rule, Primitive) and rule.partials else ()
    without = [str(i) for i, p in enumerate(partials, 1) if "without_rule" in getattr(p, "__qualname__", "")]
    how = ("rule" if forward else "transpose", "rule" if reverse else "transpose")
    return "rule", *how, ", ".join(without)


def public_name(function):
    """A function's name as users write it, None for what is internal."""
    name = function.__name__
    if isinstance(function, np.ufunc):
        if getattr(np, name, None) is function:
            return f"np.{name}"
        return f"scipy.special.{name.removeprefix('_')}"  # zeta and lambertw call a ufunc of that name
    module = function.__module__
    if module.startswith("numpy"):
        return f"np{module.removeprefix('numpy')}.{name}"
    return None  # of scipy.special and of our own: reached through ad.scipy.special


def rows():
    """Name and `kind` of all functions that NumPy's dispatch reaches, and of ``ad.scipy``."""
    found = {public_name(f): kind(f, rule) for f, rule in [*FUNCTIONS.items(), *UFUNCS.items()]}
    for module in ("special", "linalg"):
        ours = getattr(ad.scipy, module)
        for name in ours.__all__:
            function = getattr(ours, name)
            found[f"ad.scipy.{module}.{name}"] = kind(function, function)
    found.pop(None, None)
    return [(name, *found[name]) for name in sorted(found, key=place)]


def place(name):
    home, _, own = name.rpartition(".")
    homes = ["np", "np.linalg", "np.fft", "np.lib.stride_tricks", "scipy.special", "ad.scipy.special"]
    return homes.index(home) if home in homes else len(homes), own


def uncovered():
    """What the libraries have and we have not, by where it stands."""
    found = {}
    for label, module in (("np", np), ("np.linalg", np.linalg), ("np.fft", np.fft)):
        names = [n for n in dir(module) if not n.startswith("_")]
        items = [(n, getattr(module, n)) for n in names]
        found[label] = [
            n
            for n, f in items
            if (type(f) is DISPATCHED and f not in FUNCTIONS and f not in CREATION)
            or (isinstance(f, np.ufunc) and f not in UFUNCS)
        ]
    covered = {name for name, *_ in rows()}
    special = {n: getattr(scipy.special, n) for n in scipy.special.__all__}
    found["scipy.special, ufuncs"] = [
        n for n, f in special.items() if isinstance(f, np.ufunc) and f not in UFUNCS
    ]
    linalg = [(n, getattr(scipy.linalg, n)) for n in scipy.linalg.__all__]
    found["scipy.linalg"] = [
        n for n, f in linalg if isinstance(f, types.FunctionType) and f"ad.scipy.linalg.{n}" not in covered
    ]
    return found


def versions():
    numbers = [".".join(m.__version__.split(".")[:2]) for m in (np, scipy)]
    return "NumPy {} and SciPy {}".format(*numbers)


def in_words(names):
    return ", ".join(f"`{n}`" for n in names) or "nothing"


def is_refused(method):
    """Whether all that a method or property does is to raise."""
    return "_refuse" in getattr(getattr(method, "__code__", None), "co_names", ())


def table():
    """The generated part of the page."""
    every = rows()
    counts = {k: sum(row[1] == k for row in every) for k in ("rule", "composite", "constant")}
    refused = sorted(name for name, f in [*METHODS.items(), *PROPERTIES.items()] if is_refused(f))
    methods = sorted(n for n in METHODS if n not in refused and not n.startswith("__"))
    properties = sorted(n for n in PROPERTIES if n not in refused)
    lines = [
        f"{len(every)} functions of {versions()}: {counts['rule']} by rules, "
        f"{counts['composite']} composites, {counts['constant']} constants.",
        "",
        "| function | kind | forward | reverse | not in argument |",
        "|---|---|---|---|---|",
        *(f"| `{name}` | {' | '.join(how)} |" for name, *how in every),
        "",
        "Methods of traced arrays, besides operators, indexing and assignment: "
        f"{in_words(methods)}; attributes {in_words(properties)}, and `shape`, `ndim`, `size`, "
        f"`dtype`. Refused, since their result could not be followed: {in_words(refused)}.",
        "",
        "With `like=x`, x traced, these make traced arrays: "
        f"{in_words(sorted(f.__name__ for f in CREATION))}.",
        "",
        "### Not covered",
        "",
        "On traced values they raise: `NoRuleError`, or `TraceError` where NumPy or SciPy do not dispatch.",
        "",
        *(f"- `{label}`: {in_words(names)}." for label, names in uncovered().items()),
    ]
    return "\n".join(lines) + "\n"


def parts():
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    written, after = rest.split(END)
    return before, written, after


needs_page = pytest.mark.skipif(not PAGE.exists(), reason="runs where the documentation is")


@needs_page
def test_the_page_says_what_is_covered():
    _, written, _ = parts()
    if versions() in written:
        assert written.splitlines() == table().splitlines(), "run python <this file> --write"
        return
    # Other versions have other functions: what the page and they both name must be the same.
    stated = re.findall(r"^\| `([\w.]+)` \| (\w+) \| (\w+) \| (\w+) \| ([\d, ]*) \|$", written, re.MULTILINE)
    assert len(stated) > 300
    here = {name: tuple(how) for name, *how in rows()}
    assert {name: tuple(how) for name, *how in stated if name in here} == {
        name: here[name] for name, *_ in stated if name in here
    }


@needs_page
def test_the_examples_of_the_page_run():
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=options)
    assert result.attempted > 10
    assert result.failed == 0


@needs_page
def test_the_messages_of_the_page_are_those_raised():
    section = PAGE.read_text(encoding="utf-8").split("## Errors")[1].split("## Memory")[0]
    stated = re.findall(r"^\| `([^`]*)` \|", section, re.MULTILINE)
    assert len(stated) > 8
    sources = "".join(
        path.read_text(encoding="utf-8") for path in pathlib.Path(ad.__file__).parent.rglob("*.py")
    )
    for part in (part for message in stated for part in re.split(r"\(\): | ?… ?", message) if part):
        assert part in sources, f"no error says {part!r}"


def test_what_was_asked_for_is_covered():
    named = """
        matmul dot vdot inner outer tensordot einsum kron cross sum prod cumsum cumprod mean var std ptp max
        min sort argsort partition median quantile logaddexp reshape transpose moveaxis swapaxes concatenate
        stack split pad tile repeat roll flip squeeze broadcast_to take take_along_axis where choose select
        clip diag tril trace diff gradient convolve interp meshgrid linalg.norm linalg.solve linalg.inv
        linalg.det linalg.slogdet linalg.cholesky linalg.qr linalg.eigh linalg.eigvalsh linalg.eig linalg.svd
        linalg.pinv linalg.lstsq linalg.matrix_power linalg.multi_dot fft.fft fft.ifft
        fft.rfft fft.irfft fft.fft2 fft.fftn
    """
    special = "erf gamma gammaln digamma expit log_ndtr xlogy jv iv kv".split()
    wrapped = """
        special.logsumexp special.softmax linalg.expm linalg.solve_triangular linalg.cho_solve linalg.sqrtm
    """
    wanted = {f"np.{n}" for n in named.split()} | {f"ad.scipy.{n}" for n in wrapped.split()}
    wanted |= {public_name(getattr(scipy.special, n)) for n in special}
    covered = {name for name, *_ in rows()}
    assert wanted <= covered


def test_kinds_are_read_off_the_code():
    found = {name: how for name, *how in rows()}
    assert found["np.sin"] == found["np.linalg.inv"] == found["np.sum"] == ["rule", "rule", "rule", ""]
    assert found["scipy.special.jv"] == ["rule", "rule", "rule", "1"]
    assert found["ad.scipy.special.softmax"] == ["rule", "rule", "rule", ""]
    assert found["np.trapezoid"] == ["composite", "parts", "parts", ""]
    assert found["np.argsort"] == found["np.floor"] == found["np.equal"] == ["constant", "0", "0", ""]


CONSTANTS = [name for name, how, *_ in rows() if how == "constant" and name.count(".") == 1]


@pytest.mark.parametrize("name", [n for n in CONSTANTS if isinstance(getattr(np, n[3:]), np.ufunc)])
def test_what_is_said_to_be_constant_has_no_derivative(name):
    function = getattr(np, name[3:])
    x = np.array([0.25, 1.75])
    if not any(types_.split("->")[0] == "d" * function.nin for types_ in function.types):
        return  # of whole numbers, which are not followed
    with np.errstate(all="ignore"):
        value, tangent = ad.jvp(lambda x: 1.0 * function(*[x] * function.nin), (x,), (np.ones(2),))
    np.testing.assert_array_equal(value, 1.0 * function(*[x] * function.nin))
    np.testing.assert_array_equal(tangent, 0.0)


def test_what_is_said_to_be_missing_raises():
    for function, args in ((np.polydiv, 2), (np.histogramdd, 1), (scipy.special.bdtrik, 3)):
        with pytest.raises(NoRuleError, match="no derivative rule"):
            ad.grad(lambda x, f=function, n=args: np.sum(f(*[x] * n)))(np.ones(3))


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("--write makes the table of docs/autodiff.md anew; pytest compares it")
    head, _, tail = parts()
    PAGE.write_text(head + BEGIN + table() + END + tail, encoding="utf-8")

"""A function's operations as nodes with formulas, values, tangents and adjoints."""

import inspect

import numpy as np

from mercer.autodiff.derivative import check_numbers
from mercer.autodiff.trace import Like, Tape, Traced, backward, plain
from mercer.autodiff.trees import flatten, leaf

NAME = "ComputationalGraphDisplay"
OPERATORS = {
    "add": r"{} + {}",
    "subtract": r"{} - {}",
    "multiply": r"{} \cdot {}",
    "divide": r"{} / {}",
    "power": r"{}^{{{}}}",
    "negative": r"-{}",
    "matmul": r"{} \, @ \, {}",
}
#: Arrays of up to this many entries are written out.
WRITTEN = 3


class Node:
    """An operation or an input.

    Attributes
    ----------
    label : str
        A formula, ``s_3 = sin s_2``, for matplotlib's mathtext.
    width : int
        The formula's length in characters.
    parents : list of int
        Indices of the nodes whose outputs it takes.
    value, derivative : str
        What is written below the formula; empty for what is not known.
    """

    def __init__(self, label, width, parents, value, derivative):
        self.label, self.width, self.parents = label, width, parents
        self.value, self.derivative = value, derivative

    def characters(self):
        """Return the length of its longest line."""
        return max(self.width, len(self.value), len(self.derivative) - 2)  # without the formula's dollars

    def lines(self):
        """Return how many lines are written into its box."""
        return 1 + bool(self.value) + bool(self.derivative)


class Graph:
    """A function on a tape, its values, and where they go.

    Attributes
    ----------
    inputs : dict of int to str
        The slots of the arguments, and their names.
    records : list of tuple
        Those that the value depends on.
    """

    def __init__(self, f, args, max_nodes):
        self.tape = Tape()
        self.args = [leaf(x, f"{NAME}: argument {i}") for i, x in enumerate(args)]
        if not self.args:
            raise ValueError(f"{NAME}: there are no arguments; give the point at which f is evaluated")
        variables = [self.tape.variable(x) for x in self.args]
        self.inputs = dict(zip([v.slot for v in variables], _names(f, len(args)), strict=True))
        try:
            out = flatten(f(*variables))[0]
        finally:
            self.tape.open = False
        check_numbers([plain(o) for o in out], NAME)
        self.out = [o for o in out if isinstance(o, Traced) and o.level is self.tape]
        if not self.out:
            raise ValueError(f"{NAME}: the value does not depend on the arguments; there is no graph")
        self.complete = len(self.out) == len(out)
        self.records = self._used(self.tape.records)
        count = len(self.records) + len(self.inputs)
        if count > max_nodes:
            raise ValueError(
                f"{NAME}: the graph has {count} nodes, more than max_nodes={max_nodes}; draw a part of the "
                "function, or one operation on arrays in place of many on numbers"
            )

    def _used(self, records):
        wanted = {o.slot for o in self.out}
        used = []
        for record in reversed(records):
            _, _, _, parents, _, slot, count = record
            if not wanted.isdisjoint(range(slot, slot + max(count, 1))):
                wanted.update(p for p in parents if p >= 0)
                used.append(record)
        return used[::-1]

    def values(self):
        """Return the value of each slot that is known: it was returned, or kept for some derivative."""
        values = dict(zip(self.inputs, self.args, strict=True)) | {o.slot: plain(o) for o in self.out}
        for _, args, _, parents, answer, slot, count in self.records:
            answers = answer if count else (answer,)
            kept = [*zip(parents, args, strict=False), *enumerate(answers, slot)]
            for at, x in kept:
                if at >= 0 and at not in values and x is not None:
                    values[at] = x
                elif at >= 0 and isinstance(values.get(at), Like) and x is not None:
                    values[at] = x
        return values

    def adjoints(self):
        """Return ∂f/∂s of each slot by the reverse sweep (LINMA 1.5)."""
        if len(self.out) != 1 or not self.complete or self.out[0].size != 1:
            shapes = ", ".join(str(o.shape) for o in self.out)
            raise ValueError(
                f"{NAME}: adjoints belong to a value of one number, this one has the shape {shapes}; return "
                'a number, or take derivatives="tangents"'
            )
        held = {self.out[0].slot: np.ones_like(plain(self.out[0]))[()]}
        for primitive, args, kwargs, parents, answer, slot, count in reversed(self.records):
            g = tuple(held.get(slot + i) for i in range(count)) if count else held.get(slot)
            if g is None or (count and all(part is None for part in g)):
                continue
            needed = [p >= 0 for p in parents]
            with np.errstate(all="ignore"):
                pulled = primitive.pull(g, answer, args, kwargs or {}, needed, None)
            for at, part in zip(parents, pulled, strict=False):
                if at >= 0 and part is not None:
                    held[at] = held[at] + part if at in held else part
        return held

    def tangents(self, given):
        """Return the tangent of each slot, J v, by the rows of its Jacobian."""
        v = self._direction(given)
        slots = list(self.inputs)
        found = dict(zip(slots, v, strict=True))
        values = self.values()
        for _, _, _, _, answer, slot, count in self.records:
            for at in range(slot, slot + max(count, 1)):
                like = values.get(at, answer)
                size = int(np.prod(np.shape(like))) if like is not None else 0
                if like is None or not 0 < size <= WRITTEN or like.dtype.kind not in "fc":
                    continue
                units = np.eye(size, dtype=like.dtype).reshape(size, *np.shape(like))
                rows = backward(self.tape, [(at, units)], slots, size)
                total = sum(
                    np.reshape(np.conj(r), (size, -1)) @ np.ravel(d)
                    for r, d in zip(rows, v, strict=True)
                    if r is not None
                )
                found[at] = np.reshape(total + np.zeros(size), np.shape(like))
        return found

    def _direction(self, given):
        if given is None:
            return [np.ones_like(x) if i == 0 else np.zeros_like(x) for i, x in enumerate(self.args)]
        given = [np.asarray(t) for t in given]
        if [t.shape for t in given] != [np.shape(x) for x in self.args]:
            raise ValueError(
                f"{NAME}: tangents have the shapes {[t.shape for t in given]}, the arguments "
                f"{[np.shape(x) for x in self.args]}; make them equal"
            )
        return given

    def nodes(self, derivatives, letter):
        """Return the nodes, and the indices of those that are the value."""
        values, nodes, at = self.values(), [], {}
        names = {}

        def add(formula, width, parents, slots):
            index = len(nodes)
            for k, slot in enumerate(slots):
                at[slot] = index
                names[slot] = f"s_{{{index}}}" if len(slots) == 1 else f"s_{{{index},{k}}}"
            value = ", ".join(_written(values.get(s)) for s in slots)
            d = ", ".join(filter(None, (_written(derivatives.get(s), shapes=False) for s in slots)))
            nodes.append(
                Node(
                    f"s_{{{index}}} = {formula}", width + 5, parents, value, f"${letter}$ = {d}" if d else ""
                )
            )

        for slot, name in self.inputs.items():
            add(_upright(name), len(name), [], [slot])
        for primitive, args, kwargs, parents, _, slot, count in self.records:
            for p in parents:
                if p >= 0 and p not in at:  # what np.zeros_like made, to be assigned into
                    add(_upright("new array"), 9, [], [p])
            formula, width = _formula(primitive, args, kwargs or {}, parents, names, values, slot)
            add(formula, width, [at[p] for p in parents if p >= 0], range(slot, slot + max(count, 1)))
        return nodes, [at[o.slot] for o in self.out]


def _names(f, count):
    """Return the names of f's positional parameters."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in kinds]
    return [names[i] if i < len(names) else f"x{i}" for i in range(count)]


def _formula(primitive, args, kwargs, parents, names, values, slot):
    """Return an operation as a formula for mathtext, and its length in characters."""
    operands, width, name = [], 0, primitive.name
    elementwise = name in OPERATORS or primitive.partials is not None
    for i, (arg, parent) in enumerate(zip(args, parents, strict=False)):
        if parent >= 0:
            operands.append(names[parent])
            width += 2
            continue
        if len(args) == 2 and name in ("add", "subtract"):
            arg = _lost(name, i, values.get(parents[1 - i]), values.get(slot))
        if elementwise:
            operands.append(_constant(arg))
            width += len(operands[-1])
    if name.startswith("x[index]"):
        index = _index(kwargs["index"] if "index" in kwargs else args[-1])
        change = rf" \leftarrow {operands[1]}" if len(operands) > 1 and "=" in name else ""
        return f"{operands[0]}[{_upright(index)}]{change}", 4 + len(index) + 4 * bool(change)
    if name in OPERATORS and len(operands) == OPERATORS[name].count("{}"):
        return OPERATORS[name].format(*operands), width + 2
    short = name.rpartition(".")[2]
    return rf"{_upright(short)}({', '.join(operands[:3])})", width + len(short) + 1


def _lost(name, i, other, answer):
    """Return the constant operand of a sum, which the tape has no need to keep."""
    known = [x for x in (other, answer) if x is not None and not isinstance(x, Like)]
    if len(known) < 2:
        return None
    with np.errstate(all="ignore"):
        c = answer - other if name == "add" else (other - answer if i == 1 else answer + other)
    c = np.asarray(c)
    return c.flat[0] if c.size and np.allclose(c, c.flat[0], rtol=1e-9) else None


def _constant(x):
    if x is None or isinstance(x, Like) or np.size(x) != 1 or isinstance(x, tuple | list | str):
        return "c"
    return _number(np.reshape(x, ())[()])


def _index(index):
    parts = index if isinstance(index, tuple) else (index,)
    texts = []
    for part in parts:
        if isinstance(part, slice):
            ends = ["" if e is None else str(e) for e in (part.start, part.stop, part.step)]
            texts.append(":".join(ends[:2] if part.step is None else ends))
        else:
            simple = isinstance(part, int | np.integer)
            texts.append(str(part) if simple else "..." if part is Ellipsis else "i")
    return ", ".join(texts)


def _upright(text):
    escaped = "".join("\\" + c if c in "_#%&${}^" else c for c in text).replace(" ", r"\ ")
    return rf"\mathrm{{{escaped}}}"


def _number(x):
    return f"{x:.4g}".replace("-", "\N{MINUS SIGN}")


def _written(x, shapes=True):
    """Return an array of few entries in full, a larger one's shape."""
    if x is None:
        return ""
    if isinstance(x, Like) or np.size(x) > WRITTEN or np.size(x) == 0:
        return f"shape {tuple(np.shape(x))}".replace(",)", ")") if shapes else ""
    return _entries(np.asarray(x))


def _entries(x):
    return _number(x[()]) if x.ndim == 0 else f"[{', '.join(_entries(row) for row in x)}]"

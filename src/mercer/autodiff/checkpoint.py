"""Recomputing instead of remembering: reverse mode in less memory.

Reverse mode keeps every intermediate value until its sweep. :func:`checkpoint` keeps the arguments of a
function only, and runs it once more when the sweep arrives. :func:`scan_checkpointed` does so for a loop,
from a fixed number of kept states, in the order that needs the fewest evaluations (Griewank and Walther).
"""

import functools
from math import comb

import numpy as np

from mercer.autodiff.derivative import Linearised, push, zero_of
from mercer.autodiff.extend import Call, chunk_of, levels_of, traced_jvp, traced_vjp
from mercer.autodiff.trace import Tape, Traced, np_like
from mercer.autodiff.trees import flatten, unflatten

__all__ = ["checkpoint", "scan_checkpointed"]


def checkpoint(f):
    """Return f, of which reverse mode keeps the arguments only and computes the rest again.

    Parameters
    ----------
    f : callable
        Arrays or trees to an array or a tree. It must return the same when it is called again, and must not
        use traced values that are not among its arguments.

    Returns
    -------
    callable
        Called like `f`; forward mode passes through. Calls may be nested.

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> block = ad.checkpoint(lambda x: np.sin(np.exp(x)))
    >>> ad.grad(lambda x: np.sum(block(x)))(np.zeros(2))
    array([0.54030231, 0.54030231])
    """
    name = f"checkpoint of {getattr(f, '__name__', repr(f))}"

    @functools.wraps(f, updated=())
    def checkpointed(*args, **kwargs):
        call, traced = Call.of(f, name, args, kwargs)
        if not any(on_tape(x) for x in traced):
            return f(*args, **kwargs)
        jvp, vjp = (functools.partial(_again, rule, call) for rule in (traced_jvp, _traced_vjp))
        return call.apply(traced, jvp, vjp, batched=True)

    return checkpointed


def on_tape(x):
    """Whether a reverse mode, at any level, will come back to a value."""
    return any(isinstance(level, Tape) for level in levels_of(x))


def _traced_vjp(call, cotangent, ans, *values):
    return traced_vjp(call, cotangent, ans, None, *values)


def _again(rule, call, directions, ans, *rest):
    """Apply a tracing rule; on the tape of an outer derivative, as one operation that recomputes too."""
    values = rest[-len(call.where) :]  # a pullback has an argument more, `needed`
    several = isinstance(directions, tuple | list)
    flat = list(directions) if several else [directions]
    if not any(on_tape(x) for x in (*values, *flat)):
        return rule(call, directions, ans, *values)
    # What is recomputed must hold no traced values: the tape that it is on would hold itself.
    present, count = [i for i, t in enumerate(flat) if t is not None], len(flat)
    like = tuple(Like(a) for a in ans) if isinstance(ans, tuple) else Like(ans)

    def through(values, some):
        every = [None] * count
        for i, t in zip(present, some, strict=True):
            every[i] = t
        return rule(call, every if several else every[0], like, *values)

    return checkpoint(through)(list(values), [flat[i] for i in present])


class Like:
    """The shape of an array, without its entries."""

    __slots__ = ("ndim", "shape")

    def __init__(self, x):
        self.shape, self.ndim = np.shape(x), np.ndim(x)


# -- loops -----------------------------------------------------------------------------------------------


def scan_checkpointed(step, carry, xs=None, length=None, slots=None, args=()):
    """Run a loop whose reverse sweep needs the memory of a few states, by binomial checkpointing.

    With s slots, and r the least number with C(s+r, s) ≥ n, the sweep over n steps runs t = r n − C(s+r, s+1)
    steps again, which is the fewest possible, and each step once more on a tape of its own. The default takes
    the least s for which r is 2: some √(2n) states, and each step is run again twice at most.

    Parameters
    ----------
    step : callable
        ``step(carry, x, *args)``, or ``step(carry, *args)`` if there are no `xs`. Returns the next carry, or
        (next carry, y). It must return the same when it is called again, and must not use traced values
        that are not among its arguments. It may write into its carry, but into nothing else.
    carry : array, number or tree
        The state before the first step; its structure must stay the same, shapes may change.
    xs : array or tree of arrays, optional
        What each step takes one row of, along the first axis.
    length : int, optional
        The number of steps, needed if there are no `xs`.
    slots : int, optional
        How many states are kept at once, `carry` among them.
    args : tuple, default=()
        Further arguments of each step, differentiated too.

    Returns
    -------
    carry : as `carry`, after the last step
    ys : the y of all steps stacked along a new first axis; None if the step returns none, or for no steps

    Notes
    -----
    Forward mode passes through. Reverse over forward mode has the same memory; reverse over reverse mode
    keeps the tape of the inner sweep.

    References
    ----------
    Griewank and Walther, "Algorithm 799: revolve", ACM TOMS 26 (2000).

    Examples
    --------
    >>> import numpy as np, mercer.autodiff as ad
    >>> def end(x):
    ...     return ad.scan_checkpointed(lambda x: x + 0.001 * np.sin(x), x, length=1000)[0]
    >>> ad.grad(end)(1.0)
    np.float64(1.1017...)
    """
    n = _length(xs, length)
    slots = default_slots(n) if slots is None else slots
    if not isinstance(slots, int | np.integer) or slots < 1:
        raise ValueError(f"ad.scan_checkpointed: slots must be a whole number of at least 1, got {slots!r}")
    if n == 0:
        return carry, None
    args = args if isinstance(args, tuple) else (args,)
    return _scan(Step(step, carry, xs is not None), carry, xs, n, slots, args)


def _scan(step, carry, xs, n, slots, args):
    loop = Loop(step, n, slots)
    call, traced = Call.of(loop.run, "ad.scan_checkpointed", (carry, xs, args), {})
    if not any(on_tape(x) for x in traced):
        return run(step, carry, xs, n, args)
    return call.apply(
        traced, functools.partial(loop.push, call), functools.partial(loop.pull, call), batched=True
    )


def _length(xs, length):
    lengths = {np.shape(x)[0] if np.shape(x) else None for x in flatten(xs)[0]}
    if length is not None:
        lengths.add(length)
    if len(lengths) != 1 or None in lengths:
        raise ValueError(
            "ad.scan_checkpointed: xs must hold arrays of one length (and length, if given, be the same), "
            f"got lengths {sorted(lengths, key=str)}"
        )
    return lengths.pop()


class Step:
    """A user's step, called ``step(carry, x, args)`` and returning (carry, y) always."""

    def __init__(self, step, carry, takes_x):
        self.step, self.takes_x, self.with_y = step, takes_x, None
        self.structure = flatten(carry)[1]

    def __call__(self, carry, x, args):
        result = self.step(carry, x, *args) if self.takes_x else self.step(carry, *args)
        if self.with_y is None:
            self.with_y = self._has_y(result)
        return result if self.with_y else (result, None)

    def _has_y(self, result):
        found = flatten(result)[1]
        if found == self.structure:
            return False
        if isinstance(result, tuple) and len(result) == 2 and flatten(result[0])[1] == self.structure:
            return True
        shown = "one array" if self.structure is None else self.structure
        raise ValueError(
            f"ad.scan_checkpointed: the step must return a carry of the structure it got ({shown}), "
            f"or (carry, y); it returned {'one array' if found is None else found}"
        )


def run(step, carry, xs, n, args, keep=()):
    """Run a loop; return the carry, the stacked ys, and with `keep` the states before those steps."""
    rows, kept, ys = Rows(xs), {}, []
    for k in range(n):
        if k in keep:
            kept[k] = carry
            carry = copied(carry)
        carry, y = step(carry, rows[k], args)
        ys.append(y)
    ys = stacked(ys)
    return (carry, ys, kept) if keep else (carry, ys)


def stacked(trees):
    """Return a tree of arrays from a list of trees of their rows."""
    if trees[0] is None:
        return None
    leaves, structures = zip(*(flatten(t) for t in trees), strict=True)
    if any(s != structures[0] for s in structures):
        raise ValueError("ad.scan_checkpointed: the step returned y of different structures")
    return unflatten(structures[0], [joined(list(column)) for column in zip(*leaves, strict=True)])


def joined(rows):
    """Stack rows, which is faster where none is traced."""
    return np.stack(rows) if any(isinstance(x, Traced) for x in rows) else np.array(rows)


class Rows:
    """The rows of a tree of arrays."""

    def __init__(self, tree):
        self.leaves, self.structure = flatten(tree)

    def __getitem__(self, k):
        return unflatten(self.structure, [x[k] for x in self.leaves])


def copied(tree):
    """Return a tree that may be written into."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [np.copy(x) if np.ndim(x) else x for x in leaves])


def read_only(tree):
    """Return a tree of arrays that raise when written into: they will be needed again as they are."""
    leaves, structure = flatten(tree)
    leaves = [x.view() if isinstance(x, np.ndarray) else x for x in leaves]
    for x in leaves:
        if isinstance(x, np.ndarray):
            x.flags.writeable = False
    return unflatten(structure, leaves)


class Loop:
    """A loop as one operation. Between its run and the first sweep it keeps states, plain ones only."""

    def __init__(self, step, n, slots):
        self.step, self.n, self.slots, self.kept = step, n, slots, None

    def run(self, carry, xs, args):
        """Compute the value."""
        keep = {*first_kept(self.n, self.slots), self.n - 1}
        carry, ys, kept = run(self.step, carry, read_only(xs), self.n, read_only(args), keep)
        self.n_carry, self.kept = len(flatten(carry)[0]), kept
        return carry, ys

    def push(self, call, tangents, ans, *values):
        """Push tangents through the loop: a loop of dual numbers, checkpointed in its turn."""
        chunk = chunk_of(tangents, values)
        lead = () if chunk is None else (chunk,)
        (carry, xs, args), _ = call.arguments(values)
        n_carry, n_xs = len(flatten(carry)[0]), len(flatten(xs)[0])
        given = {i: t for i, t in zip(call.where, tangents, strict=True) if t is not None}
        d_carry = [given[i] if i in given else _zero(x, lead) for i, x in enumerate(flatten(carry)[0])]
        x_at = [i - n_carry for i in given if n_carry <= i < n_carry + n_xs]
        a_at = [i - n_carry - n_xs for i in given if i >= n_carry + n_xs]
        d_xs = [given[n_carry + i] for i in x_at]
        d_args = [given[n_carry + n_xs + i] for i in a_at]
        if lead:
            d_xs = [np.moveaxis(t, 1, 0) for t in d_xs]
        dual = DualStep(self.step, x_at, a_at, chunk)
        (_, d_carry), ys = _scan(dual, (carry, d_carry), (xs, d_xs), self.n, self.slots, (args, d_args))
        d_ys = [] if ys is None else [np.moveaxis(t, 0, 1) if lead else t for t in ys[1]]
        return tuple(
            t if np_like(a).dtype.kind in "fc" else None for t, a in zip([*d_carry, *d_ys], ans, strict=True)
        )

    def pull(self, call, cotangent, ans, needed, *values):
        """Pull cotangents back through the loop."""
        return _again(self._pull, call, cotangent, ans, *values)

    def _pull(self, call, cotangent, ans, *values):
        kept, self.kept = self.kept, None
        if any(isinstance(x, Traced) for x in values):
            kept = None  # the states depend on what an outer derivative varies
        return Sweep(self, call, values, cotangent, chunk_of(cotangent, ans)).run(kept)


def _zero(x, lead=()):
    """Return the zero tangent of a value, or of each of a chunk."""
    zero = zero_of(x)
    return np.zeros(lead + np.shape(zero), zero.dtype)[()]


class DualStep:
    """A step of dual numbers: the carry is (carry, its tangents), and so are x, args and y."""

    def __init__(self, step, x_at, a_at, chunk):
        self.step, self.x_at, self.a_at, self.chunk = step, x_at, a_at, chunk
        self.lead = () if chunk is None else (chunk,)

    def __call__(self, carry, x, args):
        (carry, d_carry), (x, d_x), (args, d_args) = carry, x, args
        taken = Taken(self.step, carry, x, args, self.x_at, self.a_at)
        d_carry = [d_carry[i] for i in taken.c_at]
        values, tangents, structure, _ = push(
            taken, taken.variables, None, [*d_carry, *d_x, *d_args], self.chunk
        )
        tangents = [_zero(v, self.lead) if t is None else t for v, t in zip(values, tangents, strict=True)]
        carry, y = unflatten(structure, values)
        n_carry = len(flatten(carry)[0])
        return (carry, tangents[:n_carry]), None if y is None else (y, tangents[n_carry:])


class Taken:
    """One step as a function of what varies in it: floating leaves of the carry, and some of x and args.

    Attributes
    ----------
    variables : list of arrays
    c_at : list of int
        Which leaves of the carry are among them.
    """

    def __init__(self, step, carry, x, args, x_at, a_at):
        self.step, self.trees = step, [flatten(t) for t in (carry, x, args)]
        self.c_at = [i for i, c in enumerate(self.trees[0][0]) if np_like(c).dtype.kind in "fc"]
        self.at = self.c_at, x_at, a_at
        self.variables = [leaves[i] for (leaves, _), at in zip(self.trees, self.at, strict=True) for i in at]

    def __call__(self, *variables):
        variables, trees = iter(variables), []
        for (leaves, structure), at in zip(self.trees, self.at, strict=True):
            leaves = list(leaves)
            for i in at:
                leaves[i] = next(variables)
            trees.append(unflatten(structure, leaves))
        return self.step(*trees)


class Sweep:
    """The reverse sweep over a loop."""

    def __init__(self, loop, call, values, cotangent, chunk):
        self.step, self.n, self.slots, self.where = loop.step, loop.n, loop.slots, call.where
        (self.carry, xs, args), _ = call.arguments(values)
        self.rows, self.args = Rows(read_only(xs)), read_only(args)
        n_carry, n_xs = len(flatten(self.carry)[0]), len(self.rows.leaves)
        self.x_at = [i - n_carry for i in self.where if n_carry <= i < n_carry + n_xs]
        self.a_at = [i - n_carry - n_xs for i in self.where if i >= n_carry + n_xs]
        self.c_at = [i for i in self.where if i < n_carry]
        self.g_carry, self.g_ys = list(cotangent[: loop.n_carry]), cotangent[loop.n_carry :]
        self.g_xs = [[None] * self.n for _ in self.x_at]
        self.g_args = [None] * len(self.a_at)
        self.chunk = chunk

    def run(self, kept=None):
        """Return the cotangents of the loop's traced arguments, from the states that are still kept."""
        kept = {0: self.carry} if kept is None else kept
        for reverse, start, k in revolve(self.n, self.slots):
            if not reverse:
                if k not in kept:
                    kept[k] = self.advanced(kept[start], start, k)
            else:
                self.back(k, kept.pop(k) if k in kept else self.advanced(kept[start], start, k))
        g_xs = [self.stacked(g, self.rows.leaves[i]) for g, i in zip(self.g_xs, self.x_at, strict=True)]
        return [*(self.g_carry[i] for i in self.c_at), *g_xs, *self.g_args]

    def advanced(self, carry, start, stop):
        carry = copied(carry)
        for k in range(start, stop):
            carry, _ = self.step(carry, self.rows[k], self.args)
        return carry

    def back(self, k, carry):
        """Pull the cotangents back through step k."""
        taken = Taken(self.step, carry, self.rows[k], self.args, self.x_at, self.a_at)
        at = Linearised(taken, taken.variables, None)
        row = k if self.chunk is None else (slice(None), k)
        found = iter(
            at.sweep([*self.g_carry, *(None if g is None else g[row] for g in self.g_ys)], self.chunk)
        )
        self.g_carry = [None] * len(taken.trees[0][0])
        for i in taken.c_at:
            self.g_carry[i] = next(found)
        for column in self.g_xs:
            column[k] = next(found)
        for i, total in enumerate(self.g_args):
            part = next(found)
            self.g_args[i] = part if total is None else total if part is None else total + part

    def stacked(self, rows, x):
        """Return the cotangent of an array from those of its rows."""
        lead = () if self.chunk is None else (self.chunk,)
        if all(g is None for g in rows):
            return None
        zero = np.zeros(lead + np.shape(x)[1:], np_like(x).dtype)
        g = joined([zero if g is None else g for g in rows])
        return np.moveaxis(g, 0, 1) if lead else g


# -- which states to keep --------------------------------------------------------------------------------


def default_slots(n):
    """Return the least number of slots with which no step is run again more than twice."""
    s = 1
    while comb(s + 2, 2) < n:
        s += 1
    return s


def repetitions(n, slots):
    """Return the least r with C(slots + r, slots) ≥ n: how often a step is run again at most."""
    r = 0
    while comb(slots + r, slots) < n:
        r += 1
    return r


def n_advances(n, slots):
    """Return the fewest steps that have to be run again in a sweep over n: Griewank and Walther's t(n, s)."""
    r = repetitions(n, slots)
    return r * n - comb(slots + r, slots + 1)


def _split(n, slots):
    """Return how far from its start the next state is kept, in a part of n ≥ 2 steps with those slots."""
    r = repetitions(n, slots)
    nearest = comb(slots + r - 2, slots) if r > 1 else 1
    return max(nearest, n - comb(slots - 1 + r, slots - 1))


def first_kept(n, slots):
    """Return which states are kept on the way to the last step."""
    start, kept = 0, [0]
    while n > 1 and slots > 1:
        m = _split(n, slots)
        start, n, slots = start + m, n - m, slots - 1
        kept.append(start)
    return kept


def revolve(n, slots):
    """Yield what a sweep does, in order.

    (False, a, b) means: run from the kept state a, and keep state b; (True, a, b): run from a, and reverse
    step b, after which state b is needed no more.
    """
    parts = [(0, n, slots)]
    while parts:
        start, n, slots = parts.pop()
        if n == 1 or slots == 1:
            for k in range(start + n - 1, start - 1, -1):
                yield True, start, k
        else:
            m = _split(n, slots)
            yield False, start, start + m
            parts += [(start, m, slots), (start + m, n - m, slots - 1)]

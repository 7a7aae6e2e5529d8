"""The fast way through a grid for `SVC`: one kernel matrix for all folds and all C of a kernel.

Place on the way: ``estimators`` → ``_chains`` → **_machine_path** → ``path``.
"""

import threading
import time
import warnings
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import _safe_split

from .._memory import available_memory
from .._native import matrix_entries
from .._threads import one_blas_thread
from ..estimators._base import same_parameters
from ..estimators._expansion import decisions_of, votes_of
from ..estimators._machines import coefficients_by_class
from ..estimators._one_against_one import votes_and_sums
from ..estimators._svm import in_range
from ..estimators.svm import SVC
from ..kernels.prepared import n_rows, take_rows
from ..kernels.shared_leaf import SharedLeaves
from ..solvers.dual_layout import STATUS
from ._chains import Chain, Gram, Pairs
from ._results import Outcome
from ._scores import decided, first_of_equal, known_from_decisions, weights_of
from ._work import left_to_fits, run_tasks

__all__ = ["ChainTask", "MachinePath", "go_by_machines"]

# Rows whose kernel values with all samples are multiplied at a time.
_CHUNK = 256
# Matrices that may be there at a time, at least; bytes of an entry in both dtypes; and the part of the free
# memory that they may take.
_TOGETHER, _ENTRY, _SHARE = 2, 12.0, 0.5
# Bytes of decisions for which nobody asks how much memory is free.
_DECISIONS = 2**26
# Pairs of at least so many classes, of up to so many samples each on average, are solved together.
_MANY, _SMALL = 8, 64
_CONVERGED = STATUS.index("converged")


@dataclass
class ChainTask:
    """All C of one machine on one fold.

    Attributes
    ----------
    gram : Gram
    fold : int
    machine : SVC
        Of the parameters, but for C.
    weights : ndarray of shape (n,)
        By sample in class order.
    cells : dict
        C to the list of cells that have it.
    """

    gram: Gram
    fold: int
    machine: SVC
    weights: np.ndarray
    cells: dict = field(default_factory=dict)


class MachinePath:
    """What all machines of a grid share: samples by class, folds, and the kernel matrices.

    Parameters
    ----------
    X : ndarray, csr_array or sequence
        Samples as the machine's check returns them.
    y : ndarray of shape (n,)
    weights : ndarray of shape (n,) or None
    splits : list of (train, test)
    with_train : bool
        Whether decisions of the training rows are wanted, too.
    labels_only : bool
        Whether decisions are for labels alone, which do not depend on all of them.
    n_threads : int
    """

    def __init__(self, X, y, weights, splits, *, with_train, labels_only, n_threads):
        self.X, self.y, self.sample_weight, self.splits = X, y, weights, splits
        self.with_train, self.labels_only, self.n_threads = with_train, labels_only, n_threads
        # labels do not depend on the last digits of decisions
        self.first = None if labels_only else first_of_equal(X)
        self.classes, self.codes = np.unique(y, return_inverse=True)
        # samples of a class that are held out together are adjacent: the solver passes over them
        order = np.argsort(_held_out_by(splits, len(y)), kind="stable")
        self.groups = [order[self.codes[order] == c] for c in range(len(self.classes))]
        self.order = np.concatenate(self.groups)
        self.place = np.empty(len(self.order), int)
        self.place[self.order] = np.arange(len(self.order))
        self.pairs = Pairs([len(group) for group in self.groups]) if len(self.groups) > 1 else None
        fitting = int(_SHARE * available_memory() / (_ENTRY * len(y) ** 2))
        self._fits = fitting >= _TOGETHER or len(y) <= 2000
        self._leaves = SharedLeaves() if fitting > _TOGETHER else None
        self._grams, self._room = {}, threading.Semaphore(max(_TOGETHER, fitting - 1))

    # ---------------------------------------------------------------- what can go this way

    @staticmethod
    def takes(estimator):
        """Whether an estimator's parameters are of the kind that this way is for."""
        return (
            type(estimator) is SVC
            and not estimator.probability
            and estimator.max_iter == -1
            and isinstance(estimator.multiclass, str)
            and estimator.multiclass == "ovo"
        )

    def fits_memory(self):
        """Whether the matrices that are there together leave memory for others."""
        return self._fits

    def task(self, machine, fold):
        """The task of a machine on a fold, or None if only a fit by itself knows what to make of it."""
        train = self.splits[fold][0]
        codes, k = self.codes[train], len(self.classes)
        taken = np.zeros(len(self.codes), bool)
        taken[train] = True
        if self.pairs is None or np.count_nonzero(taken) < len(train):
            return None
        if (np.bincount(codes, minlength=k) == 0).any():
            return None
        try:
            given = None if self.sample_weight is None else self.sample_weight[train]
            weights = machine._weights(given, len(train))
            class_weight, weights = machine._class_weights(self.classes, codes, weights)
            own = class_weight[codes] * (1.0 if weights is None else np.maximum(weights, 0.0))
            if (np.bincount(codes, own, minlength=k) <= 0).any():
                return None
            gram = self._gram(machine, train, codes, weights)
        except (TypeError, ValueError):
            return None  # the fit by itself says why
        gram.users += 1
        placed = np.zeros(len(self.order))
        placed[self.place[train]] = own
        return ChainTask(gram, fold, machine, placed)

    def _gram(self, machine, train, codes, weights):
        X, known = self.X, ()
        if machine._gamma_is_scale() and isinstance(machine.kernel, str) and machine.kernel != "precomputed":
            X = take_rows(X, train)
            rows = machine._canonical(X, codes, len(self.classes), weights)
            known = rows.weights, rows.rows
        kernel = machine._kernel_for(X, *known)
        key = kernel, machine.tol
        if key not in self._grams:
            self._grams[key] = Gram(
                kernel, self.X, self.groups, machine.tol, room=self._room, n_threads=self.n_threads,
                leaf=None if self._leaves is None else self._leaves.of(kernel, self.X),
            )  # fmt: skip
        return self._grams[key]

    # ---------------------------------------------------------------- a chain

    def run(self, task, check):
        """Machines of a task, one C after another; the last task of a kernel lets go of its matrix.

        Returns
        -------
        list of (C, seconds, values, converged), or None
            What `decided` takes of the held-out rows, and of the training rows if they are wanted. None where
            there is a machine without finite coefficients, or none at all: the fit by itself says why.
        """
        try:
            with left_to_fits():
                return self._run(task, check)
            return None
        finally:
            task.gram.leave()

    def _run(self, task, check):
        machine = task.machine
        cache = machine._options(n_rows(self.X))["cache_bytes"]
        Cs = np.array(sorted(task.cells), dtype=float)
        for C in Cs[[0, -1]]:
            in_range(C, task.weights[task.weights > 0], "C times sample_weight times class_weight")
        options = {
            "tol": float(machine.tol), "shrinking": bool(machine.shrinking),
            "cache_bytes": 2.0**28 if cache is None else cache,
        }  # fmt: skip
        together = _MANY <= self.pairs.k and len(self.place) <= _SMALL * self.pairs.k
        each = 1 if together and self.labels_only else len(self.pairs.jobs)
        size = 8 * len(Cs) * sum(map(len, self._rows_of(task))) * each
        if size > _DECISIONS and size * self.n_threads > _SHARE * available_memory():
            return None
        if together:
            return self._run_together(task, Cs, options, check)
        chains = (
            Chain(task.gram, job, task.weights, Cs, check=check, **options)
            for job in self.pairs.jobs.reshape(-1, 1)
        )
        paths = [chain.run() for chain in chains]
        if not all(np.isfinite(path.field).all() for path in paths):
            return None
        wanted = self._rows_of(task)
        # float64 where a pair had to go over to it
        held = task.gram.held(check, np.result_type(*(path.problem.dtype for path in paths)))
        values = [self._decisions(held, paths, self.place[rows], check) for rows in wanted]
        seconds = np.sum([path.seconds for path in paths], axis=0)
        # a solution at which rounding leaves no step is one for which a fit by itself warns, too
        converged = np.all([path.converged for path in paths], axis=0)
        by_C = zip(*values, strict=True)
        return list(zip(Cs.tolist(), seconds.tolist(), by_C, converged.tolist(), strict=True))

    def _rows_of(self, task):
        """Whose decisions are wanted: the rows held out, and the training rows; of equal ones the first."""
        train, test = self.splits[task.fold]
        wanted = [test, train] if self.with_train else [test]
        return wanted if self.first is None else [self.first[rows] for rows in wanted]

    def _run_together(self, task, Cs, options, check):
        """The same with all pairs of a C at once: those of few samples take less than a chain's start."""
        samples, weights, pairs = task.gram.whole(check), task.weights, self.pairs
        wanted = [self.place[rows] for rows in self._rows_of(task)]
        ones, betas, steps, entries = np.ones((1, len(weights))), None, [], {}
        options["on_step"] = lambda *_: check()
        for C in Cs.tolist():
            begun = time.perf_counter()
            solved = samples.solve(pairs.jobs, ones, 0 * ones, C * weights[None], start=betas, **options)
            betas = solved.betas
            if not (np.isfinite(betas).all() and np.isfinite(solved.bias).all()):
                return None
            seconds = time.perf_counter() - begun
            V = coefficients_by_class(betas, pairs.sides, pairs.classes, pairs.k, len(weights))
            machines = pairs.offsets, V, solved.bias[:, 0]
            dtype = np.float64 if "float64" in solved.rows else np.float32
            if dtype not in entries:
                entries[dtype] = [samples.entries(rows, dtype) for rows in wanted]
            values = [self._told(task.machine, K, machines) for K in entries[dtype]]
            steps.append((C, seconds, values, bool((solved.status == _CONVERGED).all())))
        return steps

    def _dtype(self):
        """Of fits' decisions."""
        return np.float32 if getattr(self.X, "dtype", None) == np.float32 else np.float64

    def _told(self, machine, K, pairs):
        """Labels, where these will do, or decisions by kernel values (m, n)."""
        if not self.labels_only:
            return decisions_of(K, pairs, n_threads=1)
        if machine._breaks_ties():
            values = votes_and_sums(*votes_of(K, pairs, tie_to_first=True, n_threads=1))
            return np.argmax(values.astype(self._dtype(), copy=False), axis=1)  # rounded as fits' are
        return np.argmax(votes_of(K, pairs, n_threads=1)[0], axis=1)

    def _decisions(self, held, paths, rows, check):
        """Decisions of some rows (places in class order), a list of (m, p) by C; `held` is the Gram's.

        A pair's F has those of its own classes' rows. Where only labels count, a row whose class wins all its
        pairs needs no other decisions, and has the bias in their place: no class can have as many votes.
        """
        pairs = self.pairs
        codes = np.searchsorted(pairs.offsets, rows, side="right") - 1
        at = rows - pairs.offsets[codes]
        values = np.repeat(np.stack([path.bias for path in paths])[:, :, None], len(rows), axis=2)
        lost = np.zeros(values.shape[1:], bool)
        for c in range(pairs.k):
            mine = np.flatnonzero(codes == c)
            for p, part in pairs.of_class(c):
                sign, path = (1.0 if pairs.first[p] == c else -1.0), paths[p]
                values[p][:, mine] += sign - path.field[:, path.problem.taken[part][at[mine]]]
                lost[:, mine] |= ~(sign * values[p][:, mine] > 0)
        wanted = np.arange(len(rows)) if not self.labels_only else np.flatnonzero(lost.any(axis=0))
        if pairs.k > 2 and wanted.size:
            self._add_others(held, paths, rows, codes, wanted, values, check)
        return list(values.transpose(1, 2, 0))

    def _add_others(self, held, paths, rows, codes, wanted, values, check):
        """Add sums over support vectors to values (p, n_C, m): wanted rows, pairs without their class."""
        _, matrix, places = held
        pairs, terms = self.pairs, [self._by_class(paths, c) for c in range(self.pairs.k)]
        for start in range(0, len(wanted), _CHUNK):
            check()
            some = wanted[start : start + _CHUNK]
            sums = np.zeros((*values.shape[:2], len(some)))
            for c, (machines, support, V) in enumerate(terms):
                K = matrix_entries(matrix, places[rows[some]], places[pairs.offsets[c] + support])
                sums[machines] += (V @ K.T).reshape(len(machines), values.shape[1], -1)
            own = (codes[some] == pairs.first[:, None]) | (codes[some] == pairs.second[:, None])
            values[:, :, some] += np.where(own[:, None], 0.0, sums)

    def _by_class(self, paths, c):
        """The pairs of a class, its support vectors by their number in it, and β (pairs and C, support)."""
        machines, betas = [], []
        for p, part in self.pairs.of_class(c):
            start = paths[p].problem.taken[part.start]  # a class's variables follow each other
            machines.append(p)
            betas.append(paths[p].beta[:, start : start + self.pairs.sizes[c]])
        support = np.flatnonzero(np.any([beta.any(axis=0) for beta in betas], axis=0))
        return machines, support, np.concatenate([beta[:, support] for beta in betas])


def _held_out_by(splits, n):
    """The first fold that each of n samples is not trained on in; none has the largest number."""
    out = np.full(n, len(splits))
    for fold in reversed(range(len(splits))):
        trained = np.zeros(n, bool)
        trained[splits[fold][0]] = True
        out[~trained] = fold
    return out


# ---------------------------------------------------------------- a search


def go_by_machines(search):
    """Fill in what chains of machines along C can tell.

    Parameters
    ----------
    search : Search
    """
    machines = _machines(search)
    if search.pooled or not machines:
        return
    if not known_from_decisions(search.scores.scoring, search.scores.scorers):
        return
    first = machines[0][0]
    if not search.weighs_last_step(first):
        return
    # of another kind of kernel rows are checked in another way
    alike = [each for each in machines if _reads_alike(each[0], first)]
    samples = None
    # rows that are refused may be in no fold or in some, but the fit to all rows refuses them, too
    with nullcontext() if search.refits and len(alike) == len(machines) else left_to_fits():
        samples, _ = first._training_samples(search.X)
    y = np.asarray(search.y)
    if samples is None or y.ndim != 1 or len(y) != n_rows(samples) or y.dtype.kind not in "iubUSO":
        return
    path = MachinePath(
        samples, y, search.weights, search.splits, with_train=search.with_train,
        labels_only=search.scores.are_of_labels(first), n_threads=search.n_threads,
    )  # fmt: skip
    if not path.fits_memory():
        return
    tasks = _tasks(path, alike, len(search.splits))
    short = 0

    # in this thread: scorers change the filters of warnings, which are the process's
    def on_done(results):
        nonlocal short
        for index, task in enumerate(tasks):
            if results[index]:
                short += _enter(search, path, task, results[index])
                results[index] = ()
        search.show()

    with one_blas_thread():
        on_done(run_tasks(tasks, path.run, search.n_threads, on_done))
    if short:
        warnings.warn(
            f"{short} of the machines stopped short of tol: rounding leaves no step that helps; "
            "raise tol, or scale the samples",
            ConvergenceWarning,
            stacklevel=4,
        )


def _reads_alike(one, other):
    """Whether two machines make the same of the samples that they are given."""
    kinds = [
        (each._is_precomputed(each.kernel), each._reads_rows(), each._is_function()) for each in (one, other)
    ]
    return kinds[0] == kinds[1]


def _machines(search):
    """(machine without its C, cells by C) for each set of the other parameters that chains are for.

    Cells whose parameters are refused are left to the fits, unless all are.
    """
    found, refused = [], []
    for index, cell in enumerate(search.cells):
        others = {name: value for name, value in cell.items() if name != "C"}
        entry = next((each for each in found if same_parameters(each[0], others)), None)
        if entry is None:
            entry = others, search.posed(cell), {}
            found.append(entry)
        _, machine, by_C = entry
        if not MachinePath.takes(machine):
            continue
        machine = copy(machine)  # a clone for each cell was 6 % of a search
        machine.C = cell.get("C", search.estimator.C)
        try:
            machine._check_parameters()
        except (TypeError, ValueError) as error:
            refused.append(error)
            continue
        if np.isfinite(machine.C):
            by_C.setdefault(float(machine.C), []).append(index)
    if len(refused) == len(search.cells):
        raise refused[0]
    return [(machine, by_C) for _, machine, by_C in found if by_C]


def _enter(search, path, task, steps):
    """Score a task's decisions. Returns how many of its machines stopped short."""
    train, test = path.splits[task.fold]
    scores = search.scores
    machine, give = decided(task.machine, path.classes)
    dtype = path._dtype()
    wanted = [test, train][: 1 + search.with_train]
    direct = scores.tells_error(machine)
    parts = [
        (
            *((rows, path.y[rows]) if direct else _safe_split(machine, search.X, search.y, rows, train)),
            weights_of(search.weights, rows),
        )
        for rows in wanted
    ]
    begin = time.perf_counter()
    by_part = zip(*(values for _, _, values, _ in steps), strict=True)
    told = [
        scores.decided_each(machine, give, [_typed(one, dtype) for one in values], *part)
        for part, values in zip(parts, by_part, strict=True)
    ]
    score_time = (time.perf_counter() - begin) / len(steps)
    for (C, spent, *_), (scored, error), *of_train in zip(steps, *told, strict=True):
        outcome = Outcome(scored, test_error=error, fit_time=spent, score_time=score_time)
        if of_train:
            ((outcome.train, outcome.train_error),) = of_train
        for index in task.cells[C]:
            search.outcomes[index][task.fold] = outcome
    return sum(not converged for *_, converged in steps)


def _typed(values, dtype):
    """Decisions in a dtype; labels as they are."""
    return values.astype(dtype, copy=False) if values.ndim == 2 else values


def _tasks(path, machines, n_splits):
    """Tasks, those of one kernel matrix after those of another: no more than some are there at a time.

    The last ones first: of ascending γ the largest takes longest, and short tasks let threads end together.
    """
    by_gram = {}
    for machine, by_C in machines:
        for fold in range(n_splits):
            task = path.task(machine, fold)
            if task is not None:
                task.cells = by_C
                by_gram.setdefault(id(task.gram), []).append(task)
    return [task for tasks in reversed(by_gram.values()) for task in tasks]

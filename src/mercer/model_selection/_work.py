"""Tasks on threads, of which the main thread is none: it waits for signals.

Place on the way: **work** → ``path``.
"""

import contextvars
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager

from sklearn import config_context, get_config

__all__ = ["Stopped", "in_turns", "left_to_fits", "run_tasks"]

# Seconds between looks at what became of the tasks; a signal is met at once.
_WAIT = 0.05


class Stopped(Exception):
    """Raised inside of a task when another one failed, or when the user wants no more."""


@contextmanager
def left_to_fits():
    """Leave what raises to the fits by themselves, which raise again, or score as `error_score` says.

    Not so what stops a search: no memory, a warning that is to be an error, another thread's end.
    """
    try:
        yield
    except (MemoryError, Stopped, Warning):
        raise
    except Exception:
        return


class _Board:
    """What the threads share: the next task, results, and whether to stop."""

    def __init__(self, tasks, work):
        self.tasks, self.work = tasks, work
        self.results, self.errors = [None] * len(tasks), {}
        self.n_taken = self.n_done = 0
        self.lock, self.stopping = threading.Lock(), False

    def check(self, *_):
        if self.stopping:
            raise Stopped

    def take(self):
        with self.lock:
            if self.stopping or self.n_taken == len(self.tasks):
                return None
            self.n_taken += 1
            return self.n_taken - 1

    def run(self):
        while (index := self.take()) is not None:
            try:
                result = self.work(self.tasks[index], self.check)
            except Stopped:
                return
            except BaseException as error:  # it goes to the main thread
                self.errors[index] = error
                self.stopping = True
                return
            with self.lock:
                self.results[index] = result
                self.n_done += 1


def run_tasks(tasks, work, n_threads, on_done=None):
    """Results of ``work(task, check)`` in the order of the tasks, which begin in that order.

    Parameters
    ----------
    tasks : list
    work : callable
        It calls ``check()`` every 0.1 s or so, which may raise.
    n_threads : int
        Of this many threads; 1 is the caller's own.
    on_done : callable or None
        ``on_done(results)`` in the caller's thread, now and then; None stands for a result that is not there.

    Returns
    -------
    list

    Raises
    ------
    BaseException
        What the first of the tasks that failed raised; or what a signal did.
    """
    board = _Board(tasks, work)
    count = min(n_threads, len(tasks))
    if count <= 1:
        for index, task in enumerate(tasks):
            board.results[index] = work(task, board.check)
            if on_done is not None:
                on_done(board.results)
        return board.results
    config = get_config()

    def body():
        with config_context(**config):
            board.run()

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(body,), name="mercer-path", daemon=True)
        for _ in range(count)
    ]
    try:
        for thread in threads:
            thread.start()
        _wait(board, threads, on_done)
    finally:
        board.stopping = True
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if board.errors:
        raise board.errors[min(board.errors)]
    return board.results


def _wait(board, threads, on_done):
    seen = 0
    for thread in threads:
        while thread.is_alive():
            thread.join(_WAIT)
            if on_done is not None and board.n_done != seen:
                seen = board.n_done
                on_done(board.results)


_END = object()


def in_turns(chains, n_threads):
    """Yield (index, value) of iterators that do not depend on each other, as values come.

    Parameters
    ----------
    chains : list of callable
        ``chain(check) -> iterator``; it calls ``check()`` every 0.1 s or so, which may raise, and returns how
        many threads it has to itself: more than one where there are fewer chains, or others have ended.
    n_threads : int
        Of this many threads; 1 is the caller's own.
    """
    stopping = threading.Event()

    def check():
        if stopping.is_set():
            raise Stopped
        return max(1, n_threads // max(1, len(chains)))

    chains = dict(enumerate(chain(check) for chain in chains))
    if min(n_threads, len(chains)) <= 1:
        while chains:
            for index, chain in list(chains.items()):
                if (value := next(chain, _END)) is _END:
                    del chains[index]
                else:
                    yield index, value
        return
    with ThreadPoolExecutor(min(n_threads, len(chains))) as pool:

        def go_on(index):
            return pool.submit(contextvars.copy_context().run, next, chains[index], _END)

        under_way = {go_on(index): index for index in chains}
        try:
            while under_way:
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    index = under_way.pop(future)
                    if (value := future.result()) is _END:
                        del chains[index]
                    else:
                        under_way[go_on(index)] = index
                        yield index, value
        finally:
            stopping.set()
            for future in under_way:
                future.cancel()

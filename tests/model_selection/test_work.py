"""Iterators that take turns on threads."""

import threading
import time

import pytest

from mercer.model_selection._work import Stopped, in_turns, left_to_fits


@pytest.mark.parametrize("n_threads", [1, 2, 3, 9])
def test_each_chain_gives_its_values_in_its_own_order(n_threads):
    def chain(index, check):
        for k in range(index):
            check()
            time.sleep(0.001 * (index % 2))
            yield index, k

    chains = [lambda check, index=index: chain(index, check) for index in range(6)]
    found = [[] for _ in chains]
    for index, value in in_turns(chains, n_threads):
        found[index].append(value)
    assert found == [[(index, k) for k in range(index)] for index in range(6)]


@pytest.mark.parametrize(("n_threads", "told"), [(1, [1, 1, 1]), (2, [1, 1, 2]), (6, [2, 3, 6])])
def test_a_chain_is_told_of_the_threads_that_others_left(n_threads, told):
    def chain(length, check):
        for _ in range(length):
            yield check()
            time.sleep(0.02)

    # the others are over well before the longest
    chains = [lambda check, length=length: chain(length, check) for length in (1, 6, 18)]
    found = [[] for _ in chains]
    for index, value in in_turns(chains, n_threads):
        found[index].append(value)
    assert [found[0][0], found[1][-1], found[2][-1]] == told


@pytest.mark.parametrize("n_threads", [1, 2])
def test_no_chains_are_no_values(n_threads):
    assert list(in_turns([], n_threads)) == []


def test_an_error_is_raised_and_stops_the_others():
    stopped = threading.Event()

    def endless(check):
        try:
            while True:
                check()
                time.sleep(0.001)
        except Stopped:
            stopped.set()
            raise
        yield None

    def failing(check):
        yield 1
        raise ZeroDivisionError("of the second chain")

    with pytest.raises(ZeroDivisionError, match="second"):
        list(in_turns([endless, failing], 2))
    assert stopped.is_set()


def test_who_wants_no_more_values_stops_all():
    before = threading.active_count()

    def chain(check):
        while True:
            check()
            time.sleep(0.001)
            yield 0

    values = in_turns([chain, chain, chain], 2)
    assert next(values)[1] == 0
    values.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("error", [MemoryError, Stopped, UserWarning])
def test_what_ends_a_search_is_not_left_to_fits(error):
    with left_to_fits():
        raise ValueError("a fit by itself says why")
    with pytest.raises(error), left_to_fits():
        raise error

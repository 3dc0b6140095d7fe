"""Threads that meet in compiled code, and the instructions that it takes."""

from __future__ import annotations

import os
from threading import Event, Thread

import numba
import numpy as np
import pytest

from palmatch.rounds import meetings
from palmatch.rounds.instructions import add_for_all, lowest_bit, prefetch
from palmatch.rounds.meetings import a_group, meet, together, was_late
from palmatch.rounds.threads import most_threads, submit

pytestmark = pytest.mark.skipif(os.name != "posix", reason="threads meet where there is sched_yield")

# However busy this machine is.
FOR_EVER = 1 << 40


@numba.njit
def lowest_of(values):
    found = np.empty(len(values), dtype=np.int64)
    for place in range(len(values)):
        prefetch(values, len(values) - 1 - place)
        found[place] = lowest_bit(values[place])
    return found


def test_the_lowest_bit_is_that_of_plain_python_and_asking_ahead_changes_nothing():
    chance = np.random.default_rng(0)
    values = (2 * chance.integers(0, 1 << 31, 1000) + 1) << chance.integers(0, 32, 1000)
    values = values.astype(np.uint64)
    before = values.copy()
    assert lowest_of(values).tolist() == [(int(value) & -int(value)).bit_length() - 1 for value in values]
    np.testing.assert_array_equal(values, before)


@numba.njit(nogil=True)
def count_up(counts, times):
    for _ in range(times):
        add_for_all(counts, 0, 1)


def test_what_two_threads_add_is_all_there():
    counts = np.zeros(1, dtype=np.int64)
    count_up(counts, 1)
    others = [Thread(target=count_up, args=(counts, 200_000)) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert counts[0] == 400_001


@numba.njit(nogil=True)
def in_turns(number, size, turns, seen, meeting):
    """Everybody adds to what its neighbour had in the turn before: wrong as soon as somebody does not wait."""
    for turn in range(1, turns):
        seen[number, turn] = seen[(number + 1) % size, turn - 1] + number + 1
        meet(turn, size, meeting)


def test_who_meets_sees_what_the_others_did():
    size, turns = 2, 5000
    seen, expected = np.zeros((2, size, turns), dtype=np.int64)
    with a_group(size) as can:
        assert can
        together(lambda number, meeting: in_turns(number, size, turns, seen, meeting), size, naps=FOR_EVER)
    for turn in range(1, turns):
        for number in range(size):
            expected[number, turn] = expected[(number + 1) % size, turn - 1] + number + 1
    np.testing.assert_array_equal(seen, expected)


def test_there_is_one_group_at_a_time_and_none_that_could_not_run_at_once():
    with a_group(2) as first, a_group(2) as second:
        assert first
        assert not second
    for size in (1, most_threads() + 1):
        with a_group(size) as can:
            assert not can
    with a_group(2) as again:
        assert again


@numba.njit(nogil=True)
def late(number, meeting):
    """The second does not come before the first has lost patience."""
    while number == 1 and not was_late(meeting):
        pass
    meet(1, 2, meeting)


def test_who_waits_for_long_says_so():
    with a_group(2):
        assert was_late(together(late, 2, naps=FOR_EVER))
    assert not was_late(np.zeros(48, dtype=np.int64))


@pytest.mark.parametrize("absent", [0, 1])
def test_who_waits_for_somebody_that_cannot_come_is_let_go(absent):
    let_go = []

    def work(number, meeting):
        if number == absent:
            raise KeyboardInterrupt
        let_go.append(not meet(1, 2, meeting))

    with a_group(2), pytest.raises(KeyboardInterrupt):
        together(work, 2, naps=FOR_EVER)
    assert let_go == [True]


def test_nobody_waits_for_threads_that_have_something_else_to_do():
    rest, done = Event(), []
    busy = [submit(lambda _: rest.wait(), number) for number in range(most_threads() - 1)]
    try:
        with a_group(2):
            assert together(lambda number, _: done.append(number), 2) is None
    finally:
        rest.set()
    assert all(other.result() for other in busy)
    with a_group(2):
        assert together(lambda number, _: done.append(number), 2, naps=FOR_EVER) is not None
    assert sorted(done) == [0, 1]


def test_a_forked_child_may_meet_though_its_parent_was_meeting():
    with a_group(2):
        meetings._new_lock()
        with a_group(2) as can:
            assert can
    with a_group(2) as can:
        assert can

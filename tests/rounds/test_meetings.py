"""Threads that meet in compiled code, and the instructions that it takes."""

from __future__ import annotations

from threading import Thread

import numba
import numpy as np
import pytest

from palmatch.rounds import meetings
from palmatch.rounds.instructions import add_for_all, lowest_bit, prefetch
from palmatch.rounds.meetings import a_group, has_slept, meet, together
from palmatch.rounds.threads import most_threads


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
        together(lambda number, meeting: in_turns(number, size, turns, seen, meeting), size)
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
    while number == 1 and not has_slept(meeting):
        pass
    meet(1, 2, meeting)


def test_who_waits_for_long_sleeps_and_says_so():
    with a_group(2):
        assert has_slept(together(late, 2))
    assert not has_slept(np.zeros(32, dtype=np.int64))


def test_who_waits_for_somebody_that_cannot_come_is_let_go():
    def work(number, meeting):
        if number == 1:
            meet(1, 2, meeting)
        else:
            raise KeyboardInterrupt

    seen = []
    with a_group(2), pytest.raises(KeyboardInterrupt):
        meetings.together(lambda number, meeting: (seen.append(meeting), work(number, meeting)), 2)
    assert seen[0][0] > 1 << 60

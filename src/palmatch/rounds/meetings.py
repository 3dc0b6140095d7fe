"""Threads that wait for each other within compiled code: a meeting takes less than a microsecond.

Handing a piece of work to another thread through Python takes a hundred times as long, which is more than a late step
of a game does. This room knows nothing of games.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numba
import numpy as np
from numba.core import types
from numpy.typing import NDArray

from palmatch.rounds.instructions import add_for_all, seen_by_all
from palmatch.rounds.threads import most_threads, submit

# What a meeting knows, each on a cache line of its own: how many are here, whether they begin, how often somebody has
# come, and how often somebody was late. Two more lines are for those who meet.
_HERE, _BEGINS, _CAME, _LATE, FREE = 0, 8, 16, 24, 32
_LENGTH = 48

# What `_BEGINS` says, once it is decided, and what `_CAME` says when everybody has to stop.
_YES, _NO = 1, 2
_OFF = 1 << 62

# How often somebody who waits gives way to others on its processor before it takes naps, of how many microseconds; how
# many of them until it calls the others late, and until it no longer expects them to begin.
_PATIENCE, _NAP, _NAPS_UNTIL_LATE, _NAPS_TO_BEGIN = 300, 50, 10, 50

_give_way: Any = types.ExternalFunction("sched_yield", types.int32())
_sleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32))

# Two groups at a time would wait for the same threads, and have the same processors.
_only_one = Lock()


@contextmanager
def a_group(size: int) -> Iterator[bool]:
    """Say whether so many threads may meet now; nobody else's can, meanwhile."""
    lock = _only_one
    can = os.name == "posix" and 1 < size <= most_threads() and lock.acquire(blocking=False)
    try:
        yield can
    finally:
        if can:
            lock.release()


def together(
    work: Callable[[int, NDArray[np.int64]], object], size: int, *, naps: int = _NAPS_TO_BEGIN
) -> NDArray[np.int64] | None:
    """Do `work(number, meeting)` on so many threads at the same time, and return the meeting.

    Return None, with nothing done, if the other threads do not come within some naps, because they have something else
    to do. Only for who is in `a_group`.
    """
    meeting = np.zeros(_LENGTH, dtype=np.int64)

    def take_part(number: int) -> None:
        try:
            work(number, meeting)
        except BaseException:
            call_off(meeting)
            raise

    def answer_and_take_part(number: int) -> None:
        if answer(meeting):
            take_part(number)

    others = [submit(answer_and_take_part, number) for number in range(1, size)]
    if not roll_call(size, naps, meeting):
        return None
    try:
        take_part(0)
    finally:
        # Nobody may still be writing when somebody reads.
        for other in others:
            other.result()
    return meeting


@numba.njit(cache=True, nogil=True)
def wait_a_little(waited):  # type: ignore[no-untyped-def]  # compiled
    """Let others run on this processor; whoever has waited for some time takes a nap."""
    if waited < _PATIENCE:
        _give_way()
    else:
        _sleep(np.uint32(_NAP))


@numba.njit(cache=True, nogil=True)
def roll_call(size, naps, meeting):  # type: ignore[no-untyped-def]  # compiled
    """Wait for the others, but not for ever; decide for all whether they begin, and return it."""
    waited = 0
    while seen_by_all(meeting, _HERE) < size - 1 and waited < _PATIENCE + naps:
        wait_a_little(waited)
        waited += 1
    begins = seen_by_all(meeting, _HERE) == size - 1
    add_for_all(meeting, _BEGINS, _YES if begins else _NO)
    return begins


@numba.njit(cache=True, nogil=True)
def answer(meeting):  # type: ignore[no-untyped-def]  # compiled
    """Say that one is here, wait for the decision, and return it."""
    add_for_all(meeting, _HERE, 1)
    waited = 0
    while seen_by_all(meeting, _BEGINS) == 0:
        wait_a_little(waited)
        waited += 1
    return seen_by_all(meeting, _BEGINS) == _YES


@numba.njit(cache=True, nogil=True)
def meet(turn, size, meeting):  # type: ignore[no-untyped-def]  # compiled
    """Wait until all have come for the `turn`-th time (1, 2, ...): what each did before, all see afterwards.

    Return False if everybody has to stop, because somebody cannot come.
    """
    add_for_all(meeting, _CAME, 1)
    waited = 0
    while seen_by_all(meeting, _CAME) < turn * size:
        if waited == _PATIENCE + _NAPS_UNTIL_LATE:
            add_for_all(meeting, _LATE, 1)
        wait_a_little(waited)
        waited += 1
    return seen_by_all(meeting, _CAME) < _OFF


@numba.njit(cache=True, nogil=True)
def call_off(meeting):  # type: ignore[no-untyped-def]  # compiled
    """Let everybody stop at its next meeting."""
    add_for_all(meeting, _CAME, _OFF)


@numba.njit(cache=True, nogil=True)
def was_late(meeting):  # type: ignore[no-untyped-def]  # compiled
    """Return whether somebody was, so that others had to wait for long."""
    return seen_by_all(meeting, _LATE) > 0


def _new_lock() -> None:
    global _only_one  # a forked child has none of its parent's groups
    _only_one = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)

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
from palmatch.rounds.threads import most_threads, spread

# What a meeting knows, each on a cache line of its own: how often somebody has come, and how often somebody had to
# wait so long that it went to sleep. The other lines are for those who meet.
_CAME, _SLEPT, FREE = 0, 8, 16
_LINES = 4

# How often somebody gives way to others on its processor before it goes to sleep, and for how many microseconds.
_PATIENCE, _NAP = 300, 50

_give_way: Any = types.ExternalFunction("sched_yield", types.int32())
_sleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32))

# Threads that wait for each other have to run at the same time. Only one group does: two of them could each have
# some of the threads that both need.
_only_one = Lock()


@contextmanager
def a_group(size: int) -> Iterator[bool]:
    """Say whether so many threads can meet now; nobody else's can, meanwhile."""
    can = os.name == "posix" and 1 < size <= most_threads() and _only_one.acquire(blocking=False)
    try:
        yield can
    finally:
        if can:
            _only_one.release()


def together(work: Callable[[int, NDArray[np.int64]], object], size: int) -> NDArray[np.int64]:
    """Do `work(number, meeting)` on so many threads at the same time; return the meeting.

    Only for who is in `a_group`, and for compiled work, which cannot fail.
    """
    meeting = np.zeros(8 * _LINES, dtype=np.int64)
    try:
        spread(lambda number, _: work(number, meeting), size, at_a_time=1, threads=size)
    except BaseException:
        # Somebody may be waiting for a thread that never comes.
        meeting[_CAME] = np.iinfo(np.int64).max // 2
        raise
    return meeting


@numba.njit(cache=True, nogil=True)
def meet(turn, size, meeting):  # type: ignore[no-untyped-def]  # compiled
    """Wait until all have come for the `turn`-th time (1, 2, ...): what each did before, all see afterwards."""
    add_for_all(meeting, _CAME, 1)
    waited = 0
    while seen_by_all(meeting, _CAME) < turn * size:
        waited += 1
        if waited < _PATIENCE:
            _give_way()
        else:
            add_for_all(meeting, _SLEPT, 1)
            _sleep(np.uint32(_NAP))


@numba.njit(cache=True, nogil=True)
def has_slept(meeting):  # type: ignore[no-untyped-def]  # compiled
    """Return whether somebody had to wait for long."""
    return seen_by_all(meeting, _SLEPT) > 0

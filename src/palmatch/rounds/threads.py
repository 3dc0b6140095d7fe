"""Work in pieces, on as many threads as there are processors: compiled loops let go of Python's lock.

How the pieces are spread decides how long something takes, never what comes out. This room knows nothing of games.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import count
from time import perf_counter, process_time
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError

Piece = TypeVar("Piece")
Number = TypeVar("Number", bound=np.generic)

# In the environment: the most threads that a matching may use.
LIMIT = "PALMATCH_THREADS"

_STEPS_BETWEEN_TRIES = 8

_TAKEN_AT_A_TIME = 1 << 16

# Threads that run for so much of the time have the processors to themselves.
_UNDISTURBED = 0.8


def usual_threads() -> int:
    """Return how many processors this process may use, or fewer, if the environment says so."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get(LIMIT, str(processors))
    if not (limit.isascii() and limit.isdigit() and int(limit) > 0):
        raise InputError(f"Expected a number of threads in {LIMIT}, found {limit!r}.")
    return min(processors, int(limit))


def spread(
    work: Callable[[int, int], Piece], total: int, *, at_a_time: int, threads: int | None = None
) -> Sequence[Piece]:
    """Return `work(start, stop)` of all pieces of range(total), in order; who is done takes the next piece."""
    cuts = [*range(0, total, at_a_time), total]
    pieces = len(cuts) - 1
    results: list[Piece | None] = [None] * pieces
    tickets = count()

    def until_none_is_left() -> None:
        while (number := next(tickets)) < pieces:
            results[number] = work(cuts[number], cuts[number + 1])

    workers = min(usual_threads() if threads is None else threads, pieces)
    others = [_pool().submit(until_none_is_left) for _ in range(workers - 1)]
    until_none_is_left()
    for other in others:
        other.result()
    return results  # type: ignore[return-value]  # every piece was done


def taken(column: NDArray[Number], rows: NDArray[np.integer], *, threads: int) -> NDArray[Number]:
    """Return `column[rows]`, each piece of it by whichever thread is free; rows count from 0 on."""
    result, whole = np.empty(len(rows), dtype=column.dtype), np.ascontiguousarray(column)

    def take(start: int, stop: int) -> None:
        # With another mode than "raise", numpy writes into the result without a copy in between.
        np.take(whole, rows[start:stop], out=result[start:stop], mode="clip")

    spread(take, len(rows), at_a_time=_TAKEN_AT_A_TIME, threads=threads)
    return result


class Pace:
    """Which of two ways is the faster one now: on one thread, or on several that wait for each other.

    Where another program uses a processor, several threads may take longer than one. Unless they run nearly all the
    time, both ways are tried, the faster one is kept, and the other is tried again from time to time. They give the
    same, so that only time depends on it.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._cost: dict[bool, float] = {}
        self._since = 0
        self._undisturbed = False
        self._started = (0.0, 0.0)

    def start(self) -> None:
        """Begin to measure a piece of work."""
        self._started = (perf_counter(), process_time())

    def stop(self, together: bool, work: int) -> None:
        """End it."""
        self.note(together, perf_counter() - self._started[0], process_time() - self._started[1], work)

    def together(self) -> bool:
        """Return whether the next piece of work is to be done on several threads."""
        if self.threads == 1:
            return False
        if self._undisturbed:
            return True
        for way in (True, False):
            if way not in self._cost:
                return way
        better = self._cost[True] < self._cost[False]
        # What was far slower is hardly worth another try.
        patience = _STEPS_BETWEEN_TRIES * (1 + int(self._cost[not better] / self._cost[better]))
        return better if self._since < patience else not better

    def note(self, together: bool, seconds: float, running: float, work: int) -> None:
        """Remember how long a piece of work took, and how long processors were running for it."""
        self._undisturbed = together and running >= _UNDISTURBED * self.threads * seconds
        cost = seconds / max(work, 1)
        usual = self._cost.get(together)
        changed = usual is not None and self._cost.get(not together, usual) >= usual
        self._since = self._since + 1 if changed else 0
        self._cost[together] = cost if usual is None else 0.5 * (usual + cost)


@cache
def most_threads() -> int:
    """Return how many threads can run at the same time: who asks, and those of the pool."""
    return max(2, os.cpu_count() or 1)


def submit(work: Callable[[int], Piece], number: int) -> Future[Piece]:
    """Have `work(number)` done by a thread of the pool, as soon as one is free."""
    return _pool().submit(work, number)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=most_threads() - 1, thread_name_prefix="palmatch")


# A forked child has none of its parent's threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)

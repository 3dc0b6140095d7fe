"""Work in pieces, on as many threads as there are processors: compiled loops let go of Python's lock.

How the pieces are spread decides how long something takes, never what comes out. Nothing in here knows of games.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import count
from multiprocessing import parent_process
from threading import Thread
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError

Piece = TypeVar("Piece")
Other = TypeVar("Other")
Number = TypeVar("Number", bound=np.generic)

# In the environment: the most threads that a matching may use.
LIMIT = "PALMATCH_THREADS"

# Seconds after which a wait looks whether Ctrl-C was pressed.
_GLANCE = 0.5

# A pass over fewer items is done before another thread has begun.
_FEWEST_BESIDE = 10_000


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usual_threads() -> int:
    """Return how many processors this process may use, or fewer, if the environment says so."""
    limit = os.environ.get(LIMIT, str(processors()))
    if not (limit.isascii() and limit.isdigit() and int(limit) > 0):
        raise InputError(f"Expected a number of threads in {LIMIT}, found {limit!r}.")
    return min(processors(), int(limit))


def end_with_parent() -> None:
    """Let a process that another one started with multiprocessing end when that one is gone, however it ended."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def wait_for_any(futures: Collection[Future[Any]]) -> tuple[set[Future[Any]], set[Future[Any]]]:
    """Wait until a future is done, or for half a second; return those that are done, and the others.

    polars handles Ctrl-C with SA_RESTART: a wait without an end goes on, and Python never gets to raise it.
    """
    return wait(futures, timeout=_GLANCE, return_when=FIRST_COMPLETED)


def parallel_chunks(
    work: Callable[[int, int], Piece], total: int, *, at_a_time: int = 1 << 15, threads: int | None = None
) -> Sequence[Piece]:
    """Return `work(start, stop)` of all pieces of range(total), in order; a thread that is done takes the next one."""
    cuts = [*range(0, total, at_a_time), total]
    pieces = len(cuts) - 1
    results: list[Piece | None] = [None] * pieces
    numbers = count()

    def until_none_is_left() -> None:
        while (number := next(numbers)) < pieces:
            results[number] = work(cuts[number], cuts[number + 1])

    workers = min(usual_threads() if threads is None else threads, pieces)
    others = [_pool().submit(until_none_is_left) for _ in range(workers - 1)]
    until_none_is_left()
    for other in others:
        # One that has not begun, since the pool is at other work, has nothing left to do.
        if not other.cancel():
            other.result()
    return results  # type: ignore[return-value]  # every piece was done


def run_concurrently(
    one: Callable[[], Piece], other: Callable[[], Other], *, items: int = _FEWEST_BESIDE
) -> tuple[Piece, Other]:
    """Return what both functions return, found at the same time where there are threads; if both fail, `one` says why.

    The other one has a thread of its own, so that either may spread its work. Where both pass over few `items`, that
    thread would take longer to start than they do.
    """
    if items < _FEWEST_BESIDE or usual_threads() == 1:
        return one(), other()
    with ThreadPoolExecutor(max_workers=1) as beside:
        later = beside.submit(other)
        return one(), later.result()


def parallel_take(column: NDArray[Number], rows: NDArray[np.integer], *, threads: int) -> NDArray[Number]:
    """Return `column[rows]`, each piece of it by whichever thread is free; rows count from 0 on."""
    result, whole = np.empty(len(rows), dtype=column.dtype), np.ascontiguousarray(column)

    def take(start: int, stop: int) -> None:
        # With another mode than "raise", numpy writes into the result without a copy in between.
        np.take(whole, rows[start:stop], out=result[start:stop], mode="clip")

    parallel_chunks(take, len(rows), threads=threads)
    return result


@cache
def most_threads() -> int:
    """Return how many threads can run at the same time: who asks, and those of the pool."""
    return max(2, os.cpu_count() or 1)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=most_threads() - 1, thread_name_prefix="palmatch")


# A forked child has none of its parent's threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)

"""Who waits for which step: entries in chunks, one chain of chunks for each part of a game and each coming step.

Chunks keep those together who were put in together, so that going through a slot is going through memory in order.
This room knows neither lists nor resources.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

# Steps that a calendar has slots for, twice: for who looks, and for who attempts again.
RING = 128

# Entries in a chunk. Rounds handle as many at a time: what is read for them stays in the first-level cache.
BATCH = 512

# No chunk.
NONE = np.uint32((1 << 32) - 1)

# All that is used as an index is unsigned, so that numba need not ask whether it counts from the end.
SIZE, INSIDE = np.uint64(BATCH), np.uint64(BATCH - 1)
ZERO, ONE = np.uint64(0), np.uint64(1)


class Calendar(NamedTuple):
    """For each part and coming step, chunks of entries: of who looks, and `RING` slots further, of who attempts again.

    `room` is how many entries the chunks of a slot have room for; `spare` is the first chunk that is free again, and
    the first that was never used.
    """

    pool: NDArray[np.uint64]
    following: NDArray[np.uint32]
    first: NDArray[np.uint32]
    end: NDArray[np.uint64]
    room: NDArray[np.int64]
    spare: NDArray[np.uint32]


def new_calendar(agents: int, parts: int) -> Calendar:
    """Return an empty calendar, with room for everybody in each part; memory that is never touched costs nothing."""
    chunks, slots = agents // BATCH + 2 * RING + 1, 2 * RING
    return Calendar(
        pool=np.empty((parts, chunks * BATCH), dtype=np.uint64),
        following=np.empty((parts, chunks), dtype=np.uint32),
        first=np.full((parts, slots), NONE, dtype=np.uint32),
        end=np.zeros((parts, slots), dtype=np.uint64),
        room=np.zeros((parts, slots), dtype=np.int64),
        spare=np.tile(np.array([NONE, 0], dtype=np.uint32), (parts, 1)),
    )


def empty(calendar: Calendar) -> None:
    """Make a calendar as if it were new."""
    calendar.first[:], calendar.end[:], calendar.room[:], calendar.spare[:] = NONE, 0, 0, (NONE, 0)


@numba.njit(cache=True, nogil=True)
def put(part, slots, entries, count, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Add entries to slots of a part's calendar."""
    pool, following, first, ends = calendar.pool, calendar.following, calendar.first, calendar.end
    room, spare = calendar.room, calendar.spare
    for place in range(count):
        slot = slots[place]
        end = ends[part, slot]
        if end & INSIDE == ZERO:
            chunk = spare[part, 0]
            if chunk == NONE:
                chunk = spare[part, 1]
                spare[part, 1] += np.uint32(1)
            else:
                spare[part, 0] = following[part, chunk]
            following[part, chunk], first[part, slot] = first[part, slot], chunk
            room[part, slot] += BATCH
            end = chunk * SIZE
        pool[part, end] = entries[place]
        ends[part, slot] = end + ONE


@numba.njit(cache=True, nogil=True)
def take(part, slot, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Take the chunks out of a slot; return the first, and where it ends."""
    chunk, end = calendar.first[part, slot], calendar.end[part, slot]
    calendar.first[part, slot], calendar.end[part, slot], calendar.room[part, slot] = NONE, 0, 0
    return chunk, end


@numba.njit(cache=True, nogil=True)
def give_back(part, chunk, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Let a chunk be used again, now that its entries are copied; return the next one, and where it ends."""
    after = calendar.following[part, chunk]
    calendar.following[part, chunk], calendar.spare[part, 0] = calendar.spare[part, 0], chunk
    return after, (np.uint64(after) + ONE) * SIZE

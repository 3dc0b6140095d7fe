"""ALMA on lists that many agents may share: attempt, back off by chance, and look at what comes next on the list.

All that an agent acts on is its list (`matchers.lists.ValueLists`): where the list follows from a report, playing
reveals no more than the report. An agent has a clone for each unit of its demand, and each clone does one thing a step:
it attempts a resource, or looks at one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.errors import DidNotConverge
from palmatch.matchers.contest import (
    CLOSED,
    COLLIDED,
    PAIRED,
    WON,
    clones_of,
    is_closed,
    is_contested,
    make_contest,
    settle_attempts,
)
from palmatch.matchers.lists import ValueLists
from palmatch.matching import Outcome, Trace, TraceParts
from palmatch.problem import Capacities, FloatArray, IntArray, unit_capacities
from palmatch.streams import BACKOFF, Keys, compiled_draw

_STEPS_AT_ONCE = 256
MOST_STEPS = 10_000_000

# Compiled code takes plain numbers.
_HOLDS, _STAYS, _BACKS_OFF, _FREE, _TAKEN = (
    int(outcome) for outcome in (Outcome.HOLDS, Outcome.STAYS, Outcome.BACKS_OFF, Outcome.FREE, Outcome.TAKEN)
)

# What a clone does next. DOUBTS: it has just seen something taken, and first checks that its list has something open.
LOOKS, ATTEMPTS, DOUBTS = 0, 1, 2


@dataclass(frozen=True, slots=True)
class AlmaResult:
    """How the game ended: each agent's resource (-1: none), or units (agent, resource), and the steps."""

    resource_of: IntArray
    rounds: int
    trace: Trace | None = None


class _Game(NamedTuple):
    """Streams and lists of clones, back-off chances of all entries; the clones that play, their entries and modes.

    Everything on a clone's list before `front` is closed to it.
    """

    streams: Keys
    list_of: IntArray
    start: IntArray
    resources: IntArray
    chances: IntArray
    queue: IntArray
    entry: IntArray
    front: IntArray
    mode: NDArray[np.int8]


def best_first(lists: ValueLists, discount: FloatArray | None = None) -> ValueLists:
    """Return the same lists with what is worth most first; ties stay in the order in which they came, by public id.

    `discount` is taken off the value of each resource before it is compared; values stay as they are.
    """
    number = np.repeat(np.arange(len(lists.start) - 1), np.diff(lists.start))
    net = lists.values if discount is None else lists.values - discount[lists.resources]
    order = np.lexsort((-net, number))
    return ValueLists(lists.list_of, lists.start, lists.resources[order], lists.values[order])


def run_alma(
    lists: ValueLists,
    chances: IntArray,
    *,
    resources: int,
    stream_keys: Keys,
    capacities: Capacities | None = None,
    most_steps: int = MOST_STEPS,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> AlmaResult:
    """Play until each clone holds a unit or everything on its list is closed to it; `lists` have the best first.

    `chances` are those of backing off, over GRID, at each entry of the lists; after the last comes the first. With
    `capacities` the result's `resource_of` has one row (agent, resource) for every unit.
    """
    limits = unit_capacities(len(lists.list_of), resources) if capacities is None else capacities
    clones = clones_of(limits)
    contest, count = make_contest(clones, np.arange(resources)), len(clones.owner)
    list_of = lists.list_of[clones.owner]
    entry, mode = lists.start[list_of], np.full(count, ATTEMPTS, dtype=np.int8)
    game = _Game(
        clones.streams(stream_keys), list_of, lists.start, lists.resources, chances,
        np.arange(count), entry, entry.copy(), mode,
    )  # fmt: skip
    step, active, seen = 0, count, TraceParts()
    while active:
        if step >= most_steps:
            raise DidNotConverge(f"{active} of {count} players were still playing after {most_steps:,} steps.")
        until = min(step + (1 if trace else _STEPS_AT_ONCE), most_steps)
        buffers = seen.room(active if trace else 0)
        outcome = np.zeros(len(buffers[0]), dtype=np.int64)
        step, active = play_steps(game, contest, active, (step, until), (*buffers[:2], outcome))
        if trace:
            seen.add(buffers, step, outcome)
        if progress is not None:
            progress(count - active, count)
    held = contest.holds
    if capacities is not None:
        won = np.flatnonzero(held >= 0)
        held = np.column_stack((clones.owner[won], held[won]))
    return AlmaResult(held, step, seen.trace() if trace else None)


@numba.njit(cache=True, nogil=True)
def play_steps(game, contest, active, steps, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play from one step up to another, or until no clone plays; return (steps played, clones left)."""
    stream_keys, list_of, start, resources, chances, queue, entry_of, front, mode = game
    owner, board, attempting, result = contest.owner, contest.board, contest.attempting, contest.result
    trace_agent, trace_resource, trace_outcome = trace
    tracing, at, (step, until) = len(trace_agent) > 0, np.zeros(len(mode), dtype=np.int64), steps
    while step < until:
        playing = 0
        for clone in queue[:active]:
            if mode[clone] == DOUBTS:
                stop = start[list_of[clone] + 1]
                while front[clone] < stop and is_closed(contest, owner[clone], resources[front[clone]]):
                    front[clone] += 1
                if front[clone] == stop:
                    continue
                mode[clone] = LOOKS
            attempting[clone], at[clone] = mode[clone] == ATTEMPTS, resources[entry_of[clone]]
            queue[playing] = clone
            playing += 1
        active = playing
        if active == 0:
            break
        step += 1
        settle_attempts(contest, queue[:active], at, step)
        kept = 0
        for index in range(active):
            clone = queue[index]
            entry, resource, outcome = entry_of[clone], at[clone], _TAKEN
            if result[clone] == PAIRED and not attempting[clone]:
                continue
            if result[clone] == WON:
                outcome = _HOLDS
            elif result[clone] == COLLIDED:
                gives_way = compiled_draw(stream_keys[clone], step, BACKOFF) < chances[entry]
                mode[clone] = LOOKS if gives_way else ATTEMPTS
                outcome = _BACKS_OFF if gives_way else _STAYS
            elif result[clone] in (CLOSED, PAIRED):
                mode[clone] = DOUBTS
            else:
                number = list_of[clone]
                entry = entry + 1 if entry + 1 < start[number + 1] else start[number]
                entry_of[clone], resource = entry, resources[entry]
                free = not is_contested(board, resource, step) and not is_closed(contest, owner[clone], resource)
                mode[clone] = ATTEMPTS if free else DOUBTS
                outcome = _FREE if free else _TAKEN
            if tracing:
                trace_agent[index], trace_resource[index], trace_outcome[index] = owner[clone], resource, outcome
            if result[clone] in (WON, PAIRED):
                continue
            queue[kept] = clone
            kept += 1
        active = kept
    return step, active

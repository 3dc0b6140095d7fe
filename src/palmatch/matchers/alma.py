"""ALMA on lists that many agents may share: attempt, back off by chance, and look at what comes next on the list.

All that an agent acts on is its list (`matchers.lists.ValueLists`): where the list follows from a report, playing
reveals no more than the report. An agent has a player for each unit of its demand, and each player does one thing a
step: it attempts a resource, or looks at one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np

from palmatch.errors import DidNotConverge
from palmatch.matchers.lists import ValueLists
from palmatch.matching import Outcome, Trace
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import BACKOFF, Keys, compiled_draw
from palmatch.rounds.recording import TraceParts
from palmatch.rounds.seats import CLOSED, COLLIDED, PAIRED, WON, closed, contested, new_board, players_of, settle
from palmatch.seats import Seats, one_each

_STEPS_AT_ONCE = 256
MOST_STEPS = 10_000_000

# Compiled code takes plain numbers.
_HOLDS, _STAYS, _BACKS_OFF, _FREE, _TAKEN = (
    int(outcome) for outcome in (Outcome.HOLDS, Outcome.STAYS, Outcome.BACKS_OFF, Outcome.FREE, Outcome.TAKEN)
)

# What a player does next. DOUBTS: it has just seen something taken, and first checks that its list has something open.
LOOKS, ATTEMPTS, DOUBTS = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Ended:
    """How the game ended: each agent's resource (-1: none), or units (agent, resource), and the steps."""

    resource_of: IntArray
    rounds: int
    trace: Trace | None = None


def best_first(lists: ValueLists, discount: FloatArray | None = None) -> ValueLists:
    """Return the same lists with what is worth most first; ties stay in the order in which they came, by public id.

    `discount` is taken off the value of each resource before it is compared; values stay as they are.
    """
    number = np.repeat(np.arange(len(lists.start) - 1), np.diff(lists.start))
    net = lists.values if discount is None else lists.values - discount[lists.resources]
    order = np.lexsort((-net, number))
    return ValueLists(lists.list_of, lists.start, lists.resources[order], lists.values[order])


def play_lists(
    lists: ValueLists,
    chances: IntArray,
    *,
    resources: int,
    names: Keys,
    seats: Seats | None = None,
    most_steps: int = MOST_STEPS,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Ended:
    """Play until each player holds a seat or everything on its list is closed to it; `lists` have the best first.

    `chances` are those of backing off, over GRID, at each entry of the lists; after the last comes the first. With
    `seats` the result's `resource_of` has one row (agent, resource) for every unit.
    """
    players = players_of(one_each(len(lists.list_of), resources) if seats is None else seats)
    count, list_of = len(players.owner), lists.list_of[players.owner]
    holds, entry = np.full(count, -1, dtype=np.int64), lists.start[list_of]
    mode = np.full(count, ATTEMPTS, dtype=np.int8)
    state = (np.arange(count), entry, entry.copy(), mode, np.zeros(count, dtype=np.int8))
    game = (players.streams(names), players.owner, list_of, lists.start, lists.resources)
    limits = None if seats is None else players.limits
    board, step, active, seen = new_board(resources), 0, count, TraceParts()
    while active:
        if step >= most_steps:
            raise DidNotConverge(f"{active} of {count} players were still playing after {most_steps:,} steps.")
        until = min(step + (1 if trace else _STEPS_AT_ONCE), most_steps)
        buffers = seen.room(active if trace else 0)
        outcome = np.zeros(len(buffers[0]), dtype=np.int64)
        step, active = play_steps(
            game, chances, limits, board, state, holds, active, step, until, (*buffers[:2], outcome)
        )
        if trace:
            seen.add(buffers, step, outcome)
        if progress is not None:
            progress(count - active, count)
    return Ended(holds if seats is None else players.units(holds), step, seen.trace() if trace else None)


@numba.njit(cache=True, nogil=True)
def play_steps(game, chances, limits, board, state, holds, active, step, until, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play steps; return (steps, players left)."""
    names, owner, list_of, start, resources = game
    queue, entry_of, front, mode, result = state
    trace_agent, trace_resource, trace_outcome = trace
    tracing = len(trace_agent) > 0
    taken = board[0]
    attempting, at = np.zeros(len(mode), dtype=np.bool_), np.zeros(len(mode), dtype=np.int64)
    while step < until:
        # Not the literal 0, for which numba compiles `settle` once more.
        playing = np.int64(0)
        for index in range(active):
            player = queue[index]
            if mode[player] == DOUBTS:
                stop = start[list_of[player] + 1]
                while front[player] < stop and closed(limits, holds, taken, owner[player], resources[front[player]]):
                    front[player] += 1
                if front[player] == stop:
                    continue
                mode[player] = LOOKS
            attempting[player], at[player] = mode[player] == ATTEMPTS, resources[entry_of[player]]
            queue[playing] = player
            playing += 1
        active = playing
        if active == 0:
            break
        step += 1
        settle(step, queue, active, owner, attempting, at, limits, holds, board, result)
        kept = 0
        for index in range(active):
            player = queue[index]
            entry, resource, outcome = entry_of[player], at[player], _TAKEN
            if result[player] == PAIRED and not attempting[player]:
                continue
            if result[player] == WON:
                outcome = _HOLDS
            elif result[player] == COLLIDED:
                gives_way = compiled_draw(names[player], step, BACKOFF) < chances[entry]
                mode[player] = LOOKS if gives_way else ATTEMPTS
                outcome = _BACKS_OFF if gives_way else _STAYS
            elif result[player] in (CLOSED, PAIRED):
                mode[player] = DOUBTS
            else:
                number = list_of[player]
                entry = entry + 1 if entry + 1 < start[number + 1] else start[number]
                entry_of[player], resource = entry, resources[entry]
                free = not contested(board, resource, step) and not closed(
                    limits, holds, taken, owner[player], resource
                )
                mode[player] = ATTEMPTS if free else DOUBTS
                outcome = _FREE if free else _TAKEN
            if tracing:
                trace_agent[index], trace_resource[index], trace_outcome[index] = owner[player], resource, outcome
            if result[player] in (WON, PAIRED):
                continue
            queue[kept] = player
            kept += 1
        active = kept
    return step, active

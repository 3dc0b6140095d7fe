"""ALMA on lists where resources have several seats and agents several units: `rounds.turns` for the general case.

With one seat and one unit each it is the same game, draw for draw.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from palmatch.errors import DidNotConverge
from palmatch.matching import Outcome
from palmatch.policies.turns import COIN
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import BACKOFF, Keys, compiled_draw
from palmatch.rounds.recording import TraceParts
from palmatch.rounds.seats import CLOSED, COLLIDED, PAIRED, WON, closed, contested, new_board, players_of, settle
from palmatch.rounds.turns import ATTEMPTS, DOUBTS, LOOKS, MOST_STEPS, Ended, Patience, Turns, decayed_chance
from palmatch.seats import Seats

_STEPS_AT_ONCE = 256
_NONE = np.empty(0, dtype=np.int64)

# Compiled code takes plain numbers.
_HOLDS, _STAYS, _BACKS_OFF, _FREE, _TAKEN = (
    int(outcome) for outcome in (Outcome.HOLDS, Outcome.STAYS, Outcome.BACKS_OFF, Outcome.FREE, Outcome.TAKEN)
)


def take_turns_for_seats(
    lists: ValueLists,
    rule: Turns,
    *,
    seats: Seats,
    names: Keys,
    most_steps: int = MOST_STEPS,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Ended:
    """Play until each player holds a seat or everything on its list is closed to it; `lists` have the best first.

    The result's `resource_of` has one row (agent, resource) for every unit.
    """
    players = players_of(seats)
    count, list_of = len(players.owner), lists.list_of[players.owner]
    holds, entry = np.full(count, -1, dtype=np.int64), lists.start[list_of]
    patient = isinstance(rule, Patience)
    opens = _NONE if isinstance(rule, Patience) else rule.opens
    patience = (rule.chances, rule.every, rule.floor) if isinstance(rule, Patience) else (_NONE, 0, 1)
    at_once = np.ones(count, np.bool_) if patient else opens[entry] <= 1
    mode = np.where(at_once, ATTEMPTS, LOOKS).astype(np.int8)
    state = (np.arange(count), entry, entry.copy(), mode, np.zeros(count, dtype=np.int8))
    game = (players.streams(names), players.owner, list_of, lists.start, lists.resources)
    board, step, active, seen = new_board(len(seats.capacity)), 0, count, TraceParts()
    while active:
        if step >= most_steps:
            raise DidNotConverge(f"{active} of {count} units were still played for after {most_steps:,} steps.")
        until = min(step + (1 if trace else _STEPS_AT_ONCE), most_steps)
        buffers = seen.room(active if trace else 0)
        outcome = np.zeros(len(buffers[0]), dtype=np.int64)
        step, active = play_turns(
            game, (opens, *patience), players.limits, board, state, holds, active, step, until, (*buffers[:2], outcome)
        )
        if trace:
            seen.add(buffers, step, outcome)
        if progress is not None:
            progress(count - active, count)
    return Ended(players.units(holds), step, seen.trace() if trace else None)


@numba.njit(cache=True)
def play_turns(game, rule, limits, board, state, holds, active, step, until, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play steps under back-off chances or, where `opens` is not empty, a threshold; return (steps, players left)."""
    names, owner, list_of, start, resources = game
    opens, chances, every, floor = rule
    queue, entry_of, hope, mode, result = state
    trace_agent, trace_resource, trace_outcome = trace
    tracing, threshold = len(trace_agent) > 0, len(opens) > 0
    taken = board[0]
    attempting, at = np.zeros(len(mode), dtype=np.bool_), np.zeros(len(mode), dtype=np.int64)
    while step < until:
        kept = 0
        for index in range(active):
            player = queue[index]
            if mode[player] == DOUBTS:
                stop = start[list_of[player] + 1]
                while hope[player] < stop and closed(limits, holds, taken, owner[player], resources[hope[player]]):
                    hope[player] += 1
                if hope[player] == stop:
                    continue
                mode[player] = LOOKS
            attempting[player], at[player] = mode[player] == ATTEMPTS, resources[entry_of[player]]
            queue[kept] = player
            kept += 1
        active = kept
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
                chance = COIN if threshold else decayed_chance(chances[entry], step, every, floor)
                gives_way = compiled_draw(names[player], step, BACKOFF) < chance
                mode[player] = LOOKS if gives_way else ATTEMPTS
                outcome = _BACKS_OFF if gives_way else _STAYS
            elif result[player] in (CLOSED, PAIRED):
                mode[player] = LOOKS if threshold else DOUBTS
            elif threshold:
                if closed(limits, holds, taken, owner[player], resource):
                    entry_of[player] = entry + 1
                    if entry + 1 < start[list_of[player] + 1]:
                        resource = resources[entry + 1]
                elif not contested(board, resource, step) and opens[entry] <= step + 1:
                    mode[player], outcome = ATTEMPTS, _FREE
                else:
                    resource = -1
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
            if result[player] in (WON, PAIRED) or entry_of[player] == start[list_of[player] + 1]:
                continue
            queue[kept] = player
            kept += 1
        active = kept
    return step, active

"""The game of rounds where resources have several seats and agents several units: `rounds.game` for the general case.

Each player is a `device.agent.Agent` of its own, with a share of its agent's budget, so that what all of them are
charged stays within it. That a resource is closed to an agent (full, in conflict, already its own) is public, and
reaches a player as the answer "taken". With one seat and one unit each it is the same game, draw for draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace

import numba
import numpy as np

from palmatch.device.agent import Rules
from palmatch.errors import DidNotConverge
from palmatch.policies.compiled import backoff_weight, expected_utility, fill_weights, pick
from palmatch.privacy.accountants import Allowance
from palmatch.rounds.draws import BACKOFF, BACKOFF_COIN, SELECTION, SELECTION_COIN, Keys, counter
from palmatch.rounds.game import MOST_STEPS, Outcomes, as_trace, fresh_state, trace_buffers
from palmatch.rounds.kernel import (
    ATTEMPTS,
    DOUBTS,
    LOOKS,
    drawn,
    first_picks,
    gather,
    new_scratch,
)
from palmatch.rounds.seats import CLOSED, PAIRED, WON, closed, contested, limits_of, new_board, players_of, settle
from palmatch.rounds.tables import Own, PublicTables
from palmatch.seats import Seats

_STEPS_AT_ONCE = 256
_HOLDS, _STAYS, _BACKS_OFF, _FREE, _TAKEN = 0, 1, 2, 3, 4


def simulate_seats(
    public: PublicTables,
    private: Own,
    rules: Rules,
    allowance: Allowance,
    *,
    seats: Seats,
    names: Keys,
    trace: bool = False,
    most_steps: int = MOST_STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> Outcomes:
    """Play until every player holds a seat or has nothing left to hope for.

    `resource_of` of the result has one row (agent, resource) for every unit; `spent` and `charged` are sums over each
    agent's players.
    """
    players = players_of(seats)
    count = len(players.owner)
    tables = (public.region_of_agent[players.owner], *public.arrays[1:])
    budget, streams = players.shares(allowance.budget), players.streams(names)
    own, prices = private.arrays(players.owner), (allowance.first, allowance.selection, allowance.backoff)
    state, numbers = fresh_state(count), astuple(rules)
    first_picks((0, count), streams, numbers, prices, tables, own, budget, state, public.largest_set)
    # Limits speak of resources as the problem does, tables by numbers of their own.
    limits = limits_of(seats, public.rows, players.first)
    holds, active, hope = np.full(count, -1, dtype=np.int64), np.arange(count), public.resource_start[tables[0]].copy()
    more = (players.owner, limits, new_board(len(public.rows)), holds, hope, np.zeros(count, dtype=np.int8))
    step, left, actions, parts = 1, count, 0, [trace_buffers(0)]
    while left:
        if step > most_steps:
            raise DidNotConverge(f"{left} of {count} units were still played for after {most_steps:,} steps.")
        until = min(step + (1 if trace else _STEPS_AT_ONCE), most_steps + 1)
        buffers = trace_buffers(left if trace else 0)
        step, left, done = play_seats(
            streams, numbers, prices, tables, own, budget, state, more, active, left, (step, until),
            public.largest_set, buffers,
        )  # fmt: skip
        actions += done
        if trace:
            parts.append(tuple(buffer[:done] for buffer in buffers))
        if progress is not None:
            progress(count - left, count)
    seen = as_trace(parts) if trace else None
    if seen is not None:
        seen = replace(seen, resource=public.rows[seen.resource])
    units = players.units(np.where(holds >= 0, public.rows[holds], -1))
    return Outcomes(units, players.summed(state[3]), players.summed(state[4]), step - 1, seen, actions)


@numba.njit(cache=True)
def next_open(player, more, public, following, draw):  # type: ignore[no-untyped-def]  # compiled
    """Return (entry, rank set) that a draw falls on by the region's noise, or the next one that is not closed."""
    owner, limits, board, holds, _, _ = more
    region_of_agent, resource_start, resources, rank_start, entry_start, entries, below, _, _ = public
    region = region_of_agent[player]
    place, first, last = resource_start[region], rank_start[region], rank_start[region + 1]
    first_entry = -1
    for offset in range(last - first):
        rank = first + (following - first + offset) % (last - first)
        start, stop = entry_start[rank], entry_start[rank + 1]
        fell = start
        while below[fell] <= draw:
            fell += 1
        first_entry = fell if offset == 0 else first_entry
        for shift in range(stop - start):
            here = start + (fell - start + shift) % (stop - start)
            if not closed(limits, holds, board[0], owner[player], resources[place + entries[here]]):
                return here, rank
    return first_entry, following


@numba.njit(cache=True)
def play_seats(names, rules, prices, public, private, budget, state, more, active, count, steps, largest_set, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play from one step up to another, or until no player is active; return (next step, active players, actions)."""
    truth_selection, truth_backoff, gamma, spent_backoff = rules
    _, selection_units, backoff_units = prices
    region_of_agent, resource_start, resources, rank_start, entry_start, entries, below, _, backoff = public
    entry, rank, mode, spent, actions, exhausted, _, at = state
    owner, limits, board, holds, _, result = more
    trace_step, trace_agent, trace_resource, trace_outcome = trace
    tracing, taken = len(trace_step) > 0, board[0]
    values, weights, places = new_scratch(largest_set)
    attempting = np.zeros(len(mode), dtype=np.bool_)
    step, last_step, acted = steps[0], steps[1], 0
    while count > 0 and step < last_step:
        for index in range(count):
            attempting[active[index]] = mode[active[index]] == ATTEMPTS
        settle(step, active, count, owner, attempting, at, limits, holds, board, result)
        for index in range(count):
            player = active[index]
            if result[player] == PAIRED and not attempting[player]:
                continue
            here, resource, outcome = entry[player], at[player], _TAKEN
            if result[player] == WON:
                outcome = _HOLDS
            elif result[player] in (CLOSED, PAIRED):
                mode[player] = DOUBTS
            else:
                region = region_of_agent[player]
                first, last = rank_start[region], rank_start[region + 1]
                following = first + rank[player] + 1 if first + rank[player] + 1 < last else first
                start, stop = entry_start[following], entry_start[following + 1]
                attempts = attempting[player]
                # Charge the action if there is room for it; once there is none, never again.
                truthful = False
                if not exhausted[player]:
                    units = backoff_units[here] if attempts else selection_units[following]
                    if spent[player] + units > budget[player]:
                        exhausted[player] = True
                    else:
                        spent[player] += units
                        actions[player] += units > 0
                        coin = counter(step, BACKOFF_COIN if attempts else SELECTION_COIN)
                        truthful = drawn(names[player], coin) < (truth_backoff if attempts else truth_selection)
                if truthful:
                    gather(private, player, public, start, stop, here if attempts else start, values)
                if attempts:
                    chance = spent_backoff if spent_backoff > 0 and exhausted[player] else backoff[here]
                    if truthful:
                        alternative = expected_utility(values, places, 0, stop - start)
                        chance = backoff_weight(values[stop - start], alternative, gamma)
                    backs_off = drawn(names[player], counter(step, BACKOFF)) < chance
                    mode[player] = LOOKS if backs_off else ATTEMPTS
                    outcome = _BACKS_OFF if backs_off else _STAYS
                else:
                    draw = drawn(names[player], counter(step, SELECTION))
                    if truthful:
                        fill_weights(values, places, 0, stop - start, weights)
                        here = start + pick(weights, draw)
                    elif spent_backoff > 0 and exhausted[player]:
                        here, following = next_open(player, more, public, following, draw)
                    else:
                        here = start
                        while below[here] <= draw:
                            here += 1
                    resource = resources[resource_start[region] + entries[here]]
                    rank[player] = following - first
                    entry[player], at[player] = here, resource
                    free = not contested(board, resource, step)
                    free = free and not closed(limits, holds, taken, owner[player], resource)
                    mode[player] = ATTEMPTS if free else DOUBTS
                    outcome = _FREE if free else _TAKEN
            if tracing:
                trace_step[acted], trace_agent[acted] = step, owner[player]
                trace_resource[acted], trace_outcome[acted] = resource, outcome
            acted += 1
        count = still_active(active, count, public, state, more)
        step += 1
    return step, count, acted


@numba.njit(cache=True)
def still_active(active, count, public, state, more):  # type: ignore[no-untyped-def]  # compiled
    """Let go of those who hold a seat and of those to whom everything is closed; return how many are left."""
    region_of_agent, resource_start, resources, _, _, _, _, _, _ = public
    mode = state[2]
    owner, limits, board, holds, hope, result = more
    kept = 0
    for index in range(count):
        player = active[index]
        if result[player] in (WON, PAIRED):
            continue
        if mode[player] == DOUBTS:
            stop = resource_start[region_of_agent[player] + 1]
            # What is closed stays closed.
            while hope[player] < stop and closed(limits, holds, board[0], owner[player], resources[hope[player]]):
                hope[player] += 1
            if hope[player] == stop:
                continue
            mode[player] = LOOKS
        active[kept] = player
        kept += 1
    return kept

"""The auction of `rounds.auction` where resources have several seats and agents several units.

A resource holds as many of the highest bids as it has seats; once it is full, its price is the lowest of them. An agent
that wants d more units bids for its d best resources after prices, for each as much as it could pay before the next
best one became worth more, plus a public step; never twice for one resource (Bertsekas and Castañon 1989, all agents
at once). With one seat and one unit each it is the same auction, bid for bid.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numba
import numpy as np

from palmatch.errors import InputError
from palmatch.matching import Outcome
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.auction import Calls, Sale, ValueLists, sell
from palmatch.rounds.draws import SELECTION, Keys, compiled_draw
from palmatch.rounds.exchange import exchange
from palmatch.rounds.recording import TraceParts
from palmatch.rounds.seats import barred, players_of
from palmatch.seats import Seats

# A list's best entries are kept for all its agents: a few more than any of them wants, but not very many.
_SPARE, _DEEPEST = 8, 64

# Seats that bids are kept for, over all resources: more would take gigabytes.
_MOST_SEATS = 100_000_000


def sell_units(problem: Problem, lists: ValueLists, opening: FloatArray, step: float, **rest: Any) -> Sale:
    """Sell the resources of a problem; with several seats or units `resource_of` has a row (agent, resource) a unit."""
    if problem.seats is None:
        return sell(lists, opening, step, **rest)
    return sell_seats(lists, opening, step, seats=problem.seats, **rest)


def sell_seats(
    lists: ValueLists,
    opening: FloatArray,
    step: float,
    *,
    seats: Seats,
    names: Keys,
    patience: int | None = None,
    most_rounds: int = 1_000_000,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Sale:
    """Let agents bid until none of them wants to; see `rounds.auction.sell` for calls, patience and public streams."""
    players = players_of(seats)
    total = len(players.owner)
    # More seats than agents are never taken.
    left = np.minimum(seats.capacity, int((seats.demand > 0).sum()))
    if left.sum() > _MOST_SEATS:
        raise InputError(f"Capacities come to {left.sum():,} seats, more than {_MOST_SEATS:,}: choose smaller ones.")
    seat_start = np.concatenate(([0], np.cumsum(left))).astype(np.int64)
    bids = (np.empty(seat_start[-1]), np.empty(seat_start[-1], np.int64), np.empty(seat_start[-1], np.int64))
    table = (lists.list_of, lists.start, lists.resources, lists.values)
    holds, wants = np.full(total, -1, dtype=np.int64), seats.demand.copy()
    floor, sold_for = opening.copy(), np.full(len(opening), np.nan)
    queue = np.empty(len(wants), dtype=np.int64)
    calls, seen = Calls(step, patience, most_rounds, trace), TraceParts()

    def bid(waiting: int, step: float, rounds: int, until: int) -> tuple[int, int]:
        buffers = seen.room(int(wants[queue[:waiting]].sum()) if trace else 0)
        board = (seat_start, left, used, bids, prices)
        rounds, waiting = bid_for_seats(
            names, table, players.limits, board, holds, wants, queue, waiting, step, rounds, until, buffers
        )
        if trace:
            seen.add(buffers, rounds, _led(buffers, players.first, holds))
        if progress is not None:
            progress(total - int(wants.sum()), total)
        return rounds, waiting

    for call in count():
        used, prices = np.zeros(len(left), dtype=np.int64), np.where(left > 0, floor, np.inf)
        free = np.flatnonzero(wants > 0)
        queue[: len(free)] = free
        calls.play(len(free), bid)
        sold = used > 0
        sold_for[sold] = prices[sold]
        left = left - used
        if len(free) == 0 or (call > 0 and not sold.any()):
            break
        floor = np.zeros(len(left))
    if len(seats.conflicts):
        exchange(lists, players, holds, wants)
    posted = np.where(np.isnan(sold_for), 0.0, sold_for)
    return Sale(players.units(holds), posted, calls.rounds, seen.trace() if trace else None)


def _led(buffers: tuple[IntArray, IntArray, FloatArray], first: IntArray, holds: IntArray) -> IntArray:
    """Return what came of the bids of one round."""
    agents, resources, _ = buffers
    leads = [
        resource in holds[first[agent] : first[agent + 1]] for agent, resource in zip(agents, resources, strict=True)
    ]
    return np.where(leads, Outcome.LEADS, Outcome.LOSES)


@numba.njit(cache=True)
def best_entries(table, limits, holds, prices, agent, wanted, gains, entries):  # type: ignore[no-untyped-def]  # compiled
    """Write an agent's best entries after prices, one more than it wants, best first; return how many there are."""
    list_of, start, resources, values = table
    kept = 0
    for entry in range(start[list_of[agent]], start[list_of[agent] + 1]):
        gain = values[entry] - prices[resources[entry]]
        if gain < 0.0 or (kept > wanted and gain <= gains[wanted]) or barred(limits, holds, agent, resources[entry]):
            continue
        place = kept if kept <= wanted else wanted
        while place > 0 and gains[place - 1] < gain:
            gains[place], entries[place] = gains[place - 1], entries[place - 1]
            place -= 1
        gains[place], entries[place] = gain, entry
        kept = min(kept + 1, wanted + 1)
    return kept


@numba.njit(cache=True)
def best_of_list(table, prices, number, gains, entries):  # type: ignore[no-untyped-def]  # compiled
    """Write a list's best entries after prices, best first, as many as there is room for; return how many there are."""
    _, start, resources, values = table
    kept, last = 0, len(gains) - 1
    for entry in range(start[number], start[number + 1]):
        gain = values[entry] - prices[resources[entry]]
        if gain < 0.0 or (kept > last and gain <= gains[last]):
            continue
        place = min(kept, last)
        while place > 0 and gains[place - 1] < gain:
            gains[place], entries[place] = gains[place - 1], entries[place - 1]
            place -= 1
        gains[place], entries[place] = gain, entry
        kept = min(kept + 1, last + 1)
    return kept


@numba.njit(cache=True)
def lowest_seat(bids, first, count):  # type: ignore[no-untyped-def]  # compiled
    """Return the seat that the next higher bid takes: the lowest bid, of equal ones the one with the larger draw."""
    amounts, drawn, _ = bids
    lowest = first
    for seat in range(first + 1, first + count):
        if amounts[seat] < amounts[lowest] or (amounts[seat] == amounts[lowest] and drawn[seat] > drawn[lowest]):
            lowest = seat
    return lowest


@numba.njit(cache=True)
def release(first, holds, wants, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Take a resource from an agent."""
    wants[agent] += 1
    for player in range(first[agent], first[agent + 1]):
        if holds[player] == resource:
            holds[player] = -1
            break


@numba.njit(cache=True)
def hold(first, holds, wants, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Give a resource to an agent."""
    wants[agent] -= 1
    for player in range(first[agent], first[agent + 1]):
        if holds[player] < 0:
            holds[player] = resource
            break


@numba.njit(cache=True)
def place_bid(board, limits, holds, wants, agent, resource, offer, chance):  # type: ignore[no-untyped-def]  # compiled
    """Take a bid if there is a free seat or a lower bid; return the agent that goes without because of it, or -1."""
    seat_start, left, used, bids, _ = board
    amounts, drawn, by = bids
    first = limits[3]
    if used[resource] < left[resource]:
        seat, out = seat_start[resource] + used[resource], -1
        used[resource] += 1
    else:
        seat = lowest_seat(bids, seat_start[resource], left[resource])
        if offer < amounts[seat] or (offer == amounts[seat] and chance >= drawn[seat]):
            return agent
        out = by[seat]
        release(first, holds, wants, out, resource)
    amounts[seat], drawn[seat], by[seat] = offer, chance, agent
    hold(first, holds, wants, agent, resource)
    return out


@numba.njit(cache=True)
def bid_for_seats(names, table, limits, board, holds, wants, queue, waiting, step, rounds, until, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play rounds of bidding; return (rounds played, agents that still want to bid)."""
    resources = table[2]
    seat_start, left, used, bids, prices = board
    trace_agent, trace_resource, trace_offer = trace
    tracing = len(trace_agent) > 0
    most = 0
    for agent in range(len(wants)):
        most = max(most, limits[3][agent + 1] - limits[3][agent])
    gains, entries = np.empty(most + 1), np.empty(most + 1, dtype=np.int64)
    # Agents of one list differ only in what is barred to them: a list's best entries are found once a round.
    lists, deep = len(table[1]) - 1, min(most + _SPARE, _DEEPEST)
    best, best_entry = np.empty((lists, deep)), np.empty((lists, deep), dtype=np.int64)
    listed, known_in = np.empty(lists, dtype=np.int64), np.full(lists, -1, dtype=np.int64)
    total = limits[3][len(wants)]
    bidders, chosen, offers = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64), np.empty(total)
    following, queued = np.empty(len(queue), dtype=np.int64), np.full(len(queue), -1, dtype=np.int64)
    while waiting > 0 and rounds < until:
        rounds += 1
        made = 0
        for index in range(waiting):
            agent = queue[index]
            wanted, number, found = wants[agent], table[0][agent], 0
            if known_in[number] != rounds:
                listed[number] = best_of_list(table, prices, number, best[number], best_entry[number])
                known_in[number] = rounds
            for place in range(listed[number]):
                if found <= wanted and not barred(limits, holds, agent, resources[best_entry[number, place]]):
                    gains[found], entries[found] = best[number, place], best_entry[number, place]
                    found += 1
            if found <= wanted and listed[number] == deep:
                found = best_entries(table, limits, holds, prices, agent, wanted, gains, entries)
            # Going without is worth nothing, so that no agent bids more than something is worth to it.
            second = gains[wanted] if found > wanted else 0.0
            for place in range(min(found, wanted)):
                resource = resources[entries[place]]
                bidders[made], chosen[made] = agent, resource
                offers[made] = prices[resource] + (gains[place] - second) + step
                if tracing:
                    trace_agent[made], trace_resource[made], trace_offer[made] = agent, resource, offers[made]
                made += 1
        kept = 0
        for index in range(made):
            agent, resource = bidders[index], chosen[index]
            chance = compiled_draw(names[agent], rounds, SELECTION)
            out = place_bid(board, limits, holds, wants, agent, resource, offers[index], chance)
            if out >= 0 and queued[out] != rounds:
                queued[out] = rounds
                following[kept] = out
                kept += 1
        for index in range(made):
            resource = chosen[index]
            if used[resource] == left[resource]:
                prices[resource] = bids[0][lowest_seat(bids, seat_start[resource], left[resource])]
        queue[:kept] = following[:kept]
        waiting = kept
    return rounds, waiting

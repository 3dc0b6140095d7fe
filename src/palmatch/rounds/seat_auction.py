"""The auction of `rounds.auction` where resources have several seats and agents several units.

A resource holds as many of the highest bids as it has seats; once it is full, its price is the lowest of them. An agent
that wants d more units bids for its d best resources after prices, for each as much as it could pay before the next
best one became worth more, plus a public step; never twice for one resource (Bertsekas and Castañon 1989, all agents
at once). With one seat and one unit each it is the same auction, bid for bid.

Agents with the same list and demand that hold nothing and have no conflicts bid alike: such a group looks once a round,
and only as many of its bids are placed as there are seats. Other agents bid one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

import numba
import numpy as np

from palmatch.errors import InputError
from palmatch.matching import Outcome
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.auction import Calls, Sale, ValueLists, numbered, sell
from palmatch.rounds.draws import SELECTION, Keys, compiled_draw, compiled_mix, counter
from palmatch.rounds.exchange import exchange
from palmatch.rounds.recording import TraceParts
from palmatch.rounds.seat_board import TOUCHED, close, place_bid
from palmatch.rounds.seat_lists import best_entries, known_of, look
from palmatch.rounds.seats import Players, barred, limits_of, players_of
from palmatch.rounds.tables import stable_order, starts
from palmatch.seats import Seats

# Up to so many bids of a group are found by insertion, which is sooner than sorting all.
_SEVERAL = 32

# Seats that bids are kept for, over all resources: more would take gigabytes.
_MOST_SEATS = 100_000_000


def sell_units(
    problem: Problem, lists: ValueLists, opening: FloatArray, step: float, *, fill: bool = False, **rest: Any
) -> Sale:
    """Sell the resources of a problem; with several seats or units `resource_of` has a row (agent, resource) a unit."""
    if problem.seats is None:
        return sell(lists, opening, step, **rest)
    return sell_seats(lists, opening, step, seats=problem.seats, fill=fill, **rest)


Arrays: TypeAlias = tuple[Any, ...]

# What is counted, besides resources that hold a bid (`TOUCHED`): waiting agents that bid one by one, waiting groups and
# their members, agents that lost in this round.
_SINGLE, _GROUPS, _MEMBERS, _LOSERS = 0, 1, 2, 3


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
    fill: bool = False,
) -> Sale:
    """Let agents bid until none of them wants to; see `rounds.auction.sell` for calls, patience and public streams.

    What is left open is closed by exchanges (`rounds.exchange`), with `fill` also where the lists lose by it.
    """
    # More seats than agents are never taken.
    room = np.minimum(seats.capacity, int((seats.demand > 0).sum()))
    if room.sum() > _MOST_SEATS:
        raise InputError(f"Capacities come to {room.sum():,} seats, more than {_MOST_SEATS:,}: choose smaller ones.")
    # Agents stand in the order of lists, and resources in that in which lists name them, as in `rounds.auction.sell`.
    agent_at, (numbers, rows) = stable_order(lists.list_of), numbered(lists.resources, len(opening))
    # Partners are resources like any other.
    players, left = players_of(replace(seats, mutual=False).of(agent_at)), room[rows]
    total, limits = len(players.owner), limits_of(players.seats, rows, players.first)
    seat_start = starts(left)
    bids = (np.empty(seat_start[-1]), np.empty(seat_start[-1], np.int64), np.empty(seat_start[-1], np.int64))
    prices, sold_for = np.where(left > 0, opening[rows], np.inf), np.full(len(rows), np.nan)
    counts = np.zeros(5, dtype=np.int64)
    board = (seat_start, left, np.zeros_like(left), bids, prices, np.empty_like(left), counts)
    holds, wants = np.full(total, -1, dtype=np.int64), players.seats.demand.copy()
    table = (lists.list_of[agent_at], lists.start, numbers, lists.values)
    known = known_of(lists, int(wants.max(initial=0)))
    streams = names[agent_at]
    groups, queues = _groups(table[0], players, known[0].shape[1], streams, counts)
    bidding, scratch = (streams, table, limits, known, groups), _scratch(players, groups[3])
    calls, seen = Calls(step, patience, most_rounds, trace), TraceParts()

    def bid(_waiting: int, step: float, rounds: int, until: int) -> tuple[int, int]:
        buffers = seen.room(int(wants.sum()) if trace else 0)
        rounds = bid_for_seats(bidding, board, holds, wants, queues, scratch, step, rounds, until, buffers)
        if trace:
            led = _led(buffers, players.first, holds)
            at, wanted, offers = buffers
            seen.add((agent_at[at], np.where(wanted < 0, -1, rows[wanted]), offers), rounds, led)
        if progress is not None:
            progress(total - int(wants.sum()), total)
        return rounds, int(counts[_SINGLE] + counts[_MEMBERS])

    for call in count():
        # Prices fall once, to nothing: from then on an agent for which nothing is worth its price waits for nothing.
        if call < 2:
            _all_wait(groups, queues, wants)
        # A call in which no agent can bid takes a round all the same.
        calls.play(int(counts[_SINGLE] + counts[_MEMBERS]) or int(wants.any()), bid)
        sold = close(board, sold_for)
        if not wants.any() or (call > 0 and sold == 0):
            break
        if call == 0:
            prices[left > 0], known[1][:] = 0.0, np.inf
    posted = np.empty(len(rows))
    posted[rows] = np.where(np.isnan(sold_for), 0.0, sold_for)
    units = _exchanged(lists, players_of(seats), agent_at, np.where(holds < 0, -1, rows[holds]), names, fill=fill)
    return Sale(units, posted, calls.rounds, seen.trace() if trace else None)


def _exchanged(
    lists: ValueLists, players: Players, agent_at: IntArray, held: IntArray, names: Keys, *, fill: bool
) -> IntArray:
    """Return the units after exchanges, of what agents in another order hold."""
    demand = players.seats.demand
    begins = starts(demand[agent_at])
    place = np.empty_like(agent_at)
    place[agent_at] = begins[:-1]
    holds = held[np.arange(len(held)) + (place - players.first[:-1])[players.owner]]
    wants = demand - np.bincount(players.owner[holds >= 0], minlength=len(demand))
    exchange(lists, players, holds, wants, names, fill=fill)
    return players.units(holds)


def _groups(list_of: IntArray, players: Players, deep: int, names: Keys, counts: IntArray) -> tuple[Arrays, Arrays]:
    """Return each agent's group (-1: none) with list, demand and first place of every group; and room for queues.

    Beside the members of a group that wait stand their streams, since every round draws from all of them.
    """
    seats = players.seats
    agents = len(seats.demand)
    alike = (np.diff(seats.conflict_start) == 0) & (seats.demand > 0) & (seats.demand < deep)
    pairs, of_alike = np.unique(list_of[alike] * deep + seats.demand[alike], return_inverse=True)
    group_of = np.full(agents, -1, dtype=np.int64)
    group_of[alike] = of_alike
    first = starts(np.bincount(of_alike, minlength=len(pairs)))
    groups = (group_of, pairs // deep, pairs % deep, first, names)
    members, queue, following = (np.empty(agents, dtype=np.int64) for _ in range(3))
    waiting, active = np.zeros(len(pairs), dtype=np.int64), np.empty(len(pairs), dtype=np.int64)
    queued = np.full(agents, -1, dtype=np.int64)
    return groups, (members, waiting, active, queue, following, queued, counts, np.empty(agents, dtype=np.uint64))


def _scratch(players: Players, first: IntArray) -> tuple[Arrays, Arrays, Arrays]:
    """Return room for the bids of the largest group, for the best entries of one agent, and for a round's bids."""
    largest, total = int(np.diff(first).max(initial=0)), len(players.owner)
    most = int(players.seats.demand.max(initial=0)) + 1
    of_group = tuple(np.empty(largest, dtype=np.int64) for _ in range(3))
    of_round = (np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64), np.empty(total))
    return of_group, (np.empty(most), np.empty(most, dtype=np.int64)), of_round


@numba.njit(cache=True)
def _all_wait(groups, queues, wants):  # type: ignore[no-untyped-def]  # compiled
    """Let every agent wait that wants more."""
    queues[1][:] = 0
    queues[6][:3] = 0
    for agent in range(len(wants)):
        if wants[agent] > 0:
            wait(groups, queues, wants, agent)


@numba.njit(cache=True)
def wait(groups, queues, wants, agent):  # type: ignore[no-untyped-def]  # compiled
    """Put an agent into the queue of its group if it holds nothing, otherwise into that of single agents."""
    group_of, _, demand, first, names = groups
    members, waiting, active, queue, _, _, counts, streams = queues
    group = group_of[agent]
    if group < 0 or wants[agent] < demand[group]:
        queue[counts[_SINGLE]] = agent
        counts[_SINGLE] += 1
        return
    if waiting[group] == 0:
        active[counts[_GROUPS]] = group
        counts[_GROUPS] += 1
    place = first[group] + waiting[group]
    members[place], streams[place] = agent, names[agent]
    waiting[group] += 1
    counts[_MEMBERS] += 1


def _led(buffers: tuple[IntArray, IntArray, FloatArray], first: IntArray, holds: IntArray) -> IntArray:
    """Return what came of the bids of one round."""
    agents, resources, _ = buffers
    leads = [
        resource in holds[first[agent] : first[agent + 1]] for agent, resource in zip(agents, resources, strict=True)
    ]
    return np.where(leads, Outcome.LEADS, Outcome.LOSES)


@numba.njit(cache=True)
def lose(queues, agent, rounds):  # type: ignore[no-untyped-def]  # compiled
    """Note that an agent has to bid again in the next round."""
    following, queued, counts = queues[4], queues[5], queues[6]
    if agent >= 0 and queued[agent] != rounds:
        queued[agent] = rounds
        following[counts[_LOSERS]] = agent
        counts[_LOSERS] += 1


@numba.njit(cache=True)
def smallest(streams, most, rounds, chances, places):  # type: ignore[no-untyped-def]  # compiled
    """Write the smallest draws from streams, ascending, and their places; return how many, at most `most`."""
    count, common = len(streams), counter(rounds, SELECTION)
    if most > _SEVERAL:
        for place in range(count):
            chances[place] = np.int64(compiled_mix(streams[place] ^ common) >> np.uint64(11))
        places[:count] = np.argsort(chances[:count])
        chances[:count] = np.sort(chances[:count])
        return min(most, count)
    kept = 0
    for place in range(count):
        chance = np.int64(compiled_mix(streams[place] ^ common) >> np.uint64(11))
        if kept == most and chance >= chances[kept - 1]:
            continue
        slot = min(kept, most - 1)
        while slot > 0 and chances[slot - 1] > chance:
            chances[slot], places[slot] = chances[slot - 1], places[slot - 1]
            slot -= 1
        chances[slot], places[slot] = chance, place
        kept = min(kept + 1, most)
    return kept


@numba.njit(cache=True)
def bid_in_groups(bidding, board, holds, wants, queues, step, rounds, room):  # type: ignore[no-untyped-def]  # compiled
    """Place the bids of all groups: of each, those that come first by their draws, as many as a resource has seats.

    Members that get a seat leave their group's queue. With equal offers, a bid that fails is followed by none that does
    not.
    """
    _, (_, _, resources, _), (_, _, _, first_player, _, _), known, (_, list_of, demand, first, _) = bidding
    members, waiting, active, _, _, _, counts, streams = queues
    chances, places, won = room
    _, left, _, _, prices, _, _ = board
    _, _, _, ranked, gains, found, _ = known
    for index in range(counts[_GROUPS]):
        group = active[index]
        number, wanted, start = list_of[group], demand[group], first[group]
        bids, most = min(found[number], wanted), 0
        if bids == 0:
            counts[_MEMBERS] -= waiting[group]
            waiting[group] = 0
            continue
        second = gains[number, wanted] if found[number] > wanted else 0.0
        for place in range(bids):
            most = max(most, left[resources[ranked[number, place]]])
        several = smallest(streams[start : start + waiting[group]], most, rounds, chances, places)
        for bidder in range(several):
            won[bidder] = 0
        for place in range(bids):
            resource = resources[ranked[number, place]]
            offer = prices[resource] + (gains[number, place] - second) + step
            for bidder in range(several):
                agent = members[start + places[bidder]]
                out = place_bid(board, first_player, holds, wants, agent, resource, offer, chances[bidder])
                if out == agent:
                    break
                won[bidder] += 1
                lose(queues, out, rounds)
        for bidder in range(several):
            if won[bidder] > 0:
                if won[bidder] < bids:
                    lose(queues, members[start + places[bidder]], rounds)
                # Marked, and left out below: places stay what they are until then.
                members[start + places[bidder]] = -1
        leave(queues, start, group, places, several)


@numba.njit(cache=True)
def leave(queues, start, group, places, several):  # type: ignore[no-untyped-def]  # compiled
    """Close the gaps in a group's queue, which are at some of these places."""
    members, waiting, _, _, _, _, counts, streams = queues
    end = start + waiting[group]
    for bidder in range(several):
        place = start + places[bidder]
        while end > start and members[end - 1] < 0:
            end -= 1
        if place < end and members[place] < 0:
            end -= 1
            members[place], streams[place] = members[end], streams[end]
    while end > start and members[end - 1] < 0:
        end -= 1
    counts[_MEMBERS] -= waiting[group] - (end - start)
    waiting[group] = end - start


@numba.njit(cache=True)
def bid_alone(bidding, prices, holds, wants, agent, gains, entries):  # type: ignore[no-untyped-def]  # compiled
    """Write the best entries of one agent among those that are open to it; return how many, and what the next gains."""
    _, table, limits, known, _ = bidding
    number, wanted, kept = table[0][agent], wants[agent], 0
    for place in range(known[5][number]):
        entry = known[3][number, place]
        if not barred(limits, holds, agent, table[2][entry]):
            gains[kept], entries[kept] = known[4][number, place], entry
            kept += 1
            if kept > wanted:
                break
    if kept <= wanted and known[1][number] >= 0.0:
        kept = best_entries(table, limits, holds, prices, agent, wanted, gains, entries)
    # Going without is worth nothing, so that no agent bids more than something is worth to it.
    return min(kept, wanted), gains[wanted] if kept > wanted else 0.0


@numba.njit(cache=True)
def lists_of(bidding, queues, rounds):  # type: ignore[no-untyped-def]  # compiled
    """Return the lists of all that wait, each once."""
    _, (list_of, _, _, _), _, (_, _, _, _, _, _, looked), (_, list_of_group, _, _, _) = bidding
    _, _, active, queue, _, _, counts, _ = queues
    numbers, count = np.empty(min(counts[_SINGLE] + counts[_GROUPS], len(looked)), np.int64), 0
    for index in range(counts[_SINGLE] + counts[_GROUPS]):
        single = index < counts[_SINGLE]
        number = list_of[queue[index]] if single else list_of_group[active[index - counts[_SINGLE]]]
        if looked[number] != rounds:
            looked[number], numbers[count] = rounds, number
            count += 1
    return numbers[:count]


@numba.njit(cache=True)
def bid_for_seats(bidding, board, holds, wants, queues, scratch, step, rounds, until, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play rounds of bidding until none waits; return the rounds played."""
    names, table, limits, known, groups = bidding
    _, left, used, bids, prices, touched, counts = board
    _, waiting, active, queue, following, _, _, _ = queues
    room, (gains, entries), (bidders, chosen, offers) = scratch
    first, need = limits[3], min(len(gains), known[0].shape[1])
    while True:
        rounds += 1
        made = 0
        look(lists_of(bidding, queues, rounds), table, prices, need, known)
        # Side by side, which is sooner; and what they hold is as it was before the round, for all of them.
        queue[: counts[_SINGLE]].sort()
        for index in range(counts[_SINGLE]):
            agent = queue[index]
            several, second = bid_alone(bidding, prices, holds, wants, agent, gains, entries)
            for place in range(several):
                resource = table[2][entries[place]]
                bidders[made], chosen[made] = agent, resource
                offers[made] = prices[resource] + (gains[place] - second) + step
                made += 1
        if len(trace[0]):
            write_bids(bidding, prices, queues, (bidders, chosen, offers, made), step, trace)
        counts[_SINGLE] = counts[_LOSERS] = 0
        bid_in_groups(bidding, board, holds, wants, queues, step, rounds, room)
        for index in range(made):
            agent, chance = bidders[index], compiled_draw(names[bidders[index]], rounds, SELECTION)
            lose(queues, place_bid(board, first, holds, wants, agent, chosen[index], offers[index], chance), rounds)
        for index in range(counts[TOUCHED]):
            resource = touched[index]
            if used[resource] == left[resource]:
                prices[resource] = bids[0][board[0][resource]]
        still = 0
        for index in range(counts[_GROUPS]):
            active[still] = active[index]
            still += waiting[active[index]] > 0
        counts[_GROUPS] = still
        for index in range(counts[_LOSERS]):
            wait(groups, queues, wants, following[index])
        if rounds >= until or counts[_SINGLE] + counts[_MEMBERS] == 0:
            return rounds


@numba.njit(cache=True)
def write_bids(bidding, prices, queues, alone, step, trace):  # type: ignore[no-untyped-def]  # compiled
    """Write all bids of a round, also those of groups that cannot succeed."""
    _, table, _, known, (_, list_of, demand, first, _) = bidding
    members, waiting, active, _, _, _, counts, _ = queues
    bidders, chosen, offers, row = alone
    agents, resources, amounts = trace
    agents[:row], resources[:row], amounts[:row] = bidders[:row], chosen[:row], offers[:row]
    for index in range(counts[_GROUPS]):
        group = active[index]
        number, wanted = list_of[group], demand[group]
        second = known[4][number, wanted] if known[5][number] > wanted else 0.0
        for member in range(waiting[group]):
            for place in range(min(known[5][number], wanted)):
                resource = table[2][known[3][number, place]]
                agents[row], resources[row] = members[first[group] + member], resource
                amounts[row] = prices[resource] + (known[4][number, place] - second) + step
                row += 1

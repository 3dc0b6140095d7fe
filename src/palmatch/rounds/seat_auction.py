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
from palmatch.rounds.draws import SELECTION, Keys, compiled_draw
from palmatch.rounds.exchange import exchange
from palmatch.rounds.recording import TraceParts
from palmatch.rounds.seats import Players, barred, limits_of, players_of
from palmatch.rounds.tables import stable_order, starts
from palmatch.seats import Seats

# A list's best entries are kept for all its agents, while prices rise: a few more than any of them wants, or a share of
# long lists, but not very many.
_SPARE, _SHARE, _DEEPEST = 8, 64, 64

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

# What is counted: waiting agents that bid one by one, waiting groups and their members, agents that lost in this round,
# resources that hold a bid of this call.
_SINGLE, _GROUPS, _MEMBERS, _LOSERS, _TOUCHED = 0, 1, 2, 3, 4


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
    known = _known(lists, int(wants.max(initial=0)))
    groups, queues = _groups(table[0], players, known[0].shape[1], counts)
    bidding = (names[agent_at], table, limits, known, groups)
    calls, seen = Calls(step, patience, most_rounds, trace), TraceParts()

    def bid(_waiting: int, step: float, rounds: int, until: int) -> tuple[int, int]:
        buffers = seen.room(int(wants.sum()) if trace else 0)
        rounds = bid_for_seats(bidding, board, holds, wants, queues, step, rounds, until, buffers)
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


def _known(lists: ValueLists, most: int) -> Arrays:
    """Return room for what is known of each list.

    That is some of its entries, with the most that any other was worth when all were looked at (infinite for nothing
    known) and the first that was worth it; then, for a round, the best entries after prices and what they are worth.
    """
    number = len(lists.start) - 1
    deep = min(max(most + _SPARE, len(lists.resources) // (_SHARE * number)), _DEEPEST)
    entries, ranked = (np.full((number, deep), -1, dtype=np.int64) for _ in range(2))
    others_at, found, looked = (np.zeros(number, dtype=np.int64) for _ in range(3))
    return entries, np.full(number, np.inf), others_at, ranked, np.empty((number, deep)), found, looked


def _groups(list_of: IntArray, players: Players, deep: int, counts: IntArray) -> tuple[Arrays, Arrays]:
    """Return each agent's group (-1: none) with list, demand and first place of every group; and room for queues."""
    seats = players.seats
    agents = len(seats.demand)
    alike = (np.diff(seats.conflict_start) == 0) & (seats.demand > 0) & (seats.demand < deep)
    pairs, of_alike = np.unique(list_of[alike] * deep + seats.demand[alike], return_inverse=True)
    group_of = np.full(agents, -1, dtype=np.int64)
    group_of[alike] = of_alike
    first = starts(np.bincount(of_alike, minlength=len(pairs)))
    groups = (group_of, pairs // deep, pairs % deep, first)
    members, queue, following = (np.empty(agents, dtype=np.int64) for _ in range(3))
    waiting, active = np.zeros(len(pairs), dtype=np.int64), np.empty(len(pairs), dtype=np.int64)
    return groups, (members, waiting, active, queue, following, np.full(agents, -1, dtype=np.int64), counts)


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
    group_of, _, demand, first = groups
    members, waiting, active, queue, _, _, counts = queues
    group = group_of[agent]
    if group < 0 or wants[agent] < demand[group]:
        queue[counts[_SINGLE]] = agent
        counts[_SINGLE] += 1
        return
    if waiting[group] == 0:
        active[counts[_GROUPS]] = group
        counts[_GROUPS] += 1
    members[first[group] + waiting[group]] = agent
    waiting[group] += 1
    counts[_MEMBERS] += 1


@numba.njit(cache=True)
def close(board, sold_for):  # type: ignore[no-untyped-def]  # compiled
    """End a call: what is held is sold; return how many resources were."""
    _, left, used, _, prices, touched, counts = board
    sold = counts[_TOUCHED]
    for index in range(sold):
        resource = touched[index]
        sold_for[resource] = prices[resource]
        left[resource] -= used[resource]
        used[resource] = 0
        if left[resource] == 0:
            prices[resource] = np.inf
    counts[_TOUCHED] = 0
    return sold


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
def look(numbers, table, prices, need, known):  # type: ignore[no-untyped-def]  # compiled
    """Find best entries after prices, best first, of some lists: at least `need` of each, or all that are worth it.

    Prices only rise, so that no other entry is worth more than the best of the others was when all were looked at.
    """
    _, _, resources, values = table
    entries, others, others_at, ranked, gains, found, _ = known
    for number in numbers:
        kept = 0
        for attempt in range(2):
            limit, limit_at, kept = others[number], others_at[number], 0
            for place in range(entries.shape[1] if limit < np.inf else 0):
                entry = entries[number, place]
                if entry < 0:
                    break
                gain = values[entry] - prices[resources[entry]]
                if gain < 0.0 or gain < limit or (gain == limit and entry > limit_at):
                    continue
                slot = kept
                while slot > 0 and (
                    gains[number, slot - 1] < gain
                    or (gains[number, slot - 1] == gain and ranked[number, slot - 1] > entry)
                ):
                    gains[number, slot], ranked[number, slot] = gains[number, slot - 1], ranked[number, slot - 1]
                    slot -= 1
                gains[number, slot], ranked[number, slot] = gain, entry
                kept += 1
            if kept >= need or limit < 0.0:
                break
            if attempt == 0:
                shorten(table, prices, number, known)
        found[number] = kept


@numba.njit(cache=True)
def shorten(table, prices, number, known):  # type: ignore[no-untyped-def]  # compiled
    """Keep the entries of a list that are worth most now; of the others, the most that any is worth, and the first."""
    _, start, resources, values = table
    entries, others, others_at, _, gains, _, _ = known
    kept, last = 0, entries.shape[1] - 1
    others[number], others_at[number] = -1.0, -1
    for entry in range(start[number], start[number + 1]):
        gain = values[entry] - prices[resources[entry]]
        if gain < 0.0:
            continue
        if kept > last:
            out, at = (gain, entry) if gain <= gains[number, last] else (gains[number, last], entries[number, last])
            if out > others[number] or (out == others[number] and at < others_at[number]):
                others[number], others_at[number] = out, at
            if at == entry:
                continue
        place = min(kept, last)
        while place > 0 and gains[number, place - 1] < gain:
            gains[number, place], entries[number, place] = gains[number, place - 1], entries[number, place - 1]
            place -= 1
        gains[number, place], entries[number, place] = gain, entry
        kept = min(kept + 1, last + 1)
    entries[number, kept:] = -1


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
def _lower(amounts, drawn, offer, chance, seat):  # type: ignore[no-untyped-def]  # compiled
    """Say whether a bid gives way to that on a seat: of equal offers the one with the larger draw does."""
    return offer < amounts[seat] or (offer == amounts[seat] and chance > drawn[seat])


@numba.njit(cache=True)
def put(bids, first, count, place, offer, chance, agent):  # type: ignore[no-untyped-def]  # compiled
    """Put a bid on a place that has become free among the first `count` seats: a heap, with the lowest bid on top."""
    amounts, drawn, by = bids
    while place > 0 and _lower(amounts, drawn, offer, chance, first + (place - 1) // 2):
        seat, above = first + place, first + (place - 1) // 2
        amounts[seat], drawn[seat], by[seat] = amounts[above], drawn[above], by[above]
        place = (place - 1) // 2
    while 2 * place + 1 < count:
        below = 2 * place + 1
        if below + 1 < count and _lower(
            amounts, drawn, amounts[first + below + 1], drawn[first + below + 1], first + below
        ):
            below += 1
        if _lower(amounts, drawn, offer, chance, first + below):
            break
        seat, under = first + place, first + below
        amounts[seat], drawn[seat], by[seat] = amounts[under], drawn[under], by[under]
        place = below
    amounts[first + place], drawn[first + place], by[first + place] = offer, chance, agent


@numba.njit(cache=True)
def place_bid(board, first, holds, wants, agent, resource, offer, chance):  # type: ignore[no-untyped-def]  # compiled
    """Take a bid if there is a free seat or a lower bid; return the agent that goes without because of it, or -1."""
    seat_start, left, used, bids, _, touched, counts = board
    seat, out = seat_start[resource], -1
    if used[resource] < left[resource]:
        if used[resource] == 0:
            touched[counts[_TOUCHED]] = resource
            counts[_TOUCHED] += 1
        used[resource] += 1
        put(bids, seat, used[resource], used[resource] - 1, offer, chance, agent)
    else:
        amounts, drawn, by = bids
        if offer < amounts[seat] or (offer == amounts[seat] and chance >= drawn[seat]):
            return agent
        out = by[seat]
        release(first, holds, wants, out, resource)
        put(bids, seat, used[resource], 0, offer, chance, agent)
    hold(first, holds, wants, agent, resource)
    return out


@numba.njit(cache=True)
def lose(queues, agent, rounds):  # type: ignore[no-untyped-def]  # compiled
    """Note that an agent has to bid again in the next round."""
    following, queued, counts = queues[4], queues[5], queues[6]
    if agent >= 0 and queued[agent] != rounds:
        queued[agent] = rounds
        following[counts[_LOSERS]] = agent
        counts[_LOSERS] += 1


@numba.njit(cache=True)
def smallest(names, members, first, count, most, rounds, chances, places):  # type: ignore[no-untyped-def]  # compiled
    """Write the smallest draws among waiting members, ascending, and their places; return how many, at most `most`."""
    if most > _SEVERAL:
        for place in range(count):
            chances[place] = compiled_draw(names[members[first + place]], rounds, SELECTION)
        places[:count] = np.argsort(chances[:count])
        chances[:count] = np.sort(chances[:count])
        return min(most, count)
    kept = 0
    for place in range(count):
        chance = compiled_draw(names[members[first + place]], rounds, SELECTION)
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
    names, (_, _, resources, _), (_, _, _, first_player, _, _), known, (_, list_of, demand, first) = bidding
    members, waiting, active, _, _, _, counts = queues
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
        several = smallest(names, members, start, waiting[group], most, rounds, chances, places)
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
        leave(members, start, waiting, group, places, several, counts)


@numba.njit(cache=True)
def leave(members, start, waiting, group, places, several, counts):  # type: ignore[no-untyped-def]  # compiled
    """Close the gaps in a group's queue, which are at some of these places."""
    end = start + waiting[group]
    for bidder in range(several):
        place = start + places[bidder]
        while end > start and members[end - 1] < 0:
            end -= 1
        if place < end and members[place] < 0:
            end -= 1
            members[place] = members[end]
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
    _, (list_of, _, _, _), _, (_, _, _, _, _, _, looked), (_, list_of_group, _, _) = bidding
    _, _, active, queue, _, _, counts = queues
    numbers, count = np.empty(min(counts[_SINGLE] + counts[_GROUPS], len(looked)), np.int64), 0
    for index in range(counts[_SINGLE] + counts[_GROUPS]):
        single = index < counts[_SINGLE]
        number = list_of[queue[index]] if single else list_of_group[active[index - counts[_SINGLE]]]
        if looked[number] != rounds:
            looked[number], numbers[count] = rounds, number
            count += 1
    return numbers[:count]


@numba.njit(cache=True)
def bid_for_seats(bidding, board, holds, wants, queues, step, rounds, until, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play rounds of bidding until none waits; return the rounds played."""
    names, table, limits, known, groups = bidding
    _, left, used, bids, prices, touched, counts = board
    _, waiting, active, queue, following, _, _ = queues
    first, most, largest = limits[3], 0, 0
    for agent in range(len(wants)):
        most = max(most, first[agent + 1] - first[agent])
    for group in range(len(waiting)):
        largest = max(largest, groups[3][group + 1] - groups[3][group])
    room = (np.empty(largest, np.int64), np.empty(largest, np.int64), np.empty(largest, np.int64))
    gains, entries = np.empty(most + 1), np.empty(most + 1, dtype=np.int64)
    need, total = min(most + 1, known[0].shape[1]), first[len(wants)]
    bidders, chosen, offers = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total)
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
        for index in range(counts[_TOUCHED]):
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
    _, table, _, known, (_, list_of, demand, first) = bidding
    members, waiting, active, _, _, _, counts = queues
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

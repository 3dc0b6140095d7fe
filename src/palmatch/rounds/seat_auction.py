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
from numpy.typing import NDArray

from palmatch.errors import InputError
from palmatch.matching import Outcome
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.auction import Calls, Sale, ValueLists, inverse, numbered, sell
from palmatch.rounds.draws import SELECTION, Keys, compiled_mix, counter, draws, mixed_before_last, mixed_last
from palmatch.rounds.exchange import exchange
from palmatch.rounds.recording import TraceParts
from palmatch.rounds.seat_board import TAKEN, close, place_bid, post
from palmatch.rounds.seat_lists import best_resources, known_of, look
from palmatch.rounds.seats import Players, is_barred, limits_of, players_of
from palmatch.rounds.tables import stable_order, starts
from palmatch.seats import Seats

# Up to so many bids of a group are found by insertion, which is sooner than sorting all.
_SEVERAL = 32

# The bits of a draw that its last step may change.
_LOW_BITS = np.uint64((1 << 33) - 1)

# Calls of one round that are played before the next progress is told.
_CALLS_AT_ONCE = 64

# Seats that bids are kept for, over all resources: more would take gigabytes.
_MOST_SEATS = 100_000_000


def sell_units(
    problem: Problem,
    lists: ValueLists,
    opening: FloatArray,
    step: float,
    *,
    fill: bool = False,
    draw_once: bool = False,
    **rest: Any,
) -> Sale:
    """Sell the resources of a problem; with several seats or units `resource_of` has a row (agent, resource) a unit."""
    if problem.seats is None:
        return sell(lists, opening, step, **rest)
    return sell_seats(lists, opening, step, seats=problem.seats, fill=fill, draw_once=draw_once, **rest)


Arrays: TypeAlias = tuple[Any, ...]

# What is counted, besides resources that hold or took a bid (`rounds.seat_board`): waiting agents that bid one by one,
# waiting groups and their members, agents that lost in this round; and whether agents draw once.
_SINGLE, _GROUPS, _MEMBERS, _LOSERS, _ONCE = 0, 1, 2, 3, 7


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
    draw_once: bool = False,
) -> Sale:
    """Let agents bid until none of them wants to; see `rounds.auction.sell` for calls, patience and public streams.

    What is left open is closed by exchanges (`rounds.exchange`), with `fill` also where the lists lose by it. Of equal
    bids the smallest draws win: those of the round, or, with `draw_once`, the same ones in all rounds, which is sooner.
    """
    # More seats than agents are never taken.
    room = np.minimum(seats.capacity, int((seats.demand > 0).sum()))
    if room.sum() > _MOST_SEATS:
        raise InputError(f"Capacities come to {room.sum():,} seats, more than {_MOST_SEATS:,}: choose smaller ones.")
    # Agents stand in the order of lists, and resources in that in which lists name them, as in `rounds.auction.sell`.
    agent_at, (numbers, rows, rest) = stable_order(lists.list_of), _numbered(lists, len(opening))
    if draw_once:
        # Then also in that of their draws, the smallest last: so does a group's queue.
        agent_at = np.lexsort((-draws(names, 0, SELECTION), lists.list_of))
    # Partners are resources like any other.
    players = players_of(replace(seats, mutual=False).of(agent_at))
    table = (lists.list_of[agent_at], lists.start, numbers, lists.values, rest)
    barred, counts = int(np.diff(seats.conflict_start).max(initial=0)), np.zeros(8, dtype=np.int64)
    counts[_ONCE] = draw_once
    known = known_of(lists, int(seats.demand.max(initial=0)), barred)
    bidding, queues, holds, wants = _agents(players, rows, table, known, names[agent_at], counts)
    total, scratch = len(players.owner), _scratch(players, bidding[4][3])
    prices, sold_for = np.where(room[rows] > 0, opening[rows], np.inf), np.full(len(rows), np.nan)
    board = _board(room[rows], prices, counts)
    left, auction = board[1], (bidding, board, holds, wants, queues, scratch)
    calls, seen = Calls(step, patience, most_rounds, trace), TraceParts()

    def bid(_waiting: int, step: float, rounds: int, until: int) -> tuple[int, int]:
        buffers = seen.room(total - int(counts[TAKEN]) if trace else 0)
        rounds, _ = bid_for_seats(*auction, step, rounds, until, buffers, sold_for[:0])
        if trace:
            led = _led(buffers, players.first, holds)
            at, wanted, offers = buffers
            seen.add((agent_at[at], np.where(wanted < 0, -1, rows[wanted]), offers), rounds, led)
        if progress is not None:
            progress(int(counts[TAKEN]), total)
        return rounds, int(counts[_SINGLE] + counts[_MEMBERS])

    def bid_in_short_calls() -> int:
        """Play calls of one round each; return how many resources the last one sold."""
        before, until = calls.rounds, min(calls.rounds + _CALLS_AT_ONCE, most_rounds)
        calls.rounds, sold = bid_for_seats(*auction, calls.step, before, until, seen.room(0), sold_for)
        calls.step *= 2.0 ** (calls.rounds - before)
        if progress is not None:
            progress(int(counts[TAKEN]), total)
        return int(sold)

    for call in count():
        # Prices fall once, to nothing: from then on an agent for which nothing is worth its price waits for nothing.
        if call < 2:
            _all_wait(bidding[4], queues, wants)
        if call > 1 and calls.patience == 1 and calls.rounds < most_rounds and not trace:
            sold = bid_in_short_calls()
        else:
            # A call in which no agent can bid takes a round all the same.
            calls.play(int(counts[_SINGLE] + counts[_MEMBERS]) or int(counts[TAKEN] < total), bid)
            sold = close(board, sold_for)
        if counts[TAKEN] == total or (call > 0 and sold == 0):
            break
        if call == 0:
            prices[left[: len(prices)] > 0], known[1][:] = 0.0, np.inf
    posted = np.empty(len(rows))
    posted[rows] = np.where(np.isnan(sold_for), 0.0, sold_for)
    units = _exchanged(lists, players_of(seats), agent_at, np.where(holds < 0, -1, rows[holds]), names, fill=fill)
    return Sale(units, posted, calls.rounds, seen.trace() if trace else None)


def _numbered(lists: ValueLists, count: int) -> tuple[NDArray[np.int32], IntArray, FloatArray]:
    """Return what `numbered` returns of the whole lists, and what each list's rest is worth: -1 where it has none."""
    if lists.rest is None or lists.by_id is None:
        return *numbered(lists.resources, count), np.full(len(lists.start) - 1, -1.0)
    return inverse(lists.by_id).astype(np.int32)[lists.resources], lists.by_id, lists.rest


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


def _agents(
    players: Players, rows: IntArray, table: Arrays, known: Arrays, names: Keys, counts: IntArray
) -> tuple[Arrays, Arrays, IntArray, IntArray]:
    """Return what agents bid with, room for queues of those that wait, what each player holds, and what agents want."""
    group_of, lists, demand, first = _groups(table[0], players, known[0].shape[1])
    agents, limits = len(group_of), limits_of(players.seats, rows, players.first)
    queued = np.full(agents, -1, dtype=np.int64)
    # What is looked at for one agent, or for one resource, lies side by side: bids go to and fro between them.
    wants, queued, group_of, list_of, names, of_players, of_conflicts = _side_by_side(
        players.seats.demand, queued, group_of, table[0], names, players.first, limits[1]
    )
    limits = (limits[0], of_conflicts, limits[2], of_players, *limits[4:])
    bidding = (names, (list_of, *table[1:]), limits, known, (group_of, lists, demand, first, names))
    # Beside the members of a group that wait stand their streams, since every round draws from all of them.
    members, queue, following = (np.empty(agents, dtype=np.int64) for _ in range(3))
    waiting, active = np.zeros(len(lists), dtype=np.int64), np.empty(len(lists), dtype=np.int64)
    queues = (members, waiting, active, queue, following, queued, counts, np.empty(agents, dtype=np.uint64))
    return bidding, queues, np.full(len(players.owner), -1, dtype=np.int64), wants


def _board(room: IntArray, prices: FloatArray, counts: IntArray) -> Arrays:
    """Return what resources keep of bids: seats, those left and those used, the bids on them, and prices."""
    seat_start, seats = starts(room), int(room.sum())
    none = np.zeros(len(room), dtype=np.int64)
    begin, left, used, is_changed = _side_by_side(seat_start[:-1], room, none, none)
    bids = _side_by_side(np.empty(seats), np.empty(seats, np.int64), np.empty(seats, np.int64))
    return begin, left, used, tuple(bids), prices, np.empty_like(room), counts, np.empty_like(room), is_changed


def _side_by_side(*columns: NDArray[Any]) -> list[NDArray[Any]]:
    """Return columns of 8 bytes a row as those of one table, whose rows are as long as a power of two.

    There are zeros below a column of fewer than two rows: by itself it would be contiguous, and all that takes it would
    be compiled once more.
    """
    table = np.zeros((max(2, *map(len, columns)), 1 << (len(columns) - 1).bit_length()), dtype=np.int64)
    placed = [table[: max(len(column), 2), place].view(column.dtype) for place, column in enumerate(columns)]
    for there, column in zip(placed, columns, strict=True):
        there[: len(column)] = column
    return placed


def _groups(list_of: IntArray, players: Players, deep: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return each agent's group (-1: none), and list, demand and first place of every group."""
    seats = players.seats
    alike = (np.diff(seats.conflict_start) == 0) & (seats.demand > 0) & (seats.demand < deep)
    pair = list_of[alike] * deep + seats.demand[alike]
    sizes = np.bincount(pair)
    pairs, number = np.flatnonzero(sizes), np.cumsum(sizes > 0) - 1
    group_of = np.full(len(seats.demand), -1, dtype=np.int64)
    group_of[alike] = number[pair]
    return group_of, pairs // deep, pairs % deep, starts(sizes[pairs])


def _scratch(players: Players, first: IntArray) -> tuple[Arrays, Arrays, Arrays]:
    """Return room for the bids of the largest group, for the best entries of one agent, and for a round's bids."""
    largest, total = int(np.diff(first).max(initial=0)), len(players.owner)
    most = int(players.seats.demand.max(initial=0)) + 1
    of_group = tuple(np.empty(largest, dtype=np.int64) for _ in range(3))
    of_round = (np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64), np.empty(total))
    return of_group, (np.empty(most), np.empty(most, dtype=np.int64), np.empty(most)), of_round


@numba.njit(cache=True)
def _all_wait(groups, queues, wants):  # type: ignore[no-untyped-def]  # compiled
    """Let every agent wait that wants more."""
    queues[1][:] = 0
    queues[6][:3] = 0
    wait(groups, queues, wants, np.flatnonzero(wants > 0))


@numba.njit(cache=True)
def wait(groups, queues, wants, agents):  # type: ignore[no-untyped-def]  # compiled
    """Put agents into the queues of their groups if they hold nothing, otherwise into that of single agents."""
    group_of, _, demand, first, names = groups
    members, waiting, active, queue, _, _, counts, streams = queues
    for agent in agents:
        group = group_of[agent]
        if group < 0 or wants[agent] < demand[group]:
            queue[counts[_SINGLE]] = agent
            counts[_SINGLE] += 1
            continue
        if waiting[group] == 0:
            active[counts[_GROUPS]] = group
            counts[_GROUPS] += 1
        place = first[group] + waiting[group]
        while counts[_ONCE] and place > first[group] and members[place - 1] > agent:
            members[place], streams[place] = members[place - 1], streams[place - 1]
            place -= 1
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
def lose(following, queued, counts, agent, rounds):  # type: ignore[no-untyped-def]  # compiled
    """Note that an agent has to bid again in the next round."""
    if agent >= 0 and queued[agent] != rounds:
        queued[agent] = rounds
        following[counts[_LOSERS]] = agent
        counts[_LOSERS] += 1


@numba.njit(cache=True)
def smallest(streams, most, rounds, chances, places):  # type: ignore[no-untyped-def]  # compiled
    """Write the smallest draws from streams, ascending, and their places; return how many, at most `most`.

    Streams whose draws are the same in all rounds, which is round 0, stand in their order, the smallest last.
    """
    count, common = len(streams), counter(rounds, SELECTION)
    if rounds == 0:
        for index in range(min(most, count)):
            places[index] = count - 1 - index
            chances[index] = np.int64(compiled_mix(streams[places[index]] ^ common) >> np.uint64(11))
        return min(most, count)
    if most > _SEVERAL:
        for place in range(count):
            chances[place] = np.int64(compiled_mix(streams[place] ^ common) >> np.uint64(11))
        places[:count] = np.argsort(chances[:count])
        chances[:count] = np.sort(chances[:count])
        return min(most, count)
    kept, highest = 0, ~np.uint64(0)
    for place in range(count):
        # A draw's last step leaves its 31 highest bits as they are, and they nearly always say that it is too large.
        before = mixed_before_last(streams[place] ^ common)
        if before > highest:
            continue
        chance = np.int64(mixed_last(before) >> np.uint64(11))
        if kept == most and chance >= chances[kept - 1]:
            continue
        slot = min(kept, most - 1)
        while slot > 0 and chances[slot - 1] > chance:
            chances[slot], places[slot] = chances[slot - 1], places[slot - 1]
            slot -= 1
        chances[slot], places[slot] = chance, place
        kept = min(kept + 1, most)
        if kept == most:
            highest = (np.uint64(chances[kept - 1]) << np.uint64(11)) | _LOW_BITS
    return kept


@numba.njit(cache=True)
def bid_in_groups(bidding, board, holds, wants, queues, step, rounds, room):  # type: ignore[no-untyped-def]  # compiled
    """Place the bids of all groups: of each, those that come first by their draws, as many as a resource has seats.

    Members that get a seat leave their group's queue. With equal offers, a bid that fails is followed by none that does
    not.
    """
    _, _, (_, _, _, first_player, _, _), known, (_, list_of, demand, first, _) = bidding
    members, waiting, active, _, following, queued, counts, streams = queues
    chances, places, won = room
    seat_start, left, used, (amounts, drawn, by), _, touched, _, changed, is_changed = board
    _, _, _, _, gains, found, _, (best, prices), _ = known
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
            most = max(most, left[best[number, place]])
        drawn_in = 0 if counts[_ONCE] else rounds
        several = smallest(streams[start : start + waiting[group]], most, drawn_in, chances, places)
        for bidder in range(several):
            won[bidder] = 0
        for place in range(bids):
            resource = np.int64(best[number, place])
            offer = prices[number, place] + (gains[number, place] - second) + step
            for bidder in range(several):
                agent = members[start + places[bidder]]
                out = place_bid(
                    seat_start, left, used, amounts, drawn, by, touched, counts, changed, is_changed,
                    first_player, holds, wants, agent, resource, offer, chances[bidder],
                )  # fmt: skip
                if out == agent:
                    break
                won[bidder] += 1
                lose(following, queued, counts, out, rounds)
        for bidder in range(several):
            if won[bidder] > 0:
                if won[bidder] < bids:
                    lose(following, queued, counts, members[start + places[bidder]], rounds)
                # Marked, and left out below: places stay what they are until then.
                members[start + places[bidder]] = -1
        end = leave(members, streams, start, start + waiting[group], places, several)
        counts[_MEMBERS] -= waiting[group] - (end - start)
        waiting[group] = end - start


@numba.njit(cache=True)
def leave(members, streams, start, end, places, several):  # type: ignore[no-untyped-def]  # compiled
    """Close the gaps in a group's queue, which are at some of these places; return where it ends then."""
    for bidder in range(several):
        place = start + places[bidder]
        while end > start and members[end - 1] < 0:
            end -= 1
        if place < end and members[place] < 0:
            end -= 1
            members[place], streams[place] = members[end], streams[end]
    while end > start and members[end - 1] < 0:
        end -= 1
    return end


@numba.njit(cache=True)
def bid_alone(bidding, prices, holds, wants, agents, step, best, bids):  # type: ignore[no-untyped-def]  # compiled
    """Write the bids of agents one by one, each for the best of what is open to it; return how many there are."""
    _, table, limits, known, _ = bidding
    _, others, _, _, worth, found, _, (resources, asked), _ = known
    list_of, (_, conflict_start, conflicts, first, _, _) = table[0], limits
    gains, wished, posted = best
    bidders, chosen, offers = bids
    made = 0
    for agent in agents:
        number, wanted, kept = list_of[agent], wants[agent], 0
        for place in range(found[number]):
            resource = resources[number, place]
            if is_barred(conflict_start, conflicts, first, holds, agent, resource):
                continue
            gains[kept], wished[kept], posted[kept] = worth[number, place], resource, asked[number, place]
            kept += 1
            if kept > wanted:
                break
        if kept <= wanted and others[number] >= 0.0:
            kept = best_resources(table, limits, holds, prices, agent, wanted, gains, wished)
            for place in range(kept):
                posted[place] = prices[wished[place]]
        # Going without is worth nothing, so that no agent bids more than something is worth to it.
        second = gains[wanted] if kept > wanted else 0.0
        for place in range(min(kept, wanted)):
            bidders[made], chosen[made] = agent, wished[place]
            offers[made] = posted[place] + (gains[place] - second) + step
            made += 1
    return made


@numba.njit(cache=True)
def place_bids(board, first, holds, wants, queues, names, bids, made, rounds):  # type: ignore[no-untyped-def]  # compiled
    """Place the bids that agents made one by one."""
    seat_start, left, used, (amounts, drawn, by), _, touched, counts, changed, is_changed = board
    following, queued = queues[4], queues[5]
    bidders, chosen, offers = bids
    common = counter(0 if counts[_ONCE] else rounds, SELECTION)
    for index in range(made):
        agent = bidders[index]
        chance = np.int64(compiled_mix(names[agent] ^ common) >> np.uint64(11))
        out = place_bid(
            seat_start, left, used, amounts, drawn, by, touched, counts, changed, is_changed,
            first, holds, wants, agent, chosen[index], offers[index], chance,
        )  # fmt: skip
        lose(following, queued, counts, out, rounds)


@numba.njit(cache=True)
def lists_of(bidding, queues, rounds):  # type: ignore[no-untyped-def]  # compiled
    """Return the lists of all that wait, each once."""
    _, (list_of, _, _, _, _), _, (_, _, _, _, _, _, looked, _, _), (_, list_of_group, _, _, _) = bidding
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
def bid_for_seats(bidding, board, holds, wants, queues, scratch, step, rounds, until, trace, sold_for):  # type: ignore[no-untyped-def]  # compiled
    """Play rounds of bidding until none waits; return the rounds played.

    With `sold_for`, each round is a call: play until all is taken or a call sells nothing, and return also what the
    last one sold.
    """
    names, table, limits, known, groups = bidding
    prices, counts = board[4], board[6]
    _, waiting, active, queue, following, _, _, _ = queues
    room, best, bids = scratch
    first, need = limits[3], min(len(best[0]), known[0].shape[1])
    while True:
        rounds += 1
        look(lists_of(bidding, queues, rounds), table, prices, need, known)
        # Side by side, which is sooner; and what they hold is as it was before the round, for all of them.
        queue[: counts[_SINGLE]].sort()
        made = bid_alone(bidding, prices, holds, wants, queue[: counts[_SINGLE]], step, best, bids)
        if len(trace[0]):
            write_bids(bidding, queues, bids, made, step, trace)
        counts[_SINGLE] = counts[_LOSERS] = 0
        bid_in_groups(bidding, board, holds, wants, queues, step, rounds, room)
        place_bids(board, first, holds, wants, queues, names, bids, made, rounds)
        post(board)
        still = 0
        for index in range(counts[_GROUPS]):
            active[still] = active[index]
            still += waiting[active[index]] > 0
        counts[_GROUPS] = still
        wait(groups, queues, wants, following[: counts[_LOSERS]])
        if len(sold_for):
            sold, step = close(board, sold_for), 2 * step
            if rounds >= until or sold == 0 or counts[TAKEN] == len(holds):
                return rounds, sold
        elif rounds >= until or counts[_SINGLE] + counts[_MEMBERS] == 0:
            return rounds, 0


@numba.njit(cache=True)
def write_bids(bidding, queues, bids, row, step, trace):  # type: ignore[no-untyped-def]  # compiled
    """Write all bids of a round, also those of groups that cannot succeed."""
    _, _, _, known, (_, list_of, demand, first, _) = bidding
    members, waiting, active, _, _, _, counts, _ = queues
    best, prices = known[7]
    bidders, chosen, offers = bids
    agents, resources, amounts = trace
    agents[:row], resources[:row], amounts[:row] = bidders[:row], chosen[:row], offers[:row]
    for index in range(counts[_GROUPS]):
        group = active[index]
        number, wanted = list_of[group], demand[group]
        second = known[4][number, wanted] if known[5][number] > wanted else 0.0
        for member in range(waiting[group]):
            for place in range(min(known[5][number], wanted)):
                agents[row], resources[row] = members[first[group] + member], best[number, place]
                amounts[row] = prices[number, place] + (known[4][number, place] - second) + step
                row += 1

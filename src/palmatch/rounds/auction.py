"""Resources that post prices and agents that bid: taking turns without a centre, to within a step of the optimum.

Every free agent bids for what is worth most to it after the price, as much as it could pay before something else
became worth more, plus a public step; the highest bid holds a resource until it is outbid (Bertsekas 1988, all free
agents at once). What agents bid with is their report, so that bidding costs no privacy. The kernel takes arrays only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.device import bid as device_bid
from palmatch.errors import DidNotConverge
from palmatch.matching import Outcome, Trace
from palmatch.plain import compiled_later, plain
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import SELECTION, Keys, compiled_mix, counter
from palmatch.rounds.recording import TraceParts
from palmatch.rounds.tables import SmallArray, stable_order, starts
from palmatch.threads import both, spread, taken, usual_threads

_ROUNDS_AT_ONCE = 64

# From so many lists on several threads look at them, so many at a time.
_MANY_LISTS, _LISTS_AT_A_TIME = 4096, 512

# Lists of so few values in all are bid with before bidding is compiled, for about as long as compiling takes.
_FEW, _BEFORE_COMPILING = 50_000, 1.5

# Resources of a list that are looked at first.
SHORT = 16


# The device's own rule, as it is.
best_bid = numba.njit(cache=True, nogil=True)(device_bid.best_bid)


Few: TypeAlias = tuple[FloatArray, SmallArray, FloatArray]
Bids: TypeAlias = tuple[IntArray, FloatArray, IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class ValueLists:
    """What agents act on: agent n has the list number `list_of[n]`, which other agents may have as well.

    On list i the resources `resources[start[i]:start[i + 1]]` are worth `values[...]`; ascending by public id. Lists
    with a `rest` are as long as there are resources: each one that list i does not name is worth `rest[i]`, and `by_id`
    are all resources by public id. Auctions with seats take such lists as they are, others take `whole`.
    """

    list_of: IntArray
    start: IntArray
    resources: IntArray
    values: FloatArray
    rest: FloatArray | None = None
    by_id: IntArray | None = None

    @property
    def whole(self) -> ValueLists:
        """The same lists with every resource named."""
        if self.rest is None or self.by_id is None:
            return self
        lists, count = len(self.rest), len(self.by_id)
        values = np.repeat(self.rest, count)
        owner = np.repeat(np.arange(lists), np.diff(self.start))
        values[owner * count + inverse(self.by_id)[self.resources]] = self.values
        return ValueLists(self.list_of, np.arange(lists + 1) * count, np.tile(self.by_id, lists), values)


def inverse(order: IntArray) -> IntArray:
    """Return the place of each number in an order of all of them."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place


@dataclass(frozen=True, slots=True)
class Sale:
    """How the bidding ended: each agent's resource (-1: none), the prices, and the rounds."""

    resource_of: IntArray
    prices: FloatArray
    rounds: int
    trace: Trace | None = None


@dataclass(slots=True)
class Calls:
    """The rounds of a sale, call after call: each ends when no agent waits, or at its deadline.

    The next one begins with twice the step and a quarter of the patience, so that the last rivals part in a time that
    does not depend on how many agents there are.
    """

    step: float
    patience: int | None
    most_rounds: int
    trace: bool
    rounds: int = 0

    def play(self, waiting: int, bid: Callable[[int, float, int, int], tuple[int, int]]) -> None:
        """Play a call; `bid(waiting, step, rounds, until)` plays some rounds and returns (rounds, waiting)."""
        patience = self.most_rounds if self.patience is None else self.patience
        deadline = self.rounds + patience
        while waiting and self.rounds < deadline:
            if self.rounds >= self.most_rounds:
                raise DidNotConverge(f"{waiting} agents were still bidding after {self.most_rounds:,} rounds.")
            until = min(self.rounds + (1 if self.trace else _ROUNDS_AT_ONCE), self.most_rounds, deadline)
            self.rounds, waiting = bid(waiting, self.step, self.rounds, until)
        self.step, self.patience = 2 * self.step, max(patience // 4, 1)


def sell(
    lists: ValueLists,
    opening: FloatArray,
    step: float,
    *,
    names: Keys,
    patience: int | None = None,
    most_rounds: int = 1_000_000,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Sale:
    """Let agents bid until none of them wants to.

    An agent for which nothing is worth its price gives up. When there are no more bids, or at the deadline after
    `patience` rounds, what is sold is sold, and what is not is offered for nothing, also to those that gave up (see
    `Calls`), until such a call sells nothing. So an opening price that was too high leaves nothing unsold.
    `names` are public streams: they decide between equal bids.
    """
    agents = len(lists.list_of)
    # Agents stand in the order of lists, and resources in that in which lists name them: what is looked at together
    # lies side by side.
    agent_at, (numbers, rows) = both(
        lambda: stable_order(lists.list_of),
        lambda: numbered(lists.resources, len(opening)),
        items=min(agents, len(lists.resources)),
    )
    threads = usual_threads()
    at_list, streams = (taken(column, agent_at, threads=threads) for column in (lists.list_of, names))
    first = starts(np.bincount(lists.list_of, minlength=len(lists.start) - 1))
    bidding = (streams, at_list, (lists.start, numbers, lists.values), *_room(len(first) - 1))
    prices, held, holder = opening[rows], np.full(agents, -1, dtype=np.int64), np.full(len(rows), -1, dtype=np.int64)
    board = (prices, holder, np.zeros(len(rows)), np.full(len(rows), -1, dtype=np.int64))
    sold_for, free, unsold = np.full(len(rows), np.nan), np.arange(agents), np.arange(len(rows))
    calls, seen, crowd = Calls(step, patience, most_rounds, trace), TraceParts(), _crowd(first)

    def bid(waiting: int, step: float, rounds: int, until: int) -> tuple[int, int]:
        buffers = seen.room(waiting if trace else 0)
        rounds, waiting = _bid_until(until, rounds, waiting, bidding, crowd, board, step, buffers)
        if trace:
            at, wanted, offers = buffers
            led = np.where(holder[np.maximum(wanted, 0)] == at, Outcome.LEADS, Outcome.LOSES)
            seen.add((agent_at[at], np.where(wanted < 0, -1, rows[wanted]), offers), rounds, led)
        if progress is not None:
            progress(agents - waiting, agents)
        return rounds, waiting

    for call in count():
        # No agent waits yet: those who did when the last call ended are free.
        crowd[3][:], crowd[5][:] = 0, 0
        (go_on if len(lists.values) > _FEW else go_on_alone)(bidding, crowd, free)
        calls.play(len(free), bid)
        is_sold = holder[unsold] >= 0
        sold, unsold = unsold[is_sold], unsold[~is_sold]
        held[holder[sold]], sold_for[sold] = rows[sold], prices[sold]
        # Opening prices may have been too high for every agent; nothing is cheaper than the later calls.
        if len(free) == 0 or (call > 0 and len(sold) == 0):
            break
        free = free[held[free] < 0]
        # No agent can outbid this; and what is known of the lists was known at other prices.
        prices[sold], prices[unsold], bidding[3][2][:] = np.inf, 0.0, np.inf
    resource_of, posted = np.empty(agents, dtype=np.int64), np.empty(len(rows))
    resource_of[agent_at], posted[rows] = held, np.where(holder >= 0, sold_for, prices)
    return Sale(resource_of, posted, calls.rounds, seen.trace() if trace else None)


def numbered(resources: IntArray, count: int) -> tuple[SmallArray, IntArray]:
    """Return the resources of all lists by numbers in the order in which they come, and which resource has which."""
    found: tuple[SmallArray, IntArray] = (_numbered if len(resources) > _FEW else _few_numbered)(resources, count)
    return found


def _few_numbered(resources: IntArray, count: int) -> tuple[SmallArray, IntArray]:
    """Return what `_numbered` returns, before it is compiled."""
    places, first = np.arange(len(resources)), np.full(count, len(resources))
    # Of several places the first, which is written last.
    first[resources[::-1]] = places[::-1]
    rows, number = np.argsort(first, kind="stable"), np.empty(count, dtype=np.int32)
    number[rows] = np.arange(count)
    return number[resources], rows


@numba.njit(cache=True, nogil=True)
def _numbered(resources, count):  # type: ignore[no-untyped-def]  # compiled
    number, rows = np.full(count, -1, dtype=np.int32), np.empty(count, dtype=np.int64)
    numbers, known = np.empty(len(resources), dtype=np.int32), 0
    for place in range(len(resources)):
        resource = resources[place]
        if number[resource] < 0:
            number[resource], rows[known] = known, resource
            known += 1
        numbers[place] = number[resource]
    for resource in range(count):
        if number[resource] < 0:
            rows[known] = resource
            known += 1
    return numbers, rows


def _crowd(first: IntArray) -> tuple[NDArray[Any], ...]:
    """Return room for who waits: places by list, from `first` on, and their streams; how many of each list; and lists.

    Lists are those with any agent that waits; the last array holds how many they are.
    """
    queue, waits = np.empty(first[-1], dtype=np.int64), np.empty(first[-1], dtype=np.uint64)
    counts, lists = np.zeros(len(first) - 1, dtype=np.int64), np.empty(len(first) - 1, dtype=np.int64)
    return queue, waits, first, counts, lists, np.zeros(1, dtype=np.int64)


def _room(
    lists: int,
) -> tuple[Few, Bids]:
    """Return room for what is known of each list.

    That is the few resources that are looked at first, with the most that any other was worth, infinite for nothing
    known yet; and its bid: resource, offer, draw, and where in the queue its bidder is.
    """
    few = np.empty(lists * SHORT), np.empty(lists * SHORT, dtype=np.int32), np.full(lists, np.inf)
    resource, drawn, place = (np.empty(lists, dtype=np.int64) for _ in range(3))
    return few, (resource, np.empty(lists), drawn, place)


def _bid_until(  # type: ignore[no-untyped-def]  # what the compiled rounds take
    until: int, rounds: int, waiting: int, bidding, crowd, board, step: float, buffers
) -> tuple[int, int]:
    """Play rounds of bidding, on several threads while there are very many lists."""
    threads, resources = usual_threads(), len(board[0])
    while threads > 1 and waiting and rounds < until and len(buffers[0]) == 0 and crowd[5][0] >= _MANY_LISTS:
        rounds += 1
        spread(
            lambda *some, now=rounds: look(some, bidding, crowd, board[0], step, now),
            int(crowd[5][0]),
            at_a_time=_LISTS_AT_A_TIME,
            threads=threads,
        )
        parts = spread(
            lambda *some: settle(some, bidding, crowd, board, buffers),
            resources,
            at_a_time=-(-resources // threads),
            threads=threads,
        )
        waiting = go_on(bidding, crowd, np.concatenate(parts))
    play = bid if len(bidding[2][2]) > _FEW else _few_bid
    rounds, waiting = play(bidding, crowd, board, waiting, step, rounds, until, buffers)
    return rounds, waiting


@numba.njit(cache=True, nogil=True)
def _look(table, prices, number, step, short):  # type: ignore[no-untyped-def]  # compiled
    """Return the `best_bid` of a list, mostly from the few of its resources that were worth most when last looked at.

    Prices only rise while bids are made, so that no other resource is worth more than the largest of the others was
    then. Where two of the few are still worth more than that, they are the best two of the whole list.
    """
    start, resources, values = table
    short_values, short_resources, others = short
    first, last = start[number], start[number + 1]
    if last - first <= 2 * SHORT:
        return best_bid(values, resources, prices, first, last, step)
    begin, end = number * SHORT, (number + 1) * SHORT
    for attempt in range(2):
        above = 0
        if others[number] < np.inf:
            for place in range(begin, end):
                above += short_values[place] - prices[short_resources[place]] > others[number]
        if above >= 2:
            return best_bid(short_values, short_resources, prices, begin, end, step)
        if attempt == 0:
            others[number] = _shorten(table, prices, number, short)
    # Several are worth the same: only the whole list says which comes first.
    return best_bid(values, resources, prices, first, last, step)


@numba.njit(cache=True, nogil=True)
def _shorten(table, prices, number, short):  # type: ignore[no-untyped-def]  # compiled
    """Write the resources of a list that are worth most now, in the list's order; return the most of any other."""
    start, resources, values = table
    short_values, short_resources, _ = short
    first, count = np.uint64(start[number]), np.uint64(start[number + 1] - start[number])
    gains, best, kept = np.empty(count), np.empty(SHORT + 1), 0
    for place in range(count):
        gains[place] = values[first + place] - prices[np.uint64(resources[first + place])]
    for gain in gains:
        if kept > SHORT and gain <= best[SHORT]:
            continue
        slot = min(kept, SHORT)
        while slot > 0 and best[slot - 1] < gain:
            best[slot] = best[slot - 1]
            slot -= 1
        best[slot] = gain
        kept = min(kept + 1, SHORT + 1)
    # Of equal ones at the end of the few, those that come first.
    above = 0
    while above < SHORT and best[above] > best[SHORT - 1]:
        above += 1
    index, equal = number * SHORT, SHORT - above
    for place in range(count):
        if gains[place] > best[SHORT - 1] or (gains[place] == best[SHORT - 1] and equal > 0):
            equal -= gains[place] == best[SHORT - 1]
            short_values[index], short_resources[index] = values[first + place], resources[first + place]
            index += 1
    return best[SHORT]


@numba.njit(cache=True, nogil=True)
def look(some, bidding, crowd, prices, step, rounds):  # type: ignore[no-untyped-def]  # compiled
    """Write the bids of some lists: prices change between rounds only, so that agents of one list bid alike.

    Of those that wait, the one with the smallest draw wins against the others of its list.
    """
    _, _, table, short, (favourite, offers, drawn, places) = bidding
    queue, streams, first, counts, lists, _ = crowd
    common = counter(rounds, SELECTION)
    for index in range(some[0], some[1]):
        number = lists[index]
        favourite[number], offers[number] = _look(table, prices, number, step, short)
        begin, end = np.uint64(first[number]), np.uint64(first[number] + counts[number])
        least, place = np.iinfo(np.int64).max, begin
        for waits in range(begin, end):
            chance = np.int64(compiled_mix(streams[waits] ^ common) >> np.uint64(11))
            # Of equal draws that of the first agent, in whatever order they wait.
            if chance < least or (chance == least and queue[waits] < queue[place]):
                least, place = chance, waits  # type: ignore[assignment]
        drawn[number], places[number] = least, place


@numba.njit(cache=True, nogil=True)
def settle(some, bidding, crowd, board, trace):  # type: ignore[no-untyped-def]  # compiled
    """Give each of some resources to the highest of the lists' bids; return whom they held, -1 for no agent.

    Whoever settles the first resource also lets lists go for which nothing is worth its price.
    """
    _, _, _, _, (favourite, offers, drawn, places) = bidding
    queue, streams, first, counts, lists, active = crowd
    prices, holder, bids, winners = board
    trace_place, trace_resource, trace_offer = trace
    touched, count, traced = np.empty(active[0], dtype=np.int64), 0, 0
    for index in range(active[0]):
        number = lists[index]
        wanted, offer = favourite[number], offers[number]
        for waits in range(first[number], first[number] + counts[number] if len(trace_place) else 0):
            trace_place[traced], trace_resource[traced], trace_offer[traced] = queue[waits], wanted, offer
            traced += 1
        if wanted < 0 and some[0] == 0:
            counts[number] = 0
        if wanted < some[0] or wanted >= some[1]:
            continue
        rival = winners[wanted]
        if rival < 0:
            touched[count] = wanted
            count += 1
        elif offer < bids[wanted] or (
            offer == bids[wanted]
            and (drawn[number] > drawn[rival] or (drawn[number] == drawn[rival] and number > rival))
        ):
            continue
        winners[wanted], bids[wanted] = number, offer
    for index in range(count):
        resource = touched[index]
        number, out = winners[resource], holder[resource]
        counts[number] -= 1
        place, last = places[number], first[number] + counts[number]
        holder[resource] = queue[place]
        queue[place], streams[place] = queue[last], streams[last]
        prices[resource], winners[resource] = bids[resource], -1
        touched[index] = out
    return touched[:count]


@numba.njit(cache=True, nogil=True)
def go_on(bidding, crowd, outbid):  # type: ignore[no-untyped-def]  # compiled
    """Let those that were outbid wait again; return how many agents wait then."""
    streams, at_list, _, _, _ = bidding
    queue, waits, first, counts, lists, active = crowd
    still, waiting = 0, 0
    for index in range(active[0]):
        lists[still] = lists[index]
        waiting += counts[lists[index]]
        still += counts[lists[index]] > 0
    for out in outbid:
        if out >= 0:
            number = at_list[out]
            if counts[number] == 0:
                lists[still] = number
                still += 1
            slot = first[number] + counts[number]
            queue[slot], waits[slot] = out, streams[out]
            counts[number] += 1
            waiting += 1
    active[0] = still
    return waiting


@numba.njit(cache=True, nogil=True)
def bid(bidding, crowd, board, waiting, step, rounds, until, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play rounds of bidding; return (rounds played, agents that still want to bid)."""
    while waiting > 0 and rounds < until:
        rounds += 1
        # Not the literal 0, for which numba compiles once more what several threads call.
        first = np.int64(0)
        look((first, crowd[5][0]), bidding, crowd, board[0], step, rounds)
        waiting = go_on(bidding, crowd, settle((first, len(board[0])), bidding, crowd, board, trace))
    return rounds, waiting


def look_alone(table: Any, prices: FloatArray, number: int, step: float, _: Few) -> tuple[int, float]:
    """Return the `best_bid` of a list from all of its resources at once."""
    start, resources, values = table
    here = slice(start[number], start[number + 1])
    gains = values[here] - prices[resources[here]]
    place = int(gains.argmax()) if len(gains) else -1
    if place < 0 or gains[place] < 0.0:
        return -1, 0.0
    best, wanted = gains[place], resources[here][place]
    gains[place] = 0.0
    return int(wanted), float(prices[wanted] + (best - max(gains.max(), 0.0)) + step)


go_on_alone = plain(go_on)
bid_alone = plain(bid, look, settle, go_on, _look=look_alone)
_few_bid = compiled_later(bid_alone, bid, seconds=_BEFORE_COMPILING)

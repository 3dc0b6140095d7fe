"""Resources that post prices and agents that bid: within a step an agent of the best matching, without a centre.

An agent that wants d more units bids for its d best resources after prices, for each as much as it could pay before the
next best one became worth more, plus a public step. A resource holds as many of the highest bids as it has units, and
once it is full its price is the lowest of them (Bertsekas 1988; Bertsekas and Castañon 1989; all free agents at once).
What agents bid with is their report, so that bidding costs no privacy. Kernels take arrays only.

Agents with the same list and demand that hold nothing and have no conflicts bid alike: they form a set of bidders that
is looked at once a round, and of which only as many bid as there are units. Every other agent is a set of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.domains.geometry import exponentials
from palmatch.errors import DidNotConverge, InputError
from palmatch.matchers.exchange import augment, exchange
from palmatch.matchers.lists import (
    RANKED,
    Holdings,
    MatchOutcome,
    NumberedLists,
    Records,
    ValueLists,
    first_units,
    held_units,
    is_barred,
    make_holdings,
    sift,
)
from palmatch.matching import Outcome, TraceParts
from palmatch.problem import Capacities, FloatArray, IntArray, unit_capacities
from palmatch.regions.csr import SmallArray, inverse, offsets_from_sizes, stable_order
from palmatch.streams import SELECTION, Keys, compiled_mix, counter
from palmatch.threads import parallel_chunks, parallel_take, usual_threads

# From so many sets of bidders on several threads compute their bids, so many at a time.
_MANY_SETS, _SETS_AT_A_TIME = 4096, 512

# A list's best entries are kept for all its agents, while prices rise: a few more than any of them wants, or a share of
# long lists, but not very many.
_SPARE, _SHARE, _DEEPEST = 15, 16, 1024

# The weight of entropy in `entropic_prices`, about what resources near each other differ by, and sweeps. On crowds of
# 10^5 half the weight and four times the sweeps gave as good a matching.
ENTROPY, SWEEPS = 0.05, 50

# What is counted: sets that wait, agents in them, units taken in all phases, resources that hold a bid of this phase.
_ACTIVE, _WAITING, _TAKEN, _TOUCHED = 0, 1, 2, 3


# Rows of what is looked at together: on most accesses a row is in no cache, and each costs as much as all arithmetic.
_ENTRY = np.dtype([("value", np.float64), ("tie", np.int32), ("item", np.int32)])
_KEPT = np.dtype([*_ENTRY.descr, ("worth", np.float64)])
_LIST = np.dtype(
    [("bound", np.float64), ("bound_tie", np.int64), ("begin", np.int64), ("found", np.int64), ("looked", np.int64)]
)
_SET = np.dtype(
    [(name, np.int64) for name in ("list", "demand", "first", "room", "size", "chosen", "bids", "is_group")]
)
_WAITING_AGENT = np.dtype([("stream", np.uint64), ("agent", np.int64)])
_RESOURCE = np.dtype([("left", np.int32), ("used", np.int32), ("first", np.int64)])


class _Shortlists(NamedTuple):
    """The entries of each list that were worth most when all were last looked at, and the best of now; best first.

    `kept` (lists, deep) has gain, entry and resource at that time, `values` their values. No other entry was worth more
    than `bound`, and the first that was worth it is `bound_tie`; infinite for nothing known. Those before `begin` can
    no longer be worth it. `best` (lists, few) has the `found` best entries of round `looked`. An entry is its place in
    the lists, or, in a list with a rest, the number of its resource: either ascends by public id.
    """

    lists: Records
    kept: Records
    best: Records


class _Bidders(NamedTuple):
    """Sets of bidders: first the groups, then agents of their own.

    A set has room in the queue from `first` on, of which `size` places are in use; in a round its last `chosen` members
    bid, smallest draw last, for `bids` resources each, which are written from `room` on.
    """

    sets: Records
    active: IntArray
    queue: Records
    resource: IntArray
    offer: FloatArray


class _Market(NamedTuple):
    """Resources: units left, and those in use, whose bids are a heap from `first` on, the lowest on top; prices."""

    resources: Records
    bids: Records
    prices: FloatArray
    sold_for: FloatArray
    touched: IntArray
    most_units: int


class _State(NamedTuple):
    lists: NumberedLists
    short: _Shortlists
    bidders: _Bidders
    holdings: Holdings
    market: _Market
    outbid: IntArray
    counts: IntArray


@dataclass(slots=True)
class AuctionPhases:
    """The rounds of an auction, phase after phase: each ends when no agent waits, or at its limit.

    The next one begins with twice the step and a quarter of the rounds, so that the last rivals part in a time that
    does not depend on how many agents there are.
    """

    step: float
    round_limit: int | None
    max_rounds: int
    trace: bool
    rounds: int = 0

    def play(self, waiting: int, bid: Callable[[float, int, int], tuple[int, int]]) -> None:
        """Play a phase; `bid(step, rounds, until)` plays some rounds and returns (rounds, waiting)."""
        limit = self.max_rounds if self.round_limit is None else self.round_limit
        deadline = self.rounds + limit
        while waiting and self.rounds < deadline:
            if self.rounds >= self.max_rounds:
                raise DidNotConverge(f"{waiting} agents were still bidding after {self.max_rounds:,} rounds.")
            until = min(self.rounds + (1 if self.trace else 64), self.max_rounds, deadline)
            self.rounds, waiting = bid(self.step, self.rounds, until)
        self.step, self.round_limit = 2 * self.step, max(limit // 4, 1)


def run_auction(
    lists: ValueLists,
    reserve_prices: FloatArray,
    step: float,
    *,
    stream_keys: Keys,
    capacities: Capacities | None = None,
    round_limit: int | None = None,
    max_rounds: int = 1_000_000,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
    fill: bool = False,
    augments: bool = False,
) -> MatchOutcome:
    """Let agents bid until none of them wants to.

    An agent for which nothing is worth its price gives up. When there are no more bids, or after `round_limit` rounds,
    what is held is sold, and what is not is offered for nothing, also to those that gave up (see `AuctionPhases`),
    until such a phase sells nothing. So a reserve price that was too high leaves nothing unsold. `stream_keys` are
    public streams: of equal bids the smallest draws of the round win.

    With `augments`, holders then move along cheapest paths until agents that went without hold what is still free
    (`matchers.exchange.augment`): rounds are dear where the last of very many agents bid.

    With `capacities` the result has a row (agent, resource) for every unit, and what is left open is closed by
    exchanges (`matchers.exchange`), with `fill` also where the lists lose by it.
    """
    limits = unit_capacities(len(lists.list_of), len(reserve_prices)) if capacities is None else capacities
    # Agents stand in the order of lists, and resources in that in which lists name them: what is looked at together
    # lies side by side. With one draw for all rounds, agents of a list stand in its order, the smallest last.
    agent_at, (numbers, rows, rest) = stable_order(lists.list_of), _number(lists, len(reserve_prices))
    # Partners are resources like any other.
    limits = replace(limits, mutual=False).of(agent_at)
    numbered = NumberedLists(lists.start, numbers, lists.values, rest)
    state = _open(lists, numbered, limits, agent_at, rows, reserve_prices, stream_keys)
    holdings = state.holdings
    counts, total, market = state.counts, int(limits.demand.sum()), state.market
    phases, parts = AuctionPhases(step, round_limit, max_rounds, trace), TraceParts()

    def bid(step: float, rounds: int, until: int) -> tuple[int, int]:
        if trace:
            rounds += 1
            compute_bids((0, int(counts[_ACTIVE])), state, step, rounds)
            buffers = parts.room(total - int(counts[_TAKEN]))
            write_bids(state, buffers)
            settle_bids(state, rounds)
            agents, wanted, offers = buffers
            leads = _leads(holdings, agents, wanted)
            agents = np.searchsorted(first_units(limits), agents, side="right") - 1
            parts.add((agent_at[agents], np.where(wanted < 0, -1, rows[wanted]), offers), rounds, leads)
        else:
            rounds = _bid_until(until, rounds, state, step)
        if progress is not None:
            progress(int(counts[_TAKEN]), total)
        return rounds, int(counts[_WAITING])

    for phase in count():
        # Prices fall once, to nothing: from then on an agent for which nothing is worth its price waits for nothing.
        if phase < 2:
            enqueue_all(state)
        # A phase in which no agent can bid takes a round all the same.
        phases.play(int(counts[_WAITING]) or int(counts[_TAKEN] < total), bid)
        sold = close_phase(market, counts)
        if counts[_TAKEN] == total or (phase > 0 and sold == 0):
            break
        if phase == 0:
            market.prices[market.resources["left"] > 0], state.short.lists["bound"] = 0.0, np.inf
    prices = np.empty(len(rows))
    prices[rows] = market.sold_for
    if augments:
        augment(numbered, lists.list_of[agent_at], holdings, limits, rows, market.sold_for)
    units, seen = held_units(holdings, limits), parts.trace() if trace else None
    units = np.column_stack((agent_at[units[:, 0]], rows[units[:, 1]]))
    if capacities is None:
        resource_of = np.full(len(agent_at), -1, dtype=np.int64)
        resource_of[units[:, 0]] = units[:, 1]
        return MatchOutcome(resource_of, phases.rounds, seen, prices)
    return MatchOutcome(exchange(lists, capacities, units, stream_keys, fill=fill), phases.rounds, seen, prices)


class AuctionRounds:
    """The same auction round by round, on bids that come from outside: one unit for each agent and of each resource."""

    def __init__(self, reserve_prices: FloatArray, stream_keys: Keys) -> None:
        agents, resources = np.arange(len(stream_keys)), np.arange(len(reserve_prices))
        lists = ValueLists(agents, np.zeros(len(agents) + 1, dtype=np.int64), resources[:0], np.empty(0))
        numbered = NumberedLists(lists.start, np.empty(0, dtype=np.int32), lists.values, np.full(len(agents), -1.0))
        limits = unit_capacities(len(agents), len(resources))
        # Every agent is a set of bidders of its own, with its own number.
        self._state = _open(lists, numbered, limits, agents, resources, reserve_prices, stream_keys)

    @property
    def prices(self) -> FloatArray:
        """What each resource costs, or was sold for."""
        return np.where(self.is_sold, self._state.market.sold_for, self._state.market.prices)

    @property
    def is_sold(self) -> NDArray[np.bool_]:
        """Which resources were sold in an earlier phase."""
        sold: NDArray[np.bool_] = self._state.market.resources["left"] == 0
        return sold

    @property
    def wants(self) -> NDArray[np.bool_]:
        """Which agents hold nothing."""
        waits: NDArray[np.bool_] = self._state.holdings.units["wants"] > 0
        return waits

    @property
    def holder(self) -> IntArray:
        """The agent that holds each resource, -1 for none."""
        holder, held = np.full(len(self._state.market.prices), -1, dtype=np.int64), np.flatnonzero(~self.wants)
        holder[self._state.holdings.units["holds"][held]] = held
        return holder

    def place(self, agents: IntArray, resources: IntArray, offers: FloatArray, rounds: int) -> bool:
        """Place a bid above the price for each of some agents that hold nothing; tell whether any agent has lost."""
        bidders, counts = self._state.bidders, self._state.counts
        bidders.sets["size"] = 0
        for name in ("size", "chosen", "bids"):
            bidders.sets[name][agents] = 1
        bidders.queue["agent"][agents] = bidders.active[: len(agents)] = agents
        bidders.queue["stream"][agents] = self._state.holdings.units["stream"][agents]
        bidders.resource[agents], bidders.offer[agents] = resources, offers
        counts[_ACTIVE] = counts[_WAITING] = len(agents)
        settle_bids(self._state, rounds)
        return bool(counts[_WAITING])

    def end_phase(self) -> int:
        """Sell what is held; return how many resources were sold."""
        return int(close_phase(self._state.market, self._state.counts))

    def reopen(self) -> None:
        """Offer for nothing what is not sold."""
        self._state.market.prices[~self.is_sold] = 0.0


def entropic_prices(lists: ValueLists, wants: FloatArray, capacity: IntArray) -> FloatArray:
    """Dual prices of transport with entropy, shape (resources,): list i wants `wants[i]` units.

    The program is max Σ x v - η Σ x ln x with Σ_r x(i, r) <= wants(i) and Σ_i x(i, r) <= capacity(r), solved by
    over-relaxed Sinkhorn sweeps (Thibault et al. 2021). Prices are rounded, to be the same on any processor.
    """
    most = max(float(lists.values.max(initial=0.0)), 0.0 if lists.rest is None else float(lists.rest.max(initial=0.0)))
    rest = np.zeros(len(wants)) if lists.rest is None else exponentials((lists.rest - most) / ENTROPY)
    weights = exponentials((lists.values - most) / ENTROPY) - np.repeat(rest, np.diff(lists.start))
    without = float(exponentials(np.array([-most / ENTROPY]))[0])
    scale = _sinkhorn(lists.start, lists.resources, weights, rest, without, wants, capacity.astype(np.float64))
    prices: FloatArray = np.maximum(np.round(-ENTROPY * np.log(scale), 9), 0.0)
    return prices


@numba.njit(cache=True, nogil=True)
def _sinkhorn(start, resources, weights, rest, without, wants, capacity):  # type: ignore[no-untyped-def]  # compiled
    """Return e^(-p / η) for each resource; going without weighs `without`, what list i does not name `rest[i]`."""
    scale, sums = np.ones(len(capacity)), np.empty(len(capacity))
    for _ in range(SWEEPS):
        sums[:] = common = 0.0
        whole = scale.sum()
        for row in range(len(wants)):
            total = without + rest[row] * whole
            for place in range(start[row], start[row + 1]):
                total += weights[place] * scale[resources[place]]
            share = wants[row] / total
            common += share * rest[row]
            for place in range(start[row], start[row + 1]):
                sums[resources[place]] += share * weights[place]
        for resource in range(len(capacity)):
            taken = (sums[resource] + common) * scale[resource]
            ratio = capacity[resource] / taken if taken > 0.0 else 1.0
            # To the power of 1.5 in place of 1: over-relaxed. Never nothing, of which there is no logarithm.
            scale[resource] = max(min(scale[resource] * ratio * np.sqrt(ratio), 1.0), 1e-300)
    return scale


def _open(
    lists: ValueLists,
    numbered: NumberedLists,
    limits: Capacities,
    agent_at: IntArray,
    rows: IntArray,
    reserve_prices: FloatArray,
    stream_keys: Keys,
) -> _State:
    """Return an auction without a bid, of agents in the order `agent_at`, and of resources `rows`."""
    threads = usual_threads()
    list_of, streams = (
        parallel_take(lists.list_of, agent_at, threads=threads),
        parallel_take(stream_keys, agent_at, threads=threads),
    )
    holdings, short = make_holdings(limits, streams, rows), _shortlists(lists, limits)
    return _State(
        numbered,
        short,
        _bidders(list_of, limits, holdings, short.kept.shape[1]),
        holdings,
        _market(limits, rows, reserve_prices),
        np.empty(len(agent_at), dtype=np.int64),
        np.zeros(8, dtype=np.int64),
    )


def _number(lists: ValueLists, count: int) -> tuple[SmallArray, IntArray, FloatArray]:
    """Return the resources of all lists by numbers in the order in which lists name them, and which row has which.

    The third is what each list's rest is worth, -1 where it has none.
    """
    if lists.rest is not None and lists.by_id is not None:
        return inverse(lists.by_id).astype(np.int32)[lists.resources], lists.by_id, lists.rest
    numbers, rows = _number_by_lists(lists.resources, count)
    return numbers, rows, np.full(len(lists.start) - 1, -1.0)


@numba.njit(cache=True, nogil=True)
def _number_by_lists(resources, count):  # type: ignore[no-untyped-def]  # compiled
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


def _shortlists(lists: ValueLists, limits: Capacities) -> _Shortlists:
    """Return room for what is known of lists."""
    number, most = len(lists.start) - 1, int(limits.demand.max(initial=0))
    deep = min(max(most + _SPARE, len(lists.resources) // (_SHARE * max(number, 1))), _DEEPEST)
    # An agent is barred from what it holds and from its conflicts: as many as it wants are left of these, and one more.
    few = min(most + 1 + int(np.diff(limits.conflict_start).max(initial=0)), deep)
    of_lists = np.zeros(number, dtype=_LIST)
    of_lists["bound"] = np.inf
    return _Shortlists(of_lists, np.empty((number, deep), dtype=_KEPT), np.empty((number, few), dtype=_ENTRY))


def _bidders(list_of: IntArray, limits: Capacities, holdings: Holdings, deep: int) -> _Bidders:
    """Return the sets of bidders, and write down which sets agents belong to."""
    demand, has_conflicts, agents = limits.demand, np.diff(limits.conflict_start) > 0, first_units(limits)[:-1]
    in_group = ~has_conflicts & (demand > 0) & (demand < deep)
    pair = list_of[in_group] * deep + demand[in_group]
    sizes = np.bincount(pair)
    pairs, number = np.flatnonzero(sizes), np.cumsum(sizes > 0) - 1
    alone = np.flatnonzero(((demand > 1) | has_conflicts) & (demand > 0))
    holdings.units["group"][agents[in_group]] = number[pair]
    holdings.units["alone"][agents[alone]] = len(pairs) + np.arange(len(alone))
    sets = np.zeros(len(pairs) + len(alone), dtype=_SET)
    sets["list"] = np.concatenate((pairs // deep, list_of[alone]))
    sets["demand"] = np.concatenate((pairs % deep, demand[alone]))
    sets["is_group"][: len(pairs)] = 1
    first, room = (
        offsets_from_sizes(np.concatenate((sizes[pairs], np.ones(len(alone), dtype=np.int64)))),
        offsets_from_sizes(sets["demand"]),
    )
    sets["first"], sets["room"] = first[:-1], room[:-1]
    active, resource = (np.empty(size, dtype=np.int64) for size in (len(sets), room[-1]))
    return _Bidders(sets, active, np.empty(first[-1], dtype=_WAITING_AGENT), resource, np.empty(room[-1]))


def _market(limits: Capacities, rows: IntArray, reserve_prices: FloatArray) -> _Market:
    """Return resources without a bid."""
    resources = np.zeros(len(rows), dtype=_RESOURCE)
    # More units than agents are never taken.
    resources["left"] = units = np.minimum(limits.capacity, int((limits.demand > 0).sum()))[rows]
    # Bids for more would take gigabytes.
    most = 100_000_000
    if units.sum() > most:
        raise InputError(f"Capacities come to {units.sum():,} seats, more than {most:,}: choose smaller ones.")
    resources["first"] = offsets_from_sizes(units)[:-1]
    bids, prices = np.empty(int(units.sum()), dtype=RANKED), np.where(units > 0, reserve_prices[rows], np.inf)
    return _Market(
        resources, bids, prices, np.zeros(len(rows)), np.empty(len(rows), dtype=np.int64), int(units.max(initial=0))
    )


def _bid_until(until: int, rounds: int, state: _State, step: float) -> int:
    """Play rounds of bidding, on several threads while very many sets have a list each."""
    threads, counts = usual_threads(), state.counts
    several = threads > 1 and len(state.bidders.sets) <= len(state.short.lists)
    while several and rounds < until and counts[_ACTIVE] >= _MANY_SETS:
        rounds += 1
        parallel_chunks(
            lambda *span, now=rounds: compute_bids(span, state, step, now),
            int(counts[_ACTIVE]),
            at_a_time=_SETS_AT_A_TIME,
            threads=threads,
        )
        settle_bids(state, rounds)
        if counts[_WAITING] == 0:
            return rounds
    return play_rounds(state, step, rounds, until) if rounds < until else rounds


def _leads(holdings: Holdings, bidders: IntArray, wanted: IntArray) -> IntArray:
    """Return what came of the bids of one round."""
    holds, end = holdings.units["holds"], holdings.units["end"]
    pairs = zip(bidders, wanted, strict=True)
    held = [resource in holds[agent : end[agent]] for agent, resource in pairs]
    return np.where(held, Outcome.LEADS, Outcome.LOSES)


@numba.njit(cache=True, nogil=True)
def play_rounds(state, step, rounds, until):  # type: ignore[no-untyped-def]  # compiled
    """Play rounds of bidding until none waits, at least one; return the rounds played."""
    while True:
        rounds += 1
        # Not the literal 0, for which numba compiles once more what several threads call.
        compute_bids((np.int64(0), state.counts[_ACTIVE]), state, step, rounds)
        settle_bids(state, rounds)
        if rounds >= until or state.counts[_WAITING] == 0:
            return rounds


@numba.njit(cache=True, nogil=True)
def compute_bids(span, state, step, rounds):  # type: ignore[no-untyped-def]  # compiled
    """Write the bids of some of the sets that wait: prices change between rounds only."""
    lists, short, bidders, holdings, market, _, _ = state
    sets, active, queue, resource_of, offer_of = bidders
    of_lists, _, best = short
    prices, resources, most_units = market.prices, market.resources, market.most_units
    common = counter(rounds, SELECTION)
    most = sets.demand.max() + 1
    own = np.empty((1, most), dtype=_ENTRY)
    for index in range(span[0], span[1]):
        bidder = active[index]
        of_set = sets[bidder]
        number, at = of_set.list, of_set.room
        if of_lists[number].looked != rounds:
            rank_entries(lists, short, prices, number, min(most, best.shape[1]))
            of_lists[number].looked = rounds
        units, ranked, row, found = of_set.demand, best, number, of_lists[number].found
        if not of_set.is_group:
            agent = queue[of_set.first].agent
            units, ranked, row = np.int64(holdings.units[agent].wants), own, np.int64(0)
            found = open_entries(lists, short, holdings, prices, agent, number, own[0])
        # Going without is worth nothing, so that no agent bids more than something is worth to it.
        second = ranked[row, units].value if found > units else 0.0
        bids, several = min(found, units), np.int64(0)
        for place in range(bids):
            resource = np.int64(ranked[row, place].item)
            resource_of[at + place] = resource
            offer_of[at + place] = prices[resource] + (ranked[row, place].value - second) + step
            several = max(several, np.int64(resources[resource].left) if most_units > 1 else np.int64(1))
        of_set.bids, of_set.chosen = bids, min(several, of_set.size)
        if bids > 0 and of_set.size > of_set.chosen:
            choose_bidders(queue, of_set.first, of_set.size, of_set.chosen, common)


@numba.njit(cache=True, nogil=True)
def draw_of(stream, common):  # type: ignore[no-untyped-def]  # compiled
    """Return a draw from [0, 2**53) of a stream, for what `counter` says."""
    return compiled_mix(stream ^ common) >> np.uint64(11)


@numba.njit(cache=True, nogil=True)
def choose_bidders(queue, begin, size, chosen, common):  # type: ignore[no-untyped-def]  # compiled
    """Move a set's members with the smallest draws to the end of its part of the queue, the smallest last."""
    # A heap in place, the smallest draw on top, from which members go to the end: sorting takes seconds to compile.
    left, top = size, size // 2
    while left > size - chosen:
        node = np.int64(0)
        if top > 0:
            top -= 1
            node = top
            agent, stream = queue[begin + node].agent, queue[begin + node].stream
        else:
            left -= 1
            first, last = queue[begin], queue[begin + left]
            agent, stream = last.agent, last.stream
            last.agent, last.stream = first.agent, first.stream
        draw = draw_of(stream, common)
        while 2 * node + 1 < left:
            under = 2 * node + 1
            least = draw_of(queue[begin + under].stream, common)
            if under + 1 < left:
                other = draw_of(queue[begin + under + 1].stream, common)
                if other < least:
                    under, least = under + 1, other
            if least >= draw:
                break
            above, below = queue[begin + node], queue[begin + under]
            above.agent, above.stream = below.agent, below.stream
            node = under
        queue[begin + node].agent, queue[begin + node].stream = agent, stream


@numba.njit(cache=True, nogil=True)
def settle_bids(state, rounds):  # type: ignore[no-untyped-def]  # compiled
    """Place the bids of all sets that wait, and let those wait again that lost a bid or a unit."""
    _, _, bidders, holdings, market, outbid, counts = state
    sets, active, queue, resource_of, offer_of = bidders
    units, (resources, bids, prices, _, touched, _) = holdings.units, market
    common, lost = counter(rounds, SELECTION), 0
    for index in range(counts[_ACTIVE]):
        of_set = sets[active[index]]
        end = of_set.first + of_set.size
        for place in range(of_set.room, of_set.room + of_set.bids):
            resource, offer = resource_of[place], offer_of[place]
            row = resources[resource]
            top = row.first
            for slot in range(end - 1, end - 1 - of_set.chosen, -1):
                agent, draw, at = queue[slot].agent, np.int64(draw_of(queue[slot].stream, common)), row.used
                out = agent
                if at < row.left:
                    if at == 0:
                        touched[counts[_TOUCHED]] = resource
                        counts[_TOUCHED] += 1
                    row.used += 1
                    counts[_TAKEN] += 1
                    out = -1
                elif offer > prices[resource] or (offer == prices[resource] and draw < bids[top].tie):
                    # What is full costs its lowest bid.
                    out, at = bids[top].item, 0
                    unit = out
                    while units[unit].holds != resource:
                        unit += 1
                    units[unit].holds = -1
                    units[out].wants += 1
                if out != agent:
                    unit = agent
                    while units[unit].holds >= 0:
                        unit += 1
                    units[unit].holds = resource
                    units[agent].wants -= 1
                    sift(bids, top, row.used, at, offer, draw, agent)
                    if row.used == row.left:
                        # Bids were computed at the prices before this round.
                        prices[resource] = bids[top].value
                if out >= 0 and units[out].outbid_in != rounds:
                    units[out].outbid_in, outbid[lost] = rounds, out
                    lost += 1
    still = 0
    for index in range(counts[_ACTIVE]):
        bidder = active[index]
        of_set = sets[bidder]
        end = of_set.first + of_set.size
        # A set for whose members nothing is worth its price gives up.
        kept = end - of_set.chosen if of_set.bids > 0 else of_set.first
        for slot in range(kept, end if of_set.bids > 0 else kept):
            agent = queue[slot].agent
            of_agent = units[agent]
            if of_agent.outbid_in == rounds and of_agent.group == bidder and of_agent.wants == of_set.demand:
                # It has lost all its bids, held nothing, and goes on waiting where it is.
                of_agent.outbid_in = -1
                queue[kept].agent, queue[kept].stream = agent, of_agent.stream
                kept += 1
        counts[_WAITING] -= end - kept
        of_set.size = kept - of_set.first
        active[still] = bidder
        still += of_set.size > 0
    counts[_ACTIVE] = still
    for index in range(lost):
        if units[outbid[index]].outbid_in == rounds:
            enqueue(bidders, units, counts, outbid[index])


@numba.njit(cache=True, nogil=True)
def enqueue(bidders, units, counts, agent):  # type: ignore[no-untyped-def]  # compiled
    """Let an agent wait: in its group if it holds nothing, otherwise by itself."""
    sets, active, queue, _, _ = bidders
    of_agent = units[agent]
    bidder = of_agent.group
    if bidder < 0 or of_agent.wants < sets[bidder].demand:
        bidder = of_agent.alone
    of_set = sets[bidder]
    if of_set.size == 0:
        active[counts[_ACTIVE]] = bidder
        counts[_ACTIVE] += 1
    slot = of_set.first + of_set.size
    queue[slot].agent, queue[slot].stream = agent, of_agent.stream
    of_set.size += 1
    counts[_WAITING] += 1


@numba.njit(cache=True, nogil=True)
def enqueue_all(state):  # type: ignore[no-untyped-def]  # compiled
    """Let every agent wait that wants more."""
    _, _, bidders, holdings, _, _, counts = state
    for bidder in range(len(bidders.sets)):
        bidders.sets[bidder].size = 0
    counts[_ACTIVE] = counts[_WAITING] = 0
    agent = np.int64(0)
    while agent < len(holdings.units):
        if holdings.units[agent].wants > 0:
            enqueue(bidders, holdings.units, counts, agent)
        agent = holdings.units[agent].end


@numba.njit(cache=True, nogil=True)
def close_phase(market, counts):  # type: ignore[no-untyped-def]  # compiled
    """Sell what is held; return how many resources were sold."""
    sold = counts[_TOUCHED]
    for index in range(sold):
        resource = market.touched[index]
        row = market.resources[resource]
        market.sold_for[resource] = market.prices[resource]
        row.left -= row.used
        row.used = 0
        if row.left == 0:
            market.prices[resource] = np.inf
    counts[_TOUCHED] = 0
    return sold


@numba.njit(cache=True, nogil=True)
def write_bids(state, trace):  # type: ignore[no-untyped-def]  # compiled
    """Write all bids of a round, also those of members of a set that cannot succeed."""
    bidders, row = state.bidders, 0
    agents, resources, offers = trace
    for index in range(state.counts[_ACTIVE]):
        of_set = bidders.sets[bidders.active[index]]
        for slot in range(of_set.first, of_set.first + of_set.size):
            for place in range(of_set.room, of_set.room + of_set.bids):
                agents[row], resources[row], offers[row] = (
                    bidders.queue[slot].agent,
                    bidders.resource[place],
                    bidders.offer[place],
                )
                row += 1


@numba.njit(cache=True, nogil=True)
def rank_entries(lists, short, prices, number, need):  # type: ignore[no-untyped-def]  # compiled
    """Rank a list's best entries after prices: at least `need` of them, or all that are worth their price.

    Prices only rise within a phase, so that no other entry is worth more than the best of the others was when all were
    looked at, and none of the shortlist more than it was then. A list's rest is looked at only where what it names does
    not say which entries are best.
    """
    of_list, found = short.lists[number], 0
    for attempt in range(3):
        if of_list.bound < np.inf:
            found = rank_shortlist(short, prices, number)
        if found >= need or of_list.bound < 0.0 or (attempt == 1 and lists.rest[number] < 0.0):
            break
        if attempt < 2:
            refresh_shortlist(lists, short, prices, number, attempt == 1)
    of_list.found = found


@numba.njit(cache=True, nogil=True)
def rank_shortlist(short, prices, number):  # type: ignore[no-untyped-def]  # compiled
    """Write the best entries of a shortlist after prices; return how many are known to be the best of the list."""
    lists, kept, best = short
    of_list, most, found = lists[number], best.shape[1], 0
    for place in range(of_list.begin, kept.shape[1]):
        entry = kept[number, place]
        if entry.tie < 0:
            break
        if found == most:
            last = best[number, most - 1]
            if entry.value < last.value or (entry.value == last.value and entry.tie > last.tie):
                break
        gain = entry.worth - prices[entry.item]
        if gain < 0.0 or gain < of_list.bound or (gain == of_list.bound and entry.tie > of_list.bound_tie):
            of_list.begin += of_list.begin == place
            continue
        slot = found
        while slot > 0:
            above = best[number, slot - 1]
            if above.value > gain or (above.value == gain and above.tie < entry.tie):
                break
            if slot < most:
                row = best[number, slot]
                row.value, row.tie, row.item = above.value, above.tie, above.item
            slot -= 1
        if slot < most:
            row = best[number, slot]
            row.value, row.tie, row.item = gain, entry.tie, entry.item
            found = min(found + 1, most)
    return found


@numba.njit(cache=True, nogil=True)
def refresh_shortlist(lists, short, prices, number, with_rest):  # type: ignore[no-untyped-def]  # compiled
    """Keep the entries of a list that are worth most now; of the others, the most that any is worth, and the first.

    Without its rest, all of that counts among the others, as if it were free.
    """
    start, resources, values, rest = lists
    of_list, heap, deep, kept = short.lists[number], short.kept[number], short.kept.shape[1], 0
    # Of equal gains, later entries give way. For the literal 0 `sift` would be compiled once more.
    bound, bound_tie, top = -1.0, np.int64(-1), np.int64(0)
    here, end, value = start[number], start[number + 1], rest[number]
    by_number = value >= 0.0
    for place in range(len(prices) if with_rest else end - here):
        resource, worth = np.int64(place), value
        if not with_rest or (here < end and resources[here] == place):
            resource, worth = np.int64(resources[here]), values[here]
            here += 1
        gain, tie = worth - prices[resource], resource if by_number else here - 1
        if gain < 0.0:
            continue
        if kept < deep:
            kept += 1
            sift(heap, top, kept, kept - 1, gain, tie, resource)
        elif gain <= heap[0].value:
            # The first of those that are worth the most, since ties ascend.
            if gain > bound:
                bound, bound_tie = gain, tie
        else:
            if heap[0].value >= bound:
                bound, bound_tie = heap[0].value, heap[0].tie
            sift(heap, top, deep, top, gain, tie, resource)
    for place in range(kept, deep):
        heap[place].tie = -1
    # Best first: the lowest of those that are left goes behind them.
    for last in range(kept - 1, 0, -1):
        value_at, tie_at, item_at = heap[0].value, heap[0].tie, heap[0].item
        sift(heap, top, last, top, heap[last].value, np.int64(heap[last].tie), np.int64(heap[last].item))
        heap[last].value, heap[last].tie, heap[last].item = value_at, tie_at, item_at
    for place in range(kept):
        at = np.int64(heap[place].tie)
        if by_number:
            at = np.int64(start[number] + np.searchsorted(resources[start[number] : end], at))
        named = at < end and resources[at] == heap[place].item
        heap[place].worth = values[at] if named else value
    if by_number and not with_rest and value >= bound:
        bound, bound_tie = value, np.int64(-1)
    of_list.bound, of_list.bound_tie, of_list.begin = bound, bound_tie, 0


@numba.njit(cache=True, nogil=True)
def open_entries(lists, short, holdings, prices, agent, number, ranked):  # type: ignore[no-untyped-def]  # compiled
    """Write the best entries of a list that are open to an agent, one more than it wants; return how many there are."""
    of_list, most, found = short.lists[number], np.int64(holdings.units[agent].wants), 0
    for place in range(of_list.found):
        entry = short.best[number, place]
        if found <= most and not is_barred(holdings, agent, np.int64(entry.item)):
            ranked[found].value, ranked[found].item = entry.value, entry.item
            found += 1
    if found > most or of_list.bound < 0.0:
        return found
    # The shortlist does not say which are best: look at all.
    start, resources, values, rest = lists
    found, here, end, value = 0, start[number], start[number + 1], rest[number]
    for place in range(len(prices) if value >= 0.0 else end - here):
        resource, worth = np.int64(place), value
        if value < 0.0 or (here < end and resources[here] == place):
            resource, worth = np.int64(resources[here]), values[here]
            here += 1
        gain = worth - prices[resource]
        if gain < 0.0 or (found > most and gain <= ranked[most].value) or is_barred(holdings, agent, resource):
            continue
        slot = found if found < most else most
        while slot > 0 and ranked[slot - 1].value < gain:
            ranked[slot].value, ranked[slot].item = ranked[slot - 1].value, ranked[slot - 1].item
            slot -= 1
        ranked[slot].value, ranked[slot].item = gain, resource
        found = found + 1 if found <= most else found
    return found

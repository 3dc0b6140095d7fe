"""Resources that post prices and agents that bid: taking turns without a centre, to within a step of the optimum.

Every free agent bids for what is worth most to it after the price, as much as it could pay before something else
became worth more, plus a public step; the highest bid holds a resource until it is outbid (Bertsekas 1988, all free
agents at once). What agents bid with is their report, so that bidding costs no privacy. The kernel takes arrays only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numba
import numpy as np

from palmatch.device import bid as device_bid
from palmatch.errors import DidNotConverge
from palmatch.matching import Outcome, Trace
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import SELECTION, Keys, compiled_draw
from palmatch.rounds.recording import TraceParts

_ROUNDS_AT_ONCE = 64

# Resources of a list that are looked at first.
SHORT = 8


# The device's own rule, as it is.
best_bid = numba.njit(cache=True)(device_bid.best_bid)


@dataclass(frozen=True, slots=True)
class ValueLists:
    """What agents act on: agent n has the list number `list_of[n]`, which other agents may have as well.

    On list i the resources `resources[start[i]:start[i + 1]]` are worth `values[...]`; ascending by public id.
    """

    list_of: IntArray
    start: IntArray
    resources: IntArray
    values: FloatArray


@dataclass(frozen=True, slots=True)
class Sale:
    """How the bidding ended: each agent's resource (-1: none), the prices, and the rounds."""

    resource_of: IntArray
    prices: FloatArray
    rounds: int
    trace: Trace | None = None


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
    `patience` rounds, what is sold is sold, and what is not is offered for nothing, also to those that gave up, with
    twice the step and a quarter of the patience, until such a call sells nothing. So an opening price that was too high
    leaves nothing unsold, and the last rivals part in a time that does not depend on how many agents there are.
    `names` are public streams: they decide between equal bids.
    """
    agents, resources = len(lists.list_of), len(opening)
    prices, holder = opening.copy(), np.full(resources, -1, dtype=np.int64)
    bids = (np.zeros(resources), np.full(resources, -1, dtype=np.int64), np.zeros(resources, dtype=np.int64))
    table = (lists.list_of, lists.start, lists.resources, lists.values)
    sold_for = np.full(resources, np.nan)
    patient = most_rounds if patience is None else patience
    rounds, held, seen = 0, np.full(agents, -1, dtype=np.int64), TraceParts()
    for call in count():
        queue = np.empty(agents, dtype=np.int64)
        free = np.flatnonzero(held < 0)
        # What agents of one list look at lies side by side; their order decides nothing but that of a trace.
        queue[: len(free)] = free if trace else free[np.argsort(lists.list_of[free], kind="stable")]
        waiting, deadline = len(free), rounds + patient
        while waiting and rounds < deadline:
            if rounds >= most_rounds:
                raise DidNotConverge(f"{waiting} of {agents} agents were still bidding after {most_rounds:,} rounds.")
            until = min(rounds + (1 if trace else _ROUNDS_AT_ONCE), most_rounds, deadline)
            buffers = seen.room(waiting if trace else 0)
            rounds, waiting = bid(names, table, prices, holder, bids, queue, waiting, step, rounds, until, buffers)
            if trace:
                seen.add(buffers, rounds, _led(buffers, holder))
            if progress is not None:
                progress(agents - waiting, agents)
        sold = (holder >= 0) & np.isnan(sold_for)
        held[holder[sold]] = np.flatnonzero(sold)
        sold_for[sold] = prices[sold]
        # Opening prices may have been too high for every agent; nothing is cheaper than the later calls.
        if len(free) == 0 or (call > 0 and not sold.any()):
            break
        # No agent can outbid this.
        prices = np.where(holder >= 0, np.inf, 0.0)
        step, patient = 2 * step, max(patient // 4, 1)
    return Sale(held, np.where(holder >= 0, sold_for, prices), rounds, seen.trace() if trace else None)


def _led(buffers: tuple[IntArray, IntArray, FloatArray], holder: IntArray) -> IntArray:
    """Return what came of the bids of one round."""
    agents, resources, _ = buffers
    return np.where(holder[np.maximum(resources, 0)] == agents, Outcome.LEADS, Outcome.LOSES)


@numba.njit(cache=True)
def _look(table, prices, number, step, short):  # type: ignore[no-untyped-def]  # compiled
    """Return the `best_bid` of a list, mostly from the few of its resources that were worth most when last looked at.

    Prices only rise while bids are made, so that no other resource is worth more than the largest of the others was
    then. Where two of the few are still worth more than that, they are the best two of the whole list.
    """
    _, start, resources, values = table
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


@numba.njit(cache=True)
def _shorten(table, prices, number, short):  # type: ignore[no-untyped-def]  # compiled
    """Write the resources of a list that are worth most now, in the list's order; return the most of any other."""
    _, start, resources, values = table
    short_values, short_resources, _ = short
    gains, places, kept = np.empty(SHORT + 1), np.empty(SHORT + 1, dtype=np.int64), 0
    for place in range(start[number], start[number + 1]):
        gain = values[place] - prices[resources[place]]
        if kept > SHORT and gain <= gains[SHORT]:
            continue
        slot = min(kept, SHORT)
        while slot > 0 and gains[slot - 1] < gain:
            gains[slot], places[slot] = gains[slot - 1], places[slot - 1]
            slot -= 1
        gains[slot], places[slot] = gain, place
        kept = min(kept + 1, SHORT + 1)
    chosen = np.sort(places[:SHORT])
    for index in range(SHORT):
        short_values[number * SHORT + index] = values[chosen[index]]
        short_resources[number * SHORT + index] = resources[chosen[index]]
    return gains[SHORT]


@numba.njit(cache=True)
def bid(names, table, prices, holder, board, queue, waiting, step, rounds, until, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play rounds of bidding; return (rounds played, agents that still want to bid)."""
    list_of, start, _, _ = table
    bids, bidders, drawn = board
    trace_agent, trace_resource, trace_offer = trace
    tracing = len(trace_agent) > 0
    touched = np.empty(len(prices), dtype=np.int64)
    following = np.empty(len(queue), dtype=np.int64)
    # Prices change between rounds only, so one look a round does for all agents with the same list.
    looked = np.full(len(start) - 1, -1, dtype=np.int64)
    favourite = np.empty(len(start) - 1, dtype=np.int64)
    offers = np.empty(len(start) - 1)
    lists = len(start) - 1
    short = (np.empty(lists * SHORT), np.empty(lists * SHORT, dtype=np.int64), np.full(lists, np.inf))
    while waiting > 0 and rounds < until:
        rounds += 1
        count = 0
        kept = 0
        for index in range(waiting):
            agent = queue[index]
            number = list_of[agent]
            if looked[number] != rounds:
                looked[number] = rounds
                favourite[number], offers[number] = _look(table, prices, number, step, short)
            wanted, offer = favourite[number], offers[number]
            if tracing:
                trace_agent[index], trace_resource[index], trace_offer[index] = agent, wanted, offer
            if wanted < 0:
                continue
            chance = compiled_draw(names[agent], rounds, SELECTION)
            if bidders[wanted] < 0:
                touched[count] = wanted
                count += 1
                bidders[wanted] = agent
                bids[wanted] = offer
                drawn[wanted] = chance
            elif offer > bids[wanted] or (offer == bids[wanted] and chance < drawn[wanted]):
                following[kept] = bidders[wanted]
                kept += 1
                bidders[wanted] = agent
                bids[wanted] = offer
                drawn[wanted] = chance
            else:
                following[kept] = agent
                kept += 1
        for index in range(count):
            resource = touched[index]
            if holder[resource] >= 0:
                following[kept] = holder[resource]
                kept += 1
            holder[resource] = bidders[resource]
            prices[resource] = bids[resource]
            bidders[resource] = -1
        queue[:kept] = following[:kept]
        waiting = kept
    return rounds, waiting

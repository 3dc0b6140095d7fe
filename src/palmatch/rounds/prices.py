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

from palmatch.errors import DidNotConverge
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import SELECTION, Keys, compiled_draw, streams

_ROUNDS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Stalls:
    """What agents bid with: agent n stands at stall `stall_of[n]`, where everybody values things alike.

    At stall i the resources `resources[start[i]:start[i + 1]]` are worth `values[...]`; ascending by public id.
    """

    stall_of: IntArray
    start: IntArray
    resources: IntArray
    values: FloatArray


@dataclass(frozen=True, slots=True)
class Sale:
    """How the bidding ended: each agent's resource (-1: none), the prices, and the rounds."""

    resource_of: IntArray
    prices: FloatArray
    rounds: int


def sell(
    stalls: Stalls,
    opening: FloatArray,
    step: float,
    *,
    keys: Keys,
    seed: int,
    patience: int | None = None,
    most_rounds: int = 1_000_000,
    progress: Callable[[int, int], None] | None = None,
) -> Sale:
    """Let everybody bid until nobody wants to.

    An agent to whom nothing is worth its price gives up. When all is quiet, or after `patience` rounds, the gavel
    falls: what is sold is sold, and what is not is offered for nothing, also to those who gave up, with twice the step
    and a quarter of the patience, until a call sells nothing. So an opening price that was too high leaves nothing on
    the shelf, and the last rivals part in a time that does not depend on how many agents there are.
    """
    agents, resources = len(stalls.stall_of), len(opening)
    names = streams(seed, keys)
    prices, holder = opening.copy(), np.full(resources, -1, dtype=np.int64)
    board = (np.zeros(resources), np.full(resources, -1, dtype=np.int64), np.zeros(resources, dtype=np.int64))
    table = (stalls.stall_of, stalls.start, stalls.resources, stalls.values)
    sold_for = np.full(resources, np.nan)
    patient = most_rounds if patience is None else patience
    rounds, held = 0, np.full(agents, -1, dtype=np.int64)
    for call in count():
        queue = np.empty(agents, dtype=np.int64)
        free = np.flatnonzero(held < 0)
        queue[: len(free)] = free
        waiting, gavel = len(free), rounds + patient
        while waiting and rounds < gavel:
            if rounds >= most_rounds:
                raise DidNotConverge(f"{waiting} of {agents} agents were still bidding after {most_rounds:,} rounds.")
            until = min(rounds + _ROUNDS_AT_ONCE, most_rounds, gavel)
            rounds, waiting = bid(names, table, prices, holder, board, queue, waiting, step, rounds, until)
            if progress is not None:
                progress(agents - waiting, agents)
        sold = (holder >= 0) & np.isnan(sold_for)
        held[holder[sold]] = np.flatnonzero(sold)
        sold_for[sold] = prices[sold]
        # Opening prices may have been too high for everybody; nothing is cheaper than the later calls.
        if len(free) == 0 or (call > 0 and not sold.any()):
            break
        # Nobody can outbid this.
        prices = np.where(holder >= 0, np.inf, 0.0)
        step, patient = 2 * step, max(patient // 4, 1)
    return Sale(held, np.where(holder >= 0, sold_for, prices), rounds)


@numba.njit(cache=True)
def look(table, prices, stall, step):  # type: ignore[no-untyped-def]  # compiled
    """Return (resource, bid) of whoever stands at a stall; the resource is -1 if nothing is worth its price."""
    _, start, resources, values = table
    # Going without is worth nothing, so that nobody bids more than something is worth to it.
    best, second, wanted = -1.0, 0.0, -1
    for place in range(start[stall], start[stall + 1]):
        gain = values[place] - prices[resources[place]]
        if gain > best:
            if wanted >= 0:
                second = max(second, best)
            best, wanted = gain, resources[place]
        elif gain > second:
            second = gain
    if best < 0.0:
        return -1, 0.0
    return wanted, prices[wanted] + (best - second) + step


@numba.njit(cache=True)
def bid(names, table, prices, holder, board, queue, waiting, step, rounds, until):  # type: ignore[no-untyped-def]  # compiled
    """Play rounds of bidding; return (rounds played, agents that still want to bid)."""
    stall_of, start, _, _ = table
    bids, bidders, drawn = board
    touched = np.empty(len(prices), dtype=np.int64)
    following = np.empty(len(queue), dtype=np.int64)
    # Prices change between rounds only, so one look a round does for everybody at a stall.
    looked = np.full(len(start) - 1, -1, dtype=np.int64)
    favourite = np.empty(len(start) - 1, dtype=np.int64)
    offers = np.empty(len(start) - 1)
    while waiting > 0 and rounds < until:
        rounds += 1
        count = 0
        kept = 0
        for index in range(waiting):
            agent = queue[index]
            stall = stall_of[agent]
            if looked[stall] != rounds:
                looked[stall] = rounds
                favourite[stall], offers[stall] = look(table, prices, stall, step)
            wanted, offer = favourite[stall], offers[stall]
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

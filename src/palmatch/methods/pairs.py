"""Partners for agents once it is known what pairs are worth: the optimum, the best pair first, at random, and by bids.

All of it is a function of a table of worths, of public limits and of public randomness: where the table follows from
reports, so does the matching, and nothing further is revealed. What a report is worth to another is computed here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp

import numba
import numpy as np

from palmatch.device.report import SMALLEST
from palmatch.errors import InputError
from palmatch.matching import Trace
from palmatch.neighbourhood import Neighbourhood, Progress
from palmatch.policies.channel import Channel
from palmatch.policies.once import CELLS, Crowd, response, silent
from palmatch.problem import FloatArray, IntArray, Mutual
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import SELECTION, Keys, draws
from palmatch.rounds.seat_auction import sell_seats
from palmatch.seats import Seats

# Worths become whole numbers for the exact optimum: it is off by at most this much for each pair.
_SCALE = 1 << 40

# The exact optimum looks at every pair, several times: of more agents it would take hours.
MOST_AGENTS = 2500

# What an exchange of partners has to gain: more than rounding makes of nothing.
_LEAST_GAIN = 1e-9

# Types that stand for all of them, over all regions, when the worth of reports to each other is computed.
_POINTS = 6000


def both_ways(pairs: IntArray) -> IntArray:
    """Return units (agent, partner) of pairs: each one twice."""
    return np.vstack((pairs, pairs[:, ::-1])).astype(np.int64)


def refuse_too_many(agents: int, method: str) -> None:
    """Refuse more agents than an exact optimum can be found for."""
    if agents > MOST_AGENTS:
        raise InputError(
            f"{method} finds the best pairs of all, here among {agents:,} agents, and takes at most {MOST_AGENTS:,}: "
            "leave it out, or match fewer agents."
        )


def mutual_worth(utilities: FloatArray, seats: Seats) -> FloatArray:
    """Return what each pair is worth to both its ends together; nothing where it is excluded."""
    return np.where(seats.allowed(*utilities.shape), utilities + utilities.T, 0.0)


def best_pairs(utilities: FloatArray, seats: Seats) -> IntArray:
    """Return the pairs of the largest sum of utilities: a maximum-weight matching of a general graph (blossoms).

    Pairs that are worth nothing are left out.
    """
    from rustworkx import PyGraph, max_weight_matching

    worth = mutual_worth(utilities, seats)
    one, other = np.nonzero(np.triu(worth, 1))
    weight = np.rint(worth[one, other] * _SCALE).astype(np.int64)
    graph: PyGraph[int, int] = PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(worth)))
    graph.add_edges_from(list(zip(one.tolist(), other.tolist(), weight.tolist(), strict=True)))
    found = sorted(sorted(pair) for pair in max_weight_matching(graph, weight_fn=int, default_weight=0))
    return both_ways(np.array(found, dtype=np.int64).reshape(-1, 2))


def shuffled_best_pairs(utilities: FloatArray, seats: Seats, order: IntArray) -> IntArray:
    """Return the same, where a public order, and not that of the rows, decides between equal agents."""
    units = best_pairs(utilities[np.ix_(order, order)], seats.of(order))
    return order[units]


def greedy_pairs(utilities: FloatArray, seats: Seats, order: IntArray) -> IntArray:
    """Return the best pair, then the best of those left, and so on; `order` decides between equal ones."""
    worth = mutual_worth(utilities, seats)[np.ix_(order, order)]
    one, other = np.nonzero(np.triu(worth, 1))
    by_worth = np.argsort(-worth[one, other], kind="stable")
    return both_ways(order[_first_come(one[by_worth], other[by_worth], len(worth))])


def random_pairs(seats: Seats, order: IntArray) -> IntArray:
    """Return pairs of agents that come one after the other in a random order, and are not excluded."""
    excluded = {(one, other) for one, other in seats.conflicts.tolist()}
    waiting, found = order.tolist(), []
    while waiting:
        agent = waiting.pop()
        place = next((p for p in range(len(waiting) - 1, -1, -1) if (agent, waiting[p]) not in excluded), None)
        if place is not None:
            found.append((agent, waiting.pop(place)))
    return both_ways(np.array(found, dtype=np.int64).reshape(-1, 2))


def _first_come(one: IntArray, other: IntArray, agents: int) -> IntArray:
    """Return pairs in the given order, without those of which an end is taken."""
    free, found = [True] * agents, []
    for pair in zip(one.tolist(), other.tolist(), strict=True):
        if free[pair[0]] and free[pair[1]]:
            free[pair[0]] = free[pair[1]] = False
            found.append(pair)
    return np.array(found, dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class Bidding:
    """How bids for partners ended: units (agent, partner), rounds, and what was bid."""

    units: IntArray
    rounds: int
    trace: Trace | None


def bid_for_partners(
    worth: FloatArray,
    seats: Seats,
    *,
    most: int,
    step: float,
    patience: int,
    names: Keys,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Bidding:
    """Let agents bid for partners on public worths (symmetric) until no agent is left that could be paired.

    Every agent has a price as a partner, and bids for its `most` best ones: the auction of an assignment in which each
    agent holds one and is held by one. Following which agent holds which gives paths and circles; each takes its best
    pairs, and the agents that are left, as one is of every circle of odd length, bid again. Then two pairs exchange
    partners wherever all four gain by it together, until none do.
    """
    partner, rounds, traces = np.full(len(worth), -1, dtype=np.int64), 0, []
    while True:
        free = partner < 0
        lists = _lists(np.where(free[:, None] & free[None, :], worth, 0.0), most)
        limits = replace(seats, capacity=free.astype(np.int64), demand=free.astype(np.int64))
        opening = np.zeros(len(worth))
        sale = sell_seats(
            lists, opening, step, seats=limits, names=names, patience=patience, trace=trace, progress=progress
        )
        if sale.trace is not None:
            traces.append(replace(sale.trace, step=sale.trace.step + rounds))
        rounds += sale.rounds
        found = _along(sale.resource_of, worth)
        if not len(found):
            break
        partner[found[:, 0]], partner[found[:, 1]] = found[:, 1], found[:, 0]
    rounds += _exchange(worth, partner, np.argsort(draws(names, 0, SELECTION), kind="stable"))
    held = np.flatnonzero(partner >= 0)
    return Bidding(np.column_stack((held, partner[held])), rounds, _joined(traces) if trace else None)


@numba.njit(cache=True)
def _exchange(worth, partner, order):  # type: ignore[no-untyped-def]  # compiled
    """Exchange partners while two pairs, or a pair and an agent alone, gain by it; return how often all were asked."""
    rounds, changed = 0, True
    while changed:
        changed = False
        rounds += 1
        for first in order:
            for second in order:
                one, other = partner[first], partner[second]
                if second in (first, one):
                    continue
                now = (worth[first, one] if one >= 0 else 0.0) + (worth[second, other] if other >= 0 else 0.0)
                then = worth[first, second] + (worth[one, other] if one >= 0 and other >= 0 else 0.0)
                if then > now + _LEAST_GAIN and worth[first, second] > 0.0:
                    changed = True
                    partner[first], partner[second] = second, first
                    both = one >= 0 and other >= 0 and worth[one, other] > 0.0
                    if one >= 0:
                        partner[one] = other if both else -1
                    if other >= 0:
                        partner[other] = one if both else -1
    return rounds


def _joined(traces: list[Trace]) -> Trace:
    columns = ("step", "agent", "resource", "outcome", "offer")
    return Trace(*(np.concatenate([getattr(one, name) for one in traces]) for name in columns))


def _lists(worth: FloatArray, most: int) -> ValueLists:
    """Return each agent's best partners that are worth anything, by number."""
    few = min(most, len(worth) - 1)
    # Of equal ones at the end of a list those with the smallest numbers.
    best = np.sort(np.argsort(-worth, axis=1, kind="stable")[:, :few], axis=1)
    values = np.take_along_axis(worth, best, axis=1)
    kept = values > 0
    start = np.concatenate(([0], np.cumsum(kept.sum(axis=1)))).astype(np.int64)
    return ValueLists(np.arange(len(worth)), start, best[kept].astype(np.int64), values[kept])


def _along(units: IntArray, worth: FloatArray) -> IntArray:
    """Return the best pairs along the paths and circles of which agent holds which."""
    holds = dict(units.tolist())
    held = set(holds.values())
    found: list[tuple[int, int]] = []
    # Paths from their beginnings; what is left after them are circles.
    for first in [agent for agent in holds if agent not in held] + sorted(holds):
        chain = [first]
        while chain[-1] in holds:
            chain.append(holds.pop(chain[-1]))
        links = list(pairwise(chain))
        if chain[0] == chain[-1]:
            # The first and the last link of a circle share an agent, and so do the two links of a circle of two.
            found += max(_best_links(links[1:], worth), _best_links(links[:-1], worth))[1]
        else:
            found += _best_links(links, worth)[1]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _best_links(links: list[tuple[int, int]], worth: FloatArray) -> tuple[float, list[tuple[int, int]]]:
    """Return the links of a path of the largest worth no two of which follow each other, with that worth."""
    without: tuple[float, list[tuple[int, int]]] = (0.0, [])
    best = without
    for link in links:
        without, best = best, max(best, (without[0] + float(worth[link]), [*without[1], link]))
    return best


def partner_channels(crowds: list[Crowd], prices: FloatArray, progress: Progress | None) -> list[Channel]:
    """Return a channel for each crowd: the one under which its agents are expected to gain most at public prices."""
    channels = []
    for number, crowd in enumerate(crowds):
        channels.append(_best_channel(crowd, prices))
        if progress is not None:
            progress(number + 1, len(crowds))
    return channels


def _best_channel(crowd: Crowd, prices: FloatArray) -> Channel:
    """Try numbers of cells: each report is worth its best partner after prices, as often as it is given."""
    region = crowd.region
    share = crowd.prior / crowd.prior.sum()
    best = silent(region, prior=crowd.prior)
    if crowd.epsilon < SMALLEST or len(region.types) == 1:
        return best
    most = _gain(best, region, share, prices)
    # More cells than this cannot be told apart under the noise.
    most_cells = min(len(region.types), 2 * (1 + exp(min(crowd.epsilon, 10.0))))
    for cells in CELLS:
        if cells <= most_cells:
            channel = response(region, cells, crowd.epsilon, prior=crowd.prior)
            gain = _gain(channel, region, share, prices)
            if gain > most:
                best, most = channel, gain
    return best


def _gain(channel: Channel, region: Neighbourhood, share: FloatArray, prices: FloatArray) -> float:
    chances = channel.chances / channel.chances[0].sum()
    often = share @ chances[channel.cell_of]
    left = (channel.values - prices[region.resources]).max(axis=1)
    return float(often @ np.maximum(left, 0.0))


def worth_of_reports(
    domain: Mutual, channels: Sequence[Channel], regions: Sequence[Neighbourhood], priors: Sequence[FloatArray]
) -> FloatArray:
    """Return what agents are expected to be worth to each other by their reports, those of all channels in turn.

    Types are independent given the reports; some types of each cell stand for all of it.
    """
    each = max(_POINTS // sum(channel.cells for channel in channels), 1)
    points, known = [], []
    for channel, region, prior in zip(channels, regions, priors, strict=True):
        rows, cell, share = _some_of_each(channel, prior, each)
        likely = share[:, None] * channel.chances[cell]
        points.append(region.types[rows])
        known.append((likely / likely.sum(axis=0)).T)
    all_agents = np.vstack(points)
    start = np.concatenate(([0], np.cumsum([len(some) for some in points])))
    halfway = [chances @ domain.between(some, all_agents) for chances, some in zip(known, points, strict=True)]
    rows = np.vstack(halfway)
    return np.hstack([rows[:, start[place] : start[place + 1]] @ chances.T for place, chances in enumerate(known)])


def _some_of_each(channel: Channel, prior: FloatArray, each: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Return types that stand for their cells, at most so many each, with their cells and their shares of the prior."""
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(prior))
    rows = np.concatenate([order[channel.cell_of[order] == cell][:each] for cell in range(channel.cells)])
    cell = channel.cell_of[rows]
    of_cell = np.bincount(channel.cell_of, weights=prior, minlength=channel.cells)
    chosen = np.bincount(cell, weights=prior[rows], minlength=channel.cells)
    weight = np.where(chosen[cell] > 0, prior[rows], 1.0)
    return rows, cell, of_cell[cell] * weight / np.bincount(cell, weights=weight)[cell]

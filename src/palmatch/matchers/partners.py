"""Partners for agents once it is known what pairs are worth: the optimum, the best pair first, at random, and by bids.

All of it is a function of a table of utilities, of public limits and of public randomness: where the table follows from
reports, so does the matching, and nothing further is revealed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numba
import numpy as np

from palmatch.matchers.auction import run_auction
from palmatch.matchers.lists import MatchOutcome, ValueLists
from palmatch.matching import Trace
from palmatch.problem import Capacities, FloatArray, IntArray
from palmatch.streams import SELECTION, Keys, draws


def both_ways(pairs: IntArray) -> IntArray:
    """Return units (agent, partner) of pairs: each one twice."""
    return np.vstack((pairs, pairs[:, ::-1])).astype(np.int64)


def mutual_utilities(utilities: FloatArray, capacities: Capacities) -> FloatArray:
    """Return what each pair is worth to both its ends together; nothing where it is excluded."""
    return np.where(capacities.allowed(*utilities.shape), utilities + utilities.T, 0.0)


def optimal_pairs(utilities: FloatArray, capacities: Capacities) -> IntArray:
    """Return the pairs of the largest sum of utilities: a maximum-weight matching of a general graph (blossoms).

    Pairs that are worth nothing are left out.
    """
    from rustworkx import PyGraph, max_weight_matching

    worth = mutual_utilities(utilities, capacities)
    one, other = np.nonzero(np.triu(worth, 1))
    # Whole numbers, which are off by at most 2^-40 for each pair.
    weight = np.rint(worth[one, other] * (1 << 40)).astype(np.int64)
    graph: PyGraph[int, int] = PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(worth)))
    graph.add_edges_from(list(zip(one.tolist(), other.tolist(), weight.tolist(), strict=True)))
    found = sorted(sorted(pair) for pair in max_weight_matching(graph, weight_fn=int, default_weight=0))
    return both_ways(np.array(found, dtype=np.int64).reshape(-1, 2))


def shuffled_optimal_pairs(utilities: FloatArray, capacities: Capacities, order: IntArray) -> IntArray:
    """Return the same, where a public order, and not that of the rows, decides between equal agents."""
    units = optimal_pairs(utilities[np.ix_(order, order)], capacities.of(order))
    return order[units]


def greedy_pairs(utilities: FloatArray, capacities: Capacities, order: IntArray) -> IntArray:
    """Return the best pair, then the best of those left, and so on; `order` decides between equal ones."""
    worth = mutual_utilities(utilities, capacities)[np.ix_(order, order)]
    one, other = np.nonzero(np.triu(worth, 1))
    by_worth = np.argsort(-worth[one, other], kind="stable")
    return both_ways(order[_first_come(one[by_worth], other[by_worth], len(worth))])


def random_pairs(capacities: Capacities, order: IntArray) -> IntArray:
    """Return pairs of agents that come one after the other in a random order, and are not excluded."""
    excluded = {(one, other) for one, other in capacities.conflicts.tolist()}
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


def auction_partners(
    worth: FloatArray,
    capacities: Capacities,
    *,
    most: int,
    step: float,
    round_limit: int,
    stream_keys: Keys,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> MatchOutcome:
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
        limits = replace(capacities, capacity=free.astype(np.int64), demand=free.astype(np.int64))
        opening = np.zeros(len(worth))
        sale = run_auction(
            lists,
            opening,
            step,
            stream_keys=stream_keys,
            capacities=limits,
            round_limit=round_limit,
            trace=trace,
            progress=progress,
        )
        if sale.trace is not None:
            traces.append(replace(sale.trace, step=sale.trace.step + rounds))
        rounds += sale.rounds
        found = _along(sale.resource_of, worth)
        if not len(found):
            break
        partner[found[:, 0]], partner[found[:, 1]] = found[:, 1], found[:, 0]
    rounds += _exchange(worth, partner, np.argsort(draws(stream_keys, 0, SELECTION), kind="stable"))
    held = np.flatnonzero(partner >= 0)
    return MatchOutcome(np.column_stack((held, partner[held])), rounds, _joined(traces) if trace else None)


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
                # More than rounding makes of nothing.
                if then > now + 1e-9 and worth[first, second] > 0.0:
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

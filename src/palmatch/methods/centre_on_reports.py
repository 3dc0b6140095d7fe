"""A centre that matches reports: optimally, on the table of all values or on the lists alone, or by an auction.

It sees value lists and public streams, and nothing about an agent. Agents with the same report have the same list; the
streams, not the order of the agents, decide between them.
"""

from __future__ import annotations

import numpy as np
import scipy

from palmatch.methods.centralised import shuffled_assign
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.auction import Sale, ValueLists, sell
from palmatch.rounds.draws import SELECTION, Keys, draws

# Up to so many pairs of agent and resource the table of all values is quick; beyond, only what is on a list is.
DENSE_PAIRS = 6_000_000

# Beyond so many resources the optimum takes minutes; an auction with this step is within the step an agent of it.
MOST_RESOURCES, AUCTION_STEP = 20_000, 0.003

_AUCTION_ROUNDS = 100_000_000
# What is on no list is worth next to nothing, but better than going without.
_OUTSIDE = 1e-12


def matched_on(problem: Problem, lists: ValueLists, names: Keys) -> IntArray:
    """Return the optimal matching of reports, or beyond `MOST_RESOURCES` one within `AUCTION_STEP` an agent of it."""
    if problem.seats is None and problem.resources > MOST_RESOURCES:
        return auctioned(lists, problem.resources, names).resource_of
    if problem.seats is None and problem.agents * problem.resources > DENSE_PAIRS:
        return _on_lists(lists, problem.resources, names)
    return shuffled_assign(listed_worth(problem, lists), problem.seats, names)


def listed_worth(problem: Problem, lists: ValueLists) -> FloatArray:
    """Return the table of all values."""
    worth = np.full((problem.agents, problem.resources), _OUTSIDE)
    for agent, place in enumerate(lists.list_of):
        here = slice(int(lists.start[place]), int(lists.start[place + 1]))
        worth[agent, lists.resources[here]] = lists.values[here]
    return worth


def auctioned(lists: ValueLists, resources: int, names: Keys) -> Sale:
    """Sell everything from nothing, until no agent wants to bid: what no agent has costs nothing in the end."""
    free = np.zeros(resources)
    sale = sell(lists, free, AUCTION_STEP, names=names, most_rounds=_AUCTION_ROUNDS)
    return Sale(_with_the_rest(sale.resource_of, resources, _order(names)), sale.prices, sale.rounds)


def _on_lists(lists: ValueLists, resources: int, names: Keys) -> IntArray:
    """Return the optimal matching by what is on the lists; going without is a column of each agent's own."""
    order = _order(names)
    agents, place = len(order), lists.list_of[order]
    sizes = np.diff(lists.start)[place]
    ends = np.cumsum(sizes)
    entries = np.arange(ends[-1]) + np.repeat(lists.start[place] - (ends - sizes), sizes)
    # The solver minimises, and takes an explicit 0 for no edge.
    columns = np.insert(lists.resources[entries], ends, resources + np.arange(agents))
    weights = np.insert(2.0 - lists.values[entries], ends, 2.0)
    pointers = np.concatenate(([0], ends + np.arange(1, agents + 1)))
    graph = scipy.sparse.csr_matrix((weights, columns, pointers), shape=(agents, resources + agents))
    _, found = scipy.sparse.csgraph.min_weight_full_bipartite_matching(graph)
    resource_of = np.empty(agents, dtype=np.int64)
    resource_of[order] = np.where(found < resources, found, -1)
    return _with_the_rest(resource_of, resources, order)


def _with_the_rest(resource_of: IntArray, resources: int, order: IntArray) -> IntArray:
    """Give agents that have nothing, in this order, what no agent has."""
    waiting = order[resource_of[order] < 0]
    free = np.setdiff1d(np.arange(resources), resource_of)[: len(waiting)]
    result = resource_of.copy()
    result[waiting[: len(free)]] = free
    return result


def _order(names: Keys) -> IntArray:
    return np.argsort(draws(names, 0, SELECTION), kind="stable")

"""Matchings by a centre: optimal ones of a table of utilities or of lists, the best pair first, and at random.

Where agents want several units the optimum is a linear program whose vertices are whole numbers (the graph is
bipartite), so that a simplex solver finds a b-matching. Most pairs are never part of it: they are added to the program
only where its prices ask for them. Public streams, not the order of the agents, decide between those that look alike.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numba
import numpy as np
import scipy
from numpy.typing import NDArray

from palmatch.errors import DidNotConverge
from palmatch.matchers.auction import run_auction
from palmatch.matchers.lists import MatchOutcome, ValueLists
from palmatch.matchers.partners import optimal_pairs, shuffled_optimal_pairs
from palmatch.matchers.required import required_units
from palmatch.problem import Capacities, FloatArray, IntArray
from palmatch.streams import SELECTION, Keys, draws

# Programs of at most so many pairs are solved at once; of more, each agent starts with a few times its demand.
_AT_ONCE = 20_000

# Up to so many pairs of agent and resource the table of all values is quick; beyond, only what is on a list is.
DENSE_PAIRS = 6_000_000

# A dense table of this many utilities takes 1.2 GB; past it seats are auctioned off, and other optima would take hours.
MOST_PAIRS = 150_000_000

# Beyond so many resources the optimum takes minutes; an auction with this step is within the step an agent of it.
MOST_RESOURCES, AUCTION_STEP = 20_000, 0.003


def optimal_matching(utilities: FloatArray, capacities: Capacities | None = None) -> IntArray:
    """Return the assignment with the largest sum of utilities; -1 for agents that go without.

    With `capacities` it is one row (agent, resource) for each unit, within capacities and demands, without conflicts.
    """
    if capacities is not None and capacities.mutual:
        return optimal_pairs(utilities, capacities)
    if capacities is not None and capacities.required is not None:
        return required_units(utilities, capacities)
    if capacities is not None:
        return _optimal_units(utilities, capacities)
    resource_of = np.full(len(utilities), -1, dtype=np.int64)
    agents, resources = scipy.optimize.linear_sum_assignment(utilities, maximize=True)
    resource_of[agents] = resources
    return resource_of


def shuffled_optimal_matching(utilities: FloatArray, capacities: Capacities | None, stream_keys: Keys) -> IntArray:
    """Return an optimal assignment in which public streams, not the order of the rows, decide between equal agents."""
    shuffled = np.argsort(draws(stream_keys, 0, SELECTION), kind="stable")
    if capacities is not None and capacities.mutual:
        return shuffled_optimal_pairs(utilities, capacities, shuffled)
    if capacities is not None:
        units = optimal_matching(utilities[shuffled], capacities.of(shuffled))
        return np.column_stack((shuffled[units[:, 0]], units[:, 1]))
    resource_of = np.empty(len(utilities), dtype=np.int64)
    resource_of[shuffled] = optimal_matching(utilities[shuffled])
    return resource_of


def match_lists(lists: ValueLists, resources: int, capacities: Capacities | None, stream_keys: Keys) -> IntArray:
    """Return the optimal matching of lists, or one within `AUCTION_STEP` an agent of it.

    The second beyond `MOST_RESOURCES`, and with capacities beyond `MOST_PAIRS`.
    """
    if capacities is not None and len(lists.list_of) * resources > MOST_PAIRS:
        free = np.zeros(resources)
        return run_auction(
            lists, free, AUCTION_STEP, stream_keys=stream_keys, capacities=capacities, fill=True
        ).resource_of
    if capacities is None and resources > MOST_RESOURCES:
        return auction_lists(lists, resources, stream_keys).resource_of
    if capacities is None and len(lists.list_of) * resources > DENSE_PAIRS:
        return _match_sparse(lists, resources, stream_keys)
    return shuffled_optimal_matching(dense_values(lists, resources), capacities, stream_keys)


def dense_values(lists: ValueLists, resources: int) -> FloatArray:
    """Return the table of all values, shape (agents, resources)."""
    # What is on no list is worth next to nothing, but better than going without.
    worth = np.full((len(lists.list_of), resources), 1e-12)
    for agent, place in enumerate(lists.list_of):
        here = slice(int(lists.start[place]), int(lists.start[place + 1]))
        worth[agent, lists.resources[here]] = lists.values[here]
    return worth


def auction_lists(lists: ValueLists, resources: int, stream_keys: Keys) -> MatchOutcome:
    """Sell everything from nothing, until no agent wants to bid: what no agent has costs nothing in the end."""
    free = np.zeros(resources)
    sale = run_auction(lists, free, AUCTION_STEP, stream_keys=stream_keys, max_rounds=100_000_000)
    return MatchOutcome(
        _with_the_rest(sale.resource_of, resources, _order(stream_keys)), sale.rounds, prices=sale.prices
    )


def _match_sparse(lists: ValueLists, resources: int, stream_keys: Keys) -> IntArray:
    """Return the optimal matching by what is on the lists; going without is a column of each agent's own."""
    order = _order(stream_keys)
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


def _order(stream_keys: Keys) -> IntArray:
    return np.argsort(draws(stream_keys, 0, SELECTION), kind="stable")


def _optimal_units(utilities: FloatArray, capacities: Capacities) -> IntArray:
    """Return units (agent, resource) of the largest sum of utilities, no pair twice, none in conflict.

    Solves max Σ u x over 0 <= x <= 1 with Σ_r x(n, r) <= demand(n) and Σ_n x(n, r) <= capacity(r).
    """
    agents, resources = utilities.shape
    open_pairs = capacities.allowed(agents, resources)
    if (capacities.demand <= 1).all():
        return _on_clones(utilities, capacities, open_pairs)
    chosen = open_pairs if open_pairs.size <= _AT_ONCE else _most_wanted(utilities, capacities, open_pairs)
    # Each time some pairs are added, and there are finitely many of them.
    while True:
        rows, columns = np.nonzero(chosen)
        share, of_agents, of_resources = _solved(utilities[rows, columns], rows, columns, capacities)
        gain = np.where(open_pairs & ~chosen, utilities - of_agents[:, None] - of_resources[None, :], -np.inf)
        # A pair that gains less than prices are exact cannot be told from one that gains nothing.
        missing = gain > 1e-9
        if not missing.any():
            taken = share > 0.5
            return np.column_stack((rows[taken], columns[taken])).astype(np.int64)
        # Where many resources are worth the same, all of what is missing would be most pairs that there are.
        chosen = chosen | (missing if missing.sum() <= _AT_ONCE else missing & _most_wanted(gain, capacities, missing))


def _on_clones(utilities: FloatArray, capacities: Capacities, open_pairs: NDArray[np.bool_]) -> IntArray:
    """Return the optimum where no agent wants two: an assignment to capacities."""
    wanting = np.flatnonzero(capacities.demand > 0)
    seat = np.repeat(np.arange(utilities.shape[1]), np.minimum(capacities.capacity, len(wanting)))
    worth = np.where(open_pairs, utilities, 0.0)[wanting][:, seat]
    agents, places = scipy.optimize.linear_sum_assignment(worth, maximize=True)
    units = np.column_stack((wanting[agents], seat[places]))
    # What is in conflict is worth nothing, and is no unit.
    return units[open_pairs[units[:, 0], units[:, 1]]].astype(np.int64)


def _most_wanted(utilities: FloatArray, capacities: Capacities, open_pairs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a few pairs to begin with: the best of each agent, and the best of each resource."""
    chosen, worth = np.zeros(utilities.shape, dtype=np.bool_), np.where(open_pairs, utilities, -np.inf)
    for table, marked, limit in ((worth, chosen, capacities.demand), (worth.T, chosen.T, capacities.capacity)):
        few = min(int(limit.max(initial=0)) + 3, table.shape[1])
        np.put_along_axis(marked, np.argpartition(-table, few - 1, axis=1)[:, :few], True, axis=1)
    return chosen & open_pairs


def _solved(
    worth: FloatArray, rows: IntArray, columns: IntArray, capacities: Capacities
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the share of each pair, 0 or 1, and the prices of agents and of resources."""
    count, agents = len(worth), len(capacities.demand)
    if count == 0:
        return np.zeros(0), np.zeros(agents), np.zeros(len(capacities.capacity))
    pair = np.arange(count)
    sums: Any = scipy.sparse.csr_array(
        (np.ones(2 * count), (np.concatenate((rows, agents + columns)), np.concatenate((pair, pair)))),
        shape=(agents + len(capacities.capacity), count),
    )
    limits = np.concatenate((capacities.demand, capacities.capacity)).astype(np.float64)
    answer = scipy.optimize.linprog(-worth, A_ub=sums, b_ub=limits, bounds=(0, 1), method="highs-ds")
    if answer.status != 0:
        raise DidNotConverge(f"The solver found no optimum of {count:,} pairs: {answer.message}")
    share = np.asarray(answer.x, dtype=np.float64)
    if np.abs(share - np.round(share)).max(initial=0.0) > 1e-6:
        raise DidNotConverge("The solver's optimum is not in whole numbers.")
    prices = -answer.ineqlin.marginals
    return share, prices[:agents], prices[agents:]


@numba.njit(cache=True)
def greedy_units(order, capacity, demand, open_pairs):  # type: ignore[no-untyped-def]  # compiled
    """Return units (agent, resource) when pairs are taken in this order, where there is room."""
    seats, wants, resources = capacity.copy(), demand.copy(), len(capacity)
    units, count = np.empty((min(demand.sum(), len(order)), 2), dtype=np.int64), 0
    for pair in order:
        agent, resource = pair // resources, pair % resources
        if wants[agent] > 0 and seats[resource] > 0 and open_pairs[agent, resource]:
            wants[agent] -= 1
            seats[resource] -= 1
            units[count, 0], units[count, 1] = agent, resource
            count += 1
    return units[:count]


def random_units(capacities: Capacities, agents: IntArray, resources: IntArray) -> IntArray:
    """Return units where shuffled agents, one unit after the other, take the next seat that is open to them.

    Units are offered in the shuffled order of resources, one of each resource after the other.
    """
    conflicts = {(agent, resource) for agent, resource in capacities.conflicts.tolist()}
    left, wants = capacities.capacity.copy(), capacities.demand.copy()
    offered = deque(resource for resource in resources.tolist() if left[resource] > 0)
    units: list[tuple[int, int]] = []
    held: set[tuple[int, int]] = set()
    for unit in range(int(wants.max(initial=0))):
        for agent in agents.tolist():
            if wants[agent] <= unit:
                continue
            open_to = (p for p, r in enumerate(offered) if (agent, r) not in conflicts and (agent, r) not in held)
            place = next(open_to, None)
            if place is None:
                continue
            resource = offered[place]
            del offered[place]
            units.append((agent, resource))
            held.add((agent, resource))
            left[resource] -= 1
            if left[resource] > 0:
                offered.append(resource)
    return np.array(units, dtype=np.int64).reshape(-1, 2)

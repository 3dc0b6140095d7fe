"""Matchings by a centre where resources have several seats and agents several units: exact, best pair first, random.

The optimum is a linear program whose vertices are whole numbers (the graph is bipartite), so that a simplex solver
finds a b-matching. Most pairs are never part of it: they are added to the program only where its prices ask for them.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numba
import numpy as np
import scipy
from numpy.typing import NDArray

from palmatch.errors import DidNotConverge
from palmatch.plain import plain
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.seats import Seats

# Programs of at most so many pairs are solved at once; of more, each agent starts with a few times its demand.
_AT_ONCE = 20_000
_SURPLUS = 3

# Prices are exact to about this much; a pair that gains less cannot be told from one that gains nothing.
_TOLERANCE = 1e-9


def b_matching(utilities: FloatArray, seats: Seats) -> IntArray:
    """Return units (agent, resource) of the largest sum of utilities, no pair twice, none in conflict.

    Solves max Σ u x over 0 <= x <= 1 with Σ_r x(n, r) <= demand(n) and Σ_n x(n, r) <= capacity(r).
    """
    agents, resources = utilities.shape
    open_pairs = seats.allowed(agents, resources)
    if (seats.demand <= 1).all():
        return _on_clones(utilities, seats, open_pairs)
    chosen = open_pairs if open_pairs.size <= _AT_ONCE else _most_wanted(utilities, seats, open_pairs)
    # Each time some pairs are added, and there are finitely many of them.
    while True:
        rows, columns = np.nonzero(chosen)
        share, of_agents, of_resources = _solved(utilities[rows, columns], rows, columns, seats)
        gain = np.where(open_pairs & ~chosen, utilities - of_agents[:, None] - of_resources[None, :], -np.inf)
        missing = gain > _TOLERANCE
        if not missing.any():
            taken = share > 0.5
            return np.column_stack((rows[taken], columns[taken])).astype(np.int64)
        # Where many resources are worth the same, all of what is missing would be most pairs that there are.
        chosen = chosen | (missing if missing.sum() <= _AT_ONCE else missing & _most_wanted(gain, seats, missing))


def _on_clones(utilities: FloatArray, seats: Seats, open_pairs: NDArray[np.bool_]) -> IntArray:
    """Return the optimum where no agent wants two: an assignment to seats."""
    wanting = np.flatnonzero(seats.demand > 0)
    seat = np.repeat(np.arange(utilities.shape[1]), np.minimum(seats.capacity, len(wanting)))
    worth = np.where(open_pairs, utilities, 0.0)[wanting][:, seat]
    agents, places = scipy.optimize.linear_sum_assignment(worth, maximize=True)
    units = np.column_stack((wanting[agents], seat[places]))
    # What is in conflict is worth nothing, and is no unit.
    return units[open_pairs[units[:, 0], units[:, 1]]].astype(np.int64)


def _most_wanted(utilities: FloatArray, seats: Seats, open_pairs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a few pairs to begin with: the best of each agent, and the best of each resource."""
    chosen, worth = np.zeros(utilities.shape, dtype=np.bool_), np.where(open_pairs, utilities, -np.inf)
    for table, marked, limit in ((worth, chosen, seats.demand), (worth.T, chosen.T, seats.capacity)):
        few = min(int(limit.max(initial=0)) + _SURPLUS, table.shape[1])
        np.put_along_axis(marked, np.argpartition(-table, few - 1, axis=1)[:, :few], True, axis=1)
    return chosen & open_pairs


def _solved(
    worth: FloatArray, rows: IntArray, columns: IntArray, seats: Seats
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the share of each pair, 0 or 1, and the prices of agents and of resources."""
    count, agents = len(worth), len(seats.demand)
    if count == 0:
        return np.zeros(0), np.zeros(agents), np.zeros(len(seats.capacity))
    pair = np.arange(count)
    sums: Any = scipy.sparse.csr_array(
        (np.ones(2 * count), (np.concatenate((rows, agents + columns)), np.concatenate((pair, pair)))),
        shape=(agents + len(seats.capacity), count),
    )
    limits = np.concatenate((seats.demand, seats.capacity)).astype(np.float64)
    answer = scipy.optimize.linprog(-worth, A_ub=sums, b_ub=limits, bounds=(0, 1), method="highs-ds")
    if answer.status != 0:
        raise DidNotConverge(f"The solver found no optimum of {count:,} pairs: {answer.message}")
    share = np.asarray(answer.x, dtype=np.float64)
    if np.abs(share - np.round(share)).max(initial=0.0) > 1e-6:
        raise DidNotConverge("The solver's optimum is not in whole numbers.")
    prices = -answer.ineqlin.marginals
    return share, prices[:agents], prices[agents:]


def allowed(problem: Problem, columns: IntArray) -> NDArray[np.bool_]:
    """Return which pairs are not in conflict, with resources in the order of `columns`."""
    seats = problem.seats
    if seats is None:
        return np.ones((problem.agents, len(columns)), dtype=np.bool_)
    return seats.allowed(problem.agents, problem.resources)[:, columns]


def taken_units(order: IntArray, capacity: IntArray, demand: IntArray, open_pairs: NDArray[np.bool_]) -> IntArray:
    """Return units (agent, resource) when pairs are taken in this order, where there is room."""
    units: IntArray = (take_few if len(order) <= _FEW_PAIRS else take_units)(order, capacity, demand, open_pairs)
    return units


@numba.njit(cache=True)
def take_units(order, capacity, demand, open_pairs):  # type: ignore[no-untyped-def]  # compiled
    """Write down what `taken_units` returns."""
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


# So many pairs are taken before `take_units` is compiled.
take_few, _FEW_PAIRS = plain(take_units), 50_000


def random_units(seats: Seats, agents: IntArray, resources: IntArray) -> IntArray:
    """Return units where shuffled agents, one unit after the other, take the next seat that is open to them.

    Seats are offered in the shuffled order of resources, one of each resource after the other.
    """
    conflicts = {(agent, resource) for agent, resource in seats.conflicts.tolist()}
    left, wants = seats.capacity.copy(), seats.demand.copy()
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

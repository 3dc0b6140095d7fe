"""Matchings without an optimum: the best pair first, and at random."""

from __future__ import annotations

from collections import deque

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.problem import Capacities, IntArray


def greedy_units(order: IntArray, capacity: IntArray, demand: IntArray, open_pairs: NDArray[np.bool_]) -> IntArray:
    """Return units (agent, resource) when pairs are taken in this order, where there is room."""
    units: IntArray = _greedy_units(order, capacity, demand, open_pairs)
    return units


@numba.njit(cache=True)
def _greedy_units(order, capacity, demand, open_pairs):  # type: ignore[no-untyped-def]  # compiled
    """Write down what `greedy_units` returns."""
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

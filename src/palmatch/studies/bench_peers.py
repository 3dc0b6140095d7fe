"""The peers, as they are called: what others offer for the same instances.

Each takes arrays and returns the column of each row, -1 where a row goes without. Extras are imported where they are
used, so that nobody needs them who does not ask.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray

# Costs of a flow are whole numbers: utilities to six digits.
_DIGITS = 1_000_000


def lapx(table: FloatArray) -> IntArray:
    """Return the best assignment of a matrix by lapx."""
    import lap

    _, column_of, _ = lap.lapjv(1.0 - table, extend_cost=table.shape[0] != table.shape[1])
    return np.asarray(column_of, dtype=np.int64)


def min_cost_flow(places: NDArray[np.int32], values: FloatArray) -> IntArray:
    """Return the best assignment of a sparse graph, where going without is worth nothing, by OR-tools."""
    from ortools.graph.python import min_cost_flow as flow

    agents, ranks = places.shape
    resources = int(places.max()) + 1
    sink = agents + resources
    solver = flow.SimpleMinCostFlow()
    tails = np.repeat(np.arange(agents), ranks)
    costs = np.round((1.0 - values.ravel()) * _DIGITS).astype(np.int64)
    arcs = solver.add_arcs_with_capacity_and_unit_cost(tails, agents + places.ravel(), np.ones_like(tails), costs)
    ones = np.ones(resources, dtype=np.int64)
    solver.add_arcs_with_capacity_and_unit_cost(
        agents + np.arange(resources), np.full(resources, sink), ones, np.zeros_like(ones)
    )
    alone = np.ones(agents, dtype=np.int64)
    solver.add_arcs_with_capacity_and_unit_cost(np.arange(agents), np.full(agents, sink), alone, alone * _DIGITS)
    solver.set_nodes_supplies(np.arange(agents), alone)
    solver.set_node_supply(sink, -agents)
    if solver.solve() != solver.OPTIMAL:
        raise InputError("OR-tools found no flow for this graph, though going without is always possible.")
    used = np.flatnonzero(np.asarray(solver.flows(arcs)) > 0)
    column_of = np.full(agents, -1, dtype=np.int64)
    column_of[tails[used]] = places.ravel()[used]
    return column_of


def greedy_edges(places: NDArray[np.int32], values: FloatArray) -> IntArray:
    """Return the assignment that takes the best pair first, then the best that is left, and so on."""
    order = np.argsort(-values.ravel(), kind="stable")
    wanted = places.ravel().astype(np.int64)
    column_of: IntArray = take_in_order(order, wanted, places.shape[1], len(places), int(places.max()) + 1)
    return column_of


def _take_in_order(order: IntArray, wanted: IntArray, ranks: int, agents: int, resources: int) -> IntArray:
    column_of, taken = np.full(agents, -1, dtype=np.int64), np.zeros(resources, dtype=np.bool_)
    for edge in order:
        if column_of[edge // ranks] < 0 and not taken[wanted[edge]]:
            column_of[edge // ranks] = wanted[edge]
            taken[wanted[edge]] = True
    return column_of


take_in_order = numba.njit(cache=True)(_take_in_order)

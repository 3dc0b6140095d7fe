"""Prices that support an optimal matching of reports: at them no agent would rather have another resource.

They are the largest solution of the dual program, found by relaxation from above (Bellman-Ford on its difference
constraints). Devices check them in linear time (`device.result`); nothing here knows more than the reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from palmatch.device.result import OUTSIDE
from palmatch.errors import DidNotConverge
from palmatch.methods.centralised import shuffled_assign
from palmatch.methods.centre_on_reports import listed_worth
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import Keys

# Rounding keeps prices from settling to the last bit; a device allows far more than this.
_SETTLED = 1e-13

# Where agents want several resources the optimum is that of a linear program, exact to its solver's tolerance (1e-7);
# a result may fall short of its prices by so much a unit.
UNIT_SLACK = 1e-6


def supporting_prices(lists: ValueLists, resource_of: IntArray, resources: int) -> FloatArray:
    """Return a price for each resource; what no agent has costs nothing.

    An agent that holds r must not gain more elsewhere: p_r <= v(r) - max(0, max_s v(s) - p_s). Starting from
    p_r = v(r), every pass lowers prices to what the passes before allow; agents with the same list gain the same.
    """
    agents = np.flatnonzero(resource_of >= 0)
    held, number = resource_of[agents], lists.list_of[agents]
    worth = _worth(lists, number, held, resources)
    prices = np.zeros(resources)
    prices[held] = worth
    for _ in range(resources + 2):
        gains = np.maximum.reduceat(lists.values - prices[lists.resources], lists.start[:-1])
        lower = np.clip(np.minimum(prices[held], worth - np.maximum(gains, 0.0)[number]), 0.0, None)
        change = np.abs(prices[held] - lower).max(initial=0.0)
        prices[held] = lower
        if change <= _SETTLED:
            return prices
    raise DidNotConverge("No prices support the matching of the reports: it is not optimal.")


def _worth(lists: ValueLists, places: IntArray, held: IntArray, resources: int) -> FloatArray:
    """Return what each of these resources is worth by the list at its place; next to nothing where it is not on it."""
    listed = np.repeat(np.arange(len(lists.start) - 1), np.diff(lists.start)) * resources + lists.resources
    order = np.argsort(listed)
    wanted = places * resources + held
    found = order[np.minimum(np.searchsorted(listed, wanted, sorter=order), len(listed) - 1)]
    return np.where(listed[found] == wanted, lists.values[found], OUTSIDE)


def matched_units(
    problem: Problem, lists: ValueLists, names: Keys, seats: Sequence[IntArray]
) -> tuple[IntArray, FloatArray]:
    """Return the optimal units (agent, row of a seat) of reports, and prices of all seats that support them.

    `seats` are the rows of each resource's seats: to an agent they are alike, and it gets one of them at most.
    """
    assert problem.seats is not None
    worth = listed_worth(problem, lists)[:, [rows[0] for rows in seats]]
    capacity = np.array([len(rows) for rows in seats])
    units = shuffled_assign(worth, replace(problem.seats, capacity=capacity), names)
    units = units[np.lexsort((units[:, 0], units[:, 1]))]
    prices = _prices_of_units(worth, units, capacity, problem.seats.demand)
    posted, resource = np.empty(problem.resources), units[:, 1]
    for rows, price in zip(seats, prices.tolist(), strict=True):
        posted[rows] = price
    number = np.arange(len(units)) - np.searchsorted(resource, resource)
    taken = [int(seats[place][which]) for place, which in zip(resource.tolist(), number.tolist(), strict=True)]
    return np.column_stack((units[:, 0], np.array(taken, dtype=np.int64))), posted


def _prices_of_units(worth: FloatArray, units: IntArray, capacity: IntArray, demand: IntArray) -> FloatArray:
    """Return a price for each resource: `supporting_prices` on the table of all values, for several units an agent.

    An agent that holds r must not gain more by any that it does not hold. What has a free seat costs nothing.
    """
    agents, resources = units[:, 0], units[:, 1]
    held = np.zeros(worth.shape, dtype=np.bool_)
    held[agents, resources] = True
    full = np.bincount(resources, minlength=len(capacity)) == capacity
    prices = np.where(full, np.where(held, worth, np.inf).min(axis=0, initial=np.inf), 0.0)
    for _ in range(len(capacity) + 2):
        others = np.where(held, 0.0, worth - prices).max(axis=1, initial=0.0)
        most = np.full(len(capacity), np.inf)
        np.minimum.at(most, resources, worth[agents, resources] - others[agents])
        lower = np.where(full, np.clip(np.minimum(prices, most), 0.0, None), 0.0)
        change = np.abs(prices - lower).max(initial=0.0)
        prices = lower
        if change <= _SETTLED:
            break
    short = _shortfall(worth - prices, held, demand)
    if short > UNIT_SLACK:
        raise DidNotConverge(f"No prices support the matching of the reports: it falls short by {short:.1e}.")
    return prices


def _shortfall(gains: FloatArray, held: NDArray[np.bool_], demand: IntArray) -> float:
    """Return by how much a unit, at most, an agent's resources gain less than its best ones would."""
    best = -np.sort(-np.maximum(gains, 0.0), axis=1)
    reached = np.arange(gains.shape[1]) < demand[:, None]
    short = np.where(reached, best, 0.0).sum(axis=1) - np.where(held, gains, 0.0).sum(axis=1)
    return float((short / np.maximum(demand, 1)).max(initial=0.0))

"""Prices that support an optimal matching of reports: at them no agent would rather have another resource.

They are the largest solution of the dual program, found by relaxation from above (Bellman-Ford on its difference
constraints). Devices check them in linear time (`device.result`); nothing here knows more than the reports.
"""

from __future__ import annotations

import numpy as np

from palmatch.device.result import OUTSIDE
from palmatch.errors import DidNotConverge
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.auction import ValueLists

# Rounding keeps prices from settling to the last bit; a device allows far more than this.
_SETTLED = 1e-13


def supporting_prices(lists: ValueLists, resource_of: IntArray, resources: int) -> FloatArray:
    """Return a price for each resource; what no agent has costs nothing.

    An agent that holds r must not gain more elsewhere: p_r <= v(r) - max(0, max_s v(s) - p_s). Starting from
    p_r = v(r), every pass lowers prices to what the passes before allow; agents with the same list gain the same.
    """
    agents = np.flatnonzero(resource_of >= 0)
    held, number = resource_of[agents], lists.list_of[agents]
    worth = np.array([_worth(lists, place, resource) for place, resource in zip(number, held, strict=True)])
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


def _worth(lists: ValueLists, place: int, resource: int) -> float:
    here = slice(int(lists.start[place]), int(lists.start[place + 1]))
    found = np.flatnonzero(lists.resources[here] == resource)
    return float(lists.values[here][found[0]]) if len(found) else OUTSIDE

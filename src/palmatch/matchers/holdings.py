"""What agents hold and may hold: units of their demand, what each wants still, and public conflicts.

There is a row for each unit, and one for an agent that wants none; the first row of an agent is its number in here and
says what holds for all of it. It is a row and not columns since on most accesses it is in no cache: what is looked at
together costs one miss.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.problem import Capacities, IntArray
from palmatch.regions.csr import offsets_from_sizes
from palmatch.streams import Keys

Records: TypeAlias = NDArray[Any]

# The resource of a unit, -1 for none; for an agent the row after its last, how many units it still wants, and what an
# auction knows of it.
_UNIT = np.dtype(
    [("stream", np.uint64)] + [(name, np.int32) for name in ("holds", "end", "wants", "group", "alone", "outbid_in")]
)


class Holdings(NamedTuple):
    """Units, and the resources that agents are in conflict with: agent n's are numbers `start[n]` to `start[n + 1]`."""

    units: Records
    start: IntArray
    conflicts: IntArray


def first_units(capacities: Capacities) -> IntArray:
    """Return the first row of each agent, and how many rows there are."""
    return offsets_from_sizes(np.maximum(capacities.demand, 1))


def make_holdings(capacities: Capacities, stream_keys: Keys, rows: IntArray | None = None) -> Holdings:
    """Return what agents hold at first: nothing. With `rows`, resource number r is row `rows[r]` of the capacities."""
    first = first_units(capacities)
    units = np.zeros(first[-1], dtype=_UNIT)
    for name in ("holds", "group", "alone", "outbid_in"):
        units[name] = -1
    units["stream"][first[:-1]], units["end"][first[:-1]], units["wants"][first[:-1]] = (
        stream_keys, first[1:], capacities.demand
    )  # fmt: skip
    start = np.repeat(capacities.conflict_start[1:], np.diff(first))
    start[first[:-1]] = capacities.conflict_start[:-1]
    excluded, conflicts = capacities.conflicts.T
    if rows is not None:
        number = np.empty(len(rows), dtype=np.int64)
        number[rows] = np.arange(len(rows))
        conflicts = number[conflicts]
    return Holdings(units, np.append(start, len(conflicts)), conflicts[np.lexsort((conflicts, excluded))])


def hold_units(holdings: Holdings, capacities: Capacities, held: IntArray) -> None:
    """Let agents hold units (agent, resource), of which each has no more than it wants."""
    held = held[np.argsort(held[:, 0], kind="stable")]
    first, count = first_units(capacities), np.bincount(held[:, 0], minlength=len(capacities.demand))
    place = first[held[:, 0]] + np.arange(len(held)) - np.repeat(offsets_from_sizes(count)[:-1], count)
    holdings.units["holds"][place] = held[:, 1]
    holdings.units["wants"][first[:-1]] -= count.astype(np.int32)


def held_units(holdings: Holdings, capacities: Capacities) -> IntArray:
    """Return the units (agent, resource) that are held."""
    held, first = np.flatnonzero(holdings.units["holds"] >= 0), first_units(capacities)
    agents = held if len(first) == len(holdings.units) + 1 else np.searchsorted(first, held, side="right") - 1
    return np.column_stack((agents, holdings.units["holds"][held]))


@numba.njit(cache=True, nogil=True)
def is_barred(holdings, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Say whether a resource is in conflict with an agent, or already its own."""
    units, start, conflicts = holdings
    low, high, end = start[agent], start[agent + 1], start[agent + 1]
    while low < high:
        middle = (low + high) // 2
        if conflicts[middle] < resource:
            low = middle + 1
        else:
            high = middle
    if low < end and conflicts[low] == resource:
        return True
    for unit in range(agent, units[agent].end):  # noqa: SIM110 - compiled
        if units[unit].holds == resource:
            return True
    return False

"""What matchers work on: lists of values that agents share, and the units that agents hold and may hold.

Where lists come from is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.matching import Trace
from palmatch.problem import Capacities, FloatArray, IntArray
from palmatch.regions.csr import SmallArray, inverse, offsets_from_sizes
from palmatch.streams import Keys

Records: TypeAlias = NDArray[Any]

# A row, since on most accesses it is in no cache: what is looked at together costs one miss. The resource of a unit, -1
# for none; for an agent the row after its last, how many units it still wants, and what an auction knows of it.
_UNIT = np.dtype(
    [("stream", np.uint64)] + [(name, np.int32) for name in ("holds", "end", "wants", "group", "alone", "outbid_in")]
)

# What is ranked: by value, of equal values the smaller tie first.
RANKED = np.dtype([("value", np.float64), ("tie", np.int64), ("item", np.int64)])


@dataclass(frozen=True, slots=True)
class ValueLists:
    """What agents act on: agent n has the list number `list_of[n]`, which other agents may have as well.

    On list i the resources `resources[start[i]:start[i + 1]]` are worth `values[...]`; ascending by public id. Lists
    with a `rest` are as long as there are resources: each one that list i does not name is worth `rest[i]`, and `by_id`
    are all resources by public id. Auctions take such lists as they are, others take `whole`.
    """

    list_of: IntArray
    start: IntArray
    resources: IntArray
    values: FloatArray
    rest: FloatArray | None = None
    by_id: IntArray | None = None

    @property
    def whole(self) -> ValueLists:
        """The same lists with every resource named."""
        if self.rest is None or self.by_id is None:
            return self
        lists, count = len(self.rest), len(self.by_id)
        values = np.repeat(self.rest, count)
        owner = np.repeat(np.arange(lists), np.diff(self.start))
        values[owner * count + inverse(self.by_id)[self.resources]] = self.values
        return ValueLists(self.list_of, np.arange(lists + 1) * count, np.tile(self.by_id, lists), values)


class NumberedLists(NamedTuple):
    """Value lists by numbers of resources; an entry not named is worth `rest`, -1 where a list has no such entries."""

    start: IntArray
    resources: SmallArray
    values: FloatArray
    rest: FloatArray


@dataclass(frozen=True, slots=True)
class MatchOutcome:
    """What a matcher found: each agent's resource (-1: none), or units (agent, resource), and the rounds that it took.

    What an observer saw, if that was asked for, and, of an auction, the prices.
    """

    resource_of: IntArray
    rounds: int
    trace: Trace | None = None
    prices: FloatArray = field(default_factory=lambda: np.empty(0))


class Holdings(NamedTuple):
    """Units, and the resources that agents are in conflict with: agent n's are numbers `start[n]` to `start[n + 1]`.

    There is a row for each unit, and one for an agent that wants none; the first row of an agent is its number in here
    and says what holds for all of it.
    """

    units: Records
    start: IntArray
    conflicts: IntArray


def first_units(capacities: Capacities) -> IntArray:
    """Return the first row of each agent in `Holdings`, and how many rows there are."""
    return offsets_from_sizes(np.maximum(capacities.demand, 1))


def make_holdings(capacities: Capacities, stream_keys: Keys, rows: IntArray) -> Holdings:
    """Return what agents hold at first: nothing. Resource number r is row `rows[r]` of the capacities."""
    first = first_units(capacities)
    units = np.zeros(first[-1], dtype=_UNIT)
    for name in ("holds", "group", "alone", "outbid_in"):
        units[name] = -1
    units["stream"][first[:-1]], units["end"][first[:-1]], units["wants"][first[:-1]] = (
        stream_keys, first[1:], capacities.demand
    )  # fmt: skip
    start = np.repeat(capacities.conflict_start[1:], np.diff(first))
    start[first[:-1]] = capacities.conflict_start[:-1]
    return Holdings(units, np.append(start, len(capacities.conflicts)), conflict_numbers(capacities, inverse(rows)))


def conflict_numbers(capacities: Capacities, number: IntArray) -> IntArray:
    """Return the numbers of the resources that each agent is in conflict with, ascending, one agent after the other."""
    agents, resources = capacities.conflicts[:, 0], number[capacities.conflicts[:, 1]]
    return np.asarray(resources[np.lexsort((resources, agents))])


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
def is_among(values, low, high, wanted):  # type: ignore[no-untyped-def]  # compiled
    """Return whether a number is among some ascending ones, `values[low:high]`."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low < end and values[low] == wanted


@numba.njit(cache=True, nogil=True)
def is_barred(holdings, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Return whether a resource is in conflict with an agent of `Holdings`, or already its own."""
    units, start, conflicts = holdings
    for unit in range(agent, units[agent].end):
        if units[unit].holds == resource:
            return True
    return is_among(conflicts, start[agent], start[agent + 1], resource)


@numba.njit(cache=True, nogil=True)
def sift(heap, top, count, place, value, tie, item):  # type: ignore[no-untyped-def]  # compiled
    """Put a row into a place that has become free, among `count` from `top` on: what ranks lowest stays on top."""
    while place > 0:
        above = heap[top + (place - 1) // 2]
        if value > above.value or (value == above.value and tie <= above.tie):
            break
        row = heap[top + place]
        row.value, row.tie, row.item = above.value, above.tie, above.item
        place = (place - 1) // 2
    while 2 * place + 1 < count:
        under = 2 * place + 1
        below = heap[top + under]
        if under + 1 < count:
            other = heap[top + under + 1]
            if other.value < below.value or (other.value == below.value and other.tie > below.tie):
                under, below = under + 1, other
        if value < below.value or (value == below.value and tie > below.tie):
            break
        row = heap[top + place]
        row.value, row.tie, row.item = below.value, below.tie, below.item
        place = under
    row = heap[top + place]
    row.value, row.tie, row.item = value, tie, item

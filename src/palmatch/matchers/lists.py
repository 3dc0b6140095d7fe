"""Lists of values that agents share: what a matcher sees of them. Where lists come from is not known here."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from palmatch.problem import FloatArray, IntArray
from palmatch.regions.csr import SmallArray


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


def inverse(order: IntArray) -> IntArray:
    """Return the position of each number in an order of all of them."""
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return position


def number_resources(lists: ValueLists, count: int) -> tuple[SmallArray, IntArray, FloatArray]:
    """Return the resources of all lists by numbers in the order in which lists name them, and which row has which.

    The third is what each list's rest is worth, -1 where it has none.
    """
    if lists.rest is not None and lists.by_id is not None:
        return inverse(lists.by_id).astype(np.int32)[lists.resources], lists.by_id, lists.rest
    numbers, rows = _number_resources(lists.resources, count)
    return numbers, rows, np.full(len(lists.start) - 1, -1.0)


@numba.njit(cache=True, nogil=True)
def _number_resources(resources, count):  # type: ignore[no-untyped-def]  # compiled
    number, rows = np.full(count, -1, dtype=np.int32), np.empty(count, dtype=np.int64)
    numbers, known = np.empty(len(resources), dtype=np.int32), 0
    for place in range(len(resources)):
        resource = resources[place]
        if number[resource] < 0:
            number[resource], rows[known] = known, resource
            known += 1
        numbers[place] = number[resource]
    for resource in range(count):
        if number[resource] < 0:
            rows[known] = resource
            known += 1
    return numbers, rows

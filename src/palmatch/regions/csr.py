"""Offsets, groups and orders of compressed sparse rows: parts laid out one after the other in flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.domain import IntArray

SmallArray: TypeAlias = NDArray[np.int32]


def offsets_from_sizes(sizes: Sequence[int] | IntArray) -> IntArray:
    """Return where each part begins when parts of these sizes are laid out one after the other, and where all end."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def inverse(order: IntArray) -> IntArray:
    """Return the position of each number in an order of all of them."""
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return position


def members_of(region_index: IntArray, regions: int) -> list[IntArray]:
    """Return the agents of each region, in one pass over every agent."""
    order = stable_order(region_index)
    return np.split(order, np.cumsum(np.bincount(region_index, minlength=regions))[:-1])


def stable_order(values: IntArray | SmallArray) -> IntArray:
    """Return what `np.argsort(values, kind="stable")` returns, sooner where values are small; none is below 0."""
    most = int(values.max(initial=0))
    # A few values are sooner sorted than the loop that counts them is loaded.
    if len(values) < 10_000 or most > len(values):
        return np.argsort(values, kind="stable")
    return np.asarray(counting_order(values, most))


@numba.njit(cache=True, nogil=True)
def counting_order(values, most):  # type: ignore[no-untyped-def]  # compiled
    """Return the order of values of at most `most` by a counting sort."""
    begin, order = np.zeros(most + 2, dtype=np.int64), np.empty(len(values), dtype=np.int64)
    for value in values:
        begin[value + 1] += 1
    for value in range(most):
        begin[value + 1] += begin[value]
    for place in range(len(values)):
        order[begin[values[place]]] = place
        begin[values[place]] += 1
    return order

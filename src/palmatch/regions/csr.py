"""Offsets, groups and orders of compressed sparse rows: parts laid out one after the other in flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.domain import IntArray

SmallArray: TypeAlias = NDArray[np.int32]

# Positions in a region or in a rank set: two bytes each where that is enough, since there are very many of them.
Positions: TypeAlias = NDArray[np.uint16 | np.int32]

# Fewer values than this are sooner sorted than a loop that counts them is compiled or loaded.
_MANY = 10_000


def offsets_from_sizes(sizes: Sequence[int] | IntArray) -> IntArray:
    """Return where each part begins when parts of these sizes are laid out one after the other, and where all end."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def position_type(most: int) -> np.dtype[np.uint16 | np.int32]:
    """Return the smaller type for positions, if a region has so few resources at most that they fit."""
    return np.dtype(np.uint16 if most < 1 << 16 else np.int32)


def members_of(region_index: IntArray, regions: int) -> list[IntArray]:
    """Return the agents of each region, in one pass over every agent."""
    order = stable_order(region_index)
    return np.split(order, np.cumsum(np.bincount(region_index, minlength=regions))[:-1])


def stable_order(values: IntArray | SmallArray) -> IntArray:
    """Return what `np.argsort(values, kind="stable")` returns, sooner; no value is below 0.

    Small values are counted. Otherwise a value and its place share a word, where there is room for both, and words are
    sorted several at a time.
    """
    most, bits = int(values.max(initial=0)), len(values).bit_length()
    if len(values) < _MANY:
        return np.argsort(values, kind="stable")
    if most <= len(values):
        order: IntArray = counting_order(values, most)
        return order
    if most >= 1 << (62 - bits):
        return np.argsort(values, kind="stable")
    words = (values.astype(np.int64) << bits) | np.arange(len(values))
    words.sort()
    words &= (1 << bits) - 1
    return words


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

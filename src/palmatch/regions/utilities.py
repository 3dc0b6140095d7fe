"""A region's utilities inside compiled loops: stored tables, or distances between places on a grid.

Where utilities follow from distances they are computed, used and dropped. No real agent is known here.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from palmatch.domains.geometry import worth
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.csr import SmallArray
from palmatch.regions.squares import Squares, axis_of


class UtilitySource(NamedTuple):
    """What compiled loops take a region's utilities from: a stored table, or the places of squares and resources.

    The attributes are those of `RegionTables`, `Squares` and `PlaceIndex`; what does not apply is empty.
    """

    is_grid: bool
    resource_start: IntArray
    resources: SmallArray
    utility_start: IntArray
    utilities: FloatArray
    type_counts: IntArray
    representative: IntArray
    squares: Squares
    east: FloatArray
    north: FloatArray
    slope: float


class Weights(NamedTuple):
    """The weights of the types of some of the regions: those of `regions[i]` begin at `start[i]`."""

    regions: IntArray
    weights: FloatArray
    start: IntArray


@numba.njit(cache=True, nogil=True)
def region_utilities(source, region):  # type: ignore[no-untyped-def]  # compiled
    """Return a region's table of utilities: (types, resources)."""
    types = source.type_counts[region]
    if not source.is_grid:
        start, stop = source.utility_start[region], source.utility_start[region + 1]
        return source.utilities[start:stop].reshape((types, (stop - start) // types))
    squares, axis = source.squares, axis_of(source.squares, region)
    points, west, south = len(axis), squares.corner_east[region], squares.corner_north[region]
    first = source.resource_start[region]
    count = source.resource_start[region + 1] - first
    # Side by side, so that processors compute several at a time.
    there = np.empty((2, count))
    for position in range(count):
        there[0, position] = source.east[source.resources[first + position]]
        there[1, position] = source.north[source.resources[first + position]]
    table = np.empty((types, count))
    for row in range(types):
        # The centre comes last where it is no point of the grid.
        on_grid = row < points * points
        x = (axis[row // points] if on_grid else axis[-1] / 2) + west
        y = (axis[row % points] if on_grid else axis[-1] / 2) + south
        out = table[row]
        for position in range(count):
            out[position] = worth(abs(x - there[0, position]) + abs(y - there[1, position]), source.slope)
    return table


@numba.njit(cache=True, nogil=True)
def representative_utilities(source, region):  # type: ignore[no-untyped-def]  # compiled
    """Return the utilities of a region's resources to its representative."""
    first, count = source.resource_start[region], source.resource_start[region + 1] - source.resource_start[region]
    if not source.is_grid:
        start = source.utility_start[region] + source.representative[region] * count
        return source.utilities[start : start + count]
    axis, own = axis_of(source.squares, region), np.empty(count)
    x, y = axis[-1] / 2 + source.squares.corner_east[region], axis[-1] / 2 + source.squares.corner_north[region]
    for position in range(count):
        place = source.resources[first + position]
        own[position] = worth(abs(x - source.east[place]) + abs(y - source.north[place]), source.slope)
    return own


@numba.njit(cache=True, nogil=True)
def fill_means(span, source, weights, start, means):  # type: ignore[no-untyped-def]  # compiled
    """Write the average utilities of some regions; `means` holds zeros."""
    for number in range(span[0], span[1]):
        table, mean = region_utilities(source, weights.regions[number]), means[start[number] : start[number + 1]]
        for row in range(len(table)):
            share, own = weights.weights[weights.start[number] + row], table[row]
            for position in range(len(own)):
                mean[position] += share * own[position]

"""Public places around the squares of a city, compiled: the sums of Gaussians that make a prior, for all squares.

Places are sorted into cells as wide as the distance up to which they count. Sums are taken from west to east, so that
nothing depends on the order of a file or on threads. Nothing in here knows an agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from palmatch.domains.distance import exponential
from palmatch.problem import FloatArray, IntArray
from palmatch.threads import spread

# Squares that one thread does at a time.
_AT_A_TIME = 64

# No more cells than this many times the places, and this many.
_CELLS_EACH, _FEW_CELLS = 4, 1024


class PublicPlaces:
    """Public places in metres, and what follows from them; each part is computed when it is first asked for."""

    def __init__(self, places: FloatArray) -> None:
        self.places = places

    @cached_property
    def ranked(self) -> FloatArray:
        """The places from west to east, and from south to north where they are as far east."""
        east = self.places[:, 0]
        order = np.argsort(east)
        if (np.diff(east[order]) == 0).any():
            order = np.lexsort((self.places[:, 1], east))
        return self.places[order]

    @cached_property
    def apart(self) -> float:
        """How far the fifth nearest place is from a place in the middle of the ranking; of at most 1,000 places."""
        count, (east, north), window = len(self.places), np.ascontiguousarray(self.ranked.T), 64
        # Each place is its own nearest.
        nearest, found = min(6, count) - 1, []
        for place in range(0, count, max(1, count // 1000)):
            while True:
                low, high = max(place - window, 0), min(place + window + 1, count)
                along = (east[low:high] - east[place]) ** 2
                square = np.partition(along + (north[low:high] - north[place]) ** 2, nearest)[nearest]
                # Places outside the window are at least as far to the west or to the east as those at its ends.
                if (low == 0 or along[0] >= square) and (high == count or along[-1] >= square):
                    break
                window *= 2
            found.append(square)
        return float(np.median(np.sqrt(found)))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Places by cell.

    Attributes
    ----------
    places:
        From west to east.
    reach:
        How far from the middle of a square places count.
    corner, size, columns, rows:
        Where the cells begin, their edge, and how many there are to the east and to the north.
    cell_start, by_cell:
        The places of cell i are `by_cell[cell_start[i]:cell_start[i + 1]]`, ascending; cells go north first.
    """

    places: FloatArray
    reach: float
    corner: FloatArray
    size: float
    columns: int
    rows: int
    cell_start: IntArray
    by_cell: IntArray

    @classmethod
    def of(cls, places: FloatArray, reach: float) -> Surroundings:
        """Sort places, given from west to east, into cells."""
        low, high = (np.array([extreme(column) for column in places.T]) for extreme in (np.min, np.max))
        most, size = max(_CELLS_EACH * len(places), _FEW_CELLS), reach
        # A few places far away must not make very many cells.
        while np.prod((high - low) // size + 1) > most:
            size *= 2
        columns, rows = ((high - low) // size).astype(np.int64) + 1
        cell = ((places[:, 0] - low[0]) // size).astype(np.int64) * rows
        cell += ((places[:, 1] - low[1]) // size).astype(np.int64)
        start = np.concatenate(([0], np.cumsum(np.bincount(cell, minlength=columns * rows))))
        by_cell = np.argsort(cell, kind="stable")
        return cls(places, reach, low, float(size), int(columns), int(rows), start, by_cell)

    def gaussian_sums(self, corners: FloatArray, offsets: FloatArray, axis: FloatArray, width: float) -> FloatArray:
        """Return for each possible place of each square the sum over places of exp(-(distance / width)^2 / 2).

        Parameters
        ----------
        corners:
            The south-western corner of each square; all squares have one edge.
        offsets, axis:
            The possible places, those of axis x axis first; what comes after them is no point of the grid.
        """
        weights = np.empty((len(corners), len(offsets)))
        cells = (self.corner, self.size, self.columns, self.rows, self.cell_start, self.by_cell)
        grid = (offsets, axis, width)
        spread(
            lambda *some: fill_sums(some, corners, self.places, self.reach, cells, grid, weights),
            len(corners),
            at_a_time=_AT_A_TIME,
        )
        return weights


@numba.njit(cache=True, nogil=True)
def fill_sums(some, corners, places, reach, cells, grid, weights):  # type: ignore[no-untyped-def]  # compiled
    """Write the sums of some squares."""
    offsets, axis, width = grid
    found = np.empty(len(places), dtype=np.int64)
    for square in range(some[0], some[1]):
        east, north = corners[square, 0], corners[square, 1]
        count = _around(east + axis[-1] / 2, north + axis[-1] / 2, places, reach, cells, found)
        near = found[:count]
        _sort(near)
        away = np.empty((2, count))
        for number in range(count):
            away[0, number] = places[near[number], 0] - east
            away[1, number] = places[near[number], 1] - north
        _sum_gaussians(away, offsets, axis, width, weights[square])


@numba.njit(cache=True, nogil=True)
def _sort(numbers):  # type: ignore[no-untyped-def]  # compiled
    """Sort in place (Shell 1959): about as fast as numba's `np.sort` here, and sooner compiled."""
    gap = 1
    while gap < len(numbers) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(gap, len(numbers)):
            number, hole = numbers[place], place
            while hole >= gap and numbers[hole - gap] > number:
                numbers[hole] = numbers[hole - gap]
                hole -= gap
            numbers[hole] = number
        gap //= 3


@numba.njit(cache=True, nogil=True)
def _around(east, north, places, reach, cells, found):  # type: ignore[no-untyped-def]  # compiled
    """Write the numbers of the places within reach; return how many there are."""
    corner, size, columns, rows, cell_start, by_cell = cells
    count = 0
    # One cell more on each side: a quotient may be rounded.
    first, last = np.floor((east - reach - corner[0]) / size) - 1, np.floor((east + reach - corner[0]) / size) + 1
    low, high = np.floor((north - reach - corner[1]) / size) - 1, np.floor((north + reach - corner[1]) / size) + 1
    if last < 0 or first >= columns or high < 0 or low >= rows:
        return 0
    for column in range(max(int(first), 0), min(int(last), columns - 1) + 1):
        start = cell_start[column * rows + max(int(low), 0)]
        stop = cell_start[column * rows + min(int(high), rows - 1) + 1]
        for place in range(start, stop):
            number = by_cell[place]
            to_east, to_north = places[number, 0] - east, places[number, 1] - north
            if to_east * to_east + to_north * to_north <= reach * reach:
                found[count] = number
                count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _sum_gaussians(away, offsets, axis, width, weight):  # type: ignore[no-untyped-def]  # compiled
    scale, points, count = -0.5 / (width * width), len(axis), away.shape[1]
    # A Gaussian in the plane is the product of one along each axis.
    along = np.empty((2, count, points))
    for side in range(2):
        for place in range(count):
            for point in range(points):
                along[side, place, point] = exponential(scale * (axis[point] - away[side, place]) ** 2)
    weight[:] = 0.0
    # Place after place for all points of the grid, so that processors add several sums at a time.
    for place in range(count):
        for east in range(points):
            here, row = along[0, place, east], weight[east * points : (east + 1) * points]
            for north in range(points):
                row[north] += here * along[1, place, north]
    for row in range(points * points, len(offsets)):
        for place in range(count):
            east, north = offsets[row, 0] - away[0, place], offsets[row, 1] - away[1, place]
            weight[row] += exponential(scale * (east * east + north * north))

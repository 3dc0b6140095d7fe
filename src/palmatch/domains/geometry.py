"""The geometry of the mobility domain, compiled: utilities of distances, squares of many positions, sums of Gaussians.

A utility is exp(-d / alpha) of the Manhattan distance d; the exponential is written out in additions and
multiplications, so that it has the same bits on every machine, in a whole table, for one pair, and inside a compiled
loop. The public partition is that of `device.grid`, whose functions are compiled as they are: an agent of the batch is
in the square and at the grid point that its device would find. The sums over public places near a square make its
prior; they are taken from west to east, so that nothing depends on the order of a file or on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

import numba
import numpy as np

from palmatch.device import grid
from palmatch.problem import FloatArray, IntArray
from palmatch.threads import parallel_chunks

# Utilities are positive by contract; this is what is left of them beyond 690 alpha.
SMALLEST_UTILITY = 1e-300

# Beyond this many alpha utilities may be as small as they get, and equal.
FLAT = 650.0


@numba.njit(cache=True, nogil=True)
def exponential(exponent):  # type: ignore[no-untyped-def]  # compiled
    """Return e^x for x <= 0, to within two units in the last place; 2^k times a polynomial of what is left."""
    exponent = max(exponent, -700.0)
    # Adding and subtracting 1.5 * 2^52 rounds x / ln 2 to a whole number.
    shifted = exponent * 1.4426950408889634 + 6755399441055744.0
    power = shifted - 6755399441055744.0
    # ln 2 in two parts, the first with so few digits that whole multiples of it are exact.
    rest = (exponent - power * 6.93147180369123816490e-01) - power * 1.90821492927058770002e-10
    series = rest * (1.0 / 6227020800.0) + 1.0 / 479001600.0
    series = series * rest + 1.0 / 39916800.0
    series = series * rest + 1.0 / 3628800.0
    series = series * rest + 1.0 / 362880.0
    series = series * rest + 1.0 / 40320.0
    series = series * rest + 1.0 / 5040.0
    series = series * rest + 1.0 / 720.0
    series = series * rest + 1.0 / 120.0
    series = series * rest + 1.0 / 24.0
    series = series * rest + 1.0 / 6.0
    series = series * rest + 0.5
    # The whole number is in the last bits of what was rounded: no conversion, so that processors do several at a time.
    scale = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)
    return (1.0 + (rest + rest * rest * series)) * scale


@numba.njit(cache=True, nogil=True)
def _fill_exponentials(exponents, values):  # type: ignore[no-untyped-def]  # compiled
    for place in range(len(exponents)):
        values[place] = exponential(exponents[place])


def exponentials(exponents: FloatArray) -> FloatArray:
    """Return e^x for each of some x <= 0, of any shape."""
    values = np.empty(exponents.size)
    _fill_exponentials(np.ravel(exponents), values)
    return values.reshape(exponents.shape)


@numba.njit(cache=True, nogil=True)
def worth(distance, slope):  # type: ignore[no-untyped-def]  # compiled
    """Return the utility at a distance; `slope` is -1 / alpha."""
    return max(exponential(distance * slope), SMALLEST_UTILITY)


@numba.njit(cache=True, nogil=True)
def _fill_table(east, north, places, columns, slope, table):  # type: ignore[no-untyped-def]  # compiled
    # Side by side, so that processors compute several at a time.
    there_east, there_north = np.empty(len(columns)), np.empty(len(columns))
    for column in range(len(columns)):
        there_east[column], there_north[column] = places[columns[column], 0], places[columns[column], 1]
    for row in range(len(east)):
        here_east, here_north, out = east[row], north[row], table[row]
        for column in range(len(columns)):
            distance = abs(here_east - there_east[column]) + abs(here_north - there_north[column])
            out[column] = worth(distance, slope)


@numba.njit(cache=True, nogil=True)
def _fill_pairs(east, north, places, columns, slope, values):  # type: ignore[no-untyped-def]  # compiled
    for row in range(len(east)):
        place = columns[row]
        values[row] = worth(abs(east[row] - places[place, 0]) + abs(north[row] - places[place, 1]), slope)


def utility_table(types: FloatArray, places: FloatArray, columns: IntArray, alpha: float) -> FloatArray:
    """Return the utility of every one of `places[columns]` to every type, whose first two numbers are a place too."""
    table = np.empty((len(types), len(columns)))
    _fill_table(*_coordinates(types), places, columns, -1.0 / alpha, table)
    return table


def utility_of_pairs(types: FloatArray, places: FloatArray, columns: IntArray, alpha: float) -> FloatArray:
    """Return the utility to each type of one place, `places[columns[i]]` to type i."""
    values = np.empty(len(types))
    _fill_pairs(*_coordinates(types), places, columns, -1.0 / alpha, values)
    return values


def _coordinates(types: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.ascontiguousarray(types[:, 0], dtype=np.float64), np.ascontiguousarray(types[:, 1], dtype=np.float64)


def _compiled(functions: Iterable[Callable[..., Any]]) -> dict[str, Any]:
    """Compile functions that call each other, callees first: each gets the compiled ones in place of the plain ones."""
    made: dict[str, Any] = {}
    for function in functions:
        assert isinstance(function, FunctionType)
        bound = FunctionType(function.__code__, {**function.__globals__, **made}, function.__name__)
        made[function.__name__] = numba.njit(cache=True, nogil=True)(bound)
    return made


_CALLED = "cosine metres_per_degree_east grid_points grid_offset nearest_point centre_is_on_grid spot_of"
_GRID = _compiled(getattr(grid, name) for name in _CALLED.split())

_spot_of, _per_degree = _GRID["spot_of"], _GRID["metres_per_degree_east"]


def spots_of(
    latitude: FloatArray,
    longitude: FloatArray,
    squares: FloatArray,
    edges: FloatArray,
    spacing: float,
    origin: tuple[float, float],
) -> IntArray:
    """Return the number of the grid point nearest to each position, in its square, given as a row (column, row)."""
    found = np.empty(len(latitude), dtype=np.int64)

    def fill(first: int, last: int) -> None:
        some = slice(first, last)
        places = (latitude[some], longitude[some], squares[some], edges[some])
        _fill_spots(places, spacing, origin[0], origin[1], found[some])

    parallel_chunks(fill, len(found))
    return found


def metres_per_degree_east(rows: FloatArray, edges: FloatArray | float, latitude: float) -> FloatArray:
    """Return the length of a degree of longitude along the middle of each row of squares."""
    shape = np.broadcast_shapes(np.shape(rows), np.shape(edges))
    # Copies: what is broadcast cannot be told from what may be written to.
    rows, edges = (np.array(np.broadcast_to(part, shape), dtype=np.float64) for part in (rows, edges))
    found = np.empty(rows.size)
    _fill_per_degree(rows.ravel(), edges.ravel(), latitude, found)
    return found.reshape(shape)


@numba.njit(cache=True, nogil=True)
def _fill_spots(places, spacing, origin_latitude, origin_longitude, found):  # type: ignore[no-untyped-def]  # compiled
    latitude, longitude, squares, edges = places
    for place in range(len(latitude)):
        column, row = int(squares[place, 0]), int(squares[place, 1])
        found[place] = _spot_of(
            latitude[place], longitude[place], column, row, edges[place], spacing, origin_latitude, origin_longitude
        )


@numba.njit(cache=True, nogil=True)
def _fill_per_degree(rows, edges, latitude, found):  # type: ignore[no-untyped-def]  # compiled
    for place in range(len(rows)):
        found[place] = _per_degree(rows[place], edges[place], latitude)


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
        most, size = max(4 * len(places), 1024), reach
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
        parallel_chunks(
            lambda *some: fill_sums(some, corners, self.places, self.reach, cells, grid, weights),
            len(corners),
            at_a_time=64,
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

"""Where the vehicles are: sorted into strips of a grid, so that all of them in a box are a few slices of an array.

Nothing in here knows an agent. A cell is named by a number that grows along its strip, and a strip of cells is found by
bisection: a few vehicles far from all others cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.tables import stable_order
from palmatch.threads import taken, usual_threads

# Cells of a strip are numbered from its strip's number times this.
_STRIP = 1 << 32

# Vehicles in a cell, where they are spread evenly.
_PER_CELL = 4.0


@dataclass(frozen=True, slots=True)
class Index:
    """Vehicles by cell, a strip from south to north after the other.

    Attributes
    ----------
    rows:
        The row number of each vehicle in the problem.
    east, north:
        Where it stands, in metres.
    order:
        Its rank by public id, which breaks ties.
    cells:
        Its cell; ascending.
    corner_east, corner_north, size:
        Where the cells begin, and their edge.
    """

    rows: IntArray
    east: FloatArray
    north: FloatArray
    order: IntArray
    cells: IntArray
    corner_east: float
    corner_north: float
    size: float

    @property
    def arrays(self) -> tuple[FloatArray, FloatArray, IntArray, IntArray, float, float, float]:
        """What compiled loops take."""
        return (self.east, self.north, self.order, self.cells, self.corner_east, self.corner_north, self.size)


def index_of(places: FloatArray, order: IntArray, *, threads: int | None = None) -> Index:
    """Sort places (in metres, one a row) into cells."""
    workers = usual_threads() if threads is None else threads
    # Column by column: along the first axis of a long table numpy takes far longer.
    low, high = (np.array([extreme(column) for column in places.T]) for extreme in (np.min, np.max))
    # The middle half of them says how dense they are; a few far away must not.
    lower, upper = np.percentile(places[:: max(1, len(places) // 10_000)], (25, 75), axis=0)
    middle = max(float(np.prod(upper - lower)), 1e-6)
    # No more than 2**31 cells along either side.
    size = max(float(np.sqrt(middle * 4 * _PER_CELL / len(places))), float((high - low).max()) / 2**30, 1e-3)
    cells = cells_of(places, low, size)
    # The same order with smaller numbers.
    rows = stable_order(renumbered(cells, int((high[1] - low[1]) / size) + 1))
    return Index(
        rows=rows,
        east=taken(places[:, 0], rows, threads=workers),
        north=taken(places[:, 1], rows, threads=workers),
        order=taken(order, rows, threads=workers),
        cells=taken(cells, rows, threads=workers),
        corner_east=float(low[0]),
        corner_north=float(low[1]),
        size=size,
    )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def cells_of(places, corner, size):  # type: ignore[no-untyped-def]  # compiled
    """Return the number of the cell that each place is in."""
    cells = np.empty(len(places), dtype=np.int64)
    for place in range(len(places)):
        strip = np.int64(np.floor((places[place, 0] - corner[0]) / size))
        cells[place] = strip * _STRIP + np.int64(np.floor((places[place, 1] - corner[1]) / size))
    return cells


@numba.njit(cache=True, nogil=True)
def renumbered(cells, along):  # type: ignore[no-untyped-def]  # compiled
    """Return numbers of cells in the same order, as if a strip had no more than `along`."""
    numbers = np.empty_like(cells)
    for place in range(len(cells)):
        numbers[place] = (cells[place] >> 32) * along + (cells[place] & (_STRIP - 1))
    return numbers


@numba.njit(cache=True, nogil=True)
def first_at_least(values, wanted):  # type: ignore[no-untyped-def]  # compiled
    """Return the first place in an ascending array that holds `wanted` or more."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(cache=True, nogil=True)
def collect(index, west, south, east, north, found):  # type: ignore[no-untyped-def]  # compiled
    """Write the numbers of all vehicles of a box, and perhaps some around it; return (how many, the array).

    `found` is replaced by a larger one when it is too small. A box with very many strips means all of them.
    """
    _, _, _, cells, corner_east, corner_north, size = index
    count = 0
    first, last = np.floor((west - corner_east) / size), np.floor((east - corner_east) / size)
    if not last - first < 10_000.0:
        if len(found) < len(cells):
            found = np.empty(len(cells), dtype=np.int64)
        for number in range(len(cells)):
            found[number] = number
        return len(cells), found
    low = max(np.floor((south - corner_north) / size), 0.0)
    high = min(np.floor((north - corner_north) / size), float(_STRIP - 1))
    if high < 0.0 or low > float(_STRIP - 1):
        return 0, found
    for strip in range(int(first), int(last) + 1):
        start = first_at_least(cells, strip * _STRIP + int(low))
        stop = first_at_least(cells, strip * _STRIP + int(high) + 1)
        if count + stop - start > len(found):
            larger = np.empty(2 * (count + stop - start), dtype=np.int64)
            larger[:count] = found[:count]
            found = larger
        for number in range(start, stop):
            found[count] = number
            count += 1
    return count, found

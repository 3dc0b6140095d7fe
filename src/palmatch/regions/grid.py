"""Grid search: the K nearest resources of a place, those of highest utility, ties by public id, in compiled loops.

Resources are sorted into strips of cells, so that all of them in a box are a few slices of an array. A cell is named by
a number that grows along its strip, and a strip is found by bisection: few resources far from all others cost nothing.
Distances are compared first, and utilities only where two distances are so near that rounding may make their
utilities equal. A guess of how far to look is checked, never trusted.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from palmatch.domains.geometry import FLAT, worth
from palmatch.problem import FloatArray, HasCoordinates, IntArray
from palmatch.regions.csr import SmallArray, stable_order
from palmatch.threads import taken, usual_threads

# Cells of a strip are numbered from its strip's number times this.
_STRIP = 1 << 32

# Resources in a cell, where they are spread evenly.
_PER_CELL = 4.0

# Room for distances is a multiple of this, so that loops over some of them, and infinities, go several at a time.
STRIDE = 16

# Times alpha: distances further apart than this have utilities in their order, up to `FLAT` times alpha.
NEAR = 1e-12


class UtilityScale(NamedTuple):
    """What turns a distance into a preference.

    Attributes
    ----------
    slope:
        -1 / alpha.
    near:
        Distances further apart than this have utilities in their order.
    flat:
        From this distance on utilities may be equal.
    """

    slope: float
    near: float
    flat: float


class Points(NamedTuple):
    """Places whose `ranks` best resources are wanted, best sorted by `block`; `reach` is where to look first."""

    east: FloatArray
    north: FloatArray
    ranks: int
    block: float
    reach: float


class NearestLists(NamedTuple):
    """Numbers of the best resources of each place, best first, and their utilities: (places, ranks)."""

    numbers: SmallArray
    values: FloatArray


def utility_scale(city: HasCoordinates) -> UtilityScale:
    """Return the scale of a domain's distances."""
    return UtilityScale(-1.0 / city.alpha, NEAR * city.alpha, FLAT * city.alpha)


class PlaceIndex(NamedTuple):
    """Resources by cell, a strip from south to north after the other.

    Attributes
    ----------
    rows:
        The row number of each resource in the problem.
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


def place_index(places: FloatArray, order: IntArray, *, threads: int | None = None) -> PlaceIndex:
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
    return PlaceIndex(
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
    """Write the numbers of all resources of a box, and perhaps some around it; return (how many, the array).

    `found` is replaced by a larger one when it is too small. A box with very many strips means all of them.
    """
    cells, size, count = index.cells, index.size, 0
    first, last = np.floor((west - index.corner_east) / size), np.floor((east - index.corner_east) / size)
    if not last - first < 10_000.0:
        if len(found) < len(cells):
            found = np.empty(len(cells), dtype=np.int64)
        for number in range(len(cells)):
            found[number] = number
        return len(cells), found
    low = max(np.floor((south - index.corner_north) / size), 0.0)
    high = min(np.floor((north - index.corner_north) / size), float(_STRIP - 1))
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


@numba.njit(cache=True, nogil=True)
def padded(count):  # type: ignore[no-untyped-def]  # compiled
    """Return the next multiple of `STRIDE`."""
    return (count + STRIDE - 1) // STRIDE * STRIDE


@numba.njit(cache=True, nogil=True)
def better(distance, order, other_distance, other_order, slope, near, flat):  # type: ignore[no-untyped-def]  # compiled
    """Return whether one resource comes before another: by utility, then by public id."""
    if distance + near < other_distance < flat:
        return True
    if other_distance + near < distance < flat:
        return False
    value, other = worth(distance, slope), worth(other_distance, slope)
    return value > other or (value == other and order < other_order)


@numba.njit(cache=True, nogil=True)
def rank_few(distances, count, ranks, guess, near, slots, ordered):  # type: ignore[no-untyped-def]  # compiled
    """Sort a few distances by counting how many are smaller, without a branch to guess wrong.

    Write the place of the k-th smallest into slots[k - 1] and return the `ranks`-th smallest distance; or infinity,
    where two are too near to each other, or the last too near to the guess within which all are, to be told apart.
    All arrays have `padded(count)` places or more.
    """
    end = padded(count)
    for place in range(count, end):
        distances[place] = np.inf
    for place in range(count):
        ordered[place] = np.nan
    for place in range(count):
        distance = distances[place]
        smaller = 0
        for other in range(end):
            smaller += distances[other] < distance
        slots[smaller] = place
        ordered[smaller] = distance
    apart = ordered[ranks - 1] <= guess
    # Two equal ones share a slot, and leave one after it that holds no number.
    for place in range(min(ranks, count - 1)):
        apart &= ordered[place + 1] - ordered[place] > near
    return ordered[ranks - 1] if apart else np.inf


@numba.njit(cache=True, nogil=True)
def nearest(distances, orders, count, ranks, best, best_distance, scale):  # type: ignore[no-untyped-def]  # compiled
    """Sort the best `ranks` of `count` resources into `best`, however near to each other.

    Return the largest distance among them, or infinity where there are fewer.
    """
    slope, near, flat = scale
    kept = 0
    for candidate in range(count):
        distance, order = distances[candidate], orders[candidate]
        if kept == ranks:
            if not better(distance, order, best_distance[ranks - 1], orders[best[ranks - 1]], slope, near, flat):
                continue
            slot = ranks - 1
        else:
            slot = kept
            kept += 1
        while slot > 0:
            previous = best_distance[slot - 1]
            if not better(distance, order, previous, orders[best[slot - 1]], slope, near, flat):
                break
            best[slot] = best[slot - 1]
            best_distance[slot] = previous
            slot -= 1
        best[slot] = candidate
        best_distance[slot] = distance
    return best_distance[:ranks].max() if kept == ranks else np.inf


@numba.njit(cache=True, nogil=True)
def is_exhaustive(farthest, margin, near, flat):  # type: ignore[no-untyped-def]  # compiled
    """Return whether no resource beyond a margin can matter to a list that ends at `farthest`."""
    return farthest + near < margin and farthest + near < flat


@numba.njit(cache=True, nogil=True)
def nearest_lists(span, points, index, scale, out):  # type: ignore[no-untyped-def]  # compiled
    """Write the `ranks` best resources of each place from `span[0]` to `span[1] - 1`, and their utilities.

    Places are best handed over sorted by cell: neighbours in the array share what was collected for a block of the map.
    """
    ranks, block, reach = points.ranks, points.block, points.reach
    slope, near, flat = scale
    found, best, best_distance = np.empty(1024, dtype=np.int64), np.empty(ranks, dtype=np.int64), np.empty(ranks)
    orders, distances, local_east, local_north = np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0)
    west, south, box_east, box_north, count = np.inf, np.inf, -np.inf, -np.inf, 0
    for place in range(span[0], span[1]):
        x, y = points.east[place], points.north[place]
        wanted = reach
        while True:
            if not (west + wanted <= x <= box_east - wanted and south + wanted <= y <= box_north - wanted):
                corner_x, corner_y = np.floor(x / block) * block, np.floor(y / block) * block
                west, south = corner_x - wanted, corner_y - wanted
                box_east, box_north = corner_x + block + wanted, corner_y + block + wanted
                count, found = collect(index, west, south, box_east, box_north, found)
                local_east, local_north = index.east[found[:count]], index.north[found[:count]]
                orders, distances = index.order[found[:count]], np.empty(count)
            for number in range(count):
                distances[number] = abs(x - local_east[number]) + abs(y - local_north[number])
            farthest = nearest(distances, orders, count, ranks, best, best_distance, scale)
            margin = min(min(x - west, box_east - x), min(y - south, box_north - y))
            if is_exhaustive(farthest, margin, near, flat) or count == len(index.east):
                break
            wanted = 2.0 * max(wanted, margin)
        if farthest < flat:
            reach = max(0.9 * reach, 1.1 * farthest)
        for rank in range(ranks):
            out.numbers[place, rank] = found[best[rank]]
            out.values[place, rank] = worth(best_distance[rank], slope)

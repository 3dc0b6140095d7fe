"""Grid search: the K nearest resources of places and of all possible agents of a square, ties by public id.

Resources are sorted into strips of cells, so that all of them in a box are a few slices of an array, found by
bisection: few resources far from all others cost nothing. Distances are compared first, and utilities only where two
distances are so near that rounding may make their utilities equal. A guess of how far to look is checked, never
trusted. Of squares only rank sets are kept: every possible agent's K best resources, united rank by rank.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple, cast

import numba
import numpy as np

from palmatch.domains.geometry import FLAT, worth
from palmatch.problem import FloatArray, HasCoordinates, IntArray, Problem
from palmatch.regions.csr import SmallArray, offsets_from_sizes, stable_order
from palmatch.threads import parallel_chunks, parallel_take, usual_threads


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
    corner_east, corner_north, size, along:
        Where the cells begin, their edge, and how many there are in a strip.
    """

    rows: IntArray
    east: FloatArray
    north: FloatArray
    order: IntArray
    cells: IntArray
    corner_east: float
    corner_north: float
    size: float
    along: int


class Squares(NamedTuple):
    """Where the squares lie: `axis[axis_start[kind[g]]:...]` are the points along the edge of square g.

    A kind has so many possible agents, of which number `centre` stands in the middle: the last one, or a grid point.
    """

    corner_east: FloatArray
    corner_north: FloatArray
    kind: IntArray
    axis: FloatArray
    axis_start: IntArray
    types: IntArray
    centre: IntArray


class RankSets(NamedTuple):
    """The rank sets of all regions, in the layout of `RegionTables`."""

    resource_start: IntArray
    resources: SmallArray
    entry_start: IntArray
    entries: SmallArray


def utility_scale(city: HasCoordinates) -> UtilityScale:
    """Return the scale of a domain's distances."""
    return UtilityScale(-1.0 / city.alpha, 1e-12 * city.alpha, FLAT * city.alpha)


def place_index(places: FloatArray, order: IntArray, *, per_cell: float = 4.0) -> PlaceIndex:
    """Sort places (in metres, one a row) into cells of about `per_cell` resources, where they are spread evenly."""
    # Column by column: along the first axis of a long table numpy takes far longer.
    low, high = (np.array([extreme(column) for column in places.T]) for extreme in (np.min, np.max))
    # The middle half of them says how dense they are; a few far away must not.
    lower, upper = np.percentile(places[:: max(1, len(places) // 10_000)], (25, 75), axis=0)
    middle = max(float(np.prod(upper - lower)), 1e-6)
    # No more than 2**31 cells along either side.
    size = max(float(np.sqrt(middle * 4 * per_cell / len(places))), float((high - low).max()) / 2**30, 1e-3)
    along = int((high[1] - low[1]) / size) + 1
    cells = cells_of(places, low, size, along)
    rows = stable_order(cells)
    threads = usual_threads()
    east, north = (parallel_take(places[:, axis], rows, threads=threads) for axis in (0, 1))
    order, cells = parallel_take(order, rows, threads=threads), parallel_take(cells, rows, threads=threads)
    return PlaceIndex(rows, east, north, order, cells, float(low[0]), float(low[1]), size, along)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def cells_of(places, corner, size, along):  # type: ignore[no-untyped-def]  # compiled
    """Return the number of the cell that each place is in."""
    cells = np.empty(len(places), dtype=np.int64)
    for place in range(len(places)):
        strip = np.int64(np.floor((places[place, 0] - corner[0]) / size))
        cells[place] = strip * along + np.int64(np.floor((places[place, 1] - corner[1]) / size))
    return cells


@numba.njit(cache=True, nogil=True)
def collect(index, west, south, east, north, found):  # type: ignore[no-untyped-def]  # compiled
    """Write the numbers of all resources of a box, and perhaps some around it; return (how many, the array).

    `found` is replaced by a larger one when it is too small. A box with very many strips means all of them.
    """
    cells, size, count = index.cells, index.size, 0
    first, last = np.floor((west - index.corner_east) / size), np.floor((east - index.corner_east) / size)
    low = max(np.floor((south - index.corner_north) / size), 0.0)
    high = min(np.floor((north - index.corner_north) / size), float(index.along - 1))
    if not last - first < 10_000.0:
        first, last, low, high = 0.0, 0.0, 0.0, float(cells[-1])
    if high < 0.0 or low > high:
        return 0, found
    for strip in range(int(first), int(last) + 1):
        start = np.searchsorted(cells, strip * index.along + int(low))
        stop = np.searchsorted(cells, strip * index.along + int(high) + 1)
        found = with_room(found, count, stop - start)
        for number in range(start, stop):
            found[count] = number
            count += 1
    return count, found


@numba.njit(cache=True, nogil=True)
def with_room(array, filled, more):  # type: ignore[no-untyped-def]  # compiled
    """Return an array with space for more, with the same beginning."""
    if filled + more <= len(array):
        return array
    larger = np.empty(2 * (filled + more), dtype=array.dtype)
    larger[:filled] = array[:filled]
    return larger


@numba.njit(cache=True, nogil=True)
def better(distance, order, other_distance, other_order, scale):  # type: ignore[no-untyped-def]  # compiled
    """Return whether one resource comes before another: by utility, then by public id."""
    slope, near, flat = scale
    if distance + near < other_distance < flat:
        return True
    if other_distance + near < distance < flat:
        return False
    value, other = worth(distance, slope), worth(other_distance, slope)
    return value > other or (value == other and order < other_order)


@numba.njit(cache=True, nogil=True)
def nearest(distances, orders, count, best, scale):  # type: ignore[no-untyped-def]  # compiled
    """Sort the best of `count` resources into all places of `best`.

    Return the largest distance among them, or infinity where there are fewer.
    """
    kept, ranks = 0, len(best)
    for candidate in range(count):
        distance, order = distances[candidate], orders[candidate]
        slot = min(kept, ranks - 1)
        if kept == ranks and not better(distance, order, distances[best[slot]], orders[best[slot]], scale):
            continue
        kept += kept < ranks
        while slot > 0 and better(distance, order, distances[best[slot - 1]], orders[best[slot - 1]], scale):
            best[slot] = best[slot - 1]
            slot -= 1
        best[slot] = candidate
    if kept < ranks:
        return np.inf
    farthest = 0.0
    for candidate in best:
        farthest = max(farthest, distances[candidate])
    return farthest


@numba.njit(cache=True, nogil=True)
def is_exhaustive(farthest, margin, scale):  # type: ignore[no-untyped-def]  # compiled
    """Return whether no resource beyond a margin can matter to a list that ends at `farthest`."""
    return farthest + scale.near < margin and farthest + scale.near < scale.flat


@numba.njit(cache=True, nogil=True)
def nearest_lists(span, points, index, scale, out):  # type: ignore[no-untyped-def]  # compiled
    """Write the `ranks` best resources of each place from `span[0]` to `span[1] - 1`, and their utilities.

    Places are best handed over sorted by cell: neighbours in the array share what was collected for a block of the map.
    """
    block, reach = points.block, points.reach
    found, best = np.empty(1024, dtype=np.int64), np.empty(points.ranks, dtype=np.int64)
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
            farthest = nearest(distances, orders, count, best, scale)
            margin = min(min(x - west, box_east - x), min(y - south, box_north - y))
            if is_exhaustive(farthest, margin, scale) or count == len(index.east):
                break
            wanted = 2.0 * max(wanted, margin)
        if farthest < scale.flat:
            reach = max(0.9 * reach, 1.1 * farthest)
        for rank in range(points.ranks):
            out.numbers[place, rank] = found[best[rank]]
            out.values[place, rank] = worth(distances[best[rank]], scale.slope)


def squares_of(city: HasCoordinates, problem: Problem) -> Squares:
    """Return where a problem's squares lie."""
    # One number after the other: an array made of many tuples makes Python look for garbage.
    regions = cast("tuple[tuple[float, int, int], ...]", problem.regions)
    table = np.fromiter(chain.from_iterable(regions), dtype=np.float64, count=3 * len(regions)).reshape(-1, 3)
    edges, kind = np.unique(table[:, 0], return_inverse=True)
    corners = city.corners(table)
    axes = [city.axis(float(edge)) for edge in edges]
    # Whether and where the centre is a grid point.
    on_grid = np.array([(axis == axis[-1] / 2).any() for axis in axes])
    middle = np.array([np.argmax(axis == axis[-1] / 2) for axis in axes])
    points = np.array([len(axis) for axis in axes])
    return Squares(
        corner_east=np.ascontiguousarray(corners[:, 0]),
        corner_north=np.ascontiguousarray(corners[:, 1]),
        kind=kind.ravel().astype(np.int64),
        axis=np.concatenate(axes),
        axis_start=offsets_from_sizes(points),
        types=points**2 + ~on_grid,
        centre=np.where(on_grid, middle * (points + 1), points**2),
    )


def square_sets(squares: Squares, index: PlaceIndex, ranks: int, scale: UtilityScale) -> RankSets:
    """Return the rank sets of every square; resources are numbers of the index."""
    parts = parallel_chunks(
        lambda *span: sets_of_squares(squares, span, index, ranks, scale), len(squares.kind), at_a_time=128
    )
    sizes, resources, counts, entries = (np.concatenate(column) for column in zip(*parts, strict=True))
    return RankSets(offsets_from_sizes(sizes), resources, offsets_from_sizes(counts), entries)


@numba.njit(cache=True, nogil=True)
def axis_of(squares, square):  # type: ignore[no-untyped-def]  # compiled
    """Return the points along the edge of a square."""
    kind = squares.kind[square]
    return squares.axis[squares.axis_start[kind] : squares.axis_start[kind + 1]]


@numba.njit(cache=True, nogil=True)
def type_place(squares, square, number):  # type: ignore[no-untyped-def]  # compiled
    """Return where a possible agent of a square stands: (east, north)."""
    axis = axis_of(squares, square)
    points = len(axis)
    on_grid = number < points * points
    x = axis[number // points] if on_grid else axis[-1] / 2
    y = axis[number % points] if on_grid else axis[-1] / 2
    return x + squares.corner_east[square], y + squares.corner_north[square]


@numba.njit(cache=True, nogil=True)
def sets_of_squares(squares, span, index, ranks, scale):  # type: ignore[no-untyped-def]  # compiled
    """Return, for some squares: resources in each, all resources, entries in each set, all entries."""
    start, stop = span
    sizes, counts = np.empty(stop - start, dtype=np.int64), np.zeros((stop - start) * ranks, dtype=np.int64)
    resources, total, entries, filled = np.empty(1024, dtype=np.int32), 0, np.empty(4096, dtype=np.int32), 0
    found, reach = np.empty(1024, dtype=np.int64), np.sqrt(ranks) * index.size
    for square in range(start, stop):
        axis = axis_of(squares, square)
        west, south = squares.corner_east[square], squares.corner_north[square]
        while True:
            count, found = collect(
                index, west - reach, south - reach, west + axis[-1] + reach, south + axis[-1] + reach, found
            )
            here = found[:count][np.argsort(index.north[found[:count]])]
            order, present = index.order[here], np.zeros((ranks, count), dtype=np.bool_)
            places = (index.east[here], index.north[here], order)
            enough, farthest = False, np.inf
            if count >= ranks:
                farthest, enough = mark_lists(axis, places, (west, south), scale, reach, present)
            if enough or count == len(index.east):
                break
            # No list is longer with more resources to choose from.
            reach = min(2.0 * reach, 1.01 * farthest + 2.0 * scale.near) if farthest < scale.flat else 2.0 * reach
        reach = max(0.9 * min(reach, scale.flat), min(1.05 * farthest, scale.flat))
        # The resources that are played at all, by public id.
        played = np.zeros(count, dtype=np.bool_)
        for rank in range(ranks):
            played |= present[rank]
        chosen = np.flatnonzero(played)
        chosen = chosen[np.argsort(order[chosen])]
        sizes[square - start] = len(chosen)
        resources = with_room(resources, total, len(chosen))
        resources[total : total + len(chosen)] = here[chosen]
        total += len(chosen)
        entries = with_room(entries, filled, ranks * len(chosen) + 1)
        for rank in range(ranks):
            before = filled
            for position in range(len(chosen)):
                entries[filled] = position
                filled += 1 if present[rank, chosen[position]] else 0
            counts[(square - start) * ranks + rank] = filled - before
    return sizes, resources[:total].copy(), counts, entries[:filled].copy()


@numba.njit(cache=True, nogil=True)
def mark_lists(axis, places, corner, scale, reach, present):  # type: ignore[no-untyped-def]  # compiled
    """Mark the s-th best resource of every possible agent of a square in `present[s - 1]`.

    `places` (east, north, order) are sorted from south to north. Return the largest distance on any list, and whether
    no resource farther than `reach` from the square can matter.
    """
    (west, south), (all_east, all_north, all_orders) = corner, places
    count, points, edge, near = len(all_east), len(axis), axis[-1], scale.near
    sideways, distances, best = np.empty(count), np.empty(count), np.empty(len(present), np.int64)
    orders, chosen = np.empty(count, np.int64), np.empty(count, np.int64)
    # The largest distance on the list of each point of the column to the west, and on any of them.
    before, farthest, all_exhaustive, step = np.full(points, np.inf), 0.0, True, 0.0
    # The centre comes last where it is no point of the grid.
    for column in range(points if (axis == edge / 2).any() else points + 1):
        is_centre = column == points
        aside = edge / 2 if is_centre else axis[column]
        x, last, low, high = west + aside, np.inf, 0, 0
        for number in range(count):
            sideways[number] = abs(x - all_east[number])
        for row in range(1 if is_centre else points):
            along = edge / 2 if is_centre else axis[row]
            # A guess of how far the list reaches, from two lists next to it; too small a guess is raised.
            y, guess = south + along, 0.55 * (min(before[row], last) + min(last, before[row] + step))
            here = np.inf
            while here == np.inf:
                limit = guess + near if guess + near < scale.flat else np.inf
                # Only a window of them is near enough, and it moves along as this loop goes north.
                while low > 0 and all_north[low - 1] >= y - limit:
                    low -= 1
                while low < count and all_north[low] < y - limit:
                    low += 1
                while high < count and all_north[high] <= y + limit:
                    high += 1
                while high > low and all_north[high - 1] > y + limit:
                    high -= 1
                few = 0
                # Unsigned, so that numba need not ask whether it counts from the end.
                for number in range(np.uint64(low), np.uint64(high)):
                    distance = sideways[number] + abs(y - all_north[number])
                    distances[few], orders[few], chosen[few] = distance, all_orders[number], number
                    few += distance <= limit
                here = nearest(distances, orders, few, best, scale)
                if limit < np.inf and here > guess:
                    here, guess = np.inf, 1.15 * guess + 0.001 * edge
            for rank in range(len(present)):
                present[rank, chosen[best[rank]]] = True
            before[row], last, farthest = here, here, max(farthest, here)
            margin = reach + min(min(aside, edge - aside), min(along, edge - along))
            all_exhaustive &= is_exhaustive(here, margin, scale)
        step = axis[column + 1] - aside if column + 1 < points else 0.0
    return farthest, all_exhaustive

"""Rank sets of squares by grid search: every possible agent's K best resources, united rank by rank.

All of it is public, computed from squares and resources alone. Only the sets are kept, not the lists that they come
from, nor a table of utilities.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple, cast

import numba
import numpy as np

from palmatch.problem import FloatArray, HasCoordinates, IntArray, Problem
from palmatch.regions.csr import Positions, SmallArray, offsets_from_sizes, position_type
from palmatch.regions.grid import PlaceIndex, UtilityScale, collect, is_exhaustive, nearest, padded, rank_few
from palmatch.threads import spread

# Squares that one thread does at a time.
_AT_A_TIME = 128

# How much farther to the side one looks than the lists before reached.
_WIDER = 1.35

# More resources than this in one band from south to north are not sorted by looking at each of them.
_CROWDED = 64


class Squares(NamedTuple):
    """Where the squares lie: `axis[axis_start[kind[g]]:...]` are the points along the edge of square g."""

    corner_east: FloatArray
    corner_north: FloatArray
    kind: IntArray
    axis: FloatArray
    axis_start: IntArray


class SquareSets(NamedTuple):
    """The rank sets of all squares, in the layout of `RegionTables`; resources are numbers of the index."""

    resource_start: IntArray
    resources: SmallArray
    entry_start: IntArray
    entries: Positions


def squares_of(city: HasCoordinates, problem: Problem) -> Squares:
    """Return where a problem's squares lie."""
    # One number after the other: an array made of many tuples makes Python look for garbage.
    regions = cast("tuple[tuple[float, int, int], ...]", problem.regions)
    table = np.fromiter(chain.from_iterable(regions), dtype=np.float64, count=3 * len(regions)).reshape(-1, 3)
    edges, kind = np.unique(table[:, 0], return_inverse=True)
    corners = city.corners(table)
    axes = [city.axis(float(edge)) for edge in edges]
    return Squares(
        corner_east=np.ascontiguousarray(corners[:, 0]),
        corner_north=np.ascontiguousarray(corners[:, 1]),
        kind=kind.ravel().astype(np.int64),
        axis=np.concatenate(axes),
        axis_start=offsets_from_sizes([len(axis) for axis in axes]),
    )


def square_sets(
    squares: Squares, index: PlaceIndex, ranks: int, scale: UtilityScale, *, threads: int | None = None
) -> SquareSets:
    """Return the rank sets of every square."""
    reach = float(np.sqrt(ranks) * index.size)

    def found(most: int) -> tuple[np.ndarray, ...]:
        small = np.empty(0, dtype=position_type(most))
        parts = spread(
            lambda first, last: sets_of_squares(squares, (first, last), index, ranks, scale, reach, small),
            len(squares.kind),
            at_a_time=_AT_A_TIME,
            threads=threads,
        )
        columns = tuple(zip(*parts, strict=True))
        return tuple(spread(lambda at, _: np.concatenate(columns[at]), len(columns), at_a_time=1, threads=threads))

    sizes, resources, counts, entries = found(0)
    if position_type(int(sizes.max())) != entries.dtype:
        sizes, resources, counts, entries = found(int(sizes.max()))
    return SquareSets(offsets_from_sizes(sizes), resources, offsets_from_sizes(counts), entries)


@numba.njit(cache=True, nogil=True)
def axis_of(squares, square):  # type: ignore[no-untyped-def]  # compiled
    """Return the points along the edge of a square."""
    kind = squares.kind[square]
    return squares.axis[squares.axis_start[kind] : squares.axis_start[kind + 1]]


@numba.njit(cache=True, nogil=True)
def sets_of_squares(squares, span, index, ranks, scale, reach, small):  # type: ignore[no-untyped-def]  # compiled
    """Return, for some squares: resources in each, all resources, entries in each set, all entries, typed as `small`.

    Entries are no use where a square has more resources than their type can count; the caller sees it from the first.
    """
    near, flat = scale.near, scale.flat
    start, stop = span
    sizes = np.empty(stop - start, dtype=np.int64)
    counts = np.zeros((stop - start) * ranks, dtype=np.int64)
    resources, total = np.empty(1024, dtype=np.int32), 0
    entries, filled = np.empty(4096, dtype=small.dtype), 0
    found = np.empty(1024, dtype=np.int64)
    present = np.zeros((ranks, 1024), dtype=np.bool_)
    for square in range(start, stop):
        axis = axis_of(squares, square)
        west, south = squares.corner_east[square], squares.corner_north[square]
        while True:
            count, found = collect(
                index, west - reach, south - reach, west + axis[-1] + reach, south + axis[-1] + reach, found
            )
            if count > present.shape[1]:
                present = np.zeros((ranks, 2 * count), dtype=np.bool_)
            found = sort_by_y(found, count, index.north)
            east, north, order = np.empty(count), np.empty(count), np.empty(count, dtype=np.int64)
            for number in range(count):
                east[number] = index.east[found[number]]
                north[number] = index.north[found[number]]
                order[number] = index.order[found[number]]
            present[:, :count] = False
            enough, farthest = False, np.inf
            if count >= ranks:
                farthest, enough = mark_lists(axis, (west, south), (east, north, order), ranks, scale, reach, present)
            if enough or count == len(index.east):
                break
            # No list is longer with more resources to choose from.
            reach = min(2.0 * reach, 1.01 * farthest + 2.0 * near) if farthest < flat else 2.0 * reach
        reach = max(0.9 * min(reach, flat), min(1.05 * farthest, flat))
        # The resources that are played at all, by public id.
        played = np.zeros(count, dtype=np.bool_)
        for rank in range(ranks):
            for number in range(count):
                played[number] |= present[rank, number]
        chosen = np.flatnonzero(played)
        # Public ids and numbers in one word: sorting words is faster than sorting what they stand for.
        for place in range(len(chosen)):
            chosen[place] |= order[chosen[place]] << 32
        chosen = np.sort(chosen) & 0xFFFFFFFF
        sizes[square - start] = len(chosen)
        resources = _room(resources, total, len(chosen))
        for position in range(len(chosen)):
            resources[total + position] = found[chosen[position]]
        total += len(chosen)
        entries = _room(entries, filled, ranks * len(chosen))
        for rank in range(ranks):
            before = filled
            for position in range(len(chosen)):
                entries[filled] = position
                filled += 1 if present[rank, chosen[position]] else 0
            counts[(square - start) * ranks + rank] = filled - before
    return sizes, resources[:total].copy(), counts, entries[:filled].copy()


@numba.njit(cache=True, nogil=True)
def sort_by_y(numbers, count, north):  # type: ignore[no-untyped-def]  # compiled
    """Return `numbers[:count]` from south to north, in an array of the same length.

    They are dealt into as many bands as there are numbers, which nearly sorts them; what is left is put right in place.
    With `np.argsort` alone the rank sets of a city take a quarter longer.
    """
    result, low, high = np.empty_like(numbers), np.inf, -np.inf
    for place in range(count):
        low, high = min(low, north[numbers[place]]), max(high, north[numbers[place]])
    scale = (count - 1) / (high - low) if high > low else 0.0
    ends = np.zeros(count + 1, dtype=np.int64)
    for place in range(count):
        ends[int((north[numbers[place]] - low) * scale) + 1] += 1
    if ends.max() > _CROWDED:
        result[:count] = numbers[:count][np.argsort(north[numbers[:count]])]
        return result
    for band in range(count):
        ends[band + 1] += ends[band]
    for place in range(count):
        band = int((north[numbers[place]] - low) * scale)
        result[ends[band]] = numbers[place]
        ends[band] += 1
    for place in range(1, count):
        number, slot = result[place], place
        while slot > 0 and north[result[slot - 1]] > north[number]:
            result[slot] = result[slot - 1]
            slot -= 1
        result[slot] = number
    return result


@numba.njit(cache=True, nogil=True)
def _room(array, filled, more):  # type: ignore[no-untyped-def]  # compiled
    """Return an array with space for more, with the same beginning."""
    if filled + more < len(array):
        return array
    larger = np.empty(2 * (filled + more) + 1, dtype=array.dtype)
    larger[:filled] = array[:filled]
    return larger


@numba.njit(cache=True, nogil=True)
def filter_by_x(x, limit, all_east, all_north, sideways, norths, back):  # type: ignore[no-untyped-def]  # compiled
    """Write which resources are no farther to the side than a limit, how far, and how far north; return how many."""
    kept = 0
    for number in range(len(all_east)):
        distance = abs(x - all_east[number])
        sideways[kept], norths[kept], back[kept] = distance, all_north[number], number
        kept += distance <= limit
    return kept


@numba.njit(cache=True, nogil=True)
def mark_lists(axis, corner, resources, ranks, scale, reach, present):  # type: ignore[no-untyped-def]  # compiled
    """Mark the s-th best resource of every possible agent of a square in `present[s - 1]`.

    `resources` are sorted from south to north. Return the largest distance on any list, and whether none farther than
    `reach` from the square can matter.
    """
    west, south = corner
    all_east, all_north, all_order = resources
    near, flat = scale.near, scale.flat
    count, points = len(all_east), len(axis)
    room = padded(count)
    distances, sideways, norths = np.empty(room), np.empty(count), np.empty(count)
    back, chosen = np.empty(count, np.int64), np.empty(count, np.int64)
    orders = np.empty(count, np.int64)
    best, best_distance = np.empty(room, dtype=np.int64), np.empty(room)
    # The largest distance on the list of each point of the column to the west, and on any of them.
    before, widest, farthest, all_exhaustive = np.full(points, np.inf), np.inf, 0.0, True
    for column in range(points):
        x = west + axis[column]
        moved = axis[column] - axis[column - 1] if column > 0 else 0.0
        # A resource farther to the side than most lists reach is left out, until a list reaches farther.
        limit = _WIDER * widest
        kept = filter_by_x(x, limit, all_east, all_north, sideways, norths, back)
        widest, last, low, high = 0.0, np.inf, 0, 0
        for row in range(points):
            y = south + axis[row]
            # A guess of how far the list reaches, from two lists next to it; too small a guess is raised.
            guess = 0.55 * (min(before[row], last) + min(last, before[row] + moved))
            here, few = np.inf, 0
            while few < ranks and guess + near < flat:
                if guess + near > limit:
                    limit, low, high = _WIDER * (guess + near), 0, 0
                    kept = filter_by_x(x, limit, all_east, all_north, sideways, norths, back)
                # Only a window of them is near enough, and it moves along as this loop goes north.
                while low > 0 and norths[low - 1] >= y - guess - near:
                    low -= 1
                while low < kept and norths[low] < y - guess - near:
                    low += 1
                while high < kept and norths[high] <= y + guess + near:
                    high += 1
                while high > low and norths[high - 1] > y + guess + near:
                    high -= 1
                few = 0
                # Unsigned, so that numba need not ask whether it counts from the end.
                for number in range(np.uint64(low), np.uint64(high)):
                    distance = sideways[number] + abs(y - norths[number])
                    distances[few] = distance
                    chosen[few] = number
                    few += distance <= guess + near
                if few >= ranks:
                    here = rank_few(distances, few, ranks, guess, near, best, best_distance)
                    if here == np.inf:
                        for place in range(few):
                            orders[place] = all_order[back[chosen[place]]]
                        here = nearest(distances, orders, few, ranks, best, best_distance, scale)
                        here = here if here <= guess else np.inf
                else:
                    guess = 1.15 * guess + 0.001 * axis[-1]
            if here < np.inf:
                for rank in range(ranks):
                    present[rank, back[chosen[best[rank]]]] = True
            else:
                for number in range(count):
                    distances[number] = abs(x - all_east[number]) + abs(y - all_north[number])
                here = nearest(distances, all_order, count, ranks, best, best_distance, scale)
                for rank in range(ranks):
                    present[rank, best[rank]] = True
            before[row], last, widest = here, here, max(widest, here)
            margin = reach + min(min(axis[row], axis[-1] - axis[row]), min(axis[column], axis[-1] - axis[column]))
            all_exhaustive &= is_exhaustive(here, margin, near, flat)
        farthest = max(farthest, widest)
    half = axis[-1] / 2
    on_grid = False
    for point in axis:
        on_grid |= point == half
    if not on_grid:
        for number in range(count):
            distances[number] = abs(west + half - all_east[number]) + abs(south + half - all_north[number])
        here = nearest(distances, all_order, count, ranks, best, best_distance, scale)
        all_exhaustive &= is_exhaustive(here, reach + half, near, flat)
        farthest = max(farthest, here)
        for rank in range(ranks):
            present[rank, best[rank]] = True
    return farthest, all_exhaustive

"""The rank sets of all squares of a city, compiled: every possible agent's K best vehicles, united rank by rank.

This is `palmatch.neighbourhood` for a crowd: all public, computed from squares and vehicles alone. Only the sets are
kept, not the lists that they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import cast

import numba
import numpy as np

from palmatch.crowd.index import Index, collect, index_of
from palmatch.crowd.nearest import NEAR, nearest, padded, rank_few, settled
from palmatch.domains.distance import FLAT
from palmatch.problem import FloatArray, IntArray, Located, Problem
from palmatch.rounds.tables import Positions, SmallArray, position_type, starts
from palmatch.threads import spread

# Squares that one thread does at a time.
_AT_A_TIME = 128

# How much farther to the side one looks than the lists before reached.
_WIDER = 1.35

# More vehicles than this in one band from south to north are not sorted by looking at each of them.
_CROWDED = 64


@dataclass(frozen=True, slots=True)
class Squares:
    """Where the squares lie: `axis[axis_start[kind[g]]:...]` are the points along the edge of square g."""

    corner_east: FloatArray
    corner_north: FloatArray
    kind: IntArray
    axis: FloatArray
    axis_start: IntArray

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def arrays(self) -> tuple[FloatArray, FloatArray, IntArray, FloatArray, IntArray]:
        """What compiled loops take."""
        return (self.corner_east, self.corner_north, self.kind, self.axis, self.axis_start)


@dataclass(frozen=True, slots=True)
class Sets:
    """The rank sets of all squares.

    Square g plays the vehicles `resources[resource_start[g]:resource_start[g + 1]]` (numbers of `index`, by public id);
    its s-th rank set is number g K + s - 1, and set number i is `entries[entry_start[i]:entry_start[i + 1]]`, ascending
    positions among the square's vehicles.
    """

    index: Index
    squares: Squares
    ranks: int
    resource_start: IntArray
    resources: SmallArray
    entry_start: IntArray
    entries: Positions


def located(problem: Problem) -> Located | None:
    """Return the domain, if agents and resources are places and each agent cares for a few of the resources."""
    bounded = problem.interest is not None and problem.ranks < problem.resources
    return problem.domain if bounded and isinstance(problem.domain, Located) else None


def meaning_of(city: Located) -> tuple[float, float, float]:
    """Return what turns a distance into a preference: slope, what is near, and from where on nothing differs."""
    return -1.0 / city.alpha, NEAR * city.alpha, FLAT * city.alpha


def squares_of(city: Located, problem: Problem) -> Squares:
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
        axis_start=starts([len(axis) for axis in axes]),
    )


def rank_sets(problem: Problem, *, threads: int | None = None) -> Sets:
    """Return the rank sets of every square with an agent in it."""
    city = problem.domain
    assert isinstance(city, Located)
    index, squares = index_of(city.places, problem.resource_order, threads=threads), squares_of(city, problem)
    meaning, ranks = meaning_of(city), problem.ranks
    reach = float(np.sqrt(ranks) * index.size)

    def found(most: int) -> tuple[np.ndarray, ...]:
        small = np.empty(0, dtype=position_type(most))
        parts = spread(
            lambda first, last: sets(squares.arrays, (first, last), index.arrays, ranks, meaning, reach, small),
            len(squares),
            at_a_time=_AT_A_TIME,
            threads=threads,
        )
        columns = tuple(zip(*parts, strict=True))
        return tuple(spread(lambda at, _: np.concatenate(columns[at]), len(columns), at_a_time=1, threads=threads))

    sizes, resources, counts, entries = found(0)
    if position_type(int(sizes.max())) != entries.dtype:
        sizes, resources, counts, entries = found(int(sizes.max()))
    return Sets(index, squares, ranks, starts(sizes), resources, starts(counts), entries)


@numba.njit(cache=True, nogil=True)
def sets(squares, some, index, ranks, meaning, reach, small):  # type: ignore[no-untyped-def]  # compiled
    """Return, for some squares: vehicles in each, all vehicles, entries in each set, all entries, typed as `small`.

    Entries are no use where a square has more vehicles than their type can count; the caller sees it from the first.
    """
    corner_east, corner_north, kind, all_axes, axis_start = squares
    vehicle_east, vehicle_north, vehicle_order, _, _, _, _ = index
    _, near, flat = meaning
    start, stop = some
    sizes = np.empty(stop - start, dtype=np.int64)
    counts = np.zeros((stop - start) * ranks, dtype=np.int64)
    resources, total = np.empty(1024, dtype=np.int32), 0
    entries, filled = np.empty(4096, dtype=small.dtype), 0
    found = np.empty(1024, dtype=np.int64)
    present = np.zeros((ranks, 1024), dtype=np.bool_)
    for square in range(start, stop):
        axis = all_axes[axis_start[kind[square]] : axis_start[kind[square] + 1]]
        west, south = corner_east[square], corner_north[square]
        while True:
            count, found = collect(
                index, west - reach, south - reach, west + axis[-1] + reach, south + axis[-1] + reach, found
            )
            if count > present.shape[1]:
                present = np.zeros((ranks, 2 * count), dtype=np.bool_)
            found = northwards(found, count, vehicle_north)
            east, north, order = np.empty(count), np.empty(count), np.empty(count, dtype=np.int64)
            for number in range(count):
                east[number] = vehicle_east[found[number]]
                north[number] = vehicle_north[found[number]]
                order[number] = vehicle_order[found[number]]
            present[:, :count] = False
            enough, farthest = False, np.inf
            if count >= ranks:
                farthest, enough = mark(axis, (west, south), (east, north, order), ranks, meaning, reach, present)
            if enough or count == len(vehicle_east):
                break
            # No list is longer with more vehicles to choose from.
            reach = min(2.0 * reach, 1.01 * farthest + 2.0 * near) if farthest < flat else 2.0 * reach
        reach = max(0.9 * min(reach, flat), min(1.05 * farthest, flat))
        # The vehicles that are played at all, by public id.
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
def northwards(numbers, count, north):  # type: ignore[no-untyped-def]  # compiled
    """Return `numbers[:count]` from south to north, in an array of the same length.

    They are dealt into as many bands as there are numbers, which nearly sorts them; what is left is put right in place.
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
def aside(x, limit, all_east, all_north, sideways, norths, back):  # type: ignore[no-untyped-def]  # compiled
    """Write which vehicles are no farther to the side than a limit, how far, and how far north; return how many."""
    kept = 0
    for number in range(len(all_east)):
        distance = abs(x - all_east[number])
        sideways[kept], norths[kept], back[kept] = distance, all_north[number], number
        kept += distance <= limit
    return kept


@numba.njit(cache=True, nogil=True)
def mark(axis, corner, vehicles, ranks, meaning, reach, present):  # type: ignore[no-untyped-def]  # compiled
    """Mark the s-th best vehicle of every possible agent of a square in `present[s - 1]`.

    `vehicles` are sorted from south to north. Return the largest distance on any list, and whether none farther than
    `reach` from the square can matter.
    """
    west, south = corner
    all_east, all_north, all_order = vehicles
    _, near, flat = meaning
    count, points = len(all_east), len(axis)
    room = padded(count)
    distances, sideways, norths = np.empty(room), np.empty(count), np.empty(count)
    back, chosen = np.empty(count, np.int64), np.empty(count, np.int64)
    places, orders = np.empty(count, np.int64), np.empty(count, np.int64)
    best, best_distance = np.empty(room, dtype=np.int64), np.empty(room)
    # The largest distance on the list of each point of the column to the west, and on any of them.
    before, widest, farthest, settled_all = np.full(points, np.inf), np.inf, 0.0, True
    for column in range(points):
        x = west + axis[column]
        moved = axis[column] - axis[column - 1] if column > 0 else 0.0
        # A vehicle farther to the side than most lists reach is left out, until a list reaches farther.
        limit = _WIDER * widest
        kept = aside(x, limit, all_east, all_north, sideways, norths, back)
        widest, last, low, high = 0.0, np.inf, 0, 0
        for row in range(points):
            y = south + axis[row]
            # A guess of how far the list reaches, from two lists next to it; too small a guess is raised.
            guess = 0.55 * (min(before[row], last) + min(last, before[row] + moved))
            here, few = np.inf, 0
            while few < ranks and guess + near < flat:
                if guess + near > limit:
                    limit, low, high = _WIDER * (guess + near), 0, 0
                    kept = aside(x, limit, all_east, all_north, sideways, norths, back)
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
                        here = nearest(distances, orders, few, ranks, places, best, best_distance, meaning)
                        here = here if here <= guess else np.inf
                else:
                    guess = 1.15 * guess + 0.001 * axis[-1]
            if here < np.inf:
                for rank in range(ranks):
                    present[rank, back[chosen[best[rank]]]] = True
            else:
                for number in range(count):
                    distances[number] = abs(x - all_east[number]) + abs(y - all_north[number])
                here = nearest(distances, all_order, count, ranks, chosen, best, best_distance, meaning)
                for rank in range(ranks):
                    present[rank, best[rank]] = True
            before[row], last, widest = here, here, max(widest, here)
            margin = reach + min(min(axis[row], axis[-1] - axis[row]), min(axis[column], axis[-1] - axis[column]))
            settled_all &= settled(here, margin, near, flat)
        farthest = max(farthest, widest)
    half = axis[-1] / 2
    on_grid = False
    for point in axis:
        on_grid |= point == half
    if not on_grid:
        for number in range(count):
            distances[number] = abs(west + half - all_east[number]) + abs(south + half - all_north[number])
        here = nearest(distances, all_order, count, ranks, chosen, best, best_distance, meaning)
        settled_all &= settled(here, reach + half, near, flat)
        farthest = max(farthest, here)
        for rank in range(ranks):
            present[rank, best[rank]] = True
    return farthest, settled_all

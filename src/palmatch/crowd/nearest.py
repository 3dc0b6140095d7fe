"""The K nearest vehicles of a place, compiled: those of highest utility, ties by public id, as in the slow tables.

Distances are compared first, and utilities only where two distances are so near that rounding may make their
utilities equal. A guess of how far to look is checked, never trusted.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.crowd.index import collect
from palmatch.domains.distance import worth

# Room for distances is a multiple of this, so that loops over some of them, and infinities, go several at a time.
STRIDE = 16

# Times alpha: distances further apart than this have utilities in their order, up to `FLAT` times alpha.
NEAR = 1e-12


@numba.njit(cache=True, nogil=True)
def padded(count):  # type: ignore[no-untyped-def]  # compiled
    """Return the next multiple of `STRIDE`."""
    return (count + STRIDE - 1) // STRIDE * STRIDE


@numba.njit(cache=True, nogil=True)
def better(distance, order, other_distance, other_order, slope, near, flat):  # type: ignore[no-untyped-def]  # compiled
    """Return whether one vehicle comes before another: by utility, then by public id."""
    if distance + near < other_distance < flat:
        return True
    if other_distance + near < distance < flat:
        return False
    value, other = worth(distance, slope), worth(other_distance, slope)
    return value > other or (value == other and order < other_order)


@numba.njit(cache=True, nogil=True)
def keep_nearest(distances, orders, chosen, count, ranks, best, best_distance, meaning):  # type: ignore[no-untyped-def]  # compiled
    """Sort the best of `chosen[:count]` into `best[:ranks]`; return how many there are."""
    slope, near, flat = meaning
    kept = 0
    for place in range(count):
        candidate = chosen[place]
        distance, order = distances[candidate], orders[candidate]
        if kept == ranks:
            last = best[ranks - 1]
            if not better(distance, order, best_distance[ranks - 1], orders[last], slope, near, flat):
                continue
            slot = ranks - 1
        else:
            slot = kept
            kept += 1
        while slot > 0:
            previous = best_distance[slot - 1]
            if not (distance + near < previous < flat):
                if previous + near < distance < flat:
                    break
                if not better(distance, order, previous, orders[best[slot - 1]], slope, near, flat):
                    break
            best[slot] = best[slot - 1]
            best_distance[slot] = previous
            slot -= 1
        best[slot] = candidate
        best_distance[slot] = distance
    return kept


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
def nearest(distances, orders, count, ranks, chosen, best, best_distance, meaning):  # type: ignore[no-untyped-def]  # compiled
    """Find the best `ranks` of `count` vehicles, however near to each other; return the largest distance among them."""
    for place in range(count):
        chosen[place] = place
    kept = keep_nearest(distances, orders, chosen, count, ranks, best, best_distance, meaning)
    if kept < ranks:
        return np.inf
    farthest = best_distance[0]
    for place in range(ranks):
        farthest = max(farthest, best_distance[place])
    return farthest


@numba.njit(cache=True, nogil=True)
def settled(farthest, margin, near, flat):  # type: ignore[no-untyped-def]  # compiled
    """Return whether no vehicle beyond a margin can matter to a list that ends at `farthest`."""
    return farthest + near < margin and farthest + near < flat


@numba.njit(cache=True, nogil=True)
def lists(east, north, first, index, ranks, meaning, reach, block, table, values):  # type: ignore[no-untyped-def]  # compiled
    """Write the `ranks` best vehicles of each place from `first[0]` to `first[1] - 1`, and their utilities.

    Places are best handed over sorted by cell: neighbours in the array share what was collected for a block of the map.
    """
    start, stop = first
    vehicle_east, vehicle_north, vehicle_order, _, _, _, _ = index
    slope, near, flat = meaning
    found = np.empty(1024, dtype=np.int64)
    chosen, orders, distances = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024)
    local_east, local_north = np.empty(1024), np.empty(1024)
    best, best_distance = np.empty(1024, dtype=np.int64), np.empty(1024)
    places, few_orders = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.int64)
    west, south, box_east, box_north, count, guess = np.inf, np.inf, -np.inf, -np.inf, 0, np.inf
    for place in range(start, stop):
        x, y = east[place], north[place]
        wanted = reach
        while True:
            if not (west + wanted <= x <= box_east - wanted and south + wanted <= y <= box_north - wanted):
                corner_x, corner_y = np.floor(x / block) * block, np.floor(y / block) * block
                west, south = corner_x - wanted, corner_y - wanted
                box_east, box_north = corner_x + block + wanted, corner_y + block + wanted
                count, found = collect(index, west, south, box_east, box_north, found)
                if count > len(chosen):
                    room = padded(2 * count)
                    chosen, orders, best = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
                    places, few_orders = np.empty(room, np.int64), np.empty(room, np.int64)
                    distances, best_distance = np.empty(room), np.empty(room)
                    local_east, local_north = np.empty(room), np.empty(room)
                for number in range(count):
                    local_east[number] = vehicle_east[found[number]]
                    local_north[number] = vehicle_north[found[number]]
                    orders[number] = vehicle_order[found[number]]
            kept, farthest = 0, np.inf
            while kept < ranks <= count and guess + near < flat:
                kept = 0
                for number in range(count):
                    distance = abs(x - local_east[number]) + abs(y - local_north[number])
                    distances[kept] = distance
                    chosen[kept] = number
                    kept += distance <= guess + near
                if kept >= ranks:
                    farthest = rank_few(distances, kept, ranks, guess, near, best, best_distance)
                    if farthest == np.inf:
                        for few in range(kept):
                            few_orders[few] = orders[chosen[few]]
                        farthest = nearest(distances, few_orders, kept, ranks, places, best, best_distance, meaning)
                        farthest = farthest if farthest <= guess else np.inf
                    for rank in range(ranks):
                        best[rank] = chosen[best[rank]]
                else:
                    guess = 1.2 * guess + 0.001 * block
            if farthest == np.inf:
                for number in range(count):
                    distances[number] = abs(x - local_east[number]) + abs(y - local_north[number])
                farthest = nearest(distances, orders, count, ranks, chosen, best, best_distance, meaning)
            margin = min(min(x - west, box_east - x), min(y - south, box_north - y))
            if settled(farthest, margin, near, flat) or count == len(vehicle_east):
                break
            wanted = 2.0 * max(wanted, margin)
        guess = 1.1 * farthest
        if farthest < flat:
            reach = max(0.9 * reach, 1.1 * farthest)
        for rank in range(ranks):
            table[place, rank] = found[best[rank]]
            values[place, rank] = worth(best_distance[rank], slope)

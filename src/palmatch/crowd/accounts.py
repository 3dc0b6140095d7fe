"""The accounts of all squares of a crowd, compiled: those of `privacy.sound`, without an object for each square.

Costs are those of the public tables that the agents play by. Nothing in here knows of a real agent.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.crowd.sets import Sets
from palmatch.domains.distance import worth
from palmatch.neighbourhood import Progress
from palmatch.policies.published import Policy
from palmatch.privacy.costs import FEW_TYPES, ActionCosts
from palmatch.privacy.few_accounts import UNSURE, best_account
from palmatch.privacy.few_types import WIDTH
from palmatch.privacy.sound import Account, BestOf, chances_of
from palmatch.problem import FloatArray, Located, Problem
from palmatch.rounds.tables import PublicTables
from palmatch.threads import spread

# Squares that one thread does at a time, and after which progress is told.
_AT_A_TIME, _AT_ONCE = 16, 512


def accounts(
    problem: Problem,
    sets: Sets,
    public: PublicTables,
    policy: Policy,
    accountant: BestOf,
    smallest: FloatArray,
    delta: float,
    *,
    progress: Progress | None = None,
) -> list[Account | None]:
    """Return each square's account for the smallest budget in it; None where compiled costs are not sure."""
    city, count = problem.domain, len(sets.squares)
    assert isinstance(city, Located)
    different, kind = np.unique(smallest, return_inverse=True)
    terms = [accountant.terms(float(epsilon), delta) for epsilon in different]
    orders, worths, starts = terms[0][0], np.stack([row[1] for row in terms]), np.array([row[2] for row in terms])
    budgets = (different, kind.ravel(), orders, worths, starts)
    layout = (sets.resource_start, sets.resources, sets.entry_start, sets.entries)
    noise = (public.selection_below, np.ascontiguousarray(public.backoff))
    selection, backoff = np.empty(count * sets.ranks), np.empty(len(sets.entries))
    places = np.empty(count, dtype=np.int64)
    for first in range(0, count, _AT_ONCE):
        some = min(_AT_ONCE, count - first)
        spread(
            lambda start, stop, first=first: fill_accounts(  # type: ignore[misc]
                (first + start, first + stop), sets.squares.arrays, (sets.index.east, sets.index.north), layout,
                sets.ranks, noise, (*chances_of(policy), -1.0 / city.alpha), budgets,
                (accountant.pure, accountant.renyi), (places, selection, backoff),
            ),
            some,
            at_a_time=_AT_A_TIME,
        )  # fmt: skip
        if progress is not None:
            progress(first + some, count)
    edges = sets.entry_start[:: sets.ranks].tolist()
    types = _types(sets)
    found: list[Account | None] = []
    for square, place in enumerate(places.tolist()):
        if place == UNSURE:
            found.append(None)
            continue
        costs = ActionCosts(
            selection[square * sets.ranks : (square + 1) * sets.ranks], backoff[edges[square] : edges[square + 1]]
        )
        found.append(accountant.as_account(place, costs, delta, types=types[square]))
    return found


def _types(sets: Sets) -> list[int]:
    """Return how many possible agents each square has."""
    squares = sets.squares
    counts = []
    for first, last in zip(squares.axis_start[:-1], squares.axis_start[1:], strict=True):
        axis = squares.axis[first:last]
        counts.append(len(axis) ** 2 + int(not (axis == axis[-1] / 2).any()))
    return [counts[kind] for kind in squares.kind.tolist()]


@numba.njit(cache=True, nogil=True)
def fill_accounts(some, squares, vehicles, layout, ranks, noise, numbers, budgets, kinds, out):  # type: ignore[no-untyped-def]  # compiled
    """Write the order and the costs of the accounts of some squares."""
    resource_start, resources, entry_start, entries = layout
    below, all_backoff = noise
    share, backoff_share, gamma, slope = numbers
    different, kind, orders, worths, starts = budgets
    places, selection, backoff = out
    for square in range(some[0], some[1]):
        begin, end = entry_start[square * ranks], entry_start[(square + 1) * ranks]
        offsets = entry_start[square * ranks : (square + 1) * ranks + 1] - begin
        weights = below[begin:end].copy()
        for rank in range(ranks):
            for place in range(offsets[rank + 1] - 1, offsets[rank], -1):
                weights[place] -= weights[place - 1]
        played = resources[resource_start[square] : resource_start[square + 1]]
        types, table = square_table(square, squares, vehicles, played, slope)
        if types > FEW_TYPES:
            places[square] = UNSURE
            continue
        region = (table, types, entries[begin:end].astype(np.int64), offsets, weights, all_backoff[begin:end])
        terms = (orders, worths[kind[square]], starts[kind[square]], different[kind[square]])
        places[square] = best_account(
            region, (share, backoff_share, gamma), terms, kinds,
            selection[square * ranks : (square + 1) * ranks], backoff[begin:end],
        )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def square_table(square, squares, vehicles, played, slope):  # type: ignore[no-untyped-def]  # compiled
    """Return how many possible agents a square has, and their utilities, as `few_types.padded` lays them out."""
    corner_east, corner_north, kind, all_axes, axis_start = squares
    vehicle_east, vehicle_north = vehicles
    axis = all_axes[axis_start[kind[square]] : axis_start[kind[square] + 1]]
    half, points = axis[-1] / 2, len(axis)
    types = points * points
    centred = False
    for point in axis:
        centred |= point == half
    types += 0 if centred else 1
    width = -(-types // WIDTH) * WIDTH
    east, north = np.empty(width), np.empty(width)
    for row in range(width):
        column = row if row < types else 0
        if column == points * points:
            east[row], north[row] = half + corner_east[square], half + corner_north[square]
        else:
            east[row] = axis[column // points] + corner_east[square]
            north[row] = axis[column % points] + corner_north[square]
    table = np.empty((len(played), width))
    for number in range(len(played)):
        x, y, values = vehicle_east[played[number]], vehicle_north[played[number]], table[number]
        for row in range(width):
            values[row] = abs(east[row] - x) + abs(north[row] - y)
        for row in range(width):
            values[row] = worth(values[row], slope)
    return types, table

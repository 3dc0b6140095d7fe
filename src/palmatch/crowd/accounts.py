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
from palmatch.privacy.costs import FEW_TYPES, ActionCosts, raise_to_coins
from palmatch.privacy.few_accounts import UNSURE, best_account
from palmatch.privacy.few_own_costs import own_costs
from palmatch.privacy.few_types import WIDTH
from palmatch.privacy.sound import Account, BestOf, chances_of
from palmatch.problem import FloatArray, IntArray, Located, Problem
from palmatch.rounds.tables import PublicTables, stable_order, starts
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
    orders, worths, begin = terms[0][0], np.stack([row[1] for row in terms]), np.array([row[2] for row in terms])
    budgets = (different, kind.ravel(), orders, worths, begin)
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
    entry_start = layout[2]
    share, backoff_share, gamma, slope = numbers
    different, kind, orders, worths, begin = budgets
    places, selection, backoff = out
    for square in range(some[0], some[1]):
        region = region_of(square, squares, vehicles, layout, ranks, noise, slope)
        if region[1] > FEW_TYPES:
            places[square] = UNSURE
            continue
        terms = (orders, worths[kind[square]], begin[kind[square]], different[kind[square]])
        places[square] = best_account(
            region, (share, backoff_share, gamma), terms, kinds, selection[square * ranks : (square + 1) * ranks],
            backoff[entry_start[square * ranks] : entry_start[(square + 1) * ranks]],
        )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def region_of(square, squares, vehicles, layout, ranks, noise, slope):  # type: ignore[no-untyped-def]  # compiled
    """Return a square as `few_accounts.best_account` takes a region; without utilities, if it has too many types."""
    resource_start, resources, entry_start, entries = layout
    below, backoff = noise
    begin, end = entry_start[square * ranks], entry_start[(square + 1) * ranks]
    offsets = entry_start[square * ranks : (square + 1) * ranks + 1] - begin
    weights = below[begin:end].copy()
    for rank in range(ranks):
        for place in range(offsets[rank + 1] - 1, offsets[rank], -1):
            weights[place] -= weights[place - 1]
    types, east, north = possible_places(square, squares)
    played = resources[resource_start[square] : resource_start[square + 1]]
    table = utilities_at(east, north, vehicles, played if types <= FEW_TYPES else played[:0], slope)
    return table, types, entries[begin:end].astype(np.int64), offsets, weights, backoff[begin:end]


@numba.njit(cache=True, nogil=True)
def possible_places(square, squares):  # type: ignore[no-untyped-def]  # compiled
    """Return how many possible agents a square has, and where they stand, then the first of them again."""
    corner_east, corner_north, kind, all_axes, axis_start = squares
    axis = all_axes[axis_start[kind[square]] : axis_start[kind[square] + 1]]
    half, points, centred = axis[-1] / 2, len(axis), False
    for point in axis:
        centred |= point == half
    types = points * points + (0 if centred else 1)
    east, north = np.empty(types), np.empty(types)
    for row in range(points * points):
        east[row] = axis[row // points] + corner_east[square]
        north[row] = axis[row % points] + corner_north[square]
    if not centred:
        east[-1], north[-1] = half + corner_east[square], half + corner_north[square]
    return types, padded_places(east), padded_places(north)


@numba.njit(cache=True, nogil=True)
def utilities_at(east, north, vehicles, played, slope):  # type: ignore[no-untyped-def]  # compiled
    """Return the utilities of some vehicles, a row each, at some places."""
    vehicle_east, vehicle_north = vehicles
    table = np.empty((len(played), len(east)))
    for number in range(len(played)):
        x, y, values = vehicle_east[played[number]], vehicle_north[played[number]], table[number]
        for row in range(len(east)):
            values[row] = abs(east[row] - x) + abs(north[row] - y)
        for row in range(len(east)):
            values[row] = worth(values[row], slope)
    return table


def largest_costs(
    problem: Problem,
    sets: Sets,
    public: PublicTables,
    policy: Policy,
    order: float,
    *,
    progress: Progress | None = None,
) -> tuple[FloatArray, IntArray]:
    """Return each agent's `costs.largest_own_costs` at a whole order, and the squares where that is not sure."""
    city, count = problem.domain, len(sets.squares)
    assert isinstance(city, Located)
    sorted_agents = stable_order(problem.region_index)
    begin = starts(np.bincount(problem.region_index, minlength=count))
    agents = (begin, problem.types[sorted_agents, 0].copy(), problem.types[sorted_agents, 1].copy())
    layout = (sets.resource_start, sets.resources, sets.entry_start, sets.entries)
    noise = (public.selection_below, np.ascontiguousarray(public.backoff))
    numbers = (*chances_of(policy), -1.0 / city.alpha)
    worst, unsure = np.empty(problem.agents), np.zeros(count, dtype=np.bool_)

    def some(first: int, last: int) -> None:
        here = slice(begin[first], begin[last])
        coins = fill_own_costs(
            (first, last), sets.squares.arrays, (sets.index.east, sets.index.north), layout, sets.ranks, noise,
            numbers, order, agents, worst[here], unsure,
        )  # fmt: skip
        worst[here] = np.log(np.maximum(worst[here], 1.0))
        raise_to_coins(worst[here], policy, order, *coins)

    for first in range(0, count, _AT_ONCE):
        last = min(first + _AT_ONCE, count)
        spread(lambda a, b, first=first: some(first + a, first + b), last - first, at_a_time=_AT_A_TIME)  # type: ignore[misc]
        if progress is not None:
            progress(last, count)
    costs = np.empty(problem.agents)
    costs[sorted_agents] = worst
    return costs, np.flatnonzero(unsure)


@numba.njit(cache=True, nogil=True)
def fill_own_costs(some, squares, vehicles, layout, ranks, noise, numbers, order, agents, selection, unsure):  # type: ignore[no-untyped-def]  # compiled
    """Write the largest moments of selections of the agents of some squares; return coins that may be the dearest."""
    share, backoff_share, gamma, slope = numbers
    begin, east, north = agents
    first = begin[some[0]]
    coins, filled = np.empty((5, 4 * len(selection) + 256), dtype=np.int64), 0
    found = np.empty((5, 1024), dtype=np.int64)
    for square in range(some[0], some[1]):
        region = region_of(square, squares, vehicles, layout, ranks, noise, slope)
        start, stop = begin[square], begin[square + 1]
        count = -1
        if region[1] <= FEW_TYPES:
            played = layout[1][layout[0][square] : layout[0][square + 1]]
            own = utilities_at(
                padded_places(east[start:stop]), padded_places(north[start:stop]), vehicles, played, slope
            )
            found, count = own_costs(
                region, own, stop - start, (share, backoff_share, gamma), order,
                selection[start - first : stop - first], found,
            )  # fmt: skip
        unsure[square] = count < 0
        count = max(count, 0)
        if filled + count > coins.shape[1]:
            larger = np.empty((5, 2 * (filled + count)), dtype=np.int64)
            larger[:, :filled] = coins[:, :filled]
            coins = larger
        coins[:, filled : filled + count] = found[:, :count]
        coins[0, filled : filled + count] += start - first
        filled += count
    return coins[:, :filled]


@numba.njit(cache=True, nogil=True)
def padded_places(places):  # type: ignore[no-untyped-def]  # compiled
    """Return places with the first of them again at the end, so that there are a multiple of WIDTH."""
    result = np.empty(-(-len(places) // WIDTH) * WIDTH)
    result[: len(places)] = places
    result[len(places) :] = places[0]
    return result

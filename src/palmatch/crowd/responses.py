"""What the squares of a crowd are worth on average, and their randomised responses: all of them in one compiled pass.

The same numbers, bit for bit, as `policies.once.response` and `policies.cells.mean` give region by region. Utilities of
a square's possible agents are computed, used and dropped; no real agent is known here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.crowd.sets import Sets
from palmatch.crowd.tables import Square
from palmatch.device.distribution import GRID
from palmatch.domains.distance import worth
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.cells import compiled_averages, compiled_clusters, compiled_numbered, compiled_telling
from palmatch.policies.channel import Channel, randomised_response
from palmatch.policies.once import MOST_CLUSTERED, Crowd, reports_like
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.tables import starts
from palmatch.threads import spread

# Squares that one thread does at a time.
_AT_A_TIME = 64

# The least value, as `policies.once.channel_for` bounds it: utilities are positive by contract.
_TINY = np.finfo(np.float64).tiny


def squares_among(regions: Sequence[Neighbourhood]) -> tuple[Sets, IntArray, float] | None:
    """Return tables and numbers of squares, and -1 / alpha, if all regions are squares whose utilities are not kept."""
    squares = [region for region in regions if isinstance(region, Square)]
    known = [square.flat for square in squares if square.flat is not None]
    if not known or len(known) < len(regions):
        return None
    return known[0][0], np.array([number for _, number in known], dtype=np.int64), -1.0 / squares[0].city.alpha


def means(sets: Sets, numbers: IntArray, slope: float, priors: Sequence[FloatArray]) -> list[FloatArray]:
    """Return the average utilities of squares, weighted by how likely each possible agent is."""
    start = starts(np.diff(sets.resource_start)[numbers])
    found, chosen = np.zeros(start[-1]), (numbers, np.concatenate(priors), starts([len(one) for one in priors]))
    spread(
        lambda *some: fill_means(some, chosen, _layout(sets), slope, start, found), len(numbers), at_a_time=_AT_A_TIME
    )
    return np.split(found, start[1:-1])


def responses(
    sets: Sets, numbers: IntArray, slope: float, crowds: Sequence[Crowd], others: dict[float, int]
) -> list[Channel] | None:
    """Return `policies.once.like_others` of each crowd; None where a square has too many possible agents for it."""
    weights = [crowd.prior / crowd.prior.sum() for crowd in crowds]
    counts = np.array([reports_like(crowd, others) for crowd in crowds], dtype=np.int64)
    types, sizes = np.array([len(weight) for weight in weights]), np.diff(sets.resource_start)[numbers]
    if types.max() > MOST_CLUSTERED:
        return None
    different, kind = np.unique([crowd.epsilon for crowd in crowds], return_inverse=True)
    most = np.zeros(len(different), dtype=np.int64)
    np.maximum.at(most, kind, counts)
    whole, shares = _chances(different.tolist(), most.tolist())
    type_start, start = starts(types), starts(counts * sizes)
    cells, values = np.empty(type_start[-1], dtype=np.int64), np.empty(start[-1])
    reports = np.empty(len(crowds), dtype=np.int64)
    chosen, out = (numbers, np.concatenate(weights), type_start), (cells, values, start, reports)
    spread(
        lambda *some: fill_responses(some, chosen, _layout(sets), slope, counts, (kind, shares), out),
        len(crowds),
        at_a_time=_AT_A_TIME,
    )
    return [
        Channel(cells[first:last], whole[at, told], values[begin : begin + told * size].reshape(told, size))
        for first, last, at, told, begin, size in zip(
            type_start.tolist(), type_start[1:].tolist(), kind.tolist(), reports.tolist(), start.tolist(),
            sizes.tolist(), strict=False,
        )
    ]  # fmt: skip


def _chances(epsilons: list[float], most: list[int]) -> tuple[dict[tuple[int, int], IntArray], FloatArray]:
    """Return the chances of randomised response by the place of its ε and the number of cells, up to `most` of each ε.

    They come as whole numbers, and the shares of the own and of any other cell in one array.
    """
    whole, shares = {}, np.zeros((len(epsilons), max(most) + 1, 2))
    for at, epsilon in enumerate(epsilons):
        for cells in range(1, most[at] + 1):
            whole[at, cells] = chances = randomised_response(cells, epsilon)
            shares[at, cells] = chances[0, 0] / GRID, chances[0, -1] / GRID
    return whole, shares


def _layout(sets: Sets) -> tuple[tuple[NDArray[np.generic], ...], tuple[NDArray[np.generic], ...]]:
    vehicles = (sets.index.east, sets.index.north, sets.resource_start, sets.resources)
    return sets.squares.arrays, vehicles


@numba.njit(cache=True, nogil=True)
def _places(square, squares, vehicles):  # type: ignore[no-untyped-def]  # compiled
    """Return the places of a square's possible agents, and of its vehicles."""
    corner_east, corner_north, kind, all_axes, axis_start = squares
    vehicle_east, vehicle_north, resource_start, resources = vehicles
    axis = all_axes[axis_start[kind[square]] : axis_start[kind[square] + 1]]
    half, on_grid, count = axis[-1] / 2, False, 0
    for point in axis:
        on_grid |= point == half
    here = np.empty((2, len(axis) * len(axis) + (0 if on_grid else 1)))
    for column in range(len(axis)):
        for row in range(len(axis)):
            here[0, count] = axis[column] + corner_east[square]
            here[1, count] = axis[row] + corner_north[square]
            count += 1
    if not on_grid:
        here[0, count], here[1, count] = half + corner_east[square], half + corner_north[square]
    first = resource_start[square]
    there = np.empty((2, resource_start[square + 1] - first))
    for place in range(there.shape[1]):
        there[0, place] = vehicle_east[resources[first + place]]
        there[1, place] = vehicle_north[resources[first + place]]
    return here, there


@numba.njit(cache=True, nogil=True)
def fill_means(some, chosen, layout, slope, start, found):  # type: ignore[no-untyped-def]  # compiled
    """Write the averages of some squares; `found` holds zeros."""
    numbers, priors, prior_start = chosen
    for number in range(some[0], some[1]):
        here, there = _places(numbers[number], layout[0], layout[1])
        mean, prior = found[start[number] : start[number + 1]], priors[prior_start[number] : prior_start[number + 1]]
        for row in range(here.shape[1]):
            east, north, share = here[0, row], here[1, row], prior[row]
            for place in range(there.shape[1]):
                mean[place] += share * worth(abs(east - there[0, place]) + abs(north - there[1, place]), slope)


@numba.njit(cache=True, nogil=True)
def fill_responses(some, chosen, layout, slope, counts, chances, out):  # type: ignore[no-untyped-def]  # compiled
    """Write cells, values and the number of reports of some squares."""
    numbers, weights, type_start = chosen
    kind, shares = chances
    all_cells, all_values, start, reports = out
    for number in range(some[0], some[1]):
        here, there = _places(numbers[number], layout[0], layout[1])
        types, resources = here.shape[1], there.shape[1]
        table = np.empty((types, resources))
        for row in range(types):
            east, north = here[0, row], here[1, row]
            for place in range(resources):
                table[row, place] = worth(abs(east - there[0, place]) + abs(north - there[1, place]), slope)
        weight = weights[type_start[number] : type_start[number + 1]]
        cells = np.zeros(types, dtype=np.int64)
        if counts[number] > 1:
            some_columns = compiled_telling(table)
            cells = compiled_numbered(some_columns, compiled_clusters(some_columns, counts[number], weight))
        told = cells.max() + 1
        own = np.full((told, told), shares[kind[number], told, 1])
        for cell in range(told):
            own[cell, cell] = shares[kind[number], told, 0]
        values = compiled_averages(table, cells, own, weight)
        reports[number] = told
        all_cells[type_start[number] : type_start[number + 1]] = cells
        for report in range(told):
            for place in range(resources):
                value = min(max(values[report, place], _TINY), 1.0)
                all_values[start[number] + report * resources + place] = value

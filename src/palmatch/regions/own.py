"""What each agent acts on, private to it: its own utilities, or those of the nearest possible type of its region.

What is public is in `tables.py` and `noise.py`, so that it shows which of them a function may read. Where utilities
follow from places they are never stored: they are computed from an agent's place when it acts on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numba
import numpy as np
import scipy

from palmatch.problem import (
    FloatArray,
    HasCoordinates,
    HasPartners,
    IntArray,
    Problem,
    SparseUtilities,
    checked_utility,
)
from palmatch.regions.csr import members_of, offsets_from_sizes
from palmatch.regions.grid import NearestLists, Points, cells_of, nearest_lists, place_index, type_place, utility_scale
from palmatch.regions.tables import RegionTables, RegionView
from palmatch.threads import parallel_chunks


@dataclass(frozen=True, slots=True)
class OwnTables:
    """Each agent's own utilities for its region's resources: private. Agent n's begin at `start[n]`."""

    start: IntArray
    utility: FloatArray

    def of(self, agent: int) -> FloatArray:
        """Return one agent's own utilities."""
        return self.utility[self.start[agent] : self.start[agent + 1]]


@dataclass(frozen=True, slots=True)
class OwnPlaces:
    """Where each agent stands, or acts as if it stood: private. Utilities follow when they are needed.

    `place_east` and `place_north` are where the resources are, by their numbers in `RegionTables`; `slope` is -1/alpha.
    """

    east: FloatArray
    north: FloatArray
    place_east: FloatArray
    place_north: FloatArray
    slope: float


Own: TypeAlias = OwnTables | OwnPlaces


def own_utilities(problem: Problem, regions: RegionTables, *, snapped: bool) -> Own:
    """Return what each agent acts on: its utilities for the resources that its region plays.

    With `snapped` they are those of the nearest possible type, which is what an agent acts on if it is to be covered.
    They are copied from the region's table, or follow from a possible place, so that an agent acts on the very numbers
    whose cost was computed.
    """
    if (grid := regions.grid) is None:
        return own_tables(problem, regions, snapped=snapped)
    east, north = problem.types[:, 0].copy(), problem.types[:, 1].copy()
    if snapped:
        squares, square_of, spots = grid.squares, problem.region_index, grid.city.spots(problem.types)
        parallel_chunks(
            lambda *span: fill_places(squares, square_of, spots, span, east, north), len(east), at_a_time=8192
        )
    return OwnPlaces(east, north, grid.index.east, grid.index.north, grid.scale.slope)


def own_tables(problem: Problem, regions: RegionTables, *, snapped: bool) -> OwnTables:
    """Return the utilities that each agent acts on, or those of the nearest possible type."""
    start = offsets_from_sizes(np.diff(regions.resource_start)[problem.region_index])
    utility = np.empty(start[-1])
    for region, members in zip(regions, members_of(problem.region_index, len(regions)), strict=True):
        types = problem.types[members]
        if snapped:
            rows = region.utilities[nearest_types(problem, region, types)]
        else:
            rows = checked_utility(problem.domain, types, region.resources)
        utility[start[members][:, None] + np.arange(rows.shape[1])] = rows
    return OwnTables(start, utility)


def nearest_types(problem: Problem, region: RegionView, types: FloatArray) -> IntArray:
    """Return which possible type of a region is nearest to each of some agents in it, as the domain or places say."""
    if isinstance(problem.domain, HasCoordinates):
        return problem.domain.spots(types)
    if isinstance(problem.domain, SparseUtilities | HasPartners):
        return problem.domain.nearest(region.region, types)
    return np.asarray(scipy.spatial.cKDTree(region.types).query(types)[1], dtype=np.int64)


@numba.njit(cache=True, nogil=True)
def fill_places(squares, square_of, spots, span, east, north):  # type: ignore[no-untyped-def]  # compiled
    """Write where the possible agents of their squares stand that are nearest to some agents."""
    for agent in range(span[0], span[1]):
        east[agent], north[agent] = type_place(squares, square_of[agent], spots[agent])


def own_lists(city: HasCoordinates, types: FloatArray, order: IntArray, ranks: int) -> tuple[IntArray, FloatArray]:
    """Return each agent's K best resources by its own place, best first, and their utilities: (agents, K) each.

    `order` is the rank of each resource by public id.
    """
    index = place_index(city.places, order)
    corner, block = np.array([index.corner_east, index.corner_north]), float(np.sqrt(ranks)) * index.size / 4
    by_cell = np.argsort(cells_of(types[:, :2], corner, block, index.along), kind="stable")
    east, north = np.ascontiguousarray(types[by_cell, 0]), np.ascontiguousarray(types[by_cell, 1])
    points = Points(east, north, ranks, block, float(np.sqrt(ranks) * index.size / 2))
    found = NearestLists(np.empty((len(types), ranks), dtype=np.int32), np.empty((len(types), ranks)))
    scale = utility_scale(city)
    parallel_chunks(lambda *span: nearest_lists(span, points, index, scale, found), len(types), at_a_time=8192)
    places, values = np.empty(found.numbers.shape, dtype=np.int64), np.empty(found.values.shape)
    places[by_cell], values[by_cell] = index.rows[found.numbers], found.values
    return places, values

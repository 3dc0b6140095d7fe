"""What the players know, laid out in flat arrays: the public tables of all regions, and each agent's own utilities.

The two are kept in two records, so that it shows which of them a function may read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from palmatch.neighbourhood import Neighbourhood, best_columns
from palmatch.policies.alma import Shape, backoff_chances
from palmatch.policies.distribution import GRID
from palmatch.policies.noise import PublicPlay
from palmatch.privacy.accountants import Layout
from palmatch.problem import Domain, FloatArray, IntArray, Problem, checked_utility


@dataclass(frozen=True, slots=True)
class PublicTables:
    """All regions' tables, one after the other.

    Region g has the resources `resources[resource_start[g]:resource_start[g + 1]]` and the rank sets numbered
    `rank_start[g]` to `rank_start[g + 1] - 1`; set number i is `entries[entry_start[i]:entry_start[i + 1]]`, positions
    among the region's resources. `selection_below` holds, within each set, the sum of the noise's weights up to and
    with the entry; `backoff` the noise's back-off chance there. `regions_of[regions_start[r]:regions_start[r + 1]]`
    are the regions in which resource r may be played.
    """

    region_of_agent: IntArray
    resource_start: IntArray
    resources: IntArray
    rank_start: IntArray
    entry_start: IntArray
    entries: IntArray
    selection_below: IntArray
    backoff: IntArray
    regions_start: IntArray
    regions_of: IntArray

    @property
    def layout(self) -> Layout:
        """How many regions, rank sets and entries there are."""
        return Layout(len(self.resource_start) - 1, len(self.entry_start) - 1, len(self.entries))


@dataclass(frozen=True, slots=True)
class OwnTables:
    """Each agent's own utilities for its region's resources, one agent after the other: private."""

    start: IntArray
    utility: FloatArray

    def of(self, agent: int) -> FloatArray:
        """Return one agent's own utilities."""
        return self.utility[self.start[agent] : self.start[agent + 1]]


def public_tables(problem: Problem, regions: Sequence[Neighbourhood], plays: Sequence[PublicPlay]) -> PublicTables:
    """Lay out the tables of all regions."""
    below = [_below(region, play.selection) for region, play in zip(regions, plays, strict=True)]
    entry_start = np.concatenate([np.diff(region.offsets) for region in regions])
    return _with_inverse(
        problem.resources,
        region_of_agent=problem.region_index,
        resource_start=_starts([len(region.resources) for region in regions]),
        resources=np.concatenate([region.resources for region in regions]),
        rank_start=_starts([region.ranks for region in regions]),
        entry_start=_starts(entry_start),
        entries=np.concatenate([region.entries for region in regions]),
        selection_below=np.concatenate(below),
        backoff=np.concatenate([play.backoff for play in plays]),
    )


def own_tables(problem: Problem, regions: Sequence[Neighbourhood]) -> OwnTables:
    """Return what each agent acts on: its utilities for the resources that its region plays."""
    sizes = np.array([len(region.resources) for region in regions])[problem.region_index]
    start = _starts(sizes)
    utility = np.empty(start[-1])
    for number, region in enumerate(regions):
        members = np.flatnonzero(problem.region_index == number)
        rows = checked_utility(problem.domain, problem.types[members], region.resources)
        for agent, row in zip(members, rows, strict=True):
            utility[start[agent] : start[agent + 1]] = row
    return OwnTables(start, utility)


def snapped_tables(problem: Problem, regions: Sequence[Neighbourhood]) -> OwnTables:
    """Return the utilities of the possible type that is nearest to each agent: what it acts on, if it is to be covered.

    They are copied from the region's table, not computed again, so that an agent acts on the very numbers whose cost
    was computed. Which type is nearest is told by the coordinates of the types.
    """
    sizes = np.array([len(region.resources) for region in regions])[problem.region_index]
    start = _starts(sizes)
    utility = np.empty(start[-1])
    for number, region in enumerate(regions):
        members = np.flatnonzero(problem.region_index == number)
        nearest = np.asarray(cKDTree(region.types).query(problem.types[members])[1])
        for agent, row in zip(members, nearest, strict=True):
            utility[start[agent] : start[agent + 1]] = region.utilities[row]
    return OwnTables(start, utility)


def alma_tables(
    problem: Problem, domain: Domain, types: FloatArray, *, shape: Shape, gamma: float
) -> tuple[PublicTables, OwnTables]:
    """Return the tables of ALMA: everybody a region of its own, each rank set the one resource that comes next.

    `domain` and `types` are what the agents act on, which is not the truth when positions were obfuscated.
    """
    agents, ranks = len(types), problem.ranks
    by_id = np.argsort(problem.resource_order)
    lists = np.empty((agents, ranks), dtype=np.int64)
    values = np.empty((agents, ranks))
    for block in np.array_split(np.arange(agents), max(1, agents * problem.resources // 10_000_000)):
        utilities = checked_utility(domain, types[block], by_id)
        best = best_columns(utilities, ranks)
        lists[block] = by_id[best]
        values[block] = np.take_along_axis(utilities, best, axis=1)
    tables = _with_inverse(
        problem.resources,
        region_of_agent=np.arange(agents),
        resource_start=_starts(np.full(agents, ranks)),
        resources=lists.ravel(),
        rank_start=_starts(np.full(agents, ranks)),
        entry_start=np.arange(agents * ranks + 1),
        entries=np.tile(np.arange(ranks), agents),
        selection_below=np.full(agents * ranks, GRID, dtype=np.int64),
        backoff=backoff_chances(values, shape=shape, gamma=gamma).ravel(),
    )
    return tables, OwnTables(_starts(np.full(agents, ranks)), values.ravel())


def _below(region: Neighbourhood, weights: IntArray) -> IntArray:
    parts = [np.cumsum(part) for part in np.split(weights, region.offsets[1:-1])]
    return np.concatenate(parts)


def _starts(sizes: Sequence[int] | IntArray) -> IntArray:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def _with_inverse(resource_count: int, **arrays: IntArray) -> PublicTables:
    """Add, for each resource, the regions that play it."""
    resources = arrays["resources"]
    owners = np.repeat(np.arange(len(arrays["resource_start"]) - 1), np.diff(arrays["resource_start"]))
    order = np.argsort(resources, kind="stable")
    counts = np.bincount(resources, minlength=resource_count)
    return PublicTables(**arrays, regions_start=_starts(counts), regions_of=owners[order])

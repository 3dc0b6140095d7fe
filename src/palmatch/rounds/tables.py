"""What the players know, laid out in flat arrays: the public tables of all regions, and each agent's own utilities.

The two are kept in two records, so that it shows which of them a function may read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numba
import numpy as np
import scipy
from numpy.typing import NDArray

from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.noise import PublicPlay
from palmatch.privacy.accountants import Layout
from palmatch.problem import FloatArray, IntArray, Problem, Snapping, checked_utility
from palmatch.rounds.kernel import fill_guide
from palmatch.threads import taken

SmallArray: TypeAlias = NDArray[np.int32]

# Positions in a region or in a rank set: two bytes each where that is enough, since there are very many of them.
Positions: TypeAlias = NDArray[np.uint16 | np.int32]

# Fewer values than this are sooner sorted than a loop that counts them is compiled or loaded.
_MANY = 10_000


@dataclass(frozen=True, slots=True)
class PublicTables:
    """All regions' tables, one after the other.

    Region g has the resources `resources[resource_start[g]:resource_start[g + 1]]` and the rank sets numbered
    `rank_start[g]` to `rank_start[g + 1] - 1`; set number i is `entries[entry_start[i]:entry_start[i + 1]]`, positions
    among the region's resources. Resources have numbers in here that may be others than in the problem, where resource
    r is row `rows[r]`. `selection_below` holds, within each set, the sum of the noise's weights up to and with the
    entry; `backoff` the noise's back-off chance there. `guide` finds an entry for a draw (`rounds.kernel.fill_guide`).
    """

    region_of_agent: SmallArray
    resource_start: IntArray
    resources: SmallArray
    rank_start: IntArray
    entry_start: IntArray
    entries: Positions
    selection_below: IntArray
    guide: Positions
    backoff: IntArray
    rows: IntArray

    @property
    def layout(self) -> Layout:
        """How many regions, rank sets and entries there are."""
        return Layout(len(self.resource_start) - 1, len(self.entry_start) - 1, len(self.entries))

    @property
    def largest_set(self) -> int:
        """How many entries the largest rank set has."""
        return int(np.diff(self.entry_start).max())

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the compiled rounds take."""
        return (
            self.region_of_agent, self.resource_start, self.resources, self.rank_start, self.entry_start,
            self.entries, self.selection_below, self.guide, self.backoff,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class OwnTables:
    """Each agent's own utilities for its region's resources: private. Agent n's begin at `start[n]`."""

    start: IntArray
    utility: FloatArray

    def of(self, agent: int) -> FloatArray:
        """Return one agent's own utilities."""
        return self.utility[self.start[agent] : self.start[agent + 1]]

    def arrays(self, order: IntArray | None, *, threads: int = 1) -> Private:
        """Return what the compiled rounds take, for agents in another order."""
        start, none = self.start[:-1], np.empty(0)
        start = start if order is None else taken(start, order, threads=threads)
        return True, start, self.utility, none, none, none, none, -1.0


@dataclass(frozen=True, slots=True)
class OwnPlaces:
    """Where each agent stands, or acts as if it stood: private. Utilities follow when they are needed.

    `place_east` and `place_north` are where the resources are, by their numbers in `PublicTables`; `slope` is -1/alpha.
    """

    east: FloatArray
    north: FloatArray
    place_east: FloatArray
    place_north: FloatArray
    slope: float

    def arrays(self, order: IntArray | None, *, threads: int = 1) -> Private:
        """Return what the compiled rounds take, for agents in another order."""
        east, north = self.east, self.north
        if order is not None:
            east, north = taken(east, order, threads=threads), taken(north, order, threads=threads)
        start, none = np.empty(0, dtype=np.int64), np.empty(0)
        return False, start, none, east, north, self.place_east, self.place_north, self.slope


Own: TypeAlias = OwnTables | OwnPlaces
Private: TypeAlias = tuple[
    bool, IntArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, float
]  # see `rounds.kernel.gather`


def public_tables(problem: Problem, regions: Sequence[Neighbourhood], plays: Sequence[PublicPlay]) -> PublicTables:
    """Lay out the tables of all regions."""
    below = [_below(region, play.selection) for region, play in zip(regions, plays, strict=True)]
    entry_start = np.concatenate([np.diff(region.offsets) for region in regions])
    return finished(
        region_of_agent=problem.region_index,
        resource_start=starts([len(region.resources) for region in regions]),
        resources=np.concatenate([region.resources for region in regions]),
        rank_start=starts([region.ranks for region in regions]),
        entry_start=starts(entry_start),
        entries=np.concatenate([region.entries for region in regions]),
        selection_below=np.concatenate(below),
        backoff=np.concatenate([play.backoff for play in plays]),
        rows=np.arange(problem.resources),
    )


def finished(
    *,
    region_of_agent: IntArray,
    resource_start: IntArray,
    resources: IntArray | SmallArray,
    rank_start: IntArray,
    entry_start: IntArray,
    entries: IntArray | Positions,
    selection_below: IntArray,
    backoff: IntArray,
    rows: IntArray,
) -> PublicTables:
    """Add what follows from the rest."""
    small = position_type(int(np.diff(resource_start).max(initial=0)))
    guide = np.empty(len(entries), dtype=small)
    fill_guides(selection_below, entry_start, guide)
    return PublicTables(
        region_of_agent=region_of_agent.astype(np.int32),
        resource_start=resource_start,
        resources=resources.astype(np.int32, copy=False),
        rank_start=rank_start,
        entry_start=entry_start,
        entries=entries.astype(small, copy=False),
        selection_below=selection_below,
        guide=guide,
        backoff=backoff,
        rows=rows,
    )


def position_type(most: int) -> np.dtype[np.uint16 | np.int32]:
    """Return the smaller type for positions, if a region has so few resources at most that they fit."""
    return np.dtype(np.uint16 if most < 1 << 16 else np.int32)


def own_tables(problem: Problem, regions: Sequence[Neighbourhood]) -> OwnTables:
    """Return what each agent acts on: its utilities for the resources that its region plays."""
    return _own(problem, regions, lambda g, types: checked_utility(problem.domain, types, regions[g].resources))


def snapped_tables(problem: Problem, regions: Sequence[Neighbourhood]) -> OwnTables:
    """Return the utilities of the possible type that is nearest to each agent: what it acts on, if it is to be covered.

    They are copied from the region's table, not computed again, so that an agent acts on the very numbers whose cost
    was computed. Which type is nearest is told by the domain, or by the coordinates of the types.
    """
    return _own(problem, regions, lambda g, types: regions[g].utilities[nearest_types(problem, regions[g], types)])


def nearest_types(problem: Problem, region: Neighbourhood, types: FloatArray) -> IntArray:
    """Return which possible type of a region is nearest to each of some agents in it."""
    if isinstance(problem.domain, Snapping):
        return problem.domain.nearest(region.region, types)
    return np.asarray(scipy.spatial.cKDTree(region.types).query(types)[1], dtype=np.int64)


def _own(
    problem: Problem, regions: Sequence[Neighbourhood], rows_of: Callable[[int, FloatArray], FloatArray]
) -> OwnTables:
    start = starts(np.array([len(region.resources) for region in regions])[problem.region_index])
    utility = np.empty(start[-1])
    for number, members in enumerate(members_of(problem.region_index, len(regions))):
        rows = rows_of(number, problem.types[members])
        utility[start[members][:, None] + np.arange(rows.shape[1])] = rows
    return OwnTables(start, utility)


def stable_order(values: IntArray | SmallArray) -> IntArray:
    """Return what `np.argsort(values, kind="stable")` returns, sooner; no value is below 0.

    Small values are counted. Otherwise a value and its place share a word, where there is room for both, and words are
    sorted several at a time.
    """
    most, bits = int(values.max(initial=0)), len(values).bit_length()
    if len(values) < _MANY:
        return np.argsort(values, kind="stable")
    if most <= len(values):
        order: IntArray = counted_order(values, most)
        return order
    if most >= 1 << (62 - bits):
        return np.argsort(values, kind="stable")
    words = (values.astype(np.int64) << bits) | np.arange(len(values))
    words.sort()
    words &= (1 << bits) - 1
    return words


@numba.njit(cache=True, nogil=True)
def counted_order(values, most):  # type: ignore[no-untyped-def]  # compiled
    """Return the order of values of at most `most`: it is known where each begins once they are counted."""
    begin, order = np.zeros(most + 2, dtype=np.int64), np.empty(len(values), dtype=np.int64)
    for value in values:
        begin[value + 1] += 1
    for value in range(most):
        begin[value + 1] += begin[value]
    for place in range(len(values)):
        order[begin[values[place]]] = place
        begin[values[place]] += 1
    return order


def members_of(region_index: IntArray, regions: int) -> list[IntArray]:
    """Return the agents of each region, in one pass over every agent."""
    order = stable_order(region_index)
    return np.split(order, np.cumsum(np.bincount(region_index, minlength=regions))[:-1])


def _below(region: Neighbourhood, weights: IntArray) -> IntArray:
    """Return the cumulated weights of each rank set: of all entries, less those of the sets before.

    A sum of very many sets wraps around, and so does the difference, which is below 2^63 again.
    """
    total = np.cumsum(weights)
    before = np.concatenate(([0], total[region.offsets[1:-1] - 1]))
    below: IntArray = total - np.repeat(before, np.diff(region.offsets))
    return below


def starts(sizes: Sequence[int] | IntArray) -> IntArray:
    """Return where each part begins when parts of these sizes are laid out one after the other, and where all end."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


@numba.njit(cache=True, nogil=True)
def fill_guides(below, entry_start, guide):  # type: ignore[no-untyped-def]  # compiled
    """Write every rank set's guide."""
    for rank in range(len(entry_start) - 1):
        fill_guide(below, entry_start[rank], entry_start[rank + 1], guide)

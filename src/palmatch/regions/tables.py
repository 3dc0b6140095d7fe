"""The public tables of all regions: every possible agent, their preferences rank by rank, the representative.

Everything in here is public: it is computed from the partition and the resources, never from a real agent. A region's
rank set R_s is the union over its possible types of their s-th preferred resource (Sec. "Resource Selection
Distribution" of the paper). Inside compiled loops utilities are read from stored tables, or follow from distances and
are dropped once used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias, overload

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.domain import SparseUtilities, checked
from palmatch.domains.geometry import utility_table, worth
from palmatch.problem import Domain, FloatArray, HasCoordinates, IntArray, Problem, Region, checked_utility
from palmatch.regions.csr import SmallArray, offsets_from_sizes
from palmatch.regions.grid import (
    PlaceIndex,
    RankSets,
    Squares,
    UtilityScale,
    place_index,
    square_sets,
    squares_of,
    type_place,
    utility_scale,
)
from palmatch.threads import parallel_chunks

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SquareGrid:
    """Regions that are squares: where they and the resources are; utilities follow from distances."""

    city: HasCoordinates
    squares: Squares
    index: PlaceIndex
    scale: UtilityScale


class UtilitySource(NamedTuple):
    """What compiled loops take a region's utilities from: a stored table, or the places of squares and resources.

    The attributes are those of `RegionTables`, `Squares` and `PlaceIndex`; what does not apply is empty.
    """

    is_grid: bool
    resource_start: IntArray
    resources: SmallArray
    utility_start: IntArray
    utilities: FloatArray
    type_counts: IntArray
    representative: IntArray
    squares: Squares
    east: FloatArray
    north: FloatArray
    slope: float


class Weights(NamedTuple):
    """The weights of the types of some of the regions: those of `regions[i]` begin at `start[i]`."""

    regions: IntArray
    weights: FloatArray
    start: IntArray


@dataclass(slots=True, eq=False, repr=False)
class RegionTables(Sequence["RegionView"]):
    """The public tables of all regions, laid out one after the other; as a sequence, a view of each region.

    Attributes
    ----------
    domain, regions, ranks:
        The domain, its regions with agents in them, sorted, and K, the number of rank sets of each.
    rows:
        Resources have numbers in here that may be others than in the problem, where resource r is row `rows[r]`.
    resource_start, resources:
        Region g plays `resources[resource_start[g]:resource_start[g + 1]]`, by public id.
    utility_start, utilities:
        Region g's table, types x resources, is `utilities[utility_start[g]:utility_start[g + 1]]`; empty with a grid.
    grid:
        Where squares and resources are, if utilities are computed from these.
    by_id:
        All resources by public id, if each region plays only those that its types list. The last column of a region's
        utilities, and of what is computed from them, then stands for each of the other resources, which are worth the
        same to all types; there are no rank sets.
    """

    domain: Domain
    regions: tuple[Region, ...]
    ranks: int
    rows: IntArray
    resource_start: IntArray
    resources: SmallArray
    utility_start: IntArray
    utilities: FloatArray
    grid: SquareGrid | None = None
    by_id: IntArray | None = None
    _sets: tuple[IntArray, SmallArray] | None = None

    def __len__(self) -> int:
        return len(self.regions)

    def __repr__(self) -> str:
        return f"RegionTables({len(self):,} regions, {len(self.resources):,} resources in them, {self.ranks:,} ranks)"

    @overload
    def __getitem__(self, number: int) -> RegionView: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[RegionView]: ...

    def __getitem__(self, number: int | slice) -> RegionView | Sequence[RegionView]:
        if isinstance(number, slice):
            return tuple(self[each] for each in range(len(self))[number])
        # A negative number counts from the end.
        return RegionView(self, range(len(self))[number])

    def __iter__(self) -> Iterator[RegionView]:
        return map(self.__getitem__, range(len(self)))

    @property
    def rank_sets(self) -> tuple[IntArray, SmallArray]:
        """Offsets and entries: R_s of region g is `entries[offsets[g K + s - 1]:offsets[g K + s]]`.

        Entries are ascending positions among a region's resources.
        """
        if self._sets is None:
            # Everything is played, and methods of one report need no rank sets, which take longer than all else.
            present = [_present(region.utilities, self.ranks) for region in self]
            sizes = np.concatenate([sets.sum(axis=1) for sets in present])
            entries = np.concatenate([np.nonzero(sets)[1] for sets in present]).astype(np.int32)
            self._sets = offsets_from_sizes(sizes), entries
        return self._sets

    @property
    def utility_source(self) -> UtilitySource:
        """What compiled loops take utilities from."""
        flat = (self.resource_start, self.resources, self.utility_start, self.utilities, self.type_counts)
        if self.grid is None:
            none, empty = np.zeros(0), np.zeros(0, dtype=np.int64)
            middle = np.array([region.representative for region in self], dtype=np.int64)
            squares = Squares(none, none, empty, none, empty, empty, empty)
            return UtilitySource(False, *flat, middle, squares, none, none, 0.0)
        index, squares = self.grid.index, self.grid.squares
        middle = squares.centre[squares.kind]
        return UtilitySource(True, *flat, middle, squares, index.east, index.north, self.grid.scale.slope)

    @property
    def type_counts(self) -> IntArray:
        """How many possible types each region has."""
        if self.grid is None:
            return np.diff(self.utility_start) // self.column_counts
        return self.grid.squares.types[self.grid.squares.kind]

    @property
    def column_counts(self) -> IntArray:
        """How many columns each region's table of utilities has."""
        return np.diff(self.resource_start) + int(self.by_id is not None)


class RegionView:
    """One region of `RegionTables`; what is computed from these is kept as long as the view is.

    Attributes
    ----------
    tables, number, region:
        The tables, which region of them, and its name.
    """

    def __init__(self, tables: RegionTables, number: int) -> None:
        self.tables, self.number, self.region = tables, number, tables.regions[number]

    def __repr__(self) -> str:
        return f"RegionView({self.region}: {len(self.types):,} types, {len(self.resources):,} resources)"

    @property
    def resources(self) -> IntArray:
        """The resources that agents of the region may play (row numbers of the problem, by public id)."""
        start, stop = self.tables.resource_start[self.number : self.number + 2]
        return self.tables.rows[self.tables.resources[start:stop]]

    @cached_property
    def types(self) -> FloatArray:
        """Every possible agent, one a row."""
        return self.tables.domain.types_of(self.region)

    @property
    def representative(self) -> int:
        """The row of `types` that stands for the region."""
        return self.tables.domain.representative(self.region)

    @property
    def utilities(self) -> FloatArray:
        """The utility of each of `resources` to each of `types`: (types, resources); computed anew for squares."""
        tables = self.tables
        if tables.grid is not None:
            return utility_table(self.types, tables.grid.city.places, self.resources, tables.grid.city.alpha)
        first, last = tables.utility_start[self.number : self.number + 2]
        return tables.utilities[first:last].reshape(-1, tables.column_counts[self.number])

    @property
    def entries(self) -> IntArray:
        """R_s is `entries[offsets[s - 1]:offsets[s]]`, ascending positions in `resources`."""
        offsets, entries = self.tables.rank_sets
        first = self.number * self.tables.ranks
        return entries[offsets[first] : offsets[first + self.ranks]].astype(np.int64)

    @property
    def offsets(self) -> IntArray:
        """Where each rank set begins in `entries`, and where the last one ends: (K + 1,)."""
        first = self.number * self.tables.ranks
        start = self.tables.rank_sets[0][first : first + self.ranks + 1]
        return np.asarray(start - start[0])

    @property
    def by_id(self) -> IntArray | None:
        """All resources by public id, if `resources` are only those that types of the region list."""
        return self.tables.by_id

    @property
    def ranks(self) -> int:
        """K, the number of rank sets."""
        return self.tables.ranks

    def rank_set(self, rank: int) -> IntArray:
        """Return R_s for s = rank + 1, as positions in `resources`."""
        offsets = self.offsets
        return self.entries[offsets[rank] : offsets[rank + 1]]


def region_tables(problem: Problem, *, progress: Progress | None = None) -> RegionTables:
    """Return the public tables of every region in which there is an agent, in the order of `problem.regions`."""
    city = grid_domain(problem)
    return dense_tables(problem, progress=progress) if city is None else grid_tables(problem, city, progress=progress)


def grid_domain(problem: Problem) -> HasCoordinates | None:
    """Return the domain, if agents and resources are places and each agent cares for a few of the resources."""
    bounded = problem.interest is not None and problem.ranks < problem.resources
    return problem.domain if bounded and isinstance(problem.domain, HasCoordinates) else None


def grid_tables(problem: Problem, city: HasCoordinates, *, progress: Progress | None = None) -> RegionTables:
    """Return the tables of squares by grid search, without a table of all utilities."""
    index = place_index(city.places, problem.resource_order)
    grid = SquareGrid(city, squares_of(city, problem), index, utility_scale(city))
    sets: RankSets = square_sets(grid.squares, index, problem.ranks, grid.scale)
    if progress is not None:
        progress(len(problem.regions), len(problem.regions))
    return RegionTables(
        domain=problem.domain,
        regions=problem.regions,
        ranks=problem.ranks,
        rows=index.rows,
        resource_start=sets.resource_start,
        resources=sets.resources,
        utility_start=np.zeros(0, dtype=np.int64),
        utilities=np.zeros(0),
        grid=grid,
        _sets=(sets.entry_start, sets.entries),
    )


def dense_tables(problem: Problem, *, progress: Progress | None = None) -> RegionTables:
    """Return the tables of any domain from a table of utilities for each region."""
    resources, utilities = [], []
    for number, region in enumerate(problem.regions):
        columns = _candidates(problem, number)
        table = checked_utility(problem.domain, problem.domain.types_of(region), columns)
        if problem.ranks < len(columns):
            played = np.flatnonzero(_present(table, problem.ranks).any(axis=0))
            columns, table = columns[played], table[:, played]
        resources.append(columns)
        utilities.append(table)
        if progress is not None:
            progress(number + 1, len(problem.regions))
    return _from_tables(problem, resources, utilities)


def sparse_tables(problem: Problem, domain: SparseUtilities) -> RegionTables:
    """Return the tables of every region without a column for each resource, and without rank sets."""
    resources, utilities = [], []
    for region in problem.regions:
        columns, table = domain.listed(region)
        order = np.argsort(problem.resource_order[columns])
        resources.append(columns[order])
        utilities.append(checked(np.ascontiguousarray(table[:, np.append(order, len(columns))]), columns[order]))
    tables = _from_tables(problem, resources, utilities)
    tables.by_id = np.argsort(problem.resource_order)
    tables._sets = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    return tables


def _from_tables(problem: Problem, resources: list[IntArray], utilities: list[FloatArray]) -> RegionTables:
    """Return tables from the parts of each region."""
    start = offsets_from_sizes([table.size for table in utilities])
    flat = np.empty(start[-1])
    for number in range(len(utilities)):
        # Each part is let go as soon as it is copied.
        flat[start[number] : start[number + 1]] = utilities[number].ravel()
        utilities[number] = flat[:0]
    return RegionTables(
        domain=problem.domain,
        regions=problem.regions,
        ranks=problem.ranks,
        rows=np.arange(problem.resources),
        resource_start=offsets_from_sizes([len(columns) for columns in resources]),
        resources=np.concatenate(resources).astype(np.int32),
        utility_start=start,
        utilities=flat,
    )


def _candidates(problem: Problem, number: int) -> IntArray:
    """Return the columns of all possible partners or resources of a region, by public id."""
    columns = np.arange(problem.resources)
    if problem.pairs:
        members = np.flatnonzero(problem.region_index == number)
        # An agent that is alone in its region is no agent's partner there.
        columns = np.setdiff1d(columns, members) if len(members) == 1 else columns
    return np.asarray(columns[np.argsort(problem.resource_order[columns])])


def _present(utilities: FloatArray, ranks: int) -> NDArray[np.bool_]:
    """Return which resource is any type's s-th best, a row for each s."""
    best = best_columns(utilities, ranks)
    present = np.zeros((ranks, utilities.shape[1]), dtype=np.bool_)
    for rank in range(ranks):
        present[rank, best[:, rank]] = True
    return present


def mean_utilities(regions: Sequence[RegionView], priors: Sequence[FloatArray]) -> list[FloatArray]:
    """Return Σ_i p_i u_i(r), the average utility of each resource (column) of each region over its types."""
    tables, numbers = regions[0].tables, np.array([region.number for region in regions], dtype=np.int64)
    start, source = offsets_from_sizes(tables.column_counts[numbers]), tables.utility_source
    weights = Weights(numbers, np.concatenate(priors), offsets_from_sizes([len(prior) for prior in priors]))
    means = np.zeros(start[-1])
    parallel_chunks(lambda *span: fill_means(span, source, weights, start, means), len(numbers), at_a_time=64)
    return np.split(means, start[1:-1])


@numba.njit(cache=True, nogil=True)
def region_utilities(source, region):  # type: ignore[no-untyped-def]  # compiled
    """Return a region's table of utilities: (types, resources)."""
    types = source.type_counts[region]
    if not source.is_grid:
        start, stop = source.utility_start[region], source.utility_start[region + 1]
        return source.utilities[start:stop].reshape((types, (stop - start) // types))
    table = np.empty((types, source.resource_start[region + 1] - source.resource_start[region]))
    fill_square(source, region, 0, table)
    return table


@numba.njit(cache=True, nogil=True)
def representative_utilities(source, region):  # type: ignore[no-untyped-def]  # compiled
    """Return the utilities of a region's resources to its representative."""
    count = source.resource_start[region + 1] - source.resource_start[region]
    if not source.is_grid:
        start = source.utility_start[region] + source.representative[region] * count
        return source.utilities[start : start + count]
    table = np.empty((1, count))
    fill_square(source, region, source.representative[region], table)
    return table[0]


@numba.njit(cache=True, nogil=True)
def fill_square(source, region, first, table):  # type: ignore[no-untyped-def]  # compiled
    """Write the utilities of the types of a square from number `first` on."""
    begin, count = source.resource_start[region], table.shape[1]
    # Side by side, so that processors compute several at a time.
    there = np.empty((2, count))
    for position in range(count):
        there[0, position] = source.east[source.resources[begin + position]]
        there[1, position] = source.north[source.resources[begin + position]]
    for row in range(len(table)):
        (x, y), out = type_place(source.squares, region, first + row), table[row]
        for position in range(count):
            out[position] = worth(abs(x - there[0, position]) + abs(y - there[1, position]), source.slope)


@numba.njit(cache=True, nogil=True)
def fill_means(span, source, weights, start, means):  # type: ignore[no-untyped-def]  # compiled
    """Write the average utilities of some regions; `means` holds zeros."""
    for number in range(span[0], span[1]):
        table, mean = region_utilities(source, weights.regions[number]), means[start[number] : start[number + 1]]
        for row in range(len(table)):
            share, own = weights.weights[weights.start[number] + row], table[row]
            for position in range(len(own)):
                mean[position] += share * own[position]


def best_columns(utilities: FloatArray, count: int) -> IntArray:
    """Return each row's `count` best columns, best first, ties by column."""
    # Past 48 ranks one sort of everything is faster than keeping the best ones while reading.
    if count > min(48, utilities.shape[1] // 2):
        return np.argsort(-utilities, axis=1, kind="stable")[:, :count].astype(np.int64)
    return np.asarray(_keep_best(np.ascontiguousarray(utilities), count))


@numba.njit(cache=True)
def _keep_best(utilities, count):  # type: ignore[no-untyped-def]  # compiled
    """Return each row's best columns by insertion into a short sorted list; a later equal value never overtakes."""
    rows, columns = utilities.shape
    best = np.empty((rows, count), dtype=np.int64)
    for row in range(rows):
        kept = 0
        for column in range(columns):
            value = utilities[row, column]
            if kept == count and value <= utilities[row, best[row, count - 1]]:
                continue
            place = kept if kept < count else count - 1
            while place > 0 and utilities[row, best[row, place - 1]] < value:
                best[row, place] = best[row, place - 1]
                place -= 1
            best[row, place] = column
            if kept < count:
                kept += 1
    return best

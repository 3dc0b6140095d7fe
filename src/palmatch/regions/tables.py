"""The public tables of all regions: every possible agent, their preferences rank by rank, the representative.

Everything in here is public: it is computed from the partition and the resources, never from a real agent. A region's
rank set R_s is the union over its possible types of their s-th preferred resource (Sec. "Resource Selection
Distribution" of the paper).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias, overload

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.domain import SparseUtilities, checked
from palmatch.domains.geometry import utility_table
from palmatch.problem import Domain, FloatArray, HasCoordinates, IntArray, Problem, Region, checked_utility
from palmatch.regions.csr import Positions, SmallArray, offsets_from_sizes, position_type
from palmatch.regions.grid import PlaceIndex, UtilityScale, place_index, utility_scale
from palmatch.regions.squares import Squares, square_sets, squares_of
from palmatch.regions.utilities import UtilitySource, Weights, fill_means
from palmatch.threads import spread

# Past this many ranks one sort of everything is faster than keeping the best ones while reading.
_FEW_RANKS = 48

# Utilities of possible agents of squares up to so many, in all regions together, are kept once computed: 160 MB.
_MOST_KEPT = 20_000_000

# Regions that one thread does at a time.
_AT_A_TIME = 64

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SquareGrid:
    """Regions that are squares: where they and the resources are; utilities follow from distances."""

    city: HasCoordinates
    squares: Squares
    index: PlaceIndex
    scale: UtilityScale


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
    _sets: tuple[IntArray, Positions] | None = None
    _views: tuple[RegionView, ...] | None = field(default=None, init=False)

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
        return RegionView(self, range(len(self))[number]) if self._views is None else self._views[number]

    def __iter__(self) -> Iterator[RegionView]:
        return map(self.__getitem__, range(len(self)))

    @property
    def entry_start(self) -> IntArray:
        """Where rank sets begin: R_s of region g is `entries[entry_start[g K + s - 1]:entry_start[g K + s]]`."""
        return self.rank_sets[0]

    @property
    def entries(self) -> Positions:
        """All rank sets, one after the other: ascending positions among a region's resources."""
        return self.rank_sets[1]

    @property
    def rank_sets(self) -> tuple[IntArray, Positions]:
        """`entry_start` and `entries`."""
        if self._sets is None:
            sizes = np.concatenate([np.diff(region.offsets) for region in self])
            small = position_type(int(np.diff(self.resource_start).max(initial=0)))
            entries = np.concatenate([region.entries for region in self]).astype(small)
            self._sets = offsets_from_sizes(sizes), entries
        return self._sets

    @property
    def utility_source(self) -> UtilitySource:
        """What compiled loops take utilities from."""
        none, empty = np.zeros(0), np.zeros(0, dtype=np.int64)
        flat = (self.resource_start, self.resources, self.utility_start, self.utilities, self.type_counts)
        if self.grid is None:
            middle = np.array([region.representative for region in self], dtype=np.int64)
            return UtilitySource(False, *flat, middle, Squares(none, none, empty, none, empty), none, none, 0.0)
        index = self.grid.index
        return UtilitySource(True, *flat, empty, self.grid.squares, index.east, index.north, self.grid.scale.slope)

    @property
    def type_counts(self) -> IntArray:
        """How many possible types each region has."""
        if self.grid is None:
            return np.array([len(region.types) for region in self], dtype=np.int64)
        squares, counts = self.grid.squares, []
        for first, last in pairwise(squares.axis_start.tolist()):
            axis = squares.axis[first:last]
            counts.append(len(axis) ** 2 + int(not (axis == axis[-1] / 2).any()))
        return np.array(counts, dtype=np.int64)[squares.kind]

    @property
    def column_counts(self) -> IntArray:
        """How many columns each region's table of utilities has."""
        return np.diff(self.resource_start) + int(self.by_id is not None)

    def _keep_views(self) -> None:
        self._views = tuple(RegionView(self, number) for number in range(len(self)))


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

    @cached_property
    def resources(self) -> IntArray:
        """The resources that agents of the region may play (row numbers of the problem, by public id)."""
        tables = self.tables
        return tables.rows[
            tables.resources[tables.resource_start[self.number] : tables.resource_start[self.number + 1]]
        ]

    @cached_property
    def types(self) -> FloatArray:
        """Every possible agent, one a row."""
        return self.tables.domain.types_of(self.region)

    @cached_property
    def representative(self) -> int:
        """The row of `types` that stands for the region."""
        return self.tables.domain.representative(self.region)

    @cached_property
    def utilities(self) -> FloatArray:
        """The utility of each of `resources` to each of `types`: (types, resources)."""
        tables = self.tables
        if tables.grid is not None:
            return utility_table(self.types, tables.grid.city.places, self.resources, tables.grid.city.alpha)
        first, last = tables.utility_start[self.number : self.number + 2]
        flat = tables.utilities[first:last]
        return flat.reshape(len(self.types), len(flat) // len(self.types))

    @cached_property
    def entries(self) -> IntArray:
        """R_s is `entries[offsets[s - 1]:offsets[s]]`, ascending positions in `resources`."""
        return self._rank_sets[0]

    @cached_property
    def offsets(self) -> IntArray:
        """Where each rank set begins in `entries`, and where the last one ends: (K + 1,)."""
        return self._rank_sets[1]

    @cached_property
    def _rank_sets(self) -> tuple[IntArray, IntArray]:
        tables = self.tables
        if tables._sets is None:
            # Everything is played, and methods of one report need no rank sets, which take longer than all else.
            return _rank_sets(_present(self.utilities, tables.ranks))
        start, entries = tables._sets
        offsets = start[self.number * tables.ranks : (self.number + 1) * tables.ranks + 1]
        return entries[offsets[0] : offsets[-1]].astype(np.int64), offsets - offsets[0]

    @property
    def by_id(self) -> IntArray | None:
        """All resources by public id, if `resources` are only those that types of the region list."""
        return self.tables.by_id

    @property
    def ranks(self) -> int:
        """K, the number of rank sets."""
        return len(self.offsets) - 1

    def rank_set(self, rank: int) -> IntArray:
        """Return R_s for s = rank + 1, as positions in `resources`."""
        return self.entries[self.offsets[rank] : self.offsets[rank + 1]]

    def fresh(self) -> RegionView:
        """Return a view that keeps what is computed no longer than it lives itself."""
        return RegionView(self.tables, self.number) if self.tables._views is None else self

    def first_ranks(self, ranks: int) -> RegionView:
        """Return the region cut after some rank sets."""
        cut = copy(self)
        cut.entries, cut.offsets = self.entries[: self.offsets[ranks]], self.offsets[: ranks + 1]
        return cut


def region_tables(problem: Problem, *, progress: Progress | None = None) -> RegionTables:
    """Return the public tables of every region in which there is an agent, in the order of `problem.regions`."""
    city = grid_domain(problem)
    return dense_tables(problem, progress=progress) if city is None else grid_tables(problem, city, progress=progress)


def grid_domain(problem: Problem) -> HasCoordinates | None:
    """Return the domain, if agents and resources are places and each agent cares for a few of the resources."""
    bounded = problem.interest is not None and problem.ranks < problem.resources
    return problem.domain if bounded and isinstance(problem.domain, HasCoordinates) else None


def grid_tables(
    problem: Problem, city: HasCoordinates, *, threads: int | None = None, progress: Progress | None = None
) -> RegionTables:
    """Return the tables of squares by grid search, without a table of all utilities."""
    index = place_index(city.places, problem.resource_order, threads=threads)
    grid = SquareGrid(city, squares_of(city, problem), index, utility_scale(city))
    sets = square_sets(grid.squares, index, problem.ranks, grid.scale, threads=threads)
    if progress is not None:
        progress(len(problem.regions), len(problem.regions))
    none = np.zeros(0)
    tables = RegionTables(
        domain=problem.domain,
        regions=problem.regions,
        ranks=problem.ranks,
        rows=index.rows,
        resource_start=sets.resource_start,
        resources=sets.resources,
        utility_start=none.astype(np.int64),
        utilities=none,
        grid=grid,
        _sets=(sets.entry_start, sets.entries),
    )
    edges = np.diff(grid.squares.axis_start)[grid.squares.kind]
    if int((edges**2 * np.diff(sets.resource_start)).sum()) <= _MOST_KEPT:
        tables._keep_views()
    return tables


def dense_tables(problem: Problem, *, progress: Progress | None = None) -> RegionTables:
    """Return the tables of any domain from a table of utilities for each region."""
    resources, utilities, known = [], [], []
    for number, region in enumerate(problem.regions):
        types, columns = problem.domain.types_of(region), _candidates(problem, number)
        table = checked_utility(problem.domain, types, columns)
        facts: dict[str, object] = {"types": types}
        if problem.ranks < len(columns):
            present = _present(table, problem.ranks)
            played = np.flatnonzero(present.any(axis=0))
            columns, table = columns[played], table[:, played]
            facts["entries"], facts["offsets"] = _rank_sets(present[:, played])
        resources.append(columns)
        utilities.append(np.ascontiguousarray(table).ravel())
        known.append(facts)
        if progress is not None:
            progress(number + 1, len(problem.regions))
    return _from_tables(problem, resources, utilities, known)


def sparse_tables(problem: Problem, domain: SparseUtilities) -> RegionTables:
    """Return the tables of every region without a column for each resource, and without rank sets."""
    by_id, none = np.argsort(problem.resource_order), np.empty(0, dtype=np.int64)
    resources, utilities, known = [], [], []
    for region in problem.regions:
        columns, table = domain.listed(region)
        order = np.argsort(problem.resource_order[columns])
        ordered = checked(np.ascontiguousarray(table[:, np.append(order, len(columns))]), columns[order])
        resources.append(columns[order])
        utilities.append(ordered.ravel())
        known.append({"types": problem.domain.types_of(region), "entries": none, "offsets": none})
    return _from_tables(problem, resources, utilities, known, by_id=by_id)


def _from_tables(
    problem: Problem,
    resources: list[IntArray],
    utilities: list[FloatArray],
    known: Sequence[Mapping[str, object]],
    *,
    by_id: IntArray | None = None,
) -> RegionTables:
    """Return tables from the parts of each region, and what its view knows already."""
    start = offsets_from_sizes([len(table) for table in utilities])
    flat = np.empty(start[-1])
    for number in range(len(utilities)):
        # Each part is let go as soon as it is copied.
        flat[start[number] : start[number + 1]], utilities[number] = utilities[number], flat[:0]
    tables = RegionTables(
        domain=problem.domain,
        regions=problem.regions,
        ranks=problem.ranks,
        rows=np.arange(problem.resources),
        resource_start=offsets_from_sizes([len(columns) for columns in resources]),
        resources=np.concatenate(resources).astype(np.int32),
        utility_start=start,
        utilities=flat,
        by_id=by_id,
    )
    tables._keep_views()
    for view, facts in zip(tables, known, strict=True):
        vars(view).update(facts)
    return tables


def mean_utilities(regions: Sequence[RegionView], priors: Sequence[FloatArray]) -> list[FloatArray]:
    """Return Σ_i p_i u_i(r), the average utility of each resource (column) of each region over its types."""
    tables, numbers = regions[0].tables, np.array([region.number for region in regions], dtype=np.int64)
    start, source = offsets_from_sizes(tables.column_counts[numbers]), tables.utility_source
    prior_start, means = offsets_from_sizes([len(prior) for prior in priors]), np.zeros(start[-1])
    weights = Weights(numbers, np.concatenate(priors), prior_start)
    spread(lambda *span: fill_means(span, source, weights, start, means), len(numbers), at_a_time=_AT_A_TIME)
    return np.split(means, start[1:-1])


def _candidates(problem: Problem, number: int) -> IntArray:
    """Return the columns of all possible partners or resources of a region, by public id."""
    columns = np.arange(problem.resources)
    if problem.pairs:
        members = np.flatnonzero(problem.region_index == number)
        # An agent that is alone in its region is no agent's partner there.
        columns = np.setdiff1d(columns, members) if len(members) == 1 else columns
    by_id: IntArray = columns[np.argsort(problem.resource_order[columns])]
    return by_id


def _present(utilities: FloatArray, ranks: int) -> NDArray[np.bool_]:
    """Return which resource is any type's s-th best, a row for each s."""
    best = best_columns(utilities, ranks)
    present = np.zeros((ranks, utilities.shape[1]), dtype=np.bool_)
    for rank in range(ranks):
        present[rank, best[:, rank]] = True
    return present


def _rank_sets(present: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return entries and offsets."""
    _, entries = np.nonzero(present)
    return entries.astype(np.int64), np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int64)


def best_columns(utilities: FloatArray, count: int) -> IntArray:
    """Return each row's `count` best columns, best first, ties by column."""
    if count > _FEW_RANKS or count > utilities.shape[1] // 2:
        return np.argsort(-utilities, axis=1, kind="stable")[:, :count].astype(np.int64)
    best: IntArray = _keep_best(np.ascontiguousarray(utilities), count)
    return best


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

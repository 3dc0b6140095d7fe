"""The public tables of a region: every possible agent, their preferences rank by rank, the representative.

Everything in here is public: it is computed from the partition and the resources, never from a real agent. A region's
rank set R_s is the union over its possible types of their s-th preferred resource (Sec. "Resource Selection
Distribution" of the paper).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.domain import Listing, Narrowing, checked
from palmatch.problem import FloatArray, IntArray, Problem, Region, checked_utility

# Past this many ranks one sort of everything is faster than keeping the best ones while reading.
_FEW_RANKS = 48

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What is public about one region.

    Attributes
    ----------
    resources:
        The resources that agents of the region may play (row numbers of the problem, by public id).
    types, utilities:
        Every possible agent, and its utility for each of `resources`.
    representative:
        The row of `types` that stands for the region.
    entries, offsets:
        R_s is `entries[offsets[s - 1]:offsets[s]]`, ascending positions in `resources`.
    """

    region: Region
    resources: IntArray
    types: FloatArray
    utilities: FloatArray
    representative: int
    entries: IntArray
    offsets: IntArray

    @property
    def ranks(self) -> int:
        """K, the number of rank sets."""
        return len(self.offsets) - 1

    def rank_set(self, rank: int) -> IntArray:
        """Return R_s for s = rank + 1, as positions in `resources`."""
        return self.entries[self.offsets[rank] : self.offsets[rank + 1]]


@dataclass(frozen=True, slots=True)
class Listed(Neighbourhood):
    """A region whose resources are those that its types list; there are no rank sets.

    The last column of `utilities`, and of what is computed from them, stands for each of the other resources, which are
    worth the same to all types. `by_id` are all resources by public id.
    """

    by_id: IntArray


def listed_neighbourhoods(problem: Problem, domain: Listing) -> tuple[Listed, ...]:
    """Return what is public about every region in which there is an agent, without a column for each resource."""
    by_id, none = np.argsort(problem.resource_order), np.empty(0, dtype=np.int64)
    tables = []
    for region in problem.regions:
        columns, utilities = domain.listed(region)
        order = np.argsort(problem.resource_order[columns])
        in_order = checked(np.ascontiguousarray(utilities[:, np.append(order, len(columns))]), columns[order])
        types, middle = problem.domain.types_of(region), problem.domain.representative(region)
        tables.append(Listed(region, columns[order], types, in_order, middle, none, none, by_id))
    return tuple(tables)


def kept(region: Neighbourhood) -> Neighbourhood:
    """Return a region whose utilities are computed once, where they are otherwise computed whenever asked for."""
    return region if isinstance(region, _Whole) else replace(region)


def neighbourhoods(problem: Problem, *, progress: Progress | None = None) -> tuple[Neighbourhood, ...]:
    """Return the public tables of every region in which there is an agent, in the order of `problem.regions`."""
    tables = []
    for done, region in enumerate(problem.regions):
        tables.append(neighbourhood(problem, region))
        if progress is not None:
            progress(done + 1, len(problem.regions))
    return tuple(tables)


def neighbourhood(problem: Problem, region: Region) -> Neighbourhood:
    """Return the public tables of one region."""
    types = problem.domain.types_of(region)
    columns = _candidates(problem, region)
    utilities, middle = checked_utility(problem.domain, types, columns), problem.domain.representative(region)
    if problem.ranks == len(columns):
        # Everything is played, and methods of one report need no rank sets, which take longer than all else.
        whole = _Whole.__new__(_Whole)
        known = (("region", region), ("resources", columns), ("types", types), ("utilities", utilities))
        for name, value in (*known, ("representative", middle)):
            object.__setattr__(whole, name, value)
        return whole
    present = _present(utilities, problem.ranks)
    played = np.flatnonzero(present.any(axis=0))
    kept = np.ascontiguousarray(utilities[:, played])
    return Neighbourhood(region, columns[played], types, kept, middle, *_rank_sets(present[:, played]))


class _Whole(Neighbourhood):
    """A region that plays all resources, and finds its rank sets when they are asked for first."""

    __slots__ = ()

    def __getattr__(self, name: str) -> IntArray:
        if name not in ("entries", "offsets"):
            raise AttributeError(name)
        for found, value in zip(
            ("entries", "offsets"), _rank_sets(_present(self.utilities, len(self.resources))), strict=True
        ):
            object.__setattr__(self, found, value)
        result: IntArray = object.__getattribute__(self, name)
        return result


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


def _candidates(problem: Problem, region: Region) -> IntArray:
    """Return columns that can be among the K best of some type of the region, by public id."""
    if problem.ranks < problem.resources and isinstance(problem.domain, Narrowing):
        columns = problem.domain.candidates(region, problem.ranks)
    else:
        columns = np.arange(problem.resources)
    if problem.pairs:
        members = np.flatnonzero(problem.region_index == problem.regions.index(region))
        # An agent that is alone in its region is no agent's partner there.
        columns = np.setdiff1d(columns, members) if len(members) == 1 else columns
    by_id: IntArray = columns[np.argsort(problem.resource_order[columns])]
    return by_id


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

"""Scores of reviewers for papers, of which most pairs have none: a table that is never laid out as a whole.

A type is (number of its region, number of its row). Rows of possible types are public and come from elsewhere; an
agent's own row is private, and is read only where that agent acts or is scored. What unlisted pairs are worth, and how
a score becomes a utility, are public functions that no agent's scores enter.

References
----------
- [openreview-matcher][] and [Xu, Jecmen, Song, Fang (NeurIPS 2023)][]: programs whose files are read.
- Page [For programme chairs][for-programme-chairs-from-two-files-to-assignmentsjson].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from palmatch.data.files import listed
from palmatch.data.scores import Range, Scores, as_utility
from palmatch.domains.table import Types
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray, Problem, Region, for_all_agents, make_problem


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """The domain of scores.

    Attributes
    ----------
    regions, start:
        Region g has the possible types `start[g]` to `start[g + 1] - 1`.
    columns, possible:
        The papers that any of a region's types lists, and the utilities of its types for them; in the last column
        `unlisted`.
    representatives:
        Which of its types stands for each region.
    own:
        Each agent's utilities of the papers for which it has a score, sparse, shape (agents, papers): private. Agent n
        has the row number `start[-1] + n`.
    unlisted:
        The utility of a paper for which a user has no score.
    bounds:
        The smallest and largest score that there may be: public.
    near:
        The possible type of its region that is nearest to each agent, private; empty where it was not looked for.
    """

    regions: tuple[str, ...]
    start: tuple[int, ...]
    columns: tuple[IntArray, ...]
    possible: tuple[FloatArray, ...]
    representatives: tuple[int, ...]
    own: Any
    unlisted: float
    bounds: Range = (0.0, 1.0)
    near: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def utility(self, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return the utilities of possible types and of agents."""
        chosen = np.arange(self.own.shape[1]) if columns is None else columns
        table = np.empty((len(types), len(chosen)))
        row, public = types[:, 1].astype(np.int64), types[:, 1] < self.start[-1]
        for number in np.unique(types[public, 0]).astype(np.int64).tolist():
            some = np.flatnonzero(public & (types[:, 0] == number))
            rows = self.possible[number][row[some] - self.start[number]]
            table[some] = rows[:, self._place(number)[chosen]]
        if not public.all():
            own = self.own[row[~public] - self.start[-1]][:, chosen].toarray()
            table[~public] = np.where(own == 0.0, self.unlisted, own)
        return table

    @property
    def _rows(self) -> _Own:
        return _Own(self.own.indptr, self.own.indices, self.own.data, self.unlisted)

    def _place(self, number: int) -> IntArray:
        """Return the column of each paper in a region's table."""
        place = np.full(self.own.shape[1], len(self.columns[number]), dtype=np.int64)
        place[self.columns[number]] = np.arange(len(self.columns[number]))
        return place

    def listed(self, region: Region) -> tuple[IntArray, FloatArray]:
        """Return the papers that any possible type of a region lists, and utilities; in the last column of others."""
        number = self.regions.index(str(region))
        return self.columns[number], self.possible[number]

    def region_of(self, types: FloatArray) -> Sequence[Region]:
        """Return the name of each type's region."""
        return [self.regions[int(number)] for number in types[:, 0]]

    def grouped(self, types: FloatArray) -> tuple[tuple[Region, ...], IntArray]:
        """Return the regions that occur, sorted, and which of them each type is in."""
        occurring, place = np.unique(types[:, 0].astype(np.int64), return_inverse=True)
        return tuple(self.regions[number] for number in occurring), place.astype(np.int64)

    def types_of(self, region: Region) -> FloatArray:
        """Return the possible types of a region."""
        number = self.regions.index(str(region))
        rows = np.arange(self.start[number], self.start[number + 1], dtype=np.float64)
        return np.column_stack((np.full(len(rows), float(number)), rows))

    def representative(self, region: Region) -> int:
        """Return which possible type stands for the region."""
        return self.representatives[self.regions.index(str(region))]

    def utility_of_pairs(self, types: FloatArray, columns: IntArray) -> FloatArray:
        """Return the utility of one paper to each type."""
        row = types[:, 1].astype(np.int64)
        gained, public = np.empty(len(row)), row < self.start[-1]
        for number in np.unique(types[public, 0]).astype(np.int64).tolist():
            some = np.flatnonzero(public & (types[:, 0] == number))
            gained[some] = self.possible[number][row[some] - self.start[number], self._place(number)[columns[some]]]
        own = np.flatnonzero(~public)
        _entries(row[own] - self.start[-1], columns[own], self._rows, own, gained)
        return gained

    def nearest(self, region: Region, types: FloatArray) -> IntArray:
        """Return the possible type of the region whose utilities are nearest to each type's own, the first of several.

        It is a function of an agent's own row and of what is public. A method that acts on nothing but its result
        treats every agent as a possible type of its region, so that its guarantee holds for agents with any scores.
        """
        number = self.regions.index(str(region))
        row, found = types[:, 1].astype(np.int64), np.empty(len(types), dtype=np.int64)
        public = row < self.start[-1]
        found[public] = row[public] - self.start[number]
        agents = np.flatnonzero(~public)
        if len(self.near) and (types[agents, 0] == number).all():
            found[agents] = self.near[row[agents] - self.start[-1]]
            return found
        above = self.possible[number] - self.unlisted
        above, squares = np.ascontiguousarray(above.T), (above**2).sum(axis=1)
        _nearest(row[agents] - self.start[-1], self._rows, self._place(number), above, squares, agents, found)
        return found


class _Own(NamedTuple):
    """Agents' utilities in CSR for compiled loops: row n has `values[start[n]:start[n + 1]]` of `papers`, ascending."""

    start: NDArray[Any]
    papers: NDArray[Any]
    values: FloatArray
    unlisted: float


@numba.njit(cache=True, nogil=True)
def _entries(rows, columns, own, places, gained):  # type: ignore[no-untyped-def]  # compiled
    """Write the utility of one paper for each of some rows."""
    for index in range(len(rows)):
        low, end = own.start[rows[index]], own.start[rows[index] + 1]
        high = end
        while low < high:
            middle = (low + high) // 2
            if own.papers[middle] < columns[index]:
                low = middle + 1
            else:
                high = middle
        found = low < end and own.papers[low] == columns[index]
        gained[places[index]] = own.values[low] if found else own.unlisted


@numba.njit(cache=True, nogil=True)
def _nearest(rows, own, place, above, squares, places, found):  # type: ignore[no-untyped-def]  # compiled
    """Write which type is nearest to each of some rows: |a - t|² = |a|² - 2 a·t + |t|², and |a|² is the same for all t.

    `above` has a row for each paper that a type lists, and one of zeros for all others: what types are worth above
    `unlisted`.
    """
    product = np.empty(above.shape[1])
    for index in range(len(rows)):
        product[:] = 0.0
        for entry in range(own.start[rows[index]], own.start[rows[index] + 1]):
            column, more = place[own.papers[entry]], own.values[entry] - own.unlisted
            for kind in range(len(product)):
                product[kind] += more * above[column, kind]
        best = 0
        for kind in range(1, len(product)):
            if squares[kind] - 2 * product[kind] < squares[best] - 2 * product[best]:
                best = kind
        found[places[index]] = best


@numba.njit(cache=True, nogil=True)
def _differs(own, place, table, near, members, result):  # type: ignore[no-untyped-def]  # compiled
    """Write which of some rows are not exactly those of a table that are near them."""
    lengths = np.zeros(len(table), dtype=np.int64)
    for kind in range(len(table)):
        for column in range(table.shape[1]):
            lengths[kind] += table[kind, column] != own.unlisted
    for index in range(len(members)):
        agent, kind, listed = members[index], near[index], 0
        for entry in range(own.start[agent], own.start[agent + 1]):
            there = table[kind, place[own.papers[entry]]]
            result[agent] |= there != own.values[entry]
            listed += there != own.unlisted
        # A type may also have papers that its agent has no score for.
        result[agent] |= listed != lengths[kind]


def problem(
    scores: Scores,
    types: Types,
    regions: Mapping[str, str] | None = None,
    *,
    bounds: Range = (0.0, 1.0),
    interest: int | None = None,
    epsilon: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
    demand: ArrayLike | Mapping[str, int] | None = None,
    conflicts: Iterable[tuple[str, str]] | None = None,
    notes: Sequence[str] = (),
) -> Problem:
    """Return the problem of matching reviewers to papers by scores.

    Parameters
    ----------
    scores:
        Each reviewer's scores, private to it: what `palmatch.data.scores.read_scores` returns.
    types:
        The possible types of each region, from public records: what `palmatch.studies.archive` derives, or
        `palmatch.domains.table.read_types` returns. Their columns are `scores.papers`.
    regions:
        The public region of each reviewer; not needed where there is one region.
    bounds:
        The smallest and largest score that there may be: public.
    interest:
        How many papers each possible type considers; all of them unless given.
    epsilon:
        Each reviewer's own budget, a public choice; NaN where the reviewer leaves it to the caller.
    capacity:
        How many reviewers a paper takes: one number, or one each.
    demand:
        How many papers a reviewer takes: one number, one each, or by id, 1 where an id is missing.
    conflicts:
        Pairs (reviewer id, paper id) that must not be matched: public.
    notes:
        What was changed while reading, a sentence each.

    Returns
    -------
    Problem
        What every method takes. Reviewers whose scores are not among their region's possible types are named in
        `Problem.uncovered`: methods that act as the nearest possible type cover them, others do not.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> import palmatch as pm
    >>> told = pm.data.scores.Scores("scores.csv", ("ana", "bo"), ("p1", "p2"), csr_array([[0.9, 0], [0, 0.4]]))
    >>> table = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> types = pm.table.Types("types.csv", ("all", "all"), np.array([True, False]), table)
    >>> pm.scores.problem(told, types, capacity=1)
    Problem(ScoreTable: 2 agents, 2 resources, 1 regions)

    References
    ----------
    - [openreview-matcher][] and [Xu, Jecmen, Song, Fang (NeurIPS 2023)][]: programs whose files are read.
    - Page "For programme chairs", [What is public][3-what-is-public-regions-and-possible-types].
    """
    if types.utilities.shape[1] != len(scores.papers):
        raise InputError(f"{types.source} has {types.utilities.shape[1]} papers, {scores.source} {len(scores.papers)}.")
    rows_of, representatives = types.rows, types.representatives
    names, unlisted = tuple(rows_of), float(as_utility(0.0, bounds))
    blocks = [types.block(rows, unlisted) for rows in rows_of.values()]
    own = scores.rows.tocsr()
    if not own.has_canonical_format:
        own = own.copy()
        own.sum_duplicates()
    own = type(own)((as_utility(own.data, bounds), own.indices, own.indptr), shape=own.shape)
    domain = ScoreTable(
        regions=names,
        start=(0, *np.cumsum([len(rows) for rows in rows_of.values()]).tolist()),
        columns=tuple(columns for columns, _ in blocks),
        possible=tuple(table for _, table in blocks),
        representatives=tuple(representatives[name] for name in names),
        own=own,
        unlisted=unlisted,
        bounds=bounds,
    )
    number = _regions_of(scores, names, regions, types.source)
    rows = domain.start[-1] + np.arange(len(scores.users))
    own_types = np.column_stack((number, rows)).astype(np.float64)
    if isinstance(demand, Mapping):
        demand = np.array([demand.get(user, np.nan) for user in scores.users], dtype=np.float64)
    near, uncovered = _nearest_of_agents(domain, own_types)
    return make_problem(
        replace(domain, near=near),
        own_types,
        agent_ids=scores.users,
        resource_ids=scores.papers,
        interest=interest,
        epsilon=for_all_agents(epsilon, len(rows)),
        uncovered=uncovered,
        notes=(*notes, *_notes(len(uncovered), len(rows))),
        check=False,
        capacity=capacity,
        demand=demand,
        conflicts=conflicts,
        source=types.origin,
    )


def _notes(uncovered: int, agents: int) -> tuple[str, ...]:
    if not uncovered:
        return ()
    return (
        f"{uncovered:,} of {agents:,} reviewers have scores that are not among their region's possible types: methods "
        "that act as the nearest possible type (once, palma) cover them, others (published) do not.",
    )


def _regions_of(scores: Scores, names: tuple[str, ...], regions: Mapping[str, str] | None, source: str) -> IntArray:
    """Return the number of each reviewer's region, which is public: it is never guessed from the scores."""
    if regions is None:
        if len(names) > 1:
            raise InputError(
                f"{source} has {len(names)} regions, and it is not said in which of them each reviewer is; give each "
                "reviewer's public region with --regions FILE (regions=), or derive one region for all."
            )
        return np.zeros(len(scores.users), dtype=np.int64)
    place = {name: number for number, name in enumerate(names)}
    own = list(map(regions.get, scores.users))
    lost = [user for user, region in zip(scores.users, own, strict=True) if region is None] if None in own else []
    if lost:
        raise InputError(
            f"Found no region for {len(lost):,} of {len(scores.users):,} reviewers ({listed(lost, limit=3)}), expected "
            "one for each; add the public region that each of them declares. It is never computed from scores."
        )
    strange = [user for user, region in zip(scores.users, own, strict=True) if region not in place]
    if strange:
        # Their regions are not quoted: a file of scores may have been given in place of one of regions.
        raise InputError(
            f"Found {len(strange):,} of {len(scores.users):,} reviewers ({listed(strange, limit=3)}) in regions of "
            f"which {source} has no types, expected one of {listed(names)}; correct the region."
        )
    return np.array([place[region] for region in own if region is not None], dtype=np.int64)


def _nearest_of_agents(domain: ScoreTable, types: FloatArray) -> tuple[IntArray, list[int]]:
    """Return the possible type that is nearest to each agent, and agents whose utilities are not exactly its own."""
    near, differs = np.empty(len(types), dtype=np.int64), np.zeros(len(types), dtype=np.bool_)
    for number, region in enumerate(domain.regions):
        members = np.flatnonzero(types[:, 0] == number)
        near[members] = domain.nearest(region, types[members])
        place, table = domain._place(number), domain.possible[number]
        _differs(domain._rows, place, table, near[members], members, differs)
    return near, np.flatnonzero(differs).tolist()

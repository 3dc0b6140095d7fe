"""Utilities that come from elsewhere: a matrix, a region for every agent, and the possible types of each region.

This domain knows nothing about what the numbers mean; it checks that they make a problem.

References
----------
- [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Elaborative Example on Neighborhoods".
- Page "Domains", [Domains of the package][].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from palmatch.data.files import (
    FilePath,
    Sheet,
    epsilons,
    filled_runs,
    filled_texts,
    find_column,
    identifiers,
    identifiers_or_numbers,
    is_frame,
    library_of,
    listed,
    marks,
    need_column,
    numbers,
    read_sheet,
    refuse,
    run_starts,
    sheet_of,
    texts,
    unit_counts,
    with_rows,
)
from palmatch.data.scores import UNLISTED, Range, as_utility, known_places, sparse_rows
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray, Problem, Region, for_all_agents, given_or, make_problem

# What a table of agents may have besides a column for each resource.
AGENT_COLUMNS = ("id", "region", "epsilon", "demand")
TYPE_COLUMNS = ("region", "representative", "source")

UTILITY = "a utility above 0 and at most 1"


@dataclass(frozen=True, slots=True)
class TableRows:
    """What each agent wants.

    Attributes
    ----------
    source
        The file it comes from.
    ids, regions
        N ids, each once, and the region of each.
    utilities
        Values in (0, 1], shape (N, R), the columns in the order of the resource ids.
    epsilon
        Each agent's privacy budget, possibly infinite, NaN for the default; None if no agent asks for one.
    demand
        How many resources each agent wants, NaN for the default; None if no column says so.
    resources
        R ids.
    """

    source: str
    ids: tuple[str, ...]
    regions: tuple[str, ...]
    utilities: NDArray[np.float64]
    epsilon: NDArray[np.float64] | None
    demand: NDArray[np.float64] | None = None
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ListedRows:
    """TableRows of utilities of which most are the same: what the sparse `rows` do not store is worth `rest`."""

    rows: Any
    rest: float

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns there are."""
        rows, columns = self.rows.shape
        return rows, columns


def _filled(rows: Any, rest: float) -> NDArray[np.float64]:
    table: NDArray[np.float64] = rows.toarray()
    table[table == 0.0] = rest
    return table


@dataclass(frozen=True, slots=True)
class Types:
    """What is public about the regions: each type that may live there, and what it would want.

    Attributes
    ----------
    source
        The file they come from.
    regions
        The region of each of T types.
    representative
        True for exactly one type a region, shape (T,).
    utilities
        Values in (0, 1], shape (T, R), the columns in the order of the resource ids: an array, or what a file lists.
    derived
        From which public records regions and types were derived; empty where the file does not say.
    """

    source: str
    regions: tuple[str, ...]
    representative: NDArray[np.bool_]
    utilities: NDArray[np.float64] | ListedRows
    derived: str = ""

    @property
    def origin(self) -> str:
        """Where regions and types come from, for the guarantee."""
        return self.derived or self.source

    @property
    def by_region(self) -> dict[str, NDArray[np.float64]]:
        """The types of each region."""
        whole = self.whole
        return {name: whole[rows] for name, rows in self.rows.items()}

    @property
    def whole(self) -> NDArray[np.float64]:
        """The utilities as an array."""
        given = self.utilities
        return _filled(given.rows, given.rest) if isinstance(given, ListedRows) else given

    def block(self, rows: NDArray[np.int64], rest: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return columns outside of which some types are worth `rest`, and their utilities in them, then `rest`."""
        given = self.utilities
        if isinstance(given, ListedRows) and given.rest == rest:
            listed = given.rows[rows]
            columns = np.flatnonzero(np.bincount(listed.indices))
            table = _filled(listed[:, columns], rest)
        else:
            table = self.whole[rows]
            columns = np.flatnonzero((table != rest).any(axis=0))
            table = table[:, columns]
        return columns, np.column_stack((table, np.full(len(rows), rest)))

    @property
    def representatives(self) -> dict[str, int]:
        """Which of `by_region` stands for each region."""
        return {name: int(np.flatnonzero(self.representative[rows])[0]) for name, rows in self.rows.items()}

    @property
    def rows(self) -> dict[str, NDArray[np.int64]]:
        """Which types are those of each region."""
        names = np.array(self.regions)
        return {name: np.flatnonzero(names == name) for name in sorted(set(self.regions))}


def read_table(path: FilePath, *, resource_ids: Sequence[str]) -> TableRows:
    """Read `id`, `region`, the optional `epsilon`, and a utility for every resource."""
    sheet = read_sheet(path)
    return table_of(sheet, identifiers(sheet), resource_ids=resource_ids)


def table_of(sheet: Sheet, ids: tuple[str, ...], *, resource_ids: Sequence[str]) -> TableRows:
    """Check the columns of a file or frame and return the table."""
    region = need_column(sheet, "region")
    return TableRows(
        source=sheet.source,
        ids=ids,
        regions=filled_texts(sheet, region, expected="the name of a region"),
        utilities=_utilities(sheet, resource_ids, reserved=AGENT_COLUMNS),
        epsilon=epsilons(sheet, find_column(sheet, "epsilon")),
        demand=unit_counts(sheet, "demand"),
        resources=tuple(resource_ids),
    )


def read_types(path: FilePath, *, resource_ids: Sequence[str], bounds: Range = (0.0, 1.0)) -> Types:
    """Read `region`, the optional `representative` and `source`, and a utility for every resource.

    Or, as `palmatch types` writes them, rows `region`, `type`, `paper`, `score`, where a pair without a row has the
    score 0 and scores lie within `bounds`. Without a column `representative` the first type of each region represents
    it.
    """
    return types_of(read_sheet(path), resource_ids=resource_ids, bounds=bounds)


def types_of(sheet: Sheet, *, resource_ids: Sequence[str], bounds: Range = (0.0, 1.0)) -> Types:
    """Check the columns of a file or frame and return the types."""
    region = need_column(sheet, "region")
    if {"type", "paper", "score"} <= {name.casefold() for name in sheet.names}:
        return _listed_types(sheet, region, resource_ids, bounds)
    names = filled_texts(sheet, region, expected="the name of a region")
    return Types(
        source=sheet.source,
        regions=names,
        representative=_representatives(sheet, names),
        utilities=_utilities(sheet, resource_ids, reserved=TYPE_COLUMNS),
        derived=_derived(sheet),
    )


def _listed_types(sheet: Sheet, region: int, resource_ids: Sequence[str], bounds: Range) -> Types:
    """Return types from a row for every score: in the order in which they begin."""
    kind = need_column(sheet, "type")
    runs = run_starts(sheet, region, kind)
    regions = filled_runs(sheet, region, runs, expected="the name of a region")
    named = pl.DataFrame({"region": regions, "kind": filled_runs(sheet, kind, runs, expected="the name of a type")})
    every = named.unique(maintain_order=True)
    owner = named.join(every.with_row_index("place"), on=["region", "kind"], maintain_order="left")["place"]
    kind_of_run, lengths = owner.to_numpy().astype(np.int64), np.diff(runs, append=len(sheet.columns[0]))
    column, value = need_column(sheet, "paper"), need_column(sheet, "score")
    paper = known_places(sheet, column, resource_ids, expected="the id of a paper")
    refuse(sheet, column, where=paper < 0, expected="the id of a resource", advice="remove the row", public=True)
    expected = f"a score from {bounds[0]:g} to {bounds[1]:g}"
    scores = numbers(sheet, value, expected=expected, public=True)
    refuse(sheet, value, where=~((scores >= bounds[0]) & (scores <= bounds[1])), expected=expected, public=True)
    shape = (len(every), len(resource_ids))
    listed = sparse_rows(kind_of_run, lengths, paper, as_utility(scores, bounds), shape=shape)
    if listed.nnz < len(paper):
        again = ~pl.Series(np.repeat(kind_of_run, lengths) * shape[1] + paper).is_first_distinct().to_numpy()
        expected = "each paper once a type"
        refuse(sheet, column, where=again, expected=expected, advice="keep one of the rows", public=True)
    first = runs[np.unique(kind_of_run, return_index=True)[1]]
    begins = Sheet(sheet.source, sheet.heading, sheet.names, tuple(c[first] for c in sheet.columns), None)
    return Types(
        source=sheet.source,
        regions=tuple(every["region"].to_list()),
        representative=_representatives(begins, tuple(every["region"].to_list())),
        utilities=ListedRows(listed, float(as_utility(UNLISTED, bounds))),
        derived=_derived(sheet),
    )


def _derived(sheet: Sheet) -> str:
    """Return what the column `source` says, the same on every row."""
    column = find_column(sheet, "source")
    if column is None:
        return ""
    told = texts(with_rows(sheet, column, run_starts(sheet, column)), column)
    if (told != told[0]).any():
        where = texts(sheet, column) != told[0]
        refuse(sheet, column, where=where, expected="the same on every row", advice="name one source", public=True)
    return str(told[0])


def _utilities(sheet: Sheet, resource_ids: Sequence[str], *, reserved: tuple[str, ...]) -> NDArray[np.float64]:
    columns = _resource_columns(sheet, resource_ids, reserved=reserved)
    utilities = np.empty((len(sheet.columns[0]), len(columns)))
    for place, column in enumerate(columns):
        values = numbers(sheet, column, expected=UTILITY)
        refuse(sheet, column, where=~((values > 0) & (values <= 1)), expected=UTILITY)
        utilities[:, place] = values
    return utilities


def _resource_columns(sheet: Sheet, resource_ids: Sequence[str], *, reserved: tuple[str, ...]) -> list[int]:
    """Positions of the resources' columns, in the order of the ids."""
    wanted = [name.strip() for name in resource_ids]
    for name in wanted:
        if name.casefold() in reserved:
            raise InputError(
                f"{sheet.source}: the resource {name!r} has the name of the column {name.casefold()!r}, "
                "expected resource ids that are not column names; rename the resource."
            )
    found: dict[str, int] = {}
    for column, name in enumerate(sheet.names):
        if name.casefold() in reserved:
            continue
        if name in found:
            raise InputError(
                f"{sheet.heading}: found the column {name!r} twice, expected each resource once; keep one."
            )
        found[name] = column
    _check_same_resources(sheet, wanted, found)
    return [found[name] for name in wanted]


def _check_same_resources(sheet: Sheet, wanted: list[str], found: dict[str, int]) -> None:
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InputError(
            f"{sheet.heading}: found no column for the resources {listed(missing)}, expected one a "
            "resource; add a column of utilities for each."
        )
    known = set(wanted)
    unknown = [name for name in found if name not in known]
    if unknown:
        raise InputError(
            f"{sheet.heading}: found the columns {listed(unknown)}, which are the ids of no resource; "
            "remove them or add the resources."
        )


def _representatives(sheet: Sheet, regions: tuple[str, ...]) -> NDArray[np.bool_]:
    _, first_rows, region_of = np.unique(np.array(regions, dtype=object), return_index=True, return_inverse=True)
    column = find_column(sheet, "representative")
    if column is None:
        chosen = np.zeros(len(regions), dtype=np.bool_)
        chosen[first_rows] = True
        return chosen
    chosen = marks(sheet, column).astype(np.bool_)
    counts = np.bincount(region_of[chosen], minlength=len(first_rows))
    for row in np.sort(first_rows[counts != 1])[:1]:
        places = [sheet.place(int(other)) for other in np.flatnonzero(chosen & (region_of == region_of[row]))]
        found = f"{len(places)} representatives ({', '.join(places[:3])})" if places else "no representative"
        raise InputError(
            f"{sheet.source}, column {sheet.names[column]!r}: found {found} of the region "
            f"{regions[row]!r}, which begins on {sheet.place(int(row))}, expected exactly one; "
            "mark one of its rows with 1 and the others with 0."
        )
    return chosen


def check_regions(agents: TableRows, types: Types) -> None:
    """Refuse agents whose region has no types, since nothing is known about what their neighbours want."""
    known = set(types.regions)
    lost = [row for row, region in enumerate(agents.regions) if region not in known]
    if lost:
        absent = list(dict.fromkeys(agents.regions[row] for row in lost))
        raise InputError(
            f"{agents.source}: the agent {agents.ids[lost[0]]!r} is in a region without types, "
            f"{types.source} having none for {listed(absent)}; add a row for each of these regions there."
        )


@dataclass(frozen=True, slots=True)
class Table:
    """The table domain. A type is (number of its region, utility of resource 1, utility of resource 2, ...)."""

    regions: tuple[str, ...]
    possible: tuple[FloatArray, ...]
    representatives: tuple[int, ...]

    def utility(self, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return the utilities that a type consists of."""
        return types[:, 1:].copy() if columns is None else types[:, 1 + columns]

    def region_of(self, types: FloatArray) -> Sequence[Region]:
        """Return the name of each type's region."""
        return [self.regions[int(number)] for number in types[:, 0]]

    def types_of(self, region: Region) -> FloatArray:
        """Return the possible types that the user gave for the region."""
        number = self.regions.index(str(region))
        rows = self.possible[number]
        return np.column_stack((np.full(len(rows), float(number)), rows))

    def representative(self, region: Region) -> int:
        """Return the row that the user chose to stand for the region."""
        return self.representatives[self.regions.index(str(region))]


def problem(
    utilities: Any,
    regions: Sequence[str] | None = None,
    types: Mapping[str, ArrayLike] | Any = None,
    *,
    representatives: Mapping[str, int] | None = None,
    agent_ids: Sequence[str] | None = None,
    resource_ids: Sequence[str] | None = None,
    interest: int | None = None,
    epsilon: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
    demand: ArrayLike | None = None,
    conflicts: Iterable[tuple[str, str]] | None = None,
    source: str = "",
) -> Problem:
    """Return a problem from a utility matrix.

    Parameters
    ----------
    utilities:
        (N, R) in (0, 1]: what each agent gets from each resource; or a frame of polars, pandas or Arrow with a column
        `region`, one column a resource, named by its id (and `id`, `epsilon`), or what
        `palmatch.domains.table.read_table` returns.
    regions:
        The public region of each agent; not needed with a frame.
    types:
        For each region a (T, R) matrix: the utilities of every possible agent; or a frame with a column `region`, one
        column a resource (and `representative`, 1 for the row that stands for its region), or what
        `palmatch.domains.table.read_types` returns. An agent whose own row is not among its region's types is named in
        `Problem.uncovered`: methods that act as the nearest possible type cover it, others do not.
    representatives:
        Which row of `types` stands for each region; the first one unless given.
    agent_ids, resource_ids:
        Public names; those of the frames, or row numbers, unless given.
    interest:
        How many resources each possible type considers; all of them unless given.
    epsilon:
        Each agent's own budget, a public choice; NaN where the agent leaves it to the caller.
    capacity, demand:
        How many agents a resource takes and how many resources an agent wants, for all or for each, where a column
        `demand` of a frame says nothing; 1 unless given.
    conflicts:
        Pairs (agent id, resource id) that must not be matched: public.
    source:
        From which public records regions and types come: the guarantee names it.

    Returns
    -------
    Problem
        What every method takes.

    Examples
    --------
    >>> import palmatch as pm
    >>> could_be = {"north": [[0.9, 0.4], [0.5, 0.6]]}
    >>> pm.table.problem([[0.9, 0.4], [0.5, 0.6]], ["north", "north"], could_be).agents
    2

    References
    ----------
    [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Elaborative Example on Neighborhoods": regions, possible
    agents, representatives.
    """
    library = library_of(utilities)
    if isinstance(utilities, TableRows) or is_frame(utilities):
        told = utilities if isinstance(utilities, TableRows) else _agents_of(utilities, resource_ids)
        utilities, regions = told.utilities, told.regions if regions is None else regions
        agent_ids = told.ids if agent_ids is None else agent_ids
        epsilon, resource_ids = told.epsilon if epsilon is None else epsilon, told.resources
        demand = given_or(told.demand, demand)
    if types is None or regions is None:
        raise InputError("Expected the region of each agent, and the possible types of each region; give both.")
    if not isinstance(types, Mapping):
        types, representatives, derived = _types_of(types, resource_ids, representatives)
        source = source or derived
    matrix = numbers_of(utilities, "the utility matrix")
    if matrix.ndim != 2 or matrix.size == 0:
        raise InputError(f"Expected a matrix of agents by resources, got shape {matrix.shape}.")
    if len(regions) != len(matrix):
        raise InputError(f"Expected one region per agent, got {len(regions)} for {len(matrix)} agents.")
    regions = [str(region) for region in regions]
    types = {str(region): rows for region, rows in types.items()}
    names = tuple(sorted(set(regions)))
    possible = tuple(_possible(name, types, matrix.shape[1]) for name in names)
    chosen = {str(region): row for region, row in (representatives or {}).items()}
    strange = [region for region in chosen if region not in types]
    if strange:
        raise InputError(f"There is a representative for region {strange[0]!r}, which has no types.")
    _check_range(matrix, "the utility matrix")
    number = {name: place for place, name in enumerate(names)}
    numbers = np.array([number[name] for name in regions], dtype=np.float64)
    domain = Table(names, possible, tuple(_representative(chosen, n, t) for n, t in zip(names, possible, strict=True)))
    problem = make_problem(
        domain,
        np.column_stack((numbers, matrix)),
        agent_ids=agent_ids,
        resource_ids=tuple(str(n) for n in range(matrix.shape[1])) if resource_ids is None else tuple(resource_ids),
        interest=interest,
        epsilon=for_all_agents(epsilon, len(matrix)),
        library=library,
        check=False,
        capacity=capacity,
        demand=demand,
        conflicts=conflicts,
        source=source,
    )
    return covering(problem)


def covering(problem: Problem) -> Problem:
    """Return the problem with a note of the agents whose utilities are not among their region's possible types."""
    domain, types = problem.domain, problem.types
    assert isinstance(domain, Table)
    uncovered = _not_among(types[:, 1:], types[:, 0].astype(np.int64), domain.possible)
    return replace(problem, uncovered=tuple(uncovered), notes=_notes(len(uncovered), problem.agents))


def _agents_of(frame: Any, resource_ids: Sequence[str] | None) -> TableRows:
    sheet = sheet_of(frame, "utilities")
    names = tuple(name for name in sheet.names if name.casefold() not in AGENT_COLUMNS)
    resources = names if resource_ids is None else tuple(map(str, resource_ids))
    return table_of(sheet, identifiers_or_numbers(sheet), resource_ids=resources)


def _types_of(
    frame: Any, resource_ids: Sequence[str] | None, representatives: Mapping[str, int] | None
) -> tuple[dict[str, FloatArray], Mapping[str, int], str]:
    if isinstance(frame, Types):
        return frame.by_region, representatives or frame.representatives, frame.origin
    if not is_frame(frame):
        raise InputError("Expected types as a frame, or as one matrix for each region, got something else.")
    sheet = sheet_of(frame, "types")
    names = tuple(name for name in sheet.names if name.casefold() not in TYPE_COLUMNS)
    found = types_of(sheet, resource_ids=names if resource_ids is None else resource_ids)
    return found.by_region, representatives or found.representatives, found.derived


def numbers_of(values: Any, what: str) -> FloatArray:
    """Return numbers as an array, or say where something else was found."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"In {what}: expected numbers, got something else.") from None


def _notes(uncovered: int, agents: int) -> tuple[str, ...]:
    if not uncovered:
        return ()
    return (
        f"{uncovered} of {agents} agents have utilities that are not among their region's possible types: methods that "
        "act as the nearest possible type (once, palma) cover them, others (published) do not.",
    )


def _possible(name: str, types: Mapping[str, ArrayLike], resources: int) -> FloatArray:
    if name not in types:
        raise InputError(f"Region {name!r} has agents but no possible types: give the utilities of who could be there.")
    rows = numbers_of(types[name], f"the types of region {name!r}")
    if rows.ndim != 2 or rows.shape[1] != resources or len(rows) == 0:
        raise InputError(f"Region {name!r}: expected types by {resources} resources, got shape {rows.shape}.")
    _check_range(rows, f"the types of region {name!r}")
    return rows


def _representative(chosen: Mapping[str, int], name: str, rows: FloatArray) -> int:
    row = chosen.get(name, 0)
    if not 0 <= row < len(rows):
        raise InputError(f"Region {name!r}: expected a representative among its {len(rows)} types, got row {row}.")
    return int(row)


def _check_range(table: FloatArray, what: str) -> None:
    wrong = np.argwhere(~((table > 0) & (table <= 1)))
    if len(wrong):
        row, column = wrong[0]
        raise InputError(
            f"In {what}, row {row}, column {column}: expected a utility in (0, 1], found something else; scale it."
        )


def _not_among(matrix: FloatArray, numbers: IntArray, possible: tuple[FloatArray, ...]) -> list[int]:
    known = [{row.tobytes() for row in rows} for rows in possible]
    return [n for n, row in enumerate(matrix) if row.tobytes() not in known[numbers[n]]]

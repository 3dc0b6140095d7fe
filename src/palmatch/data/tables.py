"""Utilities that a user has worked out elsewhere, read as tables with one column a resource and checked.

One table says what each agent wants, the other what each possible type of a region would want. Where the
numbers come from is the user's business; here they only have to be complete and in (0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from palmatch.data.columns import (
    epsilons,
    filled_runs,
    filled_texts,
    find_column,
    identifiers,
    marks,
    need_column,
    numbers,
    refuse,
    run_starts,
    texts,
    unit_counts,
    with_rows,
)
from palmatch.data.files import FilePath, Sheet, listed, read_sheet
from palmatch.data.scores import UNLISTED, Range, as_utility, known_places, sparse_rows
from palmatch.errors import InputError

# What a table of agents may have besides a column for each resource.
AGENT_COLUMNS = ("id", "region", "epsilon", "demand")
TYPE_COLUMNS = ("region", "representative", "source")

UTILITY = "a utility above 0 and at most 1"


@dataclass(frozen=True, slots=True)
class Table:
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
    """Rows of utilities of which most are the same: what the sparse `rows` do not store is worth `rest`."""

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


def read_table(path: FilePath, *, resource_ids: Sequence[str]) -> Table:
    """Read `id`, `region`, the optional `epsilon`, and a utility for every resource."""
    sheet = read_sheet(path)
    return table_of(sheet, identifiers(sheet), resource_ids=resource_ids)


def table_of(sheet: Sheet, ids: tuple[str, ...], *, resource_ids: Sequence[str]) -> Table:
    """Check the columns of a file or frame and return the table."""
    region = need_column(sheet, "region")
    return Table(
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


def check_regions(agents: Table, types: Types) -> None:
    """Refuse agents whose region has no types, since nothing is known about what their neighbours want."""
    known = set(types.regions)
    lost = [row for row, region in enumerate(agents.regions) if region not in known]
    if lost:
        absent = list(dict.fromkeys(agents.regions[row] for row in lost))
        raise InputError(
            f"{agents.source}: the agent {agents.ids[lost[0]]!r} is in a region without types, "
            f"{types.source} having none for {listed(absent)}; add a row for each of these regions there."
        )

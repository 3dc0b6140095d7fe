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
from numpy.typing import ArrayLike

from palmatch.capacities import given_or
from palmatch.data.columns import identifiers_or_numbers
from palmatch.data.files import is_frame, library_of, sheet_of
from palmatch.data.tables import AGENT_COLUMNS, TYPE_COLUMNS, Types, table_of, types_of
from palmatch.data.tables import Table as Rows
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray, Problem, Region, for_all_agents, make_problem


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
        `palmatch.data.tables.read_table` returns.
    regions:
        The public region of each agent; not needed with a frame.
    types:
        For each region a (T, R) matrix: the utilities of every possible agent; or a frame with a column `region`, one
        column a resource (and `representative`, 1 for the row that stands for its region), or what
        `palmatch.data.tables.read_types` returns. An agent whose own row is not among its region's types is named in
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
    if isinstance(utilities, Rows) or is_frame(utilities):
        told = utilities if isinstance(utilities, Rows) else _agents_of(utilities, resource_ids)
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


def _agents_of(frame: Any, resource_ids: Sequence[str] | None) -> Rows:
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

"""Utilities that come from elsewhere: a matrix, a region for every agent, and what each region's people might want.

This domain knows nothing about what the numbers mean; it checks that they make a problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray, Problem, Region, for_everybody, make_problem


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
    utilities: ArrayLike,
    regions: Sequence[str],
    types: Mapping[str, ArrayLike],
    *,
    representatives: Mapping[str, int] | None = None,
    agent_ids: Sequence[str] | None = None,
    resource_ids: Sequence[str] | None = None,
    interest: int | None = None,
    epsilon: ArrayLike | None = None,
) -> Problem:
    """Return a problem from a utility matrix.

    Parameters
    ----------
    utilities:
        (N, R) in (0, 1]: what each agent gets from each resource.
    regions:
        The public region of each agent.
    types:
        For each region a (T, R) matrix: the utilities of every possible agent. An agent whose own row is not among its
        region's types is named in `Problem.uncovered`: methods that act as the nearest possible type cover it, others
        do not.
    representatives:
        Which row of `types` stands for each region; the first one unless given.

    Examples
    --------
    >>> import palmatch as pm
    >>> could_be = {"north": [[0.9, 0.4], [0.5, 0.6]]}
    >>> pm.table.problem([[0.9, 0.4], [0.5, 0.6]], ["north", "north"], could_be).agents
    2
    """
    matrix = np.asarray(utilities, dtype=np.float64)
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
    strangers = _not_among(matrix, numbers.astype(np.int64), possible)
    return make_problem(
        domain,
        np.column_stack((numbers, matrix)),
        agent_ids=agent_ids,
        resource_ids=tuple(str(n) for n in range(matrix.shape[1])) if resource_ids is None else tuple(resource_ids),
        interest=interest,
        epsilon=for_everybody(epsilon, len(matrix)),
        uncovered=strangers,
        notes=_notes(len(strangers), len(matrix)),
    )


def _notes(strangers: int, agents: int) -> tuple[str, ...]:
    if not strangers:
        return ()
    return (
        f"{strangers} of {agents} agents have utilities that are not among their region's possible types: methods that "
        "act as the nearest possible type (once, palma) cover them, others (published) do not.",
    )


def _possible(name: str, types: Mapping[str, ArrayLike], resources: int) -> FloatArray:
    if name not in types:
        raise InputError(f"Region {name!r} has agents but no possible types: give the utilities of who could be there.")
    rows = np.asarray(types[name], dtype=np.float64)
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

"""Two files become a problem, by the domain's rules; nothing of a user's file is guessed or dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from palmatch.cli.options import DomainName
from palmatch.data.cells import read_ids
from palmatch.data.labels import check_same_areas, read_labels
from palmatch.data.points import check_not_swapped, read_points
from palmatch.data.tables import check_regions, read_table, read_types
from palmatch.domains import mobility, papers, table
from palmatch.errors import InputError
from palmatch.problem import Problem


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files that were read and checked. `problem(size, seed)` is their problem.

    `size` is the edge of the squares (mobility) or the number of areas (papers) and means nothing to a table; `seed`
    draws primary areas where the files name none, and `draws` says whether there is anything to draw.
    """

    problem: Callable[[float, int], Problem]
    draws: bool
    ignored: tuple[str, ...] = ()


def read_inputs(
    agents: Path,
    resources: Path,
    domain: DomainName,
    *,
    types: Path | None = None,
    interest: int | None = None,
    alpha: float = 4000.0,
    spacing: float = 100.0,
    origin: tuple[float, float] = mobility.ORIGIN,
) -> Inputs:
    """Read both files."""
    if types is not None and domain is not DomainName.table:
        raise InputError("--types goes with --domain table.")
    if domain is DomainName.papers:
        return _papers(agents, resources, interest)
    if domain is DomainName.table:
        return _table(agents, resources, types, interest)
    people, cars = read_points(agents, role="agents"), read_points(resources, role="resources")
    check_not_swapped(people, cars)
    return Inputs(
        problem=lambda edge, _seed: mobility.problem(
            people, cars, edge=edge, alpha=alpha, spacing=spacing, interest=interest, origin=origin
        ),
        draws=False,
        ignored=people.ignored,
    )


def _papers(agents: Path, resources: Path, interest: int | None) -> Inputs:
    reviewers = read_labels(agents, role="agents")
    submitted = check_same_areas(reviewers, read_labels(resources, role="resources"))

    def problem(areas: float, seed: int) -> Problem:
        return papers.problem(
            reviewers.marks,
            submitted.marks,
            secondary=int(areas) - 1,
            seed=seed,
            interest=interest,
            epsilon=reviewers.epsilon,
            areas=reviewers.areas,
            reviewer_ids=reviewers.ids,
            paper_ids=submitted.ids,
            reviewer_primary=reviewers.primary,
            paper_primary=submitted.primary,
        )

    return Inputs(problem, draws=reviewers.primary is None or submitted.primary is None)


def _table(agents: Path, resources: Path, types: Path | None, interest: int | None) -> Inputs:
    if types is None:
        raise InputError("--domain table needs --types FILE: what everybody who could be in a region might want.")
    ids = read_ids(resources)
    people, possible = read_table(agents, resource_ids=ids), read_types(types, resource_ids=ids)
    check_regions(people, possible)
    names = np.array(possible.regions)
    rows = {name: np.flatnonzero(names == name) for name in sorted(set(possible.regions))}

    def problem(_size: float, _seed: int) -> Problem:
        return table.problem(
            people.utilities,
            people.regions,
            {name: possible.utilities[chosen] for name, chosen in rows.items()},
            representatives={
                name: int(np.flatnonzero(possible.representative[chosen])[0]) for name, chosen in rows.items()
            },
            agent_ids=people.ids,
            resource_ids=ids,
            interest=interest,
            epsilon=people.epsilon,
        )

    return Inputs(problem, draws=False)

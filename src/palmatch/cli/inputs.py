"""Two files become a problem, by the domain's rules; nothing of a user's file is guessed or dropped."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import NamedTuple

import numpy as np

from palmatch.cli.options import ProblemOptions, place
from palmatch.cli.show import announce_compiling
from palmatch.data.cells import identifiers, read_conflicts, unit_counts
from palmatch.data.files import read_sheet
from palmatch.data.labels import check_same_areas, need_primary, read_labels
from palmatch.data.points import check_not_swapped, read_points
from palmatch.data.tables import check_regions, read_table, read_types
from palmatch.domains import mobility, papers, plugin, table
from palmatch.errors import InputError
from palmatch.problem import Problem
from palmatch.seats import given_or

# Utilities of possible reviewers beyond this do not fit into a usual machine, together with what is made of them.
_MOST_BYTES = 16e9


class _Limits(NamedTuple):
    """Capacity and demand where the files say nothing, and excluded pairs."""

    capacity: int | None
    demand: int | None
    conflicts: list[tuple[str, str]] | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files that were read and checked. `problem(size, seed)` is their problem.

    `size` is the edge of the squares (mobility) or the number of areas (papers) and means nothing to a table; `seed`
    draws primary areas where the files name none (secretly if it is None), and `draws` says whether there is anything
    to draw.
    """

    problem: Callable[[float, int | None], Problem]
    draws: bool
    ignored: tuple[str, ...] = ()


def inputs_of(agents: Path, resources: Path, chosen: ProblemOptions) -> Inputs:
    """Read both files, and that of conflicts, as the options say."""
    announce_compiling()
    _check_options(agents, resources, chosen)
    excluded = None if chosen.conflicts is None else read_conflicts(chosen.conflicts)
    limits = _Limits(chosen.capacity, chosen.demand, excluded)
    reader = {"mobility": _mobility, "papers": _papers, "table": _table}
    return reader.get(chosen.domain, _plugin)(agents, resources, chosen, limits)


def _check_options(agents: Path, resources: Path, chosen: ProblemOptions) -> None:
    """Refuse options that do not go together."""
    if [str(file) for file in (agents, resources, chosen.types, chosen.conflicts)].count("-") > 1:
        raise InputError("Only one file can be -, the standard input; give the others by name.")
    if chosen.types is not None and chosen.domain != "table":
        raise InputError("--types goes with --domain table.")
    if chosen.draw_primary and chosen.domain != "papers":
        raise InputError("--draw-primary goes with --domain papers.")
    if chosen.set and chosen.domain in plugin.BUILT_IN:
        raise InputError(f"--set goes with a domain of your own: {chosen.domain} has options for its settings.")


def _mobility(agents: Path, resources: Path, chosen: ProblemOptions, limits: _Limits) -> Inputs:
    requests, vehicles = read_points(agents, role="agents"), read_points(resources, role="resources")
    check_not_swapped(requests, vehicles)

    def problem(edge: float, _seed: int | None) -> Problem:
        return check_fits(
            mobility.problem(
                requests,
                vehicles,
                edge=edge,
                alpha=chosen.alpha,
                spacing=chosen.spacing,
                interest=chosen.interest,
                origin=place(chosen.origin),
                **limits._asdict(),
            )
        )

    return Inputs(problem, draws=False, ignored=requests.ignored)


def _plugin(agents: Path, resources: Path, chosen: ProblemOptions, limits: _Limits) -> Inputs:
    plugin.find_domain(chosen.domain)
    sheets, settings = (read_sheet(agents), read_sheet(resources)), dict(map(_setting, chosen.set or ()))

    def problem(_size: float, _seed: int | None) -> Problem:
        return plugin.problem(chosen.domain, *sheets, settings=settings, interest=chosen.interest, **limits._asdict())

    return Inputs(problem, draws=False)


def _setting(text: str) -> tuple[str, float | str]:
    """Return the name and the value of --set NAME=VALUE, a number where it is one."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise InputError(f"Expected NAME=VALUE, got --set {text!r}.")
    try:
        return name.strip(), float(value)
    except ValueError:
        return name.strip(), value.strip()


def check_fits(problem: Problem) -> Problem:
    """Refuse a city whose public tables would not fit into this machine's memory, before anything is computed."""
    city, squares = problem.domain, problem.regions
    if problem.interest is not None or not isinstance(city, mobility.City):
        return problem
    # Without a bound on the interest every possible type of every region has a utility for every resource.
    edges = [square.edge for square in squares if isinstance(square, mobility.Square)]
    types = sum(len(city.axis(edge)) ** 2 for edge in edges)
    takes, memory = 8.0 * problem.resources * (types + problem.agents), _memory()
    if takes > memory:
        raise InputError(
            f"{problem.agents:,} agents and {problem.resources:,} resources without a bound on the interest take about "
            f"{takes / 1e9:,.0f} GB for the utilities of all possible agents, and this machine has {memory / 1e9:,.0f} "
            "GB: add --interest 20, so that only each one's 20 best resources are looked at."
        )
    return problem


def _memory() -> float:
    """Return the bytes of memory of this machine, or a usual number where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return _MOST_BYTES


def _papers(agents: Path, resources: Path, chosen: ProblemOptions, limits: _Limits) -> Inputs:
    reviewers = read_labels(agents, role="agents")
    submitted = check_same_areas(reviewers, read_labels(resources, role="resources"))
    if not chosen.draw_primary:
        need_primary(reviewers)
        need_primary(submitted)

    def problem(areas: float, seed: int | None) -> Problem:
        check_areas(int(areas), named=len(reviewers.areas), agents=len(reviewers.ids), papers=len(submitted.ids))
        return papers.problem(
            reviewers.marks,
            submitted.marks,
            areas=int(areas),
            draw_primary=chosen.draw_primary,
            seed=seed,
            interest=chosen.interest,
            epsilon=reviewers.epsilon,
            area_names=reviewers.areas,
            reviewer_ids=reviewers.ids,
            paper_ids=submitted.ids,
            reviewer_primary=reviewers.primary,
            paper_primary=submitted.primary,
            capacity=given_or(submitted.units, limits.capacity),
            demand=given_or(reviewers.units, limits.demand),
            conflicts=limits.conflicts,
        )

    return Inputs(problem, draws=reviewers.primary is None or submitted.primary is None)


def check_areas(areas: int, *, named: int, agents: int, papers: int) -> None:
    """Refuse an --areas that means nothing where so many areas are named, or that no machine has room for."""
    if not 1 <= areas <= named:
        raise InputError(f"Expected --areas from 1 to {named}, as many as there are, got --areas {areas}.")
    # An area that is somebody's primary one is a region: all sets of areas that its reviewers may have, and what each
    # paper is worth to each of them.
    row = 8 * papers * min(named, agents)
    most = max(count for count in range(1, areas + 1) if count == 1 or row * _types(count, named) <= _MOST_BYTES)
    if most < areas:
        types = _types(areas, named)
        raise InputError(
            f"With --areas {areas} of {named} a region has {types:,} possible reviewers, which takes up to "
            f"{row * types / 1e9:,.0f} GB for their utilities; choose at most {most}."
        )


def _types(areas: int, named: int) -> int:
    return sum(comb(named - 1, further) for further in range(areas))


def _table(agents: Path, resources: Path, chosen: ProblemOptions, limits: _Limits) -> Inputs:
    if chosen.types is None:
        raise InputError("--domain table needs --types FILE: the utilities of every possible agent of each region.")
    sheet = read_sheet(resources)
    ids, seats = identifiers(sheet), unit_counts(sheet, "capacity")
    people, possible = read_table(agents, resource_ids=ids), read_types(chosen.types, resource_ids=ids)
    check_regions(people, possible)
    names = np.array(possible.regions)
    rows = {name: np.flatnonzero(names == name) for name in sorted(set(possible.regions))}

    def problem(_size: float, _seed: int | None) -> Problem:
        return table.problem(
            people.utilities,
            people.regions,
            {name: possible.utilities[chosen] for name, chosen in rows.items()},
            representatives={
                name: int(np.flatnonzero(possible.representative[chosen])[0]) for name, chosen in rows.items()
            },
            agent_ids=people.ids,
            resource_ids=ids,
            interest=chosen.interest,
            epsilon=people.epsilon,
            capacity=given_or(seats, limits.capacity),
            demand=given_or(people.demand, limits.demand),
            conflicts=limits.conflicts,
        )

    return Inputs(problem, draws=False)

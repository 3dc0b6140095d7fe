"""Two files become a problem, by the domain's rules; nothing of a user's file is guessed or dropped."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from palmatch.cli.options import ProblemOptions, numbers, place, score_range
from palmatch.cli.show import announce_compiling
from palmatch.data.cells import identifiers, unit_counts
from palmatch.data.files import read_sheet
from palmatch.data.labels import check_same_areas, need_primary, read_labels
from palmatch.data.points import check_not_swapped, read_points
from palmatch.data.scores import Pairs, is_score_file, read_max_papers, read_pairs, read_regions, read_scores
from palmatch.data.tables import Types, check_regions, read_table, read_types
from palmatch.domains import mobility, papers, plugin, scores, table
from palmatch.errors import InputError
from palmatch.problem import Problem
from palmatch.report.style import counted
from palmatch.seats import Seats, given_or
from palmatch.studies.archive import digest

# Utilities of possible reviewers beyond this do not fit into a usual machine, together with what is made of them.
_MOST_BYTES = 16e9


class _Limits(NamedTuple):
    """Capacity and demand where the files say nothing, and excluded pairs."""

    capacity: int | None
    demand: int | None
    conflicts: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files that were read and checked. `problem(size, seed)` is their problem.

    `size` is the edge of the squares (mobility) or the number of areas (papers) and means nothing to a table; `seed`
    draws primary areas where the files name none (secretly if it is None), and `draws` says whether there is anything
    to draw. `fixed` are pairs (agent, resource) that are matched beforehand: the problem has no room for them any more.
    """

    problem: Callable[[float, int | None], Problem]
    draws: bool
    ignored: tuple[str, ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()


def inputs_of(agents: Path, resources: Path, chosen: ProblemOptions) -> Inputs:
    """Read both files, and those that the options name."""
    announce_compiling()
    scored = chosen.domain == "table" and is_score_file(agents)
    _check_options(agents, resources, chosen, scored=scored)
    pairs = Pairs(()) if chosen.conflicts is None else read_pairs(chosen.conflicts)
    # What is matched beforehand is no longer to be had, which is what a conflict says.
    limits = _Limits(chosen.capacity, chosen.demand, [*pairs.conflicts, *pairs.fixed])
    readers = {"mobility": _mobility, "papers": _papers, "table": _scores if scored else _table}
    found = readers.get(chosen.domain, _plugin)(agents, resources, chosen, limits)
    if not pairs.fixed:
        return found
    return replace(found, problem=lambda *size: with_fixed(found.problem(*size), pairs), fixed=pairs.fixed)


def _check_options(agents: Path, resources: Path, chosen: ProblemOptions, *, scored: bool) -> None:
    """Refuse options that do not go together."""
    if [str(file) for file in (agents, resources, *chosen.files)].count("-") > 1:
        raise InputError("Only one file can be -, the standard input; give the others by name.")
    if chosen.types is not None and chosen.domain != "table":
        raise InputError("--types goes with --domain table.")
    if chosen.draw_primary and chosen.domain != "papers":
        raise InputError("--draw-primary goes with --domain papers.")
    if chosen.set and chosen.domain in plugin.BUILT_IN:
        raise InputError(f"--set goes with a domain of your own: {chosen.domain} has options for its settings.")
    if not scored and any((chosen.regions, chosen.scores, chosen.weights, chosen.max_papers)):
        raise InputError(
            "--regions, --scores, --weights and --max-papers go with --domain table and a file of scores "
            "`paper,user,score`."
        )


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


def with_fixed(problem: Problem, pairs: Pairs) -> Problem:
    """Return a problem without the room that pairs take which are matched beforehand."""
    both = next((pair for pair in pairs.fixed if pair in set(pairs.conflicts)), None)
    if both is not None:
        raise InputError(f"The constraints on {both[1]!r} and {both[0]!r} are both -1 and 1; keep one of them.")
    left = []
    for side, (ids, room, verb) in enumerate(
        ((problem.agent_ids, problem.demand, "takes"), (problem.resource_ids, problem.capacity, "has room for"))
    ):
        taken = Counter(pair[side] for pair in set(pairs.fixed))
        left.append(room - np.array([taken[name] for name in ids]))
        if (left[-1] < 0).any():
            worst = int(np.argmin(left[-1]))
            raise InputError(
                f"Constraints of 1 give {taken[ids[worst]]:,} to {ids[worst]!r}, which {verb} {room[worst]:,}; remove "
                "some, or raise its limit."
            )
    note = (
        f"Constraints of 1 match {counted(len(set(pairs.fixed)), 'pair')} beforehand: in the output, taking up room, "
        "and not part of the welfare."
    )
    seats = Seats(left[1], left[0], problem.conflicts)
    return replace(problem, seats=seats, notes=(*problem.notes, note))


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
    ids, seats, possible = _papers_and_types(resources, chosen.types)
    people = read_table(agents, resource_ids=ids)
    check_regions(people, possible)

    def problem(_size: float, _seed: int | None) -> Problem:
        return table.problem(
            people.utilities,
            people.regions,
            possible.by_region,
            representatives=possible.representatives,
            agent_ids=people.ids,
            resource_ids=ids,
            interest=chosen.interest,
            epsilon=people.epsilon,
            capacity=given_or(seats, limits.capacity),
            demand=given_or(people.demand, limits.demand),
            conflicts=limits.conflicts,
            source=possible.origin,
        )

    return Inputs(problem, draws=False)


def _papers_and_types(
    resources: Path, types: Path | None, bounds: tuple[float, float] = (0.0, 1.0)
) -> tuple[tuple[str, ...], NDArray[np.float64] | None, Types]:
    """Return the ids and capacities of the resources, and the possible types of each region."""
    if types is None:
        raise InputError(
            "--domain table needs --types FILE: the utilities of every possible agent of each region. `palmatch "
            "types` derives them from public records."
        )
    sheet = read_sheet(resources)
    ids = identifiers(sheet)
    return ids, unit_counts(sheet, "capacity"), read_types(types, resource_ids=ids, bounds=bounds)


def _scores(agents: Path, resources: Path, chosen: ProblemOptions, limits: _Limits) -> Inputs:
    """Read scores as openreview-matcher and perturbed-maximization keep them."""
    bounds = score_range(chosen.score_range)
    ids, seats, possible = _papers_and_types(resources, chosen.types, bounds)
    files = [agents, *(chosen.scores or [])]
    for file in files:
        if digest(file) in possible.derived:
            raise InputError(
                f"{chosen.types} was derived from {file}, whose scores are private: possible types have to come from "
                "public records; derive them from others."
            )
    weights = None if chosen.weights is None else numbers(chosen.weights, "--weights")
    told = read_scores(files, weights=weights, bounds=bounds, papers=ids, listed_in=str(resources))
    regions = None if chosen.regions is None else read_regions(chosen.regions)
    most = {} if chosen.max_papers is None else read_max_papers(chosen.max_papers)
    absent = sorted(set(most) - set(told.users))
    notes = [f"{len(absent):,} users of {chosen.max_papers} have no scores, and are left out."] if absent else []
    demand = np.array([most.get(user, np.nan) for user in told.users], dtype=np.float64)

    def problem(_size: float, _seed: int | None) -> Problem:
        return scores.problem(
            told,
            possible,
            regions,
            bounds=bounds,
            interest=chosen.interest,
            capacity=given_or(seats, limits.capacity),
            demand=given_or(demand, limits.demand),
            conflicts=limits.conflicts,
            notes=notes,
        )

    return Inputs(problem, draws=False)

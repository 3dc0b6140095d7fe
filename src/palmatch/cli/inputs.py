"""Two files become a problem, by the domain's rules; nothing of a user's file is guessed or dropped."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from palmatch.cli.options import ProblemOptions, numbers, place, score_range
from palmatch.cli.show import announce_compiling
from palmatch.data import city
from palmatch.data.conference import conference
from palmatch.data.files import identifiers, listed, read_sheet, unit_counts, unused
from palmatch.data.scores import (
    Pairs,
    is_score_file,
    read_max_papers,
    read_pairs,
    read_regions,
    read_scores,
    with_users,
)
from palmatch.domains import mobility, papers, plugin, scores, table
from palmatch.domains import pairs as partners
from palmatch.domains.mobility import read_points, read_trips
from palmatch.domains.papers import Labels, check_same_areas, need_primary, read_labels, types_of_region
from palmatch.domains.table import ListedRows, TableRows, Types, check_regions, read_table, read_types
from palmatch.errors import InputError
from palmatch.problem import Capacities, Problem, given_or
from palmatch.report.phrases import counted
from palmatch.studies.archive import digest, scores_digest
from palmatch.threads import both

# Metres between the possible agents of a square unless given.
_SPACING = 100.0


class _Limits(NamedTuple):
    """Capacity and demand where the files say nothing, and excluded pairs."""

    capacity: Any = None
    demand: Any = None
    conflicts: Sequence[tuple[str, str]] = ()


_NO_LIMITS = _Limits()


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files that were read and checked. `problem(size, seed)` is their problem.

    `size` is the edge of the squares (mobility) or the number of areas (papers) and means nothing to a table; `seed`
    draws primary areas where the files name none (secretly if it is None), and `draws` says whether there is anything
    to draw.
    """

    problem: Callable[[float, int | None], Problem]
    draws: bool = False

    def problems(self, size: float, seed: int | None) -> Problem | Callable[[int | None], Problem]:
        """Return the problem of all runs, or, where something is drawn, a function from a run's seed to its own."""
        return (lambda run: self.problem(size, run)) if self.draws else self.problem(size, seed)


def inputs_of(agents: Path, resources: Path | None, chosen: ProblemOptions) -> Inputs:
    """Read both files, and those that the options name; with --pairs there is one file of agents."""
    announce_compiling()
    found = (
        _partners(agents, resources, chosen) if chosen.pairs or resources is None else _sides(agents, resources, chosen)
    )
    return replace(found, problem=lambda *size: _check_memory(found.problem(*size)))


def _check_memory(problem: Problem) -> Problem:
    if problem.interest is None:
        refuse_beyond_memory(problem.agents, problem.resources, "add --interest 20, or match fewer at a time")
    return problem


def refuse_beyond_memory(agents: int, resources: int, remedy: str) -> None:
    """Refuse to hold a utility, of 8 bytes, for each of so many pairs where less memory is free."""
    takes, free = 8 * agents * resources, _free_memory()
    if takes > free:
        raise InputError(
            f"{agents:,} agents and {resources:,} resources take {takes / 1e9:,.0f} GB for their utilities, and this "
            f"machine has {free / 1e9:,.0f} GB free: {remedy}."
        )


def _free_memory() -> float:
    """Return the bytes that are free, or all that there are where the system tells no more."""
    try:
        told = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        told = None
    return 1024.0 * int(told[1]) if told else float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def check_areas(areas: int, *, named: int, papers: int) -> None:
    """Refuse an --areas that means nothing where so many areas are named, or whose possible reviewers are too many."""
    if not 1 <= areas <= named:
        raise InputError(f"Expected --areas from 1 to {named}, as many as there are, got --areas {areas}.")
    refuse_beyond_memory(types_of_region(areas, named), papers, f"choose --areas below {areas}")


def _sides(agents: Path, resources: Path, chosen: ProblemOptions) -> Inputs:
    """Read the files of agents and resources."""
    scored = chosen.domain == "table" and is_score_file(agents)
    _check_options(agents, resources, chosen, scored=scored)
    pairs = Pairs(()) if chosen.conflicts is None else read_pairs(chosen.conflicts)
    # What is matched beforehand is no longer to be had, which is what a conflict says.
    limits = _Limits(chosen.capacity, chosen.demand, [*pairs.conflicts, *pairs.fixed])
    readers = {"mobility": _mobility, "papers": _papers, "table": _scores if scored else _table}
    found = readers.get(chosen.domain, _plugin)(agents, resources, chosen, limits)
    if not pairs.fixed:
        return found
    return replace(found, problem=lambda *size: with_assigned(found.problem(*size), pairs))


def _partners(agents: Path, resources: Path | None, chosen: ProblemOptions) -> Inputs:
    """Read the one file of agents that are matched with each other."""
    if not chosen.pairs:
        raise InputError(
            "The file of the resources is missing: give it after that of the agents, or add --pairs to match agents "
            "with each other."
        )
    if resources is not None:
        raise InputError("--pairs matches the agents of one file with each other: leave the second file out.")
    if chosen.domain not in ("mobility", "table"):
        raise InputError("--pairs goes with --domain mobility (shared rides) and --domain table.")
    if chosen.capacity is not None or chosen.demand is not None:
        raise InputError("--capacity and --demand do not go with --pairs: every agent has one partner.")
    scored = chosen.domain == "table" and is_score_file(agents)
    _check_options(agents, resources, chosen, scored=scored)
    if scored:
        raise InputError(f"{agents} holds scores of papers, expected a column for each agent: leave --pairs out.")
    pairs = Pairs(()) if chosen.conflicts is None else read_pairs(chosen.conflicts)
    if pairs.fixed:
        raise InputError("Constraints of 1 do not go with --pairs: leave such agents out of the file.")
    return (_rides if chosen.domain == "mobility" else _mutual)(agents, chosen, pairs.conflicts)


def _check_options(agents: Path, resources: Path | None, chosen: ProblemOptions, *, scored: bool) -> None:
    """Refuse options that do not go together."""
    if [str(file) for file in (agents, resources, *chosen.files)].count("-") > 1:
        raise InputError("Only one file can be -, the standard input; give the others by name.")
    if chosen.types is not None and chosen.domain != "table":
        raise InputError("--types goes with --domain table.")
    if chosen.likely is not None and (chosen.domain != "mobility" or chosen.pairs):
        raise InputError("--likely goes with --domain mobility, without --pairs: it is a file of places.")
    if chosen.draw_primary and chosen.domain != "papers":
        raise InputError("--draw-primary goes with --domain papers.")
    if chosen.set and chosen.domain in plugin.BUILT_IN:
        raise InputError(f"--set goes with a domain of your own: {chosen.domain} has options for its settings.")
    if not scored and any((chosen.regions, chosen.scores, chosen.weights, chosen.max_papers)):
        if chosen.domain == "table":
            raise InputError(
                f"{agents}, line 1: found no row of scores, expected three cells paper,user,score with a number as the "
                "score (or a header with these names), which --regions, --scores, --weights and --max-papers go with; "
                "correct the line."
            )
        raise InputError(
            "--regions, --scores, --weights and --max-papers go with --domain table and a file of scores "
            "`paper,user,score`."
        )


def given_or_synthetic(agents: Path | None, resources: Path | None, chosen: ProblemOptions, *, seed: int) -> Inputs:
    """Return what the files hold; without files the synthetic city at eight in the morning, or the conference."""
    if agents is not None:
        return inputs_of(agents, resources, chosen)
    if chosen.domain not in ("mobility", "papers") or chosen.types is not None:
        table = chosen.domain == "table" or chosen.types is not None
        needs = "table needs --types FILE," if table else f"{chosen.domain} needs"
        raise InputError(f"--domain {needs} AGENTS and RESOURCES: only a city and a conference can be synthetic.")
    if chosen.domain == "mobility":
        batch = city.batch(8.0, seed=seed)
        return _on_map(batch.requests, batch.vehicles, chosen)
    return _of_areas(*papers.labels_of_conference(conference(seed=seed)), replace(chosen, draw_primary=True))


def _mobility(agents: Path, resources: Path, chosen: ProblemOptions, limits: _Limits) -> Inputs:
    requests, vehicles = both(
        lambda: read_points(agents, role="agents"), lambda: read_points(resources, role="resources")
    )
    return _on_map(requests, vehicles, chosen, limits)


def _on_map(
    requests: mobility.Places, vehicles: mobility.Places, chosen: ProblemOptions, limits: _Limits = _NO_LIMITS
) -> Inputs:
    likely = None if chosen.likely is None else read_points(chosen.likely, role="resources")

    def problem(edge: float, _seed: int | None) -> Problem:
        return mobility.problem(
            requests,
            vehicles,
            edge=edge,
            alpha=chosen.alpha,
            spacing=_SPACING if chosen.spacing is None else chosen.spacing,
            interest=chosen.interest,
            origin=place(chosen.origin),
            likely=likely,
            **limits._asdict(),
        )

    return Inputs(problem)


def _rides(agents: Path, chosen: ProblemOptions, excluded: Sequence[tuple[str, str]]) -> Inputs:
    trips = read_trips(agents)

    def problem(edge: float, _seed: int | None) -> Problem:
        return partners.rides(
            trips,
            edge=edge,
            spacing=chosen.spacing,
            interest=chosen.interest,
            origin=place(chosen.origin),
            conflicts=excluded,
        )

    return Inputs(problem)


def _mutual(agents: Path, chosen: ProblemOptions, excluded: Sequence[tuple[str, str]]) -> Inputs:
    # The agents are what there is a column for.
    offered, possible = _resources_and_types(agents, chosen.types)
    rows = _rows_of(agents, offered.ids, possible)
    return Inputs(lambda *_: partners.table(rows, types=possible, interest=chosen.interest, conflicts=excluded))


def _plugin(agents: Path, resources: Path, chosen: ProblemOptions, limits: _Limits) -> Inputs:
    plugin.find_domain(chosen.domain)
    sheets, settings = (read_sheet(agents), read_sheet(resources)), dict(map(_setting, chosen.set or ()))

    def problem(_size: float, _seed: int | None) -> Problem:
        return plugin.problem(chosen.domain, *sheets, settings=settings, interest=chosen.interest, **limits._asdict())

    return Inputs(problem)


def _setting(text: str) -> tuple[str, float | str]:
    """Return the name and the value of --set NAME=VALUE, a number where it is one."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise InputError(f"Expected NAME=VALUE, got --set {text!r}.")
    try:
        return name.strip(), float(value)
    except ValueError:
        return name.strip(), value.strip()


def with_assigned(problem: Problem, pairs: Pairs) -> Problem:
    """Return a problem without the room that pairs take which are matched beforehand."""
    excluded, agents = set(pairs.conflicts), set(problem.agent_ids)
    both = next((pair for pair in pairs.fixed if pair in excluded), None)
    if both is not None:
        raise InputError(f"The constraints on {both[1]!r} and {both[0]!r} are both -1 and 1; keep one of them.")
    absent = next((pair for pair in pairs.fixed if pair[0] not in agents), None)
    if absent is not None:
        raise InputError(
            f"A constraint of 1 gives {absent[1]!r} to {absent[0]!r}, who does not take part: remove it, or add a line "
            "of --max-papers."
        )
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
        f"The file of conflicts assigns {counted(len(set(pairs.fixed)), 'pair')} (constraint 1): in the output, taking "
        "up room, and not part of the welfare."
    )
    places = [{name: place for place, name in enumerate(ids)} for ids in (problem.agent_ids, problem.resource_ids)]
    rows = sorted((places[0][agent], places[1][resource]) for agent, resource in set(pairs.fixed))
    seats = Capacities(left[1], left[0], problem.conflicts, assigned=np.array(rows, dtype=np.int64).reshape(-1, 2))
    return replace(problem, capacities=seats, public_notes=(*problem.public_notes, note))


def _papers(agents: Path, resources: Path, chosen: ProblemOptions, limits: _Limits) -> Inputs:
    reviewers = read_labels(agents, role="agents")
    submitted = check_same_areas(reviewers, read_labels(resources, role="resources"))
    for labels in () if chosen.draw_primary else (reviewers, submitted):
        need_primary(labels)
    return _of_areas(reviewers, submitted, chosen, limits)


def _of_areas(reviewers: Labels, submitted: Labels, chosen: ProblemOptions, limits: _Limits = _NO_LIMITS) -> Inputs:
    def problem(areas: float, seed: int | None) -> Problem:
        check_areas(int(areas), named=len(reviewers.areas), papers=len(submitted.marks))
        return papers.problem(
            reviewers,
            submitted,
            areas=int(areas),
            draw_primary=chosen.draw_primary,
            seed=seed,
            interest=chosen.interest,
            **limits._asdict(),
        )

    return Inputs(problem, draws=reviewers.primary is None or submitted.primary is None)


def _table(agents: Path, resources: Path, chosen: ProblemOptions, limits: _Limits) -> Inputs:
    offered, possible = _resources_and_types(resources, chosen.types)
    rows = _rows_of(agents, offered.ids, possible)
    own = limits._replace(capacity=given_or(offered.seats, limits.capacity))

    def problem(_size: float, _seed: int | None) -> Problem:
        found = table.problem(rows, types=possible, interest=chosen.interest, **own._asdict())
        return replace(found, public_notes=offered.notes)

    return Inputs(problem)


def _rows_of(agents: Path, ids: tuple[str, ...], possible: Types) -> TableRows:
    rows = read_table(agents, resource_ids=ids)
    check_regions(rows, possible)
    return rows


class _Offered(NamedTuple):
    """Ids and capacities of resources, and what a reader should know about their file."""

    ids: tuple[str, ...]
    seats: NDArray[np.float64] | None
    notes: tuple[str, ...]


def _resources_and_types(
    resources: Path, types: Path | None, bounds: tuple[float, float] = (0.0, 1.0)
) -> tuple[_Offered, Types]:
    """Return the resources, and the possible types of each region."""
    if types is None:
        raise InputError(
            "--domain table needs --types FILE: the utilities of every possible agent of each region. `palmatch "
            "types` derives them from public records."
        )
    sheet = read_sheet(resources)
    ids = identifiers(sheet)
    # Topics are for `palmatch types`, which reads the same file.
    notes = unused(sheet, "id", "capacity", "topic")
    possible = read_types(types, resource_ids=ids, bounds=bounds)
    if isinstance(possible.utilities, ListedRows):
        scores_of = np.bincount(possible.utilities.rows.indices, minlength=len(ids))
        if unknown := [ids[place] for place in np.flatnonzero(scores_of == 0)]:
            notes += (
                f"{types} has no score for {counted(len(unknown), 'paper')} of {resources} "
                f"({listed(unknown, limit=3)}): no report tells whom they suit.",
            )
    return _Offered(ids, unit_counts(sheet, "capacity"), notes), possible


def _refuse_own(found: str, known: set[str], types: Path | None, file: Path) -> None:
    """Refuse types that name the hash of a file of private scores, or of the scores in it, as their source."""
    if found in known:
        raise InputError(
            f"{types} was derived from {file}, or from the same scores, which are private: possible types have to come "
            "from public records; derive them from others."
        )


def _scores(agents: Path, resources: Path, chosen: ProblemOptions, limits: _Limits) -> Inputs:
    """Read scores as openreview-matcher and perturbed-maximization keep them."""
    bounds = score_range(chosen.score_range)
    offered, possible = _resources_and_types(resources, chosen.types, bounds)
    files = [agents, *(chosen.scores or [])]
    known = set(re.findall("[0-9a-f]{16}", possible.derived))
    for file in files if known else ():
        _refuse_own(digest(file), known, chosen.types, file)
    weights = None if chosen.weights is None else numbers(chosen.weights, "--weights")
    read = partial(read_scores, bounds=bounds, papers=offered.ids, listed_in=str(resources))
    told = read(files, weights=weights)
    for file in files if known else ():
        alone = told if len(files) == 1 else read([file])
        _refuse_own(scores_digest(alone), known, chosen.types, file)
    regions = None if chosen.regions is None else read_regions(chosen.regions)
    most = {} if chosen.max_papers is None else read_max_papers(chosen.max_papers)
    notes = []
    if silent := set(most).difference(told.users):
        # Leaving them out would tell that they have no scores.
        told = with_users(told, silent)
        notes.append(
            f"{counted(len(silent), 'user')} of {chosen.max_papers} without any score: taking part, with the score 0 "
            "for every paper."
        )
    excluded = limits.conflicts
    if absent := set(regions or ()).difference(told.users):
        notes.append(
            f"{counted(len(absent), 'user')} of {chosen.regions} without a score or a line of --max-papers: left out."
        )
        # Conflicts are kept for a whole committee, and exclude nothing where one of it does not take part.
        excluded = [pair for pair in excluded if pair[0] not in absent]
    demand = np.full(len(told.users), np.nan)
    if most:
        demand[:] = [most.get(user, np.nan) for user in told.users]

    def problem(_size: float, _seed: int | None) -> Problem:
        found = scores.problem(
            told,
            possible,
            regions,
            bounds=bounds,
            interest=chosen.interest,
            capacity=given_or(offered.seats, limits.capacity),
            demand=given_or(demand, limits.demand),
            conflicts=excluded,
            notes=notes,
        )
        return replace(found, public_notes=offered.notes)

    return Inputs(problem)

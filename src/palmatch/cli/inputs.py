"""Options and files become a problem, by the domain's rules; nothing of a user's file is guessed or dropped."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import typer

from palmatch.cli import options
from palmatch.cli.options import numbers, place, score_range
from palmatch.cli.show import announce_compiling, warn_privately
from palmatch.data import city
from palmatch.data.conference import conference
from palmatch.data.files import identifiers, listed, need_column, read_sheet, texts, unit_counts, unused
from palmatch.data.scores import (
    Pairs,
    is_score_file,
    read_max_papers,
    read_pairs,
    read_regions,
    read_scores,
    with_users,
)
from palmatch.domains import bids, mobility, papers, plugin, scores, table
from palmatch.domains import pairs as partners
from palmatch.domains.mobility import read_points, read_trips
from palmatch.domains.papers import check_same_areas, need_primary, read_labels, types_of_region
from palmatch.domains.reports import read_reports
from palmatch.domains.table import ListedRows, TableRows, Types, check_regions, read_table, read_types
from palmatch.domains.zones import Hexagons, Zones, read_roads, read_zones
from palmatch.errors import InputError
from palmatch.methods import Settings
from palmatch.palma.accountant import ACCOUNTANTS
from palmatch.problem import Capacities, Limit, Problem, Requirements, given_or, unit_capacities
from palmatch.report.words import counted
from palmatch.studies.archive import digest, scores_digest
from palmatch.threads import run_concurrently

# Accountants whose guarantee holds, as choices of an option.
Accountants = StrEnum("Accountants", list(ACCOUNTANTS))  # type: ignore[misc]  # known when it is run
_AUTO = Accountants("auto")


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """What is special about places.

    Attributes
    ----------
    edge:
        Edge of the square regions, in metres.
    alpha:
        Metres over which a resource loses 63 % of its worth.
    spacing:
        Metres between the possible agents of a region; 100 unless given, half of the edge for pairs of agents.
    origin:
        LAT,LON from which squares are counted; keep it from one matching to the next.
    likely:
        Public places near which agents are likely to be, such as stations, in the form of the resources; those of the
        resources unless given. Places in this file are taken as public: no guarantee covers them.
    reports:
        Published reports of earlier matchings (region, channel, report), from which it is learnt where agents are
        likely to be; costs no ε. A file with positions is refused.
    zones:
        Regions of your own in place of squares: polygons with a name each (GeoJSON).
    outside:
        A box for agents that are in no zone: LAT,LON,LAT,LON, south-west and north-east.
    h3:
        Cells of H3 of this resolution as regions (pip install 'palmatch[h3]').
    roads:
        Travel times in place of distances: a net of SUMO, or from, to, seconds, from_lat, from_lon, to_lat, to_lon.
    """

    PANEL: ClassVar = "Mobility"
    RARE: ClassVar[tuple[str, ...]] = ("alpha", "origin", "outside", "h3", "roads")
    edge: float = 1000.0
    alpha: float = 4000.0
    spacing: float | None = None
    origin: options.Origin = None
    likely: Path | None = None
    reports: Path | None = None
    zones: Path | None = None
    outside: str | None = None
    h3: int | None = None
    roads: Path | None = None


@dataclass(frozen=True, kw_only=True)
class PaperOptions:
    """What is special about reviewers and papers with areas.

    Attributes
    ----------
    areas:
        Most areas, the primary one included, of a possible reviewer.
    draw_primary:
        Draw primary areas that the files lack; adds ln k to ε.
    """

    PANEL: ClassVar = "Papers"
    RARE: ClassVar[tuple[str, ...]] = ("draw_primary",)
    areas: int = 3
    draw_primary: bool = False


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """What is special about scores of papers, in a table.

    Attributes
    ----------
    types:
        The possible types of each region: region and a utility for each resource; for all tables.
    regions:
        The public region of each reviewer: user, region.
    scores:
        Another file of scores, to be added; can be repeated.
    weights:
        Weights of all files of scores, with commas.
    max_papers:
        Most papers of each reviewer: user, max_papers.
    score_range:
        The smallest and largest score that there may be.
    public:
        Public affinities (paper, user, score): other scores are private bids; can be repeated.
    bid_levels:
        The bids of possible types; 0 and the highest unless given.
    bid_prior:
        How likely each level is for a paper of the highest affinity, as weights; 0.95 for a bid unless given.
    bid_papers:
        For how many papers of highest affinity types bid; 2 with two levels unless given.
    min_papers:
        Least papers of each reviewer who takes so many.
    min_reviewers:
        Least reviewers of each paper that takes so many.
    limits:
        Limits for each paper on columns of --reviewers, such as "senior>=1,country<=2": a column of 0 and 1 counts the
        1s, any other one each value. These and least numbers go with methods of the matcher `optimal`.
    reviewers:
        What is public about reviewers: user, and the columns that --limits names.
    """

    PANEL: ClassVar = "Tables and scores (--domain table)"
    RARE: ClassVar[tuple[str, ...]] = (
        *("regions", "scores", "weights", "max_papers", "score_range"),
        *("bid_levels", "bid_prior", "bid_papers", "min_papers", "min_reviewers", "limits", "reviewers"),
    )
    types: Path | None = None
    regions: Path | None = None
    scores: options.Files = None
    weights: str | None = None
    max_papers: Path | None = None
    score_range: str = "0,1"
    public: options.Files = None
    bid_levels: str | None = None
    bid_prior: str | None = None
    bid_papers: options.MaybePositive = None
    min_papers: options.MaybeNatural = None
    min_reviewers: options.MaybeNatural = None
    limits: str | None = None
    reviewers: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ProblemOptions(ScoreOptions, PaperOptions, MapOptions):
    """How two files become a problem: the options that all commands on files share.

    Attributes
    ----------
    domain:
        What the files hold: mobility, papers, table, an installed domain, or your own as module:Class.
    pairs:
        Match agents with each other: lat, lon, to_lat, to_lon (shared rides); a column each (table).
    set:
        A setting of your own domain; repeat it.
    interest:
        How many resources each possible type considers; all unless given. With it fewer units may be filled than the
        optimum fills.
    capacity:
        Agents that a resource takes where its file lacks `capacity`; 1 unless given.
    demand:
        Resources that an agent wants where its file lacks `demand`; 1 unless given.
    conflicts:
        Pairs never to be matched: agent, resource; or constraints `paper,user,-1|0|1`, 1 for a pair that is matched
        beforehand.
    """

    PANEL: ClassVar = "Common"
    RARE: ClassVar[tuple[str, ...]] = ("set",)
    domain: Annotated[
        str, typer.Option(metavar="NAME", autocompletion=lambda: [*plugin.BUILT_IN, *plugin.plugin_domains()])
    ] = "mobility"
    pairs: bool = False
    set: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE")] = None
    interest: int | None = None
    capacity: options.MaybeNatural = None
    demand: options.MaybeNatural = None
    conflicts: Path | None = None

    @property
    def files(self) -> list[Path | None]:
        """Every file that the options name."""
        own = [self.types, self.conflicts, self.regions, self.max_papers, self.reviewers]
        places = [self.likely, self.reports, self.zones, self.roads]
        return [*own, *places, *(self.scores or []), *(self.public or [])]

    @property
    def size(self) -> float:
        """What the size of a region means in this domain: the edge of squares, or the number of areas."""
        return self.areas if self.domain == "papers" else self.edge

    def sizes(self, edges: str, areas: str) -> Sequence[float]:
        """Return the sizes that were asked for, with commas between them; one that means nothing for other domains."""
        if self.domain not in ("mobility", "papers"):
            return [0]
        name, text = ("--edge", edges) if self.domain == "mobility" else ("--areas", areas)
        values = numbers(text, name) if self.domain == "mobility" else options.whole_numbers(text, name)
        if len(set(values)) < len(values):
            raise InputError(f"Expected different numbers with commas between them, got {name}={text!r}.")
        return values

    def title(self, size: float) -> str:
        """Return a size of regions in a word or two."""
        if self.domain == "papers":
            return counted(int(size), "area")
        return f"{size:g} m" if self.domain == "mobility" else self.domain.rpartition(":")[2]

    def named_size(self, size: float) -> dict[str, Any]:
        """Return the fields `edge` and `areas` of a row of results; None where one does not apply."""
        return {
            "edge": size if self.domain == "mobility" else None,
            "areas": int(size) if self.domain == "papers" else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """In which form pairs are written, what else follows from reports, and what is kept of an earlier matching.

    Attributes
    ----------
    hotcrp:
        Write --out (.csv) as HotCRP's bulk assignment.
    invitation:
        Write --out (.json) as OpenReview's edges that answer this invitation.
    alternates:
        Runners-up of each resource, from the same reports, in OUT.alternates.json.
    keep:
        Keep the pairs of an earlier --out and fill what is open by its stored reports, without new ones.
    unavailable:
        With --keep: users who take nothing any more, one a line.
    """

    PANEL: ClassVar = "Conferences"
    RARE: ClassVar[tuple[str, ...]] = ("hotcrp", "invitation", "alternates", "keep", "unavailable")
    hotcrp: bool = False
    invitation: str | None = None
    alternates: options.Natural = 0
    keep: Path | None = None
    unavailable: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """What agents may spend, what adds it up, and whether their draws can be repeated.

    Attributes
    ----------
    epsilon:
        ε of every agent whose file row has none.
    delta:
        δ of (ε, δ), where a method needs one.
    accountant:
        What adds up the cost of `palma`; auto takes what buys the most.
    seed:
        Repeats the agents' draws: a simulation. Otherwise they are secret and kept nowhere.
    """

    PANEL: ClassVar = "Common"
    RARE: ClassVar[tuple[str, ...]] = ("accountant",)
    epsilon: float = 1.0
    delta: float = 1e-5
    accountant: Accountants = _AUTO
    seed: options.MaybeNatural = None

    @property
    def settings(self) -> Settings:
        """The public numbers that follow."""
        return Settings(epsilon=self.epsilon, delta=self.delta, accountant=self.accountant.value)


# Makes a problem: `size` is the edge of the squares (mobility) or the number of areas (papers) and means nothing to
# others; `seed` draws primary areas where the files name none, secretly if it is None.
Build = Callable[[Any, int | None], Problem]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files that were read and checked. `problem(size, seed)` is their problem; with `draws` each run has its own."""

    problem: Build
    draws: bool = False

    def problems(self, size: float, seed: int | None) -> Problem | Callable[[int | None], Problem]:
        """Return the problem of all runs, or, where something is drawn, a function from a run's seed to its own."""
        return (lambda run: self.problem(size, run)) if self.draws else self.problem(size, seed)


class _Request(NamedTuple):
    """What is to be read, and what its problem is built with.

    Without `agents` the data are synthetic, those of `seed`. `limits` are the keywords `interest`, `capacity`, `demand`
    and `conflicts` of every domain.
    """

    agents: Any
    resources: Any
    chosen: ProblemOptions
    seed: int
    limits: dict[str, Any]


def read_inputs(
    agents: Path | None, resources: Path | None, chosen: ProblemOptions, *, data_seed: int = 0, kept: Kept | None = None
) -> Inputs:
    """Read the files of agents and resources, and those that the options name; without files, synthetic data.

    With --pairs there is one file of agents; with `kept` pairs of an earlier matching are left as they are.
    """
    if sys.stderr.isatty():
        announce_compiling()
    scored = agents is not None and chosen.domain == "table" and is_score_file(agents)
    _check_options(agents, resources, chosen, scored=scored)
    pairs = Pairs(()) if chosen.conflicts is None else read_pairs(chosen.conflicts)
    if kept is not None:
        left_out = {*pairs.conflicts, *pairs.fixed}
        same = [pair for pair in kept.pairs if pair not in left_out and pair[0] not in kept.unavailable]
        pairs = replace(pairs, fixed=(*pairs.fixed, *same))
    limits: dict[str, Any] = {"interest": chosen.interest, "conflicts": pairs.conflicts}
    if chosen.pairs:
        if pairs.fixed:
            raise InputError("Constraints of 1 do not go with --pairs: leave such agents out of the file.")
        readers = {"mobility": _rides, "table": _mutual}
    else:
        # What is matched beforehand is no longer to be had, which is what a conflict says.
        limits |= {"capacity": chosen.capacity, "demand": chosen.demand, "conflicts": [*pairs.conflicts, *pairs.fixed]}
        readers = {"mobility": _mobility, "papers": _papers, "table": _scores if scored else _table}
        readers |= {"table": _bids} if chosen.public else {}
    found = readers.get(chosen.domain, _plugin)(_Request(agents, resources, chosen, data_seed, limits))

    def problem(size: float, seed: int | None) -> Problem:
        whole = found.problem(size, seed)
        if whole.interest is None:
            refuse_beyond_memory(whole.agents, whole.resources, "add --interest 20, or match fewer at a time")
        whole = with_assigned(whole, pairs, kept) if pairs.fixed else whole
        if kept is not None:
            whole = without_agents(whole, kept.unavailable)
        return with_requirements(whole, chosen)

    return replace(found, problem=problem)


def _check_options(agents: Path | None, resources: Path | None, chosen: ProblemOptions, *, scored: bool) -> None:
    """Refuse files and options that do not go together."""
    table_only = (chosen.regions, chosen.scores, chosen.weights, chosen.max_papers, chosen.public)
    needs = "table needs --types FILE," if chosen.domain == "table" or chosen.types else f"{chosen.domain} needs"
    _refuse(
        agents is None and (chosen.domain not in ("mobility", "papers") or chosen.types is not None),
        f"--domain {needs} AGENTS and RESOURCES: only a city and a conference can be synthetic.",
    )
    _refuse(
        agents is not None and resources is None and not chosen.pairs,
        "The file of the resources is missing: give it after that of the agents, or add --pairs to match agents "
        "with each other.",
    )
    _refuse(
        chosen.pairs and resources is not None,
        "--pairs matches the agents of one file with each other: leave the second file out.",
    )
    _refuse(
        chosen.pairs and (agents is None or chosen.domain not in ("mobility", "table")),
        "--pairs goes with --domain mobility (shared rides) and --domain table, and a file of agents.",
    )
    _refuse(
        chosen.pairs and (chosen.capacity is not None or chosen.demand is not None),
        "--capacity and --demand do not go with --pairs: every agent has one partner.",
    )
    _refuse(
        [str(file) for file in (agents, resources, *chosen.files)].count("-") > 1,
        "Only one file can be -, the standard input; give the others by name.",
    )
    _refuse(chosen.types is not None and chosen.domain != "table", "--types goes with --domain table.")
    _refuse(
        (chosen.likely or chosen.reports or chosen.zones or chosen.roads or chosen.h3) is not None
        and (chosen.domain != "mobility" or chosen.pairs),
        "--likely, --reports, --zones, --h3 and --roads go with --domain mobility, without --pairs.",
    )
    _refuse(chosen.zones is not None and chosen.h3 is not None, "Give --zones or --h3, but not both.")
    _refuse(
        chosen.outside is not None and chosen.zones is None, "--outside goes with --zones: it is for agents in no zone."
    )
    _refuse(chosen.draw_primary and chosen.domain != "papers", "--draw-primary goes with --domain papers.")
    _refuse(
        chosen.set and chosen.domain in plugin.BUILT_IN,
        f"--set goes with a domain of your own: {chosen.domain} has options for its settings.",
    )
    _refuse(
        chosen.public and (chosen.types or chosen.regions),
        "--public makes every reviewer a region of its own: leave --types and --regions out.",
    )
    _refuse(
        not chosen.public and any((chosen.bid_levels, chosen.bid_prior, chosen.bid_papers)),
        "--bid-levels, --bid-prior and --bid-papers go with --public FILE, the public affinities.",
    )
    _refuse(
        any(table_only) and not scored and chosen.domain == "table",
        f"{agents}, line 1: found no row of scores, expected three cells paper,user,score with a number as the "
        "score (or a header with these names), which --regions, --scores, --public, --weights and --max-papers go "
        "with; correct the line.",
    )
    _refuse(
        any(table_only) and not scored,
        "--regions, --scores, --public, --weights and --max-papers go with --domain table and a file of scores "
        "`paper,user,score`.",
    )
    _refuse(
        chosen.pairs and scored,
        f"{agents} holds scores of papers, expected a column for each agent: leave --pairs out.",
    )


def _refuse(broken: object, sentence: str) -> None:
    if broken:
        raise InputError(sentence)


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


def with_assigned(problem: Problem, pairs: Pairs, kept: Kept | None) -> Problem:
    """Return a problem without the room that pairs take which are matched beforehand."""
    excluded, agents, fixed = set(pairs.conflicts), set(problem.agent_ids), set(pairs.fixed)
    source = "The file of conflicts (constraint 1)" if kept is None else "--keep, with constraints of 1,"
    for agent, resource in pairs.fixed:
        if (agent, resource) in excluded:
            raise InputError(f"The constraints on {resource!r} and {agent!r} are both -1 and 1; keep one of them.")
        if agent not in agents:
            raise InputError(
                f"A constraint of 1 gives {resource!r} to {agent!r}, who does not take part: remove it, or add a line "
                "of --max-papers."
            )
    left, rows = [], []
    sides = ((problem.agent_ids, problem.demand, "takes"), (problem.resource_ids, problem.capacity, "has room for"))
    for side, (ids, room, verb) in enumerate(sides):
        taken = Counter(pair[side] for pair in fixed)
        left.append(room - np.array([taken[name] for name in ids]))
        if (left[-1] < 0).any():
            worst = int(np.argmin(left[-1]))
            raise InputError(
                f"Constraints of 1 give {taken[ids[worst]]:,} to {ids[worst]!r}, which {verb} {room[worst]:,}; remove "
                "some, or raise its limit."
            )
        places = {name: place for place, name in enumerate(ids)}
        rows.append([places[pair[side]] for pair in fixed])
    note = (
        f"{source} assigns {counted(len(fixed), 'pair')}: in the output, taking up room, and not part of the welfare."
    )
    assigned = np.array(sorted(zip(*rows, strict=True)), dtype=np.int64).reshape(-1, 2)
    capacities = Capacities(left[1], left[0], problem.conflicts, assigned=assigned)
    return replace(problem, capacities=capacities, public_notes=(*problem.public_notes, note))


class Kept(NamedTuple):
    """A file of an earlier matching, its pairs (agent, resource), and agents that have become unavailable."""

    source: Path
    pairs: Sequence[tuple[str, str]]
    unavailable: frozenset[str]


def without_agents(problem: Problem, names: frozenset[str]) -> Problem:
    """Return a problem in which these agents take nothing more."""
    strange = sorted(names.difference(problem.agent_ids))
    _refuse(strange, f"--unavailable names {listed(strange)}, who takes no part: correct the id, or remove the line.")
    out = np.array([name in names for name in problem.agent_ids])
    limits = problem.capacities or unit_capacities(problem.agents, problem.resources)
    return replace(problem, capacities=replace(limits, demand=np.where(out, 0, limits.demand)))


def with_requirements(problem: Problem, chosen: ProblemOptions) -> Problem:
    """Return a problem with the least numbers and the limits by attribute that the options name."""
    asked = chosen.min_papers or chosen.min_reviewers or chosen.limits
    _refuse(
        bool(chosen.limits) != (chosen.reviewers is not None),
        "--limits and --reviewers FILE go together: the file has the columns that limits name.",
    )
    if not asked:
        return problem
    _refuse(chosen.pairs, "--min-papers, --min-reviewers and --limits do not go with --pairs: leave them out.")
    limits = problem.capacities or unit_capacities(problem.agents, problem.resources)
    required = Requirements(
        np.minimum(chosen.min_papers or 0, limits.original.demand),
        np.minimum(chosen.min_reviewers or 0, limits.original.capacity),
        () if chosen.reviewers is None else _limits(chosen.reviewers, str(chosen.limits), problem.agent_ids),
    )
    return replace(problem, capacities=replace(limits, required=required))


def _limits(path: Path, text: str, users: Sequence[str]) -> tuple[Limit, ...]:
    """Return limits such as `senior>=1` and `country<=2` on columns of a file with a row for each user.

    A column of 0 and 1 is counted where it is 1. Of any other at most so many may have the same value, if it is filled.
    """
    sheet, found = read_sheet(path), []
    places = {name: row for row, name in enumerate(texts(sheet, need_column(sheet, "user", "id")))}
    missing = [name for name in users if name not in places]
    _refuse(missing, f"{path} has no row for {listed(missing)}: add one for every user that takes part.")
    rows = [places[name] for name in users]
    for limit in text.replace(" ", "").split(","):
        parts = re.fullmatch(r"(.+?)(>=|<=)(\d+)", limit)
        if parts is None:
            raise InputError(f"Expected limits such as senior>=1,country<=2, got {limit!r}.")
        least, count = parts[2] == ">=", int(parts[3])
        cells = texts(sheet, need_column(sheet, parts[1])).to_numpy()[rows]
        values = set(cells.tolist()) - {""}
        counts_ones = values <= {"0", "1"}
        _refuse(
            least and not counts_ones,
            f"{path}: expected 0 or 1 in column {parts[1]!r} for {limit}, found other values.",
        )
        kinds = ["1"] if counts_ones else sorted(values)
        found += [Limit(limit, np.flatnonzero(cells == kind), count, least) for kind in kinds]
    return tuple(found)


# --- by domain ----------------------------------------------------------------------------------------------------


def _mobility(request: _Request) -> Inputs:
    if request.agents is None:
        batch = city.batch(8.0, seed=request.seed)
        places: Any = batch.requests, batch.vehicles
    else:
        places = run_concurrently(
            lambda: read_points(request.agents, role="agents"), lambda: read_points(request.resources, role="resources")
        )
    chosen = request.chosen
    build = partial(
        mobility.problem,
        *places,
        alpha=chosen.alpha,
        spacing=100.0 if chosen.spacing is None else chosen.spacing,
        origin=_origin(chosen),
        likely=None if chosen.likely is None else read_points(chosen.likely, role="resources"),
        reports=None if chosen.reports is None else read_reports(chosen.reports),
        zones=_zones(chosen),
        roads=None if chosen.roads is None else read_roads(chosen.roads),
        **request.limits,
    )
    return Inputs(lambda edge, _: build(edge=edge))


def _zones(chosen: ProblemOptions) -> Zones | Hexagons | None:
    if chosen.h3 is not None:
        return Hexagons(chosen.h3)
    if chosen.zones is None:
        return None
    if chosen.outside is None:
        return read_zones(chosen.zones)
    box = numbers(chosen.outside, "--outside")
    if len(box) != 4 or not (-90 <= box[0] < box[2] <= 90 and -180 <= box[1] < box[3] <= 180):
        corners = "the south-western and the north-eastern corner"
        raise InputError(f"Expected --outside LAT,LON,LAT,LON, {corners}, got {chosen.outside}.")
    return read_zones(chosen.zones, outside=(box[0], box[1], box[2], box[3]))


def _origin(chosen: ProblemOptions) -> tuple[float, float]:
    return mobility.ORIGIN if chosen.origin is None else place(chosen.origin)


def _rides(request: _Request) -> Inputs:
    chosen = request.chosen
    build = partial(
        partners.rides, read_trips(request.agents), spacing=chosen.spacing, origin=_origin(chosen), **request.limits
    )
    return Inputs(lambda edge, _: build(edge=edge))


def _plugin(request: _Request) -> Inputs:
    domain = request.chosen.domain
    plugin.find_domain(domain)
    agents, resources = read_sheet(request.agents), read_sheet(request.resources)
    settings = dict(map(_setting, request.chosen.set or ()))
    return Inputs(lambda *_: plugin.problem(domain, agents, resources, settings=settings, **request.limits))


def _setting(text: str) -> tuple[str, float | str]:
    """Return the name and the value of --set NAME=VALUE, a number where it is one."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise InputError(f"Expected NAME=VALUE, got --set {text!r}.")
    try:
        return name.strip(), float(value)
    except ValueError:
        return name.strip(), value.strip()


def _papers(request: _Request) -> Inputs:
    draw = request.chosen.draw_primary or request.agents is None
    if request.agents is None:
        reviewers, submitted = papers.labels_of_conference(conference(seed=request.seed))
    else:
        reviewers = read_labels(request.agents, role="agents")
        submitted = check_same_areas(reviewers, read_labels(request.resources, role="resources"))
        for labels in () if draw else (reviewers, submitted):
            need_primary(labels)

    def problem(areas: float, seed: int | None) -> Problem:
        check_areas(int(areas), named=len(reviewers.areas), papers=len(submitted.marks))
        return papers.problem(reviewers, submitted, areas=int(areas), draw_primary=draw, seed=seed, **request.limits)

    return Inputs(problem, draws=reviewers.primary is None or submitted.primary is None)


class _Listed(NamedTuple):
    """Ids and capacities of resources, the possible types, and what a reader should know about the files."""

    ids: tuple[str, ...]
    capacity: Any
    types: Types
    notes: tuple[str, ...]


def _listed(resources: Path, types: Path | None, bounds: tuple[float, float] = (0.0, 1.0)) -> _Listed:
    """Return the resources of a table, and the possible types of each region."""
    if types is None:
        raise InputError(
            "--domain table needs --types FILE: the utilities of every possible agent of each region. `palmatch "
            "types` derives them from public records. Where bids are private and affinities public, give --public FILE."
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
    return _Listed(ids, unit_counts(sheet, "capacity"), possible, notes)


def _rows_of(agents: Path, found: _Listed) -> TableRows:
    rows = read_table(agents, resource_ids=found.ids)
    check_regions(rows, found.types)
    return rows


def _mutual(request: _Request) -> Inputs:
    # The agents are what there is a column for.
    found = _listed(request.agents, request.chosen.types)
    rows = _rows_of(request.agents, found)
    return Inputs(lambda *_: partners.table(rows, types=found.types, **request.limits))


def _table(request: _Request) -> Inputs:
    found = _listed(request.resources, request.chosen.types)
    rows = _rows_of(request.agents, found)
    limits = request.limits | {"capacity": given_or(found.capacity, request.chosen.capacity)}
    return Inputs(lambda *_: replace(table.problem(rows, types=found.types, **limits), public_notes=found.notes))


def _scores(request: _Request) -> Inputs:
    """Read scores as openreview-matcher and perturbed-maximization keep them."""
    chosen, bounds = request.chosen, score_range(request.chosen.score_range)
    found = _listed(request.resources, chosen.types, bounds)
    files = [request.agents, *(chosen.scores or [])]
    read = partial(read_scores, bounds=bounds, papers=found.ids, listed_in=str(request.resources))
    told = read(files, weights=None if chosen.weights is None else numbers(chosen.weights, "--weights"))
    _refuse_private_types(files, found.types, chosen.types, lambda file: told if len(files) == 1 else read([file]))
    regions = None if chosen.regions is None else read_regions(chosen.regions)
    most = {} if chosen.max_papers is None else read_max_papers(chosen.max_papers)
    limits, notes = request.limits, []
    if silent := set(most).difference(told.users):
        # Leaving them out would tell that they have no scores.
        told = with_users(told, silent)
        notes.append(
            f"{counted(len(silent), 'user')} of {chosen.max_papers} without any score: taking part, with the score 0 "
            "for every paper."
        )
    if absent := set(regions or ()).difference(told.users):
        notes.append(
            f"{counted(len(absent), 'user')} of {chosen.regions} without a score or a line of --max-papers: left out."
        )
        # Conflicts are kept for a whole committee, and exclude nothing where one of it does not take part.
        limits = limits | {"conflicts": [pair for pair in limits["conflicts"] if pair[0] not in absent]}
    demand = np.array([most.get(user, np.nan) for user in told.users], dtype=np.float64)
    limits = limits | {"capacity": given_or(found.capacity, chosen.capacity), "demand": given_or(demand, chosen.demand)}
    build = partial(scores.problem, told, found.types, regions, bounds=bounds, notes=notes, **limits)
    return Inputs(lambda *_: replace(build(), public_notes=found.notes))


def _refuse_private_types(
    files: Sequence[Path], possible: Types, types: Path | None, read: Callable[[Path], Any]
) -> None:
    """Refuse types that name the hash of a file of private scores, or of the scores in it, as their source."""
    known = set(re.findall("[0-9a-f]{16}", possible.derived))
    for file in files if known else ():
        if digest(file) in known or scores_digest(read(file)) in known:
            raise InputError(
                f"{types} was derived from {file}, or from the same scores, which are private: possible types have to "
                "come from public records; derive them from others."
            )


def _bids(request: _Request) -> Inputs:
    """Read private bids and public affinities; reviewers are the users of the affinities and of --max-papers."""
    chosen, bounds, sheet = request.chosen, score_range(request.chosen.score_range), read_sheet(request.resources)
    private, public = [request.agents, *(chosen.scores or [])], chosen.public or []
    same = {digest(file) for file in private} & {digest(file) for file in public}
    _refuse(same, "A file is given as bids and as affinities: affinities are public and must not hold bids.")
    weights = [1.0] * len(private + public) if chosen.weights is None else numbers(chosen.weights, "--weights")
    _refuse(
        len(weights) != len(private + public) or not min(weights) > 0,
        f"Expected a weight above 0 for each of {len(private)} files of bids, then of {len(public)} of affinities, got "
        f"--weights={chosen.weights}.",
    )
    read = partial(read_scores, bounds=bounds, papers=identifiers(sheet), listed_in=str(request.resources))
    told, known = read(private, weights=weights[: len(private)]), read(public, weights=weights[len(private) :])
    most = {} if chosen.max_papers is None else read_max_papers(chosen.max_papers)
    known = with_users(known, most)
    if silent := len(known.users) - int((np.diff(told.rows.tocsr().indptr) > 0).sum()):
        # Here and in no result: with the assignments it tells about those who bid.
        warn_privately(f"{silent:,} of {len(known.users):,} reviewers gave no bids")
    demand = np.array([most.get(user, np.nan) for user in known.users], dtype=np.float64)
    build = partial(
        bids.problem,
        told,
        known,
        share=sum(weights[: len(private)]) / sum(weights),
        levels=(0.0, bounds[1]) if chosen.bid_levels is None else numbers(chosen.bid_levels, "--bid-levels"),
        prior=None if chosen.bid_prior is None else numbers(chosen.bid_prior, "--bid-prior"),
        looked_at=chosen.bid_papers,
        bounds=bounds,
        **request.limits
        | {
            "capacity": given_or(unit_counts(sheet, "capacity"), chosen.capacity),
            "demand": given_or(demand, chosen.demand),
        },
    )
    notes = unused(sheet, "id", "capacity", "topic")
    return Inputs(lambda *_: replace(build(), public_notes=notes))

"""Results in words and in files: who lacks what and why, how evenly all are served, what is lost, the pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from textwrap import shorten
from uuid import uuid4

import numpy as np
import polars as pl

from palmatch.data.scores import as_score
from palmatch.domains.bids import BidTable
from palmatch.domains.mobility import City
from palmatch.domains.papers import Conference
from palmatch.domains.scores import ScoreTable
from palmatch.matching import Matching
from palmatch.methods import METHODS
from palmatch.problem import IntArray, Problem
from palmatch.report.words import counted, listed, percent
from palmatch.studies.compare import Comparison, LossParts, Spread, lost_at
from palmatch.studies.fairness import (
    Fairness,
    Served,
    Shortfall,
    fairness,
    lacking_agents,
    lacking_resources,
)
from palmatch.studies.plan import paired_gain

# So many ids are named in a line, and so many lines are shown; the JSON has all of them.
_NAMED, _LINES = 5, 5
# How long a charger is reserved.
HOLD = timedelta(minutes=15)
# Longer ids are cut, so that a line stays within the width.
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class Words:
    """What agents, resources and regions are called in a domain, one and many."""

    agent: tuple[str, str] = ("agent", "agents")
    resource: tuple[str, str] = ("resource", "resources")
    region: tuple[str, str] = ("region", "regions")


def words_of(problem: Problem) -> Words:
    """Return what agents, resources and regions are called in a domain, which may say so itself (`nouns`)."""
    if (nouns := getattr(problem.domain, "nouns", None)) is not None:
        return Words(**{kind: (one, many) for kind, (one, many) in dict(nouns).items()})
    if isinstance(problem.domain, City):
        return Words(("agent", "agents"), ("vehicle", "vehicles"), ("square region", "square regions"))
    if isinstance(problem.domain, Conference):
        return Words(("reviewer", "reviewers"), ("paper", "papers"), ("primary area", "primary areas"))
    if isinstance(problem.domain, ScoreTable | BidTable):
        return Words(("reviewer", "reviewers"), ("paper", "papers"))
    return Words(resource=("partner", "partners")) if problem.pairs else Words()


def shortfall_lines(problem: Problem, matching: Matching) -> list[str]:
    """Say what was left open, and why; nothing where all that could be wanted was given.

    It is the agents that have fewer resources than they want, and the resources with empty seats: all of them in a
    conference and where seats are scarce, elsewhere those that conflicts leave empty. Ids, limits and the matching are
    public, and so is all that is told of them.
    """
    agents = _told(problem, lacking_agents(problem, matching), of_agents=True)
    if problem.capacities is None:
        return agents
    resources = lacking_resources(problem, matching)
    if not is_conference(problem) and problem.demand.sum() < problem.capacity.sum():
        resources = tuple(one for one in resources if one.reason == "conflicts")
    return _told(problem, resources, of_agents=False) + agents


def is_conference(problem: Problem) -> bool:
    """Say whether resources are papers."""
    return isinstance(problem.domain, Conference | ScoreTable | BidTable)


def _told(problem: Problem, lacking: Sequence[Shortfall], *, of_agents: bool) -> list[str]:
    """Return a heading, and a line for those that have the same number for the same reason."""
    if not lacking:
        return []
    groups: dict[tuple[object, ...], list[Shortfall]] = {}
    for one in lacking:
        few = one.eligible if one.eligible < one.wanted else None
        groups.setdefault((one.wanted, one.got, one.reason, few), []).append(one)
    shown = list(groups.values())[:_LINES]
    lines = [f"{_heading(problem, lacking, of_agents)}:"]
    for group in shown:
        ids = [_short(one.id) for one in group[:_NAMED]]
        ids += [f"{len(group) - _NAMED:,} more"] if len(group) > _NAMED else []
        have = f"{_have(len(group))} {group[0].got:,} of {group[0].wanted:,}"
        lines.append(f"  {listed(ids)} {have}: {_why(problem, group, of_agents)}.")
    left = len(lacking) - sum(map(len, shown))
    if left or any(len(group) > _NAMED for group in shown):
        where = "--out" if problem.capacities is None else "--json"
        lines.append(f"  {f'and {left:,} more; ' if left else ''}{where} has all of them.")
    return lines


def _heading(problem: Problem, lacking: Sequence[Shortfall], of_agents: bool) -> str:
    own, other = _sides(problem, of_agents)
    many, missing = len(lacking), sum(one.wanted - one.got for one in lacking)
    without = sum(one.got == 0 for one in lacking)
    if of_agents and without == many:
        return f"{counted(many, *own)} {'goes' if many == 1 else 'go'} without a {other[0]}"
    if of_agents and is_conference(problem):
        # What a reviewer takes at most is no wish for so many.
        told = f"{counted(many, *own)} {_have(many)} room for {missing:,} more {other[missing > 1]}"
    else:
        told = f"{counted(many, *own)} {'lacks' if many == 1 else 'lack'} {counted(missing, *other)}"
    return f"{told}, {without:,} {_have(without)} none" if of_agents and without else told


def _have(many: int) -> str:
    return "has" if many == 1 else "have"


def _sides(problem: Problem, of_agents: bool) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return what one side is called, and the other side."""
    words = words_of(problem)
    return (words.agent, words.resource) if of_agents else (words.resource, words.agent)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _why(problem: Problem, group: Sequence[Shortfall], of_agents: bool) -> str:
    """Return why those that have the same number for the same reason do not have more."""
    one, (own, other) = group[0], _sides(problem, of_agents)
    if one.reason == "conflicts":
        return f"conflicts leave {'it' if len(group) == 1 else 'each'} {counted(one.eligible, *other)}"
    if one.reason == "method":
        told = f"some {other[1]} had room that the method did not use"
        # Which ones an agent considers is private; how many is a public setting.
        words = words_of(problem)
        each = f"each possible {words.agent[0]} considers {counted(problem.ranks, *words.resource)} (interest)"
        return told if problem.interest is None else f"{told}; {each}"
    if one.got == one.eligible:
        there = f"only {counted(one.eligible, *other)} {_have(one.eligible)} room"
        return f"{there if one.eligible else f'no {other[0]} has room'} ({one.reason})"
    every = f"every{' other' if one.got else ''} {other[0]}"
    if len(problem.original_capacities.conflicts):
        every += " without a conflict"
    return f"{every} {'is full' if of_agents else f'has all the {own[1]} that it takes'} ({one.reason})"


def fairness_lines(problem: Problem, found: Fairness) -> list[str]:
    """Say how evenly both sides are served."""
    words = words_of(problem)
    agents = _served(found.agents, words.agent)
    return [agents] if problem.pairs else [_served(found.resources, words.resource), agents]


def _served(served: Served, names: tuple[str, str]) -> str:
    if not served.worst:
        return f"{names[1].capitalize()}: none has room for a unit"
    return (
        f"{names[1].capitalize()}: worst served {_short(served.worst)} with {served.least:.2f}, "
        f"mean {served.mean:.2f}, Gini {served.gini:.2f}, {percent(served.below)} below {served.threshold:.2f}"
    )


def fairness_table(problem: Problem, played: Mapping[str, Matching]) -> tuple[list[str], list[list[str]]]:
    """Return headings, and two rows for each method: how evenly it serves resources, and agents."""
    words = words_of(problem)
    rows = []
    for method, matching in played.items():
        found = fairness(problem, matching)
        for first, names, side in (
            (method, words.resource, found.resources),
            (f"  {matching.filled:,} units", words.agent, found.agents),
        ):
            figures = [f"{side.least:.2f}", f"{side.mean:.2f}", f"{side.gini:.2f}", f"{100 * side.below:.1f}"]
            rows.append([first, names[1], shorten(side.worst, 16, placeholder="..."), *figures])
    return ["first run", "", "worst served", "least", "mean", "Gini", "low %"], rows


def loss_in_words(told: LossParts) -> str:
    """Say in a sentence what is lost at one budget, and what for."""
    start = f"At ε = {told.epsilon:g}, {told.method} loses {_amount(told.loss)} of the optimum"
    if told.privacy is None or told.no_centre is None:
        cause = "what privacy costs" if told.centralised else "what privacy and doing without a centre cost together"
        return f"{start}: {cause}."
    return (
        f"{start}, and a centre that sees the same reports (hungarian-once) {_amount(told.privacy)}; the difference, "
        f"{_amount(told.no_centre)}, is what doing without a centre costs."
    )


def gain_in_words(result: Comparison) -> str:
    """Say what a budget gained over regions alone, run by run; nothing where either was not played, or only once."""
    spending = any(METHODS.find(method).spends for method in result.runs)
    if not spending or "hungarian-region" not in result.runs:
        return ""
    told = lost_at(result)
    both = [result.runs_of(told.method, told.epsilon), result.runs_of("hungarian-region", told.epsilon)]
    welfare, without = (np.array([run.matching.welfare for run in runs]) for runs in both)
    gain = paired_gain(welfare, without, np.array([run.optimum for run in both[0]]))
    if not np.isfinite(gain.error):
        return ""
    sentence = gain.sentence[:1].lower() + gain.sentence[1:]
    return f"In these runs of {told.method} at ε = {told.epsilon:g}, computed from the truth: {sentence}"


def _amount(value: Spread) -> str:
    """Return a mean in per cent with its spread, on one line."""
    return f"{100 * value.mean:.1f}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{percent(value.sd)}"


def assignments(problem: Problem, units: IntArray) -> dict[str, list[dict[str, object]]]:
    """Return {paper: [{"aggregate_score": public score, "user": reviewer}, ...]} for papers with units, in order."""
    domain = problem.domain
    standing = np.array([domain.types_of(region)[domain.representative(region)] for region in problem.regions])
    public = replace(problem, types=standing[problem.region_index], truth=standing[problem.region_index])
    found: dict[str, list[dict[str, object]]] = {name: [] for name in problem.resource_ids}
    scores = public.true_utility_of_units(units)
    if isinstance(domain, ScoreTable | BidTable):
        scores = as_score(scores, domain.bounds)
    for (agent, resource), score in zip(units.tolist(), scores.tolist(), strict=True):
        found[problem.resource_ids[resource]].append({"aggregate_score": score, "user": problem.agent_ids[agent]})
    return {paper: users for paper, users in found.items() if users}


def reservations(problem: Problem, units: IntArray, evses: Mapping[str, Sequence[str]]) -> list[dict[str, object]]:
    """Return a RESERVE_NOW object of OCPI 2.2 for each pair, with the agent's id in the place of its token's.

    `evses` has what is available at a location; where nothing of it is left the charge point chooses. The sender adds
    `response_url` and what else its tokens hold.
    """
    left = {location: iter(every) for location, every in evses.items()}
    until, found = (datetime.now(UTC) + HOLD).strftime("%Y-%m-%dT%H:%M:%SZ"), []
    for agent, resource in units.tolist():
        location = problem.resource_ids[resource]
        told = {"reservation_id": str(uuid4()), "location_id": location, "expiry_date": until}
        evse = next(left.get(location, iter(())), None)
        found.append(told | {"token": {"uid": problem.agent_ids[agent]}} | ({} if evse is None else {"evse_uid": evse}))
    return found


def edges(
    assigned: Mapping[str, Sequence[Mapping[str, object]]], invitation: str, label: str
) -> list[dict[str, object]]:
    """Return assignments as OpenReview's edges, from papers (head) to users (tail)."""
    return [
        {"invitation": invitation, "head": paper, "tail": one["user"], "weight": one["aggregate_score"], "label": label}
        for paper, users in assigned.items()
        for one in users
    ]


def bulk_assignment(problem: Problem, units: IntArray) -> dict[str, list[str]]:
    """Return columns of HotCRP's bulk assignment: a primary review for each unit."""
    papers = [problem.resource_ids[resource] for resource in units[:, 1].tolist()]
    users = [problem.agent_ids[agent] for agent in units[:, 0].tolist()]
    return {"paper": papers, "action": ["primary"] * len(papers), "email": users}


def matrix_text(problem: Problem, units: IntArray) -> str:
    """Return units as perturbed-maximization's matrix: numbers of papers and reviewers, and a line for each paper."""
    table = np.zeros((problem.resources, problem.agents), dtype=np.int64)
    table[units[:, 1], units[:, 0]] = 1
    lines = (" ".join(map(str, row)) for row in table.tolist())
    return "\n".join((f"{problem.resources} {problem.agents}", *lines, ""))


def with_assigned(problem: Problem, matching: Matching) -> dict[str, pl.Series] | dict[str, list[str | None]]:
    """Return columns `agent` and `resource` of all units, with those that were assigned beforehand at the end."""
    if not len(problem.assigned):
        columns: dict[str, pl.Series] = matching.to_frame("polars").to_dict()
        return columns
    before = [(problem.agent_ids[agent], problem.resource_ids[resource]) for agent, resource in problem.assigned]
    served = {agent for agent, _ in before}
    rows = [row for row in zip(*matching.columns(), strict=True) if row[1] is not None or row[0] not in served]
    agents, resources = zip(*rows, *before, strict=True)
    return {"agent": list(agents), matching.other: list(resources)}

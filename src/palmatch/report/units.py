"""Seats, units and fairness in words: which papers lack reviewers and why, and how evenly all are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten

from palmatch.domains.papers import Conference
from palmatch.domains.scores import ScoreTable
from palmatch.matching import Matching
from palmatch.problem import Problem
from palmatch.report.names import words_of
from palmatch.report.phrases import counted, percent
from palmatch.studies.fairness import Fairness, Served, fairness
from palmatch.studies.shortfall import Shortfall, lacking_agents, lacking_resources

# So many are named one by one; the JSON has all of them.
_NAMED = 5


def shortfall_lines(problem: Problem, matching: Matching) -> list[str]:
    """Say what was left open, and why; nothing where all that could be wanted was given.

    Of a conference it is the papers that lack reviewers; elsewhere the side that could have been served in full, and
    of the other side what conflicts kept from being served.
    """
    words, more = words_of(problem), int(problem.demand.sum() - problem.capacity.sum())
    resources, agents = lacking_resources(problem, matching), lacking_agents(problem, matching)
    if isinstance(problem.domain, Conference | ScoreTable):
        return _told(resources, words.resource, words.agent)
    if more < 0:
        resources = _by_conflicts(resources)
    else:
        agents = _by_conflicts(agents)
    return _told(resources, words.resource, words.agent) + _told(agents, words.agent, words.resource)


def _by_conflicts(lacking: Sequence[Shortfall]) -> tuple[Shortfall, ...]:
    return tuple(one for one in lacking if one.reason == "conflicts")


def _told(lacking: Sequence[Shortfall], own: tuple[str, str], other: tuple[str, str]) -> list[str]:
    if not lacking:
        return []
    missing = sum(one.wanted - one.got for one in lacking)
    verb = "lacks" if len(lacking) == 1 else "lack"
    lines = [f"{counted(len(lacking), *own)} {verb} {counted(missing, *other)}:"]
    lines += [f"  {one.id} has {one.got:,} of {one.wanted:,}: {_why(one, own, other)}." for one in lacking[:_NAMED]]
    if len(lacking) > _NAMED:
        lines.append(f"  and {len(lacking) - _NAMED:,} more; --json has all of them.")
    return lines


def _why(one: Shortfall, own: tuple[str, str], other: tuple[str, str]) -> str:
    if one.reason == "conflicts":
        return f"conflicts leave it {counted(one.eligible, *other)}"
    if one.reason == "demand":
        return f"no other {other[0]} without a conflict has room for another {own[0]} (demand)"
    if one.reason == "capacity":
        return f"every other {other[0]} without a conflict is full (capacity)"
    return f"some {other[1]} had room that the method did not use"


def fairness_lines(problem: Problem, found: Fairness) -> list[str]:
    """Say how evenly both sides are served."""
    words = words_of(problem)
    agents = _served(found.agents, words.agent)
    return [agents] if problem.pairs else [_served(found.resources, words.resource), agents]


def _served(served: Served, names: tuple[str, str]) -> str:
    if not served.worst:
        return f"{names[1].capitalize()}: none has room for a unit"
    return (
        f"{names[1].capitalize()}: worst served {served.worst} with {served.least:.2f}, mean {served.mean:.2f}, "
        f"Gini {served.gini:.2f}, {percent(served.below)} below {served.threshold:.2f}"
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

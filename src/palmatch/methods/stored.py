"""Reports that are kept: runners-up and replacements follow from them, and cost no further ε.

What an agent reported, by which channel, and what each resource is worth by that report, are covered by the guarantee
under which the report was given. No agent's type is looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from palmatch.data.files import listed
from palmatch.errors import InputError
from palmatch.guarantee import simulated, with_top_up
from palmatch.matchers.auction import run_auction
from palmatch.matchers.lists import MatchOutcome, ValueLists
from palmatch.matchers.optimal import match_lists
from palmatch.matchers.required import refuse_unmet
from palmatch.matching import Matching
from palmatch.methods import prepare
from palmatch.methods.registry import Method
from palmatch.methods.reports import (
    FINEST_STEP,
    LONGEST_PATIENCE,
    ReportPlan,
    report_guarantee,
    serve_as_regions,
    value_lists,
)
from palmatch.methods.workspace import Settings, Workspace, budgets, finished, make_matching
from palmatch.problem import IntArray, Problem
from palmatch.regions.csr import offsets_from_sizes
from palmatch.streams import Randomness

# For each agent by its id "epsilon", the number of possible "types" of its region, "channel" (the number of a table of
# chances over 2^53), "report" (a column of it), "values" of resources by their ids, and of every "other" one; in
# "channels" the tables.
StoredReports = Mapping[str, Any]


def keeping(method: Method, settings: Settings, kept: list[StoredReports]) -> Method:
    """Return a method of one report that also adds what was reported to `kept`; any other as it is."""
    if (matcher := method.matcher) is None:
        return method

    def keep(
        workspace: Workspace, plan: ReportPlan, reported: IntArray, chance: Randomness, trace: bool
    ) -> MatchOutcome:
        kept.append(_stored(workspace.problem, plan, reported, settings))
        return matcher(workspace, plan, reported, chance, trace)

    return replace(method, matcher=keep)


def _stored(problem: Problem, plan: ReportPlan, reported: IntArray, settings: Settings) -> StoredReports:
    lists, epsilon, rows = value_lists(plan, reported), budgets(problem, settings), {}
    tables = {channel.chances.tobytes(): channel.chances.tolist() for channel in plan.channels}
    number = {key: place for place, key in enumerate(tables)}
    for agent, name in enumerate(problem.agent_ids):
        channel, place = plan.channels[plan.channel_of[agent]], lists.list_of[agent]
        span = slice(lists.start[place], lists.start[place + 1])
        resources = (problem.resource_ids[resource] for resource in lists.resources[span].tolist())
        rows[name] = {
            # With one report, nothing is told.
            "epsilon": float(epsilon[agent]) if channel.reports > 1 else 0.0,
            "types": len(channel.cell_of),
            "channel": number[channel.chances.tobytes()],
            "report": int(reported[agent]),
            "values": dict(zip(resources, lists.values[span].tolist(), strict=True)),
            "other": None if lists.rest is None else float(lists.rest[place]),
        }
    return {"channels": list(tables.values()), "reports": rows}


def reported_lists(problem: Problem, stored: StoredReports, source: str) -> ValueLists:
    """Return what stored reports say that resources are worth; every agent that takes something needs one."""
    if not isinstance(stored, dict) or not {"channels", "reports"} <= set(stored):
        raise InputError(f"{source} holds no reports, expected the file that was written beside the earlier matching.")
    known, number = stored["reports"], {name: place for place, name in enumerate(problem.resource_ids)}
    lacking = [
        name for name, wants in zip(problem.agent_ids, problem.demand, strict=True) if wants and name not in known
    ]
    if lacking:
        raise InputError(
            f"{source} has no report of {listed(lacking)}: without a new report only those can be assigned who have "
            "reported; name the others in --unavailable."
        )
    by_id = np.argsort(problem.resource_order)
    resources, values, rest = [], [], np.zeros(problem.agents)
    for agent, name in enumerate(problem.agent_ids):
        row = known.get(name, {"values": {}, "other": None})
        worth = {number[paper]: value for paper, value in row["values"].items() if paper in number}
        resources.append(np.array(sorted(worth, key=problem.resource_order.__getitem__), dtype=np.int64))
        values.append(np.array([worth[place] for place in resources[-1].tolist()]))
        rest[agent] = 0.0 if row["other"] is None else row["other"]
    start = offsets_from_sizes([len(own) for own in values])
    return ValueLists(np.arange(problem.agents), start, np.concatenate(resources), np.concatenate(values), rest, by_id)


def match_again(
    problem: Problem, method: Method, stored: StoredReports | None, source: str, seed: int | None
) -> Matching:
    """Match what is left of a problem by stored reports, without a new one."""
    if stored is None:
        if method.spends:
            raise InputError(
                f"--keep has {method.name} act on what is private anew: choose a method of one report, or one that "
                "spends no ε."
            )
        found = prepare(problem, method).play(seed)
        return replace(found, guarantee=with_top_up(found.guarantee))
    refuse_unmet(problem, method.name, method.parts[1])
    workspace, lists = Workspace(problem), reported_lists(problem, stored, source)
    chance = workspace.randomness(seed)
    if method.parts[1] == "optimal":
        units = match_lists(lists, problem.resources, problem.capacities, chance.public)
    else:
        opening = np.zeros(problem.resources)
        units = run_auction(
            lists, opening, FINEST_STEP, stream_keys=chance.public, capacities=problem.capacities,
            round_limit=LONGEST_PATIENCE, fill=True,
        ).resource_of  # fmt: skip
    rows = [stored["reports"][name] for name in problem.agent_ids if name in stored["reports"]]
    units = serve_as_regions(workspace, lists, units)
    guarantee = report_guarantee(max((row["epsilon"] for row in rows), default=0.0), [row["types"] for row in rows])
    matching = finished(problem, replace(make_matching(problem, units, guarantee=guarantee), method=method.name))
    guarantee = with_top_up(matching.guarantee)
    return replace(matching, guarantee=simulated(guarantee) if chance.simulated else guarantee)


def alternates(problem: Problem, taken: IntArray, lists: ValueLists, count: int) -> IntArray:
    """Return units (agent, resource): for each resource the agents to whom its reports give the highest values.

    None of them has a unit of it (`taken`) or a conflict with it; those with room for more come first.
    """
    limits, width = problem.original_capacities, problem.resources
    sizes = np.diff(lists.start)[lists.list_of]
    agents = np.repeat(np.arange(problem.agents), sizes)
    entries = np.arange(len(agents)) + np.repeat(lists.start[lists.list_of] - offsets_from_sizes(sizes)[:-1], sizes)
    resources, values = lists.resources[entries], lists.values[entries]
    out = np.isin(agents * width + resources, np.concatenate((limits.conflicts, taken)) @ (width, 1))
    is_full = (limits.demand - np.bincount(taken[:, 0], minlength=problem.agents) <= 0)[agents]
    order = np.lexsort((-values, is_full, resources))
    order = order[~out[order] & (limits.demand[agents[order]] > 0)]
    first = np.searchsorted(resources[order], resources[order], side="left")
    chosen = order[np.arange(len(order)) - first < count]
    return np.column_stack((agents[chosen], resources[chosen]))

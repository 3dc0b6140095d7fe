"""Assignments as openreview-matcher writes them: for each resource its agents, each with a score.

The score of a reviewer is private. What is written as `aggregate_score` is the score of the representative of the
reviewer's region for the paper, which is public: in the range of the scores that were read. In domains without scores
it is the representative's utility.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from palmatch.data.scores import as_score
from palmatch.domains.scores import ScoreTable
from palmatch.matching import Matching
from palmatch.problem import Problem


def assignments(
    problem: Problem, matching: Matching, fixed: Sequence[tuple[str, str]] = ()
) -> dict[str, list[dict[str, object]]]:
    """Return {paper: [{"aggregate_score": public score, "user": reviewer}, ...]} for papers with reviewers, in order.

    `fixed` are pairs (reviewer, paper) that were matched beforehand.
    """
    domain = problem.domain
    standing = np.array([domain.types_of(region)[domain.representative(region)] for region in problem.regions])
    public = replace(problem, types=standing[problem.region_index], truth=standing[problem.region_index])
    agents, resources = (
        {name: place for place, name in enumerate(ids)} for ids in (problem.agent_ids, problem.resource_ids)
    )
    before = [(agents[agent], resources[resource]) for agent, resource in dict.fromkeys(fixed)]
    units = np.concatenate((matching.units, np.array(before, dtype=np.int64).reshape(-1, 2)))
    units = units[np.lexsort((units[:, 1], units[:, 0]))]
    found: dict[str, list[dict[str, object]]] = {name: [] for name in problem.resource_ids}
    scores = public.true_utility_of_units(units)
    if isinstance(domain, ScoreTable):
        scores = as_score(scores, domain.bounds)
    for (agent, resource), score in zip(units.tolist(), scores.tolist(), strict=True):
        found[problem.resource_ids[resource]].append({"aggregate_score": score, "user": problem.agent_ids[agent]})
    return {paper: users for paper, users in found.items() if users}


def with_pairs(
    matching: Matching, fixed: Sequence[tuple[str, str]] = ()
) -> dict[str, pl.Series] | dict[str, list[str | None]]:
    """Return columns `agent` and `resource` of all units, with those that were matched beforehand at the end."""
    if not fixed:
        columns: dict[str, pl.Series] = matching.to_frame("polars").to_dict()
        return columns
    before = list(dict.fromkeys(fixed))
    served = {agent for agent, _ in before}
    rows = [row for row in zip(*matching.columns(), strict=True) if row[1] is not None or row[0] not in served]
    agents, resources = zip(*rows, *before, strict=True)
    return {"agent": list(agents), matching.other: list(resources)}

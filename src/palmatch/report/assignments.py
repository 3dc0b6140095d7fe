"""Assignments as openreview-matcher writes them: for each resource its agents, each with a score.

The score of a reviewer is private. What is written as `aggregate_score` is the score of the representative of the
reviewer's region for the paper, which is public: in the range of the scores that were read. In domains without scores
it is the representative's utility.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from palmatch.data.scores import as_score
from palmatch.domains.scores import ScoreTable
from palmatch.matching import Matching
from palmatch.problem import Problem
from palmatch.studies.fairness import every_unit


def assignments(problem: Problem, matching: Matching) -> dict[str, list[dict[str, object]]]:
    """Return {paper: [{"aggregate_score": public score, "user": reviewer}, ...]} for papers with reviewers, in order.

    Pairs that were assigned beforehand are among them.
    """
    domain = problem.domain
    standing = np.array([domain.types_of(region)[domain.representative(region)] for region in problem.regions])
    public = replace(problem, types=standing[problem.region_index], truth=standing[problem.region_index])
    units = every_unit(problem, matching)
    units = units[np.lexsort((units[:, 1], units[:, 0]))]
    found: dict[str, list[dict[str, object]]] = {name: [] for name in problem.resource_ids}
    scores = public.true_utility_of_units(units)
    if isinstance(domain, ScoreTable):
        scores = as_score(scores, domain.bounds)
    for (agent, resource), score in zip(units.tolist(), scores.tolist(), strict=True):
        found[problem.resource_ids[resource]].append({"aggregate_score": score, "user": problem.agent_ids[agent]})
    return {paper: users for paper, users in found.items() if users}


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

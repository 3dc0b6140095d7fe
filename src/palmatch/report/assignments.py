"""Assignments as openreview-matcher writes them: for each resource its agents, each with a score.

The score of a reviewer is private. What is written as `aggregate_score` is what the representative of the reviewer's
region would get from the paper, which is public.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from palmatch.matching import Matching
from palmatch.problem import Problem


def assignments(problem: Problem, matching: Matching) -> dict[str, list[dict[str, object]]]:
    """Return {paper: [{"aggregate_score": public score, "user": reviewer}, ...]} for all papers, in their order."""
    domain = problem.domain
    standing = np.array([domain.types_of(region)[domain.representative(region)] for region in problem.regions])
    public = replace(problem, types=standing[problem.region_index], truth=standing[problem.region_index])
    units = matching.units
    found: dict[str, list[dict[str, object]]] = {name: [] for name in problem.resource_ids}
    for (agent, resource), score in zip(units.tolist(), public.true_utility_of_units(units).tolist(), strict=True):
        found[problem.resource_ids[resource]].append({"aggregate_score": score, "user": problem.agent_ids[agent]})
    return found

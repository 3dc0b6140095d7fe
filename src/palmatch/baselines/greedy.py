"""The best pair first: a centre that knows all utilities and never reconsiders. At least half of the optimum."""

from __future__ import annotations

import numba
import numpy as np

from palmatch.baselines.common import centralised, refuse_too_large
from palmatch.guarantee import no_privacy
from palmatch.problem import Matching, Problem


def greedy(problem: Problem) -> Matching:
    """Take pairs in falling order of utility, ties by agent and then by the resource's public id."""
    refuse_too_large(problem, "greedy")
    by_id = np.argsort(problem.resource_order)
    utilities = problem.true_utility(by_id)
    order = np.argsort(-utilities, axis=None, kind="stable")
    chosen = _take(order, problem.agents, problem.resources)
    resource_of = np.where(chosen >= 0, by_id[chosen], -1)
    return centralised(problem, "greedy", resource_of, no_privacy("a centre knows all utilities"))


@numba.njit(cache=True)
def _take(order, agents, resources):  # type: ignore[no-untyped-def]  # compiled
    resource_of = np.full(agents, -1, dtype=np.int64)
    taken = np.zeros(resources, dtype=np.bool_)
    left = min(agents, resources)
    for pair in order:
        agent, resource = pair // resources, pair % resources
        if resource_of[agent] < 0 and not taken[resource]:
            resource_of[agent] = resource
            taken[resource] = True
            left -= 1
            if left == 0:
                break
    return resource_of

"""The centralised optimum: on the truth (no privacy), or on regions alone (ε = 0).

The second one is the honest opponent of any private method: it needs no budget at all, only somebody to run it.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from palmatch.baselines.common import centralised, refuse_too_large
from palmatch.guarantee import no_privacy, region_only
from palmatch.problem import FloatArray, IntArray, Matching, Problem, checked_utility
from palmatch.rounds.draws import SELECTION, draws, keys_of, streams


def assign(utilities: FloatArray) -> IntArray:
    """Return the assignment with the largest sum of utilities; -1 for agents who go without."""
    resource_of = np.full(len(utilities), -1, dtype=np.int64)
    agents, resources = linear_sum_assignment(utilities, maximize=True)
    resource_of[agents] = resources
    return resource_of


def hungarian(problem: Problem) -> Matching:
    """Return the optimum: what everything else is compared with."""
    refuse_too_large(problem, "hungarian")
    return centralised(problem, "hungarian", assign(problem.true_utility()), no_privacy("a centre knows all utilities"))


def hungarian_region(problem: Problem, *, seed: int) -> Matching:
    """Return the optimum of a centre that knows only regions: everybody counts as their region's representative.

    Agents of one region look alike to it, so which of them gets which of the region's resources is left to chance.
    """
    refuse_too_large(problem, "hungarian-region")
    representatives = np.array(
        [problem.domain.types_of(region)[problem.domain.representative(region)] for region in problem.regions]
    )
    rows = checked_utility(problem.domain, representatives)
    shuffled = np.argsort(draws(streams(seed, keys_of(problem.agent_ids)), 0, SELECTION), kind="stable")
    resource_of = np.empty(problem.agents, dtype=np.int64)
    resource_of[shuffled] = assign(rows[problem.region_index[shuffled]])
    promise = region_only("a centre knows everybody's region and takes them for its representative")
    return centralised(problem, "hungarian-region", resource_of, promise)

"""The maximally private matching: a resource for everybody, as far as they go, by lot."""

from __future__ import annotations

import numpy as np

from palmatch.baselines.common import centralised
from palmatch.guarantee import region_only
from palmatch.problem import Matching, Problem
from palmatch.rounds.draws import SELECTION, draws, keys_of, streams


def random(problem: Problem, *, seed: int) -> Matching:
    """Pair shuffled agents with shuffled resources."""
    agents = np.argsort(draws(streams(seed, keys_of(problem.agent_ids)), 0, SELECTION), kind="stable")
    resources = np.argsort(draws(streams(seed, ~keys_of(problem.resource_ids)), 0, SELECTION), kind="stable")
    pairs = min(problem.agents, problem.resources)
    resource_of = np.full(problem.agents, -1, dtype=np.int64)
    resource_of[agents[:pairs]] = resources[:pairs]
    return centralised(problem, "random", resource_of, region_only("nobody's wishes are looked at"))

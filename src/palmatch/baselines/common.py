"""What all baselines share: their size limit, and how an assignment becomes a `Matching`."""

from __future__ import annotations

import numpy as np

from palmatch.errors import InputError
from palmatch.guarantee import Guarantee
from palmatch.problem import IntArray, Matching, Problem

# A dense table of this many utilities takes 1.2 GB; past it a centralised baseline would take hours anyway.
MOST_PAIRS = 150_000_000


def refuse_too_large(problem: Problem, method: str) -> None:
    """Refuse problems whose table of all utilities would not fit."""
    pairs = problem.agents * problem.resources
    if pairs > MOST_PAIRS:
        raise InputError(
            f"{method} looks at every pair of agent and resource, here {pairs:,}, and takes at most {MOST_PAIRS:,}: "
            "leave it out, or match a smaller area."
        )


def centralised(problem: Problem, method: str, resource_of: IntArray, guarantee: Guarantee) -> Matching:
    """Return the matching of a method that needs no rounds and charges nobody."""
    return Matching(
        method=method,
        resource_of=resource_of,
        utility=problem.true_utility_of(resource_of),
        guarantee=guarantee,
        epsilon=np.full(problem.agents, guarantee.epsilon),
        charged=np.zeros(problem.agents, dtype=np.int64),
    )

"""From what a method found to the matching that it returns, with what holds for the whole problem."""

from __future__ import annotations

from dataclasses import replace
from warnings import warn

import numpy as np

from palmatch.domain import FloatArray, HasPrior, IntArray
from palmatch.errors import MeaninglessSetting
from palmatch.guarantee import doubts, with_disclosure, with_limits, with_partners, with_prior, with_source
from palmatch.matching import Guarantee, Matching, Trace
from palmatch.problem import Problem


def make_matching(
    problem: Problem,
    found: IntArray,
    *,
    guarantee: Guarantee,
    epsilon: FloatArray,
    charged: IntArray,
    rounds: int = 0,
    epsilon_is_public: bool = True,
    trace: Trace | None = None,
) -> Matching:
    """Return the matching of a method.

    Parameters
    ----------
    found:
        For each agent its resource, -1 for none; or, for a problem with `capacities`, one row (agent, resource) a unit.
    """
    units = None
    if problem.capacities is None:
        resource_of, utility = found, problem.true_utility_of(found)
    else:
        units = found[np.argsort(found[:, 0] * problem.resources + found[:, 1])].astype(np.int64)
        resource_of = np.full(problem.agents, -1, dtype=np.int64)
        # From the last to the first, so that the first one stays.
        resource_of[units[::-1, 0]] = units[::-1, 1]
        utility = np.bincount(units[:, 0], problem.true_utility_of_units(units), problem.agents).astype(np.float64)
    return Matching(
        method="",
        resource_of=resource_of,
        utility=utility,
        guarantee=guarantee,
        epsilon=epsilon,
        charged=charged,
        rounds=rounds,
        epsilon_is_public=epsilon_is_public,
        trace=trace,
        several=units,
    )


def finished(problem: Problem, matching: Matching) -> Matching:
    """Return a method's matching with what holds for the whole problem: every matching passes through here once."""
    guarantee = with_disclosure(matching.guarantee, problem.disclosure)
    if problem.pairs:
        guarantee = with_partners(guarantee)
    elif problem.capacities is not None:
        guarantee = with_limits(guarantee)
    guarantee = with_source(guarantee, problem.source)
    if isinstance(problem.domain, HasPrior):
        guarantee = with_prior(guarantee, problem.domain.prior_source)
    found = doubts(guarantee, problem.agents)
    if guarantee.notion == "PLDP":
        found = (*problem.warnings, *found)
    for doubt in found:
        warn(doubt, MeaninglessSetting, stacklevel=4)
    epsilon = matching.epsilon
    if problem.disclosure is not None:
        epsilon = epsilon + problem.disclosure.epsilon
    return replace(
        matching,
        guarantee=replace(guarantee, warnings=found),
        epsilon=epsilon,
        agent_ids=problem.agent_ids,
        resource_ids=problem.resource_ids,
        library=problem.library,
        mutual=problem.pairs,
    )

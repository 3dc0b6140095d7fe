"""Matchings by a centre: the optimum, the optimum on regions alone, the best pair first, and a random matching.

The optimum on regions (ε = 0) is the baseline of any private method: it needs no budget at all, only a centre.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError
from palmatch.guarantee import no_privacy, region_only
from palmatch.matchers.greedy import greedy_units, random_units
from palmatch.matchers.optimal import optimal_matching, shuffled_optimal_matching
from palmatch.matchers.partners import greedy_pairs, random_pairs
from palmatch.matching import Guarantee, Matching
from palmatch.methods.registry import Play
from palmatch.methods.results import make_matching
from palmatch.methods.workspace import Settings, Workspace
from palmatch.problem import IntArray, Problem, checked_utility
from palmatch.streams import SELECTION, Randomness, draws

# A dense table of this many utilities takes 1.2 GB; past it a centralised baseline would take hours anyway.
MOST_PAIRS = 150_000_000

# The optimum of pairs looks at every pair, several times: of more agents it would take hours.
MOST_PARTNERS = 2500


def refuse_too_large(problem: Problem, method: str) -> None:
    """Refuse problems whose table of all utilities would not fit."""
    if problem.pairs and problem.agents > MOST_PARTNERS:
        raise InputError(
            f"{method} finds the best pairs of all, here among {problem.agents:,} agents, and takes at most "
            f"{MOST_PARTNERS:,}: leave it out, or match fewer agents."
        )
    pairs = problem.agents * problem.resources
    if pairs > MOST_PAIRS:
        raise InputError(
            f"{method} looks at every pair of agent and resource, here {pairs:,}, and takes at most {MOST_PAIRS:,}: "
            "leave it out, or match a smaller area."
        )


def centralised(problem: Problem, found: IntArray, guarantee: Guarantee) -> Matching:
    """Return the matching of a method that needs no rounds and charges no agent."""
    return make_matching(
        problem,
        found,
        guarantee=guarantee,
        epsilon=np.full(problem.agents, guarantee.epsilon),
        charged=np.zeros(problem.agents, dtype=np.int64),
    )


def optimal_welfare(problem: Problem) -> float:
    """Return the welfare of the full-information optimum, computed from the agents' true utilities."""
    refuse_too_large(problem, "hungarian")
    found = optimal_matching(problem.true_utility(), problem.capacities)
    if problem.capacities is not None:
        return float(problem.true_utility_of_units(found).sum())
    return float(problem.true_utility_of(found).sum())


def prepare_hungarian(workspace: Workspace, settings: Settings, trace: bool) -> Play:  # noqa: ARG001 - one protocol for all
    """Prepare the full-information optimum: what everything else is compared with."""
    problem = workspace.problem
    refuse_too_large(problem, "hungarian")
    guarantee = no_privacy("a centre knows all utilities")
    return lambda _chance: centralised(problem, optimal_matching(problem.true_utility(), problem.capacities), guarantee)


def prepare_hungarian_region(workspace: Workspace, settings: Settings, trace: bool) -> Play:  # noqa: ARG001 - one protocol for all
    """Prepare the optimum of a centre that knows only regions: each agent counts as its region's representative."""
    problem = workspace.problem
    refuse_too_large(problem, "hungarian-region")
    representatives = np.array(
        [problem.domain.types_of(region)[problem.domain.representative(region)] for region in problem.regions]
    )
    rows = checked_utility(problem.domain, representatives)
    guarantee = region_only("a centre knows each agent's region and takes it for the region's representative")

    def run(chance: Randomness) -> Matching:
        # Agents of one region look alike, so public randomness decides which of them gets which resource.
        found = shuffled_optimal_matching(rows[problem.region_index], problem.capacities, chance.public)
        return centralised(problem, found, guarantee)

    return run


def prepare_greedy(workspace: Workspace, settings: Settings, trace: bool) -> Play:  # noqa: ARG001 - one protocol for all
    """Prepare the best pair first: at least half of the optimum. Ties by agent, then by the resource's public id."""
    problem = workspace.problem
    refuse_too_large(problem, "greedy")

    def run(chance: Randomness) -> Matching:  # noqa: ARG001 - nothing is drawn
        by_id = np.argsort(problem.resource_order)
        if problem.capacities is not None and problem.pairs:
            found = greedy_pairs(problem.true_utility(), problem.capacities, by_id)
            return centralised(problem, found, no_privacy("a centre knows all utilities"))
        order = np.argsort(-problem.true_utility(by_id), axis=None, kind="stable")
        units = greedy_units(order, problem.capacity[by_id], problem.demand, _allowed(problem, by_id))
        units[:, 1] = by_id[units[:, 1]]
        if problem.capacities is not None:
            return centralised(problem, units, no_privacy("a centre knows all utilities"))
        resource_of = np.full(problem.agents, -1, dtype=np.int64)
        resource_of[units[:, 0]] = units[:, 1]
        return centralised(problem, resource_of, no_privacy("a centre knows all utilities"))

    return run


def prepare_random(workspace: Workspace, settings: Settings, trace: bool) -> Play:  # noqa: ARG001 - one protocol for all
    """Prepare the matching of shuffled agents with shuffled resources."""
    problem = workspace.problem

    def run(chance: Randomness) -> Matching:
        agents = np.argsort(draws(chance.public, 0, SELECTION), kind="stable")
        if problem.capacities is not None and problem.pairs:
            found = random_pairs(problem.capacities, agents)
            return centralised(problem, found, region_only("no agent's utilities are looked at"))
        resources = np.argsort(draws(chance.of_resources(problem.resource_ids), 0, SELECTION), kind="stable")
        if problem.capacities is not None:
            units = random_units(problem.capacities, agents, resources)
            return centralised(problem, units, region_only("no agent's utilities are looked at"))
        pairs = min(problem.agents, problem.resources)
        resource_of = np.full(problem.agents, -1, dtype=np.int64)
        resource_of[agents[:pairs]] = resources[:pairs]
        return centralised(problem, resource_of, region_only("no agent's utilities are looked at"))

    return run


def _allowed(problem: Problem, columns: IntArray) -> NDArray[np.bool_]:
    """Return which pairs are not in conflict, with resources in the order of `columns`."""
    capacities = problem.capacities
    if capacities is None:
        return np.ones((problem.agents, len(columns)), dtype=np.bool_)
    return capacities.allowed(problem.agents, problem.resources)[:, columns]

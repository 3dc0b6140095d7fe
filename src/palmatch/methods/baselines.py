"""What private methods are compared with: the truth, regions alone or noisy places, matched by a centre or by ALMA.

The optimum on regions (ε = 0) is the baseline of any private method: it needs no budget at all, only a centre.
"""

from __future__ import annotations

import numpy as np

from palmatch.errors import InputError
from palmatch.guarantee import no_privacy, region_only
from palmatch.matchers.lists import ValueLists
from palmatch.matchers.optimal import (
    MOST_PAIRS,
    MOST_RESOURCES,
    greedy_units,
    optimal_matching,
    random_units,
    shuffled_optimal_matching,
)
from palmatch.matchers.partners import greedy_pairs, random_pairs
from palmatch.matching import Matching
from palmatch.mechanisms import laplace
from palmatch.methods.reports import lists_suffice, play_lists, priors_of
from palmatch.methods.workspace import Play, Settings, Workspace, budgets, make_matching, representative_utilities
from palmatch.problem import Domain, FloatArray, HasCoordinates, IntArray, Problem, checked_utility
from palmatch.regions.noise import linear_backoff
from palmatch.regions.own import own_lists
from palmatch.regions.tables import best_columns, grid_domain
from palmatch.streams import SELECTION, Randomness, draws

# Own lists of more entries take gigabytes.
_MOST_ENTRIES = 100_000_000

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


def refuse_beyond_auction(problem: Problem, method: str) -> None:
    """Refuse what a centre can neither hold in a table nor match by an auction."""
    with_lists = problem.capacities is not None and lists_suffice(problem)
    if not with_lists and (problem.capacities is not None or problem.resources <= MOST_RESOURCES):
        refuse_too_large(problem, method)


def optimal_welfare(problem: Problem) -> float:
    """Return the welfare of the full-information optimum, computed from the agents' true utilities."""
    refuse_too_large(problem, "hungarian")
    found = optimal_matching(problem.true_utility(), problem.capacities)
    if problem.capacities is not None:
        return float(problem.true_utility_of_units(found).sum())
    return float(problem.true_utility_of(found).sum())


def prepare_hungarian(workspace: Workspace, _settings: Settings, _trace: bool) -> Play:
    """Prepare the full-information optimum: what everything else is compared with."""
    problem, guarantee = workspace.problem, no_privacy("a centre knows all utilities")
    return lambda _chance: make_matching(
        problem, optimal_matching(problem.true_utility(), problem.capacities), guarantee=guarantee
    )


def prepare_hungarian_region(workspace: Workspace, _settings: Settings, _trace: bool) -> Play:
    """Prepare the optimum of a centre that knows only regions: each agent counts as its region's representative."""
    problem = workspace.problem
    rows = representative_utilities(problem)
    guarantee = region_only("a centre knows each agent's region and takes it for the region's representative")

    def run(chance: Randomness) -> Matching:
        # Agents of one region look alike, so public randomness decides which of them gets which resource.
        found = shuffled_optimal_matching(rows[problem.region_index], problem.capacities, chance.public)
        return make_matching(problem, found, guarantee=guarantee)

    return run


def prepare_greedy(workspace: Workspace, _settings: Settings, _trace: bool) -> Play:
    """Prepare the best pair first: at least half of the optimum. Ties by agent, then by the resource's public id."""
    problem = workspace.problem

    def run(_chance: Randomness) -> Matching:
        by_id, capacities = np.argsort(problem.resource_order), problem.capacities
        if capacities is not None and problem.pairs:
            units = greedy_pairs(problem.true_utility(), capacities, by_id)
        else:
            order = np.argsort(-problem.true_utility(by_id), axis=None, kind="stable")
            allowed = np.ones((problem.agents, problem.resources), dtype=np.bool_)
            if capacities is not None:
                allowed = capacities.allowed(problem.agents, problem.resources)[:, by_id]
            units = greedy_units(order, problem.capacity[by_id], problem.demand, allowed)
            units[:, 1] = by_id[units[:, 1]]
        return make_matching(problem, units, guarantee=no_privacy("a centre knows all utilities"))

    return run


def prepare_random(workspace: Workspace, _settings: Settings, _trace: bool) -> Play:
    """Prepare the matching of shuffled agents with shuffled resources."""
    problem, guarantee = workspace.problem, region_only("no agent's utilities are looked at")

    def run(chance: Randomness) -> Matching:
        agents = np.argsort(draws(chance.public, 0, SELECTION), kind="stable")
        if problem.capacities is not None and problem.pairs:
            return make_matching(problem, random_pairs(problem.capacities, agents), guarantee=guarantee)
        resources = np.argsort(draws(chance.of_resources(problem.resource_ids), 0, SELECTION), kind="stable")
        if problem.capacities is not None:
            units = random_units(problem.capacities, agents, resources)
        else:
            pairs = min(problem.agents, problem.resources)
            units = np.column_stack((agents[:pairs], resources[:pairs]))
        return make_matching(problem, units, guarantee=guarantee)

    return run


def prepare_alma(workspace: Workspace, settings: Settings, trace: bool) -> Play:
    """Prepare ALMA: each agent goes down its own list, without privacy."""
    problem = workspace.problem
    lists = own_value_lists(problem, problem.domain, problem.types)
    chances, guarantee = linear_chances(lists, settings.gamma), no_privacy("each agent goes down its own list")

    def run(chance: Randomness) -> Matching:
        ended = play_lists(workspace, lists, chances, chance, trace)
        return make_matching(problem, ended.resource_of, guarantee=guarantee, rounds=ended.rounds, trace=ended.trace)

    return run


def prepare_alma_geo(workspace: Workspace, settings: Settings, trace: bool) -> Play:
    """Prepare ALMA on noisy places."""
    problem, epsilon = workspace.problem, budgets(workspace.problem, settings)

    def run(chance: Randomness) -> Matching:
        seen = laplace.obfuscate(problem, chance, epsilon=epsilon, resources_too=True)
        lists = own_value_lists(problem, seen.city, seen.types)
        ended = play_lists(workspace, lists, linear_chances(lists, settings.gamma), chance.after_reports(), trace)
        return make_matching(
            problem,
            ended.resource_of,
            guarantee=seen.guarantee,
            epsilon=epsilon,
            charged=np.ones(problem.agents, dtype=np.int64),
            rounds=ended.rounds,
            trace=ended.trace,
        )

    return run


def prepare_hungarian_geo(workspace: Workspace, settings: Settings, _trace: bool) -> Play:
    """Prepare the centre that takes noisy places for the true ones."""
    problem, epsilon = workspace.problem, budgets(workspace.problem, settings)

    def run(chance: Randomness) -> Matching:
        seen = laplace.obfuscate(problem, chance, epsilon=epsilon, resources_too=True)
        return _match_noisy(problem, seen, epsilon, checked_utility(seen.city, seen.types))

    return run


def prepare_bayes(workspace: Workspace, settings: Settings, _trace: bool) -> Play:
    """Prepare the centre that remaps the noisy places of agents by Bayes' rule: post-processing."""
    problem, epsilon = workspace.problem, budgets(workspace.problem, settings)
    regions, priors = workspace.regions, priors_of(problem, workspace.regions)

    def run(chance: Randomness) -> Matching:
        seen = laplace.obfuscate(problem, chance, epsilon=epsilon, resources_too=False)
        worth = laplace.remap_by_bayes(problem, regions, priors, seen, epsilon)
        return _match_noisy(problem, seen, epsilon, worth)

    return run


def _match_noisy(problem: Problem, seen: laplace.Obfuscated, epsilon: FloatArray, worth: FloatArray) -> Matching:
    charged = np.ones(problem.agents, dtype=np.int64)
    found = optimal_matching(worth, problem.capacities)
    return make_matching(problem, found, guarantee=seen.guarantee, epsilon=epsilon, charged=charged)


def linear_chances(lists: ValueLists, gamma: float) -> IntArray:
    """Back-off chances over GRID of own lists, best first, from what the next entry is worth less. Eq. (linear)."""
    values = lists.values.reshape(len(lists.list_of), -1)
    return linear_backoff(values, np.roll(values, -1, axis=1), gamma).ravel()


def own_value_lists(problem: Problem, domain: Domain, types: FloatArray) -> ValueLists:
    """Return each agent's own list, best first; `domain` and `types` are not the truth where places are obfuscated."""
    if problem.agents * problem.ranks > _MOST_ENTRIES:
        raise InputError(
            f"ALMA keeps every agent's list, here {problem.agents:,} lists of {problem.ranks:,}: "
            "bound them with interest (--interest 20)."
        )
    if grid_domain(problem) is not None and isinstance(domain, HasCoordinates):
        places, values = own_lists(domain, types, problem.resource_order, problem.ranks)
    else:
        places = np.empty((problem.agents, problem.ranks), dtype=np.int64)
        values = np.empty(places.shape)
        by_id = np.argsort(problem.resource_order)
        blocks = max(1, problem.agents * problem.resources // 10_000_000)
        for block in np.array_split(np.arange(problem.agents), blocks):
            utilities = checked_utility(domain, types[block], by_id)
            best = best_columns(utilities, problem.ranks)
            places[block], values[block] = by_id[best], np.take_along_axis(utilities, best, axis=1)
    start = np.arange(problem.agents + 1, dtype=np.int64) * problem.ranks
    return ValueLists(np.arange(problem.agents), start, places.ravel(), values.ravel())

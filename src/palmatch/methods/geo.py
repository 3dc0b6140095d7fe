"""Methods on noisy places of agents: the optimum, with or without Bayesian remapping, and ALMA."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from palmatch.matchers.optimal import optimal_matching
from palmatch.matching import Matching
from palmatch.mechanisms import laplace
from palmatch.mechanisms.laplace import Obfuscated, remap_by_bayes
from palmatch.methods.centralised import centralised, refuse_too_large
from palmatch.methods.lists import linear_chances, own_value_lists, played
from palmatch.methods.opening import priors_of
from palmatch.methods.registry import Play
from palmatch.methods.workspace import Settings, Workspace, budgets
from palmatch.problem import FloatArray, IntArray, Problem, checked_utility
from palmatch.streams import Randomness


def prepare_bayes(workspace: Workspace, settings: Settings, trace: bool) -> Play:  # noqa: ARG001 - nothing to trace
    """Prepare the centre that remaps the noisy places of agents by Bayes' rule: post-processing."""
    problem, epsilon = workspace.problem, budgets(workspace.problem, settings)
    refuse_too_large(problem, "hungarian-geo-bayes")
    regions, priors = workspace.regions, priors_of(problem, workspace.regions)

    def run(chance: Randomness) -> Matching:
        seen = laplace.obfuscate(problem, chance, epsilon=epsilon, resources_too=False)
        return _centre(problem, seen, epsilon, remap_by_bayes(problem, regions, priors, seen, epsilon))

    return run


def prepare_hungarian_geo(workspace: Workspace, settings: Settings, trace: bool) -> Play:  # noqa: ARG001 - nothing to trace
    """Prepare the centre that takes noisy places for the true ones."""
    problem, epsilon = workspace.problem, budgets(workspace.problem, settings)
    refuse_too_large(problem, "hungarian-geo")

    def run(chance: Randomness) -> Matching:
        seen = laplace.obfuscate(problem, chance, epsilon=epsilon, resources_too=True)
        return _centre(problem, seen, epsilon, checked_utility(seen.city, seen.types))

    return run


def prepare_alma_geo(workspace: Workspace, settings: Settings, trace: bool) -> Play:
    """Prepare ALMA on noisy places."""
    problem, epsilon = workspace.problem, budgets(workspace.problem, settings)

    def run(chance: Randomness) -> Matching:
        seen = laplace.obfuscate(problem, chance, epsilon=epsilon, resources_too=True)
        lists = own_value_lists(problem, seen.city, seen.types)
        ended = played(workspace, lists, linear_chances(lists, settings.gamma), chance.after_reports(), trace)
        found = centralised(problem, ended.resource_of, seen.guarantee)
        return replace(found, epsilon=epsilon, charged=_one_each(problem), rounds=ended.rounds, trace=ended.trace)

    return run


def _centre(problem: Problem, seen: Obfuscated, epsilon: FloatArray, worth: FloatArray) -> Matching:
    found = centralised(problem, optimal_matching(worth, problem.capacities), seen.guarantee)
    return replace(found, epsilon=epsilon, charged=_one_each(problem))


def _one_each(problem: Problem) -> IntArray:
    return np.ones(problem.agents, dtype=np.int64)

"""Rival mechanisms: the exponential mechanism keeps ε, and remapping is Bayes' rule with public knowledge."""

from dataclasses import replace
from math import exp
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.mechanisms import response
from palmatch.mechanisms.channel import enforce_epsilon, keeps
from palmatch.mechanisms.laplace import obfuscate, remap_by_bayes
from palmatch.mechanisms.response import exponential_channel
from palmatch.methods.reports import prior_of, priors_of

RIVALS = ("hungarian-exponential", "hungarian-geo-bayes")


@pytest.fixture(scope="module")
def workspace():
    night = pm.data.city.batch(5.0)
    return pm.Workspace(pm.mobility.problem(night.requests, night.vehicles, edge=2000, spacing=400))


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0, 30.0])
def test_the_exponential_mechanism_keeps_its_epsilon_and_uses_it(workspace, epsilon):
    for region in workspace.regions[:4]:
        chances = exponential_channel(region, epsilon, prior=prior_of(workspace.problem, region)).chances
        assert keeps(chances, epsilon)
        assert not keeps(chances, 0.98 * epsilon) or epsilon > 20


def test_two_types_are_told_apart_by_randomised_response(workspace):
    region = workspace.regions[0]
    two: Any = SimpleNamespace(types=region.types[:2], utilities=region.utilities[:2])
    chances = exponential_channel(two, 1.0, prior=np.array([0.5, 0.5])).chances / GRID
    np.testing.assert_allclose(chances, np.array([[exp(1), 1], [1, exp(1)]]) / (1 + exp(1)), rtol=1e-9)


def test_a_distribution_that_is_too_sharp_would_be_caught(workspace, monkeypatch):
    """Without `enforce_epsilon` a search that overshoots breaks the guarantee; with it, it cannot."""
    region, sharpest = workspace.regions[0], response._sharpest
    prior = prior_of(workspace.problem, region)
    monkeypatch.setattr(response, "_sharpest", lambda apart, epsilon: sharpest(apart, 2 * epsilon))
    assert keeps(exponential_channel(region, 1.0, prior=prior).chances, 1.0)
    monkeypatch.setattr(response, "enforce_epsilon", lambda wanted, _epsilon: enforce_epsilon(wanted, 9.0))
    assert not keeps(exponential_channel(region, 1.0, prior=prior).chances, 1.0)


def remap(workspace, seen, epsilon):
    priors = priors_of(workspace.problem, workspace.regions)
    return remap_by_bayes(workspace.problem, workspace.regions, priors, seen, epsilon)


def naive_bayes(workspace, places, epsilon):
    problem = workspace.problem
    worth = np.full((problem.agents, problem.resources), 1e-12)
    for agent, (place, number) in enumerate(zip(places, problem.region_index, strict=True)):
        region = workspace.regions[number]
        prior = prior_of(problem, region)
        weights = [
            p * exp(-epsilon / 1000 * np.hypot(*(place[:2] - x[:2]))) for p, x in zip(prior, region.types, strict=True)
        ]
        for column, resource in enumerate(region.resources):
            values = region.utilities[:, column]
            worth[agent, resource] = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    return worth


def test_remapping_is_bayes_rule_over_the_square(workspace):
    problem, epsilon = workspace.problem, np.full(workspace.problem.agents, 0.7)
    seen = obfuscate(problem, workspace.randomness(3), epsilon=epsilon, resources_too=False)
    np.testing.assert_allclose(remap(workspace, seen, epsilon), naive_bayes(workspace, seen.types, 0.7), rtol=1e-9)


def test_a_large_epsilon_gives_the_optimum_of_the_grid(workspace):
    exact = replace(workspace.problem, truth=workspace.problem.types)
    best = pm.match(exact, "hungarian").welfare
    for method in RIVALS:
        assert pm.match(exact, method, epsilon=500.0, seed=1).welfare >= 0.97 * best


def test_a_matcher_of_noisy_places_sees_nothing_else_of_an_agent(workspace):
    """The grid point of the true place is not handed on with the noisy place."""
    problem, epsilon = workspace.problem, np.full(workspace.problem.agents, 0.7)
    moved = replace(problem, types=np.column_stack((problem.types[:, :5], np.zeros(problem.agents))))
    one, two = (
        obfuscate(each, workspace.randomness(3), epsilon=epsilon, resources_too=False) for each in (problem, moved)
    )
    np.testing.assert_array_equal(one.types, two.types)
    np.testing.assert_array_equal(remap(workspace, one, epsilon), remap(pm.Workspace(moved), two, epsilon))


def test_an_observation_without_information_leaves_the_prior(workspace):
    epsilon = np.full(workspace.problem.agents, 1e-9)
    seen = obfuscate(workspace.problem, workspace.randomness(3), epsilon=epsilon, resources_too=False)
    worth = remap(workspace, seen, epsilon)
    for agent, number in enumerate(workspace.problem.region_index):
        region = workspace.regions[number]
        np.testing.assert_allclose(
            worth[agent, region.resources], prior_of(workspace.problem, region) @ region.utilities, rtol=1e-5
        )


def test_each_rival_states_its_own_notion(workspace):
    notions = {name: pm.match(workspace.problem, name, seed=1).guarantee.notion for name in RIVALS}
    assert notions == {name: pm.METHODS[name].notion for name in RIVALS}
    assert notions["hungarian-exponential"] == "PLDP"

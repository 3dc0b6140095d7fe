"""Budgets and costs of all agents are found in one pass over the agents: those of a plain loop over regions."""

from __future__ import annotations

import numpy as np

import palmatch as pm
from palmatch.methods import Workspace
from palmatch.methods.assembly import largest_costs
from palmatch.policies.published import published
from palmatch.privacy.costs import ActionCosts, largest_own_costs
from palmatch.privacy.sound import Account, pure_account, renyi_worth, rounded_down, sound_allowance


def account(number: int) -> Account:
    costs = ActionCosts(np.array([0.1 + number, 0.2]), np.array([0.3, 0.0]))
    if number % 2:
        return pure_account(costs)
    return Account("renyi", 8.0, costs, lambda epsilon: renyi_worth(epsilon, order=8.0 + number, delta=1e-5))


def test_the_budget_of_every_agent_is_worth_what_its_own_region_says():
    chance = np.random.default_rng(4)
    # Unsorted, and with regions without agents, the last one too.
    region_of_agent = chance.choice([0, 1, 3, 4, 6], 200)
    accounts = [account(number) for number in range(8)]
    epsilon = chance.uniform(0.0, 5.0, 200)
    expected = np.empty(200, dtype=np.int64)
    for number, one in enumerate(accounts):
        members = region_of_agent == number
        expected[members] = rounded_down(one.worth(epsilon[members]))
    found = sound_allowance(accounts, region_of_agent, epsilon, delta=1e-5)
    np.testing.assert_array_equal(found.budget, expected)
    assert len(set(expected.tolist())) > 100


def test_the_largest_cost_of_every_agent_is_that_of_its_own_region():
    batch = pm.data.city.batch(8.0, seed=1)
    problem = pm.mobility.problem(batch.requests[:40], batch.vehicles[:12], edge=2000)
    workspace, policy = Workspace(problem), published()
    noise = workspace.plays(policy)
    expected = np.empty(problem.agents)
    for number, (region, play) in enumerate(zip(workspace.regions, noise, strict=True)):
        members = np.flatnonzero(problem.region_index == number)
        own = np.array([workspace.own.of(int(agent)) for agent in members])
        expected[members] = largest_own_costs(region, play, policy, own, 32.0)
    assert len(workspace.regions) > 3
    np.testing.assert_array_equal(largest_costs(workspace, policy, noise, 32.0), expected)

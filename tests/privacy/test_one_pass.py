"""Budgets and costs of all agents are found in one pass over the agents: those of a plain loop over regions."""

from __future__ import annotations

import numpy as np
import pytest

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.methods import Workspace
from palmatch.methods.assembly import largest_costs
from palmatch.policies.published import published
from palmatch.privacy.costs import ActionCosts, largest_own_costs
from palmatch.privacy.few_own_costs import are_below, fill_worst_factors
from palmatch.privacy.few_types import fill_factors
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


@pytest.mark.parametrize("order", [1.0, 7.0, 32.0])
def test_the_worst_factors_of_a_rank_set_are_the_largest_of_any_type(order):
    chance = np.random.default_rng(3)
    table, entries = chance.uniform(0.2, 1.0, (12, 32)).astype(np.float32), np.array([7, 0, 4, 11, 2])
    common, scale = chance.dirichlet(np.ones(5)) * GRID, (0.4 * GRID / table[entries].sum(axis=0)).astype(np.float32)
    up, down, norms = (np.empty((rows, 32), np.float32) for rows in (5, 5, 2))
    base, means = np.empty(32, np.float32), np.empty(5, np.float32)
    fill_factors(table, entries, common.astype(np.int64), scale, 0.6, order, up, down, norms, base, means)
    highest, lowest = np.empty((5, 1), np.float32), np.empty((5, 1), np.float32)
    assert fill_worst_factors(table, entries, common.astype(np.int64), scale, 0.6, order, base, highest, lowest)
    np.testing.assert_allclose(highest[:, 0], up.max(axis=1), rtol=1e-4)
    np.testing.assert_allclose(lowest[:, 0], down.max(axis=1), rtol=1e-4)
    # What single precision does not hold bounds nothing.
    assert not fill_worst_factors(table, entries, np.full(5, 2**20), scale, 0.6, order * 9, base, highest, lowest)


@pytest.mark.parametrize(("ratio", "power"), [(0.01, 0), (100.0, 1)])
def test_worst_factors_count_only_where_single_precision_holds_their_squares(ratio, power):
    """Rare in one case, so that (m/p)^λ is large, and frequent in the other, so that (p/m)^{λ+1} is."""
    ones, entries, common = np.ones((3, 4), np.float32), np.arange(3), np.full(3, 2**30)
    rest = 0.01
    scale = np.full(4, (ratio - rest) * 2**30, np.float32)
    given = ones, entries, common, scale, rest
    found = [np.empty(4, np.float32), *(np.empty((3, 1), np.float32) for _ in range(2))]
    # Factors of 1e16 have squares of 1e32, which are held; of 1e20, not.
    assert fill_worst_factors(*given, 8.0 - power, *found)
    assert not fill_worst_factors(*given, 10.0 - power, *found)


@pytest.mark.parametrize("bounds", [(2.0, 1.0), (1.0, 2.0), (np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0)])
def test_a_rank_set_is_passed_over_only_if_no_agent_can_lose_more_there(bounds):
    low, known = np.ones(2, np.float32), np.full(2, 1.5, np.float32)
    assert are_below(low, low, known, np.zeros(2), 0.9)
    assert not are_below(low, low, np.zeros(2, np.float32), np.zeros(2), 0.9)
    assert are_below(low, low, np.zeros(2, np.float32), np.full(2, 1.5), 0.9)
    forths, backs = (np.array([1.0, last], np.float32) for last in bounds)
    assert not are_below(forths, backs, known, np.zeros(2), 0.9)

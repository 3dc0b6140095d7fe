"""Budgets: the units of the paper's formula, whole actions, and no agent past the budget."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.errors import InputError
from palmatch.methods import Workspace
from palmatch.palma.accountant import (
    ACCOUNTANTS,
    ORDERS,
    Account,
    affordable_actions,
    compute_epsilon,
    num_affordable_actions,
    privacy_filter,
    published_filter,
    rounded_down,
    rounded_up,
    typical_actions,
)
from palmatch.palma.costs import ActionCosts, action_costs
from palmatch.palma.policy import Policy
from palmatch.regions.noise import Layout

ONE = Layout(1, 1, 1)


def test_the_budget_of_the_paper_is_20_49():
    room = 32 * 1.0 + np.log(1e-5)
    assert room == pytest.approx(20.49, abs=0.005)
    assert affordable_actions(np.array([20.48]), np.array([1.0]), order=32, delta=1e-5)[0] == 1
    assert affordable_actions(np.array([20.50]), np.array([1.0]), order=32, delta=1e-5)[0] == 0


def test_the_papers_floor_is_0_36():
    assert compute_epsilon(np.array([0.0]), order=32, delta=1e-5)[0] == pytest.approx(0.36, abs=0.001)


@settings(max_examples=300)
@given(cost=st.floats(1e-9, 1e3), epsilon=st.floats(0, 50), delta=st.sampled_from([1e-9, 1e-5, 0.1]))
def test_affordable_actions_fit_the_budget_and_one_more_does_not(cost, epsilon, delta):
    costs, budget = np.array([cost]), np.array([epsilon])
    actions = affordable_actions(costs, budget, order=32, delta=delta)
    if actions[0] > 0:
        assert compute_epsilon(actions * costs, order=32, delta=delta)[0] <= epsilon
    next_one = compute_epsilon((actions + 1) * costs, order=32, delta=delta)[0]
    assert next_one > epsilon * (1 - 1e-12) or actions[0] > 2**52


def test_free_actions_are_unlimited_and_an_unaffordable_one_is_none():
    actions = affordable_actions(np.array([0.0, np.inf, 0.0]), np.array([1.0, 1.0, 0.1]), order=32, delta=1e-5)
    assert actions[0] > 2**59
    assert actions[1] == 0
    assert actions[2] == 0


def test_an_agent_that_can_afford_nothing_is_charged_nothing_and_shows_epsilon_0():
    allowance = published_filter(np.array([3.0, 3.0]), np.array([0.0, 1.0]), layout=ONE, order=32.0, delta=1e-5)
    assert allowance.budget.tolist() == [0, 6]
    assert allowance.epsilon_of(np.array([0, 6]))[0] == 0.0
    assert 0.36 < allowance.epsilon_of(np.array([0, 6]))[1] <= 1.0


@pytest.mark.parametrize("accountant", ["renyi", "pure"])
def test_only_what_a_pure_account_charged_is_an_epsilon_after_the_fact(accountant):
    morning = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(morning.requests, morning.vehicles, edge=2000)
    matching = pm.match(problem, "palma", settings=pm.Settings(epsilon=30.0, accountant=accountant), seed=0)
    # An agent stops long before its budget ends, but of a Rényi budget nothing less than the whole is an ε.
    assert (matching.epsilon == 30.0).all() == (accountant == "renyi")
    assert matching.epsilon.min() > 0


@pytest.mark.parametrize(
    ("epsilon", "delta", "order", "words"),
    [
        (-1.0, 1e-5, 32, "epsilon=-1"),
        (np.nan, 1e-5, 32, "epsilon=nan"),
        (1.0, 0.0, 32, "delta=0"),
        (1, 1e-5, 0, "order"),
    ],
)
def test_meaningless_budgets_are_refused(epsilon, delta, order, words):
    with pytest.raises(InputError, match=words):
        published_filter(np.array([1.0]), np.array([epsilon]), layout=ONE, order=order, delta=delta)


def test_a_budget_of_zero_plays_the_noise():
    morning = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(morning.requests, morning.vehicles)
    broke = pm.match(problem, "published", epsilon=0.0, seed=3)
    noise = pm.match(problem, "noise", seed=3)
    np.testing.assert_array_equal(broke.resource_of, noise.resource_of)


def test_every_agent_may_have_its_own_budget():
    morning = pm.data.city.batch(5.0)
    own = np.full(17, np.nan)
    own[3], own[4] = 0.0, 0.5
    problem = pm.mobility.problem(morning.requests, morning.vehicles, epsilon=own)
    for seed in range(5):
        matching = pm.match(problem, "published", epsilon=1.0, seed=seed)
        assert matching.epsilon[3] == 0.0
        assert matching.epsilon[4] <= 0.5
        assert matching.epsilon.max() <= 1.0
        assert not matching.epsilon_is_public


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_prices_are_above_what_actions_cost_and_budgets_below_what_they_are_worth(values):
    unit, slack = Fraction(1, 2**32), Fraction(1, 2 * 10**9)
    for value, price in zip(values, rounded_up(np.array(values)).tolist(), strict=True):
        # One unit more, also for what costs nothing: types may differ beyond the digits of a cost.
        assert price * unit >= Fraction(value) * (1 + slack) + unit
    for value, budget in zip(values, rounded_down(np.array(values)).tolist(), strict=True):
        assert budget * unit <= Fraction(value) * (1 - slack)


def account(number):
    costs = ActionCosts(np.array([0.1 + number, 0.2]), np.array([0.3, 0.0]))
    return Account(np.inf if number % 2 else 8.0 + number, costs, 1e-5)


def test_the_budget_of_every_agent_is_worth_what_its_own_region_says():
    chance = np.random.default_rng(4)
    # Unsorted, and with regions without agents, the last one too.
    region_of_agent = chance.choice([0, 1, 3, 4, 6], 200)
    accounts = [account(number) for number in range(8)]
    epsilon = chance.uniform(0.0, 5.0, 200)
    expected = np.empty(200, dtype=np.int64)
    for number, one in enumerate(accounts):
        members = region_of_agent == number
        expected[members] = rounded_down(one.budget_of(epsilon[members]))
    found = privacy_filter(accounts, region_of_agent, epsilon, delta=1e-5)
    np.testing.assert_array_equal(found.budget, expected)
    assert len(set(expected.tolist())) > 100


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    types=st.sampled_from([1, 5, 150]),
    epsilon=st.sampled_from([0.0, 0.1, 1.0, 8.0]),
    delta=st.sampled_from([1e-5, 1e-2]),
)
def test_an_account_charges_the_costs_at_its_order_and_auto_buys_as_much_as_any(seed, types, epsilon, delta):
    rows = np.random.default_rng(seed).uniform(0.05, 1.0, (types, 4))
    workspace, policy = Workspace(pm.table.problem(rows[:1], ["here"], {"here": rows})), Policy("any", 0.3, 0.1)
    region, play = workspace.regions[0], workspace.tables(policy).plays[0]
    bought = {}
    for name, accountant in ACCOUNTANTS.items():
        chosen = accountant.account(region, play, policy, epsilon=epsilon, delta=delta)
        expected = action_costs(region, play, policy, chosen.order)
        np.testing.assert_array_equal(chosen.costs.selection, expected.selection)
        np.testing.assert_array_equal(chosen.costs.backoff, expected.backoff)
        assert chosen.pure == (chosen.order == np.inf)
        assert chosen.pure or chosen.order in ORDERS
        course = typical_actions(chosen.costs, region.offsets, play.selection)
        bought[name] = num_affordable_actions(course, float(chosen.budget_of(np.array([epsilon]))[0]))
    assert bought["auto"] == max(bought["pure"], bought["renyi"])

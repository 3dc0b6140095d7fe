"""Our accounts beside Google's on what both can do: randomised response, its composition, and the conversion to (ε, δ).

A region plays randomised response when each of its types likes one resource, all like the rest alike, and the noise is
uniform.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import palmatch as pm
from exact_course import composed_delta
from palmatch.methods import Workspace
from palmatch.policies.compiled import selection_weights
from palmatch.policies.published import Policy, mixed
from palmatch.privacy.costs import action_costs
from palmatch.privacy.exact import exact_account
from palmatch.privacy.sound import ORDERS, renyi_worth

dp_accounting = pytest.importorskip(
    "dp_accounting", reason="the oracle is dp-accounting: pip install 'palmatch[exact]'"
)

REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE


def randomised_response(buckets, truth):
    """Return a region that plays it, its noise, its policy, and the chance of any bucket but one's own."""
    policy = Policy("response", truth, 0.0, selection_noise="uniform")
    types = np.full((buckets, buckets), 1e-6) + (1 - 1e-6) * np.eye(buckets)
    workspace = Workspace(pm.table.problem(types[:1], ["here"], {"here": types}, interest=1))
    region, play = workspace.regions[0], workspace.plays(policy)[0]
    own = selection_weights(region.utilities, region.entries, region.offsets)
    return region, play, policy, float(mixed(truth, own, play.selection)[0, 1])


def closed_form(epsilon, *, loss, actions):
    """δ(ε) of a course of two-sided randomised responses: `k` of them lose, the others win."""
    wins = np.arange(actions + 1)
    heads = 1 / (1 + np.exp(-loss))
    gaps = binom.pmf(wins, actions, heads) - np.exp(epsilon) * binom.pmf(wins, actions, 1 - heads)
    return np.maximum(gaps, 0.0).sum()


@pytest.mark.parametrize("actions", [1, 3, 20, 60])
@pytest.mark.parametrize("truth", [0.05, 0.2])
def test_a_course_of_randomised_responses_costs_what_the_closed_form_says(actions, truth):
    region, play, policy, other = randomised_response(2, truth)
    loss = np.log((1 - other) / other)
    epsilons = np.array([0.0, loss, 0.5, 1.0, 2.0])
    ours = composed_delta(region, play, policy, epsilons, actions=actions)
    expected = np.array([closed_form(epsilon, loss=loss, actions=actions) for epsilon in epsilons])
    assert (ours >= expected - 1e-15).all()
    np.testing.assert_allclose(ours, expected, atol=1e-6)


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_a_course_of_randomised_responses_costs_what_dp_accounting_says(buckets):
    region, play, policy, other = randomised_response(buckets, 0.2)
    theirs = dp_accounting.pld.privacy_loss_distribution.from_randomized_response(
        noise_parameter=buckets * other,
        num_buckets=buckets,
        value_discretization_interval=1e-9,
        neighboring_relation=REPLACE_ONE,
    )
    epsilons, composed = np.array([0.2, 0.7, 1.0]), theirs
    for actions in range(1, 17):
        # One by one they stay a handful of points, however small the interval.
        composed = theirs if actions == 1 else composed.compose(theirs)
        expected = [composed.get_delta_for_epsilon(float(epsilon)) for epsilon in epsilons]
        ours = composed_delta(region, play, policy, epsilons, actions=actions)
        np.testing.assert_allclose(ours, expected, atol=1e-6)


@pytest.mark.parametrize("truth", [0.02, 0.05, 0.2])
def test_a_budget_buys_as_many_randomised_responses_as_the_closed_form_allows(truth):
    region, play, policy, other = randomised_response(2, truth)
    loss, delta = np.log((1 - other) / other), 1e-5
    account = exact_account(region, play, policy, epsilon=1.0, delta=delta)
    fitting = [n for n in range(1, 1001) if closed_form(1.0, loss=loss, actions=n) <= delta]
    assert int(account.worth(np.array([1.0]))[0]) == max(fitting)


@pytest.mark.parametrize("buckets", [2, 3, 8])
@pytest.mark.parametrize("truth", [0.05, 0.2, 0.7])
def test_a_randomised_response_has_the_renyi_cost_that_dp_accounting_says(buckets, truth):
    region, play, policy, other = randomised_response(buckets, truth)
    orders = np.array(ORDERS, dtype=float)
    accountant = dp_accounting.rdp.RdpAccountant(orders + 1, neighboring_relation=REPLACE_ONE)
    accountant.compose(dp_accounting.RandomizedResponseDpEvent(buckets * other, buckets))
    ours = [float(action_costs(region, play, policy, order).selection[0]) / order for order in orders]
    np.testing.assert_allclose(ours, accountant.rdp, rtol=1e-6)


@pytest.mark.parametrize("order", [1.0, 8.0, 32.0, 256.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-3])
@pytest.mark.parametrize("cost", [0.5, 3.0, 20.0])
def test_a_renyi_cost_turns_into_the_epsilon_that_dp_accounting_says(order, delta, cost):
    epsilon, _ = dp_accounting.rdp.compute_epsilon([order + 1], [cost / order], delta)
    assert epsilon > 0
    assert renyi_worth(np.array([epsilon]), order=order, delta=delta)[0] == pytest.approx(cost, abs=1e-6)

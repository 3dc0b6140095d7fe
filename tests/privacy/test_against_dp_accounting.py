"""Our accounts beside Google's on what both can do: randomised response, and the conversion to (ε, δ).

A region plays randomised response when each of its types likes one resource, all like the rest alike, and the noise is
uniform.
"""

import numpy as np
import pytest

import palmatch as pm
from palmatch.methods import Workspace
from palmatch.palma.accountant import ORDERS, rdp_budget
from palmatch.palma.costs import action_costs
from palmatch.palma.policy import Policy, mixture
from palmatch.regions.noise import selection_weights

dp_accounting = pytest.importorskip("dp_accounting", reason="the oracle is dp-accounting, of the extra dev")

REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE


def randomised_response(buckets, truth):
    """Return a region that plays it, its noise, its policy, and the chance of any bucket but one's own."""
    policy = Policy("response", truth, 0.0, selection_noise="uniform")
    types = np.full((buckets, buckets), 1e-6) + (1 - 1e-6) * np.eye(buckets)
    workspace = Workspace(pm.table.problem(types[:1], ["here"], {"here": types}, interest=1))
    region, play = workspace.regions[0], workspace.tables(policy).plays[0]
    own = selection_weights(region.utilities, region.entries, region.offsets)
    return region, play, policy, float(mixture(truth, own, play.selection)[0, 1])


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
    assert rdp_budget(np.array([epsilon]), order=order, delta=delta)[0] == pytest.approx(cost, abs=1e-6)

"""What is computed for groups, or once for all orders, is what single types and single orders give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.methods import Workspace
from palmatch.policies import compiled
from palmatch.policies.published import Policy
from palmatch.privacy import costs
from palmatch.privacy.costs import action_costs, cost_curve
from palmatch.privacy.ranges import Groups, backoff_extremes, selection_range
from palmatch.privacy.renyi import Coins, log_moment, log_moment_of_coins, worst_log_moments_of_coins


def lists_of(seed: int, rows: int, *, wide: float):
    """Return utilities, rank sets over them, and groups of neighbouring rows of different sizes."""
    chance = np.random.default_rng(seed)
    utilities = np.exp(-wide * chance.random((rows, 7)))
    # Ties, which decide who gets what rounding leaves over.
    utilities[:, 3] = utilities[:, 5]
    sizes = chance.integers(1, 8, 5)
    entries = np.concatenate([chance.permutation(7)[:size] for size in sizes])
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    inner = np.sort(chance.permutation(np.arange(1, rows))[: rows // 3])
    return utilities, entries, offsets, np.concatenate(([0], inner, [rows]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 60), wide=st.sampled_from([0.0, 1e-9, 1.0, 60.0]))
def test_the_range_of_a_group_is_that_of_its_members_weights(seed, rows, wide):
    utilities, entries, offsets, starts = lists_of(seed, rows, wide=wide)
    weights = compiled.selection_weights(utilities, entries, offsets)
    low, high = selection_range(Groups(utilities, starts), entries, offsets)
    np.testing.assert_array_equal(low, np.minimum.reduceat(weights, starts[:-1], axis=0))
    np.testing.assert_array_equal(high, np.maximum.reduceat(weights, starts[:-1], axis=0))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 60),
    wide=st.sampled_from([0.0, 1e-9, 1.0, 60.0]),
    gamma=st.sampled_from([1e-9, 0.05, 0.5]),
)
def test_extreme_losses_give_the_extreme_back_offs(seed, rows, wide, gamma):
    utilities, entries, offsets, _ = lists_of(seed, rows, wide=wide)
    low, high = backoff_extremes(utilities, entries, offsets, gamma)
    weights = compiled.backoff_weights(utilities, entries, offsets, gamma)
    np.testing.assert_array_equal(low, weights.min(axis=0))
    np.testing.assert_array_equal(high, weights.max(axis=0))


@pytest.mark.parametrize("order", [1.0, 7.5, 32.0, 256.0])
@pytest.mark.parametrize("least", [0.4999999, 0.2, 1e-3, 1e-15])
def test_coins_found_by_powers_cost_what_all_of_them_cost(order, least):
    chance = np.random.default_rng(7)

    def coins(*shape):
        heads = np.exp(chance.uniform(np.log(least), np.log(0.5), shape))
        return Coins(heads, 1 - heads)

    mine, others = coins(9, 40), [coins(40), coins(40)]
    expected = np.zeros(9)
    for other in others:
        for one, two in ((mine, other), (other, mine)):
            expected = np.maximum(expected, log_moment_of_coins(one, two, order).max(axis=1))
    np.testing.assert_array_equal(worst_log_moments_of_coins(mine, others, order), expected)


@pytest.fixture(params=[400, 0], ids=["all pairs", "bounds"])
def few_types(request, monkeypatch):
    """Cost curves by either way."""
    monkeypatch.setattr(costs, "FEW_TYPES", request.param)


@pytest.mark.usefixtures("few_types")
def test_one_curve_gives_the_costs_of_every_order():
    night = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(night.requests, night.vehicles, edge=1500)
    workspace, policy = Workspace(problem), Policy("any", 0.4, 0.3)
    region, play = workspace.regions[0], workspace.plays(policy)[0]
    curve = cost_curve(region, play, policy)
    for order, ranks in ((np.inf, None), (8.0, 2), (32.0, 2), (8.0, None), (32.0, region.ranks + 3)):
        one, alone = curve(order, ranks), action_costs(region, play, policy, order, ranks=ranks)
        np.testing.assert_array_equal(one.selection, alone.selection)
        np.testing.assert_array_equal(one.backoff, alone.backoff)


@pytest.mark.parametrize("cells", [4_000_000, 100])
def test_bounds_give_the_costs_of_all_pairs(monkeypatch, cells):
    night = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(night.requests, night.vehicles, edge=1500)
    workspace, policy = Workspace(problem), Policy("any", 0.4, 0.3)
    region, play = workspace.regions[0], workspace.plays(policy)[0]
    expected = [action_costs(region, play, policy, order).selection for order in (2.0, 7.5, 64.0, np.inf)]
    monkeypatch.setattr(costs, "FEW_TYPES", 0)
    # Some rank sets at a time, where all of them would not fit the memory.
    monkeypatch.setattr(costs, "_MOST_CELLS", cells)
    curve = cost_curve(region, play, policy)
    found = [curve(order, None).selection for order in (2.0, 7.5, 64.0, np.inf)]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.usefixtures("few_types")
def test_prices_beyond_a_double_are_found():
    rows = np.exp(np.random.default_rng(2).uniform(-35.0, 0.0, (40, 3)))
    problem = pm.table.problem(rows[:1], ["here"], {"here": rows})
    workspace, policy = Workspace(problem), Policy("truth", 1.0, 0.0)
    region, play = workspace.regions[0], workspace.plays(policy)[0]
    found = action_costs(region, play, policy, 64.0).selection
    weights = compiled.selection_weights(region.utilities, region.entries, region.offsets)
    for rank, here in enumerate(np.split(weights / 2**53, region.offsets[1:-1], axis=1)):
        expected = max(log_moment(row, here, 64.0).max() for row in here)
        assert found[rank] == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert found.max() > 710

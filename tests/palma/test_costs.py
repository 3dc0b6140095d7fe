"""Costs against high-precision arithmetic from the integer weights, and against the definition, written out naively."""

from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.methods import Workspace
from palmatch.methods.rounds import largest_costs
from palmatch.palma.accountant import UNIT, rounded_up
from palmatch.palma.costs import (
    Region,
    action_costs,
    backoff_extremes,
    largest_own_costs,
    power,
    raise_row,
)
from palmatch.palma.policy import Policy, mixture, published, to_fixed_point
from palmatch.regions.noise import backoff_weights, selection_weights
from palmatch.regions.own import own_tables

mpmath.mp.dps = 50


def exact_cost(first, second, order):
    """λ D_{λ+1} in 50 digits, or the largest |ln p/q|; the larger of the two directions."""
    if np.isinf(order):
        return max(abs(mpmath.log(p / q)) for p, q in zip(first, second, strict=True))

    def one_way(p, q):
        return mpmath.log(mpmath.fsum(a ** (order + 1) / b**order for a, b in zip(p, q, strict=True)))

    return max(one_way(first, second), one_way(second, first))


def exact_chances(truth, own, noise):
    """Chances as they are drawn, from integers: the coin of ζ and then a weight over GRID."""
    coin = to_fixed_point(truth)
    fractions = [Fraction(coin * o + (GRID - coin) * n, GRID**2) for o, n in zip(own, noise, strict=True)]
    return [mpmath.mpf(f.numerator) / f.denominator for f in fractions]


def log_cost(first, second, order):
    """ln Σ p^{λ+1} q^{-λ} in log space, along the last axis."""
    logs, others = np.log(first), np.log(second)
    if np.isinf(order):
        return np.abs(logs - others).max(axis=-1)
    terms = (order + 1) * logs - order * others
    most = terms.max(axis=-1, keepdims=True)
    return most[..., 0] + np.log(np.exp(terms - most).sum(axis=-1))


def sides(truth, own, noise):
    """The chances of backing off and of staying, both from the integers."""
    return np.stack([mixture(truth, own, noise), mixture(truth, GRID - own, GRID - noise)], axis=-1)


def pairwise_costs(region, play, policy, own, order):
    """What each selection and each back-off costs each agent against every type: (agents, ranks), (agents, entries)."""
    rows = (np.ascontiguousarray(own), region.utilities)
    mine, others = (selection_weights(who, region.entries, region.offsets) for who in rows)
    coins, other_coins = (backoff_weights(who, region.entries, region.offsets, policy.gamma) for who in rows)

    def worst(one, two):
        costs = [max(log_cost(row, two, order).max(), log_cost(two, row, order).max()) for row in one]
        return np.maximum(costs, 0.0)

    selection = [
        worst(*(mixture(policy.truth_selection, part[:, a:b], play.selection[a:b]) for part in (mine, others)))
        for a, b in pairwise(region.offsets.tolist())
    ]
    backoff = [
        worst(*(sides(policy.truth_backoff, part[:, entry], noise) for part in (coins, other_coins)))
        for entry, noise in enumerate(play.backoff)
    ]
    return np.array(selection).T, np.array(backoff).T


def region_of(rows, policy):
    """A region of a table with these possible types, and its noise."""
    workspace = Workspace(pm.table.problem(rows[:1], ["here"], {"here": rows}))
    return workspace.regions[0], workspace.tables(policy).plays[0]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    types=st.integers(2, 5),
    resources=st.integers(2, 5),
    wide=st.sampled_from([1e-8, 0.3, 3.0, 30.0]),
    truth=st.sampled_from([0.05, 0.2, 0.9, 1.0]),
    order=st.sampled_from([1.0, 2.5, 32.0, 256.0, np.inf]),
)
def test_no_charge_is_below_the_cost_of_any_pair_of_types(seed, types, resources, wide, truth, order):
    rows = np.exp(-wide * np.random.default_rng(seed).random((types, resources)))
    policy = Policy("any", truth, truth)
    region, play = region_of(rows, policy)
    costs = action_costs(region, play, policy, order)
    weights = selection_weights(region.utilities, region.entries, region.offsets)
    coins = backoff_weights(region.utilities, region.entries, region.offsets, policy.gamma)

    def check(cost, chances):
        exact = max(exact_cost(one, two, order) for one in chances for two in chances)
        assert int(rounded_up(np.array([cost]))[0]) * mpmath.mpf(UNIT) >= exact
        assert cost == pytest.approx(float(exact), rel=1e-11, abs=1e-12)

    for cost, (start, stop) in zip(costs.selection, pairwise(region.offsets.tolist()), strict=True):
        noise = play.selection[start:stop].tolist()
        check(cost, [exact_chances(truth, own, noise) for own in weights[:, start:stop].tolist()])
    for cost, own, noise in zip(costs.backoff, coins.T.tolist(), play.backoff.tolist(), strict=True):
        check(cost, [exact_chances(truth, (w, GRID - w), (noise, GRID - noise)) for w in own])


@pytest.mark.parametrize("order", [1.0, 7.5, 32.0, 256.0, np.inf])
@pytest.mark.parametrize("types", [7, 300])
@pytest.mark.parametrize("wide", [0.2, 5.0])
def test_the_cost_of_every_action_is_that_of_its_worst_pair(order, types, wide):
    rows = np.exp(-wide * np.random.default_rng(types).random((types, 4)))
    # The worst pair, or one that is as bad, may be anywhere.
    rows[-1], rows[types // 2] = [1.0, np.exp(-wide), 0.5, 0.5], [np.exp(-wide), 1.0, 0.5, 0.5]
    policy = Policy("any", 0.4, 0.3)
    region, play = region_of(rows, policy)
    costs = action_costs(region, play, policy, order)
    selection, backoff = pairwise_costs(region, play, policy, region.utilities, order)
    np.testing.assert_allclose(costs.selection, selection.max(axis=0), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(costs.backoff, backoff.max(axis=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("order", [1.0, 8.0, np.inf])
# Staying has a chance of 1e-9 or of 3e-9: as 1 minus a floating-point number it would be off by a ten-millionth. And
# backing off hardly ever, where the other direction of the divergence is the worse one.
@pytest.mark.parametrize("types", [[[0.5, 0.5 - 1e-9], [0.5, 0.5 - 3e-9]], [[1.0, 0.1], [0.9, 0.1]]])
def test_a_back_off_that_is_nearly_sure_or_rare_is_not_cheaper_than_it_is(order, types):
    policy = Policy("any", 0.5, 0.9, gamma=1e-9)
    region, play = region_of(np.array(types), policy)
    costs = action_costs(region, play, policy, order)
    weights = backoff_weights(region.utilities, region.entries, region.offsets, policy.gamma)
    for cost, own, noise in zip(costs.backoff, weights.T.tolist(), play.backoff.tolist(), strict=True):
        one, two = (exact_chances(0.9, (w, GRID - w), (noise, GRID - noise)) for w in own)
        assert cost == pytest.approx(float(exact_cost(one, two, order)), rel=1e-10, abs=1e-14)


def test_a_region_with_equal_types_costs_nothing():
    region, play = region_of(np.tile([0.9, 0.5, 0.2], (3, 1)), published())
    costs = action_costs(region, play, published(), 32.0)
    assert max(costs.selection.max(), costs.backoff.max()) < 1e-12


def test_costs_beyond_a_double_are_computed_in_log_space():
    rows = np.exp(np.random.default_rng(2).uniform(-35.0, 0.0, (40, 3)))
    policy = Policy("truth", 1.0, 0.0)
    region, play = region_of(rows, policy)
    expected, backoff = pairwise_costs(region, play, policy, region.utilities, 64.0)
    found = action_costs(region, play, policy, 64.0).selection
    np.testing.assert_allclose(found, expected.max(axis=0), rtol=1e-12)
    assert found.max() > 710
    own = largest_own_costs(region, play, policy, region.utilities, 64.0)
    np.testing.assert_allclose(own, np.maximum(expected.max(axis=1), backoff.max(axis=1)), rtol=1e-12)


def cities_and_conferences():
    night = pm.data.city.batch(5.0)
    yield pm.mobility.problem(night.requests, night.vehicles, edge=1500)
    meeting = pm.data.conference.conference(seed=1, reviewers=12, papers=8)
    yield pm.papers.problem(meeting.reviewers, meeting.papers, draw_primary=True, seed=4)


@pytest.mark.parametrize("order", [3.0, 32.0])
@pytest.mark.parametrize("problem", tuple(cities_and_conferences()), ids=["city", "conference"])
def test_the_cost_of_every_agent_is_that_of_its_worst_action_and_type(problem, order):
    workspace = Workspace(problem)
    acting = own_tables(problem, workspace.regions, snapped=False)
    for policy in (published(), Policy("truth", 1.0, 0.0), Policy("coins", 0.0, 0.5)):
        public = workspace.tables(policy)
        together = largest_costs(workspace, policy, public, order)
        for number, (region, play) in enumerate(zip(workspace.regions, public.plays, strict=True)):
            members = np.flatnonzero(problem.region_index == number)
            own = np.array([acting.of(agent) for agent in members])
            selection, backoff = pairwise_costs(region, play, policy, own, order)
            expected = np.maximum(selection.max(axis=1), backoff.max(axis=1))
            np.testing.assert_allclose(together[members], expected, rtol=1e-11)
            # One agent alone: not a bit of difference.
            alone = largest_own_costs(region, play, policy, own[-1:], order)
            np.testing.assert_array_equal(together[members[-1:]], alone)


@pytest.mark.parametrize("policy", [Policy("selection", 0.9, 0.0), Policy("both", 0.4, 0.1), Policy("coins", 0.0, 0.5)])
def test_many_agents_cost_what_they_cost_one_by_one(policy):
    chance = np.random.default_rng(6)
    region, play = region_of(chance.uniform(0.05, 1.0, (140, 4)), policy)
    own = chance.uniform(0.05, 1.0, (1100, len(region.resources)))
    costs = largest_own_costs(region, play, policy, own, 8.0)
    selection, backoff = pairwise_costs(region, play, policy, own, 8.0)
    np.testing.assert_allclose(costs, np.maximum(selection.max(axis=1), backoff.max(axis=1)), rtol=1e-11)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 60),
    wide=st.sampled_from([0.0, 1e-9, 1.0, 60.0]),
    gamma=st.sampled_from([1e-9, 0.05, 0.5]),
)
def test_extreme_losses_give_the_extreme_back_offs(seed, rows, wide, gamma):
    chance = np.random.default_rng(seed)
    utilities, sizes = np.exp(-wide * chance.random((rows, 7))), chance.integers(1, 8, 5)
    entries = np.concatenate([chance.permutation(7)[:size] for size in sizes])
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    none = np.zeros(len(entries), dtype=np.int64)
    low, high = backoff_extremes(Region(np.ascontiguousarray(utilities.T), entries, offsets, none, none), gamma)
    weights = backoff_weights(utilities, entries, offsets, gamma)
    np.testing.assert_array_equal(low, weights.min(axis=0))
    np.testing.assert_array_equal(high, weights.max(axis=0))


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 6.0, 24.0, 32.0, 33.0, 192.0, 0.5, 7.25])
def test_a_row_is_raised_as_each_of_its_numbers(exponent):
    row = np.random.default_rng(1).uniform(0.5, 1.5, 20)
    raised = row.copy()
    raise_row(raised, exponent, np.empty(20))
    np.testing.assert_array_equal(raised, [power(base, exponent) for base in row])
    np.testing.assert_allclose(raised, row**exponent, rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_c_max_follows_from_real_valued_probabilities_but_for_their_rounding(seed):
    types = np.random.default_rng(seed).uniform(0.05, 1.0, (4, 4))
    problem = pm.table.problem(types[:2], ["here", "here"], {"here": types}, representatives={"here": 2})
    workspace, policy = Workspace(problem), published(truth_selection=0.2, truth_backoff=0.05)
    region, worst = workspace.regions[0], [mpmath.mpf(0), mpmath.mpf(0)]
    rows = [[mpmath.mpf(float(u)) for u in row] for row in region.utilities]
    star, truth, coin, gamma = rows[region.representative], mpmath.mpf(0.2), mpmath.mpf(0.05), mpmath.mpf(0.05)

    def picks(row, here):
        total = mpmath.fsum(row[e] for e in here)
        middle = mpmath.fsum(star[e] for e in here)
        return [truth * row[e] / total + (1 - truth) * star[e] / middle for e in here]

    def backs_off(row, entry, following):
        expected = mpmath.fsum(row[e] ** 2 for e in following) / mpmath.fsum(row[e] for e in following)
        return min(max(1 - (row[entry] - expected), gamma), 1 - gamma)

    for rank in range(region.ranks):
        here, following = region.rank_set(rank), region.rank_set((rank + 1) % region.ranks)
        for agent in range(2):
            for other in rows:
                pairs = [(picks(rows[agent], here), picks(other, here))]
                for entry in here:
                    one, two = (
                        coin * backs_off(who, entry, following) + (1 - coin) * backs_off(star, entry, following)
                        for who in (rows[agent], other)
                    )
                    pairs.append(([one, 1 - one], [two, 1 - two]))
                worst[agent] = max(worst[agent], *(exact_cost(one, two, 32) for one, two in pairs))
    costs = largest_costs(workspace, policy, workspace.tables(policy), 32.0)
    np.testing.assert_allclose(costs, [float(cost) for cost in worst], rtol=1e-9)

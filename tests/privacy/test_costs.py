"""Costs against high-precision arithmetic and against the definition, written out naively."""

from __future__ import annotations

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.methods import Workspace
from palmatch.methods.assembly import largest_costs
from palmatch.policies.compiled import backoff_weights, selection_weights
from palmatch.policies.published import Policy, mixed, published
from palmatch.privacy.costs import action_costs, largest_own_costs
from palmatch.privacy.renyi import Coins, log_moment, log_moment_of_coins, power, worst_log_moments

mpmath.mp.dps = 50


def exact_cost(first, second, order):
    """λ D_{λ+1}, the larger of the two directions, in 50 digits."""

    def one_way(p, q):
        return mpmath.log(mpmath.fsum(a ** (order + 1) / b**order for a, b in zip(p, q, strict=True)))

    return max(one_way(first, second), one_way(second, first))


def own_costs(region, play, policy, own, order):
    """Return what a selection and a back-off cost agents against every type of the region, all pairs at once."""
    rows = (np.ascontiguousarray(own), region.utilities)
    mine, others = (selection_weights(who, region.entries, region.offsets) for who in rows)
    coins, other_coins = (backoff_weights(who, region.entries, region.offsets, policy.gamma) for who in rows)
    selection, backoff = np.zeros(len(own)), np.zeros(len(own))
    for start, stop in pairwise(region.offsets.tolist()):
        noise = play.selection[start:stop]
        one, two = (mixed(policy.truth_selection, part[:, start:stop], noise) for part in (mine, others))
        back = [worst_log_moments(two, row[None], noise / GRID, order).max() for row in one]
        selection = np.maximum(selection, np.maximum(worst_log_moments(one, two, noise / GRID, order), back))
    for entry, noise in enumerate(play.backoff.tolist()):
        one, two = (
            np.column_stack([mixed(policy.truth_backoff, *sides) for sides in ((w, noise), (GRID - w, GRID - noise))])
            for w in (coins[:, entry], other_coins[:, entry])
        )
        both = [max(log_moment(row, two, order).max(), log_moment(two, row, order).max()) for row in one]
        backoff = np.maximum(backoff, both)
    return selection, backoff


def exact_selection(utilities, entries, representative, truth):
    def shares(values):
        total = mpmath.fsum(values[e] for e in entries)
        return [values[e] / total for e in entries]

    return [
        truth * own + (1 - truth) * noise for own, noise in zip(shares(utilities), shares(representative), strict=True)
    ]


def exact_backoff(utilities, entry, following, gamma):
    total = mpmath.fsum(utilities[e] for e in following)
    loss = utilities[entry] - mpmath.fsum(utilities[e] ** 2 for e in following) / total
    if loss <= gamma:
        return 1 - gamma
    return gamma if 1 - loss <= gamma else 1 - loss


def exact_c_max(own, region, truth_selection, truth_backoff, gamma, order):
    """Eq. (max privacy cost), from real-valued probabilities: no grid, no floats."""
    every_type = [[mpmath.mpf(float(u)) for u in row] for row in region.utilities]
    mine = [mpmath.mpf(float(u)) for u in own]
    star = every_type[region.representative]
    worst = mpmath.mpf(0)
    for rank in range(region.ranks):
        here, following = region.rank_set(rank), region.rank_set((rank + 1) % region.ranks)
        for other in every_type:
            worst = max(
                worst,
                exact_cost(
                    exact_selection(mine, here, star, truth_selection),
                    exact_selection(other, here, star, truth_selection),
                    order,
                ),
            )
            for entry in here:
                coins = [
                    truth_backoff * exact_backoff(who, entry, following, gamma)
                    + (1 - truth_backoff) * exact_backoff(star, entry, following, gamma)
                    for who in (mine, other)
                ]
                worst = max(worst, exact_cost([coins[0], 1 - coins[0]], [coins[1], 1 - coins[1]], order))
    return worst


@pytest.mark.parametrize("seed", range(6))
def test_c_max_equals_high_precision_arithmetic(seed):
    chance = np.random.default_rng(seed)
    types = chance.uniform(0.05, 1.0, (4, 4))
    problem = pm.table.problem(types[:2], ["here", "here"], {"here": types}, representatives={"here": 2})
    workspace = Workspace(problem)
    policy = published(truth_selection=0.2, truth_backoff=0.05)
    costs = largest_costs(workspace, policy, workspace.plays(policy), 32.0)
    # The numbers as the computer has them: 0.2 is not a fifth.
    truth, coin, gamma = (mpmath.mpf(round(z * 2**53)) / 2**53 for z in (0.2, 0.05, 0.05))
    gamma = mpmath.mpf(0.05)
    for agent in range(2):
        exact = exact_c_max(problem.types[agent, 1:], workspace.regions[0], truth, coin, gamma, 32)
        assert abs(costs[agent] - float(exact)) <= 1e-9 * float(exact)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 6),
    columns=st.integers(1, 9),
    order=st.sampled_from([0.5, 1.0, 2.0, 7.3, 32.0, 128.0]),
)
def test_the_matrix_product_equals_the_definition(seed, rows, columns, order):
    chance = np.random.default_rng(seed)
    common = chance.dirichlet(np.ones(columns))
    first, second = (
        0.2 * chance.dirichlet(np.ones(columns), rows) + 0.8 * common,
        0.2 * chance.dirichlet(np.ones(columns), rows + 1) + 0.8 * common,
    )
    fast = worst_log_moments(first, second, common, order)
    slow = [log_moment(row, second, order).max() for row in first]
    np.testing.assert_allclose(fast, np.maximum(slow, 0.0), rtol=1e-12, atol=1e-13 * order)


def test_moments_beyond_a_double_are_computed_in_log_space():
    first, second = np.array([[1 - 1e-12, 1e-12]]), np.array([[1e-12, 1 - 1e-12]])
    cost = worst_log_moments(first, second, np.array([0.5, 0.5]), 32.0)
    assert cost[0] == pytest.approx(32 * 12 * np.log(10), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(p=st.floats(0.01, 0.99), q=st.floats(0.01, 0.99), order=st.sampled_from([1.0, 32.0]))
def test_coins_cost_what_two_sided_distributions_cost(p, q, order):
    expected = log_moment(np.array([p, 1 - p]), np.array([q, 1 - q]), order)
    got = log_moment_of_coins(Coins(np.array(p), np.array(1 - p)), Coins(np.array(q), np.array(1 - q)), order)
    assert got == pytest.approx(max(float(expected), 0.0), rel=1e-10, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(base=st.floats(0.01, 20), exponent=st.sampled_from([1.0, 2.0, 3.0, 32.0, 33.0, 0.5, 7.25]))
def test_power_by_squaring_is_power(base, exponent):
    np.testing.assert_allclose(power(np.array([base]), exponent), [base**exponent], rtol=1e-13)


@pytest.mark.parametrize("seed", range(5))
def test_no_agent_of_a_region_costs_more_than_its_worst_pair(seed):
    chance = np.random.default_rng(seed)
    types = chance.uniform(0.05, 1.0, (6, 5))
    problem = pm.table.problem(types, ["here"] * 6, {"here": types})
    workspace = Workspace(problem)
    policy = Policy("any", 0.3, 0.2)
    noise = workspace.plays(policy)
    selection, backoff = own_costs(workspace.regions[0], noise[0], policy, workspace.regions[0].utilities, 32.0)
    worst = action_costs(workspace.regions[0], noise[0], policy, 32.0)
    assert selection.max() == pytest.approx(worst.selection.max(), rel=1e-12)
    assert backoff.max() == pytest.approx(worst.backoff.max(), rel=1e-12)


def test_a_region_with_equal_types_costs_nothing():
    types = np.tile([0.9, 0.5, 0.2], (3, 1))
    problem = pm.table.problem(types, ["here"] * 3, {"here": types})
    workspace = Workspace(problem)
    policy = published()
    costs = action_costs(workspace.regions[0], workspace.plays(policy)[0], policy, 32.0)
    assert max(costs.selection.max(), costs.backoff.max()) < 1e-12


@pytest.mark.parametrize("order", [1.0, 32.0, np.inf])
@pytest.mark.parametrize("types", [3, 70])
def test_the_cost_of_every_action_is_that_of_its_worst_pair(order, types):
    chance = np.random.default_rng(types)
    rows = chance.uniform(0.05, 1.0, (types, 5))
    problem = pm.table.problem(rows[:1], ["here"], {"here": rows}, representatives={"here": 1})
    workspace = Workspace(problem)
    policy = Policy("any", 0.4, 0.3)
    region, noise = workspace.regions[0], workspace.plays(policy)[0]
    costs = action_costs(region, noise, policy, order)
    selection = mixed(0.4, selection_weights(region.utilities, region.entries, region.offsets), noise.selection)
    coins = mixed(0.3, backoff_weights(region.utilities, region.entries, region.offsets, 0.05), noise.backoff)

    def naive(chances):
        if np.isinf(order):
            return max(np.log(p / q).max() for p in chances for q in chances)
        return max(log_moment(p, chances, order).max() for p in chances)

    for rank in range(region.ranks):
        chances = selection[:, region.offsets[rank] : region.offsets[rank + 1]]
        assert costs.selection[rank] == pytest.approx(naive(chances), rel=1e-11, abs=1e-13)
    for entry in range(len(region.entries)):
        heads = coins[:, entry]
        assert costs.backoff[entry] == pytest.approx(naive(np.column_stack((heads, 1 - heads))), rel=1e-9, abs=1e-12)
    few = action_costs(region, noise, policy, order, ranks=2)
    np.testing.assert_array_equal(few.selection[:2], costs.selection[:2])
    np.testing.assert_array_equal(few.backoff[: region.offsets[2]], costs.backoff[: region.offsets[2]])


def _some_problems():
    night = pm.data.city.batch(5.0)
    yield pm.mobility.problem(night.requests, night.vehicles, edge=1500)
    meeting = pm.data.conference.conference(seed=1, reviewers=12, papers=8)
    yield pm.papers.problem(meeting.reviewers, meeting.papers, draw_primary=True, seed=4)


@pytest.mark.parametrize("order", [1.0, 8.0, np.inf])
def test_a_back_off_that_is_nearly_sure_is_not_cheaper_than_it_is(order):
    # Staying has a chance of 1e-9 or of 3e-9: as 1 minus a floating-point number it would be off by a ten-millionth.
    types = [[0.5, 0.5 - 1e-9], [0.5, 0.5 - 3e-9]]
    problem = pm.table.problem(types[:1], ["here"], {"here": types})
    workspace = Workspace(problem)
    policy = Policy("any", 0.5, 0.9, gamma=1e-9)
    region, noise = workspace.regions[0], workspace.plays(policy)[0]
    costs = action_costs(region, noise, policy, order)
    weights = backoff_weights(region.utilities, region.entries, region.offsets, policy.gamma)
    coin = round(0.9 * GRID)
    for entry in range(len(region.entries)):
        tails = [
            mpmath.mpf(coin * (GRID - int(own)) + (GRID - coin) * (GRID - int(noise.backoff[entry]))) / GRID**2
            for own in weights[:, entry]
        ]
        sides = [(tail, 1 - tail) for tail in tails]
        if np.isinf(order):
            exact = max(abs(mpmath.log(p / q)) for p, q in zip(*sides, strict=True))
        else:
            exact = exact_cost(*sides, order)
        assert costs.backoff[entry] == pytest.approx(float(exact), rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("order", [3.0, 32.0])
@pytest.mark.parametrize("problem", tuple(_some_problems()), ids=["city", "conference"])
def test_costs_without_looking_are_the_costs(problem, order):
    workspace = Workspace(problem)
    for policy in (published(), Policy("truth", 1.0, 0.0)):
        for number, noise in enumerate(workspace.plays(policy)):
            region = workspace.regions[number]
            own = np.array([workspace.own.of(agent) for agent in np.flatnonzero(problem.region_index == number)])
            quick = largest_own_costs(region, noise, policy, own, order)
            expected = np.maximum(*own_costs(region, noise, policy, own, order))
            np.testing.assert_allclose(quick, expected, rtol=2e-14)
            # Nothing pruned, other groups, one agent alone: not a bit of difference.
            everything = largest_own_costs(region, noise, policy, own, order, tile=60, slack=np.inf)
            alone = largest_own_costs(region, noise, policy, own[-1:], order)
            np.testing.assert_array_equal(quick, everything)
            np.testing.assert_array_equal(quick[-1:], alone)


def test_costs_beyond_a_double_are_found_without_looking_too():
    types = np.array([[1.0, 1e-15, 1e-15], [1e-15, 1.0, 1e-15], [1e-15, 1e-15, 1.0]])
    problem = pm.table.problem(types, ["here"] * 3, {"here": types})
    workspace = Workspace(problem)
    policy = Policy("truth", 1.0, 0.0)
    region, noise = workspace.regions[0], workspace.plays(policy)[0]
    expected = np.maximum(*own_costs(region, noise, policy, region.utilities, 64.0))
    assert expected.min() > 1000
    np.testing.assert_allclose(largest_own_costs(region, noise, policy, region.utilities, 64.0), expected, rtol=1e-12)

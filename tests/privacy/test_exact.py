"""The exact account against whole courses of actions, written out as product distributions."""

from __future__ import annotations

import sys
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from exact_course import composed_delta
from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.methods import Settings, Workspace
from palmatch.methods.palma import published_policy
from palmatch.policies.compiled import backoff_weights, selection_weights
from palmatch.policies.published import Policy, mixed, on_grid
from palmatch.privacy import exact
from palmatch.privacy.exact import action_curves, exact_account
from palmatch.privacy.sound import region_account, sound_allowance

pytest.importorskip("dp_accounting", reason="loss distributions need dp-accounting: pip install 'palmatch[exact]'")

EPSILONS = np.linspace(0.0, 1.5, 31)


def region_of(types, policy, *, interest=None):
    problem = pm.table.problem(types[:1], ["here"], {"here": types}, interest=interest)
    workspace = Workspace(problem)
    return workspace.regions[0], workspace.plays(policy)[0]


def random_region(seed, policy, *, types=4, resources=4, interest=None):
    rows = np.random.default_rng(seed).uniform(0.05, 1.0, (types, resources))
    return region_of(rows, policy, interest=interest)


def chances_of(region, play, policy):
    """Return each type's chances: P_S for every rank, and (heads, tails) of P_B for the entries of every rank."""
    utilities, entries, offsets = region.utilities, region.entries, region.offsets
    picks = mixed(policy.truth_selection, selection_weights(utilities, entries, offsets), play.selection)
    heads = mixed(policy.truth_backoff, backoff_weights(utilities, entries, offsets, policy.gamma), play.backoff)
    sets = [slice(start, stop) for start, stop in pairwise(offsets)]
    selections = [picks[:, here] for here in sets]
    coins = [[np.column_stack((h, 1 - h)) for h in heads[:, here].T] for here in sets]
    return selections, coins


def hockey_stick(first, second, epsilon):
    return np.maximum(first - np.exp(epsilon) * second, 0.0).sum()


class Walk:
    """Where an agent may be after some charged actions, by the rules of `device.agent`."""

    def __init__(self, selections, coins):
        self.selections, self.coins = selections, coins

    def choices(self, rank):
        """Return (chances of every type, rank afterwards) of each action that may come next."""
        if rank is None:
            return [(self.selections[0], 0)]
        following = (rank + 1) % len(self.selections)
        return [(self.selections[following], following), *((coin, rank) for coin in self.coins[rank])]


def random_course(walk, actions, rank, chance):
    """Return the distribution over everything seen in a course where what comes next depends on what was seen."""
    table, after = (options := walk.choices(rank))[chance.integers(len(options))]
    if actions == 1:
        return table
    rest = [random_course(walk, actions - 1, after, chance) for _ in range(table.shape[1])]
    return np.concatenate([table[:, [seen]] * course for seen, course in enumerate(rest)], axis=1)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    actions=st.integers(1, 5),
    interest=st.sampled_from([1, 2, 4]),
    truth=st.sampled_from([0.05, 0.2, 0.6]),
)
def test_an_observer_of_a_course_of_actions_learns_no_more_than_guaranteed(seed, actions, interest, truth):
    policy = Policy("any", truth, truth / 2)
    region, play = random_region(seed, policy, types=3, interest=interest)
    guaranteed = composed_delta(region, play, policy, EPSILONS, actions=actions)
    walk = Walk(*chances_of(region, play, policy))
    chance = np.random.default_rng(seed)
    for _ in range(3):
        seen = random_course(walk, actions, None, chance)
        np.testing.assert_allclose(seen.sum(axis=1), 1.0)
        for first in seen:
            for second in seen:
                worst = np.array([hockey_stick(first, second, epsilon) for epsilon in EPSILONS])
                assert (worst <= guaranteed).all()


@pytest.mark.parametrize("actions", [1, 2, 5])
def test_the_guarantee_is_tight_when_all_actions_are_alike(actions):
    policy = Policy("any", 0.3, 0.0, selection_noise="uniform")
    # One rank set and free back-offs: every charged action is the same selection. The first two types are the worst
    # pair at every ε, in either direction alike.
    region, play = region_of(np.array([[0.9, 0.31, 0.47], [0.31, 0.9, 0.47], [0.5, 0.5, 0.51]]), policy, interest=1)
    walk = Walk(*chances_of(region, play, policy))
    walk.coins = [[]]
    first, second, _ = random_course(walk, actions, None, np.random.default_rng(5))
    epsilons = np.array([0.0, 0.05, 0.1, 0.2])
    guaranteed = composed_delta(region, play, policy, epsilons, actions=actions)
    true = np.array([hockey_stick(first, second, epsilon) for epsilon in epsilons])
    assert (guaranteed >= true).all()
    np.testing.assert_allclose(guaranteed, true, rtol=2e-3, atol=1e-9)


@pytest.mark.parametrize(("truth_selection", "truth_backoff"), [(0.4, 0.3), (0.4, 0.0), (0.0, 0.9)])
@pytest.mark.parametrize("interest", [1, 3])
def test_every_action_of_every_pair_is_below_its_curve_at_every_epsilon(truth_selection, truth_backoff, interest):
    policy = Policy("any", truth_selection, truth_backoff)
    region, play = random_region(interest, policy, types=6, interest=interest)
    selections, coins = chances_of(region, play, policy)
    course = exact._Course(region, play, policy, step=0.01, cut=1e-15)
    dense = np.linspace(-1.3, 1.3, 1041)
    for number in range(1, region.ranks + 4):
        # The pick; then selections up to rank `number` and back-offs before it; at last, anything.
        reached = min(number, region.ranks)
        actions = selections[:1] if number == 1 else selections[1:reached]
        if number > 1:
            actions = actions + [coin for rank in range(min(number - 1, region.ranks)) for coin in coins[rank]]
        if number > region.ranks:
            actions = actions + selections[:1]
        bound = np.array([course.distribution(number)[0].get_delta_for_epsilon(float(e)) for e in dense])
        for table in actions:
            gaps = table[:, None, None, :] - np.exp(dense)[None, None, :, None] * table[None, :, None, :]
            assert (np.maximum(gaps, 0.0).sum(axis=-1).max(axis=(0, 1)) <= bound).all()


def places(side, resources):
    """Return the utilities of all types on a square grid for some places around it: similar types, as in a city."""
    where = np.random.default_rng(side).uniform(-0.5, 1.5, (resources, 2))
    grid = np.stack(np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side)), axis=-1).reshape(-1, 2)
    return np.exp(-np.linalg.norm(grid[:, None] - where, axis=2))


@pytest.mark.parametrize("types", [places(2, 4), places(8, 4), np.random.default_rng(1).uniform(0.05, 1.0, (40, 4))])
def test_the_curve_is_that_of_the_worst_pair_although_most_pairs_are_not_looked_at(types):
    policy = Policy("any", 0.5, 0.1)
    region, play = region_of(types, policy)
    selections, coins = chances_of(region, play, policy)
    step = 0.03
    curves = list(action_curves(region, play, policy, step=step))
    assert len(curves) == region.ranks + 1

    def naive(table, points):
        ratios = np.exp(step * np.arange(points))
        return np.max(
            [[np.maximum(p - ratio * table, 0.0).sum(axis=1).max() for ratio in ratios] for p in table], axis=0
        )

    points = max(map(len, curves))
    each = [naive(table, points) for table in selections]
    backing_off = [np.max([naive(coin, points) for coin in here], axis=0) for here in coins]
    np.testing.assert_allclose(curves[0], each[0][: len(curves[0])], atol=1e-14)
    for number in range(2, region.ranks + 1):
        expected = np.max(each[1:number] + backing_off[: number - 1], axis=0)
        np.testing.assert_allclose(curves[number - 1], expected[: len(curves[number - 1])], atol=1e-14)
        assert curves[number - 1][-1] == 0.0
    np.testing.assert_allclose(curves[-1], np.max(each + backing_off, axis=0)[: len(curves[-1])], atol=1e-14)


def test_a_back_off_that_hardly_any_type_omits_is_not_lost_to_rounding():
    policy = Policy("any", 0.0, 0.7, gamma=1e-9)
    region, play = region_of(np.array([[0.5, 0.5], [0.9, 0.1], [0.1, 0.9]]), policy)
    weights = backoff_weights(region.utilities, region.entries, region.offsets, 1e-9)
    share, whole = on_grid(0.7), GRID * GRID
    heads = [
        [share * int(own) + (GRID - share) * int(noise) for own, noise in zip(row, play.backoff, strict=True)]
        for row in weights
    ]
    last = list(action_curves(region, play, policy, step=0.01))[-1]
    for point in (0, 300, 900, 1500, 1750):
        ratio = mpmath.exp(mpmath.mpf(0.01) * point)
        expected = max(
            max(one - ratio * other, (whole - one) - ratio * (whole - other), 0) / whole
            for first in heads
            for second in heads
            for one, other in zip(first, second, strict=True)
        )
        assert last[point] == pytest.approx(float(expected), abs=1e-13)
    assert len(last) > 1750


def test_what_lies_beyond_the_grid_counts_as_given_away(monkeypatch):
    monkeypatch.setattr(exact, "_MOST_STEPS", 10)
    policy = Policy("any", 0.9, 0.0)
    region, play = random_region(1, policy)
    selections, _ = chances_of(region, play, policy)
    distribution, _ = exact._Course(region, play, policy, step=0.02, cut=1e-15).distribution(1)
    for epsilon in (0.1, 0.2, 0.5, 3.0):
        worst = max(hockey_stick(p, q, epsilon) for p in selections[0] for q in selections[0])
        assert worst <= distribution.get_delta_for_epsilon(epsilon)
    assert distribution.get_delta_for_epsilon(50.0) > 0.05


@pytest.mark.parametrize("seed", range(3))
def test_a_budget_is_worth_the_most_actions_that_fit(seed):
    policy = Policy("any", 0.05, 0.01)
    region, play = random_region(seed, policy, types=5, interest=2)
    budgets, delta = np.array([1.0, 0.0, 0.5, 1.0, 2.0, np.inf]), 1e-5
    account = exact_account(region, play, policy, epsilon=1.0, delta=delta)
    worth = account.worth(budgets)
    assert np.isinf(worth[5])
    assert worth[1] == 0
    assert worth[1] < worth[2] < worth[0] == worth[3] < worth[4]
    for epsilon, actions in zip(budgets[[0, 2, 4]], worth[[0, 2, 4]].astype(int), strict=True):
        assert composed_delta(region, play, policy, np.array([epsilon]), actions=actions)[0] <= delta * 1.0001
        assert composed_delta(region, play, policy, np.array([epsilon]), actions=actions + 1)[0] > delta * 0.99


def test_a_smaller_failure_probability_buys_fewer_actions_and_none_below_rounding():
    policy = Policy("any", 0.1, 0.05)
    region, play = random_region(3, policy)
    bought = [
        exact_account(region, play, policy, epsilon=1.0, delta=delta).worth(np.array([1.0]))[0]
        for delta in (1e-3, 1e-5, 1e-7, 1e-15)
    ]
    assert bought == sorted(bought, reverse=True)
    assert bought[0] > bought[2] > bought[3] == 0


def test_where_all_types_are_equal_acting_is_free_up_to_the_longest_account():
    policy = Policy("any", 0.2, 0.05)
    region, play = region_of(np.tile([0.9, 0.5, 0.2], (3, 1)), policy)
    worth = exact_account(region, play, policy, epsilon=1.0, delta=1e-5).worth(np.array([1.0]))
    assert int(worth[0]) == exact.MOST_ACTIONS


@pytest.mark.parametrize("seed", range(3))
def test_an_allowance_pays_for_just_the_actions_that_an_account_counts(seed):
    policy = Policy("any", 0.1, 0.05)
    region, play = random_region(seed, policy)
    account = region_account(region, play, policy, "exact", epsilon=1.0, delta=1e-5)
    assert (account.name, account.pure) == ("exact", False)
    epsilon = np.array([1.0, 0.4, 0.0])
    allowance = sound_allowance([account], np.zeros(3, dtype=np.int64), epsilon, delta=1e-5)
    prices = np.unique(np.concatenate((allowance.first, allowance.selection, allowance.backoff)))
    assert len(prices) == 1
    np.testing.assert_array_equal(allowance.budget // prices[0], account.worth(epsilon).astype(int))
    assert allowance.guarantee.accountant == "exact"
    assert allowance.guarantee.delta == 1e-5


def test_no_agent_is_charged_for_more_actions_than_the_account_has():
    morning = pm.data.city.batch(8.0, seed=1)
    problem = pm.mobility.problem(morning.requests, morning.vehicles, edge=1000)
    chosen = Settings(epsilon=0.5, accountant="exact")
    workspace = Workspace(problem)
    policy = published_policy(problem, chosen)
    most = np.array(
        [
            account.worth(np.array([0.5]))[0]
            for account in pm.methods.accounts(
                workspace, policy, workspace.plays(policy), np.full(problem.agents, 0.5), chosen
            )
        ]
    )
    matching = pm.match(problem, "palma", seed=3, settings=chosen)
    assert (matching.charged <= most[problem.region_index]).all()
    assert matching.charged.max() > 1
    assert (matching.epsilon <= 0.5).all()


def test_a_missing_package_is_named_with_what_to_install(monkeypatch):
    policy = Policy("any", 0.1, 0.05)
    region, play = random_region(0, policy)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(InputError, match=r"pip install 'palmatch\[exact\]'"):
        region_account(region, play, policy, "exact", epsilon=1.0, delta=1e-5)

"""`palma-adaptive`: what it plays follows from reports alone, keeps the guarantee of one report, and is worth it."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from once_game import Reporter, any_channel, exact_chances, first_beyond, plan_with, region_of, responding, steps, town
from palmatch.matchers.alma import best_first
from palmatch.methods import Settings, Workspace, prepare
from palmatch.methods.reports import SHARE_OF_PRICE, draw_reports, reporting, value_lists
from palmatch.streams import keys_of, randomness

regions = given(
    seed=st.integers(0, 2**32),
    cells=st.integers(1, 5),
    epsilon=st.sampled_from([1e-6, 0.1, 1.0, 2.5]),
    plain=st.booleans(),
)


def channel_of(region, seed, cells, epsilon, plain):
    return responding(region, cells, epsilon) if plain else any_channel(region, cells, epsilon, seed=seed)


@pytest.fixture(scope="module")
def night():
    batch = pm.data.city.batch(5.0)
    return pm.mobility.problem(batch.requests, batch.vehicles, edge=4000)


def whole_games(plan, problem, *, game=steps, seed):
    """For each type of the first agent, the chances of all that a whole game among others shows."""
    keys = keys_of(problem.agent_ids)
    channel, others = plan.channels[0], draw_reports(plan, randomness(keys, seed))

    @cache
    def shown(told):
        every_agent = others.copy()
        every_agent[0] = told
        return game(plan, every_agent, keys, seed)

    agents = [Reporter(channel, int(cell)) for cell in channel.cell_of]
    return [exact_chances(lambda draw, a=a: (told := a.draw_reports(draw), shown(told))) for a in agents]


@settings(max_examples=15)
@regions
def test_a_whole_game_among_others_tells_no_more_than_guaranteed(seed, cells, epsilon, plain):
    problem = town(seed)
    plan = plan_with(problem, channel_of(region_of(problem), seed, cells, epsilon, plain), seed=seed)
    assert first_beyond(whole_games(plan, problem, seed=seed % 5), epsilon) is None


def test_what_is_seen_of_a_game_comes_near_the_guarantee():
    # The checks would not notice much if different reports were never seen to differ.
    problem = town(3)
    every_agent = whole_games(plan_with(problem, responding(region_of(problem), 3, 1.0)), problem, seed=0)
    assert first_beyond(every_agent, 1.0) is None
    assert first_beyond(every_agent, 1.0 - 1e-12) is not None


def test_an_agent_that_looks_at_its_own_utilities_is_caught_exactly():
    problem = town(3)
    plan = plan_with(problem, responding(region_of(problem), 3, 1.0))

    def leaking(row):
        utilities = region_of(problem).utilities[row]

        def game(plan, reported, keys, seed):
            return (*steps(plan, reported, keys, seed), int(utilities.argmax()))

        return whole_games(plan, problem, game=game, seed=0)[row]

    assert first_beyond([leaking(row) for row in range(5)], 1.0) is not None


def test_lists_are_in_order_of_worth_after_a_share_of_the_price(night):
    plan = reporting(Workspace(night), Settings())
    first_cell = np.zeros(night.agents, dtype=np.int64)
    lists, number = best_first(value_lists(plan, first_cell), SHARE_OF_PRICE * plan.opening), 0
    for channel, region in zip(plan.channels, plan.region_of_channel, strict=True):
        for values in channel.values.tolist():
            net = [
                (-(value - SHARE_OF_PRICE * plan.opening[resource]), place)
                for place, (value, resource) in enumerate(zip(values, region.resources, strict=True))
            ]
            expected = [int(region.resources[place]) for _, place in sorted(net)]
            assert lists.resources[lists.start[number] : lists.start[number + 1]].tolist() == expected
            number += 1
    assert number == len(lists.start) - 1


def test_it_loses_clearly_less_than_noise():
    # `palma` does as well as noise (docs/adaptive.md), and would take much longer to prepare.
    batch = pm.data.city.batch(6.0, seed=4)
    workspace = Workspace(pm.mobility.problem(batch.requests, batch.vehicles, edge=2000))
    methods = [prepare(workspace, name) for name in ("palma-adaptive", "noise")]
    mine, noise = (np.mean([method.play(seed).utility.sum() for seed in range(16)]) for method in methods)
    best = prepare(workspace, "hungarian").play(0).utility.sum()
    assert best - mine < 0.8 * (best - noise)


def test_the_guarantee_is_that_of_one_report(night):
    matching = pm.match(night, "palma-adaptive", epsilon=0.8, seed=2, trace=True)
    assert (matching.guarantee.epsilon, matching.guarantee.delta) == (0.8, 0.0)
    assert set(matching.epsilon.tolist()) <= {0.0, 0.8}
    assert matching.rounds == matching.trace.step.max()

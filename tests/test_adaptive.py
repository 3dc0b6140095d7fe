"""`palma-adaptive`: what it plays follows from reports alone, keeps the promise of one report, and is worth it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from enumeration import Device, answers_to, exponential
from once_game import Reporter, any_channel, exact_chances, first_beyond, plan_with, region_of, responding, town
from palmatch.adaptive import SHARE_OF_PRICE, lists, play_lists
from palmatch.device.agent import Agent, Draw, Rules
from palmatch.guarantee import region_only
from palmatch.methods import Ground, Settings, prepare
from palmatch.once import reporting, reports
from palmatch.policies.channel import Channel, report
from palmatch.policies.published import noise_only
from palmatch.privacy.accountants import free_allowance
from palmatch.rounds.draws import REPORT, keys_of
from palmatch.rounds.game import region_tables, rules_of, simulate_plainly
from palmatch.rounds.tables import OwnTables
from palmatch.studies.arena_once import report_arena, steps
from palmatch.studies.audit import attack

PRECISION = 160  # of `enumeration.exponential`

regions = given(
    seed=st.integers(0, 2**32),
    cells=st.integers(1, 5),
    epsilon=st.sampled_from([1e-6, 0.1, 1.0, 2.5]),
    plain=st.booleans(),
)


def channel_of(region, seed, cells, epsilon, plain):
    return responding(region, cells, epsilon) if plain else any_channel(region, cells, epsilon, seed=seed)


@pytest.fixture(scope="module")
def night() -> pm.Problem:
    batch = pm.data.city.batch(5.0)
    return pm.mobility.problem(batch.requests, batch.vehicles, edge=4000)


def whole_games(plan, problem, *, game=steps, seed):
    """For each type of the first agent, the chances of all that a whole game among others shows."""
    keys = keys_of(problem.agent_ids)
    channel, others = plan.channels[0], reports(plan, keys, seed)

    @cache
    def shown(told):
        everybody = others.copy()
        everybody[0] = told
        return game(plan, everybody, keys, seed)

    agents = [Reporter(channel, int(cell)) for cell in channel.cell_of]
    return [exact_chances(lambda draw, a=a: (told := a.drawn(draw), shown(told))) for a in agents]


@settings(max_examples=15, deadline=None)
@regions
def test_a_whole_game_among_others_tells_no_more_than_promised(seed, cells, epsilon, plain):
    problem = town(seed)
    plan = plan_with(problem, channel_of(region_of(problem), seed, cells, epsilon, plain), seed=seed)
    assert first_beyond(whole_games(plan, problem, seed=seed % 5), epsilon) is None


def test_what_is_seen_of_a_game_comes_near_the_promise():
    # The checks would not notice much if different reports were never seen to differ.
    problem = town(3)
    everybody = whole_games(plan_with(problem, responding(region_of(problem), 3, 1.0)), problem, seed=0)
    assert first_beyond(everybody, 1.0) is None
    assert first_beyond(everybody, 1.0 - 1e-12) is not None


def device(channel: Channel, cell: int, plan) -> Device:
    """A device of one type: it draws its report, and then plays that list, whatever it is answered."""
    tables = lists(plan)
    free = free_allowance(len(plan.channel_of), tables.layout, region_only("a test"), truth=False)
    menu = [region_tables(tables, free, told) for told in range(channel.reports)]

    class Listed(Agent):
        region = property(lambda self: menu[self.told], lambda self, _: None)

        def __init__(self, draw: Draw) -> None:
            self.told = int(report(channel, np.array([cell]), np.array([draw(0, REPORT)]))[0])
            super().__init__(menu[self.told], (), 0, rules=Rules(0, 0, 0.05), draw=draw)

    return Device(Listed)


def furthest(everybody: list[Device], beliefs: list, move: str, depth: int) -> Fraction | float:
    """The largest ratio, exactly, of the chances of any course of so many moves, whatever the environment answers."""
    after = [device.after(belief, move) for device, belief in zip(everybody, beliefs, strict=True)]
    worst: Fraction | float = Fraction(1)
    for seen in set().union(*after):
        following = [one.get(seen, {}) for one in after]
        weights = [sum(belief.values()) for belief in following]
        if min(weights) == 0:
            return math.inf
        worst = max(worst, Fraction(max(weights), min(weights)))
        if depth > 1:
            worst = max(worst, *(furthest(everybody, following, answer, depth - 1) for answer in answers_to(seen)))
    return worst


def test_whatever_a_device_is_answered_no_course_of_its_moves_tells_more_than_promised():
    epsilon, found = 0.7, []
    for seed in range(12):
        problem = town(seed)
        channel = channel_of(region_of(problem), seed, 5, epsilon, seed % 2 == 0)
        plan = plan_with(problem, channel, seed=seed)
        everybody = [device(channel, cell, plan) for cell in range(channel.cells)]
        found.append(furthest(everybody, [None] * len(everybody), "start", 6))
    assert max(found) <= Fraction(exponential(epsilon), 2**PRECISION)
    # Lists of two reports may be the same, but not everywhere.
    assert max(found) > 0.9 * math.exp(epsilon)


def test_an_agent_that_looks_at_its_own_utilities_is_caught_exactly():
    problem = town(3)
    plan = plan_with(problem, responding(region_of(problem), 3, 1.0))

    def leaking(row):
        utilities = region_of(problem).utilities[row]

        def game(plan, reported, keys, seed):
            return (*steps(plan, reported, keys, seed), int(utilities.argmax()))

        return whole_games(plan, problem, game=game, seed=0)[row]

    assert first_beyond([leaking(row) for row in range(5)], 1.0) is not None


def test_the_same_reports_give_the_same_game_wherever_everybody_is(night):
    plan = reporting(Ground(night), Settings())
    told = reports(plan, keys_of(night.agent_ids), 3)
    elsewhere = replace(plan, cell=np.zeros_like(plan.cell))
    keys = keys_of(night.agent_ids)
    assert steps(plan, told, keys, 3) == steps(elsewhere, told, keys, 3)


def test_lists_are_in_order_of_worth_after_a_share_of_the_price(night):
    plan = reporting(Ground(night), Settings())
    tables, number = lists(plan), 0
    for channel, region in zip(plan.channels, plan.region_of_channel, strict=True):
        for values in channel.values.tolist():
            net = [
                (-(value - SHARE_OF_PRICE * plan.opening[resource]), place)
                for place, (value, resource) in enumerate(zip(values, region.resources, strict=True))
            ]
            expected = [int(region.resources[place]) for _, place in sorted(net)]
            start, stop = tables.resource_start[number], tables.resource_start[number + 1]
            assert tables.resources[start:stop].tolist() == expected
            assert tables.entries[start:stop].tolist() == list(range(len(expected)))
            number += 1
    assert number == len(tables.resource_start) - 1


def test_devices_play_the_same_game_as_the_simulator_in_every_step(night):
    plan = reporting(Ground(night), Settings())
    keys, tables = keys_of(night.agent_ids), lists(plan)
    told = reports(plan, keys, 1)
    fast = play_lists(plan, tables, told, keys=keys, seed=1, trace=True)
    first = np.concatenate(([0], np.cumsum([channel.reports for channel in plan.channels])))
    chosen = replace(tables, region_of_agent=(first[plan.channel_of] + told).astype(np.int32))
    free = free_allowance(night.agents, tables.layout, region_only("a test"), truth=False)
    nothing = OwnTables(np.zeros(night.agents + 1, dtype=np.int64), np.empty(0))
    slow = simulate_plainly(chosen, nothing, rules_of(noise_only()), free, keys=keys, seed=1)
    np.testing.assert_array_equal(fast.resource_of, slow.resource_of)
    for column in ("step", "agent", "resource", "outcome"):
        np.testing.assert_array_equal(getattr(fast.trace, column), getattr(slow.trace, column))


def test_the_attacker_finds_no_more_than_promised(night):
    ground = Ground(night)
    plan = reporting(ground, Settings())
    telling = np.flatnonzero(np.array([channel.reports for channel in plan.channels])[plan.channel_of] > 1)
    found = attack(report_arena(ground, "palma-adaptive", int(telling[0]), plan=plan), "as it is", games=400)
    assert not found.broken
    assert found.bound.epsilon > 0.1


def test_it_loses_clearly_less_than_noise():
    # `palma` does as well as noise (docs/adaptive.md), and would take much longer to prepare.
    batch = pm.data.city.batch(6.0, seed=4)
    ground = Ground(pm.mobility.problem(batch.requests, batch.vehicles, edge=2000))
    methods = [prepare(ground, name) for name in ("palma-adaptive", "noise")]
    mine, noise = (np.mean([method.play(seed).utility.sum() for seed in range(16)]) for method in methods)
    best = prepare(ground, "hungarian").play(0).utility.sum()
    assert best - mine < 0.8 * (best - noise)


def test_the_promise_is_that_of_one_report(night):
    matching = pm.match(night, "palma-adaptive", epsilon=0.8, seed=2, trace=True)
    assert (matching.guarantee.epsilon, matching.guarantee.delta) == (0.8, 0.0)
    assert set(matching.epsilon.tolist()) <= {0.0, 0.8}
    assert matching.trace is not None
    assert matching.rounds == matching.trace.step.max()

"""The compiled kernel and the readable agents play the same game, bit for bit."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.device.agent import Agent
from palmatch.device.distribution import GRID
from palmatch.errors import DidNotConverge
from palmatch.matching import Outcome
from palmatch.methods import Workspace
from palmatch.palma.game import region_tables, rules_of, simulate
from palmatch.palma.policy import Policy
from palmatch.regions.own import own_tables
from palmatch.streams import BACKOFF, draw, keys_of, streams
from plain_game import priced, simulate_plainly


def random_problem(seed, agents, resources, *, regions=2, ties=False, interest=None):
    """A table problem in which every agent is one of its region's possible types."""
    chance = np.random.default_rng(seed)
    types = {}
    for name in map(str, range(regions)):
        rows = chance.uniform(0.01, 1.0, (5, resources))
        types[name] = np.maximum(np.round(rows, 1), 0.1) if ties else rows
    homes = [str(chance.integers(regions)) for _ in range(agents)]
    own = [types[home][chance.integers(5)] for home in homes]
    return pm.table.problem(own, homes, types, interest=interest)


def game(problem, policy, *, budget=0, seed=0, highest=3):
    """The tables and rules of a policy, with random prices for every region, rank set and entry."""
    workspace = Workspace(problem)
    public, own = workspace.tables(policy), own_tables(problem, workspace.regions, snapped=False)
    return public, own, rules_of(policy), priced(public, budget, seed, highest)


def assert_same(one, two):
    np.testing.assert_array_equal(one.resource_of, two.resource_of)
    np.testing.assert_array_equal(one.spent, two.spent)
    np.testing.assert_array_equal(one.charged, two.charged)
    assert one.steps == two.steps
    for name in ("step", "agent", "resource", "outcome"):
        np.testing.assert_array_equal(getattr(one.trace, name), getattr(two.trace, name))


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**63),
    agents=st.integers(1, 8),
    resources=st.integers(1, 8),
    ties=st.booleans(),
    interest=st.sampled_from([None, 1, 2, 5]),
    truth=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    budget=st.integers(0, 12),
    passes=st.booleans(),
)
def test_kernel_and_device_agents_agree_in_every_bit(seed, agents, resources, ties, interest, truth, budget, passes):
    problem = random_problem(seed % 1000, agents, resources, ties=ties, interest=interest)
    policy = Policy("any", truth, truth, spent_backoff=0.4 * passes)
    tables = game(problem, policy, budget=budget, seed=seed)
    keys = keys_of(problem.agent_ids)
    compiled = simulate(*tables, names=streams(seed, keys), trace=True)
    plain = simulate_plainly(*tables, names=streams(seed, keys))
    assert_same(compiled, plain)
    assert (compiled.spent <= budget).all()
    held = compiled.resource_of[compiled.resource_of >= 0]
    assert len(set(held.tolist())) == len(held)


@settings(max_examples=100)
@given(seed=st.integers(0, 2**63), held=st.sets(st.integers(0, 7)), looks=st.integers(1, 6))
def test_what_is_passed_over_tells_nothing_about_an_agent(seed, held, looks):
    # Without budget two agents of a region do the same, whatever they want; with budget nothing is passed over.
    problem = random_problem(seed % 1000, 2, 8, regions=1)
    public, _, rules, prices = game(problem, Policy("any", 0.7, 0.7, spent_backoff=0.2), budget=0)
    region, chance = region_tables(public, prices, 0), np.random.default_rng(seed)
    utilities = chance.uniform(0.1, 1.0, (2, len(region.resources)))
    plain = rules._replace(spent_backoff=0)

    def looks_of(own, rules, budget):
        agent = Agent(region, own.tolist(), budget, rules=rules, draw=partial(draw, seed))
        agent.saw(free=False)
        return [agent.decide(step, held).resource for step in range(1, looks + 1)]

    def gives_way(own):
        agent = Agent(region, own.tolist(), 0, rules=rules, draw=partial(draw, seed))
        return [agent.collided(step) for step in range(1, 9)]

    ours, theirs = (looks_of(own, rules, 0) for own in utilities)
    assert ours == theirs
    assert (
        gives_way(utilities[0]) == gives_way(utilities[1]) == [draw(seed, s, BACKOFF) < 0.2 * GRID for s in range(1, 9)]
    )
    if not set(region.resources) <= held:
        assert not set(ours) & held
    sets = [
        {region.resources[entry] for entry in region.entries[start:stop]} for start, stop in pairwise(region.offsets)
    ]
    # The first look is at the second rank set; a set that is held as a whole is passed over.
    rank = 0
    for look in ours:
        order = [(rank + further) % len(sets) for further in range(1, len(sets) + 1)]
        rank = next((s for s in order if not sets[s] <= held), order[0])
        assert look in sets[rank]
    assert looks_of(utilities[0], rules, 10**6) == looks_of(utilities[0], plain, 10**6)


def test_the_last_agents_find_the_last_resources_sooner_where_they_pass_over_what_is_held():
    problem = random_problem(7, 60, 60, regions=1)
    plain, passing = (
        simulate(
            *game(problem, Policy("any", 0.0, 0.0, backoff_noise=0.15, spent_backoff=0.15 * passes)),
            names=streams(1, keys_of(problem.agent_ids)),
        )
        for passes in (False, True)
    )  # fmt: skip
    assert (passing.resource_of >= 0).all()
    assert passing.steps < plain.steps
    assert passing.actions < plain.actions


@pytest.mark.parametrize(
    "method", [name for name, method in pm.METHODS.items() if method.rounds and not method.located]
)
def test_a_trace_changes_nothing_and_is_there(method):
    problem = random_problem(8, 20, 20)
    with_trace, without = (pm.match(problem, method, seed=2, trace=trace) for trace in (True, False))
    np.testing.assert_array_equal(with_trace.resource_of, without.resource_of)
    np.testing.assert_array_equal(with_trace.charged, without.charged)
    assert with_trace.rounds == without.rounds
    assert without.trace is None
    assert with_trace.trace.step.max() == with_trace.rounds
    assert set(with_trace.trace.agent.tolist()) == set(range(20))


def test_a_game_past_its_limit_is_an_error_and_no_matching():
    problem = random_problem(2, 8, 8)
    tables = game(problem, Policy("any", 0.0, 0.0))
    with pytest.raises(DidNotConverge, match="still playing after 1 steps"):
        simulate(*tables, names=streams(0, keys_of(problem.agent_ids)), most_steps=1)


def test_a_spent_budget_is_spent_for_good():
    # A cheap action would still fit after a dear one did not; the agent must not go back to the truth for it.
    problem = random_problem(4, 8, 2)
    *tables, prices = game(problem, Policy("any", 1.0, 1.0), budget=50)
    prices.first[:], prices.selection[:], prices.backoff[:] = 0, 1, 100
    ends = simulate(*tables, prices, names=streams(3, keys_of(problem.agent_ids)), trace=True)
    for agent in range(8):
        rows = np.flatnonzero(ends.trace.agent == agent)
        actions = ends.trace.outcome[rows]
        collisions = np.flatnonzero((actions == Outcome.STAYS) | (actions == Outcome.BACKS_OFF))
        if len(collisions):
            looks_before = (actions[: collisions[0]] >= Outcome.FREE).sum()
            assert ends.spent[agent] == looks_before

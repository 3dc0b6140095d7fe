"""What holds for every method, whatever it does: a matching is a matching, and chance is a function of the seed."""

import numpy as np
import polars as pl
import pytest

import palmatch as pm
from palmatch import streams
from palmatch.methods import workspace as workspace_module

MANHATTAN = np.array([[40.70, -74.02], [40.82, -73.93]])
SIZES = [(4, 9), (9, 4), (1, 1)]


def places(count, seed):
    return np.random.default_rng(seed).uniform(MANHATTAN[0], MANHATTAN[1], size=(count, 2))


def frame(where, name):
    return pl.DataFrame({"id": [f"{name} {n}" for n in range(len(where))], "lat": where[:, 0], "lon": where[:, 1]})


def town(agents, resources, **options):
    return pm.mobility.problem(places(agents, 1), places(resources, 2), edge=2000, spacing=500, **options)


def pairs(problem, matching):
    return {
        name: None if resource < 0 else problem.resource_ids[resource]
        for name, resource in zip(problem.agent_ids, matching.resource_of, strict=True)
    }


def check_matching(problem, matching):
    resource_of = matching.resource_of
    assert resource_of.shape == (problem.agents,)
    assert resource_of.min() >= -1
    assert resource_of.max() < problem.resources
    held = resource_of[resource_of >= 0]
    assert len(set(held.tolist())) == len(held)
    table = problem.true_utility()
    expected = [table[n, r] if r >= 0 else 0.0 for n, r in enumerate(resource_of)]
    assert matching.utility.tolist() == expected
    assert matching.welfare == pytest.approx(sum(expected), rel=1e-12)
    assert matching.matched == len(held)
    assert matching.epsilon.shape == matching.charged.shape == (problem.agents,)


@pytest.mark.parametrize("method", pm.METHODS)
@pytest.mark.parametrize(("agents", "resources"), SIZES)
def test_every_method_returns_a_matching(method, agents, resources):
    problem = town(agents, resources)
    ready = pm.prepare(pm.Workspace(problem), method)
    for seed in range(3):
        matching = ready.play(seed)
        assert matching.method == method
        check_matching(problem, matching)
        # All agents are interested in everything, so none goes without while something is left.
        assert matching.matched == min(agents, resources)


@pytest.mark.parametrize("method", pm.METHODS)
def test_the_same_seed_gives_the_same_matching(method):
    problem = town(12, 12)
    first, second = pm.match(problem, method, seed=7), pm.match(problem, method, seed=7)
    assert np.array_equal(first.resource_of, second.resource_of)
    assert np.array_equal(first.epsilon, second.epsilon, equal_nan=True)
    assert np.array_equal(first.charged, second.charged)
    assert first.rounds == second.rounds
    prepared = pm.prepare(pm.Workspace(problem), method)
    prepared.play(8)
    assert np.array_equal(prepared.play(7).resource_of, first.resource_of)


@pytest.mark.parametrize("method", pm.METHODS)
def test_other_seeds_give_other_matchings_where_there_is_chance(method):
    ready = pm.prepare(pm.Workspace(town(12, 12)), method)
    found = {tuple(ready.play(seed).resource_of.tolist()) for seed in range(12)}
    assert len(found) > 1 if pm.METHODS[method].random else len(found) == 1


@pytest.mark.parametrize("seed", [-1, 0, 2**64 + 5, 2**200])
def test_any_whole_number_is_a_seed(seed):
    problem = town(5, 5)
    for method in ("once", "palma", "random"):
        check_matching(problem, pm.match(problem, method, seed=seed))


def relabelled(agents, resources, interest):
    requests, cars = frame(places(len(agents), 1), "agent"), frame(places(len(resources), 2), "car")
    return pm.mobility.problem(requests[agents], cars[resources], edge=2000, spacing=500, interest=interest)


@pytest.mark.parametrize("method", pm.METHODS)
def test_the_order_of_the_agents_in_a_file_does_not_change_the_matching(method):
    if not (pm.METHODS[method].rounds or pm.METHODS[method].random):
        pytest.skip("an optimum may be reached in several ways")
    same = list(range(10))
    first = relabelled(list(range(14)), same, 3)
    shuffled = np.random.default_rng(3).permutation(14).tolist()
    second = relabelled(shuffled, same, 3)
    assert second.agent_ids != first.agent_ids
    here, there = pm.prepare(pm.Workspace(first), method), pm.prepare(pm.Workspace(second), method)
    for seed in range(3):
        one, two = here.play(seed), there.play(seed)
        assert pairs(first, one) == pairs(second, two)
        assert one.rounds == two.rounds
        assert dict(zip(first.agent_ids, one.epsilon.tolist(), strict=True)) == pytest.approx(
            dict(zip(second.agent_ids, two.epsilon.tolist(), strict=True)), rel=1e-12
        )


@pytest.mark.parametrize("method", pm.METHODS)
def test_the_order_of_the_resources_in_a_file_does_not_change_the_matching(method):
    if not (pm.METHODS[method].rounds or method == "random"):
        pytest.skip("an optimum may be reached in several ways")
    same = list(range(8))
    first = relabelled(same, list(range(11)), 4)
    second = relabelled(same, np.random.default_rng(3).permutation(11).tolist(), 4)
    here, there = pm.prepare(pm.Workspace(first), method), pm.prepare(pm.Workspace(second), method)
    for seed in range(3):
        assert pairs(first, here.play(seed)) == pairs(second, there.play(seed))


def test_an_unknown_method_is_named():
    with pytest.raises(pm.InputError, match="Did you mean 'hungarian-once'"):
        pm.METHODS.find("hungarian-onec")
    with pytest.raises(pm.InputError, match="There is no method 'oracle': choose from "):
        pm.match(town(1, 1), "oracle")


@pytest.mark.parametrize("method", ["once", "palma", "published", "noise", "random"])
def test_without_a_seed_randomness_is_fresh_and_with_one_the_guarantee_says_simulation(method):
    problem = town(25, 30)
    fresh = [pm.match(problem, method) for _ in range(3)]
    assert len({tuple(matching.resource_of) for matching in fresh}) > 1
    assert not any("simulation" in assumption for assumption in fresh[0].guarantee.assumptions)
    repeated = [pm.match(problem, method, seed=5) for _ in range(2)]
    np.testing.assert_array_equal(repeated[0].resource_of, repeated[1].resource_of)
    assert any("simulation" in assumption for assumption in repeated[0].guarantee.assumptions)


def test_without_a_seed_every_agent_has_its_own_fresh_bits(monkeypatch):
    asked: list[int] = []
    words = np.arange(1000, dtype="<u8").tobytes()
    monkeypatch.setattr(streams.os, "urandom", lambda count: asked.append(count) or words[:count])
    workspace = pm.Workspace(town(25, 30))
    fresh = workspace.randomness(None)
    assert asked == [16 * 25]
    assert len(np.unique(np.concatenate((fresh.private, fresh.second)))) == 50
    # Ties are broken by streams of their own: nothing public is a function of what is private.
    assert not np.isin((fresh.private, fresh.second), fresh.public).any()
    assert not fresh.simulated


def test_two_ids_with_one_hash_are_refused(monkeypatch):
    monkeypatch.setattr(workspace_module, "keys_of", lambda ids: np.array([7, 3, 7], dtype=np.uint64))
    with pytest.raises(pm.InputError, match="'0' and '2' have the same hash"):
        pm.match(town(3, 3), "once")


def test_settings_and_epsilon_together_are_refused():
    with pytest.raises(pm.InputError, match="not both ways"):
        pm.match(town(2, 2), epsilon=0.01, settings=pm.Settings())


def test_a_budget_of_zero_buys_nothing_whatever_delta_is():
    problem = pm.mobility.problem(places(30, 1), places(20, 2), edge=3000, spacing=500)
    matching = pm.match(problem, "palma", epsilon=0.0, delta=0.5, seed=1)
    assert matching.charged.max() == 0
    assert matching.epsilon.max() == 0.0


@pytest.mark.parametrize("method", [name for name, method in pm.METHODS.items() if method.private])
def test_what_the_registry_says_of_a_guarantee_is_what_a_matching_says(method):
    requests, cars = (places(count, seed) * [0.2, 1] + [32.6, 0] for count, seed in ((20, 1), (25, 2)))
    problem = pm.mobility.problem(requests, cars, edge=8000, spacing=500)
    record, guarantee = pm.METHODS[method], pm.match(problem, method, epsilon=2.0, seed=1).guarantee
    assert guarantee.notion == record.notion
    assert (guarantee.epsilon > 0) == record.spends
    assert record.has_delta or guarantee.delta == 0.0


def everything_to_the_first(workspace, settings, trace):
    return lambda chance: pm.prepare(workspace, "random").run(chance)


MINE = pm.Method("mine", "a method of a user", everything_to_the_first, spends=False)


def test_a_method_of_a_users_own_is_found_by_module_and_name(monkeypatch):
    name = f"{__name__}:MINE"
    # What is found is registered: in a copy, so that other tests do not meet it.
    monkeypatch.setattr(pm.METHODS, "_methods", dict(pm.METHODS))
    matching = pm.match(town(3, 4), name, seed=1)
    assert matching.method == "mine"
    assert matching.matched == 3
    with pytest.raises(pm.InputError, match="Expected a method at 'nowhere:x'"):
        pm.match(town(3, 4), "nowhere:x")
    with pytest.raises(pm.InputError, match=r"Expected a palmatch.Method at .*found tuple"):
        pm.match(town(3, 4), f"{__name__}:MANHATTAN_PAIR")


MANHATTAN_PAIR = (1, 2)


def test_a_name_is_registered_once():
    with pytest.raises(pm.InputError, match="There is a method 'once' already"):
        pm.register(pm.METHODS["once"])

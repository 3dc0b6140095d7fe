"""The methods of taking turns: a threshold pays, patience pays, and neither tells more than it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import palmatch as pm
from palmatch.data.crowd import crowd
from palmatch.methods import lists as turns
from palmatch.methods import reports as once
from palmatch.problem import make_problem
from palmatch.rounds.turns import best_first


@pytest.fixture(scope="module")
def morning() -> pm.Workspace:
    batch = pm.data.city.batch(8.0, seed=5)
    return pm.Workspace(pm.mobility.problem(batch.requests, batch.vehicles, edge=1000))


def mean_loss(workspace: pm.Workspace, method: str, seeds: range) -> float:
    ready, best = pm.prepare(workspace, method), pm.match(workspace.problem, "hungarian").welfare
    return float(np.mean([1 - ready.play(seed).welfare / best for seed in seeds]))


def test_on_own_lists_a_threshold_loses_at_most_two_thirds_of_what_waiting_loses(morning):
    assert mean_loss(morning, "alma-threshold", range(8)) < 0.67 * mean_loss(morning, "alma-patient", range(8))


def test_waiting_on_average_utilities_loses_less_than_the_noise_of_the_paper(morning):
    assert mean_loss(morning, "noise-patient", range(8)) < 0.9 * mean_loss(morning, "noise", range(8))


def test_waiting_on_average_utilities_uses_nothing_but_the_region(morning):
    problem = morning.problem
    moved = np.array([problem.domain.types_of(problem.regions[place])[0] for place in problem.region_index])
    elsewhere = make_problem(
        problem.domain, moved, resource_ids=problem.resource_ids, agent_ids=problem.agent_ids, truth=problem.truth
    )
    assert elsewhere.regions == problem.regions
    here, there = pm.match(problem, "noise-patient", seed=3), pm.match(elsewhere, "noise-patient", seed=3)
    assert here.resource_of.tolist() == there.resource_of.tolist()
    assert here.guarantee.epsilon == here.epsilon.max() == 0.0


def test_averages_are_those_of_the_domains_own_expectations(morning):
    averages = turns.region_value_lists(morning)
    for number, region in enumerate(morning.regions):
        weight = morning.problem.domain.prior(region.region)
        expected = sum(w * row for w, row in zip(weight, region.utilities, strict=True)) / weight.sum()
        here = slice(averages.start[number], averages.start[number + 1])
        assert averages.values[here] == pytest.approx(expected, rel=1e-12)
        assert averages.resources[here].tolist() == region.resources.tolist()


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_a_threshold_after_a_report_guarantees_what_the_report_guarantees(epsilon):
    batch = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=2000)
    ours, theirs = pm.match(problem, "once-threshold", epsilon=epsilon), pm.match(problem, "once", epsilon=epsilon)
    assert ours.guarantee == theirs.guarantee
    assert ours.epsilon.tolist() == theirs.epsilon.tolist()
    assert ours.charged.tolist() == theirs.charged.tolist()


def test_a_threshold_after_a_report_depends_on_the_report_alone(monkeypatch):
    batch = pm.data.city.batch(5.0)
    workspace = pm.Workspace(pm.mobility.problem(batch.requests, batch.vehicles, edge=4000))
    plan = once.reporting(workspace, pm.Settings(epsilon=2.0))
    drawn = once.drawn(plan, workspace.randomness(1))
    monkeypatch.setattr(once, "drawn", lambda *_: drawn)
    monkeypatch.setattr(once, "reporting", lambda *_, **__: plan)
    here = pm.prepare(workspace, "once-threshold").play(1)
    monkeypatch.setattr(once, "reporting", lambda *_, **__: replace(plan, cell=np.zeros_like(plan.cell)))
    there = pm.prepare(workspace, "once-threshold").play(1)
    assert here.resource_of.tolist() == there.resource_of.tolist()


def test_the_threshold_is_a_function_of_what_is_public():
    batch = pm.data.city.batch(5.0)
    workspace = pm.Workspace(pm.mobility.problem(batch.requests, batch.vehicles, edge=4000))
    plan = once.reporting(workspace, pm.Settings(epsilon=2.0))
    rules = []
    for seed in range(4):
        rule = turns.threshold(best_first(once.value_lists(plan, once.drawn(plan, workspace.randomness(seed)))))
        rules.append(rule.opens.tolist())
    assert all(opens == rules[0] for opens in rules)


def test_a_crowds_lists_are_the_plain_ones():
    drawn = crowd(300, seed=2)
    problem = pm.mobility.problem(drawn.requests, drawn.vehicles, edge=1000, interest=6)
    given = (problem, problem.domain, problem.types)
    plain, found = turns._lists(*given), turns._located_lists(*given)
    np.testing.assert_array_equal(plain[0], found[0])
    np.testing.assert_array_equal(plain[1], found[1])


def test_lists_that_would_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(turns, "_MOST_ENTRIES", 10)
    batch = pm.data.city.batch(5.0)
    with pytest.raises(pm.InputError, match="bound them with interest"):
        pm.match(pm.mobility.problem(batch.requests, batch.vehicles), "alma-threshold")


@pytest.mark.parametrize("method", [name for name, method in pm.METHODS.items() if method.settle is not None])
def test_after_the_report_nothing_draws_from_private_streams(method):
    batch = pm.data.city.batch(5.0)
    workspace = pm.Workspace(pm.mobility.problem(batch.requests, batch.vehicles, edge=4000))
    plan = once.reporting(workspace, pm.Settings(epsilon=2.0))
    fresh = workspace.randomness(None)
    told = once.drawn(plan, fresh)
    seen: list[object] = []
    settle = pm.METHODS[method].settle
    run = once.on_reports(lambda *args: seen.append(args[3]) or settle(*args))(
        workspace, pm.Settings(epsilon=2.0), False
    )
    matching = run(fresh)
    assert not np.isin((seen[0].private, seen[0].second), (fresh.private, fresh.second)).any()
    again = settle(workspace, plan, told, fresh.after_reports(), False)
    assert matching.resource_of.tolist() == again.resource_of.tolist()
